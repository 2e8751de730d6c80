"""Click sequences of many pages: the kernels of reclick.clicks, run over pages laid end to end.

The loops release the GIL: run parts of a log in threads. The functions without an underscore go by the type of the pages: pages of another kind than
`Pages` register their own answers (`clicks/mixture.py` does).
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reclick.clicks.choice import CHAIN, WALK
from reclick.clicks.ranks import MAX_RANKED, standing
from reclick.clicks.set_probability import MAX_EXACT, MAX_SET, click_prob, log_set_prob
from reclick.clicks.step import log_prob, next_click_prob, sample
from reclick.clicks.top_k import MAX_NODES, search
from reclick.errors import CannotAnswerError, SettingError
from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32, Int64


AGAIN = 7  # ads on a page from which it takes longer to answer a page again than to find out that it is the same


class Pages(NamedTuple):
    """Many pages, end to end: page s is theta[page[s] : page[s + 1]], and table[s] says which stop and gamma serve it."""

    reading: int
    theta: Float64  # [impression]
    rho: Float64  # [impression]
    stop: Float64  # [table, clicks so far]
    gamma: Float64  # [table, last, position]
    page: Int64  # [page + 1] where each page starts
    table: Int64  # [page] the query's own row, or 0 for all


class Standings(NamedTuple):
    """How sessions stand among all click sequences of their page and length; sequences whose probabilities are nearly the same are tied."""

    likelier: Int64  # [session] sequences likelier than the session's own
    tied: Int64  # [session] those as likely, its own among them
    likeliest: Int64  # [session] those that no other is likelier than
    same_set: (
        Int64  # [session] those of the likeliest that have the session's clicks, in whatever order
    )


@kernel
def _page(pages: Pages, s: int) -> tuple[int, Float64, Float64, Float64, Float64]:
    here = slice(pages.page[s], pages.page[s + 1])
    t = pages.table[s]
    return pages.reading, pages.theta[here], pages.rho[here], pages.stop[t], pages.gamma[t]


@kernel
def _each_log_prob(pages: Pages, click: Int32, clicks: Int64, out: Float64) -> None:
    for s in range(len(out)):
        out[s] = log_prob(*_page(pages, s), click[clicks[s] : clicks[s + 1]])


@kernel
def _each_log_set_prob(pages: Pages, click: Int32, clicks: Int64, out: Float64) -> None:
    for s in range(len(out)):
        out[s] = log_set_prob(*_page(pages, s), click[clicks[s] : clicks[s + 1]])


@kernel
def _each_click_prob(pages: Pages, out: Float64) -> None:
    for s in range(len(pages.table)):
        click_prob(*_page(pages, s), out[pages.page[s] : pages.page[s + 1]])


@kernel
def _each_next_click_prob(
    pages: Pages, click: Int32, clicks: Int64, out: Float64, end: Float64
) -> None:
    for s in range(len(end)):
        end[s] = next_click_prob(
            *_page(pages, s),
            click[clicks[s] : clicks[s + 1]],
            out[pages.page[s] : pages.page[s + 1]],
        )


@kernel
def _each_search(
    pages: Pages, length: Int64, sequences: Int32, lengths: Int32, probs: Float64
) -> int:
    """Search every page; return the one where the search gave up, or -1."""
    for s in range(len(length)):
        if search(*_page(pages, s), length[s], sequences[s], lengths[s], probs[s]) > MAX_NODES:
            return s
    return -1


@kernel
def _each_standing(pages: Pages, click: Int32, clicks: Int64, sessions: Int64, out: Int64) -> None:
    for i in range(len(sessions)):
        s = sessions[i]
        standing(*_page(pages, s), click[clicks[s] : clicks[s + 1]], out[i])


@kernel
def _each_sample(pages: Pages, rng: np.random.Generator, click: Int32, clicks: Int64) -> None:
    for s in range(len(pages.table)):
        room = click[
            clicks[s] : clicks[s] + pages.page[s + 1] - pages.page[s]
        ]  # what is not used goes to the next session
        clicks[s + 1] = clicks[s] + sample(*_page(pages, s), rng, room)


@singledispatch
def log_probs(pages: Pages, click: Int32, clicks: Int64) -> Float64:
    """Answer log_prob for every session, its clicks being click[clicks[s] : clicks[s + 1]]: [session]."""
    out = np.empty(len(pages.table))
    _each_log_prob(pages, click, clicks, out)
    return out


@singledispatch
def log_set_probs(pages: Pages, click: Int32, clicks: Int64) -> Float64:
    """Answer log_set_prob for every session: [session]."""
    if pages.reading != CHAIN:
        check_set(int(np.diff(clicks).max(initial=0)))
    out = np.empty(len(pages.table))
    _each_log_set_prob(pages, click, clicks, out)
    return out


@singledispatch
def click_probs(pages: Pages) -> Float64:
    """Answer click_prob for every page, end to end: [impression]."""
    longest = int(np.diff(pages.page).max(initial=0))
    if pages.reading not in (CHAIN, WALK):
        check_exact(longest)
        if longest >= AGAIN:
            return _click_probs_of_distinct(pages)
    out = np.empty(len(pages.theta))
    _each_click_prob(pages, out)
    return out


def _click_probs_of_distinct(pages: Pages) -> Float64:
    """The same, found once for pages that are equal: logs show few pages often, and the sets of clicks of a long page are many."""
    sizes = np.diff(pages.page)
    place = np.arange(pages.page[-1]) - np.repeat(pages.page[:-1], sizes)
    rows = np.full((len(sizes), 2 * int(sizes.max()) + 1), np.nan)
    rows[:, -1] = pages.table
    session = np.repeat(np.arange(len(sizes)), sizes)
    rows[session, 2 * place], rows[session, 2 * place + 1] = pages.theta, pages.rho
    _, first, which = np.unique(
        rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0], return_index=True, return_inverse=True
    )
    some, _ = selected(pages, first)
    found = np.empty(len(some.theta))
    _each_click_prob(some, found)
    return np.asarray(found[some.page[which][session] + place])


def selected(pages: Pages, chosen: Int64) -> tuple[Pages, Int64]:
    """Some of the pages, and which impressions these are."""
    sizes = np.diff(pages.page)[chosen]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    at = np.repeat(pages.page[chosen] - starts[:-1], sizes) + np.arange(starts[-1])
    return pages._replace(
        theta=pages.theta[at], rho=pages.rho[at], page=starts, table=pages.table[chosen]
    ), at


@singledispatch
def next_click_probs(pages: Pages, click: Int32, clicks: Int64) -> tuple[Float64, Float64]:
    """Answer next_click_prob for every page after its clicks so far, end to end, with P(end): [impression], [session]."""
    out, end = np.empty(len(pages.theta)), np.empty(len(pages.table))
    _each_next_click_prob(pages, click, clicks, out, end)
    return out, end


@singledispatch
def top_sequences_of_pages(pages: Pages, length: Int64, top: int) -> tuple[Int32, Int32, Float64]:
    """Find the most likely complete sequences of every page, best first, of length[s] clicks (-1 = any).

    Returns sequences [session, place, step] padded with 0, lengths [session, place] and probabilities [session, place]. Where a page has
    fewer possible sequences than asked, the rest has length -1 and probability 0. Ties: shorter first, then lexicographic.
    """
    if top < 1:
        raise SettingError(f"top = {top}: ask for at least 1 sequence.")
    ads = np.diff(pages.page)
    sequences = np.zeros((len(length), top, int(ads.max(initial=0))), np.int32)
    lengths = np.full((len(length), top), -1, np.int32)
    probs = np.zeros((len(length), top))
    gave_up = _each_search(pages, length, sequences, lengths, probs)
    if gave_up >= 0:
        raise CannotAnswerError(
            f"the {top} most likely sequences of page {gave_up}, of {ads[gave_up]} ads: more than {MAX_NODES:,} prefixes are nearly "
            "as likely. Ask for fewer, for a smaller length, or cut the page; sample() works on any page."
        )
    return sequences, lengths, probs


@singledispatch
def standings(pages: Pages, click: Int32, clicks: Int64, sessions: Int64) -> Standings:
    """Rank the clicks of these sessions (their rows, each with a click or more) among all sequences of their length: [session]."""
    check_ranked(np.diff(pages.page)[sessions], np.diff(clicks)[sessions])
    out = np.empty((len(sessions), 4), np.int64)
    _each_standing(pages, click, clicks, sessions, out)
    return Standings(*out.T)


@singledispatch
def samples(pages: Pages, rng: np.random.Generator) -> tuple[Int32, Int64]:
    """Draw one session for every page: click [click] and clicks [session + 1], where each session's clicks start in click."""
    click, clicks = np.empty(len(pages.theta), np.int32), np.zeros(len(pages.table) + 1, np.int64)
    _each_sample(pages, rng, click, clicks)
    return click[: clicks[-1]].copy(), clicks


def check_exact(ads: int) -> None:
    """Refuse a page too long for exact marginals."""
    if ads > MAX_EXACT:
        raise CannotAnswerError(
            f"click probabilities of a page of {ads} ads: exact up to {MAX_EXACT}. Cut the page to its first {MAX_EXACT} ads, "
            "or count the clicks of sample(), which works on any page."
        )


def check_set(clicks: int) -> None:
    """Refuse a session with too many clicks for the exact probability of its click set."""
    if clicks > MAX_SET:
        raise CannotAnswerError(
            f"the probability of a set of {clicks} clicks: exact up to {MAX_SET}. Leave such sessions out, or use log_prob, "
            "the probability of the clicks in their order, which has no limit."
        )


def check_ranked(ads: Int64, clicks: Int64) -> None:
    """Refuse pages with too many sequences of a session's length to rank it among them exactly."""
    sequences = np.ones(len(ads))
    for k in range(int(clicks.max(initial=0))):
        sequences *= np.where(k < clicks, ads - k, 1)
    worst = int(sequences.argmax()) if len(ads) else 0
    if len(ads) and sequences[worst] > MAX_RANKED:
        raise CannotAnswerError(
            f"the rank of {clicks[worst]} clicks on a page of {ads[worst]} ads: there are {sequences[worst]:,.0f} sequences as long, and it is exact "
            f"up to {MAX_RANKED:,}. Cut the pages, or use log_prob, which has no limit."
        )
