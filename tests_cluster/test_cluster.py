"""Spark on a real standalone master with two workers, Spark Connect, and processes that are killed.

`make test-cluster` runs this, in some minutes. Everything listens on loopback only.
"""

from __future__ import annotations

import functools
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
from reclick.engines import as_grouped
from reclick.errors import SettingError, check_whole
from reclick.metrics.chunk_sums import score
from reclick.simulation import simulate
from tests.engines.test_engines_agree import assert_same_groups
from tests.engines.test_tasks import assert_same_model

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.filterwarnings("ignore")
HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
WAIT = 240  # seconds, for whatever should take a few
TRIES = 6
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
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",  # of executors that are killed
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


class Kill:
    """A listener of progress that kills a process of the cluster during one stage of a job.

    `hits` counts the kills that fell between the first and the last report of the stage, or of the
    EM loop between two of its iterations.
    """

    def __init__(self, cluster: Cluster, victim: str, stage: str) -> None:
        self.cluster, self.victim, self.stage = cluster, victim, stage
        self.hits = 0
        self._is_open = False
        self._thread: threading.Thread | None = None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if not what.endswith(self.stage):
            self._is_open = False
            return
        at_start = done == 2 if self.stage == "iterations" else done == 0
        at_end = done == UBM["max_iterations"] if self.stage == "iterations" else done == total
        self._is_open = not at_end
        if at_start and self._thread is None:
            self._thread = threading.Thread(target=self._kill)
            self._thread.start()

    def _kill(self) -> None:
        if self.victim == "worker":
            self._kill_worker()
            return
        end = time.monotonic() + WAIT
        while time.monotonic() < end:  # there may be none yet, after the last kill
            found = self.cluster.below(self.victim)
            with suppress(psutil.Error):
                if found:
                    found[0].send_signal(signal.SIGKILL)
                    self.hits += self._is_open
                    return
            time.sleep(0.05)
        raise TimeoutError(f"no process of {self.victim} to kill in {WAIT} s")

    def _kill_worker(self) -> None:
        """Kill a worker and everything below it, and start another."""
        victims = psutil.Process(self.cluster.workers[0].pid).children(recursive=True)
        os.killpg(self.cluster.workers[0].pid, signal.SIGKILL)
        for each in victims:
            with suppress(psutil.Error):
                each.kill()
        self.hits += self._is_open
        self.cluster.workers[0].wait(WAIT)
        self.cluster.workers[0] = self.cluster.start_worker()

    def join(self) -> None:
        """Wait for the kill, and be ready for another."""
        if self._thread is not None:
            self._thread.join(WAIT)
            assert not self._thread.is_alive(), f"the kill took more than {WAIT} s"
            self._thread = None


def test_a_cluster_gives_the_answers_of_one_process(
    engine: rc.SparkEngine, log: Path, tmp_path: Path
) -> None:
    assert rc.count(log, engine=engine) == rc.count(log)
    few: dict[str, Any] = {"max_iterations": 3, "tolerance": 0}
    simple: dict[str, Any] = {"attractiveness_prior": "overall", **few}
    models: list[Any] = [
        rc.UBM(**UBM),
        rc.DBN(continuation=0.9, **simple),
        rc.CCM(**simple),
        rc.THCM(**simple),
        rc.LuceClick(**few),
    ]
    for model in models:
        one, two = model.clone().fit(log), model.clone().fit(log, engine=engine)
        assert_same_model(two, one)
    scores = [score(one, log), score(one, log, engine=engine)]
    np.testing.assert_allclose(scores[0].sums, scores[1].sums, rtol=1e-9, atol=1e-9)


JOBS = {
    "count": "parts counted",
    "group": "parts grouped",
    "EM": "iterations",
    "predict": "parts done",
}


@pytest.mark.parametrize("victim", ["pyspark.daemon", "CoarseGrainedExecutorBackend", "worker"])
@pytest.mark.parametrize("job", list(JOBS))
def test_a_killed_process_changes_nothing(
    engine: rc.SparkEngine, cluster: Cluster, log: Path, tmp_path: Path, victim: str, job: str
) -> None:
    engine.check_executors()
    kill = Kill(cluster, victim, JOBS[job])
    for _ in range(TRIES):  # until the kill falls into the stage
        try:
            run_job(job, log, tmp_path, engine, kill)
        finally:
            kill.join()
        if kill.hits:
            break
    assert kill.hits, f"no kill during {job} in {TRIES} runs"
    left = {each.name for each in tmp_path.iterdir()} - {".reclick-files.json"}
    assert left <= {"one.parquet", "two.parquet"}


def run_job(job: str, log: Path, folder: Path, engine: rc.SparkEngine, kill: Kill) -> None:
    """Run a job while something is killed, and compare the result with that of one process."""
    if job == "count":
        assert rc.count(log, engine=engine, progress=kill) == rc.count(log)
    elif job == "group":
        assert_same_groups(as_grouped(log, engine=engine, progress=kill), as_grouped(log))
    elif job == "EM":
        one = rc.UBM(**UBM).fit(log)
        assert_same_model(rc.UBM(**UBM).fit(log, engine=engine, progress=kill), one)
    else:
        model = rc.MultiClick().fit(log)
        rc.predict(model, log, folder / "one.parquet")
        rc.predict(model, log, folder / "two.parquet", engine=engine, progress=kill)
        tables = [pq.read_table(folder / f"{name}.parquet") for name in ("one", "two")]
        assert tables[0].equals(tables[1])


def test_a_failed_job_leaves_the_old_file(
    engine: rc.SparkEngine, log: Path, tmp_path: Path
) -> None:
    target = tmp_path / "predictions.parquet"
    target.write_text("the old one")
    fail = functools.partial(check_whole, "sessions", low=0)  # a function that executors have
    with pytest.raises(SettingError, match="expected a whole number"):
        engine.map(fail, rc.read_sessions(log), target)
    assert target.read_text() == "the old one"


# ---- the command line


def run_command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reclick", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=WAIT,
    )


@pytest.fixture
def where(cluster: Cluster, tmp_path: Path) -> list[object]:
    """The options of the cluster."""
    shared = tmp_path / "shared"
    shared.mkdir()
    return ["--engine", "spark", "--master", cluster.url, "--shared-folder", shared, "--tasks", 4]


def test_commands_run_on_the_cluster(where: list[object], log: Path, tmp_path: Path) -> None:
    model, shared = tmp_path / "model", tmp_path / "shared"
    settings = [f"--set={name}={value}" for name, value in UBM.items()]
    for words in (
        ["fit", log, "--model", "ubm", *settings, "--to", model],
        ["predict", model, log, "--to", tmp_path / "two.parquet"],
        ["evaluate", "--models", model, "--test", log, "--in-sample", "--to", tmp_path / "scores"],
    ):
        done = run_command(*words, *where)
        assert done.returncode == 0, done.stderr
    fitted = rc.UBM(**UBM).fit(log)
    assert_same_model(rc.load(model), fitted)
    rc.predict(rc.load(model), log, tmp_path / "one.parquet")
    tables = [pq.read_table(tmp_path / f"{name}.parquet") for name in ("one", "two")]
    assert tables[0].equals(tables[1])
    assert list(shared.iterdir()) == []


def test_executors_with_another_python_are_named(
    where: list[object], log: Path, tmp_path: Path
) -> None:
    fit = ["fit", log, "--model", "multiclick", "--to", tmp_path / "model"]
    other = tmp_path / "other" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other.parents[1]], check=True)
    done = run_command(*fit, *where, PYSPARK_PYTHON=str(other))
    assert done.returncode == 2
    assert "The executors cannot run Reclick's tasks: ModuleNotFoundError" in done.stderr
    # All that the driver has but Reclick, which is found through a .pth file of its own.
    (library,) = other.parents[1].glob("lib/python*/site-packages")
    (library / "driver.pth").write_text(str(HOME.parent))
    done = run_command(*fit, *where, PYSPARK_PYTHON=str(other))
    assert done.returncode == 2
    assert "with Reclick not installed, and the driver has Python" in done.stderr
    assert not (tmp_path / "model").exists()


def test_an_interrupted_fit_leaves_nothing(where: list[object], log: Path, tmp_path: Path) -> None:
    words = ["fit", log, "--model", "ubm", "--set=tolerance=0", "--set=max_iterations=100000"]
    running = subprocess.Popen(
        [sys.executable, "-m", "reclick", *map(str, (*words, "--to", tmp_path / "m", *where))],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watchdog = threading.Timer(WAIT, running.kill)
    watchdog.start()
    assert running.stderr is not None
    for line in running.stderr:
        if "iterations" in line:
            break
    java = [each for each in psutil.Process(running.pid).children() if "java" in each.name()]
    assert len(java) == 1
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    rest = running.stderr.read()
    assert running.wait(WAIT) == 130, rest
    watchdog.cancel()
    assert rest.strip().endswith("either the new version or the old one.")
    assert "Traceback" not in rest
    psutil.wait_procs(java, WAIT)
    assert not any(each.is_running() and each.status() != "zombie" for each in java)
    assert not (tmp_path / "m").exists()
    assert list((tmp_path / "shared").iterdir()) == []


# ---- Spark Connect

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
session.stop()
print("the same")
"""


def test_spark_connect_gives_the_same_answers(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    environment = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK}
    environment.pop("PYSPARK_PYTHON", None)
    running = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", CONNECT, str(log), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, _ = running.communicate(timeout=WAIT)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGABRT)  # it prints where it hangs
        out, _ = running.communicate()
        pytest.fail(f"Spark Connect did not end in {WAIT} s: {out[-3000:]}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # the server is a process of this group
    assert "the same" in out.splitlines(), out[-3000:]
