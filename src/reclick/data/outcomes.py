"""Outcomes of clicks: whether the user came back at once, and whether a conversion followed.

An outcome is one small number, 3 · conversion + return: conversion is 0 (unknown), 1 (none) or 2,
return is 0 (unknown), 1 (quick) or 2 (the user stayed). After a conversion, the return is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reclick.data.ragged import Float64, Int32, Int64, join_codes, read_only

Int8 = npt.NDArray[np.int8]

UNKNOWN_OUTCOME, NO_CONVERSION, CONVERSION = 0, 3, 6
OUTCOME_NAMES = (
    "unknown",
    "quick_return",
    "stayed",
    "no_conversion",
    "no_conversion_quick_return",
    "no_conversion_stayed",
    "conversion",
)
N_OUTCOMES = len(OUTCOME_NAMES)
QUICK_RETURN_SECONDS = 10.0


class ClickOutcomes(NamedTuple):
    """What happened after each click, as far as the log says."""

    outcome: Int8  # [click]
    dwell_seconds: Float64 | None  # [click] nan where unknown; None where the log has no column
    conversions: Float64 | None  # [click] likewise

    def select(self, clicks: slice | npt.NDArray[np.bool_]) -> ClickOutcomes:
        """The outcomes of some clicks."""
        dwell, conversions = self.dwell_seconds, self.conversions
        return ClickOutcomes(
            self.outcome[clicks],
            None if dwell is None else dwell[clicks],
            None if conversions is None else conversions[clicks],
        )


def encode_outcomes(
    dwell_seconds: Float64 | None, conversions: Float64 | None, quick_return_seconds: float
) -> Int8:
    """The outcome of each click; nan is unknown.

    >>> dwell, conversions = np.array([2.0, 60.0, np.nan]), np.array([0.0, np.nan, 1.0])
    >>> encode_outcomes(dwell, conversions, 10.0)
    array([4, 2, 6], dtype=int8)
    """
    values = dwell_seconds if dwell_seconds is not None else conversions
    outcome = np.zeros(0 if values is None else len(values), np.int8)
    if dwell_seconds is not None:
        outcome[dwell_seconds >= quick_return_seconds] = 2
        outcome[dwell_seconds < quick_return_seconds] = 1
    if conversions is not None:
        outcome[conversions == 0] += 3
        outcome[conversions > 0] = CONVERSION
    return outcome


def last_of_runs(values: Int8, starts: Int64) -> Int8:
    """The last value of each run, 0 where a run is empty.

    >>> last_of_runs(np.array([1, 2, 6], np.int8), np.array([0, 2, 2, 3]))
    array([2, 0, 6], dtype=int8)
    """
    last = np.zeros(len(starts) - 1, np.int8)
    has_values = starts[1:] > starts[:-1]
    last[has_values] = values[starts[1:][has_values] - 1]
    return last


class OutcomeRows(NamedTuple):
    """Weights of known outcomes by two codes."""

    first: Int32  # [row]
    second: Int32  # [row]
    outcome: Int8  # [row]
    weight: Float64  # [row]

    def to_table(self, first: Int32, second: Int32, total: Float64) -> Float64:
        """Weights [row, outcome] of rows sorted by their codes; the rest of `total` is unknown."""
        keys = join_codes(first, second)
        at = np.searchsorted(keys, join_codes(self.first, self.second))
        table = np.zeros((len(total), N_OUTCOMES))
        np.add.at(table, (at, self.outcome), self.weight)
        table[:, UNKNOWN_OUTCOME] = np.maximum(total - table.sum(axis=1), 0.0)
        return table


@dataclass(frozen=True, eq=False)
class OutcomeCounts:
    """How often each outcome followed a click, unknown ones included."""

    last: Float64  # [pair, outcome] of last clicks; adds up to the last clicks of the pair
    visits: Float64  # [visit, outcome] of last clicks; adds up to the sessions of the visit
    earlier: Float64  # [outcome] of all other clicks

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, read_only(getattr(self, field.name)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OutcomeCounts):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def any_known(self) -> bool:
        """Whether any outcome is known."""
        return bool(self.last[:, 1:].any() or self.earlier[1:].any())

    @property
    def totals(self) -> Float64:
        """How often each outcome followed any click [outcome]."""
        return np.asarray(self.last.sum(axis=0) + self.earlier)

    def scale(self, factor: float) -> OutcomeCounts:
        """Multiply all counts by a factor."""
        return OutcomeCounts(self.last * factor, self.visits * factor, self.earlier * factor)

    def select(self, pairs: npt.NDArray[np.bool_], visits: npt.NDArray[np.bool_]) -> OutcomeCounts:
        """The counts of some pairs and visits; `earlier` has no rows to select and stays."""
        return OutcomeCounts(self.last[pairs], self.visits[visits], self.earlier)
