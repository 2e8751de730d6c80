"""Parquet files joined without being decoded: every reader sees the rows of all, in their order."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from reclick.engines.parquet_parts import decode_struct, encode_struct, join_parquet
from reclick.errors import LogError
from reclick.runtime.filesystem import as_path
from reclick.runtime.outputs import scratch_file
from reclick.runtime.progress import progress_to


def make_table(rng: np.random.Generator, rows: int) -> pa.Table:
    """Texts, lists, structs, nulls, and more columns than a short list of Thrift holds."""
    text = [f"q{i % 13}" for i in range(rows)]
    lists = [[f"ad-{k}" for k in range(i % 4)] for i in range(rows)]
    structs = [{"clicks": [1, 2], "probability": i / 7} for i in range(rows)]
    kind = pa.struct([("clicks", pa.list_(pa.int32())), ("probability", pa.float64())])
    columns = {
        "query": pa.array(text, pa.string()),
        "ads": pa.array(lists, pa.list_(pa.string())),
        "best": pa.array(structs, kind),
        "known": pa.array([None if i % 3 else True for i in range(rows)], pa.bool_()),
    }
    numbers = {f"n{i}": rng.integers(-9, 9, rows) for i in range(17)}
    return pa.table({**columns, **numbers})


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
def test_row_groups_are_copied_in_order(
    is_remote: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reclick.engines.parquet_parts.COPY_BYTES", 5_000)
    rng = np.random.default_rng(0)
    tables = [make_table(rng, rows) for rows in (300, 0, 1, 2_000, 7)]
    folder = as_path(f"memory://{uuid.uuid4().hex}/parts") if is_remote else tmp_path
    parts = [folder / f"{i}.parquet" for i in range(len(tables) + 1)]
    for i, part in enumerate(parts):
        with scratch_file(part) as path:
            if part == parts[-1]:
                path.touch()  # a part of which every row was bad
                continue
            options: dict[str, Any] = {"write_page_index": bool(i % 2), "row_group_size": 150}
            pq.write_table(tables[i], path, compression="zstd", **options)
    target, reports = tmp_path / "all.parquet", []
    with progress_to(lambda *report: reports.append(report)):
        assert join_parquet(parts, target) == 2_308
    assert reports[-1] == ("parts written", 6, 6)
    expected = pa.concat_tables(tables)
    assert pq.read_table(target).equals(expected)
    wanted = expected.filter(pc.field("n3") > 7)
    assert pq.read_table(target, filters=[("n3", ">", 7)]).equals(wanted)  # by statistics
    with pq.ParquetFile(target) as file:
        start = 0
        for i in range(file.num_row_groups):
            group = file.read_row_group(i)
            assert group.to_pylist() == expected.slice(start, len(group)).to_pylist()
            start += len(group)
    rows = duckdb.read_parquet(str(target))
    found = rows.aggregate("sum(n0), sum(len(ads)), count(known)").fetchall()
    ads = pc.sum(pc.list_value_length(expected["ads"])).as_py()
    known = expected["known"].drop_null().length()
    assert found == [(pc.sum(expected["n0"]).as_py(), ads, known)]
    assert [part for part in parts if part.exists()] == []


def test_a_footer_is_read_and_written_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    table = make_table(np.random.default_rng(1), 40).replace_schema_metadata({"a": "b" * 300})
    pq.write_table(table, path)
    content = path.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    assert encode_struct(decode_struct(footer)) == footer


def test_other_columns_are_refused(tmp_path: Path) -> None:
    parts = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for part, name in zip(parts, ("x", "y"), strict=True):
        pq.write_table(pa.table({name: [1]}), part)
    with pytest.raises(LogError, match=r"other columns than the first of them \(x, y\)"):
        join_parquet(parts, tmp_path / "all.parquet")
