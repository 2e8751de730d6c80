"""Read the records of an XML file one at a time: no DTD, no entities, nothing fetched, and one record in memory."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from itertools import chain
from xml.parsers import expat

from reclick.errors import LogError
from reclick.logs.files.archive import LogFile
from reclick.logs.formats.base import Found
from reclick.logs.summary import NOT_READABLE

CHUNK = 1 << 16
MAX_RECORD = 4 << 20  # bytes; in memory a record of small elements takes about fifty times as much
MAX_TAG = 4 << 20  # bytes of one tag or comment, which the parser must hold whole
MAX_DEPTH = 100
MAX_NAMES = 10_000  # of tags and attributes, which the parser keeps for good
ENDS = "the XML ends too early"

_CODES = expat.errors.codes
_ENCODING_ERRORS = {
    _CODES[expat.errors.XML_ERROR_UNKNOWN_ENCODING],
    _CODES[expat.errors.XML_ERROR_INCORRECT_ENCODING],
}
_END_ERRORS = {
    _CODES[expat.errors.XML_ERROR_NO_ELEMENTS],
    _CODES[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
}


@dataclass(slots=True)
class Node:
    """An element of a record: its attributes, and its text and elements in their order."""

    tag: str
    attributes: dict[str, str]
    line: int  # where its tag stands, from 1
    content: list[str | Node]

    def all(self, tag: str) -> list[Node]:
        """The elements of that name directly in it."""
        return [item for item in self.content if isinstance(item, Node) and item.tag == tag]

    def find(self, tag: str) -> Node | None:
        """The first element of that name directly in it."""
        for item in self.content:
            if isinstance(item, Node) and item.tag == tag:
                return item
        return None

    @property
    def text(self) -> str:
        """All text in it, without the blanks around it.

        >>> Node("title", {}, 1, [" red ", Node("b", {}, 1, ["shoes"]), " "]).text
        'red shoes'
        """
        return "".join(self._pieces()).strip()

    def value(self, *tags: str) -> str:
        """The text of the first of these elements that has any; empty when none has."""
        for tag in tags:
            node = self.find(tag)
            if node is not None and (text := node.text):
                return text
        return ""

    def _pieces(self) -> list[str]:
        return [item if isinstance(item, str) else "".join(item._pieces()) for item in self.content]


def read_records(
    file: LogFile, tag: str, found: Found, leave: Container[str] = ()
) -> Iterator[Node]:
    """Yield the elements called `tag`, in the file's order; what is in the elements called as in `leave` is left out.

    XML that is cut short or ill-formed is read up to the break, which is a bad record. One record that is too large is a bad record too, and
    passed over. A DOCTYPE with declarations, and an encoding that cannot be read, are a LogError.
    """
    records = _Records(tag, file.where, leave)
    for chunk in chain(_chunks(file, found.advance), [b""]):
        goes_on = records.feed(chunk)
        yield from records.done
        records.done.clear()
        for line, got in records.faults:
            found.bad(NOT_READABLE, file.where, line, got)
        records.faults.clear()
        if not goes_on:
            return


class _TooDeepError(Exception):
    """Raised inside the parser, to stop it."""


class _Records:
    """The parser and the record it is in."""

    def __init__(self, tag: str, where: str, leave: Container[str]) -> None:
        self.tag, self.where, self.leave = tag, where, leave
        self.done: list[Node] = []
        self.faults: list[tuple[int, str]] = []
        self._open: list[
            Node
        ] = []  # from the record to the element in work; empty when nothing is kept
        self._left = 0  # the depth of an element whose content is left out; 0 outside of one
        self._depth = self._began = 0  # the depth now, and of the record; 0 outside of one
        self._line = self._byte = 0  # where the record begins
        self._fed = 0
        self._names: dict[str, str] = {}
        self._parser = expat.ParserCreate(intern=self._names)
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text

    def feed(self, chunk: bytes) -> bool:
        """Parse some bytes, none at the end of the file; False when the rest cannot be read."""
        self._fed += len(chunk)
        try:
            self._parser.Parse(chunk, not chunk)
        except LogError:
            raise
        except _TooDeepError:
            return self._broken(
                self._parser.CurrentLineNumber, f"elements more than {MAX_DEPTH} deep"
            )
        except expat.ExpatError as error:
            if error.code in _ENCODING_ERRORS:
                raise self._wrong_encoding(error) from error
            return self._broken(error.lineno, _tell(error))
        except (
            LookupError,
            ValueError,
        ) as error:  # what Python says of an encoding that expat does not know
            raise self._wrong_encoding(error) from error
        self._pass_over_large()
        if self._fed - self._parser.CurrentByteIndex > MAX_TAG:
            return self._broken(
                self._parser.CurrentLineNumber, f"a tag or comment of more than {MAX_TAG >> 20} MB"
            )
        if len(self._names) > MAX_NAMES:
            return self._broken(
                self._parser.CurrentLineNumber,
                f"more than {MAX_NAMES:,} names of tags and attributes",
            )
        return True

    def _broken(self, line: int, what: str) -> bool:
        inside = f" inside the <{self.tag}> of line {self._line:,}" if self._began else ""
        rest = "" if what == ENDS else "; what follows in the file is not read"
        self.faults.append((line, f"{what}{inside}{rest}"))
        return False

    def _wrong_encoding(self, error: Exception) -> LogError:
        return LogError(
            f"{self.where} cannot be read in the encoding that its first line declares ({error}). Write it again as UTF-8."
        )

    def _doctype(self, name: str, system: str | None, public: str | None, declares: int) -> None:
        # Called before anything in the DOCTYPE is read. Without declarations there is no entity that could be expanded or fetched.
        if declares or system or public:
            raise LogError(
                f"{self.where} line {self._parser.CurrentLineNumber:,} has a DOCTYPE that declares entities or names a DTD. Reclick reads neither: "
                f"they can blow up a small file or fetch others. Remove <!DOCTYPE {name} ...> from the file."
            )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _TooDeepError
        if not self._open:
            if self._began or tag != self.tag:
                return
            self._began, self._line, self._byte = (
                self._depth,
                self._parser.CurrentLineNumber,
                self._parser.CurrentByteIndex,
            )
        elif self._left:
            return
        elif tag in self.leave:
            self._left = self._depth
        node = Node(tag, attributes, self._parser.CurrentLineNumber, [])
        if self._open:
            self._open[-1].content.append(node)
        self._open.append(node)

    def _text(self, text: str) -> None:
        if self._open and not self._left:
            self._open[-1].content.append(text)

    def _end(self, _tag: str) -> None:
        depth = self._depth
        self._depth = depth - 1
        if self._left:
            if self._left < depth:
                return
            self._left = 0
        if self._open:
            node = self._open.pop()
            if not self._open:
                self.done.append(node)
        if depth == self._began:
            self._began = 0

    def _pass_over_large(self) -> None:
        if self._open and self._parser.CurrentByteIndex - self._byte > MAX_RECORD:
            self._open.clear()  # and nothing more is kept until the record ends
            self._left = 0
            self.faults.append((self._line, f"a <{self.tag}> of more than {MAX_RECORD >> 20} MB"))


def _tell(error: expat.ExpatError) -> str:
    return (
        ENDS
        if error.code in _END_ERRORS
        else f"not XML: {expat.ErrorString(error.code)} at column {error.offset + 1:,}"
    )


def _chunks(file: LogFile, advance: Callable[[int], object]) -> Iterator[bytes]:
    # Not lines: XML may be one line of any length.
    try:
        with file.open() as stream:
            while data := stream.read(CHUNK):
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
            f"{file.where} cannot be read to the end: {error}. Write or copy it again."
        ) from error
