from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reclick.errors import LogError
from reclick.logs import read_sessions
from reclick.logs.files import parquet
from reclick.runtime.parallel import limit_threads
from tests.support.log_tables import GOOD, SCHEMA, read_back, session, table, write_parquet

MANY = [
    session(
        f"query {i % 70}", [f"ad{(i + j) % 90}" for j in range(1 + i % 4)], [1] if i % 3 else []
    )
    for i in range(5000)
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 700},
        {"use_dictionary": False},
        {"dictionary_pagesize_limit": 200, "data_page_size": 300, "write_batch_size": 50},
        {"version": "1.0", "data_page_version": "2.0", "compression": "zstd"},
    ],
)
@pytest.mark.parametrize("small_group", [0, 50_000])
def test_every_layout_of_the_file_gives_the_same_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], small_group: int
) -> None:
    monkeypatch.setattr(parquet, "SMALL_GROUP", small_group)
    log = read_sessions(write_parquet(tmp_path / "a.parquet", MANY, **options))
    assert read_back(log) == MANY
    assert log.num_rows == 5000


@pytest.mark.parametrize(("threads", "in_parallel"), [(1, False), (2, False), (3, True)])
def test_columns_are_decoded_in_parallel_only_by_threads_that_neither_read_nor_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, in_parallel: bool
) -> None:
    uses: list[bool] = []
    iterate = pq.ParquetFile.iter_batches

    def keep_use(self: pq.ParquetFile, *arguments: Any, use_threads: bool, **more: Any) -> Any:
        uses.append(use_threads)
        return iterate(self, *arguments, use_threads=use_threads, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", keep_use)
    log = read_sessions(write_parquet(tmp_path / "a.parquet", MANY))
    with limit_threads(threads):
        assert read_back(log) == MANY
    assert set(uses) == {in_parallel}


def test_a_batch_that_arrow_cannot_build_coded_is_read_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "SMALL_GROUP", 0)
    monkeypatch.setattr(parquet, "MAX_BATCH_ROWS", 900)
    real = pq.ParquetFile.iter_batches

    def fails_midway(self: Any, size: int, **options: Any) -> Any:
        for index, batch in enumerate(real(self, size, **options)):
            if index == 2 and pa.types.is_dictionary(batch.schema.field("query").type):
                raise pa.ArrowNotImplementedError("two dictionaries")
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", fails_midway)
    assert read_back(read_sessions(write_parquet(tmp_path / "a.parquet", MANY))) == MANY


@pytest.mark.parametrize(
    "text", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
@pytest.mark.parametrize("many", [pa.list_, pa.large_list])
def test_large_and_dictionary_types_are_read(tmp_path: Path, text: pa.DataType, many: Any) -> None:
    schema = pa.schema([("query", text), ("ads", many(text)), ("clicks", many(pa.int64()))])
    pq.write_table(
        table().cast(schema) if not pa.types.is_dictionary(text) else table(),
        tmp_path / "a.parquet",
    )
    assert read_back(read_sessions(tmp_path / "a.parquet")) == GOOD


def test_whole_number_ids_become_text(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"query": [7], "ads": [[10, 20]], "clicks": [[2]]}), tmp_path / "a.parquet"
    )
    assert read_back(read_sessions(tmp_path / "a.parquet")) == [
        {"query": "7", "ads": ["10", "20"], "clicks": [2]}
    ]


def test_rows_keep_their_columns_and_types(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    whole = table([session(), session("bad", [None]), session("r")]).append_column(
        "extra", pa.array([1, 2, 3])
    )
    pq.write_table(whole, path)
    rows = [batch.rows for batch in read_sessions(path, on_error="drop").batches(with_rows=True)]
    assert [row for batch in rows if batch is not None for row in batch.to_pylist()] == whole.take(
        [0, 2]
    ).to_pylist()
    assert rows[0] is not None
    assert rows[0].schema.remove_metadata() == whole.schema


def test_a_cut_file_is_told(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "week2.parquet", MANY)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(LogError, match=r"week2\.parquet cannot be read as Parquet"):
        read_sessions(path)


def test_a_file_that_is_not_parquet_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"query,ads,clicks\n" * 100)
    with pytest.raises(LogError, match=r"a\.parquet cannot be read as Parquet"):
        read_sessions(tmp_path / "a.parquet")


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_a_damaged_page_is_told(tmp_path: Path, codec: str) -> None:
    path = write_parquet(tmp_path / "a.parquet", MANY, compression=codec, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    middle = pq.ParquetFile(path).metadata.row_group(0).column(1).data_page_offset + 60
    data[middle : middle + 40] = b"\xa5" * 40
    path.write_bytes(data)
    with pytest.raises(LogError, match=r"a\.parquet cannot be read as Parquet"):
        read_back(read_sessions(path))


def test_a_wrong_type_is_told_before_any_row_is_read(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"query": ["q"], "ads": [["a"]], "clicks": ["1"]}), tmp_path / "week2.parquet"
    )
    message = (
        r"clicks in week2\.parquet: expected a list of whole numbers, got string\. "
        r"Split the text into lists.* If another column has them, name it with columns=\{'clicks': "
    )
    with pytest.raises(LogError, match=message):
        read_sessions(tmp_path / "week2.parquet")


def test_text_that_is_not_utf8_is_a_bad_row(tmp_path: Path) -> None:
    broken = pa.array([b"ok", b"\xff\xfe"]).cast(pa.binary())
    query = pa.StringArray.from_buffers(2, *broken.buffers()[1:])
    pq.write_table(
        pa.table({"query": query, "ads": [["a"], ["a"]], "clicks": [[1], [1]]}),
        tmp_path / "a.parquet",
    )
    log = read_sessions(tmp_path / "a.parquet", on_error="drop")
    assert [row["query"] for row in read_back(log)] == ["ok"]
    assert log.summary.dropped == {"not readable": 1}


def test_a_file_without_rows_is_told_when_it_is_read(tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "a.parquet")
    log = read_sessions(tmp_path / "a.parquet")
    with pytest.raises(LogError, match=r"a\.parquet has no rows"):
        read_back(log)
