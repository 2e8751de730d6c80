"""Counts: the sufficient statistics of a log. They add, subtract, decay and save."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.data.batch import Float64, Int32, Int64
from reclick.errors import LogError, SettingError
from reclick.runtime import artifact
from reclick.runtime.progress import Progress

TRACE = 1e-6  # sessions: what decay may leave of a query in one table and not in another


@dataclass(frozen=True, eq=False)
class Counts:
    """What a log comes to, in one canonical order, so that equal logs give equal counts.

    A click list is the positions clicked, in order; `()` is a session without a click. With weights that are whole numbers every total is exact,
    so the counts of all days equal the sum of the days', and taking a day away equals never having counted it.
    """

    queries: pa.LargeStringArray  # [query] sorted
    ads: pa.LargeStringArray  # [ad] sorted
    pair_query: Int32  # [pair] sorted by query, then ad
    pair_ad: Int32  # [pair]
    impressions: Float64  # [pair]
    clicks: Float64  # [pair]
    last_clicks: Float64  # [pair] sessions whose last click was on it: κ'; κ = clicks − last_clicks
    sequence_starts: Int64  # [sequence + 1] where each distinct click list starts
    sequence_clicks: Int32  # the positions of every click list, end to end
    visit_query: Int32  # [visit] a query and a click list that occurred together
    visit_sequence: Int32  # [visit]
    sessions: Float64  # [visit] how often
    lengths: Float64  # [page length, number of clicks] sessions

    def __add__(self, other: Counts) -> Counts:
        return _combined(self, other, 1.0)

    def __sub__(self, other: Counts) -> Counts:
        result = _combined(self, other, -1.0)
        if not result._is_of_a_log():
            raise SettingError(
                "Counts to subtract hold more than the counts they are taken from: subtract only what was added before."
            )
        return result

    def _is_of_a_log(self) -> bool:
        """Whether some log may have these counts: none negative, no more clicks than impressions, every query with ads and sessions.

        Decay leaves traces too small to tell from rounding; they may be of either without the other.
        """
        parts = (
            self.impressions - self.clicks,
            self.clicks - self.last_clicks,
            self.last_clicks,
            self.sessions,
            self.lengths,
        )
        least = min(float(part.min(initial=0)) for part in parts)
        shown = np.bincount(self.pair_query, self.impressions, minlength=len(self.queries))
        alone = np.where((shown > 0) & (self.volumes > 0), 0.0, shown + self.volumes)
        return least >= -1e-9 and float(alone.max(initial=0.0)) <= TRACE

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        return all(
            _same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Counts({self.total:,.0f} sessions, {len(self.queries):,} queries, {len(self.ads):,} ads, {len(self.impressions):,} pairs)"

    def decay(self, factor: float) -> Counts:
        """Every count times a factor in (0, 1]: how a daily job lets old days fade."""
        if not 0 < factor <= 1:
            raise SettingError(
                f"decay: got {factor!r}, expected a factor above 0 and at most 1, such as 0.9."
            )
        scaled = {
            name: getattr(self, name) * factor
            for name in ("impressions", "clicks", "last_clicks", "sessions", "lengths")
        }
        return replace(self, **scaled)

    @property
    def total(self) -> float:
        """How many sessions (the sum of their weights)."""
        return float(self.sessions.sum())

    @property
    def volumes(self) -> Float64:
        """Sessions of each query [query]."""
        return np.bincount(self.visit_query, self.sessions, minlength=len(self.queries)).astype(
            np.float64
        )

    @property
    def max_ads(self) -> int:
        """The longest page."""
        return int(self.lengths.shape[0]) - 1

    def per_sequence(self) -> Float64:
        """Sessions of each click list over all queries [sequence]."""
        return np.bincount(
            self.visit_sequence, self.sessions, minlength=len(self.sequence_starts) - 1
        ).astype(np.float64)

    def save(self, folder: str | Path) -> None:
        """Write the counts to a folder; a reader sees the old ones or the new ones, never half."""
        artifact.write(folder, kind="counts", settings={}, tables=self.to_tables())

    @classmethod
    def load(cls, folder: str | Path) -> Counts:
        """Read counts that were saved."""
        return cls.from_tables(artifact.read(folder, kind="counts").tables)

    def to_tables(self) -> dict[str, pa.Table]:
        """The counts as Arrow tables."""
        length, number = np.nonzero(self.lengths)
        return {
            "queries": pa.table({"query": self.queries}),
            "ads": pa.table({"ad": self.ads}),
            "pairs": pa.table(
                {
                    "query": self.pair_query,
                    "ad": self.pair_ad,
                    "impressions": self.impressions,
                    "clicks": self.clicks,
                    "last_clicks": self.last_clicks,
                }
            ),
            "sequences": pa.table(
                {
                    "clicks": pa.LargeListArray.from_arrays(
                        self.sequence_starts, self.sequence_clicks
                    )
                }
            ),
            "visits": pa.table(
                {
                    "query": self.visit_query,
                    "sequence": self.visit_sequence,
                    "sessions": self.sessions,
                }
            ),
            "lengths": pa.table(
                {"ads": length, "clicks": number, "sessions": self.lengths[length, number]}
            ),
        }

    @classmethod
    def from_tables(cls, tables: dict[str, pa.Table]) -> Counts:
        """The counts from their Arrow tables."""
        pairs, visits = _columns(tables["pairs"]), _columns(tables["visits"])
        sequences = tables["sequences"]["clicks"].combine_chunks().cast(pa.large_list(pa.int32()))
        lengths = _columns(tables["lengths"])
        dense = np.zeros((lengths["ads"].max(initial=0) + 1, lengths["clicks"].max(initial=0) + 1))
        dense[lengths["ads"], lengths["clicks"]] = lengths["sessions"]
        return cls(
            queries=tables["queries"]["query"].combine_chunks().cast(pa.large_string()),
            ads=tables["ads"]["ad"].combine_chunks().cast(pa.large_string()),
            pair_query=pairs["query"],
            pair_ad=pairs["ad"],
            impressions=pairs["impressions"],
            clicks=pairs["clicks"],
            last_clicks=pairs["last_clicks"],
            sequence_starts=sequences.offsets.to_numpy(),
            sequence_clicks=sequences.values.to_numpy(),
            visit_query=visits["query"],
            visit_sequence=visits["sequence"],
            sessions=visits["sessions"],
            lengths=dense,
        )


def count(sessions: object, *, progress: Progress | None = None) -> Counts:
    """Count a log in one pass.

    >>> count({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})
    Counts(1 sessions, 1 queries, 2 ads, 2 pairs)
    """
    from reclick.engines.local.counter import (
        Counter,
    )  # kernels are compiled, so numba waits until it is needed
    from reclick.logs import as_log

    counter, log = Counter(), as_log(sessions)
    counter.add_batches(log.batches(progress=progress))
    log.refuse_nothing()
    return refuse_weightless(counter.finish(), log.name)


def refuse_weightless(counts: Counts, name: str) -> Counts:
    """The counts, unless every session had weight 0."""
    if counts.total <= 0:
        raise LogError(
            f"{name}: every session has weight 0, so there is nothing to learn from. Look at the weight column."
        )
    return counts


def as_counts(sessions: object, *, progress: Progress | None = None) -> Counts:
    """Counts as they are, those of grouped sessions, those of a folder that holds counts, or those of a log."""
    from reclick.data.grouped_sessions import Sessions

    if isinstance(sessions, Counts):
        return sessions
    if isinstance(sessions, Sessions):
        return sessions.counts
    if artifact.is_stored(sessions):
        return Counts.load(cast("str | Path", sessions))
    return count(sessions, progress=progress)


def _combined(a: Counts, b: Counts, sign: float) -> Counts:
    from reclick.engines.local.counter import Counter

    counter = Counter()
    counter.add_counts(a)
    counter.add_counts(b, sign)
    return counter.finish()


def _columns(table: pa.Table) -> dict[str, npt.NDArray[Any]]:
    return {
        name: table[name].combine_chunks().to_numpy(zero_copy_only=False)
        for name in table.column_names
    }


def _same(a: object, b: object) -> bool:
    return bool(a.equals(b)) if isinstance(a, pa.Array) else bool(np.array_equal(a, b))  # type: ignore[arg-type]
