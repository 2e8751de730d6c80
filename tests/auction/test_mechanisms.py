"""Property tests of mechanisms (T1 to T6), worked examples, and mutants that they must find."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reclick.auction import mechanisms, slates
from reclick.auction.candidates import ChoiceParameters
from reclick.auction.mechanisms import MECHANISMS, AuctionInput, Outcome
from reclick.auction.slates import Slate, open_search, score_slate
from tests.support.auction_markets import (
    CLOSE,
    VARIANTS,
    SmallAuction,
    find_falling_clicks,
    find_price_violations,
    find_profitable_lies,
    find_wrong_payments,
    find_wrong_slates,
    plain_clicks,
    random_auction,
    random_choice_parameters,
)

every_variant = pytest.mark.parametrize("variant", VARIANTS)
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
OPTIMAL = [name for name in MECHANISMS if name != "gsp"]


def small_auctions(variant: str, count: int, seed: int = 0) -> list[SmallAuction]:
    """Every third with ties, zero bids, and θ and ρ of 0 and 1."""
    return [
        random_auction(np.random.default_rng([seed, i]), variant, most_ads=5, extremes=i % 3 == 2)
        for i in range(count)
    ]


# T1


@every_variant
@every_mechanism
def test_prices_are_between_the_reserve_and_the_bid(variant: str, name: str) -> None:
    for small in small_auctions(variant, 60):
        assert find_price_violations(small, MECHANISMS[name]) == []


@every_variant
def test_a_vcg_price_is_at_most_that_of_gsp_model(variant: str) -> None:
    for each in small_auctions(variant, 60):
        small = replace(each, advertiser=np.arange(each.ads))
        vcg, gsp = (MECHANISMS[name](small.open(), None) for name in ("vcg", "gsp_model"))
        np.testing.assert_array_equal(vcg.slate.ads, gsp.slate.ads)
        assert (vcg.price <= gsp.price + CLOSE).all()


# T2


@every_variant
def test_no_bidder_misreporters_to_vcg(variant: str) -> None:
    for small in small_auctions(variant, 40, seed=1):
        assert find_profitable_lies(small, MECHANISMS["vcg"]) == []


@every_variant
@pytest.mark.parametrize("name", OPTIMAL)
def test_clicks_never_fall_when_an_ad_bids_more(variant: str, name: str) -> None:
    for small in small_auctions(variant, 15, seed=2):
        assert find_falling_clicks(small, MECHANISMS[name]) == []


@pytest.mark.parametrize("name", ["gsp", "gsp_model", "first_price"])
def test_the_other_mechanisms_reward_lies(name: str) -> None:
    lies = [find_profitable_lies(each, MECHANISMS[name]) for each in small_auctions("paper", 40)]
    assert any(lies)


# T3


@every_variant
@pytest.mark.parametrize("name", OPTIMAL)
def test_the_slate_is_the_best_of_all(variant: str, name: str) -> None:
    for small in small_auctions(variant, 30, seed=3):
        assert find_wrong_slates(small, MECHANISMS[name]) == []


@every_variant
def test_vcg_payments_are_those_of_brute_force(variant: str) -> None:
    for small in small_auctions(variant, 30, seed=4):
        assert find_wrong_payments(small, MECHANISMS["vcg"]) == []


@every_variant
def test_a_gsp_model_price_is_the_smallest_bid_that_keeps_the_clicks(variant: str) -> None:
    for small in small_auctions(variant, 30, seed=5):
        slate, price, _ = MECHANISMS["gsp_model"](small.open(), None)
        lines = []
        for each in small.slates():
            clicks, _ = plain_clicks(small.choice, each)
            lines.append((each, dict(zip(each, clicks, strict=True)), small.worth(each)))
        best = small.highest_worth()
        for position, ad in enumerate(slate.ads.tolist()):
            x, w = slate.clicks[position], small.weight[ad]
            thresholds = [
                small.bid[ad] + (worth - best) / (w * (x - clicks.get(ad, 0.0)))
                for _, clicks, worth in lines
                if clicks.get(ad, 0.0) < x - 1e-7
            ]
            expected = min(max([small.reserve, *thresholds]), small.bid[ad])
            assert price[position] == pytest.approx(expected, abs=1e-6)


# T4


@every_variant
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_clicks_are_sums_over_all_click_sequences(variant: str, slots: int) -> None:
    for seed in range(5):
        rng = np.random.default_rng([slots, seed])
        choice = random_choice_parameters(rng, variant, 5, slots, extremes=seed == 4)
        slate = tuple(rng.permutation(5)[:slots].tolist())
        clicks, satisfaction = plain_clicks(choice, slate)
        got = choice.evaluate(np.array([slate]))
        np.testing.assert_allclose(got.clicks[0], clicks, atol=1e-12, rtol=0)
        assert got.satisfaction[0] == pytest.approx(satisfaction, abs=1e-12)


# T5


@pytest.mark.parametrize("variant", ["paper", "examination"])
def test_with_one_click_per_session_prices_are_those_of_the_textbook(variant: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        ads, slots = 7, 3
        choice = random_choice_parameters(rng, variant, ads, slots)
        gamma = choice.gamma.copy()
        gamma[0, 0] = np.sort(rng.dirichlet(np.ones(slots)))[::-1]
        stop = np.array([[0.2, 1.0, 1.0, 1.0]])
        bid, theta = rng.lognormal(0, 0.6, ads), choice.theta[0, :, 0]
        small = SmallAuction(
            replace(choice, gamma=gamma, stop=stop),
            slots, bid, np.ones(ads), np.arange(ads), 0.0, 0.0,
        )  # fmt: skip
        ranked = np.argsort(-bid * theta)
        score, alpha = (bid * theta)[ranked], np.append(0.8 * gamma[0, 0], 0.0)
        gsp = score[1 : slots + 1] / theta[ranked[:slots]]
        vcg = [
            sum((alpha[k] - alpha[k + 1]) * score[k + 1] for k in range(p, slots))
            / (alpha[p] * theta[ranked[p]])
            for p in range(slots)
        ]
        for name, expected in (("gsp", gsp), ("gsp_model", gsp), ("vcg", vcg)):
            slate, price, _ = MECHANISMS[name](small.open(), None)
            np.testing.assert_array_equal(slate.ads, ranked[:slots])
            np.testing.assert_allclose(slate.clicks, alpha[:slots] * theta[ranked[:slots]])
            np.testing.assert_allclose(price, expected, rtol=1e-9)


# T6


@pytest.mark.parametrize("variant", ["paper", "examination"])
@pytest.mark.parametrize("name", OPTIMAL)
def test_branch_and_bound_loses_nothing(variant: str, name: str) -> None:
    for seed in range(25):
        small = random_auction(
            np.random.default_rng([6, seed]), variant, most_ads=9, extremes=seed % 3 == 2
        )
        bounded, listed = small.open(), small.open(small.tabulate())
        assert isinstance(bounded.search, slates.MultilinearSlates)
        one, other = (MECHANISMS[name](each, None) for each in (bounded, listed))
        assert one.slate.objective == pytest.approx(other.slate.objective, abs=1e-12)
        if seed % 3 != 2:  # with ties another slate may be as good, at other prices
            np.testing.assert_array_equal(one.slate.ads, other.slate.ads)
            np.testing.assert_allclose(one.price, other.price, atol=1e-9)


# worked examples


def worked_auction() -> SmallAuction:
    """Two ads, two slots: K = n = 2 of the theory page."""
    choice = ChoiceParameters(
        "paper",
        np.full((1, 2, 2), 0.5),
        np.array([0.2, 0.0]),
        np.array([[0.1, 0.1, 1.0]]),
        np.array([[[0.8, 0.2], [0.0, 1.0], [1.0, 0.0]]]),
        np.ones(1),
    )
    return SmallAuction(choice, 2, np.array([2.0, 0.1]), np.ones(2), np.arange(2), 0.0, 0.0)


def test_the_worked_example_of_two_ads() -> None:
    small = worked_auction()
    slate, price, _ = MECHANISMS["vcg"](small.open(), None)
    by_ad = dict(zip(slate.ads.tolist(), price.tolist(), strict=True))
    assert by_ad[0] == pytest.approx(0.0431, abs=5e-5)
    assert by_ad[1] == 0.0


def test_the_clarke_pivot_would_pay_an_advertiser() -> None:
    small = worked_auction()
    slate = MECHANISMS["vcg"](small.open(), None).slate
    alone = max(small.worth((0,)), 0.0)  # what ad 1 is worth without ad 2
    x = dict(zip(slate.ads.tolist(), slate.clicks.tolist(), strict=True))
    clarke = (alone - small.bid[0] * x[0]) / x[1]
    assert clarke == pytest.approx(-0.369, abs=5e-4)


def test_the_best_slate_of_one_slot_by_hand() -> None:
    # One slot, one click: worth θ (1 − η) b. Ad 1 wins with .4 · 2 = .8 against .5 · 1 = .5, and
    # pays what it displaces: .5 / .4 = 1.25 per click.
    choice = ChoiceParameters(
        "paper",
        np.array([[[0.5], [0.4]]]),
        np.zeros(2),
        np.array([[0.3, 1.0]]),
        np.ones((1, 2, 1)),
        np.ones(1),
    )
    small = SmallAuction(choice, 1, np.array([1.0, 2.0]), np.ones(2), np.arange(2), 0.0, 0.0)
    for name, price in (("vcg", 1.25), ("gsp_model", 1.25), ("gsp", 1.25), ("first_price", 2.0)):
        slate, got, _ = MECHANISMS[name](small.open(), None)
        assert slate.ads.tolist() == [1]
        assert slate.clicks[0] == pytest.approx(0.28)
        assert got[0] == pytest.approx(price)


def test_squashing_brings_ranks_nearer_to_bids() -> None:
    small = replace(worked_auction(), bid=np.array([1.0, 1.5]))
    choice = replace(small.choice, theta=np.array([[[0.8, 0.8], [0.4, 0.4]]]))
    auction = replace(small, choice=choice).open()
    assert MECHANISMS["gsp"](auction, None).slate.ads.tolist() == [0, 1]
    squashed = replace(auction, squashing=0.0)
    assert MECHANISMS["gsp"](squashed, None).slate.ads.tolist() == [1, 0]


# mutants: the properties above must find each of them


def clarke_pivot(auction: AuctionInput, only: int | None = None) -> Outcome:
    """The pivot of the textbook: the best slate without the ad."""
    best = auction.find_best()
    prices = []
    for position, ad in enumerate(best.ads.tolist()):
        others = best.objective - auction.weight[ad] * auction.bid[ad] * best.clicks[position]
        rest = np.flatnonzero(auction.advertiser != auction.advertiser[ad])
        without = 0.0
        if len(rest):
            search = open_search(auction.search.candidates.select(rest), auction.advertiser[rest])
            values = auction.weight[rest] * auction.bid[rest]
            without = search.find_best(values, auction.satisfaction_weight).objective
        prices.append((without - others) / (auction.weight[ad] * best.clicks[position]))
    return Outcome(best, np.array(prices), (None,) * len(prices))


def greedy_slate(auction: AuctionInput, only: int | None = None) -> Outcome:
    """The prices of vcg on a slate that is filled from the top, ad by ad."""

    class Greedy:
        candidates = auction.search.candidates

        def find_best(self, value: np.ndarray, satisfaction_weight: float) -> Slate:
            slate: list[int] = []
            for _ in range(auction.search.candidates.slots):
                used = {int(auction.advertiser[ad]) for ad in slate}
                free = [a for a in range(len(value)) if int(auction.advertiser[a]) not in used]
                if free:
                    options = [np.array([*slate, ad]) for ad in free]
                    scored = [
                        score_slate(self.candidates, each, value, satisfaction_weight)
                        for each in options
                    ]
                    slate.append(free[int(np.argmax([each.objective for each in scored]))])
            return score_slate(self.candidates, np.array(slate), value, satisfaction_weight)

    return unclipped_vcg(replace(auction, search=Greedy()), only)


def unclipped_vcg(auction: AuctionInput, only: int | None = None, **changes: Any) -> Outcome:
    """Prices of vcg as computed; `changes` are to the auction of the pivot."""
    best = auction.find_best()
    prices = []
    for position, ad in enumerate(best.ads.tolist()):
        pivot_auction = replace(auction, **changes) if changes else auction
        own = auction.advertiser == auction.advertiser[ad]
        bids = np.where(own, pivot_auction.reserve, auction.bid)
        pivot = pivot_auction.find_best(bids)
        clicks = max(auction.weight[ad] * best.clicks[position], 1e-300)
        prices.append((pivot.objective - best.objective) / clicks + auction.bid[ad])
    return Outcome(best, np.array(prices), (None,) * len(prices))


def forget_satisfaction(auction: AuctionInput, only: int | None = None) -> Outcome:
    return unclipped_vcg(auction, only, satisfaction_weight=0.0)


def forget_reserve(auction: AuctionInput, only: int | None = None) -> Outcome:
    return unclipped_vcg(auction, only, reserve=0.0)


def forget_weights(auction: AuctionInput, only: int | None = None) -> Outcome:
    outcome = MECHANISMS["vcg"](auction, only)
    return outcome._replace(price=outcome.price * auction.weight[outcome.slate.ads])


def pay_first_price(auction: AuctionInput, only: int | None = None) -> Outcome:
    return MECHANISMS["first_price"](auction, only)


MUTANTS = [
    clarke_pivot, greedy_slate, forget_satisfaction, forget_reserve, forget_weights,
    pay_first_price,
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("variant", ["paper", "luce"])
def test_a_wrong_mechanism_is_found(mutant: mechanisms.Mechanism, variant: str) -> None:
    checks = (find_price_violations, find_profitable_lies, find_wrong_payments, find_wrong_slates)
    auctions = small_auctions(variant, 40, seed=1)
    assert any(check(small, mutant) for check, small in itertools.product(checks, auctions))


def test_a_search_that_undervalues_later_clicks_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Undervaluing(slates.MultilinearSlates):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            self._carry = self._carry * 0.5

    monkeypatch.setattr(slates, "MultilinearSlates", Undervaluing)
    auctions = [
        random_auction(np.random.default_rng([7, seed]), "paper", most_ads=7) for seed in range(40)
    ]
    assert any(find_wrong_slates(small, MECHANISMS["vcg"]) for small in auctions)
