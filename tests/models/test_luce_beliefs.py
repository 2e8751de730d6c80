"""Intervals of LuceClick: what sessions tell of all the ads of a query together, and whether intervals hold the truth."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.data.batch import Float64
from reclick.data.grouped_sessions import Sessions, as_sessions
from reclick.fitting.beta import credible_interval
from reclick.models.luce.curvature import compared, together
from reclick.models.luce.objective import Problem
from reclick.models.luce.parameters import Options, Parameters
from reclick.models.luce.satisfaction import EXACT
from tests.support.enumeration import Session, as_table, random_sessions
from tests.support.luce_world import PLAIN, WHEN, WHERE, drawn_of_queries

BEFORE = 0.7  # what is known of each log θ before the sessions, and of each log f


def problem_of(log: pa.Table, options: Options) -> Problem:
    sessions = as_sessions(log)
    return Problem(
        sessions,
        options,
        np.ones(len(sessions.counts.impressions)),
        0.3,
        np.full(options.components, 1 / options.components),
    )


def somewhere(problem: Problem, rho: float, seed: int = 4) -> Parameters:
    """Parameters drawn at random, but for one ρ."""
    rng, fresh = np.random.default_rng(seed), problem.fresh()
    eye, spread, theta = (
        rng.gamma(3.0, 1 / 3, len(values)) for values in (fresh.eye, fresh.spread, fresh.theta)
    )
    return fresh._replace(
        theta=theta,
        rho=np.full(len(theta), rho),
        eye=eye,
        spread=spread,
        loose=np.full(len(theta), EXACT),
    )


def told(problem: Problem, now: Parameters) -> Float64:
    """What the sessions tell of each log θ [pair]."""
    found, before, own = (
        problem.passes.information(now),
        np.full(len(now.theta), BEFORE),
        problem.passes.own,
    )
    query_before = np.full(len(now.spread), BEFORE)
    return (
        together(
            found.end.sum(axis=1),
            found.ads.sum(axis=1),
            before,
            problem.pair_query,
            query_before,
            own,
        )
        - BEFORE
    )


def by_differences(problem: Problem, sessions: Sessions, now: Parameters, own: bool) -> Float64:
    """The same by the definition: minus the second derivatives of the log-likelihood by every log θ and log f, inverted."""
    pairs, many = len(now.theta), len(now.theta) + own * len(now.spread)

    def log_likelihood(moved: Float64) -> float:
        spread = now.spread * np.exp(moved[pairs:]) if own else now.spread
        return float(
            problem.passes.score(
                now._replace(theta=now.theta * np.exp(moved[:pairs]), spread=spread), sessions
            )
            @ sessions.weight
        )

    step, unit, matrix = 1e-3, np.eye(many), np.empty((many, many))
    for i, j in product(range(many), repeat=2):
        corners = [
            a * b * log_likelihood(step * (a * unit[i] + b * unit[j]))
            for a in (1, -1)
            for b in (1, -1)
        ]
        matrix[i, j] = -sum(corners) / (4 * step * step)
    return np.asarray(1 / np.diag(np.linalg.inv(matrix + BEFORE * np.eye(many)))[:pairs] - BEFORE)


@pytest.mark.parametrize("own", [False, True])
def test_of_two_ads_of_a_query_is_known_what_the_curvature_of_all_its_weights_says(
    own: bool,
) -> None:
    rng = np.random.default_rng(2)
    pages = [("a", "b"), ("b", "a"), ("a",), ("b",)]
    rows = [
        Session(f"q{rng.integers(3)}", pages[rng.integers(4)], ((), (1,))[rng.integers(2)])
        for _ in range(80)
    ]
    log = as_table([*rows, Session("q1", ("a", "b"), (2, 1)), Session("q2", ("b", "a"), (1, 2))])
    problem = problem_of(log, Options(query_strength=2.0 if own else None))
    now = somewhere(problem, rho=0.0)  # where nobody is satisfied every choice is seen
    np.testing.assert_allclose(
        told(problem, now), by_differences(problem, as_sessions(log), now, own), rtol=1e-4
    )


@pytest.mark.parametrize("own", [False, True])
def test_of_more_ads_some_of_them_twice_on_a_page_it_is_known_nearly_so(own: bool) -> None:
    log = as_table(random_sessions(np.random.default_rng(2), 60))
    problem = problem_of(log, Options(query_strength=2.0 if own else None))
    now = somewhere(problem, rho=0.0)
    exact, found = by_differences(problem, as_sessions(log), now, own), told(problem, now)
    comparisons = problem.passes.information(now)
    alone = (comparisons.end + comparisons.ads)[:, 0]  # as if all others were known
    np.testing.assert_allclose(found, exact, rtol=0.03)
    assert np.abs(found - exact).sum() < 0.15 * np.abs(alone - exact).sum()


@pytest.mark.parametrize("rho", [0.3, 0.7])
def test_an_end_of_which_nobody_knows_why_tells_less(rho: float) -> None:
    # Every session that a page can have, each as likely as it is, so that the sum is the expected information.
    every = as_sessions(
        as_table([Session("q", ("a", "b"), clicks) for clicks in ((), (1,), (2,), (1, 2), (2, 1))])
    )
    problem = Problem(every, Options(query_strength=2.0), np.ones(2), 0.3, np.ones(1))
    now = somewhere(problem, rho)
    likely = np.exp(problem.passes.score(now, every))
    assert likely.sum() == pytest.approx(1)
    weighed = replace(every, weight=500 * likely)
    again = Problem(weighed, Options(query_strength=2.0), np.ones(2), 0.3, np.ones(1))
    np.testing.assert_allclose(
        told(again, now), by_differences(again, weighed, now, own=True), rtol=1e-4
    )


def test_comparisons_between_ads_add_up_to_what_each_was_compared() -> None:
    rng = np.random.default_rng(3)
    for size in (2, 3, 8):
        between = np.triu(rng.gamma(1.0, size=(size, size)), 1)
        ads = (between + between.T).sum(axis=1)
        c = compared(ads)
        np.testing.assert_allclose(c * (c.sum() - c), ads, rtol=0.02)
    assert compared(np.zeros(3)).tolist() == [0, 0, 0]


# ---- a day after the other


@pytest.mark.parametrize("own", [None, 2.0])
def test_as_much_is_known_after_an_update_as_after_one_fit_of_both_days(own: float | None) -> None:
    rng = np.random.default_rng(5)
    theta, rho = rng.gamma(2.0, 0.5, (30, 6)), rng.beta(3.0, 5.0, (30, 6))
    days = [drawn_of_queries(theta, rho, WHERE, 0.3 * WHEN, 4_000, rng) for _ in range(2)]
    given: dict[str, Any] = {**PLAIN, "query_strength": own, "satisfaction_prior": 0.375}
    whole, updated = (
        rc.LuceClick(**given).fit(pa.concat_tables(days)),
        rc.LuceClick(**given).fit(days[0]).update(days[1]),
    )
    off = np.abs(updated._theta_information / whole._theta_information - 1)
    assert np.quantile(off, 0.95) < 0.15
    assert off.max() < 0.5
    np.testing.assert_allclose(np.median(updated._rho_information / whole._rho_information), 1, atol=0.1)
    known = updated._rho_information.copy()
    updated.update(
        {"query": ["q0"], "ads": [["ad0"]], "clicks": [[]]}
    )  # which tells nothing of satisfaction
    np.testing.assert_allclose(updated._rho_information, known, rtol=0.05)


def test_tastes_that_are_all_alike_tell_as_much_as_none() -> None:
    rng = np.random.default_rng(6)
    theta, rho = rng.gamma(2.0, 0.5, (20, 6)), rng.beta(3.0, 5.0, (20, 6))
    log = drawn_of_queries(theta, rho, WHERE, 0.3 * WHEN, 3_000, rng)
    given: dict[str, Any] = {
        **PLAIN,
        "query_strength": 2.0,
        "components": 3,
        "component_strength": 16.0,
        "mixing_strength": None,
    }
    none, alike = (
        rc.LuceClick(**given, component_appeal_strength=taste).fit(log)._theta_information for taste in (None, 1e6)
    )
    np.testing.assert_allclose(alike, none, rtol=0.02)


# ---- what is shown


@pytest.mark.parametrize("strength", [0.0, 0.01])
def test_where_next_to_nothing_is_known_the_interval_says_so(strength: float) -> None:
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
def test_intervals_hold_the_truth_as_often_as_they_say(case: str, level: float) -> None:
    # θ, ρ and f from the priors themselves; 600 ads of 100 queries, some hundred impressions each.
    outside, own = CASES[case]
    rng = np.random.default_rng(8)
    queries, ads = 100, 6
    theta, rho = rng.gamma(2.0, 0.5, (queries, ads)), rng.beta(3.0, 5.0, (queries, ads))
    f = np.ones(queries) if own is None else rng.gamma(own, 1 / own, queries)
    log = drawn_of_queries(theta / f[:, None], rho, WHERE, outside * WHEN, 20_000, rng)
    given: dict[str, Any] = {
        **PLAIN,
        "attractiveness_strength": 2.0,
        "satisfaction_strength": 8.0,
        "satisfaction_prior": 0.375,
        "query_strength": own,
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


def test_what_was_clicked_more_often_has_the_higher_lower_end_even_where_satisfaction_is_not_known() -> (
    None
):
    many = {
        "query": ["q"] * 2000,
        "ads": [["a"]] * 1000 + [["b"]] * 1000,
        "clicks": [[1]] * 900 + [[]] * 100 + [[1]] * 100 + [[]] * 900,
    }
    table = rc.LuceClick().fit(many).relevance()
    low = dict(zip(table["ad"].to_pylist(), table["relevance_low"].to_pylist(), strict=True))
    assert low["a"] > 2 * low["b"] > 0


def test_a_satisfaction_common_to_all_is_known_as_if_six_clicks_had_told_it_seen_or_not() -> None:
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
