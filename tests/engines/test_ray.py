"""Ray gives the answers of one process. `make test-cluster` installs it and runs this."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.errors import LogError, SettingError
from reclick.simulation import simulate
from tests.engines.test_tasks import assert_same_model

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: make test-cluster does")
UBM: dict[str, Any] = {"max_iterations": 3, "tolerance": 0, "attractiveness_prior": "overall"}


@pytest.fixture(scope="module")
def engine() -> Iterator[rc.RayEngine]:
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    made = rc.RayEngine(tasks=3, buckets=2)
    yield made
    made.close()
    ray.shutdown()


def test_ray_gives_the_answers_of_one_process(engine: rc.RayEngine, tmp_path: Path) -> None:
    (week,) = simulate(2_000, weeks=1, queries=30, seed=4).weeks
    log = tmp_path / "week.parquet"
    pq.write_table(week, log, row_group_size=600)
    assert rc.count(log, engine=engine) == rc.count(log)
    model = rc.UBM(**UBM).fit(log, engine=engine)
    assert_same_model(model, rc.UBM(**UBM).fit(log))
    rc.predict(model, log, tmp_path / "one.parquet")
    rc.predict(model, log, tmp_path / "two.parquet", engine=engine)
    tables = [pq.read_table(tmp_path / f"{name}.parquet") for name in ("one", "two")]
    assert tables[0].equals(tables[1])


def test_errors_of_tasks_are_raised_here(engine: rc.RayEngine, tmp_path: Path) -> None:
    with pytest.raises(LogError):
        rc.count({"query": [], "ads": [], "clicks": []}, engine=engine)
    with pytest.raises(SettingError, match="tasks: got 0"):
        rc.RayEngine(tasks=0)
    assert repr(engine) == "RayEngine(tasks=3, buckets=2)"
