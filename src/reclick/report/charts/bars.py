"""Charts in rows and columns: bars, values with intervals, a heat map, and paired bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from reclick.report.charts.lines import format_ticks
from reclick.report.charts.svg import (
    FONT_SIZE,
    WIDTH,
    Scale,
    axis_range,
    finite_or_none,
    round_ticks,
    svg_line,
    svg_markers,
    svg_rect,
    svg_text,
    text_width,
    truncate,
    wrap_name,
)
from reclick.report.markup import Html, element, join

ROW_HEIGHT = 23
LINE_HEIGHT = 11.5  # of names on two lines
NAME_WIDTH, LONG_NAME_WIDTH = 86, 112
VALUE_WIDTH = 56
MAX_COLUMN_LABELS = 11
HEAT_LEVELS = 10  # colours of the heat map in style.css


def column_chart(
    names: Sequence[str],
    shares: Sequence[float],
    published_shares: Sequence[float | None],
    *,
    height: float = 196,
) -> Html:
    """Vertical bars with their shares above them; diamonds mark published figures."""
    floor, top = height - 20, 26.0
    known_shares = [value for value in published_shares if value is not None]
    up = Scale(0, max([*shares, *known_shares, 1e-9]), floor, top)
    step = WIDTH / max(len(names), 1)
    label_step = math.ceil(len(names) / MAX_COLUMN_LABELS)
    shapes: list[Html] = []
    for index, (name, share) in enumerate(zip(names, shares, strict=True)):
        middle, width = (index + 0.5) * step, min(step * 0.62, 46)
        shapes.append(svg_rect(middle - width / 2, up(share), width, floor - up(share), "bar"))
        if index % label_step == 0:
            shapes.append(svg_text(middle, height - 7, name, "middle", "tick"))
        if label_step == 1:
            shapes.append(svg_text(middle, up(share) - 9, f"{100 * share:.1f}", "middle", "value"))
    shapes.append(svg_line(0, floor, WIDTH, floor, "baseline"))
    # to the right of the bar's middle, so that the marker does not hide the number above the bar
    diamonds = [
        ((index + 0.5) * step + min(step * 0.31, 23), up(value))
        for index, value in enumerate(published_shares)
        if value is not None
    ]
    if diamonds:
        shapes.append(svg_markers(diamonds, 3, "published"))
    return join(shapes)


class DotRow(NamedTuple):
    """A row of a dot plot. A row without a finite value has only its text."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    text: str
    rank: str  # "best", "tied" or "other"


def dot_plot(rows: Sequence[DotRow], *, percent: bool) -> tuple[Html, float]:
    """A row per model: name, dot with its interval, and number. Returns shapes and height."""
    numbers = [v for row in rows for v in (row.value, row.low, row.high) if finite_or_none(v)]
    finite = [v for v in numbers if v is not None]
    names = [wrap_name(row.name, NAME_WIDTH) for row in rows]
    if any("…" in line for lines in names for line in lines):
        names = [wrap_name(row.name, LONG_NAME_WIDTH) for row in rows]
    left = max([float(NAME_WIDTH), *(text_width(line) for lines in names for line in lines)])
    across = Scale(*axis_range(finite), left + 8, WIDTH - VALUE_WIDTH - 8)
    heights = [ROW_HEIGHT + LINE_HEIGHT * (len(lines) - 1) for lines in names]
    floor = sum(heights)
    shapes = []
    for tick, label in _fitting_ticks(across, percent=percent) if finite else []:
        shapes += [
            svg_line(across(tick), 0, across(tick), floor, "grid"),
            svg_text(across(tick), floor + 11, label, "middle", "tick"),
        ]
    for row, lines, height, end in zip(rows, names, heights, accumulate(heights), strict=True):
        shapes.append(_dot_row(row, lines, across, end - height / 2))
    return join(shapes), floor + 20


def _fitting_ticks(across: Scale, *, percent: bool) -> list[tuple[float, str]]:
    """Up to four ticks of an axis, as many as their labels have space for."""
    for max_ticks in (4, 3, 2):
        ticks = round_ticks(across.low, across.high, max_ticks)
        labels = format_ticks(ticks, percent=percent)
        room = across(ticks[1]) - across(ticks[0]) if len(ticks) > 1 else math.inf
        if max(map(text_width, labels)) + 4 <= room:
            return list(zip(ticks, labels, strict=True))
    return [(ticks[0], labels[0])]


def _dot_row(row: DotRow, lines: Sequence[str], across: Scale, y: float) -> Html:
    first = y - LINE_HEIGHT * (len(lines) - 1) / 2
    shapes = [
        svg_text(0, first + LINE_HEIGHT * index, line, class_="name")
        for index, line in enumerate(lines)
    ]
    shapes.append(svg_text(WIDTH - 2, y, row.text, "end", "value"))
    if value := finite_or_none(row.value):
        if ends := finite_or_none(row.low, row.high):
            shapes.append(svg_line(across(ends[0]), y, across(ends[1]), y, "whisker"))
        shapes.append(svg_markers([(across(value[0]), y)], 0, "mark"))
    return element("g", *shapes, class_=f"dot {row.rank}")


def bar_chart(bars: Sequence[tuple[str, float, str]], *, longest: float) -> tuple[Html, float]:
    """Horizontal bars (name, share, class), gaps between classes. Returns shapes and height."""
    left = 112
    across = Scale(0, longest or 1, left, WIDTH - 50)
    shapes, y = [], 0.5 * ROW_HEIGHT
    for index, (name, share, class_) in enumerate(bars):
        y += ROW_HEIGHT / 2 if index and class_ != bars[index - 1][2] else 0
        shapes += [
            svg_text(left - 8, y, truncate(name, left - 8), "end", "name"),
            svg_rect(left, y - 7, across(share) - left, 14, f"bar {class_}"),
            svg_text(across(share) + 6, y, f"{100 * share:.1f} %", class_="value"),
        ]
        y += ROW_HEIGHT
    return join(shapes), y - 0.5 * ROW_HEIGHT


def heat_map(
    rows: Sequence[Sequence[float | None]], row_names: Sequence[str], column_names: Sequence[str]
) -> tuple[Html, float]:
    """A table of shares, darker for larger ones. Returns shapes and height.

    None is an impossible cell.
    """
    left, top = 46, 34
    width = (WIDTH - left) / max(len(column_names), 1)
    height = min(width, 40)
    largest = max((value for row in rows for value in row if value is not None), default=0) or 1
    shapes = [
        svg_text(left + (column + 0.5) * width, top - 10, name, "middle", "tick")
        for column, name in enumerate(column_names)
    ]
    shapes += [
        svg_text(WIDTH / 2 + left / 2, 6, "to position", "middle", "axis"),
        svg_text(0, 6, "from", class_="axis"),
    ]
    for index, (name, row) in enumerate(zip(row_names, rows, strict=True)):
        y = top + index * height
        shapes.append(svg_text(left - 8, y + height / 2, name, "end", "tick"))
        shapes += [
            _heat_cell(value, largest, left + column * width, y, width, height)
            for column, value in enumerate(row)
        ]
    return join(shapes), top + height * len(rows)


def _heat_cell(
    value: float | None, largest: float, x: float, y: float, width: float, height: float
) -> Html:
    if value is None:
        return Html("")
    level = round(value / largest * (HEAT_LEVELS - 1))
    shapes = [svg_rect(x + 1, y + 1, width - 2, height - 2, f"h{level}")]
    text = f"{100 * value:.0f}" if 100 * value >= 0.5 or value == 0 else "<1"
    if text_width(text) < width - 2:
        shapes.append(svg_text(x + width / 2, y + height / 2, text, "middle", f"t{level}"))
    return element("g", *shapes)


class PairedBars(NamedTuple):
    """An ad whose two values are shown to the left and to the right of a middle line."""

    name: str
    left: float
    right: float


def paired_bar_chart(
    pairs: Sequence[PairedBars], headers: tuple[str, str], largest: tuple[float, float]
) -> tuple[Html, float]:
    """Two bars per pair, with a scale for each side. Returns shapes and height."""
    room, middle = 44, WIDTH / 2
    reach = middle - room - 4
    shapes = [
        svg_text(middle - 6, 7, f"← {headers[0]}", "end", "axis"),
        svg_text(middle + 6, 7, f"{headers[1]} →", class_="axis"),
    ]
    for index, pair in enumerate(pairs):
        y = 24 + index * 40
        left, right = pair.left / largest[0] * reach, pair.right / largest[1] * reach
        name = truncate(pair.name, WIDTH - 8, FONT_SIZE + 1)
        shapes += [
            svg_text(middle, y + 7, name, "middle", "name"),
            svg_rect(middle - 1 - left, y + 15, left, 13, "bar attract"),
            svg_rect(middle + 1, y + 15, right, 13, "bar satisfy"),
            svg_text(middle - 6 - left, y + 22, f"{pair.left:.3f}", "end", "value"),
            svg_text(middle + 6 + right, y + 22, f"{pair.right:.3f}", class_="value"),
        ]
    return join(shapes), 24 + 40 * len(pairs)
