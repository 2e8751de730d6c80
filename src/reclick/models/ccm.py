"""CCM, the click chain model: continuation after a click depends on the ad's relevance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import BlockRows, GroupedSessions, cut_rows
from reclick.data.outcomes import N_OUTCOMES, Int8
from reclick.data.ragged import Float64, Int32, Int64
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import EMProblem, FitResult, PairSums, Statistics
from reclick.fitting.outcomes import TYPICAL_RATES, OutcomeRates, outcome_likelihoods
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import (
    SMALLEST_PROBABILITY,
    CascadeBlock,
    CascadeData,
    cascade_blocks,
    cascade_pages,
    clicks_per_pair,
    no_click_tail,
)
from reclick.models.kernels.initiation import (
    FIRST_INITIATION,
    InitiationPrior,
    Rate,
    clip_to_interior,
    rate_of_block,
    rate_of_sessions,
    sessions_per_query,
)
from reclick.models.settings import setting
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex


class CCMParameters(NamedTuple):
    """What EM estimates."""

    theta: Float64  # [pair]
    alpha: Float64  # [3] P(continue) after no click, an irrelevant click, a relevant click
    rates: Float64 = TYPICAL_RATES  # of conversions and quick returns: reclick.fitting.outcomes
    outcome_weight: float = 1.0
    initiation: Rate = 1.0  # μ

    def for_block(self, rows: BlockRows) -> Any:
        """Return the parameters that the E-step of a block needs."""
        return cut_rows(self, rows, ("theta",), ("initiation",))


@dataclass(frozen=True)
class CCMProblem(EMProblem[CCMParameters]):
    """Maximises the posterior density of the parameters."""

    blocks: Sequence[CascadeBlock]
    prior: BetaPrior  # of θ [pair]
    alphas: Float64  # [3] prior means
    alpha_strength: float
    clicks: Float64  # [pair]
    sessions: float
    initiation: InitiationPrior | None  # where μ is estimated
    outcomes: OutcomeRates | None
    outcome_weight: float
    by_query: bool  # whether every query has its own μ

    @property
    def e_step(self) -> Callable[[CCMParameters, CascadeBlock], Statistics]:
        """The E-step of a block of sessions."""
        return e_step

    def start(self, last: CCMParameters | None) -> CCMParameters:
        """Start at the prior means, or where another EM ended; a μ per query at the overall one."""
        now = last
        if now is None:
            theta = clip_to_interior(self.prior.mean)
            now = CCMParameters(theta, self.alphas, TYPICAL_RATES, self.outcome_weight)
            if self.initiation is not None:
                now = now._replace(initiation=FIRST_INITIATION)
        if self.by_query and self.initiation is not None:
            rates = np.full(len(self.initiation.n_sessions), self.initiation.overall)
            now = now._replace(initiation=rates)
        return now

    def m_step(self, now: CCMParameters, statistics: Statistics) -> CCMParameters:
        """Update θ of each pair, the αs, μ (per query or overall), and the rates of outcomes."""
        pairs, moves = statistics.pairs, statistics.totals["moves"]
        trials = pairs["examinations"] + self.clicks
        theta = posterior_mean(self.clicks + pairs["relevant"], trials, *self.prior)
        alpha = posterior_mean(moves[0], moves[1], self.alphas, self.alpha_strength)
        now = now._replace(theta=clip_to_interior(theta), alpha=clip_to_interior(alpha))
        if self.initiation is not None:
            now = now._replace(initiation=self.initiation.estimate(now.initiation, statistics))
        if self.outcomes is None:
            return now
        return now._replace(rates=self.outcomes.estimate(statistics.totals["outcomes"]))

    def log_prior(self, now: CCMParameters) -> float:
        """Log prior of the αs, of one μ for all queries, and of the rates of outcomes."""
        value = log_beta(now.alpha, self.alphas, self.alpha_strength)
        if self.initiation is not None and not self.by_query:
            value += self.initiation.log_density(now.initiation)
        return value if self.outcomes is None else value + self.outcomes.log_prior(now.rates)

    def log_row_prior(self, now: CCMParameters) -> float:
        """Log prior of θ, and of a μ per query."""
        value = log_beta(now.theta, *self.prior)
        if self.initiation is not None and self.by_query:
            value += self.initiation.log_density(now.initiation)
        return value


class CCM(ClickModel):
    """P(click | examination) = θ; P(continue) = α2 (1 − θ) + α3 θ after a click, α1 after none.

    θ(q, d) is the relevance. EM over what is not observed: how far the user examined the page below
    the last click, and whether a clicked ad was relevant (with probability θ; the user then
    continues with α3) or not (α2). Then θ = (clicks + relevant clicks + s m) / (examinations +
    clicks + s) and each α = (continued + t μ) / (could continue + t), with s and t the strengths
    and m and μ the means of the priors.

    Where the log has outcomes of clicks, that of the last click is evidence of its relevance, as in
    `DBN` of satisfaction. Earlier clicks may have been relevant too, so the rates are learnt from
    last clicks alone.

    With `initiation` the user may skip the list: its top is examined with μ, "one" for all queries
    or one per "query", as in `DBN`.

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
    query_parameters: ClassVar[tuple[str, ...]] = ("query_initiation_",)
    global_parameters: ClassVar[tuple[str, ...]] = (
        "prior_mean_",
        "alpha_",
        "initiation_",
        "outcome_rates_",
    )
    probabilities: ClassVar[tuple[str, ...]] = ("theta_", "alpha_", "initiation_")
    outcome_rates_: Float64 | None = None
    initiation_: float = 1.0  # of all queries
    query_initiation_: Float64 | None = None  # [query]
    overall_strength: ClassVar[float] = 2.0
    stages: ClassVar[tuple[str, ...]] = ("one", "query")
    fits_in_buckets: ClassVar[bool] = True

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    alpha1_prior: float = setting(
        default=0.9,
        low=PROBABILITY_MARGIN,
        high=1 - PROBABILITY_MARGIN,
        help="prior mean of α1, the probability of continuing after no click",
    )
    alpha2_prior: float = setting(
        default=0.8,
        low=PROBABILITY_MARGIN,
        high=1 - PROBABILITY_MARGIN,
        help="prior mean of α2, the probability of continuing after a click on an irrelevant ad",
    )
    alpha3_prior: float = setting(
        default=0.5,
        low=PROBABILITY_MARGIN,
        high=1 - PROBABILITY_MARGIN,
        help="prior mean of α3, the probability of continuing after a click on a relevant ad",
    )
    alpha_strength: float = setting(
        default=10.0, low=0, help="strength of each of these priors, in moves"
    )
    initiation: str | None = setting(default=None, choices=("one", "query"), allow_none=True)
    query_strength: float = setting(default=20.0, low=0)
    outcome_weight: float = setting(default=1.0, low=0, high=1)
    max_iterations: int = setting(default=100, low=1, integer=True)
    tolerance: float = setting(default=1e-5)

    def _prepare(self, data: GroupedSessions) -> CascadeData:
        return CascadeData(data, cascade_blocks(data, self._engine))

    def _fit_stages(self) -> tuple[str, ...]:
        per_query = self.initiation == "query" and not self._is_pilot
        return self.stages if per_query else self.stages[:1]

    def _make_problem(
        self, stage: str, data: CascadeData, prior: BetaPrior, history: Counts
    ) -> CCMProblem:
        sessions, blocks = data
        outcomes = initiation = None
        if sessions.outcome is not None:
            log = self._whole_log(sessions.counts)
            outcomes = OutcomeRates.of(log, self.outcome_weight, use_earlier=False)
        if self.initiation is not None:
            n_sessions = sessions_per_query([block.sessions for block in blocks])
            mean = self.initiation_ if stage == "query" else FIRST_INITIATION
            initiation = InitiationPrior(n_sessions, sessions.n_sessions, self.query_strength, mean)
        return CCMProblem(
            blocks,
            prior,
            np.array([self.alpha1_prior, self.alpha2_prior, self.alpha3_prior], np.float64),
            self.alpha_strength,
            clicks_per_pair(blocks),
            sessions.n_sessions,
            initiation,
            outcomes,
            self.outcome_weight,
            stage == "query",
        )

    def _set_fit(
        self, stage: str, problem: CCMProblem, fit: FitResult[CCMParameters, Statistics]
    ) -> None:
        parameters, self.query_initiation_ = fit.parameters, None
        if isinstance(parameters.initiation, np.ndarray):
            self.query_initiation_ = parameters.initiation
        else:
            self.initiation_ = float(parameters.initiation)
        self.theta_, self.alpha_ = parameters.theta, parameters.alpha
        self.outcome_rates_ = None if problem.outcomes is None else parameters.rates
        # Every examination is a trial of the relevance, and every click is another one.
        self.exposure_ = fit.statistics.pairs["examinations"] + problem.clicks

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        lookup = self._pairs.find(batch)
        theta = self._pairs.lookup_or_prior(self.theta_, batch, lookup, text)
        skip_alpha, irrelevant_alpha, relevant_alpha = (float(alpha) for alpha in self.alpha_)
        onward = irrelevant_alpha * (1 - theta) + relevant_alpha * theta
        initiation = rate_of_sessions(self.query_initiation_, self.initiation_, lookup.query)
        return cascade_pages(batch, theta, onward, initiation=initiation, skipped=skip_alpha)


def e_step(parameters: CCMParameters, block: CascadeBlock) -> Statistics:
    """Expected examinations and relevant clicks [pair], moves [2, 3], and the log-likelihood.

    Observed events are summed per pair, tails per session. Moves count, for each α, how often users
    continued and how often they could have. Also returned: sessions whose list was examined
    [query].
    """
    sessions, alpha = block.sessions, parameters.alpha
    theta = parameters.theta[sessions.pairs]
    examinations, relevant = block.observed.examinations.copy(), np.zeros(len(theta))
    moves, outcomes = np.zeros((2, 3)), np.zeros((2, N_OUTCOMES))
    initiation = rate_of_block(parameters.initiation, sessions)
    initiated = np.zeros(sessions.n_queries)
    observed = _observed_terms(*block.observed, theta, alpha, relevant, moves)
    tails = _tail_expectations(
        sessions.pair, sessions.pair_query, sessions.page, block.ends, sessions.weight,
        block.longest, block.outcome,
        outcome_likelihoods(parameters.rates, parameters.outcome_weight),
        initiation, theta, alpha, examinations, relevant, moves, outcomes, initiated,
    )  # fmt: skip
    pairs = PairSums.of(sessions.first_pair, examinations=examinations, relevant=relevant)
    pairs += PairSums.of(sessions.first_query, initiated=initiated)
    totals = {"moves": moves, "outcomes": outcomes, "all_initiated": np.asarray(initiated.sum())}
    return Statistics(observed + tails, totals, pairs)


@kernel
def _observed_terms(
    examinations: Float64, clicks: Float64, last_clicks: Float64, theta: Float64, alpha: Float64,
    relevant: Float64, moves: Float64,
) -> float:  # fmt: skip
    """Add the events observed down to the last clicks, and return their log-probability."""
    total = all_skips = 0.0
    for p in range(len(examinations)):
        if examinations[p] > 0.0:
            skips = examinations[p] - clicks[p]
            total += clicks[p] * np.log(theta[p]) + skips * np.log(1.0 - theta[p])
            all_skips += skips
        n_followed = clicks[p] - last_clicks[p]
        if n_followed > 0.0:
            go = alpha[1] * (1.0 - theta[p]) + alpha[2] * theta[p]
            expected = n_followed * alpha[2] * theta[p] / go
            total += n_followed * np.log(go)
            relevant[p] += expected
            moves[:, 1] += n_followed - expected
            moves[:, 2] += expected
    moves[:, 0] += all_skips
    return float(total + all_skips * np.log(alpha[0]))


@kernel
def _tail_expectations(
    pair: Int32, pair_query: Int32, page: Int64, ends: Int64, weight: Float64, longest: int,
    outcome: Int8, likelihood: Float64, initiation: Float64, theta: Float64, alpha: Float64,
    examinations: Float64, relevant: Float64, moves: Float64, outcomes: Float64,
    initiated: Float64,
) -> float:  # fmt: skip
    """Add the expectations at the last clicks and below them, and return log P(tails)."""
    total = 0.0
    tail = np.empty(longest + 1)
    on = alpha[0]
    for s in range(len(weight)):
        ads, end = pair[page[s] : page[s + 1]], ends[s]
        query = pair_query[ads[0]]
        start = initiation[query]
        no_click = no_click_tail(ads, theta, on, end, tail)
        examination = weight[s]
        if end > 0:
            last = ads[end - 1]
            # P(no further click) when the ad is irrelevant, and when it is relevant.
            stops = 1.0 - (1.0 - no_click) * alpha[1], 1.0 - (1.0 - no_click) * alpha[2]
            ends_irrelevant, ends_relevant = (1.0 - theta[last]) * stops[0], theta[last] * stops[1]
            if len(outcome) > 0:
                ends_irrelevant *= likelihood[outcome[s], 0]
                ends_relevant *= likelihood[outcome[s], 1]
            both = ends_irrelevant + ends_relevant
            expected = ends_relevant / both
            if len(outcome) > 0:
                outcomes[0, outcome[s]] += weight[s] * (1.0 - expected)
                outcomes[1, outcome[s]] += weight[s] * expected
            onward = alpha[1] * no_click / stops[0], alpha[2] * no_click / stops[1]
            relevant[last] += weight[s] * expected
            if end < len(ads):  # after a click on the last ad there is nothing to continue to
                moves[0, 1] += weight[s] * (1.0 - expected) * onward[0]
                moves[1, 1] += weight[s] * (1.0 - expected)
                moves[0, 2] += weight[s] * expected * onward[1]
                moves[1, 2] += weight[s] * expected
            examination *= (1.0 - expected) * onward[0] + expected * onward[1]
            no_click = both
            initiated[query] += weight[s]
            total += weight[s] * np.log(start)
        else:
            go = start * no_click
            no_click = max(1.0 - start + go, SMALLEST_PROBABILITY)
            examination *= go / no_click
            initiated[query] += examination
        total += weight[s] * np.log(no_click)
        for i in range(end, len(ads)):
            examinations[ads[i]] += examination
            next_examination = examination * on * tail[i + 1] / (1.0 - on + on * tail[i + 1])
            if i + 1 < len(ads):
                moves[0, 0] += next_examination
                moves[1, 0] += examination
            examination = next_examination
    return total
