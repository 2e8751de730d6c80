"""Spark Connect gives the answers of one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests_cluster.cluster import LOOPBACK, WAIT

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
assert np.array_equal(one.theta_, two.theta_)
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
