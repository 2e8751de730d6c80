"""The base class of all click models: each file is one part of `ClickModel`.

`description`: settings and the training log; `storage`: folders; `answers`: probabilities and
relevance; `click_model`: fits and updates. A model is a subclass of `ClickModel`, which adds its
estimates and the distribution of its pages.
"""

from reclick.models.base.click_model import (
    IN_MEMORY,
    PILOT_ITERATIONS,
    PILOT_TOLERANCE,
    ClickModel,
    cannot_fit_in_buckets,
    get_counts,
)
from reclick.models.base.storage import FIT_REPORT

__all__ = [
    "FIT_REPORT",
    "IN_MEMORY",
    "PILOT_ITERATIONS",
    "PILOT_TOLERANCE",
    "ClickModel",
    "cannot_fit_in_buckets",
    "get_counts",
]
