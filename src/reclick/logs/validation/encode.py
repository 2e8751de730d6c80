"""Turn Arrow columns of any accepted type into plain arrays: codes into a dictionary, and ragged lists with offsets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind_of

from reclick.data.batch import Float64, Int32, Int64

NULL = np.int32(-(2**31))  # a null inside a click list; no position is this small
MAX_TEXT = 65_536  # bytes of a query or an ad id

OK, EMPTY, TOO_LONG, NOT_TEXT = 0, 1, 2, 3
Byte = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Coded:
    """Texts as codes into their distinct values; -1 is null. A value with a fault is emptied: no clean row uses it."""

    values: pa.StringArray
    codes: Int32
    faults: Byte  # [value] OK, EMPTY, TOO_LONG or NOT_TEXT


def encode_text(column: pa.Array, last: Coded | None = None) -> Coded:
    """Return the codes and the distinct values of texts or whole-number ids; values that are the last ones again are not checked again."""
    if kind_of.is_null(column.type):
        return Coded(
            pa.array([], pa.string()), np.full(len(column), -1, np.int32), np.zeros(0, np.uint8)
        )
    coded = column if kind_of.is_dictionary(column.type) else column.dictionary_encode()
    indices = coded.indices if coded.indices.type == pa.int32() else coded.indices.cast(pa.int32())
    if indices.null_count:
        indices = indices.fill_null(-1)
    if (
        last is not None and not last.faults.any() and coded.dictionary.equals(last.values)
    ):  # the batches of a Parquet row group have one dictionary
        return Coded(last.values, _numpy(indices), last.faults)
    values, faults = _sound_values(coded.dictionary)
    return Coded(values, _numpy(indices), faults)


def encode_lists(column: pa.Array) -> tuple[pa.Array, Int64]:
    """Return the values of lists laid end to end and where each list starts; a null list is an empty one.

    >>> values, starts = encode_lists(pa.array([[1, 2], None, [3]])[1:])
    >>> values.to_pylist(), starts.tolist()
    ([3], [0, 0, 1])
    """
    if kind_of.is_null(column.type):
        return pa.array([], pa.null()), np.zeros(len(column) + 1, np.int64)
    plain = kind_of.is_list(column.type) or kind_of.is_large_list(column.type)
    if plain and not column.null_count:
        starts = column.offsets.to_numpy().astype(np.int64)
        starts -= starts[0]  # in place: fresh memory costs more than it takes to fill it
        return column.flatten(), starts
    # Not by cast: Arrow's from a sliced list_view is wrong. flatten leaves out what lies under nulls.
    lengths = pc.list_value_length(column).fill_null(0)
    starts = np.zeros(len(column) + 1, np.int64)
    np.cumsum(np.asarray(lengths, np.int64), out=starts[1:])
    return column.flatten(), starts


def encode_positions(values: pa.Array) -> Int32:
    """Return positions as 32-bit numbers: nulls as NULL, those beyond 32 bits cut to its ends."""
    if kind_of.is_null(values.type):
        return np.full(len(values), NULL, np.int32)
    nulls = np.asarray(values.is_null()) if values.null_count else None
    numbers = _numpy(values.fill_null(0) if values.null_count else values)
    if numbers.dtype != np.int32:
        numbers = np.clip(
            numbers,
            -1 if numbers.dtype.kind == "i" else 0,
            min(2**31 - 1, np.iinfo(numbers.dtype).max),
        ).astype(np.int32)
    elif len(numbers) and numbers.min() == NULL:
        numbers = np.maximum(numbers, np.int32(-1))
    if nulls is not None:
        numbers = np.where(nulls, NULL, numbers)
    return numbers


def encode_number(column: pa.Array) -> Float64:
    """Return numbers as 64-bit floats, nulls as nan."""
    floats = column.cast(pa.float64(), safe=False)
    return np.asarray(floats.fill_null(float("nan")) if floats.null_count else floats, np.float64)


def _sound_values(dictionary: pa.Array) -> tuple[pa.StringArray, Byte]:
    values = dictionary if dictionary.type == pa.string() else dictionary.cast(pa.string())
    lengths = np.asarray(pc.binary_length(values).fill_null(0))
    faults = np.zeros(len(values), np.uint8)
    faults[lengths == 0] = EMPTY
    faults[lengths > MAX_TEXT] = TOO_LONG
    faults[_not_text(values)] = NOT_TEXT
    if faults.any():
        blank = pa.array(faults != OK)
        values = pc.if_else(blank, pa.scalar("", pa.string()), values)
    return values, faults


def _not_text(values: pa.StringArray) -> list[int]:
    """Return which values are not UTF-8; Parquet files and Arrow buffers may hold anything."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return [
            index
            for index, value in enumerate(values.cast(pa.binary()).to_pylist())
            if not _is_utf8(value)
        ]
    return []


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _numpy(array: pa.Array) -> npt.NDArray[np.int32]:
    return array.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]
