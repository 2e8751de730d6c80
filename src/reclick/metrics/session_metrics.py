"""Every metric of sessions, in the order in which reports show them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from reclick.clicks.distribution import Standings
from reclick.data.batch import Float64
from reclick.metrics.metric import Better, Metric, Observed, mean_metric, two_to_the_minus_mean
from reclick.metrics.predictions import PartAnswers

EACH = (1, 2, 3, 4)  # clicks of a session whose sequence is ranked
MOST_POSITIONS = 10  # that have a perplexity of their own
BINS = 20  # of equal width, for calibration


def first_click(part: PartAnswers) -> Observed:
    """Of sessions with a click: whether the first one is where it was likeliest."""
    return part.weight * (part.many > 0), part.first_hits


def of_ranked(clicks: int, observe: Callable[[Standings], Float64], part: PartAnswers) -> Observed:
    """Of sessions with so many clicks: something of how they stand among all sequences as long."""
    weight, x = np.zeros(len(part)), np.zeros(len(part))
    sessions, stands = part.ranked(clicks)
    weight[sessions], x[sessions] = part.weight[sessions], observe(stands)
    return weight, x


def hit(stands: Standings) -> Float64:
    """Whether the session's sequence is the likeliest; one of k tied at the top is k-th of a hit."""
    return np.asarray((stands.likelier == 0) / stands.likeliest)


def hit_in_any_order(stands: Standings) -> Float64:
    """Whether the likeliest sequence has the session's clicks; the share of those that have, among ties."""
    return np.asarray(stands.same_set / stands.likeliest)


def rank(stands: Standings) -> Float64:
    """The place of the session's sequence, 1 for the likeliest; ties share their mean place."""
    return np.asarray(stands.likelier + (stands.tied + 1) / 2)


def session_perplexity(part: PartAnswers) -> Observed:
    """2^(−mean over positions of the log2 probability of what happened there)."""
    return part.weight, np.exp2(
        -np.add.reduceat(part.log2_marginals, part.part.page[:-1]) / part.ads
    )


def at_position(position: int, part: PartAnswers) -> Observed:
    """Of pages that long: the log2 probability of what happened at the position."""
    there = part.ads >= position
    x = np.zeros(len(part))
    x[there] = part.log2_marginals[part.part.page[:-1][there] + position - 1]
    return part.weight * there, x


def per_position(part: PartAnswers) -> Observed:
    """The log2 probability of the click set, spread evenly over the page's positions."""
    return part.weight * part.ads, part.log_set_prob / (np.log(2) * part.ads)


def calibration_columns(part: PartAnswers) -> Float64:
    """The ads in all, then for each bin of click probability the ads, their probabilities and their clicks [session, 1 + 3 · BINS]."""
    session = np.repeat(np.arange(len(part)), part.ads)
    cell = session * BINS + np.minimum((part.marginals * BINS).astype(np.int64), BINS - 1)
    weight, size = part.weight[session], len(part) * BINS
    sums = [
        np.bincount(cell, values, size).reshape(-1, BINS)
        for values in (weight, weight * part.marginals, weight * part.clicked)
    ]
    return np.column_stack([part.weight * part.ads, *sums])


def calibration_bins(sums: Float64) -> tuple[Float64, Float64, Float64]:
    """The sums of each bin [..., bin]: ads, their click probabilities and their clicks."""
    ads, expected, clicks = np.split(sums[..., 1:], 3, axis=-1)
    return ads, expected, clicks


def calibration_error(sums: Float64) -> Float64:
    """Σ over bins |clicks expected − clicks| / ads: the mean distance between what was said and what came, weighted by the ads in the bin."""
    _, expected, clicks = calibration_bins(sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.abs(expected - clicks).sum(axis=-1) / sums[..., 0])


_RANKED: list[tuple[str, str, Better, str, Callable[[Standings], Float64], tuple[int, ...]]] = [
    (
        "sequence_accuracy@{m}",
        "Sequence accuracy, {clicks}",
        "higher",
        "Share of sessions with {clicks} whose click sequence is the likeliest of all that long.",
        hit,
        EACH,
    ),
    (
        "rank@{m}",
        "Rank, {clicks}",
        "lower",
        "Mean place of the click sequence among all that long, in sessions with {clicks}: 1 is the likeliest.",
        rank,
        EACH,
    ),
    (
        "top_accuracy@{m}",
        "Top-{m} accuracy",
        "higher",
        "Share of sessions with {clicks} that are on the ads of the likeliest sequence that long, in whatever order.",
        hit_in_any_order,
        (2, 3),
    ),
]


def _ranked_metrics() -> list[Metric]:
    metrics = []
    for name, title, better, about, observe, lengths in _RANKED:
        for m in lengths:
            clicks = f"{m} click" + "s" * (m > 1)
            named, titled, told = (text.format(m=m, clicks=clicks) for text in (name, title, about))
            metrics.append(mean_metric(named, titled, better, told, partial(of_ranked, m, observe)))
    return metrics


def _position_metrics() -> list[Metric]:
    return [
        two_to_the_minus_mean(
            f"perplexity@{r}",
            f"Perplexity, position {r}",
            f"2^(−mean log2 probability) of click or no click at position {r}, over the pages that have it: 1 is perfect, 2 a coin.",
            partial(at_position, r),
        )
        for r in range(1, MOST_POSITIONS + 1)
    ]


_ALL = [
    mean_metric(
        "first_click_accuracy",
        "First-click accuracy",
        "higher",
        "Share of clicked sessions whose first click is the likeliest.",
        first_click,
    ),
    *_ranked_metrics(),
    mean_metric(
        "perplexity",
        "Perplexity",
        "lower",
        "Mean over sessions of 2^(−mean log2 probability of click or no click at each position): 1 is perfect, 2 a coin.",
        session_perplexity,
    ),
    *_position_metrics(),
    two_to_the_minus_mean(
        "conditional_perplexity",
        "Conditional perplexity",
        "2^(−log2 probability of the whole click set, a position): unlike perplexity, clicks on a page may depend on each other.",
        per_position,
    ),
    mean_metric(
        "log_likelihood",
        "Log-likelihood",
        "higher",
        "Mean over sessions of the natural log of the probability of the clicks in their order.",
        lambda part: (part.weight, part.log_prob),
    ),
    mean_metric(
        "log_set_likelihood",
        "Log-likelihood of the set",
        "higher",
        "Mean over sessions of the natural log of the probability that just these ads are clicked, in whatever order.",
        lambda part: (part.weight, part.log_set_prob),
    ),
    mean_metric(
        "impossible",
        "Impossible",
        "lower",
        "Share of sessions whose click sequence the model holds impossible.",
        lambda part: (part.weight, np.isneginf(part.log_prob).astype(np.float64)),
    ),
    Metric(
        "calibration_error",
        "Calibration error",
        "lower",
        f"Mean distance between the click probability said and the share clicked, over {BINS} bins of equal width.",
        calibration_columns,
        calibration_error,
        None,
        1 + 3 * BINS,
    ),
]

SESSION_METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
