"""Split a log into history, training and test: by time, or by a column that names the part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as arrow_types

from reclick.data.batch import SessionBatch
from reclick.data.ragged import Int64
from reclick.data.schema import is_string
from reclick.data.timestamps import as_times
from reclick.errors import Argument, LogError, SettingError, UsageError
from reclick.logs import SessionLog, as_log, read_sessions
from reclick.logs.conversion import session_table
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location, as_path
from reclick.runtime.outputs import check_targets, stage_files
from reclick.runtime.progress import ProgressOption, track_progress

PART_NAMES = ("history", "train", "test")
WEEK = np.timedelta64(7, "D")
Cut = str | int | float | date | datetime

GIVE_CUTS = ("Give ", Argument("cuts", ...), ": where train starts, and where test starts.")


class Split(NamedTuple):
    """The parts of a log, each in a separate file; the history may be missing."""

    history: SessionLog | None
    train: SessionLog
    test: SessionLog


@check_arguments
def split(
    sessions: object,
    to: Location,
    *,
    by: str = "timestamp",
    cuts: Sequence[Cut] | None = None,
    ads: object = None,
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> Split:
    """Write history.parquet, train.parquet and test.parquet to a folder, and open them.

    `by` is a column of times, of numbers that grow with time, or of the words "history", "train"
    and "test". `cuts` are the starts of train and test. Without them, test is the last seven days,
    train the seven days before, and history all earlier days. Test includes queries that are not in
    train. The log may be larger than memory. The files appear together when all are complete; files
    that Reclick did not write are replaced only with `overwrite`.

    >>> import tempfile
    >>> log = {"query": ["a", "b"], "ads": [["x"], ["y"]], "clicks": [[1], []]}
    >>> log["part"] = ["train", "test"]
    >>> parts = split(log, tempfile.mkdtemp(), by="part")
    >>> [None if part is None else part.summary.kept for part in parts]
    [None, 1, 1]
    """
    log = as_log(sessions, ads=ads)
    targets = [as_path(to) / f"{part}.parquet" for part in PART_NAMES]
    for target in targets:
        log.refuse_target(target)
    check_targets(targets, overwrite=overwrite)
    assign_parts = _part_assigner(log, by, cuts)
    with (
        track_progress(progress, f"Splitting {log.name}"),
        stage_files(targets, where=as_path(to), overwrite=overwrite) as temporary,
    ):
        sizes = _write_parts(log, by, assign_parts, temporary)
        _require_sessions(sizes, log, by)
    parts = [
        read_sessions(
            target,
            ads=log.ads,
            max_ads=log.max_ads,
            quick_return_seconds=log.quick_return_seconds,
        )
        if size
        else None
        for target, size in zip(targets, sizes, strict=True)
    ]
    return Split(*parts)  # type: ignore[arg-type]  # train and test exist: _require_sessions


def _write_parts(
    log: SessionLog, by: str, assign_parts: Callable[[pa.Array], Int64], paths: list[Path]
) -> list[int]:
    """Write each session to the file of its part; returns the number of sessions per part."""
    with ExitStack() as stack:
        writers: dict[int, pq.ParquetWriter] = {}
        sizes = [0] * len(PART_NAMES)
        for batch in log.batches(with_rows=True):
            table, part = session_table(batch), assign_parts(_split_column(batch, by, log))
            for index in np.unique(part).tolist():
                if index not in writers:
                    writer = pq.ParquetWriter(paths[index], table.schema, compression="zstd")
                    writers[index] = stack.enter_context(writer)
                rows = table.filter(pa.array(part == index)).cast(writers[index].schema)
                writers[index].write_table(rows)
                sizes[index] += len(rows)
    return sizes


def _split_column(batch: SessionBatch, by: str, log: SessionLog) -> pa.Array:
    rows = batch.rows
    if rows is None or by not in rows.schema.names:
        columns_text = "" if rows is None else f" It has {', '.join(rows.schema.names)}."
        raise LogError(
            f"{log.name}: no column {by!r} to split by.{columns_text} Name the column with ",
            Argument("by", ...),
            ".",
        )
    column = rows.column(by)
    if column.null_count:
        raise LogError(
            f"{log.name}: {column.null_count:,} sessions have no {by}, so they belong to no part."
            " Fill it in, or remove these sessions."
        )
    if arrow_types.is_dictionary(column.type):
        return column.dictionary.take(column.indices)
    return column


def _part_assigner(
    log: SessionLog, by: str, cuts: Sequence[Cut] | None
) -> Callable[[pa.Array], Int64]:
    """A function that maps the column of a batch to indices into PART_NAMES [session]."""
    first = _split_column(next(iter(log.batches(with_rows=True))), by, log)
    if cuts is None and is_string(first.type) and first[0].as_py() in PART_NAMES:
        return lambda column: _parts_by_name(column, by)
    if cuts is None and _is_number(first.type):
        raise UsageError(f"{by} holds numbers, for which a week is not defined. ", *GIVE_CUTS)
    if cuts is not None and len(cuts) != 2:
        raise SettingError("cuts", len(cuts), "2: where train starts, and where test starts")
    edges = _last_weeks(log, by) if cuts is None else [_to_edge(cut, by) for cut in cuts]
    if len({isinstance(edge, np.datetime64) for edge in (*edges, _to_times(first, by)[0])}) > 1:
        kind = "a number" if _is_number(first.type) else "a time"
        raise SettingError("cuts", cuts, f"values like those of {by}, each {kind}")
    if not edges[0] < edges[1]:
        raise UsageError(
            f"cuts: train starts at {edges[0]}, test at {edges[1]}. Test comes after train."
        )
    return lambda column: np.searchsorted(np.array(edges), _to_times(column, by), side="right")


def _parts_by_name(column: pa.Array, by: str) -> Int64:
    index = pc.index_in(column, value_set=pa.array(PART_NAMES))
    if index.null_count:
        unknown_name = column.filter(pc.is_null(index))[0].as_py()
        raise LogError(f"{by}: got {unknown_name!r}, expected one of {', '.join(PART_NAMES)}.")
    return np.asarray(index, np.int64)


def _to_edge(cut: Cut, by: str) -> Any:
    """Convert a cut to the type of the column to split by."""
    try:
        return _to_times(pa.array([cut]), by)[0]
    except (
        LogError,
        pa.ArrowException,
        UnicodeError,
        OverflowError,
        TypeError,
        ValueError,
    ) as error:
        raise SettingError("cuts", cut, "a time, a date or a number") from error


def _to_times(column: pa.Array, by: str) -> npt.NDArray[np.generic]:
    """The column as times in UTC, or as numbers if it has numbers."""
    if _is_number(column.type):
        return np.asarray(column, np.float64)
    times = as_times(column) if _is_time(column.type) else pa.nulls(len(column))
    if times.null_count:
        value = column.filter(pc.is_null(times))[0].as_py()
        raise LogError(
            f"{by}: got {value!r}. Expected times, numbers, or the words {', '.join(PART_NAMES)}."
        )
    return np.asarray(times)


def _last_weeks(log: SessionLog, by: str) -> list[np.datetime64]:
    """Where the last seven days of the log and the seven days before them start, in order."""
    latest = max(
        _to_times(_split_column(batch, by, log), by).max() for batch in log.batches(with_rows=True)
    )
    end = latest.astype("datetime64[D]") + np.timedelta64(1, "D")
    return [(end - 2 * WEEK).astype("datetime64[us]"), (end - WEEK).astype("datetime64[us]")]


def _require_sessions(sizes: list[int], log: SessionLog, by: str) -> None:
    for part, size in zip(PART_NAMES[1:], sizes[1:], strict=True):
        if not size:
            raise LogError(f"{log.name}: no session is in {part} when split by {by}. ", *GIVE_CUTS)


def _is_time(kind: pa.DataType) -> bool:
    is_date = arrow_types.is_timestamp(kind) or arrow_types.is_date(kind)
    return bool(is_date or is_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(arrow_types.is_integer(kind) or arrow_types.is_floating(kind))
