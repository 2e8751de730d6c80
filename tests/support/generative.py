"""Brute force over latent variables: a world is one value of each, which fixes the clicks."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from tests.support.enumeration import Clicks

Bits = tuple[tuple[int, ...], ...]  # [position][variable]
Outcome = TypeVar("Outcome", bound=Hashable)


def enumerated(
    chances: Sequence[Sequence[float]], outcome_of: Callable[[Bits], Outcome]
) -> dict[Outcome, float]:
    """P(outcome), summed over all values of independent binary variables.

    chances[position][variable] are their probabilities; each world has an outcome.
    """
    found: dict[Outcome, float] = defaultdict(float)
    for world in itertools.product(
        *(itertools.product((0, 1), repeat=len(row)) for row in chances)
    ):
        chance = math.prod(
            p if bit else 1 - p
            for row, at in zip(chances, world, strict=True)
            for p, bit in zip(row, at, strict=True)
        )
        found[outcome_of(world)] += chance
    return found


def scanned(world: Bits, goes_on: Callable[[int, bool, tuple[int, ...]], bool]) -> Clicks:
    """Scan down the page: variable 0 of a position is whether it would be clicked.

    goes_on(position, clicked, variables) is whether the next position is examined.
    """
    clicks = []
    for position, at in enumerate(world, 1):
        if at[0]:
            clicks.append(position)
        if not goes_on(position, bool(at[0]), at):
            break
    return tuple(clicks)


def satisfied_or_tired(_: int, clicked: bool, at: tuple[int, ...]) -> bool:
    """Whether DBN's user goes on. Variables: attracted, satisfied, patient."""
    return not (clicked and at[1]) and bool(at[2])


def deciding(clicked: bool, relevant: int) -> int:
    """Which of CCM's three α decides."""
    return 0 if not clicked else 1 + relevant


def relevant_or_not(_: int, clicked: bool, at: tuple[int, ...]) -> bool:
    """Whether CCM's user goes on. Variables: attracted, relevant, and whether each α goes on."""
    return bool(at[2 + deciding(clicked, at[1])])


def scanned_from(
    theta: Sequence[float],
    rho: Sequence[float],
    gamma: Sequence[Sequence[float]],
    down: Sequence[float],
    size: int,
    clicks: Clicks,
) -> dict[int, float]:
    """P(next click) of a directional scan, unless the last click satisfied: all values of
    (direction, examined, attracted)."""
    last = clicks[-1] if clicks else 0
    goes_on = 1 - rho[last - 1] if clicks else 1.0
    free = [j for j in range(1, size + 1) if j not in clicks]
    found: dict[int, float] = defaultdict(float)
    for goes_down in (True, False):
        turn = 1.0 if last == 0 else down[last]
        turn = turn if goes_down else 1 - turn
        ahead = [j for j in free if j > last] if goes_down else [j for j in free if j < last][::-1]
        chances = [(gamma[last][j - 1], theta[j - 1]) for j in ahead]
        first = enumerated(
            chances, lambda world: next((i for i, at in enumerate(world) if all(at)), -1)
        )
        for i, chance in first.items():
            if i >= 0:
                found[ahead[i]] += goes_on * turn * chance
    return found


def walked(theta: Sequence[float], forward: float, back: float) -> dict[Clicks, float]:
    """P(each click sequence) of THCM: all walks over the positions at once, until less than 1e-13
    of them still go on."""
    going: dict[tuple[int, Clicks], float] = {(1, ()): 1.0}  # (position looked at, clicks so far)
    ended: dict[Clicks, float] = defaultdict(float)
    while sum(going.values()) > 1e-13:
        then: dict[tuple[int, Clicks], float] = defaultdict(float)
        for (position, clicks), mass in going.items():
            chance = theta[position - 1]
            clicked = ((*clicks, position), mass * chance), (clicks, mass * (1 - chance))
            for after, looked in clicked if position not in clicks else ((clicks, mass),):
                for to, step in ((position + 1, forward), (position - 1, back)):
                    if 1 <= to <= len(theta):
                        then[to, after] += looked * step
                    else:
                        ended[after] += looked * step
                ended[after] += looked * (1 - forward - back)
        going = then
    return ended


def wandered(theta: Sequence[float], moves: Sequence[Sequence[float]]) -> dict[Clicks, float]:
    """P(each click sequence) of POM: all walks by the matrix at once, until less than 1e-14 of
    them still go on. A row has P(next position) and then P(end); moves off the page end too."""
    n = len(theta)
    going: dict[tuple[int, Clicks], float] = {(0, ()): 1.0}  # (position looked at, clicks so far)
    ended: dict[Clicks, float] = defaultdict(float)
    while sum(going.values()) > 1e-14:
        then: dict[tuple[int, Clicks], float] = defaultdict(float)
        for (position, clicks), mass in going.items():
            for to, move in enumerate(moves[position], start=1):
                if to > n:
                    ended[clicks] += mass * move
                elif to in clicks:
                    then[to, clicks] += mass * move
                else:
                    then[to, (*clicks, to)] += mass * move * theta[to - 1]
                    then[to, clicks] += mass * move * (1 - theta[to - 1])
        going = then
    return ended
