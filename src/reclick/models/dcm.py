"""DCM, the dependent click model: after a click the user goes on with a chance that depends on the position clicked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from reclick.clicks.chain import chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.fitting.priors import last_click_rate, posterior
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import last_clicks, or_whole_page, positions, scan, totals
from reclick.models.settings import check_prior, check_range
from reclick.text.word_rates import TextIndex


class DCM(ClickModel):
    """P(click | looked at) = θ(q, d); P(go on) = λ_r after a click at position r, 1 after none.

    One pass, taking what lies below the last click as not looked at: θ = (clicks + a) / (looks + a + b), looked at being all down to the last
    click, or all of the page when there is none; λ_r = (clicks at r but not last + c) / (clicks at r + c + d). That maximises a lower bound of the
    likelihood (Guo, Liu, Wang). The prior of λ has the mean `continuation_prior`, by default the share of all clicks that are not the last.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> DCM(attractiveness_strength=0, continuation_strength=0).fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]})
    array([[0.5, 0.5]])
    """

    name: ClassVar[str] = "dcm"
    assumes: ClassVar[str] = (
        "the user scans down, and after a click goes on with a chance of the position's own"
    )
    reference: ClassVar[str] = "Guo, Liu, Wang 2009"
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_", "continuation_", "overall_continuation_")

    def __init__(
        self,
        *,
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: float = 0.5,
        continuation_prior: str | float = "overall",
        continuation_strength: float = 10.0,
        frequent: float = 50,
    ) -> None:
        check_prior("attractiveness_prior", attractiveness_prior, ("overall", "words"))
        check_range("attractiveness_strength", attractiveness_strength, 0, sys.float_info.max)
        check_prior("continuation_prior", continuation_prior, ("overall",))
        check_range("continuation_strength", continuation_strength, 0, sys.float_info.max)
        check_range("frequent", frequent, 0, sys.float_info.max)
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.continuation_prior = continuation_prior
        self.continuation_strength = continuation_strength
        self.frequent = frequent

    def _estimate(self, sessions: Sessions, means: Float64, history: Counts) -> None:
        ends = last_clicks(sessions)
        seen = totals(sessions, or_whole_page(ends, sessions))
        self.exposure_ = seen.looks
        self.theta_ = posterior(seen.clicks, seen.looks, means, self.attractiveness_strength)
        weight = np.repeat(sessions.weight, np.diff(sessions.clicks))
        size = sessions.max_ads + 1
        clicks, last = (
            np.bincount(at, many, size)[1:].astype(np.float64)
            for at, many in ((sessions.click, weight), (ends, sessions.weight))
        )
        given = self.continuation_prior
        self.overall_continuation_ = (
            1 - last_click_rate(history) if isinstance(given, str) else float(given)
        )
        self.continuation_ = posterior(
            clicks - last, clicks, self.overall_continuation_, self.continuation_strength
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)
        position = positions(batch.page)
        known = self.continuation_[np.minimum(position, len(self.continuation_) - 1)]
        onward = np.where(position < len(self.continuation_), known, self.overall_continuation_)
        return chain_pages(batch, scan, (theta, onward), (1.0, 1.0))
