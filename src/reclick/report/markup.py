"""HTML and SVG elements as text. What is not markup already is escaped where it is put in: queries and ads come from strangers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "br", "hr"})
LEAVES = frozenset({"path", "rect", "line", "circle"})  # of SVG, closed in one go
UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
)  # control characters and half characters, which no page may hold


class Html(str):
    """Text that is markup already. Any other text is escaped by `element`."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """An element; `class_` is class, `aria_label` is aria-label, and an attribute of None is left out.

    >>> element("td", "5 < 6", class_="value")
    '<td class="value">5 &lt; 6</td>'
    """
    opening = name + "".join(
        f' {_attribute(key)}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{opening}>")
    if name in LEAVES and not children:
        return Html(f"<{opening}/>")
    return Html(f"<{opening}>{join(children)}</{name}>")


def join(parts: Iterable[str], between: str = "") -> Html:
    """Put parts one after the other, escaping those that are not markup."""
    return Html(between.join(part if isinstance(part, Html) else safe(part) for part in parts))


def safe(text: str) -> Html:
    """Escape a text; characters that cannot be shown become a replacement character.

    >>> safe("<script>")
    '&lt;script&gt;'
    """
    return Html(escape(UNSEEN.sub("\ufffd", text)))


def foreign(text: str) -> Html:
    """A text from a log, which may run from right to left without turning what stands beside it."""
    return element("bdi", text)


def slug(text: str) -> str:
    """A name that can be an anchor.

    >>> slug("sequence_accuracy@2")
    'sequence-accuracy-2'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def paragraph(*children: str, class_: str | None = None) -> Html:
    """A paragraph, or nothing when there is nothing to say."""
    return element("p", *children, class_=class_) if any(children) else Html("")


def scrolling(table: Html, label: str) -> Html:
    """A table that scrolls inside its own box where the screen is narrower, by hand or by keyboard."""
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex="0")


def data_table(
    caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]], class_: str = "plain"
) -> Html:
    """A plain table: the first cell of each row is its head."""
    head = element("tr", *(element("th", text, scope="col") for text in heads))
    body = (
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
        for first, *cells in rows
    )
    return scrolling(
        element(
            "table",
            element("caption", caption, class_="hidden"),
            element("thead", head),
            element("tbody", *body),
            class_=class_,
        ),
        caption,
    )


def figure(title: str, drawing: Html, table: Html, *, note: str = "", unit: str = "") -> Html:
    """A drawing with its caption above it and its numbers folded below."""
    texts = [
        element("span", text, class_=kind)
        for text, kind in ((note, "said"), (unit, "unit"))
        if text
    ]
    caption = element(
        "figcaption",
        element("strong", foreign(title)),
        *(part for text in texts for part in (" ", text)),
    )
    summary = element("summary", "Numbers", element("span", f" of: {title}", class_="hidden"))
    return element("figure", caption, drawing, element("details", summary, table))


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return safe(value) if isinstance(value, str) else compact(value)


def compact(number: float) -> str:
    """A coordinate in few characters.

    >>> compact(12.04), compact(-0.04)
    ('12', '0')
    """
    text = f"{number:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
