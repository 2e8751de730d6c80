"""nDCG of a run against judgments, per query and on average, with the share of judged ads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Float64
from reclick.errors import UsageError, check_choice, check_range, check_whole
from reclick.exports.judgment_files import read_judgments, read_run
from reclick.runtime.arguments import check_arguments
from reclick.runtime.notebook import render_text

RESAMPLES = 2_000  # of queries, for the interval
GAINS: dict[str, Callable[[Float64], Float64]] = {
    "linear": lambda grade: np.maximum(grade, 0.0),
    "exponential": lambda grade: np.exp2(np.maximum(grade, 0.0)) - 1,
}


@dataclass(frozen=True)
class NDCGResult:
    """nDCG@k of a run: the mean over queries, its bootstrap interval, and each query's value."""

    k: int
    gain: str
    value: float  # mean over queries
    low: float
    high: float
    level: float
    queries: int  # queries with a relevant ad; those not in the run count as 0
    not_in_run: int  # the number of these queries that are not in the run
    without_relevant: int  # judged queries without a relevant ad, left out
    not_judged: int  # queries of the run without judgments, left out
    judged_share: float  # of the ads at the first k positions
    by_query: pa.Table = field(repr=False)  # query, ndcg, judged

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without those of each query."""
        return {name: value for name, value in vars(self).items() if name != "by_query"}

    def _repr_html_(self) -> str:
        return render_text(self)

    def __str__(self) -> str:
        interval = f"[{self.low:.4f}, {self.high:.4f}], {self.level:.0%} interval"
        facts = {
            f"nDCG@{self.k}": f"{self.value:.4f} {interval}, {self.gain} gain",
            "queries": f"{self.queries:,}; {self.not_in_run:,} are not in the run and count as 0",
            "left out": f"{self.without_relevant:,} judged queries without a relevant ad, "
            f"{self.not_judged:,} queries of the run without judgments",
            "judged": f"{self.judged_share:.1%} of the ads at the first {self.k} positions; "
            "the others count as not relevant",
        }
        return "\n".join(f"{name:<15}{fact}" for name, fact in facts.items())


@check_arguments
def ndcg(
    run: object, judgments: object, *, k: int = 10, gain: str = "linear", level: float = 0.9
) -> NDCGResult:
    """The normalised discounted cumulative gain of a ranking at k, against judgments.

    DCG = Σ gain(grade of the ad at position i) / log₂(i + 1) over the first k positions, divided by
    the largest DCG that the judged ads of the query allow. `gain` is "linear" (the grade, as in
    trec_eval) or "exponential" (2^grade − 1). Equal scores are in descending order of ads, as in
    trec_eval. An ad without a judgment counts as not relevant; `judged_share` is the share of ads
    with one. The interval resamples queries.

    `run` is a TREC run file, a table of query, ad and score (or rank), or a dict of queries and
    their ads, best first; `judgments` is anything that `read_judgments` reads.

    >>> judged = {"query": ["pizza"] * 2, "ad": ["a", "b"], "grade": [3, 1]}
    >>> result = ndcg({"pizza": ["b", "a", "new"]}, judged, k=3)
    >>> round(result.value, 4), round(result.judged_share, 2)  # (1 + 3 / log₂3) / (3 + 1 / log₂3)
    (0.7967, 0.67)
    """
    k = check_whole("k", k, 1)
    check_choice("gain", gain, tuple(GAINS))
    check_range("level", level, 1e-6, 1 - 1e-6)
    rankings = _order_ads(read_run(run))
    grades = _grades_by_query(read_judgments(judgments))
    relevant = {
        query: grades_of_query
        for query, grades_of_query in grades.items()
        if max(grades_of_query.values()) > 0
    }
    if not relevant:
        raise UsageError("No query of the judgments has an ad with a grade above 0.")
    if not relevant.keys() & rankings.keys():
        raise UsageError(
            "The run and the judgments have no query in common. Do both use the same query ids?"
        )
    values = np.array(
        [
            _ndcg_of_query(rankings.get(query, []), grades_of_query, k, gain)
            for query, grades_of_query in relevant.items()
        ]
    )
    is_judged = [
        [ad in grades_of_query for ad in rankings.get(query, [])[:k]]
        for query, grades_of_query in relevant.items()
    ]
    low, high = _bootstrap_interval(values, level)
    return NDCGResult(
        k=k,
        gain=gain,
        value=float(values.mean()),
        low=low,
        high=high,
        level=level,
        queries=len(relevant),
        not_in_run=len(relevant.keys() - rankings.keys()),
        without_relevant=len(grades) - len(relevant),
        not_judged=len(rankings.keys() - grades.keys()),
        judged_share=sum(map(sum, is_judged)) / max(sum(map(len, is_judged)), 1),
        by_query=pa.table(
            {
                "query": pa.array(list(relevant), pa.large_string()),
                "ndcg": values,
                "judged": pa.array([sum(flags) for flags in is_judged], pa.int64()),
            }
        ),
    )


def _ndcg_of_query(ranking: list[str], grades: dict[str, float], k: int, gain: str) -> float:
    best = sorted(grades.values(), reverse=True)
    page_grades = [grades.get(ad, 0.0) for ad in ranking]
    return _dcg(page_grades, k, gain) / _dcg(best, k, gain)


def _dcg(grades: list[float], k: int, gain: str) -> float:
    gains = GAINS[gain](np.array(grades[:k], np.float64))
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def _order_ads(run: pa.Table) -> dict[str, list[str]]:
    """The ads of each query, best first."""
    order = [("query", "ascending"), ("score", "descending"), ("ad", "descending")]
    rankings: dict[str, list[str]] = {}
    columns = run.sort_by(order).to_pydict()
    for query, ad in zip(columns["query"], columns["ad"], strict=True):
        rankings.setdefault(query, []).append(ad)
    return rankings


def _grades_by_query(judgments: pa.Table) -> dict[str, dict[str, float]]:
    grades: dict[str, dict[str, float]] = {}
    for query, ad, grade in zip(*judgments.to_pydict().values(), strict=True):
        grades.setdefault(query, {})[ad] = grade
    return grades


def _bootstrap_interval(values: Float64, level: float) -> tuple[float, float]:
    """The bootstrap interval of the mean, by resampling queries."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
