"""PBM, UBM and BBM: a click needs examination, which the position or the click above decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.chain import PROBABILITY_MARGIN, chain_pages, fill_independent_chain
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.mixture import MixturePages
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.pair_index import PairLookup
from reclick.data.ragged import Float64, positions_in_runs
from reclick.data.stored_tables import table_error
from reclick.errors import StoreError
from reclick.fitting.beta import BetaPrior
from reclick.fitting.em import FitResult, Statistics
from reclick.fitting.folds import Fold, choose_number
from reclick.fitting.mixture import split_probability
from reclick.fitting.posterior import PairPosteriors
from reclick.models.base import ClickModel, cannot_fit_in_buckets
from reclick.models.kernels.examination_em import (
    ExaminationCells,
    ExaminationData,
    ExaminationParameters,
    ExaminationPrior,
    ExaminationProblem,
    browse_pages,
    browsing_means,
    build_cells,
    position_means,
)
from reclick.models.kernels.examination_mixture import (
    MixtureParameters,
    StateTotals,
    first_parameters,
    fit_components,
    score,
)
from reclick.models.kernels.examination_posterior import posterior_quantiles, with_exact_intervals
from reclick.models.settings import setting
from reclick.text.word_rates import TextIndex

MOST_COMPONENTS = 4  # the largest number that "auto" tries
LEAST_DIFFERENCE = 0.1  # between the shifts of two components, in log-odds
# Trials must converge closely. Else more components could gain only because they iterate longer.
TRIAL: dict[str, Any] = {"max_iterations": 1000, "tolerance": 1e-6, "quiet": True}


class ExaminationModel(ClickModel):
    """P(click) = θ(q, d) · γ(state): attractiveness, and the examination of a state of the page.

    EM runs over the cells (pair, state); see reclick.models.kernels.examination_em. Only the
    products θγ can be inferred; the priors fix the scale. Intervals of θ are those of its posterior
    given γ.
    """

    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_", "gamma_")
    probabilities: ClassVar[tuple[str, ...]] = ("theta_", "gamma_", "mixing_")
    table_rows: ClassVar[Mapping[str, str]] = {"cells": "pair"}
    stages: ClassVar[tuple[str, ...]] = ("all",)
    fits_in_buckets: ClassVar[bool] = True
    browsing: ClassVar[bool] = True  # states are (closest click above, position), else positions
    overall_strength: ClassVar[float] = 3.0

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = setting(default="auto", choices=("auto",), low=0)
    examination_prior: str | float = setting(
        default="overall", choices=("overall",), allow_probability=True
    )
    examination_strength: float = setting(default=1.0, low=0)
    max_iterations: int = setting(default=200, low=1, integer=True)
    tolerance: float = setting(default=1e-5)

    def _prepare(self, data: GroupedSessions) -> Any:
        return self._build_cells(data, data.max_ads)

    def _build_cells(self, data: GroupedSessions, length: int) -> ExaminationData:
        """Build the cells of sessions; `length` is the longest page of the whole log."""
        cells = partial(build_cells, length=length, browsing=self.browsing)
        blocks = self._engine.prepare(cells, data.blocks())
        return ExaminationData(data.n_sessions, length, blocks)

    def _make_problem(
        self, stage: str, data: ExaminationData, prior: BetaPrior, history: Counts
    ) -> ExaminationProblem:
        return ExaminationProblem.of(data, self._examination_prior(data.length, prior, history))

    def _set_fit(
        self,
        stage: str,
        problem: ExaminationProblem,
        fit: FitResult[ExaminationParameters, Statistics],
    ) -> None:
        self._cells = ExaminationCells.concatenate([block.cells for block in problem.blocks])
        self.exposure_ = fit.statistics.pairs["examinations"]
        self.theta_ = fit.parameters.theta
        self._set_examination(fit.parameters.gamma)

    def _examination_prior(
        self, length: int, prior: BetaPrior, history: Counts
    ) -> ExaminationPrior:
        """Make the prior of θ, and of γ for pages of up to `length` ads."""
        means = position_means(self.examination_prior, history, length)
        if self.browsing:
            means = browsing_means(means).ravel()
        return ExaminationPrior(prior, means, self.examination_strength)

    def _set_examination(self, gamma: Float64) -> None:
        self.gamma_: Float64 = gamma  # [closest click above, position] or [position]
        if self.browsing:  # positions · (positions + 1) states
            self.gamma_ = gamma.reshape(-1, math.isqrt(len(gamma)))

    def _clicks_and_exposure(self) -> tuple[Float64, Float64]:
        return self._cells.clicks, self.exposure_

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        return with_exact_intervals(
            super()._posteriors(pairs),
            self._cells,
            pairs.row,
            self._prior_of(pairs),
            self.gamma_.ravel(),
        )

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        values, tables = super()._to_tables()
        return values, {**tables, "cells": self._cells.to_table()}

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        self._cells = ExaminationCells.from_table(tables["cells"])
        super()._from_tables(values, tables)
        states = np.size(self.gamma_)
        if self._cells.state.max(initial=0) >= states or len(self._cells.clicks) != len(
            self._pairs
        ):
            raise table_error("cells", "its rows or states are not those of the model")
        return self


class MixtureData(NamedTuple):
    """A log, both as cells and as sessions."""

    cells: ExaminationData
    sessions: GroupedSessions


class ExaminationMixture(ExaminationModel):
    """An `ExaminationModel` with `components` mixture components of users.

    In component t the odds of every θ are e^(b_t) times as high, with Σ π_t b_t = 0 over the mixing
    weights π_t. The examination γ is common. θ is the mean over the components.
    """

    global_parameters: ClassVar[tuple[str, ...]] = (
        *ExaminationModel.global_parameters, "mixing_", "shifts_",
    )  # fmt: skip
    mixing_: Float64 = np.ones(1)  # [component] π, of sessions
    shifts_: Float64 = np.zeros(1)  # [component] b, in log-odds

    components: str | int = setting(
        default=1,
        choices=("auto",),
        low=1,
        high=20,
        integer=True,
        help="number of mixture components: types of users who click more or less on all ads; a "
        'number, or "auto" (1 to 4; each must significantly improve the likelihood of held-out '
        "sessions)",
    )

    def _check_buckets(self) -> None:
        if self.components != 1:
            raise cannot_fit_in_buckets(self, "components", 1)

    def _prepare(self, data: GroupedSessions) -> Any:
        cells = super()._prepare(data)
        return cells if self.components == 1 else MixtureData(cells, data)

    def _estimate(
        self, data: ExaminationData | MixtureData, prior: BetaPrior, history: Counts
    ) -> None:
        if isinstance(data, ExaminationData):
            super()._estimate(data, prior, history)
            return
        super()._estimate(data.cells, prior, history)
        if self._is_pilot:
            return
        examination = self._examination_prior(data.cells.length, prior, history)
        components = self.components
        if isinstance(components, str):
            try_number = partial(self._try_components, examination, data.cells.length)
            components = choose_number(data.sessions, try_number, MOST_COMPONENTS)
        if components == 1:
            return
        one = ExaminationParameters(self.theta_, self.gamma_.ravel())
        fit = self._fit_components(data, examination, one, components, **self._em_limits)
        self.theta_ = fit.parameters.theta
        self.exposure_ = (fit.statistics.pairs["clicks"] + fit.statistics.pairs["skips"]).sum(1)
        self.mixing_, self.shifts_ = fit.parameters.mixing, fit.parameters.shifts
        self._set_examination(fit.parameters.gamma)
        self._report_fit(fit)

    def _fit_components(
        self,
        data: MixtureData,
        prior: ExaminationPrior,
        one: ExaminationParameters,
        components: int,
        **limits: Any,
    ) -> FitResult[MixtureParameters, Statistics]:
        """Fit several components, starting from the fit `one` of a single component."""
        cells = [block.cells for block in data.cells.blocks]
        totals = StateTotals(
            np.sum([block.state_clicks for block in cells], axis=0),
            np.sum([block.impressions for block in cells], axis=0),
        )
        return fit_components(
            data.sessions.blocks(),
            totals,
            prior,
            first_parameters(one, components),
            length=data.cells.length,
            browsing=self.browsing,
            engine=self._engine,
            sessions=data.cells.sessions,
            **limits,
        )

    def _try_components(
        self,
        prior: ExaminationPrior,
        length: int,
        fold: Fold,
        components: int,
    ) -> Float64 | None:
        """Return the log-probability of each held-out session of a fold with so many components.

        Return None if two components are nearly the same, which is a mixture with one component
        fewer.
        """
        cells = self._build_cells(fold.train, length)
        problem = ExaminationProblem.of(cells, prior)
        one = problem.maximise(None, self._engine, **TRIAL).parameters
        data = MixtureData(cells, fold.train)
        parameters = self._fit_components(data, prior, one, components, **TRIAL).parameters
        if components > 1 and np.diff(np.sort(parameters.shifts)).min() < LEAST_DIFFERENCE:
            return None
        return score(parameters, fold.test.whole, length=length, browsing=self.browsing)

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        super()._from_tables(values, tables)
        if np.shape(self.mixing_) != np.shape(self.shifts_):
            raise StoreError(
                f"The folder has mixing_ = {self.mixing_!r:.100} and shifts_ = "
                f"{self.shifts_!r:.100}, expected as many shifts as mixing weights: it was "
                "altered. Fit again, and save to a new folder."
            )
        return self

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        """As for an `ExaminationModel` with one component; Betas with several."""
        if len(self.mixing_) == 1:
            return super()._posteriors(pairs)
        return ClickModel._posteriors(self, pairs)

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_prior(self.theta_, batch, self._pairs.find(batch), text)
        theta = np.clip(theta, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
        parts = [
            self._component_pages(batch, component_theta)
            for component_theta in split_probability(theta, self.shifts_, self.mixing_)
        ]
        if len(parts) == 1:
            return parts[0]

        def pages(start: int, end: int) -> PageDistribution:
            weights = np.tile(self.mixing_, (end - start, 1))
            return MixturePages(tuple(part(start, end) for part in parts), weights)

        return pages

    def _component_pages(
        self, batch: SessionBatch, theta: Float64
    ) -> Callable[[int, int], PageDistribution]:
        """The pages of a component, in which ads have the attractiveness `theta` [impression]."""
        raise NotImplementedError


class PBM(ExaminationMixture):
    """P(click) = θ(q, d) · γ(position), each position independently.

    The prior mean of γ, `examination_prior`, is a number, or "overall": the click rate of the
    position relative to that of the first, in the history or else in the log. A position beyond
    those of the log has the examination of the last.

    >>> pages = [["a", "b"]] * 4 + [["b", "a"]] * 4
    >>> clicks = [[1], [1], [1, 2], [], [1], [], [2], [1, 2]]
    >>> model = PBM().fit({"query": ["pizza"] * 8, "ads": pages, "clicks": clicks})
    >>> model.click_prob({"query": ["pizza"], "ads": [["a", "b"]]}).round(3)
    array([[0.712, 0.321]])
    """

    name: ClassVar[str] = "pbm"
    assumes: ClassVar[str] = (
        "examination depends on the position alone; an examined ad is clicked if it attracts"
    )
    reference: ClassVar[str] = (
        "Craswell, Zoeter, Taylor, Ramsey 2008; Richardson, Dominowska, Ragno 2007"
    )
    browsing: ClassVar[bool] = False

    def examination_by_position(self) -> Float64:
        """γ, the examination probability of each position of the training log [position]."""
        self.check_fitted()
        return self.gamma_

    def _component_pages(
        self, batch: SessionBatch, theta: Float64
    ) -> Callable[[int, int], PageDistribution]:
        position = positions_in_runs(batch.page)
        return chain_pages(
            batch,
            fill_independent_chain,
            (theta * self.gamma_[np.minimum(position, len(self.gamma_) - 1)],),
        )


class UBM(ExaminationMixture):
    """P(click at r | clicks above) = θ(q, d) · γ(r', r), where r' is the closest click above.

    r' is 0 where there is no click above. The prior mean of γ, `examination_prior`, is a number, or
    "overall". For γ(0, r), that is the click rate of position r relative to that of the first
    position, in the history or else in the log. Below a click at r' it is as if the page began
    there: γ(0, r − r'). A position beyond those of the log has the examination of the last one,
    at the same distance below the click.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [1, 2]]}
    >>> page = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2}
    >>> UBM().fit(log).next_click_prob(page, [[], [1]]).round(3)
    array([[0.747, 0.075],
           [0.   , 0.683]])
    """

    name: ClassVar[str] = "ubm"
    assumes: ClassVar[str] = (
        "examination depends on the position and the distance to the click above; "
        "an examined ad is clicked if it attracts"
    )
    reference: ClassVar[str] = "Dupret, Piwowarski 2008"

    def _component_pages(
        self, batch: SessionBatch, theta: Float64
    ) -> Callable[[int, int], PageDistribution]:
        return browse_pages(batch, theta, self.gamma_)


class BBM(ExaminationModel):
    """UBM's P(click | clicks above) = θ(q, d) · γ(r', r), with θ the mean of its posterior given γ.

    γ is that of UBM. The posterior of θ is exact, not a Beta: an ad that was shown far down without
    a click stays uncertain. With `attractiveness_strength` 0 its prior is flat, as in the paper.
    The paper counts γ in one pass instead of running EM.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [1, 2]]}
    >>> table = BBM().fit(log).relevance({"query": ["pizza"], "ad": ["b"]})
    >>> [round(table[f"attractiveness{end}"][0].as_py(), 3) for end in ("_low", "", "_high")]
    [0.371, 0.7, 0.952]
    """

    name: ClassVar[str] = "bbm"
    assumes: ClassVar[str] = (
        "as UBM; attractiveness is a distribution, of which predictions take the mean"
    )
    reference: ClassVar[str] = "Liu, Guo, Faloutsos 2009"

    def _set_fit(
        self,
        stage: str,
        problem: ExaminationProblem,
        fit: FitResult[ExaminationParameters, Statistics],
    ) -> None:
        super()._set_fit(stage, problem, fit)
        if self._is_pilot:
            return
        prior, gamma = problem.prior.theta, self.gamma_.ravel()
        rows = np.arange(len(prior.mean))
        self.theta_ = posterior_quantiles(self._cells, rows, prior, gamma)[:, 0].copy()

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_prior(self.theta_, batch, self._pairs.find(batch), text)
        return browse_pages(batch, theta, self.gamma_)
