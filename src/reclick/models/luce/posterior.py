"""Posteriors of attractiveness and satisfaction: Betas from information on their logits (Laplace).

All ads of a query are unknown together. A choice compares ads with the end of the session and with
each other: whether an ad is strong or its neighbours are weak follows from the same clicks. The
information of one choice with probabilities v on log θ and log f is diag(v) − v vᵀ, whose rows sum
to 0. So it is a sum of comparisons of two, and two numbers per ad are kept: the information from
comparisons with the end and with other ads. With which other ads is approximated.
"""

from __future__ import annotations

import numpy as np

from reclick.data.ragged import Float64, Int32, Int64
from reclick.fitting.posterior import Posterior
from reclick.models.luce.incremental import cell_exposure
from reclick.models.luce.m_step import LuceFit, Objective
from reclick.models.luce.parameters import Information, LuceParameters

MIN_INFORMATION = 1e-9  # less counts as none
MIN_BETA = 0.5  # parameters of a Beta
NO_INFORMATION = 1e-12
COMPARISON_ROUNDS = 30  # to solve for how much ads were compared with each other
POOLED_INFORMATION = 6.0  # clicks behind a satisfaction that is common to all: fatigue explains the
# ends of sessions nearly as well


def fit_information(
    objective: Objective, result: LuceFit, mixing: Float64, scale: Float64
) -> tuple[Float64, Float64, Information]:
    """The information on each pair's logits of attractiveness (to all users) and of ρ [pair].

    `mixing` [component] is that of all users; `scale` [component] times a weight are the odds of a
    click on an ad alone at the top. The last value is the information of the sessions, past
    included.
    """
    now, statistics = result.parameters, result.statistics
    information = objective.information(now)
    exposure = cell_exposure(objective, now, statistics) + objective.past.cell_exposure
    if objective.hyperparameters.satisfaction_strength is None:
        rho = now.rho * (1 - now.rho) * POOLED_INFORMATION
    else:
        rho = objective.satisfaction_information(now, statistics)
    on_theta = _theta_share(information, objective, exposure)
    theta = _attractiveness_information(now, objective, on_theta, mixing, scale)
    return np.maximum(theta, MIN_INFORMATION), np.maximum(rho, MIN_INFORMATION), information


def _theta_share(information: Information, objective: Objective, exposure: Float64) -> Information:
    """The part of the information on a pair that is on its θ and not on position effects."""
    strength, cells = objective.hyperparameters.position_effect_strength, objective.layout.cells
    if strength is None:
        return information
    total = (information.end + information.ads).sum(axis=1)
    left = theta_information_share(total, exposure, cells.pair, strength)[:, None]
    return Information(information.end * left, information.ads * left)


def theta_information_share(
    information: Float64, exposure: Float64, pair: Int64, strength: float
) -> Float64:
    """The share of each pair's information that is left for θ [pair].

    Position effects are unknown too.

    `information` [pair] is that on log (θ · position effect), of which each cell has its part by
    `exposure` [cell]. A position effect has two factors of this strength, so of information I on a
    cell I κ / (I + κ) is left, with κ half of the strength.
    """
    total = np.maximum(np.bincount(pair, exposure, len(information)), 1e-300)
    each = information[pair] * exposure / total[pair]
    half = strength / 2
    remaining = each * half / np.maximum(each + half, 1e-300)
    left = np.bincount(pair, remaining, len(information))
    return np.where(information > 0, left / np.maximum(information, 1e-300), 1.0)


def _attractiveness_information(
    now: LuceParameters,
    objective: Objective,
    information: Information,
    mixing: Float64,
    scale: Float64,
) -> Float64:
    """The information on each pair's logit of the attractiveness to all users [pair]."""
    chosen, prior = objective.hyperparameters, objective.prior_rate(now) * now.theta
    on_query = objective.prior_query_information(now) if chosen.query_strength is not None else None
    marginal = marginal_information(
        information.end.sum(axis=1),
        information.ads.sum(axis=1),
        prior,
        objective.layout.pair_query,
        on_query,
    )
    if chosen.component_appeal_strength is None:
        return marginal
    alone = information.end + information.ads  # as if the other ads were known; together it is less
    total = np.maximum(alone.sum(axis=1), MIN_INFORMATION)
    alone *= (np.maximum(marginal - prior, 0.0) / total)[:, None]
    appeal = now.component_appeal
    slopes = logit_slopes(scale * now.theta[:, None] * appeal, mixing)
    return combine_components(alone, prior, chosen.component_appeal_strength * appeal, slopes)


def marginal_information(
    end: Float64, ads: Float64, prior: Float64, query: Int32, on_query: Float64 | None
) -> Float64:
    """1 / the variance of log θ [pair], with the other ads of the query and log f unknown too.

    From comparisons with the end and with ads, and the information of the priors on log θ [pair]
    and on log f [query] (None: f is known). The comparison of ads i and j is worth c_i c_j. Then
    the information on all log θ, without f, is diag(d) − c cᵀ − end endᵀ / (Σ end + on_query), with
    d = end + c Σc + prior. The inverse of a diagonal less two products is in closed form
    (Woodbury).
    """
    n_queries = int(query.max(initial=-1)) + 1

    def total(values: Float64) -> Float64:
        """Sums over the ads of each query [pair]."""
        return np.asarray(np.bincount(query, values, n_queries)[query])

    end, ads = np.maximum(end, 0.0), np.maximum(ads, 0.0)
    c = _pairwise_weights(ads, query, n_queries)
    sum_c, sum_end = total(c), total(end)
    d = np.maximum(end + c * sum_c + prior, NO_INFORMATION)
    has_ads = sum_c > 0.0
    own = c / np.where(has_ads, sum_c, 1.0) * (end + prior) / d
    one = np.where(has_ads, total(own), 1.0)  # 1 − Σ c² / d without cancellation
    if on_query is None:
        return np.asarray(d / (1.0 + c * c / (np.maximum(one, NO_INFORMATION**2) * d)))
    f = np.maximum(on_query, NO_INFORMATION)[query]
    e = end / np.sqrt(sum_end + f)
    two = (f + total(end * (c * sum_c + prior) / d)) / (sum_end + f)  # 1 − Σ e² / d
    both = total(c * e / d)
    determinant = np.maximum(one * two - both * both, NO_INFORMATION**2)
    return np.asarray(
        d / (1.0 + (two * c * c + 2.0 * both * c * e + one * e * e) / (determinant * d))
    )


def _pairwise_weights(ads: Float64, query: Int32, n_queries: int) -> Float64:
    """The values c with c_i Σ_{j ≠ i} c_j = ads_i within each query, approximately [pair]."""
    total = np.bincount(query, ads, n_queries)[query]
    c = np.where(total > 0.0, ads / np.sqrt(np.where(total > 0.0, total, 1.0)), 0.0)
    for _ in range(COMPARISON_ROUNDS):
        others = np.bincount(query, c, n_queries)[query] - c
        c = np.sqrt(c * ads / np.maximum(others, NO_INFORMATION))
    return np.asarray(c)


def mean_attractiveness(odds: Float64, mixing: Float64) -> Float64:
    """The attractiveness to all users [pair], from the odds of a click by component."""
    return np.asarray((odds / (1 + odds)) @ mixing)


def logit_slopes(odds: Float64, mixing: Float64) -> Float64:
    """The derivative of the logit of the mean attractiveness by that of each component's."""
    attractive, mean = odds / (1 + odds), mean_attractiveness(odds, mixing)
    variance = np.maximum(mean * (1 - mean), MIN_INFORMATION)[:, None]
    return np.asarray(mixing * attractive * (1 - attractive) / variance)


def combine_components(
    sessions: Float64, theta_prior: Float64, appeal_prior: Float64, slopes: Float64
) -> Float64:
    """1 / the variance of the logit of the mean attractiveness [pair].

    `sessions` [pair, component] is the information of the sessions on log θ φ_t, `theta_prior`
    [pair] and `appeal_prior` [pair, component] that of the priors on log θ and on log φ_t; the
    components of the users are taken as known. The matrix is an arrow: a row and a column for θ, a
    diagonal for the φ_t. So its inverse, times the slopes from both sides, is in closed form.
    """
    diagonal = np.maximum(sessions + appeal_prior, MIN_INFORMATION)
    rest = sessions.sum(axis=1) + theta_prior - (sessions**2 / diagonal).sum(axis=1)
    through_theta = slopes.sum(axis=1) - (sessions * slopes / diagonal).sum(axis=1)
    variance = (slopes**2 / diagonal).sum(axis=1)
    variance += through_theta**2 / np.maximum(rest, MIN_INFORMATION)
    return np.asarray(1 / np.maximum(variance, MIN_INFORMATION))  # 0 if no, or every, user clicks


def beta_posterior(value: Float64, information: Float64) -> Posterior:
    """The Beta with its mode at `value` on the scale of logits, and this curvature there.

    Its parameters are at least ½, so that it is wide where there is hardly any information.
    """
    yes, no = (
        np.maximum(information / np.maximum(other, MIN_INFORMATION), MIN_BETA)
        for other in (1 - value, value)
    )
    return Posterior(value, yes / (yes + no), yes + no)
