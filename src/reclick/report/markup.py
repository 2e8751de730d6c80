"""HTML and SVG elements as text, and the sections of the page.

Text that is not markup is escaped when it is inserted, because queries and ads are untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from reclick.errors import UsageError
from reclick.runtime.filesystem import AnyPath, Location, as_path

HTML_SUFFIXES = (".html", ".htm", "")  # a name without an ending promises nothing else
VOID_ELEMENTS = frozenset({"meta", "br", "hr"})
SELF_CLOSING = frozenset({"path", "rect", "line", "circle"})  # in SVG
# control characters and surrogates, which a page may not contain
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


# A page may load nothing, run nothing and send nothing.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'"
)


class Html(str):
    """Text that is already markup. `element` escapes any other text."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """An element; `class_` is class, `aria_label` is aria-label; attributes of None are left out.

    >>> element("td", "5 < 6", class_="value")
    '<td class="value">5 &lt; 6</td>'
    """
    opening = name + "".join(
        f' {_attribute_name(key)}="{_attribute_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID_ELEMENTS:
        return Html(f"<{opening}>")
    if name in SELF_CLOSING and not children:
        return Html(f"<{opening}/>")
    return Html(f"<{opening}>{join(children)}</{name}>")


def join(parts: Iterable[str], separator: str = "") -> Html:
    """Concatenate parts, escaping those that are not markup."""
    safe_parts = (part if isinstance(part, Html) else escape_text(part) for part in parts)
    return Html(separator.join(safe_parts))


def escape_text(text: str) -> Html:
    """Escape a text; invalid characters become the replacement character.

    >>> escape_text("<script>")
    '&lt;script&gt;'
    """
    return Html(escape(UNPRINTABLE.sub("\ufffd", text)))


def isolate(text: str) -> Html:
    """A text from a log, isolated so that right-to-left text does not affect its surroundings."""
    return element("bdi", text)


def slug(text: str) -> str:
    """Turn a name into an anchor.

    >>> slug("sequence_accuracy@2")
    'sequence-accuracy-2'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def format_coordinate(number: float) -> str:
    """A coordinate in few characters.

    >>> format_coordinate(12.04), format_coordinate(-0.04)
    ('12', '0')
    """
    text = f"{number:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _attribute_name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _attribute_value(value: str | float) -> str:
    return escape_text(value) if isinstance(value, str) else format_coordinate(value)


# ---- parts of a page


def paragraph(*children: str, class_: str | None = None) -> Html:
    """A paragraph, or nothing if all children are empty."""
    return element("p", *children, class_=class_) if any(children) else Html("")


def scroll_box(table: Html, label: str) -> Html:
    """A table that scrolls in its own box on a narrow screen, by touch or by keyboard."""
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex="0")


def data_table(
    caption: str, headers: Iterable[str], rows: Iterable[Iterable[str]], class_: str = "plain"
) -> Html:
    """A simple table; the first cell of each row is its header."""
    head = element("tr", *(element("th", text, scope="col") for text in headers))
    body = (
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
        for first, *cells in rows
    )
    parts = (
        element("caption", caption, class_="hidden"),
        element("thead", head),
        element("tbody", *body),
    )
    return scroll_box(element("table", *parts, class_=class_), caption)


def figure(title: str, chart: Html, table: Html, *, finding: str = "", unit: str = "") -> Html:
    """A chart with its caption above it and its table collapsed below it."""
    lines = [
        element("span", text, class_=class_)
        for text, class_ in ((finding, "finding"), (unit, "unit"))
        if text
    ]
    parts = (part for line in lines for part in (" ", line))
    caption = element("figcaption", element("strong", isolate(title)), *parts)
    summary = element("summary", "Numbers", element("span", f" of: {title}", class_="hidden"))
    return element("figure", caption, chart, element("details", summary, table))


@dataclass(frozen=True, slots=True)
class Subsection:
    """A part of a section, with its own heading or directly below that of the section."""

    title: str
    body: Html


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report."""

    title: str
    subsections: tuple[Subsection, ...]

    @property
    def anchor(self) -> str:
        """The anchor of the section, which the table of contents links to."""
        return slug(self.title)

    def html(self) -> Html:
        """The section as markup."""
        heading_id = f"{self.anchor}-heading"
        heading = element("h2", self.title, id=heading_id)
        bodies = (self._subsection_html(subsection) for subsection in self.subsections)
        return element("section", heading, *bodies, id=self.anchor, aria_labelledby=heading_id)

    def contents(self) -> Html:
        """The section's entry in the contents, with an entry for each subsection below it."""
        entries = [
            element("li", _link(self._subsection_anchor(subsection), subsection.title))
            for subsection in self.subsections
            if subsection.title
        ]
        sublist = [element("ol", *entries)] if entries else []
        return element("li", _link(self.anchor, self.title), *sublist)

    def _subsection_html(self, subsection: Subsection) -> Html:
        if not subsection.title:
            return subsection.body
        heading = element("h3", subsection.title, id=self._subsection_anchor(subsection))
        return join([heading, subsection.body])

    def _subsection_anchor(self, subsection: Subsection) -> str:
        return f"{self.anchor}-{slug(subsection.title)}"


def make_section(title: str, subsections: Iterable[Subsection]) -> Section | None:
    """A section of the subsections that are not empty; None if all are."""
    non_empty = tuple(subsection for subsection in subsections if subsection.body)
    return Section(title, non_empty) if non_empty else None


def _link(anchor: str, text: str) -> Html:
    return element("a", text, href=f"#{anchor}")


# ---- the page


def check_html_name(path: Location) -> AnyPath:
    """Return the path of a report; raise if its name is that of another type of file."""
    target = as_path(path)
    if target.suffix.lower() not in HTML_SUFFIXES:
        raise UsageError(
            f"{target}: the report is written as HTML. Give a name that ends in .html."
        )
    return target


def html_page(
    title: str,
    about: str,
    sections: Sequence[Section],
    footer: str,
    *,
    warnings: Sequence[str] = (),
) -> str:
    """A whole page with a table of contents; it loads no scripts, fonts or pictures."""
    main = element("main", *(section.html() for section in sections), id="content")
    header = element(
        "header",
        paragraph("Reclick report", class_="kicker"),
        element("h1", title),
        paragraph(about, class_="about"),
        *(paragraph(text, class_="warning") for text in warnings),
    )
    parts = (header, _contents(sections), main, element("footer", footer))
    skip = element("a", "Skip to the report", class_="skip", href="#content")
    body = element("body", skip, element("div", *parts, class_="frame"))
    return f"<!doctype html>\n{element('html', _head(title), body, lang='en')}\n"


def _head(title: str) -> Html:
    style = files("reclick.report").joinpath("style.css").read_text(encoding="utf-8")
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=CONTENT_SECURITY_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(style)),
    )


def _contents(sections: Sequence[Section]) -> Html:
    label = element("p", "Contents", class_="kicker", id="contents")
    entries = element("ol", *(section.contents() for section in sections))
    return element("nav", label, entries, aria_labelledby="contents")
