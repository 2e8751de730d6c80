"""Bots and pages seen again, by hand, against plain Python, and against the simulator's bots."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.errors import LogError, StoreError
from reclick.logs import cleaning as cleaning_module
from reclick.logs import read_sessions
from reclick.logs.assembly import spill
from reclick.logs.cleaning import Cleaning, find_reloads, remove_bots_and_reloads
from reclick.logs.files.source import SESSION_SCHEMA, WEIGHTED_SESSION_SCHEMA
from reclick.logs.formats.base import ReadReport
from reclick.simulation import simulate

NOON = 1_704_110_400_000  # 2024-01-01 12:00 UTC, in milliseconds
MINUTE = 60_000
HOUR = 60 * MINUTE
Row = dict[str, Any]


def page(
    user: str | None,
    ms: int | None,
    query: str = "q",
    ads: str = "ab",
    clicks: tuple[int, ...] | None = (),
    **others: object,
) -> Row:
    """A row; `ms` from noon on."""
    time = None if ms is None else NOON + ms
    return {
        "user": user,
        "timestamp": time,
        "query": query,
        "ads": list(ads),
        "clicks": None if clicks is None else list(clicks),
        **others,
    }


def table(rows: list[Row], schema: pa.Schema = SESSION_SCHEMA) -> pa.Table:
    rows = [{"session_id": str(number), **row} for number, row in enumerate(rows)]
    plain = {
        name: pa.int64() if name == "timestamp" else schema.field(name).type
        for name in schema.names
    }
    return pa.Table.from_pylist(rows, schema=pa.schema(list(plain.items()))).cast(schema)


def clean(
    rows: list[Row] | pa.Table,
    cleaning: Cleaning,
    *,
    schema: pa.Schema = SESSION_SCHEMA,
    group: int = 1_000,
) -> tuple[pa.Table, ReadReport]:
    """Clean as a conversion does: batch by batch, then the whole."""
    given, report = rows if isinstance(rows, pa.Table) else table(rows, schema), ReadReport()
    with TemporaryDirectory() as folder:
        batches = [
            cleaning.clean_batch(batch, report)
            for batch in given.combine_chunks().to_batches(max_chunksize=group)
        ]
        path, to = Path(folder) / "before.parquet", Path(folder) / "after.parquet"
        pq.write_table(pa.Table.from_batches(batches, given.schema), path, row_group_size=group)
        if not cleaning.needs_whole_log:
            return pq.read_table(path), report
        remove_bots_and_reloads(path, to, cleaning, report)
        assert sorted(each.name for each in Path(folder).iterdir()) == [
            "after.parquet",
            "before.parquet",
        ]
        return pq.read_table(to), report


def ids(sessions: pa.Table) -> list[int]:
    return [int(each) for each in sessions["session_id"].to_pylist()]


def removed(report: ReadReport) -> int:
    return sum(many for note, many in report.notes.items() if note.endswith("removed"))


def test_a_user_with_too_many_pages_goes_with_all_sessions_of_the_log() -> None:
    rows = [page("bot", minute * MINUTE) for minute in range(4)] + [
        page("ann", minute * MINUTE) for minute in range(3)
    ]
    rows += [page("bot", 48 * HOUR), page("ann", 49 * HOUR)]
    kept, report = clean(rows, Cleaning(max_pages_per_hour=3))
    assert ids(kept) == [4, 5, 6, 8]
    assert report.notes == {
        "user over 3 pages an hour": 1,
        "session of a user over the limit, removed": 5,
    }


def test_the_hour_is_any_60_minutes_not_one_of_the_clock() -> None:
    across = [
        50 * MINUTE,
        55 * MINUTE,
        65 * MINUTE,
        70 * MINUTE,
    ]  # two before one o'clock, two after
    spread = [0, 30 * MINUTE, 60 * MINUTE, 90 * MINUTE]  # never more than two in 60 minutes
    rows = [page("across", ms) for ms in across] + [page("spread", ms) for ms in spread]
    assert ids(clean(rows, Cleaning(max_pages_per_hour=3))[0]) == [4, 5, 6, 7]
    assert ids(clean(rows, Cleaning(max_pages_per_hour=2))[0]) == [4, 5, 6, 7]
    assert ids(clean(rows, Cleaning(max_pages_per_hour=1))[0]) == []


@pytest.mark.parametrize(("gap", "left"), [(HOUR - 1, 0), (HOUR, 2)])
def test_pages_exactly_an_hour_apart_are_not_in_one_hour(gap: int, left: int) -> None:
    assert (
        len(clean([page("u", MINUTE), page("u", MINUTE + gap)], Cleaning(max_pages_per_hour=1))[0])
        == left
    )


def test_clicks_are_counted_too_and_either_limit_is_enough() -> None:
    rows = [
        page("clicker", 0, clicks=(1, 2)),
        page("clicker", MINUTE, clicks=(2,)),
        page("looker", 0),
        page("looker", 1),
        page("looker", 2),
    ]
    assert ids(clean(rows, Cleaning(max_clicks_per_hour=2))[0]) == [2, 3, 4]
    kept, report = clean(
        [*rows, page("ann", 0, clicks=(1, 2))],
        Cleaning(max_clicks_per_hour=2, max_pages_per_hour=2),
    )
    assert ids(kept) == [5]
    assert report.notes["session of a user over the limit, removed"] == 5
    assert report.notes["user over 2 pages or 2 clicks an hour"] == 2


def test_users_are_judged_by_all_they_did_before_sessions_are_shortened() -> None:
    rows = [
        page("bot", 0, ads="abcd", clicks=(3, 4)),
        page("bot", 1, ads="abcd", clicks=(3, 4)),
        page("ann", 0, ads="abcd", clicks=(4, 1)),
    ]
    kept, report = clean(rows, Cleaning(max_clicks_per_hour=3, first=2))
    assert kept.select(["session_id", "ads", "clicks"]).to_pylist() == [
        {"session_id": "2", "ads": ["a", "b"], "clicks": [1]}
    ]
    assert (
        report.notes["click below the first 2, taken out"] == 1
    )  # those of the bot went with its sessions


def test_a_row_counts_as_many_pages_as_its_weight_says() -> None:
    rows = [
        page("many", 0, weight=4.0, clicks=(1,)),
        page("one", 0, weight=1.0, clicks=(1,)),
        page("none", 0, weight=None, clicks=(1,)),
    ]
    rows += [
        page("none", 0, weight=float("nan")),
        page("none", 0, weight=-9.0),
        page("none", 0, weight=float("inf")),
    ]
    kept, _ = clean(rows, Cleaning(max_pages_per_hour=3), schema=WEIGHTED_SESSION_SCHEMA)
    assert ids(kept) == [1, 2, 3, 4, 5]
    assert ids(clean(rows, Cleaning(max_clicks_per_hour=3), schema=WEIGHTED_SESSION_SCHEMA)[0]) == [
        1,
        2,
        3,
        4,
        5,
    ]


def test_a_page_seen_again_gives_its_clicks_to_the_first() -> None:
    rows = [
        page("ann", 0, clicks=(2,)),
        page("bob", 5_000, clicks=(1,)),
        page("ann", 10_000, clicks=(1,)),
        page("ann", 15_000),
    ]
    kept, report = clean(rows, Cleaning(reload_seconds=30))
    assert ids(kept) == [0, 1]
    assert kept["clicks"].to_pylist() == [[2, 1], [1]]
    assert kept["timestamp"].cast(pa.int64()).to_pylist() == [NOON, NOON + 5_000]
    assert report.notes == {
        "page seen again within 30 s, removed": 2,
        "click moved to the page seen first": 1,
    }


def test_a_position_clicked_before_and_after_the_reload_is_kept_once() -> None:
    kept, report = clean(
        [page("ann", 0, clicks=(2, 1)), page("ann", 1, clicks=(1, 2, 2))],
        Cleaning(reload_seconds=1),
    )
    assert kept["clicks"].to_pylist() == [[2, 1]]
    assert report.notes["repeated click on a page seen again"] == 3


def test_a_reload_of_a_reload_is_one_with_the_first_as_long_as_each_is_soon_enough() -> None:
    rows = [
        page("ann", second * 1000, clicks=(position,), ads="abcd")
        for second, position in [(0, 1), (20, 2), (40, 3), (71, 4)]
    ]
    kept, _ = clean(rows, Cleaning(reload_seconds=30))
    assert ids(kept) == [0, 3]
    assert kept["clicks"].to_pylist() == [[1, 2, 3], [4]]


@pytest.mark.parametrize(("gap", "left"), [(30_000, 1), (30_001, 2)])
def test_within_means_up_to_and_with(gap: int, left: int) -> None:
    assert len(clean([page("ann", 0), page("ann", gap)], Cleaning(reload_seconds=30))[0]) == left


def test_parts_of_a_second_count() -> None:
    assert ids(
        clean(
            [page("ann", 0), page("ann", 500), page("bob", 0), page("bob", 501)],
            Cleaning(reload_seconds=0.5),
        )[0]
    ) == [0, 2, 3]


@pytest.mark.parametrize(
    "other", [{"user": "bob"}, {"query": "r"}, {"ads": "ba"}, {"ads": "abc"}, {"weight": 2.0}]
)
def test_only_the_same_user_query_ads_and_weight_are_a_reload(other: Row) -> None:
    one: Row = {"user": "ann", "ms": 0, "weight": 1.0}
    kept, _ = clean(
        [page(**one), page(**{**one, **other})],
        Cleaning(reload_seconds=30),
        schema=WEIGHTED_SESSION_SCHEMA,
    )
    assert ids(kept) == [0, 1]
    assert ids(
        clean(
            [page(**one), page(**one)], Cleaning(reload_seconds=30), schema=WEIGHTED_SESSION_SCHEMA
        )[0]
    ) == [0]


def test_pages_are_the_same_when_their_first_ads_are_where_pages_are_cut() -> None:
    rows = [page("ann", 0, ads="abc", clicks=(3,)), page("ann", 1, ads="abd", clicks=(1, 3))]
    kept, report = clean(rows, Cleaning(reload_seconds=30, first=2))
    assert kept.select(["ads", "clicks"]).to_pylist() == [{"ads": ["a", "b"], "clicks": [1]}]
    assert removed(report) == 1


def test_the_earliest_page_is_the_first_wherever_it_stands_and_rows_keep_their_order() -> None:
    rows = [
        page("ann", 20_000, clicks=(1,)),
        page("bob", 0),
        page("ann", 10_000, clicks=(2,)),
        page("ann", 10_000, clicks=(3,), ads="ab"),
    ]
    kept, _ = clean(rows, Cleaning(reload_seconds=30), group=1)
    assert ids(kept) == [1, 2]
    assert kept["clicks"].to_pylist() == [[], [2, 3, 1]]


def test_null_clicks_take_the_clicks_of_the_reload() -> None:
    rows = [
        page("ann", 0, clicks=None),
        page("ann", 1, clicks=(2,)),
        page("bob", 0, clicks=None),
        page("bob", 1, clicks=None),
    ]
    assert clean(rows, Cleaning(reload_seconds=30))[0]["clicks"].to_pylist() == [[2], None]


def test_a_session_made_longer_by_a_reload_is_judged_as_a_whole() -> None:
    rows = [page("ann", 0, ads="abc", clicks=(1, 2)), page("ann", 1, ads="abc", clicks=(3,))]
    kept, report = clean(rows, Cleaning(reload_seconds=30, max_clicks=2))
    assert len(kept) == 0
    assert removed(report) == 2


def test_rows_without_user_or_time_are_kept_and_told() -> None:
    rows = [page(None, 0), page("ann", None), page("", 0), page("", 1), page("", 2), page("ann", 0)]
    kept, report = clean(rows, Cleaning(max_pages_per_hour=1, reload_seconds=30))
    assert ids(kept) == [0, 1, 2, 3, 4, 5]
    assert report.notes == {"session without user or time, not judged": 5}


def test_bad_rows_are_not_merged_away() -> None:
    rows = [
        page("ann", 0, query=""),
        page("ann", 1, query=""),
        page("bob", 0, ads=""),
        page("bob", 1, ads=""),
    ]
    assert ids(clean(rows, Cleaning(reload_seconds=30))[0]) == [0, 1, 2, 3]


def test_a_log_that_says_nothing_of_users_is_an_error() -> None:
    with pytest.raises(
        LogError,
        match=r"No session of the log has both a user and a time.*Leave out max_pages_per_hour",
    ):
        clean([page(None, 0), page("ann", None)], Cleaning(max_pages_per_hour=1))
    for column in ("user", "timestamp"):
        with pytest.raises(
            LogError,
            match=f"no column {column}, which bots and reloads are found by. It has session_id",
        ):
            clean(table([page("ann", 0)]).drop_columns([column]), Cleaning(reload_seconds=30))


@pytest.mark.parametrize(
    ("column", "values"), [("user", [[1.5]]), ("timestamp", [[True]]), ("timestamp", [["a"]])]
)
def test_columns_of_a_wrong_kind_are_an_error(column: str, values: list[Any]) -> None:
    given = table([page("ann", 0)])
    wrong = given.set_column(given.schema.get_field_index(column), column, pa.array(values))
    with pytest.raises(LogError, match=f"^{column}: expected .*got list"):
        clean(wrong, Cleaning(reload_seconds=30))


@pytest.mark.parametrize(
    ("user", "time"),
    [
        (
            pa.array([7, 7, 8]),
            pa.array(["2024-01-01T12:00:00Z", "2024-01-01 12:00:10", "2024-01-01T12:00:10"]),
        ),
        (
            pa.array([7, 7, 8]),
            pa.array(
                ["2024-01-01T12:00:00Z", "2024-01-01T12:00:10Z", "2024-01-01T12:00:10Z"]
            ).dictionary_encode(),
        ),
        (
            pa.array(["x", "x", "y"]).dictionary_encode(),
            pa.array([1704110400, 1704110410, 1704110410]),
        ),
        (
            pa.array([7, 7, 8]).dictionary_encode(),
            pa.array([NOON, NOON + 9, NOON])
            .cast(pa.timestamp("ms"))
            .cast(pa.timestamp("us", "Asia/Tokyo")),
        ),
    ],
)
def test_users_and_times_are_taken_as_people_write_them(user: pa.Array, time: pa.Array) -> None:
    given = (
        table([page("u", 0)] * 3)
        .drop_columns(["user", "timestamp"])
        .append_column("user", user)
        .append_column("timestamp", time)
    )
    kept, _ = clean(given, Cleaning(reload_seconds=30))
    assert ids(kept) == [0, 2]
    assert kept.schema.field("timestamp").type == time.type
    assert kept["user"].to_pylist() == [user[0].as_py(), user[2].as_py()]


def test_further_columns_and_row_groups_stay(tmp_path: Path) -> None:
    rows = [page(f"u{number}", number, clicks=(1,)) for number in range(10)] + [
        page("bot", number) for number in range(10)
    ]
    given = table(rows).append_column("country", pa.array(["de", None] * 10))
    pq.write_table(given, tmp_path / "a.parquet", row_group_size=4)
    remove_bots_and_reloads(
        tmp_path / "a.parquet", tmp_path / "b.parquet", Cleaning(max_pages_per_hour=3), ReadReport()
    )
    with pq.ParquetFile(tmp_path / "b.parquet") as file:
        assert [
            file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)
        ] == [4, 4, 2]
        assert file.read().equals(given.slice(0, 10))


def test_an_empty_log_stays_empty() -> None:
    kept, report = clean([], Cleaning(max_pages_per_hour=3, reload_seconds=3))
    assert len(kept) == 0
    assert not report.notes


def test_names_that_look_like_patterns_are_names(tmp_path: Path) -> None:
    folder = tmp_path / "odd [1]*{a,b}?'x"
    folder.mkdir()
    pq.write_table(table([page("ann", 0), page("ann", 1)]), folder / "a.parquet")
    remove_bots_and_reloads(
        folder / "a.parquet", folder / "b.parquet", Cleaning(reload_seconds=3), ReadReport()
    )
    assert pq.read_metadata(folder / "b.parquet").num_rows == 1


def test_no_room_is_said_clearly_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "MEMORY_LIMIT", "1MB")
    rows = table([page(f"u{number}", number, query=f"query {number}") for number in range(60_000)])
    pq.write_table(rows, tmp_path / "a.parquet")
    with pytest.raises(StoreError, match=r"the log cannot be sorted there .*Free some space"):
        remove_bots_and_reloads(
            tmp_path / "a.parquet", tmp_path / "b.parquet", Cleaning(reload_seconds=3), ReadReport()
        )
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


def plain_bots(rows: list[Row], cleaning: Cleaning) -> set[str]:
    """Who is over a limit in the 60 minutes that end with one of the user's pages."""
    pages, clicks = (
        limit or float("inf")
        for limit in (cleaning.max_pages_per_hour, cleaning.max_clicks_per_hour)
    )
    bots = set()
    for last in rows:
        hour = [
            row
            for row in rows
            if row["user"] == last["user"]
            and last["timestamp"] - HOUR < row["timestamp"] <= last["timestamp"]
        ]
        if (
            sum(row["weight"] for row in hour) > pages
            or sum(row["weight"] * len(row["clicks"]) for row in hour) > clicks
        ):
            bots.add(last["user"])
    return bots


def plain_merged(rows: list[Row], cleaning: Cleaning) -> list[Row]:
    """Each page that came again within the seconds becomes part of the first of its chain."""
    chains: dict[tuple[Any, ...], tuple[int, Row]] = {}
    gone = []
    for row in sorted(rows, key=lambda row: (row["timestamp"], row["number"])):
        look = (row["user"], row["query"], tuple(row["ads"][: cleaning.first]), row["weight"])
        time, first = chains.get(look, (-HOUR, row))
        if row["timestamp"] - time <= (cleaning.reload_seconds or -1) * 1000:
            first["clicks"] = list(dict.fromkeys(first["clicks"] + row["clicks"]))
            gone.append(row["number"])
        else:
            first = row
        chains[look] = row["timestamp"], first
    return [row for row in rows if row["number"] not in gone]


def plain_clean(rows: list[Row], cleaning: Cleaning) -> list[Row]:
    rows = [
        {
            **row,
            "query": row["query"].lower() if cleaning.normalise else row["query"],
            "number": number,
        }
        for number, row in enumerate(rows)
    ]
    judged = [row for row in rows if row["user"] and row["timestamp"] is not None]
    others = [row for row in rows if row not in judged]
    bots = plain_bots(judged, cleaning) if cleaning.removes_bots else set()
    left = plain_merged([row for row in judged if row["user"] not in bots], cleaning)
    kept = sorted(left + others, key=lambda row: int(row["number"]))
    kept = [
        row
        for row in kept
        if cleaning.max_clicks is None or len(row["clicks"]) <= cleaning.max_clicks
    ]
    first = cleaning.first or 99
    return [
        {
            **row,
            "ads": row["ads"][:first],
            "clicks": [click for click in row["clicks"] if click <= first],
        }
        for row in kept
    ]


rows_of_all_kinds = st.lists(
    st.builds(
        page,
        st.sampled_from(["ann", "ann", "bob", "", None]),
        st.none()
        | st.sampled_from([0, 1, 999, 1_000, 1_001, 30 * MINUTE])
        | st.integers(0, 3 * HOUR),
        st.sampled_from(["q", "Q"]),
        st.sampled_from(["abc", "abd"]),
        st.lists(st.integers(1, 3), max_size=3, unique=True).map(tuple),
        weight=st.sampled_from([1.0, 1.0, 1.0, 2.0]),
    ),
    min_size=1,
    max_size=12,
)
cleanings = st.builds(
    Cleaning,
    first=st.none() | st.integers(1, 3),
    normalise=st.booleans(),
    max_clicks=st.none() | st.integers(1, 3),
    max_pages_per_hour=st.none() | st.integers(1, 5),
    max_clicks_per_hour=st.none() | st.integers(1, 5),
    reload_seconds=st.none() | st.sampled_from([0.5, 1, 1800]),
)


def judgeable(rows: list[Row]) -> bool:
    return any(row["user"] and row["timestamp"] is not None for row in rows)


@settings(max_examples=25)
@given(rows_of_all_kinds.filter(judgeable), cleanings, st.integers(1, 12), st.integers(1, 12))
def test_a_log_is_cleaned_as_plain_python_does_and_the_counts_add_up(
    rows: list[Row], cleaning: Cleaning, group: int, batch: int
) -> None:
    with patch.object(cleaning_module, "CLEANING_BATCH", batch):
        kept, report = clean(rows, cleaning, schema=WEIGHTED_SESSION_SCHEMA, group=group)
    expected = plain_clean(rows, cleaning)
    assert ids(kept) == [row["number"] for row in expected]
    assert kept.select(["query", "ads", "clicks"]).to_pylist() == [
        {name: row[name] for name in ("query", "ads", "clicks")} for row in expected
    ]
    assert len(kept) + removed(report) == len(rows)


@settings(max_examples=20)
@given(rows_of_all_kinds.filter(judgeable), cleanings)
def test_cleaning_twice_is_cleaning_once(rows: list[Row], cleaning: Cleaning) -> None:
    once, _ = clean(rows, cleaning, schema=WEIGHTED_SESSION_SCHEMA)
    if judgeable(once.to_pylist()) or not cleaning.needs_whole_log:
        twice, report = clean(once, cleaning)
        assert twice.equals(once)
        assert set(report.notes) <= {"session without user or time, not judged"}


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 20)), max_size=12),
    st.lists(st.integers(0, 12)),
    st.integers(1, 5),
)
def test_chains_run_on_from_batch_to_batch(
    pages: list[tuple[int, int, int]], cuts: list[int], within: int
) -> None:
    sorted_pages = [
        (number, NOON + ms, look, text) for number, (look, text, ms) in enumerate(sorted(pages))
    ]
    expected: dict[int, int] = {}
    for (_, before, *same), (number, ms, *other) in pairwise(sorted_pages):
        if same == other and ms - before <= within:
            expected[number] = expected.get(number - 1, number - 1)
    edges = sorted(
        [0, len(pages), *(cut for cut in cuts if cut < len(pages))]
    )  # parts may be empty
    kinds = pa.schema(
        [
            ("row", pa.int64()),
            ("ms", pa.int64()),
            ("page_hash", pa.uint64()),
            ("text_hash", pa.uint64()),
        ]
    )
    parts = [
        [dict(zip(kinds.names, page, strict=True)) for page in sorted_pages[start:end]]
        for start, end in pairwise(edges)
    ]
    report = [
        row
        for part in find_reloads(
            [pa.RecordBatch.from_pylist(part, schema=kinds) for part in parts], within
        )
        for row in part.to_pylist()
    ]
    assert {row["row"]: row["opener"] for row in report} == expected


def test_the_limits_find_the_simulated_bots() -> None:
    market = simulate(4_000, weeks=1, bots=0.05, seed=3)
    week = market.weeks[0]
    bots = market.truth.sessions["kind"].to_numpy(zero_copy_only=False) == "bot"
    # Two machines make the pages of the bots, one after the other within an hour of Monday; every
    # other session is of a user with few.
    user = np.where(bots, np.arange(len(week)) % 2, 10 + np.arange(len(week)) // 3)
    time = np.where(
        bots, NOON + np.cumsum(bots) * (HOUR // bots.sum()), NOON + np.arange(len(week)) * 60_000
    )
    named = week.drop_columns(["timestamp"]).append_column("user", pa.array(user))
    timed = named.append_column("timestamp", pa.array(time).cast(pa.timestamp("ms")))
    kept, report = clean(timed, Cleaning(max_pages_per_hour=50), group=500)
    assert kept.equals(timed.filter(pa.array(~bots)))
    assert removed(report) == bots.sum()


def test_the_cleaned_file_is_a_log(tmp_path: Path) -> None:
    rows = [page("ann", 0, clicks=(2,)), page("ann", 9, clicks=(1,)), page("bob", 0, clicks=(1,))]
    pq.write_table(table(rows), tmp_path / "a.parquet")
    remove_bots_and_reloads(
        tmp_path / "a.parquet", tmp_path / "b.parquet", Cleaning(reload_seconds=3), ReadReport()
    )
    summary = read_sessions(tmp_path / "b.parquet").summary
    assert (summary.rows, summary.clicks, summary.reverse_sessions) == (2, 3, 1)
