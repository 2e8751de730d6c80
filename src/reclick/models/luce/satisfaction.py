"""The satisfaction of each pair as a distribution, and the uncertain outside option of each query.

Whether the last click of a session satisfied is not observed: the user may have just stopped. If
each ρ got its best point value, ads whose sessions happened to end would look satisfying, and over
many ads ρ would come out too high and ω too low. So the logit of ρ is normal around its mean x, and
the sessions contribute their mean log-likelihood under it, to second order (a variational Laplace
approximation). With c = 1 / (1 + e^−x), variance v, and r = P(satisfied | session ended) under c:

- E ρ = c + ½ v c (1 − c) (1 − 2c), and for a session that ended
  P(satisfied) = r + ½ v r (1 − r) (1 − 2r);
- a click contributes − ½ v c (1 − c), an end after it + ½ v r (1 − r), and the entropy ½ log v;
- hence 1 / v = clicks · c (1 − c) − Σ r (1 − r), with the prior's pseudo-clicks among the clicks,
  and E ρ = (Σ P(satisfied) + prior) / (clicks + prior) as usual.

For v ≤ 4 an end is convex in x minus the log-probability of stopping. So its tangent is a lower
bound and the M-step cannot lower the objective.

With several mixture components, a click satisfies a user of component t with the odds of ρ times
ς_t. Component and ρ are treated as independent given the clicks, so all of the above holds for each
component with x + log ς_t in place of x. A click is convex in ς_t too, so the best ς_t for the
tangent is in closed form; then all x are set to their best given ς. The mean of log ς over all
clicks is 0; otherwise ς could shift the level that the prior of ρ fixes.

The outside option f of a query is uncertain as well. A query with few sessions says little about f,
and for a new query only the prior does. With f taken as known, predictions would be too certain. So
log f is normal with the variance that sessions and prior leave when the θ of the query are known,
and predictions are the mean over two points, one deviation to each side (Gauss–Hermite, exact for
cubics).
"""

from __future__ import annotations

import math

import numpy as np

from reclick.data.ragged import Bool, Float64, Int32
from reclick.models.luce.parameters import MIN_PROBABILITY
from reclick.runtime.jit import kernel

MIN_INFORMATION = 0.5  # on a logit: its variance is at most 2
ZERO_VARIANCE = 1e-12  # of a value that is not uncertain
NEWTON_ROUNDS = 6  # from a point that is nearly right
MAX_LOGIT_STEP = 4.0  # of a mean in one M-step
LOGIT_TOLERANCE = 1e-9
MIN_ODDS = 1e-6  # of ς
SIDES = np.array([-1.0, 1.0])  # in deviations of log f
MAX_DEVIATION = 1.0  # of log f


def mean_satisfaction(centre: Float64, variance: Float64) -> Float64:
    """E ρ, from the centre of its distribution and the variance of its logit."""
    spread: Float64 = 0.5 * variance * centre * (1.0 - centre)
    return np.asarray(centre + spread * (1.0 - 2.0 * centre))


def satisfaction_centre(mean: Float64, variance: Float64) -> Float64:
    """The centres under which E ρ has these values (Newton's method)."""
    c = np.array(mean)
    uncertain = variance > ZERO_VARIANCE
    for _ in range(NEWTON_ROUNDS):
        slope = 1.0 + 0.5 * variance * (1.0 - 6.0 * c * (1.0 - c))
        c -= np.where(uncertain, (mean_satisfaction(c, variance) - mean) / slope, 0.0)
    return np.clip(c, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)


def scale_odds(probability: Float64, ratio: Float64) -> Float64:
    """The probability whose odds are `ratio` times those of `probability`."""
    return np.asarray(probability * ratio / (1.0 - probability + probability * ratio))


def prior_information(strength: float, mean: float) -> float:
    """The information on the logit of ρ before any click."""
    return max(strength * mean * (1 - mean), MIN_INFORMATION)


def equivalent_clicks(
    centre: Float64, variance: Float64, followed: Float64, odds: Float64
) -> tuple[Float64, Float64]:
    """The clicks with odds ratio 1 that satisfy as many users as the clicks of each component do.

    `followed` [pair, component] are the clicks. The second value is the information that the
    equivalent clicks have too much [pair].
    """
    each = scale_odds(centre[:, None], odds)
    satisfied = (followed * mean_satisfaction(each, variance[:, None])).sum(axis=1)
    clicks = satisfied / mean_satisfaction(centre, variance)
    information = (followed * each * (1 - each)).sum(axis=1)
    return np.asarray(clicks), np.asarray(clicks * centre * (1 - centre) - information)


def satisfaction_information(
    centre: Float64,
    yes: Float64,
    no: Float64,
    followed: Float64,
    odds: Float64,
    satisfied_variance: Float64,
    least: float,
) -> Float64:
    """The information on the logit of ρ from pseudo-clicks and clicks, less Σ r (1 − r) [pair]."""
    information = (yes + no) * centre * (1 - centre)
    for clicks, ratio in zip(followed.T, odds, strict=True):
        c = scale_odds(centre, ratio)
        information += clicks * c * (1 - c)
    return np.asarray(np.maximum(information - satisfied_variance, least))


def log_satisfaction_prior(
    centre: Float64,
    variance: Float64,
    yes: Float64,
    no: Float64,
    has_clicks: Bool,
    satisfied_variance: Float64,
) -> float:
    """Prior pseudo-clicks, entropy and past: the terms of the objective that are not of clicks."""
    c, v, yes, no = centre[has_clicks], variance[has_clicks], yes[has_clicks], no[has_clicks]
    curvature = (yes + no) * c * (1 - c) - satisfied_variance[has_clicks]
    return float(
        np.sum(yes * np.log(c) + no * np.log(1 - c) - 0.5 * v * curvature + 0.5 * np.log(v))
    )


def fit_satisfaction_odds(
    observed: Float64, exposure: Float64, click_mixing: Float64, now: Float64
) -> Float64:
    """The best ς [component] for observed · log ς − exposure · ς, with mean log ς 0 (bisection).

    The mean is over the clicks, of which each component has the share `click_mixing`.
    """
    if not ((exposure > 0) & (observed > 0)).all():
        return now
    low = -observed.sum() * MAX_LOGIT_STEP
    high = float((observed / np.maximum(click_mixing, 1e-12)).min())
    for _ in range(100):
        middle = (low + high) / 2
        odds = np.maximum(observed - middle * click_mixing, 1e-300) / exposure
        low, high = (middle, high) if click_mixing @ np.log(odds) > 0 else (low, middle)
    return np.asarray(np.maximum((observed - low * click_mixing) / exposure, MIN_ODDS))


def fit_satisfaction_centres(
    centre: Float64,
    variance: Float64,
    yes: Float64,
    no: Float64,
    followed: Float64,
    odds: Float64,
    satisfied: Float64,
) -> Float64:
    """The next centres [pair], under which as many clicks are expected to satisfy as did.

    `followed` [pair, component] are clicks, `yes` and `no` pseudo-clicks. Pairs without any stay.
    """
    if followed.shape[1] == 1:
        clicks = yes + no + followed[:, 0]
        rows = np.flatnonzero(clicks)  # elsewhere nothing changes
        mean = (yes[rows] + satisfied[rows]) / clicks[rows]
        new = centre.copy()
        new[rows] = satisfaction_centre(mean, variance[rows])
        return new
    new = centre.copy()
    _solve_centres(new, variance, yes + satisfied, yes + no, followed, odds)
    return new


@kernel
def _solve_centres(
    centre: Float64,
    variance: Float64,
    target: Float64,
    prior: Float64,
    followed: Float64,
    odds: Float64,
) -> None:
    """Set each centre so that `target` clicks are expected to satisfy (Newton, bracketed)."""
    for i in range(len(centre)):
        total = prior[i]
        for t in range(len(odds)):
            total += followed[i, t]
        if total <= 0.0:
            continue
        x = math.log(centre[i] / (1.0 - centre[i]))
        low, high = x - MAX_LOGIT_STEP, x + MAX_LOGIT_STEP
        for _ in range(2 * NEWTON_ROUNDS):
            missing, slope = target[i], 0.0
            for t in range(-1, len(odds)):
                clicks, o = prior[i], math.exp(x)
                if t >= 0:
                    clicks = followed[i, t]
                    o *= odds[t]
                c = o / (1.0 + o)
                v = 0.5 * variance[i]
                missing -= clicks * (c + v * c * (1.0 - c) * (1.0 - 2.0 * c))
                slope += clicks * c * (1.0 - c) * (1.0 + v * (1.0 - 6.0 * c * (1.0 - c)))
            if missing > 0.0:
                low = x
            else:
                high = x
            step = missing / slope if slope > 1e-300 else missing / 1e-300
            if abs(step) < LOGIT_TOLERANCE:
                break
            x = x + step if low <= x + step <= high else 0.5 * (low + high)
        c = 1.0 / (1.0 + math.exp(-x))
        c = max(c, MIN_PROBABILITY)
        c = min(c, 1.0 - MIN_PROBABILITY)
        centre[i] = c


def prior_deviation(strength: float) -> float:
    """The deviation of log f by its prior alone."""
    return float(min(1 / math.sqrt(max(strength, 1e-12)), MAX_DEVIATION))


def outside_deviation(information: Float64, pair_query: Int32, prior: Float64) -> Float64:
    """The deviation of log f [query], from the pairs' information on it and the prior's [query]."""
    total = np.bincount(pair_query, np.maximum(information, 0.0), len(prior)) + prior
    return np.minimum(1 / np.sqrt(np.maximum(total, 1e-12)), MAX_DEVIATION)


def log_mean_over_sides(logs: list[Float64]) -> Float64:
    """Logarithm of the mean over the sides, from the logarithm at each of them."""
    return np.asarray(np.logaddexp.reduce(logs) - np.log(len(logs)))
