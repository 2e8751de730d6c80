"""A market that is made up: queries, ads of real words, and the clicks of users who follow `MultiClick` exactly.

Attractiveness is the paper's assumption made true: θ(q, d) is the mean over the ad's tokens of a rate that the word has in the query's
topic. Every word has one rate, and in each topic some words have one of their own. Satisfaction is drawn for each ad, whatever it
looks like. Fatigue and transitions are the same for all queries. So what a model should find in the log is known: it is in `truth`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reclick.compiled import compiled
from reclick.errors import SettingError, clear_write_errors
from reclick.sequences import READINGS, sample
from reclick.simulation_words import BRAND_ENDS, BRAND_STARTS, CALLS, KINDS, LINKS, TOPICS
from reclick.text import AdTokens, tokenise

if TYPE_CHECKING:
    from collections.abc import Callable

    from reclick.batch import Float64, Int32, Int64

    Texts = npt.NDArray[np.object_]

FIRST_MONDAY = np.datetime64("2024-01-01", "ms")
WEEK = 7 * 24 * 60 * 60 * 1000  # milliseconds
HEAD = 0.5  # of the queries, the more frequent half: there from the first week
NEW_QUERIES, NEW_ADS = 0.1, 0.05  # of the rest of the queries, and of the ads, that are new in each week after the first
OWN_RATE = 0.3  # of the words have a rate of their own in a topic
RATE = (1.0, 1.0)  # Beta of the words' rates: words differ a lot, ads (means of a dozen words) less
SATISFACTION = (4.0, 4.0)  # Beta of the ads' satisfaction
ORDER_NOISE = 0.12  # of the auction, on the scale of attractiveness
GO_ON = {"leftover": (0.66, 0.7), "examination": (0.6, 0.65), "normalised": (0.33, 0.6)}  # 1 − η_0, and its factor for each click


@dataclass(frozen=True, slots=True)
class Truth:
    """What the clicks were drawn from."""

    pairs: pa.Table  # query, ad, attractiveness, satisfaction: every ad that may be shown for the query
    words: pa.Table  # topic, word, rate: attractiveness is the mean of these over the ad's tokens
    queries: pa.Table  # query, topic, share (of the sessions, once all queries are there), week (the first it is seen in)
    eta: Float64  # [clicks so far] fatigue; the last is 1
    gamma: Float64  # [last, position] transitions; row 0 is the start
    settings: dict[str, Any]  # what `simulate` was called with


@dataclass(frozen=True, slots=True)
class Simulation:
    """Weeks of sessions, the ads shown in them, and the truth behind them."""

    weeks: list[pa.Table]  # session_id, timestamp, query, ads, clicks
    ads: pa.Table  # ad, title, description, display_url
    truth: Truth

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write week1.parquet …, ads.parquet, truth*.parquet and truth.json, each whole or not at all, and return their paths.

        >>> simulate(100, queries=5).save("market")  # doctest: +SKIP
        """
        folder = Path(folder)
        _refuse_other_weeks(folder, len(self.weeks))
        writers = {name: partial(pq.write_table, table, compression="zstd") for name, table in self._tables().items()}
        settings = {**self.truth.settings, "eta": self.truth.eta.tolist(), "gamma": self.truth.gamma.tolist()}
        text = json.dumps(settings, indent=2) + "\n"
        return write_files(folder, {**writers, "truth.json": lambda path: path.write_text(text, encoding="utf-8")})

    def _tables(self) -> dict[str, pa.Table]:
        weeks = {f"week{number}.parquet": week for number, week in enumerate(self.weeks, start=1)}
        truth = {"": self.truth.pairs, "_words": self.truth.words, "_queries": self.truth.queries}
        return {**weeks, "ads.parquet": self.ads, **{f"truth{name}.parquet": table for name, table in truth.items()}}


@dataclass(frozen=True, slots=True)
class _Settings:
    sessions: int
    weeks: int
    queries: int
    ads_per_query: int
    page: tuple[int, int]
    reading: str
    seed: int


@dataclass(frozen=True, slots=True)
class _Queries:
    """Queries, the most frequent first."""

    text: Texts  # [query]
    topic: Int64  # [query]
    title: Texts  # [query] the query without its ending: what an ad written for it says
    share: Float64  # [query]
    week: Int64  # [query] the first it is seen in, from 0


@dataclass(frozen=True, slots=True)
class _Market:
    """All that sessions are drawn from."""

    queries: _Queries
    ads: pa.Table
    week: Int64  # [ad] the first it is shown in, from 0
    pool: Int32  # [query, place] ads
    theta: Float64  # [query, place]
    rho: Float64  # [query, place]
    eta: Float64  # [clicks so far]
    gamma: Float64  # [last, position]


def simulate(
    sessions: int = 100_000,
    *,
    weeks: int = 3,
    queries: int = 1_000,
    ads_per_query: int = 12,
    page: tuple[int, int] = (1, 4),
    reading: str = "leftover",
    seed: int = 0,
) -> Simulation:
    """Draw `sessions` sessions for each of `weeks` weeks, on pages of page[0] to page[1] ads; the same seed gives the same bytes.

    >>> market = simulate(1_000, weeks=2, queries=20, seed=7)
    >>> [len(week) for week in market.weeks]
    [1000, 1000]
    """
    settings = _Settings(sessions, weeks, queries, ads_per_query, page, reading, seed)
    _refuse_bad_settings(settings)
    rng = np.random.default_rng(seed)
    market, words = _make_market(settings, rng)
    tables = [_draw_week(market, settings, week, rng) for week in range(weeks)]
    truth = Truth(_pairs(market), words, _query_table(market.queries), market.eta, market.gamma, asdict(settings))
    return Simulation(tables, market.ads, truth)


# ---- the market


def _make_market(settings: _Settings, rng: np.random.Generator) -> tuple[_Market, pa.Table]:
    queries = _make_queries(settings, rng)
    own = max(1, settings.ads_per_query // 2)  # written for the query; the rest of its pool is shared within the topic
    shared = 2 * settings.ads_per_query  # ads of each topic
    pool = _make_pools(queries.topic, own, shared, settings.ads_per_query, rng)
    ads = _write_ads(*_ad_heads(queries, own, pool), rng)
    words = tokenise(ads)
    rates = _word_rates(len(words.vocabulary), rng)
    theta = _attractiveness(words, rates, queries.topic, pool)
    rho = rng.beta(*SATISFACTION, len(ads))[pool]
    eta, gamma = _fatigue(settings.page[1], settings.reading), _transitions(settings.page[1])
    market = _Market(queries, ads, _ad_weeks(len(ads), len(queries.text), own, settings.weeks, rng), pool, theta, rho, eta, gamma)
    return market, _word_table(words, rates, queries.topic, pool)


def _make_queries(settings: _Settings, rng: np.random.Generator) -> _Queries:
    """Take the short queries first: each part left out makes a query more likely to be asked, and to be asked often."""
    topic, text, title, parts = _all_queries()
    _refuse_too_many(settings.queries, len(text))
    order = np.argsort(parts + rng.gumbel(0.0, 0.7, len(parts)), kind="stable")[: settings.queries]
    share = 1.0 / np.arange(1, settings.queries + 1)
    week = _first_weeks(settings.queries, settings.weeks, NEW_QUERIES, rng)
    week[: max(1, int(HEAD * settings.queries))] = 0
    return _Queries(text[order], topic[order], title[order], share / share.sum(), week)


def _all_queries() -> tuple[Int64, Texts, Texts, Int64]:
    """Return the topic, text, title and number of parts of every query that can be asked."""
    topics, texts, titles, parts = [], [], [], []
    for number, (name, (kind, _)) in enumerate(TOPICS.items()):
        words = KINDS[kind]
        for modifier in ["", *_phrases(words.modifiers)]:
            for detail in ["", *_phrases(words.details)]:
                title = " ".join(filter(None, [modifier, name, detail]))
                for ending in ["", *_phrases(words.endings)]:
                    topics.append(number)
                    titles.append(title)
                    texts.append(f"{title} {ending}" if ending else title)
                    parts.append(bool(modifier) + bool(detail) + bool(ending))
    return np.array(topics), np.array(texts, object), np.array(titles, object), np.array(parts)


def _ad_heads(queries: _Queries, own: int, pool: Int32) -> tuple[Int64, Texts]:
    """Return the topic of each ad, and what its title names: the query it is written for, or the topic."""
    topic = np.zeros(pool.max() + 1, np.int64)
    topic[pool] = queries.topic[:, None]
    head = _topic_names()[topic]
    head[: len(queries.title) * own] = np.repeat(queries.title, own)
    return topic, head


def _write_ads(topic: Int64, head: Texts, rng: np.random.Generator) -> pa.Table:
    """Write the copy of each ad, from the words of its topic and of its kind."""
    count = len(topic)
    offer, promise = _pick_two([_phrases(KINDS[kind].offers) for kind, _ in TOPICS.values()], topic, rng)
    noun, other = _pick_two([_phrases(nouns) for _, nouns in TOPICS.values()], topic, rng)
    title = np.where(rng.random(count) < 0.5, head + " - " + offer, offer + " " + head)
    body = _pick(_phrases(LINKS), count, rng) + " " + noun + " & " + other
    description = _sentences([body, promise, _pick(_phrases(CALLS), count, rng)])
    slug = np.array([name.replace(" ", "-") for name in TOPICS], object)[topic]
    url = _pick(_brands(), count, rng) + ".example" + np.where(rng.random(count) < 0.5, "/" + slug, "")
    columns = {"title": _capitals(title), "description": description, "display_url": url}
    return pa.table({"ad": _ids("ad", 7, count), **{name: pa.array(texts, pa.string()) for name, texts in columns.items()}})


def _make_pools(topic: Int64, own: int, shared: int, size: int, rng: np.random.Generator) -> Int32:
    """Give each query its own ads, numbered first, and some of its topic's, all different; an ad that no query takes has no number."""
    count = len(topic)
    written = np.arange(count * own).reshape(count, own)
    chosen = rng.permuted(np.broadcast_to(np.arange(shared), (count, shared)), axis=1)[:, : size - own]
    pool = np.concatenate([written, count * own + topic[:, None] * shared + chosen], axis=1)
    return np.unique(pool, return_inverse=True)[1].reshape(pool.shape).astype(np.int32)


def _ad_weeks(ads: int, queries: int, own: int, weeks: int, rng: np.random.Generator) -> Int64:
    """Return the first week of each ad; the first ad of each query is there from the start, so no page is empty."""
    week = _first_weeks(ads, weeks, NEW_ADS, rng)
    week[: queries * own : own] = 0
    return week


def _first_weeks(count: int, weeks: int, new: float, rng: np.random.Generator) -> Int64:
    """Return the first week of each of `count` things: in each week after the first, `new` of all that are there are new."""
    there = (1.0 - new) ** np.arange(weeks - 1, -1, -1)  # [week] of all that there ever are
    return np.searchsorted(there, rng.random(count), side="right").astype(np.int64)


def _word_rates(words: int, rng: np.random.Generator) -> Float64:
    """Draw rate[topic, word]: one rate for each word everywhere, and in each topic a rate of their own for some."""
    everywhere = rng.beta(*RATE, words)
    own = rng.random((len(TOPICS), words)) < OWN_RATE
    return np.where(own, rng.beta(*RATE, own.shape), everywhere)


def _attractiveness(words: AdTokens, rates: Float64, topic: Int64, pool: Int32) -> Float64:
    """θ(q, d) = mean over d's tokens of rate[topic of q, word]; all the ads of a pool are of the query's topic."""
    ad_topic = np.zeros(len(words), np.int64)
    ad_topic[pool] = topic[:, None]
    sizes = np.diff(words.offsets)  # never 0: an ad has its display URL
    sums = np.add.reduceat(rates[np.repeat(ad_topic, sizes), words.token], words.offsets[:-1])
    return np.asarray((sums / sizes)[pool])


def _fatigue(longest: int, reading: str) -> Float64:
    """η_k = 1 − go · slow^k, and 1 when all are clicked; chosen so that sessions look like those of search ads."""
    go, slow = GO_ON[reading]
    eta: Float64 = 1.0 - go * np.power(slow, np.arange(longest + 1, dtype=np.float64))
    eta[longest] = 1.0
    return eta


def _transitions(longest: int) -> Float64:
    """γ(0, j) falls as j^−1.75; after a click the eye goes on to the next ads, or back to those it passed over."""
    position = np.arange(1, longest + 1)
    ahead = position[None, :] - position[:, None]  # [last, position]
    distance = np.maximum(np.abs(ahead), 1)
    gamma = np.zeros((longest + 1, longest))
    gamma[0] = position**-1.75
    gamma[1:] = np.where(ahead > 0, distance**-1.2, 3.5 * distance**-0.4) * (ahead != 0)
    total: Float64 = np.sum(gamma, axis=1, keepdims=True)  # 0 only after the one ad of a page of one
    np.divide(gamma, total, out=gamma, where=total > 0)
    return gamma


# ---- the sessions


def _draw_week(market: _Market, settings: _Settings, week: int, rng: np.random.Generator) -> pa.Table:
    query = _draw_queries(market.queries, settings.sessions, week, rng)
    there = market.week[market.pool] <= week  # [query, place]
    sizes = _draw_sizes(settings.page, np.count_nonzero(there, axis=1)[query], rng)
    page, clicks = np.zeros(sizes.sum(), np.int32), np.zeros(sizes.sum(), np.int32)
    counts = np.zeros(len(query), np.int64)
    truth = (market.pool, there, market.theta, market.rho, market.eta, market.gamma)
    total = _draw_sessions(READINGS[settings.reading], query, sizes, *truth, rng, page, clicks, counts)
    return pa.table(
        {
            "session_id": _ids(f"w{week + 1}-", 8, len(query)),
            "timestamp": _timestamps(week, len(query), rng),
            "query": pa.array(market.queries.text, pa.string()).take(pa.array(query)),
            "ads": _lists(sizes, market.ads["ad"].combine_chunks().take(pa.array(page))),
            "clicks": _lists(counts, pa.array(clicks[:total])),
        }
    )


def _draw_queries(queries: _Queries, sessions: int, week: int, rng: np.random.Generator) -> Int64:
    there = np.flatnonzero(queries.week <= week)
    edges = np.cumsum(queries.share[there])
    drawn: Int64 = there[np.searchsorted(edges[:-1], rng.random(sessions) * edges[-1], side="right")]
    return drawn


def _draw_sizes(page: tuple[int, int], there: Int64, rng: np.random.Generator) -> Int64:
    """Draw the number of ads of each page, n with chance in proportion to n², and never more than there are."""
    sizes = np.arange(page[0], page[1] + 1)
    wanted: Int64 = rng.choice(sizes, len(there), p=sizes**2 / np.sum(sizes**2))
    return np.minimum(wanted, there)


@compiled
def _draw_sessions(
    reading: int,
    query: Int64,  # [session]
    sizes: Int64,  # [session]
    pool: Int32,  # [query, place]
    there: npt.NDArray[np.bool_],  # [query, place]
    theta: Float64,  # [query, place]
    rho: Float64,  # [query, place]
    eta: Float64,  # [clicks so far]
    gamma: Float64,  # [last, position]
    rng: np.random.Generator,
    page: Int32,  # [impression] filled
    clicks: Int32,  # [click] filled
    counts: Int64,  # [session] filled
) -> int:
    """Fill the pages and clicks of all sessions, end to end, and return the number of clicks."""
    shown, clicked = 0, 0
    longest = sizes.max()
    place, noisy, drawn = np.empty(longest, np.int64), np.empty(longest), np.zeros(longest, np.int32)
    page_theta, page_rho = np.empty(longest), np.empty(longest)
    for session in range(len(query)):
        q, n = query[session], sizes[session]
        _order_page(theta[q], there[q], rng, place[:n], noisy[:n])
        for position in range(n):
            page[shown + position] = pool[q, place[position]]
            page_theta[position] = theta[q, place[position]]
            page_rho[position] = rho[q, place[position]]
        counts[session] = sample(reading, page_theta[:n], page_rho[:n], eta, gamma, rng, drawn[:n])
        for k in range(counts[session]):
            clicks[clicked + k] = drawn[k]
        shown += n
        clicked += counts[session]
    return clicked


@compiled
def _order_page(theta: Float64, there: npt.NDArray[np.bool_], rng: np.random.Generator, place: Int64, noisy: Float64) -> None:
    """Fill place with the best places of a pool by noisy attractiveness, best first."""
    noisy[:] = -np.inf
    for candidate in range(len(theta)):
        if not there[candidate]:
            continue
        worth = theta[candidate] + ORDER_NOISE * rng.standard_normal()
        at = len(place)
        while at > 0 and noisy[at - 1] < worth:
            if at < len(place):
                noisy[at], place[at] = noisy[at - 1], place[at - 1]
            at -= 1
        if at < len(place):
            noisy[at], place[at] = worth, candidate


# ---- tables


def _pairs(market: _Market) -> pa.Table:
    query = np.repeat(np.arange(len(market.pool)), market.pool.shape[1])
    return pa.table(
        {
            "query": pa.array(market.queries.text, pa.string()).take(pa.array(query)),
            "ad": market.ads["ad"].combine_chunks().take(pa.array(market.pool.reshape(-1))),
            "attractiveness": market.theta.reshape(-1),
            "satisfaction": market.rho.reshape(-1),
        }
    )


def _query_table(queries: _Queries) -> pa.Table:
    topic = pa.array(_topic_names()[queries.topic], pa.string())
    return pa.table({"query": pa.array(queries.text, pa.string()), "topic": topic, "share": queries.share, "week": queries.week + 1})


def _word_table(words: AdTokens, rates: Float64, topic: Int64, pool: Int32) -> pa.Table:
    """List the rates of the words that the ads of each topic use."""
    ad_topic = np.zeros(len(words), np.int64)
    ad_topic[pool] = topic[:, None]
    used = np.zeros((len(TOPICS), len(words.vocabulary)), np.bool_)
    used[np.repeat(ad_topic, np.diff(words.offsets)), words.token] = True
    rows, codes = np.nonzero(used)
    names = pa.array(_topic_names()[rows], pa.string())
    return pa.table({"topic": names, "word": words.vocabulary.take(pa.array(codes)), "rate": rates[rows, codes]})


def _ids(prefix: str, digits: int, count: int) -> pa.StringArray:
    return pc.binary_join_element_wise(prefix, pc.utf8_lpad(pa.array(np.arange(1, count + 1)).cast(pa.string()), digits, "0"), "")


def _timestamps(week: int, count: int, rng: np.random.Generator) -> pa.TimestampArray:
    """Draw times that increase, all different, inside the week."""
    passed = np.sort(rng.integers(0, WEEK - count, count, endpoint=True)) + np.arange(count)
    return pa.array(FIRST_MONDAY + (week * WEEK + passed).astype("timedelta64[ms]"), pa.timestamp("ms"))


def _lists(sizes: Int64, values: pa.Array) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


# ---- words


def _phrases(text: str) -> list[str]:
    return [phrase.replace("_", " ") for phrase in text.split()]


def _topic_names() -> Texts:
    return np.array(list(TOPICS), object)


def _brands() -> list[str]:
    return [start + end for start in _phrases(BRAND_STARTS) for end in _phrases(BRAND_ENDS)]


def _pick(phrases: list[str], count: int, rng: np.random.Generator) -> Texts:
    return np.array(phrases, object)[rng.integers(0, len(phrases), count)]


def _pick_two(phrases: list[list[str]], topic: Int64, rng: np.random.Generator) -> tuple[Texts, Texts]:
    """Pick for each ad two different phrases of its topic."""
    words = np.array(list(chain.from_iterable(phrases)), object)
    starts = np.cumsum([0, *map(len, phrases)])[topic]
    sizes = np.array([*map(len, phrases)])[topic]
    first = rng.integers(0, sizes)
    second = (first + rng.integers(1, sizes)) % sizes
    return words[starts + first], words[starts + second]


def _capitals(texts: Texts) -> Texts:
    return np.array([text.title() for text in texts], object)


def _sentences(parts: list[Texts]) -> Texts:
    return np.array([" ".join(f"{part[0].upper()}{part[1:]}." for part in ad) for ad in zip(*parts, strict=True)], object)


# ---- files


def write_files(folder: Path, writers: dict[str, Callable[[Path], object]]) -> list[Path]:
    """Write every file beside its place, then move all of them there."""
    beside = {folder / name: folder / f".{name}.{uuid4().hex}" for name in writers}
    with clear_write_errors(folder, "Every file there is whole."), contextlib.ExitStack() as cleaning:
        folder.mkdir(parents=True, exist_ok=True)
        for path, write in zip(beside.values(), writers.values(), strict=True):
            cleaning.callback(path.unlink, missing_ok=True)
            write(path)
        for target, path in beside.items():
            path.replace(target)
    return list(beside)


# ---- what is refused


def _refuse_other_weeks(folder: Path, weeks: int) -> None:
    """Refuse a folder with more weeks than are written: it would hold two simulations under one name."""
    for path in sorted(folder.glob("week*.parquet")):
        number = re.fullmatch(r"week(\d+)\.parquet", path.name)
        if number and int(number[1]) > weeks:
            raise SettingError(f"{path} is of another simulation, and this one has {weeks} weeks. Remove it, or save to another folder.")


def _refuse_bad_settings(settings: _Settings) -> None:
    for name, least in {"sessions": 1, "weeks": 1, "queries": 1, "ads_per_query": 1, "seed": 0}.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise SettingError(f"{name}={value!r}: it must be a whole number, {least} or more.")
    if settings.sessions > WEEK:
        raise SettingError(f"sessions={settings.sessions}: at most {WEEK} a week, one a millisecond.")
    if settings.reading not in GO_ON:
        raise SettingError(f"reading={settings.reading!r}: it is one of {', '.join(GO_ON)}.")
    low, high = settings.page
    if not 1 <= low <= high <= settings.ads_per_query:
        raise SettingError(f"page={settings.page}: it is (fewest, most) ads on a page, at most ads_per_query={settings.ads_per_query}.")


def _refuse_too_many(queries: int, possible: int) -> None:
    if queries > possible:
        raise SettingError(f"queries={queries}: the simulator's words make only {possible}. Ask for fewer.")
