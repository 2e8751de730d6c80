"""Small random auctions, their best slates by brute force in plain Python, and their properties."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from reclick.auction.candidates import Candidates, ChoiceParameters
from reclick.auction.mechanisms import AuctionInput, Mechanism
from reclick.auction.slates import SlateSearch, TabulatedSlates, open_search
from reclick.models import LuceClick, MultiClick

CLOSE = 1e-9
VARIANTS = ("paper", "examination", "luce", "mixture")
DEVIATIONS = (0.0, 0.3, 0.7, 0.9, 0.97, 1.03, 1.2, 1.7, 4.0)


@dataclass(frozen=True)
class SmallAuction:
    """Parameters and bids of one auction."""

    choice: ChoiceParameters
    slots: int
    bid: np.ndarray
    weight: np.ndarray
    advertiser: np.ndarray
    reserve: float
    satisfaction_weight: float

    @property
    def ads(self) -> int:
        return len(self.bid)

    @property
    def candidates(self) -> Candidates:
        model = LuceClick() if self.choice.variant == "luce" else MultiClick()
        names = tuple(f"ad{i}" for i in range(self.ads))
        return Candidates("query", names, self.slots, model, self.choice)

    def open(self, search: SlateSearch | None = None) -> AuctionInput:
        """The auction as the mechanisms take it."""
        return AuctionInput(
            search or open_search(self.candidates, self.advertiser),
            self.bid,
            self.weight,
            self.advertiser,
            self.reserve,
            self.satisfaction_weight,
        )

    def tabulate(self) -> SlateSearch:
        slots = min(self.slots, len(set(self.advertiser.tolist())))
        return TabulatedSlates.enumerate(self.candidates, self.advertiser, slots)

    def slates(self) -> Iterator[tuple[int, ...]]:
        """All slates, one by one."""
        slots = min(self.slots, len(set(self.advertiser.tolist())))
        for slate in itertools.permutations(range(self.ads), slots):
            if len({int(self.advertiser[ad]) for ad in slate}) == slots:
                yield slate

    def worth(self, slate: tuple[int, ...], bid: np.ndarray | None = None) -> float:
        """Σ w b x + λ P(satisfied), from the enumeration of click sequences."""
        clicks, satisfaction = plain_clicks(self.choice, slate)
        bids = self.bid if bid is None else bid
        total = sum(self.weight[ad] * bids[ad] * x for ad, x in zip(slate, clicks, strict=True))
        return float(total + self.satisfaction_weight * satisfaction)

    def highest_worth(self, bid: np.ndarray | None = None) -> float:
        return max(self.worth(slate, bid) for slate in self.slates())


def plain_clicks(choice: ChoiceParameters, slate: tuple[int, ...]) -> tuple[list[float], float]:
    """P(click) per position and P(satisfied), summed over all click sequences."""
    clicks, satisfaction, total = [0.0] * len(slate), 0.0, 0.0
    for t, mixing in enumerate(choice.weights.tolist()):
        for sequence in itertools.chain.from_iterable(
            itertools.permutations(range(len(slate)), m) for m in range(len(slate) + 1)
        ):
            reached, ended, satisfied = _follow(choice, t, slate, sequence)
            probability = mixing * reached * ended
            total += probability
            satisfaction += mixing * reached * satisfied
            for position in sequence:
                clicks[position] += probability
    assert abs(total - 1.0) < CLOSE  # a distribution
    return clicks, satisfaction


def _follow(
    choice: ChoiceParameters, t: int, slate: tuple[int, ...], sequence: tuple[int, ...]
) -> tuple[float, float, float]:
    """P(the first clicks are these), P(then it ends), P(then it ends satisfied)."""
    probability, last, free = 1.0, -1, list(range(len(slate)))
    for k in range(len(sequence) + 1):
        rho = float(choice.rho[slate[last]]) if last >= 0 else 0.0
        gamma = choice.gamma[t, last + 1]
        weights = {j: float(choice.theta[t, slate[j], j] * gamma[j]) for j in free}
        examined = sum(float(gamma[j]) for j in free)
        stop = float(choice.stop[t, k]) if k < choice.stop.shape[1] else 1.0
        chance = {}
        for j, weight in weights.items():
            if choice.variant == "paper":
                chance[j] = (1 - rho) * (1 - stop) * weight
            elif choice.variant == "examination":
                chance[j] = (1 - rho) * (1 - stop) * weight / examined if examined else 0.0
            else:
                chance[j] = (1 - rho) * weight / (stop + sum(weights.values()))
        if k == len(sequence):
            return probability, 1.0 - sum(chance.values()), rho if last >= 0 else 0.0
        last = sequence[k]
        probability *= chance[last]
        free.remove(last)
    raise AssertionError


def random_choice_parameters(
    rng: np.random.Generator, variant: str, ads: int, slots: int, *, extremes: bool = False
) -> ChoiceParameters:
    """Parameters of every kind of model that may run an auction."""
    components = 2 if variant == "mixture" else 1
    kind = "luce" if variant == "mixture" else variant
    theta = np.repeat(rng.random((1, ads, 1)), slots, axis=2)
    if kind == "luce":
        theta = rng.lognormal(-0.5, 0.7, (1, ads, 1)) * rng.lognormal(0, 0.1, (1, ads, slots))
    rho = rng.random(ads)
    if extremes:
        rho = rng.choice([0.0, 1.0, 0.5], ads)
        theta[:, rng.random(ads) < 0.2] = 0.0
    gamma = rng.dirichlet(np.geomspace(1.0, 0.2, slots), (components, slots + 1))
    for j in range(slots):
        gamma[:, j + 1, j] = 0.0
    stop = rng.uniform(0.05, 0.6, (components, slots + 1))
    stop = np.cumsum(stop, axis=1) if kind == "luce" else np.minimum(stop, 1.0)
    weights = rng.dirichlet(np.ones(components)) if components > 1 else np.ones(1)
    return ChoiceParameters(kind, np.repeat(theta, components, axis=0), rho, stop, gamma, weights)


def random_auction(
    rng: np.random.Generator, variant: str, *, most_ads: int = 6, extremes: bool = False
) -> SmallAuction:
    """A small auction; `extremes` adds ties, zero bids, and ρ and θ of 0 and 1."""
    ads, slots = int(rng.integers(1, most_ads + 1)), int(rng.integers(1, 4))
    slots = min(slots, ads)
    reserve = float(rng.choice([0.0, 0.3]))
    bid = reserve + rng.lognormal(0.0, 0.6, ads)
    if extremes:
        bid = reserve + rng.choice([0.0, 0.5, 1.0], ads)
    advertiser = np.arange(ads) if rng.random() < 0.7 else rng.integers(0, max(ads - 1, 1), ads)
    weight = np.ones(ads) if rng.random() < 0.5 else rng.uniform(0.5, 2.0, ads)[advertiser]
    return SmallAuction(
        random_choice_parameters(rng, variant, ads, slots, extremes=extremes),
        slots,
        bid,
        weight,
        np.unique(advertiser, return_inverse=True)[1],
        reserve,
        float(rng.choice([0.0, 0.0, 0.8])),
    )


def utility(
    mechanism: Mechanism, auction: AuctionInput, advertiser: int, value: np.ndarray
) -> float:
    """What an advertiser gains: (value − price) × clicks of its ad that is shown, if any."""
    slate, price, _ = mechanism(auction, None)
    own = auction.advertiser[slate.ads] == advertiser
    return float(np.sum(((value[slate.ads] - price) * slate.clicks)[own]))


def clicks_and_price(mechanism: Mechanism, auction: AuctionInput, ad: int) -> tuple[float, float]:
    outcome = mechanism(auction, ad)
    at = np.flatnonzero(outcome.slate.ads == ad)
    if not len(at):
        return 0.0, 0.0
    return float(outcome.slate.clicks[at[0]]), float(outcome.price[at[0]])


def find_price_violations(small: SmallAuction, mechanism: Mechanism) -> list[str]:
    """T1: reserve ≤ price ≤ bid, 0 ≤ revenue ≤ welfare."""
    auction = small.open()
    slate, price, _ = mechanism(auction, None)
    bid = auction.bid[slate.ads]
    found = []
    if (price < small.reserve - CLOSE).any() or (price > bid + CLOSE).any():
        found.append(f"price {price} outside [{small.reserve}, {bid}]")
    if not -CLOSE <= price @ slate.clicks <= bid @ slate.clicks + CLOSE:
        found.append("revenue outside [0, welfare]")
    return found


def find_profitable_lies(small: SmallAuction, mechanism: Mechanism) -> list[str]:
    """T2: no advertiser gains by another bid than its value.

    A bid below the reserve takes no part and gains nothing, so it is never a profitable lie.
    """
    auction = small.open()
    found = []
    for ad in range(small.ads):
        owner, value = int(small.advertiser[ad]), float(small.bid[ad])
        truthful = utility(mechanism, auction, owner, small.bid)
        if truthful < -CLOSE:
            found.append(f"advertiser {owner} loses {truthful} by telling its value")
        for factor in DEVIATIONS:
            bid = small.reserve + factor * (value - small.reserve) + (factor > 2) * 0.5
            lie = utility(mechanism, auction.change_bid(ad, bid), owner, small.bid)
            if lie > truthful + CLOSE:
                found.append(f"ad {ad} gains {lie - truthful} by bidding {bid} for {value}")
    return found


def find_falling_clicks(small: SmallAuction, mechanism: Mechanism) -> list[str]:
    """T2: the clicks of an ad never fall when it bids more."""
    auction = small.open()
    found = []
    for ad in range(small.ads):
        bids = small.reserve + np.linspace(0.0, 3.0, 8)
        clicks = [clicks_and_price(mechanism, auction.change_bid(ad, b), ad)[0] for b in bids]
        if (np.diff(clicks) < -CLOSE).any():
            found.append(f"clicks of ad {ad} fall: {clicks}")
    return found


def find_wrong_slates(small: SmallAuction, mechanism: Mechanism) -> list[str]:
    """T3: no slate has a higher worth than the one shown."""
    slate = mechanism(small.open(), None).slate
    shown, best = small.worth(tuple(slate.ads.tolist())), small.highest_worth()
    return [f"{slate.ads} is worth {shown}, not {best}"] if shown < best - CLOSE else []


def find_wrong_payments(small: SmallAuction, mechanism: Mechanism) -> list[str]:
    """The payments of vcg by brute force: [W(b_i := r) − W_{−i}(b)] / (w_i x_i)."""
    slate, price, _ = mechanism(small.open(), None)
    best, found = small.highest_worth(), []
    for position, ad in enumerate(slate.ads.tolist()):
        own = small.advertiser == small.advertiser[ad]
        pivot = small.highest_worth(np.where(own, small.reserve, small.bid))
        clicks = small.weight[ad] * slate.clicks[position]
        payment = pivot - (best - small.bid[ad] * clicks)
        if abs(price[position] * clicks - payment) > CLOSE:
            found.append(f"ad {ad} pays {price[position] * clicks}, not {payment}")
    return found


Check = Callable[[SmallAuction, Mechanism], list[str]]
