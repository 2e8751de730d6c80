"""Read CSV and TSV. Arrow reads blocks whose every line is one sound record; any other block is read again with care, line by line.

A broken quote must cost one row, not the rest of the file: a record may run over lines only if its quote closes and its fields add up.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from reclick.data.batch import Int64
from reclick.data.schema import Column, find_columns
from reclick.errors import LogError
from reclick.logs.files.blocks import read_blocks
from reclick.logs.files.cell_parsing import parse_columns
from reclick.logs.files.source import Raw, short

MAX_RECORD_LINES = 1000  # that one quoted cell may run over
MAX_RECORD_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class DelimitedSource:
    """A CSV or TSV file whose header was read and found right."""

    path: str
    where: str
    names: dict[str, str]
    header: tuple[str, ...]
    delimiter: str
    wanted: tuple[Column, ...]
    num_rows: int | None = None

    def read(self, *, with_rows: bool) -> Iterator[Raw]:
        """Read in row order."""
        done, rest = 0, b""
        for body in chain(self._bodies(), [b""]):  # the empty one says that nothing follows
            if not (rest or body):
                continue
            table, numbers, unreadable, rest = self._fields(rest + body, done, final=not body)
            columns = {
                name: table.column(self.header.index(theirs)) for name, theirs in self.names.items()
            }
            raw = Raw(
                self.where,
                done + 1,
                columns,
                table.num_rows,
                numbers,
                unreadable,
                table if with_rows else None,
            )
            done += raw.total
            if raw.total:
                yield parse_columns(raw, self.wanted)

    def _bodies(self) -> Iterator[bytes]:
        blocks = read_blocks(self.path, self.where)
        first = next(blocks, b"")
        yield from (block for block in chain([first[_header_end(first) :]], blocks) if block)

    def _fields(
        self, body: bytes, done: int, *, final: bool
    ) -> tuple[pa.RecordBatch, Int64 | None, list[tuple[int, str]], bytes]:
        fast = read_sound(body, self.header, self.delimiter)
        if fast is not None:
            return fast, None, [], b""
        records, rest = read_records(body, len(self.header), self.delimiter, final=final)
        numbered = list(enumerate(records, start=done + 1))
        kept = [record for record in records if not isinstance(record, str)]
        numbers = [number for number, record in numbered if not isinstance(record, str)]
        unreadable = [(number, record) for number, record in numbered if isinstance(record, str)]
        arrays = [
            pa.array([record[i] for record in kept], pa.string()) for i in range(len(self.header))
        ]
        return (
            pa.RecordBatch.from_arrays(arrays, names=list(self.header)),
            np.asarray(numbers, np.int64),
            unreadable,
            rest,
        )


def open_delimited(
    path: str, where: str, wanted: Sequence[Column], mapping: dict[str, str]
) -> DelimitedSource:
    """Read the header of a CSV or TSV file and check its columns."""
    first = next(read_blocks(path, where, block=1 << 16), b"")
    try:
        line = first[: _header_end(first)].decode()
        delimiter = max("\t,;", key=line.count) if line.count(",") == 0 else ","
        header = tuple(
            name.strip()
            for name in next(csv.reader(io.StringIO(line), delimiter=delimiter, strict=True), [])
        )
    except (UnicodeDecodeError, csv.Error) as error:
        raise LogError(
            f"The header of {where} cannot be read: {error}. The first line must name the columns."
        ) from error
    names = find_columns(header, wanted, mapping, where)
    return DelimitedSource(path, where, names, header, delimiter, tuple(wanted))


def read_sound(body: bytes, header: Sequence[str], delimiter: str) -> pa.RecordBatch | None:
    """Read a block with Arrow, or return None when any line is not exactly one record without oddities."""
    if b'"' in body and _odd_quote(delimiter).search(body):
        return None
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(body),
            read_options=arrow_csv.ReadOptions(
                column_names=[str(i) for i in range(len(header))], block_size=len(body) + 1
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types={str(i): pa.string() for i in range(len(header))},
                strings_can_be_null=False,
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


def read_records(
    body: bytes, fields: int, delimiter: str, *, final: bool = True
) -> tuple[list[list[str] | str], bytes]:
    r"""Return every record as its fields, or as a text that says why it cannot be read; and the bytes of a record still open at the end.

    >>> read_records(b'"a,1\nb,2\n', 2, ",")
    (['a quote that does not close: \'"a,1\'', ['b', '2']], b'')
    """
    lines = body.removesuffix(b"\n").split(b"\n")
    records: list[list[str] | str] = []
    at = 0
    while at < len(lines):
        used = _lines_used(lines, at)
        if used > len(lines) - at:
            if not final:
                return records, b"\n".join(lines[at:]) + b"\n"
            used = 0
        if lines[at].strip(b"\r"):
            record = _split(b"\n".join(lines[at : at + used]), fields, delimiter) if used else ""
            # When a record over several lines does not add up, its first line alone is at fault and the next get their own chance.
            used = used if isinstance(record, list) else 1
            unclosed = not isinstance(record, list) and lines[at].count(b'"') % 2
            records.append(
                f"a quote that does not close: {short(_shown(lines[at]))}" if unclosed else record
            )
        at += max(used, 1)
    return records, b""


def _lines_used(lines: list[bytes], at: int) -> int:
    """Return how many lines a record takes until its quotes close: 0 when they never do, one more than there are when that is open."""
    quotes, size = 0, 0
    for used in range(1, min(MAX_RECORD_LINES, len(lines) - at) + 1):
        line = lines[at + used - 1]
        quotes += line.count(b'"')
        size += len(line)
        if quotes % 2 == 0:
            return used
        if size > MAX_RECORD_BYTES:
            return 0
    return 0 if at + MAX_RECORD_LINES <= len(lines) else len(lines) - at + 1


def _split(text: bytes, fields: int, delimiter: str) -> list[str] | str:
    try:
        rows = list(
            csv.reader(
                io.StringIO(text.removesuffix(b"\r").decode(), newline=""),
                delimiter=delimiter,
                strict=True,
            )
        )
    except UnicodeDecodeError:
        return f"not UTF-8 text: {short(_shown(text))}"
    except csv.Error as error:
        return f"a broken quote ({error}): {short(_shown(text))}"
    if len(rows) != 1 or len(rows[0]) != fields:
        return f"{sum(map(len, rows))} fields where the header has {fields}: {short(_shown(text))}"
    return rows[0]


def _shown(text: bytes) -> str:
    return text[:200].decode(errors="replace").rstrip("\r")


def _header_end(block: bytes) -> int:
    end = block.find(b"\n") + 1
    return end or len(block)


def _odd_quote(delimiter: str) -> re.Pattern[bytes]:
    # A lone quote inside a field. Arrow would read past it; it is either literal or the sign of a broken quote further up.
    inner = b"[^" + re.escape(delimiter.encode()) + rb'\r\n"]'
    return re.compile(inner + b'"' + inner)
