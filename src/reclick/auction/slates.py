"""Exact search for the best slate: the ads, in order, that maximise the objective of a page.

The objective of a slate s_1 … s_n is Σ_j value(s_j) P(click on s_j) + λ P(satisfied).
`TabulatedSlates` stores the clicks of every slate. `MultilinearSlates` finds the best slate by
branch and bound, for variants of MultiClick whose objective is linear in the parameters of each
position's ad.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from reclick.auction.candidates import STEPS_AT_ONCE, Candidates, PageClicks, set_sizes
from reclick.clicks.choice import VARIANTS
from reclick.clicks.step import EXAMINATION
from reclick.data.batch import Float64, Int64
from reclick.errors import Argument, CannotAnswerError
from reclick.runtime.jit import kernel, subkernel
from reclick.runtime.time_limit import check_time

MAX_SLATES = 1_000_000  # largest number that is tabulated: 33 ads on 4 slots
MAX_MODEL_SLATES = 100_000  # if the model predicts every slate: 19 ads on 4 slots
NOT_STARTED, FINISHED = -2, -1  # in place of the depth of a search


class Slate(NamedTuple):
    """Ads in the order of their positions, and the objective of the page."""

    ads: Int64  # [position] numbers of candidates
    clicks: Float64  # [position] P(click)
    satisfaction: float  # P(the session ends satisfied)
    objective: float


class SlateSearch(Protocol):
    """A search over all slates of the candidates."""

    @property
    def candidates(self) -> Candidates:
        """The ads that slates are made of."""
        ...

    def find_best(self, value: Float64, satisfaction_weight: float) -> Slate:
        """The slate with the highest objective; among equal ones, always the same."""
        ...


def open_search(candidates: Candidates, advertiser: Int64 | None = None) -> SlateSearch:
    """A search over all slates with `slots` ads, or with all ads if there are fewer.

    With advertisers [ad], at most one ad of each is on a slate.
    """
    owner = np.arange(len(candidates.ads)) if advertiser is None else advertiser
    slots = min(candidates.slots, len(np.unique(owner)))
    choice = candidates.choice
    if choice is not None and choice.is_multilinear(slots):
        return MultilinearSlates(candidates, owner, slots)
    return TabulatedSlates.enumerate(candidates, owner, slots)


def score_slate(
    candidates: Candidates, ads: Int64, value: Float64, satisfaction_weight: float
) -> Slate:
    """A slate of these ads, with its clicks and its objective."""
    if not len(ads):
        return Slate(ads, np.zeros(0), 0.0, 0.0)
    clicks, satisfaction = (values[0] for values in candidates.evaluate(ads[None]))
    objective = float(value[ads] @ clicks)
    if satisfaction_weight:
        objective += satisfaction_weight * float(satisfaction)
    return Slate(ads, clicks, float(satisfaction), objective)


def count_slates(advertiser: Int64, slots: int) -> int:
    """The number of slates with at most one ad per advertiser.

    >>> count_slates(np.arange(12), 4), count_slates(np.array([0, 0, 1]), 2)
    (11880, 4)
    """
    sums = [1] + [0] * slots  # elementary symmetric polynomials of the ads per advertiser
    for ads in np.unique(advertiser, return_counts=True)[1].tolist():
        for k in range(slots, 0, -1):
            sums[k] += ads * sums[k - 1]
    return math.factorial(slots) * sums[slots]


@dataclass(frozen=True, slots=True)
class TabulatedSlates:
    """The clicks of every slate. Among equal slates, the first in the order of candidates wins."""

    candidates: Candidates
    slates: Int64  # [slate, position]
    pages: PageClicks

    @classmethod
    def enumerate(cls, candidates: Candidates, advertiser: Int64, slots: int) -> TabulatedSlates:
        """List all slates of the candidates; raises if there are too many."""
        count = count_slates(advertiser, slots)
        most = MAX_MODEL_SLATES if candidates.choice is None else MAX_SLATES
        if count > most:
            raise CannotAnswerError(
                f"The best of {count:,} slates for {candidates.query!r}: "
                f"{type(candidates.model).__name__} can only be searched exactly slate by slate, "
                f"up to {most:,} of them. Give at most {_most_ads(slots, most)} ads for ",
                Argument("slots", slots),
                ", or fewer slots.",
            )
        slates = np.empty((count, slots), np.int64)
        _list_slates(np.ascontiguousarray(advertiser, np.int64), slates)
        return cls(candidates, slates, candidates.evaluate(slates))

    def find_best(self, value: Float64, satisfaction_weight: float) -> Slate:
        """The slate with the highest objective."""
        clicks, satisfaction = self.pages
        best, objective = _find_highest(
            self.slates, clicks, satisfaction, value, float(satisfaction_weight)
        )
        return Slate(
            self.slates[best].copy(), clicks[best].copy(), float(satisfaction[best]), objective
        )


class LazySlates:
    """Slates whose search is prepared on first use, because a ranking of ads needs none."""

    def __init__(self, candidates: Candidates, advertiser: Int64 | None = None) -> None:
        self.candidates = candidates
        self._advertiser = advertiser
        self._search: SlateSearch | None = None

    def find_best(self, value: Float64, satisfaction_weight: float) -> Slate:
        """The slate with the highest objective."""
        if self._search is None:
            self._search = open_search(self.candidates, self._advertiser)
        return self._search.find_best(value, satisfaction_weight)


class MultilinearSlates:
    """Branch and bound over slates whose objective is linear in the ad of each position.

    It is Σ_j Σ_S G[S ∪ j, j] a_j Π_{l ∈ S} c_l over the sets S of positions without j. G[T, j]
    sums the factors that do not depend on the ads (fatigue and transitions) over the orders in
    which T can be clicked with j last. a = θ (value + λρ) is what the last click adds, and
    c = θ (1 − ρ) the probability that an ad is clicked and the session goes on. G, a and c are not
    negative, so when some positions are filled, the largest a and the largest c of the remaining
    ads give an upper bound.
    """

    def __init__(self, candidates: Candidates, advertiser: Int64, slots: int) -> None:
        choice = candidates.choice
        assert choice is not None  # noqa: S101  (open_search checks it)
        self.candidates = candidates
        self._advertiser = np.ascontiguousarray(advertiser, np.int64)
        self._theta = np.ascontiguousarray(choice.theta[0, :, :slots])  # [ad, position]
        self._rho = choice.rho
        self._orders = np.zeros((1 << slots, slots))
        _sum_orders(
            VARIANTS[choice.variant], choice.stop[0], choice.gamma[0], set_sizes(slots),
            self._orders,
        )  # fmt: skip
        self._carry = self._theta * (1.0 - self._rho)[:, None]  # c

    def find_best(self, value: Float64, satisfaction_weight: float) -> Slate:
        """The slate with the highest objective."""
        gain = self._theta * (value + satisfaction_weight * self._rho)[:, None]  # a
        sets, n = self._orders.shape
        ads, state = np.empty(n, np.int64), SearchState.start(sets, n, len(gain))
        size = max(1, STEPS_AT_ONCE // (sets * n))
        depth, highest = NOT_STARTED, -1.0
        while depth != FINISHED:
            check_time()
            depth, highest = _branch_and_bound(
                self._orders, gain, self._carry, self._advertiser, *state, depth, highest, size, ads
            )
        return score_slate(self.candidates, ads, value, satisfaction_weight)


class SearchState(NamedTuple):
    """The state of a branch and bound, from which it continues. See `_branch_and_bound`."""

    past_objective: Float64  # [depth, set]
    click_objective: Float64  # [depth, set, position]
    bound: Float64  # [depth, ad]
    ads_so_far: Int64  # [depth]

    @classmethod
    def start(cls, sets: int, n: int, ads: int) -> SearchState:
        """The state before the first step."""
        past_objective, click_objective = np.zeros((n + 1, sets)), np.zeros((n + 1, sets, n))
        return cls(past_objective, click_objective, np.zeros((n, ads)), np.full(n, -1))


def _most_ads(slots: int, most: int) -> int:
    ads = slots
    while math.perm(ads + 1, slots) <= most:
        ads += 1
    return ads


@kernel
def _list_slates(advertiser: Int64, slates: Int64) -> None:
    """Fill slates [slate, position] with all ordered choices of ads, in the order of candidates."""
    n = slates.shape[1]
    ads = np.full(n, -1)
    depth = n_slates = 0
    while depth >= 0:
        ads[depth] += 1
        if ads[depth] == len(advertiser):
            ads[depth] = -1
            depth -= 1
            continue
        free = True
        for above in range(depth):
            free = free and advertiser[ads[above]] != advertiser[ads[depth]]
        if not free:
            continue
        if depth < n - 1:
            depth += 1
            continue
        for j in range(n):
            slates[n_slates, j] = ads[j]
        n_slates += 1


@kernel
def _find_highest(
    slates: Int64, clicks: Float64, satisfaction: Float64, value: Float64, weight: float
) -> tuple[int, float]:
    """The first slate with the highest objective, and its objective."""
    best, highest = 0, -np.inf
    for s in range(len(slates)):
        objective = weight * satisfaction[s] if weight > 0.0 else 0.0
        for j in range(slates.shape[1]):
            objective += value[slates[s, j]] * clicks[s, j]
        if objective > highest:
            best, highest = s, objective
    return best, highest


@kernel
def _sum_orders(variant: int, stop: Float64, gamma: Float64, sizes: Int64, orders: Float64) -> None:
    """Fill orders[set, last] with G: the sum over all orders of clicking the set, with this last.

    It has only the factors that do not depend on the ads: (1 − η_k) γ_lj, divided by Σ γ_lj over
    the free positions in the variant `examination`.
    """
    sets, n = orders.shape
    for clicked_set in range(sets):
        for last in range(n + 1):
            so_far = orders[clicked_set, last - 1] if last > 0 else 0.0
            if clicked_set == 0 and last == 0:
                so_far = 1.0
            share = 1.0
            if variant == EXAMINATION:
                share = 0.0
                for j in range(n):
                    share += gamma[last, j] * (1 - ((clicked_set >> j) & 1))
            if so_far <= 0.0 or share <= 0.0:
                continue
            for j in range(n):
                if not (clicked_set >> j) & 1:
                    step = (1.0 - stop[sizes[clicked_set]]) * gamma[last, j] / share
                    orders[clicked_set | (1 << j), j] += so_far * step


@kernel
def _branch_and_bound(
    orders: Float64,  # [set, last] G
    gain: Float64,  # [ad, position] a
    carry: Float64,  # [ad, position] c
    advertiser: Int64,  # [ad]
    past_objective: Float64,
    click_objective: Float64,
    bound: Float64,
    ads: Int64,
    depth: int,
    highest: float,
    most: int,
    best: Int64,  # [position] filled
) -> tuple[int, float]:
    """Fill best with the best ads, with at most `most` tries; returns depth and objective.

    The search continues from the returned depth, until it is FINISHED.

    At depth d the positions before d have their ads. The objective is then a polynomial in the
    a and c of the positions from d on: past_objective[d, U] Π_{U} c comes from clicks on ads that
    are already placed, after clicks on U; click_objective[d, U, j] a_j Π_{U} c comes from a click
    on j, after clicks on U.
    """
    sets, n = orders.shape
    if depth == NOT_STARTED:
        for later_set in range(sets):
            for j in range(n):
                if not (later_set >> j) & 1:
                    click_objective[0, later_set, j] = orders[later_set | (1 << j), j]
        _bound_ads(0, past_objective[0], click_objective[0], gain, carry, advertiser, ads, bound[0])
        depth = 0
    n_tries = 0
    while depth >= 0 and n_tries < most:
        ad = np.argmax(bound[depth])
        if bound[depth, ad] <= highest:  # no better slate with these ads so far
            depth -= 1
            continue
        ads[depth] = ad
        n_tries += 1
        if depth == n - 1:  # the bound is exact
            highest = bound[depth, ad]
            best[:] = ads
            depth -= 1
            continue
        bound[depth, ad] = -1.0
        _fill_position(
            depth, gain[ad, depth], carry[ad, depth], past_objective[depth], click_objective[depth],
            past_objective[depth + 1], click_objective[depth + 1],
        )  # fmt: skip
        depth += 1
        _bound_ads(
            depth,
            past_objective[depth],
            click_objective[depth],
            gain,
            carry,
            advertiser,
            ads,
            bound[depth],
        )
    return depth, highest


@subkernel
def _bound_ads(
    depth: int,
    past_objective: Float64,  # [set]
    click_objective: Float64,  # [set, position]
    gain: Float64,
    carry: Float64,
    advertiser: Int64,
    ads_above: Int64,  # [position]
    bound: Float64,  # [ad] filled
) -> None:
    """Fill bound with an upper bound per ad; −1 if its advertiser already has an ad."""
    sets, n = click_objective.shape
    top_gain, top_carry = np.zeros(n), np.zeros(n)
    for ad in range(len(bound)):
        bound[ad] = 0.0
        for above in range(depth):
            if advertiser[ads_above[above]] == advertiser[ad]:
                bound[ad] = -1.0
        if bound[ad] < 0.0:
            continue
        for j in range(depth + 1, n):
            top_gain[j] = max(top_gain[j], gain[ad, j])
            top_carry[j] = max(top_carry[j], carry[ad, j])
    constant = by_gain = by_carry = 0.0  # the bound is linear in the ad's own gain and carry
    bit = 1 << depth
    for later_set in range(0, sets, 2 * bit):  # sets of later positions
        product, objective, objective_with_carry = (
            1.0,
            past_objective[later_set],
            past_objective[later_set | bit],
        )
        for j in range(depth + 1, n):
            product *= top_carry[j] if (later_set >> j) & 1 else 1.0
            objective += click_objective[later_set, j] * top_gain[j]
            objective_with_carry += click_objective[later_set | bit, j] * top_gain[j]
        constant += objective * product
        by_carry += objective_with_carry * product
        by_gain += click_objective[later_set, depth] * product
    for ad in range(len(bound)):
        if bound[ad] >= 0.0:
            bound[ad] = constant + by_gain * gain[ad, depth] + by_carry * carry[ad, depth]


@subkernel
def _fill_position(
    depth: int,
    gain: float,
    carry: float,
    past_objective: Float64,
    click_objective: Float64,
    next_past_objective: Float64,
    next_click_objective: Float64,
) -> None:
    """Place an ad at this position, and compute the polynomial of the later positions."""
    sets, n = click_objective.shape
    bit = 1 << depth
    for later_set in range(0, sets, 2 * bit):
        next_past_objective[later_set] = (
            past_objective[later_set]
            + carry * past_objective[later_set | bit]
            + gain * click_objective[later_set, depth]
        )
        for j in range(depth + 1, n):
            next_click_objective[later_set, j] = (
                click_objective[later_set, j] + carry * click_objective[later_set | bit, j]
            )
