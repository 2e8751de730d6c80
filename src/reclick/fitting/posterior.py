"""What a model believes of (query, ad) pairs: values, the posteriors behind them, and their intervals as the columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64
from reclick.fitting.beta import credible_interval, product_beta


class Belief(NamedTuple):
    """A value for each pair, and its posterior: a Beta of this mean and strength (the sum of its two parameters), or an interval of its own."""

    value: Float64  # [pair] what the model uses
    mean: Float64  # [pair]
    strength: Float64  # [pair]
    interval: Callable[[float], tuple[Float64, Float64]] | None = (
        None  # level → low, high, where the posterior is no Beta
    )


class Beliefs(NamedTuple):
    """What a model believes of some pairs."""

    attractiveness: Belief
    satisfaction: Belief | None = None

    def columns(self, level: float) -> dict[str, Any]:
        """Attractiveness, satisfaction and their product, each with its interval [pair].

        Without satisfaction there are nulls, and the relevance is the attractiveness.
        """
        attractive = _with_interval("attractiveness", self.attractiveness, level)
        if self.satisfaction is None:
            nulls = pa.nulls(len(self.attractiveness.value), pa.float64())
            satisfied = dict.fromkeys(
                ("satisfaction", "satisfaction_low", "satisfaction_high"), nulls
            )
            return {
                **attractive,
                **satisfied,
                **{
                    f"relevance{end}": attractive[f"attractiveness{end}"]
                    for end in ("", "_low", "_high")
                },
            }
        relevant = _product(self.attractiveness, self.satisfaction)
        return {
            **attractive,
            **_with_interval("satisfaction", self.satisfaction, level),
            **_with_interval("relevance", relevant, level),
        }


def _product(attractive: Belief, satisfied: Belief) -> Belief:
    return Belief(
        attractive.value * satisfied.value,
        *product_beta(attractive.mean, attractive.strength, satisfied.mean, satisfied.strength),
    )


def _with_interval(name: str, belief: Belief, level: float) -> dict[str, Any]:
    """A value with its interval, which holds the value itself even where a printed formula goes to the edge (1 click of 1 is a rate of 1)."""
    own = belief.interval
    low, high = (
        own(level)
        if own is not None
        else credible_interval(belief.mean, belief.strength, level=level)
    )
    return {
        name: belief.value,
        f"{name}_low": np.minimum(low, belief.value),
        f"{name}_high": np.maximum(high, belief.value),
    }
