"""Click sequences as bytes, which sort, compare and hash as the sequences do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Int32, Int64


def sequence_bytes(starts: Int64, clicks: Int32) -> pa.LargeBinaryArray:
    """Click lists as bytes that sort as the lists do: positions as big-endian integers.

    >>> [list(each.as_py()) for each in sequence_bytes(np.array([0, 1]), np.array([3], np.int32))]
    [[0, 0, 0, 3]]
    """
    offsets = np.ascontiguousarray(starts, np.int64) * 4
    data = clicks.astype(">i4")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


def sequences_from_bytes(lists: pa.LargeBinaryArray) -> tuple[Int64, Int32]:
    """The click lists that `sequence_bytes` encoded: starts and positions."""
    _, offsets, data = lists.buffers()
    starts = np.frombuffer(offsets, np.int64)[lists.offset : lists.offset + len(lists) + 1]
    positions = np.frombuffer(data or b"", ">i4")[starts[0] // 4 : starts[-1] // 4]
    return (starts - starts[0]) // 4, positions.astype(np.int32)
