"""Metrics by the volume of the query, as the paper draws them: a small drawing a metric, a line a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reclick.report.charts.lines import Point, Series, categories, dodged, legend, numbers, plot
from reclick.report.charts.svg import drawing
from reclick.report.data import Material
from reclick.report.formatting import in_words, interval, listing, shown, written
from reclick.report.markup import Html, data_table, element, figure, foreign, join, paragraph
from reclick.report.results import At, Results

LABEL = "sessions of the query in training"


def volume_figures(material: Material, metrics: Sequence[str], sessions: str = "all") -> Html:
    """A legend and a drawing for each metric that has buckets; nothing where none has."""
    drawn = [one for metric in metrics if (one := _volume_figure(material, metric, sessions))]
    return join([key(material), element("div", *drawn, class_="figs")]) if drawn else Html("")


def key(material: Material) -> Html:
    """Which line is whose, and who is not drawn."""
    left_out = [model for model in material.results.models if model not in material.styles]
    drawn = (
        f"{material.subject} and the models that do best overall"
        if material.subject
        else "the models that do best overall"
    )
    note = (
        f"Drawn are {drawn}, {in_words(len(material.styles))} in all; {listing(left_out)} stand in the numbers below each."
        if left_out
        else ""
    )
    return join([legend(dict(material.styles)), paragraph(note, class_="note")])


def _volume_figure(material: Material, metric: str, sessions: str) -> Html:
    results, known = material.results, shown(metric)
    volumes = results.volumes(metric, sessions)
    places = [At(metric, sessions, volume) for volume in volumes]
    series = drawn_series(material, places)
    heights = [height for one in series for point in one.points for height in point.heights]
    if len(volumes) < 2 or not heights:
        return Html("")
    unit = ("%, " if known.percent else "") + f"{known.better} is better"
    shapes = plot(
        series,
        categories(LABEL, [short(volume) for volume in volumes]),
        numbers(unit, heights, percent=known.percent),
    )
    title = known.title + (", reverse sessions" if sessions == "reverse" else "")
    unseen = [
        one.name
        for one in series
        if any(point.y is not None for point in one.points)
        and not any(point.heights for point in one.points)
    ]
    note = f"Not drawn, infinite everywhere: {listing(unseen)}." if unseen else ""
    about = f"A line a model over {len(volumes)} buckets of query volume, from rare to frequent, with interval whiskers. The numbers follow."
    picture = drawing(f"volume {metric} {sessions}", f"{title} by query volume", about, 224, shapes)
    return figure(title, picture, _table(results, places, title), unit=note)


def drawn_series(material: Material, places: Sequence[At]) -> list[Series]:
    """A series a drawn model over places one step apart, the models side by side."""
    found = []
    for number, (model, style) in enumerate(material.styles.items()):
        scores = [material.results.score(model, at) for at in places]
        points = (
            Point(dodged(place, number, len(material.styles)), one.value, one.low, one.high)
            for place, one in enumerate(scores)
        )
        found.append(Series(model, style, tuple(points)))
    return found


def _table(results: Results, places: Sequence[At], title: str) -> Html:
    rows = (
        (foreign(model), *(_numbers(results, model, at) for at in places))
        for model in results.models
    )
    return data_table(f"{title} by query volume", ("Model", *(at.volume for at in places)), rows)


def _numbers(results: Results, model: str, at: At) -> Html:
    score = results.score(model, at)
    ends = interval(score.low, score.high, at.metric)
    return join([written(score.value, at.metric), *([element("small", ends)] if ends else [])])


def short(volume: str) -> str:
    """A bucket by its upper end, so that it fits below its points.

    >>> short("10-50"), short(">1000")
    ('≤50', '>1000')
    """
    found = re.fullmatch(r"\d+-(\d+)", volume)
    return f"≤{found[1]}" if found else volume
