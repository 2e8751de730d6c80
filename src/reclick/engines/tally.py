"""Running totals keyed by two codes, e.g. (query, ad) → impressions, clicks, last clicks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reclick.batch import Float64, Int32, Int64
from reclick.compiled import compiled

EMPTY = -1
BLOCK = 128  # keys looked up together
FULL = 0.7  # the share of slots used beyond which a table grows


@dataclass(slots=True)
class Tally:
    """A hash table with open addressing; kernels add to its arrays and the owner makes room between calls.

    A slot's key and totals lie side by side, so that looking it up and adding to it touch one line of the cache.
    """

    keys: Int64  # [slot] first << 32 | second, or EMPTY
    values: Float64  # [slot, total]
    used: int = 0

    @classmethod
    def empty(cls, totals: int, room: int = 512) -> Tally:
        """A table of `totals` running totals a key, with room for this many keys."""
        slots = 1 << max(10, int(room / FULL).bit_length())
        table = np.zeros((slots, 1 + totals))
        keys = table.view(np.int64)[:, 0]
        keys[:] = EMPTY
        return cls(keys, table[:, 1:])

    def reserve(self, keys: int) -> None:
        """Make room for this many more keys."""
        if self.used + keys <= FULL * len(self.keys):
            return
        bigger = Tally.empty(self.values.shape[1], self.used + keys)
        _move(self.keys, self.values, bigger.keys, bigger.values)
        self.keys, self.values = bigger.keys, bigger.values

    def add(self, first: Int64, second: Int64, values: Float64) -> None:
        """Add a row of totals for each pair of codes."""
        self.reserve(len(first))
        self.used += _add_all(self.keys, self.values, first, second, values)

    def totals(self) -> tuple[Int32, Int32, Float64]:
        """The two codes and the totals [total, key] of every key, in no order."""
        keys, values = np.empty(self.used, np.int64), np.empty((self.values.shape[1], self.used))
        _copy(self.keys, self.values, keys, values)
        return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32), values


@compiled
def key_of(first: int, second: int) -> int:
    """Two codes as one key."""
    return int((np.int64(first) << 32) | np.int64(second))


@compiled
def claim(keys: Int64, wanted: Int64, slots: Int64) -> int:
    """Fill slots with the slot of each wanted key, an empty one becoming that of a new key; the number of new keys.

    All are read before any is searched for: misses of the cache then overlap instead of queueing.
    """
    mask = np.int64(len(keys) - 1)
    met = np.empty(len(wanted), np.int64)  # the key in the slot where each is first looked for
    for i in range(len(wanted)):
        slots[i] = _home(wanted[i]) & mask
        met[i] = keys[slots[i]]
    new = 0
    for i in range(len(wanted)):
        if met[i] == wanted[i]:
            continue
        slot = slots[i]
        while keys[slot] != wanted[i]:
            if keys[slot] == EMPTY:
                keys[slot] = wanted[i]
                new += 1
                break
            slot = (slot + 1) & mask
        slots[i] = slot
    return new


@compiled
def _home(key: int) -> int:
    """Where a key is first looked for: the upper bits of the product depend on both codes."""
    return int(np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)))


@compiled
def _add_all(keys: Int64, values: Float64, first: Int64, second: Int64, rows: Float64) -> int:
    new = 0
    wanted, slots = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for start in range(0, len(first), BLOCK):
        size = min(BLOCK, len(first) - start)
        for i in range(size):
            wanted[i] = key_of(first[start + i], second[start + i])
        new += claim(keys, wanted[:size], slots)
        for i in range(size):
            for t in range(rows.shape[1]):
                values[slots[i], t] += rows[start + i, t]
    return new


@compiled
def _move(keys: Int64, values: Float64, new_keys: Int64, new_values: Float64) -> None:
    """Put every key of a table into a larger, empty one."""
    mask = np.int64(len(new_keys) - 1)
    for old in range(len(keys)):
        if keys[old] != EMPTY:
            slot = _home(keys[old]) & mask
            while new_keys[slot] != EMPTY:
                slot = (slot + 1) & mask
            new_keys[slot] = keys[old]
            for t in range(values.shape[1]):
                new_values[slot, t] = values[old, t]


@compiled
def _copy(keys: Int64, values: Float64, out_keys: Int64, out_values: Float64) -> None:
    """The used slots, one after the other."""
    used = 0
    for slot in range(len(keys)):
        if keys[slot] != EMPTY:
            out_keys[used] = keys[slot]
            for t in range(values.shape[1]):
                out_values[t, used] = values[slot, t]
            used += 1
