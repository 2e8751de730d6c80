"""Read the sample of the PSCM click model, from the log of Sogou: one line per page.

A line has the time of each click. Two further files may have the names of ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import abbreviate
from reclick.logs.formats.base import (
    ColumnMapping,
    LogFormat,
    ReadReport,
    SessionRecord,
    batch_sessions,
)
from reclick.logs.formats.helpers.session_lines import all_match, read_text_lines
from reclick.logs.validation.reasons import (
    CLICKS_AND_TIMES_DISAGREE,
    DUPLICATE_ID,
    NO_ADS,
    NO_QUERY,
    NOT_READABLE,
)

# query, results, clicks, their times, and six measures of the mouse
PAGE_LINE = re.compile(rb"\d+\t[\d ]+\t[01 ]+(?:\t[-\d. ]+){7}")
# SogouQ: time, user, query, rank, order, URL
SOGOUQ_LINE = re.compile(rb"(?:\d\d:\d\d:\d\d|\d{14})\t[^\t]+\t[^\t]*\t\d+[ \t]\d+\t[^\t]+")
FIELDS_AFTER_NAME = {"query_id": 3, "url_id": 1}  # file -> fields after the name, the id first
INTENTS_FILE = "query_class"
INTENTS_NOTE = "query_class file, not read"

NamesById = dict[str, str]


def _recognises(files: list[LogFile]) -> bool:
    pages = _page_files(files)
    # SogouQ too, since the reader reports why it cannot be read.
    return all_match(pages, PAGE_LINE) or all_match(pages, SOGOUQ_LINE)


def _page_files(files: list[LogFile]) -> list[LogFile]:
    return [file for file in files if _base_name(file) not in {*FIELDS_AFTER_NAME, INTENTS_FILE}]


def _base_name(file: LogFile) -> str:
    """The name of a file up to its first dot, which identifies its content."""
    return file.name.partition(".")[0]


def _read(files: list[LogFile], report: ReadReport, _: ColumnMapping) -> Iterator[pa.RecordBatch]:
    pages = _page_files(files)
    _check_pages(pages, files)
    queries = _read_names(files, "query_id", report)
    for ad, url in _read_names(files, "url_id", report).items():
        report.add_ad_text(ad, display_url=url)
    report.add_note(INTENTS_NOTE, sum(_base_name(file) == INTENTS_FILE for file in files))
    return batch_sessions(_read_sessions(pages, queries, report))


def _check_pages(pages: list[LogFile], files: list[LogFile]) -> None:
    if not pages:
        raise LogError(
            f"There are no pages in {', '.join(file.where for file in files)}. "
            "Give train_data or test_data too."
        )
    for file in pages:
        if all_match([file], SOGOUQ_LINE):
            raise LogError(
                f"{file.where} is a SogouQ query log. It holds the results clicked and not those "
                "shown, so there are no pages to read. Give a log that lists the results of each "
                "page, such as the sample of the PSCM model."
            )


def _read_names(files: list[LogFile], base_name: str, report: ReadReport) -> NamesById:
    """The names of the ids of queries or results; empty if there is no file of names."""
    names: NamesById = {}
    num_fields = FIELDS_AFTER_NAME[base_name]
    for file in files:
        if _base_name(file) == base_name:
            for number, text in read_text_lines(file, report):
                reason = _add_name(text.rsplit("\t", num_fields), num_fields, names)
                if reason:
                    report.add_bad_row(reason, file.where, number, abbreviate(text))
    return names


def _add_name(fields: list[str], num_fields: int, names: NamesById) -> str:
    """Add a name, and return the reason if the line is bad."""
    if len(fields) <= num_fields or not fields[0] or not fields[1]:
        return NOT_READABLE
    name, number = fields[:2]
    return "" if names.setdefault(number, name) == name else DUPLICATE_ID


def _read_sessions(
    files: list[LogFile], queries: NamesById, report: ReadReport
) -> Iterator[SessionRecord]:
    for file in files:
        for number, text in read_text_lines(file, report):
            page = _parse_page(text.split("\t"), queries)
            if isinstance(page, SessionRecord):
                yield page
            else:
                report.add_bad_row(page, file.where, number, abbreviate(text))


def _parse_page(fields: list[str], queries: NamesById) -> SessionRecord | str:
    """A page, or the reason why its line is bad."""
    if len(fields) < 4:
        return NOT_READABLE
    query = queries.get(fields[0]) if queries else fields[0]
    ads, flags, times = (part.split() for part in fields[1:4])
    if not query or not ads:
        return NO_ADS if query else NO_QUERY
    if not len(ads) == len(flags) == len(times) or not {*flags} <= {"0", "1"}:
        return NOT_READABLE
    try:
        seconds = [float(time) for time in times]
    except ValueError:
        return NOT_READABLE
    click_times = [time if time > 0 else None for time in seconds]  # -1 where there is no click
    if any(
        (flag == "1") != (time is not None) for flag, time in zip(flags, click_times, strict=True)
    ):
        return CLICKS_AND_TIMES_DISAGREE
    order = sorted(
        (time, position) for position, time in enumerate(click_times, 1) if time is not None
    )
    return SessionRecord(query, ads, [position for _, position in order])


FORMAT = LogFormat(
    name="sogou",
    title="Sogou log, as in the sample of the PSCM click model (2015)",
    about=(
        "train_data and test_data, with query_id and url_id if at hand. Keeps queries, results, "
        "URLs, clicks in order; loses the mouse and times."
    ),
    recognises=_recognises,
    read=_read,
)
