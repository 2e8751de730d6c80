"""The (query, ad) pairs a model has learnt of: finding them, their support, and what the words of an ad say of pairs never seen."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.string_index import Interner
from reclick.logs import SessionLog, as_pairs, read_ads
from reclick.runtime.jit import kernel
from reclick.text.tokens import AdTokens, tokenise
from reclick.text.word_rates import TextIndex, WordRates


class Impressions(NamedTuple):
    """Where a batch's queries and ads are found among the pairs."""

    query: Int32  # [session] −1: never seen
    row: Int64  # [impression] −1: never seen together


class Asked(NamedTuple):
    """Pairs somebody asks about."""

    queries: pa.Array
    ads: pa.Array
    row: Int64  # [pair] −1: never seen
    words: Float64  # [pair, 3] attractiveness from words, its posterior mean and deviation


class Pairs:
    """Pairs in the counts' order, with an index to find them and the word rates behind them."""

    def __init__(
        self,
        counts: Counts,
        text: AdTokens | None,
        *,
        frequent: float,
        word_strength: float = 0.0,
        looks: tuple[Float64, Float64] | None = None,
        unseen: float | None = None,
    ) -> None:
        """Word rates are clicks over impressions, or those of `looks`: the looks a model thinks each pair had [pair], and the successes among them.

        Their prior is worth `word_strength` impressions. Pairs never seen get what their words say, or `unseen` when it is given.
        """
        self.counts = counts
        self.text = text
        self.unseen = unseen
        self._text_index = TextIndex(text) if text is not None else None
        seen = counts if looks is None else replace(counts, impressions=looks[0], clicks=looks[1])
        self.words = WordRates(seen, self._text_index, frequent=frequent, strength=word_strength)
        self._starts = np.searchsorted(
            counts.pair_query, np.arange(len(counts.queries) + 1)
        ).astype(np.int64)
        self._queries, self._ads = Interner(), Interner()
        self._queries.codes(counts.queries)
        self._ads.codes(counts.ads)

    def __len__(self) -> int:
        return len(self.counts.impressions)

    def query_code(self, query: str) -> int:
        """The code of a query, −1 when it was never seen."""
        return int(self._queries.find(pa.array([query]))[0])

    def find(self, batch: SessionBatch) -> Impressions:
        """Look up every query and ad of a batch."""
        query = self._queries.find(batch.queries)[batch.query]
        ad = self._ads.find(batch.ads)[batch.ad]
        return Impressions(
            query,
            _rows(np.repeat(query, np.diff(batch.page)), ad, self._starts, self.counts.pair_ad),
        )

    def text_for(self, log: SessionLog) -> TextIndex | None:
        """The text of all ads that may be on the log's pages."""
        return self._text_with(log.ads)

    def filled(
        self, values: Float64, batch: SessionBatch, found: Impressions, text: TextIndex | None
    ) -> Float64:
        """A value a pair [pair] as a value an impression; for pairs never seen, the attractiveness that the words of the ad give."""
        if self.unseen is not None:
            return self.at(values, found.row, self.unseen)
        out, seen = np.empty(len(found.row)), found.row >= 0
        out[seen] = values[found.row[seen]]
        out[~seen] = self._cold(
            np.repeat(found.query, np.diff(batch.page))[~seen], batch.ad[~seen], batch.ads, text
        )
        return out

    def asked(self, pairs: object, text: object) -> Asked:
        """The pairs of a table with columns query and ad (all pairs when None), found, with what their words say."""
        counts = self.counts
        queries, ads = (
            (counts.queries.take(counts.pair_query), counts.ads.take(counts.pair_ad))
            if pairs is None
            else as_pairs(pairs)
        )
        query, distinct = self._queries.find(queries), ads.dictionary_encode()
        row = _rows(query, self._ads.find(ads), self._starts, counts.pair_ad)
        tokens = self.words.tokens_of(
            distinct.dictionary, self._text_with(None if text is None else read_ads(text))
        )
        return Asked(
            queries,
            ads,
            row,
            self.words.of(query, distinct.indices.to_numpy().astype(np.int32), tokens),
        )

    def at(self, values: Float64, row: Int64, unseen: float) -> Float64:
        """A value a pair [pair], at these rows; `unseen` where the pair was never seen."""
        out = np.full(len(row), unseen)
        out[row >= 0] = values[row[row >= 0]]
        return out

    def _text_with(self, ads: pa.Table | None) -> TextIndex | None:
        """The model's text of ads, and the table's for those new to it."""
        if ads is None:
            return self._text_index
        new = tokenise(ads.filter(pa.array(self._ads.find(ads["ad"].combine_chunks()) < 0)))
        return TextIndex(new) if self._text_index is None else self._text_index.with_text(new)

    def _cold(self, query: Int32, ad: Int32, ads: pa.Array, text: TextIndex | None) -> Float64:
        """Attractiveness of pairs never seen together, from the words of the ad; each distinct pair is worked out once."""
        own = np.where(self.words.is_frequent(query), query, -1).astype(np.int64)
        distinct, back = np.unique((own << 32) | ad, return_inverse=True)
        code, rows = np.unique((distinct & 0xFFFFFFFF).astype(np.int32), return_inverse=True)
        tokens = self.words.tokens_of(ads.take(pa.array(code)), text)
        return np.asarray(
            self.words.of((distinct >> 32).astype(np.int32), rows.astype(np.int32), tokens)[:, 0][
                back
            ]
        )


@kernel
def _rows(query: Int32, ad: Int32, starts: Int64, pair_ad: Int32) -> Int64:
    """The row of each (query, ad) among the pairs, −1 where it was never seen: a binary search among the query's ads."""
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
