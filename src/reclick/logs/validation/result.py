"""A batch after the check: its clean sessions, its bad rows with their reasons, and a description of each bad row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.logs.files.source import Raw
from reclick.logs.validation import reasons as at
from reclick.logs.validation.encode import MAX_TEXT, NULL, Byte, Coded


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a batch as arrays, not checked yet."""

    query: Coded
    ad: Coded
    page: Int64
    click: Int32
    clicks: Int64
    weight: Float64  # empty when sessions have none


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch's clean sessions, and what was found on the way."""

    batch: SessionBatch
    totals: Int64  # at the places reasons.py names
    reason: Byte  # [row] place in REASONS
    null_clicks: int  # good rows whose click list was null
    rows: Rows  # as they came, to describe the bad ones


def describe(checked: Checked, raw: Raw, row: int) -> str:
    """Say in a few words what was got in a bad row."""
    return DESCRIBE[int(checked.reason[row])](checked.rows, raw, row)


def _bytes(value: str) -> int:
    return len(value.encode())


def _no_query(_: Rows, raw: Raw, row: int) -> str:
    return "empty text" if raw.columns["query"][row].is_valid else "null"


def _query_too_long(_: Rows, raw: Raw, row: int) -> str:
    return f"{_bytes(raw.columns['query'][row].as_py()):,} bytes, the limit is {MAX_TEXT:,}"


def _no_ads(_: Rows, raw: Raw, row: int) -> str:
    return "an empty page" if raw.columns["ads"][row].is_valid else "null"


def _page_too_long(rows: Rows, _: Raw, row: int) -> str:
    return f"a page of {rows.page[row + 1] - rows.page[row]:,} ads"


def _null_ad(rows: Rows, _: Raw, row: int) -> str:
    codes = rows.ad.codes[rows.page[row] : rows.page[row + 1]]
    position = next(
        place for place, code in enumerate(codes, start=1) if code < 0 or rows.ad.faults[code]
    )
    return f"position {position} of {len(codes)}"


def _null_click(rows: Rows, _: Raw, row: int) -> str:
    click = rows.click[rows.clicks[row] : rows.clicks[row + 1]]
    return f"click number {int(np.argmax(click == NULL)) + 1}"


def _click_outside(rows: Rows, _: Raw, row: int) -> str:
    length = int(rows.page[row + 1] - rows.page[row])
    click = rows.click[rows.clicks[row] : rows.clicks[row + 1]]
    wrong = click[(click < 1) | (click > length)][0]
    return f"position {wrong} on a page of {length} {'ad' if length == 1 else 'ads'}"


def _bad_weight(rows: Rows, raw: Raw, row: int) -> str:
    return f"weight {rows.weight[row]:g}" if raw.columns["weight"][row].is_valid else "null"


def _not_readable(_: Rows, __: Raw, ___: int) -> str:
    return f"a query or an ad id that is not UTF-8 text, or an ad id over {MAX_TEXT:,} bytes"


DESCRIBE: dict[int, Callable[[Rows, Raw, int], str]] = {
    at.NOT_READABLE: _not_readable,
    at.NO_QUERY: _no_query,
    at.QUERY_TOO_LONG: _query_too_long,
    at.NO_ADS: _no_ads,
    at.PAGE_TOO_LONG: _page_too_long,
    at.NULL_AD: _null_ad,
    at.NULL_CLICK: _null_click,
    at.CLICK_OUTSIDE: _click_outside,
    at.BAD_WEIGHT: _bad_weight,
}
