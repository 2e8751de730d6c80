"""CCM: one step of EM by hand and against brute force, and recovery from simulated sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reclick.engines import as_grouped
from reclick.errors import SettingError
from reclick.models import CCM
from reclick.models.ccm import CCMParameters, e_step
from reclick.models.kernels.cascade import as_cascade_block
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
from tests.support.generative import Bits, deciding, enumerated, relevant_or_not, scanned

LOG = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[1], [1, 2], [3, 1], []]}
ALPHA = np.array([0.8, 0.7, 0.3])


def clicks_of(world: Bits) -> Clicks:
    return scanned(world, relevant_or_not)


def test_expectations_are_worked_out_by_hand() -> None:
    # two ads, θ = (.5, .4), α = (.8, .7, .3). Clicked 1: the tail has .3 + .7 · .6 = .72 if
    # irrelevant, .7 + .3 · .6 = .88 if relevant: .8 in all. So relevant with .5 · .88 / .8 = .55,
    # and going on with .45 · .42 / .72 + .55 · .18 / .88 = .2625 + .1125. No click: B_2 = .6, a
    # look at 2 with .48 / (.2 + .48).
    sessions = as_grouped({"query": ["q"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[1], []]})
    block = as_cascade_block(sessions.whole)
    found = e_step(CCMParameters(np.array([0.5, 0.4]), ALPHA), block)
    np.testing.assert_allclose(found.pairs["examinations"], [2, 0.375 + 0.48 / 0.68])
    np.testing.assert_allclose(found.pairs["relevant"], [0.55, 0])
    np.testing.assert_allclose(
        found.totals["moves"], [[0.48 / 0.68, 0.2625, 0.1125], [1, 0.45, 0.55]]
    )
    np.testing.assert_allclose(found.log_likelihood, np.log(0.5 * 0.8) + np.log(0.5 * 0.68))


def test_the_expectations_are_those_of_brute_force() -> None:
    theta, weight = (0.5, 0.3, 0.6), {(): 3.0, (1,): 2.0, (2,): 1.0, (1, 3): 2.0, (1, 2): 1.0}
    log = {
        "query": ["q"] * 5,
        "ads": [["a", "b", "c"]] * 5,
        "clicks": [list(c) for c in weight],
        "weight": list(weight.values()),
    }
    chances = [(t, t, *ALPHA) for t in theta]

    def story(world: Bits) -> tuple[Clicks, tuple[tuple[int, int, int, bool], ...]]:
        seen: list[tuple[int, int, int, bool]] = []  # position, relevant, α that decided, went on

        def look(position: int, clicked: bool, at: tuple[int, ...]) -> bool:
            on = relevant_or_not(position, clicked, at)
            seen.append((position, at[1] if clicked else 0, deciding(clicked, at[1]), on))
            return on

        return scanned(world, look), tuple(seen)

    total = enumerated(chances, clicks_of)
    joint = enumerated(chances, story)
    looks, relevant, moves = np.zeros(3), np.zeros(3), np.zeros((2, 3))
    for (clicks, seen), chance in joint.items():
        if clicks in weight:
            for position, found_relevant, alpha, on in seen:
                share = weight[clicks] * chance / total[clicks]
                looks[position - 1] += share
                relevant[position - 1] += share * found_relevant
                if position < 3:  # at the bottom there is nothing to go on to
                    moves[0, alpha] += share * on
                    moves[1, alpha] += share

    block = as_cascade_block(as_grouped(log).whole)
    found = e_step(CCMParameters(np.array(theta), ALPHA), block)
    np.testing.assert_allclose(found.pairs["examinations"], looks)
    np.testing.assert_allclose(found.pairs["relevant"], relevant)
    np.testing.assert_allclose(found.totals["moves"], moves)
    np.testing.assert_allclose(
        found.log_likelihood, sum(many * np.log(total[c]) for c, many in weight.items())
    )


@pytest.mark.parametrize("strength", [0, 0.1, 3])
def test_the_objective_never_falls_and_convergence_is_told_truly(strength: float) -> None:
    log = small_log(3)
    model = CCM(attractiveness_strength=strength, alpha_strength=strength, max_iterations=2000).fit(
        log
    )
    assert_never_falls(model.objective_)
    assert model.converged_
    assert model.iterations_ == len(model.objective_) < 2000
    assert (model.objective_[-1] - model.objective_[-2]) / 160 < model.tolerance
    short = CCM(max_iterations=2, tolerance=0).fit(log)
    assert not short.converged_
    assert "not converged" in short.message_


def test_a_fit_is_where_one_more_step_changes_nothing() -> None:
    log = small_log(4)
    model = CCM(attractiveness_prior=0.3, max_iterations=5000, tolerance=1e-13).fit(log)
    block = as_cascade_block(as_grouped(log).whole)
    found = e_step(CCMParameters(model.theta_, model.alpha_), block)
    clicks, moves = as_grouped(log).counts.clicks, found.totals["moves"]
    examinations = found.pairs["examinations"]
    np.testing.assert_allclose(model.exposure_, examinations + clicks, rtol=1e-10)
    np.testing.assert_allclose(
        model.theta_,
        (clicks + found.pairs["relevant"] + 2 * 0.3) / (examinations + clicks + 2),
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        model.alpha_, (moves[0] + 10 * np.array([0.9, 0.8, 0.5])) / (moves[1] + 10), rtol=1e-3
    )


def test_parameters_are_recovered_from_its_own_samples() -> None:
    # Tolerance: 0.02 for θ, 0.05 for α1 and 0.1 for α2 and α3, which are told apart only by how
    # stopping goes with attractiveness.
    pages = random_pages(60_000, 10, 5, seed=1)
    theta = spread(10, 0.05, 0.8)
    log = drawn(with_values(CCM(), pages, theta_=theta, alpha_=ALPHA), pages, 2)
    model = CCM(max_iterations=1000, tolerance=1e-8).fit(log)
    np.testing.assert_allclose(model.theta_, theta, atol=0.02)
    assert (np.abs(model.alpha_ - ALPHA) < [0.05, 0.1, 0.1]).all()


def test_a_strong_prior_holds_the_alphas_where_it_says() -> None:
    model = CCM(alpha1_prior=0.6, alpha2_prior=0.5, alpha3_prior=0.4, alpha_strength=1e9).fit(
        small_log(5)
    )
    np.testing.assert_allclose(model.alpha_, [0.6, 0.5, 0.4], atol=1e-5)


def test_promises_are_kept(tmp_path: Path) -> None:
    assert_keeps_its_promises(CCM, tmp_path)
    unsmoothed = CCM(attractiveness_strength=0, alpha_strength=0).fit(small_log(2))
    assert np.isfinite(unsmoothed.click_prob(LOG)).all()


@pytest.mark.parametrize(
    "wrong",
    [{"alpha1_prior": 0}, {"alpha2_prior": 1}, {"alpha3_prior": "overall"}, {"alpha_strength": -1}],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        CCM(**wrong)
