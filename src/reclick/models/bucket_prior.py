"""The prior of pairs by their ads for pairs in buckets: the driver only gets sums by ad."""

from __future__ import annotations

from functools import cached_property, partial
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from reclick.data.counts import Counts
from reclick.data.ragged import Float64, Int32
from reclick.engines.bucketed_log import BucketedLog, BucketTasks
from reclick.engines.store import Store
from reclick.fitting.attractiveness_prior import (
    AdPrior,
    AdRecord,
    AttractivenessPrior,
    Choices,
    PairPrior,
    Strengths,
    draw_ads,
)

NO_PAIRS = PairPrior(np.zeros(0), np.zeros(0))


class RecordTotals(NamedTuple):
    """Totals of the record of a bucket, which a task returns to the driver."""

    clicks: float
    exposure: float
    n_shown: int
    max_attractiveness: float  # the highest that words may predict


class StoredRecord(NamedTuple):
    """The record of the pairs of a bucket, with its ad numbers, and the queries of the pairs."""

    record: AdRecord
    queries: pa.Array
    pair_query: Int32


def store_record(store: Store, bucket: int, record: AdRecord, counts: Counts) -> None:
    """Write the record of a bucket to a file. Called in a task."""
    stored = StoredRecord(record, counts.queries, counts.pair_query)
    store.put(f"record-{bucket}", [stored])


class CandidatePrior(NamedTuple):
    """What a prior of pairs is computed from."""

    pairs: PairPrior  # of no pair; identifies the candidate that was selected
    by_ad: tuple[Float64, Float64] | None
    word_rate: Float64


class BucketedRecord:
    """`PairRecords` of pairs in buckets. The driver gets their sums by ad, and a sample."""

    def __init__(self, log: BucketedLog, tasks: BucketTasks, n_ads: int) -> None:
        self._log, self._tasks, self.n_ads = log, tasks, n_ads
        by_bucket = tasks.each(_total, "")
        totals = [by_bucket[bucket] for bucket in sorted(by_bucket)]
        self._clicks, self._exposure = (
            sum(total.clicks for total in totals),
            sum(total.exposure for total in totals),
        )
        self.n_shown = sum(total.n_shown for total in totals)
        self.max_attractiveness = totals[0].max_attractiveness
        self._candidates: list[CandidatePrior] = []

    @property
    def rate(self) -> float:
        """Clicks per exposure, over all pairs."""
        return self._clicks / max(self._exposure, 1e-12)

    @property
    def has_clicks(self) -> bool:
        """Whether any pair was clicked."""
        return self._clicks > 0

    @cached_property
    def _by_ad(self) -> list[Float64]:
        """Clicks, exposure and the number of pairs that were shown [ad]."""
        self._tasks.each(_sum_by_ad, "ads summed")
        return self._log.add_by_ad("by-ad", self.n_ads, 3)

    def count_ads(self) -> tuple[int, int]:
        """The number of ads that were shown for more than one query, and of those shown at all."""
        pairs = self._by_ad[2]
        return int(np.sum(pairs > 1)), int(np.sum(pairs > 0))

    def by_ad(self) -> tuple[Float64, Float64]:
        """Clicks and exposure of each ad."""
        return self._by_ad[0], self._by_ad[1]

    @cached_property
    def _sample(self) -> AdRecord:
        by_bucket = self._tasks.each(partial(_draw, self._log, self.n_shown), "ads drawn")
        table = pa.concat_tables([by_bucket[bucket] for bucket in sorted(by_bucket)])
        table = table.sort_by([("query", "ascending"), ("ad", "ascending")])
        values = {name: table[name].to_numpy() for name in table.column_names if name != "query"}
        clicks, exposure, ad = (values.pop(name) for name in ("clicks", "exposure", "ad"))
        return AdRecord(clicks, exposure, ad, self.n_ads, Choices(**values) if values else None)

    def sample(self) -> AdRecord:
        """The pairs of a sample of ads, in the same order as when one process has all pairs."""
        return self._sample

    def discount_by_ad(self, word_rate: Float64, strengths: Strengths) -> tuple[Float64, Float64]:
        """Clicks and exposure of each ad; a pair counts at most with its strength."""
        for bucket in self._log.sizes:
            rates = word_rate[self._log.ad_numbers(bucket)]
            self._log.store.put(f"word-rate-{bucket}", [rates])
        self._tasks.each(partial(_discount, strengths), "ads summed")
        clicks, exposure = self._log.add_by_ad("discounted", self.n_ads, 2)
        return clicks, exposure

    def find_priors(
        self, by_ad: tuple[Float64, Float64] | None, word_rate: Float64, strengths: Strengths
    ) -> PairPrior:
        """Return an empty prior: each bucket computes its own from what `store_priors` writes."""
        empty = PairPrior(np.zeros(0), np.zeros(0))
        self._candidates.append(CandidatePrior(empty, by_ad, word_rate))
        return empty

    def store_priors(self, prior: AdPrior) -> str:
        """Write what each bucket computes the prior of its pairs from; return the files' name."""
        name, common = f"prior-{uuid4().hex}", prior.prior
        _, by_ad, word_rate = next(
            candidate for candidate in self._candidates if candidate.pairs is common.pairs
        )
        bare = AdPrior(
            AttractivenessPrior(common.strengths, NO_PAIRS, NO_PAIRS, common.evidence),
            prior.model,
            prior.overall,
            prior.sources,
            prior.max_attractiveness,
        )
        for bucket in self._log.sizes:
            ads = self._log.ad_numbers(bucket)
            sums = None if by_ad is None else (by_ad[0][ads], by_ad[1][ads])
            ad_prior = PairPrior(common.ads.mean[ads], common.ads.strength[ads])
            bucket_prior = BucketPrior(bare, sums, word_rate[ads], ad_prior)
            self._log.store.put(f"{name}-{bucket}", [bucket_prior])
        return name


class BucketPrior(NamedTuple):
    """What the prior of the pairs of a bucket is computed from, for the ads of the bucket."""

    prior: AdPrior  # of no pair and no ad
    by_ad: tuple[Float64, Float64] | None  # clicks and exposure [ad]
    word_rate: Float64  # [ad]
    ad_prior: PairPrior  # [ad]

    def to_ad_prior(self, stored: StoredRecord) -> AdPrior:
        """The prior of the pairs of the bucket."""
        common = self.prior.prior
        pairs = stored.record.find_priors(self.by_ad, self.word_rate, common.strengths)
        prior = AttractivenessPrior(common.strengths, pairs, self.ad_prior, common.evidence)
        bare = self.prior
        return AdPrior(prior, bare.model, bare.overall, bare.sources, bare.max_attractiveness)


# ---- in the tasks


def _load(store: Store, bucket: int) -> StoredRecord:
    stored: StoredRecord = store.keep(f"record-{bucket}")
    return stored


def _total(store: Store, bucket: int) -> RecordTotals:
    record = _load(store, bucket).record
    sums = float(record.clicks.sum()), float(record.exposure.sum())
    return RecordTotals(*sums, record.n_shown, record.max_attractiveness)


def _sum_by_ad(store: Store, bucket: int) -> None:
    record = _load(store, bucket).record
    n_pairs = np.bincount(record.ad, record.exposure > 0, record.n_ads)
    store.put(f"by-ad-{bucket}", [(*record.by_ad(), n_pairs)])


def _draw(log: BucketedLog, n_shown: int, store: Store, bucket: int) -> pa.Table:
    """Draw ads; return their pairs with impressions, with queries and the log's ad numbers."""
    record, queries, pair_query = _load(store, bucket)
    numbers = log.ad_numbers(bucket)
    in_sample = draw_ads(numbers, n_shown)[record.ad]
    rows = np.flatnonzero(in_sample & (record.exposure > 0))
    choices = {} if record.choices is None else record.choices.take(rows)._asdict()
    return pa.table(
        {
            "query": queries.take(pa.array(pair_query[rows])),
            "ad": numbers[record.ad[rows]],
            "clicks": record.clicks[rows],
            "exposure": record.exposure[rows],
            **choices,
        }
    )


def _discount(strengths: Strengths, store: Store, bucket: int) -> None:
    word_rate = store.load(f"word-rate-{bucket}")
    store.put(
        f"discounted-{bucket}", [_load(store, bucket).record.discount_by_ad(word_rate, strengths)]
    )
