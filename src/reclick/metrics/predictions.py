"""What a fitted model predicts for one batch of a log; each quantity is computed once, on demand."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reclick.clicks.distribution import (
    Pages,
    Standings,
    log_probs,
    log_set_probs,
    next_click_probs,
    standings,
)
from reclick.clicks.ranks import TIE
from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.models.base import ClickModel

Mask = npt.NDArray[np.bool_]
NO_CLICK: Int32 = np.zeros(0, np.int32)
NO_CLICK.flags.writeable = False  # as a batch's arrays are, so that kernels compile once


class RankedSessions(NamedTuple):
    """The sessions with a given number of clicks, and the ranks of their click sequences."""

    sessions: Int64  # rows of the batch
    ranks: Standings


class BatchPredictions:
    """A batch of sessions and a model's predictions. Any property may raise CannotAnswerError."""

    def __init__(self, model: ClickModel, batch: SessionBatch, pages: Pages) -> None:
        self.batch = batch
        self._model = model
        self._pages = pages
        self._ranked: dict[int, RankedSessions] = {}

    def __len__(self) -> int:
        return len(self.batch)

    # ---- observed

    @cached_property
    def weight(self) -> Float64:
        """The weight of each session [session]."""
        return np.ones(len(self.batch)) if self.batch.weight is None else self.batch.weight

    @cached_property
    def n_ads(self) -> Int64:
        """The ads on each page [session]."""
        return np.diff(self.batch.page)

    @cached_property
    def n_clicks(self) -> Int64:
        """The clicks of each session [session]."""
        return np.diff(self.batch.clicks)

    @cached_property
    def clicked(self) -> Mask:
        """Whether each ad was clicked [impression]."""
        out = np.zeros(len(self.batch.ad), np.bool_)
        out[np.repeat(self.batch.page[:-1], self.n_clicks) + self.batch.click - 1] = True
        return out

    @cached_property
    def reverse(self) -> Mask:
        """Whether any click of a session is above the click before it [session]."""
        session = np.repeat(np.arange(len(self.batch)), self.n_clicks)
        upward = (session[1:] == session[:-1]) & (self.batch.click[1:] < self.batch.click[:-1])
        out = np.zeros(len(self.batch), np.bool_)
        out[session[1:][upward]] = True
        return out

    # ---- predicted

    @cached_property
    def log_prob(self) -> Float64:
        """Log-probability of the clicks in their order [session]."""
        return log_probs(self._pages, self.batch.click, self.batch.clicks)

    @cached_property
    def log_set_prob(self) -> Float64:
        """Log-probability of the clicks in any order [session]."""
        return log_set_probs(self._pages, self.batch.click, self.batch.clicks)

    @cached_property
    def click_prob(self) -> Float64:
        """Probability of a click on each ad [impression]."""
        return np.clip(self._model.marginals(self.batch, self._pages), 0.0, 1.0)

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
        starts, clicked = self.batch.page[:-1], self.n_clicks > 0
        chance = self._first_click_prob()
        highest = np.maximum.reduceat(chance, starts)  # [session]
        tied = chance >= np.repeat(highest, self.n_ads) * (1.0 - TIE)
        n_tied = np.add.reduceat(tied, starts, dtype=np.int64)
        first = starts[clicked] + self.batch.click[self.batch.clicks[:-1][clicked]] - 1
        out = np.zeros(len(self.batch))
        out[clicked] = tied[first] / n_tied[clicked]
        return out

    def _first_click_prob(self) -> Float64:
        """Probability that each ad is clicked first [impression]."""
        no_clicks = np.zeros(len(self.batch) + 1, np.int64)
        no_clicks.flags.writeable = False
        chance, _ = next_click_probs(self._pages, NO_CLICK, no_clicks)
        return chance

    def rank_sessions(self, n_clicks: int) -> RankedSessions:
        """The sessions with `n_clicks` clicks, ranked among all click sequences of that length."""
        if n_clicks not in self._ranked:
            sessions = np.flatnonzero(self.n_clicks == n_clicks)
            ranks = standings(self._pages, self.batch.click, self.batch.clicks, sessions)
            self._ranked[n_clicks] = RankedSessions(sessions, ranks)
        return self._ranked[n_clicks]
