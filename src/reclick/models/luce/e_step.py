"""The E-step of LuceClick: expected and observed choices of sessions under given parameters.

After k clicks, the last at l, a user of component t gives each free position j the weight
w_j = θ_j φ_jt γ_t(l, j), where θ includes the position effect, and the end ω_t(k) f_q. A click
satisfies with the odds of ρ times ς_t. The kernel sums up the expected choices of each parameter,
P(still choosing) · w / Z, and the observed ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.data.ragged import Float64, Int32, Int64, positions_in_runs, read_only
from reclick.engines import Engine, LocalEngine
from reclick.fitting.factors import FactorTable
from reclick.models.luce.parameters import (
    NO_CELLS,
    Hyperparameters,
    Information,
    LuceParameters,
    PairPositions,
    cell_keys,
    find_cells,
    lookup_position_effects,
    outside_table,
    position_effect_table,
    transition_table,
)
from reclick.runtime.jit import kernel

MIN_PRODUCT = 1e-200  # a product of probabilities below this is moved into the logarithm
EXPECTED, OBSERVED = 0, 1  # rows of sums of choices
SATISFIED, CHOOSING = 0, 1  # rows of the room for steps
POSTERIOR, VARIANCE = 0, 1  # … for components
FREE, APPEAL, EXPECTED_HERE = 0, 1, 2  # … for positions


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Which parameters there are, and the tables that their factors make up."""

    hyperparameters: Hyperparameters
    n_pairs: int
    n_queries: int
    longest: int  # page
    pair_query: Int32
    cells: PairPositions  # none where positions have no effect of their own
    transition: FactorTable
    outside: FactorTable
    position_effect: FactorTable

    @property
    def per_query_outside(self) -> bool:
        """Whether each query has its own outside option."""
        return self.hyperparameters.query_strength is not None

    @property
    def per_query_mixing(self) -> bool:
        """Whether each query has its own mixing weights."""
        return self.hyperparameters.mixing_strength is not None

    @property
    def has_component_appeal(self) -> bool:
        """Whether the components differ in what attracts them."""
        return self.hyperparameters.component_appeal_strength is not None

    @property
    def has_component_satisfaction(self) -> bool:
        """Whether the components differ in how easily they are satisfied."""
        chosen = self.hyperparameters
        return chosen.components > 1 and chosen.satisfaction_strength is not None

    @property
    def has_position_effects(self) -> bool:
        """Whether position effects differ between queries and pairs."""
        return self.hyperparameters.position_effect_strength is not None

    @property
    def appeal_components(self) -> int:
        """The number of components that have an appeal of their own, or 1."""
        return self.hyperparameters.components if self.has_component_appeal else 1


def build_layout(
    sessions: GroupedSessions, hyperparameters: Hyperparameters, past_cells: Int64 = NO_CELLS
) -> Layout:
    """The layout for some sessions; `past_cells` are keys of cells that they need not have."""
    chosen, counts = hyperparameters, sessions.counts
    longest, n_queries = max(counts.max_ads, 1), len(counts.queries)
    placed = chosen.position_effect_strength is not None
    cells = find_cells(sessions.whole, past_cells) if placed else PairPositions(NO_CELLS)
    return Layout(
        hyperparameters=chosen,
        n_pairs=len(counts.impressions),
        n_queries=n_queries,
        longest=longest,
        pair_query=counts.pair_query,
        cells=cells,
        transition=transition_table(
            chosen.components, longest, chosen.transition_strength, chosen.component_strength
        ),
        outside=outside_table(chosen.components, longest, chosen.component_strength),
        position_effect=position_effect_table(
            cells,
            counts.pair_query,
            n_queries if placed else 0,
            longest,
            chosen.position_effect_strength or 0.0,
        ),
    )


class SessionArrays(NamedTuple):
    """Sessions as the kernel reads them; pairs, queries and cells count from the block's first."""

    pair: Int32  # [impression]
    page: Int64  # [session + 1]
    click: Int32  # [click]
    clicks: Int64  # [session + 1]
    weight: Float64  # [session]
    query: Int32  # [session]
    cell: Int32  # [impression] pair and position; the pair where positions have no effect


class ChoiceWeights(NamedTuple):
    """Parameters as the kernel reads them, of the pairs, queries and cells of a block."""

    appeal: Float64  # [cell, component or 1]
    rho: Float64  # [pair]
    rho_variance: Float64  # [pair]
    satisfaction_odds: Float64  # [component]
    transition: Float64  # [component, last, position]
    outside: Float64  # [component, clicks so far]
    query_outside: Float64  # [query or 1]
    mixing: Float64  # [query or 1, component]


class StatisticsArrays(NamedTuple):
    """What the kernel adds up. Sums of choices have two rows: expected and observed."""

    expected: Float64  # [cell, component or 1]
    satisfied: Float64  # [2, pair] expected number of clicks that satisfied, and its variance
    transition: Float64  # [2, component, last, position]
    outside: Float64  # [2, component, clicks so far]
    query_outside: Float64  # [2, query or 1]
    component_sessions: Float64  # [query or 1, component]
    appeal_observed: Float64  # [pair, component] or [1, 1]
    followed: Float64  # [pair, component] clicks that left another ad to click; or [1, 1]
    satisfaction_odds: Float64  # [2, component] clicks that satisfied
    information: Float64  # [pair, 2 (component or 1)] the columns of `Information`; or [0, 2]


class KernelRoom(NamedTuple):
    """Room for one session."""

    choice: Float64  # [component, clicks so far, position + 1] probabilities; the last is the end
    step: Float64  # [2, component, clicks so far] P(satisfied by the last click), P(still choosing)
    component: Float64  # [2, component] posterior, variance of "satisfied"
    position: Float64  # [3, position] free, appeal, expected choices
    own: Float64  # [pair] an ad's own share of a choice; [0] unless information is asked for
    scores: Float64  # [session] log-likelihoods; [0] in a fit


@dataclass(frozen=True, slots=True, eq=False)
class LuceBlock:
    """Sessions of a run of queries, and which pairs, queries and cells of all they have."""

    sessions: SessionArrays
    pairs: slice
    queries: slice
    cells: slice
    layout: Layout


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedStatistics:
    """What an E-step sums up over a run of pairs and queries."""

    log_likelihood: float  # with the terms of the uncertain ρ (reclick.models.luce.satisfaction)
    sums: StatisticsArrays
    layout: Layout

    def __add__(self, other: ExpectedStatistics) -> ExpectedStatistics:
        """The statistics of both; the pairs and queries of `other` come after these."""
        layout = self.layout
        axes: dict[str, int | None] = {  # along which they are joined; the others are added
            "expected": 0,
            "satisfied": 1,
            "query_outside": 1 if layout.per_query_outside else None,
            "component_sessions": 0 if layout.per_query_mixing else None,
            "appeal_observed": 0 if layout.has_component_appeal else None,
            "followed": 0 if layout.has_component_satisfaction else None,
            "information": 0,
        }
        sums = [
            a + b if axes.get(name) is None else np.concatenate([a, b], axis=axes[name])
            for name, a, b in zip(StatisticsArrays._fields, self.sums, other.sums, strict=True)
        ]
        total = self.log_likelihood + other.log_likelihood
        return ExpectedStatistics(total, StatisticsArrays(*sums), layout)


def e_step(parameters: LuceParameters, block: LuceBlock) -> ExpectedStatistics:
    """The statistics of a block of sessions under the parameters."""
    return _run_kernel(parameters, block, _appeal(parameters, block))


def information_step(parameters: LuceParameters, block: LuceBlock) -> ExpectedStatistics:
    """The statistics of a block, with the information on each pair."""
    return _run_kernel(parameters, block, _appeal(parameters, block), with_information=True)


def build_block(
    sessions: QueryBlock, layout: Layout, cells: PairPositions | None = None
) -> LuceBlock:
    """A block as the kernel reads it; `cells` are those of the layout by default."""
    cells = layout.cells if cells is None else cells
    cell, rows = sessions.pair, sessions.pairs
    if layout.has_position_effects:
        rows = slice(*np.searchsorted(cells.pair, [rows.start, rows.stop]).tolist())
        pair = sessions.pair.astype(np.int64) + sessions.first_pair
        at = cells.find(cell_keys(pair, positions_in_runs(sessions.page)))
        cell = read_only((at - rows.start).astype(np.int32))
    arrays = SessionArrays(
        sessions.pair,
        sessions.page,
        sessions.click,
        sessions.clicks,
        sessions.weight,
        read_only(sessions.query),
        cell,
    )
    return LuceBlock(arrays, sessions.pairs, sessions.queries, rows, layout)


class SessionBlocks:
    """All sessions of a fit, in blocks of queries."""

    def __init__(
        self,
        sessions: GroupedSessions,
        hyperparameters: Hyperparameters,
        past_cells: Int64 = NO_CELLS,
        engine: Engine | None = None,
    ) -> None:
        """`past_cells` are keys of cells that the sessions need not have."""
        self.layout, self.engine = (
            build_layout(sessions, hyperparameters, past_cells),
            engine or LocalEngine(),
        )
        parts = sessions.blocks(self.engine.n_blocks)
        self.blocks = self.engine.prepare(partial(build_block, layout=self.layout), parts)

    def sum_by_pair(self, values: Float64) -> Float64:
        """Sums of [cell, component] over the cells of each pair."""
        layout = self.layout
        if not layout.has_position_effects:
            return values
        pair = layout.cells.pair
        sums = [np.bincount(pair, column, layout.n_pairs) for column in values.T]
        return np.stack(sums, axis=1).astype(np.float64)

    def clicks_by_cell(self, sessions: QueryBlock) -> Float64:
        """Clicks of each cell; none where cells are pairs."""
        if not self.layout.has_position_effects:
            return np.zeros(0)
        n_clicks, cells = np.diff(sessions.clicks), self.layout.cells
        pair = sessions.pair[np.repeat(sessions.page[:-1], n_clicks) + sessions.click - 1]
        at = cells.find(cell_keys(pair, sessions.click.astype(np.int64) - 1))
        weight = np.repeat(sessions.weight, n_clicks)
        return np.bincount(at, weight, len(cells.key)).astype(np.float64)

    def information(self, parameters: LuceParameters) -> Information:
        """The information that the sessions have on each pair."""
        statistics = self.engine.reduce(information_step, parameters, self.blocks)
        values = statistics.sums.information
        columns = self.layout.appeal_components
        return Information(values[:, :columns], values[:, columns:])

    def score(self, parameters: LuceParameters, sessions: GroupedSessions) -> Float64:
        """The log-likelihood of each of other sessions of the same pairs [session]."""
        layout = self.layout
        cells = find_cells(sessions.whole) if layout.has_position_effects else layout.cells
        block = build_block(sessions.whole, layout, cells)
        effect = lookup_position_effects(
            parameters.position_effect,
            layout.cells,
            layout.longest,
            layout.pair_query[cells.pair].astype(np.int64),
            cells.pair,
            cells.position,
        )
        appeal = _cell_appeal(parameters, block, cells.pair, effect)
        scores = np.empty(len(sessions))
        _run_kernel(parameters, block, appeal, scores=scores)
        return scores


def empty_statistics(
    layout: Layout, n_pairs: int, n_queries: int, n_cells: int, with_information: bool = False
) -> StatisticsArrays:
    """Zeros, for so many pairs, queries and cells."""
    components, appeals = layout.hyperparameters.components, layout.appeal_components
    return StatisticsArrays(
        expected=np.zeros((n_cells, appeals)),
        satisfied=np.zeros((2, n_pairs)),
        transition=np.zeros((2, *layout.transition.shape)),
        outside=np.zeros((2, *layout.outside.shape)),
        query_outside=np.zeros((2, n_queries if layout.per_query_outside else 1)),
        component_sessions=np.zeros((n_queries if layout.per_query_mixing else 1, components)),
        appeal_observed=np.zeros((n_pairs if layout.has_component_appeal else 1, appeals)),
        followed=np.zeros((n_pairs, components) if layout.has_component_satisfaction else (1, 1)),
        satisfaction_odds=np.zeros((2, components)),
        information=np.zeros((n_pairs if with_information else 0, 2 * appeals)),
    )


def _appeal(parameters: LuceParameters, block: LuceBlock) -> Float64:
    """θ with position effects and component appeal, of the cells of a block."""
    layout, pair, effect = block.layout, NO_CELLS, np.zeros(0)
    if layout.has_position_effects:
        table = layout.position_effect
        pair = layout.cells.pair[block.cells]
        effect = np.prod(parameters.position_effect[table.index[:, block.cells]], axis=0)
    return _cell_appeal(parameters, block, pair, effect)


def _cell_appeal(
    parameters: LuceParameters, block: LuceBlock, pair: Int64, effect: Float64
) -> Float64:
    """The appeal of cells [cell, component or 1] of these pairs with these position effects."""
    layout = block.layout
    if not layout.has_position_effects:
        theta = parameters.theta[block.pairs, None]
        appeal = parameters.component_appeal
        return theta * appeal[block.pairs] if layout.has_component_appeal else theta
    theta = (parameters.theta[pair] * effect)[:, None]
    return theta * parameters.component_appeal[pair] if layout.has_component_appeal else theta


def _run_kernel(
    parameters: LuceParameters,
    block: LuceBlock,
    appeal: Float64,
    *,
    scores: Float64 | None = None,
    with_information: bool = False,
) -> ExpectedStatistics:
    layout, pairs, queries = block.layout, block.pairs, block.queries
    n_pairs, longest = pairs.stop - pairs.start, layout.longest
    sums = empty_statistics(
        layout, n_pairs, queries.stop - queries.start, len(appeal), with_information
    )
    per_query, mixing = parameters.query_outside, parameters.mixing
    weights = ChoiceWeights(
        appeal,
        parameters.rho[pairs],
        parameters.satisfaction_variance[pairs],
        parameters.satisfaction_odds,
        layout.transition.table(parameters.transition),
        layout.outside.table(parameters.outside),
        per_query[queries] if layout.per_query_outside else per_query,
        mixing[queries] if layout.per_query_mixing else mixing,
    )
    components = layout.hyperparameters.components
    room = KernelRoom(
        np.empty((components, longest + 1, longest + 1)),
        np.empty((2, components, longest + 1)),
        np.zeros((2, components)),
        np.empty((3, longest)),
        np.zeros(n_pairs if with_information else 0),
        np.zeros(0) if scores is None else scores,
    )
    total = _sum_sessions(block.sessions, weights, sums, room, layout.has_component_satisfaction)
    return ExpectedStatistics(total, sums, layout)


@kernel
def _sum_sessions(  # noqa: PLR0912, PLR0915 (one loop: each session stays in the cache)
    sessions: SessionArrays,
    weights: ChoiceWeights,
    sums: StatisticsArrays,
    room: KernelRoom,
    by_component: bool,
) -> float:
    """Add all sessions to the statistics, and return their log-likelihood.

    In a fit the uncertain ρ adds terms to it; a session that is scored has the mean of ρ.
    `by_component` says whether the components differ in satisfaction.
    """
    pair, page, click, clicks, weight, queries, cell = sessions
    appeals, rho, rho_variance, odds, transition, outside, query_outside, mixing = weights
    choice, step, component, position, own, scores = room
    n_components, end, fitting = transition.shape[0], choice.shape[2] - 1, len(scores) == 0
    total = 0.0
    for s in range(len(weight)):
        first, n = page[s], page[s + 1] - page[s]
        begin, n_clicks = clicks[s], clicks[s + 1] - clicks[s]
        n_steps = n_clicks + 1 if n_clicks < n else n
        query = queries[s] if len(query_outside) > 1 else 0
        mixing_row = queries[s] if len(mixing) > 1 else 0
        f = query_outside[query]
        highest = -np.inf
        for t in range(n_components):
            column = t if appeals.shape[1] > 1 else 0
            for j in range(n):
                position[FREE, j] = 1.0
                position[APPEAL, j] = appeals[cell[first + j], column]
            product, logs, last, variance = 1.0, 0.0, 0, 0.0
            for k in range(n_steps):
                leave = outside[t, k] * f
                z = leave
                for j in range(n):
                    w = position[APPEAL, j] * transition[t, last, j] * position[FREE, j]
                    choice[t, k, j] = w
                    z += w
                for j in range(n):
                    choice[t, k, j] /= z
                leave /= z
                choice[t, k, end] = leave
                c, choosing = 0.0, 1.0
                if last > 0:
                    at = pair[first + last - 1]
                    variance = rho_variance[at]
                    c = rho[at] * odds[t] / (1.0 - rho[at] + rho[at] * odds[t])
                    spread = 0.5 * variance * c * (1.0 - c)
                    if fitting:
                        logs -= spread
                    else:
                        c += spread * (1.0 - 2.0 * c)
                if k < n_clicks:
                    last = click[begin + k]
                    position[FREE, last - 1] = 0.0
                    product *= (1.0 - c) * choice[t, k, last - 1]
                else:
                    leave *= 1.0 - c
                    product *= c + leave
                    choosing = leave / (c + leave)
                    if last > 0 and fitting:
                        yes_no = choosing * (1.0 - choosing)
                        component[VARIANCE, t] = yes_no
                        logs += 0.5 * variance * yes_no
                        choosing -= 0.5 * variance * yes_no * (2.0 * choosing - 1.0)
                step[SATISFIED, t, k] = c
                step[CHOOSING, t, k] = choosing
                if product < MIN_PRODUCT:
                    logs += math.log(product if product > 1e-300 else 1e-300)
                    product = 1.0
            logs += math.log(product) + math.log(mixing[mixing_row, t])
            component[POSTERIOR, t] = logs
            highest = max(highest, logs)
        sum_ = 0.0
        for t in range(n_components):
            component[POSTERIOR, t] = math.exp(component[POSTERIOR, t] - highest)
            sum_ += component[POSTERIOR, t]
        log_likelihood = highest + math.log(sum_)
        total += weight[s] * log_likelihood
        if not fitting:
            scores[s] = log_likelihood
            continue
        for j in range(n):
            position[EXPECTED_HERE, j] = 0.0
        for t in range(n_components):
            mass = weight[s] * component[POSTERIOR, t] / sum_
            if n_components > 1:
                sums.component_sessions[mixing_row, t] += mass
            if len(own) > 0:
                _add_information(pair, first, n, n_steps, t, mass, choice, step, own, sums)
            last = 0
            for k in range(n_steps):
                choosing = mass * step[CHOOSING, t, k]
                if by_component and last > 0:
                    at, c = pair[first + last - 1], step[SATISFIED, t, k]
                    spread = 0.5 * rho_variance[at] * c * (1.0 - c)
                    sums.followed[at, t] += mass
                    sums.satisfaction_odds[EXPECTED, t] += mass * (c + spread * (1.0 - 2.0 * c))
                for j in range(n):
                    value = choosing * choice[t, k, j]
                    position[EXPECTED_HERE, j] += value
                    sums.transition[EXPECTED, t, last, j] += value
                leave = choosing * choice[t, k, end]
                sums.outside[EXPECTED, t, k] += leave
                sums.query_outside[EXPECTED, query] += leave
                if k < n_clicks:
                    sums.transition[OBSERVED, t, last, click[begin + k] - 1] += mass
                    last = click[begin + k]
                    if appeals.shape[1] > 1:
                        sums.appeal_observed[pair[first + last - 1], t] += mass
                else:
                    sums.outside[OBSERVED, t, k] += choosing
                    sums.query_outside[OBSERVED, query] += choosing
                    if last > 0:
                        at = pair[first + last - 1]
                        sums.satisfied[0, at] += mass - choosing
                        sums.satisfied[1, at] += mass * component[VARIANCE, t]
                        if by_component:
                            sums.satisfaction_odds[OBSERVED, t] += mass - choosing
            if appeals.shape[1] > 1 or t == n_components - 1:
                column = t if appeals.shape[1] > 1 else 0
                for j in range(n):
                    sums.expected[cell[first + j], column] += position[EXPECTED_HERE, j]
                    position[EXPECTED_HERE, j] = 0.0
    return total


@kernel
def _add_information(
    pair: Int32,
    first: int,
    n: int,
    n_steps: int,
    t: int,
    mass: float,
    choice: Float64,
    step: Float64,
    own: Float64,
    sums: StatisticsArrays,
) -> None:
    """Add the information of a session on its pairs.

    Whether an end was chosen or the user was satisfied is not observed. So comparisons with the end
    carry less information, and those of ads with each other more.
    """
    columns, end = sums.information.shape[1] // 2, choice.shape[2] - 1
    column = t if columns > 1 else 0
    for k in range(n_steps):
        c, leave = step[SATISFIED, t, k], choice[t, k, end]
        over = c + (1.0 - c) * leave
        hidden = 1.0 + (leave * c / over if over > 0.0 else 0.0)
        for j in range(n):  # an ad that is shown twice is not compared with itself
            own[pair[first + j]] += choice[t, k, j]
        for j in range(n):
            at = pair[first + j]
            value = mass * step[CHOOSING, t, k] * choice[t, k, j]
            sums.information[at, column] += value * (1.0 - hidden * (1.0 - leave))
            sums.information[at, columns + column] += value * hidden * (1.0 - leave - own[at])
        for j in range(n):
            own[pair[first + j]] = 0.0


def clicks_by_pair(sessions: GroupedSessions) -> tuple[Float64, Float64]:
    """Clicks of each pair, and those of them that left another ad to click [pair]."""
    n_clicks = np.diff(sessions.clicks)
    impression = np.repeat(sessions.page[:-1], n_clicks) + sessions.click - 1
    weight = np.repeat(sessions.weight, n_clicks)
    n_pairs = len(sessions.counts.impressions)
    clicks = np.bincount(sessions.pair[impression], weight, n_pairs).astype(np.float64)
    full = (n_clicks > 0) & (n_clicks == np.diff(sessions.page))
    last = sessions.pair[impression[sessions.clicks[1:][full] - 1]]
    return clicks, np.asarray(clicks - np.bincount(last, sessions.weight[full], n_pairs))


def session_frequencies(sessions: GroupedSessions) -> tuple[Float64, Float64]:
    """Impressions of each pair, and sessions of each query."""
    counts, weight = sessions.counts, np.repeat(sessions.weight, np.diff(sessions.page))
    impressions = np.bincount(sessions.pair, weight, len(counts.impressions))
    volumes = np.bincount(sessions.whole.query, sessions.weight, len(counts.queries))
    return impressions.astype(np.float64), volumes.astype(np.float64)
