"""Distinct byte strings and their codes: queries and ads across batches, and click lists as the bytes of their positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.batch import Int32, Int64
from reclick.compiled import compiled

Bytes = npt.NDArray[np.uint8]
EMPTY = -1
ENTRY = np.dtype([("hash", np.uint64), ("start", np.int64), ("size", np.int64)])
Entries = npt.NDArray[Any]  # [code] records of ENTRY
BLOCK = 128  # strings looked up together, so that their memory accesses overlap


class Interner:
    """Gives every distinct string a code 0, 1, 2 … in the order first met.

    >>> Interner().codes(pa.array(["b", "a", "b"]))
    array([0, 1, 0], dtype=int32)
    """

    def __init__(self) -> None:
        self.size = 0
        self._slots = np.full(1024, EMPTY, np.int32)  # [slot] code or EMPTY; open addressing
        self._entries: Entries = np.zeros(513, ENTRY)  # [code], and one more for where the next string starts
        self._arena: Bytes = np.zeros(1 << 14, np.uint8)  # every distinct string, end to end

    def codes(self, strings: pa.Array) -> Int32:
        """The code of each string; new strings are added."""
        return self.codes_of_bytes(*buffers(strings))

    def codes_of_bytes(self, offsets: Int64, data: Bytes, *, width: int = 1) -> Int32:
        """The code of each slice data[offsets[i]:offsets[i + 1]], its items being `width` bytes wide; new ones are added."""
        codes = np.empty(len(offsets) - 1, np.int32)
        done = 0
        while done < len(codes):
            end = min(len(codes), done + max(4096, self.size // 2))  # room for this many, not for all, as most are known
            self._reserve(end - done, int(offsets[end] - offsets[done]) * width)
            self.size = _intern(self._slots, self._entries, self._arena, self.size, offsets[done : end + 1], width, data, codes[done:end])
            done = end
        return codes

    def find(self, strings: pa.Array) -> Int32:
        """The code of each string, -1 for one never met."""
        offsets, data = buffers(strings)
        codes = np.empty(len(strings), np.int32)
        _find(self._slots, self._entries, self._arena, offsets, 1, data, codes)
        return codes

    def strings(self) -> pa.LargeStringArray:
        """Every string, by its code."""
        offsets, data = self.slices()
        return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))

    def slices(self) -> tuple[Int64, Bytes]:
        """Every string by its code, as offsets and bytes of their own."""
        offsets = self._entries["start"][: self.size + 1].copy()
        return offsets, self._arena[: offsets[-1]].copy()

    def _reserve(self, strings: int, size: int) -> None:
        """Make room for this many more strings of this many bytes in all."""
        needed = self.size + strings
        if needed + 1 > len(self._entries):
            self._entries = _grown(self._entries, needed + 1)
        held = int(self._entries["start"][self.size])
        if held + size > len(self._arena):
            self._arena = _grown(self._arena, held + size)
        if 2 * needed > len(self._slots):
            self._slots = np.full(1 << (2 * needed - 1).bit_length(), EMPTY, np.int32)
            _rebuild(self._slots, self._entries, self.size)


def buffers(strings: pa.Array) -> tuple[Int64, Bytes]:
    """The offsets and bytes behind an Arrow string array without nulls."""
    strings = strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings
    wide = pa.types.is_large_string(strings.type)
    _, offsets, data = strings.buffers()
    if offsets is None or len(strings) == 0:
        return np.zeros(len(strings) + 1, np.int64), np.zeros(0, np.uint8)
    raw = np.frombuffer(offsets, np.int64 if wide else np.int32)[strings.offset : strings.offset + len(strings) + 1]
    starts = raw.astype(np.int64)
    starts.flags.writeable = False  # as those of a batch's click lists are, so that kernels compile once
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _grown(array: npt.NDArray[Any], needed: int) -> npt.NDArray[Any]:
    bigger = np.zeros(max(needed, len(array) * 3 // 2), array.dtype)
    bigger[: len(array)] = array
    return bigger


@compiled
def _hash(data: Bytes, start: int, end: int) -> np.uint64:
    """FNV-1a with a final mix, so that the low bits used for slots depend on every byte."""
    value = np.uint64(14695981039346656037)
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * np.uint64(1099511628211)
    value ^= value >> np.uint64(32)
    value *= np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@compiled
def _hash_block(
    slots: Int32, entries: Entries, arena: Bytes, offsets: Int64, width: int, data: Bytes, first: int, hashes: npt.NDArray[np.uint64]
) -> int:
    """Hash a block of strings and touch what looking them up will read: misses of the cache then overlap instead of queueing."""
    mask = np.uint64(len(slots) - 1)
    size = min(len(hashes), len(offsets) - 1 - first)
    touched = np.int64(0)
    for i in range(size):
        hashes[i] = _hash(data, offsets[first + i] * width, offsets[first + i + 1] * width)
    for i in range(size):
        touched += slots[np.int64(hashes[i] & mask)]
    for i in range(size):
        touched += entries[max(0, slots[np.int64(hashes[i] & mask)])].start
    for i in range(size):
        touched += arena[min(len(arena) - 1, entries[max(0, slots[np.int64(hashes[i] & mask)])].start)]
    return int(touched)  # returned so that the compiler keeps the reads


@compiled
def _same(arena: Bytes, at: int, data: Bytes, start: int, length: int) -> bool:
    for i in range(length):  # noqa: SIM110  (a plain loop compiles to a plain loop)
        if arena[at + i] != data[start + i]:
            return False
    return True


@compiled
def _slot(slots: Int32, entries: Entries, arena: Bytes, data: Bytes, start: int, end: int, value: np.uint64) -> int:
    """The slot that holds this string, or the empty slot where it belongs."""
    mask = np.int64(len(slots) - 1)
    slot = np.int64(value) & mask
    while slots[slot] != EMPTY:
        entry = entries[slots[slot]]
        if entry.hash == value and entry.size == end - start and _same(arena, entry.start, data, start, end - start):
            return int(slot)
        slot = (slot + 1) & mask
    return int(slot)


@compiled
def _intern(slots: Int32, entries: Entries, arena: Bytes, size: int, offsets: Int64, width: int, data: Bytes, codes: Int32) -> int:
    hashes = np.empty(BLOCK, np.uint64)
    for first in range(0, len(codes), BLOCK):
        _hash_block(slots, entries, arena, offsets, width, data, first, hashes)
        for i in range(first, min(first + BLOCK, len(codes))):
            start, end, value = offsets[i] * width, offsets[i + 1] * width, hashes[i - first]
            slot = _slot(slots, entries, arena, data, start, end, value)
            if slots[slot] == EMPTY:
                slots[slot] = size
                at = entries[size].start
                entries[size].hash = value
                entries[size].size = end - start
                entries[size + 1].start = at + end - start
                for b in range(end - start):
                    arena[at + b] = data[start + b]
                size += 1
            codes[i] = slots[slot]
    return size


@compiled
def _find(slots: Int32, entries: Entries, arena: Bytes, offsets: Int64, width: int, data: Bytes, codes: Int32) -> None:
    hashes = np.empty(BLOCK, np.uint64)
    for first in range(0, len(codes), BLOCK):
        _hash_block(slots, entries, arena, offsets, width, data, first, hashes)
        for i in range(first, min(first + BLOCK, len(codes))):
            codes[i] = slots[_slot(slots, entries, arena, data, offsets[i] * width, offsets[i + 1] * width, hashes[i - first])]


@compiled
def _rebuild(slots: Int32, entries: Entries, size: int) -> None:
    mask = np.int64(len(slots) - 1)
    for code in range(size):
        slot = np.int64(entries[code].hash) & mask
        while slots[slot] != EMPTY:
            slot = (slot + 1) & mask
        slots[slot] = code
