"""The request of an export (model, file, grading rule) and its result."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from reclick.data.ragged import Bool, Float64, Int32
from reclick.errors import Argument, SettingError, check_choice, check_range
from reclick.logs.files.source import OnError
from reclick.models.base import ClickModel
from reclick.runtime.filesystem import AnyPath
from reclick.runtime.notebook import render_text

GRADED_VALUES = ("relevance", "attractiveness", "satisfaction")
BOUND_SUFFIXES = {"low": "_low", "value": ""}  # bound → suffix of the column that is graded
QUANTILES = {"halves": 2, "terciles": 3, "quartiles": 4, "quintiles": 5, "deciles": 10}

PER_QUERY = "per-query"
QUARTERS = (0.25, 0.5, 0.75)  # of the best value of a query

Cuts = str | Sequence[float] | Float64  # the name of quantiles, "per-query", or cut points


@dataclass(frozen=True, slots=True)
class GradingRule:
    """Grade a pair by how many cut points its value reaches, if it has enough impressions.

    By default the value is the lower end of the credible interval: 1 click of 1 impression is a
    high rate, but with a low lower end. Some priors make a model certain about pairs with few
    impressions; therefore `min_support` also requires a number of impressions.

    >>> GradingRule(cuts=(0.1, 0.5)).grade(np.array([0.05, 0.1, 0.7]), (0.1, 0.5))
    array([0, 1, 2], dtype=int32)
    """

    cuts: Cuts = "quartiles"
    quantity: str = "relevance"
    bound: str = "low"
    min_support: float = 10.0
    level: float = 0.9

    def __post_init__(self) -> None:
        object.__setattr__(self, "cuts", _check_cuts(self.cuts))
        check_choice("quantity", self.quantity, GRADED_VALUES)
        check_choice("bound", self.bound, tuple(BOUND_SUFFIXES))
        check_range("min_support", self.min_support, 0, math.inf)
        check_range("level", self.level, 1e-6, 1 - 1e-6)

    @property
    def column(self) -> str:
        """The column of `relevance` that is graded."""
        return f"{self.quantity}{BOUND_SUFFIXES[self.bound]}"

    def cut_points(self, values: Float64) -> tuple[float, ...]:
        """The cut points: numbers, quarters, or quantiles of the values of clicked pairs."""
        if not isinstance(self.cuts, str):
            return tuple(self.cuts)
        if self.cuts == PER_QUERY:
            return QUARTERS
        n = QUANTILES[self.cuts]
        return tuple(np.unique(np.quantile(values, np.arange(1, n) / n)).tolist())

    def grade(self, values: Float64, cut_points: Sequence[float]) -> Int32:
        """The number of cut points that each value reaches [pair].

        Quantiles must be exceeded, so that pairs of equal value all have the lowest grade.
        """
        side: Literal["left", "right"] = "left" if self.uses_quantiles else "right"
        cuts = np.asarray(cut_points, np.float64)
        return np.searchsorted(cuts, values, side=side).astype(np.int32)

    @property
    def uses_quantiles(self) -> bool:
        """Whether the cut points are quantiles of all clicked pairs."""
        return isinstance(self.cuts, str) and self.cuts in QUANTILES

    def scale(self, values: Float64, query: Int32, supported: Bool) -> Float64:
        """The values that cut points apply to: with "per-query", shares of the query's best.

        The best is that of the pairs with enough support; `query` has the codes of queries [pair].

        >>> rule = GradingRule(cuts="per-query")
        >>> query, supported = np.array([0, 0, 1], np.int32), np.array([True] * 3)
        >>> shares = rule.scale(np.array([0.2, 0.1, 0.01]), query, supported)
        >>> shares.tolist(), rule.grade(shares, QUARTERS).tolist()
        ([1.0, 0.5, 1.0], [3, 2, 3])
        """
        if self.cuts != PER_QUERY:
            return values
        best = np.zeros(int(query.max(initial=-1)) + 1)
        np.maximum.at(best, query[supported], values[supported])
        return np.divide(values, best[query], out=np.zeros(len(values)), where=best[query] > 0)

    def describe_cuts(self, cuts: Sequence[float], digits: int = 6) -> str:
        """A description of the cut points."""
        cut_list = ", ".join(f"{cut:.{digits}g}" for cut in cuts)
        of_best = f"of the best {self.column} of the query"
        return f"{cut_list} {of_best if self.cuts == PER_QUERY else f'on {self.column}'}"

    def has_support(self, impressions: Float64) -> Bool:
        """Whether each pair has enough impressions [pair]."""
        return np.asarray(impressions >= self.min_support)

    @property
    def support_reason(self) -> str:
        """The reason why pairs with too few impressions are left out."""
        return f"shown fewer than {self.min_support:g} time{'s' * (self.min_support != 1)}"


def _check_cuts(cuts: object) -> str | tuple[float, ...]:
    """Check cuts: the name of quantiles, "per-query", or increasing numbers as a tuple."""
    if isinstance(cuts, str) and cuts in {*QUANTILES, PER_QUERY}:
        return cuts
    if isinstance(cuts, Sequence | np.ndarray) and not isinstance(cuts, str):
        numbers = tuple(float(cut) for cut in cuts if _is_finite_number(cut))
        if numbers and len(numbers) == len(cuts) and list(numbers) == sorted(set(numbers)):
            return numbers
    names = ", ".join(map(repr, [*QUANTILES, PER_QUERY]))
    raise SettingError(
        "cuts",
        cuts,
        f"increasing numbers or one of {names}",
        ("For example ", Argument("cuts", (0.05, 0.2, 0.5)), "."),
    )


def _is_finite_number(value: Any) -> bool:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max


@dataclass(frozen=True)
class ExportRequest:
    """One export: the model, the file and the options."""

    model: ClickModel
    to: AnyPath
    rule: GradingRule = field(default_factory=GradingRule)
    pairs: object = None
    features: object = None
    log: object = None
    name: str | None = None
    details: bool = False
    on_error: OnError = "raise"
    overwrite: bool = False


@dataclass(frozen=True)
class ExportResult:
    """The result of an export: files, rows, grades, and pairs that were left out."""

    files: tuple[AnyPath, ...]
    rows: int
    format: str = ""
    queries: int = 0  # with a graded pair
    grades: dict[int, int] = field(default_factory=dict)  # grade → pairs
    cuts: tuple[float, ...] = ()
    column: str = ""  # that the cut points apply to
    rule: str = ""  # description of the cut points
    left_out: dict[str, int] = field(default_factory=dict)  # reason → pairs
    ungraded_queries: int = 0  # all their pairs were left out
    single_grade_queries: int = 0  # have no effect on a ranking metric
    comparisons: int = 0  # of two ads of one query with different grades
    overlap: float | None = None  # share of them whose intervals overlap
    level: float = 0.9  # of the intervals
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        return render_text(self)

    def __str__(self) -> str:
        rows = f"{self.rows:,} pairs, {self.queries:,} queries"
        lines = [f"{self.format}: {rows if self.grades else f'{self.rows:,} positions'}"]
        if self.grades:
            grades = "   ".join(f"{grade}: {pairs:,}" for grade, pairs in self.grades.items())
            lines += [f"grades         {grades}", f"cut points     {self.rule}"]
            lines += self._query_lines()
        lines += [
            f"left out       {n:,} pair{'' if n == 1 else 's'} {reason}"
            for reason, n in self.left_out.items()
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes), *map(str, self.files)])

    def _query_lines(self) -> list[str]:
        """Lines on how useful the grades are to compare ads of a query."""
        without = _format_share(self.ungraded_queries, self.queries + self.ungraded_queries)
        single = _format_share(self.single_grade_queries, self.queries)
        lines = [
            f"no grade       {without} queries",
            f"single grade   {single} graded queries, which cannot distinguish rankings",
        ]
        if self.overlap is not None:
            share, comparisons = f"{self.overlap:.0%}", f"{self.comparisons:,}"
            what = f"two ads of a query with different grades: their {self.level:.0%} intervals"
            lines.append(f"overlap        {share} of {comparisons} comparisons of {what} overlap")
        return lines


def _format_share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / max(whole, 1):.0%})"
