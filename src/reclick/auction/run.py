"""Run an auction: check the bids, choose the slate, set the prices, and explain them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reclick.auction.candidates import (
    Candidates,
    CandidateSet,
    check_candidates,
    check_slots,
    look_up_candidates,
    refuse_fixed_clicks,
)
from reclick.auction.mechanisms import MECHANISMS, AuctionInput, Outcome
from reclick.auction.slates import LazySlates, Slate
from reclick.data.batch import Float64
from reclick.errors import (
    CannotAnswerError,
    SettingError,
    UsageError,
    check_choice,
    check_range,
    check_whole,
)
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments

BELOW_RESERVE = "bid below the reserve"
OUT_OF_BUDGET = "budget below the bid"
SMALLEST = 1e-12  # displaced clicks below this are left out of results
READABLE = 5e-5  # displaced clicks below this are left out of texts, which have four digits


@dataclass(frozen=True, slots=True)
class AuctionRules:
    """The rules that all auctions of a batch share."""

    slots: int = 4
    mechanism: str = "vcg"
    reserve: float = 0.0
    satisfaction_weight: float = 0.0
    squashing: float = 1.0

    def check(self, model: ClickModel) -> AuctionRules:
        """Raise if the rules are invalid, or invalid for this model; returns the rules."""
        check_choice("mechanism", self.mechanism, tuple(MECHANISMS))
        check_range("reserve", self.reserve, 0.0)
        check_range("satisfaction_weight", self.satisfaction_weight, 0.0)
        check_range("squashing", self.squashing, 0.0)
        check_slots(model, check_whole("slots", self.slots, 1))
        refuse_fixed_clicks(model)
        if self.satisfaction_weight and not model.satisfaction:
            raise CannotAnswerError(
                f"satisfaction_weight={self.satisfaction_weight:g}: {type(model).__name__} does "
                "not estimate satisfaction. Use LuceClick or MultiClick."
            )
        return self


class Entry(NamedTuple):
    """The bid of one ad, per click or per click that satisfies, with its weight and budget."""

    bid: float
    satisfaction_bid: float = math.nan
    weight: float = 1.0
    advertiser: str | None = None
    budget: float = math.inf


class Displacement(NamedTuple):
    """The effect of one ad on another: clicks lost (gained if negative), and their value."""

    ad: str
    clicks: float
    value: float


@dataclass(frozen=True, slots=True)
class PriceReason:
    """Why an ad pays its price.

    With `vcg`, price × expected clicks = `reserve` + Σ value of `displaced` + `satisfaction`. They
    are relative to `alternative`, the page that would be shown if the ad bid the reserve. With
    `gsp_model`, `alternative` is the page that would be shown at a lower bid.
    """

    ad: str
    price_per_click: float
    because: str  # "displaced clicks", "threshold", "next rank", "reserve" or "bid"
    alternative: tuple[str, ...] = ()
    displaced: tuple[Displacement, ...] = ()
    reserve: float = 0.0  # payment at the reserve, for the clicks that it would have then
    satisfaction: float = 0.0  # satisfied sessions displaced, times their weight

    def __str__(self) -> str:
        start = f"{self.ad} pays {self.price_per_click:.4g} per click"
        if self.because == "displaced clicks":
            losses = [item for item in self.displaced if item.clicks >= READABLE]
            gains = [item for item in self.displaced if item.clicks <= -READABLE]
            parts = [f"it takes {_list_clicks(losses)}"] if losses else []
            parts += [f"it brings {_list_clicks(gains)}"] if gains else []
            return f"{start}: {' and '.join(parts) or 'it takes clicks from nobody'}."
        reasons = {
            "threshold": "with a lower bid it would have fewer clicks",
            "next rank": "with a lower bid it would rank lower",
            "reserve": "the reserve",
            "bid": "its bid",
        }
        return f"{start}: {reasons[self.because]}."


@dataclass(frozen=True, slots=True, eq=False)
class AuctionResult:
    """The slate of an auction with its prices. Arrays are in the slate's order."""

    query: str
    mechanism: str
    slate: tuple[str, ...]  # ads, top first
    bid: Float64  # [position] per click
    price_per_click: Float64  # [position]
    expected_clicks: Float64  # [position]
    revenue: float  # Σ price × clicks
    welfare: float  # Σ bid × clicks
    satisfaction: float  # P(the session ends satisfied), nan if the model has none
    objective: float  # Σ weight × bid × clicks + satisfaction weight × satisfaction
    exact: bool  # no other slate has a higher objective; False for gsp, which ranks ads one by one
    reasons: tuple[PriceReason, ...]  # why each ad pays its price
    excluded: dict[str, str]  # ads that took no part, with the reason

    def __str__(self) -> str:
        head = (
            f"{self.query}: {self.mechanism}, revenue {self.revenue:.4f}, welfare "
            f"{self.welfare:.4f}, satisfaction {self.satisfaction:.4f}"
        )
        rows = [
            f"{position:>4}  {clicks:.4f}  {bid:>8.4f}  {reason.price_per_click:>8.4f}  {reason.ad}"
            for position, (clicks, bid, reason) in enumerate(
                zip(self.expected_clicks, self.bid, self.reasons, strict=True), start=1
            )
        ]
        if not rows:
            return f"{head}\n no ad is shown"
        return "\n".join([head, " pos  clicks       bid     price  ad", *rows])


@check_arguments
def run_auction(
    model: ClickModel,
    query: str,
    bids: Mapping[str, float],
    *,
    slots: int = 4,
    mechanism: str = "vcg",
    reserve: float = 0.0,
    satisfaction_weight: float = 0.0,
    bidder_weights: Mapping[str, float] | None = None,
    advertisers: Mapping[str, str] | None = None,
    satisfaction_bids: Mapping[str, float] | None = None,
    budgets: Mapping[str, float] | None = None,
    squashing: float = 1.0,
    text: object = None,
) -> AuctionResult:
    """Choose the ads of a page and their prices, with the clicks that a model predicts.

    `bids` are per click. The mechanisms:

    - "vcg": the slate of highest welfare; each ad pays what its bid above the reserve costs the
      others. Bidding one's value is a dominant strategy, and reserve ≤ price ≤ bid.
    - "gsp_model": the same slate, at the smallest bid that keeps the ad's expected clicks.
    - "gsp": ads ranked by bid × quality^squashing, at the smallest bid that keeps the rank.
      Quality is P(click) of the ad alone on the page.
    - "first_price": the slate of highest welfare, at the bids.

    An ad takes part if it bids at least the `reserve`, so the page may be empty. The page has
    `slots` ads, or all ads that take part if there are fewer. `satisfaction_weight` is the value of
    a satisfied session to you; `bidder_weights` multiply bids when slates are compared. With
    `advertisers`, {ad: advertiser}, at most one ad of each is shown. `satisfaction_bids` are bids
    per click that satisfies, by ads that are not in `bids`; prices are always per click. `budgets`
    are the remaining budgets of ads (with `advertisers`: of advertisers): an ad whose bid is higher
    takes no part. `text` is an ads table with the text of ads that are new to the model.

    >>> from reclick.models import MultiClick
    >>> log = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[2], [2], [2, 3], []]}
    >>> result = run_auction(MultiClick().fit(log), "q", {"a": 1.0, "b": 2.0, "c": 3.0}, slots=2)
    >>> result.slate, bool((result.price_per_click <= result.bid).all())
    (('c', 'b'), True)
    """
    rules = AuctionRules(slots, mechanism, reserve, satisfaction_weight, squashing).check(model)
    entries = make_entries(
        bids,
        bidder_weights=bidder_weights,
        advertisers=advertisers,
        satisfaction_bids=satisfaction_bids,
        budgets=budgets,
    )
    candidate_set = check_candidates(query, list(entries))
    (candidates,) = look_up_candidates(model, [candidate_set], slots=slots, text=text)
    return hold_auction(candidates, list(entries.values()), rules)


def hold_auction(
    candidates: Candidates, entries: list[Entry], rules: AuctionRules
) -> AuctionResult:
    """Run an auction of candidates with these entries, one per ad."""
    auction, excluded = open_auction(candidates, entries, rules)
    if auction is None:
        return _empty_result(candidates.query, rules.mechanism, excluded)
    outcome = MECHANISMS[rules.mechanism](auction, None)
    return _to_result(auction, outcome, rules.mechanism, excluded)


def open_auction(
    candidates: Candidates, entries: list[Entry], rules: AuctionRules
) -> tuple[AuctionInput | None, dict[str, str]]:
    """The auction of the ads that take part (None without any), and why others do not."""
    bid = effective_bids(candidates, entries)
    budget = np.array([entry.budget for entry in entries])
    excluded = {
        ad: BELOW_RESERVE if low else OUT_OF_BUDGET
        for ad, low, poor in zip(candidates.ads, bid < rules.reserve, budget < bid, strict=True)
        if low or poor
    }
    rows = np.flatnonzero((bid >= rules.reserve) & (budget >= bid))
    if not len(rows):
        return None, excluded
    names = [
        entries[row].advertiser or f"\0{row}" for row in rows
    ]  # without advertiser: a number of its own
    _, advertiser = np.unique(names, return_inverse=True)
    participants = candidates.select(rows) if len(rows) < len(entries) else candidates
    has_single_ads = len(np.unique(advertiser)) == len(rows)
    auction = AuctionInput(
        LazySlates(participants, None if has_single_ads else advertiser),
        bid[rows],
        np.array([entries[row].weight for row in rows]),
        advertiser,
        float(rules.reserve),
        float(rules.satisfaction_weight),
        float(rules.squashing),
    )
    return auction, excluded


def check_weights(entries: Mapping[str, Entry]) -> None:
    """Raise if ads of one advertiser have different weights: bidding would not be truthful."""
    weights: dict[str, float] = {}
    for ad, entry in entries.items():
        owner = entry.advertiser
        if owner is not None and weights.setdefault(owner, entry.weight) != entry.weight:
            raise UsageError(
                f"The ad {ad!r} has the weight {entry.weight:g}, another ad of {owner!r} has "
                f"{weights[owner]:g}: a weight is of the advertiser. Give its ads the same."
            )


def effective_bids(candidates: Candidates, entries: list[Entry]) -> Float64:
    """The bid of each ad per click; bids per satisfied click are multiplied by satisfaction."""
    bid = np.array([entry.bid for entry in entries])
    per_satisfaction = np.array([entry.satisfaction_bid for entry in entries])
    is_per_satisfaction = ~np.isnan(per_satisfaction)
    if not is_per_satisfaction.any():
        return bid
    if not candidates.model.satisfaction:
        raise CannotAnswerError(
            f"Bids per satisfied click: {type(candidates.model).__name__} does not say which "
            "clicks satisfy. Use LuceClick or MultiClick, or bid per click."
        )
    rho = candidates.satisfaction_per_click()
    return np.where(is_per_satisfaction, per_satisfaction * rho, bid)


def check_entry(ad: str, entry: Entry) -> Entry:
    """Raise if a number of the entry is invalid; returns the entry."""
    per_click, per_satisfaction = not _is_nan(entry.bid), not _is_nan(entry.satisfaction_bid)
    if per_click and per_satisfaction:
        raise UsageError(f"The ad {ad!r} bids per click and per satisfied click: keep one bid.")
    name = "satisfaction_bids" if per_satisfaction else "bids"
    amount = entry.satisfaction_bid if per_satisfaction else entry.bid
    _check_amount(name, ad, amount, math.isfinite, "a number of 0 or more")
    _check_amount("bidder_weights", ad, entry.weight, _is_positive, "a number above 0")
    _check_amount("budgets", ad, entry.budget, lambda _: True, "a number of 0 or more")
    return entry


def make_entries(
    bids: Mapping[str, float],
    *,
    bidder_weights: Mapping[str, float] | None = None,
    advertisers: Mapping[str, str] | None = None,
    satisfaction_bids: Mapping[str, float] | None = None,
    budgets: Mapping[str, float] | None = None,
) -> dict[str, Entry]:
    """The entry of each ad, from the arguments of `run_auction`."""
    extra = satisfaction_bids or {}
    for name, ad_bids in (("bids", bids), ("satisfaction_bids", extra)):
        if not isinstance(ad_bids, Mapping):
            raise SettingError(name, ad_bids, "a dict of {ad: bid}")
        for ad, value in ad_bids.items():
            _check_amount(name, ad, value, math.isfinite, "a number of 0 or more")
    ads = list(dict.fromkeys([*bids, *extra]))
    if not ads:
        raise SettingError("bids", bids, "at least one ad with a bid")
    weights, owner, budget = bidder_weights or {}, advertisers or {}, budgets or {}
    _refuse_unknown("bidder_weights", weights, ads)
    _refuse_unknown("advertisers", owner, ads)
    _refuse_unknown("budgets", budget, [owner.get(ad, ad) for ad in ads])
    entries = {
        ad: Entry(
            bids.get(ad, math.nan),
            extra.get(ad, math.nan),
            weights.get(ad, 1.0),
            owner.get(ad),
            budget.get(owner.get(ad, ad), math.inf),
        )
        for ad in ads
    }
    for ad, entry in entries.items():
        check_entry(ad, entry)
    check_weights(entries)
    return entries


def _refuse_unknown(name: str, values: Mapping[str, object], names: list[str]) -> None:
    for key in values:
        if key not in names:
            raise UsageError(
                f"{name} has {key!r}, which takes no part in the auction: leave it out."
            )


def _check_amount(name: str, ad: object, value: object, accept: object, expected: str) -> None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (number and float(value) >= 0 and accept(float(value))):  # type: ignore[arg-type,operator]
        raise SettingError(name, {ad: value}, expected)


def _is_nan(value: object) -> bool:
    return isinstance(value, float | np.floating) and math.isnan(value)


def _is_positive(value: float) -> bool:
    return 0 < value < math.inf


def _empty_result(query: str, mechanism: str, excluded: dict[str, str]) -> AuctionResult:
    empty = np.zeros(0)
    return AuctionResult(
        query, mechanism, (), empty, empty, empty, 0.0, 0.0, 0.0, 0.0, True, (), excluded
    )


def _to_result(
    auction: AuctionInput, outcome: Outcome, mechanism: str, excluded: dict[str, str]
) -> AuctionResult:
    slate, price, _ = outcome
    candidates, bid = auction.search.candidates, auction.bid[slate.ads]
    return AuctionResult(
        candidates.query,
        mechanism,
        tuple(candidates.ads[ad] for ad in slate.ads),
        bid,
        price,
        slate.clicks,
        float(price @ slate.clicks),
        float(bid @ slate.clicks),
        slate.satisfaction,
        slate.objective,
        mechanism != "gsp",
        tuple(
            _explain_price(auction, outcome, mechanism, position)
            for position in range(len(slate.ads))
        ),
        excluded,
    )


def _explain_price(
    auction: AuctionInput, outcome: Outcome, mechanism: str, position: int
) -> PriceReason:
    slate, price = outcome.slate, float(outcome.price[position])
    ad, alternative = int(slate.ads[position]), outcome.alternatives[position]
    names = auction.search.candidates.ads
    if mechanism == "first_price":
        return PriceReason(names[ad], price, "bid")
    if mechanism == "gsp":
        because = "reserve" if price <= auction.reserve else "next rank"
        return PriceReason(names[ad], price, because)
    alternative_ads = () if alternative is None else tuple(names[row] for row in alternative.ads)
    if mechanism == "gsp_model" or alternative is None:
        because = "reserve" if price <= auction.reserve else "threshold"
        return PriceReason(names[ad], price, because, alternative_ads)
    is_same_advertiser = auction.advertiser == auction.advertiser[ad]
    weight = auction.weight[ad]
    before, after = _spread(alternative, len(names)), _spread(slate, len(names))
    value = (
        np.where(is_same_advertiser, 0.0, auction.weight * auction.bid * (before - after)) / weight
    )
    lost_clicks = (before - after) * ~is_same_advertiser
    satisfied = 0.0
    if auction.satisfaction_weight:
        satisfied = (
            auction.satisfaction_weight * (alternative.satisfaction - slate.satisfaction) / weight
        )
    return PriceReason(
        names[ad],
        price,
        "displaced clicks" if price > auction.reserve else "reserve",
        alternative_ads,
        tuple(
            Displacement(names[row], float(lost_clicks[row]), float(value[row]))
            for row in np.flatnonzero(np.abs(lost_clicks) > SMALLEST)
        ),
        float(np.sum((auction.weight * before)[is_same_advertiser]) * auction.reserve / weight),
        float(satisfied),
    )


def _spread(slate: Slate, ads: int) -> Float64:
    """The clicks of a slate by candidate [ad]; 0 for ads that are not shown."""
    clicks = np.zeros(ads)
    clicks[slate.ads] = slate.clicks
    return clicks


def _list_clicks(displacements: list[Displacement]) -> str:
    return ", ".join(
        f"{abs(item.clicks):.4f} clicks of {item.ad} (worth {abs(item.value):.4g})"
        for item in sorted(displacements, key=lambda item: -abs(item.value))[:3]
    )


__all__ = [
    "AuctionResult",
    "AuctionRules",
    "CandidateSet",
    "Displacement",
    "Entry",
    "PriceReason",
    "run_auction",
]
