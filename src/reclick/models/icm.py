"""ICM, the independent click model: attractiveness comes from the words of the ad alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from reclick.clicks.chain import chain_pages
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.pair_index import PairLookup
from reclick.fitting.posterior import PairPosteriors, word_posterior
from reclick.models.base import ClickModel
from reclick.models.kernels.independent_clicks import independent_clicks
from reclick.models.settings import setting
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex


class ICM(ClickModel):
    """P(click) = θ(q, d), the mean click rate of the ad's words; every ad is examined.

    As a distribution over clicks this is DCTR; the paper's baseline takes θ from words alone. So an
    ad that is not in the log is answered like any other. In a log without text the id of an ad is
    its one word: θ is then the ad's rate over all queries, or over the impressions of the query
    alone where it has `min_query_sessions` sessions or more. A history is not used.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1], [1, 2]]}
    >>> ICM().fit(log).click_prob({"query": ["sushi"], "ads": [["b", "a"]]})
    array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "icm"
    assumes: ClassVar[str] = "every ad is examined and clicked independently; words attract"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255 (a baseline)"
    fits_from_counts: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_",)

    min_query_sessions: float = setting(default=50, low=0)
    word_strength: float = setting(default=0.0, low=0)
    floor: float = setting(default=1e-6, low=1e-12, high=0.1)

    def _fit(self, data: Counts, history: Counts | None, text: AdTokens | None) -> None:
        self._pairs = self._index(data, text)
        self.theta_ = np.ascontiguousarray(self._pairs.words.pair_rates()[:, 0])

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_words(self.theta_, batch, self._pairs.find(batch), text)
        return chain_pages(batch, independent_clicks, (np.clip(theta, self.floor, 1 - self.floor),))

    def _posteriors(self, asked: PairLookup) -> PairPosteriors:
        return PairPosteriors(word_posterior(asked.words))
