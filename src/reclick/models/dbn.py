"""DBN, the dynamic Bayesian network: the user goes on until satisfied or tired."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from reclick.clicks.chain import EDGE, chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.errors import SettingError
from reclick.fitting.em import Fit, Statistics, check_loop, maximise_objective
from reclick.fitting.priors import last_click_rate, log_beta, posterior
from reclick.models.base import ClickModel
from reclick.models.kernels.cascade import (
    TINY,
    Block,
    as_block,
    blocks,
    clicks_of,
    positions,
    scan,
    silence,
)
from reclick.models.settings import check_prior, check_range, check_whole
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex

UInt64 = npt.NDArray[np.uint64]
GRID = (
    0.01,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.85,
    0.9,
    0.95,
    0.97,
    0.99,
    1.0,
)  # what "cv" chooses among
ALONE = 0.9  # … and what it takes when all sessions are alike, and none can be held out


class Parameters(NamedTuple):
    """What EM learns."""

    theta: Float64  # [pair]
    rho: Float64  # [pair]


class DBN(ClickModel):
    """P(click | looked at) = θ(q, d); P(go on) = λ (1 − ρ(q, d)) after a click, λ after none.

    EM over what is hidden below the last click at l: was the user satisfied, and how far did she look? With B_i, the chance of no click from i on,
    B_i = (1 − θ_i) (1 − λ + λ B_{i+1}), a session ends with S = ρ_l + (1 − ρ_l) (1 − λ + λ B_{l+1}); satisfied with ρ_l / S, and looks fall off
    from λ (1 − ρ_l) B_{l+1} / S by λ B_{i+1} / (1 − λ + λ B_{i+1}) a position. Then θ = (clicks + a) / (expected looks + a + b) and
    ρ = (expected satisfied + c) / (clicks + c + d).

    λ is `continuation`, a number in (0, 1], or "cv": the one of 16 from 0.01 to 1 (`GRID`) that gives held-out sessions the highest log_set_prob in a
    cross-validation with `folds` folds. Then `cv_` [λ, (λ, log-probability a session)] has them all. A page with the same
    set clicked w times is dealt out, ⌊w / folds⌋ to each fold and the rest one a fold; where that starts is drawn by `seed` and the page and clicks
    themselves, so the order of the log's rows does not matter.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [2]]}
    >>> model = DBN(continuation=0.9).fit(log)
    >>> model.converged_, model.theta_.round(3)
    (True, array([0.5  , 0.593]))
    """

    name: ClassVar[str] = "dbn"
    assumes: ClassVar[str] = (
        "the user scans down until an ad that was clicked satisfies, or tired at any position alike"
    )
    reference: ClassVar[str] = "Chapelle, Zhang 2009"
    satisfaction: ClassVar[bool] = True
    pair_values: ClassVar[tuple[str, ...]] = ("theta_", "exposure_", "rho_")
    shared_values: ClassVar[tuple[str, ...]] = ("unseen_", "satisfaction_", "continuation_", "cv_")

    def __init__(
        self,
        *,
        continuation: str | float = "cv",
        attractiveness_prior: str | float = "overall",
        attractiveness_strength: float = 2.0,
        satisfaction_prior: str | float = "overall",
        satisfaction_strength: float = 1.0,
        frequent: float = 50,
        folds: int = 3,
        seed: int = 0,
        max_iterations: int = 100,
        tolerance: float = 1e-5,
    ) -> None:
        if continuation != "cv":
            if isinstance(continuation, str):
                raise SettingError(
                    f'continuation: got {continuation!r}, expected "cv" or a number above 0 and at most 1.'
                )
            check_range("continuation", continuation, sys.float_info.min, 1)
        check_prior("attractiveness_prior", attractiveness_prior, ("overall", "words"))
        check_range("attractiveness_strength", attractiveness_strength, 0, sys.float_info.max)
        check_prior("satisfaction_prior", satisfaction_prior, ("overall",))
        check_range("satisfaction_strength", satisfaction_strength, 0, sys.float_info.max)
        check_range("frequent", frequent, 0, sys.float_info.max)
        check_whole("folds", folds, 2)
        check_whole("seed", seed, 0)
        check_loop(max_iterations, tolerance)
        self.continuation = continuation
        self.attractiveness_prior = attractiveness_prior
        self.attractiveness_strength = attractiveness_strength
        self.satisfaction_prior = satisfaction_prior
        self.satisfaction_strength = satisfaction_strength
        self.frequent = frequent
        self.folds = folds
        self.seed = seed
        self.max_iterations = max_iterations
        self.tolerance = tolerance

    def _estimate(self, sessions: Sessions, means: Float64, history: Counts) -> None:
        given = self.satisfaction_prior
        self.satisfaction_ = last_click_rate(history) if isinstance(given, str) else float(given)
        start = Parameters(np.clip(means, EDGE, 1 - EDGE), np.full(len(means), self.satisfaction_))
        self.cv_ = (
            self._cross_validate(start, sessions, means)
            if isinstance(self.continuation, str)
            else None
        )
        fixed = ALONE if isinstance(self.continuation, str) else float(self.continuation)
        self.continuation_ = (
            fixed if self.cv_ is None else float(self.cv_[self.cv_[:, 1].argmax(), 0])
        )
        fit = self._maximise(start, blocks(sessions), means, self.continuation_)
        self.theta_, self.rho_ = fit.parameters
        self.exposure_ = np.asarray(fit.statistics["looks"])
        self.iterations_, self.converged_, self.objective_, self.message_ = (
            len(fit.objective),
            fit.converged,
            fit.objective,
            fit.message,
        )

    def _maximise(
        self, start: Parameters, parts: Sequence[Block], means: Float64, on: float
    ) -> Fit[Parameters]:
        clicks = clicks_of(parts, len(means))
        clicked = np.flatnonzero(clicks)  # elsewhere ρ stays at its prior mean

        def maximise(found: Statistics) -> Parameters:
            theta = posterior(
                clicks, np.asarray(found["looks"]), means, self.attractiveness_strength
            )
            satisfied = np.asarray(found["satisfied"])[clicked]
            rho = np.full(len(means), self.satisfaction_)
            rho[clicked] = posterior(
                satisfied, clicks[clicked], self.satisfaction_, self.satisfaction_strength
            )
            return Parameters(np.clip(theta, EDGE, 1 - EDGE), np.clip(rho, EDGE, 1 - EDGE))

        def log_prior(now: Parameters) -> float:
            attractive = log_beta(now.theta, means, self.attractiveness_strength)
            return attractive + log_beta(
                now.rho[clicked], self.satisfaction_, self.satisfaction_strength
            )

        return maximise_objective(
            start,
            parts,
            partial(expect, on),
            maximise,
            log_prior=log_prior,
            sessions=sum(float(part.sessions.weight.sum()) for part in parts),
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
        )

    def _cross_validate(
        self, start: Parameters, sessions: Sessions, means: Float64
    ) -> Float64 | None:
        """Held-out log-probability a session of each λ [λ, 2], if there are two folds; within one each λ starts where the one before it ended."""
        sessions, first = deal(sessions, self.folds, self.seed)
        folds = int(first.max(initial=0)) + 1
        if folds == 1:
            return None
        held = np.zeros(len(GRID))
        for k in range(folds):
            out = np.floor(sessions.weight / folds) + np.clip(
                sessions.weight % folds - (k - first) % folds, 0, 1
            )  # [session] of its weight
            train, test = (
                blocks(_weighted(sessions, sessions.weight - out)),
                as_block(_weighted(sessions, out)),
            )
            now = start
            for i, on in reversed(list(enumerate(GRID))):
                now = self._maximise(now, train, means, on).parameters
                held[i] += float(expect(on, now, test)["log_likelihood"])
        return np.column_stack([GRID, held / sessions.weight.sum()])

    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        found = self._pairs.find(batch)
        theta = self._pairs.filled(self.theta_, batch, found, text)
        rho = self._pairs.at(self.rho_, found.row, self.satisfaction_)
        return chain_pages(batch, scan, (theta, 1 - rho), (self.continuation_, self.continuation_))


def deal(sessions: Sessions, folds: int, seed: int) -> tuple[Sessions, Int64]:
    """Distinct pages with the set clicked, in an order that does not depend on the rows, and the fold [page] at which dealing out each starts."""
    mark, one, group = np.unique(_marks(sessions, seed), return_index=True, return_inverse=True)
    distinct = replace(
        sessions.select(one),
        weight=np.bincount(group, sessions.weight, len(mark)).astype(np.float64),
    )
    first = np.arange(len(mark)) % folds
    order = np.lexsort(
        (mark, distinct.pair[distinct.page[:-1]])
    )  # queries stay together: their pairs are near in memory
    return distinct.select(order), first[order]


def _marks(sessions: Sessions, seed: int) -> UInt64:
    """A number [session] that looks drawn at random, but follows from the seed, the pairs and the set clicked."""
    shown = _mixed(sessions.pair, positions(sessions.page), 2 * seed)
    clicked = _mixed(sessions.click, np.zeros(len(sessions.click), np.int64), 2 * seed + 1)
    return _sums(shown, sessions.page) + _sums(clicked, sessions.clicks)


def _mixed(code: Int32, place: Int64, salt: int) -> UInt64:
    """The bits of each code at its place, stirred (the finish of splitmix64)."""
    bits = (code.astype(np.uint64) << np.uint64(32) | place.astype(np.uint64)) ^ np.uint64(
        salt * 0x9E3779B97F4A7C15 % 2**64
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(factor)
    return bits ^ bits >> np.uint64(31)


def _sums(values: UInt64, starts: Int64) -> UInt64:
    """The sum of each run, overflow and all."""
    return np.diff(np.concatenate([np.zeros(1, np.uint64), np.cumsum(values)])[starts])


def _weighted(sessions: Sessions, weight: Float64) -> Sessions:
    """The same sessions with other weights, without those of no weight."""
    return replace(sessions, weight=weight).select(np.flatnonzero(weight > 0))


def expect(on: float, now: Parameters, block: Block) -> Statistics:
    """Expected looks and satisfied clicks of a block under the parameters: what is certain, a pair at a time, and the tails, a session at a time."""
    sessions, here = block.sessions, slice(block.first, block.first + len(block.looks))
    looks, satisfied = np.zeros(len(now.theta)), np.zeros(len(now.theta))
    looks[here] = block.looks
    tails = _tails(
        sessions.pair,
        sessions.page,
        block.ends,
        sessions.weight,
        sessions.max_ads,
        on,
        *now,
        looks,
        satisfied,
    )
    certain = _certain(block.looks, block.clicks, block.last, now.theta[here], now.rho[here], on)
    return {"log_likelihood": tails + certain, "looks": looks, "satisfied": satisfied}


@kernel
def _certain(
    looks: Float64, clicks: Float64, last: Float64, theta: Float64, rho: Float64, on: float
) -> float:
    """Log-probability of all down to the last clicks: clicks, passes, and going on after each but the last."""
    total = moves = 0.0
    for p in range(len(looks)):
        if looks[p] > 0.0:
            total += clicks[p] * np.log(theta[p]) + (looks[p] - clicks[p]) * np.log(1.0 - theta[p])
            moves += looks[p] - last[p]
        if clicks[p] > last[p]:
            total += (clicks[p] - last[p]) * np.log(1.0 - rho[p])
    return float(total + moves * np.log(on))


@kernel
def _tails(
    pair: Int32,
    page: Int64,
    ends: Int64,
    weight: Float64,
    longest: int,
    on: float,
    theta: Float64,
    rho: Float64,
    looks: Float64,
    satisfied: Float64,
) -> float:
    """Add the expected looks below the last clicks, and the expected satisfied clicks; return the log-probability of the tails."""
    total = 0.0
    chance = np.empty(longest + 1)
    for s in range(len(weight)):
        ads, end = pair[page[s] : page[s + 1]], ends[s]
        quiet = silence(ads, theta, on, end, chance)
        look = weight[s]
        if end > 0:
            last = ads[end - 1]
            go = (1.0 - rho[last]) * on * quiet
            quiet = max(rho[last] + (1.0 - rho[last]) * (1.0 - on) + go, TINY)
            satisfied[last] += weight[s] * rho[last] / quiet
            look *= go / quiet
        total += weight[s] * np.log(quiet)
        for i in range(end, len(ads)):
            looks[ads[i]] += look
            look *= on * chance[i + 1] / (1.0 - on + on * chance[i + 1])
    return total
