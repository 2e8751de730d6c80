"""Records of logs: a fingerprint, the size and times, and a sample of the sessions.

A model keeps the records of its logs. If a log is read again, it is recognised, even from other
files and with its rows in another order. A session is identified by a 64-bit hash of its query,
page, clicks and, if the log has it, time. The sample has the smallest of these hashes (a bottom-k
sketch), so the samples of two logs contain the same part of the sessions that both have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.hashing import MIX_FACTORS
from reclick.data.ragged import Float64, Int64, UInt32, UInt64, read_only
from reclick.data.schema import is_time
from reclick.data.string_index import Bytes, buffers
from reclick.data.timestamps import as_times
from reclick.errors import escape_controls
from reclick.runtime.arguments import check_arguments
from reclick.runtime.jit import kernel, subkernel

SAMPLE_SIZE = 8_192  # distinct sessions in the sample of a log
NO_TIME = -(2**63)
ALL_HASHES = np.uint64(2**64 - 1)
MIN_EXPECTED = 20.0  # new sessions; with fewer, their absence may be by chance
MIN_OVERLAP = 0.01
STANDARD_ERRORS = 4.0  # by which an overlap must exceed what repeated sessions explain
MAX_HASHED_WEIGHT = 1e15
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
NO_INTEGERS: Int64 = read_only(np.zeros(0, np.int64))
NO_NUMBERS: Float64 = read_only(np.zeros(0))
NO_KEYS: UInt64 = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class SessionSample:
    """The distinct sessions of a log with the smallest hashes."""

    keys: UInt64  # [key] sorted
    sessions: Float64  # [key] how many sessions have it
    limit: np.uint64 = ALL_HASHES  # every session with a hash up to this one is in the sample

    @classmethod
    def from_hashes(cls, hashes: UInt64, sessions: Float64, limit: np.uint64) -> SessionSample:
        """Make a sample of the distinct hashes, all of which are at most `limit`."""
        keys, index = np.unique(hashes, return_inverse=True)
        return cls(keys, np.bincount(index, sessions, len(keys)).astype(np.float64), limit)

    def cut(self, size: int) -> SessionSample:
        """A sample of at most `size` sessions."""
        if len(self.keys) <= size:
            return self
        return SessionSample(self.keys[:size], self.sessions[:size], self.keys[size - 1])

    def up_to(self, limit: np.uint64) -> tuple[UInt64, Float64]:
        """The keys up to a limit, and the number of sessions of each."""
        end = int(np.searchsorted(self.keys, limit, side="right"))
        return self.keys[:end], self.sessions[:end]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A log that was read to the end."""

    name: str
    sessions: int
    content: str  # hash of the queries, pages, clicks and weights, in any order
    timed: str | None  # the same with the times; None when the log has none
    start: str | None  # the earliest and the latest time, ISO 8601, UTC
    end: str | None
    # Its hashes include the time, if the log has it
    sample: SessionSample = field(repr=False, compare=False)
    has_weights: bool = field(default=False, compare=False)  # not all 1; False if it was loaded

    @check_arguments
    def same_log(self, other: LogRecord) -> bool:
        """Whether both logs have the same sessions, with the same times if both have times."""
        same_content = (self.content, self.sessions) == (other.content, other.sessions)
        times = {each.timed for each in (self, other) if each.timed is not None}
        return same_content and len(times) < 2

    @property
    def period(self) -> str:
        """The time range in words; empty where the log has no times."""
        if self.start is None or self.end is None:
            return ""
        first, last = self.start[:10], self.end[:10]
        return first if first == last else f"{first} to {last}"

    def to_dict(self) -> dict[str, Any]:
        """Return built-in types only, without the sample."""
        names = ("name", "sessions", "content", "timed", "start", "end")
        return {name: getattr(self, name) for name in names}


# ---- recording


class LogRecorder:
    """Makes the record of a log, batch by batch."""

    def __init__(self, sample_size: int = SAMPLE_SIZE) -> None:
        self._size = sample_size
        self._sessions = 0
        self._content = self._timed = 0  # sums of hashes, which do not depend on the order of rows
        self._range: tuple[int, int] | None = None  # of the times, in microseconds
        self._has_weights = False
        self._hashes: list[UInt64] = []  # up to the limit, which falls as hashes are added
        self._counts: list[Float64] = []
        self._limit = ALL_HASHES
        self._texts: dict[str, tuple[pa.Array, UInt64]] = {}  # of the last batch
        self._keys: UInt64 = NO_KEYS  # room for the hashes of a batch

    def pass_on(self, batches: Iterable[SessionBatch]) -> Iterator[SessionBatch]:
        """Record batches while passing them on."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: SessionBatch) -> None:
        """Add a batch."""
        times, weight = _read_times(batch), batch.weight
        if len(self._keys) < len(batch):
            self._keys = np.empty(len(batch), np.uint64)
        keys = self._keys[: len(batch)]
        content, content_and_time = hash_sessions(
            self._hash_texts("queries", batch.queries),
            self._hash_texts("ads", batch.ads),
            batch.query.view(np.uint32),
            batch.ad.view(np.uint32),
            batch.page.view(np.uint64),
            batch.click.view(np.uint32),
            batch.clicks.view(np.uint64),
            NO_INTEGERS if times is None else read_only(times),
            NO_NUMBERS if weight is None else weight,
            keys,
        )
        if times is not None:
            self._extend_range(times)
        self._sessions += len(batch)
        self._content += int(content)
        self._timed += int(content_and_time)
        if weight is not None and not self._has_weights:
            self._has_weights = bool((weight != 1).any())
        self._sample(keys, weight)

    def merge(self, other: LogRecorder) -> None:
        """Add the record of another part of the same log."""
        self._sessions += other._sessions
        self._content += other._content
        self._timed += other._timed
        self._has_weights |= other._has_weights
        if other._range is not None:
            self._extend_range(np.array(other._range))
        samples = self._merge_sample(), other._merge_sample()
        limit = min(each.limit for each in samples)
        keys, sessions = zip(*(each.up_to(limit) for each in samples), strict=True)
        both = SessionSample.from_hashes(np.concatenate(keys), np.concatenate(sessions), limit)
        both = both.cut(self._size)
        self._hashes, self._counts, self._limit = [both.keys], [both.sessions], both.limit

    def __getstate__(self) -> dict[str, Any]:
        sample = self._merge_sample()
        sample_state = {
            "_hashes": [sample.keys],
            "_counts": [sample.sessions],
            "_limit": sample.limit,
        }
        return {**vars(self), **sample_state, "_texts": {}, "_keys": NO_KEYS}

    def finish(self, name: str) -> LogRecord:
        """Return the record."""
        has_times = self._range is not None
        first, last = self._range or (0, 0)
        return LogRecord(
            name=escape_controls(name),  # a file name may be invalid text
            sessions=self._sessions,
            content=f"{self._content % 2**64:016x}",
            timed=f"{self._timed % 2**64:016x}" if has_times else None,
            start=_format_time(first) if has_times else None,
            end=_format_time(last) if has_times else None,
            sample=self._merge_sample(),
            has_weights=self._has_weights,
        )

    def _hash_texts(self, column: str, texts: pa.Array) -> UInt64:
        """The hash of each text, cached: all batches of a Parquet row group have the same texts."""
        entry = self._texts.get(column)
        if entry is None or entry[0] is not texts:
            entry = self._texts[column] = (texts, np.empty(len(texts), np.uint64))
            hash_texts(*buffers(texts), entry[1])
        return entry[1]

    def _extend_range(self, times: Int64) -> None:
        known_times = times[times != NO_TIME]
        if len(known_times):
            first, last = int(known_times.min()), int(known_times.max())
            low, high = self._range or (first, last)
            self._range = min(low, first), max(high, last)

    def _sample(self, hashes: UInt64, weight: Float64 | None) -> None:
        below = np.flatnonzero(hashes <= self._limit)
        self._hashes.append(hashes[below])
        counts = np.ones(len(below)) if weight is None else np.maximum(weight[below], 1.0)
        self._counts.append(counts)
        if sum(map(len, self._hashes)) > 8 * self._size:
            sample = self._merge_sample()
            self._hashes, self._counts = [sample.keys], [sample.sessions]
            self._limit = sample.limit

    def _merge_sample(self) -> SessionSample:
        if not self._hashes:
            return SessionSample(np.zeros(0, np.uint64), np.zeros(0))
        hashes, counts = np.concatenate(self._hashes), np.concatenate(self._counts)
        n_candidates = 4 * self._size
        if len(hashes) > n_candidates:  # sorting these is enough, unless many are equal
            below = hashes <= np.partition(hashes, n_candidates)[n_candidates]
            sample = SessionSample.from_hashes(hashes[below], counts[below], self._limit)
            if len(sample.keys) > self._size:
                return sample.cut(self._size)
        return SessionSample.from_hashes(hashes, counts, self._limit).cut(self._size)


@kernel
def hash_texts(offsets: Int64, data: Bytes, hashes: UInt64) -> None:
    """Fill in the hash of each text: FNV-1a with a final mix."""
    for i in range(len(hashes)):
        state = np.uint64(FNV_OFFSET)
        for j in range(offsets[i], offsets[i + 1]):
            state = (state ^ np.uint64(data[j])) * np.uint64(FNV_PRIME)
        hashes[i] = state ^ (state >> np.uint64(29))


@kernel
def hash_sessions(
    query_hash: UInt64,
    ad_hash: UInt64,
    query: UInt32,
    ad: UInt32,
    page: UInt64,
    click: UInt32,
    clicks: UInt64,
    time: Int64,
    weight: Float64,
    keys: UInt64,
) -> tuple[np.uint64, np.uint64]:
    """Fill in a hash [session] of the query, the ads and the clicks in their order, and the time.

    Returns the sums of the hashes without and with the time, each with the weight. `time` and
    `weight` are empty when the log has none. Codes and starts are unsigned, because every signed
    index is first compared with 0; and two short loops take less time than one long loop.
    """
    for row in range(len(query)):
        state = query_hash[query[row]]
        for i in range(page[row], page[row + 1]):
            state = append_bits(state, ad_hash[ad[i]])
        keys[row] = append_bits(state, page[row + 1] - page[row])
    content_sum, timed_sum = np.uint64(0), np.uint64(0)
    for row in range(len(query)):
        state = keys[row]
        for i in range(clicks[row], clicks[row + 1]):
            state = append_bits(state, np.uint64(click[i]))
        content = mix_bits(state, clicks[row + 1] - clicks[row])
        with_time = content
        if len(time) and time[row] != NO_TIME:
            with_time = mix_bits(content, np.uint64(time[row]))
        keys[row] = with_time
        if len(weight):
            thousandths = np.uint64(np.int64(min(weight[row], MAX_HASHED_WEIGHT) * 1000))
            content, with_time = mix_bits(content, thousandths), mix_bits(with_time, thousandths)
        content_sum += content
        timed_sum += with_time
    return content_sum, timed_sum


@subkernel
def append_bits(state: np.uint64, bits: np.uint64) -> np.uint64:
    """A state after some bits, in half the time of `mix_bits`, which must come last."""
    state = (state ^ bits) * np.uint64(MIX_FACTORS[0])
    return state ^ (state >> np.uint64(29))


@subkernel
def mix_bits(state: np.uint64, bits: np.uint64) -> np.uint64:
    """A hash of a state and of the bits that follow it."""
    state = (state ^ bits) * np.uint64(MIX_FACTORS[0])
    state = (state ^ (state >> np.uint64(27))) * np.uint64(MIX_FACTORS[1])
    return state ^ (state >> np.uint64(31))


def _read_times(batch: SessionBatch) -> Int64 | None:
    """The times [session] in microseconds since 1970, `NO_TIME` where unknown; None without any."""
    if batch.time is None or not is_time(batch.time.type):
        return None
    times = as_times(batch.time)
    return np.asarray(times.cast(pa.int64()).fill_null(NO_TIME), np.int64)


def _format_time(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us").astype("datetime64[s]"))


# ---- comparing


def estimate_overlap(log: LogRecord, other: LogRecord) -> float:
    """The share of the sessions of a log that are also in another; 0 if that may be by chance.

    Equal sessions also occur by chance: the same page with the same clicks, even often in logs
    without times. If t of the m sessions of `other` occur once, n · t / m of n new sessions from
    the same source are expected not to be in `other` (the Good–Turing estimate). If u sessions are
    not in it, the overlap is 1 − u m / (n t), which must exceed 1 % and 4 standard errors. Without
    times, the log may come from a part of the source where sessions repeat more often. Then only a
    log all of whose sessions are in `other`, each at least as often, is recognised.
    """
    if log.same_log(other):
        return 1.0
    if (log.timed is None) != (other.timed is None):
        return 0.0
    limit = min(log.sample.limit, other.sample.limit)
    keys, sessions = log.sample.up_to(limit)
    other_keys, other_sessions = other.sample.up_to(limit)
    total, other_total = float(sessions.sum()), float(other_sessions.sum())
    n_unique = float(np.count_nonzero(other_sessions == 1))
    expected = n_unique * total / max(other_total, 1.0)
    if expected < MIN_EXPECTED:
        return 0.0
    sessions_in_other = _look_up(keys, other_keys, other_sessions)
    if log.timed is None:
        return float((sessions_in_other >= sessions).all())
    missing = sessions_in_other == 0
    number_missing = float(sessions[missing].sum())
    deviations = sessions * (missing - number_missing / total)  # sessions are drawn by their keys
    variance_missing = (float((deviations**2).sum()) + 1.0) / expected**2
    variance_expected = (other_total - n_unique + 1.0) / (n_unique * other_total)
    overlap = 1.0 - number_missing / expected
    variance = variance_missing + (1.0 - overlap) ** 2 * variance_expected
    is_significant = overlap >= MIN_OVERLAP and overlap >= STANDARD_ERRORS * variance**0.5
    return overlap if is_significant else 0.0


def _look_up(keys: UInt64, table_keys: UInt64, values: Float64) -> Float64:
    """The values of sorted keys; 0 for keys that are not in the table."""
    place = np.searchsorted(table_keys, keys)
    place[place == len(table_keys)] = 0
    return np.where(table_keys[place] == keys, values[place], 0.0)


# ---- as tables


def records_to_table(logs: Sequence[LogRecord]) -> pa.Table:
    """The samples of some logs as a table; `to_dict` has the rest of each record."""
    samples = [each.sample for each in logs]
    return pa.table(
        {
            "keys": pa.array([each.keys for each in samples], pa.large_list(pa.uint64())),
            "sessions": pa.array([each.sessions for each in samples], pa.large_list(pa.float64())),
            "limit": pa.array([each.limit for each in samples], pa.uint64()),
        }
    )


def records_from_table(descriptions: Sequence[dict[str, Any]], table: pa.Table) -> list[LogRecord]:
    """Rebuild the records from the results of `to_dict` and `records_to_table`."""
    names = ("name", "sessions", "content", "timed", "start", "end")
    return [
        LogRecord(
            **{name: each[name] for name in names},
            sample=SessionSample(
                table["keys"][row].values.to_numpy(),
                table["sessions"][row].values.to_numpy(),
                np.uint64(table["limit"][row].as_py()),
            ),
        )
        for row, each in enumerate(descriptions)
    ]


def remove_logs(
    logs: Sequence[LogRecord], logs_to_remove: Iterable[LogRecord]
) -> tuple[LogRecord, ...]:
    """The logs without those to remove; each of these removes at most one equal log."""
    remaining = list(logs)
    for log in logs_to_remove:
        place = next((i for i, each in enumerate(remaining) if each.same_log(log)), None)
        if place is not None:
            del remaining[place]
    return tuple(remaining)
