"""Folds for cross-validation, by the content of the sessions: the order of rows does not matter.

A session that came w times is divided among n folds: ⌊w / n⌋ to each, and the rest one to a fold,
from its first fold on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.hashing import content_hash, page_and_set_hash, splitmix64
from reclick.data.ragged import Float64, Int64

N_FOLDS, FREQUENT_PAGE, MIN_PAGES = 3, 30.0, 100  # see `folds_of_pages`
MIN_SESSIONS, MAX_SESSIONS = 200, 20_000  # in a log that is asked; distinct ones that are drawn
SMALL_LOG = 5_000  # sessions up to which one held-out third says too little
MIN_GAIN, SIGNIFICANT = 3e-4, 2.0  # of a richer model: per session, and in standard errors


class Fold(NamedTuple):
    """Sessions to fit on, and those held out."""

    train: GroupedSessions
    test: GroupedSessions


def held_out_weight(weight: Float64, first_fold: Int64, fold: int, n_folds: int) -> Float64:
    """The part of each session's weight that a fold holds out [session].

    >>> [held_out_weight(np.array([5.0]), np.array([1]), fold, 3).tolist() for fold in range(3)]
    [[1.0], [2.0], [2.0]]
    """
    rest = weight % n_folds - (fold - first_fold) % n_folds
    return np.asarray(np.floor(weight / n_folds) + np.clip(rest, 0, 1))


def make_folds(
    sessions: GroupedSessions, first_fold: Int64, n_folds: int, page_fold: Int64 | None = None
) -> list[Fold]:
    """The folds that hold out something and leave something to fit on.

    A session is divided from its `first_fold` [session] on, or is held out whole by its
    `page_fold` [session] where that is not negative.
    """
    folds = []
    for fold in range(n_folds):
        out = held_out_weight(sessions.weight, first_fold, fold, n_folds)
        if page_fold is not None:
            whole = np.where(page_fold == fold, sessions.weight, 0.0)
            out = np.where(page_fold < 0, out, whole)
        if 0 < out.sum() < sessions.weight.sum():
            train, test = sessions.reweight(sessions.weight - out), sessions.reweight(out)
            folds.append(Fold(train, test))
    return folds


def folds_of_click_sets(sessions: GroupedSessions, n_folds: int, seed: int) -> list[Fold]:
    """Folds of pages with the set of positions clicked, in whatever order.

    Sessions with the same page, set and outcome of the lowest click are one. Where dealing out
    starts follows from the seed, the page and the set.
    """
    block = sessions.whole
    key = page_and_set_hash(block.pair, block.page, block.click, block.clicks, seed)
    outcome = block.lowest_click_outcome
    if outcome is not None:
        key = key ^ splitmix64(outcome.astype(np.uint64))  # of 0 it is 0
    key, one, group = np.unique(key, return_index=True, return_inverse=True)
    weight = np.bincount(group, sessions.weight, len(key)).astype(np.float64)
    distinct = replace(block.select(one), weight=weight)
    # By the first pair, so that sessions of a query stay together.
    order = np.lexsort((key, distinct.pair[distinct.page[:-1]]))
    first_fold = (np.arange(len(key)) % n_folds)[order]
    n_folds = int(first_fold.max(initial=0)) + 1
    return make_folds(replace(sessions, whole=distinct.select(order)), first_fold, n_folds)


def folds_of_pages(
    sessions: GroupedSessions,
    n_folds: int = N_FOLDS,
    *,
    frequent_page: float = FREQUENT_PAGE,
    min_pages: int = MIN_PAGES,
) -> list[Fold]:
    """Folds that hold out whole pages, as tomorrow's rare pages will be new.

    A page with at least `frequent_page` sessions will come again: its sessions are divided. So
    are all sessions of a log with fewer than `min_pages` distinct pages.
    """
    block = sessions.whole
    no_clicks = block.click[:0], np.zeros(len(block) + 1, np.int64)
    page = content_hash(block.pair, block.page, *no_clicks)
    pages, which = np.unique(page, return_inverse=True)
    frequent = np.bincount(which, sessions.weight)[which] >= frequent_page
    divided = frequent | (len(pages) < min_pages)
    first_fold = content_hash(block.pair, block.page, block.click, block.clicks) % n_folds
    return make_folds(sessions, first_fold, n_folds, np.where(divided, -1, page % n_folds))


def hold_out(sessions: GroupedSessions) -> Fold | None:
    """Two thirds of the sessions to fit on, and one to judge by; None where there are too few.

    A long log is sampled by whole queries; the pairs are those of the log.
    """
    if sessions.weight.sum() < MIN_SESSIONS:
        return None
    sample = sessions.select_queries(MAX_SESSIONS)
    folds = folds_of_pages(sample)
    return folds[0] if folds else None


def folds_to_judge(sessions: GroupedSessions, *, all_thirds: bool = False) -> list[Fold]:
    """The thirds of a log that a search is judged by; none of a log with too few sessions.

    It is one third; all of them of a small log, where one says too little. A long log is sampled by
    whole queries, unless the sessions are a sample already, of a log whose size they know.
    """
    if sessions.n_sessions < MIN_SESSIONS:
        return []
    sample = sessions if sessions.log is not None else sessions.sample_queries(MAX_SESSIONS)
    several = all_thirds or sessions.n_sessions <= SMALL_LOG
    return folds_of_pages(sample)[: N_FOLDS if several else 1]


def measure_gain(before: Float64, after: Float64, weight: Float64) -> tuple[float, float]:
    """The mean gain per session from log-likelihoods [session], and its standard error."""
    gains = after - before
    mean = float(np.average(gains, weights=weight))
    return mean, float(np.sqrt(np.sum(weight * (gains - mean) ** 2))) / float(weight.sum())


def is_significant_gain(
    before: Float64, after: Float64, weight: Float64, errors: float = SIGNIFICANT
) -> bool:
    """Whether log-likelihoods of held-out sessions [session] rise, by more than chance explains.

    The mean gain must exceed so many of its standard errors.

    >>> is_significant_gain(np.zeros(4), np.array([0.1, 0.2, 0.1, 0.2]), np.ones(4))
    True
    """
    mean, error = measure_gain(before, after, weight)
    return mean > max(MIN_GAIN, errors * error)


def choose_number(
    sessions: GroupedSessions, score: Callable[[Fold, int], Float64 | None], most: int
) -> int:
    """The number from 1 to `most` that held-out sessions ask for: as long as one more gains.

    `score` returns the log-likelihood of the held-out sessions of a fold with a number, or None
    where there is nothing to gain.
    """
    fold = hold_out(sessions)
    if fold is None:
        return 1
    best, last = 1, score(fold, 1)
    for number in range(2, most + 1):
        now = score(fold, number)
        if now is None or last is None or not is_significant_gain(last, now, fold.test.weight):
            break
        best, last = number, now
    return best
