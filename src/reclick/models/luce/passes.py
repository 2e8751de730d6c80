"""Passes over the sessions, in blocks side by side: what they add up to under given parameters of LuceClick."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.data.grouped_sessions import Sessions
from reclick.fitting.factors import Levels, eye_levels, out_levels
from reclick.models.luce.e_step import follow
from reclick.models.luce.parameters import Evidence, Found, Options, Parameters
from reclick.models.luce.spots import (
    NONE,
    Spots,
    keys,
    positions_of,
    spots_of,
    worth_elsewhere,
    worth_levels,
)

TABLES = (
    "eye_pulled",
    "eye_chosen",
    "out_pulled",
    "out_chosen",
    "ease_chosen",
    "ease_pulled",
)  # what is not of pairs or queries


class Block(NamedTuple):
    """A run of sessions whose pairs, queries and spots are numbered from its first."""

    pair: Int32
    page: Int64
    click: Int32
    clicks: Int64
    weight: Float64
    query: Int32
    spot: Int32
    pairs: slice
    queries: slice
    spots: slice


def as_block(part: Sessions, spots: Spots | None) -> Block:
    """A block of sessions, and the runs of pairs, queries and spots that it has, as all are in the order of the queries. Without spots, pairs."""
    query = part.counts.pair_query[part.pair[part.page[:-1]]]
    lowest, highest = int(part.pair.min()), int(part.pair.max()) + 1
    pair, pairs, queries = (
        part.pair - np.int32(lowest),
        slice(lowest, highest),
        slice(int(query[0]), int(query[-1]) + 1),
    )
    spot, places = pair, pairs
    if spots is not None:
        at = spots.find(keys(part.pair, positions_of(part.page)))
        places = slice(int(at.min()), int(at.max()) + 1)
        spot = (at - places.start).astype(np.int32)
    number = (query - query[0]).astype(np.int32)
    return Block(
        pair, part.page, part.click, part.clicks, part.weight, number, spot, pairs, queries, places
    )


class Passes:
    """Sessions that are passed over, and the tables of where the eye goes, when users stop, and what positions are worth."""

    def __init__(self, sessions: Sessions, options: Options, earlier: Int64 = NONE) -> None:
        """`earlier` are keys of spots that need not be among the sessions'."""
        self.own, self.mixed, self.tasted, self.components = (
            options.query_strength is not None,
            options.mixing_strength is not None,
            options.component_appeal_strength is not None,
            options.components,
        )
        self.pairs, self.queries, self.pair_query = (
            len(sessions.counts.impressions),
            len(sessions.counts.queries),
            sessions.counts.pair_query,
        )
        self.longest = longest = max(sessions.counts.max_ads, 1)
        self.placed = options.position_effect_strength is not None
        self.eased = options.components > 1 and options.satisfaction_strength is not None
        self.spots = spots_of(sessions, earlier) if self.placed else Spots(NONE)
        self.spot_pair = self.spots.pair
        self.worth: Levels = worth_levels(
            self.spots,
            self.pair_query,
            self.queries if self.placed else 0,
            longest,
            options.position_effect_strength or 0.0,
        )
        self.blocks = [
            as_block(part, self.spots if self.placed else None)
            for part in sessions.blocks(os.cpu_count() or 1)
        ]
        self.eye: Levels = eye_levels(options.components, longest, options.transition_strength, options.component_strength)
        self.out: Levels = out_levels(options.components, longest, options.component_strength)
        self.tastes = options.components if self.tasted else 1
        self.room = (options.components, longest + 1, longest + 1)  # of one session, in a pass

    def expect(self, now: Parameters, pool: ThreadPoolExecutor) -> Found:
        """What all sessions add up to under the parameters."""
        tables = self._weights(now)
        found = self.nothing(
            self.pairs, self.queries, len(self.spots.key) if self.placed else self.pairs
        )
        for block, part in zip(
            self.blocks,
            pool.map(lambda block: self._pass(now, *tables, block), self.blocks),
            strict=True,
        ):
            found = self._added(found, part, block)
        return found

    def _added(self, found: Found, part: Found, block: Block) -> Found:
        """With the sums of a block."""
        found.pulled[block.spots] += part.pulled
        found.satisfied[block.pairs] += part.satisfied
        found.doubt[block.pairs] += part.doubt
        for name in TABLES:
            total: Float64 = getattr(found, name)
            total += getattr(part, name)
        if self.own:
            found.query_pulled[block.queries] += part.query_pulled
            found.query_chosen[block.queries] += part.query_chosen
        found.kind_chosen[block.queries if self.mixed else slice(0, 1)] += part.kind_chosen
        if self.tasted:
            found.taste_chosen[block.pairs] += part.taste_chosen
        if self.eased:
            found.asked[block.pairs] += part.asked
        return found._replace(log_likelihood=found.log_likelihood + part.log_likelihood)

    def _weights(self, now: Parameters) -> tuple[Float64, Float64, Float64]:
        """θ [spot], γ and ω."""
        theta = (
            now.theta[self.spot_pair] * self.worth.table(now.worth) if self.placed else now.theta
        )
        return theta, self.eye.table(now.eye), self.out.table(now.out)

    def of_pairs(self, values: Float64) -> Float64:
        """Sums of [spot, kind] by pair."""
        if not self.placed:
            return values
        return np.stack(
            [np.bincount(self.spot_pair, column, self.pairs) for column in values.T], axis=1
        ).astype(np.float64)

    def clicks_of_spots(self, sessions: Sessions) -> Float64:
        """Clicks of each spot; none if spots are pairs."""
        if not self.placed:
            return np.zeros(0)
        many = np.diff(sessions.clicks)
        pair = sessions.pair[np.repeat(sessions.page[:-1], many) + sessions.click - 1]
        at = self.spots.find(keys(pair, sessions.click.astype(np.int64) - 1))
        return np.bincount(at, np.repeat(sessions.weight, many), len(self.spots.key)).astype(
            np.float64
        )

    def nothing(self, pairs: int, queries: int, spots: int) -> Found:
        """Room for what is added up, over so many pairs, queries and spots."""
        own, mixed = queries if self.own else 1, queries if self.mixed else 1
        eye, out, ease = (
            np.zeros((2, *self.eye.shape)),
            np.zeros((2, *self.out.shape)),
            np.zeros((2, self.components)),
        )
        satisfied, spread = np.zeros((2, pairs)), np.zeros((2, own))
        tastes, asked = (
            np.zeros((pairs if self.tasted else 1, self.tastes)),
            np.zeros((pairs, self.components) if self.eased else (1, 1)),
        )
        shares, known = np.zeros((mixed, self.components)), np.zeros((0, 2))
        return Found._make(
            [
                0.0,
                np.zeros((spots, self.tastes)),
                *satisfied,
                *eye,
                *out,
                *spread,
                shares,
                tastes,
                asked,
                *ease,
                known,
            ]
        )

    def information(self, now: Parameters) -> Evidence:
        """What the sessions tell of each pair."""
        tables = self._weights(now)
        known = np.zeros((self.pairs, 2 * self.tastes))
        for block in self.blocks:
            known[block.pairs] += self._pass(now, *tables, block, informed=True).known
        return Evidence(known[:, : self.tastes], known[:, self.tastes :])

    def score(self, now: Parameters, sessions: Sessions) -> Float64:
        """The log-likelihood of each of other sessions of the same pairs [session]."""
        likely = np.empty(len(sessions))
        theta, spots = now.theta, None
        if self.placed:
            spots = spots_of(sessions)
            query = self.pair_query[spots.pair].astype(np.int64)
            theta = now.theta[spots.pair] * worth_elsewhere(
                now.worth, self.spots, self.longest, query, spots.pair, spots.position
            )
        self._pass(
            now,
            theta,
            self.eye.table(now.eye),
            self.out.table(now.out),
            as_block(sessions, spots),
            likely,
        )
        return likely

    def _pass(
        self,
        now: Parameters,
        theta: Float64,
        eye: Float64,
        out: Float64,
        block: Block,
        likely: Float64 | None = None,
        informed: bool = False,
    ) -> Found:
        pairs = block.pairs.stop - block.pairs.start
        part = self.nothing(
            pairs, block.queries.stop - block.queries.start, block.spots.stop - block.spots.start
        )
        if informed:
            part = part._replace(known=np.zeros((pairs, 2 * self.tastes)))
        total = follow(
            *block[:7], theta[block.spots], now.taste[block.pairs] if self.tasted else now.taste, now.rho[block.pairs], now.loose[block.pairs],
            now.ease, eye, out, now.spread[block.queries] if self.own else now.spread, now.share[block.queries] if self.mixed else now.share,
            *part[1:], np.empty(self.room), np.zeros(0) if likely is None else likely, self.own, self.mixed, self.tasted, self.eased,
        )  # fmt: skip
        return part._replace(log_likelihood=total)


def clicks_of_pairs(sessions: Sessions) -> tuple[Float64, Float64]:
    """Clicks of each pair, and those of them that left another ad to click [pair]."""
    many = np.diff(sessions.clicks)
    impression = np.repeat(sessions.page[:-1], many) + sessions.click - 1
    weight = np.repeat(sessions.weight, many)
    clicks = np.bincount(
        sessions.pair[impression], weight, len(sessions.counts.impressions)
    ).astype(np.float64)
    full = (many > 0) & (many == np.diff(sessions.page))
    last = sessions.pair[impression[sessions.clicks[1:][full] - 1]]
    return clicks, np.asarray(clicks - np.bincount(last, sessions.weight[full], len(clicks)))


def how_often(sessions: Sessions) -> tuple[Float64, Float64]:
    """Impressions of each pair, and sessions of each query."""
    weight = np.repeat(sessions.weight, np.diff(sessions.page))
    query = sessions.counts.pair_query[sessions.pair[sessions.page[:-1]]]
    volumes = np.bincount(query, sessions.weight, len(sessions.counts.queries))
    return np.bincount(sessions.pair, weight, len(sessions.counts.impressions)).astype(
        np.float64
    ), volumes.astype(np.float64)
