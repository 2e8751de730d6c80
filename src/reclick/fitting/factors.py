"""Weights that are products of factors: what many cells share, times what is each cell's own.

A cell is an entry of a table, for example one of [mixture component, last click, position]. At each
level a cell has one factor, which other cells may share. Every factor has a Gamma prior with mean 1
and a strength in pseudo-choices, so a cell with little data keeps what it has in common with
others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from reclick.data.ragged import Float64, Int64, starts_from_sizes
from reclick.runtime.jit import kernel

MIN_WEIGHT = 1e-12
SWEEPS = 3  # rounds over the levels in one MM step


@dataclass(frozen=True, slots=True)
class FactorTable:
    """The levels of a table of weights. The factors are one flat array, level by level."""

    shape: tuple[int, ...]
    index: Int64  # [level, cell] the factor of each cell in the flat array
    starts: Int64  # [level + 1] where the factors of each level start
    strength: tuple[float, ...]  # [level]

    @property
    def n_factors(self) -> int:
        """The number of factors of all levels."""
        return int(self.starts[-1])

    def table(self, factors: Float64) -> Float64:
        """The product of the factors of each cell.

        >>> rows, columns = np.ogrid[:2, :2]
        >>> sums = build_factor_table((2, 2), [(rows, 1.0), (columns, 1.0)])
        >>> sums.table(np.array([1.0, 2.0, 3.0, 5.0]))
        array([[ 3.,  5.],
               [ 6., 10.]])
        """
        product = np.ones(self.index.shape[1])
        for index in self.index:
            product *= factors[index]
        return product.reshape(self.shape)

    def strengths(self) -> Float64:
        """The strength of the prior of each factor [factor]."""
        return np.repeat(self.strength, np.diff(self.starts))

    def log_prior(self, factors: Float64) -> float:
        """Log-density of the factors up to a constant: Σ s (log x − x)."""
        levels = (factors[start:end] for start, end in pairwise(self.starts))
        return sum(
            strength * float(np.sum(np.log(level) - level))
            for strength, level in zip(self.strength, levels, strict=True)
        )

    def mm_step(self, factors: Float64, observed: Float64, expected: Float64) -> Float64:
        """The next factors, given how often each cell was chosen and was expected to be [cell]."""
        strength = self.strengths()
        return mm_step(factors, self.index, self.starts, strength, strength, observed, expected)


def build_factor_table(
    shape: tuple[int, ...],
    levels: Sequence[tuple[Int64, float]],
    sizes: Sequence[int] | None = None,
) -> FactorTable:
    """A table from its levels: the factor of each cell (broadcast to the shape) and a strength.

    `sizes` is the number of factors of each level, by default as many as are used.
    """
    flat = [np.broadcast_to(index, shape).ravel().astype(np.int64) for index, _ in levels]
    sizes = sizes or [int(index.max(initial=0)) + 1 for index in flat]
    starts = starts_from_sizes(sizes)
    index = np.stack([index + start for index, start in zip(flat, starts, strict=False)])
    return FactorTable(shape, index, starts, tuple(strength for _, strength in levels))


def mm_step(
    factors: Float64,
    index: Int64,
    starts: Int64,
    strength: Float64,
    rate: Float64,
    observed: Float64,
    expected: Float64,
) -> Float64:
    """The next factors of weights that are products of them (Hunter 2004).

    The objective cannot fall.

    `index` [level, cell] and `starts` [level + 1] are those of a `FactorTable`. The Gamma prior of
    a factor x contributes strength · log x − rate · x. The logarithm of a weight is worth
    `observed`, and its value costs at most expected · (y² + z²) / 2 where its factors are
    multiplied by y and z. So the best y of one level given the others is the root of a quadratic. A
    few sweeps are made over the levels.
    """
    new = factors.copy()
    room = np.empty((3, len(factors)))
    observed, expected = np.ravel(observed), np.ravel(expected)
    _mm_sweeps(factors, index, starts, strength, rate, observed, expected, new, room)
    return new


@kernel
def _mm_sweeps(  # noqa: PLR0912
    factors: Float64,
    index: Int64,
    starts: Int64,
    strength: Float64,
    rate: Float64,
    observed: Float64,
    expected: Float64,
    new: Float64,
    room: Float64,
) -> None:
    n_levels, n_cells = index.shape
    choices, cost, ratio = room[0], room[1], room[2]  # [factor] ratio: new over old
    choices[:] = 0.0
    ratio[:] = 1.0
    for level in range(n_levels):
        for cell in range(n_cells):
            choices[index[level, cell]] += observed[cell]
    for _ in range(SWEEPS if n_levels > 1 else 1):
        for level in range(n_levels):
            for i in range(starts[level], starts[level + 1]):
                cost[i] = 0.0
            for cell in range(n_cells):
                others = 1.0
                for other in range(n_levels):
                    if other != level:
                        others *= ratio[index[other, cell]]
                cost[index[level, cell]] += expected[cell] * others * others
            for i in range(starts[level], starts[level + 1]):
                b, c = rate[i] * factors[i], choices[i] + strength[i]
                value = factors[i]
                if c == 0.0:
                    if cost[i] > 0.0 or b > 0.0:
                        value = 0.0
                elif cost[i] > 1e-300:
                    value *= 2.0 * c / (b + math.sqrt(b * b + 4.0 * cost[i] * c))
                elif b > 0.0:
                    value *= c / b
                value = max(value, MIN_WEIGHT)
                new[i] = value
                ratio[i] = value / factors[i]
