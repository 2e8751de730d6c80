"""Folds for cross-validation, by the content of the sessions: the order of rows does not matter.

A session that occurred w times is divided among n folds: ⌊w / n⌋ go to each, and the rest one per
fold, from its first fold on.
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
MIN_SESSIONS = 200  # of a log that is divided into folds
MAX_SESSIONS = 20_000  # distinct sessions of a sample
SMALL_LOG = 5_000  # sessions up to which one held-out third is too small
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
    """Make the folds that have sessions both to fit on and to hold out.

    A session is divided from its `first_fold` [session] on, or is held out whole by its
    `page_fold` [session] where that is not negative.
    """
    folds = []
    for fold in range(n_folds):
        held_out = held_out_weight(sessions.weight, first_fold, fold, n_folds)
        if page_fold is not None:
            whole = np.where(page_fold == fold, sessions.weight, 0.0)
            held_out = np.where(page_fold < 0, held_out, whole)
        if 0 < held_out.sum() < sessions.weight.sum():
            train, test = sessions.reweight(sessions.weight - held_out), sessions.reweight(held_out)
            folds.append(Fold(train, test))
    return folds


def folds_of_click_sets(sessions: GroupedSessions, n_folds: int, seed: int) -> list[Fold]:
    """Folds by the page and the click set.

    Sessions with the same page, set and outcome of the lowest click count as one session. Its first
    fold depends on the seed, the page and the set.
    """
    block = sessions.whole
    key = page_and_set_hash(block.pair, block.page, block.click, block.clicks, seed)
    outcome = block.lowest_click_outcome
    if outcome is not None:
        key = key ^ splitmix64(outcome.astype(np.uint64))  # the hash of 0 is 0
    key, first, group = np.unique(key, return_index=True, return_inverse=True)
    weight = np.bincount(group, sessions.weight, len(key)).astype(np.float64)
    distinct = replace(block.select(first), weight=weight)
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
    """Folds that hold out whole pages, as rare pages of future logs will be new.

    A page with at least `frequent_page` sessions will occur again: its sessions are divided. So
    are all sessions of a log with fewer than `min_pages` distinct pages.
    """
    block = sessions.whole
    no_clicks = block.click[:0], np.zeros(len(block) + 1, np.int64)
    page = content_hash(block.pair, block.page, *no_clicks)
    pages, group = np.unique(page, return_inverse=True)
    frequent = np.bincount(group, sessions.weight)[group] >= frequent_page
    is_divided = frequent | (len(pages) < min_pages)
    first_fold = content_hash(block.pair, block.page, block.click, block.clicks) % n_folds
    return make_folds(sessions, first_fold, n_folds, np.where(is_divided, -1, page % n_folds))


def hold_out(sessions: GroupedSessions) -> Fold | None:
    """Two thirds of the sessions to fit on, and one to test on; None if there are too few.

    A long log is sampled by whole queries; the pairs are those of the log.
    """
    if sessions.weight.sum() < MIN_SESSIONS:
        return None
    sample = sessions.select_queries(MAX_SESSIONS)
    folds = folds_of_pages(sample)
    return folds[0] if folds else None


def folds_to_judge(sessions: GroupedSessions, *, all_thirds: bool = False) -> list[Fold]:
    """The folds that evaluate a search; none for a log with too few sessions.

    They hold out one third of the sessions, or each third of a small log, where one is too small. A
    long log is sampled by whole queries, unless the sessions are a sample of a log already.
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
    """Choose a number from 1 to `most`: it grows as long as held-out sessions gain.

    `score` returns the log-likelihood of the held-out sessions of a fold with a number, or None
    if there is nothing to gain.
    """
    fold = hold_out(sessions)
    if fold is None:
        return 1
    best, last = 1, score(fold, 1)
    for number in range(2, most + 1):
        value = score(fold, number)
        if value is None or last is None or not is_significant_gain(last, value, fold.test.weight):
            break
        best, last = number, value
    return best
