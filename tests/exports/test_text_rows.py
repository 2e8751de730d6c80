"""Escaping: every text comes back, and stays on its line."""

from __future__ import annotations

import csv
import io
import json
import sys
from urllib.parse import unquote

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reclick.exports.text_rows import (
    JSON_CODES,
    ONE_LINE_CODES,
    ONE_WORD_CODES,
    WHITE_SPACE,
    concatenate,
    escape,
    escape_csv,
    map_distinct,
    write_rows,
)
from tests.support.export_data import TEXTS


def test_white_space_is_what_python_splits_at() -> None:
    assert set(WHITE_SPACE) == {
        chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()
    }


@given(st.lists(TEXTS, min_size=1))
def test_a_text_as_one_word_comes_back(texts: list[str]) -> None:
    words = escape(pa.array(texts), ONE_WORD_CODES).to_pylist()
    assert all(word.split() == [word] for word in words)
    assert [unquote(word) for word in words] == texts


@given(st.lists(TEXTS, min_size=1))
def test_a_text_on_one_line_comes_back_and_keeps_its_spaces(texts: list[str]) -> None:
    lines = escape(pa.array(texts), ONE_LINE_CODES).to_pylist()
    assert all(line.splitlines() == [line] and "\t" not in line for line in lines)
    assert [line.count(" ") for line in lines] == [text.count(" ") for text in texts]
    assert [unquote(line) for line in lines] == texts


@given(st.lists(TEXTS, min_size=1))
def test_a_text_in_json_comes_back(texts: list[str]) -> None:
    assert [
        json.loads(f'"{text}"') for text in escape(pa.array(texts), JSON_CODES).to_pylist()
    ] == texts


@given(st.lists(TEXTS, min_size=1))
def test_a_text_in_a_cell_comes_back(texts: list[str]) -> None:
    cells = escape_csv(pa.array(texts)).to_pylist()
    rows = list(csv.reader(io.StringIO("\n".join(f"{cell},1" for cell in cells), newline="")))
    assert rows == [[text, "1"] for text in texts]


def test_slices_of_arrays_are_written_as_they_are() -> None:
    file = io.BytesIO()
    write_rows(
        file,
        concatenate(pa.array(["a", "b", "c", "d"]).slice(1, 2), pa.array([1, 2, 3]).slice(1), "\n"),
    )
    write_rows(file, pa.array(["x", "y", "z"], pa.large_string()).slice(2))
    assert file.getvalue() == b"b2\nc3\nz"


def test_each_query_is_worked_out_once() -> None:
    asked: list[list[str]] = []

    def change(queries: pa.Array) -> pa.Array:
        asked.append(queries.to_pylist())
        return concatenate(queries, "!")

    assert map_distinct(pa.array(["a", "a", "b", "a"]), change).to_pylist() == [
        "a!",
        "a!",
        "b!",
        "a!",
    ]
    assert asked == [["a", "b"]]
