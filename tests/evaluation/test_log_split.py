"""Splitting a log into history, train and test."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc

START = datetime(2026, 3, 2, 8)


def log(**columns: Any) -> pa.Table:
    """Twenty-one sessions, one a day, with columns of their own."""
    n = 21
    rows = {
        "query": [f"q{day}" for day in range(n)],
        "ads": [["a", "b"]] * n,
        "clicks": [[1 + day % 2] for day in range(n)],
    }
    return pa.table({**rows, **columns})


def queries(part: Any) -> list[str]:
    """The queries of a part of the split, in order."""
    return [
        batch.queries[code].as_py() for batch in part.batches() for code in batch.query.tolist()
    ]


def test_by_default_the_last_seven_days_are_the_test_and_the_seven_before_the_training(
    tmp_path: Path,
) -> None:
    parts = rc.split(log(timestamp=[START + timedelta(days=day) for day in range(21)]), tmp_path)
    assert [queries(part) for part in parts] == [
        [f"q{day}" for day in range(first, first + 7)] for first in (0, 7, 14)
    ]


def test_cuts_say_where_train_and_test_start(tmp_path: Path) -> None:
    parts = rc.split(
        log(timestamp=[START + timedelta(days=day) for day in range(21)]),
        tmp_path,
        cuts=("2026-03-03", "2026-03-21"),
    )
    assert [len(queries(part)) for part in parts] == [1, 18, 2]


@pytest.mark.parametrize("is_categorical", [False, True])
def test_times_are_text_with_a_zone(tmp_path: Path, is_categorical: bool) -> None:
    days = [START + timedelta(days=day) for day in range(21)]
    times = pa.array([f"{day.isoformat()}Z" for day in days[:20]] + ["2026-03-22T10:00:00+02:00"])
    table = log(timestamp=times.dictionary_encode() if is_categorical else times)
    assert [len(queries(part)) for part in rc.split(table, tmp_path)] == [7, 7, 7]
    cuts = ("2026-03-04T10:00:00+02:00", "2026-03-22T08:00:00Z")
    parts = rc.split(table, tmp_path, cuts=cuts)
    assert [len(queries(part)) for part in parts] == [2, 18, 1]


def test_numbers_are_split_at_cuts_and_refused_without(tmp_path: Path) -> None:
    table = log(second=list(range(21)))
    with pytest.raises(rc.SettingError, match="Give cuts"):
        rc.split(table, tmp_path, by="second")
    assert [
        len(queries(part)) for part in rc.split(table, tmp_path, by="second", cuts=(5, 20))
    ] == [5, 15, 1]


def test_a_column_may_name_the_part_of_each_session(tmp_path: Path) -> None:
    part = pa.array(["train"] * 15 + ["test"] * 6).dictionary_encode()
    parts = rc.split(log(part=part), tmp_path, by="part")
    assert parts.history is None
    assert [len(queries(part)) for part in parts[1:]] == [15, 6]
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["test.parquet", "train.parquet"]


def test_every_session_is_in_one_part_with_all_its_columns(tmp_path: Path) -> None:
    table = log(
        timestamp=[START + timedelta(days=day) for day in range(21)],
        device=["phone", "desk", "tablet"] * 7,
        weight=[1.0 + day for day in range(21)],
    )
    parts = rc.split(table, tmp_path)
    written = pa.concat_tables(
        [pq.read_table(tmp_path / f"{part}.parquet") for part in ("history", "train", "test")]
    )
    assert (
        written.select(["query", "device", "weight"]).to_pylist()
        == table.select(["query", "device", "weight"]).to_pylist()
    )
    assert rc.count(table) == sum((rc.count(part) for part in parts[1:]), rc.count(parts[0]))


def test_columns_of_other_names_are_written_under_ours(tmp_path: Path) -> None:
    table = log(day=list(range(21))).rename_columns(["search_term", "ads", "clicks", "day"])
    parts = rc.split(
        rc.read_sessions(table, columns={"query": "search_term"}), tmp_path, by="day", cuts=(7, 14)
    )
    assert queries(parts.test) == [f"q{day}" for day in range(14, 21)]


@pytest.mark.parametrize(
    ("columns", "by", "cuts", "message"),
    [
        ({}, "timestamp", None, "no column 'timestamp' to split by. It has query, ads, clicks"),
        ({"timestamp": [None] + [START] * 20}, "timestamp", None, "1 sessions have no timestamp"),
        (
            {"timestamp": ["yesterday"] * 21},
            "timestamp",
            None,
            "Expected times, numbers, or the words",
        ),
        ({"timestamp": [START] * 21}, "timestamp", None, "no session is in train"),
        (
            {"part": ["train"] * 20 + ["dev"]},
            "part",
            None,
            "got 'dev', expected one of history, train, test",
        ),
        ({"day": list(range(21))}, "day", (9, 3), "Test comes after train"),
        ({"day": list(range(21))}, "day", (9,), "got 1, expected 2"),
    ],
)
def test_what_cannot_be_split_is_refused_and_nothing_is_left(
    tmp_path: Path, columns: dict[str, Any], by: str, cuts: Any, message: str
) -> None:
    with pytest.raises(rc.ReclickError, match=message):
        rc.split(log(**columns), tmp_path / "parts", by=by, cuts=cuts)
    assert not list(tmp_path.rglob("*parquet*"))
