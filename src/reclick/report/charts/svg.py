"""What drawings are made of: scales, ticks, texts that fit, markers. Every drawing is as wide as a phone, so that text is never scaled down."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from reclick.report.markup import Html, compact, element, slug

WIDTH = 320
TEXT = 11.5  # pixels
NARROW = frozenset("ijlt.,:;'|!()[]{} fr-/")


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from low to high, drawn from start to end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value is drawn."""
        span = self.high - self.low
        return self.start + ((value - self.low) / span if span else 0.5) * (self.end - self.start)


def drawable(*values: float | None) -> list[float] | None:
    """These numbers, when all are there and finite.

    >>> drawable(0.1, 0.2), drawable(0.1, None), drawable(float("inf"))
    ([0.1, 0.2], None, None)
    """
    found = [value for value in values if value is not None and math.isfinite(value)]
    return found if len(found) == len(values) else None


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values between two ends, at most so many.

    >>> ticks(0.0, 0.34)
    [0.0, 0.1, 0.2, 0.3]
    """
    if not low < high:
        return [low]
    for power in range(math.floor(math.log10((high - low) / most)), 400):
        for step in (1, 2, 2.5, 5):
            size = step * 10.0**power
            first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
            if last - first < most:
                return [round(k * size, 12) for k in range(first, last + 1)]
    return [low]


def spread(values: Iterable[float], *, room: float = 0.06) -> tuple[float, float]:
    """The ends of an axis that holds all finite values with a little room."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    extra = (high - low) * room or abs(high) * 0.05 or 0.05
    return low - extra, high + extra


def drawing(name: str, title: str, about: str, height: float, *shapes: str) -> Html:
    """A drawing with a title and a description that are read out where it cannot be seen. The name is unique on the page."""
    key = slug(name)
    texts = (element("title", title, id=f"{key}-title"), element("desc", about, id=f"{key}-about"))
    box = f"0 0 {WIDTH} {compact(height)}"
    return element(
        "svg",
        *texts,
        *shapes,
        viewBox=box,
        role="img",
        aria_labelledby=f"{key}-title",
        aria_describedby=f"{key}-about",
    )


def text(
    x: float, y: float, content: str, anchor: str | None = None, class_: str | None = None
) -> Html:
    """A text whose middle line is at y; anchor is "middle" or "end" where it is not to start at x."""
    return element("text", content, x=x, y=y + 0.35 * TEXT, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    """A straight line."""
    return element(
        "path", d=f"M{compact(x1)} {compact(y1)}L{compact(x2)} {compact(y2)}", class_=class_
    )


def rect(x: float, y: float, width: float, height: float, class_: str) -> Html:
    """A rectangle."""
    return element("rect", x=x, y=y, width=max(width, 0), height=max(height, 0), class_=class_)


def polyline(points: Iterable[tuple[float, float] | None], class_: str) -> Html:
    """A line through points, broken where there is none."""
    pieces, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        pieces.append(f"{pen}{compact(point[0])} {compact(point[1])}")
        pen = "L"
    return element("path", d="".join(pieces), class_=class_)


def whiskers(ends: Iterable[tuple[float, float, float]], class_: str) -> Html:
    """Upright intervals (x, low, high), all in one path."""
    pieces = (f"M{compact(x)} {compact(low)}V{compact(high)}" for x, low, high in ends)
    return element("path", d="".join(pieces), class_=class_)


# Outlines of markers about (0, 0) that cover about the same area; a model keeps its own in every drawing.
MARKERS = (
    "m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",  # circle
    "m-3 -3h6v6h-6z",  # square
    "m0-4.2l4 7h-8z",  # triangle
    "m0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",  # diamond
    "m0 4.2l4-7h-8z",  # triangle on its head
    "m-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",  # plus
    "m-3.8-2l1.8-1.8l2 2l2-2l1.8 1.8l-2 2l2 2l-1.8 1.8l-2-2l-2 2l-1.8-1.8l2-2z",  # cross
    "m-4.6-1.4h9.2v2.8h-9.2z",  # bar
)


def markers(points: Iterable[tuple[float, float]], shape: int, class_: str) -> Html:
    """A marker at every point, all in one path."""
    outline = MARKERS[shape % len(MARKERS)]
    return element(
        "path", d="".join(f"M{compact(x)} {compact(y)}{outline}" for x, y in points), class_=class_
    )


def breadth(content: str, size: float = TEXT) -> float:
    """How wide a text is at the most, in pixels; fonts differ, so it is estimated with room to spare."""
    return sum(size * _em(character) for character in content)


def fitted(content: str, width: float, size: float = TEXT) -> str:
    """A text cut to a width, with an ellipsis where it was cut.

    >>> fitted("a very long title of an ad", 80)
    'a very long…'
    """
    content = " ".join(content.split())
    if breadth(content, size) <= width:
        return content
    while content and breadth(content + "…", size) > width:
        content = content[:-1]
    return content.rstrip() + "…"


def folded(content: str, width: float) -> tuple[str, ...]:
    """A text on one line where it fits, else on two; what is still too long loses its middle, for names differ at their ends.

    >>> folded("MultiClick, normalised", 86), folded("DBN", 86)
    (('MultiClick,', 'normalised'), ('DBN',))
    """
    content = " ".join(content.split())
    breaks = [place for place in range(1, len(content)) if content[place - 1] in " -_/,"]
    if breadth(content) <= width or not breaks:
        return (_narrowed(content, width),)
    best = min(
        ((content[:place].rstrip(), content[place:].lstrip()) for place in breaks),
        key=lambda lines: max(map(breadth, lines)),
    )
    return tuple(_narrowed(line, width) for line in best)


def _narrowed(content: str, width: float) -> str:
    """A text whose middle is cut out so that it is no wider than this."""
    short, kept = content, len(content)
    while kept > 0 and breadth(short) > width:
        kept -= 1
        short = (
            content[: (kept + 1) // 2].rstrip() + "…" + content[len(content) - kept // 2 :].lstrip()
        )
    return short


def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if unicodedata.combining(character):
        return 0.0
    if character in NARROW:
        return 0.42
    if character in "mwMW@%—" or ord(character) > 0x2E7F:
        return 1.05
    return 0.78 if character.isupper() or not character.isascii() else 0.64
