"""Fits of LuceClick: a pilot, the prior of attractiveness that it gives, and the final fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64, Int32
from reclick.engines import Engine, LocalEngine
from reclick.fitting.attractiveness_prior import PairPrior
from reclick.fitting.em import FitResult, Statistics
from reclick.fitting.factors import FactorTable
from reclick.models.luce.e_step import LuceBlock, inform, make_block, score
from reclick.models.luce.m_step import Objective, fit_parameters
from reclick.models.luce.parameters import (
    Hyperparameters,
    Layout,
    LuceParameters,
    initial_parameters,
    position_cells,
)
from reclick.models.luce.posterior import Information, satisfaction_variance

PILOT_STRENGTH = 2.0  # of attractiveness, in pseudo-clicks, before its prior is known
PILOT: dict[str, Any] = {"max_iterations": 30, "tolerance": 1e-4, "quiet": True}
MIN_BLOCK_IMPRESSIONS = 50_000  # a smaller block takes less than a thread to start

MakePrior = Callable[[Int32, Float64, Float64], PairPrior]  # of ad, clicks and exposure [pair]


class TrainingData(NamedTuple):
    """Sessions and their cells."""

    sessions: GroupedSessions
    layout: Layout
    blocks: list[LuceBlock]

    @classmethod
    def of(
        cls, sessions: GroupedSessions, layout: Layout, engine: Engine | None = None
    ) -> TrainingData:
        """The sessions in as many blocks as pay."""
        wanted = (engine or LocalEngine()).n_blocks
        count = max(1, min(wanted, len(sessions.pair) // MIN_BLOCK_IMPRESSIONS))
        return cls(sessions, layout, [make_block(layout, each) for each in sessions.blocks(count)])


@dataclass(frozen=True, slots=True)
class LuceFit:
    """A fit, and what it was fitted to."""

    hyper: Hyperparameters
    data: TrainingData
    objective: Objective
    prior: PairPrior
    result: FitResult[LuceParameters, Statistics]

    @property
    def parameters(self) -> LuceParameters:
        """The parameters at the end."""
        return self.result.parameters

    def clicks_and_exposure(self) -> tuple[Float64, Float64]:
        """The clicks of each pair, and those that a factor of 1 would have had [pair]."""
        layout, pairs = self.data.layout, len(self.data.layout.pair_query)
        factor = self.parameters.appeal.level(0)
        expected = np.bincount(layout.cell_pair, self.result.statistics.pairs["appeal"], pairs)
        clicks = np.bincount(layout.cell_pair, self.objective.cell_clicks, pairs)
        return clicks.astype(np.float64), expected / factor

    def gather_information(self) -> Information:
        """What the sessions say about each pair."""
        parts = [inform(self.parameters, block) for block in self.data.blocks]
        return Information(*np.concatenate(parts, axis=1))

    def estimate_prior(self, make_prior: MakePrior) -> PairPrior:
        """The prior of attractiveness that this fit's clicks and exposure give."""
        return make_prior(self.data.sessions.counts.pair_ad, *self.clicks_and_exposure())

    def score(self, sessions: GroupedSessions) -> Float64:
        """The log-likelihood of each of other sessions of the same pairs [session]."""
        layout, appeal = self.data.layout, self.parameters.appeal
        if not layout.has_positions:
            return score(self.parameters, make_block(layout, sessions.whole), appeal.weights())
        theirs = layout._replace(cell=position_cells(sessions))
        there = cell_appeal(appeal, layout, theirs)
        return score(self.parameters, make_block(theirs, sessions.whole), there)


def cell_appeal(appeal: FactorTable, layout: Layout, theirs: Layout) -> Float64:
    """The appeal of cells that need not be among those of the fit."""
    pair, position = theirs.cell_pair, theirs.cell_position
    at = layout.find_cells(pair, position)
    own = np.where(at >= 0, appeal.level(3)[at], 1.0)
    theta = appeal.level(0)[pair] * appeal.level(1)[layout.pair_class[pair]]
    return np.asarray(theta * appeal.level(2)[layout.query_position(pair, position)] * own)


def flat_prior(strength: float, pairs: int) -> PairPrior:
    """One prior mean for all pairs."""
    return PairPrior(np.ones(pairs), np.full(pairs, strength))


def fit_pilot(data: TrainingData, hyper: Hyperparameters, engine: Engine | None = None) -> LuceFit:
    """A quick fit with one component and one prior mean for all pairs.

    It tells how well each ρ is known, which the fits that start from it use.
    """
    prior = flat_prior(PILOT_STRENGTH, len(data.layout.pair_query))
    pilot = fit_luce(data, hyper._replace(components=1), prior, None, engine=engine, **PILOT)
    rho, ambiguity = pilot.parameters.satisfaction, pilot.gather_information().ambiguity
    variance = satisfaction_variance(hyper, rho, pilot.objective.open_clicks, ambiguity)
    known = pilot.parameters._replace(satisfaction_variance=variance)
    return replace(pilot, result=replace(pilot.result, parameters=known))


def fit_luce(
    data: TrainingData,
    hyper: Hyperparameters,
    prior: PairPrior,
    start: LuceParameters | None,
    *,
    engine: Engine | None = None,
    **loop: Any,
) -> LuceFit:
    """A fit from where another ended; with several components, first with common mixing weights."""
    if hyper.components > 1 and (start is None or start.mixing.shape[1] != hyper.components):
        common = hyper._replace(mixing_strength=None)
        start = _fit_once(data, common, prior, start, engine, PILOT).parameters
    return _fit_once(data, hyper, prior, start, engine, loop)


def _fit_once(
    data: TrainingData,
    hyper: Hyperparameters,
    prior: PairPrior,
    start: LuceParameters | None,
    engine: Engine | None,
    loop: dict[str, Any],
) -> LuceFit:
    mixing = np.full(hyper.components, 1 / hyper.components)
    if start is not None and start.mixing.shape[1] == hyper.components:
        mixing = start.mixing.mean(axis=0)
    first = initial_parameters(data.layout, hyper, prior.mean, prior.strength, mixing)
    if start is not None:
        first = warm_start(first, start)
    objective = Objective.of(data.sessions, data.layout, hyper, mixing)
    first = objective.constrain(first)
    result = fit_parameters(first, data.blocks, objective, engine=engine, **loop)
    return LuceFit(hyper, data, objective, prior, result)


def warm_start(fresh: LuceParameters, last: LuceParameters) -> LuceParameters:
    """Fresh parameters with the factors of another fit, where the two have the same levels."""
    tables = {}
    for name in ("appeal", "transition", "outside", "query_outside"):
        new, old = getattr(fresh, name), getattr(last, name)
        levels = []
        for number in range(min(len(new.starts), len(old.starts)) - 1):
            if len(new.level(number)) != len(old.level(number)):
                break
            levels.append(old.level(number))
        tables[name] = new.with_levels(levels).share_index(old)
    same = fresh.mixing.shape == last.mixing.shape
    mixing = last.mixing if same else fresh.mixing
    return last._replace(**tables, mixing=mixing)
