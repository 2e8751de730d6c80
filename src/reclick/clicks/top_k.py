"""The search for the likeliest sequences of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reclick.clicks.step import step
from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32

MAX_NODES = (
    5_000_000  # prefixes looked at in the search for the most likely sequences: about half a second
)
ANY_LENGTH = -1


@kernel
def _insert(
    prob: float, path: Int32, length: int, sequences: Int32, lengths: Int32, probs: Float64
) -> None:
    """Put a sequence at its place in the list, best first; among equals the earlier one stays ahead; the last one falls out."""
    place = len(probs) - 1
    while place > 0 and probs[place - 1] < prob:
        probs[place] = probs[place - 1]
        lengths[place] = lengths[place - 1]
        sequences[place] = sequences[place - 1]
        place -= 1
    probs[place] = prob
    lengths[place] = length
    sequences[place] = 0
    for k in range(length):
        sequences[place, k] = path[k + 1]


@kernel
def search(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    length: int,
    sequences: Int32,  # [place, step]
    lengths: Int32,  # [place]
    probs: Float64,  # [place]
) -> int:
    """Fill the list with the most likely complete sequences and return the prefixes looked at, more than MAX_NODES if it gave up.

    Depth first, shorter sequences before longer ones and in lexicographic order, so a tie never displaces what is listed. A prefix
    bounds its completions: one that is not above the last of a full list is left. When no prefix is that long, none is longer.
    """
    n = len(theta)
    free = np.ones(n)
    path = np.zeros(n + 1, np.int32)  # [depth] path[0] = 0 is the start
    cursor = np.zeros(n + 1, np.int32)  # [depth] the next position to try
    prefix = np.ones(n + 1)  # [depth] probability of the clicks so far
    chance = np.empty((n + 1, n))  # [depth, position]
    nodes = 0
    for size in range(max(length, 0), (n if length == ANY_LENGTH else length) + 1):
        alive = False
        depth = 0
        cursor[0] = 0
        while depth >= 0:
            if cursor[depth] == 0:
                end = step(
                    reading, theta, rho, stop, gamma, depth, path[depth], free, chance[depth]
                )
                nodes += 1
                if nodes > MAX_NODES:
                    return nodes
                if depth == size:
                    alive = True
                    if prefix[depth] * end > probs[-1]:
                        _insert(prefix[depth] * end, path, size, sequences, lengths, probs)
                    cursor[depth] = n
            j = cursor[depth]
            while j < n and prefix[depth] * chance[depth, j] <= probs[-1]:
                j += 1
            if j < n:
                cursor[depth] = j + 1
                prefix[depth + 1] = prefix[depth] * chance[depth, j]
                depth += 1
                path[depth] = j + 1
                free[j] = 0.0
                cursor[depth] = 0
            else:
                if depth > 0:
                    free[path[depth] - 1] = 1.0
                depth -= 1
        if not alive:
            break
    return nodes
