"""Tables of metrics: a row per model, its value and interval, and the published figure.

The published figures are of Bing's log, so they are shown but not compared. They are from:
Govindaraj, Wang, Vishwanathan: Modeling Attractiveness and Multiple Clicks in Sponsored Search
Results (2014).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reclick.report.data import Ranking, Score, ScoreKey, ScoreTable
from reclick.report.formatting import (
    DASH,
    display,
    format_count,
    format_interval,
    format_number,
    format_share,
    format_value,
    join_names,
)
from reclick.report.markup import Html, element, isolate, join, paragraph, scroll_box

TIE_MARK = "≈"
MAX_COLUMNS = 6  # more do not fit on a printed page
TABLE_KEY = (
    f"Bold is the best of a column; {TIE_MARK} marks a model that is not significantly different"
    " from it: the interval of their paired difference includes 0. Below a value is its interval;"
    " n is the number of sessions, positions or pairs behind a column."
)

# ---- published figures

PUBLISHED_LOG = "Bing"
PUBLISHED_HEADER = "paper (Bing)"  # of a column
PUBLISHED_NOTE = (
    f"The columns headed “{PUBLISHED_HEADER}” are the figures published in 2014, of Bing's log."
    " They are of other data, so they are not a benchmark for this log."
)


class PublishedFigure(NamedTuple):
    """A published figure, with its standard deviation if there is one."""

    value: float
    deviation: float | None = None


def _shares(**percents: float) -> dict[str, PublishedFigure]:
    return {model: PublishedFigure(percent / 100) for model, percent in percents.items()}


# (metric, sessions) → model → figure
PUBLISHED_FIGURES: dict[tuple[str, str], dict[str, PublishedFigure]] = {
    ("first_click_accuracy", "all"): _shares(
        MultiClick=79.59, DBN=72.7, ICM=71.7, PM=72.27, AM=73.5
    ),
    ("sequence_accuracy@2", "all"): _shares(
        MultiClick=36.71, DBN=33.79, PM=29.35, AM=25.44, ICM=10.94
    ),
    ("sequence_accuracy@3", "all"): _shares(
        MultiClick=32.26, DBN=31.27, PM=23.54, AM=12.80, ICM=23.55
    ),
    ("sequence_accuracy@4", "all"): _shares(
        MultiClick=47.94, DBN=48.58, PM=48.58, AM=6.86, ICM=48.58
    ),
    ("rank@1", "all"): {"MultiClick": PublishedFigure(1.25, 0.62)},
    ("rank@2", "all"): {"MultiClick": PublishedFigure(2.25, 2.27)},
    ("rank@3", "all"): {"MultiClick": PublishedFigure(2.67, 4.17)},
    ("rank@4", "all"): {"MultiClick": PublishedFigure(1.87, 3.36)},
    ("top_accuracy@2", "all"): _shares(MultiClick=54.93, DBN=51.11, PM=43.89, AM=48.5, ICM=16.07),
    ("top_accuracy@3", "all"): _shares(MultiClick=62.46, DBN=59.14, PM=44.98, AM=59.7, ICM=45.01),
    ("sequence_accuracy@2", "reverse"): _shares(MultiClick=8.1, DBN=0, PM=0, AM=17.7),
    ("sequence_accuracy@3", "reverse"): _shares(MultiClick=0.6, DBN=0, PM=0, AM=9.4),
    ("sequence_accuracy@4", "reverse"): _shares(MultiClick=0.1, DBN=0, PM=0, AM=3.9),
    ("rank@2", "reverse"): {"MultiClick": PublishedFigure(3.15, 3.01)},
    ("rank@3", "reverse"): {"MultiClick": PublishedFigure(3.89, 5.46)},
    ("rank@4", "reverse"): {"MultiClick": PublishedFigure(2.67, 4.56)},
    ("top_accuracy@2", "reverse"): _shares(
        MultiClick=55.74, DBN=51.12, PM=45.66, AM=49.5, ICM=16.09
    ),
    ("top_accuracy@3", "reverse"): _shares(
        MultiClick=61.51, DBN=58.20, PM=44.74, AM=59.14, ICM=44.75
    ),
    ("perplexity", "all"): {
        "MultiClick": PublishedFigure(1.1932),
        "DBN": PublishedFigure(1.1984),
    },
    ("pr_auc", "all"): {"MultiClick": PublishedFigure(0.8653), "DBN": PublishedFigure(0.7843)},
}

# Table 1: clicked sessions by query volume relative to the first bucket, shares of 1 … 4 clicks
PUBLISHED_BY_VOLUME: dict[str, tuple[float, tuple[float, float, float, float]]] = {
    "0-10": (1.0, (0.916, 0.073, 0.01, 0.001)),
    "10-50": (0.39, (0.915, 0.073, 0.011, 0.001)),
    "50-100": (0.16, (0.923, 0.066, 0.01, 0.001)),
    "100-500": (0.37, (0.935, 0.057, 0.007, 0.001)),
    "500-1000": (0.15, (0.954, 0.041, 0.0042, 0.0008)),
    ">1000": (1.0, (0.9794, 0.019, 0.0015, 0.0001)),
}

PUBLISHED_FIRST_CLICKS = (0.708, 0.163, 0.0787, 0.0503)  # Table 2, by position
PUBLISHED_MULTI_CLICK_SHARE = 0.10  # of clicked sessions, "about"
PUBLISHED_REVERSE_SHARE = 0.30  # of multi-click sessions, "about"


def published_figure(model: str, key: ScoreKey) -> PublishedFigure | None:
    """The published figure of a model, for its name in upper or lower case.

    >>> published_figure("dbn", ScoreKey("perplexity"))
    PublishedFigure(value=1.1984, deviation=None)
    """
    figures = PUBLISHED_FIGURES.get((key.metric, key.sessions), {})
    by_name = {name.casefold(): figure for name, figure in figures.items()}
    return by_name.get(model.casefold())


def has_published(table: ScoreTable, key: ScoreKey) -> bool:
    """Whether there is a published figure for any of the models."""
    return any(published_figure(model, key) for model in table.models)


def published_text(model: str, key: ScoreKey) -> str:
    """A published figure as printed in the paper, or an empty text."""
    figure = published_figure(model, key)
    if figure is None:
        return ""
    deviation = "" if figure.deviation is None else f"\u00a0± {figure.deviation:.2f}"
    return format_value(figure.value, key.metric) + deviation


# ---- tables of metrics


def metric_table(
    table: ScoreTable,
    caption: str,
    metrics: Sequence[str],
    sessions: str = "all",
    *,
    titles: bool = False,
) -> Html:
    """Tables of metrics over all volumes, with footnotes; empty without any value."""
    keys = [ScoreKey(metric, sessions) for metric in metrics]
    keys = [key for key in keys if table.values(key)]
    n_tables = -(-len(keys) // MAX_COLUMNS)
    size = -(-len(keys) // max(n_tables, 1))
    tables = (
        _html_table(
            table,
            caption + (f", part {part + 1} of {n_tables}" if n_tables > 1 else ""),
            keys[part * size : (part + 1) * size],
            titles,
        )
        for part in range(n_tables)
    )
    return join([*tables, paragraph(join(_footnotes(table, keys), " "), class_="note")])


def value_text(score: Score, metric: str) -> str:
    """A value, with its deviation unless the metric is a share."""
    text = format_value(score.value, metric)
    if score.value is None or score.deviation is None or display(metric).percent:
        return text
    return f"{text} ± {format_number(score.deviation, 2)}"


def _html_table(table: ScoreTable, caption: str, keys: Sequence[ScoreKey], titles: bool) -> Html:
    displays = [display(key.metric) for key in keys]
    names = [
        metric_display.title if titles else metric_display.header for metric_display in displays
    ]
    parts = (
        element("caption", caption, class_="hidden"),
        element("thead", *_header_rows(table, keys, names)),
        element("tbody", *(_model_row(table, model, keys) for model in table.models)),
        element("tfoot", _support_row(table, keys)),
    )
    return scroll_box(element("table", *parts), caption)


def _header_rows(
    table: ScoreTable, keys: Sequence[ScoreKey], names: Sequence[str]
) -> Iterator[Html]:
    """Two rows if any column has a published figure next to it, else one."""
    two_rows = any(has_published(table, key) for key in keys)
    rowspan = "2" if two_rows else None
    first = [element("th", "Model", scope="col", rowspan=rowspan)]
    second = []
    for key, name in zip(keys, names, strict=True):
        unit = " (%)" if display(key.metric).percent else ""
        if not has_published(table, key):
            first.append(element("th", name + unit, scope="col", rowspan=rowspan))
            continue
        first.append(element("th", name + unit, scope="colgroup", colspan="2"))
        second += [
            element("th", "here", scope="col"),
            element("th", PUBLISHED_HEADER, scope="col", class_="published"),
        ]
    yield element("tr", *first)
    if two_rows:
        yield element("tr", *second)


def _model_row(table: ScoreTable, model: str, keys: Sequence[ScoreKey]) -> Html:
    cells = [element("th", isolate(model), scope="row")]
    for key in keys:
        cells.append(_value_cell(table, model, key, table.ranking(key)))
        if has_published(table, key):
            cells.append(element("td", published_text(model, key), class_="published"))
    return element("tr", *cells)


def _value_cell(table: ScoreTable, model: str, key: ScoreKey, ranking: Ranking) -> Html:
    score = table.score(model, key)
    if score.value is None:
        reason = f"{model}: {_missing_reason(table, model, key)}"
        return element("td", element("abbr", DASH, title=reason))
    is_best, text = model in ranking.best, value_text(score, key.metric)
    parts: list[str] = [element("b", text) if is_best else text]
    if model in ranking.tied:
        title = "not significantly different from the best"
        parts.append(element("span", TIE_MARK, class_="tie", title=title))
    parts.append(element("small", _text_below(table, model, key, score)))
    return element("td", *parts, class_="best" if is_best else None)


def _text_below(table: ScoreTable, model: str, key: ScoreKey, score: Score) -> str:
    """The interval of a value, or the share of sessions that make it infinite."""
    if score.value is None or not math.isinf(score.value):
        return format_interval(score.low, score.high, key.metric)
    impossible = table.score(model, key._replace(metric="impossible")).value
    # clicks with zero probability in their order may be possible in another order
    return "" if impossible is None else f"≤ {format_share(impossible, 2)} impossible"


def _support_row(table: ScoreTable, keys: Sequence[ScoreKey]) -> Html:
    cells = [element("th", "n", scope="row")]
    for key in keys:
        support = table.support(key)
        cells.append(element("td", "" if support is None else format_count(support)))
        if has_published(table, key):
            cells.append(element("td", class_="published"))
    return element("tr", *cells)


def _missing_reason(table: ScoreTable, model: str, key: ScoreKey) -> str:
    if table.score(model, key).support == 0:
        return "the log has no such session."
    reason = table.reasons.get(model, {}).get(key.metric)
    return reason or f"no value, since {display(key.metric).missing}."


def _footnotes(table: ScoreTable, keys: Sequence[ScoreKey]) -> Iterator[str]:
    """Explain the dashes and infinities of this table."""
    models_by_reason: dict[str, dict[str, None]] = {}
    for key in keys:
        for model in table.models:
            if table.score(model, key).value is None:
                reason = _missing_reason(table, model, key)
                models_by_reason.setdefault(reason, {})[model] = None
    for reason, models in models_by_reason.items():
        yield f"{DASH} {join_names(list(models))}: {reason}"
    if any(math.isinf(value) for key in keys for value in table.values(key).values()):
        yield (
            "∞: the model assigns zero probability to some observed session; below it, the share"
            " of such sessions."
        )
