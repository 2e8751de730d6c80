"""Why a row may be bad, and what is added up over the good ones: the places where the kernels write them."""

from __future__ import annotations

# The kernels write the place of a row's reason in this tuple; 0 is a good row.
REASONS = (
    "",
    "not readable",
    "no query",
    "query too long",
    "no ads",
    "page too long",
    "null ad",
    "null click",
    "click outside the page",
    "bad weight",
)
(
    NOT_READABLE,
    NO_QUERY,
    QUERY_TOO_LONG,
    NO_ADS,
    PAGE_TOO_LONG,
    NULL_AD,
    NULL_CLICK,
    CLICK_OUTSIDE,
    BAD_WEIGHT,
) = range(1, 10)

# The places of what the kernels add up over good rows: sessions, but for impressions, clicks and REPEATS (clicks taken out).
(
    KEPT,
    IMPRESSIONS,
    CLICKS,
    CLICKED,
    MULTI,
    REVERSE,
    LONGEST,
    REPEATED_AD,
    REPEATED_CLICK,
    REPEATS,
) = range(10)
NUM_TOTALS = 10
