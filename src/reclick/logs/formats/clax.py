"""Read the arrays of CLAX and of Baidu-ULTR on Hugging Face: Parquet or JSON lines.

A row is a page; each of its slots has an ad and a click (0 or 1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as arrow_types

from reclick.data.schema import TEXT, Column, check_mapping, is_list, is_text, name_column
from reclick.errors import LogError
from reclick.logs.files.jsonl import UnreadableError, as_ids, as_number, as_text, parse_block
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import abbreviate
from reclick.logs.formats.base import BATCH_SESSIONS, ColumnMapping, LogFormat, ReadReport
from reclick.logs.formats.helpers.padded_arrays import LIST_COLUMNS, to_sessions
from reclick.logs.formats.helpers.records import read_parquet_batches
from reclick.logs.validation.reasons import NOT_READABLE

# Reclick's name -> names in the log; the first that exists is used.
COLUMN_NAMES = {
    "query": ("query_id",),
    "ads": ("doc_ids", "query_doc_ids", "url_md5"),
    "clicks": ("clicks", "click"),
    "positions": ("positions", "position"),
    "mask": ("mask",),
    "n": ("n",),
    "session_id": ("session_id",),
}
# These ids name a pair of query and ad: a log of them needs no queries.
PAIR_IDS = "query_doc_ids"
SAMPLE_LINES = 100  # to learn the columns


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(_is_arrays(_column_names(file)) for file in files)


def _is_arrays(names: set[str]) -> bool:
    is_clax = "clicks" in names and bool(names & {"doc_ids", PAIR_IDS})
    return (is_clax or names >= {"url_md5", "click", "n"}) and "ads" not in names


def _column_names(file: LogFile) -> set[str]:
    if file.is_parquet:
        return set(file.columns)
    lines = file.head.split(b"\n", SAMPLE_LINES)[:SAMPLE_LINES]
    return set(next(_parse_objects(lines), {}))


def _read(
    files: list[LogFile], report: ReadReport, columns: ColumnMapping
) -> Iterator[pa.RecordBatch]:
    # Only the names are checked here; types are checked with the files.
    check_mapping(columns, [Column(name, TEXT) for name in COLUMN_NAMES])
    for file in files:
        read = _read_parquet if file.is_parquet else _read_json_lines
        for batch in read(file, report, columns):
            yield to_sessions(batch, file.where, report)


def _choose_columns(available: list[str], columns: ColumnMapping, where: str) -> dict[str, str]:
    """Return {Reclick's name: the name in the log} of the columns that exist."""
    names = {
        name: next((candidate for candidate in candidates if candidate in available), "")
        for name, candidates in COLUMN_NAMES.items()
    }
    names |= {name: source_name for name, source_name in columns.items() if name in COLUMN_NAMES}
    for name, source_name in names.items():
        required = name in {"ads", "clicks"} or (name == "query" and names["ads"] != PAIR_IDS)
        if (source_name and source_name not in available) or (required and not source_name):
            raise LogError(
                f"{where} has no column {source_name or ' or '.join(COLUMN_NAMES[name])}; it has "
                f"{', '.join(available[:30])}. Name the column with ",
                name_column(name),
                ".",
            )
    return {name: source_name for name, source_name in names.items() if source_name}


# ---- Parquet


def _read_parquet(
    file: LogFile, report: ReadReport, columns: ColumnMapping
) -> Iterator[pa.RecordBatch]:
    names: dict[str, str] = {}

    def choose_columns(source: pq.ParquetFile) -> list[str]:
        names.update(_choose_columns(source.schema_arrow.names, columns, file.where))
        _check_types(source.schema_arrow, names, file.where)
        return list(names.values())

    for first, batch in read_parquet_batches(file, report, choose_columns):
        numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
        arrays = [numbers, *(_decode(batch.column(source_name)) for source_name in names.values())]
        yield pa.RecordBatch.from_arrays(arrays, names=["number", *names])


def _decode(column: pa.Array) -> pa.Array:
    """Convert a column to plain values or plain Arrow lists, without dictionaries."""
    if not is_list(column.type):
        return (
            column.cast(column.type.value_type)
            if arrow_types.is_dictionary(column.type)
            else column
        )
    inner = column.type.value_type
    return column.cast(pa.list_(inner.value_type if arrow_types.is_dictionary(inner) else inner))


def _check_types(schema: pa.Schema, names: dict[str, str], where: str) -> None:
    for name, source_name in names.items():
        arrow_type = schema.field(source_name).type
        needs_list = name in LIST_COLUMNS
        value = arrow_type.value_type if is_list(arrow_type) else arrow_type
        is_number = (
            arrow_types.is_integer(value)
            or arrow_types.is_floating(value)
            or arrow_types.is_null(value)
        )
        is_id = name in {"query", "ads", "session_id"}
        fits = is_number or (is_text(value) if is_id else arrow_types.is_boolean(value))
        if is_list(arrow_type) != needs_list or not fits:
            expected = "a list with a value for each slot" if needs_list else "one value per row"
            raise LogError(f"{source_name} in {where}: expected {expected}, got {arrow_type}.")


# ---- JSON lines


def _read_json_lines(
    file: LogFile, report: ReadReport, columns: ColumnMapping
) -> Iterator[pa.RecordBatch]:
    num_lines_read, names, schema = 0, dict[str, str](), pa.schema([])
    for block in file.blocks(report.advance):
        numbered_lines = enumerate(block.removesuffix(b"\n").split(b"\n"), start=num_lines_read + 1)
        lines = [(number, line) for number, line in numbered_lines if line.strip()]
        report.add_records(len(lines))
        num_lines_read += block.count(b"\n")
        if not names:
            objects = list(islice(_parse_objects([line for _, line in lines]), SAMPLE_LINES))
            available = list(dict.fromkeys(name for item in objects for name in item))
            names = _choose_columns(available, columns, file.where)
            kinds = [
                (source_name, _arrow_type(column, source_name, objects))
                for column, source_name in names.items()
            ]
            schema = pa.schema(kinds)
        batch = _parse_valid_block(block, lines, names, schema)
        if batch is None:
            batch = _parse_lines(lines, names, file.where, report)
        for start in range(0, batch.num_rows, BATCH_SESSIONS):
            yield batch.slice(start, BATCH_SESSIONS)


def _parse_objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(item, dict):
            yield item


def _arrow_type(name: str, source_name: str, objects: list[dict[str, Any]]) -> pa.DataType:
    """The type of a column, from its first value."""
    values = (item.get(source_name) for item in objects)
    value = next((value for value in values if value not in (None, [])), None)
    value = value[0] if isinstance(value, list) else value
    kind = pa.float64()
    for python_type, arrow_type in ((str, pa.string()), (bool, pa.bool_()), (int, pa.int64())):
        if isinstance(value, python_type):
            kind = arrow_type
            break
    return pa.list_(kind) if name in LIST_COLUMNS else kind


def _parse_valid_block(
    block: bytes, lines: list[tuple[int, bytes]], names: dict[str, str], schema: pa.Schema
) -> pa.RecordBatch | None:
    """Parse the block with Arrow; None if some lines must be parsed one by one."""
    table = parse_block(block, schema)
    if table is None or table.num_rows != len(lines):
        return None
    numbers = pa.array([number for number, _ in lines], pa.int64())
    arrays = [
        numbers,
        *(table.column(source_name).combine_chunks() for source_name in names.values()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["number", *names])


def _parse_lines(
    lines: list[tuple[int, bytes]], names: dict[str, str], where: str, report: ReadReport
) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = []
    kinds = [(name, JSON_COLUMNS[name][1]) for name in names]
    schema = pa.schema([("number", pa.int64()), *kinds])
    for number, line in lines:
        try:
            row = {"number": number} | _parse_line(line, names)
            # half a surrogate pair is valid JSON, but not text
            pa.RecordBatch.from_pylist([row], schema)
            rows.append(row)
        except (UnreadableError, UnicodeEncodeError, pa.ArrowException) as error:
            report.add_bad_row(NOT_READABLE, where, number, str(error))
    return pa.RecordBatch.from_pylist(rows, schema)


def _parse_line(line: bytes, names: dict[str, str]) -> dict[str, Any]:
    item = next(_parse_objects([line]), None)
    if item is None:
        start = abbreviate(line[:200].decode(errors="replace"))
        raise UnreadableError(f"not a JSON object: {start}")
    return {
        name: JSON_COLUMNS[name][0](item.get(source_name)) for name, source_name in names.items()
    }


def _as_numbers(value: Any) -> list[float | None] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise UnreadableError(f"expected a list, got {abbreviate(value)}")
    return [as_number(int(item) if isinstance(item, bool) else item) for item in value]


JSON_COLUMNS: dict[str, tuple[Callable[[Any], Any], pa.DataType]] = {
    **dict.fromkeys(("query", "session_id"), (as_text, pa.string())),
    "ads": (as_ids, pa.list_(pa.string())),
    **dict.fromkeys(("clicks", "positions", "mask"), (_as_numbers, pa.list_(pa.float64()))),
    "n": (as_number, pa.float64()),
}

FORMAT = LogFormat(
    name="clax",
    title="CLAX and Hugging Face arrays",
    about=(
        "Parquet or JSON lines, a page a row. Keeps queries, ads by position, clicks; they have no "
        "order and are taken from the top down."
    ),
    recognises=_recognises,
    read=_read,
    takes_columns=True,
)
