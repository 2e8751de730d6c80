"""Rates with a Beta prior: density, posterior mean, quantiles, intervals, and products.

A rate with mean m and strength s (pseudo-observations) is Beta(a = m s, b = (1 − m) s). Decision 17
explains why the quantiles are not SciPy's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reclick.data.ragged import Float64
from reclick.errors import SettingError
from reclick.runtime.jit import kernel, subkernel

LOG_SMALLEST_FLOAT = -745.0  # exp of less underflows in float64
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
# If both parameters are larger, quadrature is shorter than the continued fraction.
QUADRATURE_FROM = 500.0
SMALLEST_DENOMINATOR = 1e-300
LARGEST_PARAMETER = 1e150  # products of two larger ones overflow; the Beta is then its mean
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


class BetaPrior(NamedTuple):
    """Prior means of the rates of pairs, and their strengths in pseudo-observations."""

    mean: Float64  # [pair]
    strength: Float64  # [pair]

    @classmethod
    def constant(cls, mean: float, strength: float, size: int) -> BetaPrior:
        """The same prior for every pair."""
        return cls(np.full(size, mean), np.full(size, strength))


def log_beta(value: Float64, mean: Float64 | float, strength: Float64 | float) -> float:
    """Log-density of Beta priors, up to a constant.

    After c successes in n trials its mode is (c + strength · mean) / (n + strength).
    """
    if not np.any(strength):
        return 0.0
    return float(np.sum(strength * (mean * np.log(value) + (1 - mean) * np.log(1 - value))))


def posterior_mean(
    successes: Float64, trials: Float64, mean: Float64 | float, strength: Float64 | float
) -> Float64:
    """(successes + strength · mean) / (trials + strength); the mean itself where both are 0."""
    total = trials + strength
    return np.asarray(
        np.where(total > 0, (successes + strength * mean) / np.where(total > 0, total, 1.0), mean)
    )


def credible_interval(
    mean: npt.ArrayLike, strength: npt.ArrayLike, level: float = 0.9
) -> tuple[Float64, Float64]:
    """Bound a rate: (low, high), equal-tailed, of Beta(mean · strength, (1 − mean) · strength).

    With strength 0 nothing is known: (0, 1). With a mean of exactly 0 or 1, or an infinite
    strength, it is the Beta's limit: all mass on the mean.
    """
    if not 0.0 < level < 1.0:
        raise SettingError("level", level, "a credible level between 0 and 1, such as 0.9")
    m, s = np.broadcast_arrays(np.asarray(mean, np.float64), np.asarray(strength, np.float64))
    certain = (m <= 0.0) | (m >= 1.0) | np.isinf(s)
    finite = np.where(certain, 1.0, s)
    tail = 0.5 * (1.0 - level)
    bounds = [beta_quantile(p, m * finite, (1.0 - m) * finite) for p in (tail, 1.0 - tail)]
    low, high = (np.where(certain, m, bound) for bound in bounds)
    return np.where(s == 0.0, 0.0, low), np.where(s == 0.0, 1.0, high)


def product_beta(
    mean_x: npt.ArrayLike,
    strength_x: npt.ArrayLike,
    mean_y: npt.ArrayLike,
    strength_y: npt.ArrayLike,
) -> tuple[Float64, Float64]:
    """Match a Beta to the product of two independent Betas by mean and variance: (mean, strength).

    With v = m (1 − m) / (s + 1): mean = m_x m_y, variance V = v_x v_y + v_x m_y² + v_y m_x²,
    strength = mean (1 − mean) / V − 1. A product without variance has infinite strength. The shape
    is only nearly a Beta's: a 90 % interval has tails of 5 ± 2 % when both strengths are 10 or
    more, and covers 86-95 % when one is as low as 2.
    """
    x, y = np.asarray(mean_x, np.float64), np.asarray(mean_y, np.float64)
    variance_x = x * (1.0 - x) / (np.asarray(strength_x, np.float64) + 1.0)
    variance_y = y * (1.0 - y) / (np.asarray(strength_y, np.float64) + 1.0)
    mean = x * y
    variance = variance_x * variance_y + variance_x * y**2 + variance_y * x**2
    varies = variance > 0.0
    strength = mean * (1.0 - mean) / np.where(varies, variance, 1.0) - 1.0
    return mean, np.where(varies | np.isnan(variance), np.maximum(strength, 0.0), np.inf)


def beta_quantile(p: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Float64:
    """Solve P(Beta(a, b) ≤ x) = p for x; nan where p is not in [0, 1] or a, b are not above 0."""
    p, a, b = np.broadcast_arrays(*(np.asarray(value, np.float64) for value in (p, a, b)))
    out = np.empty(p.size)
    _fill_quantiles(p.flatten(), a.flatten(), b.flatten(), out)
    return out.reshape(p.shape)


@subkernel
def _stirling_remainder(z: float) -> float:
    """Stirling's remainder: log Γ(z) − (z − ½) log z + z − ½ log 2π."""
    if z < 10.0:
        return math.lgamma(z) - (z - 0.5) * math.log(z) + z - HALF_LOG_TWO_PI
    w = 1.0 / (z * z)
    return (
        1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w * (1 / 1188 - w * 691 / 360360))))
    ) / z


@subkernel
def _log_front(x: float, a: float, b: float) -> float:
    """Log of x^a (1−x)^b / B(a, b), around the mean, so that large terms cancel before rounding."""
    total = a + b
    off = x - a / total
    low, high = off * total / a, -off * total / b
    log_low = math.log1p(low) if low > -0.5 else math.log(x * (total / a))
    log_high = math.log1p(high) if high > -0.5 else math.log((1.0 - x) * (total / b))
    scale = 0.5 * (math.log(a) + math.log(b / total)) - HALF_LOG_TWO_PI
    return (
        a * log_low
        + b * log_high
        + scale
        + _stirling_remainder(total)
        - _stirling_remainder(a)
        - _stirling_remainder(b)
    )


@subkernel
def _not_zero(denominator: float) -> float:
    """The denominator, or a tiny one in place of 0, as in modified Lentz."""
    return denominator if denominator != 0.0 else SMALLEST_DENOMINATOR


@subkernel
def _continued_fraction(x: float, a: float, b: float) -> float:
    """I_x(a, b) = front · result / a (modified Lentz), quick for x below about the mean."""
    c = 1.0
    d = 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1.0))
    h = d
    for m in range(1, 20_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / _not_zero(1.0 + even * d)
        c = _not_zero(1.0 + even / c)
        h *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / _not_zero(1.0 + odd * d)
        c = _not_zero(1.0 + odd / c)
        h *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return h


@subkernel
def _tail_integral(x: float, a: float, b: float, end: float) -> float:
    """Integrate (t/x)^(a−1) ((1−t)/(1−x))^(b−1) / (x (1−x)) from x to `end` (Gauss-Legendre).

    Multiplied by `front`, it is the mass of the tail.
    """
    total = 0.0
    half = 0.5 * (end - x)
    for i in range(len(NODES)):
        move = half * (1.0 + NODES[i])
        total += WEIGHTS[i] * math.exp(
            (a - 1.0) * math.log1p(move / x) + (b - 1.0) * math.log1p(-move / (1.0 - x))
        )
    return abs(half) * total / (x * (1.0 - x))


@subkernel
def _distribution_function(x: float, a: float, b: float, front: float) -> float:
    """P(Beta(a, b) ≤ x), the regularised incomplete beta."""
    if min(a, b) > QUADRATURE_FROM:
        mean = a / (a + b)
        deviation = math.sqrt(mean * (1.0 - mean) / (a + b + 1.0))
        if x < mean:
            return front * _tail_integral(
                x, a, b, max(0.0, min(mean - 10.0 * deviation, x - 5.0 * deviation))
            )
        return 1.0 - front * _tail_integral(
            x, a, b, min(1.0, max(mean + 10.0 * deviation, x + 5.0 * deviation))
        )
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _continued_fraction(x, a, b) / a
    return 1.0 - front * _continued_fraction(1.0 - x, b, a) / b


@subkernel
def _initial_log_quantile(p: float, a: float, b: float) -> float:
    """Guess log x: Abramowitz and Stegun 26.5.22, or the power laws at the two ends."""
    if a >= 1.0 and b >= 1.0:
        t = math.sqrt(-2.0 * math.log(min(p, 1.0 - p)))
        z = (2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481)) - t
        z = z if p < 0.5 else -z
        y = (z * z - 3.0) / 6.0
        p_a, p_b = 1.0 / (2.0 * a - 1.0), 1.0 / (2.0 * b - 1.0)
        h = 2.0 / (p_a + p_b)
        w = (
            -z * math.sqrt(h + y) / h - (p_b - p_a) * (y + 5.0 / 6.0 - 2.0 / (3.0 * h))
            if h + y > 0.0
            else 0.0
        )
        return -math.log1p(b / a * math.exp(2.0 * w))
    left = math.exp(-a * math.log1p(b / a)) / a
    right = math.exp(-b * math.log1p(a / b)) / b
    if p * (left + right) < left:
        return math.log(a * (left + right) * p) / a
    y = math.exp(math.log(b * (left + right) * (1.0 - p)) / b)
    return math.log1p(-y) if y < 1.0 else LOG_SMALLEST_FLOAT


@subkernel
def _quantile(p: float, a: float, b: float) -> float:
    """Solve log P(Beta ≤ e^u) = log p for u by Halley's method inside a bracket.

    For tiny x it is a straight line, so there are few steps anywhere.
    """
    if not (0.0 <= p <= 1.0 and a > 0.0 and b > 0.0):
        return math.nan
    if p in (0.0, 1.0):
        return p
    if max(a, b) > LARGEST_PARAMETER:
        return a / (a + b) if a + b < math.inf else 1.0 / (1.0 + b / a)
    low, high = LOG_SMALLEST_FLOAT, 0.0
    u = min(max(_initial_log_quantile(p, a, b), low), high - 1e-16)
    for _ in range(200):
        x = math.exp(u)
        if x >= 1.0 or high - low < 1e-15:
            break
        front = math.exp(_log_front(x, a, b))
        below = _distribution_function(x, a, b, front)
        if below < p:
            low = u
        else:
            high = u
        rate = front / (1.0 - x) / below if below > 0.0 else 0.0  # d log P / du
        if rate > 0.0:
            curve = a - (b - 1.0) * x / (1.0 - x) - rate  # d log rate / du
            newton = -math.log(below / p) / rate
            move = newton / min(max(1.0 + 0.5 * newton * curve, 0.5), 2.0)
            if low <= u + move <= high:
                u += move
                if abs(move) * (1.0 + rate + abs(curve)) < 1e-4:  # the remaining error is its cube
                    break
                continue
        u = 0.5 * (low + high)
    return math.exp(u) if u > LOG_SMALLEST_FLOAT + 1e-9 else 0.0


@kernel
def _fill_quantiles(p: Float64, a: Float64, b: Float64, out: Float64) -> None:
    for i in range(len(out)):
        out[i] = _quantile(p[i], a[i], b[i])
