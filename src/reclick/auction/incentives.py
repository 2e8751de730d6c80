"""Incentives: what advertisers gain by bidding otherwise than their values."""

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

FACTORS = tuple(np.linspace(0.0, 1.6, 17).tolist())  # of the value, as other bids to try
SMALLEST_GAIN = 1e-9
MAX_ROUNDS = 30
MEASURES = ("value", "clicks", "price_per_click", "gain", "regret", "best_bid", "clicks_fall")
REPORT_SCHEMA = pa.schema(
    [("query", pa.string()), ("ad", pa.string()), *((name, pa.float64()) for name in MEASURES)]
)


class BidderIncentives(NamedTuple):
    """What each bidder of an auction gets at its value, and what other bids would bring [ad]."""

    clicks: Float64  # at the value
    price: Float64  # per click, nan if the ad is not shown
    gain: Float64  # of its advertiser: Σ (value − price) × clicks
    regret: Float64  # how much more the best other bid would gain
    best_bid: Float64
    clicks_fall: Float64  # the largest fall of clicks from one bid to a higher one


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
    """What each bidder gets if it bids its value, and what it could gain by another bid.

    `bids` is a table as for `run_auctions`, or from `sample_bids`; bids are taken as values. The
    result has a row for every ad that takes part: `query`, `ad`, `value`, `clicks`,
    `price_per_click` (nan if it is not shown), `gain` = (value − price) × clicks, `regret`, which
    the best other bid would add, that `best_bid`, and `clicks_fall`, the largest fall of clicks
    from one bid to a higher one. An ad of an advertiser with several has the gain of the
    advertiser. Other bids are tried on a grid, so a regret is at least what is reported.

    >>> from reclick.models import MultiClick
    >>> log = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[2], [2], [2, 3], []]}
    >>> bids = {"query": ["q"] * 3, "ad": ["a", "b", "c"], "bid": [1.0, 2.0, 3.0]}
    >>> incentive_report(MultiClick().fit(log), bids, slots=2)["regret"].to_pylist()
    [0.0, 0.0, 0.0]
    """
    rules = AuctionRules(slots, mechanism, reserve, satisfaction_weight, squashing).check(model)
    auctions = group_bids(bids)
    found = look_up_candidates(
        model, [each.candidates for each in auctions], slots=slots, text=text
    )

    def measure(item: tuple[Candidates, SealedBids]) -> pa.Table:
        auction, _ = open_auction(item[0], item[1].entries, rules)
        if auction is None:
            return REPORT_SCHEMA.empty_table()
        measured = measure_incentives(auction.with_quality(), MECHANISMS[mechanism])
        ads = auction.search.candidates.ads
        columns = [[item[0].query] * len(ads), list(ads), auction.bid, *measured]
        return pa.Table.from_arrays([pa.array(each) for each in columns], schema=REPORT_SCHEMA)

    tables = [REPORT_SCHEMA.empty_table()]
    with track_progress(progress, "Measuring incentives"):
        for table in parallel_map(measure, zip(found, auctions, strict=True)):
            tables.append(table)
            report_progress("auctions", len(tables) - 1, len(auctions))
    return pa.concat_tables(tables)


def measure_incentives(
    auction: AuctionInput, mechanism: Mechanism, factors: tuple[float, ...] = FACTORS
) -> BidderIncentives:
    """Let each bidder try other bids, with the bids of others as they are.

    The bids are taken as values. Other bids are these factors of the value: a regret is at least
    what was found.
    """
    rows = []
    for ad in range(len(auction.bid)):
        clicks, price, gain = _try_bid(auction, mechanism, ad, float(auction.bid[ad]), auction.bid)
        best, best_gain, falls, before = float(auction.bid[ad]), gain, 0.0, 0.0
        for factor in factors:
            bid = factor * float(auction.bid[ad])
            other_clicks, _, other = _try_bid(auction, mechanism, ad, bid, auction.bid)
            falls, before = max(falls, before - other_clicks), other_clicks
            if other > best_gain + SMALLEST_GAIN:
                best, best_gain = bid, other
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
        changed = False
        for ad, value in enumerate(values.tolist()):
            _, _, best_gain = _try_bid(auction, mechanism, ad, float(auction.bid[ad]), values)
            for factor in factors:
                if factor > 1.0:
                    continue
                gain = _try_bid(auction, mechanism, ad, factor * value, values)[2]
                if gain > best_gain + SMALLEST_GAIN:
                    auction, best_gain, changed = (
                        auction.change_bid(ad, factor * value), gain, True
                    )  # fmt: skip
        if not changed:
            return Responses(auction.bid, True)
    return Responses(auction.bid, False)


def _try_bid(
    auction: AuctionInput, mechanism: Mechanism, ad: int, bid: float, values: Float64
) -> tuple[float, float, float]:
    """Clicks and price per click of an ad at a bid, and the gain of its advertiser.

    A bid below the reserve takes no part; of an advertiser with other ads, it counts as a bid of
    the reserve.
    """
    own = auction.advertiser == auction.advertiser[ad]
    if bid < auction.reserve and np.count_nonzero(own) == 1:
        return 0.0, np.nan, 0.0
    changed = auction.change_bid(ad, max(bid, auction.reserve))
    only = ad if np.count_nonzero(own) == 1 else None
    slate, price, _ = mechanism(changed, only)
    shown = own[slate.ads]
    gain = np.sum((values[slate.ads] - price)[shown] * slate.clicks[shown])
    at = np.flatnonzero(slate.ads == ad)
    if not len(at):
        return 0.0, np.nan, float(gain)
    return float(slate.clicks[at[0]]), float(price[at[0]]), float(gain)
