"""Weights that are products of factors: some common to many cells, some of single cells.

A cell is one entry of a table, such as (component, last click, next position). A level assigns one
of its factors to each cell. Every factor has a Gamma prior with a mean and a strength s
in pseudo-choices, whose log-density in log x is s (log x − x / mean): its mode is the mean. So the
weight of a rare cell mainly follows from the factors it shares with others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from reclick.data.pair_index import place
from reclick.data.ragged import Float64, Int32, Int64, starts_from_sizes
from reclick.fitting.parameter_tables import Columns, ParameterTable
from reclick.runtime.jit import kernel

SMALLEST_FACTOR = 1e-12
SWEEPS = 2  # over the levels in one M-step


@dataclass(frozen=True, slots=True)
class Level:
    """One factor per group of cells."""

    index: Int32 | Int64  # [cell] the factor of each cell, in the shape of the table
    size: int  # the number of factors
    strength: Float64 | float  # of each factor's prior, in pseudo-choices
    mean: Float64 | float = 1.0  # of each factor's prior


def with_components(levels: Sequence[Level], components: int, strength: float) -> list[Level]:
    """Levels, and the same levels per component; the first axis of a table is the component.

    With one component, no levels are added.
    """
    first = np.arange(components).reshape(-1, *[1] * (levels[0].index.ndim - 1))
    component_levels = [
        Level(first * each.size + each.index, components * each.size, strength) for each in levels
    ]
    return [*levels, *(component_levels if components > 1 else [])]


class PastChoices(NamedTuple):
    """What earlier sessions contribute to each cell."""

    observed: Float64  # [cell] choices
    exposure: Float64  # [cell] expected choices per unit of weight


@dataclass(frozen=True, slots=True)
class FactorTable(ParameterTable):
    """The weight of each cell: a product with one factor per level.

    The past is worth observed · log x − exposure · x as a function of a weight x, whose slope is
    exact at the fit that it comes from.

    >>> shared, own = Level(np.array([0, 0]), 1, 1.0), Level(np.array([0, 1]), 2, 4.0)
    >>> table = FactorTable.build((2,), [shared, own])
    >>> table.m_step(np.array([8.0, 2.0]), np.array([5.0, 5.0])).weights().round(2)
    array([1.2 , 0.76])
    """

    value: ClassVar[str] = "factors"
    statistics: ClassVar[tuple[str, ...]] = ("observed", "expected")  # choices [cell]

    shape: tuple[int, ...]
    index: Int32  # [level, cell]
    starts: Int64  # [level + 1] where the factors of each level start
    strength: Float64  # [factor]
    mean: Float64  # [factor]
    factors: Float64  # [factor]
    past: PastChoices = field(default_factory=lambda: PastChoices(np.zeros(0), np.zeros(0)))

    @classmethod
    def build(cls, shape: tuple[int, ...], levels: Sequence[Level]) -> Self:
        """A table whose factors are at their prior means."""
        index = np.stack([np.broadcast_to(level.index, shape).ravel() for level in levels])
        starts = starts_from_sizes(np.array([level.size for level in levels]))
        strength = np.concatenate([np.full(level.size, level.strength) for level in levels])
        mean = np.concatenate([np.full(level.size, level.mean) for level in levels])
        return cls(shape, index.astype(np.int32), starts, strength, mean, mean.copy())

    def weights(self, first: int = 0, last: int | None = None) -> Float64:
        """The product of the factors of the cells first … last − 1; of all in the table's shape."""
        index = self.index[:, first:last]
        product = self.factors[index[0]]
        for start, level in zip(self.starts[1:], index[1:], strict=False):
            product *= self.factors[start + level]
        whole = first == 0 and last is None
        return np.asarray(product.reshape(self.shape) if whole else product)

    def weights_at(self, cells: Int32 | Int64) -> Float64:
        """The product of the factors of some cells [cell]."""
        index = self.index[:, cells]
        index += self.starts[:-1, None].astype(np.int32)
        product: Float64 = np.multiply.reduce(self.factors[index], axis=0)
        return product

    def cut(self, cells: slice) -> WeightRun:
        """The weights of a run of cells, for a block with only these cells."""
        return WeightRun(cells.start, self.weights(cells.start, cells.stop))

    def level(self, number: int) -> Float64:
        """The factors of one level."""
        return self.factors[self.starts[number] : self.starts[number + 1]]

    def with_factors(self, factors: Float64) -> Self:
        """The same table with other factors."""
        return replace(self, factors=factors)

    def with_past(self, past: PastChoices) -> Self:
        """The same table with what earlier sessions contribute."""
        return replace(self, past=past)

    def constrain(self, values: Float64) -> Float64:
        """Factors above 0."""
        return np.maximum(values, SMALLEST_FACTOR)

    def start_from(self, last: Self) -> Self:
        """This table with the factors of another, for the first levels that both have.

        Equal indexes are shared, to save memory.
        """
        count = 0
        for new_end, old_end in zip(self.starts[1:], last.starts[1:], strict=False):
            if new_end != old_end:
                break
            count = new_end
        factors = np.concatenate([last.factors[:count], self.factors[count:]])
        index = last.index if np.array_equal(self.index, last.index) else self.index
        return replace(self, factors=factors, index=index)

    def continue_from(self, last: Self, rows: Int64 | None, decay: float) -> Self:
        """This table with the factors and the past of another, whose cells are `rows` of this.

        A level with the same number of factors is copied; of other levels, the factors of the
        shared cells. Without `rows` the other table is that of shorter pages.
        """
        if rows is None:
            cells = np.arange(np.prod(self.shape)).reshape(self.shape)
            rows = cells[tuple(slice(size) for size in last.shape)].ravel()
        factors = self.factors.copy()
        for new_start, old_start, new_index, old_index in zip(
            self.starts, last.starts, self.index, last.index, strict=False
        ):
            factors[new_start + new_index[rows]] = last.factors[old_start + old_index]
        for number in range(len(self.index)):
            if len(self.level(number)) == len(last.level(number)):
                factors[self.starts[number] : self.starts[number + 1]] = last.level(number)
        past = (place(decay * each, rows, 0.0, self.index.shape[1]) for each in last.past)
        return self.with_factors(factors).with_past(PastChoices(*past))

    def to_columns(self) -> Columns:
        """The factors of each level, and the past."""
        levels = {str(i): {"factor": self.level(i)} for i in range(len(self.index))}
        return {**levels, "past": self.past._asdict()}

    def from_columns(self, read: Callable[..., Float64]) -> Self:
        """This table with other factors and another past."""
        sizes = enumerate(np.diff(self.starts))
        factors = np.concatenate([read(str(level), "factor", size) for level, size in sizes])
        past = (read("past", name, self.index.shape[1]) for name in PastChoices._fields)
        return self.with_factors(factors).with_past(PastChoices(*past))

    def log_prior(self) -> float:
        """Log-density of the factors, up to a constant, with the past choices."""
        value = _log_gamma(self.factors, self.strength, self.mean)
        if len(self.past.observed):
            weights = self.weights().ravel()
            value += float(
                np.sum(self.past.observed * np.log(weights) - self.past.exposure * weights)
            )
        return value

    def m_step(self, observed: Float64, expected: Float64) -> Self:
        """The next factors: an MM step (Hunter 2004), which cannot lower the objective.

        `observed` are the choices of each cell, and `expected` those expected under these weights.
        """
        observed, expected = observed.ravel(), expected.ravel()
        if len(self.past.observed):
            observed = observed + self.past.observed
            expected = expected + self.past.exposure * self.weights().ravel()
        priors = self.strength, self.mean
        factors = _sweep(self.index, self.starts, self.factors, observed, expected, *priors)
        return self.with_factors(factors)

    def step_rows(
        self, observed: Float64, expected: Float64, common: int, ratios: Sequence[Float64]
    ) -> Self | tuple[Float64, Float64]:
        """The M-step of a part of the cells, where the factors of one level are common to all.

        `ratios` are the changes of the common factors in the sweeps so far. Returns the next
        factors, once all ratios are known; before, the choices and the demand of the common level.
        Added up over all parts, these give the next ratio, by `solve_level`.
        """
        ratio, change = np.ones(len(self.factors)), np.ones(self.index.shape[1])
        remaining_ratios, last = iter(ratios), -1
        for sweep in range(self.sweeps):
            for i in range(len(self.index)):
                run = slice(self.starts[i], self.starts[i + 1])
                choices, demand = np.zeros((2, run.stop - run.start))
                arguments = self.index, self.starts, sweep, i, last
                _sum_level(*arguments, ratio, change, observed, expected, choices, demand)
                level_ratio = (
                    next(remaining_ratios, None)
                    if i == common
                    else self.solve_level(i, choices, demand)
                )
                if level_ratio is None:
                    return choices, demand
                ratio[run], last = level_ratio, i
        return self.with_factors(ratio * self.factors)

    @property
    def sweeps(self) -> int:
        """How often an M-step goes over the levels."""
        return SWEEPS if len(self.index) > 1 else 1

    def solve_level(self, level: int, choices: Float64, demand: Float64) -> Float64:
        """The ratio by which each factor of a level changes, given its choices and its demand."""
        ratio, run = np.empty(len(choices)), slice(self.starts[level], self.starts[level + 1])
        _solve_level(choices, demand, self.factors[run], self.strength[run], self.mean[run], ratio)
        return ratio

    def remember(self, observed: Float64, expected: Float64) -> Self:
        """The same factors, with these choices added to the past."""
        observed, exposure = observed.ravel(), (expected / self.weights()).ravel()
        if len(self.past.observed):
            observed, exposure = observed + self.past.observed, exposure + self.past.exposure
        return self.with_past(PastChoices(observed, exposure))


class WeightRun(NamedTuple):
    """The weights of a run of cells of a table, with the row numbers of the whole table."""

    first: int
    values: Float64  # [cell]

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of the statistics of a table of factors."""
        return FactorTable.statistics

    def weights(self, first: int, last: int) -> Float64:
        """The weights of the cells first … last − 1 of the whole table."""
        return self.values[first - self.first : last - self.first]


@kernel
def _log_gamma(factors: Float64, strength: Float64, mean: Float64) -> float:
    """Σ s (log x − x / mean)."""
    total = 0.0
    for f in range(len(factors)):
        total += strength[f] * (np.log(factors[f]) - factors[f] / mean[f])
    return total


@kernel
def _sweep(
    index: Int32,
    starts: Int64,
    factors: Float64,
    observed: Float64,
    expected: Float64,
    strength: Float64,
    mean: Float64,
) -> Float64:
    """Sweep over the levels, each in closed form given the changes of the others.

    The logarithm of the sum of weights Z in a choice is at most log Z₀ + Z / Z₀ − 1, which is
    linear in the weights and exact at the present ones (an MM step, Hunter 2004).

    A factor x that changes to x y, in cells whose other factors change by z, gains at least
    n log y − Σ expected (z² y² + v²) / 2, plus its prior s log y − s x y / mean. The weight of
    a choice is a product of two tables (a γ, or ω f) that step at the same time: where they change
    by u = z y and by v, u v ≤ (u² + v²) / 2 separates them, and v² does not depend on y. With
    d = Σ expected z², the best y is the root of n + s − d y² − (s x / mean) y = 0.
    """
    levels, cells = index.shape
    ratio, change = np.ones(len(factors)), np.ones(cells)
    largest = np.max(starts[1:] - starts[:-1])
    choices, demand = np.empty(largest), np.empty(largest)  # of one level at a time
    last = -1  # the level that was solved last
    for sweep in range(SWEEPS if levels > 1 else 1):
        for i in range(levels):
            begin, end = starts[i], starts[i + 1]
            choices[: end - begin] = 0.0
            demand[: end - begin] = 0.0
            _sum_level(
                index, starts, sweep, i, last, ratio, change, observed, expected, choices, demand
            )
            _solve_level(
                choices[: end - begin],
                demand[: end - begin],
                factors[begin:end],
                strength[begin:end],
                mean[begin:end],
                ratio[begin:end],
            )
            last = i
    for f in range(len(factors)):
        ratio[f] *= factors[f]
    return ratio


@kernel
def _sum_level(
    index: Int32,
    starts: Int64,
    sweep: int,
    level: int,
    last: int,
    ratio: Float64,
    change: Float64,
    observed: Float64,
    expected: Float64,
    choices: Float64,
    demand: Float64,
) -> None:
    """Add the choices and the demand of each factor of a level; first apply the last ratios."""
    for c in range(index.shape[1]):  # one pass: cells are many
        k = index[level, c]
        if last >= 0:
            change[c] *= ratio[starts[last] + index[last, c]]
        if sweep > 0:
            change[c] /= ratio[starts[level] + k]
        choices[k] += observed[c]
        demand[k] += expected[c] * change[c] * change[c]


@kernel
def _solve_level(
    choices: Float64,
    demand: Float64,
    factors: Float64,
    strength: Float64,
    mean: Float64,
    ratio: Float64,
) -> None:
    """Fill `ratio` with the change of each factor of a level: the root."""
    for k in range(len(choices)):
        total, slope = choices[k] + strength[k], strength[k] * factors[k] / mean[k]
        d = demand[k] if demand[k] > 1e-300 else 0.0
        below = slope + math.sqrt(slope * slope + 4.0 * d * total)
        unbounded = 0.0 if d > 0.0 else 1.0  # without choices, and without a prior
        root = 2.0 * total / below if below > 0.0 else unbounded
        ratio[k] = max(root, SMALLEST_FACTOR / factors[k])
