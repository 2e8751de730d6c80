"""What the cascade models share: the user scans down from the top, and may stop after a click or after passing an ad by.

Such a model is three numbers a position: θ_i, the chance of a click when it is looked at, and the chances of going on down after a click and after
none. All up to the last click was looked at, for certain; only the positions below it, the tail, have to be guessed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.data.grouped_sessions import Sessions
from reclick.runtime.jit import kernel

TINY = 1e-290  # a chance below this is as good as none, but can be divided by
MOST_BLOCKS = 8  # each has statistics of all pairs: more would be memory for little speed


class Totals(NamedTuple):
    """Looks and clicks of each pair among sessions that are taken to end at some position."""

    looks: Float64  # [pair]
    clicks: Float64  # [pair]
    last: Float64  # [pair] clicks at the very position where the session is taken to end


class Block(NamedTuple):
    """Sessions, where their last clicks are, and what is certain of them: all up to there was looked at."""

    sessions: Sessions
    ends: Int64  # [session] the lowest position clicked, 0 when none is
    first: int  # the pairs that occur are rows first … first + len(looks) − 1
    looks: Float64  # [pair that occurs]
    clicks: Float64  # [pair that occurs]
    last: Float64  # [pair that occurs]


def first_clicks(sessions: Sessions) -> Int64:
    """The highest position clicked [session], 0 when none is."""
    return _extremes(sessions.click, sessions.clicks)[0]


def last_clicks(sessions: Sessions) -> Int64:
    """The lowest position clicked [session], 0 when none is: the last click of a user who only goes down."""
    return _extremes(sessions.click, sessions.clicks)[1]


def or_whole_page(ends: Int64, sessions: Sessions) -> Int64:
    """Where looking ended when a user without a click looks at all of the page [session]."""
    return np.where(ends > 0, ends, np.diff(sessions.page))


def totals(sessions: Sessions, ends: Int64) -> Totals:
    """Count every session up to the position where it ends."""
    found = Totals(*(np.zeros(len(sessions.counts.impressions)) for _ in Totals._fields))
    _count(
        sessions.pair, sessions.page, sessions.click, sessions.clicks, sessions.weight, ends, *found
    )
    return found


def blocks(sessions: Sessions) -> list[Block]:
    """The sessions in as many runs as there are cores, with what is certain of each."""
    return [as_block(run) for run in sessions.blocks(min(os.cpu_count() or 1, MOST_BLOCKS))]


def as_block(sessions: Sessions) -> Block:
    """Sessions with what is certain of them."""
    ends = last_clicks(sessions)
    found = totals(sessions, ends)
    low, high = int(sessions.pair.min(initial=0)), int(sessions.pair.max(initial=0)) + 1
    return Block(sessions, ends, low, *(values[low:high].copy() for values in found))


def clicks_of(parts: Sequence[Block], pairs: int) -> Float64:
    """The clicks of each pair in all blocks [pair]."""
    clicks = np.zeros(pairs)
    for part in parts:
        clicks[part.first : part.first + len(part.clicks)] += part.clicks
    return clicks


def positions(page: Int64) -> Int64:
    """The position of each impression, from 0."""
    return np.asarray(np.arange(page[-1]) - np.repeat(page[:-1], np.diff(page)))


@kernel
def scan(
    page: Int64,
    theta: Float64,
    onward: Float64,
    clicked: float,
    passed: float,
    out: Float64,
    end: Float64,
) -> None:
    """F[l, j] = start_l · Π_{l < i < j} (1 − θ_i) passed · θ_j, where start_l = clicked · onward_l is the chance of going on after a click at l."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        silent = 1.0  # the chance of no click from the next position on, when it is looked at
        for last in range(n, -1, -1):
            look = clicked * onward[page[s] + last - 1] if last > 0 else 1.0
            for j in range(last, n):
                out[s, last, j] = look * theta[page[s] + j]
                look *= (1.0 - theta[page[s] + j]) * passed
            on = clicked * onward[page[s] + last - 1] if last > 0 else 1.0
            end[s, last] = 1.0 - on + on * silent
            if last > 0:
                silent = (1.0 - theta[page[s] + last - 1]) * (1.0 - passed + passed * silent)


@kernel
def silence(pair: Int32, theta: Float64, passed: float, end: int, chance: Float64) -> float:
    """Fill chance[i] with B_i, the chance of no click from i on when i is looked at, for i ≥ end, and return B_end; 1 below the page.

    B_i = (1 − θ_i) (1 − passed + passed B_{i+1}).
    """
    below = 1.0
    chance[len(pair)] = below
    for i in range(len(pair) - 1, end - 1, -1):
        below = max((1.0 - theta[pair[i]]) * (1.0 - passed + passed * below), TINY)
        chance[i] = below
    return below


@kernel
def _extremes(click: Int32, clicks: Int64) -> tuple[Int64, Int64]:
    first, last = np.zeros(len(clicks) - 1, np.int64), np.zeros(len(clicks) - 1, np.int64)
    for s in range(len(first)):
        for c in range(clicks[s], clicks[s + 1]):
            first[s] = click[c] if first[s] == 0 else min(first[s], click[c])
            last[s] = max(last[s], click[c])
    return first, last


@kernel
def _count(
    pair: Int32,
    page: Int64,
    click: Int32,
    clicks: Int64,
    weight: Float64,
    ends: Int64,
    looks: Float64,
    clicked: Float64,
    last: Float64,
) -> None:
    for s in range(len(weight)):
        for i in range(page[s], page[s] + ends[s]):
            looks[pair[i]] += weight[s]
        for c in range(clicks[s], clicks[s + 1]):
            here = pair[page[s] + click[c] - 1]
            if click[c] <= ends[s]:
                clicked[here] += weight[s]
            if click[c] == ends[s]:
                last[here] += weight[s]
