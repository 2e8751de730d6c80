"""The one order in which counts are laid out, whatever order a log had."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.counts import sequence_bytes, sequences_from_bytes
from reclick.data.ragged import Int32, Int64
from reclick.data.string_index import Bytes, Interner, buffers
from reclick.runtime.jit import kernel

Words = npt.NDArray[np.uint64]
WORD_BYTES = 8


def sort_pairs(first: Int32, second: Int32) -> tuple[Int32, Int32, Int64]:
    """Two codes sorted by the first, then the second, and the order that sorts them."""
    bits = [
        int(largest).bit_length()
        for largest in (first.max(initial=0), second.max(initial=0), len(first))
    ]
    if sum(bits) < 64:  # numbers that hold their own row sort faster than rows by a number
        order = first.astype(np.int64)
        for more, width in ((second, bits[1]), (np.arange(len(first)), bits[2])):
            order <<= width
            order |= more
        order.sort()
        order &= (1 << bits[2]) - 1
    else:
        order = np.argsort((first.astype(np.int64) << 32) | second)
    return first[order], second[order], order


def sort_strings(interner: Interner, *used: Int32) -> tuple[pa.LargeStringArray, Int32]:
    """The strings that occur, in order, and each old code's new one."""
    old = _distinct(interner.size, *used)
    strings = interner.strings().take(pa.array(old))
    order = order_strings(strings)
    return strings.take(pa.array(order)), _new_codes(old[order], interner.size)


def sort_sequences(interner: Interner, used: Int32) -> tuple[Int64, Int32, Int32]:
    """The click lists that occur, in order: starts, positions, and each old code's new one."""
    offsets, data = interner.slices()
    old = _distinct(interner.size, used)
    lists = sequence_bytes(offsets // 4, data.view(np.int32)).take(pa.array(old))
    order = pc.array_sort_indices(lists)
    starts, clicks = sequences_from_bytes(lists.take(order))
    return starts, clicks, _new_codes(old[order.to_numpy()], interner.size)


def _distinct(size: int, *used: Int32) -> Int64:
    """The codes that occur, in order."""
    occurs = np.zeros(size, bool)
    for codes in used:
        occurs[codes] = True
    return np.flatnonzero(occurs)


def _new_codes(old: Int64, size: int) -> Int32:
    """For each old code its place in the new order; −1 for one that does not occur."""
    code = np.full(max(size, 1), -1, np.int32)
    code[old] = np.arange(len(old), dtype=np.int32)
    return code


def order_strings(strings: pa.Array) -> Int64:
    """The order that sorts strings by their bytes.

    By eight bytes as a number, which separate most ids; the whole strings are compared only where
    these are equal.

    >>> order_strings(pa.array(["ad-7", "ad-10", "ad-2"])).tolist()
    [1, 2, 0]
    """
    offsets, data = buffers(strings)
    words = _words(offsets, data, _common_bytes(offsets, data))
    order = np.argsort(words)
    same = words[order[1:]] == words[order[:-1]]
    tied = np.zeros(len(order), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    few = order[tied]  # sorted on their own, as a smaller word is of a smaller string
    order[tied] = few[pc.array_sort_indices(strings.take(pa.array(few))).to_numpy()]
    return order


@kernel
def _common_bytes(offsets: Int64, data: Bytes) -> int:
    """The number of bytes with which all strings begin."""
    common = offsets[min(1, len(offsets) - 1)] - offsets[0]
    for s in range(1, len(offsets) - 1):
        common = min(common, offsets[s + 1] - offsets[s])
        same = 0
        while same < common and data[offsets[s] + same] == data[offsets[0] + same]:
            same += 1
        common = same
    return int(common)


@kernel
def _words(offsets: Int64, data: Bytes, depth: int) -> Words:
    """The bytes of each string after the first `depth`, as a number, with zeros beyond its end."""
    words = np.zeros(len(offsets) - 1, np.uint64)
    for s in range(len(words)):
        start = offsets[s] + depth
        for i in range(min(WORD_BYTES, offsets[s + 1] - start)):
            words[s] |= np.uint64(data[start + i]) << np.uint64(8 * (WORD_BYTES - 1 - i))
    return words
