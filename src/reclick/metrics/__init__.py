"""Metrics of click models: exact, in one pass over a log, with paired bootstrap intervals.

A fitted model is scored once on a log. The result is sums per chunk of sessions, whose size does
not depend on the length of the log. All tables are computed from these sums.

>>> from reclick import count
>>> from reclick.models import MODELS
>>> train = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1, 2], [2]]}
>>> test = {"query": ["pizza", "sushi"], "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
>>> volumes = QueryVolumes(count(train))
>>> sums = {name: score(MODELS[name]().fit(train), test, volumes) for name in ("ubm", "pbm")}
>>> scores, differences = session_tables(sums, level=0.95, resamples=100, seed=0)
>>> rows = scores.to_pylist()
>>> [r["support"] for r in rows if r["metric"] == "log_likelihood" and r["model"] == "pbm"][:2]
[2.0, 2.0]

`SESSION_METRICS` and `LABEL_METRICS` describe the metrics. A session metric is a formula over
columns that add (`Metric.columns`, `Metric.value`).

`score` → `ChunkSums` (`+`, `to_tables`, `from_tables`; `reasons` has the reasons for values that a
model lacks, which are null in the tables) → `session_tables`, `reliability_curves`.

`relevance_scores` → `label_tables` are the same for human labels, resampled by query.

Ties: probabilities of sequences, and scores of labelled pairs, that differ by less than 1e-9 of the
larger one are tied, so that rounding has no effect. Each of k sequences tied at the top counts as
1/k of a hit; ties share their mean rank. A deviation is between sessions (for NDCG, between
queries), weighted, of the population. Sequences of 1 to 4 clicks are ranked; longer sessions count
in all other metrics. A model without an order of clicks (`ordered` is False) gets one from an
`OrderTable` of its training log, for the log-likelihood only. A value is infinite if the model
assigns zero probability to an observed session.
"""

from reclick.metrics.bootstrap import (
    CURVE_SCHEMA,
    DIFFERENCE_SCHEMA,
    SCORE_SCHEMA,
    check_bootstrap,
    reliability_curves,
    session_tables,
)
from reclick.metrics.chunk_sums import ChunkSums, QueryVolumes, score
from reclick.metrics.label_metrics import (
    LABEL_METRICS,
    LabelTables,
    default_relevance_threshold,
    label_tables,
    relevance_scores,
)
from reclick.metrics.session_metrics import SESSION_METRICS, Metric, MetricInfo, loss

__all__ = [
    "CURVE_SCHEMA",
    "DIFFERENCE_SCHEMA",
    "LABEL_METRICS",
    "SCORE_SCHEMA",
    "SESSION_METRICS",
    "ChunkSums",
    "LabelTables",
    "Metric",
    "MetricInfo",
    "QueryVolumes",
    "check_bootstrap",
    "default_relevance_threshold",
    "label_tables",
    "loss",
    "relevance_scores",
    "reliability_curves",
    "score",
    "session_tables",
]
