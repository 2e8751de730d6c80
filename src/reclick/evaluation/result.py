"""The result of an evaluation: tables of scores, differences and curves, and their context."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reclick.data.counts import Counts
from reclick.data.frames import to_pandas, to_polars
from reclick.data.ragged import Float64, Int64
from reclick.errors import check_whole
from reclick.evaluation.inputs import EvaluationInputs, Leakage
from reclick.evaluation.views import ReliabilityCurves, ScoreView, TransitionShares
from reclick.metrics import ChunkSums
from reclick.models.base import ClickModel
from reclick.models.kernels.stops_and_transitions import pooled_events
from reclick.profile import LogProfile
from reclick.runtime.filesystem import AnyPath, Location, write_files
from reclick.runtime.notebook import render_card, render_table
from reclick.text.tokens import AdTokens, tokenise

N_QUERIES, N_WORDS, N_ADS = 6, 6, 6  # listed of each
MIN_WORD_IMPRESSIONS = 30
MIN_PAIR_CLICKS = 20
RATE_STRENGTH = 20.0  # pseudo-impressions at the query's rate, so that rare words do not lead


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of every model, their differences, and what was measured.

    The report is made from nothing else.
    """

    scores: pa.Table  # model, metric, sessions, volume, value, deviation, low, high, support
    differences: pa.Table  # model, against, metric, sessions, volume, difference, low, high
    curves: pa.Table  # model, curve, x, y, low, high, support
    profile: LogProfile  # of the test log
    details: Mapping[str, Any]  # logs, models, settings: JSON values

    @property
    def warnings(self) -> list[str]:
        """What makes some of the scores wrong: models that were fitted on test sessions."""
        return list(self.details.get("warnings") or ())

    def value(
        self, model: str, metric: str, *, sessions: str = "all", volume: str = "all"
    ) -> float | None:
        """One score; None where the model has no answer."""
        key = {"model": model, "metric": metric, "sessions": sessions, "volume": volume}
        values = [
            row["value"]
            for row in self.scores.to_pylist()
            if all(row[name] == value for name, value in key.items())
        ]
        if not values:
            known = ", ".join(
                f"{name}: {', '.join(self.scores[name].unique().to_pylist())}" for name in key
            )
            raise KeyError(f"no score of {key}. There are {known}.")
        return None if values[0] is None else float(values[0])

    def table(
        self, metrics: Sequence[str] | None = None, *, sessions: str = "all", volume: str = "all"
    ) -> pa.Table:
        """The scores as a table of a row per model and a column per metric.

        By default the main metrics, over all sessions. `scores` has all of them, with intervals.
        """
        return self._view(metrics, sessions, volume).to_arrow()

    def to_pandas(self, metrics: Sequence[str] | None = None, **sessions: str) -> Any:
        """`table` as a pandas DataFrame, with the models as its index."""
        return to_pandas(self.table(metrics, **sessions)).set_index("model")

    def to_polars(self, metrics: Sequence[str] | None = None, **sessions: str) -> Any:
        """`table` as a Polars DataFrame."""
        return to_polars(self.table(metrics, **sessions))

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
        """Where the next click of the test log is, given the last; `.plot()` draws it."""
        shares, fatigue = self.details["transitions"], self.details["fatigue"]
        return TransitionShares(tuple(map(tuple, shares)), tuple(fatigue))

    def _view(self, metrics: Sequence[str] | None, sessions: str, volume: str) -> ScoreView:
        return ScoreView.select(self.scores, metrics, sessions=sessions, volume=volume)

    def _repr_html_(self) -> str:
        view = self._view(None, "all", "all")
        best = {(row, column + 1) for row, column in view.best()}
        header = ["", *view.titles()]
        note = f"{self.profile.sessions:,.0f} test sessions. Bold is the best of a column."
        table = render_table(header, view.cells(4), best)
        return render_card("Evaluation", {}, " ".join([note, *self.warnings]), table)

    def to_html(self, path: Location) -> AnyPath:
        """Write the report as one HTML file that needs nothing else."""
        from reclick.report import write_html

        return write_html(self, path)

    def to_markdown(self) -> str:
        """The main tables as Markdown."""
        from reclick.report import render_markdown

        return render_markdown(self)

    def save(self, folder: Location) -> list[AnyPath]:
        """Write tables as Parquet, details as JSON, and the report as Markdown and HTML.

        Each file appears when it is complete.
        """
        from reclick.report import render_html

        tables = {
            "scores.parquet": self.scores,
            "differences.parquet": self.differences,
            "curves.parquet": self.curves,
        }
        described = {"profile": self.profile.to_dict(), "details": self.details}
        texts = {
            "evaluation.json": json.dumps(described, indent=2, ensure_ascii=False) + "\n",
            "report.md": self.to_markdown(),
            "report.html": render_html(self),
        }
        write_table = partial(pq.write_table, compression="zstd")
        table_writers = {name: partial(write_table, table) for name, table in tables.items()}
        text_writers = {
            name: partial(Path.write_text, data=text, encoding="utf-8")
            for name, text in texts.items()
        }
        return write_files(folder, {**table_writers, **text_writers})

    def __str__(self) -> str:
        """The main metrics, a row per model, and which models are best at what."""
        from reclick.report import render_text

        return render_text(self)

    def __repr__(self) -> str:
        models = ", ".join(self.scores["model"].unique().to_pylist())
        sessions, scores = f"{self.profile.sessions:,.0f}", f"{len(self.scores):,}"
        return f"Evaluation({models} on {sessions} sessions, {scores} scores)"


class ScoredModel(NamedTuple):
    """A fitted model with its sums over the test log, and how long both took."""

    model: ClickModel
    sums: ChunkSums
    seconds: dict[str, float]


def collect_details(
    scored: Mapping[str, ScoredModel], inputs: EvaluationInputs, leakage: Leakage
) -> dict[str, Any]:
    """The logs and models of an evaluation and facts about them, as JSON values."""
    counts = (inputs.train or inputs.test).counts
    with_satisfaction = (each.model for each in scored.values() if each.model.satisfaction)
    return {
        "logs": {name: log.describe() for name, log in inputs.logs.items()},
        "models": {
            name: {**_describe_model(each), "test_share": leakage.shares.get(name, 0.0)}
            for name, each in scored.items()
        },
        "warnings": leakage.warnings,
        **transition_shares(inputs.test.counts),
        "words": attractive_words(counts, inputs.text),
        "disagreements": disagreements(next(with_satisfaction, None), inputs.text),
    }


def _describe_model(scored: ScoredModel) -> dict[str, Any]:
    model = scored.model
    return {
        "model": model.name,
        "settings": model.get_params(),
        "assumes": model.assumes,
        "ordered": model.ordered,
        "fit": getattr(model, "message_", ""),
        "seconds": scored.seconds,
        "reasons": dict(scored.sums.reasons),
    }


# ---- facts about the logs


def transition_shares(counts: Counts) -> dict[str, Any]:
    """Transitions from each last click (row 0: start) as shares, and shares that end by clicks.

    The second are the shares of sessions with at least k clicks that end after exactly k.
    """
    exactly, more, transitions = pooled_events(counts)
    rows = transitions.sum(axis=1, keepdims=True)
    shares = np.divide(transitions, rows, out=np.zeros_like(transitions), where=rows > 0)
    reached = exactly + more
    known = reached > 0
    return {"transitions": shares.tolist(), "fatigue": (exactly[known] / reached[known]).tolist()}


def attractive_words(counts: Counts, ads: pa.Table | None) -> list[dict[str, Any]]:
    """For the most frequent queries, the words whose ads are clicked most and least often."""
    if ads is None:
        return []
    text = tokenise(ads)
    row = {ad: index for index, ad in enumerate(text.ads.to_pylist())}
    frequent = np.argsort(-counts.volumes, kind="stable")[:N_QUERIES]
    listed = (_words_of_query(counts, int(query), text, row) for query in frequent)
    return [words for words in listed if words["attract"]]


def _words_of_query(
    counts: Counts, query: int, text: AdTokens, row: dict[str, int]
) -> dict[str, Any]:
    shown: dict[str, float] = {}
    clicked: dict[str, float] = {}
    first, last = np.searchsorted(counts.pair_query, [query, query + 1])
    for pair in range(int(first), int(last)):
        ad = row.get(counts.ads[int(counts.pair_ad[pair])].as_py())
        for word in text.words(ad) if ad is not None else ():
            shown[word] = shown.get(word, 0.0) + float(counts.impressions[pair])
            clicked[word] = clicked.get(word, 0.0) + float(counts.clicks[pair])
    rate = counts.clicks[first:last].sum() / max(counts.impressions[first:last].sum(), 1e-300)

    def shrunken_rate(word: str) -> float:
        return float((clicked[word] + RATE_STRENGTH * rate) / (shown[word] + RATE_STRENGTH))

    frequent = [word for word in shown if shown[word] >= MIN_WORD_IMPRESSIONS]
    ordered = sorted(frequent, key=lambda word: -shrunken_rate(word))
    rows = [[word, clicked[word] / shown[word], shown[word]] for word in ordered]
    n = min(N_WORDS, len(rows) // 2)
    return {
        "query": counts.queries[query].as_py(),
        "attract": rows[:n],
        "repel": rows[::-1][:n],
    }


def disagreements(model: ClickModel | None, ads: pa.Table | None) -> list[dict[str, Any]]:
    """The frequently clicked pairs whose ranks by attractiveness and satisfaction differ most."""
    if model is None:
        return []
    table = model.relevance()
    table = table.filter(pa.array(table["clicks"].to_numpy() >= MIN_PAIR_CLICKS))
    if len(table) < 2:
        return []
    appeal, satisfaction = (
        _relative_ranks(table[name].to_numpy()) for name in ("attractiveness", "satisfaction")
    )
    order = np.argsort(appeal - satisfaction, kind="stable")
    n = min(N_ADS, len(order) // 2)
    titles = (
        {}
        if ads is None
        else dict(zip(ads["ad"].to_pylist(), ads["title"].to_pylist(), strict=True))
    )
    rows = table.take(pa.array([*order[::-1][:n], *order[:n][::-1]])).to_pylist()
    names = ("query", "ad", "attractiveness", "satisfaction")
    return [
        {
            **{name: row[name] for name in names},
            "title": titles.get(row["ad"]) or "",
            "support": row["clicks"],
        }
        for row in rows
    ]


def _relative_ranks(values: Float64) -> Float64:
    """The rank of each value among all, from 0 to 1."""
    ranks: Int64 = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return ranks / max(len(values) - 1, 1)
