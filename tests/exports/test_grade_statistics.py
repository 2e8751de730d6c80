"""Statistics of grades against plain loops over pairs of ads."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reclick as rc
from reclick.exports.grade_statistics import GradeStatistics

LIMITS = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4])
PAIRS = st.lists(
    st.tuples(st.sampled_from("pqr"), st.integers(0, 3), LIMITS, LIMITS), min_size=1, max_size=14
)


@given(PAIRS)
def test_comparisons_and_overlaps_are_those_of_a_plain_loop(
    pairs: list[tuple[str, int, float, float]],
) -> None:
    rows = [
        {"query": query, "grade": grade, "x_low": min(one, two), "x_high": max(one, two)}
        for query, grade, one, two in sorted(pairs)
    ]
    statistics = GradeStatistics()
    statistics.add(pa.Table.from_pylist(rows), "x")
    comparisons = [
        (one, two)
        for one, two in combinations(rows, 2)
        if one["query"] == two["query"] and one["grade"] != two["grade"]
    ]
    overlapping = sum(
        one["x_low"] <= two["x_high"] and two["x_low"] <= one["x_high"]  # type: ignore[operator]
        for one, two in comparisons
    )
    grades = {q: {row["grade"] for row in rows if row["query"] == q} for q in "pqr"}
    assert statistics.comparisons == len(comparisons)
    assert statistics.overlapping == overlapping
    assert statistics.queries == sum(bool(each) for each in grades.values())
    assert statistics.single_grade_queries == sum(len(each) == 1 for each in grades.values())


def weak_and_strong() -> rc.ClickModel:
    """Click rates: strong a .8, b .4; weak a .02, b .01, c 0; rare d."""
    log: dict[str, list[object]] = {"query": [], "ads": [], "clicks": []}
    for query, ad, clicks, shown in (
        ("strong", "a", 80, 100),
        ("strong", "b", 40, 100),
        ("weak", "a", 2, 100),
        ("weak", "b", 1, 100),
        ("weak", "c", 0, 100),
        ("rare", "d", 1, 3),
    ):
        log["query"] += [query] * shown
        log["ads"] += [[ad]] * shown
        log["clicks"] += [[1]] * clicks + [[]] * (shown - clicks)
    return rc.DCTR(attractiveness_strength=0).fit(log)


def test_grades_per_query_are_quarters_of_its_best() -> None:
    table = rc.judgments(weak_and_strong(), cuts="per-query", bound="value")
    grades = {(row["query"], row["ad"]): row["grade"] for row in table.to_pylist()}
    assert grades == {
        ("strong", "a"): 3,
        ("strong", "b"): 2,
        ("weak", "a"): 3,
        ("weak", "b"): 2,
        ("weak", "c"): 0,
    }


def test_a_pair_without_support_is_not_the_best_of_its_query() -> None:
    pairs = {"query": ["rare", "weak"], "ad": ["d", "c"]}
    table = rc.judgments(weak_and_strong(), pairs=pairs, cuts="per-query", bound="value")
    assert table.select(["query", "grade"]).to_pylist() == [{"query": "weak", "grade": 0}]


def test_the_result_says_how_many_queries_have_no_grade_or_one(tmp_path: Path) -> None:
    result = rc.export(
        weak_and_strong(), tmp_path / "x.csv", cuts=(0.1, 0.5), bound="value", details=True
    )
    assert (result.queries, result.ungraded_queries, result.single_grade_queries) == (2, 1, 1)
    assert (result.comparisons, result.overlap) == (1, 0.0)
    assert "no grade       1 of 3 (33%) queries" in str(result)
    header, first, *_ = (tmp_path / "x.csv").read_text().splitlines()
    assert header == "query,docid,rating,relevance,low,high,impressions,clicks"
    query, ad, rating, value, low, high, impressions, clicks = first.split(",")
    assert (query, ad, rating, float(value), float(impressions), float(clicks)) == (
        "strong",
        "a",
        "2",
        0.8,
        100,
        80,
    )
    assert float(low) < 0.8 < float(high)


def test_details_are_for_the_csv_only(tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match="details is for the format 'quepid'"):
        rc.export(weak_and_strong(), tmp_path / "x.qrels", details=True)
