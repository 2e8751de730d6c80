"""Sessions out of impressions and clicks, whatever they come in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.errors import BadRowsError, LogError, SettingError
from reclick.logs.assembly import spill
from reclick.logs.events import EVENT_BYTES, sessions_from_events
from tests.support.event_logs import Page, pages
from tests.support.log_tables import read_back

Table = dict[str, list[Any]]
SHOWN: Table = {
    "page": [1, 1, 2],
    "query": ["shoes", "shoes", "hats"],
    "ad": ["a", "b", "a"],
    "position": [1, 2, 1],
    "timestamp": [50, 50, 60],
}
PAGES: Table = {"page": [1, 2], "query": ["shoes", "hats"], "ads": [["a", "b"], ["a"]]}
CLICKED: Table = {
    "page": [1, 1],
    "ad": ["a", "b"],
    "time": ["2024-01-01 10:00:09", "2024-01-01 10:00:03"],
}
EXPECTED = [
    {"query": "shoes", "ads": ["a", "b"], "clicks": [2, 1]},
    {"query": "hats", "ads": ["a"], "clicks": []},
]
NAMES = {"ad": "item", "position": "rank"}

MAKERS: dict[str, Any] = {
    "dict": lambda table: table,
    "Arrow": pa.table,
    "pandas": pd.DataFrame,
    "Polars": pl.DataFrame,
    "Polars lazy": lambda table: pl.DataFrame(table).lazy(),
    "DuckDB": lambda table: duckdb.connect().from_arrow(pa.table(table)),
}


def without(table: Table, *names: str) -> Table:
    return {name: values for name, values in table.items() if name not in names}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("shown", [SHOWN, PAGES], ids=["impressions", "pages"])
def test_tables_of_every_library_are_joined(shown: Table, make: Any) -> None:
    log = sessions_from_events(make(shown), make(CLICKED), on="page", order_by="time")
    assert read_back(log) == EXPECTED
    assert log.name == "impressions and clicks"
    assert log.summary.notes == {}


@pytest.mark.parametrize("shown", [SHOWN, PAGES], ids=["impressions", "pages"])
def test_files_are_joined_and_sessions_are_kept_where_they_should_go(
    tmp_path: Path, shown: Table
) -> None:
    (tmp_path / "shown").mkdir()
    for number in (1, 2):
        rows = pa.table(shown)
        pq.write_table(
            rows.filter(pa.compute.equal(rows["page"], number)),
            tmp_path / f"shown/{number}.parquet",
        )
    (tmp_path / "clicks.csv").write_text("page,ad,time\n1,a,9\n1,b,3\n")
    log = sessions_from_events(
        tmp_path / "shown",
        str(tmp_path / "*.csv"),
        on="page",
        order_by="time",
        to=tmp_path / "sessions.parquet",
    )
    assert read_back(log) == EXPECTED
    assert log.name == "2 files of impressions and clicks.csv"
    assert pq.read_table(tmp_path / "sessions.parquet")["session_id"].to_pylist() == ["1", "2"]


def test_clicks_may_name_positions_instead_of_ads() -> None:
    clicked = {"page": [1, 1], "position": [2, 1], "time": [1, 2]}
    assert read_back(sessions_from_events(SHOWN, clicked, on="page", order_by="time")) == EXPECTED
    assert read_back(sessions_from_events(PAGES, clicked, on="page", order_by="time")) == EXPECTED


def test_a_key_of_several_columns_is_never_mistaken() -> None:
    shown = {
        "day": ["a|b", "a"],
        "page": ["c", "b|c"],
        "query": ["q", "r"],
        "ad": ["x", "x"],
        "position": [1, 1],
    }
    clicked = {"day": ["a"], "page": ["b|c"], "ad": ["x"], "time": [1]}
    log = sessions_from_events(shown, clicked, on=["day", "page"], order_by="time")
    assert [(row["query"], row["clicks"]) for row in read_back(log)] == [("q", []), ("r", [1])]


def test_without_a_time_clicks_are_in_the_order_of_their_rows() -> None:
    log = sessions_from_events(SHOWN, {"page": [1, 1], "ad": ["b", "a"]}, on="page")
    assert read_back(log) == EXPECTED
    assert log.summary.notes == {"clicks without a time, in the order of the rows": 2}


def test_columns_may_have_other_names_and_those_of_clicks_their_own() -> None:
    shown = {"page": [1, 1, 2], "q": SHOWN["query"], "item": SHOWN["ad"], "rank": [10, 20, 10]}
    mapping = {"query": "q", **NAMES}
    assert (
        read_back(
            sessions_from_events(
                shown, {"page": [1, 1], "item": ["b", "a"]}, on="page", columns=mapping
            )
        )
        == EXPECTED
    )
    assert (
        read_back(
            sessions_from_events(
                shown, {"page": [1, 1], "rank": [20, 10]}, on="page", columns=mapping
            )
        )
        == EXPECTED
    )
    theirs = {"page": [1, 1], "sku": ["b", "a"], "rank": ["?", "!"]}
    assert (
        read_back(
            sessions_from_events(
                shown,
                theirs,
                on="page",
                columns={**mapping, "clicks.ad": "sku", "clicks.position": "none"},
            )
        )
        == EXPECTED
    )


def test_bad_events_stop_the_run_unless_they_are_dropped() -> None:
    shown = {
        "page": [1, None, 2],
        "query": ["q", "q", "q"],
        "ad": ["a", "b", "c"],
        "position": [1, 2, None],
    }
    clicked = {"page": [1, 1, 9, None], "ad": ["a", "z", "a", "a"], "time": ["1", "2", "3", "4"]}
    with pytest.raises(BadRowsError, match=r"1 no position \(impressions row 3: null\).*on_error"):
        sessions_from_events(shown, clicked, on="page", order_by="time")
    log = sessions_from_events(shown, clicked, on="page", order_by="time", on_error="drop")
    assert read_back(log) == [{"query": "q", "ads": ["a"], "clicks": [1]}]
    assert log.summary.dropped == {
        "no page key": 2,
        "no position": 1,
        "click without a page": 1,
        "click on an ad not shown": 1,
    }
    assert log.summary.examples["click without a page"][0].where == "clicks"


def test_a_time_that_is_none_is_bad() -> None:
    log = sessions_from_events(
        SHOWN,
        {**CLICKED, "time": ["noon", "2024-01-01"]},
        on="page",
        order_by="time",
        on_error="drop",
    )
    assert read_back(log)[0]["clicks"] == [2]
    assert log.summary.examples["not readable"][0].got == "order_by: not a time: 'noon'"


def test_tables_that_cannot_be_joined_say_what_is_missing() -> None:
    with pytest.raises(
        LogError,
        match=r'the table has no column visit, which columns=… gives for "on"\. It has page',
    ):
        sessions_from_events(SHOWN, CLICKED, on="visit")
    with pytest.raises(LogError, match=r'no column when, which columns=… gives for "order_by"'):
        sessions_from_events(SHOWN, CLICKED, on="page", order_by="when")
    with pytest.raises(
        LogError, match="impressions has no column ads, and not both ad and position"
    ):
        sessions_from_events(without(SHOWN, "position"), CLICKED, on="page")
    with pytest.raises(
        LogError, match="clicks has no column ad or position: it does not say what was clicked"
    ):
        sessions_from_events(SHOWN, without(CLICKED, "ad"), on="page")
    with pytest.raises(LogError, match="clicks has no column sku"):
        sessions_from_events(SHOWN, CLICKED, on="page", columns={"clicks.ad": "sku"})
    with pytest.raises(LogError, match=r"names clicks\.when, which Reclick does not know"):
        sessions_from_events(SHOWN, CLICKED, on="page", columns={"clicks.when": "time"})
    with pytest.raises(SettingError, match="on: got \\[\\], expected the columns"):
        sessions_from_events(SHOWN, CLICKED, on=[])
    with pytest.raises(SettingError, match="on_error"):
        sessions_from_events(SHOWN, CLICKED, on="page", on_error="ignore")  # type: ignore[arg-type]


def test_logs_in_many_buckets_give_the_same_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "PARTITION_BYTES", 5 * EVENT_BYTES)
    shown = {
        "page": [n // 2 for n in range(80)],
        "query": ["q"] * 80,
        "ad": ["a", "b"] * 40,
        "position": [1, 2] * 40,
    }
    log = sessions_from_events(shown, {"page": list(range(40)), "ad": ["b"] * 40}, on="page")
    assert read_back(log) == [{"query": "q", "ads": ["a", "b"], "clicks": [2]}] * 40


def test_the_page_has_the_first_time_and_user() -> None:
    shown = {
        **SHOWN,
        "timestamp": [1_700_000_005, 1_700_000_002, 1_700_000_009],
        "user": ["u", "u", "v"],
    }
    rows = [
        batch.rows
        for batch in sessions_from_events(shown, CLICKED, on="page").batches(with_rows=True)
    ]
    assert rows[0] is not None
    assert rows[0]["user"].to_pylist() == ["u", "v"]
    assert rows[0]["timestamp"].cast(pa.int64()).to_pylist() == [
        1_700_000_002_000,
        1_700_000_009_000,
    ]


@settings(max_examples=15)
@given(
    st.lists(pages, min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_any_sessions_come_back(
    sessions: list[Page], whole: bool, by_position: bool, rng: random.Random
) -> None:
    once = [(query, ads, list(dict.fromkeys(clicks))) for query, ads, clicks in sessions]
    if whole:
        shown = [
            {"key": number, "query": query, "ads": ads}
            for number, (query, ads, _) in enumerate(once)
        ]
    else:
        shown = [
            {"key": number, "query": query, "ad": ad, "position": place}
            for number, (query, ads, _) in enumerate(once)
            for place, ad in enumerate(ads, start=1)
        ]
    clicked = [
        {
            "key": number,
            "time": time,
            **({"position": place} if by_position else {"ad": ads[place - 1]}),
        }
        for number, (_, ads, clicks) in enumerate(once)
        for time, place in enumerate(clicks)
    ]
    rng.shuffle(shown)
    rng.shuffle(clicked)
    kinds = pa.schema(
        [
            ("key", pa.int64()),
            ("time", pa.int64()),
            ("position", pa.int64()) if by_position else ("ad", pa.string()),
        ]
    )
    log = sessions_from_events(
        pa.Table.from_pylist(shown),
        pa.Table.from_pylist(clicked, schema=kinds),
        on="key",
        order_by="time",
    )
    back = [(row["query"], row["ads"], row["clicks"]) for row in read_back(log)]
    assert sorted(back) == sorted(once)


def test_a_null_list_that_has_values_is_a_bad_row() -> None:
    """As Polars makes it; Arrow's flatten skips these values."""
    frame = pl.DataFrame({"page": ["1", "2", "3"], "query": ["q"] * 3, "ads": [["a", "b"]] * 3})
    frame = frame.with_columns(ads=pl.when(pl.col("page") != "2").then(pl.col("ads")))
    clicked = {"page": ["1", "3"], "position": [2, 1]}
    log = sessions_from_events(frame, clicked, on="page", on_error="drop")
    assert [row["clicks"] for row in read_back(log)] == [[2], [1]]
    assert log.summary.dropped == {"no ads": 1}
