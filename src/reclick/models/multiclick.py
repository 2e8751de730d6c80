"""MultiClick: the click model of arXiv 1401.0255, fitted by counting.

Before click k + 1, the last click being at l: satisfied by it with probability ρ(q, d_l), tired with probability η_k, or else a click on a position
j not clicked yet with propensity θ(q, d_j) · γ(l, j). The three readings of "propensity" are in reclick.clicks.choice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import READINGS
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts, as_counts
from reclick.data.pair_index import Asked
from reclick.fitting.posterior import Belief, Beliefs
from reclick.models.base import ClickModel
from reclick.models.batching import padded, stacked
from reclick.models.icm import word_belief
from reclick.models.inputs import newer_text, text_given, with_clicks
from reclick.models.kernels.stops_and_transitions import Habits, QueryEvents, estimate
from reclick.models.persistence import saved_counts
from reclick.models.settings import check_choice, check_range
from reclick.runtime.progress import Progress
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex

POOLINGS = ("query", "global")


class MultiClick(ClickModel):
    """Several clicks in any order: attractiveness from words, satisfaction after a click, fatigue, and where the eye goes next.

    Settings: `reading` and `pooling` as in the docs; `strength`, pseudo-sessions of the prior of fatigue and transitions; `satisfaction_strength`,
    pseudo-clicks of the prior of satisfaction (0: the paper's formula); `frequent`, sessions from which a query has word rates of its own;
    `word_strength`, pseudo-impressions of the prior of each word's rate (0: the paper's formula); `floor`, how near to 0 the probability of an event
    that was never seen may come.

    >>> log = {"query": ["pizza"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}
    >>> MultiClick().fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]}).round(3)
    array([[0.237, 0.121]])
    """

    name: ClassVar[str] = "multiclick"
    assumes: ClassVar[str] = "clicks in any order; words attract; a click may satisfy; users tire"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255"
    counts_suffice: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    satisfaction: ClassVar[bool] = True

    def __init__(
        self,
        *,
        reading: str = "leftover",
        pooling: str = "query",
        strength: float = 10.0,
        satisfaction_strength: float = 10.0,
        frequent: float = 50,
        word_strength: float = 0.0,
        floor: float = 1e-6,
    ) -> None:
        check_choice("reading", reading, [name for name in READINGS if name != "luce"])
        check_choice("pooling", pooling, POOLINGS)
        amounts = {
            "strength": strength,
            "satisfaction_strength": satisfaction_strength,
            "frequent": frequent,
            "word_strength": word_strength,
        }
        for name, value in amounts.items():
            check_range(name, value, 0, sys.float_info.max)
        check_range("floor", floor, 1e-12, 0.1)
        self.reading = reading
        self.pooling = pooling
        self.strength = strength
        self.satisfaction_strength = satisfaction_strength
        self.frequent = frequent
        self.word_strength = word_strength
        self.floor = floor

    # fitting

    def _learn(self, data: Counts, history: Counts | None, text: AdTokens | None) -> None:
        self._derive(data, None if history is None else _prior(history, self.floor), text)

    def update(
        self,
        sessions: object = None,
        *,
        forget: object = None,
        decay: float = 1.0,
        ads: object = None,
        progress: Progress | None = None,
    ) -> Self:
        """Add new sessions to what was counted, after letting it fade by `decay`, and take `forget` away: the rest is not read again."""
        self._check_fitted()
        counts = self.counts_ if decay == 1.0 else self.counts_.decay(decay)
        if sessions is not None:
            counts = counts + as_counts(sessions, progress=progress)
        if forget is not None:
            counts = counts - as_counts(forget, progress=progress)
        return self._become(
            self.clone()._derive(
                counts, self._history, newer_text(self._pairs.text, text_given(sessions, ads))
            )
        )

    def _derive(
        self, counts: Counts, history: tuple[Habits, float] | None, text: AdTokens | None
    ) -> Self:
        """Everything that follows from the counts, the prior and the text; loading a model runs the same code."""
        prior, satisfied = history or _prior(counts, self.floor)
        self._history = history
        self.counts_ = counts
        base = (
            prior
            if self.pooling == "query"
            else estimate(counts, prior=prior, strength=self.strength, floor=self.floor)
        )
        self.eta_, self.gamma_ = base.eta, base.gamma
        self.satisfaction_ = satisfied
        self._base = base
        self._events = (
            QueryEvents.of(counts)
            if self.pooling == "query"
            else QueryEvents.none(len(counts.queries))
        )
        self._pairs = self._index(counts, text)
        self._theta = np.ascontiguousarray(self._pairs.words.of_pairs()[:, 0])  # [pair]
        self._rho = self._satisfaction(counts.last_clicks, counts.clicks)  # [pair]
        return self

    def _satisfaction(self, last: Float64, clicks: Float64) -> Float64:
        """ρ = (κ' + a) / (κ' + κ + a + b); the prior mean for an ad never clicked."""
        total = clicks + self.satisfaction_strength
        shrunk = (last + self.satisfaction_strength * self.satisfaction_) / np.where(
            total > 0, total, 1
        )
        return np.asarray(np.where(total > 0, shrunk, self.satisfaction_))

    # answers

    @property
    def advice(self) -> str:
        """The printed reading under-predicts; say so."""
        if self.reading == "normalised":
            return ""
        return f"reading={self.reading} gives click probabilities far too low, though well ordered; those of reading=normalised are near the log's."

    def query_habits(self, query: str, length: int | None = None) -> Habits:
        """Fatigue η and transitions γ of one query, for pages of up to `length` ads; an unseen query gets `eta_` and `gamma_`."""
        self._check_fitted()
        code = np.array([self._pairs.query_code(query)])
        eta, gamma = self._events.habits_of(
            code, self._base, self.strength, length or self.gamma_.shape[1]
        )
        return Habits(eta[0], gamma[0])

    def instantaneous_attractiveness(
        self, pages: object, clicks: Sequence[Sequence[int]] | None = None
    ) -> Float64:
        """θ (1 − η_k) (1 − ρ) of the ads left after the k clicks so far [session, position]: the externality of what was clicked; else nan."""
        log = with_clicks(pages, clicks)
        return stacked(self.answers(log, _instantaneous))

    def _beliefs(self, asked: Asked) -> Beliefs:
        """Of θ, a Beta matched to the mean of its words' Jeffreys posteriors, taken as fully dependent (so rather wide); of ρ, its Beta."""
        counts = self.counts_
        clicks, last = (
            self._pairs.at(counts.clicks, asked.row, 0.0),
            self._pairs.at(counts.last_clicks, asked.row, 0.0),
        )
        rho = self._satisfaction(last, clicks)
        return Beliefs(
            attractiveness=word_belief(asked),
            satisfaction=Belief(rho, rho, clicks + self.satisfaction_strength),
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        found = self._pairs.find(batch)
        query = found.query
        theta = self._pairs.filled(self._theta, batch, found, text)
        rho = self._pairs.at(self._rho, found.row, self.satisfaction_)
        np.maximum(theta, self.floor, out=theta)
        np.minimum(rho, 1 - self.floor, out=rho)

        def pages(start: int, end: int) -> Pages:
            first, last = batch.page[start], batch.page[end]
            length = int(np.diff(batch.page[start : end + 1]).max(initial=1))
            distinct, table = np.unique(query[start:end], return_inverse=True)
            eta, gamma = self._events.habits_of(
                distinct.astype(np.int64), self._base, self.strength, length
            )
            offsets = batch.page[start : end + 1] - first
            return Pages(
                READINGS[self.reading],
                theta[first:last],
                rho[first:last],
                eta,
                gamma,
                offsets,
                table.astype(np.int64),
            )

        return pages

    # saving

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        _, tables = super()._to_tables()
        if self._history is None:
            return {"history": None}, tables
        habits, satisfied = self._history
        return {
            "history": {
                "eta": habits.eta.tolist(),
                "gamma": habits.gamma.tolist(),
                "satisfaction": satisfied,
            }
        }, tables

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        counts, text = saved_counts(tables)
        saved = values["history"]
        history = (
            None
            if saved is None
            else (
                Habits(np.array(saved["eta"]), np.array(saved["gamma"])),
                float(saved["satisfaction"]),
            )
        )
        return self._derive(counts, history, text)

    def _learnt(self) -> str:
        first = ", ".join(f"{value:.3f}" for value in self.gamma_[0][:4])
        stops = ", ".join(f"{value:.3f}" for value in self.eta_[:4])
        return f"\n  fitted on {self.counts_!r}\n  eta_ = [{stops}, …]  gamma_[0] = [{first}, …]  satisfaction_ = {self.satisfaction_:.3f}"


def _prior(counts: Counts, floor: float) -> tuple[Habits, float]:
    """The counts' own pooled estimate of η, γ and of how often a click is the last; where always or never, as after half a click more each way."""
    last, clicks = float(counts.last_clicks.sum()), float(counts.clicks.sum())
    satisfied = last / clicks if 0 < last < clicks else (last + 0.5) / (clicks + 1)
    return estimate(counts, prior=None, strength=0.0, floor=floor), satisfied


def _instantaneous(part: SessionBatch, pages: Pages) -> Float64:
    theta, rho = padded(part, pages.theta), padded(part, pages.rho)
    many = np.diff(part.clicks)
    clicked = many > 0
    last = part.click[part.clicks[1:][clicked] - 1]
    unsatisfied = np.ones(len(part))
    unsatisfied[clicked] = 1 - rho[clicked, last - 1]
    theta[np.repeat(np.arange(len(part)), many), part.click - 1] = np.nan
    return theta * ((1 - pages.stop[pages.table, many]) * unsatisfied)[:, None]
