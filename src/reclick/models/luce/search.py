"""The search for hyperparameters of LuceClick, on held-out sessions or by a bootstrap.

The fast search fits a pilot to two thirds of the sessions, and tries candidates, each from the best
fit so far. A value is taken if the log-likelihood of the other third improves by MIN_GAIN per
session and, for strengths, by one standard error; components must gain .001 and two errors. They
come before ρ and position effects, which depend on them. The full search and small logs use each
third. On small logs without weights, a bootstrap judges components.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import Clicks
from reclick.clicks.mixture import mix_choices
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64
from reclick.fitting.attractiveness_prior import AdRecord, PairPrior
from reclick.fitting.folds import SIGNIFICANT, SMALL_LOG, folds_to_judge
from reclick.fitting.search import CandidateValues, Search, choose_by_bootstrap
from reclick.models.luce.e_step import make_block, score
from reclick.models.luce.fit import TrainingData, fit_luce, fit_pilot
from reclick.models.luce.parameters import Hyperparameters, Layout, LuceParameters

COMPONENTS = CandidateValues("components", (2, 3, 4, 5), standard_errors=SIGNIFICANT, least=1e-3)
TRIAL: dict[str, Any] = {"max_iterations": 60, "tolerance": 1e-5, "quiet": True}
SATISFACTION = CandidateValues("satisfaction_prior", (0.2, 0.6), standard_errors=0.0, between=True)
FAST = (
    CandidateValues("evidence_factor", (0.7, 0.4)),
    CandidateValues("query_strength", (16.0,)),
    COMPONENTS._replace(values=(4,)),
    SATISFACTION,
    CandidateValues("position_effect_strength", (10.0, None)),
)
FULL = (
    CandidateValues("evidence_factor", (0.7, 0.5, 0.25, 2.0)),
    CandidateValues("query_strength", (1.0, 2.0, 6.0, 16.0, None)),
    COMPONENTS,
    CandidateValues("mixing_strength", (2.0, 15.0, None)),
    CandidateValues("component_strength", (3.0, 20.0)),
    SATISFACTION._replace(values=(0.1, 0.2, 0.3, 0.5, 0.6, 0.7)),
    CandidateValues("satisfaction_strength", (5.0, 30.0, None)),
    CandidateValues("transition_strength", (2.0, 32.0)),
    CandidateValues("position_effect_strength", (10.0, 100.0, None)),
)


def search_hyperparameters(
    sessions: GroupedSessions, defaults: Hyperparameters, fixed: Collection[str],
    make_prior: Callable[[AdRecord], PairPrior], *, full: bool = False,
) -> Hyperparameters:  # fmt: skip
    """Choose the hyperparameters that are not `fixed`."""
    candidates = [values for values in (FULL if full else FAST) if values.name not in fixed]
    folds = folds_to_judge(sessions, all_thirds=full) if candidates else []
    if not folds:
        return defaults
    make_fits = partial(_ScoredFits, hyper=defaults, make_prior=make_prior)
    fits = [make_fits(*fold) for fold in folds]
    search = Search[Hyperparameters, LuceParameters](
        lambda fold, hyper, start: fits[fold].fit(hyper, start),
        lambda fold, fitted: fits[fold].score(fitted),
        [fold.test.weight for fold in folds],
    )
    best = search.attempt(defaults, [each.pilot for each in fits])
    uses_bootstrap = sessions.n_sessions <= SMALL_LOG and not sessions.has_weights
    for candidate in candidates:
        is_of_mixture = candidate.name in ("mixing_strength", "component_strength")
        if candidate.name == "components" and uses_bootstrap:
            hyper = choose_by_bootstrap(sessions, best.hyper, candidate, make_fits)
            best = best if hyper == best.hyper else search.attempt(hyper, best.fits)
        elif best.hyper.components > 1 or not is_of_mixture:
            best = search.best_of(best, candidate)
    return best.hyper


class _ScoredFits:
    """Fits to some sessions, scored on others; the pilot, where they start, and its prior."""

    def __init__(
        self, train: GroupedSessions, test: GroupedSessions, hyper: Hyperparameters,
        make_prior: Callable[[AdRecord], PairPrior],
    ) -> None:  # fmt: skip
        layout = Layout.of(train, has_positions=True).extend(test)
        self._data = TrainingData.of(train, layout)
        self._test = make_block(layout.cells, test.whole)
        state = fit_pilot(self._data, hyper)
        self.pilot = state.parameters
        self._prior = make_prior(state.ad_record())

    def fit(self, hyper: Hyperparameters, start: LuceParameters) -> LuceParameters:
        """Fit the model from where another fit ended."""
        prior = hyper.apply_strength(self._prior)
        return fit_luce(self._data, hyper, prior, start, **TRIAL).parameters

    def score(self, fitted: LuceParameters) -> Float64:
        """Return the log-likelihood of each held-out session [session]."""
        return score(fitted, self._test)

    def simulate(self, fitted: LuceParameters, rng: np.random.Generator) -> Clicks:
        """Draw clicks on the pages of the held-out sessions."""
        sessions, query = self._test.sessions, self._test.query
        f = fitted.query_outside.weights()[query].repeat(np.diff(sessions.page))
        theta, rho = fitted.appeal.weights()[self._test.cell] / f, fitted.satisfaction.mean
        shapes = fitted.outside.weights(), fitted.transition.weights(), sessions.page
        pages = ChoicePages("luce", theta, rho[sessions.pair], *shapes, 0 * sessions.page[1:])
        return mix_choices(pages, fitted.mixing.weights[query]).sample(rng)
