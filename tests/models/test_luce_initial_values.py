"""Where a fit of LuceClick starts: at counts of the sessions and of a history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reclick.engines import as_grouped, count
from reclick.models import LuceClick, MultiClick
from reclick.models.luce.initial_values import (
    InitialCounts,
    TransitionCounts,
    count_sessions,
    initial_from_counts,
)
from reclick.models.luce.m_step import maximise
from reclick.models.luce.parameters import Hyperparameters
from reclick.simulation import simulate
from tests.support.enumeration import as_table, random_sessions
from tests.support.luce_world import PLAIN, objective_for

LOG = {
    "query": ["q", "q", "q", "r"],
    "ads": [["a", "b"], ["b", "a"], ["a", "b"], ["a"]],
    "clicks": [[2, 1], [1], [], [1]],
}
NO_TRANSITIONS = TransitionCounts(*np.zeros((5, 1)))


def test_pairs_are_counted_as_the_log_is() -> None:
    for log in (LOG, as_table(random_sessions(np.random.default_rng(2), 300))):
        sessions, counts = as_grouped(log), count(log)
        counted, shown, many = (
            count_sessions(sessions),
            np.diff(sessions.page),
            np.diff(sessions.clicks),
        )
        np.testing.assert_allclose(counted.clicks, counts.clicks)
        assert counted.expected.sum() == pytest.approx(counts.clicks.sum())
        full = sessions.weight[
            many == shown
        ].sum()  # after the last click on such a page nothing is left
        assert counted.followed.sum() == pytest.approx(counts.clicks.sum() - full)
        assert counted.last_clicks.sum() == pytest.approx(counts.last_clicks.sum() - full)
        assert (counted.last_clicks <= counts.last_clicks).all()


def test_transitions_and_expected_clicks_by_hand() -> None:
    counted = count_sessions(as_grouped(LOG))
    steps = counted.transitions
    np.testing.assert_allclose(steps.clicked, [[2, 1], [0, 0], [1, 0]])
    np.testing.assert_allclose(
        steps.free_on_click, [[3, 2], [0, 0], [1, 0]]
    )  # free when users went on
    np.testing.assert_allclose(
        steps.free_on_end, [[1, 1], [0, 1], [0, 0]]
    )  # … and when they ended; with all ads clicked nothing is chosen any more
    np.testing.assert_allclose(steps.continued, [3, 1, 0])
    np.testing.assert_allclose(steps.ended, [1, 1, 0])
    # of four on top three were clicked, of three below one
    np.testing.assert_allclose(counted.expected, [2 * 3 / 4 + 1 / 3, 3 / 4 + 2 / 3, 3 / 4])
    # pairs (q, a), (q, b), (r, a): b was clicked before a, and last once; a after b, and alone
    np.testing.assert_allclose(counted.followed, [0, 2, 0])
    np.testing.assert_allclose(counted.last_clicks, [0, 1, 0])


def test_a_fold_is_counted_without_the_sessions_held_out_of_it() -> None:
    sessions = as_grouped(as_table(random_sessions(np.random.default_rng(2), 300)))
    some = sessions.select(np.arange(0, len(sessions), 3))
    assert (
        count_sessions(some).clicks.sum()
        == (some.weight * np.diff(some.clicks)).sum()
        < sessions.counts.clicks.sum()
    )


def test_the_start_of_pairs_by_hand() -> None:
    counted = InitialCounts(
        np.array([6.0, 2.0, 0.0]),
        np.array([2.0, 6.0, 0.0]),
        np.array([6.0, 2.0, 0.0]),
        np.array([3.0, 1.0, 0.0]),
        NO_TRANSITIONS,
    )
    np.testing.assert_allclose(counted.attractiveness(np.ones(3), 2.0), [8 / 4, 4 / 8, 1])
    np.testing.assert_allclose(
        counted.satisfaction(0.3, 5.0), [0.3, 0.3, 0.3]
    )  # half of all clicks were the last, and half of each ad's
    more = counted._replace(last_clicks=np.array([4.0, 0.0, 0.0]))
    np.testing.assert_allclose(
        more.satisfaction(0.3, 5.0), [0.3 * (4 / 0.5 + 5) / 11, 0.3 * 5 / 7, 0.3]
    )


def test_no_pair_starts_where_it_could_not_leave() -> None:
    for clicks in (np.zeros(2), np.array([0.0, 5.0])):
        counted = InitialCounts(clicks, np.array([5.0, 5.0]), clicks, clicks, NO_TRANSITIONS)
        theta, rho = counted.attractiveness(np.ones(2), 0.0), counted.satisfaction(0.999, 0.0)
        assert (theta > 0).all()
        assert ((rho > 0) & (rho < 1)).all()


@pytest.mark.parametrize("components", [1, 2])
def test_a_fit_from_counts_starts_higher_and_ends_at_the_same_maximum(components: int) -> None:
    log = simulate(10_000, weeks=1, queries=200, seed=4).weeks[0]
    sessions = as_grouped(log)
    made = objective_for(log, Hyperparameters(components=components))
    fits = [
        maximise(made, start, max_iterations=3000, tolerance=1e-8, quiet=True)
        for start in (
            initial_from_counts(made, count_sessions(sessions)),
            made.initial_parameters(),
        )
    ]
    warm, cold = fits
    assert warm.converged
    assert cold.converged
    total = cold.objective[-1] - cold.objective[0]
    assert warm.objective[0] > cold.objective[0] + 0.9 * total
    within = [
        next(
            i
            for i, value in enumerate(each.objective)
            if value > cold.objective[-1] - 0.005 * len(sessions)
        )
        for each in fits
    ]
    assert within[0] <= within[1]
    assert warm.objective[-1] == pytest.approx(cold.objective[-1], abs=4e-5 * sessions.weight.sum())


def test_logs_without_clicks_or_where_all_is_clicked_still_have_a_start() -> None:
    only: tuple[list[list[int]], ...] = ([[]], [[1]], [[2, 1]])
    for clicks in only:
        log = {"query": ["q"], "ads": [["a", "b"]], "clicks": clicks}
        made = objective_for(log, Hyperparameters())
        start = initial_from_counts(made, count_sessions(as_grouped(log)))
        assert all(np.isfinite(values).all() and (values > 0).all() for values in start)


def test_an_ad_alone_on_its_page_starts_with_the_prior_mean_of_satisfaction() -> None:
    sessions = as_grouped(
        {
            "query": ["q"] * 4,
            "ads": [["a"], ["a"], ["b", "c"], ["b", "c"]],
            "clicks": [[1], [1], [1], [1, 2]],
        }
    )
    assert count_sessions(sessions).satisfaction(0.4, 2.0)[0] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("counted", "settings"),
    [
        (False, {"satisfaction_prior": "overall", "attractiveness_strength": 2.0}),
        (True, {"components": 2, "mixing_strength": 3.0}),
    ],
)
def test_a_history_changes_the_start_and_not_the_objective(
    counted: bool, settings: dict[str, Any]
) -> None:
    before, now = simulate(3_000, weeks=2, queries=40, seed=5).weeks
    history: Any = MultiClick().fit(before).counts_ if counted else before
    given: dict[str, Any] = {
        **PLAIN,
        "satisfaction_prior": 0.3,
        "tolerance": 1e-8,
        "max_iterations": 3000,
        **settings,
    }
    alone, after = LuceClick(**given).fit(now), LuceClick(**given).fit(now, history=history)
    assert after.objective_[0] != alone.objective_[0]
    assert after.converged_
    assert after.hyperparameters_ == alone.hyperparameters_
    np.testing.assert_array_equal(after.mixing_, alone.mixing_)
    assert after.satisfaction_ == alone.satisfaction_
    assert after.objective_[-1] == pytest.approx(alone.objective_[-1], rel=1e-5)
    np.testing.assert_allclose(after.theta_, alone.theta_, rtol=0.05)


def test_a_history_does_not_change_the_satisfaction_of_an_ad_without_clicks_in_the_log() -> None:
    log = {
        "query": ["q"] * 40,
        "ads": [["a", "b", "c"]] * 40,
        "clicks": [[1], [2, 1], [], [2]] * 10,
    }
    history = {"query": ["q"] * 100, "ads": [["a", "b", "c"]] * 100, "clicks": [[3, 1]] * 100}
    given: dict[str, Any] = {**PLAIN, "satisfaction_prior": 0.3}
    with_it, without = LuceClick(**given).fit(log, history=history), LuceClick(**given).fit(log)
    assert with_it.rho_[2] == without.rho_[2] == pytest.approx(0.3)
