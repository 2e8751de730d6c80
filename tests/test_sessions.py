"""Grouped sessions: equal ones together, their pairs those of the counts, nothing lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reclick as rc
from reclick.data.grouped_sessions import Sessions, as_sessions
from reclick.errors import LogError

LOG: dict[str, list[Any]] = {
    "query": ["b", "a", "b", "b", "a"],
    "ads": [["x", "y"], ["x"], ["x", "y"], ["y", "x"], ["x"]],
    "clicks": [[2, 1], [], [2, 1], [2], [1]],
}


def read_back(sessions: Sessions) -> dict[tuple[str, tuple[str, ...], tuple[int, ...]], float]:
    """Each distinct session as plain values, with its weight."""
    counts = sessions.counts
    found = {}
    for s in range(len(sessions)):
        pairs = sessions.pair[sessions.page[s] : sessions.page[s + 1]]
        query = counts.queries[int(counts.pair_query[pairs[0]])].as_py()
        ads = tuple(counts.ads[int(ad)].as_py() for ad in counts.pair_ad[pairs])
        found[
            query, ads, tuple(sessions.click[sessions.clicks[s] : sessions.clicks[s + 1]].tolist())
        ] = float(sessions.weight[s])
    return found


def test_equal_sessions_are_grouped_with_their_weight() -> None:
    assert read_back(as_sessions(LOG)) == {
        ("a", ("x",), ()): 1,
        ("a", ("x",), (1,)): 1,
        ("b", ("x", "y"), (2, 1)): 2,
        ("b", ("y", "x"), (2,)): 1,
    }


def test_the_counts_are_those_of_the_log() -> None:
    assert as_sessions(LOG).counts == rc.count(LOG)


def test_sessions_come_in_the_order_of_their_queries() -> None:
    sessions = as_sessions(LOG)
    queries = sessions.counts.pair_query[sessions.pair[sessions.page[:-1]]]
    assert (np.diff(queries) >= 0).all()


def test_a_tiny_weight_is_kept_with_its_pair() -> None:
    sessions = as_sessions(
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
        as_sessions({**with_none, "query": [*LOG["query"], "new"], "weight": [1.0] * 5 + [0.0]})
    ) == read_back(as_sessions(LOG))


def test_a_log_of_weight_0_is_refused() -> None:
    with pytest.raises(LogError, match="weight 0"):
        as_sessions({**LOG, "weight": [0.0] * 5})


def test_counts_are_refused_with_the_reason() -> None:
    with pytest.raises(LogError, match="Give it the log itself"):
        as_sessions(rc.count(LOG))


def test_blocks_and_selections_hold_what_they_say() -> None:
    sessions = as_sessions(LOG)
    joined: dict[tuple[str, tuple[str, ...], tuple[int, ...]], float] = {}
    for block in sessions.blocks(3):
        joined |= read_back(block)
    assert joined == read_back(sessions)
    assert read_back(sessions.select(np.array([2, 0]))) == {
        ("b", ("x", "y"), (2, 1)): 2,
        ("a", ("x",), ()): 1,
    }
