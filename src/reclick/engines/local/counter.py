"""Count batches of sessions in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import SessionBatch
from reclick.data.click_sequences import sequence_bytes, sequences_from_bytes
from reclick.data.counts import Counts
from reclick.data.counts_arithmetic import add_tables, trim_table
from reclick.data.outcomes import (
    N_OUTCOMES,
    UNKNOWN_OUTCOME,
    OutcomeCounts,
    OutcomeRows,
    last_of_runs,
)
from reclick.data.ragged import Float64, Int32, Int64, UInt64, read_only, take_runs
from reclick.data.string_index import Interner, buffers
from reclick.engines.local.hash_table import HashTotals, add_block, join_codes
from reclick.runtime.jit import kernel
from reclick.runtime.parallel import prefetch, run_parallel

CHUNK_SESSIONS = 8_192  # added before the tables are checked for room
BLOCK_SESSIONS = 64  # whose keys are looked up together
FEW_STRINGS = 1_000  # sorted by Arrow
WORD_BYTES = 8
NO_WEIGHT: Float64 = read_only(np.zeros(0))  # every session counts once
NO_CLICK: Int32 = read_only(np.zeros(0, np.int32))


class DictionaryCodeCache:
    """The codes of the dictionary of the last batch: batches of a Parquet row group share one."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self._strings: pa.Array | None = None
        self._codes: Int32 = np.zeros(0, np.int32)

    def encode(self, strings: pa.Array, index: Int32) -> Int32:
        """Return the code of strings[i] for each i in index; new strings are added."""
        if strings is not self._strings:
            self._strings, self._codes = strings, self._interner.codes(strings)
        return _take_codes(self._codes, index)


class Counter:
    """Adds up batches; `finish` returns the `Counts`.

    Memory grows with the number of distinct pairs and of distinct click sequences per query, not
    with the length of the log.
    """

    def __init__(self) -> None:
        self._queries, self._ads, self._sequences = Interner(), Interner(), Interner()
        self._query_codes = DictionaryCodeCache(self._queries)
        self._ad_codes = DictionaryCodeCache(self._ads)
        self._pairs = HashTotals.empty(n_other=2)  # (query, ad) → impressions; clicks, last clicks
        self._visits = HashTotals.empty()  # (query, click sequence) → sessions
        self._lengths = np.zeros((1, 1))  # [page length, number of clicks] sessions
        # By outcome, if known: last clicks of pairs, sessions of visits
        self._outcome_pairs: dict[int, HashTotals] = {}
        self._outcome_visits: dict[int, HashTotals] = {}
        self._earlier_outcomes = np.zeros(N_OUTCOMES)
        # Of as many pages as the largest batch has: pages of one ad, and sessions without a click
        self._one_ad = self._no_clicks = read_only(np.zeros(1, np.int64))

    def add_batches(self, batches: Iterator[SessionBatch]) -> None:
        """Count every session; meanwhile the next batch is encoded and the one after it read."""
        for batch, codes in prefetch((batch, self.encode(batch)) for batch in batches):
            self.add(batch, *codes)

    def encode(self, batch: SessionBatch) -> tuple[Int32, Int32, Int32]:
        """Return codes of queries [session], ads [impression] and click sequences [session]."""
        query = self._query_codes.encode(batch.queries, batch.query)
        ad = self._ad_codes.encode(batch.ads, batch.ad)
        return query, ad, self._encode_clicks(batch.clicks, batch.click)

    def _encode_clicks(self, clicks: Int64, click: Int32) -> Int32:
        """Return codes of click sequences; the many with at most one click need no search."""
        last = int(click.max(initial=0))
        short = self._sequences.codes_of_bytes(
            np.maximum(np.arange(-1, last + 1), 0),
            np.arange(1, last + 1, dtype=np.int32).view(np.uint8),
            width=4,
        )
        codes = _short_codes(short, click, clicks)
        longer = np.flatnonzero(codes < 0)
        positions, starts = take_runs(click, clicks, longer)
        codes[longer] = self._sequences.codes_of_bytes(starts, positions.view(np.uint8), width=4)
        return codes

    def add(self, batch: SessionBatch, query: Int32, ad: Int32, sequence: Int32) -> None:
        """Count every session of a batch, given its codes."""
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        sizes, n_clicks = np.diff(batch.page), np.diff(batch.clicks)
        clicked = batch.page, batch.click, batch.clicks
        longest, most_clicks = int(sizes.max(initial=0)), int(n_clicks.max(initial=0))
        self._add_up(self._pairs, query, ad, *clicked, weight, max(longest, 1))
        self._add_keys(self._visits, query, sequence, weight)
        if batch.outcomes is not None:
            self._add_outcomes(batch, query, ad, sequence)
        sizes *= most_clicks + 1  # in place: allocating memory takes longer than filling it
        sizes += n_clicks
        lengths = np.bincount(sizes, batch.weight).astype(np.float64)
        lengths.resize(longest + 1, most_clicks + 1)
        self._lengths = add_tables(self._lengths, lengths)

    def _add_outcomes(self, batch: SessionBatch, query: Int32, ad: Int32, sequence: Int32) -> None:
        """Count the known outcomes of last clicks, and the outcomes of the clicks before them."""
        assert batch.outcomes is not None  # noqa: S101
        outcome = batch.outcomes.outcome
        session_weight = np.ones(len(batch)) if batch.weight is None else batch.weight
        sizes = np.diff(batch.clicks)
        click_weight = np.repeat(session_weight, sizes)
        click_weight[batch.clicks[1:][sizes > 0] - 1] = 0.0
        self._earlier_outcomes += np.bincount(outcome, click_weight, N_OUTCOMES)
        last = last_of_runs(outcome, batch.clicks)
        for value in np.unique(last[last != UNKNOWN_OUTCOME]).tolist():
            rows = np.flatnonzero(last == value)
            position = batch.click[batch.clicks[rows + 1] - 1]
            clicked, weight = ad[batch.page[rows] + position - 1], read_only(session_weight[rows])
            for tables, code in (
                (self._outcome_pairs, clicked),
                (self._outcome_visits, sequence[rows]),
            ):
                table = tables.setdefault(value, HashTotals.empty())
                self._add_keys(table, query[rows], code, weight)

    def _add_keys(self, table: HashTotals, query: Int32, code: Int32, weight: Float64) -> None:
        """Add one code per session, counted as a page of one ad without a click."""
        if len(self._one_ad) <= len(query):
            self._one_ad = read_only(np.arange(len(query) + 1))
            self._no_clicks = read_only(np.zeros(len(query) + 1, np.int64))
        self._add_up(table, query, code, self._one_ad, NO_CLICK, self._no_clicks, weight, 1)

    @staticmethod
    def _add_up(
        table: HashTotals, query: Int32, code: Int32, page: Int64, click: Int32, clicks: Int64,
        weight: Float64, longest: int,
    ) -> None:  # fmt: skip
        """Add sessions to a table by query and code; `longest` is the longest page."""
        room = BLOCK_SESSIONS * longest  # for the impressions of a block of sessions
        block_keys, slots, first_keys = np.empty((3, room), np.int64)
        for start in range(0, len(query), CHUNK_SESSIONS):
            end = min(start + CHUNK_SESSIONS, len(query))
            table.reserve(int(page[end] - page[start]))
            table.n_keys += _count_pairs(
                start, end, query, code, page, click, clicks, weight,
                table.keys, table.total, table.other_totals, block_keys, slots, first_keys,
                np.ones(room),
            )  # fmt: skip

    def to_canonical_codes(self, counts: Counts) -> tuple[Int32, Int32]:
        """Map codes of queries and ads to their codes in the counts; −1 if the counts lack them."""
        queries = _new_codes(self._queries.codes(counts.queries), self._queries.size)
        return queries, _new_codes(self._ads.codes(counts.ads), self._ads.size)

    def finish(self) -> Counts:
        """Return the totals in canonical order, without those that are zero."""
        pairs, visits = self._pairs.slots(), self._visits.slots()
        pair_query, pair_ad = self._pairs.codes(pairs)
        visit_query, visit_sequence = self._visits.codes(visits)
        starts, clicks, sequence_code = sort_sequences(self._sequences, visit_sequence)
        (queries, query_code), (ads, ad_code) = run_parallel(
            lambda: sort_strings(self._queries, visit_query, pair_query),
            lambda: sort_strings(self._ads, pair_ad),
        )
        sorted_pairs, sorted_visits = run_parallel(
            lambda: sort_pairs(query_code[pair_query], ad_code[pair_ad]),
            lambda: sort_pairs(query_code[visit_query], sequence_code[visit_sequence]),
        )
        pairs, visits = pairs[sorted_pairs[2]], visits[sorted_visits[2]]
        clicks_and_last = self._pairs.other_totals.take(pairs, axis=0)  # each row is read once
        counts = Counts(
            queries=queries,
            ads=ads,
            pair_query=sorted_pairs[0],
            pair_ad=sorted_pairs[1],
            impressions=self._pairs.total[pairs],
            clicks=clicks_and_last[:, 0].copy(),
            last_clicks=clicks_and_last[:, 1].copy(),
            sequence_starts=starts,
            sequence_clicks=clicks,
            visit_query=sorted_visits[0],
            visit_sequence=sorted_visits[1],
            sessions=self._visits.total[visits],
            lengths=trim_table(self._lengths),
        )
        return self._with_outcomes(counts, query_code, ad_code, sequence_code)

    def _with_outcomes(
        self, counts: Counts, query_code: Int32, ad_code: Int32, sequence_code: Int32
    ) -> Counts:
        """Add the outcomes of clicks to the counts, if any outcome is known."""
        pairs = _outcome_rows(self._outcome_pairs, query_code, ad_code)
        visits = _outcome_rows(self._outcome_visits, query_code, sequence_code)
        return with_outcomes(counts, pairs, visits, self._earlier_outcomes)


def with_outcomes(
    counts: Counts, pairs: OutcomeRows, visits: OutcomeRows, earlier: Float64
) -> Counts:
    """Add the known outcomes of last clicks and of earlier clicks to counts, if there are any."""
    if not len(pairs.weight) and not earlier[1:].any():  # as in most logs
        return counts
    unknown = counts.clicks.sum() - counts.last_clicks.sum() - earlier[1:].sum()
    outcomes = OutcomeCounts(
        pairs.to_table(counts.pair_query, counts.pair_ad, counts.last_clicks),
        visits.to_table(counts.visit_query, counts.visit_sequence, counts.sessions),
        np.concatenate([[max(unknown, 0.0)], earlier[1:]]),
    )
    return replace(counts, outcomes=outcomes) if outcomes.any_known else counts


def _outcome_rows(
    tables: dict[int, HashTotals], first_code: Int32, second_code: Int32
) -> OutcomeRows:
    parts = []
    for outcome, table in tables.items():
        slots = table.slots()
        first, second = table.codes(slots)
        which = np.full(len(slots), outcome, np.int8)
        parts.append((first_code[first], second_code[second], which, table.total[slots]))
    empty = (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0))
    return OutcomeRows(*(np.concatenate(column) for column in zip(empty, *parts, strict=True)))


def sort_pairs(first: Int32, second: Int32) -> tuple[Int32, Int32, Int64]:
    """Sort two columns of codes by the first, then the second; also return the order."""
    bits = [
        int(largest).bit_length()
        for largest in (first.max(initial=0), second.max(initial=0), len(first))
    ]
    if sum(bits) < 64:  # sorting numbers that contain their row is faster than argsort
        order = first.astype(np.int64)
        for more, width in ((second, bits[1]), (np.arange(len(first)), bits[2])):
            order <<= width
            order |= more
        order.sort()
        order &= (1 << bits[2]) - 1
    else:
        order = np.argsort((first.astype(np.int64) << 32) | second)
    return first[order], second[order], order


def sort_strings(interner: Interner, *codes: Int32) -> tuple[pa.LargeStringArray, Int32]:
    """Return the strings that occur, sorted, and the new code of every old code."""
    old = _distinct(interner.size, *codes)
    strings = interner.strings()
    if len(old) < interner.size:  # some have no weight
        strings = strings.take(pa.array(old))
    order = order_strings(strings)
    return strings.take(pa.array(order)), _new_codes(old[order], interner.size)


def order_strings(strings: pa.LargeStringArray) -> Int64:
    """The order of strings by their bytes, in half the time of Arrow's sort.

    The first bytes after the common prefix, as a number, tell most ids apart; only strings whose
    numbers are equal are compared as a whole.

    >>> order_strings(pa.array(["ad-7", "ad-10", "ad-2"], pa.large_string())).tolist()
    [1, 2, 0]
    """
    if len(strings) < FEW_STRINGS:
        return np.asarray(pc.array_sort_indices(strings), np.int64)
    words = _words_after_prefix(strings)
    order = np.argsort(words)
    is_tie = np.diff(words[order]) == 0
    tied = np.concatenate([[False], is_tie]) | np.concatenate([is_tie, [False]])
    rows = order[tied]  # their order as a whole agrees with that of their words
    order[tied] = rows[pc.array_sort_indices(strings.take(pa.array(rows))).to_numpy()]
    return order


def _words_after_prefix(strings: pa.LargeStringArray) -> UInt64:
    """The first bytes of each string after the common prefix, as a number [string]."""
    first, last = pc.min_max(strings.cast(pa.large_binary())).as_py().values()
    bytes_of_both = enumerate(zip(first, last, strict=False))
    prefix = next((i for i, (low, high) in bytes_of_both if low != high), len(first))
    offsets, data = buffers(strings)
    start, size = offsets[:-1] + prefix, np.diff(offsets) - prefix
    padded = np.concatenate([data, np.zeros(WORD_BYTES, np.uint8)])
    # The word that begins at each byte, big-endian
    word_at = np.ndarray(len(data) + 1, ">u8", padded.data, strides=(1,))
    words: UInt64 = word_at[start].astype(np.uint64)
    unused_bits = 8 * (WORD_BYTES - np.minimum(size, WORD_BYTES)).astype(np.uint64)
    is_empty = size == 0  # a shift by 64 bits is undefined
    words >>= unused_bits
    words <<= unused_bits
    words[is_empty] = 0
    return words


def sort_sequences(interner: Interner, codes: Int32) -> tuple[Int64, Int32, Int32]:
    """Return the sequences that occur, sorted, as starts and positions, and their new codes."""
    offsets, data = interner.slices()
    old = _distinct(interner.size, codes)
    lists = sequence_bytes(offsets // 4, data.view(np.int32)).take(pa.array(old))
    order = pc.array_sort_indices(lists)
    starts, clicks = sequences_from_bytes(lists.take(order))
    return starts, clicks, _new_codes(old[order.to_numpy()], interner.size)


def _distinct(size: int, *arrays: Int32) -> Int64:
    """Return the codes that occur, sorted."""
    occurs = np.zeros(size, bool)
    for codes in arrays:
        occurs[codes] = True
    return np.flatnonzero(occurs)


def _new_codes(old: Int64 | Int32, size: int) -> Int32:
    """Return the index of every code in `old`; −1 if it is not there."""
    code = np.full(max(size, 1), -1, np.int32)
    code[old] = np.arange(len(old), dtype=np.int32)
    return code


@kernel
def _take_codes(codes: Int32, index: Int32) -> Int32:
    """Return codes[index] in one pass: NumPy would first convert the index to 64 bits."""
    out = np.empty(len(index), np.int32)
    for i in range(len(index)):
        out[i] = codes[index[i]]
    return out


@kernel
def _short_codes(short: Int32, click: Int32, clicks: Int64) -> Int32:
    """Return the codes of sequences of one click from `short`, short[0] without any, else −1."""
    out = np.empty(len(clicks) - 1, np.int32)
    for row in range(len(out)):
        start, size = clicks[row], clicks[row + 1] - clicks[row]
        if size == 0:
            out[row] = short[0]
        elif size == 1:
            out[row] = short[click[start]]
        else:
            out[row] = -1
    return out


@kernel
def _count_pairs(
    start: int, end: int, query: Int32, ad: Int32, page: Int64, click: Int32, clicks: Int64,
    weight: Float64, keys: Int64, impressions: Float64, other_totals: Float64, block_keys: Int64,
    slots: Int64, first_keys: Int64, more: Float64,
) -> int:  # fmt: skip
    """Add impressions and clicks of sessions start … end − 1; return the number of new pairs.

    block_keys, slots, first_keys and more have room for the impressions of BLOCK_SESSIONS sessions;
    more is filled with 1.
    """
    new = 0
    for first in range(start, end, BLOCK_SESSIONS):
        stop = first + BLOCK_SESSIONS if first + BLOCK_SESSIONS < end else end
        top = page[first]
        for s in range(first, stop):
            for i in range(page[s], page[s + 1]):
                block_keys[i - top] = join_codes(query[s], ad[i])
                if len(weight):
                    more[i - top] = weight[s]
        size = page[stop] - top
        new += add_block(keys, impressions, block_keys, more, size, slots, first_keys)
        for s in range(first, stop):
            for c in range(clicks[s], clicks[s + 1]):
                at = page[s] - top + click[c] - 1
                other_totals[slots[at], 0] += more[at]
                if c == clicks[s + 1] - 1:
                    other_totals[slots[at], 1] += more[at]
    return new
