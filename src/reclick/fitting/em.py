"""Expectation-maximisation (EM): one loop for every model that is fitted iteratively.

An E-step returns the statistics of a block of sessions under some parameters; they add up over
blocks. An M-step returns the next parameters. The loop knows neither what a block is nor what the
statistics mean. It runs through an engine, and may be accelerated by extrapolation (SQUAREM,
Varadhan and Roland 2008).
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from reclick.data.ragged import Float64
from reclick.engines import Engine, LocalEngine
from reclick.engines.base import identity
from reclick.errors import FitError
from reclick.runtime.jit import kernel
from reclick.runtime.progress import report_progress

logger = logging.getLogger("reclick")
ROUNDING_LOSS = 1e-9  # relative loss of the objective that rounding can explain
LOWEST_EXTRAPOLATION = 1e-12
MAX_LOG_CHANGE = 5.0  # of a parameter in one extrapolation


class PairSums:
    """Sums per pair, of one or more runs of pairs. Adding two collects the runs of both.

    Every name has its own runs, so there may also be sums per query or per cell.

    >>> both = PairSums.of(0, clicks=np.ones(2)) + PairSums.of(2, clicks=np.zeros(1))
    >>> both["clicks"]
    array([1., 1., 0.])
    """

    __slots__ = ("_runs",)

    def __init__(self, runs: Mapping[str, tuple[tuple[int, Float64], ...]] | None = None) -> None:
        self._runs = dict(runs or {})

    @classmethod
    def of(cls, first: int, **values: Float64) -> PairSums:
        """The sums of a run whose first pair is row `first`."""
        return cls({name: ((first, value),) for name, value in values.items()})

    def __add__(self, other: PairSums) -> PairSums:
        names = self._runs | other._runs
        return PairSums({name: self.runs(name) + other.runs(name) for name in names})

    def without_rows(self) -> PairSums:
        """Return sums with these names and no rows."""
        return PairSums.of(0, **dict.fromkeys(self._runs, np.zeros(0)))

    def runs(self, name: str) -> tuple[tuple[int, Float64], ...]:
        """(first row, values) of each run."""
        return self._runs.get(name, ())

    def __getitem__(self, name: str) -> Float64:
        """The runs as one array, in the order of their first rows."""
        runs = sorted(self._runs[name], key=lambda run: (run[0], len(run[1])))
        row = 0
        for first, values in runs:
            if first != row:
                raise ValueError(f"{name}: a run starts at row {first} where {row} was expected")
            row += len(values)
        return runs[0][1] if len(runs) == 1 else np.concatenate([values for _, values in runs])


@dataclass(frozen=True, slots=True)
class Statistics:
    """The results of an E-step, which add up over blocks."""

    log_likelihood: float
    totals: Mapping[str, Float64] = field(default_factory=dict)  # common to all pairs
    pairs: PairSums = field(default_factory=PairSums)

    def __getitem__(self, name: str) -> Float64:
        """A total, or the sums of all pairs."""
        return self.totals[name] if name in self.totals else self.pairs[name]

    def __add__(self, other: Statistics) -> Statistics:
        totals = {
            name: self.totals[name] + other.totals[name]
            if name in self.totals and name in other.totals
            else self.totals.get(name, other.totals.get(name, np.zeros(0)))
            for name in {**self.totals, **other.totals}
        }
        return Statistics(
            self.log_likelihood + other.log_likelihood, totals, self.pairs + other.pairs
        )


class HasLikelihood(Protocol):
    """Statistics that add up over blocks and contain a log-likelihood."""

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of the sessions."""

    def __add__(self, other: Self) -> Self: ...


P = TypeVar("P")  # parameters
B = TypeVar("B")  # blocks
S = TypeVar("S", bound=HasLikelihood)


@dataclass(frozen=True, slots=True)
class FitResult(Generic[P, S]):
    """The parameters at which the loop stopped, and why it stopped."""

    parameters: P
    statistics: S  # under these parameters
    objective: tuple[float, ...]  # log-likelihood plus log-prior at every iteration
    converged: bool
    message: str


class EMProblem(ABC, Generic[P]):
    """What EM maximises: the posterior density of the parameters, given sessions.

    It covers all pairs and queries of a log, or those of one bucket. Parameters that belong to a
    pair or a query are its rows; all others are common. An M-step finds a row from the statistics
    of that row, and a common parameter from the totals. So a bucket can take the M-step of its own
    rows, given the totals of all buckets (`reclick.models.bucket_em`).
    """

    sums: ClassVar[tuple[str, ...]] = ()  # attributes that add up over buckets
    blocks: Sequence[Any]  # of the sessions
    sessions: float  # of the whole log

    @property
    @abstractmethod
    def e_step(self) -> Callable[[P, Any], Statistics]:
        """The E-step of a block: a function at the top level of a module."""

    @abstractmethod
    def start(self, last: P | None) -> P:
        """Where EM starts: the prior means, or the result of an earlier EM."""

    @abstractmethod
    def m_step(self, now: P, statistics: Statistics) -> P:
        """The next parameters."""

    @abstractmethod
    def log_prior(self, now: P) -> float:
        """Log-density of the parameters that are common to all rows."""

    @abstractmethod
    def log_row_prior(self, now: P) -> float:
        """Log-density of the parameters of the rows, unless the E-step adds it."""

    def maximise(self, last: P | None, engine: Engine, **limits: Any) -> FitResult[P, Statistics]:
        """EM from the start, with the steps of blocks on an engine."""
        return run_em(
            self.start(last),
            self.blocks,
            self.e_step,
            self.m_step,
            log_prior=lambda now: self.log_prior(now) + self.log_row_prior(now),
            sessions=self.sessions,
            engine=engine,
            **limits,
        )


@dataclass(frozen=True, slots=True)
class Squarem(Generic[P]):
    """After every second step, an extrapolation to where the steps seem to lead.

    `extrapolate(first, second, third, limit)` returns the parameters ahead of two steps, and the
    length of the extrapolation in steps, at most `limit`. If the objective would be lower there,
    the extrapolation is rejected and the limit halves; if the limit was reached, it doubles.
    """

    extrapolate: Callable[[P, P, P, float], tuple[P, float]]
    first_limit: float = 4.0
    last_limit: float = 64.0


def run_em(
    start: P,
    blocks: Sequence[B],
    e_step: Callable[[P, B], S],
    m_step: Callable[[P, S], P],
    *,
    log_prior: Callable[[P], float],
    sessions: float,
    max_iterations: int,
    tolerance: float,
    engine: Engine | None = None,
    accelerate: Squarem[P] | None = None,
    normalise: Callable[[P, S], P] | None = None,
    quiet: bool = False,
) -> FitResult[P, S]:
    """Iterate until a step gains less than `tolerance` per session, or the iterations run out.

    The objective is the log-likelihood plus `log_prior(parameters)`, and may not fall. A tolerance
    of 0 or less runs all iterations; the last M-step is then evaluated too, unless it is
    accelerated. Optional:

    - `normalise(parameters, statistics)` returns parameters with the same likelihood, after every
      step. Gains are then counted from there.
    - `quiet` reports no progress and logs no warning.
    """
    runner = engine or LocalEngine()
    prepared_blocks = runner.prepare(identity, blocks)
    return iterate_em(
        start,
        lambda now: runner.reduce(e_step, now, prepared_blocks),
        m_step,
        log_prior=log_prior,
        sessions=sessions,
        max_iterations=max_iterations,
        tolerance=tolerance,
        accelerate=accelerate,
        normalise=normalise,
        quiet=quiet,
    )


def iterate_em(
    start: P,
    evaluate: Callable[[P], S],
    m_step: Callable[[P, S], P],
    *,
    log_prior: Callable[[P], float],
    sessions: float,
    max_iterations: int,
    tolerance: float,
    accelerate: Squarem[P] | None = None,
    normalise: Callable[[P, S], P] | None = None,
    quiet: bool = False,
) -> FitResult[P, S]:
    """The loop of `run_em`, where `evaluate(parameters)` returns the statistics of all blocks."""
    ascent = _Ascent(
        start,
        evaluate=evaluate,
        m_step=m_step,
        log_prior=log_prior,
        sessions=max(sessions, 1.0),
        squarem=accelerate,
        normalise=normalise,
    )
    while True:
        iterations, gain = len(ascent.objective), ascent.gain
        if not quiet:
            report_progress("iterations", iterations)
        if ascent.is_m_step and gain < tolerance and tolerance > 0:
            message = f"converged after {iterations} iterations, gain {gain:.1e} < {tolerance:g}"
            return ascent.result(True, message)
        if iterations >= max_iterations:
            break
        ascent.advance()
    limit = f"> {tolerance:g}"
    if tolerance <= 0:
        limit = f"with tolerance {tolerance:g}, which asks for all of them"
    message = f"stopped after {iterations} iterations, gain {gain:.1e} {limit}: not converged"
    if not quiet:
        logger.warning("%s", message)
    if accelerate is None:
        ascent.take_last_step()
    return ascent.result(False, message)


class _Ascent(Generic[P, S]):
    """The state of the loop: its latest parameters, their statistics and the objective."""

    def __init__(
        self,
        start: P,
        *,
        evaluate: Callable[[P], S],
        m_step: Callable[[P, S], P],
        log_prior: Callable[[P], float],
        sessions: float,
        squarem: Squarem[P] | None,
        normalise: Callable[[P, S], P] | None,
    ) -> None:
        self._evaluate, self._m_step, self._log_prior = evaluate, m_step, log_prior
        self._sessions, self._squarem = sessions, squarem
        self._normalise = normalise
        self._limit = 0.0 if squarem is None else squarem.first_limit
        self.objective: list[float] = []
        self.gain = math.inf  # per session, of the last iteration
        self.is_m_step = True  # whether that was an M-step, not an extrapolation
        self._path = [start]  # the points of the latest M-steps
        self._statistics, self._value = self._evaluate_at(start)
        self.objective.append(self._value)

    def advance(self) -> None:
        """Take an M-step, or after two of them an extrapolation."""
        proposal = self._m_step(self._path[-1], self._statistics)
        self.is_m_step = not (len(self._path) == 2 and self._extrapolate(proposal))
        if not self.is_m_step:
            return
        statistics, value = self._evaluate_at(proposal)
        path = self._path if self._squarem is not None else []
        self._accept([*path, proposal], statistics, value)

    def take_last_step(self) -> None:
        """Take an M-step that does not count as an iteration."""
        proposal = self._m_step(self._path[-1], self._statistics)
        self._path, self._statistics = [proposal], self._evaluate(proposal)

    def result(self, converged: bool, message: str) -> FitResult[P, S]:
        """The fit at the latest parameters."""
        shift = 0.0 if self._normalise is None else self._value - self.objective[-1]
        objective = tuple(each + shift for each in self.objective)
        return FitResult(self._path[-1], self._statistics, objective, converged, message)

    def _extrapolate(self, third: P) -> bool:
        """Try an extrapolation; return whether it was accepted. If not, the path starts again."""
        squarem = self._squarem
        if squarem is None:
            return False
        first, second = self._path
        ahead, length = squarem.extrapolate(first, second, third, self._limit)
        statistics, value = self._evaluate_at(ahead)
        if value < self._value:
            self._limit, self._path = max(2.0, self._limit / 2), []
            return False
        if length == self._limit:
            self._limit = min(squarem.last_limit, self._limit * 2)
        self._accept([ahead], statistics, value)
        return True

    def _evaluate_at(self, parameters: P) -> tuple[S, float]:
        """The statistics under some parameters, and the objective."""
        statistics = self._evaluate(parameters)
        value = float(statistics.log_likelihood) + self._log_prior(parameters)
        if not math.isfinite(value):
            raise FitError(
                f"the objective is {value} at iteration {len(self.objective) + 1}: "
                "the weights are too large to add, or the model has a bug"
            )
        return statistics, value

    def _falls(self, value: float) -> bool:
        return value < self._value - ROUNDING_LOSS * (1 + abs(value))

    def _accept(self, path: list[P], statistics: S, value: float) -> None:
        gain = value - self._value
        self.gain = gain / self._sessions
        if self._falls(value):
            raise FitError(
                f"the objective fell by {-self.gain:.3g} per session at iteration "
                f"{len(self.objective) + 1}: the model has a bug"
            )
        self._path, self._statistics, self._value = path, statistics, value
        if self._normalise is None:
            self.objective.append(value)
            return
        self.objective.append(self.objective[-1] + gain)
        point = self._normalise(path[-1], statistics)
        if point is not path[-1]:
            self._path = [*path[:-1], point]
            self._value = float(statistics.log_likelihood) + self._log_prior(point)


@kernel
def squarem_norms(
    first: Float64, second: Float64, third: Float64, weight: Float64
) -> tuple[float, float]:
    """Squared lengths of a step and of the change between two steps, of logarithms, weighted."""
    steps = changes = 0.0
    for i in range(len(first)):
        if first[i] != second[i] or second[i] != third[i]:
            step = math.log(second[i] / first[i])
            change = math.log(third[i] / second[i]) - step
            steps += weight[i] * step * step
            changes += weight[i] * change * change
    return steps, changes


@kernel
def squarem_step(
    first: Float64, second: Float64, third: Float64, length: float, ceiling: float
) -> Float64:
    """Extrapolate to first · exp(2 a r + a² v); a is the length; length 1 gives `third`."""
    out = first.copy()
    for i in range(len(first)):
        if first[i] != second[i] or second[i] != third[i]:
            step = math.log(second[i] / first[i])
            bend = math.log(third[i] / second[i]) - step
            change = 2.0 * length * step + length * length * bend
            change = min(max(change, -MAX_LOG_CHANGE), MAX_LOG_CHANGE)
            out[i] = min(max(first[i] * math.exp(change), LOWEST_EXTRAPOLATION), ceiling)
    return out
