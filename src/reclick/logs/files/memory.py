"""Read tables that are in memory or in a database: Arrow, pandas, Polars (eager or lazy) and DuckDB relations, all through Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyarrow import types as kind_of

from reclick.data.schema import Column, check_types, find_columns
from reclick.errors import LogError
from reclick.logs.files.source import MAX_ROWS, TARGET_BYTES, Raw

WHERE = "table"
CHOICES = "a path, a glob, a folder, a list of files, a pandas, Polars, Arrow or DuckDB table, or a dict of columns"
PLAIN = {
    "query": pa.string(),
    "ads": pa.list_(pa.string()),
    "clicks": pa.list_(pa.int64()),
    "ad": pa.string(),
    "weight": pa.float64(),
}


@dataclass(frozen=True)
class TableSource:
    """A table; a lazy one is computed at the first pass and kept for the next."""

    schema: pa.Schema
    names: dict[str, str]
    load: Callable[[], pa.Table] = field(repr=False)
    num_rows: int | None
    where: str = WHERE

    @cached_property
    def table(self) -> pa.Table:
        """The whole table as Arrow."""
        return self.load()

    def read(self, *, with_rows: bool) -> Iterator[Raw]:
        """Read in row order."""
        table = (
            self.table if with_rows else self.table.select(list(dict.fromkeys(self.names.values())))
        )
        size = int(min(MAX_ROWS, max(16, TARGET_BYTES * table.num_rows / max(table.nbytes, 1))))
        yield from number_batches(
            table.to_batches(max_chunksize=size), self.names, with_rows=with_rows
        )


@dataclass(frozen=True, slots=True)
class RelationSource:
    """A DuckDB relation, run again at every pass on its own connection, which is busy meanwhile."""

    relation: Any = field(repr=False)
    names: dict[str, str]
    where: str = WHERE
    num_rows: int | None = None

    def read(self, *, with_rows: bool) -> Iterator[Raw]:
        """Read in the order DuckDB gives."""
        reader = _reader(self.relation)
        try:
            yield from number_batches(reader, self.names, with_rows=with_rows)
        except (pa.ArrowException, OSError) as error:
            raise LogError(f"The DuckDB relation could not be read to the end: {error}") from error
        finally:
            reader.close()


def open_table(
    source: Any, wanted: Sequence[Column], mapping: dict[str, str]
) -> TableSource | RelationSource:
    """Look at the columns of a table and check them."""
    if _kind(source) == ("duckdb", "DuckDBPyRelation"):
        schema = source.limit(0).to_arrow_table().schema
        return RelationSource(source, _check(schema, wanted, mapping))
    schema, num_rows, load = (
        _lazy(source) if _kind(source) == ("polars", "LazyFrame") else _eager(source)
    )
    return TableSource(schema, _check(schema, wanted, mapping), load, num_rows)


def _reader(relation: Any) -> Any:
    """The batches of a relation, which is run anew."""
    if hasattr(
        type(relation), "to_arrow_reader"
    ):  # the type is asked, for a relation has its columns as attributes too
        return relation.to_arrow_reader(MAX_ROWS // 4)
    # Before DuckDB 1.5. A relation that was run gives nothing more; a new one on top of it does.
    return relation.project("*").fetch_arrow_reader(MAX_ROWS // 4)


def number_batches(batches: Any, names: dict[str, str], *, with_rows: bool) -> Iterator[Raw]:
    """Yield Arrow batches with the number of their first row."""
    first = 1
    for batch in batches:
        if batch.num_rows:
            columns = {name: batch.column(theirs) for name, theirs in names.items()}
            yield Raw(WHERE, first, columns, batch.num_rows, rows=batch if with_rows else None)
        first += batch.num_rows


def _check(schema: pa.Schema, wanted: Sequence[Column], mapping: dict[str, str]) -> dict[str, str]:
    names = find_columns(schema.names, wanted, mapping, f"the {WHERE}")
    check_types(schema, wanted, names, f"the {WHERE}")
    return names


def _kind(source: object) -> tuple[str, str]:
    # By name, so that no library is imported that the caller did not import.
    names = {
        base.__name__: base.__module__.split(".")[0].lstrip("_") for base in type(source).__mro__
    }
    return next(
        ((names[name], name) for name in ("DuckDBPyRelation", "LazyFrame") if name in names),
        ("", ""),
    )


def _lazy(frame: Any) -> tuple[pa.Schema, None, Callable[[], pa.Table]]:
    return _to_arrow(frame.head(0).collect()).schema, None, lambda: _to_arrow(frame.collect())


def _eager(source: Any) -> tuple[pa.Schema, int, Callable[[], pa.Table]]:
    table = _to_arrow(source)
    return table.schema, table.num_rows, lambda: table


def _to_arrow(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, dict):
        return _plain(source)
    try:
        return (
            _through_narwhals(source)
            if not hasattr(source, "__arrow_c_stream__")
            else _without_index(pa.table(source))
        )
    except (pa.ArrowException, UnicodeEncodeError) as error:
        raise LogError(
            f"A column of the table mixes types, so it has no Arrow type: {error}. Make each column of one type."
        ) from error


def _plain(columns: dict[str, Any]) -> pa.Table:
    """A dict of columns as a table, in which empty lists have a type."""
    try:
        return pa.table({name: _typed(name, values) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError) as error:
        raise LogError(f"The columns given do not make a table: {error}.") from error


def _typed(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """A column of the type its values have; where they have none (all are null, or empty lists), of the plain one."""
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    kind = column.type
    untyped = kind_of.is_null(kind) or (kind_of.is_list(kind) and kind_of.is_null(kind.value_type))
    return column.cast(PLAIN[name]) if untyped and name in PLAIN else column


def _through_narwhals(source: Any) -> pa.Table:
    import narwhals as nw

    try:
        frame = nw.from_native(source)
    except TypeError as error:
        raise LogError(f"Cannot read a {type(source).__name__}. Give {CHOICES}.") from error
    eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    return eager.to_arrow()


def _without_index(table: pa.Table) -> pa.Table:
    # pandas writes its row index as a column of its own
    return table.drop_columns(
        [name for name in table.column_names if name.startswith("__index_level_")]
    )
