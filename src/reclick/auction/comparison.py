"""Mechanisms side by side: welfare, revenue, satisfaction and incentives on the same auctions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.auction.batch import SealedBids, group_bids
from reclick.auction.candidates import look_up_candidates
from reclick.auction.incentives import BidderIncentives, measure_incentives, respond
from reclick.auction.mechanisms import MECHANISMS, AuctionInput, Outcome
from reclick.auction.run import AuctionRules, open_auction
from reclick.data.batch import Float64
from reclick.errors import CannotAnswerError, SettingError, check_whole
from reclick.metrics.bootstrap import bootstrap_weights, check_bootstrap, percentile_interval
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location
from reclick.runtime.parallel import parallel_map
from reclick.runtime.progress import ProgressOption, report_progress, track_progress

METRICS = ("welfare", "revenue", "clicks", "satisfaction")
BASELINE = "gsp"
TRUTHFUL, RESPONDED = "values", "best responses"
FRONTIER_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
REGRET_NOISE = 1e-9  # of a regret that is rounding
SAMPLED_BID_STD = 0.6  # of the logarithm of a sampled bid
Totals = dict[str, float]  # by metric


class MeasuredAuction(NamedTuple):
    """One auction under every mechanism."""

    pages: dict[tuple[str, str], Totals]  # (mechanism, bids) →
    incentives: dict[str, BidderIncentives]
    converged: dict[str, bool]
    frontier: dict[tuple[str, float], Totals]  # (mechanism, satisfaction weight) →
    gains: list[tuple[str, float, float]]  # advertiser, its gain with gsp and with vcg


@dataclass(frozen=True, slots=True, eq=False)
class MechanismComparison:
    """What `compare_mechanisms` found, as tables."""

    scores: pa.Table  # mechanism, bids, metric: value per page, and its change from gsp, in shares
    incentives: pa.Table  # mechanism: who gains by lying, and how much
    frontier: pa.Table  # mechanism, satisfaction weight: change of welfare and satisfaction
    advertisers: pa.Table  # advertiser: what it gains with gsp and with vcg
    details: dict[str, Any]

    @check_arguments
    def to_html(self, path: Location, *, overwrite: bool = False) -> AnyPath:
        """Write the comparison as one HTML file that needs nothing else.

        It replaces no file that Reclick did not write, unless `overwrite`.
        """
        from reclick.report import write_comparison

        return write_comparison(self, path, overwrite=overwrite)

    def __str__(self) -> str:
        lines = [f"{'':<12}{'bids':<16}{'welfare':>10}{'revenue':>10}{'satisfied':>11}"]
        values = {
            (row["mechanism"], row["bids"], row["metric"]): row["value"]
            for row in self.scores.to_pylist()
        }
        for mechanism, bids in dict.fromkeys((name, bids) for name, bids, _ in values):
            welfare, revenue, satisfied = (
                values[mechanism, bids, metric] for metric in ("welfare", "revenue", "satisfaction")
            )
            lines.append(
                f"{mechanism:<12}{bids:<16}{welfare:>10.4f}{revenue:>10.4f}{satisfied:>11.4f}"
            )
        return "\n".join(lines)


@check_arguments
def compare_mechanisms(
    model: ClickModel,
    bids: object = None,
    *,
    mechanisms: Sequence[str] = tuple(MECHANISMS),
    slots: int = 4,
    reserve: float = 0.0,
    satisfaction_weight: float = 0.0,
    squashing: float = 1.0,
    auctions: int = 50,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    text: object = None,
    progress: ProgressOption = None,
) -> MechanismComparison:
    """Compare mechanisms on your own bids, or on sampled ones.

    `bids` is a table as for `run_auctions`; without one, bids are sampled (`sample_bids`). At most
    `auctions` of them are used, drawn at random. Bids are taken as the values of a click. Each
    mechanism is measured at these bids, and after best responses: bidders change their bids in turn
    to what gains most. Each bidder also tries other bids alone: its regret is what the best of them
    would add. Intervals are by bootstrap over auctions.
    """
    check_bootstrap(level, resamples)
    check_whole("auctions", auctions, 1)
    for name in mechanisms:
        AuctionRules(slots, name, reserve, satisfaction_weight, squashing).check(model)
    rules = AuctionRules(slots, BASELINE, reserve, satisfaction_weight, squashing)
    source = sample_bids(model, auctions=auctions, seed=seed) if bids is None else bids
    listed = group_bids(source)
    rng = np.random.default_rng(seed)
    drawn = sorted(rng.permutation(len(listed))[:auctions].tolist())
    names = tuple(dict.fromkeys([*mechanisms, BASELINE]))
    with track_progress(progress, "Comparing mechanisms"):
        measured = list(_measure_all(model, [listed[i] for i in drawn], rules, names, text))
    if not measured:
        raise SettingError("reserve", reserve, "a reserve that some bids reach")
    weights = bootstrap_weights(len(measured), resamples, seed)
    return MechanismComparison(
        _score_table(measured, weights, level),
        _incentive_table(measured),
        _frontier_table(measured, weights, level),
        _advertiser_table(measured),
        {
            "model": type(model).__name__,
            "auctions": len(measured),
            "listed": len(listed),
            "sampled": bids is None,
            "slots": slots,
            "reserve": reserve,
            "satisfaction_weight": satisfaction_weight,
            "squashing": squashing,
            "level": level,
            "seed": seed,
        },
    )


@check_arguments
def sample_bids(model: ClickModel, *, auctions: int = 100, ads: int = 8, seed: int = 0) -> pa.Table:
    """Bids for queries of the training log, as a table: `query`, `ad`, `bid`.

    Queries are drawn by their sessions, among those with two or more ads; of their ads the most
    shown, up to `ads`. The logarithms of bids are normal, with mean 0 and standard deviation 0.6.
    """
    auctions, ads = check_whole("auctions", auctions, 1), check_whole("ads", ads, 1)
    counts, rng = model.training_counts, np.random.default_rng(seed)
    several = np.bincount(counts.pair_query, minlength=len(counts.queries)) > 1
    share = np.where(several, counts.volumes, 0.0)
    if not share.any():
        raise CannotAnswerError("No query of the training log has two ads: give a table of bids.")
    count = min(auctions, int(np.count_nonzero(share)))
    queries = rng.choice(len(share), count, replace=False, p=share / share.sum())
    rows: dict[str, list[Any]] = {"query": [], "ad": [], "bid": []}
    for query in queries.tolist():
        pairs = np.flatnonzero(counts.pair_query == query)
        shown = pairs[np.argsort(-counts.impressions[pairs], kind="stable")[:ads]]
        rows["query"] += [counts.queries[query].as_py()] * len(shown)
        rows["ad"] += counts.ads.take(pa.array(counts.pair_ad[shown])).to_pylist()
        rows["bid"] += rng.lognormal(0.0, SAMPLED_BID_STD, len(shown)).tolist()
    return pa.table(rows)


def _measure_all(
    model: ClickModel,
    auctions: Sequence[SealedBids],
    rules: AuctionRules,
    mechanisms: Sequence[str],
    text: object,
) -> Iterator[MeasuredAuction]:
    """Every auction in which anybody takes part."""
    found = look_up_candidates(
        model, [each.candidates for each in auctions], slots=rules.slots, text=text
    )
    opened = []
    for candidates, each in zip(found, auctions, strict=True):
        auction, _ = open_auction(candidates, each.entries, rules)
        if auction is not None:
            names = dict(zip(candidates.ads, each.entries, strict=True))
            shown = auction.search.candidates.ads
            opened.append((auction, [names[ad].advertiser or ad for ad in shown]))
    results = parallel_map(lambda item: _measure(*item, mechanisms), opened)
    for done, measured in enumerate(results, start=1):
        report_progress("auctions", done, len(opened))
        yield measured


def _measure(
    auction: AuctionInput, owners: list[str], mechanisms: Sequence[str]
) -> MeasuredAuction:
    auction = auction.with_quality()
    pages, incentives, converged = {}, {}, {}
    outcomes = {}
    for name in mechanisms:
        mechanism = MECHANISMS[name]
        outcomes[name] = mechanism(auction, None)
        pages[name, TRUTHFUL] = _total(auction, outcomes[name])
        incentives[name] = measure_incentives(auction, mechanism)
        responses = respond(auction, mechanism)
        converged[name] = responses.converged
        after = mechanism(replace(auction, bid=responses.bid), None)
        pages[name, RESPONDED] = _total(auction, after)
    frontier = {}
    if auction.search.candidates.model.satisfaction:
        for name in (BASELINE, "vcg"):
            for weight in FRONTIER_WEIGHTS:
                weighted = replace(auction, satisfaction_weight=weight)
                frontier[name, weight] = _total(auction, MECHANISMS[name](weighted, None))
    outcomes.setdefault("vcg", MECHANISMS["vcg"](auction, None))
    gains = [_gains(auction, owners, outcomes[name]) for name in (BASELINE, "vcg")]
    return MeasuredAuction(
        pages,
        incentives,
        converged,
        frontier,
        [(owner, gains[0][owner], gains[1][owner]) for owner in gains[0]],
    )


def _total(auction: AuctionInput, outcome: Outcome) -> Totals:
    """What a page brings, at the values of `auction`."""
    slate, price, _ = outcome
    return {
        "welfare": float(auction.bid[slate.ads] @ slate.clicks),
        "revenue": float(price @ slate.clicks),
        "clicks": float(slate.clicks.sum()),
        "satisfaction": slate.satisfaction,
    }


def _gains(auction: AuctionInput, owners: list[str], outcome: Outcome) -> dict[str, float]:
    """(value − price) × clicks of each advertiser."""
    gains = dict.fromkeys(owners, 0.0)
    slate, price, _ = outcome
    for position, ad in enumerate(slate.ads.tolist()):
        gain = (auction.bid[ad] - price[position]) * slate.clicks[position]
        gains[owners[ad]] += float(gain)
    return gains


def _score_table(measured: list[MeasuredAuction], weights: Float64, level: float) -> pa.Table:
    rows = []
    for mechanism, bids in measured[0].pages:
        for metric in METRICS:
            values, base = (
                np.array([each.pages[key][metric] for each in measured])
                for key in ((mechanism, bids), (BASELINE, bids))
            )
            low, high = percentile_interval(weights @ values / len(values), level)
            change, change_low, change_high = _change(values, base, weights, level)
            rows.append(
                (mechanism, bids, metric, values.mean(), float(low), float(high), change,
                 change_low, change_high)
            )  # fmt: skip
    names = ("mechanism", "bids", "metric", "value", "low", "high")
    return _from_rows((*names, "change", "change_low", "change_high"), rows)


def _frontier_table(measured: list[MeasuredAuction], weights: Float64, level: float) -> pa.Table:
    rows = []
    for name, weight in measured[0].frontier:
        row: list[Any] = [name, weight]
        for metric in ("welfare", "satisfaction"):
            values, base = (
                np.array([each.frontier[key][metric] for each in measured])
                for key in ((name, weight), (BASELINE, 0.0))
            )
            row += _change(values, base, weights, level)
        rows.append(tuple(row))
    names = ("welfare", "welfare_low", "welfare_high")
    more = ("satisfaction", "satisfaction_low", "satisfaction_high")
    return _from_rows(("mechanism", "satisfaction_weight", *names, *more), rows)


def _change(
    values: Float64, base: Float64, weights: Float64, level: float
) -> tuple[float, float, float]:
    """The relative change of the mean, with its interval."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = values.sum() / base.sum() - 1.0
        low, high = percentile_interval((weights @ values) / (weights @ base) - 1.0, level)
    return float(change), float(low), float(high)


def _incentive_table(measured: list[MeasuredAuction]) -> pa.Table:
    rows = []
    for name in measured[0].incentives:
        each = [auction.incentives[name] for auction in measured]
        regret = np.concatenate([found.regret for found in each])
        shown = np.concatenate([found.clicks > 0 for found in each])
        gain = np.concatenate([found.gain for found in each])
        price = np.concatenate([found.price * found.clicks for found in each])
        gross = np.where(shown, gain + np.nan_to_num(price), 0.0)
        rows.append(
            (
                name,
                len(regret),
                float(np.mean(regret > REGRET_NOISE)),
                float(regret[shown].sum() / max(gross.sum(), 1e-300)),
                float(regret.max()),
                float(np.mean(gain < -REGRET_NOISE)),
                float(np.mean(np.concatenate([f.clicks_fall for f in each]) > REGRET_NOISE)),
                float(np.mean([auction.converged[name] for auction in measured])),
            )
        )
    names = ("mechanism", "bidders", "gain_by_lying", "mean_regret", "max_regret", "lose")
    return _from_rows((*names, "clicks_fall", "converged"), rows)


def _advertiser_table(measured: list[MeasuredAuction]) -> pa.Table:
    """What each advertiser gains in all auctions, the largest losses first."""
    totals: dict[str, list[float]] = {}
    for auction in measured:
        for owner, with_gsp, with_vcg in auction.gains:
            total = totals.setdefault(owner, [0.0, 0.0, 0.0])
            total[0] += 1
            total[1] += with_gsp
            total[2] += with_vcg
    rows = [(owner, int(count), gsp, vcg, vcg - gsp) for owner, (count, gsp, vcg) in totals.items()]
    names = ("advertiser", "auctions", "gain_gsp", "gain_vcg", "change")
    return _from_rows(names, sorted(rows, key=lambda row: row[-1]))


def _from_rows(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[] for _ in names]
    return pa.table(dict(zip(names, map(list, columns), strict=True)))
