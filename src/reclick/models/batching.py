"""Answers of a model: made for parts of a log side by side, and laid out as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, Int32, Int64, SessionBatch

Answer = TypeVar("Answer")
PART_BYTES = 64 << 20  # of the tables of a part
PART = 16_384  # sessions answered at once by one thread


class RankedSequence(NamedTuple):
    """A click sequence and its probability."""

    clicks: tuple[int, ...]
    probability: float


def answer_parts(
    pool: Executor,
    batch: SessionBatch,
    parameters: Callable[[int, int], Pages],
    answer: Callable[[SessionBatch, Pages], Answer],
) -> Iterator[Answer]:
    """An answer for each part of a batch, in order; `parameters` gives those of the pages start … end − 1."""
    size = _part_size(batch)
    parts = [(start, min(start + size, len(batch))) for start in range(0, len(batch), size)]
    return pool.map(partial(_answer_part, batch, parameters, answer), parts)


def _part_size(batch: SessionBatch) -> int:
    """How many sessions are answered at once: fewer when pages are long, for their tables grow with the square of the length."""
    longest = int(np.diff(batch.page).max(initial=1))
    return int(np.clip(PART_BYTES / (8 * longest * (longest + 1)), 1, PART))


def _answer_part(
    batch: SessionBatch,
    parameters: Callable[[int, int], Pages],
    answer: Callable[[SessionBatch, Pages], Answer],
    part: tuple[int, int],
) -> Answer:
    return answer(batch.slice(*part), parameters(*part))


def joined(parts: Iterable[Float64]) -> Float64:
    """Parts of a number a session, as one array."""
    return np.concatenate([np.zeros(0), *parts])


def padded(part: SessionBatch, values: Float64) -> Float64:
    """Values of impressions laid end to end, as [session, position] with nan beyond the page."""
    sizes = np.diff(part.page)
    out = np.full((len(part), int(sizes.max(initial=0))), np.nan)
    out[np.arange(out.shape[1]) < sizes[:, None]] = values
    return out


def stacked(parts: Iterable[Float64]) -> Float64:
    """Parts of different widths as one array, nan beyond."""
    arrays = list(parts)
    width = max((part.shape[1] for part in arrays), default=0)
    filled = [
        np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=np.nan)
        for part in arrays
    ]
    return np.concatenate(filled) if filled else np.zeros((0, 0))


def click_lists(parts: Iterable[tuple[Int32, Int64]]) -> pa.ListArray:
    """Parts of clicks laid end to end, with where each session's start, as a list of positions a row."""
    drawn = list(parts)
    sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(starts) for _, starts in drawn)])
    return pa.ListArray.from_arrays(
        np.cumsum(sizes).astype(np.int32),
        np.concatenate([np.zeros(0, np.int32), *(click for click, _ in drawn)]),
    )
