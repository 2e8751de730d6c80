"""Base of log formats: a name, a test that recognises it, and a reader of batches of sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import SESSION_SCHEMA
from reclick.logs.read_summary import SummaryBuilder
from reclick.runtime.progress import report_progress

BATCH_SESSIONS = 50_000
NO_CLICK_ORDER_NOTE = "clicks without an order, taken from the top down"


class SessionRecord(NamedTuple):
    """One page shown and its clicks, for formats that are read page by page."""

    query: str | None
    ads: list[str]
    clicks: list[int]
    session_id: str | None = None
    user: str | None = None
    timestamp: int | None = None  # milliseconds since 1970, UTC


class ReadCancelledError(Exception):
    """The reading was cancelled from outside."""


@dataclass(slots=True)
class ReadReport:
    """What a reader reports besides sessions: bad rows, notes, the text of ads, and progress.

    A record that breaks the rules of the format is a bad row: reading fails at the end, unless bad
    rows are dropped. Records that the format allows, but that a session cannot hold, such as events
    of another kind, are skipped and counted as a note.
    """

    bad_rows: SummaryBuilder = field(default_factory=SummaryBuilder)
    notes: Counter[str] = field(default_factory=Counter)
    other_actions: Counter[str] = field(default_factory=Counter)  # of events that are not clicks
    # ad -> title, description, display_url
    ad_texts: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    total_bytes: int | None = None  # of the files; None if not known before reading
    read_bytes: int = 0
    records: int = 0  # read so far, good and bad; 0 if the reader does not count them
    cancelled: bool = False

    def advance(self, num_bytes: int) -> None:
        """Report this many more bytes. Readers call it often, since it ends a cancelled read."""
        if self.cancelled:
            raise ReadCancelledError
        self.read_bytes += num_bytes
        report_progress("bytes", self.read_bytes, self.total_bytes)

    def add_records(self, number: int) -> None:
        """Count records of the log: lines, or rows of a table."""
        self.records += number

    def cancel(self) -> None:
        """Make the reader stop at its next `advance`."""
        self.cancelled = True

    def add_bad_row(self, reason: str, where: str, number: int, got: str) -> None:
        """Count a bad record; `number` is its line or row in the file, from 1."""
        self.bad_rows.drop(reason, where, number, got)

    def add_bad_rows(
        self, reason: str, total: int, examples: Iterable[tuple[str, int, str]]
    ) -> None:
        """Count bad records; only the first are described: (where, number, got)."""
        num_described = 0
        for where, number, got in examples:
            self.add_bad_row(reason, where, number, got)
            num_described += 1
        if total > num_described:
            self.bad_rows.dropped[reason] += total - num_described

    def add_note(self, note: str, count: int = 1) -> None:
        """Count something that was skipped, or that was kept and is worth knowing."""
        if count:
            self.notes[note] += count

    def add_ad_text(
        self, ad: str, title: str = "", description: str = "", display_url: str = ""
    ) -> None:
        """Add the text of an ad, unless it has one already."""
        self.ad_texts.setdefault(ad, (title, description, display_url))

    def ads_table(self) -> pa.Table | None:
        """The texts as an ads table; None if there are none."""
        if not self.ad_texts:
            return None
        titles, descriptions, urls = zip(*self.ad_texts.values(), strict=True)
        return pa.table(
            {
                "ad": list(self.ad_texts),
                "title": titles,
                "description": descriptions,
                "display_url": urls,
            }
        )


# Reclick's names -> the log's, for formats whose columns have no fixed names
ColumnMapping = Mapping[str, str]
Reader = Callable[[list[LogFile], ReadReport, ColumnMapping], Iterator[pa.RecordBatch]]


class EventOptions(NamedTuple):
    """Options for reading the events of a log."""

    click: tuple[str, ...] = ()  # actions that are clicks, instead of those of the format
    pages: str = "hits"  # what a page shows: all hits of the query, or the impressions


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A format of click logs."""

    name: str  # as in format="ubi"
    title: str  # its full name
    about: str  # one line: its files, what is kept and what is lost
    # From names, first bytes and columns alone. Must not raise, and must not accept other formats.
    recognises: Callable[[list[LogFile]], bool]
    read: Reader
    takes_columns: bool = False
    configure: Callable[[EventOptions], Reader] | None = None  # a reader with other options


def batch_sessions(sessions: Iterable[SessionRecord]) -> Iterator[pa.RecordBatch]:
    """Collect sessions into batches.

    >>> sessions = [SessionRecord("shoes", ["a", "b"], [2])]
    >>> [batch.num_rows for batch in batch_sessions(sessions)]
    [1]
    """
    iterator = iter(sessions)
    while chunk := list(islice(iterator, BATCH_SESSIONS)):
        columns = [_to_column(chunk, name) for name in SESSION_SCHEMA.names]
        yield pa.RecordBatch.from_arrays(columns, schema=SESSION_SCHEMA)


def _to_column(sessions: list[SessionRecord], name: str) -> pa.Array:
    values = [getattr(session, name) for session in sessions]
    kind = SESSION_SCHEMA.field(name).type
    return (
        pa.array(values, pa.int64()).cast(kind) if name == "timestamp" else pa.array(values, kind)
    )
