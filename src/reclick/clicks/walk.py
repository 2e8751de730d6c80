"""An eye that walks the page: from position to position, a step forward or back, until it clicks or stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64


@kernel
def walk_visits(
    theta: Float64, forward: float, back: float, last: int, free: Float64, visits: Float64
) -> None:
    """Fill visits[i] with the expected looks at position i before the next click, for an eye that steps forward or back, or stops.

    Looks come from the start (position 1, or a step from the last click) and from looks next door that led to no click:
    v_i = s_i + v_{i−1} (1 − θ_{i−1}) α + v_{i+1} (1 − θ_{i+1}) γ, θ being 0 where clicked already: a band of three, solved there and back.
    """
    n = len(theta)
    upper = np.empty(n)
    for i in range(n):
        start = (
            1.0
            if last == 0 and i == 0
            else forward
            if last > 0 and i == last
            else back
            if last > 0 and i == last - 2
            else 0.0
        )
        from_left = (1.0 - theta[i - 1] * free[i - 1]) * forward if i > 0 else 0.0
        from_right = (1.0 - theta[i + 1] * free[i + 1]) * back if i < n - 1 else 0.0
        pivot = 1.0 - from_left * upper[i - 1] if i > 0 else 1.0
        upper[i] = from_right / pivot
        visits[i] = (start + from_left * visits[i - 1]) / pivot if i > 0 else start
    for i in range(n - 2, -1, -1):
        visits[i] += upper[i] * visits[i + 1]


@kernel
def walk_step(
    theta: Float64, forward: float, back: float, last: int, free: Float64, out: Float64
) -> float:
    """Fill out[j] with P(next click is j) = looks at j · θ_j, and return P(end): the steps that stop, or leave the page at either side."""
    n = len(theta)
    walk_visits(theta, forward, back, last, free, out)
    stops = 1.0 - forward - back
    end = (
        0.0 if last == 0 else stops + (forward if last == n else 0.0) + (back if last == 1 else 0.0)
    )
    for i in range(n):
        leave = stops + (forward if i == n - 1 else 0.0) + (back if i == 0 else 0.0)
        end += out[i] * (1.0 - theta[i] * free[i]) * leave
        out[i] *= theta[i] * free[i]
    return end


@kernel
def walk_marginals(theta: Float64, forward: float, back: float, out: Float64) -> None:
    """Fill out with P(position is ever clicked) = reach θ / (1 − (1 − θ) return): the walk does not heed the clicks, each look may click anew."""
    n = len(theta)
    rise = 0.0  # P(from here the eye comes to the position above)
    for i in range(n - 1, 0, -1):
        rise = back / (1.0 - forward * rise)
        out[i - 1] = (
            forward * rise
        )  # a return by way of the ads below; there is none below the last
    out[n - 1] = 0.0
    reach, fall = 1.0, 0.0  # P(the eye comes here), P(it comes here from the position above)
    for i in range(n):
        again = out[i] + back * fall
        out[i] = reach * theta[i] / (1.0 - (1.0 - theta[i]) * again)
        fall = forward / (1.0 - back * fall)
        reach *= fall
