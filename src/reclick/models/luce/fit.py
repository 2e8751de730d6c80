"""Fits of LuceClick: sessions in blocks, EM, the pilot, and the state after a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.pair_index import CellIndex, ImpressionLookup, IndexMap
from reclick.data.ragged import Float64, Int32, Int64, positions_in_runs, run_of_elements
from reclick.engines import Engine
from reclick.fitting.attractiveness_prior import AdRecord, Choices, PairPrior
from reclick.fitting.em import FitResult, Statistics
from reclick.fitting.posterior import information_left, marginal_information
from reclick.models.luce.e_step import AMBIGUITY, LuceBlock, e_step, make_block, pair_information
from reclick.models.luce.parameters import (
    CELL,
    PAIR,
    QUERY,
    QUERY_CLASS,
    QUERY_POSITION,
    Hyperparameters,
    Layout,
    LuceParameters,
    initial_parameters,
)
from reclick.models.redundancy import block_overlap
from reclick.text.word_rates import TokenLists

PILOT_STRENGTH = 2.0  # of attractiveness, in pseudo-clicks, before its prior is known
PILOT_QUERY_STRENGTH = 16.0
PILOT_LIMITS: dict[str, Any] = {"max_iterations": 30, "tolerance": 1e-4, "quiet": True}
LuceResult = FitResult[LuceParameters, Statistics]


class TrainingData(NamedTuple):
    """Sessions and their cells."""

    layout: Layout
    sessions: float  # their number
    blocks: list[LuceBlock]

    @classmethod
    def of(cls, sessions: GroupedSessions, layout: Layout) -> TrainingData:
        """Split sessions into blocks with cells."""
        blocks = [make_block(layout.cells, block) for block in sessions.blocks()]
        return cls(layout, float(sessions.weight.sum()), blocks)

    def with_redundancy(self, kappa: float, tokens: TokenLists | None) -> TrainingData:
        """Let ads that repeat the words of clicked ads lose weight, by the factor κ."""
        if not kappa or tokens is None:
            return self
        pair_ad = self.layout.counts.pair_ad
        overlaps = [block_overlap(tokens, pair_ad, block.sessions) for block in self.blocks]
        blocks = zip(self.blocks, overlaps, strict=True)
        return self._replace(blocks=[b._replace(redundancy=kappa, overlap=o) for b, o in blocks])

    def maximise(self, start: LuceParameters, **loop: Any) -> LuceResult:
        """Run EM from `start`."""
        return start.maximise(self.blocks, e_step, sessions=self.sessions, **loop)


class LuceState(NamedTuple):
    """The result of a fit that answers and updates need; it has no sessions."""

    hyper: Hyperparameters
    layout: Layout
    parameters: LuceParameters  # the past includes the sessions of this fit
    information: Float64  # [3, pair] as of `pair_information`, over all sessions

    @classmethod
    def of(
        cls, hyper: Hyperparameters, data: TrainingData, result: LuceResult,
        earlier: Float64 | float = 0.0,
    ) -> LuceState:  # fmt: skip
        """Make the state after a fit; `earlier` is the information of earlier sessions."""
        blocks = [pair_information(result.parameters, block) for block in data.blocks]
        parameters = result.parameters.remember(result.statistics)
        information = np.maximum(np.concatenate(blocks, axis=1), 0.0)  # < 0 by rounding errors
        return cls(hyper, data.layout, parameters, information + earlier)

    def ad_record(self) -> AdRecord:
        """Clicks, exposure and choices of the factor θ of each pair, over all sessions."""
        appeal, pair, counts = self.parameters.appeal, self.layout.cells.pair, self.layout.counts
        theta = appeal.level(PAIR)
        clicks = np.bincount(pair, appeal.past.observed, len(theta)).astype(np.float64)
        cell_clicks = appeal.past.exposure * appeal.weights()
        expected = np.bincount(pair, cell_clicks, len(theta)).astype(np.float64)
        choices = Choices.of(theta, expected, self.information[:AMBIGUITY].sum(axis=0))
        return AdRecord(clicks, expected / theta, counts.pair_ad, len(counts.ads), choices)

    def move_to(
        self, at: IndexMap, sessions: GroupedSessions, prior: PairPrior, decay: float
    ) -> LuceState:
        """Add the pairs and queries of later sessions; the sessions so far count by `decay`."""
        old, counts = self.layout.cells, sessions.counts
        old_cells = at.pair[old.pair], old.position
        cells = CellIndex(old.has_positions).add(*old_cells)
        layout = Layout.build(counts, counts.impressions, counts.volumes, cells).extend(sessions)
        rows = {"cells": layout.cells.find(*old_cells), "pairs": at.pair, "queries": at.query}
        information = np.stack([at.place_pairs(decay * row) for row in self.information])
        initial = initial_parameters(layout, self.hyper, prior, self.parameters.mixing.mean)
        parameters = initial.continue_from(self.parameters, rows, decay)
        return LuceState(self.hyper, layout, parameters, information).with_rho_variance()

    def with_rho_variance(self) -> LuceState:
        """Set the variance of each ρ, given the information of the sessions."""
        satisfaction = self.parameters.satisfaction.with_variance(self.information[AMBIGUITY])
        return self._replace(parameters=replace(self.parameters, satisfaction=satisfaction))

    def typical_outside(self) -> float:
        """The geometric mean, over sessions, of f of the frequency class of their query."""
        classes = np.log(self.parameters.query_outside.level(QUERY_CLASS))[self.layout.query_class]
        return float(np.exp(np.average(classes, weights=self.layout.volumes)))

    def query_outside(self, query: Int32) -> Float64:
        """The f of some queries; a new query (−1) has the f of the class of the rarest queries."""
        table = self.parameters.query_outside
        return np.where(query >= 0, table.weights_at(query), float(table.level(QUERY_CLASS)[0]))

    def position_effects(self, lookup: ImpressionLookup, page: Int64) -> Float64:
        """The effect of the position of each impression; 1 if the log has no such cell."""
        out, layout, appeal = np.ones(len(lookup.row)), self.layout, self.parameters.appeal
        if not layout.cells.has_positions:
            return out
        query = lookup.query[run_of_elements(page)].astype(np.int64)
        position, longest = positions_in_runs(page), layout.longest
        is_known = (query >= 0) & (position < longest)
        out[is_known] = appeal.level(QUERY_POSITION)[query[is_known] * longest + position[is_known]]
        rows = np.flatnonzero(lookup.row >= 0)
        cell = layout.cells.find(lookup.row[rows], position[rows])
        out[rows[cell >= 0]] *= appeal.level(CELL)[cell[cell >= 0]]
        return out

    def attractiveness_information(self) -> Float64:
        """The information on log θ of each pair; the other weights of its query are unknown too."""
        (outside, ads, _), hyper, appeal = self.information, self.hyper, self.parameters.appeal
        pairs = len(self.layout.pair_class)
        prior = appeal.strength[:pairs] * appeal.level(PAIR) / appeal.mean[:pairs]
        if hyper.position_effect_strength is not None:
            cells = appeal.past.exposure, self.layout.cells.pair
            share = information_left(outside + ads, *cells, hyper.position_effect_strength)
            outside, ads = outside * share, ads * share
        f, strength = self.parameters.query_outside, hyper.query_strength
        f_prior = f.weights() * np.inf if strength is None else f.level(QUERY) * strength
        return marginal_information(outside, ads, prior, self.layout.counts.pair_query, f_prior)


def fit_luce(
    data: TrainingData, hyper: Hyperparameters, prior: PairPrior, start: LuceParameters | None,
    **loop: Any,
) -> LuceResult:  # fmt: skip
    """Run EM from `start` or the prior means; mixing weights have the prior mean of `start`."""
    for stage, limits in plan_stages(hyper, start, loop):
        mixing = np.full(hyper.components, 1 / hyper.components)
        if start is not None and len(start.mixing.mean) == hyper.components:
            mixing = start.mixing.weights.mean(axis=0)
        first = initial_parameters(data.layout, stage, prior, mixing)
        result = data.maximise(first if start is None else first.start_from(start), **limits)
        start = result.parameters
    return result


def plan_stages(
    hyper: Hyperparameters, start: LuceParameters | None, loop: dict[str, Any]
) -> list[tuple[Hyperparameters, dict[str, Any]]]:
    """List the stages of a fit; a new mixture first has a stage with common mixing weights."""
    stages = [(hyper, loop)]
    if hyper.components > 1 and (start is None or len(start.mixing.mean) != hyper.components):
        stages.insert(0, (hyper._replace(mixing_strength=None), {**loop, **PILOT_LIMITS}))
    return stages


def plan_pilot(hyper: Hyperparameters) -> Hyperparameters:
    """Return the hyperparameters of a pilot."""
    strength = hyper.query_strength
    strength = None if strength is None else max(strength, PILOT_QUERY_STRENGTH)
    return hyper._replace(components=1, query_strength=strength)


def fit_pilot(
    data: TrainingData, hyper: Hyperparameters, engine: Engine | None = None
) -> LuceState:
    """Run a quick fit with one component and one prior mean for all pairs.

    It gives the record of each ad, from which the prior of attractiveness is fitted, and the
    variance of each ρ, which later fits start from. Outside options of queries have a stronger
    prior here: that of a query with few sessions could explain them, and its ads would seem alike.
    """
    flat = PairPrior.flat(len(data.layout.pair_class), PILOT_STRENGTH)
    result = fit_luce(data, plan_pilot(hyper), flat, None, engine=engine, **PILOT_LIMITS)
    return LuceState.of(hyper, data, result).with_rho_variance()
