"""What PBM, UBM and BBM share: settings, the fit of θ and γ, posteriors, saving."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pyarrow as pa

from reclick.data.batch import Float64
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.pair_index import PairLookup
from reclick.fitting.posterior import PairPosteriors
from reclick.models.base import ClickModel
from reclick.models.kernels.examination_em import ExaminationCells, fit_examination
from reclick.models.kernels.examination_posterior import with_posterior
from reclick.models.settings import setting


class ExaminationModel(ClickModel):
    """P(click) = θ(q, d) · γ(state): attractiveness, and the examination of a state of the page.

    EM over the cells (pair, state), as in reclick.models.kernels.examination_em. Only products θγ
    can be inferred: the priors fix the scale. Intervals of θ are those of its posterior given γ.
    """

    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_", "prior_")
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_", "gamma_")
    browsing: ClassVar[bool] = True  # a state is (closest click above, position), else a position

    attractiveness_prior: str | float = setting(
        default="overall", choices=("overall", "words"), or_probability=True
    )
    attractiveness_strength: float = setting(default=3.0, low=0)
    examination_prior: str | float = setting(
        default="overall", choices=("overall",), or_probability=True
    )
    examination_strength: float = setting(default=1.0, low=0)
    min_query_sessions: float = setting(default=50, low=0)
    max_iterations: int = setting(default=200, low=1, whole=True)
    tolerance: float = setting(default=1e-5)

    def _estimate(self, sessions: GroupedSessions, means: Float64, history: Counts) -> None:
        settings = self.get_params()
        self._cells, fit = fit_examination(
            sessions, means, history, settings, browsing=self.browsing, engine=self._engine
        )
        self.exposure_ = fit.statistics.pairs["examinations"]
        self.prior_ = means
        self.theta_ = fit.parameters.theta
        gamma = fit.parameters.gamma
        self.gamma_: Float64 = (  # [closest click above, position] or [position]
            gamma.reshape(-1, sessions.max_ads) if self.browsing else gamma
        )
        self._report_fit(fit)

    def _posteriors(self, asked: PairLookup) -> PairPosteriors:
        return with_posterior(
            super()._posteriors(asked),
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
        self._cells = ExaminationCells.from_table(tables["cells"])
        return super()._from_tables(values, tables)
