"""DBN: one step of EM by hand and against brute force, cross-validation, and recovery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reclick.engines import as_grouped
from reclick.errors import SettingError
from reclick.fitting.folds import folds_of_click_sets
from reclick.models import DBN
from reclick.models.dbn import CONTINUATIONS, DBNParameters, e_step
from reclick.models.kernels.cascade import as_cascade_block
from tests.models.test_noise import make_world
from tests.support.cascades import (
    assert_keeps_its_promises,
    assert_never_falls,
    drawn,
    random_pages,
    small_log,
    spread,
    with_values,
)
from tests.support.enumeration import Clicks
from tests.support.generative import Bits, enumerated, satisfied_or_tired, scanned

LOG = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[1], [1, 2], [3, 1], []]}


def clicks_of(world: Bits) -> Clicks:
    return scanned(world, satisfied_or_tired)


def test_expected_looks_and_satisfied_clicks_are_worked_out_by_hand() -> None:
    # two ads, θ = (.5, .4), ρ = (.2, .3), λ = .9. Clicked 1: S = .2 + .8 (.1 + .9 · .6) = .712, a
    # look at 2 with .8 · .9 · .6 / S = .432 / .712. No click: B_2 = .6, B_1 = .5 (.1 + .54) = .32,
    # a look at 2 with .54 / .64.
    sessions = as_grouped(
        {"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}
    )
    parameters = DBNParameters(np.array([0.5, 0.4]), np.array([0.2, 0.3]), 0.9)
    found = e_step(parameters, as_cascade_block(sessions.whole))
    np.testing.assert_allclose(found.pairs["examinations"], [3, 0.432 / 0.712 + 0.54 / 0.64 + 1])
    np.testing.assert_allclose(found.pairs["satisfied"], [0.2 / 0.712, 0.3])
    np.testing.assert_allclose(
        found.log_likelihood, np.log(0.5 * 0.712) + np.log(0.32) + np.log(0.5 * 0.8 * 0.9 * 0.4)
    )


def test_the_expectations_are_those_of_brute_force() -> None:
    theta, rho, on, weight = (
        (0.5, 0.3, 0.6),
        (0.4, 0.7, 0.2),
        0.8,
        {(): 3.0, (1,): 2.0, (2,): 1.0, (1, 3): 2.0},
    )
    log = {
        "query": ["q"] * 4,
        "ads": [["a", "b", "c"]] * 4,
        "clicks": [list(c) for c in weight],
        "weight": list(weight.values()),
    }
    chances = [(t, r, on) for t, r in zip(theta, rho, strict=True)]

    def looks(world: Bits) -> Clicks:
        seen: list[int] = []

        def look(position: int, clicked: bool, at: tuple[int, ...]) -> bool:
            seen.append(position)
            return satisfied_or_tired(position, clicked, at)

        scanned(world, look)
        return tuple(seen)

    total = enumerated(chances, clicks_of)
    joint = enumerated(chances, lambda world: (clicks_of(world), looks(world)))
    expected = [
        sum(weight[c] * p / total[c] for (c, seen), p in joint.items() if c in weight and i in seen)
        for i in (1, 2, 3)
    ]
    satisfied = enumerated(chances, lambda world: (clicks_of(world), tuple(at[1] for at in world)))
    pleased = [
        sum(
            weight[c] * p / total[c]
            for (c, is_), p in satisfied.items()
            if c in weight and i in c and is_[i - 1]
        )
        for i in (1, 2, 3)
    ]

    parameters = DBNParameters(np.array(theta), np.array(rho), on)
    found = e_step(parameters, as_cascade_block(as_grouped(log).whole))
    np.testing.assert_allclose(found.pairs["examinations"], expected)
    np.testing.assert_allclose(found.pairs["satisfied"], pleased)
    np.testing.assert_allclose(
        found.log_likelihood, sum(many * np.log(total[c]) for c, many in weight.items())
    )


def test_the_log_likelihood_of_the_fit_is_that_of_the_answers() -> None:
    log = small_log(2)
    model = DBN(continuation=0.8).fit(log)
    parameters = DBNParameters(model.theta_, model.rho_, 0.8)
    found = e_step(parameters, as_cascade_block(as_grouped(log).whole))
    np.testing.assert_allclose(
        found.log_likelihood, model.log_set_prob(log) @ np.array(log["weight"]), rtol=1e-6
    )


@pytest.mark.parametrize("strength", [0, 0.1, 3])
def test_the_objective_never_falls_and_convergence_is_told_truly(strength: float) -> None:
    log = small_log(3)
    model = DBN(
        continuation=0.9,
        attractiveness_strength=strength,
        satisfaction_strength=strength,
        max_iterations=400,
    ).fit(log)
    assert_never_falls(model.objective_)
    assert model.converged_
    assert model.iterations_ == len(model.objective_) < 400
    assert (model.objective_[-1] - model.objective_[-2]) / 160 < model.tolerance
    short = DBN(continuation=0.9, max_iterations=2, tolerance=0).fit(log)
    assert not short.converged_
    assert "not converged" in short.message_


def test_a_fit_is_where_one_more_step_changes_nothing() -> None:
    log = small_log(4)
    model = DBN(
        continuation=0.8,
        attractiveness_prior=0.3,
        satisfaction_prior=0.4,
        max_iterations=3000,
        tolerance=1e-13,
    ).fit(log)
    parameters = DBNParameters(model.theta_, model.rho_, 0.8)
    found = e_step(parameters, as_cascade_block(as_grouped(log).whole))
    clicks, looks = as_grouped(log).counts.clicks, found.pairs["examinations"]
    np.testing.assert_allclose(model.exposure_, looks, rtol=1e-10)
    np.testing.assert_allclose(model.theta_, (clicks + 2 * 0.3) / (looks + 2), rtol=1e-4)
    np.testing.assert_allclose(
        model.rho_, (found.pairs["satisfied"] + 1 * np.array(0.4)) / (clicks + 1), rtol=1e-3
    )


def test_parameters_are_recovered_from_its_own_samples() -> None:
    # Tolerance: 0.02 for θ, 0.08 for ρ, which is seen only by what is not clicked below.
    pages = random_pages(60_000, 6, 5, seed=1)
    theta, rho = spread(6, 0.2, 0.6), spread(6, 0.8, 0.2)
    log = drawn(with_values(DBN(continuation=0.9), pages, theta_=theta, rho_=rho), pages, 2)
    model = DBN(continuation=0.9, max_iterations=500, tolerance=1e-8).fit(log)
    np.testing.assert_allclose(model.theta_, theta, atol=0.02)
    np.testing.assert_allclose(model.rho_, rho, atol=0.08)


def test_cross_validation_finds_the_continuation_and_says_what_it_saw() -> None:
    pages = random_pages(20_000, 6, 5, seed=3)
    log = drawn(
        with_values(
            DBN(continuation=0.7), pages, theta_=spread(6, 0.2, 0.6), rho_=spread(6, 0.8, 0.2)
        ),
        pages,
        4,
    )
    model = DBN().fit(log)
    assert model.cv_ is not None
    assert model.continuation_ in (0.6, 0.7, 0.8)
    assert tuple(model.cv_[:, 0]) == CONTINUATIONS
    assert model.continuation_ == model.cv_[model.cv_[:, 1].argmax(), 0]
    assert model.cv_[:, 1].max() == pytest.approx(model.log_set_prob(log).mean(), abs=0.02)
    again, other = DBN().fit(log), DBN(seed=1).fit(log)
    np.testing.assert_array_equal(again.cv_, model.cv_)
    assert other.cv_ is not None
    assert (other.cv_[:, 1] != model.cv_[:, 1]).any()


def test_the_order_of_the_rows_changes_nothing_of_the_cross_validation() -> None:
    log = small_log(5)
    model = DBN(attractiveness_strength=0.5).fit(log)
    for seed in range(3):
        shuffled = DBN(attractiveness_strength=0.5).fit(
            log.take(np.random.default_rng(seed).permutation(len(log)))
        )
        np.testing.assert_array_equal(shuffled.cv_, model.cv_)
        assert shuffled.continuation_ == model.continuation_


def test_folds_are_of_equal_size_and_follow_from_the_sessions_themselves() -> None:
    log = small_log(7)
    folds, reversed_folds, other = (
        folds_of_click_sets(as_grouped(rows), 3, seed)
        for rows, seed in ((log, 0), (log.take(np.arange(len(log))[::-1]), 0), (log, 1))
    )
    for one, two in zip(folds, reversed_folds, strict=True):
        for name in ("pair", "page", "clicks", "weight"):
            for part, again in zip(one, two, strict=True):
                np.testing.assert_array_equal(getattr(part, name), getattr(again, name))
    sizes = [fold.test.weight.sum() for fold in folds]
    assert sum(sizes) == as_grouped(log).weight.sum()
    assert max(sizes) < 1.2 * min(sizes)
    assert any(len(one.test) != len(two.test) for one, two in zip(folds, other, strict=True))


def test_the_copies_of_a_session_are_dealt_over_the_folds() -> None:
    # with all copies of a session in one fold, the other would not know that such sessions occur
    log = {
        "query": ["q"] * 400,
        "ads": [["a", "b"]] * 400,
        "clicks": [[1]] * 100 + [[2]] * 50 + [[]] * 150 + [[1, 2]] * 100,
    }
    model = DBN(folds=2).fit(log)
    assert model.cv_ is not None
    assert model.cv_[:, 1].max() == pytest.approx(model.log_set_prob(log).mean(), abs=0.005)


@pytest.mark.parametrize("clicks", [[[1]], [[1, 2], [2, 1]]])
def test_sessions_all_alike_have_nothing_to_hold_out_and_are_fitted_all_the_same(
    clicks: list[list[int]],
) -> None:
    model = DBN().fit(
        {"query": ["q"] * len(clicks), "ads": [["a", "b"]] * len(clicks), "clicks": clicks}
    )
    assert model.continuation_ == 0.9
    assert model.cv_ is None


@pytest.mark.parametrize("continuation", ["cv", 0.9, 1])
def test_promises_are_kept(continuation: str | float, tmp_path: Path) -> None:
    assert_keeps_its_promises(lambda: DBN(continuation=continuation), tmp_path)
    unsmoothed = DBN(
        continuation=continuation, attractiveness_strength=0, satisfaction_strength=0
    ).fit(small_log(2))
    assert np.isfinite(unsmoothed.click_prob(LOG)).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"continuation": 0}, {"continuation": 1.1}, {"continuation": "auto"},
        {"continuation": True},
        {"folds": 1}, {"folds": 2.5}, {"seed": -1},
        {"seed": 0.5}, {"seed": None}, {"max_iterations": 10.0}, {"max_iterations": True},
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        DBN(**wrong)


def test_the_mean_satisfaction_is_that_of_one_for_all_pairs() -> None:
    """At the end of its EM: (expected satisfied clicks + m) / (clicks + 1), m that of counting."""
    log = small_log(6)
    closely: dict[str, Any] = {
        "continuation": 0.8,
        "attractiveness_prior": 0.3,
        "attractiveness_strength": 2,
        "max_iterations": 20_000,
        "tolerance": 1e-13,
    }
    mean = DBN(satisfaction_prior="auto", **closely).fit(log).satisfaction_
    counted = DBN(**closely).fit(log).satisfaction_
    assert mean < counted
    tight = DBN(satisfaction_prior=mean, satisfaction_strength=1e12, **closely).fit(log)
    np.testing.assert_allclose(tight.rho_, mean, rtol=1e-6)
    block = as_cascade_block(as_grouped(log).whole)
    found = e_step(DBNParameters(tight.theta_, tight.rho_, 0.8), block)
    clicks = block.observed.clicks.sum()
    expected = (found.pairs["satisfied"].sum() + counted) / (clicks + 1)
    assert mean == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("queries", [10, 100])
def test_satisfaction_is_far_less_biased_with_an_estimated_mean(queries: int) -> None:
    """ρ is .5 on average; 6,000 sessions. The mean within .08, the bias at most .4 of before."""
    truth, log = make_world(DBN(continuation=0.8), 6000, 1, queries=queries)
    counted, estimated = (
        DBN(continuation=0.8, satisfaction_prior=prior).fit(log) for prior in ("overall", "auto")
    )
    assert counted.satisfaction_ > 0.75
    assert estimated.satisfaction_ == pytest.approx(0.5, abs=0.08)
    before, after = (abs(np.mean(each.rho_ - truth.rho_)) for each in (counted, estimated))
    assert after < 0.4 * before
    new = {**log, "clicks": truth.sample(log, 99).to_pylist()}
    assert estimated.log_set_prob(new).mean() > counted.log_set_prob(new).mean()


@pytest.mark.parametrize("continuation", ["cv", "query", 0.9])
def test_an_estimated_mean_keeps_all_promises(continuation: str | float, tmp_path: Path) -> None:
    def make() -> DBN:
        return DBN(continuation=continuation, satisfaction_prior="auto")

    assert_keeps_its_promises(make, tmp_path)
    assert_never_falls(make().fit(small_log(8)).objective_)


def test_without_a_click_the_mean_satisfaction_is_that_of_counting() -> None:
    log = {"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[], [], []]}
    made = [DBN(continuation=0.9, satisfaction_prior=prior) for prior in ("overall", "auto")]
    one, other = (model.fit(log).satisfaction_ for model in made)
    assert one == pytest.approx(other)
