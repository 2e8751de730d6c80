"""Large random logs: Zipf over 200,000 queries, 500,000 ads, pages of 1 to 4."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

QUERIES, ADS, POOL = 200_000, 500_000, 8  # POOL: ads that compete for a query
ROW_GROUP = 1_000_000  # rows


def write_log(path: Path, sessions: int, *, seed: int, page: tuple[int, int] = (1, 4)) -> Path:
    """Write a log, unless it exists already."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    temporary = path.with_suffix(".writing")
    first = _draw_sessions(rng, 1, page)
    with pq.ParquetWriter(
        temporary, first.schema, compression="zstd", dictionary_pagesize_limit=64 << 20
    ) as writer:
        for start in range(0, sessions, ROW_GROUP):
            writer.write_table(
                _draw_sessions(rng, min(ROW_GROUP, sessions - start), page),
                row_group_size=ROW_GROUP,
            )
    temporary.replace(path)
    return path


def _draw_sessions(rng: np.random.Generator, sessions: int, page: tuple[int, int]) -> pa.Table:
    weights = np.cumsum(1 / np.arange(1, QUERIES + 1))
    query = np.searchsorted(weights, rng.random(sessions) * weights[-1]).astype(np.int32)
    length = rng.integers(page[0], page[1] + 1, sessions)
    session = np.repeat(np.arange(sessions), length)
    position = np.arange(len(session)) - (np.cumsum(length) - length)[session]
    slot = (rng.integers(0, POOL, sessions)[session] + position) % POOL
    ad = ((query[session].astype(np.int64) * POOL + slot) * 2_654_435_761 % ADS).astype(np.int32)
    click, counts = draw_clicks(rng, length)
    return pa.table(
        {
            "query": make_names("query words ", query),
            "ads": pa.ListArray.from_arrays(to_offsets(length), make_names("ad-", ad)),
            "clicks": pa.ListArray.from_arrays(to_offsets(counts), pa.array(click)),
        }
    )


def draw_clicks(rng: np.random.Generator, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions clicked, and clicks per session.

    About a third of the sessions have a click. A tenth of these have more than one, and a third of
    those have a backward click.
    """
    sessions = len(length)
    n_clicks = (rng.random(sessions) < 0.35).astype(np.int64) * (
        1 + (rng.random(sessions) < 0.1) + (rng.random(sessions) < 0.01)
    )
    counts = np.minimum(n_clicks, length)
    session = np.repeat(np.arange(sessions), counts)
    step = np.arange(len(session)) - (np.cumsum(counts) - counts)[session]
    first = (rng.random(sessions) ** 2 * length).astype(np.int64)
    stride = np.where(
        rng.random(sessions) < 0.3, length - 1, 1
    )  # length − 1 steps forward is one step back
    return ((first[session] + step * stride[session]) % length[session] + 1).astype(
        np.int32
    ), counts


def make_names(prefix: str, codes: np.ndarray) -> pa.Array:
    """A name for each code."""
    distinct, index = np.unique(codes, return_inverse=True)
    words = pa.array([f"{prefix}{code:07d}" for code in distinct.tolist()])
    return words.take(pa.array(index))


def to_offsets(sizes: np.ndarray) -> pa.Array:
    """The start of each list, from the sizes of the lists."""
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
