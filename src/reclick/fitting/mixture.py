"""Mixtures: which component a session is of, and how the components differ.

The components of a mixture of users differ by a shift: the log-odds of every attractiveness are
a(q, d) + b_t in component t, whose mixing weight is π_t. The shifts are centred, Σ π_t b_t = 0:
only then is a(q, d) a value of the pair alone, which is shrunk towards its prior. LuceClick uses
`to_posterior` and `MixingWeights` only: its components differ in γ and ω
(reclick.fitting.transitions).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.data.ragged import Float64, Int32
from reclick.fitting.parameter_tables import ParameterTable
from reclick.runtime.jit import inline_kernel, kernel

LARGEST_LOG_ODDS = 20.0  # of a probability 2e-9 from 0 or 1
LOG_ODDS_TOLERANCE = 1e-7
MOST_STEPS = 30  # of Newton, each inside a bracket
MOST_HALVINGS = 30
COMMON_STRENGTH = 1.0  # sessions that the prior of mixing weights common to all queries is worth
SHIFT_DEVIATION = 3.0  # prior standard deviation of a shift, in log-odds


@inline_kernel
def to_posterior(logs: Float64) -> float:
    """Turn log P(component, session) into P(component | session), in place.

    Return log P(session).
    """
    top = logs[0]
    for t in range(1, len(logs)):
        top = max(top, logs[t])
    mass = 0.0
    for t in range(len(logs)):
        logs[t] = math.exp(logs[t] - top)
        mass += logs[t]
    for t in range(len(logs)):
        logs[t] /= mass
    return float(top + math.log(mass))


def log_odds(probability: Float64) -> Float64:
    """Log p / (1 − p), from −`LARGEST_LOG_ODDS` to `LARGEST_LOG_ODDS`."""
    with np.errstate(divide="ignore"):
        value = np.log(probability) - np.log1p(-np.asarray(probability))
    return np.asarray(np.clip(value, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS))


def shift_odds(odds: Float64, shifts: Float64) -> Float64:
    """The probabilities in each component [component, …] from log-odds […]."""
    return np.asarray(1.0 / (1.0 + np.exp(-odds - shifts.reshape(-1, *[1] * odds.ndim))))


def mean_probability(odds: Float64, shifts: Float64, mixing: Float64) -> Float64:
    """Σ_t π_t σ(a + b_t): the probability over all components."""
    return np.asarray(np.tensordot(mixing, shift_odds(odds, shifts), 1))


def split_probability(mean: Float64, shifts: Float64, mixing: Float64) -> Float64:
    """The probabilities in each component [component, …] whose mean over components is `mean`.

    >>> parts = split_probability(np.array([0.3]), np.array([-0.5, 1.0]), np.array([2, 1]) / 3)
    >>> parts.round(3).ravel().tolist(), round(float(parts[0, 0] * 2 / 3 + parts[1, 0] / 3), 6)
    ([0.192, 0.516], 0.3)
    """
    if len(mixing) == 1:
        return mean[None]
    flat = np.ascontiguousarray(mean, np.float64).ravel()
    odds = _find_odds(flat, np.array(shifts, np.float64), np.array(mixing, np.float64))
    return shift_odds(odds.reshape(np.shape(mean)), shifts)


@kernel
def _find_odds(mean: Float64, shifts: Float64, mixing: Float64) -> Float64:
    """Solve Σ π_t σ(a + b_t) = mean for a, by Newton's method inside a bracket."""
    out = np.empty(len(mean))
    for i in range(len(mean)):
        middle = math.log(mean[i]) - math.log(1.0 - mean[i])
        low, high = middle - shifts.max(), middle - shifts.min()
        a = middle
        for _ in range(MOST_STEPS):
            value, slope = -mean[i], 0.0
            for t in range(len(shifts)):
                p = 1.0 / (1.0 + math.exp(-a - shifts[t]))
                value += mixing[t] * p
                slope += mixing[t] * p * (1.0 - p)
            if value > 0.0:
                high = a
            else:
                low = a
            move = -value / max(slope, 1e-300)
            a = a + move if low <= a + move <= high else 0.5 * (low + high)
            if abs(move) < LOG_ODDS_TOLERANCE:
                break
        out[i] = a
    return out


@kernel
def fit_log_odds(
    successes: Float64, failures: Float64, mean: Float64, strength: Float64, shifts: Float64,
    odds: Float64,
) -> Float64:  # fmt: skip
    """The log-odds a of each pair of highest posterior density.

    From successes and failures [pair, component] with probability σ(a + b_t) of success, and a
    prior of σ(a). The function is concave; Newton's method runs inside a bracket, from `odds`.
    """
    out = odds.copy()
    for i in range(len(odds)):
        low, high, a = -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS, odds[i]
        for _ in range(MOST_STEPS):
            p = 1.0 / (1.0 + math.exp(-a))
            slope, curve = strength[i] * (mean[i] - p), strength[i] * p * (1.0 - p)
            for t in range(len(shifts)):
                p = 1.0 / (1.0 + math.exp(-a - shifts[t]))
                trials = successes[i, t] + failures[i, t]
                slope += successes[i, t] - trials * p
                curve += trials * p * (1.0 - p)
            if slope > 0.0:
                low = a
            else:
                high = a
            move = slope / max(curve, 1e-300)
            step = a + move if low < a + move < high else 0.5 * (low + high)
            if abs(step - a) < LOG_ODDS_TOLERANCE:
                break
            a = step
        out[i] = a
    return out


@kernel
def _score_shifts(
    successes: Float64, failures: Float64, odds: Float64, shifts: Float64, slope: Float64,
    curve: Float64,
) -> float:  # fmt: skip
    """The expected log-likelihood of the shifts; fill its slope and curvature [component]."""
    total = 0.0
    slope[:] = 0.0
    curve[:] = 0.0
    for i in range(len(odds)):
        for t in range(len(shifts)):
            trials = successes[i, t] + failures[i, t]
            if trials == 0.0:
                continue
            x = odds[i] + shifts[t]
            small = math.exp(-abs(x))
            p = (1.0 if x > 0.0 else small) / (1.0 + small)
            total += successes[i, t] * x - trials * (max(x, 0.0) + math.log1p(small))
            slope[t] += successes[i, t] - trials * p
            curve[t] += trials * p * (1.0 - p)
    return total


def fit_shifts(
    successes: Float64, failures: Float64, odds: Float64, shifts: Float64, mixing: Float64
) -> Float64:
    """One step of Newton's method for the shifts that leaves Σ π_t b_t as it is.

    It is halved until the sum of expected log-likelihood and `log_shift_prior` does not fall.
    """
    slope, curve = np.empty((2, len(shifts)))
    before = _score_shifts(successes, failures, odds, shifts, slope, curve)
    before += log_shift_prior(shifts)
    # Newton's equations under a linear constraint: one row and one unknown more.
    size, spread = len(shifts), (np.eye(len(shifts)) - 1 / len(shifts)) / SHIFT_DEVIATION**2
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = np.diag(np.maximum(curve, 1e-9)) + spread
    system[:size, size] = system[size, :size] = mixing
    move = np.linalg.solve(system, np.append(slope - spread @ shifts, 0.0))[:size]
    for _ in range(MOST_HALVINGS):
        after = shifts + move
        value = _score_shifts(successes, failures, odds, after, slope, curve)
        if value + log_shift_prior(after) >= before:
            return np.asarray(after)
        move = move / 2
    return shifts


def log_shift_prior(shifts: Float64) -> float:
    """Log-density of the shifts, up to a constant: normal around their own mean."""
    return -0.5 * float(np.sum((shifts - shifts.mean()) ** 2)) / SHIFT_DEVIATION**2


def extrapolate(
    first: Float64, second: Float64, third: Float64, limit: float
) -> tuple[Float64, float]:
    """Extrapolate two steps (SQUAREM) by at most `limit`; return the point and the steps ahead."""
    step, bend = second - first, third - 2 * second + first
    steps, bends = float(step @ step), float(bend @ bend)
    length = min(max(math.sqrt(steps / bends) if bends > 0 else 1.0, 1.0), limit)
    return first + 2 * length * step + length**2 * bend, length


@dataclass(frozen=True, slots=True)
class MixingWeights(ParameterTable):
    """The mixing weights of each query, with a Dirichlet prior; without a strength, common ones.

    The prior is a density of log ratios, so its mode is its mean.

    >>> mixing = MixingWeights.build(2, np.array([0.5, 0.5]), 10.0)
    >>> mixing.m_step(np.array([[10.0, 0.0], [0.0, 0.0]])).weights
    array([[0.75, 0.25],
           [0.5 , 0.5 ]])
    """

    value: ClassVar[str] = "weights"
    statistics: ClassVar[tuple[str, ...]] = ("members",)  # expected sessions [query, component]

    weights: Float64  # [query, component] rows add up to 1
    mean: Float64  # [component] of the prior
    strength: float | None  # of the prior, in sessions
    members: Float64  # [query, component] sessions of the past

    @classmethod
    def build(cls, queries: int, mean: Float64, strength: float | None) -> Self:
        """All weights at the prior mean."""
        weights = np.tile(mean, (queries, 1))
        return cls(weights, mean, strength, np.zeros(weights.shape))

    @property
    def overall(self) -> Float64:
        """The weights of an unseen query [component]."""
        return self.weights[0] if self.strength is None and len(self.weights) else self.mean

    def lookup(self, query: Int32) -> Float64:
        """The weights of some queries; −1 is an unseen query."""
        return np.where(query[:, None] >= 0, self.weights[query], self.overall)

    def log_prior(self) -> float:
        """Log-density of the weights, up to a constant, with the sessions of the past."""
        rows = self.weights[:1] if self.strength is None else self.weights
        return float(np.sum(self._count(self.members) * np.log(rows)))

    def m_step(self, members: Float64) -> Self:
        """The shares of the components among the sessions."""
        counts = self._count(members + self.members)
        return self.with_values(np.broadcast_to(counts, members.shape))

    def _count(self, members: Float64) -> Float64:
        """Sessions of each component, with those of the prior [query or 1, component]."""
        if self.strength is None:
            return np.asarray(members.sum(axis=0, keepdims=True) + COMMON_STRENGTH * self.mean)
        return np.asarray(members + self.strength * self.mean)

    def constrain(self, values: Float64) -> Float64:
        """Rows that add up to 1, and are the same where the weights are common to all queries."""
        counts = np.maximum(values, PROBABILITY_MARGIN)
        weights = counts / counts.sum(axis=1, keepdims=True)
        if self.strength is None:
            weights = np.tile(weights.mean(axis=0), (len(weights), 1))
        return np.asarray(weights)
