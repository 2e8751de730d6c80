"""Every table of the paper with our value, its interval and the paper's figure beside it; for all sessions, and for reverse sessions."""

from __future__ import annotations

from collections.abc import Sequence

from reclick.report.charts.by_volume import key, volume_figures
from reclick.report.charts.lines import Point, Series, numbers, plot
from reclick.report.charts.svg import drawing
from reclick.report.data import Material
from reclick.report.formatting import amount, shown
from reclick.report.markup import Html, data_table, element, figure, foreign, join, paragraph
from reclick.report.published import ABOUT
from reclick.report.section import Part, Section, section
from reclick.report.tables import KEY, metric_table

ACCURACY = (
    "first_click_accuracy",
    *(f"sequence_accuracy@{m}" for m in (1, 2, 3, 4)),
    "top_accuracy@2",
    "top_accuracy@3",
)
RANKS = tuple(f"rank@{m}" for m in (1, 2, 3, 4))
SEQUENCES = "How often the likeliest of all click sequences as long as the observed one, order included, is the observed one."
RANK = "The place of the observed sequence among all as long, mean ± standard deviation: 1 is the likeliest, ties share their mean place."
SETS = "How often the ads of the likeliest sequence are the ads clicked, in whatever order."
GRID = tuple(n / 10 for n in range(1, 11))  # recalls in its table


def paper_tables(material: Material) -> Section | None:
    """The paper's experiments on all sessions."""
    parts = [
        Part(
            "First click",
            explained(
                material,
                "First-click accuracy",
                shown("first_click_accuracy").about,
                ["first_click_accuracy"],
            ),
        ),
        *_order_parts(material, "all"),
        Part(
            "Perplexity",
            explained(
                material, "Perplexity of a session", shown("perplexity").about, ["perplexity"]
            ),
        ),
        Part("Relevance", _relevance(material)),
    ]
    return _headed("The paper's tables", f"{KEY} {ABOUT}", parts)


def reverse_tables(material: Material) -> Section | None:
    """The same for the sessions that go back up the page, where the order of clicks matters most."""
    about = "Only the sessions in which some click is above the one before it. A model that only goes down the page never has their order right."
    return _headed("Reverse sessions", f"{about} {ABOUT}", _order_parts(material, "reverse"))


def _headed(title: str, about: str, parts: list[Part]) -> Section | None:
    """A section that begins with a few words, when it has anything else."""
    return (
        section(title, [Part("", paragraph(about, class_="about")), *parts])
        if any(part.body for part in parts)
        else None
    )


def _order_parts(material: Material, sessions: str) -> list[Part]:
    return [
        Part(
            "Sequences",
            explained(material, "Sequence accuracy", SEQUENCES, ACCURACY[1:5], sessions),
        ),
        Part(
            "Rank of the sequence",
            explained(material, "Rank of the observed sequence", RANK, RANKS, sessions),
        ),
        Part(
            "Whatever the order",
            explained(material, "Accuracy of the clicked set", SETS, ACCURACY[5:], sessions),
        ),
    ]


def explained(
    material: Material, caption: str, about: str, metrics: Sequence[str], sessions: str = "all"
) -> Html:
    """What some metrics are, their table, and how they go with the volume of the query; nothing where no model answers."""
    table = metric_table(
        material.results,
        caption + (", reverse sessions" if sessions == "reverse" else ""),
        metrics,
        sessions,
    )
    if not table:
        return table
    drawn = volume_figures(material, metrics, sessions)
    narrow = drawn and len(metrics) == 1
    return join(
        [
            paragraph(about, class_="about"),
            *(
                [element("div", element("div", table), element("div", drawn), class_="beside")]
                if narrow
                else [table, drawn]
            ),
        ]
    )


def _relevance(material: Material) -> Html:
    """The areas, and the precision-recall curves they are under."""
    labels = material.details.get("labels")
    told = paragraph(_labels_text(labels), class_="note") if labels else Html("")
    return join(
        [
            explained(material, "Relevance against labels", shown("pr_auc").about, ["pr_auc"]),
            told,
            _precision_recall(material),
        ]
    )


def _labels_text(labels: dict[str, float]) -> str:
    parts = [f"{amount(labels[name])} {name}" for name in ("pairs", "queries") if name in labels]
    relevant = f"relevant from label {labels['relevant_from']}" if "relevant_from" in labels else ""
    return (
        "Labels: "
        + ", ".join(part for part in (*parts, relevant) if part)
        + ". The paper prints one area, which it calls AUC."
    )


def _precision_recall(material: Material) -> Html:
    models = [
        model for model in material.results.models if (model, "precision_recall") in material.curves
    ]
    curves = {model: material.curves[model, "precision_recall"].points for model in models}
    if not curves:
        return Html("")
    series = [
        Series(model, material.styles[model], points)
        for model, points in curves.items()
        if model in material.styles
    ]
    least = min(point.y or 0.0 for points in curves.values() for point in points)
    x, y = (
        numbers("recall, %", (), percent=True, ends=(0, 1)),
        numbers("precision, %", (), percent=True, ends=(min(least, 0.95), 1)),
    )
    title = "Precision and recall of relevance"
    about = "A curve a model: precision against recall, over all labelled pairs. Higher is better. The numbers follow."
    picture = drawing(
        "precision recall", title, about, 280, plot(series, x, y, height=280, marks=8)
    )
    rows = (
        (f"{recall:.0%}", *(_precision(points, recall) for points in curves.values()))
        for recall in GRID
    )
    return join(
        [
            key(material),
            element(
                "div",
                figure(title, picture, data_table(title, ("Recall", *map(foreign, curves)), rows)),
                class_="figs",
            ),
        ]
    )


def _precision(points: Sequence[Point], recall: float) -> str:
    nearest = min(points, key=lambda point: abs(point.x - recall))
    return f"{100 * (nearest.y or 0.0):.1f} %"
