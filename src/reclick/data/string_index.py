"""Distinct byte strings and their codes: queries, ads, and click sequences as bytes.

Hash tables are laid out in lines of the processor's cache: a lookup costs one cache miss, and a
line is searched without branches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.data.ragged import Int32, Int64, read_only
from reclick.runtime.jit import kernel, subkernel

Bytes = npt.NDArray[np.uint8]
EMPTY = -1
MAX_LOAD = 0.6  # the share of slots used beyond which a table grows
LOOKUP_BLOCK = 128  # strings looked up together, so that their memory accesses overlap
WORD_BYTES = 4
HEADER_WORDS = 2  # before each string: its code and its size
LINE_BYTES = 64
SLOTS_PER_LINE = 4  # 8 bytes of key and 8 of value
NO_BYTES: Bytes = read_only(np.zeros(0, np.uint8))


class Interner:
    """Gives every distinct string a code 0, 1, 2 … in the order of first appearance.

    A slot holds the hash of a string and its place in the arena, where the code and the size
    precede the bytes: a lookup reads two places in memory.

    >>> Interner().codes(pa.array(["b", "a", "b"]))
    array([0, 1, 0], dtype=int32)
    """

    def __init__(self) -> None:
        self.size = 0
        self._end = 0  # words of the arena that are used
        self._slots = _empty(1024)  # [slot] hash, and place in the arena or EMPTY; open addressing
        # Every distinct string: code, size, and bytes filled up to whole words.
        self._arena: Int32 = np.zeros(1 << 12, np.int32)

    def codes(self, strings: pa.Array) -> Int32:
        """The code of each string; new strings are added."""
        return self.codes_of_bytes(*buffers(strings))

    def codes_of_bytes(self, offsets: Int64, data: Bytes, *, width: int = 1) -> Int32:
        """The code of each slice data[offsets[i]:offsets[i + 1]], in items of `width` bytes.

        New ones are added.
        """
        offsets, data = read_only(offsets), read_only(data)
        codes = np.empty(len(offsets) - 1, np.int32)
        start = 0
        while start < len(codes):
            # Reserve room for this many only: most strings are known already.
            end = min(len(codes), start + max(4096, self.size // 16))
            self._reserve(end - start, int(offsets[end] - offsets[start]) * width)
            self._look_up(offsets[start : end + 1], width, data, codes[start:end], add=True)
            start = end
        return codes

    def find(self, strings: pa.Array) -> Int32:
        """The code of each string, −1 for an unknown one."""
        offsets, data = buffers(strings)
        codes = np.empty(len(strings), np.int32)
        self._look_up(offsets, 1, data, codes, add=False)
        return codes

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._slots.nbytes + self._arena.nbytes

    def strings(self) -> pa.LargeStringArray:
        """Every string, by its code."""
        offsets, data = self.slices()
        return pa.LargeStringArray.from_buffers(
            len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data)
        )

    def slices(self) -> tuple[Int64, Bytes]:
        """Every string by its code, as new arrays of offsets and bytes."""
        offsets = np.zeros(self.size + 1, np.int64)
        data = np.empty((self._end - HEADER_WORDS * self.size) * WORD_BYTES, np.uint8)
        _copy_strings(self._arena, self._arena.view(np.uint8), offsets, data)
        return offsets, data[: offsets[-1]]

    def _look_up(self, offsets: Int64, width: int, data: Bytes, codes: Int32, *, add: bool) -> None:
        """Fill in the codes; an unknown string gets a new one, or −1."""
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
            np.empty(LOOKUP_BLOCK, np.int64),
            np.empty(LOOKUP_BLOCK, np.int64),
        )

    def _reserve(self, strings: int, size: int) -> None:
        """Make room for this many more strings of this many bytes in all."""
        words = self._end + strings * (HEADER_WORDS + 1) + size // WORD_BYTES
        if words > len(self._arena):
            bigger = np.zeros(max(words, len(self._arena) * 3 // 2), np.int32)
            bigger[: self._end] = self._arena[: self._end]
            self._arena = bigger
        if self.size + strings > MAX_LOAD * len(self._slots):
            bigger_slots = _empty(1 << int((self.size + strings) / MAX_LOAD).bit_length())
            if self.size:
                _move(self._slots, bigger_slots)
            self._slots = bigger_slots


def buffers(strings: pa.Array) -> tuple[Int64, Bytes]:
    """The offsets and bytes behind an Arrow string array without nulls."""
    strings = strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings
    wide = pa.types.is_large_string(strings.type)
    _, offsets, data = strings.buffers()
    if offsets is None or len(strings) == 0:
        return read_only(np.zeros(len(strings) + 1, np.int64)), NO_BYTES
    raw = np.frombuffer(offsets, np.int64 if wide else np.int32)[
        strings.offset : strings.offset + len(strings) + 1
    ]
    bytes_ = NO_BYTES if data is None else read_only(np.frombuffer(data, np.uint8))
    return read_only(raw.astype(np.int64)), bytes_


def cache_aligned_table(slots: int) -> Int64:
    """A table of zeros [slot, 2] that starts where a line of the cache starts.

    >>> cache_aligned_table(1024).ctypes.data % LINE_BYTES
    0
    """
    buffer = np.zeros(2 * slots + LINE_BYTES // 8, np.int64)
    start = -buffer.ctypes.data % LINE_BYTES // 8
    return buffer[start : start + 2 * slots].reshape(slots, 2)


@subkernel
def find_in_line(keys: Int64, home: int, first: int, key: int) -> int:
    """The index of a key in the line at `home`, whose first key is `first`; −1 if it is absent."""
    place = 0 if first == key else -1
    place = 1 if keys[home + 1] == key else place
    place = 2 if keys[home + 2] == key else place
    return 3 if keys[home + 3] == key else place


def _empty(slots: int) -> Int64:
    table = cache_aligned_table(slots)
    table[:, 1] = EMPTY
    return table


@subkernel
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
    hashes: Int64,
    places: Int64,
) -> tuple[int, int]:
    """Fill in the codes of strings, and return the new size and end.

    They are looked up in blocks, so that cache misses overlap. `hashes` and `places` are buffers of
    the size of a block.
    """
    for first in range(0, len(codes), LOOKUP_BLOCK):
        block = len(codes) - first if len(codes) - first < LOOKUP_BLOCK else LOOKUP_BLOCK
        for i in range(block):
            hashes[i] = _hash(data, offsets[first + i] * width, offsets[first + i + 1] * width)
        _guess(slots, arena, hashes, block, places, codes, first)
        for i in range(block):
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


@subkernel
def _guess(
    slots: Int64, arena: Int32, hashes: Int64, block: int, places: Int64, codes: Int32, first: int
) -> None:
    """Fill in the probable place in the arena of each string of a block, and its code.

    Both are EMPTY if the hash is not in its line.
    """
    keys = slots[:, 0]
    mask = np.int64(len(slots) - 1) & -SLOTS_PER_LINE
    for i in range(block):
        places[i] = keys[hashes[i] & mask]
    for i in range(block):
        home = hashes[i] & mask
        place = find_in_line(keys, home, places[i], hashes[i])
        places[i] = slots[home + place, 1] if place >= 0 else EMPTY
    for i in range(block):
        codes[first + i] = arena[places[i]] if places[i] != EMPTY else EMPTY


@subkernel
def _same(arena: Int32, text: Bytes, place: int, data: Bytes, start: int, end: int) -> bool:
    """Whether the string at a place of the arena is data[start:end]."""
    if arena[place + 1] != end - start:
        return False
    at = (place + HEADER_WORDS) * WORD_BYTES
    for i in range(end - start):  # noqa: SIM110  (a plain loop compiles to a plain loop)
        if text[at + i] != data[start + i]:
            return False
    return True


@subkernel
def _slot(
    slots: Int64, arena: Int32, text: Bytes, data: Bytes, start: int, end: int, value: int
) -> int:
    """The slot that holds this string, or the empty slot where it belongs."""
    mask = np.int64(len(slots) - 1)
    slot = value & mask & -SLOTS_PER_LINE
    while slots[slot, 1] != EMPTY:
        if slots[slot, 0] == value and _same(arena, text, slots[slot, 1], data, start, end):
            return int(slot)
        slot = (slot + 1) & mask
    return int(slot)


@subkernel
def _append(
    arena: Int32, text: Bytes, end: int, code: int, data: Bytes, start: int, stop: int
) -> int:
    """Write a new string at the end of the arena, and return the new end."""
    arena[end], arena[end + 1] = code, stop - start
    at = (end + HEADER_WORDS) * WORD_BYTES
    for i in range(stop - start):
        text[at + i] = data[start + i]
    return int(end + HEADER_WORDS + (stop - start + WORD_BYTES - 1) // WORD_BYTES)


@kernel
def _move(slots: Int64, bigger: Int64) -> None:
    """Put every string of a table into a larger, empty one."""
    mask = np.int64(len(bigger) - 1)
    for old in range(len(slots)):
        if slots[old, 1] != EMPTY:
            slot = slots[old, 0] & mask & -SLOTS_PER_LINE
            while bigger[slot, 1] != EMPTY:
                slot = (slot + 1) & mask
            bigger[slot, 0], bigger[slot, 1] = slots[old, 0], slots[old, 1]


@kernel
def _copy_strings(arena: Int32, text: Bytes, offsets: Int64, data: Bytes) -> None:
    """Fill in the bytes of all strings, laid end to end, and where each starts; offsets[0] is 0."""
    place = start = 0
    for code in range(len(offsets) - 1):
        at = (place + HEADER_WORDS) * WORD_BYTES
        for i in range(arena[place + 1]):
            data[start + i] = text[at + i]
        start += arena[place + 1]
        offsets[code + 1] = start
        place += HEADER_WORDS + (arena[place + 1] + WORD_BYTES - 1) // WORD_BYTES
