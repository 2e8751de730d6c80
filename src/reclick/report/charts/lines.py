"""Drawings with two axes: lines with interval whiskers, a style for each model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reclick.report.charts.svg import (
    TEXT,
    WIDTH,
    Scale,
    breadth,
    drawable,
    line,
    markers,
    polyline,
    spread,
    text,
    ticks,
    whiskers,
)
from reclick.report.markup import Html, element, foreign, join

RIGHT, TOP, BOTTOM = 12, 14, 42
DODGE = 0.11  # of a category's width, between the models' points, so that whiskers do not hide each other
STYLES = 8  # colours, dashes and markers there are


@dataclass(frozen=True, slots=True)
class Point:
    """A point, with an interval where there is one."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None

    @property
    def heights(self) -> tuple[float, ...]:
        """The finite heights that the axis has to hold."""
        return tuple(y for each in (self.y, self.low, self.high) for y in drawable(each) or ())


@dataclass(frozen=True, slots=True)
class Series:
    """The points of a model, in its style."""

    name: str
    style: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis says and holds."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]


def categories(label: str, names: Sequence[str]) -> Axis:
    """An axis of names, one a step from 0. Where they are many, some are not written."""
    every = math.ceil(len(names) / 12)
    return Axis(
        label,
        -0.5,
        len(names) - 0.5,
        tuple((place, name) for place, name in enumerate(names) if place % every == 0),
    )


def numbers(
    label: str,
    values: Sequence[float],
    *,
    percent: bool = False,
    ends: tuple[float, float] | None = None,
) -> Axis:
    """An axis of numbers that holds these values."""
    low, high = ends or spread(values)
    marks = ticks(low, high)
    return Axis(
        label, low, high, tuple(zip(marks, tick_texts(marks, percent=percent), strict=True))
    )


def tick_texts(marks: Sequence[float], *, percent: bool = False) -> list[str]:
    """Round values with as many digits as they need to differ, and no more.

    >>> tick_texts([0.7, 0.75, 0.8], percent=True), tick_texts([1.0, 1.5])
    (['70', '75', '80'], ['1.0', '1.5'])
    """
    scaled = [mark * (100 if percent else 1) for mark in marks]
    digits = next(
        (
            n
            for n in range(7)
            if all(abs(value - round(value, n)) < 1e-9 * max(1, abs(value)) for value in scaled)
        ),
        7,
    )
    return [f"{value:.{digits}f}".replace("-", "−") for value in scaled]


def dodged(place: int, number: int, of: int) -> float:
    """Where the point of series `number` of so many stands within a category."""
    return place + (number - (of - 1) / 2) * DODGE


def plot(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    height: float = 224,
    under: Sequence[str] = (),
    marks: int = 99,
) -> Html:
    """Axes, and each series as a line, its whiskers and its markers; `under` is drawn behind them.

    A curve of many points has about `marks` markers.
    """
    across, up = scales(x, y, height)
    return join(
        [
            *_grid(x, y, across, up),
            *under,
            *(shape for one in series for shape in _draw(one, across, up, marks)),
        ]
    )


def scales(x: Axis, y: Axis, height: float = 224) -> tuple[Scale, Scale]:
    """The scales that `plot` draws with, for what is drawn under it; the heights' labels have the room they need at the left."""
    left = max([20.0, *(breadth(label) for _, label in y.ticks)]) + 8
    return Scale(x.low, x.high, left, WIDTH - RIGHT), Scale(
        y.low, y.high, height - BOTTOM, TOP + TEXT
    )


def _grid(x: Axis, y: Axis, across: Scale, up: Scale) -> list[Html]:
    left, right, floor = across.start, across.end, up.start
    rows = [line(left, up(value), right, up(value), "grid") for value, _ in y.ticks]
    heights = [text(left - 6, up(value), label, "end", "tick") for value, label in y.ticks]
    names = [text(across(value), floor + 13, label, "middle", "tick") for value, label in x.ticks]
    labels = [
        text(0, TEXT / 2, y.label, class_="axis"),
        text((left + right) / 2, floor + 31, x.label, "middle", "axis"),
    ]
    return [*rows, line(left, floor, right, floor, "floor"), *heights, *names, *labels]


def _draw(series: Series, across: Scale, up: Scale, marks: int) -> list[Html]:
    """A line broken where there is no finite value, whiskers, markers."""
    style = f"s{series.style + 1}"
    places = [
        (across(point.x), up(height[0])) if (height := drawable(point.y)) else None
        for point in series.points
    ]
    known = [
        (point.x, ends)
        for point in series.points
        if (ends := drawable(point.low, point.high)) and drawable(point.y)
    ]
    bars = [(across(x), up(low), up(high)) for x, (low, high) in known]
    marked = [place for place in places if place][:: math.ceil(len(places) / marks) or 1]
    shapes = [
        polyline(places, "line"),
        *([whiskers(bars, "whisker")] if bars else []),
        markers(marked, series.style, "mark"),
    ]
    return [element("g", *shapes, class_=style)]


def legend(names: dict[str, int]) -> Html:
    """Which line is whose: a model's name beside its line and marker."""
    return element(
        "ul",
        *(element("li", _sample(style), foreign(name)) for name, style in names.items()),
        class_="legend",
    )


def _sample(style: int) -> Html:
    shapes = (polyline([(0, 7), (30, 7)], "line"), markers([(15, 7)], style, "mark"))
    return element(
        "svg",
        element("g", *shapes, class_=f"s{style + 1}"),
        viewBox="0 0 30 14",
        width="30",
        height="14",
        aria_hidden="true",
    )
