"""A world of LuceClick's own, to draw sessions from, and settings to fit it with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from reclick.clicks import distribution as pg
from reclick.clicks.choice import LUCE
from reclick.clicks.distribution import Pages
from reclick.clicks.mixture import Kinds
from reclick.data.batch import Float64, Int32, Int64
from reclick.models.luce.satisfaction import satisfaction_of

WHERE = np.array(
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
WHEN = np.array([[1.0, 0.8, 0.9, 1.0, 1.0]])
PULL, PLEASE = np.array([0.2, 0.4, 0.8, 1.6, 3.0, 0.5]), np.array([0.2, 0.5, 0.3, 0.6, 0.4, 0.1])

# Settings that leave nothing to the log: without any addition, and with all.
PLAIN: dict[str, Any] = {
    "attractiveness_strength": 1.0, "satisfaction_strength": 5.0, "query_strength": None, "transition_strength": 4.0, "components": 1,
    "position_effect_strength": None,
}  # fmt: skip
RICH: dict[str, Any] = {
    **PLAIN,
    "query_strength": 2.0,
    "components": 3,
    "component_strength": 4.0,
    "mixing_strength": 3.0,
    "component_appeal_strength": 3.0,
    "position_effect_strength": 3.0,
}


def drawn(
    theta: Float64,
    rho: Float64,
    gamma: Float64,
    omega: Float64,
    count: int,
    seed: int,
    share: Float64 | None = None,
    tastes: Float64 | None = None,
    eases: Float64 | None = None,
) -> pa.Table:
    """Sessions of pages of four of the ads of one query, placed at random; of one kind of users, or of several with these shares.

    `tastes` [kind, ad] are multiples of theta, `eases` [kind] of the odds of rho.
    """
    rng = np.random.default_rng(seed)
    shown = np.argsort(rng.random((count, len(theta))), axis=1)[:, :4]
    pages = Pages(
        LUCE,
        theta[shown].ravel(),
        rho[shown].ravel(),
        omega,
        gamma,
        np.arange(count + 1) * 4,
        np.zeros(count, np.int64),
    )
    if share is not None:
        tastes = np.ones((len(share), len(theta))) if tastes is None else tastes
        rhos = satisfaction_of(
            pages.rho, (np.ones(len(share)) if eases is None else eases)[:, None]
        )
        pages = Kinds(pages, np.tile(share, (count, 1)), (tastes * theta)[:, shown.ravel()], rhos)
    return _table(np.full(count, "q"), shown, *pg.samples(pages, rng))


def drawn_of_queries(
    theta: Float64,
    rho: Float64,
    gamma: Float64,
    omega: Float64,
    count: int,
    rng: np.random.Generator,
) -> pa.Table:
    """Sessions of pages of four of the ads of a query, placed at random; theta and rho [query, ad]."""
    query, shown = (
        rng.integers(0, len(theta), count),
        np.argsort(rng.random((count, theta.shape[1])), axis=1)[:, :4],
    )
    weights, pleases = (values[query[:, None], shown].ravel() for values in (theta, rho))
    pages = Pages(
        LUCE, weights, pleases, omega, gamma, np.arange(count + 1) * 4, np.zeros(count, np.int64)
    )
    return _table(np.array([f"q{q}" for q in query]), shown, *pg.samples(pages, rng))


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
