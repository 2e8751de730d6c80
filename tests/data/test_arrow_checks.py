"""The check of codes and offsets, for every type of Arrow that has some."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from reclick.data import arrow_checks
from reclick.data.arrow_checks import check_batch, check_batch_codes
from reclick.errors import LogError
from tests.support.damaged_arrow import FAR, code_outside, move_offset

TEXTS = ["a", "bé", None, "dd"]
LISTS = [["a"], None, [], ["x", "yy"]]
DICTIONARY = pa.array(TEXTS).dictionary_encode()
GOOD: dict[str, pa.Array] = {
    "text": pa.array(TEXTS),
    "large text": pa.array(TEXTS, pa.large_string()),
    "text view": pa.array(TEXTS, pa.string_view()),
    "binary": pa.array([b"\xff", None, b"", b"x"]),
    "lists": pa.array(LISTS),
    "large lists": pa.array(LISTS, pa.large_list(pa.large_string())),
    "list views": pa.array(LISTS, pa.list_view(pa.string())),
    "large list views": pa.array(LISTS, pa.large_list_view(pa.string_view())),
    "fixed lists": pa.array([["a", "b"], None, ["c", "d"], ["x", "y"]], pa.list_(pa.string(), 2)),
    "maps": pa.array([[("a", 1)], None, [], [("b", 2)]], pa.map_(pa.string(), pa.int32())),
    "structs": pa.array([{"a": "x", "b": ["y"]}, None, {"a": None, "b": None}, {"a": "z"}]),
    "codes": DICTIONARY,
    "lists of codes": pa.ListArray.from_arrays([0, 1, 1, 2, 3], DICTIONARY),
    "unions": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(["a"] * 4)]
    ),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 4], ["a", "b"]),
    "nulls": pa.nulls(4),
    "flags": pa.array([True, None, False, True]),
    "JSON": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "2", "3", None])),
}
WRONG = code_outside(["a", "b", "a"])
BAD_CODES: dict[str, pa.Array] = {
    "codes": WRONG,
    "below": code_outside(["a", "b", "a"], -1),
    "no values": code_outside([None, None, None], 0),
    "lists": pa.ListArray.from_arrays([0, 1, 3], WRONG),
    "fixed lists": pa.FixedSizeListArray.from_arrays(WRONG, 3),
    "list views": pa.ListViewArray.from_arrays([0, 1], [1, 2], WRONG),
    "maps": pa.MapArray.from_arrays([0, 3], pa.array(["x", "y", "z"]), WRONG),
    "structs": pa.StructArray.from_arrays([WRONG], names=["a"]),
    "structs in lists": pa.ListArray.from_arrays(
        [0, 3], pa.StructArray.from_arrays([WRONG], names=["a"])
    ),
}
BAD_OFFSETS: dict[str, pa.Array] = {
    "text": move_offset(GOOD["text"], 1, FAR),
    "large text": move_offset(GOOD["large text"], 1, -FAR),
    "binary": move_offset(GOOD["binary"], 2, 0),
    "lists": move_offset(pa.array([["a"], [], [], ["x", "yy"]]), 1, FAR),
    "large lists": move_offset(GOOD["large lists"], 1, -1),
    "list views": pa.ListViewArray.from_arrays([0, FAR], [1, 2], pa.array(["a"])),
    "texts of a dictionary": pa.DictionaryArray.from_arrays(
        [0, 1], move_offset(GOOD["text"], 1, FAR)
    ),
    "texts in lists": pa.ListArray.from_arrays([0, 2, 4], move_offset(GOOD["text"], 1, FAR)),
}
Check = Callable[[pa.RecordBatch, str], None]


@pytest.fixture(params=[0, arrow_checks.SMALL], ids=["large", "small"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_checks, "SMALL", request.param)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("check", [check_batch, check_batch_codes])
def test_sound_columns_pass_in_every_slice(name: str, check: Check) -> None:
    batch = pa.record_batch({name: GOOD[name]})
    for start in range(5):
        for length in range(5 - start):
            check(batch.slice(start, length), "log")


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("name", BAD_CODES)
@pytest.mark.parametrize("check", [check_batch, check_batch_codes])
def test_codes_outside_a_dictionary_are_named(name: str, check: Check) -> None:
    with pytest.raises(LogError, match="log is damaged: user has a dictionary code outside its"):
        check(
            pa.record_batch(
                {"sound": GOOD["text"][: len(BAD_CODES[name])]} | {"user": BAD_CODES[name]}
            ),
            "log",
        )


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("name", BAD_OFFSETS)
def test_offsets_out_of_range_are_errors(name: str) -> None:
    with pytest.raises(LogError, match="log is damaged"):
        check_batch(pa.record_batch({"user": BAD_OFFSETS[name]}), "log")


def test_a_code_that_no_row_of_a_slice_uses_is_no_error() -> None:
    check_batch_codes(pa.record_batch({"user": WRONG}).slice(0, 2), "log")
    check_batch_codes(pa.record_batch({"user": BAD_CODES["lists"]}).slice(0, 1), "log")


def test_text_that_is_not_utf8_is_left_to_the_validation_of_rows() -> None:
    text = pa.array([b"\xff\xfe"]).view(pa.string())
    check_batch(pa.record_batch({"query": text, "ads": np.zeros(1)}), "log")
