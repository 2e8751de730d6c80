"""SDBN: by hand, and from simulated sessions. Brute force is in tests/conformance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reclick.errors import SettingError
from reclick.models import DBN, SDBN
from tests.support.cascades import (
    assert_keeps_its_promises,
    drawn,
    random_pages,
    small_log,
    spread,
    with_values,
)

LOG = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[1], [1, 2], [3, 1], []]}


def test_satisfaction_is_lowest_clicks_over_clicks() -> None:
    model = SDBN(attractiveness_strength=0, satisfaction_strength=0).fit(LOG)
    np.testing.assert_allclose(model.exposure_, [4, 3, 2])
    np.testing.assert_allclose(model.theta_, [3 / 4, 1 / 3, 1 / 2])
    np.testing.assert_allclose(
        model.rho_, [1 / 3, 1, 1]
    )  # in session 3 the click on c counts as the last


def test_priors_add_pseudo_observations() -> None:
    model = SDBN(
        attractiveness_prior=0.5,
        attractiveness_strength=2,
        satisfaction_prior=0.25,
        satisfaction_strength=4,
    ).fit(LOG)
    np.testing.assert_allclose(model.theta_, [4 / 6, 2 / 5, 2 / 4])
    np.testing.assert_allclose(model.rho_, [2 / 7, 2 / 5, 2 / 5])
    assert SDBN().fit(LOG).satisfaction_ == pytest.approx(3 / 5)


def test_parameters_are_recovered_where_whoever_goes_on_clicks_again() -> None:
    # An ad at the bottom that everybody clicks who looks at it makes the last click above it a
    # satisfied one, as counting supposes. Tolerance: 0.02 for θ, 0.05 for ρ, of which there are
    # fewer observations.
    pages = random_pages(40_000, 6, 3, seed=1, bottom="sure")
    theta, rho = np.append(spread(6, 0.1, 0.7), 1.0), np.append(spread(6, 0.8, 0.2), 1.0)
    model = SDBN().fit(drawn(with_values(SDBN(), pages, theta_=theta, rho_=rho), pages, 2))
    np.testing.assert_allclose(model.theta_, theta, atol=0.02)
    np.testing.assert_allclose(model.rho_, rho, atol=0.05)


def test_elsewhere_the_same_model_fitted_to_its_likelihood_is_nearer() -> None:
    pages = random_pages(30_000, 6, 3, seed=3)
    theta, rho = spread(6, 0.1, 0.5), spread(6, 0.6, 0.2)
    log = drawn(with_values(SDBN(), pages, theta_=theta, rho_=rho), pages, 4)
    counted, fitted = (
        SDBN().fit(log),
        DBN(continuation=1, max_iterations=500, tolerance=1e-7).fit(log),
    )
    assert np.abs(counted.rho_ - rho).mean() > 0.2
    assert np.abs(fitted.rho_ - rho).mean() < 0.05
    assert fitted.log_prob(log).mean() > counted.log_prob(log).mean()


def test_promises_are_kept(tmp_path: Path) -> None:
    assert_keeps_its_promises(SDBN, tmp_path)
    assert np.isfinite(
        SDBN(attractiveness_strength=0, satisfaction_strength=0).fit(small_log(2)).click_prob(LOG)
    ).all()


def test_an_ad_clicked_is_satisfying_as_relevance_says_with_an_interval() -> None:
    table = (
        SDBN(satisfaction_prior=0.5, satisfaction_strength=2)
        .fit(LOG)
        .relevance({"query": ["q", "new"], "ad": ["a", "a"]})
    )
    np.testing.assert_allclose(table["satisfaction"], [2 / 5, 0.5])
    assert (np.array(table["satisfaction_low"]) < np.array(table["satisfaction"])).all()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="satisfaction_prior"):
        SDBN(satisfaction_prior=1.5)
    with pytest.raises(SettingError, match="satisfaction_strength"):
        SDBN(satisfaction_strength=-1)
