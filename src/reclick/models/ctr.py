"""The floors: every position is clicked or not on its own, at the rate of all impressions (GCTR), of its rank (RCTR) or of its (query, ad) (DCTR)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from reclick.clicks.chain import chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.pair_index import Asked
from reclick.errors import CannotAnswerError
from reclick.fitting.posterior import Beliefs
from reclick.fitting.priors import click_rate, posterior
from reclick.models.base import ClickModel
from reclick.models.settings import check_prior, check_range
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex


class GCTR(ClickModel):
    """P(click) = g = (clicks + s m) / (impressions + s), the same for every ad and position.

    `rate_prior` m is "overall", the click rate of the history (without one, of the log itself), or a number; `rate_strength` s is in impressions.

    >>> log = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
    >>> GCTR(rate_strength=0).fit(log).click_prob({"query": ["sushi"], "ads": [["c", "a", "b"]]})
    array([[0.25, 0.25, 0.25]])
    """

    name: ClassVar[str] = "gctr"
    attractiveness: ClassVar[bool] = False
    assumes: ClassVar[str] = "every impression is clicked at one rate"
    reference: ClassVar[str] = (
        "Chuklin, Markov, de Rijke 2015, section 3.1 (the random click model)"
    )
    counts_suffice: ClassVar[bool] = True
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_", "rate_")

    def __init__(self, *, rate_prior: str | float = "overall", rate_strength: float = 1.0) -> None:
        check_prior("rate_prior", rate_prior, ("overall",))
        check_range("rate_strength", rate_strength, 0, sys.float_info.max)
        self.rate_prior = rate_prior
        self.rate_strength = rate_strength

    @staticmethod
    def overall_rate(counts: Counts) -> float:
        """Every impression counts: the click rate over all of them."""
        return click_rate(counts)

    def _estimate(self, counts: Counts, means: Float64, history: Counts) -> None:
        mean = _prior_mean(self.rate_prior, history)
        self.rate_ = float(
            posterior(counts.clicks.sum(), counts.impressions.sum(), mean, self.rate_strength)
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        return chain_pages(batch, independent_clicks, (np.full(len(batch.ad), self.rate_),))

    def _beliefs(self, asked: Asked) -> Beliefs:
        raise CannotAnswerError(
            "GCTR has no attractiveness of a (query, ad): it gives all of them one click rate. DCTR gives each its own."
        )


class RCTR(ClickModel):
    """P(click at rank r) = g_r = (clicks_r + s m) / (impressions_r + s), whatever the ad; a rank beyond those seen is as the last one.

    `rate_prior` m is "overall", the click rate of the history (without one, of the log itself) over all ranks, or a number; `rate_strength` s is in
    impressions of a rank.

    >>> log = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
    >>> RCTR(rate_strength=2).fit(log).click_prob({"query": ["sushi"], "ads": [["c", "a", "b"]]})
    array([[0.375, 0.125, 0.125]])
    """

    name: ClassVar[str] = "rctr"
    attractiveness: ClassVar[bool] = False
    assumes: ClassVar[str] = "each position is clicked at its own rate, whatever stands there"
    reference: ClassVar[str] = "Chuklin, Markov, de Rijke 2015, section 3.2"
    counts_suffice: ClassVar[bool] = True
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_", "rates_")

    def __init__(self, *, rate_prior: str | float = "overall", rate_strength: float = 1.0) -> None:
        check_prior("rate_prior", rate_prior, ("overall",))
        check_range("rate_strength", rate_strength, 0, sys.float_info.max)
        self.rate_prior = rate_prior
        self.rate_strength = rate_strength

    @staticmethod
    def overall_rate(counts: Counts) -> float:
        """Every impression counts: the click rate over all of them."""
        return click_rate(counts)

    def _estimate(self, counts: Counts, means: Float64, history: Counts) -> None:
        clicks, impressions = _by_rank(counts)
        self.rates_ = posterior(
            clicks, impressions, _prior_mean(self.rate_prior, history), self.rate_strength
        )  # [rank]

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        rank = np.arange(len(batch.ad)) - np.repeat(batch.page[:-1], np.diff(batch.page))
        return chain_pages(
            batch, independent_clicks, (self.rates_[np.minimum(rank, len(self.rates_) - 1)],)
        )

    def _beliefs(self, asked: Asked) -> Beliefs:
        raise CannotAnswerError(
            "RCTR has no attractiveness of a (query, ad): its click rates are those of positions. DCTR gives each pair its own."
        )


class DCTR(ClickModel):
    """P(click) = θ(q, d) = (clicks + a) / (impressions + a + b): the click rate of the pair wherever it stood.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1], [1, 2]]}
    >>> DCTR(attractiveness_strength=0).fit(log).click_prob({"query": ["pizza"], "ads": [["b", "a"]]})
    array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "dctr"
    assumes: ClassVar[str] = "each ad is clicked at its own rate, wherever it stands"
    reference: ClassVar[str] = "Craswell, Zoeter, Taylor, Ramsey 2008 (the baseline hypothesis)"
    counts_suffice: ClassVar[bool] = True
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_",)

    def __init__(
        self,
        *,
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: float = 1.0,
        frequent: float = 50,
    ) -> None:
        check_prior("attractiveness_prior", attractiveness_prior, ("overall", "words"))
        check_range("attractiveness_strength", attractiveness_strength, 0, sys.float_info.max)
        check_range("frequent", frequent, 0, sys.float_info.max)
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.frequent = frequent

    @staticmethod
    def overall_rate(counts: Counts) -> float:
        """Every impression counts: the click rate over all of them."""
        return click_rate(counts)

    def _estimate(self, counts: Counts, means: Float64, history: Counts) -> None:
        self.exposure_ = counts.impressions
        self.theta_ = posterior(
            counts.clicks, counts.impressions, means, self.attractiveness_strength
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)
        return chain_pages(batch, independent_clicks, (theta,))


def _prior_mean(prior: str | float, history: Counts) -> float:
    """The prior mean of a click rate: a number as it is, or the history's rate."""
    return click_rate(history) if isinstance(prior, str) else prior


def _by_rank(counts: Counts) -> tuple[Float64, Float64]:
    """Clicks and impressions of each rank [rank]; a page of n ads has one impression at each rank up to n."""
    size = max(1, counts.max_ads)
    weight = np.repeat(counts.per_sequence(), np.diff(counts.sequence_starts))
    pages = counts.lengths.sum(axis=1)[:0:-1]  # [page length, longest first]
    impressions = np.zeros(size)
    impressions[: len(pages)] = np.cumsum(pages)[::-1]
    return np.bincount(counts.sequence_clicks - 1, weight, minlength=size).astype(
        np.float64
    ), impressions


@kernel
def independent_clicks(page: Int64, chance: Float64, out: Float64, end: Float64) -> None:
    """F[l, j] = p_j Π_{l < i < j} (1 − p_i), every position being clicked on its own with p."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        for last in range(n + 1):
            none = 1.0
            for j in range(last, n):
                out[s, last, j] = none * chance[page[s] + j]
                none *= 1.0 - chance[page[s] + j]
            end[s, last] = none
