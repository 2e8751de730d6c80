from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.logs.formats import yandex_personalized as own
from reclick.logs.formats.helpers.session_lines import SORTED_NOTE
from reclick.logs.formats.yandex_personalized import FORMAT as YANDEX_PERSONALIZED
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
    fields(50, "M", 23, 900),
    fields(50, 0, "Q", 0, 30, "1,2", "61,23", "62,28", "63,38"),
    fields(50, 14, "C", 0, 63),
    fields(50, 20, "Q", 1, 30, "1,2", "62,28", "61,23"),
    fields(50, 25, "C", 0, 61),
    fields(50, 31, "C", 1, 61),
    fields(51, "M", 23, 9),
    fields(51, 0, "Q", 0, 7, 1, "61,23"),
]


def test_each_query_is_a_page_and_clicks_name_theirs(tmp_path: Path) -> None:
    rows, report = read(YANDEX_PERSONALIZED, log(tmp_path, *SAMPLE))
    assert pages(rows) == [
        ("30", ["61", "62", "63"], [3, 1]),
        ("30", ["62", "61"], [2]),
        ("7", ["61"], []),
    ]
    assert [(row["session_id"], row["user"], row["timestamp"]) for row in rows] == [
        ("50.0", "900", None),
        ("50.1", "900", None),
        ("51.0", "9", None),
    ]
    assert not report.bad_rows.dropped
    assert not report.notes


def test_test_queries_are_set_aside_and_told(tmp_path: Path) -> None:
    lines = [
        fields(1, "M", 28, 5),
        *(fields(1, 9 * at, kind, at, 6, 8, "10,1", "11,1") for at, kind in enumerate("QT")),
        fields(1, 12, "C", 1, 10),
    ]
    rows, report = read(YANDEX_PERSONALIZED, log(tmp_path, *lines))
    assert [row["session_id"] for row in rows] == ["1.0"]
    assert report.notes == {own.TEST_PAGE_NOTE: 1, own.TEST_CLICK_NOTE: 1}
    assert not report.bad_rows.dropped


def test_a_session_without_its_user_is_kept_and_told(tmp_path: Path) -> None:
    rows, report = read(YANDEX_PERSONALIZED, log(tmp_path, *SAMPLE[1:]))
    assert [row["user"] for row in rows] == [None, None, "9"]
    assert report.notes == {own.NO_USER_NOTE: 1}


def test_a_session_out_of_order_is_sorted_with_its_user_first(tmp_path: Path) -> None:
    rows, report = read(YANDEX_PERSONALIZED, log(tmp_path, *SAMPLE[5::-1]))
    assert pages(rows) == [("30", ["61", "62", "63"], [3, 1]), ("30", ["62", "61"], [2])]
    assert [row["user"] for row in rows] == ["900", "900"]
    assert report.notes == {SORTED_NOTE: 1}
    rows, report = read(YANDEX_PERSONALIZED, log(tmp_path, SAMPLE[7], SAMPLE[6]))
    assert (rows[0]["user"], report.notes) == ("9", {SORTED_NOTE: 1})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (fields(1, 5, "C", 0, 99), "click on an ad not shown"),
        (
            fields(1, 5, "C", 0, 1),
            "click on an ad not shown",
        ),  # a domain, and the beginning of an id
        (fields(1, 5, "C", 4, 10), "click without a page"),
        (fields(1, 5, "C", 10), "not readable"),
        (fields(1, 5, "C", 0, 10, 11), "not readable"),
        (fields(1, 5, "Q", "", 6, 8, "10,1"), "no page key"),
        (fields(1, 5, "Q", 0, 6, 8, "10,1"), "duplicate page key"),
        (fields(1, 5, "Q", 1, "", 8, "10,1"), "no query"),
        (fields(1, 5, "Q", 1), "no query"),
        (fields(1, 5, "Q", 1, 6, 8), "no ads"),
        (fields(1, 5, "Q", 1, 6, 8, ""), "not readable"),
        (fields(1, 5, "Q", 1, 6, 8, "10,1", 11), "not readable"),
        (fields(1, 5, "Q", 1, 6, 8, "10,1,2"), "not readable"),
        (fields(1, 5, "Q", 1, 6, 8, "10,1", ",2"), "not readable"),
        (fields(1, 5, "Q", 1, 6, 8, "10,1", ""), "not readable"),
        (fields(1, 5, "T", 1, 6, 8), "no ads"),
        (fields(1, 5, "X", 1, 6, 8, "10,1"), "not readable"),
        (fields(1, 5, "X", 1), "not readable"),
        (fields(1, "M", 3, 77), "duplicate user"),
        (fields(1, "M", 3, ""), "not readable"),
        (fields(1, "M", 3, 77, 5), "not readable"),
        (fields(1, "M", 3), "not readable"),
        (fields(1, "x", "C", 0, 10), "not readable"),
        (b"1\t5\tC\t0\t\xff", "not readable"),
    ],
)
def test_a_line_that_breaks_the_rules_is_told_and_the_rest_is_kept(
    tmp_path: Path, line: str | bytes, reason: str
) -> None:
    before, after = (
        [fields(1, "M", 3, 4), fields(1, 0, "Q", 0, 5, 8, "10,1", "11,1")],
        [fields(1, 8, "C", 0, 11)],
    )
    rows, report = read(YANDEX_PERSONALIZED, log(tmp_path, *before, line, *after))
    assert [(row["user"], *page) for row, page in zip(rows, pages(rows), strict=True)] == [
        ("4", "5", ["10", "11"], [2])
    ]
    assert faults(report) == {reason: [3]}
    assert not set(report.notes) - {SORTED_NOTE}


def test_clicks_of_a_page_that_could_not_be_read_have_no_page(tmp_path: Path) -> None:
    rows, report = read(
        YANDEX_PERSONALIZED,
        log(
            tmp_path,
            fields(1, "M", 3, 4),
            fields(1, 0, "Q", 0, 5, 8, "10"),
            fields(1, 3, "C", 0, 10),
        ),
    )
    assert rows == []
    assert faults(report) == {"not readable": [2], "click without a page": [3]}


@pytest.mark.parametrize("start", EVERY_START)
def test_its_own_files_are_recognised_and_no_others(tmp_path: Path, start: str) -> None:
    assert YANDEX_PERSONALIZED.recognises([started(tmp_path, EVERY_START[start])]) is (
        start == "personalized"
    )


def test_the_test_file_is_recognised_next_to_the_train_file(tmp_path: Path) -> None:
    test = log(tmp_path, fields(1, "M", 28, 5), fields(1, 0, "T", 0, 6, "", "10,1"), name="test.gz")
    assert YANDEX_PERSONALIZED.recognises([log(tmp_path, *SAMPLE, name="train.gz"), test])


@given(sessions_shown, st.randoms(use_true_random=False))
def test_what_is_written_is_read_back_though_clicks_of_pages_mix(
    sessions: list[list[Shown]], rng: random.Random
) -> None:
    lines = []
    for session, shown in enumerate(sessions):
        lines.append(fields(session, "M", 1, session + 100))
        lines += [
            fields(session, at, "Q", at, query, "1,2", *(f"{ad},{at}" for ad in ads))
            for at, (query, ads, _) in enumerate(shown)
        ]
        left = {at: list(clicks) for at, (*_, clicks) in enumerate(shown)}
        while any(left.values()):
            at = rng.choice([at for at, clicks in left.items() if clicks])
            lines.append(fields(session, len(lines), "C", at, shown[at][1][left[at].pop(0) - 1]))
    with TemporaryDirectory() as folder:
        rows, report = read(YANDEX_PERSONALIZED, log(Path(folder), *lines))
    assert pages(rows) == [page for shown in sessions for page in shown]
    assert [row["session_id"] for row in rows] == [
        f"{session}.{at}" for session, shown in enumerate(sessions) for at in range(len(shown))
    ]
    assert [row["user"] for row in rows] == [
        str(session + 100) for session, shown in enumerate(sessions) for _ in shown
    ]
    assert not report.bad_rows.dropped
    assert not report.notes
