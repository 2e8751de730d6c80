"""Scoring: every session metric of a fitted model, in one pass over a log."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.errors import CannotAnswerError
from reclick.logs import as_log
from reclick.metrics.chunk_sums import CHUNKS, COLUMNS, WIDTH, SessionSums, chunk_of
from reclick.metrics.predictions import PartAnswers
from reclick.metrics.query_volume import QueryVolumes
from reclick.metrics.session_metrics import SESSION_METRICS
from reclick.models.base import ClickModel
from reclick.runtime.jit import kernel
from reclick.runtime.progress import Progress


class PartColumns(NamedTuple):
    """The metrics' columns of a part of a log, the cell of each session, and why some metrics have none."""

    cell: Int64  # [session] goes back · volumes + volume
    columns: dict[str, Float64]  # metric → [session, column]
    reasons: dict[str, str]


def score(
    model: ClickModel,
    log: object,
    volumes: QueryVolumes | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> SessionSums:
    """Sum every session metric of a fitted model over a log; `seed` says how sessions fall into chunks, and must be the same for all models.

    >>> from reclick.models import MODELS
    >>> log = {"query": ["pizza"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}
    >>> sums = score(MODELS["dctr"]().fit(log), log).sums  # a chunk a session, as there are few
    >>> sums.shape[:3], sums[..., 0].sum(axis=(0, 2))  # of sessions with a click, the one that does not go back and the one that does
    ((3, 2, 1), array([1., 1.]))
    """
    log, totals = as_log(log), Totals(volumes, seed)
    for part in model.answers(
        log, partial(_columns, model, volumes), clicks=True, progress=progress
    ):
        totals.add(part)
    log.refuse_nothing()
    return totals.finish()


def _columns(
    model: ClickModel, volumes: QueryVolumes | None, part: SessionBatch, pages: Pages
) -> PartColumns:
    answers, columns, reasons = PartAnswers(model, part, pages), {}, {}
    for name, metric in SESSION_METRICS.items():
        try:
            columns[name] = metric.columns(answers)
        except CannotAnswerError as error:
            reasons[name] = str(error)
    volume = volumes.buckets_of_sessions(part) if volumes else np.zeros(len(part), np.int64)
    return PartColumns(
        answers.reverse * (len(volumes.names) if volumes else 1) + volume, columns, reasons
    )


class Totals:
    """Adds parts up in their order, so that the same log gives the same sums to the last bit.

    The first sessions have chunks of their own, kept apart: only the end of the log tells whether there are too many for that.
    """

    def __init__(self, volumes: QueryVolumes | None, seed: int) -> None:
        self._names = volumes.names if volumes else ()
        self._seed = seed
        self._cells = 2 * max(1, len(self._names))
        self._sums = np.zeros((2 * CHUNKS * self._cells, WIDTH))
        self._sessions = 0
        self._reasons: dict[str, str] = {}

    def add(self, part: PartColumns) -> None:
        """Add the next part of the log."""
        row = np.arange(self._sessions, self._sessions + len(part.cell))
        chunk = np.where(row < CHUNKS, row, CHUNKS + chunk_of(row, self._seed))
        for name, columns in part.columns.items():
            _add(columns, chunk * self._cells + part.cell, self._sums, COLUMNS[name].start)
        self._sessions += len(part.cell)
        self._reasons = {**part.reasons, **self._reasons}

    def finish(self) -> SessionSums:
        """The sums of all parts."""
        own, mixed = self._sums.reshape(2, CHUNKS, -1)
        if self._sessions > CHUNKS:
            _add(own, chunk_of(np.arange(CHUNKS), self._seed), mixed, 0)
        flat = mixed if self._sessions > CHUNKS else own[: self._sessions]
        sums = flat.reshape(len(flat), 2, -1, WIDTH).copy()
        for name in self._reasons:
            sums[..., COLUMNS[name]] = 0.0  # other parts may have been answered
        return SessionSums(
            sums,
            self._names,
            {name: self._reasons[name] for name in SESSION_METRICS if name in self._reasons},
        )


@kernel
def _add(columns: Float64, row: Int64, sums: Float64, first: int) -> None:
    """Add each session's columns to a row of the sums, from column `first` on."""
    for s in range(len(row)):
        for c in range(columns.shape[1]):
            sums[row[s], first + c] += columns[s, c]
