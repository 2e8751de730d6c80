"""PBM and UBM with several components of users: a vector, brute force, and recovery."""

from __future__ import annotations

import itertools
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reclick as rc
from reclick.engines import as_grouped
from reclick.fitting.mixture import (
    fit_log_odds,
    fit_shifts,
    log_odds,
    log_shift_prior,
    mean_probability,
    split_probability,
)
from reclick.models import PBM, UBM
from reclick.models.kernels.examination_mixture import MixtureParameters, e_step, score
from tests.support.enumeration import as_table, random_sessions
from tests.support.generative import enumerated
from tests.support.oracles import browsed, logistic

PAGE = ("q", ("a", "b", "c"))


def of_components(theta: list[float], shifts: list[float], mixing: list[float]) -> Any:
    """A PBM of one page with these parameters."""
    log = {"query": ["q"], "ads": [["a", "b", "c"]], "clicks": [[1]]}
    model = PBM(attractiveness_prior="overall").fit(log)
    model.shifts_, model.mixing_ = np.array(shifts), np.array(mixing)
    model.theta_ = mean_probability(log_odds(np.array(theta)), model.shifts_, model.mixing_)
    model.gamma_ = np.array([1.0, 0.7, 0.5])
    return model


def test_two_components_by_hand() -> None:
    """P = .7 P(odds halved) + .3 P(odds three times): each set to the printed digits."""
    model = of_components([0.5, 0.3, 0.2], np.log([0.5, 3.0]).tolist(), [0.7, 0.3])
    expected = {
        (): 0.422021743,
        (1,): 0.300324487,
        (2,): 0.077647569,
        (3,): 0.032466615,
        (1, 2): 0.096831597,
        (1, 3): 0.040591566,
        (2, 3): 0.009530739,
        (1, 2, 3): 0.020585682,
    }
    log = {
        "query": ["q"] * 8,
        "ads": [list("abc")] * 8,
        "clicks": [list(each) for each in expected],
    }
    np.testing.assert_allclose(
        np.exp(model.log_set_prob(log)), list(expected.values()), rtol=0, atol=6e-10
    )
    clicks = model.click_prob(PAGE)[0]
    np.testing.assert_allclose(clicks, [0.458333, 0.204596, 0.103175], atol=6e-7)
    # A click speaks for the component that clicks more: above it and below, more is clicked.
    sets = {
        clicked: np.exp(value)
        for clicked, value in zip(expected, model.log_set_prob(log), strict=True)
    }
    both = sets[1, 3] + sets[1, 2, 3]
    assert both / clicks[2] == pytest.approx(0.592949, abs=6e-7)
    assert both / clicks[0] == pytest.approx(0.133478, abs=6e-7)


@pytest.mark.parametrize("browsing", [True, False])
def test_the_e_step_is_brute_force_over_what_is_hidden(browsing: bool) -> None:
    """Three positions: the component, what attracts and what is examined are summed over."""
    rng = np.random.default_rng(0)
    log = {"query": ["q"] * 8, "ads": [list("abc")] * 8}
    clicks = [list(c) for m in range(4) for c in itertools.combinations((1, 2, 3), m)]
    block = as_grouped({**log, "clicks": clicks}).whole
    odds, shifts = rng.normal(size=3), np.array([-0.8, 0.3, 1.1])
    mixing = np.array([0.5, 0.3, 0.2])
    gamma = rng.uniform(0.2, 0.9, 12 if browsing else 3)
    now = MixtureParameters(odds, gamma, shifts, mixing)
    worlds: dict[tuple[int, ...], np.ndarray] = {}
    for t in range(3):
        theta = [logistic(a + shifts[t]) for a in odds]
        rows = [
            (theta[r], *(gamma[(above * 3 if browsing else 0) + r] for above in range(r + 1)))
            for r in range(3)
        ]
        for (clicked, seen), p in enumerated(rows, partial(_looked, browsing)).items():
            worlds.setdefault(clicked, np.zeros((3, 8)))[t, seen] += mixing[t] * p
    made = [block.click[block.clicks[s] : block.clicks[s + 1]].tolist() for s in range(8)]
    total = [worlds[tuple(sorted(each))] for each in made]
    found = score(now, block, length=3, browsing=browsing)
    np.testing.assert_allclose(found, [np.log(each.sum()) for each in total], atol=1e-12)
    statistics = e_step(now, block, length=3, browsing=browsing)
    assert statistics.log_likelihood == pytest.approx(found.sum())
    members = sum(each.sum(axis=1) / each.sum() for each in total)
    np.testing.assert_allclose(statistics.totals["members"], members)
    examined = np.zeros((3, 3))  # [pair, component]
    for each in total:
        for seen in range(8):
            for r in range(3):
                examined[r] += (seen >> r & 1) * each[:, seen] / each.sum()
    both = statistics.pairs["clicks"] + statistics.pairs["skips"]
    np.testing.assert_allclose(both, examined[block.pair[:3].argsort()], atol=1e-12)


def _looked(browsing: bool, world: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], int]:
    """The clicks of a world, and which positions were examined, as bits."""
    clicks: tuple[int, ...] = ()
    seen = 0
    for position, at in enumerate(world, 1):
        closest = clicks[-1] if clicks and browsing else 0
        examined = at[1 + closest]
        seen |= examined << (position - 1)
        if at[0] and examined:
            clicks = (*clicks, position)
    assert not browsing or clicks == browsed(world)
    return clicks, seen


def test_the_steps_of_the_m_step_find_the_highest_point() -> None:
    rng = np.random.default_rng(1)
    successes, failures = rng.uniform(0, 5, (2, 4, 2))
    mean, strength = np.full(4, 0.3), np.full(4, 2.0)
    shifts, mixing = np.array([-0.5, 0.7]), np.array([0.6, 0.4])

    def value(odds: np.ndarray, b: np.ndarray) -> float:
        p = 1 / (1 + np.exp(-odds[:, None] - b))
        centre = 1 / (1 + np.exp(-odds))
        likelihood = np.sum(successes * np.log(p) + failures * np.log(1 - p))
        prior = np.sum(strength * (mean * np.log(centre) + (1 - mean) * np.log(1 - centre)))
        return float(likelihood + prior)

    odds = fit_log_odds(successes, failures, mean, strength, shifts, np.zeros(4))
    for i in range(4):
        for move in (-1e-3, 1e-3):
            moved = odds + move * (np.arange(4) == i)
            assert value(moved, shifts) < value(odds, shifts)
    for _ in range(20):
        shifts = fit_shifts(successes, failures, odds, shifts, mixing)
    assert mixing @ shifts == pytest.approx(mixing @ np.array([-0.5, 0.7]))
    free = np.array([mixing[1], -mixing[0]])  # the direction that leaves the mean as it is
    for move in (-1e-3, 1e-3):
        moved = shifts + move * free
        here, there = log_shift_prior(shifts), log_shift_prior(moved)
        assert value(odds, moved) + there < value(odds, shifts) + here


def test_a_probability_is_split_into_parts_with_that_mean() -> None:
    means = np.array([[1e-9, 0.2], [0.5, 1 - 1e-9]])
    shifts, mixing = np.array([-1.0, 0.2, 4.0]), np.array([0.5, 0.4, 0.1])
    parts = split_probability(means, shifts, mixing)
    np.testing.assert_allclose(np.tensordot(mixing, parts, 1), means, rtol=1e-6)
    assert (np.diff(parts, axis=0) > 0).all()


@pytest.mark.parametrize("model", [PBM, UBM])
def test_the_objective_never_falls(model: Any) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 400, weights=True))
    found = model(components=3, tolerance=1e-7, max_iterations=400).fit(log)
    assert (np.diff(found.objective_) > -1e-8).all()
    assert found.mixing_ @ found.shifts_ == pytest.approx(0.0, abs=1e-9)
    one = model(components=1, tolerance=1e-9, max_iterations=2000).fit(log)
    assert found.log_set_prob(log).sum() > one.log_set_prob(log).sum() - 1e-3


def pages_of(sessions: int, seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    return {
        "query": [f"q{i % 8}" for i in range(sessions)],
        "ads": [rng.permutation(list("abcdef"))[:5].tolist() for _ in range(sessions)],
        "clicks": [[] for _ in range(sessions)],
    }


@pytest.fixture(scope="module")
def mixed() -> tuple[Any, dict[str, list[Any]]]:
    """A UBM of two components, and 20,000 sessions of it."""
    pages = pages_of(20_000, 0)
    truth = UBM(max_iterations=1).fit(pages)
    truth.theta_ = np.random.default_rng(1).uniform(0.1, 0.7, len(truth.theta_))
    truth.mixing_, truth.shifts_ = np.array([0.8, 0.2]), np.array([-0.5, 2.0])
    truth.gamma_ = np.triu(np.tile(0.85 ** np.arange(5), (6, 1)))
    return truth, {**pages, "clicks": truth.sample(pages, 2).to_pylist()}


def test_mixing_and_shifts_of_simulated_sessions_are_recovered(mixed: Any) -> None:
    """Mixing weights within .04, shifts within .25, θ within .03 on average; 20,000 sessions."""
    truth, log = mixed
    model = UBM(components=2, tolerance=1e-7, max_iterations=1000).fit(log)
    np.testing.assert_allclose(model.mixing_, truth.mixing_, atol=0.04)
    np.testing.assert_allclose(model.shifts_, truth.shifts_, atol=0.25)
    scale = model.gamma_[0, 0]
    assert np.abs(model.theta_ * scale - truth.theta_).mean() < 0.03
    one = UBM(tolerance=1e-7, max_iterations=1000).fit(log)
    assert model.log_set_prob(log).mean() > one.log_set_prob(log).mean() + 0.02


def test_held_out_sessions_choose_the_number_of_components(mixed: Any) -> None:
    truth, log = mixed
    part = {name: column[:6000] for name, column in log.items()}
    assert len(UBM(components="auto").fit(part).mixing_) == 2
    alike = UBM(max_iterations=1).fit(part)
    alike.theta_, alike.gamma_ = truth.theta_, truth.gamma_
    one = {**part, "clicks": alike.sample(part, 3).to_pylist()}
    assert len(UBM(components="auto").fit(one).mixing_) == 1


def test_relevance_is_the_mean_over_components(mixed: Any, tmp_path: Path) -> None:
    _, log = mixed
    part = {name: column[:3000] for name, column in log.items()}
    model = UBM(components=2).fit(part)
    alone = {"query": ["q0", "q0"], "ads": [["a"], ["never"]]}
    table = model.relevance({"query": ["q0", "q0"], "ad": ["a", "never"]})
    at_the_top = np.array(table["attractiveness"]) * model.gamma_[0, 0]
    np.testing.assert_allclose(model.click_prob(alone)[:, 0], at_the_top, atol=1e-7)
    assert np.all(np.array(table["attractiveness_low"]) < np.array(table["attractiveness_high"]))
    model.save(tmp_path / "model")
    again: Any = rc.load(tmp_path / "model")
    np.testing.assert_array_equal(again.log_set_prob(part), model.log_set_prob(part))
    assert again.shifts_.tolist() == model.shifts_.tolist()
    assert PBM(components=2).fit(part).examination_by_position().shape == (5,)


def test_the_e_step_pickles() -> None:
    step = partial(e_step, length=3, browsing=True)
    assert pickle.loads(pickle.dumps(step)).keywords == step.keywords  # noqa: S301
