"""Long tables: rows in any order and file type become pages, with clicks in the order of time."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reclick as rc
from reclick.errors import BadRowsError, LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.long import FORMAT as LONG
from tests.support.event_logs import (
    Page,
    Row,
    faults,
    own_files,
    pages,
    parquet,
    plain,
    read,
    shown,
)

NO_ORDER = "clicks without an order, taken from the top down"
START = datetime(2024, 1, 1, tzinfo=UTC)
Write = Callable[[Path, list[Row]], LogFile]


def as_csv(folder: Path, rows: list[Row]) -> LogFile:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return plain(folder, text.getvalue(), "long.csv")


def as_lines(folder: Path, rows: list[Row]) -> LogFile:
    return plain(
        folder, "".join(json.dumps(row, default=str) + "\n" for row in rows), "long.jsonl.gz"
    )


def as_parquet(folder: Path, rows: list[Row]) -> LogFile:
    return parquet(folder, rows, "long.parquet")


WRITERS: list[Write] = [as_parquet, as_csv, as_lines]


@pytest.fixture(params=WRITERS, ids=["parquet", "csv", "json lines"])
def long(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Read rows back from every kind of file."""
    return lambda rows, **more: read(LONG, request.param(tmp_path, rows), **more)


def row(
    session: str | None,
    ad: str | None,
    position: Any,
    time: Any = None,
    query: str | None = "shoes",
    **more: Any,
) -> Row:
    return {
        "session_id": session,
        "query": query,
        "ad": ad,
        "position": position,
        "click_time": time,
        **more,
    }


def flag(session: str, ad: str, position: int, clicked: Any, **more: Any) -> Row:
    return {
        "session_id": session,
        "query": "shoes",
        "ad": ad,
        "position": position,
        "clicked": clicked,
        **more,
    }


def test_rows_of_a_session_and_query_are_a_page(long: Any) -> None:
    rows, report = long(
        [
            row("s2", "c", 2, None, query="hats"),
            row("s1", "a", 1, "2024-01-01 10:00:09"),
            row("s1", "b", 2, "2024-01-01T10:00:05Z"),
            row("s2", "a", 1, None, query="hats"),
            row("s1", "c", 1, None, query="hats"),
        ]
    )
    assert shown(rows) == [
        ("hats", ["a", "c"], []),
        ("shoes", ["a", "b"], [2, 1]),
        ("hats", ["c"], []),
    ]
    assert [each["session_id"] for each in rows] == ["s2", "s1", "s1"]
    assert not report.notes
    assert not report.bad_rows.dropped


@pytest.mark.parametrize(
    "times", [(9, 5), (9.5, 5.25), (1704067209, 1704067205), (START + timedelta(seconds=9), START)]
)
def test_times_may_be_numbers_and_timestamps(long: Any, times: tuple[Any, Any]) -> None:
    rows, _ = long([row("s", "a", 1, times[0]), row("s", "b", 2, times[1]), row("s", "c", 3, None)])
    assert shown(rows) == [("shoes", ["a", "b", "c"], [2, 1])]


@pytest.mark.parametrize("flags", [(1, 0, 1), (True, False, True), (2, 0, 1)])
def test_a_flag_has_no_order_and_it_is_told(long: Any, flags: tuple[Any, ...]) -> None:
    rows, report = long(
        [
            flag("s", ad, place, clicked)
            for ad, place, clicked in zip("cba", (3, 2, 1), flags, strict=True)
        ]
    )
    assert shown(rows) == [("shoes", ["a", "b", "c"], [1, 3])]
    assert report.notes == {NO_ORDER: 2}


def test_a_flag_beside_a_time_adds_clicks_without_a_time_at_the_end(long: Any) -> None:
    rows, report = long(
        [
            row("s", "a", 1, None, clicked=1),
            row("s", "b", 2, 5, clicked=0),
            row("s", "c", 3, 2, clicked=1),
            row("s", "d", 4, None, clicked=0),
        ]
    )
    assert shown(rows) == [("shoes", ["a", "b", "c", "d"], [3, 2, 1])]
    assert not report.notes


def test_users_and_the_time_of_the_page_are_kept(long: Any) -> None:
    rows, _ = long(
        [
            row("s", "a", 1, None, user="u", timestamp="2024-01-01 00:00:03"),
            row("s", "b", 2, None, user="u", timestamp="2024-01-01 00:00:02"),
        ]
    )
    assert rows[0]["user"] == "u"
    assert rows[0]["timestamp"] == datetime(2024, 1, 1, 0, 0, 2)


def test_other_names_are_mapped(long: Any) -> None:
    theirs = [{"search": 7, "term": "shoes", "doc": 12, "rank": 0, "ts": 4}]
    rows, _ = long(
        theirs,
        columns={
            "session_id": "search",
            "query": "term",
            "ad": "doc",
            "position": "rank",
            "click_time": "ts",
        },
    )
    assert shown(rows) == [("shoes", ["12"], [1])]


def test_bad_rows_are_told_and_the_rest_is_kept(long: Any) -> None:
    rows, report = long(
        [
            row("s", "a", 1, "9"),
            row("", "b", 2, "8"),
            row("s", "c", None, None),
            row("s", "d", 4, "soon"),
            row("s", "e", 1.5, ""),
        ]
    )
    assert shown(rows) == [("shoes", ["a"], [1])]
    assert faults(report) == {"no page key": [2], "no position": [3], "not readable": [5, 4]}


def test_lines_that_cannot_be_read_are_bad(tmp_path: Path) -> None:
    text = (
        "session_id,query,ad,position,clicked\ns,shoes,a,1,0\ns,shoes,b,2,maybe\ns,shoes\n"
        "s,shoes,c,x,1\ns,shoes,d,4,yes\n"
    )
    rows, report = read(LONG, plain(tmp_path, text, "long.csv"))
    assert shown(rows) == [("shoes", ["a", "d"], [2])]
    assert sorted(faults(report)["not readable"]) == [2, 3, 4]


def test_a_page_without_a_query_is_bad(long: Any) -> None:
    rows, report = long([row("s", "a", 1, None, query=""), row("t", "a", 1, None)])
    assert shown(rows) == [("shoes", ["a"], [])]
    assert faults(report) == {"no query": [1]}


def test_a_file_without_clicks_or_in_an_archive_is_refused(tmp_path: Path) -> None:
    file = parquet(tmp_path, [{"session_id": 1, "query": "q", "ad": "a", "position": 1}])
    with pytest.raises(LogError, match="has no column click_time and no column clicked"):
        read(LONG, file)
    with pytest.raises(LogError, match="inside an archive"):
        read(LONG, LogFile(file.path, "a.zip/long.csv", "long.csv"))
    with pytest.raises(LogError, match=r"expected a number, got string.*columns=\{'position'"):
        read(LONG, parquet(tmp_path, [flag("s", "a", 1, 0) | {"position": "x"}]))


def test_several_files_are_one_log(tmp_path: Path) -> None:
    first, second = (
        parquet(tmp_path, [row("s", "a", 1, 5)], "1.parquet"),
        parquet(tmp_path, [row("s", "b", 2, 4)], "2.parquet"),
    )
    assert shown(read(LONG, first, second)[0]) == [("shoes", ["a", "b"], [2, 1])]


def test_it_is_recognised_by_its_columns(tmp_path: Path) -> None:
    for write in WRITERS:
        assert LONG.recognises([write(tmp_path, [flag("s", "a", 1, 0)])])
        assert LONG.recognises([write(tmp_path, [row("s", "a", 1, 5)])])
        assert not LONG.recognises(
            [write(tmp_path, [{"session_id": 1, "query": "q", "ad": "a", "position": 1}])]
        )
    assert not any(LONG.recognises([file]) for file in own_files(tmp_path))
    assert not LONG.recognises([plain(tmp_path, "{broken", "x.json")])


def test_the_table_may_hold_dictionaries_and_large_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "session_id": pa.array(["s", "s"]).dictionary_encode(),
            "query": pa.array(["q", "q"], pa.large_string()),
            "ad": pa.array([1, 2], pa.uint64()),
            "position": pa.array([2.0, 1.0]),
            "click_time": pa.array([START, None], pa.timestamp("ns", "UTC")),
        }
    )
    assert shown(read(LONG, parquet(tmp_path, table))[0]) == [("q", ["2", "1"], [2])]


@settings(max_examples=18)
@given(
    st.lists(pages, min_size=1, max_size=6),
    st.sampled_from(WRITERS),
    st.randoms(use_true_random=False),
)
def test_any_sessions_come_back_whatever_the_order_of_the_rows(
    sessions: list[Page], write: Write, rng: random.Random
) -> None:
    once = [(query, ads, list(dict.fromkeys(clicks))) for query, ads, clicks in sessions]
    rows = [
        row(
            f"s|{number}",
            ad,
            place,
            START + timedelta(seconds=clicks.index(place)) if place in clicks else None,
            query=query,
        )
        for number, (query, ads, clicks) in enumerate(once)
        for place, ad in enumerate(ads, start=1)
    ]
    rng.shuffle(rows)
    with TemporaryDirectory() as folder:
        found_rows, report = read(LONG, write(Path(folder), rows))
    assert sorted(
        (each["session_id"], page) for each, page in zip(found_rows, shown(found_rows), strict=True)
    ) == sorted((f"s|{number}", page) for number, page in enumerate(once))
    assert not report.bad_rows.dropped


def test_outcomes_of_clicks_are_kept_in_the_order_of_the_clicks(long: Any) -> None:
    rows, report = long(
        [
            row("s", "a", 1, "2024-01-01 10:00:09", dwell_seconds=40.5, conversions=1),
            row("s", "b", 2, "2024-01-01 10:00:05", dwell_seconds=2, conversions=0),
            row("s", "c", 3, dwell_seconds=None, conversions=None),
            row("t", "a", 1, "2024-01-01 11:00:00", dwell_seconds=None, conversions=2),
        ]
    )
    assert [each["clicks"] for each in rows] == [[2, 1], [1]]
    assert [each["dwell_seconds"] for each in rows] == [[2.0, 40.5], [None]]
    assert [each["conversions"] for each in rows] == [[0.0, 1.0], [2.0]]
    assert not report.bad_rows.dropped


def test_an_unknown_number_of_conversions_stays_unknown(long: Any) -> None:
    rows, _ = long(
        [
            row("s", "a", 1, "2024-01-01 10:00:09", conversions=1),
            row("s", "b", 2, "2024-01-01 10:00:05", conversions=None),
        ]
    )
    assert rows[0]["conversions"] == [None, 1.0]
    assert "dwell_seconds" not in rows[0]


def test_a_negative_dwell_time_makes_its_page_bad(tmp_path: Path) -> None:
    written = as_csv(tmp_path, [row("s", "a", 1, "2024-01-01 10:00:09", dwell_seconds=-1)])
    with pytest.raises(BadRowsError, match="1 bad dwell_seconds"):
        rc.read_sessions(written.path, format="long")
