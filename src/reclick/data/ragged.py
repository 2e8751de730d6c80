"""Ragged arrays: runs of any length laid end to end, with the offset at which each starts.

Run i is `values[starts[i]:starts[i + 1]]`, as in Arrow, so there is one more start than runs.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
UInt32 = npt.NDArray[np.uint32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Array = TypeVar("Array", bound=npt.NDArray[Any])


def starts_from_sizes(sizes: npt.ArrayLike) -> Int64:
    """Where each run starts, and where the last one ends.

    >>> starts_from_sizes([2, 0, 3])
    array([0, 2, 2, 5])
    """
    sizes = np.asarray(sizes)
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.add.accumulate(sizes, out=starts[1:])
    return starts


def run_sizes(starts: Int64) -> Int64:
    """The number of elements of each run, as np.diff(starts), with less overhead.

    >>> run_sizes(np.array([0, 2, 2, 5]))
    array([2, 0, 3])
    """
    sizes: Int64 = starts[1:] - starts[:-1]
    return sizes


def longest_run(starts: Int64) -> int:
    """The number of elements of the longest run; 0 if there are no runs.

    >>> longest_run(np.array([0, 2, 2, 5]))
    3
    """
    return int(run_sizes(starts).max(initial=0))


def positions_in_runs(starts: Int64) -> Int64:
    """The position of each element in its run, from 0.

    >>> positions_in_runs(np.array([0, 2, 2, 5]))
    array([0, 1, 0, 1, 2])
    """
    first = starts[:-1].repeat(run_sizes(starts))
    return np.asarray(np.arange(starts[0], starts[-1]) - first)


def run_of_elements(starts: Int64) -> Int64:
    """The run of each element.

    >>> run_of_elements(np.array([0, 2, 2, 5]))
    array([0, 0, 2, 2, 2])
    """
    return np.arange(len(starts) - 1).repeat(run_sizes(starts))


def slice_runs(values: Array, starts: Int64, first: int, last: int) -> tuple[Array, Int64]:
    """Runs first … last − 1 and their starts. The values are a view; only the starts are copied.

    >>> slice_runs(np.array([7, 8, 9]), np.array([0, 1, 3]), 1, 2)
    (array([8, 9]), array([0, 2]))
    """
    bounds = starts[first : last + 1]
    part: Any = values[bounds[0] : bounds[-1]]
    return part, np.asarray(bounds - bounds[0])


def take_runs(values: Array, starts: Int64, selection: Int64) -> tuple[Array, Int64]:
    """The selected runs, end to end, and their starts.

    >>> take_runs(np.array([7, 8, 9], np.int32), np.array([0, 1, 3]), np.array([1, 0]))
    (array([8, 9, 7], dtype=int32), array([0, 2, 3]))
    """
    index, new_starts = run_indices(starts, selection)
    runs: Any = values[index]
    return runs, new_starts


def run_indices(starts: Int64, selection: Int64) -> tuple[Int64, Int64]:
    """The indices of the elements of the selected runs, run after run, and the starts of the runs.

    >>> run_indices(np.array([0, 1, 3]), np.array([1, 0]))
    (array([1, 2, 0]), array([0, 2, 3]))
    """
    sizes = starts[selection + 1] - starts[selection]
    new_starts = starts_from_sizes(sizes)
    indices = np.repeat(starts[selection] - new_starts[:-1], sizes) + np.arange(new_starts[-1])
    return indices, new_starts


def sum_runs(values: Array, starts: Int64) -> Array:
    """The sum of each run; unsigned integers wrap around.

    >>> sum_runs(np.array([1, 2, 3]), np.array([0, 2, 2, 3]))
    array([3, 0, 3])
    """
    total = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values, dtype=values.dtype)])
    sums: Any = np.diff(total[starts])
    return sums  # type: ignore[no-any-return]


def join_codes(first: Int32 | Int64, second: Int32 | Int64) -> Int64:
    """Two codes as one number, which sorts by the first, then by the second."""
    return np.asarray((first.astype(np.int64) << 32) | second)


def split_codes(codes: Int64) -> tuple[Int32, Int32]:
    """The two codes that `join_codes` made one of."""
    return (codes >> 32).astype(np.int32), (codes & 0xFFFFFFFF).astype(np.int32)


def read_only(array: Array) -> Array:
    """A read-only view. Kernels that only read take these, so that they compile once."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
