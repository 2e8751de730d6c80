"""The XML of TianGong-ST, sessions of the search engine Sogou: queries, ten results each, and what was clicked."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from reclick.data.schema import TEXT, Column, check_mapping
from reclick.logs.files.archive import LogFile
from reclick.logs.formats.base import Columns, Format, Found, Session, batched
from reclick.logs.formats.helpers.xml_sessions import Layout, read_pages

SIGNS = (b"<session ", b"<interaction ", b"<query_id>", b"<docid>")
LABEL = re.compile(
    rb"\d+[ \t]+\d+[ \t]+q\d+[ \t]+d\d+[ \t]+\d+\s"
)  # sample, session, query, result, grade
WEAK_LABELS = "relevance computed by click models, set aside"
HUMAN_LABELS = "a human relevance label, read with rc.read_labels"


def _recognises(files: list[LogFile]) -> bool:
    sessions = [file for file in files if not _is_labels(file)]
    return bool(sessions) and all(sign in file.head for file in sessions for sign in SIGNS)


def _read(files: list[LogFile], found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    # The labels name queries by id, so the id is the query; the words are taken with columns={"query": "query"}.
    names = check_mapping(columns, [Column("query", TEXT)])
    layout = Layout(
        query=names.get("query", "query_id"), ads=("docid",), asides={"relevance": WEAK_LABELS}
    )
    return batched(page for file in files for page in _pages(file, found, layout))


def _pages(file: LogFile, found: Found, layout: Layout) -> Iterator[Session]:
    if _is_labels(file):
        found.note(HUMAN_LABELS, sum(1 for _ in file.lines(found.advance)))
        return
    yield from read_pages(file, found, layout)


def _is_labels(file: LogFile) -> bool:
    return LABEL.match(file.head) is not None


TIANGONG = Format(
    name="tiangong",
    title="TianGong-ST",
    about="XML. Keeps query ids, results with their titles, clicks in order; loses dwell times, result types and the labels of click models.",
    recognises=_recognises,
    read=_read,
    takes_columns=True,
)
