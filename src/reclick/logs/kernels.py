"""The compiled pass over the rows of a batch: why a row is bad, and the totals of the good ones."""

from __future__ import annotations

import numpy as np

from reclick.batch import Float64, Int32, Int64
from reclick.compiled import compiled
from reclick.logs.encode import EMPTY, NOT_TEXT, NULL, OK, TOO_LONG, Byte
from reclick.logs.reasons import (
    BAD_WEIGHT,
    CLICK_OUTSIDE,
    CLICKED,
    CLICKS,
    IMPRESSIONS,
    KEPT,
    LONGEST,
    MULTI,
    NO_ADS,
    NO_QUERY,
    NOT_READABLE,
    NULL_AD,
    NULL_CLICK,
    NUM_TOTALS,
    PAGE_TOO_LONG,
    QUERY_TOO_LONG,
    REPEATED_AD,
    REPEATED_CLICK,
    REPEATS,
    REVERSE,
)

SHORT_PAGE = 16  # up to here comparing every pair of ads is faster than remembering them


@compiled
def check_rows(
    query: Int32,
    query_fault: Byte,
    ad: Int32,
    ad_fault: Byte,
    page: Int64,
    click: Int32,
    clicks: Int64,
    weight: Float64,
    max_ads: int,
    reason: Byte,
) -> Int64:
    """Write every row's reason and return the totals; `weight` is empty when sessions have none."""
    totals = np.zeros(NUM_TOTALS, np.int64)
    clicked = np.zeros(min(max_ads, len(ad)) + 1, np.int32)  # [position] the last row that clicked it, from 1
    shown = np.zeros(len(ad_fault), np.int32)  # [ad] the last row that showed it, from 1
    for row in range(len(query)):
        start, end = page[row], page[row + 1]
        why = query_reason(query[row], query_fault)
        if why == 0:
            why = page_reason(ad, ad_fault, start, end, max_ads)
        if why == 0 and len(weight) > 0 and not 0.0 <= weight[row] < np.inf:
            why = BAD_WEIGHT
        made, reverse = 0, False
        if why == 0:
            why, made, reverse = read_clicks(click, clicks[row], clicks[row + 1], end - start, clicked, row + 1)
        reason[row] = why
        if why != 0:
            continue
        repeats = clicks[row + 1] - clicks[row] - made
        totals[KEPT] += 1
        totals[IMPRESSIONS] += end - start
        totals[CLICKS] += made
        totals[CLICKED] += made > 0
        totals[MULTI] += made > 1
        totals[REVERSE] += reverse
        totals[LONGEST] = max(totals[LONGEST], end - start)
        totals[REPEATED_AD] += shows_twice(ad, start, end, shown, row + 1)
        totals[REPEATED_CLICK] += repeats > 0
        totals[REPEATS] += repeats
    return totals


@compiled
def query_reason(code: int, fault: Byte) -> int:
    """Return why a query is bad, 0 when it is not."""
    if code < 0 or fault[code] == EMPTY:
        return NO_QUERY
    if fault[code] == TOO_LONG:
        return QUERY_TOO_LONG
    return NOT_READABLE if fault[code] == NOT_TEXT else 0


@compiled
def page_reason(ad: Int32, fault: Byte, start: int, end: int, max_ads: int) -> int:
    """Return why a page is bad, 0 when it is not."""
    if end == start:
        return NO_ADS
    if end - start > max_ads:
        return PAGE_TOO_LONG
    for i in range(start, end):
        if ad[i] < 0 or fault[ad[i]] == EMPTY:
            return NULL_AD
        if fault[ad[i]] != OK:
            return NOT_READABLE
    return 0


@compiled
def read_clicks(click: Int32, start: int, end: int, length: int, clicked: Int32, stamp: int) -> tuple[int, int, bool]:
    """Return why the clicks are bad (0 when they are not), how many different positions they hold, and whether one goes back up."""
    made, previous, reverse = 0, 0, False
    for i in range(start, end):
        position = click[i]
        if position < 1 or position > length:
            return (NULL_CLICK if position == NULL else CLICK_OUTSIDE), 0, False
        if clicked[position] == stamp:
            continue
        clicked[position] = stamp
        reverse |= position < previous
        previous = position
        made += 1
    return 0, made, reverse


@compiled
def shows_twice(ad: Int32, start: int, end: int, shown: Int32, stamp: int) -> bool:
    """Return whether a page shows an ad twice."""
    if end - start <= SHORT_PAGE:
        for i in range(start + 1, end):
            for j in range(start, i):
                if ad[i] == ad[j]:
                    return True
        return False
    for i in range(start, end):
        if shown[ad[i]] == stamp:
            return True
        shown[ad[i]] = stamp
    return False


@compiled
def keep_pages(kept: Int64, ad: Int32, page: Int64, size: int) -> tuple[Int32, Int64]:
    """Return the pages of the kept rows laid end to end, and where each starts."""
    codes = np.empty(size, np.int32)
    starts = np.zeros(len(kept) + 1, np.int64)
    at = 0
    for new, row in enumerate(kept):
        for i in range(page[row], page[row + 1]):
            codes[at] = ad[i]
            at += 1
        starts[new + 1] = at
    return codes, starts


@compiled
def keep_clicks(kept: Int64, click: Int32, clicks: Int64, size: int, longest: int) -> tuple[Int32, Int64]:
    """Return the clicks of the kept rows laid end to end, each position once, and where each row's start."""
    positions = np.empty(size, np.int32)
    starts = np.zeros(len(kept) + 1, np.int64)
    clicked = np.zeros(longest + 1, np.int32)
    at = 0
    for new, row in enumerate(kept):
        for i in range(clicks[row], clicks[row + 1]):
            if clicked[click[i]] != new + 1:
                clicked[click[i]] = new + 1
                positions[at] = click[i]
                at += 1
        starts[new + 1] = at
    return positions, starts
