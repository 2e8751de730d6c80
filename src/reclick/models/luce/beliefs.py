"""How sure LuceClick is of what it learnt: Betas, from what sessions and priors tell of the logits (Laplace)."""

from __future__ import annotations

import numpy as np

from reclick.batch import Float64
from reclick.models.beliefs import Belief
from reclick.models.luce.climbing import Fit

SURE = 1e-9  # information below this is none
HARDLY_KNOWN = 2.0  # clicks that the belief in a satisfaction common to all is worth: sessions that end are nearly as well explained by fatigue


def information(done: Fit, share: Float64, scale: Float64) -> tuple[Float64, Float64, Float64]:
    """The information on each pair's logit of the attractiveness to all users and of ρ [pair], and what sessions told of log θ, old ones included.

    `share` [kind] is that of all users; `scale` [kind] times a weight are the odds of a click if the ad stood alone on top.
    """
    now, problem = done.parameters, done.problem
    head, shaft = problem.prior_rate(now) * now.theta, (problem.options.taste or 0.0) * now.taste
    before = head[:, None] if not problem.passes.tasted else head[:, None] * shaft / np.maximum(head[:, None] + shaft, SURE)
    known = problem.passes.information(now, before + problem.old.told, problem.query_rate(now) * now.spread)
    told = known[:, 1:] + problem.old.told
    yes, no = problem.satisfied_before()
    certain = (yes + no) * now.rho * (1 - now.rho)
    if problem.options.satisfaction is None:
        rho = HARDLY_KNOWN * now.rho * (1 - now.rho)
    else:
        certain = np.maximum(certain, problem.options.satisfaction * problem.satisfied * (1 - problem.satisfied) * (problem.clicks == 0))
        rho = np.maximum(known[:, 0] + certain, certain / 2)  # the likelihood of an end is not concave everywhere
    if not problem.passes.tasted:
        return np.maximum(told[:, 0] + head, SURE), np.maximum(rho, SURE), told
    theta = of_all(told, head, shaft, slopes(scale * now.theta[:, None] * now.taste, share))
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
    """A probability of this information on its logit: the Beta that on the scale of logits has its top there and is as curved."""
    return Belief(value, value, known / np.maximum(value * (1 - value), SURE))
