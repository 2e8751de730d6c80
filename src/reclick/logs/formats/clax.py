"""The arrays of CLAX and of Baidu-ULTR on Hugging Face: Parquet or JSON lines, a page a row, with an ad and a click (0 or 1) in each slot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as kind_of

from reclick.data.schema import TEXT, Column, check_mapping, is_list, is_text
from reclick.errors import LogError
from reclick.logs.files.archive import LogFile
from reclick.logs.files.cell_parsing import UnreadableError, as_ids, as_number, as_text
from reclick.logs.files.jsonl import parse_block
from reclick.logs.files.source import short
from reclick.logs.formats.base import BATCH, Columns, Format, Found
from reclick.logs.formats.helpers.padded_arrays import to_sessions
from reclick.logs.formats.helpers.parquet_batches import parquet_batches
from reclick.logs.summary import NOT_READABLE

# Reclick's name -> the log's, the first that is there.
NAMES = {
    "query": ("query_id",),
    "ads": ("doc_ids", "query_doc_ids", "url_md5"),
    "clicks": ("clicks", "click"),
    "positions": ("positions", "position"),
    "mask": ("mask",),
    "n": ("n",),
    "session_id": ("session_id",),
}
PAIR_IDS = "query_doc_ids"  # they name a pair of query and ad: a log of them may do without queries
LOOKED_AT = 100  # lines, to learn the columns


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(_is_arrays(_names_in(file)) for file in files)


def _is_arrays(names: set[str]) -> bool:
    clax = "clicks" in names and bool(names & {"doc_ids", PAIR_IDS})
    return (clax or names >= {"url_md5", "click", "n"}) and "ads" not in names


def _names_in(file: LogFile) -> set[str]:
    if file.is_parquet:
        return set(file.columns)
    return {
        name
        for item in islice(_objects(file.head.split(b"\n", LOOKED_AT)[:LOOKED_AT]), 1)
        for name in item
    }


def _read(files: list[LogFile], found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    check_mapping(
        columns, [Column(name, TEXT) for name in NAMES]
    )  # the names alone: types are checked with the files
    for file in files:
        batches = (
            _parquet(file, found, columns) if file.is_parquet else _json_lines(file, found, columns)
        )
        for batch in batches:
            yield to_sessions(batch, file.where, found)


def _parquet(file: LogFile, found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    names: dict[str, str] = {}

    def choose(source: pq.ParquetFile) -> list[str]:
        names.update(_choose(source.schema_arrow.names, columns, file.where))
        _check_types(source.schema_arrow, names, file.where)
        return list(names.values())

    for first, batch in parquet_batches(file, found, choose):
        yield _renamed(batch, names, range(first, first + batch.num_rows))


def _renamed(batch: pa.RecordBatch, names: dict[str, str], numbers: range) -> pa.RecordBatch:
    arrays = [
        pa.array(numbers, pa.int64()),
        *(_plain(batch.column(theirs)) for theirs in names.values()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["number", *names])


def _plain(column: pa.Array) -> pa.Array:
    """A column as a plain list or a plain value, whatever Arrow type it was written as."""
    if not is_list(column.type):
        return column.cast(column.type.value_type) if kind_of.is_dictionary(column.type) else column
    inner = column.type.value_type
    return column.cast(pa.list_(inner.value_type if kind_of.is_dictionary(inner) else inner))


def _choose(available: list[str], columns: Columns, where: str) -> dict[str, str]:
    """Return {Reclick's name: the log's} of the columns that are there."""
    names = {
        ours: next((name for name in theirs if name in available), "")
        for ours, theirs in NAMES.items()
    }
    names |= {ours: theirs for ours, theirs in columns.items() if ours in NAMES}
    for ours, theirs in names.items():
        needed = ours in {"ads", "clicks"} or (ours == "query" and names["ads"] != PAIR_IDS)
        if (theirs and theirs not in available) or (needed and not theirs):
            raise LogError(
                f"{where} has no column {theirs or ' or '.join(NAMES[ours])}; it has {', '.join(available[:30])}. "
                f'Name the column with columns={{"{ours}": "..."}} (on the command line --column {ours}=...).'
            )
    return {ours: theirs for ours, theirs in names.items() if theirs}


def _check_types(schema: pa.Schema, names: dict[str, str], where: str) -> None:
    for ours, theirs in names.items():
        got = schema.field(theirs).type
        lists = ours in {"ads", "clicks", "positions", "mask"}
        value = got.value_type if is_list(got) else got
        number = kind_of.is_integer(value) or kind_of.is_floating(value) or kind_of.is_null(value)
        fits = number or (
            is_text(value) if ours in {"query", "ads", "session_id"} else kind_of.is_boolean(value)
        )
        if is_list(got) != lists or not fits:
            raise LogError(
                f"{theirs} in {where}: expected {'a list with a value for each slot' if lists else 'one value a row'}, got {got}."
            )


def _json_lines(file: LogFile, found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    done, names, schema = 0, dict[str, str](), pa.schema([])
    for block in file.blocks(found.advance):
        lines = [
            (number, line)
            for number, line in enumerate(block.removesuffix(b"\n").split(b"\n"), start=done + 1)
            if line.strip()
        ]
        done += block.count(b"\n")
        if not names:
            objects = list(islice(_objects([line for _, line in lines]), LOOKED_AT))
            names = _choose(
                list(dict.fromkeys(name for item in objects for name in item)), columns, file.where
            )
            schema = pa.schema(
                [(theirs, _arrow_type(ours, theirs, objects)) for ours, theirs in names.items()]
            )
        batch = _sound(block, lines, names, schema)
        if batch is None:
            batch = _careful(lines, names, file.where, found)
        for start in range(0, batch.num_rows, BATCH):
            yield batch.slice(start, BATCH)


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(item, dict):
            yield item


def _arrow_type(ours: str, theirs: str, objects: list[dict[str, Any]]) -> pa.DataType:
    lists = ours in {"ads", "clicks", "positions", "mask"}
    values = (item.get(theirs) for item in objects)
    value = next(
        (
            value[0] if isinstance(value, list) else value
            for value in values
            if value not in (None, [])
        ),
        None,
    )
    kind = (
        pa.string()
        if isinstance(value, str)
        else pa.bool_()
        if isinstance(value, bool)
        else pa.int64()
        if isinstance(value, int)
        else pa.float64()
    )
    return pa.list_(kind) if lists else kind


def _sound(
    block: bytes, lines: list[tuple[int, bytes]], names: dict[str, str], schema: pa.Schema
) -> pa.RecordBatch | None:
    """The block as Arrow reads it; None when any line needs a closer look."""
    table = parse_block(block, schema)
    if table is None or table.num_rows != len(lines):
        return None
    numbers = pa.array([number for number, _ in lines], pa.int64())
    arrays = [numbers, *(table.column(theirs).combine_chunks() for theirs in names.values())]
    return pa.RecordBatch.from_arrays(arrays, names=["number", *names])


def _careful(
    lines: list[tuple[int, bytes]], names: dict[str, str], where: str, found: Found
) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = []
    schema = pa.schema([("number", pa.int64()), *((ours, KINDS[ours][1]) for ours in names)])
    for number, line in lines:
        try:
            row = {"number": number} | _parsed(line, names)
            pa.RecordBatch.from_pylist(
                [row], schema
            )  # half a surrogate pair is legal JSON and not text
            rows.append(row)
        except (UnreadableError, UnicodeEncodeError, pa.ArrowException) as error:
            found.bad(NOT_READABLE, where, number, str(error))
    return pa.RecordBatch.from_pylist(rows, schema)


def _parsed(line: bytes, names: dict[str, str]) -> dict[str, Any]:
    item = next(_objects([line]), None)
    if item is None:
        raise UnreadableError(f"not a JSON object: {short(line[:200].decode(errors='replace'))}")
    return {ours: KINDS[ours][0](item.get(theirs)) for ours, theirs in names.items()}


def _as_numbers(value: Any) -> list[float | None] | None:
    if value is not None and not isinstance(value, list):
        raise UnreadableError(f"expected a list, got {short(value)}")
    return (
        None
        if value is None
        else [as_number(int(item) if isinstance(item, bool) else item) for item in value]
    )


KINDS = {
    **dict.fromkeys(("query", "session_id"), (as_text, pa.string())),
    "ads": (as_ids, pa.list_(pa.string())),
    **dict.fromkeys(("clicks", "positions", "mask"), (_as_numbers, pa.list_(pa.float64()))),
    "n": (as_number, pa.float64()),
}

CLAX = Format(
    name="clax",
    title="CLAX and Hugging Face arrays",
    about="Parquet or JSON lines, a page a row. Keeps queries, ads by position, clicks; they have no order and are taken from the top down.",
    recognises=_recognises,
    read=_read,
    takes_columns=True,
)
