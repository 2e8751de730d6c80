"""The objective of a LuceClick fit and the M-step that raises it, in closed form.

The objective is the log-likelihood of the sessions plus the log-density of the priors, plus what
past sessions contribute. `squarem` extrapolates two M-steps.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Bool, Float64, Int64
from reclick.engines import Engine
from reclick.fitting.em import FitResult, Squarem, run_em, squarem_norms, squarem_step
from reclick.fitting.factors import mm_step
from reclick.models.luce.e_step import (
    EXPECTED,
    OBSERVED,
    ExpectedStatistics,
    Layout,
    SessionBlocks,
    clicks_by_pair,
    e_step,
    empty_statistics,
    session_frequencies,
)
from reclick.models.luce.parameters import (
    MIN_PROBABILITY,
    NO_CELLS,
    Hyperparameters,
    Information,
    LuceParameters,
    PastStatistics,
)
from reclick.models.luce.satisfaction import (
    SIDES,
    ZERO_VARIANCE,
    fit_satisfaction_centres,
    fit_satisfaction_odds,
    log_mean_over_sides,
    log_satisfaction_prior,
    outside_deviation,
    prior_information,
    satisfaction_information,
    scale_odds,
)

POOLED_CLICKS = 1.0  # strength of the prior of a satisfaction common to all
CLASS_STRENGTH = 1.0  # pairs or queries with the mean of the largest class that each class gets:
# without them a few pairs without a click would decide for all unseen ones
CLASS_LIMITS = (1.5, 4.5, 20.5, 100.5)  # impressions of a pair, or sessions of a query
N_CLASSES = len(CLASS_LIMITS) + 1
MAX_WEIGHT = 1e12  # that an extrapolation may lead to


class Objective:
    """Sessions, hyperparameters, prior means and past statistics: what a fit maximises."""

    def __init__(
        self,
        sessions: GroupedSessions,
        hyperparameters: Hyperparameters,
        prior_mean: Float64,
        satisfaction_mean: float,
        mixing: Float64,
        past_cells: Int64 = NO_CELLS,
        engine: Engine | None = None,
    ) -> None:
        """`prior_mean` [pair] is that of θ, `satisfaction_mean` that of ρ."""
        if hyperparameters.components == 1:
            hyperparameters = hyperparameters._replace(
                mixing_strength=None, component_appeal_strength=None
            )
        self.hyperparameters = hyperparameters
        self.prior_mean, self.satisfaction_mean, self.mixing = prior_mean, satisfaction_mean, mixing
        self.min_information = prior_information(
            hyperparameters.satisfaction_strength or 0.0, satisfaction_mean
        )
        self.sessions = SessionBlocks(sessions, hyperparameters, past_cells, engine)
        self.layout = self.sessions.layout
        self.n_sessions = float(sessions.weight.sum())
        self.clicks, self.followed = clicks_by_pair(sessions)
        self.cell_clicks = self.sessions.clicks_by_cell(sessions.whole)
        self.assign_frequency_classes(*session_frequencies(sessions))
        self.click_mixing = mixing  # [component] the components' shares of all clicks
        self.set_past(no_past(self.layout))

    # priors

    def assign_frequency_classes(
        self, impressions: Float64, volumes: Float64, reference: tuple[int, int] | None = None
    ) -> None:
        """Assign the pairs to classes by impressions, and the queries by sessions.

        The `reference` class of each, by default the largest, has prior mean 1. An update keeps the
        reference of the first fit, as its past statistics are on that scale.
        """
        self.pair_class = np.searchsorted(CLASS_LIMITS, impressions)
        self.query_class = np.searchsorted(CLASS_LIMITS, volumes)
        self.pair_class_sizes = np.bincount(self.pair_class, minlength=N_CLASSES)
        self.query_class_sizes = np.bincount(self.query_class, minlength=N_CLASSES)
        clicks = np.bincount(self.pair_class, self.clicks, N_CLASSES)
        sessions = np.bincount(self.query_class, volumes, N_CLASSES)
        self.reference_classes = reference or (int(clicks.argmax()), int(sessions.argmax()))

    def set_past(self, past: PastStatistics) -> None:
        """Take past sessions into account."""
        self.past = past
        self.has_evidence: Bool = (self.followed > 0) | (past.followed > 0)  # [pair] about ρ
        self.strength = self.hyperparameters.attractiveness_strength + past.observed
        self.yes, self.no = self._satisfaction_pseudo_clicks()

    def prior_rate(self, now: LuceParameters) -> Float64:
        """The rate of the Gamma prior of each θ [pair], without past sessions."""
        strength = self.hyperparameters.attractiveness_strength
        return np.asarray(strength / (self.prior_mean * now.pair_class_mean[self.pair_class]))

    def rate(self, now: LuceParameters) -> Float64:
        """The rate of the Gamma prior of each θ [pair], with past sessions."""
        return np.asarray(self.prior_rate(now) + self.past.exposure)

    def prior_query_rate(self, now: LuceParameters) -> Float64:
        """The rate of the Gamma prior of each f [query], without past sessions."""
        strength = self.hyperparameters.query_strength or 0.0
        return np.asarray(strength / now.query_class_mean[self.query_class])

    def query_rate(self, now: LuceParameters) -> Float64:
        """The rate of the Gamma prior of each f [query], with past sessions."""
        return np.asarray(self.prior_query_rate(now) + self.past.query_exposure)

    def _satisfaction_pseudo_clicks(self) -> tuple[Float64, Float64]:
        """Pseudo-clicks of prior and past that satisfied, and that did not [pair].

        A satisfaction common to all has them in the first pair.
        """
        past, strength = self.past, self.hyperparameters.satisfaction_strength
        unsatisfied = past.followed - past.satisfied
        if strength is None:
            yes, no = np.zeros((2, len(self.followed)))
            yes[0] = POOLED_CLICKS * self.satisfaction_mean + past.satisfied.sum()
            no[0] = POOLED_CLICKS * (1 - self.satisfaction_mean) + unsatisfied.sum()
            return yes, no
        prior = strength * self.has_evidence  # elsewhere ρ stays at its prior mean
        yes = prior * self.satisfaction_mean + past.satisfied
        return yes, prior * (1 - self.satisfaction_mean) + unsatisfied

    def mixing_pseudo_sessions(self) -> Float64:
        """Pseudo-sessions of prior and past for the mixing weights [query or 1, component]."""
        strength = self.hyperparameters.mixing_strength
        return self.past.component_sessions + (1.0 if strength is None else strength) * self.mixing

    def component_appeal_prior(self) -> tuple[Float64, Float64]:
        """Strengths and rates of the Gamma priors of the component appeal [pair, component]."""
        strength = self.hyperparameters.component_appeal_strength or 0.0
        return strength + self.past.appeal_observed, strength + self.past.appeal_exposure

    def log_prior(self, now: LuceParameters) -> float:
        """Log-density of the parameters up to a constant, with past sessions."""
        chosen, past, layout = self.hyperparameters, self.past, self.layout
        value = _log_gamma(now.theta, self.strength, self.rate(now))
        value -= chosen.attractiveness_strength * _log_class_means(
            now.pair_class_mean, self.pair_class_sizes
        )
        value += layout.transition.log_prior(now.transition) + layout.outside.log_prior(now.outside)
        value += _log_past(
            past.transition_observed,
            past.transition_exposure,
            layout.transition.table(now.transition),
        )
        value += _log_past(
            past.outside_observed, past.outside_exposure, layout.outside.table(now.outside)
        )
        value += self._log_satisfaction(now)
        if layout.has_component_satisfaction:
            odds = now.satisfaction_odds
            value += chosen.component_strength * float(np.sum(np.log(odds) - odds))
            value += _log_past(past.odds_observed, past.odds_exposure, odds)
        if layout.has_position_effects:
            effect = layout.position_effect.table(now.position_effect)
            value += layout.position_effect.log_prior(now.position_effect)
            value += _log_past(past.cell_observed, past.cell_exposure, effect)
        if chosen.query_strength is not None:
            strength = chosen.query_strength + past.query_observed
            value += _log_gamma(now.query_outside, strength, self.query_rate(now))
            value -= chosen.query_strength * _log_class_means(
                now.query_class_mean, self.query_class_sizes
            )
        if chosen.components > 1:
            value += float(np.sum(self.mixing_pseudo_sessions() * np.log(now.mixing)))
        if layout.has_component_appeal:
            value += _log_gamma(now.component_appeal, *self.component_appeal_prior())
        return value

    def _log_satisfaction(self, now: LuceParameters) -> float:
        if self.hyperparameters.satisfaction_strength is None:
            rho = now.rho[0]
            return float(self.yes[0] * np.log(rho) + self.no[0] * np.log(1 - rho))
        return log_satisfaction_prior(
            now.rho,
            now.satisfaction_variance,
            self.yes,
            self.no,
            self.has_evidence,
            self.past.satisfied_variance,
        )

    # parameters

    def initial_parameters(self) -> LuceParameters:
        """Parameters before any data.

        Components start apart: the first stop early, and the third, fifth … tend to go up the page.
        """
        chosen, layout = self.hyperparameters, self.layout
        transition, outside = (
            np.ones(layout.transition.n_factors),
            np.ones(layout.outside.n_factors),
        )
        if chosen.components > 1:
            patience = np.geomspace(2.0, 0.5, chosen.components)
            outside[slice(*layout.outside.starts[2:4])] = np.repeat(patience, 2)
            jumps = transition[slice(*layout.transition.starts[3:5])].reshape(chosen.components, -1)
            jumps[2::2, layout.longest : 2 * layout.longest] *= 2.0
        n_pairs, n_queries = layout.n_pairs, layout.n_queries
        rho = np.full(n_pairs, self.satisfaction_mean)
        appeals = n_pairs if layout.has_component_appeal else 1, layout.appeal_components
        return LuceParameters(
            theta=self.prior_mean.copy(),
            rho=rho,
            transition=transition,
            outside=outside,
            query_outside=np.ones(n_queries if layout.per_query_outside else 1),
            mixing=np.tile(self.mixing, (n_queries if layout.per_query_mixing else 1, 1)),
            pair_class_mean=np.ones(N_CLASSES),
            query_class_mean=np.ones(N_CLASSES),
            component_appeal=np.ones(appeals),
            satisfaction_variance=self.satisfaction_variance(rho),
            position_effect=np.ones(layout.position_effect.n_factors),
            satisfaction_odds=np.ones(chosen.components),
        )

    def satisfaction_variance(self, rho: Float64) -> Float64:
        """The variance of the logit of each ρ [pair] if every satisfied click was observed.

        It is 0 for a ρ that is common to all, or that no session says anything about.
        """
        if self.hyperparameters.satisfaction_strength is None:
            return np.full(len(rho), ZERO_VARIANCE)
        information = satisfaction_information(
            rho,
            self.yes,
            self.no,
            self.followed[:, None],
            np.ones(1),
            np.zeros(len(rho)),
            self.min_information,
        )
        return np.where(self.has_evidence, 1 / information, ZERO_VARIANCE)

    def satisfaction_information(
        self, now: LuceParameters, statistics: ExpectedStatistics
    ) -> Float64:
        """The information on the logit of each ρ [pair]."""
        by_component = self.layout.has_component_satisfaction
        return satisfaction_information(
            now.rho,
            self.yes,
            self.no,
            statistics.sums.followed if by_component else self.followed[:, None],
            now.satisfaction_odds if by_component else np.ones(1),
            statistics.sums.satisfied[1] + self.past.satisfied_variance,
            self.min_information,
        )

    def component_clicks(self, statistics: ExpectedStatistics) -> Float64:
        """Clicks that left another ad to click [component], past ones included."""
        return np.asarray(statistics.sums.followed.sum(axis=0) + self.past.component_followed)

    def fix_scale(self, now: LuceParameters, statistics: ExpectedStatistics) -> LuceParameters:
        """The same parameters with the mean of log ς over the clicks at 0.

        The clicks of each component are counted anew. What all ς have in common is moved into ρ.
        """
        clicks = self.component_clicks(statistics)
        if not self.layout.has_component_satisfaction or clicks.sum() == 0:
            return now
        self.click_mixing = clicks / clicks.sum()
        level = np.exp(self.click_mixing @ np.log(now.satisfaction_odds))
        rho = np.clip(scale_odds(now.rho, level), MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        return now._replace(
            satisfaction_odds=now.satisfaction_odds / level,
            rho=np.where(self.has_evidence, rho, now.rho),
        )

    # uncertainty

    def information(self, now: LuceParameters) -> Information:
        """The information of all sessions on each pair, past ones included."""
        new, past = self.sessions.information(now), self.past.information
        return Information(new.end + past.end, new.ads + past.ads)

    def prior_query_information(self, now: LuceParameters) -> Float64:
        """The information of the prior on log f [query]."""
        return np.asarray(self.prior_query_rate(now) * now.query_outside)

    def query_outside_deviation(self, now: LuceParameters, information: Information) -> Float64:
        """The deviation of log f of each query [query]."""
        prior = self.prior_query_information(now)
        return outside_deviation(information.end.sum(axis=1), self.layout.pair_query, prior)

    def score(self, now: LuceParameters, sessions: GroupedSessions) -> Float64:
        """The log-likelihood of other sessions of the same pairs, as predicted [session]."""
        if self.hyperparameters.query_strength is None:
            return self.sessions.score(now, sessions)
        deviation = self.query_outside_deviation(now, self.information(now))
        sides = [now.query_outside * np.exp(side * deviation) for side in SIDES]
        return log_mean_over_sides(
            [self.sessions.score(now._replace(query_outside=f), sessions) for f in sides]
        )


def no_past(layout: Layout) -> PastStatistics:
    """The statistics of no past sessions."""
    n_cells = len(layout.cells.key)
    none = empty_statistics(layout, layout.n_pairs, layout.n_queries, n_cells)
    pairs = np.zeros((5, layout.n_pairs))
    information = np.zeros((2, layout.n_pairs, layout.appeal_components))
    sums = [
        *pairs,
        *none.transition,
        *none.outside,
        *none.query_outside,
        none.component_sessions,
        *np.zeros((2, *none.appeal_observed.shape)),
        *np.zeros((2, n_cells)),
        *np.zeros((3, layout.hyperparameters.components)),
    ]
    return PastStatistics._make([*sums, Information(*information)])


def _log_class_means(means: Float64, sizes: Int64) -> float:
    """What the means of the classes cost, with `CLASS_STRENGTH` values of 1 in each class."""
    return float((sizes + CLASS_STRENGTH) @ np.log(means) + CLASS_STRENGTH * np.sum(1 / means))


def _log_past(observed: Float64, exposure: Float64, weight: Float64) -> float:
    """What past sessions contribute for these weights, if there are any."""
    if not exposure.any():
        return 0.0
    return float(np.sum(observed * np.log(weight) - exposure * weight))


def _log_gamma(value: Float64, strength: Float64, rate: Float64) -> float:
    """Σ s log x − rate · x: the Gamma prior of x on the scale of its logarithm."""
    return float(np.sum(strength * np.log(value) - rate * value))


LuceFit = FitResult[LuceParameters, ExpectedStatistics]


def maximise(
    objective: Objective,
    start: LuceParameters,
    *,
    max_iterations: int,
    tolerance: float,
    quiet: bool = False,
) -> LuceFit:
    """Fit the parameters by EM with SQUAREM (see `reclick.fitting.em.run_em`)."""
    return run_em(
        start,
        objective.sessions.blocks,
        e_step,
        partial(m_step, objective),
        log_prior=objective.log_prior,
        sessions=objective.n_sessions,
        max_iterations=max_iterations,
        tolerance=tolerance,
        engine=objective.sessions.engine,
        accelerate=Squarem(partial(squarem, objective)),
        safe_step=keep_variance,
        normalise=objective.fix_scale,
        quiet=quiet,
    )


def keep_variance(now: LuceParameters, proposal: LuceParameters) -> LuceParameters:
    """An M-step that cannot lower the objective: ρ and its variance are not moved at once."""
    return proposal._replace(satisfaction_variance=now.satisfaction_variance)


def m_step(
    objective: Objective, now: LuceParameters, statistics: ExpectedStatistics
) -> LuceParameters:
    """The next parameters, from the statistics under the present ones."""
    chosen, past, layout, sums = (
        objective.hyperparameters,
        objective.past,
        objective.layout,
        statistics.sums,
    )
    theta, appeal = _fit_appeal(objective, now, statistics)
    rho, variance, odds = _fit_satisfaction(objective, now, statistics)
    query_outside, query_class_mean = now.query_outside, now.query_class_mean
    if chosen.query_strength is not None:
        query_outside = _mm_step_alone(
            query_outside,
            chosen.query_strength + past.query_observed,
            objective.query_rate(now),
            sums.query_outside[OBSERVED],
            sums.query_outside[EXPECTED],
        )
        if chosen.query_strength:
            query_class_mean = _class_means(
                query_outside, objective.query_class, objective.reference_classes[1]
            )
    pair_class_mean = now.pair_class_mean
    if chosen.attractiveness_strength:
        pair_class_mean = _class_means(
            theta / objective.prior_mean, objective.pair_class, objective.reference_classes[0]
        )
    past_transition = past.transition_exposure * layout.transition.table(now.transition)
    past_outside = past.outside_exposure * layout.outside.table(now.outside)
    return LuceParameters(
        theta=theta,
        rho=rho,
        transition=layout.transition.mm_step(
            now.transition,
            sums.transition[OBSERVED] + past.transition_observed,
            sums.transition[EXPECTED] + past_transition,
        ),
        outside=layout.outside.mm_step(
            now.outside,
            sums.outside[OBSERVED] + past.outside_observed,
            sums.outside[EXPECTED] + past_outside,
        ),
        query_outside=query_outside,
        mixing=_fit_mixing(objective, sums.component_sessions),
        pair_class_mean=pair_class_mean,
        query_class_mean=query_class_mean,
        component_appeal=appeal,
        satisfaction_variance=variance,
        position_effect=_fit_position_effects(
            objective,
            now,
            statistics,
            (theta / now.theta)[:, None] * (appeal / now.component_appeal),
        ),
        satisfaction_odds=odds,
    )


def _mm_step_alone(
    value: Float64, strength: Float64, rate: Float64, observed: Float64, expected: Float64
) -> Float64:
    """An MM step of weights that are a factor each."""
    n = len(value)
    index, starts = np.arange(n)[None], np.array([0, n])
    return mm_step(value, index, starts, strength, rate, observed, expected)


def _fit_appeal(
    objective: Objective, now: LuceParameters, statistics: ExpectedStatistics
) -> tuple[Float64, Float64]:
    """θ [pair], and the component appeal [pair or 1, component]."""
    expected = objective.sessions.sum_by_pair(statistics.sums.expected)
    strength, rate = objective.strength, objective.rate(now)
    if not objective.layout.has_component_appeal:
        theta = _mm_step_alone(now.theta, strength, rate, objective.clicks, expected[:, 0])
        return theta, now.component_appeal
    n_pairs, components = now.component_appeal.shape
    n_cells = n_pairs * components
    index = np.stack([np.repeat(np.arange(n_pairs), components), n_pairs + np.arange(n_cells)])
    starts = np.array([0, n_pairs, n_pairs + n_cells])
    appeal_strength, appeal_rate = objective.component_appeal_prior()
    factors = mm_step(
        np.append(now.theta, now.component_appeal),
        index,
        starts,
        np.append(strength, appeal_strength),
        np.append(rate, appeal_rate),
        statistics.sums.appeal_observed,
        expected,
    )
    return factors[:n_pairs], factors[n_pairs:].reshape(n_pairs, components)


def _fit_position_effects(
    objective: Objective, now: LuceParameters, statistics: ExpectedStatistics, moved: Float64
) -> Float64:
    """The position effects, after θ times the component appeal moved by these ratios."""
    layout, past, effect = objective.layout, objective.past, now.position_effect
    if not layout.has_position_effects:
        return effect
    past_expected = past.cell_exposure * layout.position_effect.table(effect)
    new = (statistics.sums.expected * moved[layout.cells.pair] ** 2).sum(axis=1)
    observed = objective.cell_clicks + past.cell_observed
    return layout.position_effect.mm_step(effect, observed, past_expected + new)


def _fit_satisfaction(
    objective: Objective, now: LuceParameters, statistics: ExpectedStatistics
) -> tuple[Float64, Float64, Float64]:
    """ρ, whose mean is (expected satisfied + prior) / (clicks + prior), its variance, and ς."""
    yes, no, clicks, odds = objective.yes, objective.no, objective.followed, now.satisfaction_odds
    sums, past, variance = statistics.sums, objective.past, now.satisfaction_variance
    if objective.hyperparameters.satisfaction_strength is None:
        mean = (sums.satisfied[0].sum() + yes[0]) / (clicks.sum() + yes[0] + no[0])
        rho = np.full(len(clicks), np.clip(mean, MIN_PROBABILITY, 1 - MIN_PROBABILITY))
        return rho, variance, odds
    followed = clicks[:, None]
    if objective.layout.has_component_satisfaction:
        strength, followed = objective.hyperparameters.component_strength, sums.followed
        observed, expected = sums.satisfaction_odds[OBSERVED], sums.satisfaction_odds[EXPECTED]
        odds = fit_satisfaction_odds(
            observed + past.odds_observed + strength,
            expected / odds + past.odds_exposure + strength,
            objective.click_mixing,
            odds,
        )
    rho = fit_satisfaction_centres(now.rho, variance, yes, no, followed, odds, sums.satisfied[0])
    information = objective.satisfaction_information(now, statistics)
    return rho, np.where(objective.has_evidence, 1 / information, variance), odds


def _fit_mixing(objective: Objective, sessions: Float64) -> Float64:
    """The mixing weights [query or 1, component]."""
    if objective.hyperparameters.components == 1:
        return np.ones((1, 1))
    counts = np.maximum(sessions + objective.mixing_pseudo_sessions(), MIN_PROBABILITY)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _class_means(values: Float64, classes: Int64, reference: int) -> Float64:
    """The mean of each frequency class, with some values of 1 in it; 1 in the reference class."""
    sizes = np.bincount(classes, minlength=N_CLASSES)
    sums = np.bincount(classes, values, N_CLASSES)
    means = (sums + CLASS_STRENGTH) / (sizes + CLASS_STRENGTH)
    means[reference] = 1.0
    return np.asarray(means)


def squarem(
    objective: Objective,
    first: LuceParameters,
    second: LuceParameters,
    third: LuceParameters,
    longest: float,
) -> tuple[LuceParameters, float]:
    """Where two M-steps lead (SQUAREM), and the length of the extrapolation in steps."""
    layout = objective.layout
    weights = (
        objective.clicks + 1.0,
        objective.clicks + 1.0,
        layout.transition.strengths() + 1.0,
        layout.outside.strengths() + 1.0,
    )
    step = change = 0.0
    for a, b, c, weight in zip(first[:4], second[:4], third[:4], weights, strict=True):
        norms = squarem_norms(a, b, c, weight)
        step, change = step + norms[0], change + norms[1]
    length = min(max(math.sqrt(step / change) if change > 0 else 1.0, 1.0), longest)
    if length == 1.0:
        return third, length
    highest = {"rho": 1 - MIN_PROBABILITY, "mixing": 1.0}
    ahead = LuceParameters(
        *(
            squarem_step(a, b, c, length, highest.get(name, MAX_WEIGHT))
            for name, a, b, c in zip(LuceParameters._fields, first, second, third, strict=True)
        )
    )
    variance = np.minimum(ahead.satisfaction_variance, 1 / objective.min_information)
    mixing = ahead.mixing / ahead.mixing.sum(axis=1, keepdims=True)
    return ahead._replace(mixing=mixing, satisfaction_variance=variance), length
