"""GCTR, RCTR, DCTR and ICM: each position is clicked independently, with a click rate.

The rate is that of all impressions (GCTR), of the rank (RCTR), of the (query, ad) (DCTR) or of the
words of the ad (ICM). These are the baselines that other models should beat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from reclick.clicks.chain import chain_pages, fill_independent_chain
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.pair_index import PairLookup
from reclick.data.ragged import positions_in_runs
from reclick.errors import CannotAnswerError
from reclick.fitting.beta import BetaPrior, posterior_mean
from reclick.fitting.posterior import PairPosteriors, word_posterior
from reclick.fitting.priors import click_rate
from reclick.models.base import ClickModel
from reclick.models.settings import setting
from reclick.runtime.arguments import check_arguments
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex


class GCTR(ClickModel):
    """P(click) = g = (clicks + s m) / (impressions + s), the same for every ad and position.

    m is `rate_prior`: a number, or "overall", the click rate of the history, or else of the log.
    s is `rate_strength`, in impressions.

    >>> log = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
    >>> GCTR(rate_strength=0).fit(log).click_prob({"query": ["sushi"], "ads": [["c", "a", "b"]]})
    array([[0.25, 0.25, 0.25]])
    """

    name: ClassVar[str] = "gctr"
    longest_page: ClassVar[int] = 1_000_000  # it has no table of positions by last clicks
    attractiveness: ClassVar[bool] = False
    assumes: ClassVar[str] = "every impression is clicked at one rate"
    reference: ClassVar[str] = (
        "Chuklin, Markov, de Rijke 2015, section 3.1 (the random click model)"
    )
    fits_from_counts: ClassVar[bool] = True
    fits_in_buckets: ClassVar[bool] = True
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_", "rate_")
    probabilities: ClassVar[tuple[str, ...]] = ("rate_",)

    rate_prior: str | float = setting(
        default="overall", choices=("overall",), allow_probability=True
    )
    rate_strength: float = setting(default=1.0, low=0)

    @staticmethod
    @check_arguments
    def overall_rate(counts: Counts) -> float:
        """The click rate over all impressions."""
        return click_rate(counts)

    def _estimate(self, counts: Counts, prior: BetaPrior, history: Counts) -> None:
        mean, log = _prior_mean(self.rate_prior, history), self._whole_log(counts)
        self.rate_ = float(
            posterior_mean(log.clicks.sum(), log.impressions.sum(), mean, self.rate_strength)
        )

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        return chain_pages(batch, fill_independent_chain, (np.full(len(batch.ad), self.rate_),))

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        raise CannotAnswerError(
            "GCTR has no attractiveness of a (query, ad): it gives all of them one click rate. "
            "DCTR gives each its own."
        )


class RCTR(ClickModel):
    """P(click at rank r) = g_r = (clicks_r + s m) / (impressions_r + s), for every ad.

    m is `rate_prior`: a number, or "overall", the click rate of the history, or else of the log,
    over all ranks. s is `rate_strength`, in impressions of a rank. A rank beyond those of the log
    has the rate of the last.

    >>> log = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
    >>> RCTR(rate_strength=2).fit(log).click_prob({"query": ["sushi"], "ads": [["c", "a", "b"]]})
    array([[0.375, 0.125, 0.125]])
    """

    name: ClassVar[str] = "rctr"
    longest_page: ClassVar[int] = 1_000_000  # it has no table of positions by last clicks
    attractiveness: ClassVar[bool] = False
    assumes: ClassVar[str] = "each position is clicked at its own rate, for every ad"
    reference: ClassVar[str] = "Chuklin, Markov, de Rijke 2015, section 3.2"
    fits_from_counts: ClassVar[bool] = True
    fits_in_buckets: ClassVar[bool] = True
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_", "rates_")
    probabilities: ClassVar[tuple[str, ...]] = ("rates_",)

    rate_prior: str | float = setting(
        default="overall", choices=("overall",), allow_probability=True
    )
    rate_strength: float = setting(default=1.0, low=0)

    @staticmethod
    @check_arguments
    def overall_rate(counts: Counts) -> float:
        """The click rate over all impressions."""
        return click_rate(counts)

    def _estimate(self, counts: Counts, prior: BetaPrior, history: Counts) -> None:
        clicks, impressions = _by_rank(self._whole_log(counts))
        self.rates_ = posterior_mean(
            clicks, impressions, _prior_mean(self.rate_prior, history), self.rate_strength
        )  # [rank]

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        rank = positions_in_runs(batch.page)
        return chain_pages(
            batch, fill_independent_chain, (self.rates_[np.minimum(rank, len(self.rates_) - 1)],)
        )

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        raise CannotAnswerError(
            "RCTR has no attractiveness of a (query, ad): its click rates are those of positions. "
            "DCTR gives each pair its own."
        )


class DCTR(ClickModel):
    """P(click) = θ(q, d) = (clicks + s m) / (impressions + s): the pair's rate over all positions.

    m is the prior mean of the pair, s the strength of its prior, in impressions.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1], [1, 2]]}
    >>> model = DCTR(attractiveness_strength=0).fit(log)
    >>> model.click_prob({"query": ["pizza"], "ads": [["b", "a"]]})
    array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "dctr"
    longest_page: ClassVar[int] = 1_000_000  # it has no table of positions by last clicks
    assumes: ClassVar[str] = "each ad is clicked at its own rate, at every position"
    reference: ClassVar[str] = "Craswell, Zoeter, Taylor, Ramsey 2008 (the baseline hypothesis)"
    fits_from_counts: ClassVar[bool] = True
    fits_in_buckets: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_",)
    probabilities: ClassVar[tuple[str, ...]] = ("theta_",)
    overall_strength: ClassVar[float] = 1.0

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)

    @staticmethod
    @check_arguments
    def overall_rate(counts: Counts) -> float:
        """The click rate over all impressions."""
        return click_rate(counts)

    def _estimate(self, counts: Counts, prior: BetaPrior, history: Counts) -> None:
        self.exposure_ = counts.impressions
        self.theta_ = posterior_mean(counts.clicks, counts.impressions, *prior)

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_prior(self.theta_, batch, self._pairs.find(batch), text)
        return chain_pages(batch, fill_independent_chain, (theta,))


class ICM(ClickModel):
    """P(click) = θ(q, d), the mean click rate of the ad's words; every ad is examined.

    The distribution over clicks is that of DCTR. The paper defines its baseline as a DCM that
    always continues, and does not define θ. Here θ comes from words, as in the main model of the
    paper, so ads that are not in the log need no special case. In a log without text, the id of an
    ad is its only word. Then θ is the ad's rate over all queries, or over the impressions of the
    query alone if it has at least `min_query_sessions` sessions. The model takes no priors from a
    history.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1], [1, 2]]}
    >>> ICM().fit(log).click_prob({"query": ["sushi"], "ads": [["b", "a"]]})
    array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "icm"
    assumes: ClassVar[str] = "every ad is examined and clicked independently; words attract"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255 (a baseline)"
    fits_from_counts: ClassVar[bool] = True
    fits_in_buckets: ClassVar[bool] = True
    uses_history: ClassVar[bool] = False
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_",)
    probabilities: ClassVar[tuple[str, ...]] = ("theta_",)

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
        return chain_pages(
            batch, fill_independent_chain, (np.clip(theta, self.floor, 1 - self.floor),)
        )

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        return PairPosteriors(word_posterior(pairs.words))


def _prior_mean(prior: str | float, history: Counts) -> float:
    """The prior mean of a click rate: the setting if it is a number, else the history's rate."""
    return click_rate(history) if isinstance(prior, str) else prior


def _by_rank(counts: Counts) -> tuple[Float64, Float64]:
    """Clicks and impressions of each rank [rank]."""
    size = max(1, counts.max_ads)
    weight = np.repeat(counts.per_sequence(), np.diff(counts.sequence_starts))
    pages = counts.lengths.sum(axis=1)[:0:-1]  # [page length, longest first]
    impressions = np.zeros(size)
    impressions[: len(pages)] = np.cumsum(pages)[::-1]
    return np.bincount(counts.sequence_clicks - 1, weight, minlength=size).astype(
        np.float64
    ), impressions
