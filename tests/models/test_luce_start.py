"""Where a fit of LuceClick starts: at the counts, of the sessions and of a history. It changes the way up and not the top."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from brute import as_table, random_sessions

from reclick.counts import Counts, count
from reclick.models import LuceClick, MultiClick
from reclick.models.luce.climbing import climb
from reclick.models.luce.counted import Counted, count_pairs
from reclick.models.luce.parameters import Options
from reclick.models.luce.problem import Problem
from reclick.sessions import Sessions, as_sessions
from reclick.simulation import simulate

LOG = {"query": ["q", "q", "q", "r"], "ads": [["a", "b"], ["b", "a"], ["a", "b"], ["a"]], "clicks": [[2, 1], [1], [], [1]]}
PLAIN: dict[str, Any] = {"attractiveness_strength": 2.0, "satisfaction_strength": 5.0, "query_strength": None, "transition_strength": 4.0, "kinds": 1}


def problem(sessions: Sessions, counted: Counted | None = None) -> Problem:
    return Problem(sessions, Options(), np.ones(len(sessions.counts.impressions)), 0.3, np.ones(1), counted)


def equal(pairs: int) -> Counted:
    """Counts that tell no pair from another, which is the start without them."""
    return Counted(*np.zeros((3, pairs)))


def test_pairs_are_counted_as_the_log_is() -> None:
    for log in (LOG, as_table(random_sessions(np.random.default_rng(2), 300))):
        sessions, counts = as_sessions(log), count(log)
        for name, found in count_pairs(sessions)._asdict().items():
            np.testing.assert_allclose(found, getattr(counts, name), err_msg=name)


def test_a_fold_is_counted_without_the_sessions_held_out_of_it() -> None:
    sessions = as_sessions(as_table(random_sessions(np.random.default_rng(2), 300)))
    some = sessions.select(np.arange(0, len(sessions), 3))
    assert count_pairs(some).clicks.sum() < sessions.counts.clicks.sum()
    assert count_pairs(some).impressions.sum() == (some.weight * np.diff(some.page)).sum()


def test_the_start_by_hand() -> None:
    counted = Counted(np.array([10.0, 30.0, 0.0]), np.array([6.0, 2.0, 0.0]), np.array([3.0, 1.0, 0.0]))
    # 8 clicks of 40 impressions: an average pair would have had 2, 6 and 0
    np.testing.assert_allclose(counted.attractiveness(np.ones(3), 2.0), [8 / 4, 4 / 8, 1])
    # half of the clicks were the last, and half of each ad's
    np.testing.assert_allclose(counted.satisfaction(0.3, 5.0), [0.3, 0.3, 0.3])
    more = counted._replace(last_clicks=np.array([4.0, 0.0, 0.0]))
    np.testing.assert_allclose(more.satisfaction(0.3, 5.0), [0.3 * (4 / 0.5 + 5) / 11, 0.3 * 5 / 7, 0.3])


def test_no_pair_starts_where_it_could_not_leave() -> None:
    for counted in (equal(2), Counted(np.array([5.0, 5.0]), np.array([0.0, 5.0]), np.array([0.0, 5.0]))):
        theta, rho = counted.attractiveness(np.ones(2), 0.0), counted.satisfaction(0.999, 0.0)
        assert (theta > 0).all()
        assert ((rho > 0) & (rho < 1)).all()


def test_counts_start_higher_and_lead_to_the_same_top() -> None:
    sessions = as_sessions(simulate(20_000, weeks=1, queries=200, seed=4).weeks[0])
    warm, cold = problem(sessions), problem(sessions, equal(len(sessions.counts.impressions)))
    fits = [climb(each, each.start(), max_iterations=3000, tolerance=1e-9, quiet=True) for each in (warm, cold)]
    assert all(each.converged for each in fits)
    assert fits[0].objective[0] > fits[1].objective[0] + 100
    assert len(fits[0].objective) <= len(fits[1].objective)
    assert fits[0].objective[-1] == pytest.approx(fits[1].objective[-1], abs=1e-3)
    np.testing.assert_allclose(fits[0].parameters.theta, fits[1].parameters.theta, rtol=0.02)


@pytest.mark.parametrize("kept", [False, True])
def test_a_history_is_where_the_climb_starts_and_not_what_it_climbs(kept: bool) -> None:
    before, now = simulate(3_000, weeks=2, queries=40, seed=5).weeks
    history: Counts | Any = MultiClick().fit(before).counts_ if kept else before
    settings: dict[str, Any] = {**PLAIN, "tolerance": 1e-9, "max_iterations": 3000}
    alone, after = LuceClick(**settings).fit(now), LuceClick(**settings).fit(now, history=history)
    assert after.objective_[0] != alone.objective_[0]
    assert after.converged_
    np.testing.assert_allclose(after.theta_, alone.theta_, rtol=0.05)
    assert after.log_prob(now).mean() == pytest.approx(alone.log_prob(now).mean(), abs=1e-3)
