"""What a fitted model says of one part of a log: everything the metrics ask, worked out once, when it is first asked."""

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


class Ranked(NamedTuple):
    """The sessions of one number of clicks, and how they stand."""

    sessions: Int64  # rows of the part
    standings: Standings


class PartAnswers:
    """A part of a log beside what the model expected of it. Any question may raise CannotAnswerError."""

    def __init__(self, model: ClickModel, part: SessionBatch, pages: Pages) -> None:
        self.part = part
        self._model = model
        self._pages = pages
        self._ranked: dict[int, Ranked] = {}

    def __len__(self) -> int:
        return len(self.part)

    # what was seen

    @cached_property
    def weight(self) -> Float64:
        """How often each session counts [session]."""
        return np.ones(len(self.part)) if self.part.weight is None else self.part.weight

    @cached_property
    def ads(self) -> Int64:
        """The ads on each page [session]."""
        return np.diff(self.part.page)

    @cached_property
    def many(self) -> Int64:
        """The clicks of each session [session]."""
        return np.diff(self.part.clicks)

    @cached_property
    def clicked(self) -> Mask:
        """Whether each ad was clicked [impression]."""
        out = np.zeros(len(self.part.ad), np.bool_)
        out[np.repeat(self.part.page[:-1], self.many) + self.part.click - 1] = True
        return out

    @cached_property
    def reverse(self) -> Mask:
        """Whether each session goes back up the page anywhere [session]."""
        session = np.repeat(np.arange(len(self.part)), self.many)
        back = (session[1:] == session[:-1]) & (self.part.click[1:] < self.part.click[:-1])
        out = np.zeros(len(self.part), np.bool_)
        out[session[1:][back]] = True
        return out

    # what the model says of it

    @cached_property
    def log_prob(self) -> Float64:
        """Log-probability of the clicks in their order [session]."""
        return log_probs(self._pages, self.part.click, self.part.clicks)

    @cached_property
    def log_set_prob(self) -> Float64:
        """Log-probability of the clicks in whatever order [session]."""
        return log_set_probs(self._pages, self.part.click, self.part.clicks)

    @cached_property
    def marginals(self) -> Float64:
        """Probability of a click on each ad [impression]."""
        return np.clip(self._model.marginals(self.part, self._pages), 0.0, 1.0)

    @cached_property
    def log2_marginals(self) -> Float64:
        """C log2 q + (1 − C) log2(1 − q) of each ad's click C and its probability q [impression]."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log2(np.where(self.clicked, self.marginals, 1.0 - self.marginals)))

    @cached_property
    def first_hits(self) -> Float64:
        """Whether the first click is where the model thinks it likeliest [session], shared among ties; 0 where there is no click."""
        none = np.zeros(len(self.part) + 1, np.int64)
        none.flags.writeable = False
        chance, _ = next_click_probs(self._pages, NO_CLICK, none)
        best = np.maximum.reduceat(chance, self.part.page[:-1])  # [session]
        tied = chance >= np.repeat(best, self.ads) * (1.0 - TIE)
        out, clicked = np.zeros(len(self.part)), self.many > 0
        first = self.part.page[:-1][clicked] + self.part.click[self.part.clicks[:-1][clicked]] - 1
        out[clicked] = (
            tied[first] / np.add.reduceat(tied, self.part.page[:-1], dtype=np.int64)[clicked]
        )
        return out

    def ranked(self, clicks: int) -> Ranked:
        """The sessions with so many clicks, and how they stand among all sequences as long."""
        if clicks not in self._ranked:
            sessions = np.flatnonzero(self.many == clicks)
            self._ranked[clicks] = Ranked(
                sessions, standings(self._pages, self.part.click, self.part.clicks, sessions)
            )
        return self._ranked[clicks]
