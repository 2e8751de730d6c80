"""The compiled passes of counting: over impressions, clicks and sessions."""

from __future__ import annotations

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.engines.local.hash_table import add_block, key_of
from reclick.runtime.jit import kernel

TOGETHER = 64  # sessions whose keys are looked up together


@kernel
def taken(codes: Int32, index: Int32) -> Int32:
    """codes[index], in a pass of its own: what it reads stays in the cache, out of which the tables would push it."""
    out = np.empty(len(index), np.int32)
    for i in range(len(index)):
        out[i] = codes[index[i]]
    return out


@kernel
def codes_of_short(clicks: Int64, click: Int32, short: Int32) -> Int32:
    """The code of click lists without a click, short[0], and of one click, short[its position]; −1 of longer ones."""
    codes = np.empty(len(clicks) - 1, np.int32)
    for s in range(len(codes)):
        many = clicks[s + 1] - clicks[s]
        codes[s] = -1 if many > 1 else short[click[clicks[s]] if many == 1 else 0]
    return codes


@kernel
def count_pairs(
    start: int, end: int, query: Int32, ad: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64,
    keys: Int64, impressions: Float64, others: Float64,
) -> int:  # fmt: skip
    """Add the impressions and clicks of sessions start … end − 1 to their pairs; the number of new pairs."""
    new = 0
    room = TOGETHER * longest_of(page[start : end + 1])
    wanted, more, slots = (
        np.empty(room, np.int64),
        np.ones(room),
        np.empty(room, np.int64),
    )  # [impression of a few sessions]
    for first in range(start, end, TOGETHER):
        beyond, top = min(first + TOGETHER, end), page[first]
        for s in range(first, beyond):
            for i in range(page[s], page[s + 1]):
                wanted[i - top] = key_of(query[s], ad[i])
                if len(weight):
                    more[i - top] = weight[s]
        size = page[beyond] - top
        new += add_block(keys, impressions, wanted[:size], more[:size], slots)
        for s in range(first, beyond):
            for c in range(clicks[s], clicks[s + 1]):
                at = page[s] - top + click[c] - 1
                others[slots[at], 0] += more[at]
                if c == clicks[s + 1] - 1:
                    others[slots[at], 1] += more[at]
    return new


@kernel
def count_visits(
    start: int,
    end: int,
    query: Int32,
    sequence: Int32,
    weight: Float64,
    keys: Int64,
    sessions: Float64,
) -> int:
    """Add sessions start … end − 1 to their queries and click lists; the number of new ones."""
    new = 0
    wanted, more, slots = (
        np.empty(TOGETHER, np.int64),
        np.ones(TOGETHER),
        np.empty(TOGETHER, np.int64),
    )  # [session]
    for first in range(start, end, TOGETHER):
        size = min(first + TOGETHER, end) - first
        for i in range(size):
            wanted[i] = key_of(query[first + i], sequence[first + i])
            if len(weight):
                more[i] = weight[first + i]
        new += add_block(keys, sessions, wanted[:size], more[:size], slots)
    return new


@kernel
def longest_of(starts: Int64) -> int:
    """The longest of runs laid end to end."""
    longest = 0
    for i in range(len(starts) - 1):
        longest = max(longest, starts[i + 1] - starts[i])
    return longest


@kernel
def count_lengths(page: Int64, clicks: Int64, weight: Float64, table: Float64) -> None:
    """Add sessions to a table by page length and number of clicks."""
    for s in range(len(page) - 1):
        table[page[s + 1] - page[s], clicks[s + 1] - clicks[s]] += weight[s] if len(weight) else 1.0
