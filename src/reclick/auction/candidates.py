"""The ads that may be shown for a query, as a click model sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import VARIANTS, ChoicePages
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.mixture import MixturePages
from reclick.clicks.set_probability import MAX_PAGE_ADS
from reclick.clicks.step import choice_rates
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.errors import (
    Argument,
    CannotAnswerError,
    SettingError,
    UsageError,
    check_fitted_model,
    check_whole,
)
from reclick.logs import read_ads
from reclick.models.base import ClickModel
from reclick.models.base.storage import PROBABILITY_ROUNDING
from reclick.runtime.jit import kernel
from reclick.runtime.time_limit import check_time
from reclick.text.word_rates import TextIndex

PAGES_AT_ONCE = 4096  # pages per call of a model
STEPS_AT_ONCE = 100_000_000  # steps between two checks of the time limit
MULTILINEAR = ("paper", "examination")
IGNORES_ADS = ("pm", "am")  # the number of clicks depends only on the length of the page


class CandidateSet(NamedTuple):
    """A query and the ads that may be shown for it."""

    query: str
    ads: tuple[str, ...]


class PageClicks(NamedTuple):
    """The predictions of a model for pages of equal length."""

    clicks: Float64  # [page, position] P(click)
    satisfaction: Float64  # [page] P(the session ends satisfied), nan if the model has none


@dataclass(frozen=True, slots=True)
class ChoiceParameters:
    """Candidates under a choice model (`reclick.clicks.choice`), or a mixture of such models."""

    variant: str
    theta: Float64  # [component, ad, position]
    rho: Float64  # [ad]
    stop: Float64  # [component, clicks so far]
    gamma: Float64  # [component, last, position]
    weights: Float64  # [component] mixing weights

    def evaluate(self, slates: Int64) -> PageClicks:
        """What is clicked on pages of these ads [page, position]."""
        count, n = slates.shape
        clicks = np.zeros((count, n))
        size = max(1, STEPS_AT_ONCE // ((n << n) * (n + 1) * len(self.weights)))
        for start in range(0, count, size):
            check_time()
            part = slice(start, start + size)
            _evaluate_slates(
                VARIANTS[self.variant], self.theta, self.rho, self.stop, self.gamma, self.weights,
                slates[part], set_sizes(n), np.empty((1 << n, n + 1)), np.empty((n + 1, n)),
                clicks[part],
            )  # fmt: skip
        return PageClicks(clicks, np.sum(clicks * self.rho[slates], axis=1))

    def is_multilinear(self, slots: int) -> bool:
        """Whether the expected value is linear in the parameters of the ad of each position.

        It is if the sum of the weights of a choice is never above 1.
        """
        if self.variant not in MULTILINEAR or len(self.weights) > 1:
            return False
        most = float(self.theta.max(initial=0.0))
        if self.variant == "paper":
            most *= float(self.gamma[0, : slots + 1, :slots].sum(axis=1).max())
        return most <= 1.0 + PROBABILITY_ROUNDING


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of a query, with everything that the prediction of their clicks needs."""

    query: str
    ads: tuple[str, ...]
    slots: int  # on the page, at most the number of ads
    model: ClickModel
    choice: ChoiceParameters | None  # None: the model predicts every page
    text: TextIndex | None = None

    def select(self, rows: Int64) -> Candidates:
        """Select some of the ads; the page has at most as many slots as ads."""
        choice, slots = self.choice, min(self.slots, len(rows))
        if choice is not None:
            choice = replace(
                choice, theta=np.ascontiguousarray(choice.theta[:, rows]), rho=choice.rho[rows]
            )
        ads = tuple(self.ads[row] for row in rows)
        return replace(self, ads=ads, slots=slots, choice=choice)

    def evaluate(self, slates: Int64) -> PageClicks:
        """What is clicked on pages of these ads [page, position]."""
        if self.choice is not None:
            return self.choice.evaluate(slates)
        parts = [
            _ask_model(self.model, self.query, self.ads, slates[start : start + PAGES_AT_ONCE],
                       self.text)
            for start in range(0, len(slates), PAGES_AT_ONCE)
        ]  # fmt: skip
        clicks, satisfaction = zip(*parts, strict=True)
        return PageClicks(np.concatenate(clicks), np.concatenate(satisfaction))

    def clicks_alone(self) -> Float64:
        """P(click) of each ad alone on the page [ad]: the quality that GSP ranks by."""
        return self.evaluate(np.arange(len(self.ads))[:, None]).clicks[:, 0]

    def satisfaction_per_click(self) -> Float64:
        """The satisfaction ρ of each ad [ad]; nan if the model has none."""
        if self.choice is not None:
            return self.choice.rho
        if not self.model.satisfaction:
            return np.full(len(self.ads), np.nan)
        pairs = {"query": [self.query] * len(self.ads), "ad": list(self.ads)}
        return np.asarray(self.model.relevance(pairs)["satisfaction"].to_numpy(), np.float64)


def look_up_candidates(
    model: ClickModel, sets: Sequence[CandidateSet], *, slots: int, text: object = None
) -> Iterator[Candidates]:
    """Look up the candidates of each query, in the order of `sets`.

    `text` is an ads table with the text of ads that are new to the model.
    """
    check_fitted_model(model)
    slots = check_slots(model, slots)
    index = None if text is None else model._index_text(read_ads(text))
    if not _has_choice_parameters(model):
        for candidate_set in sets:
            yield Candidates(*candidate_set, min(slots, len(candidate_set.ads)), model, None, index)
        return
    for part in _split_sets(sets):
        yield from _look_up_choices(model, part, slots, index)


def check_slots(model: ClickModel, slots: int) -> int:
    """Check the number of slots: click probabilities of the pages must be exact."""
    slots = check_whole("slots", slots, 1)
    if _has_choice_parameters(model) and slots > MAX_PAGE_ADS:
        expected = f"at most {MAX_PAGE_ADS}, the longest page with exact click probabilities"
        raise SettingError("slots", slots, expected)
    return slots


def check_candidates(query: object, ads: Sequence[object]) -> CandidateSet:
    """Check a query and its ads: each must be a text, not empty, and each ad must occur once."""
    if not isinstance(query, str) or not query:
        raise SettingError("query", query, "the text of a query")
    if isinstance(ads, str) or not len(ads):
        raise SettingError("ads", ads, "a list of one or more ads")
    for ad in ads:
        if not isinstance(ad, str) or not ad:
            raise SettingError("ads", ad, "the id of an ad")
    if len(set(ads)) < len(ads):
        twice = next(ad for ad in ads if list(ads).count(ad) > 1)
        raise UsageError(f"The ad {twice!r} is listed twice for the query {query!r}: keep one.")
    return CandidateSet(query, tuple(map(str, ads)))


def refuse_fixed_clicks(model: ClickModel) -> None:
    """Raise if the number of clicks that the model predicts does not depend on the ads."""
    variant = model.get_params().get("variant")
    if variant == "normalised":
        raise CannotAnswerError(
            "MultiClick(variant='normalised') cannot be used for an auction: the probability of a "
            "first click is the same whatever ads are shown, so a page of one expensive ad and "
            "worthless ones would look best. Use LuceClick, or ",
            Argument("variant", "paper"),
            " or 'examination'.",
        )
    if model.name in IGNORES_ADS:
        raise CannotAnswerError(
            f"{type(model).__name__} cannot be used for an auction: it predicts the same number of "
            "clicks whatever ads are shown. Use LuceClick."
        )


def _has_choice_parameters(model: ClickModel) -> bool:
    """Whether the parameters of an ad depend only on the query and the position."""
    from reclick.models import LuceClick, MultiClick

    plain = model.noise_ is None or model.noise_.share == 0
    return isinstance(model, LuceClick | MultiClick) and plain and not model.redundancy_


def _split_sets(sets: Sequence[CandidateSet]) -> Iterator[list[CandidateSet]]:
    part: list[CandidateSet] = []
    pages = 0
    for candidate_set in sets:
        if part and pages + len(candidate_set.ads) > PAGES_AT_ONCE:
            yield part
            part, pages = [], 0
        part.append(candidate_set)
        pages += len(candidate_set.ads)
    if part:
        yield part


def _look_up_choices(
    model: ClickModel, sets: Sequence[CandidateSet], slots: int, text: TextIndex | None
) -> Iterator[Candidates]:
    """Look up the parameters of every ad at every position.

    A query with K ads has K pages: page r has the ads r, r + 1, … (mod K), so that every ad is at
    every position once.
    """
    pages_of_sets = [
        (candidate_set, _rotations(len(candidate_set.ads), slots)) for candidate_set in sets
    ]
    batch = _make_batch(
        [(candidate_set.query, candidate_set.ads, pages) for candidate_set, pages in pages_of_sets]
    )
    (pages,) = model.map_batch(batch, lambda _, distribution: distribution, text=text, threads=1)
    first = 0
    for candidate_set, rotations in pages_of_sets:
        count, n = rotations.shape
        choice = _read_choice(pages, first, count, n)
        yield Candidates(candidate_set.query, candidate_set.ads, n, model, choice, text)
        first += count


def _rotations(ads: int, slots: int) -> Int64:
    return (np.arange(ads)[:, None] + np.arange(min(slots, ads))) % ads


def _read_choice(pages: PageDistribution, first: int, ads: int, n: int) -> ChoiceParameters:
    """Read the parameters of one query from its pages first … first + ads − 1."""
    parts = list(pages.components) if isinstance(pages, MixturePages) else [pages]
    choices = [choice for choice in parts if isinstance(choice, ChoicePages)]
    if len(choices) < len(parts):
        raise TypeError(f"{type(pages).__name__} has no choice parameters")
    weights = pages.weights[first] if isinstance(pages, MixturePages) else np.ones(1)
    begin = int(choices[0].starts[first])
    # Ad i is at position j of page i − j.
    page = (np.arange(ads)[:, None] - np.arange(n)) % ads
    at = begin + page * n + np.arange(n)
    return ChoiceParameters(
        choices[0].variant,
        np.stack([choice.theta[at] for choice in choices]),
        np.ascontiguousarray(choices[0].rho[at[:, 0]]),
        np.stack([choice.stop[choice.table[first], : n + 1] for choice in choices]),
        np.stack([choice.gamma[choice.table[first], : n + 1, :n] for choice in choices]),
        np.ascontiguousarray(weights, np.float64),
    )


def _ask_model(
    model: ClickModel, query: str, ads: tuple[str, ...], slates: Int64, text: TextIndex | None
) -> PageClicks:
    """Predict the clicks of pages of equal length with the model."""
    batch = _make_batch([(query, ads, slates)])

    def answer(_: SessionBatch, pages: PageDistribution) -> PageClicks:
        satisfaction = np.full(len(pages), np.nan)
        if model.satisfaction:
            satisfaction = np.asarray(pages.satisfaction_prob(), np.float64)
        return PageClicks(np.asarray(pages.click_prob(), np.float64), satisfaction)

    parts = list(model.map_batch(batch, answer, text=text))
    clicks, satisfaction = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return PageClicks(clicks.reshape(slates.shape), satisfaction)


def _make_batch(sets: Sequence[tuple[str, tuple[str, ...], Int64]]) -> SessionBatch:
    """Make a batch of pages; the pages of a query are rows of indices into its ads."""
    first_ad = np.cumsum([0, *(len(ads) for _, ads, _ in sets)])
    sizes = np.concatenate([np.full(len(pages), pages.shape[1]) for _, _, pages in sets])
    ad = np.concatenate(
        [pages.reshape(-1) + start for (_, _, pages), start in zip(sets, first_ad, strict=False)]
    )
    return SessionBatch(
        queries=pa.array([query for query, _, _ in sets], pa.string()),
        ads=pa.array([ad for _, ads, _ in sets for ad in ads], pa.string()),
        query=np.repeat(
            np.arange(len(sets), dtype=np.int32), [len(candidate_set[2]) for candidate_set in sets]
        ),
        ad=ad.astype(np.int32),
        page=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        click=np.zeros(0, np.int32),
        clicks=np.zeros(len(sizes) + 1, np.int64),
    )


@cache
def set_sizes(n: int) -> Int64:
    """The number of positions in each set [set]; bit j of a set is position j."""
    return np.array([bits.bit_count() for bits in range(1 << n)], np.int64)


@kernel
def _evaluate_slates(
    variant: int,
    theta: Float64,  # [component, ad, position]
    rho: Float64,  # [ad]
    stop: Float64,  # [component, clicks so far]
    gamma: Float64,  # [component, last, position]
    mixing: Float64,  # [component]
    slates: Int64,  # [slate, position]
    sizes: Int64,  # [set]
    reach: Float64,  # [set, last]
    weight: Float64,  # [last, position]
    clicks: Float64,  # [slate, position] zeros, filled
) -> None:
    """Fill clicks with P(click) of every position of every slate.

    reach[set, last] is P(the first clicks are the set, with this last); bit j is position j.
    """
    n = slates.shape[1]
    for s in range(len(slates)):
        for t in range(len(mixing)):
            for last in range(n + 1):
                for j in range(n):
                    weight[last, j] = theta[t, slates[s, j], j] * gamma[t, last, j]
            reach[:] = 0.0
            reach[0, 0] = 1.0
            for clicked_set in range((1 << n) - 1):  # a set comes after its subsets
                for last in range(n + 1):
                    arrive = reach[clicked_set, last]
                    if arrive <= 0.0:
                        continue
                    total = examination = 0.0
                    for j in range(n):
                        if not (clicked_set >> j) & 1:
                            total += weight[last, j]
                            examination += gamma[t, last, j]
                    satisfied = rho[slates[s, last - 1]] if last > 0 else 0.0
                    scale, _ = choice_rates(
                        variant, total, examination, satisfied, stop[t, sizes[clicked_set]]
                    )
                    scale *= arrive
                    for j in range(n):
                        if not (clicked_set >> j) & 1:
                            chance = scale * weight[last, j]
                            reach[clicked_set | (1 << j), j + 1] += chance
                            clicks[s, j] += mixing[t] * chance
