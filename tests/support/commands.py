"""Commands as a user types them, and logs to give them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

Run = Callable[..., tuple[int, str, str]]  # words → exit code, standard output, standard error

ADS = [["a", "b", "c"], ["b", "a"]] * 30
CLICKS: list[list[int]] = [[2, 1], [], [1], [2], [3], [1, 2]] * 10
SCHEMA = pa.schema(
    [("query", pa.string()), ("ads", pa.list_(pa.string())), ("clicks", pa.list_(pa.int32()))]
)


def write_log(path: str, clicks: list[list[int]] | None = None, query: str = "shoes") -> str:
    made = CLICKS if clicks is None else clicks
    pages = [
        (["a", "b", "c"] if any(c > 2 for c in each) else ADS[i % 60])
        for i, each in enumerate(made)
    ]
    pq.write_table(
        pa.table({"query": [query] * len(made), "ads": pages, "clicks": made}, schema=SCHEMA), path
    )
    return path
