"""Incentives: what advertisers gain by bids other than their values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from reclick.auction.batch import SealedBids, group_bids
from reclick.auction.candidates import Candidates, look_up_candidates
from reclick.auction.mechanisms import MECHANISMS, AuctionInput, Mechanism
from reclick.auction.run import AuctionRules, open_auction
from reclick.data.batch import Float64
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.parallel import parallel_map
from reclick.runtime.progress import ProgressOption, report_progress, track_progress

FACTORS = tuple(np.linspace(0.0, 1.6, 17).tolist())  # other bids to try, relative to the value
SMALLEST_GAIN = 1e-9
MAX_ROUNDS = 30
MEASURES = ("value", "clicks", "price_per_click", "gain", "regret", "best_bid", "clicks_fall")
REPORT_SCHEMA = pa.schema(
    [("query", pa.string()), ("ad", pa.string()), *((name, pa.float64()) for name in MEASURES)]
)


class BidderIncentives(NamedTuple):
    """The result of each bidder when it bids its value, and of its best other bid [ad]."""

    clicks: Float64  # if it bids its value
    price: Float64  # per click, nan if the ad is not shown
    gain: Float64  # of its advertiser: Σ (value − price) × clicks
    regret: Float64  # additional gain of the best other bid
    best_bid: Float64
    clicks_fall: Float64  # largest decrease of clicks from one bid to a higher one


class Responses(NamedTuple):
    """Bids after best responses."""

    bid: Float64  # [ad]
    converged: bool


@check_arguments
def incentive_report(
    model: ClickModel,
    bids: object,
    *,
    mechanism: str = "vcg",
    slots: int = 4,
    reserve: float = 0.0,
    satisfaction_weight: float = 0.0,
    squashing: float = 1.0,
    text: object = None,
    progress: ProgressOption = None,
) -> pa.Table:
    """Report the result of each bidder when it bids its value, and its gain by another bid.

    `bids` is a table as for `run_auctions`, or from `sample_bids`; bids are taken as values. The
    result has one row per participating ad: `query`, `ad`, `value`, `clicks`, `price_per_click`
    (nan if it is not shown), `gain` = (value − price) × clicks, `regret` (the additional gain of
    the best other bid), that `best_bid`, and `clicks_fall`, the largest decrease of clicks from
    one bid to a higher one. If an advertiser has several ads, `gain` is that of the advertiser.
    Other bids are tried on a grid, so the reported regret is a lower bound.

    >>> from reclick.models import MultiClick
    >>> log = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[2], [2], [2, 3], []]}
    >>> bids = {"query": ["q"] * 3, "ad": ["a", "b", "c"], "bid": [1.0, 2.0, 3.0]}
    >>> incentive_report(MultiClick().fit(log), bids, slots=2)["regret"].to_pylist()
    [0.0, 0.0, 0.0]
    """
    rules = AuctionRules(slots, mechanism, reserve, satisfaction_weight, squashing).check(model)
    auctions = group_bids(bids)
    all_candidates = look_up_candidates(
        model, [auction.candidates for auction in auctions], slots=slots, text=text
    )

    def measure(item: tuple[Candidates, SealedBids]) -> pa.Table:
        auction, _ = open_auction(item[0], item[1].entries, rules)
        if auction is None:
            return REPORT_SCHEMA.empty_table()
        incentives = measure_incentives(auction.with_quality(), MECHANISMS[mechanism])
        ads = auction.search.candidates.ads
        columns = [[item[0].query] * len(ads), list(ads), auction.bid, *incentives]
        return pa.Table.from_arrays([pa.array(column) for column in columns], schema=REPORT_SCHEMA)

    tables = [REPORT_SCHEMA.empty_table()]
    with track_progress(progress, "Measuring incentives"):
        for table in parallel_map(measure, zip(all_candidates, auctions, strict=True)):
            tables.append(table)
            report_progress("auctions", len(tables) - 1, len(auctions))
    return pa.concat_tables(tables)


def measure_incentives(
    auction: AuctionInput, mechanism: Mechanism, factors: tuple[float, ...] = FACTORS
) -> BidderIncentives:
    """Let each bidder try other bids while the bids of the others stay the same.

    The bids are taken as values. Other bids are the value times these factors, so the regret is a
    lower bound.
    """
    rows = []
    for ad in range(len(auction.bid)):
        clicks, price, gain = _try_bid(auction, mechanism, ad, float(auction.bid[ad]), auction.bid)
        best, best_gain, falls, before = float(auction.bid[ad]), gain, 0.0, 0.0
        for factor in factors:
            bid = factor * float(auction.bid[ad])
            other_clicks, _, other_gain = _try_bid(auction, mechanism, ad, bid, auction.bid)
            falls, before = max(falls, before - other_clicks), other_clicks
            if other_gain > best_gain + SMALLEST_GAIN:
                best, best_gain = bid, other_gain
        rows.append((clicks, price, gain, best_gain - gain, best, falls))
    return BidderIncentives(*np.array(rows).reshape(-1, 6).T)


def respond(
    auction: AuctionInput, mechanism: Mechanism, factors: tuple[float, ...] = FACTORS
) -> Responses:
    """Let bidders respond in turn with the bid that gains most, until none changes its bid.

    They start at their values and never bid more. The bids of `auction` are the values.
    """
    values = auction.bid
    for _ in range(MAX_ROUNDS):
        has_changes = False
        for ad, value in enumerate(values.tolist()):
            _, _, best_gain = _try_bid(auction, mechanism, ad, float(auction.bid[ad]), values)
            for factor in factors:
                if factor > 1.0:
                    continue
                gain = _try_bid(auction, mechanism, ad, factor * value, values)[2]
                if gain > best_gain + SMALLEST_GAIN:
                    auction, best_gain, has_changes = (
                        auction.change_bid(ad, factor * value), gain, True
                    )  # fmt: skip
        if not has_changes:
            return Responses(auction.bid, True)
    return Responses(auction.bid, False)


def _try_bid(
    auction: AuctionInput, mechanism: Mechanism, ad: int, bid: float, values: Float64
) -> tuple[float, float, float]:
    """Clicks and price per click of an ad at a bid, and the gain of its advertiser.

    An ad with a bid below the reserve takes no part; if its advertiser has other ads, the bid is
    raised to the reserve.
    """
    is_same_advertiser = auction.advertiser == auction.advertiser[ad]
    if bid < auction.reserve and np.count_nonzero(is_same_advertiser) == 1:
        return 0.0, np.nan, 0.0
    auction_at_bid = auction.change_bid(ad, max(bid, auction.reserve))
    only = ad if np.count_nonzero(is_same_advertiser) == 1 else None
    slate, price, _ = mechanism(auction_at_bid, only)
    is_shown = is_same_advertiser[slate.ads]
    gain = np.sum((values[slate.ads] - price)[is_shown] * slate.clicks[is_shown])
    at = np.flatnonzero(slate.ads == ad)
    if not len(at):
        return 0.0, np.nan, float(gain)
    return float(slate.clicks[at[0]]), float(price[at[0]]), float(gain)
