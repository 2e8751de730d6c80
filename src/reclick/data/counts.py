"""Counts: the sufficient statistics of a log. They add, subtract, decay and save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.log_record import (
    LogRecord,
    records_from_table,
    records_to_table,
    remove_logs,
)
from reclick.data.outcomes import N_OUTCOMES, OUTCOME_NAMES, UNKNOWN_OUTCOME, OutcomeCounts
from reclick.data.ragged import Float64, Int32, Int64, read_only, run_indices
from reclick.data.result_tables import tables_from_results
from reclick.data.stored_tables import (
    MOST_CELLS,
    read_codes,
    read_lists,
    read_numbers,
    read_strings,
    require_ascending,
    table_error,
)
from reclick.errors import LogError, SettingError, StoreError, UsageError
from reclick.runtime import artifact
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location, resolve
from reclick.runtime.jit import kernel
from reclick.runtime.wording import count_noun

DECAY_TRACE = 1e-6  # residue of a query that decay may leave in one table only
COUNT_ROUNDING = 1e-9  # the largest rounding error in a difference of decayed counts
MAX_TOTAL = 2.0**53  # larger whole numbers do not add exactly
LOW_BITS = (1 << 32) - 1
PAIR_TOTALS = ("impressions", "clicks", "last_clicks")


@dataclass(slots=True, eq=False)
class CountsFolder:
    """A folder that counts were loaded from or saved to, and the fingerprint of its content then.

    Counts share it with those that are made from them, so that a save is known to all of them.
    """

    place: str
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Counts:
    """The sufficient statistics of a log, in one canonical order: equal logs give equal counts.

    A click sequence is the positions clicked, in order; `()` is a session without a click. If the
    weights are whole numbers, all totals are exact: the counts of several days equal the sum of
    the counts of each day, and subtracting a day gives the counts without it.
    """

    queries: pa.LargeStringArray  # [query] sorted
    ads: pa.LargeStringArray  # [ad] sorted
    pair_query: Int32  # [pair] sorted by query, then ad
    pair_ad: Int32  # [pair]
    impressions: Float64  # [pair]
    clicks: Float64  # [pair]
    last_clicks: Float64  # [pair] sessions whose last click was on it: κ'; κ = clicks − last_clicks
    sequence_starts: Int64  # [sequence + 1] where each distinct click sequence starts
    sequence_clicks: Int32  # the positions of every click sequence, end to end
    visit_query: Int32  # [visit] a query and a click sequence that occurred together
    visit_sequence: Int32  # [visit]
    sessions: Float64  # [visit] how often
    lengths: Float64  # [page length, number of clicks] sessions
    outcomes: OutcomeCounts | None = None  # of clicks; None where all are unknown
    logs: tuple[LogRecord, ...] = field(default=(), compare=False)  # the logs that were counted
    # of these counts, and of those that they were made from
    folders: tuple[CountsFolder, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for each in fields(self):  # so that kernels get one type of array, and compile once
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, each.name, read_only(value))

    def __add__(self, other: Counts) -> Counts:
        _check_counts(other)
        return require_exact_totals(_merge(self, other, 1.0), "The sum of the counts")

    def __radd__(self, other: Any) -> Counts:
        is_start_of_sum = type(other) is int and other == 0
        return self if is_start_of_sum else self + other

    def __sub__(self, other: Counts) -> Counts:
        _check_counts(other)
        result = _merge(self, other, -1.0)
        if not result._is_possible():
            raise UsageError(
                "Counts to subtract hold more than the counts they are taken from: "
                "subtract only what was added before."
            )
        return result

    def _is_possible(self) -> bool:
        """Whether a log with these counts is possible.

        No count is negative, no pair has more clicks than impressions, and every query has ads and
        sessions. After decay, rounding may leave a residue of a query's impressions without one of
        its sessions, or the reverse; a residue up to `DECAY_TRACE` is allowed.
        """
        outcomes = self.outcomes
        outcome_tables = () if outcomes is None else (outcomes.last, outcomes.earlier)
        if not all(
            part.min(initial=0) >= -COUNT_ROUNDING for part in (self.lengths, *outcome_tables)
        ):
            return False
        query_impressions, query_sessions = np.zeros((2, len(self.queries)))
        totals = self.impressions, self.clicks, self.last_clicks
        possible = is_possible(
            self.pair_query,
            *totals,
            self.visit_query,
            self.sessions,
            query_impressions,
            query_sessions,
        )
        return bool(possible)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        return all(
            _same(getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)
            if each.compare
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = f"{count_noun(len(self.queries), 'query')}, {count_noun(len(self.ads), 'ad')}"
        pairs = count_noun(len(self.impressions), "pair")
        return f"Counts({count_noun(self.total, 'session')}, {names}, {pairs})"

    @classmethod
    def sum(cls, parts: Sequence[Counts]) -> Counts:
        """The sum of all parts, which is the same as adding them one by one.

        >>> from reclick import count
        >>> day = count({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})
        >>> Counts.sum([day, day, day]) == day + day + day
        True
        """
        if not isinstance(parts, list | tuple) or not parts:
            raise SettingError("parts", parts, "a list of counts, one or more")
        for part in parts:
            if not isinstance(part, Counts):
                raise SettingError("parts", part, "counts, such as rc.count returns")
        return parts[0] if len(parts) == 1 else _sum(parts)

    def split(self, part: Int64, n: int) -> list[Counts]:
        """The counts of n parts of the queries, given the part of each query [query].

        Page lengths, and outcomes of clicks that were not the last of their session, are not known
        per query: the parts do not have them.
        """
        return [_select(self, queries) for queries in _runs_of(part, n)]

    def pool(self) -> Counts:
        """The counts as if all queries and all ads were one: the totals of the log.

        >>> from reclick import count
        >>> log = {"query": ["pizza", "tea"], "ads": [["a"], ["b"]], "clicks": [[1], []]}
        >>> pooled = count(log).pool()
        >>> pooled.impressions, pooled.clicks, pooled.per_sequence()
        (array([2.]), array([1.]), array([1., 1.]))
        """
        one, codes = pa.array([""], pa.large_string()), np.zeros(1, np.int32)
        n_sequences = len(self.sequence_starts) - 1
        outcomes = self.outcomes
        if outcomes is not None:
            visits = np.zeros((n_sequences, N_OUTCOMES))
            np.add.at(visits, self.visit_sequence, outcomes.visits)
            last = outcomes.last.sum(axis=0, keepdims=True)
            outcomes = OutcomeCounts(last, visits, outcomes.earlier)
        totals = {name: getattr(self, name).sum(keepdims=True) for name in PAIR_TOTALS}
        return replace(
            self,
            queries=one,
            ads=one,
            pair_query=codes,
            pair_ad=codes,
            **totals,
            visit_query=np.zeros(n_sequences, np.int32),
            visit_sequence=np.arange(n_sequences, dtype=np.int32),
            sessions=self.per_sequence(),
            outcomes=outcomes,
        )

    @check_arguments
    def decay(self, factor: float) -> Counts:
        """Multiply all counts by a factor in (0, 1]: old days lose weight in a daily job."""
        if not 0 < factor <= 1:
            raise SettingError("decay", factor, "a factor above 0 and at most 1, such as 0.9")
        scaled = {
            name: getattr(self, name) * factor
            for name in ("impressions", "clicks", "last_clicks", "sessions", "lengths")
        }
        outcomes = None if self.outcomes is None else self.outcomes.scale(factor)
        return replace(self, **scaled, outcomes=outcomes)

    @property
    def total(self) -> float:
        """The number of sessions: the sum of their weights."""
        return float(self.sessions.sum())

    @property
    def volumes(self) -> Float64:
        """Sessions of each query [query]."""
        return np.bincount(self.visit_query, self.sessions, minlength=len(self.queries)).astype(
            np.float64
        )

    @property
    def max_ads(self) -> int:
        """The number of ads of the longest page."""
        return int(self.lengths.shape[0]) - 1

    def per_sequence(self) -> Float64:
        """Sessions of each click sequence over all queries [sequence]."""
        return np.bincount(
            self.visit_sequence, self.sessions, minlength=len(self.sequence_starts) - 1
        ).astype(np.float64)

    @classmethod
    def of_sequences(
        cls, starts: Int64, clicks: Int32, sessions: Float64, lengths: Float64
    ) -> Counts:
        """Counts of click sequences alone, without their queries and ads."""
        codes, numbers = np.zeros(0, np.int32), np.zeros(0)
        return cls(
            queries=pa.array([""], pa.large_string()),
            ads=pa.array([], pa.large_string()),
            pair_query=codes,
            pair_ad=codes,
            impressions=numbers,
            clicks=numbers,
            last_clicks=numbers,
            sequence_starts=starts,
            sequence_clicks=clicks,
            visit_query=np.zeros(len(sessions), np.int32),
            visit_sequence=np.arange(len(sessions), dtype=np.int32),
            sessions=sessions,
            lengths=lengths,
        )

    @check_arguments
    def save(self, folder: Location, *, overwrite: bool = False) -> None:
        """Write the counts to a folder, atomically: a reader sees the old or the new counts.

        If these counts, or some that they were made from, were loaded from the folder or saved to
        it, and another process has saved to it since, an error is raised unless `overwrite`.
        """
        place = str(resolve(folder))
        saved = [each for each in self.folders if each.place == place]
        settings = {"logs": [each.to_dict() for each in self.logs]}
        tables = {**self.to_tables(), "logs": records_to_table(self.logs)}
        states = {each.fingerprint for each in saved}
        replaces = None
        if saved and not overwrite:  # if they are of two states, one of these was replaced
            replaces = states.pop() if len(states) == 1 else ""
        fingerprint = artifact.write(
            folder, kind="counts", settings=settings, tables=tables, replaces=replaces
        )
        for each in saved:
            each.fingerprint = fingerprint
        if not saved:
            folders = (*self.folders, CountsFolder(place, fingerprint))
            object.__setattr__(self, "folders", folders)

    @classmethod
    @check_arguments
    def load(cls, folder: Location) -> Counts:
        """Read counts that were saved."""
        contents = artifact.read(folder, kind="counts")
        try:
            folders = (CountsFolder(str(resolve(folder)), contents.fingerprint),)
            counts = replace(cls.from_tables(contents.tables), folders=folders)
            if "logs" not in contents.tables:  # saved by an earlier version
                return counts
            logs = records_from_table(contents.settings["logs"], contents.tables["logs"])
            return replace(counts, logs=tuple(logs))
        except StoreError as error:
            raise StoreError(f"{folder} cannot be loaded. {error}") from error
        except Exception as error:  # any error that an altered folder may cause
            raise StoreError(
                f"{folder} cannot be loaded: {type(error).__name__}: {error}. It was altered, or "
                "written by another version: count again, and save to a new folder."
            ) from error

    def to_tables(self) -> dict[str, pa.Table]:
        """The counts as Arrow tables."""
        outcomes = {} if self.outcomes is None else _outcome_tables(self.outcomes)
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
            "lengths": lengths_to_table(self.lengths),
            **outcomes,
        }

    @classmethod
    def from_tables(cls, tables: Any, visits: Any = None) -> Counts:
        """Make counts from Arrow tables; raises if no log has such counts.

        The tables are the dict that `to_tables` returns, or the two results of `reclick sql`: the
        table of pairs and the table of visits, from Arrow, pandas, Polars or an ADBC cursor.

        >>> pairs = {"query": ["q", "q"], "ad": ["a", "b"], "impressions": [2, 2]}
        >>> pairs |= {"clicks": [2, 1], "last_clicks": [1, 1]}
        >>> visits = {"query": ["q", "q"], "click_sequence": ["1", "1,2"]}
        >>> visits |= {"page_length": [2, 2], "sessions": [1, 1]}
        >>> Counts.from_tables(pairs, visits)
        Counts(2 sessions, 1 query, 2 ads, 2 pairs)
        """
        if visits is not None:
            return cls.from_tables(tables_from_results(tables, visits))
        queries = read_strings(tables, "queries", "query", ascending=True)
        ads = read_strings(tables, "ads", "ad", ascending=True)
        pair_query = read_codes(tables, "pairs", "query", len(queries))
        n_pairs = len(pair_query)
        pair_ad = read_codes(tables, "pairs", "ad", len(ads), n_pairs)
        require_ascending("pairs", pair_query, pair_ad)
        starts, positions = read_lists(tables, "sequences", "clicks", low=1, high=MOST_CELLS)
        visit_query = read_codes(tables, "visits", "query", len(queries))
        visit_sequence = read_codes(tables, "visits", "sequence", len(starts) - 1, len(visit_query))
        require_ascending("visits", visit_query, visit_sequence)
        counts = cls(
            queries=queries,
            ads=ads,
            pair_query=pair_query,
            pair_ad=pair_ad,
            impressions=_read_totals(tables, "pairs", "impressions", n_pairs),
            clicks=_read_totals(tables, "pairs", "clicks", n_pairs),
            last_clicks=_read_totals(tables, "pairs", "last_clicks", n_pairs),
            sequence_starts=starts,
            sequence_clicks=positions,
            visit_query=visit_query,
            visit_sequence=visit_sequence,
            sessions=_read_totals(tables, "visits", "sessions", len(visit_query)),
            lengths=read_lengths(tables),
            outcomes=_outcomes_from_tables(tables, n_pairs, len(visit_query)),
        )
        if not counts._is_possible():
            raise table_error("pairs", "no log has these counts")
        return counts


@kernel
def is_possible(
    pair_query: Int32,
    impressions: Float64,
    clicks: Float64,
    last_clicks: Float64,
    visit_query: Int32,
    sessions: Float64,
    query_impressions: Float64,
    query_sessions: Float64,
) -> Any:
    """Whether a log with these totals is possible.

    Adds up the impressions and sessions of each query in the last two arguments, which are 0.
    """
    possible = True
    for i in range(len(pair_query)):
        possible &= impressions[i] - clicks[i] >= -COUNT_ROUNDING
        possible &= clicks[i] - last_clicks[i] >= -COUNT_ROUNDING
        possible &= last_clicks[i] >= -COUNT_ROUNDING
        query_impressions[pair_query[i]] += impressions[i]
    for i in range(len(visit_query)):
        possible &= sessions[i] >= -COUNT_ROUNDING
        query_sessions[visit_query[i]] += sessions[i]
    for query in range(len(query_impressions)):
        both = (query_impressions[query] > 0) & (query_sessions[query] > 0)
        possible &= both | (query_impressions[query] + query_sessions[query] <= DECAY_TRACE)
    return possible


def require_usable_weights(counts: Counts, name: str) -> Counts:
    """Return the counts; raise if all weights are 0 or too large to add exactly."""
    if counts.total <= 0:
        raise LogError(
            f"{name}: every session has weight 0, so there is nothing to learn from. "
            "Look at the weight column."
        )
    return require_exact_totals(counts, name)


def require_exact_totals(counts: Counts, name: str) -> Counts:
    """Return the counts; raise if a total exceeds 2^53, up to which whole numbers add exactly."""
    largest = max(counts.total, float(counts.impressions.sum()))
    if largest > MAX_TOTAL:
        raise LogError(
            f"{name}: weights add up to {largest:.4g} impressions, and counts are exact only up to "
            f"2^53 ({MAX_TOTAL:.4g}). Look at the weight column: it may be a time. If it is right, "
            "divide all weights by the same number."
        )
    return counts


def add_tables(a: Float64, b: Float64) -> Float64:
    """The sum of two tables of any shapes; missing entries are 0."""
    total = np.zeros((max(a.shape[0], b.shape[0]), max(a.shape[1], b.shape[1])))
    total[: a.shape[0], : a.shape[1]] += a
    total[: b.shape[0], : b.shape[1]] += b
    return total


def trim_table(table: Float64, zero: float = 0.0) -> Float64:
    """Drop the rows and columns after the last entry; entries up to `zero` count as 0."""
    table = np.where(np.abs(table) > zero, table, 0.0)
    rows, columns = np.flatnonzero(table.any(axis=1)), np.flatnonzero(table.any(axis=0))
    return table[: rows.max(initial=0) + 1, : columns.max(initial=0) + 1].copy()


def _check_counts(other: object) -> None:
    if not isinstance(other, Counts):
        raise UsageError(
            f"Counts are added to and subtracted from counts, not {type(other).__name__}. "
            "Count the log first: rc.count(log)."
        )


def _merge(a: Counts, b: Counts, sign: float) -> Counts:
    """Compute a + sign · b in the canonical order, without rows that become zero.

    A sum keeps every value, however small. A difference drops values up to `COUNT_ROUNDING`, which
    are residues of rounding.
    """
    zero = COUNT_ROUNDING if sign < 0 else 0.0
    queries, query_a, query_b = _union(a.queries, b.queries)
    ads, ad_a, ad_b = _union(a.ads, b.ads)
    sequences, sequence_a, sequence_b = _union(
        sequence_bytes(a.sequence_starts, a.sequence_clicks),
        sequence_bytes(b.sequence_starts, b.sequence_clicks),
    )
    outcomes_a, outcomes_b = _known_outcomes(a, b)
    pairs, (impressions, clicks, last_clicks, *last_outcomes) = _merge_rows(
        _keys(query_a[a.pair_query], ad_a[a.pair_ad]),
        _keys(query_b[b.pair_query], ad_b[b.pair_ad]),
        (a.impressions, a.clicks, a.last_clicks, *_columns_of(outcomes_a, "last")),
        (b.impressions, b.clicks, b.last_clicks, *_columns_of(outcomes_b, "last")),
        sign,
        zero,
    )
    visits, (sessions, *visit_outcomes) = _merge_rows(
        _keys(query_a[a.visit_query], sequence_a[a.visit_sequence]),
        _keys(query_b[b.visit_query], sequence_b[b.visit_sequence]),
        (a.sessions, *_columns_of(outcomes_a, "visits")),
        (b.sessions, *_columns_of(outcomes_b, "visits")),
        sign,
        zero,
    )
    queries, (pair_query, visit_query) = _keep_used(queries, pairs >> 32, visits >> 32)
    ads, (pair_ad,) = _keep_used(ads, pairs & LOW_BITS)
    sequences, (visit_sequence,) = _keep_used(sequences, visits & LOW_BITS)
    starts, positions = sequences_from_bytes(sequences)
    outcomes = None
    if outcomes_a is not None and outcomes_b is not None:
        earlier = outcomes_a.earlier + sign * outcomes_b.earlier
        earlier = np.where(np.abs(earlier) > zero, earlier, 0.0)
        outcomes = OutcomeCounts(np.stack(last_outcomes, 1), np.stack(visit_outcomes, 1), earlier)
    return Counts(
        queries=queries,
        ads=ads,
        pair_query=pair_query,
        pair_ad=pair_ad,
        impressions=impressions,
        clicks=clicks,
        last_clicks=last_clicks,
        sequence_starts=starts,
        sequence_clicks=positions,
        visit_query=visit_query,
        visit_sequence=visit_sequence,
        sessions=sessions,
        lengths=trim_table(add_tables(a.lengths, sign * b.lengths), zero),
        outcomes=outcomes if outcomes is not None and outcomes.any_known else None,
        logs=(*a.logs, *b.logs) if sign > 0 else remove_logs(a.logs, b.logs),
        folders=tuple(dict.fromkeys((*a.folders, *b.folders))),
    )


def _sum(parts: Sequence[Counts]) -> Counts:
    """The sum of several counts in the canonical order: strings, pairs and visits sorted once."""
    queries, query = _union_all([part.queries for part in parts])
    ads, ad = _union_all([part.ads for part in parts])
    lists = [sequence_bytes(part.sequence_starts, part.sequence_clicks) for part in parts]
    sequences, sequence = _union_all(lists)
    has_outcomes = any(part.outcomes is not None for part in parts)
    outcomes = [part.outcomes or unknown_outcomes(part) for part in parts] if has_outcomes else []
    pairs, (impressions, clicks, last_clicks, *last_outcomes) = _sum_rows(
        [_keys(q[c.pair_query], a[c.pair_ad]) for c, q, a in zip(parts, query, ad, strict=True)],
        [
            *([getattr(part, name) for part in parts] for name in PAIR_TOTALS),
            *([each.last[:, o] for each in outcomes] for o in range(N_OUTCOMES * has_outcomes)),
        ],
    )
    visits, (sessions, *visit_outcomes) = _sum_rows(
        [
            _keys(q[c.visit_query], s[c.visit_sequence])
            for c, q, s in zip(parts, query, sequence, strict=True)
        ],
        [
            [part.sessions for part in parts],
            *([each.visits[:, o] for each in outcomes] for o in range(N_OUTCOMES * has_outcomes)),
        ],
    )
    starts, positions = sequences_from_bytes(sequences)
    lengths = parts[0].lengths
    for part in parts[1:]:
        lengths = add_tables(lengths, part.lengths)
    total = None
    if has_outcomes:
        earlier = np.sum([each.earlier for each in outcomes], axis=0)
        total = OutcomeCounts(np.stack(last_outcomes, 1), np.stack(visit_outcomes, 1), earlier)
    return Counts(
        queries=queries,
        ads=ads,
        pair_query=(pairs >> 32).astype(np.int32),
        pair_ad=(pairs & LOW_BITS).astype(np.int32),
        impressions=impressions,
        clicks=clicks,
        last_clicks=last_clicks,
        sequence_starts=starts,
        sequence_clicks=positions,
        visit_query=(visits >> 32).astype(np.int32),
        visit_sequence=(visits & LOW_BITS).astype(np.int32),
        sessions=sessions,
        lengths=lengths,
        outcomes=total,
        logs=tuple(log for part in parts for log in part.logs),
        folders=tuple(dict.fromkeys(folder for part in parts for folder in part.folders)),
    )


def _union_all(arrays: Sequence[pa.Array]) -> tuple[pa.Array, list[Int64]]:
    """The distinct values of several arrays, sorted, and the codes of the values of each array."""
    dictionary_array = pc.dictionary_encode(pa.concat_arrays(arrays))
    order = np.asarray(pc.array_sort_indices(dictionary_array.dictionary), np.int64)
    code = np.empty(len(order), np.int64)
    code[order] = np.arange(len(order))
    codes = code[np.asarray(dictionary_array.indices)]
    return dictionary_array.dictionary.take(pa.array(order)), _split(codes, arrays)


def _split(values: Int64, like: Sequence[pa.Array]) -> list[Int64]:
    return np.split(values, np.cumsum([len(each) for each in like])[:-1])


def _sum_rows(
    keys: Sequence[Int64], columns: Sequence[Sequence[Float64]]
) -> tuple[Int64, list[Float64]]:
    """The distinct keys, sorted, and for each column the sums of the values with that key."""
    all_keys = np.concatenate(keys)
    order = np.argsort(all_keys, kind="stable")
    all_keys = all_keys[order]
    first = np.flatnonzero(np.concatenate([[True], all_keys[1:] != all_keys[:-1]]))
    if not len(all_keys):
        return all_keys, [np.zeros(0) for _ in columns]
    return all_keys[first], [
        np.add.reduceat(np.concatenate(values)[order], first) for values in columns
    ]


def _runs_of(part: Int64, n: int) -> list[Int64]:
    """The indices of each part, in order."""
    order = np.argsort(part, kind="stable")
    return np.split(order, np.searchsorted(part[order], np.arange(1, n)))


def _select(counts: Counts, queries: Int64) -> Counts:
    """The counts of some queries, given in order."""
    pairs = _rows_of(counts.pair_query, queries, len(counts.queries))
    visits = _rows_of(counts.visit_query, queries, len(counts.queries))
    new = np.zeros(len(counts.queries), np.int32)
    new[queries] = np.arange(len(queries))
    ads, (pair_ad,) = _keep_used(counts.ads, counts.pair_ad[pairs])
    lists = sequence_bytes(counts.sequence_starts, counts.sequence_clicks)
    sequences, (visit_sequence,) = _keep_used(lists, counts.visit_sequence[visits])
    starts, positions = sequences_from_bytes(sequences)
    outcomes = counts.outcomes
    if outcomes is not None:
        last, of_visits = outcomes.last[pairs], outcomes.visits[visits]
        outcomes = OutcomeCounts(last, of_visits, np.zeros(N_OUTCOMES))
    return Counts(
        queries=counts.queries.take(pa.array(queries)),
        ads=ads,
        pair_query=new[counts.pair_query[pairs]],
        pair_ad=pair_ad,
        impressions=counts.impressions[pairs],
        clicks=counts.clicks[pairs],
        last_clicks=counts.last_clicks[pairs],
        sequence_starts=starts,
        sequence_clicks=positions,
        visit_query=new[counts.visit_query[visits]],
        visit_sequence=visit_sequence,
        sessions=counts.sessions[visits],
        lengths=np.zeros((1, 1)),
        outcomes=outcomes,
    )


def _rows_of(query: Int32, queries: Int64, n_queries: int) -> Int64:
    """The rows of some queries; `query` [row] is sorted."""
    starts = np.searchsorted(query, np.arange(n_queries + 1))
    return run_indices(starts, queries)[0]


def _known_outcomes(a: Counts, b: Counts) -> tuple[OutcomeCounts | None, OutcomeCounts | None]:
    """The outcomes of both, or None twice; if only one has some, those of the other are unknown."""
    if a.outcomes is None and b.outcomes is None:
        return None, None
    return a.outcomes or unknown_outcomes(a), b.outcomes or unknown_outcomes(b)


def unknown_outcomes(counts: Counts) -> OutcomeCounts:
    """The outcomes of counts as if all were unknown."""
    last = np.zeros((len(counts.last_clicks), N_OUTCOMES))
    visits, earlier = np.zeros((len(counts.sessions), N_OUTCOMES)), np.zeros(N_OUTCOMES)
    last[:, UNKNOWN_OUTCOME], visits[:, UNKNOWN_OUTCOME] = counts.last_clicks, counts.sessions
    earlier[UNKNOWN_OUTCOME] = counts.clicks.sum() - counts.last_clicks.sum()
    return OutcomeCounts(last, visits, earlier)


def _columns_of(outcomes: OutcomeCounts | None, name: str) -> list[Float64]:
    return [] if outcomes is None else list(getattr(outcomes, name).T)


def _outcome_tables(outcomes: OutcomeCounts) -> dict[str, pa.Table]:
    tables = {
        "pair_outcomes": outcomes.last,
        "visit_outcomes": outcomes.visits,
        "earlier_outcomes": outcomes.earlier[None, :],
    }
    return {
        name: pa.table(dict(zip(OUTCOME_NAMES, np.ascontiguousarray(table.T), strict=True)))
        for name, table in tables.items()
    }


def _read_totals(tables: dict[str, pa.Table], table: str, column: str, length: int) -> Float64:
    totals = read_numbers(tables, table, column, length=length, low=-COUNT_ROUNDING)
    return totals.astype(np.float64, copy=False)


def lengths_to_table(lengths: Float64) -> pa.Table:
    """The sessions by page length and number of clicks, for `read_lengths`."""
    length, number = np.nonzero(lengths)
    return pa.table({"ads": length, "clicks": number, "sessions": lengths[length, number]})


def read_lengths(tables: dict[str, pa.Table]) -> Float64:
    """The sessions by page length and number of clicks, as a table of reasonable size."""
    ads = read_codes(tables, "lengths", "ads", MOST_CELLS)
    clicks = read_codes(tables, "lengths", "clicks", MOST_CELLS, len(ads))
    shape = int(ads.max(initial=0)) + 1, int(clicks.max(initial=0)) + 1
    if shape[0] * shape[1] > MOST_CELLS:
        raise table_error("lengths", f"a page of {shape[0] - 1:,} ads with {shape[1] - 1:,} clicks")
    dense = np.zeros(shape)
    dense[ads, clicks] = _read_totals(tables, "lengths", "sessions", len(ads))
    return dense


def _outcomes_from_tables(
    tables: dict[str, pa.Table], n_pairs: int, n_visits: int
) -> OutcomeCounts | None:
    if "pair_outcomes" not in tables:
        return None
    last, visits, earlier = (
        np.stack([_read_totals(tables, name, each, length) for each in OUTCOME_NAMES], axis=1)
        for name, length in (
            ("pair_outcomes", n_pairs),
            ("visit_outcomes", n_visits),
            ("earlier_outcomes", 1),
        )
    )
    return OutcomeCounts(last, visits, earlier[0])


def _union(a: pa.Array, b: pa.Array) -> tuple[pa.Array, Int64, Int64]:
    """The distinct values of two sorted arrays, sorted, and the code of each value of either."""
    new = b.filter(pc.invert(pc.is_in(b, value_set=a)))
    if len(new) == 0:
        return a, np.arange(len(a)), _codes(b, a)
    both = pa.concat_arrays([a, new])
    union = both.take(pc.array_sort_indices(both))
    return union, _codes(a, union), _codes(b, union)


def _codes(values: pa.Array, sorted_values: pa.Array) -> Int64:
    codes = pc.index_in(values, value_set=sorted_values)
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)


def _keys(first: Int64, second: Int64) -> Int64:
    """Two codes as one number, which sorts by the first, then by the second."""
    return np.asarray(first << 32 | second)


def _merge_rows(
    keys_a: Int64,
    keys_b: Int64,
    values_a: tuple[Float64, ...],
    values_b: tuple[Float64, ...],
    sign: float,
    zero: float,
) -> tuple[Int64, list[Float64]]:
    """The union of sorted keys, and a + sign · b of the values, without keys whose values are 0."""
    keys = np.concatenate([keys_a, keys_b])
    keys.sort(kind="stable")  # two sorted runs: merged in one pass
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
    rows_a, rows_b = np.searchsorted(keys, keys_a), np.searchsorted(keys, keys_b)
    totals = np.zeros((len(values_a), len(keys)))
    for total, value_a, value_b in zip(totals, values_a, values_b, strict=True):
        total[rows_a] = value_a
        total[rows_b] += sign * value_b
    is_nonzero = (np.abs(totals) > zero).any(axis=0)
    return keys[is_nonzero], [total[is_nonzero] for total in totals]


def _keep_used(values: pa.Array, *codes: Int64 | Int32) -> tuple[pa.Array, list[Int32]]:
    """The values that the codes use, and the codes of these values."""
    occurs = np.zeros(len(values), bool)
    for each in codes:
        occurs[each] = True
    new = (np.cumsum(occurs) - 1).astype(np.int32)
    used_values = values if occurs.all() else values.filter(pa.array(occurs))
    return used_values, [new[each] for each in codes]


def sequence_bytes(starts: Int64, clicks: Int32) -> pa.LargeBinaryArray:
    """Click lists as bytes that sort as the lists do: positions as big-endian integers.

    >>> [list(each.as_py()) for each in sequence_bytes(np.array([0, 1]), np.array([3], np.int32))]
    [[0, 0, 0, 3]]
    """
    offsets = np.ascontiguousarray(starts, np.int64) * 4
    data = clicks.astype(">i4")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


def sequences_from_bytes(lists: pa.LargeBinaryArray) -> tuple[Int64, Int32]:
    """The click lists that `sequence_bytes` encoded: starts and positions."""
    _, offsets, data = lists.buffers()
    starts = np.frombuffer(offsets, np.int64)[lists.offset : lists.offset + len(lists) + 1]
    positions = np.frombuffer(data or b"", ">i4")[starts[0] // 4 : starts[-1] // 4]
    return (starts - starts[0]) // 4, positions.astype(np.int32)


def _same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))  # type: ignore[arg-type]
    return bool(a.equals(b)) if isinstance(a, pa.Array) else bool(a == b)
