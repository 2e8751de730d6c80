"""Rows on disk, dealt by their key into buckets: what belongs together comes back together, a bucket at a time."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 400_000  # gathered before they are dealt and written
BYTES = 32 << 20
TABLES = 64  # small ones, which lie scattered in memory that cannot be used again

BUCKET_OF = "SELECT (hash(key) % $many)::USMALLINT AS bucket FROM given"


class Buckets:
    """The rows of one kind; they have a column `key`.

    A file holds what was gathered at a time, a record batch for each bucket: so few files are open, however many buckets there are.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema, many: int) -> None:
        """`folder` is for the files, `many` is how many buckets there are."""
        self.folder, self.name, self.schema, self.many = folder, name, schema, many
        self._gathered: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._files: list[str] = []

    def add(self, table: pa.Table) -> None:
        """Add rows of the schema."""
        if not table.num_rows:
            return
        self._gathered.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= ROWS or self._bytes >= BYTES:
            self.write()
        elif len(self._gathered) >= TABLES:
            self._gathered = [pa.concat_tables(self._gathered).combine_chunks()]

    def write(self) -> None:
        """Write what was gathered; to be done once more before the first bucket is read."""
        if not self._rows:
            return
        table = pa.concat_tables(self._gathered)
        self._gathered, self._rows, self._bytes = [], 0, 0
        path = str(self.folder / f"{self.name}-{len(self._files)}.arrow")
        with pa.ipc.new_file(
            path, self.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
        ) as writer:
            for batch in self._dealt(table):
                writer.write_batch(batch)
        self._files.append(path)

    def read(self, bucket: int) -> pa.Table:
        """The rows of a bucket, in the order they were added."""
        batches = []
        for path in self._files:
            with pa.OSFile(path) as file:
                batches.append(pa.ipc.open_file(file).get_batch(bucket))
        return pa.Table.from_batches(batches, self.schema)

    def _dealt(self, table: pa.Table) -> list[pa.RecordBatch]:
        if self.many == 1:
            return _one(table)
        self._engine.register("given", table.select(["key"]))
        bucket = (
            self._engine.sql(BUCKET_OF, params={"many": self.many})
            .to_arrow_table()["bucket"]
            .to_numpy()
        )
        self._engine.unregister("given")
        (batch,) = _one(table.take(pa.array(np.argsort(bucket, kind="stable"))))
        ends = np.cumsum(np.bincount(bucket, minlength=self.many)).tolist()
        return [
            batch.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)
        ]

    def close(self) -> None:
        """Let go of the engine; the folder is its owner's to remove."""
        if "_engine" in self.__dict__:
            self._engine.close()

    @cached_property
    def _engine(self) -> Any:
        import duckdb

        return duckdb.connect(config={"threads": 1})  # one thread keeps the order of the rows


def _one(table: pa.Table) -> list[pa.RecordBatch]:
    return list(table.combine_chunks().to_batches())
