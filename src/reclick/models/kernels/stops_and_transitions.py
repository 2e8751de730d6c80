"""Fatigue and transitions: when users stop and what they click next, pooled and per query.

η_k = (β'_k + α_k) / (β'_k + α_k + β_k + b_k) and γ_lj = (δ_lj + α_lj) / Σ_j (δ_lj + α_lj). The
pseudo-counts α and b are a prior mean times a strength, which is never quite 0: nothing that can
happen has probability 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reclick.data.counts import Counts
from reclick.data.ragged import Float64, Int32, Int64, take_runs
from reclick.runtime.jit import kernel
from reclick.runtime.plots import plot_transitions

MIN_STRENGTH = 1e-6  # of a prior, in sessions: what a query has not done yet stays possible
FATIGUE_MARGIN = 1e-12  # how near to 0 and 1 the fatigue of a query may come


@dataclass(frozen=True, slots=True)
class StopsAndTransitions:
    """Fatigue η and transitions γ; row 0 of γ is the start of the session."""

    eta: Float64  # [clicks so far]
    gamma: Float64  # [last, position]

    def extend(self, length: int) -> StopsAndTransitions:
        """The same for pages of up to `length` ads.

        An unknown position is as rare as the rarest; the transitions from it are those from the
        start; fatigue is that of the last known step. What is added does not depend on `length`,
        as pages of all lengths are answered together.
        """
        known = self.gamma.shape[1]
        if length <= known:
            return self
        eta = np.concatenate([self.eta, np.full(length - known, self.eta[-1])])
        gamma = np.full(
            (length + 1, length), max(float(self.gamma[self.gamma > 0].min(initial=1.0)), 0.0)
        )
        gamma[: known + 1, :known] = self.gamma
        gamma[known + 1 :, :] = gamma[0]
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
    own = np.zeros(delta.shape, bool)
    own[np.arange(1, length + 1), np.arange(length)] = True
    totals = delta.sum(axis=1, keepdims=True)
    gamma = np.where(totals > 0, delta / np.where(totals > 0, totals, 1), 1.0)
    gamma = np.where(own, 0.0, np.maximum(gamma, floor))
    sums = gamma.sum(axis=1, keepdims=True)
    return np.asarray(gamma / np.where(sums > 0, sums, 1))


@dataclass(frozen=True, slots=True)
class QueryTransitionCounts:
    """The stops and transitions of each query: its non-zero β' and δ, laid end to end."""

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

    def estimate_queries(
        self, queries: Int64, base: StopsAndTransitions, strength: float, length: int
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
            queries, base.eta, base.gamma, max(strength, MIN_STRENGTH),
            self.stop_starts, self.stop_clicks, self.stop_sessions,
            self.move_starts, self.move_from, self.move_to, self.move_sessions,
            self.stop_ended, eta, gamma,
        )  # fmt: skip
        return eta, gamma


def _add_up(key: Int64, weight: Float64) -> tuple[Int64, Float64]:
    """The distinct keys, sorted, and the sum of their weights."""
    keys, which = np.unique(key, return_inverse=True)
    return keys, np.bincount(which, weight, len(keys)).astype(np.float64)


@kernel
def _shrink(
    queries: Int64, base_eta: Float64, base_gamma: Float64, strength: float,
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
            rate = (exactly + strength * base_eta[k]) / (exactly + more + strength)
            eta[i, k] = min(max(rate, FATIGUE_MARGIN), 1.0 - FATIGUE_MARGIN)
