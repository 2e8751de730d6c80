"""Hashes of content: folds, samples and chunks that follow from the data, not from its order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Bool, Int32, Int64, UInt64, positions_in_runs, sum_runs
from reclick.data.string_index import Bytes, buffers
from reclick.runtime.jit import kernel, subkernel

GOLDEN_RATIO = 0x9E3779B97F4A7C15  # the increment of splitmix64
MIX_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
QUERY_SEED = 42  # of the hash of queries, as in Spark
QUERY_SAMPLE_SEED = 7  # of the hash that samples queries
# The primes of XXH64.
PRIME_1, PRIME_2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3, PRIME_4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
PRIME_5 = np.uint64(0x27D4EB2F165667C5)


def splitmix64(bits: UInt64) -> UInt64:
    """The output function of splitmix64: every bit of the result depends on every bit of the input.

    >>> splitmix64(np.array([0, 1], np.uint64))
    array([                  0, 6238072747940578789], dtype=uint64)
    """
    for shift, factor in zip((30, 27), MIX_FACTORS, strict=True):
        bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(factor)
    return bits ^ bits >> np.uint64(31)


def hash_with_seed(bits: UInt64, seed: int) -> UInt64:
    """`splitmix64` of bits and a seed."""
    return splitmix64(bits ^ np.uint64(seed * GOLDEN_RATIO % 2**64))


def page_and_set_hash(pair: Int32, page: Int64, click: Int32, clicks: Int64, seed: int) -> UInt64:
    """A hash [session] of a seed, the pairs in their positions and the set of clicks."""
    cells = pair.astype(np.uint64) << np.uint64(32) | positions_in_runs(page).astype(np.uint64)
    clicked_positions = click.astype(np.uint64) << np.uint64(32)
    page_hash = sum_runs(hash_with_seed(cells, 2 * seed), page)
    return page_hash + sum_runs(hash_with_seed(clicked_positions, 2 * seed + 1), clicks)


def content_hash(pair: Int32, page: Int64, click: Int32, clicks: Int64) -> Int64:
    """A hash [session] from 0 to 2³¹ − 1 of the pairs and the clicks of a page, in order.

    >>> nothing = np.zeros(0, np.int32), np.array([0, 0])
    >>> content_hash(np.array([3, 4], np.int32), np.array([0, 2]), *nothing)
    array([33037661])
    """
    state = np.full(len(page) - 1, GOLDEN_RATIO, np.uint64)
    _mix_runs(state, pair, page, 1, MIX_FACTORS[0], 29)
    _mix_runs(state, click, clicks, 0x10000, MIX_FACTORS[1], 32)
    return (state >> np.uint64(33)).astype(np.int64)


def _mix_runs(
    state: UInt64, code: Int32, starts: Int64, offset: int, factor: int, shift: int
) -> None:
    """Mix each run into its state: the first element of every run, then the second, and so on."""
    sizes = np.diff(starts)
    for position in range(int(sizes.max(initial=0))):
        longer = np.flatnonzero(sizes > position)
        value = (code[starts[longer] + position].astype(np.int64) + offset).astype(np.uint64)
        mixed = (state[longer] ^ value) * np.uint64(factor)
        state[longer] = mixed ^ mixed >> np.uint64(shift)


def multiplicative_hash(code: Int64, buckets: int) -> Int64:
    """A bucket for each code (Knuth's multiplicative hash of 32 bits).

    >>> multiplicative_hash(np.arange(6), 3)
    array([0, 1, 0, 2, 1, 0])
    """
    return code.astype(np.int64) * 2_654_435_761 % (1 << 32) * buckets >> 32


def query_buckets(queries: pa.Array, buckets: int) -> Int64:
    """The bucket of each query: XXH64 of its UTF-8 bytes, modulo the number of buckets.

    It is the same in every process, and equal to Spark's `pmod(xxhash64(query), buckets)`.

    >>> query_buckets(pa.array(["pizza", "12345678"]), 7)
    array([3, 1])
    """
    return _xxhash64(*buffers(queries), QUERY_SEED) % buckets


def draw_queries(queries: pa.Array, share: float) -> Bool:
    """Draw about this share of the queries, by a hash of their text; returns a mask [query].

    The hash differs from that of the buckets, so that each bucket gives about the same share.
    """
    hashes = splitmix64(_xxhash64(*buffers(queries), QUERY_SAMPLE_SEED).astype(np.uint64))
    return np.asarray((hashes >> np.uint64(32)) < share * 2.0**32)


@kernel
def _xxhash64(offsets: Int64, data: Bytes, seed: int) -> Int64:
    """XXH64 of each string, as a signed number."""
    hashes = np.empty(len(offsets) - 1, np.int64)
    for i in range(len(hashes)):
        hashes[i] = _xxhash64_bytes(data, offsets[i], offsets[i + 1], seed)
    return hashes


@subkernel
def _xxhash64_bytes(data: Bytes, start: int, end: int, seed: int) -> int:
    at, base = start, np.uint64(seed)
    value = base + PRIME_5
    if end - start >= 32:
        a, b, c, d = base + PRIME_1 + PRIME_2, base + PRIME_2, base, base - PRIME_1
        while at + 32 <= end:
            a, b = _mix(a, _read(data, at, 8)), _mix(b, _read(data, at + 8, 8))
            c, d = _mix(c, _read(data, at + 16, 8)), _mix(d, _read(data, at + 24, 8))
            at += 32
        value = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            value = (value ^ _mix(np.uint64(0), lane)) * PRIME_1 + PRIME_4
    value += np.uint64(end - start)
    while at + 8 <= end:
        value ^= _mix(np.uint64(0), _read(data, at, 8))
        value = _rotate(value, 27) * PRIME_1 + PRIME_4
        at += 8
    if at + 4 <= end:
        value ^= _read(data, at, 4) * PRIME_1
        value = _rotate(value, 23) * PRIME_2 + PRIME_3
        at += 4
    for i in range(at, end):
        value ^= np.uint64(data[i]) * PRIME_5
        value = _rotate(value, 11) * PRIME_1
    value = (value ^ (value >> np.uint64(33))) * PRIME_2
    value = (value ^ (value >> np.uint64(29))) * PRIME_3
    return int(np.int64(value ^ (value >> np.uint64(32))))


@subkernel
def _mix(lane: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(lane + word * PRIME_2, 31) * PRIME_1


@subkernel
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@subkernel
def _read(data: Bytes, at: int, size: int) -> np.uint64:
    """The number in some bytes, the lowest byte first."""
    value = np.uint64(0)
    for i in range(size):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value
