"""DBN, the dynamic Bayesian network: the user continues until satisfied or tired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import BlockRows, GroupedSessions, cut_rows
from reclick.data.outcomes import N_OUTCOMES, Int8
from reclick.data.ragged import Float64, Int32, Int64
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import EMProblem, FitResult, PairSums, Statistics
from reclick.fitting.folds import folds_of_click_sets
from reclick.fitting.outcomes import (
    TYPICAL_RATES,
    OutcomeRates,
    mean_satisfaction,
    outcome_likelihoods,
)
from reclick.fitting.search import Search
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import (
    SMALLEST_PROBABILITY,
    CascadeBlock,
    CascadeData,
    as_cascade_block,
    cascade_blocks,
    cascade_pages,
    clicks_per_pair,
    no_click_tail,
)
from reclick.models.kernels.initiation import (
    FIRST_INITIATION,
    OVERALL_RATE_STRENGTH,
    RateCounts,
    clip_to_interior,
    estimate_rate,
    is_by_query,
    rate_of_block,
    rate_of_sessions,
)
from reclick.models.settings import setting
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex

PAIR_STATISTICS = ("examinations", "satisfied")
QUERY_STATISTICS = ("initiated", "continued", "continuable")
# The values among which "cv" chooses, and its value if cross-validation is not possible.
CONTINUATIONS = (
    *(0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99, 1.0),
)
DEFAULT_CONTINUATION = 0.9
CV_SESSIONS = 200_000  # distinct sessions for "cv"; from a larger log, whole queries are drawn


class DBNParameters(NamedTuple):
    """What EM estimates. λ and μ are one for all queries, or one per query."""

    theta: Float64  # [pair]
    rho: Float64  # [pair]
    continuation: Float64 | float  # λ [query]
    rates: Float64 = TYPICAL_RATES  # of conversions and quick returns: reclick.fitting.outcomes
    outcome_weight: float = 1.0
    initiation: Float64 | float = 1.0  # μ [query]

    @property
    def has_rates_by_query(self) -> bool:
        """Whether λ or μ is one per query."""
        return is_by_query(self.continuation) or is_by_query(self.initiation)

    def for_block(self, rows: BlockRows) -> Any:
        """Return the parameters that the E-step of a block needs."""
        return cut_rows(self, rows, ("theta", "rho"), ("continuation", "initiation"))


@dataclass(frozen=True)
class DBNProblem(EMProblem[DBNParameters]):
    """Maximises the posterior density of the parameters."""

    blocks: Sequence[CascadeBlock]
    prior: BetaPrior  # of θ [pair]
    satisfaction: tuple[float, float]  # mean and strength of the prior of ρ
    clicks: Float64  # [pair]
    n_sessions: Float64  # [query]
    sessions: float
    continuation: float  # λ, where EM starts
    initiation_prior: tuple[float, float] | None  # of μ, where it is estimated
    continuation_prior: tuple[float, float] | None  # of λ, where it is estimated
    outcomes: OutcomeRates | None
    outcome_weight: float
    initiation_by_query: bool
    continuation_by_query: bool
    one_satisfaction: bool = False  # whether all pairs have the same ρ

    @property
    def e_step(self) -> Callable[[DBNParameters, CascadeBlock], Statistics]:
        """The E-step of a block of sessions."""
        return e_step

    @cached_property
    def _clicked_pairs(self) -> Int64:
        """The rows of the pairs with clicks; for other pairs ρ stays at its prior mean."""
        return np.flatnonzero(self.clicks)

    def start(self, last: DBNParameters | None) -> DBNParameters:
        """Start at the prior means, or where another EM ended; rates per query at the overall."""
        now = last
        if now is None:
            rho = np.full(len(self.prior.mean), self.satisfaction[0])
            theta = clip_to_interior(self.prior.mean)
            now = DBNParameters(theta, rho, self.continuation, TYPICAL_RATES, self.outcome_weight)
            if self.initiation_prior is not None:
                now = now._replace(initiation=FIRST_INITIATION)
        size = len(self.n_sessions)
        if self.initiation_by_query:
            now = now._replace(initiation=np.full(size, now.initiation))
        if self.continuation_by_query:
            now = now._replace(continuation=np.full(size, now.continuation))
        return now

    def m_step(self, now: DBNParameters, statistics: Statistics) -> DBNParameters:
        """Update θ and ρ of each pair, μ and λ (per query or overall), and the outcome rates."""
        examinations, satisfied = (statistics.pairs[name] for name in PAIR_STATISTICS)
        theta = posterior_mean(self.clicks, examinations, *self.prior)
        rho = self._estimate_satisfaction(satisfied)
        now = now._replace(theta=clip_to_interior(theta), rho=clip_to_interior(rho))
        now = self._estimate_browsing(now, statistics)
        if self.outcomes is None:
            return now
        return now._replace(rates=self.outcomes.estimate(statistics.totals["outcomes"]))

    def _estimate_satisfaction(self, satisfied: Float64) -> Float64:
        """Estimate ρ of each pair from its satisfied clicks, or one for all pairs [pair]."""
        rows, (mean, strength) = self._clicked_pairs, self.satisfaction
        if self.one_satisfaction:
            total = posterior_mean(satisfied.sum(), self.clicks.sum(), mean, strength)
            return np.full(len(self.clicks), float(total))
        rho = np.full(len(self.clicks), mean)
        rho[rows] = posterior_mean(satisfied[rows], self.clicks[rows], mean, strength)
        return rho

    def _estimate_browsing(self, now: DBNParameters, statistics: Statistics) -> DBNParameters:
        """Update μ and λ, where they are estimated."""
        initiated = continued = continuable = np.zeros(0)
        if now.has_rates_by_query:
            initiated, continued, continuable = (statistics.pairs[x] for x in QUERY_STATISTICS)
        totals = statistics.totals["moves"].tolist()
        if self.initiation_prior is not None:
            counts = RateCounts(initiated, self.n_sessions, totals[0], self.sessions)
            rate = estimate_rate(now.initiation, counts, *self.initiation_prior)
            now = now._replace(initiation=rate)
        if self.continuation_prior is not None:
            counts = RateCounts(continued, continuable, totals[1], totals[2])
            rate = estimate_rate(now.continuation, counts, *self.continuation_prior)
            now = now._replace(continuation=rate)
        return now

    def log_prior(self, now: DBNParameters) -> float:
        """Log prior of the rates of outcomes, and of μ and λ if they are common to all queries."""
        value = self._log_browsing_prior(now, by_query=False)
        return value if self.outcomes is None else value + self.outcomes.log_prior(now.rates)

    def log_row_prior(self, now: DBNParameters) -> float:
        """Log prior of θ and ρ, and of μ and λ per query."""
        rho = now.rho[:1] if self.one_satisfaction else now.rho[self._clicked_pairs]
        satisfaction = log_beta(rho, *self.satisfaction)
        value = log_beta(now.theta, *self.prior) + satisfaction
        return value + self._log_browsing_prior(now, by_query=True)

    def _log_browsing_prior(self, now: DBNParameters, *, by_query: bool) -> float:
        value = 0.0
        for rate, prior in (
            (now.initiation, self.initiation_prior),
            (now.continuation, self.continuation_prior),
        ):
            if prior is not None and isinstance(rate, np.ndarray) == by_query:
                value += log_beta(np.asarray(rate), *prior)
        return value


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
    session and `seed`, so the order of the rows does not matter. With "query", every query has a
    λ of its own, estimated by EM.

    The prior mean of ρ is by default how often a click is the last of its session. That is too
    high, as users also leave unsatisfied. With `satisfaction_prior="auto"` it is estimated: by EM
    with one ρ for all pairs.

    `initiation` adds that the user may skip the list: its top is examined with μ, which is "one"
    for all queries or one per "query". Then μ = expected initiated sessions / sessions, and
    λ = expected continuations / expected chances to continue. One value for all queries is
    estimated first; it is then the prior mean of each query, with strength `query_strength`.

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
        "initiation_",
        "cv_",
        "outcome_rates_",
    )
    query_parameters: ClassVar[tuple[str, ...]] = ("query_initiation_", "query_continuation_")
    probabilities: ClassVar[tuple[str, ...]] = (
        *("theta_", "rho_", "satisfaction_", "continuation_", "initiation_"),
    )
    outcome_rates_: Float64 | None = None
    initiation_: float = 1.0  # of all queries
    continuation_: float = DEFAULT_CONTINUATION  # of all queries
    query_initiation_: Float64 | None = None  # [query]
    query_continuation_: Float64 | None = None  # [query]
    overall_strength: ClassVar[float] = 2.0
    stages: ClassVar[tuple[str, ...]] = ("one", "query")
    fits_in_buckets: ClassVar[bool] = True

    continuation: str | float = setting(
        default="cv",
        choices=("cv", "query"),
        greater_than=0,
        high=1,
        help='continuation λ: a number, "cv" (chosen from 16 values by cross-validation), or '
        '"query" (an estimate for each query)',
    )
    initiation: str | None = setting(
        default=None,
        choices=("one", "query"),
        allow_none=True,
    )
    query_strength: float = setting(
        default=20.0,
        low=0,
        help="strength of the prior of a query's μ, in sessions, and of its λ, in opportunities to "
        "continue; the prior means are the μ and λ of all queries",
    )
    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    satisfaction_prior: str | float = setting(
        default="overall",
        choices=("overall", "auto"),
        allow_probability=True,
        help='prior mean of the satisfaction ρ: "overall" (the share of clicks that are the last '
        'of their session, which overestimates ρ), "auto" (the maximum-likelihood estimate of one '
        "ρ for all pairs), or a number",
    )
    satisfaction_strength: float = setting(default=1.0, low=0)
    outcome_weight: float = setting(default=1.0, low=0, high=1)
    folds: int = setting(
        default=3, low=2, high=1000, integer=True, help="number of cross-validation folds"
    )
    seed: int = setting(default=0, low=0, integer=True)
    max_iterations: int = setting(default=100, low=1, integer=True)
    tolerance: float = setting(default=1e-5)

    def _prepare(self, data: GroupedSessions) -> CascadeData:
        return CascadeData(data, cascade_blocks(data, self._engine))

    def _fit_stages(self) -> tuple[str, ...]:
        per_query = "query" in (self.initiation, self.continuation) and not self._is_pilot
        return self.stages if per_query else self.stages[:1]

    def _sample_size(self) -> int:
        needs_sample = self.continuation == "cv" or self.satisfaction_prior == "auto"
        return CV_SESSIONS if needs_sample else 0

    def _choose_settings(self, sample: GroupedSessions | None, history: Counts) -> None:
        """Set the mean satisfaction and the continuation, from the settings or the sample."""
        mean, self.cv_ = self.satisfaction_prior, None
        self.satisfaction_ = (
            mean_satisfaction(history, self.outcome_weight)
            if isinstance(mean, str)
            else float(mean)
        )
        self.continuation_ = DEFAULT_CONTINUATION
        if not isinstance(self.continuation, str):
            self.continuation_ = float(self.continuation)
        elif self.continuation == "cv" and sample is not None:
            self.cv_ = self._cross_validate(sample, history)
            if self.cv_ is not None:
                self.continuation_ = float(self.cv_[self.cv_[:, 1].argmax(), 0])
        if mean == "auto" and sample is not None:
            self.satisfaction_ = self._fit_satisfaction(sample, history)

    def _make_problem(
        self, stage: str, data: CascadeData, prior: BetaPrior, history: Counts
    ) -> DBNProblem:
        sessions, blocks = data
        whole, outcomes = sessions.whole, None
        n_sessions = np.zeros(len(sessions.counts.queries))
        np.add.at(n_sessions, whole.query, whole.weight)
        if sessions.outcome is not None:
            outcomes = OutcomeRates.of(self._whole_log(sessions.counts), self.outcome_weight)
        initiation = continuation = None
        if self.initiation is not None:
            initiation = FIRST_INITIATION, OVERALL_RATE_STRENGTH
        if self.continuation == "query":
            continuation = DEFAULT_CONTINUATION, OVERALL_RATE_STRENGTH
        if stage == "query" and self.initiation == "query":
            initiation = self.initiation_, self.query_strength
        if stage == "query" and self.continuation == "query":
            continuation = self.continuation_, self.query_strength
        return DBNProblem(
            blocks,
            prior,
            (self.satisfaction_, self.satisfaction_strength),
            clicks_per_pair(blocks),
            n_sessions,
            sessions.n_sessions,
            self.continuation_,
            initiation,
            continuation,
            outcomes,
            self.outcome_weight,
            stage == "query" and self.initiation == "query",
            stage == "query" and self.continuation == "query",
        )

    def _set_fit(
        self, stage: str, problem: DBNProblem, fit: FitResult[DBNParameters, Statistics]
    ) -> None:
        parameters = fit.parameters
        self.query_initiation_ = self.query_continuation_ = None
        if isinstance(parameters.initiation, np.ndarray):
            self.query_initiation_ = parameters.initiation
        elif not self._is_pilot:
            self.initiation_ = float(parameters.initiation)
        if isinstance(parameters.continuation, np.ndarray):
            self.query_continuation_ = parameters.continuation
        elif stage == self.stages[0] and not self._is_pilot:
            self.continuation_ = float(parameters.continuation)
        self.theta_, self.rho_ = parameters.theta, parameters.rho
        self.outcome_rates_ = None if problem.outcomes is None else parameters.rates
        self.exposure_ = fit.statistics.pairs["examinations"]

    def _fit_satisfaction(self, sessions: GroupedSessions, history: Counts) -> float:
        """Estimate one ρ for all pairs: that of highest posterior density."""
        n_pairs = len(sessions.counts.impressions)
        prior = BetaPrior.constant(self.prior_mean_, self._overall_strength, n_pairs)
        data = CascadeData(sessions, cascade_blocks(sessions, self._engine))
        problem = self._make_problem(self.stages[0], data, prior, history)
        fit = replace(problem, one_satisfaction=True).maximise(
            None,
            self._engine,
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
            quiet=True,
        )
        return float(fit.parameters.rho[0])

    def _cross_validate(self, sessions: GroupedSessions, history: Counts) -> Float64 | None:
        """Return the held-out log-probability per session of each λ [λ, 2]; None without two folds.

        Within a fold, the fit of each λ starts where the fit of the previous one ended.
        """
        folds = folds_of_click_sets(sessions, self.folds, self.seed)
        if len(folds) < 2:
            return None
        limits = {"max_iterations": self.max_iterations, "tolerance": self.tolerance}
        n_pairs = len(sessions.counts.impressions)
        prior = BetaPrior.constant(self.prior_mean_, self._overall_strength, n_pairs)
        data = [CascadeData(fold.train, cascade_blocks(fold.train, self._engine)) for fold in folds]
        problems = [self._make_problem(self.stages[0], train, prior, history) for train in data]
        tests = [as_cascade_block(fold.test.whole) for fold in folds]
        weights = [fold.test.weight.sum(keepdims=True) for fold in folds]

        def fit(fold: int, continuation: float, start: DBNParameters) -> DBNParameters:
            now = start._replace(continuation=continuation)
            return problems[fold].maximise(now, self._engine, **limits).parameters

        def score(fold: int, fitted: DBNParameters) -> Float64:
            return np.asarray(e_step(fitted, tests[fold]).log_likelihood / weights[fold])

        search = Search[float, DBNParameters](fit, score, weights)
        starts = [problem.start(None) for problem in problems]
        trials = search.follow(CONTINUATIONS[::-1], starts)
        return np.array([(trial.hyper, trial.mean) for trial in trials[::-1]])

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        lookup = self._pairs.find(batch)
        theta = self._pairs.lookup_or_prior(self.theta_, batch, lookup, text)
        rho = self._pairs.take_or(self.rho_, lookup.row, self.satisfaction_)
        on = rate_of_sessions(self.query_continuation_, self.continuation_, lookup.query)
        return cascade_pages(
            batch,
            theta,
            1 - rho,
            initiation=rate_of_sessions(self.query_initiation_, self.initiation_, lookup.query),
            clicked=on,
            skipped=on,
            satisfaction=rho,
        )


def e_step(parameters: DBNParameters, block: CascadeBlock) -> Statistics:
    """Expected examinations and satisfied clicks [pair], moves, and the log-likelihood.

    Observed events are summed per pair, tails per session. Moves are sessions whose list was
    examined, continuations, and opportunities to continue; they are returned per query only where
    λ or μ is one per query.
    """
    sessions = block.sessions
    theta, rho = parameters.theta[sessions.pairs], parameters.rho[sessions.pairs]
    on = rate_of_block(parameters.continuation, sessions)
    initiation = rate_of_block(parameters.initiation, sessions)
    examinations, satisfied = block.observed.examinations.copy(), np.zeros(len(theta))
    outcomes, moves = np.zeros((2, N_OUTCOMES)), np.zeros((3, sessions.n_queries))
    tails = _tail_expectations(
        sessions.pair, sessions.pair_query, sessions.page, block.ends, sessions.weight,
        block.longest, initiation, on, block.outcome,
        outcome_likelihoods(parameters.rates, parameters.outcome_weight),
        theta, rho, examinations, satisfied, outcomes, moves,
    )  # fmt: skip
    observed = _observed_terms(*block.observed, sessions.pair_query, theta, rho, on, moves)
    pairs = PairSums.of(sessions.first_pair, examinations=examinations, satisfied=satisfied)
    if parameters.has_rates_by_query:
        query_sums = dict(zip(QUERY_STATISTICS, moves, strict=True))
        pairs += PairSums.of(sessions.first_query, **query_sums)
    totals = {"outcomes": outcomes, "moves": moves.sum(axis=1)}
    return Statistics(tails + observed, totals, pairs)


@kernel
def _observed_terms(
    examinations: Float64,
    clicks: Float64,
    last_clicks: Float64,
    query: Int32,
    theta: Float64,
    rho: Float64,
    on: Float64,
    moves: Float64,
) -> float:
    """Add the observed moves, and return the log-probability of all events down to the last clicks.

    These events are clicks, skips and continuations.
    """
    total = 0.0
    for p in range(len(examinations)):
        if examinations[p] > 0.0:
            skips = examinations[p] - clicks[p]
            total += clicks[p] * np.log(theta[p]) + skips * np.log(1.0 - theta[p])
            n_onward = examinations[p] - last_clicks[p]
            total += n_onward * np.log(on[query[p]])
            moves[1, query[p]] += n_onward
            moves[2, query[p]] += n_onward
        if clicks[p] > last_clicks[p]:
            total += (clicks[p] - last_clicks[p]) * np.log(1.0 - rho[p])
    return float(total)


@kernel
def _tail_expectations(
    pair: Int32, pair_query: Int32, page: Int64, ends: Int64, weight: Float64, longest: int,
    initiation: Float64, continuation: Float64, outcome: Int8, likelihood: Float64, theta: Float64,
    rho: Float64, examinations: Float64, satisfied: Float64, outcomes: Float64, moves: Float64,
) -> float:  # fmt: skip
    """Add expected examinations below the last clicks, satisfied clicks and moves.

    Return log P(tails).
    """
    total = 0.0
    tail = np.empty(longest + 1)
    for s in range(len(weight)):
        ads, end = pair[page[s] : page[s + 1]], ends[s]
        query = pair_query[ads[0]]
        on, start = continuation[query], initiation[query]
        no_click = no_click_tail(ads, theta, on, end, tail)
        examination = weight[s]
        if end > 0:
            last = ads[end - 1]
            p_satisfied, p_unsatisfied = rho[last], 1.0 - rho[last]
            if len(outcome) > 0:
                p_satisfied *= likelihood[outcome[s], 1]
                p_unsatisfied *= likelihood[outcome[s], 0]
            go = p_unsatisfied * on * no_click
            no_click = p_satisfied + p_unsatisfied * (1.0 - on) + go
            no_click = max(no_click, SMALLEST_PROBABILITY)
            satisfied[last] += weight[s] * p_satisfied / no_click
            examination *= go / no_click
            if end < len(ads):  # after a click on the last ad there is nothing to continue to
                moves[1, query] += examination
                moves[2, query] += weight[s] * (1.0 - p_satisfied / no_click)
            moves[0, query] += weight[s]
            total += weight[s] * np.log(start)
            if len(outcome) > 0:
                outcomes[0, outcome[s]] += weight[s] * (1.0 - p_satisfied / no_click)
                outcomes[1, outcome[s]] += weight[s] * p_satisfied / no_click
        else:
            go = start * no_click
            no_click = max(1.0 - start + go, SMALLEST_PROBABILITY)
            examination *= go / no_click
            moves[0, query] += examination
        total += weight[s] * np.log(no_click)
        for i in range(end, len(ads)):
            examinations[ads[i]] += examination
            next_examination = examination * on * tail[i + 1] / (1.0 - on + on * tail[i + 1])
            if i + 1 < len(ads):
                moves[1, query] += next_examination
                moves[2, query] += examination
            examination = next_examination
    return total
