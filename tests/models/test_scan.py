"""Directional scan: a worked example, brute force over the latents, EM, and recovery."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.data.batch import Float64
from reclick.engines import as_grouped
from reclick.errors import CannotAnswerError, SettingError
from reclick.models import DirectionalScan, load
from reclick.models.scan import ScanParameters, e_step
from tests.support.cascades import assert_never_falls, drawn, random_pages, spread, with_values
from tests.support.enumeration import Clicks, Session, all_sequences, as_table, random_sessions

THETA, DOWN = np.array([0.5, 0.3, 0.2]), np.array([1.0, 1.0, 0.8, 0.3])
RHO, NEVER = np.array([0.4, 0.6, 0.2]), np.zeros(3)
SEQUENCES: dict[Clicks, float] = {
    (): 0.40670839,
    (1,): 0.287109,
    (2,): 0.0837837,
    (3,): 0.031699502,
    (1, 2): 0.104004,
    (1, 3): 0.037044945,
    (2, 1): 0.004542615,
    (2, 3): 0.013397076,
    (3, 1): 0.002563204,
    (3, 2): 0.003924326,
    (1, 2, 3): 0.017496,
    (1, 3, 2): 0.004346055,
    (2, 1, 3): 0.000654885,
    (2, 3, 1): 0.001571724,
    (3, 1, 2): 0.000948034,
    (3, 2, 1): 0.000206543,
}


def example_gamma(size: int = 3) -> Float64:
    """γ(l, j) = .9 · .7^(j − l − 1) below the last click, .5 · .6^(l − j − 1) above it."""
    gamma = np.full((size + 1, size), 0.5)
    for last, j in itertools.product(range(size + 1), range(1, size + 1)):
        if j != last:
            gamma[last, j - 1] = (
                0.9 * 0.7 ** (j - last - 1) if j > last else 0.5 * 0.6 ** (last - j - 1)
            )
    return gamma


def the_model(rho: Float64 = NEVER) -> DirectionalScan:
    model = DirectionalScan(max_iterations=1).fit(page([()]))
    model.theta_, model.rho_, model.gamma_, model.down_ = THETA, rho, example_gamma(), DOWN
    return model


def page(clicks: list[Clicks]) -> pa.Table:
    return as_table([Session("q", ("a", "b", "c"), each) for each in clicks])


def test_sequences_have_the_probabilities_of_the_hand_worked_example() -> None:
    model, every = the_model(), list(SEQUENCES)
    got = np.exp(model.log_prob(page(every)))
    np.testing.assert_allclose(got, list(SEQUENCES.values()), atol=6e-10)
    assert got.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(
        model.click_prob(("q", list("abc")))[0], [0.460487006, 0.234874958, 0.113852295], atol=6e-10
    )


def test_the_first_clicks_are_worked_out_by_hand() -> None:
    # Start: 1 is examined with .9 and clicked with .5; else 2 with .63 · .3 and 3 with .441 · .2.
    # After 2: down with .8 to 3, .9 · .2; up with .2 to 1, .5 · .5.
    model = the_model()
    np.testing.assert_allclose(
        model.next_click_prob(("q", list("abc")), [[]])[0],
        [0.45, 0.55 * 0.189, 0.55 * 0.811 * 0.0882],
    )
    np.testing.assert_allclose(
        model.next_click_prob(("q", list("abc")), [[2]])[0], [0.2 * 0.25, 0, 0.8 * 0.18]
    )


def test_a_click_that_satisfies_ends_the_session() -> None:
    # After 2, which satisfies with .6: the others go on as before.
    model = the_model(RHO)
    np.testing.assert_allclose(
        model.next_click_prob(("q", list("abc")), [[2]])[0], [0.4 * 0.05, 0, 0.4 * 0.144]
    )
    first, second = 0.45, 0.55 * 0.189
    then = 0.6 * 0.9 * 0.3, 0.4 * 0.2 * 0.25  # 2 after 1, and 1 after 2
    alone = np.exp(the_model(RHO).log_prob(page([(1, 2), (2, 1)])))
    # After (1, 2) nothing is left above; after (2, 1) all go down, past 2, to 3.
    ends = 0.6 + 0.4 * (0.8 * (1 - 0.9 * 0.2) + 0.2), 0.4 + 0.6 * (1 - 0.63 * 0.2)
    np.testing.assert_allclose(alone, [first * then[0] * ends[0], second * then[1] * ends[1]])
    got = np.exp(model.log_prob(page(list(all_sequences(3)))))
    assert got.sum() == pytest.approx(1, abs=1e-12)
    chance = model.click_prob(("q", list("abc")))[0]
    assert model.satisfaction_prob(("q", list("abc")))[0] == pytest.approx(chance @ RHO)


def latent_worlds(clicks: Clicks, rho: Float64) -> dict[str, Float64 | float]:
    """P(clicks) and posterior expectations, by enumeration of satisfaction, directions and
    examinations."""
    gamma, size = example_gamma(), len(THETA)
    paths: list[tuple[float, dict[Any, float]]] = [(1.0, {})]
    last = 0
    done: list[int] = []
    for goal in (*clicks, 0):
        options: list[tuple[float, dict[Any, float]]] = []
        content = rho[last - 1] if last > 0 else 0.0
        if goal == 0 and last > 0:
            options.append((content, {("satisfied", last): 1.0}))
        for goes_down in (True, False):
            turn = DOWN[last] if goes_down else 1 - DOWN[last]
            side = range(last + 1, size + 1) if goes_down else range(last - 1, 0, -1)
            ahead = [j for j in side if j not in done]
            for world in itertools.product((0, 1, 2), repeat=len(ahead)):  # unseen, skipped, click
                hits = [i for i, at in enumerate(world) if at == 2]
                stop = hits[0] + 1 if hits else len(ahead)
                if any(world[stop:]) or (ahead[hits[0]] if hits else 0) != goal:
                    continue  # positions after the click are not reached: one world stands for all
                chance = (1 - content) * turn
                found: dict[Any, float] = defaultdict(float)
                for j, at in zip(ahead[:stop], world, strict=False):
                    seen, attracts = gamma[last, j - 1], THETA[j - 1]
                    chance *= (1 - seen, seen * (1 - attracts), seen * attracts)[at]
                    found["trial", last, j] += 1
                    found["seen", last, j] += at > 0
                    found["skip", j] += at == 1
                found["down", last] += goes_down
                found["scan", last] += 1
                options.append((chance, found))
        paths = [
            (p * q, {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}})
            for p, a in paths
            for q, b in options
        ]
        done.append(goal)
        last = goal
    total = sum(p for p, _ in paths)

    def mean(*key: Any) -> float:
        return sum(p * found.get(key, 0.0) for p, found in paths) / total

    cells = [[(last, j) for j in range(1, size + 1)] for last in range(size + 1)]
    return {
        "probability": total,
        "skips": np.array([mean("skip", j) for j in range(1, size + 1)]),
        "seen": np.array([[mean("seen", *cell) for cell in row] for row in cells]),
        "trial": np.array([[mean("trial", *cell) for cell in row] for row in cells]),
        "down": np.array([mean("down", last) for last in range(size + 1)]),
        "scan": np.array([mean("scan", last) for last in range(size + 1)]),
        "satisfied": np.array([mean("satisfied", j) for j in range(1, size + 1)]),
    }


@pytest.mark.parametrize("rho", [NEVER, RHO], ids=["never", "sometimes"])
@pytest.mark.parametrize("clicks", SEQUENCES)
def test_the_expectations_are_those_of_brute_force(clicks: Clicks, rho: Float64) -> None:
    expected = latent_worlds(clicks, rho)
    parameters = ScanParameters(THETA, rho, example_gamma(), DOWN)
    found = e_step(parameters, as_grouped(page([clicks])).whole)
    assert found.log_likelihood == pytest.approx(np.log(expected["probability"]), rel=1e-12)
    if rho is NEVER:
        assert expected["probability"] == pytest.approx(SEQUENCES[clicks], abs=6e-10)
    np.testing.assert_allclose(found.pairs["satisfied"], expected["satisfied"], atol=1e-12)
    np.testing.assert_allclose(found.pairs["skips"], expected["skips"], atol=1e-12)
    examined, downs = found.totals["examined"], found.totals["downs"]
    np.testing.assert_allclose(examined[0], expected["seen"], atol=1e-12)
    np.testing.assert_allclose(examined[1], expected["trial"], atol=1e-12)
    np.testing.assert_allclose(downs[0], expected["down"], atol=1e-12)
    np.testing.assert_allclose(downs[1], expected["scan"], atol=1e-12)


@pytest.mark.parametrize("strength", [0, 3])
def test_the_objective_never_falls(strength: float) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 80))
    model = DirectionalScan(
        attractiveness_strength=strength,
        satisfaction_strength=strength,
        examination_strength=strength,
        down_strength=strength,
        max_iterations=4000,
        tolerance=1e-8,
    ).fit(log)
    assert_never_falls(model.objective_)
    assert model.converged_
    short = DirectionalScan(max_iterations=2, tolerance=0).fit(log)
    assert not short.converged_


def test_a_fit_is_where_one_more_step_changes_nothing() -> None:
    log = as_table(random_sessions(np.random.default_rng(4), 120))
    model = DirectionalScan(
        attractiveness_prior=0.3,
        attractiveness_strength=3,
        max_iterations=4000,
        tolerance=1e-13,
    ).fit(log)
    sessions = as_grouped(log)
    parameters = ScanParameters(model.theta_, model.rho_, model.gamma_, model.down_)
    found = e_step(parameters, sessions.whole)
    clicks, downs = sessions.counts.clicks, found.totals["downs"]
    np.testing.assert_allclose(
        model.theta_, (clicks + 3 * 0.3) / (clicks + found.pairs["skips"] + 3), rtol=1e-4
    )
    np.testing.assert_allclose(
        model.down_[2:], ((downs[0] + 2 * 0.7) / (downs[1] + 2))[2:], rtol=1e-4
    )
    assert model.down_[:2].tolist() == [1, 1]
    np.testing.assert_allclose(
        model.rho_, (found.pairs["satisfied"] + 3 * 0.1) / (clicks + 3), rtol=1e-3
    )


def test_parameters_are_recovered_from_its_own_samples() -> None:
    # Tolerance: 0.05 for δ and 0.03 for θγ, which is all that is identified of θ and γ. The level
    # of ρ is not, as γ after a click can make up for it; which ads satisfy more is.
    pages = random_pages(60_000, 6, 4, seed=1)
    theta, gamma = spread(6, 0.3, 0.7), example_gamma(4)
    down = np.array([1.0, 1.0, 0.8, 0.6, 0.3])
    rho = np.array([0.1, 0.5, 0.2, 0.6, 0.05, 0.4])
    truth = with_values(DirectionalScan(), pages, theta_=theta, rho_=rho, gamma_=gamma, down_=down)
    model = DirectionalScan(max_iterations=500, tolerance=1e-8).fit(drawn(truth, pages, 2))
    np.testing.assert_allclose(model.down_[2:4], down[2:4], atol=0.05)
    for ad in range(6):
        got, true = model.theta_[ad] * model.gamma_, theta[ad] * gamma
        np.testing.assert_allclose(got[0], true[0], atol=0.03)
    assert np.corrcoef(model.rho_, rho)[0, 1] > 0.95
    np.testing.assert_allclose(
        model.click_prob(pages[:50]), truth.click_prob(pages[:50]), atol=0.01
    )


def test_a_page_longer_than_any_in_the_log_is_answered() -> None:
    model = the_model()
    ads = list("abcabcabcabc")
    chances = model.click_prob(("q", ads))[0]
    pages = {"query": ["q"] * 20_000, "ads": [ads] * 20_000}
    rates = np.bincount(np.asarray(model.sample(pages, 2).values) - 1, minlength=12) / 20_000
    np.testing.assert_allclose(rates, chances, atol=0.02)  # more than five standard deviations
    with pytest.raises(CannotAnswerError, match="a page of 13 ads: exact up to 12"):
        model.click_prob(("q", [*ads, "a"]))
    assert np.isfinite(model.log_prob({"query": ["q"], "ads": [[*ads, "a"]], "clicks": [[13, 1]]}))


def test_equal_pages_have_the_click_probabilities_of_each_alone() -> None:
    model = the_model()
    ads = [list("abc"), list("cb"), list("abc"), list("bca"), list("cb")]
    together = model.click_prob({"query": ["q"] * 5, "ads": ads})
    for row, each in zip(together, ads, strict=True):
        np.testing.assert_allclose(row[: len(each)], model.click_prob(("q", each))[0])


def test_without_priors_nothing_is_impossible() -> None:
    for clicks in itertools.chain(all_sequences(2), [(3, 2, 1)]):
        model = DirectionalScan(
            attractiveness_strength=0,
            satisfaction_strength=0,
            examination_strength=0,
            down_strength=0,
        ).fit(page([clicks] * 2))
        got = model.log_prob(page(list(all_sequences(3))))
        assert np.isfinite(got).all()
        assert np.exp(got).sum() == pytest.approx(1, abs=1e-9)


def test_a_saved_model_answers_the_same_to_the_last_bit(tmp_path: Path) -> None:
    model = DirectionalScan().fit(as_table(random_sessions(np.random.default_rng(2), 60)))
    model.save(tmp_path / "model")
    asked = as_table(random_sessions(np.random.default_rng(7), 30, queries="qrz", ads="abcdxy"))
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.log_prob(asked), model.log_prob(asked))
    assert loaded.relevance().equals(model.relevance())


@pytest.mark.parametrize(
    "wrong", [{"down_prior": 0}, {"down_strength": -1}, {"examination_strength": -1}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        DirectionalScan(**wrong)
