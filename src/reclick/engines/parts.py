"""What tasks do with a part of a log, and how their results become those of the whole log.

A task counts or groups its part with the kernels of the local engine, and writes the result in
buckets by the content hash of the query. Another task merges each bucket over all parts. So a query
is in one bucket with all its pairs and sessions, and the driver only has to concatenate the
buckets. Tasks drop bad rows and report them; the driver raises the error, if any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.counts_arithmetic import add_tables, unknown_outcomes
from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.data.hashing import query_buckets
from reclick.data.log_record import LogRecorder
from reclick.data.outcomes import UNKNOWN_OUTCOME, ClickOutcomes, OutcomeCounts
from reclick.data.ragged import Float64, Int32, Int64, starts_from_sizes, take_runs
from reclick.engines.local.counter import Counter
from reclick.engines.local.grouper import Grouper
from reclick.engines.store import Store
from reclick.logs.read_summary import ReadSummary

MAX_SLICE_SESSIONS = 250_000  # per slice of a part that the driver wrote for the tasks


class LogPart(Protocol):
    """A part of a log, as a task reads it."""

    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        """The good sessions of the part."""

    @property
    def summary(self) -> ReadSummary | None:
        """What was read and dropped; None if the driver has read the log itself."""


class PartReport(NamedTuple):
    """What a task reports of its part to the driver."""

    summary: Any  # a ReadSummary; None if the driver has read the log itself
    recorder: LogRecorder
    lengths: Float64  # [page length, number of clicks] sessions
    earlier: Float64 | None  # [outcome] of clicks that were not the last
    pairs: int = 0  # of the part


class StoredSessions:
    """A part of a log that only the driver could read: sessions in a file of the store."""

    summary: ReadSummary | None = None

    def __init__(self, store: Store, name: str, batches: int) -> None:
        self._store, self._name, self._batches = store, name, batches

    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        """The sessions."""
        for i in range(self._batches):
            yield self._store.load(self._name, i)


def store_sessions(batches: Iterator[SessionBatch], store: Store) -> list[StoredSessions]:
    """Write sessions to files, as parts that tasks can read."""
    parts: list[StoredSessions] = []
    for batch in batches:
        name = f"sessions-{len(parts)}"
        slices = [
            batch.slice(start, min(start + MAX_SLICE_SESSIONS, len(batch))).compact()
            for start in range(0, len(batch), MAX_SLICE_SESSIONS)
        ]
        store.put(name, slices)
        parts.append(StoredSessions(store, name, len(slices)))
    return parts


# ---- counting


def count_part(part: LogPart, name: str, store: Store, buckets: int) -> PartReport:
    """Count a part, and write its counts by bucket to a file of this name."""
    recorder, counter = LogRecorder(), Counter()
    counter.add_batches(recorder.pass_on(part.batches()))
    counts = counter.finish()
    store.put(name, counts.split(query_buckets(counts.queries, buckets), buckets))
    return _report(part, recorder, counts)


def _report(part: LogPart, recorder: LogRecorder, counts: Counts) -> PartReport:
    earlier = None if counts.outcomes is None else counts.outcomes.earlier
    pairs = len(counts.impressions)
    return PartReport(part.summary, recorder, counts.lengths, earlier, pairs)


def merge_counts(store: Store, names: Sequence[str], bucket: int) -> Counts:
    """The counts of a bucket over all parts."""
    return Counts.sum([store.load(name, bucket) for name in names])


def join_counts(buckets: Sequence[Counts], reports: Sequence[PartReport]) -> Counts:
    """The counts of all buckets, with what the parts report of the log as a whole."""
    return add_reports(Counts.sum(buckets), reports)


def add_reports(counts: Counts, reports: Sequence[PartReport]) -> Counts:
    """The counts of a log, with what its parts report of it as a whole."""
    lengths = np.zeros((1, 1))
    for report in reports:
        lengths = add_tables(lengths, report.lengths)
    earlier = [report.earlier for report in reports if report.earlier is not None]
    outcomes = counts.outcomes
    if earlier:
        outcomes = outcomes or unknown_outcomes(counts)
        clicks = counts.clicks.sum() - counts.last_clicks.sum()
        total = np.sum(earlier, axis=0)
        total[UNKNOWN_OUTCOME] = max(clicks - total[UNKNOWN_OUTCOME + 1 :].sum(), 0.0)
        outcomes = OutcomeCounts(outcomes.last, outcomes.visits, total)
    return replace(counts, lengths=lengths, outcomes=outcomes)


# ---- grouping


def group_part(part: LogPart, name: str, store: Store, buckets: int) -> PartReport:
    """Group a part, and write its distinct sessions by bucket to a file of this name."""
    recorder, grouper = LogRecorder(), Grouper()
    grouper.add_batches(recorder.pass_on(part.batches()))
    grouped = grouper.finish()
    counts, sessions = grouped.counts, _as_batch(grouped)
    bucket = query_buckets(counts.queries, buckets)[sessions.query]
    order = np.argsort(bucket, kind="stable")
    edges = np.searchsorted(bucket[order], np.arange(buckets + 1)).tolist()
    parts = [_select(sessions, order[edges[b] : edges[b + 1]]) for b in range(buckets)]
    store.put(name, parts)
    return _report(part, recorder, counts)


def merge_groups(store: Store, names: Sequence[str], bucket: int) -> GroupedSessions:
    """The distinct sessions of a bucket over all parts, in the order of the parts."""
    grouper = Grouper()
    parts = (store.load(name, bucket) for name in names)
    grouper.add_batches(part for part in parts if len(part))
    return grouper.finish()


def join_groups(
    buckets: Sequence[GroupedSessions], reports: Sequence[PartReport]
) -> GroupedSessions:
    """Join the distinct sessions of all buckets by query; those of a query keep their order."""
    counts = join_counts([bucket.counts for bucket in buckets], reports)
    query_maps = _codes_in(counts.queries, [bucket.counts.queries for bucket in buckets])
    ad_maps = _codes_in(counts.ads, [bucket.counts.ads for bucket in buckets])
    pair_keys = _keys(counts.pair_query, counts.pair_ad)
    queries, pairs = [], []
    for bucket, query, ad in zip(buckets, query_maps, ad_maps, strict=True):
        rows = np.searchsorted(
            pair_keys, _keys(query[bucket.counts.pair_query], ad[bucket.counts.pair_ad])
        )
        pairs.append(rows.astype(np.int32)[bucket.whole.pair])
        queries.append(query[bucket.whole.query])
    order = np.argsort(np.concatenate(queries), kind="stable")
    blocks = [bucket.whole for bucket in buckets]
    page = starts_from_sizes(np.concatenate([np.diff(block.page) for block in blocks]))
    clicks = starts_from_sizes(np.concatenate([np.diff(block.clicks) for block in blocks]))
    pair, page = take_runs(np.concatenate(pairs), page, order)
    click, clicks = take_runs(np.concatenate([block.click for block in blocks]), clicks, order)
    weight = np.concatenate([block.weight for block in blocks])[order]
    outcome = None
    if any(block.outcome is not None for block in blocks):
        outcomes = [
            np.zeros(len(block), np.int8) if block.outcome is None else block.outcome
            for block in blocks
        ]
        outcome = np.concatenate(outcomes)[order]
    whole = QueryBlock(0, 0, counts.pair_query, pair, page, click, clicks, weight, outcome)
    return GroupedSessions(counts, whole)


def _as_batch(grouped: GroupedSessions) -> SessionBatch:
    """Grouped sessions as sessions with weights; of the clicks' outcomes, those of the last."""
    counts, block = grouped.counts, grouped.whole
    outcomes = None
    if block.outcome is not None:
        outcome = np.zeros(len(block.click), np.int8)
        clicked = np.diff(block.clicks) > 0
        outcome[block.clicks[1:][clicked] - 1] = block.outcome[clicked]
        outcomes = ClickOutcomes(outcome, None, None)
    return SessionBatch(
        queries=counts.queries,
        ads=counts.ads,
        query=block.query,
        ad=counts.pair_ad[block.pair],
        page=block.page,
        click=block.click,
        clicks=block.clicks,
        weight=block.weight,
        outcomes=outcomes,
    )


def _select(batch: SessionBatch, rows: Int64) -> SessionBatch:
    """Some sessions, with only the strings that they use."""
    ad, page = take_runs(batch.ad, batch.page, rows)
    click, clicks = take_runs(batch.click, batch.clicks, rows)
    outcomes = batch.outcomes
    if outcomes is not None:
        outcomes = ClickOutcomes(take_runs(outcomes.outcome, batch.clicks, rows)[0], None, None)
    weight: Any = batch.weight
    selection = replace(
        batch,
        query=batch.query[rows],
        ad=ad,
        page=page,
        click=click,
        clicks=clicks,
        weight=weight[rows],
        outcomes=outcomes,
    )
    return selection.compact()


def _codes_in(values: pa.Array, arrays: Sequence[pa.Array]) -> list[Int32]:
    """The index in `values` of every string of some arrays, array by array."""
    codes = pc.index_in(pa.concat_arrays(arrays), value_set=values)
    index = np.asarray(codes.to_numpy(zero_copy_only=False), np.int32)
    return np.split(index, np.cumsum([len(array) for array in arrays])[:-1])


def _keys(first: Int32, second: Int32) -> Int64:
    return np.asarray((first.astype(np.int64) << 32) | second)


ReadPart = Callable[[LogPart, str, Store, int], PartReport]
