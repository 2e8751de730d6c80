"""How sure LuceClick is of what it learnt: Betas, from what sessions and priors tell of the logits (Laplace)."""

from __future__ import annotations

import numpy as np

from reclick.data.batch import Float64
from reclick.fitting.posterior import Belief
from reclick.models.luce.climbing import Fit
from reclick.models.luce.curvature import together
from reclick.models.luce.objective import Problem
from reclick.models.luce.parameters import Evidence, Parameters
from reclick.models.luce.spots import share_told

SURE = 1e-9  # information below this is none
LEAST = 0.5  # parameters of a Beta are at least
HARDLY_KNOWN = 6.0  # clicks that the belief in a satisfaction common to all is worth: sessions that end are nearly as well explained by fatigue


def information(done: Fit, share: Float64, scale: Float64) -> tuple[Float64, Float64, Evidence]:
    """The information on each pair's logit of the attractiveness to all users and of ρ [pair], and what sessions told, old ones included.

    `share` [kind] is that of all users; `scale` [kind] times a weight are the odds of a click if the ad stood alone on top.
    """
    now, problem = done.parameters, done.problem
    told = problem.told_of_pairs(now)
    shown = problem.spot_exposure(now, done.found) + problem.old.spot_exposure
    common = problem.options.satisfaction_strength is None
    rho = (
        now.rho * (1 - now.rho) * HARDLY_KNOWN
        if common
        else problem.known_satisfaction(now, done.found)
    )
    theta = _of_theta(now, problem, _of_attractiveness(told, problem, shown), share, scale)
    return np.maximum(theta, SURE), np.maximum(rho, SURE), told


def _of_attractiveness(told: Evidence, problem: Problem, shown: Float64) -> Evidence:
    """Of what sessions tell of a pair, what tells of its θ and not of what its positions are worth."""
    strength = problem.options.position_effect_strength
    if strength is None:
        return told
    left = share_told((told.end + told.ads).sum(axis=1), shown, problem.passes.spot_pair, strength)
    return Evidence(told.end * left[:, None], told.ads * left[:, None])


def _of_theta(
    now: Parameters, problem: Problem, told: Evidence, share: Float64, scale: Float64
) -> Float64:
    """The information on each pair's logit of the attractiveness to all users [pair]."""
    options, head = problem.options, problem.prior_rate(now) * now.theta
    f = problem.known_readiness(now)
    known = together(
        told.end.sum(axis=1),
        told.ads.sum(axis=1),
        head,
        problem.pair_query,
        f,
        options.query_strength is not None,
    )
    if options.component_appeal_strength is None:
        return known
    alone = told.end + told.ads  # as if the other ads were known; together they tell less
    alone *= (np.maximum(known - head, 0.0) / np.maximum(alone.sum(axis=1), SURE))[:, None]
    return of_all(
        alone,
        head,
        options.component_appeal_strength * now.taste,
        slopes(scale * now.theta[:, None] * now.taste, share),
    )


def to_all(odds: Float64, share: Float64) -> Float64:
    """The attractiveness to all users [pair], from the odds of a click to each kind [pair, kind]."""
    return np.asarray((odds / (1 + odds)) @ share)


def slopes(odds: Float64, share: Float64) -> Float64:
    """By how much the logit of the attractiveness to all moves with the logit of that to each kind [pair, kind]."""
    chance, average = odds / (1 + odds), to_all(odds, share)
    return np.asarray(
        share * chance * (1 - chance) / np.maximum(average * (1 - average), SURE)[:, None]
    )


def of_all(told: Float64, head: Float64, shaft: Float64, slope: Float64) -> Float64:
    """1 / the variance of the logit of the attractiveness to all [pair], where log θ + log φ_t is that to kind t.

    `told` [pair, kind] is the information of the sessions on log θ φ_t, `head` [pair] and `shaft` [pair, kind] that of the priors on log θ and on
    log φ_t, the kinds of users being taken as known. Together they are an arrow: the head told in all and θ's prior, the shaft told of a kind and
    φ_t's prior, and beside them what is told of the kind. So its inverse, times the slopes from both sides, is in closed form.
    """
    shaft = np.maximum(told + shaft, SURE)
    rest = np.maximum(told.sum(axis=1) + head - (told**2 / shaft).sum(axis=1), SURE)
    variance = (slope**2 / shaft).sum(axis=1) + (
        slope.sum(axis=1) - (told * slope / shaft).sum(axis=1)
    ) ** 2 / rest
    return np.asarray(1 / np.maximum(variance, SURE))  # 0 if no kind would ever click, or every one


def belief(value: Float64, known: Float64) -> Belief:
    """A probability of this information on its logit: the Beta that on the scale of logits has its top there and is as curved.

    Where next to nothing is known its parameters are ½, so that it says so.
    """
    yes, no = (np.maximum(known / np.maximum(other, SURE), LEAST) for other in (1 - value, value))
    return Belief(value, yes / (yes + no), yes + no)
