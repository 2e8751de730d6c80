"""Elements of charts: scales, ticks, texts that fit, markers.

Every chart is as wide as the screen of a phone, so that text is never scaled down.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from reclick.report.markup import Html, element, format_coordinate, slug

WIDTH = 320
FONT_SIZE = 11.5  # pixels
NARROW_LETTERS = frozenset("ijlt.,:;'|!()[]{} fr-/")


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from low … high to pixels from start … end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        span = self.high - self.low
        return self.start + ((value - self.low) / span if span else 0.5) * (self.end - self.start)


def finite_or_none(*values: float | None) -> list[float] | None:
    """The numbers if all of them are known and finite, else None.

    >>> finite_or_none(0.1, 0.2), finite_or_none(0.1, None), finite_or_none(float("inf"))
    ([0.1, 0.2], None, None)
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return finite if len(finite) == len(values) else None


def round_ticks(low: float, high: float, max_ticks: int = 5) -> list[float]:
    """Round numbers between two ends.

    >>> round_ticks(0.0, 0.34)
    [0.0, 0.1, 0.2, 0.3]
    """
    if not low < high:
        return [low]
    for power in range(math.floor(math.log10((high - low) / max_ticks)), 400):
        for step in (1, 2, 2.5, 5):
            size = step * 10.0**power
            first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
            if last - first < max_ticks:
                return [round(k * size, 12) for k in range(first, last + 1)]
    return [low]


def axis_range(values: Iterable[float], *, margin: float = 0.06) -> tuple[float, float]:
    """The ends of an axis that includes all finite values, with a small margin."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    extra = (high - low) * margin or abs(high) * 0.05 or 0.05
    return low - extra, high + extra


def svg_chart(name: str, title: str, about: str, height: float, *shapes: str) -> Html:
    """A chart with a title and a description for screen readers; its name is unique on the page."""
    key = slug(name)
    texts = (element("title", title, id=f"{key}-title"), element("desc", about, id=f"{key}-about"))
    box = f"0 0 {WIDTH} {format_coordinate(height)}"
    return element(
        "svg",
        *texts,
        *shapes,
        viewBox=box,
        role="img",
        aria_labelledby=f"{key}-title",
        aria_describedby=f"{key}-about",
    )


def svg_text(
    x: float, y: float, content: str, anchor: str | None = None, class_: str | None = None
) -> Html:
    """A text centred vertically at y; it starts at x unless `anchor` is "middle" or "end"."""
    return element("text", content, x=x, y=y + 0.35 * FONT_SIZE, text_anchor=anchor, class_=class_)


def svg_line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    """A straight line."""
    return svg_polyline([(x1, y1), (x2, y2)], class_)


def svg_rect(x: float, y: float, width: float, height: float, class_: str) -> Html:
    """A rectangle."""
    return element("rect", x=x, y=y, width=max(width, 0), height=max(height, 0), class_=class_)


def svg_polyline(points: Iterable[tuple[float, float] | None], class_: str) -> Html:
    """A line through points, with gaps at None."""
    pieces, command = [], "M"
    for point in points:
        if point is None:
            command = "M"
            continue
        pieces.append(f"{command}{format_coordinate(point[0])} {format_coordinate(point[1])}")
        command = "L"
    return element("path", d="".join(pieces), class_=class_)


def svg_whiskers(ends: Iterable[tuple[float, float, float]], class_: str) -> Html:
    """Vertical intervals (x, low, high) in one path."""
    pieces = (
        f"M{format_coordinate(x)} {format_coordinate(low)}V{format_coordinate(high)}"
        for x, low, high in ends
    )
    return element("path", d="".join(pieces), class_=class_)


# Outlines of markers around (0, 0), with similar areas; a model has the same marker in every chart.
MARKERS = (
    "m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",  # circle
    "m-3 -3h6v6h-6z",  # square
    "m0-4.2l4 7h-8z",  # triangle
    "m0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",  # diamond
    "m0 4.2l4-7h-8z",  # inverted triangle
    "m-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",  # plus
    "m-3.8-2l1.8-1.8l2 2l2-2l1.8 1.8l-2 2l2 2l-1.8 1.8l-2-2l-2 2l-1.8-1.8l2-2z",  # cross
    "m-4.6-1.4h9.2v2.8h-9.2z",  # bar
)


def svg_markers(points: Iterable[tuple[float, float]], shape: int, class_: str) -> Html:
    """A marker at every point, all in one path."""
    outline = MARKERS[shape % len(MARKERS)]
    pieces = (f"M{format_coordinate(x)} {format_coordinate(y)}{outline}" for x, y in points)
    return element("path", d="".join(pieces), class_=class_)


# ---- texts that fit


def text_width(content: str, size: float = FONT_SIZE) -> float:
    """An upper estimate of the width of a text in pixels, since fonts differ."""
    return sum(size * _em(character) for character in content)


def truncate(content: str, width: float, size: float = FONT_SIZE) -> str:
    """Cut a text to a width, with an ellipsis at the end.

    >>> truncate("a very long title of an ad", 80)
    'a very long…'
    """
    content = " ".join(content.split())
    if text_width(content, size) <= width:
        return content
    while content and text_width(content + "…", size) > width:
        content = content[:-1]
    return content.rstrip() + "…"


def wrap_name(content: str, width: float) -> tuple[str, ...]:
    """Wrap a name to one line if it fits, else to two.

    The middle of longer names is cut out, because names often differ at their ends.

    >>> wrap_name("MultiClick, normalised", 86), wrap_name("DBN", 86)
    (('MultiClick,', 'normalised'), ('DBN',))
    """
    content = " ".join(content.split())
    breaks = [index for index in range(1, len(content)) if content[index - 1] in " -_/,"]
    if text_width(content) <= width or not breaks:
        return (_cut_middle(content, width),)
    best = min(
        ((content[:index].rstrip(), content[index:].lstrip()) for index in breaks),
        key=lambda lines: max(map(text_width, lines)),
    )
    return tuple(_cut_middle(line, width) for line in best)


def _cut_middle(content: str, width: float) -> str:
    """Cut out the middle of a text so that it fits the width."""
    text, n = content, len(content)
    while n > 0 and text_width(text) > width:
        n -= 1
        end = content[len(content) - n // 2 :].lstrip()
        text = content[: (n + 1) // 2].rstrip() + "…" + end
    return text


def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if unicodedata.combining(character):
        return 0.0
    if character in NARROW_LETTERS:
        return 0.42
    if character in "mwMW@%—" or ord(character) > 0x2E7F:
        return 1.05
    return 0.78 if character.isupper() or not character.isascii() else 0.64
