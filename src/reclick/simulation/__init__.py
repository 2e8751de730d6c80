"""A simulated market: queries, ads of real words, an auction, and users of several types.

No model of Reclick describes their clicks. The true parameters are known and saved with the log.
docs/simulation.md describes the market, and compares it with the paper's figures.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.errors import UsageError
from reclick.runtime.filesystem import AnyPath, Location, as_path, write_files
from reclick.simulation.market import Market, SimulationSettings, make_market
from reclick.simulation.users import (
    BOT,
    USER_TYPES,
    attractiveness,
    behaviour_parameters,
    satisfaction,
)
from reclick.simulation.vocabulary import TOPIC_NAMES, brand_of_topic
from reclick.simulation.weeks import draw_week

if TYPE_CHECKING:
    from reclick.data.batch import Int64
    from reclick.simulation.weeks import Int8

__all__ = ["Simulation", "Truth", "simulate"]

MAX_LABELS = 10_000
EDITOR_ERROR_STD = 0.5  # of an editor's error, on the scale of the quality of landing pages
GRADE_CUTS = (-0.7, 0.0, 0.7, 1.4)  # qualities at which grades 1, 2, 3 and 4 begin


@dataclass(frozen=True, slots=True)
class Truth:
    """The true parameters that the log was drawn with."""

    pairs: pa.Table  # query, ad, attractiveness, satisfaction: every pair that was shown
    words: pa.Table  # topic, word, effect in the topic, effect everywhere
    brands: pa.Table  # brand, topic, pull, trust
    queries: pa.Table  # query, topic, brand, share, week, attention, share of each user type
    sessions: pa.Table  # session_id, user type
    users: dict[str, Any]  # share of each user type in all sessions, and their parameters
    settings: dict[str, Any]  # the arguments of `simulate`


@dataclass(frozen=True, slots=True)
class Simulation:
    """Weeks of sessions, the ads shown in them, editors' labels, and the true parameters."""

    weeks: list[pa.Table]  # session_id, timestamp, query, ads, clicks
    ads: pa.Table  # ad, title, description, display_url
    labels: pa.Table  # query, ad, relevance 0 … 4
    truth: Truth

    def save(self, folder: Location) -> list[AnyPath]:
        """Write all tables and truth.json to a folder, each file atomically; returns their paths.

        The files are week1.parquet …, ads.parquet, labels.parquet, truth.parquet,
        truth_words.parquet, truth_brands.parquet, truth_queries.parquet, truth_sessions.parquet
        and truth.json.

        >>> simulate(100, queries=5).save("market")  # doctest: +SKIP
        """
        _check_folder(as_path(folder), len(self.weeks))
        writers = {
            name: partial(pq.write_table, table, compression="zstd")
            for name, table in self._tables().items()
        }
        facts = {**self.truth.settings, "users": self.truth.users}
        text = json.dumps(facts, indent=2, default=int) + "\n"
        return write_files(
            folder, {**writers, "truth.json": lambda path: path.write_text(text, encoding="utf-8")}
        )

    def _tables(self) -> dict[str, pa.Table]:
        weeks = {f"week{number}.parquet": week for number, week in enumerate(self.weeks, start=1)}
        return {
            **weeks,
            "ads.parquet": self.ads,
            "labels.parquet": self.labels,
            "truth.parquet": self.truth.pairs,
            "truth_words.parquet": self.truth.words,
            "truth_brands.parquet": self.truth.brands,
            "truth_queries.parquet": self.truth.queries,
            "truth_sessions.parquet": self.truth.sessions,
        }


def simulate(
    sessions: int = 100_000,
    *,
    weeks: int = 3,
    queries: int | None = None,
    ads_per_query: int = 12,
    page: tuple[int, int] = (1, 4),
    bots: float = 0.0,
    seed: int = 0,
) -> Simulation:
    """Draw `sessions` sessions for each of `weeks` weeks, on pages of page[0] to page[1] ads.

    The same seed gives the same files, byte for byte.

    >>> market = simulate(1_000, weeks=2, queries=20, seed=7)
    >>> [len(week) for week in market.weeks]
    [1000, 1000]
    """
    settings = SimulationSettings(sessions, weeks, queries, ads_per_query, page, bots, seed)
    rng = np.random.default_rng([seed, 0])
    market = make_market(settings, rng)
    impressions = np.zeros(market.candidates.shape, np.int64)  # [query, candidate]
    tables, user_types = zip(
        *(draw_week(market, settings, week, impressions) for week in range(weeks)), strict=True
    )
    truth = Truth(
        pairs=_pair_table(market, np.flatnonzero(impressions)),
        words=market.ad_appeal.words,
        brands=market.ad_appeal.brands,
        queries=_query_table(market),
        sessions=_session_table(tables, user_types),
        users=_user_facts(market, settings.bots),
        settings=asdict(settings),
    )
    labels = _draw_labels(market, impressions.reshape(-1), rng)
    return Simulation(list(tables), market.ads, labels, truth)


def _draw_labels(market: Market, impressions: Int64, rng: np.random.Generator) -> pa.Table:
    """Editors' grades of pairs (query, ad): the quality of the landing page, with an error.

    Pairs are sampled by their impressions, without replacement; all of them if there are few.
    """
    shown = np.flatnonzero(impressions)
    waiting_time = rng.standard_exponential(len(shown)) / impressions[shown]
    pairs = np.sort(shown[np.argsort(waiting_time, kind="stable")[:MAX_LABELS]])
    error = EDITOR_ERROR_STD * rng.standard_normal(len(pairs))
    grade = np.searchsorted(GRADE_CUTS, market.quality.reshape(-1)[pairs] + error)
    named = market.name_pairs(pairs)
    return named.append_column("relevance", pa.array(grade.astype(np.int64)))


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


def _session_table(weeks: tuple[pa.Table, ...], user_types: tuple[Int8, ...]) -> pa.Table:
    ids = pa.chunked_array([chunk for week in weeks for chunk in week["session_id"].chunks])
    codes = pa.array(np.concatenate(user_types))
    kind = pa.DictionaryArray.from_arrays(codes, pa.array(USER_TYPES))
    return pa.table({"session_id": ids, "kind": kind})


def _user_facts(market: Market, bots: float) -> dict[str, Any]:
    people = market.queries.share @ market.user_types * (1.0 - bots)
    shares = dict(zip(USER_TYPES, [*people.tolist(), bots], strict=True))
    return {"shares": shares, **behaviour_parameters()}


def _check_folder(folder: AnyPath, weeks: int) -> None:
    """Refuse a folder with more weeks than will be written: it would hold two simulations."""
    for path in folder.glob("week*.parquet"):
        number = re.fullmatch(r"week(\d+)\.parquet", path.name)
        if number and int(number[1]) > weeks:
            raise UsageError(
                f"{path} is of another simulation, and this one has {weeks} weeks. Remove it, or "
                "save to another folder."
            )
