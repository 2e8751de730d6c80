"""SDBN, the simplified dynamic Bayesian network: the user goes on until satisfied by what was clicked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

from reclick.clicks.chain import chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.fitting.priors import last_click_rate, posterior
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import last_clicks, or_whole_page, scan, totals
from reclick.models.settings import check_prior, check_range
from reclick.text.word_rates import TextIndex


class SDBN(ClickModel):
    """P(click | looked at) = θ(q, d); P(go on) = 1 − ρ(q, d) after a click, 1 after none: DBN with λ = 1, estimated by counting.

    One pass, taking a last click as satisfied and what lies below it as not looked at: θ = (clicks + a) / (looks + a + b), looked at being all down
    to the last click, or all of the page when there is none; ρ = (last clicks + c) / (clicks + c + d). The last click is the lowest one, in
    whatever order they came. `DBN(continuation=1)` is the same model, fitted to its likelihood.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> SDBN(attractiveness_strength=0, satisfaction_strength=0).fit(log).rho_
    array([0.5, 1. ])
    """

    name: ClassVar[str] = "sdbn"
    assumes: ClassVar[str] = "the user scans down until an ad that was clicked satisfies"
    reference: ClassVar[str] = "Chapelle, Zhang 2009 (algorithm 1)"
    satisfaction: ClassVar[bool] = True
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_", "rho_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_", "satisfaction_")

    def __init__(
        self,
        *,
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: float = 0.5,
        satisfaction_prior: str | float = "overall",
        satisfaction_strength: float = 5.0,
        frequent: float = 50,
    ) -> None:
        check_prior("attractiveness_prior", attractiveness_prior, ("overall", "words"))
        check_range("attractiveness_strength", attractiveness_strength, 0, sys.float_info.max)
        check_prior("satisfaction_prior", satisfaction_prior, ("overall",))
        check_range("satisfaction_strength", satisfaction_strength, 0, sys.float_info.max)
        check_range("frequent", frequent, 0, sys.float_info.max)
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.satisfaction_prior = satisfaction_prior
        self.satisfaction_strength = satisfaction_strength
        self.frequent = frequent

    def _estimate(self, sessions: Sessions, means: Float64, history: Counts) -> None:
        given = self.satisfaction_prior
        self.satisfaction_ = last_click_rate(history) if isinstance(given, str) else float(given)
        seen = totals(sessions, or_whole_page(last_clicks(sessions), sessions))
        self.exposure_ = seen.looks
        self.theta_ = posterior(seen.clicks, seen.looks, means, self.attractiveness_strength)
        self.rho_ = posterior(
            seen.last, seen.clicks, self.satisfaction_, self.satisfaction_strength
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        found = self._pairs.find(batch)
        theta = self._pairs.filled(self.theta_, batch, found, text)
        rho = self._pairs.at(self.rho_, found.row, self.satisfaction_)
        return chain_pages(batch, scan, (theta, 1 - rho), (1.0, 1.0))
