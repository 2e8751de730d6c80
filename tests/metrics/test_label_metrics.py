"""Metrics against labels: definitions in loops, ties, resampled queries, coverage of intervals."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.errors import LogError, SettingError
from reclick.metrics import (
    LABEL_METRICS,
    QueryVolumes,
    default_relevance_threshold,
    label_tables,
    relevance_scores,
)
from reclick.metrics.bootstrap import bootstrap_weights
from reclick.models import MODELS
from tests.support.plain_metrics import bucket

Pair = tuple[str, float, float]  # query, label, score
LOG = {
    "query": ["pizza"] * 6 + ["shoes"] * 4,
    "ads": [["a", "b"]] * 6 + [["b", "c", "d"]] * 4,
    "clicks": [[1], [], [1, 2], [1], [2], [], [3], [], [1, 3], [3, 1]],
}
LABELS = rc.read_labels(
    {
        "query": ["pizza", "pizza", "shoes", "shoes", "never"],
        "ad": ["a", "b", "c", "d", "a"],
        "relevance": [2, 0, 1, 2, 0],
    }
)


def average_precision(pairs: list[Pair], least: float) -> float:
    """Σ over thresholds of the recall gained times the precision there."""
    relevant = sum(label >= least for _, label, _ in pairs)
    if not relevant:
        return math.nan
    area = found_before = 0.0
    for threshold in sorted({score for _, _, score in pairs}, reverse=True):
        taken = [label >= least for _, label, score in pairs if score >= threshold]
        area += (sum(taken) - found_before) / relevant * (sum(taken) / len(taken))
        found_before = sum(taken)
    return area


def roc_area(pairs: list[Pair], least: float) -> float:
    wins = [
        1.0 if one > other else 0.5 if one == other else 0.0
        for (_, a, one), (_, b, other) in itertools.product(pairs, pairs)
        if a >= least and b < least
    ]
    return fmean(wins) if wins else math.nan


def ndcg_of_query(pairs: list[tuple[float, float]], k: int) -> float:
    """The mean over all orders of the ads that the scores allow; a single ad has no order."""

    def dcg(labels: list[float]) -> float:
        return sum(
            max(2**label - 1, 0) / math.log2(place + 1) for place, label in enumerate(labels[:k], 1)
        )

    best = dcg(sorted((label for label, _ in pairs), reverse=True))
    if best == 0 or len(pairs) < 2:
        return math.nan
    orders = [
        order
        for order in itertools.permutations(pairs)
        if all(a[1] >= b[1] for a, b in itertools.pairwise(order))
    ]
    return fmean(dcg([label for label, _ in order]) for order in orders) / best


def ndcgs(pairs: list[Pair], k: int) -> list[float]:
    queries = sorted({query for query, _, _ in pairs})
    each = [
        ndcg_of_query([(label, score) for one, label, score in pairs if one == query], k)
        for query in queries
    ]
    return [value for value in each if not math.isnan(value)]


def plain_metrics(pairs: list[Pair], least: float) -> dict[str, float]:
    means = {k: ndcgs(pairs, k) for k in (5, 10)}
    return {
        "pr_auc": average_precision(pairs, least),
        "roc_auc": roc_area(pairs, least),
        **{f"ndcg@{k}": fmean(values) if values else math.nan for k, values in means.items()},
    }


def random_pairs(seed: int, queries: int = 12, levels: int = 5) -> list[Pair]:
    """Labels 0 … 4 (all 0 for some queries), coarse scores that follow them, seven ads at most."""
    rng = np.random.default_rng(seed)
    pairs = []
    for q in range(queries):
        for _ in range(int(rng.integers(1, 8))):
            label = float(rng.integers(0, 5)) if rng.random() < 0.8 and q else 0.0
            pairs.append(
                (f"q{q}", label, float(np.round((label / 4 + rng.random()) * levels / 2) / levels))
            )
    return [pairs[i] for i in rng.permutation(len(pairs))]


def as_scores(pairs: list[Pair]) -> pa.Table:
    query, label, score = (list(column) for column in zip(*pairs, strict=True))
    return pa.table(
        {
            "query": query,
            "ad": [f"a{i}" for i in range(len(pairs))],
            "relevance": label,
            "score": score,
        }
    )


def rows_by_metric(table: pa.Table, volume: str = "all") -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in table.to_pylist() if row["volume"] == volume}


@pytest.mark.parametrize("least", [None, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(6))
def test_label_metrics_are_what_their_definitions_say(seed: int, least: float | None) -> None:
    pairs = random_pairs(seed)
    rows = rows_by_metric(label_tables({"it": as_scores(pairs)}, relevant_from=least).scores)
    assert rows.keys() == LABEL_METRICS.keys()
    for metric, expected in plain_metrics(pairs, 2.0 if least is None else least).items():
        assert rows[metric]["value"] == pytest.approx(expected, abs=1e-12), metric
    for k in (5, 10):
        assert rows[f"ndcg@{k}"]["support"] == len(ndcgs(pairs, k))
        assert rows[f"ndcg@{k}"]["deviation"] == pytest.approx(np.std(ndcgs(pairs, k)))
    assert rows["pr_auc"]["support"] == rows["roc_auc"]["support"] == len(pairs)


def test_intervals_are_of_the_metrics_of_resampled_queries() -> None:
    pairs = random_pairs(7)
    order = list(dict.fromkeys(query for query, _, _ in pairs))
    sampled = []
    for times in bootstrap_weights(len(order), 15, seed=2).astype(int):
        copies = [
            (f"{q} {copy}", label, score)
            for q, label, score in pairs
            for copy in range(times[order.index(q)])
        ]
        sampled.append(plain_metrics(copies, 2.0))
    rows = rows_by_metric(
        label_tables({"it": as_scores(pairs)}, level=0.5, resamples=15, seed=2).scores
    )
    for metric in LABEL_METRICS:
        values = sorted(each[metric] for each in sampled)
        assert rows[metric]["low"] == pytest.approx(values[3])
        assert rows[metric]["high"] == pytest.approx(values[11])


def test_worked_by_hand() -> None:
    """Scores .9 .8 .8 .1 with labels 1 0 1 0: precision 1 at recall 1/2, 2/3 at 1.

    Of 4 comparisons 3 are right and one is tied.
    """
    table = as_scores([("q", 1.0, 0.9), ("q", 0.0, 0.8), ("q", 1.0, 0.8), ("q", 0.0, 0.1)])
    tables = label_tables({"it": table})
    rows = rows_by_metric(tables.scores)
    assert rows["pr_auc"]["value"] == pytest.approx(1 / 2 + 1 / 2 * 2 / 3)
    assert rows["roc_auc"]["value"] == pytest.approx(3.5 / 4)
    expected = (1 + 0.5 / math.log2(3) + 0.5 / math.log2(4)) / (1 + 1 / math.log2(3))
    assert rows["ndcg@5"]["value"] == pytest.approx(expected)
    assert rows["pr_auc"]["low"] is None  # one query has no spread between queries
    points = [[row["x"], row["y"], row["support"]] for row in tables.curves.to_pylist()]
    np.testing.assert_allclose(points, [[0.5, 1.0, 1.0], [1.0, 2 / 3, 3.0], [1.0, 0.5, 4.0]])


def test_models_are_compared_on_the_same_resamples() -> None:
    table = as_scores(random_pairs(1, queries=40))
    other = table.set_column(3, "score", pa.array(np.random.default_rng(0).random(len(table))))
    found = label_tables({"good": table, "same": table, "random": other, "none": None})
    by_pair = {
        (row["model"], row["against"], row["metric"]): row for row in found.differences.to_pylist()
    }
    same, better = by_pair["good", "same", "roc_auc"], by_pair["good", "random", "roc_auc"]
    assert (same["difference"], same["low"], same["high"]) == (0, 0, 0)
    assert 0 < better["low"] < better["difference"] < better["high"]
    assert by_pair["random", "none", "pr_auc"]["difference"] is None
    assert [row["value"] for row in found.scores.to_pylist() if row["model"] == "none"] == [
        None
    ] * len(LABEL_METRICS)
    assert label_tables({"good": table}, seed=3).scores.equals(
        label_tables({"good": table}, seed=3).scores
    )


def test_nothing_relevant_or_everything_is_no_area() -> None:
    table = as_scores(random_pairs(2))
    nothing, everything = (
        rows_by_metric(label_tables({"it": table}, relevant_from=least).scores)
        for least in (5.0, 0.0)
    )
    assert (
        nothing["pr_auc"]["value"]
        is nothing["roc_auc"]["value"]
        is everything["roc_auc"]["value"]
        is None
    )
    assert everything["pr_auc"]["value"] == 1


def test_by_volume_each_bucket_is_as_if_alone() -> None:
    pairs = random_pairs(3, queries=30)
    queries = [f"q{q}" for q in range(30) for _ in range(q * 4)]  # volumes 0, 4, 8, …
    volumes = QueryVolumes(
        rc.count({"query": queries, "ads": [["a"]] * len(queries), "clicks": [[]] * len(queries)})
    )
    found = label_tables({"it": as_scores(pairs)}, volumes=volumes, resamples=20).scores
    for name in volumes.names:
        those = [pair for pair in pairs if bucket(4.0 * int(pair[0][1:])) == name]
        for metric, row in rows_by_metric(found, name).items():
            expected = plain_metrics(those, 2.0)[metric] if those else math.nan
            assert (math.nan if row["value"] is None else row["value"]) == pytest.approx(
                expected, nan_ok=True
            ), (name, metric)


def test_the_scores_of_a_model_are_its_relevance() -> None:
    model = MODELS["multiclick"]().fit(LOG)
    table = relevance_scores(model, LABELS)
    assert table is not None
    assert table.select(["query", "ad", "relevance"]).equals(LABELS)
    assert (
        table["score"].to_pylist()
        == model.relevance(LABELS.select(["query", "ad"]))["relevance"].to_pylist()
    )
    assert relevance_scores(MODELS["pm"]().fit(LOG), LABELS) is None


def test_models_without_a_relevance_have_nulls_and_no_curve() -> None:
    found = label_tables({"pm": None, "gctr": None})
    assert [row["value"] for row in found.scores.to_pylist()] == [None] * 2 * len(LABEL_METRICS)
    assert [row["difference"] for row in found.differences.to_pylist()] == [None] * len(
        LABEL_METRICS
    )
    assert len(found.curves) == 0


def test_labels_that_cannot_be_used_say_why() -> None:
    with pytest.raises(LogError, match="no relevance is above 0"):
        default_relevance_threshold(pa.table({"relevance": [0.0, -1.0]}))
    with pytest.raises(SettingError, match="same labels"):
        label_tables({"a": as_scores(random_pairs(1)), "b": as_scores(random_pairs(2))})


def test_a_long_curve_is_thinned_to_points_that_are_on_it() -> None:
    rng = np.random.default_rng(0)
    pairs = [(f"q{i % 50}", float(rng.random() < 0.3), float(rng.random())) for i in range(3000)]
    curve = label_tables({"it": as_scores(pairs)}, resamples=0).curves.to_pylist()
    assert 150 < len(curve) <= 200
    by_score = sorted(pairs, key=lambda pair: -pair[2])
    for point in curve:
        taken = by_score[: int(point["support"])]
        found = sum(label for _, label, _ in taken)
        assert point["y"] == pytest.approx(found / len(taken))
        assert point["x"] == pytest.approx(found / sum(label for _, label, _ in pairs))
    assert curve[-1]["x"] == 1.0


def test_intervals_hold_the_truth_as_often_as_they_say_when_pairs_of_a_query_are_alike() -> None:
    """All pairs of a query share the label and half of the score's noise.

    The area is Φ(1 / √(2 (½ + ½))) between queries, and there is none within. Of 400 logs at 90 %,
    360 ± 6 include it; the bounds are 3 deviations off. Pairs resampled as if they were independent
    would include it in some 60 %.
    """
    rng, truth, held, logs = np.random.default_rng(4), NormalDist().cdf(1 / math.sqrt(2)), 0, 400
    query = np.repeat(np.arange(100), 6)
    for _ in range(logs):
        label = (rng.random(100) < 0.5)[query]
        score = label + math.sqrt(0.5) * (rng.normal(size=100)[query] + rng.normal(size=600))
        table = pa.table(
            {
                "query": [f"q{q}" for q in query],
                "ad": ["a"] * 600,
                "relevance": label.astype(float),
                "score": score,
            }
        )
        row = rows_by_metric(label_tables({"it": table}, level=0.9, resamples=250, seed=0).scores)[
            "roc_auc"
        ]
        held += row["low"] <= truth <= row["high"]
    assert abs(held / logs - 0.9) <= 3 * math.sqrt(0.9 * 0.1 / logs), held
