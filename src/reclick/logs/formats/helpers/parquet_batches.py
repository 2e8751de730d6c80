"""Read a Parquet file of another format in batches: only the columns that are chosen, and with a clear word when it cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.errors import LogError
from reclick.logs.files.archive import LogFile
from reclick.logs.formats.base import Found

ROWS = 50_000  # of a batch


def parquet_batches(
    file: LogFile, found: Found, choose: Callable[[pq.ParquetFile], list[str]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches, each with the number of its first row, from 1; `choose` names the columns, or the leaves of nested ones."""
    if not file.is_parquet:
        raise LogError(
            f"{file.where} is not a Parquet file, which this format is read from. Export the log as Parquet."
        )
    if file.member is not None:
        raise LogError(
            f"{file.where} is Parquet inside an archive, which cannot be read in place. Unpack it."
        )
    first, size = 1, Path(file.path).stat().st_size
    try:
        with pq.ParquetFile(file.path, pre_buffer=False) as source:
            for batch in source.iter_batches(ROWS, columns=choose(source)):
                yield first, batch
                first += batch.num_rows
                found.advance(size * batch.num_rows // source.metadata.num_rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogError(
            f"{file.where} cannot be read as Parquet: it is cut short, damaged or not Parquet ({error}). Write or copy it again."
        ) from error
