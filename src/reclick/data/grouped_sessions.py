"""Grouped sessions: the distinct sessions of a log with their weights, in blocks of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.counts import Counts
from reclick.data.hashing import content_hash, draw_queries
from reclick.data.outcomes import UNKNOWN_OUTCOME, Int8
from reclick.data.ragged import Bool, Float64, Int32, Int64, read_only, slice_runs, take_runs
from reclick.errors import SettingError, check_whole
from reclick.runtime.arguments import check_arguments

BLOCK_IMPRESSIONS = 1 << 15  # passing a smaller block to a thread takes about as long as its work
USUAL_BLOCKS = 64  # of a large log
LARGE_BLOCK_IMPRESSIONS = 1 << 20  # where there are more blocks than usual


def count_blocks(impressions: int) -> int:
    """The number of blocks for this many impressions of distinct sessions.

    >>> [count_blocks(10**power) for power in (4, 5, 6, 7, 8, 9)]
    [1, 3, 30, 64, 95, 953]
    """
    small, large = impressions // BLOCK_IMPRESSIONS, impressions // LARGE_BLOCK_IMPRESSIONS
    return max(1, min(small, USUAL_BLOCKS), large)


class BlockRows(NamedTuple):
    """The rows of the queries, pairs and cells of a block among those of a log."""

    queries: slice
    pairs: slice
    cells: slice = slice(0, 0)

    def up_to(self, last: BlockRows) -> BlockRows:
        """The rows of a run of blocks, from this one to the last."""
        if not isinstance(last, BlockRows):
            raise SettingError("last", last, "the rows of a block")
        ends = zip(self, last, strict=True)
        return BlockRows(*(slice(first.start, end.stop) for first, end in ends))


class RowRun:
    """The values of a run of rows, indexed by the numbers of the rows in the whole array.

    An engine whose steps run in other processes sends a block only its own rows.

    >>> RowRun(np.arange(10.0), slice(4, 7))[5:7]
    array([5., 6.])
    """

    __slots__ = ("_first", "_values")

    def __init__(self, values: Float64, rows: slice) -> None:
        self._first, self._values = rows.start, values[rows]

    def __getitem__(self, rows: slice) -> Float64:
        low, high = rows.start - self._first, rows.stop - self._first
        if low < 0 or high > len(self._values):
            raise IndexError(f"rows {rows} are not among those of the block")
        return self._values[low:high]


def cut_rows(
    parameters: Any, rows: BlockRows, pairs: Sequence[str] = (), queries: Sequence[str] = ()
) -> Any:
    """Reduce the parameters per pair and per query in a named tuple to the rows of a block.

    A number, which is the same for all queries, stays.
    """
    parts: dict[str, Any] = {name: RowRun(getattr(parameters, name), rows.pairs) for name in pairs}
    for name in queries:
        value = getattr(parameters, name)
        parts[name] = RowRun(value, rows.queries) if isinstance(value, np.ndarray) else value
    return parameters._replace(**parts)


@dataclass(frozen=True, slots=True, eq=False)
class QueryBlock:
    """Weighted distinct sessions of a run of queries, in the order of the queries, without strings.

    It has all pairs of its queries, also those that no session of the block shows. They are
    numbered from 0: pair i of a block is row `first_pair` + i of the log's counts.
    """

    first_query: int
    first_pair: int
    pair_query: Int32  # [pair] counts from first_query
    pair: Int32  # [impression] counts from first_pair, page after page
    page: Int64  # [session + 1] where each page starts in pair
    click: Int32  # [click] positions from 1, in the order clicked
    clicks: Int64  # [session + 1] where each session's clicks start in click
    weight: Float64  # [session] how many sessions of the log are this one
    outcome: Int8 | None = None  # [session] of the last click; None when all are unknown

    def __post_init__(self) -> None:
        for field in fields(self)[2:]:  # so that kernels get one type of array, and compile once
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, read_only(value))

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def n_pairs(self) -> int:
        """The number of pairs of these queries."""
        return len(self.pair_query)

    @property
    def n_queries(self) -> int:
        """The number of queries."""
        return int(self.pair_query[-1]) + 1 if len(self.pair_query) else 0

    @property
    def pairs(self) -> slice:
        """The rows of the log's pairs that this block has."""
        return slice(self.first_pair, self.first_pair + self.n_pairs)

    @property
    def queries(self) -> slice:
        """The rows of the log's queries that this block has."""
        return slice(self.first_query, self.first_query + self.n_queries)

    @property
    def rows(self) -> BlockRows:
        """The rows of the log's queries and pairs that this block has."""
        return BlockRows(self.queries, self.pairs)

    @property
    def max_ads(self) -> int:
        """The longest page."""
        return int(np.diff(self.page).max(initial=1))

    @property
    def query(self) -> Int32:
        """The query of each session, counted from first_query [session]."""
        return self.pair_query[self.pair[self.page[:-1]]]

    @property
    def impressions(self) -> Float64:
        """The impressions of each pair in these sessions [pair]."""
        weights = np.repeat(self.weight, np.diff(self.page))
        return np.bincount(self.pair, weights, self.n_pairs).astype(np.float64)

    @property
    def volumes(self) -> Float64:
        """The sessions of each query [query]."""
        return np.bincount(self.query, self.weight, self.n_queries).astype(np.float64)

    @property
    def lowest_click_outcome(self) -> Int8 | None:
        """The outcome of the lowest click [session]; unknown unless it is the last click."""
        if self.outcome is None:
            return None
        lowest_is_last = np.zeros(len(self), bool)
        has_clicks = np.diff(self.clicks) > 0
        if has_clicks.any():
            lowest = np.maximum.reduceat(self.click, self.clicks[:-1][has_clicks])
            lowest_is_last[has_clicks] = lowest == self.click[self.clicks[1:][has_clicks] - 1]
        return np.where(lowest_is_last, self.outcome, np.int8(UNKNOWN_OUTCOME))

    def select(self, rows: Int64) -> QueryBlock:
        """Some of the sessions, with the same pairs and queries."""
        pair, page = take_runs(self.pair, self.page, rows)
        click, clicks = take_runs(self.click, self.clicks, rows)
        return replace(
            self,
            pair=pair,
            page=page,
            click=click,
            clicks=clicks,
            weight=self.weight[rows],
            outcome=None if self.outcome is None else self.outcome[rows],
        )

    def reweight(self, weight: Float64) -> QueryBlock:
        """The same sessions with other weights [session], without those of weight 0."""
        return replace(self, weight=weight).select(np.flatnonzero(weight > 0))

    def ungroup(self) -> QueryBlock:
        """A row per session of a log without weights, in an order that their content determines."""
        content = content_hash(self.pair, self.page, self.click, self.clicks)
        order = np.lexsort((content, self.query))
        copies = self.weight[order].astype(np.int64)
        return replace(self, weight=np.ones(len(self))).select(order.repeat(copies))

    @check_arguments
    def split(self, n: int) -> list[QueryBlock]:
        """Split into at most `n` blocks of about equal size, which have all pairs and queries."""
        query = self.query
        targets = np.searchsorted(self.page, np.linspace(0, self.page[-1], n + 1)[1:-1])
        target_query = query[np.minimum(targets, len(query) - 1)] if len(query) else targets[:0]
        below, above = (np.searchsorted(query, target_query, side) for side in ("left", "right"))
        nearest = np.where(targets - below <= above - targets, below, above)
        cuts = np.unique(np.concatenate([[0], nearest[(nearest > 0) & (nearest < len(self))]]))
        edges = [*cuts.tolist(), len(self)]
        first_queries = [0, *query[cuts[1:]].tolist(), self.n_queries]
        runs = zip(pairwise(edges), pairwise(first_queries), strict=True)
        return [self._run(*sessions, *queries) for sessions, queries in runs]

    def _run(self, first: int, last: int, first_query: int, last_query: int) -> QueryBlock:
        low, high = np.searchsorted(self.pair_query, [first_query, last_query]).tolist()
        pair, page = slice_runs(self.pair, self.page, first, last)
        click, clicks = slice_runs(self.click, self.clicks, first, last)
        return QueryBlock(
            first_query=self.first_query + first_query,
            first_pair=self.first_pair + low,
            pair_query=self.pair_query[low:high] - np.int32(first_query),
            pair=pair - np.int32(low),
            page=page,
            click=click,
            clicks=clicks,
            weight=self.weight[first:last],
            outcome=None if self.outcome is None else self.outcome[first:last],
        )


class LogSize(NamedTuple):
    """The size of a log."""

    sessions: float  # the sum of their weights
    longest: int  # page
    has_weights: bool


@dataclass(frozen=True, slots=True, eq=False)
class GroupedSessions:
    """The distinct sessions of a log in the order of their queries, and its counts."""

    counts: Counts  # of the whole log, even if `select` has taken only some of its sessions
    whole: QueryBlock  # all sessions; its pairs are the rows of the counts' pairs
    log: LogSize | None = None  # of the whole log, if these are the sessions of one bucket

    def __len__(self) -> int:
        return len(self.whole)

    def __repr__(self) -> str:
        log = f"{len(self):,} distinct of {self.counts.total:,.0f}"
        return f"GroupedSessions({log}, {len(self.counts.impressions):,} pairs)"

    @property
    def pair(self) -> Int32:
        """The pair of each impression, page after page [impression]."""
        return self.whole.pair

    @property
    def page(self) -> Int64:
        """Where each page starts [session + 1]."""
        return self.whole.page

    @property
    def click(self) -> Int32:
        """The positions clicked, from 1, in their order [click]."""
        return self.whole.click

    @property
    def clicks(self) -> Int64:
        """Where each session's clicks start [session + 1]."""
        return self.whole.clicks

    @property
    def weight(self) -> Float64:
        """How many sessions of the log are this one [session]."""
        return self.whole.weight

    @property
    def outcome(self) -> Int8 | None:
        """What happened after the last click [session]; None when all outcomes are unknown."""
        return self.whole.outcome

    @property
    def max_ads(self) -> int:
        """The longest page of the log."""
        return self.whole.max_ads if self.log is None else self.log.longest

    @property
    def n_sessions(self) -> float:
        """The sessions of the log."""
        return float(self.weight.sum()) if self.log is None else self.log.sessions

    @property
    def has_weights(self) -> bool:
        """Whether a session of the log counted more or less than once."""
        if self.log is not None:
            return self.log.has_weights
        records = self.counts.logs
        rows, has_fractions = sum(each.sessions for each in records), (self.weight % 1 != 0).any()
        return any(each.has_weights for each in records) or bool(
            rows != self.counts.total or has_fractions
        )

    def without_outcomes(self) -> GroupedSessions:
        """The same sessions, whose outcomes are unknown."""
        return replace(self, whole=replace(self.whole, outcome=None))

    def select(self, rows: Int64) -> GroupedSessions:
        """Some of the sessions, with the same pairs: for cross-validation."""
        return replace(self, whole=self.whole.select(rows))

    def reweight(self, weight: Float64) -> GroupedSessions:
        """The same sessions with other weights [session], without those of weight 0."""
        return replace(self, whole=self.whole.reweight(weight))

    @check_arguments
    def blocks(self, n: int | None = None) -> list[QueryBlock]:
        """The sessions in at most `n` blocks of about equal size, cut between queries.

        The default depends on the sessions alone, so every engine, with any number of threads or
        tasks, adds up the same sums in the same order and rounds them in the same way.
        """
        return self.whole.split(count_blocks(len(self.pair)) if n is None else n)

    @check_arguments
    def select_queries(self, n_sessions: int) -> GroupedSessions:
        """Select about this many distinct sessions: all those of some queries; pairs stay."""
        if len(self) <= n_sessions:
            return self
        return self.select(np.flatnonzero(self._draw_queries(n_sessions)[self.whole.query]))

    def _draw_queries(self, n_sessions: int) -> Bool:
        """Draw queries by a hash of their text, with about this many sessions; a mask [query]."""
        n_sessions = check_whole("n_sessions", n_sessions, 0)
        return draw_queries(self.counts.queries, n_sessions / len(self))

    @check_arguments
    def sample_queries(self, n_sessions: int) -> GroupedSessions:
        """Sample about this many distinct sessions: all those of queries drawn by their text.

        The ads keep their codes; queries and pairs are renumbered.
        """
        if len(self) <= n_sessions:
            return self
        return self.keep_queries(self._draw_queries(n_sessions))

    def keep_queries(self, is_selected: Bool) -> GroupedSessions:
        """All sessions of the selected queries [query]; queries and pairs are renumbered."""
        counts, block = self.counts, self.whole
        pairs = is_selected[counts.pair_query]
        query, pair = np.cumsum(is_selected) - 1, np.cumsum(pairs) - 1  # new codes
        sample = block.select(np.flatnonzero(is_selected[block.query]))
        visits = is_selected[counts.visit_query]
        pair_query = query[counts.pair_query[pairs]].astype(np.int32)
        new_counts = replace(
            counts,
            queries=counts.queries.filter(pa.array(is_selected)),
            pair_query=pair_query,
            pair_ad=counts.pair_ad[pairs],
            impressions=counts.impressions[pairs],
            clicks=counts.clicks[pairs],
            last_clicks=counts.last_clicks[pairs],
            visit_query=query[counts.visit_query[visits]].astype(np.int32),
            visit_sequence=counts.visit_sequence[visits],
            sessions=counts.sessions[visits],
            outcomes=None if counts.outcomes is None else counts.outcomes.select(pairs, visits),
        )
        new_pair = pair[sample.pair].astype(np.int32)
        return GroupedSessions(new_counts, replace(sample, pair=new_pair, pair_query=pair_query))
