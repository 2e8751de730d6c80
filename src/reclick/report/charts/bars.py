"""Drawings in rows and columns: bars, values with intervals, a heat map, and pairs of bars back to back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from reclick.report.charts.colours import LEVELS
from reclick.report.charts.lines import tick_texts
from reclick.report.charts.svg import (
    TEXT,
    WIDTH,
    Scale,
    breadth,
    drawable,
    fitted,
    folded,
    line,
    markers,
    rect,
    spread,
    text,
    ticks,
)
from reclick.report.markup import Html, element, join

ROW = 23  # height of a row
LINE = 11.5  # height of a line of a name that takes two
NAMES, LONG_NAMES = 86, 112  # width of the names at the left, and where one needs more
FIGURES = 56  # width of the figures at the right


class Entry(NamedTuple):
    """A row of a dot plot. A row without a finite value has its text alone."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    written: str
    rank: str  # "best", "tied" or "other"


def columns(
    names: Sequence[str],
    shares: Sequence[float],
    theirs: Sequence[float | None],
    *,
    height: float = 196,
) -> Html:
    """Upright bars with their shares above; a diamond where the paper's figure is."""
    floor, top = height - 20, 26.0
    up = Scale(
        0, max([*shares, *(value for value in theirs if value is not None), 1e-9]), floor, top
    )
    step = WIDTH / max(len(names), 1)
    every = math.ceil(len(names) / 11)
    drawn: list[Html] = []
    for place, (name, share) in enumerate(zip(names, shares, strict=True)):
        middle, width = (place + 0.5) * step, min(step * 0.62, 46)
        drawn.append(rect(middle - width / 2, up(share), width, floor - up(share), "bar"))
        if place % every == 0:
            drawn.append(text(middle, height - 7, name, "middle", "tick"))
        if every == 1:
            drawn.append(text(middle, up(share) - 9, f"{100 * share:.1f}", "middle", "value"))
    # a step to the right of the bar's middle, so that the mark does not hide the figure above the bar
    diamonds = [
        ((place + 0.5) * step + min(step * 0.31, 23), up(value))
        for place, value in enumerate(theirs)
        if value is not None
    ]
    return join(
        [
            *drawn,
            line(0, floor, WIDTH, floor, "floor"),
            *([markers(diamonds, 3, "theirs")] if diamonds else []),
        ]
    )


def dots(entries: Sequence[Entry], *, percent: bool) -> tuple[Html, float]:
    """A row a model: its name, its value as a dot with its interval, and its value in figures. Returns the shapes and their height."""
    finite = [
        v
        for entry in entries
        for v in (entry.value, entry.low, entry.high)
        if v is not None and math.isfinite(v)
    ]
    names = [folded(entry.name, NAMES) for entry in entries]
    if any("…" in line for lines in names for line in lines):
        names = [folded(entry.name, LONG_NAMES) for entry in entries]
    left = max([float(NAMES), *(breadth(line) for lines in names for line in lines)])
    across = Scale(*spread(finite), left + 8, WIDTH - FIGURES - 8)
    heights = [ROW + LINE * (len(lines) - 1) for lines in names]
    floor = sum(heights)
    shapes = []
    for mark, label in _marks(across, percent=percent) if finite else []:
        shapes += [
            line(across(mark), 0, across(mark), floor, "grid"),
            text(across(mark), floor + 11, label, "middle", "tick"),
        ]
    for entry, lines, height, end in zip(entries, names, heights, accumulate(heights), strict=True):
        shapes.append(_dot_row(entry, lines, across, end - height / 2))
    return join(shapes), floor + 20


def _marks(across: Scale, *, percent: bool) -> list[tuple[float, str]]:
    """As many marks of an axis, up to four, as have room for their labels."""
    for most in (4, 3, 2):
        marks = ticks(across.low, across.high, most)
        labels = tick_texts(marks, percent=percent)
        room = across(marks[1]) - across(marks[0]) if len(marks) > 1 else math.inf
        if max(map(breadth, labels)) + 4 <= room:
            return list(zip(marks, labels, strict=True))
    return [(marks[0], labels[0])]


def _dot_row(entry: Entry, lines: Sequence[str], across: Scale, y: float) -> Html:
    first = y - LINE * (len(lines) - 1) / 2
    shapes = [
        text(0, first + LINE * place, part, class_="name") for place, part in enumerate(lines)
    ]
    shapes.append(text(WIDTH - 2, y, entry.written, "end", "value"))
    if value := drawable(entry.value):
        if ends := drawable(entry.low, entry.high):
            shapes.append(line(across(ends[0]), y, across(ends[1]), y, "whisker"))
        shapes.append(markers([(across(value[0]), y)], 0, "mark"))
    return element("g", *shapes, class_=f"dot {entry.rank}")


def rows(entries: Sequence[tuple[str, float, str]], *, top: float) -> tuple[Html, float]:
    """Level bars: a name, a share as a bar (the widest is `top`) of some kind, a figure; kinds stand a little apart."""
    left = 112
    across = Scale(0, top or 1, left, WIDTH - 50)
    shapes, y = [], 0.5 * ROW
    for place, (name, share, kind) in enumerate(entries):
        y += ROW / 2 if place and kind != entries[place - 1][2] else 0
        shapes += [
            text(left - 8, y, fitted(name, left - 8), "end", "name"),
            rect(left, y - 7, across(share) - left, 14, f"bar {kind}"),
            text(across(share) + 6, y, f"{100 * share:.1f} %", class_="value"),
        ]
        y += ROW
    return join(shapes), y - 0.5 * ROW


def heat(
    table: Sequence[Sequence[float | None]], side: Sequence[str], head: Sequence[str]
) -> tuple[Html, float]:
    """A table of shares, the darker the larger; None is a place that cannot be."""
    left, top = 46, 34
    width = (WIDTH - left) / max(len(head), 1)
    height = min(width, 40)
    most = max((value for row in table for value in row if value is not None), default=0) or 1
    shapes = [
        text(left + (column + 0.5) * width, top - 10, name, "middle", "tick")
        for column, name in enumerate(head)
    ]
    shapes += [
        text(WIDTH / 2 + left / 2, 6, "to position", "middle", "axis"),
        text(0, 6, "from", class_="axis"),
    ]
    for place, (name, row) in enumerate(zip(side, table, strict=True)):
        y = top + place * height
        shapes.append(text(left - 8, y + height / 2, name, "end", "tick"))
        shapes += [
            _cell(value, most, left + column * width, y, width, height)
            for column, value in enumerate(row)
        ]
    return join(shapes), top + height * len(table)


def _cell(
    value: float | None, most: float, x: float, y: float, width: float, height: float
) -> Html:
    if value is None:
        return Html("")
    level = round(value / most * (LEVELS - 1))
    box = rect(x + 1, y + 1, width - 2, height - 2, f"h{level}")
    figure = f"{100 * value:.0f}" if 100 * value >= 0.5 or value == 0 else "<1"
    written = (
        [text(x + width / 2, y + height / 2, figure, "middle", f"t{level}")]
        if breadth(figure) < width - 2
        else []
    )
    return element("g", box, *written)


class Pair(NamedTuple):
    """An ad whose two sides are shown back to back."""

    name: str
    left: float
    right: float


def back_to_back(
    pairs: Sequence[Pair], heads: tuple[str, str], most: tuple[float, float]
) -> tuple[Html, float]:
    """One value of each pair to the left and one to the right of a middle line, each on its own scale from 0 to its most."""
    room, middle = 44, WIDTH / 2
    reach = middle - room - 4
    shapes = [
        text(middle - 6, 7, f"← {heads[0]}", "end", "axis"),
        text(middle + 6, 7, f"{heads[1]} →", class_="axis"),
    ]
    for place, pair in enumerate(pairs):
        y = 24 + place * 40
        left, right = pair.left / most[0] * reach, pair.right / most[1] * reach
        shapes += [
            text(middle, y + 7, fitted(pair.name, WIDTH - 8, TEXT + 1), "middle", "name"),
            rect(middle - 1 - left, y + 15, left, 13, "bar attract"),
            rect(middle + 1, y + 15, right, 13, "bar satisfy"),
            text(middle - 6 - left, y + 22, f"{pair.left:.3f}", "end", "value"),
            text(middle + 6 + right, y + 22, f"{pair.right:.3f}", class_="value"),
        ]
    return join(shapes), 24 + 40 * len(pairs)
