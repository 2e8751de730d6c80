"""The same questions to the embedded engine and to hand-written SQL: the same answers on the same random logs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from reclick.data.counts import count
from reclick.simulation import simulate
from tests.support.enumeration import as_table, random_sessions
from tests.support.plain_counts import Plain, in_plain

# A repeated click counts once, at its first time; an ad may stand twice on a page. Every session has a number of its own.
NUMBERED = """
    create temp table sessions as
    select row_number() over () as session, query, ads, weight,
        [position for position, i in clicks if list_position(clicks, position) = i] as clicks
    from log
"""
IMPRESSIONS = "select query, ad, sum(weight) from (select query, unnest(ads) as ad, weight from sessions) group by query, ad"
CLICKS = """
    select query, ads[position] as ad, sum(weight)
    from (select query, ads, weight, unnest(clicks) as position from sessions) group by query, ad
"""
LAST_CLICKS = "select query, ads[clicks[-1]] as ad, sum(weight) from sessions where len(clicks) > 0 group by query, ad"
VISITS = "select query, clicks, sum(weight) from sessions group by query, clicks"
LENGTHS = "select len(ads), len(clicks), sum(weight) from sessions group by all"


def by_sql(log: pa.Table) -> Plain:
    if "weight" not in log.column_names:
        log = log.append_column("weight", pa.array(np.ones(len(log))))
    with duckdb.connect() as base:
        base.register("log", log)
        base.execute(NUMBERED)
        return Plain(
            *(
                _ask(base, question)
                for question in (IMPRESSIONS, CLICKS, LAST_CLICKS, VISITS, LENGTHS)
            )
        )


def _ask(base: Any, question: str) -> Counter[Any]:
    rows = base.execute(question).fetchall()
    return Counter(
        {
            (first, tuple(second) if isinstance(second, list) else second): total
            for first, second, total in rows
        }
    )


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_counts_equal_those_of_sql_on_random_logs(seed: int, weights: bool) -> None:
    sessions = random_sessions(
        np.random.default_rng(seed), 200, queries="qrstuv", longest=6, weights=weights
    )
    log = as_table(sessions, weights=weights)
    assert in_plain(count(log)) == by_sql(log)


def test_counts_equal_those_of_sql_on_a_simulated_week() -> None:
    (week,) = simulate(5_000, weeks=1, queries=60, seed=4).weeks
    assert in_plain(count(week)) == by_sql(week)
