"""Fatigue and transitions: how users stop and where they look next, pooled and per query.

η_k = (β'_k + α_k) / (β'_k + α_k + β_k + b_k) and γ_lj = (δ_lj + α_lj) / Σ_j (δ_lj + α_lj), the pseudo-counts α being a prior mean times a strength,
which is never quite 0: nothing that can happen has probability 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.data.counts import Counts
from reclick.runtime.jit import kernel

WEAKEST = 1e-6  # pseudo-sessions: a prior has at least these, so that what a query has not done yet stays possible
FATIGUE_MARGIN = 1e-12  # how near to 0 and 1 the fatigue of a query may come


@dataclass(frozen=True, slots=True)
class StopsAndTransitions:
    """Fatigue η [clicks so far] and transitions γ [last click, position]; row 0 of γ is the start of the session."""

    eta: Float64  # [clicks so far]
    gamma: Float64  # [last, position]

    def extended(self, length: int) -> StopsAndTransitions:
        """The same for pages of up to `length` ads; what is added does not depend on `length`, as pages of all lengths are asked together.

        A position never seen is as rare as the rarest; after it the eye goes as from the start; stopping is as likely as at the last known step.
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


def pooled_events(counts: Counts) -> tuple[Float64, Float64, Float64]:
    """Over all queries: β' [k] sessions with exactly k clicks, β [k] with more, and δ [last, position] transitions."""
    n = max(1, counts.max_ads)
    exactly, delta = np.zeros(n + 1), np.zeros((n + 1, n))
    _add_events(
        np.arange(len(counts.sequence_starts) - 1),
        counts.per_sequence(),
        counts.sequence_starts,
        counts.sequence_clicks,
        exactly,
        delta,
    )
    return exactly, exactly.sum() - np.cumsum(exactly), delta


def estimate(counts: Counts, *, prior: StopsAndTransitions | None, strength: float, floor: float) -> StopsAndTransitions:
    """One η and one γ for all queries, shrunk to the prior; without a prior, the counts' own estimate.

    An event that was never seen stays possible: probabilities are kept at least `floor` away from 0 and 1.
    """
    exactly, more, delta = pooled_events(counts)
    if prior is not None:
        length = max(delta.shape[1], prior.gamma.shape[1])
        beyond = length - delta.shape[1]  # the prior may know longer pages than the counts
        prior, strength = prior.extended(length), max(strength, WEAKEST)
        exactly = np.pad(exactly, (0, beyond)) + strength * prior.eta
        more = np.pad(more, (0, beyond)) + strength * (1 - prior.eta)
        delta = np.pad(delta, (0, beyond)) + strength * prior.gamma
    return StopsAndTransitions(_fatigue(exactly, more, floor), _transitions(delta, floor))


def _fatigue(exactly: Float64, more: Float64, floor: float) -> Float64:
    """β' / (β' + β), where a number of clicks was never reached as likely as at the last step that was."""
    reached = exactly + more
    eta = np.full(len(exactly), 0.5)
    for k in range(len(eta)):
        eta[k] = exactly[k] / reached[k] if reached[k] > 0 else eta[max(0, k - 1)]
    return np.asarray(np.clip(eta, floor, 1 - floor))


def _transitions(delta: Float64, floor: float) -> Float64:
    """Rows of δ over their sums; a row never left is uniform; γ_ll = 0."""
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

    @classmethod
    def of(cls, counts: Counts) -> QueryTransitionCounts:
        """Gather them from the counts."""
        visit_starts = np.searchsorted(
            counts.visit_query, np.arange(len(counts.queries) + 1)
        ).astype(np.int64)
        return cls(
            *_query_events(
                max(1, counts.max_ads),
                visit_starts,
                counts.visit_sequence,
                counts.sessions,
                counts.sequence_starts,
                counts.sequence_clicks,
            )
        )

    @classmethod
    def none(cls, queries: int) -> QueryTransitionCounts:
        """No events: every query is served by the base alone."""
        starts, codes, sessions = (
            np.zeros(queries + 1, np.int64),
            np.zeros(0, np.int32),
            np.zeros(0),
        )
        return cls(starts, codes, sessions, starts, codes, codes, sessions)

    def estimate_queries(
        self, queries: Int64, base: StopsAndTransitions, strength: float, length: int
    ) -> tuple[Float64, Float64]:
        """η [query, k] and γ [query, last, position] for pages of up to `length` ads; an unseen query (−1) gets the base."""
        base = base.extended(length)
        eta, gamma = (
            np.empty((len(queries), length + 1)),
            np.empty((len(queries), length + 1, length)),
        )
        _shrink(
            queries, base.eta, base.gamma, max(strength, WEAKEST), self.stop_starts, self.stop_clicks, self.stop_sessions,
            self.move_starts, self.move_from, self.move_to, self.move_sessions, eta, gamma,
        )  # fmt: skip
        return eta, gamma


@kernel
def _add_events(
    sequences: Int64,
    sessions: Float64,
    starts: Int64,
    clicks: Int32,
    exactly: Float64,
    delta: Float64,
) -> None:
    """Add to β' and δ the click lists `sequences`, each as often as `sessions` says."""
    for i in range(len(sequences)):
        start, end = starts[sequences[i]], starts[sequences[i] + 1]
        exactly[end - start] += sessions[i]
        last = 0
        for c in range(start, end):
            delta[last, clicks[c] - 1] += sessions[i]
            last = clicks[c]


@kernel
def _query_events(
    length: int,
    visit_starts: Int64,
    visit_sequence: Int32,
    sessions: Float64,
    starts: Int64,
    clicks: Int32,
) -> tuple[Int64, Int32, Float64, Int64, Int32, Int32, Float64]:
    """Count each query's stops and moves in a scratch table, and copy out what is not zero: first to size, then to fill."""
    queries = len(visit_starts) - 1
    stop_starts, move_starts = np.zeros(queries + 1, np.int64), np.zeros(queries + 1, np.int64)
    exactly, delta = np.zeros(length + 1), np.zeros((length + 1, length))
    stops = moves = 0
    stop_clicks, stop_sessions = np.empty(0, np.int32), np.empty(0)
    move_from, move_to, move_sessions = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0)
    for filling in (False, True):
        if filling:
            stop_clicks, stop_sessions = np.empty(stops, np.int32), np.empty(stops)
            move_from, move_to, move_sessions = (
                np.empty(moves, np.int32),
                np.empty(moves, np.int32),
                np.empty(moves),
            )
        stops = moves = 0
        for q in range(queries):
            begin, end = visit_starts[q], visit_starts[q + 1]
            _add_events(
                visit_sequence[begin:end].astype(np.int64),
                sessions[begin:end],
                starts,
                clicks,
                exactly,
                delta,
            )
            for v in range(
                begin, end
            ):  # visit again what was touched, and wipe it, so that the scratch is never scanned whole
                start, stop = starts[visit_sequence[v]], starts[visit_sequence[v] + 1]
                if exactly[stop - start] != 0.0:
                    if filling:
                        stop_clicks[stops], stop_sessions[stops] = (
                            stop - start,
                            exactly[stop - start],
                        )
                    exactly[stop - start] = 0.0
                    stops += 1
                last = 0
                for c in range(start, stop):
                    if delta[last, clicks[c] - 1] != 0.0:
                        if filling:
                            move_from[moves], move_to[moves], move_sessions[moves] = (
                                last,
                                clicks[c],
                                delta[last, clicks[c] - 1],
                            )
                        delta[last, clicks[c] - 1] = 0.0
                        moves += 1
                    last = clicks[c]
            stop_starts[q + 1], move_starts[q + 1] = stops, moves
    return stop_starts, stop_clicks, stop_sessions, move_starts, move_from, move_to, move_sessions


@kernel
def _shrink(
    queries: Int64, base_eta: Float64, base_gamma: Float64, strength: float,
    stop_starts: Int64, stop_clicks: Int32, stop_sessions: Float64,
    move_starts: Int64, move_from: Int32, move_to: Int32, move_sessions: Float64,
    eta: Float64, gamma: Float64,
) -> None:  # fmt: skip
    """The posterior means of each query, given the base as prior mean; the base itself where nothing was seen."""
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
                exactly += stop_sessions[e] if stop_clicks[e] == k else 0.0
                more += stop_sessions[e] if stop_clicks[e] > k else 0.0
            rate = (exactly + strength * base_eta[k]) / (exactly + more + strength)
            eta[i, k] = min(max(rate, FATIGUE_MARGIN), 1.0 - FATIGUE_MARGIN)
