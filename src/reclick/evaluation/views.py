"""Parts of an evaluation that can be plotted: scores, reliability, transitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.frames import format_latex
from reclick.errors import SettingError
from reclick.metrics import LABEL_METRICS, SESSION_METRICS, MetricInfo, loss
from reclick.runtime.arguments import check_arguments
from reclick.runtime.plots import (
    IntervalCurve,
    IntervalPanel,
    plot_curves,
    plot_intervals,
    plot_transitions,
)

MAIN_METRICS = ("first_click_accuracy", "perplexity", "log_set_likelihood", "calibration_error")
METRICS: dict[str, MetricInfo] = {**SESSION_METRICS, **LABEL_METRICS}
ALL = "all"


@dataclass(frozen=True)
class ScoreView:
    """The scores of all models on a set of sessions: a row per model, a column per metric."""

    scores: pa.Table  # model, metric, value, low, high
    metrics: tuple[str, ...]

    @classmethod
    def select(
        cls, scores: pa.Table, metrics: Sequence[str] | None, *, sessions: str, volume: str
    ) -> ScoreView:
        """Select the scores of some sessions and query volumes; by default, of the main metrics."""
        for name, value in {"sessions": sessions, "volume": volume}.items():
            known_names = scores[name].unique().to_pylist()
            if value not in known_names:
                raise SettingError(name, value, f"one of {', '.join(map(repr, known_names))}")
        rows = scores.filter(
            pc.and_(pc.equal(scores["sessions"], sessions), pc.equal(scores["volume"], volume))
        )
        known_names = rows["metric"].unique().to_pylist()
        selection = (
            [metric for metric in MAIN_METRICS if metric in known_names]
            if metrics is None
            else metrics
        )
        if len(selection) == 0:
            raise SettingError(
                "metrics", metrics, f"one or more of {', '.join(map(repr, known_names))}"
            )
        for metric in selection:
            if not isinstance(metric, str) or metric not in known_names:
                raise SettingError("metrics", metric, f"one of {', '.join(map(repr, known_names))}")
        return cls(rows, tuple(selection))

    @property
    def models(self) -> list[str]:
        """The models, in the order of the evaluation."""
        return list(self.scores["model"].unique().to_pylist())

    def to_arrow(self) -> pa.Table:
        """A row per model: its name, and the value of each metric."""
        columns = {metric: self.column(metric) for metric in self.metrics}
        return pa.table({"model": self.models, **columns})

    def column(self, metric: str, end: str = "value") -> pa.Array:
        """The values of a metric [model], or an end of their intervals."""
        rows = self.scores.filter(pc.equal(self.scores["metric"], metric))
        by_model = dict(zip(rows["model"].to_pylist(), rows[end].to_pylist(), strict=True))
        return pa.array([by_model.get(model) for model in self.models], pa.float64())

    def best(self) -> set[tuple[int, int]]:
        """The cells (model, metric) with the best value of their column, including ties."""
        cells = set()
        for index, metric in enumerate(self.metrics):
            better = METRICS[metric].better
            values = [
                -math.inf if value is None or math.isnan(value) else -loss(value, better)
                for value in self.column(metric).to_pylist()
            ]
            top = max(values)
            if math.isfinite(top):
                cells |= {(row, index) for row, value in enumerate(values) if value == top}
        return cells

    def titles(self) -> list[str]:
        """The titles of the metrics."""
        return [METRICS[metric].title for metric in self.metrics]

    def cells(self, digits: int) -> list[list[str]]:
        """The table as text [model][1 + metric]."""
        columns = [self.column(metric).to_pylist() for metric in self.metrics]
        return [
            [model, *(_format(column[row], digits) for column in columns)]
            for row, model in enumerate(self.models)
        ]

    def to_latex(self, digits: int) -> str:
        """The table as LaTeX, the best value of each column in bold."""
        best = self.best()
        right = [False, *[True] * len(self.metrics)]
        return format_latex(
            ["Model", *self.titles()],
            self.cells(digits),
            right,
            bold=lambda row, column: (row, column - 1) in best,
        )

    def plot(self) -> Any:
        """A panel per metric with the values of all models and their intervals."""
        panels = [
            IntervalPanel(title, *(_numbers(self.column(metric, end)) for end in ENDS))
            for title, metric in zip(self.titles(), self.metrics, strict=True)
        ]
        return plot_intervals(self.models, panels)


ENDS = ("value", "low", "high")


@dataclass(frozen=True)
class ReliabilityCurves:
    """Observed click rates by predicted probability; calibrated models follow the diagonal."""

    curves: pa.Table  # model, curve, x, y, low, high, support

    @check_arguments
    def plot(self, models: Sequence[str] | None = None) -> Any:
        """Plot the curves of some models (by default all) with their intervals."""
        known_names = self.curves["model"].unique().to_pylist()
        selection = known_names if models is None else list(models)
        if not selection:
            raise SettingError("models", models, f"some of {', '.join(map(repr, known_names))}")
        for model in selection:
            if not isinstance(model, str) or model not in known_names:
                raise SettingError("models", model, f"one of {', '.join(map(repr, known_names))}")
        return plot_curves(
            {model: self._curve(model) for model in selection},
            title="Reliability",
            x="predicted click probability",
            y="observed click rate",
            diagonal=True,
        )

    def _curve(self, model: str) -> IntervalCurve:
        rows = self.curves.filter(pc.equal(self.curves["model"], model)).sort_by("x")
        x, y, low, high = (_numbers(rows[name]) for name in ("x", "y", "low", "high"))
        return IntervalCurve(x, y, low, high)


@dataclass(frozen=True)
class TransitionShares:
    """Positions of the next click, given the last one: shares of the clicks of a log."""

    shares: tuple[tuple[float, ...], ...]  # [last click, position]; row 0 is the start
    fatigue: tuple[float, ...]  # share of sessions with at least k clicks that end after k

    def plot(self) -> Any:
        """Plot the shares as a matrix: a row per last click, a column per next click."""
        return plot_transitions(np.array(self.shares, np.float64))


def _numbers(values: Any) -> Any:
    return np.array([math.nan if value is None else value for value in values.to_pylist()], float)


def _format(value: float | None, digits: int) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}" if math.isfinite(value) else ("∞" if value > 0 else "−∞")
