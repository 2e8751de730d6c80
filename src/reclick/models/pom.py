"""POM, the partially observable Markov model: examination jumps from any position to any other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.step import leave_page, matrix_walk_visits, solve_in_place
from reclick.clicks.walk import MatrixWalkPages
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.data.ragged import Bool, Float64, Int32, Int64
from reclick.fitting.beta import BetaPrior, log_beta, posterior_mean
from reclick.fitting.em import (
    PairSums,
    Squarem,
    Statistics,
    run_em,
    squarem_norms,
    squarem_step,
)
from reclick.models.base import ClickModel
from reclick.models.settings import setting
from reclick.runtime.jit import kernel, subkernel
from reclick.text.word_rates import TextIndex

FORWARD, BACK, STOP = 0.6, 0.2, 0.2  # prior means: of moves down, of moves up, of stopping
DECAY = 0.5  # of a prior mean, for each position further


class POMParameters(NamedTuple):
    """What EM estimates."""

    theta: Float64  # [pair]
    moves: Float64  # [last, position, then the end]; rows add up to 1


class POM(ClickModel):
    """Examination is a Markov chain over the positions, of which only clicks are observed.

    From the start (row 0) and from every position the next examined one is drawn by a row of V, or
    the session ends. An examined ad that is not clicked yet is clicked with θ(q, d). Walks between
    two clicks are summed over exactly: with D = diag(1 − θ_i), θ being 0 where clicked already,
    the expected examinations are v = V_l (I − D V)⁻¹, P(next click is j) = v_j θ_j and P(end) =
    V_{l, end} + Σ v_i D_i V_{i, end}. THCM is this with single steps.

    EM: let h_i = P(the segment ends as observed | the walk is at i), h = (I − D V)⁻¹ g with g the
    observed end. Expected moves from i to j are ([i = l] + v_i D_i) V_ij h_j / P, and skips
    likewise. Then θ = (clicks + s m) / (clicks + skips + s), and rows of V are shares of moves.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2, 1], [1, 2]]}
    >>> model = POM().fit(log)
    >>> bool(model.log_prob({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})[0] > -4)
    True
    """

    name: ClassVar[str] = "pom"
    assumes: ClassVar[str] = (
        "examination jumps from any position to any other; each may lead to a click"
    )
    reference: ClassVar[str] = (
        "after Wang, Gloy, Li 2010 (the partially observable Markov model), summed exactly"
    )
    ordered: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_", "moves_")
    probabilities: ClassVar[tuple[str, ...]] = ("theta_", "moves_")
    overall_strength: ClassVar[float] = 1.0

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    transition_strength: float = setting(
        default=5.0, low=0, help="strength of the prior of each row of transitions, in moves"
    )
    max_iterations: int = setting(default=200, low=1, integer=True)
    tolerance: float = setting(default=1e-5)

    def _estimate(self, sessions: GroupedSessions, prior: BetaPrior, history: Counts) -> None:
        clicks, means = sessions.counts.clicks, prior_moves(sessions.max_ads)
        strength = self.transition_strength
        possible = means > 0

        def m_step(_: POMParameters, statistics: Statistics) -> POMParameters:
            theta = posterior_mean(clicks, clicks + statistics.pairs["skips"], *prior)
            moves = statistics.totals["moves"]
            rows = moves.sum(axis=1, keepdims=True)
            return _clip_to_interior(
                POMParameters(theta, posterior_mean(moves, rows, means, strength)), possible
            )

        def log_prior(now: POMParameters) -> float:
            moves = float(means[possible] @ np.log(now.moves[possible])) if strength else 0.0
            return log_beta(now.theta, *prior) + strength * moves

        def extrapolate(
            first: POMParameters, second: POMParameters, third: POMParameters, limit: float
        ) -> tuple[POMParameters, float]:
            rows = [(one[0], one[1].ravel()) for one in (first, second, third)]
            steps = changes = 0.0
            for x, y, z in zip(*rows, strict=True):
                step, change = squarem_norms(x, y, z, np.ones(len(x)))
                steps, changes = steps + step, changes + change
            length = min(limit, max(1.0, math.sqrt(steps / changes))) if changes > 0 else 1.0
            theta, moves = (
                squarem_step(x, y, z, length, 1 - PROBABILITY_MARGIN)
                for x, y, z in zip(*rows, strict=True)
            )
            ahead = POMParameters(theta, moves.reshape(third.moves.shape))
            return _clip_to_interior(ahead, possible), length

        start: POMParameters | None = self._pilot_parameters
        fit = run_em(
            start or _clip_to_interior(POMParameters(prior.mean, means), possible),
            sessions.blocks(),
            e_step,
            m_step,
            log_prior=log_prior,
            sessions=sessions.counts.total,
            engine=self._engine,
            accelerate=Squarem(extrapolate),
            **self._em_limits,
        )
        self.theta_, self.moves_ = fit.parameters
        self.exposure_ = clicks + fit.statistics.pairs["skips"]
        self._report_fit(fit)

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = np.clip(
            self._pairs.lookup_or_prior(self.theta_, batch, self._pairs.find(batch), text),
            PROBABILITY_MARGIN,
            1 - PROBABILITY_MARGIN,
        )
        table = extend_moves(self.moves_, int(np.diff(batch.page).max(initial=1)))
        moves, stop = np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()

        def pages(start: int, end: int) -> MatrixWalkPages:
            first, last = batch.page[start], batch.page[end]
            starts = batch.page[start : end + 1] - first
            return MatrixWalkPages(theta[first:last], moves, stop, starts)

        return pages


def prior_moves(length: int) -> Float64:
    """Prior means of the moves [last, position, then the end]: mostly down, and near.

    >>> prior_moves(2).round(2)
    array([[0.53, 0.27, 0.2 ],
           [0.  , 0.8 , 0.2 ],
           [0.8 , 0.  , 0.2 ]])
    """
    distance = np.arange(1, length + 1) - np.arange(length + 1)[:, None]
    direction = np.where(distance > 0, FORWARD, np.where(distance < 0, BACK, 0.0))
    moves = direction * DECAY ** np.maximum(np.abs(distance) - 1, 0)
    rows = moves.sum(axis=1, keepdims=True)
    alone = rows == 0  # the only position of a page: the walk always ends there
    moves *= (1 - STOP) / np.where(alone, 1.0, rows)
    return np.column_stack([moves, 1.0 - moves.sum(axis=1)])


def extend_moves(moves: Float64, length: int) -> Float64:
    """The moves for pages of some length; positions that were never shown have prior means."""
    n_known = moves.shape[1] - 1
    if length <= n_known:
        return moves
    extended = prior_moves(length)
    beyond = extended[: n_known + 1, n_known:length].sum(axis=1, keepdims=True)
    extended[: n_known + 1, :n_known] = moves[:, :-1] * (1 - beyond)
    extended[: n_known + 1, -1:] = moves[:, -1:] * (1 - beyond)
    return extended


def _clip_to_interior(parameters: POMParameters, possible: Bool) -> POMParameters:
    """Clip all probabilities away from 0 and 1, except those of moves to the same position."""
    theta = np.clip(parameters.theta, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
    moves = np.where(possible, np.maximum(parameters.moves, PROBABILITY_MARGIN), 0.0)
    return POMParameters(theta, moves / moves.sum(axis=1, keepdims=True))


def e_step(parameters: POMParameters, block: QueryBlock) -> Statistics:
    """Expected skips of unclicked ads [pair], moves, and the log-likelihood."""
    skips, moves = np.zeros(block.n_pairs), np.zeros(parameters.moves.shape)
    table = np.ascontiguousarray(parameters.moves[:, :-1])
    total = _expect(
        parameters.theta[block.pairs], table, parameters.moves[:, -1].copy(), block.pair,
        block.page, block.click, block.clicks, block.weight, block.max_ads, skips, moves,
    )  # fmt: skip
    return Statistics(total, {"moves": moves}, PairSums.of(block.first_pair, skips=skips))


@kernel
def _expect(
    theta: Float64, table: Float64, stop: Float64, pair: Int32, page: Int64, click: Int32,
    clicks: Int64, weight: Float64, longest: int, skips: Float64, moves: Float64,
) -> float:  # fmt: skip
    """Add the expectations of every segment of every session, and return the log-likelihood."""
    buffer = np.empty((4, longest))
    total = 0.0
    for s in range(len(weight)):
        n = page[s + 1] - page[s]
        here, free, visits, hit = buffer[0, :n], buffer[1, :n], buffer[2, :n], buffer[3, :n]
        for i in range(n):
            here[i], free[i] = theta[pair[page[s] + i]], 1.0
        last = 0
        for k in range(clicks[s], clicks[s + 1] + 1):
            goal = click[k] if k < clicks[s + 1] else 0  # 0: the session ends
            matrix_walk_visits(here, table, last, free, visits)
            _hits(here, table, stop, goal, free, hit)
            beyond = 1.0 if goal == 0 else 0.0
            chance = beyond * leave_page(table, stop, last, n)
            for j in range(n):
                chance += table[last, j] * hit[j]
            total += weight[s] * np.log(chance)
            share = weight[s] / chance
            _add_moves(table, stop, last, n, beyond, hit, share, moves)
            for i in range(n):
                departures = visits[i] * (1.0 - here[i] * free[i]) * share
                onward = _add_moves(table, stop, i + 1, n, beyond, hit, departures, moves)
                skips[pair[page[s] + i]] += free[i] * onward
            if goal > 0:
                free[goal - 1] = 0.0
            last = goal
    return total


@subkernel
def _add_moves(
    table: Float64, stop: Float64, position: int, size: int, beyond: float, hit: Float64,
    weight: float, moves: Float64,
) -> float:  # fmt: skip
    """Add the moves expected from a position, and return how many there are.

    `beyond` is 1 in the last segment, in which moves off the page and the end count too.
    """
    width = table.shape[1]
    total = 0.0
    for j in range(width):
        expected = weight * table[position, j] * (hit[j] if j < size else beyond)
        moves[position, j] += expected
        total += expected
    moves[position, width] += weight * stop[position] * beyond
    return float(total + weight * stop[position] * beyond)


@subkernel
def _hits(
    theta: Float64, table: Float64, stop: Float64, goal: int, free: Float64, hit: Float64
) -> None:
    """Fill hit[i] with P(next click is the goal | the walk is at i); goal 0 is no further click.

    h_i = θ_i [i = goal] + (1 − θ_i) (Σ_j V_ij h_j + [goal = 0] P(leave after i)).
    """
    n = len(theta)
    system = np.empty((n, n))
    for i in range(n):
        stay = 1.0 - theta[i] * free[i]
        hit[i] = stay * leave_page(table, stop, i + 1, n) if goal == 0 else 0.0
        if i == goal - 1:
            hit[i] = theta[i]
        for j in range(n):
            system[i, j] = -stay * table[i + 1, j]
        system[i, i] += 1.0
    solve_in_place(system, hit)
