"""Logs of other formats become files of sessions: what is kept and reported; all or nothing."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.errors import BadRowsError, LogError, SettingError, StoreError
from reclick.logs import convert, read_sessions
from reclick.logs.cleaning import Cleaning
from reclick.logs.files.log_file import LogFile, list_files
from reclick.logs.formats import FORMATS
from reclick.logs.formats.base import (
    ColumnMapping,
    LogFormat,
    ReadCancelledError,
    ReadReport,
    SessionRecord,
    batch_sessions,
)
from reclick.runtime.outputs import LIST_FILE

GOOD = {"query": ["shoes", "hats"], "ads": [["a", "b"], ["c"]], "clicks": [[2, 1], []]}


def _sessions(files: list[LogFile], report: ReadReport) -> Iterator[SessionRecord]:
    """`query;a,b;2,1`, a line a page; a line that starts with ! is a record without a page."""
    for file in files:
        for number, line in file.lines(report.advance):
            if line.startswith(b"#"):
                report.add_note("comment, skipped")
                continue
            parts = line.decode().split(";")
            if len(parts) != 3:
                report.add_bad_row("not readable", file.where, number, repr(line.decode()))
                continue
            report.add_ad_text(parts[1].split(",")[0], title=f"Best {parts[0]}")
            yield SessionRecord(
                parts[0],
                parts[1].split(","),
                [int(c) for c in parts[2].split(",") if c],
                session_id=str(number),
            )


def _read(files: list[LogFile], report: ReadReport, _: ColumnMapping) -> Iterator[pa.RecordBatch]:
    return batch_sessions(_sessions(files, report))


FORMAT = TOY = LogFormat(
    "toy",
    "A format of the tests",
    "One page a line.",
    lambda files: all(file.head.startswith(b"#toy") for file in files),
    _read,
)
TEXT = "#toy\nshoes;a,b;2,1\nhats;c;\n"


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "toy", __name__)


def written(folder: Path, text: str = TEXT, name: str = "log.toy") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def columns(log: rc.SessionLog) -> dict[str, Any]:
    table = pa.concat_tables(
        pa.Table.from_batches([batch.rows])
        for batch in log.batches(with_rows=True)
        if batch.rows is not None
    )
    return {name: table[name].to_pylist() for name in GOOD}


def test_a_named_format_is_read_into_sessions(tmp_path: Path) -> None:
    log = read_sessions(written(tmp_path), format="toy")
    assert columns(log) == GOOD
    assert log.name == "log.toy"
    assert log.provenance is not None
    assert log.provenance.format == "toy"
    assert log.summary.notes == {"comment, skipped": 1}
    assert log.summary.reverse_sessions == 1


def test_a_format_nobody_named_is_recognised(tmp_path: Path) -> None:
    log = read_sessions(written(tmp_path))
    assert log.provenance is not None
    assert log.provenance.format == "toy"


def test_what_no_format_recognises_keeps_the_first_error(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is not that of a known file type"):
        read_sessions(written(tmp_path, "something else"))


def test_reclicks_own_columns_are_asked_for_by_their_name(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is not that of a known file type"):
        read_sessions(written(tmp_path), format="sessions")


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"format: got 'ubbi', expected one of sessions, .*toy"):
        read_sessions(written(tmp_path), format="ubbi")


def test_a_table_has_no_format() -> None:
    with pytest.raises(LogError, match="got a dict"):
        read_sessions(GOOD, format="toy")


def test_columns_are_refused_where_the_format_fixes_them(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="those of the format toy are fixed"):
        read_sessions(written(tmp_path), format="toy", columns={"query": "q"})


def test_the_text_of_ads_comes_with_the_log(tmp_path: Path) -> None:
    log = read_sessions(written(tmp_path), format="toy")
    assert log.ads is not None
    assert log.ads.to_pydict()["title"] == ["Best shoes", "Best hats"]


def test_given_text_wins_over_the_logs_own(tmp_path: Path) -> None:
    log = read_sessions(written(tmp_path), format="toy", ads={"ad": ["a"], "title": ["Mine"]})
    assert log.ads is not None
    assert log.ads["title"].to_pylist() == ["Mine"]


def test_a_bad_record_stops_the_reading_and_writes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT + "broken\n")
    with pytest.raises(
        BadRowsError, match=r"1 of 3 rows of log\.toy is bad: 1 not readable \(row 4: 'broken'\)"
    ):
        convert(path, tmp_path / "out.parquet", format="toy")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.toy"]


def test_dropped_records_are_in_the_summary_and_parts_add_up(tmp_path: Path) -> None:
    log = convert(
        written(tmp_path, TEXT + "broken\nshoes;a;5\n"),
        tmp_path / "out.parquet",
        format="toy",
        max_bad=0.5,
    )
    assert log.summary.dropped == {"not readable": 1, "click outside the page": 1}
    assert log.summary.rows == log.summary.kept + sum(log.summary.dropped.values()) == 4
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 2


def test_repeated_clicks_are_written_once_and_still_told(tmp_path: Path) -> None:
    log = convert(
        written(tmp_path, "#toy\nshoes;a,b;2,2,1\n"), tmp_path / "out.parquet", format="toy"
    )
    assert columns(log)["clicks"] == [[2, 1]]
    assert log.summary.notes["repeated click"] == 1


def test_a_log_of_nothing_but_bad_records_says_so(tmp_path: Path) -> None:
    log, target = written(tmp_path, "broken\n"), tmp_path / "out.parquet"
    with pytest.raises(BadRowsError, match=r"1 not readable.* That is 100\.0%, more than 5\.0%"):
        convert(log, target, format="toy")
    with pytest.raises(BadRowsError, match="No session could be made of it"):
        convert(log, target, format="toy", on_error="raise")
    with pytest.raises(LogError, match="no session is left of 1 rows"):
        convert(log, target, format="toy", max_bad=1)


def test_bad_rows_are_dropped_up_to_a_share(tmp_path: Path) -> None:
    """2 of 40 rows are 5 %: no more than that is dropped without a question."""
    good: dict[str, list[Any]] = {
        "query": ["q"] * 38,
        "ads": [["a", "b"]] * 38,
        "clicks": [[1]] * 38,
    }
    bad: dict[str, list[Any]] = {"query": ["q"] * 3, "ads": [["a"]] * 3, "clicks": [[2]] * 3}
    target = tmp_path / "out.parquet"
    log = convert({name: good[name] + bad[name][:2] for name in good}, target)
    assert (log.summary.kept, log.summary.bad_share) == (38, 0.05)
    before = target.read_bytes()
    with pytest.raises(
        BadRowsError, match=r"3 of 41 rows .* more than 5\.0%, so nothing was written"
    ):
        convert({name: good[name] + bad[name] for name in good}, target)
    assert target.read_bytes() == before
    with pytest.raises(SettingError, match="max_bad: got 5, expected a number from 0 to 1"):
        convert(good, target, max_bad=5)


def test_events_are_compared_with_events_and_pages_with_pages(tmp_path: Path) -> None:
    """831 records make 700 pages; a bad record is a share of the records."""
    for path in (Path(__file__).parents[2] / "examples" / "ubi").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "events.ndjson").open("a") as file:
        file.write("not JSON\n" * 40)
    log = convert(tmp_path, tmp_path.parent / "out.parquet", format="ubi")
    summary = log.summary
    assert (summary.records, summary.kept) == (871, 700)
    assert summary.dropped_records == {"not readable": 40}
    assert summary.bad_share == 40 / 871
    lines = [line.split() for line in str(summary).splitlines()]
    assert lines[0] == ["records", "read", "871"]
    assert lines[1] == ["pages", "700"]
    assert lines[2] == ["kept", "700", "100.00%"]
    assert lines[3] == ["dropped", "records:", "not", "readable", "40", "4.59%"]
    assert all(not line[-1].endswith("%") for line in lines if line[0] == "note:")
    with pytest.raises(BadRowsError, match="40 of 871 records of 2 files are bad"):
        convert(tmp_path, tmp_path.parent / "out.parquet", format="ubi", on_error="raise")


def test_converted_sessions_and_the_text_beside_them_read_back_the_same(tmp_path: Path) -> None:
    convert(written(tmp_path), tmp_path / "out.parquet", format="toy")
    log = read_sessions(tmp_path / "out.parquet", ads=tmp_path / "out.ads.parquet")
    assert columns(log) == GOOD
    assert pq.read_table(tmp_path / "out.parquet")["session_id"].to_pylist() == ["2", "3"]


def test_own_columns_are_converted_with_their_further_ones(tmp_path: Path) -> None:
    table = pa.table({**GOOD, "note": ["x", "y"]}).rename_columns(
        ["search", "ads", "clicks", "note"]
    )
    convert(table, tmp_path / "out.parquet", columns={"query": "search"})
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {
        **GOOD,
        "search": GOOD["query"],
        "note": ["x", "y"],
    }


def test_a_converted_log_replaces_the_older_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    for _ in range(2):
        convert(GOOD, tmp_path / "out.parquet")
    assert {each.name for each in tmp_path.iterdir()} == {"out.parquet", LIST_FILE}


def test_a_missing_folder_is_made_and_goes_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadRowsError):
        rc.convert(
            {"query": [None], "ads": [["a"]], "clicks": [[1]]}, tmp_path / "new" / "out.parquet"
        )
    assert list(tmp_path.iterdir()) == []
    assert (
        rc.convert(
            {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}, tmp_path / "new" / "out.parquet"
        ).num_rows
        == 1
    )


@pytest.mark.parametrize("name", ["out.csv", "folder.parquet"])
def test_a_target_that_cannot_be_is_told_before_anything_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises((StoreError, SettingError), match=r"Parquet|it is a folder"):
        convert(GOOD, tmp_path / name)


def test_a_temporary_file_goes_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    log = read_sessions(GOOD, cleaning=Cleaning(first=1))
    assert log.summary.longest_page == 1
    assert list(tmp_path.iterdir())
    del log
    assert not list(tmp_path.iterdir())


def test_cleaning_is_counted_in_the_summary() -> None:
    log = read_sessions(GOOD, cleaning=Cleaning(first=1))
    assert columns(log) == {"query": ["shoes", "hats"], "ads": [["a"], ["c"]], "clicks": [[1], []]}
    assert log.summary.notes


def test_pages_are_cut_before_they_are_too_long() -> None:
    log = read_sessions(
        {"query": ["q"], "ads": [[f"a{i}" for i in range(150)]], "clicks": [[2, 120]]},
        cleaning=Cleaning(first=10),
    )
    assert log.summary.longest_page == 10
    assert columns(log)["clicks"] == [[2]]


def test_cleaning_that_leaves_nothing_says_so_and_writes_nothing(tmp_path: Path) -> None:
    table = pa.table(
        {
            **GOOD,
            "user": ["u", "u"],
            "timestamp": pa.array([1_700_000_000_000, 1_700_000_001_000], pa.timestamp("ms")),
        }
    )
    with pytest.raises(LogError, match="no session is left"):
        convert(table, tmp_path / "out.parquet", cleaning=Cleaning(max_pages_per_hour=1))
    assert not list(tmp_path.iterdir())


def test_users_and_times_under_other_names_are_found_by_the_cleaning(tmp_path: Path) -> None:
    table = pa.table(
        {
            **GOOD,
            "visitor": ["u", "v"],
            "at": pa.array([1_700_000_000_000, 1_700_000_001_000], pa.timestamp("ms")),
        }
    )
    log = convert(
        table,
        tmp_path / "out.parquet",
        columns={"user": "visitor", "timestamp": "at"},
        cleaning=Cleaning(max_pages_per_hour=5),
    )
    assert log.summary.kept == 2
    assert {"user", "timestamp"} <= set(pq.read_schema(tmp_path / "out.parquet").names)


def test_a_first_beyond_the_longest_page_is_refused() -> None:
    with pytest.raises(SettingError, match=r"first=200 .* max_ads=100"):
        read_sessions(GOOD, cleaning=Cleaning(first=200))
    with pytest.raises(SettingError, match=r"cleaning: got .*, expected .*rc\.Cleaning"):
        read_sessions(GOOD, cleaning={"first": 2})  # type: ignore[arg-type]


def test_a_log_is_not_converted_onto_itself(tmp_path: Path) -> None:
    pq.write_table(pa.table(GOOD), tmp_path / "log.parquet")
    with pytest.raises(SettingError, match="is the log itself"):
        convert(tmp_path, tmp_path / "log.parquet", cleaning=Cleaning(first=1))
    assert pq.read_table(tmp_path / "log.parquet").num_rows == 2


def test_text_of_an_older_log_does_not_stay_beside_a_newer_one(tmp_path: Path) -> None:
    convert(written(tmp_path), tmp_path / "out.parquet", format="toy")
    assert (tmp_path / "out.ads.parquet").exists()
    convert(GOOD, tmp_path / "out.parquet")
    assert not (tmp_path / "out.ads.parquet").exists()


def test_files_with_other_further_columns_make_one_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({**GOOD, "x": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({**GOOD, "y": ["u", "v"]}), tmp_path / "b.parquet")
    assert (
        convert(
            [tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "out.parquet"
        ).summary.kept
        == 4
    )
    pq.write_table(pa.table({**GOOD, "x": [[1], [2]]}), tmp_path / "b.parquet")
    with pytest.raises(LogError, match="different types in different files"):
        convert([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "out.parquet")


def test_rows_are_those_read_also_when_some_are_cleaned_away() -> None:
    log = read_sessions({**GOOD, "clicks": [[2, 1], []]}, cleaning=Cleaning(max_clicks=1))
    assert (log.summary.rows, log.summary.kept) == (2, 1)


def test_a_reading_that_nobody_waits_for_ends_at_once() -> None:
    report = ReadReport()
    report.advance(1)
    report.cancel()
    with pytest.raises(ReadCancelledError):
        report.advance(1)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "log.tar", "w") as tar:
        for _ in range(2):
            member = tarfile.TarInfo("log.toy")
            member.size = len(TEXT)
            tar.addfile(member, io.BytesIO(TEXT.encode()))
    with pytest.raises(LogError, match=r"holds log\.toy twice"):
        read_sessions(tmp_path / "log.tar", format="toy")


def test_progress_tells_of_bytes_and_of_their_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    read_sessions(
        written(tmp_path),
        format="toy",
        progress=lambda what, done, total: seen.append((done, total)),
    )
    assert seen[-1] == (len(TEXT), len(TEXT))


def archives(folder: Path) -> Iterator[Path]:
    """Archives whose members try to climb out of the folder."""
    with zipfile.ZipFile(folder / "log.zip", "w") as archive:
        archive.writestr("../../climbed.toy", TEXT)
    for name in ("log.tar", "log.tar.gz", "log.tgz"):
        with tarfile.open(folder / name, "w:gz" if "gz" in name else "w") as tar:
            member = tarfile.TarInfo("../../climbed.toy")
            member.size = len(TEXT)
            tar.addfile(member, io.BytesIO(TEXT.encode()))
    return folder.glob("log.*")


def test_archives_are_read_in_place_and_write_nowhere(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for path in archives(inner):
        assert columns(read_sessions(path, format="toy")) == GOOD, path
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {
        "log.zip",
        "log.tar",
        "log.tar.gz",
        "log.tgz",
    }


def test_a_broken_archive_is_told(tmp_path: Path) -> None:
    (tmp_path / "log.zip").write_bytes(b"PK not an archive")
    with pytest.raises(LogError, match="not a valid archive"):
        read_sessions(tmp_path / "log.zip", format="toy")


def test_an_archive_cut_short_is_told(tmp_path: Path) -> None:
    whole = next(path for path in archives(tmp_path) if path.name == "log.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LogError, match=r"cut\.tar\.gz"):
        read_sessions(tmp_path / "cut.tar.gz", format="toy")


def test_hidden_members_are_left_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("__MACOSX/log.toy", "junk")
        archive.writestr("log.toy", TEXT)
    assert [file.where for file in list_files([str(tmp_path / "log.zip")], ["log.zip"])] == [
        "log.zip/log.toy"
    ]


def test_lines_are_numbered_with_blank_ones_and_lose_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\r\ntwo\n\nthree")
    assert list(LogFile(str(path), "x.txt").lines()) == [(1, b"one"), (3, b"two"), (5, b"three")]
