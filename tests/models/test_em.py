"""The loop of expectation-maximisation on its own: a made-up objective, and what all iterative models do alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from reclick.errors import SettingError
from reclick.fitting.em import Fit, maximise_objective
from reclick.models import MODELS
from reclick.models.settings import check_whole

LOG = {
    "query": ["q"] * 2,
    "ads": [["a", "b"]] * 2,
    "clicks": [[1], []],
}  # stands still to the last bit long before 1,000 iterations
ITERATIVE = ["pbm", "ubm", "bbm", "dbn", "thcm", "ccm"]


def climbed(
    objective: Callable[[float], float], tolerance: float, iterations: int = 20
) -> Fit[float]:
    """x = 1, 1/2, 1/4, …"""
    return maximise_objective(
        1.0,
        [None],
        lambda x, _: {"log_likelihood": objective(x), "half": x / 2},
        lambda found: float(found["half"]),
        log_prior=lambda _: 0.0,
        sessions=1.0,
        max_iterations=iterations,
        tolerance=tolerance,
    )


def test_it_stops_when_the_gain_is_below_the_tolerance() -> None:
    fit = climbed(lambda x: -x, 0.1)
    assert fit.objective == (-1.0, -0.5, -0.25, -0.125, -0.0625)
    assert fit.converged
    assert fit.message == "converged after 5 iterations, gain 6.2e-02 < 0.1"


@pytest.mark.parametrize("tolerance", [0.0, -0.0, -1.0, -1e300])
@pytest.mark.parametrize("objective", [lambda x: -x, lambda _: -3.0], ids=["gains", "stands still"])
def test_a_tolerance_of_0_or_less_asks_for_all_iterations(
    objective: Callable[[float], float], tolerance: float
) -> None:
    fit = climbed(objective, tolerance)
    assert len(fit.objective) == 20
    assert not fit.converged
    assert fit.message.startswith("stopped after 20 iterations, gain ")
    assert fit.message.endswith(
        f"with tolerance {tolerance:g}, which asks for all of them: not converged"
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_an_objective_that_is_no_number_is_an_error(wrong: float) -> None:
    with pytest.raises(ArithmeticError, match=f"the objective is {wrong} at iteration 3"):
        climbed(lambda x: -x if x > 0.25 else wrong, 1e-5)


def test_an_objective_that_falls_is_an_error() -> None:
    with pytest.raises(
        ArithmeticError, match=r"the objective fell by 0\.5 a session at iteration 2"
    ):
        climbed(lambda x: x, 1e-5)


@pytest.mark.parametrize("name", ITERATIVE)
@pytest.mark.parametrize("tolerance", [0, -1.0])
def test_every_model_runs_all_iterations_when_asked(name: str, tolerance: float) -> None:
    settings: dict[str, Any] = {
        "max_iterations": 1000,
        "tolerance": tolerance,
        **({"continuation": 0.9} if name == "dbn" else {}),
    }
    model: Any = MODELS[name](**settings).fit(LOG)
    assert model.iterations_ == 1000
    assert model.converged_ is False


@pytest.mark.parametrize("name", ITERATIVE)
@pytest.mark.parametrize("wrong", [0, -3, 2.0, 0.5, True, "5", None, math.nan])
def test_iterations_are_a_whole_number(name: str, wrong: object) -> None:
    with pytest.raises(
        SettingError, match=f"max_iterations: got {wrong!r}, expected a whole number of 1 or more"
    ):
        MODELS[name](max_iterations=wrong)  # type: ignore[call-arg]


@pytest.mark.parametrize("good", [2, 3, 10**30])
def test_whole_numbers_from_the_least_on_are_taken(good: int) -> None:
    check_whole("folds", good, 2)
