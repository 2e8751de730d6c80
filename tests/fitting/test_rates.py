"""Rates of rows with a Beta prior: by hand, common to all rows, and as distributions."""

from __future__ import annotations

import numpy as np
import pytest

from reclick.fitting.rates import MAX_VARIANCE, RateTable


def test_counted_rates_and_their_betas_by_hand() -> None:
    rates = RateTable.count(np.array([3.0, 0.0]), np.array([4.0, 0.0]), 0.5, 2.0)
    np.testing.assert_allclose(rates.mean, [(3 + 1) / (4 + 2), 0.5])
    found = rates.posterior(np.array([1, 0, -1]))
    np.testing.assert_allclose(found.mean, [0.5, 4 / 6, 0.5])
    np.testing.assert_allclose(found.strength, [2.0, 6.0, 2.0])


def test_without_a_prior_a_rate_may_be_certain_and_one_without_trials_is_the_mean() -> None:
    rates = RateTable.count(np.array([2.0, 0.0, 0.0]), np.array([2.0, 3.0, 0.0]), 0.3, 0.0)
    np.testing.assert_array_equal(rates.mean, [1.0, 0.0, 0.3])


def test_one_rate_for_all_rows_is_estimated_from_all_of_them() -> None:
    rates = RateTable.build(3, 0.5, None).m_step(np.array([2.0, 0, 1]), np.array([4.0, 2, 3]))
    np.testing.assert_allclose(rates.mean, (3 + 0.5) / (9 + 1))
    assert rates.unseen_mean == pytest.approx(0.35)
    assert (rates.with_variance(np.zeros(3)).variance == 0).all()


def test_the_past_counts_as_more_trials() -> None:
    fresh = RateTable.build(2, 0.4, 5.0)
    past = fresh.remember(np.array([1.0, 0.0]), np.array([2.0, 2.0]))
    one = past.m_step(np.array([3.0, 1.0]), np.array([4.0, 1.0]))
    two = fresh.m_step(np.array([4.0, 1.0]), np.array([6.0, 3.0]))
    np.testing.assert_allclose(one.mean, two.mean)


def test_the_centre_of_a_rate_has_its_mean_to_second_order() -> None:
    rates = RateTable.build(4, 0.4, 8.0).with_values(np.array([0.1, 0.4, 0.5, 0.97]))
    rates = rates.with_variance(np.zeros(4))
    assert (rates.variance > 0).all()
    assert (rates.variance <= MAX_VARIANCE).all()
    c, half = rates.centre(), rates.variance / 2
    np.testing.assert_allclose(c + half * c * (1 - c) * (1 - 2 * c), rates.mean, atol=1e-9)
    np.testing.assert_array_equal(rates.without_variance().centre(), rates.mean)


def test_an_m_step_raises_the_log_density_of_trials_and_prior() -> None:
    rates = RateTable.build(3, 0.3, 4.0).remember(np.array([5.0, 0, 1]), np.array([6.0, 2, 2]))
    rates = rates.with_variance(np.full(3, 0.2))
    best = rates.m_step(np.zeros(3), np.zeros(3))
    for step in (-0.02, 0.02):
        assert best.log_prior() > best.with_values(best.mean + step).log_prior()
    assert best.log_prior() > rates.log_prior()
