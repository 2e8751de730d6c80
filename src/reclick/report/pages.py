"""The report as one self-contained HTML file, as Markdown, and as text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from reclick.report.data import (
    EvaluationLike,
    ReportData,
    ScoreKey,
    ScoreTable,
    build_report_data,
)
from reclick.report.formatting import (
    DASH,
    display,
    format_count,
    format_interval,
    join_names,
    spell_number,
)
from reclick.report.markup import check_html_name, html_page
from reclick.report.sections.ads import ad_section
from reclick.report.sections.decision import decision_section, list_warnings, recommend
from reclick.report.sections.headline import (
    compared_headlines,
    comparison_section,
    describe,
    explain_intervals,
    summarise,
)
from reclick.report.sections.log import log_section
from reclick.report.sections.other_metrics import LIKELIHOODS, other_metric_section
from reclick.report.sections.published_tables import (
    RANK_METRICS,
    SEQUENCE_METRICS,
    SET_METRICS,
    paper_section,
)
from reclick.report.sections.reproduce import reproduce_section
from reclick.report.tables import (
    PUBLISHED_HEADER,
    PUBLISHED_NOTE,
    TABLE_KEY,
    TIE_MARK,
    has_published,
    published_text,
    value_text,
)
from reclick.runtime.filesystem import AnyPath, Location
from reclick.runtime.outputs import write_files, write_text

SECTIONS = (
    decision_section,
    ad_section,
    comparison_section,
    other_metric_section,
    log_section,
    paper_section,
    reproduce_section,
)


# ---- HTML


def write_html(evaluation: EvaluationLike, path: Location, *, overwrite: bool = False) -> AnyPath:
    """Write the report of an evaluation to a file, atomically."""
    target = check_html_name(path)
    page = render_html(evaluation)
    writers = {target.name: partial(write_text, text=page)}
    (report_path,) = write_files(target.parent, writers, overwrite=overwrite)
    return report_path


def render_html(evaluation: EvaluationLike) -> str:
    """The whole page; it loads no scripts, fonts or pictures."""
    data = build_report_data(evaluation)
    sections = [section for build in SECTIONS if (section := build(data))]
    return html_page(
        report_title(data),
        report_subtitle(data),
        sections,
        _footer(data),
        warnings=list_warnings(data),
    )


def report_title(data: ReportData) -> str:
    """The title of the report."""
    models, name = data.table.models, _test_log(data).get("name")
    suffix = f" on {name}" if name else ""
    if not models:
        names = list(data.details.get("models") or {})
        return f"What {join_names(names)} has learnt" if names else f"Nothing evaluated{suffix}"
    if len(models) == 1:
        return f"{models[0]} evaluated{suffix}"
    return f"{_count_models(data).capitalize()} compared{suffix}"


def report_subtitle(data: ReportData) -> str:
    """The models, and the number of test sessions."""
    profile_sessions = data.profile.sessions if data.profile else None
    sessions = _test_log(data).get("sessions") or profile_sessions
    names = list(data.table.models) or list(data.details.get("models") or {})
    models = join_names(names) if names else "No model"
    sessions_text = f", scored on {format_count(float(sessions))} test sessions" if sessions else ""
    return f"{models}{sessions_text}."


def _count_models(data: ReportData) -> str:
    """The number of models; one model with two settings is one model and two fits."""
    names, about = data.table.models, data.details.get("models") or {}
    models = {(about.get(name) or {}).get("model") or name for name in names}
    n = spell_number(len(names))
    if len(models) == len(names):
        return f"{n} click models"
    return f"{n} fits of {spell_number(len(models))} click model{'s' * (len(models) > 1)}"


def _test_log(data: ReportData) -> Mapping[str, Any]:
    return (data.details.get("logs") or {}).get("test") or {}


def _footer(data: ReportData) -> str:
    version = data.details.get("version")
    return (
        f"Made by Reclick{f' {version}' if version else ''} from aggregates of the log: this file"
        " contains no session and loads nothing from the network."
    )


# ---- Markdown

MARKDOWN_TABLES = (
    ("First click", ("first_click_accuracy",), "all"),
    ("Sequences", SEQUENCE_METRICS, "all"),
    ("Rank of the sequence, mean ± standard deviation", RANK_METRICS, "all"),
    ("In any order", SET_METRICS, "all"),
    ("Sessions with a backward click: sequences", SEQUENCE_METRICS[1:], "reverse"),
    ("Sessions with a backward click: rank of the sequence", RANK_METRICS[1:], "reverse"),
    ("Sessions with a backward click: in any order", SET_METRICS, "reverse"),
    ("Click probabilities", ("click_ratio", "perplexity", "calibration_error"), "all"),
    ("Likelihood", LIKELIHOODS, "all"),
    ("Relevance against labels", ("pr_auc", "roc_auc", "ndcg@5", "ndcg@10"), "all"),
)


def render_markdown(evaluation: EvaluationLike) -> str:
    """The summary and the main tables of an evaluation as Markdown."""
    data = build_report_data(evaluation)
    headlines = (
        f"- **{headline.name}.** {escape_markdown(describe(data, headline))}"
        for headline in compared_headlines(data)
    )
    parts = [
        f"# {escape_markdown(report_title(data))}",
        escape_markdown(report_subtitle(data)),
        *(f"> {escape_markdown(text)}" for text in list_warnings(data)),
        escape_markdown(recommend(data)),
        escape_markdown(summarise(data)),
        escape_markdown(explain_intervals(data)),
        "\n".join(headlines),
        escape_markdown(f"{TABLE_KEY} {PUBLISHED_NOTE}"),
        *(_markdown_table(data.table, *table) for table in MARKDOWN_TABLES),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape_markdown(text: str) -> str:
    r"""Escape the characters that have a meaning in Markdown.

    >>> escape_markdown("a|b *c*")
    'a\\|b \\*c\\*'
    """
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def _markdown_table(table: ScoreTable, title: str, metrics: Sequence[str], sessions: str) -> str:
    keys = [ScoreKey(metric, sessions) for metric in metrics]
    keys = [key for key in keys if table.values(key)]
    if not keys:
        return ""
    headers = ["Model", *(header for key in keys for header in _markdown_headers(table, key))]
    rule = ["---", *["---:"] * (len(headers) - 1)]
    rows = [
        [
            escape_markdown(model),
            *(cell for key in keys for cell in _markdown_cells(table, model, key)),
        ]
        for model in table.models
    ]
    lines = (f"| {' | '.join(row)} |" for row in (headers, rule, *rows))
    return "\n".join([f"## {title}", "", *lines])


def _markdown_headers(table: ScoreTable, key: ScoreKey) -> Iterator[str]:
    metric_display = display(key.metric)
    yield escape_markdown(metric_display.header + (" (%)" if metric_display.percent else ""))
    if has_published(table, key):
        yield f"*{PUBLISHED_HEADER}*"


def _markdown_cells(table: ScoreTable, model: str, key: ScoreKey) -> Iterator[str]:
    score, ranking = table.score(model, key), table.ranking(key)
    value = value_text(score, key.metric)
    if model in ranking.best:
        value = f"**{value}**"
    elif model in ranking.tied:
        value = f"{value} {TIE_MARK}"
    interval = escape_markdown(format_interval(score.low, score.high, key.metric))
    yield f"{value} {interval}".strip()
    if has_published(table, key):
        published_value = published_text(model, key)
        yield f"*{published_value}*" if published_value else ""


# ---- text

TEXT_COLUMNS = {
    "click_ratio": ("clicks", "{:.3f}"),
    "first_click_accuracy": ("first click", "{:.1%}"),
    "sequence_accuracy@2": ("2 clicks", "{:.1%}"),
    "top_accuracy@2": ("top 2", "{:.1%}"),
    "perplexity": ("perplexity", "{:.4f}"),
    "log_likelihood": ("sequence", "{:.4f}"),
    "log_set_likelihood": ("set", "{:.4f}"),
    "calibration_error": ("calibration", "{:.4f}"),
    "roc_auc": ("ROC-AUC", "{:.4f}"),
}


def render_text(evaluation: EvaluationLike) -> str:
    """The main metrics, a row per model; then the summary, and a sentence per headline metric."""
    data = build_report_data(evaluation)
    headlines = (
        f"{headline.name}. {describe(data, headline)}" for headline in compared_headlines(data)
    )
    parts = (
        f"{report_title(data)}: {report_subtitle(data)}",
        _text_table(data.table),
        "\n".join(list_warnings(data)),
        recommend(data),
        summarise(data),
        explain_intervals(data),
        "\n".join(headlines),
    )
    return "\n\n".join(part for part in parts if part)


def _text_table(table: ScoreTable) -> str:
    """A table of the main metrics; metrics without any value are left out."""
    metrics = [metric for metric in TEXT_COLUMNS if table.values(ScoreKey(metric))]
    width = max(map(len, table.models), default=0)
    rows = [[" " * width, *(f"{TEXT_COLUMNS[metric][0]:>11}" for metric in metrics)]]
    for model in table.models:
        rows.append([f"{model:<{width}}", *(_text_cell(table, model, m) for m in metrics)])
    return "\n".join(" ".join(row) for row in rows)


def _text_cell(table: ScoreTable, model: str, metric: str) -> str:
    value = table.score(model, ScoreKey(metric)).value
    text = DASH if value is None else TEXT_COLUMNS[metric][1].format(value).replace("-inf", "−∞")
    return f"{text:>11}"
