"""Logs of simulated users, whose satisfaction is known, with the outcomes of their clicks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reclick.data.ragged import Float64

QUICK, LONG = 3.0, 60.0  # seconds
RATES = np.array([[0.02, 0.3], [0.5, 0.05]])  # conversion, quick return; unsatisfied, satisfied


@dataclass
class World:
    """Queries with the same ads; pages show them in random order."""

    seed: int = 1
    n_queries: int = 12
    n_ads: int = 4
    abandon: float = 0.0  # P(leaving after a click that did not satisfy), which no model has
    theta: Float64 = field(init=False)  # [query, ad]
    rho: Float64 = field(init=False)  # [query, ad]

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        shape = (self.n_queries, self.n_ads)
        self.theta = self._rng.uniform(0.15, 0.7, shape)
        self.rho = np.clip(self._rng.beta(1.5, 1.5, shape), 0.03, 0.97)

    def draw(self, users: str, sessions: int) -> dict[str, Any]:
        """A log of users who behave as a model says: dbn, sdbn, ccm, multiclick or luceclick."""
        browse: Any = {
            "dbn": self._scan_until_tired,
            "sdbn": self._scan,
            "ccm": self._scan_by_relevance,
            "multiclick": self._jump_until_tired,
            "luceclick": self._choose,
        }[users]
        names = ("query", "ads", "clicks", "dwell_seconds", "conversions")
        log: dict[str, Any] = {name: [] for name in names}
        for _ in range(sessions):
            query, page = int(self._rng.integers(self.n_queries)), self._rng.permutation(self.n_ads)
            clicks, satisfied = browse(self.theta[query, page], self.rho[query, page])
            outcomes = [RATES[:, each] > self._rng.random(2) for each in satisfied]
            log["query"].append(f"q{query:02d}")
            log["ads"].append([f"a{ad}" for ad in page])
            log["clicks"].append(clicks)
            log["dwell_seconds"].append([QUICK if quick else LONG for _, quick in outcomes])
            log["conversions"].append([float(converted) for converted, _ in outcomes])
        return log

    def pairs(self) -> dict[str, list[str]]:
        """All pairs, in the order of `theta` and `rho`."""
        queries = [f"q{query:02d}" for query in range(self.n_queries) for _ in range(self.n_ads)]
        return {"query": queries, "ad": [f"a{ad}" for ad in range(self.n_ads)] * self.n_queries}

    def _scan_until_tired(
        self, theta: Float64, rho: Float64, going_on: float = 0.8
    ) -> tuple[list[int], list[int]]:
        clicks: list[int] = []
        satisfied: list[int] = []
        for position in range(len(theta)):
            if self._happens(theta[position]):
                clicks.append(position + 1)
                satisfied.append(int(self._happens(rho[position])))
                if satisfied[-1] or self._happens(self.abandon):
                    break
            if not self._happens(going_on):
                break
        return clicks, satisfied

    def _scan(self, theta: Float64, rho: Float64) -> tuple[list[int], list[int]]:
        return self._scan_until_tired(theta, rho, going_on=1.0)

    def _scan_by_relevance(
        self, theta: Float64, _: Float64, alpha: tuple[float, ...] = (0.9, 0.7, 0.15)
    ) -> tuple[list[int], list[int]]:
        clicks: list[int] = []
        relevant: list[int] = []
        for position in range(len(theta)):
            going_on = alpha[0]
            if self._happens(theta[position]):
                clicks.append(position + 1)
                relevant.append(int(self._happens(theta[position])))
                going_on = alpha[1 + relevant[-1]]
            if not self._happens(going_on):
                break
        return clicks, relevant

    def _jump_until_tired(self, theta: Float64, rho: Float64) -> tuple[list[int], list[int]]:
        return self._choose(theta, rho, fatigue=0.35)

    def _choose(
        self, theta: Float64, rho: Float64, fatigue: float | None = None
    ) -> tuple[list[int], list[int]]:
        """Choose among the free positions and, without fatigue, an outside option."""
        clicks: list[int] = []
        satisfied: list[int] = []
        while len(clicks) < len(theta):
            last = clicks[-1] - 1 if clicks else -1
            weight = theta * 0.8 ** np.abs(np.arange(len(theta)) - last)
            weight[[click - 1 for click in clicks]] = 0.0
            outside = 0.6 if fatigue is None else fatigue / (1 - fatigue) * weight.sum()
            chance = np.append(weight, outside) / (weight.sum() + outside)
            chosen = int(self._rng.choice(len(chance), p=chance))
            if chosen == len(theta):
                break
            clicks.append(chosen + 1)
            satisfied.append(int(self._happens(rho[chosen])))
            if satisfied[-1] or self._happens(self.abandon):
                break
        return clicks, satisfied

    def _happens(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)
