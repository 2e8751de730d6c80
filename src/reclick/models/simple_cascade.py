"""CM, DCM and SDBN: cascade models that are fitted by counting, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64, Int32, positions_in_runs
from reclick.fitting.beta import BetaPrior, posterior_mean
from reclick.fitting.em import FitResult, Statistics
from reclick.fitting.outcomes import count_satisfied, mean_satisfaction
from reclick.fitting.priors import last_click_rate
from reclick.models.base import PILOT_ITERATIONS, PILOT_TOLERANCE, ClickModel
from reclick.models.kernels.cascade import (
    ExaminationCounts,
    cascade_pages,
    count_examinations,
    examined_until,
    first_click_positions,
    last_click_positions,
    lowest_click_outcomes,
)
from reclick.models.kernels.initiation import (
    FIRST_INITIATION,
    InitiationBlock,
    InitiationParameters,
    InitiationPrior,
    InitiationProblem,
    Rate,
    rate_of_sessions,
    sessions_per_query,
    split_to_first_click,
    split_to_last_click,
)
from reclick.models.settings import setting
from reclick.text.word_rates import TextIndex

INITIATION_LIMITS: dict[str, Any] = {"max_iterations": 1000, "tolerance": 1e-6}
PILOT_LIMITS: dict[str, Any] = {
    "max_iterations": PILOT_ITERATIONS,
    "tolerance": PILOT_TOLERANCE,
    "quiet": True,
}


class CountedData(NamedTuple):
    """Sessions, and their blocks for EM if it estimates initiation."""

    sessions: GroupedSessions
    blocks: Sequence[InitiationBlock]


class CountedCascade(ClickModel):
    """Base of the cascade models that are fitted by counting: their attractiveness.

    With `initiation` the user may skip the list. Then θ and μ are estimated by EM: it is not
    observed whether the user of a session without a click examined the list.
    """

    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    query_parameters: ClassVar[tuple[str, ...]] = ("query_initiation_",)
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_", "initiation_")
    probabilities: ClassVar[tuple[str, ...]] = ("theta_", "initiation_")
    overall_strength: ClassVar[float] = 0.5
    fits_in_buckets: ClassVar[bool] = True
    stages: ClassVar[tuple[str, ...]] = ("one", "query")  # where there is initiation
    to_first_click: ClassVar[bool] = False  # how far a page is examined; else to the last click
    initiation_: float = 1.0  # of all queries
    query_initiation_: Float64 | None = None  # [query]

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    initiation: str | None = setting(default=None, choices=("one", "query"), allow_none=True)
    query_strength: float = setting(default=20.0, low=0)

    def _prepare(self, data: GroupedSessions) -> CountedData:
        split = split_to_first_click if self.to_first_click else split_to_last_click
        blocks = [] if self.initiation is None else self._engine.prepare(split, data.blocks())
        return CountedData(data, blocks)

    def _fit_stages(self) -> tuple[str, ...]:
        if self.initiation is None:
            return ()
        return self.stages if self.initiation == "query" and not self._is_pilot else ("one",)

    @property
    def _em_limits(self) -> dict[str, Any]:
        return PILOT_LIMITS if self._is_pilot else INITIATION_LIMITS

    def _estimate(self, data: CountedData, prior: BetaPrior, history: Counts) -> None:
        counts = self._set_counted_parameters(data.sessions, history)
        self.exposure_ = counts.examinations
        self.theta_ = posterior_mean(counts.clicks, counts.examinations, *prior)
        super()._estimate(data, prior, history)

    def _set_counted_parameters(
        self, sessions: GroupedSessions, history: Counts
    ) -> ExaminationCounts:
        """Count sessions down to their ends; subclasses also set parameters from the counts."""
        block = sessions.whole
        ends = first_click_positions(block) if self.to_first_click else last_click_positions(block)
        return count_examinations(block, examined_until(ends, block))

    def _make_problem(
        self, stage: str, data: CountedData, prior: BetaPrior, history: Counts
    ) -> InitiationProblem:
        sessions, blocks = data
        by_query = stage == "query"
        clicks = np.concatenate([block.observed.clicks for block in blocks])
        overall = self.initiation_ if by_query else FIRST_INITIATION
        of_query = sessions_per_query(sessions.blocks())
        initiation = InitiationPrior(of_query, sessions.n_sessions, self.query_strength, overall)
        return InitiationProblem(blocks, clicks, prior, initiation, by_query)

    def _set_fit(
        self,
        stage: str,
        problem: InitiationProblem,
        fit: FitResult[InitiationParameters, Statistics],
    ) -> None:
        parameters = fit.parameters
        self.query_initiation_ = None
        if problem.by_query:
            self.query_initiation_ = np.asarray(parameters.initiation)
        else:
            self.initiation_ = float(parameters.initiation)
        self.theta_ = parameters.theta
        self.exposure_ = fit.statistics.pairs["examinations"]

    def _initiation_of(self, query: Int32) -> Rate:
        """The μ of each session's query, or one for all [session]."""
        return rate_of_sessions(self.query_initiation_, self.initiation_, query)


class CM(CountedCascade):
    """The cascade model: P(click at j only) = θ_j Π_{i < j} (1 − θ_i).

    There is no second click: a session with two has probability 0. Ads down to the first click are
    examined, or the whole page when there is none. θ(q, d) = (first clicks + s m) / (examinations
    + s), m and s being the mean and the strength of the prior.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [2], [], [2]]}
    >>> model = CM(attractiveness_strength=0).fit(log)
    >>> model.click_prob({"query": ["pizza"], "ads": [["a", "b"]]})
    array([[0.25, 0.5 ]])
    """

    name: ClassVar[str] = "cm"
    all_sets_possible: ClassVar[bool] = False
    assumes: ClassVar[str] = (
        "the user scans down to the first click and stops; two clicks have probability 0"
    )
    reference: ClassVar[str] = "Craswell, Zoeter, Taylor, Ramsey 2008"
    to_first_click: ClassVar[bool] = True

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        lookup = self._pairs.find(batch)
        theta = self._pairs.lookup_or_prior(self.theta_, batch, lookup, text)
        initiation = self._initiation_of(lookup.query)
        return cascade_pages(batch, theta, theta, initiation=initiation, clicked=0.0)


class DCM(CountedCascade):
    """The dependent click model: after a click at position r the user continues with λ_r.

    P(click | examination) = θ(q, d); P(continue) = λ_r after a click at r, 1 after none. Counting
    takes ads down to the last click as examined, or the whole page when there is none, which
    maximises a lower bound of the likelihood: θ = (clicks + s m) / (examinations + s) and
    λ_r = (clicks at r that are not the last + t μ) / (clicks at r + t), with s and t the strengths
    and m and μ the means of the priors.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> model = DCM(attractiveness_strength=0, continuation_strength=0).fit(log)
    >>> model.click_prob({"query": ["pizza"], "ads": [["a", "b"]]})
    array([[0.5, 0.5]])
    """

    name: ClassVar[str] = "dcm"
    assumes: ClassVar[str] = (
        "the user scans down; the probability to continue after a click depends on its position"
    )
    reference: ClassVar[str] = "Guo, Liu, Wang 2009"
    global_parameters: ClassVar[tuple[str, ...]] = (
        "prior_mean_",
        "initiation_",
        "continuation_",
        "overall_continuation_",
    )
    probabilities: ClassVar[tuple[str, ...]] = (
        *("theta_", "initiation_", "continuation_", "overall_continuation_"),
    )

    continuation_prior: str | float = setting(
        default="overall",
        choices=("overall",),
        allow_probability=True,
        help='prior mean of the continuation λ_r: "overall" (the share of clicks that are not the '
        "last), or a number",
    )
    continuation_strength: float = setting(
        default=10.0, low=0, help="strength of that prior, in clicks"
    )

    def _set_counted_parameters(
        self, sessions: GroupedSessions, history: Counts
    ) -> ExaminationCounts:
        clicks, last = _clicks_by_position(self._whole_log(sessions.counts), sessions.max_ads)
        mean = self.continuation_prior
        self.overall_continuation_ = (
            1 - last_click_rate(history) if isinstance(mean, str) else float(mean)
        )
        self.continuation_ = posterior_mean(
            clicks - last, clicks, self.overall_continuation_, self.continuation_strength
        )
        return super()._set_counted_parameters(sessions, history)

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        lookup = self._pairs.find(batch)
        theta = self._pairs.lookup_or_prior(self.theta_, batch, lookup, text)
        position = positions_in_runs(batch.page)
        continuation = self.continuation_[np.minimum(position, len(self.continuation_) - 1)]
        onward = np.where(
            position < len(self.continuation_), continuation, self.overall_continuation_
        )
        return cascade_pages(batch, theta, onward, initiation=self._initiation_of(lookup.query))


def _clicks_by_position(counts: Counts, length: int) -> tuple[Float64, Float64]:
    """Clicks at each position, and sessions whose lowest click is there [position]."""
    sizes, sessions = np.diff(counts.sequence_starts), counts.per_sequence()
    has_click = sizes > 0
    lowest = np.maximum.reduceat(counts.sequence_clicks, counts.sequence_starts[:-1][has_click])
    observations = (
        (counts.sequence_clicks, np.repeat(sessions, sizes)),
        (lowest, sessions[has_click]),
    )
    clicks, last = (
        np.bincount(position, weight, length + 1)[1:].astype(np.float64)
        for position, weight in observations
    )
    return clicks, last


class SDBN(CountedCascade):
    """The simplified dynamic Bayesian network: the user continues until a clicked ad satisfies.

    P(click | examination) = θ(q, d); P(continue) = 1 − ρ(q, d) after a click, 1 after none.
    Counting takes the last click as satisfied and ads down to it as examined, or the whole page
    when there is none: θ = (clicks + s m) / (examinations + s) and ρ = (last clicks + t μ) /
    (clicks + t), with s and t the strengths and m and μ the means of the priors. The last click is
    the lowest one. `DBN(continuation=1)` is the same model, fitted to its likelihood.

    Where the log has outcomes of clicks, not every last click counts as satisfied: the number of
    satisfied ones is what `count_satisfied` (`reclick.fitting.outcomes`) expects.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> SDBN(attractiveness_strength=0, satisfaction_strength=0).fit(log).rho_
    array([0.5, 1. ])
    """

    name: ClassVar[str] = "sdbn"
    assumes: ClassVar[str] = "the user scans down until an ad that was clicked satisfies"
    reference: ClassVar[str] = "Chapelle, Zhang 2009 (algorithm 1)"
    satisfaction: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_", "rho_")
    global_parameters: ClassVar[tuple[str, ...]] = (
        "prior_mean_",
        "initiation_",
        "satisfaction_",
    )
    probabilities: ClassVar[tuple[str, ...]] = ("theta_", "rho_", "initiation_", "satisfaction_")

    satisfaction_prior: str | float = setting(
        default="overall", choices=("overall",), allow_probability=True
    )
    satisfaction_strength: float = setting(default=5.0, low=0)
    outcome_weight: float = setting(default=1.0, low=0, high=1)

    def _set_counted_parameters(
        self, sessions: GroupedSessions, history: Counts
    ) -> ExaminationCounts:
        mean, weight = self.satisfaction_prior, self.outcome_weight
        self.satisfaction_ = (
            mean_satisfaction(history, weight) if isinstance(mean, str) else float(mean)
        )
        counts, block = super()._set_counted_parameters(sessions, history), sessions.whole
        satisfied, strength = counts.last_clicks, self.satisfaction_strength
        if block.outcome is not None and weight > 0:
            last = lowest_click_outcomes(block)
            satisfaction = count_satisfied(
                sessions.counts, last, counts.clicks, self.satisfaction_, strength, weight
            )
            satisfied = satisfaction.satisfied
        self.rho_ = posterior_mean(satisfied, counts.clicks, self.satisfaction_, strength)
        return counts

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        lookup = self._pairs.find(batch)
        theta = self._pairs.lookup_or_prior(self.theta_, batch, lookup, text)
        rho = self._pairs.take_or(self.rho_, lookup.row, self.satisfaction_)
        initiation = self._initiation_of(lookup.query)
        return cascade_pages(batch, theta, 1 - rho, initiation=initiation, satisfaction=rho)
