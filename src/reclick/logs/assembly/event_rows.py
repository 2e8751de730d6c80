"""Rows of impressions, pages and clicks, as the join of pages and clicks takes them: one key, whole positions, times, and where each row stood."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind_of

from reclick.data.batch import Int64
from reclick.data.schema import is_string
from reclick.logs.files.source import Raw, Source, short
from reclick.logs.formats.base import Found
from reclick.logs.formats.helpers.records import text, whole_numbers
from reclick.logs.summary import KEPT_EXAMPLES, NOT_READABLE
from reclick.logs.timestamps import as_times

Bools = npt.NDArray[np.bool_]
NO_KEY, NO_POSITION = "no page key", "no position"
ROW_BYTES = 100  # of an event in memory


def events_size(sources: Iterable[Source]) -> int:
    """About how many bytes events take in memory."""
    return sum(_size(source) for source in sources)


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    r"""Return one text of several, different wherever one of them is; null where any is null.

    >>> joined([pa.array(["a|b", "a"]), pa.array(["c", "b|c"])]).to_pylist()
    ['a\\|b|c', 'a|b\\|c']
    """
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*(_escaped(part) for part in parts), "|")


def first_part(keys: pa.Array) -> pa.Array:
    r"""Return the first of two parts that were joined.

    >>> first_part(pa.array([r"a\|b|c"])).to_pylist()
    ['a|b']
    """
    first = pc.replace_substring_regex(keys, r"(?s)^((?:[^\\|]|\\.)*)\|.*$", r"\1")
    return pc.replace_substring_regex(first, r"(?s)\\(.)", r"\1")


@dataclass
class EventRows:
    """Rows of one file or table; those found bad on the way are told and left out at the end."""

    raw: Raw
    file: int  # its place among the files
    where: str
    found: Found
    names: Mapping[str, str] = field(
        default_factory=dict
    )  # a column's name here -> its name in the rows, where they differ

    def __post_init__(self) -> None:
        self.sound: Bools = np.ones(self.raw.length, np.bool_)
        for number, got in self.raw.unreadable:
            self.found.bad(NOT_READABLE, self.where, number, got)

    def has(self, name: str) -> bool:
        """Whether the rows have this column."""
        return self.names.get(name, name) in self.raw.columns

    def column(self, name: str) -> pa.Array:
        """A column as it is."""
        return self.raw.columns[self.names.get(name, name)]

    def text(self, name: str) -> pa.Array:
        """A column of ids as text; nulls when there is none."""
        return text(self.column(name)) if self.has(name) else pa.nulls(self.raw.length, pa.string())

    def key(self, names: Sequence[str]) -> pa.Array:
        """The key of each row's page; a row without one is bad."""
        key = joined([text(self.column(name)) for name in names])
        self._refuse(
            NO_KEY,
            key.is_null(),
            lambda row: ", ".join(short(self.column(name)[row].as_py()) for name in names),
        )
        return key

    def position(self, *, needed: bool) -> pa.Array:
        """The positions; a row whose position is no whole number is bad, and one without a position too when it is needed."""
        if not self.has("position"):
            return pa.nulls(self.raw.length, pa.int64())
        given = self.column("position")
        whole = whole_numbers(given)
        self._refuse(
            NOT_READABLE,
            pc.and_(whole.is_null(), given.is_valid()),
            lambda row: f"position {given[row].as_py()}",
        )
        if needed:
            self._refuse(NO_POSITION, whole.is_null(), lambda _: "null")
        return whole

    def times(self, name: str) -> pa.Array:
        """The times of a column; a row whose time cannot be understood is bad."""
        if not self.has(name):
            return pa.nulls(self.raw.length, pa.timestamp("us"))
        given = self.column(name)
        given = text(given) if is_string(given.type) or kind_of.is_dictionary(given.type) else given
        found = as_times(given)
        self._refuse(
            NOT_READABLE,
            pc.and_(found.is_null(), given.is_valid()),
            lambda row: f"{name}: not a time: {short(given[row].as_py())}",
        )
        return found

    @cached_property
    def numbers(self) -> Int64:
        """The rows' numbers in the file, from 1."""
        raw = self.raw
        return np.arange(raw.first, raw.first + raw.length) if raw.numbers is None else raw.numbers

    def table(self, columns: dict[str, pa.Array], chosen: Bools | None = None) -> pa.Table:
        """The sound rows, or the chosen ones of them, with their places."""
        table = pa.table(
            {
                **columns,
                "file": pa.array(np.full(self.raw.length, self.file, np.int32)),
                "number": self.numbers,
            }
        )
        kept = self.sound if chosen is None else self.sound & chosen
        return table if kept.all() else table.filter(pa.array(kept))

    def _refuse(self, reason: str, bad: Any, got: Callable[[int], str]) -> None:
        rows = np.flatnonzero(np.asarray(bad) & self.sound)
        first = [
            (self.where, int(self.numbers[row]), got(int(row))) for row in rows[:KEPT_EXAMPLES]
        ]
        self.found.bad_many(reason, len(rows), first)
        self.sound[rows] = False


def shown_columns(rows: EventRows, key: pa.Array) -> dict[str, pa.Array]:
    """The columns of ads shown, one a row, as the join takes them."""
    return {
        "key": key,
        "query": rows.text("query"),
        "ad": rows.text("ad"),
        "position": rows.position(needed=True),
        "time": rows.times("timestamp"),
        "user": rows.text("user"),
    }


def _escaped(values: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(values, r"[\\|]")).as_py():
        return values
    return pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), "|", "\\|")


def _size(source: Source) -> int:
    path = getattr(source, "path", None)
    on_disk = 0 if path is None else Path(path).stat().st_size
    rows = len(source.relation) if hasattr(source, "relation") else source.num_rows or 0
    return max(on_disk, rows * ROW_BYTES)
