"""A file of pages in, the same with the model's answers out: whole, in order, or not at all."""

from __future__ import annotations

import csv
import errno
import gzip
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reclick import predictor
from reclick.engines import local
from reclick.engines.duckdb import DuckDBEngine
from reclick.errors import (
    BadRowsError,
    CannotAnswerError,
    LogError,
    NotFittedError,
    SettingError,
    StoreError,
    UsageError,
)
from reclick.logs import read_sessions
from reclick.models import DCTR, MODELS, ClickModel, MultiClick, batching
from reclick.predictor import Predictor, predict
from tests.support.conformance_kit import CASE_SETTINGS
from tests.support.enumeration import Session, as_table, random_sessions

OLD = b"an older file"


@pytest.fixture(scope="module")
def model() -> MultiClick:
    return MultiClick(min_query_sessions=20).fit(
        as_table(random_sessions(np.random.default_rng(0), 80))
    )


def pages(count: int = 100, seed: int = 1) -> pa.Table:
    sessions = random_sessions(np.random.default_rng(seed), count, queries="qrsu", ads="abcdefx")
    extra = {
        "session_id": np.arange(count),
        "note": [f"n{i}" if i % 3 else None for i in range(count)],
    }
    table = as_table(sessions).drop_columns("clicks")
    for name, values in extra.items():
        table = table.append_column(name, pa.array(values))
    return table


def test_every_column_and_row_is_kept_in_order_and_the_answers_are_beside_them(
    model: MultiClick, tmp_path: Path
) -> None:
    table = pages()
    assert predict(model, table, tmp_path / "out.parquet").pages == 100
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.column_names == [
        "query",
        "ads",
        "session_id",
        "note",
        "click_prob",
        "expected_clicks",
        "sequences",
    ]
    assert out.select(table.column_names).equals(table)
    expected = model.click_prob(table)
    for row, probabilities, ads in zip(
        expected, out["click_prob"].to_pylist(), out["ads"].to_pylist(), strict=True
    ):
        assert probabilities == row[: len(ads)].tolist()
    np.testing.assert_allclose(out["expected_clicks"], model.expected_clicks(table), rtol=1e-14)


def test_sequences_are_the_likeliest_of_each_page(model: MultiClick, tmp_path: Path) -> None:
    table = pages(30)
    predict(model, table, tmp_path / "out.parquet", top=5)
    for row in pq.read_table(tmp_path / "out.parquet").to_pylist():
        ranked = model.rank_sequences(row["query"], row["ads"], top=5)
        assert [(tuple(each["clicks"]), each["probability"]) for each in row["sequences"]] == [
            tuple(each) for each in ranked
        ]
        assert len(row["sequences"]) == min(5, 2 if len(row["ads"]) == 1 else 5)


def test_no_sequences_are_listed_when_none_are_asked_for(model: MultiClick, tmp_path: Path) -> None:
    predict(model, pages(5), tmp_path / "out.parquet", top=0)
    assert "sequences" not in pq.read_schema(tmp_path / "out.parquet").names


def test_many_parts_and_row_groups_keep_the_order(
    model: MultiClick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pages(500)
    predict(model, table, tmp_path / "whole.parquet")
    monkeypatch.setattr(batching, "CHUNK_SESSIONS", 3)
    monkeypatch.setattr(local, "MAP_SESSIONS", 7)
    monkeypatch.setattr(local, "ROW_GROUP_BATCHES", 3)
    cut = pa.Table.from_batches(table.to_batches(max_chunksize=90))
    assert predict(model, cut, tmp_path / "cut.parquet").pages == 500
    assert pq.ParquetFile(tmp_path / "cut.parquet").metadata.num_row_groups > 10
    assert pq.read_table(tmp_path / "cut.parquet").equals(pq.read_table(tmp_path / "whole.parquet"))


def test_a_file_of_sessions_with_other_names_for_its_columns_is_read(
    model: MultiClick, tmp_path: Path
) -> None:
    table = pages(20).rename_columns(["search_term", "shown", "session_id", "note"])
    pq.write_table(table, tmp_path / "in.parquet")
    log = read_sessions(
        tmp_path / "in.parquet",
        columns={"query": "search_term", "ads": "shown"},
        clicks_required=False,
    )
    predict(model, log, tmp_path / "out.parquet")
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.select(table.column_names).equals(table)
    assert out["click_prob"].to_pylist() == [
        row[~np.isnan(row)].tolist() for row in model.click_prob(pages(20))
    ]


def test_clicks_of_the_log_are_kept_and_do_not_change_the_answers(
    model: MultiClick, tmp_path: Path
) -> None:
    table = as_table(random_sessions(np.random.default_rng(2), 40))
    predict(model, table, tmp_path / "out.parquet")
    predict(model, table.drop_columns("clicks"), tmp_path / "bare.parquet")
    out, bare = pq.read_table(tmp_path / "out.parquet"), pq.read_table(tmp_path / "bare.parquet")
    assert out["clicks"].equals(table["clicks"])
    assert out.drop_columns("clicks").equals(bare)


def test_columns_of_an_earlier_prediction_give_way(model: MultiClick, tmp_path: Path) -> None:
    predict(model, pages(20), tmp_path / "out.parquet")
    predict(model, tmp_path / "out.parquet", tmp_path / "again.parquet")
    assert pq.read_table(tmp_path / "again.parquet").equals(pq.read_table(tmp_path / "out.parquet"))


def test_the_input_is_not_written_over(model: MultiClick, tmp_path: Path) -> None:
    pq.write_table(pages(20), tmp_path / "file.parquet")
    with pytest.raises(UsageError, match="is the log itself"):
        predict(model, tmp_path / "file.parquet", tmp_path / "file.parquet")
    assert pq.read_table(tmp_path / "file.parquet").equals(pages(20))


def test_bad_rows_are_refused_or_left_out_as_asked(model: MultiClick, tmp_path: Path) -> None:
    table = pa.table(
        {"query": ["q", None, "r"], "ads": [["a"], ["b"], ["c", "d"]], "id": [1, 2, 3]}
    )
    with pytest.raises(BadRowsError, match="1 of 3 rows"):
        predict(model, table, tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []
    log = read_sessions(table, on_error="drop", clicks_required=False)
    assert predict(model, log, tmp_path / "out.parquet").pages == 2
    out = pq.read_table(tmp_path / "out.parquet")
    assert out["id"].to_pylist() == [1, 3]
    assert out["click_prob"].to_pylist() == [
        row[~np.isnan(row)].tolist() for row in model.click_prob(table.take([0, 2]))
    ]


def test_a_log_whose_rows_are_all_bad_is_refused(model: MultiClick, tmp_path: Path) -> None:
    log = read_sessions(
        pa.table({"query": ["", ""], "ads": [["a"], ["b"]]}), on_error="drop", clicks_required=False
    )
    with pytest.raises(LogError, match="no row is left of 2"):
        predict(model, log, tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_files_with_other_columns_than_the_first_are_refused(
    model: MultiClick, tmp_path: Path
) -> None:
    pq.write_table(pages(5), tmp_path / "1.parquet")
    pq.write_table(pages(5).drop_columns("note"), tmp_path / "2.parquet")
    (tmp_path / "to").mkdir()
    with pytest.raises(LogError, match="other columns"):
        predict(model, str(tmp_path / "*.parquet"), tmp_path / "to" / "out.parquet")
    assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.parametrize("older", [False, True])
def test_a_page_that_cannot_be_scored_leaves_no_file_and_keeps_an_older_one(
    model: MultiClick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    monkeypatch.setattr(local, "MAP_SESSIONS", 5)
    monkeypatch.setattr(local, "ROW_GROUP_BATCHES", 1)
    to = tmp_path / "out.parquet"
    if older:
        to.write_bytes(OLD)
    table = pa.concat_tables(
        [as_table([Session("q", ("a", "b"), ())] * 50), as_table([Session("q", ("a",) * 13, ())])]
    )
    with pytest.raises(CannotAnswerError, match="a page of 13 ads"):
        predict(model, table, to, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"] * older
    assert not older or to.read_bytes() == OLD


def fail_with(number: int) -> Any:
    def failing(*_: object, **__: object) -> None:
        raise OSError(number, "No space left on device")

    return failing


@pytest.mark.parametrize(
    ("where", "name"), [(pq.ParquetWriter, "write_table"), (pq, "ParquetWriter"), (Path, "replace")]
)
def test_a_full_disk_leaves_no_file_and_keeps_an_older_one(
    model: MultiClick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    to = tmp_path / "out.parquet"
    to.write_bytes(OLD)
    with monkeypatch.context() as patched:
        patched.setattr(where, name, fail_with(errno.ENOSPC))
        with pytest.raises(StoreError, match=r"cannot be written .*The disk is full"):
            predict(model, pages(5), to, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]
    assert to.read_bytes() == OLD


def test_an_interrupt_leaves_no_file(model: MultiClick, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(model, pages(5), tmp_path / "out.parquet", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_made_and_goes_again_after_an_error(
    model: MultiClick, tmp_path: Path
) -> None:
    with pytest.raises(NotFittedError):
        predict(MultiClick(), pages(5), tmp_path / "new" / "deep" / "out.parquet")
    assert list(tmp_path.iterdir()) == []
    predict(model, pages(5), tmp_path / "new" / "deep" / "out.parquet")
    assert (tmp_path / "new" / "deep" / "out.parquet").is_file()


def test_places_that_cannot_be_written_are_refused_before_any_work(
    model: MultiClick, tmp_path: Path
) -> None:
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(StoreError, match="it is a folder"):
        predict(model, pages(5), tmp_path / "folder.parquet")
    (tmp_path / "folder.parquet").rmdir()
    with pytest.raises(SettingError, match=r"Give a name that ends in \.parquet"):
        predict(model, pages(5), tmp_path / "out.txt")
    with pytest.raises(SettingError, match="top: got -1"):
        predict(model, pages(5), tmp_path / "out.parquet", top=-1)
    with pytest.raises(NotFittedError):
        predict(MultiClick(), pages(5), tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_the_engine_predicts_the_pages(model: MultiClick, tmp_path: Path) -> None:
    class Noting(local.LocalEngine):
        targets: ClassVar[list[Any]] = []

        def map(self, function: Any, log: Any, target: Any) -> int:
            self.targets.append(target)
            return super().map(pickle.loads(pickle.dumps(function)), log, target)  # noqa: S301

    predict(model, pages(50), tmp_path / "local.parquet")
    for engine in (Noting(threads=2), DuckDBEngine(threads=1)):
        predict(model, pages(50), tmp_path / "out.parquet", engine=engine)
        got, expected = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("out", "local"))
        assert got.equals(expected)
    assert Noting.targets == [tmp_path / "out.parquet"]


def test_text_of_new_ads_in_the_log_is_used_by_every_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, ads = as_table(random_sessions(np.random.default_rng(0), 80)), {"ad": list("abcdef")}
    text = {**ads, "title": ["red shoes", "blue shoes", "red hat", "hat", "shoes", "cheap"]}
    model = MultiClick(min_query_sessions=20).fit(log, ads=text)
    new = {"ad": ["new"], "title": ["red cheap shoes"]}
    page = {"query": ["q"] * 9, "ads": [["a", "new"]] * 9}
    monkeypatch.setattr(local, "MAP_SESSIONS", 2)
    known = read_sessions(page, ads=new, clicks_required=False)
    predict(model, known, tmp_path / "out.parquet", top=0)
    written = pq.read_table(tmp_path / "out.parquet")["click_prob"].to_pylist()
    assert written == model.click_prob(known).tolist()
    assert written != model.click_prob(page).tolist()


# ---- Predictor: Arrow batches in memory


MODELS_TO_PREDICT: dict[str, dict[str, Any]] = {
    "ubm": {},
    "multiclick": {"variant": "examination"},
    "thcm": {},
    "am": {},
    "luceclick": CASE_SETTINGS["luceclick"],
}


@pytest.fixture(scope="module", params=MODELS_TO_PREDICT)
def any_model(request: pytest.FixtureRequest) -> ClickModel:
    log = as_table(random_sessions(np.random.default_rng(0), 80))
    return MODELS[request.param](**MODELS_TO_PREDICT[request.param]).fit(log)


def to_batch(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


@pytest.mark.parametrize("count", [1, 10, 400])
def test_a_batch_has_the_predictions_of_a_file(
    any_model: ClickModel, tmp_path: Path, count: int
) -> None:
    """Few rows are encoded in Python and many by Arrow: no difference in the answers."""
    table = pages(count, seed=count)
    predict(any_model, table, tmp_path / "out.parquet")
    got = Predictor(any_model)(to_batch(table))
    assert isinstance(got, pa.RecordBatch)
    assert pa.Table.from_batches([got]).equals(pq.read_table(tmp_path / "out.parquet"))
    expected = any_model.click_prob(table)
    assert got["click_prob"].to_pylist() == [row[~np.isnan(row)].tolist() for row in expected]
    one_by_one = [
        Predictor(any_model)(to_batch(table.slice(i, 1))).to_pylist()[0]
        for i in range(min(count, 20))
    ]
    for one, row in zip(one_by_one, got.to_pylist(), strict=False):
        assert {**one, "click_prob": None, "expected_clicks": None, "sequences": None} == {
            **row, "click_prob": None, "expected_clicks": None, "sequences": None
        }  # fmt: skip
        np.testing.assert_allclose(one["click_prob"], row["click_prob"], rtol=1e-13)


@pytest.mark.parametrize("count", [10, 60])
def test_the_clicks_so_far_decide_the_next_click(any_model: ClickModel, count: int) -> None:
    table = as_table(random_sessions(np.random.default_rng(7), count))
    got = Predictor(any_model, top=0, next_click=True)(to_batch(table))
    assert got.schema.names[3:] == ["click_prob", "expected_clicks", "next_click_prob", "end_prob"]
    expected = any_model.next_click_prob(table)
    for row, following, end in zip(
        expected, got["next_click_prob"].to_pylist(), got["end_prob"].to_pylist(), strict=True
    ):
        assert following == row[~np.isnan(row)].tolist()
        if sum(following) > 0:  # AM has no next click after clicks that it holds impossible
            assert sum(following) + end == pytest.approx(1.0, abs=1e-12)


def test_satisfaction_is_predicted_where_the_model_has_it(model: MultiClick) -> None:
    batch = to_batch(pages(30))
    got = Predictor(model, top=0, satisfaction=True)(batch)["satisfaction_prob"].to_numpy()
    np.testing.assert_array_equal(got, model.pages(batch).satisfaction_prob())
    assert ((got > 0) & (got < 1)).all()
    with pytest.raises(CannotAnswerError, match="no satisfaction"):
        Predictor(MODELS["ubm"]().fit(as_table(random_sessions(np.random.default_rng(0), 9))),
                  satisfaction=True)(batch)  # fmt: skip


def test_text_of_new_ads_is_used() -> None:
    log, ads = as_table(random_sessions(np.random.default_rng(0), 80)), {"ad": list("abcdef")}
    text = {**ads, "title": ["red shoes", "blue shoes", "red hat", "hat", "shoes", "cheap"]}
    model = MultiClick(min_query_sessions=20).fit(log, ads=text)
    new = {"ad": ["new"], "title": ["red cheap shoes"]}
    page = {"query": ["q"], "ads": [["a", "new"]]}
    known = model.click_prob(read_sessions(page, ads=new, clicks_required=False))[0].tolist()
    predictor = Predictor(model, top=0)
    got = predictor(pa.record_batch(page), text=new)["click_prob"].to_pylist()[0]
    assert got == known
    assert got != predictor(pa.record_batch(page))["click_prob"].to_pylist()[0]


def test_any_accepted_type_of_column_is_predicted(model: MultiClick) -> None:
    plain = to_batch(pages(12).select(["query", "ads"]))
    expected = Predictor(model)(plain)["click_prob"].to_pylist()
    for query, ads in (
        (pa.large_string(), pa.large_list(pa.large_string())),
        (pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.string())),
        (pa.string_view(), pa.list_(pa.string_view())),
    ):
        columns = [plain["query"].cast(query), plain["ads"].cast(ads)]
        batch = pa.RecordBatch.from_arrays(columns, names=["query", "ads"])
        got = Predictor(model)(batch)
        assert got["click_prob"].to_pylist() == expected
        assert got.schema.field("query").type == query
    numbers = pa.record_batch({"query": pa.array([7]), "ads": pa.array([[1, 2]])})
    as_text = pa.record_batch({"query": ["7"], "ads": [["1", "2"]]})
    first, second = (Predictor(model)(each)["click_prob"] for each in (numbers, as_text))
    assert first.equals(second)


BAD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "null query": ({"query": [None], "ads": [["a"]]}, r"1 no query \(row 2: null\)"),
    "empty query": ({"query": [""], "ads": [["a"]]}, r"1 no query \(row 2: empty text\)"),
    "no ads": ({"query": ["q"], "ads": [[]]}, r"1 no ads \(row 2: an empty page\)"),
    "null ads": ({"query": ["q"], "ads": [None]}, r"1 no ads \(row 2: null\)"),
    "null ad": ({"query": ["q"], "ads": [["a", None]]}, r"1 null ad \(row 2: position 2 of 2\)"),
    "click": ({"query": ["q"], "ads": [["a"]], "clicks": [[2]]}, "position 2 on a page of 1 ad"),
    "long": ({"query": ["q"], "ads": [["a"] * 101]}, "a page of 101 ads"),
    "bytes": ({"query": ["q" * 70_000], "ads": [["a"]]}, "70,000 bytes, the limit is 65,536"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
@pytest.mark.parametrize("count", [1, 40])
def test_bad_rows_are_named_with_their_reason(model: MultiClick, case: str, count: int) -> None:
    bad, match = BAD_ROWS[case]
    good = {"query": "q", "ads": ["a", "b"], "clicks": [1]}
    rows = {name: [good[name], *values, *[good[name]] * count] for name, values in bad.items()}
    types = {"query": pa.string(), "ads": pa.list_(pa.string()), "clicks": pa.list_(pa.int64())}
    batch = pa.record_batch({name: pa.array(values, types[name]) for name, values in rows.items()})
    with pytest.raises(BadRowsError, match=f"1 of {count + 2} rows of the batch is bad: .*{match}"):
        Predictor(model)(batch)


def test_text_that_is_not_utf8_is_a_bad_row(model: MultiClick) -> None:
    offsets, text = np.array([0, 2], np.int32), b"\xff\xfe"
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    query = pa.Array.from_buffers(pa.string(), 1, buffers)
    batch = pa.RecordBatch.from_arrays([query, pa.array([["a"]])], names=["query", "ads"])
    with pytest.raises(BadRowsError, match="not UTF-8"):
        Predictor(model)(batch)


def test_other_input_is_refused_with_what_to_give(model: MultiClick) -> None:
    predictor = Predictor(model)
    with pytest.raises(LogError, match=r"got a Table, expected a pyarrow\.RecordBatch"):
        predictor(pages(3))
    with pytest.raises(LogError, match="no rows"):
        predictor(to_batch(pages(3)).slice(0, 0))
    with pytest.raises(LogError, match="ads"):
        predictor(pa.record_batch({"query": ["q"]}))
    with pytest.raises(LogError, match="expected a list of text"):
        predictor(pa.record_batch({"query": ["q"], "ads": ["a"]}))
    with pytest.raises(SettingError, match="top: got -1"):
        Predictor(model, top=-1)
    with pytest.raises(NotFittedError):
        Predictor(MultiClick())


def test_schemas_may_change_from_batch_to_batch(model: MultiClick) -> None:
    predictor, one = Predictor(model), {"query": ["q"], "ads": [["a", "b"]]}
    expected = predictor(pa.record_batch(one))["click_prob"]
    again = predictor(pa.record_batch({"ads": one["ads"], "id": [3], "query": one["query"]}))
    assert again["click_prob"].equals(expected)
    assert again.schema.names[:3] == ["ads", "id", "query"]


def test_no_thread_is_started_for_a_batch(
    model: MultiClick, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a thread was started")

    batch = to_batch(pages(200))
    expected = Predictor(model)(batch)
    monkeypatch.setattr(batching, "CHUNK_SESSIONS", 16)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert Predictor(model)(batch).equals(expected)
    assert model.click_prob(to_batch(pages(1))).shape[0] == 1


def test_large_batches_are_predicted_by_several_threads_alike(
    model: MultiClick, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = to_batch(pages(200))
    expected = Predictor(model)(batch)
    monkeypatch.setattr(batching, "CHUNK_SESSIONS", 16)
    assert Predictor(model, threads=4)(batch).equals(expected)


def test_a_predictor_serves_many_threads_at_once(any_model: ClickModel) -> None:
    predictor = Predictor(any_model)
    batches = [to_batch(pages(7, seed)) for seed in range(20)]
    expected = [predictor(batch) for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        assert all(
            got.equals(expected[i % 20]) for i, got in enumerate(pool.map(predictor, batches * 5))
        )


def test_columns_of_the_input_that_are_not_predicted_are_kept(
    model: MultiClick, tmp_path: Path
) -> None:
    own = {"end_prob": [0.25], "satisfaction_prob": [0.5], "sequences": ["mine"], "click_prob": [9]}
    batch = pa.record_batch({"query": ["q"], "ads": [["a", "b"]], **own})
    got = Predictor(model, top=0)(batch)
    assert got.schema.names == [
        *("query", "ads", "end_prob", "satisfaction_prob", "sequences"),
        *("click_prob", "expected_clicks"),
    ]
    assert [got[name].to_pylist() for name in list(own)[:3]] == [[0.25], [0.5], ["mine"]]
    predict(model, batch, tmp_path / "out.parquet", top=0)
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == got.to_pylist()
    assert Predictor(model, top=1)(batch)["sequences"].to_pylist() != ["mine"]


@pytest.mark.parametrize(
    "argument",
    [
        *({"top": "3"}, {"top": 2.5}, {"top": True}, {"top": -1}),
        *({"max_ads": "x"}, {"max_ads": 0}, {"threads": 0}, {"threads": None}),
    ],
    ids=repr,
)
def test_arguments_are_checked(model: MultiClick, argument: dict[str, Any]) -> None:
    ((name, value),) = argument.items()
    with pytest.raises(SettingError, match=f"{name}: got {value!r}, expected a whole number"):
        Predictor(model, **argument)
    assert Predictor(model, top=np.int64(2)).top == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["float32", "every second", "a list"])
def test_arrays_of_any_type_and_layout_are_written(
    kind: str, model: MultiClick, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = to_batch(pages(30))
    expected = Predictor(model, top=0)(batch)

    class Other:
        def __init__(self, pages: Any) -> None:
            self.pages, self.starts = pages, pages.starts

        def click_prob(self) -> Any:
            values = self.pages.click_prob()
            if kind == "float32":
                return values.astype(np.float32)
            return values.tolist() if kind == "a list" else np.repeat(values, 2)[::2]

    original = Predictor.predict_chunk
    monkeypatch.setattr(
        Predictor,
        "predict_chunk",
        lambda self, part, pages: original(self, part, Other(pages)),  # type: ignore[arg-type]
    )
    got = Predictor(model, top=0)(batch)
    for name in ("click_prob", "expected_clicks"):
        for one, other in zip(got[name].to_pylist(), expected[name].to_pylist(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


# ---- expected and observed clicks, and CSV


def test_expected_clicks_are_reported_beside_those_observed(tmp_path: Path) -> None:
    """DCTR by hand: θ(a) = (2 + ½ · 2) / (4 + 2) = ½ and θ(b) = (1 + 1) / 6 = ⅓, four pages."""
    log = {"query": ["q"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1, 2], []]}
    model = DCTR(attractiveness_prior=0.5, attractiveness_strength=2).fit(log)
    found = predict(model, log, tmp_path / "out.parquet")
    assert found.pages == 4
    assert found.expected_clicks == pytest.approx(4 * (1 / 2 + 1 / 3))
    assert found.observed_clicks == 3
    assert found.ratio == pytest.approx(10 / 9)
    assert str(found) == "4 pages, 3.3 clicks expected, 3 observed: 1.11 × the observed"
    none = predict(model, {"query": ["q"], "ads": [["a"]]}, tmp_path / "out.parquet")
    assert (none.observed_clicks, none.ratio) == (None, None)
    assert str(none) == "1 page, 0.5 clicks expected"
    silent = predict(model, ("q", ["a"], []), tmp_path / "out.parquet")
    assert str(silent) == "1 page, 0.5 clicks expected, 0 observed"


@pytest.mark.parametrize("name", ["out.csv", "OUT.CSV.GZ"])
def test_predictions_are_written_as_csv_that_can_be_read_again(
    model: MultiClick, tmp_path: Path, name: str
) -> None:
    ads = [["a", "b"], ["a b", "c|d"], ["x"]]
    table = pa.table(
        {
            "query": ["q", 'said "so", twice', "r"],
            "ads": ads,
            "clicks": [[2, 1], [], [1]],
            "tag": [{"k": 1}, None, {"k": 2}],
        }
    )
    summary = predict(model, table, tmp_path / name, top=2)
    predict(model, table, tmp_path / "out.parquet", top=2)
    expected = pq.read_table(tmp_path / "out.parquet")
    opened = gzip.open if name.lower().endswith(".gz") else open
    with opened(tmp_path / name, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["query"] for row in rows] == table["query"].to_pylist()
    assert rows[0]["ads"] == "a|b"
    assert rows[1]["ads"] == '["a b", "c|d"]'
    assert [row["tag"] for row in rows] == ['{"k": 1}', "", '{"k": 2}']
    for row, page in zip(rows, expected.to_pylist(), strict=True):
        assert float(row["expected_clicks"]) == pytest.approx(page["expected_clicks"], rel=1e-5)
        numbers = [float(each) for each in row["click_prob"].split("|")]
        assert numbers == pytest.approx(page["click_prob"], rel=1e-5)
        texts = [each.rsplit("=", 1) for each in row["sequences"].split("|")]
        assert [
            (
                [int(click) for click in clicks.split(">") if click],
                pytest.approx(float(p), rel=1e-5),
            )
            for clicks, p in texts
        ] == [(each["clicks"], each["probability"]) for each in page["sequences"]]
    again = read_sessions(tmp_path / name)
    again_rows = [batch.ads.take(pa.array(batch.ad)).to_pylist() for batch in again.batches()]
    assert [each for part in again_rows for each in part] == [ad for page in ads for ad in page]
    assert again.summary.clicks == summary.observed_clicks == 3


def test_a_csv_file_appears_when_it_is_complete(
    model: MultiClick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "out.csv"
    to.write_bytes(OLD)
    monkeypatch.setattr(predictor, "write_csv", fail_with(errno.ENOSPC))
    with pytest.raises(StoreError, match=r"cannot be written .*The disk is full"):
        predict(model, pages(5), to, overwrite=True)
    assert to.read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_another_ending_is_refused(model: MultiClick, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"ends in \.parquet, \.csv or \.csv\.gz"):
        predict(model, pages(5), tmp_path / "out.xlsx")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    ads = pa.array([["a"]])
    pages = pa.Table.from_arrays([pa.array(["q"]), ads, ads, ads], ["query", "ads", "x", "x"])
    pq.write_table(pages, tmp_path / "pages.parquet")
    model = DCTR().fit({"query": ["q"], "ads": [["a"]], "clicks": [[1]]})
    with pytest.raises(LogError, match="two columns 'x'"):
        predict(model, tmp_path / "pages.parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
