"""Files that are one JSON array, read as lines."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.files import log_file
from reclick.logs.files.log_file import JsonArrayStream, LogFile, as_json_lines
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.helpers.json_records import first_objects, read_objects
from tests.support.line_logs import started

ONE, TWO = {"id": "a"}, {"id": "é] , [{", "more": {"deep": [1, 2]}}
WRITTEN = {
    "in one line": json.dumps([ONE, TWO]),
    "with an end of line": json.dumps([ONE, TWO]) + "\r\n",
    "a record a line": f"[\n{json.dumps(ONE)},\n{json.dumps(TWO)}\n]\n",
    "over many lines": json.dumps([ONE, TWO], indent=2, ensure_ascii=False),
    "after blank lines": "\n  \n" + json.dumps([ONE, TWO], indent=2),
    "with the mark of UTF-8": "\ufeff" + json.dumps([ONE, TWO]),
}


def objects(file: LogFile) -> tuple[list[tuple[int, Any]], ReadReport]:
    report = ReadReport()
    return list(read_objects(file, report)), report


@pytest.mark.parametrize("way", WRITTEN)
def test_an_array_is_read_record_by_record_however_it_is_written(tmp_path: Path, way: str) -> None:
    file = started(tmp_path, WRITTEN[way], "log.json")
    read, report = objects(file)
    assert read == [(1, ONE), (2, TWO)]
    assert not report.bad_rows.dropped
    assert first_objects(file) == [ONE, TWO]


def test_an_array_may_be_gzipped(tmp_path: Path) -> None:
    (tmp_path / "log.json.gz").write_bytes(gzip.compress(json.dumps([ONE] * 3000).encode()))
    assert len(objects(LogFile(str(tmp_path / "log.json.gz"), "log.json.gz"))[0]) == 3000


def test_what_is_no_object_in_an_array_is_told_by_its_place(tmp_path: Path) -> None:
    read, report = objects(started(tmp_path, json.dumps([ONE, 5, ["x"], TWO]), "log.json"))
    assert read == [(1, ONE), (4, TWO)]
    assert [(each.row, each.got) for each in report.bad_rows.examples["not readable"]] == [
        (2, "expected a JSON object, got 5"),
        (3, "expected a JSON object, got ['x']"),
    ]


@pytest.mark.parametrize(
    "text", ['[1]\n{"id": "a"}\n', '[{"id": "b"}]\n{"id": "a"}\n', "[]\n" + json.dumps(ONE)]
)
def test_lines_of_which_the_first_is_a_list_stay_lines(tmp_path: Path, text: str) -> None:
    read, report = objects(started(tmp_path, text, "log.json"))
    assert read == [(2, ONE)]
    assert [each.row for each in report.bad_rows.examples["not readable"]] == [1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'[{"id": "a"}, {"id": "b"',
            (
                r"log\.json is one JSON array and not valid JSON, or cut short, "
                r"after record 1 of it\. Write or copy it again\."
            ),
        ),
        (b'[{"id": "a"}, {"id": "b"}', "cut short, after record 1"),
        (b'[{"id": "a"}, {"id": b}, {"id": "c"}]', "not valid JSON.* after record 1"),
        (b'[{"id": "a"}, {"id": "\xff"}]', "not UTF-8, after record 0"),
        (
            b'[{"id": "a"}]\n[{"id": "b"}]'.replace(b'[{"id": "a"}]\n', b'[{"id":\n"a"}]\n'),
            r"followed by something else, after record 1.*jq -c '\.\[\]' log\.json",
        ),
    ],
)
def test_a_broken_array_is_refused_with_the_place(
    tmp_path: Path, data: bytes, message: str
) -> None:
    (tmp_path / "log.json").write_bytes(data)
    file = LogFile(str(tmp_path / "log.json"), "log.json")
    with pytest.raises(LogError, match=message):
        objects(file)
    first_objects(file)  # never raises


def test_a_value_that_never_ends_is_not_read_to_the_end_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_file, "MAX_VALUE_CHARS", 1000)
    stream = io.BytesIO(b'[{"id": "' + b"x" * 100_000 + b'"}]')
    values = JsonArrayStream(stream, "log.json")
    with pytest.raises(LogError, match="not valid JSON, after record 0"):
        values.read(100)
    assert stream.tell() < 2000


def test_a_file_of_lines_is_left_as_it_is(tmp_path: Path) -> None:
    file = started(tmp_path, json.dumps(ONE) + "\n", "log.json")
    assert as_json_lines(file) is file


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('ab]}[{\\" ,\n', max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    values=st.lists(anything, max_size=6),
    indent=st.sampled_from([None, 0, 2]),
    size=st.integers(1, 40),
    escaped=st.booleans(),
)
def test_any_array_comes_back_in_pieces_of_any_size(
    values: list[Any], indent: int | None, size: int, escaped: bool
) -> None:
    stream = JsonArrayStream(
        io.BytesIO(json.dumps(values, indent=indent, ensure_ascii=escaped).encode()), "log.json"
    )
    lines = b"".join(iter(lambda: stream.read(size), b"")).split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line) for line in lines] == values
