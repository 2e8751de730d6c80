"""Metarank's events: a log written by hand, its bad lines, and any log written and read back."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.logs.files.log_file import LogFile
from reclick.logs.formats import metarank
from reclick.logs.formats.metarank import FORMAT as METARANK
from reclick.logs.formats.ubi import FORMAT as UBI
from tests.support.line_logs import (
    EVERY_START,
    Shown,
    faults,
    log,
    pages,
    pages_shown,
    read,
    started,
)

TIME = 1599391467000


def field(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "value": value}


def ranking(
    key: str | None, query: Any, shown: list[Any], time: Any = str(TIME), **more: Any
) -> dict[str, Any]:
    fields = [field("source", "search"), field("query", query)] if query is not None else []
    items = [{"id": item, "relevancy": 1.0} for item in shown]
    return {
        "event": "ranking",
        "id": key,
        "timestamp": time,
        "user": "u1",
        "session": "s1",
        "fields": fields,
        "items": items,
    } | more


def interaction(
    key: str | None, item: Any, second: float, kind: str = "click", **more: Any
) -> dict[str, Any]:
    return {
        "event": "interaction",
        "id": "i",
        "ranking": key,
        "timestamp": str(int(TIME + second * 1000)),
        "type": kind,
        "item": item,
    } | more


ITEM = {
    "event": "item",
    "id": "81f4",
    "timestamp": str(TIME),
    "item": "a",
    "fields": [
        field("title", "Red socks"),
        field("color", ["red"]),
        field("price", 9.5),
        field("new", True),
        field("url", "shop.example/a"),
    ],
}
USER = {
    "event": "user",
    "id": "81f5",
    "timestamp": str(TIME),
    "user": "u1",
    "fields": [field("age", 33)],
}
EVENTS = [
    ITEM,
    USER,
    ranking("r1", "socks", ["c", "a", "b"]),
    interaction("r1", "b", 9),
    interaction("r1", "c", 5),
    interaction("r1", "b", 7, "purchase"),
    ranking("r2", "cat", ["a"], "2022-06-22T11:21:39Z", user=None),
]


def lines(folder: Path, *events: dict[str, Any] | str, name: str = "events.jsonl") -> LogFile:
    return log(
        folder,
        *(event if isinstance(event, str) else json.dumps(event) for event in events),
        name=name,
    )


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
def test_rankings_are_pages_and_clicks_come_in_the_order_of_time(tmp_path: Path, name: str) -> None:
    rows, report = read(METARANK, lines(tmp_path, *EVENTS, name=name))
    assert rows == [
        {
            "session_id": "r1",
            "user": "u1",
            "timestamp": datetime(2020, 9, 6, 11, 24, 27),
            "query": "socks",
            "ads": ["c", "a", "b"],
            "clicks": [1, 3],
        },
        {
            "session_id": "r2",
            "user": "s1",
            "timestamp": datetime(2022, 6, 22, 11, 21, 39),
            "query": "cat",
            "ads": ["a"],
            "clicks": [],
        },
    ]
    assert not report.bad_rows.dropped
    assert report.notes == {
        "user event, skipped": 1,
        "'purchase' interaction, not a click: skipped": 1,
    }
    assert report.ad_texts == {"a": ("Red socks", "", "shop.example/a")}


@pytest.mark.parametrize(
    ("value", "query"),
    [("cat", "cat"), (7, "7"), (["red", "cat"], "red cat"), ("", None), ([], None), (None, None)],
)
def test_the_query_is_the_field_of_that_name_and_a_ranking_without_one_has_a_stated_query(
    tmp_path: Path, value: Any, query: str | None
) -> None:
    rows, report = read(METARANK, lines(tmp_path, ranking("r1", value, ["a"])))
    assert pages(rows) == [(query or "(no query)", ["a"], [])]
    assert report.notes == (
        {} if query else {"ranking without a query, read as the query '(no query)'": 1}
    )


def test_pages_and_clicks_may_come_in_any_order_and_from_several_files(tmp_path: Path) -> None:
    clicks = lines(
        tmp_path, interaction("r1", "b", 1), interaction("r2", 7, 1), name="clicks.jsonl"
    )
    rankings = lines(
        tmp_path,
        ranking("r2", "q", [7, 8]),
        ranking("r1", "p", ["a", "b"], TIME, fields=[field("query", "p")]),
        name="rankings.jsonl",
    )
    assert METARANK.recognises([clicks, rankings])
    assert pages(read(METARANK, clicks, rankings)[0]) == [
        ("q", ["7", "8"], [1]),
        ("p", ["a", "b"], [2]),
    ]


def test_what_a_session_cannot_hold_is_counted(tmp_path: Path) -> None:
    rows, report = read(
        METARANK,
        lines(
            tmp_path,
            ranking("r1", "q", ["a"]),
            interaction(None, "a", 1),
            interaction("r1", "a", 1, "like"),
            interaction("r1", "a", 2),
            interaction("r1", "a", 2),
        ),
    )
    assert pages(rows) == [("q", ["a"], [1])]
    assert report.notes == {
        "click outside a ranking, skipped": 1,
        "'like' interaction, not a click: skipped": 1,
        "click recorded again at the same time, counted once": 1,
    }


def test_bad_events_are_told_and_the_rest_is_kept(tmp_path: Path) -> None:
    bad: list[dict[str, Any] | str] = [
        '{"event": "ranking", "id": "r9", ',
        {"event": "impression", "id": "x"},
        {"event": ["ranking"]},
        ranking("r3", {"text": "cat"}, ["a"]),
        ranking("r4", "cat", [], items=["a", "b"]),
        ranking("r5", "cat", ["a"], fields="query=cat"),
        ranking("r6", "cat", ["a"], True),
        ranking(None, "cat", ["a"]),
        ranking("r7", "cat", []),
        interaction("unknown", "a", 1),
        interaction("r1", "z", 1),
        interaction("r1", None, 1),
        interaction("r1", "\ud83d", 1),
    ]
    rows, report = read(METARANK, lines(tmp_path, *EVENTS, *bad))
    assert pages(rows) == [("socks", ["c", "a", "b"], [1, 3]), ("cat", ["a"], [])]
    assert {reason: rows[:1] for reason, rows in faults(report).items()} == {
        "not readable": [8],
        "no page key": [15],
        "no ads": [16],
        "click without a page": [17],
        "click on an ad not shown": [18],
    }
    assert report.bad_rows.dropped == {
        "not readable": 8,
        "no page key": 1,
        "no ads": 1,
        "click without a page": 1,
        "click on an ad not shown": 2,
    }
    assert (
        report.bad_rows.examples["not readable"][1].got
        == "event: expected ranking, interaction, item, user, got 'impression'"
    )
    assert report.bad_rows.examples["no page key"][0].got == "a ranking without id, of 1 items"


@pytest.mark.parametrize(
    ("event", "got"),
    [
        (ranking("r", {"text": "cat"}, ["a"]), "query: expected text, got {'text': 'cat'}"),
        (ranking("r", "cat", [], items=["a"]), "items: expected a list of objects, got ['a']"),
        (ranking("r", "cat", [1.5]), "id: expected text, got 1.5"),
        (interaction("r", "a", 1, timestamp=[]), "timestamp: expected a time, got []"),
        (interaction("r", ["a"], 1), "item: expected text, got ['a']"),
    ],
)
def test_what_is_wrong_in_an_event_is_said(tmp_path: Path, event: dict[str, Any], got: str) -> None:
    _, report = read(METARANK, lines(tmp_path, event))
    assert [example.got for example in report.bad_rows.examples["not readable"]] == [got]


def test_a_time_that_is_none_is_told(tmp_path: Path) -> None:
    rows, report = read(
        METARANK,
        lines(
            tmp_path,
            ranking("r1", "socks", ["a", "b"]),
            interaction("r1", "a", 1, timestamp="soon"),
            interaction("r1", "b", 2),
        ),
    )
    assert [row["clicks"] for row in rows] == [[2]]
    assert [(example.row, example.got) for example in report.bad_rows.examples["not readable"]] == [
        (2, "timestamp: not a time: 'soon'")
    ]


def test_rows_are_added_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metarank, "BATCH_SESSIONS", 2)
    events = [
        each
        for place in range(5)
        for each in (ranking(f"r{place}", "q", ["a", "b"]), interaction(f"r{place}", "b", 1))
    ]
    assert pages(read(METARANK, lines(tmp_path, *events))[0]) == [("q", ["a", "b"], [2])] * 5


def test_it_recognises_its_own_logs_and_no_others(tmp_path: Path) -> None:
    own = lines(tmp_path, *EVENTS)
    assert METARANK.recognises([own])
    assert not UBI.recognises([own])
    ubi = started(
        tmp_path,
        '{"action_name": "click", "query_id": "q", "timestamp": "2025-01-01T00:00:00Z"}\n',
        "events.ndjson",
    )
    assert not METARANK.recognises([own, ubi])
    assert not METARANK.recognises([])
    for place, text in enumerate(EVERY_START.values()):
        assert not METARANK.recognises([started(tmp_path, text, f"other-{place}.json")])


@settings(max_examples=15)  # each opens a database
@given(sessions=st.lists(pages_shown, max_size=6), shuffled=st.randoms())
def test_any_sessions_written_as_events_come_back(sessions: list[Shown], shuffled: Any) -> None:
    events = [ranking(f"r{place}", query, ads) for place, (query, ads, _) in enumerate(sessions)]
    events += [
        interaction(f"r{place}", ads[slot - 1], step)
        for place, (_, ads, clicks) in enumerate(sessions)
        for step, slot in enumerate(clicks)
    ]  # fmt: skip
    shuffled.shuffle(events)
    with TemporaryDirectory() as folder:
        rows, report = read(METARANK, lines(Path(folder), *events))
    assert {row["session_id"]: (row["query"], row["ads"], row["clicks"]) for row in rows} == {
        f"r{i}": each for i, each in enumerate(sessions)
    }
    assert not report.bad_rows.dropped
    assert not report.notes
