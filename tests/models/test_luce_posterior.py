"""The posteriors of LuceClick: information against curvature, and intervals that hold the truth."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64
from reclick.engines import as_grouped
from reclick.fitting.beta import credible_interval
from reclick.models.luce.m_step import Objective
from reclick.models.luce.parameters import Hyperparameters, LuceParameters
from reclick.models.luce.posterior import _pairwise_weights, marginal_information
from reclick.models.luce.satisfaction import ZERO_VARIANCE
from tests.support.enumeration import Session, as_table, random_sessions
from tests.support.luce_world import GAMMA, OMEGA, PLAIN, draw_queries, objective_for

PRIOR = 0.7  # information of the priors on each log θ and on each log f


def random_parameters(objective: Objective, rho: float, seed: int = 4) -> LuceParameters:
    """Parameters drawn at random, except that all ρ are the same."""
    rng, fresh = np.random.default_rng(seed), objective.initial_parameters()
    transition, query_outside, theta = (
        rng.gamma(3.0, 1 / 3, len(values))
        for values in (fresh.transition, fresh.query_outside, fresh.theta)
    )
    return fresh._replace(
        theta=theta,
        rho=np.full(len(theta), rho),
        transition=transition,
        query_outside=query_outside,
        satisfaction_variance=np.full(len(theta), ZERO_VARIANCE),
    )


def information(objective: Objective, now: LuceParameters) -> Float64:
    """The information of the sessions on each log θ [pair]."""
    found, per_query = objective.sessions.information(now), objective.layout.per_query_outside
    marginal = marginal_information(
        found.end.sum(axis=1),
        found.ads.sum(axis=1),
        np.full(len(now.theta), PRIOR),
        objective.layout.pair_query,
        np.full(len(now.query_outside), PRIOR) if per_query else None,
    )
    return marginal - PRIOR


def information_by_differences(
    objective: Objective, sessions: GroupedSessions, now: LuceParameters, per_query: bool
) -> Float64:
    """The same by definition: the inverse of the negative second derivatives."""
    pairs = len(now.theta)
    size = pairs + per_query * len(now.query_outside)

    def log_likelihood(moved: Float64) -> float:
        outside = now.query_outside * np.exp(moved[pairs:]) if per_query else now.query_outside
        there = now._replace(theta=now.theta * np.exp(moved[:pairs]), query_outside=outside)
        return float(objective.sessions.score(there, sessions) @ sessions.weight)

    step, unit, matrix = 1e-3, np.eye(size), np.empty((size, size))
    for i, j in product(range(size), repeat=2):
        corners = [
            a * b * log_likelihood(step * (a * unit[i] + b * unit[j]))
            for a in (1, -1)
            for b in (1, -1)
        ]
        matrix[i, j] = -sum(corners) / (4 * step * step)
    return np.asarray(1 / np.diag(np.linalg.inv(matrix + PRIOR * np.eye(size)))[:pairs] - PRIOR)


@pytest.mark.parametrize("per_query", [False, True])
def test_the_information_on_two_ads_of_a_query_is_the_curvature_of_all_weights(
    per_query: bool,
) -> None:
    rng = np.random.default_rng(2)
    pages = [("a", "b"), ("b", "a"), ("a",), ("b",)]
    rows = [
        Session(f"q{rng.integers(3)}", pages[rng.integers(4)], ((), (1,))[rng.integers(2)])
        for _ in range(80)
    ]
    log = as_table([*rows, Session("q1", ("a", "b"), (2, 1)), Session("q2", ("b", "a"), (1, 2))])
    made = objective_for(log, Hyperparameters(query_strength=2.0 if per_query else None))
    now = random_parameters(made, rho=0.0)  # without satisfaction every choice is observed
    np.testing.assert_allclose(
        information(made, now),
        information_by_differences(made, as_grouped(log), now, per_query),
        rtol=1e-4,
    )


@pytest.mark.parametrize("per_query", [False, True])
def test_the_information_on_more_ads_is_nearly_so_even_if_a_page_shows_one_twice(
    per_query: bool,
) -> None:
    log = as_table(random_sessions(np.random.default_rng(2), 60))
    made = objective_for(log, Hyperparameters(query_strength=2.0 if per_query else None))
    now = random_parameters(made, rho=0.0)
    exact, found = (
        information_by_differences(made, as_grouped(log), now, per_query),
        information(made, now),
    )
    comparisons = made.sessions.information(now)
    alone = (comparisons.end + comparisons.ads)[:, 0]  # as if all others were known
    np.testing.assert_allclose(found, exact, rtol=0.03)
    assert np.abs(found - exact).sum() < 0.15 * np.abs(alone - exact).sum()


@pytest.mark.parametrize("rho", [0.3, 0.7])
def test_an_end_without_known_cause_carries_less_information(rho: float) -> None:
    # All sessions that a page can have, weighted by probability: the sum is the expectation.
    every = as_grouped(
        as_table([Session("q", ("a", "b"), clicks) for clicks in ((), (1,), (2,), (1, 2), (2, 1))])
    )
    made = Objective(every, Hyperparameters(query_strength=2.0), np.ones(2), 0.3, np.ones(1))
    now = random_parameters(made, rho)
    likely = np.exp(made.sessions.score(now, every))
    assert likely.sum() == pytest.approx(1)
    weighed = GroupedSessions(every.counts, replace(every.whole, weight=500 * likely))
    again = Objective(weighed, Hyperparameters(query_strength=2.0), np.ones(2), 0.3, np.ones(1))
    np.testing.assert_allclose(
        information(again, now),
        information_by_differences(again, weighed, now, per_query=True),
        rtol=1e-4,
    )


def test_pairwise_weights_add_up_to_the_comparisons_of_each_ad() -> None:
    rng = np.random.default_rng(3)
    for size in (2, 3, 8):
        between = np.triu(rng.gamma(1.0, size=(size, size)), 1)
        ads = (between + between.T).sum(axis=1)
        c = _pairwise_weights(ads, np.zeros(size, np.int32), 1)
        np.testing.assert_allclose(c * (c.sum() - c), ads, rtol=0.02)
    assert _pairwise_weights(np.zeros(3), np.zeros(3, np.int32), 1).tolist() == [0, 0, 0]


# ---- updates


@pytest.mark.parametrize("per_query", [None, 2.0])
def test_an_update_has_as_much_information_as_one_fit_to_both_days(per_query: float | None) -> None:
    rng = np.random.default_rng(5)
    theta, rho = rng.gamma(2.0, 0.5, (30, 6)), rng.beta(3.0, 5.0, (30, 6))
    days = [draw_queries(theta, rho, GAMMA, 0.3 * OMEGA, 4_000, rng) for _ in range(2)]
    given: dict[str, Any] = {**PLAIN, "query_strength": per_query, "satisfaction_prior": 0.375}
    whole, updated = (
        rc.LuceClick(**given).fit(pa.concat_tables(days)),
        rc.LuceClick(**given).fit(days[0]).update(days[1]),
    )
    off = np.abs(updated._theta_information / whole._theta_information - 1)
    assert np.quantile(off, 0.95) < 0.15
    assert off.max() < 0.5
    np.testing.assert_allclose(
        np.median(updated._rho_information / whole._rho_information), 1, atol=0.1
    )
    known = updated._rho_information.copy()
    updated.update(
        {"query": ["q0"], "ads": [["ad0"]], "clicks": [[]]}
    )  # without information on satisfaction
    np.testing.assert_allclose(updated._rho_information, known, rtol=0.05)


def test_component_appeal_that_cannot_differ_leaves_the_information_as_it_is() -> None:
    rng = np.random.default_rng(6)
    theta, rho = rng.gamma(2.0, 0.5, (20, 6)), rng.beta(3.0, 5.0, (20, 6))
    log = draw_queries(theta, rho, GAMMA, 0.3 * OMEGA, 3_000, rng)
    given: dict[str, Any] = {
        **PLAIN,
        "query_strength": 2.0,
        "components": 3,
        "component_strength": 16.0,
        "mixing_strength": None,
    }
    none, alike = (
        rc.LuceClick(**given, component_appeal_strength=taste).fit(log)._theta_information
        for taste in (None, 1e6)
    )
    np.testing.assert_allclose(alike, none, rtol=0.02)


# ---- intervals


@pytest.mark.parametrize("strength", [0.0, 0.01])
def test_the_interval_is_wide_where_there_is_hardly_any_information(strength: float) -> None:
    log = {"query": ["q", "q"], "ads": [["a"], ["b"]], "clicks": [[1], []]}
    given: dict[str, Any] = {
        **PLAIN,
        "attractiveness_strength": strength,
        "satisfaction_strength": strength,
    }
    for row in rc.LuceClick(**given).fit(log).relevance().to_pylist():
        for name in ("attractiveness", "satisfaction"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
            assert row[f"{name}_high"] - row[f"{name}_low"] > 0.5


CASES: dict[str, tuple[float, float | None]] = {
    "many leave at once": (1.0, None),
    "hardly any leave": (0.1, None),
    "each query its own": (1.0, 3.0),
}


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("case", CASES)
def test_intervals_hold_the_truth_as_often_as_their_level(case: str, level: float) -> None:
    # θ, ρ and f from the priors themselves; 600 ads of 100 queries, some hundred impressions each.
    outside, per_query = CASES[case]
    rng = np.random.default_rng(8)
    queries, ads = 100, 6
    theta, rho = rng.gamma(2.0, 0.5, (queries, ads)), rng.beta(3.0, 5.0, (queries, ads))
    f = np.ones(queries) if per_query is None else rng.gamma(per_query, 1 / per_query, queries)
    log = draw_queries(theta / f[:, None], rho, GAMMA, outside * OMEGA, 20_000, rng)
    given: dict[str, Any] = {
        **PLAIN,
        "attractiveness_strength": 2.0,
        "satisfaction_strength": 8.0,
        "satisfaction_prior": 0.375,
        "query_strength": per_query,
    }
    model = rc.LuceClick(**given).fit(log)
    asked = {
        "query": [f"q{q}" for q in range(queries) for _ in range(ads)],
        "ad": [f"ad{i}" for _ in range(queries) for i in range(ads)],
    }
    table, odds = model.relevance(asked, level=level), theta.ravel() / outside
    truths = {
        "attractiveness": odds / (1 + odds),
        "satisfaction": rho.ravel(),
        "relevance": odds / (1 + odds) * rho.ravel(),
    }
    for name, truth in truths.items():
        low, high = table[f"{name}_low"].to_numpy(), table[f"{name}_high"].to_numpy()
        assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(
            level, abs=0.05 if name == "attractiveness" else 0.09
        ), name


def test_more_clicks_give_the_higher_lower_end_even_where_satisfaction_is_unknown() -> None:
    many = {
        "query": ["q"] * 2000,
        "ads": [["a"]] * 1000 + [["b"]] * 1000,
        "clicks": [[1]] * 900 + [[]] * 100 + [[1]] * 100 + [[]] * 900,
    }
    table = rc.LuceClick(**PLAIN).fit(many).relevance()
    low = dict(zip(table["ad"].to_pylist(), table["relevance_low"].to_pylist(), strict=True))
    assert low["a"] > 2 * low["b"] > 0


def test_a_common_satisfaction_has_the_interval_of_six_clicks_for_known_and_new_ads() -> None:
    log = {"query": ["q"] * 400, "ads": [["a", "b"]] * 400, "clicks": [[1], [], [2], [2, 1]] * 100}
    model = rc.LuceClick(
        satisfaction_strength=None,
        attractiveness_strength=1.0,
        transition_strength=1.0,
        components=1,
        query_strength=None,
    ).fit(log)
    low, high = credible_interval(model.satisfaction_, 6.0)
    for row in model.relevance({"query": ["q", "q"], "ad": ["a", "never"]}).to_pylist():
        assert (row["satisfaction_low"], row["satisfaction_high"]) == pytest.approx(
            (float(low), float(high)), rel=1e-6
        )
