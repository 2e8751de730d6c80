"""Snowplow's ecommerce events: the page view keeps list views and clicks together."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.ga4 import FORMAT as GA4
from reclick.logs.formats.snowplow import FORMAT as SNOWPLOW
from tests.support.event_logs import Page, Row, T, faults, own_files, parquet, read, shown, visits

ACTION = "unstruct_event_com_snowplowanalytics_snowplow_ecommerce_snowplow_ecommerce_action_1"
PRODUCTS = "contexts_com_snowplowanalytics_snowplow_ecommerce_product_1"
WEB_PAGE = "contexts_com_snowplowanalytics_snowplow_web_page_1"
SCREEN = "contexts_com_snowplowanalytics_mobile_screen_1"
PRODUCT = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("category", pa.string()),
        ("position", pa.int32()),
    ]
)
ENTITY = pa.list_(pa.struct([("id", pa.string())]))
TABLE = pa.schema(
    [
        *(
            (name, pa.string())
            for name in (
                "event_id",
                "domain_userid",
                "domain_sessionid",
                "page_urlquery",
                "search_term",
            )
        ),
        ("derived_tstamp", pa.timestamp("us", "UTC")),
        (ACTION, pa.struct([("type", pa.string()), ("name", pa.string())])),
        (PRODUCTS, pa.list_(PRODUCT)),
        (WEB_PAGE, ENTITY),
        (SCREEN, ENTITY),
    ]
)


def product(ad: str | None, position: int | None = None, name: str | None = None) -> Row:
    return {"id": ad, "position": position, "name": name, "category": "c"}


def event(
    second: int,
    action: str | None,
    products: list[Row] | None,
    page: str | None = "p",
    of: str | None = "results",
    **more: Any,
) -> Row:
    time = datetime.fromtimestamp(T / 10**6, UTC) + timedelta(seconds=second)
    known = {"domain_userid": "u", "domain_sessionid": "s", "search_term": "shoes"}
    view = None if page is None else [{"id": page}]
    return {
        "derived_tstamp": time,
        ACTION: action and {"type": action, "name": of},
        PRODUCTS: products,
        WEB_PAGE: view,
        **known,
        **more,
    }


def view(second: int, *products: Row, **more: Any) -> Row:
    return event(second, "list_view", list(products), **more)


def click(second: int, *products: Row, **more: Any) -> Row:
    return event(second, "list_click", list(products), **more)


def entities(folder: Path, events: list[Row]) -> LogFile:
    return parquet(folder, pa.Table.from_pylist(events, schema=TABLE))


def flat(folder: Path, events: list[Row]) -> LogFile:
    """The same with one row per product, under the names of Snowplow's models, in capitals."""
    rows = []
    for each in events:
        action, page = each[ACTION] or {}, (each[WEB_PAGE] or [{}])[0]
        known = {
            name: each.get(name)
            for name in (
                "derived_tstamp",
                "domain_userid",
                "domain_sessionid",
                "page_urlquery",
                "search_term",
            )
        }
        said = {
            "ecommerce_action_type": action.get("type"),
            "ecommerce_action_name": action.get("name"),
            "page_view_id": page.get("id"),
        }
        for one in each[PRODUCTS] or [{}]:
            ad = {
                "product_id": one.get("id"),
                "product_name": one.get("name"),
                "product_list_position": one.get("position"),
            }
            rows.append({name.upper(): value for name, value in {**known, **said, **ad}.items()})
    return parquet(folder, rows)


@pytest.fixture(params=[entities, flat], ids=["entities", "flat"])
def snowplow(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Read events back from either kind of table."""
    return lambda events, **more: read(SNOWPLOW, request.param(tmp_path, events), **more)


def test_list_views_are_pages_and_list_clicks_are_clicks(snowplow: Any) -> None:
    rows, report = snowplow(
        [
            view(1, product("a", 1, "Red shoe"), product("b", 2, "Blue shoe")),
            click(9, product("a", 1)),
            click(5, product("b", 2)),
            event(10, "add_to_cart", [product("a")]),
            event(11, None, None),
        ]
    )
    assert shown(rows) == [("shoes", ["a", "b"], [2, 1])]
    assert rows[0]["user"] == "u"
    assert report.ad_texts == {"a": ("Red shoe", "", ""), "b": ("Blue shoe", "", "")}
    assert report.notes == {"event of another kind, skipped": 1}
    assert rows[0]["dwell_seconds"] == [4.0, None]
    assert rows[0]["conversions"] == [0.0, 1.0]


def test_a_conversion_may_be_in_another_page_view_of_the_session(snowplow: Any) -> None:
    rows, report = snowplow(
        [
            view(1, product("a", 1), product("b", 2)),
            click(5, product("a", 1)),
            click(9, product("b", 2)),
            event(20, "add_to_cart", [product("a"), product("c")], page="p-a"),
            event(30, "transaction", [product("b"), product("a")], page="p-pay"),
            event(40, "transaction", [product("b")], page="p-pay", domain_sessionid="other"),
            view(50, product("a", 1), page="p-2"),
            click(51, product("a", 1), page="p-2"),
            view(60, product("a", 1), page="p-3", of="recommended"),
        ]
    )
    assert shown(rows) == [
        ("shoes", ["a", "b"], [1, 2]),
        ("shoes", ["a"], [1]),
        ("shoes", ["a"], []),
    ]
    assert [row["conversions"] for row in rows] == [[2.0, 1.0], [0.0], []]
    # until the list is shown again, or another ad of it is clicked; another list does not count
    assert [row["dwell_seconds"] for row in rows] == [[4.0, 41.0], [None], []]
    assert report.notes["conversion without a click on its ad before it, skipped"] == 2


def test_page_views_are_kept_apart_and_searches_on_one_are_too(snowplow: Any) -> None:
    both = product("a", 1), product("b", 2)
    rows, report = snowplow(
        [
            view(1, *both, page="p"),
            view(2, *both, page="q"),
            click(3, product("b"), page="p"),
            view(4, product("b", 1), product("a", 2), page="q", search_term="hats"),
            click(5, product("b"), page="q"),
            click(6, product("b"), page="r"),
        ]
    )
    assert shown(rows) == [
        ("shoes", ["a", "b"], [2]),
        ("shoes", ["a", "b"], []),
        ("hats", ["b", "a"], [1]),
    ]
    assert report.notes == {"click without a list view before it in its visit, skipped": 1}


def test_the_query_is_in_a_column_or_in_the_address_or_the_list(snowplow: Any) -> None:
    one = product("a", 1)
    rows, report = snowplow(
        [
            view(1, one, page="1"),
            view(2, one, page="2", search_term=None, page_urlquery="lang=en&q=red+hat"),
            view(3, one, page="3", search_term=None),
        ]
    )
    assert [row["query"] for row in rows] == ["shoes", "red hat", "results"]
    assert report.notes == {
        "ad shown in a list without a search term, the list taken as the query": 1
    }


def test_screens_stand_for_page_views_and_a_user_may_be_unknown(tmp_path: Path) -> None:
    app = {
        "page": None,
        SCREEN: [{"id": "screen"}],
        "domain_userid": None,
        "domain_sessionid": None,
    }
    nobody = {"page": None, "domain_userid": None, "domain_sessionid": None}
    rows, report = read(
        SNOWPLOW,
        entities(
            tmp_path,
            [
                view(1, product("a", 1), **app),
                click(2, product("a"), **app),
                click(3, product("a"), **nobody),
            ],
        ),
    )
    assert shown(rows) == [("shoes", ["a"], [1])]
    assert rows[0]["user"] is None
    assert report.notes == {"event without any user, session or page id, skipped": 1}


def test_the_columns_of_a_schema_may_be_of_any_version(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(
        [view(1, product("a", 1)), click(2, product("a", 1))], schema=TABLE
    )
    renamed = table.rename_columns(
        [
            f"{name}_0_2" if name in {ACTION, PRODUCTS, WEB_PAGE} else name
            for name in table.column_names
        ]
    )
    assert shown(read(SNOWPLOW, parquet(tmp_path, renamed))[0]) == [("shoes", ["a"], [1])]


def test_bad_events_are_told_with_their_rows(snowplow: Any) -> None:
    rows, report = snowplow(
        [
            view(1, product("a", 1)),
            click(2, product("z")),
            click(3, product(None)),
            {**click(4, product("a")), "derived_tstamp": None},
        ]
    )
    assert shown(rows) == [("shoes", ["a"], [])]
    assert faults(report) == {"click on an ad not shown": [2], "no ad": [3], "no time": [4]}


def test_entities_kept_as_text_are_refused(tmp_path: Path) -> None:
    row = {"derived_tstamp": T, ACTION: '{"type": "list_view"}', PRODUCTS: "[]"}
    with pytest.raises(
        LogError,
        match="action_1 in events.parquet: expected records, got string.*flatten".replace(
            ".", r"\.", 1
        ),
    ):
        read(SNOWPLOW, parquet(tmp_path, [row]))


def test_the_query_may_be_in_a_column_of_any_name(tmp_path: Path) -> None:
    rows = [
        {
            "derived_tstamp": T,
            "domain_userid": "u",
            "action_type": "list_view",
            "product_id": "a",
            "asked": "hats",
            "search_term": "shoes",
        }
    ]
    assert shown(read(SNOWPLOW, parquet(tmp_path, rows), columns={"query": "asked"})[0]) == [
        ("hats", ["a"], [])
    ]
    with pytest.raises(LogError, match="names querry, which Reclick does not know"):
        read(SNOWPLOW, parquet(tmp_path, rows), columns={"querry": "asked"})


def test_it_is_recognised_by_its_columns(tmp_path: Path) -> None:
    for write in (entities, flat):
        file = write(tmp_path, [view(1, product("a", 1))])
        assert SNOWPLOW.recognises([file])
        assert not GA4.recognises([file])
    assert not any(SNOWPLOW.recognises([file]) for file in own_files(tmp_path))


def written(users: list[list[Page]]) -> tuple[list[Row], list[Page]]:
    """The events of some visits on one page view each, and the sessions they tell of."""
    events, sessions, second = [], [], 0
    for number, seen in enumerate(users):
        of = {"domain_userid": f"u{number}", "page": f"p{number}"}
        for query, ads, clicks in seen:
            second += 1
            events.append(
                view(
                    second,
                    *(product(ad, place) for place, ad in enumerate(ads)),
                    search_term=query,
                    **of,
                )
            )
            for position in clicks:
                second += 1
                events.append(click(second, product(ads[position - 1]), **of))
            sessions.append((query, ads, clicks))
    return events, sessions


@settings(max_examples=12)
@given(visits, st.sampled_from([entities, flat]), st.randoms(use_true_random=False))
def test_any_sessions_come_back_whatever_the_order_of_the_rows(
    users: list[list[Page]], write: Any, rng: random.Random
) -> None:
    events, sessions = written(users)
    rng.shuffle(events)
    with TemporaryDirectory() as folder:
        rows, report = read(SNOWPLOW, write(Path(folder), events))
    assert sorted(shown(rows)) == sorted(sessions)
    assert not report.bad_rows.dropped
