"""Folders named dt=2026-03-01 give their files a column, and files about the data are no log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.evaluation import split
from reclick.logs.files.source import find_files, is_whole_number, partition_values
from tests.support.dated_logs import day


def write_days(folder: Path, names: list[str], *, extra: dict[str, object] | None = None) -> None:
    for number, name in enumerate(names, start=1):
        path = folder / name / "part-0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = day(number, 10, times=False)
        for column, value in (extra or {}).items():
            table = table.append_column(column, pa.array([value] * 10))
        pq.write_table(table, path)


def values(log: rc.SessionLog, column: str) -> list[object]:
    return [
        value
        for batch in log.batches(with_rows=True)
        if batch.rows is not None
        for value in batch.rows.column(column).to_pylist()
    ]


def test_a_folder_gives_its_files_a_column(tmp_path: Path) -> None:
    write_days(tmp_path, ["dt=2026-03-01/country=de", "dt=2026-03-02/country=c%20d"])
    log = rc.read_sessions(tmp_path)
    assert values(log, "dt") == ["2026-03-01"] * 10 + ["2026-03-02"] * 10
    assert values(log, "country") == ["de"] * 10 + ["c d"] * 10
    one = rc.read_sessions(tmp_path / "dt=2026-03-02/country=c%20d/part-0.parquet")
    assert set(values(one, "dt")) == {"2026-03-02"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["hour=1", "hour=20"], [1, 20]),
        (["hour=01", "hour=20"], ["01", "20"]),
        (["hour=1", "hour=__HIVE_DEFAULT_PARTITION__"], [1, None]),
        (["hour=2", "hour=x"], ["2", "x"]),
    ],
)
def test_whole_numbers_are_numbers_if_all_are(
    tmp_path: Path, names: list[str], expected: list[object]
) -> None:
    write_days(tmp_path, names)
    assert values(rc.read_sessions(tmp_path), "hour") == [v for v in expected for _ in range(10)]


def test_files_above_and_in_a_partition_make_one_log(tmp_path: Path) -> None:
    write_days(tmp_path, ["dt=1", "other"])
    assert values(rc.read_sessions(tmp_path), "dt") == [1] * 10 + [None] * 10


def test_a_column_of_the_file_stays(tmp_path: Path) -> None:
    write_days(tmp_path, ["dt=2026-03-01"], extra={"dt": "mine"})
    assert values(rc.read_sessions(tmp_path), "dt") == ["mine"] * 10


def test_a_log_is_split_by_the_name_of_its_folders(tmp_path: Path) -> None:
    write_days(tmp_path / "wh", [f"dt=2026-03-{number:02}" for number in range(1, 22)])
    parts = split(tmp_path / "wh", tmp_path / "parts", by="dt")
    assert [part.num_rows if part else 0 for part in parts] == [70, 70, 70]
    assert set(values(parts.test, "dt")) == {f"2026-03-{number}" for number in range(15, 22)}


def test_a_partition_may_be_the_time(tmp_path: Path) -> None:
    write_days(tmp_path, ["dt=2026-03-01", "dt=2026-03-02"])
    log = rc.read_sessions(tmp_path, columns={"timestamp": "dt"})
    (record,) = rc.count(log).logs
    assert record.period == "2026-03-01 to 2026-03-02"
    (plain,) = rc.count(rc.read_sessions(tmp_path)).logs
    assert plain.timed is None


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a/b.parquet", {}),
        ("a/dt=1/b.parquet", {"dt": "1"}),
        ("a/=1/b.parquet", {}),
        ("a/1=x/b.parquet", {}),
        ("a/dt=/b.parquet", {"dt": ""}),
        ("a/x=y=z/b.parquet", {"x": "y=z"}),
        ("a/x=1.parquet", {}),
    ],
)
def test_values_of_a_path(path: str, found: dict[str, str]) -> None:
    assert partition_values(path) == found


@pytest.mark.parametrize(
    ("text", "whole"), [("0", True), ("-3", True), ("007", False), ("", False)]
)
def test_whole_numbers(text: str, whole: bool) -> None:
    assert is_whole_number(text) is whole


@pytest.mark.parametrize("name", ["README.txt", "readme", "LICENSE", "notes.md", "files.sha256"])
def test_a_file_about_the_data_does_not_break_recognition(tmp_path: Path, name: str) -> None:
    examples = Path(__file__).parents[3] / "examples" / "ubi"
    for path in examples.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_text("About this log.\n")
    log = rc.read_sessions(tmp_path)
    assert log.provenance is not None
    assert log.provenance.format == "ubi"
    assert len(find_files(str(tmp_path), any_name=True)) == 2
    named = find_files(str(tmp_path / name), any_name=True)  # a file that is named is read
    assert len(named) == 1
