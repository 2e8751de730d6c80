"""Metrics of click models: exact, in one pass over a log, with paired bootstrap intervals.

A fitted model is scored once on a log. What remains are sums per chunk of sessions, whose size does
not depend on the length of the log. All tables come from these sums.

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
`score` → `ChunkSums` (`+`, `to_tables`, `from_tables`; `reasons` says why a model has no answer,
which is null in the tables) → `session_tables`, `reliability_curves`.
`relevance_scores` → `label_tables` do the same for human labels, resampled by query.

Ties: probabilities of sequences, and scores of labelled pairs, that differ by less than 1e-9 of the
larger one are tied, so rounding decides nothing. Each of k sequences tied at the top counts as 1/k
of a hit; ties share their mean rank. A deviation is between sessions (for NDCG, between queries),
weighted, of the population. Sequences of 1 to 4 clicks are ranked; longer sessions count in all
other metrics. A model that has no order of clicks (`ordered` is False) is given one by an
`OrderTable` of its training log, in the log-likelihood alone. A value may be infinite: a session
happened to which the model assigns zero probability.
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
