"""LuceClick: clicks in any order, fitted jointly: a stop is satisfaction or fatigue and not both, a click is the merit of the ad or of its place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import LUCE
from reclick.clicks.distribution import Pages
from reclick.clicks.mixture import Kinds
from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions, as_sessions
from reclick.data.pair_index import Asked, Impressions, Pairs
from reclick.errors import CannotAnswerError, SettingError, StoreError
from reclick.fitting.em import check_loop
from reclick.fitting.factors import extended
from reclick.fitting.posterior import Beliefs
from reclick.models.base import EDGE, ClickModel
from reclick.models.inputs import newer_text, text_given
from reclick.models.luce.choice import Chooser, fit, pool
from reclick.models.luce.climbing import Fit, climb
from reclick.models.luce.incremental import Places, carried, faded, moved
from reclick.models.luce.initial_values import Counted, count_sessions
from reclick.models.luce.objective import Problem
from reclick.models.luce.parameters import Evidence, Memory, Options, Parameters
from reclick.models.luce.posterior import HARDLY_KNOWN, belief, information, of_all, slopes, to_all
from reclick.models.luce.readiness import SIDES, unsure_before
from reclick.models.luce.satisfaction import (
    EXACT,
    centre_of,
    known_before,
    mean_of,
    satisfaction_of,
)
from reclick.models.luce.spots import Spots, positions_of, worth_elsewhere
from reclick.models.settings import check_prior, check_range, check_whole
from reclick.runtime.progress import Progress
from reclick.text.poisson_regression import LogLinear, LogLinearWords, chosen
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex

STRENGTHS = (
    "attractiveness_strength",
    "satisfaction_strength",
    "query_strength",
    "transition_strength",
    "component_strength",
    "mixing_strength",
    "component_appeal_strength",
    "position_effect_strength",
)
MAY_BE_SHARED = (  # may be None: one value common to all
    "satisfaction_strength",
    "query_strength",
    "mixing_strength",
    "component_appeal_strength",
    "position_effect_strength",
)
SAVED = {  # tables beside the pairs' values, and their columns
    "luce_pairs": 5, "luce_eye": 2, "luce_out": 2, "luce_spread": 4, "luce_share": 2, "luce_tastes": 3, "luce_worth": 1, "luce_spots": 3,
    "luce_ease": 3, "luce_told": 2, "luce_eye_factors": 1, "luce_out_factors": 1,
}  # fmt: skip
STRONGEST = 1e12  # pseudo-clicks; what is stronger drowns the sessions in rounding


class LuceClick(ClickModel):
    """Luce's choice among the ads that are left and "nothing more", until a click satisfies.

    After k clicks, the last at l: satisfied with ρ(q, d_l), the session ends. Otherwise w_j = θ(q, d_j) γ(l, j) for every free position j, ω_k f_q
    for the end, and P(j) = w_j / (ω_k f_q + Σ w). γ, ω, θ and ρ may differ between kinds of users, whose shares may differ between queries, and
    what a position is worth between queries and ads. Of f what is answered is a mean, as it is not known for sure
    (reclick.models.luce.readiness). Fitted by EM (satisfied at the end, or not; which kind) with steps in closed form for the rest, which never
    lower the objective. The scale is that of an ad alone on top of a page: attractiveness is P(it is clicked) = θ / (1 + θ), to an average user,
    in a place that is worth to the ad what it is worth to all; where tastes differ, its mean over the kinds. Satisfaction is that of an average
    click; `rho_` is that of users whose `_satisfaction_odds` is 1.

    Settings: strengths of priors in pseudo-clicks, of θ (`attractiveness_strength`), of ρ (`satisfaction_strength`), of f (`query_strength`), of γ
    towards what its distance and row say (`transition_strength`), of how kinds differ in γ, ω and ρ (`component_strength`) and in θ
    (`component_appeal_strength`), of a query's shares of them (`mixing_strength`), of what positions are worth to a query or ad (`position_effect_strength`); None is
    one value common to all. `components` is a number. "auto", the default of all, lets the training log decide by held-out likelihood
    (reclick.models.luce.choice); `hyperparameters_` then tells.

    A fit starts at what counting says, of the sessions and of the `history` if there is one. The priors are learnt from the sessions alone, so a
    history changes where the climb starts and not what it climbs.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> model = LuceClick(kinds=1).fit(log)
    >>> model.converged_, model.theta_.round(1)
    (True, array([1.8, 1.8]))
    """

    name: ClassVar[str] = "luceclick"
    assumes: ClassVar[str] = (
        "ads compete with each other and with stopping; the eye jumps from click to click; a click may satisfy"
    )
    reference: ClassVar[str] = "Reclick; Luce 1959 (the choice axiom), Hunter 2004 (the steps)"
    ordered: ClassVar[bool] = True
    satisfaction: ClassVar[bool] = True
    pair_values: ClassVar[tuple[str, ...]] = (
        "theta_",
        "rho_",
        "_satisfaction_variance",
        "exposure_",
        "_theta_information",
        "_rho_information",
    )
    shared_values: ClassVar[tuple[str, ...]] = (
        "unseen_",
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

    def __init__(
        self,
        *,
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: str | float = "auto",
        satisfaction_prior: str | float = "overall",
        satisfaction_strength: str | float | None = "auto",
        query_strength: str | float | None = "auto",
        transition_strength: str | float = "auto",
        components: str | int = "auto",
        component_strength: str | float = "auto",
        mixing_strength: str | float | None = "auto",
        component_appeal_strength: str | float | None = "auto",
        position_effect_strength: str | float | None = "auto",
        frequent: float = 50,
        max_iterations: int = 500,
        tolerance: float = 1e-6,
    ) -> None:
        check_prior("attractiveness_prior", attractiveness_prior, ("overall", "words"))
        check_prior("satisfaction_prior", satisfaction_prior, ("overall",))
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.satisfaction_prior = satisfaction_prior
        self.satisfaction_strength = satisfaction_strength
        self.query_strength = query_strength
        self.transition_strength = transition_strength
        self.components = components
        self.component_strength = component_strength
        self.mixing_strength = mixing_strength
        self.component_appeal_strength = component_appeal_strength
        self.position_effect_strength = position_effect_strength
        self.frequent = frequent
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        for strength in STRENGTHS:
            _check_strength(strength, getattr(self, strength), none=strength in MAY_BE_SHARED)
        if components != "auto":
            check_whole("components", components, 1)
        check_range("frequent", frequent, 0, sys.float_info.max)
        check_loop(max_iterations, tolerance)

    # fitting

    def _learn(self, data: Sessions, history: Counts | None, text: AdTokens | None) -> None:
        """Fit with one prior mean for all pairs, and with "words" once more, with the prior means that words give: clicks over exposure."""
        given = self.attractiveness_prior
        self.unseen_ = 1.0
        self._pairs = self._index(data.counts, text)
        means = np.ones(len(self._pairs))
        options, counted = self._choose(data, means), count_sessions(data)
        done = self._fit(data, options, means, counted, history)
        self._take(
            done,
            None
            if isinstance(given, str)
            else given / (1 - given) / float(done.parameters.rare[0]),
        )
        if given == "words":
            self.word_exposure_, self.word_clicks_ = self.exposure_, self._pairs.counts.clicks
            self._choose_text(data.counts, text)
            self._pairs = self._index(data.counts, text)
            overall = self._pairs.words.overall
            means = np.maximum(self._pairs.words.of_pairs()[:, 0], 1e-6) / overall
            self._take(self._fit(data, options, means, counted, history), overall)

    def _choose_text(self, counts: Counts, text: AdTokens | None) -> None:
        """Let held-out ads decide between the mean of word rates and a log-linear model, which then has weights of words."""
        words = Pairs(counts, text, frequent=self.frequent).words
        exposure, clicks = (
            np.bincount(counts.pair_ad, x, len(counts.ads)).astype(np.float64)
            for x in (self.word_exposure_, self.word_clicks_)
        )
        query = np.zeros(len(counts.ads), np.int64)
        query[counts.pair_ad[::-1]] = counts.pair_query[::-1]  # the first query of each ad
        tokens = words.tokens_of(counts.ads, None if text is None else TextIndex(text))
        model = chosen(tokens, exposure, clicks, int(tokens.words.max(initial=0)) + 1, query)
        self.word_weights_, self.word_level_ = (
            (model.weights, model.intercept) if isinstance(model, LogLinear) else (np.zeros(0), 0.0)
        )

    def _index(self, counts: Counts, text: AdTokens | None) -> Pairs:
        pairs = super()._index(counts, text)
        if hasattr(self, "word_exposure_") and len(self.word_weights_):
            pairs.words = LogLinearWords(
                pairs.words, LogLinear(self.word_weights_, self.word_level_)
            )
        return pairs

    def _choose(self, sessions: Sessions, means: Float64) -> Options:
        """The options given, and for those that are "auto" what the log speaks for."""
        fixed = {
            name: value
            for name in (*STRENGTHS, "components")
            if (value := getattr(self, name)) != "auto"
        }
        if not isinstance(self.satisfaction_prior, str):
            fixed["satisfaction_prior"] = float(self.satisfaction_prior)
        return Chooser(sessions, means, fixed).choose()

    def _fit(
        self,
        sessions: Sessions,
        options: Options,
        means: Float64,
        counted: Counted,
        history: Counts | None,
    ) -> Fit:
        first = pool(sessions, options, means, counted)
        self.pooled_iterations_ = first.iterations
        if history is not None:
            known = _with_history(counted, sessions.counts, history)
            first = first.moved(
                known.attractiveness(means, options.attractiveness_strength)
                / counted.attractiveness(means, options.attractiveness_strength)
            )
            counted = known
        return fit(
            sessions,
            options,
            means,
            counted,
            first,
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
        )

    def update(
        self,
        sessions: object = None,
        *,
        forget: object = None,
        decay: float = 1.0,
        ads: object = None,
        progress: Progress | None = None,
    ) -> Self:
        """Continue from the last fit with new sessions, the old ones faded by `decay`: they are not read again, sums of them are kept (luce.memory).

        The options stay as they are; fit anew from time to time, for the sums are an approximation.
        """
        self._check_fitted()
        if forget is not None:
            raise CannotAnswerError(
                "LuceClick cannot forget sessions it was fitted to: let them fade with decay=…, or fit it again without them."
            )
        new = as_sessions(sessions, progress=progress)
        return self._become(
            self.clone()._continue(
                self, new, decay, newer_text(self._pairs.text, text_given(sessions, ads))
            )
        )

    def _continue(self, last: Self, new: Sessions, decay: float, text: AdTokens | None) -> Self:
        """Take over from a fitted model, with new sessions."""
        before = last._pairs.counts
        counts = before.decay(decay) + new.counts
        at, sessions, options = (
            Places(before, counts, last._position_keys),
            moved(new, counts),
            Options(**last.hyperparameters_),
        )
        self.unseen_, self.pooled_iterations_ = last.unseen_, 0
        if self.attractiveness_prior == "words":
            self.word_exposure_, self.word_clicks_ = (
                at.of_pairs(last.exposure_, 0.0),
                at.of_pairs(before.clicks, 0.0),
            )
            self._choose_text(counts, text)
        self._pairs = self._index(counts, text)
        words = self._pairs.unseen is None
        means = (
            np.maximum(self._pairs.words.of_pairs()[:, 0], 1e-6) / last._scale
            if words
            else np.ones(len(self._pairs))
        )
        problem = Problem(
            sessions, options, means, last.satisfaction_, last.mixing_, at.spots
        )
        problem.part(
            counts.impressions, counts.volumes, (int(last._reference_classes[0]), int(last._reference_classes[1]))
        )
        problem.remember(faded(last._memory, decay, at, problem))
        problem.total = counts.total  # the objective is of the old sessions too
        problem.clickers = last._click_mixing  # until the first pass
        theta = last.theta_ / last._scale / last._mean_taste()
        habits = (
            last._transition_factors,
            last._outside_factors,
            last._query_outside,
            last._query_mixing,
            last._pair_class_mean,
            last._query_class_mean,
            last._component_appeal,
        )
        mean = last.rho_  # from which `carried` finds the centre
        ended = Parameters(
            theta, mean, *habits, loose=1 / last._rho_information, worth=last._position_effect, ease=last._satisfaction_odds
        )
        done = climb(
            problem,
            carried(ended, at, problem),
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
        )
        self._take(done, None if self.attractiveness_prior == "overall" else last._scale)
        return self

    def _take(self, done: Fit, odds: float | None) -> None:
        """Set what was learnt, on the scale of an ad alone on top: `odds` are those of a click on one of prior mean 1, if given."""
        now, problem = done.parameters, done.problem
        self.hyperparameters_ = problem.options._asdict()
        self.mixing_ = problem.shares if problem.options.mixing_strength is not None else now.share[0]
        gamma, omega = problem.eye.table(now.eye), problem.out.table(now.out)
        fixed = self.mixing_ @ omega[:, 0]
        leaning = self.mixing_ * gamma[:, 0, 0] / omega[:, 0]
        top = float(leaning.sum()) if odds is None else odds
        self._component_odds, self._component_appeal = leaning / leaning.sum(), now.taste
        self.theta_, self.unseen_, self._scale = now.theta * top * self._mean_taste(), top, top
        self._pair_class_mean, self._query_class_mean, self._reference_classes = now.rare, now.seldom, problem.largest
        if self._pairs.unseen is not None:
            self.unseen_ = self._pairs.unseen = top * now.rare[0]
        self.gamma_, self.omega_ = gamma / (top * fixed), omega / fixed
        self.rho_, self._satisfaction_variance, self._satisfaction_odds, self._click_mixing = (
            mean_of(now.rho, now.loose),
            now.loose,
            now.ease,
            problem.clickers,
        )
        self.satisfaction_ = (
            float(now.rho[0]) if problem.options.satisfaction_strength is None else problem.satisfied
        )
        self._query_outside, self._query_mixing = now.spread, now.share
        self._position_effect, self._position_keys = now.worth, problem.passes.spots.key
        self._theta_information, self._rho_information, told = information(
            done, self.mixing_, top * self._component_odds / self.mixing_
        )
        self._query_outside_deviation = (
            problem.unsure(now, told) if problem.options.query_strength is not None else np.zeros(1)
        )
        self._transition_factors, self._outside_factors, self._memory = (
            now.eye,
            now.out,
            problem.remembered(now, done.found, told),
        )
        self.exposure_ = self._memory.exposure / (top * self._mean_taste())
        self.iterations_, self.converged_, self.objective_, self.message_ = (
            len(done.objective),
            done.converged,
            done.objective,
            done.message,
        )

    def _mean_taste(self) -> Float64 | float:
        """The mean of the kinds' tastes, each counting by its odds of a click [pair]."""
        return 1.0 if self.hyperparameters_["component_appeal_strength"] is None else np.asarray(self._component_appeal @ self._component_odds)

    # answers

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        found = self._pairs.find(batch)
        seen = found.query >= 0
        share = np.tile(self.mixing_, (len(batch), 1))
        if self.hyperparameters_["mixing_strength"] is not None:
            share[seen] = self._query_mixing[found.query[seen]]
        theta = self._pairs.filled(self.theta_, batch, found, text)
        if self.hyperparameters_["position_effect_strength"] is not None:
            theta *= self._worth(found, batch.page)
        rhos = self._satisfactions(found.row)
        stops = self._stops(found.query)  # [side, session]
        longest = int(np.diff(batch.page).max(initial=1))
        gamma, omega = (
            extended(self.gamma_, longest),
            np.pad(
                self.omega_, ((0, 0), (0, max(0, longest + 1 - self.omega_.shape[1]))), mode="edge"
            ),
        )
        gamma, omega = (
            np.tile(gamma, (len(stops), 1, 1)),
            np.tile(omega, (len(stops), 1)),
        )  # a row for each side and kind

        def pages(start: int, end: int) -> Any:
            first, last = batch.page[start], batch.page[end]
            offsets = batch.page[start : end + 1] - first
            ready = theta[first:last] / np.repeat(
                stops[:, start:end], np.diff(offsets), axis=1
            )  # [side, impression]
            one = Pages(
                LUCE,
                ready[0],
                rhos[0, first:last],
                omega,
                gamma,
                offsets,
                np.zeros(end - start, np.int64),
            )
            if len(omega) == 1:
                return one
            thetas = (ready[:, None] * self._tastes(found.row[first:last])).reshape(len(omega), -1)
            return Kinds(
                one,
                np.tile(share[start:end], len(stops)) / len(stops),
                thetas,
                np.tile(rhos[:, first:last], (len(stops), 1)),
            )

        return pages

    def _stops(self, query: Int32) -> Float64:
        """How readily the users of each session's query stop, f, as far to each side as it is not known [side, session]; one row where it is."""
        seen, strength = query >= 0, self.hyperparameters_["query_strength"]
        stops = np.full(len(query), self._query_class_mean[0])
        if strength is None:
            return stops[None]
        unsure = np.full(len(query), unsure_before(strength))
        stops[seen], unsure[seen] = self._query_outside[query[seen]], self._query_outside_deviation[query[seen]]
        return np.asarray(stops * np.exp(np.outer(SIDES, unsure)))

    def _satisfactions(self, row: Int64) -> Float64:
        """The satisfaction of users of each kind [kind, impression]."""
        rho, loose = (
            self._pairs.at(self.rho_, row, self.satisfaction_),
            self._pairs.at(self._satisfaction_variance, row, EXACT),
        )
        if len(self._satisfaction_odds) == 1:
            return rho[None]
        return np.asarray(
            mean_of(satisfaction_of(centre_of(rho, loose), self._satisfaction_odds[:, None]), loose)
        )

    def _worth(self, found: Impressions, page: Int64) -> Float64:
        """What the position of each impression is worth to its query and ad; 1 where nothing was seen there."""
        query = np.repeat(found.query, np.diff(page)).astype(np.int64)
        return worth_elsewhere(
            self._position_effect,
            Spots(self._position_keys),
            self.gamma_.shape[2],
            query,
            found.row,
            positions_of(page),
        )

    def _tastes(self, row: Int64) -> Float64:
        """θ to each kind of users over θ to an average user [kind, impression]; 1 where the pair was never seen."""
        tastes = np.ones((len(self.mixing_), len(row)))
        if self.hyperparameters_["component_appeal_strength"] is not None:
            seen = row >= 0
            taste = self._component_appeal[row[seen]]
            tastes[:, seen] = (taste / (taste @ self._component_odds)[:, None]).T
        return tastes

    def _odds(self, theta: Float64, row: Int64) -> Float64:
        """The odds of a click of each kind of users on an ad that stands alone on top [pair asked for, kind]."""
        return np.asarray((self._tastes(row) * theta).T * self._component_odds / self.mixing_)

    def _beliefs(self, asked: Asked) -> Beliefs:
        """Betas from the information on the logits of the attractiveness and of ρ (Laplace), the kinds of users being taken as known."""
        unseen = (
            asked.words[:, 0]
            if self._pairs.unseen is None
            else np.full(len(asked.row), self._pairs.unseen)
        )
        theta = np.where(
            asked.row >= 0, self._pairs.at(self.theta_, asked.row, 0.0), np.maximum(unseen, 1e-9)
        )
        strength, mean = self.hyperparameters_["satisfaction_strength"], self.satisfaction_
        known_theta = self._pairs.at(self._theta_information, asked.row, self._known_unseen())
        never = (
            HARDLY_KNOWN * mean * (1 - mean) if strength is None else known_before(strength, mean)
        )
        known_rho = self._pairs.at(self._rho_information, asked.row, never)
        attractive = (
            theta / (1 + theta)
            if self.hyperparameters_["component_appeal_strength"] is None
            else to_all(self._odds(theta, asked.row), self.mixing_)
        )
        each = self._satisfactions(asked.row)
        rho = each[0]
        if len(each) > 1:
            each = np.clip(each, EDGE, 1 - EDGE)
            rho = self._click_mixing @ each
            known_rho = known_rho * (rho * (1 - rho) / (self._click_mixing @ (each * (1 - each)))) ** 2
        return Beliefs(belief(attractive, known_theta), belief(rho, known_rho))

    def _known_unseen(self) -> float:
        """The information on the logit of the attractiveness of a pair never seen: that of the priors."""
        strength, taste = self.hyperparameters_["attractiveness_strength"], self.hyperparameters_["component_appeal_strength"]
        if taste is None:
            return float(strength)
        slope = slopes(self._odds(np.full(1, self.unseen_), np.full(1, -1)), self.mixing_)
        return float(
            of_all(np.zeros(slope.shape), np.full(1, strength), np.full(slope.shape, taste), slope)[
                0
            ]
        )

    # saving

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        values, tables = super()._to_tables()
        if hasattr(self, "word_weights_"):
            values |= {
                "word_weights_": self.word_weights_.tolist(),
                "word_level_": self.word_level_,
            }
        for name, arrays in self._beside().items():
            tables[name] = pa.table({str(i): np.ravel(array) for i, array in enumerate(arrays)})
        return {**values, "hyperparameters_": self.hyperparameters_}, tables

    def _beside(self) -> dict[str, tuple[Float64 | Int64, ...]]:
        """What is saved beside the pairs' values: arrays that go together because they are equally long."""
        memory = self._memory
        return {
            "luce_pairs": memory[:5],
            "luce_eye": memory[5:7],
            "luce_out": memory[7:9],
            "luce_spread": (self._query_outside, self._query_outside_deviation, *memory[9:11]),
            "luce_share": (self._query_mixing, memory.kind_chosen),
            "luce_tastes": (self._component_appeal, memory.taste_chosen, memory.taste_exposure),
            "luce_worth": (self._position_effect,),
            "luce_spots": (self._position_keys, memory.spot_chosen, memory.spot_exposure),
            "luce_ease": (memory.ease_chosen, memory.ease_exposure, memory.asked),
            "luce_told": memory.told,
            "luce_eye_factors": (self._transition_factors,),
            "luce_out_factors": (self._outside_factors,),
        }

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        if {
            name: table.num_columns for name, table in tables.items() if name.startswith("luce_")
        } != SAVED:
            raise StoreError(
                "The saved LuceClick is of another Reclick, which kept other sums of its sessions. Fit it again."
            )
        super()._from_tables(values, tables)
        saved = {
            name: [column.to_numpy().copy() for column in table.columns]
            for name, table in tables.items()
            if name.startswith("luce_")
        }
        components = len(self.mixing_)
        eye, out = (
            [x.reshape(like.shape) for x in saved[name]]
            for name, like in (("luce_eye", self.gamma_), ("luce_out", self.omega_))
        )
        share, kind_chosen = (array.reshape(-1, components) for array in saved["luce_share"])
        shape = -1, 1 if self.hyperparameters_["component_appeal_strength"] is None else components
        self._component_appeal, *tastes = (array.reshape(shape) for array in saved["luce_tastes"])
        told = Evidence(*(array.reshape(shape) for array in saved["luce_told"]))
        (self._query_outside, self._query_outside_deviation, *spread), self._query_mixing = saved["luce_spread"], share
        (self._position_effect,), (self._position_keys, *spots) = saved["luce_worth"], saved["luce_spots"]
        (self._transition_factors,), (self._outside_factors,) = saved["luce_eye_factors"], saved["luce_out_factors"]
        self._memory = Memory._make(
            [
                *saved["luce_pairs"],
                *eye,
                *out,
                *spread,
                kind_chosen,
                *tastes,
                *spots,
                *saved["luce_ease"],
                told,
            ]
        )
        return self

    def _learnt(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.hyperparameters_.items())
        return f"{super()._learnt()}\n  {options}\n  satisfaction_ = {self.satisfaction_:.3f}  unseen_ = {self.unseen_:.3f}"


def _with_history(counted: Counted, counts: Counts, history: Counts) -> Counted:
    """What was counted of the sessions' pairs, and what a history counted of them, which does not tell where they stood."""
    both = counts + history
    at = Places(counts, both).pair
    clicks, shown, last = (
        getattr(both, name)[at] - getattr(counts, name)
        for name in ("clicks", "impressions", "last_clicks")
    )
    rate = history.clicks.sum() / max(history.impressions.sum(), EDGE)
    return counted._replace(
        clicks=counted.clicks + clicks,
        expected=counted.expected + rate * shown,
        followed=counted.followed + clicks,
        last_clicks=counted.last_clicks + last,
    )


def _check_strength(name: str, value: object, *, none: bool) -> None:
    if value == "auto" or (none and value is None):
        return
    if isinstance(value, str) or value is None:
        raise SettingError(
            f'{name}: got {value!r}, expected "auto", a number of 0 or more{" or None" if none else ""}.'
        )
    check_range(name, value, 0, STRONGEST)
