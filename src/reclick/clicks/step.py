"""A session click by click: the chances of the next click, the probability of the clicks made, a session drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reclick.clicks.choice import CHAIN, WALK, share_and_end
from reclick.clicks.walk import walk_step
from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32


@kernel
def step(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    k: int,
    last: int,
    free: Float64,
    out: Float64,
) -> float:
    """Fill out[j] with P(next click is j), 0 for clicked ones, and return P(end). free is 1.0 where not clicked yet, else 0.0."""
    if reading == WALK:
        return walk_step(theta, stop[0], stop[1], last, free, out)
    if reading == CHAIN:
        for j in range(len(theta)):
            out[j] = gamma[last, j] * free[j]
        return float(stop[last])
    weight = sight = 0.0
    for j in range(len(theta)):
        eye = gamma[last, j] * free[j]
        out[j] = theta[j] * eye
        weight += out[j]
        sight += eye
    share, end = share_and_end(reading, weight, sight, rho[last - 1] if last > 0 else 0.0, stop[k])
    for j in range(len(theta)):
        out[j] *= share
    return end


@kernel
def follow(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    clicks: Int32,
    chances: Float64,
    out: Float64,
) -> float:
    """Follow the clicks: chances[k] = P(click k + 1 given those before), out = P(each next click), and return P(end here)."""
    free = np.ones(len(theta))
    last = 0
    end = step(reading, theta, rho, stop, gamma, 0, last, free, out)
    for k in range(len(clicks)):
        last = clicks[k]
        chances[k] = out[last - 1]
        free[last - 1] = 0.0
        end = step(reading, theta, rho, stop, gamma, k + 1, last, free, out)
    return end


@kernel
def log_prob(
    reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, clicks: Int32
) -> float:
    """Log of the probability of exactly these clicks in this order: Σ log P(click | before) + log P(end | all)."""
    chances = np.empty(len(clicks))
    end = follow(reading, theta, rho, stop, gamma, clicks, chances, np.empty(len(theta)))
    total = np.log(end)
    for chance in chances:
        total += np.log(chance)
    return float(total)


@kernel
def next_click_prob(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    clicks: Int32,
    out: Float64,
) -> float:
    """Fill out with P(next click is j given the clicks so far), 0 for clicked ones, and return P(end given the clicks so far)."""
    made = (
        np.sort(clicks) if reading == CHAIN else clicks
    )  # a chain goes down the page: what is clicked is above what comes next
    return follow(reading, theta, rho, stop, gamma, made, np.empty(len(clicks)), out)


@kernel
def mixed_prob(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    share: Float64,
    clicks: Int32,
) -> float:
    """P(exactly these clicks in this order) of users of several kinds: theta, rho, stop and gamma have a row for each kind, share[t] are of it."""
    chances, out = np.empty(len(clicks)), np.empty(theta.shape[1])
    total = 0.0
    for t in range(len(share)):
        end = follow(reading, theta[t], rho[t], stop[t], gamma[t], clicks, chances, out)
        total += share[t] * end * np.prod(chances)
    return total


@kernel
def sample(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    rng: np.random.Generator,
    out: Int32,
) -> int:
    """Draw a session: the clicks go to out, padded with 0, and their number is returned."""
    n = len(theta)
    free = np.ones(n)
    chance = np.empty(n)
    out[:] = 0
    last = 0
    for k in range(n):
        step(reading, theta, rho, stop, gamma, k, last, free, chance)
        left = rng.random()
        j = 0
        while j < n and left >= chance[j]:
            left -= chance[j]
            j += 1
        if j == n:
            return k
        last = j + 1
        free[j] = 0.0
        out[k] = last
    return n
