"""Uncertainty of prices: auctions repeated with models drawn from the posterior."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reclick.auction.candidates import (
    Candidates,
    ChoiceParameters,
    check_candidates,
    look_up_candidates,
)
from reclick.auction.run import AuctionResult, AuctionRules, Entry, hold_auction, make_entries
from reclick.data.batch import Float64
from reclick.errors import CannotAnswerError, check_range, check_whole
from reclick.fitting.posterior import Interval, RelevanceDraws
from reclick.metrics.bootstrap import percentile_interval
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.parallel import parallel_map

LEAST_ATTRACTIVENESS = 1e-9
LISTED_SLATES = 5


@dataclass(frozen=True, slots=True, eq=False)
class AuctionUncertainty:
    """An auction, with its uncertainty from that of attractiveness and satisfaction."""

    result: AuctionResult  # at the model's own estimates
    price_per_click: tuple[Interval, ...]  # [position] over the draws in which the ad is shown
    shown_share: Float64  # [position] share of draws in which the ad is shown
    revenue: Interval
    welfare: Interval
    satisfaction: Interval
    slate_share: float  # share of draws in which exactly this slate wins
    slates: tuple[tuple[tuple[str, ...], float], ...]  # the most frequent ones, with their shares
    draws: int
    level: float

    def __str__(self) -> str:
        rows = [
            f"  {ad}: {price.value:.4g} [{price.low:.4g}, {price.high:.4g}] per click, shown in "
            f"{share:.0%} of draws"
            for ad, price, share in zip(
                self.result.slate, self.price_per_click, self.shown_share, strict=True
            )
        ]
        revenue = self.revenue
        head = (
            f"{self.result.query}: this slate wins in {self.slate_share:.0%} of {self.draws} "
            f"draws; revenue {revenue.value:.4g} [{revenue.low:.4g}, {revenue.high:.4g}]"
        )
        return "\n".join([head, *rows])


@check_arguments
def price_intervals(
    model: ClickModel,
    query: str,
    bids: Mapping[str, float],
    *,
    draws: int = 100,
    level: float = 0.9,
    seed: int = 0,
    text: object = None,
    **options: Any,
) -> AuctionUncertainty:
    """Run an auction, and repeat it with models drawn from the posterior.

    Each draw has the attractiveness and the satisfaction of every ad from their posteriors, which
    are taken as independent; the rest of the model stays the same. The intervals are equal-tailed
    and contain a share `level` of the draws. The other arguments are those of `run_auction`. For
    LuceClick and MultiClick.

    >>> from reclick.models import MultiClick
    >>> log = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[2], [2], [2, 3], []]}
    >>> found = price_intervals(MultiClick().fit(log), "q", {"a": 1.0, "b": 2.0}, draws=20)
    >>> found.draws, len(found.price_per_click), 0 <= found.slate_share <= 1
    (20, 2, True)
    """
    rule_names = AuctionRules.__dataclass_fields__
    rules = AuctionRules(**{k: v for k, v in options.items() if k in rule_names}).check(model)
    entries = make_entries(bids, **{k: v for k, v in options.items() if k not in rule_names})
    candidate_set = check_candidates(query, list(entries))
    (candidates,) = look_up_candidates(model, [candidate_set], slots=rules.slots, text=text)
    return draw_auctions(
        candidates, list(entries.values()), rules, draws=draws, level=level, seed=seed, text=text
    )


def draw_auctions(
    candidates: Candidates,
    entries: list[Entry],
    rules: AuctionRules,
    *,
    draws: int,
    level: float,
    seed: int,
    text: object = None,
) -> AuctionUncertainty:
    """Run the auction of the candidates, and repeat it with models drawn from the posterior."""
    check_whole("draws", draws, 1)
    check_range("level", level, 1e-6, 1 - 1e-6)
    result = hold_auction(candidates, entries, rules)
    models = _draw_candidates(candidates, draws, np.random.default_rng(seed), text)
    results = list(parallel_map(lambda draw: hold_auction(draw, entries, rules), models))
    prices = [
        [dict(zip(drawn_result.slate, drawn_result.price_per_click, strict=True)).get(ad, np.nan)
         for drawn_result in results]
        for ad in result.slate
    ]  # fmt: skip
    slates = Counter(drawn_result.slate for drawn_result in results)
    revenue, welfare, satisfaction = (
        _interval(
            getattr(result, name),
            np.array([getattr(drawn_result, name) for drawn_result in results]),
            level,
        )
        for name in ("revenue", "welfare", "satisfaction")
    )
    return AuctionUncertainty(
        result,
        tuple(
            _interval(float(price), np.array(prices_of_ad), level)
            for price, prices_of_ad in zip(result.price_per_click, prices, strict=True)
        ),
        np.array([np.mean(~np.isnan(prices_of_ad)) for prices_of_ad in prices]),
        revenue,
        welfare,
        satisfaction,
        slates[result.slate] / draws,
        tuple((slate, count / draws) for slate, count in slates.most_common(LISTED_SLATES)),
        draws,
        level,
    )


def _interval(value: float, draws: Float64, level: float) -> Interval:
    low, high = percentile_interval(draws, level)
    return Interval(value, float(low), float(high))


def _draw_candidates(
    candidates: Candidates, draws: int, rng: np.random.Generator, text: object
) -> list[Candidates]:
    """Draw the parameters of the candidates from their posteriors."""
    choice = candidates.choice
    if choice is None:
        raise CannotAnswerError(
            f"{type(candidates.model).__name__} has no draws of its parameters for auctions. Use "
            "LuceClick or MultiClick."
        )
    model = candidates.model
    relevance = model.sample_relevance(
        (candidates.query, list(candidates.ads)), draws, rng, text=text
    )
    return [
        replace(candidates, choice=_with_draw(choice, relevance, draw)) for draw in range(draws)
    ]


def _with_draw(choice: ChoiceParameters, relevance: RelevanceDraws, draw: int) -> ChoiceParameters:
    """Parameters with a drawn attractiveness and satisfaction.

    θ is multiplied by the ratio of the draw to its centre: for LuceClick, whose θ are odds, the
    odds of the draw over those of the estimate; for MultiClick, the draw over the posterior mean.
    """
    if choice.variant == "luce":
        factor = _odds(relevance.attractiveness[draw]) / _odds(relevance.value)
        theta = choice.theta * factor[None, :, None]
    else:
        factor = relevance.attractiveness[draw] / np.maximum(relevance.mean, LEAST_ATTRACTIVENESS)
        theta = np.minimum(choice.theta * factor[None, :, None], 1.0)
    assert relevance.satisfaction is not None  # noqa: S101  (choice models have satisfaction)
    rho = np.ascontiguousarray(relevance.satisfaction[draw])
    return replace(choice, theta=np.ascontiguousarray(theta), rho=rho)


def _odds(probability: Float64) -> Float64:
    inside = np.clip(probability, LEAST_ATTRACTIVENESS, 1 - LEAST_ATTRACTIVENESS)
    return inside / (1 - inside)
