"""Satisfaction in LuceClick: a distribution of each ad's, fitted so that fatigue is not taken for satisfaction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.data.batch import Float64
from reclick.engines import as_grouped
from reclick.models import LuceClick
from reclick.models.luce.objective import Objective
from reclick.models.luce.parameters import ExpectedStatistics, Hyperparameters, LuceParameters
from reclick.models.luce.passes import clicks_by_pair
from reclick.models.luce.satisfaction import (
    ZERO_VARIANCE,
    LEAST,
    satisfaction_centre,
    satisfaction_information,
    mean_satisfaction,
    scale_odds,
)
from tests.support.enumeration import Session, as_table, random_sessions
from tests.support.luce_world import PLAIN, OMEGA, GAMMA, draw_queries


def problem(log: Any, options: Hyperparameters, satisfied: float = 0.3) -> Objective:
    sessions = as_grouped(log)
    return Objective(
        sessions,
        options,
        np.ones(len(sessions.counts.impressions)),
        satisfied,
        np.full(options.components, 1 / options.components),
    )


def found_at(made: Objective, now: LuceParameters) -> ExpectedStatistics:
    with ThreadPoolExecutor(1) as pool:
        return made.passes.expect(now, pool)


# ---- the distribution


def test_the_mean_of_a_loose_satisfaction_is_that_of_its_normal_logit() -> None:
    rng = np.random.default_rng(1)
    for centre, variance in ((0.1, 0.05), (0.3, 0.2), (0.8, 0.1), (0.5, 0.4)):
        logit = np.log(centre / (1 - centre)) + np.sqrt(variance) * rng.normal(size=400_000)
        assert mean_satisfaction(np.array([centre]), np.array([variance]))[0] == pytest.approx(
            (1 / (1 + np.exp(-logit))).mean(), abs=0.004
        )


def test_a_mean_has_one_centre_however_loose() -> None:
    for variance in (ZERO_VARIANCE, 0.01, 0.5, 1 / LEAST):
        centre = np.linspace(0.001, 0.999, 200)
        means = mean_satisfaction(centre, np.full(200, variance))
        assert (np.diff(means) > 0).all()
        np.testing.assert_allclose(satisfaction_centre(means, np.full(200, variance)), centre, atol=1e-6)


def test_an_end_tells_less_than_going_on_and_never_less_than_the_prior_is_known() -> None:
    ones = np.ones(1)
    assert satisfaction_information(0.4 * ones, 2 * ones, 3 * ones, 7 * ones[:, None], ones, 1.5 * ones, 0.5)[
        0
    ] == pytest.approx(12 * 0.24 - 1.5)
    assert (
        satisfaction_information(0.01 * ones, 2 * ones, 3 * ones, 7 * ones[:, None], ones, 0.05 * ones, 1.05)[0]
        == 1.05
    )


# ---- a pass


def test_a_loose_satisfaction_tilts_the_end_by_hand() -> None:
    made = problem(as_table([Session("q", ("a", "b"), (1,))] * 3), Hyperparameters())
    now = made.initial_parameters()._replace(rho=np.array([0.4, 0.4]), satisfaction_variance=np.array([0.5, 0.5]))
    found = found_at(made, now)
    ended = 0.4 + 0.6 / 2  # b is as attractive as the end
    r = 0.4 / ended
    assert found.log_likelihood == pytest.approx(
        3 * (np.log(1 / 3) + np.log(ended) + 0.25 * (r * (1 - r) - 0.4 * 0.6))
    )
    np.testing.assert_allclose(found.sums.satisfied[0], [3 * (r + 0.25 * r * (1 - r) * (1 - 2 * r)), 0])
    np.testing.assert_allclose(found.sums.satisfied[1], [3 * r * (1 - r), 0])
    np.testing.assert_allclose(found.sums.outside[1][0, 1], 3 - found.sums.satisfied[0][0])


def test_a_click_that_leaves_nothing_to_choose_tells_nothing_of_satisfaction() -> None:
    sessions = as_grouped(
        {"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1, 2], [2, 1], [2]]}
    )
    clicks, followed = clicks_by_pair(sessions)
    assert clicks.tolist() == [2, 3]
    assert followed.tolist() == [1, 2]
    made = problem({"query": ["q", "q"], "ads": [["a"], ["a"]], "clicks": [[1], []]}, Hyperparameters())
    found = found_at(made, made.initial_parameters())
    assert found.sums.satisfied[0][0] == found.sums.satisfied[1][0] == 0
    assert made.initial_parameters().loose[0] == ZERO_VARIANCE
    assert LuceClick(**PLAIN, satisfaction_prior=0.6).fit(
        {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}
    ).rho_[0] == pytest.approx(0.6)


@pytest.mark.parametrize(
    "options", [Hyperparameters(), Hyperparameters(components=3, mixing_strength=3.0, query_strength=1.0), Hyperparameters(components=2, component_appeal_strength=2.0)]
)
def test_what_a_pass_finds_is_the_slope_of_the_objective_in_every_parameter(
    options: Hyperparameters,
) -> None:
    made = problem(as_table(random_sessions(np.random.default_rng(3), 60)), options)
    rng, fresh = np.random.default_rng(4), made.initial_parameters()
    weights = {
        name: getattr(fresh, name) * rng.gamma(9.0, 1 / 9, getattr(fresh, name).shape)
        for name in ("theta", "eye", "out", "taste", "ease")
    }
    loose = np.where(fresh.satisfaction_variance > ZERO_VARIANCE, rng.uniform(0.1, 1.5, len(fresh.rho)), ZERO_VARIANCE)
    weights["ease"] = weights["ease"] if made.layout.has_component_satisfaction else fresh.satisfaction_odds
    now = fresh._replace(**weights, rho=rng.uniform(0.2, 0.7, len(fresh.rho)), satisfaction_variance=loose)
    found = found_at(made, now)
    asked = (
        found.sums.followed if made.layout.has_component_satisfaction else np.outer(made.followed, np.arange(options.components) == 0)
    )  # [pair, kind]
    satisfied = scale_odds(now.rho[:, None], now.satisfaction_odds)

    def slope(**moved: tuple[Float64, Float64]) -> float:
        """Of the sums over sessions, from values a little lower to values a little higher."""
        low, high = (
            found_at(
                made, now._replace(**{name: pair[i] for name, pair in moved.items()})
            ).log_likelihood
            for i in (0, 1)
        )
        return (high - low) / 2e-4

    for i in range(0, len(now.theta), 3):
        unit = 1e-4 * (np.arange(len(now.theta)) == i)
        chosen = found.sums.appeal_observed[i].sum() if options.component_appeal_strength else made.clicks[i]
        assert slope(theta=(now.theta * np.exp(-unit), now.theta * np.exp(unit))) == pytest.approx(
            chosen - found.sums.expected[i].sum(), abs=1e-5
        )
        moved = [
            1 / (1 + np.exp(-(np.log(now.rho / (1 - now.rho)) + sign * unit))) for sign in (-1, 1)
        ]
        assert slope(rho=(moved[0], moved[1])) == pytest.approx(
            found.sums.satisfied[0][i] - asked[i] @ mean_satisfaction(satisfied[i], now.satisfaction_variance[i]), abs=1e-5
        )
        told = found.sums.satisfied[1][i] - asked[i] @ (satisfied[i] * (1 - satisfied[i]))
        assert slope(satisfaction_variance=(now.satisfaction_variance - unit, now.satisfaction_variance + unit)) == pytest.approx(
            told / 2, abs=1e-5
        )
    for t in range(options.components if made.layout.has_component_satisfaction else 0):
        unit = 1e-4 * (np.arange(options.components) == t)
        moved = [now.satisfaction_odds * np.exp(sign * unit) for sign in (-1, 1)]
        assert slope(satisfaction_odds=(moved[0], moved[1])) == pytest.approx(
            found.sums.satisfaction_odds[1][t] - found.sums.satisfaction_odds[0][t], abs=1e-5
        )
    some = 1e-4 * (np.arange(len(now.outside)) == 1)  # the factor of every end after a click
    chosen = found.sums.outside[1][:, 1:].sum() - found.sums.outside[0][:, 1:].sum()
    assert slope(outside=(now.outside * np.exp(-some), now.outside * np.exp(some))) == pytest.approx(
        chosen, abs=1e-5
    )
    if options.mixing_strength is not None:
        shares = [
            now.mixing * np.exp(sign * 1e-4 * (np.arange(options.components) == 0)) for sign in (-1, 1)
        ]
        assert slope(mixing=(shares[0], shares[1])) == pytest.approx(
            found.sums.component_sessions[:, 0].sum(), abs=1e-5
        )


# ---- what comes out


def test_the_mean_of_each_satisfaction_is_what_integrating_over_it_gives() -> None:
    rng = np.random.default_rng(2)
    theta, rho = rng.gamma(2.0, 0.5, (40, 6)), rng.beta(3.0, 5.0, (40, 6))
    log = draw_queries(theta, rho, GAMMA, OMEGA, 4_000, rng)
    model = LuceClick(
        **{**PLAIN, "satisfaction_strength": 8.0, "satisfaction_prior": 0.375},
        tolerance=1e-8,
        max_iterations=2000,
    ).fit(log)
    last = [
        (query, ads[clicks[-1] - 1])
        for query, ads, clicks in zip(*log.to_pydict().values(), strict=True)
        if clicks
    ]
    seen = log.filter(pa.array([len(clicks) > 0 for clicks in log["clicks"].to_pylist()]))
    of = model.relevance({"query": [query for query, _ in last], "ad": [ad for _, ad in last]})[
        "satisfaction"
    ].to_numpy()
    ended = 1 - np.nansum(model.next_click_prob(seen), axis=1)
    tired = (ended - of) / (1 - of)  # P(ends | not satisfied), by everything but ρ
    nodes = (np.arange(4000) + 0.5) / 4000
    exact: dict[tuple[str, str], Float64] = {}
    for query, ads, clicks in zip(*log.to_pydict().values(), strict=True):
        for place in clicks[:-1]:
            exact[query, ads[place - 1]] = exact.get((query, ads[place - 1]), 0.0) + np.log(
                1 - nodes
            )
    for pair, end in zip(last, tired, strict=True):
        exact[pair] = exact.get(pair, 0.0) + np.log(nodes + (1 - nodes) * end)
    means = []
    for value in exact.values():
        weight = value + 2.0 * np.log(nodes) + 4.0 * np.log(1 - nodes)  # Beta(3, 5)
        weight = np.exp(weight - weight.max())
        means.append(weight @ nodes / weight.sum())
    told = model.relevance({"query": [query for query, _ in exact], "ad": [ad for _, ad in exact]})[
        "satisfaction"
    ].to_numpy()
    np.testing.assert_allclose(told, means, atol=0.02)
    assert np.mean(told - means) == pytest.approx(0, abs=0.003)


@pytest.mark.parametrize("omega", [1.0, 0.3])
def test_fatigue_is_told_from_satisfaction_however_many_ads_there_are(omega: float) -> None:
    # With the best value of each ad's satisfaction it was .03 too high here, and the chance to stop from fatigue .04 too low.
    rng, other = np.random.default_rng(3), ~np.eye(4, dtype=bool)
    theta, rho = rng.gamma(2.0, 0.5, (150, 6)), rng.beta(3.0, 5.0, (150, 6))
    log = draw_queries(theta, rho, GAMMA, omega * OMEGA, 45_000, rng)
    given = {
        **PLAIN,
        "attractiveness_strength": 2.0,
        "satisfaction_strength": 8.0,
        "satisfaction_prior": 0.375,
    }
    model = LuceClick(**given, tolerance=1e-7, max_iterations=2000).fit(log)
    assert model.rho_.mean() == pytest.approx(rho.mean(), abs=0.015)
    tired = [
        (
            stop / (stop + (where * other).sum(axis=1) * average)
        ).mean()  # among the other three on a page of average ads
        for stop, where, average in (
            (model.omega_[0, 1], model.gamma_[0, 1:], model.theta_.mean()),
            (omega * OMEGA[0, 1], GAMMA[0, 1:], theta.mean()),
        )
    ]
    assert tired[0] == pytest.approx(tired[1], abs=0.025)


@pytest.mark.parametrize("seed", [5, 7, 10])
def test_a_leap_does_not_make_a_satisfaction_less_known_than_it_was_before_any_click(
    seed: int,
) -> None:
    # It did, and every later step was then taken twice: 207 to 243 iterations in place of 42 to 54.
    log = as_table(random_sessions(np.random.default_rng(seed), 80))
    model = LuceClick(**{**PLAIN, "satisfaction_strength": 30.0, "satisfaction_prior": 0.3}).fit(
        log
    )
    assert model._rho_information.min() >= 30 * 0.3 * 0.7 * (1 - 1e-9)
    assert model.iterations_ < 120


def test_as_much_is_known_of_an_ad_never_clicked_as_of_one_never_shown() -> None:
    log = {
        "query": ["q"] * 40,
        "ads": [["a", "b", "c"]] * 40,
        "clicks": [[1], [2, 1], [], [2]] * 10,
    }
    model = LuceClick(**{**PLAIN, "satisfaction_strength": 2.0, "satisfaction_prior": 0.1}).fit(log)
    told = model.relevance({"query": ["q", "q"], "ad": ["c", "never"]})
    for end in ("low", "high"):
        unclicked, never = told[f"satisfaction_{end}"].to_numpy()
        assert unclicked == pytest.approx(never, rel=1e-6)
