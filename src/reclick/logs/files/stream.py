"""Read Arrow streams: scans, which can be run again, and streams, which can be read only once.

A scan (a DuckDB relation, an Arrow dataset, a lake table) is run at every pass. A stream (a
RecordBatchReader, an ADBC cursor, anything with `__arrow_c_stream__`) is copied to a temporary
Parquet file during the first pass, unless only one pass is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from weakref import finalize

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as arrow_types

from reclick.data.arrow_checks import check_batch
from reclick.data.schema import Column, check_types, find_columns, is_list
from reclick.errors import Argument, LogError, explain_write_errors
from reclick.logs.files.source import MAX_BATCH_ROWS, TARGET_BATCH_BYTES, RawBatch
from reclick.runtime.outputs import scratch_folder

logger = logging.getLogger("reclick")
TABLE_NAME = "table"  # the name of a table in messages
SCAN_ROWS = MAX_BATCH_ROWS // 4  # per batch, if the scan accepts a batch size

OpenReader = Callable[[list[str] | None], Any]
"""Called with the columns to read, None for all; returns a RecordBatchReader of a new pass."""


@dataclass(frozen=True, slots=True)
class ScanSource:
    """A table that is scanned at every pass."""

    open_reader: OpenReader = field(repr=False)
    names: dict[str, str]
    where: str
    num_rows: int | None = None

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in the order of the scan."""
        columns = None if with_rows else list(dict.fromkeys(self.names.values()))
        with explain_failure(self.where), closing(self.open_reader(columns)) as reader:
            yield from number_batches(reader, self.names, self.where, with_rows=with_rows)


@dataclass(frozen=True, slots=True)
class SparkFrameSource:
    """A Spark DataFrame, which is read only by the tasks of a `SparkEngine`."""

    frame: Any = field(repr=False)
    names: dict[str, str]
    where: str = "Spark DataFrame"
    num_rows: int | None = None

    def without_frame(self) -> SparkFrameSource:
        """The source without the frame, to send to a task, which gets rows of the frame."""
        return SparkFrameSource(None, self.names, self.where)

    def read_part(self, batches: Iterator[pa.RecordBatch], where: str) -> ScanSource:
        """The rows that a task gets, as a source."""
        reader = _BatchReader(batches)
        return ScanSource(lambda _: reader, self.names, where)

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Raise an error: reading would collect all rows in this process."""
        raise LogError(
            "A Spark DataFrame is read by Spark's tasks only. To fit, count, describe, predict or "
            "evaluate, give rc.SparkEngine(session) as ",
            Argument("engine"),
            ". For all else, write the frame to Parquet files and give those.",
        )


class _BatchReader:
    """Batches with the `close` of a reader."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def close(self) -> None:
        """Do nothing: no resource is open."""


class StreamSource:
    """A stream of Arrow batches, which can be read once; further passes read a copy."""

    num_rows: int | None = None

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        names: dict[str, str],
        where: str = TABLE_NAME,
    ) -> None:
        self.names, self.where = names, where
        self._schema, self._batches = schema, batches
        self._copy: _StreamCopy | None = None
        self._keeps_copy, self._is_started = True, False

    def keep_no_copy(self) -> None:
        """Write no copy: there will be one pass only."""
        self._keeps_copy = False

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in the order of the stream; passes after the first read the copy."""
        if self._is_started:
            batches = self._read_copy(with_rows)
        else:
            self._is_started = True
            batches = self._copy_while_reading() if self._keeps_copy else self._batches
        with explain_failure(self.where):
            yield from number_batches(batches, self.names, self.where, with_rows=with_rows)

    def _copy_while_reading(self) -> Iterator[pa.RecordBatch]:
        logger.info(
            "%s can be read once: a temporary copy is written, for further passes.", self.where
        )
        self._copy = _StreamCopy(self._schema)
        for batch in self._batches:
            check_batch(batch, self.where)
            self._copy.write(batch)
            yield batch

    def _read_copy(self, with_rows: bool) -> Iterator[pa.RecordBatch]:
        if self._copy is None:
            raise LogError(
                f"{self.where} was read already, and a stream can be read only once. Open it with "
                "rc.read_sessions, which keeps a copy, or give a new stream."
            )
        for batch in self._batches:  # that an interrupted first pass left unread
            check_batch(batch, self.where)
            self._copy.write(batch)
        yield from self._copy.read(None if with_rows else list(self.names.values()))


class _StreamCopy:
    """A Parquet file in a temporary folder, which is removed with this object."""

    def __init__(self, schema: pa.Schema) -> None:
        stack = ExitStack()
        folder = stack.enter_context(scratch_folder())
        finalize(self, stack.close)
        self._path, self._is_open = folder / "stream.parquet", True
        self._schema = pa.schema([each.with_type(_storable(each.type)) for each in schema])
        self._writer = pq.ParquetWriter(self._path, self._schema, compression="lz4")

    def write(self, batch: pa.RecordBatch) -> None:
        with explain_write_errors(self._path, "Free some space, or give another folder (TMPDIR)."):
            self._writer.write_batch(batch.cast(self._schema))

    def read(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        if self._is_open:
            self._writer.close()
            self._is_open = False
        with pq.ParquetFile(self._path, pre_buffer=False) as file:
            yield from file.iter_batches(SCAN_ROWS, columns=columns)


def open_scan(
    schema: pa.Schema,
    open_reader: OpenReader,
    columns_to_read: Sequence[Column],
    mapping: dict[str, str],
    where: str = TABLE_NAME,
) -> ScanSource:
    """Open a scan, after a check of its columns."""
    return ScanSource(open_reader, match_columns(schema, columns_to_read, mapping, where), where)


def open_dataset(
    dataset: Any,
    columns_to_read: Sequence[Column],
    mapping: dict[str, str],
    where: str = TABLE_NAME,
) -> ScanSource:
    """Open an Arrow dataset; its files are read one after another."""

    def open_reader(columns: list[str] | None) -> Any:
        limits = {"batch_size": SCAN_ROWS, "batch_readahead": 2, "fragment_readahead": 1}
        return dataset.scanner(columns=columns, **limits).to_reader()

    return open_scan(dataset.schema, open_reader, columns_to_read, mapping, where)


def open_spark_frame(
    frame: Any, columns_to_read: Sequence[Column], mapping: dict[str, str]
) -> SparkFrameSource:
    """Open a Spark DataFrame, after a check of its columns. Nothing is computed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    names = match_columns(
        to_arrow_schema(frame.schema), columns_to_read, mapping, "the Spark DataFrame"
    )
    return SparkFrameSource(frame, names)


def open_stream(
    source: Any, columns_to_read: Sequence[Column], mapping: dict[str, str], where: str = TABLE_NAME
) -> StreamSource | None:
    """Open a stream; None for anything else. Of an iterator, only the first part is read."""
    schema_and_batches = _start_stream(source)
    if schema_and_batches is None:
        return None
    schema, batches = schema_and_batches
    return StreamSource(
        schema, batches, match_columns(schema, columns_to_read, mapping, where), where
    )


def _start_stream(source: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
    if isinstance(source, pa.RecordBatchReader):
        return source.schema, iter(source)
    if hasattr(source, "fetch_record_batch"):  # an ADBC cursor
        return _start_stream(source.fetch_record_batch())
    if hasattr(source, "to_reader") and hasattr(source, "projected_schema"):  # an Arrow scanner
        return _start_stream(source.to_reader())
    if hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__len__"):
        return _start_stream(pa.RecordBatchReader.from_stream(source))
    if isinstance(source, Iterator):
        return _start_iterator(source)
    return None


def _start_iterator(parts: Iterator[Any]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Iterate over batches or tables, as the clients of BigQuery and Snowflake return them."""
    first = next(parts, None)
    if not isinstance(first, pa.RecordBatch | pa.Table):
        if first is None:
            raise LogError(
                "Cannot read an iterator that yields nothing. If it was read already, give a new "
                "one."
            )
        got = f"a {type(first).__name__}"
        raise LogError(f"Cannot read an iterator that gives {got}. Let it give Arrow batches.")
    return first.schema, _to_batches(chain([first], parts), first.schema)


def _to_batches(parts: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for part in parts:
        if part.schema.names != schema.names:
            raise LogError(
                f"A batch has the columns {', '.join(part.schema.names)}, and those before it have "
                f"{', '.join(schema.names)}. Give batches of one table."
            )
        yield from part.to_batches() if isinstance(part, pa.Table) else [part]


def number_batches(
    batches: Iterable[pa.RecordBatch], names: dict[str, str], where: str, *, with_rows: bool
) -> Iterator[RawBatch]:
    """Yield Arrow batches, large ones in slices, with the number of their first row.

    Their indices are checked before any of their values is used.
    """
    first = 1
    for batch in chain.from_iterable(_slice_batch(batch, where) for batch in batches):
        columns = {name: batch.column(source_name) for name, source_name in names.items()}
        yield RawBatch(where, first, columns, batch.num_rows, rows=batch if with_rows else None)
        first += batch.num_rows


def _slice_batch(batch: pa.RecordBatch, where: str) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    check_batch(batch, where)
    size = TARGET_BATCH_BYTES * batch.num_rows / max(batch.nbytes, 1)
    step = int(min(MAX_BATCH_ROWS, max(16, size)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def match_columns(
    schema: pa.Schema, columns_to_read: Sequence[Column], mapping: dict[str, str], where: str
) -> dict[str, str]:
    """The names in a schema of the columns to read, after a check of their types."""
    name = f"the {where}" if where == TABLE_NAME else where
    names = find_columns(schema.names, columns_to_read, mapping, name)
    check_types(schema, columns_to_read, names, name)
    return names


def _storable(kind: pa.DataType) -> pa.DataType:
    """A type that Parquet can store, for the same values."""
    if is_list(kind):
        return pa.large_list(_storable(kind.value_type))
    if arrow_types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if arrow_types.is_binary_view(kind) else kind


ENGINE_ERRORS = (pa.ArrowException, OSError)


@contextmanager
def explain_failure(where: str) -> Iterator[None]:
    """Turn errors from the computation of a table, as by DuckDB or Polars, into a LogError."""
    try:
        yield
    except LogError:
        raise
    except Exception as error:
        library = type(error).__module__.split(".")[0].lstrip("_")
        if library not in {"duckdb", "polars"} and not isinstance(error, ENGINE_ERRORS):
            raise
        name = f"The {where}" if where == TABLE_NAME else where
        raise LogError(f"{name} could not be read to the end: {error}.") from error
