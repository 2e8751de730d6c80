"""A search for hyperparameters by the likelihood of held-out sessions, or by a bootstrap.

A trial is a fit per fold, scored on the sessions that the fold holds out. It starts from the fits
of an earlier trial. Hyperparameters are searched one by one; a value is accepted if it gains.

A parametric bootstrap decides whether a richer model gains more than chance explains (McLachlan
1987). A richer model always fits its own training sessions better. How much better by chance is
measured on sessions simulated from the simpler model. On a small log this has more power than
held-out sessions, since all sessions are used both to fit and to judge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from reclick.clicks.distribution import Clicks
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64
from reclick.fitting.folds import MIN_GAIN, measure_gain
from reclick.runtime.progress import report_progress

logger = logging.getLogger("reclick")
MIN_DIFFERENCE = 0.03  # of two probabilities: nearer ones are not tried
SEED, N_SIMULATIONS = 20_141_987, 8  # of a bootstrap
# 1 − .05 / n of Student's t with N_SIMULATIONS − 1 degrees of freedom, by the number n of tests
QUANTILES = {1: 1.895, 2: 2.365, 3: 2.642, 4: 2.841}

H = TypeVar("H")  # hyperparameters
F = TypeVar("F")  # a fit


class Trial(NamedTuple, Generic[H, F]):
    """Hyperparameters and how well they predict held-out sessions."""

    hyper: H
    fits: list[F]  # one per fold
    held_out: Float64  # [session] log-likelihood
    weight: Float64  # [session]

    @property
    def mean(self) -> float:
        """The log-likelihood per session."""
        return float(np.average(self.held_out, weights=self.weight))

    def gain_over(self, other: Trial[H, F]) -> tuple[float, float]:
        """The mean gain per session, and its standard error."""
        return measure_gain(other.held_out, self.held_out, self.weight)


class CandidateValues(NamedTuple):
    """Values of a hyperparameter to try, and the gain that a value must have to be accepted.

    The gain must exceed `least`, and `standard_errors` of its standard errors. With `between`, one
    more value is tried: the highest point of a parabola through the best value of a probability and
    its neighbours, at most .1 from the best.
    """

    name: str
    values: tuple[Any, ...]
    standard_errors: float = 1.0
    least: float = MIN_GAIN
    between: bool = False

    def is_better(self, trial: Trial[Any, F], best: Trial[Any, F]) -> bool:
        """Whether the gain of a trial is large enough."""
        gain, error = trial.gain_over(best)
        value = getattr(trial.hyper, self.name)
        logger.debug("%s = %s: %+.5f ± %.5f", self.name, value, gain, error)
        return gain > max(self.least, self.standard_errors * error)


class Search(Generic[H, F]):
    """Trials on the same folds.

    `fit(fold, hyper, start)` returns a fit to the sessions of a fold, by its number, and
    `score(fold, fit)` the log-likelihood of those it holds out, whose weights are `weights[fold]`.
    """

    def __init__(
        self,
        fit: Callable[[int, H, F], F],
        score: Callable[[int, F], Float64],
        weights: Sequence[Float64],
    ) -> None:
        self._fit, self._score = fit, score
        self._weight = np.concatenate([np.zeros(0), *weights])
        self._count = 0

    def attempt(self, hyper: H, starts: Sequence[F]) -> Trial[H, F]:
        """Run a trial that starts from other fits, one per fold."""
        self._count += 1
        report_progress("hyperparameters tried", self._count)
        fits = [self._fit(fold, hyper, start) for fold, start in enumerate(starts)]
        held_out = [self._score(fold, fit) for fold, fit in enumerate(fits)]
        return Trial(hyper, fits, np.concatenate(held_out), self._weight)

    def follow(self, values: Sequence[H], starts: Sequence[F]) -> list[Trial[H, F]]:
        """Run trials of one value after the other, each from the fits of the one before."""
        trials: list[Trial[H, F]] = []
        for value in values:
            trials.append(self.attempt(value, trials[-1].fits if trials else starts))
        return trials

    def best_of(self, best: Trial[Any, F], candidates: CandidateValues) -> Trial[Any, F]:
        """The best of the trials along one hyperparameter."""
        name, first = candidates.name, best
        gains = {getattr(best.hyper, name): 0.0}
        for value in candidates.values:
            trial = self.attempt(best.hyper._replace(**{name: value}), best.fits)
            gains[value], _ = trial.gain_over(first)
            best = trial if candidates.is_better(trial, best) else best
        if candidates.between and len(gains) > 2:
            vertex = parabola_vertex(gains)
            if abs(vertex - getattr(best.hyper, name)) > MIN_DIFFERENCE:
                trial = self.attempt(best.hyper._replace(**{name: vertex}), best.fits)
                best = trial if candidates.is_better(trial, best) else best
        return best


def parabola_vertex(gains: dict[float, float]) -> float:
    """Where a parabola through the best value of a probability and its two neighbours is highest.

    At most .1 from the best value.

    >>> round(parabola_vertex({0.2: 0.0, 0.4: 0.03, 0.6: 0.02}), 3)
    0.45
    """
    best = max(gains, key=lambda value: gains[value])
    nearest = sorted(gains, key=lambda value: abs(value - best))[:3]
    second, slope, _ = np.polyfit(nearest, [gains[value] for value in nearest], 2)
    vertex = -slope / (2 * second) if second < 0 else best
    return round(float(np.clip(vertex, best - 0.1, best + 0.1)), 2)


class Fits(Protocol[F]):
    """Fits to some sessions, scored on others."""

    @property
    def pilot(self) -> F:
        """The fit that the first one starts from."""

    def fit(self, hyper: Any, start: F) -> F:
        """Fit the model with some hyperparameters, from where another fit ended."""

    def score(self, fitted: F) -> Float64:
        """The log-likelihood of each session to score [session]."""

    def simulate(self, fitted: F, rng: np.random.Generator) -> Clicks:
        """Draw clicks on the pages of the sessions to score."""


def exceeds_chance(
    gain: float,
    simulated_gain: Callable[[np.random.Generator], float],
    least: float,
    quantile: float = QUANTILES[1],
) -> bool:
    """Whether a gain in log-likelihood is significantly above those on simulated sessions.

    It must exceed each of them, their mean by at least `least`, and the upper limit of a one-sided
    prediction interval for one more, at 95% by default. `simulated_gain` simulates sessions and
    returns their gain.

    >>> exceeds_chance(30.0, lambda rng: rng.normal(10, 2), least=1.0)
    True
    >>> exceeds_chance(12.0, lambda rng: rng.normal(10, 2), least=1.0)
    False
    """
    rng = np.random.default_rng(SEED)
    gains = [least]
    while len(gains) <= N_SIMULATIONS:
        if gain <= max(gains):
            return False
        gains.append(simulated_gain(rng))
    error = float(np.std(gains[1:], ddof=1)) * np.sqrt(1 + 1 / N_SIMULATIONS)
    excess = gain - float(np.mean(gains[1:]))
    logger.debug("gain %.1f, simulated %.1f ± %.1f", gain, gain - excess, error)
    return gain > max(gains) and excess > max(least, quantile * float(error))


def choose_by_bootstrap(
    sessions: GroupedSessions,
    hyper: Any,
    candidates: CandidateValues,
    make_fits: Callable[[GroupedSessions, GroupedSessions], Fits[F]],
) -> Any:
    """Choose the value of a hyperparameter; each value is compared with the best before it.

    The tests of all values together have a level of about 5%. The log must have no weights.
    Outcomes of clicks are not used. `make_fits(train, test)` prepares fits.
    """
    clicks_only = replace(sessions, whole=sessions.without_outcomes().whole.ungroup())
    least = candidates.least * float(clicks_only.weight.sum())
    quantile = QUANTILES[min(len(candidates.values), max(QUANTILES))]
    for value in candidates.values:
        richer_hyper = hyper._replace(**{candidates.name: value})
        comparison = _BootstrapTest(hyper, richer_hyper, make_fits, quantile)
        if comparison.is_significant(clicks_only, least):
            hyper = comparison.richer_hyper
    return hyper


class _BootstrapTest:
    """A model and a richer one, each fitted to sessions and judged by their likelihood."""

    def __init__(
        self,
        hyper: Any,
        richer_hyper: Any,
        make_fits: Callable[[GroupedSessions, GroupedSessions], Fits[Any]],
        quantile: float,
    ) -> None:
        self.hyper, self.richer_hyper, self._make_fits = hyper, richer_hyper, make_fits
        self._quantile, self._n_simulated = quantile, 0

    def is_significant(self, sessions: GroupedSessions, least: float) -> bool:
        """Whether the richer model gains more on the sessions than by chance."""
        fits = self._make_fits(sessions, sessions)
        fitted = fits.fit(self.hyper, fits.pilot)

        def simulated_gain(rng: np.random.Generator) -> float:
            click, clicks = fits.simulate(fitted, rng)
            whole = replace(sessions.whole, click=click, clicks=clicks)
            simulated = replace(sessions, whole=whole)
            self._n_simulated += 1
            report_progress("logs simulated", self._n_simulated)
            return self._gain(simulated, self._make_fits(simulated, simulated))

        gain = self._gain(sessions, fits, fitted)
        return exceeds_chance(gain, simulated_gain, least, self._quantile)

    def _gain(self, sessions: GroupedSessions, fits: Fits[F], fitted: F | None = None) -> float:
        """The log-likelihood that the richer model gains on the sessions it is fitted to."""
        first = fits.fit(self.hyper, fits.pilot) if fitted is None else fitted
        richer = fits.fit(self.richer_hyper, first)
        return float(np.sum(sessions.weight * (fits.score(richer) - fits.score(first))))
