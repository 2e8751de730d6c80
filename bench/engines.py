"""The process pool and Spark on 2 cores, relative to one process, and the memory of the driver.

`python -m bench.engines 10000000 speed driver` measures the speed on a log of that many sessions,
and the memory of the driver on a log with a long tail; `answers` compares answers on real logs.
Without arguments, all three run. CPU seconds are those of the whole process tree, Java included.
Everything runs on a small log before it is measured, so that kernels are loaded and Java has
compiled its hot code: the first hundred rounds take several times as long. All limits are printed
again at the end.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import reclick as rc
from bench.biglogs import write_log
from bench.measure import WORK, measure, print_row
from bench.real import data_folder
from reclick.engines import as_grouped
from reclick.metrics.chunk_sums import score

ROW_GROUP = 125_000
TASKS = 4
SESSIONS = 1_000_000
WARM_SESSIONS = 40_000
TAIL_SESSIONS, TAIL_BUCKETS = 1_750_000, 32  # 7 million pairs
PARTS = 6  # of a real log
SHORT: dict[str, Any] = {"max_iterations": 12}
PARITY_MODELS: list[Any] = [
    rc.UBM(**SHORT),
    rc.DBN(continuation=0.9, **SHORT),
    rc.CCM(**SHORT),
    rc.THCM(**SHORT),
    rc.LuceClick(),
]
START_SPARK = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
import reclick as rc
from reclick.engines.spark import open_session
engine = rc.SparkEngine(open_session("local[2]"), tasks=4)
"""


ALL_PARTS = ("answers", "speed", "driver")
REAL_LOGS = ("yandex", "naver")
printed_rows: list[tuple[str, str, str, bool]] = []  # rows of this run


class Cost(NamedTuple):
    """The seconds, CPU seconds and result of a run."""

    seconds: float
    cpu: float
    result: Any

    def __str__(self) -> str:
        return f"{self.seconds:7.1f} s {self.cpu:7.1f} CPU s"


def main(sessions: int = SESSIONS, parts: Sequence[str] = ALL_PARTS) -> bool:
    """Print the tables, and return whether every limit holds."""
    from reclick.engines.spark import open_session

    warnings.simplefilter("ignore")
    os.environ["RECLICK_PROGRESS"] = "0"
    logging.getLogger("reclick").setLevel(logging.ERROR)  # fits with few iterations warn
    spark = open_session("local[2]")
    engines = {"pool": rc.PoolEngine(workers=2), "spark": rc.SparkEngine(spark, tasks=TASKS)}
    printed_rows.clear()
    for name in REAL_LOGS if "answers" in parts else ():
        _compare_answers(name, engines)
    if "speed" in parts:
        _measure_speed(sessions, engines, spark)
    engines["pool"].close()
    engines["spark"].close()
    spark.stop()
    if "driver" in parts:
        _measure_driver()
    print("\nAll limits of this run\n")
    for row in printed_rows:
        print_row(*row)
    return all(good for *_, good in printed_rows)


def _judge(name: str, value: str, limit: str, is_within_limit: bool) -> bool:
    """Print a row, and store it to be printed again at the end."""
    printed_rows.append((name, value, limit, is_within_limit))
    return print_row(name, value, limit, is_within_limit)


# ---- the answers on real logs


def _compare_answers(name: str, engines: dict[str, Any]) -> bool:
    """Counts, fits, predictions and metric sums on a real log, relative to one process."""
    source = data_folder() / f"{name}.parquet"
    if not source.exists():
        print(f"\n{name}: skipped, {source} is not there (set RECLICK_DATA to its folder)")
        return True
    table, path = pq.read_table(source), WORK / f"engines-{name}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, row_group_size=len(table) // PARTS + 1)
    print(f"\nThe answers on {name}: {len(table):,} sessions in {PARTS} row groups\n")
    model = rc.MultiClick(variant="normalised").fit(path)
    outputs = {engine_name: WORK / f"{engine_name}.parquet" for engine_name in ("local", *engines)}
    rc.predict(model, path, outputs["local"], overwrite=True)
    counts, sums = rc.count(path), score(model, path).sums
    predictions = pq.read_table(outputs["local"])
    good = []
    for engine_name, engine in engines.items():
        equal = rc.count(path, engine=engine) == counts
        good.append(_judge(f"{engine_name}: counts equal, bit for bit", str(equal), "True", equal))
        rc.predict(model, path, outputs[engine_name], engine=engine, overwrite=True)
        equal = pq.read_table(outputs[engine_name]).equals(predictions)
        good.append(
            _judge(f"{engine_name}: predictions equal, in order", str(equal), "True", equal)
        )
        differences = np.abs(score(model, path, engine=engine).sums - sums)
        most = float((differences / np.maximum(np.abs(sums), 1.0)).max())
        good.append(
            _judge(
                f"{engine_name}: largest relative difference of metric sums",
                f"{most:.0e}",
                "≤ 1e-9",
                most <= 1e-9,
            )
        )
    groups = as_grouped(path)
    return all(
        [*good, *(_compare_fits(parity_model, groups, engines) for parity_model in PARITY_MODELS)]
    )


def _compare_fits(model: Any, groups: Any, engines: dict[str, Any]) -> bool:
    """Check that all parameters and the number of iterations of a model are exactly the same."""
    one, good = model.clone().fit(groups, engine=rc.LocalEngine(threads=1)), True
    for engine_name, engine in {"two threads": rc.LocalEngine(threads=2), **engines}.items():
        two = model.clone().fit(groups, engine=engine)
        difference, iterations = _model_distance(one, two), (one.iterations_, two.iterations_)
        same = difference == 0 and iterations[0] == iterations[1]
        label = (
            f"{engine_name}: {type(one).__name__}, {iterations[1]} of {iterations[0]} iterations"
        )
        good &= _judge(f"{label}: difference of parameters", f"{difference:.0e}", "0", same)
    return good


def _model_distance(one: Any, two: Any) -> float:
    names = (*one.pair_parameters, *one.global_parameters)
    return max(_distance(getattr(one, name), getattr(two, name)) for name in names)


def _distance(one: Any, two: Any) -> float:
    """The largest difference of two parameters; relative for values above 1, such as counts."""
    first, second = np.asarray(one), np.asarray(two)
    if first.dtype.kind not in "fi" or not first.size:
        return 0.0 if np.array_equal(first, second) else np.inf
    return float((np.abs(first - second) / np.maximum(np.abs(first), 1.0)).max())


# ---- speed


def _measure_speed(sessions: int, engines: dict[str, Any], spark: Any) -> list[bool]:
    path, small = _write_log(sessions), _write_log(WARM_SESSIONS)
    print(
        f"\nEngines: {sessions:,} sessions, 2 cores, {TASKS} tasks, CPU seconds of all processes\n"
    )
    n_rows = len(printed_rows)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        for _ in range(2):
            _run_all(small, engines, spark)
    del printed_rows[n_rows:]
    return _run_all(path, engines, spark)


def _run_all(path: Path, engines: dict[str, Any], spark: Any) -> list[bool]:
    good = _count(path, engines, spark)
    good += _fit(path, engines)
    good += _predict(path, engines["spark"])
    return [*good, _measure_empty_tasks(engines["spark"])]


def _write_log(sessions: int) -> Path:
    path = WORK / f"engines-{sessions}.parquet"
    if not path.exists():
        whole = write_log(WORK / f"engines-{sessions}-whole.parquet", sessions, seed=1)
        pq.write_table(pq.read_table(whole), path, row_group_size=ROW_GROUP, compression="zstd")
    return path


def _tree_cpu() -> dict[int, float]:
    """The CPU seconds of this process and of all its descendants, by process."""
    this_process, seconds = psutil.Process(), {}
    for process in [this_process, *this_process.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds[process.pid] = times.user + times.system
    return seconds


def _run(name: str, work: Callable[[], Any]) -> Cost:
    before, start = _tree_cpu(), time.perf_counter()
    result = work()
    seconds, after = time.perf_counter() - start, _tree_cpu()
    # Spark ends Python workers that were idle for a minute: their CPU seconds are not counted.
    cpu = sum(cpu_after - before.get(process, 0.0) for process, cpu_after in after.items())
    cost = Cost(seconds, cpu, result)
    print(f"  {name:<44} {cost}", flush=True)
    return cost


def _row(name: str, ratio: float, limit: float, *, unit: str = "×") -> bool:
    return _judge(name, f"{ratio:.2f} {unit}", f"≤ {limit:g} {unit}", ratio <= limit)


def _count(path: Path, engines: dict[str, Any], spark: Any) -> list[bool]:
    frame = spark.read.parquet(str(path))
    local = _run("count, one process", lambda: rc.count(path))
    pool = _run("count, pool", lambda: rc.count(path, engine=engines["pool"]))
    file_count = _run("count, Spark, files", lambda: rc.count(path, engine=engines["spark"]))
    rows = _run(
        "rows of the data frame to Python", lambda: frame.mapInArrow(_drain, "n long").toArrow()
    )
    frame_count = _run("count, Spark, frame", lambda: rc.count(frame, engine=engines["spark"]))
    equal = local.result == pool.result == file_count.result == frame_count.result
    return [
        _judge("counts equal, bit for bit", str(equal), "True", equal),
        _row("count: CPU of the pool / one process", pool.cpu / local.cpu, 1.6),
        _row("count: CPU of Spark by files / one process", file_count.cpu / local.cpu, 3.5),
        _row("count: CPU of Spark by frame / one process", frame_count.cpu / local.cpu, 6.5),
        _row("count: CPU of Spark by frame / rows to Python", frame_count.cpu / rows.cpu, 2.2),
    ]


def _drain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], names=["n"])


def _fit(path: Path, engines: dict[str, Any]) -> list[bool]:
    groups = as_grouped(path)
    good = []
    prior_settings: dict[str, Any] = {"attractiveness_prior": "overall"}
    luce_settings: dict[str, Any] = {
        "tune": "off",
        "components": 1,
        "max_iterations": 15,
        "tolerance": 0,
    }
    few_iterations: dict[str, Any] = {"max_iterations": 20, "tolerance": 0}
    models: dict[str, Any] = {
        "UBM": rc.UBM(**prior_settings, **few_iterations),
        "DBN": rc.DBN(continuation=0.9, **prior_settings, **few_iterations),
        "LuceClick": rc.LuceClick(**luce_settings),
    }
    for name, model in models.items():
        fits = {
            engine_name: _run(
                f"{name}, {engine_name}", partial(model.clone().fit, groups, engine=engine)
            )
            for engine_name, engine in {"one process": None, **engines}.items()
        }
        one, two = fits["one process"].result, fits["spark"].result
        difference = float(np.abs(one.theta_ - two.theta_).max())
        same = difference == 0 and one.iterations_ == two.iterations_
        good.append(
            _judge(f"{name}: difference of θ, same iterations", f"{difference:.0e}", "0", same)
        )
        if name == "UBM":
            per_round = fits["spark"].seconds / (one.iterations_ + 1)
            good.append(_row("UBM: one round on Spark", per_round, 0.4, unit="s"))
        else:
            slower = fits["spark"].seconds / fits["one process"].seconds
            good.append(_row(f"{name}: wall time of Spark / one process", slower, 2.5))
    return good


def _predict(path: Path, engine: Any) -> list[bool]:
    model = rc.MultiClick().fit(path)
    outputs = [WORK / "one.parquet", WORK / "two.parquet"]
    local_prediction = _run(
        "predict, one process", lambda: rc.predict(model, path, outputs[0], overwrite=True)
    )
    spark_prediction = _run(
        "predict, Spark, files",
        lambda: rc.predict(model, path, outputs[1], engine=engine, overwrite=True),
    )
    equal = pq.read_table(outputs[0]).equals(pq.read_table(outputs[1]))
    local_sums = _run("metric sums, one process", lambda: score(model, path))
    spark_sums = _run("metric sums, Spark", lambda: score(model, path, engine=engine))
    difference = float(np.abs(local_sums.result.sums - spark_sums.result.sums).max())
    return [
        _judge("predictions equal, rows in order", str(equal), "True", equal),
        _row(
            "predict: wall time of Spark by files / one process",
            spark_prediction.seconds / local_prediction.seconds,
            1.5,
        ),
        _judge(
            "largest difference of metric sums", f"{difference:.0e}", "≤ 1e-6", difference <= 1e-6
        ),
        _row("metric sums: CPU of Spark / one process", spark_sums.cpu / local_sums.cpu, 1.5),
    ]


def _collect_garbage(i: int) -> float:
    start = time.process_time()
    gc.collect()
    return 1e3 * (time.process_time() - start)


def _measure_empty_tasks(engine: Any) -> bool:
    times = [engine.run(_collect_garbage, TASKS, "") for _ in range(5)]
    return _row("an empty task: garbage collection", float(np.median(times)), 5.0, unit="ms")


def _measure_driver() -> bool:
    """Measure the peak memory of the driver on a log in which nearly every pair is new."""
    path = _write_long_tail(TAIL_SESSIONS)
    model = "rc.UBM(attractiveness_prior='overall', max_iterations=3, tolerance=0)"
    start = "import reclick as rc\nimport tempfile\n"
    into = f".fit_to(tempfile.mkdtemp(), {str(path)!r}, buckets={TAIL_BUCKETS}, engine=engine)"
    local = measure(f"{model}.fit({str(path)!r})", setup=start, runs=1)
    pool = measure(model + into, setup=f"{start}engine = rc.PoolEngine(workers=2)", runs=1)
    spark = measure(model + into, setup=start + START_SPARK, runs=1)
    print(
        f"  long tail: one process {local.memory:,.0f} MB, driver of the pool {pool.memory:,.0f} "
        f"MB, of Spark {spark.memory:,.0f} MB; {local.seconds:.0f}, {pool.seconds:.0f} and "
        f"{spark.seconds:.0f} s"
    )
    most = max(pool.memory, spark.memory) / local.memory
    return _row("long tail, in buckets: peak memory of the driver / one process", most, 0.2)


def _write_long_tail(sessions: int) -> Path:
    path = WORK / f"tail-{sessions}.parquet"
    if path.exists():
        return path
    rng = np.random.default_rng(0)
    query = _draw_names("rare query ", sessions, sessions, rng)
    ads = _draw_names("ad-", sessions // 2, 4 * sessions, rng)
    click = rng.integers(0, 10, sessions).astype(np.int32)
    click[click > 4] = 0
    starts = np.concatenate([[0], np.cumsum(click > 0)]).astype(np.int32)
    pages = np.arange(0, 4 * sessions + 1, 4).astype(np.int32)
    table = pa.table(
        {
            "query": query,
            "ads": pa.ListArray.from_arrays(pages, ads),
            "clicks": pa.ListArray.from_arrays(starts, click[click > 0]),
        }
    )
    pq.write_table(table, path, row_group_size=ROW_GROUP)
    return path


def _draw_names(prefix: str, names: int, size: int, rng: np.random.Generator) -> pa.Array:
    all_names = pa.array([f"{prefix}{i}" for i in range(names)])
    return all_names.take(pa.array(rng.integers(0, names, size)))


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    size = int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS
    sys.exit(0 if main(size, sys.argv[2:] or ALL_PARTS) else 1)
