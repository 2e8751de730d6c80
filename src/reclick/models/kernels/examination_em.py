"""Sufficient cells: all that the models with P(click) = θ(q, d) · γ(state) need of a log, however long it is.

The state of an impression says how likely it is looked at: its position (PBM), or its position and that of the click before it (UBM, BBM). A click
tells that the ad was looked at, so of clicks only the totals by pair and by state matter; of the other impressions, how many each pair had in each
state: its cells. EM then runs over cells. The complete data are E, looked at or not, and the click, if it was:

    P(E | no click) = γ (1 − θ) / (1 − θγ),   θ = (clicks + s m) / (Σ P(E) + s),   γ = (Σ P(E) + s' m') / (impressions + s').

Only products θγ can be learnt: twice the θ with half the γ is the same model. The priors, which have the top of the page looked at nearly always,
settle the scale.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.clicks.chain import EDGE, chain_pages
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions
from reclick.fitting.em import Fit, Statistics, check_loop, maximise_objective
from reclick.fitting.priors import log_beta, posterior
from reclick.models.settings import check_prior, check_range
from reclick.runtime.jit import kernel

TINY = 1e-200  # a product this small is taken the logarithm of, before it is nothing
FAR = 1e-2  # how near to 0 and 1 the prior mean of an examination may come


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Clicks by pair and by state, and impressions without a click by pair and state, those of a pair side by side.

    With browsing, state = length · (position of the click before, 0 when none) + position − 1; without, state = position − 1.
    """

    clicks: Float64  # [pair]
    clicked: Float64  # [state] impressions that were clicked
    shown: Float64  # [state] impressions
    starts: Int64  # [pair + 1] where each pair's cells start
    state: Int32  # [cell]
    skips: Float64  # [cell] impressions that were not clicked

    @classmethod
    def of(cls, sessions: Sessions, *, browsing: bool) -> Cells:
        """Reduce sessions to cells, once."""
        pairs, length = len(sessions.counts.impressions), sessions.max_ads
        clicks, clicked, shown = (
            np.zeros(pairs),
            *np.zeros((2, (length + 1) * length if browsing else length)),
        )
        begin = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(np.bincount(sessions.pair, minlength=pairs))]
        )
        state, skips = np.empty(len(sessions.pair), np.int32), np.empty(len(sessions.pair))
        end = begin[:-1].copy()
        _sort_skips(
            sessions.pair,
            sessions.page,
            sessions.click,
            sessions.clicks,
            sessions.weight,
            length,
            browsing,
            clicks,
            clicked,
            shown,
            end,
            state,
            skips,
        )
        starts = _merge_equal(begin, end, len(shown), state, skips)
        return cls(
            clicks, clicked, shown, starts, state[: starts[-1]].copy(), skips[: starts[-1]].copy()
        )

    def to_table(self) -> pa.Table:
        """The cells, for saving: a row for each pair, with its clicks and its list of (state, skips)."""
        starts = self.starts.astype(np.int64)
        lists = {
            "state": pa.LargeListArray.from_arrays(starts, self.state),
            "skips": pa.LargeListArray.from_arrays(starts, self.skips),
        }
        return pa.table({"clicks": self.clicks, **lists})

    @classmethod
    def from_table(cls, table: pa.Table) -> Cells:
        """Take back what `to_table` gave; the totals by state are not kept."""
        state, skips = (table[name].combine_chunks() for name in ("state", "skips"))
        clicks = table["clicks"].combine_chunks().to_numpy(zero_copy_only=False).copy()
        starts = state.offsets.to_numpy().astype(np.int64)
        flat = (
            values.values.to_numpy(zero_copy_only=False)[starts[0] : starts[-1]].copy()
            for values in (state, skips)
        )
        return cls(clicks, np.zeros(0), np.zeros(0), starts - starts[0], *flat)


class Parameters(NamedTuple):
    """What EM learns."""

    theta: Float64  # [pair]
    gamma: Float64  # [state]


class Prior(NamedTuple):
    """Prior means of θ and γ, and how many pseudo-looks and pseudo-impressions they are worth."""

    theta: Float64  # [pair]
    gamma: Float64  # [state]
    theta_strength: float
    gamma_strength: float


def check_settings(settings: Mapping[str, object]) -> None:
    """Refuse settings of PBM, UBM or BBM that make no sense."""
    check_prior("attractiveness_prior", settings["attractiveness_prior"], ("overall", "words"))
    check_prior("examination_prior", settings["examination_prior"], ("overall",))
    for name in ("attractiveness_strength", "examination_strength", "frequent"):
        check_range(name, settings[name], 0, sys.float_info.max)
    check_loop(settings["max_iterations"], settings["tolerance"])


def position_means(given: str | float, counts: Counts, length: int) -> Float64:
    """Prior mean of the examination of each position: a number, or its click rate as a share of the first's, kept off 0 and 1 by 0.01."""
    if not isinstance(given, str):
        return np.full(length, float(given))
    known = max(counts.max_ads, 1)
    by_click = np.repeat(counts.per_sequence(), np.diff(counts.sequence_starts))
    clicks = np.bincount(counts.sequence_clicks, by_click, known + 1)[1:]
    shown = np.cumsum(counts.lengths.sum(axis=1)[::-1])[::-1][1:]
    rates = clicks[: len(shown)] / np.maximum(shown, sys.float_info.min)
    share = (
        np.clip(rates / rates[0], FAR, 1 - FAR)
        if len(rates) and rates[0] > 0
        else np.full(1, 1 - FAR)
    )
    return share[np.minimum(np.arange(length), len(share) - 1)]


def browsing_means(means: Float64) -> Float64:
    """Prior mean of the examination of each position after each last click [last, position]: below a click, as if the page began there."""
    distance = np.arange(len(means)) - np.arange(len(means) + 1)[:, None]
    return np.asarray(np.where(distance >= 0, means[np.maximum(distance, 0)], 0.0))


def learn_sessions(
    sessions: Sessions,
    means: Float64,
    history: Counts,
    settings: Mapping[str, Any],
    *,
    browsing: bool,
) -> tuple[Cells, Fit[Parameters], Float64]:
    """What PBM, UBM and BBM have in common: the cells of the sessions, the θ and γ learnt from them with these settings, and the looks [pair]."""
    cells = Cells.of(sessions, browsing=browsing)
    eye = position_means(settings["examination_prior"], history, sessions.max_ads)
    prior = Prior(
        means,
        browsing_means(eye).ravel() if browsing else eye,
        settings["attractiveness_strength"],
        settings["examination_strength"],
    )
    loop = {name: settings[name] for name in ("max_iterations", "tolerance")}
    return cells, *learn(cells, prior, float(sessions.weight.sum()), **loop)


def learn(
    cells: Cells, prior: Prior, sessions: float, *, max_iterations: int, tolerance: float
) -> tuple[Fit[Parameters], Float64]:
    """The θ and γ of highest posterior density, by EM from the prior means, and the looks [pair] under them."""
    parts = _equal_parts(cells.starts, os.cpu_count() or 1)

    def expect(now: Parameters, part: slice) -> Statistics:
        """The looks of a part's pairs have a name of their own: no pair is in two parts, so there is nothing to add."""
        looks, seen = np.empty(part.stop - part.start), np.zeros(len(cells.shown))
        data = (
            cells.clicks[part],
            cells.starts[part.start : part.stop + 1],
            cells.state,
            cells.skips,
        )
        total = _expect(
            *data, prior.theta[part], prior.theta_strength, now.theta[part], now.gamma, looks, seen
        )
        return {"log_likelihood": total, f"looks from {part.start}": looks, "seen": seen}

    def maximise(found: Statistics) -> Parameters:
        theta = np.empty(len(cells.clicks))
        for part in parts:
            looks = np.asarray(found[f"looks from {part.start}"])
            _shrink(cells.clicks[part], looks, prior.theta[part], prior.theta_strength, theta[part])
        gamma = posterior(
            cells.clicked + np.asarray(found["seen"]),
            cells.shown,
            prior.gamma,
            prior.gamma_strength,
        )
        return Parameters(theta, np.clip(gamma, EDGE, 1 - EDGE))

    reached = cells.shown > 0

    def log_prior(now: Parameters) -> float:
        """The part that is not in `expect`: of γ, with the clicks' own log γ."""
        gamma = now.gamma[reached]
        return float(cells.clicked[reached] @ np.log(gamma)) + log_beta(
            gamma, prior.gamma[reached], prior.gamma_strength
        )

    fit = maximise_objective(
        Parameters(*(np.clip(mean, EDGE, 1 - EDGE) for mean in (prior.theta, prior.gamma))),
        parts,
        expect,
        maximise,
        log_prior=log_prior,
        sessions=sessions,
        max_iterations=max_iterations,
        tolerance=tolerance,
    )
    return fit, np.concatenate(
        [np.asarray(fit.statistics[f"looks from {part.start}"]) for part in parts]
    )


def _equal_parts(starts: Int64, many: int) -> list[slice]:
    """Runs of pairs with about as much work each: that of a pair is a few of its cells'."""
    work = starts + 4 * np.arange(len(starts))
    edges = np.searchsorted(work, np.linspace(0, work[-1], many + 1))
    return [slice(int(first), int(last)) for first, last in pairwise(edges) if last > first] or [
        slice(0, 0)
    ]


@kernel
def _sort_skips(
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64, length: int, browsing: bool,
    clicks_on: Float64, clicked: Float64, shown: Float64, end: Int64, state: Int32, skips: Float64,
) -> None:  # fmt: skip
    """Add up the clicks, and put the other impressions where their pair's begin, moving its end."""
    marked = np.zeros(length, np.bool_)
    for s in range(len(weight)):
        for c in range(clicks[s], clicks[s + 1]):
            marked[click[c] - 1] = True
        row = 0
        for j in range(page[s + 1] - page[s]):
            p, at = pair[page[s] + j], row + j
            shown[at] += weight[s]
            if marked[j]:
                marked[j] = False
                clicks_on[p] += weight[s]
                clicked[at] += weight[s]
                row = (j + 1) * length if browsing else 0
            else:
                state[end[p]] = at
                skips[end[p]] = weight[s]
                end[p] += 1


@kernel
def _merge_equal(begin: Int64, end: Int64, states: int, state: Int32, skips: Float64) -> Int64:
    """Add up what stands in the same state, pair after pair, in place; where each pair's cells start now."""
    starts = np.zeros(len(begin), np.int64)
    totals, met = np.zeros(states), np.empty(states, np.int32)
    at = 0
    for p in range(len(end)):
        many = 0
        for i in range(begin[p], end[p]):
            if totals[state[i]] == 0.0:
                met[many] = state[i]
                many += 1
            totals[state[i]] += skips[i]
        for first in (
            True,
            False,
        ):  # single skips first: `_expect` then guesses its branches better
            for k in range(many):
                if (totals[met[k]] == 1.0) == first:
                    state[at], skips[at] = met[k], totals[met[k]]
                    at += 1
        for k in range(many):
            totals[met[k]] = 0.0
        starts[p + 1] = at
    return starts


@kernel
def _expect(
    clicks: Float64, starts: Int64, state: Int32, skips: Float64, mean: Float64, strength: float,
    theta: Float64, gamma: Float64, looks: Float64, seen: Float64,
) -> float:  # fmt: skip
    """Fill the expected looks of pairs, and add those without a click by state; their log-posterior but for the clicks' log γ.

    Logarithms are most of the work, so chances that count alike are multiplied and have one for many: of one or two skips, and of the prior of
    pairs with one prior mean.
    """
    total, few, attracted, not_attracted, shared = 0.0, 1.0, 1.0, 1.0, 0.0
    for p in range(len(clicks)):
        chance, passed, looked = theta[p], 1.0 - theta[p], clicks[p]
        for i in range(starts[p], starts[p + 1]):
            eye = gamma[state[i]]
            none = 1.0 - chance * eye
            look = skips[i] * eye * passed / none
            looked += look
            seen[state[i]] += look
            if skips[i] == 1.0:
                few *= none
            elif skips[i] == 2.0:
                few *= none * none
            else:
                total += skips[i] * math.log(none)
            if few < TINY:
                total += math.log(few)
                few = 1.0
        looks[p] = looked
        if clicks[p] > 0.0:
            total += clicks[p] * math.log(chance)
        if mean[p] != shared or attracted < TINY or not_attracted < TINY:
            total += strength * (
                shared * math.log(attracted) + (1.0 - shared) * math.log(not_attracted)
            )
            attracted = not_attracted = 1.0
            shared = mean[p]
        attracted *= chance
        not_attracted *= passed
    return (
        total
        + math.log(few)
        + strength * (shared * math.log(attracted) + (1.0 - shared) * math.log(not_attracted))
    )


@kernel
def _shrink(clicks: Float64, looks: Float64, mean: Float64, strength: float, out: Float64) -> None:
    """(clicks + s m) / (looks + s), kept off 0 and 1; the mean where there is nothing."""
    for p in range(len(out)):
        total = looks[p] + strength
        rate = (clicks[p] + strength * mean[p]) / total if total > 0.0 else mean[p]
        out[p] = min(max(rate, EDGE), 1.0 - EDGE)


@kernel
def browse(page: Int64, theta: Float64, gamma: Float64, out: Float64, end: Float64) -> None:
    """F[l, j] = θ_j γ_lj Π_{l < i < j} (1 − θ_i γ_li): every position below the last click is clicked or not on its own."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        for last in range(n + 1):
            none = 1.0
            for j in range(last, n):
                chance = theta[page[s] + j] * gamma[last, j]
                out[s, last, j] = none * chance
                none *= 1.0 - chance
            end[s, last] = none


def browse_pages(
    batch: SessionBatch, theta: Float64, gamma: Float64
) -> Callable[[int, int], Pages]:
    """What `_prepare` of UBM and BBM gives, from θ [impression] and γ [last, position]."""
    return chain_pages(
        batch, browse, (theta,), (longer(gamma, int(np.diff(batch.page).max(initial=1))),)
    )


def longer(gamma: Float64, length: int) -> Float64:
    """γ [last, position] for longer pages: a position beyond is looked at like the last known one, as far below the last click."""
    known = gamma.shape[1]
    last, position = np.indices((length + 1, length))
    beyond = np.maximum(position - known + 1, 0)
    moved = np.where(last > 0, np.maximum(last - beyond, 1), 0)
    return np.ascontiguousarray(
        gamma[np.minimum(moved, known - 1), np.minimum(position, known - 1)]
    )
