"""Parameters in tables, each with its prior and its past, for EM and for updates.

Of past sessions only the sums of a table's statistics are kept: this past is part of the prior of
the table, and decay scales it. So a fit can be continued with new sessions, without the old ones.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from reclick.data.grouped_sessions import BlockRows, RowRun
from reclick.data.ragged import Float64, Int64
from reclick.data.stored_tables import read_lists, read_numbers, table_error, to_lists
from reclick.fitting.em import (
    FitResult,
    PairSums,
    Squarem,
    Statistics,
    run_em,
    squarem_norms,
    squarem_step,
)

LARGEST_VALUE = 1e12  # of an extrapolation
LENGTH_DIGITS = 3  # of its length
Columns = dict[str, dict[str, Any]]  # arrays of equal length by column, by table


class ParameterTable(ABC):
    """A table of parameters that EM estimates: a dataclass with values and a past by row.

    The past is the sums of the statistics that its M-step gets, under the same names, unless a
    subclass keeps other sums.
    """

    __slots__ = ()
    value: ClassVar[str]  # the field with the values [row, …], which are positive
    statistics: ClassVar[tuple[str, ...]]  # the results of an E-step for it [row, …]
    constants: ClassVar[tuple[str, ...]] = ()  # fields by row that an M-step does not change

    @abstractmethod
    def log_prior(self) -> float:
        """Log-density of the values, up to a constant, with what the past contributes."""

    @abstractmethod
    def m_step(self, *statistics: Any, **options: Any) -> Self:
        """The next values, from the statistics of an E-step; the objective cannot fall."""

    def constrain(self, values: Float64) -> Float64:
        """Replace values that are not allowed by the nearest that are."""
        return values

    @property
    def values(self) -> Float64:
        """All values, one row after the other, for extrapolation."""
        return np.asarray(getattr(self, self.value)).ravel()

    def with_values(self, values: Float64) -> Self:
        """The same table with other values."""
        shape = np.shape(getattr(self, self.value))
        return self._replace(**{self.value: self.constrain(values.reshape(shape))})

    def remember(self, *statistics: Any) -> Self:
        """The same values, with these statistics added to the past."""
        sums = zip(self.statistics, statistics, strict=True)
        return self._replace(**{name: getattr(self, name) + each for name, each in sums})

    def start_from(self, last: Self) -> Self:
        """This table with the values of another fit to the same sessions, if the shapes agree."""
        same = np.shape(getattr(self, self.value)) == np.shape(getattr(last, last.value))
        return self.with_values(last.values) if same else self

    def continue_from(self, last: Self, rows: Int64 | None, decay: float) -> Self:
        """This table with the values and the past of an earlier one, whose rows are `rows` here."""
        columns = {}
        for name, factor in ((self.value, 1.0), *((each, decay) for each in self.statistics)):
            columns[name] = getattr(self, name).copy()
            columns[name][slice(None) if rows is None else rows] = factor * getattr(last, name)
        return self._replace(**columns).with_values(columns[self.value])

    def cut(self, rows: slice) -> Any:
        """The values of a run of rows, with the row numbers of the whole table; no past."""
        runs = {name: RowRun(getattr(self, name), rows) for name in (self.value, *self.constants)}
        return self._replace(**runs, **dict.fromkeys(self.statistics, np.zeros(0)))

    def to_columns(self) -> Columns:
        """The values and the past, as columns of one table or more."""
        names = (self.value, *self.statistics)
        return {"": {name: getattr(self, name).ravel() for name in names}}

    def from_columns(self, read: Callable[..., Float64]) -> Self:
        """This table with the values and the past of another, from `to_columns`.

        `read(table, column, length)` returns a column that was checked.
        """
        columns = {}
        for name in (self.value, *self.statistics):
            current = getattr(self, name)
            columns[name] = read("", name, current.size).reshape(current.shape)
        return self._replace(**columns)

    def _replace(self, **changes: Any) -> Self:
        table: Any = self
        return cast(Self, replace(table, **changes))


@dataclass(frozen=True, slots=True)
class ParameterTables:
    """All parameters of a model: a subclass has a field for each `ParameterTable`.

    `rows` has the type of row of each table, by the names of `BlockRows`. Tables that are not in it
    are common to all rows.
    """

    rows: ClassVar[Mapping[str, str]] = {}

    def __iter__(self) -> Iterator[tuple[str, ParameterTable]]:
        return ((each.name, getattr(self, each.name)) for each in fields(self))

    def log_prior(self) -> float:
        """Log-density of all values."""
        return sum(table.log_prior() for _, table in self)

    def m_step(self, statistics: Statistics) -> Self:
        """The next values of all tables."""
        return self._map(
            lambda name, table: table.m_step(*find_statistics(statistics, name, table))
        )

    def remember(self, statistics: Statistics) -> Self:
        """The same values, with these statistics added to the past."""
        return self._map(
            lambda name, table: table.remember(*find_statistics(statistics, name, table))
        )

    def start_from(self, last: Self) -> Self:
        """These tables with the values of another fit to the same sessions, if the shapes agree."""
        return self._map(lambda name, table: table.start_from(getattr(last, name)))

    def continue_from(self, last: Self, rows: Mapping[str, Int64], decay: float) -> Self:
        """These tables with the values and the past of earlier ones, whose rows are `rows` here."""

        def move(name: str, table: ParameterTable) -> ParameterTable:
            table_rows = rows.get(self.rows.get(name, ""))
            return table.continue_from(getattr(last, name), table_rows, decay)

        return self._map(move)

    def for_block(self, rows: BlockRows) -> Any:
        """The tables that the E-step of a block needs."""
        tables = {
            name: getattr(self, name).cut(getattr(rows, of)) for name, of in self.rows.items()
        }
        return replace(self, **tables)

    def collect(
        self, log_likelihood: float, rows: BlockRows, **by_table: Iterable[Float64]
    ) -> Statistics:
        """The statistics of a block, from those of each table."""
        sums, totals = PairSums(), dict[str, Float64]()
        for name, table in self:
            keys = [f"{name}_{each}" for each in table.statistics]
            values = dict(zip(keys, by_table[name], strict=True))
            if name in self.rows:
                sums += PairSums.of(getattr(rows, self.rows[name]).start, **values)
            else:
                totals |= values
        return Statistics(log_likelihood, totals, sums)

    def to_tables(self, prefix: str, starts: Mapping[str, Int64]) -> dict[str, pa.Table]:
        """The values and the past as tables, whose names start with the prefix.

        A table with `starts` has lists: its values from each start to the next are one row.
        """
        columns = {
            _join(prefix, name, suffix): columns
            for name, table in self
            for suffix, columns in table.to_columns().items()
        }
        return {
            name: pa.table({key: to_lists(starts.get(name), each) for key, each in table.items()})
            for name, table in columns.items()
        }

    def from_tables(
        self, prefix: str, tables: Mapping[str, pa.Table], starts: Mapping[str, Int64]
    ) -> Self:
        """These tables with the values and the past that `to_tables` returned."""

        def restore(name: str, table: ParameterTable) -> ParameterTable:
            def read(suffix: str, column: str, length: int) -> Float64:
                key = _join(prefix, name, suffix)
                if key not in starts:
                    return read_numbers(tables, key, column, length=length, low=0.0).copy()
                list_starts, values = read_lists(tables, key, column, low=0)
                if not np.array_equal(list_starts, starts[key]):
                    raise table_error(key, f"{column}: its lists are not those of its rows")
                return np.array(values, np.float64)

            result = table.from_columns(read)
            if not np.allclose(result.with_values(result.values).values, result.values, atol=0.0):
                raise table_error(f"{prefix}_{name}", f"it has {table.value} that no fit has")
            return result

        return self._map(restore)

    def maximise(
        self,
        blocks: Sequence[Any],
        e_step: Callable[[Any, Any], Statistics],
        **loop: Any,
    ) -> FitResult[Self, Statistics]:
        """EM from here, with SQUAREM; `loop` are options of `run_em`."""
        tables: Any = type(self)
        loop |= {"log_prior": tables.log_prior, "accelerate": Squarem(tables.extrapolate)}
        return run_em(self, blocks, e_step, tables.m_step, **loop)

    def extrapolate(self, second: Self, third: Self, limit: float) -> tuple[Self, float]:
        """Extrapolate two steps from here (SQUAREM); return the tables and the steps ahead."""
        length = squarem_length(self.measure_steps(second, third), limit)
        return third if length == 1.0 else self.step_ahead(second, third, length), length

    def measure_steps(
        self, second: Self, third: Self, weights: Mapping[str, Float64] | None = None
    ) -> Float64:
        """Squared lengths of a step and of its change [2], weighted by table and value."""
        norms = np.zeros(2)
        for (name, first), (_, then), (_, last) in zip(self, second, third, strict=True):
            weight = np.ones(len(first.values)) if weights is None else weights[name]
            norms += squarem_norms(first.values, then.values, last.values, weight)
        return norms

    def step_ahead(self, second: Self, third: Self, length: float) -> Self:
        """Extrapolate two steps from here to a distance of `length` steps."""

        def extrapolate(name: str, table: ParameterTable) -> ParameterTable:
            a, b, c = (getattr(each, name).values for each in (self, second, third))
            return table.with_values(squarem_step(a, b, c, length, LARGEST_VALUE))

        return third._map(extrapolate)

    def _map(self, change: Callable[[str, Any], ParameterTable]) -> Self:
        return replace(self, **{name: change(name, table) for name, table in self})


def squarem_length(norms: Float64, limit: float) -> float:
    """How many steps ahead an extrapolation goes: from 1 to the limit.

    It is rounded to its first digits. The others depend on the order in which rows are added up:
    with them, fits with other blocks or buckets would differ by 1e-6, without them by 1e-11.

    >>> squarem_length(np.array([2.0, 0.3]), 4.0)
    2.58
    """
    length = math.sqrt(norms[0] / norms[1]) if norms[1] > 0 else 1.0
    return min(max(float(f"{length:.{LENGTH_DIGITS}g}"), 1.0), limit)


def find_statistics(statistics: Statistics, name: str, table: ParameterTable) -> list[Float64]:
    """The statistics of a table."""
    return [statistics[f"{name}_{each}"] for each in table.statistics]


def _join(*names: str) -> str:
    return "_".join(filter(None, names))
