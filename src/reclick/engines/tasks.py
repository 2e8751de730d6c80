"""The base of engines whose work is done by tasks in other processes: a pool or a cluster.

A task is a function of its number. Its inputs and outputs are files of a `Store`, so a lost task
can be run again, anywhere, with the same result. Counting and grouping are in `engines.parts`. The
blocks of an iterative fit stay in files, which tasks map into memory; in each iteration a task gets
the parameters of its blocks only, and returns a sum per block. The blocks depend only on the log,
and the driver adds up their sums in their order, so rounding is the same in all engines.
"""

from __future__ import annotations

import logging
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial, reduce
from importlib.metadata import version
from itertools import chain, pairwise
from operator import add
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import starts_from_sizes
from reclick.engines.base import BlockT, Log, NewBlockT, ParametersT, SumT, identity
from reclick.engines.local import slice_batches, write_batches
from reclick.engines.parquet_parts import join_parquet
from reclick.engines.parts import (
    LogPart,
    PartReport,
    ReadPart,
    count_part,
    group_part,
    join_counts,
    join_groups,
    merge_counts,
    merge_groups,
    store_sessions,
)
from reclick.engines.store import BlockFile, Store, StoredBlocks, write_blocks
from reclick.errors import Argument, LogError, ReclickError, SettingError
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location
from reclick.runtime.outputs import atomic_file, scratch_file
from reclick.runtime.parallel import THREADS_VARIABLE, limit_threads, parallel_map
from reclick.runtime.progress import PROGRESS_VARIABLE, report_progress

Result = TypeVar("Result")
Task = Callable[[int], Result]
logger = logging.getLogger("reclick")
MANY_PAIRS = 20_000_000  # in the memory of the driver, some 7 GB
SERIAL_PARTS = 8  # of a log, one of which is in memory at a time


class TaskEngine(ABC):
    """Counts, groups, iterates and maps in tasks; a subclass runs them."""

    buckets: int  # that counts and sessions are merged in
    n_tasks: int  # that a log or the blocks of a fit are divided among
    folder: Location | None  # that all tasks reach; None is the temporary folder of this machine

    @abstractmethod
    def run(self, task: Task[Result], n: int, what: str) -> list[Result]:
        """Return [task(0), …, task(n − 1)], run in other processes; `what` names the progress."""

    @property
    def store(self) -> Store:
        """The files of this engine's fits, which are removed with the engine."""
        store: Store | None = getattr(self, "_store", None)
        if store is None:
            store = Store.create(self.folder)
            store.remove_with(self)
            self._store = store
        return store

    def close(self) -> None:
        """Remove the files of this engine."""
        if getattr(self, "_store", None) is not None:
            self._store.remove()
            del self._store

    # ---- logs

    @check_arguments
    def count(self, log: Log) -> Counts:
        """The counts of a log."""
        with self.scratch() as store:
            what = "parts counted"
            names, reports = self.read_parts(count_part, log, store, self.buckets, what)
            _announce_pairs(log.name, reports)
            buckets = self.run(partial(merge_counts, store, names), self.buckets, "buckets merged")
            return join_counts(buckets, reports)

    @check_arguments
    def group(self, log: Log) -> GroupedSessions:
        """The distinct sessions of a log."""
        with self.scratch() as store:
            what = "parts grouped"
            names, reports = self.read_parts(group_part, log, store, self.buckets, what)
            _announce_pairs(log.name, reports)
            buckets = self.run(partial(merge_groups, store, names), self.buckets, "buckets merged")
            return join_groups(buckets, reports)

    def read_parts(
        self, read_part: ReadPart, log: Log, store: Store, buckets: int, what: str
    ) -> tuple[list[str], list[PartReport]]:
        """Read every part of a log into files by bucket; return their names and the reports."""
        work = partial(_read_part, read_part, store, buckets)
        reports = self.run_parts(work, log, store, what)
        self._accept(log, reports)
        return [f"part-{i}" for i in range(len(reports))], reports

    def run_parts(
        self,
        work: Callable[[LogPart, int], Result],
        log: Log,
        store: Store,
        what: str,
        *,
        with_rows: bool = False,
    ) -> list[Result]:
        """Return work(part, its number) for every part of a log, in order."""
        if getattr(log, "frame", None) is not None:
            raise LogError(
                f"{log.name} is read by Spark's tasks only: give rc.SparkEngine(session) as ",
                Argument("engine"),
                ", or the files of the log.",
            )
        split = getattr(log, "split", None)
        parts: list[Any] | None = None if split is None else split(self.n_tasks)
        if parts is None and with_rows:
            raise LogError(
                f"{log.name} is a stream or the table of a lake, which only this process can read. "
                "Leave out ",
                Argument("engine"),
                ", or write the log to Parquet files and give those. With rc.SparkEngine give the "
                "table as a DataFrame, such as spark.read.format('delta').load(…).",
            )
        if parts is None:
            parts = list(store_sessions(log.batches(), store))
            log.require_rows()
        if not parts:
            raise LogError(f"{log.name} has no rows.")
        store.put("parts", parts)
        return self.run(partial(_work_on_part, work, store), len(parts), what)

    @staticmethod
    def _accept(log: Log, reports: Sequence[PartReport]) -> None:
        """Pass the reports of all parts to the log, as if it had been read here."""
        accept = getattr(log, "accept_parts", None)
        if accept is not None and all(report.summary is not None for report in reports):
            accept(reports)
            log.require_rows()

    def map_parts(self, function: Callable[[LogPart, int], Result], log: Log) -> list[Result]:
        """Return function(part, number of good sessions before it) for every part, in order."""
        with self.scratch() as store:
            store.put("function", [function])
            sizes = self._known_rows(log)
            if sizes is None:
                summaries = self.run_parts(_summarise_part, log, store, "parts read")
                sizes = [0 if summary is None else summary.kept for summary in summaries]
            work = partial(_map_numbered_part, store, starts_from_sizes(sizes).tolist())
            results = self.run_parts(work, log, store, "parts done")
            self._accept(log, [PartReport(summary, *NO_REPORT) for _, summary in results])
            return [result for result, _ in results]

    def _known_rows(self, log: Log) -> list[int] | None:
        """Return the rows per part; None if they are unknown before reading, or may be dropped."""
        split = getattr(log, "split", None)
        if split is None or getattr(log, "on_error", "drop") != "raise":
            return None
        rows = [part.num_rows for part in split(self.n_tasks) or [log]]
        return None if None in rows else rows

    def map(
        self,
        function: Callable[[SessionBatch], pa.RecordBatch],
        log: Log,
        target: Location,
    ) -> int:
        """Write function(sessions) of a log to a Parquet file, and return the number of rows.

        Every task writes a part; their row groups are copied in the order of the log.
        """
        with self.scratch() as store:
            store.put("function", [function])
            summaries = self.run_parts(
                partial(_map_part, store), log, store, "parts done", with_rows=True
            )
            return self.join_parts(store, log, summaries, target)

    def join_parts(
        self, store: Store, log: Log, summaries: Sequence[object], target: Location
    ) -> int:
        """Concatenate the results of the parts of a log, and return the number of rows.

        `summaries` are of what was read of each part; `result_of_part` names its file.
        """
        with atomic_file(target, overwrite=True) as temporary:
            files = [store.folder / result_of_part(i) for i in range(len(summaries))]
            n_rows = join_parquet(files, temporary)
            self._accept(log, [PartReport(summary, *NO_REPORT) for summary in summaries])
        return n_rows

    # ---- blocks

    def prepare(
        self, function: Callable[[BlockT], NewBlockT], blocks: Sequence[BlockT]
    ) -> Sequence[NewBlockT]:
        """Apply a function to every block; the results are in files that tasks reach."""
        stored_blocks = self._as_stored(blocks)
        if function is identity:
            return stored_blocks
        old = [file.name for file in stored_blocks.files]
        new = _new_names("blocks", len(old))
        task = partial(_prepare_blocks, self.store, function, old, new)
        return StoredBlocks(self.store, self.run(task, len(old), "blocks prepared"))

    def reduce(
        self,
        step: Callable[[ParametersT, BlockT], SumT],
        parameters: ParametersT,
        blocks: Sequence[BlockT],
    ) -> SumT:
        """Return Σ step(parameters, block), summed in the order of the blocks."""
        if len(blocks) == 0:
            raise SettingError("blocks", blocks, "at least one block: an empty sum has no type")
        stored_blocks = self._as_stored(blocks)
        files = [file.name for file in stored_blocks.files]
        names = _new_names("parameters", len(files))
        try:
            put = partial(_put_parameters, self.store, parameters)
            list(parallel_map(put, list(zip(names, stored_blocks.files, strict=True))))
            task = partial(_run_steps, self.store, step, names, files)
            sums: list[list[SumT]] = self.run(task, len(files), "")
            return reduce(add, chain.from_iterable(sums))
        finally:
            self.store.discard(names)

    def _as_stored(self, blocks: Sequence[Any]) -> StoredBlocks:
        if isinstance(blocks, StoredBlocks) and blocks.store.folder == self.store.folder:
            return blocks
        runs = _cut_runs(list(blocks), self.n_tasks)
        names = _new_names("blocks", len(runs))
        files = [write_blocks(self.store, *run) for run in zip(names, runs, strict=True)]
        return StoredBlocks(self.store, files)

    @contextmanager
    def scratch(self) -> Iterator[Store]:
        """Yield a store for one job."""
        store = Store.create(self.folder)
        try:
            yield store
        finally:
            store.remove()


class SerialEngine(TaskEngine):
    """Runs tasks in this process, one after another, each with all threads.

    With it, a fit in buckets has one bucket at a time in memory.
    """

    def __init__(self, folder: Location | None = None) -> None:
        self.n_tasks = self.buckets = SERIAL_PARTS
        self.folder = folder

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def run(self, task: Task[Result], n: int, what: str) -> list[Result]:
        """Run tasks."""
        results = []
        for i in range(n):
            results.append(task(i))
            if what:
                report_progress(what, i + 1, n)
        return results


NO_REPORT: tuple[Any, ...] = (None, None, None)


def _announce_pairs(name: str, reports: Sequence[PartReport]) -> None:
    """Say so before many pairs are put together in this process."""
    pairs = sum(each.pairs for each in reports)
    if pairs > MANY_PAIRS:
        logger.warning(
            "%s: up to %s million pairs come to the memory of this process, with 300 to 400 bytes "
            "each. A fit in buckets (fit_to, or --buckets) leaves them with the tasks.",
            name,
            f"{pairs / 1e6:,.0f}",
        )


def result_of_part(part: int) -> str:
    """The file of a store with the rows that a part of a log becomes, in Parquet."""
    return f"out-{part}.parquet"


def _new_names(what: str, n: int) -> list[str]:
    return [f"{what}-{uuid4().hex}" for _ in range(n)]


def _cut_runs(blocks: list[Any], n: int) -> list[list[Any]]:
    """Divide blocks into at most `n` runs of about the same size."""
    n = min(n, len(blocks))
    edges = [i * len(blocks) // max(n, 1) for i in range(n + 1)]
    return [blocks[first:last] for first, last in pairwise(edges)]


def _parameters_for(parameters: Any, rows: object) -> Any:
    """Return the parameters of some rows, or all parameters if they cannot be divided."""
    cut = getattr(parameters, "for_block", None)
    return parameters if cut is None or rows is None else cut(rows)


def _put_parameters(store: Store, parameters: Any, target: tuple[str, BlockFile]) -> None:
    """Write the parameters of a file of blocks to a file of their own, which one task reads."""
    name, file = target
    store.put(name, [_parameters_for(parameters, file.rows)])


# ---- in the tasks


def _work_on_part(work: Callable[[LogPart, int], Any], store: Store, i: int) -> Any:
    return work(store.load("parts", i), i)


def _read_part(
    read_part: ReadPart, store: Store, buckets: int, part: LogPart, i: int
) -> PartReport:
    return read_part(part, f"part-{i}", store, buckets)


def _summarise_part(part: LogPart, i: int) -> Any:
    for _ in part.batches():
        pass
    return part.summary


def _map_numbered_part(store: Store, before: Sequence[int], part: LogPart, i: int) -> Any:
    result = store.keep("function")(part, before[i])
    return result, part.summary


def _map_part(store: Store, part: LogPart, i: int) -> Any:
    function = store.keep("function")
    with scratch_file(store.folder / result_of_part(i)) as temporary:
        write_batches(map(function, slice_batches(part.batches(with_rows=True))), temporary)
        if not temporary.exists():  # every row was bad
            temporary.touch()
    return part.summary


def _prepare_blocks(
    store: Store,
    function: Callable[[Any], Any],
    old: Sequence[str],
    new: Sequence[str],
    i: int,
) -> BlockFile:
    return write_blocks(store, new[i], [function(block) for block in store.load(old[i])])


def _run_steps(
    store: Store,
    step: Callable[[Any, Any], Any],
    parameters: Sequence[str],
    files: Sequence[str],
    i: int,
) -> list[Any]:
    """Return the sum of every block: the driver adds them up, in the order of the blocks."""
    values = store.load(parameters[i])
    return [step(values, block) for block in store.keep(files[i])]


@cache
def start_worker() -> None:
    """Set up a process of tasks, once: one thread, and no display of progress."""
    os.environ[THREADS_VARIABLE] = "1"
    os.environ[PROGRESS_VARIABLE] = "0"
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def describe_python() -> str:
    """Return the versions that must be the same in all processes."""
    return f"Python {platform.python_version()} with Reclick {version('reclick')}"


def run_quietly(task: Task[Result], i: int) -> tuple[Result | None, ReclickError | None]:
    """Run a task in one thread. An error of Reclick is returned, so that it is not retried."""
    try:
        with limit_threads(1):
            return task(i), None
    except ReclickError as error:
        return None, error


def raise_error(result: Result, error: ReclickError | None) -> Result:
    """Return the result of `run_quietly`, or raise its error."""
    if error is not None:
        raise error
    return result
