"""A chain: clicks go down the page, and the next one depends on the last one alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import Clicks, StepwisePages
from reclick.clicks.step import CHAIN, StepTables, single_component
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.ragged import positions_in_runs, read_only, run_indices, run_of_elements
from reclick.runtime.jit import kernel

PROBABILITY_MARGIN = 1e-9  # nothing is certain: a pair clicked 1 time of 1 may go unclicked
FillChain = Callable[..., None]  # fill(page, *impressions, *pages, *shared, next, end)


@dataclass(frozen=True, slots=True)
class ChainPages(StepwisePages):
    """Pages with a table of P(next click | last click); the rest ends the session.

    P(end) is stored rather than computed as 1 − Σ, which would lose precision when it is tiny.
    Results are exact for pages of any length.
    """

    next_click: Float64  # [table, last, position] P(next click); 0 above the last click
    end: Float64  # [table, last] P(no further click)
    starts: Int64  # [page + 1]
    table: Int64  # [page]
    satisfaction: Float64 | None = None  # [impression] P(satisfied | clicked), or none

    def log_prob(self, clicks: Clicks) -> Float64:
        """Log-probability of exactly these clicks in this order [page]."""
        with np.errstate(divide="ignore"):
            ends = np.log(self.end[self.table, clicks.last()])
        return np.asarray(ends + self._log_prefix(clicks))

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log-probability that exactly these positions are clicked, in the only possible order."""
        order = np.lexsort((clicks.click, clicks.session))
        return self.log_prob(clicks._replace(click=clicks.click[order]))

    def _log_prefix(self, clicks: Clicks) -> Float64:
        session = clicks.session
        last = np.zeros(len(clicks.click) + 1, np.int64)
        last[1:] = clicks.click
        last[clicks.starts[:-1]] = 0  # the first click of a session comes after the start
        with np.errstate(divide="ignore"):
            chance = np.log(self.next_click[self.table[session], last[:-1], clicks.click - 1])
        return np.bincount(session, chance, len(self)).astype(np.float64)

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]."""
        out = np.empty(self.starts[-1])
        _chain_marginals(
            read_only(self.next_click), read_only(self.table), read_only(self.starts), out
        )
        return out

    def follow(self, clicks: Clicks) -> tuple[Float64, Float64, Float64]:
        """P(next click), P(end), and log P(the first clicks are these).

        The next click is below all clicks so far, in whatever order these are listed.
        """
        last = np.zeros(len(self), np.int64)
        np.maximum.at(last, clicks.session, clicks.click)
        page = run_of_elements(self.starts)
        return (
            self.next_click[self.table[page], last[page], positions_in_runs(self.starts)],
            self.end[self.table, last],
            self._log_prefix(clicks),
        )

    def satisfaction_prob(self) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [page]."""
        if self.satisfaction is None:
            return StepwisePages.satisfaction_prob(self)
        return np.add.reduceat(self.click_prob() * self.satisfaction, self.starts[:-1])

    def select(self, rows: Int64) -> Self:
        """The pages `rows`, in this order."""
        index, starts = run_indices(self.starts, rows)
        satisfaction = None if self.satisfaction is None else self.satisfaction[index]
        return replace(self, starts=starts, table=self.table[rows], satisfaction=satisfaction)

    def step_tables(self) -> StepTables:
        """The parameters as the kernels of `step.py` read them."""
        unused = np.zeros(self.starts[-1])
        return single_component(
            CHAIN, unused, unused, self.end, self.next_click, self.table, self.starts
        )


@kernel
def _chain_marginals(next_click: Float64, table: Int64, starts: Int64, out: Float64) -> None:
    """P(click at j) = Σ over the click before it, or the start."""
    for s in range(len(table)):
        first, row = starts[s], table[s]
        for j in range(starts[s + 1] - first):
            total = next_click[row, 0, j]
            for i in range(j):
                total += out[first + i] * next_click[row, i + 1, j]
            out[first + j] = total


@kernel
def fill_independent_chain(page: Int64, chance: Float64, out: Float64, end: Float64) -> None:
    """F[l, j] = p_j Π_{l < i < j} (1 − p_i): positions are clicked independently, with p."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        for last in range(n + 1):
            no_click = 1.0
            for j in range(last, n):
                out[s, last, j] = no_click * chance[page[s] + j]
                no_click *= 1.0 - chance[page[s] + j]
            end[s, last] = no_click


def chain_pages(
    batch: SessionBatch,
    fill: FillChain,
    impressions: Sequence[Float64],
    shared: Sequence[Any] = (),
    pages: Sequence[Float64] = (),
    satisfaction: Float64 | None = None,
) -> Callable[[int, int], ChainPages]:
    """Make the page distributions of a model with chains, as `_page_distribution` returns them.

    `fill` writes P(next click) [page, last, position] and P(end) [page, last] from probabilities
    of impressions, from values of pages, and from shared values. `satisfaction` is
    P(satisfied | clicked) [impression].
    """
    return partial(_fill_pages, batch, fill, impressions, pages, shared, satisfaction)


def _fill_pages(
    batch: SessionBatch,
    fill: FillChain,
    impressions: Sequence[Float64],
    pages: Sequence[Float64],
    shared: Sequence[Any],
    satisfaction: Float64 | None,
    start: int,
    end: int,
) -> ChainPages:
    first, last = int(batch.page[start]), int(batch.page[end])
    starts = batch.page[start : end + 1] - first
    length = int(np.diff(starts).max(initial=1))
    next_click, ends = (
        np.zeros((end - start, length + 1, length)),
        np.ones((end - start, length + 1)),
    )
    values = (
        np.clip(each[first:last], PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
        for each in impressions
    )
    page_values = (each[start:end] for each in pages)
    fill(starts, *values, *page_values, *shared, next_click, ends)
    page_satisfaction = None if satisfaction is None else satisfaction[first:last]
    return ChainPages(next_click, ends, starts, np.arange(end - start), page_satisfaction)


@dataclass(frozen=True, slots=True)
class FixedOrderPages(ChoicePages):
    """Pages with one sequence of each length: the first k positions of a fixed order.

    A choice with θ = 1, ρ = 0 and a γ that allows one next position. Exact for any page length.
    After clicks that do not follow the order it has no next click.
    """

    @classmethod
    def build(cls, order: Int64, stop: Float64, starts: Int64, table: Int64) -> Self:
        """From the order of the positions [table, step] and P(no further click) [table, clicks].

        Positions count from 0; what lies beyond the page comes last.
        """
        tables, length = order.shape
        last = np.pad(order[:, :-1] + 1, ((0, 0), (1, 0)))
        gamma = np.zeros((tables, length + 1, length))
        gamma[np.arange(tables)[:, None], last, order] = 1.0
        theta, rho = np.ones(starts[-1]), np.zeros(starts[-1])
        return cls("paper", theta, rho, stop, gamma, starts, table)

    @property
    def order(self) -> Int64:
        """The position, from 1, of each click in turn [page, step]."""
        following = self.gamma[self.table].argmax(axis=2) + 1  # [page, last]
        order = np.zeros(following.shape, np.int64)
        for k in range(1, following.shape[1]):
            order[:, k] = following[np.arange(len(following)), order[:, k - 1]]
        return order[:, 1:]

    def click_prob(self) -> Float64:
        """P(click on the k-th of the order) = P(k clicks or more) [impression]."""
        reached = np.cumprod(1 - self.stop[self.table, :-1], axis=1)  # [page, step]
        out = np.empty_like(reached)
        np.put_along_axis(out, self.order - 1, reached, axis=1)
        return np.asarray(out[np.arange(out.shape[1]) < np.diff(self.starts)[:, None]])

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log P(m clicks) if the clicks are the first m positions of the order, else −inf."""
        counts, session, stop = clicks.counts, clicks.session, self.stop[self.table]
        step = np.argsort(self.order, axis=1)  # [page, position]
        reached = np.cumprod(
            np.pad(1 - stop[:, :-1], ((0, 0), (1, 0)), constant_values=1.0), axis=1
        )
        chance = np.take_along_axis(reached * stop, counts[:, None], axis=1)[:, 0]
        chance[session[step[session, clicks.click - 1] >= counts[session]]] = 0.0
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(chance))

    def follow(self, clicks: Clicks) -> tuple[Float64, Float64, Float64]:
        """P(next click), P(end), and log P(the first clicks are these)."""
        following, end, log_prefix = ChoicePages.follow(self, clicks)
        session = clicks.session
        expected = self.order[session, positions_in_runs(clicks.starts)]
        is_other = np.zeros(len(self), np.bool_)
        is_other[session[clicks.click != expected]] = True
        following[np.repeat(is_other, np.diff(self.starts))] = 0.0
        return following, end, log_prefix

    def satisfaction_prob(self) -> Float64:
        """Raise `CannotAnswerError`: these pages have no satisfaction."""
        return StepwisePages.satisfaction_prob(self)
