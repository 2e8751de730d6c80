"""The users: what each type does, that bots are optional, and that the truth fits the log."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pytest
from scipy.stats import norm

from reclick.simulation import simulate
from reclick.simulation.users import (
    BOT,
    COMPARER,
    DEMAND,
    ONE_CLICK,
    SCANNER,
    USER_TYPES,
    browse_page,
    is_satisfied,
    user_type_shares,
)

Clicks = tuple[int, ...]


def browse_pages(
    user_type: int, appeal: list[float], quality: list[float], count: int = 20_000
) -> Counter[Clicks]:
    """The click sequences of many users of a type on one page."""
    rng, liking, clicks = (
        np.random.default_rng(1),
        np.empty(len(appeal)),
        np.zeros(len(appeal), np.int32),
    )
    appeals, pages = np.array(appeal), np.array(quality)
    return Counter(
        tuple(clicks[: browse_page(user_type, appeals, pages, rng, liking, clicks)[0]].tolist())
        for _ in range(count)
    )


def monotone(clicks: Clicks) -> bool:
    return list(clicks) in (sorted(clicks), sorted(clicks, reverse=True))


def share(found: Counter[Clicks], wanted: npt.NDArray[np.bool_] | list[bool]) -> float:
    return float(np.dot(list(found.values()), wanted) / sum(found.values()))


def test_a_one_click_user_clicks_once_at_most() -> None:
    found = browse_pages(ONE_CLICK, [0.5] * 4, [-9.0] * 4)
    assert set(found) == {(), (1,), (2,), (3,), (4,)}
    assert found[(1,)] > found[(2,)] > found[(3,)]  # and appeals at the top first


@pytest.mark.parametrize("user_type", [SCANNER, COMPARER])
def test_users_who_are_satisfied_click_no_more(user_type: int) -> None:
    assert max(map(len, browse_pages(user_type, [1.0] * 4, [9.0] * 4))) == 1


def test_a_scanner_goes_one_way_and_clicks_several() -> None:
    found = browse_pages(SCANNER, [0.5] * 4, [-9.0] * 4)
    assert all(map(monotone, found))
    assert max(map(len, found)) == 4
    assert (
        0.02 < share(found, [len(clicks) > 1 and clicks[0] > clicks[-1] for clicks in found]) < 0.2
    )  # came from below


def test_a_comparer_clicks_the_best_first_and_may_return_to_a_higher_ad() -> None:
    found = browse_pages(COMPARER, [0.5, 1.5, 0.0, 0.0], [-9.0] * 4)
    assert found[(2, 1)] > found[(1, 2)] > 0
    assert not all(map(monotone, found))
    all_seen = sum(count for clicks, count in found.items() if clicks)
    assert share(found, [clicks[:1] == (2,) for clicks in found]) * 20_000 > 0.4 * all_seen


def test_a_comparer_leaves_when_the_others_are_much_worse() -> None:
    found = browse_pages(COMPARER, [12.0, 6.0, 6.0, 6.0], [-9.0] * 4)
    assert share(found, [clicks == (1,) for clicks in found]) > 0.9


def test_a_bot_clicks_whatever_is_there() -> None:
    found = browse_pages(BOT, [-9.0] * 3, [9.0] * 3)
    assert set(map(len, found)) == {1, 2, 3}
    assert found[(1, 2, 3)] / 20_000 == pytest.approx(1 / 2 + 1 / 2 / 3 / 6, abs=0.02)
    assert len(found) == 3 + 6 + 6


@pytest.mark.parametrize("user_type", [ONE_CLICK, SCANNER, COMPARER])
def test_a_click_ends_the_need_as_often_as_satisfaction_says(user_type: int) -> None:
    rng, count = np.random.default_rng(user_type), 20_000
    for quality in (-1.0, 0.2, 1.0):
        chance = norm.cdf(quality - DEMAND[user_type])
        ended = sum(is_satisfied(user_type, quality, rng) for _ in range(count))
        assert abs(ended - count * chance) < 4 * np.sqrt(count * chance * (1 - chance))


def test_attractiveness_is_the_click_rate_of_the_ad_examined_first() -> None:
    # On a page of one ad, those who examine ads at all examine it first: P(click) is attention ·
    # attractiveness, within 4 standard errors.
    market = simulate(150_000, weeks=1, queries=200, page=(1, 1), seed=2)
    attention = dict(
        zip(
            *(market.truth.queries[name].to_pylist() for name in ("query", "attention")),
            strict=True,
        )
    )
    theta = {
        (row["query"], row["ad"]): row["attractiveness"] for row in market.truth.pairs.to_pylist()
    }
    shown: Counter[tuple[str, str]] = Counter()
    clicked: Counter[tuple[str, str]] = Counter()
    for query, (ad,), clicks in zip(
        *(market.weeks[0][name].to_pylist() for name in ("query", "ads", "clicks")), strict=True
    ):
        shown[query, ad] += 1
        clicked[query, ad] += len(clicks)
    pairs = [pair for pair in shown if shown[pair] >= 200]
    chance = np.array([attention[query] * theta[query, ad] for query, ad in pairs])
    impressions, clicks = (
        np.array([shown[pair] for pair in pairs]),
        np.array([clicked[pair] for pair in pairs]),
    )
    error = (clicks - impressions * chance) / np.sqrt(impressions * chance * (1 - chance))
    assert len(pairs) > 100
    assert np.abs(error).max() < 4
    assert np.mean(error**2) == pytest.approx(1, abs=4 * np.sqrt(2 / len(pairs)))


def test_the_more_often_a_query_is_asked_the_more_users_click_once() -> None:
    shares = user_type_shares(np.array([1.0, 30.0, 300.0, 3_000.0, 1e6]))
    assert shares.sum(axis=1) == pytest.approx(np.ones(5))
    assert np.all(np.diff(shares[:, ONE_CLICK]) > 0)
    assert np.all(shares > 0)


def test_sessions_have_the_user_types_of_the_truth() -> None:
    market = simulate(40_000, weeks=1, bots=0.2, seed=3)
    found = Counter(market.truth.sessions["kind"].to_pylist())
    expected = market.truth.users["shares"]
    assert list(expected) == list(USER_TYPES)
    for user_type in USER_TYPES:
        assert abs(found[user_type] / 40_000 - expected[user_type]) < 4 * np.sqrt(0.25 / 40_000)


def test_bots_come_only_when_asked() -> None:
    human, mixed = simulate(20_000, weeks=1, seed=4), simulate(20_000, weeks=1, bots=0.1, seed=4)
    assert "bot" not in human.truth.sessions["kind"].to_pylist()
    bots = pc.equal(mixed.truth.sessions["kind"].cast("string"), "bot")
    assert pc.mean(bots).as_py() == pytest.approx(0.1, abs=0.01)
    assert (
        pc.min(pc.list_value_length(mixed.weeks[0]["clicks"].filter(bots))).as_py() == 1
    )  # a bot always clicks
