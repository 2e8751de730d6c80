"""The parametric bootstrap: a gain is compared with those on sessions simulated from the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from reclick.data.ragged import Int32, Int64
from reclick.engines import as_grouped
from reclick.fitting.search import N_SIMULATIONS, QUANTILES, exceeds_chance
from reclick.models.luce.parameters import Hyperparameters
from reclick.models.luce.search import FULL, _ScoredFits
from tests.models.test_luce_search import make_prior
from tests.support.luce_world import GAMMA, OMEGA, RHO, THETA, draw


def replay(gains: list[float]) -> Callable[[np.random.Generator], float]:
    values: Iterator[float] = iter(gains)
    return lambda _: next(values)


GAINS = [9.0, 11.0, 10.0, 10.5, 9.5, 8.0, 12.0, 10.0]  # mean 10, deviation √1.5


@pytest.mark.parametrize("tests", QUANTILES)
def test_the_quantiles_are_those_of_students_t(tests: int) -> None:
    expected = stats.t.ppf(1 - 0.05 / tests, N_SIMULATIONS - 1)
    assert QUANTILES[tests] == pytest.approx(expected, abs=6e-4)


def test_the_search_has_a_quantile_for_all_its_tests() -> None:
    assert max(QUANTILES) == max(len(each.values) for each in FULL if each.name == "components")


def test_the_limit_by_hand() -> None:
    error = np.sqrt(np.var(GAINS, ddof=1) * (1 + 1 / 8))
    limit = 10 + QUANTILES[1] * error
    assert 12 < limit < 13
    assert exceeds_chance(limit + 0.01, replay(GAINS), least=0.5)
    assert not exceeds_chance(limit - 0.01, replay(GAINS), least=0.5)
    assert not exceeds_chance(limit + 0.01, replay(GAINS), least=3.0)
    assert not exceeds_chance(10 + 2.8 * error, replay(GAINS), 0.5, QUANTILES[4])
    assert exceeds_chance(10 + 2.9 * error, replay(GAINS), 0.5, QUANTILES[4])


def test_no_more_is_simulated_than_needed() -> None:
    assert not exceeds_chance(1.0, replay([]), least=1.0)
    assert not exceeds_chance(10.0, replay([9.0, 10.0]), least=1.0)


def test_few_gains_by_chance_exceed_the_limit() -> None:
    """A gain that is drawn like the simulated ones is significant in at most 5% of cases."""
    rng = np.random.default_rng(1)
    share = np.mean(
        [exceeds_chance(rng.normal(10, 2), lambda _: rng.normal(10, 2), 0.0) for _ in range(2_000)]
    )
    assert share < 0.065


def sequences_of(click: Int32, clicks: Int64) -> list[tuple[int, ...]]:
    return [tuple(click[start:end].tolist()) for start, end in pairwise(clicks.tolist())]


def test_sessions_are_simulated_from_the_model_that_is_scored() -> None:
    """How often each click sequence is drawn agrees with the probability that `score` gives it."""
    rng = np.random.default_rng(5)
    orders = ([1, 2, 3, 4], [4, 3, 2, 1])  # of two types of users
    clicks = [orders[i % 2][: rng.integers(0, 5)] for i in range(6_000)]
    query = [f"q{i % 3}" for i in range(6_000)]
    log = {"query": query, "ads": [["a", "b", "c", "d"]] * 6_000, "clicks": clicks}
    hyper = Hyperparameters(components=2, position_effect_strength=10.0)
    sessions = as_grouped(log)
    ungrouped = replace(sessions, whole=sessions.whole.ungroup())
    fits = _ScoredFits(ungrouped, ungrouped, hyper, make_prior)
    fitted = fits.fit(hyper, fits.pilot)
    whole = ungrouped.whole
    probability = dict(
        zip(
            zip(whole.query.tolist(), sequences_of(whole.click, whole.clicks), strict=True),
            np.exp(fits.score(fitted)).tolist(),
            strict=True,
        )
    )
    simulated = sequences_of(*fits.simulate(fitted, np.random.default_rng(3)))
    frequency = Counter(zip(whole.query.tolist(), simulated, strict=True))
    assert len(probability) > 20
    for key, p in probability.items():
        assert frequency[key] == pytest.approx(2_000 * p, abs=4.5 * np.sqrt(2_000 * p))
    weights = fitted.mixing.weights
    assert weights.min() > 0.2  # both types are there


def test_sessions_are_ungrouped_in_an_order_of_their_own() -> None:
    log = draw(THETA, RHO, GAMMA, OMEGA, 300, 2)
    mixed = log.take(np.random.default_rng(0).permutation(len(log)))
    first, second = (as_grouped(each).whole.ungroup() for each in (log, mixed))
    assert len(first) == 300
    np.testing.assert_array_equal(first.weight, 1.0)
    for name in ("pair", "page", "click", "clicks"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize(
    ("weights", "has_weights"),
    [
        (None, False),
        ([1.0] * 300, False),
        ([3.0] * 300, True),
        ([0.5, 1.5] * 150, True),
        ([0.0, 2.0] * 150, True),  # which add up to the number of rows
    ],
)
def test_a_log_knows_whether_it_has_weights(weights: list[float] | None, has_weights: bool) -> None:
    log = draw(THETA, RHO, GAMMA, OMEGA, 300, 2)
    if weights is not None:
        log = log.append_column("weight", pa.array(weights))
    sessions = as_grouped(log)
    assert sessions.has_weights == has_weights
    assert sessions.reweight(sessions.weight * 0.7).has_weights
