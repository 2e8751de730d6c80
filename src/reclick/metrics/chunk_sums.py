"""What scoring a model leaves behind: sums per chunk of sessions, which add, resample and save. The size does not grow with the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int64
from reclick.errors import SettingError, StoreError
from reclick.metrics.session_metrics import SESSION_METRICS

CHUNKS = 1000  # of sessions; a log with fewer sessions has a chunk for each
KINDS = ("all", "reverse")  # of sessions
_ENDS = list(accumulate((metric.size for metric in SESSION_METRICS.values()), initial=0))
COLUMNS = {
    name: slice(start, end)
    for name, start, end in zip(SESSION_METRICS, _ENDS[:-1], _ENDS[1:], strict=True)
}  # of each metric
WIDTH = _ENDS[-1]
STORED = [
    f"{name}:{place}" for name, metric in SESSION_METRICS.items() for place in range(metric.size)
]


@dataclass(frozen=True, eq=False)
class SessionSums:
    """The columns of all session metrics, summed over the sessions of each chunk that do or do not go back, by volume of the query.

    Which chunk a session is in depends on its row alone: the same for all models, so that their differences can be resampled in pairs. The sessions
    of a chunk are a random draw, so the chunks' sums are independent and alike, and resampling chunks is as good as resampling sessions.
    """

    sums: Float64  # [chunk, goes back, volume, column]
    volumes: tuple[
        str, ...
    ] = ()  # the buckets' names; none where training volumes are unknown, and all sessions are in one
    reasons: Mapping[str, str] = field(
        default_factory=dict
    )  # metric → why the model cannot answer it

    def __add__(self, other: SessionSums) -> SessionSums:
        """The sums of two logs together."""
        if self.volumes != other.volumes:
            raise SettingError(
                "Sums with volumes of queries and sums without do not add: score both logs with the same volumes."
            )
        long, short = sorted((self.sums, other.sums), key=len, reverse=True)
        sums = long.copy()
        sums[: len(short)] += short
        return SessionSums(sums, self.volumes, {**other.reasons, **self.reasons})

    @property
    def groups(self) -> list[tuple[str, str]]:
        """What the metrics are told for: (sessions, volume), each "all" first."""
        return [(kind, volume) for kind in KINDS for volume in ("all", *self.volumes)]

    @cached_property
    def grouped(self) -> Float64:
        """The sums of each group [chunk, group, column]."""
        by_kind = np.stack(
            [self.sums.sum(axis=1), self.sums[:, 1]], axis=1
        )  # [chunk, kind, volume, column]
        whole = by_kind.sum(axis=2, keepdims=True)
        parts = [whole, by_kind] if self.volumes else [whole]
        return np.concatenate(parts, axis=2).reshape(len(self.sums), len(self.groups), WIDTH)

    def to_tables(self) -> dict[str, pa.Table]:
        """The sums as Arrow tables, without the cells that no session is in."""
        chunk, back, volume = np.nonzero(_kept(self.sums))
        place = {"chunk": chunk, "back": back, "volume": volume}
        columns = dict(zip(STORED, self.sums[chunk, back, volume].T, strict=True))
        reasons = [self.reasons.get(name) for name in SESSION_METRICS]
        return {
            "sums": pa.table({**place, **columns}),
            "volumes": pa.table({"volume": pa.array(self.volumes, pa.string())}),
            "reasons": pa.table(
                {"metric": list(SESSION_METRICS), "reason": pa.array(reasons, pa.string())}
            ),
        }

    @classmethod
    def from_tables(cls, tables: Mapping[str, pa.Table]) -> SessionSums:
        """The sums from their Arrow tables."""
        table = tables["sums"]
        if table.column_names[3:] != STORED:
            raise StoreError(
                "These scores were made with other metrics than this Reclick has. Score the models again."
            )
        chunk, back, volume = (_values(table[name]) for name in ("chunk", "back", "volume"))
        volumes = tuple(tables["volumes"]["volume"].to_pylist())
        sums = np.zeros((int(chunk.max(initial=-1)) + 1, 2, max(1, len(volumes)), WIDTH))
        sums[chunk, back, volume] = np.column_stack([_values(table[name]) for name in STORED])
        told = zip(
            tables["reasons"]["metric"].to_pylist(),
            tables["reasons"]["reason"].to_pylist(),
            strict=True,
        )
        return cls(sums, volumes, {name: reason for name, reason in told if reason is not None})


def _kept(sums: Float64) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The cells worth storing [chunk, goes back, volume]: those with anything in them, and the very last, which tells how many there are."""
    kept = np.asarray(sums.any(axis=-1))
    if kept.size:
        kept[-1, -1, -1] = True
    return kept


def _values(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False))


def chunk_of(row: Int64, seed: int) -> Int64:
    """The chunk of each session of a long log by its row, as good as random: the row and the seed, mixed bit by bit.

    >>> chunk_of(np.arange(4), seed=0)
    array([535, 465, 110,  53])
    """
    mixed = row.astype(np.uint64) + np.uint64(
        (seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64
    )
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(CHUNKS)).astype(np.int64)
