"""The log of the Yandex Personalized Web Search Challenge: a line for each session, query and click, the lines of a session together."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from reclick.logs.files.archive import LogFile
from reclick.logs.formats.base import Columns, Format, Found
from reclick.logs.formats.helpers.session_lines import (
    ABOUT_SESSION,
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

LINE = re.compile(
    rb"\d+\t(?:M\t\d+\t\d+|\d+\t(?:[QT]\t\d+\t\d+\t[\d,]*(?:\t\d+,\d+)+|C\t\d+\t\d+))"
)
BEFORE_RESULTS = 6  # fields of a query: SessionID, TimePassed, Q or T, SERPID, QueryID, terms
OF_CLICK = 5  # SessionID, TimePassed, C, SERPID, URLID
OF_SESSION = 4  # SessionID, M, Day, USERID
NO_KEY, KEY_TWICE, USER_TWICE = "no page key", "page key twice", "user twice"
NO_USER = "session without its M line, user unknown"
TEST_PAGE, TEST_CLICK = (
    "test query, set aside: its clicks are hidden",
    "click of a test query, set aside",
)

Shown = dict[
    str, tuple[str, str, list[int]] | None
]  # SERPID -> query, results with a tab before and after each, clicks; None is a test page


def _recognises(files: list[LogFile]) -> bool:
    return looks_like(files, LINE)


def _read(files: list[LogFile], found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    return read_by_session(files, found, BEFORE_RESULTS, _pages)


def _pages(lines: list[Line], found: Found) -> list[Page]:
    """The pages of one session, in the order shown."""
    shown: Shown = {}
    user = ""
    for line in lines:
        fields = line[3]
        if fields[1] == ABOUT_SESSION:
            fault = _user_fault(fields, user)
            user = user if fault else fields[3]
        else:
            fault = (
                _click(fields, shown, found) if fields[2] == "C" else _page(fields, shown, found)
            )
        if fault:
            bad_line(line, fault, found)
    if not user:
        found.note(NO_USER)
    return [(f"{fields[0]}.{key}", user or None, *page) for key, page in shown.items() if page]


def _user_fault(fields: list[str], user: str) -> str:
    if len(fields) != OF_SESSION or not fields[3]:
        return NOT_READABLE
    return USER_TWICE if user else ""


def _page(fields: list[str], shown: Shown, found: Found) -> str:
    """Add a page; what is wrong with the line, if anything."""
    kind, key = fields[2:4]
    if kind not in {"Q", "T"}:
        return NOT_READABLE
    if not key or key in shown:
        return KEY_TWICE if key else NO_KEY
    if len(fields) <= BEFORE_RESULTS or not fields[4]:
        return NO_ADS if len(fields) >= OF_CLICK and fields[4] else NO_QUERY
    urls = _urls(fields[BEFORE_RESULTS])
    if not urls:
        return NOT_READABLE
    if kind == "T":
        found.note(TEST_PAGE)
    shown[key] = (fields[4], urls, []) if kind == "Q" else None
    return ""


def _urls(results: str) -> str:
    """The URLIDs of the pairs of URLID and DomainID, with a tab before and after each; nothing when they are not all pairs."""
    parts = results.replace("\t", ",").split(",")
    urls = "\t".join(["", *parts[::2], ""])
    return urls if len(parts) == 2 * results.count(",") and "\t\t" not in urls else ""


def _click(fields: list[str], shown: Shown, found: Found) -> str:
    """Add a click to its page; what is wrong with the line, if anything."""
    if len(fields) != OF_CLICK:
        return NOT_READABLE
    if fields[3] not in shown:
        return NO_PAGE
    page = shown[fields[3]]
    if page is None:
        found.note(TEST_CLICK)
        return ""
    _, results, clicks = page
    place = position(fields[4], results)
    if not place:
        return NOT_SHOWN
    clicks.append(place)
    return ""


YANDEX_PERSONALIZED = Format(
    name="yandex_personalized",
    title="Yandex Personalized Web Search Challenge (2013)",
    about="Text, a line for each session, query and click. Keeps user, query, results, clicks in order; loses terms, domains, days and times.",
    recognises=_recognises,
    read=_read,
)
