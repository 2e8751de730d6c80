"""Read CSV and TSV. Arrow reads blocks of valid one-line records; others are read line by line.

A broken quote must make one row bad, not the rest of the file: a record may span several lines only
if its quote closes and it has the right number of fields.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from reclick.data.batch import Int64
from reclick.data.schema import (
    FLAG,
    IDS,
    NUMBER,
    NUMBERS,
    POSITIONS,
    TEXT,
    TIME,
    Column,
    find_columns,
)
from reclick.errors import LogError
from reclick.logs.files.jsonl import (
    ARROW_TYPES,
    CONVERTERS,
    UnreadableError,
    as_flag,
    as_position,
    as_time,
    replace_surrogates,
)
from reclick.logs.files.log_file import CR_ADVICE, read_blocks
from reclick.logs.files.source import RawBatch, abbreviate, drop_rows
from reclick.runtime.filesystem import Location
from reclick.runtime.parallel import thread_limit
from reclick.runtime.parquet_layout import PARQUET_MAGIC

MAX_RECORD_LINES = 1000  # limit of the lines of one quoted cell
MAX_RECORD_BYTES = 4 << 20
GZIP_START = b"\x1f\x8b"
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
TRUE_WORDS, FALSE_WORDS = {"true", "t", "yes", "y"}, {"false", "f", "no", "n"}


@dataclass(frozen=True, slots=True)
class CsvSource:
    """A CSV or TSV file whose header has valid columns."""

    path: Location
    where: str
    names: dict[str, str]
    header: tuple[str, ...]
    delimiter: str
    columns_to_read: tuple[Column, ...]
    num_rows: int | None = None
    can_move: ClassVar[bool] = True  # another process can read it

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read in row order."""
        num_read, rest = 0, b""
        for body in chain(self._read_bodies(), [b""]):  # the empty one marks the end of the file
            if not (rest or body):
                continue
            table, numbers, unreadable, rest = self._parse(rest + body, num_read, final=not body)
            columns = {
                name: table.column(self.header.index(source_name))
                for name, source_name in self.names.items()
            }
            rows = table if with_rows else None
            raw = RawBatch(
                self.where, num_read + 1, columns, table.num_rows, numbers, unreadable, rows
            )
            if raw.length or raw.unreadable:
                num_read += raw.length + len(raw.unreadable)
                yield parse_columns(raw, self.columns_to_read)

    def _read_bodies(self) -> Iterator[bytes]:
        """The blocks of the file without its header."""
        blocks = read_blocks(self.path, self.where)
        first = next(blocks, b"")
        yield from (block for block in chain([first[_header_end(first) :]], blocks) if block)

    def _parse(
        self, body: bytes, num_read: int, *, final: bool
    ) -> tuple[pa.RecordBatch, Int64 | None, list[tuple[int, str]], bytes]:
        """The fields, the row numbers, the unreadable rows, and the bytes of an open record."""
        batch = parse_valid_block(body, self.header, self.delimiter)
        if batch is not None:
            return batch, None, [], b""
        parts, rest = split_records(body, len(self.header), self.delimiter, final=final)
        records = [self._check_text(record) for record in parts]
        numbered = list(enumerate(records, start=num_read + 1))
        readable = [record for record in records if not isinstance(record, str)]
        numbers = [number for number, record in numbered if not isinstance(record, str)]
        unreadable = [(number, record) for number, record in numbered if isinstance(record, str)]
        arrays = [
            pa.array([record[i] for record in readable], pa.string())
            for i in range(len(self.header))
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(self.header))
        return batch, np.asarray(numbers, np.int64), unreadable, rest

    def _check_text(self, record: list[str] | str) -> list[str] | str:
        """The fields as valid text, or why the record is unreadable.

        Only the columns to read must be UTF-8; other bytes in other columns are replaced.
        """
        if isinstance(record, str) or _is_text(record):
            return record
        names_to_read = self.names.values()
        if not _is_text(
            cell for name, cell in zip(self.header, record, strict=True) if name in names_to_read
        ):
            return f"not UTF-8 text: {abbreviate(replace_surrogates(self.delimiter.join(record)))}"
        return list(map(replace_surrogates, record))


def open_csv(
    path: Location, where: str, columns_to_read: Sequence[Column], mapping: dict[str, str]
) -> CsvSource:
    """Read the header of a CSV or TSV file and check its columns."""
    first = next(read_blocks(path, where, block_bytes=1 << 16), b"")
    _refuse_other_types(first, where)
    try:
        line = first[: _header_end(first)].decode()
        delimiter = max("\t,;", key=line.count) if line.count(",") == 0 else ","
        cells = next(
            csv.reader(io.StringIO(line, newline=""), delimiter=delimiter, strict=True), []
        )
    except (UnicodeDecodeError, csv.Error) as error:
        raise LogError(
            f"The header of {where} cannot be read: {error}. The first line must name the columns."
        ) from error
    header = tuple(name.strip() for name in cells)
    if re.search(r"\r[^\n]", _outside_quotes(line)):
        raise LogError(f"The lines of {where} end with a carriage return alone. {CR_ADVICE}")
    names = find_columns(header, columns_to_read, mapping, where)
    return CsvSource(path, where, names, header, delimiter, tuple(columns_to_read))


def _refuse_other_types(first: bytes, where: str) -> None:
    """Raise if the first bytes are those of another type of file."""
    suffix = where.rpartition(".")[2]
    if first.startswith(PARQUET_MAGIC):
        raise LogError(f"{where} is a Parquet file: rename it to end in .parquet.")
    if first.startswith(GZIP_START):
        raise LogError(f"{where} is compressed with gzip: rename it to end in .{suffix}.gz.")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise LogError(f"{where} is UTF-16: save it as UTF-8.")


# ---- records


def parse_valid_block(body: bytes, header: Sequence[str], delimiter: str) -> pa.RecordBatch | None:
    """Parse a block with Arrow; None unless every line is one record with well-formed quotes."""
    if b'"' in body and _quote_inside_field(delimiter).search(body):
        return None
    columns = [str(i) for i in range(len(header))]
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(body),
            read_options=arrow_csv.ReadOptions(
                column_names=columns,
                block_size=len(body) + 1,
                use_threads=thread_limit() > 1,
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=False
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != body.count(b"\n") + (not body.endswith(b"\n")):
        return None
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(
        [a.chunk(0) if isinstance(a, pa.ChunkedArray) else a for a in arrays], names=list(header)
    )


def split_records(
    body: bytes, num_fields: int, delimiter: str, *, final: bool = True
) -> tuple[list[list[str] | str], bytes]:
    r"""Return the fields of each record, or why it is unreadable, and the bytes of an open record.

    >>> split_records(b'"a,1\nb,2\n', 2, ",")
    (['a quote that does not close: \'"a,1\'', ['b', '2']], b'')
    """
    lines = body.removesuffix(b"\n").split(b"\n")
    records: list[list[str] | str] = []
    at = 0
    while at < len(lines):
        num_lines = _count_record_lines(lines, at)
        if num_lines > len(lines) - at:
            if not final:
                return records, b"\n".join(lines[at:]) + b"\n"
            num_lines = 0
        if lines[at].strip(b"\r"):
            text = b"\n".join(lines[at : at + num_lines])
            record = _split_fields(text, num_fields, delimiter) if num_lines else ""
            # If a record of several lines has the wrong number of fields, only its first line is
            # dropped, and the following lines are parsed separately.
            num_lines = num_lines if isinstance(record, list) else 1
            if not isinstance(record, list) and lines[at].count(b'"') % 2:
                record = f"a quote that does not close: {_show(lines[at])}"
            records.append(record)
        at += max(num_lines, 1)
    return records, b""


def _count_record_lines(lines: list[bytes], at: int) -> int:
    """Return the number of lines of a record, until its quotes close.

    0 if they never close; one more than there are lines if they may close in the next block.
    """
    quotes, size = 0, 0
    for num_lines in range(1, min(MAX_RECORD_LINES, len(lines) - at) + 1):
        line = lines[at + num_lines - 1]
        quotes += line.count(b'"')
        size += len(line)
        if quotes % 2 == 0:
            return num_lines
        if size > MAX_RECORD_BYTES:
            return 0
    return 0 if at + MAX_RECORD_LINES <= len(lines) else len(lines) - at + 1


def _split_fields(text: bytes, num_fields: int, delimiter: str) -> list[str] | str:
    try:
        record = text.removesuffix(b"\r").decode(errors="surrogateescape")
        rows = list(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        return f"a broken quote ({error}): {_show(text)}"
    if len(rows) != 1 or len(rows[0]) != num_fields:
        return f"{sum(map(len, rows))} fields where the header has {num_fields}: {_show(text)}"
    return rows[0]


def _is_text(cells: Iterable[str]) -> bool:
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return False
    return True


def _show(text: bytes) -> str:
    return abbreviate(text[:200].decode(errors="replace").rstrip("\r"))


def _header_end(block: bytes) -> int:
    end = block.find(b"\n") + 1
    return end or len(block)


def _outside_quotes(line: str) -> str:
    return "".join(line.split('"')[::2])


def _quote_inside_field(delimiter: str) -> re.Pattern[bytes]:
    # Arrow would accept a single quote inside a field. It is either literal, or a sign that an
    # earlier quote is broken.
    inner = b"[^" + re.escape(delimiter.encode()) + rb'\r\n"]'
    return re.compile(inner + b'"' + inner)


# ---- cells: a list is a JSON array, or values with `|` between them


def parse_cell(kind: str, cell: str) -> Any:
    """Return the value of a text cell, or raise UnreadableError.

    >>> parse_cell("ids", "a|b"), parse_cell("ids", '["a", "b"]')
    (['a', 'b'], ['a', 'b'])
    >>> parse_cell("positions", "2|1"), parse_cell("positions", "")
    ([2, 1], [])
    >>> parse_cell("numbers", "2.5|"), parse_cell("numbers", "")
    ([2.5, None], None)
    """
    if kind == NUMBER:
        return _parse_number(cell)
    text = cell.strip()
    if kind == TIME:
        return as_time(text)
    if kind == FLAG:
        return _parse_flag(text)
    if text.startswith("["):
        return CONVERTERS[kind](_parse_json(text, kind))
    parts = text.split("|") if text else []
    if kind == NUMBERS:  # an empty cell is null, as is an empty part
        return [_parse_number(part) for part in parts] or None
    return parts if kind == IDS else [_parse_position(part) for part in parts]


def parse_columns(raw: RawBatch, columns_to_read: Sequence[Column]) -> RawBatch:
    """Parse the text columns of a batch; rows with a cell that fails become unreadable."""
    bad: dict[int, str] = {}
    columns = dict(raw.columns)
    for column in columns_to_read:
        if column.name in columns and column.kind != TEXT:
            columns[column.name] = _parse_column(columns[column.name], column, bad)
    return drop_rows(replace(raw, columns=columns), bad)


def _parse_column(cells: pa.Array, column: Column, bad: dict[int, str]) -> pa.Array:
    array = _parse_with_arrow(cells, column.kind)
    if array is not None:
        return array
    dictionary_array = cells.dictionary_encode()  # equal cells are parsed once
    values: list[Any] = []
    errors: dict[int, str] = {}
    for code, cell in enumerate(dictionary_array.dictionary.to_pylist()):
        try:
            values.append(parse_cell(column.kind, cell))
        except UnreadableError as error:
            values.append(None)
            errors[code] = f"{column.name}: {error}"
    if errors:
        for row, code in enumerate(dictionary_array.indices.to_pylist()):
            if code in errors:
                bad.setdefault(row, errors[code])
    return pa.array(values, ARROW_TYPES[column.kind]).take(dictionary_array.indices)


def _parse_with_arrow(cells: pa.Array, kind: str) -> pa.Array | None:
    """Parse all cells at once; None when some need parsing one by one."""
    try:
        if kind == NUMBER:
            return pc.if_else(pc.equal(cells, ""), None, cells).cast(pa.float64())
        if kind == TIME:
            return pc.if_else(pc.equal(cells, ""), None, cells)
        # Arrow parses 0x2 as a number, which is wrong in a log.
        unusual = r"[^0-9|-]" if kind == POSITIONS else r"[\[\s]"
        if kind == FLAG or pc.any(pc.match_substring_regex(cells, unusual)).as_py():
            return None
        empty = pc.equal(cells, "")
        lists = pc.split_pattern(cells, "|")
        if pc.any(empty).as_py():
            missing: list[str] | None = None if kind == NUMBERS else []
            lists = pc.if_else(empty, pa.scalar(missing, lists.type), lists)
        return lists.cast(ARROW_TYPES[kind])
    except pa.ArrowInvalid:
        return None


def _parse_position(part: str) -> int | None:
    try:
        if WHOLE_NUMBER.fullmatch(part.strip()):
            return as_position(int(part))
    except ValueError:  # more than 4,300 digits
        pass
    raise UnreadableError(f"expected whole numbers, got {abbreviate(part)}")


def _parse_number(cell: str) -> float | None:
    try:
        if cell.isascii() and "_" not in cell:  # Python would accept these, Arrow does not
            return float(cell) if cell.strip() else None
    except ValueError:
        pass
    raise UnreadableError(f"expected a number, got {abbreviate(cell)}")


def _parse_flag(text: str) -> bool | None:
    word = text.lower()
    return word in TRUE_WORDS if word in TRUE_WORDS | FALSE_WORDS else as_flag(_parse_number(text))


def _parse_json(text: str, kind: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        expected = "a1|a2|a3" if kind == IDS else "2|1"
        expected = f"{expected} or JSON with double quotes" if "'" in text else "a list"
        raise UnreadableError(f"expected {expected}, got {abbreviate(text)}") from error
    if "\\u" in text and not _is_text([json.dumps(value, ensure_ascii=False)]):
        raise UnreadableError(f"not text: {abbreviate(text)}")  # half of a surrogate pair
    return value
