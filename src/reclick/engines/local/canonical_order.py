"""The one order in which counts are laid out, whatever order a log had: by queries, ads and click lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reclick.data.batch import Int32, Int64
from reclick.data.string_index import Interner
from reclick.engines.local.string_order import string_order


def sorted_pairs(first: Int32, second: Int32) -> tuple[Int32, Int32, Int64]:
    """Two codes sorted by the first, then the second, and the order that sorts them."""
    bits = [
        int(largest).bit_length()
        for largest in (first.max(initial=0), second.max(initial=0), len(first))
    ]
    if (
        sum(bits) < 64
    ):  # a number that holds its own place is sorted far sooner than places by a number
        order = first.astype(np.int64)
        for more, width in ((second, bits[1]), (np.arange(len(first)), bits[2])):
            order <<= width
            order |= more
        order.sort()
        order &= (1 << bits[2]) - 1
    else:
        order = np.argsort((first.astype(np.int64) << 32) | second)
    return first[order], second[order], order


def sorted_strings(interner: Interner, *used: Int32) -> tuple[pa.LargeStringArray, Int32]:
    """The strings that occur, in order, and each old code's new one."""
    old = _distinct(interner.size, *used)
    strings = interner.strings().take(pa.array(old))
    order = string_order(strings)
    code = np.full(max(interner.size, 1), -1, np.int32)
    code[old[order]] = np.arange(len(old), dtype=np.int32)
    return strings.take(pa.array(order)), code


def _distinct(size: int, *used: Int32) -> Int64:
    """The codes that occur, in order."""
    occurs = np.zeros(size, bool)
    for codes in used:
        occurs[codes] = True
    return np.flatnonzero(occurs)


def sorted_sequences(interner: Interner, used: Int32) -> tuple[Int64, Int32, Int32]:
    """The click lists that occur, in order, as starts and positions; and each old code's new one."""
    offsets, data = interner.slices()
    positions, starts = data.view(np.int32), offsets // 4
    old = sorted(
        _distinct(interner.size, used),
        key=lambda code: tuple(positions[starts[code] : starts[code + 1]]),
    )
    code = np.full(max(interner.size, 1), -1, np.int32)
    code[old] = np.arange(len(old), dtype=np.int32)
    lists = [positions[starts[c] : starts[c + 1]] for c in old]
    new_starts = np.concatenate([[0], np.cumsum([len(clicks) for clicks in lists])]).astype(
        np.int64
    )
    return new_starts, np.concatenate([np.zeros(0, np.int32), *lists]), code
