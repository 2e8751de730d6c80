"""Read a text file, plain or gzipped, in blocks of whole lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from reclick.errors import LogError

BLOCK = 16 << 20
MAX_LINE = 256 << 20
BOM = b"\xef\xbb\xbf"


def read_blocks(path: str, where: str, *, block: int | None = None) -> Iterator[bytes]:
    """Yield the file's bytes in blocks of whole lines; the last one ends with the file."""
    try:
        with _open(path) as file:
            yield from whole_lines(file, where, block or BLOCK)
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(
            f"{where} cannot be read to the end: {error}. Write or copy it again."
        ) from error


def whole_lines(file: IO[bytes], where: str, block: int) -> Iterator[bytes]:
    """Yield the bytes of an open file in blocks of whole lines, without the mark of UTF-8 at its start."""
    rest, started = b"", False
    while data := file.read(block):
        data = rest + data if started else data.removeprefix(BOM)
        started = True
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield data[:end]
        _check_length(rest, where)
    if rest:
        yield rest


def _open(path: str) -> IO[bytes]:
    return (
        cast(IO[bytes], gzip.open(path, "rb"))
        if path.lower().endswith(".gz")
        else Path(path).open("rb")
    )


def _check_length(rest: bytes, where: str) -> None:
    if len(rest) > MAX_LINE:
        raise LogError(
            f"{where} has a line of more than {MAX_LINE >> 20} MB. Is it a text file with one session per line?"
        )
