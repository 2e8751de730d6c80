"""What a fitted LuceClick keeps: its parameters, and its sessions as past choices for updates.

Of past sessions only sums are kept: the observed choices of each weight, and its exposure, the
choices expected per unit of weight under the last fit. As a function of a weight x the past is then
worth observed · log x − exposure · x, whose slope is exact at the last fit. Decay scales the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.counts import Counts
from reclick.data.outcomes import N_OUTCOMES
from reclick.data.pair_index import IndexMap
from reclick.data.ragged import Float64, Int64, run_of_elements
from reclick.data.stored_tables import read_lists, read_numbers, table_error
from reclick.fitting.attractiveness_prior import PairPrior
from reclick.fitting.factors import FactorTable, PastChoices
from reclick.models.luce.fit import LuceFit
from reclick.models.luce.m_step import PastSatisfaction
from reclick.models.luce.parameters import (
    POSITION_BITS,
    Hyperparameters,
    Layout,
    LuceParameters,
    cell_keys,
    initial_parameters,
)
from reclick.models.luce.posterior import Information, satisfaction_variance

COMMON_TABLES = ("transition", "outside")  # of all queries
TABLES = ("appeal", *COMMON_TABLES, "query_outside")
PAST = PastChoices._fields
TABLE_ROWS = {  # what the rows of each saved table are
    "luce_pairs": "pair",
    "luce_cells": "pair",
    "luce_queries": "query",
    "luce_classes": "log",
    "luce_outcomes": "log",
    "luce_outcome_rates": "log",
    **{f"luce_{name}_{each}": "log" for name in COMMON_TABLES for each in ("factors", "past")},
}


@dataclass(frozen=True, slots=True)
class LuceState:
    """A fit without its sessions."""

    hyper: Hyperparameters
    layout: Layout
    parameters: LuceParameters  # the past of its tables includes the sessions of this fit
    prior: PairPrior
    mixing_mean: Float64  # [component]
    past: PastSatisfaction
    information: Information

    @classmethod
    def of(cls, fit: LuceFit, earlier: LuceState | None = None) -> LuceState:
        """The state after a fit, which may have continued an earlier one of the same layout."""
        found, fitted = fit.result.statistics, fit.parameters
        sums = found.pairs
        choices = {
            "appeal": (fit.objective.cell_clicks, sums["appeal"]),
            "transition": (found.totals["transition"][0], found.totals["transition"][1]),
            "outside": (found.totals["outside"][0], found.totals["outside"][1]),
            "query_outside": (sums["query_observed"], sums["query_expected"]),
        }
        tables: dict[str, Any] = {
            name: _remember(getattr(fitted, name), *choices[name]) for name in TABLES
        }
        past = PastSatisfaction(
            sums["satisfied"],
            fit.objective.open_clicks,
            sums["mixing"],
            found.totals["outcomes"],
        )
        information = fit.gather_information()
        if earlier is not None:
            past, information = past + earlier.past, information + earlier.information
        parameters = fitted._replace(**tables)
        mixing = fit.objective.mixing_mean
        return cls(fit.hyper, fit.data.layout, parameters, fit.prior, mixing, past, information)

    def clicks_and_exposure(self) -> tuple[Float64, Float64]:
        """Clicks of each pair, and those that a factor of 1 would have had, over all sessions."""
        table, pair = self.parameters.appeal, self.layout.cell_pair
        observed, exposure = table.past
        expected = np.bincount(pair, exposure * table.weights(), len(self.prior.mean))
        clicks = np.bincount(pair, observed, len(self.prior.mean)).astype(np.float64)
        return clicks, expected / table.level(0)

    # saving

    def to_tables(self) -> dict[str, pa.Table]:
        """The state as tables: a row per pair, per query, or of what all have in common."""
        past, prior, parameters = self.past, self.prior, self.parameters
        appeal, outside, layout = parameters.appeal, parameters.query_outside, self.layout
        pairs = {
            "prior_mean": prior.mean,
            "prior_strength": prior.strength,
            "factor": appeal.level(0),
            "satisfaction": parameters.satisfaction,
            "satisfied": past.satisfied,
            "open_clicks": past.clicks,
            **self.information._asdict(),
        }
        position = layout.cell_position if layout.has_positions else 0 * layout.cell
        cells: dict[str, Any] = {"position": position, **appeal.past._asdict()}
        queries = {**outside.past._asdict()}
        lists = {"mixing": parameters.mixing, "members": past.members}
        if layout.has_positions:
            cells["factor"] = appeal.level(3)
            lists["position_factors"] = appeal.level(2).reshape(layout.n_queries, layout.longest)
        if len(outside.index) > 1:
            queries["factor"] = outside.level(1)
        starts = np.searchsorted(layout.cell_pair, np.arange(len(prior.mean) + 1))
        tables: dict[str, dict[str, Any]] = {
            "luce_pairs": pairs,
            "luce_cells": {name: _to_lists(starts, each) for name, each in cells.items()},
            "luce_queries": {
                **queries,
                **{name: _rows_to_lists(each) for name, each in lists.items()},
            },
            "luce_classes": {"appeal": appeal.level(1), "outside": outside.level(0)},
        }
        if past.outcomes.any():
            names = ("unsatisfied", "satisfied")
            rates = np.ascontiguousarray(parameters.outcome_rates.T)
            tables["luce_outcomes"] = dict(zip(names, past.outcomes, strict=True))
            tables["luce_outcome_rates"] = dict(zip(names, rates, strict=True))
        for name in COMMON_TABLES:
            table: FactorTable = getattr(parameters, name)
            tables[f"luce_{name}_factors"] = {"factor": table.factors}
            tables[f"luce_{name}_past"] = table.past._asdict()
        return {name: pa.table(columns) for name, columns in tables.items()}

    @classmethod
    def from_tables(
        cls,
        hyper: Hyperparameters,
        counts: Counts,
        mixing_mean: Float64,
        tables: Mapping[str, pa.Table],
    ) -> LuceState:
        """The state from its tables."""
        n_pairs, n_queries = len(counts.impressions), len(counts.queries)
        names = ("prior_mean", "prior_strength", "factor", "satisfaction", "satisfied")
        pairs = {
            name: read_numbers(tables, "luce_pairs", name, length=n_pairs).copy()
            for name in (*names, "open_clicks", *Information._fields)
        }
        starts, position = read_lists(
            tables, "luce_cells", "position", low=0, high=(1 << POSITION_BITS) - 1
        )
        if len(starts) != n_pairs + 1:
            raise table_error("luce_cells", "its rows are not those of the pairs")
        has_positions = hyper.position_effect_strength is not None
        cells = cell_keys(run_of_elements(starts), position) if has_positions else None
        layout = Layout.from_counts(counts, counts.impressions, counts.volumes, cells)
        if (np.diff(layout.cell) <= 0).any():
            raise table_error("luce_cells", "cells out of order")
        prior = PairPrior(pairs["prior_mean"], pairs["prior_strength"])
        fresh = initial_parameters(layout, hyper, prior.mean, prior.strength, mixing_mean)
        appeal = [pairs["factor"], read_numbers(tables, "luce_classes", "appeal")]
        if has_positions:
            effects = _read_rows(tables, "position_factors", (n_queries, layout.longest))
            appeal += [effects.ravel(), read_lists(tables, "luce_cells", "factor", low=0)[1]]
        outside = [read_numbers(tables, "luce_classes", "outside")]
        if hyper.query_strength is not None:
            outside.append(read_numbers(tables, "luce_queries", "factor", length=n_queries))
        factors = {"appeal": appeal, "query_outside": outside}
        past = {
            "appeal": [read_lists(tables, "luce_cells", each, low=0)[1] for each in PAST],
            "query_outside": [read_numbers(tables, "luce_queries", each) for each in PAST],
        }
        for name in COMMON_TABLES:
            factors[name] = [read_numbers(tables, f"luce_{name}_factors", "factor")]
            past[name] = [read_numbers(tables, f"luce_{name}_past", each) for each in PAST]
        found = {}
        for name in TABLES:
            table = getattr(fresh, name).with_factors(np.concatenate(factors[name]))
            found[name] = table.with_past(PastChoices(*(each.copy() for each in past[name])))
            if not found[name].is_consistent():
                raise table_error(f"luce_{name}", "its rows are not those of the table")
        mixing, members = (
            _read_rows(tables, name, fresh.mixing.shape) for name in ("mixing", "members")
        )
        parameters = fresh._replace(**found, mixing=mixing, satisfaction=pairs["satisfaction"])
        outcomes = np.zeros((2, N_OUTCOMES))
        if "luce_outcomes" in tables:
            outcomes, rates = (
                np.stack([read_numbers(tables, name, each) for each in tables[name].column_names])
                for name in ("luce_outcomes", "luce_outcome_rates")
            )
            parameters = parameters._replace(outcome_rates=np.ascontiguousarray(rates.T))
        satisfaction = PastSatisfaction(pairs["satisfied"], pairs["open_clicks"], members, outcomes)
        information = Information(*(pairs[name] for name in Information._fields))
        return cls(hyper, layout, parameters, prior, mixing_mean, satisfaction, information)

    # updating

    def move_to(self, at: IndexMap, layout: Layout, prior: PairPrior, decay: float) -> LuceState:
        """The state for the pairs and queries of a later layout, its sessions counting less."""
        last, past, mean = self.parameters, self.past, self.mixing_mean
        fresh = initial_parameters(layout, self.hyper, prior.mean, prior.strength, mean)
        cells = {
            "appeal": self.layout.rows_in(layout, at.pair),
            "transition": _cells_in(last.transition, fresh.transition),
            "outside": _cells_in(last.outside, fresh.outside),
            "query_outside": at.query,
        }
        tables = {
            name: getattr(fresh, name).continue_from(getattr(last, name), rows, decay)
            for name, rows in cells.items()
        }
        past = PastSatisfaction(
            at.place_pairs(decay * past.satisfied),
            at.place_pairs(decay * past.clicks),
            at.place_queries(decay * past.members),
            decay * past.outcomes,
        )
        information = Information(*(at.place_pairs(decay * each) for each in self.information))
        rho = at.place_pairs(last.satisfaction, self.hyper.satisfaction_prior)
        known = satisfaction_variance(self.hyper, rho, past.clicks, information.ambiguity)
        parameters = last._replace(
            **tables,
            mixing=at.place_queries(last.mixing, mean),
            satisfaction=rho,
            satisfaction_variance=known,
        )
        return LuceState(self.hyper, layout, parameters, prior, mean, past, information)


def _cells_in(last: FactorTable, fresh: FactorTable) -> Int64:
    """The cells that those of a table are in one for pages as long or longer."""
    return (
        np.arange(np.prod(fresh.shape))
        .reshape(fresh.shape)[tuple(slice(size) for size in last.shape)]
        .ravel()
    )


def _to_lists(starts: Int64, values: Float64 | Int64) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(starts), pa.array(values))


def _rows_to_lists(rows: Float64) -> pa.LargeListArray:
    return _to_lists(np.arange(len(rows) + 1) * rows.shape[1], np.ascontiguousarray(rows).ravel())


def _read_rows(tables: Mapping[str, pa.Table], column: str, shape: tuple[int, ...]) -> Float64:
    """A column of `luce_queries` with a list per query, as an array."""
    starts, values = read_lists(tables, "luce_queries", column, low=0)
    if not np.array_equal(starts, np.arange(shape[0] + 1) * shape[1]):
        raise table_error("luce_queries", f"{column}: its lists are not those of the queries")
    return np.array(values, np.float64).reshape(shape)


def _remember(table: FactorTable, observed: Float64, expected: Float64) -> FactorTable:
    return table.with_past(table.to_past(observed, expected))
