"""Posteriors of LuceClick's attractiveness and satisfaction: Betas, by Laplace's approximation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reclick.data.ragged import Float64, Int64
from reclick.fitting.posterior import Posterior, marginal_information
from reclick.models.luce.parameters import Hyperparameters

if TYPE_CHECKING:
    from reclick.models.luce.fit import LuceFit

LEAST_INFORMATION = 1e-9
LEAST_BETA = 0.5  # parameters of a Beta
LEAST_SATISFACTION = 0.5  # information on the logit of ρ
MAX_VARIANCE = 2.0  # of the logit of ρ in the E-step, which needs less than 4
COMMON_SATISFACTION_CLICKS = 6.0  # that the posterior of a satisfaction common to all is worth


class Information(NamedTuple):
    """What sessions contribute about each pair [pair]."""

    outside: Float64  # on log θ, of comparisons with the outside option
    ads: Float64  # … with other ads
    ambiguity: Float64  # the variance of the number of satisfied clicks

    def __add__(self, other: Information) -> Information:  # type: ignore[override]
        return Information(*(a + b for a, b in zip(self, other, strict=True)))


def attractiveness_information(fit: LuceFit, found: Information, exposure: Float64) -> Float64:
    """The information on log θ of each pair; `exposure` is that of each cell, the past included."""
    parameters, layout, hyper = fit.parameters, fit.data.layout, fit.hyper
    theta = parameters.appeal.level(0)
    prior = fit.prior.strength * theta / fit.prior.mean
    query_prior = (hyper.query_strength or 0.0) * parameters.query_outside.weights()
    left = np.ones(len(theta))
    if hyper.position_effect_strength is not None:
        left = _share_of_pair(found, exposure, layout.cell_pair, hyper.position_effect_strength)
    information = marginal_information(
        found.outside * left,
        found.ads * left,
        prior,
        layout.pair_query.astype(np.int32),
        query_prior,
        hyper.query_strength is not None,
    )
    return np.maximum(information, LEAST_INFORMATION)


def satisfaction_information(
    hyper: Hyperparameters, rho: Float64, clicks: Float64, ambiguity: Float64
) -> Float64:
    """The information on the logit of ρ of each pair, from clicks that left another ad to click."""
    if hyper.satisfaction_strength is None:
        return np.asarray(COMMON_SATISFACTION_CLICKS * rho * (1 - rho))
    known = (clicks + hyper.satisfaction_strength) * rho * (1 - rho) - ambiguity
    return np.maximum(
        known, prior_satisfaction_information(hyper.satisfaction_strength, hyper.satisfaction_prior)
    )


def satisfaction_variance(
    hyper: Hyperparameters, rho: Float64, clicks: Float64, ambiguity: Float64
) -> Float64:
    """The variance of the logit of ρ of each pair in the E-step; 0 where ρ is common to all."""
    if hyper.satisfaction_strength is None:
        return np.zeros(len(rho))
    return np.minimum(1 / satisfaction_information(hyper, rho, clicks, ambiguity), MAX_VARIANCE)


def prior_satisfaction_information(strength: float | None, mean: float) -> float:
    """The information on the logit of ρ of a pair without clicks."""
    clicks = COMMON_SATISFACTION_CLICKS if strength is None else strength
    return max(clicks * mean * (1 - mean), LEAST_SATISFACTION)


def to_posterior(value: Float64, information: Float64) -> Posterior:
    """The Beta that has its mode on the scale of logits at this value, and this curvature there."""
    yes, no = (
        np.maximum(information / np.maximum(other, LEAST_INFORMATION), LEAST_BETA)
        for other in (1 - value, value)
    )
    return Posterior(value, yes / (yes + no), yes + no)


def _share_of_pair(found: Information, exposure: Float64, pair: Int64, strength: float) -> Float64:
    """The share of the information on log (θ · position effects) that is on log θ [pair].

    A cell has two unknown effects of this strength, so information I leaves I κ / (I + κ), κ being
    half the strength.
    """
    total = found.outside + found.ads
    shown = np.maximum(np.bincount(pair, exposure, len(total)), 1e-300)
    of_cell = total[pair] * exposure / shown[pair]
    half = strength / 2
    left = np.bincount(pair, of_cell * half / np.maximum(of_cell + half, 1e-300), len(total))
    return np.where(total > 0, left / np.maximum(total, 1e-300), 1.0)
