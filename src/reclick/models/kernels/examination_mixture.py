"""PBM and UBM with several components of users: EM over sessions.

In component t the attractiveness has odds that are a factor e^(b_t) higher; the examination γ is
common. So clicks of one session are correlated, in both directions: a user who clicked one ad is
likely of a component that clicks more. Given its component, a session follows PBM or UBM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.data.grouped_sessions import QueryBlock
from reclick.data.ragged import Float64, Int32, Int64
from reclick.engines import Engine
from reclick.fitting.beta import log_beta, posterior_mean
from reclick.fitting.em import FitResult, PairSums, Squarem, Statistics, run_em
from reclick.fitting.mixture import (
    LARGEST_LOG_ODDS,
    extrapolate,
    fit_log_odds,
    fit_shifts,
    log_odds,
    log_shift_prior,
    mean_probability,
    shift_odds,
    to_posterior,
)
from reclick.models.kernels.examination_em import (
    SMALLEST_PRODUCT,
    ExaminationParameters,
    ExaminationPrior,
)
from reclick.runtime.jit import kernel

FIRST_SHIFT = 1.0  # of the outermost components, in log-odds, where EM starts
LEAST_MIXING = 1e-6


class MixtureParameters(NamedTuple):
    """What EM estimates."""

    odds: Float64  # [pair] log-odds a of the attractiveness where the shift is 0
    gamma: Float64  # [state]
    shifts: Float64  # [component]
    mixing: Float64  # [component]

    @property
    def theta(self) -> Float64:
        """The attractiveness over all components [pair]."""
        return mean_probability(self.odds, self.shifts, self.mixing)


def first_parameters(one: ExaminationParameters, components: int) -> MixtureParameters:
    """Start EM at a fit with one component, with shifts at equal distances."""
    shifts = np.linspace(-FIRST_SHIFT, FIRST_SHIFT, components) if components > 1 else np.zeros(1)
    mixing = np.full(components, 1 / components)
    return MixtureParameters(log_odds(one.theta), one.gamma, shifts, mixing)


class StateTotals(NamedTuple):
    """Clicks and impressions by state, which do not depend on the components."""

    state_clicks: Float64  # [state]
    impressions: Float64  # [state]


def fit_components(
    blocks: Sequence[QueryBlock],
    totals: StateTotals,
    prior: ExaminationPrior,
    start: MixtureParameters,
    *,
    length: int,
    browsing: bool,
    engine: Engine,
    sessions: float,
    **limits: Any,
) -> FitResult[MixtureParameters, Statistics]:
    """The parameters of highest posterior density: EM from a start."""
    mean, strength = prior.theta
    reached = totals.impressions > 0

    def m_step(now: MixtureParameters, statistics: Statistics) -> MixtureParameters:
        clicks, skips = statistics.pairs["clicks"], statistics.pairs["skips"]
        mixing = np.maximum(statistics.totals["members"], LEAST_MIXING * sessions)
        mixing /= mixing.sum()
        odds = fit_log_odds(clicks, skips, mean, strength, now.shifts, now.odds)
        shifts = fit_shifts(clicks, skips, odds, now.shifts, mixing)
        examined = totals.state_clicks + statistics.totals["examined"]
        gamma = posterior_mean(examined, totals.impressions, prior.gamma, prior.gamma_strength)
        gamma = np.clip(gamma, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
        return MixtureParameters(odds, gamma, shifts, mixing)

    def log_prior(now: MixtureParameters) -> float:
        central = log_beta(shift_odds(now.odds, np.zeros(1))[0], mean, strength)
        gamma = log_beta(now.gamma[reached], prior.gamma[reached], prior.gamma_strength)
        return central + gamma + log_shift_prior(now.shifts)

    return run_em(
        start,
        blocks,
        partial(e_step, length=length, browsing=browsing),
        m_step,
        log_prior=log_prior,
        sessions=sessions,
        engine=engine,
        normalise=lambda now, _: _centre(now),
        accelerate=Squarem(_extrapolate),
        **limits,
    )


def _centre(now: MixtureParameters) -> MixtureParameters:
    """The same distribution, with shifts whose mean over the components is 0."""
    off = float(now.mixing @ now.shifts)
    return now._replace(odds=now.odds + off, shifts=now.shifts - off)


def _extrapolate(
    first: MixtureParameters, second: MixtureParameters, third: MixtureParameters, limit: float
) -> tuple[MixtureParameters, float]:
    """Extrapolate two steps, in log-odds and logarithms."""
    points = [
        np.concatenate([each.odds, log_odds(each.gamma), each.shifts, np.log(each.mixing)])
        for each in (first, second, third)
    ]
    ahead, length = extrapolate(points[0], points[1], points[2], limit)
    sizes = np.cumsum([len(each) for each in first])[:-1]
    odds, gamma, shifts, mixing = np.split(ahead, sizes)
    gamma = np.clip(shift_odds(gamma, np.zeros(1))[0], PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)
    mixing = np.exp(mixing - mixing.max())
    bounded = np.clip(odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
    return MixtureParameters(bounded, gamma, shifts, mixing / mixing.sum()), length


def e_step(
    parameters: MixtureParameters, block: QueryBlock, *, length: int, browsing: bool
) -> Statistics:
    """Expected clicks and examined skips [pair, component], and sessions of each component."""
    expectations = _Expectations.zeros(block, parameters)
    total = _run_pass(parameters, block, expectations, np.zeros(0), length, browsing)
    pairs = PairSums.of(block.first_pair, clicks=expectations.clicks, skips=expectations.skips)
    return Statistics(
        total, {"examined": expectations.examined, "members": expectations.members}, pairs
    )


def score(
    parameters: MixtureParameters, block: QueryBlock, *, length: int, browsing: bool
) -> Float64:
    """The log-probability of the click set of each session [session]."""
    out = np.empty(len(block))
    expectations = _Expectations.zeros(block, parameters)
    _run_pass(parameters, block, expectations, out, length, browsing)
    return out


class _Expectations(NamedTuple):
    clicks: Float64  # [pair, component]
    skips: Float64  # [pair, component] examined, not clicked
    examined: Float64  # [state] without a click
    members: Float64  # [component] sessions

    @classmethod
    def zeros(cls, block: QueryBlock, parameters: MixtureParameters) -> _Expectations:
        components = len(parameters.mixing)
        return cls(
            np.zeros((block.n_pairs, components)),
            np.zeros((block.n_pairs, components)),
            np.zeros(len(parameters.gamma)),
            np.zeros(components),
        )


def _run_pass(
    parameters: MixtureParameters,
    block: QueryBlock,
    expectations: _Expectations,
    log_likelihood: Float64,
    length: int,
    browsing: bool,
) -> float:
    theta = np.ascontiguousarray(shift_odds(parameters.odds[block.pairs], parameters.shifts).T)
    return float(
        _expect(
            block.pair, block.page, block.click, block.clicks, block.weight, length, browsing,
            theta, parameters.gamma, np.log(parameters.mixing), *expectations, log_likelihood,
        )
    )  # fmt: skip


@kernel
def _expect(  # noqa: PLR0912, one loop: a session stays in the cache for all sums
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64, length: int,
    browsing: bool, theta: Float64, gamma: Float64, log_mixing: Float64, expected_clicks: Float64,
    expected_skips: Float64, examined: Float64, members: Float64, log_likelihood: Float64,
) -> float:  # fmt: skip
    """Add the expectations of every session, and return their log-likelihood.

    `theta` is [pair, component]; `log_likelihood` [session] is filled unless it is empty.
    """
    components = len(log_mixing)
    is_clicked, state = np.zeros(length, np.bool_), np.empty(length, np.int64)
    posterior, products = np.empty(components), np.empty(components)
    total = 0.0
    for s in range(len(weight)):
        first, n = page[s], page[s + 1] - page[s]
        for c in range(clicks[s], clicks[s + 1]):
            is_clicked[click[c] - 1] = True
        for t in range(components):
            posterior[t], products[t] = log_mixing[t], 1.0
        row = 0
        for j in range(n):
            state[j] = row + j
            examination, p = gamma[row + j], pair[first + j]
            for t in range(components):
                chance = theta[p, t] * examination
                products[t] *= chance if is_clicked[j] else 1.0 - chance
                if products[t] < SMALLEST_PRODUCT:
                    posterior[t] += math.log(products[t])
                    products[t] = 1.0
            if is_clicked[j] and browsing:
                row = (j + 1) * length
        for t in range(components):
            posterior[t] += math.log(products[t])
        log_prob = to_posterior(posterior)
        total += weight[s] * log_prob
        if len(log_likelihood) > 0:
            log_likelihood[s] = log_prob
        for t in range(components):
            posterior[t] *= weight[s]
            members[t] += posterior[t]
        for j in range(n):
            p = pair[first + j]
            if is_clicked[j]:
                is_clicked[j] = False
                for t in range(components):
                    expected_clicks[p, t] += posterior[t]
                continue
            examination, expected = gamma[state[j]], 0.0
            for t in range(components):
                attractiveness = theta[p, t]
                no_click = 1.0 - attractiveness * examination
                more = posterior[t] * examination * (1.0 - attractiveness) / no_click
                expected_skips[p, t] += more
                expected += more
            examined[state[j]] += expected
    return total
