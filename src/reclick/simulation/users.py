"""What users do with a page. No model of Reclick describes them: they are of several kinds, and differ within each kind.

A user who looks at an ad likes it when appeal + mood + taste > bar, which is 0 at first. Taste is normal with variance 1, drawn for each ad looked
at; mood is normal too, drawn once for the session. A landing page satisfies when worth + luck > demand of the kind, luck as taste. The eye starts at
the top and goes down, or comes back from the results below and goes up; after each ad it stops with a chance that is drawn once for the session, so
that most look at one or two ads and some at all.

- A one-click user clicks the first ad that is liked, and leaves.
- A scanner clicks each ad that is liked as the eye meets it, until a landing page satisfies; each that does not raises the bar.
- A comparer first looks, then clicks the best of those seen, wherever it stands, if it is liked. Not satisfied, the comparer goes back to the best of
  the others, if it looked nearly as good as the one that let down.
- A bot clicks everything from the top, or as many ads as it happens to, in any order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32

ONE_CLICK, SCANNER, COMPARER, BOT = range(4)
KINDS = ("one_click", "scanner", "comparer", "bot")

MOOD = 0.75  # standard deviation
DEMAND = (0.0, 0.0, 0.3)  # [kind] the worth of a landing page that satisfies half of them
FROM_BELOW = 0.12  # chance that the eye comes back from the results below the ads, and goes up
BOREDOM = (
    1.0,
    0.3,
    0.3,
)  # [kind] a session's chance to stop after an ad is U^(1 / BOREDOM), U uniform
LET_DOWN = 0.15  # mean of what a scanner's bar rises by after a bad landing page
NEARLY = 0.8  # mean of how much less than the last one an ad may look to a comparer who tries again
EXPLORERS, FEWEST = (
    0.77,
    0.08,
)  # share of users who may click more than once, in rare queries and in very frequent ones
KNOWN, STEEP = (
    660.0,
    0.87,
)  # volume at which their share is halfway between, and how fast it falls there
SCANNERS = 0.36  # of them are scanners, the others comparers


def kind_shares(volume: Float64) -> Float64:
    """Shares [query, kind] of the users of a query with this many sessions: the more often it is asked, the more users know what they want."""
    explorers = FEWEST + (EXPLORERS - FEWEST) / (1.0 + (volume / KNOWN) ** STEEP)
    return np.stack([1.0 - explorers, SCANNERS * explorers, (1.0 - SCANNERS) * explorers], axis=1)


def first_look(appeal: Float64) -> Float64:
    """Attractiveness [pair]: the chance that a user who looks at the ad, and has looked at no other, clicks it.

    θ = P(appeal + mood + taste > 0) = Φ(appeal / √(1 + MOOD²))

    >>> first_look(np.array([0.0, 1.25])).round(4).tolist()
    [0.5, 0.8413]
    """
    return normal_cdf(appeal / math.hypot(1.0, MOOD))


def ends_need(worth: Float64, shares: Float64) -> Float64:
    """Satisfaction [pair]: the chance that a click on the ad ends the need of a user of the query, with shares [pair, kind].

    ρ = Σ_kind share · Φ(worth − DEMAND of the kind)

    >>> ends_need(np.array([0.0]), np.array([[0.5, 0.5, 0.0]])).tolist()
    [0.5]
    """
    chances = [
        share * normal_cdf(worth - demand) for demand, share in zip(DEMAND, shares.T, strict=True)
    ]
    return np.asarray(np.sum(chances, axis=0))


@kernel
def normal_cdf(level: Float64) -> Float64:
    """Φ of each level."""
    chance = np.empty_like(level)
    for place in range(len(level)):
        chance[place] = 0.5 * math.erfc(-level[place] / math.sqrt(2.0))
    return chance


@kernel
def draw_kind(shares: Float64, rng: np.random.Generator) -> int:
    """A kind by its share."""
    left = rng.random()
    for kind in range(len(shares) - 1):
        left -= shares[kind]
        if left < 0:
            return kind
    return len(shares) - 1


@kernel
def visit(
    kind: int,
    appeal: Float64,
    worth: Float64,
    rng: np.random.Generator,
    seen: Float64,
    clicks: Int32,
) -> int:
    """Let one user of a kind see a page: the clicked positions go to clicks, and their number is returned."""
    if kind == BOT:
        return _bot(len(appeal), rng, clicks)
    mood = MOOD * rng.standard_normal()
    up = rng.random() < FROM_BELOW
    looks = _looks(kind, len(appeal), rng)
    for step in range(looks):
        j = _eye(step, len(appeal), up)
        seen[j] = appeal[j] + mood + rng.standard_normal()
    if kind == COMPARER:
        return _compare(up, looks, seen, worth, rng, clicks)
    return _scan(kind, up, looks, seen, worth, rng, clicks)


@kernel
def _eye(step: int, ads: int, up: bool) -> int:
    """The ad, from 0, that the eye meets at this step."""
    return ads - 1 - step if up else step


@kernel
def _looks(kind: int, ads: int, rng: np.random.Generator) -> int:
    """How many ads the user looks at."""
    stop = rng.random() ** (1.0 / BOREDOM[kind])
    looks = 1
    while looks < ads and rng.random() >= stop:
        looks += 1
    return looks


@kernel
def _scan(
    kind: int,
    up: bool,
    looks: int,
    seen: Float64,
    worth: Float64,
    rng: np.random.Generator,
    clicks: Int32,
) -> int:
    bar, count = 0.0, 0
    for step in range(looks):
        j = _eye(step, len(worth), up)
        if seen[j] <= bar:
            continue
        clicks[count] = j + 1
        count += 1
        if kind == ONE_CLICK or satisfied(kind, worth[j], rng):
            return count
        bar += LET_DOWN * rng.standard_exponential()
    return count


@kernel
def _compare(
    up: bool, looks: int, seen: Float64, worth: Float64, rng: np.random.Generator, clicks: Int32
) -> int:
    bar, nearly = 0.0, NEARLY * rng.standard_exponential()
    for count in range(looks):
        best = _eye(0, len(worth), up)
        for step in range(1, looks):
            j = _eye(step, len(worth), up)
            if seen[j] > seen[best]:
                best = j
        if seen[best] <= bar:
            return count
        clicks[count] = best + 1
        if satisfied(COMPARER, worth[best], rng):
            return count + 1
        bar = max(bar, seen[best] - nearly)
        seen[best] = -np.inf
    return looks


@kernel
def satisfied(kind: int, worth: float, rng: np.random.Generator) -> bool:
    """Whether the landing page ends the need of this user."""
    return rng.standard_normal() < worth - DEMAND[kind]


@kernel
def _bot(ads: int, rng: np.random.Generator, clicks: Int32) -> int:
    """Everything from the top, or some in any order."""
    for j in range(ads):
        clicks[j] = j + 1
    if rng.random() < 0.5:
        return ads
    for j in range(ads - 1):  # shuffled
        other = rng.integers(j, ads)
        clicks[j], clicks[other] = clicks[other], clicks[j]
    return int(rng.integers(1, ads + 1))
