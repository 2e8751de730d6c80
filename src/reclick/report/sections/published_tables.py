"""The tables of the paper with the published figures, collapsed by default."""

from __future__ import annotations

from collections.abc import Sequence

from reclick.report.charts.lines import (
    Series,
    number_axis,
    small_multiples,
    volume_charts,
)
from reclick.report.charts.svg import svg_chart
from reclick.report.data import Point, ReportData
from reclick.report.formatting import display, format_count
from reclick.report.markup import (
    Html,
    Section,
    Subsection,
    data_table,
    element,
    figure,
    isolate,
    join,
    make_section,
    paragraph,
)
from reclick.report.sections.log import position_figure, volume_table
from reclick.report.tables import PUBLISHED_NOTE, TABLE_KEY, metric_table

SEQUENCE_METRICS = tuple(f"sequence_accuracy@{m}" for m in (1, 2, 3, 4))
SET_METRICS = ("top_accuracy@2", "top_accuracy@3")
RANK_METRICS = tuple(f"rank@{m}" for m in (1, 2, 3, 4))
PAPER_METRICS = ("first_click_accuracy", *SEQUENCE_METRICS, *SET_METRICS, *RANK_METRICS)
ABOUT_SEQUENCES = (
    "How often the observed click sequence is the most likely one of its length, order included."
)
ABOUT_RANKS = (
    "The rank of the observed sequence among all of its length, mean ± standard deviation: 1 is the"
    " most likely, ties share their mean rank."
)
ABOUT_SETS = "How often the ads of the most likely sequence are the clicked ads, in any order."
RECALLS = tuple(n / 10 for n in range(1, 11))  # of the table of precision


PAPER_TITLE = "Paper (Bing, 2014)"


def paper_section(data: ReportData) -> Section | None:
    """The experiments of the paper next to its figures, collapsed by default."""
    parts = [
        ("The log", _log_tables(data)),
        ("First click", _first_click(data)),
        *_sequence_parts(data, "all"),
        ("Perplexity", _perplexity(data)),
        ("Relevance", _relevance(data)),
        *_sequence_parts(data, "reverse"),
    ]
    body = join(part for title, html in parts if html for part in (element("h3", title), html))
    if not body:
        return None
    about = (
        "The tables of Govindaraj, Wang and Vishwanathan (2014), made from this log, with the"
        " figures that they print beside them. Their log is a different one."
    )
    summary = element("summary", "Show the paper's tables")
    notes = paragraph(f"{TABLE_KEY} {PUBLISHED_NOTE}", class_="about")
    switch = element("details", summary, notes, body, class_="switch")
    return make_section(PAPER_TITLE, [Subsection("", join([paragraph(about), switch]))])


def _log_tables(data: ReportData) -> Html:
    if data.profile is None:
        return Html("")
    first = position_figure(data.profile, published=True)
    return join([volume_table(data.profile), element("div", first, class_="figs")])


def _first_click(data: ReportData) -> Html:
    metric = "first_click_accuracy"
    return metric_report(data, "First-click accuracy", display(metric).about, [metric])


def _perplexity(data: ReportData) -> Html:
    metric = "perplexity"
    return metric_report(data, "Perplexity of a session", display(metric).about, [metric])


def _sequence_parts(data: ReportData, sessions: str) -> list[tuple[str, Html]]:
    suffix = ", sessions with a backward click" if sessions == "reverse" else ""
    reports = (
        ("Sequences", "Sequence accuracy", ABOUT_SEQUENCES, SEQUENCE_METRICS),
        ("Rank of the sequence", "Rank of the observed sequence", ABOUT_RANKS, RANK_METRICS),
        ("In any order", "Accuracy of the clicked set", ABOUT_SETS, SET_METRICS),
    )
    return [
        (title + suffix, metric_report(data, caption, about, metrics, sessions))
        for title, caption, about, metrics in reports
    ]


def metric_report(
    data: ReportData, caption: str, about: str, metrics: Sequence[str], sessions: str = "all"
) -> Html:
    """An explanation of metrics, their table, and charts by query volume; may be empty."""
    suffix = ", sessions with a backward click" if sessions == "reverse" else ""
    table = metric_table(data.table, caption + suffix, metrics, sessions)
    if not table:
        return table
    charts = volume_charts(data, metrics, sessions)
    if charts and len(metrics) == 1:
        body = [
            element("div", element("div", table), element("div", charts), class_="side-by-side")
        ]
    else:
        body = [table, charts]
    return join([paragraph(about, class_="about"), *body])


# ---- relevance


def _relevance(data: ReportData) -> Html:
    """The area under the precision-recall curve, and the curves."""
    labels = data.details.get("labels")
    note = paragraph(_describe_labels(labels), class_="note") if labels else Html("")
    table = metric_report(data, "Relevance against labels", display("pr_auc").about, ["pr_auc"])
    return join([table, note, _precision_recall(data)])


def _describe_labels(labels: dict[str, float]) -> str:
    parts = [
        f"{format_count(labels[name])} {name}" for name in ("pairs", "queries") if name in labels
    ]
    if "relevant_from" in labels:
        parts.append(f"relevant from label {labels['relevant_from']}")
    return f"Labels: {', '.join(parts)}. The paper prints one area, which it calls AUC."


def _precision_recall(data: ReportData) -> Html:
    name = "precision_recall"
    curves = {
        model: data.curves[model, name].points
        for model in data.table.models
        if (model, name) in data.curves
    }
    if not curves:
        return Html("")
    series = [
        Series(model, data.styles[model], points)
        for model, points in curves.items()
        if model in data.styles
    ]
    lowest = min(point.y or 0.0 for points in curves.values() for point in points)
    x = number_axis("recall, %", (), percent=True, ends=(0, 1))
    y = number_axis("precision, %", (), percent=True, ends=(min(lowest, 0.95), 1))
    title = "Precision and recall of relevance"
    about = (
        "A chart per model: precision against recall, over all labelled pairs. Higher is better."
        " The numbers follow."
    )
    shapes, height = small_multiples(series, x, y)
    chart = svg_chart("precision recall", title, about, height, shapes)
    rows = (
        (f"{recall:.0%}", *(_precision_at(points, recall) for points in curves.values()))
        for recall in RECALLS
    )
    table = data_table(title, ("Recall", *map(isolate, curves)), rows)
    unit = "precision, %, by recall; the others in grey"
    return element("div", figure(title, chart, table, unit=unit), class_="figs")


def _precision_at(points: Sequence[Point], recall: float) -> str:
    nearest = min(points, key=lambda point: abs(point.x - recall))
    return f"{100 * (nearest.y or 0.0):.1f} %"
