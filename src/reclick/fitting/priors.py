"""Prior means that come from counts: of an earlier log, or of the log itself."""

from __future__ import annotations

import numpy as np

from reclick.data.batch import Float64
from reclick.data.counts import Counts


def top_click_rate(counts: Counts) -> float:
    """How often the first position is clicked: what is seen for certain, so the mean attractiveness of an ad that is looked at."""
    sequence = np.repeat(
        np.arange(len(counts.sequence_starts) - 1), np.diff(counts.sequence_starts)
    )
    on_top = np.zeros(len(counts.sequence_starts) - 1, bool)
    on_top[sequence[counts.sequence_clicks == 1]] = True
    return _share(counts.per_sequence()[on_top].sum(), counts.total)


def click_rate(counts: Counts) -> float:
    """How often an impression is clicked."""
    return _share(counts.clicks.sum(), counts.impressions.sum())


def last_click_rate(counts: Counts) -> float:
    """How often a click is the last of its session: the mean satisfaction."""
    return _share(counts.last_clicks.sum(), counts.clicks.sum())


def log_beta(value: Float64, mean: Float64 | float, strength: float) -> float:
    """Log-density, but for a constant, of the prior whose mode after c of n is (c + strength · mean) / (n + strength)."""
    if strength == 0:
        return 0.0
    return float(strength * np.sum(mean * np.log(value) + (1 - mean) * np.log(1 - value)))


def posterior(
    successes: Float64, trials: Float64, mean: Float64 | float, strength: float
) -> Float64:
    """(successes + strength · mean) / (trials + strength); the mean itself where there is nothing."""
    total = trials + strength
    return np.asarray(
        np.where(total > 0, (successes + strength * mean) / np.where(total > 0, total, 1.0), mean)
    )


def _share(part: float, whole: float) -> float:
    """A share kept off 0 and 1; a half of nothing."""
    return float(np.clip(part / whole, 1e-6, 1 - 1e-6)) if whole > 0 else 0.5
