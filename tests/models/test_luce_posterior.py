"""The posteriors of LuceClick: information against curvature, and intervals that hold the truth."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import reclick as rc
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64
from reclick.engines import as_grouped
from reclick.fitting.beta import credible_interval
from reclick.fitting.posterior import _pairwise_weights, information_left, marginal_information
from reclick.models.luce.e_step import pair_information, score
from reclick.models.luce.fit import LuceState, TrainingData
from reclick.models.luce.parameters import N_CLASSES, Hyperparameters, LuceParameters
from tests.support.enumeration import Session, as_table, random_sessions
from tests.support.luce_world import (
    GAMMA,
    OMEGA,
    PLAIN,
    LuceProblem,
    coverage,
    draw_queries,
    luce_problem,
    true_values,
)

PRIOR = 0.7  # information of the priors on each log θ and on each log f


def hyperparameters(per_query: bool) -> Hyperparameters:
    return Hyperparameters(query_strength=2.0 if per_query else None, position_effect_strength=None)


def random_parameters(problem: LuceProblem, rho: float) -> LuceParameters:
    """Parameters drawn at random, except that all ρ are the same."""
    drawn = problem.draw_parameters(4)
    same = replace(drawn.satisfaction, mean=np.full(len(drawn.satisfaction.mean), rho))
    return replace(drawn, satisfaction=same)


def information(problem: LuceProblem, now: LuceParameters, per_query: bool) -> Float64:
    """The information of the sessions on each log θ [pair]."""
    (block,) = problem.data.blocks
    (outside, ads, _), layout = pair_information(now, block), problem.data.layout
    marginal = marginal_information(
        outside,
        ads,
        np.full(len(ads), PRIOR),
        layout.counts.pair_query,
        np.full(len(layout.query_class), PRIOR if per_query else np.inf),
    )
    return np.asarray(marginal - PRIOR)


def information_by_differences(
    problem: LuceProblem, now: LuceParameters, per_query: bool
) -> Float64:
    """The same by definition: the inverse of the negative second derivatives."""
    matrix = curvature(problem, now, per_query) + PRIOR * np.eye(size_of(problem, per_query))
    return np.asarray(1 / np.diag(np.linalg.inv(matrix))[: len(now.satisfaction.mean)] - PRIOR)


def size_of(problem: LuceProblem, per_query: bool) -> int:
    layout = problem.data.layout
    return len(layout.pair_class) + per_query * len(layout.query_class)


def curvature(
    problem: LuceProblem, now: LuceParameters, per_query: bool, *, with_priors: bool = False
) -> Float64:
    """The negative second derivatives of the log-likelihood in each log θ, and each log f."""
    (block,), layout = problem.data.blocks, problem.data.layout
    pairs, theta = len(layout.pair_class), now.appeal.level(0)
    size = size_of(problem, per_query)

    def log_likelihood(moved: Float64) -> float:
        own = theta * np.exp(moved[:pairs]), now.appeal.factors[pairs:]
        there = replace(now, appeal=now.appeal.with_factors(np.concatenate(own)))
        if per_query:
            f = now.query_outside
            own = f.level(0), f.level(1) * np.exp(moved[pairs:])
            there = replace(there, query_outside=f.with_factors(np.concatenate(own)))
        prior = there.log_prior() if with_priors else 0.0
        return float(score(there, block) @ block.sessions.weight) + prior

    step, unit, matrix = 1e-3, np.eye(size), np.empty((size, size))
    for i, j in product(range(size), repeat=2):
        corners = [
            a * b * log_likelihood(step * (a * unit[i] + b * unit[j]))
            for a in (1, -1)
            for b in (1, -1)
        ]
        matrix[i, j] = -sum(corners) / (4 * step * step)
    return matrix


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
    problem = luce_problem(log, hyperparameters(per_query))
    now = random_parameters(problem, rho=1e-12)  # without satisfaction every choice is observed
    exact = information_by_differences(problem, now, per_query)
    np.testing.assert_allclose(information(problem, now, per_query), exact, rtol=1e-4)


@pytest.mark.parametrize("per_query", [False, True])
def test_the_information_with_its_priors_is_the_curvature_of_the_objective(
    per_query: bool,
) -> None:
    rows = [Session("q1", ("a", "b"), clicks) for clicks in ((), (1,), (2,), (1, 2), (2, 1)) * 4]
    problem = luce_problem(as_table(rows), hyperparameters(per_query))
    now, layout = random_parameters(problem, rho=1e-12), problem.data.layout
    weighty = now.query_outside.factors * np.array([3.0] * N_CLASSES + [1.0] * per_query)
    now = replace(now, query_outside=now.query_outside.with_factors(weighty))
    state = LuceState(problem.hyper, layout, now, pair_information(now, problem.data.blocks[0]))
    matrix = curvature(problem, now, per_query, with_priors=True)
    exact = 1 / np.diag(np.linalg.inv(matrix))[: len(layout.pair_class)]
    np.testing.assert_allclose(state.attractiveness_information(), exact, rtol=1e-4)


@pytest.mark.parametrize("per_query", [False, True])
def test_the_information_on_more_ads_is_nearly_so_even_if_a_page_shows_one_twice(
    per_query: bool,
) -> None:
    log = as_table(random_sessions(np.random.default_rng(2), 60))
    problem = luce_problem(log, hyperparameters(per_query))
    now = random_parameters(problem, rho=1e-12)
    exact = information_by_differences(problem, now, per_query)
    found = information(problem, now, per_query)
    comparisons = pair_information(now, problem.data.blocks[0])
    alone = comparisons[0] + comparisons[1]  # as if all others were known
    np.testing.assert_allclose(found, exact, rtol=0.07)
    assert np.abs(found - exact).sum() < 0.15 * np.abs(alone - exact).sum()


@pytest.mark.parametrize("rho", [0.3, 0.7])
def test_an_end_without_known_cause_carries_less_information(rho: float) -> None:
    # All sessions that a page can have, weighted by probability: the sum is the expectation.
    rows = [Session("q", ("a", "b"), clicks) for clicks in ((), (1,), (2,), (1, 2), (2, 1))]
    problem = luce_problem(as_table(rows), hyperparameters(per_query=True))
    now = random_parameters(problem, rho)
    likely = np.exp(score(now, problem.data.blocks[0]))
    assert likely.sum() == pytest.approx(1)
    every, layout = as_grouped(as_table(rows)), problem.data.layout
    weighed = GroupedSessions(every.counts, replace(every.whole, weight=500 * likely))
    again = LuceProblem(weighed, TrainingData.of(weighed, layout), problem.hyper)
    exact = information_by_differences(again, now, per_query=True)
    np.testing.assert_allclose(information(again, now, True), exact, rtol=1e-4)


def test_pairwise_weights_add_up_to_the_comparisons_of_each_ad() -> None:
    rng = np.random.default_rng(3)
    for size in (2, 3, 8):
        between, c = np.triu(rng.gamma(1.0, size=(size, size)), 1), np.zeros(size)
        ads = (between + between.T).sum(axis=1)
        _pairwise_weights(ads, c)
        np.testing.assert_allclose(c * (c.sum() - c), ads, rtol=0.02)
    nothing = np.zeros(3)
    _pairwise_weights(np.zeros(3), nothing)
    assert nothing.tolist() == [0, 0, 0]


def test_the_share_of_information_on_attractiveness_by_hand() -> None:
    # Two cells of pair 0 with information 3 and 1, and an effect with variance 1/2 each: what is
    # left is 3·2/5 and 1·2/3.
    total = np.array([4.0, 0.0])
    left = information_left(total, np.array([6.0, 2.0, 5.0]), np.array([0, 0, 1]), 4.0)
    np.testing.assert_allclose(left, [(3 * 2 / 5 + 1 * 2 / 3) / 4, 1.0])


# ---- intervals


@pytest.mark.parametrize("strength", [0.0, 0.01])
def test_the_interval_is_wide_where_there_is_hardly_any_information(strength: float) -> None:
    log = {"query": ["q", "q"], "ads": [["a"], ["b"]], "clicks": [[1], []]}
    given = {**PLAIN, "attractiveness_strength": strength, "satisfaction_strength": strength}
    for row in rc.LuceClick(**given).fit(log).relevance().to_pylist():
        for name in ("attractiveness", "satisfaction"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
            assert row[f"{name}_high"] - row[f"{name}_low"] > 0.5


def simulate_coverage(
    level: float,
    *,
    ads: int = 6,
    queries: int = 100,
    outside: float = 1.0,
    query_strength: float | None = None,
    alike: float | None = None,
    rho_mean: float = 0.375,
    sessions: int = 20_000,
    **settings: Any,
) -> dict[str, float]:
    """How many intervals hold the truth; θ, ρ and f are drawn from their priors.

    `alike` is how strongly the pairs of an ad resemble each other.
    """
    rng = np.random.default_rng(8)
    base = np.ones(ads) if alike is None else rng.gamma(alike, 1 / alike, ads)
    theta = base * rng.gamma(2.0, 0.5, (queries, ads))
    rho = rng.beta(8 * rho_mean, 8 * (1 - rho_mean), (queries, ads))
    f = np.ones(queries)
    if query_strength is not None:
        f = rng.gamma(query_strength, 1 / query_strength, queries)
    log = draw_queries(theta / f[:, None], rho, GAMMA, outside * OMEGA, sessions, rng)
    table = rc.LuceClick(query_strength=query_strength, **settings).fit(log).relevance(level=level)
    odds, satisfied = true_values(table, theta) / outside, true_values(table, rho)
    truths = {"attractiveness": odds / (1 + odds), "satisfaction": satisfied}
    truths["relevance"] = truths["attractiveness"] * satisfied
    return {name: coverage(table, name, truth) for name, truth in truths.items()}


KNOWN: dict[str, Any] = {
    **{name: value for name, value in PLAIN.items() if name != "query_strength"},
    "attractiveness_strength": 2.0,
    "attractiveness_prior": "overall",
    "satisfaction_strength": 8.0,
    "satisfaction_prior": 0.375,
}
HIERARCHY: dict[str, Any] = {
    **KNOWN,
    "attractiveness_strength": "auto",
    "attractiveness_prior": "auto",
}
CASES: dict[str, dict[str, Any]] = {
    "many leave at once": KNOWN,
    "hardly any leave": {**KNOWN, "outside": 0.1},
    "each query its own": {**KNOWN, "query_strength": 3.0},
    "ads recur": {**HIERARCHY, "ads": 20, "alike": 2.0},
    "ads recur, few sessions": {**HIERARCHY, "ads": 20, "alike": 2.0, "sessions": 5_000},
    "ads recur, each query its own": {
        **HIERARCHY,
        "ads": 20,
        "alike": 2.0,
        "query_strength": 4.0,
        "sessions": 40_000,
    },
}


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("case", CASES)
def test_intervals_hold_the_truth_as_often_as_their_level(case: str, level: float) -> None:
    for name, held in simulate_coverage(level, **CASES[case]).items():
        tolerance = 0.05 if name == "attractiveness" else 0.09
        assert held == pytest.approx(level, abs=tolerance), name


def test_held_out_sessions_correct_the_prior_mean_of_satisfaction() -> None:
    # The true mean is .15. The level of satisfaction is hard to tell from ends without it, so a
    # wrong prior mean leaves most intervals wrong.
    world = {**HIERARCHY, "ads": 20, "alike": 2.0, "rho_mean": 0.15, "sessions": 30_000}
    right, chosen, wrong = (
        simulate_coverage(0.9, **{**world, "satisfaction_prior": mean})["satisfaction"]
        for mean in (0.15, "auto", 0.4)
    )
    assert right > 0.82
    assert chosen > 0.75
    assert wrong < 0.6


@pytest.mark.parametrize("impressions", [20, 200])
def test_intervals_of_attractiveness_hold_the_truth_with_position_effects(
    impressions: int,
) -> None:
    held, queries, ads = [], 40, 6
    for seed in range(3):
        rng = np.random.default_rng([impressions, seed])
        effect = rng.gamma(10.0, 0.1, (queries, 1, 4)) * rng.gamma(10.0, 0.1, (queries, ads, 4))
        theta, rho = rng.gamma(3.0, 0.3, (queries, ads)), np.full((queries, ads), 0.3)
        count = queries * ads * impressions // 4
        log = draw_queries(theta, rho, GAMMA, OMEGA, count, rng, effect=effect)
        given = {
            **KNOWN,
            "query_strength": None,
            "attractiveness_strength": 3.0,
            "position_effect_strength": 10.0,
            "satisfaction_prior": 0.3,
            "satisfaction_strength": 50.0,
        }
        table = rc.LuceClick(**given).fit(log).relevance(level=0.9)
        odds = true_values(table, theta)
        held.append(coverage(table, "attractiveness", odds / (1 + odds)))
    assert 0.84 < np.mean(held) < 0.96


def test_an_ad_never_shown_is_less_certain_than_one_shown() -> None:
    rng = np.random.default_rng(3)
    theta, rho = rng.gamma(2.0, 0.5, (20, 10)), rng.beta(3.0, 5.0, (20, 10))
    log = draw_queries(theta, rho, GAMMA, OMEGA, 3_000, rng)
    model = rc.LuceClick(tune="off").fit(log)
    asked = {"query": ["q0", "never", "q0"], "ad": ["ad0", "ad0", "never"]}
    table = model.relevance(asked)
    for name in ("attractiveness", "satisfaction"):
        width = table[f"{name}_high"].to_numpy() - table[f"{name}_low"].to_numpy()
        assert width[0] < width[1] <= width[2] + 1e-12
    strong = rc.LuceClick(tune="off", attractiveness_strength=50.0).fit(log).relevance(asked)
    width = strong["attractiveness_high"].to_numpy() - strong["attractiveness_low"].to_numpy()
    assert width[0] < width[2] < 0.3  # the strength that was set is that of unseen pairs too


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
    model = rc.LuceClick(**{**PLAIN, "satisfaction_strength": None}).fit(log)
    low, high = credible_interval(model.satisfaction_, 6.0)
    for row in model.relevance({"query": ["q", "q"], "ad": ["a", "never"]}).to_pylist():
        ends = row["satisfaction_low"], row["satisfaction_high"]
        assert ends == pytest.approx((float(low), float(high)), rel=1e-6)
