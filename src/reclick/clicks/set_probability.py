"""Sums over click orders: probabilities of click sets, and of positions (marginals of a choice).

Both add up the probabilities of (set clicked so far, last click).
"""

from __future__ import annotations

import numpy as np

from reclick.clicks.step import (
    Clicks,
    StepTables,
    choice_rates,
    follow_clicks,
    next_click,
    repeat_factor,
)
from reclick.data.batch import Float64, Int32, Int64
from reclick.data.ragged import longest_run, positions_in_runs, read_only, run_of_elements
from reclick.errors import CannotAnswerError
from reclick.runtime.jit import kernel

MAX_PAGE_ADS = 12  # for exact marginals of a choice: 2^12 click sets
MAX_SET_CLICKS = 16  # for the exact probability of a click set: 2^16 subsets
SMALLEST_SCALE = (
    1e-18  # least divisor: orders may be impossible, and 16 divisions must not overflow
)


def log_set_probs(tables: StepTables, clicks: Clicks) -> Float64:
    """Log-probability that exactly these positions are clicked, in any order [page].

    The tables have one component.
    """
    counts = clicks.counts
    most = int(counts.max(initial=0))
    if most > MAX_SET_CLICKS:
        raise CannotAnswerError(
            f"the probability of a set of {most} clicks: exact up to {MAX_SET_CLICKS}. Leave such "
            "sessions out, or use log_prob, the probability of the clicks in their order, which "
            "has no limit."
        )
    path = follow_clicks(tables, clicks)
    rows = np.flatnonzero(counts > 1)
    if len(rows):
        family, theta, rho, stop, gamma, steps, row, starts, _ = tables
        _sum_orders(
            family[0], theta[0], rho[0], stop, gamma, steps, row[0], starts,
            read_only(clicks.click), read_only(clicks.starts), rows,
            np.maximum(path.chance, SMALLEST_SCALE), np.empty((1 << most) * (most + 1)),
            np.empty(most), np.ones(tables.longest), np.empty(tables.longest), path.log_prob,
        )  # fmt: skip
    return path.log_prob


def check_page_length(starts: Int64) -> int:
    """The ads on the longest page; raises if sums over all its click sets take too long."""
    longest = longest_run(starts)
    if longest > MAX_PAGE_ADS:
        raise CannotAnswerError(
            f"click probabilities of a page of {longest} ads: exact up to {MAX_PAGE_ADS}. Cut "
            f"the page to its first {MAX_PAGE_ADS} ads.",
            in_python=" Or count the clicks of sample(), which works on any page.",
        )
    return longest


def distinct_pages(
    starts: Int64, *values: Float64, table: Int64 | None = None
) -> tuple[Int64, Int64]:
    """The first of each group of equal pages, and the group of each page [page].

    Pages are equal if they have the same table and the same values of their impressions. In a log,
    few pages are shown often.
    """
    sizes, n_values = np.diff(starts), len(values)
    position, page = positions_in_runs(starts), run_of_elements(starts)
    rows = np.full((len(sizes), n_values * int(sizes.max(initial=0)) + 1), np.nan)
    rows[:, -1] = 0.0 if table is None else table
    for i, each in enumerate(values):
        rows[page, n_values * position + i] = each
    packed = rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0]
    _, first, group = np.unique(packed, return_index=True, return_inverse=True)
    return first, group


@kernel
def _sum_orders(
    family: Int64,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    steps: Float64 | None,
    row: Int64,
    starts: Int64,
    click: Int32,
    clicks: Int64,
    rows: Int64,
    scale: Float64,
    reach: Float64,
    onward: Float64,
    free: Float64,
    chance: Float64,
    out: Float64,
) -> None:
    """Fill out[rows] with the log-probability of each session's click set.

    reach[set, last] is P(the first clicks are this set, this one last); bit b of a set is the b-th
    click, and last = 0 is the start. P(click k + 1) is divided by scale[k], against underflow.
    """
    for s in rows:
        first, size = starts[s], starts[s + 1] - starts[s]
        begin, m = clicks[s], clicks[s + 1] - clicks[s]
        width = m + 1
        for cell in range((1 << m) * width):
            reach[cell] = 0.0
        reach[0] = 1.0
        total = 0.0
        for subset in range(1 << m):  # a set comes after its subsets
            k = 0
            for b in range(m):
                free[click[begin + b] - 1] = 1.0 - ((subset >> b) & 1)
                k += (subset >> b) & 1
                onward[b] = 0.0
            for b in range(width):
                arrive = reach[subset * width + b]
                if arrive <= 0.0:
                    continue
                last = click[begin + b - 1] if b > 0 else 0
                end = next_click(
                    family[s], theta, rho, first, size, stop, gamma, steps, row[s],
                    k, last, free, chance, 0,
                )  # fmt: skip
                if k == m:
                    total += arrive * end
                    continue
                for c in range(m):
                    onward[c] += chance[click[begin + c] - 1] * arrive / scale[begin + k]
            for b in range(m):
                if not (subset >> b) & 1:
                    reach[(subset | (1 << b)) * width + b + 1] = onward[b]
        scales = 0.0
        for b in range(m):
            free[click[begin + b] - 1] = 1.0
            scales += np.log(scale[begin + b])
        out[s] = np.log(total) + scales


@kernel
def choice_marginals(  # noqa: PLR0912, one loop over all sets
    variant: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    table: Int64,
    starts: Int64,
    reach: Float64,
    free: Float64,
    onward: Float64,
    steps: Float64 | None,
    out: Float64,
) -> None:
    """Fill out with P(position is clicked) = Σ over sets of P(the set was clicked, this one last).

    reach[set, last] is as in `_sum_orders`, bit j of a set being position j. `steps` is None, or
    that of a choice with redundancy.
    """
    attractiveness = np.empty(len(free))
    for s in range(len(table)):
        first, n = starts[s], starts[s + 1] - starts[s]
        eta, transition = stop[table[s]], gamma[table[s]]
        width = n + 1
        for cell in range((1 << n) * width):
            reach[cell] = 0.0
        reach[0] = 1.0
        for j in range(n):
            out[first + j] = 0.0
        for subset in range((1 << n) - 1):  # a set comes after its subsets
            k = 0
            for j in range(n):
                free[j] = 1.0 - ((subset >> j) & 1)
                k += (subset >> j) & 1
                onward[j] = 0.0
            for j in range(n):
                attractiveness[j] = theta[first + j]
                if steps is not None:
                    attractiveness[j] *= repeat_factor(steps, table[s], n, j, free)
            for last in range(width):
                arrive = reach[subset * width + last]
                if arrive <= 0.0:
                    continue
                weight = examined = 0.0
                for j in range(n):
                    move = transition[last, j] * free[j]
                    weight += attractiveness[j] * move
                    examined += move
                satisfied = rho[first + last - 1] if last > 0 else 0.0
                scale, _ = choice_rates(variant, weight, examined, satisfied, eta[k])
                scale *= arrive
                for j in range(n):
                    onward[j] += scale * transition[last, j]
            for j in range(n):
                if not (subset >> j) & 1:
                    chance = attractiveness[j] * onward[j]
                    reach[(subset | (1 << j)) * width + j + 1] = chance
                    out[first + j] += chance
