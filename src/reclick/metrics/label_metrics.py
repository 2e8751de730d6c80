"""Relevance against human labels: areas under curves and NDCG, with intervals by query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from reclick.clicks.sequence_search import TIE
from reclick.data.ragged import Bool, Float64, Int64
from reclick.errors import CannotAnswerError, LogError, UsageError
from reclick.metrics.bootstrap import (
    CURVE_SCHEMA,
    BootstrapEstimate,
    bootstrap_weights,
    check_bootstrap,
    difference_table,
    score_table,
)
from reclick.metrics.chunk_sums import QueryVolumes
from reclick.metrics.session_metrics import MetricInfo
from reclick.models.base import ClickModel
from reclick.runtime.jit import kernel

NDCG_CUTOFFS = (5, 10)
MAX_CURVE_POINTS = 200  # of a precision-recall curve

_ALL = [
    MetricInfo(
        "pr_auc",
        "PR-AUC",
        "higher",
        "Average precision of the relevance score: the area under its precision-recall curve.",
    ),
    MetricInfo(
        "roc_auc",
        "ROC-AUC",
        "higher",
        "Probability that a relevant pair has a higher relevance score than an irrelevant one.",
    ),
    *(
        MetricInfo(
            f"ndcg@{k}",
            f"NDCG@{k}",
            "higher",
            "Mean over queries with two or more labels of the discounted gain 2^label − 1 of the"
            f" first {k} ads by score, divided by the highest possible one.",
        )
        for k in NDCG_CUTOFFS
    ),
]
LABEL_METRICS: dict[str, MetricInfo] = {metric.name: metric for metric in _ALL}


class LabelTables(NamedTuple):
    """Models compared by labels: rows for the scores, differences and curves of an evaluation."""

    scores: pa.Table
    differences: pa.Table
    curves: pa.Table


class _LabelledPairs(NamedTuple):
    """Labelled pairs, and their scores by each model."""

    queries: pa.Array  # [query]
    query: Int64  # [pair] index into queries
    gain: Float64  # [pair]
    relevant: Bool  # [pair]
    scores: dict[str, Float64]  # model → [pair]

    def by_volume(self, volumes: QueryVolumes | None) -> list[_LabelledPairs]:
        """All pairs, and those of each volume bucket."""
        if volumes is None:
            return [self]
        bucket = volumes.buckets(self.queries)[self.query]
        return [self, *(self._select(bucket == b) for b in range(len(volumes.names)))]

    def _select(self, mask: Bool) -> _LabelledPairs:
        query_codes, query = np.unique(self.query[mask], return_inverse=True)
        return _LabelledPairs(
            self.queries.take(pa.array(query_codes)),
            query.astype(np.int64),
            self.gain[mask],
            self.relevant[mask],
            {model: score[mask] for model, score in self.scores.items()},
        )


def relevance_scores(model: ClickModel, labels: pa.Table, *, ads: object = None) -> pa.Table | None:
    """The labels of `read_labels` with a model's relevance as a column `score`.

    None if the model has no relevance. `ads` is a table with the text of ads that are new to the
    model.
    """
    try:
        relevance = model.relevance(labels.select(["query", "ad"]), text=ads)["relevance"]
    except CannotAnswerError:
        return None
    return labels.select(["query", "ad", "relevance"]).append_column("score", relevance)


def default_relevance_threshold(labels: pa.Table) -> float:
    """The lowest label that counts as relevant by default: half of the highest.

    >>> default_relevance_threshold(pa.table({"relevance": [0.0, 1.0, 4.0]}))
    2.0
    """
    highest = float(np.max(_to_numpy(labels, "relevance"), initial=0.0))
    if highest <= 0:
        raise LogError(
            "labels: no relevance is above 0, so no pair is relevant. Give labels that grow with"
            " relevance."
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
    """Compare models by the tables of `relevance_scores`, which must have the same labels.

    Pairs labelled `relevant_from` or more are relevant. Queries are resampled, since the pairs of
    one query depend on each other; the resamples are the same for all models. With `volumes`, the
    scores are also by query volume.
    """
    check_bootstrap(level, resamples)
    groups = [("all", volume) for volume in ("all", *(volumes.names if volumes else ()))]
    tables = {model: table for model, table in scores.items() if table is not None}
    pairs = _label_pairs(tables, relevant_from) if tables else None
    by_group = (
        [_estimate_all(p, resamples, seed) for p in pairs.by_volume(volumes)] if pairs else []
    )
    estimates = {
        metric: {
            model: _concatenate([of_group[model][metric] for of_group in by_group])
            if model in tables
            else None
            for model in scores
        }
        for metric in LABEL_METRICS
    }
    curves = (
        [_precision_recall(model, score, pairs.relevant) for model, score in pairs.scores.items()]
        if pairs
        else []
    )
    return LabelTables(
        score_table(estimates, groups, level),
        difference_table(estimates, groups, level),
        pa.concat_tables([CURVE_SCHEMA.empty_table(), *curves]).combine_chunks(),
    )


def _label_pairs(scores: Mapping[str, pa.Table], relevant_from: float | None) -> _LabelledPairs:
    """The labels of all tables, and the scores of each table."""
    labels = next(iter(scores.values())).select(["query", "ad", "relevance"])
    if any(not table.select(labels.column_names).equals(labels) for table in scores.values()):
        raise UsageError(
            "label_tables: the tables are not of the same labels. Make all of them from one labels"
            " table."
        )
    query = labels["query"].combine_chunks().dictionary_encode()
    label = _to_numpy(labels, "relevance")
    threshold = default_relevance_threshold(labels) if relevant_from is None else relevant_from
    gain = np.maximum(np.exp2(label) - 1, 0.0)  # a label below 0 has no gain
    index = query.indices.to_numpy().astype(np.int64)
    columns = {model: _to_numpy(table, "score") for model, table in scores.items()}
    return _LabelledPairs(query.dictionary, index, gain, label >= threshold, columns)


# ---- estimates of one group


def _estimate_all(
    pairs: _LabelledPairs, resamples: int, seed: int
) -> dict[str, dict[str, BootstrapEstimate]]:
    """Estimates of one group: model → metric → estimate."""
    n = len(pairs.queries)
    # the first row is the labels without resampling
    weights = np.concatenate([np.ones((1, n)), bootstrap_weights(n, resamples, seed)])
    return {
        model: {**_estimate_areas(pairs, score, weights), **_estimate_ndcg(pairs, score, weights)}
        for model, score in pairs.scores.items()
    }


def _estimate_areas(
    pairs: _LabelledPairs, score: Float64, weights: Float64
) -> dict[str, BootstrapEstimate]:
    order = np.argsort(-score, kind="stable")
    areas = np.empty((len(weights), 2))
    fill_areas(pairs.query[order], pairs.relevant[order], _tie_ends(score[order]), weights, areas)
    n_pairs, n_queries = float(len(score)), weights.shape[1]
    return {
        name: _estimate(areas[:, i], np.nan, n_pairs, n_queries)
        for i, name in enumerate(("pr_auc", "roc_auc"))
    }


@kernel
def fill_areas(query: Int64, relevant: Bool, ends: Bool, weights: Float64, out: Float64) -> None:
    """Fill out [resample, 2] with average precision and ROC area of pairs, best score first.

    Pairs are weighted by their queries. Pairs of equal score are one step, which ends where `ends`
    is true. With t and f the relevant and irrelevant pairs so far, and Δ the increase in a step:
    average precision = Σ Δt · t / (t + f) / T;  area = Σ Δf · (t before + Δt / 2) / (T F).
    nan without relevant pairs, or without irrelevant pairs.
    """
    for b in range(len(weights)):
        n_relevant = n_other = new_relevant = new_other = precision = area = 0.0
        for i in range(len(query)):
            weight = weights[b, query[i]]
            if relevant[i]:
                new_relevant += weight
            else:
                new_other += weight
            if not ends[i]:
                continue
            area += new_other * (n_relevant + new_relevant / 2)
            n_relevant += new_relevant
            n_other += new_other
            if new_relevant > 0.0:
                precision += new_relevant * n_relevant / (n_relevant + n_other)
            new_relevant = new_other = 0.0
        out[b, 0] = precision / n_relevant if n_relevant > 0.0 else np.nan
        out[b, 1] = area / (n_relevant * n_other) if n_relevant > 0.0 and n_other > 0.0 else np.nan


def _estimate_ndcg(
    pairs: _LabelledPairs, score: Float64, weights: Float64
) -> dict[str, BootstrapEstimate]:
    estimates = {}
    n_labels = np.bincount(pairs.query, minlength=weights.shape[1])  # a single label has no order
    for cutoff in NDCG_CUTOFFS:
        ndcg = ndcg_by_query(pairs.query, score, pairs.gain, weights.shape[1], cutoff)
        has_ndcg = ~np.isnan(ndcg) & (n_labels > 1)
        with np.errstate(invalid="ignore"):
            means = (weights[:, has_ndcg] @ ndcg[has_ndcg]) / weights[:, has_ndcg].sum(axis=1)
        n = int(has_ndcg.sum())
        deviation = float(ndcg[has_ndcg].std()) if n else np.nan
        estimates[f"ndcg@{cutoff}"] = _estimate(means, deviation, float(n), n)
    return estimates


def ndcg_by_query(
    query: Int64, score: Float64, gain: Float64, n_queries: int, cutoff: int
) -> Float64:
    """DCG by score / the highest possible DCG [query]; nan if no pair has a gain.

    >>> query, gain = np.array([0, 0, 1]), np.array([0.0, 1.0, 0.0])
    >>> ndcg_by_query(query, np.array([0.9, 0.1, 0.5]), gain, 2, cutoff=5).round(4)
    array([0.6309,    nan])
    """
    ideal = _expected_dcg(query, gain, gain, n_queries, cutoff)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _expected_dcg(query, score, gain, n_queries, cutoff) / np.where(
            ideal > 0.0, ideal, np.nan
        )


def _expected_dcg(
    query: Int64, score: Float64, gain: Float64, n_queries: int, cutoff: int
) -> Float64:
    """Σ gain / log2(rank + 1) of the first `cutoff` pairs by score [query].

    Pairs of equal score are in random order, so each has the mean gain of the tied pairs.
    """
    if not len(query):
        return np.zeros(n_queries)
    order = np.lexsort((-score, query))
    query, score, gain = query[order], score[order], gain[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query) + 1
    discount = np.where(rank <= cutoff, 1.0 / np.log2(rank + 1.0), 0.0)
    run_ends = np.flatnonzero(_tie_ends(score) | (np.diff(query, append=-1) != 0))
    starts = np.append(0, run_ends[:-1] + 1)
    mean_gain = np.add.reduceat(gain, starts) / np.diff(np.append(starts, len(gain)))
    gains = mean_gain * np.add.reduceat(discount, starts)
    return np.bincount(query[starts], gains, n_queries).astype(np.float64)


def _estimate(values: Float64, deviation: float, support: float, n_units: int) -> BootstrapEstimate:
    """An estimate of one group, from an array of its value followed by the replicates."""
    scalars = (np.array([value]) for value in (deviation, support, n_units))
    return BootstrapEstimate(values[:1], values[1:, None], *scalars)


def _concatenate(estimates: list[BootstrapEstimate]) -> BootstrapEstimate:
    """Concatenate estimates of single groups to one estimate of all groups."""
    fields = zip(*estimates, strict=True)
    return BootstrapEstimate(*(np.concatenate(values, axis=-1) for values in fields))


def _tie_ends(scores: Float64) -> Bool:
    """Whether a run of tied scores ends at each pair, from high to low.

    Scores that differ by less than 1e-9 of the larger one are tied, so rounding has no effect.
    """
    gaps = scores[:-1] - scores[1:]
    return np.append(gaps > TIE * np.abs(scores[:-1]), True)[: len(scores)]


def _to_numpy(table: pa.Table, name: str) -> Float64:
    return np.asarray(table[name].combine_chunks().to_numpy(zero_copy_only=False), np.float64)


def _precision_recall(model: str, score: Float64, relevant: Bool) -> pa.Table:
    """Recall and precision after each distinct score, thinned out to even steps of recall."""
    order = np.argsort(-score, kind="stable")
    n_retrieved = np.flatnonzero(_tie_ends(score[order])) + 1  # pairs with at least this score
    n_relevant = np.cumsum(relevant[order])[n_retrieved - 1]
    recall = n_relevant / max(int(relevant.sum()), 1)
    points = np.arange(len(n_retrieved))
    if len(points) > MAX_CURVE_POINTS:
        points = np.unique(np.searchsorted(recall, np.linspace(0, recall[-1], MAX_CURVE_POINTS)))
    precision, support = (n_relevant / n_retrieved)[points], n_retrieved[points].astype(np.float64)
    missing = pa.nulls(len(points), pa.float64())
    names = [[name] * len(points) for name in (model, "precision_recall")]
    return pa.table(
        [*names, recall[points], precision, missing, missing, support], schema=CURVE_SCHEMA
    )
