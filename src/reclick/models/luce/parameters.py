"""The parameters of LuceClick: four tables of factors, mixing weights, satisfaction, outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.counts import Counts
from reclick.data.grouped_sessions import BlockRows, GroupedSessions, RowRun
from reclick.data.ragged import Float64, Int32, Int64, positions_in_runs, run_of_elements
from reclick.data.stored_tables import read_lists, table_error
from reclick.fitting.attractiveness_prior import PairPrior
from reclick.fitting.factors import FactorTable, Level, with_components
from reclick.fitting.mixture import MixingWeights
from reclick.fitting.outcomes import OutcomeRates, OutcomeTable
from reclick.fitting.parameter_tables import ParameterTables
from reclick.fitting.transitions import SHARED_STRENGTH, transition_table
from reclick.models.luce.satisfaction import Satisfaction

FREQUENCY_CLASSES = (1.5, 4.5, 20.5, 100.5)  # impressions of a pair, or sessions of a query
N_CLASSES = len(FREQUENCY_CLASSES) + 1
CLASS_STRENGTH = 2.0  # pseudo-choices: how strongly a class is held to 1
POSITION_BITS = 16  # of the key of a (pair, position) cell
PAIR, PAIR_CLASS, QUERY_POSITION, CELL = range(4)  # the levels of the appeal of a cell
QUERY_CLASS = 0  # a level of the outside option of a query; level 1 is the query
CELLS = "luce_cells"  # the saved table with the positions of each pair
SAVED = {  # of what each saved table has a row; _0, _1, … are levels of factors
    "pair": ["cells", "appeal_0", "appeal_3", "appeal_past", "satisfaction"],
    "query": ["appeal_2", "query_outside_1", "query_outside_past", "mixing"],
    "log": ["appeal_1", "query_outside_0", "outcomes_rates", "outcomes_clicks"],
}
SAVED["log"] += [f"{name}_{x}" for name in ("transition", "outside") for x in (*range(6), "past")]
TABLE_ROWS = {f"luce_{name}": row for row, names in SAVED.items() for name in names}


class Hyperparameters(NamedTuple):
    """The settings that a fit may choose, with their defaults.

    Strengths are those of priors, in pseudo-choices; None means one value common to all.
    """

    attractiveness_strength: float | str = "auto"  # auto: that of highest evidence of each pair
    evidence_factor: float = 1.0  # times that strength
    satisfaction_strength: float | None = 8.0
    satisfaction_prior: float = 0.4
    query_strength: float | None = 4.0  # the outside option of each query
    transition_strength: float = 8.0
    components: int = 1
    component_strength: float = 4.0  # how the components differ
    mixing_strength: float | None = 10.0  # the mixing weights of each query
    position_effect_strength: float | None = 30.0
    outcome_weight: float = 1.0

    def scale(self, evidence: PairPrior) -> PairPrior:
        """The prior of attractiveness, with the strength that it has here."""
        if isinstance(self.attractiveness_strength, str):
            return evidence._replace(strength=evidence.strength * self.evidence_factor)
        given = np.full(len(evidence.mean), self.attractiveness_strength)
        return evidence._replace(strength=given)


@dataclass(frozen=True, slots=True)
class LuceParameters(ParameterTables):
    """What EM estimates."""

    appeal: FactorTable  # [cell] θ of the pair, times the effects of its position
    transition: FactorTable  # [component, last, position] γ
    outside: FactorTable  # [component, clicks so far] ω
    query_outside: FactorTable  # [query] f
    mixing: MixingWeights  # [query, component]
    satisfaction: Satisfaction  # [pair] ρ
    outcomes: OutcomeTable  # of conversions and quick returns

    def for_block(self, rows: BlockRows) -> Any:
        """What the E-step of a block needs."""
        no_past, rho = np.zeros(0), self.satisfaction
        mixing: dict[str, Any] = {"weights": RowRun(self.mixing.weights, rows.queries)}
        values: dict[str, Any] = {
            name: RowRun(getattr(rho, name), rows.pairs) for name in ("mean", "variance")
        }
        tables: dict[str, Any] = {
            "appeal": self.appeal.cut(rows.cells),
            "query_outside": self.query_outside.cut(rows.queries),
            "mixing": replace(self.mixing, **mixing, members=no_past),
            "satisfaction": replace(rho, **values, satisfied=no_past, clicks=no_past),
        }
        return replace(self, **tables)

    def spread_satisfaction(self, information: Float64) -> LuceParameters:
        """The same, with the variance of each ρ that sessions with this information leave."""
        return replace(self, satisfaction=self.satisfaction.with_variance(information[2]))


class Layout(NamedTuple):
    """What the rows of the tables are: the cells, pairs and queries of a log.

    A cell is a pair at a position, or a pair at any position where positions have no effects.
    """

    counts: Counts
    has_positions: bool
    pair_class: Int64  # [pair] by impressions
    query_class: Int64  # [query] by sessions
    volumes: Float64  # [query] sessions
    cell: Int64 = np.zeros(0, np.int64)  # [cell] pair << POSITION_BITS | position, sorted

    @classmethod
    def of(cls, sessions: GroupedSessions, *, has_positions: bool) -> Layout:
        """The layout of sessions."""
        counts, block = sessions.counts, sessions.whole
        shown = np.repeat(block.weight, np.diff(block.page))
        impressions = np.bincount(block.pair, shown, block.n_pairs).astype(np.float64)
        volumes = np.bincount(block.query, block.weight, len(counts.queries)).astype(np.float64)
        return cls.build(counts, has_positions, impressions, volumes).extend(sessions)

    @classmethod
    def build(
        cls, counts: Counts, has_positions: bool, impressions: Float64, volumes: Float64
    ) -> Layout:
        """The layout of pairs with these impressions and queries with these sessions, no cells."""
        classes = [np.searchsorted(FREQUENCY_CLASSES, each) for each in (impressions, volumes)]
        return cls(counts, has_positions, classes[0], classes[1], np.maximum(volumes, 1e-300))

    def extend(self, sessions: GroupedSessions) -> Layout:
        """The layout with the cells of more sessions of the same pairs."""
        return self.add_cells(sessions.pair, positions_in_runs(sessions.page))

    def add_cells(self, pair: Int32 | Int64, position: Int32 | Int64) -> Layout:
        """The layout with the cells of pairs at positions."""
        return self._replace(cell=np.union1d(self.cell, self._keys(pair, position)))

    def add_saved_cells(self, tables: Mapping[str, pa.Table]) -> Layout:
        """The layout with the cells of a saved model, which has a list of positions per pair."""
        starts, position = read_lists(tables, CELLS, "position", low=0, high=self.longest - 1)
        layout = self.add_cells(pair := run_of_elements(starts), position)
        in_order = np.array_equal(layout.cell, self._keys(pair, position))
        if len(starts) != len(self.pair_class) + 1 or not in_order:
            raise table_error(CELLS, "its rows are not those of the pairs, or not in order")
        return layout

    def row_starts(self, components: int) -> dict[str, Int64]:
        """Where each pair or query starts in the saved tables with several values for it."""
        pairs, queries = (np.arange(len(each) + 1) for each in (self.pair_class, self.query_class))
        of_cells = dict.fromkeys(
            (CELLS, "luce_appeal_3", "luce_appeal_past"), np.searchsorted(self.cell_pair, pairs)
        )
        of_queries = {"luce_appeal_2": queries * self.longest, "luce_mixing": queries * components}
        return {**of_cells, **of_queries}

    @property
    def longest(self) -> int:
        """The longest page."""
        return max(self.counts.max_ads, 1)

    @property
    def cell_pair(self) -> Int64:
        """The pair of each cell."""
        return self.cell >> POSITION_BITS

    @property
    def cell_position(self) -> Int64:
        """The position of each cell, from 0."""
        return self.cell & ((1 << POSITION_BITS) - 1)

    def find_cells(self, pair: Int32 | Int64, position: Int64) -> Int64:
        """Where pairs at positions stand among the cells, −1 where they do not."""
        key = self._keys(pair, position)
        at = np.searchsorted(self.cell, key)
        at[at == len(self.cell)] = -1
        return np.where(self.cell[at] == key, at, -1) if len(self.cell) else at

    def _keys(self, pair: Int32 | Int64, position: Int32 | Int64) -> Int64:
        where = position if self.has_positions else 0
        return np.asarray((pair.astype(np.int64) << POSITION_BITS) | where)


def initial_parameters(
    layout: Layout, hyper: Hyperparameters, prior: PairPrior, mixing: Float64
) -> LuceParameters:
    """Parameters at their prior means; components start apart, or they would stay alike.

    `prior` is that of θ [pair], `mixing` [component] are mixing weights.
    """
    queries, longest = len(layout.counts.queries), layout.longest
    apart = len(mixing), hyper.component_strength
    return LuceParameters(
        appeal_table(layout, hyper, prior),
        transition_table(longest, hyper.transition_strength, *apart),
        outside_table(longest, *apart),
        query_table(layout, hyper),
        MixingWeights.build(queries, mixing, hyper.mixing_strength),
        Satisfaction.build(len(prior.mean), hyper.satisfaction_prior, hyper.satisfaction_strength),
        OutcomeTable(OutcomeRates.of(layout.counts, hyper.outcome_weight)),
    )


def appeal_table(layout: Layout, hyper: Hyperparameters, prior: PairPrior) -> FactorTable:
    """θ of each pair, the mean of pairs shown as often, and the effects of positions."""
    pair, cells = layout.cell_pair, len(layout.cell)
    levels = [
        Level(pair, len(prior.mean), prior.strength, prior.mean),
        Level(layout.pair_class[pair], N_CLASSES, CLASS_STRENGTH),
    ]
    if hyper.position_effect_strength is not None:
        query, longest = layout.counts.pair_query[pair].astype(np.int64), layout.longest
        at = query * longest + layout.cell_position
        size, strength = len(layout.query_class) * longest, hyper.position_effect_strength
        levels += [Level(at, size, strength), Level(np.arange(cells), cells, strength)]
    return FactorTable.build((cells,), levels)


def outside_table(longest: int, components: int, component_strength: float) -> FactorTable:
    """ω with no click or some, for each number of clicks, and how each component differs."""
    shape = (components, longest + 1)
    clicks = np.indices(shape)[1]
    levels = [
        Level((clicks > 0).astype(np.int64), 2, SHARED_STRENGTH),
        Level(clicks, longest + 1, SHARED_STRENGTH),
    ]
    table = FactorTable.build(shape, with_components(levels, components, component_strength))
    if components > 1:  # the first components leave soon, the last ones late
        table.level(2)[:] = np.repeat(np.geomspace(2.0, 0.5, components), 2)
    return table


def query_table(layout: Layout, hyper: Hyperparameters) -> FactorTable:
    """The f of each query, and the mean of queries with as many sessions."""
    size = len(layout.query_class)
    levels = [Level(layout.query_class, N_CLASSES, CLASS_STRENGTH)]
    if hyper.query_strength is not None:
        levels.append(Level(np.arange(size), size, hyper.query_strength))
    return FactorTable.build((size,), levels)
