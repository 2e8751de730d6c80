"""Make sessions from a table of impressions and a table of clicks, joined on a key.

The tables may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from reclick.data.batch import Int64
from reclick.data.schema import IDS, NUMBER, TEXT, TIME, Column, check_mapping, is_string
from reclick.data.timestamps import as_times
from reclick.errors import Argument, LogError, SettingError, check_whole
from reclick.logs.assembly.page_join import PageJoin, join_key_parts
from reclick.logs.conversion import with_row_numbers, write_sessions
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import (
    OnError,
    RawBatch,
    Source,
    abbreviate,
    check_on_error,
    open_sources,
)
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.helpers.records import (
    as_plain_text,
    is_invalid_text,
    to_text,
    to_whole_numbers,
)
from reclick.logs.read_summary import MAX_EXAMPLES
from reclick.logs.session_log import SessionLog
from reclick.logs.validation.reasons import NO_PAGE_KEY, NO_POSITION, NOT_READABLE
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location, as_path
from reclick.runtime.outputs import scratch_folder

Bool = npt.NDArray[np.bool_]
EVENT_BYTES = 100  # of one event in memory
ROW_ORDER_NOTE = "clicks without a time, in the order of the rows"
SHOWN_COLUMNS = (
    Column("query", TEXT),
    Column("ads", IDS, required=False),
    Column("ad", TEXT, required=False),
    Column("position", NUMBER, required=False),
    Column("timestamp", TIME, required=False),
    Column("user", TEXT, required=False),
)
CLICK_COLUMNS = {"ad": TEXT, "position": NUMBER}
# Prefix of a column of the clicks whose name differs from that in the impressions.
CLICKS_PREFIX = "clicks."


@check_arguments
def sessions_from_events(
    impressions: Any,
    clicks: Any,
    *,
    on: str | Sequence[str],
    order_by: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_error: OnError = "raise",
    max_ads: int = 100,
    to: Location | None = None,
) -> SessionLog:
    """Make sessions from impressions and clicks, and open them.

    `impressions` has one row per ad shown (query, ad, position) or per page (query, ads). `clicks`
    has one row per click, with its ad, its position or both. Each is a path, a glob, a folder, or a
    pandas, Polars, Arrow or DuckDB table. Both have the columns `on`, which together identify a
    page. `order_by` is the time of a click; without it, clicks are in the order of their rows.
    `columns` maps Reclick's names to yours (`{"ad": "item_id"}`); where the clicks have another
    name, `{"clicks.ad": "sku"}`. `to` keeps the sessions as a Parquet file.

    >>> shown = {"page": [1, 1], "query": ["shoes", "shoes"], "ad": ["a", "b"], "position": [1, 2]}
    >>> clicked = {"page": [1, 1], "ad": ["b", "a"], "second": [3, 9]}
    >>> log = sessions_from_events(shown, clicked, on="page", order_by="second")
    >>> [batch.click.tolist() for batch in log.batches()]
    [[2, 1]]
    """
    check_on_error(on_error)
    max_ads = check_whole("max_ads", max_ads, 1)
    keys = (on,) if isinstance(on, str) else tuple(on)
    if not keys:
        raise SettingError(
            "on", on, "the columns that both tables have and that together identify a page"
        )
    names = _check_names(columns)
    impression_table = _open_impressions(impressions, keys, names)
    click_table = _open_clicks(clicks, keys, order_by, names)
    report = ReadReport()
    name = f"{impression_table.label} and {click_table.label}"
    batches = with_row_numbers(_join_events(impression_table, click_table, report), name)
    return write_sessions(batches, report, name=name, to=to, on_error=on_error, max_ads=max_ads)


@dataclass
class EventRows:
    """Rows of one file or table of events. Bad rows are reported; `table` leaves them out."""

    raw: RawBatch
    file: int  # its index among the files
    where: str
    report: ReadReport
    # Reclick's name of a column -> its name in the rows, where they differ
    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.valid: Bool = np.ones(self.raw.length, np.bool_)
        for number, got in self.raw.unreadable:
            self.report.add_bad_row(NOT_READABLE, self.where, number, got)

    def has(self, name: str) -> bool:
        """Whether the rows have this column."""
        return self.names.get(name, name) in self.raw.columns

    def column(self, name: str) -> pa.Array:
        """A column. A row with text that is not UTF-8 is bad, and null in the column."""
        values = self.raw.columns[self.names.get(name, name)]
        invalid = is_invalid_text(values)
        if not invalid.any():
            return values
        self._mark_bad(NOT_READABLE, invalid, lambda _: f"{name}: not UTF-8")
        return pc.if_else(pa.array(invalid), None, as_plain_text(values))

    def text(self, name: str) -> pa.Array:
        """A column of ids as text; nulls if there is no such column."""
        if self.has(name):
            return to_text(self.column(name))
        return pa.nulls(self.raw.length, pa.string())

    def key(self, names: Sequence[str]) -> pa.Array:
        """The key of each row's page; a row without one is bad."""
        key = join_key_parts([to_text(self.column(name)) for name in names])
        self._mark_bad(
            NO_PAGE_KEY,
            key.is_null(),
            lambda row: ", ".join(abbreviate(self.column(name)[row].as_py()) for name in names),
        )
        return key

    def positions(self, *, required: bool) -> pa.Array:
        """The positions. Rows with one that is no whole number, or missing if required, are bad."""
        if not self.has("position"):
            return pa.nulls(self.raw.length, pa.int64())
        column = self.column("position")
        positions = to_whole_numbers(column)
        not_whole = pc.and_(positions.is_null(), column.is_valid())
        self._mark_bad(NOT_READABLE, not_whole, lambda row: f"position {column[row].as_py()}")
        if required:
            self._mark_bad(NO_POSITION, positions.is_null(), lambda _: "null")
        return positions

    def times(self, name: str) -> pa.Array:
        """The times of a column; a row whose time cannot be parsed is bad."""
        if not self.has(name):
            return pa.nulls(self.raw.length, pa.timestamp("us"))
        column = self.column(name)
        if is_string(column.type) or arrow_types.is_dictionary(column.type):
            column = to_text(column)
        times = as_times(column)
        self._mark_bad(
            NOT_READABLE,
            pc.and_(times.is_null(), column.is_valid()),
            lambda row: f"{name}: not a time: {abbreviate(column[row].as_py())}",
        )
        return times

    def shown_columns(self, key: pa.Array) -> dict[str, pa.Array]:
        """The columns of impressions, one ad per row, as the page join takes them."""
        return {
            "key": key,
            "query": self.text("query"),
            "ad": self.text("ad"),
            "position": self.positions(required=True),
            "time": self.times("timestamp"),
            "user": self.text("user"),
        }

    @cached_property
    def numbers(self) -> Int64:
        """The numbers of the rows in their file, from 1."""
        raw = self.raw
        if raw.row_numbers is not None:
            return raw.row_numbers
        return np.arange(raw.first_row, raw.first_row + raw.length)

    def table(self, columns: dict[str, pa.Array], selection: Bool | None = None) -> pa.Table:
        """The valid rows, or a selection of them, with their file and number."""
        file = pa.array(np.full(self.raw.length, self.file, np.int32))
        table = pa.table({**columns, "file": file, "number": self.numbers})
        is_kept = self.valid if selection is None else self.valid & selection
        return table if is_kept.all() else table.filter(pa.array(is_kept))

    def _mark_bad(self, reason: str, bad: Any, describe: Callable[[int], str]) -> None:
        rows = np.flatnonzero(np.asarray(bad) & self.valid)
        examples = [
            (self.where, int(self.numbers[row]), describe(row))
            for row in rows[:MAX_EXAMPLES].tolist()
        ]
        self.report.add_bad_rows(reason, len(rows), examples)
        self.valid[rows] = False


def estimate_bytes(sources: Iterable[Source]) -> int:
    """Estimate how many bytes events take in memory."""
    return sum(_estimate_source_bytes(source) for source in sources)


@dataclass(frozen=True, slots=True)
class EventTable:
    """Impressions or clicks: opened files or an opened table."""

    name: str  # "impressions" or "clicks"
    sources: list[Source]
    keys: tuple[str, ...]
    # Reclick's name of a column -> its name in the sources, where they differ
    names: dict[str, str] = field(default_factory=dict)

    def read(self, first_file: int, report: ReadReport) -> Iterator[EventRows]:
        """The events in batches; files are numbered from `first_file`."""
        for file, source in enumerate(self.sources, start=first_file):
            for raw in source.read(with_rows=False):
                yield EventRows(raw, file, self.where(source), report, self.names)

    def where(self, source: Source) -> str:
        """The short name used in messages."""
        return source.where if hasattr(source, "path") else self.name

    @property
    def label(self) -> str:
        """The name of the whole table in messages."""
        if len(self.sources) == 1:
            return self.where(self.sources[0])
        return f"{len(self.sources)} files of {self.name}"


def _join_events(
    impressions: EventTable, clicks: EventTable, report: ReadReport
) -> Iterator[pa.RecordBatch]:
    tables = (impressions, clicks)
    files = [LogFile("", table.where(source)) for table in tables for source in table.sources]
    size = estimate_bytes([*impressions.sources, *clicks.sources])
    with (
        scratch_folder() as folder,
        PageJoin(folder, files, size) as join,
    ):
        for rows in impressions.read(0, report):
            if rows.has("ads"):
                join.add("pages", _page_rows(rows, impressions.keys))
            else:
                join.add("shown", rows.table(rows.shown_columns(rows.key(impressions.keys))))
        for rows in clicks.read(len(impressions.sources), report):
            join.add("clicks", _click_rows(rows, clicks.keys))
        yield from join.sessions(report)


def _page_rows(rows: EventRows, keys: Sequence[str]) -> pa.Table:
    columns = {
        "key": rows.key(keys),
        "query": rows.text("query"),
        "time": rows.times("timestamp"),
        "user": rows.text("user"),
    }
    return rows.table({**columns, "ads": rows.column("ads").cast(pa.list_(pa.string()))})


def _click_rows(rows: EventRows, keys: Sequence[str]) -> pa.Table:
    columns = {
        "key": rows.key(keys),
        "ad": rows.text("ad"),
        "position": rows.positions(required=False),
        "time": rows.times("order_by"),
    }
    if not rows.has("order_by"):
        rows.report.add_note(ROW_ORDER_NOTE, rows.raw.length)
    return rows.table(columns)


def _check_names(columns: Mapping[str, str] | None) -> dict[str, str]:
    click_columns = (Column(f"{CLICKS_PREFIX}{name}", kind) for name, kind in CLICK_COLUMNS.items())
    return check_mapping(columns, (*SHOWN_COLUMNS, *click_columns))


def _open_impressions(source: Any, keys: tuple[str, ...], names: dict[str, str]) -> EventTable:
    parts = _name_key_parts(keys)
    mapping = {
        name: source_name
        for name, source_name in names.items()
        if not name.startswith(CLICKS_PREFIX)
    }
    sources = open_sources(source, (*_key_columns(parts), *SHOWN_COLUMNS), {**mapping, **parts})
    table = EventTable("impressions", sources, tuple(parts))
    for each in sources:
        if "ads" not in each.names and not {"ad", "position"} <= each.names.keys():
            raise LogError(
                f"{table.where(each)} has no column ads, and not both ad and position: it shows "
                "no page. Name the right ones with ",
                Argument("columns", ...),
                ".",
            )
    return table


def _open_clicks(
    source: Any, keys: tuple[str, ...], order_by: str | None, names: dict[str, str]
) -> EventTable:
    parts = _name_key_parts(keys) | ({"order_by": order_by} if order_by else {})
    # Each may be missing, so they are read under their names in the table: a name in a mapping must
    # exist.
    source_names = {
        name: names.get(f"{CLICKS_PREFIX}{name}", names.get(name, name)) for name in CLICK_COLUMNS
    }
    columns_to_read = [
        *_key_columns(parts),
        *(Column(source_names[name], kind, required=False) for name, kind in CLICK_COLUMNS.items()),
    ]
    sources = open_sources(source, columns_to_read, parts)
    table = EventTable("clicks", sources, tuple(_name_key_parts(keys)), source_names)
    mapped_names = [
        source_names[name] for name in CLICK_COLUMNS if f"{CLICKS_PREFIX}{name}" in names
    ]
    needs = mapped_names or list(source_names.values())
    for each in sources:
        if not any(name in each.names for name in needs):
            raise LogError(
                f"{table.where(each)} has no column {' or '.join(needs)}: it does not say what "
                "was clicked. Name it with ",
                Argument("columns", ...),
                ".",
            )
    return table


def _name_key_parts(keys: tuple[str, ...]) -> dict[str, str]:
    """The columns of the key, by a name for messages."""
    if len(keys) == 1:
        return {"on": keys[0]}
    return {f"on, part {number}": key for number, key in enumerate(keys, start=1)}


def _key_columns(parts: Mapping[str, str]) -> list[Column]:
    return [Column(part, TIME if part == "order_by" else TEXT) for part in parts]


def _estimate_source_bytes(source: Source) -> int:
    path = getattr(source, "path", None)
    on_disk = 0 if path is None else as_path(path).stat().st_size
    return max(on_disk, (source.num_rows or 0) * EVENT_BYTES)
