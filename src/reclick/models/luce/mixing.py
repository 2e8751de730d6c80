"""Mixing weights: how likely a user is of each component of a mixture, per query or for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.data.ragged import Float64, Int32
from reclick.fitting.parameter_tables import ParameterTable

COMMON_STRENGTH = 1.0  # sessions that the prior of weights common to all queries is worth


@dataclass(frozen=True, slots=True)
class MixingWeights(ParameterTable):
    """The mixing weights of each query, with a Dirichlet prior; without a strength those of all.

    >>> mixing = MixingWeights.build(2, np.array([0.5, 0.5]), 10.0)
    >>> mixing.m_step(np.array([[10.0, 0.0], [0.0, 0.0]])).weights
    array([[0.75, 0.25],
           [0.5 , 0.5 ]])
    """

    value: ClassVar[str] = "weights"
    statistics: ClassVar[tuple[str, ...]] = ("members",)  # expected sessions [query, component]

    weights: Float64  # [query, component] rows add up to 1
    mean: Float64  # [component] of the prior
    strength: float | None  # of the prior, in sessions
    members: Float64  # [query, component] sessions of the past

    @classmethod
    def build(cls, queries: int, mean: Float64, strength: float | None) -> Self:
        """All weights at the prior mean."""
        weights = np.tile(mean, (queries, 1))
        return cls(weights, mean, strength, np.zeros(weights.shape))

    @property
    def overall(self) -> Float64:
        """The weights of a query that was never seen [component]."""
        return self.weights[0] if self.strength is None and len(self.weights) else self.mean

    def lookup(self, query: Int32) -> Float64:
        """The weights of some queries; −1 is one that was never seen."""
        return np.where(query[:, None] >= 0, self.weights[query], self.overall)

    def log_prior(self) -> float:
        """Log-density of the weights, up to a constant, with the sessions of the past."""
        rows = self.weights[:1] if self.strength is None else self.weights
        return float(np.sum(self._count(self.members) * np.log(rows)))

    def m_step(self, members: Float64) -> Self:
        """The shares of the components among the sessions."""
        counts = self._count(members + self.members)
        return self.with_values(np.broadcast_to(counts, members.shape))

    def _count(self, members: Float64) -> Float64:
        """Sessions of each component, with those of the prior [query or 1, component]."""
        if self.strength is None:
            return np.asarray(members.sum(axis=0, keepdims=True) + COMMON_STRENGTH * self.mean)
        return np.asarray(members + self.strength * self.mean)

    def constrain(self, values: Float64) -> Float64:
        """Rows that add up to 1, and are the same where the weights are common to all queries."""
        counts = np.maximum(values, PROBABILITY_MARGIN)
        weights = counts / counts.sum(axis=1, keepdims=True)
        if self.strength is None:
            weights = np.tile(weights.mean(axis=0), (len(weights), 1))
        return np.asarray(weights)
