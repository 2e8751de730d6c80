"""Predictions of a fitted model for a batch of sessions, each computed once on demand."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from reclick.clicks.distribution import Clicks, PageDistribution, SequenceRanks
from reclick.clicks.sequence_search import TIE
from reclick.data.batch import SessionBatch
from reclick.data.ragged import Bool, Float64, Int64, positions_in_runs, run_of_elements
from reclick.fitting.order_table import OrderTable


class RankedSessions(NamedTuple):
    """Sessions with a given number of clicks, and the ranks of their click sequences."""

    sessions: Int64  # rows of the batch
    ranks: SequenceRanks


class BatchPredictions:
    """A batch of sessions and a model's predictions. Any property may raise CannotAnswerError.

    An `order` table gives an order to the clicks of a model without one.
    """

    def __init__(
        self, sessions: SessionBatch, pages: PageDistribution, order: OrderTable | None = None
    ) -> None:
        self.sessions = sessions
        self._clicks = Clicks(sessions.click, sessions.clicks)
        self._pages = pages
        self._order = order
        self._rankings: dict[int, RankedSessions] = {}

    def __len__(self) -> int:
        return len(self.sessions)

    # ---- observed

    @cached_property
    def weight(self) -> Float64:
        """The weight of each session [session]."""
        return np.ones(len(self.sessions)) if self.sessions.weight is None else self.sessions.weight

    @cached_property
    def n_ads(self) -> Int64:
        """The ads on each page [session]."""
        return np.diff(self.sessions.page)

    @cached_property
    def n_clicks(self) -> Int64:
        """The clicks of each session [session]."""
        return np.diff(self.sessions.clicks)

    @cached_property
    def clicked(self) -> Bool:
        """Whether each ad was clicked [impression]."""
        out = np.zeros(len(self.sessions.ad), np.bool_)
        out[np.repeat(self.sessions.page[:-1], self.n_clicks) + self.sessions.click - 1] = True
        return out

    @cached_property
    def reverse(self) -> Bool:
        """Whether any click of a session is above the click before it [session]."""
        return np.asarray(self.backward > 0)

    @cached_property
    def backward(self) -> Int64:
        """The number of moves up the page [session]."""
        session = run_of_elements(self.sessions.clicks)
        upward = (session[1:] == session[:-1]) & (
            self.sessions.click[1:] < self.sessions.click[:-1]
        )
        return np.bincount(session[1:][upward], minlength=len(self))

    # ---- predicted

    @cached_property
    def log_prob(self) -> Float64:
        """Log-probability of the clicks in their order [session]: P(set) P(order | set) by a table.

        Without a table, the log-probability by the model.
        """
        if self._order is None:
            return self.own_log_prob
        return self.log_set_prob + self._order.log_order_prob(self._clicks)

    @cached_property
    def own_log_prob(self) -> Float64:
        """Log-probability of the clicks in their order by the model alone [session]."""
        return self._pages.log_prob(self._clicks)

    @cached_property
    def log_set_prob(self) -> Float64:
        """Log-probability of the clicks in any order [session]."""
        return self._pages.log_set_prob(self._clicks)

    @cached_property
    def click_prob(self) -> Float64:
        """Probability of a click on each ad [impression]."""
        return np.clip(self._pages.click_prob(), 0.0, 1.0)

    @cached_property
    def log2_outcome_prob(self) -> Float64:
        """C log2 q + (1 − C) log2(1 − q) for each ad's click C of probability q [impression]."""
        with np.errstate(divide="ignore"):
            outcome = np.where(self.clicked, self.click_prob, 1.0 - self.click_prob)
            return np.asarray(np.log2(outcome))

    @cached_property
    def first_click_hit(self) -> Float64:
        """Whether the first click is the most likely one [session]; 1/k for one of k tied ads.

        0 where there is no click.
        """
        starts, has_click = self.sessions.page[:-1], self.n_clicks > 0
        chance = self._first_click_prob()
        highest = np.maximum.reduceat(chance, starts)  # [session]
        is_tied = chance >= np.repeat(highest, self.n_ads) * (1.0 - TIE)
        n_tied = np.add.reduceat(is_tied, starts, dtype=np.int64)
        first = starts[has_click] + self.sessions.click[self.sessions.clicks[:-1][has_click]] - 1
        out = np.zeros(len(self.sessions))
        out[has_click] = is_tied[first] / n_tied[has_click]
        return out

    def _first_click_prob(self) -> Float64:
        """Probability that each ad is clicked first [impression]."""
        none = Clicks(np.zeros(0, np.int32), np.zeros(len(self.sessions) + 1, np.int64))
        chance, _ = self._pages.next_click_prob(none)
        return chance

    @cached_property
    def several(self) -> Int64:
        """The sessions with two or more clicks [row]."""
        return np.flatnonzero(self.n_clicks > 1)

    @cached_property
    def log_order_outcome(self) -> Float64:
        """Log P(clicks go down the page, or not, as observed | the click set) [several]."""
        rows, reverse = self.several, self.reverse[self.several]
        clicks = self._clicks.select(rows)
        order = np.lexsort((clicks.click, clicks.session))
        downwards = clicks._replace(click=clicks.click[order])
        if self._order is not None:
            log_down = self._order.log_order_prob(downwards)
        else:
            log_set = self.log_set_prob[rows]
            possible = np.isfinite(log_set)
            log_down = np.full(len(rows), -np.inf)
            log_prob = self._pages.select(rows).log_prob(downwards)
            log_down[possible] = np.minimum(log_prob[possible] - log_set[possible], 0.0)
        with np.errstate(divide="ignore"):
            return np.where(reverse, np.log(-np.expm1(log_down)), log_down)

    @cached_property
    def expected_backward(self) -> Float64:
        """Expected moves up the page [session].

        Σ over clicks except the last: P(next click above | clicks so far, there is a next one).
        """
        out = np.zeros(len(self))
        for k in range(1, int(self.n_clicks.max(initial=0))):
            rows = np.flatnonzero(self.n_clicks > k)
            pages, clicks = self._pages.select(rows), self._clicks.select(rows)
            first = clicks.starts[:-1]
            so_far = Clicks(
                clicks.click[(first[:, None] + np.arange(k)).ravel()], np.arange(len(rows) + 1) * k
            )
            next_prob, _ = pages.next_click_prob(so_far)
            last = np.repeat(so_far.last(), np.diff(pages.starts))
            above = positions_in_runs(pages.starts) + 1 < last
            up, any_next = (
                np.add.reduceat(values, pages.starts[:-1])
                for values in (np.where(above, next_prob, 0.0), next_prob)
            )
            out[rows] += np.divide(up, any_next, out=np.zeros(len(rows)), where=any_next > 0)
        return out

    def rank_sessions(self, n_clicks: int) -> RankedSessions:
        """The sessions with `n_clicks` clicks, ranked among all click sequences of that length."""
        if n_clicks not in self._rankings:
            sessions = np.flatnonzero(self.n_clicks == n_clicks)
            ranks = self._pages.ranks(self._clicks, sessions)
            self._rankings[n_clicks] = RankedSessions(sessions, ranks)
        return self._rankings[n_clicks]
