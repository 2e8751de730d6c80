"""Find out how large the rows of a Parquet file are, before decoding them.

The footer and the headers of pages have their numbers of bytes and values. They are parsed here,
because a small file may hold rows of gigabytes (a page that compresses well, a long value in a
dictionary, a list of a billion equal ads), and because Arrow ends the process on some damaged
footers. All numbers are checked against the file: a wrong number raises a LogError before it costs
memory.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.errors import LogError, permission_error
from reclick.runtime.filesystem import Location, RemotePath, as_path
from reclick.runtime.jit import kernel, subkernel

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
FileBytes = mmap.mmap | bytes
MOST_ROWS = 250_000  # of a batch: allocating memory takes longer than filling it
MAX_PAGE_BYTES = 64 << 20  # unpacked, of the largest pages of all columns that are read together
MAX_BATCH_BYTES = 192 << 20  # of a batch with any content; copied bytes count COPIES times
MAX_GROUP_BYTES = 640 << 20  # of a row group whose pages are not examined
COPIES = 3  # of the text in pages: unpacked, decoded and coded
FEWEST_BYTES = 4  # of a value, decoded
VALUE_BYTES = 12  # of a value besides its text: its offset or code, and its place in lists
MAX_DEPTH = 32  # of structs in a footer; real ones have about ten
PARQUET_MAGIC, FOOTER_END = b"PAR1", 8
HEADER_BYTES = 256  # of a page; with long statistics it has more
# codes of the format
BYTE_ARRAY, REQUIRED, REPEATED = 6, 0, 2
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
PLAIN, RLE, DELTA_BYTE_ARRAY, DICTIONARIES = 0, 3, 7, (2, 8)
CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4", 6: "zstd", 7: "lz4_raw"}


class Leaf(NamedTuple):
    """A column of values; in a list or a struct its path has several names."""

    path: tuple[str, ...]
    kind: int  # physical type
    max_repetition: int  # lists around a value
    max_definition: int  # lists and optional fields around a value


class Chunk(NamedTuple):
    """The values of a leaf in a row group."""

    leaf: Leaf
    codec: int
    num_values: int
    unpacked_bytes: int
    start: int  # of its first page in the file
    end: int


class RowGroup(NamedTuple):
    """A row group, as the footer describes it."""

    num_rows: int
    chunks: list[Chunk]


class ParquetPage(NamedTuple):
    """A page of a chunk, as its header describes it."""

    kind: int
    start: int  # of its bytes, after the header
    end: int
    unpacked_bytes: int
    num_values: int
    encoding: int
    is_packed: bool
    # of repetition and definition, if they come first and are not packed; else None
    level_bytes: tuple[int, int] | None
    level_encoding: int


@dataclass(frozen=True, slots=True)
class ParquetLayout:
    """The row groups of a file, and where their pages are."""

    path: Location
    where: str
    leaves: list[tuple[str, ...]]  # their paths
    groups: list[RowGroup]
    content: bytes | None = field(default=None, repr=False)  # of a file that was fetched

    def row_bytes(self, columns: Sequence[str]) -> float:
        """Return the average bytes of a row in the row group with the largest rows."""
        sizes = [
            sum(chunk.unpacked_bytes for chunk in group.chunks if chunk.leaf.path[0] in columns)
            / max(group.num_rows, 1)
            for group in self.groups
        ]
        return max(sizes, default=0.0)

    def decoded_bytes(self) -> tuple[int, int, list[str]]:
        """Return lower and upper bounds of the memory of all values, and the columns of text.

        The bounds differ because a text that is stored once may be in any number of rows.
        """
        least = most = 0
        texts: dict[str, None] = {}
        with _map_file(self.path, self.content) as data:
            for chunk in (chunk for group in self.groups for chunk in group.chunks):
                low, high = _ChunkSize(chunk, data, self.where, coded=False).decoded_bytes()
                least, most = least + low, most + high
                if high > low:
                    texts[".".join(chunk.leaf.path)] = None
        return least, most, list(texts)

    def num_values(self, starts: str | tuple[str, ...]) -> dict[str, int]:
        """Count the values of the leaves whose path starts like this, ignoring case."""
        total: dict[str, int] = {}
        for chunk in (chunk for group in self.groups for chunk in group.chunks):
            path = ".".join(chunk.leaf.path)
            if path.lower().startswith(starts):
                total[path] = total.get(path, 0) + chunk.num_values
        return total

    def limit_rows(
        self,
        columns: Sequence[str],
        coded: Sequence[str] = (),
        groups: Sequence[int] | None = None,
    ) -> Iterator[tuple[list[int], int]]:
        """Yield consecutive row groups, and the maximum number of their rows in a batch.

        `columns` are top columns or paths of leaves, `coded` the leaves that are read as codes.
        """
        numbers = list(range(len(self.groups)) if groups is None else groups)
        # Of a remote file, a request per page would cost more than it saves.
        if isinstance(as_path(self.path), RemotePath):
            yield numbers, MOST_ROWS
            return
        read_together: list[int] = []  # small groups are read together
        room, most = MAX_BATCH_BYTES, MOST_ROWS
        with _map_file(self.path, self.content) as data:
            for number in numbers:
                rows, size = self._limit_group(self.groups[number], data, columns, coded)
                if read_together and size > room:
                    yield read_together, most
                    read_together, room, most = [], MAX_BATCH_BYTES, MOST_ROWS
                read_together, room, most = [*read_together, number], room - size, min(most, rows)
        if read_together:
            yield read_together, most

    def _limit_group(
        self, group: RowGroup, data: FileBytes, columns: Sequence[str], coded: Sequence[str]
    ) -> tuple[int, int]:
        """Return how many rows of a group may be in one batch, and the bytes of all, at most."""
        chunks = [
            _ChunkSize(chunk, data, self.where, ".".join(chunk.leaf.path) in coded)
            for chunk in group.chunks
            if _is_read(chunk.leaf.path, columns)
        ]
        pages = sum(chunk.largest_page for chunk in chunks)
        if pages > MAX_PAGE_BYTES:
            column = max(chunks, key=lambda chunk: chunk.largest_page)
            raise _size_error(self.where, column, f"pages of {_megabytes(pages)}", MAX_PAGE_BYTES)
        total = sum(chunk.total_bytes() for chunk in chunks)
        values = VALUE_BYTES * sum(chunk.num_values for chunk in chunks)
        if values <= MAX_BATCH_BYTES and total <= MAX_GROUP_BYTES:
            return MOST_ROWS, min(total, MAX_BATCH_BYTES)  # even if all of it were in one batch
        rows = MOST_ROWS
        while sum(chunk.batch_bytes(rows) for chunk in chunks) > MAX_BATCH_BYTES:
            if rows == 1:
                column = max(chunks, key=lambda chunk: chunk.batch_bytes(1))
                size = _megabytes(column.batch_bytes(1))
                raise _size_error(self.where, column, f"rows of up to {size}", MAX_BATCH_BYTES)
            rows //= 2
        return rows, total


def read_layout(path: Location, where: str, content: bytes | None = None) -> ParquetLayout:
    """Parse the footer of a file; `content` are its bytes if it was fetched already."""
    place = as_path(path)
    if isinstance(place, Path) and place.exists() and not place.is_file():
        raise LogError(f"{where} is a pipe or a device. Parquet is read from a plain file.")
    with place.open("rb") if content is None else io.BytesIO(content) as file:
        size = file.seek(0, 2)
        file.seek(max(size - FOOTER_END, 0))
        end = file.read(FOOTER_END)
        length = int.from_bytes(end[:4], "little")
        if end[4:] != PARQUET_MAGIC or length + FOOTER_END > size:
            raise damaged_parquet_error(where, "its end is not that of Parquet")
        file.seek(size - FOOTER_END - length)
        footer = file.read(length)
    with _explain_damage(where):
        metadata = _ThriftReader(footer).read_struct()
        leaves = _list_leaves(metadata[2])
        groups = [_read_group(group, leaves, size) for group in metadata.get(4, [])]
    return ParquetLayout(path, where, [leaf.path for leaf in leaves], groups, content)


def damaged_parquet_error(where: str, error: object) -> LogError:
    """Make the error for a file that cannot be read as Parquet."""
    if isinstance(error, PermissionError):
        return permission_error(where)
    return LogError(
        f"{where} cannot be read as Parquet: it is cut short, damaged or not Parquet ({error}). "
        "Write or copy it again."
    )


def _is_read(path: tuple[str, ...], columns: Sequence[str]) -> bool:
    return any(".".join(path[: end + 1]) in columns for end in range(len(path)))


def _size_error(where: str, column: _ChunkSize, problem: str, limit: int) -> LogError:
    return LogError(
        f"{where} has {problem} in {'.'.join(column.chunk.leaf.path)}, and the limit is "
        f"{_megabytes(limit)}. Remove these rows, or write the file again with smaller pages."
    )


def _megabytes(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MB"


@contextmanager
def _map_file(path: Location, content: bytes | None = None) -> Iterator[FileBytes]:
    if content is not None:
        yield content
        return
    with (
        as_path(path).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        yield data


@contextmanager
def _explain_damage(where: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        if isinstance(error, LogError):
            raise
        raise damaged_parquet_error(where, f"a header that makes no sense: {error}") from error


# ---- the footer


def _list_leaves(schema: list[dict[int, Any]]) -> list[Leaf]:
    """Return the leaves of a schema, which is a tree in depth-first order."""
    leaves = []
    parents: list[tuple[tuple[str, ...], int, int, int]] = []  # path, levels, children to come
    for number, element in enumerate(schema):
        path, repetition, definition, n_children = parents.pop() if parents else ((), 0, 0, 0)
        if n_children > 1:
            parents.append((path, repetition, definition, n_children - 1))
        if number:
            path = (*path, element[4].decode(errors="replace"))
            repetition += element.get(3) == REPEATED
            definition += element.get(3, 0) != REQUIRED
        if element.get(5, 0) > 0:
            parents.append((path, repetition, definition, element[5]))
        else:
            leaves.append(Leaf(path, element.get(1, BYTE_ARRAY), repetition, definition))
    return leaves


def _read_group(group: dict[int, Any], leaves: list[Leaf], size: int) -> RowGroup:
    chunks = []
    for leaf, column in zip(leaves, group[1], strict=True):
        about = column[3]
        start, dictionary = about[9], about.get(11, 0)
        start = dictionary if 0 < dictionary < start else start
        end = start + about[7]
        if not 0 <= start <= end <= size or about[5] < 0 or about[6] < 0:
            raise ValueError("a column outside the file")
        chunks.append(Chunk(leaf, about[4], about[5], about[6], start, end))
    return RowGroup(max(group[3], 0), chunks)


class _ThriftReader:
    """Reads structs in the compact protocol of Thrift, as {field number: value}."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deep")
        fields: dict[int, Any] = {}
        number, data = 0, self.data
        while True:
            header = data[self.at]
            self.at += 1
            if not header:
                return fields
            kind = header & 15
            number = number + (header >> 4) if header >> 4 else self._read_signed()
            if kind in {1, 2}:  # true and false
                fields[number] = kind == 1
            else:
                fields[number] = self._read_value(kind, depth)

    def _read_value(self, kind: int, depth: int) -> Any:
        if kind in {4, 5, 6}:
            return self._read_signed()
        if kind == 8:
            return self._take(self._read_varint())
        if kind == 12:
            return self.read_struct(depth + 1)
        if kind in {9, 10}:
            return self._read_list(depth)
        if kind in {1, 2, 3}:
            return self._take(1)[0]
        if kind == 7:
            return self._take(8)
        raise ValueError(f"a field of the unknown type {kind}")

    def _read_list(self, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deep")
        header = self._take(1)[0]
        length = header >> 4 if header >> 4 < 15 else self._read_varint()
        if length > len(self.data) - self.at:
            raise ValueError("a list that is longer than the footer")
        return [self._read_value(header & 15, depth + 1) for _ in range(length)]

    def _take(self, length: int) -> bytes:
        start, self.at = self.at, self.at + length
        if self.at > len(self.data):
            raise ValueError("it ends too early")
        return self.data[start : self.at]

    def _read_signed(self) -> int:
        number = self._read_varint()
        return (number >> 1) ^ -(number & 1)

    def _read_varint(self) -> int:
        result = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            result |= (byte & 127) << shift
            if byte < 128:
                return result
            shift += 7
            if shift > 63:
                raise ValueError("a number without end")


# ---- the pages of a column


class _ChunkSize:
    """The size of the values of a chunk, from its pages."""

    def __init__(self, chunk: Chunk, data: FileBytes, where: str, coded: bool) -> None:
        self.chunk, self._data, self._where = chunk, data, where
        self._has_text = chunk.leaf.kind == BYTE_ARRAY and not coded
        with _explain_damage(where):
            pages = list(_list_pages(chunk, data))
        self._dictionaries = [page for page in pages if page.kind == DICTIONARY_PAGE]
        self._pages = [page for page in pages if page.kind != DICTIONARY_PAGE]
        # Codes and numbers are only unpacked; text in pages is copied again.
        is_copied = chunk.leaf.kind == BYTE_ARRAY and any(
            page.encoding not in DICTIONARIES for page in self._pages
        )
        self._copies = COPIES if is_copied else 1
        self.num_values = sum(page.num_values for page in self._pages)
        self.largest_page = max((page.unpacked_bytes for page in pages), default=0)

    def total_bytes(self) -> int:
        """Return an upper bound of the memory of all values."""
        values, size = self.num_values, sum(page.unpacked_bytes for page in self._pages)
        text = 0
        if self._has_text and values * VALUE_BYTES + self._copies * size <= MAX_BATCH_BYTES:
            text = values * self._expanded_bytes(MAX_BATCH_BYTES // (COPIES * max(values, 1)))
        return values * VALUE_BYTES + self._copies * size + COPIES * text

    def decoded_bytes(self) -> tuple[int, int]:
        """Return lower and upper bounds of the memory of all values after decoding."""
        values = self.num_values
        least = values * FEWEST_BYTES
        return least, least + (values * self._longest_text if self._has_text else 0)

    def batch_bytes(self, rows: int) -> int:
        """Return an upper bound of the memory of this many rows."""
        records = self._records
        text = self._expanded_bytes(0) if self._has_text else 0
        values = rows * records.longest
        size = records.sum_bytes(rows)
        return values * (VALUE_BYTES + COPIES * text) + self._copies * size

    @cached_property
    def _records(self) -> _Records:
        """The rows of the pages, from the lengths of lists."""
        sizes = np.array([page.unpacked_bytes for page in self._pages], np.int64)
        if not self.chunk.leaf.max_repetition:
            return _Records(1, np.array([page.num_values for page in self._pages], np.int64), sizes)
        state = np.zeros(2, np.int64)  # the longest record, and the values of the one so far
        with _explain_damage(self._where):
            rows = [self._count_records(page, state) for page in self._pages]
        return _Records(int(state.max()), np.array(rows, np.int64), sizes)

    def _count_records(self, page: ParquetPage, state: Int64) -> int:
        width = self.chunk.leaf.max_repetition.bit_length()
        levels = self._unpack(page).repetition
        if page.level_encoding != RLE or width > 8:
            state[1] += page.num_values  # an old encoding: it might all be one row
            return 0
        return int(count_records(levels, width, page.num_values, state))

    def _expanded_bytes(self, enough: int) -> int:
        """Return the longest text that is stored once and may be repeated; roughly if `enough`."""
        pages = [*self._dictionaries, *(p for p in self._pages if p.encoding == DELTA_BYTE_ARRAY)]
        rough = max((page.unpacked_bytes for page in pages), default=0)
        return rough if rough <= enough else self._longest_text

    @cached_property
    def _longest_text(self) -> int:
        with _explain_damage(self._where):
            dictionary_lengths = [
                longest_plain(self._unpack(page).values) for page in self._dictionaries
            ]
            delta = [page for page in self._pages if page.encoding == DELTA_BYTE_ARRAY]
            page_lengths = [longest_delta(self._unpack(page).values) for page in delta]
        return max([*dictionary_lengths, *page_lengths], default=0)

    def _unpack(self, page: ParquetPage) -> _Unpacked:
        """Decompress a page and separate its parts."""
        content = self._data[page.start : page.end]
        first = page.level_bytes[0] + page.level_bytes[1] if page.level_bytes else 0
        levels, content = content[:first], content[first:]
        codec = CODECS[self.chunk.codec]
        if codec is not None and page.is_packed and content:
            size = page.unpacked_bytes - first
            content = pa.Codec(codec).decompress(content, size, asbytes=True)
        if page.kind == DICTIONARY_PAGE:
            return _Unpacked(b"", content)
        if page.level_bytes:
            return _Unpacked(levels[: page.level_bytes[0]], content)
        repetition = b""
        if self.chunk.leaf.max_repetition:
            repetition, content = _split_levels(content)
        if self.chunk.leaf.max_definition:
            _, content = _split_levels(content)
        return _Unpacked(repetition, content)


class _Unpacked:
    """The levels of repetition and the values of a page."""

    def __init__(self, repetition: bytes, values: bytes) -> None:
        self.repetition = np.frombuffer(repetition, np.uint8)
        self.values = np.frombuffer(values, np.uint8)


def _split_levels(content: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(content[:4], "little")
    return content[4:end], content[end:]


class _Records(NamedTuple):
    """The rows of a chunk: the values of the longest row, and rows and bytes per page."""

    longest: int
    rows: Int64
    sizes: Int64

    def sum_bytes(self, rows: int) -> int:
        """Return the maximum bytes of the pages that this many consecutive rows are in."""
        starts = np.cumsum(self.rows) - self.rows
        bytes_before = np.concatenate([[0], np.cumsum(self.sizes)])
        last = np.searchsorted(starts, starts + self.rows + rows - 2, side="right")
        return int((bytes_before[last] - bytes_before[: len(last)]).max(initial=0))


def _list_pages(chunk: Chunk, data: FileBytes) -> Iterator[ParquetPage]:
    at, n_remaining = chunk.start, chunk.num_values
    while n_remaining > 0 and at < chunk.end:
        window = HEADER_BYTES
        while True:
            reader = _ThriftReader(data[at : min(at + window, chunk.end)])
            try:
                header = reader.read_struct()
                break
            except (IndexError, ValueError):
                if window >= chunk.end - at:
                    raise
                window *= 16  # long statistics
        page = _read_page(header, at + reader.at, chunk)
        if page is not None:
            yield page
            n_remaining -= 0 if page.kind == DICTIONARY_PAGE else page.num_values
        at += reader.at + header[3]


def _read_page(header: dict[int, Any], start: int, chunk: Chunk) -> ParquetPage | None:
    kind, unpacked, packed = header[1], header[2], header[3]
    end = start + packed
    if packed < 0 or unpacked < 0 or end > chunk.end:
        raise ValueError("a page outside its column")
    if kind == DICTIONARY_PAGE:
        return ParquetPage(kind, start, end, unpacked, header[7][1], PLAIN, True, None, RLE)
    if kind == DATA_PAGE_V2:
        about = header[8]
        lengths = (about[6], about[5])
        if min(lengths) < 0 or sum(lengths) > packed:
            raise ValueError("levels outside their page")
        is_packed = about.get(7, True)
        return ParquetPage(
            kind, start, end, unpacked, _size(about), about[4], is_packed, lengths, RLE
        )
    if kind == DATA_PAGE:
        about = header[5]
        return ParquetPage(kind, start, end, unpacked, _size(about), about[2], True, None, about[4])
    return None  # an index


def _size(about: dict[int, Any]) -> int:
    if about[1] < 0:
        raise ValueError("a page of less than no values")
    return int(about[1])


# ---- kernels


@subkernel
def read_number(values: Bytes, at: int) -> Any:
    """Read a number in bytes of seven bits; also return where it ends."""
    number, shift = np.int64(0), 0
    while at < len(values) and shift < 63:
        byte = np.int64(values[at])
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return number, at


@subkernel
def read_bits(values: Bytes, first: int, width: int) -> Any:
    """Read a number of `width` bits, which begins at the bit `first`."""
    number = np.int64(0)
    for bit in range(min(width, 62)):
        place = first + bit
        if place >> 3 < len(values):
            number |= ((np.int64(values[place >> 3]) >> (place & 7)) & 1) << bit
    return number


@kernel
def count_records(levels: Bytes, width: int, num_values: int, state: Int64) -> Any:
    """Count the records that begin in a page: the levels that are 0, in runs or packed in bits.

    `state` holds the length of the longest record so far, and of the record that is not complete.
    """
    at, n_remaining, n_records = 0, num_values, 0
    while n_remaining > 0 and at < len(levels):
        header, at = read_number(levels, at)
        size = header >> 1
        if size == 0:
            break
        if header & 1:
            if width == 1:
                n_records += add_bits(levels, at, min(size * 8, n_remaining), state)
            else:
                for index in range(min(size * 8, n_remaining)):
                    level = read_bits(levels, at * 8 + index * width, width)
                    n_records += add_levels(level, 1, state)
            at += size * width
            n_remaining -= size * 8
        else:
            level = read_bits(levels, at * 8, width)
            n_records += add_levels(level, min(size, n_remaining), state)
            at += 1
            n_remaining -= size
    state[1] += max(n_remaining, 0)  # levels that are missing
    return n_records


@subkernel
def add_levels(level: int, times: int, state: Int64) -> Any:
    """Add equal levels to the state; return how many records begin there."""
    if level:
        state[1] += times
        return 0
    state[0] = max(state[0], state[1])
    state[1] = 1
    return times


@subkernel
def add_bits(levels: Bytes, at: int, num_levels: int, state: Int64) -> Any:
    """Add levels of one bit, as those of plain lists, a byte at a time."""
    longest, current = state[0], state[1]
    n_records: Any = 0
    for first in range(0, num_levels, 8):
        place = at + (first >> 3)
        byte = np.int64(levels[place]) if place < len(levels) else np.int64(0)
        for bit in range(min(8, num_levels - first)):
            starts = 1 - ((byte >> bit) & 1)
            longest = max(longest, current)
            current = current * (1 - starts) + 1
            n_records += starts
    state[0], state[1] = longest, current
    return n_records


@kernel
def longest_plain(values: Bytes) -> Any:
    """Return the length of the longest value; values are preceded by their lengths."""
    at, longest = 0, 0
    while at + 4 <= len(values):
        length: Any = np.int64(values[at]) | np.int64(values[at + 1]) << 8
        length |= np.int64(values[at + 2]) << 16 | np.int64(values[at + 3]) << 24
        longest = max(longest, min(length, len(values)))
        at += 4 + length
    return longest


@kernel
def longest_delta(values: Bytes) -> Any:
    """Return an upper bound of the longest value; values share a prefix with the one before."""
    prefix, at = largest_delta(values, 0)
    suffix, _ = largest_delta(values, at)
    return min(prefix, len(values)) + min(suffix, len(values))


@subkernel
def largest_delta(values: Bytes, at: int) -> Any:
    """Return the largest of numbers that are packed as differences, and where they end."""
    block, at = read_number(values, at)
    parts, at = read_number(values, at)
    n_remaining, at = read_number(values, at)
    first, at = read_number(values, at)
    number = (first >> 1) ^ -(first & 1)
    largest = max(number, 0)
    if parts < 1 or block < parts or block > 1 << 20:
        return len(values), at  # invalid: Arrow raises an error
    n_remaining -= 1
    while n_remaining > 0 and at < len(values):
        smallest, at = read_number(values, at)
        smallest = (smallest >> 1) ^ -(smallest & 1)
        widths, size = at, block // parts
        at += parts
        for part in range(parts):
            if n_remaining > 0 and widths + part < len(values):
                width: Any = np.int64(values[widths + part])
                for index in range(min(size, n_remaining)):
                    number += smallest + read_bits(values, at * 8 + index * width, width)
                    largest = max(largest, number)
                n_remaining -= size
                at += size * width // 8
    return largest, at
