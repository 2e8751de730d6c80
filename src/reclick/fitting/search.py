"""Hyperparameters by cross-validation: the likelihood of sessions held out of the training log.

Candidates of a grid are listed from the strongest prior on. Of those within one standard error of
the best the first is taken, so a prior is as strong as the data allow. Held-out sessions of the
same days do not show drift, and a stronger prior suffers less from it. An addition to a model is
taken where it gains enough per session to be worth its cost; whether the gain is significant is not
asked, as in a small log hardly anything is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.hashing import GOLDEN_RATIO
from reclick.data.ragged import Float64, Int64
from reclick.fitting.folds import Fold
from reclick.runtime.progress import report_progress

Candidate = TypeVar("Candidate")
logger = logging.getLogger("reclick")
ROUNDING = 1e-9  # differences of log-likelihoods per session below this are rounding


class CrossValidationScore(NamedTuple):
    """The log-likelihood of each held-out session under a candidate, fold after fold."""

    held_out: Float64  # [session]
    weight: Float64  # [session]

    @property
    def mean(self) -> float:
        """Log-likelihood per session."""
        return float(np.average(self.held_out, weights=self.weight))

    def z_score(self, other: CrossValidationScore) -> float:
        """The gain over another candidate, in standard errors."""
        gain = self.held_out - other.held_out
        mean = float(np.average(gain, weights=self.weight))
        error = float(np.sqrt(np.sum(self.weight * (gain - mean) ** 2)) / self.weight.sum())
        return mean / error if error > 0 else 0.0

    def gains_at_least(self, other: CrossValidationScore, least: float) -> bool:
        """Whether the gain over another candidate per session is so large, significant or not."""
        return self.mean - other.mean >= least


class HyperparameterSearch(Generic[Candidate]):
    """Candidates and their scores on some folds; each candidate is scored once."""

    def __init__(self, folds: Sequence[Fold]) -> None:
        self.folds = folds
        self.scores: dict[Candidate, CrossValidationScore] = {}

    def score_fold(self, fold: int, candidate: Candidate) -> Float64:
        """The log-likelihood of each session held out of a fold, fitted to the others."""
        raise NotImplementedError

    def score(self, candidate: Candidate) -> CrossValidationScore:
        """The score of a candidate on all folds."""
        if candidate not in self.scores:
            parts = [self.score_fold(fold, candidate) for fold in range(len(self.folds))]
            weights = [fold.test.weight for fold in self.folds]
            score = CrossValidationScore(np.concatenate(parts), np.concatenate(weights))
            self.scores[candidate] = score
            logger.debug("%s: %.5f", candidate, score.mean)
            report_progress("hyperparameters tried", len(self.scores))
        return self.scores[candidate]

    def search_grid(
        self,
        candidates: Sequence[Candidate],
        *,
        min_gain: float | None = None,
        prefer: Callable[[Candidate], float] | None = None,
    ) -> Candidate:
        """The first candidate within one standard error of the best, or the one that is preferred.

        With `min_gain` the first candidate is the model without an addition: it is returned unless
        another gains so much per session. `prefer` is smallest for the candidate to be taken.
        """
        best = max(candidates, key=lambda candidate: self.score(candidate).mean)
        if min_gain is not None:
            plain, least = self.score(candidates[0]), min_gain
            if not self.score(best).gains_at_least(plain, least):
                return candidates[0]
            candidates = [x for x in candidates[1:] if self.score(x).gains_at_least(plain, least)]
        near = [x for x in candidates if self.score(best).z_score(self.score(x)) <= 1]
        return near[0] if prefer is None else min(near, key=prefer)


def parabola_vertex(before: float, at: float, after: float) -> float:
    """Where the parabola through the values at −1, 0 and 1 has its maximum; that at 0 is highest.

    >>> parabola_vertex(0.0, 1.0, 0.5)
    0.16666666666666666
    """
    return (after - before) / (2 * max(2 * at - before - after, ROUNDING))


def subsample_queries(
    sessions: GroupedSessions, max_sessions: int
) -> tuple[GroupedSessions, Int64]:
    """Whole queries with about `max_sessions` distinct sessions, and the pairs they have.

    Queries are drawn by their number. The pairs and queries of the sample are numbered anew.
    """
    counts, block = sessions.counts, sessions.whole
    if len(sessions) <= max_sessions:
        return sessions, np.arange(len(counts.impressions))
    drawn = block.query.astype(np.uint64) * np.uint64(GOLDEN_RATIO) >> np.uint64(33)
    sample = block.select(np.flatnonzero(drawn < max_sessions / len(sessions) * 2**31))
    pairs, pair = np.unique(sample.pair.astype(np.int64), return_inverse=True)
    queries, query = np.unique(counts.pair_query[pairs], return_inverse=True)
    pair_query = query.astype(np.int32)
    sampled = replace(  # except the visits, which are not needed here
        counts,
        queries=counts.queries.take(pa.array(queries)),
        pair_query=pair_query,
        pair_ad=counts.pair_ad[pairs],
        impressions=counts.impressions[pairs],
        clicks=counts.clicks[pairs],
        last_clicks=counts.last_clicks[pairs],
    )
    sample = replace(sample, pair=pair.astype(np.int32), pair_query=pair_query)
    return GroupedSessions(sampled, sample), pairs
