"""Pages chosen by a rule from outside, in place of the market's own auction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Bool, Float64, Int32, Int64
from reclick.simulation.market import AUCTION_NOISE_STD, Market

VARIATIONS = 4  # of the bids of a query in a block of sessions


class Offer(NamedTuple):
    """What may be shown on pages of a query, with bids that vary from page to page."""

    query: str
    ads: tuple[str, ...]
    bids: Float64  # [variation, ad] per click
    slots: int


class PricedPages(NamedTuple):
    """The pages for the variations of an offer."""

    ads: Int64  # [variation, position] numbers of the offer's ads
    prices: Float64  # [variation, position] per click


class PageRule(Protocol):
    """Chooses pages and prices, and may learn from each week."""

    def choose(self, offers: Sequence[Offer]) -> list[PricedPages]:
        """The pages of each offer, in order."""
        ...

    def learn(self, week: pa.Table, ads: pa.Table) -> None:
        """Take notice of the log of a week that is over, and of the text of the ads."""
        ...


def fill_pages_by_rule(
    rule: PageRule,
    market: Market,
    query: Int64,  # [session]
    sizes: Int64,  # [session]
    available: Bool,  # [query, candidate]
    rng: np.random.Generator,
    candidate: Int32,  # [impression] filled
) -> tuple[Float64, Float64]:
    """Choose the page of each session, and return the bids and the prices [impression].

    The bids of a query vary: their logarithms have the noise of the market's own auction. Sessions
    of a query on pages of one size share a few variations.
    """
    longest = int(sizes.max())
    keys, key, count = np.unique(
        query * (longest + 1) + sizes, return_inverse=True, return_counts=True
    )
    variations = np.minimum(count, VARIATIONS)
    names = np.array(market.ads["ad"].to_pylist(), object)
    shown, offers = [], []
    for each, many in zip(keys.tolist(), variations.tolist(), strict=True):
        q, slots = divmod(each, longest + 1)
        own = np.flatnonzero(available[q])
        noise = AUCTION_NOISE_STD * rng.standard_normal((many, len(own)))
        ads = tuple(names[market.candidates[q, own]])
        shown.append(own)
        offers.append(
            Offer(market.queries.text[q].as_py(), ads, market.bid[q, own] * np.exp(noise), slots)
        )
    pages = rule.choose(offers)
    first = np.concatenate([[0], np.cumsum(variations)])
    best = np.zeros((first[-1], longest), np.int32)  # [variation of a key, position]
    bids, prices = np.zeros((2, first[-1], longest))
    for own, offer, page, start in zip(shown, offers, pages, first.tolist(), strict=False):
        rows = slice(start, start + len(page.ads)), slice(page.ads.shape[1])
        best[rows], prices[rows] = own[page.ads], page.prices
        bids[rows] = np.take_along_axis(offer.bids, page.ads, axis=1)
    row = first[key] + rng.integers(0, variations[key])
    on_page = np.arange(longest) < sizes[:, None]
    candidate[:] = best[row][on_page]
    return bids[row][on_page], prices[row][on_page]
