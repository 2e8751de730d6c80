"""Read side tables: the text of ads, labels (judged relevance), pairs, candidates and bids.

These tables fit in memory.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from reclick.data.arrow_checks import find_invalid_utf8
from reclick.data.schema import (
    AD_COLUMNS,
    BID_COLUMNS,
    CANDIDATE_COLUMNS,
    LABEL_COLUMNS,
    PAIR_COLUMNS,
    TEXT,
    Column,
)
from reclick.errors import LogError
from reclick.logs.files.source import (
    OnError,
    RawBatch,
    Source,
    abbreviate,
    check_on_error,
    open_sources,
)
from reclick.logs.read_summary import SummaryBuilder, bad_rows_error, describe_bad_rows
from reclick.logs.validation.encode import encode_number
from reclick.logs.validation.reasons import (
    AD_TWICE,
    BAD_BID,
    BAD_BUDGET,
    BAD_RELEVANCE,
    BAD_VALUE,
    BAD_WEIGHT,
    NO_AD,
    NO_QUERY,
    NOT_READABLE,
    PAIR_TWICE,
)
from reclick.runtime.arguments import check_arguments

logger = logging.getLogger("reclick")
Bool = npt.NDArray[np.bool_]
TEXT_COLUMNS = ("title", "description", "display_url")


@dataclass(slots=True)
class SideTableCheck:
    """The rows of a small table, with their places in the source; bad rows are marked."""

    name: str
    table: pa.Table  # canonical columns only
    batches: list[RawBatch]
    bad: Bool  # [row]
    builder: SummaryBuilder = field(default_factory=SummaryBuilder)
    sources: list[Source] = field(default_factory=list)

    @property
    def column_names(self) -> list[str]:
        """All columns of the first source, also those that are not read."""
        rows = next(self.sources[0].read(with_rows=True)).rows
        return [] if rows is None else [f"{name:.60}" for name in rows.schema.names]

    def mark(self, rows: Bool, reason: str, column: str) -> None:
        """Mark rows as bad for a reason, except those that are marked already."""
        starts = np.cumsum([0, *(batch.length for batch in self.batches)])
        for row in np.flatnonzero(rows & ~self.bad).tolist():
            index = bisect_right(starts, row) - 1
            batch = self.batches[index]
            number = batch.row_number(row - int(starts[index]))
            got = abbreviate(self.table.column(column)[row].as_py())
            self.builder.drop(reason, batch.where, number, got)
        self.bad |= rows

    def finish(self, on_error: OnError) -> pa.Table:
        """Return the good rows; with on_error="raise", raise if there is a bad row."""
        rows = sum(batch.length + len(batch.unreadable) for batch in self.batches)
        if not rows:
            raise LogError(f"{self.name} has no rows.")
        if not self.builder.dropped:
            return self.table
        summary = self.builder.build()
        if on_error == "raise":
            raise bad_rows_error(rows, summary.dropped, summary.examples, self.name)
        message = describe_bad_rows(rows, summary.dropped, summary.examples, self.name)
        logger.warning("Dropped: %s", message)
        return self.table.filter(pa.array(~self.bad))


@check_arguments
def read_ads(
    source: Any, *, columns: Mapping[str, str] | None = None, on_error: OnError = "raise"
) -> pa.Table:
    """Read the text of ads as a table of `ad`, `title`, `description`, `display_url`.

    Missing text is empty text. A dict of ads and their text, `{"a1": "Running shoes"}`, is a table
    of titles.

    >>> read_ads(pa.table({"ad": ["a1"], "title": ["Running shoes"]})).to_pylist()
    [{'ad': 'a1', 'title': 'Running shoes', 'description': '', 'display_url': ''}]
    >>> read_ads({"a1": "Running shoes"}).to_pylist()
    [{'ad': 'a1', 'title': 'Running shoes', 'description': '', 'display_url': ''}]
    """
    if isinstance(source, Mapping) and all(isinstance(text, str) for text in source.values()):
        source = {"ad": list(source), "title": list(source.values())}
    check = _read_table(source, AD_COLUMNS, columns, on_error)
    if check.batches and not any(set(TEXT_COLUMNS) & set(batch.columns) for batch in check.batches):
        raise LogError(
            f"{check.name} has no text of ads: no column title, description or display_url. It has "
            f"{', '.join(check.column_names)}. Give a table of ads and their text, and rename its "
            "columns if they have other names."
        )
    check.mark(_is_empty(check.table["ad"]), NO_AD, "ad")
    for name in TEXT_COLUMNS:
        index = check.table.column_names.index(name)
        check.table = check.table.set_column(index, name, check.table[name].fill_null(""))
    first = _find_first_rows(check.table["ad"])
    is_repeated = first != np.arange(len(first))
    if not is_repeated.any():
        return check.finish(on_error)
    check.mark(is_repeated & _has_other_text(check.table, first), AD_TWICE, "ad")
    check.finish(on_error)
    return check.table.filter(pa.array(~(check.bad | is_repeated)))


@check_arguments
def read_labels(
    source: Any, *, columns: Mapping[str, str] | None = None, on_error: OnError = "raise"
) -> pa.Table:
    """Read judgments as a table of `query`, `ad`, `relevance`.

    >>> read_labels(pa.table({"query": ["shoes"], "ad": ["a1"], "relevance": [3]})).to_pylist()
    [{'query': 'shoes', 'ad': 'a1', 'relevance': 3.0}]
    """
    check = _read_table(source, LABEL_COLUMNS, columns, on_error)
    _mark_incomplete_pairs(check)
    finite = np.isfinite(np.asarray(check.table["relevance"].fill_null(float("nan"))))
    check.mark(~finite, BAD_RELEVANCE, "relevance")
    return check.finish(on_error)


def read_pairs(
    source: Any, *, columns: Mapping[str, str] | None = None, on_error: OnError = "raise"
) -> pa.Table:
    """Read (query, ad) pairs as a table of `query`, `ad`."""
    check = _read_table(source, PAIR_COLUMNS, columns, on_error)
    _mark_incomplete_pairs(check)
    return check.finish(on_error)


def read_candidates(
    source: Any, *, columns: Mapping[str, str] | None = None, on_error: OnError = "raise"
) -> pa.Table:
    """Read the ads that may be shown for each query, as a table of `query`, `ad`, `value`.

    The value of a click is optional: nan where it is missing.
    """
    check = _read_table(source, CANDIDATE_COLUMNS, columns, on_error)
    _mark_incomplete_pairs(check)
    value = np.asarray(check.table["value"])
    check.mark((value < 0) | np.isinf(value), BAD_VALUE, "value")
    check.mark(_find_repeated(check, ["query", "ad"]), PAIR_TWICE, "ad")
    return check.finish(on_error)


@check_arguments
def read_bids(
    source: Any, *, columns: Mapping[str, str] | None = None, on_error: OnError = "raise"
) -> pa.Table:
    """Read the bids of auctions, one row per ad.

    Columns: `query`, `ad` and `bid` (per click) or `satisfaction_bid` (per click that satisfies);
    optional `weight`, `budget`, `advertiser`, and `auction`, where a query has several auctions.

    >>> table = read_bids({"query": ["pizza"], "ad": ["a"], "bid": [0.5]})
    >>> table.select(["query", "ad", "bid", "weight"]).to_pylist()
    [{'query': 'pizza', 'ad': 'a', 'bid': 0.5, 'weight': 1.0}]
    """
    check = _read_table(source, BID_COLUMNS, columns, on_error)
    if not any({"bid", "satisfaction_bid"} & set(batch.columns) for batch in check.batches):
        raise LogError(f"{check.name} has no column bid.")
    _mark_incomplete_pairs(check)
    bid, satisfaction_bid = (np.asarray(check.table[name]) for name in ("bid", "satisfaction_bid"))
    exactly_one = np.isnan(bid) != np.isnan(satisfaction_bid)
    amount = np.where(np.isnan(bid), satisfaction_bid, bid)
    check.mark(~(exactly_one & (amount >= 0) & np.isfinite(amount)), BAD_BID, "bid")
    _fill_missing(check, "weight", 1.0)
    _fill_missing(check, "budget", np.inf)
    weight, budget = (np.asarray(check.table[name]) for name in ("weight", "budget"))
    check.mark(~((weight > 0) & np.isfinite(weight)), BAD_WEIGHT, "weight")
    check.mark(~(budget >= 0), BAD_BUDGET, "budget")
    check.mark(_find_repeated(check, ["auction", "query", "ad"]), PAIR_TWICE, "ad")
    return check.finish(on_error)


def _fill_missing(check: SideTableCheck, name: str, default: float) -> None:
    values = np.asarray(check.table[name])
    column = pa.array(np.where(np.isnan(values), default, values))
    check.table = check.table.set_column(check.table.column_names.index(name), name, column)


def _find_repeated(check: SideTableCheck, names: list[str]) -> Bool:
    """Whether each row repeats an earlier row in these columns."""
    rows = check.table.select(names).append_column("row", pa.array(np.arange(len(check.table))))
    first = rows.group_by(names).aggregate([("row", "min")])["row_min"].to_numpy()
    is_repeated = np.ones(len(rows), np.bool_)
    is_repeated[first] = False
    return is_repeated


def as_pairs(source: Any) -> tuple[pa.LargeStringArray, pa.LargeStringArray]:
    """The queries and the ads of a table of (query, ad) pairs, or of one page, (query, ads)."""
    if isinstance(source, tuple) and len(source) == 2 and not isinstance(source[1], str):
        source = {"query": [source[0]] * len(source[1]), "ad": list(source[1])}
    table = read_pairs(source)
    query, ad = (table[name].combine_chunks().cast(pa.large_string()) for name in ("query", "ad"))
    return query, ad


def _mark_incomplete_pairs(check: SideTableCheck) -> None:
    check.mark(_is_empty(check.table["query"]), NO_QUERY, "query")
    check.mark(_is_empty(check.table["ad"]), NO_AD, "ad")


def _read_table(
    source: Any,
    columns_to_read: tuple[Column, ...],
    columns: Mapping[str, str] | None,
    on_error: str,
) -> SideTableCheck:
    check_on_error(on_error)
    sources = open_sources(source, columns_to_read, columns)
    name = sources[0].where if len(sources) == 1 else f"{len(sources)} files"
    builder = SummaryBuilder()
    batches, tables, bad = [], [], []
    for table_source in sources:
        for raw in table_source.read(with_rows=False):
            for number, got in raw.unreadable:
                builder.drop(NOT_READABLE, raw.where, number, got)
            table, not_text = _to_canonical(raw, columns_to_read)
            for row in np.flatnonzero(not_text).tolist():
                number = raw.row_number(row)
                builder.drop(NOT_READABLE, raw.where, number, "text that is not UTF-8")
            batches.append(raw)
            tables.append(table)
            bad.append(not_text)
    kinds = (
        (each.name, pa.string() if each.kind == TEXT else pa.float64()) for each in columns_to_read
    )
    table = pa.concat_tables([pa.schema(list(kinds)).empty_table(), *tables])
    bad_rows = np.concatenate([np.zeros(0, np.bool_), *bad])
    return SideTableCheck(name, table, batches, bad_rows, builder, sources)


def _to_canonical(raw: RawBatch, columns_to_read: tuple[Column, ...]) -> tuple[pa.Table, Bool]:
    """The batch as strings and floats, and a mask of rows with text that is not UTF-8."""
    not_text = np.zeros(raw.length, np.bool_)
    arrays = []
    for column in columns_to_read:
        values = raw.columns.get(column.name, pa.nulls(raw.length))
        if column.kind == TEXT:
            text, invalid = _to_text(values)
            not_text |= invalid
            arrays.append(text)
        else:
            arrays.append(pa.array(encode_number(values)))
    return pa.table(arrays, names=[column.name for column in columns_to_read]), not_text


def _to_text(values: pa.Array) -> tuple[pa.StringArray, Bool]:
    if arrow_types.is_dictionary(values.type):
        text = values.dictionary.cast(pa.string()).take(values.indices)
    else:
        text = values.cast(pa.string())
    invalid = np.zeros(len(text), np.bool_)
    invalid[find_invalid_utf8(text)] = True
    if invalid.any():
        text = pc.if_else(pa.array(invalid), pa.scalar("", pa.string()), text)
    return text, invalid


def _is_empty(column: pa.ChunkedArray) -> Bool:
    return np.asarray(pc.equal(pc.binary_length(column).fill_null(0), 0))


def _find_first_rows(ads: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return, for every row, the first row that lists the same ad."""
    if not len(ads):
        return np.zeros(0, np.int64)
    codes = np.asarray(ads.combine_chunks().dictionary_encode().indices.fill_null(-1))
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return first[inverse]


def _has_other_text(table: pa.Table, first: npt.NDArray[np.int64]) -> Bool:
    """Whether the text of a row differs from that of the first row of its ad."""
    original = table.take(pa.array(first))
    differs = np.zeros(len(first), np.bool_)
    for name in TEXT_COLUMNS:
        differs |= np.asarray(pc.not_equal(table[name], original[name]))
    return differs
