"""The order of clicks given the click set: one learnt table that any order-free model can use.

Most click models say which positions are clicked, not in which order. Times P(order | set), such a
model has a probability for every click sequence:

    P(sequence) = P(set) · P(order | set),    P(order | set) = Π γ(l, j) / Σ_u γ(l, u)

The positions of the set are chosen one after another with Luce's weights γ(last click l, position
j), among the remaining positions of the set. So a set that never occurred has orders too, and the
probabilities of the orders of every set add up to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reclick.clicks.distribution import Clicks
from reclick.data.ragged import Float64, Int32, Int64
from reclick.engines import as_counts
from reclick.fitting.em import Statistics, run_em
from reclick.fitting.factors import FactorTable
from reclick.fitting.transitions import extend_transitions, transition_table
from reclick.logs import as_log
from reclick.runtime.arguments import check_arguments
from reclick.runtime.jit import kernel

STRENGTH = 8.0  # pseudo-choices: the prior of a transition, given its distance
MAX_ITERATIONS, GAIN_TOLERANCE = 500, 1e-6


class _Sequences(NamedTuple):
    """Distinct click sequences and their numbers of sessions."""

    clicks: Clicks
    weight: Float64  # [sequence]


@dataclass(frozen=True, slots=True, eq=False)
class OrderTable:
    """P(order | click set), learnt from the click sequences of a log.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1, 2]] * 3 + [[2, 1]]}
    >>> table = OrderTable.fit(log)
    >>> np.exp(table.log_prob(log)).round(2)
    array([0.7, 0.7, 0.7, 0.3])

    With it an order-free model has a probability of the clicks in their order:

    >>> from reclick import UBM
    >>> model = UBM().fit(log)
    >>> in_order = model.log_set_prob(log) + table.log_prob(log)
    """

    gamma: Float64  # [last click, position]; row 0 is the start

    @classmethod
    def fit(cls, log: object) -> OrderTable:
        """Learn the table from a log, or from its `Counts`."""
        counts = as_counts(log)
        weight = counts.per_sequence()
        rows = np.flatnonzero((np.diff(counts.sequence_starts) > 1) & (weight > 0))
        clicks = Clicks(counts.sequence_clicks, counts.sequence_starts).select(rows)
        sequences = _Sequences(clicks, weight[rows])
        start = transition_table(max(counts.max_ads, 1), STRENGTH)
        result = run_em(
            start,
            [sequences],
            _e_step,
            _m_step,
            log_prior=FactorTable.log_prior,
            sessions=float(sequences.weight.sum()),
            max_iterations=MAX_ITERATIONS,
            tolerance=GAIN_TOLERANCE,
            quiet=True,
        )
        return cls(result.parameters.weights()[0])

    def log_prob(self, sessions: object) -> Float64:
        """Log-probability of the order of each session's clicks, given the click set [session]."""
        batches = as_log(sessions, one_pass=True).batches()
        parts = [self.log_order_prob(Clicks(each.click, each.clicks)) for each in batches]
        return np.concatenate([np.zeros(0), *parts])

    @check_arguments
    def log_order_prob(self, clicks: Clicks) -> Float64:
        """The same as `log_prob`, for `Clicks` in memory."""
        gamma = extend_transitions(self.gamma[None], int(clicks.click.max(initial=1)))
        out, choices = np.empty(len(clicks.starts) - 1), np.zeros((2, *gamma.shape))
        _follow_orders(clicks.click, clicks.starts, np.ones(len(out)), gamma, choices, out)
        return out


def _e_step(table: FactorTable, sequences: _Sequences) -> Statistics:
    gamma, weight = table.weights(), sequences.weight
    log_prob, choices = np.empty(len(weight)), np.zeros((2, *gamma.shape))
    _follow_orders(
        sequences.clicks.click, sequences.clicks.starts, weight, gamma, choices, log_prob
    )
    return Statistics(float(weight @ log_prob), {"choices": choices})


def _m_step(table: FactorTable, statistics: Statistics) -> FactorTable:
    observed, expected = statistics.totals["choices"]
    return table.m_step(observed, expected)


@kernel
def _follow_orders(
    click: Int32,
    starts: Int64,
    weight: Float64,
    gamma: Float64,
    choices: Float64,
    log_prob: Float64,
) -> None:
    """Set log P(order | set) [sequence]; add observed and expected choices."""
    for s in range(len(weight)):
        log_prob[s], last = 0.0, 0
        for k in range(starts[s], starts[s + 1] - 1):  # the last click of a set has no choice
            total = 0.0
            for u in range(k, starts[s + 1]):
                total += gamma[0, last, click[u] - 1]
            for u in range(k, starts[s + 1]):
                j = click[u] - 1
                choices[1, 0, last, j] += weight[s] * gamma[0, last, j] / total
            choices[0, 0, last, click[k] - 1] += weight[s]
            log_prob[s] += np.log(gamma[0, last, click[k] - 1] / total)
            last = click[k]
