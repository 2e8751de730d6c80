"""A log of sessions that can be read any number of times. A full pass leaves a summary of its rows.

The summary itself is in `read_summary`: the good rows, and by reason the bad rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.outcomes import QUICK_RETURN_SECONDS
from reclick.errors import Argument, BadRowsError, LogError
from reclick.logs.files.source import OnError, Source, abbreviate, split_sources
from reclick.logs.files.stream import StreamSource
from reclick.logs.read_summary import BadRow, ReadSummary, SummaryBuilder, bad_rows_error
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location
from reclick.runtime.notebook import render_card
from reclick.runtime.outputs import refuse_source_files
from reclick.runtime.parallel import prefetch
from reclick.runtime.progress import report_progress
from reclick.runtime.wording import count_noun

MAX_NAMED_ACTIONS = 10  # in advice
EXAMPLE_ROWS = 20  # of which the ads are looked at, for a list in a notation of its own
LIST_IN_TEXT = re.compile(r"[^\s,][\s,]+[^\s,]")
TEXT_TABLE = re.compile(r"\.(csv|tsv)(\.gz)?$", re.IGNORECASE)
SMALL_LOG_ROWS = 1_000  # read without a thread: starting one takes longer


@dataclass(frozen=True, slots=True)
class Provenance:
    """The log that a file of sessions was made from, and the rows that were dropped then."""

    name: str
    format: str | None
    rows: int  # good and bad
    dropped: dict[str, int]
    examples: dict[str, list[BadRow]]
    notes: dict[str, int]
    clicks: int | None = None  # in the file; None when not known
    other_actions: dict[str, int] = field(default_factory=dict)  # of events that are not clicks
    records: int | None = None  # None if a row is a page
    dropped_records: dict[str, int] = field(default_factory=dict)  # records in `dropped`

    def add_to(self, summary: ReadSummary) -> ReadSummary:
        """Add to the summary of a pass over the file the rows dropped when the file was made."""
        return replace(
            summary,
            rows=self.rows,
            dropped={**self.dropped, **summary.dropped},
            examples={**self.examples, **summary.examples},
            notes={**self.notes, **summary.notes},
            records=self.records,
            dropped_records=self.dropped_records,
        )


class HasSummary(Protocol):
    """The report of a task on the part of a log that it read."""

    @property
    def summary(self) -> ReadSummary:
        """The summary of the part."""


class SessionLog:
    """A log with valid columns. Its rows are read and validated at every pass.

    >>> import reclick as rc
    >>> log = rc.read_sessions({"query": ["shoes"], "ads": [["a", "b"]], "clicks": [[2, 1]]})
    >>> [batch.click.tolist() for batch in log.batches()], log.summary.reverse_sessions
    ([[2, 1]], 1)
    """

    def __init__(
        self,
        sources: list[Source],
        *,
        ads: pa.Table | None,
        on_error: OnError,
        max_ads: int,
        quick_return_seconds: float = QUICK_RETURN_SECONDS,
        provenance: Provenance | None = None,
    ) -> None:
        self.ads = ads
        self.quick_return_seconds = quick_return_seconds
        self.on_error = on_error
        self.max_ads = max_ads
        self.provenance = provenance
        self.files: tuple[AnyPath, ...] = ()  # that the log is read from
        self.text_files: tuple[AnyPath, ...] = ()  # that the text of its ads is read from
        self.call = ""  # that opens it with options, if a function without options has opened it
        self._sources = sources
        self._summary: ReadSummary | None = None
        self._is_part = False  # whether this is a part of a log that several processes read

    def keep_no_copy(self) -> None:
        """Keep no copy of streams, which can be read only once: there will be one pass only."""
        for source in self._sources:
            if isinstance(source, StreamSource):
                source.keep_no_copy()

    @check_arguments
    def refuse_target(self, target: Location) -> None:
        """Raise if the target is a file of the log or of the text of its ads, under any name."""
        refuse_source_files(target, self.files)
        refuse_source_files(target, self.text_files, "the text of the ads")

    @property
    def name(self) -> str:
        """A short description for messages: `week2.parquet`, `4 files`, `table`."""
        if self.provenance is not None:
            return self.provenance.name
        return self._sources[0].where if len(self._sources) == 1 else f"{len(self._sources)} files"

    @property
    def num_rows(self) -> int | None:
        """The number of rows, good and bad; None if it is only known after reading."""
        counts = [source.num_rows for source in self._sources]
        known_counts = [count for count in counts if count is not None]
        return sum(known_counts) if len(known_counts) == len(counts) else None

    @property
    def has_clicks(self) -> bool:
        """Whether every file has a clicks column."""
        return all("clicks" in source.names for source in self._sources)

    @property
    def summary(self) -> ReadSummary:
        """The summary of the last full pass; if there was none, the log is read.

        Bad rows do not raise an error here: they are in the summary.
        """
        if self._summary is None:
            try:
                for _ in self.batches():
                    pass
            except BadRowsError:
                if self._summary is None:
                    raise
        if self._summary is None:
            raise LogError(f"{self.name} could not be read to the end.")
        return self._summary

    @property
    def advice(self) -> str:
        """What to do if the log has no click at all; empty if it has clicks."""
        error = self.no_clicks_error()
        return "" if error is None else str(error)

    def no_clicks_error(self) -> LogError | None:
        """An error that says what to do if the log has no click at all; None if it has clicks.

        None too if no row is left: then the bad rows are the problem.
        """
        if not self.has_clicks or self.summary.clicks:
            return None
        if self.summary.dropped and not self.summary.kept:
            return None
        actions = {} if self.provenance is None else self.provenance.other_actions
        if not actions:
            return LogError(
                f"{self.name}: no click. Were all files given, and is the column of clicks named "
                "clicks?"
            )
        names = sorted(actions, key=lambda name: ("click" not in name, -actions[name], name))
        counts = ", ".join(f"{name} ({actions[name]:,})" for name in names[:MAX_NAMED_ACTIONS])
        more = ", …" if len(names) > MAX_NAMED_ACTIONS else ""
        return LogError(
            f"{self.name}: no click. The events have the actions {counts}{more}. Name those that "
            "are clicks: ",
            Argument("click", [names[0]]),
            ".",
        )

    def single_ads_error(self) -> LogError | None:
        """An error that shows how lists are written if every page has one ad, which is a list.

        Only the first pages of CSV and TSV are looked at, and only after a full pass.
        """
        if self._summary is None or self._summary.longest_page != 1 or not self._is_text_table:
            return None
        ad = next(filter(LIST_IN_TEXT.search, self._first_ads()), None)
        if ad is None:
            return None
        return LogError(
            f"{self.name}: every page has one ad, such as {abbreviate(ad)}. "
            'Lists are written a1|a2|a3 or ["a1", "a2", "a3"].'
        )

    @property
    def _is_text_table(self) -> bool:
        """Whether the log is CSV or TSV in Reclick's columns, or was converted from it."""
        if self.provenance is not None and self.provenance.format not in {None, "sessions"}:
            return False
        name = self._sources[0].where if self.provenance is None else self.provenance.name
        return TEXT_TABLE.search(name) is not None

    def _first_ads(self) -> list[str]:
        """The ads of the first pages."""
        raw = next(self._sources[0].read(with_rows=False), None)
        pages = [] if raw is None else raw.columns["ads"].slice(0, EXAMPLE_ROWS).to_pylist()
        return [str(ad) for page in pages for ad in page or () if ad is not None]

    @check_arguments
    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        """Yield the good sessions in row order; with_rows adds every column of the source.

        The `rows` have the column types of the file. Progress is reported per batch.
        """
        total = self.num_rows
        scan = self._scan(with_rows=with_rows)
        is_small = total is not None and total <= SMALL_LOG_ROWS
        for batch, num_read in scan if is_small else prefetch(scan):
            if batch is not None:
                yield batch
            report_progress("sessions", num_read, total)

    @check_arguments
    def split(self, n: int) -> list[SessionLog] | None:
        """About n parts of the log, in order, which can be pickled; None if it cannot be split.

        Parts drop their bad rows. Pass the summaries of all parts to `accept_parts`.
        """
        pieces = split_sources(self._sources, n)
        if pieces is None:
            return None
        return [self._as_part(sources) for sources in pieces]

    @property
    def frame(self) -> Any:
        """The Spark DataFrame that the log is read from; None for any other log."""
        return getattr(self._sources[0], "frame", None)

    @property
    def column_names(self) -> list[str]:
        """The columns that are read, as they are named in the first source."""
        return list(dict.fromkeys(self._sources[0].names.values()))

    def to_frame_reader(self) -> Callable[[Iterator[pa.RecordBatch], str], SessionLog]:
        """A function that makes a part of the log from the rows that a Spark task gets."""
        source: Any = self._sources[0]
        return partial(_read_frame_part, self._as_part([source.without_frame()]))

    def _as_part(self, sources: list[Source]) -> SessionLog:
        """The log with some of its rows. It drops bad rows, which the whole log reports."""
        part = copy(self)
        part._sources, part._summary, part._is_part = sources, None, True
        part.on_error, part.provenance, part.ads = "drop", None, None
        return part

    def accept_parts(self, reports: Sequence[HasSummary]) -> None:
        """Take the summaries of all parts as a full pass, and raise the errors of such a pass."""
        builder = SummaryBuilder()
        for report in reports:
            builder.merge(report.summary)
        self._finish(builder)

    def require_rows(self) -> None:
        """Raise if the last pass kept no row: there is nothing to learn from."""
        if self.summary.kept == 0:
            raise LogError(
                f"{self.name}: no row is left of {self.summary.rows:,}, all are bad. "
                "See `reclick check`, or log.summary."
            )

    def _scan(self, *, with_rows: bool) -> Iterator[tuple[SessionBatch | None, int]]:
        """Yield the good sessions of each batch, and the number of rows read so far."""
        from reclick.logs.validation.validate import validate

        builder, previous = SummaryBuilder(), None
        for source in self._sources:
            for raw in source.read(with_rows=with_rows):
                result = validate(
                    raw, self.max_ads, previous, quick_return_seconds=self.quick_return_seconds
                )
                previous = result.arrays
                builder.add(raw, result)
                # After the first bad row, the rest is only validated, to count all bad rows.
                fails = bool(builder.dropped) and self.on_error == "raise"
                batch = None if fails or not result.totals.sessions else result.sessions
                yield batch, builder.rows
        self._finish(builder)

    def _finish(self, builder: SummaryBuilder) -> None:
        if not builder.rows and not self._is_part:
            raise LogError(f"{self.name} has no rows.{self._advise_on_streams()}")
        summary = builder.build()
        if self.provenance is not None:
            summary = self.provenance.add_to(summary)
        self._summary = summary
        if builder.dropped and self.on_error == "raise":
            error = bad_rows_error(builder.rows, summary.dropped, summary.examples, self.name)
            if self.call:
                error.set_call(self.call)
            raise error

    def _advise_on_streams(self) -> str:
        if not any(isinstance(source, StreamSource) for source in self._sources):
            return ""
        return (
            " It is a stream, which can be read only once: if it was read already, give a new one, "
            "or open it once with rc.read_sessions, which keeps a copy."
        )

    def _repr_html_(self) -> str:
        rows = "not known before it is read" if self.num_rows is None else f"{self.num_rows:,}"
        facts: dict[str, object] = {
            "rows": rows,
            "clicks": "yes" if self.has_clicks else "none: pages only",
            "text of ads": "none" if self.ads is None else f"{len(self.ads):,} ads",
            "format": "" if self.provenance is None else self.provenance.format or "",
        }
        summary = self._summary  # of the last pass; the log is not read to show it
        if summary is not None:
            facts["clicks"] = (
                f"{summary.clicks:,} in {summary.clicked_sessions:,} of {summary.kept:,} sessions"
            )
            facts["dropped rows"] = f"{sum(summary.dropped.values()):,}"
        return render_card(f"Log {self.name}", facts)

    def __repr__(self) -> str:
        rows = "" if self.num_rows is None else f", {count_noun(self.num_rows, 'row')}"
        known_clicks = None if self.provenance is None else self.provenance.clicks
        advice = f"\n  {self.advice}" if known_clicks == 0 else ""
        return f"SessionLog({self.name}{rows}){advice}"


def _read_frame_part(log: SessionLog, batches: Iterator[pa.RecordBatch], where: str) -> SessionLog:
    source: Any = log._sources[0]
    return log._as_part([source.read_part(batches, where)])
