"""Every model by brute force, from its fitted parameters: P(each click sequence of a page).

Written from the pages of docs/models, in plain Python, one oracle for each model. The probability
is summed over every value of the latent variables: whether an ad attracts, is examined, satisfies
or is relevant; whether the user goes on; where examination moves; how many clicks there are; which
component the user belongs to.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.support.enumeration import Brute, Clicks, Rows
from tests.support.generative import (
    Bits,
    enumerated,
    relevant_or_not,
    satisfied_or_tired,
    scanned,
    walked,
)

Ads = tuple[str, ...]
Distribution = dict[Clicks, float]


# what was learnt of a page


def learnt(model: Any, name: str, query: str, ads: Ads, unseen: float) -> list[float]:
    """The values of the pairs of a page; `unseen` where the pair is not in the counts."""
    counts = model._pairs.counts
    pairs = zip(
        counts.queries.take(counts.pair_query).to_pylist(),
        counts.ads.take(counts.pair_ad).to_pylist(),
        strict=True,
    )
    values = dict(zip(pairs, getattr(model, name).tolist(), strict=True))
    return [values.get((query, ad), unseen) for ad in ads]


def theta_of(model: Any, query: str, ads: Ads) -> list[float]:
    return learnt(model, "theta_", query, ads, model.prior_mean_)


def rho_of(model: Any, query: str, ads: Ads) -> list[float]:
    return learnt(model, "rho_", query, ads, model.satisfaction_)


def from_words(model: Any, query: str, ads: Ads) -> list[float]:
    """Attractiveness of models that have it from words, for pairs seen and unseen alike."""
    return list(
        model.relevance({"query": [query] * len(ads), "ad": list(ads)})[
            "attractiveness"
        ].to_pylist()
    )


# positions clicked each on its own, where all of their variables say yes


def each_alone(chances: Sequence[Sequence[float]]) -> Distribution:
    return enumerated(
        chances, lambda world: tuple(position for position, at in enumerate(world, 1) if all(at))
    )


def gctr(model: Any, query: str, ads: Ads) -> Distribution:
    return each_alone([(model.rate_,) for _ in ads])


def rctr(model: Any, query: str, ads: Ads) -> Distribution:
    return each_alone([(rate,) for rate, _ in zip(model.rates_.tolist(), ads, strict=False)])


def dctr(model: Any, query: str, ads: Ads) -> Distribution:
    return each_alone([(theta,) for theta in theta_of(model, query, ads)])


def icm(model: Any, query: str, ads: Ads) -> Distribution:
    return each_alone(
        [
            (min(max(theta, model.floor), 1 - model.floor),)
            for theta in from_words(model, query, ads)
        ]
    )


def pbm(model: Any, query: str, ads: Ads) -> Distribution:
    """Attracted, looked at."""
    return each_alone(list(zip(theta_of(model, query, ads), model.gamma_.tolist(), strict=False)))


# looked at or not, by the click above


def browsed(world: Bits) -> Clicks:
    """Variables: attracted, and whether it would be examined for each closest click above."""
    clicks: Clicks = ()
    for position, at in enumerate(world, 1):
        closest = clicks[-1] if clicks else 0
        if at[0] and at[1 + closest]:
            clicks = (*clicks, position)
    return clicks


def ubm(model: Any, query: str, ads: Ads) -> Distribution:
    theta, gamma = theta_of(model, query, ads), model.gamma_.tolist()
    return enumerated(
        [(theta[r], *(gamma[above][r] for above in range(r + 1))) for r in range(len(ads))], browsed
    )


def bbm(model: Any, query: str, ads: Ads) -> Distribution:
    """UBM with θ the mean of its posterior, which is all of it that predictions take."""
    return ubm(model, query, ads)


# scanned from the top until something stops the user


def cm(model: Any, query: str, ads: Ads) -> Distribution:
    return enumerated(
        [(theta,) for theta in theta_of(model, query, ads)],
        partial(scanned, goes_on=lambda _, clicked, at: not clicked),
    )


def dcm(model: Any, query: str, ads: Ads) -> Distribution:
    """Attracted, would go on after a click."""
    chances = list(zip(theta_of(model, query, ads), model.continuation_.tolist(), strict=False))
    return enumerated(
        chances, partial(scanned, goes_on=lambda _, clicked, at: not clicked or bool(at[1]))
    )


def sdbn(model: Any, query: str, ads: Ads) -> Distribution:
    """As DBN's users, who are patient here."""
    chances = [
        (theta, rho, 1.0)
        for theta, rho in zip(theta_of(model, query, ads), rho_of(model, query, ads), strict=True)
    ]
    return enumerated(chances, partial(scanned, goes_on=satisfied_or_tired))


def dbn(model: Any, query: str, ads: Ads) -> Distribution:
    chances = [
        (theta, rho, model.continuation_)
        for theta, rho in zip(theta_of(model, query, ads), rho_of(model, query, ads), strict=True)
    ]
    return enumerated(chances, partial(scanned, goes_on=satisfied_or_tired))


def ccm(model: Any, query: str, ads: Ads) -> Distribution:
    return enumerated(
        [(theta, theta, *model.alpha_.tolist()) for theta in theta_of(model, query, ads)],
        partial(scanned, goes_on=relevant_or_not),
    )


# clicks in any order


def thcm(model: Any, query: str, ads: Ads) -> Distribution:
    return walked(theta_of(model, query, ads), model.forward_, model.back_)


def pm(model: Any, query: str, ads: Ads) -> Distribution:
    """Hidden is how many clicks there will be."""
    return {
        tuple(range(1, many + 1)): model.numbers_[len(ads), many] for many in range(len(ads) + 1)
    }


def am(model: Any, query: str, ads: Ads) -> Distribution:
    theta = from_words(model, query, ads)
    best = sorted(range(1, len(ads) + 1), key=lambda position: (-theta[position - 1], position))
    return {tuple(best[:many]): model.numbers_[len(ads), many] for many in range(len(ads) + 1)}


def choosing(following: Callable[[Clicks], dict[int, float]], clicks: Clicks = ()) -> Distribution:
    """P(each click sequence that begins with these clicks, given them).

    following(clicks) is P(next click); the rest ends the session.
    """
    ahead = following(clicks)
    found = {clicks: 1 - sum(ahead.values())}
    for position, chance in ahead.items():
        found |= {
            whole: chance * p for whole, p in choosing(following, (*clicks, position)).items()
        }
    return found


def multiclick(model: Any, query: str, ads: Ads) -> Distribution:
    theta = [max(value, model.floor) for value in from_words(model, query, ads)]
    asked = {"query": [query] * len(ads), "ad": list(ads)}
    rho = [
        min(value, 1 - model.floor) for value in model.relevance(asked)["satisfaction"].to_pylist()
    ]
    habits = model.fatigue_and_transitions(query, len(ads))
    page = theta, rho, habits.eta.tolist(), habits.gamma.tolist()
    return choosing(partial(Brute([], variant=model.variant).following, page))


def luceclick(model: Any, query: str, ads: Ads) -> Distribution:
    """Each component for itself, with the query's mixing weights, and with two outside options."""
    queries = model._pairs.counts.queries.to_pylist()
    own = queries.index(query) if query in queries else None
    strength = model.hyperparameters_["query_strength"]
    common = own is None or strength is None
    stops = model._query_class_mean[0] if common else model._query_outside[own]
    unsure = 0.0
    if strength is not None:
        deviations = model._query_outside_deviation
        unsure = min(strength**-0.5, 1.0) if own is None else deviations[own]
    mixing_common = own is None or model.hyperparameters_["mixing_strength"] is None
    shares = model.mixing_ if mixing_common else model._query_mixing[own]
    theta, rho = theta_of(model, query, ads), rho_of(model, query, ads)
    loose = learnt(model, "_satisfaction_variance", query, ads, 0.0)
    found: Distribution = defaultdict(float)
    for share, gamma, omega, ease in zip(
        shares, model.gamma_, model.omega_, model._satisfaction_odds, strict=True
    ):
        satisfied = (
            rho
            if len(shares) == 1
            else [satisfied_of(*each, ease) for each in zip(rho, loose, strict=True)]
        )
        for readily in (stops / math.exp(unsure), stops * math.exp(unsure)):
            for clicks, p in choosing(
                partial(luce_choice, theta, satisfied, gamma.tolist(), (omega * readily).tolist())
            ).items():
                found[clicks] += share * p / 2
    return found


def satisfied_of(rho: float, variance: float, ease: float) -> float:
    """The mean satisfaction where the odds are `ease` times those of ρ, with an uncertain logit."""

    def mean(centre: float) -> float:
        return centre + variance / 2 * centre * (1 - centre) * (1 - 2 * centre)

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < rho else (low, middle)
    return mean(low * ease / (1 - low + low * ease))


def luce_choice(
    theta: list[float], rho: list[float], gamma: Rows, outside: list[float], clicks: Clicks
) -> dict[int, float]:
    """P(next click): not satisfied by the last, then a choice among what is left and the end."""
    last = clicks[-1] if clicks else 0
    unsatisfied = 1 - rho[last - 1] if last else 1.0
    weights = {
        j: theta[j - 1] * gamma[last][j - 1] for j in range(1, len(theta) + 1) if j not in clicks
    }
    all_of_them = outside[len(clicks)] + sum(weights.values())
    return {j: unsatisfied * weight / all_of_them for j, weight in weights.items()}


ORACLES: dict[str, Callable[[Any, str, Ads], Distribution]] = {
    "multiclick": multiclick,
    "luceclick": luceclick,
    "pm": pm,
    "am": am,
    "icm": icm,
    "gctr": gctr,
    "rctr": rctr,
    "dctr": dctr,
    "pbm": pbm,
    "ubm": ubm,
    "bbm": bbm,
    "cm": cm,
    "dcm": dcm,
    "sdbn": sdbn,
    "dbn": dbn,
    "ccm": ccm,
    "thcm": thcm,
}
