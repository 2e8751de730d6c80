"""Folds: nothing is lost, and they follow from the sessions themselves."""

from __future__ import annotations

import numpy as np
import pytest

from reclick.data.grouped_sessions import GroupedSessions
from reclick.engines import as_grouped
from reclick.fitting.folds import (
    Fold,
    folds_of_click_sets,
    folds_of_pages,
    held_out_weight,
)
from tests.support.enumeration import as_table, random_sessions


def group(seed: int, size: int = 200, order: int | None = None) -> GroupedSessions:
    rng = np.random.default_rng(seed)
    table = as_table(random_sessions(rng, size, queries="qrs", weights=True), weights=True)
    if order is not None:
        table = table.take(np.random.default_rng(order).permutation(size))
    return as_grouped(table)


def by_content(sessions: GroupedSessions) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    block = sessions.whole
    content: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for s in range(len(block)):
        pairs = tuple(block.pair[block.page[s] : block.page[s + 1]].tolist())
        clicks = tuple(sorted(block.click[block.clicks[s] : block.clicks[s + 1]].tolist()))
        content[pairs, clicks] = content.get((pairs, clicks), 0.0) + float(block.weight[s])
    return content


def make(kind: str, sessions: GroupedSessions) -> list[Fold]:
    if kind == "click sets":
        return folds_of_click_sets(sessions, 3, seed=1)
    return folds_of_pages(sessions, 3, frequent_page=20, min_pages=10)


@pytest.mark.parametrize("kind", ["click sets", "pages"])
def test_every_session_is_held_out_once_and_fitted_on_in_the_other_folds(kind: str) -> None:
    sessions = group(1)
    folds, whole = make(kind, sessions), by_content(sessions)
    assert len(folds) == 3
    tests: dict[object, float] = {}
    for train, test in folds:
        kept, held_out = by_content(train), by_content(test)
        for key in {**kept, **held_out}:
            tests[key] = tests.get(key, 0.0) + held_out.get(key, 0.0)
            together = kept.get(key, 0.0) + held_out.get(key, 0.0)
            assert together == pytest.approx(whole[key])
    assert tests == pytest.approx(whole)


@pytest.mark.parametrize("kind", ["click sets", "pages"])
def test_the_order_of_the_rows_does_not_matter(kind: str) -> None:
    one, two = make(kind, group(2)), make(kind, group(2, order=7))
    for first, second in zip(one, two, strict=True):
        assert by_content(first.train) == by_content(second.train)
        assert by_content(first.test) == by_content(second.test)


def test_a_rare_page_is_held_out_whole_and_a_frequent_one_dealt_out() -> None:
    pages = [[f"a{i}", "b"] for i in range(60)] + [["x", "y"]] * 60
    clicks = [[1]] * 60 + [[1], [2], []] * 20
    sessions = as_grouped({"query": ["q"] * 120, "ads": pages, "clicks": clicks})
    folds = folds_of_pages(sessions, 3, frequent_page=30, min_pages=20)
    rare = [fold.test.weight[np.diff(fold.test.clicks) > 0] for fold in folds]
    assert all(len(fold.test) > 3 for fold in folds)
    assert all(weight.max() >= 6 for weight in rare)  # of [1] and [2] on the frequent page
    assert sum(fold.test.weight.sum() for fold in folds) == 120
    few = folds_of_pages(sessions, 3, frequent_page=1e9, min_pages=1_000)
    assert sum(fold.test.weight.sum() for fold in few) == 120


def test_sessions_all_alike_have_nothing_to_hold_out() -> None:
    alike = as_grouped({"query": ["q"] * 3, "ads": [["a"]] * 3, "clicks": [[1]] * 3})
    assert folds_of_click_sets(alike, 3, seed=0) == []


def test_the_weight_of_a_session_is_dealt_out() -> None:
    weight, first = np.array([0.5, 1.0, 7.0, 9.25]), np.array([0, 2, 1, 2])
    held_out = np.array([held_out_weight(weight, first, fold, 3) for fold in range(3)])
    np.testing.assert_allclose(held_out.sum(axis=0), weight)
    assert held_out[:, 0].tolist() == [0.5, 0, 0]
    assert held_out[:, 2].tolist() == [2, 3, 2]
    assert held_out[:, 3].tolist() == [3, 3, 3.25]
