from __future__ import annotations

import dataclasses
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reclick.errors import SettingError
from reclick.logs.cleaning import Cleaning, normalise_query
from reclick.logs.files.source import SESSION_SCHEMA, WEIGHTED_SESSION_SCHEMA
from reclick.logs.formats.base import ReadReport
from reclick.simulation import simulate

ADS = ["a", "b", "c", "d"]


def rows_of(*rows: tuple[str | None, list[str] | None, list[int] | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"query": query, "ads": ads, "clicks": clicks} for query, ads, clicks in rows],
        schema=SESSION_SCHEMA,
    )


def plain(batch: pa.RecordBatch) -> list[tuple[Any, Any, Any]]:
    return [(row["query"], row["ads"], row["clicks"]) for row in batch.to_pylist()]


def removed(report: ReadReport) -> int:
    return sum(many for note, many in report.notes.items() if note.endswith("removed"))


def test_nothing_asked_leaves_the_batch_as_it_is() -> None:
    report, batch = ReadReport(), rows_of((" A ", ADS, [4, 4]))
    assert Cleaning().clean_batch(batch, report) is batch
    assert not Cleaning().needs_whole_log
    assert not report.notes


def test_pages_are_cut_and_the_clicks_beyond_are_counted() -> None:
    report = ReadReport()
    batch = rows_of(
        ("q", ADS, [4, 1, 3, 2]), ("q", ["a", "b"], [2]), ("r", ADS, [3]), ("r", ADS, [])
    )
    cut = Cleaning(first=2).clean_batch(batch, report)
    assert plain(cut) == [
        ("q", ["a", "b"], [1, 2]),
        ("q", ["a", "b"], [2]),
        ("r", ["a", "b"], []),
        ("r", ["a", "b"], []),
    ]
    assert cut.schema == SESSION_SCHEMA
    assert report.notes == {
        "page cut to its first 2 ads": 3,
        "session with clicks below the first 2": 2,
        "click below the first 2, taken out": 3,
    }


def test_a_click_outside_the_whole_page_is_not_hidden_by_the_cut() -> None:
    batch = rows_of(("q", ADS, [9, 3, 0, 1]), ("q", ["a"], [3]))
    assert plain(Cleaning(first=2).clean_batch(batch, ReadReport())) == [
        ("q", ["a", "b"], [9, 0, 1]),
        ("q", ["a"], [3]),
    ]


def test_null_lists_stay_null_when_others_are_cut() -> None:
    batch = rows_of(("q", None, None), ("q", ADS, None), ("q", ADS, [3, 1]), (None, [], []))
    assert plain(Cleaning(first=1).clean_batch(batch, ReadReport())) == [
        ("q", None, None),
        ("q", ["a"], None),
        ("q", ["a"], [1]),
        (None, [], []),
    ]


def test_a_slice_of_a_batch_is_cut_as_a_batch_of_its_own() -> None:
    batch = rows_of(("p", ADS, [1, 4]), ("q", ADS, [4, 2]), ("r", ["a"], [1]))
    assert plain(Cleaning(first=3).clean_batch(batch.slice(1), ReadReport())) == [
        ("q", ["a", "b", "c"], [2]),
        ("r", ["a"], [1]),
    ]


def test_queries_are_written_in_one_way() -> None:
    report = ReadReport()
    batch = rows_of(
        ("Red  Shoes", ADS, []),
        (" red shoes\u3000", ADS, [1]),
        ("red shoes", ADS, []),
        (None, ADS, []),
        ("ＲＥＤ shoes", ADS, []),
    )
    spelt = Cleaning(normalise=True).clean_batch(batch, report)
    assert spelt.column("query").to_pylist() == [
        "red shoes",
        "red shoes",
        "red shoes",
        None,
        "red shoes",
    ]
    assert report.notes == {"query normalised, spellings become one": 3}


def test_a_query_of_white_space_is_left_and_told() -> None:
    report = ReadReport()
    assert plain(
        Cleaning(normalise=True).clean_batch(rows_of((" \t", ADS, []), ("", ADS, [])), report)
    ) == [(" \t", ADS, []), ("", ADS, [])]
    assert report.notes == {"query of white space only, left as it is": 1}


def test_a_query_that_would_grow_beyond_what_readers_take_stays() -> None:
    long = "\ufdfa" * 8_000  # each of 18 letters when written plainly
    report = ReadReport()
    assert Cleaning(normalise=True).clean_batch(rows_of((long, ADS, [])), report).column(
        "query"
    ).to_pylist() == [long]
    assert not report.notes


def test_queries_that_are_not_utf8_are_left_to_the_reader() -> None:
    query = pa.Array.from_buffers(
        pa.string(),
        2,
        [None, pa.array([0, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfeA")],
    )
    batch = pa.record_batch(
        {
            "query": query,
            "ads": pa.array([["a"], ["a"]]),
            "clicks": pa.array([[], [1]], pa.list_(pa.int32())),
        }
    )
    spelt = (
        Cleaning(normalise=True).clean_batch(batch, ReadReport()).column("query").cast(pa.binary())
    )
    assert spelt.to_pylist() == [b"\xff\xfe", b"a"]


def test_whole_number_queries_have_one_way_to_be_written() -> None:
    batch = pa.record_batch({"query": [7], "ads": [["a"]], "clicks": [[1]]})
    assert Cleaning(normalise=True).clean_batch(batch, ReadReport()) is batch


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Straße", "strasse"),
        ("ΟΔΟΣ οδος", "οδοσ οδοσ"),
        ("ﬁlm", "film"),
        ("e\u0301cole", "école"),
        ("№ ５", "no 5"),
        ("a\u00a0\n b", "a b"),
        ("don’t", "don’t"),
        ("c++", "c++"),
    ],
)
def test_what_is_one_and_what_is_not(written: str, expected: str) -> None:
    assert normalise_query(written) == expected


@given(st.text())
@example("\u0345\u0391")
@example("\u1e9b\u0323")
@example("\u00a8a")
def test_a_normalised_query_stays_as_it_is(query: str) -> None:
    once = normalise_query(query)
    assert normalise_query(once) == once
    assert unicodedata.is_normalized("NFKC", once)
    assert once == once.strip()
    assert "  " not in once


def test_long_sessions_go_judged_by_the_clicks_recorded_not_by_those_left_after_the_cut() -> None:
    report = ReadReport()
    batch = rows_of(("q", ADS, [1, 2, 3]), ("q", ADS, [4, 3, 2, 1]), ("q", ADS, None))
    assert plain(Cleaning(first=2, max_clicks=3).clean_batch(batch, report)) == [
        ("q", ["a", "b"], [1, 2]),
        ("q", ["a", "b"], None),
    ]
    assert report.notes["session with more than 3 clicks, removed"] == 1
    assert report.notes["page cut to its first 2 ads"] == 2  # of those that stay


def test_further_columns_and_weights_are_kept_as_they_are() -> None:
    schema = WEIGHTED_SESSION_SCHEMA.append(
        pa.field("country", pa.dictionary(pa.int8(), pa.string()))
    )
    rows = [
        {
            "session_id": "1",
            "query": "Q",
            "ads": ADS,
            "clicks": [4],
            "weight": 2.5,
            "country": "de",
        },
        {
            "session_id": "2",
            "query": "Q",
            "ads": ADS,
            "clicks": [1, 2, 3],
            "weight": 1.0,
            "country": None,
        },
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    kept = Cleaning(first=3, max_clicks=2, normalise=True).clean_batch(batch, ReadReport())
    assert kept.schema == schema
    nothing = {"user": None, "timestamp": None}
    assert kept.to_pylist() == [
        {**rows[0], **nothing, "query": "q", "ads": ["a", "b", "c"], "clicks": []}
    ]


def test_large_lists_keep_their_type() -> None:
    kinds = {
        "query": pa.large_string(),
        "ads": pa.large_list(pa.string()),
        "clicks": pa.large_list(pa.int64()),
    }
    batch = pa.RecordBatch.from_pylist(
        [{"query": "Q", "ads": ADS, "clicks": [4, 1]}], schema=pa.schema(list(kinds.items()))
    )
    cut = Cleaning(first=2, normalise=True).clean_batch(batch, ReadReport())
    assert {field.name: field.type for field in cut.schema} == kinds
    assert plain(cut) == [("q", ["a", "b"], [1])]


def test_an_empty_batch_stays_empty() -> None:
    batch = SESSION_SCHEMA.empty_table().combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema=SESSION_SCHEMA)
    ]
    assert (
        Cleaning(first=1, normalise=True, max_clicks=1).clean_batch(batch[0], ReadReport()).num_rows
        == 0
    )


def test_shortening_waits_for_the_steps_that_see_the_whole_log() -> None:
    cleaning = Cleaning(normalise=True, first=1, max_clicks=1, reload_seconds=30)
    assert plain(cleaning.clean_batch(rows_of(("Q", ADS, [1, 2])), ReadReport())) == [
        ("q", ADS, [1, 2])
    ]
    assert plain(cleaning.shorten_sessions(rows_of(("q", ADS, [2])), ReadReport())) == [
        ("q", ["a"], [])
    ]


@pytest.mark.parametrize(
    "name", ["first", "max_clicks", "max_pages_per_hour", "max_clicks_per_hour"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3", float("nan")])
def test_a_limit_that_is_no_whole_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(
        SettingError, match=f"^{name}: got {value!r}, expected a whole number of 1 or more, or None"
    ):
        Cleaning(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 0.0001, -3, float("inf"), float("nan"), True, "30"])
def test_reload_seconds_that_make_no_sense_are_refused(value: Any) -> None:
    with pytest.raises(
        SettingError,
        match=r"^reload_seconds: got .*, expected a number of seconds, such as 30, or None",
    ):
        Cleaning(reload_seconds=value)


def test_normalise_is_yes_or_no() -> None:
    with pytest.raises(SettingError, match="normalise: got 'NFC', expected True or False"):
        Cleaning(normalise="NFC")  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    assert Cleaning(first=np.int64(3), reload_seconds=np.float64(2)).first == 3  # type: ignore[arg-type]


def test_settings_cannot_be_changed_and_are_given_by_name() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cleaning(first=1).first = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Cleaning(10)  # type: ignore[call-arg,arg-type]


@pytest.mark.parametrize("name", ["max_pages_per_hour", "max_clicks_per_hour", "reload_seconds"])
def test_steps_over_the_whole_log_say_so(name: str) -> None:
    assert Cleaning(**{name: 30}).needs_whole_log  # type: ignore[arg-type]
    assert not Cleaning(first=1, normalise=True, max_clicks=1).needs_whole_log


sessions = st.tuples(
    st.none() | st.sampled_from(["q", "Q", " q", "", " ", "ＱＲ"]) | st.text(max_size=4),
    st.none() | st.lists(st.sampled_from(ADS), max_size=6),
    st.none() | st.lists(st.integers(-1, 8), max_size=6),
)
cleanings = st.builds(
    Cleaning,
    first=st.none() | st.integers(1, 4),
    max_clicks=st.none() | st.integers(1, 4),
    normalise=st.booleans(),
)


def cleaned_plainly(row: tuple[Any, Any, Any], cleaning: Cleaning) -> tuple[Any, Any, Any] | None:
    query, ads, clicks = row
    if cleaning.max_clicks is not None and len(clicks or []) > cleaning.max_clicks:
        return None
    if cleaning.normalise and query:
        query = normalise_query(query) or query
    first = cleaning.first
    if first is not None and ads is not None:
        clicks = (
            clicks
            if clicks is None
            else [click for click in clicks if not first < click <= len(ads)]
        )
        ads = ads[:first]
    return query, ads, clicks


@given(st.lists(sessions, max_size=8), cleanings)
def test_a_batch_is_cleaned_as_plain_python_does_and_its_counts_add_up(
    rows: list[tuple[Any, Any, Any]], cleaning: Cleaning
) -> None:
    report, batch = ReadReport(), rows_of(*rows)
    kept = cleaning.clean_batch(batch, report)
    assert plain(kept) == [
        row for row in (cleaned_plainly(row, cleaning) for row in rows) if row is not None
    ]
    assert kept.num_rows + removed(report) == batch.num_rows
    lost = sum(many for note, many in report.notes.items() if note.startswith("click below"))
    staying = [
        row
        for row in rows
        if cleaning.max_clicks is None or len(row[2] or []) <= cleaning.max_clicks
    ]
    assert sum(len(row[2] or []) for row in plain(kept)) + lost == sum(
        len(row[2] or []) for row in staying
    )


@given(st.lists(sessions, max_size=8), cleanings)
def test_cleaning_twice_is_cleaning_once(
    rows: list[tuple[Any, Any, Any]], cleaning: Cleaning
) -> None:
    once = cleaning.clean_batch(rows_of(*rows), ReadReport())
    report = ReadReport()
    assert cleaning.clean_batch(once, report).equals(once)
    assert set(report.notes) <= {"query of white space only, left as it is"}


def test_a_limit_on_clicks_finds_the_simulated_bots_that_click_everything() -> None:
    market = simulate(4_000, weeks=1, page=(4, 4), bots=0.05, seed=3)
    week = market.weeks[0]
    kind = market.truth.sessions["kind"].to_numpy(zero_copy_only=False)
    report = ReadReport()
    kept = Cleaning(max_clicks=3).clean_batch(week.combine_chunks().to_batches()[0], report)
    left = set(kept.column("session_id").to_pylist())
    gone = np.array([session not in left for session in week["session_id"].to_pylist()])
    assert gone.sum() == removed(report) > 50
    assert (kind[gone] == "bot").mean() > 0.9  # hardly any user clicks all four
    assert gone[kind == "bot"].mean() > 0.5  # half of the bots click everything
