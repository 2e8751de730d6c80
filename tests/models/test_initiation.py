"""Initiation in CM, DCM, SDBN and CCM: by hand, against enumeration, and recovery.

DBN's is in test_dbn_initiation.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.engines import as_grouped
from reclick.models import CCM, CM, DCM, SDBN, ClickModel
from reclick.models.kernels.initiation import InitiationParameters, e_step, split_to_last_click
from tests.support.cascades import (
    assert_keeps_its_promises,
    assert_never_falls,
    drawn,
    random_pages,
    small_log,
    spread,
    with_values,
)

MODELS: list[type[Any]] = [CM, DCM, SDBN, CCM]
every_model = pytest.mark.parametrize("model", MODELS)


def test_expectations_of_a_hand_worked_example() -> None:
    # θ = .5, .2 and μ = .6: B = .4, so P(no click) = .4 + .24 = .64, of which .24 initiated.
    log = {"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[], [1], [2]]}
    parameters = InitiationParameters(np.array([0.5, 0.2]), 0.6)
    found = e_step(parameters, split_to_last_click(as_grouped(log).whole))
    share = 0.24 / 0.64
    assert found.pairs["initiated"] == pytest.approx(2 + share)
    np.testing.assert_allclose(found.pairs["examinations"], [2 + share, 1 + share])
    expected = np.log(0.64) + np.log(0.6 * 0.5) + np.log(0.6 * 0.5 * 0.2)
    assert found.log_likelihood == pytest.approx(expected)


@every_model
@pytest.mark.parametrize("initiation", ["one", "query"])
def test_the_objective_never_falls(model: type[Any], initiation: str) -> None:
    fitted = model(initiation=initiation).fit(small_log(3))
    assert_never_falls(fitted.objective_)
    assert 0 < fitted.initiation_ < 1
    assert (fitted.query_initiation_ is None) == (initiation == "one")


@every_model
def test_without_initiation_everybody_examines_the_top(model: type[Any]) -> None:
    fitted = model().fit(small_log(3))
    assert (fitted.initiation_, fitted.query_initiation_) == (1.0, None)


@every_model
@pytest.mark.parametrize("initiation", ["one", "query"])
def test_promises_are_kept(model: type[Any], initiation: str, tmp_path: Path) -> None:
    assert_keeps_its_promises(lambda: model(initiation=initiation), tmp_path)


@pytest.mark.parametrize("initiation", [None, "one", "query"])
def test_cm_counts_down_to_the_first_click(initiation: str | None) -> None:
    log = {"query": ["q"] * 6, "ads": [list("abc")] * 6}
    several, first = (
        CM(initiation=initiation).fit({**log, "clicks": clicks})
        for clicks in (
            [[1, 3], [3, 2], [], [2], [], [1]],
            [[1], [2], [], [2], [], [1]],
        )
    )
    np.testing.assert_allclose(several.theta_, first.theta_)
    assert several.initiation_ == pytest.approx(first.initiation_)


@every_model
def test_a_query_with_few_sessions_is_drawn_to_the_mean_of_all(model: type[Any]) -> None:
    clicks: list[list[int]] = [[1], [], [], []] * 10 + [[1], [2], [3], [1]] * 10
    log = {"query": ["few"] * 40 + ["many"] * 40, "ads": [list("abc")] * 80, "clicks": clicks}
    loose, strong = (model(initiation="query", query_strength=s).fit(log) for s in (1, 1e6))
    np.testing.assert_allclose(strong.query_initiation_, strong.initiation_, atol=1e-4)
    few, many = loose.query_initiation_
    assert few < loose.initiation_ < many
    assert loose.initiation_ == strong.initiation_


TRUTHS: dict[type[ClickModel], dict[str, Any]] = {
    CM: {},
    SDBN: {"rho_": np.full(12, 1e-9)},  # else counting, which takes last clicks as satisfied, errs
    CCM: {"alpha_": np.array([0.95, 0.8, 0.4])},
}
LIMITS: dict[type[ClickModel], dict[str, Any]] = {CCM: {"max_iterations": 1000, "tolerance": 1e-9}}


@pytest.mark.parametrize("model", TRUTHS)
def test_parameters_are_recovered_from_its_own_samples(model: type[Any]) -> None:
    """Tolerance: 0.03 for μ and θ. Ads change positions: else only the product μθ is known."""
    n, ads = 40_000, 6
    pages = pa.concat_tables(
        random_pages(n, ads, 5, seed).set_column(0, "query", pa.array([name] * n))
        for seed, name in enumerate("ab")
    )
    theta = np.concatenate([spread(ads, 0.3, 0.8), spread(ads, 0.7, 0.4)])
    initiation = np.array([0.9, 0.5])
    truth = with_values(
        model(initiation="query"),
        pages,
        theta_=theta,
        query_initiation_=initiation,
        **TRUTHS[model],
    )
    settings = {"initiation": "query", "attractiveness_prior": "overall", **LIMITS.get(model, {})}
    found = model(**settings).fit(drawn(truth, pages, 2))
    np.testing.assert_allclose(found.query_initiation_, initiation, atol=0.03)
    if model is not SDBN:  # all users of SDBN scan on here, below their last click too
        np.testing.assert_allclose(found.theta_, theta, atol=0.03)
