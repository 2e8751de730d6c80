"""How sure LuceClick is of what it learnt: normal posteriors of logits, from what sessions and priors tell (Laplace)."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from reclick.batch import Float64
from reclick.models.beliefs import Belief
from reclick.models.luce.climbing import Fit

SURE = 1e-9  # information below this is none
FAR = 500.0  # logits beyond this are 0 or 1
HARDLY_KNOWN = 1.0  # information on the logit of a satisfaction common to all: sessions that end are nearly as well explained by fatigue


def information(done: Fit, share: Float64, scale: Float64) -> tuple[Float64, Float64, Float64]:
    """The information on each pair's logit of the attractiveness to all users and of ρ [pair], and what sessions told of log θ, old ones included.

    `share` [kind] is that of all users; `scale` [kind] times a weight are the odds of a click if the ad stood alone on top.
    """
    now, problem = done.parameters, done.problem
    known = problem.passes.information(now)
    told = known[:, 1:] + problem.old.told
    yes, no = problem.satisfied_before()
    certain = (yes + no) * now.rho * (1 - now.rho)
    if problem.options.satisfaction is None:
        rho = np.full(len(known), known[:, 0].sum() + certain.sum())
    else:
        certain = np.maximum(certain, problem.options.satisfaction * problem.satisfied * (1 - problem.satisfied) * (problem.clicks == 0))
        rho = np.maximum(known[:, 0] + certain, certain / 2)  # the likelihood of an end is not concave everywhere
    head = problem.prior_rate(now) * now.theta
    if not problem.passes.tasted:
        return np.maximum(told[:, 0] + head, SURE), np.maximum(rho, SURE), told
    theta = of_all(told, head, (problem.options.taste or 0.0) * now.taste, slopes(scale * now.theta[:, None] * now.taste, share))
    return np.maximum(theta, SURE), np.maximum(rho, SURE), told


def to_all(odds: Float64, share: Float64) -> Float64:
    """The attractiveness to all users [pair], from the odds of a click to each kind [pair, kind]."""
    return np.asarray((odds / (1 + odds)) @ share)


def slopes(odds: Float64, share: Float64) -> Float64:
    """By how much the logit of the attractiveness to all moves with the logit of that to each kind [pair, kind]."""
    chance, average = odds / (1 + odds), to_all(odds, share)
    return np.asarray(share * chance * (1 - chance) / (average * (1 - average))[:, None])


def of_all(told: Float64, head: Float64, shaft: Float64, slope: Float64) -> Float64:
    """1 / the variance of the logit of the attractiveness to all [pair], where log θ + log φ_t is that to kind t.

    `told` [pair, kind] is the information of the sessions on log θ φ_t, `head` [pair] and `shaft` [pair, kind] that of the priors on log θ and on
    log φ_t, the kinds of users being taken as known. Together they are an arrow: the head told in all and θ's prior, the shaft told of a kind and
    φ_t's prior, and beside them what is told of the kind. So its inverse, times the slopes from both sides, is in closed form.
    """
    shaft = np.maximum(told + shaft, SURE)
    rest = np.maximum(told.sum(axis=1) + head - (told**2 / shaft).sum(axis=1), SURE)
    return np.asarray(1 / ((slope**2 / shaft).sum(axis=1) + (slope.sum(axis=1) - (told * slope / shaft).sum(axis=1)) ** 2 / rest))


def belief(value: Float64, known: Float64) -> Belief:
    """A probability whose logit has a normal posterior of this information; as a Beta, the one of the same mean and variance."""
    logit, error = np.log(value) - np.log1p(-value), 1 / np.sqrt(known)
    spread = np.maximum(value * (1 - value) * error, 1e-12) ** 2

    def interval(level: float) -> tuple[Float64, Float64]:
        wide = NormalDist().inv_cdf(0.5 + level / 2) * error
        low, high = (1 / (1 + np.exp(np.clip(side - logit, -FAR, FAR))) for side in (wide, -wide))
        return low, high

    return Belief(value, value, np.maximum(value * (1 - value) / spread - 1, 1e-3), interval)


def product_belief(first: Float64, known_first: Float64, second: Float64, known_second: Float64) -> Belief:
    """The product m of two probabilities with normal logits: its logit is taken as normal too.

    A logit's error σ moves log p by (1 − p) σ, the two errors add in squares, and log m by ε moves the logit of m by ε / (1 − m).
    """
    product = first * second
    spread = (1 - first) ** 2 / known_first + (1 - second) ** 2 / known_second
    with np.errstate(divide="ignore"):
        return belief(product, (1 - product) ** 2 / spread)
