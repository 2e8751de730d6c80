"""Files, wherever they are: local paths and URIs such as s3://bucket/week2/ or gs://bucket/model.

`as_path` turns a location into a `Path`, or for a URI into a `RemotePath`, which has the same
methods. Writing is in reclick.runtime.outputs; connections to stores and their errors are in
reclick.runtime.object_store.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob as local_glob
import io
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, TypeAlias
from urllib.parse import unquote
from urllib.request import url2pathname
from uuid import uuid4

from reclick.errors import SettingError, StoreError, mask_secrets
from reclick.runtime.object_store import (
    HTTP,
    OBJECT_STORES,
    connect,
    explain_remote_errors,
)

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # a Windows drive has one letter
# "?" may also be part of a pattern: a query has a name, and no folder after it.
QUERY = re.compile(r"\?([A-Za-z][\w.-]*=[^/]*)$")
HTTP_QUERY = re.compile(r"\?(.*=.*)$")
COPY_BYTES = 8 << 20
LONGEST_NAME, LONGEST_PATH = 255, 4000  # bytes
READ_BYTES = 4 << 20  # of a request, if a reader asks for a few bytes at a time


class FileStatus(NamedTuple):
    """Size and time of a file, named as in `os.stat_result`."""

    st_size: int
    st_mtime: float | None


@dataclass(frozen=True, order=True, repr=False)
class RemotePath:
    """A file or folder of a remote file system: the part of `pathlib.Path` that Reclick uses.

    Its text is for messages and has no secrets, so it cannot be opened: pass the path itself.

    >>> folder = RemotePath.from_uri("s3://KEY:SECRET@bucket/logs/?region=eu-west-1")
    >>> str(folder / "week2.parquet"), (folder / "week2.parquet").suffix, folder.parent.name
    ('s3://***@bucket/logs/week2.parquet?region=eu-west-1', '.parquet', 'bucket')
    """

    scheme: str
    authority: str
    path: PurePosixPath
    query: str
    listed: FileStatus | None = field(default=None, compare=False)  # of a file that was listed

    @classmethod
    def from_uri(cls, uri: str) -> RemotePath:
        """Parse a URI."""
        scheme, rest = uri.split("://", 1)
        scheme = scheme.lower()
        query = (HTTP_QUERY if scheme in HTTP else QUERY).search(rest)
        authority, _, path = rest[: query.start() if query else None].partition("/")
        place = PurePosixPath("/" + path.strip("/"))
        return cls(scheme, authority, place, query[1] if query else "")

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        path = str(self.path).rstrip("/")
        return mask_secrets(f"{self.scheme}://{self.authority}{path}{query}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return self._at(self.path / name)

    @property
    def name(self) -> str:
        """The last part of the path, or the bucket."""
        return self.path.name or self.authority.rpartition("@")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name."""
        return self.path.suffix

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in."""
        return self._at(self.path.parent)

    def with_name(self, name: str) -> RemotePath:
        """Return the path of another file in the same folder."""
        return self._at(self.path.with_name(name))

    def with_suffix(self, suffix: str) -> RemotePath:
        """Return the path with another ending."""
        return self._at(self.path.with_suffix(suffix))

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        """Return the path relative to a folder."""
        return self.path.relative_to(folder.path)

    def resolve(self) -> RemotePath:
        """Return the path itself: remote file systems have no links."""
        return self

    def exists(self) -> bool:
        """Whether there is a file, or a folder with something in it."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether this is a file."""
        return self.listed is not None or bool(self._info().is_file)

    def is_dir(self) -> bool:
        """Whether this is a folder."""
        return self.listed is None and bool(self._info().type.name == "Directory")

    def stat(self) -> FileStatus:
        """Return size and time of the last change, from the listing if there is one."""
        if self.listed is not None:
            return self.listed
        info = self._info()
        if not info.is_file:
            raise FileNotFoundError(f"{self} is not a file")
        return _get_status(info)

    def state(self) -> FileStatus | None:
        """Return size and time as the store reports them now; None if there is no such file."""
        info = self._info()
        return _get_status(info) if info.is_file else None

    def describe_missing(self) -> str:
        """Return the message that the path, or its bucket, does not exist."""
        if self.scheme in OBJECT_STORES and self.path.name and not self._has_bucket():
            bucket = self._at(PurePosixPath("/"))
            return f"{self} does not exist: there is no bucket {bucket}. Check its name."
        if self.scheme in HTTP:
            return f"{self} does not exist, or its server cannot be reached."
        return f"{self} does not exist."

    def _has_bucket(self) -> bool:
        return self._at(PurePosixPath("/")).is_dir() or self.scheme == "memory"

    def refuse_writing(self) -> None:
        """Raise if nothing can be written here."""
        if self.scheme in HTTP:
            raise StoreError(
                f"{self} cannot be written: {self.scheme} has no way to put a whole file in its "
                "place. Give a local path, or one of a store such as s3://bucket/folder."
            )
        if self.scheme in OBJECT_STORES and not self._has_bucket():
            bucket = self._at(PurePosixPath("/"))
            raise StoreError(
                f"{self} cannot be written: there is no bucket {bucket}. Check its name, or "
                "create it first."
            )

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the files and folders in a folder."""
        return (path for path, _ in self._list(recursive=False))

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield files at any depth of a folder whose names match."""
        below = self._list(recursive=True)
        return (path for path, _ in below if fnmatch.fnmatchcase(path.name, pattern))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield files and folders whose path relative to this one matches."""
        folders = PurePosixPath(pattern).parts
        files = (*folders, "*") if folders[-1] == "**" else folders
        if self.is_dir():
            if _matches((), folders):
                yield self
            for path, info in self._list(recursive=len(files) > 1):
                if _matches(path.relative_to(self).parts, files if info.is_file else folders):
                    yield path

    def _list(self, *, recursive: bool) -> Iterator[tuple[RemotePath, Any]]:
        from pyarrow.fs import FileSelector

        filesystem, here = self._resolve()
        selector = FileSelector(here, recursive=recursive, allow_not_found=True)
        with explain_remote_errors(self):
            infos = filesystem.get_file_info(selector)
        for info in infos:
            below = info.path.removeprefix(here).strip("/")
            if below:
                status = _get_status(info) if info.is_file else None
                yield replace(self / below, listed=status), info

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open for reading bytes at any position; small reads share one large request."""
        if mode != "rb":
            raise ValueError(f"mode: got {mode!r}, expected 'rb'; write with atomic_file")
        return io.BufferedReader(self.open_arrow(), READ_BYTES)

    def open_arrow(self) -> Any:
        """Open as a file of Arrow, for its readers, which request as much as they need."""
        filesystem, path = self._resolve()
        with explain_remote_errors(self):
            return filesystem.open_input_file(path)

    def read_bytes(self) -> bytes:
        """Read all bytes."""
        with self.open_arrow() as file, explain_remote_errors(self):
            return file.read()  # type: ignore[no-any-return]

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read all text."""
        return self.read_bytes().decode(encoding)

    def upload(self, source: Path) -> None:
        """Upload a local file to this path, atomically."""
        filesystem, path = self._resolve()
        with explain_remote_errors(self, "write"):
            if self.scheme in OBJECT_STORES:
                _copy(source, filesystem, path)
                return
            filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            sibling = self.with_name(f".{self.name}.{uuid4().hex}")
            try:
                _copy(source, filesystem, sibling._resolve()[1])
                filesystem.move(sibling._resolve()[1], path)
            except BaseException:
                sibling.unlink(missing_ok=True)
                raise

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        filesystem, path = self._resolve()
        with (
            contextlib.suppress(*[FileNotFoundError] * missing_ok),
            explain_remote_errors(self, "remove"),
        ):
            filesystem.delete_file(path)

    def remove_folder(self) -> None:
        """Remove a folder and everything in it."""
        filesystem, path = self._resolve()
        with contextlib.suppress(FileNotFoundError), explain_remote_errors(self, "remove"):
            filesystem.delete_dir(path)

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Do nothing: a folder exists with its first file."""

    def _at(self, path: PurePosixPath) -> RemotePath:
        return replace(self, path=path, listed=None)

    def _info(self) -> Any:
        filesystem, path = self._resolve()
        with explain_remote_errors(self):
            return filesystem.get_file_info(path)

    def _resolve(self) -> tuple[Any, str]:
        http = self.scheme in HTTP  # there the query is of the file, elsewhere of the file system
        filesystem, root = connect(self.scheme, self.authority, "" if http else self.query)
        path = f"{root.rstrip('/')}{self.path}" if root else str(self.path)[1:]
        return filesystem, f"{path}?{self.query}" if http and self.query else path


def _get_status(info: Any) -> FileStatus:
    """Return size and time from Arrow's description of a file; −1 is an unknown size."""
    return FileStatus(
        -1 if info.size is None else int(info.size), info.mtime and info.mtime.timestamp()
    )


AnyPath: TypeAlias = Path | RemotePath
Location: TypeAlias = str | os.PathLike[str] | RemotePath


def as_path(location: Location) -> AnyPath:
    """Return the path of a location: a `RemotePath` if it is a URI.

    >>> as_path("logs/week2.parquet"), as_path("file:///tmp/a%20log.csv")
    (PosixPath('logs/week2.parquet'), PosixPath('/tmp/a log.csv'))
    >>> as_path("s3://bucket/week2.parquet").name
    'week2.parquet'
    """
    if isinstance(location, RemotePath):
        return location
    if not isinstance(location, str | os.PathLike):
        raise SettingError("path", location, "a path or a URI")
    text: str | bytes = os.fspath(location)
    if isinstance(text, bytes) or "\0" in text:
        raise SettingError("path", location, "a path or a URI, as text without a zero byte")
    if not is_uri(text):
        _check_name(text)
        return Path(text)
    if text.lower().startswith("file://"):
        host, slash, rest = text[len("file://") :].partition("/")
        if host.lower() not in {"", "localhost"} or not slash:
            raise StoreError(
                f"{text} names a host before the path: only files of this computer can be opened. "
                "Give the whole path after file:// (file:///folder/log.csv), or a path alone."
            )
        return Path(url2pathname(slash + rest) if os.name == "nt" else unquote(slash + rest))
    return RemotePath.from_uri(text)


def _check_name(text: str) -> None:
    """Raise if no file system can have a file of this name."""
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        raise SettingError("path", text, "a path: it has half of a surrogate pair") from None
    longest = max(map(len, encoded.split(b"/")))
    if longest > LONGEST_NAME or len(encoded) > LONGEST_PATH:
        expected = f"a path of at most {LONGEST_PATH:,} bytes, and {LONGEST_NAME} in each name"
        raise SettingError("path", text, expected)


def resolve(location: Location) -> str:
    """Return the path of a location with its links resolved, except links that loop."""
    path = as_path(location)
    return os.path.realpath(path) if isinstance(path, Path) else str(path)


def is_uri(location: object) -> bool:
    """Whether a location names a file system in front of "://".

    >>> is_uri("gs://bucket/log.csv"), is_uri("C:/log.csv"), is_uri("log.csv")
    (True, False, False)
    """
    text = location if isinstance(location, str) else ""
    return isinstance(location, RemotePath) or URI.match(text) is not None


def is_location(value: object) -> bool:
    """Whether a value is a path or a URI."""
    return isinstance(value, str | os.PathLike | RemotePath)


def arrow_input(location: Location) -> Any:
    """Return what Arrow's readers can open: a local path, or a remote file open for reading.

    Arrow accepts only paths that are text, so a file with another name is mapped into memory.
    """
    path = as_path(location)
    if not isinstance(path, Path):
        return path.open_arrow()
    if is_text(path):
        return str(path)
    from pyarrow import BufferReader, py_buffer

    with path.open("rb") as file:
        is_empty = os.fstat(file.fileno()).st_size == 0
        data = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return BufferReader(py_buffer(data))


def is_text(path: Path | str) -> bool:
    """Whether a path or a name is text: on Linux a file name may have any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def describe_missing(path: AnyPath) -> str:
    """Return the message that a path, or the bucket of a remote path, does not exist."""
    return path.describe_missing() if isinstance(path, RemotePath) else f"{path} does not exist."


def is_glob(path: AnyPath) -> bool:
    """Whether a path has wildcards; those in the query or user of a URI do not count."""
    return local_glob.has_magic(str(path.path if isinstance(path, RemotePath) else path))


def match_glob(pattern: Location) -> list[AnyPath]:
    """Return the files and folders that a pattern matches, sorted; ** matches any folders."""
    path = as_path(pattern)
    if isinstance(path, Path):
        matches = local_glob.glob(str(path), recursive=True)  # noqa: PTH207, Path.glob takes no absolute pattern
        return [Path(match) for match in sorted(matches) if os.path.lexists(match)]
    fixed = takewhile(lambda part: not local_glob.has_magic(part), path.path.parts)
    folder = replace(path, path=PurePosixPath(*fixed))
    return sorted(folder.glob(str(path.relative_to(folder))))


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path matches a pattern; as in Python's glob, * does not match hidden names."""
    if not pattern:
        return not parts
    first, rest = pattern[0], pattern[1:]
    if first == "**" and _matches(parts, rest):
        return True
    if not parts or (parts[0].startswith(".") and not first.startswith(".")):
        return False
    if first == "**":
        return _matches(parts[1:], pattern)
    return fnmatch.fnmatchcase(parts[0], first) and _matches(parts[1:], rest)


def _copy(source: Path, filesystem: Any, path: str) -> None:
    # Closing a Python stream after Ctrl-C would commit half an object; copy_files does not.
    from pyarrow.fs import LocalFileSystem, copy_files

    local = LocalFileSystem()
    copy_files(str(source), path, local, filesystem, chunk_size=COPY_BYTES, use_threads=False)
