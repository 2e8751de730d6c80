"""The satisfaction of each pair, of which few clicks tell: not a value is fitted but a distribution, so that what users do next is not blamed on it.

Whether the last click of a session satisfied is not seen, for fatigue may have ended it. If each ρ was given its best value, ads whose sessions
happened to end would be held to satisfy, and of many ads together ρ would come out too high and ω too low. So the logit of ρ is taken to be normal
around its centre x, and the sessions are worth their mean log-likelihood under it, to the second order (a variational Laplace approximation). With
c = 1 / (1 + e^−x), the variance v, and r = P(satisfied | the session ended) under c, that means

- E ρ = c + ½ v c (1 − c) (1 − 2c), and of a session that ended P(satisfied) = r + ½ v r (1 − r) (1 − 2r);
- a click is worth − ½ v c (1 − c) more, an end after it + ½ v r (1 − r), and the uncertainty ½ log v;
- so 1 / v = clicks · c (1 − c) − Σ r (1 − r), the prior's pseudo-clicks among them, and E ρ = (Σ P(satisfied) + prior) / (clicks + prior) as ever.

For v ≤ 4 an end is convex in x less the logarithm of the chance of stopping, so its tangent is below it and the steps cannot lower the objective.

Where users are of several kinds, a click satisfies those of kind t with the odds of ρ times ς_t: there are users whom hardly anything satisfies, and
long sessions are theirs. Which kind a user is of and what ρ is are taken as independent given the clicks, so all of the above is said of each kind,
with x + log ς_t in the place of x, and the objective has the logarithm of its sum over the kinds. A click is worth a convex function of ς_t too, so
that the best ς_t for its tangent is in closed form; then all x are set to their best given ς. The mean of log ς over all clicks is 0: else all ς
together could lower or raise the level that the prior of ρ holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reclick.clicks.chain import EDGE
from reclick.data.batch import Float64
from reclick.runtime.jit import kernel

LEAST = 0.5  # that is known of a logit: a variance is at most 2
EXACT = 1e-12  # the variance of what is not uncertain
ROUNDS = 6  # of Newton's method, from a point where it is nearly right
FARTHEST = 4.0  # logits that a centre moves in one step
NEAR = 1e-9  # … and that do not matter
LOWEST = 1e-6  # that ς may be


@kernel
def mean_of(centre: Float64, variance: Float64) -> Float64:
    """E ρ."""
    return centre + 0.5 * variance * centre * (1.0 - centre) * (1.0 - 2.0 * centre)


@kernel
def centre_of(mean: Float64, variance: Float64) -> Float64:
    """The centres of ρ's of these means."""
    out = np.empty(len(mean))
    for i in range(len(mean)):
        out[i] = _centre_of(mean[i], variance[i])
    return out


@kernel
def _centre_of(mean: float, variance: float) -> float:
    c = mean
    for _ in range(ROUNDS if variance > EXACT else 0):
        off = c + 0.5 * variance * c * (1.0 - c) * (1.0 - 2.0 * c) - mean
        c -= off / (1.0 + 0.5 * variance * (1.0 - 6.0 * c * (1.0 - c)))
    return min(max(c, EDGE), 1.0 - EDGE)


def known_before(strength: float, mean: float) -> float:
    """What is known of ρ's logit before any click: what the prior tells, or `LEAST`."""
    return max(strength * mean * (1 - mean), LEAST)


@kernel
def satisfaction_of(rho: Float64, ease: Float64) -> Float64:
    """The satisfaction of users of a kind, whose odds are those of ρ times ς."""
    return rho * ease / (1.0 - rho + rho * ease)


@kernel
def as_if_alike(
    centre: Float64, variance: Float64, asked: Float64, ease: Float64
) -> tuple[Float64, Float64]:
    """How many clicks of users whose ς is 1 would satisfy as many as the clicks of each kind's, `asked` [pair, kind]; and what they tell too much."""
    clicks, more = np.zeros(len(centre)), np.zeros(len(centre))
    for i in range(len(centre)):
        known = 0.0
        for t in range(asked.shape[1]):
            c = satisfaction_of(centre[i], ease[t])
            clicks[i] += asked[i, t] * (c + 0.5 * variance[i] * c * (1.0 - c) * (1.0 - 2.0 * c))
            known += asked[i, t] * c * (1.0 - c)
        c = centre[i]
        clicks[i] /= c + 0.5 * variance[i] * c * (1.0 - c) * (1.0 - 2.0 * c)
        more[i] = clicks[i] * c * (1.0 - c) - known
    return clicks, more


@kernel
def known_of(
    centre: Float64,
    yes: Float64,
    no: Float64,
    asked: Float64,
    ease: Float64,
    doubt: Float64,
    least: float,
) -> Float64:
    """What is known of ρ's logit by the prior's pseudo-clicks and by clicks, less Σ r (1 − r), the `doubt`; and no less than `least`."""
    out = np.empty(len(centre))
    for i in range(len(centre)):
        told = (yes[i] + no[i]) * centre[i] * (1.0 - centre[i])
        for t in range(asked.shape[1]):
            c = satisfaction_of(centre[i], ease[t])
            told += asked[i, t] * c * (1.0 - c)
        out[i] = max(told - doubt[i], least)
    return out


def raise_ease(wanted: Float64, exposure: Float64, clickers: Float64, now: Float64) -> Float64:
    """The best ς [kind] for `wanted` log ς − `exposure` ς, where the mean of log ς over the clicks, whose shares are `clickers`, is 0 (bisection)."""
    told = (exposure > 0) & (wanted > 0)
    if not told.all():
        return now
    low, high = (
        -wanted.sum() * FARTHEST,
        float((wanted / np.maximum(clickers, 1e-12)).min()),
    )  # of what the level costs
    for _ in range(100):
        middle = (low + high) / 2
        ease = np.maximum(wanted - middle * clickers, 1e-300) / exposure
        low, high = (middle, high) if clickers @ np.log(ease) > 0 else (low, middle)
    return np.asarray(np.maximum((wanted - low * clickers) / exposure, LOWEST))


@kernel
def raise_satisfaction(
    centre: Float64, variance: Float64, yes: Float64, no: Float64, asked: Float64, ease: Float64, satisfied: Float64
) -> Float64:  # fmt: skip
    """The next centres [pair], under which as many clicks are expected to satisfy as did; where nothing is told they stay."""
    centres, many = centre.copy(), yes + no + asked.sum(axis=1)
    for i in range(len(centre)):
        if many[i] > 0.0 and asked.shape[1] == 1:
            centres[i] = _centre_of((yes[i] + satisfied[i]) / many[i], variance[i])
        elif many[i] > 0.0:
            centres[i] = _best_centre(
                centre[i], variance[i], yes[i] + satisfied[i], yes[i] + no[i], asked[i], ease
            )
    return centres


@kernel
def _best_centre(
    centre: float, variance: float, wanted: float, before: float, asked: Float64, ease: Float64
) -> float:
    """Where as many as wanted are expected to satisfy, of `before` pseudo-clicks and of the clicks of each kind (Newton, bracketed)."""
    x = np.log(centre / (1.0 - centre))
    low, high = x - FARTHEST, x + FARTHEST
    for _ in range(2 * ROUNDS):
        odds, short, slope = np.exp(x), wanted, 0.0
        for t in range(-1, len(asked)):
            many, o = (before, odds) if t < 0 else (asked[t], odds * ease[t])
            c = o / (1.0 + o)
            short -= many * (c + 0.5 * variance * c * (1.0 - c) * (1.0 - 2.0 * c))
            slope += many * c * (1.0 - c) * (1.0 + 0.5 * variance * (1.0 - 6.0 * c * (1.0 - c)))
        low, high = (x, high) if short > 0.0 else (low, x)
        step = short / max(slope, 1e-300)
        if abs(step) < NEAR:
            break
        x = x + step if low <= x + step <= high else 0.5 * (low + high)
    return float(min(max(1.0 / (1.0 + np.exp(-x)), EDGE), 1.0 - EDGE))


@kernel
def log_belief(
    centre: Float64,
    variance: Float64,
    yes: Float64,
    no: Float64,
    told: NDArray[np.bool_],
    doubt: Float64,
) -> float:
    """What pseudo-clicks of users with ς = 1 say, and all else of the objective that is not a sum over clicks."""
    total = 0.0
    for i in range(len(centre)):
        c, v, before = centre[i], variance[i], yes[i] + no[i]
        if told[i]:
            total += (
                yes[i] * np.log(c)
                + no[i] * np.log(1.0 - c)
                - 0.5 * v * (before * c * (1.0 - c) - doubt[i])
                + 0.5 * np.log(v)
            )
    return total
