"""Satisfaction in LuceClick: a distribution per pair, so that fatigue is not taken for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from reclick.data.batch import Float64
from reclick.engines import as_grouped
from reclick.models import LuceClick
from reclick.models.luce.e_step import EXPECTED, OBSERVED, clicks_by_pair
from reclick.models.luce.parameters import Hyperparameters
from reclick.models.luce.satisfaction import (
    MIN_INFORMATION,
    ZERO_VARIANCE,
    mean_satisfaction,
    satisfaction_centre,
    satisfaction_information,
    scale_odds,
)
from tests.support.enumeration import Session, as_table, random_sessions
from tests.support.luce_world import (
    GAMMA,
    OMEGA,
    PLAIN,
    draw_queries,
    objective_for,
    statistics_at,
)

# ---- the distribution


def test_the_mean_of_an_uncertain_satisfaction_is_that_of_its_normal_logit() -> None:
    rng = np.random.default_rng(1)
    for centre, variance in ((0.1, 0.05), (0.3, 0.2), (0.8, 0.1), (0.5, 0.4)):
        logit = np.log(centre / (1 - centre)) + np.sqrt(variance) * rng.normal(size=400_000)
        assert mean_satisfaction(np.array([centre]), np.array([variance]))[0] == pytest.approx(
            (1 / (1 + np.exp(-logit))).mean(), abs=0.004
        )


def test_a_mean_has_one_centre_whatever_the_variance() -> None:
    for variance in (ZERO_VARIANCE, 0.01, 0.5, 1 / MIN_INFORMATION):
        centre = np.linspace(0.001, 0.999, 200)
        means = mean_satisfaction(centre, np.full(200, variance))
        assert (np.diff(means) > 0).all()
        np.testing.assert_allclose(
            satisfaction_centre(means, np.full(200, variance)), centre, atol=1e-6
        )


def test_an_end_has_less_information_than_a_further_click_but_never_less_than_the_prior() -> None:
    ones = np.ones(1)
    assert satisfaction_information(
        0.4 * ones, 2 * ones, 3 * ones, 7 * ones[:, None], ones, 1.5 * ones, 0.5
    )[0] == pytest.approx(12 * 0.24 - 1.5)
    assert (
        satisfaction_information(
            0.01 * ones, 2 * ones, 3 * ones, 7 * ones[:, None], ones, 0.05 * ones, 1.05
        )[0]
        == 1.05
    )


# ---- the E-step


def test_an_uncertain_satisfaction_shifts_the_end_by_hand() -> None:
    made = objective_for(as_table([Session("q", ("a", "b"), (1,))] * 3), Hyperparameters())
    now = made.initial_parameters()._replace(
        rho=np.array([0.4, 0.4]), satisfaction_variance=np.array([0.5, 0.5])
    )
    found = statistics_at(made, now)
    ended = 0.4 + 0.6 / 2  # b is as attractive as the end
    r = 0.4 / ended
    assert found.log_likelihood == pytest.approx(
        3 * (np.log(1 / 3) + np.log(ended) + 0.25 * (r * (1 - r) - 0.4 * 0.6))
    )
    np.testing.assert_allclose(
        found.sums.satisfied[0], [3 * (r + 0.25 * r * (1 - r) * (1 - 2 * r)), 0]
    )
    np.testing.assert_allclose(found.sums.satisfied[1], [3 * r * (1 - r), 0])
    np.testing.assert_allclose(found.sums.outside[1][0, 1], 3 - found.sums.satisfied[0][0])


def test_a_click_on_the_last_ad_left_says_nothing_about_satisfaction() -> None:
    sessions = as_grouped(
        {"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1, 2], [2, 1], [2]]}
    )
    clicks, followed = clicks_by_pair(sessions)
    assert clicks.tolist() == [2, 3]
    assert followed.tolist() == [1, 2]
    made = objective_for(
        {"query": ["q", "q"], "ads": [["a"], ["a"]], "clicks": [[1], []]}, Hyperparameters()
    )
    found = statistics_at(made, made.initial_parameters())
    assert found.sums.satisfied[0][0] == found.sums.satisfied[1][0] == 0
    assert made.initial_parameters().satisfaction_variance[0] == ZERO_VARIANCE
    assert LuceClick(**{**PLAIN, "satisfaction_prior": 0.6}).fit(
        {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}
    ).rho_[0] == pytest.approx(0.6)


@pytest.mark.parametrize(
    "chosen",
    [
        Hyperparameters(),
        Hyperparameters(components=3, mixing_strength=3.0, query_strength=1.0),
        Hyperparameters(components=2, component_appeal_strength=2.0),
    ],
)
def test_the_statistics_are_the_slope_of_the_objective_in_every_parameter(
    chosen: Hyperparameters,
) -> None:
    made = objective_for(as_table(random_sessions(np.random.default_rng(3), 60)), chosen)
    rng, fresh = np.random.default_rng(4), made.initial_parameters()
    by_component = made.layout.has_component_satisfaction
    names = ["theta", "transition", "outside", "component_appeal"]
    names += ["satisfaction_odds"] if by_component else []
    weights = {
        name: getattr(fresh, name) * rng.gamma(9.0, 1 / 9, getattr(fresh, name).shape)
        for name in names
    }
    variance = rng.uniform(0.1, 1.5, len(fresh.rho))
    now = fresh._replace(
        **weights,
        rho=rng.uniform(0.2, 0.7, len(fresh.rho)),
        satisfaction_variance=np.where(
            fresh.satisfaction_variance > ZERO_VARIANCE, variance, ZERO_VARIANCE
        ),
    )
    sums = statistics_at(made, now).sums
    followed = np.outer(made.followed, np.arange(chosen.components) == 0)  # [pair, component]
    followed = sums.followed if by_component else followed
    satisfied = scale_odds(now.rho[:, None], now.satisfaction_odds)

    def slope(name: str, low: Float64, high: Float64) -> float:
        """Of the sums over sessions, from a lower to a higher value."""
        values = [statistics_at(made, now._replace(**{name: x})) for x in (low, high)]
        return (values[1].log_likelihood - values[0].log_likelihood) / 2e-4

    def log_slope(name: str, unit: Float64) -> float:
        value = getattr(now, name)
        return slope(name, value * np.exp(-unit), value * np.exp(unit))

    for i in range(0, len(now.theta), 3):
        unit = 1e-4 * (np.arange(len(now.theta)) == i)
        by_appeal = chosen.component_appeal_strength is not None
        observed = sums.appeal_observed[i].sum() if by_appeal else made.clicks[i]
        expected = observed - sums.expected[i].sum()
        assert log_slope("theta", unit) == pytest.approx(expected, abs=1e-5)
        logit = np.log(now.rho / (1 - now.rho))
        low, high = (1 / (1 + np.exp(-(logit + sign * unit))) for sign in (-1, 1))
        mean = followed[i] @ mean_satisfaction(satisfied[i], now.satisfaction_variance[i])
        assert slope("rho", low, high) == pytest.approx(sums.satisfied[0, i] - mean, abs=1e-5)
        information = followed[i] @ (satisfied[i] * (1 - satisfied[i]))
        low, high = now.satisfaction_variance - unit, now.satisfaction_variance + unit
        assert slope("satisfaction_variance", low, high) == pytest.approx(
            (sums.satisfied[1, i] - information) / 2, abs=1e-5
        )
    for t in range(chosen.components if by_component else 0):
        unit = 1e-4 * (np.arange(chosen.components) == t)
        odds = sums.satisfaction_odds[:, t]
        expected = odds[OBSERVED] - odds[EXPECTED]
        assert log_slope("satisfaction_odds", unit) == pytest.approx(expected, abs=1e-5)
    some = 1e-4 * (np.arange(len(now.outside)) == 1)  # the factor of every end after a click
    expected = (sums.outside[OBSERVED] - sums.outside[EXPECTED])[:, 1:].sum()
    assert log_slope("outside", some) == pytest.approx(expected, abs=1e-5)
    if chosen.mixing_strength is not None:
        unit = 1e-4 * (np.arange(chosen.components) == 0)
        expected = sums.component_sessions[:, 0].sum()
        assert log_slope("mixing", unit) == pytest.approx(expected, abs=1e-5)


# ---- estimates


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
    tired = (ended - of) / (1 - of)  # P(ends | not satisfied), without ρ
    nodes = (np.arange(1000) + 0.5) / 1000
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
def test_fatigue_and_satisfaction_are_separated_however_many_ads_there_are(omega: float) -> None:
    # With the best point value per ad, ρ was .03 too high here and P(stop by fatigue) .04 too low.
    rng, other = np.random.default_rng(3), ~np.eye(4, dtype=bool)
    theta, rho = rng.gamma(2.0, 0.5, (150, 6)), rng.beta(3.0, 5.0, (150, 6))
    log = draw_queries(theta, rho, GAMMA, omega * OMEGA, 30_000, rng)
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
def test_an_extrapolation_keeps_the_variance_below_that_of_the_prior(
    seed: int,
) -> None:
    # Otherwise every later step is taken twice: 207 to 243 iterations instead of 42 to 54.
    log = as_table(random_sessions(np.random.default_rng(seed), 80))
    model = LuceClick(**{**PLAIN, "satisfaction_strength": 30.0, "satisfaction_prior": 0.3}).fit(
        log
    )
    assert model._rho_information.min() >= 30 * 0.3 * 0.7 * (1 - 1e-9)
    assert model.iterations_ < 120


def test_an_ad_never_clicked_has_the_interval_of_one_never_shown() -> None:
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
