"""Clicks in whatever order: probabilities of sets and of positions, from those of (set clicked so far, last click)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reclick.clicks.choice import CHAIN, WALK, share_and_end
from reclick.clicks.step import follow, log_prob, step
from reclick.clicks.walk import walk_marginals, walk_step
from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32

MAX_EXACT = 12  # ads on a page, for exact marginals: 2^12 sets of clicks
MAX_SET = 16  # clicks in a session, for the exact probability of a set: 2^16 subsets


@kernel
def _reach(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    members: Int32,
    scale: Float64,
) -> Float64:
    """P(the first clicks are this set, this one last), for all subsets of the members: reach[set, index of last].

    members[0] = 0 is the start and bit b of a set is members[b + 1]. P(j) at click k + 1 is divided by scale[k], against underflow.
    """
    n = len(theta)
    size = len(members) - 1
    free = np.ones(n)
    onward = np.empty(
        n
    )  # [position] P(this set, then this position), but for the θ of a product w = θγ
    chance = np.empty(n)
    reach = np.zeros((1 << size, size + 1))  # [set, index of last]
    reach[0, 0] = 1.0
    for chosen in range(
        (1 << size) - 1
    ):  # a set comes after its subsets; the full one leads nowhere
        k = 0
        for b in range(size):
            free[members[b + 1] - 1] = 1.0 - ((chosen >> b) & 1)
            k += (chosen >> b) & 1
        onward[:] = 0.0
        for b in range(size + 1):
            if reach[chosen, b] <= 0.0:
                continue
            last = members[b]
            if reading == WALK:
                walk_step(theta, stop[0], stop[1], last, free, chance)
                for j in range(n):
                    onward[j] += chance[j] * reach[chosen, b] / scale[k]
                continue
            weight = sight = 0.0
            for j in range(n):
                eye = gamma[last, j] * free[j]
                weight += theta[j] * eye
                sight += eye
            share, _ = share_and_end(
                reading, weight, sight, rho[last - 1] if last > 0 else 0.0, stop[k]
            )
            share *= reach[chosen, b] / scale[k]
            for j in range(n):
                onward[j] += share * gamma[last, j]
        for b in range(size):
            if not (chosen >> b) & 1:
                j = members[b + 1] - 1
                reach[chosen | (1 << b), b + 1] = (
                    onward[j] if reading == WALK else theta[j] * onward[j]
                )
    return reach


@kernel
def click_prob(
    reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, out: Float64
) -> None:
    """Fill out with P(position is clicked) = Σ over sets of P(the set was clicked and this position was its last click)."""
    n = len(theta)
    if reading == CHAIN:
        for j in range(n):
            out[j] = gamma[0, j]
            for i in range(j):
                out[j] += out[i] * gamma[i + 1, j]
        return
    if reading == WALK:
        walk_marginals(theta, stop[0], stop[1], out)
        return
    members = np.arange(n + 1).astype(np.int32)
    reach = _reach(reading, theta, rho, stop, gamma, members, np.ones(n))
    out[:] = 0.0
    for chosen in range(1, 1 << n):
        for j in range(n):
            out[j] += reach[chosen, j + 1]


@kernel
def log_set_prob(
    reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, clicks: Int32
) -> float:
    """Log of the probability that exactly these positions are clicked, in whatever order."""
    if reading == CHAIN or len(clicks) < 2:  # one order only
        return log_prob(reading, theta, rho, stop, gamma, np.sort(clicks))
    m = len(clicks)
    out = np.empty(len(theta))
    scale = np.empty(m)
    follow(reading, theta, rho, stop, gamma, clicks, scale, out)
    scale = np.maximum(
        scale, 1e-18
    )  # the given order may be impossible; 16 times this floor still cannot overflow
    members = np.zeros(m + 1, np.int32)
    members[1:] = clicks
    reach = _reach(reading, theta, rho, stop, gamma, members, scale)
    free = np.ones(len(theta))
    for click in clicks:
        free[click - 1] = 0.0
    total = 0.0
    for last in range(m + 1):
        arrive = reach[(1 << m) - 1, last]
        if arrive > 0.0:
            total += arrive * step(reading, theta, rho, stop, gamma, m, members[last], free, out)
    return float(np.log(total) + np.sum(np.log(scale)))
