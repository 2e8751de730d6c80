"""One pass over batches of sessions that adds them up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.string_index import Interner
from reclick.engines.local.canonical_order import sorted_pairs, sorted_sequences, sorted_strings
from reclick.engines.local.hash_table import Totals
from reclick.engines.local.kernels import (
    codes_of_short,
    count_lengths,
    count_pairs,
    count_visits,
    longest_of,
    taken,
)
from reclick.logs.validation.kernels import keep_pages
from reclick.runtime.prefetch import read_ahead

CHUNK = 8_192  # sessions between two looks at how full the tables are
ROUNDING = 1e-9  # what the sum of decayed counts may be off by


class LastCodes:
    """Codes of a batch's dictionary, kept for the next batch: those of one Parquet row group all have the same dictionary."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self._strings: pa.Array | None = None
        self._codes: Int32 = np.zeros(0, np.int32)

    def of(self, strings: pa.Array, index: Int32) -> Int32:
        """The code of strings[i] for each i of the index; new strings are added."""
        if strings is not self._strings:
            self._strings, self._codes = strings, self._interner.codes(strings)
        return taken(self._codes, index)


class Counter:
    """Adds up batches and counts; `finish` gives the `Counts`.

    Memory follows the number of distinct (query, ad) pairs and of distinct click lists a query, never the length of the log.
    """

    def __init__(self) -> None:
        self._queries, self._ads, self._sequences = Interner(), Interner(), Interner()
        self._query_codes, self._ad_codes = LastCodes(self._queries), LastCodes(self._ads)
        self._pairs = Totals.empty(others=2)  # (query, ad) → impressions; clicks, last clicks
        self._visits = Totals.empty()  # (query, click list) → sessions
        self._lengths = np.zeros((1, 1))  # [page length, number of clicks] sessions
        self._nothing = 0.0  # a total up to this is none: what is added is kept however small, what is taken away may leave rounding

    def add_batches(self, batches: Iterator[SessionBatch]) -> None:
        """Count every session of a log; while one batch is counted, the next is coded and the one after that is read."""
        for batch, codes in read_ahead((batch, self.codes(batch)) for batch in batches):
            self.add(batch, *codes)

    def codes(self, batch: SessionBatch) -> tuple[Int32, Int32, Int32]:
        """This counter's codes of the query of each session, of the ad of each impression and of the clicks of each session."""
        query, ad = (
            self._query_codes.of(batch.queries, batch.query),
            self._ad_codes.of(batch.ads, batch.ad),
        )
        return (
            query,
            ad,
            self._sequence_codes(batch.clicks, np.ascontiguousarray(batch.click, np.int32)),
        )

    def _sequence_codes(self, clicks: Int64, click: Int32) -> Int32:
        """The code of each session's click list; none and one click, which nearly all have, need no search."""
        last = int(click.max(initial=0))
        short = self._sequences.codes_of_bytes(
            np.maximum(np.arange(-1, last + 1), 0),
            np.arange(1, last + 1, dtype=np.int32).view(np.uint8),
            width=4,
        )
        codes = codes_of_short(clicks, click, short)
        longer = np.flatnonzero(codes < 0)
        positions, starts = keep_pages(
            longer, click, clicks, int((clicks[longer + 1] - clicks[longer]).sum())
        )
        codes[longer] = self._sequences.codes_of_bytes(starts, positions.view(np.uint8), width=4)
        return codes

    def add(self, batch: SessionBatch, query: Int32, ad: Int32, sequence: Int32) -> None:
        """Count every session of a batch, given its codes."""
        weight = (
            np.zeros(0) if batch.weight is None else batch.weight
        )  # none: every session counts once
        pairs, visits = self._pairs, self._visits
        for start in range(0, len(batch), CHUNK):
            end = min(start + CHUNK, len(batch))
            pairs.reserve(int(batch.page[end] - batch.page[start]))
            visits.reserve(end - start)
            pairs.used += count_pairs(
                start,
                end,
                query,
                ad,
                batch.page,
                batch.click,
                batch.clicks,
                weight,
                pairs.keys,
                pairs.total,
                pairs.others,
            )
            visits.used += count_visits(
                start, end, query, sequence, weight, visits.keys, visits.total
            )
        self._lengths = _added(self._lengths, _length_table(batch))

    def sorted_codes(self, counts: Counts) -> tuple[Int32, Int32]:
        """For each of this counter's codes of queries and of ads, the one in its finished counts; −1 where it came to nothing."""
        return _inverse(self._queries.codes(counts.queries), self._queries.size), _inverse(
            self._ads.codes(counts.ads), self._ads.size
        )

    def add_counts(self, counts: Counts, sign: float = 1.0) -> None:
        """Add counts made earlier, or take them away with sign −1."""
        self._nothing = ROUNDING if sign < 0 else self._nothing
        query, ad = (
            self._queries.codes(counts.queries).astype(np.int64),
            self._ads.codes(counts.ads).astype(np.int64),
        )
        sequence = self._sequences.codes_of_bytes(
            counts.sequence_starts, counts.sequence_clicks.view(np.uint8), width=4
        ).astype(np.int64)
        clicks, none = (
            np.stack([counts.clicks, counts.last_clicks], axis=1),
            np.zeros((len(counts.sessions), 0)),
        )
        self._pairs.add(
            query[counts.pair_query], ad[counts.pair_ad], sign * counts.impressions, sign * clicks
        )
        self._visits.add(
            query[counts.visit_query], sequence[counts.visit_sequence], sign * counts.sessions, none
        )
        self._lengths = _added(self._lengths, sign * counts.lengths)

    def finish(self) -> Counts:
        """The totals in their one canonical order, without what has come to nothing."""
        pairs, visits = self._pairs.slots(self._nothing), self._visits.slots(self._nothing)
        (pair_query, pair_ad), (visit_query, visit_sequence) = (
            self._pairs.codes(pairs),
            self._visits.codes(visits),
        )
        starts, clicks, sequence_code = sorted_sequences(self._sequences, visit_sequence)
        with ThreadPoolExecutor(2) as pool:  # sorting does not hold the GIL
            of_queries = pool.submit(sorted_strings, self._queries, visit_query, pair_query)
            of_ads = pool.submit(sorted_strings, self._ads, pair_ad)
            (queries, query_code), (ads, ad_code) = of_queries.result(), of_ads.result()
            of_pairs = pool.submit(sorted_pairs, query_code[pair_query], ad_code[pair_ad])
            of_visits = pool.submit(
                sorted_pairs, query_code[visit_query], sequence_code[visit_sequence]
            )
        (pair_query, pair_ad, pair), (visit_query, visit_sequence, visit) = (
            of_pairs.result(),
            of_visits.result(),
        )
        pairs, visits = pairs[pair], visits[visit]
        return Counts(
            queries=queries,
            ads=ads,
            pair_query=pair_query,
            pair_ad=pair_ad,
            impressions=self._pairs.total[pairs],
            clicks=self._pairs.others[pairs, 0],
            last_clicks=self._pairs.others[pairs, 1],
            sequence_starts=starts,
            sequence_clicks=clicks,
            visit_query=visit_query,
            visit_sequence=visit_sequence,
            sessions=self._visits.total[visits],
            lengths=_trimmed(self._lengths, self._nothing),
        )


def _inverse(codes: Int32, size: int) -> Int32:
    """Where each code stands in an array of codes, −1 where it does not."""
    inverse = np.full(max(size, 1), -1, np.int32)
    inverse[codes] = np.arange(len(codes), dtype=np.int32)
    return inverse


def _length_table(batch: SessionBatch) -> Float64:
    """Sessions by page length and number of clicks."""
    table = np.zeros((longest_of(batch.page) + 1, longest_of(batch.clicks) + 1))
    count_lengths(
        batch.page, batch.clicks, np.zeros(0) if batch.weight is None else batch.weight, table
    )
    return table


def _added(a: Float64, b: Float64) -> Float64:
    """The sum of two tables, the smaller one taken as zero beyond its edge."""
    total = np.zeros((max(a.shape[0], b.shape[0]), max(a.shape[1], b.shape[1])))
    total[: a.shape[0], : a.shape[1]] += a
    total[: b.shape[0], : b.shape[1]] += b
    return total


def _trimmed(table: Float64, nothing: float) -> Float64:
    """The table without rounding, and without the rows and columns beyond its last entry."""
    table = np.where(np.abs(table) > nothing, table, 0.0)
    rows, columns = np.flatnonzero(table.any(axis=1)), np.flatnonzero(table.any(axis=0))
    return table[: rows.max(initial=0) + 1, : columns.max(initial=0) + 1].copy()
