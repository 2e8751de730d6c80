"""Sessions: a log that can be read any number of times, in batches of clean sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from reclick.batch import SessionBatch
from reclick.errors import BadRowsError, LogError, SettingError
from reclick.logs.ahead import read_ahead
from reclick.logs.raw import OnError, Source, check_on_error
from reclick.logs.reasons import KEPT
from reclick.logs.sources import open_sources
from reclick.logs.summary import ReadSummary, Tally, bad_rows_message
from reclick.logs.texts import read_ads
from reclick.schema import PAGE_COLUMNS, SESSION_COLUMNS

Progress = Callable[[int, int | None], object]  # rows done, rows in all when known


class SessionLog:
    """A log whose columns are right; its rows are read and checked at every pass.

    >>> log = read_sessions(pa.table({"query": ["shoes"], "ads": [["a", "b"]], "clicks": [[2, 1]]}))
    >>> [batch.click.tolist() for batch in log.batches()], log.summary.reverse_sessions
    ([[2, 1]], 1)
    """

    def __init__(self, sources: list[Source], *, ads: pa.Table | None, on_error: OnError, max_ads: int) -> None:
        self.ads = ads
        self.on_error = on_error
        self.max_ads = max_ads
        self._sources = sources
        self._summary: ReadSummary | None = None

    @property
    def name(self) -> str:
        """A short description for messages: `week2.parquet`, `4 files`, `table`."""
        return self._sources[0].where if len(self._sources) == 1 else f"{len(self._sources)} files"

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files read; empty for a table."""
        return tuple(source.path for source in self._sources if hasattr(source, "path"))

    @property
    def num_rows(self) -> int | None:
        """The rows of the log, good and bad; None when only reading can tell."""
        counts = [source.num_rows for source in self._sources]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def has_clicks(self) -> bool:
        """Whether every file has a clicks column."""
        return all("clicks" in source.names for source in self._sources)

    @property
    def summary(self) -> ReadSummary:
        """What the last full pass found; makes a pass when there was none. Bad rows do not raise here: they are in it."""
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

    def batches(self, *, with_rows: bool = False, progress: Progress | None = None) -> Iterator[SessionBatch]:
        """Yield the clean sessions in row order; with_rows adds every column of the source to each batch.

        A file's `rows` have the file's own column types. `progress(rows done, rows in all or None)` is called after each batch.
        """
        total = self.num_rows
        for batch, done in read_ahead(self._scan(with_rows=with_rows)):
            if batch is not None:
                yield batch
            if progress is not None:
                progress(done, total)

    def _scan(self, *, with_rows: bool) -> Iterator[tuple[SessionBatch | None, int]]:
        from reclick.logs.clean import clean

        tally, last = Tally(), None
        for source in self._sources:
            for raw in source.read(with_rows=with_rows):
                checked = clean(raw, self.max_ads, last)
                last = checked.rows
                tally.add(raw, checked)
                # After the first bad row the rest is only checked, so that the error tells of all of them.
                refused = bool(tally.dropped) and self.on_error == "raise"
                yield (None if refused or not checked.totals[KEPT] else checked.batch), tally.rows
        self._finish(tally)

    def refuse_nothing(self) -> None:
        """Raise when the last pass left no row: whatever is learnt from it would be learnt from nothing."""
        if self.summary.kept == 0:
            raise LogError(f"{self.name}: no row is left of {self.summary.rows:,}, all are bad. See `reclick check`, or log.summary.")

    def _finish(self, tally: Tally) -> None:
        if not tally.rows:
            raise LogError(f"{self.name} has no rows.")
        self._summary = tally.finish()
        if tally.dropped and self.on_error == "raise":
            raise BadRowsError(bad_rows_message(tally.rows, self._summary.dropped, self._summary.examples, self.name))

    def __repr__(self) -> str:
        rows = "" if self.num_rows is None else f", {self.num_rows:,} rows"
        return f"SessionLog({self.name}{rows})"


def read_sessions(
    source: Any,
    *,
    ads: Any = None,
    columns: Mapping[str, str] | None = None,
    on_error: OnError = "raise",
    max_ads: int = 100,
    clicks_required: bool = True,
) -> SessionLog:
    """Open a log of sessions: find its files and check its columns. Rows are read when they are used.

    `source` is a path, a glob, a folder, a list of them, or a pandas, Polars, Arrow or DuckDB table. `columns` maps Reclick's
    names to yours: `columns={"query": "search_term"}`. With `clicks_required=False` a log without clicks is read as pages.
    `on_error` is for the rows of the ads table too; one whose columns have other names is read with `read_ads` first.
    """
    check_on_error(on_error)
    if max_ads < 1:
        raise SettingError(f"max_ads must be 1 or more, got {max_ads}.")
    if isinstance(source, SessionLog):
        raise LogError("This log is open already. Give read_sessions its files or table.")
    wanted = SESSION_COLUMNS if clicks_required else PAGE_COLUMNS
    sources = open_sources(source, wanted, columns)
    texts = None if ads is None else read_ads(ads, on_error=on_error)
    return SessionLog(sources, ads=texts, on_error=on_error, max_ads=max_ads)
