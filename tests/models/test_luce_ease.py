"""Kinds of users whom a click satisfies more easily than others: what is learnt of them, told, and remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from luce_world import PLAIN, PLEASE, PULL, WHEN, WHERE, drawn

from reclick.models import LuceClick
from reclick.models.luce.satisfaction import as_if_alike, mean_of, raise_satisfaction, satisfaction_of

TWO: dict[str, Any] = {**PLAIN, "kinds": 2, "kind_strength": 4.0, "mix_strength": None, "taste_strength": None}
HALVES = np.array([0.5, 0.5])
EASES = np.array([4.0, 0.05])  # the second kind goes on whatever it finds


def sessions(count: int, seed: int, eases: Any = EASES) -> pa.Table:
    return drawn(PULL, PLEASE, np.concatenate([WHERE, WHERE]), np.concatenate([WHEN, WHEN]), count, seed, HALVES, eases=eases)


def lengths(log: pa.Table) -> Any:
    """The share of sessions with so many clicks."""
    return np.bincount([len(clicks) for clicks in log["clicks"].to_pylist()], minlength=5) / len(log)


def test_users_whom_hardly_anything_satisfies_are_told_from_the_others() -> None:
    model = LuceClick(**TWO, tolerance=1e-7, max_iterations=3000).fit(sessions(40_000, seed=1))
    assert model.converged_
    assert model.ease_.max() / model.ease_.min() > 8
    satisfied = satisfaction_of(model.rho_[:, None], np.sort(model.ease_))  # [pair, kind]
    order = np.argsort([int(ad.removeprefix("ad")) for ad in model._pairs.counts.ads.take(pa.array(model._pairs.counts.pair_ad)).to_pylist()])
    np.testing.assert_allclose(satisfied[order], satisfaction_of(PLEASE[:, None], np.sort(EASES)), atol=0.12)


def test_long_sessions_come_as_often_as_they_did() -> None:
    log = sessions(40_000, seed=2)
    model = LuceClick(**TWO, tolerance=1e-7, max_iterations=3000).fit(log)
    drawn_again = model.sample(log, rng=3).to_pylist()
    again = np.bincount([len(clicks) for clicks in drawn_again], minlength=5) / len(log)
    np.testing.assert_allclose(again, lengths(log), atol=0.006)
    assert model.click_prob(log).sum() == pytest.approx(sum(map(len, log["clicks"].to_pylist())), rel=0.01)


def test_where_all_are_satisfied_alike_the_kinds_hardly_differ() -> None:
    model = LuceClick(**TWO).fit(sessions(20_000, 4, np.ones(2)))
    satisfied = satisfaction_of(model.rho_[:, None], model.ease_)
    assert np.abs(satisfied @ model.common_share_ - model.relevance()["satisfaction"].to_numpy()).max() < 1e-12
    assert model.rho_.mean() == pytest.approx(PLEASE.mean(), abs=0.12)


def test_the_satisfaction_told_is_the_mean_over_the_users_and_its_interval_is_that_of_the_mean() -> None:
    model = LuceClick(**TWO).fit(sessions(4_000, seed=5))
    asked = {"query": ["q"] * 6, "ad": [f"ad{i}" for i in range(6)]}
    model.known_rho_ = 1e6 * np.ones(6)  # next to certain: the interval is as wide as its slope says
    told, low, high = (model.relevance(asked, level=0.9)[f"satisfaction{end}"].to_numpy() for end in ("", "_low", "_high"))

    def to_all(rho: Any) -> Any:
        return satisfaction_of(rho[:, None], model.ease_) @ model.common_share_

    rho = np.sort(model.rho_)
    np.testing.assert_allclose(np.sort(told), to_all(rho), rtol=1e-12)
    logit = np.log(rho / (1 - rho))
    ends = [to_all(1 / (1 + np.exp(-logit - sign * 1.6449e-3))) for sign in (-1, 1)]
    np.testing.assert_allclose(np.sort(high - low), np.sort(ends[1] - ends[0]), rtol=1e-3)


def test_a_centre_is_where_as_many_clicks_satisfy_as_did_whatever_the_start() -> None:
    rng = np.random.default_rng(6)
    truth, variance, asked = rng.uniform(0.02, 0.98, 200), rng.uniform(0.01, 2.0, 200), rng.gamma(0.5, 10.0, (200, 3))
    ease, none = np.array([0.02, 1.0, 6.0]), np.zeros(200)
    before = rng.gamma(1.0, 2.0, 200)
    each = mean_of(satisfaction_of(truth[:, None], ease), variance[:, None])  # [pair, kind]
    satisfied = (asked * each).sum(axis=1) + before * mean_of(truth, variance)
    near = 1 / (1 + np.exp(-np.log(truth / (1 - truth)) - rng.uniform(-3.5, 3.5, 200)))
    found = raise_satisfaction(near, variance, none, before, asked, ease, satisfied)
    np.testing.assert_allclose(found, truth, atol=1e-6)
    assert raise_satisfaction(near, variance, none, none, 0 * asked, ease, none).tolist() == near.tolist()  # nothing was told


def test_clicks_are_remembered_as_so_many_of_users_who_are_all_alike() -> None:
    centre, variance, asked, ease = np.array([0.3]), np.array([0.2]), np.array([[7.0, 5.0]]), np.array([3.0, 0.5])
    each = [0.3 * s / (0.7 + 0.3 * s) for s in ease]
    expected = sum(n * (c + 0.1 * c * (1 - c) * (1 - 2 * c)) for n, c in zip(asked[0], each, strict=True))
    clicks, more = as_if_alike(centre, variance, asked, ease)
    assert clicks[0] * (0.3 + 0.1 * 0.21 * 0.4) == pytest.approx(expected)
    assert clicks[0] * 0.21 - more[0] == pytest.approx(sum(n * c * (1 - c) for n, c in zip(asked[0], each, strict=True)))
    np.testing.assert_allclose(as_if_alike(centre, variance, asked, np.ones(2)), [[12.0], [0.0]], atol=1e-12)


def test_an_update_with_next_to_nothing_leaves_what_is_known_of_satisfaction() -> None:
    model = LuceClick(**TWO, tolerance=1e-8, max_iterations=3000).fit(sessions(20_000, seed=7))
    before = model.ease_.copy(), model.rho_.copy(), model.known_rho_.copy()
    model.update({"query": ["q"], "ads": [["ad0", "ad1"]], "clicks": [[]]})
    for old, new in zip(before, (model.ease_, model.rho_, model.known_rho_), strict=True):
        np.testing.assert_allclose(new, old, rtol=0.03)
