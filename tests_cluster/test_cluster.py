"""Spark on a real standalone master with two workers, Spark Connect, and processes that are killed.

`make test-cluster` runs this, in some minutes. Everything listens on loopback only.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.simulation import simulate

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.filterwarnings("ignore")
HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
UBM: dict[str, Any] = {"max_iterations": 12, "tolerance": 0, "attractiveness_prior": "overall"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def start(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return subprocess.Popen(
        [str(HOME / "bin" / "spark-class"), *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(port: int) -> None:
    for _ in range(240):
        with socket.socket() as one:
            if one.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(0.5)
    raise TimeoutError(f"nothing listens on port {port}")


class Cluster:
    """A master and two workers with one core each."""

    def __init__(self, folder: Path) -> None:
        self.port, self.folder = free_port(), folder
        self.url = f"spark://{LOOPBACK}:{self.port}"
        self.master = start(
            *("org.apache.spark.deploy.master.Master", "--host", LOOPBACK),
            *("--port", str(self.port), "--webui-port", str(free_port())),
        )
        wait_for(self.port)
        self.workers = [self.start_worker() for _ in range(2)]

    def start_worker(self) -> subprocess.Popen[bytes]:
        return start(
            *("org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--cores", "1"),
            *("--memory", "1g", "--webui-port", str(free_port())),
            *("--work-dir", str(self.folder), self.url),
        )

    def below(self, mark: str) -> list[psutil.Process]:
        """The processes of the workers whose command has a word in it, the youngest first."""
        found = []
        for worker in self.workers:
            if worker.poll() is None:
                for each in psutil.Process(worker.pid).children(recursive=True):
                    with suppress(psutil.Error):  # it ended meanwhile
                        if any(mark in word for word in each.cmdline()):
                            found.append(each)
        return sorted(found, key=lambda each: -each.create_time())

    def stop(self) -> None:
        for each in (*self.workers, self.master):
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("work"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "week.parquet"
    (week,) = simulate(30_000, weeks=1, queries=300, seed=3).weeks
    pq.write_table(week, path, row_group_size=4_000)
    return path


@pytest.fixture(scope="module")
def engine(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rc.SparkEngine]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(cluster.url).appName("cluster")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    folder = tmp_path_factory.mktemp("shared")
    made = rc.SparkEngine(session, tasks=6, folder=folder)
    yield made
    made.close()
    assert list(folder.iterdir()) == []  # nothing is left
    session.stop()


def kill_soon(cluster: Cluster, mark: str, delay: float) -> threading.Thread:
    """Kill a process of the cluster with -9 after some seconds."""

    def kill() -> None:
        time.sleep(delay)
        for _ in range(300):  # there may be none yet, after the last kill
            found = cluster.below(mark)
            with suppress(psutil.Error):
                if found:
                    found[0].send_signal(signal.SIGKILL)
                    killed.append(mark)
                    return
            time.sleep(0.1)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


killed: list[str] = []


def kill_worker(cluster: Cluster, delay: float) -> threading.Thread:
    """Kill a worker and everything below it, and start another."""

    def kill() -> None:
        time.sleep(delay)
        os.killpg(cluster.workers[0].pid, signal.SIGKILL)
        for each in psutil.Process(cluster.workers[0].pid).children(recursive=True):
            each.kill()
        cluster.workers[0].wait()
        cluster.workers[0] = cluster.start_worker()
        killed.append("worker")

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_cluster_gives_the_answers_of_one_process(engine: rc.SparkEngine, log: Path) -> None:
    assert rc.count(log, engine=engine) == rc.count(log)
    one, two = rc.UBM(**UBM).fit(log), rc.UBM(**UBM).fit(log, engine=engine)
    assert one.iterations_ == two.iterations_
    np.testing.assert_allclose(one.theta_, two.theta_, rtol=0, atol=1e-9)


@pytest.mark.parametrize("victim", ["pyspark.daemon", "CoarseGrainedExecutorBackend", "worker"])
@pytest.mark.parametrize("job", ["count", "group and EM", "write"])
def test_a_killed_process_changes_nothing(
    engine: rc.SparkEngine, cluster: Cluster, log: Path, tmp_path: Path, victim: str, job: str
) -> None:
    killed.clear()
    delay = 1.0
    if victim == "worker":
        thread = kill_worker(cluster, delay)
    else:
        thread = kill_soon(cluster, victim, delay)
    try:
        if job == "count":
            expected = rc.count(log)
            for _ in range(3):
                assert rc.count(log, engine=engine) == expected
        elif job == "group and EM":
            one, two = rc.UBM(**UBM).fit(log), rc.UBM(**UBM).fit(log, engine=engine)
            np.testing.assert_allclose(one.theta_, two.theta_, rtol=0, atol=1e-9)
        else:
            model = rc.MultiClick().fit(log)
            rc.predict(model, log, tmp_path / "one.parquet")
            rc.predict(model, log, tmp_path / "two.parquet", engine=engine)
            one_table, two_table = (
                pq.read_table(tmp_path / f"{name}.parquet") for name in ("one", "two")
            )
            assert one_table.equals(two_table)
            left = {each.name for each in tmp_path.iterdir()} - {".reclick-files.json"}
            assert left == {"one.parquet", "two.parquet"}
    finally:
        thread.join()
    assert killed == [victim]


def test_a_failed_job_leaves_the_old_file(
    engine: rc.SparkEngine, log: Path, tmp_path: Path
) -> None:
    target = tmp_path / "predictions.parquet"
    target.write_text("the old one")

    def fail(sessions: Any) -> Any:
        raise rc.LogError("broken")

    with pytest.raises((rc.LogError, rc.EngineError, AttributeError)):
        engine.map(fail, rc.read_sessions(log), target)
    assert target.read_text() == "the old one"


CONNECT = """
import os, sys, warnings
warnings.simplefilter("ignore")
os.environ["PYSPARK_PYTHON"] = sys.executable
import numpy as np
import reclick as rc
from pyspark.sql import SparkSession
session = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(session).__module__
engine = rc.SparkEngine(session, tasks=3, folder=sys.argv[2])
log = sys.argv[1]
assert rc.count(log, engine=engine) == rc.count(log)
assert rc.count(session.read.parquet(log), engine=engine) == rc.count(log)
settings = dict(max_iterations=3, tolerance=0, attractiveness_prior="overall")
one, two = rc.UBM(**settings).fit(log), rc.UBM(**settings).fit(log, engine=engine)
assert np.abs(one.theta_ - two.theta_).max() < 1e-9
engine.close()
print("the same")
"""


def test_spark_connect_gives_the_same_answers(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    environment = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK}
    environment.pop("PYSPARK_PYTHON", None)
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(log), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=600,
    )
    assert done.stdout.strip().endswith("the same"), done.stderr[-3000:]
