"""Engines: they reduce logs to what models learn from, and run iterative fits.

Logs become counts or grouped sessions only in `as_counts` and `as_grouped`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.counts_checks import require_usable_weights
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.log_record import LogRecord, LogRecorder
from reclick.engines.base import Engine, Log
from reclick.engines.local import LocalEngine
from reclick.errors import LogError, SettingError
from reclick.logs import SessionLog, as_log
from reclick.runtime import artifact
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location
from reclick.runtime.progress import ProgressOption, track_progress

if TYPE_CHECKING:
    from reclick.engines.parts import PartReport

__all__ = [
    "Engine",
    "LocalEngine",
    "Log",
    "RecordedLog",
    "as_counts",
    "as_engine",
    "as_grouped",
    "count",
    "open_log",
]


def as_engine(engine: Engine | None) -> Engine:
    """Return the engine itself, or a `LocalEngine` if it is None."""
    if engine is None:
        return LocalEngine()
    if isinstance(engine, type) or not isinstance(engine, Engine):
        expected = "an engine such as reclick.LocalEngine() or reclick.DuckDBEngine()"
        raise SettingError("engine", engine, expected, or_none=True)
    return engine


@check_arguments
def count(
    sessions: object, *, engine: Engine | None = None, progress: ProgressOption = None
) -> Counts:
    """Count a log in one pass.

    `engine` does the work: a `LocalEngine` (the default) holds the distinct pairs in memory, a
    `DuckDBEngine` spills them to disk.

    >>> count({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})
    Counts(1 session, 1 query, 2 ads, 2 pairs)
    """
    engine, log = as_engine(engine), open_log(sessions)
    with track_progress(progress, f"Counting {log.name}"):
        recorded = RecordedLog(log)
        counts = replace(engine.count(recorded), logs=(recorded.record,))
    return require_usable_weights(counts, log.name)


def as_counts(
    sessions: object, *, engine: Engine | None = None, progress: ProgressOption = None
) -> Counts:
    """Return counts unchanged, or those of grouped sessions, of a folder of counts or of a log."""
    if isinstance(sessions, Counts):
        return sessions
    if isinstance(sessions, GroupedSessions):
        return sessions.counts
    if artifact.is_artifact(sessions):
        return Counts.load(cast(Location, sessions))
    return count(sessions, engine=engine, progress=progress)


def as_grouped(
    sessions: object, *, engine: Engine | None = None, progress: ProgressOption = None
) -> GroupedSessions:
    """Return grouped sessions unchanged, or group a log.

    >>> log = {"query": ["pizza"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[2, 1], [], [2, 1]]}
    >>> as_grouped(log)
    GroupedSessions(2 distinct of 3, 2 pairs)
    """
    if isinstance(sessions, GroupedSessions):
        return sessions
    if isinstance(sessions, Counts) or artifact.is_artifact(sessions):
        raise LogError(
            "Counts do not say which ads and clicks were on one page, which this model learns "
            "from. Give it the log itself, or fit a model for which counts are enough, such as "
            "multiclick."
        )
    engine, log = as_engine(engine), open_log(sessions)
    with track_progress(progress, f"Grouping {log.name}"):
        recorded = RecordedLog(log)
        grouped = engine.group(recorded)
        counts = replace(grouped.counts, logs=(recorded.record,))
    require_usable_weights(counts, log.name)
    return replace(grouped, counts=counts)


class RecordedLog:
    """A log whose batches are recorded while an engine reads them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._record: LogRecord | None = None  # of the last complete pass

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._log.name

    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        """The batches of the log."""
        recorder = LogRecorder()
        yield from recorder.pass_on(self._log.batches(with_rows=with_rows))
        self._record = recorder.finish(self._log.name)

    def require_rows(self) -> None:
        """Raise if the last pass found no good row."""
        self._log.require_rows()

    @property
    def frame(self) -> Any:
        """The Spark DataFrame of the log; None if the log is not one."""
        return getattr(self._log, "frame", None)

    def to_frame_reader(self) -> Any:
        """Return the function that reads a partition of the DataFrame."""
        return cast(Any, self._log).to_frame_reader()

    def split(self, n: int) -> list[Any] | None:
        """Split the log into parts; None if it cannot be split."""
        split = getattr(self._log, "split", None)
        return None if split is None else cast("list[Any] | None", split(n))

    def accept_parts(self, reports: Sequence[PartReport]) -> None:
        """Record a pass from the reports that tasks made of the parts."""
        recorder = LogRecorder()
        for report in reports:
            recorder.merge(report.recorder)
        accept = getattr(self._log, "accept_parts", None)
        if accept is not None:
            accept(reports)
        self._record = recorder.finish(self._log.name)

    @property
    def record(self) -> LogRecord:
        """The record of the log; reads the log if the engine has not read all of it."""
        if self._record is None:
            for _ in self.batches():
                pass
        return cast(LogRecord, self._record)


def open_log(sessions: object) -> Log:
    """Open a log. An object that passes on the batches of another log is returned unchanged."""
    # The class is asked, as a DataFrame of Spark Connect has attributes of any name: its columns.
    has_batches = hasattr(type(sessions), "batches")
    if has_batches and isinstance(sessions, Log) and not isinstance(sessions, SessionLog):
        return sessions
    return as_log(sessions, one_pass=True)
