"""Formats with one line per pair: TREC qrels, and Quepid's CSV of ratings.

Fields of qrels (`query 0 ad grade`) and LETOR are split at white space. Therefore each query gets
an id without white space, listed in a second file; the ids of ads must not have white space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from reclick.errors import Argument, LogError
from reclick.exports.judgment_table import GradedPairs
from reclick.exports.request import ExportRequest, ExportResult
from reclick.exports.text_rows import (
    ONE_LINE_CODES,
    ONE_WORD_CODES,
    WHITE_SPACE,
    concatenate,
    contains_any,
    escape,
    escape_csv,
    get_column,
    map_distinct,
    write_rows,
)
from reclick.logs.files.source import abbreviate
from reclick.runtime.filesystem import AnyPath
from reclick.runtime.outputs import write_files

QUEPID_COLUMNS = ("query", "docid", "rating")  # Quepid accepts no quotes here

# distinct queries, and how many came before → their ids
QueryIds = Callable[[pa.Array, int], pa.Array]
# pairs, and the id of each pair's query → lines
PairLines = Callable[[pa.Table, pa.Array], pa.Array]


# ---- qrels


def write_qrels(request: ExportRequest) -> ExportResult:
    """Write the qrels and the list of queries; a query's id is its percent-encoded text."""
    pairs = GradedPairs.from_request(request)
    tables = pairs.graded_tables(check_ad_ids(request, pairs))
    files = write_with_query_list(request, tables, _encode_queries, _qrels_lines)
    return pairs.result(files)


def _encode_queries(queries: pa.Array, _: int) -> pa.Array:
    return escape(queries, ONE_WORD_CODES)


def _qrels_lines(table: pa.Table, ids: pa.Array) -> pa.Array:
    ad, grade = get_column(table, "ad"), get_column(table, "grade")
    return concatenate(ids, " 0 ", ad, " ", grade, "\n")


# ---- Quepid


def write_quepid(request: ExportRequest) -> ExportResult:
    """Write the CSV, with notes about texts that Quepid or a spreadsheet may misread.

    With `details` it is for a spreadsheet, with the graded value, its interval and its support.
    """
    pairs, warnings = GradedPairs.from_request(request), _SpreadsheetWarnings()
    details = _detail_columns(request.rule.quantity) if request.details else {}

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(",".join([*QUEPID_COLUMNS, *details]).encode() + b"\n")
            for table in warnings.inspect(pairs.graded_tables()):
                write_rows(file, _quepid_lines(table, list(details.values())))

    files = write_files(request.to.parent, {request.to.name: write}, overwrite=request.overwrite)
    return pairs.result(files, *warnings.notes())


def _detail_columns(quantity: str) -> dict[str, str]:
    """The names of further columns in the CSV, and in the table."""
    interval = {"low": f"{quantity}_low", "high": f"{quantity}_high"}
    return {quantity: quantity, **interval, "impressions": "impressions", "clicks": "clicks"}


def _quepid_lines(table: pa.Table, details: list[str]) -> pa.Array:
    query = map_distinct(get_column(table, "query"), escape_csv)
    ad, grade = escape_csv(get_column(table, "ad")), get_column(table, "grade")
    numbers = [part for name in details for part in (",", get_column(table, name))]
    return concatenate(query, ",", ad, ",", grade, *numbers, "\n")


class _SpreadsheetWarnings:
    """Counts pairs whose text is correct in the file but may be misread."""

    def __init__(self) -> None:
        self._broken = self._formulas = 0

    def inspect(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the same tables, and inspect them."""
        for table in tables:
            self._broken += _count_matches(table, '["\r\n]')
            self._formulas += _count_matches(table, "^[=+@\t\r-]")
            yield table

    def notes(self) -> tuple[str, str]:
        """A note for each kind of text; empty if it did not occur."""
        broken = (
            f"{self._broken:,} pairs have a double quote or a line break in their text, which"
            " Quepid's importer does not preserve."
        )
        formulas = (
            f"{self._formulas:,} pairs have text that begins with =, +, -, @ or a tab, which a"
            " spreadsheet may take for a formula."
        )
        return broken if self._broken else "", formulas if self._formulas else ""


def _count_matches(table: pa.Table, pattern: str) -> int:
    """The number of pairs with the pattern in their query or ad."""
    columns = (get_column(table, name) for name in ("query", "ad"))
    query, ad = (pc.match_substring_regex(column, pattern) for column in columns)
    return int(pc.or_(query, ad).true_count)


# ---- formats that are split at white space


def query_list_path(to: AnyPath) -> AnyPath:
    """The path of the list of queries for a file that has only their ids."""
    return to.with_name(f"{to.name}.queries.tsv")


def write_with_query_list(
    request: ExportRequest,
    tables: Iterator[pa.Table],
    ids: QueryIds,
    lines: PairLines,
    header: str = "",
) -> list[AnyPath]:
    """Write a line per pair, and a second file, *.queries.tsv: a query's id, a tab and its text.

    Both appear together.
    """
    to = request.to
    with ExitStack() as stack:
        query_list_files: list[BinaryIO] = []

        # The list of queries is opened first and written together with the pairs, to save memory.
        def open_query_list(path: Path) -> None:
            query_list_files.append(stack.enter_context(path.open("wb")))

        def write_pairs(path: Path) -> None:
            with path.open("wb") as file, query_list_files[0] as query_list:
                file.write(header.encode())
                _write_lines(tables, ids, lines, file, query_list)

        writers: dict[str, Callable[[Path], object]] = {
            query_list_path(to).name: open_query_list,
            to.name: write_pairs,
        }
        return write_files(to.parent, writers, overwrite=request.overwrite)[::-1]


def _write_lines(
    tables: Iterator[pa.Table],
    ids: QueryIds,
    lines: PairLines,
    file: BinaryIO,
    query_list: BinaryIO,
) -> None:
    n_before = 0
    for table in tables:
        query_column = get_column(table, "query").dictionary_encode()
        query_ids = ids(query_column.dictionary, n_before)
        texts = escape(query_column.dictionary, ONE_LINE_CODES)
        write_rows(query_list, concatenate(query_ids, "\t", texts, "\n"))
        write_rows(file, lines(table, query_ids.take(query_column.indices)))
        n_before += len(query_ids)


def check_ad_ids(request: ExportRequest, pairs: GradedPairs) -> Callable[[pa.Table], pa.Table]:
    """A check that raises if the id of an ad has white space, or leaves such ads out."""

    def check(table: pa.Table) -> pa.Table:
        has_space = contains_any(get_column(table, "ad"), WHITE_SPACE)
        if not has_space.true_count:
            return table
        if request.on_error == "raise":
            ad = abbreviate(get_column(table, "ad").filter(has_space)[0].as_py())
            raise LogError(
                f"ad {ad}: this format is split at white space, so the id cannot be written. Leave"
                " such ads out with ",
                Argument("on_error", "drop"),
                ", or export Quepid CSV, OpenSearch JSON or Parquet.",
            )
        return pairs.leave_out(table, has_space, "whose ad's id has white space")

    return check
