"""Nested records of JSON lines and Parquet as flat tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.data.schema import IDS, TEXT
from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.helpers import json_records
from reclick.logs.formats.helpers.json_records import (
    JsonRecordReader,
    first_objects,
    read_json_records,
    read_objects,
    split_lines,
)
from reclick.logs.formats.helpers.records import (
    PRESENT,
    TIMESTAMP,
    WHOLE_NUMBER,
    RecordField,
    nested_or_flat,
    read_parquet_records,
    unparsed_column,
)
from tests.support.line_logs import log

FIELDS = (
    RecordField("ad", TEXT, (*nested_or_flat("object", "id"), ("id",))),
    RecordField("ads", IDS, (("hits",), ("objects",))),
    RecordField("position", WHOLE_NUMBER, nested_or_flat("position", "ordinal")),
    RecordField("time", TIMESTAMP, (("timestamp",),)),
    RecordField("marked", PRESENT, (("index",), ("create",))),
)
WRITTEN: dict[str, Any] = {unparsed_column("position"): None, unparsed_column("time"): None}
NOTHING: dict[str, Any] = {
    "ad": None,
    "ads": None,
    "position": None,
    "time": None,
    "marked": False,
} | WRITTEN
NOON = datetime(2024, 6, 1, 12)
FULL = {
    "object": {"id": "a"},
    "hits": ["a", "b"],
    "position": {"ordinal": 3},
    "timestamp": "2024-06-01T12:00:00Z",
    "other": [{"deep": 1}],
}
FULL_ROW = {"ad": "a", "ads": ["a", "b"], "position": 3, "time": NOON, "marked": False} | WRITTEN


def read(file: LogFile) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The records with their numbers, and the lines that were not readable."""
    report = ReadReport()
    tables = (
        read_parquet_records(file, FIELDS, report)
        if file.is_parquet
        else (table for _, table in read_json_records([file], FIELDS, report))
    )
    rows = [row for table in tables for row in table.to_pylist()]
    assert set(report.bad_rows.dropped) <= {"not readable"}
    return rows, [
        (example.row, example.got) for example in report.bad_rows.examples.get("not readable", [])
    ]


def written(folder: Path, *lines: Any, name: str = "log.ndjson", end: bytes = b"\n") -> LogFile:
    return log(
        folder,
        *(line if isinstance(line, bytes) else json.dumps(line) for line in lines),
        name=name,
        end=end,
    )


@pytest.mark.parametrize("name", ["log.ndjson", "log.ndjson.gz"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_fields_come_out_flat_with_the_lines_they_stood_in(
    tmp_path: Path, name: str, end: bytes
) -> None:
    rows, bad = read(written(tmp_path, FULL, {}, FULL, name=name, end=end))
    assert rows == [FULL_ROW | {"number": 1}, NOTHING | {"number": 2}, FULL_ROW | {"number": 3}]
    assert not bad


@pytest.mark.parametrize(
    ("given_as", "row"),
    [
        ({"object": {"id": 7}}, {"ad": "7"}),
        ({"id": "b"}, {"ad": "b"}),
        ({"object.id": "b"}, {"ad": "b"}),
        ({"object": {"id": ""}, "id": "b"}, {"ad": "b"}),
        ({"object": None, "id": "b"}, {"ad": "b"}),
        ({"object": {}}, {}),
        ({"id": 99999999999999999999}, {"ad": "99999999999999999999"}),
        ({"objects": [1, None, 2]}, {"ads": ["1", None, "2"]}),
        ({"hits": []}, {"ads": []}),
        ({"position.ordinal": "4"}, {"position": 4}),
        ({"position": {"ordinal": 4.0}}, {"position": 4}),
        ({"position": {"ordinal": 4.5}}, {unparsed_column("position"): "4.5"}),
        ({"position": {"ordinal": "top"}}, {unparsed_column("position"): "top"}),
        ({"position": {"ordinal": ""}}, {unparsed_column("position"): ""}),
        ({"position": {"ordinal": ""}, "position.ordinal": 4}, {"position": 4}),
        ({"position": {"ordinal": True}}, {unparsed_column("position"): "true"}),
        ({"position": {"ordinal": {"index": 4}}}, {"position": 4}),
        ({"position": {"ordinal": {"index": "top"}}}, {unparsed_column("position"): "top"}),
        ({"position": {"ordinal": {"index": None}}}, {}),
        ({"position": {}}, {}),
        ({"timestamp": 1717243200000}, {"time": NOON}),
        ({"timestamp": 1717243200.0}, {"time": NOON}),
        ({"timestamp": "1717243200"}, {"time": NOON}),
        ({"timestamp": "soon"}, {unparsed_column("time"): "soon"}),
        ({"timestamp": ""}, {unparsed_column("time"): ""}),
        ({"timestamp": None}, {}),
        ({"id": 1.5}, {"ad": "1.5"}),
        ({"id": True}, {"ad": "true"}),
        ({"id": "[a]"}, {"ad": "[a]"}),
        ({"id": "{"}, {"ad": "{"}),
        ({"index": {}}, {"marked": True}),
        ({"create": {"_id": "x"}}, {"marked": True}),
    ],
)
def test_a_value_is_found_wherever_and_however_it_is_written(
    tmp_path: Path, given_as: dict[str, Any], row: dict[str, Any]
) -> None:
    assert read(written(tmp_path, given_as, {}))[0] == [
        NOTHING | row | {"number": 1},
        NOTHING | {"number": 2},
    ]
    among_others = read(
        written(tmp_path, FULL, given_as, {"id": 5, "timestamp": 1717243200})
    )  # one block with several ways of writing
    assert among_others[0][1] == NOTHING | row | {"number": 2}
    assert not among_others[1]


@pytest.mark.parametrize(
    ("line", "got"),
    [
        (b'{"id": "a"', "not JSON"),
        (b'{"id": "a"} x', "not JSON"),
        (b'{"id": "a"}{"id": "b"}', "not JSON"),
        (b"[1]", "expected a JSON object, got [1]"),
        (b'{"id": "\xff"}', "id: not text"),
        (b'{"id": "\\ud83d"}', "id: not text"),
        (b'{"hits": ["\\ud83d"]}', "hits: not text"),
        (b'{"id": ["a"]}', "id: expected text, got ['a']"),
        (b'{"id": {"a": 1}}', "id: expected text, got {'a': 1}"),
        (b'{"hits": [["a"]]}', "hits: expected text, got ['a']"),
        (b'{"hits": 5}', "hits: expected a list, got 5"),
        (b'{"hits": "a,b"}', "hits: expected a list, got 'a,b'"),
        (b'{"object": "a"}', "object.id: expected an object, got 'a'"),
        (b'{"position": {"ordinal": [1]}}', "position.ordinal: expected text, got [1]"),
        (b'{"timestamp": {}}', "timestamp: expected text, got {}"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_and_the_others_are_kept(
    tmp_path: Path, line: bytes, got: str
) -> None:
    rows, bad = read(written(tmp_path, FULL, b"", line, {"id": "last"}))
    assert rows == [FULL_ROW | {"number": 1}, NOTHING | {"ad": "last", "number": 4}]
    assert [number for number, _ in bad] == [3]
    assert got in bad[0][1]


def test_ordinals_may_be_objects_with_an_index_in_some_records_or_in_all(tmp_path: Path) -> None:
    indexed = [{"position": {"ordinal": {"index": place}}} for place in range(3)]
    assert [row["position"] for row in read(written(tmp_path, *indexed))[0]] == [0, 1, 2]
    assert [
        row["position"]
        for row in read(written(tmp_path, *indexed, {"position": {"ordinal": 3}}))[0]
    ] == [0, 1, 2, 3]
    rows, bad = read(
        written(
            tmp_path,
            *indexed,
            {"position": {"ordinal": {}}},
            {"position": {"ordinal": {"place": 4}}},
            {"id": "last"},
        )
    )
    assert [row["position"] for row in rows] == [0, 1, 2, None]
    assert bad == [
        (4, "position.ordinal: expected text, got {}"),
        (5, "position.ordinal: expected text, got {'place': 4}"),
    ]
    broken = read(written(tmp_path, *indexed, b'{"id": "\xff"}', {"id": "last"}))
    assert ([row["position"] for row in broken[0]], len(broken[1])) == ([0, 1, 2, None], 1)


def test_only_the_neighbourhood_of_a_bad_line_is_read_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: list[int] = []
    one_by_one = JsonRecordReader._parse_one_by_one

    def counted(self: JsonRecordReader, lines: Any, number: Any) -> Any:
        slow.append(len(lines))
        return one_by_one(self, lines, number)

    monkeypatch.setattr(JsonRecordReader, "_parse_one_by_one", counted)
    lines: list[Any] = [FULL] * 8000
    lines[5000], lines[7000] = b"{", b""
    rows, bad = read(written(tmp_path, *lines))
    assert [number for number, _ in bad] == [5001]
    assert [row["number"] for row in rows] == [
        number for number in range(1, 8001) if number not in {5001, 7001}
    ]
    assert all(row["ad"] == "a" for row in rows)
    assert 0 < sum(slow) <= json_records.FEW_LINES


def test_small_files_are_parsed_together_and_keep_their_records_and_bad_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 12: a block of DuckDB takes milliseconds, and an archive may have 4,000 members."""
    blocks: list[int] = []
    extract = json_records.JsonExtractor.extract

    def count_lines(self: json_records.JsonExtractor, lines: Any) -> Any:
        blocks.append(len(lines))
        return extract(self, lines)

    monkeypatch.setattr(json_records.JsonExtractor, "extract", count_lines)
    files = []
    for place in range(300):
        end = [b"{"] if place in {120, 121} else []
        lines = [b"", {"id": f"a{place}"}, {"id": f"b{place}"}, *end]
        files.append(written(tmp_path, *lines, name=f"{place}.ndjson"))
    report = ReadReport()
    rows = [
        (file.where, row["ad"], row["number"])
        for file, table in read_json_records(files, FIELDS, report)
        for row in table.to_pylist()
    ]
    assert rows == [
        (f"{place}.ndjson", f"{letter}{place}", number)
        for place in range(300)
        for number, letter in ((2, "a"), (3, "b"))
    ]
    examples = report.bad_rows.examples["not readable"]
    assert [(each.where, each.row) for each in examples] == [("120.ndjson", 4), ("121.ndjson", 4)]
    assert len(blocks) < 30


@pytest.mark.parametrize("size", [0, 200, 1 << 20])
def test_the_size_of_blocks_changes_nothing(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_records, "SMALL_BYTES", size)
    monkeypatch.setattr(json_records, "JSON_BLOCK_BYTES", 64)
    files = [
        written(tmp_path, *[{"id": f"a{row}"} for row in range(rows)], name=f"{rows}.ndjson")
        for rows in (9, 1, 4)
    ]
    report = ReadReport()
    lines = [
        (file.where, number)
        for file, table in read_json_records(files, FIELDS, report)
        for number in table["number"].to_pylist()
    ]
    assert lines == [
        (f"{rows}.ndjson", number) for rows in (9, 1, 4) for number in range(1, rows + 1)
    ]


def test_numbers_go_on_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "JSON_BLOCK_BYTES", 64)
    lines = [{"id": f"a{place}"} if place % 5 else b"" for place in range(40)]
    rows, bad = read(written(tmp_path, *lines, b"{", {"id": "last"}))
    assert [row["number"] for row in rows] == [place + 1 for place in range(40) if place % 5] + [42]
    assert rows[-1]["ad"] == "last"
    assert [number for number, _ in bad] == [41]


def test_documents_of_search_hits_are_unwrapped(tmp_path: Path) -> None:
    wrapped = {"_index": "ubi_events", "_id": "1", "_source": FULL}
    assert read(written(tmp_path, wrapped, wrapped))[0] == [
        FULL_ROW | {"number": 1},
        FULL_ROW | {"number": 2},
    ]
    assert read(written(tmp_path, wrapped, FULL))[0] == [
        FULL_ROW | {"number": 1},
        FULL_ROW | {"number": 2},
    ]
    assert read(written(tmp_path, wrapped, b"{", FULL))[0] == [
        FULL_ROW | {"number": 1},
        FULL_ROW | {"number": 3},
    ]
    assert first_objects(written(tmp_path, wrapped, b"{", FULL)) == [FULL, FULL]


def test_objects_come_as_they_are_with_their_lines(tmp_path: Path) -> None:
    report = ReadReport()
    assert list(read_objects(written(tmp_path, FULL, b"", b"{", {"id": 1}), report)) == [
        (1, FULL),
        (4, {"id": 1}),
    ]
    assert [example.row for example in report.bad_rows.examples["not readable"]] == [3]


def test_a_file_that_breaks_off_is_told(tmp_path: Path) -> None:
    file = written(tmp_path, *[FULL] * 1000, name="log.ndjson.gz")
    Path(str(file.path)).write_bytes(Path(str(file.path)).read_bytes()[:-30])
    with pytest.raises(LogError, match=r"log\.ndjson\.gz cannot be read to the end"):
        read(file)


def parquet(folder: Path, columns: dict[str, Any], name: str = "log.parquet") -> LogFile:
    pq.write_table(pa.table(columns), folder / name)
    return LogFile(str(folder / name), name)


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (
            {"object": [{"id": "a", "more": 1}], "position": [{"ordinal": 3}]},
            {"ad": "a", "position": 3},
        ),
        ({"object.id": ["a"], "position.ordinal": [3.0]}, {"ad": "a", "position": 3}),
        ({"object": pa.array([{"id": 7}]), "hits": [[1, 2]]}, {"ad": "7", "ads": ["1", "2"]}),
        (
            {
                "id": pa.array(["a"]).dictionary_encode(),
                "hits": pa.array([["a"]], pa.large_list(pa.large_string())),
            },
            {"ad": "a", "ads": ["a"]},
        ),
        ({"id": pa.array([7.0])}, {"ad": "7"}),
        ({"timestamp": pa.array([NOON], pa.timestamp("ms", "UTC"))}, {"time": NOON}),
        (
            {"position": [{"ordinal": "top"}], "timestamp": ["soon"]},
            {unparsed_column("position"): "top", unparsed_column("time"): "soon"},
        ),
        ({"position.ordinal": [4.5]}, {unparsed_column("position"): "4.5"}),
        ({"position": [{"ordinal": ""}], "position.ordinal": ["4"]}, {"position": 4}),
        (
            {"position.ordinal": [""], "timestamp": [""]},
            {unparsed_column("position"): "", unparsed_column("time"): ""},
        ),
        ({"position.ordinal": [float("nan")], "timestamp": pa.array([None], pa.string())}, {}),
        ({"position": ["top"], "other": [1]}, {}),
        ({"other": [1]}, {}),
    ],
)
def test_parquet_is_read_nested_or_flat(
    tmp_path: Path, columns: dict[str, Any], row: dict[str, Any]
) -> None:
    assert read(parquet(tmp_path, columns)) == ([NOTHING | row | {"number": 1}], [])


def test_a_column_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        LogError,
        match=r"ads in log\.parquet: expected ids, got string\. Is the log in this format\?",
    ):
        read(parquet(tmp_path, {"hits": ["a,b"]}))


def test_damaged_parquet_and_parquet_in_an_archive_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(LogError, match=r"log\.parquet cannot be read as Parquet"):
        read(LogFile(str(tmp_path / "log.parquet"), "log.parquet"))
    with pytest.raises(LogError, match="Unpack it"):
        read(LogFile(str(tmp_path / "logs.zip"), "logs.zip/log.parquet", "log.parquet"))


NONE = ["", "top", "{", "1 2", 2.5]  # neither whole numbers nor, the first ones, times
ordinals = st.integers(0, 9).map(lambda index: {"index": index})  # of old
texts = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.integers(-(2**70), 2**70),
)
records = st.fixed_dictionaries(
    {},
    optional={
        "object": st.one_of(
            st.none(), st.fixed_dictionaries({}, optional={"id": texts, "more": st.booleans()})
        ),
        "id": texts,
        "hits": st.one_of(st.none(), st.lists(texts, max_size=3)),
        "position": st.fixed_dictionaries(
            {
                "ordinal": st.one_of(
                    st.none(),
                    st.integers(-9, 10**6),
                    st.integers(0, 9).map(str),
                    st.sampled_from(NONE),
                    ordinals,
                )
            }
        ),
        "timestamp": st.one_of(
            st.none(), st.just("2024-06-01T12:00:00Z"), st.sampled_from(NONE[:4])
        ),
        "noise": st.recursive(
            st.none(),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.text(max_size=2), inner, max_size=2)
            ),
        ),
    },
)


def expected(record: dict[str, Any]) -> dict[str, Any]:
    inner = (record.get("object") or {}).get("id")
    ad = inner if inner not in (None, "") else record.get("id")
    hits, ordinal, time = (
        record.get("hits"),
        record.get("position", {}).get("ordinal"),
        record.get("timestamp"),
    )
    ordinal = ordinal["index"] if isinstance(ordinal, dict) else ordinal
    return NOTHING | {
        "ad": None if ad in (None, "") else str(ad),
        "ads": None if hits is None else [None if hit is None else str(hit) for hit in hits],
        "position": None if ordinal is None or ordinal in NONE else int(ordinal),
        unparsed_column("position"): (ordinal if isinstance(ordinal, str) else json.dumps(ordinal))
        if ordinal in NONE
        else None,
        "time": None if time is None or time in NONE else NOON,
        unparsed_column("time"): time if time in NONE else None,
    }


@pytest.fixture(scope="module")
def reader() -> Iterator[JsonRecordReader]:
    with JsonRecordReader(FIELDS) as made:
        yield made


@given(lines=st.lists(st.one_of(records, st.just(b"{"), st.just(b" ")), max_size=12))
def test_any_records_come_back_whatever_stands_between_them(
    reader: JsonRecordReader, lines: list[Any]
) -> None:
    data = b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )
    filled, place, many = split_lines(data or b"\n")
    pieces = list(reader.read(filled, place)) if len(filled) else []
    kept = [line for line, record in enumerate(lines) if isinstance(record, dict)]
    assert many == max(len(lines), 1)
    assert [line for piece in pieces for line in piece.line.tolist()] == kept
    assert [row for piece in pieces for row in piece.records.to_pylist()] == [
        expected(lines[line]) for line in kept
    ]
    assert [line for piece in pieces for line, _ in piece.bad] == [
        line for line, record in enumerate(lines) if record == b"{"
    ]
