"""Factors of choices on a page: transitions γ(last click, next position), and ends ω(clicks)."""

from __future__ import annotations

import numpy as np

from reclick.data.ragged import Float64
from reclick.fitting.factors import FactorTable, Level, with_components

SHARED_STRENGTH = 0.5  # pseudo-choices: the prior, with mean 1, of factors of many cells


def transition_table(
    longest: int, strength: float, components: int = 1, component_strength: float = 0.0
) -> FactorTable:
    """γ [component, last, position] by distance, by the last click, and by both.

    Row 0 is the start of a session. `strength` is that of the prior of single transitions given
    their distance and their last click, `component_strength` that of differences of components.
    """
    shape = (components, longest + 1, longest)
    _, last, position = np.indices(shape)
    # At the start the position counts, after a click the distance.
    distance = np.where(last == 0, position, 2 * longest + 1 + position - last)
    distances = 3 * longest
    levels = [
        Level(distance, distances, SHARED_STRENGTH),
        Level(last, longest + 1, SHARED_STRENGTH),
        Level(last * longest + position, (longest + 1) * longest, strength),
    ]
    table = FactorTable.build(shape, with_components(levels, components, component_strength))
    if components > 1:  # the third, fifth, … start with more moves back up the page
        ways = table.level(3).reshape(components, distances)
        ways[2::2, longest : 2 * longest] *= 2.0
    return table


def outside_table(longest: int, components: int, component_strength: float) -> FactorTable:
    """ω [component, clicks so far], the weight of ending: by none or some, and by their number.

    `component_strength` is that of the prior of differences of components.
    """
    shape = (components, longest + 1)
    clicks = np.indices(shape)[1]
    levels = [
        Level((clicks > 0).astype(np.int64), 2, SHARED_STRENGTH),
        Level(clicks, longest + 1, SHARED_STRENGTH),
    ]
    table = FactorTable.build(shape, with_components(levels, components, component_strength))
    if components > 1:  # the first components leave soon, the last ones late
        table.level(2)[:] = np.repeat(np.geomspace(2.0, 0.5, components), 2)
    return table


def extend_transitions(gamma: Float64, longest: int) -> Float64:
    """γ [component, last, position] for longer pages: new positions are like the last one."""
    n_known = gamma.shape[2]
    n_added = max(longest - n_known, 0)
    if not n_added:
        return np.ascontiguousarray(gamma)
    wide = np.pad(gamma, ((0, 0), (0, n_added), (0, n_added)), mode="edge")
    for last in range(n_known + 1, longest + 1):
        wide[:, last, last - n_known :] = wide[:, n_known, : longest - last + n_known]
    return np.ascontiguousarray(wide)


def extend_outside(omega: Float64, longest: int) -> Float64:
    """ω [component, clicks so far] for longer pages: larger numbers are like the last known one."""
    n_added = max(longest + 1 - omega.shape[1], 0)
    return np.pad(omega, ((0, 0), (0, n_added)), mode="edge")
