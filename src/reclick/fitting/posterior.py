"""Posteriors of (query, ad) pairs, and their credible intervals as the columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64
from reclick.fitting.beta import credible_interval, product_beta


class Posterior(NamedTuple):
    """A value of each pair with its posterior.

    The posterior is a Beta with this mean and strength (the sum of its two parameters), or one with
    intervals of its own.
    """

    value: Float64  # [pair] what the model uses
    mean: Float64  # [pair]
    strength: Float64  # [pair]
    interval: Callable[[float], tuple[Float64, Float64]] | None = (
        None  # level → low, high, where the posterior is no Beta
    )


def word_posterior(words: Float64) -> Posterior:
    """Attractiveness from words, from [pair, 3]: its value, posterior mean and deviation.

    A Beta matched to the mean of its words' Jeffreys posteriors, taken as fully dependent (so
    rather wide).
    """
    theta, mean, deviation = words.T
    return Posterior(theta, mean, mean * (1 - mean) / np.maximum(deviation, 1e-12) ** 2 - 1)


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
    own = posterior.interval
    low, high = (
        own(level)
        if own is not None
        else credible_interval(posterior.mean, posterior.strength, level=level)
    )
    return {
        name: posterior.value,
        f"{name}_low": np.minimum(low, posterior.value),
        f"{name}_high": np.maximum(high, posterior.value),
    }
