"""Read and check columns of saved tables before they are used as indices.

The hash of a folder detects accidents, not tampering: whoever changes a table can change its hash
too. A compiled kernel does not check its indices, so they are checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from reclick.data.ragged import Int32, Int64, read_only
from reclick.errors import StoreError
from reclick.runtime.jit import kernel

MOST_CELLS = 1 << 24  # of a table by page length and number of clicks


def read_numbers(
    tables: Mapping[str, pa.Table],
    table: str,
    column: str,
    *,
    length: int | None = None,
    low: float | None = None,
    high: float | None = None,
    finite: bool = True,
) -> npt.NDArray[Any]:
    """Read a column of numbers without nulls; raise unless it has `length` rows, within limits.

    >>> read_numbers({"pairs": pa.table({"ad": [0, 7]})}, "pairs", "ad", low=0, high=5)
    Traceback (most recent call last):
    reclick.errors.StoreError: The table pairs is damaged: ad has a value of 7, expected at \
most 5. Fit or count again, and save to a new folder.
    """
    values = _find(tables, table, column)
    if not (arrow_types.is_integer(values.type) or arrow_types.is_floating(values.type)):
        raise table_error(table, f"{column} has the type {values.type}, expected numbers")
    if values.null_count:
        raise table_error(table, f"{column} has nulls")
    if length is not None and len(values) != length:
        raise table_error(table, f"{column} has {len(values):,} rows, expected {length:,}")
    numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if not len(numbers):
        return numbers
    smallest, largest = numbers.min(), numbers.max()  # nan if there is one
    if finite and not (np.isfinite(smallest) and np.isfinite(largest)):
        raise table_error(table, f"{column} has a value that is not finite")
    if low is not None and smallest < low:
        raise table_error(table, f"{column} has a value of {smallest}, expected at least {low}")
    if high is not None and largest > high:
        raise table_error(table, f"{column} has a value of {largest}, expected at most {high}")
    return numbers


def read_codes(
    tables: Mapping[str, pa.Table], table: str, column: str, size: int, length: int | None = None
) -> Int32:
    """Read a column of indices from 0 to `size` − 1."""
    codes = read_numbers(tables, table, column, length=length, low=0, high=size - 1)
    if codes.dtype.kind not in "iu":
        raise table_error(table, f"{column} has the type {codes.dtype}, expected whole numbers")
    return codes.astype(np.int32, copy=False)


def read_strings(
    tables: Mapping[str, pa.Table], table: str, column: str, *, ascending: bool = False
) -> pa.LargeStringArray:
    """Read a column of texts without nulls; with `ascending`, they must be sorted and distinct."""
    values = _find(tables, table, column)
    if not (arrow_types.is_string(values.type) or arrow_types.is_large_string(values.type)):
        raise table_error(table, f"{column} has the type {values.type}, expected text")
    if values.null_count:
        raise table_error(table, f"{column} has nulls")
    values = values.cast(pa.large_string())
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise table_error(table, f"{column}: {error}") from error
    if ascending and len(values) > 1:
        binary = values.cast(pa.large_binary())
        if not pc.all(pc.less(binary[:-1], binary[1:])).as_py():
            raise table_error(table, f"{column} is not in ascending order")
    return values


def read_lists(
    tables: Mapping[str, pa.Table], table: str, column: str, *, low: int, high: int | None = None
) -> tuple[Int64, npt.NDArray[Any]]:
    """Read a column of lists of numbers: where each list starts, and the numbers.

    With `high`, the numbers are indices, which must be whole numbers.
    """
    values = _find(tables, table, column)
    if not (arrow_types.is_list(values.type) or arrow_types.is_large_list(values.type)):
        raise table_error(table, f"{column} has the type {values.type}, expected lists")
    are_indices = high is not None
    if values.null_count or (are_indices and not arrow_types.is_integer(values.type.value_type)):
        raise table_error(table, f"{column} has nulls, or lists of other things than whole numbers")
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise table_error(table, f"{column}: {error}") from error
    starts = values.offsets.to_numpy().astype(np.int64)
    inner = {table: pa.table({column: values.flatten()})}
    numbers = read_numbers(inner, table, column, low=low, high=high)
    starts -= starts[0] if len(starts) else 0
    return starts, numbers.astype(np.int32, copy=False) if are_indices else numbers


def to_lists(starts: Int64 | None, values: Any) -> pa.Array:
    """Values as a column; with starts, as lists from each start to the next."""
    array = pa.array(values)
    return array if starts is None else pa.LargeListArray.from_arrays(pa.array(starts), array)


def require_ascending(table: str, first: Int32, second: Int32) -> None:
    """Raise unless pairs of codes are distinct and sorted by the first, then by the second."""
    if not is_ascending(read_only(first), read_only(second)):
        raise table_error(table, "its rows are not in order, or are duplicated")


@kernel
def is_ascending(first: Int32, second: Int32) -> Any:
    """Whether pairs of codes are distinct and sorted by the first, then by the second."""
    ascending = True
    for i in range(1, len(first)):
        same = first[i] == first[i - 1]
        ascending &= (first[i] > first[i - 1]) | (same & (second[i] > second[i - 1]))
    return ascending


def table_error(table: str, what: str) -> StoreError:
    """The error for a damaged table."""
    advice = "Fit or count again, and save to a new folder."
    return StoreError(f"The table {table} is damaged: {what}. {advice}")


def _find(tables: Mapping[str, pa.Table], table: str, column: str) -> pa.Array:
    if table not in tables:
        raise StoreError(
            f"The table {table} is missing. Fit or count again, and save to a new folder."
        )
    if column not in tables[table].column_names:
        raise table_error(table, f"it has no column {column}")
    values = tables[table][column].combine_chunks()
    return values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
