"""Long tables: one row for each ad shown, with its query, its position, the page it stood on, and whether or when it was clicked."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.schema import FLAG, NUMBER, TEXT, TIME, Column
from reclick.errors import LogError
from reclick.logs.assembly.event_rows import (
    Bools,
    EventRows,
    events_size,
    first_part,
    joined,
    shown_columns,
)
from reclick.logs.files.archive import LogFile
from reclick.logs.files.discover import open_sources
from reclick.logs.files.source import Source
from reclick.logs.formats.base import Columns, Format, Found
from reclick.logs.formats.helpers.padded_arrays import NO_ORDER

if TYPE_CHECKING:
    from reclick.logs.assembly.page_join import PageJoin

COLUMNS = (
    Column("session_id", TEXT),
    Column("query", TEXT),
    Column("ad", TEXT),
    Column("position", NUMBER),
    Column("click_time", TIME, required=False),
    Column("clicked", FLAG, required=False),
    Column("timestamp", TIME, required=False),
    Column("user", TEXT, required=False),
)
NEEDED = {column.name for column in COLUMNS if column.required}
CLICKED = ("click_time", "clicked")


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(_is_long(_names(file)) for file in files)


def _is_long(names: set[str]) -> bool:
    return names >= NEEDED and bool(names.intersection(CLICKED))


def _names(file: LogFile) -> set[str]:
    """The columns of a file, by its first line."""
    if file.is_parquet:
        return set(file.columns)
    line = (
        file.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode(errors="replace").strip()
    )
    if line.startswith("{"):
        with suppress(ValueError, RecursionError):
            return set(json.loads(line))
        return set()
    with suppress(csv.Error):
        delimiter = next((sign for sign in ",\t;" if sign in line), ",")
        return {name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])}
    return set()


def _read(files: list[LogFile], found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    from reclick.logs.assembly.page_join import PageJoin

    sources = [_open(file, columns) for file in files]
    with (
        TemporaryDirectory(prefix="reclick-") as folder,
        PageJoin(Path(folder), files, events_size(sources)) as join,
    ):
        for place, (file, source) in enumerate(zip(files, sources, strict=True)):
            share = Path(file.path).stat().st_size / source.num_rows if source.num_rows else 0.0
            for raw in source.read(with_rows=False):
                _add_rows(EventRows(raw, place, file.where, found), join)
                found.advance(int(share * raw.total))
        for batch in join.sessions(found):
            yield batch.set_column(0, "session_id", first_part(batch["session_id"]))


def _open(file: LogFile, columns: Columns) -> Source:
    if file.member is not None:
        raise LogError(
            f"{file.where} is a table inside an archive, which cannot be read in place. Unpack it."
        )
    (source,) = open_sources(file.path, COLUMNS, columns)
    if not any(name in source.names for name in CLICKED):
        raise LogError(
            f'{file.where} has no column click_time and no column clicked. Name one of them with columns={{"clicked": ...}} '
            "(on the command line --column clicked=...)."
        )
    return source


def _add_rows(rows: EventRows, join: PageJoin) -> None:
    """Add what was shown, and of it what was clicked."""
    # A session may hold several queries; a page has one.
    key = joined([rows.key(["session_id"]), rows.text("query").fill_null("")])
    columns, times = shown_columns(rows, key), rows.times("click_time")
    clicked = np.asarray(times.is_valid()) | _flags(rows)
    if not rows.has("click_time"):
        # Nobody knows the order; from the top down is one that does not hang on the order of the rows.
        times = columns["position"].cast(pa.timestamp("us"))
        rows.found.note(NO_ORDER, int(np.count_nonzero(clicked & rows.sound)))
    join.add("shown", rows.table(columns))
    join.add(
        "clicks",
        rows.table(
            {**{name: columns[name] for name in ("key", "ad", "position")}, "time": times}, clicked
        ),
    )


def _flags(rows: EventRows) -> Bools:
    if not rows.has("clicked"):
        return np.zeros(rows.raw.length, np.bool_)
    values = rows.column("clicked")
    flags = values if pa.types.is_boolean(values.type) else pc.greater(values.cast(pa.float64()), 0)
    return np.asarray(flags.fill_null(False), np.bool_)


LONG = Format(
    name="long",
    title="Long tables",
    about="A row for an ad shown (session_id, query, ad, position, click_time or clicked), in any file type; with clicked alone, no order of clicks.",
    recognises=_recognises,
    read=_read,
    takes_columns=True,
)
