"""Metrics that are not in the paper: likelihoods, perplexity by position, calibration, NDCG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reclick.report.charts.lines import (
    Series,
    category_axis,
    chart_scales,
    line_chart,
    model_series,
    number_axis,
    small_multiples,
)
from reclick.report.charts.svg import svg_chart, svg_line
from reclick.report.data import (
    MIN_SUPPORT,
    Curve,
    Point,
    ReportData,
    ScoreKey,
    ScoreTable,
    is_enough,
)
from reclick.report.formatting import (
    display,
    format_count,
    format_share,
    format_value,
    spell_number,
)
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
from reclick.report.sections.published_tables import PAPER_METRICS, metric_report
from reclick.report.tables import metric_table

LIKELIHOODS = ("log_likelihood", "log_set_likelihood", "conditional_perplexity", "impossible")
RELIABILITY_HEIGHT = 270


def other_metric_section(data: ReportData) -> Section | None:
    """All metrics that are not in the tables of the paper, so that every score is in a table."""
    metrics = data.table.metrics()
    positions = [metric for metric in metrics if metric.startswith("perplexity@")]
    ranking = [m for m in metrics if m == "roc_auc" or m.startswith("ndcg@")]
    metrics_elsewhere = {
        *PAPER_METRICS,
        *LIKELIHOODS,
        *positions,
        *ranking,
        "perplexity",
        "calibration_error",
        "click_ratio",
        "pr_auc",
    }
    further_metrics = [metric for metric in metrics if metric not in metrics_elsewhere]
    calibration = _explained_report(data, "Calibration", ["click_ratio", "calibration_error"])
    return make_section(
        "Other metrics",
        [
            Subsection(
                "Likelihood",
                _explained_report(data, "Likelihood of the observed clicks", LIKELIHOODS),
            ),
            Subsection("Perplexity by position", _perplexity_by_position(data, positions)),
            Subsection("Calibration", join([calibration, _reliability(data)])),
            Subsection(
                "Relevance, other measures",
                _explained_report(data, "Relevance against labels, other measures", ranking),
            ),
            Subsection(
                "Further metrics", _explained_report(data, "Further metrics", further_metrics)
            ),
            Subsection("On sessions with a backward click", _reverse_table(data.table)),
        ],
    )


def _explained_report(data: ReportData, caption: str, metrics: Sequence[str]) -> Html:
    """Explanations of metrics, with their table and charts."""
    metrics_with_values = [metric for metric in metrics if data.table.values(ScoreKey(metric))]
    displays = [display(metric) for metric in metrics_with_values]
    meanings = (
        join([element("b", f"{metric_display.title}."), f" {metric_display.about} "])
        for metric_display in displays
        if metric_display.about
    )
    return metric_report(data, caption, join(meanings), metrics_with_values)


def _reverse_table(table: ScoreTable) -> Html:
    """All other metrics of reverse sessions."""
    paper = {*PAPER_METRICS} - {"first_click_accuracy"}
    metrics = [metric for metric in table.metrics("reverse") if metric not in paper]
    caption = "Other metrics on sessions with a backward click"
    return metric_table(table, caption, metrics, "reverse", titles=True)


def _perplexity_by_position(data: ReportData, metrics: list[str]) -> Html:
    if not metrics:
        return Html("")
    table = metric_table(data.table, "Perplexity by position on the page", metrics)
    keys = [ScoreKey(metric) for metric in metrics]
    series = model_series(data, keys)
    heights = [height for line in series for point in line.points for height in point.heights]
    if not heights:
        return table
    positions = [metric.partition("@")[2] for metric in metrics]
    title = "Perplexity by position"
    about = (
        "A chart per model over the positions of a page, with interval whiskers. Lower is better."
        " The numbers are in the table above."
    )
    y = number_axis("lower is better", heights)
    shapes, height = small_multiples(series, category_axis("position", positions), y)
    chart = svg_chart("perplexity by position", title, about, height, shapes)
    rows = ((isolate(model), *_values(data.table, model, keys)) for model in data.table.models)
    numbers = data_table(title, ("Model", *positions), rows)
    charts = element("div", figure(title, chart, numbers), class_="figs")
    return join([table, charts])


def _values(table: ScoreTable, model: str, keys: Sequence[ScoreKey]) -> Iterator[str]:
    return (format_value(table.score(model, key).value, key.metric) for key in keys)


# ---- reliability


def _reliability(data: ReportData) -> Html:
    name = "reliability"
    curves = {
        model: data.curves[model, name]
        for model in data.table.models
        if (model, name) in data.curves
    }
    if not curves:
        return Html("")
    about = (
        "On the dashed line predictions are right: of the ads with a predicted click probability of"
        " 20 %, a fifth is clicked. Below it, predictions are too high."
    )
    figures = element("div", *_reliability_figures(data, curves), class_="figs")
    return join([paragraph(about, class_="about"), figures])


def _reliability_figures(data: ReportData, curves: Mapping[str, Curve]) -> Iterator[Html]:
    """A chart per model; all have the same axes, so that they can be compared."""
    points_by_model = {model: _supported_points(curve) for model, curve in curves.items()}
    points = [point for model_points in points_by_model.values() for point in model_points]
    heights = (height for point in points for height in (point.x, *point.heights))
    highest = max(heights, default=1.0)
    ends = (0, min(highest * 1.04, 1) or 1)
    x, y = (
        number_axis(label, (), percent=True, ends=ends) for label in ("predicted, %", "clicked, %")
    )
    across, up = chart_scales(x, y, RELIABILITY_HEIGHT)
    diagonal = svg_line(across(x.low), up(x.low), across(x.high), up(x.high), "diagonal")
    for number, (model, curve) in enumerate(curves.items(), start=1):
        series = Series(model, data.styles.get(model, 0), points_by_model[model])
        shapes = line_chart([series], x, y, height=RELIABILITY_HEIGHT, background=[diagonal])
        about = (
            f"Observed click rate against predicted click probability of {model},"
            f" {len(points_by_model[model])} bins, with interval whiskers."
        )
        title = f"Reliability of {model}"
        chart = svg_chart(f"reliability {number}", title, about, RELIABILITY_HEIGHT, shapes)
        error = data.table.score(model, ScoreKey("calibration_error")).value
        value = format_value(error, "calibration_error")
        notes = [] if error is None else [f"calibration error {value}"]
        if n_small := len(curve.points) - len(points_by_model[model]):
            bins = f"{spell_number(n_small)} bin{'s' * (n_small > 1)}"
            notes.append(f"{bins} of fewer than {MIN_SUPPORT} ads not drawn")
        unit = "; ".join(notes)
        yield figure(model, chart, _bin_table(title, curve), unit=unit)


def _supported_points(curve: Curve) -> tuple[Point, ...]:
    """The bins that have enough ads to be drawn."""
    pairs = zip(curve.points, curve.support, strict=True)
    return tuple(point for point, support in pairs if is_enough(support))


def _bin_table(title: str, curve: Curve) -> Html:
    rows = [
        (
            format_share(point.x, 2),
            format_share(point.y or 0.0, 2),
            _percent_interval(point.low, point.high),
            "" if support is None else format_count(support),
        )
        for point, support in zip(curve.points, curve.support, strict=True)
    ]
    return data_table(title, ("Predicted", "Clicked", "Interval", "Ads"), rows)


def _percent_interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{100 * low:.2f}, {100 * high:.2f}]"
