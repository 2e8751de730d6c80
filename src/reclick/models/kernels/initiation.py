"""Initiation: whether the user examines the list at all, with μ, for all queries or per query.

A session with a click was initiated. One without was, with probability μ B / (1 − μ + μ B), where
B is the probability that a user who examines the top clicks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.data.grouped_sessions import BlockRows, QueryBlock, RowRun, cut_rows
from reclick.data.ragged import Float64, Int32, Int64
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import EMProblem, PairSums, Statistics
from reclick.models.kernels.cascade import (
    SMALLEST_PROBABILITY,
    ExaminationCounts,
    count_examinations,
    examined_until,
    first_click_positions,
    last_click_positions,
)
from reclick.runtime.jit import kernel

FIRST_INITIATION = 0.9  # where EM starts, and the prior mean of one μ for all queries
OVERALL_RATE_STRENGTH = 1.0  # of the prior of one rate for all queries
Rate = Float64 | float  # [query], or one for all queries


def is_by_query(value: Rate | RowRun) -> bool:
    """Whether every query has a rate of its own."""
    return isinstance(value, np.ndarray | RowRun)


def rate_of_block(value: Rate, block: QueryBlock) -> Float64:
    """The rate of each query of a block [query], from a rate per query or one for all."""
    if isinstance(value, np.ndarray | RowRun):
        return value[block.queries]
    return np.full(block.n_queries, float(value))


def rate_of_sessions(values: Float64 | None, overall: float, query: Int32) -> Rate:
    """The rate of each session's query [session]; the overall one where it is unknown."""
    if values is None:
        return overall
    return np.where(query >= 0, values[query], overall)


class RateCounts(NamedTuple):
    """The successes and the trials of the rates of queries."""

    successes: Float64  # [query]
    trials: Float64  # [query]
    total_successes: float  # of all queries of the log
    total_trials: float


def estimate_rate(now: Rate, counts: RateCounts, mean: float, strength: float) -> Rate:
    """Estimate a rate per query, or one for all queries, whichever `now` is."""
    if isinstance(now, np.ndarray):
        return clip_to_interior(posterior_mean(counts.successes, counts.trials, mean, strength))
    total = posterior_mean(
        np.asarray(counts.total_successes), np.asarray(counts.total_trials), mean, strength
    )
    return float(clip_to_interior(total))


def clip_to_interior(probability: Float64) -> Float64:
    """Clip probabilities away from 0 and 1."""
    return np.clip(probability, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


def sessions_per_query(blocks: Sequence[QueryBlock]) -> Float64:
    """The sessions of each query [query]."""
    return np.concatenate([block.volumes for block in blocks])


class InitiationPrior(NamedTuple):
    """The prior of μ, and the sessions that it is estimated from."""

    n_sessions: Float64  # [query]
    total: float  # sessions of all queries
    query_strength: float  # of the prior of a query's own μ
    overall: float = FIRST_INITIATION  # its mean

    def _mean_and_strength(self, now: Rate) -> tuple[float, float]:
        if isinstance(now, np.ndarray):
            return self.overall, self.query_strength
        return FIRST_INITIATION, OVERALL_RATE_STRENGTH

    def estimate(self, now: Rate, statistics: Statistics) -> Rate:
        """The M-step, from the sessions whose list was examined."""
        counts = RateCounts(
            statistics.pairs["initiated"],
            self.n_sessions,
            float(statistics.totals["all_initiated"]),
            self.total,
        )
        return estimate_rate(now, counts, *self._mean_and_strength(now))

    def log_density(self, now: Rate) -> float:
        """Log-density of μ."""
        return log_beta(np.asarray(now), *self._mean_and_strength(now))


# ---- models that are fitted by counting


class InitiationParameters(NamedTuple):
    """What EM estimates."""

    theta: Float64  # [pair]
    initiation: Rate

    def for_block(self, rows: BlockRows) -> Any:
        """The parameters that the E-step of a block needs."""
        return cut_rows(self, rows, ("theta",), ("initiation",))


class InitiationBlock(NamedTuple):
    """The counts of the sessions with a click, and the sessions without one."""

    observed: ExaminationCounts  # [pair] of sessions with a click
    n_clicked: Float64  # [query] sessions with a click
    unclicked: QueryBlock

    @property
    def rows(self) -> BlockRows:
        """The rows of its pairs and queries among those of the log."""
        return self.unclicked.rows


def split_to_first_click(block: QueryBlock) -> InitiationBlock:
    """Split off the sessions without a click; users examine the page down to the first click."""
    return _split(block, first_click_positions(block))


def split_to_last_click(block: QueryBlock) -> InitiationBlock:
    """Split off the sessions without a click; users examine the page down to the last click."""
    return _split(block, last_click_positions(block))


def _split(block: QueryBlock, ends: Int64) -> InitiationBlock:
    rows = np.flatnonzero(ends)
    with_click = block.select(rows)
    observed = count_examinations(with_click, examined_until(ends[rows], with_click))
    n_clicked = np.bincount(with_click.query, with_click.weight, block.n_queries).astype(np.float64)
    return InitiationBlock(observed, n_clicked, block.select(np.flatnonzero(ends == 0)))


@dataclass(frozen=True)
class InitiationProblem(EMProblem[InitiationParameters]):
    """θ and μ of a cascade that ends at known positions; who examined the list is not observed.

    θ = (clicks + s m) / (expected examinations + s); μ = expected initiated sessions / sessions.
    """

    blocks: Sequence[InitiationBlock]
    clicks: Float64  # [pair]
    prior: BetaPrior  # of θ [pair]
    initiation: InitiationPrior
    by_query: bool  # whether every query has its own μ

    @property
    def sessions(self) -> float:  # type: ignore[override]
        """The number of sessions of the whole log."""
        return self.initiation.total

    @property
    def e_step(self) -> Callable[[InitiationParameters, InitiationBlock], Statistics]:
        """The E-step of a block of sessions."""
        return e_step

    def start(self, last: InitiationParameters | None) -> InitiationParameters:
        """The prior means, or the result of another EM; each μ per query starts at that of all."""
        now = last or InitiationParameters(clip_to_interior(self.prior.mean), FIRST_INITIATION)
        if not self.by_query:
            return now
        rates = np.full(len(self.initiation.n_sessions), self.initiation.overall)
        return now._replace(initiation=rates)

    def m_step(self, now: InitiationParameters, statistics: Statistics) -> InitiationParameters:
        """Estimate θ of each pair, and μ of each query or of all."""
        theta = posterior_mean(self.clicks, statistics.pairs["examinations"], *self.prior)
        rate = self.initiation.estimate(now.initiation, statistics)
        return InitiationParameters(clip_to_interior(theta), rate)

    def log_prior(self, now: InitiationParameters) -> float:
        """Log-density of one μ for all queries."""
        return 0.0 if self.by_query else self.initiation.log_density(now.initiation)

    def log_row_prior(self, now: InitiationParameters) -> float:
        """Log-density of θ, and of each μ per query."""
        value = log_beta(now.theta, *self.prior)
        return value + self.initiation.log_density(now.initiation) if self.by_query else value


def e_step(parameters: InitiationParameters, block: InitiationBlock) -> Statistics:
    """Expected examinations [pair] and initiated sessions [query], and the log-likelihood."""
    sessions, observed = block.unclicked, block.observed
    theta = parameters.theta[sessions.pairs]
    rate = rate_of_block(parameters.initiation, sessions)
    examinations, initiated = observed.examinations.copy(), block.n_clicked.copy()
    skips = observed.examinations - observed.clicks
    unclicked = _expect_unclicked(
        sessions.pair, sessions.pair_query, sessions.page, sessions.weight, theta, rate,
        examinations, initiated,
    )  # fmt: skip
    clicked = observed.clicks @ np.log(theta) + skips @ np.log(1 - theta)
    total = unclicked + float(clicked + block.n_clicked @ np.log(rate))
    pairs = PairSums.of(sessions.first_pair, examinations=examinations)
    pairs += PairSums.of(sessions.first_query, initiated=initiated)
    return Statistics(total, {"all_initiated": np.asarray(initiated.sum())}, pairs)


@kernel
def _expect_unclicked(
    pair: Int32, pair_query: Int32, page: Int64, weight: Float64, theta: Float64,
    initiation: Float64, examinations: Float64, initiated: Float64,
) -> float:  # fmt: skip
    """Add the expectations of sessions without a click, and return their log-probability."""
    total = 0.0
    for s in range(len(weight)):
        query = pair_query[pair[page[s]]]
        start = initiation[query]
        examined_no_click = start
        for i in range(page[s], page[s + 1]):
            examined_no_click *= 1.0 - theta[pair[i]]
        no_click = max(1.0 - start + examined_no_click, SMALLEST_PROBABILITY)
        expected = weight[s] * examined_no_click / no_click
        initiated[query] += expected
        for i in range(page[s], page[s + 1]):
            examinations[pair[i]] += expected
        total += weight[s] * np.log(no_click)
    return total
