"""The headline of an evaluation as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from reclick.profile import Portrait
from reclick.report.data import gather
from reclick.report.formatting import DASH
from reclick.report.html_page import subtitle_of, title_of
from reclick.report.markdown_page import NO_CURVES
from reclick.report.narrative import answer, asked, caveat, verdict
from reclick.report.results import At, Results

COLUMNS = {
    "first_click_accuracy": ("first click", "{:.1%}"),
    "sequence_accuracy@2": ("2 clicks", "{:.1%}"),
    "top_accuracy@2": ("top 2", "{:.1%}"),
    "perplexity": ("perplexity", "{:.4f}"),
    "log_likelihood": ("sequence", "{:.4f}"),
    "log_set_likelihood": ("set", "{:.4f}"),
    "calibration_error": ("calibration", "{:.4f}"),
    "roc_auc": ("ROC-AUC", "{:.4f}"),
}


def text(
    scores: pa.Table, differences: pa.Table, portrait: Portrait | None, details: Mapping[str, Any]
) -> str:
    """What was compared; the main metrics, a row a model; who is best at how many questions; and each question's answer."""
    material = gather(scores, differences, NO_CURVES, portrait, details)
    answers = [
        f"{question.name}. {answer(material, question)}" for question in asked(material.results)
    ]
    compared = f"{title_of(material)}: {subtitle_of(material)}"
    return "\n\n".join(
        part
        for part in (
            compared,
            _table(material.results),
            verdict(material),
            caveat(material),
            "\n".join(answers),
        )
        if part
    )


def _table(results: Results) -> str:
    """A metric that no model answers is left out."""
    metrics = [metric for metric in COLUMNS if results.values(At(metric))]
    wide = max(map(len, results.models), default=0)
    head = " ".join([" " * wide, *(f"{COLUMNS[metric][0]:>11}" for metric in metrics)])
    return "\n".join(
        [
            head,
            *(
                " ".join(
                    [f"{model:<{wide}}", *(_cell(results, model, metric) for metric in metrics)]
                )
                for model in results.models
            ),
        ]
    )


def _cell(results: Results, model: str, metric: str) -> str:
    """A dash where the model cannot answer."""
    value = results.score(model, At(metric)).value
    cell = DASH if value is None else COLUMNS[metric][1].format(value).replace("-inf", "−∞")
    return f"{cell:>11}"
