"""The satisfaction of each pair, of which few clicks tell: not a value is fitted but a distribution, so that what users do next is not blamed on it.

Whether the last click of a session satisfied is not seen, for fatigue may have ended it. If each ρ was given its best value, ads whose sessions
happened to end would be held to satisfy, and of many ads together ρ would come out too high and ω too low. So the logit of ρ is taken to be normal
around its centre x, and the sessions are worth their mean log-likelihood under it, to the second order (a variational Laplace approximation). With
c = 1 / (1 + e^−x), the variance v, and r = P(satisfied | the session ended) under c, that means

- E ρ = c + ½ v c (1 − c) (1 − 2c), and of a session that ended P(satisfied) = r + ½ v r (1 − r) (1 − 2r);
- a click is worth − ½ v c (1 − c) more, an end after it + ½ v r (1 − r), and the uncertainty ½ log v;
- so 1 / v = clicks · c (1 − c) − Σ r (1 − r), the prior's pseudo-clicks among them, and E ρ = (Σ P(satisfied) + prior) / (clicks + prior) as ever.

For v ≤ 4 an end is convex in x less the logarithm of the chance of stopping, so its tangent is below it and the steps cannot lower the objective.
"""

from __future__ import annotations

import numpy as np

from reclick.batch import Float64
from reclick.compiled import compiled
from reclick.models.chain import EDGE

LEAST = 0.5  # that is known of a logit: a variance is at most 2
EXACT = 1e-12  # the variance of what is not uncertain
ROUNDS = 6  # of Newton's method, from a point where it is nearly right


@compiled
def mean_of(centre: Float64, variance: Float64) -> Float64:
    """E ρ."""
    return centre + 0.5 * variance * centre * (1.0 - centre) * (1.0 - 2.0 * centre)


@compiled
def centre_of(mean: Float64, variance: Float64) -> Float64:
    """The centres of ρ's of these means."""
    out = np.empty(len(mean))
    for i in range(len(mean)):
        out[i] = _centre_of(mean[i], variance[i])
    return out


@compiled
def _centre_of(mean: float, variance: float) -> float:
    c = mean
    for _ in range(ROUNDS if variance > EXACT else 0):
        off = c + 0.5 * variance * c * (1.0 - c) * (1.0 - 2.0 * c) - mean
        c -= off / (1.0 + 0.5 * variance * (1.0 - 6.0 * c * (1.0 - c)))
    return min(max(c, EDGE), 1.0 - EDGE)


def known_before(strength: float, mean: float) -> float:
    """What is known of ρ's logit before any click: what the prior tells, or `LEAST`."""
    return max(strength * mean * (1 - mean), LEAST)


@compiled
def known_of(centre: Float64, yes: Float64, no: Float64, clicks: Float64, doubt: Float64, least: float) -> Float64:
    """What is known of ρ's logit by the prior's pseudo-clicks and by clicks, less Σ r (1 − r), the `doubt`; and no less than `least`."""
    out = np.empty(len(centre))
    for i in range(len(centre)):
        out[i] = max((yes[i] + no[i] + clicks[i]) * centre[i] * (1.0 - centre[i]) - doubt[i], least)
    return out


@compiled
def raise_satisfaction(
    centre: Float64, variance: Float64, yes: Float64, no: Float64, clicks: Float64, satisfied: Float64, doubt: Float64, least: float
) -> tuple[Float64, Float64]:
    """The next centres and variances; where nothing is told they stay."""
    centres, variances, known = centre.copy(), variance.copy(), known_of(centre, yes, no, clicks, doubt, least)
    for i in range(len(centre)):
        many = yes[i] + no[i] + clicks[i]
        if many > 0.0:
            centres[i] = _centre_of((yes[i] + satisfied[i]) / many, variance[i])
            variances[i] = 1.0 / known[i]
    return centres, variances


@compiled
def log_belief(centre: Float64, variance: Float64, yes: Float64, no: Float64, clicks: Float64, doubt: Float64) -> float:
    """What the prior and the memory say, and all else of the objective that is not a sum over sessions."""
    total = 0.0
    for i in range(len(centre)):
        c, v, many = centre[i], variance[i], yes[i] + no[i] + clicks[i]
        if many > 0.0:
            total += yes[i] * np.log(c) + no[i] * np.log(1.0 - c) - 0.5 * v * (many * c * (1.0 - c) - doubt[i]) + 0.5 * np.log(v)
    return total
