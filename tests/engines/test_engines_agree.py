"""All engines give the same answers as plain Python, on random logs and under little memory."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reclick as rc
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.outcomes import N_OUTCOMES
from reclick.engines import Engine, LocalEngine, as_counts, as_grouped, count
from reclick.engines.duckdb import DuckDBEngine
from reclick.errors import BadRowsError, LogError, SettingError, StoreError
from reclick.fitting.em import Statistics
from reclick.runtime import parallel
from reclick.simulation import simulate
from tests.support.enumeration import Session, as_table, random_sessions
from tests.support.plain_counts import by_hand, check_canonical, in_plain

ENGINES: list[Engine] = [
    LocalEngine(threads=1),
    LocalEngine(threads=3),
    DuckDBEngine(memory_limit="200MB", threads=1),
    DuckDBEngine(threads=2),
]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=repr)
FIELDS = ("pair_query", "pair", "page", "click", "clicks", "weight")


def assert_same_groups(one: GroupedSessions, two: GroupedSessions) -> None:
    assert one.counts == two.counts
    for name in FIELDS:
        first, second = getattr(one.whole, name), getattr(two.whole, name)
        assert first.dtype == second.dtype
        assert np.array_equal(first, second), name


def plain_groups(sessions: list[Session]) -> dict[Any, float]:
    """Weights by (query, ads, clicks), by query, then in the order of first appearance."""
    weights: dict[Any, float] = {}
    for s in sessions:
        key = (s.query, s.ads, s.path)
        weights[key] = weights.get(key, 0.0) + s.weight
    return {key: weights[key] for key in sorted(weights, key=lambda key: key[0])}


def read_groups(grouped: GroupedSessions) -> dict[Any, float]:
    counts, block = grouped.counts, grouped.whole
    queries, ads = counts.queries.to_pylist(), counts.ads.to_pylist()
    read = {}
    for s in range(len(block)):
        pairs = block.pair[block.page[s] : block.page[s + 1]]
        key = (
            queries[counts.pair_query[pairs[0]]],
            tuple(ads[ad] for ad in counts.pair_ad[pairs]),
            tuple(block.click[block.clicks[s] : block.clicks[s + 1]].tolist()),
        )
        read[key] = float(block.weight[s])
    assert len(read) == len(block)
    return read


@every_engine
@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 80))
@settings(max_examples=12)
def test_counts_and_groups_are_those_of_plain_python(
    engine: Engine, seed: int, weights: bool, size: int
) -> None:
    rng = np.random.default_rng(seed)
    sessions = random_sessions(rng, size, queries="qrstuv", longest=6, weights=weights)
    log = as_table(sessions, weights=weights)
    counts, grouped = count(log, engine=engine), as_grouped(log, engine=engine)
    assert in_plain(counts) == by_hand(sessions)
    check_canonical(counts)
    assert grouped.counts == counts
    assert list(read_groups(grouped).items()) == list(plain_groups(sessions).items())


@pytest.mark.parametrize("engine", ENGINES[1:], ids=repr)
@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=8)
def test_counts_and_groups_are_equal_to_the_last_bit(
    engine: Engine, seed: int, weights: bool
) -> None:
    rng = np.random.default_rng(seed)
    log = as_table(random_sessions(rng, 60, queries="qrstuv", weights=weights), weights=weights)
    assert_same_groups(as_grouped(log, engine=engine), as_grouped(log, engine=ENGINES[0]))


def with_outcomes(sessions: list[Session], rng: np.random.Generator) -> pa.Table:
    """The log with random outcomes, many of them unknown, and no repeated clicks."""
    once = [Session(s.query, s.ads, s.path, s.weight) for s in sessions]
    dwell = [[[None, 2.0, 50.0][rng.integers(3)] for _ in s.path] for s in once]
    conversions = [[[None, 0.0, 1.0][rng.integers(3)] for _ in s.path] for s in once]
    table = as_table(once, weights=True)
    for name, values in (("dwell_seconds", dwell), ("conversions", conversions)):
        table = table.append_column(name, pa.array(values, pa.list_(pa.float64())))
    return table


def plain_outcomes(log: pa.Table) -> tuple[dict[Any, float], dict[Any, float], list[float]]:
    """Known outcomes of last clicks by pair and by visit, and outcomes of the earlier clicks."""
    pairs: dict[Any, float] = {}
    visits: dict[Any, float] = {}
    earlier = [0.0] * N_OUTCOMES
    for row in log.to_pylist():
        outcomes = []
        for dwell, conversion in zip(row["dwell_seconds"], row["conversions"], strict=True):
            returned = 0 if dwell is None else 1 if dwell < 10 else 2
            known = 0 if conversion is None else 1 if conversion == 0 else 2
            outcomes.append(6 if known == 2 else 3 * known + returned)
        for outcome in outcomes[:-1]:
            earlier[outcome] += row["weight"]
        if outcomes and outcomes[-1]:
            ad = row["ads"][row["clicks"][-1] - 1]
            for table, key in ((pairs, ad), (visits, tuple(row["clicks"]))):
                name = (row["query"], key, outcomes[-1])
                table[name] = table.get(name, 0.0) + row["weight"]
    return pairs, visits, earlier


@every_engine
@given(st.integers(0, 2**32), st.integers(1, 60))
@settings(max_examples=8)
def test_outcomes_are_those_of_plain_python(engine: Engine, seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    log = with_outcomes(random_sessions(rng, size, queries="qrs", weights=True), rng)
    pairs, visits, earlier = plain_outcomes(log)
    counts = count(log, engine=engine)
    if not pairs and not any(earlier[1:]):
        assert counts.outcomes is None
        return
    assert counts.outcomes is not None
    queries, ads = counts.queries.to_pylist(), counts.ads.to_pylist()
    starts = counts.sequence_starts.tolist()
    lists = [tuple(counts.sequence_clicks[a:b].tolist()) for a, b in itertools.pairwise(starts)]
    tables: list[Any] = [
        (counts.outcomes.last, counts.pair_query, counts.pair_ad, ads, pairs),
        (counts.outcomes.visits, counts.visit_query, counts.visit_sequence, lists, visits),
    ]
    for table, first, second, names, expected in tables:
        row, outcome = np.nonzero(table[:, 1:])
        found = {
            (queries[first[r]], names[second[r]], int(o) + 1): float(table[r, o + 1])
            for r, o in zip(row, outcome, strict=True)
        }
        assert found == expected
    np.testing.assert_array_equal(counts.outcomes.earlier, earlier)
    np.testing.assert_array_equal(counts.outcomes.last.sum(axis=1), counts.last_clicks)
    np.testing.assert_array_equal(counts.outcomes.visits.sum(axis=1), counts.sessions)


@pytest.mark.parametrize("engine", ENGINES[1:], ids=repr)
@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_groups_with_outcomes_are_equal_to_the_last_bit(engine: Engine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    log = with_outcomes(random_sessions(rng, 60, queries="qrs", weights=True), rng)
    one, two = as_grouped(log, engine=engine), as_grouped(log, engine=ENGINES[0])
    assert_same_groups(one, two)
    assert one.outcome is not None
    assert two.outcome is not None
    assert one.outcome.dtype == two.outcome.dtype == np.int8
    np.testing.assert_array_equal(one.outcome, two.outcome)
    together = [block.outcome for block in one.blocks(3) if block.outcome is not None]
    np.testing.assert_array_equal(np.concatenate(together), one.outcome)


@every_engine
def test_strings_are_ordered_by_their_bytes(engine: Engine) -> None:
    odd = ["", "z", "Z", "é", "e\u0301", "👟", "a\0b", "a", "حذاء", "'quoted'", "a b", "10", "9"]
    queries, clicks = [q or "empty" for q in odd], [[2, 1], *[[]] * (len(odd) - 1)]
    log = {"query": queries, "ads": [odd[1:]] * len(odd), "clicks": clicks}
    counts = count(log, engine=engine)
    assert counts.ads.to_pylist() == sorted(odd[1:], key=str.encode)
    assert counts.queries.to_pylist() == sorted(queries, key=str.encode)
    check_canonical(counts)


@every_engine
def test_repeated_ads_and_sessions_of_weight_0(engine: Engine) -> None:
    log = {
        "query": ["q", "q", "q", "r", "q"],
        "ads": [["a", "b"], ["a", "a"], ["a", "b"], ["c"], ["b", "a"]],
        "clicks": [[1], [2, 1], [1], [1], []],
        "weight": [0.0, 2.0, 3.0, 0.0, 1.0],
    }
    grouped = as_grouped(log, engine=engine)
    assert grouped.counts.queries.to_pylist() == ["q"]
    assert grouped.counts.ads.to_pylist() == ["a", "b"]
    assert grouped.counts.impressions.tolist() == [8, 4]
    assert list(read_groups(grouped).items()) == [
        (("q", ("a", "b"), (1,)), 3.0),  # first met with weight 0
        (("q", ("a", "a"), (2, 1)), 2.0),
        (("q", ("b", "a"), ()), 1.0),
    ]


@every_engine
def test_fractional_weights_agree_to_rounding(engine: Engine) -> None:
    rng = np.random.default_rng(5)
    table = as_table(random_sessions(rng, 500, queries="qrst"))
    table = table.append_column("weight", pa.array(rng.random(500)))
    counts, local = count(table, engine=engine), count(table, engine=ENGINES[0])
    assert counts.pair_ad.tolist() == local.pair_ad.tolist()
    for name in ("impressions", "clicks", "last_clicks", "sessions", "lengths"):
        np.testing.assert_allclose(getattr(counts, name), getattr(local, name), rtol=1e-12)


@every_engine
def test_bad_rows_and_logs_without_weight_are_refused_alike(engine: Engine) -> None:
    bad = {"query": ["q", "q"], "ads": [["a"], []], "clicks": [[], []]}
    with pytest.raises(BadRowsError):
        count(bad, engine=engine)
    assert count(rc.read_sessions(bad, on_error="drop"), engine=engine).total == 1
    none = rc.read_sessions({"query": ["q"], "ads": [[]], "clicks": [[]]}, on_error="drop")
    with pytest.raises(LogError, match="no row is left"):
        count(none, engine=engine)
    with pytest.raises(LogError, match="weight 0"):
        as_grouped({"query": ["q"], "ads": [["a"]], "clicks": [[]], "weight": [0.0]}, engine=engine)


@every_engine
def test_counts_are_taken_as_they_are_by_every_engine(engine: Engine) -> None:
    log = as_table(random_sessions(np.random.default_rng(1), 20))
    grouped = as_grouped(log, engine=engine)
    assert as_counts(grouped, engine=engine) is grouped.counts
    assert as_counts(grouped.counts, engine=engine) is grouped.counts
    assert as_grouped(grouped, engine=engine) is grouped


def test_counts_of_two_engines_add(tmp_path: Path) -> None:
    one, two = (as_table(random_sessions(np.random.default_rng(i), 80)) for i in (1, 2))
    both = pa.concat_tables([one, two])
    duckdb = DuckDBEngine(threads=1)
    total = count(one, engine=duckdb) + count(two)
    assert total == count(both)
    assert total - count(two, engine=duckdb) == count(one)
    count(both, engine=duckdb).save(tmp_path / "counts")
    assert Counts.load(tmp_path / "counts") == total


def test_a_simulated_week_is_the_same_in_sql() -> None:
    (week,) = simulate(5_000, weeks=1, queries=60, seed=4).weeks
    assert_same_groups(as_grouped(week, engine=DuckDBEngine()), as_grouped(week))


# ---- more pairs than memory


@pytest.fixture(scope="module")
def long_tail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of which nearly every pair is new: 250,000 sessions, 750,000 pairs."""
    rng, n = np.random.default_rng(0), 250_000
    names = pa.array([f"a long name of an advertisement, number {i:07}" for i in range(n)])
    ads = names.take(pa.array(rng.integers(0, n, 3 * n)))
    clicked = rng.integers(0, 4, n).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(clicked > 0)]).astype(np.int32)
    table = pa.table(
        {
            "query": names.take(pa.array(rng.integers(0, n, n))),
            "ads": pa.ListArray.from_arrays(np.arange(0, 3 * n + 1, 3, dtype=np.int32), ads),
            "clicks": pa.ListArray.from_arrays(starts, clicked[clicked > 0]),
        }
    )
    path = tmp_path_factory.mktemp("logs") / "long_tail.parquet"
    pq.write_table(table, path)
    return path


def test_a_log_with_more_pairs_than_memory_is_counted_by_spilling(long_tail: Path) -> None:
    counts = count(long_tail)
    size = sum(getattr(counts, name).nbytes for name in ("impressions", "clicks", "last_clicks"))
    size += counts.pair_query.nbytes + counts.pair_ad.nbytes + counts.sessions.nbytes
    size += counts.queries.nbytes + counts.ads.nbytes
    assert size > 46e6  # the result alone, without any table it is made with
    assert count(long_tail, engine=DuckDBEngine(memory_limit="46MB", threads=1)) == counts


def test_too_little_memory_is_an_error_with_advice(long_tail: Path) -> None:
    with pytest.raises(StoreError, match=r"long_tail.*Raise memory_limit, or let fewer threads"):
        count(long_tail, engine=DuckDBEngine(memory_limit="8MB", threads=1))


@pytest.mark.parametrize("wrong", ["much", 4, "4", "GB", -1])
def test_a_memory_limit_is_a_size(wrong: Any) -> None:
    with pytest.raises(SettingError, match=r'memory_limit: got .*expected a size such as "4GB"'):
        DuckDBEngine(memory_limit=wrong)


# ---- reduce, prepare and map


@every_engine
def test_reduce_adds_up_in_the_order_of_the_blocks(engine: Engine) -> None:
    blocks = engine.prepare(lambda block: block + 1, [0.0, 1.0, 2.0, 3.0])
    assert list(blocks) == [1, 2, 3, 4]
    total = engine.reduce(lambda base, block: Statistics(base**block), 10.0, blocks)
    assert total.log_likelihood == 11110.0


@every_engine
def test_map_writes_what_a_function_makes_of_the_rows(engine: Engine, tmp_path: Path) -> None:
    few = as_table(random_sessions(np.random.default_rng(2), 100))
    table = pa.concat_tables([few] * 400)
    table = table.append_column("row", pa.array(np.arange(len(table))))

    def add(sessions: SessionBatch) -> pa.RecordBatch:
        rows: Any = sessions.rows
        assert len(sessions) == len(rows) <= 16_384
        assert sessions.queries.take(pa.array(sessions.query)).equals(rows.column("query"))
        assert sessions.ads.take(pa.array(sessions.ad)).equals(rows.column("ads").flatten())
        doubled = pa.array(rows.column("row").to_numpy() * 2)
        return pa.RecordBatch.from_arrays([rows.column("row"), doubled], names=["row", "twice"])

    target = tmp_path / "out.parquet"
    assert engine.map(add, rc.read_sessions(table), target) == len(table)
    out = pq.read_table(target)
    assert out["row"].to_pylist() == list(range(len(table)))
    assert out["twice"].to_numpy().tolist() == (np.arange(len(table)) * 2).tolist()


def test_an_error_of_a_function_leaves_no_file(tmp_path: Path) -> None:
    def fail(sessions: SessionBatch) -> pa.RecordBatch:
        raise RuntimeError("broken")

    log = rc.read_sessions(as_table(random_sessions(np.random.default_rng(2), 10)))
    with pytest.raises(RuntimeError, match="broken"):
        LocalEngine().map(fail, log, tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("engine", [LocalEngine(threads=1), DuckDBEngine(threads=1)], ids=repr)
def test_an_engine_with_one_thread_starts_none(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise AssertionError(f"{thread.name} was started")

    def rows(sessions: SessionBatch) -> pa.RecordBatch:
        return sessions.rows

    pq.write_table(as_table(random_sessions(np.random.default_rng(1), 50)), tmp_path / "in.parquet")
    log = rc.read_sessions(tmp_path / "in.parquet")
    monkeypatch.setattr(parallel, "_available_processors", lambda: 4)
    monkeypatch.delenv("RECLICK_THREADS", raising=False)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert engine.count(log).total == engine.group(log).counts.total == 50
    assert engine.map(rows, log, tmp_path / "out.parquet") == 50
    scores = rc.evaluate(
        ["ubm"], log, train=log, resamples=10, engine=engine, in_sample=True, progress=False
    )
    assert scores.value("UBM", "log_set_likelihood") is not None


def test_an_empty_sum_is_refused() -> None:
    def step(parameters: None, block: int) -> Statistics:
        raise AssertionError

    with pytest.raises(SettingError, match=r"blocks: got \[\], expected at least one block"):
        LocalEngine().reduce(step, None, [])


@pytest.mark.parametrize("engine", ["duckdb", 3, LocalEngine])
def test_what_is_no_engine_is_refused(engine: Any, tmp_path: Path) -> None:
    log = {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}
    model = rc.DCTR().fit(log)
    for call in (
        lambda: count(log, engine=engine),
        lambda: as_grouped(log, engine=engine),
        lambda: rc.UBM().fit(log, engine=engine),
        lambda: rc.evaluate(["ubm"], log, train=log, in_sample=True, engine=engine),
        lambda: rc.predict(model, log, tmp_path / "out.parquet", engine=engine),
    ):
        with pytest.raises(SettingError, match=r"engine: got .*, expected an engine,? such as"):
            call()


@pytest.mark.parametrize("limit", ["0GB", "0.0 MB", "4", "GB", "-1GB", 4])
def test_a_memory_limit_is_a_size_above_0(limit: Any) -> None:
    with pytest.raises(SettingError, match="memory_limit: got"):
        DuckDBEngine(memory_limit=limit)
    assert DuckDBEngine(memory_limit="0.5 GB").memory_limit == "0.5 GB"
