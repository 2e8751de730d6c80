"""The parametric bootstrap: a gain is compared with those on sessions simulated from the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy import stats

from reclick.engines import as_grouped
from reclick.fitting.search import N_SIMULATIONS, QUANTILE, exceeds_chance
from reclick.models import LuceClick
from reclick.models.luce.parameters import Hyperparameters
from reclick.models.luce.search import _ScoredFits
from tests.models.test_luce_search import make_prior
from tests.support.luce_world import GAMMA, OMEGA, RHO, THETA, draw


def replay(gains: list[float]) -> Callable[[np.random.Generator], float]:
    values: Iterator[float] = iter(gains)
    return lambda _: next(values)


GAINS = [9.0, 11.0, 10.0, 10.5, 9.5, 8.0, 12.0, 10.0]  # mean 10, deviation √1.5


def test_the_quantile_is_that_of_students_t() -> None:
    assert pytest.approx(stats.t.ppf(0.95, N_SIMULATIONS - 1), abs=5e-4) == QUANTILE


def test_the_limit_by_hand() -> None:
    limit = 10 + QUANTILE * np.sqrt(np.var(GAINS, ddof=1) * (1 + 1 / 8))
    assert 12 < limit < 13
    assert exceeds_chance(limit + 0.01, replay(GAINS), least=0.5)
    assert not exceeds_chance(limit - 0.01, replay(GAINS), least=0.5)
    assert not exceeds_chance(limit + 0.01, replay(GAINS), least=3.0)


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


def test_simulated_sessions_have_the_click_rates_of_the_model() -> None:
    log = draw(THETA, RHO, GAMMA, OMEGA, 4_000, 7)
    model = LuceClick(tune="off", position_effect_strength=None).fit(log)
    sessions = as_grouped(log)
    whole = sessions.whole.ungroup()
    trials = _ScoredFits(
        type(sessions)(sessions.counts, whole),
        type(sessions)(sessions.counts, whole),
        Hyperparameters(query_strength=None, position_effect_strength=None),
        make_prior,
    )
    fitted = trials.fit(Hyperparameters(query_strength=None), trials.pilot)
    rng = np.random.default_rng(3)
    clicks = np.concatenate([trials.simulate(fitted, rng).click for _ in range(10)])
    page = np.diff(whole.page)
    shown = np.bincount(np.concatenate([np.arange(size) for size in page])) * 10
    rates = np.bincount(clicks - 1, minlength=len(shown)) / shown
    expected = np.bincount(
        np.concatenate([np.arange(size) for size in page]),
        np.concatenate([row[~np.isnan(row)] for row in np.asarray(model.click_prob(log))]),
    ) / (shown / 10)
    np.testing.assert_allclose(rates, expected, rtol=0.06)


def test_sessions_are_ungrouped_in_an_order_of_their_own() -> None:
    log = draw(THETA, RHO, GAMMA, OMEGA, 300, 2)
    mixed = log.take(np.random.default_rng(0).permutation(len(log)))
    first, second = (as_grouped(each).whole.ungroup() for each in (log, mixed))
    assert len(first) == 300
    np.testing.assert_array_equal(first.weight, 1.0)
    for name in ("pair", "page", "click", "clicks"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_parts_of_a_session_keep_their_weight() -> None:
    block = as_grouped(draw(THETA, RHO, GAMMA, OMEGA, 300, 2)).whole
    parts = block.reweight(block.weight * 0.7).ungroup()
    assert parts.weight.max() <= 1.0
    assert parts.weight.sum() == pytest.approx(0.7 * block.weight.sum())
