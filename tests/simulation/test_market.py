"""The market: queries, ads, their appeal and quality, who is shown where, and labels."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy.stats import norm

from reclick.simulation import Simulation, simulate
from reclick.simulation.ads import BEST_WEIGHT, MEAN_WEIGHT
from reclick.simulation.market import BASE_APPEAL, MATCH_APPEAL, NAMED_APPEAL
from reclick.simulation.users import MOOD
from reclick.simulation.vocabulary import (
    TOPIC_NAMES,
    TOPICS,
    TRADES,
    brand_names,
    trade_phrases,
)
from reclick.text.tokens import tokens

Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def market() -> Simulation:
    return simulate(60_000, seed=5)


def lookup(table: pa.Table, *columns: str) -> dict[Any, Any]:
    """The last column by the others."""
    rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
    return {row[0] if len(row) == 2 else row[:-1]: row[-1] for row in rows}


def theta(market: Simulation) -> dict[tuple[str, str], float]:
    return lookup(market.truth.pairs, "query", "ad", "attractiveness")


def shown(week: pa.Table) -> set[str]:
    return {ad for page in week["ads"].to_pylist() for ad in page}


def words_of(market: Simulation) -> dict[str, list[str]]:
    return {
        row["ad"]: tokens(row["title"], row["description"], "") for row in market.ads.to_pylist()
    }


def brand_of(market: Simulation) -> dict[str, str]:
    return {row["ad"]: row["display_url"].split(".example")[0] for row in market.ads.to_pylist()}


def means_and_bests(market: Simulation) -> tuple[dict[str, float], dict[str, float]]:
    """The mean and the best of the effects of each ad's words, in the topic of its brand."""
    effect, topic = (
        lookup(market.truth.words, "topic", "word", "effect"),
        lookup(market.truth.brands, "brand", "topic"),
    )
    brand = brand_of(market)
    effects = {
        ad: [effect[topic[brand[ad]], word] for word in words]
        for ad, words in words_of(market).items()
    }
    return {ad: float(np.mean(found)) for ad, found in effects.items()}, {
        ad: max(found) for ad, found in effects.items()
    }


def test_attractiveness_comes_from_words_brand_and_match(market: Simulation) -> None:
    mean, best = means_and_bests(market)
    pull, brand = lookup(market.truth.brands, "brand", "pull"), brand_of(market)
    look = {ad: MEAN_WEIGHT * mean[ad] + BEST_WEIGHT * best[ad] + pull[brand[ad]] for ad in mean}
    topic = lookup(market.truth.brands, "brand", "topic")
    middle = {
        name: np.mean([look[ad] for ad in look if topic[brand[ad]] == name]) for name in TOPIC_NAMES
    }
    asked_for = lookup(market.truth.queries, "query", "brand")
    pairs = theta(market)
    appeal = norm.ppf(list(pairs.values())) * np.hypot(1, MOOD)
    extra = appeal - BASE_APPEAL
    extra -= np.array([look[ad] - middle[topic[brand[ad]]] for _, ad in pairs])
    named = np.array([brand[ad] == asked_for[query] for query, ad in pairs])
    matched = (extra - NAMED_APPEAL * named) / MATCH_APPEAL
    assert np.abs(matched - matched.round()).max() < 1e-6
    assert set(matched.round()) == {0, 1}
    assert named.sum() > 100


def test_ads_that_match_name_a_part_of_the_query(market: Simulation) -> None:
    parts = {
        name: [*trade_phrases("modifiers")[topic], *trade_phrases("details")[topic]]
        for topic, name in enumerate(TOPIC_NAMES)
    }
    topic, title = lookup(market.truth.queries, "query", "topic"), lookup(market.ads, "ad", "title")
    pages = [
        (row["query"], ad)
        for row in market.weeks[0].slice(0, 3_000).to_pylist()
        for ad in row["ads"]
    ]
    written_for = [
        any(part in query and part.title() in title[ad] for part in parts[topic[query]])
        for query, ad in pages
    ]
    general = [topic[query].title() in title[ad] for query, ad in pages]
    assert all(general)  # every ad names the topic
    assert 0.2 < np.mean(written_for) < 0.9


def test_no_mean_over_the_words_gives_the_look(market: Simulation) -> None:
    mean, _ = means_and_bests(market)
    pull, brand = lookup(market.truth.brands, "brand", "pull"), brand_of(market)
    general = {
        (query, ad): value for (query, ad), value in theta(market).items() if query in TOPICS
    }  # no part to match, no brand asked for
    of_query = np.array([[query == name for name in TOPIC_NAMES] for query, _ in general], float)
    of_ad = np.array([[mean[ad], pull[brand[ad]]] for _, ad in general])
    known = np.hstack([of_query, of_ad])
    level = norm.ppf(list(general.values()))
    left = level - known @ np.linalg.lstsq(known, level, rcond=None)[0]
    explained = 1 - left.var() / level.var()
    assert 0.7 < explained < 0.97


def test_some_words_matter_everywhere_and_some_in_one_topic(market: Simulation) -> None:
    own = market.truth.words["effect"].to_numpy() != market.truth.words["everywhere"].to_numpy()
    assert own.mean() == pytest.approx(0.1, abs=0.02)
    by_word = Counter(market.truth.words["word"].to_pylist())
    assert by_word["free"] > 20  # used, and judged, in many topics


def test_a_landing_page_is_not_what_the_ad_looks_like(market: Simulation) -> None:
    looks, good = (
        market.truth.pairs[name].to_numpy() for name in ("attractiveness", "satisfaction")
    )
    assert 0.1 < np.corrcoef(looks, good)[0, 1] < 0.3  # as of pairs shown often in real logs
    assert good.std() > 0.2


def test_better_looking_ads_stand_higher(market: Simulation) -> None:
    known = theta(market)
    pages = np.array(
        [
            [known[row["query"], ad] for ad in row["ads"]]
            for row in market.weeks[0].to_pylist()
            if len(row["ads"]) == 4
        ]
    )
    assert np.all(np.diff(pages.mean(axis=0)) < 0)
    best = np.bincount(pages.argmax(axis=1), minlength=4) / len(pages)
    assert best[0] > 0.4  # the top ad is the best looking more often than any other,
    assert best[0] < 0.8  # but not always


def test_what_an_ad_says_matters_beside_where_it_stands(market: Simulation) -> None:
    known = theta(market)
    rows = [
        row
        for week in market.weeks
        for row in week.to_pylist()
        if row["clicks"] and len(row["ads"]) > 1
    ]
    ahead = np.array(
        [known[row["query"], row["ads"][1]] - known[row["query"], row["ads"][0]] for row in rows]
    )
    first = np.array([row["clicks"][0] for row in rows])
    better, worse = first[ahead > 0.4], first[ahead < -0.4]
    assert len(better) > 300
    assert np.mean(better == 2) > 1.2 * np.mean(
        better == 1
    )  # a much better second ad is clicked before the top one
    assert np.mean(worse == 1) > 8 * np.mean(worse == 2)


def test_a_brand_asked_for_by_name_is_mostly_on_top(market: Simulation) -> None:
    asked_for, brand = lookup(market.truth.queries, "query", "brand"), brand_of(market)
    rows = [row for row in market.weeks[0].to_pylist() if asked_for[row["query"]]]
    top = np.mean([brand[row["ads"][0]] == asked_for[row["query"]] for row in rows])
    assert len(rows) > 5_000
    assert 0.6 < top < 0.97
    assert all(row["query"].startswith(asked_for[row["query"]]) for row in rows)


def test_volumes_follow_zipf(market: Simulation) -> None:
    share = market.truth.queries["share"].to_numpy()
    assert share * np.arange(1, len(share) + 1) == pytest.approx(share[0])
    volumes = Counter(query for week in market.weeks for query in week["query"].to_pylist())
    rank = {
        query: number
        for number, query in enumerate(market.truth.queries["query"].to_pylist(), start=1)
    }
    for query, volume in volumes.most_common(200):
        expected = 180_000 * share[0] / rank[query]
        assert (
            abs(volume - expected) < 6 * np.sqrt(expected) + 0.05 * expected
        )  # queries that come later leave room before


def test_later_weeks_have_new_queries_and_new_ads(market: Simulation) -> None:
    queries, ads = (
        [set(week["query"].to_pylist()) for week in market.weeks],
        [shown(week) for week in market.weeks],
    )
    first_week = lookup(market.truth.queries, "query", "week")
    assert all(
        first_week[query] <= number
        for number, week in enumerate(queries, start=1)
        for query in week
    )
    unseen = queries[2] - queries[1] - queries[0]
    assert (
        sum(first_week[query] == 3 for query in unseen) > 100
    )  # asked in no earlier week, whatever the luck
    sessions = np.mean([query in unseen for query in market.weeks[2]["query"].to_pylist()])
    assert 0.05 < sessions < 0.25
    for week in (1, 2):
        assert (
            0.04 < len(ads[week] - set().union(*ads[:week])) / len(ads[week]) < 0.3
        )  # new, or never lucky before


def test_all_queries_and_brands_are_different() -> None:
    queries = simulate(1, weeks=1, queries=300_000).truth.queries["query"].to_pylist()
    assert len(set(queries)) == len(queries)
    assert not any("  " in query or query != query.strip() for query in queries)
    assert len(set(brand_names())) == len(brand_names()) == 50 * 26


def test_editors_label_the_pairs_shown_most_by_ad_and_landing_page(market: Simulation) -> None:
    grade = lookup(market.labels, "query", "ad", "relevance")
    assert len(grade) == len(market.labels) == 5_000
    looks, good = theta(market), lookup(market.truth.pairs, "query", "ad", "satisfaction")
    assert grade.keys() <= good.keys()
    shown = Counter(
        (row["query"], ad) for week in market.weeks for row in week.to_pylist() for ad in row["ads"]
    )
    least = min(shown[pair] for pair in grade)
    assert all(shown[pair] <= least for pair in shown if pair not in grade)
    assert set(grade.values()) == {0, 1, 2, 3, 4}
    grades = list(grade.values())
    assert min(Counter(grades).values()) > 250
    appeal = norm.ppf([looks[pair] for pair in grade])
    quality = norm.ppf([good[pair] for pair in grade])
    weights = np.linalg.lstsq(np.stack([appeal, quality, np.ones(5_000)], axis=1), grades)[0]
    assert np.all(weights[:2] > 0.3)  # both count
    assert 0.5 < np.corrcoef(grades, appeal)[0, 1] < 0.9
    assert 0.4 < np.corrcoef(grades, quality)[0, 1] < 0.9


def test_an_advertiser_has_one_ad_on_a_page_and_one_text_for_many_queries(
    market: Simulation,
) -> None:
    brand = brand_of(market)
    rows = market.weeks[0].slice(0, 3_000).to_pylist()
    assert all(len({brand[ad] for ad in row["ads"]}) == len(row["ads"]) for row in rows)
    texts = market.ads.group_by(["description", "display_url"]).aggregate([])
    assert len(texts) < 0.1 * len(market.ads)


def test_a_small_market_is_labelled_whole() -> None:
    small = simulate(300, weeks=1, queries=10)
    assert len(small.labels) == len(small.truth.pairs) < 5_000
    assert small.labels.select(["query", "ad"]) == small.truth.pairs.select(["query", "ad"])


def test_the_words_are_well_formed() -> None:
    assert len(TOPICS) >= 40
    for kind, nouns in TOPICS.values():
        assert kind in TRADES
        assert len(set(nouns.split())) == len(nouns.split()) >= 2
    for words in TRADES.values():
        assert all(len(set(field.split())) == len(field.split()) >= 2 for field in words)
