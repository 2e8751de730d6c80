"""Pages whose users are of several kinds: what `reclick.clicks.distribution` answers of `Pages`, answered of a mixture of them.

A user is of one kind from the first click to the last, so P(clicks) = Σ_t share_t P_t(clicks). Kinds differ in where the eye goes, in when they stop,
in what attracts and in what satisfies them. Importing this module makes the functions of reclick.clicks.distribution know such pages.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from reclick.clicks import distribution as pg
from reclick.clicks.distribution import Pages, Standings
from reclick.clicks.ranks import mixed_standing
from reclick.clicks.step import mixed_prob
from reclick.data.batch import Float64, Int32, Int64
from reclick.runtime.jit import kernel


class Kinds(Pages):
    """Pages for users of several kinds: row t of `stop`, `gamma`, `thetas` and `rhos` is the t-th kind's."""

    share: Float64  # [page, kind]
    thetas: Float64  # [kind, impression]
    rhos: Float64  # [kind, impression]

    def __new__(cls, pages: Pages, share: Float64, thetas: Float64, rhos: Float64) -> Self:
        """The pages, whose `theta`, `rho` and `table` do not matter, how many users are of each kind, and what attracts and satisfies these."""
        kinds = super().__new__(cls, *pages)
        kinds.share, kinds.thetas, kinds.rhos = share, thetas, rhos
        return kinds

    def of(self, kind: Int64) -> Pages:
        """The pages as users of a kind see them [page]."""
        impression = np.repeat(kind, np.diff(self.page)), np.arange(self.thetas.shape[1])
        return Pages(*self)._replace(
            table=kind, theta=self.thetas[impression], rho=self.rhos[impression]
        )

    def each(self) -> list[Pages]:
        """The pages as each kind of users sees them."""
        one, pages = Pages(*self), len(self.table)
        return [
            one._replace(table=np.full(pages, t), theta=theta, rho=rho)
            for t, (theta, rho) in enumerate(zip(self.thetas, self.rhos, strict=True))
        ]


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
    before = np.stack(
        [
            pg.log_probs(one, click, clicks) - np.log(end)
            for one, (_, end) in zip(pages.each(), each, strict=True)
        ],
        axis=1,
    )
    belief = pages.share * np.exp(
        before - before.max(axis=1, keepdims=True, initial=-1e300)
    )  # [session, kind] P(clicks so far, kind)
    belief /= belief.sum(axis=1, keepdims=True)
    spread = np.repeat(belief, np.diff(pages.page), axis=0)
    following = np.asarray(sum(spread[:, t] * chance for t, (chance, _) in enumerate(each)))
    return following, np.asarray(sum(belief[:, t] * end for t, (_, end) in enumerate(each)))


@pg.samples.register(Kinds)
def _(pages: Kinds, rng: np.random.Generator) -> tuple[Int32, Int64]:
    drawn = (rng.random(len(pages.table))[:, None] > np.cumsum(pages.share, axis=1)[:, :-1]).sum(
        axis=1
    )
    return pg.samples(pages.of(drawn), rng)


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
        beyond = sum(
            part.share[:, t] * probable[:, -1] for t, (_, _, probable) in enumerate(lists)
        )  # no other sequence is likelier
        places, sizes = (
            np.concatenate([found for found, _, _ in lists], axis=1),
            np.concatenate([size for _, size, _ in lists], axis=1),
        )
        wide = np.zeros((len(left), top, sequences.shape[2]), np.int32)
        short, chance = np.full((len(left), top), -1, np.int32), np.zeros((len(left), top))
        _best(
            Pages(*part),
            part.share,
            part.thetas,
            part.rhos,
            places,
            sizes,
            wide[:, :, : places.shape[2]],
            short,
            chance,
        )
        done = (chance[:, -1] >= beyond) | (beyond <= 0)
        at = left[done]
        sequences[at], lengths[at], probs[at] = wide[done], short[done], chance[done]
        left, many = left[~done], 2 * many
    return sequences, lengths, probs


def _some(pages: Kinds, chosen: Int64) -> Kinds:
    """Some of the pages."""
    some, at = pg.selected(Pages(*pages), chosen)
    return Kinds(
        some,
        pages.share[chosen],
        *(np.ascontiguousarray(values[:, at]) for values in (pages.thetas, pages.rhos)),
    )


@kernel
def _before(a: Int32, many_a: int, b: Int32, many_b: int) -> int:
    """−1 where sequence a comes before b: shorter first, then in lexicographic order; 0 where they are the same."""
    if many_a != many_b:
        return -1 if many_a < many_b else 1
    for k in range(many_a):
        if a[k] != b[k]:
            return -1 if a[k] < b[k] else 1
    return 0


@kernel
def _best(
    pages: Pages,
    share: Float64,
    thetas: Float64,
    rhos: Float64,
    places: Int32,
    sizes: Int32,
    sequences: Int32,
    lengths: Int32,
    probs: Float64,
) -> None:
    """The best of some sequences of each page, each listed once."""
    top = probs.shape[1]
    for s in range(len(share)):
        here = slice(pages.page[s], pages.page[s + 1])
        theta, rho = np.ascontiguousarray(thetas[:, here]), np.ascontiguousarray(rhos[:, here])
        for c in range(sizes.shape[1]):
            many = sizes[s, c]
            if many < 0:
                continue
            again = False
            for d in range(c):
                again |= (
                    sizes[s, d] == many and _before(places[s, c], many, places[s, d], many) == 0
                )
            if again:
                continue
            chance = mixed_prob(
                pages.reading, theta, rho, pages.stop, pages.gamma, share[s], places[s, c, :many]
            )
            at = top
            while at > 0 and chance > 0.0:
                tie = (
                    probs[s, at - 1] == chance
                    and _before(places[s, c], many, sequences[s, at - 1], lengths[s, at - 1]) < 0
                )
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
    _each_standing(
        Pages(*pages), pages.share, pages.thetas, pages.rhos, click, clicks, sessions, out
    )
    return Standings(*out.T)


@kernel
def _each_standing(
    pages: Pages,
    share: Float64,
    thetas: Float64,
    rhos: Float64,
    click: Int32,
    clicks: Int64,
    sessions: Int64,
    out: Int64,
) -> None:
    for i in range(len(sessions)):
        s = sessions[i]
        here = slice(pages.page[s], pages.page[s + 1])
        made = click[clicks[s] : clicks[s + 1]]
        theta, rho = np.ascontiguousarray(thetas[:, here]), np.ascontiguousarray(rhos[:, here])
        mixed_standing(pages.reading, theta, rho, pages.stop, pages.gamma, share[s], made, out[i])
