"""Read Parquet. Queries and ads come as dictionary codes, as stored: this makes counting fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.schema import Column, check_types, find_columns, is_string
from reclick.errors import LogError
from reclick.logs.files.parquet_layout import (
    ParquetLayout,
    damaged_parquet_error,
    read_layout,
)
from reclick.logs.files.source import MAX_BATCH_ROWS, TARGET_BATCH_BYTES, RawBatch
from reclick.runtime.filesystem import Location, arrow_input, is_uri
from reclick.runtime.parallel import thread_limit

# Below this size the dictionary of a row group costs more than it saves, and batches are tiny.
SMALL_GROUP = 50_000


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file whose footer was read and whose columns are valid."""

    path: Location
    where: str
    names: dict[str, str]
    num_rows: int
    coded: tuple[str, ...]  # leaves to read as dictionary codes
    layout: ParquetLayout = field(repr=False)

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in row order. With all columns, text is read as text: rows keep their types."""
        first = 1
        try:
            for batch in self._batches(coded=not with_rows, all_columns=with_rows):
                columns = {name: batch.column(theirs) for name, theirs in self.names.items()}
                rows = batch if with_rows else None
                yield RawBatch(self.where, first, columns, batch.num_rows, rows=rows)
                first += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise damaged_parquet_error(self.where, error) from error
        if first - 1 != self.num_rows:
            raise LogError(
                f"{self.where} is damaged: its footer has {self.num_rows:,} rows, and "
                f"{first - 1:,} were read. Write or copy it again."
            )

    def _batches(self, *, coded: bool, all_columns: bool) -> Iterator[pa.RecordBatch]:
        with _open(self.path, self.coded if coded else ()) as file:
            columns = file.schema_arrow.names if all_columns else list(self.names.values())
            size = int(max(16, TARGET_BATCH_BYTES / max(self.layout.row_bytes(columns), 1.0)))
            if coded and self.num_rows >= SMALL_GROUP * file.num_row_groups:
                for groups, limit in self.layout.limit_rows(columns, self.coded):
                    for group in groups:
                        yield from self._group_batches(file, group, min(size, limit), columns)
                return
        with _open(self.path, ()) as uncoded:
            for groups, limit in self.layout.limit_rows(columns):
                yield from _iter_batches(uncoded, min(size, limit), columns, groups)

    def _group_batches(
        self, file: pq.ParquetFile, group: int, size: int, columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        # A batch of coded lists must not span row groups, and Arrow cannot build one over two
        # dictionaries: then the rest of the group is read as text.
        done = 0
        try:
            for batch in _iter_batches(file, size, columns, [group]):
                yield batch
                done += batch.num_rows
        except pa.ArrowNotImplementedError:
            ((_, limit),) = self.layout.limit_rows(columns, groups=[group])
            with _open(self.path, ()) as uncoded:
                for batch in _iter_batches(uncoded, min(size, limit), columns, [group]):
                    yield from [batch.slice(max(done, 0))] if done < batch.num_rows else []
                    done -= batch.num_rows


def open_parquet(
    path: Location, where: str, wanted: Sequence[Column], mapping: dict[str, str]
) -> ParquetSource:
    """Read the footer of a Parquet file and check its columns."""
    try:
        layout = read_layout(path, where)
        with _open(path, ()) as file:
            schema, num_rows = file.schema_arrow, file.metadata.num_rows
            available = schema.names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise damaged_parquet_error(where, error) from error
    names = find_columns(available, wanted, mapping, where)
    check_types(schema, wanted, names, where)
    coded = tuple(
        ".".join(path)
        for path in layout.leaves
        if path[0] in names.values() and _holds_text(schema.field(path[0]).type)
    )
    return ParquetSource(path, where, names, num_rows, coded, layout)


def _open(path: Location, coded: Sequence[str]) -> pq.ParquetFile:
    # Without pre_buffer only the pages being decoded are in memory. Checksums, where a writer
    # made them, reveal a damaged page. A remote file is read in few large requests instead.
    return pq.ParquetFile(
        arrow_input(path),
        read_dictionary=list(coded),
        pre_buffer=is_uri(path),
        page_checksum_verification=True,
    )


def _iter_batches(
    file: pq.ParquetFile, size: int, columns: list[str], row_groups: list[int]
) -> Iterator[pa.RecordBatch]:
    yield from file.iter_batches(
        min(size, MAX_BATCH_ROWS),
        row_groups=row_groups,
        columns=columns,
        use_threads=thread_limit() > 1,
    )


def _holds_text(kind: Any) -> bool:
    return is_string(kind) or (hasattr(kind, "value_type") and is_string(kind.value_type))
