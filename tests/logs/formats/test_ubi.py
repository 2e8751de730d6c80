"""User Behavior Insights: a log of version 1.3.0 written by hand, its bad lines, and any log."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import reclick as rc
from reclick.cli import app
from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile, list_files
from reclick.logs.formats.base import EventOptions, ReadReport
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

START = datetime(2025, 2, 18, 9, tzinfo=UTC)


def query(
    key: str,
    text: str | None,
    hits: list[Any] | None,
    *,
    spelt: str = "query_response_hit_ids",
    **more: Any,
) -> dict[str, Any]:
    return {
        "application": "shop",
        "query_id": key,
        "client_id": "c-1",
        "user_query": text,
        "timestamp": "2025-02-18T09:00:00.000Z",
        "query_attributes": {"experiment": "b", "page": 1},
        spelt: hits,
    } | more


def event(
    action: str,
    key: str | None,
    ad: Any = None,
    ordinal: Any = None,
    second: float = 0,
    **more: Any,
) -> dict[str, Any]:
    return {
        "application": "shop",
        "action_name": action,
        "query_id": key,
        "session_id": "s-1",
        "timestamp": (START + timedelta(seconds=second)).isoformat(timespec="milliseconds"),
        "message_type": None,
        "event_attributes": {
            "object": {"object_id": ad, "object_id_field": "sku"},
            "position": {"ordinal": ordinal, "x": 120, "y": 44},
        },
    } | more


QUERIES = [query("q-1", "running shoes", ["a", "b", "c"]), query("q-2", "boots", ["d", "e"])]
EVENTS = [
    event("impression", "q-1", "a", 1, 1),
    event("click", "q-1", "c", 3, 9),
    event("click", "q-1", "b", 2, 5),
    event("view", "q-1", "b", 2, 6),
    event("add_to_cart", "q-1", "b", 2, 8),
]


def lines(folder: Path, *records: dict[str, Any] | str, name: str = "ubi.ndjson") -> LogFile:
    return log(
        folder,
        *(record if isinstance(record, str) else json.dumps(record) for record in records),
        name=name,
    )


def test_pages_are_the_hits_of_queries_with_their_clicks_in_the_order_of_time(
    tmp_path: Path,
) -> None:
    rows, report = read(
        UBI,
        lines(tmp_path, *EVENTS, name="events.ndjson"),
        lines(tmp_path, *QUERIES, name="queries.ndjson"),
    )
    assert rows == [
        {
            "session_id": "q-1",
            "user": "c-1",
            "timestamp": START.replace(tzinfo=None),
            "query": "running shoes",
            "ads": ["a", "b", "c"],
            "clicks": [2, 3],
            "dwell_seconds": [4.0, None],
            "conversions": [1.0, 0.0],
        },
        {
            "session_id": "q-2",
            "user": "c-1",
            "timestamp": START.replace(tzinfo=None),
            "query": "boots",
            "ads": ["d", "e"],
            "clicks": [],
            "dwell_seconds": [],
            "conversions": [],
        },
    ]
    assert not report.bad_rows.dropped
    assert report.notes == {"'view' event, neither a click nor an impression": 1}
    assert report.other_actions == {"view": 1, "add_to_cart": 1}


def test_a_click_lasts_until_the_next_search_or_click_of_its_user(tmp_path: Path) -> None:
    def search(key: str, second: float, user: str = "c-1") -> dict[str, Any]:
        at = (START + timedelta(seconds=second)).isoformat(timespec="milliseconds")
        return query(key, "shoes", ["a", "b"], client_id=user, timestamp=at)

    def click(key: str, ad: str, second: float, user: str | None = "c-1") -> dict[str, Any]:
        return event("click", key, ad, None, second, client_id=user, session_id=None)

    records = [
        *(search("q-1", 0), search("q-2", 20.5), search("q-3", 10_000)),
        *(search("q-4", 100, "c-2"), search("q-5", 101, "c-2")),
        *(click("q-1", "a", 2), click("q-1", "b", 5.25), click("q-1", "b", 5.25)),
        click("q-2", "a", 30),  # the next search is two hours later: another visit
        click("q-3", "a", 10_010),  # nothing follows
        *(click("q-4", "a", 100.5, "c-2"), click("q-5", "b", 102, None)),  # of no known user
    ]
    rows, _ = read(UBI, lines(tmp_path, *records))
    found = {row["session_id"]: row["dwell_seconds"] for row in rows}
    assert found == {
        "q-1": [3.25, 15.25],
        "q-2": [None],
        "q-3": [None],
        "q-4": [0.5],
        "q-5": [None],
    }
    assert "conversions" not in rows[0]  # the log has none, so nothing is known of them


def test_a_conversion_is_of_the_last_click_on_its_object_before_it(tmp_path: Path) -> None:
    records = [
        *QUERIES,
        *(event("click", "q-1", "a", 1, second) for second in (1, 10)),
        event("click", "q-1", "b", 2, 12),
        event("add_to_cart", "q-1", "a", 1, 5),
        *(event(action, "q-1", "a", None, 20) for action in ("Purchase", "add_to_cart")),
        event("purchase", "q-1", None, 2, 30),
        event("purchase", "q-1", "b", 2, 11),  # before the click
        event("purchase", "q-1", "c", 3, 30),  # of an ad that was not clicked
        event("purchase", "q-9", "a", 1, 30),  # of no page
        *(event("purchase", "q-1"), event("purchase", "q-1", "a", 1, timestamp=None)),
    ]
    rows, report = read(UBI, lines(tmp_path, *records))
    assert rows[0]["clicks"] == [1, 1, 2]
    assert rows[0]["conversions"] == [1.0, 1.0, 1.0]  # a purchase at the time of another is one
    assert report.notes == {
        "conversion of no object or without a time, skipped": 2,
        "conversion without a click on its ad before it, skipped": 3,
    }
    assert not report.bad_rows.dropped


def test_actions_that_are_read_as_clicks_are_no_conversions(tmp_path: Path) -> None:
    options = EventOptions(click=("add_to_cart",))
    assert UBI.configure is not None
    file = lines(tmp_path, *QUERIES, *EVENTS)
    batches = list(UBI.configure(options)([file], ReadReport(), {}))
    (first, _) = (row for batch in batches for row in batch.to_pylist())
    assert first["clicks"] == [2]
    assert "conversions" not in first


SAME = [("running shoes", ["a", "b", "c"], [2, 3]), ("boots", ["d", "e"], [])]


@pytest.mark.parametrize("spelt", ["query_response_objects_ids", "query_response_object_ids"])
def test_other_spellings_of_the_hits_are_read(tmp_path: Path, spelt: str) -> None:
    renamed = [
        query("q-1", "running shoes", ["a", "b", "c"], spelt=spelt),
        query("q-2", "boots", ["d", "e"], spelt=spelt),
    ]
    assert pages(read(UBI, lines(tmp_path, *renamed, *EVENTS))[0]) == SAME


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record with dotted names, as exports write nested fields."""
    out: dict[str, Any] = {}
    for name, value in record.items():
        out |= (
            {f"{name}.{inner}": deep for inner, deep in flat(value).items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return out


def top_level(record: dict[str, Any]) -> dict[str, Any]:
    attributes = record.pop("event_attributes", None)
    return record | (
        {
            "object_id": attributes["object"]["object_id"],
            "position": attributes["position"]["ordinal"],
        }
        if attributes
        else {}
    )


def from_0(record: dict[str, Any]) -> dict[str, Any]:
    if "event_attributes" in record:
        record["event_attributes"]["position"]["ordinal"] -= 1
    return record


def ordinal_as_index(record: dict[str, Any]) -> dict[str, Any]:
    """As versions before 1.3 write it."""
    if "event_attributes" in record:
        record["event_attributes"]["position"]["ordinal"] = {
            "index": record["event_attributes"]["position"]["ordinal"]
        }
    return record


def ordinal_as_text(record: dict[str, Any]) -> dict[str, Any]:
    if "event_attributes" in record:
        record["event_attributes"]["position"]["ordinal"] = str(
            record["event_attributes"]["position"]["ordinal"]
        )
    return record


WRITERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "nested": lambda record: record,
    "flat": flat,
    "top level": top_level,
    "from 0": from_0,
    "hits of a search": lambda record: {"_index": "ubi", "_id": "1", "_source": record},
    "times as numbers": lambda record: (
        record | {"timestamp": int(datetime.fromisoformat(record["timestamp"]).timestamp() * 1000)}
    ),
    "ordinals as text": ordinal_as_text,
    "ordinals of version 1.0": ordinal_as_index,
    "actions in capitals": lambda record: (
        record | ({"action_name": record["action_name"].upper()} if "action_name" in record else {})
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_the_ways_of_writing_records_make_no_difference(tmp_path: Path, writer: str) -> None:
    records = [WRITERS[writer](record) for record in json.loads(json.dumps(QUERIES + EVENTS))]
    file = lines(tmp_path, *records)
    assert UBI.recognises([file])
    rows, report = read(UBI, file)
    assert pages(rows) == SAME
    assert not report.bad_rows.dropped


@pytest.mark.parametrize("writer", ["nested", "flat", "top level"])
def test_parquet_is_read_nested_or_flat_in_one_file_or_two(tmp_path: Path, writer: str) -> None:
    queries, events = (
        [WRITERS[writer](record) for record in json.loads(json.dumps(some))]
        for some in (QUERIES, EVENTS)
    )
    files = []
    for name, records in {
        "queries.parquet": queries,
        "events.parquet": events,
        "both.parquet": queries + events,
    }.items():
        columns = {key: None for record in records for key in record}
        pq.write_table(
            pa.table({key: [record.get(key) for record in records] for key in columns}),
            tmp_path / name,
        )
        files.append(LogFile(str(tmp_path / name), name))
    assert UBI.recognises(files)
    assert pages(read(UBI, *files[:2])[0]) == SAME
    assert pages(read(UBI, files[2])[0]) == SAME


def test_gzipped_files_archives_and_bulk_requests_are_read(tmp_path: Path) -> None:
    import zipfile

    bulk = [line for record in QUERIES + EVENTS for line in ({"index": {"_index": "ubi"}}, record)]
    file = lines(tmp_path, *bulk, name="bulk.ndjson.gz")
    with zipfile.ZipFile(tmp_path / "ubi.zip", "w") as archive:
        archive.write(str(file.path), "bulk.ndjson.gz")
    for files in ([file], list_files([str(tmp_path / "ubi.zip")], ["ubi.zip"])):
        assert UBI.recognises(files)
        rows, report = read(UBI, *files)
        assert pages(rows) == SAME
        assert not report.bad_rows.dropped


@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_that_is_one_array_is_read_and_recognised(
    tmp_path: Path, indent: int | None
) -> None:
    (tmp_path / "ubi.json").write_text(
        json.dumps([*QUERIES, *EVENTS, event("click", "q-1", "a", "top")], indent=indent),
        encoding="utf-8",
    )
    file = LogFile(str(tmp_path / "ubi.json"), "ubi.json")
    assert UBI.recognises([file])
    rows, report = read(UBI, file)
    assert pages(rows) == SAME
    assert faults(report) == {
        "not readable": [len(QUERIES) + len(EVENTS) + 1]
    }  # its place in the array


def test_whole_number_ids_are_text_on_both_sides(tmp_path: Path) -> None:
    records = [
        query("1", "shoes", [7, 8]),
        event("click", "1", 8, 2),
        query("2", "shoes", ["7"]),
        event("click", "2", 7, 1),
    ]
    assert pages(read(UBI, lines(tmp_path, *records))[0]) == [
        ("shoes", ["7", "8"], [2]),
        ("shoes", ["7"], [1]),
    ]


def test_without_hits_the_impressions_are_the_page(tmp_path: Path) -> None:
    shown = [
        event("impression", "q-1", ad, place, place, user_query="shoes")
        for place, ad in [(2, "c"), (0, "a"), (1, "b"), (1, "b")]
    ]
    rows, report = read(
        UBI,
        lines(
            tmp_path,
            *shown,
            event("click", "q-1", "c", 2, 9),
            event("click", "q-1", None, 1, 10),
            event("impression", "q-1"),
        ),
    )
    assert pages(rows) == [("shoes", ["a", "b", "c"], [3, 2])]
    assert rows[0]["user"] == "s-1"
    assert report.notes == {
        "impression of no object, skipped": 1,
        "ad shown again on its page at its position, counted once": 1,
    }


@pytest.mark.parametrize("hits", [None, []])
@pytest.mark.parametrize("last", [False, True])
def test_a_query_without_hits_gets_the_ads_of_its_impressions(
    tmp_path: Path, hits: list[str] | None, last: bool
) -> None:
    bare = query("q-1", "shoes", hits, timestamp="2025-02-18T08:00:00Z")
    shown = [
        event("impression", "q-1", ad, place, place) for place, ad in [(2, "b"), (1, "a"), (3, "c")]
    ]
    clicks = [event("click", "q-1", "c", 3, 9), event("click", "q-1", "a", 1, 12)]
    rows, report = read(
        UBI, lines(tmp_path, *([*shown, *clicks, bare] if last else [bare, *clicks, *shown]))
    )
    assert pages(rows) == [("shoes", ["a", "b", "c"], [3, 1])]
    assert (rows[0]["user"], rows[0]["timestamp"]) == ("c-1", datetime(2025, 2, 18, 8))
    assert not report.bad_rows.dropped
    assert not report.notes


def test_impressions_without_a_position_come_last_in_the_order_of_the_log(tmp_path: Path) -> None:
    shown = [
        event("impression", "q-1", ad, position, user_query="shoes")
        for ad, position in [("z", None), ("a", None), ("c", 2), ("b", 1)]
    ]
    rows, _ = read(UBI, lines(tmp_path, *shown, event("click", "q-1", "a", None, 5)))
    assert pages(rows) == [("shoes", ["b", "c", "z", "a"], [4])]


def test_views_are_no_impressions_even_with_an_object_and_a_position(tmp_path: Path) -> None:
    viewed = [event("view", "q-1", "a", 1, 3), event("view", "q-1")]
    rows, report = read(UBI, lines(tmp_path, query("q-1", "shoes", None), *viewed))
    assert not rows
    assert report.notes == {
        "query without results, skipped": 1,
        "'view' event, neither a click nor an impression": 2,
    }


def test_the_object_decides_and_the_ordinal_tells_which_of_two_equal_ones(tmp_path: Path) -> None:
    records = [
        query("q-1", "shoes", ["a", "b", "a"]),
        event("click", "q-1", "a", 2, 1),
        event("click", "q-1", "b", 1, 2),
        event("click", "q-1", "a", 0, 3),
    ]
    assert pages(read(UBI, lines(tmp_path, *records))[0]) == [("shoes", ["a", "b", "a"], [3, 2, 1])]


def test_mixed_ordinals_are_told(tmp_path: Path) -> None:
    from_zero = [event("click", "q-1", ad, place, place) for place, ad in enumerate("abc")]
    rows, report = read(
        UBI,
        lines(
            tmp_path,
            QUERIES[0],
            *from_zero,
            event("click", "q-1", "b", 2, 8),
            event("click", "q-1", "c", 33, 9),
        ),
    )
    assert pages(rows) == [("running shoes", ["a", "b", "c"], [1, 2, 3, 2, 3])]
    assert report.notes == {
        "click whose position counts from 1, where the log counts from 0; its ad decided": 1,
        "click whose position is not where its ad stands; the ad decided": 1,
    }


def test_what_a_session_cannot_hold_is_counted(tmp_path: Path) -> None:
    records = [
        query("q-1", "running shoes", ["a"]),
        query("q-2", "nothing to be found", []),
        query("q-3", "not recorded", None),
        query("q-1", "again", ["b"]),
        event("click", None, "a", 1, 1),
        event("impression", "", "a", 1, 1),
        event("click", "q-1", "a", 1, 2),
        event("click", "q-1", "a", 1, 2),
        event("click", "q-1"),
        event("click", "q-1", "a", 1, timestamp=None),
        event("purchase", "q-1", "a", 1, 7),
    ]
    rows, report = read(UBI, lines(tmp_path, *records))
    assert pages(rows) == [("running shoes", ["a"], [1, 1])]
    assert not report.bad_rows.dropped
    assert report.notes == {
        "event with no query_id, skipped": 2,
        "click on no object, skipped": 1,
        "click without a time, put after the others of its page": 1,
        "query without results, skipped": 2,
        "page recorded again, the first kept": 1,
        "click recorded again at the same time, counted once": 1,
    }


def test_made_up_actions_do_not_fill_the_notes(tmp_path: Path) -> None:
    _, report = read(
        UBI, lines(tmp_path, QUERIES[0], *[event(f"action-{place}", "q-1") for place in range(200)])
    )
    assert len(report.notes) < 40
    assert sum(report.notes.values()) == 200


def test_bad_records_are_told_and_the_rest_is_kept(tmp_path: Path) -> None:
    bad: list[dict[str, Any] | str] = [
        '{"query_id": "q-9", "user_query": "cut sh',
        {"query_id": "q-9"},
        query("", "no id", ["a"]),
        event("click", "unknown", "a", 1),
        event("click", "q-1", "z", 1),
        query("q-5", "", ["a"]),
        event("click", "q-5", "a", 1),
        query("q-6", "hits", "a,b"),  # type: ignore[arg-type]
    ]
    rows, report = read(UBI, lines(tmp_path, *QUERIES, *bad, *EVENTS))
    assert pages(rows) == SAME
    assert faults(report) == {
        "not readable": [3, 10],
        "neither a query nor an event": [4],
        "no page key": [5],
        "click without a page": [6],
        "click on an ad not shown": [7],
        "no query": [8],
    }
    examples = report.bad_rows.examples
    assert examples["no page key"][0].got == "query 'no id', ads ['a']"
    assert examples["click on an ad not shown"][0].got == "page 'q-1', ad 'z' at position 1"
    assert examples["not readable"][1].got == "query_response_hit_ids: expected a list, got 'a,b'"


NO_POSITION = "position: expected a whole number, got "
NO_TIME = "timestamp: expected a time, got "


@pytest.mark.parametrize(
    ("bad", "got"),
    [
        (event("click", "q-1", "a", "top"), NO_POSITION + "'top'"),
        (event("click", "q-1", "a", ""), NO_POSITION + "''"),
        (event("click", "q-1", "a", 1.5), NO_POSITION + "'1.5'"),
        (event("click", "q-1", None, "top"), NO_POSITION + "'top'"),
        (
            event("click", "q-1", "a", {}),
            "event_attributes.position.ordinal: expected text, got {}",
        ),
        (event("click", "q-1", "a", {"index": "top"}), NO_POSITION + "'top'"),
        (event("click", "q-1", "a", 1, timestamp="soon"), NO_TIME + "'soon'"),
        (event("click", "q-1", "a", 1, timestamp=""), NO_TIME + "''"),
        (event("click", "q-1", "a", 1, timestamp={}), "timestamp: expected text, got {}"),
        (event("impression", "q-1", "a", "top"), NO_POSITION + "'top'"),
        (event("impression", "q-1", "a", "top", timestamp="soon"), NO_POSITION + "'top'"),
        (query("q-9", "boots", ["a"], timestamp="soon"), NO_TIME + "'soon'"),
    ],
)
def test_a_position_or_a_time_that_is_none_makes_a_record_bad(
    tmp_path: Path, bad: dict[str, Any], got: str
) -> None:
    rows, report = read(UBI, lines(tmp_path, *QUERIES, bad, *EVENTS))
    assert pages(rows) == SAME
    assert [(each.row, each.got) for each in report.bad_rows.examples["not readable"]] == [(3, got)]
    assert report.bad_rows.dropped == {"not readable": 1}


@pytest.mark.parametrize("name", ["ubi.ndjson", "ubi.parquet"])
def test_positions_and_times_that_nobody_asks_for_may_be_anything(
    tmp_path: Path, name: str
) -> None:
    other = [
        event("add_to_cart", "q-1", "a", "top", timestamp="soon"),
        event("click", None, "a", "", timestamp=""),
    ]
    records = [
        flat(ordinal_as_text(each)) | {"position": ""}
        for each in json.loads(json.dumps([*QUERIES, *EVENTS, *other]))
    ]
    file = lines(tmp_path, *records, name=name)
    if file.is_parquet:
        columns = {key: None for record in records for key in record}
        pq.write_table(
            pa.table({key: [record.get(key) for record in records] for key in columns}),
            tmp_path / name,
        )
    rows, report = read(UBI, file)
    assert pages(rows) == SAME
    assert not report.bad_rows.dropped


def test_positions_and_times_that_are_none_are_told_in_parquet(tmp_path: Path) -> None:
    records = [
        flat(each)
        for each in [
            *QUERIES,
            event("click", "q-1", "a", "top"),
            event("click", "q-1", "a", "1", timestamp="soon"),
        ]
    ]
    columns = {key: None for record in records for key in record}
    pq.write_table(
        pa.table({key: [record.get(key) for record in records] for key in columns}),
        tmp_path / "ubi.parquet",
    )
    rows, report = read(UBI, LogFile(str(tmp_path / "ubi.parquet"), "ubi.parquet"))
    assert pages(rows) == [("running shoes", ["a", "b", "c"], []), ("boots", ["d", "e"], [])]
    assert [(each.row, each.got) for each in report.bad_rows.examples["not readable"]] == [
        (3, NO_POSITION + "'top'"),
        (4, NO_TIME + "'soon'"),
    ]


@pytest.mark.parametrize(
    "column",
    [
        "query_id",
        "action_name",
        "timestamp",
        "client_id",
        "user_query",
        "query_response_hit_ids",
        "event_attributes.object.object_id",
        "event_attributes.position.ordinal",
    ],
)
def test_text_in_parquet_that_is_not_utf8_makes_a_bad_row(tmp_path: Path, column: str) -> None:
    extra = [query("q-3", "bad", ["a"]), event("click", "q-3", "a", "1", client_id="c-2")]
    records = [flat(record) for record in [*QUERIES, *EVENTS, *extra]]
    for record in records:
        record["event_attributes.position.ordinal"] = str(
            record.get("event_attributes.position.ordinal") or ""
        )
    names = list({name: None for record in records for name in record})
    table = pa.table({name: [record.get(name) for record in records] for name in names})
    row = table.num_rows - (2 if column in ("user_query", "query_response_hit_ids") else 1)
    values = table[column].to_pylist()
    is_list = isinstance(values[row], list)
    values = [value if value is None or is_list else value.encode() for value in values]
    if is_list:
        values = [value and [text.encode() for text in value] for value in values]
    values[row] = [b"a", b"\xff"] if is_list else b"q\xff"
    kind = pa.list_(pa.binary()) if is_list else pa.binary()
    raw = pa.array(values, kind)
    text = raw.view(pa.list_(pa.string()) if is_list else pa.string())
    table = table.set_column(names.index(column), column, text)
    pq.write_table(table, tmp_path / "ubi.parquet")
    with pytest.raises(rc.BadRowsError, match=f"row {row + 1}: {column}: not UTF-8"):
        rc.read_sessions(tmp_path / "ubi.parquet", format="ubi")
    summary = rc.read_sessions(tmp_path / "ubi.parquet", format="ubi", on_error="drop").summary
    assert summary.dropped["not readable"] == 1


KATA = [
    query("q-1", "laptop", ["a", "b", "c"]),
    event("impression", "q-1", "a", 1, 1),
    event("impression", "q-1", "b", 2, 1),
    event("item_click", "q-1", "b", 2, 5),
    event("Product_Click", "q-1", "a", 1, 7),
    event("search", "q-1", second=0),
    query("q-2", "mouse", ["d"]),
]


def ubi_file(folder: Path, records: list[dict[str, Any]]) -> str:
    return str(log(folder, *map(json.dumps, records), name="ubi.ndjson").path)


def test_clicks_may_have_another_name(tmp_path: Path) -> None:
    path = ubi_file(tmp_path, KATA)
    both = rc.read_sessions(path, click=["item_click", "product_click"])
    (batch,) = both.batches()
    assert (batch.click.tolist(), batch.clicks.tolist()) == ([2, 1], [0, 2, 2])
    one = rc.convert(path, tmp_path / "sessions.parquet", click="item_click")
    assert one.summary.clicks == 1
    assert "'product_click' event, neither a click nor an impression" in one.summary.notes


def test_a_log_without_clicks_names_the_actions_found(tmp_path: Path) -> None:
    log_ = rc.read_sessions(ubi_file(tmp_path, KATA))
    expected = (
        "ubi.ndjson: no click. The events have the actions item_click (1), product_click (1), "
        "search (1). Name those that are clicks: click=['item_click']."
    )
    assert log_.advice == expected
    assert repr(log_) == f"SessionLog(ubi.ndjson, 2 rows)\n  {expected}"
    assert rc.read_sessions(ubi_file(tmp_path, KATA), click="item_click").advice == ""


def test_the_command_names_the_option_for_clicks(tmp_path: Path) -> None:
    path, to = ubi_file(tmp_path, KATA), str(tmp_path / "sessions.parquet")
    result = CliRunner().invoke(app, ["convert", path, "--to", to])
    assert result.exit_code == 0
    assert "are clicks: --click item_click." in " ".join(result.stderr.split())
    result = CliRunner().invoke(app, ["convert", path, "--to", to, "--click", "item_click"])
    assert "no click" not in result.stderr
    assert rc.read_sessions(to).summary.clicks == 1


def test_pages_may_be_the_impressions(tmp_path: Path) -> None:
    path = ubi_file(tmp_path, KATA)
    seen = rc.read_sessions(path, click="item_click", pages="impressions")
    (batch,) = seen.batches()
    assert batch.ads.take(pa.array(batch.ad)).to_pylist() == ["a", "b"]
    assert batch.click.tolist() == [2]
    assert seen.summary.notes["query without impressions, skipped"] == 1
    all_hits = rc.read_sessions(path, click="item_click", pages="hits")
    assert all_hits.summary.impressions == 4


@pytest.mark.parametrize("option", [{"click": "x"}, {"pages": "impressions"}])
def test_options_of_events_are_refused_for_other_logs(tmp_path: Path, option: Any) -> None:
    name = next(iter(option))
    with pytest.raises(rc.UsageError, match=rf"{name} is for the format 'ubi', .*'sessions'"):
        rc.read_sessions(("q", ["a"], [1]), **option)
    path = tmp_path / "log.tsv"
    path.write_text("event\n")
    with pytest.raises(rc.UsageError, match=rf"{name} is for the format 'ubi', .*'metarank'"):
        rc.read_sessions(path, format="metarank", **option)


@pytest.mark.parametrize(("option", "got"), [("click", ""), ("click", [3]), ("pages", "hit")])
def test_wrong_options_of_events_are_refused(tmp_path: Path, option: str, got: Any) -> None:
    options: dict[str, Any] = {option: got or [""]}
    with pytest.raises(rc.SettingError, match=option):
        rc.read_sessions(ubi_file(tmp_path, KATA), **options)


@pytest.mark.parametrize("gap", ["\t", " \t "])
@pytest.mark.parametrize("name", ["log.tsv", "log.txt"])
def test_lines_that_begin_with_the_name_of_an_index_are_read_in_an_archive_too(
    tmp_path: Path, gap: str, name: str
) -> None:
    lines = [
        f"ubi_{'queries' if 'user_query' in r else 'events'}{gap}{json.dumps(r)}" for r in KATA
    ]
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr(name, "\n".join(lines))
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    expected = rc.read_sessions(ubi_file(tmp_path, KATA), click="item_click").summary
    for path in (tmp_path / "log.zip", tmp_path / name):
        got = rc.read_sessions(path, click="item_click").summary
        assert got.to_dict() == expected.to_dict()


def test_names_of_objects_are_the_text_of_ads(tmp_path: Path) -> None:
    named = event("click", "q-1", "a", 1)
    named["event_attributes"]["object"] |= {"name": "Road runner 3", "description": "A shoe"}
    described = event("impression", "q-1", "b", 2)
    described["event_attributes"]["object"] |= {"description": "A boot"}
    _, report = read(UBI, lines(tmp_path, *QUERIES, named, described))
    assert report.ad_texts == {"a": ("Road runner 3", "", ""), "b": ("A boot", "", "")}


def test_a_query_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    file = lines(tmp_path, *QUERIES * 500, name="queries.ndjson.gz")
    Path(str(file.path)).write_bytes(Path(str(file.path)).read_bytes()[:-40])
    with pytest.raises(LogError, match=r"queries\.ndjson\.gz cannot be read to the end"):
        read(UBI, file)


def test_the_example_log_shows_what_is_set_aside() -> None:
    folder = Path(__file__).parents[3] / "examples" / "ubi"
    rows, report = read(
        UBI, *(LogFile(str(path), path.name) for path in sorted(folder.glob("*.ndjson")))
    )
    assert len(rows) == 700
    assert sum(len(row["clicks"]) for row in rows) == 129
    assert not report.bad_rows.dropped
    assert report.notes == {"event with no query_id, skipped": 1}
    assert sum(sum(row["conversions"]) for row in rows) == 1


def test_it_recognises_its_own_logs_and_no_others(tmp_path: Path) -> None:
    own = [
        lines(tmp_path, *EVENTS, name="events.ndjson"),
        lines(tmp_path, *QUERIES, name="queries.ndjson"),
    ]
    assert UBI.recognises(own)
    assert all(UBI.recognises([file]) for file in own)
    for place, text in enumerate(EVERY_START.values()):
        other = started(tmp_path, text, f"other-{place}.json")
        assert not UBI.recognises([other])
        assert not UBI.recognises([*own, other])
    assert not UBI.recognises([])
    assert not UBI.recognises([LogFile(str(tmp_path / "missing.ndjson"), "missing.ndjson")])
    pq.write_table(
        pa.table({"query_id": ["1"], "doc_ids": [["a"]], "clicks": [[0]]}),
        tmp_path / "arrays.parquet",
    )
    assert not UBI.recognises([LogFile(str(tmp_path / "arrays.parquet"), "arrays.parquet")])


@settings(max_examples=15)  # each opens a database
@given(
    sessions=st.lists(pages_shown, max_size=6),
    first=st.integers(0, 1),
    shuffled=st.randoms(),
    shown=st.sampled_from(["hits", "impressions", "impressions of a query"]),
    broken=st.lists(st.sampled_from(["top", "", 0.5]), max_size=3),
)
def test_any_sessions_written_as_ubi_come_back(
    sessions: list[Shown], first: int, shuffled: Any, shown: str, broken: list[Any]
) -> None:
    records: list[dict[str, Any]] = [event("click", "q-0", "a", position) for position in broken]
    for place, (text, ads, clicks) in enumerate(sessions):
        if shown == "impressions of a query":
            records.append(query(f"q-{place}", text, None))
        if shown != "hits":
            told: dict[str, Any] = {} if shown == "impressions of a query" else {"user_query": text}
            records += [
                event("impression", f"q-{place}", ad, slot + first, **told)
                for slot, ad in enumerate(ads)
            ]
        else:
            records.append(query(f"q-{place}", text, ads))
        records += [
            event("click", f"q-{place}", ads[slot - 1], slot - 1 + first, step)
            for step, slot in enumerate(clicks, start=1)
        ]
    shuffled.shuffle(records)
    with TemporaryDirectory() as folder:
        rows, report = read(UBI, lines(Path(folder), *records))
    assert {row["session_id"]: (row["query"], row["ads"], row["clicks"]) for row in rows} == {
        f"q-{i}": each for i, each in enumerate(sessions)
    }
    assert (
        sum(report.bad_rows.dropped.values())
        == report.bad_rows.dropped.get("not readable", 0)
        == len(broken)
    )
    assert not report.notes


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    times = pa.array(["2025-02-18T09:00:00Z"])
    columns = [pa.array(["q1"]), pa.array(["shoes"]), pa.array([["a"]]), times, times]
    names = ["query_id", "user_query", "query_response_hit_ids", "timestamp", "timestamp"]
    pq.write_table(pa.Table.from_arrays(columns, names), tmp_path / "ubi.parquet")
    with pytest.raises(LogError, match="two columns named 'timestamp'"):
        rc.read_sessions(tmp_path / "ubi.parquet", format="ubi")
