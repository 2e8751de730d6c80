"""Rows of a log larger than memory, looked at in SQL a bucket at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pyarrow as pa

from reclick.logs.assembly.duckdb_connection import bounded_engine, raise_clearly
from reclick.logs.assembly.spill import Buckets
from reclick.logs.formats.base import Found


class Dealt:
    """Rows on disk and a DuckDB engine; the rows of one `key` come together.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Dealt(Path(folder), pa.schema([("key", pa.int64())]), 2) as dealt:
    ...     dealt.add(pa.table({"key": [1, 2, 1, 2]}))
    ...     sorted(key for bucket in dealt.buckets() for key in set(bucket["key"].to_pylist()))
    [1, 2]
    """

    def __init__(self, folder: Path, schema: pa.Schema, many: int) -> None:
        """`folder` is for the buckets, which are this many."""
        self.folder, self.engine = folder, bounded_engine(folder)
        self._rows = Buckets(folder, "rows", schema, many)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.engine.close()
        self._rows.close()
        raise_clearly(error, self.folder)

    def add(self, table: pa.Table) -> None:
        """Add rows; a column that is missing is null."""
        schema = self._rows.schema
        columns = [
            table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows)
            for field in schema
        ]
        self._rows.add(
            pa.table(
                [column.cast(field.type) for column, field in zip(columns, schema, strict=True)],
                schema=schema,
            )
        )

    def buckets(self) -> Iterator[pa.Table]:
        """One bucket after another."""
        self._rows.write()
        for bucket in range(self._rows.many):
            yield self._rows.read(bucket)

    def tell(self, notes: Mapping[str, str], found: Found) -> None:
        """Note what the questions count."""
        for what, question in notes.items():
            found.note(what, int(self.engine.execute(question).fetchall()[0][0] or 0))
