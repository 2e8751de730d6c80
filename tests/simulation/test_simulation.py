"""`simulate`: the files it writes, what it refuses, and that a seed gives the same bytes."""

from __future__ import annotations

import inspect
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.cli import log_commands
from reclick.errors import SettingError, StoreError
from reclick.simulation import Simulation, simulate

NAMES = ["week1.parquet", "week2.parquet", "ads.parquet", "labels.parquet", "bids.parquet"]
NAMES += [
    "truth.parquet",
    "truth_words.parquet",
    "truth_brands.parquet",
    "truth_queries.parquet",
    "truth_sessions.parquet",
    "truth.json",
]


@pytest.fixture(scope="module")
def market() -> Simulation:
    return simulate(20_000, seed=5)


def assert_the_contract_is_kept(market: Simulation, page: tuple[int, int]) -> None:
    ids = [name for week in market.weeks for name in week["session_id"].to_pylist()]
    assert len(set(ids)) == len(ids)
    assert market.truth.sessions["session_id"].to_pylist() == ids
    for week in market.weeks:
        assert week.schema.types == [
            pa.string(),
            pa.timestamp("ms"),
            pa.string(),
            pa.list_(pa.string()),
            pa.list_(pa.int32()),
        ]
        for row in week.to_pylist():
            assert page[0] <= len(row["ads"]) <= page[1]
            assert len(set(row["ads"])) == len(row["ads"])
            assert len(set(row["clicks"])) == len(row["clicks"])
            assert all(1 <= click <= len(row["ads"]) for click in row["clicks"])


def assert_times_increase_inside_their_weeks(market: Simulation) -> None:
    start = datetime(2024, 1, 1)
    for week in market.weeks:
        assert np.all(np.diff(week["timestamp"].to_numpy().astype("int64")) > 0)
        assert (
            start
            <= week["timestamp"][0].as_py()
            < week["timestamp"][-1].as_py()
            < start + timedelta(days=7)
        )
        start += timedelta(days=7)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        simulate(500, weeks=2, queries=20, bots=0.1, seed=3).save(tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert (
        simulate(500, weeks=2, queries=20, seed=4).weeks[0]
        != simulate(500, weeks=2, queries=20, seed=3).weeks[0]
    )


def test_sessions_keep_the_contract(market: Simulation) -> None:
    assert_the_contract_is_kept(market, (1, 4))
    assert_times_increase_inside_their_weeks(market)


@pytest.mark.parametrize(("page", "ads_per_query"), [((1, 1), 1), ((2, 10), 12), ((3, 3), 40)])
def test_pages_are_as_long_as_asked(page: tuple[int, int], ads_per_query: int) -> None:
    market = simulate(400, weeks=1, queries=5, ads_per_query=ads_per_query, page=page, bots=0.1)
    assert_the_contract_is_kept(market, page)


def test_a_large_week_is_drawn_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reclick.simulation.BLOCK_SESSIONS", 128)
    market = simulate(1_000, weeks=2, queries=20)
    assert [len(week) for week in market.weeks] == [1_000, 1_000]
    assert market.weeks[0]["clicks"].num_chunks == 8
    assert_the_contract_is_kept(market, (1, 4))
    assert_times_increase_inside_their_weeks(market)


def test_every_pair_shown_has_its_truth_and_no_other(market: Simulation) -> None:
    pairs = market.truth.pairs.to_pylist()
    shown = {
        (row["query"], ad) for week in market.weeks for row in week.to_pylist() for ad in row["ads"]
    }
    assert {(row["query"], row["ad"]) for row in pairs} == shown
    assert len(pairs) == len(shown)
    assert all(0 < row[name] < 1 for row in pairs for name in ("attractiveness", "satisfaction"))
    texts = market.ads["ad"].to_pylist()
    assert len(set(texts)) == len(texts)
    assert {ad for _, ad in shown} <= set(texts)


def test_queries_grow_with_the_sessions_unless_given(market: Simulation) -> None:
    assert len(market.truth.queries) == 20_000
    assert len(simulate(30, weeks=2).truth.queries) == 20
    assert len(simulate(1, weeks=1).truth.queries) == 1
    assert len(simulate(30, weeks=2, queries=7).truth.queries) == 7


def test_a_simulation_is_saved_whole(tmp_path: Path) -> None:
    market = simulate(200, weeks=2, queries=10, page=(2, 3), bots=0.25, seed=9)
    paths = market.save(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == NAMES
    assert sorted(path.name for path in paths[0].parent.glob("[!.]*")) == sorted(NAMES)
    truth = market.truth
    tables = [
        *market.weeks,
        market.ads,
        market.labels,
        market.bids,
        truth.pairs,
        truth.words,
        truth.brands,
        truth.queries,
        truth.sessions,
    ]
    assert all(pq.read_table(path) == table for path, table in zip(paths[:-1], tables, strict=True))
    written = json.loads(paths[-1].read_text(encoding="utf-8"))
    assert sum(written.pop("users")["shares"].values()) == pytest.approx(1)
    assert simulate(**{**written, "page": tuple(written["page"])}).weeks == market.weeks


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    simulate(300, weeks=1, queries=10).save(tmp_path)
    log = rc.read_sessions(tmp_path / "week1.parquet", ads=tmp_path / "ads.parquet")
    assert rc.describe(log).sessions == 300
    assert len(rc.read_labels(tmp_path / "labels.parquet")) > 0


def test_whole_numbers_of_numpy_are_saved_too(tmp_path: Path) -> None:
    simulate(np.int64(20), weeks=1, queries=np.int32(2)).save(tmp_path)  # type: ignore[arg-type]
    assert json.loads((tmp_path / "truth.json").read_text())["sessions"] == 20


def test_a_failed_save_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(100, queries=5, seed=1).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(
        StoreError,
        match=r"cannot be written .*The disk is full: free some space or give another folder\. "
        r"What was there before is unchanged",
    ):
        simulate(100, queries=5, seed=2).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        StoreError, match=r"file/logs cannot be written \(.*\)\. Give a folder that can be written"
    ):
        simulate(20, weeks=1, queries=2).save(tmp_path / "file" / "logs")


def test_two_simulations_are_not_mixed_in_one_folder(tmp_path: Path) -> None:
    simulate(50, weeks=2, queries=5).save(tmp_path)
    with pytest.raises(SettingError, match=r"week2\.parquet is of another simulation"):
        simulate(50, weeks=1, queries=5).save(tmp_path)


def test_three_weeks_are_drawn_unless_told_otherwise_also_on_the_command_line() -> None:
    options = inspect.signature(log_commands.simulate).parameters
    for name, given in inspect.signature(simulate).parameters.items():
        assert name in {"page", "page_rule"} or options[name].default == given.default
    assert len(simulate(20, queries=2).weeks) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sessions": 0}, "sessions: got 0"),
        ({"sessions": 604_800_001}, "sessions: got 604800001, expected at most 604800000 per week"),
        ({"weeks": 0}, "weeks: got 0"),
        ({"queries": 10**9}, "words make no more"),
        ({"queries": 0}, "queries: got 0, expected a whole number of 1 or more"),
        ({"page": (3, 2)}, r"page: got \(3, 2\)"),
        ({"page": (1, 13)}, "There are ads_per_query=12"),
        ({"page": (1, 2.5)}, r"page: got \(1, 2\.5\)"),
        ({"page": (1, 2, 3)}, r"page: got \(1, 2, 3\)"),
        ({"seed": -1}, "seed: got -1"),
        ({"sessions": -5}, "sessions: got -5"),
        ({"sessions": 1e3}, r"sessions: got 1000\.0, expected a whole number"),
        ({"weeks": True}, "weeks: got True"),
        ({"bots": -0.1}, r"bots: got -0\.1, expected the share of sessions"),
        ({"bots": 1.5}, r"bots: got 1\.5"),
        ({"bots": float("nan")}, "bots: got nan"),
        ({"bots": "few"}, "bots: got 'few'"),
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        simulate(**settings)  # type: ignore[arg-type]


def test_outcomes_follow_satisfaction_and_change_nothing_else() -> None:
    settings: dict[str, Any] = {"weeks": 2, "queries": 40, "seed": 5}
    plain, known = rc.simulate(3_000, **settings), rc.simulate(3_000, **settings, outcomes=True)
    for one, two in zip(plain.weeks, known.weeks, strict=True):
        assert two.select(one.column_names) == one
        assert two.column_names == [*one.column_names, "dwell_seconds", "conversions"]
    assert known.weeks[0] == rc.simulate(3_000, **settings, outcomes=True).weeks[0]
    satisfied = known.truth.sessions["satisfied"].to_pylist()
    sessions = [row for week in known.weeks for row in week.to_pylist()]
    quick, converted = np.zeros((2, 2)), np.zeros((2, 2))
    for row, content in zip(sessions, satisfied, strict=True):
        assert len(row["clicks"]) == len(row["dwell_seconds"]) == len(row["conversions"])
        for place, dwell in enumerate(row["dwell_seconds"], start=1):
            which = int(content and place == len(row["clicks"]))
            quick[which] += [dwell < 10, 1]
            converted[which] += [row["conversions"][place - 1], 1]
    np.testing.assert_allclose(quick[:, 0] / quick[:, 1], [0.54, 0.014], atol=0.04)
    np.testing.assert_allclose(converted[:, 0] / converted[:, 1], [0.005, 0.15], atol=0.04)


def test_satisfaction_in_the_market_is_estimated_better_with_outcomes() -> None:
    market = rc.simulate(12_000, weeks=1, queries=25, seed=3, outcomes=True)
    truth = market.truth.pairs
    errors = []
    for weight in (0.0, 1.0):
        model = rc.SDBN(outcome_weight=weight).fit(market.weeks[0])
        found = model.relevance(truth.select(["query", "ad"]))
        often = found["clicks"].to_numpy() >= 30
        difference = (found["satisfaction"].to_numpy() - truth["satisfaction"].to_numpy())[often]
        errors.append(float(np.sqrt(np.mean(difference**2))))
    assert errors[1] < 0.5 * errors[0]
