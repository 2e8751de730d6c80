"""Prior means from the counts of an earlier log, or of the log itself."""

from __future__ import annotations

import numpy as np

from reclick.data.counts import Counts

PRIOR_MARGIN = 1e-6  # how near to 0 and 1 a prior mean may come


def top_click_rate(counts: Counts) -> float:
    """Click rate of the first position, which is always examined: the mean attractiveness."""
    sequence = np.repeat(
        np.arange(len(counts.sequence_starts) - 1), np.diff(counts.sequence_starts)
    )
    on_top = np.zeros(len(counts.sequence_starts) - 1, bool)
    on_top[sequence[counts.sequence_clicks == 1]] = True
    return _share(counts.per_sequence()[on_top].sum(), counts.total)


def click_rate(counts: Counts) -> float:
    """Clicks per impression."""
    return _share(counts.clicks.sum(), counts.impressions.sum())


def last_click_rate(counts: Counts) -> float:
    """The share of clicks that are the last of their session: the mean satisfaction."""
    return _share(counts.last_clicks.sum(), counts.clicks.sum())


def _share(part: float, whole: float) -> float:
    """The ratio, at least a margin away from 0 and 1; a half where the whole is 0."""
    return float(np.clip(part / whole, PRIOR_MARGIN, 1 - PRIOR_MARGIN)) if whole > 0 else 0.5
