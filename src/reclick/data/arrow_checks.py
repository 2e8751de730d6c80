"""Check Arrow arrays before their indices are used: Arrow itself trusts what it reads.

The Parquet reader makes the offsets of lists and texts itself, but takes dictionary codes from the
file. Tables in memory and Arrow streams may have wrong offsets too.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from reclick.errors import LogError

SMALL = 65_536  # bytes of a batch that Arrow's own check of everything takes no time for
BINARY_TYPES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
    **{kind: kind for kind in (pa.binary(), pa.large_binary(), pa.binary_view())},
}
LIST_KINDS = (  # with the number of buffers of each
    (arrow_types.is_list, pa.list_, 2),
    (arrow_types.is_map, pa.list_, 2),
    (arrow_types.is_large_list, pa.large_list, 2),
    (arrow_types.is_list_view, pa.list_view, 3),
    (arrow_types.is_large_list_view, pa.large_list_view, 3),
)


def check_batch_codes(batch: pa.RecordBatch, where: str) -> None:
    """Raise if a dictionary code of a column, or of a value in it, is outside its dictionary.

    >>> codes = pa.DictionaryArray.from_arrays([0, 7], ["a"], safe=False)
    >>> check_batch_codes(pa.record_batch({"user": codes}), "log.parquet")
    Traceback (most recent call last):
    reclick.errors.LogError: log.parquet is damaged: user has a dictionary code outside its ...
    """
    for index, kind in enumerate(batch.schema.types):
        if _may_have_codes(kind):
            _check_column(batch, index, where, offsets=False)


def check_batch(batch: pa.RecordBatch, where: str) -> None:
    """Raise if a dictionary code, or an offset of lists or texts, is out of range.

    Text that is not UTF-8 is no error here: the validation of rows reports it.
    """
    if batch.get_total_buffer_size() < SMALL:
        with suppress(pa.ArrowException):
            batch.validate(full=True)
            return
    try:
        batch.validate()  # sizes of buffers only
    except pa.ArrowException as error:
        raise LogError(
            f"{where} is damaged: Arrow says {str(error)!r}. Write it again, or leave it out."
        ) from error
    for index in range(batch.num_columns):
        _check_column(batch, index, where, offsets=True)


def find_invalid_utf8(values: pa.StringArray) -> list[int]:
    """Return the indices of values that are not UTF-8, which Parquet and Arrow do not check."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        content = enumerate(values.cast(pa.large_binary()).to_pylist())
        return [index for index, value in content if not _is_utf8(value or b"")]
    return []


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_column(batch: pa.RecordBatch, index: int, where: str, *, offsets: bool) -> None:
    try:
        _check(batch.column(index), offsets=offsets)
    except (pa.ArrowException, OverflowError) as error:
        what = (
            "a dictionary code outside its dictionary"
            if isinstance(error, pa.ArrowIndexError)
            else f"offsets that are out of range ({error})"
        )
        raise LogError(
            f"{where} is damaged: {batch.schema.names[index]} has {what}. "
            "Write it again, or leave it out."
        ) from error


def _check(array: pa.Array, *, offsets: bool) -> None:
    kind = array.type
    if arrow_types.is_dictionary(kind):
        _check_range(array.indices, len(array.dictionary))
        _check(array.dictionary, offsets=offsets)
    elif isinstance(kind, pa.BaseExtensionType):
        _check(array.storage, offsets=offsets)
    elif arrow_types.is_struct(kind):
        for index in range(kind.num_fields):
            _check(array.field(index), offsets=offsets)
    elif arrow_types.is_fixed_size_list(kind):
        size = kind.list_size
        _check(array.values.slice(array.offset * size, len(array) * size), offsets=offsets)
    elif arrow_types.is_list(kind) or arrow_types.is_large_list(kind) or arrow_types.is_map(kind):
        if offsets:
            _check_list_offsets(array)
        if len(array):
            first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
            _check(array.values.slice(first, end - first), offsets=offsets)
    elif arrow_types.is_list_view(kind) or arrow_types.is_large_list_view(kind):
        if offsets:
            _check_list_offsets(array)
        _check(array.values, offsets=offsets)
    elif arrow_types.is_nested(kind):  # unions and run-end-encoded values
        array.validate(full=True)
    elif offsets and kind in BINARY_TYPES:
        array.view(BINARY_TYPES[kind]).validate(full=True)  # as bytes: without a check of UTF-8


def _check_list_offsets(array: pa.Array) -> None:
    """Let Arrow check the offsets of lists, as of lists of nothing: their values take time."""
    make_kind, num_buffers = next(
        (make_kind, num_buffers)
        for is_kind, make_kind, num_buffers in LIST_KINDS
        if is_kind(array.type)
    )
    pa.Array.from_buffers(
        make_kind(pa.null()),
        len(array),
        array.buffers()[:num_buffers],
        offset=array.offset,
        children=[pa.nulls(len(array.values))],
    ).validate(full=True)


def _check_range(codes: pa.Array, size: int) -> None:
    limits = pc.min_max(codes)
    low, high = limits["min"].as_py(), limits["max"].as_py()
    if low is not None and not 0 <= low <= high < size:
        raise pa.ArrowIndexError(f"codes from {low} to {high}, {size} values")


def _may_have_codes(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _may_have_codes(kind.storage_type)
    if arrow_types.is_list(kind):
        return _may_have_codes(kind.value_type)
    return bool(arrow_types.is_dictionary(kind) or arrow_types.is_nested(kind))
