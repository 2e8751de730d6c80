"""What a fitted LuceClick keeps: its parameters, and its sessions as past choices for updates.

Of past sessions only sums are kept: the observed choices of each weight, and its exposure, the
choices expected per unit of weight under the last fit. As a function of a weight x the past is then
worth observed · log x − exposure · x, whose slope is exact at the last fit. Decay scales the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reclick.data.counts import Counts
from reclick.data.outcomes import N_OUTCOMES
from reclick.data.pair_index import IndexMap
from reclick.data.ragged import Float64, Int64
from reclick.data.stored_tables import table_error
from reclick.fitting.attractiveness_prior import PairPrior
from reclick.fitting.factors import FactorTable, PastChoices
from reclick.models.luce.fit import LuceFit
from reclick.models.luce.m_step import PastSatisfaction
from reclick.models.luce.parameters import (
    Hyperparameters,
    Layout,
    LuceParameters,
    initial_parameters,
)
from reclick.models.luce.posterior import Information, satisfaction_variance

TABLES = ("appeal", "transition", "outside", "query_outside")
Arrays = dict[str, dict[str, Any]]  # columns of equal length, by table


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

    def to_arrays(self) -> Arrays:
        """The state as columns of tables."""
        past, prior, parameters = self.past, self.prior, self.parameters
        arrays: Arrays = {
            "luce_pairs": {
                "prior_mean": prior.mean,
                "prior_strength": prior.strength,
                "satisfaction": parameters.satisfaction,
                "satisfied": past.satisfied,
                "open_clicks": past.clicks,
                **self.information._asdict(),
            },
            "luce_cells": {"cell": self.layout.cell},
            "luce_mixing": {
                "weight": parameters.mixing.ravel(),
                "members": past.members.ravel(),
            },
        }
        if past.outcomes.any():
            names = ("unsatisfied", "satisfied")
            rates = parameters.outcome_rates.T
            arrays["luce_outcomes"] = dict(zip(names, past.outcomes, strict=True))
            arrays["luce_outcome_rates"] = dict(
                zip(names, np.ascontiguousarray(rates), strict=True)
            )
        for name in TABLES:
            table: FactorTable = getattr(parameters, name)
            arrays[f"luce_{name}_factors"] = {"factor": table.factors}
            arrays[f"luce_{name}_past"] = table.past._asdict()
        return arrays

    @classmethod
    def from_arrays(
        cls, hyper: Hyperparameters, counts: Counts, mixing_mean: Float64, arrays: Arrays
    ) -> LuceState:
        """The state from its columns."""
        pairs, cells = arrays["luce_pairs"], arrays["luce_cells"]["cell"]
        if {len(column) for column in pairs.values()} != {len(counts.impressions)}:
            raise table_error("luce_pairs", "its rows are not those of the pairs")
        cells = None if hyper.position_effect_strength is None else cells
        layout = Layout.from_counts(counts, counts.impressions, counts.volumes, cells)
        inside = (layout.cell_pair >= 0) & (layout.cell_pair < len(counts.impressions))
        if not inside.all() or (np.diff(layout.cell) <= 0).any():
            raise table_error("luce_cells", "a cell of no pair, or cells out of order")
        prior = PairPrior(pairs["prior_mean"], pairs["prior_strength"])
        fresh = initial_parameters(layout, hyper, prior.mean, prior.strength, mixing_mean)
        tables = {}
        for name in TABLES:
            table = getattr(fresh, name).with_factors(arrays[f"luce_{name}_factors"]["factor"])
            tables[name] = table.with_past(PastChoices(**arrays[f"luce_{name}_past"]))
            if not tables[name].is_consistent():
                raise table_error(f"luce_{name}_factors", "its rows are not those of the table")
        shape = fresh.mixing.shape
        mixing = {name: each.reshape(shape) for name, each in arrays["luce_mixing"].items()}
        parameters = fresh._replace(
            **tables, mixing=mixing["weight"], satisfaction=pairs["satisfaction"]
        )
        outcomes = np.zeros((2, N_OUTCOMES))
        if "luce_outcomes" in arrays:
            outcomes = np.stack(list(arrays["luce_outcomes"].values()))
            rates = np.stack(list(arrays["luce_outcome_rates"].values()), axis=1)
            parameters = parameters._replace(outcome_rates=rates)
        past = PastSatisfaction(
            pairs["satisfied"], pairs["open_clicks"], mixing["members"], outcomes
        )
        information = Information(*(pairs[name] for name in Information._fields))
        return cls(hyper, layout, parameters, prior, mixing_mean, past, information)

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


def _remember(table: FactorTable, observed: Float64, expected: Float64) -> FactorTable:
    return table.with_past(table.to_past(observed, expected))
