"""The step that climbs LuceClick's objective, in closed form, and the leap to where two steps seem to lead."""

from __future__ import annotations

import math

import numpy as np

from reclick.clicks.chain import EDGE
from reclick.data.batch import Float64, Int64
from reclick.models.luce.e_step import land, leap, raise_tastes, raise_weights, raise_worth
from reclick.models.luce.objective import AS_ALL, OFTEN, Problem
from reclick.models.luce.parameters import Found, Parameters
from reclick.models.luce.satisfaction import raise_ease, raise_satisfaction

HIGHEST = (
    1e12,
    1 - EDGE,
    1e12,
    1e12,
    1e12,
    1.0,
    1e12,
    1e12,
    1e12,
    1e12,
    1e12,
    1e12,
)  # that a leap may lead to, of each of the parameters


def maximise(problem: Problem, now: Parameters, found: Found) -> Parameters:
    """The step up from the parameters that the statistics were found under."""
    options, old = problem.options, problem.old
    theta, taste = _attractiveness(
        problem, now, problem.passes.of_pairs(found.pulled), found.taste_chosen
    )
    rho, loose, ease = _satisfaction(problem, now, found)
    spread = now.spread
    if options.query_strength is not None:
        spread = raise_weights(
            spread,
            found.query_chosen,
            found.query_pulled,
            options.query_strength + old.query_chosen,
            problem.query_rate(now),
        )
    eye, out = problem.eye.table(now.eye), problem.out.table(now.out)
    return Parameters(
        theta=theta,
        rho=rho,
        eye=problem.eye.climbed(
            now.eye, found.eye_chosen + old.eye_chosen, found.eye_pulled + old.eye_exposure * eye
        ),
        out=problem.out.climbed(
            now.out, found.out_chosen + old.out_chosen, found.out_pulled + old.out_exposure * out
        ),
        spread=spread,
        share=_shares(problem, found.kind_chosen),
        rare=_class_means(theta / problem.means, problem.pair_class, problem.largest[0])
        if options.attractiveness_strength
        else now.rare,
        seldom=_class_means(spread, problem.query_class, problem.largest[1])
        if options.query_strength
        else now.seldom,
        taste=taste,
        loose=loose,
        worth=_worth(problem, now, found, theta / now.theta, taste / now.taste),
        ease=ease,
    )


def _attractiveness(
    problem: Problem, now: Parameters, pulled: Float64, taste_chosen: Float64
) -> tuple[Float64, Float64]:
    """θ, and by what it differs between kinds of users; `pulled` is [pair, kind]."""
    if problem.passes.tasted:
        return raise_tastes(
            now.theta,
            now.taste,
            taste_chosen,
            pulled,
            problem.strength,
            problem.rate(now),
            *problem.tasted_before(),
        )
    return raise_weights(
        now.theta, problem.clicks, pulled[:, 0], problem.strength, problem.rate(now)
    ), now.taste


def _worth(
    problem: Problem, now: Parameters, found: Found, theta_moved: Float64, taste_moved: Float64
) -> Float64:
    """What positions are worth, given how far θ [pair] and tastes [pair or 1, kind] have moved."""
    if not problem.passes.placed:
        return now.worth
    old, levels = problem.old, problem.worth
    return raise_worth(
        now.worth, levels.index[0], levels.starts[1], problem.spot_clicks + old.spot_chosen, found.pulled, theta_moved[:, None] * taste_moved,
        problem.passes.spot_pair, old.spot_exposure, levels.strength[0],
    )  # fmt: skip


def _satisfaction(
    problem: Problem, now: Parameters, found: Found
) -> tuple[Float64, Float64, Float64]:
    """ρ, whose mean is (expected satisfied + prior) / (clicks + prior), of each pair or of all, how loose it is, and each kind's ς."""
    yes, no, clicks, ease = problem.yes, problem.no, problem.followed, now.ease
    if problem.options.satisfaction_strength is None:
        common = (found.satisfied.sum() + yes[0]) / (clicks.sum() + yes[0] + no[0])
        return np.full(len(clicks), np.clip(common, EDGE, 1 - EDGE)), now.loose, ease
    asked = found.asked if problem.passes.eased else clicks[:, None]
    if problem.passes.eased:
        old, strength = problem.old, problem.options.component_strength
        wanted, exposure = (
            found.ease_chosen + old.ease_chosen + strength,
            found.ease_pulled / now.ease + old.ease_exposure + strength,
        )
        ease = raise_ease(wanted, exposure, problem.clickers, now.ease)
    rho = raise_satisfaction(now.rho, now.loose, yes, no, asked, ease, found.satisfied)
    return (
        rho,
        np.where(problem.told(), 1 / problem.known_satisfaction(now, found), now.loose),
        ease,
    )


def _shares(problem: Problem, chosen: Float64) -> Float64:
    """The kinds' shares, of each query's users or of all."""
    if problem.options.components == 1:
        return np.ones((1, 1))
    counts = np.maximum(chosen + problem.mixed_before(), EDGE)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _class_means(values: Float64, of: Int64, most: int) -> Float64:
    """The mean of each class and of some values of 1, the best mean of a Gamma prior of them; 1 in the largest, for the scale is free."""
    sizes, sums = np.bincount(of, minlength=len(OFTEN) + 1), np.bincount(of, values, len(OFTEN) + 1)
    means = (sums + AS_ALL) / (sizes + AS_ALL)
    means[most] = 1.0
    return np.asarray(means)


def leapt(
    problem: Problem, first: Parameters, second: Parameters, third: Parameters, longest: float
) -> tuple[Parameters, float]:
    """Where the two steps lead (SQUAREM), and how many steps long the leap is."""
    weights = [
        problem.clicks + 1.0,
        problem.clicks + 1.0,
        problem.eye.strengths() + 1.0,
        problem.out.strengths() + 1.0,
    ]
    lengths = np.zeros(2)
    for a, b, c, w in zip(first[:4], second[:4], third[:4], weights, strict=True):
        lengths += leap(a, b, c, w)
    far = float(
        np.clip(math.sqrt(lengths[0] / lengths[1]) if lengths[1] > 0 else 1.0, 1.0, longest)
    )
    if far == 1.0:
        return third, far
    points = zip(first, second, third, HIGHEST, strict=True)
    landed = Parameters(
        *(
            land(a.ravel(), b.ravel(), c.ravel(), far, top).reshape(a.shape)
            for a, b, c, top in points
        )
    )
    loose = np.minimum(landed.loose, 1 / problem.least_known)
    return landed._replace(
        share=landed.share / landed.share.sum(axis=1, keepdims=True), loose=loose
    ), far
