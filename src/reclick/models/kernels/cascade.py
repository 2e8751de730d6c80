"""What cascade models share: the user scans down from the top, and may stop at any position.

Such a model has three probabilities per position: θ_i of a click when it is examined, and those of
going on after a click and after none. All positions down to the last click were examined. Whether
the positions below it, the tail, were examined is not observed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from reclick.clicks.chain import ChainPages, chain_pages
from reclick.data.batch import SessionBatch
from reclick.data.grouped_sessions import BlockRows, GroupedSessions, QueryBlock
from reclick.data.outcomes import N_OUTCOMES, Int8
from reclick.data.ragged import Float64, Int32, Int64, read_only
from reclick.engines import Engine
from reclick.runtime.jit import kernel, subkernel

SMALLEST_PROBABILITY = 1e-290  # lower limit of probabilities that are divided by


class ExaminationCounts(NamedTuple):
    """Examinations and clicks of each pair, where sessions end at given positions."""

    examinations: Float64  # [pair]
    clicks: Float64  # [pair]
    last_clicks: Float64  # [pair] clicks at the position where the session ends


class CascadeBlock(NamedTuple):
    """Sessions, the positions of their last clicks, and the counts down to there."""

    sessions: QueryBlock
    ends: Int64  # [session] the lowest position clicked, 0 without a click
    observed: ExaminationCounts  # of the pairs of the block
    longest: int  # ads on the longest page
    outcome: Int8  # [session] of the last click; empty where none is known

    @property
    def rows(self) -> BlockRows:
        """The rows of its pairs and queries among those of the log."""
        return self.sessions.rows


def first_click_positions(block: QueryBlock) -> Int64:
    """The highest position clicked [session], 0 without a click."""
    return _reduce_clicks(block, np.minimum)


def last_click_positions(block: QueryBlock) -> Int64:
    """The last click of a downward scan: the lowest position clicked [session], 0 without one."""
    return _reduce_clicks(block, np.maximum)


def _reduce_clicks(block: QueryBlock, extreme: np.ufunc) -> Int64:
    positions = np.zeros(len(block), np.int64)
    has_click = np.diff(block.clicks) > 0
    if has_click.any():
        positions[has_click] = extreme.reduceat(block.click, block.clicks[:-1][has_click])
    return positions


def examined_until(ends: Int64, block: QueryBlock) -> Int64:
    """The last position examined: `ends`, or without a click the end of the page [session]."""
    return np.where(ends > 0, ends, np.diff(block.page))


def count_examinations(block: QueryBlock, ends: Int64) -> ExaminationCounts:
    """Count every session down to the position where it ends."""
    counts = ExaminationCounts(*np.zeros((3, block.n_pairs)))
    _count(block.pair, block.page, block.click, block.clicks, block.weight, ends, *counts)
    return counts


def as_cascade_block(block: QueryBlock) -> CascadeBlock:
    """Add to sessions the positions of their last clicks, and the counts down to there."""
    ends, outcome = last_click_positions(block), block.lowest_click_outcome
    observed = count_examinations(block, ends)
    outcomes = read_only(np.zeros(0, np.int8) if outcome is None else outcome)
    return CascadeBlock(block, ends, observed, block.max_ads, outcomes)


def lowest_click_outcomes(block: QueryBlock) -> Float64:
    """Count the outcomes of lowest clicks of each pair [pair, outcome]."""
    outcome, ends = block.lowest_click_outcome, last_click_positions(block)
    clicked = np.flatnonzero(ends)
    key = block.pair[block.page[clicked] + ends[clicked] - 1].astype(np.int64) * N_OUTCOMES
    if outcome is not None:
        key += outcome[clicked]
    table = np.bincount(key, block.weight[clicked], block.n_pairs * N_OUTCOMES)
    return table.reshape(block.n_pairs, N_OUTCOMES).astype(np.float64)


class CascadeData(NamedTuple):
    """A log, and its sessions in blocks."""

    sessions: GroupedSessions
    blocks: Sequence[CascadeBlock]


def cascade_blocks(sessions: GroupedSessions, engine: Engine) -> Sequence[CascadeBlock]:
    """The sessions in blocks for an engine."""
    return engine.prepare(as_cascade_block, sessions.blocks())


def clicks_per_pair(blocks: Sequence[CascadeBlock]) -> Float64:
    """The clicks of each pair [pair]."""
    return np.concatenate([block.observed.clicks for block in blocks])


def cascade_pages(
    batch: SessionBatch,
    theta: Float64,
    onward: Float64,
    *,
    initiation: Float64 | float = 1.0,
    clicked: Float64 | float = 1.0,
    skipped: Float64 | float = 1.0,
    satisfaction: Float64 | None = None,
) -> Callable[[int, int], ChainPages]:
    """Make the page distributions of a cascade model, as `_page_distribution` returns them.

    Per impression: θ and `onward`; after a click the user goes on with probability
    clicked · onward. Per session, or one value for all: `initiation` = P(the top is examined),
    `clicked`, and `skipped` = P(going on after no click).
    """
    size = len(batch.page) - 1
    session_values = [
        np.array(np.broadcast_to(x, size), np.float64) for x in (initiation, clicked, skipped)
    ]
    return chain_pages(
        batch, _fill_cascade_chain, (theta, onward), pages=session_values, satisfaction=satisfaction
    )


@kernel
def _fill_cascade_chain(
    page: Int64,
    theta: Float64,
    onward: Float64,
    initiation: Float64,
    clicked_each: Float64,
    skipped_each: Float64,
    out: Float64,
    end: Float64,
) -> None:
    """F[l, j] = start_l · Π_{l < i < j} (1 − θ_i) skipped · θ_j.

    start_l = clicked · onward_l is the probability of going on after a click at l, and start_0 the
    initiation.
    """
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        clicked, skipped = clicked_each[s], skipped_each[s]
        no_click = 1.0  # P(no click from the next position on | it is examined)
        for last in range(n, -1, -1):
            go_on = clicked * onward[page[s] + last - 1] if last > 0 else initiation[s]
            examined = go_on
            for j in range(last, n):
                out[s, last, j] = examined * theta[page[s] + j]
                examined *= (1.0 - theta[page[s] + j]) * skipped
            end[s, last] = 1.0 - go_on + go_on * no_click
            if last > 0:
                no_click = (1.0 - theta[page[s] + last - 1]) * (1.0 - skipped + skipped * no_click)


@subkernel
def no_click_tail(pair: Int32, theta: Float64, skipped: float, end: int, tail: Float64) -> float:
    """Fill tail[i] with B_i = P(no click from i on | i is examined) for i ≥ end; return B_end.

    B_i = (1 − θ_i) (1 − skipped + skipped B_{i+1}), and 1 below the page.
    """
    below = 1.0
    tail[len(pair)] = below
    for i in range(len(pair) - 1, end - 1, -1):
        below = (1.0 - theta[pair[i]]) * (1.0 - skipped + skipped * below)
        below = max(below, SMALLEST_PROBABILITY)
        tail[i] = below
    return below


@kernel
def _count(
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64, ends: Int64,
    examinations: Float64, clicked: Float64, last_clicks: Float64,
) -> None:  # fmt: skip
    for s in range(len(weight)):
        for i in range(page[s], page[s] + ends[s]):
            examinations[pair[i]] += weight[s]
        for c in range(clicks[s], clicks[s + 1]):
            here = pair[page[s] + click[c] - 1]
            if click[c] <= ends[s]:
                clicked[here] += weight[s]
            if click[c] == ends[s]:
                last_clicks[here] += weight[s]
