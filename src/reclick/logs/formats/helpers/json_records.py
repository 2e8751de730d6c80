"""Read records from lines of JSON objects: in large pieces where all is sound, line by line around what is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import Int64
from reclick.data.schema import IDS, TEXT
from reclick.errors import LogError
from reclick.logs.files.archive import LogFile
from reclick.logs.files.cell_parsing import UnreadableError, as_text
from reclick.logs.files.jsonl import parse_object
from reclick.logs.files.source import short
from reclick.logs.formats.base import Found
from reclick.logs.formats.helpers.json_array import as_lines
from reclick.logs.formats.helpers.json_extract import JsonFields, Keys, path_of
from reclick.logs.formats.helpers.parse_errors import MEASURED, with_misread
from reclick.logs.formats.helpers.records import (
    ARROW,
    THERE,
    WHEN,
    WHOLE,
    Field,
    numbered,
    pick,
    whole_numbers,
)
from reclick.logs.summary import NOT_READABLE
from reclick.logs.timestamps import as_times
from reclick.runtime.prefetch import read_ahead

Record = dict[str, Any]
FEW = 200  # lines: a piece with something wrong is halved down to this, then read line by line
BLOCK = 16 << 20  # bytes parsed at a time
STEP = 1 << 18  # bytes searched for the ends of lines at a time: what fits a cache
WRAPPER = "_source"  # the document in a search hit, as exports of an index write it
ORDINAL, INDEX = (
    "ordinal",
    "index",
)  # User Behavior Insights before 1.3 wrote {"ordinal": {"index": 3}}
OBJECT = rf'"{ORDINAL}"\s*:\s*\{{\s*'
INDEXED = rf'{OBJECT}"{INDEX}"'


class Piece(NamedTuple):
    """Records read from some lines."""

    records: pa.Table
    line: Int64  # [record] its line
    bad: list[tuple[int, str]]  # the lines that are not readable, and what was got


def read_json(file: LogFile, fields: Sequence[Field], found: Found) -> Iterator[pa.Table]:
    """The records of a file, with what was misread, and their lines' numbers as `number`; lines that are not readable go to `found`."""
    for piece in read_ahead(_pieces(file, fields, found)):
        for line, got in piece.bad:
            found.bad(NOT_READABLE, file.where, line, got)
        yield numbered(piece.records, piece.line)


def read_objects(file: LogFile, found: Found) -> Iterator[tuple[int, Record]]:
    """The objects of a file as they are, with their lines' numbers: for records of no fixed shape."""
    for number, line in as_lines(file).lines(found.advance):
        try:
            yield number, parse_object(line)
        except UnreadableError as error:
            found.bad(NOT_READABLE, file.where, number, str(error))


def first_objects(file: LogFile, many: int = 20) -> list[Record]:
    """The first objects of a file, unwrapped, to recognise it by; none when it holds no JSON lines."""
    found: list[Record] = []
    with suppress(LogError):  # of an array that is broken: reading it tells
        for line in as_lines(file).head.split(b"\n")[:many]:
            with suppress(UnreadableError):
                found.append(_unwrapped(parse_object(line)))
    return found


def plain_text(value: Any) -> str | None:
    """Return a JSON value as text: a string, or a whole number as its digits."""
    found = as_text(value)
    try:
        (found or "").encode()
    except (
        UnicodeEncodeError
    ) as error:  # half a surrogate pair ("\ud83d") is legal JSON and not text
        raise UnreadableError(f"not text: {short(value)}") from error
    return found


def _pieces(file: LogFile, fields: Sequence[Field], found: Found) -> Iterator[Piece]:
    first = 1
    with RecordReader(fields) as reader:
        for block in as_lines(file).blocks(found.advance, block=BLOCK):
            lines, place, many = split_lines(block)
            if len(lines):
                yield from reader.read(lines, first + place)
            first += many


class RecordReader:
    """Reads fields from lines.

    >>> with RecordReader([Field("ad", TEXT, (("object", "id"),))]) as reader:
    ...     (piece,) = reader.read(pa.array([b'{"object": {"id": 1}}', b'{"object": {"id": "b"}}', b"[]"]), np.arange(3))
    >>> piece.records["ad"].to_pylist(), piece.bad
    (['1', 'b'], [(2, 'expected a JSON object, got []')])
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = fields
        self._takers: dict[tuple[Keys, bool], tuple[JsonFields, list[Field]]] = {}

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *_: object) -> None:
        for taker, _fields in self._takers.values():
            taker.close()

    def read(self, lines: pa.BinaryArray, number: Int64) -> Iterator[Piece]:
        """Read lines of these numbers, in as few pieces as can be."""
        quick = self._quick(lines)
        if quick is not None:
            yield Piece(quick, number, [])
        elif len(lines) <= FEW:
            yield self._one_by_one(lines, number)
        else:
            middle = len(lines) // 2
            yield from self.read(lines[:middle], number[:middle])
            yield from self.read(lines[middle:], number[middle:])

    def _quick(self, lines: pa.BinaryArray) -> pa.Table | None:
        """All lines at once; None when any of them wants a closer look."""
        first = lines[0].as_py()
        shape = (
            (WRAPPER,) if f'"{WRAPPER}"'.encode() in first else (),
            re.search(INDEXED.encode(), first) is not None,
        )
        if shape[1] and _matches(lines, OBJECT) > _matches(
            lines, INDEXED
        ):  # an ordinal without an index
            return None
        if shape not in self._takers:
            self._takers[shape] = _taker(self.fields, *shape)
        taker, fields = self._takers[shape]
        batch = taker.take(lines.view(pa.string()))
        if batch is None:
            return None
        given = {
            field.name: [batch.column(path) for (path,) in field.places]
            for field in fields
            if field.kind in MEASURED
        }
        return with_misread(pick(batch, fields, ""), given)

    def _one_by_one(self, lines: pa.BinaryArray, number: Int64) -> Piece:
        rows: list[list[Any]] = []
        kept: list[int] = []
        bad: list[tuple[int, str]] = []
        for line, data in zip(number.tolist(), lines.to_pylist(), strict=True):
            try:
                item = _unwrapped(parse_object(data))
                rows.append([_value(item, field) for field in self.fields])
                kept.append(line)
            except UnreadableError as error:
                bad.append((line, str(error)))
        values = {
            field: _array([row[place] for row in rows], field.kind)
            for place, field in enumerate(self.fields)
        }
        records = pa.table(
            {field.name: _measured(given, field.kind) for field, given in values.items()}
        )
        records = with_misread(
            records,
            {field.name: [given] for field, given in values.items() if field.kind in MEASURED},
        )
        return Piece(records, np.asarray(kept, np.int64), bad)


def split_lines(block: bytes) -> tuple[pa.BinaryArray, Int64, int]:
    r"""The lines of a block that are not blank, their places in it from 0, and how many lines it has.

    >>> lines, place, many = split_lines(b"{}\n\n{}\n")
    >>> lines.to_pylist(), place.tolist(), many
    ([b'{}\n', b'{}\n'], [0, 2], 3)
    """
    data = np.frombuffer(block, np.uint8)
    ends = [
        start + 1 + np.flatnonzero(data[start : start + STEP] == ord("\n"))
        for start in range(0, len(data), STEP)
    ]
    bounds = np.concatenate([[0], *ends, [len(data)]]).astype(np.int32)[
        : None if data[-1] != ord("\n") else -1
    ]
    lines = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(block)]
    )
    doubtful = np.flatnonzero(data[bounds[:-1]] <= ord(" "))
    blank = [place for place in doubtful.tolist() if not lines[place].as_py().strip()]
    place = np.delete(np.arange(len(lines)), blank)
    return lines.take(pa.array(place)) if blank else lines, place, len(lines)


def _taker(fields: Sequence[Field], inside: Keys, indexed: bool) -> tuple[JsonFields, list[Field]]:
    """What takes the fields' values from lines, and the fields as they come from there."""
    deeper = (INDEX,) if indexed else ()
    placed = [
        replace(
            field,
            places=tuple(
                (*inside, *keys, *(deeper if keys[1:] and keys[-1] == ORDINAL else ()))
                for keys in field.places
            ),
        )
        for field in fields
    ]
    of_kind = {
        kind: [keys for field in placed if field.kind == kind for keys in field.places]
        for kind in ARROW
    }
    taker = JsonFields(
        [*of_kind[TEXT], *of_kind[WHOLE], *of_kind[WHEN]], of_kind[IDS], of_kind[THERE]
    )
    return taker, [
        replace(field, places=tuple((path_of(keys),) for keys in field.places)) for field in placed
    ]


def _matches(lines: pa.BinaryArray, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(lines, pattern)).as_py())


def _unwrapped(item: Record) -> Record:
    inner = item.get(WRAPPER)
    return inner if isinstance(inner, dict) else item


def _value(item: Record, field: Field) -> Any:
    """The value at the first place that has one; empty text is none, but for a number or a time."""
    nothing = False if field.kind == THERE else None
    for keys in field.places:
        try:
            value = _at(item, keys)
            if value is not None and value != "":
                return AS_KIND[field.kind](value)
        except UnreadableError as error:
            raise UnreadableError(f"{'.'.join(keys)}: {error}") from error
        nothing = value if field.kind in MEASURED and value == "" else nothing
    return nothing


def _at(item: Any, keys: Keys) -> Any:
    for key in keys:
        if item is None:
            return None
        if not isinstance(item, dict):
            raise UnreadableError(f"expected an object, got {short(item)}")
        item = item.get(key)
    return item


def _scalar(value: Any) -> str | None:
    return json.dumps(value) if isinstance(value, bool | float) else plain_text(value)


def _whole(value: Any) -> str | None:
    return _scalar(value[INDEX] if isinstance(value, dict) and INDEX in value else value)


def _ids(value: Any) -> list[str | None]:
    if not isinstance(value, list):
        raise UnreadableError(f"expected a list, got {short(value)}")
    return [_scalar(each) for each in value]


AS_KIND: dict[str, Callable[[Any], Any]] = {
    TEXT: _scalar,
    IDS: _ids,
    WHOLE: _whole,
    WHEN: _scalar,
    THERE: lambda _: True,
}


def _array(values: list[Any], kind: str) -> pa.Array:
    return pa.array(values, pa.string() if kind in MEASURED else ARROW[kind])


def _measured(given: pa.Array, kind: str) -> pa.Array:
    if kind == WHOLE:
        return whole_numbers(given)
    return as_times(given) if kind == WHEN else given
