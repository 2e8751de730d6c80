"""Split a log into history, training and test parts: by time, or by a column that names the part of each session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import date, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as kind_of

from reclick.data.batch import SessionBatch
from reclick.errors import LogError, SettingError, clear_write_errors
from reclick.logs import SessionLog, as_log, read_sessions
from reclick.logs.conversion import session_table
from reclick.runtime.progress import Progress

PARTS = ("history", "train", "test")
WEEK = np.timedelta64(7, "D")
Cut = str | int | float | date | datetime
Part = npt.NDArray[np.int64]  # [session] place in PARTS

CUTS = "Give cuts=(where train starts, where test starts) (on the command line --cut where train starts and --cut where test starts)."


class Split(NamedTuple):
    """The parts of a log, each in a file of its own; there may be no history."""

    history: SessionLog | None
    train: SessionLog
    test: SessionLog


def split(
    sessions: object,
    to: str | Path,
    *,
    by: str = "timestamp",
    cuts: Sequence[Cut] | None = None,
    ads: object = None,
    progress: Progress | None = None,
) -> Split:
    """Write history.parquet, train.parquet and test.parquet to a folder, and open them. Test keeps queries that train has never seen.

    `by` is a column of times, of numbers that grow with time, or of the words "history", "train" and "test". `cuts` are where train and test start;
    without them the last seven days are the test, the seven before them the training, and what is older is history. The log may be larger than
    memory.

    >>> import tempfile
    >>> log = {"query": ["a", "b"], "ads": [["x"], ["y"]], "clicks": [[1], []], "part": ["train", "test"]}
    >>> [None if part is None else part.summary.kept for part in split(log, tempfile.mkdtemp(), by="part")]
    [None, 1, 1]
    """
    log, to = as_log(sessions, ads=ads), Path(to)
    part_of = _part_of(log, by, cuts)
    beside = [to / f".{part}.parquet.{uuid4().hex}" for part in PARTS]
    targets = [to / f"{part}.parquet" for part in PARTS]
    with clear_write_errors(to, "Every file there is whole."):
        to.mkdir(parents=True, exist_ok=True)
        try:
            sessions_of = _write(log, by, part_of, beside, progress)
            _refuse_empty(sessions_of, log, by)
            for path, target, many in zip(beside, targets, sessions_of, strict=True):
                if many:
                    path.replace(target)
                else:
                    target.unlink(missing_ok=True)
        finally:
            for path in beside:
                path.unlink(missing_ok=True)
    opened = [
        read_sessions(str(target), ads=log.ads, max_ads=log.max_ads) if target.is_file() else None
        for target in targets
    ]
    return Split(*opened)  # type: ignore[arg-type]  # train and test are there: _refuse_empty


def _write(
    log: SessionLog,
    by: str,
    part_of: Callable[[pa.Array], Part],
    beside: list[Path],
    progress: Progress | None,
) -> list[int]:
    """Write each session to the file of its part; the number of sessions of each."""
    with ExitStack() as opened:
        writers: dict[int, pq.ParquetWriter] = {}
        written = [0] * len(PARTS)
        for batch in log.batches(with_rows=True, progress=progress):
            table, part = session_table(batch), part_of(_column(batch, by, log))
            for place in np.unique(part).tolist():
                if place not in writers:
                    writers[place] = opened.enter_context(
                        pq.ParquetWriter(beside[place], table.schema, compression="zstd")
                    )
                rows = table.filter(pa.array(part == place)).cast(writers[place].schema)
                writers[place].write_table(rows)
                written[place] += len(rows)
    return written


def _column(batch: SessionBatch, by: str, log: SessionLog) -> pa.Array:
    rows = batch.rows
    if rows is None or by not in rows.schema.names:
        known = "" if rows is None else f" It has {', '.join(rows.schema.names)}."
        raise LogError(
            f"{log.name} has no column {by!r} to split by.{known} Name the column with by=…."
        )
    column = rows.column(by)
    if column.null_count:
        raise LogError(
            f"{log.name}: {column.null_count:,} sessions have no {by}, so they are of no part. Fill it in, or leave them out."
        )
    return column


def _part_of(log: SessionLog, by: str, cuts: Sequence[Cut] | None) -> Callable[[pa.Array], Part]:
    """What says of which part each session is."""
    first = _column(next(iter(log.batches(with_rows=True))), by, log)
    if (
        cuts is None
        and (kind_of.is_string(first.type) or kind_of.is_large_string(first.type))
        and first[0].as_py() in PARTS
    ):
        return lambda column: _named_parts(column, by)
    if cuts is not None and len(cuts) != 2:
        raise SettingError(
            f"cuts: got {len(cuts)}, expected 2: where train starts, and where test starts."
        )
    if cuts is None and (kind_of.is_integer(first.type) or kind_of.is_floating(first.type)):
        raise SettingError(f"{by} holds numbers, of which nobody can say what a week is. {CUTS}")
    edges = (
        _last_weeks(log, by) if cuts is None else [_as_time(pa.array([cut]), by)[0] for cut in cuts]
    )
    if not edges[0] < edges[1]:
        raise SettingError(
            f"cuts: train starts at {edges[0]}, test at {edges[1]}. Test comes after train."
        )
    return lambda column: np.searchsorted(np.array(edges), _as_time(column, by), side="right")


def _named_parts(column: pa.Array, by: str) -> Part:
    found = pc.index_in(column, value_set=pa.array(PARTS))
    if found.null_count:
        other = column.filter(pc.is_null(found))[0].as_py()
        raise LogError(f"{by}: got {other!r}, expected one of {', '.join(PARTS)}.")
    return np.asarray(found, np.int64)


def _as_time(column: pa.Array, by: str) -> npt.NDArray[np.generic]:
    """Times, or the numbers that stand for them."""
    if kind_of.is_integer(column.type) or kind_of.is_floating(column.type):
        return np.asarray(column, np.float64)
    try:
        times = column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise LogError(
            f"{by}: {error}. Expected times, numbers, or the words {', '.join(PARTS)}."
        ) from error
    return np.asarray(times)


def _last_weeks(log: SessionLog, by: str) -> list[np.datetime64]:
    """Where the last but one and the last seven days of the log start."""
    latest = max(
        _as_time(_column(batch, by, log), by).max() for batch in log.batches(with_rows=True)
    )
    end = latest.astype("datetime64[D]") + np.timedelta64(1, "D")
    return [(end - 2 * WEEK).astype("datetime64[us]"), (end - WEEK).astype("datetime64[us]")]


def _refuse_empty(sessions: list[int], log: SessionLog, by: str) -> None:
    for part, many in zip(PARTS[1:], sessions[1:], strict=True):
        if not many:
            raise LogError(f"{log.name}: no session is in {part} when split by {by}. {CUTS}")
