"""Redundancy: an ad that repeats the words of clicked ads loses attractiveness.

After clicks on ads S, the weight of ad j is multiplied by exp(−κ σ_j(S)). Its overlap with one
clicked ad i is s_ij = (1 − 1/e) · the share of the words of j that i has: a word that was seen once
is worth 1/e of a new one (Ahmed, Teo, Vishwanathan, Smola 2012 learn such gains). With several
clicked ads, 1 − σ_j(S) = Π (1 − s_ij).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import Clicks, PageDistribution
from reclick.clicks.mixture import MixturePages
from reclick.data.batch import Float64, Int32, Int64, SessionBatch
from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.data.ragged import read_only
from reclick.fitting.folds import (
    MAX_SESSIONS,
    MIN_SESSIONS,
    Fold,
    folds_of_pages,
    is_significant_gain,
)
from reclick.models.noise import GroupedLog
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex, TokenLists

if TYPE_CHECKING:
    from reclick.models.base import ClickModel

logger = logging.getLogger("reclick")
SEEN_WORD_LOSS = 1 - math.exp(-1)  # the share of its value that a word loses when it was seen once
MOST_REDUNDANCY = 8.0
ROUNDS, TOLERANCE = 6, 0.02  # of κ and the other parameters in turn
SEARCH_STEPS = 24  # of the golden section: to 1e-4 of the largest value
GOLDEN = (math.sqrt(5) - 1) / 2


def page_overlap(tokens: TokenLists, ad: Int32, starts: Int64) -> Float64:
    """The overlap s of the ads of pages [page, clicked, other], 0 beyond the page.

    `ad` [impression] is the row of each ad among the `tokens`.
    """
    sizes = np.diff(starts)
    longest = int(sizes.max(initial=1))
    out = np.zeros((len(sizes), longest, longest))
    _fill_overlap(tokens.starts, tokens.words, ad, np.ascontiguousarray(starts), out)
    return out


def block_overlap(tokens: TokenLists, pair_ad: Int32, block: QueryBlock) -> Float64:
    """The overlap of the pages of a block; `pair_ad` is the ad of each pair of the log."""
    return read_only(page_overlap(tokens, pair_ad[block.first_pair + block.pair], block.page))


@kernel
def _fill_overlap(begin: Int64, words: Int32, ad: Int32, starts: Int64, out: Float64) -> None:
    for s in range(len(starts) - 1):
        first, n = starts[s], starts[s + 1] - starts[s]
        for j in range(n):
            low, high = begin[ad[first + j]], begin[ad[first + j] + 1]
            for i in range(n):
                if i == j or high == low:
                    continue
                shared = 0
                for w in range(low, high):
                    for v in range(begin[ad[first + i]], begin[ad[first + i] + 1]):
                        if words[v] == words[w] and words[w] >= 0:  # −1 is a word never shown
                            shared += 1
                            break
                out[s, i, j] = SEEN_WORD_LOSS * shared / (high - low)


def learn_redundancy(model: ClickModel, sessions: GroupedSessions, *, judge: bool = True) -> float:
    """Estimate the redundancy κ of a fitted model; 0 unless it helps held-out sessions.

    The other parameters do not change. κ is that of highest likelihood. With `judge`, it is tested
    on each third of the sessions, with the κ of the other two thirds.
    """
    if not _has_overlap(model, sessions):
        logger.warning(
            "redundancy='auto' has nothing to learn from: no two ads of a page share a word. "
            "Is the text of the ads missing? Give it as ads=… or --ads."
        )
        return 0.0
    if sessions.weight.sum() < MIN_SESSIONS:
        return 0.0
    sample = sessions.select_queries(MAX_SESSIONS)
    if judge and not _is_significant(model, folds_of_pages(sample)):
        return 0.0
    return _find_likeliest(model, sample)


def _is_significant(model: ClickModel, folds: list[Fold]) -> bool:
    """Whether held-out sessions significantly gain by the κ of the other sessions."""
    if not folds:
        return False
    before, after = [], []
    for fold in folds:
        log_likelihood = _log_likelihood(model, fold.test)
        before.append(log_likelihood(0.0))
        after.append(log_likelihood(_find_likeliest(model, fold.train)))
    weight = np.concatenate([fold.test.weight for fold in folds])
    return is_significant_gain(np.concatenate(before), np.concatenate(after), weight)


def _find_likeliest(model: ClickModel, sessions: GroupedSessions) -> float:
    """The κ of highest likelihood of some sessions."""
    log_likelihood = _log_likelihood(model, sessions)
    return maximise(lambda kappa: float(sessions.weight @ log_likelihood(kappa)))


def _has_overlap(model: ClickModel, sessions: GroupedSessions) -> bool:
    """Whether any ad of a page has a word of another one."""
    (batch,) = GroupedLog(sessions).batches()
    tokens = model._pairs.words.encode_ads(batch.ads, model._index_text(None))
    return bool(page_overlap(tokens, batch.ad, batch.page).any())


def fit_with_redundancy(
    model: ClickModel,
    sessions: GroupedSessions,
    redundancy: str | float,
    refit: Callable[[float], None],
) -> None:
    """Fit a model whose other parameters depend on κ; if κ is learnt, fit it and them in turn.

    `refit` fits the other parameters for a given κ. The κ of the last such fit is the model's.
    """
    if not isinstance(redundancy, str):
        refit(float(redundancy))
        model.redundancy_ = float(redundancy)
        return
    kappa = 0.0
    for turn in range(ROUNDS + 1):
        refit(kappa)
        model.redundancy_ = kappa
        kappa = learn_redundancy(model, sessions, judge=turn == 0)
        if abs(kappa - model.redundancy_) < TOLERANCE:
            return
    logger.warning(
        "redundancy='auto' did not settle in %d fits: κ went from %.2f to %.2f in the last. "
        "A number for redundancy fixes it.",
        ROUNDS + 1,
        model.redundancy_,
        kappa,
    )


def maximise(value: Callable[[float], float]) -> float:
    """Find the maximum of a function of κ that has only one, from 0 to `MOST_REDUNDANCY`.

    >>> round(maximise(lambda x: -((x - 1.3) ** 2)), 3), maximise(lambda x: -x)
    (1.3, 0.0)
    """
    low, high = 0.0, MOST_REDUNDANCY
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(SEARCH_STEPS):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = value(right)
    best = (low + high) / 2
    return best if value(best) > value(0.0) else 0.0


def _log_likelihood(model: ClickModel, sessions: GroupedSessions) -> Callable[[float], Float64]:
    """The log-probability of each session as a function of κ [session]."""
    probe = copy(model)
    probe.redundancy_ = 1.0  # so that pages have the overlap of their ads
    (batch,) = GroupedLog(sessions).batches()
    pages = probe._page_distribution(batch, probe._index_text(None))(0, len(batch))
    clicks = Clicks(batch.click, batch.clicks)
    return lambda kappa: set_redundancy(pages, kappa).log_prob(clicks)


def set_redundancy(pages: PageDistribution, kappa: float) -> PageDistribution:
    """The pages with another redundancy."""
    if isinstance(pages, MixturePages):
        parts = tuple(set_redundancy(each, kappa) for each in pages.components)
        return MixturePages(parts, pages.weights)
    return replace(pages, redundancy=kappa) if isinstance(pages, ChoicePages) else pages


def find_overlap(
    model: ClickModel, batch: SessionBatch, text: TextIndex | None
) -> Callable[[int, int], Float64 | None]:
    """The overlap of the pages start … end − 1 of a batch; None without redundancy."""
    if not model.redundancy_:
        return lambda start, end: None
    tokens = model._pairs.words.encode_ads(batch.ads, text)

    def overlap(start: int, end: int) -> Float64:
        first, last = batch.page[start], batch.page[end]
        return page_overlap(tokens, batch.ad[first:last], batch.page[start : end + 1] - first)

    return overlap
