"""Attractiveness from words: θ(q, d) is the mean over the ad's tokens of the click rates of words.

The click rate of word w is N̂_w / N_w, clicks over impressions.

A frequent query has its own word rates; any other query uses those of the whole corpus. With a
prior of strength s, a rate over n impressions is (n · rate + s · overall) / (n + s), where overall
is the click rate of the corpus. Word counts come from (query, ad) totals joined with the ad's
tokens, one query at a time, so no table of (query, word) is ever built.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.counts import Counts
from reclick.data.ragged import (
    Bool,
    Float64,
    Int32,
    Int64,
    read_only,
    run_indices,
    run_of_elements,
    starts_from_sizes,
)
from reclick.data.stored_tables import read_numbers, read_strings, table_error
from reclick.data.string_index import Interner
from reclick.runtime.jit import kernel, subkernel
from reclick.text.tokens import AdTokens

WORD_TOTALS = ("impressions", "clicks", "squares")  # columns of `CorpusWords.to_table`
UNKNOWN = -1  # the code of a word, or the row of an ad, that is not known


@dataclass(frozen=True, slots=True)
class TokenLists:
    """The distinct tokens of some ads, laid end to end, and how often each occurs in its ad."""

    starts: Int64  # [ad + 1]
    words: Int32  # [token] codes of words, or UNKNOWN
    multiplicity: Int32  # [token]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def is_single(self) -> bool:
        """Whether every ad has exactly one token, once, as when no ad has text."""
        one_each = len(self.words) == len(self) and bool((np.diff(self.starts) == 1).all())
        return one_each and bool((self.multiplicity == 1).all())


class TextModel(Protocol):
    """A model of attractiveness from words alone, the same for every query."""

    kind: ClassVar[str]  # in saved models

    def rate(self, tokens: TokenLists) -> Float64:
        """Clicks per unit of exposure [ad]."""

    def to_arrays(self) -> tuple[Float64, float]:
        """The parameters: a value per word [word], and one for all words."""


class TextIndex:
    """The tokens of ads, looked up by the ad's id."""

    def __init__(self, text: AdTokens) -> None:
        self.text = text
        self._index = Interner()
        self._index.codes(text.ads)

    def rows(self, ads: pa.Array) -> Int32:
        """The row of each ad; UNKNOWN for ads without text."""
        return self._index.find(ads)

    def with_text(self, other: AdTokens) -> TextIndex:
        """A new index of these ads and the further ads of `other`."""
        new = self.rows(other.ads) == UNKNOWN
        if not new.any():
            return self
        vocabulary = Interner()
        codes = vocabulary.codes(self.text.vocabulary)
        other_codes = vocabulary.codes(other.vocabulary)
        sizes = np.concatenate([np.diff(self.text.offsets), np.diff(other.offsets)[new]])
        new_tokens = other.token[np.repeat(new, np.diff(other.offsets))]
        token = np.concatenate([codes[self.text.token], other_codes[new_tokens]])
        ads = pa.concat_arrays(
            [
                self.text.ads.cast(pa.large_string()),
                other.ads.filter(pa.array(new)).cast(pa.large_string()),
            ]
        )
        return TextIndex(AdTokens(ads, vocabulary.strings(), starts_from_sizes(sizes), token))


class ShownAds(NamedTuple):
    """Ads with impressions and clicks; an ad may have any number of rows."""

    ads: pa.Array
    ad: Int32  # [row]
    impressions: Float64  # [row]
    clicks: Float64  # [row]

    @classmethod
    def of(cls, counts: Counts) -> ShownAds:
        """The ads of some counts, with a row for each pair."""
        return cls(counts.ads, counts.pair_ad, counts.impressions, counts.clicks)

    @property
    def click_rate(self) -> float:
        """The click rate of all impressions."""
        impressions = self.impressions.sum()
        return float(self.clicks.sum() / impressions) if impressions else 0.5


class CorpusWords:
    """Every word of a corpus by its code, with its impressions and clicks over all queries."""

    def __init__(self, words: Interner, totals: Float64, overall: float) -> None:
        self.words = words
        self.totals = totals  # [word, 3] impressions, clicks, Σ multiplicity² · impressions
        self.overall = overall  # the click rate of all impressions

    @classmethod
    def count(cls, shown_ads: ShownAds, text: TextIndex | None) -> tuple[CorpusWords, TokenLists]:
        """Count the words of ads that were shown; return them and the tokens of each ad."""
        words = Interner()
        tokens = _list_tokens(words.codes, shown_ads.ads, text, sort_words=True)
        totals = np.zeros((max(1, words.size), 3))
        if tokens.is_single:
            word = tokens.words[shown_ads.ad]
            totals[:, 0] = np.bincount(word, shown_ads.impressions, len(totals))
            totals[:, 1] = np.bincount(word, shown_ads.clicks, len(totals))
            totals[:, 2] = totals[:, 0]
        else:
            arrays: Any = (*_pair_arrays(shown_ads, tokens), totals)
            _add_words(*arrays)
        return cls(words, totals, shown_ads.click_rate), tokens

    def encode(self, ads: pa.Array, text: TextIndex | None) -> TokenLists:
        """The tokens of ads, which may be new; words that were never shown are UNKNOWN."""
        return _list_tokens(self.words.find, ads, text)

    def to_table(self) -> pa.Table:
        """The words in the order of their codes, and their totals."""
        totals = np.ascontiguousarray(self.totals[: self.words.size].T)
        columns = dict(zip(WORD_TOTALS, totals, strict=True))
        return pa.table({"word": self.words.strings(), **columns})

    @classmethod
    def from_tables(cls, tables: Mapping[str, pa.Table], name: str, overall: float) -> CorpusWords:
        """Rebuild the words from the table that `to_table` returned."""
        words, strings = Interner(), read_strings(tables, name, "word")
        words.codes(strings)
        if words.size < len(strings):
            raise table_error(name, "a word is duplicated")
        columns = [read_numbers(tables, name, each, low=0) for each in WORD_TOTALS]
        totals = np.zeros((max(1, len(strings)), 3))
        totals[: len(strings)] = np.stack(columns, axis=1)
        return cls(words, totals, overall)


class WordRates:
    """Click rates of words, and the attractiveness of ads that follows from them.

    There are rates of the corpus, and of each query with at least `min_query_sessions` sessions.
    The prior has a `strength` in impressions. If the counts are only a part of the log, pass the
    `corpus` of the whole log.
    """

    def __init__(
        self,
        counts: Counts,
        text: TextIndex | None,
        *,
        min_query_sessions: float,
        strength: float = 0.0,
        corpus: CorpusWords | None = None,
    ) -> None:
        self._counts = counts
        self._strength = float(strength)
        self._model: TextModel | None = None
        if corpus is None:
            self.corpus, self._ads = CorpusWords.count(ShownAds.of(counts), text)
        else:
            self.corpus = corpus
            self._ads = self.encode_ads(counts.ads, text)  # [ad of the counts]
        queries = np.arange(len(counts.queries) + 1)
        self._pair_starts = np.searchsorted(counts.pair_query, queries).astype(np.int64)
        self._frequent = counts.volumes >= min_query_sessions  # [query]

    @property
    def overall(self) -> float:
        """The click rate of all impressions."""
        return self.corpus.overall

    @property
    def vocabulary_size(self) -> int:
        """The number of words."""
        return int(self.corpus.words.size)

    def with_model(self, model: TextModel) -> Self:
        """The same vocabulary, with the attractiveness of a text model."""
        other = copy.copy(self)
        other._model = model
        return other

    def pair_rates(self) -> Float64:
        """Attractiveness, posterior mean and deviation of every pair of the counts [pair, 3]."""
        counts, frequent = self._counts, self.is_frequent(self._counts.pair_query)
        if self._model is None and self._ads.is_single:
            rows = np.where(frequent, np.arange(len(frequent)), UNKNOWN)
            return self._rates_of_single(self._ads.words[counts.pair_ad], rows)
        every_ad = np.arange(len(counts.ads), dtype=np.int32)
        no_query = np.full(len(every_ad), UNKNOWN, np.int32)
        # Except for frequent queries, it depends on the ad alone.
        out = self.rates(no_query, every_ad, self._ads)[counts.pair_ad]
        out[frequent] = self.rates(counts.pair_query[frequent], counts.pair_ad[frequent], self._ads)
        return out

    def rates(self, query: Int32, ad: Int32, ads: TokenLists) -> Float64:
        """The same [pair, 3] for pairs of a query code (−1: unknown) and a row of `ads`.

        A text model has no deviation: the three values are the rate, the rate and 0.
        """
        if self._model is not None:
            rate = self._model.rate(ads)[ad]
            return np.stack([rate, rate, np.zeros(len(rate))], axis=1)
        if ads.is_single and self._ads.is_single:
            return self._rates_of_single(ads.words[ad], self._find_rows(query, ads.words[ad]))
        out = np.empty((len(query), 3))
        order = np.argsort(query, kind="stable")
        pairs = _freeze(order, query, ad, ads.starts, ads.words, ads.multiplicity)
        pair_arrays = _pair_arrays(ShownAds.of(self._counts), self._ads)
        count_arrays = (self._frequent, self._pair_starts, *pair_arrays, self.corpus.totals)
        arguments: Any = (*pairs, *count_arrays, self.overall, self._strength, out)
        _attractiveness(*arguments)
        return out

    def _rates_of_single(self, word: Int32, row: Int64) -> Float64:
        """`rates` of ads with one word each, in NumPy: the kernels take two seconds to compile.

        `row` is the pair of the counts whose rate is used, or UNKNOWN for the rate of the corpus.
        """
        impressions, clicks, squares = np.where(word >= 0, self.corpus.totals[word].T, 0.0)
        frequent = np.flatnonzero((row >= 0) & (impressions > 0))
        frequent = frequent[self._counts.impressions[row[frequent]] > 0]
        impressions[frequent] = squares[frequent] = self._counts.impressions[row[frequent]]
        clicks[frequent] = self._counts.clicks[row[frequent]]
        rate, trials = np.full(len(word), self.overall), np.zeros(len(word))
        is_known = impressions > 0
        np.divide(clicks, impressions, out=rate, where=is_known)
        np.divide(impressions * impressions, squares, out=trials, where=is_known)
        rate_without_clicks = self.overall / (trials + 1.0)
        never_clicked = (rate == 0.0) & (self._strength < 1.0)  # as in `_mean_rate`
        if self._strength > 0.0:
            rate = (rate * trials + self._strength * self.overall) / (trials + self._strength)
            trials += self._strength
        mean = (rate * trials + 0.5) / (trials + 1.0)
        deviation = np.sqrt(mean * (1.0 - mean) / (trials + 2.0))
        return np.stack(
            [np.where(never_clicked, rate_without_clicks, rate), mean, deviation], axis=1
        )

    def _find_rows(self, query: Int32, word: Int32) -> Int64:
        """The pair of the counts of each frequent query and word; UNKNOWN if there is none."""
        result = np.full(len(query), UNKNOWN, np.int64)
        frequent = np.flatnonzero(self.is_frequent(query))
        if not len(frequent):
            return result
        rows, _ = run_indices(self._pair_starts, np.unique(query[frequent]).astype(np.int64))
        key = _join(self._counts.pair_query[rows], self._ads.words[self._counts.pair_ad[rows]])
        if not len(key):
            return result
        order = np.argsort(key, kind="stable")
        frequent_key = _join(query[frequent], word[frequent])
        place = order[np.searchsorted(key, frequent_key, sorter=order).clip(max=len(key) - 1)]
        result[frequent] = np.where(key[place] == frequent_key, rows[place], UNKNOWN)
        return result

    def is_frequent(self, query: Int32) -> Bool:
        """Whether each query has its own word rates."""
        if not len(self._frequent):
            return np.zeros(len(query), bool)
        return np.asarray((query >= 0) & self._frequent[query])

    def encode_ads(self, ads: pa.Array, text: TextIndex | None) -> TokenLists:
        """The tokens of ads, which may be new; words that were never shown are UNKNOWN."""
        return self.corpus.encode(ads, text)


def _list_tokens(
    codes: Callable[[pa.Array], Int32],
    ads: pa.Array,
    text: TextIndex | None,
    *,
    sort_words: bool = False,
) -> TokenLists:
    """The words of each ad; an ad without text has its id as its single token."""
    if text is None:
        starts = np.arange(len(ads) + 1, dtype=np.int64)
        return TokenLists(starts, codes(_ids_as_tokens(ads)), np.ones(len(ads), np.int32))
    if sort_words:
        # In alphabetical order, so that sums over words do not depend on the order of the text.
        codes(text.text.vocabulary.take(pc.array_sort_indices(text.text.vocabulary)))
    rows = text.rows(ads)
    id_codes = codes(_ids_as_tokens(ads.filter(pa.array(rows == UNKNOWN))))
    return _list_distinct(rows, text.text, codes(text.text.vocabulary), id_codes)


def _pair_arrays(shown_ads: ShownAds, tokens: TokenLists) -> Any:
    """The arguments of `_add_words`, read-only, so that kernels compile once."""
    return _freeze(*shown_ads[1:], tokens.starts, tokens.words, tokens.multiplicity)


def _join(query: Int32, word: Int32) -> Int64:
    """A query and a word as one number; an unknown word gives a number that no pair has."""
    return np.asarray((query.astype(np.int64) << 32) | (word.astype(np.int64) & 0xFFFFFFFF))


def _freeze(*arrays: Any) -> Any:
    return tuple(map(read_only, arrays))


def _ids_as_tokens(ads: pa.Array) -> pa.Array:
    """Ids as tokens, marked by a character that no word has, so that they differ from all words."""
    mark, nothing = pa.scalar("\0", pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(mark, ads.cast(pa.large_string()), nothing)


def _list_distinct(rows: Int32, text: AdTokens, codes: Int32, id_codes: Int32) -> TokenLists:
    """The distinct tokens of these rows; an ad without text has its id as its only token."""
    has_text = rows != UNKNOWN
    token, starts = run_indices(text.offsets, rows[has_text].astype(np.int64))
    ads = np.flatnonzero(has_text)[run_of_elements(starts)]
    ad = np.concatenate([ads, np.flatnonzero(~has_text)])
    word = np.concatenate([codes[text.token[token]], id_codes])
    width = int(word.max(initial=0)) + 2
    # In NumPy: a sort in a kernel takes two seconds to compile.
    keys, multiplicity = np.unique(ad * width + (word + 1), return_counts=True)
    sizes = np.bincount(keys // width, minlength=len(rows))
    words = (keys % width - 1).astype(np.int32)
    return TokenLists(starts_from_sizes(sizes), words, multiplicity.astype(np.int32))


@kernel
def _add_words(
    ads: Int32,
    impressions: Float64,
    clicks: Float64,
    starts: Int64,
    words: Int32,
    multiplicity: Int32,
    rates: Float64,
) -> None:
    """Add each pair's impressions and clicks to the words of its ad."""
    for p in range(len(ads)):
        for t in range(starts[ads[p]], starts[ads[p] + 1]):
            rates[words[t], 0] += multiplicity[t] * impressions[p]
            rates[words[t], 1] += multiplicity[t] * clicks[p]
            rates[words[t], 2] += multiplicity[t] * multiplicity[t] * impressions[p]


@subkernel
def _shrink(
    rate: float, trials: float, overall: float, strength: float
) -> tuple[float, float, float]:
    """The rate of a word with its prior, and mean and deviation of its Jeffreys posterior."""
    if strength > 0.0:
        rate = (rate * trials + strength * overall) / (trials + strength)
        trials += strength
    mean = (rate * trials + 0.5) / (trials + 1.0)
    return rate, mean, np.sqrt(mean * (1.0 - mean) / (trials + 2.0))


@subkernel
def _mean_rate(
    start: int,
    end: int,
    words: Int32,
    multiplicity: Int32,
    query_words: Float64,
    corpus: Float64,
    overall: float,
    strength: float,
    out: Float64,
) -> None:
    """Attractiveness of an ad, and the mean and deviation of its posterior.

    A word shown in n independent impressions (N² / Σ multiplicity² · impressions) has the Jeffreys
    posterior of n trials. Words of an ad are shown in the same impressions, so their errors are
    treated as fully dependent: the deviation of the mean is the mean of the deviations, an upper
    bound.
    """
    if start == end:  # as for one word that was never shown
        out[0], out[1], out[2] = _shrink(overall, 0.0, overall, strength)
        return
    out[:] = 0.0
    length = 0
    rate_sum = rate_sum_without_clicks = 0.0
    for t in range(start, end):
        w = words[t]
        rate, trials = overall, 0.0
        if w >= 0 and corpus[w, 0] > 0:
            source = query_words if query_words.shape[0] > 0 and query_words[w, 0] > 0 else corpus
            rate, trials = source[w, 1] / source[w, 0], source[w, 0] * source[w, 0] / source[w, 2]
        value, mean, deviation = _shrink(rate, trials, overall, strength)
        length += multiplicity[t]
        out[0] += multiplicity[t] * value
        out[1] += multiplicity[t] * mean
        out[2] += multiplicity[t] * deviation
        rate_sum += multiplicity[t] * rate
        rate_sum_without_clicks += multiplicity[t] * overall / (trials + 1.0)
    if rate_sum == 0.0 and strength < 1.0:
        # No word of the ad was ever clicked. A prior of one impression keeps the rate above 0.
        out[0] = rate_sum_without_clicks
    out /= length


@kernel
def _attractiveness(
    order: Int64, query: Int32, ad: Int32, starts: Int64, words: Int32, multiplicity: Int32,
    frequent: Bool, pair_starts: Int64, pair_ad: Int32, impressions: Float64, clicks: Float64,
    shown_starts: Int64, shown_words: Int32, shown_multiplicity: Int32,
    corpus: Float64, overall: float, strength: float, out: Float64,
) -> None:  # fmt: skip
    """Attractiveness of each pair, in order of queries: words are counted once per query."""
    rates = np.zeros((corpus.shape[0], 3))
    no_words = np.zeros((0, 3))
    current = -1
    for i in order:
        q = query[i]
        if q != current and current >= 0 and frequent[current]:
            a, b = pair_starts[current], pair_starts[current + 1]
            _clear_words(pair_ad[a:b], shown_starts, shown_words, rates)
        if q != current and q >= 0 and frequent[q]:
            a, b = pair_starts[q], pair_starts[q + 1]
            _add_words(
                pair_ad[a:b], impressions[a:b], clicks[a:b],
                shown_starts, shown_words, shown_multiplicity, rates,
            )  # fmt: skip
        current = q
        query_words = rates if q >= 0 and frequent[q] else no_words
        start, end = starts[ad[i]], starts[ad[i] + 1]
        _mean_rate(start, end, words, multiplicity, query_words, corpus, overall, strength, out[i])


@subkernel
def _clear_words(ads: Int32, starts: Int64, words: Int32, rates: Float64) -> None:
    for a in ads:
        for t in range(starts[a], starts[a + 1]):
            rates[words[t], :] = 0.0
