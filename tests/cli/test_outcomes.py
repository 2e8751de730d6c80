"""Outcomes of clicks on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

import reclick as rc
from reclick.data.outcomes import OUTCOME_NAMES
from reclick.engines import LocalEngine
from reclick.evaluation.inputs import EvaluationLog
from tests.support.commands import Run

LOG = {
    "query": ["q", "q"],
    "ads": [["a", "b"], ["a", "b"]],
    "clicks": [[1, 2], [1]],
    "dwell_seconds": [[4.0, 70.0], [8.0]],
}


def write_jsonl(path: Path) -> None:
    rows = (dict(zip(LOG, row, strict=True)) for row in zip(*LOG.values(), strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_threshold_of_a_quick_return_is_an_option(run: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "log.jsonl")
    quick = OUTCOME_NAMES.index("quick_return")
    for seconds, expected in (("10", 2), ("5", 1), ("1", 0)):
        code, _, err = run("count", "log.jsonl", "--to", seconds, "--quick-return-seconds", seconds)
        assert code == 0, err
        counts = rc.Counts.load(tmp_path / seconds)
        assert counts.outcomes is not None
        assert counts.outcomes.totals[quick] == expected
    code, _, err = run("count", "log.jsonl", "--to", "x", "--quick-return-seconds", "-1")
    assert code == 2
    assert "quick" in err


def test_check_and_describe_report_outcomes(run: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "log.jsonl")
    code, out, _ = run("check", "log.jsonl")
    assert code == 0
    assert "clicks with a known outcome" in out
    code, out, _ = run("describe", "log.jsonl", "--json")
    assert code == 0
    assert '"outcome_share": 1.0' in out


def test_simulate_writes_outcomes_when_asked(run: Run, tmp_path: Path) -> None:
    small = ("--sessions", "200", "--weeks", "1", "--queries", "10")
    code, _, err = run("simulate", "--to", "logs", *small, "--outcomes")
    assert code == 0, err
    names = pq.read_schema(tmp_path / "logs" / "week1.parquet").names
    assert names[-2:] == ["dwell_seconds", "conversions"]
    assert json.loads((tmp_path / "logs" / "truth.json").read_text())["outcomes"] is True


def test_a_cached_fit_is_of_the_same_outcomes() -> None:
    """The fingerprint of a log depends on what followed its clicks."""
    plain = {name: LOG[name] for name in ("query", "ads", "clicks")}
    logs = [
        *(plain, LOG),
        rc.read_sessions(LOG, quick_return_seconds=5),
        {**LOG, "dwell_seconds": [[4.0, 71.0], [8.0]]},  # the same outcomes
    ]
    plain_print, known, other, same = (
        EvaluationLog(log, None, "the log", LocalEngine()).fingerprint for log in logs
    )
    assert len({plain_print, known, other}) == 3
    assert same == known
