"""Predicting pages from file to file; loading a model of 10 M pairs and predicting with it."""

from __future__ import annotations

from bench.biglogs import write_log
from bench.measure import WORK, measure, print_row

PAGES = 1_000_000
FIT = """
import reclick as rc
model = rc.MultiClick().fit({log!r})
rc.predict(model, {small!r}, {out!r}, top={top})  # loads the kernels
"""
BIG = """
import numpy as np, pyarrow as pa, reclick as rc
from reclick.data.counts import Counts
queries, ads, pairs = 1_000_000, 2_000_000, 10_000_000
rng = np.random.default_rng(0)
def names(prefix, count):
    return pa.array([f"{prefix}{i:09d}" for i in range(count)], pa.large_string())
query = np.repeat(np.arange(queries, dtype=np.int32), pairs // queries)
ad = (query.astype(np.int64) * 7 + np.tile(np.arange(10) * 104_729, queries)) % ads
key = np.unique((query.astype(np.int64) << 32) | ad)
impressions = rng.integers(1, 200, len(key)).astype(float)
clicks = rng.binomial(impressions.astype(int), 0.1).astype(float)
visits = np.repeat(np.arange(queries, dtype=np.int32), 3)
counts = Counts(
    queries=names("query words ", queries), ads=names("ad", ads),
    pair_query=(key >> 32).astype(np.int32), pair_ad=(key & 0xFFFFFFFF).astype(np.int32),
    impressions=impressions, clicks=clicks,
    last_clicks=rng.binomial(clicks.astype(int), 0.8).astype(float),
    sequence_starts=np.array([0, 0, 1, 3]), sequence_clicks=np.array([1, 2, 1], np.int32),
    visit_query=visits, visit_sequence=np.tile(np.arange(3, dtype=np.int32), queries),
    sessions=rng.integers(1, 90, len(visits)).astype(float),
    lengths=np.array([[0.0] * 3] * 4 + [[4.0, 2.0, 1.0]]),
)
"""


def main() -> bool:
    """Print the table, and return whether every limit holds."""
    log = str(write_log(WORK / "log10" / "day1.parquet", 10_000_000, seed=1))
    small = str(write_log(WORK / "small.parquet", 100_000, seed=0))
    pages = str(write_log(WORK / "pages4.parquet", PAGES, seed=9, page=(4, 4)))
    out, folder = str(WORK / "scored.parquet"), str(WORK / "model")
    print("\nPredicting: 1 M pages of 4 ads, Parquet to Parquet, model of 10 M sessions\n")
    marginals = measure(
        f"rc.predict(model, {pages!r}, {out!r}, top=0)",
        setup=FIT.format(log=log, out=out, small=small, top=0),
        runs=2,
    )
    with_sequences = measure(
        f"rc.predict(model, {pages!r}, {out!r}, top=3)",
        setup=FIT.format(log=log, out=out, small=small, top=3),
        runs=1,
    )
    measure(f"rc.MultiClick().fit(counts).save({folder!r})", setup=BIG, runs=1)
    big = measure(
        f"model = rc.load({folder!r})\nrc.predict(model, {pages!r}, {out!r})",
        setup="import reclick as rc",
        runs=1,
    )
    print(f"  loading a model of 10 M pairs and predicting 1 M pages: {big.seconds:.1f} s\n")
    rate, ranked_rate = PAGES / marginals.seconds, PAGES / with_sequences.seconds
    return all(
        [
            print_row(
                "pages per second, with click probabilities",
                f"{rate:,.0f}",
                "≥ 300,000",
                rate >= 300_000,
            ),
            print_row(
                "pages per second, with the 3 most likely sequences",
                f"{ranked_rate:,.0f}",
                "(no limit)",
                True,
            ),
            print_row(
                "peak memory, loading a model of 10 M pairs and predicting",
                f"{big.memory:,.0f} MB",
                "≤ 3,000 MB",
                big.memory <= 3_000,
            ),
        ]
    )
