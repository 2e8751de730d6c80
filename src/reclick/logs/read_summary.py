"""Count the good rows and, by reason, the bad rows of a log, and report them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from reclick.errors import Argument, BadRowsError
from reclick.logs.files.source import RawBatch
from reclick.logs.validation.reasons import (
    NO_TOTALS,
    NOT_READABLE,
    PAGE_TOO_LONG,
    ROW_REASONS,
    BatchTotals,
)
from reclick.runtime.arguments import check_arguments

if TYPE_CHECKING:
    from reclick.logs.validation.validate import ValidatedBatch

MAX_EXAMPLES = 3  # of each reason
REPEATED_CLICK_NOTE = "repeated click"
REPEATED_AD_NOTE = "repeated ad"
NULL_CLICKS_NOTE = "clicks was null, read as no click"


@dataclass(frozen=True, slots=True)
class BadRow:
    """An example of a row that was dropped."""

    where: str  # the file's name, or "table"
    row: int  # from 1, within the file
    got: str

    @check_arguments
    def to_text(self, log_name: str = "") -> str:
        """Describe where the row is and what it holds, without the file if it is `log_name`.

        >>> BadRow("week2.parquet", 118, "position 7 on a page of 4 ads").to_text()
        'week2.parquet row 118: position 7 on a page of 4 ads'
        """
        file = "" if self.where in {log_name, "table"} else f"{self.where} "
        return f"{file}row {self.row:,}: {self.got}"


@dataclass(frozen=True, slots=True)
class ReadSummary:
    """What a full pass over a log read.

    `rows` is `kept` plus the dropped rows and those that cleaning, if any, removed (see `notes`).
    A log of another format has `records`, such as events, from which pages are made. Then `dropped`
    has records and pages.
    """

    rows: int
    kept: int
    dropped: dict[str, int]  # reason -> rows
    examples: dict[str, list[BadRow]]  # reason -> the first rows
    notes: dict[str, int]  # what is worth knowing of kept rows -> sessions
    impressions: int
    clicks: int
    clicked_sessions: int
    multi_click_sessions: int
    reverse_sessions: int
    longest_page: int
    known_outcomes: int = 0  # clicks with a known dwell time or number of conversions
    converted_clicks: int = 0
    records: int | None = None  # None if a row is a page, or if records are not counted
    dropped_records: dict[str, int] = field(default_factory=dict)  # records in `dropped`

    @property
    def bad_share(self) -> float:
        """The dropped share of the records (or rows), or of the pages, whichever is larger."""
        records = sum(self.dropped_records.values())
        pages = sum(self.dropped.values()) - records
        whole = self.records or self.rows
        shares = (records / max(whole, 1), pages / max(self.rows - records, 1))
        return max(shares)

    def to_dict(self) -> dict[str, Any]:
        """Return built-in types only, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        pages = self.rows
        lines = [_format_line("rows", pages)]
        if self.records is not None:
            pages -= sum(self.dropped_records.values())
            lines = [_format_line("records read", self.records), _format_line("pages", pages)]
        lines.append(_format_line("kept", self.kept, pages))
        for reason, count in self.dropped.items():
            lines += self._format_dropped(reason, count, pages)
            lines += [f"    {example.to_text()}" for example in self.examples[reason]]
        for note, count in self.notes.items():
            of_sessions = note in {REPEATED_CLICK_NOTE, REPEATED_AD_NOTE, NULL_CLICKS_NOTE}
            lines.append(_format_line(f"note: {note}", count, self.kept if of_sessions else None))
        lines += [
            _format_line("impressions", self.impressions),
            _format_line("clicks", self.clicks, self.impressions),
            _format_line("sessions with a click", self.clicked_sessions, self.kept),
            _format_line("sessions with 2 or more", self.multi_click_sessions, self.kept),
            _format_line("sessions with a backward click", self.reverse_sessions, self.kept),
            _format_line("longest page", self.longest_page),
        ]
        if self.known_outcomes:
            lines += [
                _format_line("clicks with a known outcome", self.known_outcomes, self.clicks),
                _format_line("clicks with a conversion", self.converted_clicks, self.clicks),
            ]
        return "\n".join(lines)

    def _format_dropped(self, reason: str, count: int, pages: int) -> list[str]:
        """Lines about rows dropped for a reason, as shares of the records and of the pages."""
        records = self.dropped_records.get(reason, 0)
        if self.records is None:
            return [_format_line(f"dropped: {reason}", count, self.rows)]
        parts = {"records": (records, self.records), "pages": (count - records, pages)}
        return [
            _format_line(f"dropped {what}: {reason}", number, whole)
            for what, (number, whole) in parts.items()
            if number
        ]


@dataclass(slots=True)
class SummaryBuilder:
    """Adds up the summary, batch by batch."""

    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[BadRow]] = field(default_factory=dict)
    null_clicks: int = 0
    totals: BatchTotals = NO_TOTALS

    def add(self, raw: RawBatch, result: ValidatedBatch) -> None:
        """Add a batch."""
        self._add_totals(result.totals)
        self.null_clicks += result.null_clicks
        self.rows += raw.length + len(raw.unreadable)
        for number, got in raw.unreadable:
            self.drop(NOT_READABLE, raw.where, number, got)
        if result.totals.sessions < raw.length:
            self._add_bad_rows(raw, result)

    def merge(self, part: ReadSummary) -> None:
        """Add the summary of the next part of the log."""
        totals = BatchTotals(
            sessions=part.kept,
            impressions=part.impressions,
            clicks=part.clicks,
            clicked_sessions=part.clicked_sessions,
            multi_click_sessions=part.multi_click_sessions,
            reverse_sessions=part.reverse_sessions,
            repeated_click_sessions=part.notes.get(REPEATED_CLICK_NOTE, 0),
            repeated_ad_sessions=part.notes.get(REPEATED_AD_NOTE, 0),
            repeated_clicks=0,  # not in a summary
            longest_page=part.longest_page,
            known_outcomes=part.known_outcomes,
            converted_clicks=part.converted_clicks,
        )
        self._add_totals(totals)
        self.null_clicks += part.notes.get(NULL_CLICKS_NOTE, 0)
        self.rows += part.rows
        for reason, count in part.dropped.items():
            self.dropped[reason] += count
            examples = self.examples.setdefault(reason, [])
            examples += part.examples[reason][: MAX_EXAMPLES - len(examples)]

    def _add_totals(self, more: BatchTotals) -> None:
        sums = BatchTotals(*map(sum, zip(self.totals, more, strict=True)))
        longest = max(self.totals.longest_page, more.longest_page)
        self.totals = sums._replace(longest_page=longest)

    def drop(self, reason: str, where: str, number: int, got: str) -> None:
        """Count a bad row, and keep it as an example if it is one of the first."""
        self.dropped[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(BadRow(where, number, got))

    def build(self) -> ReadSummary:
        """Return the summary."""
        notes = {
            REPEATED_CLICK_NOTE: self.totals.repeated_click_sessions,
            REPEATED_AD_NOTE: self.totals.repeated_ad_sessions,
            NULL_CLICKS_NOTE: self.null_clicks,
        }
        dropped = dict(self.dropped.most_common())
        return ReadSummary(
            rows=self.rows,
            kept=self.totals.sessions,
            dropped=dropped,
            examples={reason: list(self.examples[reason]) for reason in dropped},
            notes={note: count for note, count in notes.items() if count},
            impressions=self.totals.impressions,
            clicks=self.totals.clicks,
            clicked_sessions=self.totals.clicked_sessions,
            multi_click_sessions=self.totals.multi_click_sessions,
            reverse_sessions=self.totals.reverse_sessions,
            longest_page=self.totals.longest_page,
            known_outcomes=self.totals.known_outcomes,
            converted_clicks=self.totals.converted_clicks,
        )

    def _add_bad_rows(self, raw: RawBatch, result: ValidatedBatch) -> None:
        for code in np.unique(result.reason[result.reason > 0]).tolist():
            rows = np.flatnonzero(result.reason == code)
            missing = MAX_EXAMPLES - len(self.examples.get(ROW_REASONS[code], []))
            example_rows = rows[: max(missing, 0)].tolist()
            for row in example_rows:
                description = result.describe(raw, row)
                self.drop(ROW_REASONS[code], raw.where, raw.row_number(row), description)
            self.dropped[ROW_REASONS[code]] += len(rows) - len(example_rows)


def describe_bad_rows(
    rows: int,
    dropped: dict[str, int],
    examples: dict[str, list[BadRow]],
    name: str,
    unit: str = "rows",
) -> str:
    """Describe how many rows are bad, why, and where the first ones are."""
    reasons = ", ".join(
        f"{count:,} {reason} ({examples[reason][0].to_text(name)})"
        for reason, count in dropped.items()
    )
    bad = sum(dropped.values())
    verb = "is" if bad == 1 else "are"
    log = "the table" if name == "table" else name
    return f"{bad:,} of {rows:,} {unit} of {log} {verb} bad: {reasons}."


def bad_rows_error(
    rows: int,
    dropped: dict[str, int],
    examples: dict[str, list[BadRow]],
    name: str,
    more: str = "",
    unit: str = "rows",
) -> BadRowsError:
    """The error for bad rows: how many, why, where the first ones are, and what to do."""
    message = describe_bad_rows(rows, dropped, examples, name, unit)
    raise_limit = (" Raise ", Argument("max_ads"), " or cut such pages.")
    them = "it" if sum(dropped.values()) == 1 else f"such {unit}"
    advice = (f" Drop {them} with ", Argument("on_error", "drop"), f".{more}")
    return BadRowsError(message, *(raise_limit if PAGE_TOO_LONG in dropped else ()), *advice)


def _format_line(label: str, count: int, whole: int | None = None) -> str:
    share = f"  {count / whole:7.2%}" if whole else ""
    return f"{label:<48}{count:>16,}{share}"
