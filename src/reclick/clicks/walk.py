"""Walks: examination moves over the page, by single steps or by a matrix, until the user stops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from reclick.clicks.distribution import Clicks, StepwisePages
from reclick.clicks.set_probability import log_set_probs
from reclick.clicks.step import (
    MATRIX_WALK,
    WALK,
    StepTables,
    follow_clicks,
    kernel_input,
    single_component,
    solve_in_place,
)
from reclick.data.batch import Float64, Int64
from reclick.data.ragged import read_only, run_indices
from reclick.runtime.jit import kernel


class _AnyWalk(StepwisePages):
    """Base of both walks, which do not depend on the clicks."""

    theta: Float64  # [impression] P(click | examined)

    def log_prob(self, clicks: Clicks) -> Float64:
        """Log-probability of exactly these clicks in this order [page]."""
        return follow_clicks(self.step_tables(), clicks).log_prob

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log-probability that exactly these positions are clicked, in any order [page]."""
        return log_set_probs(self.step_tables(), clicks)

    def follow(self, clicks: Clicks) -> tuple[Float64, Float64, Float64]:
        """P(next click), P(end), and log P(the first clicks are these)."""
        path = follow_clicks(self.step_tables(), clicks)
        return path.following, path.end, path.log_prefix

    def select(self, rows: Int64) -> Self:
        """The pages `rows`, in this order."""
        index, starts = run_indices(self.starts, rows)
        return replace(self, theta=self.theta[index], starts=starts)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class WalkPages(_AnyWalk):
    """Pages whose users walk: after each position they step forward, step back, or stop.

    A position not clicked yet is clicked with θ when it is examined. Exact for any page length.
    """

    theta: Float64  # [impression] P(click | examined)
    forward: float  # P(step to the next position)
    back: float  # P(step to the position above)
    starts: Int64  # [page + 1]

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]."""
        out = np.empty(len(self.theta))
        _walk_marginals(read_only(self.theta), self.forward, self.back, read_only(self.starts), out)
        return out

    def step_tables(self) -> StepTables:
        """The parameters as the kernels of `step.py` read them."""
        steps, unused = np.array([[self.forward, self.back]]), np.zeros((1, 1, 1))
        row = np.zeros(len(self), np.int64)
        return single_component(
            WALK, self.theta, self.theta, unused[0], unused, row, self.starts, steps
        )


@dataclass(frozen=True, slots=True)
class MatrixWalkPages(_AnyWalk):
    """Pages whose users walk by a matrix: from every position they may go to any other, or stop.

    A position not clicked yet is clicked with θ when it is examined. Exact for any page length. A
    move to a position that the page lacks ends the session.
    """

    theta: Float64  # [impression] P(click | examined)
    moves: Float64  # [last, position] P(examined next); row 0 is the start
    stop: Float64  # [last] P(end)
    starts: Int64  # [page + 1]

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]."""
        out = np.empty(len(self.theta))
        moves = kernel_input(self.moves)
        _matrix_walk_marginals(read_only(self.theta), moves, read_only(self.starts), out)
        return out

    def step_tables(self) -> StepTables:
        """The parameters as the kernels of `step.py` read them."""
        row = np.zeros(len(self), np.int64)
        return single_component(
            MATRIX_WALK, self.theta, self.theta, self.stop[None], self.moves[None], row,
            self.starts, np.zeros((1, 2)),
        )  # fmt: skip


@kernel
def _matrix_walk_marginals(theta: Float64, moves: Float64, starts: Int64, out: Float64) -> None:
    """Fill out with P(position is ever clicked) = reach θ / (1 − (1 − θ) return).

    With F = (I − V)⁻¹ the expected visits, reach_j = (V_0 F)_j / F_jj, return_j = 1 − 1 / F_jj.
    """
    for s in range(len(starts) - 1):
        first, n = starts[s], starts[s + 1] - starts[s]
        for j in range(n):
            system, visits = np.empty((n, n)), np.zeros(n)  # column j of F
            for i in range(n):
                for k in range(n):
                    system[i, k] = -moves[i + 1, k]
                system[i, i] += 1.0
            visits[j] = 1.0
            solve_in_place(system, visits)
            reach = 0.0
            for i in range(n):
                reach += moves[0, i] * visits[i]
            chance, n_visits = theta[first + j], visits[j]
            out[first + j] = (
                reach / n_visits * chance / (1.0 - (1.0 - chance) * (1.0 - 1.0 / n_visits))
            )


@kernel
def _walk_marginals(
    theta: Float64, forward: float, back: float, starts: Int64, out: Float64
) -> None:
    """Fill out with P(position is ever clicked) = reach θ / (1 − (1 − θ) return).

    The walk does not depend on the clicks: each visit of a position not clicked yet may lead to a
    click.
    """
    for s in range(len(starts) - 1):
        first, end = starts[s], starts[s + 1]
        rise = 0.0  # P(the walk comes from here to the position above)
        out[end - 1] = 0.0
        for i in range(end - 1, first, -1):
            rise = back / (1.0 - forward * rise)
            out[i - 1] = forward * rise  # a return from below; there is none below the last
        reach, fall = 1.0, 0.0  # P(the walk comes here), P(it comes here from the one above)
        for i in range(first, end):
            again = out[i] + back * fall
            out[i] = reach * theta[i] / (1.0 - (1.0 - theta[i]) * again)
            fall = forward / (1.0 - back * fall)
            reach *= fall
