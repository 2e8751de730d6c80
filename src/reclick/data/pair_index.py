"""Index from (query, ad) to the row of the pair in the counts.

A cell is a pair at a position: `CellIndex` is the index from (pair, position) to the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import (
    Bool,
    Float64,
    Int32,
    Int64,
    join_codes,
    read_only,
    run_of_elements,
    run_sizes,
)
from reclick.data.stored_tables import read_lists, table_error, to_lists
from reclick.data.string_index import Interner
from reclick.runtime.jit import kernel

POSITION_BITS = 16  # of the key of a (pair, position) cell


class ImpressionLookup(NamedTuple):
    """The query of each session and the pair of each impression of a batch, as rows of counts."""

    query: Int32  # [session] −1: unknown
    row: Int64  # [impression] −1: unknown


class DictionaryCodes(NamedTuple):
    """The codes of the dictionaries of a batch among the queries and ads of the counts."""

    queries: pa.Array
    ads: pa.Array
    query: Int32  # [query of the dictionary] −1: unknown
    ad: Int32  # [ad of the dictionary] −1: unknown


class PairLookup(NamedTuple):
    """Requested pairs, their rows in the counts, and their attractiveness from words."""

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
        self._last_codes: DictionaryCodes | None = None

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
        codes = self._find_codes(batch)
        query = codes.query[batch.query]
        impression_query = query.repeat(run_sizes(batch.page))
        return ImpressionLookup(query, self._rows(impression_query, codes.ad[batch.ad]))

    def find_known(self, batch: SessionBatch) -> tuple[Bool, Bool]:
        """Whether each session's query and each impression's ad are among those counted."""
        codes = self._find_codes(batch)
        return codes.query[batch.query] >= 0, codes.ad[batch.ad] >= 0

    def _find_codes(self, batch: SessionBatch) -> DictionaryCodes:
        """The codes of the dictionaries of a batch.

        The last result is cached for the next call with the same dictionaries, as for a slice of
        the batch. The cache is replaced as a whole, so several threads may call this at once.
        """
        last = self._last_codes
        if last is None or last.queries is not batch.queries or last.ads is not batch.ads:
            query, ad = self._queries.find(batch.queries), self._ads.find(batch.ads)
            last = self._last_codes = DictionaryCodes(batch.queries, batch.ads, query, ad)
        return last

    def find_pairs(self, queries: pa.Array, ads: pa.Array) -> tuple[Int32, Int64]:
        """The code of each query, and the row of each pair; −1 where it is unknown."""
        query = self._queries.find(queries)
        return query, self._rows(query, self._ads.find(ads))

    def has_ads(self, ads: pa.Array) -> pa.Array:
        """Whether each ad was counted with any query."""
        return pa.array(self._find_ads(ads) >= 0)

    def find_volumes(self, batch: SessionBatch) -> Float64:
        """The number of sessions in the counts of each session's query; 0 for an unknown query."""
        return self.take_or(self._volumes, self._find_codes(batch).query[batch.query], 0.0)

    @cached_property
    def _volumes(self) -> Float64:
        return self.counts.volumes

    def _find_ads(self, ads: pa.Array) -> Int32:
        """The code of each ad in the counts; −1 for a new ad."""
        return self._ads.find(ads)

    def _rows(self, query: Int32, ad: Int32) -> Int64:
        return _search_pairs(query, ad, self._starts, self._pair_ad)

    def take_or(self, values: Float64, row: Int32 | Int64, default: float | Float64) -> Float64:
        """values[row]; where the row is unknown (−1), the default (one, or one per row)."""
        is_known = row >= 0
        if is_known.all():
            return values[row]
        out = np.empty(len(row))
        out[:] = default
        out[is_known] = values[row[is_known]]
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


@dataclass(frozen=True, slots=True, eq=False)
class CellIndex:
    """Sorted (pair, position) cells that had impressions; without positions, the pairs alone.

    >>> cells = CellIndex().add(np.array([1, 0, 1]), np.array([3, 2, 3]))
    >>> cells.pair, cells.position, cells.find(np.array([0, 1]), np.array([2, 0]))
    (array([0, 1]), array([2, 3]), array([ 0, -1]))
    """

    has_positions: bool = True
    keys: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))  # [cell] sorted

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def pair(self) -> Int64:
        """The pair of each cell."""
        return self.keys >> POSITION_BITS

    @property
    def position(self) -> Int64:
        """The position of each cell, from 0."""
        return self.keys & ((1 << POSITION_BITS) - 1)

    def starts(self, n_pairs: int) -> Int64:
        """Where the cells of each pair start [pair + 1]."""
        return np.searchsorted(self.keys, np.arange(n_pairs + 1) << POSITION_BITS)

    def add(self, pair: Int32 | Int64, position: Int32 | Int64) -> CellIndex:
        """A new index with more cells."""
        keys = np.sort(np.concatenate([self.keys, self._keys(pair, position)]))
        return replace(self, keys=keys[np.diff(keys, prepend=-1) > 0])

    def find(self, pair: Int32 | Int64, position: Int32 | Int64) -> Int64:
        """The row of each (pair, position); −1 if there is none."""
        keys = self._keys(pair, position)
        at = np.searchsorted(self.keys, keys)
        at[at == len(self)] = -1
        return np.where(self.keys[at] == keys, at, -1) if len(self) else at

    def of_pairs(self, pairs: slice) -> tuple[CellIndex, slice]:
        """The cells of a run of pairs, and their rows in this index."""
        ends = np.array([pairs.start, pairs.stop]) << POSITION_BITS
        rows = slice(*np.searchsorted(self.keys, ends).tolist())
        return replace(self, keys=self.keys[rows]), rows

    def to_table(self, n_pairs: int) -> pa.Table:
        """A list of positions for each pair."""
        return pa.table({"position": to_lists(self.starts(n_pairs), self.position)})

    def from_table(
        self, tables: Mapping[str, pa.Table], name: str, n_pairs: int, longest: int
    ) -> CellIndex:
        """The cells that `to_table` returned, of pages of up to `longest` ads."""
        starts, position = read_lists(tables, name, "position", low=0, high=longest - 1)
        pair = run_of_elements(starts)
        cells = self.add(pair, position)
        in_order = np.array_equal(cells.keys, self._keys(pair, position))
        if len(starts) != n_pairs + 1 or not in_order:
            raise table_error(name, "its rows are not those of the pairs, or not in order")
        return cells

    def _keys(self, pair: Int32 | Int64, position: Int32 | Int64) -> Int64:
        where = position if self.has_positions else 0
        return np.asarray((pair.astype(np.int64) << POSITION_BITS) | where)


class IndexMap:
    """The rows of the queries and pairs of earlier counts in later counts."""

    def __init__(self, earlier: Counts, later: Counts) -> None:
        self.query = _codes(later.queries, earlier.queries)  # [query]
        ad = _codes(later.ads, earlier.ads)[earlier.pair_ad]
        key = join_codes(self.query[earlier.pair_query], ad)
        self.pair = np.searchsorted(join_codes(later.pair_query, later.pair_ad), key)  # [pair]
        self._later = later

    def place_pairs(self, values: Float64, fill: Float64 | float = 0.0) -> Float64:
        """Values per earlier pair as values per later pair; new pairs get `fill`."""
        return place(values, self.pair, fill, len(self._later.impressions))

    def move_sessions(self, sessions: GroupedSessions) -> GroupedSessions:
        """The sessions of the earlier counts, with the pairs of the later counts."""
        pair = self.pair[sessions.pair].astype(np.int32)
        whole = replace(sessions.whole, pair=pair, pair_query=self._later.pair_query)
        return GroupedSessions(self._later, whole)


def place(values: Float64, rows: Int64, fill: Float64 | float, size: int) -> Float64:
    """An array of this size with the values at these rows and `fill` in all others."""
    out = np.array(np.broadcast_to(fill, (size, *values.shape[1:])), np.float64)
    out[rows] = values
    return out


def _codes(strings: pa.Array, values: pa.Array) -> Int64:
    index = Interner()
    index.codes(strings)
    return index.find(values).astype(np.int64)
