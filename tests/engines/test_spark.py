"""Spark gives the answers of one process. One session serves the whole file: starting one is slow.

The cluster, Spark Connect and killed processes are in tests_cluster.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.cli import app
from reclick.data.hashing import query_buckets
from reclick.engines import as_grouped, count
from reclick.engines.spark import _explain_spark_errors, _shorten, open_session
from reclick.engines.store import Store
from reclick.errors import BadRowsError, EngineError, LogError, SettingError
from reclick.simulation import simulate
from tests.engines.test_engines_agree import assert_same_groups
from tests.engines.test_tasks import assert_same_model
from tests.support.enumeration import as_table, random_sessions

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytestmark = [
    pytest.mark.skipif(
        shutil.which("java") is None and "JAVA_HOME" not in os.environ,
        reason="Spark needs Java, which is not installed",
    ),
    pytest.mark.filterwarnings("ignore"),  # PySpark on the versions of others
]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}
FEW: dict[str, Any] = {"max_iterations": 2, "tolerance": 0}
OVERALL: dict[str, Any] = {"attractiveness_prior": "overall"}  # without a pilot


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    del os.environ["PYSPARK_PYTHON"]


def test_spark_gives_the_answers_of_one_process(
    session: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One test, so that the workers of a test run start one session between them."""
    engine = rc.SparkEngine(session, tasks=2)
    check_buckets(session)
    check_logs(session, engine, tmp_path)
    check_bad_rows(session, engine, tmp_path)
    check_fits(session, engine, tmp_path)
    check_commands(tmp_path, capsys)
    check_versions(engine, monkeypatch)
    check_folder(session, monkeypatch)


def check_buckets(session: Any) -> None:
    from pyspark.sql import functions

    texts = ["pizza", "", "é", "👟", "x" * 31, "y" * 32, "z" * 100, "a b c d e"]
    frame = session.createDataFrame([(text,) for text in texts], "query string")
    rows = frame.select(functions.expr("pmod(xxhash64(query), 97)")).collect()
    assert [row[0] for row in rows] == query_buckets(pa.array(texts), 97).tolist()


def check_logs(session: Any, engine: rc.SparkEngine, folder: Path) -> None:
    """Counts and groups of files and frames: skewed, with empty partitions, 1 bucket and 200."""
    table = as_table(random_sessions(np.random.default_rng(1), 400, queries="qrstuvwxyz"))
    half = pa.array(["much"] * 200).cast(table["query"].type)
    queries = pa.chunked_array([half, table["query"].slice(200).combine_chunks()])
    skewed = table.set_column(table.column_names.index("query"), "query", queries)
    path = folder / "skewed.parquet"
    pq.write_table(skewed, path, row_group_size=90)
    plain = as_grouped(path)
    assert_same_groups(as_grouped(path, engine=engine), plain)
    many = rc.SparkEngine(session, tasks=2, buckets=200)
    assert count(path, engine=many) == plain.counts
    one = rc.SparkEngine(session, tasks=3, buckets=1)
    frame = session.read.parquet(str(path)).repartition(5).filter("query <> 'q'")
    kept = skewed.filter(pa.compute.not_equal(skewed["query"], "q"))
    from_frame = count(rc.read_sessions(frame), engine=one)
    assert from_frame == count(kept)
    assert from_frame.logs[0].content == count(kept).logs[0].content  # in any order
    nothing = session.createDataFrame([], frame.schema).repartition(3)
    with pytest.raises(LogError, match="has no rows"):
        count(rc.read_sessions(nothing), engine=engine)
    with pytest.raises(LogError, match=r"read by Spark's tasks only.*rc\.SparkEngine"):
        count(rc.read_sessions(frame))
    with pytest.raises(LogError, match="no column query"):
        rc.read_sessions(frame.withColumnRenamed("query", "text"))
    renamed = rc.read_sessions(
        frame.withColumnRenamed("query", "my text"), columns={"query": "my text"}
    )
    assert count(renamed, engine=one) == count(kept)


def check_bad_rows(session: Any, engine: rc.SparkEngine, folder: Path) -> None:
    table = as_table(random_sessions(np.random.default_rng(2), 60))
    rows = table.to_pylist()
    for i in (7, 30, 31, 59):
        rows[i]["ads"] = []
    path = folder / "bad.parquet"
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path, row_group_size=20)
    one, two = (rc.read_sessions(path, on_error="drop") for _ in range(2))
    assert count(one, engine=engine) == count(two)
    assert one.summary == two.summary
    with pytest.raises(BadRowsError) as local:
        count(path)
    with pytest.raises(BadRowsError) as spark:
        count(path, engine=engine)
    assert str(spark.value) == str(local.value)
    frame = rc.read_sessions(session.read.parquet(str(path)), on_error="drop")
    assert count(frame, engine=engine) == count(two)
    assert frame.summary.dropped == two.summary.dropped
    (examples,) = frame.summary.examples.values()
    assert examples[0].where.startswith("partition ")


def check_fits(session: Any, engine: rc.SparkEngine, folder: Path) -> None:
    (week,) = simulate(2_000, weeks=1, queries=30, seed=4).weeks
    path = folder / "week.parquet"
    pq.write_table(week, path, row_group_size=600)
    log = rc.read_sessions(path)
    ubm = rc.UBM(**FEW, **OVERALL)  # others: tests_cluster, and in processes test_tasks.py
    assert_same_model(ubm.clone().fit(log, engine=engine), ubm.clone().fit(log))
    tuned = rc.LuceClick(**FEW)  # its hyperparameters are chosen
    one, two = tuned.clone().fit(log), tuned.clone().fit(log, engine=engine)
    assert_same_model(one, two)
    three = tuned.fit_to(folder / "buckets", log, buckets=3, engine=engine).to_memory()
    assert_same_model(three, one, 1e-9)
    assert one.hyperparameters_ == two.hyperparameters_ == three.hyperparameters_
    options: dict[str, Any] = {"in_sample": True, "resamples": 20}
    local = rc.evaluate({"LuceClick": one}, log, **options)
    remote = rc.evaluate({"LuceClick": one}, log, engine=engine, **options)
    values = [np.array(each.scores["value"], np.float64) for each in (local, remote)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-9)
    rc.predict(one, log, folder / "one.parquet")
    rc.predict(one, log, folder / "two.parquet", engine=engine)
    expected = pq.read_table(folder / "one.parquet")
    assert expected.equals(pq.read_table(folder / "two.parquet"))
    frame = session.read.parquet(str(path))
    rc.predict(one, frame, folder / "three.parquet", engine=engine)
    lazy = rc.load(folder / "buckets", cache_bytes=1000)  # one bucket at a time
    rc.predict(lazy, path, folder / "four.parquet", engine=engine)
    rc.predict(lazy, frame, folder / "five.parquet", engine=engine)
    added = [name for name in expected.column_names if name not in week.column_names]
    three, four, five = (
        pq.read_table(folder / f"{name}.parquet", columns=added).to_pylist()
        for name in ("three", "four", "five")
    )
    assert three == expected.select(added).to_pylist()
    rc.predict(lazy, path, folder / "six.parquet")
    assert four == five == pq.read_table(folder / "six.parquet", columns=added).to_pylist()


def check_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line, on the session that is there, with the log of `check_fits`."""
    log, shared, model = folder / "week.parquet", folder / "shared", folder / "model"
    where = ["--engine", "spark", "--master", "local[2]", "--shared-folder", shared, "--tasks", 2]

    def reclick(*arguments: object) -> None:
        with pytest.raises(SystemExit) as end:
            app([str(each) for each in (*arguments, *where)])
        assert end.value.code == 0, capsys.readouterr().err

    reclick("fit", log, "--model", "multiclick", "--to", model)
    assert_same_model(rc.load(model), rc.MultiClick().fit(log))
    reclick("predict", model, log, "--to", folder / "seven.parquet")
    rc.predict(rc.load(model), log, folder / "eight.parquet")
    seven, eight = (pq.read_table(folder / f"{name}.parquet") for name in ("seven", "eight"))
    assert seven.equals(eight)
    test = ["--test", log, "--in-sample", "--resamples", 20]
    reclick("evaluate", "--models", model, *test, "--to", folder / "results")
    assert (folder / "results" / "report.html").exists()
    reclick("count", log, "--to", folder / "counts")
    assert rc.Counts.load(folder / "counts") == count(log)
    capsys.readouterr()
    reclick("describe", log)
    assert capsys.readouterr().out.strip() == str(rc.describe(log)).strip()
    assert list(shared.iterdir()) == []


def check_versions(engine: rc.SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task compares versions."""
    engine._is_checked = False
    with monkeypatch.context() as patch:
        patch.setattr("reclick.engines.spark.describe_python", lambda: "Python 2.7 with Reclick 0")
        with pytest.raises(EngineError, match=r"The executor .* has Python 3.*driver has Python 2"):
            engine.run(abs, 2, "")


def check_folder(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task looks for the folder."""
    engine = rc.SparkEngine(session, tasks=1)
    monkeypatch.setattr(Store, "put", lambda *_: None)
    with pytest.raises(EngineError, match=r"The executor .* does not see .*Give as folder one"):
        engine.check_executors()


def test_a_master_that_does_not_answer_is_an_error_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = "127.0.0.1:{1}".format(*taken.getsockname())
        with pytest.raises(EngineError, match=rf"No Spark master .*{address}.*refused"):
            open_session(f"spark://{address}")
        with pytest.raises(EngineError, match=rf"No Spark master .*{address}.*refused"):
            open_session(f"sc://{address}/;token=abc")


def test_spark_errors_are_cut_to_what_says_something() -> None:
    python = "An error.\nTraceback:\nModuleNotFoundError: No module named 'x'\n\n  at java\n"
    assert _shorten(ValueError(python)) == "ModuleNotFoundError: No module named 'x'."
    java = "An error.\n: org.SparkException: Job\nCaused by: java.io.IOException: no python\n"
    assert _shorten(ValueError(java)) == "java.io.IOException: no python."
    assert _shorten(ValueError("Short.")) == "Short."


def test_an_error_after_an_interruption_is_the_interruption() -> None:
    """Java gets Ctrl-C too: Spark may be gone when PySpark cancels its jobs."""
    gone = type("Py4JError", (Exception,), {"__module__": "py4j.protocol"})
    error = gone("Gateway must be connected to send cancel cmd.")
    with pytest.raises(EngineError, match="Gateway"), _explain_spark_errors():
        raise error
    try:
        raise KeyboardInterrupt  # noqa: TRY301
    except KeyboardInterrupt:  # a job that runs after Ctrl-C was handled
        with pytest.raises(EngineError, match="Gateway"), _explain_spark_errors():
            raise gone("Gateway")  # noqa: B904
    unbound = UnboundLocalError("cannot access local variable 'sockfile'")  # of PySpark's clean-up
    with pytest.raises(UnboundLocalError), _explain_spark_errors():
        raise unbound
    for each in (error, unbound):
        each.__context__ = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt), _explain_spark_errors():
            raise each


def test_errors_of_py4j_on_an_interruption_are_not_printed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspark.sql.SparkSession.builder", SparkBuilder())
        patch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as spark-submit sets it
        patch.delenv("PYSPARK_PYTHON", raising=False)
        assert open_session(None) == "a session"
        assert os.environ["PYSPARK_PYTHON"] == sys.executable  # that executors run too
    logging.error("KeyboardInterrupt while sending command.")
    logging.error("Something else.")
    assert [record.getMessage() for record in caplog.records] == ["Something else."]


def test_no_session_is_started_where_no_cluster_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("there is none")

    monkeypatch.setattr("pyspark.sql.SparkSession.active", refuse)
    with pytest.raises(EngineError, match=r"no Spark session.*no cluster is named.*spark-submit"):
        open_session(None)
    with pytest.raises(SystemExit) as end:
        app(["count", "logs", "--engine", "spark", "--to", "counts"])
    assert end.value.code == 2
    assert "Give its address as --master" in capsys.readouterr().err
    monkeypatch.setattr("pyspark.sql.SparkSession.active", object)  # as in a notebook
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", SparkBuilder())
    assert open_session(None) == "a session"


class SparkBuilder:
    def appName(self, name: str) -> SparkBuilder:  # noqa: N802, as Spark spells it
        return self

    def getOrCreate(self) -> str:  # noqa: N802
        return "a session"


def test_a_cluster_needs_a_folder_that_all_reach() -> None:
    class Conf:
        def get(self, name: str, default: str) -> str:
            return "spark://host:7077" if name == "spark.master" else default

    class Session:
        conf, version = Conf(), "4.0.0"
        range = createDataFrame = None  # noqa: N815, as Spark spells it

    with pytest.raises(SettingError, match="folder: got None, expected a folder that the driver"):
        rc.SparkEngine(Session())
    assert rc.SparkEngine(Session(), folder="/mnt/shared").n_tasks == 32
    Session.version = "3.5.1"
    with pytest.raises(EngineError, match=r"has Spark 3\.5\.1: Reclick needs 4\.0 or newer"):
        rc.SparkEngine(Session(), folder="/mnt/shared")
    with pytest.raises(SettingError, match="session: got 7, expected a SparkSession"):
        rc.SparkEngine(7)
