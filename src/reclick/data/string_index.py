"""Distinct byte strings and their codes: queries and ads across batches, and click lists as the bytes of their positions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.data.batch import Int32, Int64
from reclick.engines.local.cachelines import SLOTS, aligned, place_in_line
from reclick.runtime.jit import kernel

Bytes = npt.NDArray[np.uint8]
EMPTY = -1
FULL = 0.6  # the share of slots used beyond which a table grows
BLOCK = 128  # strings looked up together, so that their memory accesses overlap
WORD = 4  # bytes
HEAD = 2  # words before each string: its code and its size


class Interner:
    """Gives every distinct string a code 0, 1, 2 … in the order first met.

    A slot holds a string's hash and where it stands in the arena, there after its code and its size: to look it up is to visit two places.

    >>> Interner().codes(pa.array(["b", "a", "b"]))
    array([0, 1, 0], dtype=int32)
    """

    def __init__(self) -> None:
        self.size = 0
        self._end = 0  # words of the arena that are used
        self._slots = _empty(1024)  # [slot] hash, and place in the arena or EMPTY; open addressing
        self._arena: Int32 = np.zeros(
            1 << 12, np.int32
        )  # every distinct string: code, size, and bytes filled up to whole words

    def codes(self, strings: pa.Array) -> Int32:
        """The code of each string; new strings are added."""
        return self.codes_of_bytes(*buffers(strings))

    def codes_of_bytes(self, offsets: Int64, data: Bytes, *, width: int = 1) -> Int32:
        """The code of each slice data[offsets[i]:offsets[i + 1]], its items being `width` bytes wide; new ones are added."""
        codes = np.empty(len(offsets) - 1, np.int32)
        done = 0
        while done < len(codes):
            end = min(
                len(codes), done + max(4096, self.size // 16)
            )  # room for this many, not for all, as most are known
            self._reserve(end - done, int(offsets[end] - offsets[done]) * width)
            self._look_up(offsets[done : end + 1], width, data, codes[done:end], add=True)
            done = end
        return codes

    def find(self, strings: pa.Array) -> Int32:
        """The code of each string, -1 for one never met."""
        offsets, data = buffers(strings)
        codes = np.empty(len(strings), np.int32)
        self._look_up(offsets, 1, data, codes, add=False)
        return codes

    def strings(self) -> pa.LargeStringArray:
        """Every string, by its code."""
        offsets, data = self.slices()
        return pa.LargeStringArray.from_buffers(
            len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data)
        )

    def slices(self) -> tuple[Int64, Bytes]:
        """Every string by its code, as offsets and bytes of their own."""
        offsets = _offsets(self._arena, self.size)
        data = np.empty(offsets[-1], np.uint8)
        _copy(self._arena, self._arena.view(np.uint8), offsets, data)
        return offsets, data

    def _look_up(self, offsets: Int64, width: int, data: Bytes, codes: Int32, *, add: bool) -> None:
        """Fill in the codes; a string never met gets a new one, or −1."""
        arena = self._arena
        self.size, self._end = _look_up(
            self._slots,
            arena,
            arena.view(np.uint8),
            self.size,
            self._end,
            offsets,
            width,
            data,
            codes,
            add,
        )

    def _reserve(self, strings: int, size: int) -> None:
        """Make room for this many more strings of this many bytes in all."""
        words = self._end + strings * (HEAD + 1) + size // WORD
        if words > len(self._arena):
            bigger = np.zeros(max(words, len(self._arena) * 3 // 2), np.int32)
            bigger[: self._end] = self._arena[: self._end]
            self._arena = bigger
        if self.size + strings > FULL * len(self._slots):
            bigger_slots = _empty(1 << int((self.size + strings) / FULL).bit_length())
            _move(self._slots, bigger_slots)
            self._slots = bigger_slots


def buffers(strings: pa.Array) -> tuple[Int64, Bytes]:
    """The offsets and bytes behind an Arrow string array without nulls."""
    strings = strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings
    wide = pa.types.is_large_string(strings.type)
    _, offsets, data = strings.buffers()
    if offsets is None or len(strings) == 0:
        return np.zeros(len(strings) + 1, np.int64), np.zeros(0, np.uint8)
    raw = np.frombuffer(offsets, np.int64 if wide else np.int32)[
        strings.offset : strings.offset + len(strings) + 1
    ]
    starts = raw.astype(np.int64)
    starts.flags.writeable = (
        False  # as those of a batch's click lists are, so that kernels compile once
    )
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _empty(slots: int) -> Int64:
    table = aligned(slots)
    table[:, 1] = EMPTY
    return table


@kernel
def _hash(data: Bytes, start: int, end: int) -> int:
    """FNV-1a with a final mix, so that the low bits used for slots depend on every byte."""
    value = np.uint64(14695981039346656037)
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * np.uint64(1099511628211)
    value ^= value >> np.uint64(32)
    value *= np.uint64(0x9E3779B97F4A7C15)
    return int(np.int64(value ^ (value >> np.uint64(29))))


@kernel
def _look_up(
    slots: Int64,
    arena: Int32,
    text: Bytes,
    size: int,
    end: int,
    offsets: Int64,
    width: int,
    data: Bytes,
    codes: Int32,
    add: bool,
) -> tuple[int, int]:
    """Fill in the codes of strings, a block at a time: misses of the cache then overlap instead of queueing. The new size and end."""
    hashes, places = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for first in range(0, len(codes), BLOCK):
        many = min(BLOCK, len(codes) - first)
        for i in range(many):
            hashes[i] = _hash(data, offsets[first + i] * width, offsets[first + i + 1] * width)
        _guess(slots, arena, hashes[:many], places, codes[first : first + many])
        for i in range(many):
            start, stop = offsets[first + i] * width, offsets[first + i + 1] * width
            if places[i] != EMPTY and _same(arena, text, places[i], data, start, stop):
                continue
            slot = _slot(slots, arena, text, data, start, stop, hashes[i])
            if slots[slot, 1] == EMPTY and add:
                slots[slot, 0], slots[slot, 1] = hashes[i], end
                end = _append(arena, text, end, size, data, start, stop)
                size += 1
            codes[first + i] = arena[slots[slot, 1]] if slots[slot, 1] != EMPTY else EMPTY
    return size, end


@kernel
def _guess(slots: Int64, arena: Int32, hashes: Int64, places: Int64, codes: Int32) -> None:
    """Where in the arena strings of these hashes stand, and their codes: nearly always right; EMPTY where none is in the line that it belongs to."""
    keys = slots[:, 0]
    mask = np.int64(len(slots) - 1) & -SLOTS
    for i in range(len(hashes)):
        places[i] = keys[hashes[i] & mask]
    for i in range(len(hashes)):
        home = hashes[i] & mask
        place = place_in_line(keys, home, places[i], hashes[i])
        places[i] = slots[home + place, 1] if place >= 0 else EMPTY
    for i in range(len(hashes)):
        codes[i] = arena[places[i]] if places[i] != EMPTY else EMPTY


@kernel
def _same(arena: Int32, text: Bytes, place: int, data: Bytes, start: int, end: int) -> bool:
    """Whether the string at a place of the arena is data[start:end]."""
    if arena[place + 1] != end - start:
        return False
    at = (place + HEAD) * WORD
    for i in range(end - start):  # noqa: SIM110  (a plain loop compiles to a plain loop)
        if text[at + i] != data[start + i]:
            return False
    return True


@kernel
def _slot(
    slots: Int64, arena: Int32, text: Bytes, data: Bytes, start: int, end: int, value: int
) -> int:
    """The slot that holds this string, or the empty slot where it belongs."""
    mask = np.int64(len(slots) - 1)
    slot = value & mask & -SLOTS
    while slots[slot, 1] != EMPTY:
        if slots[slot, 0] == value and _same(arena, text, slots[slot, 1], data, start, end):
            return int(slot)
        slot = (slot + 1) & mask
    return int(slot)


@kernel
def _append(
    arena: Int32, text: Bytes, end: int, code: int, data: Bytes, start: int, stop: int
) -> int:
    """Write a new string at the end of the arena; the new end."""
    arena[end], arena[end + 1] = code, stop - start
    at = (end + HEAD) * WORD
    for i in range(stop - start):
        text[at + i] = data[start + i]
    return int(end + HEAD + (stop - start + WORD - 1) // WORD)


@kernel
def _move(slots: Int64, bigger: Int64) -> None:
    """Put every string of a table into a larger, empty one."""
    mask = np.int64(len(bigger) - 1)
    for old in range(len(slots)):
        if slots[old, 1] != EMPTY:
            slot = slots[old, 0] & mask & -SLOTS
            while bigger[slot, 1] != EMPTY:
                slot = (slot + 1) & mask
            bigger[slot, 0], bigger[slot, 1] = slots[old, 0], slots[old, 1]


@kernel
def _offsets(arena: Int32, size: int) -> Int64:
    """Where each string starts when they are laid end to end, without anything between."""
    offsets = np.zeros(size + 1, np.int64)
    place = 0
    for code in range(size):
        offsets[code + 1] = offsets[code] + arena[place + 1]
        place += HEAD + (arena[place + 1] + WORD - 1) // WORD
    return offsets


@kernel
def _copy(arena: Int32, text: Bytes, offsets: Int64, data: Bytes) -> None:
    """Lay the strings end to end."""
    place = 0
    for code in range(len(offsets) - 1):
        at = (place + HEAD) * WORD
        for i in range(arena[place + 1]):
            data[offsets[code] + i] = text[at + i]
        place += HEAD + (arena[place + 1] + WORD - 1) // WORD
