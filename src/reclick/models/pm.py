"""PM: users click from the top, one ad after the other; only how many they click is learnt. Here too is what PM and AM share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from reclick.clicks.choice import CHAIN
from reclick.clicks.distribution import Pages, next_click_probs
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.pair_index import Asked
from reclick.errors import CannotAnswerError
from reclick.fitting.posterior import Beliefs
from reclick.fitting.priors import posterior
from reclick.models.base import ClickModel
from reclick.models.batching import padded, stacked
from reclick.models.inputs import with_clicks
from reclick.models.settings import check_range
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex


class PM(ClickModel):
    """The k-th click is at position k: P(1, 2, …, m) = P(m clicks | page of n ads), and any other sequence has probability 0.

    P(m | n) = (sessions with m clicks on n ads + s P₀(m)) / (sessions on n ads + s). P₀ is the same over pages of all lengths, numbers beyond the
    page left out, and its own prior is uniform; a page length never seen gets P₀. With a history both are first the history's alone, and its P(m | n)
    then takes the place of P₀ in the log's. s is `number_strength`, in sessions: with 0 a number never seen is impossible. After clicks that are not
    the model's own it has nothing to say: no next click.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2], [2, 1]]}
    >>> PM(number_strength=0).fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]})
    array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "pm"
    attractiveness: ClassVar[bool] = False
    assumes: ClassVar[str] = "the k-th click is at position k"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255 (a baseline)"
    counts_suffice: ClassVar[bool] = True
    shared_values: ClassVar[tuple[str, ...]] = ("numbers_", "pooled_")

    def __init__(self, *, number_strength: float = 1.0) -> None:
        check_range("number_strength", number_strength, 0, sys.float_info.max)
        self.number_strength = number_strength

    def _learn(self, data: Counts, history: Counts | None, text: AdTokens | None) -> None:
        self._pairs = self._index(data, text)
        self.numbers_, self.pooled_ = click_numbers(data, history, self.number_strength)

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        def pages(start: int, end: int) -> Pages:
            page = batch.page[start : end + 1] - batch.page[start]
            stop, table = stops(np.diff(page), self.numbers_, self.pooled_, self.number_strength)
            longest = stop.shape[1] - 1
            chances = np.zeros((len(stop), longest + 1, longest))  # [length, last, position]
            below = np.arange(longest)
            chances[:, below, below] = 1 - stop[:, :longest]
            return Pages(CHAIN, np.ones(page[-1]), np.zeros(page[-1]), stop, chances, page, table)

        return pages

    def next_click_prob(
        self, pages: object, clicks: Sequence[Sequence[int]] | None = None
    ) -> Float64:
        """As every model's; zeros after clicks other than 1, 2, …, k, which the model holds impossible."""
        return stacked(
            self.answers(
                with_clicks(pages, clicks),
                lambda part, parameters: next_of_own(part, parameters, steps(part) + 1),
            )
        )

    def _beliefs(self, asked: Asked) -> Beliefs:
        raise CannotAnswerError(
            "PM has no attractiveness of a (query, ad): it clicks from the top whatever stands there. Ask another model, such as UBM or LuceClick."
        )


def click_numbers(data: Counts, history: Counts | None, strength: float) -> tuple[Float64, Float64]:
    """P(m clicks | page length) [length, m], and the sessions by number of clicks over all lengths [m], for lengths beyond."""
    layers = [data.lengths] if history is None else [history.lengths, data.lengths]
    size = max(len(layer) for layer in layers)
    pooled = layers[0].sum(axis=0)
    numbers = np.zeros((size, size))
    for n in range(size):
        numbers[n, : n + 1] = _number_shares(
            [pooled, *(layer[n] for layer in layers if n < len(layer))], n, strength
        )
    return numbers, pooled


def _number_shares(layers: Sequence[Float64], ads: int, strength: float) -> Float64:
    """P(m clicks) on a page of these ads [m]: each layer of sessions by number of clicks has the one before as its prior, the first a uniform one."""
    share = np.full(ads + 1, 1 / (ads + 1))
    for layer in layers:
        seen = np.zeros(ads + 1)
        seen[: len(layer)] = layer[: ads + 1]
        share = posterior(seen, seen.sum(), share, strength)
    return share


def stops(
    lengths: Int64, numbers: Float64, pooled: Float64, strength: float
) -> tuple[Float64, Int64]:
    """P(no more clicks after k | k clicks) for each distinct page length [distinct length, k], and the row of each page in it."""
    distinct, table = np.unique(lengths, return_inverse=True)
    stop = np.ones((len(distinct), int(distinct.max(initial=1)) + 1))
    for row, n in enumerate(distinct):
        share = numbers[n, : n + 1] if n < len(numbers) else _number_shares([pooled], n, strength)
        at_least = np.cumsum(share[::-1])[::-1]
        np.divide(share, at_least, out=stop[row, : n + 1], where=at_least > 0)
    return stop, table.astype(np.int64)


def steps(part: SessionBatch) -> Int64:
    """The number of each click in its session, from 0 [click]."""
    return np.asarray(
        np.arange(len(part.click)) - np.repeat(part.clicks[:-1], np.diff(part.clicks))
    )


def next_of_own(part: SessionBatch, pages: Pages, own: Int64) -> Float64:
    """P(next click) [session, position], and zeros where a click so far is not the model's `own` [click]."""
    out = padded(part, next_click_probs(pages, part.click, part.clicks)[0])
    session = np.repeat(np.arange(len(part)), np.diff(part.clicks))
    strange = np.unique(session[part.click != own])
    out[strange] *= 0.0  # nan stays nan beyond the page
    return out
