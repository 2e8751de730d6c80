"""The result of an evaluation: tables of scores, differences and curves, and their context."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reclick.data.counts import Counts
from reclick.data.frames import to_pandas, to_polars
from reclick.errors import SettingError, UsageError, check_whole
from reclick.evaluation.findings import collect_findings, recommend_model
from reclick.evaluation.inputs import EvaluationInputs, Leakage
from reclick.evaluation.views import ReliabilityCurves, ScoreView, TransitionShares
from reclick.metrics import ChunkSums
from reclick.models.base import ClickModel
from reclick.models.kernels.stops_and_transitions import pooled_events
from reclick.profile import LogProfile
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location
from reclick.runtime.notebook import render_card, render_table
from reclick.runtime.outputs import write_files, write_text
from reclick.runtime.wording import count_noun

EVALUATION_FILES = (
    *("scores.parquet", "differences.parquet", "curves.parquet"),
    *("evaluation.json", "report.md", "report.html"),
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of all models, their differences, and details of the evaluation.

    The report is made only from these.
    """

    scores: pa.Table  # model, metric, sessions, volume, value, deviation, low, high, support
    differences: pa.Table  # model, against, metric, sessions, volume, difference, low, high
    curves: pa.Table  # model, curve, x, y, low, high, support
    profile: LogProfile | None  # of the test log; None if there is none
    details: Mapping[str, Any]  # logs, models, settings: JSON values

    @property
    def warnings(self) -> list[str]:
        """Warnings about scores that are too optimistic: models fitted on test sessions."""
        return list(self.details.get("warnings") or ())

    @check_arguments
    def value(
        self, model: str, metric: str, *, sessions: str = "all", volume: str = "all"
    ) -> float | None:
        """One score; None if the model cannot answer."""
        key = {"model": model, "metric": metric, "sessions": sessions, "volume": volume}
        values = [
            row["value"]
            for row in self.scores.to_pylist()
            if all(row[name] == value for name, value in key.items())
        ]
        if not values:
            known_values = {name: self.scores[name].unique().to_pylist() for name in key}
            for name, value in key.items():
                if value not in known_values[name]:
                    raise SettingError(name, value, f"one of {', '.join(known_values[name])}")
            raise UsageError(f"There is no score of {key}.")
        return None if values[0] is None else float(values[0])

    @check_arguments
    def table(
        self, metrics: Sequence[str] | None = None, *, sessions: str = "all", volume: str = "all"
    ) -> pa.Table:
        """The scores as a table with a row per model and a column per metric.

        By default it has the main metrics over all sessions. `scores` has all, with intervals.
        """
        return self._view(metrics, sessions, volume).to_arrow()

    def to_pandas(self, metrics: Sequence[str] | None = None, **sessions: str) -> Any:
        """`table` as a pandas DataFrame, with the models as its index."""
        return to_pandas(self.table(metrics, **sessions)).set_index("model")

    def to_polars(self, metrics: Sequence[str] | None = None, **sessions: str) -> Any:
        """`table` as a Polars DataFrame."""
        return to_polars(self.table(metrics, **sessions))

    @check_arguments
    def to_latex(
        self,
        metrics: Sequence[str] | None = None,
        *,
        sessions: str = "all",
        volume: str = "all",
        digits: int = 4,
    ) -> str:
        """`table` as LaTeX with the rules of booktabs, the best value of each column in bold."""
        return self._view(metrics, sessions, volume).to_latex(check_whole("digits", digits, 0))

    @check_arguments
    def plot(
        self, metrics: Sequence[str] | None = None, *, sessions: str = "all", volume: str = "all"
    ) -> Any:
        """A matplotlib figure: a panel per metric with the models' values and intervals."""
        return self._view(metrics, sessions, volume).plot()

    @property
    def reliability(self) -> ReliabilityCurves:
        """Observed click rates by predicted probability; `.plot()` draws them."""
        is_reliability = pc.equal(self.curves["curve"], "reliability")
        return ReliabilityCurves(self.curves.filter(is_reliability))

    @property
    def transitions(self) -> TransitionShares:
        """Positions of the next click of the test log, given the last; `.plot()` draws them."""
        shares, fatigue = self.details["transitions"], self.details["fatigue"]
        return TransitionShares(tuple(map(tuple, shares)), tuple(fatigue))

    def _view(self, metrics: Sequence[str] | None, sessions: str, volume: str) -> ScoreView:
        return ScoreView.select(self.scores, metrics, sessions=sessions, volume=volume)

    def _repr_html_(self) -> str:
        if self.profile is None:
            return render_card("Evaluation", {}, repr(self), "")
        view = self._view(None, "all", "all")
        best = {(row, column + 1) for row, column in view.best()}
        header = ["", *view.titles()]
        note = f"{self.profile.sessions:,.0f} test sessions. Bold is the best of a column."
        table = render_table(header, view.cells(4), best)
        return render_card("Evaluation", {}, " ".join([note, *self.warnings]), table)

    @check_arguments
    def to_html(self, path: Location, *, overwrite: bool = False) -> AnyPath:
        """Write the report as one self-contained HTML file.

        A file that Reclick did not write is replaced only with `overwrite`.
        """
        from reclick.report import write_html

        return write_html(self, path, overwrite=overwrite)

    def to_markdown(self) -> str:
        """The main tables as Markdown."""
        from reclick.report import render_markdown

        return render_markdown(self)

    @check_arguments
    def save(self, folder: Location, *, overwrite: bool = False) -> list[AnyPath]:
        """Write tables as Parquet, details as JSON, and the report as Markdown and HTML.

        The files appear together when all are complete; files that Reclick did not write are
        replaced only with `overwrite`.
        """
        from reclick.report import render_html

        tables = {
            "scores.parquet": self.scores,
            "differences.parquet": self.differences,
            "curves.parquet": self.curves,
        }
        profile = None if self.profile is None else self.profile.to_dict()
        content = {"profile": profile, "details": self.details}
        texts = {
            "evaluation.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n",
            "report.md": self.to_markdown(),
            "report.html": render_html(self),
        }
        write_table = partial(pq.write_table, compression="zstd")
        table_writers = {name: partial(write_table, table) for name, table in tables.items()}
        text_writers = {name: partial(write_text, text=text) for name, text in texts.items()}
        return write_files(folder, {**table_writers, **text_writers}, overwrite=overwrite)

    def __str__(self) -> str:
        """The main metrics with a row per model, and the best models by metric."""
        from reclick.report import render_text

        return render_text(self)

    def __repr__(self) -> str:
        models = ", ".join(self.scores["model"].unique().to_pylist())
        if self.profile is None:
            return f"Evaluation({', '.join(self.details['models'])}, not scored)"
        sessions = count_noun(self.profile.sessions, "session")
        return f"Evaluation({models} on {sessions}, {count_noun(len(self.scores), 'score')})"


class ScoredModel(NamedTuple):
    """A fitted model with its sums over the test log, and how long both took."""

    model: ClickModel
    sums: ChunkSums
    seconds: dict[str, float | None]  # None if it was already fitted


def collect_details(
    scored_models: Mapping[str, ScoredModel],
    inputs: EvaluationInputs,
    leakage: Leakage,
    scores: pa.Table,
) -> dict[str, Any]:
    """The logs and models of an evaluation and facts about them, as JSON values.

    Ads and words are evaluated by the recommended model, or the first one that has satisfaction.
    """
    recommended_model = recommend_model(scores, in_sample_models=leakage.shares)
    names = sorted(scored_models, key=lambda name: name != recommended_model)
    source = next((name for name in names if scored_models[name].model.satisfaction), None)
    model = None if source is None else scored_models[source].model
    return {
        "logs": {name: log.describe() for name, log in inputs.logs.items()},
        "models": {
            name: {**_describe_scored(scored_model), "test_share": leakage.shares.get(name, 0.0)}
            for name, scored_model in scored_models.items()
        },
        "warnings": leakage.warnings,
        **transition_shares(inputs.test.counts),
        "recommended": recommended_model,
        "findings_from": source,
        **collect_findings(model, inputs.text),
    }


def describe_fit(model: ClickModel) -> dict[str, Any]:
    """The name, the settings and the fit of a model, as JSON values."""
    return {
        "model": model.name,
        "settings": model.get_params(),
        "assumes": model.assumes,
        "ordered": model.ordered,
        "fit": getattr(model, "message_", ""),
    }


def _describe_scored(scored_model: ScoredModel) -> dict[str, Any]:
    reasons = dict(scored_model.sums.reasons)
    return {**describe_fit(scored_model.model), "seconds": scored_model.seconds, "reasons": reasons}


# ---- facts about the logs


def transition_shares(counts: Counts) -> dict[str, Any]:
    """Shares of transitions from each last click (row 0: start), and of sessions that end.

    The latter are the shares of sessions with at least k clicks that end after exactly k. Both come
    with their support, in clicks or sessions.
    """
    exactly, more, transitions = pooled_events(counts)
    rows = transitions.sum(axis=1, keepdims=True)
    shares = np.divide(transitions, rows, out=np.zeros_like(transitions), where=rows > 0)
    at_least = exactly + more
    has_sessions = at_least > 0
    return {
        "transitions": shares.tolist(),
        "transition_support": rows[:, 0].tolist(),
        "fatigue": (exactly[has_sessions] / at_least[has_sessions]).tolist(),
        "fatigue_support": at_least[has_sessions].tolist(),
    }
