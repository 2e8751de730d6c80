"""The paper's evaluation, metric by metric: exact, in one pass, additive, with paired bootstrap intervals.

A fitted model is scored once on a log; what is left are sums per chunk of sessions, small however long the log is. Tables come from the sums alone.

>>> from reclick.data.counts import count
>>> from reclick.models import MODELS
>>> train = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1, 2], [2]]}
>>> test = {"query": ["pizza", "sushi"], "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
>>> sums = {name: score(MODELS[name]().fit(train), test, QueryVolumes(count(train))) for name in ("multiclick", "pbm")}
>>> scores, differences = tables(sums, level=0.95, resamples=100, seed=0)
>>> [row["support"] for row in scores.to_pylist() if row["metric"] == "log_likelihood" and row["model"] == "pbm"][:2]
[2.0, 2.0]

`SESSION_METRICS` and `LABEL_METRICS` say what the metrics are. A metric is a formula over columns that add (`Metric.columns`, `Metric.value`).
`score` → `SessionSums` (`+`, `to_tables`, `from_tables`; `reasons` says what a model cannot answer: null in the tables) → `tables`, `reliability`.
`relevance_scores` → `label_tables` are the same for editors' labels, resampled by query.

Ties: sequences whose probabilities differ by less than 1e-9 of the greater are tied, so rounding decides nothing. k tied at the top are each k-th of
a hit, ties share their mean rank. A deviation is between sessions (for NDCG, queries), weighted, of the whole and not of a sample.
Sequences are ranked for 1 to 4 clicks; longer sessions count in everything else. A value may be infinite: what a model held impossible happened.
"""

from reclick.metrics.bootstrap import CURVES, DIFFERENCES, SCORES
from reclick.metrics.chunk_sums import SessionSums
from reclick.metrics.label_metrics import (
    LABEL_METRICS,
    LabelTables,
    label_tables,
    least_relevant,
    relevance_scores,
)
from reclick.metrics.metric import About, Metric
from reclick.metrics.query_volume import QueryVolumes
from reclick.metrics.score import score
from reclick.metrics.session_metrics import SESSION_METRICS
from reclick.metrics.tables import reliability, tables

__all__ = [
    "CURVES",
    "DIFFERENCES",
    "LABEL_METRICS",
    "SCORES",
    "SESSION_METRICS",
    "About",
    "LabelTables",
    "Metric",
    "QueryVolumes",
    "SessionSums",
    "label_tables",
    "least_relevant",
    "relevance_scores",
    "reliability",
    "score",
    "tables",
]
