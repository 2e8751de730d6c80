"""Read the Yandex Relevance Prediction Challenge: one line per query and click."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import ColumnMapping, LogFormat, ReadReport
from reclick.logs.formats.helpers.session_lines import (
    Line,
    Page,
    add_bad_line,
    all_match,
    find_position,
    read_by_session,
)
from reclick.logs.validation.reasons import (
    CLICK_NOT_SHOWN,
    CLICK_WITHOUT_PAGE,
    NO_ADS,
    NO_QUERY,
    NOT_READABLE,
)

LOG_LINE = re.compile(rb"\d+\t\d+\t(?:Q\t\d+\t\d+(?:\t\d+)+|C\t\d+)")
QUERY_FIELDS = 5  # before the results: SessionID, TimePassed, Q, QueryID, RegionID
CLICK_FIELDS = 4  # SessionID, TimePassed, C, URLID

ShownPage = tuple[str, str, list[int]]  # query, results with a tab before and after each, clicks


def _recognises(files: list[LogFile]) -> bool:
    return all_match(files, LOG_LINE)


def _read(files: list[LogFile], report: ReadReport, _: ColumnMapping) -> Iterator[pa.RecordBatch]:
    return read_by_session(files, report, QUERY_FIELDS, _build_pages)


def _build_pages(lines: list[Line], report: ReadReport) -> list[Page]:
    """Build the pages of one session, in order."""
    pages: list[ShownPage] = []
    for line in lines:
        fields = line[3]
        reason = _add_click(fields, pages) if fields[2] == "C" else _add_page(fields, pages)
        if reason:
            add_bad_line(line, reason, report)
    return [(f"{fields[0]}.{index}", None, *page) for index, page in enumerate(pages)]


def _add_page(fields: list[str], pages: list[ShownPage]) -> str:
    """Add a page, and return the reason if the line is bad."""
    if fields[2] != "Q":
        return NOT_READABLE
    if not fields[3]:
        return NO_QUERY
    if len(fields) <= QUERY_FIELDS:
        return NO_ADS
    results = f"\t{fields[5]}\t"
    if not fields[4] or "\t\t" in results:
        return NOT_READABLE
    # The judgments of the challenge are of a query in a region, so the two together are the query.
    pages.append((f"{fields[3]}_{fields[4]}", results, []))
    return ""


def _add_click(fields: list[str], pages: list[ShownPage]) -> str:
    """Add a click to the last page that showed its ad, and return the reason if the line is bad."""
    if len(fields) != CLICK_FIELDS:
        return NOT_READABLE
    for _, results, clicks in reversed(pages):
        if position := find_position(fields[3], results):
            clicks.append(position)
            return ""
    return CLICK_NOT_SHOWN if pages else CLICK_WITHOUT_PAGE


FORMAT = LogFormat(
    name="yandex_relevance",
    title="Yandex Relevance Prediction Challenge (2011)",
    about=(
        "Text, a line for each query and click. Keeps query and region, results, clicks in order; "
        "loses the times, whose unit is not public."
    ),
    recognises=_recognises,
    read=_read,
)
