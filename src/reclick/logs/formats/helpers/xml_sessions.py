"""Pages from session XML: a <session> of <interaction>s, each with a query, results and clicks.

The XML is read one record at a time: no DTD, no entities, nothing fetched, one record in memory.
"""

from __future__ import annotations

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
MAX_TAG_BYTES = 4 << 20  # of one tag or comment, which the parser holds whole
MAX_DEPTH = 100
MAX_NAMES = 10_000  # of tags and attributes, which the parser never forgets
TRUNCATED = "the XML ends too early"

_CODES = expat.errors.codes
ENCODING_ERRORS = {
    _CODES[expat.errors.XML_ERROR_UNKNOWN_ENCODING],
    _CODES[expat.errors.XML_ERROR_INCORRECT_ENCODING],
}
END_ERRORS = {
    _CODES[expat.errors.XML_ERROR_NO_ELEMENTS],
    _CODES[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
}


@dataclass(frozen=True, slots=True)
class XmlLayout:
    """What differs between the formats written in this way."""

    query: str  # the element that holds the query
    ads: tuple[str, ...]  # elements that may hold the id of a result; the first filled one counts
    may_be_empty: bool = False  # whether a query without results is part of the format
    # element of a session or a result that is skipped -> its note
    skipped: Mapping[str, str] | None = None


@dataclass(slots=True)
class XmlNode:
    """An element of a record: its attributes, and its text and elements in their order."""

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
        """The text of the first of these elements that has any; empty when none has."""
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
    """Yield the pages of a file, in its order; one session is in memory at a time."""
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
    """The results by rank; none only where the format allows it."""
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
    written = node.attributes.get("rank", "")
    rank = _parse_rank(written)
    if rank is None:
        got = f"a <result> of rank {abbreviate(written)}"
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
    """The position of a click, by its rank, else by its id; 0 when there is none."""
    clicked_id, written = click.value(*CLICKED_ID_TAGS), click.value("rank")
    rank = _parse_rank(written)
    by_rank, by_id = 0, []
    for position, result in enumerate(results, start=1):
        if result.rank == rank:
            by_rank = position
        if clicked_id and clicked_id in {result.node.value(tag) for tag in layout.ads}:
            by_id.append(position)
    if not by_rank and not by_id:
        readable = rank is not None or (clicked_id and not written)
        reason = CLICK_NOT_SHOWN if readable else NOT_READABLE
        got = f"a click on rank {abbreviate(written)} of {len(results)} results"
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
    order = sorted(range(len(clicks)), key=lambda index: times[index] or 0.0)  # ties keep theirs
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

    XML that is cut short or ill-formed is read up to the break, which is a bad row. A record that
    is too large is a bad row too, and passed over. A DOCTYPE with declarations, and an encoding
    that cannot be read, are a LogError.
    """
    parser = _XmlRecordParser(tag, file.where, skipped)
    for chunk in chain(file.chunks(CHUNK_BYTES, report.advance), [b""]):
        can_continue = parser.feed(chunk)
        yield from parser.records
        parser.records.clear()
        for line, got in parser.problems:
            report.add_bad_row(NOT_READABLE, file.where, line, got)
        parser.problems.clear()
        if not can_continue:
            return


class _TooDeepError(Exception):
    """Raised inside the parser, to stop it."""


class _XmlRecordParser:
    """The parser and the record it is in."""

    def __init__(self, tag: str, where: str, skipped: Container[str]) -> None:
        self.tag, self.where, self.skipped = tag, where, skipped
        self.records: list[XmlNode] = []  # complete ones
        self.problems: list[tuple[int, str]] = []  # (line, description)
        # from the record to the current element; empty outside of a record
        self._open: list[XmlNode] = []
        self._skip_depth = 0  # of an element whose content is skipped; 0 outside of one
        self._depth = self._record_depth = 0  # the depth now, and of the record; 0 outside of one
        self._record_line = self._record_byte = 0  # where the record begins
        self._bytes_fed = 0
        self._names: dict[str, str] = {}
        self._parser = expat.ParserCreate(intern=self._names)
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._on_doctype
        self._parser.StartElementHandler = self._on_start
        self._parser.EndElementHandler = self._on_end
        self._parser.CharacterDataHandler = self._on_text

    def feed(self, chunk: bytes) -> bool:
        """Parse some bytes, none at the end of the file; False when the rest cannot be read."""
        self._bytes_fed += len(chunk)
        try:
            self._parser.Parse(chunk, not chunk)
        except LogError:
            raise
        except _TooDeepError:
            return self._stop(self._line, f"elements more than {MAX_DEPTH} deep")
        except expat.ExpatError as error:
            if error.code in ENCODING_ERRORS:
                raise self._encoding_error(error) from error
            return self._stop(error.lineno, _describe_error(error))
        except (LookupError, ValueError) as error:  # from Python, of an encoding unknown to expat
            raise self._encoding_error(error) from error
        self._drop_large_record()
        if self._bytes_fed - self._parser.CurrentByteIndex > MAX_TAG_BYTES:
            problem = f"a tag or comment of more than {MAX_TAG_BYTES >> 20} MB"
            return self._stop(self._line, problem)
        if len(self._names) > MAX_NAMES:
            return self._stop(self._line, f"more than {MAX_NAMES:,} names of tags and attributes")
        return True

    @property
    def _line(self) -> int:
        return int(self._parser.CurrentLineNumber)

    def _stop(self, line: int, problem: str) -> bool:
        where = (
            f" inside the <{self.tag}> of line {self._record_line:,}" if self._record_depth else ""
        )
        rest = "" if problem == TRUNCATED else "; what follows in the file is not read"
        self.problems.append((line, f"{problem}{where}{rest}"))
        return False

    def _encoding_error(self, error: Exception) -> LogError:
        return LogError(
            f"{self.where} cannot be read in the encoding that its first line declares ({error}). "
            "Write it again as UTF-8."
        )

    def _on_doctype(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        # Called before anything in the DOCTYPE is read. Without declarations there is no entity
        # that could be expanded or fetched.
        if internal or system or public:
            raise LogError(
                f"{self.where} line {self._line:,} has a DOCTYPE that declares entities or names a "
                "DTD. Reclick reads neither: they can make a small file huge or fetch others. "
                f"Remove <!DOCTYPE {name} ...> from the file."
            )

    def _on_start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _TooDeepError
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

    def _drop_large_record(self) -> None:
        size = self._parser.CurrentByteIndex - self._record_byte
        if self._open and size > MAX_RECORD_BYTES:
            self._open.clear()  # and nothing is collected until the record ends
            self._skip_depth = 0
            problem = f"a <{self.tag}> of more than {MAX_RECORD_BYTES >> 20} MB"
            self.problems.append((self._record_line, problem))


def _describe_error(error: expat.ExpatError) -> str:
    if error.code in END_ERRORS:
        return TRUNCATED
    return f"not XML: {expat.ErrorString(error.code)} at column {error.offset + 1:,}"
