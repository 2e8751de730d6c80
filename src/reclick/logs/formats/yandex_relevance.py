"""The log of the Yandex Relevance Prediction Challenge: a line for each query and click, the lines of a session together."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from reclick.logs.files.archive import LogFile
from reclick.logs.formats.base import Columns, Format, Found
from reclick.logs.formats.helpers.session_lines import (
    NO_ADS,
    NO_PAGE,
    NO_QUERY,
    NOT_READABLE,
    NOT_SHOWN,
    Line,
    Page,
    bad_line,
    looks_like,
    position,
    read_by_session,
)

LINE = re.compile(rb"\d+\t\d+\t(?:Q\t\d+\t\d+(?:\t\d+)+|C\t\d+)")
BEFORE_RESULTS = 5  # fields of a query: SessionID, TimePassed, Q, QueryID, RegionID
OF_CLICK = 4  # SessionID, TimePassed, C, URLID

Shown = tuple[str, str, list[int]]  # query, results with a tab before and after each, clicks


def _recognises(files: list[LogFile]) -> bool:
    return looks_like(files, LINE)


def _read(files: list[LogFile], found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    return read_by_session(files, found, BEFORE_RESULTS, _pages)


def _pages(lines: list[Line], found: Found) -> list[Page]:
    """The pages of one session, in the order shown."""
    shown: list[Shown] = []
    for line in lines:
        fields = line[3]
        fault = _click(fields, shown) if fields[2] == "C" else _page(fields, shown)
        if fault:
            bad_line(line, fault, found)
    return [
        (f"{fields[0]}.{place}", None, query, results, clicks)
        for place, (query, results, clicks) in enumerate(shown)
    ]


def _page(fields: list[str], shown: list[Shown]) -> str:
    """Add a page; what is wrong with the line, if anything."""
    if fields[2] != "Q":
        return NOT_READABLE
    if not fields[3]:
        return NO_QUERY
    if len(fields) <= BEFORE_RESULTS:
        return NO_ADS
    results = f"\t{fields[5]}\t"
    if not fields[4] or "\t\t" in results:
        return NOT_READABLE
    # The judgments of the challenge are of a query in a region, so the two together are what was asked.
    shown.append((f"{fields[3]}_{fields[4]}", results, []))
    return ""


def _click(fields: list[str], shown: list[Shown]) -> str:
    """Add a click to the last page that showed its ad; what is wrong with the line, if anything."""
    if len(fields) != OF_CLICK:
        return NOT_READABLE
    for _, results, clicks in reversed(shown):
        if place := position(fields[3], results):
            clicks.append(place)
            return ""
    return NOT_SHOWN if shown else NO_PAGE


YANDEX_RELEVANCE = Format(
    name="yandex_relevance",
    title="Yandex Relevance Prediction Challenge (2011)",
    about="Text, a line for each query and click. Keeps query and region, results, clicks in order; loses the times, whose unit is not public.",
    recognises=_recognises,
    read=_read,
)
