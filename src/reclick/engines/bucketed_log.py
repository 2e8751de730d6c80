"""A log in buckets of queries, each in a file of a store: only its totals are in memory.

A query is in the bucket of its hash, with its pairs and its sessions. The driver has the totals of
the log and the size of each bucket. An ad can be in several buckets; one task numbers the ads.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.counts import Counts
from reclick.data.counts_arithmetic import unknown_outcomes
from reclick.data.grouped_sessions import GroupedSessions, LogSize, QueryBlock
from reclick.data.hashing import draw_queries, query_buckets
from reclick.data.outcomes import N_OUTCOMES, OutcomeCounts
from reclick.data.ragged import Float64, Int32
from reclick.data.string_index import Interner
from reclick.engines.base import Additive, Log
from reclick.engines.parts import (
    add_reports,
    count_part,
    group_part,
    join_groups,
    merge_counts,
    merge_groups,
)
from reclick.engines.store import Store
from reclick.engines.tasks import TaskEngine

Result = TypeVar("Result")
SumT = TypeVar("SumT", bound=Additive)
ALL_ADS = "ads"  # name of the file
OfBucket = Callable[[Store, int], Result]  # a function that a task applies to a bucket


class BucketSize(NamedTuple):
    """The size of a bucket, which has at least one query."""

    queries: int
    pairs: int
    distinct: int  # sessions; 0 if the bucket has counts only
    longest: int  # ads of the longest page


class AdTotals(NamedTuple):
    """Totals per ad: impressions, clicks, and the number of queries that it was shown for."""

    impressions: Float64
    clicks: Float64
    queries: Float64

    @classmethod
    def of(cls, counts: Counts) -> AdTotals:
        """Sum counts by ad."""
        size, was_shown = len(counts.ads), (counts.impressions > 0).astype(np.float64)
        columns = (counts.impressions, counts.clicks, was_shown)
        return cls(
            *(np.bincount(counts.pair_ad, column, size).astype(np.float64) for column in columns)
        )


class LogAds(NamedTuple):
    """All ads of a log, sorted, and their totals: in a file, which the driver maps when needed."""

    store: Store
    size: int
    some_recurs: bool  # whether an ad was shown for more than one query

    @property
    def ads(self) -> pa.Array:
        """The ids of the ads."""
        return self.store.load(ALL_ADS, 0)

    @property
    def totals(self) -> AdTotals:
        """Their totals."""
        totals: AdTotals = self.store.load(ALL_ADS, 1)
        return totals


@dataclass(frozen=True)
class BucketedLog:
    """The buckets of a log that have queries, and the totals of the whole log."""

    store: Store
    head: Counts  # pooled
    sizes: Mapping[int, BucketSize]
    has_weights: bool = False  # unknown for counts

    @property
    def size(self) -> LogSize:
        """The size of the log."""
        longest = max(size.longest for size in self.sizes.values())
        return LogSize(self.head.total, longest, self.has_weights)

    @property
    def distinct(self) -> int:
        """The number of distinct sessions."""
        return sum(size.distinct for size in self.sizes.values())

    def load(self, bucket: int) -> Counts | GroupedSessions:
        """Load the counts or the sessions of a bucket, with the totals of the whole log."""
        data: Counts | GroupedSessions = self.store.load(_data_file(bucket))
        if isinstance(data, Counts):
            return self._complete(data)
        whole = data.whole
        if self.head.outcomes is not None and whole.outcome is None:
            whole = replace(whole, outcome=np.zeros(len(whole), np.int8))
        return GroupedSessions(self._complete(data.counts), whole, self.size)

    def _complete(self, counts: Counts) -> Counts:
        outcomes = None
        if self.head.outcomes is not None:
            bucket_outcomes = counts.outcomes or unknown_outcomes(counts)
            outcomes = OutcomeCounts(
                bucket_outcomes.last, bucket_outcomes.visits, self.head.outcomes.earlier
            )
        return replace(counts, lengths=self.head.lengths, outcomes=outcomes)

    def empty_sessions(self) -> GroupedSessions:
        """Return the sessions of a bucket without any query."""
        codes, numbers, starts = np.zeros(0, np.int32), np.zeros(0), np.zeros(1, np.int64)
        nothing = np.zeros((0, N_OUTCOMES))
        counts = Counts(
            queries=pa.array([], pa.large_string()),
            ads=pa.array([], pa.large_string()),
            pair_query=codes,
            pair_ad=codes,
            impressions=numbers,
            clicks=numbers,
            last_clicks=numbers,
            sequence_starts=starts,
            sequence_clicks=codes,
            visit_query=codes,
            visit_sequence=codes,
            sessions=numbers,
            lengths=self.head.lengths,
            outcomes=OutcomeCounts(nothing, nothing, np.zeros(N_OUTCOMES)),
        )
        outcome = None if self.head.outcomes is None else np.zeros(0, np.int8)
        block = QueryBlock(0, 0, codes, codes, starts, codes, starts, numbers, outcome)
        return GroupedSessions(self._complete(counts), block, self.size)

    def sample_queries(self, tasks: BucketTasks, n_sessions: int, ads: pa.Array) -> GroupedSessions:
        """Draw about this many distinct sessions, as `GroupedSessions.sample_queries` does.

        Ads are numbered by their index in `ads`, which are all ads of the log.
        """
        share = n_sessions / max(self.distinct, 1)
        sample_of_bucket = tasks.each(partial(_draw_sessions, self, share), "queries drawn")
        samples = [sample_of_bucket[bucket] for bucket in sorted(sample_of_bucket)]
        sample = join_groups([part.sessions for part in samples], [])
        counts, number = sample.counts, np.zeros(len(sample.counts.ads), np.int32)
        for part in samples:
            code = pc.index_in(part.sessions.counts.ads, value_set=counts.ads)
            number[code.to_numpy(zero_copy_only=False)] = part.ad_numbers
        numbered = replace(counts, ads=ads, pair_ad=number[counts.pair_ad])
        return replace(sample, counts=self._complete(numbered))

    # ads

    def number_ads(self, tasks: BucketTasks) -> LogAds:
        """Number the ads of all buckets in sorted order, in a task."""
        function = partial(_number_ads, self.store, list(self.sizes))
        (ads,) = tasks.engine.run(function, 1, "ads numbered")
        return ads

    def ad_numbers(self, bucket: int) -> Int32:
        """Load the numbers of the ads of a bucket [ad of the bucket]."""
        numbers: Int32 = self.store.load(_ads_file(bucket))
        return numbers

    def ad_totals(self, bucket: int) -> tuple[Float64, Float64]:
        """Load the impressions and clicks of the ads of a bucket over all buckets [ad]."""
        totals: tuple[Float64, Float64] = self.store.load(_ad_totals_file(bucket))
        return totals

    def add_by_ad(self, name: str, n_ads: int, columns: int) -> list[Float64]:
        """Sum by ad, over all buckets, the columns that tasks wrote to files of this name."""
        totals = [np.zeros(n_ads) for _ in range(columns)]
        for bucket in self.sizes:
            numbers = self.ad_numbers(bucket)
            bucket_totals = self.store.load(f"{name}-{bucket}")
            for total, bucket_total in zip(totals, bucket_totals, strict=True):
                total[numbers] += bucket_total
            self.store.discard([f"{name}-{bucket}"])
        return totals


def _data_file(bucket: int) -> str:
    return f"data-{bucket}"


def _ads_file(bucket: int) -> str:
    return f"ads-{bucket}"


def _ad_totals_file(bucket: int) -> str:
    return f"ad-totals-{bucket}"


def collect_buckets(
    engine: TaskEngine, log: Log, store: Store, buckets: int, *, counts_only: bool
) -> BucketedLog:
    """Count or group a log, and write each bucket to a file."""
    read_part = count_part if counts_only else group_part
    names, reports = engine.read_parts(read_part, log, store, buckets, "parts read")
    tasks = assign_buckets(dict.fromkeys(range(buckets), 1.0), engine.n_tasks)
    merge = merge_counts if counts_only else merge_groups
    function = partial(_merge_bucket, merge, names)
    merged = BucketTasks(engine, store, tasks).each(function, "buckets merged")
    store.discard(names)
    parts = {bucket: part for bucket, part in sorted(merged.items()) if part is not None}
    head = add_reports(Counts.sum([counts for _, counts in parts.values()]), reports)
    return BucketedLog(store, head, {bucket: size for bucket, (size, _) in parts.items()})


def split_counts(counts: Counts, store: Store, buckets: int) -> BucketedLog:
    """Split counts in memory into buckets."""
    parts = counts.split(query_buckets(counts.queries, buckets), buckets)
    sizes = {
        bucket: _store_bucket(store, part, bucket)
        for bucket, part in enumerate(parts)
        if len(part.queries)
    }
    return BucketedLog(store, replace(counts.pool(), logs=()), sizes)


def _merge_bucket(
    merge: Callable[[Store, Sequence[str], int], Counts | GroupedSessions],
    names: Sequence[str],
    store: Store,
    bucket: int,
) -> tuple[BucketSize, Counts] | None:
    """Merge a bucket over all parts, in a task; None if it has no query."""
    data = merge(store, names, bucket)
    counts = data if isinstance(data, Counts) else data.counts
    if not len(counts.queries):
        return None
    return _store_bucket(store, data, bucket), counts.pool()


def _store_bucket(store: Store, data: Counts | GroupedSessions, bucket: int) -> BucketSize:
    counts = data if isinstance(data, Counts) else data.counts
    store.put(_data_file(bucket), [data, counts.ads, AdTotals.of(counts)])
    distinct, longest = (0, 1) if isinstance(data, Counts) else (len(data), data.whole.max_ads)
    return BucketSize(len(counts.queries), len(counts.impressions), distinct, longest)


def _number_ads(store: Store, buckets: Sequence[int], _: int) -> LogAds:
    """Number the ads of all buckets; write the numbers of each bucket, and the totals of its ads.

    This is done in a task, one bucket at a time: the driver would need compiled kernels and the
    index of the ads, which together take more memory than everything else it has.
    """
    index, codes = Interner(), {}
    totals = AdTotals(*np.zeros((3, 1024)))
    for bucket in buckets:
        code = codes[bucket] = index.codes(store.load(_data_file(bucket), 1))
        if index.size > len(totals.clicks):
            room = np.zeros(2 * index.size - len(totals.clicks))
            totals = AdTotals(*(np.concatenate([column, room]) for column in totals))
        bucket_totals = store.load(_data_file(bucket), 2)
        for total, bucket_total in zip(totals, bucket_totals, strict=True):
            total[code] += bucket_total
    strings = index.strings()
    order = pc.array_sort_indices(strings).to_numpy()
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    del index
    for bucket, code in codes.items():
        store.put(_ads_file(bucket), [number[code]])
        store.put(_ad_totals_file(bucket), [(totals.impressions[code], totals.clicks[code])])
    ads = strings.take(pa.array(order)).cast(pa.large_string())
    del strings
    totals = AdTotals(*(column[: len(order)][order] for column in totals))
    store.put(ALL_ADS, [ads, totals])
    pa.default_memory_pool().release_unused()
    return LogAds(store, len(ads), bool(totals.queries.max(initial=0.0) > 1))


class DrawnSessions(NamedTuple):
    """The sessions of a sample of a bucket's queries, and the numbers of its ads in the log."""

    sessions: GroupedSessions
    ad_numbers: Int32  # [ad]


def _draw_sessions(log: BucketedLog, share: float, store: Store, bucket: int) -> DrawnSessions:
    """Draw a share of the queries of a bucket, in a task; all if the share is 1 or more."""
    sessions: Any = log.load(bucket)
    sample: GroupedSessions = sessions.keep_queries(draw_queries(sessions.counts.queries, share))
    ad_codes, code = np.unique(sample.counts.pair_ad, return_inverse=True)
    ads = sample.counts.ads.take(pa.array(ad_codes))
    counts = replace(sample.counts, ads=ads, pair_ad=code.astype(np.int32))
    return DrawnSessions(replace(sample, counts=counts), log.ad_numbers(bucket)[ad_codes])


# ---- tasks of several buckets each


def assign_buckets(sizes: Mapping[int, float], n_tasks: int) -> list[list[int]]:
    """Distribute buckets over tasks, so that all tasks have about as much to do.

    >>> assign_buckets({0: 5, 1: 3, 2: 2}, 2)
    [[0], [1, 2]]
    """
    tasks: list[list[int]] = [[] for _ in range(max(min(n_tasks, len(sizes)), 1))]
    loads = [(0.0, task) for task in range(len(tasks))]
    for bucket in sorted(sizes, key=lambda bucket: (-sizes[bucket], bucket)):
        load, task = heapq.heappop(loads)
        tasks[task].append(bucket)
        heapq.heappush(loads, (load + sizes[bucket], task))
    return [sorted(task_buckets) for task_buckets in tasks]


@dataclass(frozen=True)
class BucketTasks:
    """Applies functions to buckets in tasks, each of which has several buckets."""

    engine: TaskEngine
    store: Store
    tasks: list[list[int]]

    @classmethod
    def of(cls, engine: TaskEngine, log: BucketedLog) -> BucketTasks:
        """Distribute the buckets of a log over the tasks of an engine."""
        loads = {bucket: float(size.pairs + size.distinct) for bucket, size in log.sizes.items()}
        return cls(engine, log.store, assign_buckets(loads, engine.n_tasks))

    def buckets(self) -> Iterator[int]:
        """Iterate over all buckets."""
        return (bucket for task in self.tasks for bucket in task)

    def each(self, function: OfBucket[Result], what: str) -> dict[int, Result]:
        """Return function(store, bucket) for every bucket."""
        task = partial(_run_each, function, self.store, self.tasks)
        results: dict[int, Result] = {}
        for task_results in self.engine.run(task, len(self.tasks), what):
            results |= task_results
        return results

    def add(self, function: OfBucket[SumT]) -> SumT:
        """Return Σ function(store, bucket), summed in the order of the buckets of each task."""
        task = partial(_run_and_add, function, self.store, self.tasks)
        sums: list[SumT] = self.engine.run(task, len(self.tasks), "")
        return reduce(add, sums)


def _run_each(
    function: OfBucket[Any], store: Store, tasks: list[list[int]], i: int
) -> dict[int, Any]:
    return {bucket: function(store, bucket) for bucket in tasks[i]}


def _run_and_add(function: OfBucket[Any], store: Store, tasks: list[list[int]], i: int) -> Any:
    return reduce(add, (function(store, bucket) for bucket in tasks[i]))
