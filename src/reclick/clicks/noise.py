"""Random clicks: their number is random, and all sequences of that number are equally likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import Clicks
from reclick.data.batch import Float64, Int64


@dataclass(frozen=True)
class NoisePages(ChoicePages):
    """Pages clicked at random: P(clicks) = P(m clicks) (n − m)! / n! on a page of n ads.

    A choice with θ = γ = 1 and ρ = 0. Exact for any page length.
    """

    @classmethod
    def build(cls, stop: Float64, starts: Int64, table: Int64) -> Self:
        """From P(no further click) [table, clicks so far]."""
        longest = stop.shape[1] - 1
        gamma = np.ones((len(stop), longest + 1, longest))
        ones, zeros = np.ones(starts[-1]), np.zeros(starts[-1])
        return cls("normalised", ones, zeros, stop, gamma, starts, table)

    def click_prob(self) -> Float64:
        """P(click) = E(number of clicks) / n, the same at every position [impression]."""
        sizes = np.diff(self.starts)
        further = np.cumprod(1 - self.stop[self.table, :-1], axis=1)  # [page, clicks]
        further *= np.arange(further.shape[1]) < sizes[:, None]
        return np.repeat(further.sum(axis=1) / sizes, sizes)

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log P(m clicks) − log of the number of sets of m positions [page]."""
        return self.log_prob(clicks) + log_factorial(clicks.counts)


def log_factorial(numbers: Int64) -> Float64:
    """The logarithm of n!, of small numbers.

    >>> np.exp(log_factorial(np.array([0, 3]))).round(9).tolist()
    [1.0, 6.0]
    """
    logs = np.log(np.maximum(np.arange(int(numbers.max(initial=0)) + 1), 1))
    return np.asarray(np.cumsum(logs)[numbers])
