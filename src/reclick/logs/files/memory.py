"""Read tables in memory or in a database: Arrow, pandas, Polars and DuckDB, through Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import types as arrow_types

from reclick.data.arrow_checks import check_batch
from reclick.data.schema import EXPECTED, POSITIONS, Column, is_list
from reclick.errors import LogError
from reclick.logs.files.lake import open_lake_table
from reclick.logs.files.source import MAX_BATCH_ROWS, RawBatch
from reclick.logs.files.stream import (
    SCAN_ROWS,
    TABLE_NAME,
    ScanSource,
    SparkFrameSource,
    StreamSource,
    explain_failure,
    match_columns,
    number_batches,
    open_dataset,
    open_scan,
    open_spark_frame,
    open_stream,
)

MIN_PART_ROWS, MOST_PARTS = 16, 1024  # if a table is cut for several processes
ACCEPTED_SOURCES = (
    "a path, a glob, a folder, a list of files, a pandas, Polars, Arrow or DuckDB table, "
    "an Arrow stream, or a dict of columns"
)
DEFAULT_TYPES = {  # of columns whose values have no type, such as empty lists
    "query": pa.string(),
    "ads": pa.list_(pa.string()),
    "clicks": pa.list_(pa.int64()),
    "ad": pa.string(),
    "weight": pa.float64(),
    "dwell_seconds": pa.list_(pa.float64()),
    "conversions": pa.list_(pa.float64()),
}


@dataclass(frozen=True)
class TableSource:
    """A table. A lazy table is computed at the first pass and kept for further passes."""

    schema: pa.Schema
    names: dict[str, str]
    load: Callable[[], pa.Table] = field(repr=False)
    num_rows: int | None
    where: str = TABLE_NAME

    @cached_property
    def table(self) -> pa.Table:
        """The whole table as Arrow."""
        return self.load()

    def split(self) -> list[TablePart]:
        """Split into runs of rows that other processes can read."""
        table, size = self.table, max(MIN_PART_ROWS, -(-self.table.num_rows // MOST_PARTS))
        for batch in table.to_batches():
            check_batch(batch, self.where)
        return [
            TablePart(table.slice(start, size), self.names, start + 1)
            for start in range(0, max(table.num_rows, 1), size)
        ]

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in row order."""
        column_names = list(dict.fromkeys(self.names.values()))
        table = self.table if with_rows else self.table.select(column_names)
        batches = table.to_batches(max_chunksize=MAX_BATCH_ROWS)
        yield from number_batches(batches, self.names, self.where, with_rows=with_rows)


@dataclass(frozen=True)
class TablePart:
    """A run of rows of a table. It is pickled without the rest of the table."""

    table: pa.Table
    names: dict[str, str]
    first_row: int
    where: str = TABLE_NAME
    can_move: ClassVar[bool] = True  # another process can read it

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def join(self, other: object) -> TablePart | None:
        """Join with the next run of rows of the table; None for any other source."""
        if not isinstance(other, TablePart) or self.first_row + self.num_rows != other.first_row:
            return None
        return replace(self, table=pa.concat_tables([self.table, other.table]))

    def __getstate__(self) -> dict[str, Any]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return {**vars(self), "table": sink.getvalue()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["table"] = pa.ipc.open_stream(state["table"]).read_all()
        vars(self).update(state)

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in row order."""
        column_names = list(dict.fromkeys(self.names.values()))
        table = self.table if with_rows else self.table.select(column_names)
        batches = table.to_batches(max_chunksize=MAX_BATCH_ROWS)
        raw_batches = number_batches(batches, self.names, self.where, with_rows=with_rows)
        for raw in raw_batches:
            yield replace(raw, first_row=raw.first_row + self.first_row - 1)


def open_table(
    source: Any, columns_to_read: Sequence[Column], mapping: dict[str, str]
) -> TableSource | ScanSource | SparkFrameSource | StreamSource:
    """Open a table, a scan or a stream, after a check of its columns."""
    library, kind = _library_and_class(source)
    if (library, kind) == ("duckdb", "DuckDBPyRelation"):
        with explain_failure("table"):
            schema = source.limit(0).to_arrow_table().schema
        return open_scan(schema, partial(_run_relation, source), columns_to_read, mapping)
    if (library, kind) == ("pyarrow", "Dataset"):
        return open_dataset(source, columns_to_read, mapping)
    if (library, kind) == ("pyspark", "DataFrame"):
        return open_spark_frame(source, columns_to_read, mapping)
    lake = open_lake_table(source, columns_to_read, mapping)
    if lake is not None:
        return lake
    stream = open_stream(source, columns_to_read, mapping)
    if stream is not None:
        return stream
    load: Callable[[], pa.Table]
    if (library, kind) == ("polars", "LazyFrame"):
        schema, num_rows = _collect(source.head(0)).schema, None
        load = lambda: _collect(source)  # noqa: E731
    else:
        table = _with_whole_positions(_to_arrow(source), columns_to_read, mapping)
        schema, num_rows = table.schema, table.num_rows
        load = lambda: table  # noqa: E731
    return TableSource(
        schema, match_columns(schema, columns_to_read, mapping, TABLE_NAME), load, num_rows
    )


def _collect(frame: Any) -> pa.Table:
    """Compute a lazy frame."""
    with explain_failure(TABLE_NAME):
        return _to_arrow(frame.collect())


def _run_relation(relation: Any, columns: list[str] | None) -> Any:
    """Run a DuckDB relation on its own connection, which is then busy."""
    if columns is not None:
        escaped_names = (name.replace('"', '""') for name in columns)
        relation = relation.project(", ".join(f'"{name}"' for name in escaped_names))
    # Look at the type, since the columns of a relation are attributes too.
    if hasattr(type(relation), "to_arrow_reader"):
        return relation.to_arrow_reader(SCAN_ROWS)
    # Before DuckDB 1.5, a relation yields its rows only once; a projection of it can be run again.
    return relation.project("*").fetch_arrow_reader(SCAN_ROWS)


def _library_and_class(source: object) -> tuple[str, str]:
    # Compare names, so that no library is imported.
    classes = type(source).__mro__
    libraries = {each.__name__: each.__module__.split(".")[0].lstrip("_") for each in classes}
    special = ("DuckDBPyRelation", "LazyFrame", "Dataset", "DataFrame")
    return next(((libraries[name], name) for name in special if name in libraries), ("", ""))


def _to_arrow(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, dict):
        return _table_from_dict(source)
    try:
        if hasattr(source, "__arrow_c_stream__"):
            return _drop_index(pa.table(source))
        return _through_narwhals(source)
    except LogError:
        raise
    except (pa.ArrowException, UnicodeEncodeError, ValueError, TypeError) as error:
        raise LogError(
            "The table cannot be read through Arrow: a column mixes types, has a name twice, or is "
            f"sparse ({error}). Make each column of one plain type, with a name of its own."
        ) from error


def _with_whole_positions(
    table: pa.Table, columns_to_read: Sequence[Column], mapping: dict[str, str]
) -> pa.Table:
    """The table with clicks that are lists of floats, such as 2.0, as lists of whole numbers."""
    for column in columns_to_read:
        name = mapping.get(column.name, column.name)
        if column.kind != POSITIONS or table.column_names.count(name) != 1:
            continue
        index, kind = table.column_names.index(name), table[name].type
        if not (is_list(kind) and arrow_types.is_floating(kind.value_type)):
            continue
        for batch in table.select([name]).to_batches():
            check_batch(batch, TABLE_NAME)
        try:
            whole = table[name].cast(pa.large_list(pa.int64()))
        except pa.ArrowException as error:
            raise LogError(
                f"{column.name} in the {TABLE_NAME}: expected {EXPECTED[POSITIONS]}, such as "
                f"[2, 1] ({error}). Give the positions of the clicked ads, from 1."
            ) from error
        table = table.set_column(index, name, whole)
    return table


def _table_from_dict(columns: dict[str, Any]) -> pa.Table:
    try:
        return pa.table({name: _typed_column(name, values) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, OverflowError, ValueError, RecursionError) as error:
        raise LogError(f"The columns given do not make a table: {error}.") from error


def _typed_column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Make a column; if its values have no type (nulls, empty lists), use the default type."""
    if isinstance(values, list) and values and isinstance(values[0], pa.Table | pa.RecordBatch):
        raise TypeError(f"{name} has a table as a value")
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    kind = column.type
    is_untyped = arrow_types.is_null(kind) or (
        arrow_types.is_list(kind) and arrow_types.is_null(kind.value_type)
    )
    return column.cast(DEFAULT_TYPES[name]) if is_untyped and name in DEFAULT_TYPES else column


def _through_narwhals(source: Any) -> pa.Table:
    import narwhals as nw

    try:
        frame = nw.from_native(source)
    except TypeError as error:
        kind = type(source).__name__
        raise LogError(f"Cannot read a {kind}. Give {ACCEPTED_SOURCES}.") from error
    eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    return eager.to_arrow()


def _drop_index(table: pa.Table) -> pa.Table:
    # pandas writes its row index as a column.
    index = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(index)
