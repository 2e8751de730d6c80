"""The sample text of the PSCM click model, from the log of Sogou: a page a line, with the time of each click; two more files may name its ids."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from reclick.errors import LogError
from reclick.logs.files.archive import LogFile
from reclick.logs.files.source import short
from reclick.logs.formats.base import Columns, Format, Found, Session, batched
from reclick.logs.formats.helpers.session_lines import (
    NO_ADS,
    NO_QUERY,
    NOT_READABLE,
    looks_like,
    texts,
)

PAGE = re.compile(
    rb"\d+\t[\d ]+\t[01 ]+(?:\t[-\d. ]+){7}"
)  # query, results, clicks, their times, and six measures of the mouse
CLICK = re.compile(
    rb"(?:\d\d:\d\d:\d\d|\d{14})\t[^\t]+\t[^\t]*\t\d+[ \t]\d+\t[^\t]+"
)  # SogouQ: time, user, query, rank, order, URL
AFTER_NAME = {"query_id": 3, "url_id": 1}  # file -> fields behind the name, the id first
INTENTS = "query_class"
DISAGREE, ID_TWICE = "clicks and times disagree", "id twice"
INTENTS_NOTE = "query_class file, not read"

Names = dict[str, str]  # id -> name


def _recognises(files: list[LogFile]) -> bool:
    pages = _pages_of(files)
    return looks_like(pages, PAGE) or looks_like(
        pages, CLICK
    )  # SogouQ too, for the reader says why it cannot be read


def _pages_of(files: list[LogFile]) -> list[LogFile]:
    return [file for file in files if _role(file) not in {*AFTER_NAME, INTENTS}]


def _role(file: LogFile) -> str:
    return file.name.partition(".")[0]


def _read(files: list[LogFile], found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    pages = _pages_of(files)
    _check(pages, files)
    queries = _named(files, "query_id", found)
    for ad, url in _named(files, "url_id", found).items():
        found.text(ad, display_url=url)
    found.note(INTENTS_NOTE, sum(_role(file) == INTENTS for file in files))
    return batched(_sessions(pages, queries, found))


def _check(pages: list[LogFile], files: list[LogFile]) -> None:
    if not pages:
        raise LogError(
            f"There are no pages in {', '.join(file.where for file in files)}. Give train_data or test_data too."
        )
    for file in pages:
        if looks_like([file], CLICK):
            raise LogError(
                f"{file.where} is a SogouQ query log. It holds the results clicked and not those shown, so there are no pages to read. "
                "Give a log that lists the results of each page, such as the sample of the PSCM model."
            )


def _named(files: list[LogFile], role: str, found: Found) -> Names:
    """What the ids of queries or results stand for; nothing without the file that says so."""
    names: Names = {}
    for file in files:
        if _role(file) == role:
            for number, text in texts(file, found):
                fault = _name(text.rsplit("\t", AFTER_NAME[role]), AFTER_NAME[role], names)
                if fault:
                    found.bad(fault, file.where, number, short(text))
    return names


def _name(fields: list[str], after: int, names: Names) -> str:
    """Add a name; what is wrong with the line, if anything."""
    if len(fields) <= after or not fields[0] or not fields[1]:
        return NOT_READABLE
    name, number = fields[:2]
    return "" if names.setdefault(number, name) == name else ID_TWICE


def _sessions(files: list[LogFile], queries: Names, found: Found) -> Iterator[Session]:
    for file in files:
        for number, text in texts(file, found):
            page = _session(text.split("\t"), queries)
            if isinstance(page, Session):
                yield page
            else:
                found.bad(page, file.where, number, short(text))


def _session(fields: list[str], queries: Names) -> Session | str:
    """A page, or what is wrong with its line."""
    if len(fields) < 4:
        return NOT_READABLE
    query = queries.get(fields[0]) if queries else fields[0]
    ads, flags, times = (part.split() for part in fields[1:4])
    if not query or not ads:
        return NO_ADS if query else NO_QUERY
    if not len(ads) == len(flags) == len(times) or not {*flags} <= {"0", "1"}:
        return NOT_READABLE
    try:
        clicked = [
            float(time) if float(time) > 0 else None for time in times
        ]  # -1 where there is no click
    except ValueError:
        return NOT_READABLE
    if any((flag == "1") != (time is not None) for flag, time in zip(flags, clicked, strict=True)):
        return DISAGREE
    order = sorted((time, position) for position, time in enumerate(clicked, 1) if time is not None)
    return Session(query, ads, [position for _, position in order])


SOGOU = Format(
    name="sogou",
    title="Sogou log, as in the sample of the PSCM click model (2015)",
    about="train_data and test_data, with query_id and url_id if at hand. Keeps queries, results, URLs, clicks in order; loses the mouse and times.",
    recognises=_recognises,
    read=_read,
)
