"""Make sessions from padded arrays: a row is a page, with an ad and a click (0 or 1) per slot.

A slot may also have a position. Batches are converted in NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from reclick.data.batch import Float64, Int64
from reclick.logs.files.source import SESSION_SCHEMA, abbreviate
from reclick.logs.formats.base import NO_CLICK_ORDER_NOTE, ReadReport
from reclick.logs.formats.helpers.records import ids_to_text
from reclick.logs.validation import reasons

SORTED_NOTE = "slots not in the order of positions, sorted"
FROM_ZERO_NOTE = "positions from 0"
GAP_NOTE = "a gap in the positions, closed"
NO_QUERY_NOTE = "no query in the log, all pages under one"

# The query of all pages if ids identify (query, ad) pairs and the log has no query
ONE_QUERY = "all"
PADDING_ID = "-1"  # an ad id that means no ad
LIST_COLUMNS = ("ads", "clicks", "positions", "mask")

Bool = npt.NDArray[np.bool_]
FaultCodes = npt.NDArray[np.int8]  # [row] an index into FAULTS

VALID, NULL_AD, BAD_CLICK, BAD_POSITION, CLICK_ON_PADDING, NO_ADS = range(6)
FAULTS = (  # the reason, and the column to show
    ("", ""),
    (reasons.NULL_AD, "ads"),
    (reasons.NOT_READABLE, "clicks"),
    (reasons.NOT_READABLE, "positions"),
    (reasons.CLICK_NOT_SHOWN, "clicks"),
    (reasons.NO_ADS, "ads"),
)


@dataclass(slots=True)
class PaddedSlots:
    """The slots of a batch, row after row; all arrays are [slot]."""

    row: Int64
    ads: pa.Array
    clicks: Float64  # NaN where null
    positions: Float64 | None

    def take(self, index: Int64) -> PaddedSlots:
        """These slots, in this order."""
        positions = None if self.positions is None else self.positions[index]
        ads = self.ads.take(pa.array(index))
        return PaddedSlots(self.row[index], ads, self.clicks[index], positions)

    def same_row_as_next(self) -> Bool:
        """Whether the next slot is in the same row; the array has one element less."""
        return np.asarray(self.row[1:] == self.row[:-1])


def to_sessions(batch: pa.RecordBatch, where: str, report: ReadReport) -> pa.RecordBatch:
    """Return the sessions of a batch; its bad rows go to the report.

    The columns are `number` (of the row, for messages), `ads` and `clicks`, and perhaps `query`,
    `session_id`, `positions`, `mask` and `n` (how many slots are filled).

    >>> rows = {"number": [1], "query": ["shoes"], "ads": [[7, 8, -1]], "clicks": [[0, 1, 0]]}
    >>> sessions = to_sessions(pa.RecordBatch.from_pydict(rows), "log", ReadReport())
    >>> sessions.select(["query", "ads", "clicks"]).to_pylist()
    [{'query': 'shoes', 'ads': ['7', '8'], 'clicks': [2]}]
    """
    batch = _drop_incomplete_rows(batch, where, report)
    fault = np.zeros(batch.num_rows, np.int8)
    slots = _flatten_slots(batch)
    padding = _find_padding(batch, slots, fault)
    _mark(fault, slots.row[padding & (np.nan_to_num(slots.clicks) != 0)], CLICK_ON_PADDING)
    if padding.any():
        slots = slots.take(np.flatnonzero(~padding))
    slots, moved_rows = _sort_by_position(slots)
    _check_slots(slots, fault)
    fault[(np.bincount(slots.row, minlength=len(fault)) == 0) & (fault == VALID)] = NO_ADS
    _report_faults(fault, batch, where, report)
    report.add_note(SORTED_NOTE, int(np.count_nonzero(fault[moved_rows] == VALID)))
    if fault.any():
        slots = slots.take(np.flatnonzero(fault[slots.row] == VALID))
    return _build_sessions(batch, slots, fault == VALID, report)


def _drop_incomplete_rows(batch: pa.RecordBatch, where: str, report: ReadReport) -> pa.RecordBatch:
    """Drop rows without a query or ads, or with lists of unequal lengths."""
    names = [name for name in LIST_COLUMNS if name in batch.schema.names]
    lengths = {name: _list_lengths(batch.column(name)) for name in names}
    empty = lengths["ads"] < 1
    unequal = np.any([length != lengths["ads"] for length in lengths.values()], axis=0)
    no_query = np.zeros(batch.num_rows, np.bool_)
    if "query" in batch.schema.names:
        no_query = np.asarray(pc.equal(ids_to_text(batch.column("query")), "").fill_null(True))
    bad = no_query | empty | unequal
    for row in np.flatnonzero(bad).tolist():
        if no_query[row]:
            reason, got = reasons.NO_QUERY, _show(batch, "query", row)
        elif empty[row]:
            reason, got = reasons.NO_ADS, "an empty page"
        else:
            sizes = {name: length[row] for name, length in lengths.items()}
            size_texts = (f"{name} {'null' if size < 0 else size}" for name, size in sizes.items())
            reason, got = reasons.NOT_READABLE, f"lists of unequal length: {', '.join(size_texts)}"
        report.add_bad_row(reason, where, batch.column("number")[row].as_py(), got)
    return batch.filter(pa.array(~bad)) if bad.any() else batch


def _list_lengths(lists: pa.Array) -> Int64:
    return np.asarray(pc.list_value_length(lists).cast(pa.int64()).fill_null(-1))


def _flatten_slots(batch: pa.RecordBatch) -> PaddedSlots:
    row = np.repeat(np.arange(batch.num_rows), _list_lengths(batch.column("ads")))
    positions = _flat_numbers(batch, "positions") if "positions" in batch.schema.names else None
    ads = ids_to_text(pc.list_flatten(batch.column("ads")))
    return PaddedSlots(row, ads, _flat_numbers(batch, "clicks"), positions)


def _flat_numbers(batch: pa.RecordBatch, name: str) -> Float64:
    flat = pc.list_flatten(batch.column(name))
    if arrow_types.is_float16(flat.type):  # which Arrow cannot cast
        return np.asarray(flat.to_numpy(zero_copy_only=False), np.float64)
    # Whole numbers above 2^53 are rounded: none of them is a click, a position or a length.
    return np.asarray(flat.cast(pa.float64(), safe=False).fill_null(float("nan")))


def _find_padding(batch: pa.RecordBatch, slots: PaddedSlots, fault: FaultCodes) -> Bool:
    """Whether slots are padding: from `mask`, else `n`, else the last slots without an ad."""
    if "mask" in batch.schema.names:
        return ~(_flat_numbers(batch, "mask") > 0)
    lengths = _list_lengths(batch.column("ads"))
    index = np.arange(len(slots.row)) - np.repeat(_to_starts(lengths)[:-1], lengths)  # in the row
    if "n" in batch.schema.names:
        num_filled = np.asarray(batch.column("n").cast(pa.float64()).fill_null(0))
        return np.asarray(index >= num_filled[slots.row])
    no_ad = np.asarray(pc.equal(slots.ads, PADDING_ID).fill_null(True))
    padding = no_ad
    if slots.positions is not None:
        # A page whose first position is 0 counts from 0.
        padding = no_ad | (slots.positions < 0) | ((slots.positions == 0) & (index > 0))
    before_ad = padding[:-1] & ~padding[1:] & slots.same_row_as_next()
    _mark(fault, slots.row[:-1][before_ad & no_ad[:-1]], NULL_AD)
    _mark(fault, slots.row[:-1][before_ad], BAD_POSITION)
    return np.asarray(padding)


def _sort_by_position(slots: PaddedSlots) -> tuple[PaddedSlots, Int64]:
    """Sort the slots of each row by position; also return the rows whose order changed."""
    if slots.positions is None:
        return slots, np.zeros(0, np.int64)
    falls = slots.same_row_as_next() & (np.diff(slots.positions) < 0)
    rows = np.unique(slots.row[:-1][falls])
    if not len(rows):
        return slots, rows
    return slots.take(np.lexsort((slots.positions, slots.row))), rows


def _check_slots(slots: PaddedSlots, fault: FaultCodes) -> None:
    _mark(fault, slots.row[np.asarray(pc.equal(slots.ads, "").fill_null(True))], NULL_AD)
    _mark(fault, slots.row[(slots.clicks != 0) & (slots.clicks != 1)], BAD_CLICK)
    if slots.positions is not None:
        whole = np.isfinite(slots.positions) & (slots.positions == np.floor(slots.positions))
        _mark(fault, slots.row[~whole], BAD_POSITION)
        equal = slots.same_row_as_next() & (np.diff(slots.positions) == 0)
        _mark(fault, slots.row[:-1][equal], BAD_POSITION)


def _mark(fault: FaultCodes, rows: Int64, code: int) -> None:
    """Give these rows a fault, except those that have one."""
    fault[rows[fault[rows] == VALID]] = code


def _report_faults(
    fault: FaultCodes, batch: pa.RecordBatch, where: str, report: ReadReport
) -> None:
    for row in np.flatnonzero(fault).tolist():
        reason, column = FAULTS[fault[row]]
        got = f"{column} {_show(batch, column, row)}"
        report.add_bad_row(reason, where, batch.column("number")[row].as_py(), got)


def _show(batch: pa.RecordBatch, column: str, row: int) -> str:
    try:
        return abbreviate(batch.column(column)[row].as_py())
    except UnicodeDecodeError:
        return "text that is not UTF-8"


def _build_sessions(
    batch: pa.RecordBatch, slots: PaddedSlots, good: Bool, report: ReadReport
) -> pa.RecordBatch:
    rows = int(np.count_nonzero(good))
    lengths = np.bincount(slots.row, minlength=len(good))[good]
    page = _to_starts(lengths)
    _note_positions(slots, page, report)
    is_click = slots.clicks == 1
    num_clicks = np.bincount(slots.row[is_click], minlength=len(good))[good]
    report.add_note(NO_CLICK_ORDER_NOTE, int(np.count_nonzero(num_clicks > 1)))
    position = np.arange(1, len(slots.row) + 1) - np.repeat(page[:-1], lengths)
    batch = batch if rows == len(good) else batch.filter(pa.array(good))
    clicks = pa.array(_to_starts(num_clicks), pa.int32())
    columns: dict[str, Any] = {
        "ads": pa.ListArray.from_arrays(pa.array(page, pa.int32()), slots.ads),
        "clicks": pa.ListArray.from_arrays(clicks, pa.array(position[is_click], pa.int32())),
    }
    for name in ("query", "session_id"):
        if name in batch.schema.names:
            columns[name] = ids_to_text(batch.column(name))
    if "query" not in columns:
        report.add_note(NO_QUERY_NOTE, rows)
        columns["query"] = pa.repeat(ONE_QUERY, rows)
    arrays = [columns.get(each.name, pa.nulls(rows, each.type)) for each in SESSION_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SESSION_SCHEMA)


def _note_positions(slots: PaddedSlots, page: Int64, report: ReadReport) -> None:
    if slots.positions is None or not len(slots.row):
        return
    first, last = slots.positions[page[:-1]], slots.positions[page[1:] - 1]
    report.add_note(FROM_ZERO_NOTE, int(np.count_nonzero(first == 0)))
    has_gap = (first > 1) | (last - first >= np.diff(page))
    report.add_note(GAP_NOTE, int(np.count_nonzero(has_gap)))


def _to_starts(lengths: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
