"""Read the XML of the TREC Session track: queries, results with titles and snippets, clicks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import ColumnMapping, LogFormat, ReadReport, batch_sessions
from reclick.logs.formats.helpers.xml_sessions import XmlLayout, read_pages

LAYOUT = XmlLayout(
    query="query",
    ads=("clueweb12id", "clueweb09id", "url"),
    may_be_empty=True,
    skipped={"currentquery": "a current query, for which no results were shown"},
)
IDENTIFYING_TAGS = (b"<clueweb12id", b"<clueweb09id", b"<sessiontrack20")


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(
        b"<session " in file.head and any(tag in file.head for tag in IDENTIFYING_TAGS)
        for file in files
    )


def _read(files: list[LogFile], report: ReadReport, _: ColumnMapping) -> Iterator[pa.RecordBatch]:
    return batch_sessions(page for file in files for page in read_pages(file, report, LAYOUT))


FORMAT = LogFormat(
    name="trec_session",
    title="TREC Session track (2011 to 2014)",
    about=(
        "XML. Keeps queries, results with their titles and snippets, clicks in order; loses "
        "topics, dwell times and the current query."
    ),
    recognises=_recognises,
    read=_read,
)
