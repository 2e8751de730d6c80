"""The engine for one process: compiled kernels, threads, and tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import add
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.engines.base import BlockT, Log, NewBlockT, ParametersT, SumT
from reclick.engines.local.counter import Counter
from reclick.engines.local.grouper import Grouper
from reclick.errors import LogError, SettingError
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location
from reclick.runtime.outputs import atomic_file
from reclick.runtime.parallel import limit_threads, parallel_map, thread_limit

MAP_SESSIONS = 16_384  # passed to the function of `map` at a time
ROW_GROUP_BATCHES = 16  # results of `map` per row group of the output


class LocalEngine:
    """Counts and groups in memory, which grows with the distinct pairs and sessions of a log.

    `threads` is the number of threads that may work at once; None is the limit of the process.
    """

    @check_arguments
    def __init__(self, *, threads: int | None = None) -> None:
        self.threads = None if threads is None else thread_limit(threads)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(threads={self.threads})"

    @check_arguments
    def count(self, log: Log) -> Counts:
        """The counts of a log."""
        with limit_threads(self.threads):
            counter = Counter()
            counter.add_batches(log.batches())
            log.require_rows()
            return counter.finish()

    @check_arguments
    def group(self, log: Log) -> GroupedSessions:
        """The distinct sessions of a log."""
        with limit_threads(self.threads):
            grouper = Grouper()
            grouper.add_batches(log.batches())
            log.require_rows()
            return grouper.finish()

    def prepare(
        self, function: Callable[[BlockT], NewBlockT], blocks: Sequence[BlockT]
    ) -> list[NewBlockT]:
        """Apply a function to every block."""
        return list(parallel_map(function, blocks, threads=self.threads))

    def reduce(
        self,
        step: Callable[[ParametersT, BlockT], SumT],
        parameters: ParametersT,
        blocks: Sequence[BlockT],
    ) -> SumT:
        """Return Σ step(parameters, block), summed in the order of the blocks."""
        if len(blocks) == 0:
            raise SettingError("blocks", blocks, "at least one block: an empty sum has no type")
        return reduce(add, parallel_map(partial(step, parameters), blocks, threads=self.threads))

    def map(
        self,
        function: Callable[[SessionBatch], pa.RecordBatch],
        log: Log,
        target: Location,
    ) -> int:
        """Write function(sessions) of a log to a Parquet file, and return the number of rows.

        `function` gets up to 16,384 sessions at a time, whose `rows` are the source's own columns.
        """
        with limit_threads(self.threads), atomic_file(target, overwrite=True) as temporary:
            results = parallel_map(function, slice_batches(log.batches(with_rows=True)))
            n_rows = write_batches(results, temporary)
            log.require_rows()
        return n_rows


def slice_batches(batches: Iterable[SessionBatch]) -> Iterator[SessionBatch]:
    """Yield the sessions in slices for `map`, each with only the strings that it uses."""
    for batch in batches:
        if len(batch) <= MAP_SESSIONS:
            yield batch
            continue
        for start in range(0, len(batch), MAP_SESSIONS):
            yield batch.slice(start, min(start + MAP_SESSIONS, len(batch))).compact()


def write_batches(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write batches of one schema to a Parquet file, and return the number of rows."""
    writer, row_group, n_rows = None, [], 0
    try:
        for batch in batches:
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
            if not batch.schema.equals(writer.schema):
                raise LogError(describe_columns(writer.schema, batch.schema))
            row_group.append(batch)
            n_rows += batch.num_rows
            if len(row_group) == ROW_GROUP_BATCHES:
                writer.write_table(pa.Table.from_batches(row_group))
                row_group = []
        if writer and row_group:
            writer.write_table(pa.Table.from_batches(row_group))
    finally:
        if writer:
            writer.close()
    return n_rows


def describe_columns(first: pa.Schema, other: pa.Schema) -> str:
    """Return an error message: the columns in which a file differs from the first one."""
    differ = sorted({field.name for field in {*first} ^ {*other}})
    return (
        f"The files have other columns than the first of them ({', '.join(differ)}), so they make "
        "no one table. Take them one by one."
    )
