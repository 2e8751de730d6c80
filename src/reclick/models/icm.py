"""ICM: every ad is looked at and clicked on its own, with the attractiveness that its words give."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from reclick.clicks.chain import chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.pair_index import Asked
from reclick.fitting.posterior import Belief, Beliefs
from reclick.models.base import ClickModel
from reclick.models.ctr import independent_clicks
from reclick.models.settings import check_range
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex


class ICM(ClickModel):
    """P(click) = θ(q, d), every ad being looked at: a cascade that always goes on (λ = 1). θ is the mean click rate of the ad's words.

    As a distribution over clicks this is DCTR. What differs is θ: the paper's baseline takes it from words alone, so ICM keeps no counts of its own
    for a pair, and an ad never seen is answered like any other. In a log without text the ad's id is its one word: θ is then the ad's rate over all
    queries, or over the query's own impressions when the query has `frequent` sessions or more. `word_strength` is how many impressions at the click
    rate of the whole log each word has beside its own; 0 is the paper's formula. `floor` is how near to 0 and 1 θ may come. A history is not used.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1], [1, 2]]}
    >>> ICM().fit(log).click_prob({"query": ["sushi"], "ads": [["b", "a"]]})
    array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "icm"
    assumes: ClassVar[str] = "every ad is looked at and clicked on its own; words attract"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255 (a baseline)"
    counts_suffice: ClassVar[bool] = True
    pair_values: ClassVar[tuple[str, ...]] = ("theta_",)

    def __init__(
        self, *, frequent: float = 50, word_strength: float = 0.0, floor: float = 1e-6
    ) -> None:
        check_range("frequent", frequent, 0, sys.float_info.max)
        check_range("word_strength", word_strength, 0, sys.float_info.max)
        check_range("floor", floor, 1e-12, 0.1)
        self.frequent = frequent
        self.word_strength = word_strength
        self.floor = floor

    def _learn(self, data: Counts, history: Counts | None, text: AdTokens | None) -> None:
        self._pairs = self._index(data, text)
        self.theta_ = np.ascontiguousarray(self._pairs.words.of_pairs()[:, 0])

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)
        return chain_pages(batch, independent_clicks, (np.clip(theta, self.floor, 1 - self.floor),))

    def _beliefs(self, asked: Asked) -> Beliefs:
        return Beliefs(word_belief(asked))


def word_belief(asked: Asked) -> Belief:
    """Attractiveness from words: a Beta matched to the mean of its words' Jeffreys posteriors, taken as fully dependent (so rather wide)."""
    theta, mean, deviation = asked.words.T
    return Belief(theta, mean, mean * (1 - mean) / np.maximum(deviation, 1e-12) ** 2 - 1)
