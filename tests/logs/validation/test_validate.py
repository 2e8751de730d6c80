from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.logs import read_sessions
from reclick.logs.files.source import RawBatch
from reclick.logs.validation.reasons import ROW_REASONS
from reclick.logs.validation.validate import validate
from tests.support.log_tables import SCHEMA, read_back, session, sessions, table

MAX_ADS = 20


def checked(rows: list[dict[str, Any]], max_ads: int = MAX_ADS) -> Any:
    (batch,) = table(rows).combine_chunks().to_batches()
    return validate(
        RawBatch("table", 1, {name: batch.column(name) for name in SCHEMA.names}, len(rows)),
        max_ads,
    )


def plain_reason(row: dict[str, Any]) -> str:
    """Say why a row is bad, in plain Python, one rule after the other."""
    page = row["ads"] or []
    if not row["query"]:
        return "no query"
    if not page:
        return "no ads"
    if len(page) > MAX_ADS:
        return "page too long"
    if not all(page):
        return "null ad"
    for position in row["clicks"] or []:
        if position is None:
            return "null click"
        if not 1 <= position <= len(page):
            return "click outside the page"
    return ""


ads = st.sampled_from(["a", "b", "c", "d", "e", "f"])
rows_of_all_kinds = st.fixed_dictionaries(
    {
        "query": st.sampled_from(["q", "q", "r", "s", "", None]),
        "ads": st.none()
        | st.lists(ads, max_size=5)
        | st.lists(ads | st.sampled_from(["", None]), max_size=25),
        "clicks": st.none()
        | st.lists(st.integers(1, 4), max_size=6)
        | st.lists(st.none() | st.integers(-1, 30), max_size=3),
    }
)


@settings(max_examples=300, deadline=None)  # the first call compiles
@given(st.lists(rows_of_all_kinds, min_size=1, max_size=8))
def test_the_kernel_agrees_with_plain_python(rows: list[dict[str, Any]]) -> None:
    result = checked(rows)
    reasons = [plain_reason(row) for row in rows]
    assert [ROW_REASONS[place] for place in result.reason] == reasons
    good = [row for row, why in zip(rows, reasons, strict=True) if not why]
    kept = [row | {"clicks": list(dict.fromkeys(row["clicks"] or []))} for row in good]
    assert sessions(result.sessions) == kept
    clicks = [row["clicks"] for row in kept]
    repeats = [len(row["clicks"] or []) - len(once) for row, once in zip(good, clicks, strict=True)]
    assert list(result.totals) == [
        len(kept),
        sum(len(row["ads"]) for row in kept),
        sum(map(len, clicks)),
        sum(len(c) > 0 for c in clicks),
        sum(len(c) > 1 for c in clicks),
        sum(any(later < earlier for earlier, later in pairwise(c)) for c in clicks),
        max((len(row["ads"]) for row in kept), default=0),
        sum(len(set(row["ads"])) < len(row["ads"]) for row in kept),
        sum(count > 0 for count in repeats),
        sum(repeats),
        0,  # known outcomes, of which the log has none
        0,
    ]


def test_nothing_is_copied_when_every_row_is_good() -> None:
    batch = pa.record_batch(
        {
            "query": pa.array(["q", "r"]).dictionary_encode(),
            "ads": pa.ListArray.from_arrays(
                pa.array([0, 1, 3], pa.int32()), pa.array(["a", "b", "c"]).dictionary_encode()
            ),
            "clicks": pa.array([[1], [2]], pa.list_(pa.int32())),
        }
    )
    result = validate(
        RawBatch("table", 1, {name: batch.column(name) for name in batch.schema.names}, 2), 100
    )
    codes = batch["ads"].values.indices.to_numpy(zero_copy_only=True)
    assert np.shares_memory(result.sessions.ad, codes)
    assert np.shares_memory(
        result.sessions.click, batch["clicks"].values.to_numpy(zero_copy_only=True)
    )


BAD: list[tuple[dict[str, Any], str, str]] = [
    (session(None), "no query", "null"),
    (session(""), "no query", "empty text"),
    (session("x" * 1_000_000), "query too long", "1,000,000 bytes, the limit is 65,536"),
    (session(ads=[]), "no ads", "an empty page"),
    (session() | {"ads": None}, "no ads", "null"),
    (session(ads=["a", None]), "null ad", "position 2 of 2"),
    (session(ads=["", "a"]), "null ad", "position 1 of 2"),
    (session(ads=[f"a{i}" for i in range(10_000)]), "page too long", "a page of 10,000 ads"),
    (session(clicks=[1, 0]), "click outside the page", "position 0 on a page of 2 ads"),
    (session(clicks=[3]), "click outside the page", "position 3 on a page of 2 ads"),
    (session(clicks=[1, None]), "null click", "click number 2"),
    (session(ads=["x" * 70_000]), "not readable", "over 65,536 bytes"),
]


@pytest.mark.parametrize(
    ("row", "reason", "got"), BAD, ids=[f"{reason}, {got}" for _, reason, got in BAD]
)
def test_a_bad_row_is_told_and_the_others_are_kept(
    row: dict[str, Any], reason: str, got: str
) -> None:
    log = read_sessions(table([session("good", clicks=[2]), row, session("fine")]), on_error="drop")
    assert [kept["query"] for kept in read_back(log)] == ["good", "fine"]
    assert log.summary.dropped == {reason: 1}
    (example,) = log.summary.examples[reason]
    assert (example.where, example.row) == ("table", 2)
    assert got in example.got


@pytest.mark.parametrize("weight", [None, -1.0, float("nan"), float("inf")])
def test_a_bad_weight_is_told(weight: float | None) -> None:
    rows = table([session(), session()]).append_column("weight", pa.array([2.0, weight]))
    log = read_sessions(rows, on_error="drop")
    (batch,) = log.batches()
    assert batch.weight is not None
    assert batch.weight.tolist() == [2.0]
    assert log.summary.dropped == {"bad weight": 1}


def test_a_weight_of_nought_is_good() -> None:
    rows = table([session()]).append_column("weight", pa.array([0]))
    assert read_sessions(rows).summary.kept == 1


def test_a_repeated_click_is_kept_once_at_its_first_time_and_counted() -> None:
    log = read_sessions(
        table([session(ads=["a", "b", "c"], clicks=[3, 1, 3, 1, 2]), session(clicks=[1])])
    )
    assert [row["clicks"] for row in read_back(log)] == [[3, 1, 2], [1]]
    assert log.summary.notes == {"repeated click": 1}
    assert log.summary.clicks == 4


@pytest.mark.parametrize("length", [2, 16, 17, 60])
def test_an_ad_shown_twice_is_kept_and_counted(length: int) -> None:
    page: list[str | None] = [f"a{i}" for i in range(length - 1)]
    log = read_sessions(table([session(ads=[*page, page[0]]), session(ads=page)]))
    assert len(read_back(log)) == 2
    assert log.summary.notes == {"repeated ad": 1}


def test_long_pages_are_read_when_asked_for() -> None:
    page: list[str | None] = [f"a{i}" for i in range(10_000)]
    log = read_sessions(table([session(ads=page, clicks=[10_000, 1])]), max_ads=10_000)
    assert read_back(log)[0]["clicks"] == [10_000, 1]
    assert log.summary.longest_page == 10_000
