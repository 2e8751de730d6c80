"""One cluster and one log for all tests here, and a time limit for each."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from reclick.simulation import simulate
from tests_cluster.cluster import WAIT, Cluster


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """A test that hangs is interrupted, and fails."""

    def stop(number: int, frame: Any) -> None:
        raise TimeoutError(f"the test took more than {3 * WAIT} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(3 * WAIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("work"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "week.parquet"
    (week,) = simulate(30_000, weeks=1, queries=300, seed=3).weeks
    pq.write_table(week, path, row_group_size=4_000)
    return path
