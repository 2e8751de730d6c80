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
from reclick.data.stored_tables import read_lists, read_numbers, table_error
from reclick.fitting.attractiveness_prior import PairPrior
from reclick.fitting.factors import FactorTable, Level, PastChoices
from reclick.fitting.outcomes import OutcomeRates, OutcomeTable
from reclick.fitting.parameter_tables import ParameterTables
from reclick.fitting.transitions import SHARED_STRENGTH, transition_table
from reclick.models.luce.mixing import MixingWeights
from reclick.models.luce.satisfaction import Satisfaction

FREQUENCY_CLASSES = (1.5, 4.5, 20.5, 100.5)  # impressions of a pair, or sessions of a query
N_CLASSES = len(FREQUENCY_CLASSES) + 1
CLASS_STRENGTH = 2.0  # pseudo-choices: how strongly a class is held to 1
POSITION_BITS = 16  # of the key of a (pair, position) cell
TABLE_ROWS = {  # of what each saved table has a row; "log": it holds for the whole log
    "luce_appeal": "pair",
    "luce_cells": "pair",
    "luce_satisfaction": "pair",
    "luce_queries": "query",
    "luce_classes": "log",
    "luce_outcomes_rates": "log",
    "luce_outcomes_clicks": "log",
    "luce_transition_factors": "log",
    "luce_transition_past": "log",
    "luce_outside_factors": "log",
    "luce_outside_past": "log",
}


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
    cell: Int64  # [cell] pair << POSITION_BITS | position, sorted
    pair_class: Int64  # [pair] by impressions
    query_class: Int64  # [query] by sessions
    volumes: Float64  # [query] sessions

    @classmethod
    def of(cls, sessions: GroupedSessions, hyper: Hyperparameters) -> Layout:
        """The layout of sessions."""
        counts, block = sessions.counts, sessions.whole
        shown = np.repeat(block.weight, np.diff(block.page))
        impressions = np.bincount(block.pair, shown, block.n_pairs).astype(np.float64)
        volumes = np.bincount(block.query, block.weight, len(counts.queries)).astype(np.float64)
        return cls.from_counts(counts, impressions, volumes, hyper).extend(sessions)

    @classmethod
    def from_counts(
        cls, counts: Counts, impressions: Float64, volumes: Float64, hyper: Hyperparameters
    ) -> Layout:
        """The layout of pairs with these impressions and queries with these sessions.

        It has no cell yet where positions have effects.
        """
        has_positions = hyper.position_effect_strength is not None
        pairs = np.arange(0 if has_positions else len(impressions))
        return cls(
            counts,
            has_positions,
            pairs << POSITION_BITS,
            np.searchsorted(FREQUENCY_CLASSES, impressions),
            np.searchsorted(FREQUENCY_CLASSES, volumes),
            np.maximum(volumes, 1e-300),
        )

    def extend(self, sessions: GroupedSessions) -> Layout:
        """The layout with the cells of more sessions of the same pairs."""
        return self.add_cells(sessions.pair, positions_in_runs(sessions.page))

    def add_cells(self, pair: Int32 | Int64, position: Int32 | Int64) -> Layout:
        """The layout with the cells of pairs at positions."""
        if not self.has_positions:
            return self
        return self._replace(cell=np.union1d(self.cell, self._keys(pair, position)))

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
        at = np.minimum(np.searchsorted(self.cell, key), max(len(self.cell) - 1, 0))
        return np.where(self.cell[at] == key, at, -1) if len(self.cell) else np.full(len(key), -1)

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
    component, clicks = np.indices(shape)
    some = (clicks > 0).astype(np.int64)
    levels = [Level(some, 2, SHARED_STRENGTH), Level(clicks, longest + 1, SHARED_STRENGTH)]
    if components > 1:
        own = component * (longest + 1) + clicks
        levels += [
            Level(2 * component + some, 2 * components, component_strength),
            Level(own, components * (longest + 1), component_strength),
        ]
    table = FactorTable.build(shape, levels)
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


# ---- saving


def to_row_tables(layout: Layout, fitted: LuceParameters) -> dict[str, pa.Table]:
    """The parameters as tables with a row per pair or per query, or for the whole log.

    So the rows of some queries are a model of these queries.
    """
    appeal, outside, mixing = fitted.appeal, fitted.query_outside, fitted.mixing
    starts = np.searchsorted(layout.cell_pair, np.arange(len(layout.pair_class) + 1))
    cells = {"position": layout.cell_position, **appeal.past._asdict()}
    lists = {"mixing": mixing.weights, "members": mixing.members}
    queries: dict[str, Any] = outside.past._asdict()
    if layout.has_positions:
        cells["factor"] = appeal.level(3)
        lists["position_factors"] = appeal.level(2).reshape(-1, layout.longest)
    if len(outside.index) > 1:
        queries["factor"] = outside.level(1)
    for name, rows in lists.items():
        queries[name] = _to_lists(np.arange(len(rows) + 1) * rows.shape[1], rows.ravel())
    return {
        **{name: each for name, each in fitted.to_tables("luce").items() if name in TABLE_ROWS},
        "luce_appeal": pa.table({"factor": appeal.level(0)}),
        "luce_cells": pa.table({name: _to_lists(starts, each) for name, each in cells.items()}),
        "luce_queries": pa.table(queries),
        "luce_classes": pa.table({"appeal": appeal.level(1), "outside": outside.level(0)}),
    }


def from_row_tables(
    layout: Layout, components: int, tables: Mapping[str, pa.Table]
) -> tuple[Layout, dict[str, pa.Table]]:
    """The layout with its cells, and the tables that `LuceParameters.from_tables` takes."""
    sizes = len(layout.pair_class), len(layout.query_class)
    high = (1 << POSITION_BITS) - 1
    starts, position = read_lists(tables, "luce_cells", "position", low=0, high=high)
    layout = layout.add_cells(run_of_elements(starts), position)
    keys = layout._keys(run_of_elements(starts), position)
    if len(starts) != sizes[0] + 1 or not np.array_equal(layout.cell, keys):
        raise table_error("luce_cells", "its rows are not those of the pairs, or not in order")
    if position.max(initial=0) >= layout.longest:
        raise table_error("luce_cells", "a position beyond the longest page")
    past = {name: read_lists(tables, "luce_cells", name, low=0)[1] for name in PastChoices._fields}
    appeal = [
        read_numbers(tables, "luce_appeal", "factor", length=sizes[0]),
        read_numbers(tables, "luce_classes", "appeal"),
    ]
    if layout.has_positions:
        appeal.append(_read_rows(tables, "position_factors", (sizes[1], layout.longest)))
        appeal.append(read_lists(tables, "luce_cells", "factor", low=0)[1])
    outside = [read_numbers(tables, "luce_classes", "outside")]
    queries = tables["luce_queries"]
    if "factor" in queries.column_names:
        outside.append(read_numbers(tables, "luce_queries", "factor"))
    shape = sizes[1], components
    mixing = {
        "weights": _read_rows(tables, "mixing", shape),
        "members": _read_rows(tables, "members", shape),
    }
    return layout, {
        **tables,
        "luce_appeal_factors": pa.table({"factor": np.concatenate(appeal)}),
        "luce_appeal_past": pa.table(past),
        "luce_query_outside_factors": pa.table({"factor": np.concatenate(outside)}),
        "luce_query_outside_past": queries.select(PastChoices._fields),
        "luce_mixing": pa.table(mixing),
    }


def _to_lists(starts: Int64, values: Float64 | Int64) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(starts), pa.array(values))


def _read_rows(tables: Mapping[str, pa.Table], column: str, shape: tuple[int, int]) -> Float64:
    """A column of `luce_queries` with a list of one length per query, end to end."""
    starts, values = read_lists(tables, "luce_queries", column, low=0)
    if not np.array_equal(starts, np.arange(shape[0] + 1) * shape[1]):
        raise table_error("luce_queries", f"{column}: its lists are not those of the queries")
    return np.asarray(values)
