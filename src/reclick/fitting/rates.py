"""Rates of rows with Beta priors, or one rate common to all rows, and their uncertainty.

If successes are not all observed, EM estimates thousands of rates from few trials each, together
with parameters that all rows share. If every rate were a point, rows that happened to succeed would
get a high one, and too little would remain to be explained by the shared parameters (Neyman and
Scott). So the logit of a rate may be normal: its variance v does not change during a fit, and its
mean, logit c, follows from the estimate of the rate. The log-likelihood is its expectation, to
second order. With c the
centre of a rate and r = P(success | observation), a trial costs ½ v c (1 − c), the observation
gains ½ v r (1 − r), and P(success) becomes r + ½ v r (1 − r)(1 − 2r). For v < 4 the
log-probability of the observation is convex in logit c, so EM still cannot lower it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.data.ragged import Float64, Int64
from reclick.fitting.parameter_tables import ParameterTable
from reclick.fitting.posterior import Posterior
from reclick.runtime.jit import kernel

COMMON_STRENGTH = 1.0  # trials that the prior of a rate common to all rows is worth
COMMON_TRIALS = 6.0  # trials that its posterior is worth
LEAST_INFORMATION = 0.5  # on the logit of a rate
MAX_VARIANCE = 2.0  # of the logit of a rate, which must be less than 4


@dataclass(frozen=True, slots=True)
class RateTable(ParameterTable):
    """A rate of each row, with a Beta prior; without a strength one rate for all rows.

    >>> rates = RateTable.build(3, prior_mean=0.5, strength=2.0)
    >>> rates.m_step(np.array([1.0, 0.0, 4.0]), np.array([2.0, 0.0, 6.0])).mean
    array([0.5  , 0.5  , 0.625])
    """

    value: ClassVar[str] = "mean"
    statistics: ClassVar[tuple[str, ...]] = ("successes", "trials")  # [row]
    constants: ClassVar[tuple[str, ...]] = ("variance",)

    mean: Float64  # [row] of the rate
    variance: Float64  # [row] of its logit
    prior_mean: float
    strength: float | None
    successes: Float64  # [row] of the past
    trials: Float64  # [row] of the past

    @classmethod
    def build(cls, rows: int, prior_mean: float, strength: float | None) -> Self:
        """A table with every rate at the prior mean, without variance."""
        zeros = np.zeros(rows)
        return cls(np.full(rows, prior_mean), zeros, prior_mean, strength, zeros, zeros)

    @classmethod
    def count(
        cls, successes: Float64, trials: Float64, prior_mean: float, strength: float
    ) -> RateTable:
        """The rates where all successes are observed: (successes + s m) / (trials + s)."""
        table = cls.build(len(trials), prior_mean, strength).remember(successes, trials)
        return replace(table, mean=table._estimate(successes, trials))

    def centre(self, rows: slice = slice(None)) -> Float64:
        """The centre c of each rate, from its mean and its variance."""
        return _find_centre(self.mean[rows], self.variance[rows])

    def log_prior(self) -> float:
        """Log-density of the rates, up to a constant, with the trials of the past."""
        yes, trials = self._with_prior(self.successes, self.trials)
        c, v = self.centre()[: len(yes)], self.variance[: len(yes)]
        logs = yes * np.log(c) + (trials - yes) * np.log(1 - c)
        return float(np.sum(logs - trials * v * c * (1 - c) / 2))

    def m_step(self, successes: Float64, trials: Float64) -> Self:
        """The means of the rates, from expected successes and trials."""
        mean = self._estimate(successes + self.successes, trials + self.trials)
        return self.with_values(np.broadcast_to(mean, self.mean.shape))

    def _estimate(self, successes: Float64, trials: Float64) -> Float64:
        yes, number = self._with_prior(successes, trials)
        rates = np.full(len(yes), self.prior_mean)
        np.divide(yes, number, out=rates, where=number > 0)
        return rates

    def _with_prior(self, successes: Float64, trials: Float64) -> tuple[Float64, Float64]:
        """Successes and trials, with those of the prior [row, or 1 where the rate is common]."""
        strength = self.strength
        if strength is None:
            successes, trials = successes.sum(keepdims=True), trials.sum(keepdims=True)
            strength = COMMON_STRENGTH
        return successes + strength * self.prior_mean, trials + strength

    def constrain(self, values: Float64) -> Float64:
        """Means between 0 and 1, and all the same where the rate is common to all rows."""
        if self.strength is None and len(values):
            values = np.full(len(values), values.mean())
        return np.clip(values, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)

    def start_from(self, last: Self) -> Self:
        """The rates of another fit; rates at its prior mean start at the prior mean of this one."""
        mean = np.where(np.isclose(last.mean, last.prior_mean), self.prior_mean, last.mean)
        return replace(self.with_values(mean), variance=last.variance)

    # the uncertainty of each rate

    def posterior(self, row: Int64) -> Posterior:
        """The Betas of some rows, whose successes were observed; the prior of a new row (−1)."""
        is_known = row >= 0
        mean = np.full(len(row), self.prior_mean, np.float64)
        strength = np.full(len(row), self.strength or 0.0, np.float64)
        mean[is_known] = self.mean[row[is_known]]
        strength[is_known] += self.trials[row[is_known]]
        return Posterior(mean, mean, strength)

    def information(self, ambiguity: Float64) -> Float64:
        """The information on the logit of each rate.

        Trials are those of the past; `ambiguity` [row] is the variance of their successes.
        """
        spread = self.mean * (1 - self.mean)
        if self.strength is None:
            return COMMON_TRIALS * spread
        information = (self.trials + self.strength) * spread - ambiguity
        return np.maximum(information, self.prior_information)

    @property
    def unseen_mean(self) -> float:
        """The rate of an unseen row."""
        common = self.strength is None and len(self.mean) > 0
        return float(self.mean[0]) if common else self.prior_mean

    @property
    def prior_information(self) -> float:
        """The information on the logit of the rate of a row without trials."""
        trials, mean = COMMON_TRIALS if self.strength is None else self.strength, self.unseen_mean
        return max(trials * mean * (1 - mean), LEAST_INFORMATION)

    def with_variance(self, ambiguity: Float64) -> Self:
        """The same rates with variances from their information; 0 where the rate is common."""
        if self.strength is None:
            return self
        return replace(self, variance=np.minimum(1 / self.information(ambiguity), MAX_VARIANCE))

    def without_variance(self) -> Self:
        """The same rates as points."""
        return replace(self, variance=np.zeros(len(self.mean)))


@kernel
def _find_centre(mean: Float64, variance: Float64) -> Float64:
    """The c with c + ½ v c (1 − c)(1 − 2c) = mean, by Newton's steps."""
    centre = mean.copy()
    for i in range(len(mean)):
        half, m = variance[i] / 2.0, mean[i]
        if i > 0 and m == mean[i - 1] and variance[i] == variance[i - 1]:  # rows without trials
            centre[i] = centre[i - 1]
        elif half > 0.0:
            c = m - half * m * (1.0 - m) * (1.0 - 2.0 * m)  # near it for a small variance
            for _ in range(8):
                error = c + half * c * (1.0 - c) * (1.0 - 2.0 * c) - m
                c -= error / (1.0 + half * (1.0 - 6.0 * c + 6.0 * c * c))
                if abs(error) < 1e-9:  # the step after it is exact to rounding
                    break
            centre[i] = min(max(c, 1e-12), 1.0 - 1e-12)
    return centre
