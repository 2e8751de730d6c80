"""What was read: how many rows were kept, how many were dropped and why, and the log's totals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reclick.logs.files.source import Raw
from reclick.logs.validation import reasons as at
from reclick.logs.validation.result import Checked, describe

KEPT_EXAMPLES = 3
REPEATED_CLICK_NOTE, REPEATED_AD_NOTE, NULL_CLICKS_NOTE = (
    "repeated click",
    "repeated ad",
    "clicks was null, read as no click",
)
NOT_READABLE = at.REASONS[at.NOT_READABLE]


@dataclass(frozen=True, slots=True)
class Example:
    """A row that shows a fault."""

    where: str  # the file's name, or "table"
    row: int  # from 1, within the file
    got: str


@dataclass(frozen=True, slots=True)
class ReadSummary:
    """What a full pass over a log found; rows = kept + everything dropped (+ what was asked to be cleaned away, told in the notes)."""

    rows: int
    kept: int
    dropped: dict[str, int]  # reason -> rows
    examples: dict[str, list[Example]]  # reason -> the first rows
    notes: dict[str, int]  # kept, but worth knowing -> sessions
    impressions: int
    clicks: int
    clicked_sessions: int
    multi_click_sessions: int
    reverse_sessions: int
    longest_page: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as for JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["examples"] = {
            reason: [
                {"where": example.where, "row": example.row, "got": example.got}
                for example in found
            ]
            for reason, found in self.examples.items()
        }
        return {**plain, "dropped": dict(self.dropped), "notes": dict(self.notes)}

    def __str__(self) -> str:
        lines = [_line("rows", self.rows), _line("kept", self.kept, self.rows)]
        for reason, count in self.dropped.items():
            lines.append(_line(f"dropped: {reason}", count, self.rows))
            lines += [f"    {tell(example)}" for example in self.examples[reason]]
        lines += [_line(f"note: {note}", count, self.kept) for note, count in self.notes.items()]
        lines += [
            _line("impressions", self.impressions),
            _line("clicks", self.clicks, self.impressions),
        ]
        lines += [_line("sessions with a click", self.clicked_sessions, self.kept)]
        lines += [_line("sessions with 2 or more", self.multi_click_sessions, self.kept)]
        lines += [
            _line("sessions with a reverse", self.reverse_sessions, self.kept),
            _line("longest page", self.longest_page),
        ]
        return "\n".join(lines)


@dataclass(slots=True)
class Tally:
    """The summary in the making: batches are added to it one by one."""

    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    null_clicks: int = 0
    totals: Any = field(default_factory=lambda: np.zeros(at.NUM_TOTALS, np.int64))

    def add(self, raw: Raw, checked: Checked) -> None:
        """Add a batch."""
        longest = max(self.totals[at.LONGEST], checked.totals[at.LONGEST])
        self.totals = self.totals + checked.totals
        self.totals[at.LONGEST] = longest
        self.null_clicks += checked.null_clicks
        self.rows += raw.total
        for number, got in raw.unreadable:
            self.drop(NOT_READABLE, raw.where, number, got)
        if checked.totals[at.KEPT] < raw.length:
            self._add_bad(raw, checked)

    def drop(self, reason: str, where: str, number: int, got: str) -> None:
        """Count a bad row, and keep it as an example when it is among the first."""
        self.dropped[reason] += 1
        found = self.examples.setdefault(reason, [])
        if len(found) < KEPT_EXAMPLES:
            found.append(Example(where, number, got))

    def finish(self) -> ReadSummary:
        """Return the summary."""
        notes = {
            REPEATED_CLICK_NOTE: int(self.totals[at.REPEATED_CLICK]),
            REPEATED_AD_NOTE: int(self.totals[at.REPEATED_AD]),
            NULL_CLICKS_NOTE: self.null_clicks,
        }
        return ReadSummary(
            rows=self.rows,
            kept=int(self.totals[at.KEPT]),
            dropped=dict(self.dropped.most_common()),
            examples={
                reason: list(self.examples[reason]) for reason, _ in self.dropped.most_common()
            },
            notes={note: count for note, count in notes.items() if count},
            impressions=int(self.totals[at.IMPRESSIONS]),
            clicks=int(self.totals[at.CLICKS]),
            clicked_sessions=int(self.totals[at.CLICKED]),
            multi_click_sessions=int(self.totals[at.MULTI]),
            reverse_sessions=int(self.totals[at.REVERSE]),
            longest_page=int(self.totals[at.LONGEST]),
        )

    def _add_bad(self, raw: Raw, checked: Checked) -> None:
        counts = np.bincount(checked.reason, minlength=len(at.REASONS))
        for place in np.flatnonzero(counts[1:]) + 1:
            rows = np.flatnonzero(checked.reason == place)
            wanted = KEPT_EXAMPLES - len(self.examples.get(at.REASONS[place], []))
            for row in rows[: max(wanted, 0)]:
                self.drop(
                    at.REASONS[place],
                    raw.where,
                    raw.number(int(row)),
                    describe(checked, raw, int(row)),
                )
            self.dropped[at.REASONS[place]] += len(rows) - len(rows[: max(wanted, 0)])


def bad_rows_message(
    rows: int, dropped: dict[str, int], examples: dict[str, list[Example]], name: str
) -> str:
    """Say how many rows are bad, why, where the first ones are, and what to do."""
    reasons = ", ".join(
        f"{count:,} {reason} ({tell(examples[reason][0], name)})"
        for reason, count in dropped.items()
    )
    bad = sum(dropped.values())
    advice = " Raise max_ads= (--max-ads) or cut such pages." if "page too long" in dropped else ""
    verb, them = ("is", "it") if bad == 1 else ("are", "such rows")
    name = "the table" if name == "table" else name
    return f'{bad:,} of {rows:,} rows of {name} {verb} bad: {reasons}.{advice} Drop {them} with on_error="drop" (on the command line --on-error drop).'


def tell(example: Example, name: str = "") -> str:
    """Return an example as text; the file is named when it is not the one the message is about.

    >>> tell(Example("week2.parquet", 118, "position 7 on a page of 4 ads"))
    'week2.parquet row 118: position 7 on a page of 4 ads'
    """
    place = (
        f"row {example.row:,}"
        if example.where in {name, "table"}
        else f"{example.where} row {example.row:,}"
    )
    return f"{place}: {example.got}"


def _line(label: str, count: int, whole: int | None = None) -> str:
    share = (
        f"  {count / whole:7.2%}" if whole and count <= whole else ""
    )  # a note may count other things than sessions
    return f"{label:<48}{count:>16,}{share}"
