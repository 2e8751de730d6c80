"""One limit of threads, an ordered map, and items that are prepared ahead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from reclick.errors import SettingError
from reclick.runtime.parallel import (
    limit_threads,
    parallel_map,
    prefetch,
    run_parallel,
    thread_limit,
)
from reclick.runtime.progress import progress_to, report_progress

# ---- the limit


def test_the_limit_is_the_argument_the_context_the_variable_or_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RECLICK_THREADS", raising=False)
    assert thread_limit() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("RECLICK_THREADS", "7")
    assert thread_limit() == 7
    with limit_threads(3):
        assert (thread_limit(), thread_limit(2)) == (3, 2)
        with limit_threads(None):
            assert thread_limit() == 3
    assert thread_limit() == 7


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_limit_that_is_no_number_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECLICK_THREADS", value)
    with pytest.raises(SettingError, match=r"RECLICK_THREADS: got .* a whole number of 1 or more"):
        thread_limit()
    with pytest.raises(SettingError, match="threads: got"):
        thread_limit(0)


ALL_THREADS = """
import os, sys, tempfile
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np, pyarrow, pyarrow.parquet as pq
before = len(os.listdir("/proc/self/task"))
import threading
def refuse(self): raise AssertionError(f"{self.name} was started")
threading.Thread.start = refuse
import reclick as rc
from tests.support.enumeration import as_table, random_sessions
folder = tempfile.mkdtemp()
pq.write_table(as_table(random_sessions(np.random.default_rng(3), 3000)), folder + "/log.parquet")
log = rc.read_sessions(folder + "/log.parquet")
model = rc.MODELS["ubm"](max_iterations=5).fit(log)
rc.predict(model, log, folder + "/out.parquet")
model.save(folder + "/model")
rc.load(folder + "/model").relevance()
rc.MODELS["bbm"](max_iterations=2).fit(log).relevance()
rc.export(model, folder + "/o.qrels", cuts=(0.1, 0.3), min_support=1)
rc.evaluate(["gctr"], log, train=log, in_sample=True, resamples=100)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_limit_of_one_starts_no_thread_of_python_arrow_or_duckdb() -> None:
    env = {**os.environ, "RECLICK_THREADS": "1", "PYTHONPATH": "."}
    command = [sys.executable, "-c", ALL_THREADS]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


# ---- map


def test_results_come_in_order_and_few_items_are_taken_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    def work(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number

    results = parallel_map(work, items(), threads=3)
    assert next(results) == 0
    assert len(taken) <= 7
    assert list(results) == list(range(1, 20))


def test_no_more_threads_work_at_once_than_allowed() -> None:
    lock, working, most = threading.Lock(), [0], [0]

    def work(_: int) -> None:
        with lock:
            working[0] += 1
            most[0] = max(most[0], working[0])
        time.sleep(0.005)
        with lock:
            working[0] -= 1

    list(parallel_map(work, range(20), threads=3))
    assert most[0] <= 3


def test_an_error_is_raised_at_its_place_and_nothing_goes_on_after_it() -> None:
    finished: list[int] = []

    def work(number: int) -> int:
        if number == 2:
            raise ZeroDivisionError
        time.sleep(0.005)
        finished.append(number)
        return number

    results = parallel_map(work, range(1000), threads=2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    done = len(finished)
    time.sleep(0.03)
    assert len(finished) == done < 10


def test_nested_maps_neither_block_nor_start_more_threads() -> None:
    def outer(number: int) -> tuple[int, int]:
        return sum(parallel_map(abs, range(number))), thread_limit()

    assert list(parallel_map(outer, range(50), threads=2)) == [
        (number * (number - 1) // 2, 1) for number in range(50)
    ]


def test_calls_at_once_and_a_single_item_in_the_callers_thread() -> None:
    meet = threading.Barrier(2, timeout=5)
    with limit_threads(2):
        assert sorted(run_parallel(meet.wait, meet.wait)) == [0, 1]
    here = threading.get_ident()
    assert list(parallel_map(lambda _: threading.get_ident(), [1], threads=4)) == [here]
    assert list(parallel_map(lambda _: threading.get_ident(), [1, 2], threads=1)) == [here, here]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_pool_of_its_own() -> None:
    list(parallel_map(abs, range(5), threads=2))
    child = os.fork()
    if child == 0:
        os._exit(0 if list(parallel_map(abs, range(5), threads=2)) == list(range(5)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- prefetch


def running() -> int:
    return sum(thread.name == "reclick-prefetch" for thread in threading.enumerate())


def endless(closed: list[bool]) -> Iterator[int]:
    try:
        number = 0
        while True:
            yield number
            number += 1
    finally:
        closed.append(True)


def test_items_come_in_their_order() -> None:
    assert list(prefetch(iter(range(100)), threads=2)) == list(range(100))
    assert running() == 0


def test_the_next_item_is_made_while_the_consumer_works() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    ahead = prefetch(items(), threads=2)
    assert next(ahead) == 1
    assert made.wait(5)
    assert list(ahead) == [2]


def test_an_error_comes_through_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    ahead = prefetch(items(), threads=2)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="disk"):
        next(ahead)
    assert running() == 0


def test_a_consumer_that_stops_early_ends_the_thread_and_closes_the_source() -> None:
    closed: list[bool] = []
    ahead = prefetch(endless(closed), threads=2)
    next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    assert closed == [True]
    assert running() == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupt_in_the_consumer_ends_the_thread(error: type[BaseException]) -> None:
    closed: list[bool] = []

    def consume() -> None:
        for _ in prefetch(endless(closed), threads=2):
            raise error

    with pytest.raises(error):
        consume()
    assert closed == [True]
    assert running() == 0


def test_with_one_thread_items_are_made_when_they_are_asked_for() -> None:
    closed: list[bool] = []
    stopped: list[bool] = []
    ahead = prefetch(endless(closed), on_stop=lambda: stopped.append(True), threads=1)
    assert (next(ahead), next(ahead), running()) == (0, 1, 0)
    ahead.close()  # type: ignore[attr-defined]
    assert (closed, stopped) == ([True], [True])


def test_progress_is_heard_from_the_background_thread() -> None:
    def items() -> Iterator[int]:
        for number in range(3):
            report_progress("items", number)
            yield number

    reports: list[int] = []
    with progress_to(lambda what, done, total: reports.append(done)):
        assert list(prefetch(items(), threads=2)) == [0, 1, 2]
    assert reports == [0, 1, 2]
