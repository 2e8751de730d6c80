"""The sessions of a week: queries, pages by auction, clicks and times.

They are drawn block by block, so that the memory in use besides the log itself stays the same
however large the week is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.data.ragged import starts_from_sizes
from reclick.runtime.jit import kernel
from reclick.simulation.ads import make_ids
from reclick.simulation.market import WEEK_MILLISECONDS
from reclick.simulation.users import BOT, browse_page, draw_user_type

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32, Int64
    from reclick.simulation.market import Market, SimulationSettings
    from reclick.simulation.queries import Queries

Bool = npt.NDArray[np.bool_]
Int8 = npt.NDArray[np.int8]

FIRST_MONDAY = np.datetime64("2024-01-01", "ms")
BLOCK_SESSIONS = 1 << 18
AUCTION_NOISE_STD = 1.0  # of the noise on the log of bid × estimated attractiveness


def draw_week(
    market: Market, settings: SimulationSettings, week: int, impressions: Int64
) -> tuple[pa.Table, Int8]:
    """Draw the sessions of a week and their user types; adds to impressions [query, candidate]."""
    available = market.week[market.candidates] <= week  # [query, candidate]
    blocks = [
        _draw_block(market, available, settings, week, start, impressions)
        for start in range(0, settings.sessions, BLOCK_SESSIONS)
    ]
    tables, user_types = zip(*blocks, strict=True)
    return pa.concat_tables(tables), np.concatenate(user_types)


def _draw_block(
    market: Market,
    available: Bool,
    settings: SimulationSettings,
    week: int,
    start: int,
    impressions: Int64,
) -> tuple[pa.Table, Int8]:
    rng = np.random.default_rng([settings.seed, 1 + week, start])
    end = min(start + BLOCK_SESSIONS, settings.sessions)
    query = _draw_queries(market.queries, end - start, week, rng)
    sizes = _draw_page_sizes(settings.page, np.count_nonzero(available, axis=1)[query], rng)
    page_starts = starts_from_sizes(sizes)
    candidate, click = np.zeros(page_starts[-1], np.int32), np.zeros(page_starts[-1], np.int32)
    click_counts, user_type = np.zeros(end - start, np.int64), np.zeros(end - start, np.int8)
    _fill_pages(query, page_starts, available, market.value, rng, candidate, impressions)
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
    )
    ad = market.candidates[np.repeat(query, sizes), candidate]
    columns = {
        "session_id": make_ids(f"w{week + 1}-", 8, start, end),
        "timestamp": _draw_timestamps(week, start, end, settings.sessions, rng),
        "query": market.queries.text.take(pa.array(query)),
        "ads": _to_lists(page_starts, market.ads["ad"].combine_chunks().take(pa.array(ad))),
        "clicks": _to_lists(starts_from_sizes(click_counts), pa.array(click[:n_clicks])),
    }
    return pa.table(columns), user_type


def _draw_queries(queries: Queries, sessions: int, week: int, rng: np.random.Generator) -> Int64:
    available = np.flatnonzero(queries.week <= week)
    edges = np.cumsum(queries.share[available])
    uniform = rng.random(sessions) * edges[-1]
    selected: Int64 = available[np.searchsorted(edges[:-1], uniform, side="right")]
    return selected


def _draw_page_sizes(page: tuple[int, int], available: Int64, rng: np.random.Generator) -> Int64:
    """The number of ads of each page: n with probability ∝ n⁴, at most the ads available."""
    sizes = np.arange(page[0], page[1] + 1)
    size: Int64 = rng.choice(sizes, len(available), p=sizes**4 / np.sum(sizes**4))
    return np.minimum(size, available)


@kernel
def _fill_pages(
    query: Int64,  # [session]
    page_starts: Int64,  # [session + 1] where each page starts in candidate
    available: Bool,  # [query, candidate]
    value: Float64,  # [query, candidate]
    rng: np.random.Generator,
    candidate: Int32,  # [impression] filled
    impressions: Int64,  # [query, candidate] added to
) -> None:
    """Run one auction per session: its page shows the best candidates of the query, best first."""
    score = np.empty(len(candidate))
    for session in range(len(query)):
        q, page = query[session], slice(page_starts[session], page_starts[session + 1])
        _run_auction(value[q], available[q], rng, candidate[page], score[page])
        for winner in candidate[page]:
            impressions[q, winner] += 1


@kernel
def _run_auction(
    value: Float64,  # [candidate]
    available: Bool,  # [candidate]
    rng: np.random.Generator,
    winners: Int32,  # [position] filled
    score: Float64,  # [position] filled
) -> None:
    """Insert each candidate into the sorted winners; pages are short."""
    score[:] = -np.inf
    for candidate in range(len(value)):
        if not available[candidate]:
            continue
        own_score = value[candidate] + AUCTION_NOISE_STD * rng.standard_normal()
        position = len(winners)
        while position > 0 and score[position - 1] < own_score:
            if position < len(winners):
                score[position], winners[position] = score[position - 1], winners[position - 1]
            position -= 1
        if position < len(winners):
            score[position], winners[position] = own_score, candidate


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
        click_counts[session] = browse_page(
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
    passed = week * WEEK_MILLISECONDS + first + offsets + np.arange(count)
    return pa.array(FIRST_MONDAY + passed.astype("timedelta64[ms]"), pa.timestamp("ms"))


def _to_lists(starts: Int64, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), values)
