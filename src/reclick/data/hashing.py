"""Hashes of content: folds, samples and chunks that follow from the data, not from its order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Int32, Int64, UInt64, positions_in_runs, sum_runs
from reclick.data.string_index import Bytes, buffers
from reclick.runtime.jit import inline_kernel, kernel

GOLDEN_RATIO = 0x9E3779B97F4A7C15  # the increment of splitmix64
MIX_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
BUCKET_SEED = 42  # as in Spark's xxhash64
# The primes of XXH64
XXH_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def splitmix64(bits: UInt64) -> UInt64:
    """The output function of splitmix64: every bit of the result depends on every bit given.

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
    shown = pair.astype(np.uint64) << np.uint64(32) | positions_in_runs(page).astype(np.uint64)
    clicked = click.astype(np.uint64) << np.uint64(32)
    page_hash = sum_runs(hash_with_seed(shown, 2 * seed), page)
    return page_hash + sum_runs(hash_with_seed(clicked, 2 * seed + 1), clicks)


def content_hash(pair: Int32, page: Int64, click: Int32, clicks: Int64) -> Int64:
    """A hash [session] from 0 to 2³¹ − 1 of the pairs shown and of the clicks, in their order.

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
    """Mix each run into its state, element after element: first all first ones, then all second."""
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


def query_buckets(queries: pa.Array, n: int) -> Int32:
    """The bucket from 0 to n − 1 of each query: its XXH64 as a signed number, modulo n.

    It is the same in every process and the same as `pmod(xxhash64(query), n)` in Spark SQL, so a
    query, its pairs and its sessions are always in one bucket.

    >>> query_buckets(pa.array(["pizza", "shoes", "pizza"]), 10)
    array([4, 2, 4], dtype=int32)
    """
    hashes = xxh64(*buffers(queries), BUCKET_SEED).view(np.int64)
    return (hashes % np.int64(n)).astype(np.int32)


@kernel
def xxh64(offsets: Int64, data: Bytes, seed: int) -> UInt64:
    """The XXH64 hash of each slice data[offsets[i]:offsets[i + 1]]."""
    prime1, prime2 = np.uint64(XXH_PRIMES[0]), np.uint64(XXH_PRIMES[1])
    prime3, prime4, prime5 = (
        np.uint64(XXH_PRIMES[2]),
        np.uint64(XXH_PRIMES[3]),
        np.uint64(XXH_PRIMES[4]),
    )
    start_value = np.uint64(seed)
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(hashes)):
        at, end = offsets[i], offsets[i + 1]
        size = np.uint64(end - at)
        if end - at >= 32:
            a, b = start_value + prime1 + prime2, start_value + prime2
            c, d = start_value, start_value - prime1
            while at <= end - 32:
                a = _rotate(a + _word(data, at, 8) * prime2, 31) * prime1
                b = _rotate(b + _word(data, at + 8, 8) * prime2, 31) * prime1
                c = _rotate(c + _word(data, at + 16, 8) * prime2, 31) * prime1
                d = _rotate(d + _word(data, at + 24, 8) * prime2, 31) * prime1
                at += 32
            value = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
            for lane in (a, b, c, d):
                value ^= _rotate(lane * prime2, 31) * prime1
                value = value * prime1 + prime4
        else:
            value = start_value + prime5
        value += size
        while at <= end - 8:
            value ^= _rotate(_word(data, at, 8) * prime2, 31) * prime1
            value = _rotate(value, 27) * prime1 + prime4
            at += 8
        if at <= end - 4:
            value ^= _word(data, at, 4) * prime1
            value = _rotate(value, 23) * prime2 + prime3
            at += 4
        while at < end:
            value ^= np.uint64(data[at]) * prime5
            value = _rotate(value, 11) * prime1
            at += 1
        value = (value ^ (value >> np.uint64(33))) * prime2
        value = (value ^ (value >> np.uint64(29))) * prime3
        hashes[i] = value ^ (value >> np.uint64(32))
    return hashes


@inline_kernel
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inline_kernel
def _word(data: Bytes, at: int, size: int) -> np.uint64:
    """The bytes from `at` on as a number, the lowest first."""
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word
