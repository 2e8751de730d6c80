"""Pairs of a model with the words of their ads: values for pairs that the model has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.pair_index import ImpressionLookup, PairIndex, PairLookup
from reclick.data.ragged import Bool, Float64, Int32
from reclick.data.string_index import Interner
from reclick.errors import LogError, NotFittedError
from reclick.fitting.attractiveness_prior import AdPrior, PairPrior
from reclick.logs import SessionLog, as_pairs, read_ads
from reclick.logs.files.source import abbreviate
from reclick.text.tokens import AdTokens, tokenise
from reclick.text.word_rates import CorpusWords, TextIndex, TokenLists, WordRates


@dataclass(frozen=True)
class Corpus:
    """All ads and words of a model, for a pair index that has only some of the pairs."""

    ad_strings: pa.Array  # every ad
    text: TextIndex | None
    count_words: Callable[[], CorpusWords]
    ad_prior: AdPrior | None  # with every ad, and without pairs

    @cached_property
    def ads(self) -> Interner:
        """Every ad by its code, indexed when it is first needed."""
        index = Interner()
        index.codes(self.ad_strings)
        return index

    @cached_property
    def words(self) -> CorpusWords:
        """Every word, made when it is first needed."""
        return self.count_words()


class TextPairIndex(PairIndex):
    """A pair index with the click rates of words, for pairs that are not in it."""

    def __init__(
        self,
        counts: Counts,
        text: AdTokens | None,
        *,
        min_query_sessions: float,
        word_strength: float = 0.0,
        prior_mean: float = 0.5,
        corpus: Corpus | None = None,
    ) -> None:
        """Index the pairs of some counts.

        The prior of word rates has the strength `word_strength`, in impressions. An unknown pair
        gets the mean of `ad_prior`, or `prior_mean` if there is none. With a `corpus`, the counts
        have only some of its queries, and its text replaces `text`.
        """
        super().__init__(counts)
        self.ad_prior: AdPrior | None = None
        self.prior_mean = prior_mean
        self._corpus = corpus
        if corpus is not None:
            self._text_index = corpus.text
        else:
            self._text_index = TextIndex(text) if text is not None else None
        self._word_settings = {
            "min_query_sessions": min_query_sessions,
            "strength": word_strength,
        }

    @property
    def text(self) -> AdTokens | None:
        """The text of the ads, if it is known."""
        return None if self._text_index is None else self._text_index.text

    @cached_property
    def words(self) -> WordRates:
        """The click rates of words, counted when they are first needed."""
        corpus = None if self._corpus is None else self._corpus.words
        return WordRates(self.counts, self._text_index, corpus=corpus, **self._word_settings)

    def find_known(self, batch: SessionBatch) -> tuple[Bool, Bool]:
        """Whether each session's query and each impression's ad are among those counted."""
        query, ad = super().find_known(batch)
        return query, ad if self._corpus is None else self._find_ads(batch.ads)[batch.ad] >= 0

    def _find_ads(self, ads: pa.Array) -> Int32:
        return super()._find_ads(ads) if self._corpus is None else self._corpus.ads.find(ads)

    def lookup_or_prior(
        self,
        values: Float64,
        batch: SessionBatch,
        lookup: ImpressionLookup,
        text: TextIndex | None,
    ) -> Float64:
        """Values [pair] by impression; where the pair is unknown, the prior mean of its ad."""
        out = self.take_or(values, lookup.row, self.prior_mean)
        unknown = np.flatnonzero(lookup.row < 0)
        if self.ad_prior is not None and len(unknown):
            ads, code = np.unique(batch.ad[unknown], return_inverse=True)
            prior = self._unseen(batch.ads.take(pa.array(ads)), text).to_beta()
            out[unknown] = prior.mean[code]
        return out

    def lookup_or_words(
        self,
        values: Float64,
        batch: SessionBatch,
        lookup: ImpressionLookup,
        text: TextIndex | None,
    ) -> Float64:
        """Values [pair] by impression; where the pair is unknown, the rate of the ad's words."""
        is_known = lookup.row >= 0
        if is_known.all():
            return values[lookup.row]
        out = np.empty(len(lookup.row))
        out[is_known] = values[lookup.row[is_known]]
        query = np.repeat(lookup.query, np.diff(batch.page))
        out[~is_known] = self._from_words(query[~is_known], batch.ad[~is_known], batch.ads, text)
        return out

    def lookup(self, pairs: object, text: object) -> PairLookup:
        """The pairs of a table with columns query and ad, or all pairs; with their word rates."""
        counts = self.counts
        queries, ads = (
            (counts.queries.take(counts.pair_query), counts.ads.take(counts.pair_ad))
            if pairs is None
            else as_pairs(pairs)
        )
        query, row = self.find_pairs(queries, ads)
        distinct = ads.dictionary_encode()
        index = text if isinstance(text, TextIndex) else self.text_with(_read_text(text))
        tokens = self.words.encode_ads(distinct.dictionary, index)
        words = self.words.rates(query, distinct.indices.to_numpy().astype(np.int32), tokens)
        return PairLookup(queries, ads, row, words, index)

    def pairs_of_query(self, query: str) -> pa.Table:
        """All pairs of the counts with this query."""
        code = int(self._queries.find(pa.array([str(query)], pa.large_string()))[0])
        if code < 0:
            raise LogError(
                f"The model has not seen the query {abbreviate(query)}. For a query that is new to "
                "it, give the page: relevance((query, ads))."
            )
        first, last = np.searchsorted(self.counts.pair_query, [code, code + 1])
        ads = self.counts.ads.take(pa.array(self.counts.pair_ad[first:last]))
        return pa.table({"query": pa.repeat(self.counts.queries[code], len(ads)), "ad": ads})

    def unseen_means(self, batch: SessionBatch, text: TextIndex | None) -> Float64:
        """The prior mean of each impression's pair, as if the pair were unknown [impression]."""
        return self._unseen(batch.ads, text).mean[batch.ad]

    def unseen_prior(self, pairs: PairLookup) -> PairPrior:
        """The prior of some pairs as if they were unknown [pair]."""
        distinct = pairs.ads.dictionary_encode()
        prior, code = self._unseen(distinct.dictionary, pairs.text), distinct.indices.to_numpy()
        return PairPrior(prior.mean[code], prior.strength[code])

    def ad_tokens(self) -> TokenLists | None:
        """The tokens of the ads of the counts; None without any text."""
        if self._text_index is None:
            return None
        return self.words.encode_ads(self.counts.ads, self._text_index)

    def _unseen(self, ads: pa.Array, text: TextIndex | None) -> PairPrior:
        """The prior of ads with a query that they were never seen with [ad]."""
        if self.ad_prior is None:
            raise NotFittedError("There is no prior of attractiveness yet. Call fit first.")
        tokens = self.words.encode_ads(ads, text) if self.ad_prior.model is not None else None
        return self.ad_prior.unseen(self._find_ads(ads), tokens)

    def text_with(self, ads: pa.Table | None) -> TextIndex | None:
        """The text of the model's ads, with that of a table for ads that are new to the model."""
        if ads is None:
            return self._text_index
        unknown = pc.invert(self.has_ads(ads["ad"].combine_chunks()))
        new = tokenise(ads.filter(unknown))
        return TextIndex(new) if self._text_index is None else self._text_index.with_text(new)

    def _from_words(
        self, query: Int32, ad: Int32, ads: pa.Array, text: TextIndex | None
    ) -> Float64:
        """Attractiveness of unknown pairs from the words of the ad, computed per distinct pair."""
        word_query = np.where(self.words.is_frequent(query), query, -1).astype(np.int64)
        distinct, inverse = np.unique((word_query << 32) | ad, return_inverse=True)
        code, rows = np.unique((distinct & 0xFFFFFFFF).astype(np.int32), return_inverse=True)
        tokens = self.words.encode_ads(ads.take(pa.array(code)), text)
        queries = (distinct >> 32).astype(np.int32)
        rates = self.words.rates(queries, rows.astype(np.int32), tokens)
        return np.asarray(rates[:, 0][inverse])


def _read_text(text: object) -> pa.Table | None:
    return None if text is None else read_ads(text)


def input_text(sessions: object, ads: object) -> AdTokens | None:
    """The tokens of an ads table, or of the one that the log was read with."""
    table = (
        read_ads(ads)
        if ads is not None
        else sessions.ads
        if isinstance(sessions, SessionLog)
        else None
    )
    return None if table is None else tokenise(table)


def merge_text(old: AdTokens | None, new: AdTokens | None) -> AdTokens | None:
    """Merge the texts of ads; an ad that both have keeps its newer text."""
    if old is None or new is None:
        return new or old
    return TextIndex(new).with_text(old).text


def counts_to_tables(counts: Counts, text: AdTokens | None) -> dict[str, pa.Table]:
    """The counts and the text as tables, for `counts_from_tables`."""
    tables = {f"counts_{name}": table for name, table in counts.to_tables().items()}
    return (
        tables
        if text is None
        else tables | {f"text_{name}": table for name, table in text.to_tables().items()}
    )


def counts_from_tables(tables: dict[str, pa.Table]) -> tuple[Counts, AdTokens | None]:
    """The counts and the text among a model's tables."""
    counts = {
        name.removeprefix("counts_"): table
        for name, table in tables.items()
        if name.startswith("counts_")
    }
    return Counts.from_tables(counts), text_from_tables(tables)


def text_from_tables(tables: dict[str, pa.Table]) -> AdTokens | None:
    """The text among a model's tables, if there is any."""
    text = {
        name.removeprefix("text_"): table
        for name, table in tables.items()
        if name.startswith("text_")
    }
    return AdTokens.from_tables(text) if text else None
