"""Answers about many pages, computed chunk by chunk and joined to one result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from typing import NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from reclick.clicks.distribution import Clicks, PageDistribution
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.ragged import starts_from_sizes
from reclick.logs import SessionLog, as_log, with_clicks, with_text
from reclick.runtime.parallel import parallel_map
from reclick.runtime.time_limit import check_time

Answer = TypeVar("Answer")
CHUNK_SESSIONS = 16_384  # the most in a chunk; one thread answers a chunk
CHUNK_BYTES = 64 << 20  # the most that the tables of a chunk may take


class RankedSequence(NamedTuple):
    """A click sequence and its probability."""

    clicks: tuple[int, ...]
    probability: float


def map_chunks(
    batch: SessionBatch,
    distribution: Callable[[int, int], PageDistribution],
    answer: Callable[[SessionBatch, PageDistribution], Answer],
    threads: int | None = None,
) -> Iterator[Answer]:
    """Return an iterator over the answers for the chunks of a batch, in order.

    `distribution(start, end)` returns the distribution of the pages start … end − 1.
    """
    check_time()
    size = 1 if len(batch) == 1 else _chunk_sessions(batch)
    if len(batch) <= size:
        return iter([answer(batch, distribution(0, len(batch)))])
    return parallel_map(
        lambda chunk: answer(batch.slice(*chunk), distribution(*chunk)),
        _split_rows(len(batch), size),
        threads=threads,
    )


def _split_rows(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each chunk; raise when the time limit is exceeded."""
    for start in range(0, count, size):
        check_time()
        yield start, min(start + size, count)


def _chunk_sessions(batch: SessionBatch) -> int:
    """The number of sessions per chunk.

    It is smaller for long pages: the size of a table grows with the square of the page length.
    """
    longest = int(np.diff(batch.page).max(initial=1))
    return min(CHUNK_SESSIONS, max(1, CHUNK_BYTES // (8 * longest * (longest + 1))))


def concatenate_chunks(chunks: Iterable[Float64]) -> Float64:
    """Join the values of all chunks to one array."""
    return np.concatenate([np.zeros(0), *chunks])


def pad_pages(starts: Int64, values: Float64) -> Float64:
    """Arrange the values of consecutive impressions as [page, position], nan beyond the page."""
    sizes = np.diff(starts)
    out = np.full((len(sizes), int(sizes.max(initial=0))), np.nan)
    out[np.arange(out.shape[1]) < sizes[:, None]] = values
    return out


def stack_padded(chunks: Iterable[Float64]) -> Float64:
    """Join padded chunks of different widths to one array, padded with nan."""
    arrays = list(chunks)
    if len(arrays) == 1:
        return arrays[0]
    width = max((chunk.shape[1] for chunk in arrays), default=0)
    arrays = [
        np.pad(chunk, ((0, 0), (0, width - chunk.shape[1])), constant_values=np.nan)
        for chunk in arrays
    ]
    return np.concatenate(arrays) if arrays else np.zeros((0, 0))


def to_click_lists(chunks: Iterable[Clicks]) -> pa.ListArray:
    """Join the clicks of all chunks to a list array: per session, the positions clicked."""
    parts = list(chunks)
    sizes = np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)])
    return pa.ListArray.from_arrays(
        starts_from_sizes(sizes).astype(np.int32),
        np.concatenate([np.zeros(0, np.int32), *(part.click for part in parts)]),
    )


def open_pages(
    pages: object,
    text: object = None,
    clicks: Sequence[Sequence[int]] | Sequence[int] | None = None,
    *,
    clicks_required: bool = False,
) -> SessionLog:
    """Open pages as a log, with the text of new ads and the clicks so far.

    `clicks` is one list per page; for a single page, (query, ads), it may be the list itself. If it
    is None, the log keeps the clicks that the pages have, if any.
    """
    log = as_log(pages, clicks_required=clicks_required, one_pass=True)
    if clicks is not None:
        is_one_list = isinstance(pages, tuple) and all(
            isinstance(position, Integral) for position in clicks
        )
        log = with_clicks(log, cast(Sequence[Sequence[int]], [clicks] if is_one_list else clicks))
    return log if text is None else with_text(log, text)
