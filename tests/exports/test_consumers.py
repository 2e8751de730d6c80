"""The files read back by the tools they are for, and what those tools compute from them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from reclick.errors import MissingExtraError, SettingError
from reclick.exports import export, judgments, to_ir_measures, to_ranx
from reclick.models import DBN, MODELS
from tests.support.export_data import BY_HAND, ODD, RED, TEXTS, WORDS, rates, shown_once

GRADES = {"red%20shoes": {"a": 3, "b": 1}, "50%25%20off%09pizza": {"a": 2}}
IN_PYTHON = {unquote(query): ads for query, ads in GRADES.items()}
# One query is ranked the wrong way round: nDCG = (1 + 3 / log2 3) / (3 + 1 / log2 3). The other is
# right: 1.
RUN = {"red%20shoes": {"a": 1.0, "b": 2.0}, "50%25%20off%09pizza": {"a": 1.0}}
IN_PYTHON_RUN = {unquote(query): ads for query, ads in RUN.items()}
ROOT = Path(__file__).parents[2]
NDCG = (1 + (1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3))) / 2


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    export(rates(), tmp_path / "judgments.qrels", **BY_HAND)
    return tmp_path / "judgments.qrels"


def test_pytrec_eval_reads_qrels_and_scores_a_run(qrels: Path) -> None:
    with qrels.open(encoding="utf-8") as file:
        read = pytrec_eval.parse_qrel(file)
    assert read == GRADES
    scored = pytrec_eval.RelevanceEvaluator(read, {"ndcg"}).evaluate(RUN)
    assert np.mean([query["ndcg"] for query in scored.values()]) == pytest.approx(NDCG)


def test_ir_measures_reads_qrels_and_scores_a_run(qrels: Path) -> None:
    read = list(ir_measures.read_trec_qrels(str(qrels)))  # type: ignore[no-untyped-call]
    assert {(qrel.query_id, qrel.doc_id, qrel.relevance) for qrel in read} == {
        (q, ad, grade) for q, ads in GRADES.items() for ad, grade in ads.items()
    }
    assert ir_measures.calc_aggregate([ir_measures.nDCG], read, RUN)[
        ir_measures.nDCG
    ] == pytest.approx(NDCG)


def test_ranx_reads_qrels_and_takes_the_object_and_scores_runs(qrels: Path) -> None:
    """In a process of its own whose ranx is not compiled, which would take 25 seconds."""
    script = f"""
import numba
import reclick as rc
from tests.exports.test_consumers import BY_HAND, GRADES, IN_PYTHON, IN_PYTHON_RUN, RUN, rates
table = rc.judgments(rates(), **BY_HAND)
numba.config.DISABLE_JIT = True
import ranx
read = ranx.Qrels.from_file({str(qrels)!r}, kind="trec")
assert read.to_dict() == GRADES
print(ranx.evaluate(read, ranx.Run(RUN), "ndcg"))
from_table = rc.to_ranx(table)
assert from_table.to_dict() == IN_PYTHON
print(ranx.evaluate(from_table, ranx.Run(IN_PYTHON_RUN), "ndcg"))
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    assert [float(line) for line in ended.stdout.split()] == pytest.approx([NDCG, NDCG])


def test_ir_measures_takes_the_objects() -> None:
    made = to_ir_measures(judgments(rates(), **BY_HAND))
    assert all(isinstance(qrel, ir_measures.Qrel) for qrel in made)
    assert ir_measures.calc_aggregate([ir_measures.nDCG], made, IN_PYTHON_RUN)[
        ir_measures.nDCG
    ] == pytest.approx(NDCG)


@pytest.mark.parametrize(("library", "make"), [("ir_measures", to_ir_measures), ("ranx", to_ranx)])
def test_without_the_library_the_pip_line_is_shown(
    library: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingExtraError,
        match=rf"{library} is not installed\. Install it with: pip install 'reclick\[exports\]'",
    ):
        make(judgments(rates(), **BY_HAND))


def test_another_table_is_refused() -> None:
    with pytest.raises(
        SettingError, match=r"The table has no grade: give the one from judgments\(\)"
    ):
        to_ir_measures(rates().relevance())


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.lists(st.tuples(TEXTS, WORDS), min_size=1, max_size=6, unique=True))
def test_odd_queries_come_back_from_every_reader_of_qrels(
    tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    path = tmp_path / "x.qrels"
    export(shown_once(pairs), path, cuts=(0.5,), min_support=0)
    with path.open(encoding="utf-8", newline="\n") as file:
        parsed = pytrec_eval.parse_qrel(file)
    assert sorted((unquote(query), ad) for query, ads in parsed.items() for ad in ads) == sorted(
        pairs
    )
    read = ir_measures.read_trec_qrels(str(path))  # type: ignore[no-untyped-call]
    assert sorted((unquote(qrel.query_id), qrel.doc_id) for qrel in read) == sorted(pairs)


def test_scikit_learn_reads_letor_and_gives_the_numbers_back(tmp_path: Path) -> None:
    features = {
        "query": [RED, RED, ODD],
        "ad": ["a", "b", "a"],
        "x": [0.1, 1 / 3, 1e-300],
        "y": [2.0, None, 7.0],
    }
    path = export(rates(), tmp_path / "train.letor", features=features, **BY_HAND).files[0]
    read, grades, query = load_svmlight_file(str(path), query_id=True, zero_based=False)
    assert grades.tolist() == [2, 3, 1]
    assert query.tolist() == [1, 2, 2]
    assert read.toarray().tolist() == [[1e-300, 7.0], [0.1, 2.0], [1 / 3, 0.0]]


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.lists(st.tuples(TEXTS, WORDS), min_size=1, max_size=6, unique=True))
def test_scikit_learn_reads_letor_whatever_the_queries_are(
    tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    model = shown_once(pairs)
    path = export(model, tmp_path / "x.letor", cuts=(0.5,), min_support=0).files[0]
    read, _, query = load_svmlight_file(str(path), query_id=True, zero_based=False, n_features=6)
    assert read[:, 0].toarray().ravel().tolist() == model.relevance()["attractiveness"].to_pylist()
    assert len(set(query.tolist())) == len({asked for asked, _ in pairs})


# OpenSearch and Quepid are not installed here: the documented rules of their importers instead.


def check_opensearch(body: dict[str, Any]) -> None:
    """The schema of `PUT _plugins/_search_relevance/judgments` for IMPORT_JUDGMENT."""
    assert set(body) == {"name", "description", "type", "judgmentRatings"}
    assert body["type"] == "IMPORT_JUDGMENT"
    assert isinstance(body["name"], str)
    assert body["name"]
    assert isinstance(body["description"], str)
    for entry in body["judgmentRatings"]:
        assert set(entry) == {"query", "ratings"}
        assert isinstance(entry["query"], str)
        assert isinstance(entry["ratings"], list)
        for rating in entry["ratings"]:
            assert set(rating) == {"docId", "rating"}
            assert isinstance(rating["docId"], str)
            assert rating["docId"]
            assert isinstance(rating["rating"], str)
            assert np.isfinite(float(rating["rating"]))
    queries = [entry["query"] for entry in body["judgmentRatings"]]
    assert len(set(queries)) == len(queries)


@pytest.mark.parametrize("name", ["dbn", "multiclick", "pbm"])
def test_opensearch_gets_its_documented_schema(tmp_path: Path, name: str) -> None:
    log = {
        "query": [f"q{i % 5}" for i in range(50)],
        "ads": [["a", "b"], ["c", "a", "b"]] * 25,
        "clicks": [[1], [2, 1], [], [1], [2]] * 10,
    }
    model = MODELS[name]().fit(log)
    path = export(model, tmp_path / "x.json", min_support=1).files[0]
    body = json.loads(path.read_bytes())
    check_opensearch(body)
    written = {
        (entry["query"], rating["docId"]): int(rating["rating"])
        for entry in body["judgmentRatings"]
        for rating in entry["ratings"]
    }
    assert written == {
        (row["query"], row["ad"]): row["grade"]
        for row in judgments(model, min_support=1).to_pylist()
    }


def read_as_quepid(text: str) -> list[list[str]]:
    """Lines, the exact header, three cells: how Quepid reads texts without quotes or breaks."""
    header, *lines = text.split("\n")
    assert header.split(",") == ["query", "docid", "rating"]
    return [next(csv.reader([line])) for line in lines if line]


def test_quepid_gets_its_documented_columns(tmp_path: Path) -> None:
    pairs = [("red, blue", "a,b"), ("plain", "c"), ("=cmd", "d"), ("émoji 😀", "e")]
    path = export(shown_once(pairs), tmp_path / "x.csv", cuts=(0.5,), min_support=0).files[0]
    rows = read_as_quepid(path.read_bytes().decode())
    assert sorted((query, ad) for query, ad, _ in rows) == sorted(pairs)
    assert all(len(row) == 3 and row[2].isdigit() for row in rows)


def test_parquet_is_read_by_duckdb(tmp_path: Path) -> None:
    model = DBN().fit(
        {"query": ["q"] * 12, "ads": [["a", "b"]] * 12, "clicks": [[1], [1], [2], []] * 3}
    )
    path = export(model, tmp_path / "x.parquet", cuts="halves").files[0]
    found = (
        duckdb.read_parquet(str(path))
        .project("ad, grade, relevance_low <= relevance AND relevance <= relevance_high")
        .order("ad")
    )
    assert found.fetchall() == [("a", 1, True), ("b", 0, True)]
    assert [str(kind) for kind in found.types] == ["VARCHAR", "INTEGER", "BOOLEAN"]
