"""Checks of counts: whether a log with these totals is possible, and whether they add exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reclick.data.ragged import Float64, Int32
from reclick.errors import LogError
from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.counts import Counts

DECAY_TRACE = 1e-6  # residue of a query that decay may leave in one table only
COUNT_ROUNDING = 1e-9  # the largest rounding error in a difference of decayed counts
MAX_TOTAL = 2.0**53  # larger whole numbers do not add exactly


def is_possible(counts: Counts) -> bool:
    """Whether a log with these counts is possible.

    No count is negative, no pair has more clicks than impressions, and every query has ads and
    sessions. After decay, rounding may leave a residue of a query's impressions without one of
    its sessions, or the reverse; a residue up to `DECAY_TRACE` is allowed.
    """
    outcomes = counts.outcomes
    outcome_tables = () if outcomes is None else (outcomes.last, outcomes.earlier)
    if not all(
        part.min(initial=0) >= -COUNT_ROUNDING for part in (counts.lengths, *outcome_tables)
    ):
        return False
    query_impressions, query_sessions = np.zeros((2, len(counts.queries)))
    totals = counts.impressions, counts.clicks, counts.last_clicks
    possible = _are_possible_totals(
        counts.pair_query,
        *totals,
        counts.visit_query,
        counts.sessions,
        query_impressions,
        query_sessions,
    )
    return bool(possible)


@kernel
def _are_possible_totals(
    pair_query: Int32,
    impressions: Float64,
    clicks: Float64,
    last_clicks: Float64,
    visit_query: Int32,
    sessions: Float64,
    query_impressions: Float64,
    query_sessions: Float64,
) -> Any:
    """Whether a log with these totals is possible.

    Adds up the impressions and sessions of each query in the last two arguments, which are 0.
    """
    possible = True
    for i in range(len(pair_query)):
        possible &= impressions[i] - clicks[i] >= -COUNT_ROUNDING
        possible &= clicks[i] - last_clicks[i] >= -COUNT_ROUNDING
        possible &= last_clicks[i] >= -COUNT_ROUNDING
        query_impressions[pair_query[i]] += impressions[i]
    for i in range(len(visit_query)):
        possible &= sessions[i] >= -COUNT_ROUNDING
        query_sessions[visit_query[i]] += sessions[i]
    for query in range(len(query_impressions)):
        both = (query_impressions[query] > 0) & (query_sessions[query] > 0)
        possible &= both | (query_impressions[query] + query_sessions[query] <= DECAY_TRACE)
    return possible


def require_usable_weights(counts: Counts, name: str) -> Counts:
    """Return the counts; raise if all weights are 0 or too large to add exactly."""
    if counts.total <= 0:
        raise LogError(
            f"{name}: every session has weight 0, so there is nothing to learn from. "
            "Look at the weight column."
        )
    return require_exact_totals(counts, name)


def require_exact_totals(counts: Counts, name: str) -> Counts:
    """Return the counts; raise if a total exceeds 2^53, up to which whole numbers add exactly."""
    largest = max(counts.total, float(counts.impressions.sum()))
    if largest > MAX_TOTAL:
        raise LogError(
            f"{name}: weights add up to {largest:.4g} impressions, and counts are exact only up to "
            f"2^53 ({MAX_TOTAL:.4g}). Look at the weight column: it may be a time. If it is right, "
            "divide all weights by the same number."
        )
    return counts
