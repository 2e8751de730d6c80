"""THCM, the temporal hidden click model: examination walks forward and back over the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.step import walk_visits
from reclick.clicks.walk import WalkPages
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import BlockRows, GroupedSessions, QueryBlock, cut_rows
from reclick.data.ragged import Float64, Int32, Int64
from reclick.errors import SettingError
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import EMProblem, FitResult, PairSums, Statistics
from reclick.models.base import ClickModel
from reclick.models.settings import setting
from reclick.runtime.jit import kernel, subkernel
from reclick.text.word_rates import TextIndex

LEAST_CHANCE = 1e-290  # less likely clicks, hundreds of positions away, add nothing


class THCMParameters(NamedTuple):
    """What EM estimates."""

    theta: Float64  # [pair]
    steps: Float64  # forward α, back γ, stop 1 − α − γ

    def for_block(self, rows: BlockRows) -> Any:
        """The parameters that the E-step of a block needs."""
        return cut_rows(self, rows, pairs=("theta",))


@dataclass(frozen=True)
class THCMProblem(EMProblem[THCMParameters]):
    """The θ and steps of highest posterior density."""

    blocks: Sequence[QueryBlock]
    prior: BetaPrior  # of θ [pair]
    means: Float64  # of the prior of the steps
    step_strength: float
    clicks: Float64  # [pair]
    sessions: float

    @property
    def e_step(self) -> Callable[[THCMParameters, QueryBlock], Statistics]:
        """The E-step of a block of sessions."""
        return e_step

    def start(self, last: THCMParameters | None) -> THCMParameters:
        """The prior means, or the parameters of a pilot fit."""
        return last or _clip_to_interior(THCMParameters(self.prior.mean, self.means))

    def m_step(self, now: THCMParameters, statistics: Statistics) -> THCMParameters:
        """Estimate θ of each pair, and the steps as shares of the expected steps."""
        trials = self.clicks + statistics.pairs["skips"]
        theta = posterior_mean(self.clicks, trials, *self.prior)
        steps = statistics.totals["steps"]
        steps = posterior_mean(steps, steps.sum(), self.means, self.step_strength)
        return _clip_to_interior(THCMParameters(theta, steps))

    def log_prior(self, now: THCMParameters) -> float:
        """Log-density of the steps."""
        return (
            self.step_strength * float(self.means @ np.log(now.steps))
            if self.step_strength
            else 0.0
        )

    def log_row_prior(self, now: THCMParameters) -> float:
        """Log-density of θ."""
        return log_beta(now.theta, *self.prior)


class THCM(ClickModel):
    """Examination is a random walk: from a position it steps forward with α, back with γ, or stops.

    It starts at position 1, and leaving the page stops it too. An examined ad that is not clicked
    yet is clicked with θ(q, d), at every examination anew. The walk between two clicks is not
    observed, and summed over exactly: the expected examinations are
    v_i = s_i + (1 − θ_{i−1}) α v_{i−1} + (1 − θ_{i+1}) γ v_{i+1}, with s the start and θ = 0 where
    clicked already, and P(next click is j) = v_j θ_j. Clicks do not change the walk, so
    P(j is ever clicked) = reach_j θ_j / (1 − (1 − θ_j) return_j), on pages of any length.

    EM: let h_i = P(the segment ends as observed | the walk is at i). The expected skips of i are
    v_i (1 − θ_i) (α h_{i+1} + γ h_{i−1} + stops) / P, and the expected steps likewise. Then
    θ = (clicks + s m) / (clicks + skips + s), and (α, γ, stop) are the shares of expected steps.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2, 1], [1, 2]]}
    >>> model = THCM().fit(log)
    >>> bool(model.log_prob({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})[0] > -4)
    True
    """

    name: ClassVar[str] = "thcm"
    assumes: ClassVar[str] = (
        "examination steps forward or back from ad to ad, or stops; each may lead to a click"
    )
    reference: ClassVar[str] = "Xu, Liu, Zhang, Ma, Ru 2012, WSDM (the temporal hidden click model)"
    ordered: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_", "forward_", "back_")
    probabilities: ClassVar[tuple[str, ...]] = ("theta_", "forward_", "back_")
    overall_strength: ClassVar[float] = 1.0
    stages: ClassVar[tuple[str, ...]] = ("all",)
    fits_in_buckets: ClassVar[bool] = True

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    forward_prior: float = setting(
        default=0.6,
        low=1e-6,
        high=1 - 1e-6,
        help="prior mean of α, the probability of a step forward",
    )
    back_prior: float = setting(
        default=0.2, low=1e-6, high=1 - 1e-6, help="prior mean of γ, the probability of a step back"
    )
    step_strength: float = setting(default=1.0, low=0, help="strength of these priors, in steps")
    max_iterations: int = setting(default=200, low=1, integer=True)
    tolerance: float = setting(default=1e-5)

    def _check_settings(self) -> None:
        both = self.forward_prior + self.back_prior
        if both > 1 - 1e-6:
            raise SettingError(
                "forward_prior + back_prior",
                both,
                "less than 1: the rest is the probability to stop",
            )

    def _make_problem(
        self, stage: str, data: GroupedSessions, prior: BetaPrior, history: Counts
    ) -> THCMProblem:
        stop = 1 - self.forward_prior - self.back_prior
        return THCMProblem(
            data.blocks(),
            prior,
            np.array([self.forward_prior, self.back_prior, stop]),
            self.step_strength,
            data.counts.clicks,
            self._whole_log(data.counts).total,
        )

    def _set_fit(
        self, stage: str, problem: THCMProblem, fit: FitResult[THCMParameters, Statistics]
    ) -> None:
        self.theta_ = fit.parameters.theta
        self.exposure_ = problem.clicks + fit.statistics.pairs["skips"]
        self.forward_, self.back_ = (float(step) for step in fit.parameters.steps[:2])

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = np.clip(
            self._pairs.lookup_or_prior(self.theta_, batch, self._pairs.find(batch), text),
            PROBABILITY_MARGIN,
            1 - PROBABILITY_MARGIN,
        )

        def pages(start: int, end: int) -> WalkPages:
            first, last = batch.page[start], batch.page[end]
            starts = batch.page[start : end + 1] - first
            return WalkPages(theta[first:last], self.forward_, self.back_, starts)

        return pages

    def _describe_fit(self) -> str:
        return (
            f"{super()._describe_fit()}\n  forward_ = {self.forward_:.3f}  back_ = {self.back_:.3f}"
        )


def _clip_to_interior(parameters: THCMParameters) -> THCMParameters:
    """Clip all probabilities away from 0 and 1."""
    theta = np.clip(parameters.theta, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
    steps = np.maximum(parameters.steps, PROBABILITY_MARGIN)
    return THCMParameters(theta, steps / steps.sum())


def e_step(parameters: THCMParameters, block: QueryBlock) -> Statistics:
    """Expected skips of unclicked ads [pair], steps forward, back and stops, and the likelihood."""
    skips, steps = np.zeros(block.n_pairs), np.zeros(3)
    total = _expect(
        parameters.theta[block.pairs], parameters.steps, block.pair, block.page, block.click,
        block.clicks, block.weight, skips, steps,
    )  # fmt: skip
    return Statistics(total, {"steps": steps}, PairSums.of(block.first_pair, skips=skips))


@kernel
def _expect(
    theta: Float64,
    step: Float64,
    pair: Int32,
    page: Int64,
    click: Int32,
    clicks: Int64,
    weight: Float64,
    skips: Float64,
    steps: Float64,
) -> float:
    longest = 1
    for s in range(len(weight)):
        longest = max(longest, page[s + 1] - page[s])
    buffer = np.empty((5, longest))
    total = 0.0
    for s in range(len(weight)):
        n = page[s + 1] - page[s]
        here, free, visits, ahead, upper = (
            buffer[0, :n],
            buffer[1, :n],
            buffer[2, :n],
            buffer[3, :n],
            buffer[4, :n],
        )
        for i in range(n):
            here[i], free[i] = theta[pair[page[s] + i]], 1.0
        last = 0
        for k in range(clicks[s], clicks[s + 1] + 1):
            goal = click[k] if k < clicks[s + 1] else 0  # 0: the session ends
            walk_visits(here, step[0], step[1], last, free, visits)
            _hits(here, step, goal, free, upper, ahead)
            chance = _segment(here, step, last, goal, free, visits, ahead)
            total += weight[s] * np.log(max(chance, LEAST_CHANCE))
            if chance > LEAST_CHANCE:
                _add_segment(
                    here, step, last, goal, free, visits, ahead, weight[s] / chance,
                    pair[page[s] : page[s + 1]], skips, steps,
                )  # fmt: skip
            if goal > 0:
                free[goal - 1] = 0.0
            last = goal
    return total


@subkernel
def _hits(
    theta: Float64, step: Float64, goal: int, free: Float64, upper: Float64, hit: Float64
) -> None:
    """Fill hit[i] with P(next click is the goal | the walk is at i); goal 0 is no further click.

    h_i = θ_i [i = goal] + (1 − θ_i) (α h_{i+1} + γ h_{i−1} + [goal = 0] stop), a tridiagonal
    system; beyond the page h = [goal = 0].
    """
    n = len(theta)
    beyond = 1.0 if goal == 0 else 0.0
    for i in range(n):
        stay = 1.0 - theta[i] * free[i]
        constant = stay * step[2] * beyond + (theta[i] if i == goal - 1 else 0.0)
        constant += (
            stay * beyond * ((step[1] if i == 0 else 0.0) + (step[0] if i == n - 1 else 0.0))
        )
        pivot = 1.0 - stay * step[1] * upper[i - 1] if i > 0 else 1.0
        upper[i] = stay * step[0] / pivot
        hit[i] = (constant + (stay * step[1] * hit[i - 1] if i > 0 else 0.0)) / pivot
    for i in range(n - 2, -1, -1):
        hit[i] += upper[i] * hit[i + 1]


@subkernel
def _segment(
    theta: Float64,
    step: Float64,
    last: int,
    goal: int,
    free: Float64,
    visits: Float64,
    hit: Float64,
) -> float:
    """P(the next click is the goal | the last click); goal 0 is no further click."""
    if goal > 0:
        return float(visits[goal - 1] * theta[goal - 1])
    if last == 0:
        return float(hit[0])
    forward = hit[last] if last < len(theta) else 1.0
    back = hit[last - 2] if last > 1 else 1.0
    return float(step[0] * forward + step[1] * back + step[2])


@subkernel
def _add_segment(
    theta: Float64, step: Float64, last: int, goal: int, free: Float64, visits: Float64,
    hit: Float64, weight: float, pair: Int32, skips: Float64, steps: Float64,
) -> None:  # fmt: skip
    """Add the skips and steps expected in a segment, weighted by weight / P(segment)."""
    n = len(theta)
    beyond = 1.0 if goal == 0 else 0.0
    for i in range(n):
        departures = visits[i] * (1.0 - theta[i] * free[i]) * weight
        forward = step[0] * (hit[i + 1] if i < n - 1 else beyond)
        back = step[1] * (hit[i - 1] if i > 0 else beyond)
        stop = step[2] * beyond
        skips[pair[i]] += departures * free[i] * (forward + back + stop)
        moves = departures + (
            weight if i == last - 1 else 0.0
        )  # the walk leaves the last click too
        steps[0] += moves * forward
        steps[1] += moves * back
        steps[2] += moves * stop
