"""A week of sessions, drawn block by block, so that the memory in use beyond the log itself does not grow with the week."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.runtime.jit import kernel
from reclick.simulation.ad_selection import draw_sizes, fill_pages
from reclick.simulation.adcopy import ids
from reclick.simulation.settings import WEEK
from reclick.simulation.users import BOT, draw_kind, visit

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32, Int64
    from reclick.simulation.market import Market
    from reclick.simulation.queries import Queries
    from reclick.simulation.settings import Settings

Int8 = npt.NDArray[np.int8]

FIRST_MONDAY = np.datetime64("2024-01-01", "ms")
BLOCK = 1 << 18  # sessions


def draw_week(
    market: Market, settings: Settings, week: int, impressions: Int64
) -> tuple[pa.Table, Int8]:
    """Draw a week's sessions and the kind of each one's user; impressions [query, place] are added to."""
    there = market.week[market.pool] <= week  # [query, place]
    blocks = [
        _draw_block(market, there, settings, week, start, impressions)
        for start in range(0, settings.sessions, BLOCK)
    ]
    return pa.concat_tables(table for table, _ in blocks), np.concatenate(
        [kind for _, kind in blocks]
    )


def _draw_block(
    market: Market,
    there: npt.NDArray[np.bool_],
    settings: Settings,
    week: int,
    start: int,
    impressions: Int64,
) -> tuple[pa.Table, Int8]:
    rng = np.random.default_rng([settings.seed, 1 + week, start])
    end = min(start + BLOCK, settings.sessions)
    query = _draw_queries(market.queries, end - start, week, rng)
    sizes = draw_sizes(settings.page, np.count_nonzero(there, axis=1)[query], rng)
    pages = np.concatenate([[0], np.cumsum(sizes)])
    place, click = np.zeros(pages[-1], np.int32), np.zeros(pages[-1], np.int32)
    counts, kind = np.zeros(end - start, np.int64), np.zeros(end - start, np.int8)
    fill_pages(query, pages, there, market.value, rng, place, impressions)
    truth = (market.appeal, market.worth, market.attention, market.shares, float(settings.bots))
    clicks = _fill_clicks(query, pages, place, *truth, rng, click, counts, kind)
    shown = np.repeat(query, sizes)
    columns = {
        "session_id": ids(f"w{week + 1}-", 8, start, end),
        "timestamp": _timestamps(week, start, end, settings.sessions, rng),
        "query": market.queries.text.take(pa.array(query)),
        "ads": _lists(
            pages, market.ads["ad"].combine_chunks().take(pa.array(market.pool[shown, place]))
        ),
        "clicks": _lists(np.concatenate([[0], np.cumsum(counts)]), pa.array(click[:clicks])),
    }
    return pa.table(columns), kind


def _draw_queries(queries: Queries, sessions: int, week: int, rng: np.random.Generator) -> Int64:
    there = np.flatnonzero(queries.week <= week)
    edges = np.cumsum(queries.share[there])
    drawn: Int64 = there[
        np.searchsorted(edges[:-1], rng.random(sessions) * edges[-1], side="right")
    ]
    return drawn


@kernel
def _fill_clicks(
    query: Int64,  # [session]
    pages: Int64,  # [session + 1] where each page starts in place
    place: Int32,  # [impression]
    appeal: Float64,  # [query, place]
    worth: Float64,  # [query, place]
    attention: Float64,  # [query]
    shares: Float64,  # [query, kind]
    bots: float,
    rng: np.random.Generator,
    click: Int32,  # [click] filled
    counts: Int64,  # [session] filled
    kind: Int8,  # [session] filled
) -> int:
    """Let a user see each page, and return the number of clicks."""
    clicked = 0
    longest = np.max(np.diff(pages))
    look, page, seen = np.empty(longest), np.empty(longest), np.empty(longest)
    for session in range(len(query)):
        q, n = query[session], pages[session + 1] - pages[session]
        kind[session] = BOT if rng.random() < bots else draw_kind(shares[q], rng)
        if kind[session] != BOT and rng.random() >= attention[q]:
            continue
        for position in range(n):
            at = place[pages[session] + position]
            look[position], page[position] = appeal[q, at], worth[q, at]
        counts[session] = visit(kind[session], look[:n], page[:n], rng, seen[:n], click[clicked:])
        clicked += counts[session]
    return clicked


def _timestamps(
    week: int, start: int, end: int, sessions: int, rng: np.random.Generator
) -> pa.TimestampArray:
    """Draw times that increase, all different, inside the block's part of the week."""
    opens, closes = (WEEK * at // sessions for at in (start, end))
    passed = (
        opens
        + np.sort(rng.integers(0, closes - opens - (end - start), end - start, endpoint=True))
        + np.arange(end - start)
    )
    return pa.array(
        FIRST_MONDAY + (week * WEEK + passed).astype("timedelta64[ms]"), pa.timestamp("ms")
    )


def _lists(starts: Int64, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), values)
