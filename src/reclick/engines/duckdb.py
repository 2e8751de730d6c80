"""The engine that counts and groups in SQL, in limited memory: DuckDB spills to disk.

The statements are in duckdb.sql. The log is first written to a temporary Parquet file, as clean
sessions. Results are arrays over temporary files, so the operating system may page them out: a log
can be counted even if its distinct pairs do not fit in memory.
"""

from __future__ import annotations

import mmap
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.data.outcomes import N_OUTCOMES, OutcomeRows
from reclick.data.ragged import starts_from_sizes
from reclick.engines.base import Log
from reclick.engines.local import LocalEngine
from reclick.engines.local.counter import with_outcomes
from reclick.errors import Argument, SettingError, StoreError
from reclick.logs.assembly.spill import load_sql
from reclick.runtime.arguments import check_arguments
from reclick.runtime.outputs import scratch_folder
from reclick.runtime.parallel import limit_threads, thread_limit
from reclick.runtime.progress import report_progress

RESULT_ROWS = 100_000  # per batch of results
STAGED_ROWS = 20_000  # per row group, which one thread reads
STAGED_SCHEMA = pa.schema(
    {
        "session": pa.int64(),
        "query": pa.string(),
        "ads": pa.list_(pa.string()),
        "clicks": pa.list_(pa.int32()),
        "weight": pa.float64(),
        "outcomes": pa.list_(pa.int8()),  # of each click; null if the log has none
    }
)


class DuckDBEngine(LocalEngine):
    """Counts and groups with DuckDB in limited memory; EM iterates as in `LocalEngine`.

    The counts and grouped sessions are the same as those of `LocalEngine`, to the last bit if
    weights are whole numbers. `memory_limit` is how much memory DuckDB may use, such as "4GB"
    (None: four fifths of the machine); what does not fit is spilled to a temporary folder (TMPDIR).

    >>> engine = DuckDBEngine(memory_limit="500MB", threads=1)
    >>> import reclick as rc
    >>> rc.count({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]}, engine=engine)
    Counts(1 session, 1 query, 2 ads, 2 pairs)
    """

    def __init__(self, *, memory_limit: str | None = None, threads: int | None = None) -> None:
        super().__init__(threads=threads)
        size = r"(?=.*[1-9])\d+(\.\d+)? *[KMGT]i?B"  # and not 0
        is_size = isinstance(memory_limit, str) and re.fullmatch(size, memory_limit, re.IGNORECASE)
        if memory_limit is not None and not is_size:
            raise SettingError("memory_limit", memory_limit, 'a size such as "4GB"', or_none=True)
        self.memory_limit = memory_limit

    def __repr__(self) -> str:
        return f"DuckDBEngine(memory_limit={self.memory_limit!r}, threads={self.threads})"

    @check_arguments
    def count(self, log: Log) -> Counts:
        """The counts of a log."""
        with self._run(log, last="pair") as database:
            return _read_counts(database)

    @check_arguments
    def group(self, log: Log) -> GroupedSessions:
        """The distinct sessions of a log."""
        with self._run(log, last="session_pair") as database:
            counts = _read_counts(database)
            return GroupedSessions(counts, _read_block(database, counts))

    @contextmanager
    def _run(self, log: Log, *, last: str) -> Iterator[_Database]:
        """Yield a database with the tables of a log, up to and including `last`."""
        import duckdb

        with limit_threads(self.threads), scratch_folder() as folder:
            _stage(log, folder / "sessions.parquet")
            config: dict[str, Any] = {
                "temp_directory": str(folder),
                "threads": str(thread_limit(self.threads)),
            }
            if self.memory_limit is not None:
                config["memory_limit"] = self.memory_limit
            try:
                with duckdb.connect(config=config) as connection:
                    database = _Database(connection, folder)
                    database.create_tables(last)
                    yield database
            except duckdb.OutOfMemoryException as error:
                raise StoreError(
                    f"{log.name}: DuckDB needs more memory ({str(error).splitlines()[0]}). Raise ",
                    Argument("memory_limit"),
                    ", or let fewer ",
                    Argument("threads"),
                    " work at once.",
                ) from error
            except duckdb.IOException as error:
                raise StoreError(
                    f"{folder}: DuckDB cannot write there ({str(error).splitlines()[0]}). "
                    "Free some space, or give another folder (TMPDIR)."
                ) from error


def _stage(log: Log, path: Path) -> None:
    """Write the clean sessions of a log to a Parquet file."""
    sessions = 0
    with pq.ParquetWriter(path, STAGED_SCHEMA, compression="lz4") as writer:
        for batch in log.batches():
            writer.write_batch(_as_rows(batch, sessions), row_group_size=STAGED_ROWS)
            sessions += len(batch)
    log.require_rows()


def _as_rows(batch: SessionBatch, first: int) -> pa.RecordBatch:
    ads = pa.ListArray.from_arrays(batch.page.astype(np.int32), batch.ads.take(pa.array(batch.ad)))
    clicks = pa.ListArray.from_arrays(batch.clicks.astype(np.int32), pa.array(batch.click))
    columns = [
        pa.array(np.arange(first, first + len(batch))),
        batch.queries.take(pa.array(batch.query)),
        ads,
        clicks,
        pa.array(np.ones(len(batch)) if batch.weight is None else batch.weight),
        pa.nulls(len(batch))
        if batch.outcomes is None
        else pa.ListArray.from_arrays(clicks.offsets, pa.array(batch.outcomes.outcome)),
    ]
    casts = zip(columns, STAGED_SCHEMA.types, strict=True)
    return pa.RecordBatch.from_arrays(
        [column.cast(kind) for column, kind in casts], schema=STAGED_SCHEMA
    )


def _statements() -> Mapping[str, str]:
    """The statements of duckdb.sql by name."""
    return load_sql("duckdb.sql", "reclick.engines")


class _Database:
    """A connection with the staged log, whose results are read as arrays over files."""

    def __init__(self, connection: Any, folder: Path) -> None:
        self._connection, self._folder = connection, folder
        staged = str(folder / "sessions.parquet").replace("'", "''")
        connection.execute(f"CREATE VIEW session AS FROM read_parquet('{staged}')")

    def create_tables(self, last: str) -> None:
        """Run the statements up to and including that of the table `last`."""
        names = list(_statements())
        names = names[: names.index(last) + 1]
        for n_tables, name in enumerate(names, 1):
            self._connection.execute(_statements()[name])
            report_progress("tables", n_tables, len(names))

    def arrays(self, query: str, *types: npt.DTypeLike) -> list[npt.NDArray[Any]]:
        """Return the columns of a result as arrays."""
        columns = [_FileArray(self._folder, dtype) for dtype in types]
        for batch in self._batches(query):
            for column, values in zip(columns, batch.columns, strict=True):
                column.append(values.to_numpy(zero_copy_only=False))
        return [column.finish() for column in columns]

    def strings(self, query: str) -> pa.LargeStringArray:
        """Return the strings of a result with one column."""
        sizes, data = _FileArray(self._folder, np.int32), _FileArray(self._folder, np.uint8)
        for batch in self._batches(query):
            strings = batch.column(0).cast(pa.large_string())
            _, offsets, content = strings.buffers()
            starts = np.frombuffer(offsets, np.int64)[strings.offset :][: len(strings) + 1]
            sizes.append(np.diff(starts))
            data.append(np.frombuffer(content or b"", np.uint8)[starts[0] : starts[-1]])
        starts = starts_from_sizes(sizes.finish())
        buffers = pa.py_buffer(starts), pa.py_buffer(data.finish())
        return pa.LargeStringArray.from_buffers(len(starts) - 1, *buffers)

    def _batches(self, query: str) -> Iterator[pa.RecordBatch]:
        yield from self._connection.sql(query).to_arrow_reader(RESULT_ROWS)


class _FileArray:
    """An array that grows in a temporary file, and is then mapped into memory."""

    def __init__(self, folder: Path, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def append(self, values: npt.NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(values, self._dtype).data)

    def finish(self) -> npt.NDArray[Any]:
        with self._file as file:
            if file.tell() == 0:
                return np.zeros(0, self._dtype)
            file.flush()
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), self._dtype)


def _read_counts(database: _Database) -> Counts:
    pair_query, pair_ad, impressions, clicks, last_clicks = database.arrays(
        "FROM pair", np.int32, np.int32, *[np.float64] * 3
    )
    visit_query, visit_sequence, sessions = database.arrays(
        "FROM visit", np.int32, np.int32, np.float64
    )
    (sizes,) = database.arrays("SELECT len(clicks) FROM sequence", np.int64)
    (positions,) = database.arrays("SELECT unnest(clicks) FROM sequence", np.int32)
    ads, n_clicks, weight = database.arrays("FROM length", np.int64, np.int64, np.float64)
    lengths = np.zeros((ads.max(initial=0) + 1, n_clicks.max(initial=0) + 1))
    lengths[ads, n_clicks] = weight
    counts = Counts(
        queries=database.strings("FROM query"),
        ads=database.strings("FROM ad"),
        pair_query=pair_query,
        pair_ad=pair_ad,
        impressions=impressions,
        clicks=clicks,
        last_clicks=last_clicks,
        sequence_starts=starts_from_sizes(sizes),
        sequence_clicks=positions,
        visit_query=visit_query,
        visit_sequence=visit_sequence,
        sessions=sessions,
        lengths=lengths,
    )
    pairs, visits = (
        OutcomeRows(*database.arrays(f"FROM {name}", np.int32, np.int32, np.int8, np.float64))
        for name in ("pair_outcome", "visit_outcome")
    )
    outcome, total = database.arrays("FROM earlier_outcome", np.int64, np.float64)
    earlier = np.bincount(outcome, total, N_OUTCOMES).astype(np.float64)
    return with_outcomes(counts, pairs, visits, earlier)


def _read_block(database: _Database, counts: Counts) -> QueryBlock:
    ads, n_clicks, weight, outcome = database.arrays(
        "SELECT len(ads), len(clicks), weight, outcome FROM distinct_session",
        *(np.int32, np.int32, np.float64, np.int8),
    )
    (click,) = database.arrays("SELECT unnest(clicks) FROM distinct_session", np.int32)
    (pair,) = database.arrays("FROM session_pair", np.int32)
    page, clicks = starts_from_sizes(ads), starts_from_sizes(n_clicks)
    outcomes = outcome if outcome.any() else None
    return QueryBlock(0, 0, counts.pair_query, pair, page, click, clicks, weight, outcomes)
