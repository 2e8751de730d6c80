"""Validate the rows of a batch: good rows become a SessionBatch, bad rows get a reason.

The rules about queries, pages and weights are array operations. The rule about clicks is a kernel,
so importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.outcomes import (
    CONVERSION,
    QUICK_RETURN_SECONDS,
    ClickOutcomes,
    encode_outcomes,
)
from reclick.data.ragged import Bool, run_of_elements, starts_from_sizes, take_runs
from reclick.logs.files.source import RawBatch
from reclick.logs.validation import reasons
from reclick.logs.validation.encode import (
    EMPTY,
    MAX_TEXT_BYTES,
    NULL_POSITION,
    VALID,
    BatchArrays,
    Byte,
    EncodedNumbers,
    encode_batch,
)
from reclick.logs.validation.reasons import ROW_REASONS, BatchTotals
from reclick.runtime.jit import kernel

MAX_WEIGHT = 2.0**53  # larger whole numbers do not add exactly; a time read as a weight is larger
CODES = {reason: code for code, reason in enumerate(ROW_REASONS)}
NULL_CLICK_CODE = CODES[reasons.NULL_CLICK]
CLICK_OUTSIDE_CODE = CODES[reasons.CLICK_OUTSIDE]
# By the fault of a query: VALID, EMPTY, TOO_LONG, NOT_TEXT
QUERY_REASONS = ("", reasons.NO_QUERY, reasons.QUERY_TOO_LONG, reasons.NOT_READABLE)
QUERY_CODES = np.array([CODES[reason] for reason in QUERY_REASONS], np.uint8)
POSITIONS_HINT = "clicks are positions from 1, not one flag per ad"
SHORT_PAGE = 16  # up to this length, comparing all pairs of ads is faster than a table of ads

# Indices of what the kernel counts over good rows
CLICKS, CLICKED_SESSIONS, MULTI_CLICK_SESSIONS, REVERSE_SESSIONS = 0, 1, 2, 3
REPEATED_CLICK_SESSIONS, REPEATED_CLICKS = 4, 5
NUM_COUNTS = 6


@dataclass(frozen=True, slots=True)
class ValidatedBatch:
    """The good sessions of a batch, and the reasons of its bad rows."""

    sessions: SessionBatch
    totals: BatchTotals
    reason: Byte  # [row] index into ROW_REASONS, 0 for a good row
    null_clicks: int  # good rows whose click list was null
    arrays: BatchArrays  # of all rows, to describe the bad ones

    def describe(self, raw: RawBatch, row: int) -> str:
        """Describe in a few words what a bad row holds."""
        return DESCRIPTIONS[ROW_REASONS[self.reason[row]]](self.arrays, raw, row)


def validate(
    raw: RawBatch,
    max_ads: int,
    previous: BatchArrays | None = None,
    *,
    quick_return_seconds: float = QUICK_RETURN_SECONDS,
) -> ValidatedBatch:
    """Validate every row of a batch. Nothing is copied when all rows are good.

    `previous` are the arrays of the previous batch, whose texts are not checked again. A dwell time
    below `quick_return_seconds` is a quick return.
    """
    arrays = encode_batch(raw, previous)
    lengths = np.diff(arrays.page)
    reason = _check_columns(arrays, lengths, max_ads)
    longest = int(_select(lengths, reason == 0).max(initial=0))
    counts = np.zeros(NUM_COUNTS, np.int64)
    last_clicked = np.zeros(longest + 1, np.int32)
    is_first = np.zeros(len(arrays.click), np.bool_)
    check_clicks(arrays.click, arrays.clicks, arrays.page, reason, last_clicked, is_first, counts)
    totals = _count_totals(arrays, lengths, reason == 0, counts)
    outcomes = _click_outcomes(arrays, reason == 0, is_first, quick_return_seconds)
    if totals.sessions == raw.length and not totals.repeated_clicks:
        sessions = _all_sessions(arrays, raw, outcomes)
    else:
        sessions = _good_sessions(arrays, raw, reason == 0, is_first, outcomes)
    totals = _add_outcome_totals(totals, sessions.outcomes)
    return ValidatedBatch(sessions, totals, reason, _count_null_clicks(raw, reason), arrays)


# ---- rules


def _check_columns(arrays: BatchArrays, lengths: Int64, max_ads: int) -> Byte:
    """The reason of each row, except for clicks. The first rule that it breaks decides."""
    reason = np.zeros(len(lengths), np.uint8)
    if not arrays.query.all_valid:
        reason = QUERY_CODES[arrays.query.row_faults()]
    _mark(reason, lengths == 0, reasons.NO_ADS)
    _mark(reason, lengths > max_ads, reasons.PAGE_TOO_LONG)
    if not arrays.ad.all_valid:
        _check_ads(arrays, reason)
    if len(arrays.weight):
        _mark(reason, ~((arrays.weight >= 0) & (arrays.weight <= MAX_WEIGHT)), reasons.BAD_WEIGHT)
    dwell = reasons.DWELL_AND_CLICKS_DISAGREE, reasons.BAD_DWELL
    conversions = reasons.CONVERSIONS_AND_CLICKS_DISAGREE, reasons.BAD_CONVERSIONS
    for numbers, names in ((arrays.dwell_seconds, dwell), (arrays.conversions, conversions)):
        if numbers is not None:
            _check_numbers(arrays, numbers, reason, *names)
    return reason


def _check_numbers(
    arrays: BatchArrays, numbers: EncodedNumbers, reason: Byte, disagree: str, bad_number: str
) -> None:
    """Mark rows with fewer or more numbers than clicks, or with a number that is not 0 or more."""
    differs = np.diff(numbers.starts) != np.diff(arrays.clicks)
    _mark(reason, differs & ~numbers.null_list, disagree)
    bad = np.zeros(len(reason), np.bool_)
    bad[run_of_elements(numbers.starts)[_bad_numbers(numbers)]] = True
    _mark(reason, bad, bad_number)


def _bad_numbers(numbers: EncodedNumbers) -> Bool:
    return np.asarray(numbers.not_number | (numbers.values < 0) | np.isinf(numbers.values))


def _mark(reason: Byte, bad: Bool, name: str) -> None:
    """Give a reason to bad rows that have none yet."""
    if bad.any():  # as in few batches
        reason[bad & (reason == 0)] = CODES[name]


def _check_ads(arrays: BatchArrays, reason: Byte) -> None:
    """Mark rows with a null ad or an ad id that is not text. The first such ad decides."""
    faults = arrays.ad.row_faults()
    bad = np.flatnonzero(faults != VALID)
    row, first = np.unique(run_of_elements(arrays.page)[bad], return_index=True)
    first_fault = np.zeros(len(reason), np.uint8)
    first_fault[row] = faults[bad[first]]
    _mark(reason, first_fault == EMPTY, reasons.NULL_AD)
    _mark(reason, first_fault != VALID, reasons.NOT_READABLE)


@kernel
def check_clicks(
    click: Int32,
    clicks: Int64,
    page: Int64,
    reason: Byte,
    last_clicked: Int32,
    is_first: Bool,
    counts: Int64,
) -> None:
    """Mark rows with a click outside their page, and count the clicks of the good rows.

    `last_clicked` [position] holds the last row, from 1, with a click there. `is_first` [click] is
    set where a click is the first of its row on its position.
    """
    for row in range(len(reason)):
        length = page[row + 1] - page[row]
        distinct, previous, reverse = 0, 0, 0
        for i in range(clicks[row], clicks[row + 1] if reason[row] == 0 else clicks[row]):
            position = click[i]
            if position < 1 or position > length:
                is_null = position == NULL_POSITION
                reason[row] = NULL_CLICK_CODE if is_null else CLICK_OUTSIDE_CODE
                break
            if last_clicked[position] != row + 1:
                last_clicked[position] = row + 1
                is_first[i] = True
                distinct += 1
                reverse |= position < previous
                previous = position
        if reason[row] == 0:
            num_repeated = clicks[row + 1] - clicks[row] - distinct
            counts[CLICKS] += distinct
            counts[CLICKED_SESSIONS] += distinct > 0
            counts[MULTI_CLICK_SESSIONS] += distinct > 1
            counts[REVERSE_SESSIONS] += reverse
            counts[REPEATED_CLICK_SESSIONS] += num_repeated > 0
            counts[REPEATED_CLICKS] += num_repeated


# ---- totals


def _count_totals(arrays: BatchArrays, lengths: Int64, good: Bool, counts: Int64) -> BatchTotals:
    has_repeated_ad = find_repeated_ads(arrays.ad.codes, len(arrays.ad.faults), arrays.page)
    good_lengths = _select(lengths, good)
    return BatchTotals(
        sessions=int(np.count_nonzero(good)),
        impressions=int(good_lengths.sum()),
        clicks=int(counts[CLICKS]),
        clicked_sessions=int(counts[CLICKED_SESSIONS]),
        multi_click_sessions=int(counts[MULTI_CLICK_SESSIONS]),
        reverse_sessions=int(counts[REVERSE_SESSIONS]),
        longest_page=int(good_lengths.max(initial=0)),
        repeated_ad_sessions=int(np.count_nonzero(has_repeated_ad & good)),
        repeated_click_sessions=int(counts[REPEATED_CLICK_SESSIONS]),
        repeated_clicks=int(counts[REPEATED_CLICKS]),
        known_outcomes=0,
        converted_clicks=0,
    )


def _select(lengths: Int64, good: Bool) -> Int64:
    """The lengths of good rows; no copy where all are good, as in most batches."""
    return lengths if good.all() else lengths[good]


def _add_outcome_totals(totals: BatchTotals, outcomes: ClickOutcomes | None) -> BatchTotals:
    if outcomes is None:
        return totals
    num_known = int(np.count_nonzero(outcomes.outcome))
    num_converted = int(np.count_nonzero(outcomes.outcome == CONVERSION))
    return totals._replace(known_outcomes=num_known, converted_clicks=num_converted)


def find_repeated_ads(ad: Int32, num_ads: int, page: Int64) -> Bool:
    """Return for each page whether it shows an ad twice."""
    has_repeated = np.zeros(len(page) - 1, np.bool_)
    longest = int(np.diff(page).max(initial=0))
    if longest > SHORT_PAGE:
        mark_repeated_ads(ad, page, np.zeros(num_ads, np.int32), has_repeated)
        return has_repeated
    for distance in range(1, longest):  # over all pages at once, which is fast
        equal = np.flatnonzero(ad[distance:] == ad[:-distance])
        if len(equal):
            row = np.searchsorted(page, equal, side="right") - 1
            has_repeated[row[(equal + distance < page[row + 1]) & (ad[equal] >= 0)]] = True
    return has_repeated


@kernel
def mark_repeated_ads(ad: Int32, page: Int64, last_shown: Int32, has_repeated: Bool) -> None:
    """Mark pages of any length that show an ad twice; `last_shown` [ad] is a row, from 1."""
    for row in range(len(has_repeated)):
        for i in range(page[row], page[row + 1]):
            if ad[i] >= 0:
                has_repeated[row] |= last_shown[ad[i]] == row + 1
                last_shown[ad[i]] = row + 1


def _count_null_clicks(raw: RawBatch, reason: Byte) -> int:
    column = raw.columns.get("clicks")
    if column is None or not column.null_count:
        return 0
    return int(np.count_nonzero(np.asarray(column.is_null()) & (reason == 0)))


# ---- sessions


def _click_outcomes(
    arrays: BatchArrays, good: Bool, is_first: Bool, quick_return_seconds: float
) -> ClickOutcomes | None:
    """The outcomes of all clicks; those of bad rows are unknown."""
    if arrays.dwell_seconds is None and arrays.conversions is None:
        return None
    dwell, conversions = (
        None if numbers is None else _align_with_clicks(numbers, arrays, good)
        for numbers in (arrays.dwell_seconds, arrays.conversions)
    )
    dwell, conversions = _merge_repeated(dwell, conversions, arrays, good, is_first)
    outcome = encode_outcomes(dwell, conversions, quick_return_seconds)
    return ClickOutcomes(outcome, dwell, conversions)


def _align_with_clicks(numbers: EncodedNumbers, arrays: BatchArrays, good: Bool) -> Float64:
    """The number of each click, nan in bad rows and where the list is null."""
    aligned = np.full(len(arrays.click), np.nan)
    usable = good & ~numbers.null_list
    of_clicks = np.repeat(usable, np.diff(arrays.clicks))
    aligned[of_clicks] = numbers.values[np.repeat(usable, np.diff(numbers.starts))]
    return aligned


def _merge_repeated(
    dwell: Float64 | None,
    conversions: Float64 | None,
    arrays: BatchArrays,
    good: Bool,
    is_first: Bool,
) -> tuple[Float64 | None, Float64 | None]:
    """Give the outcomes of repeated clicks to the first click on the position.

    The dwell time is the longest, conversions add up.
    """
    is_good = np.repeat(good, np.diff(arrays.clicks))
    repeated_clicks = np.flatnonzero(is_good & ~is_first)
    if not len(repeated_clicks):
        return dwell, conversions
    place = (run_of_elements(arrays.clicks) << 32) | arrays.click
    first = np.flatnonzero(is_good & is_first)
    first = first[np.argsort(place[first])]
    target = first[np.searchsorted(place[first], place[repeated_clicks])]
    if dwell is not None:
        np.fmax.at(dwell, target, dwell[repeated_clicks])
    if conversions is not None:
        is_known = ~np.isnan(conversions[repeated_clicks])
        known_target, values = target[is_known], conversions[repeated_clicks[is_known]]
        conversions[known_target] = np.nan_to_num(conversions[known_target])
        np.add.at(conversions, known_target, values)
    return dwell, conversions


def _all_sessions(
    arrays: BatchArrays, raw: RawBatch, outcomes: ClickOutcomes | None
) -> SessionBatch:
    return SessionBatch(
        queries=arrays.query.values,
        ads=arrays.ad.values,
        query=arrays.query.codes,
        ad=arrays.ad.codes,
        page=arrays.page,
        click=arrays.click,
        clicks=arrays.clicks,
        weight=arrays.weight if len(arrays.weight) else None,
        outcomes=outcomes,
        time=raw.columns.get("timestamp"),
        rows=raw.rows,
    )


def _good_sessions(
    arrays: BatchArrays,
    raw: RawBatch,
    good: Bool,
    is_first: Bool,
    outcomes: ClickOutcomes | None,
) -> SessionBatch:
    """The good rows, with the first click on each position."""
    rows = np.flatnonzero(good)
    ad, page = arrays.ad.codes, arrays.page
    if len(rows) < len(good):
        ad, page = take_runs(ad, page, rows)
    is_kept = is_first & np.repeat(good, np.diff(arrays.clicks))
    num_kept = np.concatenate([[0], np.cumsum(is_kept)])[arrays.clicks]
    time = raw.columns.get("timestamp")
    return SessionBatch(
        queries=arrays.query.values,
        ads=arrays.ad.values,
        query=arrays.query.codes[rows],
        ad=ad,
        page=page,
        click=arrays.click[is_kept],
        clicks=starts_from_sizes(np.diff(num_kept)[rows]),
        weight=arrays.weight[rows] if len(arrays.weight) else None,
        outcomes=None if outcomes is None else outcomes.select(is_kept),
        time=None if time is None else time.filter(pa.array(good)),
        rows=None if raw.rows is None else raw.rows.filter(pa.array(good)),
    )


# ---- descriptions of bad rows


def _describe_null(column: str, otherwise: str) -> Callable[[BatchArrays, RawBatch, int], str]:
    return lambda _, raw, row: otherwise if raw.columns[column][row].is_valid else "null"


def _describe_long_query(_: BatchArrays, raw: RawBatch, row: int) -> str:
    size = len(raw.columns["query"][row].as_py().encode())
    return f"{size:,} bytes, the limit is {MAX_TEXT_BYTES:,}"


def _describe_long_page(arrays: BatchArrays, _: RawBatch, row: int) -> str:
    return f"a page of {arrays.page[row + 1] - arrays.page[row]:,} ads"


def _describe_null_ad(arrays: BatchArrays, _: RawBatch, row: int) -> str:
    codes = arrays.ad.codes[arrays.page[row] : arrays.page[row + 1]]
    has_fault = (code < 0 or arrays.ad.faults[code] != VALID for code in codes)
    position = next(position for position, is_faulty in enumerate(has_fault, start=1) if is_faulty)
    return f"position {position} of {len(codes)}"


def _describe_null_click(arrays: BatchArrays, _: RawBatch, row: int) -> str:
    click = arrays.click[arrays.clicks[row] : arrays.clicks[row + 1]]
    return f"click number {int(np.argmax(click == NULL_POSITION)) + 1}"


def _describe_click_outside(arrays: BatchArrays, _: RawBatch, row: int) -> str:
    length = int(arrays.page[row + 1] - arrays.page[row])
    click = arrays.click[arrays.clicks[row] : arrays.clicks[row + 1]]
    outside = click[(click < 1) | (click > length)][0]
    hint = "" if outside else f" ({POSITIONS_HINT})"
    return f"position {outside} on a page of {length} {'ad' if length == 1 else 'ads'}{hint}"


def _describe_weight(arrays: BatchArrays, raw: RawBatch, row: int) -> str:
    return f"weight {arrays.weight[row]:g}" if raw.columns["weight"][row].is_valid else "null"


def _describe_lengths(name: str) -> Callable[[BatchArrays, RawBatch, int], str]:
    def describe(arrays: BatchArrays, raw: RawBatch, row: int) -> str:
        clicks = arrays.clicks[row + 1] - arrays.clicks[row]
        return f"{len(raw.columns[name][row])} values for {clicks} clicks"

    return describe


def _describe_numbers(name: str) -> Callable[[BatchArrays, RawBatch, int], str]:
    def describe(arrays: BatchArrays, _: RawBatch, row: int) -> str:
        numbers = getattr(arrays, name)
        start, end = numbers.starts[row], numbers.starts[row + 1]
        bad = start + int(np.argmax(_bad_numbers(numbers)[start:end]))
        return f"{numbers.values[bad]:g} for click number {bad - start + 1}"

    return describe


def _describe_unreadable(_: BatchArrays, __: RawBatch, ___: int) -> str:
    return f"a query or an ad id that is not UTF-8 text, or an ad id over {MAX_TEXT_BYTES:,} bytes"


DESCRIPTIONS: dict[str, Callable[[BatchArrays, RawBatch, int], str]] = {
    reasons.NOT_READABLE: _describe_unreadable,
    reasons.NO_QUERY: _describe_null("query", "empty text"),
    reasons.QUERY_TOO_LONG: _describe_long_query,
    reasons.NO_ADS: _describe_null("ads", "an empty page"),
    reasons.PAGE_TOO_LONG: _describe_long_page,
    reasons.NULL_AD: _describe_null_ad,
    reasons.NULL_CLICK: _describe_null_click,
    reasons.CLICK_OUTSIDE: _describe_click_outside,
    reasons.BAD_WEIGHT: _describe_weight,
    reasons.DWELL_AND_CLICKS_DISAGREE: _describe_lengths("dwell_seconds"),
    reasons.BAD_DWELL: _describe_numbers("dwell_seconds"),
    reasons.CONVERSIONS_AND_CLICKS_DISAGREE: _describe_lengths("conversions"),
    reasons.BAD_CONVERSIONS: _describe_numbers("conversions"),
}
