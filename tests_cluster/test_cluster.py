"""Spark on a real standalone master with two workers, and processes that are killed.

`make test-cluster` runs this folder, in some minutes. Everything listens on loopback only.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.engines import as_grouped
from reclick.errors import SettingError, check_whole
from reclick.metrics.chunk_sums import score
from reclick.runtime.filesystem import as_path
from reclick.simulation import simulate
from tests.engines.test_engines_agree import assert_same_groups
from tests.engines.test_tasks import assert_same_model
from tests.support.s3_server import KEY, SECRET, run_s3_server
from tests_cluster.cluster import LOOPBACK, UBM, WAIT, Cluster

pytestmark = pytest.mark.filterwarnings("ignore")
TRIES = 6


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
        self._found: list[psutil.Process] = []
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

    def prepare(self) -> None:
        """Look for the victims before the job: a stage may be over sooner than a look at all."""
        if self.victim == "worker":
            here = psutil.Process(self.cluster.workers[0].pid)
            self._found = here.children(recursive=True)
        else:
            self._found = self.cluster.below(self.victim)

    def _kill(self) -> None:
        if self.victim == "worker":
            self._kill_worker()
            return
        end = time.monotonic() + WAIT
        while time.monotonic() < end:  # there may be none yet, after the last kill
            found, self._found = self._found or self.cluster.below(self.victim), []
            with suppress(psutil.Error):
                if found:
                    found[0].send_signal(signal.SIGKILL)
                    self.hits += self._is_open
                    return
            time.sleep(0.05)
        raise TimeoutError(f"no process of {self.victim} to kill in {WAIT} s")

    def _kill_worker(self) -> None:
        """Kill a worker and everything below it, and start another."""
        os.killpg(self.cluster.workers[0].pid, signal.SIGKILL)
        for each in self._found:
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
    free: dict[str, Any] = {"attractiveness_prior": "overall", "tolerance": 1e-3}
    models: list[Any] = [
        rc.UBM(**free),  # which ends by itself, after the same number of iterations
        rc.DBN(continuation=0.9, **simple),
        rc.CCM(**simple),
        rc.THCM(**simple),
        rc.LuceClick(**few),
    ]
    for model in models:
        one, two = model.clone().fit(log), model.clone().fit(log, engine=engine)
        assert_same_model(two, one)
        if model is models[0]:
            assert one.converged_
            assert 3 < one.iterations_ < 40
    later = simulate(2_000, weeks=1, queries=300, seed=5).weeks[0]
    updated = [one.clone().fit(log).update(later, engine=each) for each in (None, engine)]
    assert_same_model(updated[1], updated[0])
    scores = [score(one, log), score(one, log, engine=engine)]
    np.testing.assert_allclose(scores[0].sums, scores[1].sums, rtol=1e-9, atol=1e-9)


JOBS = {
    "count": "parts counted",
    "group": "parts grouped",
    "EM": "iterations",
    "predict": "parts done",
    "join": "groups of buckets done",
    "write": "buckets written",
    "write to S3": "buckets written",
}
VICTIMS = ["pyspark.daemon", "CoarseGrainedExecutorBackend", "worker"]
ONE_VICTIM = {"join": VICTIMS[0], "write to S3": VICTIMS[1]}  # to save time


@pytest.mark.parametrize(
    ("job", "victim"),
    [(job, each) for job in JOBS for each in VICTIMS if ONE_VICTIM.get(job, each) == each],
)
def test_a_killed_process_changes_nothing(
    engine: rc.SparkEngine, cluster: Cluster, log: Path, tmp_path: Path, victim: str, job: str
) -> None:
    engine.check_executors()
    kill = Kill(cluster, victim, JOBS[job])
    for _ in range(TRIES):  # until the kill falls into the stage
        kill.prepare()
        try:
            run_job(job, log, tmp_path, engine, kill)
        finally:
            kill.join()
        if kill.hits:
            break
    assert kill.hits, f"no kill during {job} in {TRIES} runs"
    left = {each.name for each in tmp_path.iterdir()} - {".reclick-files.json"}
    assert left <= {"one.parquet", "two.parquet", "model"}


def run_job(job: str, log: Path, folder: Path, engine: rc.SparkEngine, kill: Kill) -> None:
    """Run a job while something is killed, and compare the result with that of one process."""
    if job == "count":
        assert rc.count(log, engine=engine, progress=kill) == rc.count(log)
    elif job == "group":
        assert_same_groups(as_grouped(log, engine=engine, progress=kill), as_grouped(log))
    elif job == "EM":
        one = rc.UBM(**UBM).fit(log)
        assert_same_model(rc.UBM(**UBM).fit(log, engine=engine, progress=kill), one)
    elif job == "write":
        check_fit_in_buckets(log, folder / "model", engine, kill)
    elif job == "write to S3":
        with run_s3_server() as server:
            server.client.create_dir("bucket")
            options = f"endpoint_override=127.0.0.1:{server.port}&scheme=http&region=us-east-1"
            place = f"s3://{KEY}:{SECRET}@bucket/model?{options}"  # executors need no environment
            check_fit_in_buckets(log, place, engine, kill)
    else:
        model: Any = rc.MultiClick().fit(log)
        rc.predict(model, log, folder / "one.parquet")
        if job == "join":
            model.save(folder / "model", buckets=12)
            model = rc.load(folder / "model", cache_bytes=1000)  # one bucket at a time
        rc.predict(model, log, folder / "two.parquet", engine=engine, progress=kill)
        tables = [pq.read_table(folder / f"{name}.parquet") for name in ("one", "two")]
        assert tables[0].equals(tables[1])


def check_fit_in_buckets(log: Path, target: Any, engine: rc.SparkEngine, kill: Kill) -> None:
    """Replace a model in buckets by another; nothing is left of what a lost task has written."""
    model = rc.UBM(max_iterations=3, tolerance=0, attractiveness_prior="overall")
    rc.DCTR().fit(log).save(target, buckets=12)
    lazy = model.fit_to(target, log, buckets=12, engine=engine, progress=kill)
    assert_same_model(rc.load(target).to_memory(), model.fit(log), 1e-9)
    parts = as_path(target) / cast(Any, lazy)._artifact.settings["parts"]
    assert {each.name for each in parts.iterdir()} <= {f"{i:05d}" for i in range(12)}
    lazy.check_folder()


def test_a_failed_fit_in_buckets_leaves_the_old_model(
    engine: rc.SparkEngine, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = rc.DCTR().fit(log)
    old.save(tmp_path / "model", buckets=4)
    fail = functools.partial(check_whole, "buckets", low=0)  # a function that executors have
    monkeypatch.setattr("reclick.models.bucket_fit.BucketFit._row_setter", lambda _: fail)
    with pytest.raises(SettingError, match="expected a whole number"):
        rc.MultiClick().fit_to(tmp_path / "model", log, buckets=4, engine=engine)
    assert_same_model(cast(Any, rc.load(tmp_path / "model")).to_memory(), old)


def test_a_failed_job_leaves_the_old_file(
    engine: rc.SparkEngine, log: Path, tmp_path: Path
) -> None:
    target = tmp_path / "predictions.parquet"
    target.write_text("the old one")
    fail = functools.partial(check_whole, "sessions", low=0)  # a function that executors have
    with pytest.raises(SettingError, match="expected a whole number"):
        engine.map(fail, rc.read_sessions(log), target)
    assert target.read_text() == "the old one"
