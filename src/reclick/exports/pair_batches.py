"""The pairs of a model, or those of a table, a slice at a time: a model of ten million pairs is never one table."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa

from reclick.data.batch import Int32
from reclick.logs import as_pairs
from reclick.models.base import ClickModel

SIZE = 1 << 17  # pairs to a slice, and the rest of the last query's
MOST = 8  # slices in work at once, for each takes memory

Item = TypeVar("Item")
Result = TypeVar("Result")


class PairSlices:
    """Pairs in the order of their queries, once each; no query is in two slices. They can be gone through any number of times."""

    def __init__(self, model: ClickModel, pairs: object = None, *, size: int = SIZE) -> None:
        if not model.fitted:
            model.relevance()  # which says so
        if pairs is None:
            counts = (
                model._pairs.counts
            )  # all pairs at once is what relevance() gives, and what is to be avoided
            self._names, self._query, self._ad = (
                (counts.queries, counts.ads),
                counts.pair_query,
                counts.pair_ad,
            )
        else:
            self._names, self._query, self._ad = _coded(pairs)
        self._ends = _ends(self._query, size)

    def __len__(self) -> int:
        return len(self._query)

    def __iter__(self) -> Iterator[pa.Table]:
        start = 0
        for end in self._ends:
            codes = (self._query[start:end], self._ad[start:end])
            query, ad = (
                names.take(pa.array(code)) for names, code in zip(self._names, codes, strict=True)
            )
            yield pa.table({"query": query, "ad": ad})
            start = end


def _coded(pairs: object) -> tuple[tuple[pa.Array, pa.Array], Int32, Int32]:
    """The distinct pairs of a table, sorted by query and ad: the names and the codes of each."""
    query, ad = as_pairs(pairs)
    distinct = (
        pa.table({"query": query, "ad": ad})
        .group_by(["query", "ad"], use_threads=False)
        .aggregate([])
    )
    columns = [
        distinct.sort_by([("query", "ascending"), ("ad", "ascending")])[name]
        .combine_chunks()
        .dictionary_encode()
        for name in ("query", "ad")
    ]
    codes = [column.indices.to_numpy().astype(np.int32) for column in columns]
    return (columns[0].dictionary, columns[1].dictionary), codes[0], codes[1]


def _ends(query: Int32, size: int) -> list[int]:
    """Where each slice ends: the first end of a query's pairs at or after `size` pairs."""
    queries = np.append(
        np.flatnonzero(np.diff(query)) + 1, len(query)
    )  # [query] where its pairs end
    ends: list[int] = []
    while not ends or ends[-1] < len(query):
        wanted = (ends[-1] if ends else 0) + size
        ends.append(int(queries[min(int(np.searchsorted(queries, wanted)), len(queries) - 1)]))
    return ends


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results in the items' order; a few items are worked on at once, and no more are held.

    >>> list(side_by_side(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    many = min(MOST, os.cpu_count() or 1)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(many) as pool:
        for item in items:
            if len(waiting) == many:
                yield waiting.popleft().result()
            waiting.append(pool.submit(work, item))
        while waiting:
            yield waiting.popleft().result()
