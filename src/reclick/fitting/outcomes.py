"""Satisfaction of clicks, estimated from their outcomes.

Given whether a click satisfied, a conversion follows with one of two rates, and without one the
user comes back at once with one of two rates. The user went on after every click except the last,
so these did not satisfy: their outcomes show both rates of unsatisfied clicks. EM learns those of
satisfied clicks from last clicks (decision 20).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from reclick.data.counts import Counts
from reclick.data.outcomes import N_OUTCOMES
from reclick.data.ragged import Float64, read_only
from reclick.fitting.beta import posterior_mean
from reclick.fitting.parameter_tables import Columns, ParameterTable
from reclick.fitting.priors import PRIOR_MARGIN, last_click_rate
from reclick.runtime.jit import kernel

# [conversion or quick return, unsatisfied or satisfied]
TYPICAL_RATES = np.array([[0.02, 0.2], [0.4, 0.05]])
RATE_STRENGTH = np.array([[10.0, 2.0], [10.0, 50.0]])  # clicks
MEAN_STRENGTH = 5.0  # pseudo-clicks: the prior of the satisfaction of a pair
ABANDON_STRENGTH = 10.0  # pseudo-clicks after which the user went on
FIRST_ABANDONED = 0.2  # of unsatisfied clicks, before EM
MAX_ITERATIONS = 500
OUTCOME_TOLERANCE = 1e-6  # change of any share

_CONVERSION, _RETURN = np.divmod(np.arange(N_OUTCOMES), 3)
# [conversion or quick return, outcome]: whether the outcome says that it happened, or did not
EVENT_OF_OUTCOME = np.stack([_CONVERSION == 2, (_RETURN == 1) & (_CONVERSION < 2)]).astype(float)
NO_EVENT_OF_OUTCOME = np.stack([_CONVERSION == 1, (_RETURN == 2) & (_CONVERSION < 2)]).astype(float)


def outcome_likelihoods(rates: Float64, weight: float = 1.0) -> Float64:
    """P(outcome | unsatisfied or satisfied) to the power of the weight [outcome, 2].

    >>> outcome_likelihoods(TYPICAL_RATES)[4].round(3)  # no conversion, a quick return
    array([0.392, 0.04 ])
    """
    logs: Float64 = EVENT_OF_OUTCOME.T @ np.log(rates) + NO_EVENT_OF_OUTCOME.T @ np.log(1 - rates)
    return np.exp(weight * logs)


class OutcomeRates(NamedTuple):
    """The data of the rates besides last clicks: their priors, and earlier clicks."""

    happened: Float64  # [2, 2] pseudo-clicks with a conversion, or a quick return
    happened_not: Float64  # [2, 2] … without
    weight: float

    @classmethod
    def of(cls, counts: Counts, weight: float, *, use_earlier: bool = True) -> OutcomeRates:
        """The priors and, with `use_earlier`, the clicks before the last as unsatisfied ones."""
        happened = RATE_STRENGTH * TYPICAL_RATES
        prior = cls(happened, RATE_STRENGTH - happened, weight)
        if not use_earlier or counts.outcomes is None:
            return prior
        earlier = counts.outcomes.earlier
        return prior.with_clicks(np.stack([earlier, np.zeros(len(earlier))]))

    def with_clicks(self, outcomes: Float64) -> OutcomeRates:
        """The same with more clicks, unsatisfied and satisfied [2, outcome]."""
        return OutcomeRates(
            self.happened + self.weight * (EVENT_OF_OUTCOME @ outcomes.T),
            self.happened_not + self.weight * (NO_EVENT_OF_OUTCOME @ outcomes.T),
            self.weight,
        )

    def likelihoods(self, rates: Float64) -> Float64:
        """P(outcome | unsatisfied or satisfied) to the power of the weight [outcome, 2]."""
        return outcome_likelihoods(rates, self.weight)

    def estimate(self, last: Float64) -> Float64:
        """The rates, given the expected outcomes of last clicks [2, outcome].

        A conversion never speaks against satisfaction, nor a quick return for it.
        """
        yes, no, _ = self.with_clicks(last)
        rates = yes / (yes + no)
        for row in _find_misordered(rates):
            rates[row] = yes[row].sum() / (yes[row].sum() + no[row].sum())
        return np.clip(rates, PRIOR_MARGIN, 1 - PRIOR_MARGIN)

    def log_prior(self, rates: Float64) -> float:
        """The log-density of the rates, and the log-probability of the earlier outcomes."""
        logs = self.happened * np.log(rates) + self.happened_not * np.log(1 - rates)
        return float(logs.sum())


@dataclass(frozen=True, slots=True)
class OutcomeTable(ParameterTable):
    """The rates of outcomes as a table that EM estimates."""

    value: ClassVar[str] = "rates"
    statistics: ClassVar[tuple[str, ...]] = ("clicks",)  # last ones [2, outcome]

    prior: OutcomeRates
    rates: Float64 = field(default_factory=TYPICAL_RATES.copy)  # [2, 2]
    clicks: Float64 = field(default_factory=lambda: np.zeros((2, N_OUTCOMES)))  # of the past

    @property
    def likelihoods(self) -> Float64:
        """P(outcome | unsatisfied or satisfied) [outcome, 2]."""
        return self.prior.likelihoods(self.rates)

    def log_prior(self) -> float:
        """Log-density of the rates, with the clicks of the past."""
        return self.prior.with_clicks(self.clicks).log_prior(self.rates)

    def m_step(self, clicks: Float64) -> Self:
        """The rates, given the expected outcomes of last clicks."""
        return replace(self, rates=self.prior.with_clicks(self.clicks).estimate(clicks))

    def constrain(self, values: Float64) -> Float64:
        """Rates between 0 and 1, in the order that `estimate` keeps."""
        rates = np.clip(values, PRIOR_MARGIN, 1 - PRIOR_MARGIN)
        for row in _find_misordered(rates):
            rates[row] = rates[row].mean()
        return rates

    def to_columns(self) -> Columns:
        """The rates and the past: tables of different lengths."""
        return {name: {"value": getattr(self, name).ravel()} for name in ("rates", "clicks")}

    def from_columns(self, read: Callable[..., Float64]) -> Self:
        """This table with other rates and another past."""
        clicks = read("clicks", "value", self.clicks.size).reshape(self.clicks.shape)
        rates = read("rates", "value", self.rates.size)
        return replace(self, clicks=clicks, rates=rates.reshape(self.rates.shape))


def _find_misordered(rates: Float64) -> list[int]:
    """Find the rows by which a conversion speaks against satisfaction, or a quick return for it."""
    misordered = rates[0, 0] > rates[0, 1], rates[1, 0] < rates[1, 1]
    return [row for row, is_misordered in enumerate(misordered) if is_misordered]


class CountedSatisfaction(NamedTuple):
    """Satisfaction by counting, where a last click may also be abandoned."""

    satisfied: Float64  # [pair] expected satisfied clicks
    by_outcome: Float64  # [outcome] P(satisfied | last click with this outcome)
    mean: float  # satisfied clicks among all


def count_satisfied(
    counts: Counts,
    last: Float64,
    clicks: Float64,
    mean: float | None,
    strength: float,
    weight: float,
) -> CountedSatisfaction:
    """Separate satisfied last clicks from abandoned ones by their outcomes.

    A click on pair p satisfies with ρ_p; otherwise the user abandons the session with a probability
    common to all pairs, or goes on. EM over last clicks [pair, outcome] and all clicks [pair], with
    ρ_p shrunk towards the mean (None: that of all clicks) by `strength` clicks. The fewer outcomes
    are known, the fewer clicks count as abandoned: with none, all last clicks satisfied.
    """
    prior = OutcomeRates.of(counts, weight)
    last = read_only(last)
    total, by_outcome = clicks.sum(), last.sum(axis=0)
    sessions = by_outcome.sum()
    abandon = FIRST_ABANDONED * by_outcome[1:].sum() / sessions
    rates, centre = TYPICAL_RATES, 0.5 * sessions / total if mean is None else mean
    rho, satisfied = np.full(len(clicks), centre), np.zeros(len(clicks))
    share = np.ones(N_OUTCOMES)
    for _ in range(MAX_ITERATIONS):
        unsatisfied_likelihood, satisfied_likelihood = prior.likelihoods(rates).T
        expected = _expect_satisfied(
            last, rho, satisfied_likelihood, abandon * unsatisfied_likelihood, satisfied
        )
        previous, share = share, expected / np.maximum(by_outcome, 1e-300)
        abandon = (sessions - expected.sum()) / (total - expected.sum() + ABANDON_STRENGTH)
        centre = expected.sum() / total if mean is None else mean
        rho = posterior_mean(satisfied, clicks, centre, strength)
        rho = np.clip(rho, PRIOR_MARGIN, 1 - PRIOR_MARGIN)
        rates = prior.estimate(np.stack([by_outcome - expected, expected]))
        if np.abs(share - previous).max() < OUTCOME_TOLERANCE:
            break
    return CountedSatisfaction(
        satisfied, share, float(np.clip(centre, PRIOR_MARGIN, 1 - PRIOR_MARGIN))
    )


@kernel
def _expect_satisfied(
    last: Float64,
    rho: Float64,
    satisfied_likelihood: Float64,
    abandoned_likelihood: Float64,
    satisfied: Float64,
) -> Float64:
    """Fill in the expected satisfied last clicks [pair], and return those by outcome."""
    by_outcome = np.zeros(last.shape[1])
    for p in range(len(last)):
        satisfied[p] = 0.0
        for outcome in range(last.shape[1]):
            if last[p, outcome] > 0.0:
                share = rho[p] * satisfied_likelihood[outcome]
                share /= share + (1.0 - rho[p]) * abandoned_likelihood[outcome]
                satisfied[p] += last[p, outcome] * share
                by_outcome[outcome] += last[p, outcome] * share
    return by_outcome


def mean_satisfaction(counts: Counts, weight: float) -> float:
    """The share of clicks that satisfied; without outcomes, the share of last clicks."""
    if counts.outcomes is None or weight == 0:
        return last_click_rate(counts)
    return count_satisfied(
        counts, counts.outcomes.last, counts.clicks, None, MEAN_STRENGTH, weight
    ).mean
