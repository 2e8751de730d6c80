"""Compare mechanisms: welfare, revenue, satisfaction and incentives on the same auctions."""

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
REGRET_NOISE = 1e-9  # smaller regrets are rounding errors
SAMPLED_BID_STD = 0.6  # of the logarithm of a sampled bid
Totals = dict[str, float]  # by metric


class MeasuredAuction(NamedTuple):
    """The results of one auction under every mechanism."""

    pages: dict[tuple[str, str], Totals]  # (mechanism, bids) →
    incentives: dict[str, BidderIncentives]
    converged: dict[str, bool]
    frontier: dict[tuple[str, float], Totals]  # (mechanism, satisfaction weight) →
    gains: list[tuple[str, float, float]]  # advertiser, its gain with gsp and with vcg


@dataclass(frozen=True, slots=True, eq=False)
class MechanismComparison:
    """The result of `compare_mechanisms`, as tables."""

    scores: pa.Table  # mechanism, bids, metric: value per page, and its relative change from gsp
    incentives: pa.Table  # mechanism: share of bidders who gain by misreporting, and how much
    frontier: pa.Table  # mechanism, satisfaction weight: change of welfare and satisfaction
    advertisers: pa.Table  # advertiser: its gain with gsp and with vcg
    details: dict[str, Any]

    @check_arguments
    def to_html(self, path: Location, *, overwrite: bool = False) -> AnyPath:
        """Write the comparison as one self-contained HTML file.

        A file that Reclick did not write is replaced only with `overwrite`.
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
    `auctions` auctions are used, drawn at random. Bids are taken as the values of a click. Each
    mechanism is measured at these bids, and after best responses: bidders in turn change to the bid
    that gains most. In addition, each bidder alone tries other bids: its regret is how much more
    the best of them would gain. Intervals are bootstrap intervals over auctions.
    """
    check_bootstrap(level, resamples)
    check_whole("auctions", auctions, 1)
    for name in mechanisms:
        AuctionRules(slots, name, reserve, satisfaction_weight, squashing).check(model)
    rules = AuctionRules(slots, BASELINE, reserve, satisfaction_weight, squashing)
    source = sample_bids(model, auctions=auctions, seed=seed) if bids is None else bids
    all_auctions = group_bids(source)
    rng = np.random.default_rng(seed)
    sample = sorted(rng.permutation(len(all_auctions))[:auctions].tolist())
    names = tuple(dict.fromkeys([*mechanisms, BASELINE]))
    with track_progress(progress, "Comparing mechanisms"):
        measurements = list(
            _measure_all(model, [all_auctions[i] for i in sample], rules, names, text)
        )
    if not measurements:
        raise SettingError("reserve", reserve, "a reserve that some bids reach")
    weights = bootstrap_weights(len(measurements), resamples, seed)
    return MechanismComparison(
        _score_table(measurements, weights, level),
        _incentive_table(measurements),
        _frontier_table(measurements, weights, level),
        _advertiser_table(measurements),
        {
            "model": type(model).__name__,
            "auctions": len(measurements),
            "listed": len(all_auctions),
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
    """Sample bids for queries of the training log: a table of `query`, `ad` and `bid`.

    Queries with two or more ads are drawn in proportion to their sessions. The bidders of a query
    are its ads with the most impressions, up to `ads`. The logarithms of bids are normal, with mean
    0 and standard deviation 0.6.
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
        frequent_pairs = pairs[np.argsort(-counts.impressions[pairs], kind="stable")[:ads]]
        rows["query"] += [counts.queries[query].as_py()] * len(frequent_pairs)
        rows["ad"] += counts.ads.take(pa.array(counts.pair_ad[frequent_pairs])).to_pylist()
        rows["bid"] += rng.lognormal(0.0, SAMPLED_BID_STD, len(frequent_pairs)).tolist()
    return pa.table(rows)


def _measure_all(
    model: ClickModel,
    auctions: Sequence[SealedBids],
    rules: AuctionRules,
    mechanisms: Sequence[str],
    text: object,
) -> Iterator[MeasuredAuction]:
    """Measure every auction that has at least one participant."""
    all_candidates = look_up_candidates(
        model, [sealed_bids.candidates for sealed_bids in auctions], slots=rules.slots, text=text
    )
    open_auctions = []
    for candidates, sealed_bids in zip(all_candidates, auctions, strict=True):
        auction, _ = open_auction(candidates, sealed_bids.entries, rules)
        if auction is not None:
            names = dict(zip(candidates.ads, sealed_bids.entries, strict=True))
            ads = auction.search.candidates.ads
            open_auctions.append((auction, [names[ad].advertiser or ad for ad in ads]))
    results = parallel_map(lambda item: _measure(*item, mechanisms), open_auctions)
    for n_done, measurement in enumerate(results, start=1):
        report_progress("auctions", n_done, len(open_auctions))
        yield measurement


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
                auction_at_weight = replace(auction, satisfaction_weight=weight)
                frontier[name, weight] = _total(auction, MECHANISMS[name](auction_at_weight, None))
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
    """Welfare, revenue, clicks and satisfaction of a page, at the values of `auction`."""
    slate, price, _ = outcome
    return {
        "welfare": float(auction.bid[slate.ads] @ slate.clicks),
        "revenue": float(price @ slate.clicks),
        "clicks": float(slate.clicks.sum()),
        "satisfaction": slate.satisfaction,
    }


def _gains(auction: AuctionInput, owners: list[str], outcome: Outcome) -> dict[str, float]:
    """The gain of each advertiser: Σ (value − price) × clicks."""
    gains = dict.fromkeys(owners, 0.0)
    slate, price, _ = outcome
    for position, ad in enumerate(slate.ads.tolist()):
        gain = (auction.bid[ad] - price[position]) * slate.clicks[position]
        gains[owners[ad]] += float(gain)
    return gains


def _score_table(measurements: list[MeasuredAuction], weights: Float64, level: float) -> pa.Table:
    rows = []
    for mechanism, bids in measurements[0].pages:
        for metric in METRICS:
            values, base = (
                np.array([measurement.pages[key][metric] for measurement in measurements])
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


def _frontier_table(
    measurements: list[MeasuredAuction], weights: Float64, level: float
) -> pa.Table:
    rows = []
    for name, weight in measurements[0].frontier:
        row: list[Any] = [name, weight]
        for metric in ("welfare", "satisfaction"):
            values, base = (
                np.array([measurement.frontier[key][metric] for measurement in measurements])
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


def _incentive_table(measurements: list[MeasuredAuction]) -> pa.Table:
    rows = []
    for name in measurements[0].incentives:
        incentives = [measurement.incentives[name] for measurement in measurements]
        regret = np.concatenate([bidders.regret for bidders in incentives])
        is_shown = np.concatenate([bidders.clicks > 0 for bidders in incentives])
        gain = np.concatenate([bidders.gain for bidders in incentives])
        price = np.concatenate([bidders.price * bidders.clicks for bidders in incentives])
        gross = np.where(is_shown, gain + np.nan_to_num(price), 0.0)
        rows.append(
            (
                name,
                len(regret),
                float(np.mean(regret > REGRET_NOISE)),
                float(regret[is_shown].sum() / max(gross.sum(), 1e-300)),
                float(regret.max()),
                float(np.mean(gain < -REGRET_NOISE)),
                float(
                    np.mean(
                        np.concatenate([bidders.clicks_fall for bidders in incentives])
                        > REGRET_NOISE
                    )
                ),
                float(np.mean([measurement.converged[name] for measurement in measurements])),
            )
        )
    names = ("mechanism", "bidders", "gain_by_misreporting", "mean_regret", "max_regret", "lose")
    return _from_rows((*names, "clicks_fall", "converged"), rows)


def _advertiser_table(measurements: list[MeasuredAuction]) -> pa.Table:
    """The gains of each advertiser over all auctions, the largest losses first."""
    totals: dict[str, list[float]] = {}
    for measurement in measurements:
        for owner, with_gsp, with_vcg in measurement.gains:
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
