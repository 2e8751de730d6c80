"""Read long tables: one row per impression, with its query, position, page, and click."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.schema import FLAG, NUMBER, OUTCOME_COLUMNS, TEXT, TIME, Column, name_column
from reclick.errors import LogError
from reclick.logs.assembly.page_join import PageJoin, first_key_part, join_key_parts
from reclick.logs.events import Bool, EventRows, estimate_bytes
from reclick.logs.files.log_file import BOM, LogFile
from reclick.logs.files.source import Source, open_sources
from reclick.logs.formats.base import (
    NO_CLICK_ORDER_NOTE,
    ColumnMapping,
    LogFormat,
    ReadReport,
)
from reclick.runtime.filesystem import as_path
from reclick.runtime.outputs import scratch_folder

LONG_COLUMNS = (
    Column("session_id", TEXT),
    Column("query", TEXT),
    Column("ad", TEXT),
    Column("position", NUMBER),
    Column("click_time", TIME, required=False),
    Column("clicked", FLAG, required=False),
    Column("timestamp", TIME, required=False),
    Column("user", TEXT, required=False),
    *(Column(name, NUMBER, required=False) for name in OUTCOME_COLUMNS),
)
REQUIRED_NAMES = {column.name for column in LONG_COLUMNS if column.required}
CLICK_NAMES = ("click_time", "clicked")


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(_is_long(_column_names(file)) for file in files)


def _is_long(names: set[str]) -> bool:
    return names >= REQUIRED_NAMES and bool(names.intersection(CLICK_NAMES))


def _column_names(file: LogFile) -> set[str]:
    """The columns of a file, from its first line."""
    if file.is_parquet:
        return set(file.columns)
    line = file.head.removeprefix(BOM).split(b"\n", 1)[0].decode(errors="replace").strip()
    if line.startswith("{"):
        with suppress(ValueError, RecursionError):
            return set(json.loads(line))
        return set()
    with suppress(csv.Error):
        delimiter = next((sign for sign in ",\t;" if sign in line), ",")
        return {name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])}
    return set()


def _read(
    files: list[LogFile], report: ReadReport, columns: ColumnMapping
) -> Iterator[pa.RecordBatch]:
    sources = [_open(file, columns) for file in files]
    with (
        scratch_folder() as folder,
        PageJoin(folder, files, estimate_bytes(sources)) as join,
    ):
        for index, (file, source) in enumerate(zip(files, sources, strict=True)):
            file_bytes = as_path(file.path).stat().st_size
            row_bytes = file_bytes / source.num_rows if source.num_rows else 0.0
            for raw in source.read(with_rows=False):
                _add_rows(EventRows(raw, index, file.where, report), join)
                report.add_records(raw.length + len(raw.unreadable))
                report.advance(int(row_bytes * (raw.length + len(raw.unreadable))))
        for batch in join.sessions(report):
            yield batch.set_column(0, "session_id", first_key_part(batch["session_id"]))


def _open(file: LogFile, columns: ColumnMapping) -> Source:
    if file.member is not None:
        raise LogError(
            f"{file.where} is a table inside an archive, which cannot be read in place. Unpack it."
        )
    (source,) = open_sources(file.path, LONG_COLUMNS, columns)
    if not any(name in source.names for name in CLICK_NAMES):
        raise LogError(
            f"{file.where} has no column click_time and no column clicked. Name one of them with ",
            name_column("clicked"),
            ".",
        )
    return source


def _add_rows(rows: EventRows, join: PageJoin) -> None:
    """Add the impressions and the clicks on them."""
    # A session may hold several queries; a page has one.
    key = join_key_parts([rows.key(["session_id"]), rows.text("query").fill_null("")])
    columns, times = rows.shown_columns(key), rows.times("click_time")
    is_clicked = np.asarray(times.is_valid()) | _clicked_flags(rows)
    if not rows.has("click_time"):
        # The order is unknown; from the top down does not depend on the order of the rows.
        times = columns["position"].cast(pa.timestamp("us"))
        num_clicks = int(np.count_nonzero(is_clicked & rows.valid))
        rows.report.add_note(NO_CLICK_ORDER_NOTE, num_clicks)
    join.add("shown", rows.table(columns))
    click_columns = {name: columns[name] for name in ("key", "ad", "position")}
    outcomes = {name: rows.column(name) for name in OUTCOME_COLUMNS if rows.has(name)}
    join.add("clicks", rows.table({**click_columns, "time": times, **outcomes}, is_clicked))


def _clicked_flags(rows: EventRows) -> Bool:
    if not rows.has("clicked"):
        return np.zeros(rows.raw.length, np.bool_)
    values = rows.column("clicked")
    flags = values if pa.types.is_boolean(values.type) else pc.greater(values.cast(pa.float64()), 0)
    return np.asarray(flags.fill_null(False), np.bool_)


FORMAT = LogFormat(
    name="long",
    title="Long tables",
    about=(
        "A row for an ad shown (session_id, query, ad, position, click_time or clicked, and "
        "dwell_seconds and conversions), in any file type; with clicked alone, no order of clicks."
    ),
    recognises=_recognises,
    read=_read,
    takes_columns=True,
)
