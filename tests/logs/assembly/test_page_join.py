"""The join of pages and clicks against a plain Python join of the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.data.timestamps import TIME
from reclick.logs.assembly import page_join, spill
from reclick.logs.assembly.page_join import (
    INPUT_SCHEMAS,
    HashedKeySet,
    PageJoin,
    join_pages,
)
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import SESSION_SCHEMA
from reclick.logs.formats.base import ReadReport

Row = dict[str, Any]


def joined(
    *,
    size: int = 0,
    report: ReadReport | None = None,
    first: int | None = 1,
    allowed: dict[str, str] | None = None,
    **rows: list[Row],
) -> list[Row]:
    """The sessions of rows of each kind; rows without a number are numbered by their order."""
    with (
        TemporaryDirectory() as folder,
        PageJoin(
            Path(folder), [], size, first_position=first, notes_by_reason=allowed or {}
        ) as join,
    ):
        for kind, given_rows in rows.items():
            numbered = [
                {"number": place, "file": 0, **row} for place, row in enumerate(given_rows, start=1)
            ]
            join.add(kind, pa.Table.from_pylist(numbered, INPUT_SCHEMAS[kind]))
        batches = list(join.sessions(report or ReadReport()))
    assert all(batch.schema == SESSION_SCHEMA for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def page(key: str, ads: list[str] | None, query: str | None = "q", **more: Any) -> Row:
    return {"key": key, "ads": ads, "query": query, **more}


def click(
    key: str, ad: str | None = None, position: int | None = None, time: int | None = None
) -> Row:
    return {"key": key, "ad": ad, "position": position, "time": time}


def clicks_of(rows: list[Row]) -> dict[str, list[int]]:
    return {row["session_id"]: row["clicks"] for row in rows}


def told(report: ReadReport) -> dict[str, list[tuple[int, str]]]:
    return {
        reason: [(example.row, example.got) for example in examples]
        for reason, examples in report.bad_rows.examples.items()
    }


def test_clicks_come_in_the_order_of_time_then_of_the_log_and_without_a_time_last() -> None:
    clicks = [
        click("p", "a", time=None),
        click("p", "b", time=9),
        click("p", "c", time=5),
        click("p", "a", time=5),
    ]
    assert clicks_of(joined(pages=[page("p", ["a", "b", "c"])], clicks=clicks)) == {
        "p": [3, 1, 2, 1]
    }


def test_the_ad_decides_and_the_position_tells_which_of_two_equal_ads() -> None:
    clicks = [
        click("p", "a", 3, 1),
        click("p", "a", 2, 2),
        click("p", "b", 9, 3),
        click("p", None, 2, 4),
    ]
    assert clicks_of(joined(pages=[page("p", ["a", "b", "a"])], clicks=clicks)) == {
        "p": [3, 1, 2, 2]
    }


def test_ads_shown_one_by_one_make_a_page_in_the_order_of_their_positions() -> None:
    names = ("ad", "position", "query", "time")
    values = [("c", 30, None, 7), ("a", 10, "shoes", 5), ("b", 20, "boots", 6)]
    shown = [{"key": "p", **dict(zip(names, each, strict=True))} for each in values]
    (row,) = joined(shown=shown, clicks=[click("p", "c", 30, 1), click("p", None, 10, 2)])
    assert (row["query"], row["ads"], row["clicks"]) == ("shoes", ["a", "b", "c"], [3, 1])


def test_an_ad_shown_again_at_its_position_is_shown_once_and_at_another_twice() -> None:
    shown = [
        {"key": "p", "query": "q", "ad": ad, "position": position}
        for ad, position in [("a", 1), ("b", 2), ("a", 1), ("a", 3)]
    ]
    report = ReadReport()
    (row,) = joined(shown=shown, clicks=[click("p", "a", 3, 1)], report=report)
    assert (row["ads"], row["clicks"]) == (["a", "b", "a"], [3])
    assert report.notes == {"ad shown again on its page at its position, counted once": 1}


def test_two_ads_at_one_position_are_two_pages_under_one_key_and_bad() -> None:
    report = ReadReport()
    shown = [
        {"key": key, "query": "q", "ad": ad, "position": place}
        for key, ad, place in (("p", "a", 1), ("p", "b", 2), ("p", "c", 1), ("r", "a", 1))
    ]
    rows = joined(shown=shown, clicks=[click("p", "c"), click("r", "a")], report=report)
    assert clicks_of(rows) == {"r": [1]}
    assert dict(report.bad_rows.dropped) == {"two ads at one position, two pages with one key": 1}
    assert (
        "page 'p'"
        in report.bad_rows.examples["two ads at one position, two pages with one key"][0].got
    )


def test_a_row_without_a_key_is_for_the_format_to_tell_of() -> None:
    with pytest.raises(ValueError, match="without a key"):
        joined(pages=[page(None, ["a"])])  # type: ignore[arg-type]


def test_a_whole_page_comes_before_the_ads_shown_and_a_whole_page_without_ads_after_them() -> None:
    shown = [
        {
            "key": key,
            "ad": "x",
            "position": 1,
            "query": "other",
            "user": "u",
            "time": 1717243200_000_000,
        }
        for key in "pr"
    ]
    rows = joined(pages=[page("p", ["a"], user="v"), page("r", [], "mine")], shown=shown)
    assert [(row["query"], row["ads"], row["user"]) for row in rows] == [
        ("q", ["a"], "v"),
        ("mine", ["x"], "u"),
    ]
    assert [row["timestamp"] is None for row in rows] == [True, False]


def test_the_first_of_a_page_recorded_again_that_has_ads_is_kept() -> None:
    report = ReadReport()
    pages = [
        page("p", ["a"], "late", number=7),
        page("p", ["b"], "early", number=3),
        page("p", [], "empty", number=1),
    ]
    (row,) = joined(pages=pages, report=report)
    assert (row["query"], row["ads"]) == ("early", ["b"])
    assert report.notes == {"page recorded again, the first kept": 2}


def test_of_two_searches_under_one_key_the_one_that_holds_the_clicks_is_kept() -> None:
    report = ReadReport()
    pages = [page("p", ["a", "b"], "red mcase"), page("p", ["c", "d"], "red case")]
    clicks = [click("p", "d", 2), click("p", "c", 1), click("p", "a", 1)]
    (row,) = joined(pages=pages, clicks=clicks, report=report)
    assert (row["query"], row["ads"], row["clicks"]) == ("red case", ["c", "d"], [2, 1])
    assert report.notes == {"page recorded again, a later one kept: it holds the clicks": 1}
    assert dict(report.bad_rows.dropped) == {"click on an ad not shown": 1}


@pytest.mark.parametrize("sample", [0, 1000])
@pytest.mark.parametrize("pages_first", [True, False])
def test_ads_shown_on_whole_pages_are_passed_over_whenever_they_come(
    pages_first: bool, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_join, "SAMPLE_SHOWN", sample)
    shown = [
        {"key": key, "ad": ad, "position": place, "query": "shown"}
        for key in "pr"
        for place, ad in enumerate("xyz")
    ]
    kinds: dict[str, Any] = {"shown": shown, "pages": [page("p", ["a", "b"], "whole")]}
    kinds = {kind: kinds[kind] for kind in sorted(kinds, reverse=not pages_first)}
    rows = joined(first=None, clicks=[click("p", "b", 2), click("r", "z", 2)], **kinds)
    assert sorted((row["query"], row["ads"], row["clicks"]) for row in rows) == [
        ("shown", ["x", "y", "z"], [3]),
        ("whole", ["a", "b"], [2]),
    ]


def test_a_click_recorded_again_at_the_same_time_is_one_click_and_without_times_two() -> None:
    report = ReadReport()
    clicks = [
        click("p", "a", 1, 5),
        click("p", "a", 1, 5),
        click("p", "a", 1, 6),
        click("r", "a"),
        click("r", "a"),
    ]
    assert clicks_of(
        joined(pages=[page("p", ["a"]), page("r", ["a"])], clicks=clicks, report=report)
    ) == {"p": [1, 1], "r": [1, 1]}
    assert report.notes == {"click recorded again at the same time, counted once": 1}


def test_clicks_that_find_no_place_are_told_with_where_they_stood() -> None:
    report = ReadReport()
    clicks = [
        click("x", "a", 2),
        click("p", "z"),
        click("p", None, 3),
        click("p"),
        click("p", None, 0),
    ]
    assert clicks_of(joined(pages=[page("p", ["a", "b"])], clicks=clicks, report=report)) == {
        "p": []
    }
    assert told(report) == {
        "click without a page": [(1, "page 'x', ad 'a' at position 2")],
        "click on an ad not shown": [
            (2, "page 'p', ad 'z'"),
            (3, "page 'p', position 3"),
            (4, "page 'p', no ad and no position"),
        ],
    }
    assert report.bad_rows.dropped["click on an ad not shown"] == 4


def test_pages_without_ads_or_query_are_told_or_noted_where_a_format_allows_them() -> None:
    pages = [
        page("p", None),
        page("r", []),
        page("s", ["a"], None),
        page("t", ["a"], ""),
        page("u", ["a"]),
    ]
    report = ReadReport()
    assert clicks_of(joined(pages=pages, clicks=[click("s", "a")], report=report)) == {"u": []}
    assert told(report) == {
        "no ads": [(1, "page 'p'"), (2, "page 'r'")],
        "no query": [(3, "page 's'"), (4, "page 't'")],
    }
    report = ReadReport()
    assert clicks_of(
        joined(pages=pages, report=report, allowed={"no ads": "empty", "no query": "unasked"})
    ) == {"u": []}
    assert not report.bad_rows.dropped
    assert report.notes == {"empty": 2, "unasked": 2}


@pytest.mark.parametrize("offset", [0, 1])
def test_whether_positions_count_from_0_or_1_is_learnt_from_where_the_ads_stand(
    offset: int,
) -> None:
    evidence = [click("p", ad, place + offset, place) for place, ad in enumerate("abc")]
    by_position = [click("r", None, 1 + offset, 1), click("s", "a", 2 + offset, 1)]
    pages = [page("p", ["a", "b", "c"]), page("r", ["a", "b"]), page("s", ["a", "b", "a"])]
    report = ReadReport()
    assert clicks_of(
        joined(pages=pages, clicks=evidence + by_position, first=None, report=report)
    ) == {"p": [1, 2, 3], "r": [2], "s": [3]}
    assert not report.notes


def test_a_position_0_of_no_ad_and_ads_shown_tell_too() -> None:
    pages = [page("p", ["a", "b"])]
    assert clicks_of(
        joined(pages=pages, clicks=[click("p", None, 0, 1), click("p", None, 1, 2)], first=None)
    ) == {"p": [1, 2]}
    shown = [{"key": "p", "ad": "b", "position": 1}]
    assert clicks_of(
        joined(pages=pages, shown=shown, clicks=[click("p", None, 1, 1)], first=None)
    ) == {"p": [2]}
    assert clicks_of(joined(pages=pages, clicks=[click("p", None, 1, 1)], first=None)) == {"p": [1]}


def test_positions_that_count_otherwise_or_lie_elsewhere_are_noted() -> None:
    clicks = [
        click("p", ad, position, position)
        for ad, position in [("a", 0), ("b", 1), ("c", 2), ("b", 2), ("a", 41)]
    ]
    report = ReadReport()
    assert clicks_of(
        joined(pages=[page("p", ["a", "b", "c"])], clicks=clicks, first=None, report=report)
    ) == {"p": [1, 2, 3, 2, 1]}
    assert report.notes == {
        "click whose position counts from 1, where the log counts from 0; its ad decided": 1,
        "click whose position is not where its ad stands; the ad decided": 1,
    }


def test_an_empty_join_has_no_sessions() -> None:
    assert joined() == []
    assert joined(clicks=[]) == []


def test_rows_without_a_place_are_numbered_and_files_are_named(tmp_path: Path) -> None:
    report = ReadReport()
    files = [LogFile(str(tmp_path / name), name) for name in ("one", "two")]
    for file in files:
        Path(str(file.path)).touch()

    def add(join: PageJoin) -> None:
        join.add("pages", pa.table({"key": ["p"], "query": ["q"], "ads": [["a"]]}))
        join.add("clicks", pa.table({"key": ["p"], "ad": ["y"]}))
        join.add("clicks", pa.table({"key": ["p"], "ad": ["z"]}))
        join.add("clicks", pa.table({"key": ["p"], "ad": ["z"], "file": [1], "number": [77]}))

    assert [batch.num_rows for batch in join_pages(files, report, add)] == [1]
    assert [
        (example.where, example.row)
        for example in report.bad_rows.examples["click on an ad not shown"]
    ] == [("one", 1), ("one", 2), ("two", 77)]


def test_the_folder_of_the_buckets_is_removed_also_when_the_reader_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    batches = join_pages(
        [],
        ReadReport(),
        lambda join: join.add("pages", pa.table({"key": ["p"], "query": ["q"], "ads": [["a"]]})),
    )
    assert isinstance(batches, Iterator)
    next(batches)
    assert list(tmp_path.iterdir())
    batches.close()  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())


keys, ads = st.sampled_from("pqrstu"), st.sampled_from(["a", "b", "c", "d"])
page_rows = st.lists(st.tuples(keys, st.lists(ads, max_size=5)), max_size=8)
click_rows = st.lists(
    st.tuples(keys, st.none() | ads, st.none() | st.integers(-1, 6), st.none() | st.integers(0, 3)),
    max_size=25,
)


def by_hand(
    pages: list[tuple[str, list[str]]], clicks: list[tuple[str, str | None, int | None, int | None]]
) -> tuple[dict[str, Any], int, int]:
    """The clicks of each page that has ads, and how many clicks have no page or no ad shown."""
    first: dict[str, list[str]] = {}
    for key, page_ads in pages:
        clicked = {ad for each, ad, *_ in clicks if each == key}
        best = first.setdefault(key, page_ads)
        if not best or len(clicked & set(page_ads)) > len(clicked & set(best)):
            first[key] = page_ads
    made: dict[str, list[tuple[float, int, int]]] = {
        key: [] for key, page_ads in first.items() if page_ads
    }
    seen, no_page, not_shown = set(), 0, 0
    for number, (key, ad, position, time) in enumerate(clicks):
        if time is not None and (key, ad, position, time) in seen:
            continue
        seen.add((key, ad, position, time))
        there = first.get(key, [])
        slot = (
            position
            if position is not None
            and 1 <= position <= len(there)
            and ad in (None, there[position - 1])
            else None
        )
        slot = there.index(ad) + 1 if slot is None and ad is not None and ad in there else slot
        no_page += key not in first
        not_shown += key in first and slot is None
        if slot is not None:
            made[key].append((float("inf") if time is None else time, number, slot))
    return (
        {key: [slot for *_, slot in sorted(report)] for key, report in made.items()},
        no_page,
        not_shown,
    )


@pytest.mark.parametrize("many", [1, 5])
@settings(max_examples=12)  # each opens a database
@given(pages=page_rows, clicks=click_rows)
def test_any_rows_are_joined_as_by_hand_in_any_number_of_buckets(
    many: int,
    pages: list[tuple[str, list[str]]],
    clicks: list[tuple[str, str | None, int | None, int | None]],
) -> None:
    report = ReadReport()
    rows = joined(
        size=many * spill.PARTITION_BYTES,
        pages=[page(key, page_ads) for key, page_ads in pages],
        clicks=[click(*each) for each in clicks],
        report=report,
    )
    made, no_page, not_shown = by_hand(pages, clicks)
    assert clicks_of(rows) == made
    assert report.bad_rows.dropped["click without a page"] == no_page
    assert report.bad_rows.dropped["click on an ad not shown"] == not_shown


def test_buckets_give_back_every_row_once_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "BUFFER_ROWS", 1000)
    schema = pa.schema([("key", pa.string()), ("time", TIME), ("number", pa.int64())])
    table = pa.table(
        {
            "key": [f"k{number % 300}" for number in range(5000)],
            "time": pa.nulls(5000, TIME),
            "number": range(5000),
        },
        schema=schema,
    )
    some = spill.SpilledPartitions(tmp_path, "some", schema, 7)
    for start in range(0, 5000, 400):
        some.add(table.slice(start, 400))
    some.flush()
    read = [some.read(bucket) for bucket in range(7)]
    assert sorted(number for part in read for number in part["number"].to_pylist()) == list(
        range(5000)
    )
    assert all(part["number"].to_pylist() == sorted(part["number"].to_pylist()) for part in read)
    assert all(part.num_rows for part in read)
    places = {key: bucket for bucket, part in enumerate(read) for key in part["key"].to_pylist()}
    assert sum(len(set(part["key"].to_pylist())) for part in read) == len(places) == 300


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.lists(st.sampled_from(["a", "b", "c", "d", "e", None]), max_size=6)
        ),
        max_size=12,
    )
)
def test_known_keys_are_those_added(steps: list[tuple[bool, list[str | None]]]) -> None:
    known, plain = HashedKeySet(), set[str | None]()
    for adds, keys in steps:
        if adds:
            known.add(pa.array([key for key in keys if key], pa.string()))
            plain |= {key for key in keys if key}
        assert known.contains(pa.array(keys, pa.string())).tolist() == [
            key in plain for key in keys
        ]


def test_many_known_keys_lie_in_few_arrays_and_have_a_limit() -> None:
    known = HashedKeySet(max_keys=5000)
    for start in range(0, 10_000, 50):
        known.add(pa.array([f"k{number}" for number in range(start, start + 50)]))
        assert len(known._sorted_runs) <= 6
    assert len(known) == 5000
    assert known.contains(pa.array(["k0", "k4999", "k5000"])).tolist() == [True, True, False]


def test_a_sample_of_the_ads_shown_is_kept_of_the_first_batch_however_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_join, "SAMPLE_SHOWN", 3)
    pages = [page(f"p{i}", ["a", "b", "c", "d"]) for i in range(4)]
    shown = [
        {"key": f"p{i}", "query": "q", "ad": ad, "position": place}
        for i in range(4)
        for place, ad in enumerate("abcd", start=1)
    ]
    clicks = [click(f"p{i}", None, 3, 1) for i in range(4)] + [click("p0", None, 0, 2)]
    report = ReadReport()
    assert clicks_of(
        joined(pages=pages, shown=shown, clicks=clicks, first=None, report=report)
    ) == {f"p{i}": [3] for i in range(4)}
    assert report.bad_rows.dropped["click on an ad not shown"] == 1
