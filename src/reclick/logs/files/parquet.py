"""Read Parquet. Queries and ads come dictionary-coded, as they are stored: that is what makes counting fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.schema import Column, check_types, find_columns, is_string
from reclick.errors import LogError
from reclick.logs.files.source import MAX_ROWS, TARGET_BYTES, Raw

# Below this size a row group's own dictionary costs more than it saves, and batches would be tiny.
SMALL_GROUP = 50_000


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file whose footer was read and found right."""

    path: str
    where: str
    names: dict[str, str]
    num_rows: int
    coded: tuple[str, ...]  # leaves to read as dictionary codes

    def read(self, *, with_rows: bool) -> Iterator[Raw]:
        """Read in row order. With all columns asked for, text is read as text so that the rows keep their types."""
        first = 1
        try:
            for batch in self._batches(coded=not with_rows, every=with_rows):
                columns = {name: batch.column(theirs) for name, theirs in self.names.items()}
                yield Raw(
                    self.where, first, columns, batch.num_rows, rows=batch if with_rows else None
                )
                first += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _damaged(self.where, error) from error
        if first - 1 != self.num_rows:
            raise LogError(
                f"{self.where} is damaged: it says {self.num_rows:,} rows and holds {first - 1:,}. Write or copy it again."
            )

    def _batches(self, *, coded: bool, every: bool) -> Iterator[pa.RecordBatch]:
        with _open(self.path, self.coded if coded else ()) as file:
            groups = file.num_row_groups
            columns = file.schema_arrow.names if every else list(self.names.values())
            size = _batch_rows(file, columns)
            if not coded or self.num_rows < SMALL_GROUP * groups:
                with _open(self.path, ()) as plain:
                    yield from plain.iter_batches(size, columns=columns)
                return
            for group in range(groups):
                yield from self._group(file, group, size, columns)

    def _group(
        self, file: pq.ParquetFile, group: int, size: int, columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        # A batch of coded lists must not span row groups, and Arrow cannot build one over two dictionaries: then read the rest as text.
        done = 0
        try:
            for batch in file.iter_batches(size, row_groups=[group], columns=columns):
                yield batch
                done += batch.num_rows
        except pa.ArrowNotImplementedError:
            with _open(self.path, ()) as plain:
                for batch in plain.iter_batches(size, row_groups=[group], columns=columns):
                    yield from [batch.slice(max(done, 0))] if done < batch.num_rows else []
                    done -= batch.num_rows


def open_parquet(
    path: str, where: str, wanted: Sequence[Column], mapping: dict[str, str]
) -> ParquetSource:
    """Read the footer of a Parquet file and check its columns."""
    try:
        with _open(path, ()) as file:
            schema, leaves, num_rows = file.schema_arrow, _leaves(file), file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _damaged(where, error) from error
    names = find_columns(schema.names, wanted, mapping, where)
    check_types(schema, wanted, names, where)
    coded = tuple(
        leaf
        for leaf, column in leaves.items()
        if column in names.values() and _is_coded(schema.field(column).type)
    )
    return ParquetSource(path, where, names, num_rows, coded)


def _open(path: str, coded: Sequence[str]) -> pq.ParquetFile:
    # Without pre_buffer only the pages in work are in memory; the checksums, where a writer made them, find a damaged page.
    return pq.ParquetFile(
        path, read_dictionary=list(coded), pre_buffer=False, page_checksum_verification=True
    )


def _leaves(file: pq.ParquetFile) -> dict[str, str]:
    """Return {leaf path: top column}; the path of a list's values differs between writers (ads.list.element, ads.bag.array_element)."""
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    tops = sorted(file.schema_arrow.names, key=len, reverse=True)  # a name may hold dots
    return {
        path: next((top for top in tops if path == top or path.startswith(f"{top}.")), "")
        for path in paths
    }


def _is_coded(kind: Any) -> bool:
    return is_string(kind) or (hasattr(kind, "value_type") and is_string(kind.value_type))


def _batch_rows(file: pq.ParquetFile, columns: Sequence[str]) -> int:
    """Return how many rows make a batch of about TARGET_BYTES, judged by the fattest row group."""
    leaves = _leaves(file)
    widest = 1.0
    for group in range(file.num_row_groups):
        meta = file.metadata.row_group(group)
        chunks = (meta.column(index) for index in range(meta.num_columns))
        size = sum(
            chunk.total_uncompressed_size
            for chunk in chunks
            if leaves.get(chunk.path_in_schema) in columns
        )
        widest = max(widest, size / max(meta.num_rows, 1))
    return int(min(MAX_ROWS, max(16, TARGET_BYTES / widest)))


def _damaged(where: str, error: Exception) -> LogError:
    return LogError(
        f"{where} cannot be read as Parquet: it is cut short, damaged or not Parquet ({error}). Write or copy it again."
    )
