"""A metric is a value: a name, what it means, and numbers per session that add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reclick.data.batch import Float64
from reclick.metrics.predictions import PartAnswers

Better = Literal["higher", "lower"]
Observed = tuple[
    Float64, Float64
]  # [session] how much each session counts, and what was observed of it


@dataclass(frozen=True, slots=True)
class About:
    """What people should know of a metric."""

    name: str  # the same in Python, on the command line and in reports
    title: str
    better: Better
    about: str


@dataclass(frozen=True, slots=True)
class Metric(About):
    """A metric of sessions. Sums over any sessions say what it is for them, so logs, parts of logs and resamples of them are all one formula."""

    columns: Callable[
        [PartAnswers], Float64
    ]  # → [session, size] numbers that add, weights included; the first is the support
    value: Callable[[Float64], Float64]  # sums [..., size] → [...], nan where nothing was observed
    deviation: (
        Callable[[Float64], Float64] | None
    )  # sums [..., size] → [...] standard deviation between sessions, where it has a meaning
    size: int


def mean_metric(
    name: str, title: str, better: Better, about: str, observe: Callable[[PartAnswers], Observed]
) -> Metric:
    """The mean over sessions of what is observed of each, Σ w x / Σ w, and its deviation √(Σ w x² / Σ w − mean²)."""
    return Metric(
        name, title, better, about, lambda part: mean_columns(*observe(part)), mean, deviation, 4
    )


def two_to_the_minus_mean(
    name: str, title: str, about: str, observe: Callable[[PartAnswers], Observed]
) -> Metric:
    """A perplexity of all sessions together: 2^(−mean of log2 probabilities)."""
    return Metric(
        name,
        title,
        "lower",
        about,
        lambda part: mean_columns(*observe(part)),
        lambda sums: np.exp2(-mean(sums)),
        None,
        4,
    )


def mean_columns(weight: Float64, x: Float64) -> Float64:
    """What a mean is made of [session, 4]: Σ w, Σ w x, Σ w x², and Σ ±w of infinite x, which are counted instead of summed: 0 · ∞ is no number."""
    infinite = np.isinf(x)
    finite = np.where(infinite, 0.0, x)
    with np.errstate(over="ignore"):
        return np.column_stack(
            [
                weight,
                weight * finite,
                weight * finite * finite,
                weight * np.where(infinite, np.sign(x), 0.0),
            ]
        )


def mean(sums: Float64) -> Float64:
    """The mean from its sums [..., 4]; infinite when any observation was.

    >>> mean(np.array([4.0, 6.0, 10.0, 0.0])), mean(np.array([4.0, 6.0, 10.0, -1.0])), mean(np.zeros(4))
    (np.float64(1.5), np.float64(-inf), np.float64(nan))
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        finite = sums[..., 1] / sums[..., 0]
    return np.where(sums[..., 3] != 0, np.copysign(np.inf, sums[..., 3]), finite)[()]


def deviation(sums: Float64) -> Float64:
    """The standard deviation from the sums of a mean [..., 4]; nan when any observation was infinite.

    >>> deviation(np.array([4.0, 6.0, 10.0, 0.0]))
    np.float64(0.5)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(
            np.maximum(sums[..., 2] / sums[..., 0] - (sums[..., 1] / sums[..., 0]) ** 2, 0.0)
        )
    return np.where(sums[..., 3] != 0, np.nan, spread)[()]
