"""Spots: a pair at a position. What a position is worth may differ between queries, and between the ads of a query, from what γ says.

A strong result that users know is found wherever it stands, and a weak one lives on its place. So the weight of a spot is θ times what its position
is worth to the query, times what it is worth to the ad: factors that are shrunk towards 1 (reclick.fitting.factors).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.data.grouped_sessions import Sessions
from reclick.fitting.factors import Levels

BITS = 16  # of a key that tell the position
NONE = np.zeros(0, np.int64)


class Spots(NamedTuple):
    """Distinct spots by their keys, which are in order; positions are from 0."""

    key: Int64  # [spot]

    @property
    def pair(self) -> Int64:
        """The pair of each spot."""
        return self.key >> BITS

    @property
    def position(self) -> Int64:
        """The position of each spot."""
        return self.key & ((1 << BITS) - 1)

    def find(self, key: Int64) -> Int64:
        """Where these keys stand among the spots, −1 where they do not."""
        at = np.minimum(np.searchsorted(self.key, key), max(len(self.key) - 1, 0))
        return np.where(self.key[at] == key, at, -1) if len(self.key) else np.full(len(key), -1)


def positions_of(page: Int64) -> Int64:
    """The position of each impression on its page, from 0."""
    sizes = np.diff(page)
    return np.asarray(np.arange(page[-1] - page[0]) - np.repeat(page[:-1] - page[0], sizes))


def keys(pair: Int32 | Int64, position: Int64) -> Int64:
    """The key of each impression's spot."""
    return np.asarray((pair.astype(np.int64) << BITS) | position)


def spots_of(sessions: Sessions, earlier: Int64 = NONE) -> Spots:
    """The spots of the sessions, and earlier ones by their keys."""
    return Spots(
        np.unique(np.concatenate([keys(sessions.pair, positions_of(sessions.page)), earlier]))
    )


def worth_levels(spots: Spots, query: Int32, queries: int, longest: int, strength: float) -> Levels:
    """What positions are worth, [spot]: to the query [query, position], and to the ad [spot]. `query` [pair] tells whose the pairs are."""
    of_query = query[spots.pair].astype(np.int64) * longest + spots.position
    size = queries * longest
    return Levels(
        (len(spots.key),),
        (of_query, np.arange(len(spots.key))),
        (strength, strength),
        (0, size, size + len(spots.key)),
    )


def worth_elsewhere(
    worth: Float64, spots: Spots, longest: int, query: Int64, pair: Int64, position: Int64
) -> Float64:
    """What positions are worth by these factors, wherever they were learnt; query and pair are −1 where never seen [impression]."""
    size = len(worth) - len(spots.key)
    out = np.ones(len(position))
    known = (query >= 0) & (position < longest)
    out[known] = worth[query[known] * longest + position[known]]
    at = np.where(pair >= 0, spots.find(keys(pair, position)), -1)
    out[at >= 0] *= worth[size + at[at >= 0]]
    return out


def share_told(told: Float64, shown: Float64, pair: Int64, strength: float) -> Float64:
    """The share of what sessions tell of a pair that tells of its θ, if what its positions are worth is unknown too [pair].

    `told` [pair] is the information on log (θ · worth) in all, of which each spot has its share of `shown` [spot]. A worth is unknown by two factors
    of this strength, to the query and to the ad, so of information I on a spot I κ / (I + κ) is left, κ being half of it.
    """
    total = np.maximum(np.bincount(pair, shown, len(told)), 1e-300)
    each = told[pair] * shown / total[pair]
    half = strength / 2
    left = np.bincount(pair, each * half / np.maximum(each + half, 1e-300), len(told))
    return np.where(told > 0, left / np.maximum(told, 1e-300), 1.0)
