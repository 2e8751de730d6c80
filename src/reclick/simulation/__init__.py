"""A simulated market: queries, ads of real words, an auction, and users of several types.

Their clicks follow none of Reclick's models. The true parameters are known and saved with the log.
docs/explanation/simulation.md describes the market, and compares it with the paper's figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.ragged import Bool, Float64, Int32, Int64, starts_from_sizes
from reclick.errors import UsageError
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location, as_path
from reclick.runtime.interrupts import hold_interrupts
from reclick.runtime.jit import kernel
from reclick.runtime.outputs import check_targets, write_files
from reclick.simulation.ads import make_ids
from reclick.simulation.market import (
    WEEK_MILLISECONDS,
    Market,
    SimulationSettings,
    draw_page_sizes,
    fill_pages,
    make_market,
)
from reclick.simulation.page_rule import PageRule, fill_pages_by_rule
from reclick.simulation.queries import Queries
from reclick.simulation.users import (
    BOT,
    DEMAND,
    ONE_CLICK,
    USER_TYPES,
    attractiveness,
    behaviour_parameters,
    browse_page,
    draw_outcomes,
    draw_user_type,
    satisfaction,
)
from reclick.simulation.vocabulary import TOPIC_NAMES, brand_of_topic

__all__ = ["Simulation", "Truth", "simulate"]

Int8 = npt.NDArray[np.int8]

TABLE_FILES = (
    *("ads.parquet", "labels.parquet", "bids.parquet", "truth.parquet", "truth_words.parquet"),
    *("truth_brands.parquet", "truth_queries.parquet", "truth_sessions.parquet", "truth.json"),
)
FIRST_MONDAY = np.datetime64("2024-01-01", "ms")
BLOCK_SESSIONS = 1 << 18  # drawn at a time, so that additional memory does not grow with the log
MAX_LABELS = 5_000
# An editor grades PERCEIVED_WEIGHT · appeal + quality of the landing page + an error.
PERCEIVED_WEIGHT, EDITOR_ERROR_STD = 1.0, 0.5
GRADE_CUTS = (-2.0, -1.0, 0.0, 1.0)  # where grades 1, 2, 3 and 4 begin


@dataclass(frozen=True, slots=True)
class Truth:
    """The true parameters of the simulated log."""

    pairs: pa.Table  # query, ad, attractiveness, satisfaction: every pair that was shown
    words: pa.Table  # topic, word, effect in the topic, effect everywhere
    brands: pa.Table  # brand, topic, pull, trust
    queries: pa.Table  # query, topic, brand, share, week, attention, share of each user type
    sessions: pa.Table  # session_id, user type, satisfied
    users: dict[str, Any]  # share of each user type in all sessions, and their parameters
    settings: dict[str, Any]  # the arguments of `simulate`


@dataclass(frozen=True, slots=True)
class Simulation:
    """Weeks of sessions, the ads shown in them, editors' labels, and the true parameters."""

    weeks: list[pa.Table]  # session_id, timestamp, query, ads, clicks, and further columns
    ads: pa.Table  # ad, title, description, display_url
    labels: pa.Table  # query, ad, relevance 0 … 4
    truth: Truth
    bids: pa.Table  # query, ad, bid per click: all candidates of every query

    @check_arguments
    def save(self, folder: Location, *, overwrite: bool = False) -> list[AnyPath]:
        """Write all tables and truth.json to a folder; returns their paths.

        They appear together when all are complete; files that Reclick did not write are replaced
        only with `overwrite`. The files are week1.parquet …, ads.parquet, labels.parquet,
        bids.parquet, truth.parquet, truth_words.parquet, truth_brands.parquet,
        truth_queries.parquet, truth_sessions.parquet and truth.json.

        >>> simulate(100, queries=5).save("market")  # doctest: +SKIP
        """
        check_simulation_folder(folder, len(self.weeks), overwrite=overwrite)
        writers: dict[str, Callable[[Path], object]] = {
            name: partial(pq.write_table, table, compression="zstd")
            for name, table in self._tables().items()
        }
        facts = {**self.truth.settings, "users": self.truth.users}
        text = json.dumps(facts, indent=2, default=int) + "\n"
        writers["truth.json"] = lambda path: path.write_text(text, encoding="utf-8")
        return write_files(folder, writers, overwrite=overwrite)

    def _tables(self) -> dict[str, pa.Table]:
        weeks = {f"week{number}.parquet": week for number, week in enumerate(self.weeks, start=1)}
        return {
            **weeks,
            "ads.parquet": self.ads,
            "labels.parquet": self.labels,
            "bids.parquet": self.bids,
            "truth.parquet": self.truth.pairs,
            "truth_words.parquet": self.truth.words,
            "truth_brands.parquet": self.truth.brands,
            "truth_queries.parquet": self.truth.queries,
            "truth_sessions.parquet": self.truth.sessions,
        }


@check_arguments
def simulate(
    sessions: int = 100_000,
    *,
    weeks: int = 3,
    queries: int | None = None,
    ads_per_query: int = 12,
    page: tuple[int, int] = (1, 4),
    bots: float = 0.0,
    seed: int = 0,
    outcomes: bool = False,
    page_rule: PageRule | None = None,
) -> Simulation:
    """Simulate `weeks` weeks of `sessions` sessions each, on pages of page[0] to page[1] ads.

    The same seed gives the same files, byte for byte. With `outcomes` the sessions also have
    `dwell_seconds` and `conversions`, which depend on whether a click satisfied. A `page_rule`
    chooses pages and prices in place of the market's own auction; see `simulate_auctions`.

    >>> market = simulate(1_000, weeks=2, queries=20, seed=7)
    >>> [len(week) for week in market.weeks]
    [1000, 1000]
    """
    settings = SimulationSettings(sessions, weeks, queries, ads_per_query, page, bots, seed)
    rng = np.random.default_rng([seed, 0])
    market = make_market(settings, rng)
    impressions = np.zeros(market.candidates.shape, np.int64)  # [query, candidate]
    weekly_draws = []
    for week in range(weeks):
        weekly_draws.append(
            _draw_week(market, settings, week, impressions, page_rule, outcomes=outcomes)
        )
        if page_rule is not None:
            page_rule.learn(weekly_draws[-1][0], market.ads)
    tables, user_types, satisfied = zip(*weekly_draws, strict=True)
    truth = Truth(
        pairs=_pair_table(market, np.flatnonzero(impressions)),
        words=market.ad_appeal.words,
        brands=market.ad_appeal.brands,
        queries=_query_table(market),
        sessions=_session_table(tables, user_types, satisfied),
        users=_user_facts(market, settings.bots),
        settings=asdict(settings) | ({"outcomes": True} if outcomes else {}),
    )
    labels = _draw_labels(market, impressions.reshape(-1), rng)
    return Simulation(list(tables), market.ads, labels, truth, _bid_table(market))


def _draw_labels(market: Market, impressions: Int64, rng: np.random.Generator) -> pa.Table:
    """Draw editors' grades of pairs, from the appeal of the ad and its landing page, with errors.

    The pairs with the most impressions have grades.
    """
    pairs_on_pages = np.flatnonzero(impressions)
    pairs = np.sort(
        pairs_on_pages[np.argsort(-impressions[pairs_on_pages], kind="stable")[:MAX_LABELS]]
    )
    error = EDITOR_ERROR_STD * rng.standard_normal(len(pairs))
    relevance = PERCEIVED_WEIGHT * market.appeal.reshape(-1) + market.quality.reshape(-1)
    grade = np.searchsorted(GRADE_CUTS, relevance[pairs] + error)
    table = market.name_pairs(pairs)
    return table.append_column("relevance", pa.array(grade.astype(np.int64)))


def _pair_table(market: Market, pairs: Int64) -> pa.Table:
    user_types = market.user_types[pairs // market.candidates.shape[1]]
    values = {
        "attractiveness": attractiveness(market.appeal.reshape(-1)[pairs]),
        "satisfaction": satisfaction(market.quality.reshape(-1)[pairs], user_types),
    }
    table = market.name_pairs(pairs)
    for name, value in values.items():
        table = table.append_column(name, pa.array(value))
    return table


def _bid_table(market: Market) -> pa.Table:
    pairs = market.name_pairs(np.arange(market.bid.size))
    return pairs.append_column("bid", pa.array(market.bid.reshape(-1)))


def _query_table(market: Market) -> pa.Table:
    queries = market.queries
    brand = brand_of_topic(queries.topic, queries.brand)
    columns = {
        "query": queries.text,
        "topic": pa.array(TOPIC_NAMES[queries.topic], pa.string()),
        "brand": pa.array(brand, pa.string(), mask=queries.brand < 0),
        "share": queries.share,
        "week": queries.week + 1,
        "attention": market.attention,
    }
    user_types = dict(zip(USER_TYPES[:BOT], market.user_types.T, strict=True))
    return pa.table({**columns, **user_types})


def _session_table(
    weeks: tuple[pa.Table, ...], user_types: tuple[Int8, ...], satisfied: tuple[Bool, ...]
) -> pa.Table:
    ids = pa.chunked_array([chunk for week in weeks for chunk in week["session_id"].chunks])
    codes = pa.array(np.concatenate(user_types))
    kind = pa.DictionaryArray.from_arrays(codes, pa.array(USER_TYPES))
    return pa.table({"session_id": ids, "kind": kind, "satisfied": np.concatenate(satisfied)})


def _user_facts(market: Market, bots: float) -> dict[str, Any]:
    people = market.queries.share @ market.user_types * (1.0 - bots)
    shares = dict(zip(USER_TYPES, [*people.tolist(), bots], strict=True))
    return {"shares": shares, **behaviour_parameters()}


def check_simulation_folder(folder: Location, weeks: int, *, overwrite: bool = False) -> None:
    """Raise if a folder has foreign files, or more weeks, which would mix two simulations."""
    place = as_path(folder)
    names = [*(f"week{number}.parquet" for number in range(1, weeks + 1)), *TABLE_FILES]
    check_targets([place / name for name in names], overwrite=overwrite)
    for path in place.glob("week*.parquet"):
        number = re.fullmatch(r"week(\d+)\.parquet", path.name)
        if number and int(number[1]) > weeks:
            raise UsageError(
                f"{path} is of another simulation, and this one has {weeks} weeks. Remove it, or "
                "save to another folder."
            )


def _draw_week(
    market: Market,
    settings: SimulationSettings,
    week: int,
    impressions: Int64,
    page_rule: PageRule | None,
    *,
    outcomes: bool,
) -> tuple[pa.Table, Int8, Bool]:
    """Draw the sessions of a week, their user types, and which users are satisfied.

    Adds the impressions of the week to `impressions` [query, candidate].
    """
    available = market.week[market.candidates] <= week  # [query, candidate]
    blocks = [
        _draw_block(
            market, available, settings, week, start, impressions, page_rule, outcomes=outcomes
        )
        for start in range(0, settings.sessions, BLOCK_SESSIONS)
    ]
    tables, user_types, satisfied = zip(*blocks, strict=True)
    return pa.concat_tables(tables), np.concatenate(user_types), np.concatenate(satisfied)


def _draw_block(
    market: Market,
    available: Bool,
    settings: SimulationSettings,
    week: int,
    start: int,
    impressions: Int64,
    page_rule: PageRule | None,
    *,
    outcomes: bool,
) -> tuple[pa.Table, Int8, Bool]:
    rng = np.random.default_rng([settings.seed, 1 + week, start])
    end = min(start + BLOCK_SESSIONS, settings.sessions)
    query = _draw_queries(market.queries, end - start, week, rng)
    sizes = draw_page_sizes(settings.page, np.count_nonzero(available, axis=1)[query], rng)
    page_starts = starts_from_sizes(sizes)
    candidate, click = np.zeros(page_starts[-1], np.int32), np.zeros(page_starts[-1], np.int32)
    click_counts, user_type = np.zeros(end - start, np.int64), np.zeros(end - start, np.int8)
    satisfied, bids, prices = np.zeros(end - start, np.bool_), None, None
    # A separate generator for rules and one-click users leaves the other draws unchanged.
    apart = np.random.default_rng([settings.seed, 1 + week, start, 1])
    if page_rule is None:
        with hold_interrupts():
            fill_pages(query, page_starts, available, market.value, rng, candidate, impressions)
    else:
        bids, prices = fill_pages_by_rule(
            page_rule, market, query, sizes, available, apart, candidate
        )
        np.add.at(impressions, (np.repeat(query, sizes), candidate), 1)
    with hold_interrupts():
        n_clicks = _fill_clicks(
            query,
            page_starts,
            candidate,
            market.appeal,
            market.quality,
            market.attention,
            market.user_types,
            float(settings.bots),
            rng,
            click,
            click_counts,
            user_type,
            satisfied,
        )
    one_click = np.flatnonzero((user_type == ONE_CLICK) & (click_counts > 0))
    position = click[np.cumsum(click_counts)[one_click] - 1]
    landing_ad = candidate[page_starts[one_click] + position - 1]
    demand = DEMAND[ONE_CLICK] + apart.standard_normal(len(one_click))
    satisfied[one_click] = market.quality[query[one_click], landing_ad] > demand
    ad = market.candidates[np.repeat(query, sizes), candidate]
    columns = {
        "session_id": make_ids(f"w{week + 1}-", 8, start, end),
        "timestamp": _draw_timestamps(week, start, end, settings.sessions, rng),
        "query": market.queries.text.take(pa.array(query)),
        "ads": _to_lists(page_starts, market.ads["ad"].combine_chunks().take(pa.array(ad))),
        "clicks": _to_lists(starts_from_sizes(click_counts), pa.array(click[:n_clicks])),
    }
    if prices is not None:
        columns["bids"] = _to_lists(page_starts, pa.array(bids))
        columns["prices"] = _to_lists(page_starts, pa.array(prices))
    if outcomes:
        later = np.random.default_rng([settings.seed, 1 + week, start, 2])
        columns |= _outcome_columns(click_counts, satisfied, later)
    return pa.table(columns), user_type, satisfied


def _outcome_columns(
    click_counts: Int64, satisfied: Bool, rng: np.random.Generator
) -> dict[str, pa.Array]:
    """Draw the outcome of each click; only the last click of a session can have satisfied."""
    starts = starts_from_sizes(click_counts)
    of_click = np.zeros(starts[-1], np.bool_)
    has_click = click_counts > 0
    of_click[starts[1:][has_click] - 1] = satisfied[has_click]
    dwell, conversions = draw_outcomes(of_click, rng)
    return {
        "dwell_seconds": _to_lists(starts, pa.array(dwell)),
        "conversions": _to_lists(starts, pa.array(conversions)),
    }


def _draw_queries(queries: Queries, sessions: int, week: int, rng: np.random.Generator) -> Int64:
    available = np.flatnonzero(queries.week <= week)
    edges = np.cumsum(queries.share[available])
    uniform = rng.random(sessions) * edges[-1]
    query: Int64 = available[np.searchsorted(edges[:-1], uniform, side="right")]
    return query


@kernel
def _fill_clicks(
    query: Int64,  # [session]
    page_starts: Int64,  # [session + 1] where each page starts in candidate
    candidate: Int32,  # [impression]
    appeal: Float64,  # [query, candidate]
    quality: Float64,  # [query, candidate]
    attention: Float64,  # [query]
    user_type_shares: Float64,  # [query, user type]
    bots: float,
    rng: np.random.Generator,
    click: Int32,  # [click] filled
    click_counts: Int64,  # [session] filled
    user_type: Int8,  # [session] filled
    satisfied: Bool,  # [session] filled, except for one-click users
) -> int:
    """Let a user visit each page, and return the number of clicks."""
    n_clicks = 0
    longest = np.max(np.diff(page_starts))
    page_appeal, page_quality, attraction = np.empty(longest), np.empty(longest), np.empty(longest)
    for session in range(len(query)):
        q, start = query[session], page_starts[session]
        n = page_starts[session + 1] - start
        is_bot = rng.random() < bots
        user_type[session] = BOT if is_bot else draw_user_type(user_type_shares[q], rng)
        if not is_bot and rng.random() >= attention[q]:
            continue
        for position in range(n):
            page_appeal[position] = appeal[q, candidate[start + position]]
            page_quality[position] = quality[q, candidate[start + position]]
        click_counts[session], satisfied[session] = browse_page(
            user_type[session],
            page_appeal[:n],
            page_quality[:n],
            rng,
            attraction[:n],
            click[n_clicks:],
        )
        n_clicks += click_counts[session]
    return n_clicks


def _draw_timestamps(
    week: int, start: int, end: int, sessions: int, rng: np.random.Generator
) -> pa.TimestampArray:
    """Draw increasing, distinct times within the block's part of the week."""
    first, last = (WEEK_MILLISECONDS * session // sessions for session in (start, end))
    count = end - start
    offsets = np.sort(rng.integers(0, last - first - count, count, endpoint=True))
    milliseconds = week * WEEK_MILLISECONDS + first + offsets + np.arange(count)
    return pa.array(FIRST_MONDAY + milliseconds.astype("timedelta64[ms]"), pa.timestamp("ms"))


def _to_lists(starts: Int64, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), values)
