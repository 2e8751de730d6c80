"""The tables of a model by type of row, to select the rows of some queries and to join parts.

Every table of a saved model has one row per query, pair, visit, click sequence or ad, or it belongs
to the whole log. Here, tables with the same type of row are one table with columns called
`table.column`. So the rows of some queries can be selected, and concatenated with those of other
queries, for any model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.click_sequences import sequence_bytes, sequences_from_bytes
from reclick.data.counts import Counts
from reclick.data.hashing import query_buckets
from reclick.data.ragged import Int32, Int64, run_indices, starts_from_sizes
from reclick.data.stored_tables import read_lists, table_error
from reclick.errors import UsageError
from reclick.runtime.arguments import check_arguments
from reclick.runtime.wording import count_noun

ROW_TYPES = ("query", "pair", "visit", "sequence", "ad")
WHOLE_LOG = "log"  # the type of a table without rows of queries
COMMON_TABLES = {  # those that every model may have; a model adds its own in `table_rows`
    "counts_queries": "query",
    "counts_ads": "ad",
    "counts_pairs": "pair",
    "counts_pair_outcomes": "pair",
    "counts_sequences": "sequence",
    "counts_visits": "visit",
    "counts_visit_outcomes": "visit",
    "counts_lengths": WHOLE_LOG,
    "counts_earlier_outcomes": WHOLE_LOG,
    "text_ads": WHOLE_LOG,
    "text_vocabulary": WHOLE_LOG,
    "pairs": "pair",
    "queries": "query",
    "prior_pairs": "pair",
    "prior_ads": "ad",
    "prior_words": WHOLE_LOG,
}
QUERY, AD, SEQUENCE = "counts_queries.query", "counts_ads.ad", "counts_sequences.clicks"


class TrainingTotals(NamedTuple):
    """The size of a training log."""

    sessions: float
    queries: int
    ads: int
    pairs: int
    impressions: float
    clicks: float
    max_ads: int

    @classmethod
    @check_arguments
    def of(cls, counts: Counts) -> TrainingTotals:
        """The totals of some counts."""
        return cls(
            counts.total,
            len(counts.queries),
            len(counts.ads),
            len(counts.impressions),
            float(counts.impressions.sum()),
            float(counts.clicks.sum()),
            counts.max_ads,
        )

    def __str__(self) -> str:
        names = f"{count_noun(self.queries, 'query')}, {count_noun(self.ads, 'ad')}"
        pairs = count_noun(self.pairs, "pair")
        return f"Counts({count_noun(self.sessions, 'session')}, {names}, {pairs})"


@dataclass(frozen=True)
class QueryRows:
    """The rows of some queries, in the order of `Counts`; codes are rows of the same object."""

    query: pa.Table
    pair: pa.Table
    visit: pa.Table
    sequence: pa.Table
    ad: pa.Table

    @classmethod
    def from_tables(
        cls, model: str, tables: Mapping[str, pa.Table], table_rows: Mapping[str, str]
    ) -> tuple[QueryRows, dict[str, pa.Table]]:
        """The rows of all queries of a model, and its tables of the whole log."""
        types = {**COMMON_TABLES, **table_rows}
        columns: dict[str, dict[str, Any]] = {each: {} for each in ROW_TYPES}
        whole = {}
        for name, table in tables.items():
            if name not in types:
                raise UsageError(
                    f"{model} cannot be saved in buckets: its class does not say in table_rows "
                    f"what the rows of its table {name!r} are. Save it without buckets."
                )
            if types[name] == WHOLE_LOG:
                whole[name] = table
                continue
            stack = columns[types[name]]
            if any(len(each) != table.num_rows for each in stack.values()):
                raise table_error(name, f"it has {table.num_rows:,} rows, unlike other tables")
            stack |= {
                f"{name}.{column}": table[column].combine_chunks() for column in table.column_names
            }
        return cls(*(pa.table(columns[each]) for each in ROW_TYPES)), whole

    def to_tables(self) -> dict[str, pa.Table]:
        """The tables of a model."""
        columns: dict[str, dict[str, Any]] = {}
        for stack in self.as_dict().values():
            for name in stack.column_names:
                table, column = name.split(".", 1)
                columns.setdefault(table, {})[column] = stack[name]
        return {name: pa.table(each) for name, each in columns.items()}

    def as_dict(self) -> dict[str, pa.Table]:
        """The stacked tables by type of row."""
        return {each: getattr(self, each) for each in ROW_TYPES}

    @property
    def queries(self) -> pa.Array:
        """The text of each query."""
        return _column(self.query, QUERY)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(int(table.nbytes) for table in self.as_dict().values())

    def buckets(self, buckets: int) -> list[Int64]:
        """The queries of each bucket."""
        bucket = query_buckets(self.queries, buckets)
        order = np.argsort(bucket, kind="stable")
        starts = np.searchsorted(bucket[order], np.arange(buckets + 1))
        return [order[start:end] for start, end in pairwise(starts)]

    def take(self, queries: Int64) -> QueryRows:
        """The rows of some queries, in their order, which must be ascending."""
        tables = {"query": self.query.take(pa.array(queries))}
        for name in ("pair", "visit"):
            table, column = getattr(self, name), f"counts_{name}s.query"
            starts = self.starts(name)
            rows, new_starts = run_indices(starts, queries)
            code = np.repeat(np.arange(len(queries)), np.diff(new_starts))
            tables[name] = _set_column(table.take(pa.array(rows)), column, code)
        for name, reference, column in (
            ("ad", "pair", "counts_pairs.ad"),
            ("sequence", "visit", "counts_visits.sequence"),
        ):
            distinct, code = np.unique(_numbers(tables[reference], column), return_inverse=True)
            tables[name] = getattr(self, name).take(pa.array(distinct))
            tables[reference] = _set_column(tables[reference], column, code)
        return QueryRows(**tables)

    def starts(self, name: str) -> Int64:
        """Where the pairs or the visits of each query start."""
        query = _numbers(getattr(self, name), f"counts_{name}s.query")
        return np.searchsorted(query, np.arange(self.query.num_rows + 1)).astype(np.int64)

    def with_totals(self) -> QueryRows:
        """The same with the impressions and clicks of each ad, and the sessions of each sequence.

        So the totals of ads and sequences can be read without the pairs and visits.
        """
        ad, n_ads = _numbers(self.pair, "counts_pairs.ad"), self.ad.num_rows
        sequence = _numbers(self.visit, "counts_visits.sequence")
        sessions = _numbers(self.visit, "counts_visits.sessions")
        ads, sequences = self.ad, self.sequence
        for name in ("impressions", "clicks"):
            total = np.bincount(ad, _numbers(self.pair, f"counts_pairs.{name}"), n_ads)
            ads = ads.append_column(f"totals.{name}", pa.array(total.astype(np.float64)))
        total = np.bincount(sequence, sessions, self.sequence.num_rows).astype(np.float64)
        sequences = sequences.append_column("totals.sessions", pa.array(total))
        return replace(self, ad=ads, sequence=sequences)

    def without_totals(self) -> QueryRows:
        """The same with only the names of ads and the clicks of sequences."""
        return replace(self, ad=self.ad.select([AD]), sequence=self.sequence.select([SEQUENCE]))


def concatenate_rows(parts: Sequence[QueryRows]) -> QueryRows:
    """The rows of all parts, whose queries must be distinct, in the order of `Counts`."""
    if len(parts) == 1:
        return parts[0]
    ads, ad_codes = unite([_column(part.ad, AD) for part in parts])
    sequences, sequence_codes = unite([sequence_keys(part.sequence) for part in parts])
    queries = pa.concat_arrays([part.queries for part in parts])
    order = pc.array_sort_indices(queries).to_numpy().astype(np.int64)
    by_type = {"query": pa.concat_tables([part.query for part in parts]).take(pa.array(order))}
    for name, codes, column in (
        ("pair", ad_codes, "counts_pairs.ad"),
        ("visit", sequence_codes, "counts_visits.sequence"),
    ):
        starts = starts_from_sizes(np.concatenate([np.diff(part.starts(name)) for part in parts]))
        rows, new_starts = run_indices(starts, order)
        query = np.repeat(np.arange(len(order)), np.diff(new_starts))
        tables = [getattr(part, name) for part in parts]
        code = np.concatenate(
            [code[_numbers(table, column)] for code, table in zip(codes, tables, strict=True)]
        )[rows]
        table = pa.concat_tables(tables).take(pa.array(rows))
        table = _set_column(table, f"counts_{name}s.query", query)
        by_type[name] = _set_column(table, column, code)
    starts, positions = sequences_from_bytes(sequences)
    clicks = pa.LargeListArray.from_arrays(pa.array(starts), pa.array(positions))
    return QueryRows(**by_type, ad=pa.table({AD: ads}), sequence=pa.table({SEQUENCE: clicks}))


def unite(parts: Sequence[pa.Array]) -> tuple[pa.Array, list[Int64]]:
    """The distinct values of several arrays, sorted, and the code of each value of each array."""
    encoded = pa.concat_arrays(parts).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    codes = rank[encoded.indices.to_numpy()]
    ends = np.cumsum([len(each) for each in parts])[:-1]
    return encoded.dictionary.take(pa.array(order)), np.split(codes, ends)


def sequence_keys(table: pa.Table) -> pa.Array:
    """The click sequences as bytes, which sort in the same order."""
    starts, clicks = read_lists({"sequences": table}, "sequences", SEQUENCE, low=1, high=1 << 31)
    return sequence_bytes(starts, clicks)


def _column(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _numbers(table: pa.Table, name: str) -> Any:
    return np.asarray(table[name].combine_chunks().to_numpy(zero_copy_only=False))


def _set_column(table: pa.Table, name: str, values: Int64) -> pa.Table:
    codes: Int32 = values.astype(np.int32)
    return table.set_column(table.column_names.index(name), name, pa.array(codes))
