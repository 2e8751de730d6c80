"""Files that are damaged, huge or written by an enemy: a bad row or one clear error, in little
memory and linear time. The numbers of findings are those of the reliability campaign."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import reclick as rc
from reclick.logs.files import log_file
from reclick.logs.files.log_file import LogFile, list_files, split_blocks
from tests.support.format_samples import write_sample

GOOD = b'{"query": "a", "ads": ["x", "y"], "clicks": [2]}'
# lines with something odd in a field that is not read
ODD_LINES = {
    "latin-1": b'{"query": "a", "ads": ["x", "y"], "clicks": [2], "agent": "Mozilla \xe9"}',
    "deep": GOOD[:-1] + b', "deep": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "digits": GOOD[:-1] + b', "number": ' + b"9" * 5_000 + b"}",
    "half a pair in a name": GOOD[:-1] + b', "\\ud800": 1}',
}
UBI_QUERY = {"query_id": "q1", "user_query": "tea", "timestamp": "2026-01-01T00:00:00Z"}
UBI_PAGE = UBI_QUERY | {"query_response_hit_ids": ["a", "b"]}


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


class CountingStream(io.BytesIO):
    """Counts the bytes that are read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.total = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.total += len(data)
        return data


# ---- 7: odd values in fields that are not read


@pytest.mark.parametrize("name", list(ODD_LINES))
def test_what_is_not_read_makes_no_bad_row_whatever_the_neighbours(
    tmp_path: Path, name: str
) -> None:
    """Finding 7: such a line ended `convert` with a traceback, and was dropped by `count` when
    another line of its block was bad."""
    alone = write(tmp_path / "alone.jsonl", GOOD, ODD_LINES[name])
    mixed = write(tmp_path / "mixed.jsonl", GOOD, ODD_LINES[name], b"broken")
    for path, bad in ((alone, 0), (mixed, 1)):
        summary = rc.read_sessions(path, on_error="drop").summary
        assert (summary.kept, sum(summary.dropped.values())) == (2, bad)
        log = rc.convert(path, tmp_path / "to.parquet", max_bad=1)
        assert (log.summary.kept, sum(log.summary.dropped.values())) == (2, bad)


def test_a_bad_byte_in_what_is_read_is_a_bad_row_whatever_the_neighbours(tmp_path: Path) -> None:
    """Finding 7."""
    line = b'{"query": "caf\xe9", "ads": ["x"], "clicks": []}'
    for lines in ((GOOD, line), (GOOD, line, ODD_LINES["latin-1"]), (GOOD, line, b"broken")):
        path = write(tmp_path / "log.jsonl", *lines)
        log = rc.read_sessions(path, on_error="drop")
        assert log.summary.examples["not readable"][0].row == 2
        assert log.summary.kept == sum(each not in {line, b"broken"} for each in lines)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_other_encodings_than_utf_8_are_no_json_lines(tmp_path: Path, encoding: str) -> None:
    """The first line was read where it looked like UTF-32, and no other."""
    path = tmp_path / "a.jsonl"
    path.write_bytes((GOOD.decode() + "\n").encode(encoding) * 3)
    with pytest.raises(rc.LogError, match="is not JSON lines"):
        rc.read_sessions(path, on_error="drop")


def test_a_mark_of_utf_8_in_the_middle_is_no_bad_row(tmp_path: Path) -> None:
    """Files that were put together have it."""
    path = write(tmp_path / "a.jsonl", GOOD, b"\xef\xbb\xbf" + GOOD, b"\xef\xbb\xbf" + GOOD)
    assert rc.read_sessions(path).summary.kept == 3


@pytest.mark.parametrize("broken", [(), (b"q,a|b,x",), (b'q,"[""a""]",,u',)])
def test_csv_has_the_same_rule(tmp_path: Path, broken: tuple[bytes, ...]) -> None:
    """Finding 7: a bad byte matters in a column that is read, and in no other."""
    lines = (b"query,ads,clicks,agent", b"q,a|b,1,Mozilla \xe9", b"q\xe9,a|b,1,x", b"q,a|b,2,x")
    path = write(tmp_path / "log.csv", *lines, *broken)
    log = rc.read_sessions(path, on_error="drop")
    assert log.summary.kept == 2 + (broken == (b'q,"[""a""]",,u',))
    assert log.summary.examples["not readable"][0].row == 2
    kept = rc.convert(path, tmp_path / "to.parquet", max_bad=1)
    assert kept.summary.kept == log.summary.kept


def test_events_have_the_same_rule(tmp_path: Path) -> None:
    """Finding 7: in the formats of events too."""
    pages = [UBI_PAGE | {"query_id": f"q{number}"} for number in range(3)]
    first, second, third = (json.dumps(page).encode() for page in pages)
    odd = [
        second[:-1] + b', "agent": "\xe9"}',
        third[:-1] + b', "deep": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    ]
    for number, more in enumerate(([], [b"broken"])):
        path = write(tmp_path / f"ubi_queries{number}.ndjson", first, *odd, *more)
        log = rc.read_sessions(path, format="ubi", on_error="drop")
        assert log.summary.kept == 3
        assert sum(log.summary.dropped.values()) == len(more)


# ---- 8: times out of range


@pytest.mark.parametrize("time", [1e30, -(2**63), 2**64, "1e30", "10000-01-01", "٣", "1_000"])
def test_a_time_out_of_range_is_a_bad_record(tmp_path: Path, time: Any) -> None:
    """Finding 8: it ended the reading with a TypeError, with on_error="drop" too."""
    good = json.dumps(UBI_PAGE).encode()
    bad = json.dumps(UBI_PAGE | {"query_id": "q2", "timestamp": time}).encode()
    path = write(tmp_path / "ubi_queries.ndjson", good, bad)
    log = rc.read_sessions(path, format="ubi", on_error="drop")
    assert log.summary.dropped == {"not readable": 1}
    with pytest.raises(rc.BadRowsError, match=r"not a time|timestamp"):
        rc.read_sessions(path, format="ubi")


@pytest.mark.parametrize("time", ["1e30", "99999999999999999999999999"])
def test_a_time_out_of_range_is_a_bad_record_of_every_format(tmp_path: Path, time: str) -> None:
    """Finding 8: of Metarank and long tables too."""
    long = tmp_path / "long.csv"
    long.write_text(
        "session_id,query,ad,position,click_time\n1,q,a,1,1704067200\n1,q,b,2,\n"
        f"2,q,a,1,{time}\n2,q,b,2,1704067201\n"
    )
    metarank = write_sample("metarank", tmp_path)
    text = metarank.read_text()
    assert '"1599391469000"' in text
    metarank.write_text(text.replace('"1599391469000"', f'"{time}"', 1))
    for path, name in ((long, "long"), (metarank, "metarank")):
        summary = rc.read_sessions(path, format=name, on_error="drop").summary
        assert sum(summary.dropped_records.values()) + sum(summary.dropped.values()) > 0


def test_half_a_surrogate_pair_in_a_list_is_a_bad_row(tmp_path: Path) -> None:
    """Finding 21: in a cell of CSV it was a UnicodeEncodeError."""
    ads = r'["x\ud800", "y"]'
    (tmp_path / "a.csv").write_text(
        f'query,ads,clicks\nq,"{ads.replace(chr(34), chr(34) * 2)}",1\nq,a|b,1\n'
    )
    (tmp_path / "a.jsonl").write_text(f'{{"query": "q", "ads": {ads}, "clicks": [1]}}\n')
    for name, kept in (("a.csv", 1), ("a.jsonl", 0)):
        summary = rc.read_sessions(tmp_path / name, on_error="drop").summary
        assert summary.kept == kept
        assert "ads: not text" in str(summary)


# ---- 12: linear readers


def test_a_long_line_is_joined_once() -> None:
    """Finding 12: every further piece of a line copied all of it again."""
    copied = 0

    class Piece(bytes):
        def __add__(self, other: Any) -> Piece:
            nonlocal copied
            copied += len(self) + len(other)
            return Piece(super().__add__(other))

        def __radd__(self, other: bytes) -> Piece:
            return Piece(other) + bytes(self)

        def __getitem__(self, part: Any) -> Any:
            return Piece(super().__getitem__(part))

    class Stream:
        def __init__(self, pieces: int) -> None:
            self.left = pieces

        def read(self, size: int) -> bytes:
            self.left -= 1
            return Piece(b"x" * size) if self.left >= 0 else b""

    blocks = list(split_blocks(Stream(1000), "a.txt", 1024))  # type: ignore[arg-type]
    assert [len(block) for block in blocks] == [1000 * 1024]
    assert copied == 0


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz"])
def test_a_line_without_end_is_refused_after_its_limit(tmp_path: Path, name: str) -> None:
    """Finding 12: 4 MB of gzip may hold a line of 4 GB; it was gathered for minutes."""
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write(b"x" * (1 << 20))
    with pytest.raises(rc.LogError, match="a line of more than 16 MB"):
        rc.read_sessions(path)


def test_no_more_than_the_limit_of_a_line_is_read() -> None:
    """Finding 12."""
    stream = CountingStream(b"x" * (40 << 20))
    with pytest.raises(rc.LogError, match="more than 16 MB"):
        list(split_blocks(stream, "a.txt", 1 << 16))
    assert stream.total <= log_file.MAX_LINE_BYTES + (1 << 17)


def test_lines_that_end_with_a_carriage_return_alone_are_named(tmp_path: Path) -> None:
    """Finding 12: such a CSV was one line, and a small one had no rows."""
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    small.write_bytes(b"query,ads,clicks\rq,a|b,1\rq,a|b,2\r")
    large.write_bytes(b"query,ads,clicks\r" + b"q,a|b,1\r" * (3 << 20))
    for path in (small, large):
        with pytest.raises(rc.LogError, match="carriage return alone"):
            rc.read_sessions(path)
    quoted = tmp_path / "quoted.csv"
    quoted.write_bytes(b'query,ads,clicks,"a\rb"\nq,a|b,1,\n')
    assert rc.read_sessions(quoted).summary.kept == 1


def test_one_array_on_one_line_is_read(tmp_path: Path) -> None:
    """Finding 12: an export of an index as one JSON array took minutes before it was recognised."""
    pages = [UBI_PAGE | {"query_id": f"q{number}", "more": "x" * 4000} for number in range(5000)]
    path = tmp_path / "ubi_queries.json"
    path.write_text(json.dumps(pages))
    assert path.stat().st_size > 16 << 20
    assert rc.read_sessions(path).summary.kept == 5000


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What archives were opened."""
    calls: list[str] = []

    def watch(module: Any, name: str) -> None:
        old = getattr(module, name)

        def count(*args: Any, **more: Any) -> Any:
            calls.append(name)
            return old(*args, **more)

        monkeypatch.setattr(module, name, count)

    watch(zipfile, "ZipFile")
    watch(tarfile, "open")
    return calls


def write_archives(folder: Path, members: dict[str, bytes]) -> list[Path]:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with tarfile.open(folder / "a.tar.gz", "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return [folder / "a.zip", folder / "a.tar.gz"]


def test_an_archive_of_many_members_is_opened_once(tmp_path: Path, opened: list[str]) -> None:
    """Finding 12: an archive was opened anew, and unpacked from the start, for every member."""
    members = {f"part{number}.jsonl": b"%d\n" % number for number in range(300)}
    for path in write_archives(tmp_path, members):
        opened.clear()
        files = list_files([str(path)], [path.name])
        lines = [list(file.lines()) for file in files]
        assert lines == [[(1, b"%d" % number)] for number in range(300)]
        assert len(opened) == 1
        assert files[-1].head == b"299\n"
        with files[0].open() as first, files[1].open() as second:  # two at the same time
            assert (first.read(), second.read()) == (b"0\n", b"1\n")


def test_a_gzipped_tar_is_unpacked_once_for_all_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 12."""
    rewinds = 0
    rewind = gzip.GzipFile.rewind

    def count(self: gzip.GzipFile) -> None:
        nonlocal rewinds
        rewinds += 1
        rewind(self)

    monkeypatch.setattr(gzip.GzipFile, "rewind", count)
    members = {f"part{number}.txt": b"line\n" * 50_000 for number in range(20)}
    _, path = write_archives(tmp_path, members)
    for file in list_files([str(path)], [path.name]):
        assert sum(1 for _ in file.lines()) == 50_000
    assert rewinds <= 2


def test_a_name_that_comes_often_costs_one_count() -> None:
    """Finding 12: names were counted one by one."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    with pytest.raises(rc.LogError, match=r"holds same\.jsonl twice"):
        log_file._visible_members([Name("same.jsonl") for _ in range(500)], "a.zip")
    assert compared < 2000


def test_names_of_members_that_are_unclear_are_refused(tmp_path: Path) -> None:
    """Findings 21 and 22: one without a name was an IndexError, and escape sequences went out."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("same.jsonl", b"{}")
        archive.filelist += archive.filelist
    with pytest.raises(rc.LogError, match=r"holds same\.jsonl twice"):
        rc.read_sessions(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("x", b"{}")
        archive.infolist()[0].filename = ""
    with pytest.raises(rc.LogError, match=r"without a name|not a valid archive"):
        rc.read_sessions(tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("a\x1b[31mred.csv", b"")
        archive.filelist += archive.filelist
    with pytest.raises(rc.LogError, match=r"holds a\\x1b\[31mred\.csv twice"):
        rc.read_sessions(tmp_path / "c.zip")


# ---- 22: what looks like a number


@pytest.mark.parametrize("other", ["a|b,1", 'x,"[1]"'])
def test_a_cell_is_read_alike_whatever_the_other_cells(tmp_path: Path, other: str) -> None:
    """Finding 22: a click 0x2 was 2, or a bad row if another cell was a JSON list."""
    path = tmp_path / "log.csv"
    path.write_text(f"query,ads,clicks\nq,a|b,0x2\nq,{other}\nq,a|b,1_0\nq,a|b,٢\n")
    summary = rc.read_sessions(path, on_error="drop").summary
    assert (summary.kept, summary.dropped) == (1, {"not readable": 3})
    assert summary.examples["not readable"][0].got == "clicks: expected whole numbers, got '0x2'"


def test_a_number_has_no_underscores(tmp_path: Path) -> None:
    """Finding 22: a weight 1_000 was 1000."""
    path = tmp_path / "log.csv"
    path.write_text("query,ads,clicks,weight\nq,a|b,1,1_000\nq,a|b,1,2\nq,a|b,1,٣\n")
    summary = rc.read_sessions(path, on_error="drop").summary
    assert (summary.kept, summary.dropped) == (1, {"not readable": 2})


def test_the_head_of_a_file_reads_no_more_than_its_head(tmp_path: Path) -> None:
    """Finding 12: recognising a format reads the start of a file."""
    path = write(tmp_path / "a.json", b"[" + b'{"a": 1}, ' * 400_000 + b'{"a": 1}]')
    file = log_file.as_json_lines(LogFile(str(path), path.name))
    assert len(file.head) < 4 * log_file.HEAD_BYTES
