"""Clean a whole log: users who do too much in an hour, and pages that were seen again. The log may be larger than memory.

DuckDB holds a narrow row for each session (who, when, how much) and spills it to disk; the sessions themselves are read again, batch by batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as kind_of

from reclick.data.schema import is_number, is_string, is_text
from reclick.errors import LogError, clear_write_errors
from reclick.logs.assembly import cleaning_statements as sql
from reclick.logs.assembly.duckdb_connection import bounded_engine, raise_clearly
from reclick.logs.cleaning import replace_column
from reclick.logs.timestamps import as_times, real_times
from reclick.logs.validation.encode import encode_number
from reclick.runtime.atomic_write import write_files

if TYPE_CHECKING:
    from reclick.data.batch import Int64
    from reclick.logs.cleaning import Cleaning
    from reclick.logs.formats.base import Found

BATCH = 50_000  # sessions
ALL_ADS = 2**31 - 1
LOOKS = {"query": pa.string(), "ads": pa.list_(pa.string())}
WAY_OUT = "Leave out max_pages_per_hour, max_clicks_per_hour and reload_seconds."


def cleaned(path: Path, to: Path, cleaning: Cleaning, found: Found) -> None:
    """Write the sessions of a Parquet file anew, without those of bots, and with pages seen again made one; the order of rows stays.

    The steps that shorten sessions come last, and are taken here too. Rows without a user or a time are kept, and counted.
    """
    with (
        clear_write_errors(to.parent),
        _engine(to.parent) as engine,
        pq.ParquetFile(path, pre_buffer=False) as file,
    ):
        _check_columns(file.schema_arrow)
        whole = _WholeLog(engine, file, cleaning, found)
        whole.add_pages()
        whole.find_bots()
        whole.find_reloads()
        write_files(to.parent, {to.name: whole.write})


@dataclass(frozen=True, slots=True)
class _WholeLog:
    """A log and what is known of all its rows."""

    engine: Any
    file: pq.ParquetFile
    cleaning: Cleaning
    found: Found

    def add_pages(self) -> None:
        """Put a narrow row into `page` for each session that can be judged."""
        self.engine.execute(sql.TABLES)
        for start, batch in self._batches():
            self._given(
                sql.ADD_PAGES,
                _judged(batch, np.arange(start, start + batch.num_rows)),
                first=self.cleaning.first or ALL_ADS,
            )
        judged = self._one("SELECT count(*) FROM page")
        rows = self.file.metadata.num_rows
        if rows and not judged:
            raise LogError(
                f"No session of the log has both a user and a time, by which bots and reloads are told. {WAY_OUT}"
            )
        self.found.note("session without user or time, not judged", rows - judged)

    def find_bots(self) -> None:
        """Find the users who do too much in an hour, and their rows."""
        if not self.cleaning.finds_bots:
            return
        most = {
            "pages": self.cleaning.max_pages_per_hour,
            "clicks": self.cleaning.max_clicks_per_hour,
        }
        limits = {name: math.inf if limit is None else float(limit) for name, limit in most.items()}
        self.engine.execute(sql.FIND_SUSPECTS, limits)
        self.engine.execute(sql.FIND_BOTS, limits)
        self.engine.execute(sql.FIND_BOT_ROWS)
        told = " or ".join(f"{limit:,} {name}" for name, limit in most.items() if limit is not None)
        self.found.note(f"user over {told} an hour", self._one("SELECT count(*) FROM bot"))
        self.found.note(
            "session of a user over the limit, removed", self._one("SELECT count(*) FROM bot_row")
        )

    def find_reloads(self) -> None:
        """Find the pages that were seen again, and the clicks to move to where they were first seen."""
        seconds = self.cleaning.reload_seconds
        if seconds is None:
            return
        with self.engine.cursor() as sorted_pages:
            for chained in seen_again(
                sorted_pages.sql(sql.BY_LOOK).to_arrow_reader(BATCH), round(seconds * 1000)
            ):
                self._given(sql.ADD_CHAINED, chained)
        self.engine.execute(sql.ADD_AGAIN)
        for start, batch in self._batches():
            places = self._rows("again", start, batch.num_rows)
            if len(places):
                self._given(sql.ADD_MOVED, _judged(batch.take(pa.array(places)), places + start))
        self.engine.execute(sql.ADD_MORE)
        self.found.note(
            f"page seen again within {seconds:g} s, removed",
            self._one("SELECT count(*) FROM again"),
        )
        self.found.note(
            "click moved to the page seen first",
            self._one("SELECT coalesce(sum(many), 0) FROM more"),
        )

    def write(self, path: Path) -> None:
        """Write what is left, a row group for each of the file."""
        start = 0
        with pq.ParquetWriter(path, self.file.schema_arrow, compression="zstd") as writer:
            for group in range(self.file.num_row_groups):
                kept = []
                for batch in self.file.iter_batches(BATCH, row_groups=[group]):
                    kept.append(self._kept(start, batch))
                    start += batch.num_rows
                rows = pa.Table.from_batches(kept, self.file.schema_arrow)
                if len(rows):
                    writer.write_table(rows, row_group_size=len(rows))

    def _kept(self, start: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        keep = np.ones(batch.num_rows, np.bool_)
        for table in ("bot_row", "again"):
            keep[self._rows(table, start, batch.num_rows)] = False
        more = self.engine.sql(
            'SELECT "row" - $start AS place, clicks, many FROM more WHERE "row" BETWEEN $start AND $last',
            params={"start": start, "last": start + batch.num_rows - 1},
        ).to_arrow_table()
        return self.cleaning.shorten(
            self._with_clicks(batch, more).filter(pa.array(keep)), self.found
        )

    def _with_clicks(self, batch: pa.RecordBatch, more: pa.Table) -> pa.RecordBatch:
        """Add the clicks of pages seen again to those of the first; a position clicked again is kept once, at its first time."""
        if not len(more):
            return batch
        places, clicks = more["place"].to_numpy(), batch.column("clicks")
        own = [each or [] for each in clicks.take(pa.array(places)).to_pylist()]
        once = [
            list(dict.fromkeys(before + after))
            for before, after in zip(own, more["clicks"].to_pylist(), strict=True)
        ]
        given = sum(map(len, own)) + pc.sum(more["many"]).as_py()
        self.found.note("repeated click on a page seen again", given - sum(map(len, once)))
        source = np.arange(batch.num_rows)
        source[places] = batch.num_rows + np.arange(len(places))
        return replace_column(
            batch,
            "clicks",
            pa.concat_arrays([clicks, pa.array(once, clicks.type)]).take(pa.array(source)),
        )

    def _batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The columns that are judged, and the number of the first row, from 0."""
        looks = () if self.cleaning.reload_seconds is None else tuple(LOOKS)
        wanted = [
            name
            for name in ("user", "timestamp", "clicks", "weight", *looks)
            if name in self.file.schema_arrow.names
        ]
        start = 0
        for batch in self.file.iter_batches(BATCH, columns=wanted):
            yield start, batch
            start += batch.num_rows

    def _given(self, statement: str, rows: pa.Table, **values: int) -> None:
        """Run a statement over rows, which it calls `given`."""
        self.engine.register("given", rows)
        self.engine.execute(statement, values)
        self.engine.unregister("given")

    def _rows(self, table: str, start: int, many: int) -> Int64:
        """Which of these rows of the log are in a table, from 0."""
        query = f'SELECT "row" - $start AS place FROM {table} WHERE "row" BETWEEN $start AND $last ORDER BY place'  # noqa: S608, a name of ours
        found = self.engine.sql(
            query, params={"start": start, "last": start + many - 1}
        ).to_arrow_table()
        return np.asarray(found["place"], np.int64)

    def _one(self, query: str) -> int:
        return int(self.engine.execute(query).fetchall()[0][0])


def seen_again(pages: Iterable[pa.RecordBatch], within: int) -> Iterator[pa.Table]:
    """The pages that were seen again, of pages in the order of look, text and time, with the row of the first of their chain.

    A page opens a chain when no page like it came soon enough before; the others of the chain are that page seen again.
    """
    last, opener = (
        [np.zeros(1, np.uint64), np.zeros(1, np.uint64), np.zeros(1, np.int64)],
        -1,
    )  # look, text and time of the page before
    for page in pages:
        look, text, ms = (
            np.concatenate(pair)
            for pair in zip(last, (page["look"], page["text"], page["ms"]), strict=True)
        )
        opens = np.concatenate(
            [[True], (look[1:] != look[:-1]) | (text[1:] != text[:-1]) | (np.diff(ms) > within)]
        )
        rows = np.concatenate([[opener], page["row"]])
        openers = rows[np.maximum.accumulate(np.where(opens, np.arange(len(rows)), 0))]
        yield pa.table({"row": rows[~opens], "opener": openers[~opens]})
        last, opener = [look[-1:], text[-1:], ms[-1:]], int(openers[-1])


@contextmanager
def _engine(folder: Path) -> Iterator[Any]:
    """An engine that spills to a hidden folder in this one, which has room for a log."""
    with (
        TemporaryDirectory(prefix=".reclick-", dir=folder) as spilled,
        closing(bounded_engine(Path(spilled))) as engine,
    ):
        try:
            yield engine
        except Exception as error:
            raise_clearly(error, folder)
            raise


def _check_columns(schema: pa.Schema) -> None:
    for column in ("user", "timestamp"):
        if column not in schema.names:
            raise LogError(
                f"The log has no column {column}, by which bots and reloads are told. It has {', '.join(schema.names)}. {WAY_OUT}"
            )
    user, time = schema.field("user").type, schema.field("timestamp").type
    if not is_text(user):
        raise LogError(f"user: expected text or whole-number ids, got {user}. {WAY_OUT}")
    if not (
        is_string(time) or is_number(time) or kind_of.is_timestamp(time) or kind_of.is_date(time)
    ):
        raise LogError(f"timestamp: expected times, got {time}. {WAY_OUT}")


def _judged(batch: pa.RecordBatch, rows: Int64) -> pa.Table:
    """The rows that have a user and a time, as the engine takes them."""
    weight = (
        encode_number(batch.column("weight"))
        if "weight" in batch.schema.names
        else np.ones(batch.num_rows)
    )
    users = batch.column("user")
    columns = {
        "row": pa.array(rows),
        "user": (users.dictionary_decode() if kind_of.is_dictionary(users.type) else users).cast(
            pa.string()
        ),
        "ms": real_times(as_times(batch.column("timestamp"))).cast(pa.int64()),
        "weight": pa.array(np.where(np.isfinite(weight) & (weight > 0), weight, 0.0)),
        "clicks": batch.column("clicks"),
        **{
            name: batch.column(name)
            if name in batch.schema.names
            else pa.nulls(batch.num_rows, kind)
            for name, kind in LOOKS.items()
        },
    }
    known = pc.and_(
        pc.is_valid(columns["ms"]), pc.fill_null(pc.not_equal(columns["user"], ""), False)
    )
    return pa.table(columns).filter(known)
