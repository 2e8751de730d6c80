"""Threads: one limit for all of Reclick, an ordered parallel map, and reading ahead.

The limit is `RECLICK_THREADS`, or the processors this process may use. `threads=` arguments and
`limit_threads` set another. With a limit of 1 no thread is started. Kernels release the GIL, so
threads are enough.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import TypeVar

from reclick.errors import SettingError
from reclick.runtime.arguments import check_arguments

Item = TypeVar("Item")
Result = TypeVar("Result")
THREADS_VARIABLE = "RECLICK_THREADS"
# Items that prefetch holds: as their times vary, with fewer one side would wait for the other.
PREFETCHED_ITEMS = 3
END = object()

_limit: ContextVar[int | None] = ContextVar("thread_limit", default=None)
_worker = threading.local()  # .active: this thread belongs to a pool


# ---- the limit


def thread_limit(threads: int | None = None) -> int:
    """Return how many threads may work at once: `threads` if it is given, else the limit.

    Inside a worker of `parallel_map` it is 1, so nested maps start no more threads.

    >>> with limit_threads(3):
    ...     thread_limit(), thread_limit(2)
    (3, 2)
    """
    if getattr(_worker, "active", False):
        return 1
    if threads is not None:
        return _check_threads("threads", threads)
    limit = _limit.get()
    if limit is not None:
        return limit
    variable = os.environ.get(THREADS_VARIABLE, "").strip()
    return _check_threads(THREADS_VARIABLE, variable) if variable else _available_processors()


@check_arguments
@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Let at most this many threads work at once in the block; None leaves the limit as it is."""
    if threads is None:
        yield
        return
    token = _limit.set(_check_threads("threads", threads))
    try:
        yield
    finally:
        _limit.reset(token)


def _check_threads(name: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or int(text) < 1:
        raise SettingError(name, value, "a whole number of 1 or more")
    return int(text)


def _available_processors() -> int:
    try:
        return len(os.sched_getaffinity(0))  # fewer than the machine has, in a container
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


# ---- map


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int | None = None
) -> Iterator[Result]:
    """Yield function(item) in the order of the items.

    At most `threads` items (default: the limit) are processed at once, and as many results wait to
    be yielded, so memory is bounded and items may come from a generator. An error is raised in
    place of its result.

    >>> list(parallel_map(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    limit = thread_limit(threads)
    if limit == 1 or (isinstance(items, list | tuple | range) and len(items) < 2):
        yield from map(function, items)
        return
    pool, futures = _shared_pool(limit), deque[Future[Result]]()
    try:
        for item in items:
            if len(futures) == 2 * limit:
                yield futures.popleft().result()
            futures.append(pool.submit(_run_in_worker, function, item))
        while futures:
            yield futures.popleft().result()
    finally:  # after an error, or if the caller stops, nothing keeps running
        for future in futures:
            future.cancel()
        for future in futures:
            if not future.cancelled():
                future.exception()


def run_parallel(*calls: Callable[[], Result], threads: int | None = None) -> list[Result]:
    """Call functions in parallel, and return their results in order.

    >>> run_parallel(lambda: 1, lambda: 2)
    [1, 2]
    """
    return list(parallel_map(_call, calls, threads=threads))


def _call(function: Callable[[], Result]) -> Result:
    return function()


def _run_in_worker(function: Callable[[Item], Result], item: Item) -> Result:
    _worker.active = True
    try:
        return function(item)
    finally:
        _worker.active = False


@cache
def _shared_pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool of all maps with this limit: a new one takes longer than an EM iteration."""
    return ThreadPoolExecutor(threads, thread_name_prefix="reclick")


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads of its parent
    os.register_at_fork(after_in_child=_shared_pool.cache_clear)


# ---- reading ahead


def prefetch(
    items: Iterator[Item],
    depth: int = PREFETCHED_ITEMS,
    *,
    on_stop: Callable[[], object] = lambda: None,
    threads: int | None = None,
) -> Iterator[Item]:
    """Yield the items in order while a background thread prepares the next ones.

    Errors are raised in the consumer, and the thread ends when the consumer stops for any reason.
    `on_stop` is called then, to interrupt a slow item. With a limit of 1 there is no thread.
    """
    if thread_limit(threads) == 1:
        try:
            yield from items
        finally:
            on_stop()
            _close(items)
        return
    ready: queue.Queue[object] = queue.Queue(depth)
    stop = threading.Event()
    errors: list[BaseException] = []
    worker = threading.Thread(  # in the caller's context: progress is reported from there too
        target=copy_context().run,
        args=(_fill_queue, items, ready, stop, errors),
        name="reclick-prefetch",
        daemon=True,
    )
    worker.start()
    try:
        while (item := ready.get()) is not END:
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        on_stop()
        _drain(ready)
        worker.join()
    if errors:
        raise errors[0]


def _fill_queue(
    items: Iterator[Item],
    ready: queue.Queue[object],
    stop: threading.Event,
    errors: list[BaseException],
) -> None:
    try:
        for item in items:
            if not _put(item, ready, stop):
                break
    except BaseException as error:  # the consumer's thread raises it
        errors.append(error)
    finally:
        _close(items)
        _put(END, ready, stop)


def _close(items: Iterator[Item]) -> None:
    close = getattr(items, "close", None)
    if close:
        close()


def _put(item: object, ready: queue.Queue[object], stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False


def _drain(ready: queue.Queue[object]) -> None:
    try:
        while True:
            ready.get_nowait()
    except queue.Empty:
        return
