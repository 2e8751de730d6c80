"""Read records from lines of JSON objects: valid blocks at once, other lines one by one.

DuckDB extracts the fields of a block, several times faster than Arrow. A block with an invalid line
is halved until it has only a few lines, which are parsed one by one.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import Int64
from reclick.data.schema import IDS, TEXT
from reclick.data.timestamps import as_times
from reclick.errors import LogError
from reclick.logs.files.jsonl import UnreadableError, as_text, parse_object
from reclick.logs.files.log_file import LogFile, as_json_lines
from reclick.logs.files.source import abbreviate
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.helpers.records import (
    FIELD_TYPES,
    PARSED_KINDS,
    PRESENT,
    TIMESTAMP,
    WHOLE_NUMBER,
    KeyPath,
    RecordField,
    add_numbers,
    add_unparsed,
    select_fields,
    to_whole_numbers,
)
from reclick.logs.validation.reasons import NOT_READABLE
from reclick.runtime.parallel import prefetch

JsonObject = dict[str, Any]
Bool = npt.NDArray[np.bool_]
FEW_LINES = 200  # an invalid block is halved to this size, then parsed line by line
JSON_BLOCK_BYTES = 16 << 20  # parsed at a time
SMALL_BYTES = 1 << 20  # of lines of several files that are parsed together
SEARCH_BYTES = 1 << 18  # searched for line ends at a time; fits a cache
THREAD_LINES = 2048  # parsed at a time by a thread of DuckDB
SAMPLE_OBJECTS = 20  # to recognise a format
WRAPPER = "_source"  # the document in a search hit, as exports of an index write it
# User Behavior Insights before 1.3 wrote {"ordinal": {"index": 3}}
ORDINAL, INDEX = "ordinal", "index"
ORDINAL_OBJECT = rf'"{ORDINAL}"\s*:\s*\{{\s*'
ORDINAL_INDEX = rf'{ORDINAL_OBJECT}"{INDEX}"'

TRANSFORM_LISTS = """SELECT json_transform(line, '["VARCHAR"]') AS list FROM lines"""
COUNT_OTHERS = "SELECT count(*) FROM lines WHERE json_type(line, $path) <> 'OBJECT'"


class RecordChunk(NamedTuple):
    """Records read from some lines."""

    records: pa.Table
    line: Int64  # [record] its line
    bad: list[tuple[int, str]]  # unreadable lines, with descriptions


def read_json_records(
    files: Sequence[LogFile], fields: Sequence[RecordField], report: ReadReport
) -> Iterator[tuple[LogFile, pa.Table]]:
    """Yield records with their file, with unparsed values, and with line numbers as `number`.

    Small files are parsed together, since a block takes milliseconds however few its lines are.
    """
    for block, chunk in prefetch(_read_chunks(files, fields, report)):
        for row, got in chunk.bad:
            report.add_bad_row(NOT_READABLE, block.file_of(row).where, int(block.line[row]), got)
        file = block.file[chunk.line]
        starts = np.flatnonzero(np.diff(file, prepend=-1))
        for start, end in itertools.pairwise([*starts.tolist(), len(file)]):
            records = chunk.records.slice(start, end - start)
            rows = chunk.line[start:end]
            yield block.file_of(rows[0]), add_numbers(records, block.line[rows])


def read_objects(file: LogFile, report: ReadReport) -> Iterator[tuple[int, JsonObject]]:
    """Yield the objects of a file, unchanged, with their line numbers: for records of any shape."""
    for number, line in as_json_lines(file).lines(report.advance):
        report.add_records(1)
        try:
            yield number, parse_object(line)
        except UnreadableError as error:
            report.add_bad_row(NOT_READABLE, file.where, number, str(error))


def first_objects(file: LogFile) -> list[JsonObject]:
    """The first objects of a file, to recognise its format; empty if it is not JSON lines."""
    objects: list[JsonObject] = []
    with suppress(LogError):  # a broken array: reading the file reports it
        for line in as_json_lines(file).head.split(b"\n")[:SAMPLE_OBJECTS]:
            with suppress(UnreadableError):
                objects.append(_unwrap(parse_object(line)))
    return objects


def to_valid_text(value: Any) -> str | None:
    """Return a JSON value as text: a string, or a whole number as its digits."""
    text = as_text(value)
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:  # half a surrogate pair is legal JSON and not text
        raise UnreadableError(f"not text: {abbreviate(value)}") from error
    return text


def split_lines(block: bytes) -> tuple[pa.BinaryArray, Int64, int]:
    r"""The lines of a block that are not blank, their indices from 0, and the number of lines.

    >>> lines, index, total = split_lines(b"{}\n\n{}\n")
    >>> lines.to_pylist(), index.tolist(), total
    ([b'{}\n', b'{}\n'], [0, 2], 3)
    """
    data = np.frombuffer(block, np.uint8)
    ends = [
        start + 1 + np.flatnonzero(data[start : start + SEARCH_BYTES] == ord("\n"))
        for start in range(0, len(data), SEARCH_BYTES)
    ]
    bounds = np.concatenate([[0], *ends, [len(data)]]).astype(np.int32)
    bounds = bounds[:-1] if data[-1] == ord("\n") else bounds
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(block)]
    lines = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    maybe_blank = np.flatnonzero(data[bounds[:-1]] <= ord(" ")).tolist()
    blank = [row for row in maybe_blank if not lines[row].as_py().strip()]
    rows = np.delete(np.arange(len(lines)), blank)
    return lines.take(pa.array(rows)) if blank else lines, rows, len(lines)


class LineBlock(NamedTuple):
    """Lines of one or several files that are parsed together."""

    files: Sequence[LogFile]
    lines: pa.BinaryArray
    file: Int64  # [line] its index in files
    line: Int64  # [line] its number in its file

    def file_of(self, row: int) -> LogFile:
        """The file of a line."""
        return self.files[int(self.file[row])]


def _read_chunks(
    files: Sequence[LogFile], fields: Sequence[RecordField], report: ReadReport
) -> Iterator[tuple[LineBlock, RecordChunk]]:
    """Yield chunks of records, each with its block; their lines are rows of the block."""
    with JsonRecordReader(fields) as reader:
        for block in _join_small_blocks(_read_blocks(files, report)):
            for chunk in reader.read(block.lines, np.arange(len(block.lines))):
                yield block, chunk


def _read_blocks(files: Sequence[LogFile], report: ReadReport) -> Iterator[LineBlock]:
    for index, file in enumerate(files):
        first = 1
        for block in as_json_lines(file).blocks(report.advance, block_bytes=JSON_BLOCK_BYTES):
            lines, rows, total = split_lines(block)
            report.add_records(len(lines))
            if len(lines):
                yield LineBlock(files, lines, np.full(len(lines), index), first + rows)
            first += total


def _join_small_blocks(blocks: Iterator[LineBlock]) -> Iterator[LineBlock]:
    """Join blocks up to `SMALL_BYTES` in all."""
    small_blocks: list[LineBlock] = []
    size = 0
    for block in blocks:
        if size + block.lines.nbytes > SMALL_BYTES and small_blocks:
            yield _join_blocks(small_blocks)
            small_blocks, size = [], 0
        small_blocks.append(block)
        size += block.lines.nbytes
    if small_blocks:
        yield _join_blocks(small_blocks)


def _join_blocks(blocks: list[LineBlock]) -> LineBlock:
    if len(blocks) == 1:
        return blocks[0]
    return LineBlock(
        blocks[0].files,
        pa.concat_arrays([block.lines for block in blocks]),
        np.concatenate([block.file for block in blocks]),
        np.concatenate([block.line for block in blocks]),
    )


class JsonRecordReader:
    """Reads fields from lines.

    >>> lines = pa.array([b'{"object": {"id": 1}}', b'{"object": {"id": "b"}}', b"[]"])
    >>> with JsonRecordReader([RecordField("ad", TEXT, (("object", "id"),))]) as reader:
    ...     (chunk,) = reader.read(lines, np.arange(3))
    >>> chunk.records["ad"].to_pylist(), chunk.bad
    (['1', 'b'], [(2, 'expected a JSON object, got []')])
    """

    def __init__(self, fields: Sequence[RecordField]) -> None:
        self.fields = fields
        self._extractors: dict[tuple[KeyPath, bool], tuple[JsonExtractor, list[RecordField]]] = {}

    def __enter__(self) -> JsonRecordReader:
        return self

    def __exit__(self, *_: object) -> None:
        for extractor, _fields in self._extractors.values():
            extractor.close()

    def read(self, lines: pa.BinaryArray, number: Int64) -> Iterator[RecordChunk]:
        """Read lines of these numbers, in as few chunks as possible."""
        records = self._extract_block(lines)
        if records is not None:
            yield RecordChunk(records, number, [])
        elif len(lines) <= FEW_LINES:
            yield from self._parse_one_by_one(lines, number)
        else:
            middle = len(lines) // 2
            yield from self.read(lines[:middle], number[:middle])
            yield from self.read(lines[middle:], number[middle:])

    def _extract_block(self, lines: pa.BinaryArray) -> pa.Table | None:
        """The records of all lines at once; None if some must be parsed one by one."""
        first = lines[0].as_py()
        wrapper = (WRAPPER,) if f'"{WRAPPER}"'.encode() in first else ()
        has_index = re.search(ORDINAL_INDEX.encode(), first) is not None
        if has_index and _count(lines, ORDINAL_OBJECT) > _count(lines, ORDINAL_INDEX):
            return None  # an ordinal without an index
        if (wrapper, has_index) not in self._extractors:
            self._extractors[wrapper, has_index] = _build_extractor(self.fields, wrapper, has_index)
        extractor, fields = self._extractors[wrapper, has_index]
        batch = extractor.extract(lines.view(pa.string()))
        if batch is None:
            return None
        texts = {
            field.name: [batch.column(path) for (path,) in field.paths]
            for field in fields
            if field.kind in PARSED_KINDS
        }
        return add_unparsed(select_fields(batch, fields, ""), texts)

    def _parse_one_by_one(self, lines: pa.BinaryArray, number: Int64) -> Iterator[RecordChunk]:
        """Parse each line with Python; a line nested too deeply for it alone with DuckDB.

        So whether a line is good does not depend on its neighbours.
        """
        rows: list[list[Any]] = []
        numbers: list[int] = []
        bad: list[tuple[int, str]] = []
        other_chunks: list[RecordChunk] = []
        for index, (line, data) in enumerate(zip(number.tolist(), lines.to_pylist(), strict=True)):
            try:
                item = _unwrap(parse_object(data))
            except UnreadableError as error:
                records = self._extract_block(lines[index : index + 1])
                if records is None:
                    bad.append((line, str(error)))
                else:
                    other_chunks.append(RecordChunk(records, number[index : index + 1], []))
                continue
            try:
                rows.append([_get_value(item, field) for field in self.fields])
                numbers.append(line)
            except UnreadableError as error:
                bad.append((line, str(error)))
        yield RecordChunk(self._build_records(rows), np.asarray(numbers, np.int64), bad)
        yield from other_chunks

    def _build_records(self, rows: list[list[Any]]) -> pa.Table:
        texts = {
            field.name: _to_array([row[index] for row in rows], field.kind)
            for index, field in enumerate(self.fields)
        }
        records = pa.table(
            {field.name: _parse(texts[field.name], field.kind) for field in self.fields}
        )
        parsed_names = [field.name for field in self.fields if field.kind in PARSED_KINDS]
        return add_unparsed(records, {name: [texts[name]] for name in parsed_names})


# ---- fields of a block, by DuckDB


class JsonExtractor:
    """Extracts the values at some paths of JSON objects.

    >>> extractor = JsonExtractor([("object", "id"), ("id",)], [("hits",)])
    >>> lines = ['{"object": {"id": 7}}', '{"id": "b", "hits": ["a", 1]}']
    >>> extractor.extract(pa.array(lines)).to_pydict()
    {'$."object"."id"': ['7', None], '$."id"': [None, 'b'], '$."hits"': [None, ['a', '1']]}
    >>> extractor.extract(pa.array(['{"object": {"id": 7}}', '{"object": ']))
    >>> extractor.close()
    """

    def __init__(
        self,
        scalars: Sequence[KeyPath],
        lists: Sequence[KeyPath] = (),
        objects: Sequence[KeyPath] = (),
    ) -> None:
        """`scalars` are text and numbers, `lists` lists of them; `objects` are read as text."""
        import duckdb

        self._connection: Any = duckdb.connect()
        self._failures = (duckdb.Error, UnicodeDecodeError)
        self._scalars, self._lists = list(scalars), list(lists)
        self._paths = [*scalars, *lists, *objects]
        prefixes = {path[:length] for path in self._paths for length in range(1, len(path))}
        self._inner_objects = sorted(prefixes)
        self._statement = _build_statement(self._paths)

    def extract(self, lines: pa.Array) -> pa.RecordBatch | None:
        """A column for each path, of text or lists of text; null if there is no value.

        None if a line is not JSON, has none of the fields, or has values of other types.
        """
        try:
            batch = self._query(self._statement, lines)
            values = {path: _get_column(batch, path) for path in self._paths}
            if any(_holds_json(values[path]) for path in self._scalars):
                return None
            if not _any_valid(list(values.values())).all():
                return None
            if any(self._is_no_object(path, lines, batch, values) for path in self._inner_objects):
                return None
            values |= {path: self._parse_lists(values[path]) for path in self._lists}
        except self._failures:
            return None
        if any(column is None for column in values.values()):
            return None
        return pa.RecordBatch.from_pydict({json_path(path): each for path, each in values.items()})

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _query(
        self, statement: str, lines: pa.Array, params: dict[str, str] | None = None
    ) -> pa.RecordBatch:
        starts = range(0, len(lines), THREAD_LINES)
        chunks = pa.chunked_array([lines[start : start + THREAD_LINES] for start in starts])
        self._connection.register("lines", pa.table({"line": chunks}))
        try:
            table = self._connection.sql(statement, params=params or {}).to_arrow_table()
        finally:
            self._connection.unregister("lines")
        columns = [column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, schema=table.schema)

    def _is_no_object(
        self, path: KeyPath, lines: pa.Array, batch: pa.RecordBatch, values: dict[KeyPath, pa.Array]
    ) -> bool:
        """Whether the value at a path is not an object; such values look like empty objects."""
        has_value = _any_valid([_get_column(batch, path)])
        if not has_value.any():
            return False
        inner = [column for each, column in values.items() if each[: len(path)] == path]
        looks_empty = has_value & ~_any_valid(inner)
        if not looks_empty.any():
            return False
        counts = self._query(
            COUNT_OTHERS, lines.filter(pa.array(looks_empty)), {"path": json_path(path)}
        )
        return bool(counts[0][0].as_py())

    def _parse_lists(self, text: pa.Array) -> pa.Array | None:
        """Parse texts as lists; None if one is not a list."""
        if text.null_count == len(text):
            return pa.nulls(len(text), pa.list_(pa.string()))
        lists = self._query(TRANSFORM_LISTS, text)[0]
        return None if lists.null_count > text.null_count or _holds_json(lists.flatten()) else lists


def json_path(path: KeyPath) -> str:
    """A path in the syntax of JSON paths."""
    return "$" + "".join(f'."{key}"' for key in path)


def _build_statement(paths: Sequence[KeyPath]) -> str:
    structure: dict[str, Any] = {}
    for *outer, last in paths:
        node = structure
        for key in outer:
            node = node.setdefault(key, {})
        node[last] = "VARCHAR"  # the text of any value
    literal = json.dumps(structure).replace("'", "''")
    return " ".join(["SELECT unnest(json_transform(line,", f"'{literal}'", ")) FROM lines"])


def _build_extractor(
    fields: Sequence[RecordField], wrapper: KeyPath, has_index: bool
) -> tuple[JsonExtractor, list[RecordField]]:
    """An extractor of the fields, and the fields with its column names as paths."""

    def locate(path: KeyPath) -> KeyPath:
        index = (INDEX,) if has_index and len(path) > 1 and path[-1] == ORDINAL else ()
        return (*wrapper, *path, *index)

    new_fields = [replace(each, paths=tuple(map(locate, each.paths))) for each in fields]
    by_kind = {
        kind: [path for each in new_fields if each.kind == kind for path in each.paths]
        for kind in FIELD_TYPES
    }
    scalars = [*by_kind[TEXT], *by_kind[WHOLE_NUMBER], *by_kind[TIMESTAMP]]
    extractor = JsonExtractor(scalars, by_kind[IDS], by_kind[PRESENT])
    columns = [
        replace(each, paths=tuple((json_path(path),) for path in each.paths)) for each in new_fields
    ]
    return extractor, columns


def _get_column(batch: pa.RecordBatch, path: KeyPath) -> pa.Array:
    values = batch.column(path[0])
    for key in path[1:]:
        values = pc.struct_field(values, key)
    return values


def _holds_json(values: pa.StringArray) -> bool:
    """Whether a text begins like a JSON list or object."""
    if values.null_count == len(values):
        return False
    _, offsets, text = values.buffers()
    data = np.frombuffer(text, np.uint8)
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values)]
    first = data[np.minimum(starts, len(data) - 1)] if len(data) else data
    return bool(np.any((first == ord("{")) | (first == ord("["))))


def _any_valid(columns: Sequence[pa.Array]) -> Bool:
    """Whether each row has a value in at least one column."""
    result = np.zeros(len(columns[0]), np.bool_)
    for column in sorted(columns, key=lambda each: each.null_count):
        result |= column.is_valid().to_numpy(zero_copy_only=False)
        if column.null_count in {0, len(column)}:  # nothing more can change
            break
    return result


def _count(lines: pa.BinaryArray, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(lines, pattern)).as_py())


# ---- fields of one object


def _unwrap(item: JsonObject) -> JsonObject:
    inner = item.get(WRAPPER)
    return inner if isinstance(inner, dict) else item


def _get_value(item: JsonObject, field: RecordField) -> Any:
    """The value at the first path with a value. Empty text is no value, except for parsed kinds."""
    missing = False if field.kind == PRESENT else None
    for path in field.paths:
        try:
            value = _follow_path(item, path)
            if value is not None and value != "":
                return JSON_CONVERTERS[field.kind](value)
        except UnreadableError as error:
            raise UnreadableError(f"{'.'.join(path)}: {error}") from error
        missing = value if field.kind in PARSED_KINDS and value == "" else missing
    return missing


def _follow_path(item: Any, path: KeyPath) -> Any:
    for key in path:
        if item is None:
            return None
        if not isinstance(item, dict):
            raise UnreadableError(f"expected an object, got {abbreviate(item)}")
        item = item.get(key)
    return item


def _scalar_text(value: Any) -> str | None:
    return json.dumps(value) if isinstance(value, bool | float) else to_valid_text(value)


def _whole_number_text(value: Any) -> str | None:
    return _scalar_text(value[INDEX] if isinstance(value, dict) and INDEX in value else value)


def _id_texts(value: Any) -> list[str | None]:
    if not isinstance(value, list):
        raise UnreadableError(f"expected a list, got {abbreviate(value)}")
    return [_scalar_text(each) for each in value]


JSON_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    TEXT: _scalar_text,
    IDS: _id_texts,
    WHOLE_NUMBER: _whole_number_text,
    TIMESTAMP: _scalar_text,
    PRESENT: lambda _: True,
}


def _to_array(values: list[Any], kind: str) -> pa.Array:
    return pa.array(values, pa.string() if kind in PARSED_KINDS else FIELD_TYPES[kind])


def _parse(texts: pa.Array, kind: str) -> pa.Array:
    if kind == WHOLE_NUMBER:
        return to_whole_numbers(texts)
    return as_times(texts) if kind == TIMESTAMP else texts
