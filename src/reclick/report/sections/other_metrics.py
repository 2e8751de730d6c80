"""What the paper did not have: likelihoods, perplexity by position, calibration, and how relevance orders ads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reclick.report.charts.by_volume import drawn_series, key
from reclick.report.charts.lines import Series, categories, numbers, plot, scales
from reclick.report.charts.svg import drawing, line
from reclick.report.data import Curve, Material
from reclick.report.formatting import amount, share, shown, written
from reclick.report.markup import Html, data_table, element, figure, foreign, join, paragraph
from reclick.report.results import At, Results
from reclick.report.section import Part, Section, section
from reclick.report.sections.published_tables import ACCURACY, RANKS, explained
from reclick.report.tables import metric_table

LIKELIHOODS = ("log_likelihood", "log_set_likelihood", "conditional_perplexity", "impossible")


def beyond_the_paper(material: Material) -> Section | None:
    """All metrics that stand in no table of the paper; every metric of the scores is in some table of the report."""
    results = material.results
    positions = [metric for metric in results.metrics() if metric.startswith("perplexity@")]
    labels = [
        metric for metric in results.metrics() if metric == "roc_auc" or metric.startswith("ndcg@")
    ]
    named = {
        *ACCURACY,
        *RANKS,
        *LIKELIHOODS,
        *positions,
        *labels,
        "perplexity",
        "calibration_error",
        "pr_auc",
    }
    parts = [
        Part("Likelihood", _meant(material, "Likelihood of what happened", LIKELIHOODS)),
        Part("Perplexity by position", _by_position(material, positions)),
        Part(
            "Calibration",
            join(
                [
                    _meant(material, "Calibration error", ["calibration_error"]),
                    _reliability(material),
                ]
            ),
        ),
        Part(
            "Relevance, other measures",
            _meant(material, "Relevance against labels, other measures", labels),
        ),
        Part(
            "Other metrics",
            _meant(
                material,
                "Other metrics",
                [metric for metric in results.metrics() if metric not in named],
            ),
        ),
        Part("On reverse sessions", _reverse(results)),
    ]
    return section("Beyond the paper", parts)


def _meant(material: Material, caption: str, metrics: Sequence[str]) -> Html:
    """A table and its drawings, after what each of its metrics means."""
    answered = [metric for metric in metrics if material.results.values(At(metric))]
    meanings = (
        join([element("b", f"{shown(metric).title}."), f" {shown(metric).about} "])
        for metric in answered
        if shown(metric).about
    )
    return explained(material, caption, join(meanings), answered)


def _reverse(results: Results) -> Html:
    """Whatever else was measured on reverse sessions."""
    left = [
        metric for metric in results.metrics("reverse") if metric not in {*ACCURACY[1:], *RANKS}
    ]
    return metric_table(results, "Other metrics on reverse sessions", left, "reverse", titles=True)


def _by_position(material: Material, metrics: list[str]) -> Html:
    if not metrics:
        return Html("")
    results = material.results
    table = metric_table(results, "Perplexity by position on the page", metrics)
    places = [At(metric) for metric in metrics]
    series = drawn_series(material, places)
    heights = [height for one in series for point in one.points for height in point.heights]
    if not heights:
        return table
    names = [metric.partition("@")[2] for metric in metrics]
    title = "Perplexity by position"
    about = "A line a model over the positions of a page, with interval whiskers. Lower is better. The numbers are in the table above."
    shapes = plot(series, categories("position", names), numbers("lower is better", heights))
    rows = (
        (foreign(model), *(written(results.score(model, at).value, at.metric) for at in places))
        for model in results.models
    )
    drawn = figure(
        title,
        drawing("perplexity by position", title, about, 224, shapes),
        data_table(title, ("Model", *names), rows),
    )
    return join([table, key(material), element("div", drawn, class_="figs")])


def _reliability(material: Material) -> Html:
    curves = {
        model: material.curves[model, "reliability"]
        for model in material.results.models
        if (model, "reliability") in material.curves
    }
    if not curves:
        return Html("")
    about = "On the dashed line, what is said is what comes: of the ads given a probability of 20 %, a fifth is clicked. Below it, too much is promised."
    return join(
        [
            paragraph(about, class_="about"),
            element("div", *_reliability_figures(material, curves), class_="figs"),
        ]
    )


def _reliability_figures(material: Material, curves: Mapping[str, Curve]) -> Iterator[Html]:
    """A drawing a model, all with the same ends so that they can be compared."""
    top = max(
        height
        for curve in curves.values()
        for point in curve.points
        for height in (point.x, *point.heights)
    )
    x, y = (
        numbers(label, (), percent=True, ends=(0, min(top * 1.04, 1) or 1))
        for label in ("predicted, %", "clicked, %")
    )
    across, up = scales(x, y, 270)
    diagonal = line(across(x.low), up(x.low), across(x.high), up(x.high), "diagonal")
    for number, (model, curve) in enumerate(curves.items(), start=1):
        series = Series(model, material.styles.get(model, 0), curve.points)
        error = material.results.score(model, At("calibration_error")).value
        note = "" if error is None else f"calibration error {written(error, 'calibration_error')}"
        about = f"Observed click rate against predicted click probability of {model}, {len(curve.points)} bins, with interval whiskers."
        picture = drawing(
            f"reliability {number}",
            f"Reliability of {model}",
            about,
            270,
            plot([series], x, y, height=270, under=[diagonal]),
        )
        yield figure(model, picture, _bins(model, curve), unit=note)


def _bins(model: str, curve: Curve) -> Html:
    rows = [
        (
            share(point.x, 2),
            share(point.y or 0.0, 2),
            _ends(point.low, point.high),
            "" if support is None else amount(support),
        )
        for point, support in zip(curve.points, curve.support, strict=True)
    ]
    return data_table(f"Reliability of {model}", ("Predicted", "Clicked", "Interval", "Ads"), rows)


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{100 * low:.2f}, {100 * high:.2f}]"
