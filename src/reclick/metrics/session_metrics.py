"""The definition of metrics, and all metrics of sessions, in the order of reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from reclick.clicks.distribution import SequenceRanks
from reclick.data.ragged import Float64, run_of_elements
from reclick.metrics.predictions import BatchPredictions

RANKED_LENGTHS = (1, 2, 3, 4)  # click sequences of these lengths are ranked
MAX_POSITIONS = 10  # positions with a separate perplexity
CALIBRATION_BINS = 20  # of equal width

Better = Literal["higher", "lower", "closest to 1"]
Observation = tuple[Float64, Float64]  # weight [session], observed value [session]


def loss(value: float, better: str) -> float:
    """A number that is lower for a better value of a metric.

    >>> loss(0.5, "closest to 1") == loss(2.0, "closest to 1"), loss(0.7, "higher")
    (True, -0.7)
    """
    if better == "closest to 1":
        return abs(math.log(value)) if value > 0 else math.inf
    return value if better == "lower" else -value


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """The name and the meaning of a metric."""

    name: str  # in Python, on the command line and in reports
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
    value: Callable[[Float64], Float64]  # sums [..., size] → [...], nan without observations
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
    """The perplexity over all sessions: 2^(−mean of log2 probabilities)."""

    def columns(batch: BatchPredictions) -> Float64:
        return mean_columns(*observe(batch))

    def value(sums: Float64) -> Float64:
        return np.exp2(-mean(sums))

    return Metric(name, title, "lower", about, columns, value, None, 4)


def mean_columns(weight: Float64, x: Float64) -> Float64:
    """The columns of a mean [session, 4]: w, w x, w x², and ±w where x is infinite.

    Infinite values are counted, not summed, because 0 · ∞ is not a number.
    """
    infinite = np.isinf(x)
    finite = np.where(infinite, 0.0, x)
    with np.errstate(over="ignore"):
        total, square = weight * finite, weight * finite * finite
    return np.column_stack([weight, total, square, weight * np.where(infinite, np.sign(x), 0.0)])


def mean(sums: Float64) -> Float64:
    """The mean from its sums [..., 4]; infinite if any observation is infinite.

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


# ---- observations of sessions


def first_click(batch: BatchPredictions) -> Observation:
    """Over sessions with a click: whether the first click is the most likely one."""
    return batch.weight * (batch.n_clicks > 0), batch.first_click_hit


def observe_ranks(
    n_clicks: int, observe: Callable[[SequenceRanks], Float64], batch: BatchPredictions
) -> Observation:
    """Over sessions with `n_clicks` clicks: a function of the ranks of their click sequences."""
    weight, x = np.zeros(len(batch)), np.zeros(len(batch))
    sessions, ranks = batch.rank_sessions(n_clicks)
    weight[sessions], x[sessions] = batch.weight[sessions], observe(ranks)
    return weight, x


def sequence_hit(ranks: SequenceRanks) -> Float64:
    """Whether the click sequence is the most likely one; 1/k for one of k tied at the top."""
    return np.asarray((ranks.likelier == 0) / ranks.likeliest)


def set_hit(ranks: SequenceRanks) -> Float64:
    """Whether the most likely sequence has the observed click set; a share if tied."""
    return np.asarray(ranks.same_set / ranks.likeliest)


def rank(ranks: SequenceRanks) -> Float64:
    """The rank of the click sequence, 1 for the most likely; ties share their mean rank."""
    return np.asarray(ranks.likelier + (ranks.tied + 1) / 2)


def session_perplexity(batch: BatchPredictions) -> Observation:
    """2^(−mean over positions of the log2 probability of a click or no click there)."""
    sums = np.add.reduceat(batch.log2_outcome_prob, batch.sessions.page[:-1])
    return batch.weight, np.exp2(-sums / batch.n_ads)


def outcome_at_position(position: int, batch: BatchPredictions) -> Observation:
    """Over pages with that position: the log2 probability of a click or no click there."""
    present = batch.n_ads >= position
    x = np.zeros(len(batch))
    x[present] = batch.log2_outcome_prob[batch.sessions.page[:-1][present] + position - 1]
    return batch.weight * present, x


def set_prob_per_position(batch: BatchPredictions) -> Observation:
    """The log2 probability of the click set, divided by the number of positions of the page."""
    return batch.weight * batch.n_ads, batch.log_set_prob / (np.log(2) * batch.n_ads)


def calibration_columns(batch: BatchPredictions) -> Float64:
    """The number of ads, then per bin the sums of ads, click probabilities and clicks.

    Bins are of click probability; the result is [session, 1 + 3 · CALIBRATION_BINS].
    """
    session = run_of_elements(batch.sessions.page)
    bin_ = np.minimum((batch.click_prob * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    cell = session * CALIBRATION_BINS + bin_
    weight, size = batch.weight[session], len(batch) * CALIBRATION_BINS
    sums = [
        np.bincount(cell, values, size).reshape(-1, CALIBRATION_BINS)
        for values in (weight, weight * batch.click_prob, weight * batch.clicked)
    ]
    return np.column_stack([batch.weight * batch.n_ads, *sums])


def calibration_bins(sums: Float64) -> tuple[Float64, Float64, Float64]:
    """The sums of each bin [..., bin]: ads, click probabilities and clicks."""
    ads, expected, clicks = np.split(sums[..., 1:], 3, axis=-1)
    return ads, expected, clicks


def calibration_error(sums: Float64) -> Float64:
    """Σ over bins |expected clicks − clicks| / ads.

    This is the mean distance between predicted and observed click rates, weighted by the ads in
    each bin.
    """
    _, expected, clicks = calibration_bins(sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.abs(expected - clicks).sum(axis=-1) / sums[..., 0])


def click_ratio_columns(batch: BatchPredictions) -> Float64:
    """The sums of each session: ads, click probabilities and clicks [session, 3]."""
    starts, weight = batch.sessions.page[:-1], batch.weight
    expected = np.add.reduceat(batch.click_prob, starts)
    clicks = np.add.reduceat(batch.clicked.astype(np.float64), starts)
    return np.column_stack([weight * batch.n_ads, weight * expected, weight * clicks])


def click_ratio(sums: Float64) -> Float64:
    """Expected / observed clicks; nan without clicks.

    >>> click_ratio(np.array([10.0, 1.8, 2.0]))
    array(0.9)
    """
    n_clicks = np.where(sums[..., 2] > 0, sums[..., 2], np.nan)
    return np.asarray(sums[..., 1] / n_clicks)


def click_number_columns(batch: BatchPredictions) -> Float64:
    """The weight of each session, and the squared error of its expected clicks [session, 2]."""
    expected = np.add.reduceat(batch.click_prob, batch.sessions.page[:-1])
    return np.column_stack([batch.weight, batch.weight * (expected - batch.n_clicks) ** 2])


def root_mean(sums: Float64) -> Float64:
    """√(Σ w x² / Σ w); nan without any weight.

    >>> root_mean(np.array([4.0, 1.0]))
    array(0.5)
    """
    total = np.where(sums[..., 0] > 0, sums[..., 0], np.nan)
    return np.asarray(np.sqrt(sums[..., 1] / total))


def order_outcome(batch: BatchPredictions) -> Observation:
    """Over sessions with two or more clicks: log P(in order or not, as observed | the set)."""
    weight, x = np.zeros(len(batch)), np.zeros(len(batch))
    weight[batch.several], x[batch.several] = batch.weight[batch.several], batch.log_order_outcome
    return weight, x


def backward_columns(batch: BatchPredictions) -> Float64:
    """The moves between clicks, and expected and observed moves up the page [session, 3]."""
    moves = np.maximum(batch.n_clicks - 1, 0)
    columns = np.column_stack([moves, batch.expected_backward, batch.backward])
    return np.asarray(batch.weight[:, None] * columns)


_RankMetric = tuple[str, str, Better, str, Callable[[SequenceRanks], Float64], tuple[int, ...]]
_RANK_METRICS: list[_RankMetric] = [
    (
        "sequence_accuracy@{m}",
        "Sequence accuracy, {clicks}",
        "higher",
        "Share of sessions with {clicks} whose click sequence is the most likely of that length.",
        sequence_hit,
        RANKED_LENGTHS,
    ),
    (
        "rank@{m}",
        "Rank, {clicks}",
        "lower",
        "In sessions with {clicks}, mean rank of the click sequence among all of that length.",
        rank,
        RANKED_LENGTHS,
    ),
    (
        "top_accuracy@{m}",
        "Top-{m} accuracy",
        "higher",
        "Share of sessions with {clicks}, in any order, on the ads of the most likely sequence.",
        set_hit,
        (2, 3),
    ),
]


def _rank_metrics() -> list[Metric]:
    metrics = []
    for name, title, better, about, observe, lengths in _RANK_METRICS:
        for m in lengths:
            clicks = f"{m} click" + "s" * (m > 1)
            texts = [text.format(m=m, clicks=clicks) for text in (name, title, about)]
            observe_length = partial(observe_ranks, m, observe)
            metrics.append(mean_metric(texts[0], texts[1], better, texts[2], observe_length))
    return metrics


def _position_metrics() -> list[Metric]:
    return [
        perplexity_metric(
            f"perplexity@{r}",
            f"Perplexity, position {r}",
            f"2^(−mean log2 probability) of click or no click at position {r}, over the pages that"
            " have it: 1 is perfect, 2 a coin toss.",
            partial(outcome_at_position, r),
        )
        for r in range(1, MAX_POSITIONS + 1)
    ]


_ALL = [
    mean_metric(
        "first_click_accuracy",
        "First-click accuracy",
        "higher",
        "Share of clicked sessions whose first click is the most likely one.",
        first_click,
    ),
    *_rank_metrics(),
    mean_metric(
        "perplexity",
        "Perplexity",
        "lower",
        "Mean over sessions of 2^(−mean log2 probability of click or no click per position):"
        " 1 is perfect, 2 a coin toss.",
        session_perplexity,
    ),
    *_position_metrics(),
    perplexity_metric(
        "conditional_perplexity",
        "Conditional perplexity",
        "2^(−log2 probability of the whole click set, per position): unlike perplexity, it lets"
        " the clicks on a page depend on each other.",
        set_prob_per_position,
    ),
    mean_metric(
        "log_likelihood",
        "Log-likelihood",
        "higher",
        "Mean over sessions of the natural log of the probability of the clicks in their order."
        " A model that has no order of clicks is given one, by a table learnt from its training"
        " log: P(click set) × P(order | click set).",
        lambda batch: (batch.weight, batch.log_prob),
    ),
    mean_metric(
        "log_set_likelihood",
        "Log-likelihood of the click set",
        "higher",
        "Mean over sessions of the natural log of the probability that exactly these ads are"
        " clicked, in any order.",
        lambda batch: (batch.weight, batch.log_set_prob),
    ),
    mean_metric(
        "impossible",
        "Zero-probability sessions",
        "lower",
        "Share of sessions to whose click sequence the model itself, without a learnt order,"
        " assigns zero probability.",
        lambda batch: (batch.weight, np.isneginf(batch.own_log_prob).astype(np.float64)),
    ),
    Metric(
        "calibration_error",
        "Calibration error",
        "lower",
        "Mean distance between the predicted click probability and the observed click rate, over"
        f" {CALIBRATION_BINS} bins of equal width.",
        calibration_columns,
        calibration_error,
        None,
        1 + 3 * CALIBRATION_BINS,
    ),
    Metric(
        "click_ratio",
        "Expected / observed clicks",
        "closest to 1",
        "The clicks that the model expects on the test pages, divided by those observed: below 1 it"
        " expects too few, above 1 too many.",
        click_ratio_columns,
        click_ratio,
        None,
        3,
    ),
    Metric(
        "click_number_error",
        "Error of the number of clicks",
        "lower",
        "Root mean squared difference between the expected and the observed number of clicks per"
        " session.",
        click_number_columns,
        root_mean,
        None,
        2,
    ),
    mean_metric(
        "order_log_likelihood",
        "Log-likelihood of in order or not",
        "higher",
        "Over sessions with two or more clicks: mean natural log of the probability that these"
        " clicks go down the page, or do not, as was observed. Without an order of clicks, by the"
        " learnt order.",
        order_outcome,
    ),
    Metric(
        "backward_ratio",
        "Expected / observed backward clicks",
        "closest to 1",
        "The next clicks that the model by itself expects above the last one, after the clicks so"
        " far of each session, divided by those observed.",
        backward_columns,
        click_ratio,
        None,
        3,
    ),
]

SESSION_METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
