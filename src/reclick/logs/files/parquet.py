"""Read Parquet. Queries and ads are read as dictionary codes, as stored, for fast counting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.arrow_checks import check_batch_codes
from reclick.data.schema import Column, check_types, find_columns, is_string
from reclick.errors import LogError
from reclick.logs.files.source import MAX_BATCH_ROWS, TARGET_BATCH_BYTES, RawBatch
from reclick.runtime.filesystem import Location, RemotePath, arrow_input, as_path
from reclick.runtime.object_store import guard_reading
from reclick.runtime.parallel import thread_limit
from reclick.runtime.parquet_layout import (
    ParquetLayout,
    damaged_parquet_error,
    read_layout,
)

# In smaller row groups, dictionaries cost more time than they save, and batches are tiny.
SMALL_GROUP = 50_000
PIPELINE_THREADS = 2  # one reads, one counts; with more, columns are decoded in parallel
REMOTE_BUFFER = 4 << 20  # bytes of a request, one for each column being read


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file whose footer was read and whose columns are valid."""

    path: Location
    where: str
    names: dict[str, str]
    num_rows: int
    coded_leaves: tuple[str, ...]  # leaves to read as dictionary codes
    layout: ParquetLayout = field(repr=False)
    groups: tuple[int, ...] | None = None  # row groups to read; None is all
    first_row: int = 1  # number of the first row that is read
    can_move: ClassVar[bool] = True  # another process can read it

    def split(self) -> list[ParquetSource]:
        """Split into one source per row group."""
        sizes = [group.num_rows for group in self.layout.groups]
        starts = [1, *(1 + sum(sizes[: i + 1]) for i in range(len(sizes)))]
        return [
            replace(self, num_rows=size, groups=(group,), first_row=starts[group])
            for group, size in enumerate(sizes)
            if size
        ]

    def join(self, other: object) -> ParquetSource | None:
        """Join with a source of the next row groups of the same file; None for any other source."""
        if not isinstance(other, ParquetSource) or other.path != self.path:
            return None
        if self.groups is None or other.groups is None:
            return None
        return replace(
            self, num_rows=self.num_rows + other.num_rows, groups=self.groups + other.groups
        )

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in row order. With all columns, text is not read as codes: rows keep their types."""
        first = self.first_row
        try:
            with guard_reading(as_path(self.path)):
                for batch in self._batches(as_codes=not with_rows, all_columns=with_rows):
                    check_batch_codes(batch, self.where)  # Arrow takes them from the file
                    columns = {
                        name: batch.column(source_name) for name, source_name in self.names.items()
                    }
                    rows = batch if with_rows else None
                    yield RawBatch(self.where, first, columns, batch.num_rows, rows=rows)
                    first += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise damaged_parquet_error(self.where, error) from error
        num_rows_read = first - self.first_row
        if num_rows_read != self.num_rows:
            raise LogError(
                f"{self.where} is damaged: its footer has {self.num_rows:,} rows, and "
                f"{num_rows_read:,} were read. Write or copy it again."
            )

    def _batches(self, *, as_codes: bool, all_columns: bool) -> Iterator[pa.RecordBatch]:
        with _open(self.path, self.coded_leaves if as_codes else ()) as file:
            columns = file.schema_arrow.names if all_columns else list(self.names.values())
            size = int(max(16, TARGET_BATCH_BYTES / max(self.layout.row_bytes(columns), 1.0)))
            groups_to_read = self.groups or tuple(range(file.num_row_groups))
            if as_codes and self.num_rows >= SMALL_GROUP * len(groups_to_read):
                for groups, limit in self.layout.limit_rows(
                    columns, self.coded_leaves, groups_to_read
                ):
                    for group in groups:
                        yield from self._group_batches(file, group, min(size, limit), columns)
                return
        with _open(self.path, ()) as uncoded:
            for groups, limit in self.layout.limit_rows(columns, groups=groups_to_read):
                yield from _iter_batches(uncoded, min(size, limit), columns, groups)

    def _group_batches(
        self, file: pq.ParquetFile, group: int, size: int, columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        # A batch of dictionary-coded lists must not span row groups. If a group has two
        # dictionaries, Arrow cannot build a batch over both: its rest is read as text.
        offset = 0
        try:
            for batch in _iter_batches(file, size, columns, [group]):
                yield batch
                offset += batch.num_rows
        except pa.ArrowNotImplementedError:
            ((_, limit),) = self.layout.limit_rows(columns, groups=[group])
            with _open(self.path, ()) as uncoded:
                for batch in _iter_batches(uncoded, min(size, limit), columns, [group]):
                    yield from [batch.slice(max(offset, 0))] if offset < batch.num_rows else []
                    offset -= batch.num_rows


def open_parquet(
    path: Location, where: str, columns_to_read: Sequence[Column], mapping: dict[str, str]
) -> ParquetSource:
    """Read the footer of a Parquet file and check its columns."""
    try:
        with guard_reading(as_path(path)):
            layout = read_layout(path, where)
            with _open(path, ()) as file:
                schema, num_rows = file.schema_arrow, file.metadata.num_rows
            available = schema.names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise damaged_parquet_error(where, error) from error
    names = find_columns(available, columns_to_read, mapping, where)
    check_types(schema, columns_to_read, names, where)
    coded_leaves = tuple(
        ".".join(path)
        for path in layout.leaves
        if path[0] in names.values() and _holds_text(schema.field(path[0]).type)
    )
    return ParquetSource(path, where, names, num_rows, coded_leaves, layout)


def _open(path: Location, coded_leaves: Sequence[str]) -> pq.ParquetFile:
    # Without pre_buffer, only the pages being decoded are in memory. Checksums, if the file has
    # them, reveal a damaged page. A remote column is read with large requests, one at a time.
    return pq.ParquetFile(
        arrow_input(path),
        read_dictionary=list(coded_leaves),
        pre_buffer=False,
        buffer_size=REMOTE_BUFFER if isinstance(as_path(path), RemotePath) else 0,
        page_checksum_verification=True,
    )


def _iter_batches(
    file: pq.ParquetFile, size: int, columns: list[str], row_groups: list[int]
) -> Iterator[pa.RecordBatch]:
    yield from file.iter_batches(
        min(size, MAX_BATCH_ROWS),
        row_groups=row_groups,
        columns=columns,
        use_threads=thread_limit() > PIPELINE_THREADS,
    )


def _holds_text(kind: Any) -> bool:
    return is_string(kind) or (hasattr(kind, "value_type") and is_string(kind.value_type))
