"""Sessions: a log that can be read any number of times, in batches of clean sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.errors import BadRowsError, LogError
from reclick.logs.files.source import OnError, Source
from reclick.logs.summary import Example, ReadSummary, Tally, bad_rows_message
from reclick.logs.validation.reasons import KEPT
from reclick.runtime.prefetch import read_ahead
from reclick.runtime.progress import Progress


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a log's file of sessions was made from, and what was found then."""

    name: str
    format: str | None
    rows: int  # good and bad
    dropped: dict[str, int]
    examples: dict[str, list[Example]]
    notes: dict[str, int]

    def added_to(self, summary: ReadSummary) -> ReadSummary:
        """The summary of a pass over the file, with what was dropped and noted when the file was made."""
        return replace(
            summary,
            rows=self.rows,
            dropped={**self.dropped, **summary.dropped},
            examples={**self.examples, **summary.examples},
            notes={**self.notes, **summary.notes},
        )


class SessionLog:
    """A log whose columns are right; its rows are read and checked at every pass.

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
        origin: Origin | None = None,
    ) -> None:
        self.ads = ads
        self.on_error = on_error
        self.max_ads = max_ads
        self.origin = origin
        self._sources = sources
        self._summary: ReadSummary | None = None

    @property
    def name(self) -> str:
        """A short description for messages: `week2.parquet`, `4 files`, `table`."""
        if self.origin is not None:
            return self.origin.name
        return self._sources[0].where if len(self._sources) == 1 else f"{len(self._sources)} files"

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

    def batches(
        self, *, with_rows: bool = False, progress: Progress | None = None
    ) -> Iterator[SessionBatch]:
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
        from reclick.logs.validation.validate import clean

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
            raise LogError(
                f"{self.name}: no row is left of {self.summary.rows:,}, all are bad. See `reclick check`, or log.summary."
            )

    def _finish(self, tally: Tally) -> None:
        if not tally.rows:
            raise LogError(f"{self.name} has no rows.")
        self._summary = (
            tally.finish() if self.origin is None else self.origin.added_to(tally.finish())
        )
        if tally.dropped and self.on_error == "raise":
            raise BadRowsError(
                bad_rows_message(
                    tally.rows, self._summary.dropped, self._summary.examples, self.name
                )
            )

    def __repr__(self) -> str:
        rows = "" if self.num_rows is None else f", {self.num_rows:,} rows"
        return f"SessionLog({self.name}{rows})"
