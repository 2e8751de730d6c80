"""DBN, the dynamic Bayesian network: the user continues until satisfied or tired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN, chain_pages
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.outcomes import N_OUTCOMES, Int8
from reclick.data.ragged import Float64, Int32, Int64
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import FitResult, PairSums, Statistics, run_em
from reclick.fitting.folds import folds_of_click_sets
from reclick.fitting.outcomes import (
    TYPICAL_RATES,
    OutcomeRates,
    mean_satisfaction,
    outcome_likelihoods,
)
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import (
    SMALLEST_PROBABILITY,
    CascadeBlock,
    CascadeData,
    as_cascade_block,
    cascade_blocks,
    clicks_per_pair,
    fill_cascade_chain,
    no_click_tail,
)
from reclick.models.settings import setting
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex

PAIR_STATISTICS = ("examinations", "satisfied")
# What "cv" chooses among, and what it takes when all sessions are alike.
CONTINUATIONS = (
    *(0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99, 1.0),
)
DEFAULT_CONTINUATION = 0.9


class DBNParameters(NamedTuple):
    """What EM estimates, given the continuation λ."""

    theta: Float64  # [pair]
    rho: Float64  # [pair]
    continuation: float
    rates: Float64 = TYPICAL_RATES  # of conversions and quick returns: reclick.fitting.outcomes
    outcome_weight: float = 1.0


class DBN(ClickModel):
    """P(click | examination) = θ(q, d); P(continue) = λ (1 − ρ(q, d)) after a click, λ after none.

    EM over what is not observed below the last click at l: whether the user was satisfied, and how
    far the user examined the page. With

        B_i = (1 − θ_i) (1 − λ + λ B_{i+1})            P(no click from i on),
        S   = ρ_l + (1 − ρ_l) (1 − λ + λ B_{l+1})      P(no click below l),

    the user was satisfied with ρ_l / S. Position l + 1 was examined with λ (1 − ρ_l) B_{l+1} / S,
    each further one with λ B_{i+1} / (1 − λ + λ B_{i+1}) times the probability of the one above.
    Then

        θ = (clicks + s m) / (expected examinations + s),
        ρ = (expected satisfied clicks + t μ) / (clicks + t),

    s and t being the strengths, m and μ the means of the priors.

    Where the log has outcomes of clicks, ρ_l is multiplied by P(outcome | satisfied) and 1 − ρ_l by
    P(outcome | not satisfied) in S and in what follows from it; `outcome_rates_` are their rates.

    λ is `continuation`: a number, or "cv", the one of 16 from 0.01 to 1 that gives held-out
    sessions the highest log_set_prob in a cross-validation with `folds` folds. `cv_` then has the
    mean log-probability of each [λ, (λ, log-probability)]. Folds are assigned by the content of a
    session and `seed`, so the order of the rows does not matter.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> model = DBN(continuation=0.9).fit(log)
    >>> model.converged_, model.theta_.round(3)
    (True, array([0.5  , 0.593]))
    """

    name: ClassVar[str] = "dbn"
    assumes: ClassVar[str] = (
        "the user scans down until a clicked ad satisfies, or stops at any position alike"
    )
    reference: ClassVar[str] = "Chapelle, Zhang 2009"
    satisfaction: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_", "rho_")
    global_parameters: ClassVar[tuple[str, ...]] = (
        "prior_mean_",
        "satisfaction_",
        "continuation_",
        "cv_",
        "outcome_rates_",
    )
    outcome_rates_: Float64 | None = None
    overall_strength: ClassVar[float] = 2.0

    continuation: str | float = setting(
        default="cv",
        choices=("cv",),
        greater_than=0,
        high=1,
        help='continuation λ: a number, or "cv" (chosen among 16 by cross-validation)',
    )
    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    satisfaction_prior: str | float = setting(
        default="overall", choices=("overall",), allow_probability=True
    )
    satisfaction_strength: float = setting(default=1.0, low=0)
    outcome_weight: float = setting(default=1.0, low=0, high=1)
    folds: int = setting(default=3, low=2, integer=True, help="folds of that cross-validation")
    seed: int = setting(default=0, low=0, integer=True)
    max_iterations: int = setting(default=100, low=1, integer=True)
    tolerance: float = setting(default=1e-5)

    def _prepare(self, data: GroupedSessions) -> CascadeData:
        sessions = data if self.outcome_weight else data.without_outcomes()
        return CascadeData(sessions, cascade_blocks(sessions, self._engine))

    def _estimate(self, data: CascadeData, prior: BetaPrior, history: Counts) -> None:
        start = self._pilot_parameters or self._start(data.sessions, prior, history)
        fit = self._maximise(start, data, prior, **self._em_limits)
        self.theta_, self.rho_, self.continuation_, rates, _ = fit.parameters
        self.outcome_rates_ = None if data.sessions.outcome is None else rates
        self.exposure_ = fit.statistics.pairs["examinations"]
        self._report_fit(fit)

    def _start(self, sessions: GroupedSessions, prior: BetaPrior, history: Counts) -> DBNParameters:
        """The prior means, and the continuation that is given or chosen."""
        mean, weight = self.satisfaction_prior, self.outcome_weight
        self.satisfaction_ = (
            mean_satisfaction(history, weight) if isinstance(mean, str) else float(mean)
        )
        rho, theta = np.full(len(prior.mean), self.satisfaction_), _clip_to_interior(prior.mean)
        start = DBNParameters(theta, rho, DEFAULT_CONTINUATION, TYPICAL_RATES, weight)
        self.cv_ = None
        if not isinstance(self.continuation, str):
            return start._replace(continuation=float(self.continuation))
        self.cv_ = self._cross_validate(start, sessions, prior)
        if self.cv_ is None:
            return start
        return start._replace(continuation=float(self.cv_[self.cv_[:, 1].argmax(), 0]))

    def _maximise(
        self, start: DBNParameters, data: CascadeData, prior: BetaPrior, **limits: Any
    ) -> FitResult[DBNParameters, Statistics]:
        """EM with the continuation of the start."""
        sessions, blocks = data
        clicks = clicks_per_pair(blocks)
        clicked = np.flatnonzero(clicks)  # elsewhere ρ stays at its prior mean
        strength, outcomes = self.satisfaction_strength, None
        if sessions.outcome is not None:
            outcomes = OutcomeRates.of(sessions.counts, self.outcome_weight)

        def m_step(now: DBNParameters, statistics: Statistics) -> DBNParameters:
            examinations, satisfied = (statistics.pairs[name] for name in PAIR_STATISTICS)
            theta = posterior_mean(clicks, examinations, *prior)
            rho = np.full(len(clicks), self.satisfaction_)
            rho[clicked] = posterior_mean(
                satisfied[clicked], clicks[clicked], self.satisfaction_, strength
            )
            now = now._replace(theta=_clip_to_interior(theta), rho=_clip_to_interior(rho))
            if outcomes is None:
                return now
            return now._replace(rates=outcomes.estimate(statistics.totals["outcomes"]))

        def log_prior(now: DBNParameters) -> float:
            satisfaction = log_beta(now.rho[clicked], self.satisfaction_, strength)
            value = log_beta(now.theta, *prior) + satisfaction
            return value if outcomes is None else value + outcomes.log_prior(now.rates)

        return run_em(
            start,
            blocks,
            e_step,
            m_step,
            log_prior=log_prior,
            sessions=sum(float(block.sessions.weight.sum()) for block in blocks),
            engine=self._engine,
            **limits,
        )

    def _cross_validate(
        self, start: DBNParameters, sessions: GroupedSessions, prior: BetaPrior
    ) -> Float64 | None:
        """Held-out log-probability per session of each λ [λ, 2], where there are two folds.

        Within a fold each λ starts where the one before it ended.
        """
        folds = folds_of_click_sets(sessions, self.folds, self.seed)
        if len(folds) < 2:
            return None
        scores = np.zeros(len(CONTINUATIONS))
        limits = {"max_iterations": self.max_iterations, "tolerance": self.tolerance}
        for train, test in folds:
            data = CascadeData(train, cascade_blocks(train, self._engine))
            held_out = as_cascade_block(test.whole)
            now = start
            for i, continuation in reversed(list(enumerate(CONTINUATIONS))):
                now = now._replace(continuation=continuation)
                now = self._maximise(now, data, prior, **limits).parameters
                scores[i] += e_step(now, held_out).log_likelihood
        return np.column_stack([CONTINUATIONS, scores / sessions.weight.sum()])

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        found = self._pairs.find(batch)
        theta = self._pairs.lookup_or_prior(self.theta_, batch, found, text)
        rho = self._pairs.take_or(self.rho_, found.row, self.satisfaction_)
        shared = (self.continuation_, self.continuation_)
        return chain_pages(batch, fill_cascade_chain, (theta, 1 - rho), shared, satisfaction=rho)


def e_step(parameters: DBNParameters, block: CascadeBlock) -> Statistics:
    """Expected examinations and satisfied clicks [pair], and the log-likelihood.

    What is observed is added up per pair, the tails per session.
    """
    sessions, on = block.sessions, parameters.continuation
    theta, rho = parameters.theta[sessions.pairs], parameters.rho[sessions.pairs]
    examinations, satisfied = block.observed.examinations.copy(), np.zeros(len(theta))
    outcomes = np.zeros((2, N_OUTCOMES))
    tails = _tail_expectations(
        sessions.pair, sessions.page, block.ends, sessions.weight, block.longest, on, block.outcome,
        outcome_likelihoods(parameters.rates, parameters.outcome_weight),
        theta, rho, examinations, satisfied, outcomes,
    )  # fmt: skip
    total = tails + _observed_terms(*block.observed, theta, rho, on)
    pairs = PairSums.of(sessions.first_pair, examinations=examinations, satisfied=satisfied)
    return Statistics(total, {"outcomes": outcomes}, pairs)


def _clip_to_interior(probability: Float64) -> Float64:
    return np.clip(probability, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


@kernel
def _observed_terms(
    examinations: Float64,
    clicks: Float64,
    last_clicks: Float64,
    theta: Float64,
    rho: Float64,
    on: float,
) -> float:
    """Log-probability of everything down to the last clicks: clicks, skips, and going on."""
    total = moves = 0.0
    for p in range(len(examinations)):
        if examinations[p] > 0.0:
            skips = examinations[p] - clicks[p]
            total += clicks[p] * np.log(theta[p]) + skips * np.log(1.0 - theta[p])
            moves += examinations[p] - last_clicks[p]
        if clicks[p] > last_clicks[p]:
            total += (clicks[p] - last_clicks[p]) * np.log(1.0 - rho[p])
    return float(total + moves * np.log(on))


@kernel
def _tail_expectations(
    pair: Int32, page: Int64, ends: Int64, weight: Float64, longest: int, on: float, outcome: Int8,
    likelihood: Float64, theta: Float64, rho: Float64, examinations: Float64, satisfied: Float64,
    outcomes: Float64,
) -> float:  # fmt: skip
    """Add expected examinations below the last clicks and satisfied clicks. Return log P(tails)."""
    total = 0.0
    tail = np.empty(longest + 1)
    for s in range(len(weight)):
        ads, end = pair[page[s] : page[s + 1]], ends[s]
        no_click = no_click_tail(ads, theta, on, end, tail)
        examined = weight[s]
        if end > 0:
            last = ads[end - 1]
            content, unsatisfied = rho[last], 1.0 - rho[last]
            if len(outcome) > 0:
                content *= likelihood[outcome[s], 1]
                unsatisfied *= likelihood[outcome[s], 0]
            go = unsatisfied * on * no_click
            no_click = content + unsatisfied * (1.0 - on) + go
            no_click = max(no_click, SMALLEST_PROBABILITY)
            satisfied[last] += weight[s] * content / no_click
            examined *= go / no_click
            if len(outcome) > 0:
                outcomes[0, outcome[s]] += weight[s] * (1.0 - content / no_click)
                outcomes[1, outcome[s]] += weight[s] * content / no_click
        total += weight[s] * np.log(no_click)
        for i in range(end, len(ads)):
            examinations[ads[i]] += examined
            examined *= on * tail[i + 1] / (1.0 - on + on * tail[i + 1])
    return total
