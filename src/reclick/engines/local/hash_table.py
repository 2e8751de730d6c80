"""Running totals keyed by two codes, such as (query, ad) → impressions, clicks, last clicks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reclick.data.ragged import Float64, Int32, Int64
from reclick.data.string_index import (
    EMPTY,
    SLOTS_PER_LINE,
    cache_aligned_table,
    find_in_line,
)
from reclick.runtime.jit import kernel, subkernel

MAX_LOAD = 0.8  # a table grows if a larger share of its slots is used


@dataclass(slots=True)
class HashTotals:
    """A hash table with open addressing: kernels add to its arrays, and `reserve` makes room first.

    A key is searched for in the whole cache line that it belongs to, then in the next line. The
    first total is stored next to the key, so most additions touch one cache line. The other totals,
    which are zero for most keys, are in another array.
    """

    keys: Int64  # [slot] first << 32 | second, or EMPTY
    total: Float64  # [slot] the first total
    other_totals: Float64  # [slot, total]
    n_keys: int = 0

    @classmethod
    def empty(cls, n_other: int = 0, room: int = 512) -> HashTotals:
        """Make a table with 1 + n_other totals per key, and room for this many keys."""
        slots = 1 << max(10, int(room / MAX_LOAD).bit_length())
        table = cache_aligned_table(slots)
        table[:, 0] = EMPTY
        return cls(table[:, 0], table.view(np.float64)[:, 1], np.zeros((slots, n_other)))

    def reserve(self, keys: int) -> None:
        """Make room for this many more keys."""
        if self.n_keys + keys <= MAX_LOAD * len(self.keys):
            return
        bigger = HashTotals.empty(self.other_totals.shape[1], self.n_keys + keys)
        if self.n_keys:
            _move(
                *(self.keys, self.total, self.other_totals),
                *(bigger.keys, bigger.total, bigger.other_totals),
            )
        self.keys, self.total = bigger.keys, bigger.total
        self.other_totals = bigger.other_totals

    def slots(self) -> Int64:
        """Return the slots of the keys with a total that is not zero, in any order."""
        slots = np.flatnonzero(self.keys != EMPTY)
        if self.total[slots].min(initial=np.inf) > 0:
            return slots
        is_used = (self.total[slots] != 0) | (self.other_totals[slots] != 0).any(axis=1)
        return np.asarray(slots[is_used])

    def codes(self, slots: Int64) -> tuple[Int32, Int32]:
        """Return the two codes of the keys in these slots."""
        keys = self.keys[slots]
        return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)


@subkernel
def join_codes(first: int, second: int) -> int:
    """Join two codes to a key."""
    return int((np.int64(first) << 32) | np.int64(second))


@subkernel
def add_block(
    keys: Int64, total: Float64, block_keys: Int64, more: Float64, size: int, slots: Int64,
    first_keys: Int64,
) -> int:  # fmt: skip
    """Add to the totals of the first `size` keys of a block, and return the number of new keys.

    `slots` is filled with the slot of each key; first_keys is scratch space of the same size.

    The first slot of every key is read before any key is searched for, so that cache misses overlap
    instead of queueing. A cache line is searched without a branch.
    """
    mask = len(keys) - 1
    for i in range(size):
        slots[i] = _home(block_keys[i], mask)
        first_keys[i] = keys[slots[i]]
    new = 0
    for i in range(size):
        home, key = slots[i], block_keys[i]
        place = find_in_line(keys, home, first_keys[i], key)
        slot = home + place
        if place < 0:
            slot = _find_slot(keys, key, home)
            new += keys[slot] == EMPTY
            keys[slot] = key
        total[slot] += more[i]
        slots[i] = slot
    return new


@subkernel
def _home(key: int, mask: int) -> int:
    """Return the first slot of the line of a key. The product's upper bits depend on both codes."""
    mixed = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32))
    return int((mixed * SLOTS_PER_LINE) & mask)


@subkernel
def _find_slot(keys: Int64, key: int, home: int) -> int:
    """Return the slot of a key, or the empty slot where it belongs."""
    mask = len(keys) - 1
    slot = home
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & mask
    return slot


@kernel
def _move(
    keys: Int64,
    total: Float64,
    other_totals: Float64,
    new_keys: Int64,
    new_total: Float64,
    new_other_totals: Float64,
) -> None:
    """Move every key of a table to a larger, empty table."""
    mask = len(new_keys) - 1
    for old in range(len(keys)):
        if keys[old] != EMPTY:
            slot = _find_slot(new_keys, keys[old], _home(keys[old], mask))
            new_keys[slot] = keys[old]
            new_total[slot] = total[old]
            for t in range(other_totals.shape[1]):
                new_other_totals[slot, t] = other_totals[old, t]
