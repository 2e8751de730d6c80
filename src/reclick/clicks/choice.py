"""The readings of a page's parameters: what "go" and "outside" are in P(next click is j) = go · w_j / (outside + Σ w).

Two more codes are for models without such a product. CHAIN: gamma[l, j] itself is P(next click is j) after one at l, for j below l only, so
clicks go down the page (theta = 1, rho = 0); marginals need no sets then, and pages may have any length. WALK: the eye steps forward or
back from position to position until it clicks or stops.
"""

from __future__ import annotations

from reclick.runtime.jit import kernel

READINGS = {"leftover": 0, "examination": 1, "normalised": 2, "luce": 3}
LEFTOVER, EXAMINATION, NORMALISED, LUCE, CHAIN, WALK = (
    0,
    1,
    2,
    3,
    4,
    5,
)  # plain numbers, for the kernels


@kernel
def share_and_end(
    reading: int, weight: float, sight: float, satisfied: float, stop: float
) -> tuple[float, float]:
    """Say what a reading means: (share, P(end)), where P(j) = share · w_j, weight = Σ θγ and sight = Σ γ over free positions."""
    if weight < 1e-300:  # all clicked, 0/0, or too little to divide by: nothing left to click
        return 0.0, 1.0
    tired = 0.0 if reading == LUCE else stop
    go = (1.0 - satisfied) * (1.0 - tired)
    if reading == LEFTOVER:
        outside = max(0.0, 1.0 - weight)
    elif reading == EXAMINATION:
        outside = max(0.0, sight - weight)
    elif reading == LUCE:
        outside = stop
    else:
        outside = 0.0
    share = go / (outside + weight)
    return share, min(
        1.0, satisfied + (1.0 - satisfied) * tired + share * outside
    )  # a sum, not 1 − Σ: exact when tiny
