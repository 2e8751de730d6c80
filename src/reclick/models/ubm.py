"""UBM, the user browsing model: whether an ad is looked at depends on its position and on where the click before it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import pyarrow as pa

from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.data.pair_index import Asked
from reclick.fitting.posterior import Beliefs
from reclick.models.base import ClickModel
from reclick.models.bbm import with_posterior
from reclick.models.kernels.examination_em import (
    Cells,
    browse_pages,
    check_settings,
    learn_sessions,
)
from reclick.text.word_rates import TextIndex


class UBM(ClickModel):
    """P(click | clicks above) = θ(q, d) · γ(r', r), r the position and r' that of the closest click above it, 0 when there is none.

    EM over the cells (pair, r, r'), as in reclick.models.kernels.examination_em. The prior mean of γ, `examination_prior`, is a number, or "overall": that of
    γ(0, r) is the click rate of position r as a share of the first one's, in the history or else in the log, and below a click at r' as if the page
    began there, γ(0, r − r'); it is worth `examination_strength` impressions. Only θγ can be learnt: the priors settle the scale. Intervals of θ are
    those of its posterior given γ. Positions beyond those of the log are looked at like the last, as far below the click.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [1, 2]]}
    >>> UBM().fit(log).next_click_prob({"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2}, [[], [1]]).round(3)
    array([[0.747, 0.075],
           [0.   , 0.683]])
    """

    name: ClassVar[str] = "ubm"
    assumes: ClassVar[str] = (
        "an ad is looked at or not by its position and the distance to the click above, and clicked if it attracts"
    )
    reference: ClassVar[str] = "Dupret, Piwowarski 2008"
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
            sessions, means, history, self.get_params(), browsing=True
        )
        self.prior_ = means
        self.theta_ = fit.parameters.theta
        self.gamma_: Float64 = fit.parameters.gamma.reshape(
            -1, sessions.max_ads
        )  # [last, position]
        self.iterations_, self.converged_, self.objective_, self.message_ = (
            len(fit.objective),
            fit.converged,
            fit.objective,
            fit.message,
        )

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        theta = self._pairs.filled(self.theta_, batch, self._pairs.find(batch), text)
        return browse_pages(batch, theta, self.gamma_)

    def _beliefs(self, asked: Asked) -> Beliefs:
        return with_posterior(
            super()._beliefs(asked),
            self._cells,
            asked.row,
            self.prior_,
            self.attractiveness_strength,
            self.gamma_.ravel(),
        )

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        values, tables = super()._to_tables()
        return values, {**tables, "cells": self._cells.to_table()}

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        self._cells = Cells.from_table(tables["cells"])
        return super()._from_tables(values, tables)
