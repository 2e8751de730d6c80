"""THCM: the eye walks over the page, forward and back, and may return to ads it has passed: clicks come in any order."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from reclick.clicks.chain import EDGE
from reclick.clicks.choice import WALK
from reclick.clicks.distribution import Pages
from reclick.clicks.walk import walk_visits
from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.errors import SettingError
from reclick.fitting.em import Statistics, check_loop, maximise_objective
from reclick.fitting.priors import log_beta, posterior
from reclick.models.base import ClickModel
from reclick.models.settings import check_prior, check_range
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex


class Walk(NamedTuple):
    """What EM learns."""

    theta: Float64  # [pair]
    steps: Float64  # forward α, back γ, stop 1 − α − γ


class THCM(ClickModel):
    """The eye starts at position 1. From each position it looks at it goes on with α, back with γ, or stops; leaving the page stops too.

    An ad that is looked at and not clicked yet is clicked with θ(q, d), at every look anew. The walk between two clicks is hidden and summed exactly:
    looks v_i = s_i + (1 − θ_{i−1}) α v_{i−1} + (1 − θ_{i+1}) γ v_{i+1} (θ = 0 where clicked already), P(next click is j) = v_j θ_j.
    The walk does not heed the clicks, so P(j is ever clicked) = reach_j θ_j / (1 − (1 − θ_j) return_j), on pages of any length.

    EM: with h_i = P(the segment ends as it did | the eye is at i), the looks at i that led to no click come to v_i (1 − θ_i) (α h_{i+1} + γ h_{i−1}
    + stops) / P, and the steps likewise; θ = (clicks + prior) / (clicks + looks without a click + prior), (α, γ, stop) = shares of expected steps.

    Settings: the attractiveness prior as everywhere; `forward_prior` and `back_prior`, prior means of α and γ, and `step_strength`, in steps.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2, 1], [1, 2]]}
    >>> model = THCM().fit(log)
    >>> bool(model.log_prob({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})[0] > -4)
    True
    """

    name: ClassVar[str] = "thcm"
    assumes: ClassVar[str] = (
        "the eye steps forward or back from ad to ad, or stops; each look may click"
    )
    reference: ClassVar[str] = "Xu, Liu, Zhang, Ma, Ru 2012, WSDM (the temporal hidden click model)"
    ordered: ClassVar[bool] = True
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_", "forward_", "back_")

    def __init__(
        self,
        *,
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: float = 1.0,
        forward_prior: float = 0.6,
        back_prior: float = 0.2,
        step_strength: float = 1.0,
        frequent: float = 50,
        max_iterations: int = 100,
        tolerance: float = 1e-5,
    ) -> None:
        check_prior("attractiveness_prior", attractiveness_prior, ("overall", "words"))
        for name, value in (
            ("attractiveness_strength", attractiveness_strength),
            ("step_strength", step_strength),
            ("frequent", frequent),
        ):
            check_range(name, value, 0, sys.float_info.max)
        check_range("forward_prior", forward_prior, 1e-6, 1 - 1e-6)
        check_range("back_prior", back_prior, 1e-6, 1 - 1e-6)
        if forward_prior + back_prior > 1 - 1e-6:
            raise SettingError(
                f"forward_prior + back_prior: got {forward_prior + back_prior:g}, expected less than 1: the rest stops."
            )
        check_loop(max_iterations, tolerance)
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.forward_prior = forward_prior
        self.back_prior = back_prior
        self.step_strength = step_strength
        self.frequent = frequent
        self.max_iterations = max_iterations
        self.tolerance = tolerance

    def _estimate(self, sessions: Sessions, means: Float64, history: Counts) -> None:
        clicks = sessions.counts.clicks
        prior = np.array(
            [self.forward_prior, self.back_prior, 1 - self.forward_prior - self.back_prior]
        )

        def maximise(statistics: Statistics) -> Walk:
            theta = posterior(
                clicks, clicks + statistics["looks"], means, self.attractiveness_strength
            )
            steps = np.asarray(statistics["steps"])
            return _possible(Walk(theta, posterior(steps, steps.sum(), prior, self.step_strength)))

        def log_prior(walk: Walk) -> float:
            stepping = (
                self.step_strength * float(prior @ np.log(walk.steps))
                if self.step_strength
                else 0.0
            )
            return log_beta(walk.theta, means, self.attractiveness_strength) + stepping

        fit = maximise_objective(
            _possible(Walk(means, prior)), sessions.blocks(os.cpu_count() or 1), expect, maximise,
            log_prior=log_prior, sessions=sessions.counts.total, max_iterations=self.max_iterations, tolerance=self.tolerance,
        )  # fmt: skip
        self.theta_ = fit.parameters.theta
        self.exposure_ = clicks + np.asarray(fit.statistics["looks"])
        self.forward_, self.back_ = (float(step) for step in fit.parameters.steps[:2])
        self.iterations_, self.converged_, self.objective_, self.message_ = (
            len(fit.objective),
            fit.converged,
            fit.objective,
            fit.message,
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = np.clip(
            self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text), EDGE, 1 - EDGE
        )

        def pages(start: int, end: int) -> Pages:
            page = batch.page[start : end + 1]
            length = int(np.diff(page).max(initial=1))
            stop = np.zeros((1, length + 1))
            stop[0, :2] = self.forward_, self.back_
            unused = np.zeros((1, length + 1, length))
            return Pages(
                WALK,
                theta[page[0] : page[-1]],
                np.zeros(page[-1] - page[0]),
                stop,
                unused,
                page - page[0],
                np.zeros(end - start, np.int64),
            )

        return pages

    def _learnt(self) -> str:
        return f"{super()._learnt()}\n  forward_ = {self.forward_:.3f}  back_ = {self.back_:.3f}"


def _possible(walk: Walk) -> Walk:
    """The same, nothing in it being quite impossible or certain."""
    steps = np.maximum(walk.steps, EDGE)
    return Walk(np.clip(walk.theta, EDGE, 1 - EDGE), steps / steps.sum())


def expect(walk: Walk, block: Sessions) -> Statistics:
    """Expected looks without a click on free ads [pair], steps forward, back and stops [3], and the log-likelihood."""
    looks, steps = np.zeros(len(walk.theta)), np.zeros(3)
    total = _expect(
        walk.theta,
        walk.steps,
        block.pair,
        block.page,
        block.click,
        block.clicks,
        block.weight,
        looks,
        steps,
    )
    return {"looks": looks, "steps": steps, "log_likelihood": total}


@kernel
def _expect(
    theta: Float64,
    step: Float64,
    pair: Int32,
    page: Int64,
    click: Int32,
    clicks: Int64,
    weight: Float64,
    looks: Float64,
    steps: Float64,
) -> float:
    longest = 1
    for s in range(len(weight)):
        longest = max(longest, page[s + 1] - page[s])
    room = np.empty((5, longest))
    total = 0.0
    for s in range(len(weight)):
        n = page[s + 1] - page[s]
        here, free, visits, ahead, upper = (
            room[0, :n],
            room[1, :n],
            room[2, :n],
            room[3, :n],
            room[4, :n],
        )
        for i in range(n):
            here[i], free[i] = theta[pair[page[s] + i]], 1.0
        last = 0
        for k in range(clicks[s], clicks[s + 1] + 1):
            goal = click[k] if k < clicks[s + 1] else 0  # 0: the session ends
            walk_visits(here, step[0], step[1], last, free, visits)
            _hits(here, step, goal, free, upper, ahead)
            chance = _segment(here, step, last, goal, free, visits, ahead)
            total += weight[s] * np.log(chance)
            _add_segment(
                here,
                step,
                last,
                goal,
                free,
                visits,
                ahead,
                weight[s] / chance,
                pair[page[s] : page[s + 1]],
                looks,
                steps,
            )
            if goal > 0:
                free[goal - 1] = 0.0
            last = goal
    return total


@kernel
def _hits(
    theta: Float64, step: Float64, goal: int, free: Float64, upper: Float64, hit: Float64
) -> None:
    """Fill hit[i] with P(the next click is the goal | the eye is at i), the goal 0 being no more click.

    h_i = θ_i [i = goal] + (1 − θ_i) (α h_{i+1} + γ h_{i−1} + [goal = 0] stop), beyond the page h = [goal = 0]: a band of three.
    """
    n = len(theta)
    beyond = 1.0 if goal == 0 else 0.0
    for i in range(n):
        stay = 1.0 - theta[i] * free[i]
        known = stay * step[2] * beyond + (theta[i] if i == goal - 1 else 0.0)
        known += stay * beyond * ((step[1] if i == 0 else 0.0) + (step[0] if i == n - 1 else 0.0))
        pivot = 1.0 - stay * step[1] * upper[i - 1] if i > 0 else 1.0
        upper[i] = stay * step[0] / pivot
        hit[i] = (known + (stay * step[1] * hit[i - 1] if i > 0 else 0.0)) / pivot
    for i in range(n - 2, -1, -1):
        hit[i] += upper[i] * hit[i + 1]


@kernel
def _segment(
    theta: Float64,
    step: Float64,
    last: int,
    goal: int,
    free: Float64,
    visits: Float64,
    hit: Float64,
) -> float:
    """P(the next click is the goal | the last click), the goal 0 being no more click."""
    if goal > 0:
        return float(visits[goal - 1] * theta[goal - 1])
    if last == 0:
        return float(hit[0])
    forward = hit[last] if last < len(theta) else 1.0
    back = hit[last - 2] if last > 1 else 1.0
    return float(step[0] * forward + step[1] * back + step[2])


@kernel
def _add_segment(
    theta: Float64, step: Float64, last: int, goal: int, free: Float64, visits: Float64, hit: Float64,
    weight: float, pair: Int32, looks: Float64, steps: Float64,
) -> None:  # fmt: skip
    """Add the looks and steps expected in a segment; the weight is divided by the segment's probability."""
    n = len(theta)
    beyond = 1.0 if goal == 0 else 0.0
    for i in range(n):
        passed = visits[i] * (1.0 - theta[i] * free[i]) * weight
        forward = step[0] * (hit[i + 1] if i < n - 1 else beyond)
        back = step[1] * (hit[i - 1] if i > 0 else beyond)
        stop = step[2] * beyond
        looks[pair[i]] += passed * free[i] * (forward + back + stop)
        moves = passed + (
            weight if i == last - 1 else 0.0
        )  # the eye moves on from the last click too
        steps[0] += moves * forward
        steps[1] += moves * back
        steps[2] += moves * stop
