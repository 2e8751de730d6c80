"""Every model by brute force, from its fitted parameters: P(each click sequence of a page).

Written from the pages of docs/models, in plain Python, one oracle for each model. The probability
is summed over every value of the latent variables: whether an ad attracts, is examined, satisfies
or is relevant; whether the user goes on; where examination moves; how many clicks there are; which
component the user belongs to.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

import reclick as rc
from reclick.fitting.priors import PRIOR_MARGIN
from reclick.testing.cases import ADS
from tests.support.enumeration import Brute, Clicks, Rows
from tests.support.generative import (
    Bits,
    enumerated,
    relevant_or_not,
    satisfied_or_tired,
    scanned,
    scanned_from,
    walked,
    wandered,
)

Ads = tuple[str, ...]
Distribution = dict[Clicks, float]


# what was learnt of a page


def learnt(model: Any, name: str, query: str, ads: Ads, unseen: list[float]) -> list[float]:
    """The values of the pairs of a page; `unseen` [ad] where the pair is not in the counts."""
    counts = model._pairs.counts
    pairs = zip(
        counts.queries.take(counts.pair_query).to_pylist(),
        counts.ads.take(counts.pair_ad).to_pylist(),
        strict=True,
    )
    values = dict(zip(pairs, getattr(model, name).tolist(), strict=True))
    return [values.get((query, ad), other) for ad, other in zip(ads, unseen, strict=True)]


def theta_of(model: Any, query: str, ads: Ads) -> list[float]:
    return learnt(model, "theta_", query, ads, prior_means(model, ads))


def rho_of(model: Any, query: str, ads: Ads) -> list[float]:
    return learnt(model, "rho_", query, ads, [model.satisfaction_] * len(ads))


def prior_means(model: Any, ads: Ads) -> list[float]:
    """Prior means of ads on a query that is not in the log."""
    known, prior = model._pairs.counts.ads.to_pylist(), model._pairs.ad_prior
    if prior is None:
        return [model.prior_mean_] * len(ads)
    of_words = from_words(model, "a query that was never seen", ads)
    return [
        clip_mean(float(prior.prior.ads.mean[known.index(ad)])) if ad in known else new
        for ad, new in zip(ads, of_words, strict=True)
    ]


def clip_mean(mean: float) -> float:
    return min(max(mean, PRIOR_MARGIN), 1 - PRIOR_MARGIN)


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
    """Attracted, looked at; each component of users for itself."""
    gamma = model.gamma_.tolist()
    return over_components(
        model,
        query,
        ads,
        lambda theta: each_alone(list(zip(theta, gamma, strict=False))),
    )


def over_components(
    model: Any, query: str, ads: Ads, answer: Callable[[list[float]], Distribution]
) -> Distribution:
    """The mean over components, whose odds of θ differ by factors and whose mean is θ."""
    centres = [centre(theta, model) for theta in theta_of(model, query, ads)]
    found: Distribution = defaultdict(float)
    for share, shift in zip(model.mixing_.tolist(), model.shifts_.tolist(), strict=True):
        for clicks, p in answer([logistic(a + shift) for a in centres]).items():
            found[clicks] += share * p
    return found


def centre(theta: float, model: Any) -> float:
    """The log-odds without a shift, by bisection."""
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        parts = zip(model.mixing_.tolist(), model.shifts_.tolist(), strict=True)
        if sum(share * logistic(middle + shift) for share, shift in parts) < theta:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


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
    return over_components(model, query, ads, partial(browsed_pages, model.gamma_.tolist()))


def browsed_pages(gamma: Rows, theta: list[float]) -> Distribution:
    return enumerated(
        [(theta[r], *(gamma[above][r] for above in range(r + 1))) for r in range(len(theta))],
        browsed,
    )


def bbm(model: Any, query: str, ads: Ads) -> Distribution:
    """UBM with θ the mean of its posterior, which is all of it that predictions take."""
    return browsed_pages(model.gamma_.tolist(), theta_of(model, query, ads))


# scanned from the top until something stops the user


def initiated(model: Any, query: str, scans: Distribution) -> Distribution:
    """Those who skip the list click nothing; the others scan down."""
    initiation = of_query(model, query, model.query_initiation_, model.initiation_)
    found = {clicks: initiation * p for clicks, p in scans.items()}
    found[()] += 1 - initiation
    return found


def cm(model: Any, query: str, ads: Ads) -> Distribution:
    scans = enumerated(
        [(theta,) for theta in theta_of(model, query, ads)],
        partial(scanned, goes_on=lambda _, clicked, at: not clicked),
    )
    return initiated(model, query, scans)


def dcm(model: Any, query: str, ads: Ads) -> Distribution:
    """Attracted, would go on after a click."""
    chances = list(zip(theta_of(model, query, ads), model.continuation_.tolist(), strict=False))
    scans = enumerated(
        chances, partial(scanned, goes_on=lambda _, clicked, at: not clicked or bool(at[1]))
    )
    return initiated(model, query, scans)


def sdbn(model: Any, query: str, ads: Ads) -> Distribution:
    """As DBN's users, who are patient here."""
    chances = [
        (theta, rho, 1.0)
        for theta, rho in zip(theta_of(model, query, ads), rho_of(model, query, ads), strict=True)
    ]
    return initiated(
        model, query, enumerated(chances, partial(scanned, goes_on=satisfied_or_tired))
    )


def dbn(model: Any, query: str, ads: Ads) -> Distribution:
    patience = of_query(model, query, model.query_continuation_, model.continuation_)
    chances = [
        (theta, rho, patience)
        for theta, rho in zip(theta_of(model, query, ads), rho_of(model, query, ads), strict=True)
    ]
    return initiated(
        model, query, enumerated(chances, partial(scanned, goes_on=satisfied_or_tired))
    )


def of_query(model: Any, query: str, values: Any, overall: float) -> float:
    """The value of a query, where each has one and it is known; else the overall one."""
    queries = model._pairs.counts.queries.to_pylist()
    if values is None or query not in queries:
        return overall
    return float(values[queries.index(query)])


def ccm(model: Any, query: str, ads: Ads) -> Distribution:
    scans = enumerated(
        [(theta, theta, *model.alpha_.tolist()) for theta in theta_of(model, query, ads)],
        partial(scanned, goes_on=relevant_or_not),
    )
    return initiated(model, query, scans)


# clicks in any order


def thcm(model: Any, query: str, ads: Ads) -> Distribution:
    return walked(theta_of(model, query, ads), model.forward_, model.back_)


def scan(model: Any, query: str, ads: Ads) -> Distribution:
    theta, rho = theta_of(model, query, ads), rho_of(model, query, ads)
    gamma, down = model.gamma_.tolist(), model.down_.tolist()
    return choosing(partial(scanned_from, theta, rho, gamma, down, len(ads)))


def pom(model: Any, query: str, ads: Ads) -> Distribution:
    return wandered(theta_of(model, query, ads), model.moves_.tolist())


def crf(model: Any, query: str, ads: Ads) -> Distribution:
    """Every set of clicks, top down, with its log-odds; ads are compared by their words."""
    appeal = learnt(model, "appeal_", query, ads, [0.0] * len(ads))
    known = len(model.position_)
    totals: Distribution = {}
    for clicks in all_sets(len(ads)):
        total = 0.0
        for i in clicks:
            total += appeal[i - 1] + model.position_[min(i, known) - 1]
            for j in (each for each in clicks if each < i):
                if i <= known:
                    total += model.position_pairs_[j - 1, i - 1]
                total -= model.kappa_ * alike(ads[j - 1], ads[i - 1])
        totals[clicks] = total
    highest = max(totals.values())
    odds = {clicks: math.exp(total - highest) for clicks, total in totals.items()}
    return {clicks: each / sum(odds.values()) for clicks, each in odds.items()}


def alike(one: str, other: str) -> float:
    """The Jaccard index of the words of two ads."""
    if one == other:
        return 1.0
    words = [set(words_of(ad)) for ad in (one, other)]
    return len(words[0] & words[1]) / max(len(words[0] | words[1]), 1)


def words_of(ad: str) -> list[str]:
    if ad not in ADS["ad"]:
        return []
    row = ADS["ad"].index(ad)
    return rc.tokens(ADS["title"][row], ADS["description"][row], ADS["display_url"][row])


def all_sets(size: int) -> list[Clicks]:
    positions = range(1, size + 1)
    return [each for n in range(size + 1) for each in itertools.combinations(positions, n)]


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
    brute, rest = Brute([], variant=model.variant), (habits.eta.tolist(), habits.gamma.tolist())

    def following(clicks: Clicks) -> dict[int, float]:
        attracts = [
            value * repeat_factor(model, ads, clicks, j) for j, value in enumerate(theta, 1)
        ]
        return brute.following((attracts, rho, *rest), clicks)

    return choosing(following)


def repeat_factor(model: Any, ads: Ads, clicks: Clicks, position: int) -> float:
    """exp(−κ σ): what an ad keeps that repeats words of clicked ones."""
    words = [ad_words(model, ad) for ad in ads]
    own, kept = words[position - 1], 1.0
    for click in clicks:
        shared = [word for word in own if word in words[click - 1] and word >= 0]
        kept *= 1 - (1 - math.exp(-1)) * len(shared) / max(len(own), 1)
    return math.exp(-model.redundancy_ * (1 - kept))


def ad_words(model: Any, ad: str) -> list[int]:
    """The words of an ad; −1 where the model has never seen one."""
    found = model._pairs.words.encode_ads(pa.array([ad]), model._index_text(None))
    return list(found.words.tolist())


def luceclick(model: Any, query: str, ads: Ads) -> Distribution:
    """Each component of users for itself, as many as there are among the query's."""
    queries = model._pairs.counts.queries.to_pylist()
    own = queries.index(query) if query in queries else None
    fitted = model._state.parameters
    f = fitted.query_outside.level(0)[0] if own is None else fitted.query_outside.weights()[own]
    shares = model.mixing_ if own is None else fitted.mixing.weights[own]
    odds = [p / (1 - p) for p in from_words(model, query, ads)]
    effects = [luce_effect(model, query, own, ad, j) for j, ad in enumerate(ads)]
    theta = [x * effect for x, effect in zip(odds, effects, strict=True)]
    rho = rho_of(model, query, ads)
    found: Distribution = defaultdict(float)
    for share, gamma, omega in zip(shares, model.gamma_, model.omega_, strict=True):
        outside = (omega * f / model.typical_outside_).tolist()
        choice = partial(luce_choice, theta, rho, gamma.tolist(), outside)

        def following(clicks: Clicks, choice: Any = choice) -> dict[int, float]:
            factors = [repeat_factor(model, ads, clicks, j) for j in range(1, len(ads) + 1)]
            return dict(choice(clicks, factors))

        for clicks, p in choosing(following).items():
            found[clicks] += share * p
    return found


def luce_effect(model: Any, query: str, own: int | None, ad: str, position: int) -> float:
    """The effect of a position for the query, times that for the pair, where they were seen."""
    layout, appeal = model._state.layout, model._state.parameters.appeal
    if not layout.cells.has_positions or own is None:
        return 1.0
    effect = 1.0
    if position < layout.longest:
        effect = float(appeal.level(2)[own * layout.longest + position])
    row = pair_row(model, query, ad)
    cells = zip(layout.cells.pair.tolist(), layout.cells.position.tolist(), strict=True)
    values = zip(cells, appeal.level(3).tolist(), strict=True)
    own_effects = [each for cell, each in values if cell == (row, position)]
    return effect * (own_effects[0] if own_effects else 1.0)


def pair_row(model: Any, query: str, ad: str) -> int:
    """Where a pair stands in the counts; −1 where it does not."""
    counts = model._pairs.counts
    queries, ads = counts.queries.take(counts.pair_query), counts.ads.take(counts.pair_ad)
    pairs = list(zip(queries.to_pylist(), ads.to_pylist(), strict=True))
    return pairs.index((query, ad)) if (query, ad) in pairs else -1


def luce_choice(
    theta: list[float],
    rho: list[float],
    gamma: Rows,
    outside: list[float],
    clicks: Clicks,
    factors: list[float],
) -> dict[int, float]:
    """P(next click): not satisfied by the last, then a choice among what is left and the end."""
    last = clicks[-1] if clicks else 0
    unsatisfied = 1 - rho[last - 1] if last else 1.0
    weights = {
        j: theta[j - 1] * factors[j - 1] * gamma[last][j - 1]
        for j in range(1, len(theta) + 1)
        if j not in clicks
    }
    all_of_them = outside[len(clicks)] + sum(weights.values())
    return {j: unsatisfied * weight / all_of_them for j, weight in weights.items()}


def tcm(model: Any, query: str, ads: Ads) -> Distribution:
    """Over what the user may find each ad worth, whether she attends, and which ad is first."""
    bins, found = model.bins, defaultdict[Clicks, float](float)
    rows = [pair_row(model, query, ad) for ad in ads]
    posteriors = [[1 / bins] * bins if row < 0 else model._posterior[row].tolist() for row in rows]
    values = [(i + 0.5) / bins for i in range(bins)]
    for worth in itertools.product(range(bins), repeat=len(ads)):
        relevance = [values[i] for i in worth]
        chance = math.prod(each[i] for each, i in zip(posteriors, worth, strict=True))
        found[()] += chance * (1 - model.attending_)
        chance *= model.attending_
        lower_first = max(relevance[1] - relevance[0], 0.0) if len(ads) == 2 else 0.0
        for first, share in ((0, 1 - lower_first), (1, lower_first)):
            if share == 0:
                continue
            found[()] += chance * share * (1 - relevance[first])
            clicked = chance * share * relevance[first]
            second = 0.0
            if len(ads) == 2:
                gap = relevance[first] - relevance[1 - first]
                second = relevance[1 - first] * (model.second_ - model.externality_ * gap)
                found[first + 1, 2 - first] += clicked * second
            found[(first + 1,)] += clicked * (1 - second)
    return dict(found)


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
    "scan": scan,
    "pom": pom,
    "crf": crf,
    "tcm": tcm,
}
