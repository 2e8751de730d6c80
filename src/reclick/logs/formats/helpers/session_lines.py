"""Logs of one tab-separated line for each query and click: the lines of a session together, and their pages in batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.files.archive import LogFile
from reclick.logs.files.source import short
from reclick.logs.formats.base import BATCH, SESSIONS, Found
from reclick.logs.validation import reasons as at

LOOKED_AT = 20  # lines
BLOCK = 1 << 18  # bytes: their lines, as text, stay near the processor
NOT_READABLE, NO_QUERY, NO_ADS = (
    at.REASONS[reason] for reason in (at.NOT_READABLE, at.NO_QUERY, at.NO_ADS)
)
NOT_SHOWN, NO_PAGE = "click on an ad not shown", "click without a page"
SORTED = "session not in the order of time, sorted"
ABOUT_SESSION = "M"  # in place of the time
WITHOUT_TIME = {ABOUT_SESSION: -1}  # before all that happens in the session

Line = tuple[
    int, str, int, list[str]
]  # the time since the session began, the file, the number of the line in it, the fields


Page = tuple[
    str, str | None, str, str, list[int]
]  # session_id, user, query, results with a tab before and after each, clicks


def read_by_session(
    files: list[LogFile],
    found: Found,
    most: int,
    pages_of: Callable[[list[Line], Found], list[Page]],
) -> Iterator[pa.RecordBatch]:
    """Give the lines of each session, split at `most` tabs, to `pages_of`, and gather its pages into batches."""
    cells, clicks, ends = _nothing()
    for lines in _sessions(files, found, most):
        for session, user, query, results, clicked in pages_of(lines, found):
            cells += (
                session,
                user,
                query,
                results,
            )  # flat: a tuple a page would keep the garbage collector busy
            clicks += clicked
            ends.append(len(clicks))
        if len(ends) > BATCH:
            yield _batch(cells, clicks, ends)
            cells, clicks, ends = _nothing()
    if cells:
        yield _batch(cells, clicks, ends)


def _nothing() -> tuple[list[str | None], list[int], list[int]]:
    return [], [], [0]


def _batch(cells: list[str | None], clicks: list[int], ends: list[int]) -> pa.RecordBatch:
    """The pages as sessions without times. Arrow splits the results of all pages at once, far faster than Python page by page."""
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
    return pa.RecordBatch.from_arrays(columns, schema=SESSIONS)


def _sessions(files: list[LogFile], found: Found, most: int) -> Iterator[list[Line]]:
    """The lines of one session after another, in the order of time; a session may run on into the next file.

    The first field is the session, the second the time since it began, or M in a line about the whole session.
    """
    session, lines, last, sort = "", list[Line](), 0, False
    for where, first, block in (
        (file.where, first, block) for file in files for first, block in _blocks(file, found)
    ):
        for number, text in enumerate(block, first):
            fields = text.split("\t", most)
            passed = (
                fields[1] if len(fields) > 3 and fields[0] else ""
            )  # a line of fewer fields is never a whole one
            try:
                time = int(passed) if passed.isdecimal() else WITHOUT_TIME[passed]
            except (KeyError, ValueError):  # int refuses thousands of digits
                if text and not text.isspace():
                    found.bad(NOT_READABLE, where, number, short(text))
                continue
            if fields[0] != session:
                if lines:
                    yield _in_time(lines, found) if sort else lines
                session, lines, last, sort = fields[0], [], time, False
            if time < last:
                sort = True
            last = time
            lines.append((time, where, number, fields))
    if lines:
        yield _in_time(lines, found) if sort else lines


def _in_time(lines: list[Line], found: Found) -> list[Line]:
    found.note(SORTED)
    return sorted(lines, key=itemgetter(0))  # the lines of one moment keep their order


def texts(file: LogFile, found: Found) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers, as text; those that are not UTF-8 are bad."""
    for first, lines in _blocks(file, found):
        yield from (
            (number, line)
            for number, line in enumerate(lines, first)
            if line and not line.isspace()
        )


def _blocks(file: LogFile, found: Found) -> Iterator[tuple[int, list[str]]]:
    """The lines of each block of the file, and the number of its first; those that are not UTF-8 are bad, and blank here."""
    first = 1
    for block in file.blocks(found.advance, block=BLOCK):
        try:
            text = block.decode()
        except UnicodeDecodeError:
            text = _readable(block, first, file.where, found)
        lines = text.replace("\r\n", "\n").removesuffix("\n").removesuffix("\r").split("\n")
        yield first, lines
        first += len(lines)


def _readable(block: bytes, first: int, where: str, found: Found) -> str:
    """The block with its bad lines made blank."""
    lines = block.split(b"\n")
    for place, line in enumerate(lines):
        try:
            line.decode()
        except UnicodeDecodeError:
            found.bad(
                NOT_READABLE,
                where,
                first + place,
                f"not UTF-8 text: {short(line[:200].decode(errors='replace'))}",
            )
            lines[place] = b""
    return b"\n".join(lines).decode()


def position(ad: str, results: str) -> int:
    r"""The first position of an ad among results, each with a tab before and after it; 0 when it is not there.

    >>> position("7", "\t17\t7\t70\t")
    2
    """
    return results.count("\t", 0, results.find(f"\t{ad}\t") + 1)


def bad_line(line: Line, fault: str, found: Found) -> None:
    """Count a bad line."""
    _, where, number, fields = line
    found.bad(fault, where, number, short("\t".join(fields)))


def looks_like(files: list[LogFile], pattern: re.Pattern[bytes]) -> bool:
    """Whether most of the first lines of every file match the pattern."""
    return bool(files) and all(_starts_like(file, pattern) for file in files)


def _starts_like(file: LogFile, pattern: re.Pattern[bytes]) -> bool:
    whole = file.head.rpartition(b"\n")[0] or file.head  # the last line may be cut
    lines = whole.split(b"\n", LOOKED_AT)[:LOOKED_AT]
    return 2 * sum(1 for line in lines if pattern.fullmatch(line.removesuffix(b"\r"))) > len(lines)
