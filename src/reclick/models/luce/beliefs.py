"""How sure LuceClick is of what it learnt: normal posteriors on the scale of logits, from the observed information (Laplace)."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from reclick.batch import Float64
from reclick.models.beliefs import Belief
from reclick.models.luce.climbing import Fit

SURE = 1e-9  # information below this is none
FAR = 500.0  # logits beyond this are 0 or 1
HARDLY_KNOWN = 1.0  # information on the logit of a satisfaction common to all: sessions that end are nearly as well explained by fatigue


def information(done: Fit, leaning: Float64) -> tuple[Float64, Float64]:
    """The information on each pair's log attractiveness to all users and logit of ρ, of the sessions and of the priors: [pair], [pair].

    `leaning` [kind] is how much each kind counts in the attractiveness to all.
    """
    now, problem = done.parameters, done.problem
    known = problem.passes.information(now)
    yes, no = problem.satisfied_before()
    certain = (yes + no) * now.rho * (1 - now.rho)
    if problem.options.satisfaction is None:
        rho = np.full(len(known), known[:, 0].sum() + certain.sum())
    else:
        certain = np.maximum(certain, problem.options.satisfaction * problem.satisfied * (1 - problem.satisfied) * (problem.clicks == 0))
        rho = np.maximum(known[:, 0] + certain, certain / 2)  # the likelihood of an end is not concave everywhere
    return np.maximum(_attractiveness(done, known[:, 1:], leaning), SURE), np.maximum(rho, SURE)


def _attractiveness(done: Fit, told: Float64, leaning: Float64) -> Float64:
    """1 / the variance of log Σ_t leaning_t θ φ_t [pair]; `told` is what the sessions tell of log θ φ_t, of each kind if tastes differ.

    The observed information of (log θ, log φ_1 …) is an arrow: its head what is told in all and θ's prior, its shaft what is told of a kind and φ_t's
    prior, and beside them what is told of the kind. So its inverse, times the slopes (1, the kind's part in the sum …) from both sides, is in closed
    form.
    """
    now, problem = done.parameters, done.problem
    head = told.sum(axis=1) + problem.rate(now) * now.theta
    if not problem.passes.tasted:
        return np.asarray(head)
    shaft = np.maximum(told + problem.tasted_before()[1] * now.taste, SURE)
    slope = leaning * now.taste / (now.taste @ leaning)[:, None]
    rest = np.maximum(head - (told**2 / shaft).sum(axis=1), SURE)
    return np.asarray(1 / ((slope**2 / shaft).sum(axis=1) + (1 - (told * slope / shaft).sum(axis=1)) ** 2 / rest))


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
