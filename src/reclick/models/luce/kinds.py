"""Pages whose users are of several kinds: what `reclick.pages` answers of `Pages`, answered of a mixture of them.

A user is of one kind from the first click to the last, so P(clicks) = Σ_t share_t P_t(clicks). Kinds differ in where the eye goes and in when they
stop; attractiveness and satisfaction are the same to all. Importing this module makes the functions of reclick.pages know such pages.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from reclick import pages as pg
from reclick.batch import Float64, Int32, Int64
from reclick.compiled import compiled
from reclick.pages import Pages, Standings
from reclick.sequences import TIE, step


class Kinds(Pages):
    """Pages for users of several kinds: row t of `stop` and `gamma` is the t-th kind's."""

    share: Float64  # [page, kind]

    def __new__(cls, pages: Pages, share: Float64) -> Self:
        """The pages, whose `table` does not matter, and how many of their users are of each kind."""
        kinds = super().__new__(cls, *pages)
        kinds.share = share
        return kinds

    @property
    def pages(self) -> Pages:
        """Without the shares: as the first kind sees them, or any other whose number is put into `table`."""
        return Pages(*self)

    def each(self) -> list[Pages]:
        """The pages as each kind of users sees them."""
        return [self.pages._replace(table=np.full(len(self.pages.table), t)) for t in range(self.share.shape[1])]


def _mixed(kinds: Kinds, logs: list[Float64]) -> Float64:
    """Logarithm of Σ_t share_t exp(log_t), of [session] for each kind."""
    with np.errstate(divide="ignore"):
        terms = np.log(kinds.share) + np.stack(logs, axis=1)  # [session, kind]
    top = np.maximum(terms.max(axis=1, initial=-np.inf), -1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))


@pg.log_probs.register(Kinds)
def _(pages: Kinds, click: Int32, clicks: Int64) -> Float64:
    return _mixed(pages, [pg.log_probs(one, click, clicks) for one in pages.each()])


@pg.log_set_probs.register(Kinds)
def _(pages: Kinds, click: Int32, clicks: Int64) -> Float64:
    return _mixed(pages, [pg.log_set_probs(one, click, clicks) for one in pages.each()])


@pg.click_probs.register(Kinds)
def _(pages: Kinds) -> Float64:
    share = np.repeat(pages.share, np.diff(pages.page), axis=0)  # [impression, kind]
    return np.asarray(sum(share[:, t] * pg.click_probs(one) for t, one in enumerate(pages.each())))


@pg.next_click_probs.register(Kinds)
def _(pages: Kinds, click: Int32, clicks: Int64) -> tuple[Float64, Float64]:
    """What each kind would do next, weighed by how likely a user who made these clicks is of the kind."""
    each = [pg.next_click_probs(one, click, clicks) for one in pages.each()]
    before = np.stack([pg.log_probs(one, click, clicks) - np.log(end) for one, (_, end) in zip(pages.each(), each, strict=True)], axis=1)
    belief = pages.share * np.exp(before - before.max(axis=1, keepdims=True, initial=-1e300))  # [session, kind] P(clicks so far, kind)
    belief /= belief.sum(axis=1, keepdims=True)
    spread = np.repeat(belief, np.diff(pages.page), axis=0)
    following = np.asarray(sum(spread[:, t] * chance for t, (chance, _) in enumerate(each)))
    return following, np.asarray(sum(belief[:, t] * end for t, (_, end) in enumerate(each)))


@pg.samples.register(Kinds)
def _(pages: Kinds, rng: np.random.Generator) -> tuple[Int32, Int64]:
    drawn = (rng.random(len(pages.table))[:, None] > np.cumsum(pages.share, axis=1)[:, :-1]).sum(axis=1)
    return pg.samples(pages.pages._replace(table=drawn), rng)


@pg.top_sequences_of_pages.register(Kinds)
def _(pages: Kinds, length: Int64, top: int) -> tuple[Int32, Int32, Float64]:
    """The best of what each kind's users do most; more of each is looked at until nothing that was not could be among the best."""
    ads, many = np.diff(pages.page), top
    sequences = np.zeros((len(length), top, int(ads.max(initial=0))), np.int32)
    lengths, probs = np.full((len(length), top), -1, np.int32), np.zeros((len(length), top))
    left = np.arange(len(length))
    while len(left):
        part = _some(pages, left)
        lists = [pg.top_sequences_of_pages(one, length[left], many) for one in part.each()]
        beyond = sum(part.share[:, t] * probable[:, -1] for t, (_, _, probable) in enumerate(lists))  # no other sequence is likelier
        places, sizes = np.concatenate([found for found, _, _ in lists], axis=1), np.concatenate([size for _, size, _ in lists], axis=1)
        wide = np.zeros((len(left), top, sequences.shape[2]), np.int32)
        short, chance = np.full((len(left), top), -1, np.int32), np.zeros((len(left), top))
        _best(part.pages, part.share, places, sizes, wide[:, :, : places.shape[2]], short, chance)
        done = (chance[:, -1] >= beyond) | (beyond <= 0)
        at = left[done]
        sequences[at], lengths[at], probs[at] = wide[done], short[done], chance[done]
        left, many = left[~done], 2 * many
    return sequences, lengths, probs


def _some(pages: Kinds, chosen: Int64) -> Kinds:
    """Some of the pages."""
    one, sizes = pages.pages, np.diff(pages.page)[chosen]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    at = np.repeat(one.page[chosen] - starts[:-1], sizes) + np.arange(starts[-1])
    return Kinds(one._replace(theta=one.theta[at], rho=one.rho[at], page=starts, table=one.table[chosen]), pages.share[chosen])


@compiled
def _chance(pages: Pages, share: Float64, s: int, clicks: Int32, free: Float64, out: Float64) -> float:
    """P(exactly these clicks in this order) on page s."""
    here = slice(pages.page[s], pages.page[s + 1])
    total = 0.0
    for t in range(len(share)):
        free[:], last, prefix = 1.0, 0, share[t]
        for k in range(len(clicks) + 1):
            end = step(pages.reading, pages.theta[here], pages.rho[here], pages.stop[t], pages.gamma[t], k, last, free, out)
            if k < len(clicks):
                last = clicks[k]
                prefix *= out[last - 1]
                free[last - 1] = 0.0
        total += prefix * end
    return total


@compiled
def _before(a: Int32, many_a: int, b: Int32, many_b: int) -> int:
    """−1 where sequence a comes before b: shorter first, then in lexicographic order; 0 where they are the same."""
    if many_a != many_b:
        return -1 if many_a < many_b else 1
    for k in range(many_a):
        if a[k] != b[k]:
            return -1 if a[k] < b[k] else 1
    return 0


@compiled
def _best(pages: Pages, share: Float64, places: Int32, sizes: Int32, sequences: Int32, lengths: Int32, probs: Float64) -> None:
    """The best of some sequences of each page, each listed once."""
    top = probs.shape[1]
    for s in range(len(share)):
        n = pages.page[s + 1] - pages.page[s]
        free, out = np.empty(n), np.empty(n)
        for c in range(sizes.shape[1]):
            many = sizes[s, c]
            if many < 0:
                continue
            again = False
            for d in range(c):
                again |= sizes[s, d] == many and _before(places[s, c], many, places[s, d], many) == 0
            chance = 0.0 if again else _chance(pages, share[s], s, places[s, c, :many], free, out)
            at = top
            while at > 0 and chance > 0.0:
                tie = probs[s, at - 1] == chance and _before(places[s, c], many, sequences[s, at - 1], lengths[s, at - 1]) < 0
                if not (probs[s, at - 1] < chance or tie):
                    break
                at -= 1
            if at < top and chance > 0.0:
                for i in range(top - 1, at, -1):
                    probs[s, i], lengths[s, i] = probs[s, i - 1], lengths[s, i - 1]
                    sequences[s, i] = sequences[s, i - 1]
                probs[s, at], lengths[s, at] = chance, many
                sequences[s, at] = places[s, c]


@pg.standings.register(Kinds)
def _(pages: Kinds, click: Int32, clicks: Int64, sessions: Int64) -> Standings:
    pg.check_ranked(np.diff(pages.page)[sessions], np.diff(clicks)[sessions])
    out = np.empty((len(sessions), 4), np.int64)
    _each_standing(pages.pages, pages.share, click, clicks, sessions, out)
    return Standings(*out.T)


@compiled
def _each_standing(pages: Pages, share: Float64, click: Int32, clicks: Int64, sessions: Int64, out: Int64) -> None:
    for i in range(len(sessions)):
        s = sessions[i]
        made = click[clicks[s] : clicks[s + 1]]
        n = pages.page[s + 1] - pages.page[s]
        chance = _chance(pages, share[s], s, made, np.empty(n), np.empty(n))
        above, tied, same, best = _contest(pages, share[s], s, made, chance)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = above, tied, tied, same
        if above > 0:
            _, out[i, 2], out[i, 3], _ = _contest(pages, share[s], s, made, best)


@compiled
def _contest(pages: Pages, share: Float64, s: int, clicks: Int32, chance: float) -> tuple[int, int, int, float]:
    """Count the sequences as long as the clicks above a chance, those tied with it, those of them with the clicks' set; and the greatest chance."""
    here = slice(pages.page[s], pages.page[s + 1])
    theta, rho = pages.theta[here], pages.rho[here]
    n, m, kinds = len(theta), len(clicks), len(share)
    clicked = np.zeros(n, np.int64)
    for click in clicks:
        clicked[click - 1] = 1
    free, path, cursor = np.ones(n), np.zeros(m + 1, np.int32), np.zeros(m + 1, np.int32)
    inside = np.zeros(m + 1, np.int64)
    prefix, ends, ahead = np.empty((m + 1, kinds)), np.empty(kinds), np.empty((m + 1, kinds, n))
    prefix[0] = share
    for t in range(kinds):
        step(pages.reading, theta, rho, pages.stop[t], pages.gamma[t], 0, 0, free, ahead[0, t])
    above = tied = same = depth = 0
    best, low = 0.0, chance * (1.0 - TIE)
    while depth >= 0:
        j = cursor[depth]
        while j < n and (free[j] == 0.0 or np.sum(prefix[depth] * ahead[depth, :, j]) < low):
            j += 1
        if j == n:
            if depth > 0:
                free[path[depth] - 1] = 1.0
            depth -= 1
            continue
        cursor[depth] = j + 1
        prefix[depth + 1] = prefix[depth] * ahead[depth, :, j]
        inside[depth + 1] = inside[depth] + clicked[j]
        depth += 1
        path[depth] = j + 1
        free[j] = 0.0
        for t in range(kinds):
            ends[t] = step(pages.reading, theta, rho, pages.stop[t], pages.gamma[t], depth, path[depth], free, ahead[depth, t])
        if depth < m:
            cursor[depth] = 0
            continue
        cursor[depth] = n
        found = np.sum(prefix[depth] * ends)
        best = max(best, found)
        if found * (1.0 - TIE) > chance:
            above += 1
        elif found >= low:
            tied += 1
            same += inside[depth] == m
    return above, tied, same, best
