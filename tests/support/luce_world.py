"""Sessions draw from LuceClick itself, settings to fit it with, and its objective at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import ChoicePages
from reclick.clicks.mixture import MixturePages
from reclick.data.batch import Float64, Int32, Int64
from reclick.engines import as_grouped
from reclick.models.luce.e_step import ExpectedStatistics, e_step
from reclick.models.luce.m_step import Objective
from reclick.models.luce.parameters import Hyperparameters, LuceParameters
from reclick.models.luce.satisfaction import scale_odds

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
    "component_appeal_strength": 3.0,
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
    appeal: Float64 | None = None,
    odds: Float64 | None = None,
) -> pa.Table:
    """Sessions of one query with pages of four of its ads, placed at random.

    With `mixing` [component] there are several components; `appeal` [component, ad] are multiples
    of theta, `odds` [component] of the odds of rho.
    """
    rng = np.random.default_rng(seed)
    shown = np.argsort(rng.random((count, len(theta))), axis=1)[:, :4]
    pages = ChoicePages(
        "luce",
        theta[shown].ravel(),
        rho[shown].ravel(),
        omega,
        gamma,
        np.arange(count + 1) * 4,
        np.zeros(count, np.int64),
    )
    if mixing is not None:
        appeal = np.ones((len(mixing), len(theta))) if appeal is None else appeal
        rhos = scale_odds(pages.rho, (np.ones(len(mixing)) if odds is None else odds)[:, None])
        components = tuple(
            replace(pages, theta=each, rho=rho, table=np.full(count, t))
            for t, (each, rho) in enumerate(
                zip((appeal * theta)[:, shown.ravel()], rhos, strict=True)
            )
        )
        mixture = MixturePages(components, np.tile(mixing, (count, 1)))
        return _table(np.full(count, "q"), shown, *mixture.sample(rng))
    return _table(np.full(count, "q"), shown, *pages.sample(rng))


def draw_queries(
    theta: Float64,
    rho: Float64,
    gamma: Float64,
    omega: Float64,
    count: int,
    rng: np.random.Generator,
) -> pa.Table:
    """Sessions of several queries, likewise; theta and rho are [query, ad]."""
    query, shown = (
        rng.integers(0, len(theta), count),
        np.argsort(rng.random((count, theta.shape[1])), axis=1)[:, :4],
    )
    weights, pleases = (values[query[:, None], shown].ravel() for values in (theta, rho))
    pages = ChoicePages(
        "luce", weights, pleases, omega, gamma, np.arange(count + 1) * 4, np.zeros(count, np.int64)
    )
    return _table(np.array([f"q{q}" for q in query]), shown, *pages.sample(rng))


def _table(query: Any, shown: Int64, click: Int32, clicks: Int64) -> pa.Table:
    return pa.table(
        {
            "query": query,
            "ads": pa.ListArray.from_arrays(
                pa.array(np.arange(len(query) + 1, dtype=np.int32) * 4),
                pa.array([f"ad{i}" for i in shown.ravel()]),
            ),
            "clicks": pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click)),
        }
    )


def objective_for(log: object, hyperparameters: Hyperparameters, mean: float = 0.3) -> Objective:
    """The objective of a fit with prior means 1 of θ and `mean` of ρ."""
    sessions, components = as_grouped(log), hyperparameters.components
    prior_mean = np.ones(len(sessions.counts.impressions))
    return Objective(
        sessions, hyperparameters, prior_mean, mean, np.full(components, 1 / components)
    )


def statistics_at(objective: Objective, parameters: LuceParameters) -> ExpectedStatistics:
    """The statistics of all sessions under some parameters."""
    blocks = objective.sessions.blocks
    return objective.sessions.engine.reduce(e_step, parameters, blocks)
