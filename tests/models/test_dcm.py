"""DCM: by hand, and from simulated sessions. Brute force is in tests/conformance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reclick.errors import SettingError
from reclick.models import DCM
from tests.support.cascades import (
    assert_keeps_its_promises,
    drawn,
    random_pages,
    small_log,
    spread,
    with_values,
)

# looks: a 1 + 1 + 1 + 1, b 0 + 1 + 1 + 1, c 0 + 0 + 1 + 1 (session 3 has its lowest click at 3,
# session 4 none)
LOG = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[1], [1, 2], [3, 1], []]}


def test_attractiveness_and_continuation_are_counted_down_to_the_lowest_click() -> None:
    model = DCM(attractiveness_strength=0, continuation_strength=0).fit(LOG)
    np.testing.assert_allclose(model.exposure_, [4, 3, 2])
    np.testing.assert_allclose(model.theta_, [3 / 4, 1 / 3, 1 / 2])
    np.testing.assert_allclose(model.continuation_, [2 / 3, 0, 0])


def test_priors_add_pseudo_observations() -> None:
    model = DCM(
        attractiveness_prior=0.5,
        attractiveness_strength=2,
        continuation_prior=0.25,
        continuation_strength=4,
    ).fit(LOG)
    np.testing.assert_allclose(model.theta_, [4 / 6, 2 / 5, 2 / 4])
    np.testing.assert_allclose(model.continuation_, [3 / 7, 1 / 5, 1 / 5])
    assert DCM().fit(LOG).overall_continuation_ == pytest.approx(
        2 / 5
    )  # of 5 clicks, 3 were the last
    history = {"query": ["h"], "ads": [["x", "y", "z", "u"]], "clicks": [[1, 2, 3, 4]]}
    assert DCM().fit(LOG, history=history).overall_continuation_ == pytest.approx(3 / 4)


def test_positions_below_any_seen_go_on_with_the_prior_mean() -> None:
    model = DCM(continuation_prior=0.3, attractiveness_prior=0.5).fit(
        {"query": ["q"], "ads": [["a"]], "clicks": [[]]}
    )
    asked = {"query": ["other"] * 3, "ads": [["x", "y", "z"]] * 3, "clicks": [[2], [2, 3], [1, 2]]}
    after_two = [
        0.5 * 0.5 * (1 - 0.3 * 0.5),
        0.5 * 0.5 * 0.3 * 0.5,
        0.5 * 0.3 * 0.5 * (1 - 0.3 * 0.5),
    ]
    np.testing.assert_allclose(np.exp(model.log_prob(asked)), after_two, rtol=1e-12)


def test_parameters_are_recovered_where_whoever_goes_on_clicks_again() -> None:
    # An ad at the bottom that everybody clicks who looks at it makes the last click the end, as the
    # one-pass estimate supposes. Tolerance 0.02.
    pages = random_pages(30_000, 6, 3, seed=1, bottom="sure")
    theta, going = np.append(spread(6, 0.1, 0.7), 1.0), np.array([0.8, 0.6, 0.4, 0.0])
    model = DCM().fit(drawn(with_values(DCM(), pages, theta_=theta, continuation_=going), pages, 2))
    np.testing.assert_allclose(model.theta_, theta, atol=0.02)
    np.testing.assert_allclose(model.continuation_, going, atol=0.02)


def test_elsewhere_looks_below_the_last_click_are_missed_so_attractiveness_is_too_high() -> None:
    pages = random_pages(30_000, 6, 3, seed=3)
    theta, going = spread(6, 0.1, 0.7), np.array([0.8, 0.6, 0.4])
    model = DCM().fit(drawn(with_values(DCM(), pages, theta_=theta, continuation_=going), pages, 4))
    assert (model.theta_ > theta).all()
    assert (np.diff(model.theta_) > 0).all()
    assert (model.continuation_[:2] < going[:2]).all()


def test_promises_are_kept(tmp_path: Path) -> None:
    assert_keeps_its_promises(DCM, tmp_path)
    assert np.isfinite(
        DCM(attractiveness_strength=0, continuation_strength=0).fit(small_log(2)).click_prob(LOG)
    ).all()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="continuation_prior"):
        DCM(continuation_prior="words")
    with pytest.raises(SettingError, match="continuation_strength"):
        DCM(continuation_strength=-1)
