"""How readily the users of a query stop, f, is not known for sure: answers are means over what it may be.

Of a query that was asked a few times its sessions tell little of f, and of one never asked only the prior does. If f was taken as known, answers
would be too sure: of a query whose users may stop half as readily, or twice, fewer clicks would be expected than come. So log f is taken to be
normal, with the variance that sessions and prior leave where the θ of the query are known, and what is answered is the mean over two points, one
deviation to each side (Gauss and Hermite's rule, right for cubics). A user then is of a kind and of a side.
"""

from __future__ import annotations

import numpy as np

from reclick.data.batch import Float64, Int32

SIDES = np.array([-1.0, 1.0])  # in deviations of log f
LOOSEST = 1.0  # a deviation is at most


def unsure_before(strength: float) -> float:
    """The deviation of log f by its prior alone."""
    return float(min(1 / np.sqrt(max(strength, 1e-12)), LOOSEST))


def unsure_of(told: Float64, pair_query: Int32, before: Float64) -> Float64:
    """The deviation of log f [query], of which pairs' comparisons with the end tell [pair], and the prior `before` [query]."""
    known = np.bincount(pair_query, np.maximum(told, 0.0), len(before)) + before
    return np.minimum(1 / np.sqrt(np.maximum(known, 1e-12)), LOOSEST)


def log_mean(logs: list[Float64]) -> Float64:
    """Logarithm of the mean over the sides, from the logarithm on each of them."""
    return np.asarray(np.logaddexp.reduce(logs) - np.log(len(logs)))
