"""AM: users click the ads by attractiveness, the most attractive first; how many they click is learnt from its frequency."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from reclick.clicks.choice import LEFTOVER
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.pair_index import Asked
from reclick.fitting.posterior import Beliefs
from reclick.models.base import ClickModel
from reclick.models.batching import padded, stacked
from reclick.models.icm import word_belief
from reclick.models.inputs import with_clicks
from reclick.models.pm import click_numbers, next_of_own, steps, stops
from reclick.models.settings import check_range
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex


class AM(ClickModel):
    """Clicks go by attractiveness θ(q, d) from words, descending, ties from the top: that one sequence of m clicks has P(m clicks | page of n ads).

    P(m | n) is PM's, with the same `number_strength`; θ, `frequent` and `word_strength` are ICM's. Every other sequence has probability 0, and after
    clicks that are not the model's own it has nothing to say: no next click. Exact on pages of any length.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[2], [], [2], [2, 1]]}
    >>> AM(number_strength=0).fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]})
    array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "am"
    assumes: ClassVar[str] = "clicks go from the most attractive ad down; words attract"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255 (a baseline)"
    counts_suffice: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    pair_values: ClassVar[tuple[str, ...]] = ("theta_",)
    shared_values: ClassVar[tuple[str, ...]] = ("numbers_", "pooled_")

    def __init__(
        self, *, number_strength: float = 1.0, frequent: float = 50, word_strength: float = 0.0
    ) -> None:
        for name, value in (
            ("number_strength", number_strength),
            ("frequent", frequent),
            ("word_strength", word_strength),
        ):
            check_range(name, value, 0, sys.float_info.max)
        self.number_strength = number_strength
        self.frequent = frequent
        self.word_strength = word_strength

    def _learn(self, data: Counts, history: Counts | None, text: AdTokens | None) -> None:
        self._pairs = self._index(data, text)
        self.theta_ = np.ascontiguousarray(self._pairs.words.of_pairs()[:, 0])
        self.numbers_, self.pooled_ = click_numbers(data, history, self.number_strength)

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)

        def pages(start: int, end: int) -> Pages:
            part = batch.slice(start, end)
            stop, table = stops(
                np.diff(part.page), self.numbers_, self.pooled_, self.number_strength
            )
            order = np.argsort(
                -padded(part, theta[batch.page[start] : batch.page[end]]), axis=1, kind="stable"
            )  # [session, step], the page's first
            last = np.pad(order[:, :-1] + 1, ((0, 0), (1, 0)))
            gamma = np.zeros((len(part), order.shape[1] + 1, order.shape[1]))
            gamma[np.arange(len(part))[:, None], last, order] = 1.0
            return Pages(
                LEFTOVER,
                np.ones(len(part.ad)),
                np.zeros(len(part.ad)),
                stop[table],
                gamma,
                part.page,
                np.arange(len(part)),
            )

        return pages

    # the verbs that need no search among sets of clicks, there being one sequence of each length

    def marginals(self, part: SessionBatch, pages: Pages) -> Float64:
        """As every model's: P(click on the k-th most attractive ad) = P(k clicks or more)."""
        table = _click_prob(part, pages)
        return np.asarray(table[~np.isnan(table)])

    def log_set_prob(self, sessions: object) -> Float64:
        """As every model's: that of the number of clicks m where they are on the m most attractive ads, else −inf."""
        return np.concatenate([np.zeros(0), *self.answers(sessions, _log_set_prob, clicks=True)])

    def next_click_prob(
        self, pages: object, clicks: Sequence[Sequence[int]] | None = None
    ) -> Float64:
        """As every model's; zeros after clicks that do not go by attractiveness, which the model holds impossible."""
        return stacked(self.answers(with_clicks(pages, clicks), _next_click_prob))

    def _beliefs(self, asked: Asked) -> Beliefs:
        return Beliefs(word_belief(asked))


def _order(pages: Pages) -> Int64:
    """The position, from 1, of each click in turn [page, step]; beyond the page, those that only longer pages have."""
    ahead = pages.gamma.argmax(axis=2) + 1  # [page, last]
    order = np.zeros((len(ahead), ahead.shape[1]), np.int64)  # [page, step + 1] after the start, 0
    for k in range(1, ahead.shape[1]):
        order[:, k] = ahead[np.arange(len(ahead)), order[:, k - 1]]
    return order[:, 1:]


def _click_prob(part: SessionBatch, pages: Pages) -> Float64:
    reached = np.cumprod(1 - pages.stop[:, :-1], axis=1)  # [page, step] P(a click at this step)
    out = np.empty_like(reached)
    np.put_along_axis(out, _order(pages) - 1, reached, axis=1)
    out[np.arange(reached.shape[1]) >= np.diff(part.page)[:, None]] = np.nan
    return out


def _log_set_prob(part: SessionBatch, pages: Pages) -> Float64:
    order, many = _order(pages), np.diff(part.clicks)
    place = np.argsort(order, axis=1)  # [page, position] when it is clicked
    session = np.repeat(np.arange(len(part)), many)
    strange = np.unique(session[place[session, part.click - 1] >= many[session]])
    reached = np.cumprod(
        np.pad(1 - pages.stop[:, :-1], ((0, 0), (1, 0)), constant_values=1.0), axis=1
    )  # [page, k] P(k clicks or more)
    chance = np.take_along_axis(reached * pages.stop, many[:, None], axis=1)[:, 0]
    chance[strange] = 0.0
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(chance))


def _next_click_prob(part: SessionBatch, pages: Pages) -> Float64:
    session = np.repeat(np.arange(len(part)), np.diff(part.clicks))
    return next_of_own(part, pages, _order(pages)[session, steps(part)])
