from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.helpers import session_lines
from reclick.logs.formats.yandex_relevance import FORMAT as YANDEX_RELEVANCE
from tests.support.line_logs import (
    EVERY_START,
    Shown,
    faults,
    fields,
    log,
    pages,
    read,
    sessions_shown,
    started,
)

SAMPLE = [
    fields(10, 0, "Q", 300, 2, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70),
    fields(10, 5, "C", 62),
    fields(10, 8, "Q", 100, 2, 1, 62, 3),
    fields(10, 9, "C", 3),
    fields(10, 11, "C", 61),
    fields(10, 12, "C", 62),
    fields(11, 0, "Q", 300, 1, 61, 62),
]


def test_each_query_is_a_page_with_its_region_and_its_clicks(tmp_path: Path) -> None:
    rows, report = read(YANDEX_RELEVANCE, log(tmp_path, *SAMPLE))
    assert pages(rows) == [
        ("300_2", ["61", "62", "63", "64", "65", "66", "67", "68", "69", "70"], [2, 1]),
        ("100_2", ["1", "62", "3"], [3, 2]),
        ("300_1", ["61", "62"], []),
    ]
    assert [row["session_id"] for row in rows] == ["10.0", "10.1", "11.0"]
    assert {(row["user"], row["timestamp"]) for row in rows} == {(None, None)}
    assert not report.bad_rows.dropped
    assert not report.notes


def test_a_click_belongs_to_the_last_page_that_showed_its_ad(tmp_path: Path) -> None:
    shown_in_both = [
        fields(1, 0, "Q", 5, 0, 7, 8),
        fields(1, 1, "Q", 6, 0, 9, 7),
        fields(1, 2, "C", 7),
        fields(1, 3, "C", 8),
    ]
    rows, _ = read(YANDEX_RELEVANCE, log(tmp_path, *shown_in_both))
    assert [row["clicks"] for row in rows] == [[2], [2]]


def test_a_repeated_click_stays_and_an_ad_shown_twice_is_clicked_at_its_upper_place(
    tmp_path: Path,
) -> None:
    rows, _ = read(
        YANDEX_RELEVANCE,
        log(
            tmp_path,
            fields(1, 0, "Q", 5, 0, 17, 7, 71, 7),
            fields(1, 1, "C", 7),
            fields(1, 2, "C", 7),
        ),
    )
    assert pages(rows) == [("5_0", ["17", "7", "71", "7"], [2, 2])]


def test_lines_of_a_session_are_put_in_the_order_of_time_and_it_is_told(tmp_path: Path) -> None:
    late = [
        fields(1, 9, "C", 7),
        fields(1, 0, "Q", 5, 0, 7, 8, 9),
        fields(1, 3, "C", 9),
        fields(1, 3, "C", 8),
        fields(2, 0, "Q", 5, 0, 7),
    ]
    rows, report = read(YANDEX_RELEVANCE, log(tmp_path, *late))
    assert [row["clicks"] for row in rows] == [[3, 2, 1], []]
    assert report.notes == {session_lines.SORTED_NOTE: 1}
    assert not report.bad_rows.dropped


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (fields(1, 5, "C", 99), "click on an ad not shown"),
        (fields(1, 5, "C", 1), "click on an ad not shown"),  # the beginning of an id is not the id
        (fields(1, 5, "C", ""), "click on an ad not shown"),
        (fields(2, 5, "C", 10), "click without a page"),
        (fields(1, 5, "C", 10, 11), "not readable"),
        (fields(1, 5, "C"), "not readable"),
        (fields(1, 5, "Q", "", 2, 10), "no query"),
        (fields(1, 5, "Q", 6), "no ads"),
        (fields(1, 5, "Q", 6, 2), "no ads"),
        (fields(1, 5, "Q", 6, "", 10), "not readable"),
        (fields(1, 5, "Q", 6, 2, 10, "", 11), "not readable"),
        (fields(1, 5, "Q", 6, 2, 10, ""), "not readable"),
        (fields(1, 5, "X", 6, 2, 10), "not readable"),
        (fields(1, "M", 3, 77), "not readable"),
        (fields(1, -5, "C", 10), "not readable"),
        (fields(1, "", "C", 10), "not readable"),
        (fields(1, "9" * 5000, "C", 10), "not readable"),
        (fields("", 5, "C", 10), "not readable"),
        ("nothing of the kind", "not readable"),
        (b"1\t5\tC\t\xff", "not readable"),
    ],
)
def test_a_line_that_breaks_the_rules_is_told_and_the_rest_is_kept(
    tmp_path: Path, line: str | bytes, reason: str
) -> None:
    rows, report = read(
        YANDEX_RELEVANCE,
        log(
            tmp_path,
            fields(1, 0, "Q", 5, 2, 10, 11),
            line,
            fields(3, 0, "Q", 5, 2, 12),
            fields(3, 1, "C", 12),
        ),
    )
    assert pages(rows) == [("5_2", ["10", "11"], []), ("5_2", ["12"], [1])]
    assert faults(report) == {reason: [2]}
    assert not set(report.notes) - {session_lines.SORTED_NOTE}


def test_blank_lines_other_line_ends_and_gzip_are_read(tmp_path: Path) -> None:
    expected, _ = read(YANDEX_RELEVANCE, log(tmp_path, *SAMPLE))
    for name, end in (("a.txt", b"\r\n"), ("b.txt.gz", b"\n"), ("c.txt", b"\n\n \n")):
        rows, report = read(YANDEX_RELEVANCE, log(tmp_path, *SAMPLE, name=name, end=end))
        assert rows == expected
        assert not report.bad_rows.dropped
    for last in ("", "\r"):
        assert read(YANDEX_RELEVANCE, started(tmp_path, "\n".join(SAMPLE) + last))[0] == expected


def test_a_session_may_run_on_into_the_next_file(tmp_path: Path) -> None:
    rows, report = read(
        YANDEX_RELEVANCE,
        log(tmp_path, *SAMPLE[:1], name="xaa"),
        log(tmp_path, *SAMPLE[1:], "broken", name="xab"),
    )
    assert [row["clicks"] for row in rows] == [[2, 1], [3, 2], []]
    assert [
        (example.where, example.row) for example in report.bad_rows.examples["not readable"]
    ] == [("xab", 7)]


def test_line_numbers_count_over_blocks_and_all_bytes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_lines, "TEXT_BLOCK_BYTES", 50)
    file = log(tmp_path, *SAMPLE, b"\xff", *SAMPLE, "broken", *SAMPLE)
    rows, report = read(YANDEX_RELEVANCE, file)
    assert len(rows) == 9
    assert faults(report) == {"not readable": [8, 16]}
    report = ReadReport()
    list(YANDEX_RELEVANCE.read([file], report, {}))
    assert report.read_bytes == Path(str(file.path)).stat().st_size


def test_pages_come_in_batches_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_lines, "BATCH_SESSIONS", 2)
    batches = list(YANDEX_RELEVANCE.read([log(tmp_path, *SAMPLE * 2)], ReadReport(), {}))
    assert [batch.num_rows for batch in batches] == [2, 3, 1]


def test_a_file_cut_short_is_an_error(tmp_path: Path) -> None:
    file = log(tmp_path, *SAMPLE * 50, name="a.txt.gz")
    Path(str(file.path)).write_bytes(Path(str(file.path)).read_bytes()[:-20])
    with pytest.raises(LogError, match=r"a\.txt\.gz cannot be read to the end"):
        read(YANDEX_RELEVANCE, file)


@pytest.mark.parametrize("start", EVERY_START)
def test_its_own_files_are_recognised_and_no_others(tmp_path: Path, start: str) -> None:
    assert YANDEX_RELEVANCE.recognises([started(tmp_path, EVERY_START[start])]) is (
        start == "relevance"
    )


def test_every_file_must_look_like_it_and_a_bad_line_does_not_hide_it(tmp_path: Path) -> None:
    own = log(tmp_path, "broken", *SAMPLE)
    assert YANDEX_RELEVANCE.recognises([own, log(tmp_path, *SAMPLE, name="b.txt", end=b"\r\n")])
    assert not YANDEX_RELEVANCE.recognises([own, started(tmp_path, EVERY_START["plain"], "c.txt")])
    assert not YANDEX_RELEVANCE.recognises([log(tmp_path, "broken", SAMPLE[0], name="d.txt")])
    assert YANDEX_RELEVANCE.recognises([started(tmp_path, SAMPLE[0], "e.txt")])
    assert not YANDEX_RELEVANCE.recognises([])
    assert not YANDEX_RELEVANCE.recognises([LogFile(str(tmp_path / "nowhere"), "nowhere")])


@given(sessions_shown, st.randoms(use_true_random=False))
def test_what_is_written_is_read_back(sessions: list[list[Shown]], rng: random.Random) -> None:
    lines = []
    for session, shown in enumerate(sessions):
        time = 0
        for query, ads, clicks in shown:
            lines.append(fields(session, time, "Q", query, session % 4, *ads))
            for click in clicks:
                time += rng.randrange(3)
                lines.append(fields(session, time, "C", ads[click - 1]))
    with TemporaryDirectory() as folder:
        rows, report = read(YANDEX_RELEVANCE, log(Path(folder), *lines))
    expected = [
        (f"{query}_{session % 4}", ads, clicks)
        for session, shown in enumerate(sessions)
        for query, ads, clicks in shown
    ]
    assert pages(rows) == expected
    assert not report.bad_rows.dropped
    assert not report.notes
