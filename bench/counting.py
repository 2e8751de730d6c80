"""Counting a log, as a multiple of the time that merely decoding its columns takes in the same run; memory; growth from 10 M to 40 M sessions."""

from __future__ import annotations

from bench.biglogs import write_log
from bench.measure import WORK, Measured, line, measure

COLUMNS = ["query", "ads", "clicks"]
DECODERS = {
    "pyarrow": (
        "import pyarrow.parquet as pq",
        "for batch in pq.ParquetFile({path!r}).iter_batches(1_000_000, columns={columns}): pass",
    ),
    "pyarrow, dictionary codes": (
        "import pyarrow.parquet as pq",
        "for batch in pq.ParquetFile({path!r}, read_dictionary=['query', 'ads.list.element']).iter_batches(1_000_000, columns={columns}): pass",
    ),
    "duckdb to Arrow": (
        "import duckdb",
        "for batch in duckdb.sql('select query, ads, clicks from ' + repr({path!r})).to_arrow_reader(1_000_000): pass",
    ),
    "polars": ("import polars", "polars.read_parquet({path!r}, columns={columns})"),
}
ROUNDS = 5
WARM = """
import reclick as rc
rc.count(rc.read_sessions({small!r}))  # loads the compiled kernels, as the decoders' imports load theirs
"""


def main() -> bool:
    """Print the table; whether every limit holds."""
    small = str(write_log(WORK / "small.parquet", 100_000, seed=0))
    one = str(write_log(WORK / "log10" / "day1.parquet", 10_000_000, seed=1))
    for day in range(1, 5):
        write_log(WORK / "log40" / f"day{day}.parquet", 10_000_000, seed=day)
    print("\nCounting: 10 M sessions, Zipf over 200 k queries, 500 k ads, pages of 1–4\n")
    decoded = {name: _decode(name, one) for name in DECODERS}
    for name, took in decoded.items():
        print(f"  decode with {name:<28} {took.seconds:>7.2f} s {took.memory:>8,.0f} MB")
    quickest = min(decoded, key=lambda name: decoded[name].seconds)
    decodes, counts = [], []
    for _ in range(ROUNDS):  # in turn, for the machine may be slower at one time than at another
        decodes.append(_decode(quickest, one, runs=1))
        counts.append(
            measure(f"rc.count(rc.read_sessions({one!r}))", setup=WARM.format(small=small), runs=1)
        )
    fastest = min(took.seconds for took in decodes)
    ten = Measured(min(took.seconds for took in counts), max(took.memory for took in counts))
    ratios = [count.seconds / decode.seconds for count, decode in zip(counts, decodes, strict=True)]
    print(
        f"  count 10 M / decode with {quickest}, in turn: "
        + ", ".join(f"{ratio:.2f}" for ratio in ratios)
    )
    forty = measure(
        f"rc.count(rc.read_sessions({str(WORK / 'log40')!r}))", setup=WARM.format(small=small)
    )
    print(
        f"  count 10 M                               {ten.seconds:>7.2f} s {ten.memory:>8,.0f} MB   {10 / ten.seconds:,.1f} M sessions a second"
    )
    print(
        f"  count 40 M                               {forty.seconds:>7.2f} s {forty.memory:>8,.0f} MB\n"
    )
    return all(
        [
            line(
                "count 10 M / fastest decode, the quickest of each",
                f"{ten.seconds / fastest:.2f}×",
                "≤ 4×",
                ten.seconds <= 4 * fastest,
            ),
            line("peak memory, 10 M", f"{ten.memory:,.0f} MB", "≤ 1,000 MB", ten.memory <= 1_000),
            line(
                "peak memory, 40 M", f"{forty.memory:,.0f} MB", "≤ 1,000 MB", forty.memory <= 1_000
            ),
            line(
                "count 40 M / count 10 M",
                f"{forty.seconds / ten.seconds:.2f}×",
                "≤ 4.4×",
                forty.seconds <= 4.4 * ten.seconds,
            ),
        ]
    )


def _decode(name: str, path: str, runs: int = 3) -> Measured:
    setup, code = DECODERS[name]
    return measure(code.format(path=path, columns=COLUMNS), setup=setup, runs=runs)
