"""The logs that a model has seen: no log counts twice unawares, and no model is tested on them."""

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

TOTAL_SAMPLE_SIZE = 131_072  # sessions that are sampled of all logs of a model, 2 MB
MIN_SAMPLE_SIZE = 256  # … of each of them at least


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


def see_logs(logs: Iterable[LogRecord], use: str) -> SeenLogs:
    """Logs that a model learns from now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return tuple(SeenLog(log, use, now) for log in logs)


def extend_provenance(
    seen: SeenLogs, new: Sequence[LogRecord], removed: Sequence[LogRecord], *, again: bool
) -> SeenLogs:
    """What a model has seen after an update; a log seen before is refused, unless `again`.

    A removed log may come again.
    """
    left = list(seen)
    for gone in removed:
        place = next((i for i, each in enumerate(left) if _is_counted(each, gone)), None)
        if place is not None:
            del left[place]
    if not again:
        check_new(left, new)
    return (*left, *see_logs(new, "update"))


def check_new(seen: Sequence[SeenLog], new: Iterable[LogRecord]) -> None:
    """Refuse a log that a model was fitted to or updated with before, whole or in part.

    A log without times is refused only as a whole: its sessions may repeat by themselves.
    """
    for log in new:
        for each in seen:
            certain = each.log.same_log(log) or log.timed is not None
            share = estimate_overlap(log, each.log) if each.counted and certain else 0.0
            if share:
                raise SeenLogError(
                    f"{log.name}: seen before. {describe_share(share).capitalize()} its sessions "
                    f"are in {each}, and would count twice. To add them again, give ",
                    Argument("again", True),
                    ".",
                )


def describe_share(share: float) -> str:
    """A share in words.

    >>> describe_share(1.0), describe_share(0.2514)
    ('all of', 'about 25 % of')
    """
    return "all of" if share > 0.995 else f"about {share:.0%} of".replace("%", " %")


def find_overlaps(log: LogRecord, seen: Iterable[SeenLog]) -> list[tuple[SeenLog, float]]:
    """The seen logs that share sessions with a log, and the share of its sessions in each."""
    shares = [(each, estimate_overlap(log, each.log)) for each in seen]
    return [(each, share) for each, share in shares if share]


# ---- saving


def provenance_to_table(seen: SeenLogs) -> pa.Table:
    """The samples of the logs, smaller where there are many; `to_dict` has the rest."""
    size = max(MIN_SAMPLE_SIZE, min(SAMPLE_SIZE, TOTAL_SAMPLE_SIZE // max(len(seen), 1)))
    return records_to_table([replace(each.log, sample=each.log.sample.cut(size)) for each in seen])


def provenance_from_table(described: Sequence[dict[str, Any]], table: pa.Table) -> SeenLogs:
    """What `to_dict` and `provenance_to_table` were given."""
    logs = records_from_table(described, table)
    pairs = zip(logs, described, strict=True)
    return tuple(SeenLog(log, str(each["use"]), str(each["date"])) for log, each in pairs)


def _is_counted(seen: SeenLog, log: LogRecord) -> bool:
    return seen.counted and seen.log.same_log(log)
