"""Logs of lines, written for a test, and what a format reads from them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import SESSION_SCHEMA
from reclick.logs.formats.base import LogFormat, ReadReport

PLAIN = "query\tads\tclicks\tweight\nplumber\ta1|a2\t2|1\t1\n7\ta\t1\t1.0\n"  # a sessions table
EVERY_START = {
    "plain": PLAIN,
    "relevance": "1\t0\tQ\t5\t2\t10\t11\n1\t4\tC\t11\n",
    "personalized": "1\tM\t3\t77\n1\t0\tQ\t0\t5\t8,9\t10,1\t11,1\n1\t4\tC\t0\t11\n",
    "sogou": "5\t10 11\t0 1\t-1 1400000100.5" + "\t0 0" * 6 + "\n",
    "clicks only": "00:00:00\t555001\t[shoes]\t8 3\tshop.example/a.html\n",
    "csv": "query,ads,clicks\nshoes,a|b,1\n",
    "json": '{"query": "shoes", "ads": ["a"], "clicks": [1]}\n',
    "xml": "<sessions><session/></sessions>\n",
    "empty": "",
}

Shown = tuple[str, list[str], list[int]]  # query, ads, clicks
ids = st.integers(0, 999).map(str)
pages_shown = st.tuples(ids, st.lists(ids, min_size=1, max_size=10, unique=True)).flatmap(
    lambda page: st.tuples(
        st.just(page[0]), st.just(page[1]), st.lists(st.integers(1, len(page[1])), max_size=4)
    )
)
sessions_shown = st.lists(st.lists(pages_shown, min_size=1, max_size=4), max_size=5)


def fields(*values: object) -> str:
    """A line."""
    return "\t".join(map(str, values))


def log(folder: Path, *lines: str | bytes, name: str = "log.txt", end: bytes = b"\n") -> LogFile:
    """A file of lines; gzipped when its name says so."""
    data = b"".join((line.encode() if isinstance(line, str) else line) + end for line in lines)
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return LogFile(str(path), name)


def started(folder: Path, text: str, name: str = "log.txt") -> LogFile:
    """A file of some text."""
    return log(folder, text, name=name, end=b"")


def read(form: LogFormat, *files: LogFile) -> tuple[list[dict[str, Any]], ReadReport]:
    """The sessions of a log as plain rows, and what was found besides."""
    report = ReadReport()
    batches = list(form.read(list(files), report, {}))
    schema = batches[0].schema if batches else SESSION_SCHEMA  # some logs have outcomes of clicks
    return pa.Table.from_batches(batches, schema).to_pylist(), report


def pages(rows: list[dict[str, Any]]) -> list[Shown]:
    """Query, ads and clicks alone."""
    return [(row["query"], row["ads"], row["clicks"]) for row in rows]


def faults(report: ReadReport) -> dict[str, list[int]]:
    """The lines of the examples of each reason."""
    return {
        reason: [example.row for example in examples]
        for reason, examples in report.bad_rows.examples.items()
    }
