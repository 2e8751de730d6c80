"""Convert Arrow columns of any accepted type to NumPy arrays: dictionary codes and ragged lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from reclick.data.arrow_checks import find_invalid_utf8
from reclick.data.batch import Float64, Int32, Int64
from reclick.data.ragged import Bool
from reclick.data.schema import OUTCOME_COLUMNS
from reclick.logs.files.source import RawBatch

NULL_POSITION = np.int32(-(2**31))  # a null inside a click list; no position is this small
MAX_TEXT_BYTES = 65_536  # of a query or an ad id

VALID, EMPTY, TOO_LONG, NOT_TEXT = 0, 1, 2, 3  # the faults that a text may have
Byte = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Texts as codes into their distinct values; -1 is null.

    A value with a fault is replaced by empty text; rows with it are bad.
    """

    values: pa.StringArray
    codes: Int32
    faults: Byte  # [value] VALID, EMPTY, TOO_LONG or NOT_TEXT

    @property
    def all_valid(self) -> bool:
        """Whether there is no null and no fault, as in most batches."""
        return not self.faults.any() and bool(self.codes.min(initial=0) >= 0)

    def row_faults(self) -> Byte:
        """The fault of every text; null counts as empty."""
        return np.append(self.faults, np.uint8(EMPTY))[self.codes]


@dataclass(frozen=True, slots=True)
class EncodedNumbers:
    """Lists of numbers, end to end."""

    values: Float64  # nan for null
    starts: Int64  # [row + 1]
    null_list: Bool  # [row] whether the whole list is null
    not_number: Bool  # whether a value is nan itself


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """The rows of a batch as arrays, not validated yet. Pages and click lists are ragged."""

    query: EncodedText  # [row]
    ad: EncodedText  # [impression]
    page: Int64  # [row + 1] where each page starts in ad
    click: Int32  # [click] positions from 1, or NULL_POSITION
    clicks: Int64  # [row + 1] where the clicks of each row start in click
    weight: Float64  # [row], empty if the log has no weights
    dwell_seconds: EncodedNumbers | None = None  # of clicks; None if the log has no such column
    conversions: EncodedNumbers | None = None


def encode_batch(raw: RawBatch, previous: BatchArrays | None = None) -> BatchArrays:
    """Encode the columns of a batch, whose indices its source has checked.

    `previous` are the arrays of the batch before it.
    """
    ads, page = encode_lists(raw.columns["ads"])
    click, clicks = encode_lists(raw.columns.get("clicks", pa.nulls(raw.length)))
    weight = encode_number(raw.columns["weight"]) if "weight" in raw.columns else np.zeros(0)
    query = encode_text(raw.columns["query"], None if previous is None else previous.query)
    ad = encode_text(ads, None if previous is None else previous.ad)
    outcomes = {
        name: encode_numbers(raw.columns[name])
        for name in OUTCOME_COLUMNS
        if name in raw.columns and "clicks" in raw.columns
    }
    arrays = BatchArrays(query, ad, page, encode_positions(click), clicks, weight, **outcomes)
    for array in (query.codes, ad.codes, page, arrays.click, clicks, weight):
        array.flags.writeable = False  # like arrays over Arrow's memory: kernels compile once
    return arrays


def encode_text(column: pa.Array, previous: EncodedText | None = None) -> EncodedText:
    """Return the codes and the distinct values of texts or whole-number ids.

    If the values equal the previous ones, they are not checked again.
    """
    if arrow_types.is_null(column.type):
        no_codes = np.full(len(column), -1, np.int32)
        return EncodedText(pa.array([], pa.string()), no_codes, np.zeros(0, np.uint8))
    array = column if arrow_types.is_dictionary(column.type) else column.dictionary_encode()
    indices = array.indices if array.indices.type == pa.int32() else array.indices.cast(pa.int32())
    if indices.null_count:
        indices = indices.fill_null(-1)
    # All batches of a Parquet row group have the same dictionary.
    if (
        previous is not None
        and not previous.faults.any()
        and array.dictionary.equals(previous.values)
    ):
        return EncodedText(previous.values, _to_numpy(indices), previous.faults)
    values, faults = _check_values(array.dictionary)
    return EncodedText(values, _to_numpy(indices), faults)


def encode_lists(column: pa.Array) -> tuple[pa.Array, Int64]:
    """Return the values of all lists end to end, and where each starts; null is an empty list.

    >>> values, starts = encode_lists(pa.array([[1, 2], None, [3]])[1:])
    >>> values.to_pylist(), starts.tolist()
    ([3], [0, 0, 1])
    """
    if arrow_types.is_null(column.type):
        return pa.array([], pa.null()), np.zeros(len(column) + 1, np.int64)
    has_offsets = arrow_types.is_list(column.type) or arrow_types.is_large_list(column.type)
    if has_offsets and not column.null_count:
        starts = column.offsets.to_numpy().astype(np.int64)
        starts -= starts[0]  # in place: allocating memory takes longer than filling it
        return column.flatten(), starts
    # No cast: Arrow casts a sliced list_view wrongly. flatten() omits the values of null lists.
    lengths = pc.list_value_length(column).fill_null(0)
    starts = np.zeros(len(column) + 1, np.int64)
    np.cumsum(np.asarray(lengths, np.int64), out=starts[1:])
    return column.flatten(), starts


def encode_positions(values: pa.Array) -> Int32:
    """Return positions as clipped 32-bit integers; null is NULL_POSITION."""
    if arrow_types.is_null(values.type):
        return np.full(len(values), NULL_POSITION, np.int32)
    nulls = np.asarray(values.is_null()) if values.null_count else None
    numbers = _to_numpy(values.fill_null(0) if values.null_count else values)
    if numbers.dtype != np.int32:
        lowest = -1 if numbers.dtype.kind == "i" else 0
        highest = min(2**31 - 1, np.iinfo(numbers.dtype).max)
        numbers = np.clip(numbers, lowest, highest).astype(np.int32)
    elif len(numbers) and numbers.min() == NULL_POSITION:
        numbers = np.maximum(numbers, np.int32(-1))
    if nulls is not None:
        numbers = np.where(nulls, NULL_POSITION, numbers)
    return numbers


def encode_number(column: pa.Array) -> Float64:
    """Return numbers as 64-bit floats, null as NaN."""
    floats = column.cast(pa.float64(), safe=False)
    return np.asarray(floats.fill_null(float("nan")) if floats.null_count else floats, np.float64)


def encode_numbers(column: pa.Array) -> EncodedNumbers:
    """Return lists of numbers, or of true and false."""
    values, starts = encode_lists(column)
    null_list = np.asarray(column.is_null()) if column.null_count else np.zeros(len(column), bool)
    if arrow_types.is_null(values.type):
        values = values.cast(pa.float64())
    if arrow_types.is_boolean(values.type):
        values = values.cast(pa.int8())
    numbers = encode_number(values)
    return EncodedNumbers(
        numbers, starts, null_list, np.isnan(numbers) & np.asarray(values.is_valid())
    )


def _check_values(dictionary: pa.Array) -> tuple[pa.StringArray, Byte]:
    values = dictionary if dictionary.type == pa.string() else dictionary.cast(pa.string())
    lengths = np.asarray(pc.binary_length(values).fill_null(0))
    faults = np.zeros(len(values), np.uint8)
    faults[lengths == 0] = EMPTY
    faults[lengths > MAX_TEXT_BYTES] = TOO_LONG
    faults[find_invalid_utf8(values)] = NOT_TEXT
    if faults.any():
        values = pc.if_else(pa.array(faults != VALID), pa.scalar("", pa.string()), values)
    return values, faults


def _to_numpy(array: pa.Array) -> npt.NDArray[np.int32]:
    return array.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]
