"""The posterior of LuceClick's attractiveness, by Laplace's approximation."""

from __future__ import annotations

import numpy as np

from reclick.data.ragged import Float64, Int64
from reclick.fitting.posterior import marginal_information
from reclick.models.luce.fit import LuceState
from reclick.models.luce.parameters import PAIR

LEAST_INFORMATION = 1e-9


def attractiveness_information(state: LuceState) -> Float64:
    """The information on log θ of each pair, other weights of its query being unknown too."""
    (outside, ads, _), hyper, appeal = state.information, state.hyper, state.parameters.appeal
    pairs = len(state.layout.pair_class)
    prior = appeal.strength[:pairs] * appeal.level(PAIR) / appeal.mean[:pairs]
    query_prior = (hyper.query_strength or 0.0) * state.parameters.query_outside.weights()
    left = np.ones(pairs)
    if hyper.position_effect_strength is not None:
        cells = appeal.past.exposure, state.layout.cell_pair
        left = share_of_pair(outside + ads, *cells, hyper.position_effect_strength)
    information = marginal_information(
        outside * left,
        ads * left,
        prior,
        state.layout.counts.pair_query,
        query_prior,
        hyper.query_strength is not None,
    )
    return np.maximum(information, LEAST_INFORMATION)


def share_of_pair(total: Float64, exposure: Float64, pair: Int64, strength: float) -> Float64:
    """The share of the information on log (θ · position effects) that is on log θ [pair].

    A cell has two unknown effects of this strength, so information I leaves I κ / (I + κ), κ being
    half the strength. `exposure` and `pair` are those of each cell.
    """
    shown = np.maximum(np.bincount(pair, exposure, len(total)), 1e-300)
    of_cell = total[pair] * exposure / shown[pair]
    half = strength / 2
    left = np.bincount(pair, of_cell * half / np.maximum(of_cell + half, 1e-300), len(total))
    return np.where(total > 0, left / np.maximum(total, 1e-300), 1.0)
