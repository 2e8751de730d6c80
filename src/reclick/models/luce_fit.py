"""Fitting LuceClick: passes over the sessions, steps in closed form, and leaps ahead that are taken back when the objective would fall."""

from __future__ import annotations

import logging
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reclick.batch import Float64, Int32, Int64
from reclick.compiled import compiled
from reclick.models.chain import EDGE
from reclick.models.luce_kernels import climb, follow, land, leap
from reclick.models.luce_levels import Levels, eye_levels, out_levels
from reclick.sessions import Sessions

logger = logging.getLogger("reclick")
POOLED = 1.0  # clicks that the prior of a satisfaction common to all is worth
FAR = 64.0  # the longest leap, in steps
OFTEN = (1.5, 4.5, 20.5, 100.5)  # impressions of a pair, or sessions of a query, that part the rare from the frequent


class Options(NamedTuple):
    """What is fitted, and how strongly each prior holds; None: common to all."""

    attractiveness: float = 2.0
    satisfaction: float | None = 5.0
    query: float | None = None  # the outside option of each query
    transition: float = 2.0
    kinds: int = 1
    kind: float = 4.0  # how each kind of user differs
    mix: float | None = None  # the kinds of each query's users


class Parameters(NamedTuple):
    """What is learnt. Factors are those of `Levels`."""

    theta: Float64  # [pair]
    rho: Float64  # [pair]
    eye: Float64  # [factor]
    out: Float64  # [factor]
    spread: Float64  # [query] or [1]
    share: Float64  # [query or 1, kind]
    rare: Float64  # [how often] prior mean of θ, as a multiple, of pairs shown so often
    seldom: Float64  # [how often] prior mean of f of queries asked so often


class Memory(NamedTuple):
    """What earlier sessions said, as it is kept: of each weight how often it was chosen, and its exposure (the pull of a unit of it)."""

    chosen: Float64  # [pair]
    exposure: Float64  # [pair]
    satisfied: Float64  # [pair]
    eye_chosen: Float64  # [kind, last, position]
    eye_exposure: Float64
    out_chosen: Float64  # [kind, clicks so far]
    out_exposure: Float64
    query_chosen: Float64  # [query] or [1]
    query_exposure: Float64
    kind_chosen: Float64  # [query or 1, kind]


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


class Found(NamedTuple):
    """What a pass adds up."""

    log_likelihood: float
    pulled: Float64  # [pair]
    satisfied: Float64  # [pair]
    eye_pulled: Float64  # [kind, last, position]
    eye_chosen: Float64
    out_pulled: Float64  # [kind, clicks so far]
    out_chosen: Float64
    query_pulled: Float64  # [query]
    query_chosen: Float64
    kind_chosen: Float64  # [query or 1, kind]
    known: Float64  # [pair, 2] information on log θ and the logit of ρ, where asked for


@dataclass(frozen=True, slots=True)
class Fit:
    """Where the climb stopped, and the truth about why."""

    parameters: Parameters
    found: Found  # under these parameters
    objective: tuple[float, ...]
    converged: bool
    message: str
    problem: Problem


def as_blocks(sessions: Sessions, many: int) -> list[Block]:
    """Sessions in about `many` runs; each has its own pairs and queries, as sessions and pairs are in the order of their queries."""
    return [_block(part) for part in sessions.blocks(many)]


def _block(part: Sessions) -> Block:
    query = part.counts.pair_query[part.pair[part.page[:-1]]]
    lowest, highest = int(part.pair.min()), int(part.pair.max()) + 1
    queries = slice(int(query[0]), int(query[-1]) + 1)
    return Block(
        part.pair - np.int32(lowest), part.page, part.click, part.clicks, part.weight, (query - query[0]).astype(np.int32),
        slice(lowest, highest), queries,
    )  # fmt: skip


class Problem:
    """Sessions to be explained, options, and prior means: the objective, and the step that climbs it."""

    def __init__(self, sessions: Sessions, options: Options, means: Float64, satisfied: float, shares: Float64, memory: Memory | None = None) -> None:
        """`means` [pair] are prior means of θ; `satisfied` is that of ρ; `shares` [kind] those of the kinds; `memory` is of earlier sessions."""
        self.options = options = options if options.kinds > 1 else options._replace(mix=None)
        self.means, self.satisfied, self.shares = means, satisfied, shares
        self.blocks = as_blocks(sessions, os.cpu_count() or 1)
        self.total = float(sessions.weight.sum())
        self.queries = len(sessions.counts.queries)
        longest = max(sessions.counts.max_ads, 1)
        self.eye: Levels = eye_levels(options.kinds, longest, options.transition, options.kind)
        self.out: Levels = out_levels(options.kinds, longest, options.kind)
        self.room = (options.kinds, longest + 1, longest + 1)
        self.clicks = _clicks(sessions, len(means))
        self.part(*_often(sessions, len(means)))
        self.remember(self.forgotten() if memory is None else memory)

    def part(self, impressions: Float64, volumes: Float64) -> None:
        """Part the pairs by how often they were shown, and the queries by how often they were asked; the largest class has prior mean 1."""
        self.pair_class, self.query_class = np.searchsorted(OFTEN, impressions), np.searchsorted(OFTEN, volumes)
        self.pair_sizes, self.query_sizes = (np.bincount(each, minlength=len(OFTEN) + 1) for each in (self.pair_class, self.query_class))
        weights = np.bincount(self.pair_class, self.clicks, len(OFTEN) + 1), np.bincount(self.query_class, volumes, len(OFTEN) + 1)
        self.pair_most, self.query_most = int(weights[0].argmax()), int(weights[1].argmax())

    def remember(self, memory: Memory) -> None:
        """Take what earlier sessions said into account."""
        self.old = memory
        self.strength = self.options.attractiveness + memory.chosen

    def rate(self, now: Parameters) -> Float64:
        """The rate of the Gamma prior of each θ [pair], the memory included."""
        return np.asarray(self.options.attractiveness / (self.means * now.rare[self.pair_class]) + self.old.exposure)

    def query_rate(self, now: Parameters) -> Float64:
        """The rate of the Gamma prior of each f [query], likewise."""
        return np.asarray((self.options.query or 0.0) / now.seldom[self.query_class] + self.old.query_exposure)

    def forgotten(self) -> Memory:
        """A memory of nothing."""
        none = self._nothing()
        pairs, queries = np.zeros((3, len(self.means))), np.zeros((2, len(none.query_chosen)))
        return Memory(pairs[0], pairs[1], pairs[2], *none[3:7], queries[0], queries[1], none.kind_chosen)

    def remembered(self, now: Parameters, found: Found) -> Memory:
        """What this fit leaves for the next, the memory that it began with included."""
        old, eye, out = self.old, self.eye.table(now.eye), self.out.table(now.out)
        return Memory(
            self.clicks + old.chosen, found.pulled / now.theta + old.exposure, found.satisfied + old.satisfied,
            found.eye_chosen + old.eye_chosen, found.eye_pulled / eye + old.eye_exposure,
            found.out_chosen + old.out_chosen, found.out_pulled / out + old.out_exposure,
            found.query_chosen + old.query_chosen, found.query_pulled / now.spread + old.query_exposure, found.kind_chosen + old.kind_chosen,
        )  # fmt: skip

    # a pass

    def expect(self, now: Parameters, pool: ThreadPoolExecutor) -> Found:
        """What all sessions add up to under the parameters."""
        eye, out = self.eye.table(now.eye), self.out.table(now.out)
        found = self._nothing()
        for block, part in zip(self.blocks, pool.map(lambda block: self._pass(now, eye, out, block), self.blocks), strict=True):
            found.pulled[block.pairs] += part.pulled
            found.satisfied[block.pairs] += part.satisfied
            for name in ("eye_pulled", "eye_chosen", "out_pulled", "out_chosen"):
                total: Float64 = getattr(found, name)
                total += getattr(part, name)
            if self.options.query is not None:
                found.query_pulled[block.queries] += part.query_pulled
                found.query_chosen[block.queries] += part.query_chosen
            mixed = block.queries if self.options.mix is not None else slice(0, 1)
            found.kind_chosen[mixed] += part.kind_chosen
            found = found._replace(log_likelihood=found.log_likelihood + part.log_likelihood)
        return found

    def _nothing(self, pairs: int | None = None, queries: int | None = None) -> Found:
        """Room for what is added up, over so many pairs and queries; by default all."""
        pairs, queries = len(self.means) if pairs is None else pairs, self.queries if queries is None else queries
        own, mixed = queries if self.options.query is not None else 1, queries if self.options.mix is not None else 1
        eye, out, kinds = self.eye.shape, self.out.shape, np.zeros((mixed, self.options.kinds))
        tables = np.zeros(eye), np.zeros(eye), np.zeros(out), np.zeros(out)
        return Found(0.0, np.zeros(pairs), np.zeros(pairs), *tables, np.zeros(own), np.zeros(own), kinds, np.zeros((0, 2)))

    def information(self, now: Parameters) -> Float64:
        """What the sessions tell of each pair's log θ and logit of ρ [pair, 2], all else being known."""
        eye, out = self.eye.table(now.eye), self.out.table(now.out)
        known = np.zeros((len(self.means), 2))
        for block in self.blocks:
            known[block.pairs] += self._pass(now, eye, out, block, informed=True).known
        return known

    def _pass(self, now: Parameters, eye: Float64, out: Float64, block: Block, likely: Float64 | None = None, informed: bool = False) -> Found:
        own, mixed = self.options.query is not None, self.options.mix is not None
        pairs = block.pairs.stop - block.pairs.start
        part = self._nothing(pairs, block.queries.stop - block.queries.start)
        if informed:
            part = part._replace(known=np.zeros((pairs, 2)))
        total = follow(
            *block[:6], now.theta[block.pairs], now.rho[block.pairs], eye, out,
            now.spread[block.queries] if own else now.spread, now.share[block.queries] if mixed else now.share,
            *part[1:], np.empty(self.room), np.zeros(0) if likely is None else likely, own, mixed,
        )  # fmt: skip
        return part._replace(log_likelihood=total)

    def score(self, now: Parameters, sessions: Sessions) -> Float64:
        """The log-likelihood of each of other sessions of the same pairs [session]."""
        block, likely = _block(sessions), np.empty(len(sessions))
        self._pass(now, self.eye.table(now.eye), self.out.table(now.out), block, likely)
        return likely

    # a step

    def log_prior(self, now: Parameters) -> float:
        """Log-density of the parameters under their priors, but for a constant."""
        options = self.options
        old, eye, out = self.old, self.eye.table(now.eye), self.out.table(now.out)
        value = _log_gamma(now.theta, self.strength, self.rate(now)) - options.attractiveness * float(self.pair_sizes @ np.log(now.rare))
        value += self.eye.log_prior(now.eye) + self.out.log_prior(now.out)
        value += float(np.sum(old.eye_chosen * np.log(eye) - old.eye_exposure * eye) + np.sum(old.out_chosen * np.log(out) - old.out_exposure * out))
        value += _log_beta(now.rho, *self.satisfied_before())
        if options.query is not None:
            value += _log_gamma(now.spread, options.query + old.query_chosen, self.query_rate(now))
            value -= options.query * float(self.query_sizes @ np.log(now.seldom))
        if options.kinds > 1:
            value += float(np.sum(self._mixed() * np.log(now.share)))
        return value

    def maximise(self, now: Parameters, found: Found) -> Parameters:
        """The step up from the parameters that the statistics were found under."""
        options, old = self.options, self.old
        theta = climb(now.theta, self.clicks, found.pulled, self.strength, self.rate(now))
        spread = now.spread
        if options.query is not None:
            spread = climb(spread, found.query_chosen, found.query_pulled, options.query + old.query_chosen, self.query_rate(now))
        eye, out = self.eye.table(now.eye), self.out.table(now.out)
        return Parameters(
            theta=theta,
            rho=self._satisfaction(found.satisfied),
            eye=self.eye.climbed(now.eye, found.eye_chosen + old.eye_chosen, found.eye_pulled + old.eye_exposure * eye),
            out=self.out.climbed(now.out, found.out_chosen + old.out_chosen, found.out_pulled + old.out_exposure * out),
            spread=spread,
            share=self._shares(found.kind_chosen),
            rare=_class_means(theta / self.means, self.pair_class, self.pair_most) if options.attractiveness else now.rare,
            seldom=_class_means(spread, self.query_class, self.query_most) if options.query else now.seldom,
        )

    def _satisfaction(self, satisfied: Float64) -> Float64:
        """ρ = (expected satisfied + prior) / (clicks + prior), of each pair or of all."""
        yes, no = self.satisfied_before()
        if self.options.satisfaction is None:
            common = (satisfied.sum() + yes.sum()) / (self.clicks.sum() + yes.sum() + no.sum())
            return np.full(len(self.clicks), np.clip(common, EDGE, 1 - EDGE))
        return _posterior(satisfied + yes, self.clicks - satisfied + no, self.satisfied)

    def satisfied_before(self) -> tuple[Float64, Float64]:
        """What the prior and the memory say of ρ: pseudo-clicks that satisfied, and that did not [pair]; if it is common, the first has them."""
        old, strength = self.old, self.options.satisfaction
        if strength is None:
            yes, no = np.zeros(len(self.clicks)), np.zeros(len(self.clicks))
            yes[0] = POOLED * self.satisfied + old.satisfied.sum()
            no[0] = POOLED * (1 - self.satisfied) + (old.chosen - old.satisfied).sum()
            return yes, no
        clicked = strength * ((self.clicks > 0) | (old.chosen > 0))  # elsewhere ρ stays at its prior mean
        return clicked * self.satisfied + old.satisfied, clicked * (1 - self.satisfied) + old.chosen - old.satisfied

    def _shares(self, chosen: Float64) -> Float64:
        """The kinds' shares, of each query's users or of all."""
        if self.options.kinds == 1:
            return np.ones((1, 1))
        counts = np.maximum(chosen + self._mixed(), EDGE)
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def _mixed(self) -> Float64:
        """What the prior and the memory say of the shares, in pseudo-sessions [query or 1, kind]."""
        return self.old.kind_chosen + (1.0 if self.options.mix is None else self.options.mix) * self.shares

    def start(self) -> Parameters:
        """Where nothing is known; kinds of users start apart: the first leave soon, and the third, fifth … go up rather than down."""
        options = self.options
        eye, out = np.ones(self.eye.starts[-1]), np.ones(self.out.starts[-1])
        if options.kinds > 1:
            longest = self.eye.shape[2]
            patience = np.geomspace(2.0, 0.5, options.kinds)
            out[self.out.starts[2] : self.out.starts[3]] = np.repeat(patience, 2)
            jumps = eye[self.eye.starts[3] : self.eye.starts[4]].reshape(options.kinds, -1)
            jumps[2::2, longest : 2 * longest] *= 2.0
        spread = np.ones(self.queries if options.query is not None else 1)
        share = np.tile(self.shares, (self.queries if options.mix is not None else 1, 1))
        alike = np.ones(len(OFTEN) + 1)
        return Parameters(self.means.copy(), np.full(len(self.means), self.satisfied), eye, out, spread, share, alike, alike)

    # the climb

    def climb(self, start: Parameters, *, max_iterations: int, tolerance: float, quiet: bool = False) -> Fit:
        """Step until a step gains less than `tolerance` a session, or the iterations run out, which it then says.

        After every second step a leap to where the two seem to lead (SQUAREM); where the objective would be lower there, the leap is not taken.
        """
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return _Climb(self, pool, max_iterations, tolerance, quiet).run(start)

    def leapt(self, first: Parameters, second: Parameters, third: Parameters, longest: float) -> tuple[Parameters, float]:
        """Where the two steps lead, and how many steps long the leap is."""
        weights = [self.clicks + 1.0, self.clicks + 1.0, self.eye.strengths() + 1.0, self.out.strengths() + 1.0]
        lengths = np.zeros(2)
        for a, b, c, w in zip(first[:4], second[:4], third[:4], weights, strict=True):
            lengths += leap(a, b, c, w)
        far = float(np.clip(math.sqrt(lengths[0] / lengths[1]) if lengths[1] > 0 else 1.0, 1.0, longest))
        if far == 1.0:
            return third, far
        theta, rho, eye, out, spread, share, rare, seldom = (
            land(a.ravel(), b.ravel(), c.ravel(), far, top).reshape(a.shape)
            for a, b, c, top in zip(first, second, third, (1e12, 1 - EDGE, 1e12, 1e12, 1e12, 1.0, 1e12, 1e12), strict=True)
        )
        return Parameters(theta, rho, eye, out, spread, share / share.sum(axis=1, keepdims=True), rare, seldom), far


class _Climb:
    """The loop and what it remembers."""

    def __init__(self, problem: Problem, pool: ThreadPoolExecutor, max_iterations: int, tolerance: float, quiet: bool) -> None:
        self.problem, self.pool, self.max_iterations, self.tolerance = problem, pool, max_iterations, tolerance
        self.quiet = quiet
        self.objective: list[float] = []
        self.passes = 0

    def look(self, now: Parameters) -> tuple[Found, float]:
        self.passes += 1
        found = self.problem.expect(now, self.pool)
        value = found.log_likelihood + self.problem.log_prior(now)
        if not math.isfinite(value):
            raise ArithmeticError(f"the objective is {value} at iteration {len(self.objective)}: weights too large to add, or a bug in the model")
        return found, value

    def run(self, start: Parameters) -> Fit:
        trail: list[Parameters] = [start]  # the last points that plain steps have led through
        found, value = self.look(start)
        self.objective.append(value)
        longest, gain = 4.0, math.inf
        while len(self.objective) < self.max_iterations:
            now = trail[-1]
            then = self.problem.maximise(now, found)
            if len(trail) == 2:
                ahead, far = self.problem.leapt(trail[0], trail[1], then, longest)
                at, up = self.look(ahead)
                if far > 1.0 and up < value:  # too far: the plain step it is, and shorter leaps for now
                    longest = max(2.0, longest / 2)
                else:
                    longest = min(FAR, longest * 2) if far == longest else longest
                    gain, trail = (up - value) / self.problem.total, [ahead]
                    found, value = at, up
                    self.objective.append(value)
                    continue
                trail = []
            at, up = self.look(then)
            gain = (up - value) / max(self.problem.total, 1.0)
            if gain < -1e-9 * (1 + abs(up)) / max(self.problem.total, 1.0):
                raise ArithmeticError(f"the objective fell by {-gain:.3g} a session at iteration {len(self.objective)}: this is a bug in the model")
            trail, found, value = [*trail, then], at, up
            self.objective.append(value)
            if self.tolerance > 0 and gain < self.tolerance:
                return self._end(trail[-1], found, True, f"converged after {len(self.objective)} iterations, gain {gain:.1e} < {self.tolerance:g}")
        compared = f"> {self.tolerance:g}" if self.tolerance > 0 else f"with tolerance {self.tolerance:g}, which asks for all of them"
        message = f"stopped after {len(self.objective)} iterations, gain {gain:.1e} {compared}: not converged"
        if not self.quiet:
            logger.warning("%s", message)
        return self._end(trail[-1], found, False, message)

    def _end(self, now: Parameters, found: Found, converged: bool, message: str) -> Fit:
        return Fit(now, found, tuple(self.objective), converged, message, self.problem)


def _clicks(sessions: Sessions, pairs: int) -> Float64:
    """Clicks of each pair [pair]."""
    impression = np.repeat(sessions.page[:-1], np.diff(sessions.clicks)) + sessions.click - 1
    weight = np.repeat(sessions.weight, np.diff(sessions.clicks))
    return np.bincount(sessions.pair[impression], weight, pairs).astype(np.float64)


def _often(sessions: Sessions, pairs: int) -> tuple[Float64, Float64]:
    """Impressions of each pair, and sessions of each query."""
    weight = np.repeat(sessions.weight, np.diff(sessions.page))
    query = sessions.counts.pair_query[sessions.pair[sessions.page[:-1]]]
    volumes = np.bincount(query, sessions.weight, len(sessions.counts.queries))
    return np.bincount(sessions.pair, weight, pairs).astype(np.float64), volumes.astype(np.float64)


def _class_means(values: Float64, of: Int64, most: int) -> Float64:
    """The mean of each class, the best mean of a Gamma prior of its values; 1 where there are none, and in the largest, for the scale is free."""
    sizes, sums = np.bincount(of, minlength=len(OFTEN) + 1), np.bincount(of, values, len(OFTEN) + 1)
    means = np.where(sizes > 0, sums / np.maximum(sizes, 1), 1.0)
    means[most] = 1.0
    return np.asarray(means)


@compiled
def _log_gamma(value: Float64, strength: Float64, rate: Float64) -> float:
    """Σ s log x − rate x: the Gamma prior of x, on the scale of its logarithm."""
    total = 0.0
    for i in range(len(value)):
        total += strength[i] * np.log(value[i]) - rate[i] * value[i]
    return total


@compiled
def _log_beta(value: Float64, yes: Float64, no: Float64) -> float:
    """Σ yes log x + no log (1 − x)."""
    total = 0.0
    for i in range(len(value)):
        if yes[i] + no[i] > 0.0:
            total += yes[i] * np.log(value[i]) + no[i] * np.log(1.0 - value[i])
    return total


@compiled
def _posterior(yes: Float64, no: Float64, mean: float) -> Float64:
    """The share of yes, kept off 0 and 1; the mean where there is neither."""
    out = np.empty(len(yes))
    for i in range(len(yes)):
        value = yes[i] / (yes[i] + no[i]) if yes[i] + no[i] > 0.0 else mean
        out[i] = min(max(value, 1e-9), 1.0 - 1e-9)
    return out
