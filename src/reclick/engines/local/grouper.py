"""One pass over batches of sessions that groups equal ones."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from reclick.data.batch import Int32, Int64, SessionBatch
from reclick.data.grouped_sessions import Sessions
from reclick.data.string_index import Interner
from reclick.engines.local.counter import Counter
from reclick.runtime.jit import kernel


class Grouper:
    """Groups equal sessions (query, ads, clicks) with their weight; `finish` gives the `Sessions`. Memory follows the distinct sessions."""

    def __init__(self) -> None:
        self._counter = Counter()
        self._sessions = Interner()  # the bytes of query, page length, ads, clicks
        self._weight = np.zeros(1024)  # [session]

    def add_batches(self, batches: Iterator[SessionBatch]) -> None:
        """Group every session of a log; a batch is counted and grouped side by side, and the next one read meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            for batch in batches:
                query, ad, sequence = self._counter.codes(batch)
                counted = pool.submit(self._counter.add, batch, query, ad, sequence)
                self._add(batch, query, ad)
                counted.result()

    def _add(self, batch: SessionBatch, query: Int32, ad: Int32) -> None:
        packed, starts = _pack(query, ad, batch.page, batch.click, batch.clicks)
        session = self._sessions.codes_of_bytes(starts, packed.view(np.uint8), width=4)
        if self._sessions.size > len(self._weight):
            self._weight = np.concatenate(
                [self._weight, np.zeros(self._sessions.size * 3 // 2 - len(self._weight))]
            )
        self._weight[: self._sessions.size] += np.bincount(
            session, batch.weight, self._sessions.size
        )

    def finish(self) -> Sessions:
        """The distinct sessions, in the order of their queries. The grouper is used up: its tables go before the sessions are laid out."""
        counts = self._counter.finish()
        query, ad = self._counter.sorted_codes(counts)
        del self._counter
        offsets, data = self._sessions.slices()
        starts = np.searchsorted(counts.pair_query, np.arange(len(counts.queries) + 1)).astype(
            np.int64
        )
        weight = self._weight[: self._sessions.size]
        packed, begin = data.view(np.int32), offsets // 4
        code = query[packed[begin[:-1]]]
        kept = np.flatnonzero((weight > 0) & (code >= 0))
        order = kept[np.argsort(code[kept], kind="stable")]
        page, clicks = _unpacked_starts(order, packed, begin)
        pair, click = np.empty(page[-1], np.int32), np.empty(clicks[-1], np.int32)
        with ThreadPoolExecutor(2) as pool:
            for half in np.array_split(np.arange(len(order)), 2):
                ends = (int(half[0]), int(half[-1]) + 1) if len(half) else (0, 0)
                pool.submit(
                    _unpack,
                    *ends,
                    order,
                    packed,
                    begin,
                    query,
                    ad,
                    starts,
                    counts.pair_ad,
                    page,
                    clicks,
                    pair,
                    click,
                )
        return Sessions(counts, pair, page, click, clicks, weight[order])


@kernel
def _pack(query: Int32, ad: Int32, page: Int64, click: Int32, clicks: Int64) -> tuple[Int32, Int64]:
    """Each session as a run of numbers: query, page length, ads, clicks; and where each run starts."""
    packed = np.empty(2 * len(query) + len(ad) + len(click), np.int32)
    starts = np.zeros(len(query) + 1, np.int64)
    at = 0
    for s in range(len(query)):
        packed[at], packed[at + 1] = query[s], page[s + 1] - page[s]
        at += 2
        for i in range(page[s], page[s + 1]):
            packed[at] = ad[i]
            at += 1
        for c in range(clicks[s], clicks[s + 1]):
            packed[at] = click[c]
            at += 1
        starts[s + 1] = at
    return packed, starts


@kernel
def _unpacked_starts(order: Int64, packed: Int32, begin: Int64) -> tuple[Int64, Int64]:
    """Where the page and the clicks of each of `_pack`'s runs start, taken in this order."""
    page, clicks = np.zeros(len(order) + 1, np.int64), np.zeros(len(order) + 1, np.int64)
    for s in range(len(order)):
        length = packed[begin[order[s]] + 1]
        page[s + 1] = page[s] + length
        clicks[s + 1] = clicks[s] + begin[order[s] + 1] - begin[order[s]] - 2 - length
    return page, clicks


@kernel
def _unpack(
    start: int, end: int, order: Int64, packed: Int32, begin: Int64, query_code: Int32, ad_code: Int32, starts: Int64, pair_ad: Int32,
    page: Int64, clicks: Int64, pair: Int32, click: Int32,
) -> None:  # fmt: skip
    """Fill in the pages, as rows of the counts' pairs, and the clicks of the runs order[start] … order[end − 1]."""
    for s in range(start, end):
        at = begin[order[s]]
        q = query_code[packed[at]]
        at += 2
        first, last = starts[q], starts[q + 1]
        for i in range(page[s], page[s + 1]):
            pair[i] = first + np.searchsorted(pair_ad[first:last], ad_code[packed[at]])
            at += 1
        for c in range(clicks[s], clicks[s + 1]):
            click[c] = packed[at]
            at += 1
