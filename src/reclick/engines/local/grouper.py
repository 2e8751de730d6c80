"""Group equal sessions of batches in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from reclick.data.batch import SessionBatch
from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.data.outcomes import Int8, last_of_runs
from reclick.data.ragged import Int32, Int64, read_only, starts_from_sizes
from reclick.data.string_index import Interner
from reclick.engines.local.counter import Counter
from reclick.runtime.jit import kernel
from reclick.runtime.parallel import run_parallel, thread_limit

LENGTH_BITS = 24  # of a page length; the bits above have the outcome of the last click
NO_OUTCOME: Int8 = read_only(np.zeros(0, np.int8))


class Grouper:
    """Groups equal sessions (query, ads, clicks, outcome of the last click) with their weight.

    `finish` returns the `GroupedSessions`. Memory grows with the number of distinct sessions.
    """

    def __init__(self) -> None:
        self._counter = Counter()
        self._sessions = Interner()  # the bytes of query, page length and outcome, ads, clicks
        self._weight = np.zeros(1024)  # [session]

    def add_batches(self, batches: Iterator[SessionBatch]) -> None:
        """Group every session; a batch is counted and grouped at the same time."""
        for batch in batches:
            query, ad, sequence = self._counter.encode(batch)
            run_parallel(
                partial(self._counter.add, batch, query, ad, sequence),
                partial(self._add, batch, query, ad),
            )

    def _add(self, batch: SessionBatch, query: Int32, ad: Int32) -> None:
        outcome = NO_OUTCOME
        if batch.outcomes is not None:
            outcome = read_only(last_of_runs(batch.outcomes.outcome, batch.clicks))
        starts = np.zeros(len(batch) + 1, np.int64)
        packed = np.empty(2 * len(query) + len(ad) + len(batch.click), np.int32)
        _pack(query, ad, batch.page, batch.click, batch.clicks, outcome, packed, starts)
        session = self._sessions.codes_of_bytes(starts, packed.view(np.uint8), width=4)
        n_sessions = self._sessions.size
        if n_sessions > len(self._weight):
            room = np.zeros(n_sessions * 3 // 2 - len(self._weight))
            self._weight = np.concatenate([self._weight, room])
        self._weight[:n_sessions] += np.bincount(session, batch.weight, n_sessions)

    def finish(self) -> GroupedSessions:
        """Return the distinct sessions by query, those of a query in order of first appearance.

        The grouper cannot be used afterwards: its tables are freed before the result is built.
        """
        counts = self._counter.finish()
        query, ad = self._counter.to_canonical_codes(counts)
        del self._counter
        offsets, data = self._sessions.slices()
        pair_starts = np.searchsorted(counts.pair_query, np.arange(len(counts.queries) + 1))
        weight = self._weight[: self._sessions.size]
        packed, begin = data.view(np.int32), offsets // 4
        code = query[packed[begin[:-1]]]
        positive = np.flatnonzero((weight > 0) & (code >= 0))
        order = positive[np.argsort(code[positive], kind="stable")]
        lengths = packed[begin[order] + 1]
        outcome = (lengths >> LENGTH_BITS).astype(np.int8)
        lengths &= (1 << LENGTH_BITS) - 1
        page = starts_from_sizes(lengths)
        clicks = starts_from_sizes(begin[order + 1] - begin[order] - 2 - lengths)
        pair, click = np.empty(page[-1], np.int32), np.empty(clicks[-1], np.int32)
        edges = np.linspace(0, len(order), thread_limit() + 1).astype(np.int64).tolist()
        run_parallel(
            *(
                partial(
                    _unpack, first, last, order, packed, begin, query, ad, pair_starts,
                    counts.pair_ad, page, clicks, pair, click,
                )
                for first, last in pairwise(edges)
            )
        )  # fmt: skip
        outcomes = outcome if outcome.any() else None
        whole = QueryBlock(
            0, 0, counts.pair_query, pair, page, click, clicks, weight[order], outcomes
        )
        return GroupedSessions(counts, whole)


@kernel
def _pack(
    query: Int32, ad: Int32, page: Int64, click: Int32, clicks: Int64, outcome: Int8,
    packed: Int32, starts: Int64,
) -> None:  # fmt: skip
    """Write each session as a run of numbers to `packed`, and the starts of runs to `starts`.

    A run has the query, the page length, the ads and the clicks. If the log has outcomes, that of
    the last click is in the upper bits of the page length.
    """
    at = 0
    for s in range(len(query)):
        packed[at], packed[at + 1] = query[s], page[s + 1] - page[s]
        if len(outcome) > 0:
            packed[at + 1] |= np.int32(outcome[s]) << LENGTH_BITS
        at += 2
        for i in range(page[s], page[s + 1]):
            packed[at] = ad[i]
            at += 1
        for c in range(clicks[s], clicks[s + 1]):
            packed[at] = click[c]
            at += 1
        starts[s + 1] = at


@kernel
def _unpack(
    start: int, end: int, order: Int64, packed: Int32, begin: Int64, query_code: Int32,
    ad_code: Int32, pair_starts: Int64, pair_ad: Int32, page: Int64, clicks: Int64,
    pair: Int32, click: Int32,
) -> None:  # fmt: skip
    """Write pages (as rows of the counts' pairs) and clicks of the sessions order[start:end]."""
    for s in range(start, end):
        at = begin[order[s]]
        q = query_code[packed[at]]
        at += 2
        for i in range(page[s], page[s + 1]):
            low, high, ad = pair_starts[q], pair_starts[q + 1] - 1, ad_code[packed[at]]
            while low < high:  # the ad is among those of the query
                middle = (low + high) // 2
                if pair_ad[middle] < ad:
                    low = middle + 1
                else:
                    high = middle
            pair[i] = low
            at += 1
        for c in range(clicks[s], clicks[s + 1]):
            click[c] = packed[at]
            at += 1
