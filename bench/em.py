"""Fitting the classical models: 1 M sessions of 10 results, of 1,000 and of 200,000 queries.

The limits are for `fit(sessions)` on sessions that are already read and grouped (`as_grouped`),
with kernels compiled. For iterative models the time includes the preparation and all 50 iterations,
and the figure is session-iterations per second (sessions × iterations / seconds). Nearly all
sessions are distinct, so grouping saves nothing here. For models with a closed form the figure is
sessions per second. The speed of `fit(path)`, with reading, validation, and counting or grouping,
is printed without a limit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.biglogs import ADS, draw_clicks, make_names, to_offsets
from bench.measure import WORK, Measurement, measure, print_row
from reclick.models import MODELS

SESSIONS, PAGE, POOL, ITERATIONS = 1_000_000, 10, 20, 50  # POOL: ads that compete for a query
QUERIES = (1_000, 200_000)
ITERATE = f"max_iterations={ITERATIONS}, tolerance=0"
SETTINGS = {"pbm": ITERATE, "ubm": ITERATE, "dbn": f"continuation=0.9, {ITERATE}", "ccm": ITERATE}
LIMITS = {"pbm": 16.0, "ubm": 16.0, "dbn": 2.0, "ccm": 2.0}  # M session-iterations per second
# M session-iterations per second of ParClick (C++) and PyClick, measured on a similar machine with
# one thread.
PEERS = {
    "pbm": (0.46, 0.012),
    "ubm": (0.32, 0.010),
    "dbn": (0.018, 0.0002),
    "ccm": (0.021, 0.0001),
}
CLOSED = ("gctr", "rctr", "dctr", "cm", "dcm", "sdbn", "icm")
SETUP = """
import logging
from reclick.models import MODELS
from reclick.engines import as_grouped
logging.disable()
small = {{"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}}
MODELS[{name!r}]({settings}).fit(small)  # loads the kernels
sessions = {sessions}
"""


def main() -> bool:
    """Print the table, and return whether every limit holds."""
    print(
        "\nFitting 1 M sessions of 10 results: M session-iterations per second (50 iterations), or "
        "M sessions per second for closed forms."
    )
    print(
        "Timed: fit() on sessions that are already read and grouped. For closed forms also: fit() "
        "on the Parquet file.\n"
    )
    good = True
    for queries in QUERIES:
        log = str(write_em_log(WORK / f"em{queries}.parquet", queries))
        peak = 0.0
        for name in [*LIMITS, *CLOSED]:
            if name not in MODELS:
                continue
            fit_time = _fit(name, f"as_grouped({log!r})")
            peak = max(peak, fit_time.memory)
            rate = SESSIONS * (ITERATIONS if name in LIMITS else 1) / fit_time.seconds / 1e6
            good &= print_row(
                f"{name}, {queries:,} queries",
                f"{rate:,.1f} M",
                f"≥ {LIMITS.get(name, 2.0):g} M",
                rate >= LIMITS.get(name, 2.0),
            )
            if name in CLOSED:
                file_time = _fit(name, repr(log))
                file_rate = SESSIONS / file_time.seconds / 1e6
                print(f"    from the file: {file_rate:,.2f} M sessions per second")
            if name in PEERS:
                print(
                    "".join(
                        f"    {rate / peer:,.0f} × {who}"
                        for who, peer in zip(("ParClick", "PyClick"), PEERS[name], strict=True)
                    )
                )
        good &= print_row(
            f"highest peak memory, {queries:,} queries",
            f"{peak:,.0f} MB",
            "≤ 1,000 MB",
            peak <= 1_000,
        )
    return good


def _fit(name: str, sessions: str) -> Measurement:
    """Time the fit of an expression: grouped sessions, or the path of a log that `fit` reads."""
    settings = SETTINGS.get(name, "")
    code = f"model = MODELS[{name!r}]({settings}).fit(sessions)"
    if name in LIMITS:
        code += f"\nassert model.iterations_ == {ITERATIONS}"
    return measure(code, setup=SETUP.format(name=name, settings=settings, sessions=sessions))


def write_em_log(path: Path, queries: int) -> Path:
    """Write a log unless it exists: Zipf over the queries, pages of the best 10 of 20 ads."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(queries)
    weights = np.cumsum(1 / np.arange(1, queries + 1))
    query = np.searchsorted(weights, rng.random(SESSIONS) * weights[-1]).astype(np.int32)
    slot = np.argsort(
        rng.random((SESSIONS, POOL), np.float32) + np.linspace(0, 1, POOL, dtype=np.float32), axis=1
    )[:, :PAGE]
    ad = ((query[:, None].astype(np.int64) * POOL + slot) * 2_654_435_761 % ADS).ravel()
    length = np.full(SESSIONS, PAGE)
    click, counts = draw_clicks(rng, length)
    temporary = path.with_suffix(".writing")
    ads = pa.ListArray.from_arrays(to_offsets(length), make_names("ad-", ad))
    pq.write_table(
        pa.table(
            {
                "query": make_names("query ", query),
                "ads": ads,
                "clicks": pa.ListArray.from_arrays(to_offsets(counts), click),
            }
        ),
        temporary,
    )
    temporary.replace(path)
    return path
