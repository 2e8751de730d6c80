"""Models in buckets: memory and CPU time of predictions and fits, relative to models in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.measure import PEAK, WORK, print_row

PAIRS, QUERIES, ADS, PAGES, BUCKETS = 4_000_000, 400_000, 200_000, 100_000, 64
CACHE = 32 << 20
SETUP = f"""
{PEAK}
import json, sys, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, reclick as rc
from reclick.data.counts import Counts
rng = np.random.default_rng(0)
def names(prefix, count):
    return pa.array([f"{{prefix}}{{i:09d}}" for i in range(count)], pa.large_string())
def ads_of(query):
    return (query[:, None] * 7 + np.arange({PAIRS // QUERIES}) * 104_729) % {ADS}
"""
WRITE = """
query = np.arange({queries}, dtype=np.int64)
key = np.unique((np.repeat(query, ads_of(query).shape[1]) << 32) | ads_of(query).ravel())
impressions = rng.integers(1, 200, len(key)).astype(float)
clicks = rng.binomial(impressions.astype(int), 0.1).astype(float)
visits = np.repeat(np.arange({queries}, dtype=np.int32), 3)
counts = Counts(
    queries=names("query words ", {queries}), ads=names("ad", {ads}),
    pair_query=(key >> 32).astype(np.int32), pair_ad=(key & 0xFFFFFFFF).astype(np.int32),
    impressions=impressions, clicks=clicks,
    last_clicks=rng.binomial(clicks.astype(int), 0.8).astype(float),
    sequence_starts=np.array([0, 0, 1, 3]), sequence_clicks=np.array([1, 2, 1], np.int32),
    visit_query=visits, visit_sequence=np.tile(np.arange(3, dtype=np.int32), {queries}),
    sessions=rng.integers(1, 90, len(visits)).astype(float),
    lengths=np.array([[0.0] * 3] * 4 + [[4.0, 2.0, 1.0]]),
)
model = rc.DCTR().fit(counts)
model.save({folder!r} + "/whole")
model.save({folder!r} + "/buckets", buckets={buckets})
query_of_page = rng.integers(0, {queries} + {queries} // 20, {pages})  # a few are new
pages = ads_of(query_of_page)[:, :4]
text = [[f"ad{{ad:09d}}" for ad in page] for page in pages.tolist()]
table = pa.table({{"query": [f"query words {{q:09d}}" for q in query_of_page], "ads": text}})
pq.write_table(table, {folder!r} + "/pages.parquet", row_group_size=50_000)
"""
PREDICT = """
folder, name, cache = sys.argv[1:]
start = time.process_time()
model = rc.load(f"{folder}/{name}", cache_bytes=int(cache))
rc.predict(model, f"{folder}/pages.parquet", f"{folder}/{name}-{cache}.parquet", top=0)
loads = getattr(getattr(model, "_cache", None), "loads", 0)
print(json.dumps([
    time.process_time() - start, peak(), loads
]))
"""
TAIL_SESSIONS, TAIL_BUCKETS = 500_000, 16  # 2 million pairs, nearly all with one impression
WRITE_TAIL = """
sessions = {sessions}
pages = np.arange(0, 4 * sessions + 1, 4).astype(np.int32)
ads = names("ad", sessions // 2).take(pa.array(rng.integers(0, sessions // 2, 4 * sessions)))
click = np.maximum(rng.integers(-5, 5, sessions), 0).astype(np.int32)  # no click in six of ten
starts = np.concatenate([[0], np.cumsum(click > 0)]).astype(np.int32)
table = pa.table({{
    "query": names("rare query ", sessions),
    "ads": pa.ListArray.from_arrays(pages, ads.cast(pa.string())),
    "clicks": pa.ListArray.from_arrays(starts, click[click > 0]),
}})
pq.write_table(table, {path!r}, row_group_size=125_000)
"""
FIT = """
path, place, folder = sys.argv[1:]
model, start = rc.LuceClick(max_iterations=3, tolerance=0), time.perf_counter()
if place == "memory":
    model.fit(path)
else:
    engine = rc.PoolEngine(workers=2)
    model.fit_to(folder, path, buckets={buckets}, engine=engine)
print(json.dumps([time.perf_counter() - start, peak(), 0]))
"""


def main() -> bool:
    """Print the table, and return whether every limit holds."""
    folder = WORK / "in_buckets"
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"queries": QUERIES, "ads": ADS, "pages": PAGES, "buckets": BUCKETS}
    _run(SETUP + WRITE.format(folder=str(folder), **sizes))
    print(
        f"\nBuckets: {PAGES:,} pages in random order, model of {PAIRS:,} pairs, {BUCKETS} buckets\n"
    )
    _measure(folder, "buckets", CACHE)  # compiles and loads the kernels
    whole_cpu, whole_memory, _ = _measure(folder, "whole", CACHE)
    cpu, memory, loads = _measure(folder, "buckets", CACHE)
    large_cpu, large_memory, _ = _measure(folder, "buckets", 4 << 30)
    same = _read(folder / f"whole-{CACHE}.parquet") == _read(folder / f"buckets-{CACHE}.parquet")
    print(f"  in memory {whole_memory:,.0f} MB, {whole_cpu:.1f} CPU s")
    print(f"  cache of {CACHE >> 20} MiB {memory:,.0f} MB, {cpu:.1f} CPU s, {loads} buckets read")
    print(f"  cache of 4 GiB {large_memory:,.0f} MB, {large_cpu:.1f} CPU s\n")
    memory_ratio, cpu_ratio = memory / whole_memory, cpu / whole_cpu
    return all(
        [
            _measure_fit(folder),
            print_row("predictions equal those of the model in memory", str(same), "True", same),
            print_row(
                "peak memory, relative to the model in memory",
                f"{memory_ratio:.2f}",
                "≤ 0.8",
                memory_ratio <= 0.8,
            ),
            print_row(
                "CPU time, relative to the model in memory",
                f"{cpu_ratio:.2f}",
                "≤ 3",
                cpu_ratio <= 3,
            ),
            print_row(
                "reads per bucket", f"{loads / BUCKETS:.2f}", "≤ 1.1", loads <= 1.1 * BUCKETS
            ),
        ]
    )


def _measure_fit(folder: Path) -> bool:
    """Fit LuceClick, hyperparameter search included, to a log in which no query occurs twice."""
    path, fit = str(folder / "tail.parquet"), SETUP + FIT.format(buckets=TAIL_BUCKETS)
    _run(SETUP + WRITE_TAIL.format(path=path, sessions=TAIL_SESSIONS))
    measurements = {}
    for place in ("memory", "pool"):
        measurements[place] = json.loads(_run(fit, path, place, str(folder / "fitted")))
    (seconds, whole, _), (in_buckets, driver, _) = measurements.values()
    print(f"  LuceClick, {4 * TAIL_SESSIONS:,} pairs: one process {whole:,.0f} MB, {seconds:.0f} s")
    print(f"  in {TAIL_BUCKETS} buckets, driver of a pool {driver:,.0f} MB, {in_buckets:.0f} s\n")
    share = driver / whole
    return print_row(
        "LuceClick in buckets: peak memory of the driver / one process",
        f"{share:.2f}",
        "≤ 0.35",
        share <= 0.35,
    )


def _measure(folder: object, name: str, cache: int) -> tuple[float, float, int]:
    seconds, memory, loads = json.loads(_run(SETUP + PREDICT, str(folder), name, str(cache)))
    return float(seconds), float(memory), int(loads)


def _read(path: object) -> object:
    import pyarrow.parquet as pq

    return pq.read_table(path)


def _run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    completed_process = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed_process.returncode:
        raise RuntimeError(completed_process.stderr)
    return completed_process.stdout.splitlines()[-1] if completed_process.stdout else ""
