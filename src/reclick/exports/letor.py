"""LETOR text for learning to rank: `grade qid:number 1:value 2:value … # ad query`.

There is one line per pair; the pairs of a query are consecutive.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from reclick.data.ragged import Int32, Int64
from reclick.data.schema import PAIR_COLUMNS
from reclick.data.string_index import Interner
from reclick.errors import LogError
from reclick.exports.judgment_table import GradedPairs
from reclick.exports.line_formats import check_ad_ids, write_with_query_list
from reclick.exports.request import ExportRequest, ExportResult
from reclick.exports.text_rows import (
    ONE_LINE_CODES,
    TEXT,
    concatenate,
    escape,
    get_column,
    map_distinct,
)
from reclick.logs.files.source import abbreviate, open_sources

MODEL_COLUMNS = ("attractiveness", "satisfaction", "relevance", "relevance_low", "relevance_high")


def write_letor(request: ExportRequest) -> ExportResult:
    """Write two comment lines (features, cut points), the pairs, and the list of queries."""
    pairs = GradedPairs.from_request(request)
    features: Features = (
        ModelFeatures() if request.features is None else TableFeatures(request.features)
    )

    def check_features(table: pa.Table) -> pa.Table:
        _, unknown = features.lookup(table)
        if not unknown.true_count:
            return table
        return pairs.leave_out(table, unknown, "that have no features")

    def lines(table: pa.Table, ids: pa.Array) -> pa.Array:
        return _pair_lines(table, ids, features)

    tables = pairs.graded_tables(check_ad_ids(request, pairs), check_features)
    header = _header(pairs, features)
    files = write_with_query_list(request, tables, _number_queries, lines, header)
    note = (
        "the features are those that the grades were made from: to learn a ranking, give your own"
        " with features."
        if request.features is None
        else ""
    )
    return pairs.result(files, note)


def _header(pairs: GradedPairs, features: Features) -> str:
    names = ", ".join(
        f"{number} {escape(pa.array([name]), ONE_LINE_CODES)[0]}"
        for number, name in enumerate(features.names, 1)
    )
    rule = pairs.rule
    cuts = rule.describe_cuts(pairs.cuts)
    grades = f"cut points {cuts}, pairs shown {rule.min_support:g} times or more"
    return f"# features: {names}\n# grades: {grades}\n"


def _number_queries(queries: pa.Array, n_before: int) -> pa.Array:
    """The numbers of the queries, from 1, in the order of the file."""
    return pa.array(np.arange(n_before + 1, n_before + 1 + len(queries))).cast(TEXT)


def _pair_lines(table: pa.Table, ids: pa.Array, features: Features) -> pa.Array:
    values, _ = features.lookup(table)
    cells = [_cell(number, column) for number, column in enumerate(values, 1)]
    query = map_distinct(
        get_column(table, "query"), lambda queries: escape(queries, ONE_LINE_CODES)
    )
    ad, grade = get_column(table, "ad"), get_column(table, "grade")
    return concatenate(grade, " qid:", ids, *cells, " # ", ad, " ", query, "\n")


def _cell(number: int, values: pa.Array) -> pa.Array:
    """` number:value`, or nothing where there is no value; digits restore the exact number."""
    has_value = pc.and_kleene(values.is_valid(), pc.invert(pc.is_nan(values)).fill_null(False))
    cell = concatenate(f" {number}:", values.cast(TEXT))
    return pc.if_else(has_value, cell, pa.scalar("", TEXT))


# ---- features


class Features(Protocol):
    """Named features of pairs."""

    @property
    def names(self) -> tuple[str, ...]:
        """The features, in the order of their numbers."""

    def lookup(self, table: pa.Table) -> tuple[list[pa.Array], pa.Array]:
        """The features of each pair, null where there is none, and whether the pair is unknown."""


class ModelFeatures:
    """The estimates of the model for a pair, and log(1 + impressions)."""

    names: tuple[str, ...] = (*MODEL_COLUMNS, "log_impressions")

    def lookup(self, table: pa.Table) -> tuple[list[pa.Array], pa.Array]:
        """The features of each pair, null where the model has none; no pair is unknown."""
        values = [get_column(table, name) for name in MODEL_COLUMNS]
        log_impressions = pc.log1p(get_column(table, "impressions"))
        return [*values, log_impressions], pa.array(np.zeros(table.num_rows, np.bool_))


class TableFeatures:
    """The numeric columns of a table with columns query and ad, in which each pair occurs once."""

    def __init__(self, source: object) -> None:
        rows = _read_table(source)
        names = rows.column_names[2:]
        self.names = tuple(name for name in names if _is_number(rows.schema.field(name).type))
        if not self.names:
            raise LogError(
                "features: the table has no column of numbers other than query and ad. Give"
                " Parquet, or a table in memory, with some."
            )
        # Whole numbers above 2^53 are rounded.
        self._values = [
            get_column(rows, name).cast(pa.float64(), safe=False) for name in self.names
        ]
        self._queries, self._ads = Interner(), Interner()
        query = self._queries.codes(get_column(rows, "query"))
        keys = _pair_keys(query, self._ads.codes(get_column(rows, "ad")))
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._refuse_duplicates(rows)

    def lookup(self, table: pa.Table) -> tuple[list[pa.Array], pa.Array]:
        """The features of each pair, and whether the table does not have it."""
        query = self._queries.find(get_column(table, "query"))
        ad = self._ads.find(get_column(table, "ad"))
        keys = _pair_keys(query, ad)
        index = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        unknown = (query < 0) | (ad < 0) | (self._keys[index] != keys)
        rows = pa.array(self._order[index], mask=unknown)
        return [values.take(rows) for values in self._values], pa.array(unknown)

    def _refuse_duplicates(self, rows: pa.Table) -> None:
        duplicate_rows = np.flatnonzero(np.diff(self._keys) == 0)
        if len(duplicate_rows):
            row = int(self._order[duplicate_rows[0]])
            pair = " and ".join(abbreviate(rows[name][row].as_py()) for name in ("query", "ad"))
            hint = "" if len(duplicate_rows) == 1 else ", and it is not the only one"
            raise LogError(f"features: the pair {pair} is in the table twice{hint}.")


def _read_table(source: object) -> pa.Table:
    """The whole table, with query and ad first and as text."""
    batches = []
    for rows_source in open_sources(source, PAIR_COLUMNS, None):
        for batch in rows_source.read(with_rows=True):
            columns = {name: batch.columns[name].cast(TEXT) for name in ("query", "ad")}
            rows: pa.RecordBatch = batch.rows
            for name in rows.schema.names if rows is not None else ():
                columns.setdefault(name, rows.column(name))
            batches.append(pa.table(columns))
    if not batches:
        raise LogError("features: the table has no rows.")
    table = pa.concat_tables(batches)
    for name in ("query", "ad"):
        if missing := table[name].null_count:
            raise LogError(f"features: {missing:,} rows have no {name}. Remove them.")
    return table


def _is_number(kind: pa.DataType) -> bool:
    checks = (arrow_types.is_integer, arrow_types.is_floating, arrow_types.is_boolean)
    return any(check(kind) for check in checks)


def _pair_keys(query: Int32, ad: Int32) -> Int64:
    return (query.astype(np.int64) << 32) | ad.astype(np.int64) & 0xFFFFFFFF
