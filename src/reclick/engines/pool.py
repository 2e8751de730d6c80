"""The engine for one large machine: tasks as on a cluster, in processes of this machine."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import ModuleType
from typing import Any, TypeVar

from reclick.engines.tasks import Task, TaskEngine, raise_error, run_quietly, start_worker
from reclick.errors import EngineError, check_whole
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location
from reclick.runtime.parallel import thread_limit
from reclick.runtime.progress import report_progress

Result = TypeVar("Result")
ATTEMPTS = 3  # to run a task whose process dies


class PoolEngine(TaskEngine):
    """Counts, groups and fits in processes of this machine, one thread each.

    `workers` is the number of processes; None means one per processor that this process may use.
    The results are those of `LocalEngine`. It pays off from about four processors; with fewer, the
    threads of `LocalEngine` are as fast. Processes start at the first use and end with the engine,
    or at `close()`. They exchange files in `folder`, by default the system's temporary folder.

    >>> import reclick as rc
    >>> rc.PoolEngine(workers=2)
    PoolEngine(workers=2)
    """

    @check_arguments
    def __init__(self, workers: int | None = None, *, folder: Location | None = None) -> None:
        n_workers = thread_limit() if workers is None else workers
        self.workers = check_whole("workers", n_workers, 1)
        self.n_tasks = self.buckets = self.workers
        self.folder = folder
        self._pool: ProcessPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"PoolEngine(workers={self.workers})"

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name != "_store"}
        return state | {"_pool": None}  # processes and their files stay in this process

    def run(self, task: Task[Result], n: int, what: str) -> list[Result]:
        """Run tasks. A task whose process dies is run again, up to three times in total."""
        results: dict[int, Any] = {}
        for _ in range(ATTEMPTS):
            numbers = [i for i in range(n) if i not in results]
            try:
                self._run_some(task, numbers, results, n, what)
            except BrokenProcessPool:
                self._stop_pool()
                continue
            return [raise_error(*results[i]) for i in range(n)]
        raise EngineError(
            f"A worker process died {ATTEMPTS} times, as when it is killed or there is too little "
            "memory. Let fewer workers run at once (PoolEngine(workers=…)), or see the system's "
            "log."
        )

    def _run_some(
        self, task: Task[Result], numbers: list[int], results: dict[int, Any], n: int, what: str
    ) -> None:
        pool = self._start_pool()
        futures = {pool.submit(run_quietly, task, i): i for i in numbers}
        try:
            future: Future[Any]
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                if what:
                    report_progress(what, len(results), n)
        finally:
            for future in futures:
                future.cancel()

    def _start_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # A new process would run the caller's script again, for its definitions. The tasks
            # need none of them, so the script is hidden while the processes start.
            main = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                pool = ProcessPoolExecutor(
                    self.workers, get_context("spawn"), _start_worker, (os.getpid(),)
                )
                futures = [pool.submit(_wait) for _ in range(self.workers)]
            finally:
                sys.modules["__main__"] = main
            weakref.finalize(self, pool.shutdown, wait=False, cancel_futures=True)
            for future in futures:
                future.result()
            self._pool = pool
        return self._pool

    def _stop_pool(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def close(self) -> None:
        """End the processes and remove their files."""
        self._stop_pool()
        super().close()


def _start_worker(parent: int) -> None:
    """Prepare a worker process: one thread, and no garbage collection of what is imported."""
    start_worker()
    import reclick.engines.parts  # noqa: F401

    gc.freeze()


def _wait() -> None:
    """Do nothing: the first task of a process, which makes it start."""
