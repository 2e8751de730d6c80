"""Sessions drawn from LuceClick itself, settings to fit it with, and its objective."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import ChoicePages
from reclick.clicks.mixture import MixturePages
from reclick.data.batch import Float64, Int32, Int64
from reclick.data.grouped_sessions import GroupedSessions
from reclick.engines import LocalEngine, as_grouped
from reclick.fitting.attractiveness_prior import PairPrior
from reclick.fitting.em import Statistics
from reclick.models.luce.e_step import e_step
from reclick.models.luce.fit import TrainingData
from reclick.models.luce.parameters import (
    Hyperparameters,
    Layout,
    LuceParameters,
    initial_parameters,
)

GAMMA = np.array(
    [
        [
            [1.0, 0.5, 0.3, 0.2],
            [0.3, 0.9, 0.5, 0.3],
            [0.6, 0.3, 0.9, 0.4],
            [0.3, 0.5, 0.3, 0.8],
            [0.6, 0.4, 0.3, 0.3],
        ]
    ]
)
OMEGA = np.array([[1.0, 0.8, 0.9, 1.0, 1.0]])
THETA, RHO = np.array([0.2, 0.4, 0.8, 1.6, 3.0, 0.5]), np.array([0.2, 0.5, 0.3, 0.6, 0.4, 0.1])

# Settings that leave nothing to the log: without any addition, and with all.
PLAIN: dict[str, Any] = {
    "attractiveness_strength": 1.0,
    "satisfaction_prior": 0.4,
    "satisfaction_strength": 5.0,
    "query_strength": None,
    "transition_strength": 4.0,
    "components": 1,
    "position_effect_strength": None,
}
RICH: dict[str, Any] = {
    **PLAIN,
    "query_strength": 2.0,
    "components": 3,
    "component_strength": 4.0,
    "mixing_strength": 3.0,
    "position_effect_strength": 3.0,
}


def draw(
    theta: Float64,
    rho: Float64,
    gamma: Float64,
    omega: Float64,
    count: int,
    seed: int,
    mixing: Float64 | None = None,
) -> pa.Table:
    """Sessions of one query with pages of four of its ads, placed at random.

    With `mixing` [component] there are several components.
    """
    rng = np.random.default_rng(seed)
    return draw_queries(theta[None], rho[None], gamma, omega, count, rng, mixing)


def draw_queries(
    theta: Float64,
    rho: Float64,
    gamma: Float64,
    omega: Float64,
    count: int,
    rng: np.random.Generator,
    mixing: Float64 | None = None,
    effect: Float64 | None = None,
) -> pa.Table:
    """Sessions of several queries; theta and rho are [query, ad], effect [query, ad, position]."""
    query = rng.integers(0, len(theta), count)
    shown = np.argsort(rng.random((count, theta.shape[1])), axis=1)[:, :4]
    weights, satisfied = theta[query[:, None], shown], rho[query[:, None], shown]
    if effect is not None:
        weights = weights * effect[query[:, None], shown, np.arange(4)]
    starts, table = np.arange(count + 1) * 4, np.zeros(count, np.int64)
    pages = ChoicePages("luce", weights.ravel(), satisfied.ravel(), omega, gamma, starts, table)
    if mixing is None:
        return _table(query, shown, *pages.sample(rng))
    components = tuple(replace(pages, table=np.full(count, t)) for t in range(len(mixing)))
    mixture = MixturePages(components, np.tile(mixing, (count, 1)))
    return _table(query, shown, *mixture.sample(rng))


def _table(query: Int64, shown: Int64, click: Int32, clicks: Int64) -> pa.Table:
    starts = np.arange(len(query) + 1, dtype=np.int32) * 4
    ads = pa.array([f"ad{i}" for i in shown.ravel()])
    return pa.table(
        {
            "query": [f"q{q}" for q in query],
            "ads": pa.ListArray.from_arrays(pa.array(starts), ads),
            "clicks": pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click)),
        }
    )


def true_values(table: pa.Table, values: Float64) -> Float64:
    """The entries [query, ad] of the pairs of a relevance table of such sessions."""
    q, ad = (
        np.array([int(name.removeprefix(prefix)) for name in table[column].to_pylist()])
        for column, prefix in (("query", "q"), ("ad", "ad"))
    )
    return np.asarray(values[q, ad])


def coverage(table: pa.Table, name: str, truth: Float64) -> float:
    """How many of the intervals of a relevance table hold the truth [pair]."""
    low, high = table[f"{name}_low"].to_numpy(), table[f"{name}_high"].to_numpy()
    return float(np.mean((low <= truth) & (truth <= high)))


class LuceProblem(NamedTuple):
    """What a fit of LuceClick maximises, and where."""

    sessions: GroupedSessions
    data: TrainingData
    hyper: Hyperparameters

    def statistics(self, now: LuceParameters) -> Statistics:
        """The statistics of all sessions under some parameters."""
        return LocalEngine().reduce(e_step, now, self.data.blocks)

    def value(self, now: LuceParameters) -> float:
        """The objective under some parameters."""
        return self.statistics(now).log_likelihood + now.log_prior()

    def start(self) -> LuceParameters:
        """Parameters at their prior means; those of θ are 1, with a strength of 2."""
        pairs, components = len(self.data.layout.pair_class), self.hyper.components
        prior, mixing = PairPrior(np.ones(pairs), np.full(pairs, 2.0)), np.ones(components)
        return initial_parameters(self.data.layout, self.hyper, prior, mixing / components)

    def draw_parameters(self, seed: int) -> LuceParameters:
        """Parameters drawn at random, which satisfy the constraints."""
        rng, fresh = np.random.default_rng(seed), self.start()
        tables: dict[str, Any] = {
            name: table.with_factors(rng.gamma(9.0, 1 / 9, len(table.factors)))
            for name in ("appeal", "transition", "outside", "query_outside")
            for table in (getattr(fresh, name),)
        }
        queries, components = fresh.mixing.weights.shape
        mixing = fresh.mixing.with_values(rng.dirichlet(np.ones(components), queries))
        rho = fresh.satisfaction.with_values(rng.beta(3.0, 5.0, len(fresh.satisfaction.mean)))
        return replace(fresh, **tables, mixing=mixing, satisfaction=rho)


def luce_problem(log: object, now: Hyperparameters) -> LuceProblem:
    """The objective of a fit."""
    sessions = as_grouped(log)
    layout = Layout.of(sessions, has_positions=now.position_effect_strength is not None)
    return LuceProblem(sessions, TrainingData.of(sessions, layout), now)
