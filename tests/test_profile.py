"""The profile of a log against obvious computations."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest

from reclick.engines import count
from reclick.profile import describe
from tests.support.enumeration import Session, as_table, random_sessions

BUCKETS = ["0-10", "10-50", "50-100", "100-500", "500-1000", ">1000"]


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_totals_and_shares_are_the_obvious_ones(seed: int, weights: bool) -> None:
    sessions = random_sessions(np.random.default_rng(seed), 150, weights=weights, longest=5)
    profile = describe(as_table(sessions, weights=weights))
    total = sum(s.weight for s in sessions)
    clicked = [s for s in sessions if s.path]
    multi = [s for s in sessions if len(s.path) > 1]
    reverse = [s for s in multi if any(b < a for a, b in itertools.pairwise(s.path))]
    of_clicked, of_multi = (sum(s.weight for s in group) for group in (clicked, multi))
    assert profile.sessions == total
    assert profile.queries == len({s.query for s in sessions})
    assert profile.ads == len({ad for s in sessions for ad in s.ads})
    assert profile.pairs == len({(s.query, ad) for s in sessions for ad in s.ads})
    assert profile.impressions == sum(s.weight * len(s.ads) for s in sessions)
    assert profile.clicks == sum(s.weight * len(s.path) for s in sessions)
    assert profile.clicked_share == pytest.approx(of_clicked / total)
    assert profile.multi_click_share == pytest.approx(of_multi / of_clicked)
    assert profile.reverse_share == pytest.approx(sum(s.weight for s in reverse) / of_multi)


@pytest.mark.parametrize("weights", [False, True])
def test_tables_and_figure_are_the_obvious_ones(weights: bool) -> None:
    sessions = random_sessions(
        np.random.default_rng(9), 150, queries="q", weights=weights, longest=5
    )
    profile = describe(as_table(sessions, weights=weights))
    first, distance, length = Counter[int](), Counter[int](), Counter[int]()
    for s in sessions:
        length[len(s.ads)] += int(s.weight)
        if s.path:
            first[s.path[0]] += int(s.weight)
        for a, b in itertools.pairwise(s.path):
            distance[b - a] += int(s.weight)
    assert profile.first_clicks == pytest.approx([first[j] / first.total() for j in range(1, 6)])
    assert profile.distances == pytest.approx(
        {d: n / distance.total() for d, n in distance.items()}
    )
    assert list(profile.distances) == sorted(profile.distances)
    assert profile.page_lengths == pytest.approx(
        {n: many / length.total() for n, many in sorted(length.items())}
    )
    (row,) = (row for row in profile.by_volume if row.queries)
    by_clicks = Counter(
        {m: sum(s.weight for s in sessions if min(len(s.path), 4) == m) for m in range(1, 5)}
    )
    assert row.sessions == by_clicks.total()
    assert row.shares == pytest.approx([by_clicks[m] / by_clicks.total() for m in range(1, 5)])


def test_queries_fall_into_the_buckets_of_the_paper() -> None:
    volumes = [1, 10, 11, 50, 51, 100, 101, 500, 501, 1000, 1001, 5000]
    sessions = [
        Session(f"q{volume}", ("a", "b"), (1,), float(volume - 0.5 * (volume > 1)))
        for volume in volumes
    ]
    sessions += [Session(f"q{volume}", ("a", "b"), (), 0.5) for volume in volumes if volume > 1]
    rows = describe(as_table(sessions, weights=True)).by_volume
    assert [row.volume for row in rows] == BUCKETS
    assert [row.queries for row in rows] == [2] * 6
    assert [row.sessions for row in rows] == [
        1 + 9.5,
        10.5 + 49.5,
        50.5 + 99.5,
        100.5 + 499.5,
        500.5 + 999.5,
        1000.5 + 4999.5,
    ]
    assert [row.relative for row in rows] == pytest.approx([row.sessions / 10.5 for row in rows])
    assert all(row.shares == (1, 0, 0, 0) for row in rows)


def test_five_clicks_count_as_four_or_more() -> None:
    sessions = [
        Session("q", tuple("abcde"), (1, 2, 3, 4, 5)),
        Session("q", tuple("abcde"), (5, 4, 3, 2)),
        Session("q", ("a",), (1,)),
    ]
    assert describe(as_table(sessions)).by_volume[0].shares == pytest.approx((1 / 3, 0, 0, 2 / 3))


def test_counts_have_the_profile_of_their_log() -> None:
    table = as_table(random_sessions(np.random.default_rng(3), 50))
    assert describe(count(table)) == describe(table)


def test_a_log_without_clicks_has_a_portrait_too() -> None:
    profile = describe(as_table([Session("q", ("a", "b"), ())]))
    assert (profile.clicked_share, profile.multi_click_share, profile.reverse_share) == (0, 0, 0)
    assert list(profile.first_clicks) == [0, 0]
    assert len(profile.distances) == 0
    assert "no session has two clicks" in str(profile)


def test_empty_counts_have_a_portrait_too() -> None:
    counts = count(as_table([Session("q", ("a",), (1,))]))
    profile = describe(counts - counts)
    assert (profile.sessions, profile.queries, profile.page_lengths) == (0, 0, {})
    assert "sessions" in str(profile)


def test_the_text_shows_numbers_and_bars() -> None:
    sessions = [Session("q", ("a", "b", "c"), (1,))] * 3 + [Session("q", ("a", "b", "c"), (3, 1))]
    lines = str(describe(as_table(sessions))).splitlines()
    assert "reverse              100.0%  of those go back up the page" in lines
    assert f"    1  75.00% {'█' * 32}" in lines
    assert "    2   0.00%" in lines
    assert f"    3  25.00% {'█' * 11}" in lines
    assert f"   -2 100.00% {'█' * 32}" in lines
    assert any(
        line.split() == ["0-10", "1", "4", "1.00", "75.00%", "25.00%", "0.00%", "0.00%"]
        for line in lines
    )


def test_the_portrait_is_plain_values_for_json() -> None:
    plain = json.loads(
        json.dumps(describe(as_table(random_sessions(np.random.default_rng(1), 30))).to_dict())
    )
    assert plain["sessions"] == 30
    assert plain["by_volume"][0]["volume"] == "0-10"
