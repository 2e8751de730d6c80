"""Where a fit starts: at simple counts of the ads, the transitions and the ends of sessions.

Counting treats every end after a click alike and ignores which ads stood next to a clicked one. The
fit then corrects this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Bool, Float64, Int32, Int64, positions_in_runs
from reclick.fitting.factors import FactorTable
from reclick.models.luce.e_step import clicks_by_pair
from reclick.models.luce.m_step import Objective
from reclick.models.luce.parameters import (
    MIN_PROBABILITY,
    LuceParameters,
    outside_table,
    transition_table,
)
from reclick.runtime.jit import kernel

MIN_STRENGTH = 1.0  # pseudo-clicks that counts are smoothed with, so that no pair starts at 0
MIN_RATE = 0.05  # rates stay this far from 0 and from 1
SOLVER_ROUNDS = 60  # over tables, not over sessions


class TransitionCounts(NamedTuple):
    """What users did after a click at `last` (0: at the start), and after a number of clicks."""

    clicked: Float64  # [last, position]
    free_on_click: Float64  # [last, position] how often a position was free when a user clicked
    free_on_end: Float64  # [last, position] … and when a session ended
    continued: Float64  # [clicks so far] how often users clicked again
    ended: Float64  # [clicks so far] … and ended


class InitialCounts(NamedTuple):
    """Counts of each pair [pair], and of the transitions of all users."""

    clicks: Float64
    expected: Float64  # clicks that an average pair would have had at its positions
    followed: Float64  # clicks that left another ad to click
    last_clicks: Float64  # of these, the last of their session
    transitions: TransitionCounts

    def attractiveness(self, prior_mean: Float64, strength: float) -> Float64:
        """Clicks over expected clicks, shrunk to the prior means [pair]."""
        strength = max(strength, MIN_STRENGTH)
        return np.asarray((self.clicks + strength) / (self.expected + strength / prior_mean))

    def satisfaction(self, mean: float, strength: float) -> Float64:
        """The mean, times a pair's rate of last clicks over that of all, shrunk [pair]."""
        strength = max(strength, MIN_STRENGTH)
        overall = self.last_clicks.sum() / max(self.followed.sum(), MIN_PROBABILITY)
        overall = max(float(overall), MIN_PROBABILITY)
        rate = (self.last_clicks / overall + strength) / (self.followed + strength)
        return np.clip(mean * rate, MIN_PROBABILITY, 1 - MIN_PROBABILITY)


def count_sessions(sessions: GroupedSessions) -> InitialCounts:
    """Count grouped sessions; `sessions.counts` may be of more than these."""
    longest, sizes = max(sessions.counts.max_ads, 1), np.diff(sessions.page)
    transitions = _count_transitions(sessions, longest)
    shown = np.bincount(sizes, sessions.weight, longest + 1)[::-1].cumsum()[::-1][1:]  # [position]
    rate = transitions.clicked.sum(axis=0) / np.maximum(shown, MIN_PROBABILITY)
    clicks, followed = clicks_by_pair(sessions)
    weight = np.repeat(sessions.weight, sizes) * rate[positions_in_runs(sessions.page)]
    n_clicks = np.diff(sessions.clicks)
    ended = np.flatnonzero((n_clicks > 0) & (n_clicks < sizes))
    last = sessions.click[sessions.clicks[ended + 1] - 1]
    last_pair = sessions.pair[sessions.page[ended] + last - 1]
    return InitialCounts(
        clicks,
        np.bincount(sessions.pair, weight, len(clicks)).astype(np.float64),
        followed,
        np.bincount(last_pair, sessions.weight[ended], len(clicks)).astype(np.float64),
        transitions,
    )


def _count_transitions(sessions: GroupedSessions, longest: int) -> TransitionCounts:
    clicked, free = np.zeros((longest + 1, longest)), np.zeros((2, longest + 1, longest))
    steps, is_clicked = np.zeros((2, longest + 1)), np.zeros(longest, np.bool_)
    block = sessions.whole
    _add_transitions(
        block.page, block.click, block.clicks, block.weight, clicked, free, steps, is_clicked
    )
    return TransitionCounts(clicked, *free, *steps)


@kernel
def _add_transitions(
    page: Int64,
    click: Int32,
    clicks: Int64,
    weight: Float64,
    clicked: Float64,
    free: Float64,
    steps: Float64,
    is_clicked: Bool,
) -> None:
    for s in range(len(weight)):
        n, begin, n_clicks = page[s + 1] - page[s], clicks[s], clicks[s + 1] - clicks[s]
        for j in range(n):
            is_clicked[j] = False
        last = 0
        for k in range(n_clicks + 1 if n_clicks < n else n):
            end = 1 if k == n_clicks else 0
            steps[end, k] += weight[s]
            for j in range(n):
                if not is_clicked[j]:
                    free[end, last, j] += weight[s]
            if end == 0:
                position = click[begin + k]
                clicked[last, position - 1] += weight[s]
                last = position
                is_clicked[last - 1] = True


def initial_from_counts(objective: Objective, counts: InitialCounts) -> LuceParameters:
    """Attractiveness, transitions and outside option as they were counted."""
    start = objective.initial_parameters()
    strength = objective.hyperparameters.attractiveness_strength
    transition, outside = _solve_factors(objective, counts.transitions)
    return start._replace(
        theta=counts.attractiveness(objective.prior_mean, strength),
        transition=np.append(transition, start.transition[len(transition) :]),
        outside=np.append(outside, start.outside[len(outside) :]),
    )


def _solve_factors(objective: Objective, counts: TransitionCounts) -> tuple[Float64, Float64]:
    """The factors of γ and ω common to all components, if all ads had weight 1.

    Let the outside option weigh 1, at the start and after a click. Its probability is then 1 / Z,
    the exposure of one choice of the weights next to it. It is the share of sessions that end
    there, less those that are satisfied. After k clicks this share is another, and so is Z.
    """
    chosen, longest = objective.hyperparameters, len(counts.clicked) - 1
    satisfied = np.where(np.arange(longest + 1) > 0, objective.satisfaction_mean, 0.0)
    ended, steps = counts.ended, counts.ended + counts.continued
    overall = np.full(longest + 1, ended[1:].sum() / max(steps[1:].sum(), MIN_PROBABILITY))
    overall[0] = ended[0] / max(steps[0], MIN_PROBABILITY)
    leave, unsatisfied = _split_ends(overall, satisfied)
    share = (ended + MIN_STRENGTH * overall) / (steps + MIN_STRENGTH)
    leave_after, unsatisfied_after = _split_ends(share, satisfied)
    exposure = leave * (1 - leave_after) / (1 - leave)  # 1 / (ω + the weights next to it)
    free = counts.free_on_click + unsatisfied[:, None] * counts.free_on_end
    stopped = unsatisfied_after * ended
    transition = transition_table(1, longest, chosen.transition_strength, chosen.component_strength)
    outside = outside_table(1, longest, chosen.component_strength)
    return (
        _solve(transition, counts.clicked, leave[:, None] * free),
        _solve(outside, stopped, exposure * (counts.continued + stopped)),
    )


def _split_ends(share: Float64, satisfied: Float64) -> tuple[Float64, Float64]:
    """P(ends | not satisfied) and P(not satisfied | ended), from P(ends) and P(satisfied)."""
    share = np.clip(share, MIN_RATE, 1 - MIN_RATE)
    leave = np.clip((share - satisfied) / (1 - satisfied), MIN_RATE, 1 - MIN_RATE)
    unsatisfied = (1 - satisfied) * leave
    return leave, unsatisfied / (satisfied + unsatisfied)


def _solve(table: FactorTable, observed: Float64, exposure: Float64) -> Float64:
    """The factors under which cells are expected as often as observed, up to the priors."""
    factors = np.ones(table.n_factors)
    for _ in range(SOLVER_ROUNDS):
        factors = table.mm_step(factors, observed, exposure * table.table(factors))
    return factors
