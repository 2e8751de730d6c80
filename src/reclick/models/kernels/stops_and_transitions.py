"""Fatigue and transitions: when users stop and what they click next, pooled and per query.

η_k = (β'_k + α_k) / (β'_k + α_k + β_k + b_k) and γ_lj = (δ_lj + α_lj) / Σ_j (δ_lj + α_lj). The
pseudo-counts α and b are a prior mean times a strength, which is above 0: no possible event has
probability 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from reclick.data.counts import Counts
from reclick.data.ragged import Float64, Int32, Int64, take_runs
from reclick.runtime.arguments import check_arguments
from reclick.runtime.jit import kernel
from reclick.runtime.plots import plot_transitions

MIN_STRENGTH = 1e-6  # of a prior, in sessions: events that a query lacks stay possible
FATIGUE_MARGIN = 1e-12  # how near to 0 and 1 the fatigue of a query may come
DEFAULT_STRENGTH = 10.0  # where there is no evidence
STRENGTH_RANGE = (1e-2, 1e6)  # that evidence chooses from
SEARCH_STEPS = 40  # of the golden section, each a factor of 0.62
DISTANCE_STEPS = 100  # of the weights of distances
LEAST_MEAN = 1e-12  # in the computation of evidence


@dataclass(frozen=True, slots=True)
class StopsAndTransitions:
    """Fatigue η and transitions γ; row 0 of γ is the start of the session."""

    eta: Float64  # [clicks so far]
    gamma: Float64  # [last, position]

    @check_arguments
    def extend(self, length: int) -> StopsAndTransitions:
        """The same for pages of up to `length` ads.

        An unknown position is as rare as the rarest; the transitions from it are those from the
        start; fatigue is that of the last known step. The new values do not depend on `length`, as
        pages of different lengths are computed together.
        """
        n_known = self.gamma.shape[1]
        if length <= n_known:
            return self
        eta = np.concatenate([self.eta, np.full(length - n_known, self.eta[-1])])
        gamma = np.full(
            (length + 1, length), max(float(self.gamma[self.gamma > 0].min(initial=1.0)), 0.0)
        )
        gamma[: n_known + 1, :n_known] = self.gamma
        gamma[n_known + 1 :, :] = gamma[0]
        gamma[np.arange(1, length + 1), np.arange(length)] = 0.0
        return StopsAndTransitions(eta, gamma)

    def plot(self) -> Any:
        """A matplotlib figure of γ: a row per last click, a column per next one."""
        return plot_transitions(self.gamma)


def pooled_events(
    counts: Counts, satisfied: Float64 | None = None
) -> tuple[Float64, Float64, Float64]:
    """Over all queries: sessions with exactly k clicks, with more [k], and δ [last, position].

    Sessions that ended because the user was satisfied [visit] do not count as ended.
    """
    n, sizes = max(1, counts.max_ads), np.diff(counts.sequence_starts)
    sessions = counts.per_sequence()
    exactly = np.bincount(sizes, sessions, n + 1).astype(np.float64)
    move = _encode_moves(counts.sequence_starts, counts.sequence_clicks, n)
    delta = np.bincount(move, np.repeat(sessions, sizes), (n + 1) * n).astype(np.float64)
    more = exactly.sum() - np.cumsum(exactly)
    if satisfied is not None:
        exactly -= np.bincount(sizes[counts.visit_sequence], satisfied, n + 1)
        exactly = np.maximum(exactly, 0.0)
    return exactly, more, delta.reshape(n + 1, n)


def _encode_moves(starts: Int64, clicks: Int32, n: int) -> Int64:
    """Each click of sequences as last · n + position − 1, where last is 0 for the first click."""
    last = np.zeros(len(clicks), np.int64)
    last[1:] = clicks[:-1]
    last[starts[:-1][np.diff(starts) > 0]] = 0
    return np.asarray(last * n + clicks - 1)


def estimate(
    counts: Counts,
    *,
    prior: StopsAndTransitions | None,
    strength: float,
    floor: float,
    satisfied: Float64 | None = None,
) -> StopsAndTransitions:
    """One η and one γ for all queries, shrunk to the prior if there is one.

    An event that never happened stays possible: probabilities are at least `floor` away from 0
    and 1.
    """
    exactly, more, delta = pooled_events(counts, satisfied)
    if prior is not None:
        length = max(delta.shape[1], prior.gamma.shape[1])
        beyond = length - delta.shape[1]  # the prior may know longer pages than the counts
        prior, strength = prior.extend(length), max(strength, MIN_STRENGTH)
        exactly = np.pad(exactly, (0, beyond)) + strength * prior.eta
        more = np.pad(more, (0, beyond)) + strength * (1 - prior.eta)
        delta = np.pad(delta, (0, beyond)) + strength * prior.gamma
    return StopsAndTransitions(_fatigue(exactly, more, floor), _transitions(delta, floor))


class PriorStrengths(NamedTuple):
    """Of the priors of a query's fatigue and transitions, in sessions."""

    fatigue: float
    transitions: float


def smooth_transitions(counts: Counts, base: StopsAndTransitions) -> StopsAndTransitions:
    """Shrink the rows of γ after a click towards weights by distance and direction.

    Row l has the prior mean w(j − l) / Σ_i w(i − l), one weight w per distance up and down, of all
    rows after a click together; its strength is that of highest evidence. So moves that are rare
    from one position, such as those far back up, get the share that they have from other positions.
    """
    _, _, delta = pooled_events(counts)
    n = min(delta.shape[1], base.gamma.shape[1])
    delta = delta[1 : n + 1, :n]
    rows = delta.sum(axis=1)
    distance = np.arange(n) - np.arange(n)[:, None] + n - 1  # [last, position]
    moves, weight = np.bincount(distance.ravel(), delta.ravel(), 2 * n - 1), np.ones(2 * n - 1)
    other = ~np.eye(n, dtype=bool)
    for _ in range(DISTANCE_STEPS):  # as in Hunter 2004: each step raises the likelihood
        share = rows / np.maximum((weight[distance] * other).sum(axis=1), LEAST_MEAN)
        expected = np.bincount(distance.ravel(), (share[:, None] * other).ravel(), 2 * n - 1)
        weight = np.maximum(moves / np.maximum(expected, LEAST_MEAN), LEAST_MEAN)
    means = weight[distance] * other
    means /= np.maximum(means.sum(axis=1, keepdims=True), LEAST_MEAN)
    strength = choose_strength(rows, means[other], delta[other])
    gamma = base.gamma.copy()
    smooth = (delta + strength * means) / (rows + strength)[:, None]
    gamma[1 : n + 1, :n] = np.where(other, np.maximum(smooth, LEAST_MEAN), 0.0)
    sums = gamma[1 : n + 1, :n].sum(axis=1, keepdims=True)
    gamma[1 : n + 1, :n] /= np.where(sums > 0, sums, 1.0)
    return replace(base, gamma=gamma)


def choose_strength(totals: Float64, means: Float64, counts: Float64) -> float:
    """The strength of highest evidence of Dirichlet priors (Beta priors, where there are two).

    Groups have `totals` observations; `counts` [entry] of them are of an outcome whose prior mean
    is `means` [entry]. Entries of 0 may be left out. Without observations, the default.
    """
    if not totals.sum() > 0:
        return DEFAULT_STRENGTH
    means = np.maximum(means, LEAST_MEAN)

    def evidence(log_strength: float) -> float:
        return float(_log_evidence(math.exp(log_strength), totals, means, counts))

    return math.exp(_golden_section(evidence, *map(math.log, STRENGTH_RANGE)))


def _golden_section(function: Callable[[float], float], low: float, high: float) -> float:
    """Find the maximum of a function that has only one."""
    ratio = (math.sqrt(5) - 1) / 2
    inner = [high - ratio * (high - low), low + ratio * (high - low)]
    values = [function(each) for each in inner]
    for _ in range(SEARCH_STEPS):
        if values[0] >= values[1]:
            high = inner[1]
            inner = [high - ratio * (high - low), inner[0]]
            values = [function(inner[0]), values[0]]
        else:
            low = inner[0]
            inner = [inner[1], low + ratio * (high - low)]
            values = [values[1], function(inner[1])]
    return (low + high) / 2


@kernel
def _log_evidence(strength: float, totals: Float64, means: Float64, counts: Float64) -> float:
    """Σ lnΓ(s) − lnΓ(s + N) over groups, and Σ lnΓ(s m + n) − lnΓ(s m) over entries."""
    value = len(totals) * math.lgamma(strength)
    for g in range(len(totals)):
        value -= math.lgamma(strength + totals[g])
    for e in range(len(means)):
        prior = strength * means[e]
        value += math.lgamma(prior + counts[e]) - math.lgamma(prior)
    return value


def _fatigue(exactly: Float64, more: Float64, floor: float) -> Float64:
    """β' / (β' + β); for a number of clicks never reached, that of the last one reached."""
    reached = exactly + more
    eta = np.full(len(exactly), 0.5)
    for k in range(len(eta)):
        eta[k] = exactly[k] / reached[k] if reached[k] > 0 else eta[max(0, k - 1)]
    return np.asarray(np.clip(eta, floor, 1 - floor))


def _transitions(delta: Float64, floor: float) -> Float64:
    """Rows of δ over their sums; a row without moves is uniform; γ_ll = 0."""
    length = delta.shape[1]
    is_diagonal = np.zeros(delta.shape, bool)
    is_diagonal[np.arange(1, length + 1), np.arange(length)] = True
    totals = delta.sum(axis=1, keepdims=True)
    gamma = np.where(totals > 0, delta / np.where(totals > 0, totals, 1), 1.0)
    gamma = np.where(is_diagonal, 0.0, np.maximum(gamma, floor))
    sums = gamma.sum(axis=1, keepdims=True)
    return np.asarray(gamma / np.where(sums > 0, sums, 1))


@dataclass(frozen=True, slots=True)
class QueryTransitionCounts:
    """The stops and transitions of each query: its non-zero β' and δ, concatenated."""

    stop_starts: Int64  # [query + 1]
    stop_clicks: Int32  # [entry] k
    stop_sessions: Float64  # [entry] β'_k
    move_starts: Int64  # [query + 1]
    move_from: Int32  # [entry] l, 0 = start
    move_to: Int32  # [entry] j
    move_sessions: Float64  # [entry] δ_lj
    stop_ended: Float64  # [entry] β'_k without the sessions that ended satisfied

    @classmethod
    def build(cls, counts: Counts, satisfied: Float64 | None = None) -> QueryTransitionCounts:
        """The stops and transitions in some counts; `satisfied` [visit] as in `pooled_events`."""
        n, queries = max(1, counts.max_ads), np.arange(len(counts.queries) + 1)
        clicks, starts = take_runs(
            counts.sequence_clicks, counts.sequence_starts, counts.visit_sequence.astype(np.int64)
        )
        sizes, query = np.diff(starts), counts.visit_query.astype(np.int64)
        stop, stop_sessions = _add_up(query * (n + 1) + sizes, counts.sessions)
        stop_ended = stop_sessions
        if satisfied is not None:
            stop_ended = np.maximum(
                stop_ended - _add_up(query * (n + 1) + sizes, satisfied)[1], 0.0
            )
        moves = np.repeat(query, sizes) * ((n + 1) * n) + _encode_moves(starts, clicks, n)
        move, move_sessions = _add_up(moves, np.repeat(counts.sessions, sizes))
        last, position = np.divmod(move % ((n + 1) * n), n)
        return cls(
            np.searchsorted(stop, queries * (n + 1)),
            (stop % (n + 1)).astype(np.int32),
            stop_sessions,
            np.searchsorted(move, queries * ((n + 1) * n)),
            last.astype(np.int32),
            (position + 1).astype(np.int32),
            move_sessions,
            stop_ended,
        )

    @classmethod
    def none(cls, queries: int) -> QueryTransitionCounts:
        """No counts: every query gets the base."""
        starts, codes, sessions = (
            np.zeros(queries + 1, np.int64),
            np.zeros(0, np.int32),
            np.zeros(0),
        )
        return cls(starts, codes, sessions, starts, codes, codes, sessions, sessions)

    def choose_strengths(self, base: StopsAndTransitions) -> PriorStrengths:
        """The strengths of highest evidence: how much queries differ from the base."""
        steps = len(base.eta)
        query = np.repeat(np.arange(len(self.stop_starts) - 1), np.diff(self.stop_starts))
        cell = query * steps + np.minimum(self.stop_clicks, steps - 1)
        size = (len(self.stop_starts) - 1) * steps
        ended = np.bincount(cell, self.stop_ended, size).reshape(-1, steps)
        sessions = np.bincount(cell, self.stop_sessions, size).reshape(-1, steps)
        more = sessions.sum(axis=1, keepdims=True) - np.cumsum(sessions, axis=1)
        reached = ended + more > 0
        eta = np.broadcast_to(base.eta, ended.shape)
        fatigue = choose_strength(
            (ended + more)[reached],
            np.concatenate([eta[reached], 1 - eta[reached]]),
            np.concatenate([ended[reached], more[reached]]),
        )
        move_query = np.repeat(np.arange(len(self.move_starts) - 1), np.diff(self.move_starts))
        _, totals = _add_up(move_query * (steps + 1) + self.move_from, self.move_sessions)
        means = base.extend(steps).gamma[self.move_from, self.move_to - 1]
        return PriorStrengths(fatigue, choose_strength(totals, means, self.move_sessions))

    def estimate_queries(
        self, queries: Int64, base: StopsAndTransitions, strengths: PriorStrengths, length: int
    ) -> tuple[Float64, Float64]:
        """η [query, k] and γ [query, last, position] for pages of up to `length` ads.

        A query that is not in the log (−1) gets the base.
        """
        base = base.extend(length)
        eta, gamma = (
            np.empty((len(queries), length + 1)),
            np.empty((len(queries), length + 1, length)),
        )
        _shrink(
            queries, base.eta, base.gamma,
            max(strengths.fatigue, MIN_STRENGTH), max(strengths.transitions, MIN_STRENGTH),
            self.stop_starts, self.stop_clicks, self.stop_sessions,
            self.move_starts, self.move_from, self.move_to, self.move_sessions,
            self.stop_ended, eta, gamma,
        )  # fmt: skip
        return eta, gamma


def _add_up(key: Int64, weight: Float64) -> tuple[Int64, Float64]:
    """The distinct keys, sorted, and the sum of their weights."""
    keys, inverse = np.unique(key, return_inverse=True)
    return keys, np.bincount(inverse, weight, len(keys)).astype(np.float64)


@kernel
def _shrink(
    queries: Int64, base_eta: Float64, base_gamma: Float64, fatigue: float, strength: float,
    stop_starts: Int64, stop_clicks: Int32, stop_sessions: Float64,
    move_starts: Int64, move_from: Int32, move_to: Int32, move_sessions: Float64,
    stop_ended: Float64, eta: Float64, gamma: Float64,
) -> None:  # fmt: skip
    """The posterior means of each query with the base as prior mean."""
    length = gamma.shape[2]
    totals = np.empty(length + 1)
    for i in range(len(queries)):
        q = queries[i]
        for last in range(length + 1):  # element by element: copies of slices compile for seconds
            eta[i, last] = base_eta[last]
            for j in range(length):
                gamma[i, last, j] = base_gamma[last, j]
        if q < 0 or stop_starts[q] == stop_starts[q + 1]:
            continue
        totals[:] = strength
        for e in range(move_starts[q], move_starts[q + 1]):
            if move_from[e] <= length:
                totals[move_from[e]] += move_sessions[e]
        for last in range(length + 1):
            for j in range(length):
                gamma[i, last, j] *= strength / totals[last]
        for e in range(move_starts[q], move_starts[q + 1]):
            if move_from[e] <= length and move_to[e] <= length:
                gamma[i, move_from[e], move_to[e] - 1] += move_sessions[e] / totals[move_from[e]]
        for k in range(length + 1):
            exactly = more = 0.0
            for e in range(stop_starts[q], stop_starts[q + 1]):
                exactly += stop_ended[e] if stop_clicks[e] == k else 0.0
                more += stop_sessions[e] if stop_clicks[e] > k else 0.0
            rate = (exactly + fatigue * base_eta[k]) / (exactly + more + fatigue)
            eta[i, k] = min(max(rate, FATIGUE_MARGIN), 1.0 - FATIGUE_MARGIN)
