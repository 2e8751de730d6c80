"""Directional scan: after a click the user goes down or up, to the first ad that attracts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.scan import ScanPages
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import BlockRows, GroupedSessions, QueryBlock, cut_rows
from reclick.data.ragged import Float64, Int32, Int64
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import EMProblem, FitResult, PairSums, Statistics
from reclick.models.base import ClickModel
from reclick.models.settings import setting
from reclick.runtime.jit import kernel, subkernel
from reclick.text.word_rates import TextIndex

SMALLEST_END = 1e-290  # lower limit of P(end), which is divided by
NEAREST_BELOW, NEAREST_ABOVE, DECAY = 0.95, 0.5, 0.8  # prior means of examination, by distance


class ScanParameters(NamedTuple):
    """What EM estimates."""

    theta: Float64  # [pair]
    rho: Float64  # [pair]
    gamma: Float64  # [last, position]
    down: Float64  # [last]

    def for_block(self, rows: BlockRows) -> Any:
        """The parameters that the E-step of a block needs."""
        return cut_rows(self, rows, pairs=("theta", "rho"))


@dataclass(frozen=True)
class ScanProblem(EMProblem[ScanParameters]):
    """The θ, ρ, γ and δ of highest posterior density."""

    blocks: Sequence[QueryBlock]
    prior: BetaPrior  # of θ [pair]
    satisfaction: tuple[float, float]  # mean and strength of the prior of ρ
    gamma: Float64  # prior means
    examination_strength: float
    down: Float64  # prior means
    down_strength: float
    clicks: Float64  # [pair]
    sessions: float

    @property
    def e_step(self) -> Callable[[ScanParameters, QueryBlock], Statistics]:
        """The E-step of a block of sessions."""
        return e_step

    def start(self, last: ScanParameters | None) -> ScanParameters:
        """The prior means, or the parameters of a pilot fit."""
        if last is not None:
            return last
        rho = np.full(len(self.clicks), self.satisfaction[0])
        return _clip_to_interior(ScanParameters(self.prior.mean, rho, self.gamma, self.down))

    def m_step(self, now: ScanParameters, statistics: Statistics) -> ScanParameters:
        """Estimate θ and ρ of each pair, γ and δ."""
        trials = self.clicks + statistics.pairs["skips"]
        theta = posterior_mean(self.clicks, trials, *self.prior)
        rho = posterior_mean(statistics.pairs["satisfied"], self.clicks, *self.satisfaction)
        examined, downs = statistics.totals["examined"], statistics.totals["downs"]
        return _clip_to_interior(
            ScanParameters(
                theta,
                rho,
                posterior_mean(examined[0], examined[1], self.gamma, self.examination_strength),
                posterior_mean(downs[0], downs[1], self.down, self.down_strength),
            )
        )

    def log_prior(self, now: ScanParameters) -> float:
        """Log-density of γ and δ."""
        examination = log_beta(now.gamma, self.gamma, self.examination_strength)
        return examination + log_beta(now.down[2:], self.down[2:], self.down_strength)

    def log_row_prior(self, now: ScanParameters) -> float:
        """Log-density of θ and ρ."""
        return log_beta(now.theta, *self.prior) + log_beta(now.rho, *self.satisfaction)


class DirectionalScan(ClickModel):
    """After a click at l the user goes down with δ_l, else up, until the first ad that attracts.

    Before that, a click satisfies with ρ_l, which ends the session. In the direction taken, each
    position j that is not clicked yet is examined with γ(l, j), and then clicked with θ(q, d). The
    scan ends with a click, from which the next one starts; without one the session ends. With B the
    product of 1 − θ_i γ(l, i) over the free positions below l, and A over those above, for j below

        P(next click is j) = (1 − ρ_l) δ_l θ_j γ(l, j) Π (1 − θ_i γ(l, i)), i free and between,
        P(end) = ρ_l + (1 − ρ_l) (δ_l B + (1 − δ_l) A),

    and likewise above with 1 − δ_l. At the start (l = 0) and after a click at the top all users go
    down. It is UBM by the last click in time, in both directions.

    EM: a position passed without a click was examined with γ (1 − θ) / (1 − θγ). Between clicks the
    direction is observed; after the last click the user was satisfied, went down or went up, with
    the terms of P(end) over their sum. Then θ = (clicks + s m) / (examinations + s),
    ρ = (satisfied clicks + r μ) / (clicks + r), γ = (examinations + t m') / (positions passed or
    clicked + t) and δ = (scans down + u m'') / (scans + u). The prior means m' are 0.95 for the
    next position below and 0.5 for the one above, times 0.8 for each position further.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2, 1], [1, 2]]}
    >>> model = DirectionalScan().fit(log)
    >>> bool(model.log_prob({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})[0] > -4)
    True
    """

    name: ClassVar[str] = "scan"
    assumes: ClassVar[str] = (
        "unless a click satisfies, the user scans down or up from it to the first ad that attracts"
    )
    reference: ClassVar[str] = (
        "after Wang, Liu, Wang, Zhou, Nie, Ma 2015 (the partially sequential click model)"
    )
    ordered: ClassVar[bool] = True
    satisfaction: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_", "rho_")
    global_parameters: ClassVar[tuple[str, ...]] = (
        *("prior_mean_", "satisfaction_", "gamma_", "down_"),
    )
    probabilities: ClassVar[tuple[str, ...]] = (
        "theta_",
        "rho_",
        "satisfaction_",
        "gamma_",
        "down_",
    )
    overall_strength: ClassVar[float] = 3.0
    stages: ClassVar[tuple[str, ...]] = ("all",)
    fits_in_buckets: ClassVar[bool] = True

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    satisfaction_prior: float = setting(
        default=0.1, low=1e-6, high=1 - 1e-6, help="prior mean of the satisfaction ρ"
    )
    satisfaction_strength: float = setting(default=3.0, low=0)
    examination_strength: float = setting(
        default=5.0,
        low=0,
        help="strength of the prior of the examination γ, in positions passed over or clicked",
    )
    down_prior: float = setting(
        default=0.7,
        low=1e-6,
        high=1 - 1e-6,
        help="prior mean of δ, the probability of going down after a click",
    )
    down_strength: float = setting(default=2.0, low=0, help="strength of that prior, in clicks")
    max_iterations: int = setting(default=200, low=1, integer=True)
    tolerance: float = setting(default=1e-5)

    def _choose_settings(self, sample: GroupedSessions | None, history: Counts) -> None:
        self.satisfaction_ = float(self.satisfaction_prior)

    def _make_problem(
        self, stage: str, data: GroupedSessions, prior: BetaPrior, history: Counts
    ) -> ScanProblem:
        gamma, down = self._prior_means(data.max_ads)
        return ScanProblem(
            data.blocks(),
            prior,
            (self.satisfaction_, self.satisfaction_strength),
            gamma,
            self.examination_strength,
            down,
            self.down_strength,
            data.counts.clicks,
            self._whole_log(data.counts).total,
        )

    def _set_fit(
        self, stage: str, problem: ScanProblem, fit: FitResult[ScanParameters, Statistics]
    ) -> None:
        self.theta_, self.rho_, self.gamma_, self.down_ = fit.parameters
        self.exposure_ = problem.clicks + fit.statistics.pairs["skips"]

    def _prior_means(self, length: int) -> tuple[Float64, Float64]:
        """Prior means of γ [last, position] and of δ [last]."""
        distance = np.arange(1, length + 1) - np.arange(length + 1)[:, None]
        nearest = np.where(distance > 0, NEAREST_BELOW, NEAREST_ABOVE)
        gamma = nearest * DECAY ** np.maximum(np.abs(distance) - 1, 0)
        return np.asarray(gamma), np.full(length + 1, float(self.down_prior))

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        lookup = self._pairs.find(batch)
        theta = np.clip(
            self._pairs.lookup_or_prior(self.theta_, batch, lookup, text),
            PROBABILITY_MARGIN,
            1 - PROBABILITY_MARGIN,
        )
        rho = self._pairs.take_or(self.rho_, lookup.row, self.satisfaction_)
        n_known = len(self.down_) - 1
        gamma, down = self._prior_means(max(n_known, int(np.diff(batch.page).max(initial=1))))
        gamma[: n_known + 1, :n_known], down[: n_known + 1] = self.gamma_, self.down_

        def pages(start: int, end: int) -> ScanPages:
            first, last = batch.page[start], batch.page[end]
            page = batch.page[start : end + 1] - first
            return ScanPages(theta[first:last], rho[first:last], gamma, down, page)

        return pages


def _clip_to_interior(parameters: ScanParameters) -> ScanParameters:
    """Clip all probabilities away from 0 and 1, except that from the top all users go down."""
    theta, rho, gamma, down = (
        np.clip(each, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN) for each in parameters
    )
    down[:2] = 1.0
    return ScanParameters(theta, rho, gamma, down)


def e_step(parameters: ScanParameters, block: QueryBlock) -> Statistics:
    """Expected examinations of unclicked ads [pair], and successes and trials of γ and of δ."""
    skips, satisfied = np.zeros((2, block.n_pairs))
    examined = np.zeros((2, *parameters.gamma.shape))
    downs = np.zeros((2, len(parameters.down)))
    total = _expect(
        parameters.theta[block.pairs], parameters.rho[block.pairs], parameters.gamma,
        parameters.down, block.pair, block.page, block.click, block.clicks, block.weight,
        np.ones(block.max_ads), skips, satisfied, examined, downs,
    )  # fmt: skip
    totals = {"examined": examined, "downs": downs}
    pairs = PairSums.of(block.first_pair, skips=skips, satisfied=satisfied)
    return Statistics(total, totals, pairs)


@kernel
def _expect(
    theta: Float64, rho: Float64, gamma: Float64, down: Float64, pair: Int32, page: Int64,
    click: Int32, clicks: Int64, weight: Float64, free: Float64, skips: Float64,
    satisfied: Float64, examined: Float64, downs: Float64,
) -> float:  # fmt: skip
    """Add the expectations of every session, and return the log-likelihood; `free` is all 1."""
    total = 0.0
    for s in range(len(weight)):
        ads, session_weight = pair[page[s] : page[s + 1]], weight[s]
        last = 0
        for c in range(clicks[s], clicks[s + 1]):
            goal = click[c]
            goes_down = goal > last
            turn = down[last] if goes_down else 1.0 - down[last]
            log_no_click = _pass(
                theta, gamma, ads, last, goal, free, session_weight, skips, examined
            )
            rate = theta[ads[goal - 1]] * gamma[last, goal - 1]
            if last > 0:
                rate *= 1.0 - rho[ads[last - 1]]
            total += session_weight * (log_no_click + np.log(turn) + np.log(rate))
            examined[:, last, goal - 1] += session_weight
            downs[0, last] += session_weight if goes_down else 0.0
            downs[1, last] += session_weight
            free[goal - 1] = 0.0
            last = goal
        bottom = len(ads) + 1
        satisfied_prob = rho[ads[last - 1]] if last > 0 else 0.0
        below = (
            (1.0 - satisfied_prob)
            * down[last]
            * np.exp(_pass(theta, gamma, ads, last, bottom, free, 0.0, skips, examined))
        )
        above = 0.0
        if last > 0:
            above = (
                (1.0 - satisfied_prob)
                * (1.0 - down[last])
                * np.exp(_pass(theta, gamma, ads, last, 0, free, 0.0, skips, examined))
            )
        end = max(satisfied_prob + below + above, SMALLEST_END)
        total += session_weight * np.log(end)
        if last > 0:
            satisfied[ads[last - 1]] += session_weight * satisfied_prob / end
        _pass(theta, gamma, ads, last, bottom, free, session_weight * below / end, skips, examined)
        if last > 0:
            _pass(theta, gamma, ads, last, 0, free, session_weight * above / end, skips, examined)
        downs[0, last] += session_weight * below / end
        downs[1, last] += session_weight * (below + above) / end
        for c in range(clicks[s], clicks[s + 1]):
            free[click[c] - 1] = 1.0
    return total


@subkernel
def _pass(
    theta: Float64, gamma: Float64, ads: Int32, last: int, goal: int, free: Float64, weight: float,
    skips: Float64, examined: Float64,
) -> float:  # fmt: skip
    """Log P(no click between the last click and the goal, neither included).

    Add the expectations of these positions, times `weight`.
    """
    product, total = 1.0, 0.0
    step = 1 if goal > last else -1
    for position in range(last + step, goal, step):
        i = position - 1
        if free[i] == 0.0:
            continue
        attractiveness, examination = theta[ads[i]], gamma[last, i]
        no_click = 1.0 - attractiveness * examination
        product *= no_click
        if product < 1e-200:
            total += np.log(product)
            product = 1.0
        if weight > 0.0:
            expected = weight * examination * (1.0 - attractiveness) / no_click
            skips[ads[i]] += expected
            examined[0, last, i] += expected
            examined[1, last, i] += weight
    return float(total + np.log(product))
