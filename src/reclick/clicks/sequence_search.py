"""Depth-first searches of the click sequences of a page, with bounds.

The most likely sequences, and the rank of a session's clicks among all sequences of their length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.clicks.step import Clicks, StepTables, expand_path
from reclick.data.batch import Float64, Int32, Int64
from reclick.data.ragged import read_only
from reclick.errors import CannotAnswerError, SettingError
from reclick.runtime.jit import inline_kernel, kernel, subkernel

MAX_NODES = 5_000_000  # prefixes examined on one page: about half a second
ANY_LENGTH = -1
MAX_RIVALS = 1_000_000  # sequences of one length: some tenths of a second at the worst
TIE = 1e-9  # probabilities that differ by no more than this share of the greater one are tied


# ---- the most likely sequences


class TopSequences(NamedTuple):
    """The most likely complete click sequences of each page, best first.

    Ties: shorter first, then lexicographic. Where a page has fewer possible sequences than
    requested, the rest has length −1 and probability 0.
    """

    sequences: Int32  # [page, rank, step] positions from 1, 0 beyond the sequence
    lengths: Int32  # [page, rank]
    probabilities: Float64  # [page, rank]


def search_top_sequences(tables: StepTables, length: int | None, top: int) -> TopSequences:
    """The `top` most likely sequences of each page, of `length` clicks or of any number."""
    if top < 1:
        raise SettingError("top", top, "a whole number of 1 or more")
    pages, components, longest = len(tables.starts) - 1, tables.weights.shape[1], tables.longest
    best = TopSequences(
        np.zeros((pages, top, longest), np.int32),
        np.full((pages, top), -1, np.int32),
        np.zeros((pages, top)),
    )
    failed_page = _search_each(
        *_flatten(tables), ANY_LENGTH if length is None else length,
        np.ones(longest), np.zeros(longest + 1, np.int64), np.zeros(longest + 1, np.int64),
        np.empty((longest + 1, components)), np.empty((longest + 1) * components * longest),
        np.empty((longest + 1, longest)), *best,
    )  # fmt: skip
    if failed_page >= 0:
        ads = tables.starts[failed_page + 1] - tables.starts[failed_page]
        raise CannotAnswerError(
            f"the {top} most likely sequences of page {failed_page}, of {ads} ads: more than "
            f"{MAX_NODES:,} prefixes are nearly as likely. Ask for fewer, for a smaller length, or "
            "cut the page.",
            in_python=" sample() works on any page.",
        )
    return best


def _flatten(tables: StepTables) -> StepTables:
    """The tables as `expand_path` reads them."""
    return tables._replace(theta=tables.theta.reshape(-1), rho=tables.rho.reshape(-1))


@kernel
def _search_each(
    family: Int64,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    steps: Float64 | None,
    row: Int64,
    starts: Int64,
    weights: Float64,
    length: int,
    free: Float64,
    path: Int64,
    cursor: Int64,
    prefix: Float64,
    chance: Float64,
    onward: Float64,
    sequences: Int32,
    lengths: Int32,
    probs: Float64,
) -> int:
    """Search every page; return the page where the search gave up, or −1.

    Shorter sequences come before longer ones, each length in lexicographic order, so a tie never
    displaces a listed sequence. A prefix bounds its completions: one that is not above the last of
    a full list is not followed. When no prefix is as long as a length, none is longer.

    path[depth] is the position, path[0] = 0 the start; cursor[depth] the next position to try;
    prefix, chance and onward are as in `expand_path`. free is all 1.
    """
    components, top, widest = weights.shape[1], probs.shape[1], onward.shape[1]
    for s in range(len(weights)):
        n, nodes = starts[s + 1] - starts[s], 0
        for t in range(components):
            prefix[0, t] = weights[s, t]
        for size in range(max(length, 0), (n if length == ANY_LENGTH else min(n, length)) + 1):
            depth = longest = 0
            cursor[0] = 0
            while depth >= 0:
                if cursor[depth] == 0:
                    nodes += 1
                    if nodes > MAX_NODES:
                        return s
                    complete = expand_path(
                        family, theta, rho, stop, gamma, steps, row, starts, s,
                        depth, path[depth], free, prefix, chance, onward,
                    )  # fmt: skip
                    longest = max(longest, depth)
                    if depth == size:
                        cursor[depth] = n
                        _insert(complete, path, size, sequences, lengths, probs, s)
                j = cursor[depth]
                while j < n and onward[depth, j] <= probs[s, top - 1]:
                    j += 1
                if j == n:
                    if depth > 0:
                        free[path[depth] - 1] = 1.0
                    depth -= 1
                    continue
                cursor[depth] = j + 1
                for t in range(components):
                    at = (depth * components + t) * widest + j
                    prefix[depth + 1, t] = prefix[depth, t] * chance[at]
                depth += 1
                path[depth] = j + 1
                free[j] = 0.0
                cursor[depth] = 0
            if longest < size:
                break
    return -1


@inline_kernel
def _insert(
    prob: float,
    path: Int64,
    size: int,
    sequences: Int32,
    lengths: Int32,
    probs: Float64,
    s: int,
) -> None:
    """Put the path at its rank in the list of page s, if it is above the last; ties stay behind."""
    rank, widest = probs.shape[1] - 1, sequences.shape[2]
    if prob <= probs[s, rank]:
        return
    while rank > 0 and probs[s, rank - 1] < prob:
        probs[s, rank] = probs[s, rank - 1]
        lengths[s, rank] = lengths[s, rank - 1]
        for k in range(widest):
            sequences[s, rank, k] = sequences[s, rank - 1, k]
        rank -= 1
    probs[s, rank] = prob
    lengths[s, rank] = size
    for k in range(widest):
        sequences[s, rank, k] = path[k + 1] if k < size else 0


# ---- ranks


class SequenceRanks(NamedTuple):
    """The rank of sessions among all click sequences of their page and length.

    Sequences whose probabilities are nearly the same are tied, so that rounding breaks no tie.
    """

    likelier: Int64  # [session] sequences likelier than the session's own
    tied: Int64  # [session] those as likely, its own among them
    likeliest: Int64  # [session] those that no other is likelier than
    same_set: Int64  # [session] of these, those that click the session's positions in any order


def check_rankable(ads: Int64, clicks: Int64) -> None:
    """Raise `CannotAnswerError` for pages with too many sequences to rank a session exactly."""
    rivals = np.ones(len(ads))
    for k in range(int(clicks.max(initial=0))):
        rivals *= np.where(k < clicks, ads - k, 1)
    worst = int(rivals.argmax()) if len(ads) else 0
    if len(ads) and rivals[worst] > MAX_RIVALS:
        raise CannotAnswerError(
            f"the rank of {clicks[worst]} clicks on a page of {ads[worst]} ads: there are "
            f"{rivals[worst]:,.0f} sequences as long, and it is exact up to {MAX_RIVALS:,}. Cut "
            "the pages, or use log_prob, which has no limit."
        )


def rank_clicks(tables: StepTables, clicks: Clicks, probability: Float64) -> SequenceRanks:
    """Rank the clicks of each page, at least one, given their probability."""
    components, longest = tables.weights.shape[1], tables.longest
    depth = int(clicks.counts.max(initial=0)) + 1
    out = np.empty((4, len(tables.starts) - 1), np.int64)
    _rank_each(
        *_flatten(tables), read_only(clicks.click), read_only(clicks.starts), probability,
        np.zeros(longest, np.int64), np.ones(longest), np.zeros((3, depth), np.int64),
        np.empty((depth, components)), np.empty(depth * components * longest),
        np.empty((depth, longest)), np.empty(4), out,
    )  # fmt: skip
    return SequenceRanks(*out)


@kernel
def _rank_each(
    family: Int64,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    steps: Float64 | None,
    row: Int64,
    starts: Int64,
    weights: Float64,
    click: Int32,
    clicks: Int64,
    probability: Float64,
    is_clicked: Int64,
    free: Float64,
    path: Int64,
    prefix: Float64,
    chance: Float64,
    onward: Float64,
    result: Float64,
    out: Int64,
) -> None:
    """Fill out [4, page] with the fields of SequenceRanks.

    Impossible sequences are tied with each other. free is all 1, is_clicked all 0.
    """
    for s in range(len(weights)):
        n, m = starts[s + 1] - starts[s], clicks[s + 1] - clicks[s]
        for c in range(clicks[s], clicks[s + 1]):
            is_clicked[click[c] - 1] = 1
        target = probability[s]
        for attempt in range(2):  # against the session's own probability, then against the best
            _count_rivals(
                family, theta, rho, stop, gamma, steps, row, starts, weights, s, m, target,
                is_clicked, free, path, prefix, chance, onward, result,
            )  # fmt: skip
            above, tied, same = int(result[0]), int(result[1]), int(result[2])
            if attempt == 0 and target <= 0.0:
                sequences = orders = 1
                for k in range(m):
                    sequences *= n - k
                    orders *= k + 1
                # Where nothing is above, all orders of the set are impossible too.
                tied, same = sequences - above, orders
            if attempt == 0:
                out[0, s], out[1, s] = above, tied
            out[2, s], out[3, s] = tied, same
            if above == 0:
                break
            target = result[3]
        for c in range(clicks[s], clicks[s + 1]):
            is_clicked[click[c] - 1] = 0


@subkernel
def _count_rivals(
    family: Int64,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    steps: Float64 | None,
    row: Int64,
    starts: Int64,
    weights: Float64,
    s: int,
    m: int,
    target: float,
    is_clicked: Int64,
    free: Float64,
    path: Int64,
    prefix: Float64,
    chance: Float64,
    onward: Float64,
    result: Float64,
) -> None:
    """Compare all possible sequences of m clicks with a target probability.

    Fill `result` with the number above the target, the number tied with it, of these the number
    with the clicked set, and the greatest probability of all. Depth first: a prefix bounds its
    completions, so one below the target is not followed, nor an impossible one.

    By depth, path[0] is the position, path[1] the next position to try, path[2] how many of the
    path are clicked; prefix, chance and onward are as in `expand_path`.
    """
    components, widest = weights.shape[1], onward.shape[1]
    n = starts[s + 1] - starts[s]
    low = target * (1.0 - TIE)
    above = tied = same = depth = 0
    best = 0.0
    path[1, 0] = 0
    for t in range(components):
        prefix[0, t] = weights[s, t]
    is_new = True
    while depth >= 0:
        if is_new:
            complete = expand_path(
                family, theta, rho, stop, gamma, steps, row, starts, s,
                depth, path[0, depth], free, prefix, chance, onward,
            )  # fmt: skip
            path[1, depth] = 0
            if depth == m:
                path[1, depth] = n
                best = max(best, complete)
                if complete * (1.0 - TIE) > target:
                    above += 1
                elif complete >= low:
                    tied += 1
                    same += path[2, depth] == m
        j = path[1, depth]
        while j < n and (onward[depth, j] <= 0.0 or onward[depth, j] < low):
            j += 1
        is_new = j < n
        if not is_new:
            if depth > 0:
                free[path[0, depth] - 1] = 1.0
            depth -= 1
            continue
        path[1, depth] = j + 1
        for t in range(components):
            prefix[depth + 1, t] = prefix[depth, t] * chance[(depth * components + t) * widest + j]
        path[2, depth + 1] = path[2, depth] + is_clicked[j]
        depth += 1
        path[0, depth] = j + 1
        free[j] = 0.0
    result[0], result[1], result[2], result[3] = above, tied, same, best
