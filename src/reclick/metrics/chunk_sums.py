"""Score a fitted model: the sums of every session metric per chunk of sessions, in one pass.

The sums can be added, resampled and saved. Their size does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.hashing import GOLDEN_RATIO, splitmix64
from reclick.data.ragged import Bool, Float64, Int64
from reclick.data.stored_tables import read_numbers
from reclick.data.string_index import Interner
from reclick.engines import Engine
from reclick.errors import CannotAnswerError, StoreError, UsageError
from reclick.fitting.order_table import OrderTable
from reclick.logs import as_log
from reclick.metrics.predictions import BatchPredictions
from reclick.metrics.session_metrics import SESSION_METRICS
from reclick.models.base import ClickModel
from reclick.profile import VOLUME_NAMES, volume_bucket
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex

MAX_CHUNKS = 1000  # a log with fewer sessions has one chunk per session
SESSION_GROUPS = ("all", "reverse")
_ENDS = list(accumulate((metric.size for metric in SESSION_METRICS.values()), initial=0))
METRIC_COLUMNS = {
    name: slice(start, end)
    for name, start, end in zip(SESSION_METRICS, _ENDS[:-1], _ENDS[1:], strict=True)
}
N_COLUMNS = _ENDS[-1]
STORED_COLUMNS = [
    f"{name}:{column}" for name, metric in SESSION_METRICS.items() for column in range(metric.size)
]
CELL_COLUMNS = ("chunk", "reverse", "volume")
STORED_TABLES = {
    "sums": [*CELL_COLUMNS, *STORED_COLUMNS],
    "volumes": ["volume"],
    "reasons": ["metric", "reason"],
}


@dataclass(frozen=True, eq=False)
class ChunkSums:
    """The columns of all session metrics, summed by chunk, reverse or not, and query volume.

    The chunk of a session depends only on its row. It is the same for all models, so that their
    differences can be resampled in pairs. The sessions of a chunk are a random draw, so the sums
    of chunks are independent and identically distributed, and resampling chunks is equivalent to
    resampling sessions.
    """

    sums: Float64  # [chunk, reverse, volume, column]
    volumes: tuple[str, ...] = ()  # names of the buckets; empty if training volumes are unknown
    reasons: Mapping[str, str] = field(default_factory=dict)  # metric → why the model has no value

    def __add__(self, other: ChunkSums) -> ChunkSums:
        """The sums of two logs together."""
        if self.volumes != other.volumes:
            raise UsageError(
                "Sums with query volumes and sums without cannot be added: score both logs with"
                " the same volumes."
            )
        long, short = sorted((self.sums, other.sums), key=len, reverse=True)
        sums = long.copy()
        sums[: len(short)] += short
        return ChunkSums(sums, self.volumes, {**other.reasons, **self.reasons})

    @property
    def groups(self) -> list[tuple[str, str]]:
        """The groups that metrics are reported for, as (sessions, volume); "all" is first."""
        return [(group, volume) for group in SESSION_GROUPS for volume in ("all", *self.volumes)]

    @cached_property
    def group_sums(self) -> Float64:
        """The sums of each group [chunk, group, column]."""
        by_sessions = np.stack([self.sums.sum(axis=1), self.sums[:, 1]], axis=1)
        total = by_sessions.sum(axis=2, keepdims=True)
        parts = [total, by_sessions] if self.volumes else [total]
        return np.concatenate(parts, axis=2).reshape(len(self.sums), len(self.groups), N_COLUMNS)

    def to_tables(self) -> dict[str, pa.Table]:
        """The sums as Arrow tables, without empty cells."""
        cells = np.nonzero(_cells_to_store(self.sums))
        index = dict(zip(CELL_COLUMNS, cells, strict=True))
        columns = dict(zip(STORED_COLUMNS, self.sums[cells].T, strict=True))
        reasons = [self.reasons.get(name) for name in SESSION_METRICS]
        return {
            "sums": pa.table({**index, **columns}),
            "volumes": pa.table({"volume": pa.array(self.volumes, pa.string())}),
            "reasons": pa.table(
                {"metric": list(SESSION_METRICS), "reason": pa.array(reasons, pa.string())}
            ),
        }

    @classmethod
    def from_tables(cls, tables: Mapping[str, pa.Table]) -> ChunkSums:
        """The sums from their Arrow tables."""
        columns = {name: table.column_names for name, table in tables.items()}
        if columns != STORED_TABLES:
            raise StoreError(
                "These scores were made with other metrics than this version of Reclick has."
                " Score the models again."
            )
        volumes = tuple(tables["volumes"]["volume"].to_pylist())
        limits = MAX_CHUNKS, 2, max(1, len(volumes))
        chunk, reverse, volume = (
            read_numbers(tables, "sums", name, low=0, high=limit - 1).astype(np.int64)
            for name, limit in zip(CELL_COLUMNS, limits, strict=True)
        )
        sums = np.zeros((int(chunk.max(initial=-1)) + 1, *limits[1:], N_COLUMNS))
        sums[chunk, reverse, volume] = np.column_stack(
            [read_numbers(tables, "sums", name, finite=False) for name in STORED_COLUMNS]
        )
        reasons = (tables["reasons"][name].to_pylist() for name in ("metric", "reason"))
        return cls(sums, volumes, {name: why for name, why in zip(*reasons, strict=True) if why})


def _cells_to_store(sums: Float64) -> Bool:
    """Which cells to store [chunk, reverse, volume]: those with a session, and the last cell."""
    cells = np.asarray(sums.any(axis=-1))
    if cells.size:
        cells[-1, -1, -1] = True
    return cells


def assign_chunks(rows: Int64, seed: int) -> Int64:
    """The pseudo-random chunk of each row of a long log, from the row and the seed.

    >>> assign_chunks(np.arange(4), seed=0)
    array([535, 465, 110,  53])
    """
    hashes = splitmix64(rows.astype(np.uint64) + np.uint64((seed + 1) * GOLDEN_RATIO % 2**64))
    return (hashes % np.uint64(MAX_CHUNKS)).astype(np.int64)


# ---- scoring


class QueryVolumes:
    """The volumes of queries in the training log; 0 for other queries.

    >>> from reclick import count
    >>> log = {"query": ["pizza"] * 11, "ads": [["a"]] * 11, "clicks": [[1]] * 11}
    >>> volumes, queries = QueryVolumes(count(log)), pa.array(["pizza", "sushi"])
    >>> volumes.lookup(queries), volumes.buckets(queries)
    (array([11.,  0.]), array([1, 0]))
    """

    names = VOLUME_NAMES

    def __init__(self, counts: Counts) -> None:
        self._index = Interner()
        self._index.codes(counts.queries)
        self._volumes = np.append(counts.volumes, 0.0)  # the last is for code −1, an unknown query

    def lookup(self, queries: pa.Array) -> Float64:
        """The number of training sessions of each query [query]."""
        return np.asarray(self._volumes[self._index.find(queries)])

    def buckets(self, queries: pa.Array) -> Int64:
        """The volume bucket of each query [query], an index into `names`."""
        return volume_bucket(self.lookup(queries))

    def session_buckets(self, batch: SessionBatch) -> Int64:
        """The volume bucket of the query of each session [session]."""
        query_codes, index = np.unique(batch.query, return_inverse=True)
        return np.asarray(self.buckets(batch.queries.take(pa.array(query_codes)))[index])


class BatchColumns(NamedTuple):
    """The columns of metrics of a batch, the cells of its sessions, and reasons for gaps."""

    cell: Int64  # [session] reverse · volumes + volume
    columns: dict[str, Float64]  # metric → [session, column]
    reasons: dict[str, str]


def score(
    model: ClickModel,
    log: object,
    volumes: QueryVolumes | None = None,
    *,
    seed: int = 0,
    engine: Engine | None = None,
) -> ChunkSums:
    """Sum every session metric of a fitted model over a log.

    A `PoolEngine` or `SparkEngine` scores parts of the log in its tasks. `seed`
    decides the chunk of each session. It must be the same for all models that are compared.
    The clicks of a model without an order of clicks get one from an `OrderTable` of its training
    log.

    >>> from reclick.models import MODELS
    >>> log = {"query": ["pizza"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}
    >>> sums = score(MODELS["dctr"]().fit(log), log).sums  # few sessions, so a chunk for each
    >>> sums.shape[:3], sums[..., 0].sum(axis=(0, 2))  # clicked sessions: down the page, reverse
    ((3, 2, 1), array([1., 1.]))
    """
    map_parts = getattr(engine, "map_parts", None)
    log = as_log(log, one_pass=map_parts is None)
    accumulator = ChunkAccumulator(volumes, seed)
    order = None if model.ordered else OrderTable.fit(model.sequence_counts)
    if map_parts is not None:
        text = model._index_text(log.ads)
        for part in map_parts(partial(_score_part, model, volumes, order, text, seed), log):
            accumulator.merge(part)
        return accumulator.finish()
    for batch in model.map_pages(log, partial(_compute_columns, volumes, order), clicks=True):
        accumulator.add(batch)
    log.require_rows()
    return accumulator.finish()


def _score_part(
    model: ClickModel,
    volumes: QueryVolumes | None,
    order: OrderTable | None,
    text: TextIndex | None,
    seed: int,
    part: Any,
    before: int,
) -> ChunkAccumulator:
    """The sums of a part of a log; `before` is the number of sessions before it."""
    accumulator = ChunkAccumulator(volumes, seed, before)
    for batch in part.batches():
        for columns in model.map_batch(batch, partial(_compute_columns, volumes, order), text=text):
            accumulator.add(columns)
    return accumulator


def _compute_columns(
    volumes: QueryVolumes | None,
    order: OrderTable | None,
    sessions: SessionBatch,
    pages: PageDistribution,
) -> BatchColumns:
    batch, columns, reasons = BatchPredictions(sessions, pages, order), {}, {}
    for name, metric in SESSION_METRICS.items():
        try:
            columns[name] = metric.columns(batch)
        except CannotAnswerError as error:
            reasons[name] = str(error)
    if volumes is None:
        return BatchColumns(batch.reverse.astype(np.int64), columns, reasons)
    cell = batch.reverse * len(volumes.names) + volumes.session_buckets(sessions)
    return BatchColumns(cell, columns, reasons)


class ChunkAccumulator:
    """Adds batches in their order, so that the same log always gives exactly the same sums.

    The first sessions have separate chunks, with one session each: whether the log has too many
    sessions for that is known only at its end.
    """

    def __init__(self, volumes: QueryVolumes | None, seed: int, first: int = 0) -> None:
        self._names = volumes.names if volumes else ()
        self._seed = seed
        self._n_cells = 2 * max(1, len(self._names))
        self._sums = np.zeros((2 * MAX_CHUNKS * self._n_cells, N_COLUMNS))
        self._sessions = first  # number of sessions so far, including earlier parts
        self._reasons: dict[str, str] = {}

    def add(self, batch: BatchColumns) -> None:
        """Add the next batch of the log."""
        row = np.arange(self._sessions, self._sessions + len(batch.cell))
        chunk = np.where(row < MAX_CHUNKS, row, MAX_CHUNKS + assign_chunks(row, self._seed))
        for name, columns in batch.columns.items():
            _add_rows(
                columns, chunk * self._n_cells + batch.cell, self._sums, METRIC_COLUMNS[name].start
            )
        self._sessions += len(batch.cell)
        self._reasons = {**batch.reasons, **self._reasons}

    def merge(self, part: ChunkAccumulator) -> None:
        """Add the sums of the next part of the log."""
        self._sums += part._sums
        self._sessions = part._sessions
        self._reasons = {**part._reasons, **self._reasons}

    def finish(self) -> ChunkSums:
        """The sums of all batches."""
        single_rows, hashed_rows = self._sums.reshape(2, MAX_CHUNKS, -1)
        if self._sessions > MAX_CHUNKS:
            _add_rows(single_rows, assign_chunks(np.arange(MAX_CHUNKS), self._seed), hashed_rows, 0)
        flat = hashed_rows if self._sessions > MAX_CHUNKS else single_rows[: self._sessions]
        sums = flat.reshape(len(flat), 2, -1, N_COLUMNS).copy()
        for name in self._reasons:
            sums[..., METRIC_COLUMNS[name]] = 0.0  # other batches may have had values
        reasons = {name: self._reasons[name] for name in SESSION_METRICS if name in self._reasons}
        return ChunkSums(sums, self._names, reasons)


@kernel
def _add_rows(columns: Float64, row: Int64, sums: Float64, first: int) -> None:
    """Add the columns of each session to its row of the sums, starting at column `first`."""
    for s in range(len(row)):
        for c in range(columns.shape[1]):
            sums[row[s], first + c] += columns[s, c]
