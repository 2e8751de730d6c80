"""KDD Cup 2012: pages are rebuilt where the counts allow only one way.

The counts of every ad at every position stay exact.
"""

from __future__ import annotations

import random
import zipfile
from collections import Counter, defaultdict
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.assembly import spill
from reclick.logs.files.log_file import LogFile, list_files
from reclick.logs.formats.kddcup2012 import FORMAT as KDDCUP2012
from tests.support.event_logs import Row, faults, own_files, plain, read

MISSING = "row of a page with positions missing, skipped"
UNEQUAL = "row of a page whose positions were shown unequally often, skipped"
MIXED = "row of pages that cannot be told apart, skipped"
SPREAD = "page shown more than once, its clicks spread over the showings"
NO_ORDER = "clicks without an order, taken from the top down"
Instance = tuple[
    int, int, int, int, int, int, int
]  # click, impression, ad, depth, position, query, user


def line(
    click: int,
    impression: int,
    ad: int,
    depth: int,
    position: int,
    query: int = 7,
    user: int = 3,
    title: int = 1,
    description: int = 2,
) -> str:
    return "\t".join(
        map(
            str,
            (
                click,
                impression,
                14340390157469404125,
                ad,
                99,
                depth,
                position,
                query,
                5,
                title,
                description,
                user,
            ),
        )
    )


def training(folder: Path, *lines: str) -> LogFile:
    return plain(folder, "".join(f"{each}\n" for each in lines), "training.txt")


def weighted(rows: list[Row]) -> list[tuple[str, list[str], list[int], float]]:
    return [(row["query"], row["ads"], row["clicks"], row["weight"]) for row in rows]


def test_a_page_shown_once_is_read_as_it_was(tmp_path: Path) -> None:
    rows, report = read(
        KDDCUP2012,
        training(
            tmp_path,
            line(1, 1, 12, 3, 3),
            line(0, 1, 10, 3, 1),
            line(1, 1, 11, 3, 2),
            line(0, 1, 10, 1, 1, user=0),
        ),
    )
    assert weighted(rows) == [("7", ["10", "11", "12"], [2, 3], 1), ("7", ["10"], [], 1)]
    assert [row["user"] for row in rows] == ["3", None]
    assert report.notes == {NO_ORDER: 1}
    assert not report.ad_texts


def test_clicks_of_a_page_shown_often_are_spread_one_to_a_showing(tmp_path: Path) -> None:
    rows, report = read(KDDCUP2012, training(tmp_path, line(2, 9, 10, 2, 1), line(3, 9, 11, 2, 2)))
    assert weighted(rows) == [
        ("7", ["10", "11"], [1], 2),
        ("7", ["10", "11"], [2], 3),
        ("7", ["10", "11"], [], 4),
    ]
    assert report.notes == {SPREAD: 1}


def test_clicks_go_round_again_when_there_are_more_than_showings(tmp_path: Path) -> None:
    rows, report = read(KDDCUP2012, training(tmp_path, line(2, 3, 10, 2, 1), line(3, 3, 11, 2, 2)))
    assert weighted(rows) == [("7", ["10", "11"], [1, 2], 2), ("7", ["10", "11"], [2], 1)]
    assert report.notes == {SPREAD: 1, NO_ORDER: 1}


def test_ads_that_take_turns_at_one_position_are_told_apart(tmp_path: Path) -> None:
    rows, _ = read(
        KDDCUP2012,
        training(tmp_path, line(0, 3, 10, 2, 1), line(1, 2, 11, 2, 2), line(0, 1, 12, 2, 2)),
    )
    assert weighted(rows) == [
        ("7", ["10", "11"], [2], 1),
        ("7", ["10", "11"], [], 1),
        ("7", ["10", "12"], [], 1),
    ]


def test_ads_that_stood_alone_are_pages_of_their_own(tmp_path: Path) -> None:
    rows, report = read(
        KDDCUP2012, training(tmp_path, line(1, 4, 10, 1, 1, user=0), line(0, 1, 11, 1, 1, user=0))
    )
    assert weighted(rows) == [("7", ["10"], [1], 1), ("7", ["10"], [], 3), ("7", ["11"], [], 1)]
    assert not report.notes


def test_pages_that_cannot_be_put_together_are_set_aside_and_counted(tmp_path: Path) -> None:
    missing = [line(0, 1, 10, 3, 1, query=1), line(0, 1, 12, 3, 3, query=1)]
    unequal = [line(0, 2, 10, 2, 1, query=2), line(0, 1, 11, 2, 2, query=2)]
    mixed = [
        line(0, 1, ad, 2, position, query=3)
        for ad, position in ((10, 1), (11, 1), (12, 2), (13, 2))
    ]
    rows, report = read(
        KDDCUP2012, training(tmp_path, *missing, *unequal, *mixed, line(0, 1, 10, 1, 1))
    )
    assert weighted(rows) == [("7", ["10"], [], 1)]
    assert report.notes == {MISSING: 2, UNEQUAL: 2, MIXED: 4}


def test_instances_of_an_ad_with_two_titles_are_one(tmp_path: Path) -> None:
    rows, _ = read(
        KDDCUP2012, training(tmp_path, line(1, 2, 10, 1, 1, title=1), line(0, 3, 10, 1, 1, title=8))
    )
    assert weighted(rows) == [("7", ["10"], [1], 1), ("7", ["10"], [], 4)]


def test_bad_lines_are_told_and_the_rest_is_kept(tmp_path: Path) -> None:
    bad = [
        "1\t2\t3",
        line(0, 1, 10, 1, 1).replace("\t99\t", "\tx\t"),
        line(2, 1, 10, 1, 1),
        line(0, 0, 10, 1, 1),
        line(0, 1, 10, 1, 2),
        line(0, 1, 10, 1, 0),
    ]
    rows, report = read(
        KDDCUP2012, training(tmp_path, line(0, 1, 10, 1, 1), "", *bad, line(0, 1, 2**63, 1, 1))
    )
    assert weighted(rows) == [("7", ["10"], [], 1)]
    assert faults(report) == {
        "not readable": [3, 4, 9],
        "more clicks than impressions": [5],
        "no impressions": [6],
        "position beyond the depth": [7, 8],
    }


def test_tokens_become_the_text_of_ads(tmp_path: Path) -> None:
    log = training(
        tmp_path,
        line(0, 1, 10, 2, 1, title=4),
        line(0, 1, 11, 2, 2, title=5, description=9),
        line(0, 1, 10, 1, 1, title=6),
    )
    titles = plain(tmp_path, "4\t12|7|12\n5\t3\nx\t3\n", "titleid_tokensid.txt")
    others = [
        plain(tmp_path, "2\t1|2\n", name)
        for name in ("descriptionid_tokensid.txt", "queryid_tokensid.txt", "userid_profile.txt")
    ]
    rows, report = read(KDDCUP2012, titles, log, *others)
    assert len(rows) == 2
    assert report.ad_texts == {
        "10": ("12 7 12", "1 2", "14340390157469404125"),
        "11": ("3", "", "14340390157469404125"),
    }
    assert report.notes == {
        "ad whose title or description has no words": 1,
        "file that pages do not need, not read": 2,
    }
    assert faults(report) == {"not readable": [3]}


def test_an_archive_is_read_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "track2.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("track2/training.txt", line(0, 1, 10, 1, 1) + "\n")
        archive.writestr("track2/titleid_tokensid.txt", "1\t5|6\n")
    files = list_files([str(path)], ["track2.zip"])
    assert KDDCUP2012.recognises(files)
    rows, report = read(KDDCUP2012, *files)
    assert weighted(rows) == [("7", ["10"], [], 1)]
    assert report.ad_texts["10"][0] == "5 6"


def test_it_is_recognised_by_its_lines(tmp_path: Path) -> None:
    assert KDDCUP2012.recognises([training(tmp_path, line(0, 1, 10, 1, 1))])
    test_file = plain(tmp_path, line(0, 1, 10, 1, 1).split("\t", 2)[2] + "\n", "test.txt")
    assert not KDDCUP2012.recognises([test_file])
    assert not any(KDDCUP2012.recognises([file]) for file in own_files(tmp_path))
    with pytest.raises(LogError, match=r"No file of training instances among test\.txt"):
        read(KDDCUP2012, test_file)


def test_a_log_in_many_buckets_gives_the_same_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        line(place - 1, 1, 10 + place, 2, place, query=number % 5, user=number + 1)
        for number in range(60)
        for place in (1, 2)
    ]
    log = training(tmp_path, *lines[::2], *lines[1::2])
    monkeypatch.setattr(spill, "PARTITION_BYTES", Path(str(log.path)).stat().st_size // 5)
    rows, report = read(KDDCUP2012, log)
    assert sorted(weighted(rows)) == sorted(
        (str(number % 5), ["11", "12"], [2], 1) for number in range(60)
    )
    assert not report.notes


def counted(rows: list[Row]) -> Counter[tuple[str, str, int, str]]:
    """How often every ad was shown and clicked at its position."""
    counts: Counter[tuple[str, str, int, str]] = Counter()
    for row in rows:
        for position, ad in enumerate(row["ads"], start=1):
            counts[row["query"], ad, position, "shown"] += int(row["weight"])
            counts[row["query"], ad, position, "clicked"] += int(row["weight"]) * (
                position in row["clicks"]
            )
    return +counts


@st.composite
def groups(draw: st.DrawFn) -> list[Instance]:
    """Instances of one page shown often, perhaps with several ads that rotate at one position."""
    depth, turning = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    parts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    times = sum(parts)
    shown = [
        (position, each)
        for position in range(1, depth + 1)
        for each in (parts if position == min(turning, depth) else [times])
    ]
    return [
        (draw(st.integers(0, each)), each, ad, depth, position, 0, 0)
        for ad, (position, each) in enumerate(shown, start=10)
    ]


@settings(max_examples=20)
@given(st.lists(groups(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_counts_of_known_pages_stay_exact_and_clicks_are_spread_evenly(
    many: list[list[Instance]], rng: random.Random
) -> None:
    lines = [
        line(*each[:5], query=query, user=1) for query, group in enumerate(many) for each in group
    ]
    rng.shuffle(lines)
    with TemporaryDirectory() as folder:
        rows, report = read(KDDCUP2012, training(Path(folder), *lines))
    expected: Counter[tuple[str, str, int, str]] = Counter()
    for query, group in enumerate(many):
        for click, impression, ad, _, position, _, _ in group:
            expected[str(query), str(ad), position, "shown"] += impression
            expected[str(query), str(ad), position, "clicked"] += click
    assert counted(rows) == +expected
    assert not any("skipped" in note for note in report.notes)
    for query, group in enumerate(many):
        depth = group[0][3]
        mine = [row for row in rows if row["query"] == str(query)]
        times, clicks = sum(row["weight"] for row in mine), sum(each[0] for each in group)
        assert all(
            len(row["ads"]) == depth and row["clicks"] == sorted(set(row["clicks"])) for row in mine
        )
        assert all(len(row["clicks"]) in {clicks // times, ceil(clicks / times)} for row in mine)


pages = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True).flatmap(
    lambda ads: st.tuples(st.just(ads), st.sets(st.integers(1, len(ads))))
)


@settings(max_examples=15)
@given(st.lists(pages, max_size=8), st.randoms(use_true_random=False))
def test_any_sessions_seen_once_come_back(
    sessions: list[tuple[list[int], set[int]]], rng: random.Random
) -> None:
    lines = [
        line(int(position in clicks), 1, ad, len(ads), position, query=number % 3, user=number + 1)
        for number, (ads, clicks) in enumerate(sessions)
        for position, ad in enumerate(ads, start=1)
    ]
    rng.shuffle(lines)
    with TemporaryDirectory() as folder:
        rows, _ = read(KDDCUP2012, training(Path(folder), *(lines or [""])))
    by_user = {row["user"]: row for row in rows}
    assert len(by_user) == len(rows) == len(sessions)
    for number, (ads, clicks) in enumerate(sessions):
        row = by_user[str(number + 1)]
        assert (row["query"], row["ads"], row["clicks"]) == (
            str(number % 3),
            [str(ad) for ad in ads],
            sorted(clicks),
        )


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
        max_size=12,
        unique_by=lambda each: each[:3],
    )
)
def test_every_instance_is_kept_or_told(given_instances: list[tuple[int, int, int, int]]) -> None:
    instances = [
        (ad, depth, position, impression)
        for ad, depth, position, impression in given_instances
        if position <= depth
    ]
    lines = [
        line(0, impression, ad, depth, position) for ad, depth, position, impression in instances
    ]
    with TemporaryDirectory() as folder:
        rows, report = read(KDDCUP2012, training(Path(folder), *(lines or [""])))
    kept: dict[tuple[int, str, int], int] = defaultdict(int)
    for row in rows:
        for position, ad in enumerate(row["ads"], start=1):
            kept[len(row["ads"]), ad, position] += int(row["weight"])
    theirs = {
        (depth, str(ad), position): impression for ad, depth, position, impression in instances
    }
    assert all(theirs[key] == many for key, many in kept.items())
    assert len(kept) + sum(many for note, many in report.notes.items() if "skipped" in note) == len(
        instances
    )
