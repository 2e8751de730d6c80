"""Building blocks for logs larger than memory: partitions of rows on disk, and DuckDB over them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from reclick.errors import StoreError
from reclick.logs.formats.base import ReadReport
from reclick.runtime.filesystem import Location, as_path
from reclick.runtime.parallel import thread_limit

MEMORY_LIMIT = "384MB"
MAX_THREADS = 4  # each needs memory of its own
BUFFER_ROWS = 400_000  # collected before they are partitioned and written to disk
BUFFER_BYTES = 32 << 20
BUFFER_TABLES = 64  # small tables fragment the memory, so this many are merged
PARTITION_BYTES = 96 << 20  # of the log
COMPRESSED_SUFFIXES = (".gz", ".tgz", ".zip", ".parquet", ".pq")
COMPRESSION_RATIO = 8  # of such files, roughly
# The origin of a row as one number: its file, and in the lower bits its row number.
ROW_NUMBER_BITS = 40

SQL_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
SELECT_PARTITION = "SELECT (hash(key) % $partitions)::USMALLINT AS partition FROM keys"


@cache
def load_sql(name: str, package: str = "reclick.logs.assembly") -> Mapping[str, str]:
    """The statements of a .sql file by their names; each begins with a line `-- name: …`.

    >>> list(load_sql("page_join.sql"))[:3]
    ['first_pages', 'clicks_on_pages', 'conversions_of_clicks']
    """
    _, *parts = SQL_NAME.split(files(package).joinpath(name).read_text("utf-8"))
    return {
        statement: text.strip().removesuffix(";")
        for statement, text in zip(parts[::2], parts[1::2], strict=True)
    }


def connect(folder: Path) -> Any:
    """Connect to DuckDB, with a memory limit and spilling to the folder."""
    import duckdb

    return duckdb.connect(
        config={
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(folder),
            "preserve_insertion_order": "false",
            "threads": str(min(MAX_THREADS, thread_limit())),
        }
    )


def translate_error(error: BaseException | None, folder: Path) -> None:
    """Turn DuckDB's errors of memory or disk into a StoreError; ignore other errors.

    Ctrl-C during a statement, which DuckDB reports as a RuntimeError, becomes a KeyboardInterrupt.
    """
    import duckdb

    if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
        raise KeyboardInterrupt from error
    if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
        problem = str(error).splitlines()[0]
        raise StoreError(
            f"{folder}: the log cannot be sorted there ({problem}). "
            "Free some space, or give another folder (TMPDIR)."
        ) from error


def estimate_log_bytes(paths: set[Location]) -> int:
    """Estimate the number of decompressed bytes of files."""
    return sum(
        as_path(path).stat().st_size
        * (COMPRESSION_RATIO if as_path(path).name.lower().endswith(COMPRESSED_SUFFIXES) else 1)
        for path in paths
    )


def count_partitions(log_bytes: int) -> int:
    """The number of partitions for a log of this size."""
    return max(1, log_bytes // PARTITION_BYTES)


class SpilledPartitions:
    """Rows on disk, partitioned by their column `key`.

    Each flush writes one file, with one record batch per partition, so that few files are open even
    with many partitions.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema, partitions: int) -> None:
        self.folder, self.name, self.schema, self.partitions = folder, name, schema, partitions
        self._buffer: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._files: list[str] = []

    def add(self, table: pa.Table) -> None:
        """Add rows of the schema."""
        if not table.num_rows:
            return
        self._buffer.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= BUFFER_ROWS or self._bytes >= BUFFER_BYTES:
            self.flush()
        elif len(self._buffer) >= BUFFER_TABLES:
            self._buffer = [pa.concat_tables(self._buffer).combine_chunks()]

    def flush(self) -> None:
        """Write the collected rows; must be called before the first partition is read."""
        if not self._rows:
            return
        table = pa.concat_tables(self._buffer)
        self._buffer, self._rows, self._bytes = [], 0, 0
        path = str(self.folder / f"{self.name}-{len(self._files)}.arrow")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(path, self.schema, options=options) as writer:
            for batch in self._partition(table):
                writer.write_batch(batch)
        self._files.append(path)

    def read(self, partition: int) -> pa.Table:
        """The rows of a partition, in the order they were added."""
        batches = []
        for path in self._files:
            with pa.OSFile(path) as file:
                batches.append(pa.ipc.open_file(file).get_batch(partition))
        return pa.Table.from_batches(batches, self.schema)

    def close(self) -> None:
        """Close the connection; the caller removes the folder."""
        if "_connection" in self.__dict__:
            self._connection.close()

    def _partition(self, table: pa.Table) -> list[pa.RecordBatch]:
        if self.partitions == 1:
            return _to_one_batch(table)
        self._connection.register("keys", table.select(["key"]))
        result = self._connection.sql(SELECT_PARTITION, params={"partitions": self.partitions})
        partition = result.to_arrow_table()["partition"].to_numpy()
        self._connection.unregister("keys")
        (batch,) = _to_one_batch(table.take(pa.array(np.argsort(partition, kind="stable"))))
        ends = np.cumsum(np.bincount(partition, minlength=self.partitions)).tolist()
        bounds = zip([0, *ends], ends, strict=False)
        return [batch.slice(start, end - start) for start, end in bounds]

    @cached_property
    def _connection(self) -> Any:
        import duckdb

        return duckdb.connect(config={"threads": 1})  # one thread keeps the order of the rows


class PartitionedQuery:
    """Rows on disk and a DuckDB connection, to query one partition after another.

    >>> from tempfile import TemporaryDirectory
    >>> schema = pa.schema([("key", pa.int64())])
    >>> with TemporaryDirectory() as folder, PartitionedQuery(Path(folder), schema, 2) as query:
    ...     query.add(pa.table({"key": [1, 2, 1, 2]}))
    ...     sorted(key for rows in query.partitions() for key in set(rows["key"].to_pylist()))
    [1, 2]
    """

    def __init__(self, folder: Path, schema: pa.Schema, partitions: int) -> None:
        self.folder, self.connection = folder, connect(folder)
        self._rows = SpilledPartitions(folder, "rows", schema, partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.connection.close()
        self._rows.close()
        translate_error(error, self.folder)

    def add(self, table: pa.Table) -> None:
        """Add rows; a missing column is null."""
        self._rows.add(cast_to_schema(table, self._rows.schema))

    def partitions(self) -> Iterator[pa.Table]:
        """Yield one partition after another."""
        self._rows.flush()
        for partition in range(self._rows.partitions):
            yield self._rows.read(partition)

    def execute_with(self, name: str, table: pa.Table, statement: str) -> None:
        """Run a statement that reads a table of this name."""
        self.connection.register(name, table)
        self.connection.execute(statement)
        self.connection.unregister(name)

    def add_notes(self, statements: Mapping[str, str], report: ReadReport) -> None:
        """Add the notes whose counts the statements return."""
        for note, statement in statements.items():
            count = self.connection.execute(statement).fetchall()[0][0]
            report.add_note(note, int(count or 0))


def cast_to_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in the columns of a schema; a missing column is null."""
    columns = [
        (table[each.name] if each.name in table.column_names else pa.nulls(table.num_rows)).cast(
            each.type
        )
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def _to_one_batch(table: pa.Table) -> list[pa.RecordBatch]:
    return list(table.combine_chunks().to_batches())
