"""nDCG by hand and as ir_measures computes it."""

from __future__ import annotations

import json
from math import log2
from pathlib import Path

import ir_measures
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import reclick as rc
from reclick.cli import app

JUDGED = {"query": ["p", "p", "p", "q"], "ad": ["a", "b", "c", "a"], "grade": [3, 1, 0, 0]}


def test_by_hand() -> None:
    result = rc.ndcg({"p": ["new", "b", "a"], "other": ["a"]}, JUDGED, k=2)
    assert result.value == pytest.approx((1 / log2(3)) / (3 + 1 / log2(3)))
    assert (result.queries, result.without_relevant, result.not_judged) == (1, 1, 1)
    assert (result.not_in_run, result.judged_share) == (0, 0.5)
    assert result.by_query.to_pylist() == [{"query": "p", "ndcg": result.value, "judged": 1}]


def test_gains_may_be_exponential() -> None:
    result = rc.ndcg({"p": ["b", "a"]}, JUDGED, gain="exponential")
    assert result.value == pytest.approx((1 + 7 / log2(3)) / (7 + 1 / log2(3)))


def test_a_query_that_the_run_lacks_counts_as_zero() -> None:
    judged = {"query": ["p", "q"], "ad": ["a", "a"], "grade": [1, 1]}
    result = rc.ndcg({"p": ["a"]}, judged)
    assert (result.value, result.not_in_run) == (0.5, 1)
    assert result.low < 0.5 < result.high


QUERIES, ADS = st.sampled_from("pqr"), st.sampled_from("abcdef")
PAIRS = st.tuples(QUERIES, ADS)


@given(
    st.dictionaries(PAIRS, st.integers(0, 3), min_size=1),
    st.dictionaries(PAIRS, st.integers(0, 4), min_size=1),
    st.integers(1, 5),
    st.sampled_from(["linear", "exponential"]),
)
def test_it_is_that_of_ir_measures_ties_included(
    grades: dict[tuple[str, str], int], scores: dict[tuple[str, str], int], k: int, gain: str
) -> None:
    relevant = {query for (query, _), grade in grades.items() if grade > 0}
    if not relevant & {query for query, _ in scores}:
        return
    judged = [{"query": q, "ad": ad, "grade": grade} for (q, ad), grade in grades.items()]
    run = [{"query": q, "ad": ad, "score": float(score)} for (q, ad), score in scores.items()]
    result = rc.ndcg(pa.Table.from_pylist(run), pa.Table.from_pylist(judged), k=k, gain=gain)
    gains = {pair: grade if gain == "linear" else 2**grade - 1 for pair, grade in grades.items()}
    qrels = [ir_measures.Qrel(*pair, each) for pair, each in gains.items()]
    docs = [ir_measures.ScoredDoc(*pair, float(score)) for pair, score in scores.items()]
    measure = ir_measures.nDCG @ k
    theirs = {each.query_id: each.value for each in measure.iter_calc(qrels, docs)}
    for row in result.by_query.to_pylist():
        assert row["ndcg"] == pytest.approx(theirs.get(row["query"], 0.0), abs=1e-6)


def test_a_trec_run_and_qrels_with_encoded_queries_are_read(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("red%20shoes Q0 a 1 9.5 mine\nred%20shoes Q0 b 2 8 mine\n")
    (tmp_path / "x.csv").write_text("query,docid,rating\nred shoes,b,2\nred shoes,a,1\n")
    value = (1 + 2 / log2(3)) / (2 + 1 / log2(3))
    assert rc.ndcg(tmp_path / "run.txt", tmp_path / "x.csv").value == pytest.approx(value)
    ranks = {"query": ["red shoes"] * 2, "ad": ["b", "a"], "rank": [2, 1]}
    assert rc.ndcg(ranks, tmp_path / "x.csv").value == pytest.approx(value)
    arguments = ["ndcg", str(tmp_path / "run.txt"), str(tmp_path / "x.csv"), "--k", "5"]
    printed = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (printed["value"], printed["k"]) == (pytest.approx(value), 5)
    assert f"nDCG@5         {value:.4f}" in CliRunner().invoke(app, arguments).stdout


@pytest.mark.parametrize(
    ("run", "judged", "message"),
    [
        ({"s": ["a"]}, JUDGED, "no query in common"),
        ({"q": ["a"]}, {"query": ["q"], "ad": ["a"], "grade": [0]}, "grade above 0"),
    ],
)
def test_without_a_common_query_there_is_no_score(
    run: dict[str, list[str]], judged: dict[str, list[object]], message: str
) -> None:
    with pytest.raises(rc.UsageError, match=message):
        rc.ndcg(run, judged)


def test_a_wrong_line_of_a_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("p Q0 a 1\n")
    with pytest.raises(rc.LogError, match=r"line 1: .* expected query Q0 ad rank score name"):
        rc.ndcg(tmp_path / "run.txt", JUDGED)
