"""Kinds of users whom other ads attract: what they change in LuceClick's answers, and what is learnt of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from luce_world import PLEASE, WHEN, WHERE, drawn

from reclick.batch import Float64
from reclick.models import LuceClick
from reclick.models.luce.beliefs import information
from reclick.models.luce.climbing import climb
from reclick.models.luce.parameters import Options
from reclick.models.luce.problem import Problem
from reclick.sessions import as_sessions

SETTINGS: dict[str, Any] = {
    "attractiveness_strength": 1.0, "satisfaction_strength": 5.0, "query_strength": None, "transition_strength": 4.0,
    "kind_strength": 16.0, "mix_strength": None,
}  # fmt: skip
ALIKE = np.array([0.8, 0.5, 0.8, 0.5, 0.4, 0.4])
APART = np.array([[3.0, 3.0, 0.1, 0.1, 1.0, 1.0], [0.1, 0.1, 3.0, 3.0, 1.0, 1.0]])  # ads 0 and 1 are for the ones, 2 and 3 for the others
HALVES = np.array([0.5, 0.5])


def sessions(count: int, seed: int, tastes: Float64 | None = APART) -> pa.Table:
    return drawn(ALIKE, PLEASE, np.concatenate([WHERE, WHERE]), np.concatenate([WHEN, WHEN]), count, seed, HALVES, tastes)


def first_click(tastes: Float64, page: list[int], at: int) -> float:
    """The truth: P(the first click is there)."""
    weights = ALIKE[page] * tastes[:, page] * WHERE[0, 0]
    return float(HALVES @ (weights[:, at] / (WHEN[0, 0] + weights.sum(axis=1))))


def test_an_ad_loses_clicks_to_another_that_the_same_users_like_and_not_to_one_that_others_like() -> None:
    log = sessions(30_000, seed=2)
    alike, apart = LuceClick(kinds=1, **SETTINGS).fit(log), LuceClick(kinds=2, taste_strength=3.0, **SETTINGS).fit(log)
    errors = []
    for model in (alike, apart):
        for page in ([1, 0, 4, 5], [1, 2, 4, 5]):  # beside its substitute, and beside an ad that the others like as much
            asked = {"query": ["q"], "ads": [[f"ad{i}" for i in page]], "clicks": [[]]}
            errors.append(float(model.next_click_prob(asked)[0, 0]) - first_click(APART, page, 0))
    assert errors[0] > 0.02  # one kind of users: too much beside its substitute
    assert errors[1] < -0.02  # and too little elsewhere
    assert np.abs(errors[2:]).max() < 0.01


def test_tastes_are_recovered_but_for_the_order_of_the_kinds() -> None:
    model = LuceClick(kinds=2, taste_strength=1.0, **SETTINGS).fit(sessions(60_000, seed=3))
    assert model.converged_
    ratio = np.log(model.taste_[:, 0] / model.taste_[:, 1])
    order = np.argsort([int(ad.removeprefix("ad")) for ad in model._pairs.counts.ads.take(pa.array(model._pairs.counts.pair_ad)).to_pylist()])
    found, truth = ratio[order] - ratio.mean(), np.log(APART[0] / APART[1])
    assert min(np.abs(found - truth).max(), np.abs(found + truth).max()) < 0.5


@pytest.mark.parametrize(("tastes", "told"), [(APART, True), (None, False)])
def test_the_log_decides_for_tastes_where_users_have_them(tastes: Float64 | None, told: bool) -> None:
    model = LuceClick().fit(sessions(6_000, 4, tastes))
    assert (model.options_["kinds"] > 1 and model.options_["taste"] is not None) == told


def test_attractiveness_is_that_to_an_average_user() -> None:
    model = LuceClick(kinds=2, taste_strength=3.0, **SETTINGS).fit(sessions(3_000, seed=5))
    theta = model._tastes(np.arange(len(model.theta_))) * model.theta_  # [kind, pair]
    odds = model.common_share_ @ (theta * (model.gamma_[:, 0, 0] / model.omega_[:, 0])[:, None])
    np.testing.assert_allclose(odds, model.theta_, rtol=1e-12)
    assert (model._tastes(np.array([-1])) == 1).all()


def test_an_ad_that_is_new_in_an_update_is_to_the_taste_of_all_at_first() -> None:
    model = LuceClick(kinds=2, taste_strength=3.0, **SETTINGS).fit(sessions(3_000, seed=6))
    before = dict(zip(model._pairs.counts.ads.to_pylist(), model.taste_, strict=True))
    model.update({"query": ["q"], "ads": [["new", "ad0"]], "clicks": [[]]})
    after = dict(zip(model._pairs.counts.ads.to_pylist(), model.taste_, strict=True))
    np.testing.assert_allclose(after["new"], 1, rtol=0.1)
    np.testing.assert_allclose(after["ad0"], before["ad0"], rtol=0.1)


def test_the_information_is_the_inverse_of_the_variance_by_plain_algebra() -> None:
    grouped = as_sessions(sessions(400, seed=7))
    made = Problem(grouped, Options(kinds=2, taste=2.0), np.ones(len(grouped.counts.impressions)), 0.3, HALVES)
    done = climb(made, made.fresh(), max_iterations=50, tolerance=0, quiet=True)
    now, leaning = done.parameters, np.array([0.6, 0.4])
    told = made.passes.information(now)[:, 1:]
    found, _ = information(done, leaning)
    for i in range(len(found)):
        exact = np.diag([told[i].sum() + made.rate(now)[i] * now.theta[i], *(told[i] + 2.0 * now.taste[i])])
        exact[0, 1:] = exact[1:, 0] = told[i]
        slope = np.array([1.0, *(leaning * now.taste[i] / (leaning @ now.taste[i]))])
        assert 1 / found[i] == pytest.approx(slope @ np.linalg.inv(exact) @ slope)
