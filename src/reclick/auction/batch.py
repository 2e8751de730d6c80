"""Pages and auctions of many queries: tables in, tables out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from reclick.auction.candidates import CandidateSet, check_slots, look_up_candidates
from reclick.auction.ranking import BestPage, Objective, check_objective, find_best_page
from reclick.auction.run import (
    AuctionResult,
    AuctionRules,
    Entry,
    check_entry,
    check_weights,
    hold_auction,
)
from reclick.auction.uncertainty import AuctionUncertainty, draw_auctions
from reclick.data.schema import CANDIDATE_COLUMNS, CANDIDATES_NEED, IDS, TEXT, Column
from reclick.errors import Argument, UsageError, check_whole
from reclick.logs import as_log, read_bids, read_candidates
from reclick.logs.files.source import open_sources
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.parallel import parallel_map
from reclick.runtime.progress import ProgressOption, report_progress, track_progress

Item = TypeVar("Item")
QUERIES_AT_ONCE = 64  # per thread
PAGE_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("ads", pa.list_(pa.string())),
        ("expected_clicks", pa.list_(pa.float64())),
        ("satisfaction", pa.float64()),
        ("value", pa.float64()),
        ("exact", pa.bool_()),
    ]
)
DISPLACEMENT = pa.struct([("ad", pa.string()), ("clicks", pa.float64()), ("value", pa.float64())])
PRICE_SCHEMA = pa.schema(
    [
        ("auction", pa.string()),
        ("query", pa.string()),
        ("position", pa.int32()),
        ("ad", pa.string()),
        ("bid", pa.float64()),
        ("price_per_click", pa.float64()),
        ("expected_clicks", pa.float64()),
        ("page_satisfaction", pa.float64()),
        ("exact", pa.bool_()),
        ("because", pa.string()),
        ("displaced", pa.list_(DISPLACEMENT)),
    ]
)
UNCERTAINTY_SCHEMA = pa.schema(
    [
        *PRICE_SCHEMA,
        *((name, pa.float64()) for name in ("price_low", "price_high")),
        *((name, pa.float64()) for name in ("shown_share", "slate_share")),
    ]
)


class SealedBids(NamedTuple):
    """The bids of one auction."""

    auction: str | None
    candidates: CandidateSet
    entries: list[Entry]


@check_arguments
def rank_pages(
    model: ClickModel,
    candidates: object,
    *,
    slots: int = 4,
    objective: Objective = "clicks",
    text: object = None,
    progress: ProgressOption = None,
) -> pa.Table:
    """The best page of every query, as a table.

    `candidates` is a table of `query` and `ad` (and `value`, for the objective "value"), one row
    per ad, or of `query` and `ads`, one list per query. The result has the columns `query`, `ads`,
    `expected_clicks` (both in the order of the page), `satisfaction`, `value` and `exact`. See
    `best_page`.
    """
    check_slots(model, slots)
    groups = _group_candidates(candidates)
    sets = [CandidateSet(query, tuple(values)) for query, values in groups.items()]
    goals = [
        check_objective(model, _objective_of_query(objective, values), tuple(values))
        for values in groups.values()
    ]

    def rank(chunk: slice) -> list[BestPage]:
        candidates_of_queries = look_up_candidates(model, sets[chunk], slots=slots, text=text)
        return [
            find_best_page(candidates_of_query, *goal)
            for candidates_of_query, goal in zip(candidates_of_queries, goals[chunk], strict=True)
        ]

    with track_progress(progress, "Ranking ads"):
        pages = _map_chunks(rank, len(sets), "queries")
    rows = [
        (page.query, page.ads, page.expected_clicks, page.satisfaction, page.value, page.exact)
        for page in pages
    ]
    return _to_table(PAGE_SCHEMA, rows)


@check_arguments
def run_auctions(
    model: ClickModel,
    bids: object,
    *,
    slots: int = 4,
    mechanism: str = "vcg",
    reserve: float = 0.0,
    satisfaction_weight: float = 0.0,
    squashing: float = 1.0,
    draws: int = 0,
    level: float = 0.9,
    seed: int = 0,
    text: object = None,
    progress: ProgressOption = None,
) -> pa.Table:
    """Run an auction for every query, and return the slates with their prices as a table.

    `bids` is a table with one row per ad: `query`, `ad` and `bid`, or `satisfaction_bid` for a bid
    per click that satisfies; optional `weight`, `advertiser` (at most one ad of each is shown),
    `budget`, and `auction` if a query has several. The budget of an advertiser (or of an ad without
    advertiser) is for all auctions together, in the order of the table: its expected payments are
    subtracted, and it takes part as long as it can pay its own bid. This limits participation but
    does not optimise the use of the budget.

    The result has one row per position: `price_per_click`, `expected_clicks`, and `displaced`, the
    other ads whose clicks the ad takes (or increases, if below 0). See `run_auction`. With `draws`,
    each auction is repeated with models drawn from the posterior, which adds `price_low` and
    `price_high` (of `level`), `shown_share` and `slate_share`: the shares of draws in which the ad
    is shown, and in which this slate wins. See `price_intervals`.
    """
    rules = AuctionRules(slots, mechanism, reserve, satisfaction_weight, squashing).check(model)
    check_whole("draws", draws, 0)
    auctions = group_bids(bids)
    if draws and _has_budgets(auctions):
        raise UsageError("Budgets and ", Argument("draws"), " do not go together: leave one out.")
    with track_progress(progress, "Running auctions"):
        if not draws:
            results = hold_auctions(model, auctions, rules, text=text)
            return _to_table(PRICE_SCHEMA, _list_rows(auctions, map(_price_rows, results)))
        uncertainties = _draw_each(
            model, auctions, rules, draws=draws, level=level, seed=seed, text=text
        )
    return _to_table(
        UNCERTAINTY_SCHEMA, _list_rows(auctions, map(_uncertainty_rows, uncertainties))
    )


def hold_auctions(
    model: ClickModel, auctions: Sequence[SealedBids], rules: AuctionRules, *, text: object = None
) -> list[AuctionResult]:
    """Run auctions, and return the results in the same order."""
    if _has_budgets(auctions):
        return _hold_with_budgets(model, auctions, rules, text)

    def hold(chunk: slice) -> list[AuctionResult]:
        part = auctions[chunk]
        all_candidates = look_up_candidates(
            model, [auction.candidates for auction in part], slots=rules.slots, text=text
        )
        return [
            hold_auction(candidates, auction.entries, rules)
            for candidates, auction in zip(all_candidates, part, strict=True)
        ]

    return _map_chunks(hold, len(auctions), "auctions")


def group_bids(bids: object) -> list[SealedBids]:
    """Group a table of bids by auction, in the order of their first rows."""
    table = read_bids(bids)
    groups: dict[tuple[str | None, str], dict[str, Entry]] = {}
    budgets: dict[str, float] = {}
    for row in table.to_pylist():
        ad, owner = row["ad"], row["advertiser"] or None
        entry = Entry(row["bid"], row["satisfaction_bid"], row["weight"], owner, row["budget"])
        groups.setdefault((row["auction"], row["query"]), {})[ad] = check_entry(ad, entry)
        if budgets.setdefault(owner or ad, entry.budget) != entry.budget:
            raise UsageError(
                f"{owner or ad!r} has budgets of {budgets[owner or ad]:g} and {entry.budget:g}: "
                "give the same in all its rows."
            )
    for entries in groups.values():
        check_weights(entries)
    return [
        SealedBids(auction, CandidateSet(query, tuple(entries)), list(entries.values()))
        for (auction, query), entries in groups.items()
    ]


def _hold_with_budgets(
    model: ClickModel, auctions: Sequence[SealedBids], rules: AuctionRules, text: object
) -> list[AuctionResult]:
    """Run auctions one after the other, because earlier payments limit who takes part later."""
    all_candidates = look_up_candidates(
        model, [auction.candidates for auction in auctions], slots=rules.slots, text=text
    )
    spending: dict[str, float] = {}
    results = []
    for index, (candidates, auction) in enumerate(zip(all_candidates, auctions, strict=True)):
        owners = [
            entry.advertiser or ad
            for ad, entry in zip(candidates.ads, auction.entries, strict=True)
        ]
        entries = [
            entry._replace(budget=entry.budget - spending.get(owner, 0.0))
            for owner, entry in zip(owners, auction.entries, strict=True)
        ]
        result = hold_auction(candidates, entries, rules)
        for ad, price, clicks in zip(
            result.slate, result.price_per_click, result.expected_clicks, strict=True
        ):
            owner = owners[candidates.ads.index(ad)]
            spending[owner] = spending.get(owner, 0.0) + float(price * clicks)
        results.append(result)
        report_progress("auctions", index + 1, len(auctions))
    return results


def _group_candidates(candidates: object) -> dict[str, dict[str, float]]:
    """The ads of each query with the values of their clicks, in the order of the first rows."""
    groups: dict[str, dict[str, float]] = {}
    if _has_lists(candidates):
        for batch in as_log(candidates, clicks_required=False, one_pass=True).batches():
            queries, ads = batch.queries.to_pylist(), batch.ads.to_pylist()
            for session in range(len(batch)):
                page = batch.ad[batch.page[session] : batch.page[session + 1]].tolist()
                values = groups.setdefault(queries[batch.query[session]], {})
                values.update(dict.fromkeys((ads[ad] for ad in page), math.nan))
        return groups
    for row in read_candidates(candidates).to_pylist():
        groups.setdefault(row["query"], {})[row["ad"]] = row["value"]
    return groups


def _has_lists(candidates: object) -> bool:
    """Whether a table has one list of ads per query instead of one row per ad."""
    columns = (
        CANDIDATE_COLUMNS[0],
        Column("ad", TEXT, required=False, need=CANDIDATES_NEED),
        Column("ads", IDS, required=False, need=CANDIDATES_NEED),
    )
    names = open_sources(candidates, columns, None)[0].names
    return "ads" in names and "ad" not in names


def _objective_of_query(objective: Objective, values: dict[str, float]) -> Objective:
    """Add the values of the table to the objective "value", which needs one for every ad."""
    if objective != "value":
        return objective
    missing = [ad for ad, value in values.items() if math.isnan(value)]
    if missing:
        raise UsageError(
            Argument("objective", "value"),
            f" needs a column `value` of the candidates; {missing[0]!r} has none.",
        )
    return {"value": values}


def _map_chunks(function: Callable[[slice], list[Item]], count: int, unit: str) -> list[Item]:
    """Call the function with consecutive slices, in threads; returns one list of all results."""
    chunks = [slice(start, start + QUERIES_AT_ONCE) for start in range(0, count, QUERIES_AT_ONCE)]
    results: list[Item] = []
    for part in parallel_map(function, chunks):
        results += part
        report_progress(unit, len(results), count)
    return results


def _draw_each(
    model: ClickModel,
    auctions: Sequence[SealedBids],
    rules: AuctionRules,
    *,
    text: object,
    **options: Any,
) -> list[AuctionUncertainty]:
    all_candidates = look_up_candidates(
        model, [auction.candidates for auction in auctions], slots=rules.slots, text=text
    )
    results = []
    for candidates, auction in zip(all_candidates, auctions, strict=True):
        results.append(draw_auctions(candidates, auction.entries, rules, text=text, **options))
        report_progress("auctions", len(results), len(auctions))
    return results


def _has_budgets(auctions: Sequence[SealedBids]) -> bool:
    return any(entry.budget < math.inf for auction in auctions for entry in auction.entries)


def _list_rows(
    auctions: Sequence[SealedBids], rows: Iterable[Iterable[tuple[Any, ...]]]
) -> list[tuple[Any, ...]]:
    return [
        (auction.auction, *row)
        for auction, auction_rows in zip(auctions, rows, strict=True)
        for row in auction_rows
    ]


def _price_rows(result: AuctionResult) -> Iterator[tuple[Any, ...]]:
    for position, reason in enumerate(result.reasons):
        yield (
            result.query,
            position + 1,
            reason.ad,
            result.bid[position],
            result.price_per_click[position],
            result.expected_clicks[position],
            result.satisfaction,
            result.exact,
            reason.because,
            [displacement._asdict() for displacement in reason.displaced],
        )


def _uncertainty_rows(uncertainty: AuctionUncertainty) -> Iterator[tuple[Any, ...]]:
    for row, price, share in zip(
        _price_rows(uncertainty.result),
        uncertainty.price_per_click,
        uncertainty.shown_share,
        strict=True,
    ):
        yield (*row, price.low, price.high, share, uncertainty.slate_share)


def _to_table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
