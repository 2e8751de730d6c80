"""Hyperparameters of LuceClick, by the likelihood of held-out sessions.

The fast search fits a pilot to two thirds of the sessions, and then tries a handful of candidates,
each from where the best so far ended. A candidate is taken where the other third gains by it;
several components only where that gain is significant. The full search tries more values, over
three folds.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64
from reclick.fitting.attractiveness_prior import PairPrior
from reclick.fitting.folds import Fold, folds_of_pages
from reclick.models.luce.fit import LuceFit, MakePrior, TrainingData, fit_luce, fit_pilot
from reclick.models.luce.parameters import Hyperparameters, Layout
from reclick.runtime.progress import report_progress

logger = logging.getLogger("reclick")
N_FOLDS = 3
MIN_SESSIONS = 200  # a smaller log keeps the defaults
MAX_SESSIONS = 20_000  # distinct; of a longer log, whole queries
FREQUENT_PAGE, MIN_PAGES = 30, 100  # sessions of a page that will come again, and pages of a log
MIN_DIFFERENCE = 0.03  # of a prior mean: nearer ones are not tried
MIN_GAIN = 0.0003  # per session: less is not worth an addition
SIGNIFICANT = 2.0  # standard errors that a gain by more components must have
TRIAL: dict[str, Any] = {"max_iterations": 60, "tolerance": 1e-5, "quiet": True}
Candidates = tuple[tuple[str, tuple[Any, ...]], ...]
FAST: Candidates = (
    ("evidence_factor", (0.5, 0.2)),
    ("satisfaction_prior", (0.2, 0.6)),
    ("query_strength", (16.0,)),
    ("position_effect_strength", (10.0, None)),
    ("components", (3,)),
)
FULL: Candidates = (
    ("evidence_factor", (0.5, 0.25, 2.0)),
    ("satisfaction_prior", (0.1, 0.2, 0.3, 0.5, 0.6, 0.7)),
    ("satisfaction_strength", (5.0, 30.0, None)),
    ("query_strength", (1.0, 2.0, 8.0, 16.0, None)),
    ("transition_strength", (2.0, 32.0)),
    ("position_effect_strength", (10.0, 100.0, None)),
    ("components", (2, 3, 4, 5)),
    ("mixing_strength", (3.0, 30.0, None)),
    ("component_strength", (2.0, 16.0)),
)


class Trial(NamedTuple):
    """Hyperparameters and how well they predict held-out sessions."""

    hyper: Hyperparameters
    fits: list[LuceFit]  # one per fold
    held_out: Float64  # [session] log-likelihood
    weight: Float64  # [session]

    def gain_over(self, other: Trial) -> tuple[float, float]:
        """The mean gain per session, and its standard error."""
        gains = self.held_out - other.held_out
        mean = float(np.average(gains, weights=self.weight))
        spread = float(np.sqrt(np.sum(self.weight * (gains - mean) ** 2)))
        return mean, spread / float(self.weight.sum())


def search_hyperparameters(
    sessions: GroupedSessions,
    defaults: Hyperparameters,
    fixed: frozenset[str],
    make_prior: MakePrior,
    *,
    full: bool = False,
) -> Hyperparameters:
    """The hyperparameters that held-out sessions choose; those that are fixed stay."""
    candidates = [each for each in (FULL if full else FAST) if each[0] not in fixed]
    if sessions.weight.sum() < MIN_SESSIONS or not candidates:
        return defaults
    sample = sessions.sample_queries(MAX_SESSIONS)
    folds = folds_of_pages(sample, N_FOLDS, frequent_page=FREQUENT_PAGE, min_pages=MIN_PAGES)
    search = _Search(folds[: N_FOLDS if full else 1], make_prior)
    if not search.folds:
        return defaults
    best = search.first_trial(defaults)
    for name, values in candidates:
        if name not in ("mixing_strength", "component_strength") or best.hyper.components > 1:
            best = search.best_of(best, name, values)
    return best.hyper


def parabola_vertex(gains: dict[float, float]) -> float:
    """Where a parabola through the best value of a probability and its two neighbours is highest.

    >>> round(parabola_vertex({0.2: 0.0, 0.4: 0.03, 0.6: 0.02}), 3)
    0.45
    """
    best = max(gains, key=lambda value: gains[value])
    nearest = sorted(gains, key=lambda value: abs(value - best))[:3]
    second, slope, _ = np.polyfit(nearest, [gains[value] for value in nearest], 2)
    vertex = -slope / (2 * second) if second < 0 else best
    return round(float(np.clip(vertex, best - 0.1, best + 0.1)), 2)


class _Search:
    """Trials on the same folds."""

    def __init__(self, folds: list[Fold], make_prior: MakePrior) -> None:
        self.folds, self._make_prior = folds, make_prior
        self._weight = np.concatenate([np.zeros(0), *(fold.test.weight for fold in folds)])
        self._count = 0

    def first_trial(self, hyper: Hyperparameters) -> Trial:
        """The defaults, from pilots that give the priors of attractiveness."""
        pilots = [fit_pilot(_prepare(fold.train, hyper), hyper) for fold in self.folds]
        self._evidence = [pilot.estimate_prior(self._make_prior) for pilot in pilots]
        return self._try(hyper, pilots)

    def best_of(self, best: Trial, name: str, values: tuple[Any, ...]) -> Trial:
        """The best of the trials along one hyperparameter."""
        first, gains = best, {getattr(best.hyper, name): 0.0}
        for value in values:
            trial = self._try(best.hyper._replace(**{name: value}), best.fits)
            gains[value], _ = trial.gain_over(first)
            best = self._better(best, trial, name)
        if name == "satisfaction_prior" and len(gains) > 2:
            between = parabola_vertex(gains)
            if abs(between - best.hyper.satisfaction_prior) > MIN_DIFFERENCE:
                trial = self._try(best.hyper._replace(satisfaction_prior=between), best.fits)
                best = self._better(best, trial, name)
        return best

    @staticmethod
    def _better(best: Trial, trial: Trial, name: str) -> Trial:
        gain, error = trial.gain_over(best)
        logger.debug("%s = %s: %+.5f ± %.5f", name, getattr(trial.hyper, name), gain, error)
        needed = SIGNIFICANT * error if name == "components" else 0.0
        return trial if gain > max(MIN_GAIN, needed) else best

    def _try(self, hyper: Hyperparameters, starts: list[LuceFit]) -> Trial:
        self._count += 1
        report_progress("hyperparameters tried", self._count)
        fits = [
            self._fit(hyper, start, prior)
            for start, prior in zip(starts, self._evidence, strict=True)
        ]
        held_out = [fit.score(fold.test) for fit, fold in zip(fits, self.folds, strict=True)]
        return Trial(hyper, fits, np.concatenate(held_out), self._weight)

    @staticmethod
    def _fit(hyper: Hyperparameters, start: LuceFit, evidence: PairPrior) -> LuceFit:
        data = start.data
        if (hyper.position_effect_strength is None) != (
            start.hyper.position_effect_strength is None
        ):
            data = _prepare(data.sessions, hyper)
        return fit_luce(data, hyper, scale_prior(evidence, hyper), start.parameters, **TRIAL)


def _prepare(sessions: GroupedSessions, hyper: Hyperparameters) -> TrainingData:
    return TrainingData.of(sessions, Layout.of(sessions, hyper))


def scale_prior(evidence: PairPrior, hyper: Hyperparameters) -> PairPrior:
    """The prior of attractiveness with the strength that the hyperparameters give it."""
    if not isinstance(hyper.attractiveness_strength, str):
        return evidence._replace(
            strength=np.full(len(evidence.mean), hyper.attractiveness_strength)
        )
    return evidence._replace(strength=evidence.strength * hyper.evidence_factor)
