"""Sums of scored sessions: they add, pair up over models, save, and have reasons for gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.errors import LogError, SettingError, StoreError
from reclick.metrics import SESSION_METRICS, ChunkSums, QueryVolumes, score, session_tables
from reclick.metrics.chunk_sums import MAX_CHUNKS, METRIC_COLUMNS, STORED_COLUMNS, assign_chunks
from reclick.models import MODELS
from reclick.runtime import artifact
from tests.support import plain_metrics as plain

LOG = plain.as_table(plain.random_log(3, 120))
LONG = plain.as_table(plain.random_log(4, 2500, longest=4))


def summed(table: pa.Table = LOG, name: str = "multiclick", seed: int = 0) -> ChunkSums:
    return score(MODELS[name]().fit(LOG), table, QueryVolumes(rc.count(LOG)), seed=seed)


@pytest.mark.parametrize(("table", "cut"), [(LOG, 50), (LONG, 700)])
def test_sums_over_a_split_of_the_log_add_up_to_those_of_the_whole(
    table: pa.Table, cut: int
) -> None:
    whole = summed(table).group_sums.sum(axis=0)
    added = (summed(table.slice(0, cut)) + summed(table.slice(cut))).group_sums.sum(axis=0)
    np.testing.assert_allclose(
        added, whole, rtol=1e-12, atol=1e-12
    )  # to the rounding of sums in another order
    for name in SESSION_METRICS:
        np.testing.assert_array_equal(
            added[:, METRIC_COLUMNS[name].start], whole[:, METRIC_COLUMNS[name].start]
        )  # supports are sums of halves: exact


def test_a_session_more_or_less_is_a_chunk_of_its_own_in_a_short_log() -> None:
    sums = summed()
    assert len(sums.sums) == len(LOG)
    np.testing.assert_array_equal(
        sums.group_sums[:, 0, METRIC_COLUMNS["log_likelihood"].start], np.asarray(LOG["weight"])
    )
    assert (
        np.count_nonzero(
            sums.sums[..., METRIC_COLUMNS["log_likelihood"].start].reshape(len(LOG), -1), axis=1
        ).max()
        == 1
    )  # in one cell


def test_chunks_of_a_long_log_depend_on_the_row_and_the_seed_alone() -> None:
    one, other = summed(LONG), summed(LONG, "dctr")
    support = METRIC_COLUMNS["log_likelihood"].start
    np.testing.assert_array_equal(one.sums[..., support], other.sums[..., support])
    expected = np.bincount(
        assign_chunks(np.arange(len(LONG)), 0), np.asarray(LONG["weight"]), MAX_CHUNKS
    )
    np.testing.assert_array_equal(one.group_sums[:, 0, support], expected)
    assert not np.array_equal(summed(LONG, seed=1).sums[..., support], one.sums[..., support])


def test_rows_fall_evenly_into_chunks() -> None:
    """1 M rows in 1000 chunks: counts are Poisson of mean 1000, so χ² / 999 is 1 ± 0.045.

    The bound is at 4 deviations.
    """
    counts = np.bincount(assign_chunks(np.arange(1_000_000), 7), minlength=MAX_CHUNKS)
    assert abs(((counts - 1000) ** 2 / 1000).sum() / 999 - 1) < 4 * np.sqrt(2 / 999)
    pairs = np.bincount(
        assign_chunks(np.arange(0, 2_000_000, 2), 7) // 10 * 100
        + assign_chunks(np.arange(1, 2_000_001, 2), 7) // 10,
        minlength=10_000,
    )
    assert abs(((pairs - 100) ** 2 / 100).sum() / 9999 - 1) < 4 * np.sqrt(
        2 / 9999
    )  # and neighbours apart


def test_the_same_log_gives_the_same_sums_to_the_last_bit() -> None:
    np.testing.assert_array_equal(summed(LONG).sums, summed(LONG).sums)


def test_sums_are_stored_and_read_back_as_they_were(tmp_path: object) -> None:
    for sums in (
        summed(),
        summed(LONG),
        score(MODELS["pm"]().fit(LOG), LOG),
        ChunkSums(summed().sums, summed().volumes, {"rank@4": "too long"}),
    ):
        artifact.write(f"{tmp_path}/scored", kind="counts", settings={}, tables=sums.to_tables())
        again = ChunkSums.from_tables(artifact.read(f"{tmp_path}/scored").tables)
        np.testing.assert_array_equal(again.sums, sums.sums)
        assert again.volumes == sums.volumes
        assert again.reasons == sums.reasons


def test_sums_of_other_metrics_are_refused() -> None:
    stored = summed().to_tables()
    stored["sums"] = stored["sums"].drop_columns([STORED_COLUMNS[0]])
    with pytest.raises(StoreError, match="Score the models again"):
        ChunkSums.from_tables(stored)


def forge_chunk(tables: dict[str, pa.Table], value: int) -> None:
    chunk = pa.array([value] * len(tables["sums"]), pa.int64())
    tables["sums"] = tables["sums"].set_column(0, "chunk", chunk)


@pytest.mark.parametrize(
    "forge",
    [
        lambda tables: tables.pop("sums"),
        lambda tables: tables.pop("reasons"),
        lambda tables: tables.update(volumes=pa.table({"other": ["x"]})),
        lambda tables: forge_chunk(tables, 10**9),
        lambda tables: forge_chunk(tables, -1),
    ],
)
def test_forged_tables_are_refused(forge: Any) -> None:
    stored = summed().to_tables()
    forge(stored)
    with pytest.raises(StoreError):
        ChunkSums.from_tables(stored)


def nulls_of(sums: ChunkSums) -> set[str]:
    scores, _ = session_tables({"it": sums})
    return {
        row["metric"]
        for row in scores.to_pylist()
        if row["value"] is None and (row["sessions"], row["volume"]) == ("all", "all")
    }


MARGINAL = {"perplexity", "calibration_error", "click_ratio", "click_number_error"}
MARGINAL |= {f"perplexity@{r}" for r in range(1, 11)}


def page_of(ads: int, clicks: list[int]) -> pa.Table:
    rest = plain.as_table(
        {
            "query": ["q"],
            "ads": [[f"new{i}" for i in range(ads)]],
            "clicks": [clicks],
            "weight": [1.0],
        }
    )
    return pa.concat_tables([LOG, rest])


def test_what_a_model_cannot_answer_is_null_with_the_reason() -> None:
    sums = summed(page_of(13, [2, 1]))
    assert nulls_of(sums) == MARGINAL == sums.reasons.keys()
    assert "13 ads: exact up to 12" in sums.reasons["perplexity"]
    assert not nulls_of(summed(page_of(13, [1, 2]), "pbm"))  # down the page: exact at any length
    long = summed(page_of(17, list(range(1, 18))))
    sets = {"conditional_perplexity", "log_set_likelihood", "order_log_likelihood"}
    assert nulls_of(long) == MARGINAL | sets
    assert "17 clicks: exact up to 16" in long.reasons["log_set_likelihood"]
    assert nulls_of(summed(page_of(34, [1, 2, 3, 4]))) == {
        *MARGINAL,
        "sequence_accuracy@4",
        "rank@4",
    }


def test_differences_from_a_model_that_cannot_answer_are_null() -> None:
    table = page_of(13, [2, 1])
    scores, differences = session_tables(
        {"multi": summed(table), "pbm": summed(table, "pbm")}, resamples=50
    )
    for row in differences.to_pylist():
        if row["metric"] in MARGINAL:
            assert row["difference"] is row["low"] is row["high"] is None
    assert {
        row["support"]
        for row in scores.to_pylist()
        if row["model"] == "multi" and row["metric"] in MARGINAL
    } == {None}


def test_sums_of_other_logs_are_not_compared() -> None:
    with pytest.raises(SettingError, match="same log"):
        session_tables({"one": summed(), "other": summed(LONG)})
    with pytest.raises(SettingError, match=r"other was not scored.*seed"):
        session_tables({"one": summed(LONG), "other": summed(LONG, seed=1)})
    with pytest.raises(SettingError, match="volumes"):
        _ = summed() + score(MODELS["pm"]().fit(LOG), LOG)
    with pytest.raises(SettingError, match="no model"):
        session_tables({})


def test_without_training_volumes_there_is_one_bucket() -> None:
    scores, _ = session_tables({"pm": score(MODELS["pm"]().fit(LOG), LOG)}, resamples=10)
    assert set(scores["volume"].to_pylist()) == {"all"}


def test_a_log_with_no_good_row_is_refused() -> None:
    bad = rc.read_sessions({"query": ["q"], "ads": [["a"]], "clicks": [[7]]}, on_error="drop")
    with pytest.raises(LogError, match="no row is left"):
        score(MODELS["pm"]().fit(LOG), bad)


def test_volumes_of_queries_are_those_counted() -> None:
    rng = np.random.default_rng(0)
    queries = [f"q{i}" for i in rng.zipf(1.5, 5000) % 300]
    weights = rng.choice([0.5, 1.0, 2.0], 5000)
    log = {
        "query": queries,
        "ads": [["a"]] * 5000,
        "clicks": [[]] * 5000,
        "weight": weights.tolist(),
    }
    counts = rc.count(plain.as_table(log))
    queries_to_look_up = pa.array([f"q{i}" for i in range(400)])
    expected = [
        sum(w for query, w in zip(queries, weights, strict=True) if query == one)
        for one in queries_to_look_up.to_pylist()
    ]
    volumes = QueryVolumes(counts)
    assert volumes.lookup(queries_to_look_up).tolist() == expected
    assert [volumes.names[b] for b in volumes.buckets(queries_to_look_up)] == [
        plain.bucket(volume) for volume in expected
    ]
