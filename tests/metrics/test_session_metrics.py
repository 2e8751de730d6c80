"""The session metrics against their definitions in all groups, and against worked examples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.clicks.choice import ChoicePages, Variant
from reclick.data.batch import Float64, SessionBatch
from reclick.logs import as_log
from reclick.metrics import SESSION_METRICS, ChunkSums, QueryVolumes, score, session_tables
from reclick.metrics.predictions import BatchPredictions
from reclick.models import MODELS, ClickModel
from tests.support import plain_metrics as plain

TRAINING = plain.random_log(0, 160, queries="qqqqqqqqqqqqqqrrs")  # t and u are never seen
MODELS_TRIED = ("multiclick", "thcm", "am", "pm", "dbn", "pbm", "cm", "gctr", "dctr")


def volumes_of(log: dict[str, list[Any]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for query, weight in zip(log["query"], log["weight"], strict=True):
        out[query] = out.get(query, 0.0) + weight
    return out


def fitted(name: str) -> ClickModel:
    return MODELS[name]().fit(plain.as_table(TRAINING))


def training_volumes() -> QueryVolumes:
    return QueryVolumes(rc.count(plain.as_table(TRAINING)))


def rows(table: pa.Table) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Rows by metric, sessions and volume; null is nan."""
    plain_rows: list[dict[str, Any]] = [
        {key: math.nan if value is None else value for key, value in row.items()}
        for row in table.to_pylist()
    ]
    return {(row["metric"], row["sessions"], row["volume"]): row for row in plain_rows}


def assert_as_defined(
    sums: ChunkSums, sessions: list[plain.Seen], volumes: dict[str, float]
) -> None:
    by_group = rows(session_tables({"it": sums}, resamples=0)[0])
    expected = plain.by_group(sessions, volumes)
    absent = {key for key in expected if expected[key[0], "all", "all"][2] == 0}
    assert by_group.keys() == expected.keys() - absent
    for key, row in by_group.items():
        value, deviation, support = expected[key]
        assert row["value"] == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True), key
        assert row["support"] == pytest.approx(support, rel=1e-12), key
        if SESSION_METRICS[key[0]].deviation:
            assert row["deviation"] == pytest.approx(deviation, rel=1e-6, abs=1e-6, nan_ok=True), (
                key
            )
        else:
            assert math.isnan(row["deviation"])


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", MODELS_TRIED)
def test_every_metric_of_every_group_is_what_its_definition_says(name: str, seed: int) -> None:
    model, log = fitted(name), plain.random_log(seed, 90)
    assert_as_defined(
        score(model, plain.as_table(log), training_volumes()),
        plain.seen_by(model, log),
        volumes_of(TRAINING),
    )


def test_a_log_of_one_session_without_clicks_has_nothing_to_say_of_clicks() -> None:
    model = fitted("multiclick")
    log: dict[str, list[Any]] = {
        "query": ["q"],
        "ads": [["a", "b"]],
        "clicks": [[]],
        "weight": [1.0],
    }
    sums = score(model, plain.as_table(log), training_volumes())
    assert_as_defined(sums, plain.seen_by(model, log), volumes_of(TRAINING))
    by_group = rows(session_tables({"it": sums})[0])
    assert "rank@1" not in {metric for metric, _, _ in by_group}
    assert math.isnan(by_group["log_likelihood", "all", "all"]["low"])  # one session has no spread


def test_sessions_of_more_than_four_clicks_count_in_all_but_the_ranks() -> None:
    log: dict[str, list[Any]] = {
        "query": ["q"] * 2,
        "ads": [list("abcdef")] * 2,
        "clicks": [[2, 1, 3, 6, 5], [1]],
    }
    by_group = rows(session_tables({"it": score(fitted("multiclick"), plain.as_table(log))})[0])
    supports = {
        metric: row["support"] for (metric, kind, _), row in by_group.items() if kind == "all"
    }
    assert (
        supports["first_click_accuracy"]
        == supports["log_likelihood"]
        == supports["log_set_likelihood"]
        == supports["impossible"]
        == 2
    )
    assert supports["rank@1"] == 1
    assert not supports.keys() & {"rank@2", "rank@3", "rank@4", "sequence_accuracy@4"}


def worked_page(clicks: list[list[int]], variant: Variant = "paper") -> BatchPredictions:
    """Pages of section 6 of the mathematics, with these clicks."""
    (batch,) = as_log(
        {"query": ["q"] * len(clicks), "ads": [["a", "b", "c"]] * len(clicks), "clicks": clicks}
    ).batches()
    gamma = np.array([[0.7, 0.2, 0.1], [0, 0.7, 0.3], [0.4, 0, 0.6], [0.3, 0.7, 0]])
    return answers_of(batch, variant, [0.5, 0.3, 0.2], [0.4, 0.6, 0.2], [0.3, 0.5, 0.6, 1.0], gamma)


def answers_of(
    batch: SessionBatch,
    variant: Variant,
    theta: list[float],
    rho: list[float],
    stop: list[float],
    gamma: Float64,
) -> BatchPredictions:
    many = len(batch)
    pages = ChoicePages(
        variant,
        np.tile(theta, many),
        np.tile(rho, many),
        np.array([stop]),
        gamma[None],
        batch.page,
        np.zeros(many, np.int64),
    )
    return BatchPredictions(batch, pages)


def value(metric: str, answers: BatchPredictions) -> float:
    each = SESSION_METRICS[metric]
    columns = each.columns(answers)
    assert columns.shape == (len(answers), each.size)
    return float(each.value(columns.sum(axis=0)))


@pytest.mark.parametrize(
    ("variant", "expected"),
    [("paper", 4.119126), ("examination", 4.115169), ("normalised", 1.956378)],
)
def test_the_perplexity_of_the_worked_example_is_as_worked(
    variant: Variant, expected: float
) -> None:
    assert value("perplexity", worked_page([[1, 2]], variant)) == pytest.approx(expected, abs=1e-6)


def test_the_ranks_of_the_worked_example_are_as_worked() -> None:
    """P(1,2) = .015139 > P(1,3) = .004114 > P(2,1) = .001656 > P(3,2) = .001136 > P(2,3) = .000942
    > P(3,1) = .000790."""
    ranks = {(1, 2): 1, (1, 3): 2, (2, 1): 3, (3, 2): 4, (2, 3): 5, (3, 1): 6}
    for clicks, place in ranks.items():
        answers = worked_page([list(clicks)])
        assert value("rank@2", answers) == place
        assert value("sequence_accuracy@2", answers) == (place == 1)
        assert value("top_accuracy@2", answers) == (clicks in {(1, 2), (2, 1)})
    assert value("rank@2", worked_page([list(clicks) for clicks in ranks])) == 3.5
    assert value("first_click_accuracy", worked_page([[1], [2, 1], [1, 3], []])) == pytest.approx(
        2 / 3
    )


def test_likelihoods_of_the_worked_example_are_as_worked() -> None:
    answers = worked_page([[], [1], [1, 2], [2, 1]])
    chances, sets = [0.699, 0.225155, 0.015139, 0.001656], [0.699, 0.225155, 0.016795, 0.016795]
    assert value("log_likelihood", answers) == pytest.approx(np.mean(np.log(chances)), abs=1e-4)
    assert value("log_set_likelihood", answers) == pytest.approx(np.mean(np.log(sets)), abs=1e-4)
    assert value("conditional_perplexity", answers) == pytest.approx(
        2 ** (-np.sum(np.log2(sets)) / 12), abs=1e-4
    )
    assert value("perplexity@1", answers) == pytest.approx(
        2 ** -((math.log2(1 - 0.247606) + 3 * math.log2(0.247606)) / 4), abs=1e-5
    )


def test_ads_that_are_all_alike_share_every_place() -> None:
    gamma = np.full((4, 3), 1 / 3)
    (batch,) = as_log(
        {"query": ["q"] * 2, "ads": [["a", "b", "c"]] * 2, "clicks": [[3], [2, 1]]}
    ).batches()
    answers = answers_of(batch, "paper", [0.2] * 3, [0.1] * 3, [0.3] * 4, gamma)
    assert value("first_click_accuracy", answers) == pytest.approx(1 / 3)
    assert value("sequence_accuracy@1", answers) == pytest.approx(1 / 3)
    assert value("sequence_accuracy@2", answers) == pytest.approx(1 / 6)
    assert value("rank@1", answers) == 2
    assert value("rank@2", answers) == 3.5
    assert value("top_accuracy@2", answers) == pytest.approx(2 / 6)


def test_names_are_those_of_the_contract_each_with_what_people_read() -> None:
    assert list(SESSION_METRICS) == [
        "first_click_accuracy",
        *(f"sequence_accuracy@{m}" for m in range(1, 5)),
        *(f"rank@{m}" for m in range(1, 5)),
        "top_accuracy@2",
        "top_accuracy@3",
        "perplexity",
        *(f"perplexity@{r}" for r in range(1, 11)),
        "conditional_perplexity",
        "log_likelihood",
        "log_set_likelihood",
        "impossible",
        "calibration_error",
        "click_ratio",
        "click_number_error",
        "order_log_likelihood",
        "backward_ratio",
    ]
    for name, metric in SESSION_METRICS.items():
        assert metric.name == name
        assert metric.better in {"higher", "lower", "closest to 1"}
        assert metric.about.endswith(".")
    assert len({metric.title for metric in SESSION_METRICS.values()}) == len(SESSION_METRICS)
