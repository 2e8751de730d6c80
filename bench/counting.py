"""Counting a log: time relative to decoding its columns, memory, and 10 M against 40 M sessions."""

from __future__ import annotations

from bench.biglogs import write_log
from bench.measure import WORK, Measurement, measure, print_row

COLUMNS = ["query", "ads", "clicks"]
DECODERS = {
    "pyarrow": (
        "import pyarrow.parquet as pq",
        "for batch in pq.ParquetFile({path!r}).iter_batches(1_000_000, columns={columns}): pass",
    ),
    "pyarrow, dictionary codes": (
        "import pyarrow.parquet as pq",
        (
            "file = pq.ParquetFile({path!r}, read_dictionary=['query', 'ads.list.element'])\n"
            "for batch in file.iter_batches(1_000_000, columns={columns}): pass"
        ),
    ),
    "duckdb to Arrow": (
        "import duckdb",
        (
            "rows = duckdb.sql('select query, ads, clicks from ' + repr({path!r}))\n"
            "for batch in rows.to_arrow_reader(1_000_000): pass"
        ),
    ),
    "polars": ("import polars", "polars.read_parquet({path!r}, columns={columns})"),
}
ROUNDS = 5
WARM = """
import reclick as rc
rc.count(rc.read_sessions({small!r}))  # loads the kernels, as imports load the decoders
"""


def main() -> bool:
    """Print the table, and return whether every limit holds."""
    small = str(write_log(WORK / "small.parquet", 100_000, seed=0))
    one = str(write_log(WORK / "log10" / "day1.parquet", 10_000_000, seed=1))
    for day in range(1, 5):
        write_log(WORK / "log40" / f"day{day}.parquet", 10_000_000, seed=day)
    print("\nCounting: 10 M sessions, Zipf over 200 k queries, 500 k ads, pages of 1–4\n")
    decoding_times = {name: _decode(name, one) for name in DECODERS}
    for name, took in decoding_times.items():
        print(f"  decode with {name:<28} {took.seconds:>7.2f} s {took.memory:>8,.0f} MB")
    quickest = min(decoding_times, key=lambda name: decoding_times[name].seconds)
    decodes, counts = [], []
    for _ in range(ROUNDS):  # alternating, because the speed of the machine may vary
        decodes.append(_decode(quickest, one, runs=1))
        counts.append(
            measure(f"rc.count(rc.read_sessions({one!r}))", setup=WARM.format(small=small), runs=1)
        )
    fastest = min(took.seconds for took in decodes)
    ten = Measurement(min(took.seconds for took in counts), max(took.memory for took in counts))
    ratios = [count.seconds / decode.seconds for count, decode in zip(counts, decodes, strict=True)]
    print(
        f"  count 10 M / decode with {quickest}, run by run: "
        + ", ".join(f"{ratio:.2f}" for ratio in ratios)
    )
    forty = measure(
        f"rc.count(rc.read_sessions({str(WORK / 'log40')!r}))", setup=WARM.format(small=small)
    )
    print(
        f"  {'count 10 M':<40} {ten.seconds:>7.2f} s {ten.memory:>8,.0f} MB   "
        f"{10 / ten.seconds:,.1f} M sessions per second"
    )
    print(f"  {'count 40 M':<40} {forty.seconds:>7.2f} s {forty.memory:>8,.0f} MB\n")
    return all(
        [
            print_row(
                "count 10 M / fastest decode, best run of each",
                f"{ten.seconds / fastest:.2f}×",
                "≤ 4×",
                ten.seconds <= 4 * fastest,
            ),
            print_row(
                "peak memory, 10 M", f"{ten.memory:,.0f} MB", "≤ 1,000 MB", ten.memory <= 1_000
            ),
            print_row(
                "peak memory, 40 M", f"{forty.memory:,.0f} MB", "≤ 1,000 MB", forty.memory <= 1_000
            ),
            print_row(
                "count 40 M / count 10 M",
                f"{forty.seconds / ten.seconds:.2f}×",
                "≤ 4.4×",
                forty.seconds <= 4.4 * ten.seconds,
            ),
        ]
    )


def _decode(name: str, path: str, runs: int = 3) -> Measurement:
    setup, code = DECODERS[name]
    return measure(code.format(path=path, columns=COLUMNS), setup=setup, runs=runs)
