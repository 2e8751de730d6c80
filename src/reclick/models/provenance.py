"""The logs that a model has seen, to notice one that would count twice or is a test log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from reclick.data.log_record import (
    SAMPLE_SIZE,
    LogRecord,
    estimate_overlap,
    records_from_table,
    records_to_table,
)
from reclick.errors import Argument, SeenLogError

TOTAL_SAMPLE_SIZE = 131_072  # sampled sessions of all logs of a model: 2 MB
MIN_SAMPLE_SIZE = 256  # at least, of each log


class SeenLog(NamedTuple):
    """A log that a model learned from."""

    log: LogRecord
    use: str  # "fit", "update" or "history"
    date: str  # when the model learned from it, ISO 8601, UTC

    @property
    def counted(self) -> bool:
        """Whether its sessions are among those the model is fitted to."""
        return self.use != "history"

    def to_dict(self) -> dict[str, Any]:
        """Built-in types only, without the sample."""
        return {**self.log.to_dict(), "use": self.use, "date": self.date}

    def __str__(self) -> str:
        period = f", {self.log.period}" if self.log.period else ""
        return (
            f"{self.log.name} ({self.log.sessions:,} sessions{period}; {self.use} on "
            f"{self.date[:16].replace('T', ' ')} UTC)"
        )


SeenLogs = tuple[SeenLog, ...]


def to_seen_logs(logs: Iterable[LogRecord], use: str) -> SeenLogs:
    """Describe logs that a model learns from now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return tuple(SeenLog(log, use, now) for log in logs)


def extend_provenance(
    provenance: SeenLogs, new: Sequence[LogRecord], removed: Sequence[LogRecord], *, again: bool
) -> SeenLogs:
    """The logs of a model after an update.

    Raises `SeenLogError` for a new log that the model has seen, unless `again`. A log that was
    removed may be added again.
    """
    remaining = list(provenance)
    for log in removed:
        row = next((i for i, seen_log in enumerate(remaining) if _is_counted(seen_log, log)), None)
        if row is not None:
            del remaining[row]
    if not again:
        check_new(remaining, new)
    return (*remaining, *to_seen_logs(new, "update"))


def check_new(provenance: Sequence[SeenLog], new: Iterable[LogRecord]) -> None:
    """Raise `SeenLogError` for a log that a model was fitted to or updated with, even in part.

    A log without times raises only if the whole log is the same: its sessions may repeat by chance.
    """
    for log in new:
        for seen_log in provenance:
            certain = seen_log.log.same_log(log) or log.timed is not None
            share = estimate_overlap(log, seen_log.log) if seen_log.counted and certain else 0.0
            if share:
                raise SeenLogError(
                    f"{log.name}: seen before. {describe_share(share).capitalize()} its sessions "
                    f"are in {seen_log}, and would count twice. To add them again, give ",
                    Argument("again", True),
                    ".",
                )


def describe_share(share: float) -> str:
    """A share in words.

    >>> describe_share(1.0), describe_share(0.2514)
    ('all of', 'about 25 % of')
    """
    return "all of" if share > 0.995 else f"about {share:.0%} of".replace("%", " %")


def find_overlaps(log: LogRecord, provenance: Iterable[SeenLog]) -> list[tuple[SeenLog, float]]:
    """The seen logs that share sessions with a log, and the share of its sessions in each."""
    shares = [(seen_log, estimate_overlap(log, seen_log.log)) for seen_log in provenance]
    return [(seen_log, share) for seen_log, share in shares if share]


# ---- saving


def provenance_to_table(provenance: SeenLogs) -> pa.Table:
    """The samples of the logs, smaller if there are many logs; `to_dict` has the rest."""
    size = max(MIN_SAMPLE_SIZE, min(SAMPLE_SIZE, TOTAL_SAMPLE_SIZE // max(len(provenance), 1)))
    return records_to_table(
        [replace(each.log, sample=each.log.sample.cut(size)) for each in provenance]
    )


def provenance_from_table(values: Sequence[dict[str, Any]], table: pa.Table) -> SeenLogs:
    """Restore the logs from the results of `to_dict` and `provenance_to_table`."""
    logs = records_from_table(values, table)
    pairs = zip(logs, values, strict=True)
    return tuple(SeenLog(log, str(value["use"]), str(value["date"])) for log, value in pairs)


def _is_counted(seen_log: SeenLog, log: LogRecord) -> bool:
    return seen_log.counted and seen_log.log.same_log(log)
