"""Files, wherever they are: local paths and URIs such as s3://bucket/week2/ or gs://bucket/model.

`as_path` turns what a user gave into a `Path`, or for a URI into a `RemotePath`, which answers the
same questions. Arrow's file systems come first, fsspec's where Arrow has none. Files appear whole
or not at all: a local file is renamed into place, an object is put in one step.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob as local_glob
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname
from uuid import uuid4

from reclick.errors import StoreError, explain_write_errors

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # a Windows drive has one letter
# Where an upload replaces an object in one step; elsewhere it goes to a sibling that is renamed.
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})
COPY_BYTES = 8 << 20


class FileStatus(NamedTuple):
    """What `os.stat_result` says of a file, as far as it is used here."""

    st_size: int
    st_mtime: float | None


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder of a remote file system: the part of `pathlib.Path` that Reclick uses.

    >>> folder = RemotePath("s3://bucket/logs/?region=eu-west-1")
    >>> str(folder / "week2.parquet"), (folder / "week2.parquet").suffix, folder.parent.name
    ('s3://bucket/logs/week2.parquet?region=eu-west-1', '.parquet', 'bucket')
    """

    scheme: str
    authority: str
    path: PurePosixPath
    query: str

    def __init__(self, uri: str) -> None:
        scheme, rest = uri.split("://", 1)
        rest, _, query = rest.partition("?") if "=" in rest.partition("?")[2] else (rest, "", "")
        authority, _, path = rest.partition("/")
        values = (scheme.lower(), authority, PurePosixPath("/" + path.strip("/")), query)
        for name, value in zip(("scheme", "authority", "path", "query"), values, strict=True):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.authority}{str(self.path).rstrip('/')}{query}"

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return self._at(self.path / name)

    def _at(self, path: PurePosixPath) -> RemotePath:
        query = f"?{self.query}" if self.query else ""
        return RemotePath(f"{self.scheme}://{self.authority}{path}{query}")

    # names

    @property
    def name(self) -> str:
        """The last part of the path, or the bucket."""
        return self.path.name or self.authority

    @property
    def suffix(self) -> str:
        """The ending of the name."""
        return self.path.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the path."""
        return self.path.parts

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in."""
        return self._at(self.path.parent)

    def with_name(self, name: str) -> RemotePath:
        """Another file of the same folder."""
        return self._at(self.path.with_name(name))

    def with_suffix(self, suffix: str) -> RemotePath:
        """The same name with another ending."""
        return self._at(self.path.with_suffix(suffix))

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        """The path below a folder."""
        return self.path.relative_to(folder.path)

    def resolve(self) -> RemotePath:
        """The same path: remote file systems have no links."""
        return self

    # questions

    def exists(self) -> bool:
        """Whether there is a file, or a folder with something in it."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether it is a file."""
        return bool(self._info().is_file)

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        from pyarrow.fs import FileType

        return bool(self._info().type == FileType.Directory)

    def stat(self) -> FileStatus:
        """Size and time of the last change."""
        info = self._info()
        if not info.is_file:
            raise FileNotFoundError(f"{self} is not a file")
        return FileStatus(int(info.size), info.mtime and info.mtime.timestamp())

    def iterdir(self) -> Iterator[RemotePath]:
        """What a folder holds."""
        return self._list(recursive=False)

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Files below a folder, at any depth, by their names."""
        below = self._list(recursive=True)
        return (path for path in below if fnmatch.fnmatchcase(path.name, pattern))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Files and folders whose path below this one matches."""
        wanted = _compile_glob(pattern)
        recursive = "/" in pattern
        below = self._list(recursive=recursive)
        return (path for path in below if wanted.fullmatch(str(path.relative_to(self))))

    def _list(self, *, recursive: bool) -> Iterator[RemotePath]:
        from pyarrow.fs import FileSelector

        filesystem, here = self._resolve()
        selector = FileSelector(here, recursive=recursive, allow_not_found=True)
        for info in filesystem.get_file_info(selector):
            below = info.path.removeprefix(here).strip("/")
            if below:
                yield self / below

    # reading and writing

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The bytes, to be read at any place."""
        if mode != "rb":
            raise ValueError(f"mode: got {mode!r}, expected 'rb'; write with atomic_file")
        filesystem, path = self._resolve()
        return filesystem.open_input_file(path)  # type: ignore[no-any-return]

    def read_bytes(self) -> bytes:
        """All the bytes."""
        with self.open() as file:
            return file.read()

    def read_text(self, encoding: str = "utf-8") -> str:
        """All the text."""
        return self.read_bytes().decode(encoding)

    def upload(self, source: Path) -> None:
        """Put a local file here, whole or not at all."""
        filesystem, path = self._resolve()
        if self.scheme in OBJECT_STORES:
            _copy(source, filesystem, path)
            return
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        sibling = temporary_sibling(self)
        try:
            _copy(source, filesystem, sibling._resolve()[1])
            filesystem.move(sibling._resolve()[1], path)
        except BaseException:
            sibling.unlink(missing_ok=True)
            raise

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        filesystem, path = self._resolve()
        try:
            filesystem.delete_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Nothing: a folder comes with its first file."""

    def _info(self) -> Any:
        filesystem, path = self._resolve()
        return filesystem.get_file_info(path)

    def _resolve(self) -> tuple[Any, str]:
        filesystem, root = _connect(self.scheme, self.authority, self.query)
        return filesystem, f"{root.rstrip('/')}{self.path}" if root else str(self.path)[1:]


AnyPath: TypeAlias = Path | RemotePath
Location: TypeAlias = str | os.PathLike[str] | RemotePath


def as_path(location: Location) -> AnyPath:
    """A local path, or a remote one where the location is a URI.

    >>> as_path("logs/week2.parquet"), as_path("file:///tmp/a%20log.csv")
    (PosixPath('logs/week2.parquet'), PosixPath('/tmp/a log.csv'))
    >>> as_path("s3://bucket/week2.parquet").name
    'week2.parquet'
    """
    if isinstance(location, RemotePath):
        return location
    text = os.fspath(location)
    if not is_uri(text):
        return Path(text)
    if text.lower().startswith("file://"):
        parts = urlsplit(text)
        return Path(url2pathname(unquote(parts.path)) if os.name == "nt" else unquote(parts.path))
    return RemotePath(text)


def is_uri(location: object) -> bool:
    """Whether a location names a file system in front of "://".

    >>> is_uri("gs://bucket/log.csv"), is_uri("C:/log.csv"), is_uri("log.csv")
    (True, False, False)
    """
    return isinstance(location, RemotePath) or (
        isinstance(location, str) and URI.match(location) is not None
    )


def is_location(value: object) -> bool:
    """Whether a value is a path or a URI."""
    return isinstance(value, str | os.PathLike | RemotePath)


def arrow_input(location: Location) -> Any:
    """What Arrow's readers open: a local path as it is, a remote file open for reading."""
    path = as_path(location)
    return str(path) if isinstance(path, Path) else path.open()


def match_glob(pattern: Location) -> list[AnyPath]:
    """The files and folders that a pattern matches, sorted; ** stands for any folders."""
    path = as_path(pattern)
    if isinstance(path, Path):
        matches = local_glob.glob(str(path), recursive=True)  # noqa: PTH207, Path.glob takes no absolute pattern
        return [Path(match) for match in sorted(matches)]
    fixed = PurePosixPath("/")
    for part in path.path.parts[1:]:
        if local_glob.has_magic(part):
            break
        fixed /= part
    folder = path._at(fixed)
    return sorted(folder.glob(str(path.path.relative_to(fixed))))


def _compile_glob(pattern: str) -> re.Pattern[str]:
    parts = []
    for part in PurePosixPath(pattern).parts:
        if part == "**":
            parts.append("(?:[^/]+/)*")
        else:
            within = fnmatch.translate(part).replace(".*", "[^/]*")
            parts.append(
                within.removeprefix("(?s:").removesuffix(")\\Z").removesuffix(")\\z") + "/"
            )
    return re.compile("".join(parts).removesuffix("/"))


@cache
def _connect(scheme: str, authority: str, query: str) -> tuple[Any, str]:
    """The file system of a URI, and where in it the authority stands."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    uri = f"{scheme}://{authority}" + (f"?{query}" if query else "")
    try:
        filesystem, root = FileSystem.from_uri(uri)
    except (ArrowException, ValueError, OSError) as error:
        try:
            from fsspec.core import url_to_fs

            found, root = url_to_fs(f"{scheme}://{authority}")
        except (ImportError, ValueError) as other:
            raise StoreError(
                f"{uri} cannot be opened ({error}; fsspec: {other}). Check the address; for a file "
                "system that Arrow does not know, install fsspec and its package for it."
            ) from other
        filesystem = PyFileSystem(FSSpecHandler(found))
    return filesystem, root


def _copy(source: Path, filesystem: Any, path: str) -> None:
    # A Python stream that is closed after Ctrl-C would commit half an object; this cannot be.
    from pyarrow.fs import LocalFileSystem, copy_files

    copy_files(
        str(source),
        path,
        source_filesystem=LocalFileSystem(),
        destination_filesystem=filesystem,
        chunk_size=COPY_BYTES,
        use_threads=False,
    )


# ---- writing


def write_files(folder: Location, writers: dict[str, Callable[[Path], object]]) -> list[AnyPath]:
    """Write every file to a temporary place, then put all of them where they belong."""
    targets = [as_path(folder) / name for name in writers]
    with (
        explain_write_errors(str(folder), "Every file there is whole."),
        contextlib.ExitStack() as stack,
    ):
        staged = [stack.enter_context(stage_file(target)) for target in targets]
        for path, write in zip(staged, writers.values(), strict=True):
            write(path)
        for path, target in zip(staged, targets, strict=True):
            put_file(path, target)
    return targets


@contextlib.contextmanager
def atomic_file(target: Location) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end it is put in place, after an error it goes."""
    place = as_path(target)
    with explain_write_errors(str(target)), stage_file(place) as temporary:
        yield temporary
        put_file(temporary, place)


@contextlib.contextmanager
def stage_file(target: AnyPath) -> Iterator[Path]:
    """A local path for the content of a file: a hidden sibling, or a temporary file to upload."""
    if isinstance(target, RemotePath):
        with tempfile.TemporaryDirectory(prefix="reclick-") as folder:
            yield Path(folder) / target.name
        return
    sibling = temporary_sibling(target)
    with created_folder(target.parent):
        try:
            yield sibling
        finally:
            sibling.unlink(missing_ok=True)


def put_file(temporary: Path, target: AnyPath) -> None:
    """Put a local file in its place, in one step."""
    if isinstance(target, RemotePath):
        target.upload(temporary)
    else:
        temporary.replace(target)


@contextlib.contextmanager
def created_folder(folder: Path) -> Iterator[None]:
    """Create a folder if needed; after an error no new one is left, unless something is in it."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def temporary_sibling(target: AnyPath) -> Any:
    """A hidden name in the same folder that nobody else uses."""
    return target.with_name(f".{target.name}.{uuid4().hex}")
