"""Updates: what a fitted LuceClick keeps of its sessions, so that it can continue without them.

Only sums are kept: how often each weight was chosen, and its exposure, the expected choices per
unit of it under the last fit. As a function of a weight x the past sessions are then worth observed
· log x − exposure · x. The slope is exact at the point where they were fitted. Further away it is
an approximation, as the other weights of that time are not kept. The information on each pair is
kept as well, for the intervals. Decay shrinks all sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64, Int32, Int64
from reclick.data.string_index import Interner
from reclick.models.luce.e_step import EXPECTED, OBSERVED, ExpectedStatistics
from reclick.models.luce.m_step import Objective
from reclick.models.luce.parameters import (
    NO_CELLS,
    Information,
    LuceParameters,
    PairPositions,
    PastStatistics,
    cell_keys,
)
from reclick.models.luce.satisfaction import ZERO_VARIANCE, equivalent_clicks, satisfaction_centre


class IndexMap:
    """Where the queries, pairs and cells of some counts are in the counts of more."""

    def __init__(self, part: Counts, whole: Counts, cells: Int64 = NO_CELLS) -> None:
        """`cells` are the keys of the cells of the part."""
        self.query = _find_codes(whole.queries, part.queries)  # [query of the part]
        ad = _find_codes(whole.ads, part.ads)
        key = _pair_keys(self.query[part.pair_query], ad[part.pair_ad])
        all_keys = _pair_keys(whole.pair_query, whole.pair_ad)
        self.pair: Int64 = np.searchsorted(all_keys, key)  # [pair of the part]
        self.n_pairs, self.n_queries = len(whole.impressions), len(whole.queries)
        old = PairPositions(cells)
        self.cells = cell_keys(self.pair[old.pair], old.position)  # [cell of the part] key in whole

    def to_pairs(self, values: Float64, fill: Float64 | float) -> Float64:
        """Values of the pairs of the part as values of all pairs."""
        out = np.array(np.broadcast_to(fill, (self.n_pairs, *values.shape[1:])), np.float64)
        out[self.pair] = values
        return out

    def to_queries(self, values: Float64, fill: Float64 | float) -> Float64:
        """Values of the queries of the part as values of all queries."""
        out = np.array(np.broadcast_to(fill, (self.n_queries, *values.shape[1:])), np.float64)
        out[self.query] = values
        return out

    def to_cells(self, values: Float64, whole: PairPositions, fill: float) -> Float64:
        """Values of the cells of the part as values of all cells."""
        out = np.full(len(whole.key), fill)
        out[whole.find(self.cells)] = values
        return out


def _find_codes(strings: pa.Array, wanted: pa.Array) -> Int32:
    index = Interner()
    index.codes(strings)
    return index.find(wanted)


def _pair_keys(query: Int32, ad: Int32) -> Int64:
    return (query.astype(np.int64) << 32) | ad


def reindex_sessions(sessions: GroupedSessions, whole: Counts) -> GroupedSessions:
    """The same sessions, with pairs numbered as in the counts of more."""
    pair = IndexMap(sessions.counts, whole).pair[sessions.pair].astype(np.int32)
    block = replace(sessions.whole, pair=pair, pair_query=whole.pair_query)
    return GroupedSessions(whole, block)


def past_statistics(
    objective: Objective,
    now: LuceParameters,
    statistics: ExpectedStatistics,
    information: Information,
) -> PastStatistics:
    """What this fit leaves for the next, the past that it began with included."""
    past, layout, sums = objective.past, objective.layout, statistics.sums
    expected = objective.sessions.sum_by_pair(sums.expected)
    followed, too_much = objective.followed, np.zeros(layout.n_pairs)
    if layout.has_component_satisfaction:
        followed, too_much = equivalent_clicks(
            now.rho, now.satisfaction_variance, sums.followed, now.satisfaction_odds
        )
    transition = layout.transition.table(now.transition)
    outside = layout.outside.table(now.outside)
    appeal_exposure = past.appeal_exposure
    if layout.has_component_appeal:
        appeal_exposure = expected / now.component_appeal + appeal_exposure
    return PastStatistics(
        observed=objective.clicks + past.observed,
        exposure=expected.sum(axis=1) / now.theta + past.exposure,
        followed=followed + past.followed,
        satisfied=sums.satisfied[0] + past.satisfied,
        satisfied_variance=sums.satisfied[1] + too_much + past.satisfied_variance,
        transition_observed=sums.transition[OBSERVED] + past.transition_observed,
        transition_exposure=sums.transition[EXPECTED] / transition + past.transition_exposure,
        outside_observed=sums.outside[OBSERVED] + past.outside_observed,
        outside_exposure=sums.outside[EXPECTED] / outside + past.outside_exposure,
        query_observed=sums.query_outside[OBSERVED] + past.query_observed,
        query_exposure=sums.query_outside[EXPECTED] / now.query_outside + past.query_exposure,
        component_sessions=sums.component_sessions + past.component_sessions,
        appeal_observed=sums.appeal_observed + past.appeal_observed,
        appeal_exposure=appeal_exposure,
        cell_observed=objective.cell_clicks + past.cell_observed,
        cell_exposure=cell_exposure(objective, now, statistics) + past.cell_exposure,
        odds_observed=sums.satisfaction_odds[OBSERVED] + past.odds_observed,
        odds_exposure=sums.satisfaction_odds[EXPECTED] / now.satisfaction_odds + past.odds_exposure,
        component_followed=objective.component_clicks(statistics),
        information=information,
    )


def cell_exposure(
    objective: Objective, now: LuceParameters, statistics: ExpectedStatistics
) -> Float64:
    """Expected choices per unit of the position effect of each cell [cell]."""
    table = objective.layout.position_effect
    if not objective.layout.has_position_effects:
        return np.zeros(0)
    return np.asarray(statistics.sums.expected.sum(axis=1) / table.table(now.position_effect))


def decay_past(
    past: PastStatistics, decay: float, index: IndexMap, objective: Objective
) -> PastStatistics:
    """The past statistics times the decay, for more pairs and queries and for longer pages."""
    layout = objective.layout
    transition, outside = layout.transition.shape, layout.outside.shape
    wide = [
        _pad(table, shape)
        for table, shape in (
            (past.transition_observed, transition),
            (past.transition_exposure, transition),
            (past.outside_observed, outside),
            (past.outside_exposure, outside),
        )
    ]
    pairs = [index.to_pairs(values, 0.0) for values in past[:5]]
    queries = [
        index.to_queries(values, 0.0) if per_query else values
        for values, per_query in (
            (past.query_observed, layout.per_query_outside),
            (past.query_exposure, layout.per_query_outside),
            (past.component_sessions, layout.per_query_mixing),
        )
    ]
    appeal = [
        index.to_pairs(values, 0.0) if layout.has_component_appeal else values
        for values in (past.appeal_observed, past.appeal_exposure)
    ]
    cells = [
        index.to_cells(values, layout.cells, 0.0)
        for values in (past.cell_observed, past.cell_exposure)
    ]
    odds = past.odds_observed, past.odds_exposure, past.component_followed
    information = Information(*(decay * index.to_pairs(x, 0.0) for x in past.information))
    sums = (decay * values for values in (*pairs, *wide, *queries, *appeal, *cells, *odds))
    return PastStatistics._make([*sums, information])


def _pad(table: Float64, shape: tuple[int, ...]) -> Float64:
    return np.pad(table, [(0, size - old) for size, old in zip(shape, table.shape, strict=True)])


def warm_start(last: LuceParameters, index: IndexMap, objective: Objective) -> LuceParameters:
    """The parameters of the last fit as the start of the next; its `rho` is the mean of ρ.

    New pairs and queries start at their prior means, transitions anew where pages became longer.
    """
    layout, fresh = objective.layout, objective.initial_parameters()
    variance = index.to_pairs(last.satisfaction_variance, fresh.satisfaction_variance)
    variance = np.where(fresh.satisfaction_variance > ZERO_VARIANCE, variance, ZERO_VARIANCE)
    prior_mean = objective.prior_mean * last.pair_class_mean[objective.pair_class]
    rho = index.to_pairs(last.rho, objective.satisfaction_mean)
    query_outside, mixing, appeal = last.query_outside, last.mixing, last.component_appeal
    if layout.per_query_outside:
        query_outside = index.to_queries(query_outside, last.query_class_mean[0])
    if layout.per_query_mixing:
        mixing = index.to_queries(mixing, objective.mixing)
    if layout.has_component_appeal:
        appeal = index.to_pairs(appeal, 1.0)
    same_length = len(last.transition) == len(fresh.transition)
    return last._replace(
        theta=index.to_pairs(last.theta, prior_mean),
        rho=satisfaction_centre(rho, variance),
        transition=last.transition if same_length else fresh.transition,
        outside=last.outside if len(last.outside) == len(fresh.outside) else fresh.outside,
        query_outside=query_outside,
        mixing=mixing,
        component_appeal=appeal,
        satisfaction_variance=variance,
        position_effect=_reindex_effects(last.position_effect, index, objective),
    )


def _reindex_effects(effect: Float64, index: IndexMap, objective: Objective) -> Float64:
    """The position effects for more queries and cells, and for longer pages."""
    layout = objective.layout
    if not layout.has_position_effects:
        return effect
    n_query_factors = len(effect) - len(index.cells)
    of_queries = effect[:n_query_factors].reshape(len(index.query), -1)
    wide = np.pad(
        index.to_queries(of_queries, 1.0),
        ((0, 0), (0, layout.longest - of_queries.shape[1])),
        constant_values=1.0,
    )
    return np.append(wide, index.to_cells(effect[n_query_factors:], layout.cells, 1.0))
