"""Records of logs: the same sessions are recognised, whatever their files; others are not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reclick as rc
from reclick.data.log_record import (
    SAMPLE_SIZE,
    LogRecord,
    LogRecorder,
    SessionSample,
    estimate_overlap,
    records_from_table,
    records_to_table,
    remove_logs,
)


def random_log(seed: int, sessions: int, *, times: bool = False, queries: int = 40) -> pa.Table:
    """Sessions of a market in which pages and clicks repeat by themselves."""
    rng = np.random.default_rng(seed)
    query = rng.zipf(1.3, sessions) % queries
    ads = [rng.permutation(4)[: rng.integers(1, 4)] for _ in range(sessions)]
    clicks = [rng.permutation(len(page))[: rng.integers(0, 2)] + 1 for page in ads]
    columns = {
        "query": [f"q{each}" for each in query],
        "ads": [[f"ad{each}" for each in page] for page in ads],
        "clicks": [each.tolist() for each in clicks],
    }
    table = pa.table(columns)
    if times:
        start = np.datetime64("2026-03-01", "us") + rng.integers(0, 7 * 86_400, sessions) * 10**6
        table = table.append_column("timestamp", pa.array(start))
    return table


def record(log: object) -> LogRecord:
    (found,) = rc.count(log).logs
    return found


def shuffle(table: pa.Table, seed: int = 0) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(len(table))))


# ---- the fingerprint


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=10, deadline=None)
def test_the_order_of_rows_and_files_is_no_matter(seed: int, times: bool) -> None:
    table = random_log(seed, 60, times=times)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shuffled = shuffle(table, seed)
        pq.write_table(shuffled.slice(0, 13), folder / "b.parquet")
        pq.write_table(shuffled.slice(13), folder / "a.parquet", row_group_size=7)
        files = record(str(folder))
    whole = record(table)
    assert files.same_log(whole)
    assert (files.start, files.end) == (whole.start, whole.end)
    assert (files.start is not None) is times


def test_csv_and_json_lines_and_parquet_are_one_log(tmp_path: Path) -> None:
    table = random_log(3, 50, times=True)
    rows = table.to_pylist()
    pq.write_table(table, tmp_path / "a.parquet")
    pa_csv.write_csv(
        pa.table(
            {
                "query": table["query"],
                "ads": ["|".join(row["ads"]) for row in rows],
                "clicks": ["|".join(map(str, row["clicks"])) for row in rows],
                "timestamp": [row["timestamp"].isoformat() for row in rows],
            }
        ),
        tmp_path / "a.csv",
    )
    import json

    lines = (json.dumps({**row, "timestamp": row["timestamp"].isoformat() + "Z"}) for row in rows)
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    records = [record(tmp_path / f"a.{suffix}") for suffix in ("parquet", "csv", "jsonl")]
    assert len({(each.content, each.timed, each.start, each.end) for each in records}) == 1


def test_engines_record_the_same() -> None:
    table = random_log(5, 40, times=True)
    local, duck = (
        rc.count(table, engine=each()).logs[0] for each in (rc.LocalEngine, rc.DuckDBEngine)
    )
    assert local.to_dict() == duck.to_dict()
    assert np.array_equal(local.sample.keys, duck.sample.keys)


@pytest.mark.parametrize(
    "change",
    [
        lambda row: {**row, "query": row["query"] + "x"},
        lambda row: {**row, "ads": row["ads"][::-1]},
        lambda row: {**row, "clicks": [] if row["clicks"] else [1]},
        lambda row: {**row, "weight": 2.0},
    ],
)
def test_one_changed_session_is_another_log(change: Callable[[dict[str, object]], object]) -> None:
    rows = [
        {"query": "q", "ads": ["a", "b"], "clicks": [2, 1], "weight": 1.0},
        {"query": "q", "ads": ["b", "a"], "clicks": [], "weight": 1.0},
    ]
    changed = [rows[0], change(rows[1])]
    before, after = record(pa.Table.from_pylist(rows)), record(pa.Table.from_pylist(changed))
    assert not before.same_log(after)


def test_the_same_clicks_on_another_day_are_another_log() -> None:
    table = {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}
    first, second = (record({**table, "timestamp": [f"2026-03-0{day}"]}) for day in (1, 2))
    assert first.content == second.content
    assert not first.same_log(second)
    assert first.same_log(record(table))  # a copy without times cannot say otherwise
    assert (first.period, second.period) == ("2026-03-01", "2026-03-02")


@pytest.mark.parametrize("timestamp", [[{"a": 1}], [[1]], [None], ["soon"], [float("nan")], [True]])
def test_a_column_that_holds_no_times_is_ignored(timestamp: list[object]) -> None:
    table = pa.table({"query": ["q"], "ads": [["a"]], "clicks": [[1]], "timestamp": timestamp})
    found = record(table)
    assert (found.sessions, found.timed, found.start) == (1, None, None)


# ---- the sample


def test_a_long_log_keeps_the_smallest_hashes() -> None:
    recorder, every = LogRecorder(sample_size=64), LogRecorder(sample_size=10**6)
    for seed in range(8):
        for batch in rc.read_sessions(random_log(seed, 900, times=True, queries=500)).batches():
            recorder.add(batch)
            every.add(batch)
    small, whole = recorder.finish("log").sample, every.finish("log").sample
    assert np.array_equal(small.keys, whole.keys[:64])
    assert np.array_equal(small.sessions, whole.sessions[:64])
    assert small.limit == whole.keys[63]


def test_a_sample_that_is_cut_is_the_sample_of_that_size() -> None:
    table = random_log(1, 3000, times=True)
    sample = record(table).sample
    assert len(sample.keys) < SAMPLE_SIZE
    cut = sample.cut(100)
    assert len(cut.keys) == 100
    assert cut.limit == sample.keys[99]
    assert cut.cut(200) is cut


def test_records_are_saved_whole() -> None:
    records = [record(random_log(seed, 200, times=seed == 1)) for seed in (1, 2)]
    loaded = records_from_table([each.to_dict() for each in records], records_to_table(records))
    for before, after in zip(records, loaded, strict=True):
        assert after.to_dict() == before.to_dict()
        assert np.array_equal(after.sample.keys, before.sample.keys)
        assert np.array_equal(after.sample.sessions, before.sample.sessions)
        assert after.sample.limit == before.sample.limit


def test_a_removed_log_leaves_the_others() -> None:
    a, b = (record(random_log(seed, 30)) for seed in (1, 2))
    assert [each.content for each in remove_logs((a, b, a), [a])] == [b.content, a.content]


# ---- the overlap


@pytest.mark.parametrize("times", [True, False])
def test_a_part_of_a_log_is_found_in_it(times: bool) -> None:
    whole = random_log(7, 6000, times=times, queries=3000)
    assert estimate_overlap(record(whole.slice(1000, 2000)), record(whole)) == pytest.approx(1)


@pytest.mark.parametrize("times", [True, False])
def test_other_sessions_are_not_an_overlap(times: bool) -> None:
    """Also those of a part of the market, where most sessions repeat by themselves."""
    logs = [
        record(random_log(10 * seed + q, 3000, times=times, queries=q))
        for seed in range(3)
        for q in (2, 5, 900)
    ]
    overlaps = [estimate_overlap(a, b) for a in logs for b in logs if a is not b]
    assert overlaps == [0.0] * len(overlaps)


def test_the_share_that_two_logs_have_in_common_is_estimated() -> None:
    new, old = random_log(1, 20_000, times=True), random_log(2, 30_000, times=True)
    mixed = pa.concat_tables([old.slice(0, 5000), new.slice(0, 15_000)])
    assert estimate_overlap(record(mixed), record(old)) == pytest.approx(0.25, abs=0.03)


def test_without_times_a_part_of_a_log_is_found_only_as_a_whole() -> None:
    seen, new = random_log(11, 6000, queries=900), random_log(12, 6000, queries=900)
    mixed = pa.concat_tables([seen.slice(0, 3000), new.slice(0, 3000)])
    assert estimate_overlap(record(mixed), record(seen)) == 0.0
    assert estimate_overlap(record(seen), record(pa.concat_tables([seen, new]))) == 1.0


def test_the_overlap_of_a_worked_example() -> None:
    """90 of 100 sessions occur once: 9 of 10 new ones would be missing, and 4 are."""
    seen_keys = np.arange(0, 950, 10, dtype=np.uint64)  # 90 once and 5 twice: 100 sessions
    seen = SessionSample(seen_keys, np.array([1.0] * 90 + [2.0] * 5))
    keys = np.sort(np.concatenate([seen_keys[:60], np.arange(1, 401, 10, dtype=np.uint64)]))
    new = SessionSample(keys, np.ones(100))
    records = [
        LogRecord(str(n), 100, str(n), str(n), None, None, s) for n, s in ((1, new), (2, seen))
    ]
    assert estimate_overlap(*records) == pytest.approx(1 - 40 / (100 * 90 / 100))


def test_a_few_sessions_may_repeat_by_chance() -> None:
    week = random_log(1, 2000, times=True)
    assert estimate_overlap(record(week.slice(0, 10)), record(week)) == 0.0
    assert estimate_overlap(record(week), record(shuffle(week))) == 1.0
