"""Counts of outcomes add, subtract, decay and save like all counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reclick as rc
from reclick.data.counts import Counts
from reclick.data.outcomes import CONVERSION, N_OUTCOMES, last_of_runs
from reclick.data.pair_index import IndexMap
from reclick.engines import as_grouped
from reclick.errors import UsageError
from reclick.fitting.folds import folds_of_click_sets
from tests.support.outcome_worlds import World

LOG: dict[str, Any] = {
    "query": ["q", "q", "r"],
    "ads": [["a", "b"], ["a", "b"], ["c", "a"]],
    "clicks": [[2, 1], [1], [2]],
    "dwell_seconds": [[3.0, 60.0], [2.0], [None]],
    "conversions": [[0.0, 1.0], [0.0], [None]],
}


def part(log: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {name: values[rows] for name, values in log.items()}


def test_outcomes_are_counted_by_hand() -> None:
    counts = rc.count(LOG)
    assert counts.outcomes is not None
    last = np.zeros((4, N_OUTCOMES))  # (q, a), (q, b), (r, a), (r, c)
    last[0, CONVERSION] = last[0, 4] = last[2, 0] = 1
    np.testing.assert_array_equal(counts.outcomes.last, last)
    visits = np.zeros((3, N_OUTCOMES))  # q (1), q (2, 1), r (2)
    visits[0, 4] = visits[1, CONVERSION] = visits[2, 0] = 1
    np.testing.assert_array_equal(counts.outcomes.visits, visits)
    np.testing.assert_array_equal(counts.outcomes.earlier, np.eye(N_OUTCOMES)[4])
    assert counts.outcomes.totals.tolist() == [1, 0, 0, 0, 2, 0, 1]


def test_a_log_of_unknown_outcomes_has_none() -> None:
    unknown = {**LOG, "dwell_seconds": [None] * 3, "conversions": [[None] * 2, [None], [None]]}
    assert rc.count(unknown).outcomes is None
    assert as_grouped(unknown).outcome is None


@given(st.integers(0, 1000), st.integers(0, 60))
@settings(max_examples=15)
def test_days_add_and_subtract(seed: int, cut: int) -> None:
    log = World(seed=seed, n_queries=2, n_ads=3).draw("luceclick", 60)
    whole = rc.count(log)
    if 0 < cut < 60:
        one, two = (rc.count(part(log, rows)) for rows in (slice(cut), slice(cut, None)))
        assert one + two == whole == two + one
        assert whole - two == one
        assert whole - one == two


def test_a_day_without_outcomes_adds_unknown_ones() -> None:
    plain = {name: LOG[name] for name in ("query", "ads", "clicks")}
    both = rc.count(LOG) + rc.count(plain)
    assert both.outcomes is not None
    assert both.outcomes.totals.tolist() == [5, 0, 0, 0, 2, 0, 1]
    np.testing.assert_array_equal(both.outcomes.last.sum(axis=1), both.last_clicks)
    assert both - rc.count(plain) == rc.count(LOG)
    assert both - rc.count(LOG) == rc.count(plain)
    with pytest.raises(UsageError, match="hold more than"):
        rc.count(plain) - rc.count(LOG)


def test_decay_scales_outcomes() -> None:
    faded = rc.count(LOG).decay(0.5)
    assert faded.outcomes is not None
    assert faded.outcomes.totals.tolist() == [0.5, 0, 0, 0, 1, 0, 0.5]
    assert faded.outcomes.visits.sum() == 1.5


def test_saved_counts_keep_outcomes_and_old_folders_have_none(tmp_path: Path) -> None:
    counts = rc.count(LOG)
    counts.save(tmp_path / "counts")
    assert Counts.load(tmp_path / "counts") == counts
    old = {name: table for name, table in counts.to_tables().items() if "outcomes" not in name}
    loaded = Counts.from_tables(old)
    assert loaded.outcomes is None
    assert loaded != counts
    assert loaded == rc.count({name: LOG[name] for name in ("query", "ads", "clicks")})


def test_the_profile_reports_the_share_of_clicks_with_an_outcome() -> None:
    profile = rc.describe(LOG)
    assert profile.outcome_share == pytest.approx(3 / 4)
    assert profile.conversion_share == pytest.approx(1 / 3)
    assert "of clicks have a known outcome" in str(profile)
    plain = rc.describe({name: LOG[name] for name in ("query", "ads", "clicks")})
    assert plain.outcome_share == 0
    assert "outcome" not in str(plain)


def test_sampled_and_moved_sessions_keep_their_outcomes() -> None:
    log = World(seed=3, n_queries=30).draw("luceclick", 600)
    sessions = as_grouped(log)
    sample = sessions.sample_queries(len(sessions) // 2)
    assert sample.outcome is not None
    assert sample.counts.outcomes is not None
    np.testing.assert_array_equal(
        sample.counts.outcomes.last.sum(axis=1), sample.counts.last_clicks
    )
    day = as_grouped(part(log, slice(100)))
    moved = IndexMap(day.counts, sessions.counts).move_sessions(day)
    assert moved.outcome is day.outcome


def test_folds_do_not_merge_sessions_of_different_outcomes() -> None:
    clicks, dwell = [[1, 2], [2, 1], [1, 2]], [[9.0, 2.0], [9.0, 2.0], [9.0, 50.0]]
    pages: dict[str, Any] = {"query": ["q"] * 3, "ads": [["a", "b"]] * 3}
    log = {**pages, "clicks": clicks, "dwell_seconds": dwell}
    many = {name: values * 6 for name, values in log.items()}
    for fold in folds_of_click_sets(as_grouped(many), 3, seed=0):
        kept = fold.train.whole.lowest_click_outcome
        assert kept is not None
        weight = np.bincount(kept, fold.train.weight, 3)
        np.testing.assert_array_equal(weight, [4, 4, 4])  # backward, quick return, stayed


def test_last_values_of_runs() -> None:
    values = np.array([3, 1, 2], np.int8)
    assert last_of_runs(values, np.array([0, 0, 2, 3, 3])).tolist() == [0, 1, 2, 0]
