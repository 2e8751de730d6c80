"""(query, ad) → row: where the pairs of a log stand among those that were counted."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Bool, Float64, Int32, Int64, read_only, run_sizes
from reclick.data.string_index import Interner
from reclick.runtime.jit import kernel


class ImpressionLookup(NamedTuple):
    """Where the queries and ads of a batch stand among the pairs."""

    query: Int32  # [session] −1: unknown
    row: Int64  # [impression] −1: unknown


class DictionaryCodes(NamedTuple):
    """Where the dictionaries of a batch stand among the queries and ads that were counted."""

    queries: pa.Array
    ads: pa.Array
    query: Int32  # [query of the dictionary] −1: unknown
    ad: Int32  # [ad of the dictionary] −1: unknown


class PairLookup(NamedTuple):
    """Requested pairs, where they stand, and what their words say."""

    queries: pa.Array
    ads: pa.Array
    row: Int64  # [pair] −1: unknown
    words: Float64  # [pair, 3] attractiveness from words, its posterior mean and deviation
    text: Any = None  # of ads that may be new


class PairIndex:
    """The pairs of counts, in their order, with an index to look them up by query and ad."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        starts = np.searchsorted(counts.pair_query, np.arange(len(counts.queries) + 1))
        self._starts = starts.astype(np.int64)
        self._pair_ad = read_only(counts.pair_ad)
        self._last_found: DictionaryCodes | None = None

    def __len__(self) -> int:
        return len(self.counts.impressions)

    @cached_property
    def _queries(self) -> Interner:
        return _index_strings(self.counts.queries)

    @cached_property
    def _ads(self) -> Interner:
        return _index_strings(self.counts.ads)

    def query_code(self, query: str) -> int:
        """The code of a query, −1 when it is unknown."""
        return int(self._queries.find(pa.array([query]))[0])

    def find(self, batch: SessionBatch) -> ImpressionLookup:
        """Look up every query and ad of a batch."""
        found = self._find_codes(batch)
        query = found.query[batch.query]
        spread = query.repeat(run_sizes(batch.page))
        return ImpressionLookup(query, self._rows(spread, found.ad[batch.ad]))

    def find_known(self, batch: SessionBatch) -> tuple[Bool, Bool]:
        """Whether each session's query and each impression's ad are among those counted."""
        found = self._find_codes(batch)
        return found.query[batch.query] >= 0, found.ad[batch.ad] >= 0

    def _find_codes(self, batch: SessionBatch) -> DictionaryCodes:
        """The codes of a batch's dictionaries, kept for what is next asked of it or a part of it.

        What is kept is replaced as a whole, so threads may ask at once.
        """
        last = self._last_found
        if last is None or last.queries is not batch.queries or last.ads is not batch.ads:
            query, ad = self._queries.find(batch.queries), self._ads.find(batch.ads)
            last = self._last_found = DictionaryCodes(batch.queries, batch.ads, query, ad)
        return last

    def find_pairs(self, queries: pa.Array, ads: pa.Array) -> tuple[Int32, Int64]:
        """The code of each query, and the row of each pair; −1 where it is unknown."""
        query = self._queries.find(queries)
        return query, self._rows(query, self._ads.find(ads))

    def has_ads(self, ads: pa.Array) -> pa.Array:
        """Whether each ad was counted with any query."""
        return pa.array(self._find_ads(ads) >= 0)

    def find_volumes(self, batch: SessionBatch) -> Float64:
        """The sessions of each session's query among those counted, 0 for an unknown one."""
        return self.take_or(self._volumes, self._find_codes(batch).query[batch.query], 0.0)

    @cached_property
    def _volumes(self) -> Float64:
        return self.counts.volumes

    def _find_ads(self, ads: pa.Array) -> Int32:
        """The code of each ad among all that are known, −1 where it is new."""
        return self._ads.find(ads)

    def _rows(self, query: Int32, ad: Int32) -> Int64:
        return _search_pairs(query, ad, self._starts, self._pair_ad)

    def take_or(self, values: Float64, row: Int32 | Int64, default: float | Float64) -> Float64:
        """values[row], and the default (one, or one per row) where the pair is unknown (−1)."""
        known = row >= 0
        if known.all():
            return values[row]
        out = np.empty(len(row))
        out[:] = default
        out[known] = values[row[known]]
        return out


def _index_strings(strings: pa.Array) -> Interner:
    index = Interner()
    index.codes(strings)
    return index


@kernel
def _search_pairs(query: Int32, ad: Int32, starts: Int64, pair_ad: Int32) -> Int64:
    """The row of each (query, ad), −1 where there is none: a binary search in the query's ads."""
    rows = np.full(len(ad), -1, np.int64)
    for i in range(len(ad)):
        if query[i] < 0 or ad[i] < 0:
            continue
        low, high = starts[query[i]], starts[query[i] + 1]
        while low < high:
            middle = (low + high) // 2
            if pair_ad[middle] < ad[i]:
                low = middle + 1
            else:
                high = middle
        if low < starts[query[i] + 1] and pair_ad[low] == ad[i]:
            rows[i] = low
    return rows


class IndexMap:
    """The rows that the queries and pairs of earlier counts have in later ones."""

    def __init__(self, earlier: Counts, later: Counts) -> None:
        self.query = _codes(later.queries, earlier.queries)  # [query]
        ad = _codes(later.ads, earlier.ads)[earlier.pair_ad]
        key = _pair_keys(self.query[earlier.pair_query], ad)
        self.pair = np.searchsorted(_pair_keys(later.pair_query, later.pair_ad), key)  # [pair]
        self._later = later

    def place_pairs(self, values: Float64, fill: Float64 | float = 0.0) -> Float64:
        """Values of the earlier pairs, as values of the later; `fill` where there is none."""
        return place(values, self.pair, fill, len(self._later.impressions))

    def place_queries(self, values: Float64, fill: Float64 | float = 0.0) -> Float64:
        """Values of the earlier queries, as values of the later."""
        return place(values, self.query, fill, len(self._later.queries))

    def move_sessions(self, sessions: GroupedSessions) -> GroupedSessions:
        """The sessions of the earlier counts, with the pairs of the later."""
        pair = self.pair[sessions.pair].astype(np.int32)
        whole = replace(sessions.whole, pair=pair, pair_query=self._later.pair_query)
        return GroupedSessions(self._later, whole)


def place(values: Float64, rows: Int64, fill: Float64 | float, size: int) -> Float64:
    """An array of some size with values at these rows."""
    out = np.array(np.broadcast_to(fill, (size, *values.shape[1:])), np.float64)
    out[rows] = values
    return out


def _codes(strings: pa.Array, wanted: pa.Array) -> Int64:
    index = Interner()
    index.codes(strings)
    return index.find(wanted).astype(np.int64)


def _pair_keys(query: Int32 | Int64, ad: Int32 | Int64) -> Int64:
    return np.asarray((query.astype(np.int64) << 32) | ad)
