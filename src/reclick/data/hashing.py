"""Hashes of content: folds, samples and chunks that follow from the data, not from its order."""

from __future__ import annotations

import numpy as np

from reclick.data.ragged import Int32, Int64, UInt64, positions_in_runs, sum_runs

GOLDEN_RATIO = 0x9E3779B97F4A7C15  # the increment of splitmix64
MIX_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


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
