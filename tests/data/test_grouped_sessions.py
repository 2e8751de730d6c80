"""Grouped sessions: equal ones together, their pairs those of the counts, nothing lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reclick as rc
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.engines import as_grouped
from reclick.errors import LogError
from tests.support.enumeration import as_table, random_sessions

LOG: dict[str, list[Any]] = {
    "query": ["b", "a", "b", "b", "a"],
    "ads": [["x", "y"], ["x"], ["x", "y"], ["y", "x"], ["x"]],
    "clicks": [[2, 1], [], [2, 1], [2], [1]],
}


Plain = dict[tuple[str, tuple[str, ...], tuple[int, ...]], float]


def read_back(sessions: GroupedSessions) -> Plain:
    """Each distinct session as plain values, with its weight."""
    return read_block(sessions.counts, sessions.whole)


def read_block(counts: Counts, block: QueryBlock) -> Plain:
    read = {}
    for s in range(len(block)):
        pairs = block.pair[block.page[s] : block.page[s + 1]] + block.first_pair
        query = counts.queries[int(counts.pair_query[pairs[0]])].as_py()
        ads = tuple(counts.ads[int(ad)].as_py() for ad in counts.pair_ad[pairs])
        clicks = tuple(block.click[block.clicks[s] : block.clicks[s + 1]].tolist())
        read[query, ads, clicks] = float(block.weight[s])
    return read


def test_equal_sessions_are_grouped_with_their_weight() -> None:
    assert read_back(as_grouped(LOG)) == {
        ("a", ("x",), ()): 1,
        ("a", ("x",), (1,)): 1,
        ("b", ("x", "y"), (2, 1)): 2,
        ("b", ("y", "x"), (2,)): 1,
    }


def test_the_counts_are_those_of_the_log() -> None:
    assert as_grouped(LOG).counts == rc.count(LOG)


def test_sessions_come_in_the_order_of_their_queries() -> None:
    sessions = as_grouped(LOG)
    queries = sessions.counts.pair_query[sessions.pair[sessions.page[:-1]]]
    assert (np.diff(queries) >= 0).all()


def test_a_tiny_weight_is_kept_with_its_pair() -> None:
    sessions = as_grouped(
        {
            "query": ["p", "q", "q"],
            "ads": [["z"], ["a"], ["z"]],
            "clicks": [[1], [1], [1]],
            "weight": [1, 1, 1e-10],
        }
    )
    assert read_back(sessions) == {
        ("p", ("z",), (1,)): 1,
        ("q", ("a",), (1,)): 1,
        ("q", ("z",), (1,)): 1e-10,
    }


def test_a_session_of_weight_0_is_as_if_not_there() -> None:
    with_none = {name: [*values, values[0]] for name, values in LOG.items()}
    assert read_back(
        as_grouped({**with_none, "query": [*LOG["query"], "new"], "weight": [1.0] * 5 + [0.0]})
    ) == read_back(as_grouped(LOG))


def test_a_log_of_weight_0_is_refused() -> None:
    with pytest.raises(LogError, match="weight 0"):
        as_grouped({**LOG, "weight": [0.0] * 5})


def test_counts_are_refused_with_the_reason() -> None:
    with pytest.raises(LogError, match="Give it the log itself"):
        as_grouped(rc.count(LOG))


def test_a_selection_has_the_sessions_it_names() -> None:
    assert read_back(as_grouped(LOG).select(np.array([2, 0]))) == {
        ("b", ("x", "y"), (2, 1)): 2,
        ("a", ("x",), ()): 1,
    }


def test_reweighting_drops_sessions_of_weight_0() -> None:
    reweighted = as_grouped(LOG).reweight(np.array([0.0, 3.0, 0.5, 0.0]))
    assert read_back(reweighted) == {("a", ("x",), (1,)): 3, ("b", ("x", "y"), (2, 1)): 0.5}


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 60))
@settings(max_examples=40)
def test_blocks_tile_the_queries_and_pairs(seed: int, n: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    sessions = as_grouped(as_table(random_sessions(rng, size, queries="pqrstu", longest=5)))
    some = sessions.reweight(rng.integers(0, 2, len(sessions)).astype(np.float64) + 1e-9)
    for grouped in (sessions, some):
        blocks = grouped.blocks(n)
        assert 1 <= len(blocks) <= n
        assert [b.first_query for b in blocks] == starts([b.n_queries for b in blocks])
        assert [b.first_pair for b in blocks] == starts([b.n_pairs for b in blocks])
        assert sum(b.n_queries for b in blocks) == len(sessions.counts.queries)
        assert sum(b.n_pairs for b in blocks) == len(sessions.counts.impressions)
        read: Plain = {}
        for block in blocks:
            own = read_block(sessions.counts, block)
            assert not read.keys() & own.keys()
            assert block.max_ads <= grouped.max_ads
            query = sessions.counts.pair_query[block.pairs]
            assert np.array_equal(query - block.first_query, block.pair_query)
            assert (block.query < block.n_queries).all()
            read |= own
        assert read == read_back(grouped)


def test_blocks_are_cut_between_queries_even_where_one_query_is_most_of_the_log() -> None:
    log = {
        "query": ["b"] * 30 + ["a", "c"],
        "ads": [[str(i)] for i in range(32)],
        "clicks": [[]] * 32,
    }
    blocks = as_grouped(log).blocks(4)
    assert sorted(len(block) for block in blocks)[-1] == 30
    assert all(len(block) for block in blocks)


def starts(sizes: list[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]
