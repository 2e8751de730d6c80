"""The parameters of LuceClick: four tables of factors, mixing weights, satisfaction, outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.pair_index import CellIndex
from reclick.data.ragged import Float64, Int64, positions_in_runs
from reclick.fitting.attractiveness_prior import PairPrior
from reclick.fitting.factors import FactorTable, Level
from reclick.fitting.mixture import MixingWeights
from reclick.fitting.outcomes import OutcomeRates, OutcomeTable
from reclick.fitting.parameter_tables import ParameterTables
from reclick.fitting.rates import RateTable
from reclick.fitting.transitions import outside_table, transition_table

FREQUENCY_CLASSES = (1.5, 4.5, 20.5, 100.5)  # impressions of a pair, or sessions of a query
N_CLASSES = len(FREQUENCY_CLASSES) + 1
CLASS_STRENGTH = 2.0  # pseudo-choices: how strongly the factor of a class is shrunk to 1
PAIR, PAIR_CLASS, QUERY_POSITION, CELL = range(4)  # the levels of the appeal of a cell
QUERY_CLASS, QUERY = range(2)  # the levels of the outside option of a query
CELLS = "luce_cells"  # the saved table with the positions of each pair
SAVED = {  # the saved tables by type of row; _0, _1, … are levels of factors
    "pair": ["cells", "appeal_0", "appeal_3", "appeal_past", "satisfaction"],
    "query": ["appeal_2", "query_outside_1", "query_outside_past", "mixing"],
    "log": ["appeal_1", "query_outside_0", "outcomes_rates", "outcomes_clicks"],
}
SAVED["log"] += [f"{name}_{x}" for name in ("transition", "outside") for x in (*range(6), "past")]
TABLE_ROWS = {f"luce_{name}": row for row, names in SAVED.items() for name in names}


class Hyperparameters(NamedTuple):
    """The settings that a fit may choose, with their defaults.

    Strengths are those of priors, in pseudo-choices (for ρ in clicks, for mixing weights in
    sessions). None is one value common to all, or no position effects.
    """

    attractiveness_strength: float | str = "auto"  # auto: by evidence, one value per pair
    evidence_factor: float = 1.0  # times that strength
    satisfaction_strength: float | None = 8.0
    satisfaction_prior: float = 0.4
    query_strength: float | None = 3.0  # the outside option of each query
    transition_strength: float = 8.0
    components: int = 1
    component_strength: float = 8.0  # how strongly components are shrunk to each other
    mixing_strength: float | None = 5.0  # the mixing weights of each query
    position_effect_strength: float | None = 20.0
    outcome_weight: float = 1.0  # not searched

    def apply_strength(self, prior: PairPrior) -> PairPrior:
        """Set the strength of a prior of attractiveness, which was fitted by evidence."""
        return prior.with_strength(self.attractiveness_strength, self.evidence_factor)


@dataclass(frozen=True, slots=True)
class LuceParameters(ParameterTables):
    """The parameters that EM estimates."""

    rows: ClassVar[Mapping[str, str]] = {
        "appeal": "cells", "query_outside": "queries", "mixing": "queries", "satisfaction": "pairs",
    }  # fmt: skip

    appeal: FactorTable  # [cell] θ of the pair, times the effects of its position
    transition: FactorTable  # [component, last, position] γ
    outside: FactorTable  # [component, clicks so far] ω
    query_outside: FactorTable  # [query] f
    mixing: MixingWeights  # [query, component]
    satisfaction: RateTable  # [pair] ρ, from clicks with another ad remaining
    outcomes: OutcomeTable  # of conversions and quick returns


class Layout(NamedTuple):
    """What the rows of the tables are: the cells, pairs and queries of a log.

    A cell is a pair at a position, or a pair at any position where positions have no effects.
    """

    counts: Counts
    pair_class: Int64  # [pair] by impressions
    query_class: Int64  # [query] by sessions
    volumes: Float64  # [query] sessions
    cells: CellIndex

    @classmethod
    def of(cls, sessions: GroupedSessions, *, has_positions: bool) -> Layout:
        """Make the layout of sessions."""
        totals = sessions.whole.impressions, sessions.whole.volumes
        return cls.build(sessions.counts, *totals, CellIndex(has_positions)).extend(sessions)

    @classmethod
    def build(
        cls, counts: Counts, impressions: Float64, volumes: Float64, cells: CellIndex
    ) -> Layout:
        """Make the layout of pairs with these impressions, and queries with these sessions."""
        pair = np.searchsorted(FREQUENCY_CLASSES, impressions)
        query = np.searchsorted(FREQUENCY_CLASSES, volumes)
        return cls(counts, pair, query, np.maximum(volumes, 1e-300), cells)

    def extend(self, sessions: GroupedSessions) -> Layout:
        """Add the cells of more sessions of the same pairs."""
        return self._replace(cells=self.cells.add(sessions.pair, positions_in_runs(sessions.page)))

    @property
    def longest(self) -> int:
        """The length of the longest page."""
        return max(self.counts.max_ads, 1)

    def row_starts(self, components: int) -> dict[str, Int64]:
        """Where each pair or query starts in the saved tables with several values for it."""
        cells = self.cells.starts(len(self.pair_class))
        queries = np.arange(len(self.query_class) + 1)
        starts = {"luce_appeal_2": queries * self.longest, "luce_mixing": queries * components}
        return {"luce_appeal_3": cells, "luce_appeal_past": cells, **starts}


def initial_parameters(
    layout: Layout, hyper: Hyperparameters, prior: PairPrior, mixing: Float64
) -> LuceParameters:
    """Start parameters at their prior means; components start apart, or they would stay the same.

    `prior` is the prior of θ [pair]. `mixing` are the mixing weights [component].
    """
    queries, longest = len(layout.counts.queries), layout.longest
    mixture = len(mixing), hyper.component_strength
    return LuceParameters(
        appeal_table(layout, hyper, prior),
        transition_table(longest, hyper.transition_strength, *mixture),
        outside_table(longest, *mixture),
        query_table(layout, hyper),
        MixingWeights.build(queries, mixing, hyper.mixing_strength),
        RateTable.build(len(prior.mean), hyper.satisfaction_prior, hyper.satisfaction_strength),
        OutcomeTable(OutcomeRates.of(layout.counts, hyper.outcome_weight)),
    )


def appeal_table(layout: Layout, hyper: Hyperparameters, prior: PairPrior) -> FactorTable:
    """Make the table of θ of each pair, a factor per frequency class, and effects of positions."""
    pair, cells = layout.cells.pair, len(layout.cells)
    levels = [
        Level(pair, len(prior.mean), prior.strength, prior.mean),
        Level(layout.pair_class[pair], N_CLASSES, CLASS_STRENGTH),
    ]
    if hyper.position_effect_strength is not None:
        query, longest = layout.counts.pair_query[pair].astype(np.int64), layout.longest
        at = query * longest + layout.cells.position
        size, strength = len(layout.query_class) * longest, hyper.position_effect_strength
        levels += [Level(at, size, strength), Level(np.arange(cells), cells, strength)]
    return FactorTable.build((cells,), levels)


def query_table(layout: Layout, hyper: Hyperparameters) -> FactorTable:
    """Make the table of f of each query, and a factor per class by number of sessions."""
    size = len(layout.query_class)
    levels = [Level(layout.query_class, N_CLASSES, CLASS_STRENGTH)]
    if hyper.query_strength is not None:
        levels.append(Level(np.arange(size), size, hyper.query_strength))
    return FactorTable.build((size,), levels)
