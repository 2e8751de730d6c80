"""The market: how much each ad appeals to those who look at it, how good its landing page is, and how it is ranked.

    appeal(q, d) = BASE + look(d) + MATCH · match(q, d) + BY_NAME · named(q, d)
    worth(q, d)  = trust in d's brand + care for d's page + HINT · look(d) + FITS · (match(q, d) + named(q, d))
    value(q, d)  = log of bid(q, d) × estimated attractiveness(q, d)

match is 1 when the ad is written for a part of the query, named when the query asks for the ad's brand. What appeal and worth do: see `users`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reclick.simulation.adcopy import write_ads
from reclick.simulation.advertisers import Advertising, houses, make_advertising
from reclick.simulation.appeal import Looks, make_looks
from reclick.simulation.phrases import TOPIC_NAMES, brands
from reclick.simulation.queries import Queries, make_queries
from reclick.simulation.users import first_look, kind_shares

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32, Int64
    from reclick.simulation.settings import Settings

BASE, MATCH, BY_NAME = -3.6, 1.0, 2.5
CARE, HINT, FITS = (
    0.7,
    0.05,
    0.3,
)  # care is a standard deviation, of what the landing page has beside its brand
BID, ESTIMATE = (
    0.5,
    0.3,
)  # standard deviations of the logs of bids, and of the errors of estimated attractiveness
OWN_NAME = 8.0  # how many times its usual bid a brand bids on its own name
ATTENTION = (12.0, 12.0)  # Beta of the share of a query's users who look at ads at all


@dataclass(frozen=True, slots=True)
class Market:
    """All that sessions are drawn from."""

    queries: Queries
    ads: pa.Table
    week: Int64  # [ad] the first it is shown in, from 0
    pool: Int32  # [query, place] ads
    appeal: Float64  # [query, place]
    worth: Float64  # [query, place] of the landing page
    value: Float64  # [query, place] in the auction
    attention: Float64  # [query]
    shares: Float64  # [query, kind of user]
    looks: Looks


def make_market(settings: Settings, rng: np.random.Generator) -> Market:
    """Make everything but the sessions."""
    total, size = settings.sessions * settings.weeks, settings.ads_per_query
    queries = make_queries(settings.queries, total, settings.weeks, houses(size), rng)
    made = make_advertising(queries, size, settings.weeks, rng)
    brand = made.brand * len(TOPIC_NAMES) + made.topic
    ads = write_ads(made.topic, made.modifier, made.detail, brands()[brand], rng)
    looks = make_looks(ads, made.topic, brand, houses(size) * len(TOPIC_NAMES), rng)
    match, named = _matches(queries, made)
    appeal = BASE + looks.look[made.pool] + MATCH * match + BY_NAME * named
    page = looks.trust + rng.normal(0.0, CARE, len(ads)) + HINT * looks.look
    worth = page[made.pool] + FITS * (match + named)
    shares = kind_shares(queries.share * total)
    value = _values(appeal, named, rng)
    attention = rng.beta(*ATTENTION, len(queries))
    return Market(
        queries, ads, made.week, made.pool, appeal, worth, value, attention, shares, looks
    )


def _matches(queries: Queries, made: Advertising) -> tuple[Float64, Float64]:
    """Whether each ad of a pool is written for a part of the query, and whether the query asks for its brand."""
    themed = (made.modifier >= 0) | (made.detail >= 0)
    named = made.brand[made.pool] == queries.brand[:, None]
    return themed[made.pool].astype(np.float64), named.astype(np.float64)


def _values(appeal: Float64, named: Float64, rng: np.random.Generator) -> Float64:
    bid = rng.lognormal(0.0, BID, appeal.shape) * OWN_NAME**named
    estimate = first_look(appeal.reshape(-1)).reshape(appeal.shape) * rng.lognormal(
        0.0, ESTIMATE, appeal.shape
    )
    return np.log(bid * estimate)
