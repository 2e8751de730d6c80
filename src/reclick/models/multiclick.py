"""MultiClick: the click model of arXiv 1401.0255, fitted by counting.

Before click k + 1, the last click being at l: satisfied by it with probability ρ(q, d_l), tired with probability η_k, or else a click on a position
j not clicked yet with propensity θ(q, d_j) · γ(l, j). The three readings of "propensity" are in reclick.sequences.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from reclick.attractiveness import TextIndex
from reclick.batch import Float64, SessionBatch
from reclick.counts import Counts, Progress, as_counts
from reclick.errors import SettingError
from reclick.intervals import credible_interval, product_beta
from reclick.logs import SessionLog, read_ads
from reclick.models.base import ClickModel, padded, stacked, with_clicks
from reclick.models.habits import Habits, QueryEvents, estimate
from reclick.models.pairs import Pairs
from reclick.sequences import READINGS, Pages
from reclick.text import AdTokens, tokenise

POOLINGS = ("query", "global")


class MultiClick(ClickModel):
    """Several clicks in any order: attractiveness from words, satisfaction after a click, fatigue, and where the eye goes next.

    Settings: `reading` and `pooling` as in the docs; `strength`, pseudo-sessions of the prior of fatigue and transitions; `satisfaction_strength`,
    pseudo-clicks of the prior of satisfaction (0: the paper's formula); `frequent`, sessions from which a query has word rates of its own; `floor`,
    how near to 0 the probability of an event that was never seen may come.

    >>> log = {"query": ["pizza"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}
    >>> MultiClick().fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]}).round(3)
    array([[0.267, 0.13 ]])
    """

    name: ClassVar[str] = "multiclick"
    assumes: ClassVar[str] = "clicks in any order; words attract; a click may satisfy; users tire"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255"

    def __init__(
        self,
        *,
        reading: str = "leftover",
        pooling: str = "query",
        strength: float = 10.0,
        satisfaction_strength: float = 10.0,
        frequent: float = 50,
        floor: float = 1e-6,
    ) -> None:
        _check_choice("reading", reading, [name for name in READINGS if name != "luce"])
        _check_choice("pooling", pooling, POOLINGS)
        for name, value in (("strength", strength), ("satisfaction_strength", satisfaction_strength), ("frequent", frequent)):
            _check_range(name, value, 0, sys.float_info.max)
        _check_range("floor", floor, 1e-12, 0.1)
        self.reading = reading
        self.pooling = pooling
        self.strength = strength
        self.satisfaction_strength = satisfaction_strength
        self.frequent = frequent
        self.floor = floor

    # fitting

    def fit(self, sessions: object, *, history: object = None, ads: object = None, progress: Progress | None = None) -> Self:
        """Count the sessions, and take the priors from `history`, an earlier log (without one, from the sessions themselves).

        `sessions` and `history` may be logs or `Counts`; `ads` is a table with the ads' text, by default the one given to `read_sessions`.
        """
        counts = as_counts(sessions, progress=progress)
        before = None if history is None else as_counts(history, progress=progress)
        return self._learn(counts, None if before is None else _prior(before, self.floor), _text_given(sessions, ads))

    def update(
        self, sessions: object = None, *, forget: object = None, decay: float = 1.0, ads: object = None, progress: Progress | None = None
    ) -> Self:
        """Add new sessions to what was counted, after letting it fade by `decay`, and take `forget` away: the rest is not read again."""
        self._check_fitted()
        counts = self.counts_ if decay == 1.0 else self.counts_.decay(decay)
        if sessions is not None:
            counts = counts + as_counts(sessions, progress=progress)
        if forget is not None:
            counts = counts - as_counts(forget, progress=progress)
        return self._learn(counts, self._history, _newer_text(self._pairs.text, _text_given(sessions, ads)))

    def _learn(self, counts: Counts, history: tuple[Habits, float] | None, text: AdTokens | None) -> Self:
        """Everything that follows from the counts, the prior and the text; loading a model runs the same code."""
        prior, satisfied = history or _prior(counts, self.floor)
        self._history = history
        self.counts_ = counts
        base = prior if self.pooling == "query" else estimate(counts, prior=prior, strength=self.strength, floor=self.floor)
        self.eta_, self.gamma_ = base.eta, base.gamma
        self.satisfaction_ = satisfied
        self._base = base
        self._events = QueryEvents.of(counts) if self.pooling == "query" else QueryEvents.none(len(counts.queries))
        self._pairs = Pairs(counts, text, frequent=self.frequent)
        self._theta = np.ascontiguousarray(self._pairs.words.of_pairs()[:, 0])  # [pair]
        self._rho = self._satisfaction(counts.last_clicks, counts.clicks)  # [pair]
        return self

    def _satisfaction(self, last: Float64, clicks: Float64) -> Float64:
        """ρ = (κ' + a) / (κ' + κ + a + b); the prior mean for an ad never clicked."""
        total = clicks + self.satisfaction_strength
        shrunk = (last + self.satisfaction_strength * self.satisfaction_) / np.where(total > 0, total, 1)
        return np.asarray(np.where(total > 0, shrunk, self.satisfaction_))

    # answers

    def query_habits(self, query: str, length: int | None = None) -> Habits:
        """Fatigue η and transitions γ of one query, for pages of up to `length` ads; an unseen query gets `eta_` and `gamma_`."""
        self._check_fitted()
        code = np.array([self._pairs.query_code(query)])
        eta, gamma = self._events.habits_of(code, self._base, self.strength, length or self.gamma_.shape[1])
        return Habits(eta[0], gamma[0])

    def instantaneous_attractiveness(self, pages: object, clicks: Sequence[Sequence[int]] | None = None) -> Float64:
        """θ (1 − η_k) (1 − ρ) of the ads left after the k clicks so far [session, position]: the externality of what was clicked; else nan."""
        log = with_clicks(pages, clicks)
        return stacked(self.answers(log, _instantaneous))

    def relevance(self, pairs: object = None, *, text: object = None, level: float = 0.9) -> pa.Table:
        """Attractiveness θ, satisfaction ρ and their product for each (query, ad), with credible intervals and the support behind them.

        `pairs` is a table with columns query and ad, by default all pairs of the training log; `text` is an ads table for ads that the model has
        not seen. The intervals hold a share `level` of the posterior, equal tails: of θ, a Beta matched to the mean of the words' Jeffreys
        posteriors, taken as fully dependent (so it is wide rather than narrow); of ρ, its Beta; of the product, a Beta matched to its mean and
        variance.
        """
        self._check_fitted()
        _check_range("level", level, 1e-6, 1 - 1e-6)
        asked, counts = self._pairs.asked(pairs, text), self.counts_
        impressions, clicks, last = (self._pairs.at(total, asked.row, 0.0) for total in (counts.impressions, counts.clicks, counts.last_clicks))
        theta, theta_mean, deviation = asked.words.T
        theta_strength = theta_mean * (1 - theta_mean) / np.maximum(deviation, 1e-12) ** 2 - 1
        rho, rho_strength = self._satisfaction(last, clicks), clicks + self.satisfaction_strength
        columns = {
            "query": asked.queries,
            "ad": asked.ads,
            **_with_interval("attractiveness", theta, credible_interval(theta_mean, theta_strength, level=level)),
        }
        columns |= _with_interval("satisfaction", rho, credible_interval(rho, rho_strength, level=level))
        columns |= _with_interval(
            "relevance", theta * rho, credible_interval(*product_beta(theta_mean, theta_strength, rho, rho_strength), level=level)
        )
        return pa.table({**columns, "impressions": impressions, "clicks": clicks})

    def _context(self, log: SessionLog) -> TextIndex | None:
        return self._pairs.text_for(log)

    def _prepare(self, batch: SessionBatch, context: TextIndex | None) -> Callable[[int, int], Pages]:
        found = self._pairs.find(batch)
        query = found.query
        theta = self._pairs.filled(self._theta, batch, found, context)
        rho = self._pairs.at(self._rho, found.row, self.satisfaction_)
        np.maximum(theta, self.floor, out=theta)
        np.minimum(rho, 1 - self.floor, out=rho)

        def pages(start: int, end: int) -> Pages:
            first, last = batch.page[start], batch.page[end]
            length = int(np.diff(batch.page[start : end + 1]).max(initial=1))
            distinct, table = np.unique(query[start:end], return_inverse=True)
            eta, gamma = self._events.habits_of(distinct.astype(np.int64), self._base, self.strength, length)
            offsets = batch.page[start : end + 1] - first
            return Pages(READINGS[self.reading], theta[first:last], rho[first:last], eta, gamma, offsets, table.astype(np.int64))

        return pages

    # saving

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        tables = {f"counts_{name}": table for name, table in self.counts_.to_tables().items()}
        if self._pairs.text is not None:
            tables |= {f"text_{name}": table for name, table in self._pairs.text.to_tables().items()}
        if self._history is None:
            return {"history": None}, tables
        habits, satisfied = self._history
        return {"history": {"eta": habits.eta.tolist(), "gamma": habits.gamma.tolist(), "satisfaction": satisfied}}, tables

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        counts = Counts.from_tables({name.removeprefix("counts_"): table for name, table in tables.items() if name.startswith("counts_")})
        text = {name.removeprefix("text_"): table for name, table in tables.items() if name.startswith("text_")}
        saved = values["history"]
        history = None if saved is None else (Habits(np.array(saved["eta"]), np.array(saved["gamma"])), float(saved["satisfaction"]))
        return self._learn(counts, history, AdTokens.from_tables(text) if text else None)

    def _learnt(self) -> str:
        first = ", ".join(f"{value:.3f}" for value in self.gamma_[0][:4])
        stops = ", ".join(f"{value:.3f}" for value in self.eta_[:4])
        return f"\n  fitted on {self.counts_!r}\n  eta_ = [{stops}, …]  gamma_[0] = [{first}, …]  satisfaction_ = {self.satisfaction_:.3f}"


def _prior(counts: Counts, floor: float) -> tuple[Habits, float]:
    """The counts' own pooled estimate of η, γ and of how often a click is the last."""
    clicks = counts.clicks.sum()
    return estimate(counts, prior=None, strength=0.0, floor=floor), float(counts.last_clicks.sum() / clicks) if clicks else 0.5


def _text_given(sessions: object, ads: object) -> AdTokens | None:
    """The text of an ads table, or of the one the log was read with."""
    table = read_ads(ads) if ads is not None else sessions.ads if isinstance(sessions, SessionLog) else None
    return None if table is None else tokenise(table)


def _newer_text(old: AdTokens | None, new: AdTokens | None) -> AdTokens | None:
    """The text of all ads; where both have an ad, the newer text of it."""
    if old is None or new is None:
        return new or old
    return TextIndex(new).with_text(old).text


def _instantaneous(part: SessionBatch, pages: Pages) -> Float64:
    theta, rho = padded(part, pages.theta), padded(part, pages.rho)
    many = np.diff(part.clicks)
    clicked = many > 0
    last = part.click[part.clicks[1:][clicked] - 1]
    unsatisfied = np.ones(len(part))
    unsatisfied[clicked] = 1 - rho[clicked, last - 1]
    theta[np.repeat(np.arange(len(part)), many), part.click - 1] = np.nan
    return theta * ((1 - pages.stop[pages.table, many]) * unsatisfied)[:, None]


def _with_interval(name: str, value: Float64, interval: tuple[Float64, Float64]) -> dict[str, Float64]:
    return {name: value, f"{name}_low": interval[0], f"{name}_high": interval[1]}


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise SettingError(f"{name}: got {value!r}, expected one of {', '.join(map(repr, choices))}.")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise SettingError(f"{name}: got {value!r}, expected a number from {low:g} to {high:g}.")
