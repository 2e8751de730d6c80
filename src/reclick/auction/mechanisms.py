"""Mechanisms: the slate that is shown, and what each of its ads pays per click.

All except `gsp` show the slate that maximises Σ_j w_j b_j x_j + λ P(satisfied): b are bids per
click, w bidder weights, x expected clicks. They differ in prices:

===========  =================================================================================
vcg          [W(b_i := r) − W_{−i}(b)] / (w_i x_i): what the bid of i above the reserve r costs
             others. W is the maximum, W_{−i}(b) what others (and λ) contribute to it at the bids.
gsp_model    the smallest bid that keeps the ad's expected clicks.
gsp          ads ranked by quality^s (w b + λρ), each pays the smallest bid that keeps its rank.
             Quality is P(click) alone on the page; s is the squashing exponent.
first_price  the bid.
===========  =================================================================================

With several ads per advertiser, at most one is shown, and in `vcg` b_i := r is for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from reclick.auction.slates import Slate, SlateSearch, score_slate
from reclick.data.batch import Float64, Int64
from reclick.runtime.time_limit import check_time

OBJECTIVE_ROUNDING = 1e-12  # relative rounding error of the objective
MAX_STEPS = 1000  # of the search for a threshold bid


@dataclass(frozen=True, slots=True)
class AuctionInput:
    """Candidates with bids of at least the reserve, and the rules that do not differ between ads.

    `bid` is per click. `advertiser` has the number of the advertiser of each ad; an ad without
    advertiser has its own number.
    """

    search: SlateSearch
    bid: Float64  # [ad]
    weight: Float64  # [ad]
    advertiser: Int64  # [ad]
    reserve: float = 0.0
    satisfaction_weight: float = 0.0
    squashing: float = 1.0
    quality: Float64 | None = None  # [ad] P(click) alone on the page, if already computed

    def with_quality(self) -> AuctionInput:
        """Return the auction with the quality of the ads, computed once for many rankings."""
        return replace(self, quality=self.search.candidates.clicks_alone())

    def find_best(self, bid: Float64 | None = None) -> Slate:
        """Find the best slate at these bids."""
        check_time()
        value = self.weight * (self.bid if bid is None else bid)
        return self.search.find_best(value, self.satisfaction_weight)

    def change_bid(self, ad: int, bid: float) -> AuctionInput:
        """Return the auction with another bid of one ad."""
        bids = self.bid.copy()
        bids[ad] = bid
        return replace(self, bid=bids)


class Outcome(NamedTuple):
    """A slate with prices, and the slates that explain them."""

    slate: Slate
    price: Float64  # [position] per click
    alternatives: tuple[Slate | None, ...]  # [position] the slate at the price or the reserve


Mechanism = Callable[[AuctionInput, int | None], Outcome]


def price_vcg(auction: AuctionInput, only: int | None = None) -> Outcome:
    """The best slate; each ad pays the value that it displaces. `only` prices one ad alone."""
    best = auction.find_best()

    def price(position: int, ad: int) -> tuple[float, Slate]:
        is_same_advertiser = auction.advertiser == auction.advertiser[ad]
        pivot = auction.find_best(np.where(is_same_advertiser, auction.reserve, auction.bid))
        weighted_clicks = auction.weight[ad] * best.clicks[position]
        value_of_others = best.objective - auction.bid[ad] * weighted_clicks
        return _divide(pivot.objective - value_of_others, weighted_clicks), pivot

    return _price_each(auction, best, price, only)


def price_gsp_model(auction: AuctionInput, only: int | None = None) -> Outcome:
    """The best slate; each ad pays the smallest bid that keeps its expected clicks.

    W is convex and piecewise linear in the bid. From the reserve, each step goes to the bid where
    the line of the slate that is shown meets that of the best slate at the last step.
    """
    best = auction.find_best()
    tolerance = OBJECTIVE_ROUNDING * max(1.0, abs(best.objective))

    def price(position: int, ad: int) -> tuple[float, Slate]:
        slope = auction.weight[ad] * best.clicks[position]
        bids, rival = auction.bid.copy(), best
        bids[ad] = auction.reserve
        for _ in range(MAX_STEPS):
            slate = auction.find_best(bids)
            excess = slate.objective - (best.objective - slope * (auction.bid[ad] - bids[ad]))
            rival_slope = auction.weight[ad] * _clicks_of(slate, ad)
            if excess <= tolerance or rival_slope >= slope:
                break
            rival = slate
            bids[ad] = min(bids[ad] + excess / (slope - rival_slope), auction.bid[ad])
        return float(bids[ad]), rival

    return _price_each(auction, best, price, only)


def price_first(auction: AuctionInput, only: int | None = None) -> Outcome:
    """The best slate; each ad pays its bid."""
    best = auction.find_best()
    return _price_each(auction, best, lambda _, ad: (float(auction.bid[ad]), None), only)


def price_gsp(auction: AuctionInput, only: int | None = None) -> Outcome:
    """Ads ranked by score; each pays the smallest bid that keeps its rank."""
    candidates, weight = auction.search.candidates, auction.satisfaction_weight
    clicks_alone = candidates.clicks_alone() if auction.quality is None else auction.quality
    quality = clicks_alone**auction.squashing
    satisfied = weight * candidates.satisfaction_per_click() if weight else np.zeros(len(quality))
    score = quality * (auction.weight * auction.bid + satisfied)
    order = np.argsort(-score, kind="stable")
    _, first = np.unique(auction.advertiser[order], return_index=True)
    ranking = order[np.sort(first)]  # the best ad of each advertiser
    ads = ranking[: candidates.slots]
    slate = score_slate(candidates, ads, auction.weight * auction.bid, weight)

    def price(position: int, ad: int) -> tuple[float, None]:
        if position + 1 == len(ranking) or quality[ad] <= 0.0:
            return auction.reserve, None
        next_score = score[ranking[position + 1]] / quality[ad]
        return (next_score - satisfied[ad]) / auction.weight[ad], None

    return _price_each(auction, slate, price, only)


MECHANISMS: dict[str, Mechanism] = {
    "vcg": price_vcg,
    "gsp_model": price_gsp_model,
    "gsp": price_gsp,
    "first_price": price_first,
}


def _price_each(
    auction: AuctionInput,
    slate: Slate,
    price: Callable[[int, int], tuple[float, Slate | None]],
    only: int | None,
) -> Outcome:
    """Price the ad of each position; rounded prices stay between the reserve and the bid.

    With `only`, price that ad alone; the others have nan.
    """
    prices = np.full(len(slate.ads), np.nan)
    alternatives: list[Slate | None] = []
    for position, ad in enumerate(slate.ads.tolist()):
        if only is not None and ad != only:
            alternatives.append(None)
            continue
        exact, alternative = price(position, ad)
        prices[position] = _round_to_limits(exact, auction.reserve, float(auction.bid[ad]))
        alternatives.append(alternative)
    return Outcome(slate, prices, tuple(alternatives))


def _round_to_limits(price: float, reserve: float, bid: float) -> float:
    """Set a price to the reserve or the bid if it differs only by rounding error."""
    error = OBJECTIVE_ROUNDING * max(1.0, bid)
    if price <= reserve + error:
        return reserve
    return bid if price >= bid - error else price


def _divide(payment: float, clicks: float) -> float:
    """Payment per click; 0 for an ad that is never clicked, which pays nothing at any price."""
    return payment / clicks if clicks > 0.0 else 0.0


def _clicks_of(slate: Slate, ad: int) -> float:
    return float(slate.clicks[slate.ads == ad].sum())
