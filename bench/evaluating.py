"""All metrics of one fitted model with intervals: 1 M test sessions of 4 ads, and 4 M."""

from __future__ import annotations

from bench.biglogs import write_log
from bench.measure import WORK, Measurement, measure, print_row

FIT = """
import reclick as rc
from reclick.metrics import QueryVolumes, reliability_curves, score, session_tables
counts = rc.count({log!r})
model, volumes = rc.MultiClick().fit(counts), QueryVolumes(counts)
del counts
def evaluate(path):
    sums = dict(MultiClick=score(model, path, volumes))
    return session_tables(sums), reliability_curves(sums)
evaluate({small!r})  # loads the kernels
"""


def main() -> bool:
    """Print the table, and return whether every limit holds."""
    log = str(write_log(WORK / "log10" / "day1.parquet", 10_000_000, seed=1))
    small = str(write_log(WORK / "small.parquet", 100_000, seed=0))
    one = str(write_log(WORK / "pages4.parquet", 1_000_000, seed=9, page=(4, 4)))
    four = str(write_log(WORK / "pages4-4m.parquet", 4_000_000, seed=10, page=(4, 4)))
    setup = FIT.format(log=log, small=small)
    print(
        "\nEvaluating: all metrics of MultiClick fitted to 10 M sessions, 1000 resamples, from "
        "Parquet\n"
    )
    million, millions = (
        measure(f"evaluate({one!r})", setup=setup, runs=2),
        measure(f"evaluate({four!r})", setup=setup, runs=2),
    )
    _print_time("1 M sessions of 4 ads", million)
    _print_time("4 M sessions of 4 ads", millions)
    print()
    return all(
        [
            print_row(
                "all metrics, 1 M sessions of 4 ads",
                f"{million.seconds:.1f} s",
                "< 10 s",
                million.seconds < 10,
            ),
            print_row(
                "peak memory, 1 M sessions, fit included",
                f"{million.memory:,.0f} MB",
                "≤ 2,000 MB",
                million.memory <= 2_000,
            ),
            print_row(
                "peak memory, 4 M sessions, fit included",
                f"{millions.memory:,.0f} MB",
                "≤ 2,000 MB",
                millions.memory <= 2_000,
            ),
            print_row(
                "4 M / 1 M",
                f"{millions.seconds / million.seconds:.2f}×",
                "≤ 4.4×",
                millions.seconds <= 4.4 * million.seconds,
            ),
        ]
    )


def _print_time(name: str, took: Measurement) -> None:
    print(f"  {name:<40} {took.seconds:>7.2f} s {took.memory:>8,.0f} MB")
