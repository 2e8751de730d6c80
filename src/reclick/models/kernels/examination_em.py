"""EM of the models with P(click) = θ(q, d) · γ(state), over cells that stand for a whole log.

The state of an impression decides how likely it is examined: its position (PBM), or its position
and that of the closest click above (UBM, BBM). A clicked ad was examined, so of clicks only the
totals by pair and by state matter; of the other impressions, how many each pair had in each state:
its cells. The complete data are E, examined or not, and the click, if it was:

    P(E | no click) = γ (1 − θ) / (1 − θγ)
    θ = (clicks + s m) / (Σ P(E) + s)
    γ = (Σ P(E) + s' m') / (impressions + s')

Only products θγ can be inferred: twice the θ with half the γ is the same model. The priors, which
have the top of the page examined nearly always, fix the scale.
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

SMALLEST_PRODUCT = 1e-200  # its logarithm is taken before it vanishes
EXAMINATION_MARGIN = 1e-2  # how near to 0 and 1 the prior mean of an examination may come


@dataclass(frozen=True, slots=True, eq=False)
class ExaminationCells:
    """Clicks by pair and by state, and skips (impressions without a click) by pair and state.

    With browsing, state = length · (position of the closest click above, 0 when none)
    + position − 1; without, state = position − 1. The cells of a pair stand side by side.
    """

    clicks: Float64  # [pair]
    clicked: Float64  # [state] impressions that were clicked
    shown: Float64  # [state] impressions
    starts: Int64  # [pair + 1] where each pair's cells start
    state: Int32  # [cell]
    skips: Float64  # [cell]

    @classmethod
    def build(cls, block: QueryBlock, *, length: int, browsing: bool) -> ExaminationCells:
        """The cells of sessions; `length` is the longest page of the whole log."""
        n_states = (length + 1) * length if browsing else length
        clicks, (clicked, shown) = np.zeros(block.n_pairs), np.zeros((2, n_states))
        begin = starts_from_sizes(np.bincount(block.pair, minlength=block.n_pairs))
        state, skips = np.empty(len(block.pair), np.int32), np.empty(len(block.pair))
        end = begin[:-1].copy()
        _sort_skips(
            block.pair, block.page, block.click, block.clicks, block.weight, length, browsing,
            clicks, clicked, shown, end, state, skips, np.zeros(length, np.bool_),
        )  # fmt: skip
        starts, seen = np.zeros(len(begin), np.int64), np.empty(n_states, np.int32)
        _merge_equal(begin, end, state, skips, starts, np.zeros(n_states), seen)
        size = starts[-1]
        return cls(clicks, clicked, shown, starts, state[:size].copy(), skips[:size].copy())

    @classmethod
    def concatenate(cls, parts: Sequence[ExaminationCells]) -> ExaminationCells:
        """The cells of runs of pairs, one run after another."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.clicks for part in parts]),
            np.sum([part.clicked for part in parts], axis=0),
            np.sum([part.shown for part in parts], axis=0),
            starts_from_sizes(np.concatenate([np.diff(part.starts) for part in parts])),
            np.concatenate([part.state for part in parts]),
            np.concatenate([part.skips for part in parts]),
        )

    def to_table(self) -> pa.Table:
        """For saving: per pair its clicks and its list of (state, skips)."""
        starts = self.starts.astype(np.int64)
        lists = {
            "state": pa.LargeListArray.from_arrays(starts, self.state),
            "skips": pa.LargeListArray.from_arrays(starts, self.skips),
        }
        return pa.table({"clicks": self.clicks, **lists})

    @classmethod
    def from_table(cls, table: pa.Table) -> ExaminationCells:
        """What `to_table` was given, without the totals by state."""
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
        """What the step of a block needs."""
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
        """Where its pairs stand among those of the log."""
        pairs = slice(self.first_pair, self.first_pair + len(self.cells.clicks))
        return BlockRows(slice(0, 0), pairs)

    def with_prior(self, prior: BetaPrior) -> ExaminationBlock:
        """The same with its part of the prior of all pairs."""
        pairs = slice(self.first_pair, self.first_pair + len(self.cells.clicks))
        return self._replace(prior=BetaPrior(*(each[pairs].copy() for each in prior)))


class ExaminationData(NamedTuple):
    """What is known of a log: its cells, in blocks."""

    sessions: float
    length: int  # of the longest page
    blocks: Sequence[ExaminationBlock]


def build_cells(block: QueryBlock, *, length: int, browsing: bool) -> ExaminationBlock:
    """The cells of a block of sessions."""
    cells = ExaminationCells.build(block, length=length, browsing=browsing)
    return ExaminationBlock(block.first_pair, cells)


def position_means(prior: str | float, counts: Counts, length: int) -> Float64:
    """Prior mean of the examination of each position.

    A number, or the click rate of the position relative to that of the first, 0.01 to 0.99.
    """
    if not isinstance(prior, str):
        return np.full(length, float(prior))
    known = max(counts.max_ads, 1)
    by_click = np.repeat(counts.per_sequence(), np.diff(counts.sequence_starts))
    clicks = np.bincount(counts.sequence_clicks, by_click, known + 1)[1:]
    shown = np.cumsum(counts.lengths.sum(axis=1)[::-1])[::-1][1:]
    rates = clicks[: len(shown)] / np.maximum(shown, sys.float_info.min)
    highest = 1 - EXAMINATION_MARGIN
    if len(rates) and rates[0] > 0:
        relative = np.clip(rates / rates[0], EXAMINATION_MARGIN, highest)
    else:
        relative = np.full(1, highest)
    return np.asarray(relative[np.minimum(np.arange(length), len(relative) - 1)])


def browsing_means(means: Float64) -> Float64:
    """Prior mean of the examination of each position after each last click [last, position].

    Below a click it is as if the page began there.
    """
    distance = np.arange(len(means)) - np.arange(len(means) + 1)[:, None]
    return np.asarray(np.where(distance >= 0, means[np.maximum(distance, 0)], 0.0))


@dataclass(frozen=True)
class ExaminationProblem(EMProblem[ExaminationParameters]):
    """The θ and γ of highest posterior density."""

    sums: ClassVar[tuple[str, ...]] = ("clicked", "shown")

    blocks: Sequence[ExaminationBlock]
    prior: ExaminationPrior
    clicks: Float64  # [pair]
    clicked: Float64  # [state]
    shown: Float64  # [state]
    sessions: float

    @classmethod
    def of(cls, data: ExaminationData, prior: ExaminationPrior) -> ExaminationProblem:
        """The problem of some cells."""
        blocks = [block.with_prior(prior.theta) for block in data.blocks]
        return cls(
            blocks,
            prior,
            np.concatenate([block.cells.clicks for block in blocks]),
            np.sum([block.cells.clicked for block in blocks], axis=0),
            np.sum([block.cells.shown for block in blocks], axis=0),
            data.sessions,
        )

    @property
    def e_step(self) -> Callable[[ExaminationParameters, ExaminationBlock], Statistics]:
        """Of a block of cells."""
        return e_step

    def start(self, last: ExaminationParameters | None) -> ExaminationParameters:
        """The prior means, or where a pilot ended."""
        means = self.prior.theta.mean, self.prior.gamma
        return last or ExaminationParameters(*map(_clip_to_interior, means))

    def m_step(self, now: ExaminationParameters, statistics: Statistics) -> ExaminationParameters:
        """θ from the examinations of its pair, γ from those of its state."""
        mean, strength = self.prior.theta
        successes, theta = self._successes, np.empty(len(mean))
        for first, examinations in statistics.pairs.runs("examinations"):
            pairs = slice(first, first + len(examinations))
            _divide(successes[pairs], examinations + strength[pairs], theta[pairs])
        if not strength.all():
            theta = np.where(np.isfinite(theta), theta, mean)  # of pairs without a session
        examined = self.clicked + statistics.totals["examined"]
        gamma = posterior_mean(examined, self.shown, self.prior.gamma, self.prior.gamma_strength)
        return ExaminationParameters(_clip_to_interior(theta), _clip_to_interior(gamma))

    @cached_property
    def _successes(self) -> Float64:
        return np.asarray(self.clicks + self.prior.theta.strength * self.prior.theta.mean)

    def log_prior(self, now: ExaminationParameters) -> float:
        """What the E-step leaves out: the prior of γ, and log γ of the clicks."""
        reached = self.shown > 0
        gamma = now.gamma[reached]
        clicks = float(self.clicked[reached] @ np.log(gamma))
        return clicks + log_beta(gamma, self.prior.gamma[reached], self.prior.gamma_strength)

    def log_row_prior(self, now: ExaminationParameters) -> float:
        """Nothing: the E-step adds the log-density of θ."""
        return 0.0


def e_step(parameters: ExaminationParameters, block: ExaminationBlock) -> Statistics:
    """Expected examinations [pair], those without a click [state], and the log-posterior of θ."""
    first, cells, prior = block
    if prior is None:
        raise ValueError("the block has no prior: call with_prior first")
    mean, strength = prior
    examinations, examined = np.empty(len(mean)), np.zeros(len(cells.shown))
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
    browsing: bool, clicks_on: Float64, clicked: Float64, shown: Float64, end: Int64,
    state: Int32, skips: Float64, marked: Bool,
) -> None:  # fmt: skip
    """Add up clicks, and put the other impressions where those of their pair end.

    marked [position] is all False.
    """
    for s in range(len(weight)):
        for c in range(clicks[s], clicks[s + 1]):
            marked[click[c] - 1] = True
        row = 0
        for j in range(page[s + 1] - page[s]):
            p, at = pair[page[s] + j], row + j
            shown[at] += weight[s]
            if marked[j]:
                marked[j] = False
                clicks_on[p] += weight[s]
                clicked[at] += weight[s]
                row = (j + 1) * length if browsing else 0
            else:
                state[end[p]] = at
                skips[end[p]] = weight[s]
                end[p] += 1


@kernel
def _merge_equal(
    begin: Int64, end: Int64, state: Int32, skips: Float64, starts: Int64, totals: Float64,
    seen: Int32,
) -> None:  # fmt: skip
    """Add up equal states of each pair, in place, and fill in where each pair's cells start then.

    totals [state] is all 0.
    """
    at = 0
    for p in range(len(end)):
        size = 0
        for i in range(begin[p], end[p]):
            if totals[state[i]] == 0.0:
                seen[size] = state[i]
                size += 1
            totals[state[i]] += skips[i]
        for k in range(size):  # single skips first: `_expect` branches better then
            if totals[seen[k]] == 1.0:
                state[at], skips[at] = seen[k], 1.0
                totals[seen[k]] = 0.0
                at += 1
        for k in range(size):
            if totals[seen[k]] != 0.0:
                state[at], skips[at] = seen[k], totals[seen[k]]
                totals[seen[k]] = 0.0
                at += 1
        starts[p + 1] = at


@kernel
def _expect(
    clicks: Float64, starts: Int64, state: Int32, skips: Float64, mean: Float64, strength: Float64,
    theta: Float64, gamma: Float64, examinations: Float64, examined: Float64,
) -> float:  # fmt: skip
    """Fill `examinations`, add expected unclicked examinations to `examined` by state.

    Return the log-posterior.

    Logarithms are most of the work. So probabilities of the same exponent are multiplied and have
    one logarithm for many: those of one or two skips, and the priors of pairs that have the same.
    """
    total, few, attracted, not_attracted, shared, weight = 0.0, 1.0, 1.0, 1.0, 0.0, 0.0
    for p in range(len(clicks)):
        chance, passed, expected = theta[p], 1.0 - theta[p], clicks[p]
        for i in range(starts[p], starts[p + 1]):
            examination = gamma[state[i]]
            no_click = 1.0 - chance * examination
            more = skips[i] * examination * passed / no_click
            expected += more
            examined[state[i]] += more
            if skips[i] == 1.0:
                few *= no_click
            elif skips[i] == 2.0:
                few *= no_click * no_click
            else:
                total += skips[i] * math.log(no_click)
            if few < SMALLEST_PRODUCT:
                total += math.log(few)
                few = 1.0
        examinations[p] = expected
        if clicks[p] > 0.0:
            total += clicks[p] * math.log(chance)
        if (
            mean[p] != shared
            or strength[p] != weight
            or attracted < SMALLEST_PRODUCT
            or not_attracted < SMALLEST_PRODUCT
        ):
            log_prior = shared * math.log(attracted) + (1.0 - shared) * math.log(not_attracted)
            total += weight * log_prior
            attracted = not_attracted = 1.0
            shared, weight = mean[p], strength[p]
        attracted *= chance
        not_attracted *= passed
    log_prior = shared * math.log(attracted) + (1.0 - shared) * math.log(not_attracted)
    return total + math.log(few) + weight * log_prior


@kernel
def fill_browsing_chain(
    page: Int64, theta: Float64, gamma: Float64, out: Float64, end: Float64
) -> None:
    """F[l, j] = θ_j γ_lj Π_{l < i < j} (1 − θ_i γ_li): positions are clicked independently."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        for last in range(n + 1):
            none = 1.0
            for j in range(last, n):
                chance = theta[page[s] + j] * gamma[last, j]
                out[s, last, j] = none * chance
                none *= 1.0 - chance
            end[s, last] = none


def browse_pages(
    batch: SessionBatch, theta: Float64, gamma: Float64
) -> Callable[[int, int], PageDistribution]:
    """The page distribution of UBM and BBM from θ [impression] and γ [last, position]."""
    extended = extend_examination(gamma, int(np.diff(batch.page).max(initial=1)))
    return chain_pages(batch, fill_browsing_chain, (theta,), (extended,))


def extend_examination(gamma: Float64, length: int) -> Float64:
    """γ [last, position] for longer pages.

    A position beyond the known ones has the examination of the last, as far below the last click.
    """
    known = gamma.shape[1]
    if length <= known:
        return gamma
    last, position = np.indices((length + 1, length))
    beyond = np.maximum(position - known + 1, 0)
    moved = np.where(last > 0, np.maximum(last - beyond, 1), 0)
    return np.ascontiguousarray(
        gamma[np.minimum(moved, known - 1), np.minimum(position, known - 1)]
    )
