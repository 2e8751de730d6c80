"""LuceClick: clicks in any order, fitted jointly.

A session ends by satisfaction or by fatigue, and a click is due to the ad or to its position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.mixture import MixturePages
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.pair_index import ImpressionLookup, PairLookup
from reclick.data.ragged import Float64, Int32, Int64, positions_in_runs
from reclick.engines import as_grouped
from reclick.errors import Argument, CannotAnswerError, StoreError
from reclick.fitting.posterior import PairPosteriors
from reclick.fitting.priors import PRIOR_MARGIN
from reclick.models.base import ClickModel
from reclick.models.luce.grid import LuceSearch, fit_pooled, fit_second_stage
from reclick.models.luce.incremental import (
    IndexMap,
    decay_past,
    past_statistics,
    reindex_sessions,
    warm_start,
)
from reclick.models.luce.initial_values import InitialCounts, count_sessions
from reclick.models.luce.m_step import LuceFit, Objective, maximise
from reclick.models.luce.parameters import (
    Hyperparameters,
    Information,
    LuceParameters,
    PairPositions,
    PastStatistics,
    extend_transitions,
    lookup_position_effects,
)
from reclick.models.luce.posterior import (
    POOLED_INFORMATION,
    beta_posterior,
    combine_components,
    fit_information,
    logit_slopes,
    mean_attractiveness,
)
from reclick.models.luce.satisfaction import (
    SIDES,
    ZERO_VARIANCE,
    mean_satisfaction,
    prior_deviation,
    prior_information,
    satisfaction_centre,
    scale_odds,
)
from reclick.models.settings import setting
from reclick.models.text_pair_index import TextPairIndex, input_text, merge_text
from reclick.runtime.progress import ProgressOption, track_progress
from reclick.text.poisson_regression import PoissonTextModel, select_text_model
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex

SAVED_TABLES = {  # besides the values of pairs, and their numbers of columns
    "luce_pairs": 5,
    "luce_transition": 2,
    "luce_outside": 2,
    "luce_queries": 4,
    "luce_mixing": 2,
    "luce_appeal": 3,
    "luce_position_effect": 1,
    "luce_cells": 3,
    "luce_odds": 3,
    "luce_information": 2,
    "luce_transition_factors": 1,
    "luce_outside_factors": 1,
}
MAX_STRENGTH = 1e12  # pseudo-clicks; stronger priors drown the sessions in rounding


class LuceClick(ClickModel):
    """Luce's choice among the ads that are left and "nothing more", until a click satisfies.

    After k clicks, the last at position l, the user is satisfied with ρ(q, d_l) and the session
    ends. Otherwise each free position j has the weight w_j = θ(q, d_j) γ(l, j), the end has ω_k
    f_q, and P(j) = w_j / (ω_k f_q + Σ w). γ, ω, θ and ρ may differ between mixture components,
    mixing weights between queries, and position effects between queries and ads. f is uncertain, so
    predictions are means over it (reclick.models.luce.satisfaction).

    Fitted by EM; satisfaction and component are latent. The M-step is in closed form and never
    lowers the objective. The scale is that of an ad alone at the top of a page: attractiveness is
    P(it is clicked) = θ / (1 + θ) to an average user, without position effects of the query or ad;
    with component-specific appeal, it is the mean over the components. Satisfaction is that of an
    average click.

    Strengths of priors are in pseudo-clicks, and None is one value common to all. "auto" lets the
    training log decide by cross-validation (reclick.models.luce.grid); `hyperparameters_` has the
    result. A fit starts at counts of the sessions, and of the `history` if there is one. The priors
    are learnt from the sessions alone: a history changes the start and not the objective.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> model = LuceClick(components=1).fit(log)
    >>> model.converged_, model.theta_.round(1)
    (True, array([1.8, 1.8]))
    """

    name: ClassVar[str] = "luceclick"
    assumes: ClassVar[str] = (
        "ads compete with each other and with stopping; examination moves from click to click in "
        "any direction; a click may satisfy"
    )
    reference: ClassVar[str] = "Reclick; Luce 1959 (the choice axiom), Hunter 2004 (MM steps)"
    ordered: ClassVar[bool] = True
    satisfaction: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = (
        "theta_",
        "rho_",
        "_satisfaction_variance",
        "exposure_",
        "_theta_information",
        "_rho_information",
    )
    global_parameters: ClassVar[tuple[str, ...]] = (
        "prior_mean_",
        "satisfaction_",
        "gamma_",
        "omega_",
        "mixing_",
        "hyperparameters_",
        "pooled_iterations_",
        "_pair_class_mean",
        "_query_class_mean",
        "_reference_classes",
        "_scale",
        "_component_odds",
        "_satisfaction_odds",
        "_click_mixing",
    )

    attractiveness_prior: str | float = setting(
        default="overall",
        choices=("overall", "words"),
        allow_probability=True,
        help='prior mean of θ: "overall" (learnt), "words" (from the words of the ad, for ads with '
        "few impressions), or a number, the attractiveness of an ad that is not in the log",
    )
    attractiveness_strength: str | float = setting(
        default="auto",
        choices=("auto",),
        low=0,
        high=MAX_STRENGTH,
        help="strength of that prior, in clicks; 0 is maximum likelihood",
    )
    satisfaction_prior: str | float = setting(
        default="overall",
        choices=("overall",),
        allow_probability=True,
        help='prior mean of ρ: "overall" (learnt), or a number',
    )
    satisfaction_strength: str | float | None = setting(
        default="auto",
        choices=("auto",),
        low=0,
        high=MAX_STRENGTH,
        allow_none=True,
        help="strength of that prior, in clicks; None: one ρ for all pairs",
    )
    query_strength: str | float | None = setting(
        default="auto",
        choices=("auto",),
        low=0,
        high=MAX_STRENGTH,
        allow_none=True,
        help="strength of the prior of each query's outside option f, in stops; None: f = 1",
    )
    transition_strength: str | float = setting(
        default="auto",
        choices=("auto",),
        low=0,
        high=MAX_STRENGTH,
        help="strength of the prior of γ(l, j), its factors of distance and row, in clicks",
    )
    components: str | int = setting(
        default="auto", choices=("auto",), low=1, integer=True, help="number of mixture components"
    )
    component_strength: str | float = setting(
        default="auto",
        choices=("auto",),
        low=0,
        high=MAX_STRENGTH,
        help="strength of the prior that components do not differ in γ and ω, in clicks",
    )
    mixing_strength: str | float | None = setting(
        default="auto",
        choices=("auto",),
        low=0,
        high=MAX_STRENGTH,
        allow_none=True,
        help="strength of the prior of a query's mixing weights, in sessions; None: the same for "
        "all",
    )
    component_appeal_strength: str | float | None = setting(
        default="auto",
        choices=("auto",),
        low=0,
        high=MAX_STRENGTH,
        allow_none=True,
        help="strength of the prior that components do not differ in θ, in clicks; None: no such "
        "difference",
    )
    position_effect_strength: str | float | None = setting(
        default="auto",
        choices=("auto",),
        low=0,
        high=MAX_STRENGTH,
        allow_none=True,
        help="strength of the prior that queries and ads have the same position effects, in "
        "clicks; None: they have",
    )
    min_query_sessions: float = setting(default=50, low=0)
    max_iterations: int = setting(default=500, low=1, integer=True)
    tolerance: float = setting(default=1e-6)

    # fitting

    def _fit(self, data: GroupedSessions, history: Counts | None, text: AdTokens | None) -> None:
        """Fit with one prior mean for all pairs.

        With the prior "words" a second fit follows, with the prior means that words give: clicks
        over exposure.
        """
        prior = self.attractiveness_prior
        self.prior_mean_ = 1.0
        self._pairs = self._index(data.counts, text)
        prior_mean = np.ones(len(self._pairs))
        chosen, counts = self._choose(data, prior_mean), count_sessions(data)
        objective, result = self._fit_stages(data, chosen, prior_mean, counts, history)
        odds = None
        if not isinstance(prior, str):
            odds = prior / (1 - prior) / float(result.parameters.pair_class_mean[0])
        self._set_fitted(objective, result, odds)
        if prior == "words":
            self.word_exposure_, self.word_clicks_ = self.exposure_, self._pairs.counts.clicks
            self._choose_text_model(data.counts, text)
            self._pairs = self._index(data.counts, text)
            overall = self._pairs.words.overall
            prior_mean = np.maximum(self._pairs.words.pair_rates()[:, 0], 1e-6) / overall
            fitted = self._fit_stages(data, chosen, prior_mean, counts, history)
            self._set_fitted(*fitted, overall)

    def _choose(self, sessions: GroupedSessions, prior_mean: Float64) -> Hyperparameters:
        """The hyperparameters that were set, and for those that are "auto" what the log decides."""
        settings = {name: getattr(self, name) for name in Hyperparameters._fields}
        searched = ("auto", "overall")
        fixed = {name: value for name, value in settings.items() if value not in searched}
        return LuceSearch(sessions, prior_mean, fixed).choose()

    def _fit_stages(
        self,
        sessions: GroupedSessions,
        chosen: Hyperparameters,
        prior_mean: Float64,
        counts: InitialCounts,
        history: Counts | None,
    ) -> tuple[Objective, LuceFit]:
        first = fit_pooled(sessions, chosen, prior_mean, counts, self._engine)
        self.pooled_iterations_ = first.iterations
        if history is not None:
            strength = chosen.attractiveness_strength
            before = counts.attractiveness(prior_mean, strength)
            counts = _add_history(counts, sessions.counts, history)
            first = first.scale_theta(counts.attractiveness(prior_mean, strength) / before)
        return fit_second_stage(
            sessions,
            chosen,
            prior_mean,
            counts,
            first,
            engine=self._engine,
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
        )

    def _choose_text_model(self, counts: Counts, text: AdTokens | None) -> None:
        """Let held-out ads decide between mean word rates and a Poisson regression on words."""
        words = TextPairIndex(counts, text, min_query_sessions=self.min_query_sessions).words
        n_ads = len(counts.ads)
        exposure = np.bincount(counts.pair_ad, self.word_exposure_, n_ads).astype(np.float64)
        clicks = np.bincount(counts.pair_ad, self.word_clicks_, n_ads).astype(np.float64)
        query = np.zeros(n_ads, np.int64)
        query[counts.pair_ad[::-1]] = counts.pair_query[::-1]  # the first query of each ad
        tokens = words.encode_ads(counts.ads, None if text is None else TextIndex(text))
        n_words = int(tokens.words.max(initial=0)) + 1
        model = select_text_model(tokens, exposure, clicks, n_words, query)
        self.word_weights_, self.word_level_ = np.zeros(0), 0.0
        if isinstance(model, PoissonTextModel):
            self.word_weights_, self.word_level_ = model.weights, model.intercept

    def _index(self, counts: Counts, text: AdTokens | None) -> TextPairIndex:
        pairs = super()._index(counts, text)
        if hasattr(self, "word_exposure_") and len(self.word_weights_):
            model = PoissonTextModel(self.word_weights_, self.word_level_)
            pairs.words = pairs.words.with_model(model)
        return pairs

    def update(
        self,
        sessions: object = None,
        *,
        forget: object = None,
        decay: float = 1.0,
        ads: object = None,
        progress: ProgressOption = None,
    ) -> Self:
        """Continue from the last fit with new sessions; the old ones count `decay` times as much.

        The old sessions are not read again: sums of them are kept
        (reclick.models.luce.incremental). The hyperparameters stay the same. Fit anew from time to
        time, as the sums are approximate.
        """
        self.check_fitted()
        if forget is not None:
            raise CannotAnswerError(
                "LuceClick cannot forget sessions it was fitted to: let them decay with ",
                Argument("decay", 0.9),
                ", or fit it again without them.",
            )
        with track_progress(progress, f"Updating {type(self).__name__}"):
            text = merge_text(self._pairs.text, input_text(sessions, ads))
            updated = self.clone()._continue(self, as_grouped(sessions), decay, text)
        return self._adopt_state(updated)

    def _continue(
        self, last: Self, new: GroupedSessions, decay: float, text: AdTokens | None
    ) -> Self:
        """Take over from a fitted model, with new sessions."""
        before = last._pairs.counts
        counts = before.decay(decay) + new.counts
        index = IndexMap(before, counts, last._cell_keys)
        self.prior_mean_, self.pooled_iterations_ = last.prior_mean_, 0
        if self.attractiveness_prior == "words":
            self.word_exposure_ = index.to_pairs(last.exposure_, 0.0)
            self.word_clicks_ = index.to_pairs(before.clicks, 0.0)
            self._choose_text_model(counts, text)
        self._pairs = self._index(counts, text)
        prior_mean = np.ones(len(self._pairs))
        if self._pairs.prior_mean is None:
            prior_mean = np.maximum(self._pairs.words.pair_rates()[:, 0], 1e-6) / last._scale
        objective = Objective(
            reindex_sessions(new, counts),
            Hyperparameters(**last.hyperparameters_),
            prior_mean,
            last.satisfaction_,
            last.mixing_,
            index.cells,
        )
        pair_class, query_class = (int(number) for number in last._reference_classes)
        objective.assign_frequency_classes(
            counts.impressions, counts.volumes, (pair_class, query_class)
        )
        objective.set_past(decay_past(last._past, decay, index, objective))
        objective.n_sessions = counts.total  # the objective is of the past sessions too
        objective.click_mixing = last._click_mixing  # until the first E-step
        result = maximise(
            objective,
            warm_start(last._last_parameters(), index, objective),
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
        )
        odds = None if self.attractiveness_prior == "overall" else last._scale
        self._set_fitted(objective, result, odds)
        return self

    def _last_parameters(self) -> LuceParameters:
        """The parameters that the fit ended with, except that `rho` is the mean of ρ."""
        return LuceParameters(
            theta=self.theta_ / self._scale / self._mean_component_appeal(),
            rho=self.rho_,
            transition=self._transition_factors,
            outside=self._outside_factors,
            query_outside=self._query_outside,
            mixing=self._query_mixing,
            pair_class_mean=self._pair_class_mean,
            query_class_mean=self._query_class_mean,
            component_appeal=self._component_appeal,
            satisfaction_variance=1 / self._rho_information,
            position_effect=self._position_effect,
            satisfaction_odds=self._satisfaction_odds,
        )

    def _set_fitted(self, objective: Objective, result: LuceFit, odds: float | None) -> None:
        """Set the fitted attributes, on the scale of an ad alone at the top.

        `odds` are the odds of a click on such an ad of prior mean 1, by default as learnt.
        """
        now, layout, chosen = result.parameters, objective.layout, objective.hyperparameters
        self.hyperparameters_ = chosen._asdict()
        self.mixing_ = now.mixing[0] if chosen.mixing_strength is None else objective.mixing
        gamma = layout.transition.table(now.transition)
        omega = layout.outside.table(now.outside)
        outside = self.mixing_ @ omega[:, 0]
        component_odds = self.mixing_ * gamma[:, 0, 0] / omega[:, 0]
        scale = float(component_odds.sum()) if odds is None else odds
        self._component_odds = component_odds / component_odds.sum()
        self._component_appeal = now.component_appeal
        appeal = self._mean_component_appeal()
        self.theta_, self.prior_mean_, self._scale = now.theta * scale * appeal, scale, scale
        self._pair_class_mean, self._query_class_mean = now.pair_class_mean, now.query_class_mean
        self._reference_classes = objective.reference_classes
        if self._pairs.prior_mean is not None:
            self.prior_mean_ = self._pairs.prior_mean = scale * now.pair_class_mean[0]
        self.gamma_, self.omega_ = gamma / (scale * outside), omega / outside
        self.rho_ = mean_satisfaction(now.rho, now.satisfaction_variance)
        self._satisfaction_variance = now.satisfaction_variance
        self._satisfaction_odds, self._click_mixing = now.satisfaction_odds, objective.click_mixing
        shared = chosen.satisfaction_strength is None
        self.satisfaction_ = float(now.rho[0]) if shared else objective.satisfaction_mean
        self._query_outside, self._query_mixing = now.query_outside, now.mixing
        self._position_effect, self._cell_keys = now.position_effect, layout.cells.key
        self._theta_information, self._rho_information, information = fit_information(
            objective, result, self.mixing_, scale * self._component_odds / self.mixing_
        )
        self._query_outside_deviation = np.zeros(1)
        if chosen.query_strength is not None:
            self._query_outside_deviation = objective.query_outside_deviation(now, information)
        self._transition_factors, self._outside_factors = now.transition, now.outside
        self._past = past_statistics(objective, now, result.statistics, information)
        self.exposure_ = self._past.exposure / (scale * appeal)
        self._report_fit(result)

    def _mean_component_appeal(self) -> Float64 | float:
        """The mean of the component appeal, weighted by the odds of a click [pair]."""
        if self.hyperparameters_["component_appeal_strength"] is None:
            return 1.0
        return np.asarray(self._component_appeal @ self._component_odds)

    # predictions

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        found = self._pairs.find(batch)
        known = found.query >= 0
        mixing = np.tile(self.mixing_, (len(batch), 1))
        if self.hyperparameters_["mixing_strength"] is not None:
            mixing[known] = self._query_mixing[found.query[known]]
        theta = self._pairs.lookup_or_words(self.theta_, batch, found, text)
        if self.hyperparameters_["position_effect_strength"] is not None:
            theta *= self._lookup_position_effects(found, batch.page)
        rho = self._component_satisfaction(found.row)
        outside = self._outside_sides(found.query)  # [side, session]
        longest = int(np.diff(batch.page).max(initial=1))
        missing = max(0, longest + 1 - self.omega_.shape[1])
        gamma = np.tile(extend_transitions(self.gamma_, longest), (len(outside), 1, 1))
        omega = np.tile(np.pad(self.omega_, ((0, 0), (0, missing)), mode="edge"), (len(outside), 1))

        def pages(start: int, end: int) -> PageDistribution:
            first, last = batch.page[start], batch.page[end]
            starts = batch.page[start : end + 1] - first
            relative = np.repeat(outside[:, start:end], np.diff(starts), axis=1)
            by_side = theta[first:last] / relative  # [side, impression]
            appeal = self._relative_appeal(found.row[first:last])
            components = tuple(
                ChoicePages(
                    "luce",
                    each,
                    rho[t % len(rho), first:last],
                    omega,
                    gamma,
                    starts,
                    np.full(end - start, t),
                )
                for t, each in enumerate((by_side[:, None] * appeal).reshape(len(omega), -1))
            )
            if len(components) == 1:
                return components[0]
            weights = np.tile(mixing[start:end], len(outside)) / len(outside)
            return MixturePages(components, weights)

        return pages

    def _outside_sides(self, query: Int32) -> Float64:
        """The outside option f of each session's query, at both sides of its mean [side, session].

        There is one row where f is not uncertain.
        """
        known, strength = query >= 0, self.hyperparameters_["query_strength"]
        outside = np.full(len(query), self._query_class_mean[0])
        if strength is None:
            return outside[None]
        deviation = np.full(len(query), prior_deviation(strength))
        outside[known] = self._query_outside[query[known]]
        deviation[known] = self._query_outside_deviation[query[known]]
        return np.asarray(outside * np.exp(np.outer(SIDES, deviation)))

    def _component_satisfaction(self, row: Int64) -> Float64:
        """The satisfaction of users of each component [component or 1, impression]."""
        rho = self._pairs.take_or(self.rho_, row, self.satisfaction_)
        if len(self._satisfaction_odds) == 1:
            return rho[None]
        variance = self._pairs.take_or(self._satisfaction_variance, row, ZERO_VARIANCE)
        centre = satisfaction_centre(rho, variance)
        return mean_satisfaction(scale_odds(centre, self._satisfaction_odds[:, None]), variance)

    def _lookup_position_effects(self, found: ImpressionLookup, page: Int64) -> Float64:
        """The position effect of each impression; 1 where nothing was seen there."""
        return lookup_position_effects(
            self._position_effect,
            PairPositions(self._cell_keys),
            self.gamma_.shape[2],
            np.repeat(found.query, np.diff(page)).astype(np.int64),
            found.row,
            positions_in_runs(page),
        )

    def _relative_appeal(self, row: Int64) -> Float64:
        """θ of each component over the mean θ [component, impression]; 1 for pairs never seen."""
        relative = np.ones((len(self.mixing_), len(row)))
        if self.hyperparameters_["component_appeal_strength"] is not None:
            known = row >= 0
            appeal = self._component_appeal[row[known]]
            relative[:, known] = (appeal / (appeal @ self._component_odds)[:, None]).T
        return relative

    def _top_odds(self, theta: Float64, row: Int64) -> Float64:
        """The odds of a click of each component on an ad alone at the top [pair, component]."""
        by_component = (self._relative_appeal(row) * theta).T
        return np.asarray(by_component * self._component_odds / self.mixing_)

    def _posteriors(self, lookup: PairLookup) -> PairPosteriors:
        """Betas from the information on the logits of attractiveness and ρ (Laplace).

        The components of the users are taken as known.
        """
        row, take_or, chosen = lookup.row, self._pairs.take_or, self.hyperparameters_
        unseen = np.full(len(row), self._pairs.prior_mean)
        if self._pairs.prior_mean is None:
            unseen = lookup.words[:, 0]
        theta = np.where(row >= 0, take_or(self.theta_, row, 0.0), np.maximum(unseen, 1e-9))
        strength, mean = chosen["satisfaction_strength"], self.satisfaction_
        theta_information = take_or(self._theta_information, row, self._unseen_information())
        prior = POOLED_INFORMATION * mean * (1 - mean)
        if strength is not None:
            prior = prior_information(strength, mean)
        rho_information = take_or(self._rho_information, row, prior)
        attractive = theta / (1 + theta)
        if chosen["component_appeal_strength"] is not None:
            attractive = mean_attractiveness(self._top_odds(theta, row), self.mixing_)
        each = self._component_satisfaction(row)
        rho = each[0]
        if len(each) > 1:
            each = np.clip(each, PRIOR_MARGIN, 1 - PRIOR_MARGIN)
            rho = self._click_mixing @ each
            slope = rho * (1 - rho) / (self._click_mixing @ (each * (1 - each)))
            rho_information = rho_information * slope**2
        return PairPosteriors(
            beta_posterior(attractive, theta_information), beta_posterior(rho, rho_information)
        )

    def _unseen_information(self) -> float:
        """The information on the logit of the attractiveness of a pair never seen: the priors'."""
        chosen = self.hyperparameters_
        strength, appeal = chosen["attractiveness_strength"], chosen["component_appeal_strength"]
        if appeal is None:
            return float(strength)
        odds = self._top_odds(np.full(1, self.prior_mean_), np.full(1, -1))
        slopes = logit_slopes(odds, self.mixing_)
        none, theta, appeals = (
            np.zeros_like(slopes),
            np.full(1, strength),
            np.full_like(slopes, appeal),
        )
        return float(combine_components(none, theta, appeals, slopes)[0])

    # saving

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        values, tables = super()._to_tables()
        if hasattr(self, "word_weights_"):
            values["word_weights_"] = self.word_weights_.tolist()
            values["word_level_"] = self.word_level_
        for name, arrays in self._saved_arrays().items():
            tables[name] = pa.table({str(i): np.ravel(array) for i, array in enumerate(arrays)})
        return {**values, "hyperparameters_": self.hyperparameters_}, tables

    def _saved_arrays(self) -> dict[str, tuple[Float64 | Int64, ...]]:
        """What is saved besides the values of pairs: arrays of the same length go together."""
        past = self._past
        queries = past.query_observed, past.query_exposure
        return {
            "luce_pairs": past[:5],
            "luce_transition": (past.transition_observed, past.transition_exposure),
            "luce_outside": (past.outside_observed, past.outside_exposure),
            "luce_queries": (self._query_outside, self._query_outside_deviation, *queries),
            "luce_mixing": (self._query_mixing, past.component_sessions),
            "luce_appeal": (self._component_appeal, past.appeal_observed, past.appeal_exposure),
            "luce_position_effect": (self._position_effect,),
            "luce_cells": (self._cell_keys, past.cell_observed, past.cell_exposure),
            "luce_odds": (past.odds_observed, past.odds_exposure, past.component_followed),
            "luce_information": past.information,
            "luce_transition_factors": (self._transition_factors,),
            "luce_outside_factors": (self._outside_factors,),
        }

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        own = {name: table for name, table in tables.items() if name.startswith("luce_")}
        if {name: table.num_columns for name, table in own.items()} != SAVED_TABLES:
            raise StoreError(
                "The saved LuceClick is of another version of Reclick, which kept other statistics "
                "of its sessions. Fit it again."
            )
        super()._from_tables(values, tables)
        saved = {
            name: [column.to_numpy().copy() for column in table.columns]
            for name, table in own.items()
        }
        components = len(self.mixing_)
        appeals = 1 if self.hyperparameters_["component_appeal_strength"] is None else components
        transition = [x.reshape(self.gamma_.shape) for x in saved["luce_transition"]]
        outside = [x.reshape(self.omega_.shape) for x in saved["luce_outside"]]
        self._query_outside, self._query_outside_deviation, *queries = saved["luce_queries"]
        self._query_mixing, component_sessions = (
            x.reshape(-1, components) for x in saved["luce_mixing"]
        )
        self._component_appeal, *appeal = (x.reshape(-1, appeals) for x in saved["luce_appeal"])
        (self._position_effect,) = saved["luce_position_effect"]
        self._cell_keys, *cells = saved["luce_cells"]
        (self._transition_factors,) = saved["luce_transition_factors"]
        (self._outside_factors,) = saved["luce_outside_factors"]
        pairs, odds = saved["luce_pairs"], saved["luce_odds"]
        sums = (*pairs, *transition, *outside, *queries, component_sessions, *appeal, *cells, *odds)
        information = Information(*(x.reshape(-1, appeals) for x in saved["luce_information"]))
        self._past = PastStatistics._make([*sums, information])
        return self

    def _describe_fit(self) -> str:
        chosen = ", ".join(f"{name}={value!r}" for name, value in self.hyperparameters_.items())
        means = f"satisfaction_ = {self.satisfaction_:.3f}  prior_mean_ = {self.prior_mean_:.3f}"
        return f"{super()._describe_fit()}\n  {chosen}\n  {means}"


def _add_history(counts: InitialCounts, sessions: Counts, history: Counts) -> InitialCounts:
    """The counts of the pairs of the sessions plus those of a history, which has no positions."""
    both = sessions + history
    row = IndexMap(sessions, both).pair
    clicks = both.clicks[row] - sessions.clicks
    impressions = both.impressions[row] - sessions.impressions
    last_clicks = both.last_clicks[row] - sessions.last_clicks
    rate = history.clicks.sum() / max(history.impressions.sum(), PRIOR_MARGIN)
    return counts._replace(
        clicks=counts.clicks + clicks,
        expected=counts.expected + rate * impressions,
        followed=counts.followed + clicks,
        last_clicks=counts.last_clicks + last_clicks,
    )
