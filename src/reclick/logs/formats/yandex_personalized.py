"""Read the Yandex Personalized Web Search Challenge: one line per session, query and click."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import ColumnMapping, LogFormat, ReadReport
from reclick.logs.formats.helpers.session_lines import (
    SESSION_MARK,
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
    DUPLICATE_PAGE_KEY,
    DUPLICATE_USER,
    NO_ADS,
    NO_PAGE_KEY,
    NO_QUERY,
    NOT_READABLE,
)

LOG_LINE = re.compile(
    rb"\d+\t(?:M\t\d+\t\d+|\d+\t(?:[QT]\t\d+\t\d+\t[\d,]*(?:\t\d+,\d+)+|C\t\d+\t\d+))"
)
QUERY_FIELDS = 6  # before the results: SessionID, TimePassed, Q or T, SERPID, QueryID, terms
CLICK_FIELDS = 5  # SessionID, TimePassed, C, SERPID, URLID
SESSION_FIELDS = 4  # SessionID, M, Day, USERID
NO_USER_NOTE = "session without its M line, user unknown"
TEST_PAGE_NOTE = "test query, skipped: its clicks are hidden"
TEST_CLICK_NOTE = "click of a test query, skipped"

# SERPID -> query, results with a tab before and after each, clicks; None is a test page
ShownPages = dict[str, tuple[str, str, list[int]] | None]


def _recognises(files: list[LogFile]) -> bool:
    return all_match(files, LOG_LINE)


def _read(files: list[LogFile], report: ReadReport, _: ColumnMapping) -> Iterator[pa.RecordBatch]:
    return read_by_session(files, report, QUERY_FIELDS, _build_pages)


def _build_pages(lines: list[Line], report: ReadReport) -> list[Page]:
    """Build the pages of one session, in order."""
    pages: ShownPages = {}
    user = ""
    for line in lines:
        fields = line[3]
        if fields[1] == SESSION_MARK:
            reason = _check_session(fields, user)
            user = user if reason else fields[3]
        elif fields[2] == "C":
            reason = _add_click(fields, pages, report)
        else:
            reason = _add_page(fields, pages, report)
        if reason:
            add_bad_line(line, reason, report)
    if not user:
        report.add_note(NO_USER_NOTE)
    return [(f"{fields[0]}.{key}", user or None, *page) for key, page in pages.items() if page]


def _check_session(fields: list[str], user: str) -> str:
    if len(fields) != SESSION_FIELDS or not fields[3]:
        return NOT_READABLE
    return DUPLICATE_USER if user else ""


def _add_page(fields: list[str], pages: ShownPages, report: ReadReport) -> str:
    """Add a page, and return the reason if the line is bad."""
    kind, key = fields[2:4]
    if kind not in {"Q", "T"}:
        return NOT_READABLE
    if not key or key in pages:
        return DUPLICATE_PAGE_KEY if key else NO_PAGE_KEY
    if len(fields) <= QUERY_FIELDS or not fields[4]:
        return NO_ADS if len(fields) >= CLICK_FIELDS and fields[4] else NO_QUERY
    urls = _split_urls(fields[QUERY_FIELDS])
    if not urls:
        return NOT_READABLE
    if kind == "T":
        report.add_note(TEST_PAGE_NOTE)
    pages[key] = (fields[4], urls, []) if kind == "Q" else None
    return ""


def _split_urls(results: str) -> str:
    """The URLIDs of (URLID, DomainID) pairs, with tabs around each; empty if a pair is invalid."""
    parts = results.replace("\t", ",").split(",")
    urls = "\t".join(["", *parts[::2], ""])
    return urls if len(parts) == 2 * results.count(",") and "\t\t" not in urls else ""


def _add_click(fields: list[str], pages: ShownPages, report: ReadReport) -> str:
    """Add a click to its page, and return the reason if the line is bad."""
    if len(fields) != CLICK_FIELDS:
        return NOT_READABLE
    if fields[3] not in pages:
        return CLICK_WITHOUT_PAGE
    page = pages[fields[3]]
    if page is None:
        report.add_note(TEST_CLICK_NOTE)
        return ""
    _, results, clicks = page
    position = find_position(fields[4], results)
    if not position:
        return CLICK_NOT_SHOWN
    clicks.append(position)
    return ""


FORMAT = LogFormat(
    name="yandex_personalized",
    title="Yandex Personalized Web Search Challenge (2013)",
    about=(
        "Text, a line for each session, query and click. Keeps user, query, results, clicks in "
        "order; loses terms, domains, days and times."
    ),
    recognises=_recognises,
    read=_read,
)
