"""Arrow streams: what can be scanned again, and what can be read only once and needs a copy."""

from __future__ import annotations

import gc
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.errors import LogError
from tests.support.log_tables import GOOD, read_back, session, table
from tests.support.plain_metrics import as_table, random_log


class Capsule:
    """An object of which nothing is known but that it is an Arrow stream."""

    def __init__(self, source: pa.Table) -> None:
        self._source: Any = source

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._source.__arrow_c_stream__(requested_schema)


class Cursor:
    """As much of an ADBC cursor as is used."""

    def __init__(self, source: pa.Table) -> None:
        self._source = source

    def fetch_record_batch(self) -> pa.RecordBatchReader:
        return self._source.to_reader()


STREAMS: dict[str, Callable[[pa.Table], Any]] = {
    "a reader": lambda source: source.to_reader(),
    "a capsule": Capsule,
    "a cursor": Cursor,
    "a scanner": lambda source: ds.dataset(source).scanner(),
    "an iterator of batches": lambda source: iter(source.to_batches(1)),
    "an iterator of tables": lambda source: iter([source.slice(0, 1), source.slice(1)]),
    "views of strings": lambda source: pl.DataFrame(source).lazy().collect().to_arrow().to_reader(),
}


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_a_stream_is_read_any_number_of_times_through_a_copy(
    make: Callable[[pa.Table], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "reclick"):
        log = rc.read_sessions(make(table()))
        for _ in range(3):
            assert read_back(log) == GOOD
    assert [record.getMessage() for record in caplog.records] == [
        "table can be read once: a temporary copy is written, for further passes."
    ]


def copies() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(".reclick-*/*/stream.parquet"))


def test_the_copy_goes_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log = rc.read_sessions(table().to_reader())
    next(iter(log.batches()))
    assert len(copies()) == 1
    del log
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_stream_whose_first_pass_was_not_finished_is_read_from_its_start() -> None:
    batches = table([session(str(number)) for number in range(50)]).to_batches(1)
    log = rc.read_sessions(iter(batches))
    first = log.batches(with_rows=True)
    next(iter(first))
    del first
    assert [row["query"] for row in read_back(log)] == [str(number) for number in range(50)]


@pytest.mark.parametrize("with_rows", [False, True])
def test_further_columns_come_with_the_copy_too(with_rows: bool) -> None:
    source = table().append_column("day", pa.array([1, 2, 3]))
    log = rc.read_sessions(source.to_reader())
    for _ in range(2):
        rows = [batch.rows for batch in log.batches(with_rows=with_rows)]
        days = [day for batch in rows if batch for day in batch.column("day").to_pylist()]
        assert days == ([1, 2, 3] if with_rows else [])


def test_what_needs_one_pass_writes_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = as_table(random_log(4, 400))
    model = rc.MultiClick().fit(source)

    def refuse() -> str:
        raise AssertionError("a copy was written")

    monkeypatch.setattr("reclick.logs.files.stream.scratch_folder", refuse)
    assert rc.count(source.to_reader()) == rc.count(source)
    for name in ("multiclick", "ubm"):
        fitted = rc.MODELS[name]().fit(source.to_reader())
        assert fitted.relevance().equals(rc.MODELS[name]().fit(source).relevance())
    found = rc.predict(model, source.to_reader(), tmp_path / "p.parquet")
    assert found == rc.predict(model, source, tmp_path / "q.parquet")
    assert pq.read_table(tmp_path / "p.parquet").equals(pq.read_table(tmp_path / "q.parquet"))
    np.testing.assert_array_equal(model.click_prob(source.to_reader()), model.click_prob(source))


def test_a_dataset_is_scanned_again_at_every_pass(tmp_path: Path) -> None:
    for number, row in enumerate(GOOD):
        (tmp_path / f"day={number}").mkdir()
        pq.write_table(table([row]), tmp_path / f"day={number}" / "part.parquet")
    log = rc.read_sessions(ds.dataset(tmp_path, partitioning="hive"))
    assert read_back(log) == read_back(log) == GOOD
    days = [batch.rows.column("day").to_pylist() for batch in log.batches(with_rows=True)]  # type: ignore[union-attr]
    assert sum(days, []) == [0, 1, 2]  # noqa: RUF017


def test_columns_of_a_stream_are_checked_and_renamed() -> None:
    renamed = table().rename_columns(["term", "ads", "clicks"])
    assert read_back(rc.read_sessions(renamed.to_reader(), columns={"query": "term"})) == GOOD
    with pytest.raises(LogError, match="the table has no column query"):
        rc.read_sessions(renamed.to_reader())
    with pytest.raises(LogError, match=r"ads in the table: expected .* got double"):
        rc.read_sessions(pa.table({"query": ["a"], "ads": [1.0], "clicks": [[1]]}).to_reader())


def test_bad_rows_of_a_stream_are_counted_with_their_numbers() -> None:
    rows = [*GOOD, session("q", ["a"], [2]), session(None)]
    batches = table(rows).to_batches(2)
    log = rc.read_sessions(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    with pytest.raises(rc.BadRowsError, match=r"\(row 4: .*\(row 5: null"):
        rc.count(log)
    log = rc.read_sessions(iter(batches), on_error="drop")
    assert rc.count(log).total == 3
    assert log.summary.dropped == {"click outside the page": 1, "no query": 1}


def test_a_stream_that_breaks_off_is_an_error() -> None:
    def give() -> Iterator[pa.RecordBatch]:
        yield table().to_batches()[0]
        raise OSError("connection reset")

    schema = table().schema
    with pytest.raises(LogError, match="The table could not be read to the end: connection reset"):
        rc.count(pa.RecordBatchReader.from_batches(schema, give()))
    with pytest.raises(LogError, match="iterator that yields nothing"):
        rc.count(iter([]))
    with pytest.raises(LogError, match="iterator that gives a int"):
        rc.count(iter([1]))
    with pytest.raises(LogError, match="Give batches of one table"):
        rc.count(iter([table(), pa.table({"other": [1]})]))


def test_a_stream_read_once_without_a_copy_says_so() -> None:
    log = rc.read_sessions(table().to_reader())
    log.keep_no_copy()
    assert read_back(log) == GOOD
    with pytest.raises(LogError, match="was read already, and a stream can be read only once"):
        read_back(log)


def test_a_stream_is_counted_in_bounded_memory() -> None:
    part = table([session(f"q{number % 50}", ["a", "b"], [1]) for number in range(20_000)])
    batch = part.combine_chunks().to_batches()[0]
    held: list[int] = []

    def give(times: int) -> Iterator[pa.RecordBatch]:
        for _ in range(times):
            held.append(pa.total_allocated_bytes())
            yield pa.RecordBatch.from_arrays(
                [pa.concat_arrays([column]) for column in batch.columns], schema=batch.schema
            )

    before = pa.total_allocated_bytes()
    counts = rc.count(pa.RecordBatchReader.from_batches(batch.schema, give(60)))
    assert counts.total == 60 * 20_000
    assert max(held) - before < 20 * batch.nbytes  # of 60
