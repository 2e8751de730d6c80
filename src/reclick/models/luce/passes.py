"""Passes over the sessions, in blocks side by side: what they add up to under given parameters of LuceClick."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from reclick.batch import Float64, Int32, Int64
from reclick.models.luce.kernels import follow
from reclick.models.luce.levels import Levels, eye_levels, out_levels
from reclick.models.luce.parameters import Evidence, Found, Options, Parameters
from reclick.models.luce.satisfaction import mean_of
from reclick.sessions import Sessions

TABLES = ("eye_pulled", "eye_chosen", "out_pulled", "out_chosen")  # what is not of pairs or queries


class Block(NamedTuple):
    """A run of sessions whose pairs and queries are numbered from its first."""

    pair: Int32
    page: Int64
    click: Int32
    clicks: Int64
    weight: Float64
    query: Int32
    pairs: slice
    queries: slice


def as_block(part: Sessions) -> Block:
    """A block of sessions; it has its own pairs and queries, as sessions and pairs are in the order of their queries."""
    query = part.counts.pair_query[part.pair[part.page[:-1]]]
    lowest, highest = int(part.pair.min()), int(part.pair.max()) + 1
    queries = slice(int(query[0]), int(query[-1]) + 1)
    return Block(
        part.pair - np.int32(lowest), part.page, part.click, part.clicks, part.weight, (query - query[0]).astype(np.int32),
        slice(lowest, highest), queries,
    )  # fmt: skip


class Passes:
    """Sessions that are passed over, and the tables of where the eye goes and when users stop."""

    def __init__(self, sessions: Sessions, options: Options) -> None:
        self.own, self.mixed, self.tasted, self.kinds = options.query is not None, options.mix is not None, options.taste is not None, options.kinds
        self.blocks = [as_block(part) for part in sessions.blocks(os.cpu_count() or 1)]
        self.pairs, self.queries = len(sessions.counts.impressions), len(sessions.counts.queries)
        longest = max(sessions.counts.max_ads, 1)
        self.eye: Levels = eye_levels(options.kinds, longest, options.transition, options.kind)
        self.out: Levels = out_levels(options.kinds, longest, options.kind)
        self.tastes = options.kinds if self.tasted else 1
        self.room = (options.kinds, longest + 1, longest + 1)  # of one session, in a pass

    def expect(self, now: Parameters, pool: ThreadPoolExecutor) -> Found:
        """What all sessions add up to under the parameters."""
        tables = self.eye.table(now.eye), self.out.table(now.out)
        found = self.nothing(self.pairs, self.queries)
        for block, part in zip(self.blocks, pool.map(lambda block: self._pass(now, *tables, block), self.blocks), strict=True):
            found = self._added(found, part, block)
        return found

    def _added(self, found: Found, part: Found, block: Block) -> Found:
        """With the sums of a block."""
        found.pulled[block.pairs] += part.pulled
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
        return found._replace(log_likelihood=found.log_likelihood + part.log_likelihood)

    def nothing(self, pairs: int, queries: int) -> Found:
        """Room for what is added up, over so many pairs and queries."""
        own, mixed = queries if self.own else 1, queries if self.mixed else 1
        eye, out, kinds = self.eye.shape, self.out.shape, np.zeros((mixed, self.kinds))
        tables = np.zeros(eye), np.zeros(eye), np.zeros(out), np.zeros(out)
        pulled, tastes = np.zeros((pairs, self.tastes)), np.zeros((pairs if self.tasted else 1, self.tastes))
        return Found(0.0, pulled, np.zeros(pairs), np.zeros(pairs), *tables, np.zeros(own), np.zeros(own), kinds, tastes, np.zeros((0, 2)))

    def information(self, now: Parameters) -> Evidence:
        """What the sessions tell of each pair."""
        tables = self.eye.table(now.eye), self.out.table(now.out)
        known = np.zeros((self.pairs, 2 * self.tastes))
        for block in self.blocks:
            known[block.pairs] += self._pass(now, *tables, block, informed=True).known
        return Evidence(known[:, : self.tastes], known[:, self.tastes :])

    def score(self, now: Parameters, sessions: Sessions) -> Float64:
        """The log-likelihood of each of other sessions of the same pairs [session]."""
        likely = np.empty(len(sessions))
        now = now._replace(rho=mean_of(now.rho, now.loose), loose=np.zeros(len(now.loose)))  # not one session tells of ρ
        self._pass(now, self.eye.table(now.eye), self.out.table(now.out), as_block(sessions), likely)
        return likely

    def _pass(self, now: Parameters, eye: Float64, out: Float64, block: Block, likely: Float64 | None = None, informed: bool = False) -> Found:
        pairs = block.pairs.stop - block.pairs.start
        part = self.nothing(pairs, block.queries.stop - block.queries.start)
        if informed:
            part = part._replace(known=np.zeros((pairs, 2 * self.tastes)))
        total = follow(
            *block[:6], now.theta[block.pairs], now.taste[block.pairs] if self.tasted else now.taste, now.rho[block.pairs], now.loose[block.pairs],
            eye, out, now.spread[block.queries] if self.own else now.spread, now.share[block.queries] if self.mixed else now.share,
            *part[1:], np.empty(self.room), np.zeros(0) if likely is None else likely, self.own, self.mixed, self.tasted,
        )  # fmt: skip
        return part._replace(log_likelihood=total)


def clicks_of_pairs(sessions: Sessions) -> tuple[Float64, Float64]:
    """Clicks of each pair, and those of them that left another ad to click [pair]."""
    many = np.diff(sessions.clicks)
    impression = np.repeat(sessions.page[:-1], many) + sessions.click - 1
    weight = np.repeat(sessions.weight, many)
    clicks = np.bincount(sessions.pair[impression], weight, len(sessions.counts.impressions)).astype(np.float64)
    full = (many > 0) & (many == np.diff(sessions.page))
    last = sessions.pair[impression[sessions.clicks[1:][full] - 1]]
    return clicks, np.asarray(clicks - np.bincount(last, sessions.weight[full], len(clicks)))


def how_often(sessions: Sessions) -> tuple[Float64, Float64]:
    """Impressions of each pair, and sessions of each query."""
    weight = np.repeat(sessions.weight, np.diff(sessions.page))
    query = sessions.counts.pair_query[sessions.pair[sessions.page[:-1]]]
    volumes = np.bincount(query, sessions.weight, len(sessions.counts.queries))
    return np.bincount(sessions.pair, weight, len(sessions.counts.impressions)).astype(np.float64), volumes.astype(np.float64)
