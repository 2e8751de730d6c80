"""Satisfaction ρ of each pair, as a distribution.

A log has thousands of ρ, each with few clicks, and one ω. Were every ρ a point, ads whose sessions
happened to end would get a high one, and too little would be left for fatigue. So the logit of ρ is
normal, with a mean that gives the parameter and a variance v that a fit does not change, and the
log-likelihood is its expectation, to second order. With c the centre of ρ and r = P(satisfied | the
session ended), a click costs ½ v c (1 − c), an end gains ½ v r (1 − r), and P(satisfied) becomes
r + ½ v r (1 − r)(1 − 2r). For v < 4 an end is convex in logit c, so that EM still cannot lower it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.data.ragged import Float64
from reclick.fitting.parameter_tables import ParameterTable
from reclick.runtime.jit import kernel

COMMON_STRENGTH = 1.0  # clicks that the prior of a ρ common to all pairs is worth
COMMON_CLICKS = 6.0  # that its posterior is worth
LEAST_INFORMATION = 0.5  # on the logit of ρ
MAX_VARIANCE = 2.0  # of the logit of ρ, which must be less than 4


@dataclass(frozen=True, slots=True)
class Satisfaction(ParameterTable):
    """ρ of each pair, with a Beta prior; without a strength one ρ for all pairs.

    A click is `open` if it left another ad to click: only then is its ρ at work.
    """

    value: ClassVar[str] = "mean"
    statistics: ClassVar[tuple[str, ...]] = ("satisfied", "clicks")  # open ones [pair]
    known: ClassVar[tuple[str, ...]] = ("variance",)

    mean: Float64  # [pair] of ρ
    variance: Float64  # [pair] of the logit of ρ
    prior_mean: float
    strength: float | None
    satisfied: Float64  # [pair] open clicks of the past that satisfied
    clicks: Float64  # [pair] open clicks of the past

    @classmethod
    def build(cls, pairs: int, prior_mean: float, strength: float | None) -> Self:
        """Every ρ at the prior mean, and known."""
        none = np.zeros(pairs)
        return cls(np.full(pairs, prior_mean), none, prior_mean, strength, none, none)

    def centre(self, pairs: slice = slice(None)) -> Float64:
        """The centre of each ρ, of which it is the mean."""
        return _find_centre(self.mean[pairs], self.variance[pairs])

    def log_prior(self) -> float:
        """Log-density of ρ, up to a constant, with the clicks of the past."""
        yes, clicks = self._count(self.satisfied, self.clicks)
        c, v = self.centre()[: len(yes)], self.variance[: len(yes)]
        logs = yes * np.log(c) + (clicks - yes) * np.log(1 - c)
        return float(np.sum(logs - clicks * v * c * (1 - c) / 2))

    def m_step(self, satisfied: Float64, clicks: Float64) -> Self:
        """The mean of ρ = (satisfied + prior) / (clicks + prior), per pair or common to all."""
        yes, clicks = self._count(satisfied + self.satisfied, clicks + self.clicks)
        mean = np.divide(yes, clicks, out=np.full(len(yes), self.prior_mean), where=clicks > 0)
        return self.with_values(np.broadcast_to(mean, self.mean.shape))

    def _count(self, satisfied: Float64, clicks: Float64) -> tuple[Float64, Float64]:
        """Satisfied and all clicks, with those of the prior [pair, or 1 where ρ is common]."""
        strength = self.strength
        if strength is None:
            satisfied, clicks = satisfied.sum(keepdims=True), clicks.sum(keepdims=True)
            strength = COMMON_STRENGTH
        return satisfied + strength * self.prior_mean, clicks + strength

    def constrain(self, values: Float64) -> Float64:
        """Means between 0 and 1, and all the same where ρ is common to all pairs."""
        if self.strength is None and len(values):
            values = np.full(len(values), values.mean())
        return np.clip(values, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)

    def start_from(self, last: Self) -> Self:
        """The ρ of another fit; pairs at its prior mean start at that of this one."""
        mean = np.where(np.isclose(last.mean, last.prior_mean), self.prior_mean, last.mean)
        return replace(self.with_values(mean), variance=last.variance)

    # how well each ρ is known

    def information(self, ambiguity: Float64) -> Float64:
        """The information on the logit of each ρ.

        Clicks are those of the past; `ambiguity` [pair] is the variance of those that satisfied.
        """
        spread = self.mean * (1 - self.mean)
        if self.strength is None:
            return COMMON_CLICKS * spread
        known = (self.clicks + self.strength) * spread - ambiguity
        return np.maximum(known, self.prior_information)

    @property
    def unseen_mean(self) -> float:
        """The ρ of a pair that was never seen."""
        common = self.strength is None and len(self.mean) > 0
        return float(self.mean[0]) if common else self.prior_mean

    @property
    def prior_information(self) -> float:
        """The information on the logit of ρ of a pair without clicks."""
        clicks, mean = COMMON_CLICKS if self.strength is None else self.strength, self.unseen_mean
        return max(clicks * mean * (1 - mean), LEAST_INFORMATION)

    def with_variance(self, ambiguity: Float64) -> Self:
        """With the variance that follows from the information; 0 where ρ is common to all."""
        if self.strength is None:
            return self
        return replace(self, variance=np.minimum(1 / self.information(ambiguity), MAX_VARIANCE))


@kernel
def _find_centre(mean: Float64, variance: Float64) -> Float64:
    """The c with c + ½ v c (1 − c)(1 − 2c) = mean, by Newton's steps."""
    centre = mean.copy()
    for i in range(len(mean)):
        half, m = variance[i] / 2.0, mean[i]
        if i > 0 and m == mean[i - 1] and variance[i] == variance[i - 1]:  # pairs without clicks
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
