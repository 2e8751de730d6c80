"""The most likely click sequences of a page: a depth-first search with bounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.clicks.step import StepTables, expand_path
from reclick.data.batch import Float64, Int32, Int64
from reclick.errors import CannotAnswerError, SettingError
from reclick.runtime.jit import kernel

MAX_NODES = 5_000_000  # prefixes examined on one page: about half a second
ANY_LENGTH = -1


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
    failed = _search_each(
        *tables, ANY_LENGTH if length is None else length,
        np.ones(longest), np.zeros(longest + 1, np.int64), np.zeros(longest + 1, np.int64),
        np.empty((longest + 1, components)), np.empty((longest + 1) * components * longest),
        np.empty((longest + 1, longest)), *best,
    )  # fmt: skip
    if failed >= 0:
        ads = tables.starts[failed + 1] - tables.starts[failed]
        raise CannotAnswerError(
            f"the {top} most likely sequences of page {failed}, of {ads} ads: more than "
            f"{MAX_NODES:,} prefixes are nearly as likely. Ask for fewer, for a smaller length, or "
            "cut the page; sample() works on any page."
        )
    return best


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
    displaces what is listed. A prefix bounds its completions: one that is not above the last of a
    full list is not followed. When no prefix is as long as a length, none is longer.

    path[depth] is the position, path[0] = 0 the start; cursor[depth] the next position to try;
    prefix, chance and onward are as in `expand_path`. free has only ones.
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


@kernel
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
