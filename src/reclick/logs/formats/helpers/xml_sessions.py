"""Read pages from session XML: a <session> of <interaction>s with a query, results and clicks.

One record at a time is in memory. DTDs and entities are not read, and nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from itertools import chain, pairwise
from typing import NamedTuple
from xml.parsers import expat

from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import abbreviate
from reclick.logs.formats.base import ReadReport, SessionRecord
from reclick.logs.validation.reasons import (
    CLICK_NOT_SHOWN,
    CLICK_WITHOUT_PAGE,
    NO_ADS,
    NO_QUERY,
    NOT_READABLE,
    NULL_AD,
)

UNTIMED_CLICKS_NOTE = "clicks without a time, left in the log's order"
LATER_PAGE_NOTE = "a later page of results, kept as a page of its own"
GAP_NOTE = "a gap in the ranks, closed"
RANK_AND_ID_NOTE = "a click's rank and id name two results, the rank was used"
NO_RESULTS_NOTE = "a query without results"

DAY_SECONDS = 24 * 60 * 60
TIME_NAMES = ("starttime", "timestamp", "time")
CLICKED_ID_TAGS = ("docno", "docid")  # that a click may have besides the rank

CHUNK_BYTES = 1 << 16
MAX_RECORD_BYTES = 4 << 20  # in memory, a record of small elements takes about fifty times as much
MAX_TAG_BYTES = 4 << 20  # of one tag or comment, which the parser keeps in memory
MAX_DEPTH = 100
MAX_NAMES = 10_000  # of tags and attributes, which the parser keeps in memory
TRUNCATED = "the XML ends too early"
OUTER_TAG = b"<x>"  # replaces the elements around a record in the middle of a file
UTF_16_STARTS = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<")

_CODES = expat.errors.codes
ENCODING_ERRORS = {
    _CODES[expat.errors.XML_ERROR_UNKNOWN_ENCODING],
    _CODES[expat.errors.XML_ERROR_INCORRECT_ENCODING],
}
END_ERRORS = {
    _CODES[expat.errors.XML_ERROR_NO_ELEMENTS],
    _CODES[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
}
# After a break: the end tags of elements whose start tags were not parsed.
FOLLOWING_ERRORS = {
    _CODES[expat.errors.XML_ERROR_NO_ELEMENTS],
    _CODES[expat.errors.XML_ERROR_TAG_MISMATCH],
}


@dataclass(frozen=True, slots=True)
class XmlLayout:
    """The differences between formats of session XML."""

    query: str  # the element that holds the query
    ads: tuple[str, ...]  # elements that may have the id of a result; the first with text is used
    may_be_empty: bool = False  # whether a query without results is part of the format
    # element of a session or a result to skip -> its note
    skipped: Mapping[str, str] | None = None


@dataclass(slots=True)
class XmlNode:
    """An element of a record: its attributes, and its text and elements in order."""

    tag: str
    attributes: dict[str, str]
    line: int  # of its tag, from 1
    content: list[str | XmlNode]

    def children(self, tag: str) -> list[XmlNode]:
        """The elements of that name directly in it."""
        return [item for item in self.content if isinstance(item, XmlNode) and item.tag == tag]

    @property
    def text(self) -> str:
        """All text in it, trimmed.

        >>> XmlNode("title", {}, 1, [" red ", XmlNode("b", {}, 1, ["shoes"]), " "]).text
        'red shoes'
        """
        return "".join(self._texts()).strip()

    def value(self, *tags: str) -> str:
        """The text of the first of these elements with text; empty if there is none."""
        for tag in tags:
            for item in self.content:
                if isinstance(item, XmlNode) and item.tag == tag:
                    if text := item.text:
                        return text
                    break  # only the first element of each name counts
        return ""

    def _texts(self) -> list[str]:
        return [item if isinstance(item, str) else "".join(item._texts()) for item in self.content]


class ShownResult(NamedTuple):
    """A result of a page."""

    rank: int
    ad: str
    node: XmlNode


class BadPageError(Exception):
    """A page that breaks the rules: the reason, the line, and what it holds."""

    def __init__(self, reason: str, line: int, got: str) -> None:
        super().__init__(reason, line, got)
        self.reason, self.line, self.got = reason, line, got


def read_pages(file: LogFile, report: ReadReport, layout: XmlLayout) -> Iterator[SessionRecord]:
    """Yield the pages of a file, in order; one session is in memory at a time."""
    for session in read_xml_records(file, "session", report, layout.skipped or ()):
        _note_skipped(session, report, layout)
        for interaction in session.children("interaction"):
            try:
                results = _parse_results(interaction, layout)
            except BadPageError as bad:
                report.add_bad_row(bad.reason, file.where, bad.line, bad.got)
                continue
            if results:
                yield _build_page(session, interaction, results, file, report, layout)
            else:
                report.add_note(NO_RESULTS_NOTE)


# ---- one page


def _parse_results(interaction: XmlNode, layout: XmlLayout) -> list[ShownResult]:
    """The results by rank; empty only if the format allows it."""
    if not interaction.value(layout.query):
        got = f"an <interaction> without <{layout.query}>"
        raise BadPageError(NO_QUERY, interaction.line, got)
    nodes = (
        node for results in interaction.children("results") for node in results.children("result")
    )
    results = sorted((_parse_result(node, layout) for node in nodes), key=lambda each: each.rank)
    if not results and _list_clicks(interaction):
        got = "an <interaction> with clicks and without results"
        raise BadPageError(CLICK_WITHOUT_PAGE, interaction.line, got)
    if not results and not layout.may_be_empty:
        raise BadPageError(NO_ADS, interaction.line, "an <interaction> without results")
    for above, below in pairwise(results):
        if above.rank == below.rank:
            raise BadPageError(NOT_READABLE, below.node.line, f"two results of rank {below.rank}")
    return results


def _parse_result(node: XmlNode, layout: XmlLayout) -> ShownResult:
    rank_text = node.attributes.get("rank", "")
    rank = _parse_rank(rank_text)
    if rank is None:
        got = f"a <result> of rank {abbreviate(rank_text)}"
        raise BadPageError(NOT_READABLE, node.line, got)
    ad = node.value(*layout.ads)
    if not ad:
        tags = " or ".join(f"<{tag}>" for tag in layout.ads)
        raise BadPageError(NULL_AD, node.line, f"a <result> without {tags}")
    return ShownResult(rank, ad, node)


def _build_page(
    session: XmlNode,
    interaction: XmlNode,
    results: list[ShownResult],
    file: LogFile,
    report: ReadReport,
    layout: XmlLayout,
) -> SessionRecord:
    for result in results:
        _note_skipped(result.node, report, layout)
        if result.ad not in report.ad_texts:
            _add_text(result, report)
    first, last = results[0].rank, results[-1].rank
    report.add_note(LATER_PAGE_NOTE, first > 1)
    report.add_note(GAP_NOTE, last - first >= len(results))
    clicks = _sort_clicks(interaction, report)
    positions = [_find_position(click, results, file, report, layout) for click in clicks]
    numbers = (session.attributes.get("num"), interaction.attributes.get("num"))
    user = session.attributes.get("userid", "NA")
    return SessionRecord(
        query=interaction.value(layout.query),
        ads=[result.ad for result in results],
        clicks=[position for position in positions if position],
        session_id=".".join(filter(None, numbers)) or None,
        user=None if user in {"NA", ""} else user,
    )


def _add_text(result: ShownResult, report: ReadReport) -> None:
    title, snippet, url = (result.node.value(tag) for tag in ("title", "snippet", "url"))
    if title or snippet or url:
        # The logs hold HTML in XML: &amp;amp;
        report.add_ad_text(result.ad, unescape(title), unescape(snippet), url)


def _find_position(
    click: XmlNode,
    results: list[ShownResult],
    file: LogFile,
    report: ReadReport,
    layout: XmlLayout,
) -> int:
    """The position of a click, from its rank, or else its id; 0 if there is none."""
    clicked_id, rank_text = click.value(*CLICKED_ID_TAGS), click.value("rank")
    rank = _parse_rank(rank_text)
    by_rank, by_id = 0, []
    for position, result in enumerate(results, start=1):
        if result.rank == rank:
            by_rank = position
        if clicked_id and clicked_id in {result.node.value(tag) for tag in layout.ads}:
            by_id.append(position)
    if not by_rank and not by_id:
        readable = rank is not None or (clicked_id and not rank_text)
        reason = CLICK_NOT_SHOWN if readable else NOT_READABLE
        got = f"a click on rank {abbreviate(rank_text)} of {len(results)} results"
        report.add_bad_row(reason, file.where, click.line, got)
        return 0
    report.add_note(RANK_AND_ID_NOTE, bool(by_rank and by_id and by_rank not in by_id))
    return by_rank or by_id[0]


def _sort_clicks(interaction: XmlNode, report: ReadReport) -> list[XmlNode]:
    clicks = _list_clicks(interaction)
    start = _parse_seconds(interaction) or 0.0
    times = [_seconds_after(start, _parse_seconds(click)) for click in clicks]
    if len(clicks) > 1 and None in times:
        report.add_note(UNTIMED_CLICKS_NOTE)
        return clicks
    # Sorting is stable: clicks of equal times keep their order.
    order = sorted(range(len(clicks)), key=lambda index: times[index] or 0.0)
    return [clicks[index] for index in order]


def _list_clicks(interaction: XmlNode) -> list[XmlNode]:
    groups = interaction.children("clicked")
    return [click for group in groups for click in group.children("click")]


def _parse_seconds(node: XmlNode) -> float | None:
    """The start in seconds: 10:22:46.73 or a number, in an attribute or an element."""
    attributes = (node.attributes.get(name) for name in TIME_NAMES)
    text = next(filter(None, attributes), "") or node.value(*TIME_NAMES)
    try:
        seconds = 0.0
        for part in text.split(":"):
            seconds = 60 * seconds + float(part)
    except ValueError:
        return None
    return seconds if abs(seconds) < float("inf") else None


def _seconds_after(start: float, seconds: float | None) -> float | None:
    """The seconds since the page was shown; the clock of a session may pass midnight."""
    if seconds is None:
        return None
    elapsed = seconds - start
    return elapsed + DAY_SECONDS * (-DAY_SECONDS < elapsed < -DAY_SECONDS / 2)


def _parse_rank(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _note_skipped(node: XmlNode, report: ReadReport, layout: XmlLayout) -> None:
    for tag, note in (layout.skipped or {}).items():
        report.add_note(note, len(node.children(tag)))


# ---- XML records


def read_xml_records(
    file: LogFile, tag: str, report: ReadReport, skipped: Container[str] = ()
) -> Iterator[XmlNode]:
    """Yield the elements called `tag`, in the file's order, without the content of `skipped` ones.

    A record that is incomplete, ill-formed or too large is a bad row, and reading continues with
    the next one. Faults that hide further records raise a LogError: a DOCTYPE with declarations, an
    encoding that cannot be read, a comment without an end.
    """
    reader = _XmlRecordReader(tag, file.where, skipped)
    for chunk in chain(file.chunks(CHUNK_BYTES, report.advance), [b""]):
        reader.feed(chunk)
        yield from reader.records
        reader.records.clear()
        for line, got in reader.problems:
            report.add_bad_row(NOT_READABLE, file.where, line, got)
        reader.problems.clear()


class _BrokenError(Exception):
    """The XML is broken: at a byte of the input of the parser, in a line, with a problem.

    An error that only follows from an earlier one is not a bad row.
    """

    def __init__(self, byte: int, line: int, problem: str, *, follows: bool = False) -> None:
        super().__init__(byte, line, problem)
        self.byte, self.line, self.problem, self.follows = byte, line, problem, follows


class _XmlRecordReader:
    """Reads records with a parser; after broken XML, starts a new parser at the next record."""

    def __init__(self, tag: str, where: str, skipped: Container[str]) -> None:
        self.records: list[XmlNode] = []  # complete ones
        self.problems: list[tuple[int, str]] = []  # (line, description)
        self._tag, self._where, self._skipped = tag, where, skipped
        self._start = re.compile(b"<" + re.escape(tag.encode()) + rb"[\s/>]")
        self._own_end = re.compile(b"(</)?" + re.escape(tag.encode()) + rb"\s*>")
        self._parser = self._new_parser(None)
        self._lost = b""  # the end of the skipped bytes, in which a tag may begin
        self._is_lost = False  # whether the start of the next record is searched for
        self._num_starts = 0  # of records in the bytes that this parser was fed
        self._overlap = b""
        self._pending = b""  # fed to the parser, but not parsed yet
        self._head = self._chunk = b""
        self._lines_before = 0  # of the chunk

    def feed(self, chunk: bytes) -> None:
        """Read some bytes; an empty chunk ends the file."""
        self._head = self._head or chunk[:4]
        self._lines_before += self._chunk.count(b"\n")
        self._chunk = chunk
        self._count_starts(chunk)
        is_end, data = not chunk, chunk
        while True:
            if self._is_lost:
                data = self._find_record(data)
                if self._is_lost:
                    return
            try:
                self._parser.feed(data, is_end=is_end)
            except _BrokenError as error:
                data = self._restart(error, self._pending + data, is_end=is_end)
                if is_end:
                    return
            else:
                data = self._pending + data
                self._pending = data[len(data) - self._parser.num_pending :]
                return

    def _count_starts(self, chunk: bytes) -> None:
        data = self._overlap + chunk
        self._num_starts += len(self._start.findall(data))
        self._overlap = data[len(data) - len(self._tag) - 1 :]  # too short for a start by itself

    def _restart(self, error: _BrokenError, data: bytes, *, is_end: bool) -> bytes:
        """Report broken XML, and return the bytes after it, which may have the next record."""
        old = self._parser
        first = max(error.byte - (old.num_bytes - len(data)), 0)
        # Whether it is the end tag of a record whose start was not parsed
        is_own_end = self._own_end.match(data, first) is not None
        if is_own_end or not error.follows:
            where = f" inside the <{self._tag}> of line {old.record_line:,}"
            self.problems.append((error.line, error.problem + where * bool(old.record_line)))
        if is_end:
            self._check_end(error)
            return b""
        if self._head[:2] in UTF_16_STARTS:
            raise LogError(
                f"{self._where} line {error.line:,}: {error.problem}. What follows in UTF-16 "
                "cannot be read. Correct the line, or write the file again as UTF-8."
            )
        if old.is_second and old.num_records == 0:
            first = max(first, 1)  # the record that the parser began with is broken
        self._is_lost, self._lost, self._pending = True, b"", b""
        self._parser = self._new_parser(old.encoding)
        num_passed = max(len(self._chunk) - len(data) + first, 0)
        self._parser.lines_before = self._lines_before + self._chunk.count(b"\n", 0, num_passed)
        self._num_starts, self._overlap = 0, b""
        self._count_starts(data[first:])
        return data[first:]

    def _find_record(self, data: bytes) -> bytes:
        """The bytes from the next record on; empty if it is not found yet."""
        data = self._lost + data
        match = self._start.search(data)
        end = match.start() if match else max(len(data) - len(self._tag) - 1, 0)
        self._parser.lines_before += data.count(b"\n", 0, end)
        self._lost = data[end:]
        if match is None:
            return b""
        self._is_lost = False
        self._parser.begin()
        return self._lost

    def _check_end(self, error: _BrokenError) -> None:
        """Raise if the end of a file hides records, in a comment or CDATA that is not closed."""
        num_lost = self._num_starts - self._parser.num_starts + bool(self._parser.record_line)
        if num_lost > 1:  # one is reported as a bad row
            raise LogError(
                f"{self._where} ends in a comment, a tag or CDATA that is not closed and hides "
                f"{num_lost:,} of its <{self._tag}>s, from line {error.line:,} on. Close it."
            )

    def _new_parser(self, encoding: str | None) -> _XmlRecordParser:
        parser = _XmlRecordParser(self._tag, self._where, self._skipped, encoding)
        parser.records, parser.problems = self.records, self.problems
        return parser


class _XmlRecordParser:
    """An expat parser and its current record."""

    def __init__(self, tag: str, where: str, skipped: Container[str], encoding: str | None) -> None:
        self.tag, self.where, self.skipped, self.encoding = tag, where, skipped, encoding
        self.records: list[XmlNode] = []  # complete ones
        self.problems: list[tuple[int, str]] = []
        self.lines_before = 0  # of the first line it is fed
        self.num_bytes = 0  # fed so far
        self.num_starts = self.num_records = 0  # of records: started and complete
        self.is_second = False  # whether it begins at a record, in the middle of the file
        # from the record to the current element; empty outside of a record
        self._open: list[XmlNode] = []
        self._skip_depth = 0  # of an element whose content is skipped; 0 outside of one
        self._depth = self._record_depth = 0  # the depth now, and of the record; 0 outside of one
        self._record_line = self._record_byte = 0  # where the record begins
        self._names: dict[str, str] = {}
        self._parser = expat.ParserCreate(encoding, intern=self._names)
        self._parser.buffer_text = True
        self._parser.XmlDeclHandler = self._on_declaration
        self._parser.StartDoctypeDeclHandler = self._on_doctype
        self._parser.StartElementHandler = self._on_start
        self._parser.EndElementHandler = self._on_end
        self._parser.CharacterDataHandler = self._on_text

    @property
    def record_line(self) -> int:
        """The line of the current record; 0 outside of records."""
        return self._record_line if self._record_depth else 0

    @property
    def num_pending(self) -> int:
        """The bytes from the last tag, text or comment on."""
        return self.num_bytes - max(int(self._parser.CurrentByteIndex), 0)

    def begin(self) -> None:
        """Prepare to parse from a record in the middle of a file."""
        self.is_second = True
        self._parser.Parse(OUTER_TAG, False)
        self.num_bytes += len(OUTER_TAG)

    def feed(self, data: bytes, *, is_end: bool) -> None:
        """Parse some bytes; raises a _BrokenError for broken XML."""
        self.num_bytes += len(data)
        try:
            self._parser.Parse(data, is_end)
        except (LogError, _BrokenError):
            raise
        except expat.ExpatError as error:
            if error.code in ENCODING_ERRORS:
                raise self._encoding_error(error) from error
            line = error.lineno + self.lines_before
            problem = _describe_error(error, has_column=error.lineno > 1 or not self.is_second)
            follows = self.is_second and not self._record_depth and error.code in FOLLOWING_ERRORS
            raise _BrokenError(
                self._parser.ErrorByteIndex, line, problem, follows=follows
            ) from error
        except (LookupError, ValueError) as error:  # from Python, of an encoding unknown to expat
            raise self._encoding_error(error) from error
        self._drop_large_record()
        if self.num_pending > MAX_TAG_BYTES:
            raise self._size_error(f"a tag or comment of more than {MAX_TAG_BYTES >> 20} MB")
        if len(self._names) > MAX_NAMES:
            raise self._size_error(f"more than {MAX_NAMES:,} names of tags and attributes")

    @property
    def _line(self) -> int:
        return int(self._parser.CurrentLineNumber) + self.lines_before

    def _break(self, problem: str) -> _BrokenError:
        return _BrokenError(self._parser.CurrentByteIndex, self._line, problem)

    def _size_error(self, problem: str) -> LogError:
        return LogError(
            f"{self.where} line {self._line:,}: {problem}. What follows cannot be read: mend the "
            "file, or write it again."
        )

    def _encoding_error(self, error: Exception) -> LogError:
        return LogError(
            f"{self.where} cannot be read in the encoding that its first line declares ({error}). "
            "Write it again as UTF-8."
        )

    def _on_declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        self.encoding = self.encoding or encoding

    def _on_doctype(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        # Called before the content of the DOCTYPE is read. Without declarations, no entity can be
        # expanded or fetched.
        if internal or system or public:
            raise LogError(
                f"{self.where} line {self._line:,} has a DOCTYPE that declares entities or names a "
                "DTD. Reclick reads neither: they can make a small file huge or fetch others. "
                f"Remove <!DOCTYPE {name} ...> from the file."
            )

    def _on_start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._break(f"elements more than {MAX_DEPTH} deep")
        if tag == self.tag:
            if self._record_depth:
                raise self._break(f"a <{tag}>")
            self.num_starts += 1
        if not self._open:
            if self._record_depth or tag != self.tag:
                return
            self._record_depth, self._record_line = self._depth, self._line
            self._record_byte = self._parser.CurrentByteIndex
        elif self._skip_depth:
            return
        elif tag in self.skipped:
            self._skip_depth = self._depth
        node = XmlNode(tag, attributes, self._line, [])
        if self._open:
            self._open[-1].content.append(node)
        self._open.append(node)

    def _on_text(self, text: str) -> None:
        if self._open and not self._skip_depth:
            self._open[-1].content.append(text)

    def _on_end(self, _tag: str) -> None:
        depth = self._depth
        self._depth = depth - 1
        if self._skip_depth:
            if self._skip_depth < depth:
                return
            self._skip_depth = 0
        if self._open:
            node = self._open.pop()
            if not self._open:
                self.records.append(node)
        if depth == self._record_depth:
            self._record_depth = 0
            self.num_records += 1

    def _drop_large_record(self) -> None:
        size = self._parser.CurrentByteIndex - self._record_byte
        if self._open and size > MAX_RECORD_BYTES:
            self._open.clear()  # and nothing is collected until the record ends
            self._skip_depth = 0
            problem = f"a <{self.tag}> of more than {MAX_RECORD_BYTES >> 20} MB"
            self.problems.append((self._record_line, problem))


def _describe_error(error: expat.ExpatError, *, has_column: bool) -> str:
    if error.code in END_ERRORS:
        return TRUNCATED
    column = f" at column {error.offset + 1:,}" if has_column else ""
    return f"not XML: {expat.ErrorString(error.code)}{column}"
