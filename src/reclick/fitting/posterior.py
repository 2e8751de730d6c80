"""Posteriors of (query, ad) pairs, and their credible intervals as the columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Float64, Int32, Int64
from reclick.fitting.beta import credible_interval, product_beta
from reclick.runtime.jit import kernel, subkernel

COMPARISON_ROUNDS = 30  # to estimate how strongly ads were compared with each other
NO_INFORMATION = 1e-12
LEAST_WEIGHT_INFORMATION = 1e-9  # on the log-weight of a pair
LEAST_BETA = 1e-6  # parameters of a Beta that is drawn from
LEAST_LOGIT_BETA = 0.5  # … of a Beta that is matched on the scale of logits


class Posterior(NamedTuple):
    """A value of each pair with its posterior.

    The posterior is a Beta with this mean and strength (the sum of its two parameters), or one with
    intervals of its own.
    """

    value: Float64  # [pair] what the model uses
    mean: Float64  # [pair]
    strength: Float64  # [pair]
    interval: Callable[[float], tuple[Float64, Float64]] | None = (
        None  # level → low, high, if the posterior is no Beta
    )

    def sample(self, draws: int, rng: np.random.Generator) -> Float64:
        """Draw values from the Betas [draw, pair]."""
        yes = np.maximum(self.mean * self.strength, LEAST_BETA)
        no = np.maximum((1 - self.mean) * self.strength, LEAST_BETA)
        return rng.beta(yes, no, (draws, len(yes)))


class Interval(NamedTuple):
    """A value with the ends of its interval.

    >>> print(Interval(0.25, 0.2, 0.31))
    0.2500 [0.2000, 0.3100]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


class RelevanceDraws(NamedTuple):
    """Draws from the posteriors of some pairs."""

    value: Float64  # [pair] the attractiveness that the model uses
    mean: Float64  # [pair] the mean of its posterior
    attractiveness: Float64  # [draw, pair]
    satisfaction: Float64 | None  # [draw, pair]


def word_posterior(words: Float64) -> Posterior:
    """Attractiveness from words, from [pair, 3]: its value, posterior mean and deviation.

    A Beta matched to the mean of its words' Jeffreys posteriors, taken as fully dependent (so
    rather wide).
    """
    theta, mean, deviation = words.T
    return Posterior(theta, mean, mean * (1 - mean) / np.maximum(deviation, 1e-12) ** 2 - 1)


def logit_posterior(value: Float64, information: Float64) -> Posterior:
    """The Beta with its mode on the scale of logits at this value, and this curvature there."""
    yes, no = (
        np.maximum(information / np.maximum(other, 1e-9), LEAST_LOGIT_BETA)
        for other in (1 - value, value)
    )
    return Posterior(value, yes / (yes + no), yes + no)


class PairPosteriors(NamedTuple):
    """The posteriors of some pairs."""

    attractiveness: Posterior
    satisfaction: Posterior | None = None

    def columns(self, level: float) -> dict[str, Any]:
        """Attractiveness, satisfaction and their product, each with its interval [pair].

        Without satisfaction there are nulls, and the relevance is the attractiveness.
        """
        attractiveness = _with_interval("attractiveness", self.attractiveness, level)
        if self.satisfaction is None:
            nulls = pa.nulls(len(self.attractiveness.value), pa.float64())
            satisfaction = dict.fromkeys(
                ("satisfaction", "satisfaction_low", "satisfaction_high"), nulls
            )
            return {
                **attractiveness,
                **satisfaction,
                **{
                    f"relevance{end}": attractiveness[f"attractiveness{end}"]
                    for end in ("", "_low", "_high")
                },
            }
        relevance = _product(self.attractiveness, self.satisfaction)
        return {
            **attractiveness,
            **_with_interval("satisfaction", self.satisfaction, level),
            **_with_interval("relevance", relevance, level),
        }


def _product(one: Posterior, other: Posterior) -> Posterior:
    return Posterior(
        one.value * other.value,
        *product_beta(one.mean, one.strength, other.mean, other.strength),
    )


def _with_interval(name: str, posterior: Posterior, level: float) -> dict[str, Any]:
    """A value with its interval.

    The interval holds the value even where a formula of a paper is 0 or 1 (1 click of 1 is a rate
    of 1).
    """
    interval = posterior.interval
    low, high = (
        interval(level)
        if interval is not None
        else credible_interval(posterior.mean, posterior.strength, level=level)
    )
    return {
        name: posterior.value,
        f"{name}_low": np.minimum(low, posterior.value),
        f"{name}_high": np.maximum(high, posterior.value),
    }


def information_left(total: Float64, exposure: Float64, pair: Int64, strength: float) -> Float64:
    """The share of the information on log (value · effects) that is on the log value [pair].

    A pair has cells, each with this `exposure`, and two unknown effects of this strength. So of the
    information I on a cell, I κ / (I + κ) remains, where κ is half the strength. `total` is the
    information of all cells of a pair, and `pair` the pair of each cell.
    """
    pair_exposure = np.maximum(np.bincount(pair, exposure, len(total)), 1e-300)
    cell_information = total[pair] * exposure / pair_exposure[pair]
    half = strength / 2
    remaining = np.bincount(
        pair, cell_information * half / np.maximum(cell_information + half, 1e-300), len(total)
    )
    return np.where(total > 0, remaining / np.maximum(total, 1e-300), 1.0)


@kernel
def marginal_information(
    outside: Float64,
    ads: Float64,
    prior: Float64,
    query: Int32,
    query_prior: Float64,
) -> Float64:
    """1 / variance of the log-weight of each pair in choices among the ads of its query.

    Of one choice, the information on the log-weights is diag(v) − v vᵀ, v being the probabilities:
    a sum of comparisons of two. So two sums per ad are enough: the information of its comparisons
    with the `outside` option, and with other `ads`. The comparisons with other ads are divided
    among them in proportion to how strongly each was compared. The result is the information that
    remains on one weight if the other weights of its query, and the outside option of the query,
    are unknown too. `query_prior` [query] is the information of the prior of the outside option: ∞
    if it is common to all queries, and so known. `query` [pair] is sorted.
    """
    out = np.empty(len(outside))
    first = 0
    while first < len(outside):
        last = first
        while last < len(outside) and query[last] == query[first]:
            last += 1
        outside_prior = max(query_prior[query[first]], NO_INFORMATION)
        _inform_query(
            outside[first:last], ads[first:last], prior[first:last], outside_prior, out[first:last]
        )
        first = last
    return np.maximum(out, LEAST_WEIGHT_INFORMATION)


@subkernel
def _inform_query(
    outside: Float64, ads: Float64, prior: Float64, outside_prior: float, out: Float64
) -> None:
    """Fill `out` with the marginal information of the pairs of one query.

    With c_i c_j the information of comparing ads i and j, the information on all log θ, f being
    eliminated, is diag(d) − c cᵀ − e eᵀ: a diagonal less two products, whose inverse has a closed
    form (Woodbury).
    """
    c = np.zeros(len(ads))
    _pairwise_weights(ads, c)
    total = ends = 0.0
    for i in range(len(ads)):
        total += c[i]
        ends += max(outside[i], 0.0)
    infinite = np.isinf(outside_prior)
    root = 0.0 if infinite else 1.0 / np.sqrt(ends + outside_prior)
    one, two, both = 1.0 if total == 0.0 else 0.0, outside_prior, 0.0
    for i in range(len(ads)):
        end = max(outside[i], 0.0)
        d = out[i] = max(end + c[i] * total + prior[i], NO_INFORMATION)
        if total > 0.0:
            one += c[i] / total * (end + prior[i]) / d  # 1 − Σ c² / d, without cancellation
        if not infinite:
            two += end * (c[i] * total + prior[i]) / d
        both += c[i] * end * root / d
    two = 1.0 if infinite else two / (ends + outside_prior)  # 1 − Σ e² / d
    spare = max(one * two - both * both, NO_INFORMATION * NO_INFORMATION)
    for i in range(len(ads)):
        d, e = out[i], max(outside[i], 0.0) * root
        loss = two * c[i] * c[i] + 2.0 * both * c[i] * e + one * e * e
        out[i] = d / (1.0 + loss / (spare * d))


@subkernel
def _pairwise_weights(ads: Float64, c: Float64) -> None:
    """Fill c with values such that c_i Σ_{j ≠ i} c_j is nearly ads_i."""
    total = 0.0
    for i in range(len(ads)):
        total += max(ads[i], 0.0)
    if total <= 0.0:
        return
    for i in range(len(ads)):
        c[i] = max(ads[i], 0.0) / np.sqrt(total)
    for _ in range(COMPARISON_ROUNDS):
        total = 0.0
        for i in range(len(ads)):
            total += c[i]
        for i in range(len(ads)):
            c[i] = np.sqrt(c[i] * max(ads[i], 0.0) / max(total - c[i], NO_INFORMATION))
