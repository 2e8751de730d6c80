"""CM, the cascade model: the user scans down to the first click, and stops there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

from reclick.clicks.chain import chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.fitting.priors import posterior
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import first_clicks, or_whole_page, scan, totals
from reclick.models.settings import check_prior, check_range
from reclick.text.word_rates import TextIndex


class CM(ClickModel):
    """P(click at j only) = θ_j Π_{i < j} (1 − θ_i); no second click, so a session with two has probability 0.

    θ(q, d) = (first clicks + a) / (looks + a + b), looked at being all down to the first click, or all of the page when there is none. `a` and `b`
    are the prior: `attractiveness_strength` looks at its mean, the click rate of the top position ("overall"), what the words of the ad say
    ("words") or a number. Strength 0 is maximum likelihood.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [2], [], [2]]}
    >>> CM(attractiveness_strength=0).fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]})
    array([[0.25, 0.5 ]])
    """

    name: ClassVar[str] = "cm"
    assumes: ClassVar[str] = (
        "the user scans down to the first click and stops there; two clicks are impossible (log-probability −inf)"
    )
    reference: ClassVar[str] = "Craswell, Zoeter, Taylor, Ramsey 2008"
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_",)

    def __init__(
        self,
        *,
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: float = 0.5,
        frequent: float = 50,
    ) -> None:
        check_prior("attractiveness_prior", attractiveness_prior, ("overall", "words"))
        check_range("attractiveness_strength", attractiveness_strength, 0, sys.float_info.max)
        check_range("frequent", frequent, 0, sys.float_info.max)
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.frequent = frequent

    def _estimate(self, sessions: Sessions, means: Float64, history: Counts) -> None:
        seen = totals(sessions, or_whole_page(first_clicks(sessions), sessions))
        self.exposure_ = seen.looks
        self.theta_ = posterior(seen.clicks, seen.looks, means, self.attractiveness_strength)

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)
        return chain_pages(batch, scan, (theta, theta), (0.0, 1.0))
