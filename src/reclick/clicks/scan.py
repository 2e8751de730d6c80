"""A directional scan: after each click the user goes down or up, to the first ad that attracts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from reclick.clicks.distribution import Clicks, StepwisePages
from reclick.clicks.set_probability import check_page_length, distinct_pages, log_set_probs
from reclick.clicks.step import (
    SCAN,
    StepTables,
    follow_clicks,
    kernel_input,
    scan_step,
    single_component,
)
from reclick.data.batch import Float64, Int64
from reclick.data.ragged import positions_in_runs, run_indices, run_of_elements
from reclick.runtime.jit import kernel


@dataclass(frozen=True, slots=True)
class ScanPages(StepwisePages):
    """Pages whose users scan in one direction after each click, and from the top at first.

    A click at l satisfies with ρ_l, which ends the session. Else they go down with δ_l, or up. In
    that direction each position j not clicked yet is examined with γ_lj and then clicked with θ_j;
    the first click ends the scan. Without one the session ends. γ and δ may be wider than the
    pages. γ_ll is any finite number and never used.
    """

    theta: Float64  # [impression] P(click | examined)
    rho: Float64  # [impression] P(satisfied | clicked)
    gamma: Float64  # [last, position] P(examined); row 0 of `last` is the start
    down: Float64  # [last] P(going down); 1 at the start
    starts: Int64  # [page + 1]

    def log_prob(self, clicks: Clicks) -> Float64:
        """Log-probability of exactly these clicks in this order [page]."""
        return follow_clicks(self.step_tables(), clicks).log_prob

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log-probability that exactly these positions are clicked, in any order [page]."""
        return log_set_probs(self.step_tables(), clicks)

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]; equal pages are computed once."""
        check_page_length(self.starts)
        if not len(self):
            return np.zeros(0)
        first, group = distinct_pages(self.starts, self.theta, self.rho)
        distinct = self.select(first)
        longest = int(np.diff(self.starts).max())
        marginals = np.empty(len(distinct.theta))
        _scan_marginals(
            kernel_input(distinct.theta),
            kernel_input(distinct.rho),
            kernel_input(self.gamma),
            kernel_input(self.down),
            kernel_input(distinct.starts),
            np.empty((1 << longest) * (longest + 1)),
            np.empty(longest),
            np.empty(longest),
            marginals,
        )
        page, position = run_of_elements(self.starts), positions_in_runs(self.starts)
        return np.asarray(marginals[distinct.starts[group][page] + position])

    def follow(self, clicks: Clicks) -> tuple[Float64, Float64, Float64]:
        """P(next click), P(end), and log P(the first clicks are these)."""
        path = follow_clicks(self.step_tables(), clicks)
        return path.following, path.end, path.log_prefix

    def satisfaction_prob(self) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [page]."""
        return np.add.reduceat(self.click_prob() * self.rho, self.starts[:-1])

    def select(self, rows: Int64) -> Self:
        """The pages `rows`, in this order."""
        index, starts = run_indices(self.starts, rows)
        return replace(self, theta=self.theta[index], rho=self.rho[index], starts=starts)

    def step_tables(self) -> StepTables:
        """The parameters as the kernels of `step.py` read them."""
        row = np.zeros(len(self), np.int64)
        return single_component(
            SCAN, self.theta, self.rho, self.down[None], self.gamma[None], row, self.starts,
            steps=np.zeros((1, 2)),
        )  # fmt: skip


@kernel
def _scan_marginals(
    theta: Float64,
    rho: Float64,
    gamma: Float64,
    down: Float64,
    starts: Int64,
    reach: Float64,
    free: Float64,
    chance: Float64,
    out: Float64,
) -> None:
    """Fill out with P(position is clicked) = Σ over sets of P(the set was clicked, this one last).

    reach[set, last] is P(the first clicks are this set, this one last); bit j of a set is position
    j, and last = 0 is the start.
    """
    for s in range(len(starts) - 1):
        first, n = starts[s], starts[s + 1] - starts[s]
        width = n + 1
        for cell in range((1 << n) * width):
            reach[cell] = 0.0
        reach[0] = 1.0
        for j in range(n):
            out[first + j] = 0.0
        for subset in range((1 << n) - 1):  # a set comes after its subsets
            for j in range(n):
                free[j] = 1.0 - ((subset >> j) & 1)
            for last in range(width):
                arrive = reach[subset * width + last]
                if arrive <= 0.0:
                    continue
                scan_step(theta, rho, first, n, gamma[last], down[last], last, free, chance, 0)
                for j in range(n):
                    if free[j] > 0.0:
                        reach[(subset | (1 << j)) * width + j + 1] += arrive * chance[j]
                        out[first + j] += arrive * chance[j]
