"""Attractiveness from words: θ(q, d) = the mean over the ad's tokens of the word's click rate N̂_w / N_w.

A frequent query has word rates of its own; any other query uses those of the whole corpus. With a prior of strength s a rate over n impressions is
(n · rate + s · overall) / (n + s), overall being the click rate of the corpus. Words come from (query, ad) totals joined with the ad's tokens, one
query at a time, so no table of (query, word) is ever built.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import Float64, Int32, Int64
from reclick.data.counts import Counts
from reclick.data.string_index import Interner
from reclick.runtime.jit import kernel
from reclick.text.tokens import AdTokens

UNKNOWN = -1
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TokenLists:
    """The distinct tokens of some ads, laid end to end, and how often each stands in its ad."""

    starts: Int64  # [ad + 1]
    words: Int32  # [entry] codes of words, UNKNOWN for a word never met
    many: Int32  # [entry]

    def __len__(self) -> int:
        return len(self.starts) - 1


class TextIndex:
    """The tokens of ads, found by the ad's id."""

    def __init__(self, text: AdTokens) -> None:
        self.text = text
        self._index = Interner()
        self._index.codes(text.ads)

    def rows(self, ads: pa.Array) -> Int32:
        """The row of each ad, UNKNOWN where there is no text of it."""
        return self._index.find(ads)

    def with_text(self, other: AdTokens) -> TextIndex:
        """These ads, and those of `other` that are not among them."""
        new = self.rows(other.ads) == UNKNOWN
        if not new.any():
            return self
        vocabulary = Interner()
        own, others = vocabulary.codes(self.text.vocabulary), vocabulary.codes(other.vocabulary)
        sizes = np.concatenate([np.diff(self.text.offsets), np.diff(other.offsets)[new]])
        token = np.concatenate(
            [own[self.text.token], others[other.token[np.repeat(new, np.diff(other.offsets))]]]
        )
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        ads = pa.concat_arrays(
            [
                self.text.ads.cast(pa.large_string()),
                other.ads.filter(pa.array(new)).cast(pa.large_string()),
            ]
        )
        return TextIndex(AdTokens(ads, vocabulary.strings(), offsets, token))


class WordRates:
    """Click rates of words, over the corpus and for each frequent query, with a prior of `strength` impressions, and the attractiveness they give."""

    def __init__(
        self, counts: Counts, text: TextIndex | None, *, frequent: float, strength: float = 0.0
    ) -> None:
        self._counts = counts
        self._strength = float(strength)
        self._vocabulary = Interner()
        self._ads = self._token_lists(counts.ads, text, known_only=False)  # [ad of the counts]
        self._pair_starts = np.searchsorted(
            counts.pair_query, np.arange(len(counts.queries) + 1)
        ).astype(np.int64)
        self._frequent = counts.volumes >= frequent  # [query]
        self._corpus = np.zeros(
            (max(1, self._vocabulary.size), 3)
        )  # [word] shown, clicked, Σ multiplicity² · impressions
        _add_words(
            counts.pair_ad,
            counts.impressions,
            counts.clicks,
            self._ads.starts,
            self._ads.words,
            self._ads.many,
            self._corpus,
        )
        shown = counts.impressions.sum()
        self.overall = float(counts.clicks.sum() / shown) if shown else 0.5

    def of_pairs(self) -> Float64:
        """[pair, 3] of every pair counted: attractiveness, its posterior mean and its standard deviation."""
        counts, frequent = self._counts, self.is_frequent(self._counts.pair_query)
        every_ad = np.arange(len(counts.ads), dtype=np.int32)
        out = self.of(np.full(len(every_ad), UNKNOWN, np.int32), every_ad, self._ads)[
            counts.pair_ad
        ]  # but for frequent queries, the ad alone says it
        out[frequent] = self.of(counts.pair_query[frequent], counts.pair_ad[frequent], self._ads)
        return out

    def of(self, query: Int32, ad: Int32, ads: TokenLists) -> Float64:
        """[pair, 3] of any pairs of a query code (−1: unseen) and a row of `ads`."""
        out = np.empty((len(query), 3))
        order = np.argsort(query, kind="stable")
        counts, own = self._counts, self._ads
        _attractiveness(
            order, query, ad, ads.starts, ads.words, ads.many, self._frequent, self._pair_starts,
            counts.pair_ad, counts.impressions, counts.clicks, own.starts, own.words, own.many,
            self._corpus, self.overall, self._strength, out,
        )  # fmt: skip
        return out

    def is_frequent(self, query: Int32) -> Bool:
        """Whether each query code has word rates of its own."""
        return (
            (query >= 0) & self._frequent[query]
            if len(self._frequent)
            else np.zeros(len(query), bool)
        )

    def tokens_of(self, ads: pa.Array, text: TextIndex | None) -> TokenLists:
        """The tokens of ads that may be new; words never shown are UNKNOWN."""
        return self._token_lists(ads, text, known_only=True)

    def _token_lists(
        self, ads: pa.Array, text: TextIndex | None, *, known_only: bool
    ) -> TokenLists:
        """Each ad's words, or its id as its single token where there is no text of it."""
        codes = self._vocabulary.find if known_only else self._vocabulary.codes
        if text is None:
            return TokenLists(
                np.arange(len(ads) + 1, dtype=np.int64),
                codes(_as_tokens(ads)),
                np.ones(len(ads), np.int32),
            )
        if not known_only:  # in alphabetical order, so that sums over words are the same to the last bit whatever order the text came in
            codes(text.text.vocabulary.take(pc.array_sort_indices(text.text.vocabulary)))
        rows = text.rows(ads)
        own = codes(_as_tokens(ads.filter(pa.array(rows == UNKNOWN))))
        return TokenLists(
            *_gather(rows, text.text.offsets, text.text.token, codes(text.text.vocabulary), own)
        )


def _as_tokens(ads: pa.Array) -> pa.Array:
    """Ids as tokens, told apart from words of the same spelling by a character that no word has."""
    mark, nothing = pa.scalar("\0", pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(mark, ads.cast(pa.large_string()), nothing)


@kernel
def _gather(
    rows: Int32, starts: Int64, tokens: Int32, codes: Int32, own: Int32
) -> tuple[Int64, Int32, Int32]:
    """The distinct tokens of these rows, in the model's codes; an ad without a row has its own code as its one token."""
    room = 0
    for row in rows:
        room += 1 if row < 0 else starts[row + 1] - starts[row]
    new_starts = np.zeros(len(rows) + 1, np.int64)
    words = np.empty(room, np.int32)
    many = np.empty(room, np.int32)
    size = 0
    alone = 0
    for i in range(len(rows)):
        if rows[i] < 0:
            words[size], many[size] = own[alone], 1
            alone += 1
            size += 1
        else:
            listed = np.sort(codes[tokens[starts[rows[i]] : starts[rows[i] + 1]]])
            for t in range(len(listed)):
                if t > 0 and listed[t] == listed[t - 1]:
                    many[size - 1] += 1
                else:
                    words[size], many[size] = listed[t], 1
                    size += 1
        new_starts[i + 1] = size
    return new_starts, words[:size].copy(), many[:size].copy()


@kernel
def _add_words(
    ads: Int32,
    impressions: Float64,
    clicks: Float64,
    starts: Int64,
    words: Int32,
    many: Int32,
    rates: Float64,
) -> None:
    """Add each pair's impressions and clicks to the words of its ad."""
    for p in range(len(ads)):
        for t in range(starts[ads[p]], starts[ads[p] + 1]):
            rates[words[t], 0] += many[t] * impressions[p]
            rates[words[t], 1] += many[t] * clicks[p]
            rates[words[t], 2] += many[t] * many[t] * impressions[p]


@kernel
def _shrunk(
    rate: float, trials: float, overall: float, strength: float
) -> tuple[float, float, float]:
    """The rate of a word after the impressions of its prior, and the mean and deviation of the Jeffreys posterior of all these trials."""
    if strength > 0.0:
        rate = (rate * trials + strength * overall) / (trials + strength)
        trials += strength
    mean = (rate * trials + 0.5) / (trials + 1.0)
    return rate, mean, np.sqrt(mean * (1.0 - mean) / (trials + 2.0))


@kernel
def _mean_rate(
    start: int,
    end: int,
    words: Int32,
    many: Int32,
    own: Float64,
    corpus: Float64,
    overall: float,
    strength: float,
    out: Float64,
) -> None:
    """Attractiveness of an ad, and the mean and deviation of its posterior.

    A word shown in n independent impressions (N² / Σ multiplicity² · impressions) has the Jeffreys posterior of n trials. Words of an ad are shown
    in the same impressions, so their errors are taken as fully dependent: the deviation of the mean is the mean of the deviations, never less than
    the truth.
    """
    if start == end:  # nothing is known of it but the overall rate: as for one word never met
        out[0], out[1], out[2] = _shrunk(overall, 0.0, overall, strength)
        return
    out[:] = 0.0
    length = 0
    clicked = unclicked = 0.0
    for t in range(start, end):
        w = words[t]
        rate, trials = overall, 0.0
        if w >= 0 and corpus[w, 0] > 0:
            source = own if own.shape[0] > 0 and own[w, 0] > 0 else corpus
            rate, trials = source[w, 1] / source[w, 0], source[w, 0] * source[w, 0] / source[w, 2]
        value, mean, deviation = _shrunk(rate, trials, overall, strength)
        length += many[t]
        out[0] += many[t] * value
        out[1] += many[t] * mean
        out[2] += many[t] * deviation
        clicked += many[t] * rate
        unclicked += many[t] * overall / (trials + 1.0)
    if (
        clicked == 0.0 and strength < 1.0
    ):  # no word of it was ever clicked: as with a prior of one impression, for nothing is impossible
        out[0] = unclicked
    out /= length


@kernel
def _attractiveness(
    order: Int64, query: Int32, ad: Int32, starts: Int64, words: Int32, many: Int32, frequent: Bool, pair_starts: Int64,
    pair_ad: Int32, impressions: Float64, clicks: Float64, own_starts: Int64, own_words: Int32, own_many: Int32,
    corpus: Float64, overall: float, strength: float, out: Float64,
) -> None:  # fmt: skip
    """Attractiveness of each pair, queries in order: a frequent query's words are added up once, used, and wiped."""
    rates = np.zeros((corpus.shape[0], 3))
    none = np.zeros((0, 3))
    current = -1
    for i in order:
        q = query[i]
        if q != current and current >= 0 and frequent[current]:
            _wipe(
                pair_ad[pair_starts[current] : pair_starts[current + 1]],
                own_starts,
                own_words,
                rates,
            )
        if q != current and q >= 0 and frequent[q]:
            a, b = pair_starts[q], pair_starts[q + 1]
            _add_words(
                pair_ad[a:b], impressions[a:b], clicks[a:b], own_starts, own_words, own_many, rates
            )
        current = q
        own = rates if q >= 0 and frequent[q] else none
        _mean_rate(
            starts[ad[i]], starts[ad[i] + 1], words, many, own, corpus, overall, strength, out[i]
        )


@kernel
def _wipe(ads: Int32, starts: Int64, words: Int32, rates: Float64) -> None:
    for a in ads:
        for t in range(starts[a], starts[a + 1]):
            rates[words[t], :] = 0.0
