"""EM of the models with P(click) = θ(q, d) · γ(state), over cells that summarise a whole log.

The state of an impression decides how likely it is examined: its position (PBM), or its position
and that of the closest click above (UBM, BBM). A clicked ad was examined, so of clicks only the
totals by pair and by state matter; of the other impressions, how many each pair had in each state:
its cells. The complete data are E, examined or not, and the click, if it was:

    P(E | no click) = γ (1 − θ) / (1 − θγ)
    θ = (clicks + s m) / (Σ P(E) + s)
    γ = (Σ P(E) + s' m') / (impressions + s')

Only products θγ can be inferred: twice the θ with half the γ is the same model. The priors,
by which the top of the page is nearly always examined, fix the scale.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.clicks.chain import PROBABILITY_MARGIN, chain_pages
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import BlockRows, QueryBlock, cut_rows
from reclick.data.ragged import Bool, Float64, Int32, Int64, starts_from_sizes
from reclick.data.stored_tables import MOST_CELLS, read_lists, read_numbers, table_error
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import EMProblem, PairSums, Statistics
from reclick.runtime.jit import kernel

SMALLEST_PRODUCT = 1e-200  # the logarithm of a smaller product is taken before it underflows
EXAMINATION_MARGIN = 1e-2  # how near to 0 and 1 the prior mean of an examination may come


@dataclass(frozen=True, slots=True, eq=False)
class ExaminationCells:
    """Clicks by pair and by state, and skips (impressions without a click) by pair and state.

    With browsing, state = length · (position of the closest click above, 0 when none)
    + position − 1; without, state = position − 1. The cells of a pair are contiguous.
    """

    clicks: Float64  # [pair]
    state_clicks: Float64  # [state]
    impressions: Float64  # [state]
    starts: Int64  # [pair + 1] where each pair's cells start
    state: Int32  # [cell]
    skips: Float64  # [cell]

    @classmethod
    def build(cls, block: QueryBlock, *, length: int, browsing: bool) -> ExaminationCells:
        """The cells of sessions; `length` is the longest page of the whole log."""
        n_states = (length + 1) * length if browsing else length
        clicks, (state_clicks, impressions) = np.zeros(block.n_pairs), np.zeros((2, n_states))
        begin = starts_from_sizes(np.bincount(block.pair, minlength=block.n_pairs))
        state, skips = np.empty(len(block.pair), np.int32), np.empty(len(block.pair))
        end = begin[:-1].copy()
        _sort_skips(
            block.pair, block.page, block.click, block.clicks, block.weight, length, browsing,
            clicks, state_clicks, impressions, end, state, skips, np.zeros(length, np.bool_),
        )  # fmt: skip
        starts, distinct = np.zeros(len(begin), np.int64), np.empty(n_states, np.int32)
        _merge_equal(begin, end, state, skips, starts, np.zeros(n_states), distinct)
        size = starts[-1]
        return cls(
            clicks, state_clicks, impressions, starts, state[:size].copy(), skips[:size].copy()
        )

    @classmethod
    def concatenate(cls, parts: Sequence[ExaminationCells]) -> ExaminationCells:
        """The cells of runs of pairs, one run after another."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.clicks for part in parts]),
            np.sum([part.state_clicks for part in parts], axis=0),
            np.sum([part.impressions for part in parts], axis=0),
            starts_from_sizes(np.concatenate([np.diff(part.starts) for part in parts])),
            np.concatenate([part.state for part in parts]),
            np.concatenate([part.skips for part in parts]),
        )

    def to_table(self) -> pa.Table:
        """A table for saving: per pair its clicks and its lists of states and skips."""
        starts = self.starts.astype(np.int64)
        lists = {
            "state": pa.LargeListArray.from_arrays(starts, self.state),
            "skips": pa.LargeListArray.from_arrays(starts, self.skips),
        }
        return pa.table({"clicks": self.clicks, **lists})

    @classmethod
    def from_table(cls, table: pa.Table) -> ExaminationCells:
        """Restore the cells of `to_table`, without the totals by state."""
        tables = {"cells": table}
        clicks = read_numbers(tables, "cells", "clicks", low=0).copy()
        starts, state = read_lists(tables, "cells", "state", low=0, high=MOST_CELLS)
        _, skips = read_lists(tables, "cells", "skips", low=0)
        if len(skips) != len(state) or len(starts) != len(clicks) + 1:
            raise table_error("cells", "its lists are not of the same lengths")
        return cls(clicks, np.zeros(0), np.zeros(0), starts, state.copy(), skips.copy())


class ExaminationParameters(NamedTuple):
    """What EM estimates."""

    theta: Float64  # [pair]
    gamma: Float64  # [state]

    def for_block(self, rows: BlockRows) -> Any:
        """The parameters that the E-step of a block needs."""
        return cut_rows(self, rows, pairs=("theta",))


class ExaminationPrior(NamedTuple):
    """The prior of θ, in examinations, and the means and the strength of γ's, in impressions."""

    theta: BetaPrior  # [pair]
    gamma: Float64  # [state]
    gamma_strength: float


class ExaminationBlock(NamedTuple):
    """The cells of a run of pairs, and the prior of their θ."""

    first_pair: int
    cells: ExaminationCells
    prior: BetaPrior | None = None  # [pair] known when EM starts

    @property
    def rows(self) -> BlockRows:
        """The rows of its pairs among those of the log."""
        pairs = slice(self.first_pair, self.first_pair + len(self.cells.clicks))
        return BlockRows(slice(0, 0), pairs)

    def with_prior(self, prior: BetaPrior) -> ExaminationBlock:
        """The same with its part of the prior of all pairs."""
        pairs = slice(self.first_pair, self.first_pair + len(self.cells.clicks))
        return self._replace(prior=BetaPrior(*(each[pairs].copy() for each in prior)))


class ExaminationData(NamedTuple):
    """The cells of a log, in blocks."""

    sessions: float
    length: int  # of the longest page
    blocks: Sequence[ExaminationBlock]


def build_cells(block: QueryBlock, *, length: int, browsing: bool) -> ExaminationBlock:
    """The cells of a block of sessions."""
    cells = ExaminationCells.build(block, length=length, browsing=browsing)
    return ExaminationBlock(block.first_pair, cells)


def position_means(prior: str | float, counts: Counts, length: int) -> Float64:
    """Prior mean of the examination of each position.

    It is `prior` if that is a number, or the click rate of the position relative to that of the
    first, from 0.01 to 0.99.
    """
    if not isinstance(prior, str):
        return np.full(length, float(prior))
    longest = max(counts.max_ads, 1)
    by_click = np.repeat(counts.per_sequence(), np.diff(counts.sequence_starts))
    clicks = np.bincount(counts.sequence_clicks, by_click, longest + 1)[1:]
    impressions = np.cumsum(counts.lengths.sum(axis=1)[::-1])[::-1][1:]
    rates = clicks[: len(impressions)] / np.maximum(impressions, sys.float_info.min)
    highest = 1 - EXAMINATION_MARGIN
    if len(rates) and rates[0] > 0:
        relative = np.clip(rates / rates[0], EXAMINATION_MARGIN, highest)
    else:
        relative = np.full(1, highest)
    return np.asarray(relative[np.minimum(np.arange(length), len(relative) - 1)])


def browsing_means(means: Float64) -> Float64:
    """Prior mean of the examination of each position after each last click [last, position].

    Below a click, the means are those of a page that begins there.
    """
    distance = np.arange(len(means)) - np.arange(len(means) + 1)[:, None]
    return np.asarray(np.where(distance >= 0, means[np.maximum(distance, 0)], 0.0))


@dataclass(frozen=True)
class ExaminationProblem(EMProblem[ExaminationParameters]):
    """The θ and γ of highest posterior density."""

    sums: ClassVar[tuple[str, ...]] = ("state_clicks", "impressions")

    blocks: Sequence[ExaminationBlock]
    prior: ExaminationPrior
    clicks: Float64  # [pair]
    state_clicks: Float64  # [state]
    impressions: Float64  # [state]
    sessions: float

    @classmethod
    def of(cls, data: ExaminationData, prior: ExaminationPrior) -> ExaminationProblem:
        """The problem of some cells."""
        blocks = [block.with_prior(prior.theta) for block in data.blocks]
        return cls(
            blocks,
            prior,
            np.concatenate([block.cells.clicks for block in blocks]),
            np.sum([block.cells.state_clicks for block in blocks], axis=0),
            np.sum([block.cells.impressions for block in blocks], axis=0),
            data.sessions,
        )

    @property
    def e_step(self) -> Callable[[ExaminationParameters, ExaminationBlock], Statistics]:
        """The E-step of a block of cells."""
        return e_step

    def start(self, last: ExaminationParameters | None) -> ExaminationParameters:
        """The prior means, or the parameters of a pilot fit."""
        means = self.prior.theta.mean, self.prior.gamma
        return last or ExaminationParameters(*map(_clip_to_interior, means))

    def m_step(self, now: ExaminationParameters, statistics: Statistics) -> ExaminationParameters:
        """Estimate θ from the examinations of its pair, γ from those of its state."""
        mean, strength = self.prior.theta
        successes, theta = self._successes, np.empty(len(mean))
        for first, examinations in statistics.pairs.runs("examinations"):
            pairs = slice(first, first + len(examinations))
            _divide(successes[pairs], examinations + strength[pairs], theta[pairs])
        if not strength.all():
            theta = np.where(np.isfinite(theta), theta, mean)  # of pairs without a session
        examined = self.state_clicks + statistics.totals["examined"]
        gamma = posterior_mean(
            examined, self.impressions, self.prior.gamma, self.prior.gamma_strength
        )
        return ExaminationParameters(_clip_to_interior(theta), _clip_to_interior(gamma))

    @cached_property
    def _successes(self) -> Float64:
        return np.asarray(self.clicks + self.prior.theta.strength * self.prior.theta.mean)

    def log_prior(self, now: ExaminationParameters) -> float:
        """The terms that the E-step leaves out: the prior of γ, and log γ of the clicks."""
        reached = self.impressions > 0
        gamma = now.gamma[reached]
        clicks = float(self.state_clicks[reached] @ np.log(gamma))
        return clicks + log_beta(gamma, self.prior.gamma[reached], self.prior.gamma_strength)

    def log_row_prior(self, now: ExaminationParameters) -> float:
        """Return 0: the E-step adds the log-density of θ."""
        return 0.0


def e_step(parameters: ExaminationParameters, block: ExaminationBlock) -> Statistics:
    """Expected examinations [pair], those without a click [state], and the log-posterior of θ."""
    first, cells, prior = block
    if prior is None:
        raise ValueError("the block has no prior: call with_prior first")
    mean, strength = prior
    examinations, examined = np.empty(len(mean)), np.zeros(len(cells.impressions))
    total = _expect(
        cells.clicks, cells.starts, cells.state, cells.skips, mean, strength,
        parameters.theta[first : first + len(mean)], parameters.gamma, examinations, examined,
    )  # fmt: skip
    pairs = PairSums.of(first, examinations=examinations)
    return Statistics(total, {"examined": examined}, pairs)


def _divide(part: Float64, whole: Float64, out: Float64) -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        np.divide(part, whole, out=out)


def _clip_to_interior(probability: Float64) -> Float64:
    return np.clip(probability, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


@kernel
def _sort_skips(
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64, length: int,
    browsing: bool, clicks_on: Float64, state_clicks: Float64, impressions: Float64, end: Int64,
    state: Int32, skips: Float64, is_clicked: Bool,
) -> None:  # fmt: skip
    """Add up clicks and impressions, and append each skip to those of its pair.

    `is_clicked` [position] is all False.
    """
    for s in range(len(weight)):
        for c in range(clicks[s], clicks[s + 1]):
            is_clicked[click[c] - 1] = True
        row = 0
        for j in range(page[s + 1] - page[s]):
            p, at = pair[page[s] + j], row + j
            impressions[at] += weight[s]
            if is_clicked[j]:
                is_clicked[j] = False
                clicks_on[p] += weight[s]
                state_clicks[at] += weight[s]
                row = (j + 1) * length if browsing else 0
            else:
                state[end[p]] = at
                skips[end[p]] = weight[s]
                end[p] += 1


@kernel
def _merge_equal(
    begin: Int64, end: Int64, state: Int32, skips: Float64, starts: Int64, totals: Float64,
    distinct: Int32,
) -> None:  # fmt: skip
    """Merge the cells of each pair with equal states, in place, and fill `starts`.

    `totals` [state] is all 0.
    """
    at = 0
    for p in range(len(end)):
        size = 0
        for i in range(begin[p], end[p]):
            if totals[state[i]] == 0.0:
                distinct[size] = state[i]
                size += 1
            totals[state[i]] += skips[i]
        for k in range(size):  # single skips first: `_expect` branches better then
            if totals[distinct[k]] == 1.0:
                state[at], skips[at] = distinct[k], 1.0
                totals[distinct[k]] = 0.0
                at += 1
        for k in range(size):
            if totals[distinct[k]] != 0.0:
                state[at], skips[at] = distinct[k], totals[distinct[k]]
                totals[distinct[k]] = 0.0
                at += 1
        starts[p + 1] = at


@kernel
def _expect(
    clicks: Float64, starts: Int64, state: Int32, skips: Float64, mean: Float64, strength: Float64,
    theta: Float64, gamma: Float64, examinations: Float64, examined: Float64,
) -> float:  # fmt: skip
    """Fill `examinations`, add expected unclicked examinations to `examined` by state.

    Return the log-posterior.

    Logarithms are most of the work. So probabilities with the same exponent are multiplied, with
    one logarithm for many of them: those of one or two skips, and the priors of consecutive pairs
    that have the same prior.
    """
    total, product, attracted, not_attracted = 0.0, 1.0, 1.0, 1.0
    prior_mean, prior_strength = 0.0, 0.0
    for p in range(len(clicks)):
        chance, unattractive, expected = theta[p], 1.0 - theta[p], clicks[p]
        for i in range(starts[p], starts[p + 1]):
            examination = gamma[state[i]]
            no_click = 1.0 - chance * examination
            more = skips[i] * examination * unattractive / no_click
            expected += more
            examined[state[i]] += more
            if skips[i] == 1.0:
                product *= no_click
            elif skips[i] == 2.0:
                product *= no_click * no_click
            else:
                total += skips[i] * math.log(no_click)
            if product < SMALLEST_PRODUCT:
                total += math.log(product)
                product = 1.0
        examinations[p] = expected
        if clicks[p] > 0.0:
            total += clicks[p] * math.log(chance)
        if (
            mean[p] != prior_mean
            or strength[p] != prior_strength
            or attracted < SMALLEST_PRODUCT
            or not_attracted < SMALLEST_PRODUCT
        ):
            log_prior = prior_mean * math.log(attracted)
            log_prior += (1.0 - prior_mean) * math.log(not_attracted)
            total += prior_strength * log_prior
            attracted = not_attracted = 1.0
            prior_mean, prior_strength = mean[p], strength[p]
        attracted *= chance
        not_attracted *= unattractive
    log_prior = prior_mean * math.log(attracted) + (1.0 - prior_mean) * math.log(not_attracted)
    return total + math.log(product) + prior_strength * log_prior


@kernel
def fill_browsing_chain(
    page: Int64, theta: Float64, gamma: Float64, out: Float64, end: Float64
) -> None:
    """F[l, j] = θ_j γ_lj Π_{l < i < j} (1 − θ_i γ_li): positions are clicked independently."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        for last in range(n + 1):
            no_click = 1.0
            for j in range(last, n):
                chance = theta[page[s] + j] * gamma[last, j]
                out[s, last, j] = no_click * chance
                no_click *= 1.0 - chance
            end[s, last] = no_click


def browse_pages(
    batch: SessionBatch, theta: Float64, gamma: Float64
) -> Callable[[int, int], PageDistribution]:
    """The page distribution of UBM and BBM from θ [impression] and γ [last, position]."""
    extended = extend_examination(gamma, int(np.diff(batch.page).max(initial=1)))
    return chain_pages(batch, fill_browsing_chain, (theta,), (extended,))


def extend_examination(gamma: Float64, length: int) -> Float64:
    """γ [last, position] for longer pages.

    A position beyond the known ones has the γ of the last known one, at the same distance from the
    last click.
    """
    n_known = gamma.shape[1]
    if length <= n_known:
        return gamma
    last, position = np.indices((length + 1, length))
    beyond = np.maximum(position - n_known + 1, 0)
    known_last = np.where(last > 0, np.maximum(last - beyond, 1), 0)
    return np.ascontiguousarray(
        gamma[np.minimum(known_last, n_known - 1), np.minimum(position, n_known - 1)]
    )
