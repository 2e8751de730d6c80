"""Parquet files that are damaged or unpack to gigabytes: an error or a bad row, in little memory.

The numbers of findings are those of the reliability campaign.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.runtime import parquet_layout
from reclick.runtime.parquet_layout import ParquetLayout, read_layout

PEAK = """
import resource, sys
import reclick as rc
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
for path in sys.argv[1:]:
    for read in (
        lambda: rc.read_sessions(path, on_error="drop").summary.kept,
        lambda: rc.convert(path, path + ".out.parquet", max_bad=1),
    ):
        try:
            read()
        except rc.ReclickError:
            pass
status = open("/proc/self/status").read()  # ru_maxrss counts the parent too
print(int(status.split("VmHWM:")[1].split()[0]) >> 10)
"""
CHECK = (
    "import sys, reclick as rc; print(rc.read_sessions(sys.argv[1], on_error='drop').summary.kept)"
)


def write(path: Path, columns: dict[str, object], **options: object) -> Path:
    pq.write_table(pa.table(columns), path, compression="zstd", **options)
    return path


def repeat(value: str, times: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, np.int8)), pa.array([value]))


def pages(rows: int) -> dict[str, object]:
    return {"query": ["q"] * rows, "ads": [["a", "b"]] * rows, "clicks": [[1]] * rows}


def limits(path: Path, columns: list[str] | None = None) -> list[tuple[list[int], int]]:
    return list(read_layout(str(path), path.name).limit_rows(columns or ["query", "ads"]))


# ---- 13: fat rows


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the memory of a process")
def test_bombs_take_little_memory(tmp_path: Path) -> None:
    """Finding 13: 34 KB with one row of 1 GB took 6.4 GB, and a long value that rows share more."""
    row, many = pages(1), pages(3000)
    bombs = [
        write(
            tmp_path / "value.parquet", row | {"query": ["x" * (100 << 20)]}, use_dictionary=False
        ),
        write(
            tmp_path / "shared.parquet",
            many | {"query": repeat("x" * (1 << 20), 3000)},
            store_schema=False,  # else it is read as codes
        ),
        write(
            tmp_path / "list.parquet",
            row | {"ads": pa.ListArray.from_arrays([0, 30_000_000], repeat("a", 30_000_000))},
        ),
    ]
    assert all(path.stat().st_size < 1 << 20 for path in bombs)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, bombs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1024  # MB


def test_a_page_that_unpacks_to_much_is_refused_before_it_is(tmp_path: Path) -> None:
    """Finding 13."""
    path = write(
        tmp_path / "a.parquet", pages(1) | {"query": ["x" * (70 << 20)]}, use_dictionary=False
    )
    with pytest.raises(
        rc.LogError, match=r"a\.parquet has pages of 70 MB in query.*limit is 64 MB"
    ):
        rc.count(path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("unread", [False, True])
def test_rows_that_unpack_to_much_are_read_few_at_a_time(
    tmp_path: Path, version: str, unread: bool
) -> None:
    """Finding 13: a value in a dictionary is written once and may be in every row."""
    column = "other" if unread else "query"
    path = write(
        tmp_path / "a.parquet",
        pages(4000) | {column: repeat("x" * 300_000, 4000)},
        data_page_version=version,
    )
    ((groups, rows),) = limits(path, ["query", "ads", "clicks", "other"])
    assert groups == [0]
    assert 60 < rows < 300  # 192 MB, of three copies of 300 KB
    assert limits(path, ["ads"])[0][1] == 250_000
    summary = rc.read_sessions(path, on_error="drop").summary
    assert summary.rows == 4000
    assert summary.kept == (4000 if unread else 0)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_longest_list_is_known_before_it_is_decoded(tmp_path: Path, version: str) -> None:
    """Finding 13: a billion equal ads take a few bytes."""
    lengths = np.random.default_rng(1).integers(0, 9, 50_000)
    lengths[777] = 5_000
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ads = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), repeat("a", int(starts[-1])))
    path = write(tmp_path / "a.parquet", {"ads": ads}, data_page_version=version)
    layout = read_layout(str(path), path.name)
    with parquet_layout._map_file(str(path)) as data:
        size = parquet_layout._ChunkSize(layout.groups[0].chunks[0], data, "a", coded=True)
        records = size._records
    assert records.longest == 5_000
    assert records.rows.sum() == 50_000


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY"])
def test_the_longest_text_is_known_before_it_is_decoded(tmp_path: Path, encoding: str) -> None:
    """Finding 13: texts that share their start take a few bytes each."""
    texts = ["x" * length for length in np.random.default_rng(2).integers(0, 3000, 5000)]
    dictionary = encoding == "PLAIN"
    path = write(
        tmp_path / "a.parquet",
        {"query": texts},
        use_dictionary=dictionary,
        dictionary_pagesize_limit=1 << 30,
        column_encoding=None if dictionary else {"query": encoding},
    )
    layout = read_layout(str(path), path.name)
    with parquet_layout._map_file(str(path)) as data:
        size = parquet_layout._ChunkSize(layout.groups[0].chunks[0], data, "a", coded=False)
        longest = size._longest_text
    real = max(map(len, texts))
    assert real <= longest <= (real if dictionary else 2 * real)


def test_small_row_groups_are_read_together(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pages(1000), row_group_size=100)
    assert limits(path) == [([*range(10)], 250_000)]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_kind_of_file_has_the_sizes_that_arrow_reports(
    tmp_path: Path, compression: str, version: str
) -> None:
    nested: list[dict[str, object] | None] = [
        {"a": [1, None], "b": [{"c": "x"}]},
        None,
        {"a": [], "b": None},
    ]
    table = pa.table({"query": ["q", None, "r"], "nested": nested, "time": [1.5, None, 2.0]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression=compression, data_page_version=version)
    layout = read_layout(str(path), "a.parquet")
    metadata = pq.read_metadata(path).row_group(0)
    theirs = [metadata.column(index) for index in range(metadata.num_columns)]
    (group,) = layout.groups
    assert group.num_rows == 3
    for chunk, column in zip(group.chunks, theirs, strict=True):
        assert ".".join(chunk.leaf.path) == column.path_in_schema
        assert chunk.num_values == column.num_values
        assert chunk.unpacked_bytes == column.total_uncompressed_size
    with parquet_layout._map_file(str(path)) as data:
        sizes = [parquet_layout._ChunkSize(each, data, "a", coded=False) for each in group.chunks]
        assert [size._records.rows.sum() for size in sizes] == [3] * len(sizes)
    assert isinstance(layout, ParquetLayout)


# ---- 14 and 1: damage


def test_a_damaged_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """Finding 14: Arrow aborts the process when it is asked for the sizes of such a file."""
    path = write(tmp_path / "a.parquet", pages(4))
    data = path.read_bytes()
    assert data.count(b"\x25\x02\x18\x05query") == 1
    path.write_bytes(data.replace(b"\x25\x02\x18\x05query", b"\x25\x00\x18\x05query"))
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    assert done.returncode == 0 or "reclick.errors." in done.stderr.splitlines()[-1]


def test_lists_in_lists_of_a_footer_end_somewhere(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    footer = b"\x29" + b"\x19" * 5_000  # a field that is a list of a list of a list …
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(rc.LogError):
        rc.count(path)


OTHER, FINE = 3, 0


def read_in_child(path: Path) -> int:
    child = os.fork()
    if child == 0:
        code = OTHER
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with suppress(rc.ReclickError):
                rc.count(rc.read_sessions(path, on_error="drop"))
            code = FINE
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("rows", [50, 50_000])
def test_a_changed_byte_is_an_error_or_changes_rows_and_nothing_worse(
    tmp_path: Path, rows: int
) -> None:
    """Findings 1 and 14: codes outside the dictionary crashed or were counted."""
    rng = random.Random(rows)  # noqa: S311
    columns = {
        "query": [f"q{rng.randrange(30)}" for _ in range(rows)],
        "ads": [[f"a{rng.randrange(50)}" for _ in range(4)] for _ in range(rows)],
        "clicks": [[rng.randrange(1, 5)] for _ in range(rows)],
    }
    data = write(tmp_path / "a.parquet", columns).read_bytes()
    rc.count(rc.read_sessions(tmp_path / "a.parquet"))  # kernels are compiled before the children
    footer = int.from_bytes(data[-8:-4], "little")
    found = {}
    for number in range(24):
        low = len(data) - 8 - footer if number % 2 else 4
        at, bit = rng.randrange(low, len(data)), 1 << rng.randrange(8)
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        found[at, bit] = read_in_child(path)
    assert {place: code for place, code in found.items() if code != FINE} == {}


def test_codes_outside_the_dictionary_of_a_file_are_refused(tmp_path: Path) -> None:
    """Finding 1: one byte changed in a page of codes, which Arrow does not check."""
    rows = 60_000
    path = write(
        tmp_path / "a.parquet",
        {"query": repeat("q", rows), "ads": [["a"]] * rows, "clicks": [[]] * rows},
        write_statistics=False,
    )
    layout = read_layout(str(path), "a.parquet")
    chunk = layout.groups[0].chunks[0]
    assert chunk.leaf.path == ("query",)
    path = tmp_path / "b.parquet"
    pq.write_table(
        pa.table({"query": repeat("q", rows), "ads": [["a"]] * rows, "clicks": [[]] * rows}),
        path,
        compression="none",
        write_statistics=False,
    )
    data = bytearray(path.read_bytes())
    chunk = read_layout(str(path), "b.parquet").groups[0].chunks[0]
    with parquet_layout._map_file(str(path)) as mapped:
        page = list(parquet_layout._list_pages(chunk, mapped))[1]
    place = data.rindex(b"\x00", page.start, page.end)  # the code of the last run, 0
    data[place] = 1
    path.write_bytes(bytes(data))
    with pytest.raises(rc.LogError, match="dictionary"):
        rc.count(path)


def test_a_column_name_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    """Finding 21: it was a UnicodeDecodeError."""
    path = write(tmp_path / "a.parquet", pages(2) | {"zzzzz": [1, 2]}, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"zzzzz", b"zz\xff\xfez"))
    with pytest.raises(rc.LogError, match="cannot be read as Parquet"):
        rc.read_sessions(path)
