"""CM: by hand, and from simulated sessions. Brute force is in tests/conformance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reclick.errors import SettingError
from reclick.models import CM
from tests.support.cascades import (
    assert_keeps_its_promises,
    drawn,
    random_pages,
    small_log,
    spread,
    with_values,
)

# a is looked at in all 5 sessions, b in the four where a was not clicked before it; the second
# click of [1, 2] is not of this model
LOG = {
    "query": ["q"] * 5,
    "ads": [["a", "b"]] * 4 + [["b", "a"]],
    "clicks": [[1, 2], [2], [], [2], [2]],
}


def test_attractiveness_is_first_clicks_over_looks_down_to_the_first_click() -> None:
    model = CM(attractiveness_strength=0).fit(LOG)
    np.testing.assert_allclose(model.exposure_, [5, 4])
    np.testing.assert_allclose(model.theta_, [2 / 5, 2 / 4])


def test_the_prior_adds_looks_at_its_mean() -> None:
    np.testing.assert_allclose(
        CM(attractiveness_prior=0.25, attractiveness_strength=4).fit(LOG).theta_, [3 / 9, 3 / 8]
    )
    overall = CM(attractiveness_strength=1).fit(LOG)
    assert overall.prior_mean_ == pytest.approx(1 / 5)  # the click rate of the top position
    np.testing.assert_allclose(overall.theta_, [2.2 / 6, 2.2 / 5])


def test_two_clicks_are_impossible() -> None:
    model = CM().fit(LOG)
    two = {"query": ["q"], "ads": [["a", "b"]], "clicks": [[1, 2]]}
    assert model.log_prob(two)[0] == model.log_set_prob(two)[0] == -np.inf
    assert "two clicks have probability 0" in CM.assumes


def test_attractiveness_is_recovered_to_0_02_from_its_own_samples() -> None:
    pages = random_pages(30_000, 8, 4, seed=1)
    theta = spread(8, 0.05, 0.7)
    model = CM().fit(drawn(with_values(CM(), pages, theta_=theta), pages, 2))
    np.testing.assert_allclose(model.theta_, theta, atol=0.02)


def test_promises_are_kept(tmp_path: Path) -> None:
    assert_keeps_its_promises(CM, tmp_path)
    assert np.isfinite(CM(attractiveness_strength=0).fit(small_log(2)).click_prob(LOG)).all()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="attractiveness_strength"):
        CM(attractiveness_strength=-1)
    with pytest.raises(SettingError, match="attractiveness_prior"):
        CM(attractiveness_prior="history")
