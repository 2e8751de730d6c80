"""CCM, the click chain model: whether the user goes on after a click depends on how relevant the ad was."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from reclick.clicks.chain import EDGE, chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.fitting.em import Fit, Statistics, check_loop, maximise_objective
from reclick.fitting.priors import log_beta, posterior
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import Block, blocks, clicks_of, scan, silence
from reclick.models.settings import check_prior, check_range
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex


class Parameters(NamedTuple):
    """What EM learns."""

    theta: Float64  # [pair]
    alpha: Float64  # [3] going on after no click, after a click on what is irrelevant, after one on what is relevant


class CCM(ClickModel):
    """P(click | looked at) = θ(q, d), the relevance; P(go on) = α2 (1 − θ) + α3 θ after a click, α1 after none.

    EM over what is hidden: how far the user looked below the last click, and which of the two made her go on or stop at a click: she found the ad
    relevant (with chance θ, then going on with α3) or not (α2). Then θ = (clicks + found relevant + a) / (looks + clicks + a + b) and each
    α = (went on + α_prior · strength) / (could have gone on + strength): where α1, α2, α3 come from `alpha1_prior` … and `alpha_strength`.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> model = CCM().fit(log)
    >>> model.converged_, model.alpha_.round(3)
    (True, array([0.899, 0.805, 0.507]))
    """

    name: ClassVar[str] = "ccm"
    assumes: ClassVar[str] = (
        "the user scans down, and after a click goes on with a chance that falls or rises with the ad's relevance"
    )
    reference: ClassVar[str] = (
        "Guo, Liu, Kannan, Minka, Taylor, Wang, Faloutsos 2009 (with point estimates)"
    )
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_", "alpha_")

    def __init__(
        self,
        *,
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: float = 2.0,
        alpha1_prior: float = 0.9,
        alpha2_prior: float = 0.8,
        alpha3_prior: float = 0.5,
        alpha_strength: float = 10.0,
        frequent: float = 50,
        max_iterations: int = 100,
        tolerance: float = 1e-5,
    ) -> None:
        check_prior("attractiveness_prior", attractiveness_prior, ("overall", "words"))
        check_range("attractiveness_strength", attractiveness_strength, 0, sys.float_info.max)
        check_range("alpha1_prior", alpha1_prior, EDGE, 1 - EDGE)
        check_range("alpha2_prior", alpha2_prior, EDGE, 1 - EDGE)
        check_range("alpha3_prior", alpha3_prior, EDGE, 1 - EDGE)
        check_range("alpha_strength", alpha_strength, 0, sys.float_info.max)
        check_range("frequent", frequent, 0, sys.float_info.max)
        check_loop(max_iterations, tolerance)
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.alpha1_prior = alpha1_prior
        self.alpha2_prior = alpha2_prior
        self.alpha3_prior = alpha3_prior
        self.alpha_strength = alpha_strength
        self.frequent = frequent
        self.max_iterations = max_iterations
        self.tolerance = tolerance

    def _estimate(self, sessions: Sessions, means: Float64, history: Counts) -> None:
        fit = self._maximise(sessions, means)
        self.theta_, self.alpha_ = fit.parameters
        self.exposure_ = (
            np.asarray(fit.statistics["looks"]) + sessions.counts.clicks
        )  # θ is tried at every look, and again at every click
        self.iterations_, self.converged_, self.objective_, self.message_ = (
            len(fit.objective),
            fit.converged,
            fit.objective,
            fit.message,
        )

    def _maximise(self, sessions: Sessions, means: Float64) -> Fit[Parameters]:
        parts, alphas = (
            blocks(sessions),
            np.array([self.alpha1_prior, self.alpha2_prior, self.alpha3_prior]),
        )
        clicks = clicks_of(parts, len(means))

        def maximise(found: Statistics) -> Parameters:
            moves = np.asarray(found["moves"])
            theta = posterior(
                clicks + found["relevant"],
                found["looks"] + clicks,
                means,
                self.attractiveness_strength,
            )
            alpha = posterior(moves[0], moves[1], alphas, self.alpha_strength)
            return Parameters(np.clip(theta, EDGE, 1 - EDGE), np.clip(alpha, EDGE, 1 - EDGE))

        def log_prior(now: Parameters) -> float:
            return log_beta(now.theta, means, self.attractiveness_strength) + log_beta(
                now.alpha, alphas, self.alpha_strength
            )

        return maximise_objective(
            Parameters(np.clip(means, EDGE, 1 - EDGE), alphas),
            parts,
            expect,
            maximise,
            log_prior=log_prior,
            sessions=float(sessions.weight.sum()),
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)
        passed, irrelevant, relevant = (float(alpha) for alpha in self.alpha_)
        return chain_pages(
            batch, scan, (theta, irrelevant * (1 - theta) + relevant * theta), (1.0, passed)
        )


def expect(now: Parameters, block: Block) -> Statistics:
    """Expected looks, relevant finds and moves of a block under the parameters: what is certain, a pair at a time, and the tails."""
    sessions, here = block.sessions, slice(block.first, block.first + len(block.looks))
    looks, relevant = np.zeros(len(now.theta)), np.zeros(len(now.theta))
    looks[here] = block.looks
    moves = np.zeros((2, 3))  # [went on, could have gone on; α]
    certain = _certain(
        block.looks, block.clicks, block.last, now.theta[here], now.alpha, relevant[here], moves
    )
    tails = _tails(
        sessions.pair,
        sessions.page,
        block.ends,
        sessions.weight,
        sessions.max_ads,
        *now,
        looks,
        relevant,
        moves,
    )
    return {"log_likelihood": certain + tails, "looks": looks, "relevant": relevant, "moves": moves}


@kernel
def _certain(
    looks: Float64,
    clicks: Float64,
    last: Float64,
    theta: Float64,
    alpha: Float64,
    relevant: Float64,
    moves: Float64,
) -> float:
    """Add what is known of all down to the last clicks, where the user always went on, and return its log-probability."""
    total = passes = 0.0
    for p in range(len(looks)):
        if looks[p] > 0.0:
            total += clicks[p] * np.log(theta[p]) + (looks[p] - clicks[p]) * np.log(1.0 - theta[p])
            passes += looks[p] - clicks[p]
        again = clicks[p] - last[p]
        if again > 0.0:
            go = alpha[1] * (1.0 - theta[p]) + alpha[2] * theta[p]
            found = again * alpha[2] * theta[p] / go
            total += again * np.log(go)
            relevant[p] += found
            moves[:, 1] += again - found
            moves[:, 2] += found
    moves[:, 0] += passes
    return float(total + passes * np.log(alpha[0]))


@kernel
def _tails(
    pair: Int32,
    page: Int64,
    ends: Int64,
    weight: Float64,
    longest: int,
    theta: Float64,
    alpha: Float64,
    looks: Float64,
    relevant: Float64,
    moves: Float64,
) -> float:
    """Add what is expected of the last clicks and of all below them, and return the log-probability of the tails."""
    total = 0.0
    chance = np.empty(longest + 1)
    on = alpha[0]
    for s in range(len(weight)):
        ads, end = pair[page[s] : page[s + 1]], ends[s]
        quiet = silence(ads, theta, on, end, chance)
        look = weight[s]
        if end > 0:
            last = ads[end - 1]
            stops = (
                1.0 - (1.0 - quiet) * alpha[1],
                1.0 - (1.0 - quiet) * alpha[2],
            )  # the tail's chance when irrelevant, when relevant
            both = (1.0 - theta[last]) * stops[0] + theta[last] * stops[1]
            found = theta[last] * stops[1] / both
            went = alpha[1] * quiet / stops[0], alpha[2] * quiet / stops[1]
            relevant[last] += weight[s] * found
            if end < len(ads):  # below the page there is nothing to go on to
                moves[0, 1] += weight[s] * (1.0 - found) * went[0]
                moves[1, 1] += weight[s] * (1.0 - found)
                moves[0, 2] += weight[s] * found * went[1]
                moves[1, 2] += weight[s] * found
            look *= (1.0 - found) * went[0] + found * went[1]
            quiet = both
        total += weight[s] * np.log(quiet)
        for i in range(end, len(ads)):
            looks[ads[i]] += look
            went_on = look * on * chance[i + 1] / (1.0 - on + on * chance[i + 1])
            if i + 1 < len(ads):
                moves[0, 0] += went_on
                moves[1, 0] += look
            look = went_on
    return total
