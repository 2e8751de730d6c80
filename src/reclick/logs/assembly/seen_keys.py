"""Remember which keys were seen, in eight bytes each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.data.batch import Int64

Bools = npt.NDArray[np.bool_]
MOST = 16_000_000  # keys, so that memory has a limit


class KnownKeys:
    """Keys by their 64-bit hashes: two keys that are taken for one are not to be expected in a million logs of a million pages.

    >>> known = KnownKeys()
    >>> known.add(pa.array(["a", "b"]))
    >>> known.has(pa.array(["b", "c", "b"])).tolist()
    [True, False, True]
    """

    def __init__(self, most: int = MOST) -> None:
        """After `most` keys no more are remembered."""
        self.most, self.many = most, 0
        self._sorted: list[
            Int64
        ] = []  # ever smaller, so that few have to be searched and each is merged a few times only

    def add(self, keys: pa.Array) -> None:
        """Remember keys."""
        if self.many >= self.most or not len(keys):
            return
        new = np.sort(_hashes(keys))
        while self._sorted and len(self._sorted[-1]) < 4 * len(new):
            new = np.sort(
                np.concatenate([self._sorted.pop(), new]), kind="stable"
            )  # which merges what is sorted already
        self._sorted.append(new)
        self.many = sum(len(some) for some in self._sorted)

    def has(self, keys: pa.Array) -> Bools:
        """Which of the keys are known."""
        coded = keys.dictionary_encode()  # keys come in runs
        hashes = _hashes(coded.dictionary)
        found = np.zeros(len(hashes) + 1, np.bool_)  # the last is for null
        for some in self._sorted:
            place = np.minimum(np.searchsorted(some, hashes), len(some) - 1)
            found[:-1] |= some[place] == hashes
        known: Bools = found[coded.indices.fill_null(-1).to_numpy()]
        return known


def _hashes(keys: pa.Array) -> Int64:
    return np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys))
