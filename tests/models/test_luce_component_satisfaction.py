"""Components that a click satisfies more easily than others: estimation, posterior and updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.models import LuceClick
from reclick.models.luce.satisfaction import (
    equivalent_clicks,
    fit_satisfaction_centres,
    fit_satisfaction_odds,
    mean_satisfaction,
    scale_odds,
)
from tests.support.luce_world import GAMMA, OMEGA, PLAIN, RHO, THETA, draw, draw_queries

TWO: dict[str, Any] = {
    **PLAIN,
    "components": 2,
    "component_strength": 4.0,
    "mixing_strength": None,
    "component_appeal_strength": None,
}
HALVES = np.array([0.5, 0.5])
ODDS = np.array([4.0, 0.05])  # the second component hardly ever stops satisfied


def sessions(count: int, seed: int, odds: Any = ODDS) -> pa.Table:
    return draw(
        THETA,
        RHO,
        np.concatenate([GAMMA, GAMMA]),
        np.concatenate([OMEGA, OMEGA]),
        count,
        seed,
        HALVES,
        odds=odds,
    )


def lengths(log: pa.Table) -> Any:
    """The share of sessions by number of clicks."""
    return np.bincount([len(clicks) for clicks in log["clicks"].to_pylist()], minlength=5) / len(
        log
    )


@pytest.fixture(scope="module")
def fitted() -> tuple[pa.Table, LuceClick]:
    """A log of two components, and a model fitted to it."""
    log = sessions(40_000, seed=1)
    return log, LuceClick(**TWO, tolerance=1e-7, max_iterations=3000).fit(log)


def test_a_component_that_hardly_anything_satisfies_is_recovered(
    fitted: tuple[pa.Table, LuceClick],
) -> None:
    model = fitted[1]
    assert model.converged_
    assert model._satisfaction_odds.max() / model._satisfaction_odds.min() > 5
    satisfied = scale_odds(
        model.rho_[:, None], np.sort(model._satisfaction_odds)
    )  # [pair, component]
    order = np.argsort(
        [
            int(ad.removeprefix("ad"))
            for ad in model._pairs.counts.ads.take(
                pa.array(model._pairs.counts.pair_ad)
            ).to_pylist()
        ]
    )
    np.testing.assert_allclose(satisfied[order], scale_odds(RHO[:, None], np.sort(ODDS)), atol=0.2)


def test_long_sessions_come_as_often_as_they_did(fitted: tuple[pa.Table, LuceClick]) -> None:
    log, model = fitted
    drawn_again = model.sample(log, rng=3).to_pylist()
    again = np.bincount([len(clicks) for clicks in drawn_again], minlength=5) / len(log)
    np.testing.assert_allclose(again, lengths(log), atol=0.006)
    assert model.click_prob(log).sum() == pytest.approx(
        sum(map(len, log["clicks"].to_pylist())), rel=0.01
    )


@pytest.mark.parametrize("odds", [np.ones(2), ODDS])
def test_the_level_of_satisfaction_is_held_by_its_prior_however_many_ads_there_are(
    odds: Any,
) -> None:
    # With a prior at ς = 1 the level of all ς moved: ρ was .13 too low, and 73 % of the intervals
    # held the truth.
    rng = np.random.default_rng(3)
    theta, rho = rng.gamma(2.0, 0.5, (150, 6)), rng.beta(3.0, 5.0, (150, 6))
    log, click_mixing = draw_by_component(theta, rho, odds, 9_000, rng)
    truth = scale_odds(rho[:, :, None], odds) @ click_mixing
    mean = float(truth.mean())
    given = {
        **TWO,
        "attractiveness_strength": 2.0,
        "satisfaction_strength": 8.0,
        "satisfaction_prior": mean,
    }
    told = LuceClick(**given, max_iterations=1500).fit(log).relevance()
    of = [
        (int(query.removeprefix("q")), int(ad.removeprefix("ad")))
        for query, ad in zip(told["query"].to_pylist(), told["ad"].to_pylist(), strict=True)
    ]
    followed = np.array([truth[pair] for pair in of])
    low, value, high = (told[f"satisfaction{end}"].to_numpy() for end in ("_low", "", "_high"))
    assert value.mean() == pytest.approx(mean, abs=0.03)
    assert np.mean((low <= followed) & (followed <= high)) > 0.8


def draw_by_component(
    theta: Any, rho: Any, odds: Any, count: int, rng: np.random.Generator
) -> tuple[pa.Table, Any]:
    """Sessions of many queries, half of each component, and whose clicks they are."""
    each = [
        draw_queries(
            theta, scale_odds(rho, np.full(rho.shape, ratio)), GAMMA, OMEGA, count // 2, rng
        )
        for ratio in odds
    ]
    clicks = np.array([sum(map(len, log["clicks"].to_pylist())) for log in each])
    return pa.concat_tables(each), clicks / clicks.sum()


def test_satisfaction_is_that_of_an_average_click_with_the_interval_of_the_mean() -> None:
    model = LuceClick(**TWO).fit(sessions(4_000, seed=5))
    model._rho_information, model._satisfaction_variance = (
        np.full(6, 1e6),
        np.full(6, 1e-6),
    )  # next to certain: the interval is as wide as its slope says
    table = model.relevance(level=0.9)
    told, low, high = (table[f"satisfaction{end}"].to_numpy() for end in ("", "_low", "_high"))

    def average(rho: Any) -> Any:
        return scale_odds(rho[:, None], model._satisfaction_odds) @ model._click_mixing

    assert model._click_mixing.sum() == pytest.approx(1)
    np.testing.assert_allclose(told, average(model.rho_), rtol=1e-5)
    logit = np.log(model.rho_ / (1 - model.rho_))
    ends = [average(1 / (1 + np.exp(-logit - sign * 1.6449e-3))) for sign in (-1, 1)]
    np.testing.assert_allclose(high - low, ends[1] - ends[0], rtol=2e-3)


def test_equal_components_stay_equal_and_the_mean_over_the_clicks_is_1() -> None:
    rng = np.random.default_rng(4)
    theta, rho = rng.gamma(2.0, 0.5, (150, 6)), rng.beta(3.0, 5.0, (150, 6))
    log = draw_queries(theta, rho, GAMMA, OMEGA, 9_000, rng)
    model = LuceClick(**{**TWO, "satisfaction_strength": 8.0, "satisfaction_prior": 0.375}).fit(log)
    assert model._click_mixing @ np.log(model._satisfaction_odds) == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(model._satisfaction_odds, 1, atol=0.4)


def test_the_best_odds_have_a_mean_logarithm_of_0_over_the_clicks() -> None:
    rng = np.random.default_rng(9)
    for _ in range(20):
        observed, exposure, click_mixing = (
            rng.gamma(2.0, 20.0, 3),
            rng.gamma(2.0, 20.0, 3),
            rng.dirichlet([2.0, 2.0, 2.0]),
        )
        ratio = fit_satisfaction_odds(observed, exposure, click_mixing, np.ones(3))
        assert click_mixing @ np.log(ratio) == pytest.approx(0, abs=1e-9)
        for _ in range(20):
            move = rng.normal(size=3)
            other = ratio * np.exp(0.05 * (move - click_mixing @ move))
            assert (
                observed @ np.log(other) - exposure @ other
                <= observed @ np.log(ratio) - exposure @ ratio
            )


@pytest.mark.parametrize("clicks", [[[]] * 5, [[1]] * 5])
def test_without_evidence_the_odds_of_a_component_stay(clicks: list[list[int]]) -> None:
    nothing = {
        "query": ["q"] * 5,
        "ads": [["a"]] * 5,
        "clicks": clicks,
    }  # a click leaves nothing to choose
    model = LuceClick(**{**TWO, "component_strength": 0.0, "satisfaction_prior": 0.3}).fit(nothing)
    assert model._satisfaction_odds.tolist() == [1, 1]
    assert model.relevance()["satisfaction"][0].as_py() == pytest.approx(0.3)


def test_a_centre_is_where_as_many_clicks_satisfy_as_did_whatever_the_start() -> None:
    rng = np.random.default_rng(6)
    truth, variance, followed = (
        rng.uniform(0.02, 0.98, 200),
        rng.uniform(0.01, 2.0, 200),
        rng.gamma(0.5, 10.0, (200, 3)),
    )
    ratio, none = np.array([0.02, 1.0, 6.0]), np.zeros(200)
    before = rng.gamma(1.0, 2.0, 200)
    each = mean_satisfaction(
        scale_odds(truth[:, None], ratio), variance[:, None]
    )  # [pair, component]
    satisfied = (followed * each).sum(axis=1) + before * mean_satisfaction(truth, variance)
    near = 1 / (1 + np.exp(-np.log(truth / (1 - truth)) - rng.uniform(-3.5, 3.5, 200)))
    found = fit_satisfaction_centres(near, variance, none, before, followed, ratio, satisfied)
    np.testing.assert_allclose(found, truth, atol=1e-6)
    assert (
        fit_satisfaction_centres(near, variance, none, none, 0 * followed, ratio, none).tolist()
        == near.tolist()
    )  # no evidence


def test_past_clicks_are_kept_as_equivalent_clicks_with_odds_ratio_1() -> None:
    centre, variance, followed, ratio = (
        np.array([0.3]),
        np.array([0.2]),
        np.array([[7.0, 5.0]]),
        np.array([3.0, 0.5]),
    )
    each = [0.3 * s / (0.7 + 0.3 * s) for s in ratio]
    expected = sum(
        n * (c + 0.1 * c * (1 - c) * (1 - 2 * c)) for n, c in zip(followed[0], each, strict=True)
    )
    clicks, more = equivalent_clicks(centre, variance, followed, ratio)
    assert clicks[0] * (0.3 + 0.1 * 0.21 * 0.4) == pytest.approx(expected)
    assert clicks[0] * 0.21 - more[0] == pytest.approx(
        sum(n * c * (1 - c) for n, c in zip(followed[0], each, strict=True))
    )
    np.testing.assert_allclose(
        equivalent_clicks(centre, variance, followed, np.ones(2)), [[12.0], [0.0]], atol=1e-12
    )


def test_an_update_with_hardly_any_sessions_leaves_satisfaction_as_it_is() -> None:
    model = LuceClick(**TWO, tolerance=1e-8, max_iterations=3000).fit(sessions(3_000, seed=7))
    before = model._satisfaction_odds.copy(), model.rho_.copy(), model._rho_information.copy()
    model.update({"query": ["q"], "ads": [["ad0", "ad1"]], "clicks": [[]]})
    for old, new in zip(
        before, (model._satisfaction_odds, model.rho_, model._rho_information), strict=True
    ):
        np.testing.assert_allclose(new, old, rtol=2e-3)
