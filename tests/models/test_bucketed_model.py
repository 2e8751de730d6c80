"""Models in buckets answer as the whole model, to the last bit, and refuse damaged folders."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.data.hashing import query_buckets
from reclick.errors import CannotAnswerError, LogError, SettingError, StoreError, UsageError
from reclick.metrics.chunk_sums import score
from reclick.models import MODELS, ClickModel
from reclick.models.bucketed_model import BucketedModel
from reclick.models.buckets import BucketWriter, WrittenBucket
from reclick.runtime import artifact
from reclick.service.answers import known_ads
from reclick.service.hosting import ModelHost
from tests.support.conformance_kit import LONG_PAGE_MODELS
from tests.support.inline_engine import InlineEngine

WORDS = ("hot", "cold", "cheap", "pizza", "tea", "shop")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in LONG_PAGE_MODELS},
    "luceclick, all effects and outcomes": (
        "luceclick",
        {"tune": "off", "components": 2, "position_effect_strength": 5.0},
    ),
    "luceclick, nothing per query": (
        "luceclick",
        {
            "tune": "off",
            "components": 2,
            "query_strength": None,
            "mixing_strength": None,
            "satisfaction_strength": None,
            "position_effect_strength": None,
        },
    ),
    "multiclick, global": ("multiclick", {"pooling": "global", "min_query_sessions": 5}),
    "multiclick, outcomes": ("multiclick", {}),
    "dbn, per query": ("dbn", {"continuation": "query", "initiation": "query"}),
    "ubm, noise": ("ubm", {"noise": "session"}),
    "icm, own words": ("icm", {"min_query_sessions": 5}),
}
SHORT = {"max_iterations": 15}


def make_log(sessions: int, *, queries: int, seed: int, outcomes: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    query = rng.integers(0, queries, sessions)
    pages = [[f"ad{(3 * q + a) % 70}" for a in rng.permutation(6)[:4]] for q in query]
    clicks = [(rng.permutation(4) + 1)[: rng.integers(0, 4)].tolist() for _ in query]
    log: dict[str, Any] = {"query": [f"query {q} ü" for q in query]}
    log |= {"ads": pages, "clicks": clicks}
    if outcomes:
        log["dwell_seconds"] = [rng.exponential(30, len(each)).tolist() for each in clicks]
    return log


def make_ads(first: int, last: int) -> pa.Table:
    texts = [" ".join(WORDS[(i * k) % 6] for k in (1, 2, 3)) for i in range(first, last)]
    return pa.table({"ad": [f"ad{i}" for i in range(first, last)], "title": texts})


TEST = make_log(80, queries=30, seed=2)  # 20 queries are known
TEST["ads"] = [[*page[:2], f"ad{i % 90}", page[3]] for i, page in enumerate(TEST["ads"])]
NEW_TEXT = make_ads(50, 90)
BAD_PAGES = [{"query": "query 1 ü", "ads": [], "clicks": []}] * 20


@cache
def fitted(variant: str) -> ClickModel:
    name, settings = VARIANTS[variant]
    short = SHORT if "max_iterations" in MODELS[name].settings else {}
    log = make_log(400, queries=20, seed=1, outcomes="outcomes" in variant)
    return MODELS[name](**settings, **short).fit(log, ads=make_ads(0, 55))


def saved(model: ClickModel, folder: Path, buckets: int, **options: Any) -> BucketedModel:
    model.save(folder, buckets=buckets)
    loaded = rc.load(folder, **options)
    assert isinstance(loaded, BucketedModel)
    return loaded


def answers(model: ClickModel) -> dict[str, Any]:
    """All that a model says of the test log, of one page, and of pairs known and new."""
    text = {"text": NEW_TEXT}
    found: dict[str, Any] = {
        "log_prob": model.log_prob(TEST, **text),
        "log_set_prob": model.log_set_prob(TEST, **text),
        "click_prob": model.click_prob(TEST, **text),
        "without text": model.click_prob(TEST),
        "next_click_prob": model.next_click_prob(TEST, **text),
        "satisfaction_prob": refusal_or(lambda: model.satisfaction_prob(TEST)),
        "sample": model.sample(TEST, 3, **text).to_pylist(),
        "rank_sequences": model.rank_sequences("query 3 ü", ["ad9", "ad80", "never"], **text),
        "new query": model.rank_sequences("never", ["ad9", "ad80", "never"]),
        "relevance": refusal_or(model.relevance),
        "of a query": refusal_or(lambda: model.relevance(query="query 3 ü")),
        "of pairs": refusal_or(lambda: model.relevance(PAIRS, **text, level=0.5)),
        "draws": refusal_or(lambda: model.sample_relevance(PAIRS, 3, 1).attractiveness),
        "explain": refusal_or(lambda: model.explain("query 3 ü", "ad9")),
        "totals": model.training_totals,
    }
    for batch in rc.read_sessions(TEST).batches():
        found |= {"known": model.find_known(batch), "volumes": model.find_volumes(batch)}
    return found


PAIRS = {
    "query": ["query 3 ü", "never", "query 7 ü", "query 3 ü", "query 11 ü"],
    "ad": ["ad9", "ad9", "ad80", "never", "ad33"],
}


def refusal_or(answer: Any) -> Any:
    try:
        return answer()
    except CannotAnswerError as error:
        return str(error)


def assert_same(a: Any, b: Any, name: str) -> None:
    if isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, err_msg=name)
    elif isinstance(a, tuple) and any(isinstance(each, np.ndarray) for each in a):
        for one, other in zip(a, b, strict=True):
            assert_same(one, other, name)
    else:
        assert a.equals(b) if isinstance(a, pa.Table) else a == b, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_in_buckets_answers_as_the_whole_model(variant: str, tmp_path: Path) -> None:
    whole = fitted(variant)
    expected = answers(whole)
    for buckets in (1, 7):
        found = answers(saved(whole, tmp_path / str(buckets), buckets))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value, f"{name}, {buckets} buckets")
    many = saved(whole, tmp_path / "200", 200)  # most of them empty
    assert_same(many.log_prob(TEST, text=NEW_TEXT), expected["log_prob"], "200 buckets")
    of_pairs = refusal_or(lambda: many.relevance(PAIRS, text=NEW_TEXT, level=0.5))
    assert_same(of_pairs, expected["of pairs"], "200 buckets")


@pytest.mark.parametrize(
    "variant", ["luceclick, all effects and outcomes", "multiclick, outcomes", "ubm", "gctr"]
)
def test_a_model_in_memory_again_is_the_one_that_was_saved(variant: str, tmp_path: Path) -> None:
    whole = fitted(variant)
    again = saved(whole, tmp_path / "buckets", 7).to_memory()
    assert type(again) is type(whole)
    again.save(tmp_path / "again")
    whole.save(tmp_path / "whole")
    first, second = (artifact.read(tmp_path / each) for each in ("again", "whole"))
    assert first.settings == second.settings
    assert first.tables.keys() == second.tables.keys()
    for name, table in first.tables.items():
        assert table.equals(second.tables[name]), name


# ---- files, streams, and what needs all buckets


def open_with_little_memory(folder: Path, variant: str = "ubm") -> BucketedModel:
    """A model whose cache holds one bucket at a time."""
    return saved(fitted(variant), folder, 7, cache_bytes=0)


@pytest.mark.parametrize("name", ["predictions.parquet", "predictions.csv"])
def test_predictions_are_joined_by_bucket_and_come_in_order(name: str, tmp_path: Path) -> None:
    pages = pa.table({**TEST, "row": list(range(len(TEST["query"])))})
    model = open_with_little_memory(tmp_path / "model")
    before = model._cache.loads
    summary = rc.predict(model, pages, tmp_path / name, text=NEW_TEXT)
    assert model._cache.loads - before <= 7  # each bucket once
    expected = rc.predict(fitted("ubm"), pages, tmp_path / f"whole-{name}", text=NEW_TEXT)
    assert summary == expected
    read = pq.read_table if name.endswith(".parquet") else Path.read_text
    assert read(tmp_path / name) == read(tmp_path / f"whole-{name}")


def test_many_pages_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reclick.predictor.JOIN_ROWS", 7)
    model = open_with_little_memory(tmp_path / "model", "dctr")
    (tmp_path / "joined.parquet").write_text("of somebody else")
    rc.predict(model, TEST, tmp_path / "joined.parquet", top=0, overwrite=True)
    rc.predict(fitted("dctr"), TEST, tmp_path / "whole.parquet", top=0)
    joined, whole = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("joined", "whole"))
    assert joined.equals(whole)


@pytest.mark.parametrize("name", ["predictions.parquet", "predictions.csv"])
def test_predictions_are_joined_by_bucket_in_the_tasks_of_an_engine(
    name: str, tmp_path: Path
) -> None:
    pages = pa.table({**TEST, "row": list(range(len(TEST["query"])))})
    pq.write_table(pages, tmp_path / "pages.parquet", row_group_size=25)
    model, engine = open_with_little_memory(tmp_path / "model"), InlineEngine(4, folder=tmp_path)
    summary = rc.predict(model, tmp_path / "pages.parquet", tmp_path / name, engine=engine)
    assert "groups of buckets done" in engine.stages
    expected = rc.predict(fitted("ubm"), pages, tmp_path / f"whole-{name}")
    assert summary == expected
    read = pq.read_table if name.endswith(".parquet") else Path.read_text
    assert read(tmp_path / name) == read(tmp_path / f"whole-{name}")
    engine.close()
    assert not list(tmp_path.glob("reclick-*"))  # nothing is left in the folder


def test_a_part_whose_pages_are_all_bad_or_left_out_has_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reclick.predictor.JOIN_ROWS", 7)
    pages = pa.Table.from_pylist([*BAD_PAGES, *pa.table(TEST).to_pylist()])
    pq.write_table(pages, tmp_path / "pages.parquet", row_group_size=len(BAD_PAGES))
    log = partial(rc.read_sessions, tmp_path / "pages.parquet", on_error="drop")
    model, whole = open_with_little_memory(tmp_path / "model", "ubm, noise"), fitted("ubm, noise")
    rc.predict(whole, log(), tmp_path / "all.parquet")
    likely = np.sort(pq.read_table(tmp_path / "all.parquet")["noise_prob"].to_numpy())
    for limit in (0.0, likely[5], likely[-9]):
        tables = []
        for number, (each, engine) in enumerate(
            [(whole, None), (model, None), (model, InlineEngine(4))]
        ):
            target = tmp_path / f"{number}.parquet"
            rc.predict(each, log(), target, max_noise=float(limit), engine=engine)
            tables.append(pq.read_table(target))
        assert len(tables[0]) == (likely <= limit).sum()
        assert tables[0].equals(tables[1])
        assert tables[0].equals(tables[2])
    pq.write_table(pages.slice(0, len(BAD_PAGES)), tmp_path / "bad.parquet")
    bad = rc.read_sessions(tmp_path / "bad.parquet", on_error="drop")
    for engine in (None, InlineEngine(4)):
        with pytest.raises(LogError, match="no row is left"):
            rc.predict(model, bad, tmp_path / "none.parquet", engine=engine)
        assert not (tmp_path / "none.parquet").exists()


def test_an_export_has_the_pairs_of_the_whole_model_bucket_by_bucket(tmp_path: Path) -> None:
    model = open_with_little_memory(tmp_path / "model")
    options: dict[str, Any] = {"min_support": 5}
    result = rc.export(model, tmp_path / "part.parquet", **options)
    whole = rc.export(fitted("ubm"), tmp_path / "whole.parquet", **options)
    assert (result.rows, result.grades, result.cuts) == (whole.rows, whole.grades, whole.cuts)
    table = pq.read_table(tmp_path / "part.parquet")
    bucket = query_buckets(table["query"], 7)
    assert (np.diff(bucket) >= 0).all()
    order = [("query", "ascending"), ("ad", "ascending")]
    assert table.sort_by(order).equals(pq.read_table(tmp_path / "whole.parquet").sort_by(order))


def test_the_relevance_of_all_pairs_comes_bucket_by_bucket(tmp_path: Path) -> None:
    model = open_with_little_memory(tmp_path)
    before, tables = model._cache.loads, []
    for number, table in enumerate(model.iterate_relevance(10, level=0.8), 1):
        tables.append(table)
        assert model._cache.loads - before <= number  # one bucket more at most
        assert len(np.unique(query_buckets(table["query"].combine_chunks(), 7))) == 1
    assert model._cache.loads - before <= 7
    order = [("query", "ascending"), ("ad", "ascending")]
    whole = fitted("ubm").relevance(level=0.8)
    assert pa.concat_tables(tables).sort_by(order).equals(whole.sort_by(order))
    together = pa.concat_tables(fitted("ubm").iterate_relevance(10, level=0.8))
    assert together.sort_by(order).equals(whole.sort_by(order))


@pytest.mark.parametrize("variant", ["ubm", "luceclick"])
def test_scores_are_those_of_the_whole_model(variant: str, tmp_path: Path) -> None:
    model = open_with_little_memory(tmp_path, variant)
    found, expected = score(model, TEST), score(fitted(variant), TEST)
    np.testing.assert_array_equal(found.sums, expected.sums)


def test_monitoring_and_rankings_are_those_of_the_whole_model(tmp_path: Path) -> None:
    model, whole = open_with_little_memory(tmp_path), fitted("ubm")
    assert str(rc.monitor(model, TEST)) == str(rc.monitor(whole, TEST))
    pages = {"query": TEST["query"], "ads": TEST["ads"]}
    other = {"query": TEST["query"], "ads": [page[::-1] for page in TEST["ads"]]}
    compare = partial(rc.compare_rankings, old_pages=pages, new_pages=other, draws=3, seed=1)
    assert repr(compare(model)) == repr(compare(whole))


def test_the_cache_keeps_what_was_used_last(tmp_path: Path) -> None:
    model = saved(fitted("ubm"), tmp_path, 7)
    limit = 3 * max(bucket.nbytes for bucket in model._iterate_buckets())
    model.set_cache(limit)
    for number in (0, 1, 2, 0, 3, 4, 5, 6):
        if number in model._bucket_entries:
            model._cache.get(number)
        assert sum(each.nbytes for each in model._cache._buckets.values()) <= limit
    assert list(model._cache._buckets)[-1] == 6
    assert model.cache_bytes == limit


def test_the_queries_are_read_without_any_pair_and_without_the_cache(tmp_path: Path) -> None:
    """Not even those of a bucket whose pairs are lost; a bucket of another version is refused."""
    whole = fitted("ubm")
    model = saved(whole, tmp_path, 7)
    model.set_cache(0)
    first = min(model._bucket_entries)
    model._cache.get(first)
    change_bucket(tmp_path, lambda bucket: min(bucket.glob("pair-*")).unlink())
    found = model.query_volumes().sort_by("query")
    assert found.equals(whole.query_volumes())
    assert (list(model._cache._buckets), model._cache.loads) == ([first], 1)
    change_bucket(tmp_path, lambda bucket: min(bucket.glob("visit-*")).unlink())
    with pytest.raises(StoreError, match="missing"):
        model.query_volumes()


@pytest.mark.parametrize("damage", ["missing", "another version", "other queries"])
def test_the_queries_of_a_damaged_bucket_are_refused(damage: str, tmp_path: Path) -> None:
    change, accepted, message = DAMAGES[damage]
    fitted("dctr").save(tmp_path, buckets=3)
    if accepted:
        accept_bucket(tmp_path, change_bucket(tmp_path, change))
        with pytest.raises(StoreError, match=message):
            rc.load(tmp_path).query_volumes()
        return
    model = rc.load(tmp_path)
    change_bucket(tmp_path, change)
    with pytest.raises(StoreError, match=message):
        model.query_volumes()


def test_a_model_in_buckets_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    model = saved(fitted("ubm"), tmp_path, 7, cache_bytes=12345)
    other = pickle.loads(pickle.dumps(model))  # noqa: S301, its own bytes
    assert isinstance(other, BucketedModel)
    assert other.cache_bytes == 12345
    np.testing.assert_array_equal(other.log_prob(TEST), model.log_prob(TEST))


def test_what_would_change_the_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    model = saved(fitted("multiclick"), tmp_path / "model", 7)
    with pytest.raises(CannotAnswerError, match="save that with buckets=7"):
        model.update(TEST)
    with pytest.raises(CannotAnswerError, match="save it with buckets=7"):
        model.fit(TEST)
    with pytest.raises(CannotAnswerError, match=r"model\.clone"):
        model.set_params(floor=0.01)
    assert model.set_params(floor=model.get_params()["floor"]) is model
    with pytest.raises(AttributeError, match="relevance"):
        _ = model.counts_
    with pytest.raises(CannotAnswerError, match="to_memory"):
        model.save(tmp_path / "other", buckets=8)
    model.save(tmp_path / "copy")
    np.testing.assert_array_equal(rc.load(tmp_path / "copy").log_prob(TEST), model.log_prob(TEST))


def test_updating_loads_the_whole_model_and_keeps_its_buckets(tmp_path: Path) -> None:
    whole = fitted("multiclick").clone().fit(make_log(50, queries=9, seed=4))
    whole.save(tmp_path, buckets=5)
    with rc.updating(tmp_path) as model:
        model.update(TEST)
    updated = rc.load(tmp_path)
    assert isinstance(updated, BucketedModel)
    assert updated.buckets == 5
    np.testing.assert_array_equal(updated.log_prob(TEST), whole.update(TEST).log_prob(TEST))


def test_the_service_answers_from_buckets(tmp_path: Path) -> None:
    fitted("ubm").save(tmp_path / "whole")
    fitted("ubm").save(tmp_path / "buckets", buckets=7)
    host = ModelHost({name: tmp_path / name for name in ("buckets", "whole")})
    for folder in host.folders.values():
        folder.refresh()
    one, other = host.get("buckets"), host.get("whole")
    assert one is not None
    assert other is not None
    for query in ("query 3 ü", "never"):
        assert known_ads(one, query) == known_ads(other, query)
    found, expected = (each.queries.find("query 1", 50) for each in (one, other))
    assert sorted(map(str, found)) == sorted(map(str, expected))
    same = {"queries", "ads", "pairs", "sessions", "max_ads", "settings", "type"}
    assert {name: one.describe()[name] for name in same} == {
        name: other.describe()[name] for name in same
    }


# ---- written in parts


def write_one(writer: BucketWriter, model: ClickModel, bucket: int) -> WrittenBucket | None:
    return writer.write_part(model, bucket)


@pytest.mark.parametrize("variant", ["ubm", "luceclick, all effects and outcomes", "multiclick"])
def test_parts_may_come_from_other_processes_in_any_order(variant: str, tmp_path: Path) -> None:
    whole = fitted(variant)
    writer = BucketWriter.start(tmp_path / "parts", 7)
    order = [3, 6, 0, 5, 1, 2, 4, 3]  # one of them twice, as after a lost executor
    if variant == "ubm":
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            written = list(pool.map(partial(write_one, writer, whole), order))
    else:
        written = [write_one(writer, whole, bucket) for bucket in order]
    assert not artifact.is_artifact(tmp_path / "parts")
    writer.commit(written[:-1], provenance=whole.provenance_)
    whole.save(tmp_path / "whole", buckets=7)
    parts, direct = (artifact.read(tmp_path / name) for name in ("parts", "whole"))
    assert parts.tables.keys() == direct.tables.keys()
    for name, table in parts.tables.items():
        assert table.equals(direct.tables[name]), name
    assert parts.settings["totals"] == direct.settings["totals"]
    assert parts.settings["values"] == direct.settings["values"]
    loaded = answers(rc.load(tmp_path / "parts"))
    for name, value in answers(whole).items():
        assert_same(loaded[name], value, name)


def test_parts_of_two_fits_are_not_committed(tmp_path: Path) -> None:
    first, second = fitted("ubm"), fitted("ubm").clone().fit(TEST)
    writer = BucketWriter.start(tmp_path, 3)
    written = [writer.write_part(first, 0), writer.write_part(second, 1)]
    with pytest.raises(UsageError, match="one fit"):
        writer.commit(written)
    with pytest.raises(UsageError, match="twice"):
        writer.commit([written[0], written[0]], first)
    with pytest.raises(UsageError, match="No bucket"):
        writer.commit([None], first)
    assert not artifact.is_artifact(tmp_path)


def test_a_bucket_that_was_lost_before_the_commit_is_reported(tmp_path: Path) -> None:
    writer = BucketWriter.start(tmp_path, 3)
    written = writer.write(fitted("ubm"))
    shutil.rmtree(str(writer.bucket_folder(written[1].bucket)))
    with pytest.raises(StoreError, match="does not exist"):
        writer.commit(written, fitted("ubm"))
    fitted("ubm").save(tmp_path, buckets=3)  # what the failed write left does not stand in the way
    assert len(list(tmp_path.glob("parts-*"))) == 1


def test_a_class_that_does_not_declare_its_tables_is_not_saved_in_buckets(tmp_path: Path) -> None:
    class Undeclared(rc.DCTR):
        def _to_tables(self) -> Any:
            values, tables = super()._to_tables()
            return values, {**tables, "moods": pa.table({"mood": [1.0]})}

    with pytest.raises(UsageError, match=r"Undeclared.*table_rows.*'moods'"):
        Undeclared().fit(TEST).save(tmp_path / "new", buckets=3)
    assert not artifact.is_artifact(tmp_path / "new")


KILLED = """
import os, sys
import reclick as rc
from reclick.models import buckets
from reclick.runtime import artifact

folder, where = sys.argv[1:]
model = rc.load(folder).to_memory()
name, after = where.split(":")
original, calls = getattr(artifact, name), []

def stop(*args, **kwargs):
    calls.append(1)
    if len(calls) > int(after):
        os.kill(os.getpid(), 9)
    return original(*args, **kwargs)

setattr(artifact, name, stop)
model.save(folder, buckets=5, overwrite=True)
"""


@pytest.mark.parametrize("where", ["_write_table:3", "_write_manifest:2", "_write_manifest:5"])
def test_a_kill_leaves_the_old_model(where: str, tmp_path: Path) -> None:
    old = fitted("dctr")
    old.save(tmp_path, buckets=3)
    expected = artifact.fingerprint(tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path), where]
    run = subprocess.run(command, timeout=120, check=False)
    assert run.returncode == -9
    assert artifact.fingerprint(tmp_path) == expected
    np.testing.assert_array_equal(rc.load(tmp_path).log_prob(TEST), old.log_prob(TEST))
    old.save(tmp_path, buckets=4)
    assert len(list(tmp_path.glob("parts-*"))) == 2  # the new one, and the old one for its readers


def test_a_reader_of_the_last_version_goes_on_until_the_next_but_one(tmp_path: Path) -> None:
    first = saved(fitted("dctr"), tmp_path, 3, cache_bytes=0)
    fitted("gctr").save(tmp_path, buckets=3)
    first.log_prob(TEST)
    fitted("gctr").save(tmp_path)
    first.set_cache(0)
    with pytest.raises(StoreError, match="was saved again since it was loaded"):
        first.log_prob(TEST)
    assert not list(tmp_path.glob("parts-*")) or len(list(tmp_path.glob("parts-*"))) == 1


# ---- damaged folders


def change_bucket(folder: Path, change: Callable[[Path], object]) -> Path:
    """Apply a change to the folder of the first bucket."""
    first: Path = min(folder.glob("parts-*/*"))
    change(first)
    return first


def rewrite(bucket: Path, **changes: Any) -> None:
    """Write a bucket again with other settings or tables, and a manifest that fits."""
    part = artifact.read(bucket)
    tables = {**part.tables, **changes.pop("tables", {})}
    settings = {**part.settings, **changes}
    artifact.write(bucket, kind="bucket", settings=settings, tables=tables)


def accept_bucket(folder: Path, bucket: Path) -> None:
    """Make the manifest of the model name what a bucket now is: forged by somebody careful."""
    stored = artifact.read(folder)
    for each in stored.settings["written"]:
        if each["bucket"] == int(bucket.name):
            each["fingerprint"] = artifact.fingerprint(bucket)
    options: dict[str, Any] = {"kind": "model", "folders": [stored.settings["parts"]]}
    artifact.write(folder, settings=stored.settings, tables=stored.tables, **options)


def put_in_other_query(bucket: Path) -> None:
    table = artifact.read(bucket).tables["query"]
    names = [f"{name}!" for name in table["counts_queries.query"].to_pylist()]
    column = pa.array(names, pa.large_string())
    rewrite(bucket, tables={"query": table.set_column(0, "counts_queries.query", column)})


def put_in_other_code(bucket: Path) -> None:
    table = artifact.read(bucket).tables["pair"]
    at = table.column_names.index("counts_pairs.ad")
    codes = pa.array(np.full(table.num_rows, 1 << 20, np.int32))
    rewrite(bucket, tables={"pair": table.set_column(at, "counts_pairs.ad", codes)})


def put_in_other_values(bucket: Path) -> None:
    table = artifact.read(bucket).tables["pair"]
    at = table.column_names.index("pairs.theta_")
    rewrite(
        bucket, tables={"pair": table.set_column(at, "pairs.theta_", pa.array([7.0] * len(table)))}
    )


DAMAGES: dict[str, tuple[Callable[[Path], object], bool, str]] = {
    "missing": (shutil.rmtree, False, "does not exist"),
    "another file": (lambda each: min(each.glob("pair-*")).write_bytes(b""), False, "altered"),
    "another version": (lambda each: rewrite(each, more=1), False, "not the bucket"),
    "other queries": (put_in_other_query, True, "belong to other buckets"),
    "other codes": (put_in_other_code, True, "damaged"),
    "other values": (put_in_other_values, True, "expected at most 1"),
    "no pairs": (
        lambda each: rewrite(each, tables={"pair": pa.table({})}), True, "cannot be loaded"
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bucket_is_refused(damage: str, tmp_path: Path) -> None:
    change, accepted, message = DAMAGES[damage]
    fitted("dctr").save(tmp_path, buckets=3)
    rc.load(tmp_path).check_folder()
    bucket = change_bucket(tmp_path, change)
    if accepted:
        accept_bucket(tmp_path, bucket)
    with pytest.raises(StoreError, match=message):
        rc.load(tmp_path).check_folder()


def test_a_bucket_alone_is_no_model(tmp_path: Path) -> None:
    fitted("dctr").save(tmp_path, buckets=3)
    with pytest.raises(StoreError, match="a bucket of a model, whose folder is two levels above"):
        rc.load(min(tmp_path.glob("parts-*/*")))


@pytest.mark.parametrize("missing", ["buckets", "written", "totals", "parts", "values"])
def test_a_manifest_that_lacks_something_is_refused(missing: str, tmp_path: Path) -> None:
    fitted("dctr").save(tmp_path, buckets=3)
    stored = artifact.read(tmp_path)
    del stored.settings[missing]
    options: dict[str, Any] = {"kind": "model", "folders": ["parts-" + "0" * 16]}
    artifact.write(tmp_path, settings=stored.settings, tables=stored.tables, **options)
    with pytest.raises(StoreError, match="cannot be loaded"):
        rc.load(tmp_path)


def test_a_number_of_buckets_that_is_none_is_refused(tmp_path: Path) -> None:
    for buckets in (0, -1, 1.5, 10**9, True):
        with pytest.raises(SettingError, match="buckets"):
            fitted("dctr").save(tmp_path / "new", buckets=buckets)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()
