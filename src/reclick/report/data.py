"""Everything a report is made from, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from reclick.profile import Portrait
from reclick.report.charts.lines import STYLES, Point
from reclick.report.results import At, Results, number, read_results

SUBJECT = "multiclick"  # the paper's model: the report says how it fares, well or badly
RANKED_BY = (
    "first_click_accuracy",
    "sequence_accuracy@2",
    "top_accuracy@2",
    "perplexity",
    "log_set_likelihood",
    "calibration_error",
    "pr_auc",
)


class Evaluated(Protocol):
    """What the report needs of an evaluation."""

    @property
    def scores(self) -> pa.Table:
        """A row a model, metric, kind of sessions and volume."""

    @property
    def differences(self) -> pa.Table:
        """A row a pair of models, paired."""

    @property
    def curves(self) -> pa.Table:
        """Points of reliability and precision-recall curves."""

    @property
    def portrait(self) -> Portrait | None:
        """What the test log looks like."""

    @property
    def details(self) -> Mapping[str, Any]:
        """Everything else, as plain values."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve of a model: its points, and how much is behind each."""

    points: tuple[Point, ...]
    support: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """An evaluation, sorted for reading."""

    results: Results
    curves: Mapping[tuple[str, str], Curve]  # model, curve
    portrait: Portrait | None
    details: Mapping[str, Any]
    styles: Mapping[str, int]  # of the models that are drawn

    @property
    def subject(self) -> str | None:
        """The paper's model, when it is among those compared."""
        return next((model for model in self.results.models if model.casefold() == SUBJECT), None)


def gather(
    scores: pa.Table,
    differences: pa.Table,
    curves: pa.Table,
    portrait: Portrait | None,
    details: Mapping[str, Any],
) -> Material:
    """Sort the parts of an evaluation for reading."""
    reasons = {
        model: known.get("reasons") or {} for model, known in (details.get("models") or {}).items()
    }
    results = read_results(scores, differences, reasons)
    drawn = {model: style for style, model in enumerate(_drawn(results))}
    return Material(results, _curves(curves), portrait, details, drawn)


def _drawn(results: Results) -> tuple[str, ...]:
    """The models that drawings show: all, or the eight with the best mean rank where more would not be told apart."""
    if len(results.models) <= STYLES:
        return results.models
    rankings = [results.ranking(At(metric)).order for metric in RANKED_BY]
    asked = [order for order in rankings if order]
    last = len(results.models)
    mean = {
        model: sum(order.index(model) if model in order else last for order in asked)
        for model in results.models
    }
    best = sorted(results.models, key=lambda model: (model.casefold() != SUBJECT, mean[model]))[
        :STYLES
    ]
    return tuple(model for model in results.models if model in best)


def _curves(table: pa.Table) -> dict[tuple[str, str], Curve]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if number(row["x"]) is not None and number(row["y"]) is not None:
            found.setdefault((row["model"], row["curve"]), []).append(row)
    return {key: _curve(rows) for key, rows in found.items()}


def _curve(rows: list[dict[str, Any]]) -> Curve:
    ordered = sorted(rows, key=lambda row: row["x"])
    points = tuple(
        Point(row["x"], row["y"], number(row["low"]), number(row["high"])) for row in ordered
    )
    return Curve(points, tuple(number(row["support"]) for row in ordered))
