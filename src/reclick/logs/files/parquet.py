"""Read Parquet. Queries and ads come as dictionary codes, as stored: this makes counting fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.schema import Column, check_types, find_columns, is_string
from reclick.errors import LogError
from reclick.logs.files.source import MAX_BATCH_ROWS, TARGET_BATCH_BYTES, RawBatch
from reclick.runtime.filesystem import Location, RemotePath, arrow_input, as_path
from reclick.runtime.object_store import guard_reading
from reclick.runtime.parallel import thread_limit

# Below this size the dictionary of a row group costs more than it saves, and batches are tiny.
SMALL_GROUP = 50_000
REMOTE_BUFFER = 4 << 20  # bytes of a request, one for each column being read


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file whose footer was read and whose columns are valid."""

    path: Location
    where: str
    names: dict[str, str]
    num_rows: int
    coded: tuple[str, ...]  # leaves to read as dictionary codes
    groups: tuple[int, ...] | None = None  # row groups to read; None is all
    first_row: int = 1  # number of the first row that is read
    can_move: ClassVar[bool] = True  # another process can read it

    def split(self) -> list[ParquetSource]:
        """The row groups, each as a source of its own."""
        with _open(self.path, ()) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        starts = [1, *(1 + sum(sizes[: i + 1]) for i in range(len(sizes)))]
        return [
            replace(self, num_rows=size, groups=(group,), first_row=starts[group])
            for group, size in enumerate(sizes)
            if size
        ]

    def join(self, other: object) -> ParquetSource | None:
        """Both as one source, where the other has the next row groups of the same file."""
        if not isinstance(other, ParquetSource) or other.path != self.path:
            return None
        if self.groups is None or other.groups is None:
            return None
        return replace(
            self, num_rows=self.num_rows + other.num_rows, groups=self.groups + other.groups
        )

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in row order. With all columns, text is read as text: rows keep their types."""
        first = self.first_row
        try:
            with guard_reading(as_path(self.path)):
                for batch in self._batches(coded=not with_rows, all_columns=with_rows):
                    columns = {name: batch.column(theirs) for name, theirs in self.names.items()}
                    rows = batch if with_rows else None
                    yield RawBatch(self.where, first, columns, batch.num_rows, rows=rows)
                    first += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise damaged_parquet_error(self.where, error) from error
        read = first - self.first_row
        if read != self.num_rows:
            raise LogError(
                f"{self.where} is damaged: its footer has {self.num_rows:,} rows, and "
                f"{read:,} were read. Write or copy it again."
            )

    def _batches(self, *, coded: bool, all_columns: bool) -> Iterator[pa.RecordBatch]:
        with _open(self.path, self.coded if coded else ()) as file:
            groups = self.groups or tuple(range(file.num_row_groups))
            columns = file.schema_arrow.names if all_columns else list(self.names.values())
            size = _batch_rows(file, columns)
            if not coded or self.num_rows < SMALL_GROUP * len(groups):
                with _open(self.path, ()) as uncoded:
                    yield from _iter_batches(uncoded, size, columns, list(groups))
                return
            for group in groups:
                yield from self._group_batches(file, group, size, columns)

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
            with _open(self.path, ()) as uncoded:
                for batch in _iter_batches(uncoded, size, columns, [group]):
                    yield from [batch.slice(max(done, 0))] if done < batch.num_rows else []
                    done -= batch.num_rows


def open_parquet(
    path: Location, where: str, wanted: Sequence[Column], mapping: dict[str, str]
) -> ParquetSource:
    """Read the footer of a Parquet file and check its columns."""
    try:
        with guard_reading(as_path(path)), _open(path, ()) as file:
            schema, leaves, num_rows = file.schema_arrow, _leaves(file), file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise damaged_parquet_error(where, error) from error
    names = find_columns(schema.names, wanted, mapping, where)
    check_types(schema, wanted, names, where)
    coded = tuple(
        leaf
        for leaf, column in leaves.items()
        if column in names.values() and _holds_text(schema.field(column).type)
    )
    return ParquetSource(path, where, names, num_rows, coded)


def damaged_parquet_error(where: str, error: Exception) -> LogError:
    """The error for a file that Arrow cannot read as Parquet."""
    return LogError(
        f"{where} cannot be read as Parquet: it is cut short, damaged or not Parquet ({error}). "
        "Write or copy it again."
    )


def _open(path: Location, coded: Sequence[str]) -> pq.ParquetFile:
    # Without pre_buffer only the pages being decoded are in memory. Checksums, where a writer
    # made them, reveal a damaged page. A remote column is read by large requests, one at a time.
    return pq.ParquetFile(
        arrow_input(path),
        read_dictionary=list(coded),
        pre_buffer=False,
        buffer_size=REMOTE_BUFFER if isinstance(as_path(path), RemotePath) else 0,
        page_checksum_verification=True,
    )


def _iter_batches(
    file: pq.ParquetFile, size: int, columns: list[str], row_groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    yield from file.iter_batches(
        size, row_groups=row_groups, columns=columns, use_threads=thread_limit() > 1
    )


def _leaves(file: pq.ParquetFile) -> dict[str, str]:
    """Return {leaf path: top column}.

    Writers name the values of a list differently (ads.list.element, ads.bag.array_element).
    """
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    tops = sorted(file.schema_arrow.names, key=len, reverse=True)  # a name may contain dots
    return {
        path: next((top for top in tops if path == top or path.startswith(f"{top}.")), "")
        for path in paths
    }


def _holds_text(kind: Any) -> bool:
    return is_string(kind) or (hasattr(kind, "value_type") and is_string(kind.value_type))


def _batch_rows(file: pq.ParquetFile, columns: Sequence[str]) -> int:
    """Return how many rows take about TARGET_BATCH_BYTES in the row group of the largest rows."""
    leaves = _leaves(file)
    row_bytes = 1.0
    for group in range(file.num_row_groups):
        metadata = file.metadata.row_group(group)
        chunks = (metadata.column(index) for index in range(metadata.num_columns))
        size = sum(
            chunk.total_uncompressed_size
            for chunk in chunks
            if leaves.get(chunk.path_in_schema) in columns
        )
        row_bytes = max(row_bytes, size / max(metadata.num_rows, 1))
    return int(min(MAX_BATCH_ROWS, max(16, TARGET_BATCH_BYTES / row_bytes)))
