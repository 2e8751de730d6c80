"""Read JSON lines: one JSON object per line. Arrow reads valid blocks, Python the others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from reclick.data.schema import (
    FLAG,
    IDS,
    NUMBER,
    NUMBERS,
    POSITIONS,
    TEXT,
    TIME,
    Column,
    explain_type,
    find_columns,
)
from reclick.errors import LogError
from reclick.logs.files.log_file import BOM, read_blocks
from reclick.logs.files.source import RawBatch, abbreviate
from reclick.runtime.filesystem import Location
from reclick.runtime.parallel import thread_limit

SAMPLE_LINES = 100  # at the start of a file, to learn its columns
MOST_COLUMNS = 2_000  # of a table, if all fields become columns
MOST_CELLS = 4_000_000  # of a batch, if all fields become columns
MAX_DIGITS = 4000  # of a whole number; Python's limit is 4,300
OBJECT_FIRST = re.compile(b"(?:" + BOM + rb")?[ \t\r\n]*\{")


@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """A file of JSON lines whose first objects have valid columns."""

    path: Location
    where: str
    names: dict[str, str]
    columns_to_read: tuple[Column, ...]
    schema: pa.Schema  # of the columns to read, under their names in the source
    other_columns: tuple[str, ...]  # further columns in the first lines of the file
    num_rows: int | None = None
    can_move: ClassVar[bool] = True  # another process can read it

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in row order. Other columns are text: strings unchanged, other values as JSON."""
        num_read = 0
        for block, lines in self._read_lines(with_rows):
            raw = self._parse_block(block, lines, num_read) or self._parse_lines(lines, num_read)
            num_read += raw.length + len(raw.unreadable)
            yield self._add_rows(raw, lines) if with_rows else raw

    def _read_lines(self, with_rows: bool) -> Iterator[tuple[bytes, list[bytes]]]:
        """Blocks and their lines; with all columns, at most MOST_CELLS cells at a time."""
        if with_rows and len(self.other_columns) > MOST_COLUMNS:
            raise LogError(
                f"{self.where} has {len(self.other_columns):,} different fields in its first "
                f"lines, and at most {MOST_COLUMNS:,} can be columns of a table. Leave out those "
                "that are not needed, or put them into one field."
            )
        max_lines = max(1, MOST_CELLS // (len(self.other_columns) + 1))
        for block in read_blocks(self.path, self.where):
            lines = [line for line in block.split(b"\n") if line.strip()]
            if not with_rows or len(lines) <= max_lines:
                if lines:
                    yield block, lines
                continue
            for start in range(0, len(lines), max_lines):
                part = lines[start : start + max_lines]
                yield b"\n".join(part), part

    def _parse_block(self, block: bytes, lines: list[bytes], num_read: int) -> RawBatch | None:
        table = parse_block(block, self.schema)
        if table is None or table.num_rows != len(lines):
            return None
        columns = {
            name: _combine(table.column(source_name)) for name, source_name in self.names.items()
        }
        return RawBatch(self.where, num_read + 1, columns, table.num_rows)

    def _parse_lines(self, lines: list[bytes], num_read: int) -> RawBatch:
        rows: list[list[Any]] = []
        numbers: list[int] = []
        unreadable: list[tuple[int, str]] = []
        columns_by_name = {column.name: column for column in self.columns_to_read}
        for number, line in enumerate(lines, start=num_read + 1):
            try:
                rows.append(self._parse_line(line, columns_by_name))
                numbers.append(number)
            except UnreadableError as error:
                unreadable.append((number, str(error)))
        columns = {
            name: pa.array([row[i] for row in rows], ARROW_TYPES[columns_by_name[name].kind])
            for i, name in enumerate(self.names)
        }
        row_numbers = np.asarray(numbers, np.int64)
        return RawBatch(self.where, num_read + 1, columns, len(rows), row_numbers, unreadable)

    def _parse_line(self, line: bytes, columns_by_name: dict[str, Column]) -> list[Any]:
        """The values of a line; if Python cannot parse it, those that Arrow reads from this line.

        So whether a line is good does not depend on its neighbours.
        """
        try:
            item = parse_object(line)
        except UnreadableError:
            table = parse_block(line, self.schema)
            if table is None or table.num_rows != 1:
                raise
            item = table.to_pylist()[0]
        return [
            _parse_field(columns_by_name[name], item.get(source_name))
            for name, source_name in self.names.items()
        ]

    def _add_rows(self, raw: RawBatch, lines: list[bytes]) -> RawBatch:
        numbers = np.arange(raw.length) if raw.row_numbers is None else raw.row_numbers
        first = 0 if raw.row_numbers is None else raw.first_row
        objects = [_other_fields(lines[number - first]) for number in numbers.tolist()]
        arrays = {
            source_name: raw.columns[name]
            for name, source_name in self.names.items()
            if source_name not in self.other_columns
        }
        for name in self.other_columns:
            arrays[replace_surrogates(name)] = pa.array(
                [_to_json(item.get(name)) for item in objects], pa.string()
            )
        rows = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
        return replace(raw, rows=rows)


def open_jsonl(
    path: Location, where: str, columns_to_read: Sequence[Column], mapping: dict[str, str]
) -> JsonLinesSource:
    """Read the first lines of a file of JSON lines and check their columns."""
    objects = list(_first_objects(path, where))
    available = list(dict.fromkeys(key for item in objects for key in item))
    readable = [name for name in available if replace_surrogates(name) == name]
    if not objects:
        raise LogError(
            f"{where} is not JSON lines: none of its first lines is a JSON object. "
            "Write one object per line."
        )
    names = find_columns(readable, columns_to_read, mapping, where)
    columns_by_name = {column.name: column for column in columns_to_read}
    for name, source_name in list(names.items()):
        values = [item[source_name] for item in objects if item.get(source_name) is not None]
        if not columns_by_name[name].lenient:
            _check_kind(columns_by_name[name], values, where)
        elif len({*map(type, values)} - {str, int}) > 0 or len({*map(type, values)}) > 1:
            del names[name]  # Arrow reads a column of one type
    schema = pa.schema(
        [
            (source_name, _arrow_type(columns_by_name[name].kind, source_name, objects))
            for name, source_name in names.items()
        ]
    )
    names_to_read = {
        source_name for name, source_name in names.items() if not columns_by_name[name].lenient
    }
    other_columns = tuple(
        {replace_surrogates(name): name for name in available if name not in names_to_read}.values()
    )
    return JsonLinesSource(path, where, names, tuple(columns_to_read), schema, other_columns)


def parse_block(block: bytes, schema: pa.Schema) -> pa.Table | None:
    """Parse lines of JSON objects with Arrow, ignoring other fields.

    None when anything does not fit the schema, or a value is null: Arrow crashes where it is the
    first, and reads another as an object without fields.
    """
    if not OBJECT_FIRST.match(block) or b"\nnull" in block:
        return None
    try:
        table = arrow_json.read_json(
            pa.BufferReader(block),
            read_options=arrow_json.ReadOptions(
                block_size=len(block) + 1, use_threads=thread_limit() > 1
            ),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        table.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return table


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line, or raise UnreadableError.

    Bytes that are not UTF-8 become lone surrogates: they are an error in a field that is read, and
    are ignored in other fields.
    """
    try:
        item = _load(line)
    except (ValueError, RecursionError) as error:
        start = abbreviate(line[:200].decode(errors="replace"))
        raise UnreadableError(f"not JSON: {start}") from error
    if not isinstance(item, dict):
        raise UnreadableError(f"expected a JSON object, got {abbreviate(item)}")
    return item


def _load(line: bytes) -> Any:
    # With bytes, json.loads would guess UTF-16 or UTF-32 from the first bytes.
    text = line.removeprefix(BOM).decode(errors="surrogateescape")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # Python cannot parse whole numbers of more than 4,300 digits
        return json.loads(text, parse_int=_parse_whole)


def _parse_whole(digits: str) -> int | float:
    return int(digits) if len(digits) < MAX_DIGITS else float(digits)


def _other_fields(line: bytes) -> dict[str, Any]:
    """All fields of a line; none if it is nested too deeply for Python."""
    try:
        return parse_object(line)
    except UnreadableError:
        return {}


def replace_surrogates(text: str) -> str:
    """Make text valid: half a surrogate pair, which JSON allows, becomes a question mark."""
    return text.encode(errors="replace").decode()


def _first_objects(path: Location, where: str) -> Iterator[dict[str, Any]]:
    lines = (
        line
        for block in read_blocks(path, where, block_bytes=1 << 16)
        for line in block.split(b"\n")
        if line.strip()
    )
    for line in islice(lines, SAMPLE_LINES):
        with suppress(UnreadableError):
            yield parse_object(line)


def _check_kind(column: Column, values: list[Any], where: str) -> None:
    """Raise if no value of a column has the right type; single bad values are counted later."""
    wrong_type = None
    for value in values:
        try:
            CONVERTERS[column.kind](value)
        except UnreadableError:
            wrong_type = wrong_type or type(value).__name__
        else:
            return
    if wrong_type:
        got = {"str": "string", "dict": "object"}.get(wrong_type, wrong_type)
        raise LogError(*explain_type(column, where, got))


def _arrow_type(kind: str, name: str, objects: list[dict[str, Any]]) -> pa.DataType:
    """Return the type to read a column with; ids that are whole numbers are read as integers."""
    value = next((item[name] for item in objects if item.get(name)), None)
    first = value[0] if isinstance(value, list) else value
    if not isinstance(first, int) or isinstance(first, bool) or kind not in {TEXT, IDS, TIME}:
        return ARROW_TYPES[kind]
    return pa.list_(pa.int64()) if kind == IDS else pa.int64()


def _parse_field(column: Column, value: Any) -> Any:
    name, kind = column.name, column.kind
    try:
        result = CONVERTERS[kind](value)
        pa.array([result], ARROW_TYPES[kind])  # half a surrogate pair is valid JSON, but not text
    except (UnreadableError, UnicodeEncodeError, pa.ArrowException) as error:
        if column.lenient:
            return None
        fault = error if isinstance(error, UnreadableError) else f"not text: {abbreviate(value)}"
        raise UnreadableError(f"{name}: {fault}") from error
    return result


def _to_json(value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return None
    return replace_surrogates(text)


def _combine(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


# ---- values: convert the value of a JSON field to that of its column


class UnreadableError(ValueError):
    """A cell or field has a value that its column cannot have."""


def as_text(value: Any) -> str | None:
    """Return a JSON value as text: a string, or a whole number as its digits."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UnreadableError(f"expected text, got {abbreviate(value)}")


def as_ids(value: Any) -> list[str | None] | None:
    """Return a JSON value as a list of ids."""
    return None if value is None else [as_text(item) for item in _as_list(value)]


def as_positions(value: Any) -> list[int | None] | None:
    """Return a JSON value as a list of positions, clipped to 32 bits."""
    return None if value is None else [as_position(item) for item in _as_list(value)]


def as_position(value: Any) -> int | None:
    """Return a JSON value as a position, clipped to 32 bits."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(min(value, 2**31 - 1), -(2**31) + 1)
    raise UnreadableError(f"expected whole numbers, got {abbreviate(value)}")


def as_number(value: Any) -> float | None:
    """Return a JSON value as a number."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        fits = isinstance(value, float) or abs(value) < 1e300
        return min(float(value), float("inf")) if fits else float("inf")
    raise UnreadableError(f"expected a number, got {abbreviate(value)}")


def as_numbers(value: Any) -> list[float | None] | None:
    """Return a JSON value as a list of numbers."""
    return None if value is None else [as_number(item) for item in _as_list(value)]


def as_time(value: Any) -> str | None:
    """Return a JSON value as the text of a time."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise UnreadableError(f"expected a time, got {abbreviate(value)}")


def as_flag(value: Any) -> bool | None:
    """Return a JSON value as true or false; a number is false when it is 0 or less."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value > 0
    raise UnreadableError(f"expected true or false, got {abbreviate(value)}")


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnreadableError(f"expected a list, got {abbreviate(value)}")
    return value


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    TEXT: as_text,
    IDS: as_ids,
    POSITIONS: as_positions,
    NUMBERS: as_numbers,
    NUMBER: as_number,
    TIME: as_time,
    FLAG: as_flag,
}
ARROW_TYPES = {
    TEXT: pa.string(),
    IDS: pa.list_(pa.string()),
    POSITIONS: pa.list_(pa.int64()),
    NUMBERS: pa.list_(pa.float64()),
    NUMBER: pa.float64(),
    TIME: pa.string(),  # unparsed
    FLAG: pa.bool_(),
}
