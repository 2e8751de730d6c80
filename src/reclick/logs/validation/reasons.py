"""The reasons why a row is bad. Rows are counted by these texts, which users read.

`SummaryBuilder` in `logs/read_summary.py` counts them.
"""

from __future__ import annotations

from typing import NamedTuple

# Rows of sessions, in any format
NOT_READABLE = "not readable"
NO_QUERY = "no query"
QUERY_TOO_LONG = "query too long"
NO_ADS = "no ads"
PAGE_TOO_LONG = "page too long"
NULL_AD = "null ad"
NULL_CLICK = "null click"
CLICK_OUTSIDE = "click outside the page"
BAD_WEIGHT = "bad weight"
DWELL_AND_CLICKS_DISAGREE = "dwell_seconds and clicks disagree"
BAD_DWELL = "bad dwell_seconds"
CONVERSIONS_AND_CLICKS_DISAGREE = "conversions and clicks disagree"
BAD_CONVERSIONS = "bad conversions"

# Ads and labels
NO_AD = "no ad"
BAD_RELEVANCE = "bad relevance"
AD_TWICE = "ad listed twice with different text"

# Candidates and bids
BAD_BID = "bad bid"
BAD_VALUE = "bad value"
BAD_BUDGET = "bad budget"
PAIR_TWICE = "ad listed twice in one auction"

# Events, which are joined into pages
NO_PAGE_KEY = "no page key"
DUPLICATE_PAGE_KEY = "duplicate page key"
NO_POSITION = "no position"
NO_TIME = "no time"
CLICK_WITHOUT_PAGE = "click without a page"
CLICK_NOT_SHOWN = "click on an ad not shown"
TWO_PAGES_ONE_KEY = "two ads at one position, two pages with one key"

# Single formats
UNKNOWN_RECORD = "neither a query nor an event"
DUPLICATE_USER = "duplicate user"
DUPLICATE_ID = "duplicate id"
CLICKS_AND_TIMES_DISAGREE = "clicks and times disagree"
NO_IMPRESSIONS = "no impressions"
MORE_CLICKS_THAN_IMPRESSIONS = "more clicks than impressions"
POSITION_BEYOND_DEPTH = "position beyond the depth"

# Validation writes one byte per row: the index of its reason here, 0 for a good row.
ROW_REASONS = (
    "",
    NOT_READABLE,
    NO_QUERY,
    QUERY_TOO_LONG,
    NO_ADS,
    PAGE_TOO_LONG,
    NULL_AD,
    NULL_CLICK,
    CLICK_OUTSIDE,
    BAD_WEIGHT,
    DWELL_AND_CLICKS_DISAGREE,
    BAD_DWELL,
    CONVERSIONS_AND_CLICKS_DISAGREE,
    BAD_CONVERSIONS,
)


class BatchTotals(NamedTuple):
    """Totals over the good rows of a batch."""

    sessions: int
    impressions: int
    clicks: int  # repeated ones counted once
    clicked_sessions: int
    multi_click_sessions: int
    reverse_sessions: int  # with a click above an earlier one
    longest_page: int
    repeated_ad_sessions: int
    repeated_click_sessions: int
    repeated_clicks: int  # the clicks that were dropped for it
    known_outcomes: int  # clicks with a known dwell time or a known number of conversions
    converted_clicks: int


NO_TOTALS = BatchTotals(*[0] * len(BatchTotals._fields))
