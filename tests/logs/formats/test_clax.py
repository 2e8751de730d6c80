"""The arrays of CLAX: padding is cut, slots are sorted, and clicks come from the top down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import SESSION_SCHEMA
from reclick.logs.formats import clax
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.clax import FORMAT as CLAX

Row = dict[str, Any]
NO_ORDER = "clicks without an order, taken from the top down"
GAP, SORTED, FROM_ZERO = (
    "a gap in the positions, closed",
    "slots not in the order of positions, sorted",
    "positions from 0",
)


def read_file(path: Path, columns: dict[str, str] | None = None) -> tuple[list[Row], ReadReport]:
    report = ReadReport()
    batches = list(CLAX.read([LogFile(str(path), path.name)], report, columns or {}))
    for batch in batches:
        assert batch.schema == SESSION_SCHEMA
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()], report


def write_parquet(folder: Path, rows: list[Row] | pa.Table) -> Path:
    path = folder / "part-0.parquet"
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), path)
    return path


def write_lines(folder: Path, rows: list[Row]) -> Path:
    path = folder / "part-0.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


WRITERS = {"parquet": write_parquet, "jsonl": write_lines}


@pytest.fixture(params=WRITERS)
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Read rows back out of either kind of file."""
    return lambda rows, columns=None: read_file(WRITERS[request.param](tmp_path, rows), columns)


def pages(rows: list[Row]) -> list[tuple[str, list[str], list[int]]]:
    return [(row["query"], row["ads"], row["clicks"]) for row in rows]


def faults(report: ReadReport) -> list[tuple[str, int]]:
    return sorted(
        (
            (reason, example.row)
            for reason, examples in report.bad_rows.examples.items()
            for example in examples
        ),
        key=lambda fault: fault[1],
    )


def test_pages_with_a_mask_are_read_and_padding_is_cut(read: Any) -> None:
    rows, report = read(
        [
            {
                "query_id": 5,
                "doc_ids": [31, 7, 0],
                "positions": [1, 2, 0],
                "clicks": [1, 1, 0],
                "mask": [True, True, False],
            },
            {
                "query_id": 6,
                "doc_ids": [7, 0, 31],
                "positions": [1, 2, 3],
                "clicks": [0, 0, 0],
                "mask": [True, True, True],
            },
        ]
    )
    assert pages(rows) == [("5", ["31", "7"], [1, 2]), ("6", ["7", "0", "31"], [])]
    assert [row["session_id"] for row in rows] == [None, None]
    assert report.notes == {NO_ORDER: 1}
    assert not report.bad_rows.dropped


@pytest.mark.parametrize("mask", [[1, 0, 1], [1.0, 0.0, 1.0], [True, False, True]])
def test_a_mask_may_be_numbers_and_may_hide_slots_in_the_middle(read: Any, mask: list[Any]) -> None:
    rows, report = read(
        [
            {
                "query_id": 1,
                "doc_ids": [4, 5, 6],
                "positions": [1, 2, 3],
                "clicks": [0, 0, 1],
                "mask": mask,
            }
        ]
    )
    assert pages(rows) == [("1", ["4", "6"], [2])]
    assert report.notes == {GAP: 1}


def test_the_number_of_filled_slots_tells_padding_too(read: Any) -> None:
    rows, _ = read([{"query_id": 1, "doc_ids": [4, -5, 0], "clicks": [0, 1, 0], "n": 2}])
    assert pages(rows) == [("1", ["4", "-5"], [2])]


@pytest.mark.parametrize(
    "row",
    [
        {"doc_ids": [4, 5, 0, 0], "positions": [1, 2, 0, 0], "clicks": [0, 1, 0, 0]},
        {"doc_ids": [4, 5, 9, 9], "positions": [1, 2, -1, -1], "clicks": [0, 1, 0, 0]},
        {"doc_ids": [4, 5, -1, -1], "positions": [1, 2, 3, 4], "clicks": [0, 1, 0, 0]},
        {"doc_ids": [4, 5, -1, -1], "clicks": [0, 1, 0, 0]},
        {"doc_ids": [4, 5, None], "clicks": [0, 1, None]},
        {"doc_ids": ["4", "5", None], "clicks": [False, True, False]},
    ],
)
def test_without_a_mask_slots_at_the_end_without_an_ad_or_a_position_are_padding(
    read: Any, row: Row
) -> None:
    if row["clicks"][-1] is None:
        row = row | {"clicks": [0, 1, 0]}
    rows, report = read([{"query_id": 1} | row])
    assert pages(rows) == [("1", ["4", "5"], [2])]
    assert not report.bad_rows.dropped


def test_slots_are_sorted_by_position_and_gaps_are_told(read: Any) -> None:
    rows, report = read(
        [
            {"query_id": 1, "doc_ids": [30, 10, 20], "positions": [3, 1, 2], "clicks": [1, 0, 1]},
            {"query_id": 1, "doc_ids": [10, 50], "positions": [1, 5], "clicks": [0, 1]},
            {"query_id": 1, "doc_ids": [12, 11], "positions": [12, 11], "clicks": [1, 0]},
        ]
    )
    assert pages(rows) == [
        ("1", ["10", "20", "30"], [2, 3]),
        ("1", ["10", "50"], [2]),
        ("1", ["11", "12"], [2]),
    ]
    assert report.notes == {SORTED: 2, GAP: 2, NO_ORDER: 1}


def test_positions_from_zero_are_understood_by_the_first_slot(read: Any) -> None:
    rows, report = read(
        [{"query_id": 1, "doc_ids": [4, 5, 0], "positions": [0, 1, 0], "clicks": [1, 0, 0]}]
    )
    assert pages(rows) == [("1", ["4", "5"], [1])]
    assert report.notes == {FROM_ZERO: 1}


def test_text_ids_and_session_ids_are_kept(read: Any) -> None:
    rows, _ = read(
        [
            {
                "session_id": 9,
                "query_id": "2020-01-01",
                "doc_ids": ["2021-01-01", "b"],
                "clicks": [0, 1],
            }
        ]
    )
    assert pages(rows) == [("2020-01-01", ["2021-01-01", "b"], [2])]
    assert rows[0]["session_id"] == "9"


def test_pair_ids_without_queries_stand_under_one_query_and_it_is_told(read: Any) -> None:
    rows, report = read(
        [{"query_doc_ids": [4, 5], "clicks": [0, 1]}, {"query_doc_ids": [6], "clicks": [0]}]
    )
    assert pages(rows) == [("all", ["4", "5"], [2]), ("all", ["6"], [])]
    assert report.notes == {"no query in the log, all pages under one": 2}


def test_the_names_of_the_sets_on_hugging_face_are_known(read: Any) -> None:
    rows, _ = read(
        [
            {
                "query_id": "7",
                "query": [1, 2],
                "url_md5": ["ab", "cd"],
                "position": [1, 2],
                "click": [0, 1],
                "n": 2,
                "media_type": [3, 3],
            }
        ]
    )
    assert pages(rows) == [("7", ["ab", "cd"], [2])]


def test_other_names_are_given_by_columns(read: Any) -> None:
    row = {"term": "x", "items": [4, 5], "hit": [0, 1], "place": [2, 1]}
    rows, _ = read([row], {"query": "term", "ads": "items", "clicks": "hit", "positions": "place"})
    assert pages(rows) == [("x", ["5", "4"], [1])]


def test_a_name_that_is_none_of_reclicks_is_refused_with_those_that_are(read: Any) -> None:
    known = "Reclick's are query, ads, clicks, positions, mask, n, session_id"
    with pytest.raises(
        LogError, match=rf"columns=… names postions, which Reclick does not know\..*{known}"
    ):
        read(
            [{"query_id": "7", "doc_ids": [1], "clicks": [1], "place": [1]}], {"postions": "place"}
        )


BAD: list[tuple[str, Row]] = [
    ("no query", {"query_id": None}),
    ("no query", {"query_id": ""}),
    ("no ads", {"doc_ids": [], "clicks": [], "positions": []}),
    ("no ads", {"doc_ids": None}),
    ("no ads", {"positions": [-1, -1], "clicks": [0, 0]}),
    ("not readable", {"clicks": [1]}),
    ("not readable", {"clicks": None}),
    ("not readable", {"positions": [1, 2, 3]}),
    ("not readable", {"clicks": [0, 2]}),
    ("not readable", {"clicks": [0, None]}),
    ("not readable", {"positions": [1, 1]}),
    ("not readable", {"positions": [1, None]}),
    ("not readable", {"positions": [-1, 1]}),
    ("null ad", {"doc_ids": [None, "b"]}),
    ("null ad", {"doc_ids": ["", "b"]}),
    ("null ad", {"doc_ids": ["-1", "b"]}),
    ("click on an ad not shown", {"positions": [1, 0], "clicks": [0, 1]}),
]
FINE = {"query_id": "q", "doc_ids": ["a", "b"], "positions": [1, 2], "clicks": [1, 0]}


@pytest.mark.parametrize(("reason", "change"), BAD)
def test_a_bad_row_is_told_with_its_number_and_the_others_are_kept(
    read: Any, reason: str, change: Row
) -> None:
    rows, report = read([FINE, FINE | change, FINE])
    assert pages(rows) == [("q", ["a", "b"], [1])] * 2
    assert faults(report) == [(reason, 2)]


def test_many_bad_rows_are_told_each(read: Any) -> None:
    rows, report = read([row for _, change in BAD for row in (FINE | change, FINE)])
    assert pages(rows) == [("q", ["a", "b"], [1])] * len(BAD)
    assert sum(report.bad_rows.dropped.values()) == len(BAD)
    assert report.bad_rows.dropped["not readable"] == sum(
        reason == "not readable" for reason, _ in BAD
    )


def test_a_click_on_padding_is_bad(read: Any) -> None:
    rows, report = read(
        [{"query_id": 1, "doc_ids": [4, 5], "clicks": [0, 1], "mask": [True, False]}]
    )
    assert rows == []
    assert faults(report) == [("click on an ad not shown", 1)]


def test_rows_keep_their_numbers_over_batches(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clax, "BATCH_SESSIONS", 2)
    wanted = [FINE | {"query_id": f"q{number}"} for number in range(7)]
    rows, report = read(
        [*wanted[:3], FINE | {"clicks": [0, 2]}, *wanted[3:], FINE | {"query_id": ""}]
    )
    assert pages(rows) == [(row["query_id"], ["a", "b"], [1]) for row in wanted]
    assert faults(report) == [("not readable", 4), ("no query", 9)]


BAD_LINES = [
    "not json",
    "[1, 2]",
    '{"query_id": "q", "doc_ids": 3, "clicks": [1]}',
    '{"query_id": "q", "doc_ids": ["a"], "clicks": 1}',
    '{"query_id": "q", "doc_ids": ["a"], "clicks": ["yes"]}',
    '{"query_id": {"id": 1}, "doc_ids": ["a"], "clicks": [1]}',
    '{"query_id": "\\ud83d", "doc_ids": ["a"], "clicks": [1]}',
]


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_is_told_and_the_others_are_kept(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "log.jsonl"
    fine = '{"query_id": "q", "doc_ids": ["a", -1], "clicks": [true, false]}'
    path.write_text(f"\n{fine}\n\n{bad}\n{fine}")
    rows, report = read_file(path)
    assert pages(rows) == [("q", ["a"], [1])] * 2
    assert faults(report) == [("not readable", 4)]


def test_lines_of_mixed_ids_are_read_as_text(tmp_path: Path) -> None:
    rows, report = read_file(
        write_lines(tmp_path, [{"query_id": 1, "doc_ids": [4, "b", -1], "clicks": [0, 1.0, 0]}])
    )
    assert pages(rows) == [("1", ["4", "b"], [2])]
    assert not report.bad_rows.dropped


TYPES = [
    (pa.int32(), pa.list_(pa.int32()), pa.list_(pa.int8())),
    (pa.int64(), pa.large_list(pa.int64()), pa.list_(pa.float16(), 3)),
    (pa.float64(), pa.list_(pa.float64(), 3), pa.list_(pa.float32())),
    (pa.large_string(), pa.list_(pa.large_string()), pa.list_(pa.bool_())),
    (
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.list_(pa.uint8()),
    ),
]


@pytest.mark.parametrize(("query", "ads", "clicks"), TYPES)
def test_every_type_that_arrow_writes_ids_and_clicks_in_is_read(
    tmp_path: Path, query: Any, ads: Any, clicks: Any
) -> None:
    is_number = pa.types.is_integer(query) or pa.types.is_floating(query)
    ids = [4, 5, None] if is_number else ["4", "5", None]
    hits: list[Any] = (
        [np.float16(0), np.float16(1), np.float16(0)]
        if pa.types.is_float16(clicks.value_type)
        else [0, 1, 0]
    )
    if pa.types.is_boolean(clicks.value_type):
        hits = [False, True, False]
    arrays = [
        pa.array([1 if is_number else "1"], query),
        pa.array([ids], ads),
        pa.array([hits], clicks),
    ]
    rows, report = read_file(
        write_parquet(
            tmp_path, pa.Table.from_arrays(arrays, names=["query_id", "doc_ids", "clicks"])
        )
    )
    assert pages(rows) == [("1", ["4", "5"], [2])]
    assert not report.bad_rows.dropped


def test_a_bad_row_whose_text_is_not_utf8_is_told_too(tmp_path: Path) -> None:
    ads = pa.ListArray.from_arrays(
        pa.array([0, 2], pa.int32()),
        pa.array([b"\xff", b""]).cast(pa.string(), safe=False).cast(pa.string()),
    )
    rows, report = read_file(
        write_parquet(tmp_path, pa.table({"query_id": ["q"], "doc_ids": ads, "clicks": [[0, 0]]}))
    )
    assert rows == []
    assert [example.got for example in report.bad_rows.examples["null ad"]] == [
        "ads text that is not UTF-8"
    ]


@pytest.mark.parametrize("missing", ["query_id", "doc_ids", "clicks"])
def test_a_missing_column_is_an_error_that_says_how_to_name_it(read: Any, missing: str) -> None:
    with pytest.raises(LogError, match=rf"part-0\.\w+ has no column {missing}.*columns={{'"):
        read([{name: value for name, value in FINE.items() if name != missing}])


@pytest.mark.parametrize(
    "change", [{"doc_ids": 3}, {"clicks": ["yes"]}, {"query_id": [1]}, {"clicks": 1}]
)
def test_a_column_of_the_wrong_type_is_an_error(tmp_path: Path, change: Row) -> None:
    with pytest.raises(
        LogError, match=rf"{next(iter(change))} in part-0\.parquet: expected .*, got "
    ):
        read_file(write_parquet(tmp_path, [FINE | change]))


def test_a_damaged_file_and_one_in_an_archive_are_errors(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, [FINE])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(LogError, match=r"part-0\.parquet cannot be read as Parquet"):
        read_file(path)
    with pytest.raises(LogError, match="Unpack it"):
        list(CLAX.read([LogFile("a.zip", "a.zip/x.parquet", "x.parquet")], ReadReport(), {}))


def test_the_bytes_read_are_counted(tmp_path: Path) -> None:
    for path in (write_parquet(tmp_path, [FINE] * 4), write_lines(tmp_path, [FINE] * 4)):
        report = ReadReport()
        list(CLAX.read([LogFile(str(path), path.name)], report, {}))
        assert report.read_bytes == path.stat().st_size


def test_it_is_recognised_and_other_files_are_not(tmp_path: Path) -> None:
    def recognised(name: str, rows: list[Row]) -> bool:
        folder = tmp_path / name
        folder.mkdir()
        paths = [writer(folder, rows) for writer in WRITERS.values()]
        answers = {CLAX.recognises([LogFile(str(path), path.name)]) for path in paths}
        assert len(answers) == 1
        return answers.pop()

    assert recognised("clax", [FINE])
    assert recognised("pairs", [{"query_doc_ids": [1], "clicks": [0]}])
    assert recognised(
        "hugging", [{"query_id": "7", "url_md5": ["ab"], "position": [1], "click": [0], "n": 1}]
    )
    assert not recognised("plain", [{"query": "q", "ads": ["a"], "clicks": [1]}])
    assert not recognised("long", [{"query_id": "q", "doc_id": "a", "position": 1, "click": 1}])
    assert not recognised("both", [{"query": "q", "ads": ["a"], "doc_ids": ["a"], "clicks": [1]}])
    (tmp_path / "x.xml").write_bytes(b"<session>\xff")
    assert not CLAX.recognises([LogFile(str(tmp_path / "x.xml"), "x.xml")])
    assert not CLAX.recognises([])


@st.composite
def sessions(draw: st.DrawFn) -> tuple[str, list[str], set[int]]:
    ads = draw(st.lists(st.text("abc", min_size=1), min_size=1, max_size=6))
    return draw(st.text("xyz", min_size=1)), ads, draw(st.sets(st.integers(1, len(ads))))


@given(
    st.lists(sessions(), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.sampled_from(["mask", "n", "position", "id"]),
)
def test_random_sessions_padded_and_shuffled_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory,
    wanted: list[tuple[str, list[str], set[int]]],
    random: Any,
    told_by: str,
) -> None:
    rows = [_padded(query, ads, clicks, random, told_by) for query, ads, clicks in wanted]
    for writer in WRITERS.values():
        got, report = read_file(writer(tmp_path_factory.mktemp("clax"), rows))
        assert pages(got) == [(query, ads, sorted(clicks)) for query, ads, clicks in wanted]
        assert not report.bad_rows.dropped


def _padded(query: str, ads: list[str], clicks: set[int], random: Any, told_by: str) -> Row:
    slots = [(ad, place, int(place in clicks)) for place, ad in enumerate(ads, start=1)]
    if told_by != "id":
        random.shuffle(slots)
    filled = len(slots)
    slots += [
        ("-1" if told_by == "id" else "pad", 0 if told_by == "position" else 9, 0)
    ] * random.randrange(3)
    row: Row = {
        "query_id": query,
        "doc_ids": [slot[0] for slot in slots],
        "clicks": [slot[2] for slot in slots],
    }
    if told_by != "id":
        row["positions"] = [slot[1] for slot in slots]
    extra = {"mask": [place < filled for place in range(len(slots))], "n": filled}
    return row | {name: value for name, value in extra.items() if name == told_by}


def test_a_null_click_in_the_padding_is_nothing(read: Any) -> None:
    rows, report = read([{"query_id": 1, "doc_ids": [3, 4, -1], "clicks": [1, 0, None]}])
    assert pages(rows) == [("1", ["3", "4"], [1])]
    assert not faults(report)


def test_a_number_beyond_every_float_is_a_bad_row(tmp_path: Path) -> None:
    good = {"query_id": 1, "doc_ids": [7, 8], "clicks": [0, 1]}
    hostile = good | {"clicks": [-(2**63), 1]}
    rows, report = read_file(write_lines(tmp_path, [hostile, good]))
    assert len(rows) == 1
    assert sum(report.bad_rows.dropped.values()) == 1
