"""Expectation-maximisation, one loop for all models that need it.

`expect(parameters, block)` gives the statistics of a block of sessions under the parameters: a dict of arrays that add up over blocks, with
"log_likelihood" among them. `maximise(statistics)` gives the next parameters. The loop does not know what a block is, nor what the statistics mean.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from reclick.data.batch import Float64
from reclick.models.settings import check_range, check_whole
from reclick.runtime.progress import tell

Parameters = TypeVar("Parameters")
Block = TypeVar("Block")
Statistics = dict[str, Float64 | float]

logger = logging.getLogger("reclick")
LOSS = 1e-9  # relative loss of the objective that rounding can explain


@dataclass(frozen=True, slots=True)
class Fit(Generic[Parameters]):
    """Where the loop stopped, and the truth about why."""

    parameters: Parameters
    statistics: Statistics  # under these parameters
    objective: tuple[float, ...]  # log-likelihood plus log-prior at every iteration
    converged: bool
    message: str


def maximise_objective(
    start: Parameters,
    blocks: Sequence[Block],
    expect: Callable[[Parameters, Block], Statistics],
    maximise: Callable[[Statistics], Parameters],
    *,
    log_prior: Callable[[Parameters], float],
    sessions: float,
    max_iterations: int,
    tolerance: float,
) -> Fit[Parameters]:
    """Iterate until the objective gains less than `tolerance` a session, or the iterations run out, which it then says.

    A tolerance of 0 or less asks for all the iterations.
    """
    parameters, objective = start, [float("-inf")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for iteration in range(1, max_iterations + 1):
            tell("iterations", iteration)
            statistics = _summed(pool.map(partial(expect, parameters), blocks))
            objective.append(float(statistics["log_likelihood"]) + log_prior(parameters))
            if not math.isfinite(objective[-1]):
                raise ArithmeticError(
                    f"the objective is {objective[-1]} at iteration {iteration}: weights too large to add, or a bug in the model"
                )
            gain = (objective[-1] - objective[-2]) / max(sessions, 1.0)
            if gain < -LOSS * (1 + abs(objective[-1])) / max(sessions, 1.0):
                raise ArithmeticError(
                    f"the objective fell by {-gain:.3g} a session at iteration {iteration}: this is a bug in the model"
                )
            if gain < tolerance and tolerance > 0:
                return Fit(
                    parameters,
                    statistics,
                    tuple(objective[1:]),
                    True,
                    f"converged after {iteration} iterations, gain {gain:.1e} < {tolerance:g}",
                )
            parameters = maximise(statistics)
        statistics = _summed(pool.map(partial(expect, parameters), blocks))
    compared = (
        f"> {tolerance:g}"
        if tolerance > 0
        else f"with tolerance {tolerance:g}, which asks for all of them"
    )
    message = (
        f"stopped after {max_iterations} iterations, gain {gain:.1e} {compared}: not converged"
    )
    logger.warning("%s", message)
    return Fit(parameters, statistics, tuple(objective[1:]), False, message)


def check_loop(max_iterations: object, tolerance: object) -> None:
    """Refuse settings of the loop that make no sense; a tolerance may be negative."""
    check_whole("max_iterations", max_iterations, 1)
    check_range("tolerance", tolerance, -sys.float_info.max, sys.float_info.max)


def _summed(parts: Any) -> Statistics:
    """The statistics of all blocks together."""
    total: Statistics = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
