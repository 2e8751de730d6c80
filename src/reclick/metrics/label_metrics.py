"""Relevance against editors' labels: precision and recall, areas under the curves and NDCG, with intervals from resampled queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.data.batch import Float64, Int64
from reclick.errors import CannotAnswerError, LogError, SettingError
from reclick.metrics.bootstrap import (
    CURVES,
    Estimate,
    check_bootstrap,
    difference_table,
    draws,
    score_table,
)
from reclick.metrics.metric import About
from reclick.metrics.query_volume import QueryVolumes
from reclick.metrics.ranking_kernels import areas, ndcgs
from reclick.models.base import ClickModel

PLACES = (5, 10)  # of NDCG
POINTS = 200  # of a precision-recall curve, at the most
Mask = npt.NDArray[np.bool_]

LABEL_METRICS: dict[str, About] = {
    about.name: about
    for about in [
        About(
            "pr_auc",
            "PR-AUC",
            "higher",
            "Average precision of the relevance score: the area under its precision-recall curve.",
        ),
        About(
            "roc_auc",
            "ROC-AUC",
            "higher",
            "Chance that a relevant pair has a higher relevance score than one that is not.",
        ),
        *(
            About(
                f"ndcg@{k}",
                f"NDCG@{k}",
                "higher",
                f"Mean over queries of the discounted gain 2^label − 1 of the first {k} ads by score, best 1.",
            )
            for k in PLACES
        ),
    ]
}


class LabelTables(NamedTuple):
    """What labels say of models: rows for the scores, the differences and the curves of an evaluation."""

    scores: pa.Table
    differences: pa.Table
    curves: pa.Table


class _Labels(NamedTuple):
    """Labelled pairs, and the scores that models give them."""

    queries: pa.Array  # [query]
    query: Int64  # [pair] codes into queries
    gain: Float64  # [pair]
    relevant: Mask  # [pair]
    scores: dict[str, Float64]  # model → [pair]

    def parts(self, volumes: QueryVolumes | None) -> list[_Labels]:
        """All pairs, and those of each bucket of volume."""
        if volumes is None:
            return [self]
        bucket = volumes.buckets(self.queries)[self.query]
        return [self, *(self._those(bucket == b) for b in range(len(volumes.names)))]

    def _those(self, mask: Mask) -> _Labels:
        """Some of the pairs."""
        kept, query = np.unique(self.query[mask], return_inverse=True)
        scores = {model: score[mask] for model, score in self.scores.items()}
        return _Labels(
            self.queries.take(pa.array(kept)),
            query.astype(np.int64),
            self.gain[mask],
            self.relevant[mask],
            scores,
        )


def relevance_scores(model: ClickModel, labels: pa.Table, *, ads: object = None) -> pa.Table | None:
    """A model's relevance beside the labels from `read_labels`: query, ad, relevance (the label) and score; None where a model has none.

    `ads` is a table with the text of ads that the model has not seen.
    """
    try:
        answered = model.relevance(labels.select(["query", "ad"]), text=ads)
    except CannotAnswerError:
        return None
    return labels.select(["query", "ad", "relevance"]).append_column("score", answered["relevance"])


def least_relevant(labels: pa.Table) -> float:
    """The least label that counts as relevant, when nobody says: half of the highest.

    >>> least_relevant(pa.table({"relevance": [0.0, 1.0, 4.0]}))
    2.0
    """
    highest = float(np.max(_column(labels, "relevance"), initial=0.0))
    if highest <= 0:
        raise LogError(
            "labels: no relevance is above 0, so there is nothing to find. Give labels that grow with relevance."
        )
    return highest / 2


def label_tables(
    scores: Mapping[str, pa.Table | None],
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    relevant_from: float | None = None,
    volumes: QueryVolumes | None = None,
) -> LabelTables:
    """Compare models by the tables of `relevance_scores`, all of the same labels; pairs labelled `relevant_from` or more are relevant.

    Resamples are of queries, for the pairs of one query share its fate, and are the same for all models. With volumes, also by volume of the query.
    """
    check_bootstrap(level, resamples)
    groups = [("all", volume) for volume in ("all", *(volumes.names if volumes else ()))]
    answered = {model: table for model, table in scores.items() if table is not None}
    labels = _labels(answered, relevant_from) if answered else None
    estimated = (
        [_estimates(part, resamples, seed) for part in labels.parts(volumes)] if labels else []
    )
    together = {
        metric: {
            model: _stacked([each[model][metric] for each in estimated])
            if model in answered
            else None
            for model in scores
        }
        for metric in LABEL_METRICS
    }
    curves = (
        [_curve(model, score, labels.relevant) for model, score in labels.scores.items()]
        if labels
        else []
    )
    table = pa.concat_tables([CURVES.empty_table(), *curves]).combine_chunks()
    return LabelTables(
        score_table(together, groups, level), difference_table(together, groups, level), table
    )


def _labels(scores: Mapping[str, pa.Table], relevant_from: float | None) -> _Labels:
    """The labels that all tables share, and the scores of each."""
    labels = next(iter(scores.values())).select(["query", "ad", "relevance"])
    if any(not table.select(labels.column_names).equals(labels) for table in scores.values()):
        raise SettingError(
            "label_tables: the tables are not of the same labels. Make them all from one labels table."
        )
    query = labels["query"].combine_chunks().dictionary_encode()
    grade = _column(labels, "relevance")
    least = least_relevant(labels) if relevant_from is None else relevant_from
    gain = np.maximum(np.exp2(grade) - 1, 0.0)  # a label below 0 gains nothing
    columns = {model: _column(table, "score") for model, table in scores.items()}
    return _Labels(
        query.dictionary, query.indices.to_numpy().astype(np.int64), gain, grade >= least, columns
    )


def _estimates(labels: _Labels, resamples: int, seed: int) -> dict[str, dict[str, Estimate]]:
    """Every metric of every model that has scores, in one group."""
    many = len(labels.queries)
    weights = np.concatenate(
        [np.ones((1, many)), draws(many, resamples, seed)]
    )  # the first is the labels as they are
    return {
        model: {**_areas(labels, score, weights), **_gains(labels, score, weights)}
        for model, score in labels.scores.items()
    }


def _areas(labels: _Labels, score: Float64, weights: Float64) -> dict[str, Estimate]:
    order = np.argsort(-score, kind="stable")
    out = np.empty((len(weights), 2))
    areas(labels.query[order], labels.relevant[order], _ends(score[order]), weights, out)
    pairs, queries = float(len(score)), weights.shape[1]
    return {
        name: _estimate(out[:, i], np.nan, pairs, queries)
        for i, name in enumerate(("pr_auc", "roc_auc"))
    }


def _gains(labels: _Labels, score: Float64, weights: Float64) -> dict[str, Estimate]:
    order = np.lexsort((-score, labels.query))
    query = labels.query[order]
    starts = np.searchsorted(query, np.arange(weights.shape[1] + 1))
    ends = _ends(score[order]) | _ends(query)
    found = {}
    for places in PLACES:
        ndcg = np.empty(weights.shape[1])
        ndcgs(starts, labels.gain[order], ends, places, ndcg)
        counts = ~np.isnan(ndcg)
        with np.errstate(invalid="ignore"):
            means = (weights[:, counts] @ ndcg[counts]) / weights[:, counts].sum(axis=1)
        many = int(counts.sum())
        found[f"ndcg@{places}"] = _estimate(
            means, float(ndcg[counts].std()) if many else np.nan, float(many), many
        )
    return found


def _estimate(values: Float64, deviation: float, support: float, drawn: int) -> Estimate:
    """An estimate of one group from its value and the resampled ones behind it."""
    return Estimate(
        values[:1], values[1:, None], np.array([deviation]), np.array([support]), np.array([drawn])
    )


def _stacked(each: list[Estimate]) -> Estimate:
    """Estimates of one group each as one of all groups."""
    return Estimate(*(np.concatenate(parts, axis=-1) for parts in zip(*each, strict=True)))


def _ends(values: npt.NDArray[np.generic]) -> Mask:
    """Where a run of equal values ends."""
    return np.append(values[1:] != values[:-1], True)[: len(values)]


def _column(table: pa.Table, name: str) -> Float64:
    return np.asarray(table[name].combine_chunks().to_numpy(zero_copy_only=False), np.float64)


def _curve(model: str, score: Float64, relevant: Mask) -> pa.Table:
    """Recall and precision after each distinct score, thinned to even steps of recall."""
    order = np.argsort(-score, kind="stable")
    taken = np.flatnonzero(_ends(score[order])) + 1  # pairs with at least this score
    found = np.cumsum(relevant[order])[taken - 1]
    recall = found / max(int(relevant.sum()), 1)
    kept = np.arange(len(taken))
    if len(kept) > POINTS:
        kept = np.unique(np.searchsorted(recall, np.linspace(0, recall[-1], POINTS)))
    nothing = pa.nulls(len(kept), pa.float64())
    names = [[model] * len(kept), ["precision_recall"] * len(kept)]
    return pa.table(
        [
            *names,
            recall[kept],
            (found / taken)[kept],
            nothing,
            nothing,
            taken[kept].astype(np.float64),
        ],
        schema=CURVES,
    )
