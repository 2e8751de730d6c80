from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from reclick.errors import LogError
from reclick.logs import read_sessions
from tests.support.log_tables import GOOD, read_back, session


def written(tmp_path: Path, *lines: Any, name: str = "a.jsonl") -> Path:
    data = b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return tmp_path / name


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a.jsonl.gz", "a.json.gz"])
def test_one_object_per_line_is_read(tmp_path: Path, name: str) -> None:
    assert read_back(read_sessions(written(tmp_path, *GOOD, b"", name=name))) == GOOD


def test_whole_number_ids_become_text_also_next_to_text(tmp_path: Path) -> None:
    rows = read_back(read_sessions(written(tmp_path, {"query": 5, "ads": [1, 2], "clicks": [1]})))
    assert rows == [{"query": "5", "ads": ["1", "2"], "clicks": [1]}]
    mixed = read_back(
        read_sessions(written(tmp_path, {"query": 5, "ads": [1, "b"], "clicks": [2.0]}))
    )
    assert mixed == [{"query": "5", "ads": ["1", "b"], "clicks": [2]}]


@pytest.mark.parametrize(
    ("line", "got"),
    [
        (b'{"query": "q", "ads": ["a"], "clicks": [1]', "not JSON"),
        (b'{"query": "q", "ads": ["a"], "clicks": [1]} x', "not JSON"),
        (b'{"query": "a", "ads": ["a"]}{"query": "b", "ads": ["a"]}', "not JSON"),
        (b"[1]", "expected a JSON object"),
        (b'{"query": ["q"], "ads": ["a"], "clicks": [1]}', "query: expected text"),
        (b'{"query": "q", "ads": "a", "clicks": [1]}', "ads: expected a list"),
        (b'{"query": "q", "ads": ["a"], "clicks": 1}', "clicks: expected a list"),
        (b'{"query": "q", "ads": ["a"], "clicks": ["1"]}', "clicks: expected whole numbers"),
        (b'{"query": "q", "ads": ["a"], "clicks": [true]}', "clicks: expected whole numbers"),
        (
            b'{"query": "q", "ads": ["a"], "clicks": [1], "weight": "2"}',
            "weight: expected a number",
        ),
        (b'{"query": "\xff", "ads": ["a"], "clicks": [1]}', "query: not text"),
        (b'{"query": "\\ud83d", "ads": ["a"], "clicks": [1]}', "query: not text"),
    ],
)
def test_a_line_that_cannot_be_read_is_counted_with_its_row(
    tmp_path: Path, line: bytes, got: str
) -> None:
    first = session("first", clicks=[1]) | {"weight": 1}
    path = written(tmp_path, first, line, session("third", ["a"], [7]) | {"weight": 1})
    log = read_sessions(path, on_error="drop")
    assert [row["query"] for row in read_back(log)] == ["first"]
    assert log.summary.dropped == {"not readable": 1, "click outside the page": 1}
    assert log.summary.examples["not readable"][0].row == 2
    assert got in log.summary.examples["not readable"][0].got
    assert log.summary.examples["click outside the page"][0].row == 3


@pytest.mark.parametrize("line", [b"null", b'  null{"query": "q"}', b'nullquery": 1}'])
@pytest.mark.parametrize("lines", [3, 3000])
def test_a_block_that_begins_with_null_does_not_crash(
    tmp_path: Path, line: bytes, lines: int
) -> None:
    """Arrow's reader of JSON ends the process there."""
    good = session("good", clicks=[1])
    path = written(tmp_path, *[good] * 200, *[line] * lines, good)
    log = read_sessions(path, on_error="drop")
    assert len(read_back(log)) == 201
    assert sum(log.summary.dropped.values()) == lines
    path = written(tmp_path, line, *[good] * 3)
    assert len(read_back(read_sessions(path, on_error="drop"))) == 3


@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_reason_of_a_null_line_does_not_depend_on_its_place(tmp_path: Path, place: int) -> None:
    lines = [session("good", clicks=[1])] * 3
    log = read_sessions(written(tmp_path, *lines[:place], b"null", *lines[place:]), on_error="drop")
    assert log.summary.dropped == {"not readable": 1}
    assert log.summary.examples["not readable"][0].row == place + 1


def test_missing_and_null_fields_are_the_reasons_of_their_columns(tmp_path: Path) -> None:
    log = read_sessions(
        written(
            tmp_path,
            *GOOD,
            {"ads": ["a"]},
            {"query": "q", "clicks": []},
            {"query": "q", "ads": ["a", None]},
        ),
        on_error="drop",
    )
    assert read_back(log) == GOOD
    assert log.summary.dropped == {"no query": 1, "no ads": 1, "null ad": 1}


def test_far_off_positions_are_outside_the_page(tmp_path: Path) -> None:
    log = read_sessions(
        written(
            tmp_path, session(clicks=[10**30]), session(clicks=[-(10**30)]), session(clicks=[2**40])
        ),
        on_error="drop",
    )
    assert log.summary.dropped == {"click outside the page": 3}


@pytest.mark.parametrize("text", [b"[\n1,\n2]\n", b"hello\nworld\n"])
def test_a_file_that_is_not_json_lines_is_told(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(LogError, match=r"a\.json is not JSON lines"):
        read_sessions(tmp_path / "a.json")


def test_a_column_of_the_wrong_kind_is_told_before_reading(tmp_path: Path) -> None:
    path = written(tmp_path, {"query": "q", "ads": ["a"], "clicks": "1"})
    with pytest.raises(
        LogError, match=r"clicks in a\.jsonl: expected a list of whole numbers, got string"
    ):
        read_sessions(path)


def test_rows_carry_other_columns_as_text(tmp_path: Path) -> None:
    path = written(
        tmp_path, GOOD[0] | {"device": "phone", "tags": [1]}, b"oops", GOOD[1] | {"device": None}
    )
    (batch,) = read_sessions(path, on_error="drop").batches(with_rows=True)
    assert batch.rows is not None
    assert batch.rows.to_pylist() == [
        GOOD[0] | {"device": "phone", "tags": "[1]"},
        GOOD[1] | {"device": None, "tags": None},
    ]
