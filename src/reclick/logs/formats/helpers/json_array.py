"""Read a file that is one JSON array as if it had one value a line, a block at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, cast

from reclick.errors import LogError
from reclick.logs.files.archive import LogFile
from reclick.logs.files.blocks import BOM

START = re.compile(rb"\s*\[\s*\{")
GAP = re.compile(r"[\s,]*")
LONGEST = 16 << 20  # characters of a value: more are read in vain when it never ends
SCANNER = json.JSONDecoder()


def as_lines(file: LogFile) -> LogFile:
    """The file; if it is one JSON array of objects, with each on a line of its own."""
    return (
        ArrayFile(file.path, file.where, file.member)
        if _is_array(file.head.removeprefix(BOM))
        else file
    )


class ArrayFile(LogFile):
    """A file that is one JSON array. Its lines are the values of the array, and have their numbers there."""

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The values, a line each."""
        with super().open() as stream:
            yield cast(IO[bytes], Values(stream, self.where))


class Values:
    r"""The values of an array in a stream of bytes.

    >>> import io
    >>> Values(io.BytesIO(b'[{"a": 1},\n {"a":\n 2}]'), "log.json").read(100)
    b'{"a": 1}\n{"a":  2}\n'
    """

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self._stream, self._where, self._size = stream, where, 0
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._blocks = self._unrolled()
        self._given = 0

    def read(self, size: int) -> bytes:
        """Whole lines, of about so many bytes; none at the end."""
        self._size = size
        return next(self._blocks, b"")

    def _unrolled(self) -> Iterator[bytes]:
        text = self._more()
        while "[" not in text:
            text += self._more()
        text = text.partition("[")[2]
        while not text.startswith("]"):
            values, text = _split(text)
            self._given += len(values)
            if values:
                yield "".join(values).encode()
            elif len(text) > LONGEST:
                raise self._error("not sound JSON")
            if not text.startswith("]"):
                text += self._more()
        self._check_end(text[1:])

    def _more(self) -> str:
        data = self._stream.read(self._size)
        if not data:
            raise self._error("not sound JSON, or cut short")
        return self._decoded(data)

    def _decoded(self, data: bytes) -> str:
        try:
            return self._decoder.decode(data)
        except UnicodeDecodeError as error:
            raise self._error("not UTF-8") from error

    def _check_end(self, text: str) -> None:
        while not text.strip():
            data = self._stream.read(self._size)
            if not data:
                return
            text = self._decoded(data)
        raise self._error(
            "goes on where it ends", f"Write one object a line: jq -c '.[]' {self._where}"
        )

    def _error(self, what: str, do: str = "Write or copy it again.") -> LogError:
        return LogError(
            f"{self._where} is one JSON array and {what}, after record {self._given} of it. {do}"
        )


def _split(text: str) -> tuple[list[str], str]:
    """The values that are whole for certain, as lines, and the text after them."""
    values, place = [], _after_gap(text, 0)
    with suppress(
        ValueError, RecursionError
    ):  # the rest of the value is not read yet, or it is broken
        while place < len(text) and text[place] != "]":
            end = SCANNER.raw_decode(text, place)[1]
            after = _after_gap(text, end)
            if after == len(text):
                break
            values.append(text[place:end].replace("\n", " ") + "\n")
            place = after
    return values, text[place:]


def _after_gap(text: str, place: int) -> int:
    return cast(re.Match[str], GAP.match(text, place)).end()


def _is_array(head: bytes) -> bool:
    """Whether a file starts as an array of objects, and not as lines of which the first is a list."""
    first, _, more = head.lstrip().partition(b"\n")
    return START.match(head) is not None and not (more.strip() and _is_json(first))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
