"""Google Analytics 4: list views become pages, and clicks are put on the page they were made on."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.assembly import spill
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.ga4 import FORMAT as GA4
from tests.support.event_logs import (
    Page,
    Row,
    T,
    faults,
    own_files,
    parquet,
    plain,
    read,
    shown,
    visits,
)

ITEM = pa.struct(
    [
        (name, pa.string())
        for name in ("item_id", "item_name", "item_list_id", "item_list_name", "item_list_index")
    ]
    + [("price", pa.float64())]
)
VALUE = pa.struct(
    [("string_value", pa.string()), ("int_value", pa.int64()), ("double_value", pa.float64())]
)
PARAM = pa.struct([("key", pa.string()), ("value", VALUE)])
NESTED = pa.schema(
    [
        ("event_date", pa.string()),
        ("event_timestamp", pa.int64()),
        ("event_name", pa.string()),
        ("event_params", pa.list_(PARAM)),
        ("user_pseudo_id", pa.string()),
        ("items", pa.list_(ITEM)),
    ]
)


def item(
    ad: str | None, index: int | None = None, of: str | None = "results", title: str | None = None
) -> Row:
    """An item as the export writes it: text all, and what is not there is said to be not set."""
    said = {
        "item_id": ad,
        "item_name": title,
        "item_list_id": of,
        "item_list_name": None,
        "item_list_index": None if index is None else str(index),
    }
    return {field: "(not set)" if value is None else value for field, value in said.items()}


def event(
    time: int,
    name: str,
    items: list[Row],
    user: str | None = "u",
    session: int | None = 1,
    **params: str,
) -> Row:
    numbers = [] if session is None else [{"key": "ga_session_id", "value": {"int_value": session}}]
    texts = [{"key": key, "value": {"string_value": value}} for key, value in params.items()]
    said = [{"key": "engagement", "value": {"double_value": 1.5}}, *numbers, *texts]
    return {
        "event_timestamp": T + time,
        "event_name": name,
        "event_params": said,
        "user_pseudo_id": user,
        "items": items,
    }


def view(time: int, *items: Row, **more: Any) -> Row:
    return event(time, "view_item_list", list(items), **more)


def click(time: int, *items: Row, **more: Any) -> Row:
    return event(time, "select_item", list(items), **more)


def nested(folder: Path, events: list[Row]) -> LogFile:
    return parquet(folder, pa.Table.from_pylist(events, schema=NESTED))


def flat(folder: Path, events: list[Row]) -> LogFile:
    """The same, a row for each event and item, as people flatten it."""
    rows = []
    for each in events:
        params = {
            param["key"]: next(iter(param["value"].values())) for param in each["event_params"]
        }
        for one in each["items"] or [{}]:
            plain_columns = {
                name: each[name] for name in ("event_timestamp", "event_name", "user_pseudo_id")
            }
            params_read = {
                name: params.get(name) for name in ("ga_session_id", "search_term", "page_location")
            }
            rows.append(
                {
                    **plain_columns,
                    **params_read,
                    **{field.name: one.get(field.name) for field in ITEM},
                }
            )
    return parquet(folder, rows)


@pytest.fixture(params=[nested, flat], ids=["nested", "flat"])
def ga4(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Read events back from either kind of table."""
    return lambda events, **more: read(GA4, request.param(tmp_path, events), **more)


SEARCHED: Row = {"search_term": "shoes"}


def test_a_list_view_is_a_page_and_its_clicks_are_in_the_order_of_time(ga4: Any) -> None:
    rows, report = ga4(
        [
            click(30, item("a", 1, title="Red shoe")),
            view(10, item("a", 1, title="Red shoe"), item("b", 2, title="Blue shoe"), **SEARCHED),
            click(20, item("b", 2)),
            event(40, "page_view", []),
        ]
    )
    assert shown(rows) == [("shoes", ["a", "b"], [2, 1])]
    assert rows[0]["user"] == "u"
    assert rows[0]["timestamp"].timestamp() > 0
    assert report.ad_texts == {"a": ("Red shoe", "", ""), "b": ("Blue shoe", "", "")}
    assert report.notes == {"event of another kind, skipped": 1}
    assert not report.bad_rows.dropped


def test_what_follows_a_click_is_its_outcome(ga4: Any) -> None:
    second = 10**6
    rows, report = ga4(
        [
            view(0, item("a", 1), item("b", 2), **SEARCHED),
            click(2 * second, item("a", 1)),
            click(6 * second, item("b", 2)),
            event(8 * second, "add_to_cart", [item("b")]),
            event(9 * second, "purchase", [item("b"), item("z")]),
            event(20 * second, "view_search_results", [], search_term="boots"),
            view(21 * second, item("c", 1), search_term="boots"),
            click(22 * second, item("c", 1)),
            event(7_000 * second, "search", [], search_term="hats"),
        ]
    )
    assert shown(rows) == [("shoes", ["a", "b"], [1, 2]), ("boots", ["c"], [1])]
    assert [row["dwell_seconds"] for row in rows] == [[4.0, 14.0], [None]]
    assert [row["conversions"] for row in rows] == [[0.0, 2.0], [0.0]]
    assert report.notes["conversion without a click on its ad before it, skipped"] == 1


def test_a_log_without_conversions_says_nothing_of_them(ga4: Any) -> None:
    rows, _ = ga4([view(0, item("a", 1), **SEARCHED), click(2, item("a", 1))])
    assert "conversions" not in rows[0]
    assert "dwell_seconds" not in rows[0]


def test_indexes_may_count_from_zero_and_decide_the_order(ga4: Any) -> None:
    rows, _ = ga4([view(1, item("b", 1), item("a", 0), **SEARCHED), click(2, item("a", 0))])
    assert shown(rows) == [("shoes", ["a", "b"], [1])]


def test_views_that_go_on_where_the_last_ended_are_one_page(ga4: Any) -> None:
    first = view(1, item("a", 1), item("b", 2), **SEARCHED)
    rows, _ = ga4(
        [
            first,
            view(5, item("d", 4), **SEARCHED),
            view(6, item("c", 3), **SEARCHED),
            click(7, item("d", 4)),
            click(8, item("a")),
        ]
    )
    assert shown(rows) == [("shoes", ["a", "b", "c", "d"], [4, 1])]


def test_an_index_shown_again_starts_a_new_page(ga4: Any) -> None:
    first, again = (
        view(1, item("a", 1), item("b", 2), **SEARCHED),
        view(9, item("c", 1), item("b", 2), **SEARCHED),
    )
    rows, _ = ga4(
        [
            first,
            click(2, item("b", 2)),
            again,
            click(10, item("b", 2)),
            click(11, item("c", 1)),
            click(12, item("a", 1)),
        ]
    )
    assert shown(rows) == [("shoes", ["a", "b"], [2, 1]), ("shoes", ["c", "b"], [2, 1])]


def test_lists_of_one_visit_are_pages_of_their_own(ga4: Any) -> None:
    results, others = (
        view(1, item("a", 1), item("b", 2), **SEARCHED),
        view(2, item("b", 1, of="also bought"), item("c", 2, of="also bought")),
    )
    rows, report = ga4(
        [
            results,
            others,
            click(3, item("b", of="also bought")),
            click(4, item("b", of="results")),
            click(5, item("c", of=None)),
        ]
    )
    assert shown(rows) == [("shoes", ["a", "b"], [2]), ("also bought", ["b", "c"], [1, 2])]
    assert report.notes == {
        "ad shown in a list without a search term, the list taken as the query": 2
    }


def test_users_and_sessions_are_kept_apart(ga4: Any) -> None:
    same = item("a", 1), item("b", 2)
    rows, report = ga4(
        [
            view(1, *same, user="u", session=1, **SEARCHED),
            view(2, *same, user="v", session=1, **SEARCHED),
            view(3, *same, user="v", session=2, **SEARCHED),
            view(4, *same, user="w", session=None, **SEARCHED),
            click(5, item("b"), user="v", session=1),
            click(6, item("a"), user="w", session=None),
            click(7, item("a"), user="x", session=1),
        ]
    )
    assert [(row["user"], row["clicks"]) for row in rows] == [
        ("u", []),
        ("v", [2]),
        ("v", []),
        ("w", [1]),
    ]
    assert len({row["session_id"] for row in rows}) == 4
    assert report.notes == {"click without a list view before it in its visit, skipped": 1}


def test_the_term_is_that_of_the_event_or_of_its_address_or_of_the_last_search_there(
    ga4: Any,
) -> None:
    at: Row = {"page_location": "https://x.example/find"}
    other: Row = {"page_location": "https://x.example/other"}
    rows, _ = ga4(
        [
            event(0, "view_search_results", [], search_term="from before", **at),
            view(1, item("a", 1), search_term="its own", **at),
            view(2, item("b", 1), page_location="https://x.example/?page=1&Q=caf%C3%A9+noir#top"),
            view(3, item("c", 1), **at),
            view(4, item("d", 1), **other),
            event(5, "search", [], search_term="later", **at),
        ]
    )
    assert [row["query"] for row in rows] == ["its own", "café noir", "from before", "results"]


def test_a_search_without_an_address_holds_until_the_next(ga4: Any) -> None:
    rows, _ = ga4(
        [
            event(0, "view_search_results", [], **SEARCHED),
            view(0, item("a", 1)),
            view(8, item("b", 1)),
            event(9, "search", [], search_term="x"),
        ]
    )
    assert [row["query"] for row in rows] == ["shoes", "shoes"]


def test_items_without_an_index_stand_as_the_event_has_them(ga4: Any) -> None:
    rows, report = ga4(
        [
            view(1, item("b"), item("a", 7), item("c"), **SEARCHED),
            click(2, item("a")),
            view(5, item("c"), item("a"), **SEARCHED),
        ]
    )
    assert shown(rows) == [("shoes", ["b", "a", "c"], [2]), ("shoes", ["c", "a"], [])]
    assert report.notes["ad shown without an index, its place in the event taken"] == 5


def test_an_item_without_an_id_goes_by_its_name(ga4: Any) -> None:
    rows, _ = ga4(
        [
            view(1, item(None, 1, title="Red shoe"), **SEARCHED),
            click(2, item(None, 1, title="Red shoe")),
        ]
    )
    assert shown(rows) == [("shoes", ["Red shoe"], [1])]


def test_events_recorded_again_count_once(ga4: Any) -> None:
    events = [view(1, item("a", 1), item("b", 2), **SEARCHED), click(2, item("b", 2))]
    rows, report = ga4(events + events)
    assert shown(rows) == [("shoes", ["a", "b"], [2])]
    assert report.notes == {"event recorded again, kept once": 3}


def test_bad_events_are_told_with_their_rows(ga4: Any) -> None:
    rows, report = ga4(
        [
            view(1, item("a", 1), **SEARCHED),
            click(2, item("z", 9)),
            click(3, item(None)),
            {**click(4, item("a", 1)), "event_timestamp": None},
            click(5, item("a", 1), user=None),
        ]
    )
    assert shown(rows) == [("shoes", ["a"], [])]
    assert faults(report) == {"click on an ad not shown": [2], "no ad": [3], "no time": [4]}
    assert report.notes == {"event without any user, session or page id, skipped": 1}


def test_an_event_without_items_is_bad(tmp_path: Path) -> None:
    rows, report = read(
        GA4, nested(tmp_path, [view(1, item("a", 1), **SEARCHED), view(2, **SEARCHED), click(3)])
    )
    assert shown(rows) == [("shoes", ["a"], [])]
    assert faults(report) == {"no ads": [2, 3]}


def test_a_list_that_names_nothing_is_set_aside_with_its_clicks(ga4: Any) -> None:
    rows, report = ga4(
        [
            view(1, item("a", 1, of=None), item("b", 2, of=None)),
            click(2, item("b", 2, of=None)),
            view(3, item("c", 1), **SEARCHED),
        ]
    )
    assert shown(rows) == [("shoes", ["c"], [])]
    assert report.notes == {
        "ad shown in a list without a search term and without a name, skipped": 2,
        "click in a list without a search term and without a name, skipped": 1,
    }
    assert not report.bad_rows.dropped


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    row = {
        "event_name": "view_item_list",
        "event_timestamp": T,
        "user_pseudo_id": "u",
        "Sku": "a",
        "term": "shoes",
    }
    rows, _ = read(GA4, parquet(tmp_path, [row]), columns={"ad": "Sku", "query": "term"})
    assert shown(rows) == [("shoes", ["a"], [])]
    with pytest.raises(
        LogError, match=r"has no column nowhere\. It has .*Sku.*columns=\{'query': \.\.\.\}"
    ):
        read(GA4, parquet(tmp_path, [row]), columns={"ad": "Sku", "query": "nowhere"})


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="not a Parquet file"):
        read(GA4, plain(tmp_path, "{}", "events.json"))
    with pytest.raises(LogError, match=r"broken\.parquet cannot be read as Parquet"):
        read(GA4, plain(tmp_path, "PAR1", "broken.parquet"))
    texts = [
        {"event_name": "select_item", "event_timestamp": 1, "user_pseudo_id": "u", "items": "[]"}
    ]
    with pytest.raises(
        LogError, match=r"items in events\.parquet: expected a list of records, got string"
    ):
        read(GA4, parquet(tmp_path, texts))
    with pytest.raises(LogError, match="has no column items or item_id"):
        read(
            GA4,
            parquet(tmp_path, [{key: value for key, value in texts[0].items() if key != "items"}]),
        )


def test_it_is_recognised_by_its_columns(tmp_path: Path) -> None:
    assert GA4.recognises([nested(tmp_path, [view(1, item("a", 1))])])
    assert GA4.recognises([flat(tmp_path, [view(1, item("a", 1))])])
    assert not any(GA4.recognises([file]) for file in own_files(tmp_path))
    assert not GA4.recognises([])


def written(users: list[list[Page]]) -> tuple[list[Row], list[tuple[str, Page]]]:
    """The events of some visits, and the sessions they tell of."""
    events, sessions, time = [], [], 0
    for number, seen in enumerate(users):
        for query, ads, clicks in seen:
            items = [item(ad, place) for place, ad in enumerate(ads, start=1)]
            half = len(items) // 2
            for part in (items[:half], items[half:]):
                time += 1
                events += [view(time, *part, user=f"u{number}", search_term=query)] if part else []
            for position in clicks:
                time += 1
                events.append(click(time, item(ads[position - 1], position), user=f"u{number}"))
            sessions.append((f"u{number}", (query, ads, clicks)))
    return events, sessions


@settings(max_examples=15)
@given(visits, st.sampled_from([nested, flat]), st.randoms(use_true_random=False))
def test_any_sessions_come_back_whatever_the_order_of_the_rows(
    users: list[list[Page]], write: Any, rng: random.Random
) -> None:
    events, sessions = written(users)
    rng.shuffle(events)
    with TemporaryDirectory() as folder:
        rows, report = read(GA4, write(Path(folder), events))
    assert sorted(
        (row["user"], page) for row, page in zip(rows, shown(rows), strict=True)
    ) == sorted(sessions)
    assert not report.bad_rows.dropped
    assert not report.notes


def test_a_log_in_many_buckets_gives_the_same_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [
        [(f"q{number % 3}", ["a", "b", "c"], [2, 1]), ("hats", ["c", "a"], [])]
        for number in range(40)
    ]
    events, sessions = written(users)
    file = nested(tmp_path, events)
    monkeypatch.setattr(spill, "PARTITION_BYTES", 8 * Path(str(file.path)).stat().st_size // 6)
    rows, report = read(GA4, file)
    assert sorted(
        (row["user"], page) for row, page in zip(rows, shown(rows), strict=True)
    ) == sorted(sessions)
    assert not report.bad_rows.dropped
