"""PM and AM: the order of clicks is fixed, and only their number is random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from reclick.clicks.chain import FixedOrderPages
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.pair_index import PairLookup
from reclick.errors import CannotAnswerError
from reclick.fitting.beta import posterior_mean
from reclick.fitting.posterior import PairPosteriors, word_posterior
from reclick.models.base import ClickModel
from reclick.models.batching import pad_pages
from reclick.models.settings import setting
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex


class PM(ClickModel):
    """The k-th click is at position k: P(1, 2, …, m) = P(m clicks | page of n ads).

    Any other sequence has probability 0, and after clicks that are not 1, 2, …, k there is no next
    click. P(m | n) = (sessions with m clicks on n ads + s P₀(m)) / (sessions on n ads + s), with s
    in `number_strength` sessions. P₀ is the same over pages of all lengths, with a uniform prior; a
    page length that is not in the log gets P₀. With a history, both are first estimated from the
    history, and its P(m | n) then takes the place of P₀.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2], [2, 1]]}
    >>> PM(number_strength=0).fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]})
    array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "pm"
    all_sets_possible: ClassVar[bool] = False
    attractiveness: ClassVar[bool] = False
    assumes: ClassVar[str] = "the k-th click is at position k"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255 (a baseline)"
    fits_from_counts: ClassVar[bool] = True
    global_parameters: ClassVar[tuple[str, ...]] = ("numbers_", "pooled_")
    probabilities: ClassVar[tuple[str, ...]] = ("numbers_",)

    number_strength: float = setting(default=1.0, low=0)

    def _fit(self, data: Counts, history: Counts | None, text: AdTokens | None) -> None:
        self._pairs = self._index(data, text)
        self.numbers_, self.pooled_ = estimate_click_numbers(data, history, self.number_strength)

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        def pages(start: int, end: int) -> FixedOrderPages:
            starts = batch.page[start : end + 1] - batch.page[start]
            stop, table = stop_probabilities(
                np.diff(starts), self.numbers_, self.pooled_, self.number_strength
            )
            order = np.tile(np.arange(stop.shape[1] - 1), (len(stop), 1))
            return FixedOrderPages.build(order, stop, starts, table)

        return pages

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        raise CannotAnswerError(
            "PM has no attractiveness of a (query, ad): its clicks go down the page for all ads. "
            "Ask another model, such as UBM or LuceClick."
        )


class AM(ClickModel):
    """Clicks are in the order of attractiveness θ(q, d), the highest first; P(m clicks) = P(m | n).

    n is the number of ads on the page. P(m | n) and `number_strength` are as in PM; θ,
    `min_query_sessions` and `word_strength` are as in ICM. If two ads have the same θ, the upper
    one is first. Every other sequence has probability 0, and after clicks in another order there is
    no next click. Exact on pages of any length.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[2], [], [2], [2, 1]]}
    >>> AM(number_strength=0).fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]})
    array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "am"
    all_sets_possible: ClassVar[bool] = False
    assumes: ClassVar[str] = "clicks go from the most attractive ad down; words attract"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255 (a baseline)"
    fits_from_counts: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_",)
    global_parameters: ClassVar[tuple[str, ...]] = ("numbers_", "pooled_")
    probabilities: ClassVar[tuple[str, ...]] = ("theta_", "numbers_")

    number_strength: float = setting(default=1.0, low=0)
    min_query_sessions: float = setting(default=50, low=0)
    word_strength: float = setting(default=0.0, low=0)

    def _fit(self, data: Counts, history: Counts | None, text: AdTokens | None) -> None:
        self._pairs = self._index(data, text)
        self.theta_ = np.ascontiguousarray(self._pairs.words.pair_rates()[:, 0])
        self.numbers_, self.pooled_ = estimate_click_numbers(data, history, self.number_strength)

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_words(self.theta_, batch, self._pairs.find(batch), text)

        def pages(start: int, end: int) -> FixedOrderPages:
            first, last = batch.page[start], batch.page[end]
            starts = batch.page[start : end + 1] - first
            stop, table = stop_probabilities(
                np.diff(starts), self.numbers_, self.pooled_, self.number_strength
            )
            order = np.argsort(-pad_pages(starts, theta[first:last]), axis=1, kind="stable")
            return FixedOrderPages.build(order, stop[table], starts, np.arange(end - start))

        return pages

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        return PairPosteriors(word_posterior(pairs.words))


def estimate_click_numbers(
    data: Counts, history: Counts | None, strength: float
) -> tuple[Float64, Float64]:
    """P(m clicks | page length) [length, m], and sessions by number of clicks [m].

    The second are sums over all page lengths, used for lengths that are not in the log.
    """
    layers = [data.lengths] if history is None else [history.lengths, data.lengths]
    return distribute_numbers(layers, strength)


def distribute_numbers(layers: Sequence[Float64], strength: float) -> tuple[Float64, Float64]:
    """Return the same from layers of sessions by page length and number of clicks [length, m].

    The prior of each layer is the previous layer.
    """
    size = max(len(layer) for layer in layers)
    pooled = layers[0].sum(axis=0)
    numbers = np.zeros((size, size))
    for n in range(size):
        numbers[n, : n + 1] = number_distribution(
            [pooled, *(layer[n] for layer in layers if n < len(layer))], n, strength
        )
    return numbers, pooled


def number_distribution(layers: Sequence[Float64], ads: int, strength: float) -> Float64:
    """P(m clicks) on a page with this many ads [m].

    `layers` are sessions by number of clicks. The prior of each layer is the previous layer; the
    prior of the first is uniform.
    """
    share = np.full(ads + 1, 1 / (ads + 1))
    for layer in layers:
        sessions = np.zeros(ads + 1)
        sessions[: len(layer)] = layer[: ads + 1]
        share = posterior_mean(sessions, sessions.sum(), share, strength)
    return share


def stop_probabilities(
    lengths: Int64, numbers: Float64, pooled: Float64, strength: float
) -> tuple[Float64, Int64]:
    """P(no further click | k clicks) by distinct page length [row, k], and the row of each page."""
    distinct, table = np.unique(lengths, return_inverse=True)
    stop = np.ones((len(distinct), int(distinct.max(initial=1)) + 1))
    for row, n in enumerate(distinct):
        share = (
            numbers[n, : n + 1] if n < len(numbers) else number_distribution([pooled], n, strength)
        )
        at_least = np.cumsum(share[::-1])[::-1]
        np.divide(share, at_least, out=stop[row, : n + 1], where=at_least > 0)
    return stop, table.astype(np.int64)
