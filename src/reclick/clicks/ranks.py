"""How a session's clicks stand among all sequences of their length: how many are likelier, and how many are tied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reclick.clicks.step import mixed_prob, step
from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32, Int64

MAX_RANKED = 1_000_000  # sequences of one length, for the exact rank of one of them: some tenths of a second at the worst
TIE = 1e-9  # probabilities that differ by no more than this share of the greater one are tied, so that rounding breaks no tie


@kernel
def _onward(prefix: Float64, ahead: Float64, onward: Float64) -> None:
    """Fill onward[j] with P(the path, then j), from prefix[kind] and ahead[kind, j]."""
    for j in range(len(onward)):
        onward[j] = prefix[0] * ahead[0, j]
        for t in range(1, len(prefix)):
            onward[j] += prefix[t] * ahead[t, j]


@kernel
def _contest(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    share: Float64,
    clicks: Int32,
    chance: float,
) -> tuple[int, int, int, float]:
    """Compare all possible sequences as long as the clicks with some chance: how many are above it, and how many are tied.

    Returns, after those two, how many of the tied have the set of the clicks, and the greatest probability of all. Users as in mixed_prob.
    Depth first. A prefix bounds its completions: one that is below the chance is left, and so is an impossible one.
    """
    n, m, kinds = theta.shape[1], len(clicks), len(share)
    clicked = np.zeros(n, np.int64)
    for click in clicks:
        clicked[click - 1] = 1
    free = np.ones(n)
    path = np.zeros(m + 1, np.int32)  # [depth] path[0] = 0 is the start
    cursor = np.zeros(m + 1, np.int32)  # [depth] the next position to try
    inside = np.zeros(m + 1, np.int64)  # [depth] how many of the path are among the clicks
    prefix = np.empty((m + 1, kinds))  # [depth, kind] P(a user is of the kind and clicks the path)
    ahead = np.empty((m + 1, kinds, n))  # [depth, kind, position]
    onward = np.zeros((m + 1, n))  # [depth, position] P(the path, then this position), of all kinds
    above = tied = same = depth = 0
    best = 0.0
    low = chance * (1.0 - TIE)
    prefix[0] = share
    for t in range(kinds):
        step(reading, theta[t], rho[t], stop[t], gamma[t], 0, 0, free, ahead[0, t])
    _onward(prefix[0], ahead[0], onward[0])
    while depth >= 0:
        j = cursor[depth]
        while j < n and (onward[depth, j] <= 0.0 or onward[depth, j] < low):
            j += 1
        if j == n:
            if depth > 0:
                free[path[depth] - 1] = 1.0
            depth -= 1
            continue
        cursor[depth] = j + 1
        for t in range(kinds):
            prefix[depth + 1, t] = prefix[depth, t] * ahead[depth, t, j]
        inside[depth + 1] = inside[depth] + clicked[j]
        depth += 1
        path[depth] = j + 1
        free[j] = 0.0
        found = 0.0
        for t in range(kinds):
            found += prefix[depth, t] * step(
                reading,
                theta[t],
                rho[t],
                stop[t],
                gamma[t],
                depth,
                path[depth],
                free,
                ahead[depth, t],
            )
        if depth < m:
            _onward(prefix[depth], ahead[depth], onward[depth])
            cursor[depth] = 0
            continue
        cursor[depth] = n
        best = max(best, found)
        if found * (1.0 - TIE) > chance:
            above += 1
        elif found >= low:
            tied += 1
            same += inside[depth] == m
    return above, tied, same, best


@kernel
def mixed_standing(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    share: Float64,
    clicks: Int32,
    out: Int64,
) -> None:
    """Say how the clicks stand among all sequences of their length, to users of several kinds.

    Fills out with the number of those that are likelier, of those as likely, itself among them, of the likeliest, and of those of the likeliest that
    have the set of the clicks. Impossible sequences are tied with each other.
    """
    m = len(clicks)
    chance = mixed_prob(reading, theta, rho, stop, gamma, share, clicks)
    above, tied, same, best = _contest(reading, theta, rho, stop, gamma, share, clicks, chance)
    if chance <= 0.0:
        sequences = orders = 1
        for k in range(m):
            sequences *= theta.shape[1] - k
            orders *= k + 1
        tied, same = (
            sequences - above,
            orders,
        )  # the orders of the set are all impossible too where nothing is above
    out[0], out[1], out[2], out[3] = above, tied, tied, same
    if above > 0:
        _, out[2], out[3], _ = _contest(reading, theta, rho, stop, gamma, share, clicks, best)


@kernel
def standing(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    clicks: Int32,
    out: Int64,
) -> None:
    """Say how the clicks stand among all sequences of their length: as mixed_standing, with users of one kind."""
    one = np.ones(1)
    mixed_standing(
        reading, np.expand_dims(theta, 0), np.expand_dims(rho, 0), np.expand_dims(stop, 0), np.expand_dims(gamma, 0), one, clicks, out
    )  # fmt: skip
