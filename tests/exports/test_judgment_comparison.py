"""Two lists of judgments: read back from every format, compared by hand and with scipy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from typer.testing import CliRunner

import reclick as rc
from reclick.cli import app
from reclick.exports.judgment_comparison import kendall_tau
from tests.support.export_data import BY_HAND, rates

A = {"query": ["p", "p", "p", "q"], "ad": ["x", "y", "z", "x"], "grade": [2, 1, 0, 3]}
B = {"query": ["p", "p", "p", "r"], "ad": ["x", "y", "z", "x"], "grade": [0, 1, 2, 3]}


def test_by_hand() -> None:
    comparison = rc.compare_judgments(A, B, top=1)
    assert comparison == rc.JudgmentComparison(
        pairs=3,
        only_a=1,
        only_b=1,
        queries=1,
        agreement=1 / 3,
        kendall_tau=-1.0,
        tau_queries=1,
        grades={"0 → 2": 1, "1 → 1": 1, "2 → 0": 1},
        moves=({"query": "p", "ad": "x", "a": 2.0, "b": 0.0},),
    )
    assert str(comparison).splitlines() == [
        "pairs          3 in both, 1 only in the first, 1 only in the second",
        "agreement      33.3% of the pairs have the same grade",
        "Kendall's tau  -1.000, mean over 1 of 1 queries",
        "grades         0 → 2: 1   1 → 1: 1   2 → 0: 1",
        "largest changes",
        "  2 → 0   p   x",
    ]


def test_a_list_agrees_with_itself() -> None:
    comparison = rc.compare_judgments(A, A)
    assert (comparison.agreement, comparison.kendall_tau, comparison.moves) == (1.0, 1.0, ())
    assert (comparison.queries, comparison.tau_queries) == (2, 1)


SCORES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=12)


@given(SCORES)
def test_tau_is_that_of_scipy(scores: list[tuple[int, int]]) -> None:
    a, b = np.array(scores, np.float64).T
    tau, expected = kendall_tau(a, b), float(kendalltau(a, b).statistic)
    assert np.isnan(expected) if tau is None else tau == pytest.approx(expected)


@pytest.mark.parametrize("name", ["x.qrels", "x.csv", "x.json", "x.parquet"])
def test_every_export_is_read_back(tmp_path: Path, name: str) -> None:
    rc.export(rates(), tmp_path / name, **BY_HAND)
    expected = rc.judgments(rates(), **BY_HAND).select(["query", "ad", "grade"])
    assert rc.read_judgments(tmp_path / name).to_pylist() == expected.to_pylist()


def test_details_are_read_back_too(tmp_path: Path) -> None:
    rc.export(rates(), tmp_path / "x.csv", **BY_HAND, details=True)
    comparison = rc.compare_judgments(str(tmp_path / "x.csv"), rc.judgments(rates(), **BY_HAND))
    assert comparison.agreement == 1.0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.qrels", "p 0 x\n", "line 1: got 'p 0 x', expected query 0 ad grade"),
        ("x.qrels", "p 0 x 1\np 0 y high\n", "line 2"),
        ("x.qrels", "p 0 x 1\np 0 x 2\n", "query 'p' and ad 'x' occur 2 times"),
        ("x.json", "{}", "not a judgment list of OpenSearch"),
        ("x.csv", "query,docid\np,x\n", "no column"),
        ("x.csv", "query,docid,rating\n", "no"),
    ],
)
def test_what_is_no_list_of_judgments_is_refused(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(rc.LogError, match=message):
        rc.read_judgments(tmp_path / name)


def test_a_missing_column_is_named_with_the_names_that_it_may_have() -> None:
    with pytest.raises(rc.LogError, match=r"has no column ad\..* ad \(or docid, ") as refusal:
        rc.compare_judgments({"query": ["p"], "foo": ["x"], "grade": [1]}, A)
    assert "columns=" not in str(refusal.value)  # it has no such argument
    with pytest.raises(rc.LogError, match=r"grade .*expected a number, got string\. Name its"):
        rc.read_judgments({"query": ["p"], "ad": ["x"], "grade": ["good"]})


def test_a_missing_file_and_lists_without_a_common_pair_are_refused(tmp_path: Path) -> None:
    with pytest.raises(rc.LogError, match="does not exist"):
        rc.read_judgments(tmp_path / "none.qrels")
    with pytest.raises(rc.UsageError, match="no pair of query and ad in common"):
        rc.compare_judgments(A, {"query": ["s"], "ad": ["x"], "grade": [1]})


def test_pairs_without_a_grade_are_left_out() -> None:
    table = pa.table({"query": ["p", "p"], "ad": ["x", "y"], "grade": pa.array([1, None])})
    assert rc.read_judgments(table).num_rows == 1


def test_the_command_prints_json(tmp_path: Path) -> None:
    for name in ("a.qrels", "b.qrels"):
        (tmp_path / name).write_text("p 0 x 1\np 0 y 0\n")
    arguments = ["compare-judgments", str(tmp_path / "a.qrels"), str(tmp_path / "b.qrels")]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(result.stdout)["kendall_tau"] == 1.0
    assert "100.0%" in CliRunner().invoke(app, arguments).stdout
