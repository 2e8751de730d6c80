"""Judgments: what is graded, what is left out, and that evidence counts."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.errors import CannotAnswerError, NotFittedError, SettingError
from reclick.exports import judgments
from reclick.exports.judgment_table import GradedPairs, PairBatches
from reclick.exports.request import GradingRule
from reclick.models import DBN, DCTR, MODELS, PBM
from tests.support.conformance_kit import LONG_PAGE_MODELS
from tests.support.export_data import BY_HAND, LEFT_OUT, LOG, ODD, RED, rates

WITH_RELEVANCE = [name for name in LONG_PAGE_MODELS if MODELS[name].attractiveness]
SURE_OF_RARE = (
    "luceclick",
)  # it learns from rare pairs what rare pairs are like, and so may be sure of one that it saw once
# "often" is clicked 900 times of 1000, "other" 100, "poor" 50, "once" 1 of 1. Below each is one
# ad that is clicked now and then, with and without a click above it.
SHOWN = ["often"] * 1000 + ["once"] + ["other"] * 1000 + ["poor"] * 1000
FIRST = (
    [i % 10 != 0 for i in range(1000)]
    + [True]
    + [i % 10 == 0 for i in range(1000)]
    + [i % 20 == 0 for i in range(1000)]
)
EVIDENCE: dict[str, list[Any]] = {
    "query": ["q"] * 3001,
    "ads": [[ad, "below"] for ad in SHOWN],
    "clicks": [
        [1] * first + [2] * (i % 7 == 0 if first else i % 3 == 0) for i, first in enumerate(FIRST)
    ],
}


def graded(table: pa.Table) -> dict[tuple[str, str], int]:
    return {(row["query"], row["ad"]): row["grade"] for row in table.to_pylist()}


def test_grades_by_hand() -> None:
    table = judgments(rates(), **BY_HAND)
    assert graded(table) == {(RED, "a"): 3, (RED, "b"): 1, (ODD, "a"): 2}
    assert table.column_names == ["query", "ad", "relevance", "low", "high", "support", "grade"]
    assert pa.types.is_integer(table.schema.field("grade").type)
    assert sorted(table["relevance"].to_pylist()) == [0.25, 0.5, 0.75]
    assert table["support"].to_pylist() == [4, 4, 4]


@pytest.mark.parametrize("name", WITH_RELEVANCE)
@pytest.mark.parametrize("cuts", ["halves", (0.01, 0.1, 0.2, 0.3, 0.6, 0.8)])
def test_one_click_of_one_does_not_outrank_nine_hundred_of_a_thousand(name: str, cuts: Any) -> None:
    model = MODELS[name]().fit(EVIDENCE)
    found = graded(judgments(model, cuts=cuts))
    assert ("q", "once") not in found
    assert found["q", "often"] > found["q", "other"]
    if name not in SURE_OF_RARE:  # they keep it even where no support is asked for
        found = graded(judgments(model, cuts=cuts, min_support=1))
        assert found["q", "once"] <= found["q", "often"]


def test_the_value_itself_would_have_outranked_it() -> None:
    model = DCTR(attractiveness_strength=0.1).fit(EVIDENCE)
    cuts = np.arange(1, 100) / 100
    by_value, by_low = (
        graded(judgments(model, cuts=cuts, bound=bound, min_support=1))
        for bound in ("value", "low")
    )
    assert by_value["q", "once"] > by_value["q", "often"]
    assert by_low["q", "once"] < by_low["q", "often"]


def test_without_a_prior_the_support_rule_protects() -> None:
    model = DCTR(attractiveness_strength=0).fit(EVIDENCE)
    low = {row["ad"]: row["low"] for row in judgments(model, min_support=1).to_pylist()}
    assert low["once"] == 1.0  # the printed formula is sure of 1 of 1
    assert ("q", "once") not in graded(judgments(model))


def test_what_is_left_out_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "reclick"):
        table = judgments(rates(), **BY_HAND)
    assert caplog.messages == ["judgments: 1 pairs left out, shown fewer than 2 times."]
    stored = json.loads(table.schema.metadata[b"reclick"])
    assert stored == {
        "model": "dctr",
        "quantity": "relevance",
        "bound": "value",
        "level": 0.9,
        "min_support": 2,
        "cuts": [0.2, 0.5, 0.7],
        "quantiles": None,
        "per_query": False,
        "left_out": LEFT_OUT,
        "ungraded_queries": 0,
        "single_grade_queries": 1,
        "comparisons": 1,
        "overlap": 1.0,
    }


def test_quantiles_are_of_the_graded_pairs_and_are_stored() -> None:
    table = judgments(rates(), cuts="halves", bound="value", min_support=2)
    stored = json.loads(table.schema.metadata[b"reclick"])
    assert (stored["quantiles"], stored["cuts"]) == ("halves", [0.5])
    assert graded(table) == {
        (RED, "a"): 1,
        (RED, "b"): 0,
        (ODD, "a"): 0,
    }  # 0.75, 0.25, and 0.5, which does not pass the half


def test_pairs_without_a_click_are_at_the_bottom_and_do_not_move_the_quantiles() -> None:
    log = {
        "query": ["q"] * 60,
        "ads": [["a", "b", "c", "d", "e", "f"]] * 60,
        "clicks": [[1], [2], [1], []] * 15,
    }
    found = graded(judgments(MODELS["dctr"]().fit(log)))
    assert [found["q", ad] for ad in "abcdef"] == [3, 0, 0, 0, 0, 0]


def test_a_log_without_a_click_has_no_quantiles_to_grade_by() -> None:
    log = {"query": ["q"] * 20, "ads": [["a", "b"]] * 20, "clicks": [[]] * 20}
    with pytest.raises(SettingError, match="was clicked"):
        judgments(MODELS["dctr"]().fit(log))
    assert set(judgments(MODELS["dctr"]().fit(log), cuts=(0.5,))["grade"].to_pylist()) == {0}


def test_pairs_of_a_table_are_graded_once_each_and_by_query() -> None:
    pairs = {"query": [RED, ODD, RED, RED, "never"], "ad": ["b", "a", "a", "b", "x"]}
    table = judgments(rates(), pairs=pairs, **BY_HAND)
    assert [(row["query"], row["ad"]) for row in table.to_pylist()] == [
        (ODD, "a"),
        (RED, "a"),
        (RED, "b"),
    ]
    assert json.loads(table.schema.metadata[b"reclick"])["left_out"] == {
        "shown fewer than 2 times": 1
    }


def test_unseen_pairs_are_graded_only_with_a_minimum_support_of_0() -> None:
    table = judgments(
        DCTR().fit(LOG), pairs={"query": [RED], "ad": ["never"]}, min_support=0, cuts=(0.5,)
    )
    assert table["support"].to_pylist() == [0.0]


def test_satisfaction_can_be_graded() -> None:
    table = judgments(DBN().fit(LOG), quantity="satisfaction", min_support=1)
    assert "satisfaction" in table.column_names
    with pytest.raises(CannotAnswerError, match="PBM has no satisfaction"):
        judgments(PBM().fit(LOG), quantity="satisfaction")


def test_no_pair_left_is_an_error_with_the_reason() -> None:
    for cuts in ("quartiles", (0.5,)):
        with pytest.raises(
            SettingError,
            match=r"No pair is left to grade: 4 shown fewer than 100 times\. .*min_support",
        ):
            judgments(rates(), cuts=cuts, min_support=100)


@pytest.mark.parametrize("name", ["gctr", "rctr", "pm"])
def test_a_model_without_relevance_says_so(name: str) -> None:
    with pytest.raises(CannotAnswerError, match="has no attractiveness"):
        judgments(MODELS[name]().fit(LOG))


def test_a_model_that_is_not_fitted_says_so() -> None:
    with pytest.raises(NotFittedError):
        judgments(DCTR())


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_batches_hold_every_pair_once_and_no_query_twice(size: int) -> None:
    model = rates()
    for _ in range(2):
        batches = list(PairBatches(model, size=size))
        assert pa.concat_tables(batches).equals(model.relevance().select(["query", "ad"]))
        queries = [set(part["query"].to_pylist()) for part in batches]
        assert sum(map(len, queries)) == len(set.union(*queries))
    assert len(PairBatches(model, size=size)) == 4


@pytest.mark.parametrize("name", ["dbn", "multiclick", "luceclick"])
def test_batches_have_the_values_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]().fit(LOG)
    whole = model.relevance()
    monkeypatch.setattr(
        "reclick.exports.judgment_table.PairBatches",
        lambda model, pairs: PairBatches(model, pairs, size=1),
    )
    parts = list(GradedPairs(model, rule=GradingRule(cuts=(0.5,))).tables())
    assert len(parts) == 2
    assert pa.concat_tables(parts).drop_columns(["grade"]).equals(whole)


def test_progress_covers_both_passes() -> None:
    reports: list[tuple[int, int | None]] = []
    judgments(
        rates(), min_support=1, progress=lambda what, done, total: reports.append((done, total))
    )
    assert reports == [(4, 8), (8, 8)]
