"""The columns dwell_seconds and conversions: read from every file type, checked, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.data.outcomes import encode_outcomes
from reclick.errors import BadRowsError, LogError, SettingError
from reclick.logs.validation import reasons

LOG: dict[str, Any] = {
    "query": ["shoes", "shoes", "boots", "boots"],
    "ads": [["a", "b", "c"], ["a", "b", "c"], ["c", "d"], ["d", "c"]],
    "clicks": [[1, 3], [], [2], [1]],
    "dwell_seconds": [[4.0, None], [], [95.5], None],
    "conversions": [[0.0, 1.0], [], [0.0], [None]],
}
# quick return without a conversion, conversion | no conversion, stayed | unknown
OUTCOMES = [4, 6, 5, 0]


def read_outcomes(log: rc.SessionLog) -> list[int]:
    batches = list(log.batches())
    return [
        int(each)
        for batch in batches
        for each in ([0] * len(batch.click) if batch.outcomes is None else batch.outcomes.outcome)
    ]


def log_with(**columns: Any) -> dict[str, Any]:
    return {**LOG, **columns}


def write_csv(path: Path, log: dict[str, Any]) -> None:
    def cell(value: Any) -> str:
        if not isinstance(value, list):
            return "" if value is None else str(value)
        return "|".join("" if each is None else str(each) for each in value)

    rows = zip(*log.values(), strict=True)
    lines = [",".join(log), *(",".join(map(cell, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def write_jsonl(path: Path, log: dict[str, Any]) -> None:
    rows = (dict(zip(log, row, strict=True)) for row in zip(*log.values(), strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_outcomes_are_read_from_every_file_type(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log.{suffix}"
    writers = {"csv": write_csv, "jsonl": write_jsonl}
    if suffix in writers:
        writers[suffix](path, LOG)
    else:
        pq.write_table(pa.table(LOG), path)
    log = rc.read_sessions(path)
    assert read_outcomes(log) == OUTCOMES
    assert log.summary.known_outcomes == 3
    assert log.summary.converted_clicks == 1
    assert "clicks with a known outcome" in str(log.summary)


def test_the_threshold_of_a_quick_return_is_set_when_the_log_is_read() -> None:
    assert read_outcomes(rc.read_sessions(LOG, quick_return_seconds=3)) == [5, 6, 5, 0]
    assert read_outcomes(rc.read_sessions(LOG, quick_return_seconds=100)) == [4, 6, 4, 0]
    with pytest.raises(SettingError, match="quick_return_seconds"):
        rc.read_sessions(LOG, quick_return_seconds=-1)


def test_one_column_alone_says_nothing_of_the_other() -> None:
    dwell = {name: values for name, values in LOG.items() if name != "conversions"}
    conversions = {name: values for name, values in LOG.items() if name != "dwell_seconds"}
    assert read_outcomes(rc.read_sessions(dwell)) == [1, 0, 2, 0]
    assert read_outcomes(rc.read_sessions(conversions)) == [3, 6, 3, 0]


def test_whole_numbers_flags_and_other_names_are_read() -> None:
    flags = [[False, True], [], [False], [False]]
    log = log_with(conversions=flags, dwell_seconds=[[4, 50], [], [95], [1]])
    assert read_outcomes(rc.read_sessions(log)) == [4, 6, 5, 4]
    renamed = {
        ("bought" if name == "conversions" else name): values for name, values in log.items()
    }
    assert read_outcomes(rc.read_sessions(renamed, columns={"conversions": "bought"})) == [
        *(4, 6, 5, 4)
    ]


@pytest.mark.parametrize(
    ("column", "values", "reason", "got"),
    [
        ("dwell_seconds", [4.0], reasons.DWELL_AND_CLICKS_DISAGREE, "1 values for 2 clicks"),
        ("dwell_seconds", [], reasons.DWELL_AND_CLICKS_DISAGREE, "0 values for 2 clicks"),
        ("dwell_seconds", [4.0, -0.5], reasons.BAD_DWELL, "-0.5 for click number 2"),
        ("dwell_seconds", [float("nan"), 1.0], reasons.BAD_DWELL, "nan for click number 1"),
        ("dwell_seconds", [float("inf"), 1.0], reasons.BAD_DWELL, "inf for click number 1"),
        ("conversions", [1.0] * 3, reasons.CONVERSIONS_AND_CLICKS_DISAGREE, "3 values for 2"),
        ("conversions", [0.0, -1.0], reasons.BAD_CONVERSIONS, "-1 for click number 2"),
    ],
)
def test_a_row_whose_outcomes_make_no_sense_is_bad(
    column: str, values: list[float], reason: str, got: str
) -> None:
    log = log_with(**{column: [values, *LOG[column][1:]]})
    with pytest.raises(BadRowsError, match=f"1 {reason} .row 1: {got}"):
        rc.count(log)
    kept = rc.read_sessions(log, on_error="drop")
    assert kept.summary.dropped == {reason: 1}
    assert read_outcomes(kept) == [5, 0]


def test_a_column_that_holds_no_lists_of_numbers_is_refused() -> None:
    with pytest.raises(LogError, match="dwell_seconds in the table: expected a list of numbers"):
        rc.read_sessions(log_with(dwell_seconds=["4", "", "95", ""]))


def test_of_repeated_clicks_the_longest_dwell_time_and_all_conversions_count() -> None:
    log = {
        "query": ["q"],
        "ads": [["a", "b"]],
        "clicks": [[1, 2, 1]],
        "dwell_seconds": [[2.0, None, 60.0]],
        "conversions": [[None, 0.0, 2.0]],
    }
    (batch,) = rc.read_sessions(log).batches()
    assert batch.outcomes is not None
    assert batch.click.tolist() == [1, 2]
    assert batch.outcomes.outcome.tolist() == [6, 3]
    assert batch.outcomes.dwell_seconds is not None
    assert batch.outcomes.conversions is not None
    np.testing.assert_array_equal(batch.outcomes.dwell_seconds, [60.0, np.nan])
    np.testing.assert_array_equal(batch.outcomes.conversions, [2.0, 0.0])


def test_converting_and_splitting_keep_both_columns(tmp_path: Path) -> None:
    log = log_with(part=["train", "test", "train", "test"])
    converted = rc.convert(log, tmp_path / "sessions.parquet")
    table = pq.read_table(tmp_path / "sessions.parquet")
    assert table["dwell_seconds"].to_pylist() == [[4.0, None], [], [95.5], [None]]
    assert table["conversions"].to_pylist() == LOG["conversions"]
    assert read_outcomes(converted) == OUTCOMES
    parts = rc.split(rc.read_sessions(log, quick_return_seconds=3), tmp_path / "parts", by="part")
    assert read_outcomes(parts.train) == [5, 6, 5]
    assert read_outcomes(parts.test) == [0]


def test_files_of_which_some_have_outcomes_are_one_log(tmp_path: Path) -> None:
    plain = {name: LOG[name] for name in ("query", "ads", "clicks")}
    pq.write_table(pa.table(plain), tmp_path / "1.parquet")
    pq.write_table(pa.table(LOG), tmp_path / "2.parquet")
    log = rc.read_sessions(tmp_path)
    assert read_outcomes(log) == [0, 0, 0, 0, *OUTCOMES]
    counts = rc.count(log)
    assert counts == rc.count(plain) + rc.count(LOG)
    converted = rc.convert(
        [tmp_path / "2.parquet", tmp_path / "1.parquet"], tmp_path / "to.parquet"
    )
    assert read_outcomes(converted) == [*OUTCOMES, 0, 0, 0, 0]


def test_cutting_pages_cuts_the_outcomes_of_the_clicks_below() -> None:
    log = log_with(dwell_seconds=[[4.0, 70.0], None, [95.5], [1.0]])
    cut = rc.read_sessions(log, cleaning=rc.Cleaning(first=1))
    assert read_outcomes(cut) == [4, 1]
    only_null = log_with(dwell_seconds=[None] * 4)
    assert read_outcomes(rc.read_sessions(only_null, cleaning=rc.Cleaning(first=1))) == [3, 0]


def test_a_reload_brings_the_outcomes_of_its_clicks() -> None:
    log = {
        "query": ["q"] * 3,
        "ads": [["a", "b", "c"]] * 3,
        "clicks": [[1, 2], [2, 3], [3]],
        "dwell_seconds": [[3.0, 5.0], [50.0, None], [7.0]],
        "conversions": [[0.0, 1.0], [1.0, None], [0.0]],
        "user": ["u"] * 3,
        "timestamp": [1_700_000_000, 1_700_000_005, 1_700_000_008],
    }
    (batch,) = rc.read_sessions(log, cleaning=rc.Cleaning(reload_seconds=30)).batches()
    assert batch.outcomes is not None
    assert batch.click.tolist() == [1, 2, 3]
    assert batch.outcomes.dwell_seconds is not None
    assert batch.outcomes.conversions is not None
    assert batch.outcomes.dwell_seconds.tolist() == [3.0, 50.0, 7.0]
    assert batch.outcomes.conversions.tolist() == [0.0, 2.0, 0.0]


def test_a_slice_of_a_batch_has_the_outcomes_of_its_clicks() -> None:
    (batch,) = rc.read_sessions(LOG).batches()
    part = batch.slice(2, 4)
    assert part.outcomes is not None
    assert part.outcomes.outcome.tolist() == [5, 0]
    assert part.compact().outcomes is part.outcomes


def test_pages_without_clicks_have_no_outcomes() -> None:
    pages = {name: values for name, values in LOG.items() if name != "clicks"}
    (batch,) = rc.read_sessions(pages).batches()
    assert batch.outcomes is None


def test_outcomes_are_encoded_as_documented() -> None:
    unknown = np.nan
    dwell = np.array([unknown, 1, 10, unknown, 1, 10, unknown, 1])
    conversions = np.array([unknown, unknown, unknown, 0, 0, 0, 1, 3])
    assert encode_outcomes(dwell, conversions, 10.0).tolist() == [0, 1, 2, 3, 4, 5, 6, 6]
