"""Beta quantiles against SciPy, intervals at their edges, the Beta of a product by Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from reclick.errors import SettingError
from reclick.fitting.beta import beta_quantile, credible_interval, product_beta


def check_against_scipy(p: object, a: object, b: object) -> None:
    """Within 1e-9, and 1e-6 of the value; or nearer to p than SciPy (which slips at 1e8, 1e3)."""
    expected = special.betaincinv(a, b, p)
    got = beta_quantile(p, a, b)  # type: ignore[arg-type]
    error = np.abs(got - expected)
    near = (error <= 1e-9) & ((error <= 1e-6 * expected) | (expected < 1e-290))
    nearer = np.abs(special.betainc(a, b, got) - p) <= np.abs(special.betainc(a, b, expected) - p)
    assert (near | nearer).all()
    assert near.mean() > 0.999 or near.size == 1


def test_quantiles_equal_scipy_over_twelve_decades_of_both_parameters() -> None:
    rng = np.random.default_rng(0)
    size = 50_000
    a, b = 10 ** rng.uniform(-3, 9, (2, size))
    p = np.where(rng.random(size) < 0.5, rng.random(size), 10 ** rng.uniform(-8, -0.3, size))
    check_against_scipy(np.where(rng.random(size) < 0.2, 1 - p, p), a, b)


def test_quantiles_equal_scipy_on_whole_and_half_parameters() -> None:
    values = np.array([0.5, 1, 1.5, 2, 3, 10, 100, 499, 500, 501, 1000, 1e5])
    check_against_scipy(*np.meshgrid([1e-6, 0.025, 0.05, 0.5, 0.9, 0.95, 0.999], values, values))


@settings(deadline=None, max_examples=300)
@given(p=st.floats(1e-6, 1 - 1e-6), log_a=st.floats(-3, 9), log_b=st.floats(-3, 9))
def test_quantiles_equal_scipy_wherever_hypothesis_looks(
    p: float, log_a: float, log_b: float
) -> None:
    check_against_scipy(np.array([p]), np.array([10**log_a]), np.array([10**log_b]))


def test_a_quantile_where_scipy_slips_gives_its_probability_back() -> None:
    x = beta_quantile(0.046875, 1e8, 1e3)
    assert special.betainc(1e8, 1e3, x) == pytest.approx(0.046875, abs=1e-9)


def test_quantiles_known_in_closed_form() -> None:
    p = np.linspace(0, 1, 11)
    np.testing.assert_allclose(beta_quantile(p, 1, 1), p, atol=1e-12)
    np.testing.assert_allclose(beta_quantile(p, 3, 1), p ** (1 / 3), atol=1e-12)
    np.testing.assert_allclose(beta_quantile(p, 1, 4), 1 - (1 - p) ** 0.25, atol=1e-12)
    np.testing.assert_allclose(beta_quantile(p, 0.5, 0.5), np.sin(np.pi * p / 2) ** 2, atol=1e-12)
    assert beta_quantile(0.5, 1e-3, 1e-3) == pytest.approx(0.5, abs=1e-9)


def test_quantiles_outside_their_domain_are_nan_and_shapes_broadcast() -> None:
    assert np.isnan(beta_quantile([-0.1, 1.1, np.nan, 0.5, 0.5], 1, [1, 1, 1, 0, -1])).all()
    assert beta_quantile([[0.1], [0.9]], [1, 2, 3], 1).shape == (2, 3)
    assert beta_quantile(0.5, 2, 2).shape == ()
    assert beta_quantile([], 2, 2).shape == (0,)


def test_parameters_of_any_size_have_quantiles() -> None:
    """As of a damaged model; 2.388 and 8.4e305 once divided by zero."""
    sizes = [2.388, 8.384706186429095e305, 1e-5, 1e18, *10.0 ** np.arange(-300, 309, 7)]
    p, a, b = np.meshgrid([1e-6, 0.05, 0.5, 0.95, 1 - 1e-6], sizes, sizes)
    quantiles = beta_quantile(p, a, b)
    assert ((quantiles >= 0) & (quantiles <= 1)).all()
    assert beta_quantile(0.05, 1e308, 1e308) == 0.5


def test_an_interval_is_the_two_quantiles_of_its_beta() -> None:
    low, high = credible_interval([0.1, 0.5], [20, 4], level=0.8)
    np.testing.assert_allclose(low, special.betaincinv([2, 2], [18, 2], 0.1), atol=1e-9)
    np.testing.assert_allclose(high, special.betaincinv([2, 2], [18, 2], 0.9), atol=1e-9)


def test_nothing_known_is_the_whole_range_and_certainty_a_point() -> None:
    low, high = credible_interval([0.3, 0.0, 0.0, 1.0, 0.3], [0, 0, 10, 10, np.inf])
    assert low.tolist() == [0, 0, 0, 1, 0.3]
    assert high.tolist() == [1, 1, 0, 1, 0.3]


def test_a_point_is_the_limit_of_intervals_as_the_mean_goes_to_zero() -> None:
    low, high = credible_interval(10.0 ** -np.arange(1, 12), 10.0)
    assert (np.diff(high) <= 0).all()
    assert low[-1] == 0.0
    assert high[-1] < 1e-9


def test_a_level_outside_zero_and_one_is_refused() -> None:
    for level in (0.0, 1.0, 90.0):
        with pytest.raises(SettingError, match="expected a credible level between 0 and 1"):
            credible_interval(0.1, 10, level=level)


@pytest.mark.parametrize("x", [(0.05, 20.0), (0.1, 100.0), (0.3, 5.0), (0.5, 200.0), (0.9, 2.0)])
@pytest.mark.parametrize("y", [(0.4, 3.0), (0.5, 20.0), (0.6, 10.0), (0.95, 100.0)])
def test_the_beta_of_a_product_has_its_moments_and_nearly_its_quantiles(
    x: tuple[float, float], y: tuple[float, float]
) -> None:
    rng = np.random.default_rng(0)
    draws = rng.beta(x[0] * x[1], (1 - x[0]) * x[1], 400_000) * rng.beta(
        y[0] * y[1], (1 - y[0]) * y[1], 400_000
    )
    mean, strength = product_beta(*x, *y)
    assert mean == pytest.approx(draws.mean(), abs=5 * draws.std() / 400_000**0.5)
    assert mean * (1 - mean) / (strength + 1) == pytest.approx(draws.var(), rel=0.02)
    low, high = credible_interval(mean, strength)
    below, above = (draws < low).mean(), (draws > high).mean()
    assert 0.86 < 1.0 - below - above < 0.95
    if min(x[1], y[1]) >= 10:
        assert (below, above) == (pytest.approx(0.05, abs=0.02), pytest.approx(0.05, abs=0.02))


def test_a_product_with_a_certain_one_is_the_other() -> None:
    mean, strength = product_beta(0.3, 7.0, 1.0, np.inf)
    assert mean == pytest.approx(0.3)
    assert strength == pytest.approx(7.0)


def test_products_at_the_edges() -> None:
    mean, strength = product_beta(
        [0.0, 0.5, 0.4], [10.0, np.inf, 0.0], [0.5, 0.5, 0.5], [10.0, np.inf, 0.0]
    )
    assert mean.tolist() == [0.0, 0.25, 0.2]
    assert strength.tolist() == [np.inf, np.inf, pytest.approx(0.0, abs=1e-12)]
    low, high = credible_interval(mean, strength)
    assert (low[:2].tolist(), high[:2].tolist()) == ([0.0, 0.25], [0.0, 0.25])


def test_a_single_pair_of_numbers_is_no_special_case() -> None:
    low, high = credible_interval(np.array([0.5]), np.array([2.0]), level=0.9)
    assert (low[0], high[0]) == pytest.approx((0.05, 0.95), abs=1e-9)  # Beta(1, 1) is uniform
