"""Hash tables laid out in lines of the processor's cache: one visit costs one miss, and a line is searched without a branch."""

from __future__ import annotations

import numpy as np

from reclick.data.batch import Int64
from reclick.runtime.jit import kernel

LINE = 64  # bytes
SLOTS = 4  # of a line: 8 bytes of key and 8 of what is kept with it


def aligned(slots: int) -> Int64:
    """A table of zeros, [slot, 2], that starts where a line of the cache starts.

    >>> aligned(1024).ctypes.data % LINE
    0
    """
    spare = np.zeros(2 * slots + LINE // 8, np.int64)
    start = -spare.ctypes.data % LINE // 8
    return spare[start : start + 2 * slots].reshape(slots, 2)


@kernel
def place_in_line(keys: Int64, home: int, first: int, key: int) -> int:
    """Where a key is in the line that starts at `home`, whose first key has been read; −1 when it is not there."""
    place = 0 if first == key else -1
    place = 1 if keys[home + 1] == key else place
    place = 2 if keys[home + 2] == key else place
    return 3 if keys[home + 3] == key else place
