"""One pass over batches of sessions: counting them, or grouping equal ones."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from reclick.batch import Float64, Int32, Int64, SessionBatch
from reclick.compiled import compiled
from reclick.counts import Counts
from reclick.engines.tally import Tally, add_block, key_of
from reclick.interning import Interner
from reclick.logs.ahead import read_ahead
from reclick.logs.kernels import keep_pages
from reclick.sessions import Sessions
from reclick.string_order import string_order

CHUNK = 8_192  # sessions between two looks at how full the tables are
TOGETHER = 64  # sessions whose keys are looked up together
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
        return _taken(self._codes, index)


class Counter:
    """Adds up batches and counts; `finish` gives the `Counts`.

    Memory follows the number of distinct (query, ad) pairs and of distinct click lists a query, never the length of the log.
    """

    def __init__(self) -> None:
        self._queries, self._ads, self._sequences = Interner(), Interner(), Interner()
        self._query_codes, self._ad_codes = LastCodes(self._queries), LastCodes(self._ads)
        self._pairs = Tally.empty(others=2)  # (query, ad) → impressions; clicks, last clicks
        self._visits = Tally.empty()  # (query, click list) → sessions
        self._lengths = np.zeros((1, 1))  # [page length, number of clicks] sessions
        self._nothing = 0.0  # a total up to this is none: what is added is kept however small, what is taken away may leave rounding

    def add_batches(self, batches: Iterator[SessionBatch]) -> None:
        """Count every session of a log; while one batch is counted, the next is coded and the one after that is read."""
        for batch, codes in read_ahead((batch, self.codes(batch)) for batch in batches):
            self.add(batch, *codes)

    def codes(self, batch: SessionBatch) -> tuple[Int32, Int32, Int32]:
        """This counter's codes of the query of each session, of the ad of each impression and of the clicks of each session."""
        query, ad = self._query_codes.of(batch.queries, batch.query), self._ad_codes.of(batch.ads, batch.ad)
        return query, ad, self._sequence_codes(batch.clicks, np.ascontiguousarray(batch.click, np.int32))

    def _sequence_codes(self, clicks: Int64, click: Int32) -> Int32:
        """The code of each session's click list; none and one click, which nearly all have, need no search."""
        last = int(click.max(initial=0))
        short = self._sequences.codes_of_bytes(np.maximum(np.arange(-1, last + 1), 0), np.arange(1, last + 1, dtype=np.int32).view(np.uint8), width=4)
        codes = _codes_of_short(clicks, click, short)
        longer = np.flatnonzero(codes < 0)
        positions, starts = keep_pages(longer, click, clicks, int((clicks[longer + 1] - clicks[longer]).sum()))
        codes[longer] = self._sequences.codes_of_bytes(starts, positions.view(np.uint8), width=4)
        return codes

    def add(self, batch: SessionBatch, query: Int32, ad: Int32, sequence: Int32) -> None:
        """Count every session of a batch, given its codes."""
        weight = np.zeros(0) if batch.weight is None else batch.weight  # none: every session counts once
        pairs, visits = self._pairs, self._visits
        for start in range(0, len(batch), CHUNK):
            end = min(start + CHUNK, len(batch))
            pairs.reserve(int(batch.page[end] - batch.page[start]))
            visits.reserve(end - start)
            pairs.used += _count_pairs(start, end, query, ad, batch.page, batch.click, batch.clicks, weight, pairs.keys, pairs.total, pairs.others)
            visits.used += _count_visits(start, end, query, sequence, weight, visits.keys, visits.total)
        self._lengths = _added(self._lengths, _length_table(batch))

    def sorted_codes(self, counts: Counts) -> tuple[Int32, Int32]:
        """For each of this counter's codes of queries and of ads, the one in its finished counts; −1 where it came to nothing."""
        return _inverse(self._queries.codes(counts.queries), self._queries.size), _inverse(self._ads.codes(counts.ads), self._ads.size)

    def add_counts(self, counts: Counts, sign: float = 1.0) -> None:
        """Add counts made earlier, or take them away with sign −1."""
        self._nothing = ROUNDING if sign < 0 else self._nothing
        query, ad = self._queries.codes(counts.queries).astype(np.int64), self._ads.codes(counts.ads).astype(np.int64)
        sequence = self._sequences.codes_of_bytes(counts.sequence_starts, counts.sequence_clicks.view(np.uint8), width=4).astype(np.int64)
        clicks, none = np.stack([counts.clicks, counts.last_clicks], axis=1), np.zeros((len(counts.sessions), 0))
        self._pairs.add(query[counts.pair_query], ad[counts.pair_ad], sign * counts.impressions, sign * clicks)
        self._visits.add(query[counts.visit_query], sequence[counts.visit_sequence], sign * counts.sessions, none)
        self._lengths = _added(self._lengths, sign * counts.lengths)

    def finish(self) -> Counts:
        """The totals in their one canonical order, without what has come to nothing."""
        pairs, visits = self._pairs.slots(self._nothing), self._visits.slots(self._nothing)
        (pair_query, pair_ad), (visit_query, visit_sequence) = self._pairs.codes(pairs), self._visits.codes(visits)
        starts, clicks, sequence_code = _sorted_sequences(self._sequences, visit_sequence)
        with ThreadPoolExecutor(2) as pool:  # sorting does not hold the GIL
            sorted_queries = pool.submit(_sorted_strings, self._queries, visit_query, pair_query)
            sorted_ads = pool.submit(_sorted_strings, self._ads, pair_ad)
            (queries, query_code), (ads, ad_code) = sorted_queries.result(), sorted_ads.result()
            sorted_pairs = pool.submit(_sorted_pairs, query_code[pair_query], ad_code[pair_ad])
            sorted_visits = pool.submit(_sorted_pairs, query_code[visit_query], sequence_code[visit_sequence])
        (pair_query, pair_ad, pair), (visit_query, visit_sequence, visit) = sorted_pairs.result(), sorted_visits.result()
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


class Grouper:
    """Groups equal sessions (query, ads, clicks) with their weight; `finish` gives the `Sessions`. Memory follows the distinct sessions."""

    def __init__(self) -> None:
        self._counter = Counter()
        self._sessions = Interner()  # the bytes of query, page length, ads, clicks
        self._weight = np.zeros(1024)  # [session]

    def add_batches(self, batches: Iterator[SessionBatch]) -> None:
        """Group every session of a log; a batch is counted and grouped side by side, and the next one read meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            for batch in batches:
                query, ad, sequence = self._counter.codes(batch)
                counted = pool.submit(self._counter.add, batch, query, ad, sequence)
                self._add(batch, query, ad)
                counted.result()

    def _add(self, batch: SessionBatch, query: Int32, ad: Int32) -> None:
        packed, starts = _pack(query, ad, batch.page, batch.click, batch.clicks)
        session = self._sessions.codes_of_bytes(starts, packed.view(np.uint8), width=4)
        if self._sessions.size > len(self._weight):
            self._weight = np.concatenate([self._weight, np.zeros(self._sessions.size * 3 // 2 - len(self._weight))])
        self._weight[: self._sessions.size] += np.bincount(session, batch.weight, self._sessions.size)

    def finish(self) -> Sessions:
        """The distinct sessions, in the order of their queries. The grouper is used up: its tables go before the sessions are laid out."""
        counts = self._counter.finish()
        query, ad = self._counter.sorted_codes(counts)
        del self._counter
        offsets, data = self._sessions.slices()
        starts = np.searchsorted(counts.pair_query, np.arange(len(counts.queries) + 1)).astype(np.int64)
        weight = self._weight[: self._sessions.size]
        packed, begin = data.view(np.int32), offsets // 4
        code = query[packed[begin[:-1]]]
        kept = np.flatnonzero((weight > 0) & (code >= 0))
        order = kept[np.argsort(code[kept], kind="stable")]
        page, clicks = _unpacked_starts(order, packed, begin)
        pair, click = np.empty(page[-1], np.int32), np.empty(clicks[-1], np.int32)
        with ThreadPoolExecutor(2) as pool:
            for half in np.array_split(np.arange(len(order)), 2):
                ends = (int(half[0]), int(half[-1]) + 1) if len(half) else (0, 0)
                pool.submit(_unpack, *ends, order, packed, begin, query, ad, starts, counts.pair_ad, page, clicks, pair, click)
        return Sessions(counts, pair, page, click, clicks, weight[order])


def _inverse(codes: Int32, size: int) -> Int32:
    """Where each code stands in an array of codes, −1 where it does not."""
    inverse = np.full(max(size, 1), -1, np.int32)
    inverse[codes] = np.arange(len(codes), dtype=np.int32)
    return inverse


def _sorted_pairs(first: Int32, second: Int32) -> tuple[Int32, Int32, Int64]:
    """Two codes sorted by the first, then the second, and the order that sorts them."""
    bits = [int(largest).bit_length() for largest in (first.max(initial=0), second.max(initial=0), len(first))]
    if sum(bits) < 64:  # a number that holds its own place is sorted far sooner than places by a number
        order = first.astype(np.int64)
        for more, width in ((second, bits[1]), (np.arange(len(first)), bits[2])):
            order <<= width
            order |= more
        order.sort()
        order &= (1 << bits[2]) - 1
    else:
        order = np.argsort((first.astype(np.int64) << 32) | second)
    return first[order], second[order], order


def _sorted_strings(interner: Interner, *used: Int32) -> tuple[pa.LargeStringArray, Int32]:
    """The strings that occur, in order, and each old code's new one."""
    old = _distinct(interner.size, *used)
    strings = interner.strings().take(pa.array(old))
    order = string_order(strings)
    code = np.full(max(interner.size, 1), -1, np.int32)
    code[old[order]] = np.arange(len(old), dtype=np.int32)
    return strings.take(pa.array(order)), code


def _distinct(size: int, *used: Int32) -> Int64:
    """The codes that occur, in order."""
    occurs = np.zeros(size, bool)
    for codes in used:
        occurs[codes] = True
    return np.flatnonzero(occurs)


def _sorted_sequences(interner: Interner, used: Int32) -> tuple[Int64, Int32, Int32]:
    """The click lists that occur, in order, as starts and positions; and each old code's new one."""
    offsets, data = interner.slices()
    positions, starts = data.view(np.int32), offsets // 4
    old = sorted(_distinct(interner.size, used), key=lambda code: tuple(positions[starts[code] : starts[code + 1]]))
    code = np.full(max(interner.size, 1), -1, np.int32)
    code[old] = np.arange(len(old), dtype=np.int32)
    lists = [positions[starts[c] : starts[c + 1]] for c in old]
    new_starts = np.concatenate([[0], np.cumsum([len(clicks) for clicks in lists])]).astype(np.int64)
    return new_starts, np.concatenate([np.zeros(0, np.int32), *lists]), code


def _length_table(batch: SessionBatch) -> Float64:
    """Sessions by page length and number of clicks."""
    table = np.zeros((_longest(batch.page) + 1, _longest(batch.clicks) + 1))
    _count_lengths(batch.page, batch.clicks, np.zeros(0) if batch.weight is None else batch.weight, table)
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


@compiled
def _taken(codes: Int32, index: Int32) -> Int32:
    """codes[index], in a pass of its own: what it reads stays in the cache, out of which the tables would push it."""
    out = np.empty(len(index), np.int32)
    for i in range(len(index)):
        out[i] = codes[index[i]]
    return out


@compiled
def _codes_of_short(clicks: Int64, click: Int32, short: Int32) -> Int32:
    """The code of click lists without a click, short[0], and of one click, short[its position]; −1 of longer ones."""
    codes = np.empty(len(clicks) - 1, np.int32)
    for s in range(len(codes)):
        many = clicks[s + 1] - clicks[s]
        codes[s] = -1 if many > 1 else short[click[clicks[s]] if many == 1 else 0]
    return codes


@compiled
def _count_pairs(
    start: int, end: int, query: Int32, ad: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64,
    keys: Int64, impressions: Float64, others: Float64,
) -> int:  # fmt: skip
    """Add the impressions and clicks of sessions start … end − 1 to their pairs; the number of new pairs."""
    new = 0
    room = TOGETHER * _longest(page[start : end + 1])
    wanted, more, slots = np.empty(room, np.int64), np.ones(room), np.empty(room, np.int64)  # [impression of a few sessions]
    for first in range(start, end, TOGETHER):
        beyond, top = min(first + TOGETHER, end), page[first]
        for s in range(first, beyond):
            for i in range(page[s], page[s + 1]):
                wanted[i - top] = key_of(query[s], ad[i])
                if len(weight):
                    more[i - top] = weight[s]
        size = page[beyond] - top
        new += add_block(keys, impressions, wanted[:size], more[:size], slots)
        for s in range(first, beyond):
            for c in range(clicks[s], clicks[s + 1]):
                at = page[s] - top + click[c] - 1
                others[slots[at], 0] += more[at]
                if c == clicks[s + 1] - 1:
                    others[slots[at], 1] += more[at]
    return new


@compiled
def _count_visits(start: int, end: int, query: Int32, sequence: Int32, weight: Float64, keys: Int64, sessions: Float64) -> int:
    """Add sessions start … end − 1 to their queries and click lists; the number of new ones."""
    new = 0
    wanted, more, slots = np.empty(TOGETHER, np.int64), np.ones(TOGETHER), np.empty(TOGETHER, np.int64)  # [session]
    for first in range(start, end, TOGETHER):
        size = min(first + TOGETHER, end) - first
        for i in range(size):
            wanted[i] = key_of(query[first + i], sequence[first + i])
            if len(weight):
                more[i] = weight[first + i]
        new += add_block(keys, sessions, wanted[:size], more[:size], slots)
    return new


@compiled
def _longest(starts: Int64) -> int:
    """The longest of runs laid end to end."""
    longest = 0
    for i in range(len(starts) - 1):
        longest = max(longest, starts[i + 1] - starts[i])
    return longest


@compiled
def _count_lengths(page: Int64, clicks: Int64, weight: Float64, table: Float64) -> None:
    for s in range(len(page) - 1):
        table[page[s + 1] - page[s], clicks[s + 1] - clicks[s]] += weight[s] if len(weight) else 1.0


@compiled
def _pack(query: Int32, ad: Int32, page: Int64, click: Int32, clicks: Int64) -> tuple[Int32, Int64]:
    """Each session as a run of numbers: query, page length, ads, clicks; and where each run starts."""
    packed = np.empty(2 * len(query) + len(ad) + len(click), np.int32)
    starts = np.zeros(len(query) + 1, np.int64)
    at = 0
    for s in range(len(query)):
        packed[at], packed[at + 1] = query[s], page[s + 1] - page[s]
        at += 2
        for i in range(page[s], page[s + 1]):
            packed[at] = ad[i]
            at += 1
        for c in range(clicks[s], clicks[s + 1]):
            packed[at] = click[c]
            at += 1
        starts[s + 1] = at
    return packed, starts


@compiled
def _unpacked_starts(order: Int64, packed: Int32, begin: Int64) -> tuple[Int64, Int64]:
    """Where the page and the clicks of each of `_pack`'s runs start, taken in this order."""
    page, clicks = np.zeros(len(order) + 1, np.int64), np.zeros(len(order) + 1, np.int64)
    for s in range(len(order)):
        length = packed[begin[order[s]] + 1]
        page[s + 1] = page[s] + length
        clicks[s + 1] = clicks[s] + begin[order[s] + 1] - begin[order[s]] - 2 - length
    return page, clicks


@compiled
def _unpack(
    start: int, end: int, order: Int64, packed: Int32, begin: Int64, query_code: Int32, ad_code: Int32, starts: Int64, pair_ad: Int32,
    page: Int64, clicks: Int64, pair: Int32, click: Int32,
) -> None:  # fmt: skip
    """Fill in the pages, as rows of the counts' pairs, and the clicks of the runs order[start] … order[end − 1]."""
    for s in range(start, end):
        at = begin[order[s]]
        q = query_code[packed[at]]
        at += 2
        first, last = starts[q], starts[q + 1]
        for i in range(page[s], page[s + 1]):
            pair[i] = first + np.searchsorted(pair_ad[first:last], ad_code[packed[at]])
            at += 1
        for c in range(clicks[s], clicks[s + 1]):
            click[c] = packed[at]
            at += 1
