"""A file of pages in, the same with the model's answers out: whole, in order, or not at all."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reclick import predict as scoring_module
from reclick.errors import (
    BadRowsError,
    CannotAnswerError,
    LogError,
    NotFittedError,
    SettingError,
    StoreError,
)
from reclick.logs import read_sessions
from reclick.models import MultiClick, batching
from reclick.predictor import predict
from tests.support.enumeration import Session, as_table, random_sessions

OLD = b"an older file"


@pytest.fixture(scope="module")
def model() -> MultiClick:
    return MultiClick(frequent=20).fit(as_table(random_sessions(np.random.default_rng(0), 80)))


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
    assert predict(model, table, tmp_path / "out.parquet") == 100
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
    monkeypatch.setattr(batching, "PART", 7)
    monkeypatch.setattr(scoring_module, "ROW_GROUP", 3)
    cut = pa.Table.from_batches(table.to_batches(max_chunksize=90))
    assert predict(model, cut, tmp_path / "cut.parquet") == 500
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


def test_the_input_may_be_written_over(model: MultiClick, tmp_path: Path) -> None:
    pq.write_table(pages(20), tmp_path / "file.parquet")
    predict(model, tmp_path / "file.parquet", tmp_path / "file.parquet")
    assert pq.read_table(tmp_path / "file.parquet").select(pages(20).column_names).equals(pages(20))


def test_bad_rows_are_refused_or_left_out_as_asked(model: MultiClick, tmp_path: Path) -> None:
    table = pa.table(
        {"query": ["q", None, "r"], "ads": [["a"], ["b"], ["c", "d"]], "id": [1, 2, 3]}
    )
    with pytest.raises(BadRowsError, match="1 of 3 rows"):
        predict(model, table, tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []
    log = read_sessions(table, on_error="drop", clicks_required=False)
    assert predict(model, log, tmp_path / "out.parquet") == 2
    out = pq.read_table(tmp_path / "out.parquet")
    assert out["id"].to_pylist() == [1, 3]
    assert out["click_prob"].to_pylist() == [
        row[~np.isnan(row)].tolist() for row in model.click_prob(table.take([0, 2]))
    ]


def test_a_log_whose_rows_are_all_bad_is_refused(model: MultiClick, tmp_path: Path) -> None:
    log = read_sessions(
        pa.table({"query": ["", ""], "ads": [["a"], ["b"]]}), on_error="drop", clicks_required=False
    )
    with pytest.raises(LogError, match="no page to score"):
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
    monkeypatch.setattr(batching, "PART", 5)
    monkeypatch.setattr(scoring_module, "ROW_GROUP", 1)
    to = tmp_path / "out.parquet"
    if older:
        to.write_bytes(OLD)
    table = pa.concat_tables(
        [as_table([Session("q", ("a", "b"), ())] * 50), as_table([Session("q", ("a",) * 13, ())])]
    )
    with pytest.raises(CannotAnswerError, match="a page of 13 ads"):
        predict(model, table, to)
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
            predict(model, pages(5), to)
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
    with pytest.raises(LogError, match="it is a folder"):
        predict(model, pages(5), tmp_path / "folder.parquet")
    (tmp_path / "folder.parquet").rmdir()
    with pytest.raises(SettingError, match=r"Give a name that ends in \.parquet"):
        predict(model, pages(5), tmp_path / "out.csv")
    with pytest.raises(SettingError, match="top: got -1"):
        predict(model, pages(5), tmp_path / "out.parquet", top=-1)
    with pytest.raises(NotFittedError):
        predict(MultiClick(), pages(5), tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []
