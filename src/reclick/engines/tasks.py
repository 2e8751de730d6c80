"""An engine whose work is done by tasks in other processes: what pools and clusters share.

A task is a function of its number. What it needs and what it leaves behind are files of a `Store`,
so a task that is lost can be run again, anywhere, and gives the same. Counting and grouping are as
in `engines.parts`. The blocks of an iterative fit stay in files, which tasks map into memory; in
each round a task gets the parameters of its own blocks only, and returns the sums of each. Which
blocks there are follows from the log alone, and the driver adds up their sums in their order: so
all engines round alike.
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
from reclick.engines.base import BlockT, Log, NewBlockT, ParametersT, SumT, as_it_is
from reclick.engines.local import slice_batches, write_batches
from reclick.engines.parquet_parts import join_parquet
from reclick.engines.parts import (
    LogPart,
    PartReport,
    ReadPart,
    count_part,
    deal_sessions,
    group_part,
    join_counts,
    join_groups,
    merge_counts,
    merge_groups,
)
from reclick.engines.store import BlockFile, Store, StoredBlocks, write_blocks
from reclick.errors import Argument, LogError, ReclickError, SettingError
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location
from reclick.runtime.outputs import atomic_file, scratch_file
from reclick.runtime.parallel import THREADS_VARIABLE, limit_threads
from reclick.runtime.progress import PROGRESS_VARIABLE, report_progress

Result = TypeVar("Result")
Task = Callable[[int], Result]
logger = logging.getLogger("reclick")
MANY_PAIRS = 20_000_000  # in the memory of the driver, some 7 GB
SERIAL_PARTS = 8  # that a log is read in, so that one at a time is in memory


class TaskEngine(ABC):
    """Counts, groups, iterates and maps in tasks; a subclass runs them."""

    buckets: int  # that counts and sessions are merged in
    n_tasks: int  # that a log or the blocks of a fit are divided among
    folder: Location | None  # that all tasks reach; None is a temporary one of this machine

    @abstractmethod
    def run(self, task: Task[Result], n: int, what: str) -> list[Result]:
        """task(0) … task(n − 1), each in some other process; `what` is the stage, for progress."""

    @property
    def store(self) -> Store:
        """The files of this engine's fits, which go with the engine."""
        known: Store | None = getattr(self, "_store", None)
        if known is None:
            known = Store.create(self.folder)
            known.remove_with(self)
            self._store = known
        return known

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
            merged = self.run(partial(merge_counts, store, names), self.buckets, "buckets merged")
            return join_counts(merged, reports)

    @check_arguments
    def group(self, log: Log) -> GroupedSessions:
        """The distinct sessions of a log."""
        with self.scratch() as store:
            what = "parts grouped"
            names, reports = self.read_parts(group_part, log, store, self.buckets, what)
            _announce_pairs(log.name, reports)
            merged = self.run(partial(merge_groups, store, names), self.buckets, "buckets merged")
            return join_groups(merged, reports)

    def read_parts(
        self, read: ReadPart, log: Log, store: Store, buckets: int, what: str
    ) -> tuple[list[str], list[PartReport]]:
        """Read every part of a log into files by bucket; the files, and what the tasks report."""
        work = partial(_read_part, read, store, buckets)
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
        """work(part, its number) of every part of a log, in the log's order."""
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
            parts = list(deal_sessions(log.batches(), store))
            log.require_rows()
        if not parts:
            raise LogError(f"{log.name} has no rows.")
        store.put("parts", parts)
        return self.run(partial(_work_on_part, work, store), len(parts), what)

    @staticmethod
    def _accept(log: Log, reports: Sequence[PartReport]) -> None:
        """Let the log know what its parts were, as after a pass of its own."""
        accept = getattr(log, "accept_parts", None)
        if accept is not None and all(report.summary is not None for report in reports):
            accept(reports)
            log.require_rows()

    def fold(self, function: Callable[[LogPart, int], Result], log: Log) -> list[Result]:
        """function(part, number of good sessions before it) of every part of a log, in order."""
        with self.scratch() as store:
            store.put("function", [function])
            kept = self._known_rows(log)
            if kept is None:
                read = self.run_parts(_summarise_part, log, store, "parts read")
                kept = [0 if each is None else each.kept for each in read]
            work = partial(_fold_part, store, starts_from_sizes(kept).tolist())
            done = self.run_parts(work, log, store, "parts done")
            self._accept(log, [PartReport(summary, *NO_REPORT) for _, summary in done])
            return [result for result, _ in done]

    def _known_rows(self, log: Log) -> list[int] | None:
        """The rows of each part, where they are known before it is read and none may be dropped."""
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
        """Lay the results of a log's parts end to end, and return the number of rows.

        `summaries` is what was read of each part, and `result_of_part` its file.
        """
        with atomic_file(target, overwrite=True) as temporary:
            files = [store.folder / result_of_part(i) for i in range(len(summaries))]
            written = join_parquet(files, temporary)
            self._accept(log, [PartReport(each, *NO_REPORT) for each in summaries])
        return written

    # ---- blocks

    def prepare(
        self, function: Callable[[BlockT], NewBlockT], blocks: Sequence[BlockT]
    ) -> Sequence[NewBlockT]:
        """function(block) of every block, in files that tasks reach."""
        stored = self._as_stored(blocks)
        if function is as_it_is:
            return stored
        old = [each.name for each in stored.files]
        new = _new_names("blocks", len(old))
        task = partial(_prepare_blocks, self.store, function, old, new)
        return StoredBlocks(self.store, self.run(task, len(old), "blocks prepared"))

    def reduce(
        self,
        step: Callable[[ParametersT, BlockT], SumT],
        parameters: ParametersT,
        blocks: Sequence[BlockT],
    ) -> SumT:
        """Σ step(parameters, block), added up in the order of the blocks."""
        if len(blocks) == 0:
            raise SettingError("blocks", blocks, "at least one block: an empty sum has no type")
        stored = self._as_stored(blocks)
        (name,) = _new_names("parameters", 1)
        self.store.put(name, [_parameters_for(parameters, each.rows) for each in stored.files])
        try:
            files = [each.name for each in stored.files]
            task = partial(_run_steps, self.store, step, name, files)
            sums: list[list[SumT]] = self.run(task, len(files), "")
            return reduce(add, chain.from_iterable(sums))
        finally:
            self.store.discard([name])

    def _as_stored(self, blocks: Sequence[Any]) -> StoredBlocks:
        if isinstance(blocks, StoredBlocks) and blocks.store.folder == self.store.folder:
            return blocks
        runs = _cut_runs(list(blocks), self.n_tasks)
        names = _new_names("blocks", len(runs))
        files = [write_blocks(self.store, *each) for each in zip(names, runs, strict=True)]
        return StoredBlocks(self.store, files)

    @contextmanager
    def scratch(self) -> Iterator[Store]:
        """A store for one job."""
        store = Store.create(self.folder)
        try:
            yield store
        finally:
            store.remove()


class SerialEngine(TaskEngine):
    """Runs tasks in this process, one after another, with all its threads.

    So a fit in buckets has one bucket at a time in memory.
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
    """Blocks in at most `n` runs of about as many each."""
    n = min(n, len(blocks))
    edges = [i * len(blocks) // max(n, 1) for i in range(n + 1)]
    return [blocks[first:last] for first, last in pairwise(edges)]


def _parameters_for(parameters: Any, rows: object) -> Any:
    """The parameters of some blocks' rows, where they can be cut; else all."""
    cut = getattr(parameters, "for_block", None)
    return parameters if cut is None or rows is None else cut(rows)


# ---- in the tasks


def _work_on_part(work: Callable[[LogPart, int], Any], store: Store, i: int) -> Any:
    return work(store.load("parts", i), i)


def _read_part(read: ReadPart, store: Store, buckets: int, part: LogPart, i: int) -> PartReport:
    return read(part, f"part-{i}", store, buckets)


def _summarise_part(part: LogPart, i: int) -> Any:
    for _ in part.batches():
        pass
    return part.summary


def _fold_part(store: Store, before: Sequence[int], part: LogPart, i: int) -> Any:
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
    parameters: str,
    files: Sequence[str],
    i: int,
) -> list[Any]:
    """The sums of every block: only the driver adds them up, in the order of the blocks."""
    now = store.load(parameters, i)
    return [step(now, block) for block in store.keep(files[i])]


@cache
def start_worker() -> None:
    """Once in a process of tasks: one thread, and no progress of its own."""
    os.environ[THREADS_VARIABLE] = "1"
    os.environ[PROGRESS_VARIABLE] = "0"
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def describe_python() -> str:
    """The versions that must be the same in all processes."""
    return f"Python {platform.python_version()} with Reclick {version('reclick')}"


def run_quietly(task: Task[Result], i: int) -> tuple[Result | None, ReclickError | None]:
    """A task in one thread; an error of Reclick's own is a result, so that nobody tries again."""
    try:
        with limit_threads(1):
            return task(i), None
    except ReclickError as error:
        return None, error


def raise_error(result: Result, error: ReclickError | None) -> Result:
    """What `run_quietly` gave: its result, or its error raised here."""
    if error is not None:
        raise error
    return result
