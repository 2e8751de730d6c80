"""Where a fit starts: at what counting says, as MultiClick counts, of the ads and of where the eye goes.

Counting takes every end after a click for the same, and does not know which ads stood beside a clicked one; the fit then sets this right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.clicks.chain import EDGE
from reclick.data.batch import Float64, Int32, Int64
from reclick.data.grouped_sessions import Sessions
from reclick.fitting.factors import Levels, eye_levels, out_levels
from reclick.models.luce.objective import Problem
from reclick.models.luce.parameters import Parameters
from reclick.runtime.jit import kernel

LEAST = 1.0  # pseudo-clicks that counts are smoothed by, at least, so that no pair starts at 0
SURELY = 0.05  # how near to 0 and 1 a rate may come that the start is made of
ROUNDS = 60  # to solve for the factors of the start; a round is over tables and not over sessions


class Steps(NamedTuple):
    """What users did after a click at `last` (0: at the start), and after so many clicks."""

    chosen: Float64  # [last, position]
    left: Float64  # [last, position] how often a position was free when a user went on
    ended: Float64  # [last, position] … and when one ended
    many_left: Float64  # [clicks so far] how often users went on
    many_ended: Float64  # [clicks so far] … and ended


class Counted(NamedTuple):
    """What was counted of each pair [pair], and all users' steps."""

    clicks: Float64
    expected: Float64  # clicks that an average pair would have had in its places
    followed: Float64  # clicks that left another ad to click
    last_clicks: Float64  # of these, the last
    steps: Steps

    def attractiveness(self, means: Float64, strength: float) -> Float64:
        """Clicks over expected clicks, shrunk towards the means [pair]."""
        strength = max(strength, LEAST)
        return np.asarray((self.clicks + strength) / (self.expected + strength / means))

    def satisfaction(self, mean: float, strength: float) -> Float64:
        """The mean, times a pair's share of last clicks over that of all, shrunk [pair]."""
        strength = max(strength, LEAST)
        overall = max(float(self.last_clicks.sum() / max(self.followed.sum(), EDGE)), EDGE)
        return np.clip(
            mean * (self.last_clicks / overall + strength) / (self.followed + strength),
            EDGE,
            1 - EDGE,
        )


def count_sessions(sessions: Sessions) -> Counted:
    """Count grouped sessions; `sessions.counts` may be of more than these."""
    pairs, longest = len(sessions.counts.impressions), max(sessions.counts.max_ads, 1)
    steps = Steps(
        *_count_steps(sessions.page, sessions.click, sessions.clicks, sessions.weight, longest)
    )
    shown = np.bincount(np.diff(sessions.page), sessions.weight, longest + 1)[::-1].cumsum()[::-1][
        1:
    ]  # [position]
    rate = steps.chosen.sum(axis=0) / np.maximum(shown, EDGE)
    return Counted(
        *_count_pairs(
            sessions.pair,
            sessions.page,
            sessions.click,
            sessions.clicks,
            sessions.weight,
            rate,
            pairs,
        ),
        steps,
    )


@kernel
def _count_pairs(
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64, rate: Float64, pairs: int
) -> tuple[Float64, Float64, Float64, Float64]:  # fmt: skip
    """The four counts of each pair; `rate` [position] is that of an average pair."""
    clicked, expected, followed, last_clicks = (
        np.zeros(pairs),
        np.zeros(pairs),
        np.zeros(pairs),
        np.zeros(pairs),
    )
    for s in range(len(weight)):
        n, many = page[s + 1] - page[s], clicks[s + 1] - clicks[s]
        for i in range(page[s], page[s + 1]):
            expected[pair[i]] += weight[s] * rate[i - page[s]]
        for k in range(many):
            at = pair[page[s] + click[clicks[s] + k] - 1]
            clicked[at] += weight[s]
            if k + 1 < n:
                followed[at] += weight[s]
                if k + 1 == many:
                    last_clicks[at] += weight[s]
    return clicked, expected, followed, last_clicks


@kernel
def _count_steps(
    page: Int64, click: Int32, clicks: Int64, weight: Float64, longest: int
) -> tuple[Float64, Float64, Float64, Float64, Float64]:
    chosen, free = np.zeros((longest + 1, longest)), np.zeros((2, longest + 1, longest))
    many = np.zeros((2, longest + 1))
    clicked = np.zeros(longest, np.bool_)
    for s in range(len(weight)):
        n, begin, count = page[s + 1] - page[s], clicks[s], clicks[s + 1] - clicks[s]
        clicked[:n] = False
        last = 0
        for k in range(min(count + 1, n)):
            end = 1 if k == count else 0
            many[end, k] += weight[s]
            for j in range(n):
                if not clicked[j]:
                    free[end, last, j] += weight[s]
            if end == 0:
                chosen[last, click[begin + k] - 1] += weight[s]
                last = click[begin + k]
                clicked[last - 1] = True
    return chosen, free[0], free[1], many[0], many[1]


def counted_start(problem: Problem, counted: Counted) -> Parameters:
    """Ads, the eye and the outside option as they were counted."""
    start = problem.fresh()
    theta = counted.attractiveness(problem.means, problem.options.attractiveness_strength)
    eye, out = _habits(problem, counted.steps)
    return start._replace(
        theta=theta,
        eye=np.append(eye, start.eye[len(eye) :]),
        out=np.append(out, start.out[len(out) :]),
    )


def _habits(problem: Problem, steps: Steps) -> tuple[Float64, Float64]:
    """The factors of γ and ω that are common to all kinds, as the rates of going on and of ending say where all ads are of weight 1.

    Let the outside option weigh 1, at the start and after a click: its chance is then 1 / Z, the exposure of one choice of the weights beside it, and
    it is the share of sessions that end there, of which satisfaction takes its own. After k clicks this share is another, and so Z is.
    """
    options, longest = problem.options, len(steps.chosen) - 1
    satisfied = np.where(np.arange(longest + 1) > 0, problem.satisfied, 0.0)
    ended, went_on = steps.many_ended, steps.many_left
    overall = np.full(longest + 1, ended[1:].sum() / max((ended + went_on)[1:].sum(), EDGE))
    overall[0] = ended[0] / max(ended[0] + went_on[0], EDGE)
    leave, act = _tired(overall, satisfied)
    leave_then, act_then = _tired((ended + LEAST * overall) / (ended + went_on + LEAST), satisfied)
    exposure = leave * (1 - leave_then) / (1 - leave)  # 1 / (ω + the weights beside it)
    eye, out = (
        eye_levels(1, longest, options.transition_strength, options.component_strength),
        out_levels(1, longest, options.component_strength),
    )
    return (
        _solved(eye, steps.chosen, leave[:, None] * (steps.left + act[:, None] * steps.ended)),
        _solved(out, act_then * ended, exposure * (went_on + act_then * ended)),
    )


def _tired(share: Float64, satisfied: Float64) -> tuple[Float64, Float64]:
    """P(ends | not satisfied) and P(not satisfied | ended), where this share of sessions ends and so many are satisfied."""
    leave = np.clip(
        (np.clip(share, SURELY, 1 - SURELY) - satisfied) / (1 - satisfied), SURELY, 1 - SURELY
    )
    return leave, (1 - satisfied) * leave / (satisfied + (1 - satisfied) * leave)


def _solved(levels: Levels, chosen: Float64, exposure: Float64) -> Float64:
    """The factors under which each cell is pulled as often as it was chosen, but for their priors."""
    factors = np.ones(levels.starts[-1])
    for _ in range(ROUNDS):
        factors = levels.climbed(factors, chosen, exposure.ravel() * levels.table(factors).ravel())
    return factors
