"""Running totals keyed by two codes, e.g. (query, ad) → impressions, clicks, last clicks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.engines.local.cachelines import SLOTS, aligned, place_in_line
from reclick.runtime.jit import kernel

EMPTY = -1
BLOCK = 128  # keys looked up together
STEP = 1 << 16  # keys that room is made for at a time
FULL = 0.8  # the share of slots used beyond which a table grows


@dataclass(slots=True)
class Totals:
    """A hash table with open addressing; kernels add to its arrays and the owner makes room between calls.

    A key is looked for in the whole line of the cache that it belongs to, then in the next. Its first total lies beside it, so that most of what is
    added touches one line; the other totals, which fewer keys have, lie apart.
    """

    keys: Int64  # [slot] first << 32 | second, or EMPTY
    total: Float64  # [slot] the first total
    others: Float64  # [slot, other total]
    used: int = 0

    @classmethod
    def empty(cls, others: int = 0, room: int = 512) -> Totals:
        """A table of one total a key and so many others, with room for this many keys."""
        slots = 1 << max(10, int(room / FULL).bit_length())
        table = aligned(slots)
        table[:, 0] = EMPTY
        return cls(table[:, 0], table.view(np.float64)[:, 1], np.zeros((slots, others)))

    def reserve(self, keys: int) -> None:
        """Make room for this many more keys."""
        if self.used + keys <= FULL * len(self.keys):
            return
        bigger = Totals.empty(self.others.shape[1], self.used + keys)
        _move(self.keys, self.total, self.others, bigger.keys, bigger.total, bigger.others)
        self.keys, self.total, self.others = bigger.keys, bigger.total, bigger.others

    def add(self, first: Int64, second: Int64, total: Float64, others: Float64) -> None:
        """Add a total, and a row of the others, for each pair of codes."""
        step = (
            len(first) if self.used == 0 else STEP
        )  # with keys here already, most of those to come may be known: no room is made for all
        for start in range(0, len(first), max(step, 1)):
            some = slice(start, start + step)
            self.reserve(len(first[some]))
            self.used += _add_all(
                self.keys,
                self.total,
                self.others,
                first[some],
                second[some],
                total[some],
                others[some],
            )

    def slots(self, nothing: float = 0.0) -> Int64:
        """The slots of the keys of which any total is more than nothing, in no order."""
        slots = np.flatnonzero(self.keys != EMPTY)
        if self.total[slots].min(initial=np.inf) > nothing:
            return slots
        return slots[
            (np.abs(self.total[slots]) > nothing)
            | (np.abs(self.others[slots]) > nothing).any(axis=1)
        ]

    def codes(self, slots: Int64) -> tuple[Int32, Int32]:
        """The two codes of the keys in these slots."""
        keys = self.keys[slots]
        return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)


@kernel
def key_of(first: int, second: int) -> int:
    """Two codes as one key."""
    return int((np.int64(first) << 32) | np.int64(second))


@kernel
def add_block(keys: Int64, total: Float64, wanted: Int64, more: Float64, slots: Int64) -> int:
    """Add to the total of each wanted key, fill slots with where it is, and return the number of new keys.

    All are read before any is searched for: misses of the cache then overlap instead of queueing. A line is searched without a branch.
    """
    mask = len(keys) - 1
    met = np.empty(len(wanted), np.int64)  # the first key of the line that each belongs to
    for i in range(len(wanted)):
        slots[i] = _home(wanted[i], mask)
        met[i] = keys[slots[i]]
    new = 0
    for i in range(len(wanted)):
        home, key = slots[i], wanted[i]
        place = place_in_line(keys, home, met[i], key)
        slot = home + place
        if place < 0:
            slot = _slot(keys, key, home)
            new += keys[slot] == EMPTY
            keys[slot] = key
        total[slot] += more[i]
        slots[i] = slot
    return new


@kernel
def _home(key: int, mask: int) -> int:
    """The first slot of the line that a key belongs to: the upper bits of the product depend on both codes."""
    return int(
        (np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) * SLOTS) & mask
    )


@kernel
def _slot(keys: Int64, key: int, home: int) -> int:
    """The slot that holds a key, or the empty one where it belongs."""
    mask = len(keys) - 1
    slot = home
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & mask
    return slot


@kernel
def _add_all(
    keys: Int64,
    total: Float64,
    others: Float64,
    first: Int64,
    second: Int64,
    more: Float64,
    more_others: Float64,
) -> int:
    new = 0
    wanted, slots = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for start in range(0, len(first), BLOCK):
        size = min(BLOCK, len(first) - start)
        for i in range(size):
            wanted[i] = key_of(first[start + i], second[start + i])
        new += add_block(keys, total, wanted[:size], more[start : start + size], slots)
        for i in range(size):
            for t in range(others.shape[1]):
                others[slots[i], t] += more_others[start + i, t]
    return new


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
            slot = _slot(new_keys, keys[old], _home(keys[old], mask))
            new_keys[slot] = keys[old]
            new_total[slot] = total[old]
            for t in range(others.shape[1]):
                new_others[slot, t] = others[old, t]
