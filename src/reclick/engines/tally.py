"""Running totals keyed by two codes, e.g. (query, ad) → impressions, clicks, last clicks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reclick.batch import Float64, Int32, Int64
from reclick.compiled import compiled

EMPTY = -1
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
def find(keys: Int64, first: int, second: int) -> int:
    """The slot of this key, or the empty slot where it belongs."""
    key = (np.int64(first) << 32) | np.int64(second)
    mask = np.int64(len(keys) - 1)
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(32)) & mask  # the upper bits depend on both codes
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & mask
    return int(slot)


@compiled
def claim(keys: Int64, slot: int, first: int, second: int) -> int:
    """Take an empty slot for this key; 1 when the key is new."""
    if keys[slot] != EMPTY:
        return 0
    keys[slot] = (np.int64(first) << 32) | np.int64(second)
    return 1


@compiled
def _add_all(keys: Int64, values: Float64, first: Int64, second: Int64, rows: Float64) -> int:
    new = 0
    for i in range(len(first)):
        slot = find(keys, first[i], second[i])
        new += claim(keys, slot, first[i], second[i])
        for t in range(rows.shape[1]):
            values[slot, t] += rows[i, t]
    return new


@compiled
def _move(keys: Int64, values: Float64, new_keys: Int64, new_values: Float64) -> None:
    for old in range(len(keys)):
        if keys[old] != EMPTY:
            slot = find(new_keys, keys[old] >> 32, keys[old] & 0xFFFFFFFF)
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
