"""Counts: the sufficient statistics of a log. They add, subtract, decay and save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.counts_arithmetic import (
    add_counts,
    indices_of_parts,
    pool_counts,
    select_queries,
    sum_counts,
)
from reclick.data.counts_checks import is_possible, require_exact_totals
from reclick.data.counts_tables import counts_to_tables, read_counts
from reclick.data.log_record import LogRecord, records_from_table, records_to_table
from reclick.data.outcomes import OutcomeCounts
from reclick.data.ragged import Float64, Int32, Int64, read_only
from reclick.data.result_tables import tables_from_results
from reclick.data.stored_tables import table_error
from reclick.errors import SettingError, StoreError, UsageError
from reclick.runtime import artifact
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location, resolve
from reclick.runtime.wording import count_noun


@dataclass(slots=True, eq=False)
class CountsFolder:
    """A folder that counts were loaded from or saved to, and the fingerprint of its content then.

    Counts share it with those that are made from them, so that a save is known to all of them.
    """

    place: str
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Counts:
    """The sufficient statistics of a log, in one canonical order: equal logs give equal counts.

    A click sequence is the positions clicked, in order; `()` is a session without a click. If the
    weights are whole numbers, all totals are exact: the counts of several days equal the sum of
    the counts of each day, and subtracting a day gives the counts without it.
    """

    queries: pa.LargeStringArray  # [query] sorted
    ads: pa.LargeStringArray  # [ad] sorted
    pair_query: Int32  # [pair] sorted by query, then ad
    pair_ad: Int32  # [pair]
    impressions: Float64  # [pair]
    clicks: Float64  # [pair]
    last_clicks: Float64  # [pair] sessions whose last click was on it: κ'; κ = clicks − last_clicks
    sequence_starts: Int64  # [sequence + 1] where each distinct click sequence starts
    sequence_clicks: Int32  # the positions of every click sequence, end to end
    visit_query: Int32  # [visit] a query and a click sequence that occurred together
    visit_sequence: Int32  # [visit]
    sessions: Float64  # [visit] how often
    lengths: Float64  # [page length, number of clicks] sessions
    outcomes: OutcomeCounts | None = None  # of clicks; None where all are unknown
    logs: tuple[LogRecord, ...] = field(default=(), compare=False)  # the logs that were counted
    # of these counts, and of those that they were made from
    folders: tuple[CountsFolder, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for each in fields(self):  # so that kernels get one type of array, and compile once
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, each.name, read_only(value))

    def __add__(self, other: Counts) -> Counts:
        _check_counts(other)
        return require_exact_totals(add_counts(self, other, 1.0), "The sum of the counts")

    def __radd__(self, other: Any) -> Counts:
        is_start_of_sum = type(other) is int and other == 0
        return self if is_start_of_sum else self + other

    def __sub__(self, other: Counts) -> Counts:
        _check_counts(other)
        result = add_counts(self, other, -1.0)
        if not is_possible(result):
            raise UsageError(
                "Counts to subtract hold more than the counts they are taken from: "
                "subtract only what was added before."
            )
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        return all(
            _same(getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)
            if each.compare
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = f"{count_noun(len(self.queries), 'query')}, {count_noun(len(self.ads), 'ad')}"
        pairs = count_noun(len(self.impressions), "pair")
        return f"Counts({count_noun(self.total, 'session')}, {names}, {pairs})"

    @classmethod
    def sum(cls, parts: Sequence[Counts]) -> Counts:
        """The sum of all parts, which is the same as adding them one by one.

        >>> from reclick import count
        >>> day = count({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})
        >>> Counts.sum([day, day, day]) == day + day + day
        True
        """
        if not isinstance(parts, list | tuple) or not parts:
            raise SettingError("parts", parts, "a list of counts, one or more")
        for part in parts:
            if not isinstance(part, Counts):
                raise SettingError("parts", part, "counts, such as rc.count returns")
        return parts[0] if len(parts) == 1 else sum_counts(parts)

    def split(self, part: Int64, n: int) -> list[Counts]:
        """The counts of n parts of the queries, given the part of each query [query].

        Page lengths, and outcomes of clicks that were not the last of their session, are not known
        per query: the parts do not have them.
        """
        return [select_queries(self, queries) for queries in indices_of_parts(part, n)]

    def pool(self) -> Counts:
        """The counts as if all queries and all ads were one: the totals of the log.

        >>> from reclick import count
        >>> log = {"query": ["pizza", "tea"], "ads": [["a"], ["b"]], "clicks": [[1], []]}
        >>> pooled = count(log).pool()
        >>> pooled.impressions, pooled.clicks, pooled.per_sequence()
        (array([2.]), array([1.]), array([1., 1.]))
        """
        return pool_counts(self)

    @check_arguments
    def decay(self, factor: float) -> Counts:
        """Multiply all counts by a factor in (0, 1]: old days lose weight in a daily job."""
        if not 0 < factor <= 1:
            raise SettingError("decay", factor, "a factor above 0 and at most 1, such as 0.9")
        scaled = {
            name: getattr(self, name) * factor
            for name in ("impressions", "clicks", "last_clicks", "sessions", "lengths")
        }
        outcomes = None if self.outcomes is None else self.outcomes.scale(factor)
        return replace(self, **scaled, outcomes=outcomes)

    @property
    def total(self) -> float:
        """The number of sessions: the sum of their weights."""
        return float(self.sessions.sum())

    @property
    def volumes(self) -> Float64:
        """Sessions of each query [query]."""
        return np.bincount(self.visit_query, self.sessions, minlength=len(self.queries)).astype(
            np.float64
        )

    @property
    def max_ads(self) -> int:
        """The number of ads of the longest page."""
        return int(self.lengths.shape[0]) - 1

    def per_sequence(self) -> Float64:
        """Sessions of each click sequence over all queries [sequence]."""
        return np.bincount(
            self.visit_sequence, self.sessions, minlength=len(self.sequence_starts) - 1
        ).astype(np.float64)

    @classmethod
    def of_sequences(
        cls, starts: Int64, clicks: Int32, sessions: Float64, lengths: Float64
    ) -> Counts:
        """Counts of click sequences alone, without their queries and ads."""
        codes, numbers = np.zeros(0, np.int32), np.zeros(0)
        return cls(
            queries=pa.array([""], pa.large_string()),
            ads=pa.array([], pa.large_string()),
            pair_query=codes,
            pair_ad=codes,
            impressions=numbers,
            clicks=numbers,
            last_clicks=numbers,
            sequence_starts=starts,
            sequence_clicks=clicks,
            visit_query=np.zeros(len(sessions), np.int32),
            visit_sequence=np.arange(len(sessions), dtype=np.int32),
            sessions=sessions,
            lengths=lengths,
        )

    @check_arguments
    def save(self, folder: Location, *, overwrite: bool = False) -> None:
        """Write the counts to a folder, atomically: a reader sees the old or the new counts.

        If these counts, or some that they were made from, were loaded from the folder or saved to
        it, and another process has saved to it since, an error is raised unless `overwrite`.
        """
        place = str(resolve(folder))
        saved = [each for each in self.folders if each.place == place]
        settings = {"logs": [each.to_dict() for each in self.logs]}
        tables = {**self.to_tables(), "logs": records_to_table(self.logs)}
        states = {each.fingerprint for each in saved}
        replaces = None
        if saved and not overwrite:  # if they are of two states, one of these was replaced
            replaces = states.pop() if len(states) == 1 else ""
        fingerprint = artifact.write(
            folder, kind="counts", settings=settings, tables=tables, replaces=replaces
        )
        for each in saved:
            each.fingerprint = fingerprint
        if not saved:
            folders = (*self.folders, CountsFolder(place, fingerprint))
            object.__setattr__(self, "folders", folders)

    @classmethod
    @check_arguments
    def load(cls, folder: Location) -> Counts:
        """Read counts that were saved."""
        contents = artifact.read(folder, kind="counts")
        try:
            folders = (CountsFolder(str(resolve(folder)), contents.fingerprint),)
            counts = replace(cls.from_tables(contents.tables), folders=folders)
            if "logs" not in contents.tables:  # saved by an earlier version
                return counts
            logs = records_from_table(contents.settings["logs"], contents.tables["logs"])
            return replace(counts, logs=tuple(logs))
        except StoreError as error:
            raise StoreError(f"{folder} cannot be loaded. {error}") from error
        except Exception as error:  # any error that an altered folder may cause
            raise StoreError(
                f"{folder} cannot be loaded: {type(error).__name__}: {error}. It was altered, or "
                "written by another version: count again, and save to a new folder."
            ) from error

    def to_tables(self) -> dict[str, pa.Table]:
        """The counts as Arrow tables."""
        return counts_to_tables(self)

    @classmethod
    def from_tables(cls, tables: Any, visits: Any = None) -> Counts:
        """Make counts from Arrow tables; raises if no log has such counts.

        The tables are the dict that `to_tables` returns, or the two results of `reclick sql`: the
        table of pairs and the table of visits, from Arrow, pandas, Polars or an ADBC cursor.

        >>> pairs = {"query": ["q", "q"], "ad": ["a", "b"], "impressions": [2, 2]}
        >>> pairs |= {"clicks": [2, 1], "last_clicks": [1, 1]}
        >>> visits = {"query": ["q", "q"], "click_sequence": ["1", "1,2"]}
        >>> visits |= {"page_length": [2, 2], "sessions": [1, 1]}
        >>> Counts.from_tables(pairs, visits)
        Counts(2 sessions, 1 query, 2 ads, 2 pairs)
        """
        if visits is not None:
            tables = tables_from_results(tables, visits)
        counts = cls(**read_counts(tables))
        if not is_possible(counts):
            raise table_error("pairs", "no log has these counts")
        return counts


def _check_counts(other: object) -> None:
    if not isinstance(other, Counts):
        raise UsageError(
            f"Counts are added to and subtracted from counts, not {type(other).__name__}. "
            "Count the log first: rc.count(log)."
        )


def _same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))  # type: ignore[arg-type]
    return bool(a.equals(b)) if isinstance(a, pa.Array) else bool(a == b)
