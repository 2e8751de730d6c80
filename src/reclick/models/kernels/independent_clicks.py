"""Positions that are clicked independently of each other, as a chain of next clicks."""

from __future__ import annotations

from reclick.data.batch import Float64, Int64
from reclick.runtime.jit import kernel


@kernel
def independent_clicks(page: Int64, chance: Float64, out: Float64, end: Float64) -> None:
    """F[l, j] = p_j Π_{l < i < j} (1 − p_i), every position being clicked on its own with p."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        for last in range(n + 1):
            none = 1.0
            for j in range(last, n):
                out[s, last, j] = none * chance[page[s] + j]
                none *= 1.0 - chance[page[s] + j]
            end[s, last] = none
