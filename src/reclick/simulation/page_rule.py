"""Pages chosen by a given rule instead of the market's auction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Bool, Float64, Int32, Int64
from reclick.simulation.market import AUCTION_NOISE_STD, Market

VARIATIONS = 4  # different bids of a query in a block of sessions


class Offer(NamedTuple):
    """The candidates for pages of a query, with several variations of their bids."""

    query: str
    ads: tuple[str, ...]
    bids: Float64  # [variation, ad] per click
    slots: int


class PricedPages(NamedTuple):
    """The pages for the variations of an offer."""

    ads: Int64  # [variation, position] numbers of the offer's ads
    prices: Float64  # [variation, position] per click


class PageRule(Protocol):
    """Chooses pages and prices, and can learn from each week."""

    def choose(self, offers: Sequence[Offer]) -> list[PricedPages]:
        """Choose the pages of each offer, in order."""
        ...

    def learn(self, week: pa.Table, ads: pa.Table) -> None:
        """Learn from the log of the last week and the text of the ads."""
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
    rows_of_offers, offers = [], []
    for key_value, n_variations in zip(keys.tolist(), variations.tolist(), strict=True):
        query_row, slots = divmod(key_value, longest + 1)
        candidate_rows = np.flatnonzero(available[query_row])
        noise = AUCTION_NOISE_STD * rng.standard_normal((n_variations, len(candidate_rows)))
        ads = tuple(names[market.candidates[query_row, candidate_rows]])
        rows_of_offers.append(candidate_rows)
        offers.append(
            Offer(
                market.queries.text[query_row].as_py(),
                ads,
                market.bid[query_row, candidate_rows] * np.exp(noise),
                slots,
            )
        )
    pages = rule.choose(offers)
    first = np.concatenate([[0], np.cumsum(variations)])
    best = np.zeros((first[-1], longest), np.int32)  # [variation of a key, position]
    bids, prices = np.zeros((2, first[-1], longest))
    for candidate_rows, offer, page, start in zip(
        rows_of_offers, offers, pages, first.tolist(), strict=False
    ):
        rows = slice(start, start + len(page.ads)), slice(page.ads.shape[1])
        best[rows], prices[rows] = candidate_rows[page.ads], page.prices
        bids[rows] = np.take_along_axis(offer.bids, page.ads, axis=1)
    row = first[key] + rng.integers(0, variations[key])
    on_page = np.arange(longest) < sizes[:, None]
    candidate[:] = best[row][on_page]
    return bids[row][on_page], prices[row][on_page]
