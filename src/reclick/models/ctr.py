"""The floors: every position is clicked or not on its own, at the rate of all impressions (GCTR), of its rank (RCTR) or of its (query, ad) (DCTR)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

from reclick.attractiveness import TextIndex
from reclick.batch import Float64, Int64, SessionBatch
from reclick.compiled import compiled
from reclick.counts import Counts
from reclick.models.base import ClickModel, check_prior, check_range
from reclick.models.chain import chain_pages
from reclick.models.priors import click_rate, posterior
from reclick.sequences import Pages
from reclick.sessions import Sessions


class DCTR(ClickModel):
    """P(click) = θ(q, d) = (clicks + a) / (impressions + a + b): the click rate of the pair wherever it stood.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1], [1, 2]]}
    >>> DCTR(attractiveness_strength=0).fit(log).click_prob({"query": ["pizza"], "ads": [["b", "a"]]})
    array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "dctr"
    assumes: ClassVar[str] = "each ad is clicked at its own rate, wherever it stands"
    reference: ClassVar[str] = "Craswell, Zoeter, Taylor, Ramsey 2008 (the baseline hypothesis)"
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_",)

    def __init__(self, *, attractiveness_prior: str | float = "overall", attractiveness_strength: float = 1.0, frequent: float = 50) -> None:
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

    def _estimate(self, sessions: Sessions, means: Float64, history: Counts) -> None:
        counts = sessions.counts
        self.exposure_ = counts.impressions
        self.theta_ = posterior(counts.clicks, counts.impressions, means, self.attractiveness_strength)

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)
        return chain_pages(batch, independent_clicks, (theta,))


@compiled
def independent_clicks(page: Int64, chance: Float64, out: Float64) -> None:
    """F[l, j] = p_j Π_{l < i < j} (1 − p_i), every position being clicked on its own with p."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        for last in range(n + 1):
            none = 1.0
            for j in range(last, n):
                out[s, last, j] = none * chance[page[s] + j]
                none *= 1.0 - chance[page[s] + j]
