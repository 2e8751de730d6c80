"""How a session's clicks rank among all sequences of their length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.clicks.step import Clicks, StepTables, expand_path
from reclick.data.batch import Float64, Int32, Int64
from reclick.data.ragged import read_only
from reclick.errors import CannotAnswerError
from reclick.runtime.jit import kernel

MAX_RIVALS = 1_000_000  # sequences of one length: some tenths of a second at the worst
TIE = 1e-9  # probabilities that differ by no more than this share of the greater one are tied


class SequenceRanks(NamedTuple):
    """The rank of sessions among all click sequences of their page and length.

    Sequences whose probabilities are nearly the same are tied, so that rounding breaks no tie.
    """

    likelier: Int64  # [session] sequences likelier than the session's own
    tied: Int64  # [session] those as likely, its own among them
    likeliest: Int64  # [session] those that no other is likelier than
    same_set: Int64  # [session] of these, those that click the session's positions in any order


def check_rankable(ads: Int64, clicks: Int64) -> None:
    """Refuse pages with too many sequences of a session's length to rank it among them exactly."""
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
    """Rank the clicks of each page, of which each has one or more, given their probability."""
    components, longest = tables.weights.shape[1], tables.longest
    depth = int(clicks.counts.max(initial=0)) + 1
    out = np.empty((4, len(tables.starts) - 1), np.int64)
    _rank_each(
        *tables, read_only(clicks.click), read_only(clicks.starts), probability,
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
    clicked: Int64,
    free: Float64,
    path: Int64,
    prefix: Float64,
    chance: Float64,
    onward: Float64,
    found: Float64,
    out: Int64,
) -> None:
    """Fill out [4, page] with the fields of SequenceRanks.

    Impossible sequences are tied with each other. free has only ones, clicked only zeros.
    """
    for s in range(len(weights)):
        n, m = starts[s + 1] - starts[s], clicks[s + 1] - clicks[s]
        for c in range(clicks[s], clicks[s + 1]):
            clicked[click[c] - 1] = 1
        target = probability[s]
        for attempt in range(2):  # against the session's own probability, then against the best
            _count_rivals(
                family, theta, rho, stop, gamma, steps, row, starts, weights, s, m, target,
                clicked, free, path, prefix, chance, onward, found,
            )  # fmt: skip
            above, tied, same = int(found[0]), int(found[1]), int(found[2])
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
            target = found[3]
        for c in range(clicks[s], clicks[s + 1]):
            clicked[click[c] - 1] = 0


@kernel
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
    clicked: Int64,
    free: Float64,
    path: Int64,
    prefix: Float64,
    chance: Float64,
    onward: Float64,
    found: Float64,
) -> None:
    """Compare all possible sequences of m clicks with a target probability.

    Fills found with the number above the target, the number tied with it, of these the number with
    the clicked set, and the greatest probability of all. Depth first: a prefix bounds its
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
    arrived = True
    while depth >= 0:
        if arrived:
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
        arrived = j < n
        if not arrived:
            if depth > 0:
                free[path[0, depth] - 1] = 1.0
            depth -= 1
            continue
        path[1, depth] = j + 1
        for t in range(components):
            prefix[depth + 1, t] = prefix[depth, t] * chance[(depth * components + t) * widest + j]
        path[2, depth + 1] = path[2, depth] + clicked[j]
        depth += 1
        path[0, depth] = j + 1
        free[j] = 0.0
    found[0], found[1], found[2], found[3] = above, tied, same, best
