"""What a metric is: a name, its meaning, and numbers per session that add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reclick.data.ragged import Float64
from reclick.metrics.predictions import BatchPredictions

Better = Literal["higher", "lower"]
Observation = tuple[Float64, Float64]  # weight [session], observed value [session]


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """The name and the meaning of a metric."""

    name: str  # the same in Python, on the command line and in reports
    title: str
    better: Better
    about: str


@dataclass(frozen=True, slots=True)
class Metric(MetricInfo):
    """A metric of sessions, computed from column sums.

    Sums over any set of sessions determine its value, so whole logs, parts of logs and bootstrap
    resamples all use one formula.
    """

    columns: Callable[[BatchPredictions], Float64]  # → [session, size]; the first is the support
    value: Callable[[Float64], Float64]  # sums [..., size] → [...], nan where nothing was observed
    deviation: Callable[[Float64], Float64] | None  # sums [..., size] → [...] between sessions
    size: int


def mean_metric(
    name: str,
    title: str,
    better: Better,
    about: str,
    observe: Callable[[BatchPredictions], Observation],
) -> Metric:
    """The mean over sessions, Σ w x / Σ w, with standard deviation √(Σ w x² / Σ w − mean²)."""

    def columns(batch: BatchPredictions) -> Float64:
        return mean_columns(*observe(batch))

    return Metric(name, title, better, about, columns, mean, deviation, 4)


def perplexity_metric(
    name: str, title: str, about: str, observe: Callable[[BatchPredictions], Observation]
) -> Metric:
    """The perplexity of all sessions together: 2^(−mean of log2 probabilities)."""

    def columns(batch: BatchPredictions) -> Float64:
        return mean_columns(*observe(batch))

    def value(sums: Float64) -> Float64:
        return np.exp2(-mean(sums))

    return Metric(name, title, "lower", about, columns, value, None, 4)


def mean_columns(weight: Float64, x: Float64) -> Float64:
    """The columns of a mean [session, 4]: w, w x, w x², and ±w where x is infinite.

    Infinite values are counted instead of summed, since 0 · ∞ is not a number.
    """
    infinite = np.isinf(x)
    finite = np.where(infinite, 0.0, x)
    with np.errstate(over="ignore"):
        total, square = weight * finite, weight * finite * finite
    return np.column_stack([weight, total, square, weight * np.where(infinite, np.sign(x), 0.0)])


def mean(sums: Float64) -> Float64:
    """The mean from its sums [..., 4]; infinite if any observation is.

    >>> mean(np.array([4.0, 6.0, 10.0, 0.0])), mean(np.array([4.0, 6.0, 10.0, -1.0]))
    (np.float64(1.5), np.float64(-inf))
    >>> mean(np.zeros(4))
    np.float64(nan)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        finite = sums[..., 1] / sums[..., 0]
    return np.where(sums[..., 3] != 0, np.copysign(np.inf, sums[..., 3]), finite)[()]


def deviation(sums: Float64) -> Float64:
    """The standard deviation from the sums of a mean [..., 4]; nan if any observation is infinite.

    >>> deviation(np.array([4.0, 6.0, 10.0, 0.0]))
    np.float64(0.5)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = sums[..., 2] / sums[..., 0] - (sums[..., 1] / sums[..., 0]) ** 2
        spread = np.sqrt(np.maximum(variance, 0.0))
    return np.where(sums[..., 3] != 0, np.nan, spread)[()]
