"""Events written for a test, and what a format makes of them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import LogFormat, ReadReport

Row = dict[str, Any]
Page = tuple[str, list[str], list[int]]  # query, ads, clicks
T = 1_700_000_000_000_000  # microseconds

pages = st.tuples(
    st.sampled_from(["shoes", "red hat", "a|b", "Ä 100%"]),
    st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=5, unique=True),
).flatmap(
    lambda page: st.tuples(
        st.just(page[0]), st.just(page[1]), st.lists(st.integers(1, len(page[1])), max_size=3)
    )
)
visits = st.lists(
    st.lists(pages, min_size=1, max_size=4), min_size=1, max_size=4
)  # what some users saw, one after another


def parquet(folder: Path, rows: list[Row] | pa.Table, name: str = "events.parquet") -> LogFile:
    """A Parquet file of rows."""
    path = folder / name
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), path)
    return LogFile(str(path), name)


def plain(folder: Path, text: str, name: str) -> LogFile:
    """A file of some text, gzipped when its name says so."""
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return LogFile(str(path), name)


def read(
    form: LogFormat, *files: LogFile, columns: dict[str, str] | None = None
) -> tuple[list[Row], ReadReport]:
    """The sessions of a log as plain rows, and what was found besides."""
    report = ReadReport()
    batches = list(form.read(list(files), report, columns or {}))
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()], report


def shown(rows: list[Row]) -> list[Page]:
    """The sessions without their ids."""
    return [(row["query"], row["ads"], row["clicks"]) for row in rows]


def faults(report: ReadReport) -> dict[str, list[int]]:
    """The rows of the first bad records, by reason."""
    return {
        reason: [example.row for example in examples]
        for reason, examples in report.bad_rows.examples.items()
    }


def own_files(folder: Path) -> list[LogFile]:
    """Files of Reclick's own columns, which no other format may take for its own."""
    rows: list[Row] = [
        {"query": "shoes", "ads": ["a", "b"], "clicks": [1], "session_id": "s", "position": 1}
    ]
    return [
        parquet(folder, rows, "sessions.parquet"),
        plain(folder, "query,ads,clicks\nshoes,a|b,1\n", "sessions.csv"),
        plain(folder, '{"query": "shoes", "ads": ["a"], "clicks": [1]}\n', "sessions.jsonl"),
        plain(folder, "", "empty.txt"),
        plain(folder, "not parquet", "broken.parquet"),
    ]
