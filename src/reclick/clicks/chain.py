"""Models whose clicks go down the page: a page is a table F[last click, position] of P(the next click is there), and the rest ends the session.

A click tells that its position was looked at, so what comes after depends on the last click alone, in every one of these models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from reclick.clicks.choice import CHAIN
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, SessionBatch

EDGE = 1e-9  # nothing is certain: a pair clicked 1 time of 1 may go unclicked
Fill = Callable[..., None]  # fill(page, *values of impressions, *shared values, out, end)


def chain_pages(
    batch: SessionBatch, fill: Fill, impressions: Sequence[Float64], shared: Sequence[Any] = ()
) -> Callable[[int, int], Pages]:
    """What a model's `_prepare` gives.

    `fill` writes F [session, last, position] and P(end) [session, last], from probabilities of impressions and from shared values. P(end) is worked
    out, not 1 − ΣF, so that a tiny one has its logarithm.
    """
    return partial(_pages, batch, fill, impressions, shared)


def _pages(
    batch: SessionBatch,
    fill: Fill,
    impressions: Sequence[Float64],
    shared: Sequence[Any],
    start: int,
    end: int,
) -> Pages:
    first, last = int(batch.page[start]), int(batch.page[end])
    page = batch.page[start : end + 1] - first
    length = int(np.diff(page).max(initial=1))
    chances = np.zeros((end - start, length + 1, length))
    ends = np.ones((end - start, length + 1))
    fill(
        page,
        *(np.clip(values[first:last], EDGE, 1 - EDGE) for values in impressions),
        *shared,
        chances,
        ends,
    )
    size = last - first
    return Pages(CHAIN, np.ones(size), np.zeros(size), ends, chances, page, np.arange(end - start))
