"""Files as bytes and lines: plain, gzipped, inside a zip or tar archive, or one JSON array.

Archives are read in place and never unpacked.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, cast

import pyarrow.parquet as pq
from pyarrow import ArrowException

from reclick.errors import LogError
from reclick.runtime.filesystem import Location, arrow_input, as_path

BLOCK_BYTES = 16 << 20
MAX_LINE_BYTES = 256 << 20
HEAD_BYTES = 1 << 16
BOM = b"\xef\xbb\xbf"
MAX_VALUE_CHARS = 16 << 20  # of a JSON array's value: one that never ends is not read for longer
DECODER = json.JSONDecoder()
ARRAY_START = re.compile(rb"\s*\[\s*\{")
INDEX_NAME = re.compile(rb"^[^\t\n{\[]{1,255}\t *(?=\{)", re.MULTILINE)
VALUE_GAP = re.compile(r"[\s,]*")

OnBytes = Callable[[int], object]  # called with the number of bytes just read
READ_ERRORS = (
    OSError,
    EOFError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    RuntimeError,
)


@dataclass(frozen=True)
class LogFile:
    """A file, or a member of an archive."""

    path: Location
    where: str  # the short name used in messages
    member: str | None = None

    @property
    def name(self) -> str:
        """The file's own name, without folder and without .gz."""
        return self._full_name.removesuffix(".gz")

    @property
    def _full_name(self) -> str:
        return Path(self.member).name if self.member else as_path(self.path).name

    @property
    def is_parquet(self) -> bool:
        """Whether its name ends as that of a Parquet file."""
        return self.name.lower().endswith((".parquet", ".pq"))

    @cached_property
    def head(self) -> bytes:
        """The first bytes, decompressed; empty when they cannot be read."""
        try:
            with self.open() as stream:
                return stream.read(HEAD_BYTES)
        except READ_ERRORS:
            return b""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a Parquet file; none for any other, or when it cannot be read."""
        if not self.is_parquet or self.member is not None:
            return ()
        try:
            return tuple(pq.read_schema(arrow_input(self.path)).names)
        except (ArrowException, OSError):
            return ()

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The bytes, decompressed while they are read."""
        with _open_member(self.path, self.member) as stream:
            if self._full_name.lower().endswith(".gz"):
                with gzip.open(stream) as decompressed:
                    yield cast(IO[bytes], decompressed)
            else:
                yield stream

    def chunks(self, size: int, on_bytes: OnBytes = lambda _: None) -> Iterator[bytes]:
        """The bytes in chunks of about this size; `on_bytes` is called after each."""
        with self.reading() as stream:
            while data := stream.read(size):
                yield data
                on_bytes(len(data))

    def blocks(
        self, on_bytes: OnBytes = lambda _: None, *, block_bytes: int = BLOCK_BYTES
    ) -> Iterator[bytes]:
        """The bytes in blocks of whole lines; `on_bytes` is called after each."""
        with self.reading() as stream:
            for data in split_blocks(stream, self.where, block_bytes):
                yield data
                on_bytes(len(data))

    def lines(self, on_bytes: OnBytes = lambda _: None) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, with their numbers from 1, without their ends."""
        number = 0
        for block in self.blocks(on_bytes):
            for line in block.removesuffix(b"\n").split(b"\n"):
                number += 1
                if line.strip():
                    yield number, line.removesuffix(b"\r")

    @contextmanager
    def reading(self) -> Iterator[IO[bytes]]:
        """The bytes; anything that goes wrong is a LogError."""
        try:
            with self.open() as stream:
                yield stream
        except READ_ERRORS as error:
            raise LogError(
                f"{self.where} cannot be read to the end: {error}. Write or copy it again."
            ) from error


def list_files(paths: list[Location], names: list[str]) -> list[LogFile]:
    """The files, and in place of an archive the files in it."""
    files = []
    for path, where in zip(paths, names, strict=True):
        members = _list_members(path, where)
        if members is None:
            files.append(LogFile(path, where))
        else:
            files += [LogFile(path, f"{where}/{member}", member) for member in members]
    return files


def read_blocks(path: Location, where: str, *, block_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of whole lines; the last one ends with the file."""
    yield from LogFile(path, where).blocks(block_bytes=block_bytes or BLOCK_BYTES)


def split_blocks(stream: IO[bytes], where: str, block_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of an open file in blocks of whole lines, without a byte order mark."""
    rest, started = b"", False
    while data := stream.read(block_bytes):
        data = rest + data if started else data.removeprefix(BOM)
        started = True
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield data[:end]
        if len(rest) > MAX_LINE_BYTES:
            raise LogError(
                f"{where} has a line of more than {MAX_LINE_BYTES >> 20} MB. "
                "Is it a text file with one session per line?"
            )
    if rest:
        yield rest


# ---- archives


@contextmanager
def _open_member(path: Location, member: str | None) -> Iterator[IO[bytes]]:
    with as_path(path).open("rb") as file:
        if member is None:
            yield file
        elif as_path(path).name.lower().endswith(".zip"):
            with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
                yield stream
        else:
            with (
                tarfile.open(fileobj=file) as tar,
                cast(IO[bytes], tar.extractfile(member)) as stream,
            ):
                yield stream


def _list_members(path: Location, where: str) -> list[str] | None:
    """The files in an archive, in its order; None when it is not an archive."""
    name = as_path(path).name.lower()
    try:
        if name.endswith(".zip"):
            with as_path(path).open("rb") as file, zipfile.ZipFile(file) as archive:
                names = [item.filename for item in archive.infolist() if not item.is_dir()]
        elif name.endswith((".tar", ".tar.gz", ".tgz")):
            with as_path(path).open("rb") as file, tarfile.open(fileobj=file) as tar:
                names = [item.name for item in tar if item.isfile()]
        else:
            return None
    except READ_ERRORS as error:
        raise LogError(
            f"{where} is not a valid archive: {error}. Write or copy it again."
        ) from error
    return _visible_members(names, where)


def _visible_members(members: list[str], where: str) -> list[str]:
    if len(set(members)) < len(members):
        twice = min(member for member in members if members.count(member) > 1)
        raise LogError(
            f"{where} holds {twice} twice, so it is not clear which one to read. "
            "Unpack it and give the files."
        )
    visible = [member for member in members if not _is_hidden_member(member)]
    if not visible:
        raise LogError(f"{where} holds no file to read.")
    return visible


def _is_hidden_member(member: str) -> bool:
    parts = (part for part in Path(member).parts if part not in {".", ".."})
    return any(part.startswith((".", "_")) for part in parts)


# ---- JSON arrays


def as_json_lines(file: LogFile) -> LogFile:
    """The file with one JSON object per line.

    Either it is that already, or one JSON array of objects, or two columns with a tab between them:
    the name of an index and an object.
    """
    head = file.head.removeprefix(BOM)
    if _starts_array(head):
        return JsonArrayFile(file.path, file.where, file.member)
    if INDEX_NAME.match(head):
        return IndexedJsonFile(file.path, file.where, file.member)
    return file


class IndexedJsonFile(LogFile):
    """Lines of the name of an index, a tab and a JSON object, read as lines of objects."""

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The objects, one per line."""
        with super().open() as stream:
            yield cast(IO[bytes], IndexedJsonStream(stream, self.where))


class IndexedJsonStream:
    r"""The objects of lines that begin with the name of an index.

    >>> import io
    >>> IndexedJsonStream(io.BytesIO(b'ubi_events\t{"a": 1}\nubi_events \t {}\n'), "").read(100)
    b'{"a": 1}\n{}\n'
    """

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self._stream, self._where = stream, where
        self._blocks: Iterator[bytes] | None = None

    def read(self, size: int) -> bytes:
        """Whole lines of about `size` bytes; none at the end."""
        if self._blocks is None:
            self._blocks = split_blocks(self._stream, self._where, size)
        return INDEX_NAME.sub(b"", next(self._blocks, b""))


class JsonArrayFile(LogFile):
    """A file that is one JSON array. Its lines are the values of the array, numbered from 1."""

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The values, one per line."""
        with super().open() as stream:
            yield cast(IO[bytes], JsonArrayStream(stream, self.where))


class JsonArrayStream:
    r"""The values of an array in a stream of bytes.

    >>> import io
    >>> JsonArrayStream(io.BytesIO(b'[{"a": 1},\n {"a":\n 2}]'), "log.json").read(100)
    b'{"a": 1}\n{"a":  2}\n'
    """

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self._stream, self._where, self._size = stream, where, 0
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._blocks = self._iterate_blocks()
        self._num_values = 0

    def read(self, size: int) -> bytes:
        """Whole lines of about `size` bytes; none at the end."""
        self._size = size
        return next(self._blocks, b"")

    def _iterate_blocks(self) -> Iterator[bytes]:
        text = self._read_text()
        while "[" not in text:
            text += self._read_text()
        text = text.partition("[")[2]
        while not text.startswith("]"):
            values, text = _split_values(text)
            self._num_values += len(values)
            if values:
                yield "".join(values).encode()
            elif len(text) > MAX_VALUE_CHARS:
                raise self._error("not valid JSON")
            if not text.startswith("]"):
                text += self._read_text()
        self._check_end(text[1:])

    def _read_text(self) -> str:
        data = self._stream.read(self._size)
        if not data:
            raise self._error("not valid JSON, or cut short")
        return self._decode(data)

    def _decode(self, data: bytes) -> str:
        try:
            return self._decoder.decode(data)
        except UnicodeDecodeError as error:
            raise self._error("not UTF-8") from error

    def _check_end(self, text: str) -> None:
        while not text.strip():
            data = self._stream.read(self._size)
            if not data:
                return
            text = self._decode(data)
        advice = f"Write one object per line: jq -c '.[]' {self._where}"
        raise self._error("followed by something else", advice)

    def _error(self, problem: str, advice: str = "Write or copy it again.") -> LogError:
        return LogError(
            f"{self._where} is one JSON array and {problem}, after record {self._num_values} "
            f"of it. {advice}"
        )


def _split_values(text: str) -> tuple[list[str], str]:
    """The values that are certainly complete, as lines, and the text after them."""
    values, start = [], _skip_gap(text, 0)
    # A failure: the rest of the value is not read yet, or it is broken.
    with suppress(ValueError, RecursionError):
        while start < len(text) and text[start] != "]":
            end = DECODER.raw_decode(text, start)[1]
            after = _skip_gap(text, end)
            if after == len(text):
                break
            values.append(text[start:end].replace("\n", " ") + "\n")
            start = after
    return values, text[start:]


def _skip_gap(text: str, start: int) -> int:
    return cast(re.Match[str], VALUE_GAP.match(text, start)).end()


def _starts_array(head: bytes) -> bool:
    """Whether a file starts as an array of objects, not as lines of which the first is a list."""
    first, _, more = head.lstrip().partition(b"\n")
    return ARRAY_START.match(head) is not None and not (more.strip() and _is_json(first))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
