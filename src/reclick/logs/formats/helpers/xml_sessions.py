"""Pages out of session XML: a <session> of <interaction>s, each with a query, ranked results and the clicks on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from itertools import pairwise
from typing import NamedTuple

from reclick.logs.files.archive import LogFile
from reclick.logs.files.source import short
from reclick.logs.formats.base import Found, Session
from reclick.logs.formats.helpers.xml_records import Node, read_records
from reclick.logs.summary import NOT_READABLE

NOT_SHOWN, NO_PAGE = "click on an ad not shown", "click without a page"
NO_TIME = "clicks without a time, left in the log's order"
LATER_PAGE = "a later page of results, kept as a page of its own"
GAP = "a gap in the ranks, closed"
DISAGREE = "a click's rank and id name two results, the rank was used"
EMPTY = "a query without results"

DAY = 24 * 60 * 60
_TIMES = ("starttime", "timestamp", "time")
_CLICKED = ("docno", "docid")  # what a click may name besides the rank


@dataclass(frozen=True, slots=True)
class Layout:
    """What differs between the formats written in this way."""

    query: str  # the element that holds the query
    ads: tuple[
        str, ...
    ]  # the elements that may hold the id of a result: the first that is filled is taken
    may_be_empty: bool = False  # whether a query without results is part of the format
    asides: Mapping[str, str] | None = (
        None  # element of a session or a result -> the note that it was set aside
    )


class BadPageError(Exception):
    """A page that breaks the rules: the reason, the line, and what was got."""

    def __init__(self, reason: str, line: int, got: str) -> None:
        super().__init__(reason, line, got)
        self.reason, self.line, self.got = reason, line, got


class Result(NamedTuple):
    """A result of a page."""

    rank: int
    ad: str
    node: Node


def read_pages(file: LogFile, found: Found, layout: Layout) -> Iterator[Session]:
    """Yield the pages of a file, in its order; one session is in memory at a time."""
    for session in read_records(file, "session", found, layout.asides or ()):
        _note_asides(session, found, layout)
        for interaction in session.all("interaction"):
            try:
                results = _results(interaction, layout)
            except BadPageError as bad:
                found.bad(bad.reason, file.where, bad.line, bad.got)
                continue
            if results:
                yield _page(session, interaction, results, file, found, layout)
            else:
                found.note(EMPTY)


def _results(interaction: Node, layout: Layout) -> list[Result]:
    """The results by rank; none only where the format allows it."""
    if not interaction.value(layout.query):
        raise BadPageError(
            "no query", interaction.line, f"an <interaction> without <{layout.query}>"
        )
    listed = (node for results in interaction.all("results") for node in results.all("result"))
    results = sorted((_result(node, layout) for node in listed), key=lambda result: result.rank)
    if not results and _clicks(interaction):
        raise BadPageError(
            NO_PAGE, interaction.line, "an <interaction> with clicks and without results"
        )
    if not results and not layout.may_be_empty:
        raise BadPageError("no ads", interaction.line, "an <interaction> without results")
    for above, below in pairwise(results):
        if above.rank == below.rank:
            raise BadPageError(NOT_READABLE, below.node.line, f"two results of rank {below.rank}")
    return results


def _result(node: Node, layout: Layout) -> Result:
    rank = _whole(node.attributes.get("rank", ""))
    if rank is None:
        raise BadPageError(
            NOT_READABLE, node.line, f"a <result> of rank {short(node.attributes.get('rank', ''))}"
        )
    ad = node.value(*layout.ads)
    if not ad:
        raise BadPageError(
            "null ad",
            node.line,
            f"a <result> without {' or '.join(f'<{tag}>' for tag in layout.ads)}",
        )
    return Result(rank, ad, node)


def _page(
    session: Node,
    interaction: Node,
    results: list[Result],
    file: LogFile,
    found: Found,
    layout: Layout,
) -> Session:
    for result in results:
        _note_asides(result.node, found, layout)
        if result.ad not in found.texts:
            _keep_text(result, found)
    first, last = results[0].rank, results[-1].rank
    found.note(LATER_PAGE, first > 1)
    found.note(GAP, last - first >= len(results))
    clicks = _in_time(interaction, found)
    places = [_place(click, results, file, found, layout) for click in clicks]
    number = ".".join(
        filter(None, (session.attributes.get("num"), interaction.attributes.get("num")))
    )
    user = session.attributes.get("userid", "NA")
    return Session(
        query=interaction.value(layout.query),
        ads=[result.ad for result in results],
        clicks=[place for place in places if place],
        session_id=number or None,
        user=None if user in {"NA", ""} else user,
    )


def _keep_text(result: Result, found: Found) -> None:
    title, snippet, url = (result.node.value(tag) for tag in ("title", "snippet", "url"))
    if title or snippet or url:
        found.text(
            result.ad, unescape(title), unescape(snippet), url
        )  # the logs hold HTML in XML: &amp;amp;


def _place(click: Node, results: list[Result], file: LogFile, found: Found, layout: Layout) -> int:
    """The position clicked, by the rank the click names, else by the id; 0 when there is none."""
    named, got = click.value(*_CLICKED), click.value("rank")
    rank = _whole(got)
    place = next((place for place, result in enumerate(results, start=1) if result.rank == rank), 0)
    shows = [
        place
        for place, result in enumerate(results, start=1)
        if named and named in {result.node.value(tag) for tag in layout.ads}
    ]
    if not place and not shows:
        readable = rank is not None or (named and not got)
        found.bad(
            NOT_SHOWN if readable else NOT_READABLE,
            file.where,
            click.line,
            f"a click on rank {short(got)} of {len(results)} results",
        )
        return 0
    found.note(DISAGREE, bool(place and shows and place not in shows))
    return place or shows[0]


def _in_time(interaction: Node, found: Found) -> list[Node]:
    clicks = _clicks(interaction)
    start = _moment(interaction) or 0.0
    times = [_after(start, _moment(click)) for click in clicks]
    if len(clicks) > 1 and None in times:
        found.note(NO_TIME)
        return clicks
    return [
        clicks[index] for index in sorted(range(len(clicks)), key=lambda index: times[index] or 0.0)
    ]  # a tie keeps its order


def _clicks(interaction: Node) -> list[Node]:
    return [click for clicked in interaction.all("clicked") for click in clicked.all("click")]


def _moment(node: Node) -> float | None:
    """When it began, in seconds: written as 10:22:46.73 or as a number, in an attribute or an element."""
    text = next(filter(None, (node.attributes.get(name) for name in _TIMES)), "") or node.value(
        *_TIMES
    )
    try:
        moment = 0.0
        for part in text.split(":"):
            moment = 60 * moment + float(part)
    except ValueError:
        return None
    return moment if abs(moment) < float("inf") else None


def _after(start: float, moment: float | None) -> float | None:
    """The seconds since the page was shown; the clock of a session may pass midnight."""
    return None if moment is None else moment - start + DAY * (-DAY < moment - start < -DAY / 2)


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _note_asides(node: Node, found: Found, layout: Layout) -> None:
    for tag, note in (layout.asides or {}).items():
        found.note(note, len(node.all(tag)))
