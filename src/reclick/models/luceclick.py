"""LuceClick, the default model: clicks in any order, with all parameters fitted jointly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.mixture import mix_choices
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.pair_index import CellIndex, IndexMap, PairLookup
from reclick.data.ragged import Float64, run_sizes
from reclick.data.stored_tables import table_error
from reclick.fitting.attractiveness_prior import AdRecord, PairPrior
from reclick.fitting.posterior import PairPosteriors, logit_posterior
from reclick.fitting.transitions import extend_outside, extend_transitions
from reclick.models.base import ClickModel
from reclick.models.luce.fit import LuceResult, LuceState, TrainingData, fit_luce, fit_pilot
from reclick.models.luce.parameters import (
    CELLS,
    PAIR,
    PAIR_CLASS,
    TABLE_ROWS,
    Hyperparameters,
    Layout,
    initial_parameters,
)
from reclick.models.luce.search import search_hyperparameters
from reclick.models.redundancy import find_overlap, fit_with_redundancy
from reclick.models.settings import auto_setting, setting
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex, TokenLists

LEAST_COMPLEMENT = 1e-9  # of 1 − attractiveness, for posterior draws
INFORMATION = ("outside_information_", "ads_information_", "ambiguity_")  # of a `LuceState`


class LuceClick(ClickModel):
    """Luce's choice among the remaining ads and an outside option, until a click satisfies.

    After k clicks, the last at l, the user is satisfied with probability ρ(q, d_l), and the session
    ends. Otherwise every free position j has weight w_j = θ(q, d_j) γ(l, j), the outside option has
    ω_k f_q, and P(j) = w_j / (ω_k f_q + Σ w). `theta_` has θ times the factor of the pair's
    frequency class, on the scale below. γ and ω may differ between the components of a
    mixture of users, with mixing weights per query, and positions may have effects of their own
    for a query or an ad. Attractiveness is reported as the probability of a click on an ad alone on
    a page, θ / (1 + θ). `prior_report_` describes where its prior comes from. A setting "auto" has
    its default or a value chosen on the log: `hyperparameters_`.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> model = LuceClick().fit(log)
    >>> model.converged_, bool(model.click_prob(log)[0, 0] > 0.3)
    (True, True)
    """

    name: ClassVar[str] = "luceclick"
    assumes: ClassVar[str] = (
        "ads compete with each other and with stopping; users move from click to click; "
        "a click may satisfy"
    )
    reference: ClassVar[str] = "Reclick; Luce 1959 (the choice axiom), Hunter 2004 (the steps)"
    ordered: ClassVar[bool] = True
    satisfaction: ClassVar[bool] = True
    updates: ClassVar[bool] = True
    fits_in_buckets: ClassVar[bool] = True
    uses_history: ClassVar[bool] = False
    pair_parameters: ClassVar[tuple[str, ...]] = (
        "theta_", "rho_", "exposure_", "theta_information_", "rho_information_", *INFORMATION,
    )  # fmt: skip
    global_parameters: ClassVar[tuple[str, ...]] = (
        "prior_report_", "typical_outside_", "mixing_prior_",
    )  # fmt: skip
    probabilities: ClassVar[tuple[str, ...]] = ("rho_",)
    table_rows: ClassVar[Mapping[str, str]] = TABLE_ROWS

    attractiveness_prior: str | float = setting(
        default="auto", choices=("auto", "overall", "words"), allow_probability=True
    )
    attractiveness_strength: str | float = auto_setting(
        "strength of that prior, in pseudo-clicks; auto: that of highest evidence"
    )
    evidence_factor: str | float = auto_setting("factor of that strength", low=None, greater_than=0)
    satisfaction_prior: str | float = auto_setting(
        "prior mean of ρ; auto: 0.4, or what held-out sessions choose",
        low=None, high=None, allow_probability=True,
    )  # fmt: skip
    satisfaction_strength: str | float | None = auto_setting(
        "strength of that prior; None: one satisfaction for all pairs", allow_none=True
    )
    outcome_weight: float = setting(default=1.0, low=0, high=1)
    query_strength: str | float | None = auto_setting(
        "strength of the prior of each query's outside option; None: one for all", allow_none=True
    )
    transition_strength: str | float = auto_setting("strength of the prior of each transition")
    components: str | int = auto_setting("user types in the mixture", low=1, high=20, integer=True)
    component_strength: str | float = auto_setting("strength of the prior of each component")
    mixing_strength: str | float | None = auto_setting(
        "strength of the prior of each query's mixing weights; None: one for all", allow_none=True
    )
    position_effect_strength: str | float | None = auto_setting(
        "strength of the prior of position effects; None: positions have none", allow_none=True
    )
    redundancy: str | float = setting(default=0.0, choices=("auto",), low=0, high=1e6)
    tune: str = setting(
        default="fast",
        choices=("fast", "full", "off"),
        help="values to try for settings that are auto: a few for some, many for most, or none",
    )
    max_iterations: int = setting(default=500, low=1, integer=True)
    tolerance: float = setting(default=1e-6)

    # fitting

    def _fit(self, data: GroupedSessions, history: Counts | None, text: AdTokens | None) -> None:
        self._pairs = self._index(data.counts, text)
        hyper = self._choose(data, len(data.counts.queries))
        layout = Layout.of(data, has_positions=hyper.position_effect_strength is not None)
        training = TrainingData.of(data, layout)
        pilot = fit_pilot(training, hyper, self._engine)
        prior = self._set_prior(pilot.ad_record(), hyper)
        limits: dict[str, Any] = {"engine": self._engine, **self._em_limits}
        start = pilot.parameters

        def refit(kappa: float) -> None:
            nonlocal start
            data_with_overlap = training.with_redundancy(kappa, self._pairs.ad_tokens())
            result = fit_luce(data_with_overlap, hyper, prior, start, **limits)
            start = result.parameters
            self._set_state(LuceState.of(hyper, data_with_overlap, result), result)

        fit_with_redundancy(self, data, self.redundancy, refit)

    def _choose(
        self,
        sessions: GroupedSessions,
        queries: int,
        words: tuple[TokenLists | None, int] | None = None,
    ) -> Hyperparameters:
        """Return the hyperparameters: from the settings, or chosen on the training log.

        `queries` and `words` are those of the whole log; `sessions` may be a sample of it.
        """
        settings = {name: getattr(self, name) for name in Hyperparameters._fields}
        fixed: dict[str, Any] = {name: value for name, value in settings.items() if value != "auto"}
        if queries == 1:  # queries cannot differ from each other
            fixed = {"query_strength": None, "mixing_strength": None} | fixed
        if "attractiveness_strength" in fixed:  # the strength is not chosen by evidence
            fixed = {"evidence_factor": 1.0} | fixed
        defaults = Hyperparameters(**fixed)
        if self.tune == "off":
            return defaults
        full, prior = self.tune == "full", lambda record: self._fit_ad_prior(record, words).pairs
        return search_hyperparameters(sessions, defaults, fixed, prior, full=full)

    def _set_prior(self, record: AdRecord, hyper: Hyperparameters) -> PairPrior:
        """Fit the prior to the record; set it for unseen pairs, and return that of the pairs."""
        prior = self._pairs.ad_prior = self._fit_ad_prior(record)
        self.prior_report_ = prior.report
        return hyper.apply_strength(prior.pairs)

    def _continue(
        self, last: Self, new: GroupedSessions, old: None, decay: float, text: AdTokens | None
    ) -> None:
        """Run EM from where the last fit ended; old sessions count by sums of their statistics.

        This is an approximation, with the same hyperparameters: fit again from time to time.
        """
        state, old_counts = last._state, last._pairs.counts
        counts = old_counts.decay(decay) + new.counts
        at = IndexMap(old_counts, counts)
        sessions = IndexMap(new.counts, counts).move_sessions(new)
        self._pairs = self._index(counts, text)
        prior = self._set_prior(state.ad_record().move_to(at, counts, decay), state.hyper)
        start = state.move_to(at, sessions, prior, decay)
        data = TrainingData.of(sessions, start.layout)
        data = data.with_redundancy(last.redundancy_, self._pairs.ad_tokens())
        result = data.maximise(start.parameters, engine=self._engine, **self._em_limits)
        self._set_state(LuceState.of(state.hyper, data, result, start.information), result)
        self._set_prior(self._state.ad_record(), state.hyper)  # of unseen pairs
        self._set_weights()

    def _set_state(
        self, state: LuceState, result: LuceResult, typical_outside: float | None = None
    ) -> None:
        """Set the fitted attributes; for `typical_outside` see `_set_weights`."""
        self._state, (*_, ambiguity) = state, state.information
        self.hyperparameters_ = state.hyper._asdict()
        self.exposure_ = state.ad_record().exposure
        self.theta_information_ = state.attractiveness_information()
        self.rho_information_ = state.parameters.satisfaction.information(ambiguity)
        vars(self).update(zip(INFORMATION, state.information, strict=True))
        self._set_weights(typical_outside)
        self._report_fit(result)

    def _set_weights(self, typical_outside: float | None = None) -> None:
        """Set the weights on the scale of an ad alone on a page: P(click) = θ / (1 + θ).

        This holds for a query whose f is `typical_outside`, by default that of the state. With
        several components θ is a mean of odds. If `attractiveness_prior` is a number, it is the
        attractiveness of an unseen pair; it sets the scale, and changes no click probability.
        """
        parameters, layout = self._state.parameters, self._state.layout
        self.typical_outside_ = typical_outside or self._state.typical_outside()
        gamma = parameters.transition.weights()
        omega = parameters.outside.weights() * self.typical_outside_
        self.mixing_: Float64 = parameters.mixing.overall
        self.mixing_prior_: Float64 = parameters.mixing.mean
        scale = float(np.sum(self.mixing_ * gamma[:, 0, 0] / omega[:, 0]))
        level = float(self.mixing_ @ omega[:, 0])
        class_factor, prior = parameters.appeal.level(PAIR_CLASS), self._pairs.ad_prior
        if prior is not None and not isinstance(self.attractiveness_prior, str):  # of unseen pairs
            odds = self.attractiveness_prior / (1 - self.attractiveness_prior)
            scale = odds / (class_factor[0] * prior.overall)
        self.theta_ = parameters.appeal.level(PAIR) * class_factor[layout.pair_class] * scale
        self._unseen_scale = scale * class_factor[0]
        self.gamma_, self.omega_ = gamma / (scale * level), omega / level
        self.rho_ = parameters.satisfaction.mean
        self.satisfaction_ = parameters.satisfaction.unseen_mean

    # answers

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        lookup = self._pairs.find(batch)
        unseen: Float64 | float = 0.0
        if (lookup.row < 0).any():
            unseen = self._pairs.unseen_means(batch, text) * self._unseen_scale  # [impression]
        theta = self._pairs.take_or(self.theta_, lookup.row, unseen)
        sizes = run_sizes(batch.page)
        theta *= self._state.position_effects(lookup, batch.page)
        theta /= (self._state.query_outside(lookup.query) / self.typical_outside_).repeat(sizes)
        rho = self._pairs.take_or(self.rho_, lookup.row, self.satisfaction_)
        longest = int(sizes.max(initial=1))
        weights = extend_outside(self.omega_, longest), extend_transitions(self.gamma_, longest)
        overlap, mixing = find_overlap(self, batch, text), self._state.parameters.mixing

        def pages(start: int, end: int) -> PageDistribution:
            first, last = batch.page[start], batch.page[end]
            page = theta[first:last], rho[first:last], *weights, batch.page[start : end + 1] - first
            redundancy = np.zeros(end - start, np.int64), self.redundancy_, overlap(start, end)
            one = ChoicePages("luce", *page, *redundancy)
            return mix_choices(one, mixing.lookup(lookup.query[start:end]))

        return pages

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        """Betas by Laplace's approximation, which treats the components as known."""
        prior = self._state.hyper.apply_strength(self._pairs.unseen_prior(pairs))
        theta = self._pairs.take_or(self.theta_, pairs.row, prior.mean * self._unseen_scale)
        information = self._pairs.take_or(self.theta_information_, pairs.row, prior.strength)
        rho = self._pairs.take_or(self.rho_, pairs.row, self.satisfaction_)
        unseen = self._state.parameters.satisfaction.prior_information
        satisfied = self._pairs.take_or(self.rho_information_, pairs.row, unseen)
        attractiveness = logit_posterior(theta / (1 + theta), information)
        return PairPosteriors(attractiveness, logit_posterior(rho, satisfied))

    def _with_values(self, attractiveness: Float64, satisfaction: Float64 | None) -> Self:
        """As in every model, but `theta_` are odds here."""
        odds = attractiveness / np.maximum(1 - attractiveness, LEAST_COMPLEMENT)
        return super()._with_values(odds, satisfaction)

    # saving

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        values, tables = super()._to_tables()
        layout, parameters = self._state.layout, self._state.parameters
        tables |= parameters.to_tables("luce", layout.row_starts(len(self.mixing_)))
        return values, tables | {CELLS: layout.cells.to_table(len(layout.pair_class))}

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        super()._from_tables(values, tables)
        hyper, counts = Hyperparameters(**self.hyperparameters_), self._pairs.counts
        cells = CellIndex(hyper.position_effect_strength is not None)
        cells = cells.from_table(tables, CELLS, len(self.theta_), max(counts.max_ads, 1))
        layout = Layout.build(counts, counts.impressions, counts.volumes, cells)
        flat, mixing = PairPrior.flat(len(self.theta_)), np.asarray(self.mixing_prior_)
        if len(mixing) != hyper.components:
            raise table_error("mixing_prior_", f"it needs {hyper.components} weights")
        initial = initial_parameters(layout, hyper, flat, mixing)  # an update sets its prior
        parameters = initial.from_tables("luce", tables, layout.row_starts(len(mixing)))
        information = np.stack([getattr(self, name) for name in INFORMATION])
        self._state = LuceState(hyper, layout, parameters, information)
        self._set_weights(self.typical_outside_)
        return self
