"""What is known of the ads of a query, all of which are unknown together.

A choice compares ads with the end, and with each other. Whether an ad is strong or its neighbours weak is told by the same clicks, and so is whether
users of the query stop readily. What one choice with chances v tells of log θ and log f is the matrix diag(v) − v vᵀ, whose rows add up to 0. So it
is a sum of comparisons of two, and of each ad two figures are kept: what its comparisons with the end tell, and those with other ads. Which others
these were is taken to be as they were compared themselves.
"""

from __future__ import annotations

import numpy as np

from reclick.data.batch import Float64, Int32
from reclick.runtime.jit import kernel

ROUNDS = 30  # to find out how strongly ads were compared with each other
NOTHING = 1e-12  # information below this is none


@kernel
def together(
    end: Float64, ads: Float64, before: Float64, query: Int32, query_before: Float64, own: bool
) -> Float64:
    """1 / the variance of log θ [pair], from its comparisons with the end and with ads, and what is known `before`, of log f `query_before` [query].

    query [pair] is in order. If the queries do not have an f of their own it is known.
    """
    known = np.empty(len(end))
    first = 0
    while first < len(end):
        last = first
        while last < len(end) and query[last] == query[first]:
            last += 1
        here = slice(first, last)
        outside = max(query_before[query[first]], NOTHING) if own else np.inf
        known[here] = _of_query(
            np.maximum(end[here], 0.0), np.maximum(ads[here], 0.0), before[here], outside
        )
        first = last
    return known


@kernel
def _of_query(end: Float64, ads: Float64, before: Float64, outside: float) -> Float64:
    """The same of one query, of whose log f `outside` is known.

    The comparison of ads i and j is worth c_i c_j. Then the information on all log θ, f eliminated, is diag(d) − c cᵀ − end endᵀ / (Σ end + outside),
    with d = end + c Σc + before; and the inverse of a diagonal less two products is in closed form (Woodbury).
    """
    c = compared(ads)
    total, ends = c.sum(), end.sum()
    d = np.maximum(end + c * total + before, NOTHING)
    e = end / np.sqrt(ends + outside)
    one = (
        1.0 if total == 0.0 else np.sum(c / total * (end + before) / d)
    )  # 1 − Σ c²/d, without cancellation
    two = (
        1.0
        if np.isinf(outside)
        else (outside + np.sum(end * (c * total + before) / d)) / (ends + outside)
    )  # 1 − Σ e²/d
    both = np.sum(c * e / d)
    spare = max(one * two - both * both, NOTHING * NOTHING)
    known: Float64 = d / (1.0 + (two * c * c + 2.0 * both * c * e + one * e * e) / (spare * d))
    return known


@kernel
def compared(ads: Float64) -> Float64:
    """The values c with c_i Σ_{j ≠ i} c_j = ads_i, as nearly as they can be found."""
    total = ads.sum()
    if total <= 0.0:
        return np.zeros(len(ads))
    c: Float64 = ads / np.sqrt(total)
    for _ in range(ROUNDS):
        others = c.sum() - c
        c = np.sqrt(c * ads / np.maximum(others, NOTHING))
    return c
