"""A choice: the next click is at a free position with a probability that grows with θ_j γ_lj."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np

from reclick.clicks.distribution import Clicks, StepwisePages
from reclick.clicks.set_probability import (
    check_page_length,
    choice_marginals,
    distinct_pages,
    log_set_probs,
)
from reclick.clicks.step import (
    EXAMINATION,
    LUCE,
    NORMALISED,
    PAPER,
    StepTables,
    follow_clicks,
    pack_redundancy,
    single_component,
)
from reclick.data.batch import Float64, Int64
from reclick.data.ragged import longest_run, positions_in_runs, run_indices, run_of_elements

Variant = Literal["paper", "examination", "normalised", "luce"]
VARIANTS: dict[str, int] = {
    "paper": PAPER,
    "examination": EXAMINATION,
    "normalised": NORMALISED,
    "luce": LUCE,
}
DEDUPLICATED_ADS = 7  # on a page: from here on, finding equal pages saves time


@dataclass(frozen=True)
class ChoicePages(StepwisePages):
    """Pages whose next click is a choice among the positions not clicked yet.

    After k clicks, the last at l: P(j) = go · w_j / (outside + Σ w), with w_j = θ_j γ_lj over the
    free positions and go = (1 − ρ_l) (1 − η_k), ρ being 0 at the start. The variants:

    ============  ==============================================
    paper         outside = 1 − Σ w
    examination   outside = Σ γ_lj − Σ w: θ is P(click | examined)
    normalised    outside = 0
    luce          outside = stop_k, an outside option; go = 1 − ρ_l
    ============  ==============================================

    Page s uses stop[table[s]] and gamma[table[s]], which may be wider than the page. γ_ll is any
    finite number and never used.

    With a redundancy κ, an ad that repeats what was clicked loses weight: θ_j exp(−κ σ_j), where
    1 − σ_j = Π (1 − s_ij) over the positions i clicked so far and s is the overlap of their ads.
    """

    variant: Variant
    theta: Float64  # [impression] attractiveness
    rho: Float64  # [impression] satisfaction
    stop: Float64  # [table, clicks so far] fatigue η, or the weight of the outside option
    gamma: Float64  # [table, last, position] transitions; row 0 of `last` is the start
    starts: Int64  # [page + 1]
    table: Int64  # [page]
    redundancy: float = 0.0  # κ
    overlap: Float64 | None = None  # [page, clicked, other] s; needed where κ is not 0

    @property
    def has_redundancy(self) -> bool:
        """Whether clicked ads make others less attractive."""
        return self.redundancy > 0 and self.overlap is not None

    def log_prob(self, clicks: Clicks) -> Float64:
        """Log-probability of exactly these clicks in this order [page]."""
        return follow_clicks(self.step_tables(), clicks).log_prob

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log-probability that exactly these positions are clicked, in any order [page]."""
        return log_set_probs(self.step_tables(), clicks)

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]."""
        return self._click_prob.copy()

    def follow(self, clicks: Clicks) -> tuple[Float64, Float64, Float64]:
        """P(next click), P(end), and log P(the first clicks are these)."""
        path = follow_clicks(self.step_tables(), clicks)
        return path.following, path.end, path.log_prefix

    def satisfaction_prob(self) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [page].

        A user is satisfied once at most, so it is Σ_j P(j is clicked) ρ_j.
        """
        return np.add.reduceat(self._click_prob * self.rho, self.starts[:-1])

    def select(self, rows: Int64) -> Self:
        """The pages `rows`, in this order."""
        index, starts = run_indices(self.starts, rows)
        return replace(
            self,
            theta=self.theta[index],
            rho=self.rho[index],
            starts=starts,
            table=self.table[rows],
            overlap=None if self.overlap is None else self.overlap[rows],
        )

    def arrange(self, rows: Int64, ads: Int64) -> Self:
        """New pages of the ads of old ones: position j of page i is ad ads[i, j] of page rows[i].

        Ads count from 1. They keep their θ and ρ; stop and γ belong to the page and stay as they
        are, so `self` should have tables wide enough for the new pages.
        """
        index = (self.starts[rows][:, None] + ads - 1).ravel()
        return replace(
            self,
            theta=self.theta[index],
            rho=self.rho[index],
            starts=np.arange(len(rows) + 1) * ads.shape[1],
            table=self.table[rows],
            overlap=None
            if self.overlap is None
            else self.overlap[rows[:, None, None], ads[:, :, None] - 1, ads[:, None, :] - 1],
        )

    def step_tables(self) -> StepTables:
        """The parameters as the kernels of `step.py` read them."""
        return self._step_tables

    @cached_property
    def _step_tables(self) -> StepTables:
        stop, gamma, table, steps = self._page_tables()
        return single_component(
            VARIANTS[self.variant], self.theta, self.rho, stop, gamma, table, self.starts, steps
        )

    def _page_tables(self) -> tuple[Float64, Float64, Int64, Float64 | None]:
        """Stop, gamma, the row of each page in them, and redundancy; with it, a row per page."""
        if self.overlap is None or not self.has_redundancy:
            return self.stop, self.gamma, self.table, None
        steps = pack_redundancy(self.redundancy, self.overlap)
        return self.stop[self.table], self.gamma[self.table], np.arange(len(self)), steps

    @cached_property
    def _click_prob(self) -> Float64:
        """The result of `click_prob`, which `satisfaction_prob` needs too."""
        longest = check_page_length(self.starts)
        if longest >= DEDUPLICATED_ADS and not self.has_redundancy:
            return self._click_prob_of_distinct()
        return self._marginals(longest)

    def _marginals(self, longest: int) -> Float64:
        out = np.empty(len(self.theta))
        reach = np.empty((1 << longest) * (longest + 1))
        _, theta, rho, stop, gamma, steps, row, starts, _ = self._step_tables
        choice_marginals(
            VARIANTS[self.variant],
            theta[0],
            rho[0],
            stop,
            gamma,
            row[0],
            starts,
            reach,
            np.empty(longest),
            np.empty(longest),
            steps,
            out,
        )
        return out

    def _click_prob_of_distinct(self) -> Float64:
        """The result of `click_prob`, computed once for equal pages."""
        first, group = distinct_pages(self.starts, self.theta, self.rho, table=self.table)
        distinct = self.select(first)
        marginals = distinct._marginals(longest_run(self.starts))
        page, position = run_of_elements(self.starts), positions_in_runs(self.starts)
        return np.asarray(marginals[distinct.starts[group][page] + position])
