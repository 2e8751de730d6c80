"""Line charts with interval whiskers, a style per model; and metrics by query volume."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reclick.report.charts.svg import (
    FONT_SIZE,
    WIDTH,
    Scale,
    axis_range,
    finite_or_none,
    round_ticks,
    svg_chart,
    svg_line,
    svg_markers,
    svg_polyline,
    svg_text,
    svg_whiskers,
    text_width,
    truncate,
)
from reclick.report.data import (
    MIN_SUPPORT,
    Point,
    ReportData,
    ScoreKey,
    ScoreTable,
    is_enough,
)
from reclick.report.formatting import (
    display,
    format_interval,
    format_value,
    join_names,
)
from reclick.report.markup import (
    Html,
    data_table,
    element,
    figure,
    isolate,
    join,
)

CHART_HEIGHT = 224
RIGHT, TOP, BOTTOM = 12, 14, 42  # margins
PANEL_COLUMNS, PANEL_HEIGHT, MAX_MARKERS = 2, 96, 10  # of small multiples
MAX_CATEGORY_LABELS = 12
VOLUME_LABEL = "sessions of the query in training"


@dataclass(frozen=True, slots=True)
class Series:
    """The points of a model, in its style."""

    name: str
    style: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """The label, the range and the ticks of an axis."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]


def category_axis(label: str, names: Sequence[str]) -> Axis:
    """An axis of names at 0, 1, …; with many names, only some have labels."""
    label_step = math.ceil(len(names) / MAX_CATEGORY_LABELS)
    ticks = tuple((index, name) for index, name in enumerate(names) if index % label_step == 0)
    return Axis(label, -0.5, len(names) - 0.5, ticks)


def number_axis(
    label: str,
    values: Sequence[float],
    *,
    percent: bool = False,
    ends: tuple[float, float] | None = None,
) -> Axis:
    """An axis of numbers that includes these values."""
    low, high = ends or axis_range(values)
    ticks = round_ticks(low, high)
    labels = format_ticks(ticks, percent=percent)
    return Axis(label, low, high, tuple(zip(ticks, labels, strict=True)))


def format_ticks(ticks: Sequence[float], *, percent: bool = False) -> list[str]:
    """Round values with as many digits as they need to differ, and no more.

    >>> format_ticks([0.7, 0.75, 0.8], percent=True), format_ticks([1.0, 1.5])
    (['70', '75', '80'], ['1.0', '1.5'])
    """
    values = [tick * (100 if percent else 1) for tick in ticks]

    def suffices(digits: int) -> bool:
        return all(abs(v - round(v, digits)) < 1e-9 * max(1, abs(v)) for v in values)

    digits = next((n for n in range(7) if suffices(n)), 7)
    return [f"{value:.{digits}f}".replace("-", "−") for value in values]


def line_chart(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    height: float = CHART_HEIGHT,
    background: Sequence[str] = (),
    max_markers: int = 99,
) -> Html:
    """Axes, and each series as a line with whiskers and markers, over the background.

    A curve with many points has about `max_markers` markers.
    """
    across, up = chart_scales(x, y, height)
    shapes = (_draw_series(line, across, up, max_markers) for line in series)
    return join([*_draw_axes(x, y, across, up), *background, *shapes])


def chart_scales(x: Axis, y: Axis, height: float = CHART_HEIGHT) -> tuple[Scale, Scale]:
    """The scales of `line_chart`, for drawing its background."""
    left = max([20.0, *(text_width(label) for _, label in y.ticks)]) + 8
    across = Scale(x.low, x.high, left, WIDTH - RIGHT)
    return across, Scale(y.low, y.high, height - BOTTOM, TOP + FONT_SIZE)


def _draw_axes(x: Axis, y: Axis, across: Scale, up: Scale) -> list[Html]:
    left, right, floor = across.start, across.end, up.start
    grid = [svg_line(left, up(value), right, up(value), "grid") for value, _ in y.ticks]
    baseline = svg_line(left, floor, right, floor, "baseline")
    y_ticks = [svg_text(left - 6, up(value), label, "end", "tick") for value, label in y.ticks]
    x_ticks = [
        svg_text(across(value), floor + 13, label, "middle", "tick") for value, label in x.ticks
    ]
    labels = [
        svg_text(0, FONT_SIZE / 2, y.label, class_="axis"),
        svg_text((left + right) / 2, floor + 31, x.label, "middle", "axis"),
    ]
    return [*grid, baseline, *y_ticks, *x_ticks, *labels]


def _draw_series(series: Series, across: Scale, up: Scale, max_markers: int) -> Html:
    """A line with gaps at values that are not finite, with whiskers and markers."""
    positions = _positions(series, across, up)
    whiskers = [
        (across(point.x), up(ends[0]), up(ends[1]))
        for point in series.points
        if (ends := finite_or_none(point.low, point.high)) and finite_or_none(point.y)
    ]
    marker_step = math.ceil(len(positions) / max_markers) or 1
    marker_positions = [position for position in positions if position][::marker_step]
    shapes = [svg_polyline(positions, "line")]
    if whiskers:
        shapes.append(svg_whiskers(whiskers, "whisker"))
    shapes.append(svg_markers(marker_positions, series.style, "mark"))
    return element("g", *shapes, class_=f"s{series.style + 1}")


def legend(styles: Mapping[str, int]) -> Html:
    """The names of series with samples of their styles."""
    entries = (
        element("li", _legend_sample(style), isolate(name)) for name, style in styles.items()
    )
    return element("ul", *entries, class_="legend")


def _legend_sample(style: int) -> Html:
    shapes = (svg_polyline([(0, 7), (30, 7)], "line"), svg_markers([(15, 7)], style, "mark"))
    group = element("g", *shapes, class_=f"s{style + 1}")
    size = {"viewBox": "0 0 30 14", "width": "30", "height": "14"}
    return element("svg", group, **size, aria_hidden="true")


# ---- metrics by query volume


def volume_charts(data: ReportData, metrics: Sequence[str], sessions: str = "all") -> Html:
    """Small charts, one per model, for each metric that has volume buckets; may be empty."""
    figures = [_volume_figure(data, metric, sessions) for metric in metrics]
    figures = [chart for chart in figures if chart]
    return element("div", *figures, class_="figs") if figures else Html("")


def model_series(data: ReportData, keys: Sequence[ScoreKey]) -> list[Series]:
    """A series per model in charts, with a point per key; no value if the support is small."""
    enough = [is_enough(data.table.support(key)) for key in keys]
    series = []
    for model, style in data.styles.items():
        scores = [data.table.score(model, key) for key in keys]
        points = (
            Point(index, score.value, score.low, score.high)
            if enough_support
            else Point(index, None)
            for index, (score, enough_support) in enumerate(zip(scores, enough, strict=True))
        )
        series.append(Series(model, style, tuple(points)))
    return series


def small_multiples(series: Sequence[Series], x: Axis, y: Axis) -> tuple[Html, float]:
    """A panel per series, with the other series in grey. Returns shapes and height."""
    n_columns = min(PANEL_COLUMNS, len(series))
    width = WIDTH / n_columns
    n_rows = -(-len(series) // n_columns)
    shapes = []
    for index, panel_series in enumerate(series):
        row, column = divmod(index, n_columns)
        shapes.append(
            _draw_panel(panel_series, series, x, y, column * width, width, row * PANEL_HEIGHT)
        )
    floor = n_rows * PANEL_HEIGHT
    shapes.append(svg_text(WIDTH / 2, floor + 8, x.label, "middle", "axis"))
    return join(shapes), floor + 18


def _draw_panel(
    panel_series: Series,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    start: float,
    width: float,
    top: float,
) -> Html:
    ends = (y.ticks[0], y.ticks[-1]) if len(y.ticks) > 1 else y.ticks
    left = start + max(text_width(label) for _, label in ends) + 6
    right, floor = start + width - 8, top + PANEL_HEIGHT - 22
    across, up = Scale(x.low, x.high, left, right), Scale(y.low, y.high, floor, top + 24)
    shapes = [svg_text(left, top + 8, truncate(panel_series.name, right - left), class_="name")]
    for value, label in ends:
        shapes += [
            svg_line(left, up(value), right, up(value), "grid"),
            svg_text(left - 4, up(value), label, "end", "tick"),
        ]
    shapes += [
        svg_line(left, floor, right, floor, "baseline"),
        svg_text(left, floor + 11, x.ticks[0][1], class_="tick"),
        svg_text(right, floor + 11, x.ticks[-1][1], "end", "tick"),
    ]
    shapes += [
        svg_polyline(_positions(other_series, across, up), "line context")
        for other_series in series
        if other_series != panel_series
    ]
    return join([*shapes, _draw_series(panel_series, across, up, MAX_MARKERS)])


def _positions(series: Series, across: Scale, up: Scale) -> list[tuple[float, float] | None]:
    return [
        (across(point.x), up(height[0])) if (height := finite_or_none(point.y)) else None
        for point in series.points
    ]


def _volume_figure(data: ReportData, metric: str, sessions: str) -> Html:
    metric_display = display(metric)
    volumes = data.table.volumes(metric, sessions)
    keys = [ScoreKey(metric, sessions, volume) for volume in volumes]
    series = model_series(data, keys)
    heights = [height for line in series for point in line.points for height in point.heights]
    if len(volumes) < 2 or not heights:
        return Html("")
    label = ("%, " if metric_display.percent else "") + f"{metric_display.better} is better"
    x = category_axis(VOLUME_LABEL, [short_bucket(volume) for volume in volumes])
    finite_series = [line for line in series if not _is_infinite(line)]
    shapes, height = small_multiples(
        finite_series, x, number_axis(label, heights, percent=metric_display.percent)
    )
    title = metric_display.title + (
        ", sessions with a backward click" if sessions == "reverse" else ""
    )
    infinite = [line.name for line in series if _is_infinite(line)]
    notes = [f"{label}; the others in grey"]
    notes += [f"infinite everywhere: {join_names(infinite)}"] if infinite else []
    small_buckets = [key.volume for key in keys if not is_enough(data.table.support(key))]
    notes += [f"not drawn, n < {MIN_SUPPORT}: {join_names(small_buckets)}"] if small_buckets else []
    about = (
        f"A chart per model over {len(volumes)} buckets of query volume, from rare to frequent,"
        " with interval whiskers. The numbers follow."
    )
    name = f"volume {metric} {sessions}"
    chart = svg_chart(name, f"{title} by query volume", about, height, shapes)
    unit = "; ".join(notes)
    return figure(title, chart, _volume_table(data.table, keys, title), unit=unit)


def _is_infinite(series: Series) -> bool:
    has_values = any(point.y is not None for point in series.points)
    return has_values and not any(point.heights for point in series.points)


def _volume_table(table: ScoreTable, keys: Sequence[ScoreKey], title: str) -> Html:
    rows = (
        (isolate(model), *(_value_and_interval(table, model, key) for key in keys))
        for model in table.models
    )
    headers = ("Model", *(key.volume for key in keys))
    return data_table(f"{title} by query volume", headers, rows)


def _value_and_interval(table: ScoreTable, model: str, key: ScoreKey) -> Html:
    score = table.score(model, key)
    interval = format_interval(score.low, score.high, key.metric)
    small = [element("small", interval)] if interval else []
    return join([format_value(score.value, key.metric), *small])


def short_bucket(volume: str) -> str:
    """A short label of a volume bucket: its upper end.

    >>> short_bucket("10-50"), short_bucket(">1000")
    ('≤50', '>1000')
    """
    bounds = re.fullmatch(r"\d+-(\d+)", volume)
    return f"≤{bounds[1]}" if bounds else volume
