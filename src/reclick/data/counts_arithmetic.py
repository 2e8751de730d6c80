"""Arithmetic of counts: sums, differences, and the counts of some queries or of all as one.

Each result is in the canonical order, so equal logs give equal counts on every path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.click_sequences import sequence_bytes, sequences_from_bytes
from reclick.data.counts_checks import COUNT_ROUNDING
from reclick.data.log_record import remove_logs
from reclick.data.outcomes import N_OUTCOMES, UNKNOWN_OUTCOME, OutcomeCounts
from reclick.data.ragged import Float64, Int32, Int64, join_codes, run_indices, split_codes

if TYPE_CHECKING:
    from reclick.data.counts import Counts

PAIR_TOTALS = ("impressions", "clicks", "last_clicks")


def add_counts(a: Counts, b: Counts, sign: float) -> Counts:
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
        join_codes(query_a[a.pair_query], ad_a[a.pair_ad]),
        join_codes(query_b[b.pair_query], ad_b[b.pair_ad]),
        (a.impressions, a.clicks, a.last_clicks, *_columns_of(outcomes_a, "last")),
        (b.impressions, b.clicks, b.last_clicks, *_columns_of(outcomes_b, "last")),
        sign,
        zero,
    )
    visits, (sessions, *visit_outcomes) = _merge_rows(
        join_codes(query_a[a.visit_query], sequence_a[a.visit_sequence]),
        join_codes(query_b[b.visit_query], sequence_b[b.visit_sequence]),
        (a.sessions, *_columns_of(outcomes_a, "visits")),
        (b.sessions, *_columns_of(outcomes_b, "visits")),
        sign,
        zero,
    )
    pair_query, pair_ad = split_codes(pairs)
    visit_query, visit_sequence = split_codes(visits)
    queries, (pair_query, visit_query) = _keep_used(queries, pair_query, visit_query)
    ads, (pair_ad,) = _keep_used(ads, pair_ad)
    sequences, (visit_sequence,) = _keep_used(sequences, visit_sequence)
    starts, positions = sequences_from_bytes(sequences)
    outcomes = None
    if outcomes_a is not None and outcomes_b is not None:
        earlier = outcomes_a.earlier + sign * outcomes_b.earlier
        earlier = np.where(np.abs(earlier) > zero, earlier, 0.0)
        outcomes = OutcomeCounts(np.stack(last_outcomes, 1), np.stack(visit_outcomes, 1), earlier)
    return replace(
        a,
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


def sum_counts(parts: Sequence[Counts]) -> Counts:
    """The sum of several counts in the canonical order: strings, pairs and visits sorted once."""
    queries, query = _union_all([part.queries for part in parts])
    ads, ad = _union_all([part.ads for part in parts])
    lists = [sequence_bytes(part.sequence_starts, part.sequence_clicks) for part in parts]
    sequences, sequence = _union_all(lists)
    has_outcomes = any(part.outcomes is not None for part in parts)
    outcomes = [part.outcomes or unknown_outcomes(part) for part in parts] if has_outcomes else []
    pairs, (impressions, clicks, last_clicks, *last_outcomes) = _sum_rows(
        [
            join_codes(q[c.pair_query], a[c.pair_ad])
            for c, q, a in zip(parts, query, ad, strict=True)
        ],
        [
            *([getattr(part, name) for part in parts] for name in PAIR_TOTALS),
            *([each.last[:, o] for each in outcomes] for o in range(N_OUTCOMES * has_outcomes)),
        ],
    )
    visits, (sessions, *visit_outcomes) = _sum_rows(
        [
            join_codes(q[c.visit_query], s[c.visit_sequence])
            for c, q, s in zip(parts, query, sequence, strict=True)
        ],
        [
            [part.sessions for part in parts],
            *([each.visits[:, o] for each in outcomes] for o in range(N_OUTCOMES * has_outcomes)),
        ],
    )
    pair_query, pair_ad = split_codes(pairs)
    visit_query, visit_sequence = split_codes(visits)
    starts, positions = sequences_from_bytes(sequences)
    lengths = parts[0].lengths
    for part in parts[1:]:
        lengths = add_tables(lengths, part.lengths)
    total = None
    if has_outcomes:
        earlier = np.sum([each.earlier for each in outcomes], axis=0)
        total = OutcomeCounts(np.stack(last_outcomes, 1), np.stack(visit_outcomes, 1), earlier)
    return replace(
        parts[0],
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


def indices_of_parts(part: Int64, n: int) -> list[Int64]:
    """The indices of each part, in order."""
    order = np.argsort(part, kind="stable")
    return np.split(order, np.searchsorted(part[order], np.arange(1, n)))


def select_queries(counts: Counts, queries: Int64) -> Counts:
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
    return replace(
        counts,
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
        logs=(),
        folders=(),
    )


def _rows_of(query: Int32, queries: Int64, n_queries: int) -> Int64:
    """The rows of some queries; `query` [row] is sorted."""
    starts = np.searchsorted(query, np.arange(n_queries + 1))
    return run_indices(starts, queries)[0]


def pool_counts(counts: Counts) -> Counts:
    """The counts as if all queries and all ads were one."""
    one, codes = pa.array([""], pa.large_string()), np.zeros(1, np.int32)
    n_sequences = len(counts.sequence_starts) - 1
    outcomes = counts.outcomes
    if outcomes is not None:
        visits = np.zeros((n_sequences, N_OUTCOMES))
        np.add.at(visits, counts.visit_sequence, outcomes.visits)
        last = outcomes.last.sum(axis=0, keepdims=True)
        outcomes = OutcomeCounts(last, visits, outcomes.earlier)
    totals = {name: getattr(counts, name).sum(keepdims=True) for name in PAIR_TOTALS}
    return replace(
        counts,
        queries=one,
        ads=one,
        pair_query=codes,
        pair_ad=codes,
        **totals,
        visit_query=np.zeros(n_sequences, np.int32),
        visit_sequence=np.arange(n_sequences, dtype=np.int32),
        sessions=counts.per_sequence(),
        outcomes=outcomes,
    )


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
