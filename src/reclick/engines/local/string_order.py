"""The order of strings: by eight bytes as a number, which tell most ids apart, and by the whole strings only where these are equal."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import Int64
from reclick.data.string_index import Bytes, buffers
from reclick.runtime.jit import kernel

Words = npt.NDArray[np.uint64]
WORD = 8  # bytes


def string_order(strings: pa.Array) -> Int64:
    """Where the first, second … of some strings stand, by the order of their bytes.

    >>> string_order(pa.array(["ad-7", "ad-10", "ad-2"])).tolist()
    [1, 2, 0]
    """
    offsets, data = buffers(strings)
    words = _words(offsets, data, _common(offsets, data))
    order = np.argsort(words)
    same = words[order[1:]] == words[order[:-1]]
    tied = np.zeros(len(order), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    few = order[
        tied
    ]  # sorted on their own they come in this order too, for a word that is less is of a string that is less
    order[tied] = few[pc.array_sort_indices(strings.take(pa.array(few))).to_numpy()]
    return order


@kernel
def _common(offsets: Int64, data: Bytes) -> int:
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
    """The bytes of each string after the first `depth`, as a number; those beyond its end are zeros."""
    words = np.zeros(len(offsets) - 1, np.uint64)
    for s in range(len(words)):
        start = offsets[s] + depth
        for i in range(min(WORD, offsets[s + 1] - start)):
            words[s] |= np.uint64(data[start + i]) << np.uint64(8 * (WORD - 1 - i))
    return words
