"""The data of a report: scores, rankings, curves and facts about the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from reclick.metrics import loss
from reclick.profile import VOLUME_NAMES, LogProfile
from reclick.report.formatting import display

LEAKAGE_MARK = "†"  # marks a model that was fitted on sessions of the test log
MIN_SUPPORT = 100  # figures with fewer observations are not drawn, and a note reports it
MAX_SERIES = 8  # models in a chart, each with its own colour, dashes and marker
OVERALL_METRICS = (
    "first_click_accuracy",
    "sequence_accuracy@2",
    "top_accuracy@2",
    "perplexity",
    "log_set_likelihood",
    "calibration_error",
    "pr_auc",
)


class EvaluationLike(Protocol):
    """The attributes of an evaluation that the report needs."""

    @property
    def scores(self) -> pa.Table:
        """A row per model, metric, group of sessions and volume."""

    @property
    def differences(self) -> pa.Table:
        """A row per pair of models: paired differences."""

    @property
    def curves(self) -> pa.Table:
        """Points of reliability and precision-recall curves."""

    @property
    def profile(self) -> LogProfile | None:
        """The profile of the test log."""

    @property
    def details(self) -> Mapping[str, Any]:
        """Everything else, as JSON values."""


# ---- scores


class ScoreKey(NamedTuple):
    """The key of a score: a metric, a group of sessions and a query volume."""

    metric: str
    sessions: str = "all"
    volume: str = "all"


@dataclass(frozen=True, slots=True)
class Score:
    """A value with its standard deviation between sessions and its interval; None if unknown."""

    value: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    support: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """A model's value minus another's, on the same sessions."""

    difference: float
    low: float | None = None
    high: float | None = None

    @property
    def is_tie(self) -> bool:
        """Whether the interval includes 0; without an interval there is no tie."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Ranking:
    """The models ordered by one score."""

    order: tuple[str, ...]  # the models that have a value, best first
    best: tuple[str, ...]  # those with the best value
    tied: tuple[str, ...]  # models that are not significantly different from the best

    @property
    def leaders(self) -> tuple[str, ...]:
        """The best models, and those not significantly different from them."""
        return (*self.best, *self.tied)

    @property
    def behind(self) -> tuple[str, ...]:
        """The models that are significantly worse than the best."""
        return tuple(model for model in self.order if model not in self.leaders)


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Scores and paired differences by key."""

    models: tuple[str, ...]
    scores: Mapping[ScoreKey, Mapping[str, Score]]
    differences: Mapping[ScoreKey, Mapping[tuple[str, str], Difference]]
    reasons: Mapping[str, Mapping[str, str]]  # model → metric → why it has no value, if known

    def score(self, model: str, key: ScoreKey) -> Score:
        """The score of a model; empty if it has none."""
        return self.scores.get(key, {}).get(model, Score())

    def values(self, key: ScoreKey) -> dict[str, float]:
        """The values of the models that have one."""
        values = {model: self.score(model, key).value for model in self.models}
        return {model: value for model, value in values.items() if value is not None}

    def difference(self, model: str, against: str, key: ScoreKey) -> Difference | None:
        """The difference of two models; it may be stored in the opposite order."""
        differences = self.differences.get(key, {})
        if (model, against) in differences:
            return differences[model, against]
        if (against, model) not in differences:
            return None
        inverse = differences[against, model]
        return Difference(-inverse.difference, _negate(inverse.high), _negate(inverse.low))

    def ranking(self, key: ScoreKey) -> Ranking:
        """The models that have a value, best first, and those tied for best."""
        values = self.values(key)
        better = display(key.metric).better
        order = tuple(sorted(values, key=lambda model: loss(values[model], better)))
        if not order or math.isinf(values[order[0]]):
            return Ranking(order, (), ())
        best = tuple(model for model in order if values[model] == values[order[0]])
        differences = {model: self.difference(order[0], model, key) for model in order[len(best) :]}
        tied = tuple(
            model for model, difference in differences.items() if difference and difference.is_tie
        )
        return Ranking(order, best, tied)

    def metrics(self, sessions: str = "all") -> tuple[str, ...]:
        """The metrics that any model has for these sessions, in the order of the scores."""
        keys = (key for key in self.scores if key[1:] == (sessions, "all") and self.values(key))
        return tuple(dict.fromkeys(key.metric for key in keys))

    def volumes(self, metric: str, sessions: str = "all") -> tuple[str, ...]:
        """The volume buckets in which any model has a value, from rare to frequent."""
        keys = (key for key in self.scores if key[:2] == (metric, sessions) and self.values(key))
        present = {key.volume for key in keys} - {"all"}
        known_volumes = (volume for volume in VOLUME_NAMES if volume in present)
        return (*known_volumes, *sorted(present.difference(VOLUME_NAMES)))

    def support(self, key: ScoreKey) -> float | None:
        """The number of sessions, positions or pairs that the scores are based on."""
        scores = self.scores.get(key, {}).values()
        return max((score.support for score in scores if score.support is not None), default=None)


def build_score_table(
    scores: pa.Table, differences: pa.Table, reasons: Mapping[str, Mapping[str, str]]
) -> ScoreTable:
    """Index the tables of an evaluation by key."""
    by_key: dict[ScoreKey, dict[str, Score]] = {}
    fields = ("value", "deviation", "low", "high", "support")
    for row in scores.to_pylist():
        score = Score(*(not_nan(row[name]) for name in fields))
        by_key.setdefault(_row_key(row), {})[row["model"]] = score
    differences_by_key: dict[ScoreKey, dict[tuple[str, str], Difference]] = {}
    for row in differences.to_pylist():
        value = not_nan(row["difference"])
        if value is not None:
            difference = Difference(value, not_nan(row["low"]), not_nan(row["high"]))
            differences_by_key.setdefault(_row_key(row), {})[row["model"], row["against"]] = (
                difference
            )
    models = tuple(dict.fromkeys(scores["model"].to_pylist()))
    return ScoreTable(models, by_key, differences_by_key, reasons)


def is_enough(support: float | None) -> bool:
    """Whether there are enough observations to draw; True if the support is unknown."""
    return support is None or support >= MIN_SUPPORT


def not_nan(value: float | None) -> float | None:
    """A number, or None if it is missing or nan."""
    return None if value is None or math.isnan(value) else float(value)


def _row_key(row: Mapping[str, Any]) -> ScoreKey:
    return ScoreKey(row["metric"], row["sessions"], row["volume"])


def _negate(value: float | None) -> float | None:
    return None if value is None else -value


# ---- all data of a report


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a chart, with its interval if it has one."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None

    @property
    def heights(self) -> tuple[float, ...]:
        """The finite values of y and its interval, which the axis must include."""
        values = (self.y, self.low, self.high)
        return tuple(value for value in values if value is not None and math.isfinite(value))


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve of a model: its points, and the support of each point."""

    points: tuple[Point, ...]
    support: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class ReportData:
    """All data of a report."""

    table: ScoreTable
    curves: Mapping[tuple[str, str], Curve]  # (model, curve)
    profile: LogProfile | None
    details: Mapping[str, Any]
    styles: Mapping[str, int]  # model → style, of the models that charts show

    @property
    def recommended(self) -> str | None:
        """The model to use; None if nothing is scored."""
        name = self.details.get("recommended")
        return name if name in self.table.models else next(iter(self.table.models), None)


def build_report_data(evaluation: EvaluationLike) -> ReportData:
    """Collect the data of a report, and mark the names of models fitted on the test log."""
    about = evaluation.details.get("models") or {}
    names = {name: f"{name} {LEAKAGE_MARK}" for name in about if about[name].get("test_share")}
    models = {names.get(name, name): about_model for name, about_model in about.items()}
    reasons = {model: about_model.get("reasons") or {} for model, about_model in models.items()}
    scores, differences, curve_table = (
        _rename_models(rows, names)
        for rows in (evaluation.scores, evaluation.differences, evaluation.curves)
    )
    table = build_score_table(scores, differences, reasons)
    styles = {model: style for style, model in enumerate(_charted_models(table))}
    recommended = evaluation.details.get("recommended")
    details = {**evaluation.details, "models": models}
    details["recommended"] = names.get(recommended, recommended)
    return ReportData(table, _build_curves(curve_table), evaluation.profile, details, styles)


def _rename_models(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    for column in {"model", "against"} & set(table.column_names) if names else ():
        new_names = pa.array([names.get(name, name) for name in table[column].to_pylist()])
        table = table.set_column(table.column_names.index(column), column, new_names)
    return table


def _charted_models(table: ScoreTable) -> tuple[str, ...]:
    """The models that charts show: all, or the eight with the best mean rank."""
    if len(table.models) <= MAX_SERIES:
        return table.models
    orders = [table.ranking(ScoreKey(metric)).order for metric in OVERALL_METRICS]
    last = len(table.models)

    def total_rank(model: str) -> int:
        return sum(order.index(model) if model in order else last for order in orders if order)

    models_in_charts = sorted(table.models, key=total_rank)[:MAX_SERIES]
    return tuple(model for model in table.models if model in models_in_charts)


def _build_curves(table: pa.Table) -> dict[tuple[str, str], Curve]:
    rows_by_curve: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if not_nan(row["x"]) is not None and not_nan(row["y"]) is not None:
            rows_by_curve.setdefault((row["model"], row["curve"]), []).append(row)
    return {key: _build_curve(rows) for key, rows in rows_by_curve.items()}


def _build_curve(rows: list[dict[str, Any]]) -> Curve:
    sorted_rows = sorted(rows, key=lambda row: row["x"])
    points = tuple(
        Point(row["x"], row["y"], not_nan(row["low"]), not_nan(row["high"])) for row in sorted_rows
    )
    return Curve(points, tuple(not_nan(row["support"]) for row in sorted_rows))
