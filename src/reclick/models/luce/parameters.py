"""What LuceClick learns: hyperparameters, parameters, and the tables they make up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.data.grouped_sessions import QueryBlock
from reclick.data.ragged import Float64, Int32, Int64, positions_in_runs
from reclick.fitting.factors import FactorTable, build_factor_table

MIN_PROBABILITY = 1e-9  # probabilities stay this far from 0 and from 1
BASE_STRENGTH = 0.5  # of the factors that all mixture components share, in pseudo-choices
POSITION_BITS = 16  # of a cell's key
NO_CELLS = np.zeros(0, np.int64)


class Hyperparameters(NamedTuple):
    """Strengths of priors in pseudo-clicks, by the name of the setting; None: one value for all."""

    attractiveness_strength: float = 2.0
    satisfaction_strength: float | None = 5.0
    satisfaction_prior: float | str = "overall"  # prior mean of ρ; "overall": from the first stage
    query_strength: float | None = None  # of the outside option of each query
    transition_strength: float = 2.0
    components: int = 1
    component_strength: float = 4.0  # how far the components may differ
    mixing_strength: float | None = None  # of the mixing weights of each query
    component_appeal_strength: float | None = None
    position_effect_strength: float | None = None


class LuceParameters(NamedTuple):
    """The parameters. Factors are those of a `FactorTable`."""

    theta: Float64  # [pair]
    rho: Float64  # [pair] the logistic of the mean of its logit
    transition: Float64  # [factor]
    outside: Float64  # [factor]
    query_outside: Float64  # [query] or [1]
    mixing: Float64  # [query or 1, component]
    pair_class_mean: Float64  # [class] prior mean of θ by frequency class, relative to the largest
    query_class_mean: Float64  # [class] prior mean of f, likewise
    component_appeal: Float64  # [pair, component] multiple of θ; or [1, 1]
    satisfaction_variance: Float64  # [pair] variance of the logit of ρ
    position_effect: Float64  # [factor] by query and by pair; or [0]
    satisfaction_odds: Float64  # [component] multiple of the odds of ρ


class Information(NamedTuple):
    """Fisher information on the log θ of each pair, by what the pair was compared with."""

    end: Float64  # [pair, component or 1] choices between the ad and the end of the session
    ads: Float64  # [pair, component or 1] choices between the ad and other ads


class PastStatistics(NamedTuple):
    """What past sessions contribute: observed choices, and exposure (expected choices per unit)."""

    observed: Float64  # [pair]
    exposure: Float64  # [pair]
    followed: Float64  # [pair] clicks that left another ad to click, in clicks with odds ratio 1
    satisfied: Float64  # [pair] expected number of these that satisfied
    satisfied_variance: Float64  # [pair] and its variance
    transition_observed: Float64  # [component, last, position]
    transition_exposure: Float64
    outside_observed: Float64  # [component, clicks so far]
    outside_exposure: Float64
    query_observed: Float64  # [query] or [1]
    query_exposure: Float64
    component_sessions: Float64  # [query or 1, component]
    appeal_observed: Float64  # [pair, component] or [1, 1]
    appeal_exposure: Float64
    cell_observed: Float64  # [cell] or [0]
    cell_exposure: Float64
    odds_observed: Float64  # [component]
    odds_exposure: Float64
    component_followed: Float64  # [component] clicks that left another ad to click
    information: Information


class PairPositions(NamedTuple):
    """Distinct cells of (pair, position), by sorted keys. Positions count from 0."""

    key: Int64  # [cell]

    @property
    def pair(self) -> Int64:
        """The pair of each cell."""
        return self.key >> POSITION_BITS

    @property
    def position(self) -> Int64:
        """The position of each cell."""
        return self.key & ((1 << POSITION_BITS) - 1)

    def find(self, key: Int64) -> Int64:
        """The cell of each key, −1 where there is none."""
        if not len(self.key):
            return np.full(len(key), -1)
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[at] == key, at, -1)


def cell_keys(pair: Int32 | Int64, position: Int64) -> Int64:
    """The key of the cell of each (pair, position)."""
    return np.asarray((pair.astype(np.int64) << POSITION_BITS) | position)


def find_cells(sessions: QueryBlock, past: Int64 = NO_CELLS) -> PairPositions:
    """The cells of the sessions, and past ones by their keys."""
    keys = cell_keys(sessions.pair, positions_in_runs(sessions.page))
    return PairPositions(np.unique(np.concatenate([keys, past])))


def transition_table(
    components: int, longest: int, transition_strength: float, component_strength: float
) -> FactorTable:
    """γ [component, last, position]: by distance, by last click, by both; again per component."""
    t, last, position = np.ogrid[:components, : longest + 1, :longest]
    distance = longest + position + 1 - last + longest
    jump = np.where(last == 0, position, distance)  # before the first click, the position
    both = last * longest + position
    levels: list[tuple[Int64, float]] = [
        (jump, BASE_STRENGTH),
        (last, BASE_STRENGTH),
        (both, transition_strength),
    ]
    if components > 1:
        levels += [
            (t * (3 * longest) + jump, component_strength),
            (t * (longest + 1) + last, component_strength),
            (t * (longest + 1) * longest + both, component_strength),
        ]
    return build_factor_table((components, longest + 1, longest), levels)


def outside_table(components: int, longest: int, component_strength: float) -> FactorTable:
    """ω [component, clicks so far]: by none or some, by their number; again per component."""
    t, k = np.ogrid[:components, : longest + 1]
    some = (k > 0).astype(np.int64)
    levels: list[tuple[Int64, float]] = [(some, BASE_STRENGTH), (k, BASE_STRENGTH)]
    if components > 1:
        levels += [(2 * t + some, component_strength), (t * (longest + 1) + k, component_strength)]
    return build_factor_table((components, longest + 1), levels)


def position_effect_table(
    cells: PairPositions, pair_query: Int32, n_queries: int, longest: int, strength: float
) -> FactorTable:
    """Position effects [cell]: of the query at a position, and of the pair at a position."""
    of_query = pair_query[cells.pair].astype(np.int64) * longest + cells.position
    n_cells = len(cells.key)
    levels = [(of_query, strength), (np.arange(n_cells), strength)]
    return build_factor_table((n_cells,), levels, (n_queries * longest, n_cells))


def lookup_position_effects(
    effect: Float64, cells: PairPositions, longest: int, query: Int64, pair: Int64, position: Int64
) -> Float64:
    """The position effect of impressions; query and pair are −1 where never seen [impression]."""
    n_query_factors = len(effect) - len(cells.key)
    out = np.ones(len(position))
    known = (query >= 0) & (position < longest)
    out[known] = effect[query[known] * longest + position[known]]
    at = np.where(pair >= 0, cells.find(cell_keys(pair, position)), -1)
    out[at >= 0] *= effect[n_query_factors + at[at >= 0]]
    return out


def extend_transitions(gamma: Float64, longest: int) -> Float64:
    """γ [component, last, position] for pages longer than in training.

    New positions are like the last one, and transitions from them have the same distances.
    """
    known = gamma.shape[2]
    if longest <= known:
        return np.ascontiguousarray(gamma)
    wide = np.pad(gamma, ((0, 0), (0, longest - known), (0, longest - known)), mode="edge")
    for last in range(known + 1, longest + 1):
        shift = last - known
        wide[:, last, shift:] = wide[:, known, : longest - shift]
    return np.ascontiguousarray(wide)
