"""Delta and Iceberg tables, written here by their own libraries; deleted rows are left out."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyroaring import BitMap
from typer.testing import CliRunner

import reclick as rc
from reclick.cli import app
from reclick.errors import LogError
from tests.support.plain_metrics import as_table, random_log

LOG = as_table(random_log(9, 200))
KEPT = LOG.filter(pa.compute.not_equal(LOG["query"], "r"))


@pytest.fixture
def delta(tmp_path: Path) -> deltalake.DeltaTable:
    """A table of which rows were deleted, and others written in a second commit."""
    path = str(tmp_path / "delta")
    deltalake.write_deltalake(path, LOG.slice(0, 90))
    deltalake.write_deltalake(path, LOG.slice(90), mode="append")
    table = deltalake.DeltaTable(path)
    table.delete("query = 'r'")
    return table


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[Any]:
    folder = tmp_path / "lake"
    folder.mkdir()
    catalog = SqlCatalog("tests", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("search")
    table = catalog.create_table("search.sessions", schema=LOG.schema)
    table.append(LOG.slice(0, 90))
    table.append(LOG.slice(90))
    table.delete("query == 'r'")
    yield table
    catalog.engine.dispose()


def test_a_delta_table_is_read_by_path_and_as_an_object(delta: deltalake.DeltaTable) -> None:
    path = Path(delta.table_uri.removeprefix("file://"))
    assert len(list(path.glob("*.parquet"))) > 2  # files of deleted rows are still there
    for source in (delta, path, str(path)):
        log = rc.read_sessions(source)
        assert rc.count(log) == rc.count(log) == rc.count(KEPT)
    with pytest.raises(LogError, match=r"holds a Delta table, .*delta, whose files may have rows"):
        rc.count(path.parent)
    with pytest.raises(LogError, match="has no column query"):
        rc.count(delta.scan(columns=["ads", "clicks"]))


def test_rows_marked_by_a_deletion_vector_are_left_out(tmp_path: Path) -> None:
    """As other engines delete: the file stays, and a bitmap in the log says which rows are gone."""
    path = tmp_path / "table"
    deltalake.write_deltalake(str(path), LOG, configuration={"delta.enableDeletionVectors": "true"})
    commit = path / "_delta_log" / "00000000000000000000.json"
    add = next(
        json.loads(line)["add"] for line in commit.read_text().splitlines() if '"add"' in line
    )
    gone = [0, 5, 199]
    # The format of Delta's protocol: magic number, bitmaps, then each with the high bits as key.
    bitmap = struct.pack("<IQI", 1681511377, 1, 0) + BitMap(gone).serialize()
    content = encode_z85(bitmap + bytes(-len(bitmap) % 4))
    vector = {
        "storageType": "i",
        "pathOrInlineDv": content,
        "sizeInBytes": len(bitmap),
        "cardinality": len(gone),
    }
    remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    actions = [{"remove": remove}, {"add": {**add, "deletionVector": vector}}]
    (path / "_delta_log" / "00000000000000000001.json").write_text(
        "".join(json.dumps(action) + "\n" for action in actions)
    )
    kept = LOG.take([row for row in range(200) if row not in gone])
    assert rc.count(path) == rc.count(kept)


def encode_z85(data: bytes) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    values = (int.from_bytes(data[start : start + 4], "big") for start in range(0, len(data), 4))
    return "".join(digits[value // 85**power % 85] for value in values for power in (4, 3, 2, 1, 0))


def test_an_iceberg_table_is_read_as_an_object_a_scan_and_a_metadata_file(iceberg: Any) -> None:
    metadata = Path(iceberg.metadata_location.removeprefix("file://"))
    for source in (iceberg, iceberg.scan(), metadata, str(metadata)):
        log = rc.read_sessions(source)
        assert rc.count(log) == rc.count(log) == rc.count(KEPT)
    only = iceberg.scan(row_filter="query == 's'")
    assert rc.count(only) == rc.count(LOG.filter(pa.compute.equal(LOG["query"], "s")))
    with pytest.raises(LogError, match=r"is an Iceberg table, whose catalog knows which of its"):
        rc.count(metadata.parent.parent)


def test_further_columns_and_other_names_work(delta: deltalake.DeltaTable, iceberg: Any) -> None:
    for source in (delta, iceberg):
        log = rc.read_sessions(source, columns={"query": "query", "weight": "weight"})
        rows = [batch.rows for batch in log.batches(with_rows=True)]
        assert sum(batch.num_rows for batch in rows if batch) == KEPT.num_rows
        model = rc.MODELS["ubm"](max_iterations=2).fit(source)
        assert model.training_counts == rc.count(KEPT)


def test_the_commands_take_tables(
    delta: deltalake.DeltaTable, iceberg: Any, tmp_path: Path
) -> None:
    for name, source in (("d", delta.table_uri), ("i", iceberg.metadata_location)):
        to = str(tmp_path / name)
        result = CliRunner().invoke(app, ["count", source, "--to", to])
        assert result.exit_code == 0, result.output
        assert rc.Counts.load(to) == rc.count(KEPT)
