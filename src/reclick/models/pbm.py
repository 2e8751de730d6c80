"""PBM, the position-based model: an ad is clicked when it is looked at, which depends on its position alone, and attracts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.chain import chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.data.pair_index import Asked
from reclick.fitting.posterior import Beliefs
from reclick.models.base import ClickModel
from reclick.models.bbm import with_posterior
from reclick.models.ctr import independent_clicks
from reclick.models.kernels.examination_em import Cells, check_settings, learn_sessions
from reclick.text.word_rates import TextIndex


class PBM(ClickModel):
    """P(click) = θ(q, d) · γ(position), each position on its own.

    EM over the cells (pair, position), as in reclick.models.kernels.examination_em. The prior mean of γ, `examination_prior`, is a number, or "overall": the click
    rate of the position as a share of the first one's, in the history or else in the log; it is worth `examination_strength` impressions. Only θγ can
    be learnt: the priors settle the scale. Intervals of θ are those of its posterior given γ. A position beyond those of the log is looked at like
    the last.

    >>> pages = [["a", "b"]] * 4 + [["b", "a"]] * 4
    >>> log = {"query": ["pizza"] * 8, "ads": pages, "clicks": [[1], [1], [1, 2], [], [1], [], [2], [1, 2]]}
    >>> PBM().fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]}).round(3)
    array([[0.712, 0.321]])
    """

    name: ClassVar[str] = "pbm"
    assumes: ClassVar[str] = (
        "an ad is looked at or not by its position alone, and clicked if it attracts"
    )
    reference: ClassVar[str] = (
        "Craswell, Zoeter, Taylor, Ramsey 2008; Richardson, Dominowska, Ragno 2007"
    )
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_", "prior_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_", "gamma_")

    def __init__(
        self,
        *,
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: float = 3.0,
        examination_prior: str | float = "overall",
        examination_strength: float = 1.0,
        frequent: float = 50,
        max_iterations: int = 200,
        tolerance: float = 1e-5,
    ) -> None:
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.examination_prior = examination_prior
        self.examination_strength = examination_strength
        self.frequent = frequent
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        check_settings(self.get_params())

    def _estimate(self, sessions: Sessions, means: Float64, history: Counts) -> None:
        self._cells, fit, self.exposure_ = learn_sessions(
            sessions, means, history, self.get_params(), browsing=False
        )
        self.prior_ = means
        self.theta_, self.gamma_ = fit.parameters
        self.iterations_, self.converged_, self.objective_, self.message_ = (
            len(fit.objective),
            fit.converged,
            fit.objective,
            fit.message,
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)
        position = np.arange(len(theta)) - np.repeat(batch.page[:-1], np.diff(batch.page))
        return chain_pages(
            batch,
            independent_clicks,
            (theta * self.gamma_[np.minimum(position, len(self.gamma_) - 1)],),
        )

    def _beliefs(self, asked: Asked) -> Beliefs:
        return with_posterior(
            super()._beliefs(asked),
            self._cells,
            asked.row,
            self.prior_,
            self.attractiveness_strength,
            self.gamma_,
        )

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        values, tables = super()._to_tables()
        return values, {**tables, "cells": self._cells.to_table()}

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        self._cells = Cells.from_table(tables["cells"])
        return super()._from_tables(values, tables)
