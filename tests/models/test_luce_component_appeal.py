"""Component-specific appeal: predictions, estimates and updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.data.batch import Float64
from reclick.models import LuceClick
from reclick.models.luce.parameters import Hyperparameters
from reclick.models.luce.posterior import combine_components, logit_slopes, mean_attractiveness
from tests.support.luce_world import GAMMA, OMEGA, RHO, draw, objective_for

SETTINGS: dict[str, Any] = {
    "attractiveness_strength": 1.0,
    "satisfaction_prior": 0.4,
    "satisfaction_strength": 5.0,
    "query_strength": None,
    "transition_strength": 4.0,
    "component_strength": 16.0,
    "mixing_strength": None,
    "position_effect_strength": None,
}
ALIKE = np.array([0.8, 0.5, 0.8, 0.5, 0.4, 0.4])
APART = np.array(
    [[3.0, 3.0, 0.1, 0.1, 1.0, 1.0], [0.1, 0.1, 3.0, 3.0, 1.0, 1.0]]
)  # ads 0 and 1 are for the ones, 2 and 3 for the others
HALVES = np.array([0.5, 0.5])


def sessions(count: int, seed: int, appeal: Float64 | None = APART) -> pa.Table:
    return draw(
        ALIKE,
        RHO,
        np.concatenate([GAMMA, GAMMA]),
        np.concatenate([OMEGA, OMEGA]),
        count,
        seed,
        HALVES,
        appeal,
    )


def first_click(appeal: Float64, page: list[int], at: int) -> float:
    """The truth: P(the first click is there)."""
    weights = ALIKE[page] * appeal[:, page] * GAMMA[0, 0]
    return float(HALVES @ (weights[:, at] / (OMEGA[0, 0] + weights.sum(axis=1))))


def test_an_ad_loses_clicks_to_a_substitute_and_not_to_an_ad_that_others_like() -> None:
    log = sessions(30_000, seed=2)
    alike, apart = (
        LuceClick(components=1, **SETTINGS).fit(log),
        LuceClick(components=2, component_appeal_strength=3.0, **SETTINGS).fit(log),
    )
    errors = []
    for model in (alike, apart):
        for page in (
            [1, 0, 4, 5],
            [1, 2, 4, 5],
        ):  # beside its substitute, and beside an ad that the others like as much
            asked = {"query": ["q"], "ads": [[f"ad{i}" for i in page]], "clicks": [[]]}
            errors.append(float(model.next_click_prob(asked)[0, 0]) - first_click(APART, page, 0))
    assert errors[0] > 0.02  # one kind of users: too much beside its substitute
    assert errors[1] < -0.02  # and too little elsewhere
    assert np.abs(errors[2:]).max() < 0.01


def test_component_appeal_is_recovered_except_for_the_order_of_the_components() -> None:
    model = LuceClick(components=2, component_appeal_strength=1.0, **SETTINGS).fit(
        sessions(40_000, seed=3)
    )
    assert model.converged_
    ratio = np.log(model._component_appeal[:, 0] / model._component_appeal[:, 1])
    order = np.argsort(
        [
            int(ad.removeprefix("ad"))
            for ad in model._pairs.counts.ads.take(
                pa.array(model._pairs.counts.pair_ad)
            ).to_pylist()
        ]
    )
    found, truth = ratio[order] - ratio.mean(), np.log(APART[0] / APART[1])
    assert min(np.abs(found - truth).max(), np.abs(found + truth).max()) < 0.5


@pytest.mark.parametrize(("appeal", "differs"), [(APART, True), (None, False)])
def test_the_log_decides_for_component_appeal_where_components_differ(
    appeal: Float64 | None, differs: bool
) -> None:
    searched = {"component_appeal_strength": "auto", "components": "auto"}
    model = LuceClick(**SETTINGS | searched).fit(sessions(6_000, 4, appeal))
    assert (
        model.hyperparameters_["components"] > 1
        and model.hyperparameters_["component_appeal_strength"] is not None
    ) == differs


def test_attractiveness_is_the_chance_of_a_click_if_the_ad_stood_alone() -> None:
    """Not the mean odds, which would put first what half of the users like very much."""
    model = LuceClick(components=2, component_appeal_strength=3.0, **SETTINGS).fit(
        sessions(20_000, seed=5)
    )
    ads = [f"ad{i}" for i in range(6)]
    alone = model.click_prob({"query": ["q"] * 6, "ads": [[ad] for ad in ads], "clicks": [[]] * 6})[
        :, 0
    ]
    told = model.relevance({"query": ["q"] * 6, "ad": ads})["attractiveness"].to_numpy()
    np.testing.assert_allclose(told, alone, rtol=1e-9)
    np.testing.assert_allclose(told, HALVES @ (ALIKE * APART / (1 + ALIKE * APART)), atol=0.03)
    assert (model._relative_appeal(np.array([-1])) == 1).all()


@pytest.mark.parametrize("strength", [None, 1.0])
def test_a_pair_never_seen_is_the_most_uncertain(strength: float | None) -> None:
    log = {
        "query": ["q"] * 401,
        "ads": [["a", "b"]] * 400 + [["a", "rare"]],
        "clicks": [[1], [], [2], [2, 1]] * 100 + [[]],
    }
    model = LuceClick(components=2, component_appeal_strength=strength, **SETTINGS).fit(log)
    table = model.relevance({"query": ["q"] * 3, "ad": ["a", "rare", "never"]})
    low, high = (
        np.log(p / (1 - p))
        for p in (table[f"attractiveness_{end}"].to_numpy() for end in ("low", "high"))
    )
    often, once, never = high - low
    assert often < 0.5 * once
    assert never > 0.9 * once
    widths = (table["satisfaction_high"].to_numpy() - table["satisfaction_low"].to_numpy())[1:]
    assert widths[0] == pytest.approx(widths[1], rel=1e-6)  # neither was ever clicked


@pytest.mark.parametrize("strength", [None, 3.0])
def test_an_update_with_hardly_any_sessions_leaves_the_information_as_it_is(
    strength: float | None,
) -> None:
    model = LuceClick(components=2, component_appeal_strength=strength, **SETTINGS).fit(
        sessions(3_000, seed=8)
    )
    before, exposure = model._theta_information.copy(), model.exposure_.copy()
    for _ in range(2):
        model.update({"query": ["q"], "ads": [["ad0", "ad1"]], "clicks": [[]]})
    np.testing.assert_allclose(model._theta_information, before, rtol=0.05)
    np.testing.assert_allclose(model.exposure_, exposure, rtol=0.05)
    past = model._past.appeal_observed.sum()
    model.update({"query": ["q"], "ads": [["ad0", "ad1"]], "clicks": [[]]}, decay=0.5)
    assert model._past.appeal_observed.sum() == pytest.approx(past / 2, rel=0.01)


def test_an_ad_that_is_new_in_an_update_appeals_to_all_components_alike() -> None:
    model = LuceClick(components=2, component_appeal_strength=3.0, **SETTINGS).fit(
        sessions(3_000, seed=6)
    )
    before = dict(zip(model._pairs.counts.ads.to_pylist(), model._component_appeal, strict=True))
    model.update({"query": ["q"], "ads": [["new", "ad0"]], "clicks": [[]]})
    after = dict(zip(model._pairs.counts.ads.to_pylist(), model._component_appeal, strict=True))
    np.testing.assert_allclose(after["new"], 1, rtol=0.1)
    np.testing.assert_allclose(after["ad0"], before["ad0"], rtol=0.1)


def test_the_information_is_the_inverse_of_the_variance_by_plain_algebra() -> None:
    rng = np.random.default_rng(7)
    sessions, appeal, odds = (rng.gamma(2.0, size=(5, 3)) for _ in range(3))
    theta, mixing = rng.gamma(2.0, size=5), np.array([0.5, 0.3, 0.2])

    def logit(log_weights: Float64) -> float:
        mean = mean_attractiveness(np.exp(log_weights)[None], mixing)[0]
        return float(np.log(mean / (1 - mean)))

    found = combine_components(sessions, theta, appeal, logit_slopes(odds, mixing))
    for i in range(5):
        exact = np.diag([sessions[i].sum() + theta[i], *(sessions[i] + appeal[i])])
        exact[0, 1:] = exact[1:, 0] = sessions[i]
        at, tiny = np.log(odds[i]), 1e-6 * np.eye(3)
        moves = (np.full(3, 1e-6), *tiny)
        slope = np.array([logit(at + move) - logit(at - move) for move in moves]) / 2e-6
        assert 1 / found[i] == pytest.approx(slope @ np.linalg.inv(exact) @ slope, rel=1e-6)


def test_the_information_on_the_components_is_not_mixed_up() -> None:
    """Where nearly all users are of the second component, there is hardly any on the first."""
    made = objective_for(
        sessions(300, seed=9), Hyperparameters(components=2, component_appeal_strength=2.0)
    )
    now = made.initial_parameters()._replace(mixing=np.array([[1e-6, 1 - 1e-6]]))
    information = made.sessions.information(now).ads
    assert information[:, 0].max() < 1e-3 < information[:, 1].min()
