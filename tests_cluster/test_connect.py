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
from pathlib import Path
import numpy as np
import pyarrow.parquet as pq
import reclick as rc
from pyspark.sql import SparkSession
session = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(session).__module__
engine = rc.SparkEngine(session, tasks=2, folder=sys.argv[2])
log = sys.argv[1]
other = rc.simulate(2_000, weeks=1, queries=300, seed=5).weeks[0]
assert rc.count(log, engine=engine) == rc.count(log)
assert rc.count(session.read.parquet(log), engine=engine) == rc.count(log)
frame, folder = session.read.parquet(log), Path(sys.argv[2])
settings = dict(max_iterations=3, tolerance=0, attractiveness_prior="overall")
model = rc.UBM(**settings)
one, two = model.clone().fit(log), model.clone().fit(log, engine=engine)
assert np.array_equal(one.theta_, two.theta_)
three = model.fit_to(folder / "model", frame, buckets=4, engine=engine).to_memory()
assert abs(one.theta_ - three.theta_).max() < 1e-9
rc.predict(one, log, folder / "one.parquet")
rc.predict(one, log, folder / "two.parquet", engine=engine)
lazy = rc.load(folder / "model", cache_bytes=1000)  # one bucket at a time
rc.predict(lazy, frame, folder / "three.parquet", engine=engine)
first, second, third = (
    pq.read_table(folder / f"{name}.parquet")["click_prob"].combine_chunks().values.to_numpy()
    for name in ("one", "two", "three")
)
assert np.array_equal(first, second)
assert abs(first - third).max() < 1e-9
local, remote = (
    rc.evaluate({"UBM": one}, log, in_sample=True, resamples=5, engine=each).scores["value"]
    for each in (None, engine)
)
assert np.allclose(local.to_numpy(), remote.to_numpy(), rtol=1e-9, equal_nan=True)
counted = [
    rc.MultiClick().fit(log, engine=each).update(other, engine=each) for each in (None, engine)
]
assert counted[0].training_counts == counted[1].training_counts
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
