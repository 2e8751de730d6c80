"""The command line on a cluster: in a file of its own, as no other session may hold its cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.runtime.progress import PROGRESS_VARIABLE
from tests.engines.test_tasks import assert_same_model
from tests.support.s3_server import run_s3_server
from tests_cluster.cluster import HOME, LOOPBACK, UBM, WAIT, Cluster


def run_command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_process([sys.executable, "-m", "reclick", *words], **environment)


def run_process(words: list[object], **environment: str) -> subprocess.CompletedProcess[str]:
    running = subprocess.Popen(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        out, err = running.communicate(timeout=WAIT)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # its Java, which would hold the cores
    return subprocess.CompletedProcess(running.args, running.returncode, out, err)


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


def test_a_log_a_model_and_the_shared_folder_in_a_bucket(
    cluster: Cluster, log: Path, tmp_path: Path
) -> None:
    with run_s3_server() as server:
        server.client.create_dir("bucket")
        with server.client.open_output_stream("bucket/week/log.parquet") as file:
            file.write(log.read_bytes())
        # Executors do not have the environment of the driver.
        settings = [
            f"--conf spark.executorEnv.{name}={x}" for name, x in server.environment.items()
        ]
        environment = {
            **server.environment,
            "PYSPARK_SUBMIT_ARGS": " ".join([*settings, "pyspark-shell"]),
        }
        where = ["--engine", "spark", "--master", cluster.url, "--tasks", 2]
        shared = ["--shared-folder", "s3://bucket/tmp"]
        fit = ["fit", "s3://bucket/week/", "--model", "multiclick", "--to", "s3://bucket/model"]
        done = run_command(*fit, *where, *shared, **environment)
        assert done.returncode == 0, done.stderr
        fitted = rc.MultiClick().fit(log)
        found = server.client.get_file_info(pyarrow.fs.FileSelector("bucket", recursive=True))
        files = [each.path for each in found if each.type == pyarrow.fs.FileType.File]
        assert not [path for path in files if path.startswith("bucket/tmp/")]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            assert rc.load("s3://bucket/model").training_counts == fitted.training_counts
        scores = tmp_path / "scores"
        for words in (
            [
                "predict",
                "s3://bucket/model",
                "s3://bucket/week/",
                "--to",
                "s3://bucket/two.parquet",
            ],
            [
                *("evaluate", "--models", "s3://bucket/model", "--test", "s3://bucket/week/"),
                *("--in-sample", "--resamples", 20, "--to", scores),
            ],
        ):
            done = run_command(*words, *where, *shared, **environment)
            assert done.returncode == 0, done.stderr
        rc.predict(fitted, log, tmp_path / "one.parquet")
        with server.client.open_input_file("bucket/two.parquet") as predictions:
            assert pq.read_table(predictions).equals(pq.read_table(tmp_path / "one.parquet"))
        assert (scores / "report.html").exists()


def test_spark_submit_runs_a_command(cluster: Cluster, log: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.py"
    run.write_text("from reclick.__main__ import main\n\nif __name__ == '__main__':\n    main()\n")
    words = ["count", log, "--engine", "spark", "--to", tmp_path / "counts", "--tasks", 2]
    submit = ["--master", cluster.url, "--conf", "spark.driver.bindAddress=127.0.0.1", run]
    done = run_process(
        [HOME / "bin" / "spark-submit", *submit, *words, "--shared-folder", tmp_path / "shared"],
        SPARK_LOCAL_IP=LOOPBACK,
        PYSPARK_DRIVER_PYTHON=sys.executable,  # executors run the same
    )
    assert done.returncode == 0, done.stderr
    assert rc.Counts.load(tmp_path / "counts") == rc.count(log)


def test_executors_with_another_python_are_named(
    where: list[object], log: Path, tmp_path: Path
) -> None:
    fit = ["fit", log, "--model", "multiclick", "--to", tmp_path / "model"]
    other = tmp_path / "other" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other.parents[1]], check=True)
    done = run_command(*fit, *where, PYSPARK_PYTHON=str(other))
    assert done.returncode == 2
    assert "The executors cannot run Reclick's tasks: ModuleNotFoundError" in done.stderr
    # All that the driver has but Reclick, which is found through a .pth file of its own, or through
    # PYTHONPATH, which executors have from the workers.
    (library,) = other.parents[1].glob("lib/python*/site-packages")
    source = str(Path(rc.__file__).parents[1])
    hide = f"import sys; sys.path[:] = [each for each in sys.path if each != {source!r}]"
    (library / "driver.pth").write_text(f"{HOME.parent}\n{hide}\n")
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
        env={**os.environ, PROGRESS_VARIABLE: "1"},  # the test waits for it
    )
    watchdog = threading.Timer(WAIT, running.kill)
    watchdog.start()
    assert running.stderr is not None
    lines = []
    for line in running.stderr:
        lines.append(line)
        if "iterations" in line:
            break
    assert running.poll() is None, "".join(lines[-10:])
    java = [each for each in psutil.Process(running.pid).children() if "java" in each.name()]
    assert len(java) == 1
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    rest = running.stderr.read()
    running.stderr.close()
    assert running.wait(WAIT) == 130, rest
    watchdog.cancel()
    assert "either the new version or the old one." in rest  # Java may log its tasks' end after it
    assert "Traceback" not in rest
    psutil.wait_procs(java, WAIT)
    assert not any(each.is_running() and each.status() != "zombie" for each in java)
    assert not (tmp_path / "m").exists()
    assert list((tmp_path / "shared").iterdir()) == []
