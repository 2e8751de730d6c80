"""Read files as bytes and lines: plain, gzipped, in a zip or tar archive, or one JSON array.

Archives are read in place and never unpacked.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import struct
import tarfile
import weakref
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

import pyarrow.parquet as pq
from pyarrow import ArrowException

from reclick.errors import LogError, permission_error
from reclick.runtime.filesystem import Location, arrow_input, as_path
from reclick.runtime.object_store import guard_reading

BLOCK_BYTES = 16 << 20
MAX_LINE_BYTES = 16 << 20  # a longer line is not a session, and is not read to its end
HEAD_BYTES = 1 << 16
BOM = b"\xef\xbb\xbf"
MAX_VALUE_CHARS = 16 << 20  # limit of a value of a JSON array, which may never end
CR_ADVICE = "Write them with line feeds: tr '\\r' '\\n' < old > new."
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
# Errors of Python's readers of archives for damaged headers
DAMAGE = (ValueError, IndexError, KeyError, struct.error)


@dataclass(frozen=True)
class LogFile:
    """A file, or a member of an archive."""

    path: Location
    where: str  # the short name used in messages
    member: str | None = None
    archive: Archive | None = field(default=None, repr=False, compare=False)  # of the member

    @property
    def name(self) -> str:
        """The file's own name, without folder and without .gz."""
        return self._full_name.removesuffix(".gz")

    @property
    def _full_name(self) -> str:
        return Path(self.member).name if self.member else as_path(self.path).name

    @property
    def is_parquet(self) -> bool:
        """Whether the name has the suffix of a Parquet file."""
        return self.name.lower().endswith((".parquet", ".pq"))

    @cached_property
    def head(self) -> bytes:
        """The first bytes, decompressed; empty if they cannot be read."""
        try:
            with self.open() as stream:
                return stream.read(HEAD_BYTES)
        except READ_ERRORS:
            return b""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a Parquet file; empty for other files, or if it cannot be read."""
        if not self.is_parquet or self.member is not None:
            return ()
        try:
            return tuple(pq.read_schema(arrow_input(self.path)).names)
        except (ArrowException, OSError, UnicodeDecodeError):
            return ()

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the bytes, which are decompressed while they are read."""
        with self._open_bytes() as stream:
            if self._full_name.lower().endswith(".gz"):
                with gzip.open(stream) as gzip_stream:
                    yield cast(IO[bytes], gzip_stream)
            else:
                yield stream

    @contextmanager
    def _open_bytes(self) -> Iterator[IO[bytes]]:
        if self.member is None:
            with as_path(self.path).open("rb") as stream:
                yield stream
        else:
            with cast(Archive, self.archive).open(self.member) as stream:
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
        """The lines that are not blank, without line ends, with their numbers from 1."""
        number = 0
        for block in self.blocks(on_bytes):
            for line in block.removesuffix(b"\n").split(b"\n"):
                number += 1
                if line.strip():
                    yield number, line.removesuffix(b"\r")

    @contextmanager
    def reading(self) -> Iterator[IO[bytes]]:
        """Open the bytes; errors become a LogError, or a StoreError for a remote file."""
        try:
            with guard_reading(as_path(self.path)), self.open() as stream:
                yield stream
        except PermissionError as error:
            raise permission_error(self.where) from error
        except READ_ERRORS as error:
            raise LogError(
                f"{self.where} cannot be read to the end: {error}. Write or copy it again."
            ) from error


def list_files(paths: list[Location], names: list[str]) -> list[LogFile]:
    """The files; an archive is replaced by the files in it."""
    files = []
    for path, where in zip(paths, names, strict=True):
        archive = _list_archive(path, where)
        if archive is None:
            files.append(LogFile(path, where))
        else:
            members = _visible_members(archive.names, where)
            files += [LogFile(path, f"{where}/{each}", each, archive) for each in members]
    return files


def read_blocks(path: Location, where: str, *, block_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of whole lines; the last one ends with the file."""
    yield from LogFile(path, where).blocks(block_bytes=block_bytes or BLOCK_BYTES)


def split_blocks(stream: IO[bytes], where: str, block_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of an open file in blocks of whole lines, without a byte order mark."""
    pieces: list[bytes] = []  # of an incomplete line; joined once, so that it takes linear time
    size, is_started = 0, False
    while data := stream.read(block_bytes):
        data = data if is_started else data.removeprefix(BOM)
        is_started = True
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join((*pieces, data[:end]))
            pieces, size = [], 0
        pieces.append(data[end:])
        size += len(data) - end
        if size > MAX_LINE_BYTES:
            raise _long_line_error(where, pieces[0])
    if size:
        yield b"".join(pieces)


def _long_line_error(where: str, start: bytes) -> LogError:
    problem = f"{where} has a line of more than {MAX_LINE_BYTES >> 20} MB"
    if b"\r" in start:
        return LogError(f"{problem}: its lines end with a carriage return alone. {CR_ADVICE}")
    return LogError(f"{problem}. Is it a text file with one session per line?")


# ---- archives


class Archive(ABC):
    """A zip or tar file whose members are listed once.

    An open archive is reused for the next member: the directory of a zip file is read once, and
    reading the members of a compressed tar file in order takes one pass.
    """

    def __init__(self, path: Location) -> None:
        self._path = path
        self._idle: list[tuple[Any, IO[bytes]]] = []  # each is used by one reader at a time
        weakref.finalize(self, _close_archives, self._idle)
        with self._take() as archive:
            self.names = self._list(archive)

    @contextmanager
    def open(self, member: str) -> Iterator[IO[bytes]]:
        """The bytes of a member."""
        with self._take() as archive:
            try:
                stream = self._open_member(archive, member)
            except DAMAGE as error:
                raise zipfile.BadZipFile(str(error)) from error
            with stream:
                yield stream

    @contextmanager
    def _take(self) -> Iterator[Any]:
        archive, file = self._idle.pop() if self._idle else self._open()
        try:
            yield archive
        except BaseException:
            archive.close()
            file.close()
            raise
        self._idle.append((archive, file))

    def _open(self) -> tuple[Any, IO[bytes]]:
        path = as_path(self._path)
        if not path.is_file():  # a device may be endless, and a pipe cannot seek
            raise LogError(f"{path} is not a file. An archive is read from a plain file.")
        file = path.open("rb")
        try:
            return self._open_archive(file), file
        except BaseException:
            file.close()
            raise

    @abstractmethod
    def _open_archive(self, file: IO[bytes]) -> Any: ...

    @abstractmethod
    def _list(self, archive: Any) -> list[str]: ...

    @abstractmethod
    def _open_member(self, archive: Any, member: str) -> IO[bytes]: ...


class ZipArchive(Archive):
    """A zip file."""

    def _open_archive(self, file: IO[bytes]) -> zipfile.ZipFile:
        return zipfile.ZipFile(file)

    def _list(self, archive: zipfile.ZipFile) -> list[str]:
        return [name for name in archive.namelist() if not name.endswith("/")]

    def _open_member(self, archive: zipfile.ZipFile, member: str) -> IO[bytes]:
        return archive.open(member)


class TarArchive(Archive):
    """A tar file, perhaps compressed."""

    def _open_archive(self, file: IO[bytes]) -> tarfile.TarFile:
        return tarfile.open(fileobj=file)

    def _list(self, archive: tarfile.TarFile) -> list[str]:
        members = [item for item in archive if item.isfile()]
        self._members = {item.name: item for item in members}
        return [item.name for item in members]

    def _open_member(self, archive: tarfile.TarFile, member: str) -> IO[bytes]:
        return cast(IO[bytes], archive.extractfile(self._members[member]))


def _close_archives(idle: list[tuple[Any, IO[bytes]]]) -> None:
    for archive, file in idle:
        archive.close()
        file.close()


def open_archive(path: Location) -> Archive | None:
    """Open an archive; None if the name does not have the suffix of an archive."""
    name = as_path(path).name.lower()
    if name.endswith(".zip"):
        return ZipArchive(path)
    return TarArchive(path) if name.endswith((".tar", ".tar.gz", ".tgz")) else None


def _list_archive(path: Location, where: str) -> Archive | None:
    try:
        return open_archive(path)
    except (*READ_ERRORS, *DAMAGE) as error:
        raise LogError(
            f"{where} is not a valid archive: {error}. Write or copy it again."
        ) from error


def _visible_members(members: list[str], where: str) -> list[str]:
    repeated_names = [member for member, times in Counter(members).items() if times > 1]
    if repeated_names:
        raise LogError(
            f"{where} holds {min(repeated_names)} twice, so it is not clear which one to read. "
            "Unpack it and give the files."
        )
    if not all(Path(member).name for member in members):
        raise LogError(f"{where} holds a file without a name. Unpack it and give the files.")
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

    The file may have JSON lines already, be one JSON array of objects, or have two columns with a
    tab between them: the name of an index and an object.
    """
    head = file.head.removeprefix(BOM)
    if _starts_array(head):
        return JsonArrayFile(file.path, file.where, file.member, file.archive)
    if INDEX_NAME.match(head):
        return IndexedJsonFile(file.path, file.where, file.member, file.archive)
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
                text += self._read_text(len(text))
        self._check_end(text[1:])

    def _read_text(self, pending: int = 0) -> str:
        """Read at least as much as is pending, so that a long value is parsed only a few times."""
        data = self._stream.read(max(self._size, pending))
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
    # Parsing fails if the rest of the value is not read yet, or if it is broken.
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
    """Whether a file starts with an array of objects, rather than with a line that is a list."""
    first, _, more = head.lstrip().partition(b"\n")
    return ARRAY_START.match(head) is not None and not (more.strip() and _is_json(first))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
