"""The loop that fits LuceClick: steps in closed form, and leaps ahead that are not taken where the objective would fall."""

from __future__ import annotations

import logging
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from reclick.fitting.em import LOSS
from reclick.models.luce.m_step import leapt, maximise
from reclick.models.luce.objective import Problem
from reclick.models.luce.parameters import Found, Parameters
from reclick.runtime.progress import tell

logger = logging.getLogger("reclick")
AT_FIRST, FAR = 4.0, 64.0  # the longest leap, in steps, at first and ever


@dataclass(frozen=True, slots=True)
class Fit:
    """Where the climb stopped, and the truth about why."""

    parameters: Parameters
    found: Found  # under these parameters
    objective: tuple[float, ...]
    converged: bool
    message: str
    problem: Problem


def climb(
    problem: Problem,
    start: Parameters,
    *,
    max_iterations: int,
    tolerance: float,
    quiet: bool = False,
) -> Fit:
    """Step until a step gains less than `tolerance` a session, or the iterations run out, which it then says.

    After every second step a leap to where the two seem to lead (SQUAREM); where the objective would be lower there, the leap is not taken.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        way = _Way(problem, pool, start)
        while len(way.objective) < max_iterations:
            stepped = way.go()
            if not quiet:
                tell("iterations", len(way.objective))
            if stepped and tolerance > 0 and way.gain < tolerance:
                return way.end(
                    True,
                    f"converged after {len(way.objective)} iterations, gain {way.gain:.1e} < {tolerance:g}",
                )
    compared = (
        f"> {tolerance:g}"
        if tolerance > 0
        else f"with tolerance {tolerance:g}, which asks for all of them"
    )
    message = f"stopped after {len(way.objective)} iterations, gain {way.gain:.1e} {compared}: not converged"
    if not quiet:
        logger.warning("%s", message)
    return way.end(False, message)


class _Way:
    """The way up so far."""

    def __init__(self, problem: Problem, pool: ThreadPoolExecutor, start: Parameters) -> None:
        self.problem, self.pool = problem, pool
        self.objective: list[float] = []
        self.trail = [start]  # the last points that plain steps have led through
        self.found, self.value = self._look(start)
        self.objective.append(self.value)
        self.longest, self.gain = AT_FIRST, math.inf

    def go(self) -> bool:
        """Go a step, or after two of them a leap; whether it was a step."""
        now = self.trail[-1]
        then = maximise(self.problem, now, self.found)
        if len(self.trail) == 2 and self._leap(then):
            return False
        found, value = self._look(then)
        if value < self.value - self._rounding(
            value
        ):  # ρ and how loose it is were moved at once; a step of the others alone cannot lead down
            then = then._replace(loose=now.loose)
            found, value = self._look(then)
        self._arrive([*self.trail, then], found, value)
        return True

    def _leap(self, then: Parameters) -> bool:
        """Leap, unless it would lead down: then shorter leaps for now, and a new trail."""
        first, second = self.trail
        ahead, far = leapt(self.problem, first, second, then, self.longest)
        found, value = self._look(ahead)
        if value < self.value:
            self.longest, self.trail = max(2.0, self.longest / 2), []
            return False
        self.longest = min(FAR, self.longest * 2) if far == self.longest else self.longest
        self._arrive([ahead], found, value)
        return True

    def _look(self, now: Parameters) -> tuple[Found, float]:
        """What the sessions say there, and the objective."""
        found = self.problem.passes.expect(now, self.pool)
        value = found.log_likelihood + self.problem.log_prior(now)
        if not math.isfinite(value):
            raise ArithmeticError(
                f"the objective is {value} at iteration {len(self.objective)}: weights too large to add, or a bug in the model"
            )
        return found, value

    def _arrive(self, trail: list[Parameters], found: Found, value: float) -> None:
        sessions = max(self.problem.total, 1.0)
        self.gain = (value - self.value) / sessions
        if value < self.value - self._rounding(value):
            raise ArithmeticError(
                f"the objective fell by {-self.gain:.3g} a session at iteration {len(self.objective)}: this is a bug in the model"
            )
        gained = value - self.value
        here = self.problem.levelled(
            trail[-1], found
        )  # the sessions say the same there, and where the next gain is counted from is new
        self.trail, self.found = [*trail[:-1], here], found
        self.objective.append(self.objective[-1] + gained)
        self.value = (
            value if here is trail[-1] else found.log_likelihood + self.problem.log_prior(here)
        )

    @staticmethod
    def _rounding(value: float) -> float:
        return LOSS * (1 + abs(value))

    def end(self, converged: bool, message: str) -> Fit:
        """The fit that this way has led to."""
        below = (
            self.value - self.objective[-1]
        )  # the last is the objective there, those before are by what was gained since below it
        return Fit(
            self.trail[-1],
            self.found,
            tuple(each + below for each in self.objective),
            converged,
            message,
            self.problem,
        )
