"""What is true of a simulated market, as tables: what a model should find in the log."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reclick.simulation import users
from reclick.simulation.phrases import TOPIC_NAMES
from reclick.simulation.queries import brand_names

if TYPE_CHECKING:
    from reclick.data.batch import Int64
    from reclick.simulation.market import Market
    from reclick.simulation.settings import Settings
    from reclick.simulation.weeks import Int8


@dataclass(frozen=True, slots=True)
class Truth:
    """What the log was drawn from."""

    pairs: pa.Table  # query, ad, attractiveness, satisfaction: every pair that was shown
    words: pa.Table  # topic, word, effect in the topic, effect everywhere
    brands: pa.Table  # brand, topic, pull, trust
    queries: (
        pa.Table
    )  # query, topic, brand asked for, share, week, attention, and the share of each kind of user
    sessions: pa.Table  # session_id, kind of user
    users: dict[str, Any]  # the share of each kind in all sessions, and what drives them
    settings: dict[str, Any]  # what `simulate` was called with


def make_truth(
    market: Market, settings: Settings, shown: Int64, weeks: list[pa.Table], kinds: list[Int8]
) -> Truth:
    """Gather the truth; `shown` pairs are numbers into the flat [query, place] arrays."""
    return Truth(
        pairs=_pair_table(market, shown),
        words=market.looks.words,
        brands=market.looks.brands,
        queries=_query_table(market),
        sessions=_session_table(weeks, kinds),
        users=_user_facts(market, settings.bots),
        settings=asdict(settings),
    )


def name_pairs(market: Market, pairs: Int64) -> pa.Table:
    """The query and the ad of each pair."""
    query = pa.array(pairs // market.pool.shape[1])
    ad = pa.array(market.pool.reshape(-1)[pairs])
    return pa.table(
        {"query": market.queries.text.take(query), "ad": market.ads["ad"].combine_chunks().take(ad)}
    )


def _pair_table(market: Market, shown: Int64) -> pa.Table:
    attractiveness = users.first_look(market.appeal.reshape(-1)[shown])
    satisfaction = users.ends_need(
        market.worth.reshape(-1)[shown], market.shares[shown // market.pool.shape[1]]
    )
    found = name_pairs(market, shown).append_column("attractiveness", pa.array(attractiveness))
    return found.append_column("satisfaction", pa.array(satisfaction))


def _query_table(market: Market) -> pa.Table:
    queries = market.queries
    topic = pa.array(TOPIC_NAMES[queries.topic], pa.string())
    brand = pa.array(brand_names(queries.topic, queries.brand), pa.string(), mask=queries.brand < 0)
    facts = {"share": queries.share, "week": queries.week + 1, "attention": market.attention}
    shares = {
        kind: market.shares[:, number] for number, kind in enumerate(users.KINDS[: users.BOT])
    }
    return pa.table({"query": queries.text, "topic": topic, "brand": brand, **facts, **shares})


def _session_table(weeks: list[pa.Table], kinds: list[Int8]) -> pa.Table:
    names = pa.chunked_array([chunk for week in weeks for chunk in week["session_id"].chunks])
    kind = pa.DictionaryArray.from_arrays(pa.array(np.concatenate(kinds)), pa.array(users.KINDS))
    return pa.table({"session_id": names, "kind": kind})


def _user_facts(market: Market, bots: float) -> dict[str, Any]:
    shares = [*(market.queries.share @ market.shares * (1.0 - bots)).tolist(), bots]
    named = ("MOOD", "DEMAND", "FROM_BELOW", "BOREDOM", "LET_DOWN", "NEARLY")
    return {
        "shares": dict(zip(users.KINDS, shares, strict=True)),
        **{name.lower(): getattr(users, name) for name in named},
    }
