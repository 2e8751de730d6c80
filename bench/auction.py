"""Auctions: speed, truthfulness, welfare and revenue of mechanisms, and the simulated market.

Seconds are CPU seconds of all threads; the limits are for two cores. Each time is also given
relative to a plain NumPy GSP (sort, divide by the next score) on the same batch in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

import reclick as rc
from bench.measure import print_row
from reclick.auction.batch import group_bids, hold_auctions
from reclick.auction.candidates import Candidates, ChoiceParameters
from reclick.auction.mechanisms import MECHANISMS, AuctionInput
from reclick.auction.run import AuctionRules
from reclick.auction.slates import LazySlates
from reclick.models.base import ClickModel

Array = npt.NDArray[np.float64]
AUCTIONS, CORES = 10_000, 2
TRIALS, TRIAL_ADS, SLOTS = 10_000, 8, 4
SEEDS = range(8)
MARKET_SESSIONS, MARKET_QUERIES = 20_000, 200
MARKET_METRICS = ("clicks", "satisfied", "welfare", "revenue")
T_975 = 2.365  # of Student's t with 7 degrees of freedom


def main() -> bool:
    """Print the tables, and return whether every limit holds."""
    good = _speeds()
    good &= _truthfulness()
    _clarke_pivot()
    _mechanisms()
    _market()
    return good


# speed


def _speeds() -> bool:
    print(f"\n{AUCTIONS:,} auctions of 12 candidates and 4 slots, with prices: CPU seconds\n")
    market = rc.simulate(20_000, weeks=1, queries=1_000, seed=1)
    log = rc.read_sessions(market.weeks[0], ads=market.ads)
    all_auctions = group_bids(market.bids)
    auctions = [all_auctions[i % len(all_auctions)] for i in range(AUCTIONS)]
    bids = np.array([[entry.bid for entry in auction.entries] for auction in auctions])
    plain = _time(lambda: _plain_gsp(bids, np.random.default_rng(0).random(bids.shape)))
    models: dict[str, tuple[ClickModel, float]] = {
        "MultiClick, paper": (rc.MultiClick(), 60.0),
        "MultiClick, examination": (rc.MultiClick(variant="examination"), 60.0),
        "LuceClick": (rc.LuceClick(tune="off"), 300.0),
        "LuceClick, two components": (rc.LuceClick(tune="off", components=2), 300.0),
    }
    good = True
    for name, (model, seconds) in models.items():
        model.fit(log)
        for mechanism in ("vcg", "gsp_model") if seconds == 60.0 else ("vcg",):
            rules = AuctionRules(mechanism=mechanism)
            hold_auctions(model, auctions[:2], rules)  # compiles the kernels
            seconds_taken = _time(lambda m=model, r=rules: hold_auctions(m, auctions, r))  # type: ignore[misc]
            good &= print_row(
                f"{name}, {mechanism} ({seconds_taken / plain:,.0f} × plain NumPy GSP)",
                f"{seconds_taken:.1f} s",
                f"≤ {seconds * CORES:g} s",
                seconds_taken <= seconds * CORES,
            )
    return good & _one_large_auction(models["MultiClick, paper"][0], market)


def _one_large_auction(model: ClickModel, market: rc.Simulation) -> bool:
    ads = market.ads["ad"].to_pylist()[:50]
    query = market.weeks[0]["query"][0].as_py()
    rng = np.random.default_rng(0)
    offers = [dict(zip(ads, rng.lognormal(0, 0.6, 50).tolist(), strict=True)) for _ in range(50)]
    seconds = [_time(lambda b=bids: rc.run_auction(model, query, b)) for bids in offers]  # type: ignore[misc]
    median = 1000 * float(np.median(seconds))
    return print_row(
        "one auction of 50 candidates, MultiClick, paper (median)",
        f"{median:.1f} ms",
        "≤ 20 ms",
        median <= 20.0,
    )


def _plain_gsp(bids: Array, theta: Array) -> tuple[object, object]:
    score = bids * theta
    order = np.argsort(-score, axis=1)[:, : SLOTS + 1]
    sorted_scores = np.take_along_axis(score, order, axis=1)
    return order[:, :SLOTS], sorted_scores[:, 1:] / np.take_along_axis(
        theta, order[:, :SLOTS], axis=1
    )


def _time(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


# truthfulness


def _truthfulness() -> bool:
    print(
        f"\n{TRIALS:,} trials (market, bidder, another bid): who gains by the other bid, and "
        "who pays more than its bid\n"
    )
    good = True
    for variant in ("paper", "luce"):
        for name in MECHANISMS:
            trials = TRIALS if name == "vcg" else TRIALS // 5
            n_gaining, n_above_bid, largest = _lie(variant, name, trials)
            if name == "vcg":
                good &= print_row(
                    f"{variant}, vcg: profitable deviations", str(n_gaining), "0", n_gaining == 0
                )
                good &= print_row(
                    f"{variant}, vcg: prices above bids", str(n_above_bid), "0", not n_above_bid
                )
            else:
                print(
                    f"{variant}, {name}: {n_gaining / trials:.1%} gain, at most {largest:.3f}; "
                    f"{n_above_bid} prices above bids"
                )
    return good


def _lie(variant: str, name: str, trials: int) -> tuple[int, int, float]:
    """Count bidders who gain by another bid and prices above bids; also return the largest gain."""
    n_gaining = n_above_bid = 0
    largest = 0.0
    mechanism = MECHANISMS[name]
    auction = None
    for trial in range(trials):
        rng = np.random.default_rng([trial, len(variant)])
        if auction is None or trial % 4 == 0:  # four trials in each market
            auction = draw_auction(rng, variant)
        ad = int(rng.integers(TRIAL_ADS))
        value = float(auction.bid[ad])
        bid = max(auction.reserve, value * float(rng.choice([0.3, 0.6, 0.9, 0.98, 1.02, 1.2, 2.0])))
        truth, lie = (
            _gain(auction.change_bid(ad, any_bid), mechanism, ad, value) for any_bid in (value, bid)
        )
        n_gaining += lie > truth + 1e-9
        n_above_bid += truth < -1e-9
        largest = max(largest, lie - truth)
    return n_gaining, n_above_bid, largest


def _gain(auction: AuctionInput, mechanism: object, ad: int, value: float) -> float:
    slate, price, _ = mechanism(auction, ad)  # type: ignore[operator]
    is_own_ad = slate.ads == ad
    return float(np.sum(((value - price) * slate.clicks)[is_own_ad]))


def _clarke_pivot() -> None:
    """Print how often Clarke's pivot, the textbook rule, would pay an advertiser."""
    print("\nClarke's pivot, variant paper, 4 slots: winners with a negative price\n")
    for ads in (4, 5, 6, 8):
        negative = []
        for market in range(300):
            auction = draw_auction(np.random.default_rng([market, ads]), "paper", ads)
            auction = replace(auction, reserve=0.0, satisfaction_weight=0.0)
            best, candidates = auction.find_best(), auction.search.candidates
            for position, ad in enumerate(best.ads.tolist()):
                other_ads = np.flatnonzero(np.arange(ads) != ad)
                without = LazySlates(candidates.select(other_ads)).find_best(
                    auction.bid[other_ads], 0.0
                )
                value_of_others = best.objective - auction.bid[ad] * best.clicks[position]
                negative.append(without.objective < value_of_others - 1e-9)
        print(f"{ads} candidates: {np.mean(negative):.1%}")


def draw_auction(rng: np.random.Generator, variant: str, ads: int = TRIAL_ADS) -> AuctionInput:
    """Draw a market: θ and ρ logit-normal, values lognormal, transitions mostly down the page."""
    n = SLOTS
    theta = 1 / (1 + np.exp(-rng.normal(-1.0, 1.0, ads)))
    rho = 1 / (1 + np.exp(-rng.normal(0.0, 1.0, ads)))
    base = np.array(
        [[2.0**-j if j + 1 != last else 0.0 for j in range(n)] for last in range(n + 1)]
    )
    base[1:] *= np.where(np.arange(n) >= np.arange(1, n + 1)[:, None], 2.0, 1.0)
    gamma = np.array([rng.dirichlet(8 * row / row.sum() + 1e-9) * (row > 0) for row in base])
    gamma /= gamma.sum(axis=1, keepdims=True)
    stop = np.array([0.25, 0.35, 0.5, 0.65, 1.0]) + rng.uniform(-0.05, 0.05, n + 1) * [
        1,
        1,
        1,
        1,
        0,
    ]
    if variant == "luce":
        theta, stop = theta / (1 - theta), np.array([1.0, 1.3, 1.6, 2.0, 2.5]) / n
    choice = ChoiceParameters(
        variant,
        np.repeat(theta[None, :, None], n, axis=2),
        rho,
        stop[None],
        gamma[None],
        np.ones(1),
    )
    model = rc.LuceClick() if variant == "luce" else rc.MultiClick()
    names = tuple(f"ad{i}" for i in range(ads))
    reserve = float(rng.choice([0.0, 0.2]))
    return AuctionInput(
        LazySlates(Candidates("query", names, n, model, choice)),
        reserve + rng.lognormal(0.0, 0.6, ads),
        np.ones(ads),
        np.arange(ads),
        reserve,
        float(rng.choice([0.0, 0.5])),
    )


# welfare and revenue of mechanisms


def _mechanisms() -> None:
    print("\nMechanisms on the bids of a simulated market, LuceClick, 100 auctions: % from GSP\n")
    market = rc.simulate(50_000, weeks=1, queries=500, seed=1)
    model = rc.LuceClick(tune="off").fit(market.weeks[0], ads=market.ads)
    comparison = rc.compare_mechanisms(model, market.bids, auctions=100)
    for row in comparison.scores.to_pylist():
        if row["metric"] in ("welfare", "revenue", "satisfaction") and row["mechanism"] != "gsp":
            change = [100 * row[name] for name in ("change", "change_low", "change_high")]
            print(
                f"{row['mechanism']:<12} {row['bids']:<15} {row['metric']:<13} "
                f"{change[0]:+6.1f} [{change[1]:+.1f}, {change[2]:+.1f}]"
            )
    for row in comparison.incentives.to_pylist():
        print(
            f"{row['mechanism']:<12} gain by misreporting {row['gain_by_misreporting']:.1%}, "
            f"mean regret {row['mean_regret']:.2%} of winners' value, "
            f"clicks fall {row['clicks_fall']:.1%}"
        )


# the simulated market


@dataclass(frozen=True)
class MarketRule:
    """A mechanism with its satisfaction weight."""

    name: str
    mechanism: str
    satisfaction_weight: float = 0.0


RULES = (
    MarketRule("gsp", "gsp"),
    MarketRule("vcg", "vcg"),
    MarketRule("gsp_model", "gsp_model"),
    MarketRule("vcg, satisfaction weight 1", "vcg", 1.0),
)


def _market() -> None:
    print(
        f"\nThe simulated market, {MARKET_SESSIONS:,} sessions per week, two weeks, "
        f"LuceClick fitted to the week before: % change from GSP at the same bids, {len(SEEDS)} "
        "seeds, 95 % intervals\n"
    )
    totals: dict[str, list[Array]] = {rule.name: [] for rule in RULES}
    for seed in SEEDS:
        log = rc.simulate(MARKET_SESSIONS, weeks=1, queries=MARKET_QUERIES, seed=seed)
        model = rc.LuceClick(tune="off").fit(log.weeks[0], ads=log.ads)
        for rule in RULES:
            weeks = rc.simulate_auctions(
                model, MARKET_SESSIONS, mechanism=rule.mechanism,
                satisfaction_weight=rule.satisfaction_weight, weeks=2, queries=MARKET_QUERIES,
                seed=seed,
            ).weeks  # fmt: skip
            columns = [weeks[name].to_numpy() for name in MARKET_METRICS]
            totals[rule.name].append(np.array(columns, np.float64))  # [metric, week]
    base = np.array(totals["gsp"])  # [seed, metric, week]
    for rule in RULES[1:]:
        change = 100 * (np.array(totals[rule.name]) / base - 1)
        for week in range(2):
            cells = []
            for metric, name in enumerate(MARKET_METRICS):
                week_change = change[:, metric, week]
                half = T_975 * week_change.std(ddof=1) / np.sqrt(len(week_change))
                mean = week_change.mean()
                cells.append(f"{name} {mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]")
            print(f"{rule.name:<28} week {week + 1}: {', '.join(cells)}")
