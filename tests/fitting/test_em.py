"""The EM loop on its own, statistics that add up, and what all iterative models do alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.engines import LocalEngine, as_grouped
from reclick.engines.duckdb import DuckDBEngine
from reclick.errors import FitError, SettingError
from reclick.fitting.beta import BetaPrior
from reclick.fitting.em import (
    FitResult,
    PairSums,
    Squarem,
    Statistics,
    run_em,
    squarem_norms,
    squarem_step,
)
from reclick.models import MODELS, ccm, dbn, pom, scan, thcm
from reclick.models.kernels import examination_em
from reclick.models.kernels.cascade import as_cascade_block
from reclick.models.kernels.examination_em import (
    ExaminationParameters,
    ExaminationPrior,
    build_cells,
)
from tests.support.enumeration import as_table, random_sessions

# Stands still to the last bit long before 1,000 iterations.
LOG = {"query": ["q"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
ITERATIVE = ["pbm", "ubm", "bbm", "dbn", "thcm", "scan", "pom", "ccm"]


def halve(
    objective: Callable[[float], float], tolerance: float, *, quiet: bool = False
) -> FitResult[float, Statistics]:
    """x = 1, 1/2, 1/4, …"""
    return run_em(
        1.0,
        [None],
        lambda x, _: Statistics(objective(x)),
        lambda x, _: x / 2,
        log_prior=lambda _: 0.0,
        sessions=1.0,
        max_iterations=20,
        tolerance=tolerance,
        quiet=quiet,
    )


# ---- the loop


def test_it_stops_when_the_gain_is_below_the_tolerance() -> None:
    fit = halve(lambda x: -x, 0.1)
    assert fit.objective == (-1.0, -0.5, -0.25, -0.125, -0.0625)
    assert fit.converged
    assert fit.parameters == 0.0625
    assert fit.message == "converged after 5 iterations, gain 6.2e-02 < 0.1"


@pytest.mark.parametrize("tolerance", [0.0, -0.0, -1.0, -1e300])
@pytest.mark.parametrize("objective", [lambda x: -x, lambda _: -3.0], ids=["gains", "stands still"])
def test_a_tolerance_of_0_or_less_asks_for_all_iterations(
    objective: Callable[[float], float], tolerance: float
) -> None:
    fit = halve(objective, tolerance)
    assert len(fit.objective) == 20
    assert not fit.converged
    assert fit.parameters == 0.5**20  # the last step counts too
    assert fit.message.startswith("stopped after 20 iterations, gain ")
    assert fit.message.endswith(
        f"with tolerance {tolerance:g}, which asks for all of them: not converged"
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_an_objective_that_is_no_number_is_an_error(wrong: float) -> None:
    with pytest.raises(FitError, match=f"the objective is {wrong} at iteration 3"):
        halve(lambda x: -x if x > 0.25 else wrong, 1e-5)


def test_an_objective_that_falls_is_an_error() -> None:
    with pytest.raises(FitError, match=r"the objective fell by 0\.5 per session at iteration 2"):
        halve(lambda x: x, 1e-5)


def test_a_quiet_loop_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    halve(lambda x: -x, 0, quiet=True)
    assert not caplog.records
    halve(lambda x: -x, 0)
    assert "not converged" in caplog.text


def test_gains_are_counted_from_where_the_parameters_are_normalised() -> None:
    # The likelihood is −x of any y; the prior −y, which the step raises and normalising sets to 0.
    fit = run_em(
        (1.0, 0.0),
        [None],
        lambda now, _: Statistics(-now[0]),
        lambda now, _: (now[0] / 2, 0.01),
        log_prior=lambda now: -now[1],
        sessions=1.0,
        max_iterations=4,
        tolerance=0,
        normalise=lambda now, _: (now[0], 0.0),
        accelerate=Squarem(lambda first, second, third, limit: (third, 1.0)),
    )
    assert fit.parameters == (0.125, 0.0)
    assert fit.objective[-1] == -0.125
    assert np.diff(fit.objective) == pytest.approx([0.49, 0.24, 0.115])


# ---- acceleration


def slow_ascent(accelerate: Squarem[Any] | None) -> FitResult[Any, Statistics]:
    """x → 0.9 x + 0.1 of each element: linear convergence to 1."""
    return run_em(
        np.array([0.1, 3.0]),
        [None],
        lambda x, _: Statistics(-float(((x - 1) ** 2).sum())),
        lambda x, _: 0.9 * x + 0.1,
        log_prior=lambda _: 0.0,
        sessions=1.0,
        max_iterations=1000,
        tolerance=1e-12,
        accelerate=accelerate,
    )


def squarem(first: Any, second: Any, third: Any, limit: float) -> tuple[Any, float]:
    step, change = squarem_norms(first, second, third, np.ones(len(first)))
    length = float(np.clip(math.sqrt(step / change), 1.0, limit))
    return squarem_step(first, second, third, length, 1e12), length


def test_squarem_reaches_the_same_point_in_fewer_iterations() -> None:
    slow, fast = slow_ascent(None), slow_ascent(Squarem(squarem))
    assert fast.converged
    assert len(fast.objective) < len(slow.objective) / 3
    np.testing.assert_allclose(fast.parameters, slow.parameters, atol=1e-5)
    assert (np.diff(fast.objective) >= -1e-12).all()


def test_an_extrapolation_that_would_fall_is_not_taken() -> None:
    limits = []

    def too_far(first: Any, second: Any, third: Any, limit: float) -> tuple[Any, float]:
        limits.append(limit)
        return third * 100, limit

    fit = slow_ascent(Squarem(too_far))
    assert fit.converged
    assert limits[:4] == [4.0, 2.0, 2.0, 2.0]
    np.testing.assert_allclose(fit.parameters, 1.0, atol=1e-4)


def test_a_step_of_length_1_is_the_third_point() -> None:
    first, second, third = np.array([[0.1, 2.0, 0.5], [0.2, 1.5, 0.5], [0.25, 1.3, 0.5]])
    np.testing.assert_allclose(squarem_step(first, second, third, 1.0, 1e12), third)


# ---- statistics


def statistics(seed: int, first: int, size: int) -> Statistics:
    rng = np.random.default_rng(seed)
    pairs = PairSums.of(first, examinations=rng.random(size), satisfied=rng.random(size))
    return Statistics(float(rng.integers(9)), {"moves": rng.integers(9, size=3) / 8}, pairs)


@given(st.lists(st.integers(0, 5), min_size=3, max_size=6), st.integers(0, 99))
def test_statistics_add_associatively_and_lay_pairs_side_by_side(
    sizes: list[int], seed: int
) -> None:
    firsts = np.cumsum([0, *sizes[:-1]]).tolist()
    parts = [
        statistics(seed + i, first, size)
        for i, (first, size) in enumerate(zip(firsts, sizes, strict=True))
    ]
    left, right = parts[0], parts[-1]
    for part in parts[1:]:
        left = left + part
    for part in parts[-2::-1]:
        right = part + right
    swapped = parts[-1]
    for part in parts[:-1]:
        swapped = swapped + part
    for total in (right, swapped):
        assert total.log_likelihood == left.log_likelihood
        assert np.array_equal(total.totals["moves"], left.totals["moves"])
        for name in ("examinations", "satisfied"):
            whole = np.concatenate([part.pairs.runs(name)[0][1] for part in parts])
            assert np.array_equal(total.pairs[name], left.pairs[name])
            assert np.array_equal(total.pairs[name], whole)


def test_names_have_runs_of_their_own() -> None:
    pairs = (
        PairSums.of(0, a=np.ones(2))
        + PairSums.of(0, b=np.zeros(1))
        + PairSums.of(2, a=np.array([5.0]))
    )
    assert pairs["a"].tolist() == [1, 1, 5]
    assert pairs["b"].tolist() == [0]


def test_a_gap_between_runs_is_an_error() -> None:
    with pytest.raises(ValueError, match="a run starts at row 3 where 2 was expected"):
        (PairSums.of(0, a=np.ones(2)) + PairSums.of(3, a=np.ones(1)))["a"]


@pytest.mark.parametrize("name", ["examination", "dbn", "ccm", "thcm", "scan", "pom"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_e_step_of_blocks_adds_up_to_that_of_the_whole(name: str, n: int) -> None:
    rng = np.random.default_rng(n)
    sessions = as_grouped(as_table(random_sessions(rng, 150, queries="pqrstuv", longest=5)))
    theta, rho = rng.uniform(0.1, 0.9, (2, len(sessions.counts.impressions)))
    length = sessions.max_ads
    pairs = BetaPrior(theta, rng.uniform(0.5, 4.0, len(theta)))
    prior = ExaminationPrior(pairs, rng.uniform(0.1, 0.9, length), 1.0)
    prepare: Any
    e_step: Any
    e_step, parameters, prepare = {
        "examination": (
            examination_em.e_step,
            ExaminationParameters(rho, prior.gamma),
            lambda block: build_cells(block, length=length, browsing=False).with_prior(pairs),
        ),
        "dbn": (dbn.e_step, dbn.DBNParameters(theta, rho, 0.8), as_cascade_block),
        "ccm": (ccm.e_step, ccm.CCMParameters(theta, np.array([0.9, 0.7, 0.4])), as_cascade_block),
        "thcm": (
            thcm.e_step,
            thcm.THCMParameters(theta, np.array([0.6, 0.3, 0.1])),
            lambda block: block,
        ),
        "scan": (
            scan.e_step,
            scan.ScanParameters(
                theta,
                rho,
                rng.uniform(0.1, 0.9, (length + 1, length)),
                rng.uniform(0.1, 0.9, length + 1),
            ),
            lambda block: block,
        ),
        "pom": (
            pom.e_step,
            pom.POMParameters(theta, pom.prior_moves(length)),
            lambda block: block,
        ),
    }[name]
    engine = LocalEngine(threads=2)
    whole = e_step(parameters, prepare(sessions.whole))
    parts = engine.reduce(e_step, parameters, engine.prepare(prepare, sessions.blocks(n)))
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    for total in whole.totals:
        np.testing.assert_allclose(parts.totals[total], whole.totals[total], rtol=1e-12)
    for total in ("examinations", "satisfied", "relevant", "skips"):
        if whole.pairs.runs(total):
            np.testing.assert_allclose(parts.pairs[total], whole.pairs[total], rtol=1e-12)


# ---- all iterative models


@pytest.mark.parametrize("name", ITERATIVE)
def test_engines_and_blocks_lead_to_the_same_fit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = random_sessions(np.random.default_rng(3), 300, queries="pqrstuv", longest=5)
    log = as_table(sessions)
    whole: Any = MODELS[name]().fit(log, engine=LocalEngine(threads=1))
    monkeypatch.setattr("reclick.data.grouped_sessions.BLOCK_IMPRESSIONS", 100)
    one: Any = MODELS[name]().fit(log, engine=LocalEngine(threads=1))
    assert one.iterations_ == whole.iterations_
    np.testing.assert_allclose(one.theta_, whole.theta_, rtol=1e-9)
    for engine in (LocalEngine(threads=4), DuckDBEngine(memory_limit="200MB", threads=2)):
        other: Any = MODELS[name]().fit(log, engine=engine)
        assert other.iterations_ == one.iterations_
        assert np.array_equal(other.theta_, one.theta_)
        np.testing.assert_allclose(other.log_prob(log), one.log_prob(log), rtol=1e-9)
    assert "_engine" not in vars(one)


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
        MODELS[name](max_iterations=wrong)
