"""The compiled pass over the rows of a batch: why a row is bad, and the totals of the good ones."""

from __future__ import annotations

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.logs.validation.encode import EMPTY, NOT_TEXT, NULL, OK, TOO_LONG, Byte
from reclick.logs.validation.reasons import (
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
from reclick.runtime.jit import kernel

SHORT_PAGE = 16  # up to here comparing every pair of ads is faster than remembering them


@kernel
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
    clicked = np.zeros(
        min(max_ads, len(ad)) + 1, np.int32
    )  # [position] the last row that clicked it, from 1
    twice = pages_that_repeat(ad, len(ad_fault), page)
    sound_queries, sound_ads = all_sound(query, query_fault), all_sound(ad, ad_fault)
    for row in range(len(query)):
        start, end = page[row], page[row + 1]
        why = 0 if sound_queries else query_reason(query[row], query_fault)
        if why == 0:
            why = page_reason(ad, ad_fault, sound_ads, start, end, max_ads)
        if why == 0 and len(weight) > 0 and not 0.0 <= weight[row] < np.inf:
            why = BAD_WEIGHT
        made, reverse = 0, False
        if why == 0:
            why, made, reverse = read_clicks(
                click, clicks[row], clicks[row + 1], end - start, clicked, row + 1
            )
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
        totals[REPEATED_AD] += twice[row]
        totals[REPEATED_CLICK] += repeats > 0
        totals[REPEATS] += repeats
    return totals


@kernel
def query_reason(code: int, fault: Byte) -> int:
    """Return why a query is bad, 0 when it is not."""
    if code < 0 or fault[code] == EMPTY:
        return NO_QUERY
    if fault[code] == TOO_LONG:
        return QUERY_TOO_LONG
    return NOT_READABLE if fault[code] == NOT_TEXT else 0


@kernel
def all_sound(codes: Int32, fault: Byte) -> bool:
    """Return whether none is null and none has a fault, as in nearly every batch: no row then needs to be looked at for it."""
    least = np.int32(0)
    for i in range(len(codes)):
        least = min(least, codes[i])
    return bool(least == 0 and not fault.any())


@kernel
def page_reason(ad: Int32, fault: Byte, sound: bool, start: int, end: int, max_ads: int) -> int:
    """Return why a page is bad, 0 when it is not."""
    if end == start:
        return NO_ADS
    if end - start > max_ads:
        return PAGE_TOO_LONG
    for i in range(start, start if sound else end):
        if ad[i] < 0 or fault[ad[i]] == EMPTY:
            return NULL_AD
        if fault[ad[i]] != OK:
            return NOT_READABLE
    return 0


@kernel
def read_clicks(
    click: Int32, start: int, end: int, length: int, clicked: Int32, stamp: int
) -> tuple[int, int, bool]:
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


@kernel
def pages_that_repeat(ad: Int32, num_ads: int, page: Int64) -> Byte:
    """Return for each page whether it shows an ad twice."""
    twice = np.zeros(len(page) - 1, np.uint8)
    longest = 0
    for row in range(len(twice)):
        longest = max(longest, page[row + 1] - page[row])
    if longest <= SHORT_PAGE:
        mark_near(ad, page, longest, twice)
    else:
        mark_anywhere(ad, num_ads, page, twice)
    return twice


@kernel
def mark_near(ad: Int32, page: Int64, longest: int, twice: Byte) -> None:
    """Mark pages with an ad twice, none longer than `longest`: equal ads are first looked for as if all pages were one, which is quick."""
    for distance in range(1, longest):
        row = 0
        for i in range(distance, len(ad)):
            if ad[i] == ad[i - distance]:
                while page[row + 1] <= i:
                    row += 1
                twice[row] |= i - distance >= page[row]


@kernel
def mark_anywhere(ad: Int32, num_ads: int, page: Int64, twice: Byte) -> None:
    """Mark pages with an ad twice, of any length."""
    shown = np.zeros(num_ads, np.int32)  # [ad] the last row that showed it, from 1
    for row in range(len(twice)):
        for i in range(page[row], page[row + 1]):
            if ad[i] >= 0:
                twice[row] |= shown[ad[i]] == row + 1
                shown[ad[i]] = row + 1


@kernel
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


@kernel
def keep_clicks(
    kept: Int64, click: Int32, clicks: Int64, size: int, longest: int
) -> tuple[Int32, Int64]:
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
