"""Buckets, files between tasks, merging and rounds, without processes; and the process pool."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reclick as rc
from reclick.data.counts import Counts
from reclick.data.hashing import query_buckets
from reclick.data.ragged import read_only
from reclick.engines import as_grouped, count
from reclick.engines.store import Store
from reclick.errors import BadRowsError, EngineError, LogError, StoreError
from reclick.simulation import simulate
from tests.engines.test_engines_agree import assert_same_groups, with_outcomes
from tests.support.enumeration import as_table, random_sessions
from tests.support.inline_engine import InlineEngine

FEW: dict[str, Any] = {"max_iterations": 2, "tolerance": 0, "attractiveness_prior": "overall"}
MODELS: list[rc.ClickModel] = [
    rc.UBM(), rc.PBM(), rc.BBM(), rc.DBN(), rc.DBN(continuation=0.9), rc.CCM(), rc.THCM(),
    rc.LuceClick(), rc.MultiClick(), rc.SDBN(), rc.AM(),
]  # fmt: skip


@pytest.fixture
def week() -> Any:
    return simulate(3_000, weeks=1, queries=40, seed=4).weeks[0]


def assert_same_model(one: Any, two: Any, tolerance: float = 0.0) -> None:
    """Equal settings, iterations and parameters: to the last bit, unless a tolerance is given."""
    for name in (*one.pair_parameters, *one.global_parameters):
        first, second = getattr(one, name), getattr(two, name)
        if isinstance(first, str) or first is None:
            assert first == second, name
        else:
            np.testing.assert_allclose(first, second, rtol=0, atol=tolerance, err_msg=name)
    assert getattr(one, "iterations_", None) == getattr(two, "iterations_", None)
    assert one.training_counts == two.training_counts
    assert [each.log for each in one.provenance_] == [each.log for each in two.provenance_]


# ---- counts


@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 6), st.sampled_from([1, 2, 7, 200]))
@settings(max_examples=15)
def test_counts_split_by_query_add_up_again(
    seed: int, outcomes: bool, parts: int, buckets: int
) -> None:
    rng = np.random.default_rng(seed)
    sessions = random_sessions(rng, 40, queries="qrstuv", weights=True)
    log = with_outcomes(sessions, rng) if outcomes else as_table(sessions, weights=True)
    whole = count(log)
    size = -(-len(log) // parts)
    each = [count(log.slice(start, size)) for start in range(0, len(log), size)]
    assert Counts.sum(each) == whole
    split = whole.split(query_buckets(whole.queries, buckets), buckets)
    assert len(split) == buckets
    joined = Counts.sum(split)
    for name in ("queries", "ads", "pair_ad", "impressions", "clicks", "sessions"):
        mine, theirs = getattr(joined, name), getattr(whole, name)
        same = mine.equals(theirs) if isinstance(mine, pa.Array) else np.array_equal(mine, theirs)
        assert same, name


@given(
    st.integers(0, 2**32),
    st.booleans(),
    st.integers(1, 120),
    st.integers(1, 5),
    st.sampled_from([1, 3, 200]),
)
@settings(max_examples=15, deadline=None)
def test_parts_and_buckets_change_nothing(
    seed: int, outcomes: bool, size: int, parts: int, buckets: int
) -> None:
    rng = np.random.default_rng(seed)
    sessions = random_sessions(rng, size, queries="qrstuv", weights=True)
    log = with_outcomes(sessions, rng) if outcomes else as_table(sessions, weights=True)
    engine = InlineEngine(parts, buckets)
    counts, local = count(log, engine=engine), count(log)
    assert counts == local
    assert counts.logs == local.logs
    sample, expected = counts.logs[0].sample, local.logs[0].sample
    assert np.array_equal(sample.keys, expected.keys)
    assert np.array_equal(sample.sessions, expected.sessions)
    grouped, plain = as_grouped(log, engine=engine), as_grouped(log)
    assert_same_groups(grouped, plain)
    if plain.outcome is None:
        assert grouped.outcome is None
    else:
        assert grouped.outcome is not None
        assert np.array_equal(grouped.outcome, plain.outcome)


def test_one_query_with_half_the_sessions() -> None:
    rng = np.random.default_rng(3)
    sessions = random_sessions(rng, 300, queries="qrstuvwxyz")
    table = as_table(sessions)
    half = pa.array(["much"] * 150).cast(table["query"].type)
    skewed = table.set_column(
        table.column_names.index("query"),
        "query",
        pa.chunked_array([half, table["query"].slice(150).combine_chunks()]),
    )
    engine = InlineEngine(4, 200)  # many buckets are empty
    assert_same_groups(as_grouped(skewed, engine=engine), as_grouped(skewed))
    assert_same_model(rc.UBM().fit(skewed, engine=engine), rc.UBM().fit(skewed))


def test_many_pairs_in_one_process_are_announced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = as_table(random_sessions(np.random.default_rng(1), 50))
    count(table, engine=InlineEngine())
    assert not caplog.messages
    monkeypatch.setattr("reclick.engines.tasks.MANY_PAIRS", 10)
    for reduce in (count, as_grouped):
        reduce(table, engine=InlineEngine())
        assert "table: up to 0 million pairs come to the memory" in caplog.messages.pop()


def test_row_groups_and_files_are_parts(tmp_path: Path) -> None:
    table = as_table(random_sessions(np.random.default_rng(1), 200))
    pq.write_table(table.slice(0, 120), tmp_path / "a.parquet", row_group_size=30)
    pq.write_table(table.slice(120), tmp_path / "b.parquet", row_group_size=1000)
    log = rc.read_sessions(tmp_path)
    parts = log.split(3)
    assert parts is not None
    rows = [sum(len(batch) for batch in part.batches()) for part in parts]
    assert rows == [60, 60, 80]
    assert count(log, engine=InlineEngine(3)) == count(table)
    assert count([tmp_path / "a.parquet"], engine=InlineEngine(9)) == count(table.slice(0, 120))


def test_a_log_that_only_the_driver_reads_is_dealt_out() -> None:
    import duckdb

    table = as_table(random_sessions(np.random.default_rng(1), 50))
    with duckdb.connect() as connection:
        relation = connection.from_arrow(table)
        assert count(relation, engine=InlineEngine()) == count(table)


def test_the_table_of_a_lake_is_not_predicted_in_tasks(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = as_table(random_sessions(np.random.default_rng(1), 50))
    deltalake.write_deltalake(str(tmp_path / "lake"), table)
    model = rc.DCTR().fit(tmp_path / "lake", engine=InlineEngine())
    reason = r"lake is .* the table of a lake.*Leave out engine.*read\.format\('delta'\)"
    with pytest.raises(LogError, match=reason):
        rc.predict(model, tmp_path / "lake", tmp_path / "to.parquet", engine=InlineEngine())


# ---- bad rows


def test_bad_rows_are_reported_as_by_one_process(tmp_path: Path) -> None:
    table = as_table(random_sessions(np.random.default_rng(1), 100))
    rows = table.to_pylist()
    for i in (7, 8, 55, 90, 91):
        rows[i]["ads"] = []
    rows[60]["clicks"] = [99]
    pq.write_table(
        pa.Table.from_pylist(rows, table.schema), tmp_path / "x.parquet", row_group_size=9
    )
    one, two = (rc.read_sessions(tmp_path / "x.parquet", on_error="drop") for _ in range(2))
    assert count(one, engine=InlineEngine(4)) == count(two)
    assert one.summary == two.summary
    assert sum(one.summary.dropped.values()) == 6
    with pytest.raises(BadRowsError) as local:
        count(tmp_path / "x.parquet")
    with pytest.raises(BadRowsError) as tasks:
        count(tmp_path / "x.parquet", engine=InlineEngine(4))
    assert str(local.value) == str(tasks.value)


def test_an_empty_log_and_one_without_good_rows_are_refused() -> None:
    none = rc.read_sessions({"query": ["q"], "ads": [[]], "clicks": [[]]}, on_error="drop")
    with pytest.raises(LogError, match="no row is left"):
        count(none, engine=InlineEngine())
    empty = as_table(random_sessions(np.random.default_rng(1), 1)).slice(0, 0)
    with pytest.raises(LogError, match="has no rows"):
        count(empty, engine=InlineEngine())


# ---- fits


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model).split("\n")[0])
def test_fits_are_those_of_one_process(model: Any, week: Any) -> None:
    local = model.clone().fit(week)
    assert_same_model(model.clone().fit(week, engine=InlineEngine(3, 4)), local)


class WatchedEngine(InlineEngine):
    """Notes the largest array that a round sends to a block, beside the rows of the block."""

    def reduce(self, step: Any, parameters: Any, blocks: Any) -> Any:
        for block in blocks:
            size = len(pickle.dumps(parameters.for_block(block.rows)))
            self.sent.append(size - 40 * block.rows.pairs.stop + 40 * block.rows.pairs.start)
        return super().reduce(step, parameters, blocks)


@pytest.mark.parametrize(
    "model",
    [
        rc.UBM(**FEW),
        rc.DBN(continuation="query", **FEW),
        rc.CCM(initiation="query", **FEW),
        rc.THCM(**FEW),
    ],
    ids=lambda model: model.name,
)
def test_a_block_is_sent_the_parameters_of_its_own_rows(model: Any) -> None:
    (week,) = simulate(3_000, weeks=1, queries=300, seed=4).weeks
    engine = WatchedEngine(10, 2)
    assert_same_model(model.clone().fit(week, engine=engine), model.clone().fit(week))
    pairs = len(rc.count(week).impressions)
    assert max(engine.sent) < 8 * pairs  # less than one value per pair of the log


def test_predictions_are_those_of_one_process(week: Any, tmp_path: Path) -> None:
    model = rc.UBM().fit(week)
    one = rc.predict(model, week, tmp_path / "one.parquet")
    two = rc.predict(model, week, tmp_path / "two.parquet", engine=InlineEngine(3))
    assert one == two
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "two.parquet"))


def test_evaluations_are_those_of_one_process(week: Any) -> None:
    models = {"UBM": rc.UBM().fit(week), "LuceClick": rc.LuceClick().fit(week)}
    options: dict[str, Any] = {"in_sample": True, "resamples": 100}
    one = rc.evaluate(models, week, **options)
    two = rc.evaluate(models, week, engine=InlineEngine(3), **options)
    assert one.scores.column_names == two.scores.column_names
    for name in ("value", "low", "high"):
        first, second = (np.array(each.scores[name], np.float64) for each in (one, two))
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-12)
    assert rc.describe(week, engine=InlineEngine(3)) == rc.describe(week)


@pytest.mark.parametrize("model", [rc.MultiClick(), rc.LuceClick()], ids=lambda each: each.name)
def test_updates_are_those_of_one_process(model: Any, week: Any) -> None:
    first, second = week.slice(0, 2_000), week.slice(2_000)
    local = model.clone().fit(first).update(second, decay=0.9)
    tasks = model.clone().fit(first).update(second, decay=0.9, engine=InlineEngine(3))
    assert_same_model(local, tasks)


# ---- files between tasks


def test_arrays_come_back_as_they_were() -> None:
    store = Store.create(None)
    value = {
        "a": np.arange(5.0),
        "b": read_only(np.arange(3, dtype=np.int32)),
        "c": pa.array(["x"]),
    }
    store.put("one", [value, "second"])
    found = store.load("one")
    assert found["a"].flags.writeable
    assert not found["b"].flags.writeable
    assert found["a"].tolist() == value["a"].tolist()
    assert found["c"].equals(value["c"])
    assert store.load("one", 1) == "second"
    found["a"][0] = 9.0  # a copy of this process
    assert store.load("one")["a"][0] == 0.0
    store.remove()
    assert found["a"][1] == 1.0  # still mapped
    assert not Path(str(store.folder)).exists()


@pytest.mark.parametrize("at", [3, 60, -10])
def test_a_damaged_file_is_refused(at: int) -> None:
    store = Store.create(None)
    store.put("one", [np.arange(100.0)])
    path = Path(str(store.folder)) / "one"
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="a file between tasks, cannot be read"):
        store.load("one")
    path.write_bytes(content[:-70])
    with pytest.raises(StoreError, match="cannot be read"):
        store.load("one")
    store.remove()


class RunsCode:
    """A value whose pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_files_of_others_are_not_unpickled(tmp_path: Path) -> None:
    mine, theirs = Store.create(tmp_path), Store.create(tmp_path)
    mine.put("one", ["mine"])
    theirs.put("one", [RunsCode(tmp_path / "ran")])
    Path(str(theirs.folder), "one").replace(Path(str(mine.folder), "one"))
    with pytest.raises(StoreError, match="not of this job"):
        mine.load("one")
    assert not (tmp_path / "ran").exists()
    theirs.put("one", [RunsCode(tmp_path / "ran")])
    theirs.load("one")
    assert (tmp_path / "ran").exists()  # so the test can fail


def test_a_file_under_another_name_is_refused() -> None:
    store = Store.create(None)
    store.put("one", [1])
    Path(str(store.folder), "one").rename(Path(str(store.folder), "two"))
    with pytest.raises(StoreError, match="not of this job"):
        store.load("two")
    store.remove()


def test_every_process_of_a_job_reads_its_files() -> None:
    store = Store.create(None)
    store.put("one", [np.arange(3.0)])
    there = pickle.loads(pickle.dumps(store))  # noqa: S301, our own
    assert there.load("one").tolist() == [0.0, 1.0, 2.0]
    store.remove()


def test_nothing_is_left_in_the_folder(week: Any, tmp_path: Path) -> None:
    engine = InlineEngine(folder=tmp_path)
    rc.UBM(max_iterations=3, tolerance=0).fit(week, engine=engine)
    engine.close()
    assert list(tmp_path.iterdir()) == []


# ---- the pool


@pytest.fixture(scope="module")
def pool() -> Iterator[rc.PoolEngine]:
    engine = rc.PoolEngine(workers=2)
    yield engine
    engine.close()


def test_a_pool_gives_the_answers_of_one_process(
    pool: rc.PoolEngine, week: Any, tmp_path: Path
) -> None:
    assert count(week, engine=pool) == count(week)
    assert_same_groups(as_grouped(week, engine=pool), as_grouped(week))
    for model in (rc.UBM(), rc.DBN(continuation=0.9), rc.THCM()):
        assert_same_model(model.clone().fit(week, engine=pool), model.clone().fit(week))
    fitted = rc.UBM().fit(week)
    lazy = rc.UBM().fit_to(tmp_path / "model", week, buckets=5, engine=pool)
    assert_same_model(lazy.to_memory(), fitted, 1e-9)
    luce = rc.LuceClick(tune="off", max_iterations=5)
    lazy = luce.fit_to(tmp_path / "luce", week, buckets=3, engine=pool)
    assert_same_model(lazy.to_memory(), luce.clone().fit(week), 1e-9)
    rc.predict(fitted, week, tmp_path / "one.parquet")
    rc.predict(fitted, week, tmp_path / "two.parquet", engine=pool)
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "two.parquet"))


def _die_once(folder: str, i: int) -> int:
    mark = Path(folder) / "died"
    if i == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def _die(i: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return i


def test_a_task_whose_process_dies_is_run_again(pool: rc.PoolEngine, tmp_path: Path) -> None:
    assert pool.run(partial(_die_once, str(tmp_path)), 4, "") == [0, 1, 2, 3]
    with pytest.raises(EngineError, match=r"died 3 times.*fewer workers"):
        rc.PoolEngine(workers=1).run(_die, 1, "")
    assert count({"query": ["q"], "ads": [["a"]], "clicks": [[1]]}, engine=pool).total == 1
