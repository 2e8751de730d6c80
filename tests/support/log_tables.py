"""Small logs, and a log read back as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.batch import SessionBatch
from reclick.logs import SessionLog

GOOD: list[dict[str, Any]] = [
    {"query": "shoes", "ads": ["a1", "a2", "a3"], "clicks": [2, 1]},
    {"query": "حذاء", "ads": ["a2"], "clicks": []},
    {"query": "shoes 👟", "ads": ["a3", "a1"], "clicks": [1]},
]
SCHEMA = pa.schema(
    [("query", pa.string()), ("ads", pa.list_(pa.string())), ("clicks", pa.list_(pa.int32()))]
)


def table(rows: list[dict[str, Any]] | None = None, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(GOOD if rows is None else rows, schema=schema)


def session(
    query: str | None = "q",
    ads: list[str | None] | None = None,
    clicks: list[int | None] | None = None,
) -> dict[str, Any]:
    return {
        "query": query,
        "ads": ["a", "b"] if ads is None else ads,
        "clicks": [] if clicks is None else clicks,
    }


def write_parquet(path: Path, rows: list[dict[str, Any]] | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(rows), path, **options)
    return path


def sessions(batch: SessionBatch) -> list[dict[str, Any]]:
    """Return a batch as plain rows, in the form of GOOD."""
    queries, ads = batch.queries.to_pylist(), batch.ads.to_pylist()
    return [
        {
            "query": queries[batch.query[i]],
            "ads": [ads[code] for code in batch.ad[batch.page[i] : batch.page[i + 1]]],
            "clicks": batch.click[batch.clicks[i] : batch.clicks[i + 1]].tolist(),
        }
        for i in range(len(batch))
    ]


def read_back(log: SessionLog) -> list[dict[str, Any]]:
    return [row for batch in log.batches() for row in sessions(batch)]
