"""The M-step of LuceClick, the objective that it raises, and its extrapolation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64, Int64, positions_in_runs
from reclick.engines import Engine
from reclick.fitting.em import FitResult, Squarem, Statistics, run_em, squarem_norms, squarem_step
from reclick.fitting.factors import LARGEST_FACTOR
from reclick.fitting.outcomes import OutcomeRates
from reclick.models.luce.e_step import LuceBlock, centre_satisfaction, e_step
from reclick.models.luce.parameters import Hyperparameters, Layout, LuceParameters, cell_keys

COMMON_STRENGTH = 1.0  # pseudo-choices of a satisfaction, or mixing weights, common to all


@dataclass(frozen=True, slots=True)
class PastSatisfaction:
    """What earlier sessions contribute to satisfaction and mixing weights."""

    satisfied: Float64  # [pair]
    clicks: Float64  # [pair] that left another ad to click
    members: Float64  # [query, component]
    outcomes: Float64  # [unsatisfied or satisfied, outcome] of last clicks

    def __add__(self, other: PastSatisfaction) -> PastSatisfaction:
        return PastSatisfaction(
            self.satisfied + other.satisfied,
            self.clicks + other.clicks,
            self.members + other.members,
            self.outcomes + other.outcomes,
        )


@dataclass(frozen=True, slots=True)
class Objective:
    """What does not change during a fit: observed clicks, strengths, and the past."""

    hyper: Hyperparameters
    cell_clicks: Float64  # [cell]
    open_clicks: Float64  # [pair] clicks that left another ad to click
    mixing_mean: Float64  # [component]
    sessions: float
    past: PastSatisfaction | None = None
    outcomes: OutcomeRates | None = None  # None where no outcome is known

    @classmethod
    def of(
        cls,
        sessions: GroupedSessions,
        layout: Layout,
        hyper: Hyperparameters,
        mixing_mean: Float64,
        past: PastSatisfaction | None = None,
    ) -> Objective:
        """The objective of sessions."""
        impression = clicked_impressions(sessions)
        weight = np.repeat(sessions.weight, np.diff(sessions.clicks))
        pair = sessions.pair[impression].astype(np.int64)
        cell = pair
        if layout.has_positions:
            position = positions_in_runs(sessions.page)[impression]
            cell = np.searchsorted(layout.cell, cell_keys(pair, position))
        left = positions_in_runs(sessions.clicks) + 1 < np.repeat(
            np.diff(sessions.page), np.diff(sessions.clicks)
        )  # the last click on a page with every ad clicked leaves nothing
        return cls(
            hyper,
            np.bincount(cell, weight, len(layout.cell)).astype(np.float64),
            np.bincount(pair, weight * left, len(layout.pair_query)).astype(np.float64),
            mixing_mean,
            float(sessions.weight.sum()),
            past,
            _outcome_rates(sessions, hyper, past),
        )

    # prior

    def log_prior(self, parameters: LuceParameters) -> float:
        """Log-density of the parameters under their priors and the past, up to a constant."""
        tables = parameters.appeal, parameters.transition, parameters.outside
        value = sum(table.log_prior() for table in (*tables, parameters.query_outside))
        yes, no = self._satisfaction_prior()
        rho, variance = centre_satisfaction(parameters, slice(None))
        value += float(np.sum(yes * np.log(rho) + no * np.log(1 - rho)))
        value -= float(np.sum((yes + no) * variance * rho * (1 - rho))) / 2
        if len(self.mixing_mean) > 1:
            rows = (
                parameters.mixing[:1] if self.hyper.mixing_strength is None else parameters.mixing
            )
            value += float(np.sum(self._mixing_prior() * np.log(rows)))
        if self.outcomes is not None:
            value += self.outcomes.log_prior(parameters.outcome_rates)
        return value

    def _satisfaction_prior(self) -> tuple[Float64, Float64]:
        """Pseudo-clicks that satisfied and that did not [pair]; none where no click informs."""
        strength, mean = self.hyper.satisfaction_strength, self.hyper.satisfaction_prior
        clicks, satisfied = self._open_clicks(), np.zeros(len(self.open_clicks))
        past = np.zeros(len(clicks))
        if self.past is not None:
            satisfied, past = self.past.satisfied, self.past.clicks
        if strength is None:
            weight = np.zeros(len(clicks))
            weight[:1] = COMMON_STRENGTH
        else:
            weight = np.where(clicks > 0, strength, 0.0)
        return weight * mean + satisfied, weight * (1 - mean) + past - satisfied

    def _open_clicks(self) -> Float64:
        return self.open_clicks if self.past is None else self.open_clicks + self.past.clicks

    def _mixing_prior(self) -> Float64:
        """Pseudo-sessions of each component [query or 1, component], past sessions included."""
        strength = (
            COMMON_STRENGTH if self.hyper.mixing_strength is None else self.hyper.mixing_strength
        )
        prior = np.atleast_2d(strength * self.mixing_mean)
        if self.past is None:
            return prior
        past = self.past.members
        return prior + (past.sum(axis=0) if self.hyper.mixing_strength is None else past)

    def constrain(self, start: LuceParameters) -> LuceParameters:
        """Parameters to start from: one value where it is common, the mean where none informs."""
        rho, mixing = start.satisfaction, start.mixing
        if self.hyper.satisfaction_strength is None:
            rho = np.full(len(rho), rho.mean() if len(rho) else 0.5)
        else:
            rho = np.where(self._open_clicks() > 0, rho, self.hyper.satisfaction_prior)
        if self.hyper.mixing_strength is None:
            mixing = np.tile(mixing.mean(axis=0), (len(mixing), 1))
        return start._replace(satisfaction=rho, mixing=mixing)

    # steps

    def m_step(self, parameters: LuceParameters, found: Statistics) -> LuceParameters:
        """The next parameters; the objective cannot fall."""
        transition, outside, sums = found.totals["transition"], found.totals["outside"], found.pairs
        query = sums["query_observed"], sums["query_expected"]
        rates = parameters.outcome_rates
        if self.outcomes is not None:
            rates = self.outcomes.estimate(found.totals["outcomes"])
        return parameters._replace(
            appeal=parameters.appeal.mm_step(self.cell_clicks, sums["appeal"]),
            transition=parameters.transition.mm_step(transition[0], transition[1]),
            outside=parameters.outside.mm_step(outside[0], outside[1]),
            query_outside=parameters.query_outside.mm_step(*query),
            mixing=self._mixing(sums["mixing"]),
            satisfaction=self._satisfaction(sums["satisfied"], parameters.satisfaction),
            outcome_rates=rates,
        )

    def _satisfaction(self, satisfied: Float64, rho: Float64) -> Float64:
        """The mean of ρ = (satisfied + prior) / (clicks + prior), per pair or common to all."""
        yes, no = self._satisfaction_prior()
        if self.hyper.satisfaction_strength is None:
            total = self.open_clicks.sum() + yes.sum() + no.sum()
            rho = np.full(len(rho), (satisfied.sum() + yes.sum()) / total)
        else:
            total = self.open_clicks + yes + no
            rho = np.divide(satisfied + yes, total, out=rho.copy(), where=total > 0)
        return np.clip(rho, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)

    def _mixing(self, members: Float64) -> Float64:
        if members.shape[1] == 1:
            return np.ones(members.shape)
        if self.hyper.mixing_strength is None:
            return np.tile(
                _normalise(members.sum(axis=0) + self._mixing_prior()), (len(members), 1)
            )
        return _normalise(members + self._mixing_prior())

    def extrapolate(
        self, first: LuceParameters, second: LuceParameters, third: LuceParameters, limit: float
    ) -> tuple[LuceParameters, float]:
        """Where two steps seem to lead (SQUAREM), and how many steps ahead that is."""
        points = [_to_arrays(each) for each in (first, second, third)]
        norms = np.zeros(2)
        for a, b, c in zip(*points, strict=True):
            norms += squarem_norms(a, b, c, np.ones(len(a)))
        length = math.sqrt(norms[0] / norms[1]) if norms[1] > 0 else 1.0
        length = min(max(length, 1.0), limit)
        if length == 1.0:
            return third, length
        ahead = [
            squarem_step(a, b, c, length, LARGEST_FACTOR) for a, b, c in zip(*points, strict=True)
        ]
        return _from_arrays(third, ahead), length


def fit_parameters(
    start: LuceParameters,
    blocks: list[LuceBlock],
    objective: Objective,
    *,
    max_iterations: int,
    tolerance: float,
    engine: Engine | None = None,
    quiet: bool = False,
) -> FitResult[LuceParameters, Statistics]:
    """EM from a start."""
    return run_em(
        start,
        blocks,
        e_step,
        objective.m_step,
        log_prior=objective.log_prior,
        sessions=objective.sessions,
        max_iterations=max_iterations,
        tolerance=tolerance,
        engine=engine,
        accelerate=Squarem(objective.extrapolate),
        quiet=quiet,
    )


def _outcome_rates(
    sessions: GroupedSessions, hyper: Hyperparameters, past: PastSatisfaction | None
) -> OutcomeRates | None:
    """What the rates of outcomes are estimated from, besides the last clicks of these sessions."""
    if sessions.counts.outcomes is None or hyper.outcome_weight == 0:
        return None
    rates = OutcomeRates.of(sessions.counts, hyper.outcome_weight)
    return rates if past is None else rates.with_clicks(past.outcomes)


def clicked_impressions(sessions: GroupedSessions) -> Int64:
    """The impression of each click [click]."""
    return np.repeat(sessions.page[:-1], np.diff(sessions.clicks)) + sessions.click - 1


def _normalise(counts: Float64) -> Float64:
    counts = np.maximum(counts, PROBABILITY_MARGIN)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def _to_arrays(point: LuceParameters) -> list[Float64]:
    tables = point.appeal, point.transition, point.outside, point.query_outside
    return [*(table.factors for table in tables), point.mixing.ravel(), point.satisfaction]


def _from_arrays(like: LuceParameters, arrays: list[Float64]) -> LuceParameters:
    appeal, transition, outside, query_outside, mixing, rho = arrays
    return like._replace(
        appeal=like.appeal.with_factors(appeal),
        transition=like.transition.with_factors(transition),
        outside=like.outside.with_factors(outside),
        query_outside=like.query_outside.with_factors(query_outside),
        mixing=_normalise(mixing.reshape(like.mixing.shape)),
        satisfaction=np.clip(rho, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN),
    )
