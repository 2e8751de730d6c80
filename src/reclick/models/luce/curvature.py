"""What sessions tell of the ads: the information on log θ of each pair, all the ads of a query being unknown together, and on the logit of ρ.

Whether an ad is strong or its neighbours weak is told by the same clicks, and so is whether users of the query stop readily. So the information on
all θ of a query and on its f is a matrix, and what is known of one of them is 1 / its variance, which the inverse has. γ, ω, ρ and the kinds of users
are taken as known, and of ρ likewise θ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.batch import Float64, Int32, Int64
from reclick.compiled import compiled

TOGETHER = 200  # ads of a query, those shown most, that are unknown together; of others it is told as if their neighbours were known
NOTHING = 1e-12  # information below this is none


class Curvature(NamedTuple):
    """Room for what the sessions of some queries tell: a matrix of each query, one after the other, of each kind if tastes differ."""

    row: Int64  # [pair] in the matrix of its query; −1 for those that are not among the most shown
    size: Int64  # [query] rows of its matrix; the last is of f, if each query has its own
    start: Int64  # [query] where its first matrix starts
    matrix: Float64  # all of them, flat
    told: Float64  # [pair, 0] on the logit of ρ, [pair, 1 …] on log θ, of each kind if tastes differ


NOBODY = Curvature(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 2)))  # where it is not asked for


def rows_of_pairs(pair_query: Int32, impressions: Float64, queries: int) -> tuple[Int64, Int64]:
    """The row of each pair in the matrix of its query, by how often it was shown, and how many rows each query has."""
    order = np.lexsort((-impressions, pair_query))
    many = np.bincount(pair_query, minlength=queries)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(many) - many, many)
    return np.where(rank < TOGETHER, rank, -1), np.minimum(many, TOGETHER)


@compiled
def add_choice(
    at: int, size: int, matrix: Float64, row: Int64, told: Float64, n: int, chance: Float64, content: float, act: float, own: bool
) -> None:  # fmt: skip
    """Add the information of one choice among n ads, of these rows, on log θ of each and on log f, to the matrix that starts at `at`.

    With v the chances, the end's among them, and u its unit vector: diag(v) − v vᵀ of a choice that is seen. At an end it is not seen whether the
    user chose it or was satisfied, which takes P(satisfied | end) v_end (u − v)(u − v)ᵀ of it. told [ad] gets that of ads without a row.
    """
    end = chance[-1]
    over = content + (1.0 - content) * end
    unseen = end * content / over if over > 0.0 else 0.0
    f = at + (size - 1) * size
    for i in range(n):
        p, here = chance[i], row[i]
        if here < 0:
            told[i] += act * p * (1.0 - (1.0 + unseen) * p)
            continue
        if p == 0.0:
            continue
        matrix[at + here * size + here] += act * p
        for j in range(n):
            if row[j] >= 0:
                matrix[at + here * size + row[j]] -= act * (1.0 + unseen) * p * chance[j]
        if own:
            matrix[f + here] -= act * p * (end - unseen * (1.0 - end))
    if own:
        matrix[f + size - 1] += act * (1.0 - end) * (end - unseen * (1.0 - end))


@compiled
def of_satisfaction(rho: float, end: float, went_on: bool) -> float:
    """Minus the second derivative by the logit of ρ of log P(what followed the click): going on, or ending, satisfied or not."""
    if went_on:
        return rho * (1.0 - rho)
    slope = (1.0 - end) * rho * (1.0 - rho) / (end + (1.0 - end) * rho)
    return slope * (slope - (1.0 - 2.0 * rho))


@compiled
def take_inverses(
    row: Int64, size: Int64, start: Int64, matrix: Float64, told: Float64, query: Int64, before: Float64, query_before: Float64, own: bool
) -> None:  # fmt: skip
    """Add what the sessions tell of each pair to told: 1 / its variance, less what is known `before` [pair, kind or 1] and of f `query_before`.

    query [pair] is the pair's.
    """
    first = 0
    while first < len(row):
        q, last = query[first], first
        while last < len(row) and query[last] == q:
            last += 1
        many = size[q]
        for t in range(before.shape[1]):
            block = matrix[start[q] + t * many * many : start[q] + (t + 1) * many * many].reshape(many, many)
            for i in range(first, last):
                if row[i] >= 0:
                    block[row[i], row[i]] += before[i, t]
            if own:
                block[many - 1, many - 1] += query_before[q]
            variance = variances(block)
            for i in range(first, last):
                if row[i] >= 0:
                    told[i, 1 + t] += max(1.0 / variance[row[i]] - before[i, t], 0.0)
        first = last


@compiled
def variances(matrix: Float64) -> Float64:
    """The diagonal of the inverse of a positive definite matrix, of which the lower triangle is given, and is lost (Cholesky)."""
    size = len(matrix)
    for j in range(size):
        for i in range(j, size):
            left = matrix[i, j]
            for k in range(j):
                left -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = np.sqrt(max(left, NOTHING)) if i == j else left / matrix[j, j]
    found, column = np.empty(size), np.empty(size)
    for i in range(size):  # column i of the inverse of the triangle
        column[i] = 1.0 / matrix[i, i]
        found[i] = column[i] ** 2
        for j in range(i + 1, size):
            left = 0.0
            for k in range(i, j):
                left -= matrix[j, k] * column[k]
            column[j] = left / matrix[j, j]
            found[i] += column[j] ** 2
    return found
