"""The one order in which counts are laid out, whatever order a log had."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.counts import sequence_bytes, sequences_from_bytes
from reclick.data.ragged import Int32, Int64
from reclick.data.string_index import Interner


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
    order = pc.array_sort_indices(strings)  # by bytes
    return strings.take(order), _new_codes(old[order.to_numpy()], interner.size)


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
