"""The E-step of LuceClick: observed and expected choices of every weight, given the sessions.

A session ends by a choice of the outside option, or by satisfaction. The E-step infers which of the
two, and the component of the user. The expected choices of a weight, for the MM step of its table,
are the sum of its probabilities over all choices. For the variance of ρ see reclick.fitting.rates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from reclick.data.grouped_sessions import BlockRows, QueryBlock
from reclick.data.outcomes import N_OUTCOMES, Int8
from reclick.data.pair_index import CellIndex
from reclick.data.ragged import Float64, Int32, Int64, positions_in_runs, read_only
from reclick.fitting.em import Statistics
from reclick.fitting.mixture import to_posterior
from reclick.models.luce.parameters import LuceParameters
from reclick.runtime.jit import kernel

OUTSIDE, ADS, AMBIGUITY = range(3)  # the rows of the information on pairs
SMALL_PROBABILITY = 1e-200  # smaller products become logarithms, so as not to underflow
SKIP_INFORMATION = np.zeros((3, 0))
NO_OVERLAP: Float64 = read_only(np.zeros((0, 0, 0)))


class LuceBlock(NamedTuple):
    """The sessions of a run of queries, with the cell of each impression."""

    sessions: QueryBlock
    query: Int32  # [session] numbered from the first query of the block
    cell: Int32  # [impression] numbered from the first cell of the block
    cells: slice  # of the block, among the cells of the log
    outcome: Int8  # [session] of the last click; empty if the log has no outcomes
    redundancy: float = 0.0  # κ, constant during a fit
    overlap: Float64 = NO_OVERLAP  # [session, clicked ad, other ad], empty if κ is 0

    @property
    def rows(self) -> BlockRows:
        """The ranges of its queries, pairs and cells among those of the log."""
        return self.sessions.rows._replace(cells=self.cells)


def make_block(cells: CellIndex, block: QueryBlock) -> LuceBlock:
    """Add the cells of impressions to a block of sessions."""
    query = read_only(np.ascontiguousarray(block.query))
    outcome = read_only(np.zeros(0, np.int8) if block.outcome is None else block.outcome)
    block_cells, rows = cells.of_pairs(block.pairs)
    cell = block_cells.find(block.pair + block.first_pair, positions_in_runs(block.page))
    return LuceBlock(block, query, read_only(cell.astype(np.int32)), rows, outcome)


def e_step(parameters: LuceParameters, block: LuceBlock) -> Statistics:
    """Return the expected statistics of a block of sessions."""
    return _run_pass(parameters, block, SKIP_INFORMATION)[0]


def score(parameters: LuceParameters, block: LuceBlock) -> Float64:
    """Return the log-likelihood of each new session [session]; ρ is its mean, without variance."""
    certain = replace(parameters, satisfaction=parameters.satisfaction.without_variance())
    return _run_pass(certain, block, SKIP_INFORMATION)[1]


def pair_information(parameters: LuceParameters, block: LuceBlock) -> Float64:
    """Return the information of a block on its pairs [OUTSIDE, ADS and AMBIGUITY, pair].

    In this order: the information on log θ from comparisons with the outside option, and with other
    ads; the variance of the satisfied clicks: information on ρ lost, as they are not observed.
    """
    information = np.zeros((3, block.sessions.n_pairs))
    _run_pass(parameters, block, information)
    return information


def _run_pass(
    parameters: LuceParameters, block: LuceBlock, information: Float64
) -> tuple[Statistics, Float64]:
    """Return the statistics and the log-likelihoods; add to `information` unless it is empty."""
    sessions, queries, rho = block.sessions, block.sessions.queries, parameters.satisfaction
    appeal = parameters.appeal.weights(block.cells.start, block.cells.stop)
    gamma, omega = parameters.transition.weights(), parameters.outside.weights()
    f = parameters.query_outside.weights(queries.start, queries.stop)
    mixing = np.ascontiguousarray(parameters.mixing.weights[queries])
    appeals, transitions, ends, of_query = (
        np.zeros((2, *weights.shape)) for weights in (appeal, gamma, omega, f)
    )
    members, outcomes = np.zeros(mixing.shape), np.zeros((2, N_OUTCOMES))
    satisfied = np.zeros((2, sessions.n_pairs))  # satisfied clicks; clicks with an ad remaining
    log_likelihood = np.empty(len(sessions))
    _follow_sessions(
        sessions.pair, sessions.page, sessions.click, sessions.clicks, sessions.weight,
        block.query, block.cell, block.outcome, block.redundancy, block.overlap,
        parameters.outcomes.likelihoods,
        appeal, rho.centre(sessions.pairs), rho.variance[sessions.pairs], gamma, omega, f, mixing,
        appeals, transitions, ends, of_query, members, satisfied, outcomes, log_likelihood,
        information,
    )  # fmt: skip
    total = float(np.sum(sessions.weight * log_likelihood))  # not BLAS, whose threads would wait
    statistics = parameters.collect(
        total, block.rows, appeal=appeals, transition=transitions, outside=ends,
        query_outside=of_query, mixing=[members], satisfaction=satisfied, outcomes=[outcomes],
    )  # fmt: skip
    return statistics, log_likelihood


@kernel
def _follow_sessions(  # noqa: PLR0912, PLR0915, one loop keeps a session in the CPU cache
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64,
    query: Int32, cell: Int32, outcome: Int8, kappa: float, overlap: Float64, likelihood: Float64,
    appeal: Float64, centre: Float64, variance: Float64, gamma: Float64, omega: Float64,
    query_outside: Float64, mixing: Float64,
    appeals: Float64, transitions: Float64, ends: Float64, of_query: Float64, members: Float64,
    satisfied: Float64, outcomes: Float64, log_likelihood: Float64, information: Float64,
) -> None:  # fmt: skip
    """Add the observed and expected choices [2, …] of all sessions; set their log-likelihoods.

    `satisfied` gets (satisfied, trials), `outcomes` gets (unsatisfied, satisfied). `information`
    [3, pair] is added unless it is empty.
    """
    components, longest = gamma.shape[0], gamma.shape[2]
    choice = np.empty((components, longest + 1, longest + 1))  # P(next); n is the outside option
    reason = np.zeros((components, longest + 1))  # P(satisfied by the last click | an end here)
    end_choice = np.ones(components)  # P(the end was chosen), with the variance of ρ
    posterior, free_appeal, novelty = np.empty(components), np.empty(longest), np.empty(longest)
    pair_choice = np.zeros(information.shape[1])  # P(next) of a pair, over its positions
    for s in range(len(weight)):
        first, n = page[s], page[s + 1] - page[s]
        begin, count = clicks[s], clicks[s + 1] - clicks[s]
        # If all n ads are clicked, there is no end to explain: the last click is no evidence on ρ.
        steps, q = min(count + 1, n), query[s]
        # The likelihood of the outcome of the last click, and its ratio for satisfaction.
        unsatisfied, ratio = 1.0, 1.0
        if len(outcome) > 0 and steps > count:
            unsatisfied = likelihood[outcome[s], 0]
            ratio = likelihood[outcome[s], 1] / unsatisfied
        for t in range(components):
            for j in range(n):
                free_appeal[j], novelty[j] = appeal[cell[first + j]], 1.0
            product, logs, last = 1.0, np.log(mixing[q, t]), 0
            for k in range(steps):
                z = choice[t, k, n] = omega[t, k] * query_outside[q]
                for j in range(n):
                    choice[t, k, j] = free_appeal[j] * gamma[t, last, j]
                    if kappa > 0.0 and novelty[j] < 1.0:
                        choice[t, k, j] *= np.exp(-kappa * (1.0 - novelty[j]))
                    z += choice[t, k, j]
                for j in range(n + 1):
                    choice[t, k, j] /= z
                c, half = 0.0, 0.0  # half the variance of the logit of ρ
                if last > 0:
                    c, half = centre[pair[first + last - 1]], variance[pair[first + last - 1]] / 2.0
                satisfied_part = c if k < count else ratio * c
                end_prob = satisfied_part + (1.0 - c) * choice[t, k, n]
                r = reason[t, k] = satisfied_part / end_prob if end_prob > 0.0 else 0.0
                if half > 0.0:
                    product *= np.exp(-half * c * (1.0 - c))
                if k < count:
                    last = click[begin + k]
                    free_appeal[last - 1] = 0.0
                    if kappa > 0.0:
                        for j in range(n):
                            novelty[j] *= 1.0 - overlap[s, last - 1, j]
                    product *= (1.0 - c) * choice[t, k, last - 1]
                else:
                    end_choice[t] = 1.0 - r - half * r * (1.0 - r) * (1.0 - 2.0 * r)
                    product *= unsatisfied * end_prob
                    if half > 0.0:
                        product *= np.exp(half * r * (1.0 - r))
                if product < SMALL_PROBABILITY:
                    logs += np.log(max(product, 1e-300))
                    product = 1.0
            posterior[t] = logs + np.log(product)
        log_likelihood[s] = to_posterior(posterior)
        for t in range(components):
            share, last = weight[s] * posterior[t], 0
            members[q, t] += share
            for k in range(steps):
                r, end = reason[t, k], choice[t, k, n]
                tries = share if k < count else share * end_choice[t]
                for j in range(n):
                    v = tries * choice[t, k, j]
                    appeals[1, cell[first + j]] += v
                    transitions[1, t, last, j] += v
                ends[1, t, k] += tries * end
                of_query[1, q] += tries * end
                if len(pair_choice) > 0:
                    # The information of a choice on log w_i and log w_j of two ads is
                    # (1 − c) (δ_ij p_i − p_i p_j (1 + p_end r)), as an end may be satisfaction,
                    # of probability c. `tries` estimates 1 − c.
                    # Off the diagonal it is from comparisons of ads. The rest of a row is from
                    # the comparison with the outside option.
                    hidden = 1.0 + end * r
                    for j in range(n):  # an ad may be on the page twice
                        pair_choice[pair[first + j]] += choice[t, k, j]
                    for j in range(n):
                        at, v = pair[first + j], tries * choice[t, k, j]
                        information[OUTSIDE, at] += v * max(1.0 - hidden * (1.0 - end), 0.0)
                        information[ADS, at] += v * hidden * max(1.0 - end - pair_choice[at], 0.0)
                    for j in range(n):
                        pair_choice[pair[first + j]] = 0.0
                    if k == count and last > 0:
                        information[AMBIGUITY, pair[first + last - 1]] += share * r * (1.0 - r)
                if last > 0:
                    satisfied[1, pair[first + last - 1]] += share
                if k < count:
                    j = click[begin + k] - 1
                    appeals[0, cell[first + j]] += share
                    transitions[0, t, last, j] += share
                    last = j + 1
                else:
                    ends[0, t, k] += tries
                    of_query[0, q] += tries
                    if last > 0:
                        satisfied[0, pair[first + last - 1]] += share - tries
                        if len(outcome) > 0:
                            outcomes[0, outcome[s]] += tries
                            outcomes[1, outcome[s]] += share - tries
