"""Read the XML of TianGong-ST, sessions of the search engine Sogou."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from reclick.data.schema import TEXT, Column, check_mapping
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import (
    ColumnMapping,
    LogFormat,
    ReadReport,
    SessionRecord,
    batch_sessions,
)
from reclick.logs.formats.helpers.xml_sessions import XmlLayout, read_pages

REQUIRED_TAGS = (b"<session ", b"<interaction ", b"<query_id>", b"<docid>")
# sample, session, query, result, grade
LABEL_LINE = re.compile(rb"\d+[ \t]+\d+[ \t]+q\d+[ \t]+d\d+[ \t]+\d+\s")
MODEL_LABELS_NOTE = "relevance computed by click models, skipped"
HUMAN_LABELS_NOTE = "a human relevance label, read with rc.read_labels"


def _recognises(files: list[LogFile]) -> bool:
    sessions = [file for file in files if not _is_labels(file)]
    return bool(sessions) and all(tag in file.head for file in sessions for tag in REQUIRED_TAGS)


def _read(
    files: list[LogFile], report: ReadReport, columns: ColumnMapping
) -> Iterator[pa.RecordBatch]:
    # The labels name queries by id, so the id is the query. columns={"query": "query"} takes the
    # words instead.
    names = check_mapping(columns, [Column("query", TEXT)])
    layout = XmlLayout(
        query=names.get("query", "query_id"),
        ads=("docid",),
        skipped={"relevance": MODEL_LABELS_NOTE},
    )
    return batch_sessions(page for file in files for page in _read_file(file, report, layout))


def _read_file(file: LogFile, report: ReadReport, layout: XmlLayout) -> Iterator[SessionRecord]:
    if _is_labels(file):
        report.add_note(HUMAN_LABELS_NOTE, sum(1 for _ in file.lines(report.advance)))
        return
    yield from read_pages(file, report, layout)


def _is_labels(file: LogFile) -> bool:
    return LABEL_LINE.match(file.head) is not None


FORMAT = LogFormat(
    name="tiangong",
    title="TianGong-ST",
    about=(
        "XML. Keeps query ids, results with their titles, clicks in order; loses dwell times, "
        "result types and the labels of click models."
    ),
    recognises=_recognises,
    read=_read,
    takes_columns=True,
)
