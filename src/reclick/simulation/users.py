"""The behaviour of users on a page. They are of several types, and follow no model of Reclick.

A user who examines an ad is attracted when appeal + mood + noise > threshold. The noise is standard
normal, drawn for each ad examined; the mood is normal, drawn once for the session; the threshold
starts at 0. A landing page satisfies when quality + noise > demand of the user type. Examination
starts at the top and goes down, or starts at the bottom and goes up. After each ad it stops with a
probability that is drawn once for the session, so that most users examine one or two ads, and some
examine all.

- A one-click user clicks the first attractive ad and leaves.
- A scanner clicks every attractive ad in the order of examination, until a landing page satisfies;
  each that does not raises the threshold.
- A comparer examines first, then clicks the best ad if it is attractive. If not satisfied, the
  comparer returns to the next best, above or below, if it is nearly as good as the last one.
- A bot clicks everything from the top, or a random number of ads in random order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from reclick.runtime.jit import kernel, subkernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32
    from reclick.data.ragged import Bool

ONE_CLICK, SCANNER, COMPARER, BOT = range(4)
USER_TYPES = ("one_click", "scanner", "comparer", "bot")

MOOD = 0.75  # standard deviation
DEMAND = (0.0, 1.0, 1.5)  # [user type] the quality of a landing page that satisfies half of them
# [user type] probability that examination starts at the bottom and goes up
UPWARD = (0.37, 0.24, 0.24)
# [user type] P(stop after an ad) of a session is U^(1 / STOP_EXPONENT), U uniform.
STOP_EXPONENT = (3.0, 0.19, 0.19)
THRESHOLD_RISE = 0.15  # mean rise of a scanner's threshold after a landing page that disappoints
TOLERANCE = 0.8  # mean of how much less attractive than the last the next ad of a comparer may be
# Proportion of users who may click more than once, in rare queries and in very frequent ones.
MOST_EXPLORERS, FEWEST_EXPLORERS = 0.95, 0.1
# Volume at which their proportion is halfway between, and how fast it falls there.
HALFWAY_VOLUME, VOLUME_EXPONENT = 660.0, 0.87
SCANNERS = 0.65  # proportion of scanners among them, the others are comparers


# After a click, [unsatisfied, satisfied]: median and spread of the log of the seconds that a user
# stays, and P(conversion).
DWELL_MEDIAN, DWELL_SPREAD = (9.0, 90.0), 1.0
CONVERSION_RATE = (0.005, 0.15)


def draw_outcomes(satisfied: Bool, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Draw dwell times in seconds, to a tenth, and conversions after each click [click]."""
    which = satisfied.astype(np.int64)
    spread = np.exp(DWELL_SPREAD * rng.standard_normal(len(which)))
    dwell = np.round(np.array(DWELL_MEDIAN)[which] * spread, 1)
    has_conversion = rng.random(len(which)) < np.array(CONVERSION_RATE)[which]
    return dwell, has_conversion.astype(np.float64)


def behaviour_parameters() -> dict[str, Any]:
    """The parameters of the users, by their names in truth.json."""
    return {
        "mood": MOOD,
        "demand": DEMAND,
        "from_below": UPWARD,
        "boredom": STOP_EXPONENT,
        "let_down": THRESHOLD_RISE,
        "nearly": TOLERANCE,
    }


def user_type_shares(volume: Float64) -> Float64:
    """Proportions [query, user type] by the number of sessions of each query.

    The more frequent a query, the more of its users know their goal and click once.
    """
    slope = 1.0 + (volume / HALFWAY_VOLUME) ** VOLUME_EXPONENT
    explorers = FEWEST_EXPLORERS + (MOST_EXPLORERS - FEWEST_EXPLORERS) / slope
    return np.stack([1.0 - explorers, SCANNERS * explorers, (1.0 - SCANNERS) * explorers], axis=1)


def attractiveness(appeal: Float64) -> Float64:
    """The probability that a user who examines the ad, and has examined no other, clicks it.

    θ = P(appeal + mood + noise > 0) = Φ(appeal / √(1 + MOOD²))

    >>> attractiveness(np.array([0.0, 1.25])).round(4).tolist()
    [0.5, 0.8413]
    """
    return normal_cdf(appeal / math.hypot(1.0, MOOD))


def satisfaction(quality: Float64, user_types: Float64) -> Float64:
    """The probability that a click on the ad of each pair satisfies, for proportions [pair, type].

    ρ = Σ_type proportion · Φ(quality − DEMAND of the type)

    >>> satisfaction(np.array([0.0]), np.array([[1.0, 0.0, 0.0]])).tolist()
    [0.5]
    """
    terms = [
        share * normal_cdf(quality - demand)
        for demand, share in zip(DEMAND, user_types.T, strict=True)
    ]
    return np.asarray(np.sum(terms, axis=0))


@kernel
def normal_cdf(values: Float64) -> Float64:
    """Φ of each value."""
    probability = np.empty_like(values)
    for i in range(len(values)):
        probability[i] = 0.5 * math.erfc(-values[i] / math.sqrt(2.0))
    return probability


@subkernel
def draw_user_type(shares: Float64, rng: np.random.Generator) -> int:
    """Draw a user type, given their probabilities."""
    remaining = rng.random()
    for user_type in range(len(shares) - 1):
        remaining -= shares[user_type]
        if remaining < 0:
            return user_type
    return len(shares) - 1


@kernel
def browse_page(
    user_type: int,
    appeal: Float64,  # [ad]
    quality: Float64,  # [ad]
    rng: np.random.Generator,
    attraction: Float64,  # [ad] filled for the ads examined
    clicks: Int32,  # filled
) -> tuple[int, bool]:
    """Let one user visit a page; writes the clicked positions to `clicks`.

    Returns the number of clicks, and whether a landing page satisfied the user and ended the
    session; one-click users leave in any case.
    """
    if user_type == BOT:
        return _click_as_bot(len(appeal), rng, clicks), False
    mood = MOOD * rng.standard_normal()
    upward = rng.random() < UPWARD[user_type]
    n_examined = _draw_examinations(user_type, len(appeal), rng)
    for step in range(n_examined):
        j = _get_examined(step, len(appeal), upward)
        attraction[j] = appeal[j] + mood + rng.standard_normal()
    if user_type == COMPARER:
        return _compare(upward, n_examined, attraction, quality, rng, clicks)
    return _scan(user_type, upward, n_examined, attraction, quality, rng, clicks)


@subkernel
def _get_examined(step: int, n_ads: int, upward: bool) -> int:
    """The ad, from 0, that is examined at this step."""
    return n_ads - 1 - step if upward else step


@subkernel
def _draw_examinations(user_type: int, n_ads: int, rng: np.random.Generator) -> int:
    """Draw the number of ads that the user examines."""
    stop = rng.random() ** (1.0 / STOP_EXPONENT[user_type])
    count = 1
    while count < n_ads and rng.random() >= stop:
        count += 1
    return count


@kernel
def _scan(
    user_type: int,
    upward: bool,
    n_examined: int,
    attraction: Float64,
    quality: Float64,
    rng: np.random.Generator,
    clicks: Int32,
) -> tuple[int, bool]:
    threshold, count = 0.0, 0
    for step in range(n_examined):
        j = _get_examined(step, len(quality), upward)
        if attraction[j] <= threshold:
            continue
        clicks[count] = j + 1
        count += 1
        if user_type == ONE_CLICK:
            return count, False
        if is_satisfied(user_type, quality[j], rng):
            return count, True
        threshold += THRESHOLD_RISE * rng.standard_exponential()
    return count, False


@subkernel
def _compare(
    upward: bool,
    n_examined: int,
    attraction: Float64,
    quality: Float64,
    rng: np.random.Generator,
    clicks: Int32,
) -> tuple[int, bool]:
    threshold, tolerance = 0.0, TOLERANCE * rng.standard_exponential()
    for count in range(n_examined):
        best = _get_examined(0, len(quality), upward)
        for step in range(1, n_examined):
            j = _get_examined(step, len(quality), upward)
            if attraction[j] > attraction[best]:
                best = j
        if attraction[best] <= threshold:
            return count, False
        clicks[count] = best + 1
        if is_satisfied(COMPARER, quality[best], rng):
            return count + 1, True
        threshold = max(threshold, attraction[best] - tolerance)
        attraction[best] = -np.inf
    return n_examined, False


@kernel
def is_satisfied(user_type: int, quality: float, rng: np.random.Generator) -> bool:
    """Draw whether a landing page of this quality satisfies the user."""
    return rng.standard_normal() < quality - DEMAND[user_type]


@subkernel
def _click_as_bot(n_ads: int, rng: np.random.Generator, clicks: Int32) -> int:
    """Click everything from the top, or a random number of ads in random order."""
    for j in range(n_ads):
        clicks[j] = j + 1
    if rng.random() < 0.5:
        return n_ads
    for j in range(n_ads - 1):  # shuffle
        swap = rng.integers(j, n_ads)
        clicks[j], clicks[swap] = clicks[swap], clicks[j]
    return int(rng.integers(1, n_ads + 1))
