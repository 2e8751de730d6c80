"""The parameters of LuceClick: tables of factors, mixing weights and satisfaction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64, Int32, Int64, positions_in_runs
from reclick.fitting.factors import FactorTable, Level
from reclick.fitting.outcomes import TYPICAL_RATES
from reclick.fitting.transitions import SHARED_STRENGTH, transition_table

FREQUENCY_CLASSES = (1.5, 4.5, 20.5, 100.5)  # impressions of a pair, or sessions of a query
N_CLASSES = len(FREQUENCY_CLASSES) + 1
CLASS_STRENGTH = 2.0  # pseudo-choices: how strongly a class is held to 1
POSITION_BITS = 16  # of the key of a (pair, position) cell


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


class LuceParameters(NamedTuple):
    """What EM estimates."""

    appeal: FactorTable  # [cell] θ of the pair, times the effects of its position
    transition: FactorTable  # [component, last, position] γ
    outside: FactorTable  # [component, clicks so far] ω
    query_outside: FactorTable  # [query] f
    mixing: Float64  # [query, component]
    satisfaction: Float64  # [pair] mean of ρ
    satisfaction_variance: Float64  # [pair] of the logit of ρ, which a fit does not change
    outcome_rates: Float64 = TYPICAL_RATES  # of conversions and quick returns
    outcome_weight: float = 1.0


class Layout(NamedTuple):
    """What the tables are about: the cells, pairs and queries of a log."""

    cell: Int64  # [cell] pair << POSITION_BITS | position, sorted; or the pairs themselves
    has_positions: bool
    pair_query: Int64  # [pair]
    pair_class: Int64  # [pair] by impressions
    query_class: Int64  # [query] by sessions
    volumes: Float64  # [query] sessions
    longest: int  # page

    @classmethod
    def of(cls, sessions: GroupedSessions, hyper: Hyperparameters) -> Layout:
        """The layout of sessions; their cells are (pair, position) where positions have effects."""
        counts, block = sessions.counts, sessions.whole
        shown = np.repeat(block.weight, np.diff(block.page))
        impressions = np.bincount(block.pair, shown, block.n_pairs).astype(np.float64)
        volumes = np.bincount(block.query, block.weight, len(counts.queries)).astype(np.float64)
        cells = None if hyper.position_effect_strength is None else position_cells(sessions)
        return cls.from_counts(counts, impressions, volumes, cells)

    @classmethod
    def from_counts(
        cls, counts: Counts, impressions: Float64, volumes: Float64, cells: Int64 | None
    ) -> Layout:
        """The layout of pairs with these impressions [pair] and queries with these sessions."""
        return cls(
            np.arange(len(counts.impressions)) if cells is None else cells,
            cells is not None,
            counts.pair_query.astype(np.int64),
            np.searchsorted(FREQUENCY_CLASSES, impressions),
            np.searchsorted(FREQUENCY_CLASSES, volumes),
            np.maximum(volumes, 1e-300),
            max(counts.max_ads, 1),
        )

    @property
    def n_queries(self) -> int:
        """The number of queries."""
        return len(self.query_class)

    @property
    def cell_pair(self) -> Int64:
        """The pair of each cell."""
        return self.cell >> POSITION_BITS if self.has_positions else self.cell

    @property
    def cell_position(self) -> Int64:
        """The position of each cell, from 0."""
        return self.cell & ((1 << POSITION_BITS) - 1)

    def query_position(self, pair: Int64, position: Int64) -> Int64:
        """The (query, position) of pairs; a position beyond the longest page counts as its last."""
        return self.pair_query[pair] * self.longest + np.minimum(position, self.longest - 1)

    def rows_in(self, later: Layout, pairs: Int64) -> Int64:
        """The cells of a later layout that these are, whose pairs are `pairs` there."""
        return np.searchsorted(later.cell, self.move_cells(pairs)) if self.has_positions else pairs

    def move_cells(self, pairs: Int64) -> Int64:
        """The keys of the cells, with other numbers of their pairs."""
        return cell_keys(pairs[self.cell_pair], self.cell_position)

    def find_cells(self, pair: Int64, position: Int64) -> Int64:
        """Where pairs at positions stand among the cells, −1 where they do not."""
        key = cell_keys(pair, position)
        at = np.minimum(np.searchsorted(self.cell, key), max(len(self.cell) - 1, 0))
        return np.where(self.cell[at] == key, at, -1) if len(self.cell) else np.full(len(key), -1)


def position_cells(sessions: GroupedSessions) -> Int64:
    """The keys of the (pair, position) cells of the sessions, sorted."""
    return np.unique(cell_keys(sessions.pair, positions_in_runs(sessions.page)))


def cell_keys(pair: Int32 | Int64, position: Int64) -> Int64:
    """The keys of pairs at positions."""
    return np.asarray((pair.astype(np.int64) << POSITION_BITS) | position)


def initial_parameters(
    layout: Layout, hyper: Hyperparameters, mean: Float64, strength: Float64, mixing: Float64
) -> LuceParameters:
    """Parameters at their prior means; components start apart, or they would stay alike.

    `mean` and `strength` [pair] are the prior of θ, `mixing` [component] are mixing weights.
    """
    components = len(mixing)
    return LuceParameters(
        appeal_table(layout, hyper, mean, strength),
        transition_table(
            layout.longest, hyper.transition_strength, components, hyper.component_strength
        ),
        outside_table(components, layout.longest, hyper),
        query_table(layout, hyper),
        np.tile(mixing, (layout.n_queries, 1)),
        np.full(len(layout.pair_query), hyper.satisfaction_prior),
        np.zeros(len(layout.pair_query)),
        outcome_weight=hyper.outcome_weight,
    )


def appeal_table(
    layout: Layout, hyper: Hyperparameters, mean: Float64, strength: Float64
) -> FactorTable:
    """θ of each pair, the mean of pairs shown as often, and the effects of positions."""
    pair = layout.cell_pair
    levels = [
        Level(pair, len(mean), strength, mean),
        Level(layout.pair_class[pair], N_CLASSES, CLASS_STRENGTH),
    ]
    if hyper.position_effect_strength is not None:
        query_position = layout.query_position(pair, layout.cell_position)
        size = layout.n_queries * layout.longest
        levels += [
            Level(query_position, size, hyper.position_effect_strength),
            Level(np.arange(len(pair)), len(pair), hyper.position_effect_strength),
        ]
    return FactorTable.build((len(pair),), levels)


def outside_table(components: int, longest: int, hyper: Hyperparameters) -> FactorTable:
    """ω with no click or some, for each number of clicks, and how each component differs."""
    shape = (components, longest + 1)
    component, clicks = np.indices(shape)
    some = (clicks > 0).astype(np.int64)
    levels = [Level(some, 2, SHARED_STRENGTH), Level(clicks, longest + 1, SHARED_STRENGTH)]
    if components > 1:
        levels += [
            Level(2 * component + some, 2 * components, hyper.component_strength),
            Level(
                component * (longest + 1) + clicks,
                components * (longest + 1),
                hyper.component_strength,
            ),
        ]
    table = FactorTable.build(shape, levels)
    if components > 1:  # the first components leave soon, the last ones late
        table.level(2)[:] = np.repeat(np.geomspace(2.0, 0.5, components), 2)
    return table


def query_table(layout: Layout, hyper: Hyperparameters) -> FactorTable:
    """F of each query, and the mean of queries with as many sessions."""
    queries = np.arange(layout.n_queries)
    levels = [Level(layout.query_class, N_CLASSES, CLASS_STRENGTH)]
    if hyper.query_strength is not None:
        levels.append(Level(queries, layout.n_queries, hyper.query_strength))
    return FactorTable.build((layout.n_queries,), levels)
