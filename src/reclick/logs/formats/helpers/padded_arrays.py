"""Sessions out of padded arrays: a row is a page, with an ad, a click (0 or 1) and perhaps a position in each slot. A batch at a time, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind_of

from reclick.data.batch import Float64, Int64
from reclick.logs.files.source import short
from reclick.logs.formats.base import SESSIONS, Found

NO_ORDER = "clicks without an order, taken from the top down"
SORTED = "slots not in the order of positions, sorted"
FROM_ZERO = "positions from 0"
GAP = "a gap in the positions, closed"
NO_QUERY_ID = "no query in the log, all pages under one"

ONE_QUERY = (
    "all"  # the query of every page where ids name a pair of query and ad, and no query is given
)
PADDING = "-1"  # an ad id that means: no ad
LISTS = ("ads", "clicks", "positions", "mask")

Bools = npt.NDArray[np.bool_]
Faults = npt.NDArray[np.int8]  # [row] a place in FAULTS

# Why a row is bad: the reason, and the column that is shown.
FINE, NULL_AD, BAD_CLICK, BAD_POSITION, CLICK_ON_PADDING, NO_ADS = range(6)
FAULTS = (
    ("", ""),
    ("null ad", "ads"),
    ("not readable", "clicks"),
    ("not readable", "positions"),
    ("click on an ad not shown", "clicks"),
    ("no ads", "ads"),
)


@dataclass(slots=True)
class Slots:
    """The slots of a batch, row after row; all arrays are [slot]."""

    row: Int64
    ads: pa.Array
    clicks: Float64  # nan where null
    positions: Float64 | None

    def take(self, places: Int64) -> Slots:
        """These slots, in this order."""
        positions = None if self.positions is None else self.positions[places]
        return Slots(
            self.row[places], self.ads.take(pa.array(places)), self.clicks[places], positions
        )

    def follows(self) -> Bools:
        """Whether the slot after this one is of the same row; one shorter than the others."""
        return np.asarray(self.row[1:] == self.row[:-1])


def to_sessions(batch: pa.RecordBatch, where: str, found: Found) -> pa.RecordBatch:
    """Return the sessions of a batch; its bad rows are told to `found`.

    The columns are `number` (of the row, for messages), `ads` and `clicks`, and perhaps `query`, `session_id`, `positions`, `mask` and `n` (how many
    slots are filled).

    >>> rows = {"number": [1], "query": ["shoes"], "ads": [[7, 8, -1]], "clicks": [[0, 1, 0]]}
    >>> to_sessions(pa.RecordBatch.from_pydict(rows), "log", Found()).select(["query", "ads", "clicks"]).to_pylist()
    [{'query': 'shoes', 'ads': ['7', '8'], 'clicks': [2]}]
    """
    batch = _whole_rows(batch, where, found)
    fault = np.zeros(batch.num_rows, np.int8)
    slots = _slots(batch)
    padding = _padding(batch, slots, fault)
    _mark(fault, slots.row[padding & (np.nan_to_num(slots.clicks) != 0)], CLICK_ON_PADDING)
    if padding.any():
        slots = slots.take(np.flatnonzero(~padding))
    slots, moved = _sorted(slots)
    _check(slots, fault)
    fault[(np.bincount(slots.row, minlength=len(fault)) == 0) & (fault == FINE)] = NO_ADS
    _tell(fault, batch, where, found)
    found.note(SORTED, int(np.count_nonzero(fault[moved] == FINE)))
    if fault.any():
        slots = slots.take(np.flatnonzero(fault[slots.row] == FINE))
    return _built(batch, slots, fault == FINE, found)


def _whole_rows(batch: pa.RecordBatch, where: str, found: Found) -> pa.RecordBatch:
    """The rows with a query, with ads, and with lists of one length."""
    lengths = {name: _lengths(batch.column(name)) for name in LISTS if name in batch.schema.names}
    empty = lengths["ads"] < 1
    unequal = np.any([length != lengths["ads"] for length in lengths.values()], axis=0)
    no_query = np.zeros(batch.num_rows, np.bool_)
    if "query" in batch.schema.names:
        no_query = np.asarray(pc.equal(_text(batch.column("query")), "").fill_null(True))
    numbers = batch.column("number")
    for row in np.flatnonzero(no_query | empty | unequal):
        reason = "no query" if no_query[row] else "no ads" if empty[row] else "not readable"
        found.bad(reason, where, numbers[row].as_py(), _told(batch, lengths, int(row), reason))
    good = ~(no_query | empty | unequal)
    return batch if good.all() else batch.filter(pa.array(good))


def _told(batch: pa.RecordBatch, lengths: dict[str, Int64], row: int, reason: str) -> str:
    if reason == "not readable":
        return "lists of unequal length: " + ", ".join(
            f"{name} {'null' if length[row] < 0 else length[row]}"
            for name, length in lengths.items()
        )
    return _shown(batch, "query", row) if reason == "no query" else "an empty page"


def _lengths(lists: pa.Array) -> Int64:
    return np.asarray(pc.list_value_length(lists).cast(pa.int64()).fill_null(-1))


def _slots(batch: pa.RecordBatch) -> Slots:
    row = np.repeat(np.arange(batch.num_rows), _lengths(batch.column("ads")))
    positions = _numbers(batch, "positions") if "positions" in batch.schema.names else None
    return Slots(
        row, _text(pc.list_flatten(batch.column("ads"))), _numbers(batch, "clicks"), positions
    )


def _numbers(batch: pa.RecordBatch, name: str) -> Float64:
    flat = pc.list_flatten(batch.column(name))
    if kind_of.is_float16(flat.type):  # Arrow casts none of these
        return np.asarray(flat.to_numpy(zero_copy_only=False), np.float64)
    return np.asarray(flat.cast(pa.float64()).fill_null(float("nan")))


def _padding(batch: pa.RecordBatch, slots: Slots, fault: Faults) -> Bools:
    """Which slots are padding, as told by `mask`, else by `n`, else by the slots at the end of a row that have no ad or no position."""
    if "mask" in batch.schema.names:
        return ~(_numbers(batch, "mask") > 0)
    lengths = _lengths(batch.column("ads"))
    place = np.arange(len(slots.row)) - np.repeat(
        _offsets(lengths)[:-1], lengths
    )  # within the row, from 0
    if "n" in batch.schema.names:
        return np.asarray(
            place >= np.asarray(batch.column("n").cast(pa.float64()).fill_null(0))[slots.row]
        )
    no_ad = np.asarray(pc.equal(slots.ads, PADDING).fill_null(True))
    padding = no_ad
    if slots.positions is not None:
        padding = (
            no_ad | (slots.positions < 0) | ((slots.positions == 0) & (place > 0))
        )  # a page that begins with 0 counts from 0
    amid = padding[:-1] & ~padding[1:] & slots.follows()
    _mark(fault, slots.row[:-1][amid & no_ad[:-1]], NULL_AD)
    _mark(fault, slots.row[:-1][amid], BAD_POSITION)
    return np.asarray(padding)


def _sorted(slots: Slots) -> tuple[Slots, Int64]:
    """The slots of each row by position, and the rows that were in another order."""
    if slots.positions is None:
        return slots, np.zeros(0, np.int64)
    moved = np.unique(slots.row[:-1][slots.follows() & (np.diff(slots.positions) < 0)])
    return slots.take(np.lexsort((slots.positions, slots.row))) if len(moved) else slots, moved


def _check(slots: Slots, fault: Faults) -> None:
    _mark(fault, slots.row[np.asarray(pc.equal(slots.ads, "").fill_null(True))], NULL_AD)
    _mark(fault, slots.row[(slots.clicks != 0) & (slots.clicks != 1)], BAD_CLICK)
    if slots.positions is not None:
        _mark(
            fault,
            slots.row[
                ~np.isfinite(slots.positions) | (slots.positions != np.floor(slots.positions))
            ],
            BAD_POSITION,
        )
        _mark(
            fault, slots.row[:-1][slots.follows() & (np.diff(slots.positions) == 0)], BAD_POSITION
        )


def _mark(fault: Faults, rows: Int64, kind: int) -> None:
    """Give these rows a fault; the first one of a row stays."""
    fault[rows[fault[rows] == FINE]] = kind


def _tell(fault: Faults, batch: pa.RecordBatch, where: str, found: Found) -> None:
    for row in np.flatnonzero(fault):
        reason, column = FAULTS[fault[row]]
        found.bad(
            reason,
            where,
            batch.column("number")[row].as_py(),
            f"{column} {_shown(batch, column, int(row))}",
        )


def _shown(batch: pa.RecordBatch, column: str, row: int) -> str:
    try:
        return short(batch.column(column)[row].as_py())
    except UnicodeDecodeError:
        return "text that is not UTF-8"


def _built(batch: pa.RecordBatch, slots: Slots, good: Bools, found: Found) -> pa.RecordBatch:
    rows = int(np.count_nonzero(good))
    lengths = np.bincount(slots.row, minlength=len(good))[good]
    page = _offsets(lengths)
    _note_positions(slots, page, found)
    clicked = slots.clicks == 1
    clicks = np.bincount(slots.row[clicked], minlength=len(good))[good]
    found.note(NO_ORDER, int(np.count_nonzero(clicks > 1)))
    position = np.arange(1, len(slots.row) + 1) - np.repeat(page[:-1], lengths)
    kept = batch if rows == len(good) else batch.filter(pa.array(good))
    if "query" not in batch.schema.names:
        found.note(NO_QUERY_ID, rows)
    columns: dict[str, Any] = {
        "query": _text(kept.column("query"))
        if "query" in kept.schema.names
        else pa.repeat(ONE_QUERY, rows),
        "ads": pa.ListArray.from_arrays(pa.array(page, pa.int32()), slots.ads),
        "clicks": pa.ListArray.from_arrays(
            pa.array(_offsets(clicks), pa.int32()), pa.array(position[clicked], pa.int32())
        ),
    }
    if "session_id" in kept.schema.names:
        columns["session_id"] = _text(kept.column("session_id"))
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in SESSIONS], schema=SESSIONS
    )


def _note_positions(slots: Slots, page: Int64, found: Found) -> None:
    if slots.positions is None or not len(slots.row):
        return
    first, last = slots.positions[page[:-1]], slots.positions[page[1:] - 1]
    found.note(FROM_ZERO, int(np.count_nonzero(first == 0)))
    found.note(GAP, int(np.count_nonzero((first > 1) | (last - first >= np.diff(page)))))


def _offsets(lengths: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _text(ids: pa.Array) -> pa.Array:
    """The ids as text; fractions are none."""
    if kind_of.is_floating(ids.type):  # whole numbers, written so to make room for a null
        whole = pc.and_(pc.equal(pc.floor(ids), ids), pc.less(pc.abs(ids), 2.0**53))
        ids = pc.if_else(whole, ids, None).cast(pa.int64())
    return ids.cast(pa.string())
