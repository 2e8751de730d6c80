from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.logs.validation.encode import (
    EMPTY,
    NULL_POSITION,
    TOO_LONG,
    encode_lists,
    encode_number,
    encode_positions,
    encode_text,
)

texts = st.lists(st.none() | st.text(max_size=3))
lists = st.lists(st.none() | st.lists(st.integers(-3, 3), max_size=3))


@given(
    texts,
    st.sampled_from(
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())]
    ),
    st.integers(0, 3),
)
def test_codes_point_to_the_texts(values: list[str | None], kind: pa.DataType, start: int) -> None:
    coded = encode_text(pa.array(values, kind)[start:])
    assert coded.values.type == pa.string()
    assert coded.codes.dtype == np.int32
    assert [
        None if code < 0 else coded.values[int(code)].as_py() for code in coded.codes
    ] == values[start:]


@given(
    lists,
    st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view]),
    st.integers(0, 3),
    st.integers(0, 2),
)
def test_lists_are_laid_end_to_end(
    values: list[list[int] | None], many: Any, start: int, cut: int
) -> None:
    array = pa.array(values, many(pa.int32()))[start : max(len(values) - cut, 0)]
    flat, starts = encode_lists(array)
    wanted = [value or [] for value in array.to_pylist()]
    assert [flat.to_pylist()[a:b] for a, b in pairwise(starts)] == wanted
    assert starts[0] == 0
    assert starts[-1] == len(flat)


def test_what_lies_under_a_null_list_is_left_out() -> None:
    array = pa.ListArray.from_arrays(
        pa.array([0, 2, 4]), pa.array([1, 2, 3, 4]), mask=pa.array([True, False])
    )
    flat, starts = encode_lists(array)
    assert (flat.to_pylist(), starts.tolist()) == ([3, 4], [0, 0, 2])


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
)
def test_positions_of_every_width_keep_nulls_apart(kind: pa.DataType) -> None:
    assert encode_positions(pa.array([1, None, 3], kind)).tolist() == [1, NULL_POSITION, 3]


def test_positions_beyond_32_bits_are_cut_not_wrapped() -> None:
    assert encode_positions(pa.array([2**32 + 1, -(2**32) + 1])).tolist() == [2**31 - 1, -1]
    assert encode_positions(pa.array([2**64 - 1], pa.uint64())).tolist() == [2**31 - 1]


def test_the_smallest_number_of_32_bits_is_not_taken_for_a_null() -> None:
    assert encode_positions(pa.array([-(2**31)], pa.int32()))[0] != NULL_POSITION


def test_empty_and_too_long_texts_are_marked_and_emptied() -> None:
    coded = encode_text(pa.array(["", "x" * 65_536, "x" * 65_537]))
    assert coded.faults.tolist() == [EMPTY, 0, TOO_LONG]
    assert [len(value) for value in coded.values.to_pylist()] == [0, 65_536, 0]


def test_a_null_in_a_dictionary_is_empty_text() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    coded = encode_text(array)
    assert coded.codes.tolist() == [0, 1, -1]
    assert coded.faults.tolist() == [0, EMPTY]


def test_numbers_of_every_type_become_floats() -> None:
    for array in (
        pa.array([1, None], pa.int8()),
        pa.array([1, None], pa.float32()),
        pa.array([1, None], pa.decimal128(5, 2)),
    ):
        assert np.array_equal(encode_number(array), [1.0, np.nan], equal_nan=True)
    assert np.isnan(encode_number(pa.nulls(1))).all()
