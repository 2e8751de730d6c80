"""Weights that are products of levels: what is common to many, times what is each one's own, every factor shrunk towards 1.

A cell is a place in a table (a kind of user, where she clicked last, where she may click next); a level gives each cell one of its factors. A factor
has a Gamma prior of mean 1 and of a strength in pseudo-clicks, so a cell seldom seen is left to what it has in common with others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from reclick.data.batch import Float64, Int64
from reclick.models.luce.e_step import SWEEPS, raise_weights


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a table: `index[i]` [cell] says which factor of level i each cell has."""

    shape: tuple[int, ...]
    index: tuple[Int64, ...]  # a level each: [cell]
    strength: tuple[float, ...]
    starts: tuple[int, ...]  # where each level's factors start in the flat array, and its end

    def table(self, factors: Float64) -> Float64:
        """The product of each cell's factors."""
        product = np.ones(len(self.index[0]))
        for start, index in zip(self.starts, self.index, strict=False):
            product *= factors[start + index]
        return product.reshape(self.shape)

    def strengths(self) -> Float64:
        """The strength of each factor's prior [factor]."""
        return np.repeat(self.strength, np.diff(self.starts))

    def log_prior(self, factors: Float64) -> float:
        """Log-density, but for a constant: Σ s (log x − x)."""
        parts = (factors[start:end] for start, end in pairwise(self.starts))
        return sum(
            strength * float(np.sum(np.log(part) - part))
            for strength, part in zip(self.strength, parts, strict=True)
        )

    def climbed(self, factors: Float64, chosen: Float64, pulled: Float64) -> Float64:
        """The next factors; a few sweeps over the levels, each in closed form given the others, so that the objective cannot fall."""
        new = factors.copy()
        chosen, pulled = chosen.ravel(), pulled.ravel()
        for _ in range(SWEEPS):
            for i, index in enumerate(self.index):
                here = slice(self.starts[i], self.starts[i + 1])
                size = here.stop - here.start
                moved = self._moved(new, factors, skip=i)
                demand = np.bincount(index, pulled * moved * moved, size).astype(np.float64)
                strength = np.full(size, self.strength[i])
                new[here] = raise_weights(
                    factors[here],
                    np.bincount(index, chosen, size).astype(np.float64),
                    demand,
                    strength,
                    strength,
                )
        return new

    def _moved(self, new: Float64, old: Float64, skip: int) -> Float64:
        """By how much each cell has moved through the other levels [cell]."""
        ratio, moved = new / old, np.ones(len(self.index[0]))
        for i, index in enumerate(self.index):
            if i != skip:
                moved *= ratio[self.starts[i] + index]
        return moved


def _levels(shape: tuple[int, ...], parts: list[tuple[Int64, float]]) -> Levels:
    """Levels from (index in the table's shape, strength)."""
    flat = [np.broadcast_to(index, shape).ravel().astype(np.int64) for index, _ in parts]
    sizes = [int(index.max(initial=0)) + 1 for index in flat]
    starts = tuple(np.concatenate([[0], np.cumsum(sizes)]).tolist())
    return Levels(shape, tuple(flat), tuple(strength for _, strength in parts), starts)


def eye_levels(components: int, longest: int, transition: float, kind: float) -> Levels:
    """Where the eye goes, [kind, last, position]: by the distance, by the last click, by both; and by how each kind of user differs in these."""
    t, last, position = np.ogrid[:components, : longest + 1, :longest]
    jump = np.where(
        last == 0, position, longest + position + 1 - last + longest
    )  # after a click the distance, at the start the position
    both = last * longest + position
    parts: list[tuple[Int64, float]] = [(jump, 0.5), (last + 0 * both, 0.5), (both, transition)]
    if components > 1:
        parts += [
            (t * (3 * longest) + jump, kind),
            (t * (longest + 1) + last, kind),
            (t * (longest + 1) * longest + both, kind),
        ]
    return _levels((components, longest + 1, longest), parts)


def out_levels(components: int, most: int, kind: float) -> Levels:
    """The outside option, [kind, clicks so far]: none or some, each number of clicks; and how each kind differs."""
    t, k = np.ogrid[:components, : most + 1]
    some = (k > 0).astype(np.int64)
    parts: list[tuple[Int64, float]] = [(some, 0.5), (k + 0 * t, 0.5)]
    if components > 1:
        parts += [(2 * t + some, kind), (t * (most + 1) + k, kind)]
    return _levels((components, most + 1), parts)


def extended(gamma: Float64, longest: int) -> Float64:
    """Lengthen γ [kind, last, position] for pages longer than any learnt from: new positions are as the last, and so are jumps from them."""
    known = gamma.shape[2]
    if longest <= known:
        return np.ascontiguousarray(gamma)
    wide = np.pad(gamma, ((0, 0), (0, longest - known), (0, longest - known)), mode="edge")
    for last in range(known + 1, longest + 1):
        shift = last - known
        wide[:, last, shift:] = wide[:, known, : longest - shift]
    return np.ascontiguousarray(wide)
