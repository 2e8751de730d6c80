"""The prior of pairs by their ads, where the pairs are in buckets: the driver sees sums by ad."""

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
    """What the driver hears of the record of a bucket."""

    clicks: float
    exposure: float
    n_shown: int
    most: float  # that words may say


class StoredRecord(NamedTuple):
    """The record of the pairs of a bucket, and their queries; ads have the bucket's numbers."""

    record: AdRecord
    queries: pa.Array
    pair_query: Int32


def store_record(store: Store, bucket: int, record: AdRecord, counts: Counts) -> None:
    """In a task: leave the record of a bucket in a file."""
    stored = StoredRecord(record, counts.queries, counts.pair_query)
    store.put(f"record-{bucket}", [stored])


class TriedPrior(NamedTuple):
    """What the prior of pairs would follow from."""

    pairs: PairPrior  # of no pair, by which the prior is known again
    by_ad: tuple[Float64, Float64] | None
    word_rate: Float64


class BucketedRecord:
    """`AdRecords` of pairs in buckets, of which the driver gets sums by ad, and a sample."""

    def __init__(self, log: BucketedLog, tasks: BucketTasks, n_ads: int) -> None:
        self._log, self._tasks, self.n_ads = log, tasks, n_ads
        found = tasks.each(_total, "")
        buckets = [found[bucket] for bucket in sorted(found)]
        self._clicks, self._exposure = (
            sum(each.clicks for each in buckets),
            sum(each.exposure for each in buckets),
        )
        self.n_shown = sum(each.n_shown for each in buckets)
        self.most = buckets[0].most
        self._tried: list[TriedPrior] = []

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
        """Clicks, exposure and the pairs that were shown [ad]."""
        self._tasks.each(_sum_by_ad, "ads summed")
        return self._log.add_by_ad("by-ad", self.n_ads, 3)

    def count_ads(self) -> tuple[int, int]:
        """The ads that were shown for more than one query, and those that were shown."""
        pairs = self._by_ad[2]
        return int(np.sum(pairs > 1)), int(np.sum(pairs > 0))

    def by_ad(self) -> tuple[Float64, Float64]:
        """Clicks and exposure of each ad."""
        return self._by_ad[0], self._by_ad[1]

    @cached_property
    def _sample(self) -> AdRecord:
        found = self._tasks.each(partial(_draw, self._log, self.n_shown), "ads drawn")
        table = pa.concat_tables([found[bucket] for bucket in sorted(found)])
        table = table.sort_by([("query", "ascending"), ("ad", "ascending")])
        values = {name: table[name].to_numpy() for name in table.column_names if name != "query"}
        clicks, exposure, ad = (values.pop(name) for name in ("clicks", "exposure", "ad"))
        return AdRecord(clicks, exposure, ad, self.n_ads, Choices(**values) if values else None)

    def sample(self) -> AdRecord:
        """The pairs of some ads, in the order that they have in one process."""
        return self._sample

    def discount_by_ad(self, word_rate: Float64, strengths: Strengths) -> tuple[Float64, Float64]:
        """Clicks and exposure of each ad, where a pair is worth at most its strength."""
        for bucket in self._log.sizes:
            rates = word_rate[self._log.ad_numbers(bucket)]
            self._log.store.put(f"word-rate-{bucket}", [rates])
        self._tasks.each(partial(_discount, strengths), "ads summed")
        clicks, exposure = self._log.add_by_ad("discounted", self.n_ads, 2)
        return clicks, exposure

    def find_priors(
        self, by_ad: tuple[Float64, Float64] | None, word_rate: Float64, strengths: Strengths
    ) -> PairPrior:
        """Of no pair: those of each bucket follow from what `store_priors` leaves it."""
        nothing = PairPrior(np.zeros(0), np.zeros(0))
        self._tried.append(TriedPrior(nothing, by_ad, word_rate))
        return nothing

    def store_priors(self, prior: AdPrior) -> str:
        """Leave in files what the prior of the pairs of each bucket follows from; their name."""
        name, found = f"prior-{uuid4().hex}", prior.prior
        _, by_ad, word_rate = next(each for each in self._tried if each.pairs is found.pairs)
        bare = AdPrior(
            AttractivenessPrior(found.strengths, NO_PAIRS, NO_PAIRS, found.evidence),
            prior.model,
            prior.overall,
            prior.sources,
            prior.most,
        )
        for bucket in self._log.sizes:
            ads = self._log.ad_numbers(bucket)
            own = None if by_ad is None else (by_ad[0][ads], by_ad[1][ads])
            of_ads = PairPrior(found.ads.mean[ads], found.ads.strength[ads])
            stored = BucketPrior(bare, own, word_rate[ads], of_ads)
            self._log.store.put(f"{name}-{bucket}", [stored])
        return name


class BucketPrior(NamedTuple):
    """What the prior of the pairs of a bucket follows from, by the bucket's ads."""

    prior: AdPrior  # of no pair and no ad
    by_ad: tuple[Float64, Float64] | None
    word_rate: Float64  # [ad]
    of_ads: PairPrior  # [ad]

    def to_ad_prior(self, stored: StoredRecord) -> AdPrior:
        """The prior of the pairs of the bucket."""
        common = self.prior.prior
        pairs = stored.record.find_priors(self.by_ad, self.word_rate, common.strengths)
        own = AttractivenessPrior(common.strengths, pairs, self.of_ads, common.evidence)
        bare = self.prior
        return AdPrior(own, bare.model, bare.overall, bare.sources, bare.most)


# ---- in the tasks


def _load(store: Store, bucket: int) -> StoredRecord:
    stored: StoredRecord = store.keep(f"record-{bucket}")
    return stored


def _total(store: Store, bucket: int) -> RecordTotals:
    record = _load(store, bucket).record
    sums = float(record.clicks.sum()), float(record.exposure.sum())
    return RecordTotals(*sums, record.n_shown, record.most)


def _sum_by_ad(store: Store, bucket: int) -> None:
    record = _load(store, bucket).record
    shown = np.bincount(record.ad, record.exposure > 0, record.n_ads)
    store.put(f"by-ad-{bucket}", [(*record.by_ad(), shown)])


def _draw(log: BucketedLog, n_shown: int, store: Store, bucket: int) -> pa.Table:
    """The shown pairs of the ads that are drawn, with their queries and the log's ad numbers."""
    record, queries, pair_query = _load(store, bucket)
    numbers = log.ad_numbers(bucket)
    drawn = draw_ads(numbers, n_shown)[record.ad]
    rows = np.flatnonzero(drawn & (record.exposure > 0))
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
