from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from reclick.errors import LogError
from reclick.logs import read_sessions
from reclick.logs.files.source import find_files
from tests.support.log_tables import GOOD, read_back, write_parquet

CSV = "query,ads,clicks\nshoes,a1|a2|a3,2|1\nحذاء,a2,\nshoes 👟,a3|a1,1\n"


def test_a_glob_gives_its_files_sorted(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "c.csv"):
        write_parquet(tmp_path / name)
    assert [Path(str(file)).name for file in find_files(f"{tmp_path}/*.parquet")] == [
        "a.parquet",
        "b.parquet",
    ]


def test_a_folder_gives_every_file_below_it_but_hidden_ones(tmp_path: Path) -> None:
    for name in (
        "day=2/part-0.parquet",
        "day=1/part-0.parquet",
        "_temporary/x.parquet",
        ".crc/y.parquet",
        "_SUCCESS",
        "notes.txt",
    ):
        write_parquet(tmp_path / name)
    assert find_files(tmp_path) == [
        str(tmp_path / "day=1/part-0.parquet"),
        str(tmp_path / "day=2/part-0.parquet"),
    ]


def test_a_recursive_glob_gives_each_file_once(tmp_path: Path) -> None:
    write_parquet(tmp_path / "day=1/a.parquet")
    assert len(find_files(f"{tmp_path}/**")) == 1


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "log[1].parquet")
    assert find_files(path) == [str(path)]


def test_formats_may_be_mixed_in_one_folder(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text(CSV)
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    (tmp_path / "d.tsv").write_text(CSV.replace(",", "\t"))
    log = read_sessions(tmp_path)
    assert read_back(log) == GOOD * 4
    assert log.name == "4 files"
    assert log.num_rows is None


def test_a_list_of_paths_keeps_its_order(tmp_path: Path) -> None:
    paths = [write_parquet(tmp_path / "b.parquet"), write_parquet(tmp_path / "a.parquet")]
    assert find_files(paths) == list(map(str, paths))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"week9\.parquet does not exist"):
        read_sessions(tmp_path / "week9.parquet")


def test_a_glob_without_files_is_told() -> None:
    with pytest.raises(LogError, match="No file matches"):
        read_sessions("nowhere/*.parquet")


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_an_empty_file_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(LogError, match=f"{name} is empty"):
        read_sessions(tmp_path / name)


def test_a_folder_without_logs_lists_the_formats(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"holds no file to read.*\.parquet.*\.csv.*\.jsonl"):
        read_sessions(tmp_path)


def test_an_unknown_ending_lists_the_formats(tmp_path: Path) -> None:
    (tmp_path / "log.xlsx").write_text("x")
    with pytest.raises(LogError, match=r"log\.xlsx.*is not that of a known file type.*\.parquet"):
        read_sessions(tmp_path / "log.xlsx")


def test_an_empty_list_is_told() -> None:
    with pytest.raises(LogError, match="list of files to read is empty"):
        read_sessions([])


def test_files_of_the_same_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for day in ("1", "2"):
        write_parquet(
            tmp_path / day / "part.parquet", [{"query": "q", "ads": ["a"], "clicks": [int(day)]}]
        )
    with pytest.raises(LogError, match=r"2/part\.parquet row 1: position 2 on a page of 1 ad\)"):
        read_back(read_sessions(tmp_path))
