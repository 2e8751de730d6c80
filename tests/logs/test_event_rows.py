"""Keys of several columns, and columns of times and flags in every kind of file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.data.schema import FLAG, TIME, is_flag, is_time
from reclick.logs.assembly.page_join import first_key_part, join_key_parts
from reclick.logs.events import EventRows
from reclick.logs.files.csv import parse_cell
from reclick.logs.files.jsonl import UnreadableError, as_flag, as_time
from reclick.logs.files.source import RawBatch
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.helpers.records import is_invalid_text

parts = st.text(st.sampled_from("ab|\\\n "), max_size=4)


@given(st.lists(st.tuples(parts, parts), unique=True, min_size=1))
def test_different_parts_never_give_the_same_key_and_the_first_comes_back(
    pairs: list[tuple[str, str]],
) -> None:
    columns = [pa.array([pair[place] for pair in pairs], pa.string()) for place in (0, 1)]
    keys = join_key_parts(columns)
    assert len(set(keys.to_pylist())) == len(pairs)
    assert first_key_part(keys).to_pylist() == [first for first, _ in pairs]


def test_a_key_with_a_part_missing_is_none() -> None:
    assert join_key_parts([pa.array(["a", None]), pa.array(["b", "c"])]).to_pylist() == [
        "a|b",
        None,
    ]


def test_rows_found_bad_are_told_once_and_left_out() -> None:
    report = ReadReport()
    columns = {"id": pa.array(["a", None, "c"]), "position": pa.array([1.0, 2.5, None])}
    rows = EventRows(RawBatch("f", 5, columns, 3, unreadable=[(9, "what")]), 0, "file", report)
    table = rows.table({"key": rows.key(["id"]), "position": rows.positions(required=True)})
    assert table.to_pydict() == {"key": ["a"], "position": [1], "file": [0], "number": [5]}
    assert report.bad_rows.dropped == {"not readable": 1, "no page key": 1, "no position": 1}
    assert report.bad_rows.examples["no position"][0].row == 7


KINDS = ["string", "large_string", "string_view", "dictionary", "views"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in ("id", "timestamp") for kind in KINDS),
        *(("position", kind) for kind in KINDS[:3]),  # positions in a dictionary are not numbers
    ],
)
def test_text_that_is_not_utf8_makes_a_bad_row(name: str, kind: str) -> None:
    columns = {
        "id": pa.array(["a", "b"]),
        "position": pa.array(["1", "2"]),
        "timestamp": pa.array(["2026-01-01", "2026-01-02 00:00"]),
    }
    invalid = pa.array([columns[name][0].as_py().encode(), b"1\xff"]).view(pa.string())
    if kind == "dictionary":
        columns[name] = invalid.dictionary_encode()
    elif kind == "views":  # as in a categorical column of Polars
        texts = invalid.cast(pa.large_string()).cast(pa.string_view())
        columns[name] = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.uint32()), texts)
    else:
        columns[name] = invalid.cast(pa.type_for_alias(kind))
    report = ReadReport()
    rows = EventRows(RawBatch("f", 5, columns, 2), 0, "file", report)
    position = {} if kind in KINDS[3:] else {"position": rows.positions(required=True)}
    table = rows.table({"key": rows.key(["id"]), "time": rows.times("timestamp"), **position})
    assert table["key"].to_pylist() == ["a"]
    examples = report.bad_rows.examples["not readable"]
    assert [(row.row, row.got) for row in examples] == [(6, f"{name}: not UTF-8")]


@pytest.mark.parametrize("size", [127, 128, 129])
def test_a_dictionary_of_any_size_is_read(size: int) -> None:
    kind = pa.int8() if size < 129 else pa.uint8()
    codes = pa.array([0, size - 1, None], kind)
    values = pa.DictionaryArray.from_arrays(codes, pa.array([f"page {i}" for i in range(size)]))
    assert is_invalid_text(values).tolist() == [False, False, False]
    rows = EventRows(RawBatch("f", 5, {"page": values}, 3), 0, "file", ReadReport())
    assert rows.text("page").to_pylist() == ["page 0", f"page {size - 1}", None]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda text: pa.list_(text, 2)])
def test_text_that_is_not_utf8_is_found_in_any_list(kind: Any) -> None:
    text = pa.array([b"a", b"b", b"c", b"\xff"]).view(pa.string())
    offsets = [0, 2, 4]
    if kind is pa.list_:
        lists = pa.ListArray.from_arrays(offsets, text)
    elif kind is pa.large_list:
        lists = pa.LargeListArray.from_arrays(offsets, text)
    else:
        lists = pa.FixedSizeListArray.from_arrays(text, 2)
    assert lists.type == kind(pa.string())
    assert is_invalid_text(lists).tolist() == [False, True]
    rows = EventRows(RawBatch("f", 5, {"ads": lists}, 2), 0, "file", ReadReport())
    assert rows.column("ads").to_pylist() == [["a", "b"], None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.date32(),
        pa.int32(),
        pa.float64(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.null(),
    ],
)
def test_a_time_may_be_of_many_types(kind: pa.DataType) -> None:
    assert is_time(kind)


def test_other_types_are_no_times_and_no_flags() -> None:
    assert not is_time(pa.bool_())
    assert not is_time(pa.list_(pa.int64()))
    assert is_flag(pa.bool_())
    assert is_flag(pa.int8())
    assert not is_flag(pa.string())


def test_times_stay_as_they_are_written_and_nothing_is_none() -> None:
    assert [parse_cell(TIME, cell) for cell in ("2024-01-01", " 17 ", "")] == [
        "2024-01-01",
        "17",
        None,
    ]
    assert [as_time(value) for value in (5, 2.5, "", None)] == ["5", "2.5", None, None]
    with pytest.raises(UnreadableError, match="expected a time, got True"):
        as_time(True)


def test_flags_are_words_or_numbers() -> None:
    assert [parse_cell(FLAG, cell) for cell in ("1", "0", "2", "True", " f ", "")] == [
        True,
        False,
        True,
        True,
        False,
        None,
    ]
    assert [as_flag(value) for value in (True, 0, 1.0, None)] == [True, False, True, None]
    for wrong in ("perhaps", "x1"):
        with pytest.raises(UnreadableError):
            parse_cell(FLAG, wrong)
    with pytest.raises(UnreadableError, match="expected true or false, got 'yes'"):
        as_flag("yes")
