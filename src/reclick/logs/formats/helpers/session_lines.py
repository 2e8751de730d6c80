"""Read logs with one tab-separated line per query and click; a session's lines are adjacent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import SESSION_SCHEMA, abbreviate
from reclick.logs.formats.base import BATCH_SESSIONS, ReadReport
from reclick.logs.validation.reasons import NOT_READABLE

SAMPLE_LINES = 20  # to recognise a format
TEXT_BLOCK_BYTES = 1 << 18  # whose lines, as text, fit the processor's cache
SORTED_NOTE = "session not in the order of time, sorted"
SESSION_MARK = "M"  # in place of the time
TIME_BY_MARK = {SESSION_MARK: -1}  # before all events of the session

# the time since the session began, the file, the number of the line in it, the fields
Line = tuple[int, str, int, list[str]]
# session_id, user, query, results with a tab before and after each, clicks
Page = tuple[str, str | None, str, str, list[int]]


def read_by_session(
    files: list[LogFile],
    report: ReadReport,
    max_tabs: int,
    build_pages: Callable[[list[Line], ReadReport], list[Page]],
) -> Iterator[pa.RecordBatch]:
    """Pass the lines of each session to `build_pages`, and collect its pages into batches.

    A line is split at the first `max_tabs` tabs.
    """
    cells: list[str | None] = []  # flat: one tuple per page would slow the garbage collector down
    clicks: list[int] = []
    ends = [0]
    for lines in _read_sessions(files, report, max_tabs):
        for session, user, query, results, page_clicks in build_pages(lines, report):
            cells += (session, user, query, results)
            clicks += page_clicks
            ends.append(len(clicks))
        if len(ends) > BATCH_SESSIONS:
            yield _build_batch(cells, clicks, ends)
            cells, clicks, ends = [], [], [0]
    if cells:
        yield _build_batch(cells, clicks, ends)


def read_text_lines(file: LogFile, report: ReadReport) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers; lines that are not UTF-8 are bad."""
    for first, lines in _read_text_blocks(file, report):
        for number, line in enumerate(lines, first):
            if line and not line.isspace():
                yield number, line


def find_position(ad: str, results: str) -> int:
    r"""The first position of an ad among results with tabs around them; 0 if it is absent.

    >>> find_position("7", "\t17\t7\t70\t")
    2
    """
    return results.count("\t", 0, results.find(f"\t{ad}\t") + 1)


def add_bad_line(line: Line, reason: str, report: ReadReport) -> None:
    """Count a bad line."""
    _, where, number, fields = line
    report.add_bad_row(reason, where, number, abbreviate("\t".join(fields)))


def all_match(files: list[LogFile], pattern: re.Pattern[bytes]) -> bool:
    """Whether most of the first lines of each file match the pattern."""
    return bool(files) and all(_mostly_matches(file, pattern) for file in files)


def _mostly_matches(file: LogFile, pattern: re.Pattern[bytes]) -> bool:
    whole = file.head.rpartition(b"\n")[0] or file.head  # the last line may be cut
    lines = whole.split(b"\n", SAMPLE_LINES)[:SAMPLE_LINES]
    matches = sum(1 for line in lines if pattern.fullmatch(line.removesuffix(b"\r")))
    return 2 * matches > len(lines)


def _build_batch(cells: list[str | None], clicks: list[int], ends: list[int]) -> pa.RecordBatch:
    """The pages as sessions without times. Arrow splits the results of all pages at once."""
    sessions, users, queries, results = (
        pa.array(cells[first::4], pa.string()) for first in range(4)
    )
    columns = [
        sessions,
        users,
        pa.nulls(len(queries), pa.timestamp("ms")),
        queries,
        pc.split_pattern(pc.utf8_trim(results, "\t"), "\t"),
        pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(clicks, pa.int32())),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SESSION_SCHEMA)


def _read_sessions(files: list[LogFile], report: ReadReport, max_tabs: int) -> Iterator[list[Line]]:
    """Yield the lines of one session after another, in the order of time.

    A session may continue in the next file. The first field is the session; the second is the time
    since its start, or M in a line about the whole session.
    """
    session, lines, last_time, is_unsorted = "", list[Line](), 0, False
    for file in files:
        for first, block in _read_text_blocks(file, report):
            for number, text in enumerate(block, first):
                fields = text.split("\t", max_tabs)
                # A line with fewer fields is incomplete.
                mark = fields[1] if len(fields) > 3 and fields[0] else ""
                try:
                    time = int(mark) if mark.isdecimal() else TIME_BY_MARK[mark]
                except (KeyError, ValueError):  # int rejects thousands of digits
                    if text and not text.isspace():
                        report.add_bad_row(NOT_READABLE, file.where, number, abbreviate(text))
                    continue
                if fields[0] != session:
                    if lines:
                        yield _sort_by_time(lines, report) if is_unsorted else lines
                    session, lines, last_time, is_unsorted = fields[0], [], time, False
                if time < last_time:
                    is_unsorted = True
                last_time = time
                lines.append((time, file.where, number, fields))
    if lines:
        yield _sort_by_time(lines, report) if is_unsorted else lines


def _sort_by_time(lines: list[Line], report: ReadReport) -> list[Line]:
    report.add_note(SORTED_NOTE)
    return sorted(lines, key=itemgetter(0))  # lines of the same time keep their order


def _read_text_blocks(file: LogFile, report: ReadReport) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the lines of each block, blank if they are not UTF-8."""
    first = 1
    for block in file.blocks(report.advance, block_bytes=TEXT_BLOCK_BYTES):
        try:
            text = block.decode()
        except UnicodeDecodeError:
            text = _blank_bad_lines(block, first, file.where, report)
        lines = text.replace("\r\n", "\n").removesuffix("\n").removesuffix("\r").split("\n")
        report.add_records(len(lines))
        yield first, lines
        first += len(lines)


def _blank_bad_lines(block: bytes, first: int, where: str, report: ReadReport) -> str:
    lines = block.split(b"\n")
    for index, line in enumerate(lines):
        try:
            line.decode()
        except UnicodeDecodeError:
            got = f"not UTF-8 text: {abbreviate(line[:200].decode(errors='replace'))}"
            report.add_bad_row(NOT_READABLE, where, first + index, got)
            lines[index] = b""
    return b"\n".join(lines).decode()
