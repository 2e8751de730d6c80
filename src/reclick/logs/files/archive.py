"""The files of a log in another format: plain, gzipped, or inside a zip or tar archive, which is read where it is and never unpacked."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, cast

import pyarrow.parquet as pq
from pyarrow import ArrowException

from reclick.errors import LogError
from reclick.logs.files.blocks import BLOCK, whole_lines

HEAD = 1 << 16
Told = Callable[[int], object]


@dataclass(frozen=True)
class LogFile:
    """A file, or a member of an archive."""

    path: str
    where: str  # the short name used in messages
    member: str | None = None

    @property
    def name(self) -> str:
        """The file's own name, without folder and without .gz."""
        return Path(self.member or self.path).name.removesuffix(".gz")

    @property
    def is_parquet(self) -> bool:
        """Whether its name says Parquet."""
        return self.name.lower().endswith((".parquet", ".pq"))

    @cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked; empty when they cannot be read."""
        try:
            with self.open() as stream:
                return stream.read(HEAD)
        except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError):
            return b""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a Parquet file; none for any other, or when it cannot be read."""
        if not self.is_parquet or self.member is not None:
            return ()
        try:
            return tuple(pq.read_schema(self.path).names)
        except (ArrowException, OSError):
            return ()

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The bytes, unpacked while they are read."""
        with _opened(self.path, self.member) as stream:
            if (self.member or self.path).lower().endswith(".gz"):
                with gzip.open(stream) as unpacked:
                    yield cast(IO[bytes], unpacked)
            else:
                yield stream

    def blocks(self, advance: Told = lambda _: None, *, block: int = BLOCK) -> Iterator[bytes]:
        """The bytes in blocks of whole lines; `advance` is told how many."""
        try:
            with self.open() as stream:
                for data in whole_lines(stream, self.where, block):
                    yield data
                    advance(len(data))
        except (
            OSError,
            EOFError,
            zlib.error,
            tarfile.TarError,
            zipfile.BadZipFile,
            RuntimeError,
        ) as error:
            raise LogError(
                f"{self.where} cannot be read to the end: {error}. Write or copy it again."
            ) from error

    def lines(self, advance: Told = lambda _: None) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, with their numbers from 1, without their ends."""
        number = 0
        for block in self.blocks(advance):
            for line in block.removesuffix(b"\n").split(b"\n"):
                number += 1
                if line.strip():
                    yield number, line.removesuffix(b"\r")


def with_members(paths: list[str], names: list[str]) -> list[LogFile]:
    """The files, and in place of an archive the files in it."""
    found = []
    for path, where in zip(paths, names, strict=True):
        members = _members(path, where)
        found += (
            [LogFile(path, where)]
            if members is None
            else [LogFile(path, f"{where}/{member}", member) for member in members]
        )
    return found


@contextmanager
def _opened(path: str, member: str | None) -> Iterator[IO[bytes]]:
    if member is None:
        with Path(path).open("rb") as plain:
            yield plain
    elif path.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            yield stream
    else:
        with tarfile.open(path) as tar, cast(IO[bytes], tar.extractfile(member)) as stream:
            yield stream


def _members(path: str, where: str) -> list[str] | None:
    """The files in an archive, in its order; None when it is none."""
    try:
        if path.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                return _shown(
                    [item.filename for item in archive.infolist() if not item.is_dir()], where
                )
        if path.lower().endswith((".tar", ".tar.gz", ".tgz")):
            with tarfile.open(path) as tar:
                return _shown([item.name for item in tar if item.isfile()], where)
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
        raise LogError(
            f"{where} is not a sound archive: {error}. Write or copy it again."
        ) from error
    return None


def _shown(members: list[str], where: str) -> list[str]:
    twice = (
        sorted({member for member in members if members.count(member) > 1})
        if len(set(members)) < len(members)
        else []
    )
    if twice:
        raise LogError(
            f"{where} holds {twice[0]} twice, so it is not clear which is meant. Unpack it and give the files."
        )
    kept = [
        member
        for member in members
        if not any(
            part.startswith((".", "_")) and part not in {".", ".."} for part in Path(member).parts
        )
    ]
    if not kept:
        raise LogError(f"{where} holds no file to read.")
    return kept
