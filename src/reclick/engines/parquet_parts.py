"""Concatenate Parquet files: their row groups are copied unchanged, without decoding.

A Parquet file consists of its row groups and a footer with the offsets of their columns. So the row
groups of the files are copied one after the other, and the footers are merged into one with shifted
offsets. A footer is a struct in Thrift's compact protocol, which is read here field by field,
whatever the fields are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.engines.local import describe_columns
from reclick.errors import LogError
from reclick.runtime.filesystem import AnyPath, RemotePath, arrow_input
from reclick.runtime.object_store import explain_remote_errors
from reclick.runtime.parallel import parallel_map
from reclick.runtime.parquet_layout import PARQUET_MAGIC
from reclick.runtime.progress import report_progress

FOOTER_END = struct.Struct("<I4s")  # the size of the footer, and the magic
COPY_BYTES = 8 << 20  # at a time
# Thrift's types
STOP, TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
LONG_LIST = 15  # the size of a list of 15 or more is not in its first byte
# fields by their numbers in parquet.thrift
NUM_ROWS, ROW_GROUPS = 3, 4
COLUMNS, GROUP_OFFSET, GROUP_NUMBER = 1, 5, 7
CHUNK_OFFSET, CHUNK_METADATA, OFFSET_INDEX, COLUMN_INDEX = 2, 3, 4, 6
PAGE_OFFSETS = (9, 10, 11, 14)  # of data pages, an index, the dictionary, a Bloom filter


class Field(NamedTuple):
    """A value with its type."""

    kind: int
    value: Any


Struct = dict[int, Field]  # by field number


def join_parquet(parts: Sequence[AnyPath], target: Path) -> int:
    """Write files of one schema as one, in their order, and return the number of rows.

    A part of 0 bytes has no rows. Each part is removed once it is copied. Parts in an object store
    are read by several requests at once.
    """
    schema, footer, groups, rows = None, None, [], 0
    with target.open("wb") as out:
        out.write(PARQUET_MAGIC)
        for n_copied, part in enumerate(parts, 1):
            if part.stat().st_size:
                with _open_part(part) as file:
                    with _explain_errors(part):
                        part_schema = pq.read_schema(file)
                    schema = schema or part_schema
                    if not part_schema.equals(schema):
                        raise LogError(describe_columns(schema, part_schema))
                    part_footer = _append(partial(_read_bytes, part, file), file.size(), out)
                footer = footer or part_footer
                groups += part_footer[ROW_GROUPS].value[1]
                rows += part_footer[NUM_ROWS].value
            part.unlink()
            report_progress("parts written", n_copied, len(parts))
        if footer is None:
            return 0
        for number, group in enumerate(groups):
            if GROUP_NUMBER in group:  # two bytes, and optional
                group[GROUP_NUMBER] = Field(group[GROUP_NUMBER].kind, number & 0x7FFF)
        footer[ROW_GROUPS] = Field(LIST, (STRUCT, groups))
        footer[NUM_ROWS] = Field(footer[NUM_ROWS].kind, rows)
        content = encode_struct(footer)
        out.write(content)
        out.write(FOOTER_END.pack(len(content), PARQUET_MAGIC))
    return rows


def _open_part(part: AnyPath) -> Any:
    source = arrow_input(part)
    return pa.OSFile(source) if isinstance(source, str) else source


def _explain_errors(part: AnyPath) -> AbstractContextManager[None]:
    return explain_remote_errors(part) if isinstance(part, RemotePath) else nullcontext()


def _read_bytes(part: AnyPath, file: Any, start: int, end: int) -> bytes:
    with _explain_errors(part):
        content: bytes = file.read_at(end - start, start)
        return content


def _append(read: Callable[[int, int], bytes], size: int, out: BinaryIO) -> Struct:
    """Append the row groups of a file to another, and return its footer with their new offsets."""
    end = size - FOOTER_END.size
    footer_size, _ = FOOTER_END.unpack(read(end, size))
    end -= footer_size
    footer = decode_struct(read(end, end + footer_size))
    shift = out.tell() - len(PARQUET_MAGIC)
    starts = range(len(PARQUET_MAGIC), end, COPY_BYTES)
    for piece in parallel_map(lambda start: read(start, min(start + COPY_BYTES, end)), starts):
        out.write(piece)
    for group in footer[ROW_GROUPS].value[1]:
        _shift(group, (GROUP_OFFSET,), shift)
        for chunk in group[COLUMNS].value[1]:
            _shift(chunk, (CHUNK_OFFSET, OFFSET_INDEX, COLUMN_INDEX), shift)
            _shift(chunk[CHUNK_METADATA].value, PAGE_OFFSETS, shift)
    return footer


def _shift(record: Struct, fields: Sequence[int], shift: int) -> None:
    """Shift the offsets of a record, if it has them; 0 means that there is none."""
    for number in fields:
        if number in record and record[number].value:
            kind, value = record[number]
            record[number] = Field(kind, value + shift)


# ---- Thrift's compact protocol


def decode_struct(content: bytes) -> Struct:
    """Decode a struct."""
    return _Reader(content).read_struct()


def encode_struct(record: Struct) -> bytes:
    r"""Encode a struct, as `decode_struct` reads it.

    >>> encode_struct(decode_struct(bytes([0x15, 4, 0x19, 0x28, 1, 65, 0, 0])))
    b'\x15\x04\x19(\x01A\x00\x00'
    """
    out = bytearray()
    _write_struct(out, record)
    return bytes(out)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def read_struct(self) -> Struct:
        record: Struct = {}
        number = 0
        while True:
            head = self._read_bytes(1)[0]
            kind, step = head & 15, head >> 4
            if kind == STOP:
                return record
            number = number + step if step else self._read_int()
            if kind in (TRUE, FALSE):
                record[number] = Field(kind, None)
            else:
                record[number] = Field(kind, self._read_value(kind))

    def _read_value(self, kind: int) -> Any:
        if kind == STRUCT:
            return self.read_struct()
        if kind == BINARY:
            return self._read_bytes(self._read_size())
        if kind in (LIST, SET):
            head = self._read_bytes(1)[0]
            size = head >> 4 if head >> 4 < LONG_LIST else self._read_size()
            return head & 15, [self._read_value(head & 15) for _ in range(size)]
        if kind in (TRUE, FALSE, BYTE):
            return self._read_bytes(1)
        if kind == DOUBLE:
            return self._read_bytes(8)
        if kind == MAP:
            raise LogError("A Parquet file has a map in its footer, which the format does not use.")
        return self._read_int()

    def _read_bytes(self, size: int) -> bytes:
        self._at += size
        return self._content[self._at - size : self._at]

    def _read_size(self) -> int:
        value = shift = 0
        while True:
            byte = self._content[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _read_int(self) -> int:
        value = self._read_size()
        return (value >> 1) ^ -(value & 1)


def _write_struct(out: bytearray, record: Struct) -> None:
    last = 0
    for number, (kind, value) in record.items():
        step = number - last
        if 0 < step < LONG_LIST + 1:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_int(out, number)
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
        last = number
    out.append(STOP)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind == STRUCT:
        _write_struct(out, value)
    elif kind == BINARY:
        _write_size(out, len(value))
        out += value
    elif kind in (LIST, SET):
        item_kind, items = value
        if len(items) < LONG_LIST:
            out.append(len(items) << 4 | item_kind)
        else:
            out.append(LONG_LIST << 4 | item_kind)
            _write_size(out, len(items))
        for item in items:
            _write_value(out, item_kind, item)
    elif kind in (TRUE, FALSE, BYTE, DOUBLE):
        out += value
    else:
        _write_int(out, value)


def _write_size(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_int(out: bytearray, value: int) -> None:
    _write_size(out, value << 1 if value >= 0 else (-value << 1) - 1)
