"""CCM, the click chain model: continuation after a click depends on the ad's relevance."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN, chain_pages
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64, Int32, Int64
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import PairSums, Statistics, run_em
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import (
    CascadeBlock,
    CascadeData,
    cascade_blocks,
    clicks_per_pair,
    fill_cascade_chain,
    no_click_tail,
)
from reclick.models.settings import setting
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex


class CCMParameters(NamedTuple):
    """What EM estimates."""

    theta: Float64  # [pair]
    alpha: Float64  # [3] P(going on) after no click, an irrelevant click, a relevant click


class CCM(ClickModel):
    """P(click | examination) = θ; P(continue) = α2 (1 − θ) + α3 θ after a click, α1 after none.

    θ(q, d) is the relevance. EM over what is not observed: how far the user examined the page below
    the last click, and whether a clicked ad was relevant (with probability θ; the user then
    continues with α3) or not (α2). Then θ = (clicks + relevant clicks + s m) / (examinations +
    clicks + s) and each α = (continued + t μ) / (could continue + t), with s and t the strengths
    and m and μ the means of the priors.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> model = CCM().fit(log)
    >>> model.converged_, model.alpha_.round(3)
    (True, array([0.899, 0.805, 0.507]))
    """

    name: ClassVar[str] = "ccm"
    assumes: ClassVar[str] = (
        "the user scans down; the probability to continue after a click depends on the ad's "
        "relevance"
    )
    reference: ClassVar[str] = (
        "Guo, Liu, Kannan, Minka, Taylor, Wang, Faloutsos 2009 (with point estimates)"
    )
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_", "alpha_")
    overall_strength: ClassVar[float] = 2.0

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    alpha1_prior: float = setting(
        default=0.9,
        low=PROBABILITY_MARGIN,
        high=1 - PROBABILITY_MARGIN,
        help="prior mean of α1, continuation after no click",
    )
    alpha2_prior: float = setting(
        default=0.8,
        low=PROBABILITY_MARGIN,
        high=1 - PROBABILITY_MARGIN,
        help="prior mean of α2, continuation after a click on an irrelevant ad",
    )
    alpha3_prior: float = setting(
        default=0.5,
        low=PROBABILITY_MARGIN,
        high=1 - PROBABILITY_MARGIN,
        help="prior mean of α3, continuation after a click on a relevant ad",
    )
    alpha_strength: float = setting(
        default=10.0, low=0, help="strength of each of these priors, in moves"
    )
    max_iterations: int = setting(default=100, low=1, integer=True)
    tolerance: float = setting(default=1e-5)

    def _prepare(self, data: GroupedSessions) -> CascadeData:
        return CascadeData(data, cascade_blocks(data, self._engine))

    def _estimate(self, data: CascadeData, prior: BetaPrior, history: Counts) -> None:
        sessions, blocks = data
        clicks = clicks_per_pair(blocks)
        alphas = np.array([self.alpha1_prior, self.alpha2_prior, self.alpha3_prior], np.float64)

        def m_step(_: CCMParameters, statistics: Statistics) -> CCMParameters:
            pairs, moves = statistics.pairs, statistics.totals["moves"]
            trials = pairs["examinations"] + clicks
            theta = posterior_mean(clicks + pairs["relevant"], trials, *prior)
            alpha = posterior_mean(moves[0], moves[1], alphas, self.alpha_strength)
            return CCMParameters(_clip_to_interior(theta), _clip_to_interior(alpha))

        def log_prior(now: CCMParameters) -> float:
            attractiveness = log_beta(now.theta, *prior)
            return attractiveness + log_beta(now.alpha, alphas, self.alpha_strength)

        start: CCMParameters | None = self._pilot_parameters
        fit = run_em(
            start or CCMParameters(_clip_to_interior(prior.mean), alphas),
            blocks,
            e_step,
            m_step,
            log_prior=log_prior,
            sessions=float(sessions.weight.sum()),
            engine=self._engine,
            **self._em_limits,
        )
        self.theta_, self.alpha_ = fit.parameters
        # Relevance is tried at every examination, and again at every click.
        self.exposure_ = fit.statistics.pairs["examinations"] + sessions.counts.clicks
        self._report_fit(fit)

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_prior(self.theta_, batch, self._pairs.find(batch), text)
        passed, irrelevant, relevant = (float(alpha) for alpha in self.alpha_)
        onward = irrelevant * (1 - theta) + relevant * theta
        return chain_pages(batch, fill_cascade_chain, (theta, onward), (1.0, passed))


def e_step(parameters: CCMParameters, block: CascadeBlock) -> Statistics:
    """Expected examinations and relevant clicks [pair], moves [2, 3], and the log-likelihood.

    What is observed is added up per pair, the tails per session. Moves are how often users went
    on, and how often they could, with each α.
    """
    sessions, alpha = block.sessions, parameters.alpha
    theta = parameters.theta[sessions.pairs]
    examinations, relevant = block.observed.examinations.copy(), np.zeros(len(theta))
    moves = np.zeros((2, 3))
    observed = _observed_terms(*block.observed, theta, alpha, relevant, moves)
    tails = _tail_expectations(
        sessions.pair, sessions.page, block.ends, sessions.weight, block.longest,
        theta, alpha, examinations, relevant, moves,
    )  # fmt: skip
    pairs = PairSums.of(sessions.first_pair, examinations=examinations, relevant=relevant)
    return Statistics(observed + tails, {"moves": moves}, pairs)


def _clip_to_interior(probability: Float64) -> Float64:
    return np.clip(probability, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


@kernel
def _observed_terms(
    examinations: Float64, clicks: Float64, last_clicks: Float64, theta: Float64, alpha: Float64,
    relevant: Float64, moves: Float64,
) -> float:  # fmt: skip
    """Add what is observed down to the last clicks, and return its log-probability."""
    total = all_skips = 0.0
    for p in range(len(examinations)):
        if examinations[p] > 0.0:
            skips = examinations[p] - clicks[p]
            total += clicks[p] * np.log(theta[p]) + skips * np.log(1.0 - theta[p])
            all_skips += skips
        followed = clicks[p] - last_clicks[p]
        if followed > 0.0:
            go = alpha[1] * (1.0 - theta[p]) + alpha[2] * theta[p]
            expected = followed * alpha[2] * theta[p] / go
            total += followed * np.log(go)
            relevant[p] += expected
            moves[:, 1] += followed - expected
            moves[:, 2] += expected
    moves[:, 0] += all_skips
    return float(total + all_skips * np.log(alpha[0]))


@kernel
def _tail_expectations(
    pair: Int32, page: Int64, ends: Int64, weight: Float64, longest: int,
    theta: Float64, alpha: Float64, examinations: Float64, relevant: Float64, moves: Float64,
) -> float:  # fmt: skip
    """Add what is expected of the last clicks and of all below them, and return log P(tails)."""
    total = 0.0
    tail = np.empty(longest + 1)
    on = alpha[0]
    for s in range(len(weight)):
        ads, end = pair[page[s] : page[s + 1]], ends[s]
        no_click = no_click_tail(ads, theta, on, end, tail)
        examined = weight[s]
        if end > 0:
            last = ads[end - 1]
            # P(no further click) when the ad is irrelevant, and when it is relevant.
            stops = 1.0 - (1.0 - no_click) * alpha[1], 1.0 - (1.0 - no_click) * alpha[2]
            both = (1.0 - theta[last]) * stops[0] + theta[last] * stops[1]
            expected = theta[last] * stops[1] / both
            went = alpha[1] * no_click / stops[0], alpha[2] * no_click / stops[1]
            relevant[last] += weight[s] * expected
            if end < len(ads):  # below the page there is nothing to go on to
                moves[0, 1] += weight[s] * (1.0 - expected) * went[0]
                moves[1, 1] += weight[s] * (1.0 - expected)
                moves[0, 2] += weight[s] * expected * went[1]
                moves[1, 2] += weight[s] * expected
            examined *= (1.0 - expected) * went[0] + expected * went[1]
            no_click = both
        total += weight[s] * np.log(no_click)
        for i in range(end, len(ads)):
            examinations[ads[i]] += examined
            went_on = examined * on * tail[i + 1] / (1.0 - on + on * tail[i + 1])
            if i + 1 < len(ads):
                moves[0, 0] += went_on
                moves[1, 0] += examined
            examined = went_on
    return total
