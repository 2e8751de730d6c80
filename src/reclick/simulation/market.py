"""The market that sessions are drawn from: appeal, quality and auction value of ads by query.

    appeal(q, d)  = BASE_APPEAL + text_appeal(d) + MATCH_APPEAL · theme_match(q, d)
                    + NAMED_APPEAL · brand_match(q, d)
    quality(q, d) = trust in d's brand + quality of d's landing page + TEXT_QUALITY · text_appeal(d)
                    + MATCH_QUALITY · (theme_match(q, d) + brand_match(q, d))
    value(q, d)   = log of bid(q, d) × estimated attractiveness(q, d)

theme_match is 1 if the ad is written for a part of the query, brand_match if the query names the
brand of the ad.
`users` describes how appeal and quality lead to clicks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Bool, Float64, Int32, Int64
from reclick.errors import Argument, SettingError
from reclick.runtime.jit import kernel, subkernel
from reclick.simulation.ads import (
    AdAppeal,
    AdPool,
    count_established,
    draw_ad_appeal,
    make_ad_pool,
    write_ads,
)
from reclick.simulation.queries import Queries, make_queries
from reclick.simulation.users import attractiveness, user_type_shares
from reclick.simulation.vocabulary import TOPIC_NAMES, brands_per_topic

AUCTION_NOISE_STD = 0.88  # of the noise on the log of bid × estimated attractiveness
WEEK_MILLISECONDS = 7 * 24 * 60 * 60 * 1000

BASE_APPEAL, MATCH_APPEAL, NAMED_APPEAL = -4.0, 0.25, 0.8
PAGE_QUALITY_STD = 0.7  # standard deviation of the quality of a landing page within its brand
TEXT_QUALITY, MATCH_QUALITY = 0.1, 0.3
# Standard deviations of the logs of bids, and of the errors of estimated attractiveness.
BID_STD, ESTIMATE_STD = 0.3, 0.2
OWN_NAME_BID = 6.0  # factor of the bid of a brand on queries with its name
ATTENTION_BETA = (16.0, 4.0)  # parameters of the proportion of a query's users who examine ads


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The arguments of `simulate`."""

    sessions: int  # per week
    weeks: int
    queries: int | None
    ads_per_query: int
    page: tuple[int, int]  # minimum and maximum number of ads
    bots: float
    seed: int

    def __post_init__(self) -> None:
        minimum = {"sessions": 1, "weeks": 1, "queries": 1, "ads_per_query": 1, "seed": 0}
        for name, least in minimum.items():
            value = getattr(self, name)
            if not (_is_whole(value) and value >= least) and (name, value) != ("queries", None):
                raise SettingError(name, value, f"a whole number of {least} or more")
        if self.sessions > WEEK_MILLISECONDS:
            expected = f"at most {WEEK_MILLISECONDS} per week, one per millisecond"
            raise SettingError("sessions", self.sessions, expected)
        if not _is_range(self.page, self.ads_per_query):
            advice = ("There are ", Argument("ads_per_query", self.ads_per_query), ".")
            expected = "the minimum and maximum number of ads on a page, at most those of a query"
            raise SettingError("page", self.page, expected, advice)
        if not isinstance(self.bots, int | float) or not 0 <= self.bots <= 1:
            expected = "the share of sessions made by bots, a number from 0 to 1"
            raise SettingError("bots", self.bots, expected)


def _is_range(page: tuple[int, int], most: int) -> bool:
    return len(page) == 2 and all(map(_is_whole, page)) and 1 <= page[0] <= page[1] <= most


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Market:
    """The parameters that sessions are drawn from."""

    queries: Queries
    ads: pa.Table  # ad, title, description, display_url
    week: Int64  # [ad] the first in which it exists, from 0
    candidates: Int32  # [query, candidate] ads
    appeal: Float64  # [query, candidate]
    quality: Float64  # [query, candidate] of the landing page
    bid: Float64  # [query, candidate] per click
    value: Float64  # [query, candidate] in the auction
    attention: Float64  # [query] proportion of users who examine ads
    user_types: Float64  # [query, user type] proportions
    ad_appeal: AdAppeal

    def name_pairs(self, pairs: Int64) -> pa.Table:
        """The query and the ad of pairs, which index the flat [query, candidate] arrays."""
        query = pa.array(pairs // self.candidates.shape[1])
        ad = pa.array(self.candidates.reshape(-1)[pairs])
        ids = self.ads["ad"].combine_chunks()
        return pa.table({"query": self.queries.text.take(query), "ad": ids.take(ad)})


def make_market(settings: SimulationSettings, rng: np.random.Generator) -> Market:
    """Draw everything except the sessions."""
    total, n_candidates = settings.sessions * settings.weeks, settings.ads_per_query
    n_established = count_established(n_candidates)
    queries = make_queries(settings.queries, total, settings.weeks, n_established, rng)
    pool = make_ad_pool(queries, n_candidates, settings.weeks, rng)
    brand = pool.advertiser % brands_per_topic() * len(TOPIC_NAMES) + pool.topic
    advertiser = pool.advertiser * len(TOPIC_NAMES) + pool.topic
    ads = write_ads(pool, rng)
    ad_appeal = draw_ad_appeal(ads, pool.topic, brand, rng)
    theme_match, brand_match = _find_matches(queries, pool)
    text_appeal = ad_appeal.text_appeal
    appeal = (
        BASE_APPEAL
        + text_appeal[pool.candidates]
        + MATCH_APPEAL * theme_match
        + NAMED_APPEAL * brand_match
    )
    page_quality = rng.normal(0.0, PAGE_QUALITY_STD, len(ads))
    ad_quality = ad_appeal.trust + page_quality + TEXT_QUALITY * text_appeal
    quality = ad_quality[pool.candidates] + MATCH_QUALITY * (theme_match + brand_match)
    bid, value = _draw_bids(appeal, brand_match, advertiser[pool.candidates], rng)
    return Market(
        queries=queries,
        ads=ads,
        week=pool.week,
        candidates=pool.candidates,
        appeal=appeal,
        quality=quality,
        bid=bid,
        value=value,
        attention=rng.beta(*ATTENTION_BETA, len(queries)),
        user_types=user_type_shares(queries.share * total),
        ad_appeal=ad_appeal,
    )


def _find_matches(queries: Queries, pool: AdPool) -> tuple[Float64, Float64]:
    """The theme match and the brand match of each candidate, as 0 or 1."""
    has_theme = (pool.modifier >= 0) | (pool.detail >= 0)
    brand_match = pool.advertiser[pool.candidates] == queries.brand[:, None]
    return has_theme[pool.candidates].astype(np.float64), brand_match.astype(np.float64)


def _draw_bids(
    appeal: Float64, brand_match: Float64, advertiser: Int64, rng: np.random.Generator
) -> tuple[Float64, Float64]:
    """Draw bids, and values in the auction [query, candidate].

    All ads of an advertiser have the same bid and the same error of the estimate.
    """
    n_advertisers = int(advertiser.max()) + 1
    bid = rng.lognormal(0.0, BID_STD, n_advertisers)[advertiser] * OWN_NAME_BID**brand_match
    error = rng.lognormal(0.0, ESTIMATE_STD, n_advertisers)[advertiser]
    estimate = attractiveness(appeal.reshape(-1)).reshape(appeal.shape) * error
    return bid, np.log(bid * estimate)


# auctions


def draw_page_sizes(page: tuple[int, int], available: Int64, rng: np.random.Generator) -> Int64:
    """Draw the number of ads of each page: n with probability ∝ n⁸, at most the available ads."""
    sizes = np.arange(page[0], page[1] + 1)
    size: Int64 = rng.choice(sizes, len(available), p=sizes**8 / np.sum(sizes**8))
    return np.minimum(size, available)


@kernel
def fill_pages(
    query: Int64,  # [session]
    page_starts: Int64,  # [session + 1] where each page starts in candidate
    available: Bool,  # [query, candidate]
    value: Float64,  # [query, candidate]
    rng: np.random.Generator,
    candidate: Int32,  # [impression] filled
    impressions: Int64,  # [query, candidate] added to
) -> None:
    """Run one auction per session: its page shows the best candidates of the query, best first."""
    score = np.empty(len(candidate))
    for session in range(len(query)):
        q, page = query[session], slice(page_starts[session], page_starts[session + 1])
        _run_auction(value[q], available[q], rng, candidate[page], score[page])
        for winner in candidate[page]:
            impressions[q, winner] += 1


@subkernel
def _run_auction(
    value: Float64,  # [candidate]
    available: Bool,  # [candidate]
    rng: np.random.Generator,
    winners: Int32,  # [position] filled
    score: Float64,  # [position] filled
) -> None:
    """Insert each candidate into the sorted winners, which is fast because pages are short."""
    score[:] = -np.inf
    for candidate in range(len(value)):
        if not available[candidate]:
            continue
        own_score = value[candidate] + AUCTION_NOISE_STD * rng.standard_normal()
        position = len(winners)
        while position > 0 and score[position - 1] < own_score:
            if position < len(winners):
                score[position], winners[position] = score[position - 1], winners[position - 1]
            position -= 1
        if position < len(winners):
            score[position], winners[position] = own_score, candidate
