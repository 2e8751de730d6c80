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

MAX_LOAD = 0.8  # the share of slots used beyond which a table grows


@dataclass(slots=True)
class HashTotals:
    """A hash table with open addressing; kernels add to its arrays, the owner makes room.

    A key is looked for in the whole cache line that it belongs to, then in the next. Its first
    total lies beside it, so most additions touch one line. The other totals, which fewer keys
    have, lie apart.
    """

    keys: Int64  # [slot] first << 32 | second, or EMPTY
    total: Float64  # [slot] the first total
    others: Float64  # [slot, other total]
    used: int = 0

    @classmethod
    def empty(cls, others: int = 0, room: int = 512) -> HashTotals:
        """A table of one total per key and this many others, with room for this many keys."""
        slots = 1 << max(10, int(room / MAX_LOAD).bit_length())
        table = cache_aligned_table(slots)
        table[:, 0] = EMPTY
        return cls(table[:, 0], table.view(np.float64)[:, 1], np.zeros((slots, others)))

    def reserve(self, keys: int) -> None:
        """Make room for this many more keys."""
        if self.used + keys <= MAX_LOAD * len(self.keys):
            return
        bigger = HashTotals.empty(self.others.shape[1], self.used + keys)
        if self.used:
            _move(self.keys, self.total, self.others, bigger.keys, bigger.total, bigger.others)
        self.keys, self.total, self.others = bigger.keys, bigger.total, bigger.others

    def slots(self) -> Int64:
        """The slots of the keys of which any total is not zero, in no order."""
        slots = np.flatnonzero(self.keys != EMPTY)
        if self.total[slots].min(initial=np.inf) > 0:
            return slots
        used = (self.total[slots] != 0) | (self.others[slots] != 0).any(axis=1)
        return np.asarray(slots[used])

    def codes(self, slots: Int64) -> tuple[Int32, Int32]:
        """The two codes of the keys in these slots."""
        keys = self.keys[slots]
        return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)


@subkernel
def join_codes(first: int, second: int) -> int:
    """Two codes as one key."""
    return int((np.int64(first) << 32) | np.int64(second))


@subkernel
def add_block(
    keys: Int64, total: Float64, wanted: Int64, more: Float64, size: int, slots: Int64,
    first_keys: Int64,
) -> int:  # fmt: skip
    """Add to the total of the first `size` wanted keys, and return the number of new keys.

    The slot of each is filled in. first_keys has room for a key of each.

    All are read before any is searched for, so that cache misses overlap instead of queueing. A
    line is searched without a branch.
    """
    mask = len(keys) - 1
    for i in range(size):
        slots[i] = _home(wanted[i], mask)
        first_keys[i] = keys[slots[i]]
    new = 0
    for i in range(size):
        home, key = slots[i], wanted[i]
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
    """The first slot of the line of a key: the upper bits of the product depend on both codes."""
    mixed = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32))
    return int((mixed * SLOTS_PER_LINE) & mask)


@subkernel
def _find_slot(keys: Int64, key: int, home: int) -> int:
    """The slot that holds a key, or the empty one where it belongs."""
    mask = len(keys) - 1
    slot = home
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & mask
    return slot


@kernel
def _move(
    keys: Int64,
    total: Float64,
    others: Float64,
    new_keys: Int64,
    new_total: Float64,
    new_others: Float64,
) -> None:
    """Put every key of a table into a larger, empty one."""
    mask = len(new_keys) - 1
    for old in range(len(keys)):
        if keys[old] != EMPTY:
            slot = _find_slot(new_keys, keys[old], _home(keys[old], mask))
            new_keys[slot] = keys[old]
            new_total[slot] = total[old]
            for t in range(others.shape[1]):
                new_others[slot, t] = others[old, t]
