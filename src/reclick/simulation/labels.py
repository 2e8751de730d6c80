"""What editors say of (query, ad) pairs: grades 0 to 4 of the landing page and how it fits the query, each with the editor's own error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int64

PAIRS = 10_000  # labelled at most
ERROR = 0.5  # standard deviation of an editor's judgement, on the scale of a landing page's worth
CUTS = (-0.7, 0.0, 0.7, 1.4)  # worth from which a page gets grade 1, 2, 3 and 4


def choose(impressions: Int64, rng: np.random.Generator) -> Int64:
    """Pairs that were shown, the more likely the more often, none twice; all of them when there are few."""
    shown = np.flatnonzero(impressions)
    wait = (
        rng.standard_exponential(len(shown)) / impressions[shown]
    )  # the pairs that come first, each at its rate
    return np.sort(shown[np.argsort(wait, kind="stable")[:PAIRS]])


def label(pairs: pa.Table, worth: Float64, rng: np.random.Generator) -> pa.Table:
    """The pairs (query, ad) with their grade as `relevance`."""
    grade = np.searchsorted(CUTS, worth + ERROR * rng.standard_normal(len(worth)))
    return pairs.append_column("relevance", pa.array(grade.astype(np.int64)))
