"""Read JSON lines: one JSON object per line. Arrow reads sound blocks; any other block is read again line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from reclick.data.schema import IDS, TEXT, TIME, Column, find_columns, wrong_type
from reclick.errors import LogError
from reclick.logs.files.blocks import read_blocks
from reclick.logs.files.cell_parsing import ARROW, AS_KIND, UnreadableError
from reclick.logs.files.source import Raw, short

LOOKED_AT = 100  # lines at the start, to learn the columns


@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """A file of JSON lines whose first objects were read and found right."""

    path: str
    where: str
    names: dict[str, str]
    wanted: tuple[Column, ...]
    schema: pa.Schema  # of the columns read, under the source's names
    others: tuple[str, ...]  # further columns seen at the start of the file
    num_rows: int | None = None

    def read(self, *, with_rows: bool) -> Iterator[Raw]:
        """Read in row order. Other columns, when asked for, are text: strings as they are, anything else as JSON."""
        done = 0
        for block in read_blocks(self.path, self.where):
            lines = [line for line in block.split(b"\n") if line.strip()]
            if not lines:
                continue
            raw = self._sound(block, lines, done) or self._careful(lines, done)
            done += raw.total
            yield self._with_rows(raw, lines) if with_rows else raw

    def _sound(self, block: bytes, lines: list[bytes], done: int) -> Raw | None:
        table = parse_block(block, self.schema)
        if table is None or table.num_rows != len(lines):
            return None
        columns = {name: _one_array(table.column(theirs)) for name, theirs in self.names.items()}
        return Raw(self.where, done + 1, columns, table.num_rows)

    def _careful(self, lines: list[bytes], done: int) -> Raw:
        kept: list[list[Any]] = []
        numbers: list[int] = []
        unreadable: list[tuple[int, str]] = []
        kinds = {column.name: column.kind for column in self.wanted}
        for number, line in enumerate(lines, start=done + 1):
            try:
                kept.append(_parse_line(line, self.names, kinds))
                numbers.append(number)
            except UnreadableError as error:
                unreadable.append((number, str(error)))
        columns = {
            name: pa.array([row[i] for row in kept], ARROW[kinds[name]])
            for i, name in enumerate(self.names)
        }
        return Raw(
            self.where, done + 1, columns, len(kept), np.asarray(numbers, np.int64), unreadable
        )

    def _with_rows(self, raw: Raw, lines: list[bytes]) -> Raw:
        chosen = (
            range(raw.length)
            if raw.numbers is None
            else [int(number) - raw.first for number in raw.numbers]
        )
        objects = [json.loads(lines[index]) for index in chosen]
        arrays = {theirs: raw.columns[name] for name, theirs in self.names.items()}
        arrays |= {
            name: pa.array([_as_json(item.get(name)) for item in objects], pa.string())
            for name in self.others
        }
        rows = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
        return Raw(raw.where, raw.first, raw.columns, raw.length, raw.numbers, raw.unreadable, rows)


def parse_block(block: bytes, schema: pa.Schema) -> pa.Table | None:
    """Let Arrow parse lines of JSON objects, in one piece; other fields are passed over. None when anything is not as the schema says."""
    try:
        table = arrow_json.read_json(
            pa.BufferReader(block),
            read_options=arrow_json.ReadOptions(block_size=len(block) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        table.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return table


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line, or raise UnreadableError."""
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {short(line[:200].decode(errors='replace'))}") from error
    if not isinstance(item, dict):
        raise UnreadableError(f"expected a JSON object, got {short(item)}")
    return item


def open_jsonlines(
    path: str, where: str, wanted: Sequence[Column], mapping: dict[str, str]
) -> JsonLinesSource:
    """Read the first lines of a file of JSON lines and check the columns they show."""
    objects = list(_first_objects(path, where))
    available = list(dict.fromkeys(key for item in objects for key in item))
    if not objects:
        raise LogError(
            f"{where} is not JSON lines: none of its first lines is a JSON object. Write one object per line."
        )
    names = find_columns(available, wanted, mapping, where)
    kinds = {column.name: column for column in wanted}
    for name, theirs in names.items():
        _check_kind(
            kinds[name], [item[theirs] for item in objects if item.get(theirs) is not None], where
        )
    schema = pa.schema(
        [(theirs, _arrow_type(kinds[name].kind, theirs, objects)) for name, theirs in names.items()]
    )
    others = tuple(name for name in available if name not in names.values())
    return JsonLinesSource(path, where, names, tuple(wanted), schema, others)


def _first_objects(path: str, where: str) -> Iterator[dict[str, Any]]:
    lines = (
        line
        for block in read_blocks(path, where, block=1 << 16)
        for line in block.split(b"\n")
        if line.strip()
    )
    for line in islice(lines, LOOKED_AT):
        with suppress(UnreadableError):
            yield parse_object(line)


def _check_kind(column: Column, values: list[Any], where: str) -> None:
    """Refuse the file when no value of the column seen so far is of its kind; single bad ones are for the reading to count."""
    wrong = None
    for value in values:
        try:
            AS_KIND[column.kind](value)
        except UnreadableError:
            wrong = wrong or type(value).__name__
        else:
            return
    if wrong:
        raise LogError(
            wrong_type(column, where, {"str": "string", "dict": "object"}.get(wrong, wrong))
        )


def _arrow_type(kind: str, name: str, objects: list[dict[str, Any]]) -> pa.DataType:
    """Return the type Arrow reads a column with: ids that are whole numbers are read as such."""
    value = next((item[name] for item in objects if item.get(name)), None)
    first = value[0] if isinstance(value, list) else value
    if not isinstance(first, int) or isinstance(first, bool) or kind not in {TEXT, IDS, TIME}:
        return ARROW[kind]
    return pa.list_(pa.int64()) if kind == IDS else pa.int64()


def _parse_line(line: bytes, names: dict[str, str], kinds: dict[str, str]) -> list[Any]:
    item = parse_object(line)
    return [_parse_field(name, kinds[name], item.get(theirs)) for name, theirs in names.items()]


def _parse_field(name: str, kind: str, value: Any) -> Any:
    try:
        parsed = AS_KIND[kind](value)
        pa.array(
            [parsed], ARROW[kind]
        )  # half a surrogate pair ("\ud83d") is legal JSON and not text
    except UnreadableError as error:
        raise UnreadableError(f"{name}: {error}") from error
    except (UnicodeEncodeError, pa.ArrowException) as error:
        raise UnreadableError(f"{name}: not text: {short(value)}") from error
    return parsed


def _as_json(value: Any) -> str | None:
    text = (
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    )
    return None if text is None else text.encode(errors="replace").decode()


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
