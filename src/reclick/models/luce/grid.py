"""The two stages of a LuceClick fit, and the hyperparameters that the training log decides.

The first stage fits what is common to all; the second starts there, with values for each pair and
query. The search goes through the hyperparameters one after another, each on a grid
(reclick.fitting.search). Component-specific appeal has to gain more than other additions, as small
gains of it did not last to the next week.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64
from reclick.engines import Engine
from reclick.fitting.folds import folds_of_pages
from reclick.fitting.search import (
    ROUNDING,
    HyperparameterSearch,
    parabola_vertex,
    subsample_queries,
)
from reclick.models.luce.initial_values import InitialCounts, count_sessions, initial_from_counts
from reclick.models.luce.m_step import LuceFit, Objective, maximise
from reclick.models.luce.parameters import Hyperparameters, LuceParameters

N_FOLDS = 3
MIN_SESSIONS = 200  # a smaller log decides nothing
MIN_PAGES = 100  # distinct pages from which whole pages are held out
FREQUENT_PAGE = 30  # sessions of a page from which it is expected to come again
MAX_SESSIONS = 20_000  # distinct sessions that decisions are made on
SEARCH_LIMITS: dict[str, Any] = {"max_iterations": 100, "tolerance": 1e-5, "quiet": True}
FIRST_STAGE_LIMITS: dict[str, Any] = {"max_iterations": 25, "tolerance": 1e-4, "quiet": True}
FIRST_SATISFACTION = 0.3  # start and prior mean of the common satisfaction in the first stage
SEARCH_ORDER = (
    "query_strength",
    "attractiveness_strength",
    "satisfaction_prior",
    "satisfaction_strength",
    "satisfaction_prior",
    "transition_strength",
    "components",
    "mixing_strength",
    "component_strength",
    "component_appeal_strength",
    "position_effect_strength",
)
ONLY_WITH_COMPONENTS = ("mixing_strength", "component_strength", "component_appeal_strength")
GRIDS: dict[str, tuple[Any, ...]] = {  # from the strongest; None is one value common to all
    "query_strength": (None, 8.0, 4.0, 2.0, 1.0, 0.5),
    "attractiveness_strength": (8.0, 4.0, 2.0, 1.0, 0.5),
    "mixing_strength": (None, 10.0, 3.0),
    "component_strength": (16.0, 4.0),
    "component_appeal_strength": (None, 20.0, 8.0, 3.0),
    "position_effect_strength": (None, 100.0, 30.0, 10.0),
    "satisfaction_strength": (None, 30.0, 10.0, 5.0, 2.0),
    "transition_strength": (16.0, 4.0, 1.0),
}
SATISFACTION_TENTHS = (1, 3, 5, 7, 9)  # prior means of satisfaction that are tried first
MIN_GAIN = 0.0003  # per session, of an addition: less is not worth its cost
MIN_APPEAL_GAIN = 0.002  # of component-specific appeal
DEFAULTS = Hyperparameters(
    attractiveness_strength=2.0,
    satisfaction_strength=5.0,
    query_strength=None,
    transition_strength=4.0,
    components=1,
    component_strength=4.0,
    mixing_strength=10.0,
)
MAX_COMPONENTS = 6
FIRST_APPEAL_STRENGTH = 8.0  # that component-specific appeal is tried with first


class PooledFit(NamedTuple):
    """A fit with satisfaction and mixing weights common to all."""

    parameters: LuceParameters
    iterations: int

    def scale_theta(self, ratio: Float64) -> PooledFit:
        """The same with each θ times a ratio [pair]."""
        theta = self.parameters.theta * ratio
        return self._replace(parameters=self.parameters._replace(theta=theta))


def fit_pooled(
    sessions: GroupedSessions,
    hyperparameters: Hyperparameters,
    prior_mean: Float64,
    counts: InitialCounts,
    engine: Engine | None = None,
) -> PooledFit:
    """The first stage of a fit: the common values are then the prior means of the second."""
    pooled = hyperparameters._replace(
        satisfaction_strength=None,
        mixing_strength=None,
        component_appeal_strength=None,
        position_effect_strength=None,
    )
    mixing = np.full(pooled.components, 1 / pooled.components)
    objective = Objective(sessions, pooled, prior_mean, FIRST_SATISFACTION, mixing, engine=engine)
    result = maximise(objective, initial_from_counts(objective, counts), **FIRST_STAGE_LIMITS)
    return PooledFit(result.parameters, len(result.objective))


def fit_second_stage(
    sessions: GroupedSessions,
    hyperparameters: Hyperparameters,
    prior_mean: Float64,
    counts: InitialCounts,
    first: PooledFit,
    *,
    engine: Engine | None = None,
    **limits: Any,
) -> tuple[Objective, LuceFit]:
    """The second stage of a fit."""
    pooled, satisfaction = first.parameters, hyperparameters.satisfaction_prior
    satisfaction_mean = float(pooled.rho[0] if isinstance(satisfaction, str) else satisfaction)
    objective = Objective(
        sessions, hyperparameters, prior_mean, satisfaction_mean, pooled.mixing[0], engine=engine
    )
    return objective, maximise(objective, _second_start(objective, counts, pooled), **limits)


def _second_start(
    objective: Objective, counts: InitialCounts, pooled: LuceParameters
) -> LuceParameters:
    """The end of the first stage; what was common there starts at the counts, or anew."""
    fresh, rho = objective.initial_parameters(), pooled.rho
    strength, mean = objective.hyperparameters.satisfaction_strength, objective.satisfaction_mean
    if strength is not None:  # a pair that only a history has clicks of stays at the prior mean
        rho = np.where(objective.has_evidence, counts.satisfaction(mean, strength), mean)
    query_outside, mixing = pooled.query_outside, pooled.mixing
    return pooled._replace(
        rho=rho,
        query_outside=(
            query_outside if len(query_outside) == len(fresh.query_outside) else fresh.query_outside
        ),
        mixing=mixing if mixing.shape == fresh.mixing.shape else fresh.mixing,
        component_appeal=fresh.component_appeal,
        satisfaction_variance=objective.satisfaction_variance(rho),
        position_effect=fresh.position_effect,
    )


class LuceSearch(HyperparameterSearch[Hyperparameters]):
    """The search over hyperparameters; those that the user set are not touched."""

    def __init__(
        self, sessions: GroupedSessions, prior_mean: Float64, fixed: dict[str, Any]
    ) -> None:
        sample, pairs = subsample_queries(sessions, MAX_SESSIONS)
        self.prior_mean = prior_mean[pairs]
        self.fixed = fixed
        if len(sample.counts.queries) == 1:  # one query does not differ from others
            self.fixed = {"query_strength": None, "mixing_strength": None} | fixed
        folds = folds_of_pages(sample, N_FOLDS, frequent_page=FREQUENT_PAGE, min_pages=MIN_PAGES)
        super().__init__(folds if sessions.weight.sum() >= MIN_SESSIONS else [])
        self.counts = [count_sessions(fold.train) for fold in self.folds]
        self._pooled: dict[tuple[int, int], PooledFit] = {}

    def choose(self) -> Hyperparameters:
        """The hyperparameters that held-out sessions of the training log are best explained by."""
        now = DEFAULTS._replace(**self.fixed)
        if len(self.folds) > 1:
            for name in SEARCH_ORDER:
                if name not in self.fixed and (
                    now.components > 1 or name not in ONLY_WITH_COMPONENTS
                ):
                    now = self._decide(name, now)
            if now.components > 1 and "satisfaction_prior" not in self.fixed:
                now = self._decide("satisfaction_prior", now)  # again, as components differ in it
        return now

    def score_fold(self, fold: int, candidate: Hyperparameters) -> Float64:
        """The log-likelihood of each session held out of a fold, fitted to the others."""
        train, test = self.folds[fold]
        key, counts = (fold, candidate.components), self.counts[fold]
        if key not in self._pooled:
            self._pooled[key] = fit_pooled(train, candidate, self.prior_mean, counts)
        objective, result = fit_second_stage(
            train, candidate, self.prior_mean, counts, self._pooled[key], **SEARCH_LIMITS
        )
        return objective.score(result.parameters, test)

    def _decide(self, name: str, now: Hyperparameters) -> Hyperparameters:
        if name == "components":
            return self._decide_components(now)
        if name == "component_appeal_strength":
            return self._decide_appeal(now)
        if name == "satisfaction_prior":
            first = isinstance(now.satisfaction_prior, str)
            return self._decide_satisfaction(now) if first else self._refine_satisfaction(now)
        return self._search(name, now)

    def _search(self, name: str, now: Hyperparameters) -> Hyperparameters:
        """The best on the grid of one hyperparameter."""
        gain = MIN_APPEAL_GAIN if name == "component_appeal_strength" else MIN_GAIN
        return self.search_grid(
            [now._replace(**{name: value}) for value in GRIDS[name]],
            min_gain=gain if GRIDS[name][0] is None else None,
            prefer=_distance_from_default if name == "attractiveness_strength" else None,
        )

    def _decide_satisfaction(self, now: Hyperparameters) -> Hyperparameters:
        """The best of a few prior means of satisfaction, if pairs have their own and it matters."""
        if now.satisfaction_strength is None:
            return now
        tried = sorted(
            (now._replace(satisfaction_prior=tenths / 10) for tenths in SATISFACTION_TENTHS),
            key=lambda candidate: self.score(candidate).mean,
        )
        gain = self.score(tried[-1]).mean - self.score(tried[0]).mean
        return tried[-1] if gain > ROUNDING else now

    def _refine_satisfaction(self, now: Hyperparameters) -> Hyperparameters:
        """The best prior mean of satisfaction nearby: in steps of a tenth, then between tenths."""
        if isinstance(now.satisfaction_prior, str) or now.satisfaction_strength is None:
            return now

        def mean(tenths: int) -> float:
            return self.score(now._replace(satisfaction_prior=tenths / 10)).mean

        lowest, highest = SATISFACTION_TENTHS[0], SATISFACTION_TENTHS[-1]
        best = round(10 * now.satisfaction_prior)
        while True:
            nearby = range(max(best - 1, lowest), min(best + 1, highest) + 1)
            better = max(nearby, key=mean)
            if better == best:
                break
            best = better
        tenths = float(best)
        if lowest < best < highest:
            tenths += parabola_vertex(mean(best - 1), mean(best), mean(best + 1))
        return now._replace(satisfaction_prior=round(tenths / 10, 3))

    def _decide_components(self, now: Hyperparameters) -> Hyperparameters:
        """More components as long as one or two more gain enough.

        Two that differ in appeal are tried where they differ in nothing else.
        """
        while True:
            larger = (
                now._replace(components=components)
                for components in (now.components + 1, now.components + 2)
                if components <= MAX_COMPONENTS
            )
            more = next((x for x in larger if self._gains(x, now)), None)
            if more is None:
                break
            now = more
        by_appeal = now._replace(components=2, component_appeal_strength=FIRST_APPEAL_STRENGTH)
        if (
            now.components == 1
            and "component_appeal_strength" not in self.fixed
            and self._gains(by_appeal, now, MIN_APPEAL_GAIN)
        ):
            return by_appeal
        return now

    def _decide_appeal(self, now: Hyperparameters) -> Hyperparameters:
        """Component-specific appeal; with it, more components may be worth it.

        Components were taken before their mixing, strength and appeal were decided. In the end they
        have to gain enough with these.
        """
        then = self._search("component_appeal_strength", now)
        if "components" in self.fixed:
            return then
        if then.component_appeal_strength is not None:
            then = self._decide_components(then)
        alone = then._replace(components=1)
        least = MIN_GAIN if then.component_appeal_strength is None else MIN_APPEAL_GAIN
        return then if self._gains(then, alone, least) else alone

    def _gains(self, more: Hyperparameters, less: Hyperparameters, least: float = MIN_GAIN) -> bool:
        return self.score(more).gains_at_least(self.score(less), least)


def _distance_from_default(candidate: Hyperparameters) -> float:
    """How far the strength of θ is from the default: a small log would make it ever stronger."""
    return abs(math.log(candidate.attractiveness_strength / DEFAULTS.attractiveness_strength))
