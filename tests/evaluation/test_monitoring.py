"""Monitoring: sums by hand, weights, limits, and what is not significant."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.__main__ import main
from reclick.errors import LogError, SettingError
from reclick.evaluation.monitoring import MonitorLimits, monitor
from reclick.logs.files.stream import SparkFrameSource
from tests.support.service import small_log

LOG: dict[str, list[Any]] = {
    "query": ["tea", "tea", "tea", "new"],
    "ads": [["a", "b"], ["a", "b"], ["b", "a"], ["a", "never"]],
    "clicks": [[1], [2, 1], [], [2]],
}
TRAINING: dict[str, list[Any]] = {
    "query": ["tea"] * 12,
    "ads": [["a", "b"]] * 12,
    "clicks": [[1]] * 6 + [[]] * 6,
}


def model() -> rc.ClickModel:
    return rc.DCTR(attractiveness_prior=0.25, attractiveness_strength=4).fit(TRAINING)


def test_sums_are_those_of_the_sessions() -> None:
    report = monitor(model(), LOG)
    a, b, unseen = (6 + 1) / 16, (0 + 1) / 16, 0.25
    assert report.sessions == 4
    assert report.observed_clicks == 4
    expected = 2 * (a + b) + (b + a) + 2 * unseen
    assert np.isclose(report.expected_clicks, expected)
    assert report.ratio == pytest.approx(expected / 4)
    first, second = report.positions
    assert (first.name, first.impressions, first.observed) == ("1", 4, 2)
    assert np.isclose(first.expected, a + a + b + unseen)
    assert (second.observed, report.unknown_queries, report.unknown_ads) == (2, 0.25, 1 / 8)
    volumes = {group.name: group.observed for group in report.volumes}
    assert volumes == {"not in the training log": 1, "10 to 99": 3}
    assert sum(group.impressions for group in report.levels) == 8


def test_the_interval_is_from_differences_between_sessions() -> None:
    report = monitor(model(), LOG)
    a, b = 7 / 16, 1 / 16
    differences = [1 - (a + b), 2 - (a + b), -(a + b), 1 - 0.5]
    error = 1.959964 * np.sqrt(np.sum(np.square(differences))) / 4
    assert report.ratio is not None
    assert report.low == pytest.approx(report.ratio * np.exp(-error))
    assert report.high == pytest.approx(report.ratio * np.exp(error))


def test_a_weight_of_two_counts_as_two_sessions() -> None:
    twice = {name: values * 2 for name, values in LOG.items()}
    weighted = {**LOG, "weight": [2.0] * 4}
    one, other = monitor(model(), twice), monitor(model(), weighted)
    for name in ("sessions", "observed_clicks", "expected_clicks", "low", "high", "unknown_ads"):
        assert getattr(one, name) == pytest.approx(getattr(other, name)), name
    assert one.positions == other.positions


def test_a_log_whose_sessions_do_not_count_is_refused() -> None:
    with pytest.raises(LogError, match="weight of every session is 0"):
        monitor(model(), {**LOG, "weight": [0.0] * 4})


def test_a_stream_that_was_read_already_is_named_as_the_reason() -> None:
    table = pa.table(LOG)
    stream, parts = table.to_reader(), iter(table.to_batches())
    for source in (stream, parts):
        assert monitor(model(), source).sessions == 4
        with pytest.raises(LogError, match="read already, give a new one"):
            monitor(model(), source)
    with pytest.raises(LogError, match=r"has no rows\.$"):
        monitor(model(), table.slice(0, 0))


def test_a_spark_frame_is_refused_with_advice_that_can_be_followed() -> None:
    """There is no `engine` to give to `monitor`."""
    log = rc.read_sessions(LOG)
    log._sources = [SparkFrameSource(None, {name: name for name in LOG})]
    with pytest.raises(LogError, match="write the frame to Parquet files and give those"):
        monitor(model(), log)


def test_a_good_model_breaks_no_limit_and_a_wrong_one_does() -> None:
    log = small_log(sessions=3000)
    assert monitor(rc.PBM().fit(log), small_log(seed=1, sessions=3000)).ok
    far_off = rc.DCTR(attractiveness_prior=0.9, attractiveness_strength=1e6).fit(log)
    report = monitor(far_off, log)
    assert not report.ok
    assert any(breach.startswith("all clicks") for breach in report.breaches)
    assert any("position 1" in breach for breach in report.breaches)
    assert any("calibration" in breach for breach in report.breaches)


def test_few_clicks_break_no_limit() -> None:
    report = monitor(model(), LOG)
    assert report.calibration_error > MonitorLimits().calibration
    assert report.calibration_error < 2 * report.calibration_noise
    assert report.ok


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """The ratio of the true model is 1: 95 % of intervals should hold it."""
    truth = rc.DCTR().fit(small_log(sessions=2000))
    pages = {name: small_log(seed=3, sessions=300)[name] for name in ("query", "ads")}
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        report = monitor(truth, {**pages, "clicks": truth.sample(pages, rng).to_pylist()})
        assert report.low is not None
        assert report.high is not None
        held += report.low <= 1 <= report.high
    assert 180 <= held <= 199


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingError, match="calibration"):
        MonitorLimits(calibration=-1)


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["reclick", "monitor", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


def test_the_command_prints_and_exits_with_3_above_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model().save(tmp_path / "m")
    log = tmp_path / "day.parquet"
    pq.write_table(pa.table(LOG), log)
    folder, day = str(tmp_path / "m"), str(log)
    assert run(folder, day, monkeypatch=monkeypatch) == 0
    assert "Every limit holds" in capsys.readouterr().out
    assert run(folder, day, "--json", "--unknown-ads", "0.1", monkeypatch=monkeypatch) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["breaches"]
    assert report["observed_clicks"] == 4


def test_the_command_reports_dropped_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model().save(tmp_path / "m")
    day = {**LOG, "query": ["", *LOG["query"][1:]]}
    pq.write_table(pa.table(day), tmp_path / "day.parquet")
    words = (str(tmp_path / "m"), str(tmp_path / "day.parquet"), "--on-error", "drop")
    assert run(*words, monkeypatch=monkeypatch) == 0
    assert "dropped: no query" in capsys.readouterr().err
