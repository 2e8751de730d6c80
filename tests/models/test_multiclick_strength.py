"""MultiClick's strength="auto": evidence by hand, strengths and distances recovered, saving."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reclick.models import MultiClick, load
from reclick.models.kernels.stops_and_transitions import (
    DEFAULT_STRENGTH,
    _log_evidence,
    choose_strength,
)


def test_the_evidence_is_that_of_an_urn() -> None:
    # Strength 2, means ½: P(a, a, b in this order) = 1/2 · 2/3 · 1/4.
    totals, means, counts = np.array([3.0]), np.array([0.5, 0.5]), np.array([2.0, 1.0])
    found = _log_evidence(2.0, totals, means, counts)
    assert math.exp(found) == pytest.approx(1 / 2 * 2 / 3 * 1 / 4)


@pytest.mark.parametrize("truth", [1.0, 20.0])
def test_the_strength_of_groups_is_recovered(truth: float) -> None:
    # Tolerance: a quarter, of 2,000 groups with 30 observations each.
    rng, means = np.random.default_rng(1), np.array([0.5, 0.3, 0.2])
    counts = np.stack([rng.multinomial(30, p) for p in rng.dirichlet(truth * means, 2000)])
    found = choose_strength(np.full(2000, 30.0), np.tile(means, 2000), counts.ravel().astype(float))
    assert found == pytest.approx(truth, rel=0.25)


def test_without_observations_the_strength_is_the_default() -> None:
    assert choose_strength(np.zeros(0), np.zeros(0), np.zeros(0)) == DEFAULT_STRENGTH


def simulated(
    seed: int, queries: int, per_query: int, strength: float, fatigue: float | None = None
) -> dict[str, list[Any]]:
    """First clicks of queries whose habits differ by a strength, then perhaps a second one.

    Whether there is a first click differs by `fatigue`, if it is given.
    """
    rng = np.random.default_rng(seed)
    log: dict[str, list[Any]] = {"query": [], "ads": [], "clicks": []}
    for q in range(queries):
        first = rng.dirichlet(strength * np.array([0.6, 0.3, 0.1]))
        half = (fatigue or strength) * 0.5
        stop = rng.beta(half, half)
        for _ in range(per_query):
            clicks: list[int] = []
            if rng.random() > stop:
                clicks = [int(rng.choice(3, p=first)) + 1]
                if rng.random() < 0.3:
                    clicks.append(int(rng.choice([j for j in (1, 2, 3) if j != clicks[0]])))
            log["query"].append(f"q{q}")
            log["ads"].append(["a", "b", "c"])
            log["clicks"].append(clicks)
    return log


def test_queries_that_differ_get_a_weak_prior_and_alike_ones_a_strong_one() -> None:
    apart = MultiClick(strength="auto").fit(simulated(1, 200, 60, 4.0)).strengths_
    alike = MultiClick(strength="auto").fit(simulated(2, 200, 60, 1e5)).strengths_
    assert apart.fatigue == pytest.approx(4.0, rel=1.0)  # later stops do not differ at all
    assert apart.transitions < 40 < alike.transitions
    assert alike.fatigue > 100


def test_fatigue_and_transitions_have_strengths_of_their_own() -> None:
    tired = MultiClick(strength="auto").fit(simulated(3, 200, 60, 1e5, fatigue=2.0)).strengths_
    moving = MultiClick(strength="auto").fit(simulated(4, 200, 60, 2.0, fatigue=1e5)).strengths_
    assert tired.fatigue < 20 < 100 < tired.transitions
    assert moving.transitions < 20 < 100 < moving.fatigue


def test_a_move_never_made_is_as_likely_as_others_of_its_distance() -> None:
    # One step back is made from 2 and from 3, and never from 4: 2 → 1, 3 → 2.
    clicks = [[2, 1]] * 30 + [[3, 2]] * 30 + [[4, 1]] * 2 + [[4, 2]] * 3 + [[1, 2], [1, 4]] * 40
    log = {"query": ["q"] * len(clicks), "ads": [list("abcd")] * len(clicks), "clicks": clicks}
    plain, smooth = (MultiClick(strength=s).fit(log).gamma_ for s in (10.0, "auto"))
    assert plain[4, 2] < 1e-5
    assert smooth[4, 2] > 0.01
    np.testing.assert_allclose(smooth.sum(axis=1), 1)
    assert (np.diag(smooth[1:]) == 0).all()
    np.testing.assert_allclose(smooth[0], plain[0])


def test_steps_back_are_not_taken_for_steps_ahead() -> None:
    # From 3 there are two moves, one each way; from 1 and 2 thirty ahead and one back.
    clicks = [[1, 2]] * 30 + [[2, 3]] * 30 + [[2, 1], [3, 4], [3, 2], [4, 3]]
    log = {"query": ["q"] * len(clicks), "ads": [list("abcd")] * len(clicks), "clicks": clicks}
    plain, smooth = (MultiClick(strength=s).fit(log).gamma_ for s in (10.0, "auto"))
    assert plain[3, 3] == pytest.approx(plain[3, 1])
    assert smooth[3, 3] > 4 * smooth[3, 1] > 0


def test_the_transitions_of_a_history_are_drawn_to_their_distance_too() -> None:
    # A history in which one step back is never made from 4, and a log that has no second click.
    clicks = [[2, 1]] * 30 + [[3, 2]] * 30 + [[4, 1]] * 2 + [[4, 2]] * 3 + [[1, 2], [1, 4]] * 40
    size = len(clicks)
    history = {"query": ["q"] * size, "ads": [list("abcd")] * size, "clicks": clicks}
    log = {"query": ["q"] * 4, "ads": [list("abcd")] * 4, "clicks": [[1], [2], [], []]}
    for strength in (10.0, "auto"):
        model = MultiClick(strength=strength).fit(log, history=history)
        expected = MultiClick(strength=strength).fit(history).gamma_
        np.testing.assert_allclose(model.gamma_, expected)
    assert model.gamma_[4, 2] > 0.01


def test_a_number_is_the_strength_of_both() -> None:
    model = MultiClick(strength=7).fit(simulated(3, 5, 20, 10.0))
    assert tuple(model.strengths_) == (7.0, 7.0)


def test_strengths_are_saved_and_chosen_again_by_an_update(tmp_path: Path) -> None:
    model = MultiClick(strength="auto").fit(simulated(4, 60, 30, 5.0))
    model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert isinstance(back, MultiClick)
    assert back.strengths_ == model.strengths_
    pages = {"query": ["q1", "new"], "ads": [["a", "b", "c"]] * 2}
    np.testing.assert_array_equal(back.click_prob(pages), model.click_prob(pages))
    both = back.update(simulated(5, 60, 30, 5.0))
    again = MultiClick(strength="auto").fit(
        {
            name: [*simulated(4, 60, 30, 5.0)[name], *simulated(5, 60, 30, 5.0)[name]]
            for name in ("query", "ads", "clicks")
        }
    )
    assert both.strengths_ == pytest.approx(again.strengths_, rel=1e-6)
