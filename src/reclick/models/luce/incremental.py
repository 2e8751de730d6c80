"""What a fitted LuceClick keeps of its sessions, so that a new day can be added without them.

Of the sessions only sums are kept: how often each weight was chosen, and its exposure, which is what a unit of it would have been pulled under the
last fit. As a function of a weight x the old sessions are then worth chosen · log x − exposure · x. Its slope is exact in the point where they were
fitted; further away it is an approximation, for what the other weights were is not remembered: where kinds of users have tastes, or positions a worth
of their own, a pull is an exposure of θ and of these, and where kinds differ in being satisfied a click tells of ρ and of ς. What the sessions told
of each pair is kept beside, for the intervals. Decay fades the sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int32, Int64
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.data.string_index import Interner
from reclick.models.luce.objective import Problem
from reclick.models.luce.parameters import Evidence, Memory, Parameters
from reclick.models.luce.satisfaction import EXACT, centre_of
from reclick.models.luce.spots import NONE, Spots, keys


class Places:
    """Where the queries and pairs of some counts stand in the counts of more, and the spots of these pairs."""

    def __init__(self, part: Counts, whole: Counts, spots: Int64 = NONE) -> None:
        """`spots` are the keys of the part's spots."""
        self.query = _codes(whole.queries, part.queries)  # [query of the part]
        key = _keys(self.query[part.pair_query], _codes(whole.ads, part.ads)[part.pair_ad])
        self.pair: Int64 = np.searchsorted(
            _keys(whole.pair_query, whole.pair_ad), key
        )  # [pair of the part]
        self.pairs, self.queries = len(whole.impressions), len(whole.queries)
        self.spots = keys(
            self.pair[Spots(spots).pair], Spots(spots).position
        )  # [spot of the part] its key in the whole

    def of_pairs(self, values: Float64, fill: Float64 | float) -> Float64:
        """Values a pair of the part, as values a pair of the whole."""
        out = np.array(np.broadcast_to(fill, (self.pairs, *values.shape[1:])), np.float64)
        out[self.pair] = values
        return out

    def of_queries(self, values: Float64, fill: Float64 | float) -> Float64:
        """Values a query, likewise."""
        out = np.array(np.broadcast_to(fill, (self.queries, *values.shape[1:])), np.float64)
        out[self.query] = values
        return out

    def of_spots(self, values: Float64, whole: Spots, fill: float) -> Float64:
        """Values a spot of the part, as values a spot of the whole."""
        out = np.full(len(whole.key), fill)
        out[whole.find(self.spots)] = values
        return out


def _codes(strings: pa.Array, asked: pa.Array) -> Int32:
    index = Interner()
    index.codes(strings)
    return index.find(asked)


def _keys(query: Int32, ad: Int32) -> Int64:
    return (query.astype(np.int64) << 32) | ad


def moved(sessions: Sessions, whole: Counts) -> Sessions:
    """The same sessions, their pairs being rows of the counts of more."""
    return replace(
        sessions,
        counts=whole,
        pair=Places(sessions.counts, whole).pair[sessions.pair].astype(np.int32),
    )


def faded(memory: Memory, decay: float, at: Places, problem: Problem) -> Memory:
    """The memory times the decay, for more pairs and queries, and for longer pages."""
    tables = [
        _widened(table, shape)
        for table, shape in zip(
            memory[5:9], (problem.eye.shape,) * 2 + (problem.out.shape,) * 2, strict=True
        )
    ]
    pairs = [at.of_pairs(values, 0.0) for values in memory[:5]]
    own, mixed = (
        problem.passes.own,
        problem.passes.mixed,
    )  # else the values are common to all queries
    queries = [
        at.of_queries(values, 0.0) if each else values
        for values, each in zip(memory[9:12], (own, own, mixed), strict=True)
    ]
    tastes = [
        at.of_pairs(values, 0.0) if problem.passes.tasted else values
        for values in (memory.taste_chosen, memory.taste_exposure)
    ]
    spots = [
        at.of_spots(values, problem.passes.spots, 0.0)
        for values in (memory.spot_chosen, memory.spot_exposure)
    ]
    told = Evidence(*(decay * at.of_pairs(values, 0.0) for values in memory.told))
    eases = memory.ease_chosen, memory.ease_exposure, memory.asked
    return Memory._make(
        [*(decay * values for values in (*pairs, *tables, *queries, *tastes, *spots, *eases)), told]
    )


def _widened(table: Float64, shape: tuple[int, ...]) -> Float64:
    return np.pad(table, [(0, size - have) for size, have in zip(shape, table.shape, strict=True)])


def carried(last: Parameters, at: Places, problem: Problem) -> Parameters:
    """The parameters of the last fit as the start of the next: new pairs and queries at their prior means; habits anew where pages became longer.

    Of ρ the last fit gives the mean.
    """
    fresh = problem.fresh()
    loose = np.where(fresh.loose > EXACT, at.of_pairs(last.loose, fresh.loose), EXACT)
    return Parameters(
        theta=at.of_pairs(last.theta, problem.means * last.rare[problem.pair_class]),
        rho=centre_of(at.of_pairs(last.rho, problem.satisfied), loose),
        eye=last.eye if len(last.eye) == len(fresh.eye) else fresh.eye,
        out=last.out if len(last.out) == len(fresh.out) else fresh.out,
        spread=at.of_queries(last.spread, last.seldom[0]) if problem.passes.own else last.spread,
        share=at.of_queries(last.share, problem.shares) if problem.passes.mixed else last.share,
        rare=last.rare,
        seldom=last.seldom,
        taste=at.of_pairs(last.taste, 1.0) if problem.passes.tasted else last.taste,
        loose=loose,
        worth=_carried_worth(last.worth, at, problem),
        ease=last.ease,
    )


def _carried_worth(worth: Float64, at: Places, problem: Problem) -> Float64:
    """What positions are worth, for more queries, spots, and longer pages."""
    if not problem.passes.placed:
        return worth
    of_queries = at.of_queries(worth[: len(worth) - len(at.spots)].reshape(len(at.query), -1), 1.0)
    wide = np.pad(
        of_queries, ((0, 0), (0, problem.passes.longest - of_queries.shape[1])), constant_values=1.0
    )
    return np.append(
        wide, at.of_spots(worth[len(worth) - len(at.spots) :], problem.passes.spots, 1.0)
    )
