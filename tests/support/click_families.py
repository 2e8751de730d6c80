"""The families of click distributions in plain Python, one page at a time, by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reclick.clicks.chain import ChainPages
from reclick.clicks.choice import VARIANTS, ChoicePages
from reclick.clicks.distribution import Clicks, PageDistribution
from reclick.clicks.mixture import MixturePages
from reclick.clicks.scan import ScanPages
from reclick.clicks.walk import WalkPages
from reclick.data.batch import Float64

Sequence_ = tuple[int, ...]
CHOICES = tuple(VARIANTS)
BEYOND = 0.77  # what stands in tables beyond the page, and must not be read


class PlainPage:
    """One page: P(next click | clicks so far), and all that follows from it."""

    size: int

    def next_click(self, clicks: Sequence_) -> dict[int, float]:
        """P(next click is j | clicks so far), of positions that are not clicked yet."""
        raise NotImplementedError

    def prefix_prob(self, clicks: Sequence_) -> float:
        """P(the first clicks are these)."""
        chance = 1.0
        for k, click in enumerate(clicks):
            chance *= self.next_click(clicks[:k]).get(click, 0.0)
        return chance

    def probability(self, clicks: Sequence_) -> float:
        """P(exactly these clicks, in this order)."""
        return self.prefix_prob(clicks) * (1.0 - sum(self.next_click(clicks).values()))

    def distribution(self) -> dict[Sequence_, float]:
        return {clicks: self.probability(clicks) for clicks in all_sequences(self.size)}

    def click_prob(self) -> list[float]:
        chances = self.distribution()
        return [sum(p for c, p in chances.items() if j in c) for j in range(1, self.size + 1)]

    def satisfaction_prob(self) -> float:
        """P(the session ends satisfied): after the last click of each prefix."""
        raise NotImplementedError


@dataclass(frozen=True)
class PlainChoice(PlainPage):
    variant: str
    theta: Float64
    rho: Float64
    stop: Float64
    gamma: Float64

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.theta)

    def next_click(self, clicks: Sequence_) -> dict[int, float]:
        k, last = len(clicks), clicks[-1] if clicks else 0
        free = [j for j in range(1, self.size + 1) if j not in clicks]
        if not free:
            return {}
        unsatisfied = 1.0 - (self.rho[last - 1] if last else 0.0)
        weight = {j: self.theta[j - 1] * self.gamma[last, j - 1] for j in free}
        below = {
            "paper": 1.0,
            "examination": sum(self.gamma[last, j - 1] for j in free),
            "normalised": sum(weight.values()),
            "luce": self.stop[k] + sum(weight.values()),
        }[self.variant]
        go = unsatisfied if self.variant == "luce" else unsatisfied * (1.0 - self.stop[k])
        return {j: go * w / below if below > 0 else 0.0 for j, w in weight.items()}

    def satisfaction_prob(self) -> float:
        clicked = (clicks for clicks in all_sequences(self.size) if clicks)
        return float(sum(self.prefix_prob(c) * self.rho[c[-1] - 1] for c in clicked))


@dataclass(frozen=True)
class PlainChain(PlainPage):
    chances: Float64  # [last, position]
    rho: Float64 | None = None

    @property
    def size(self) -> int:  # type: ignore[override]
        return int(self.chances.shape[1])

    def next_click(self, clicks: Sequence_) -> dict[int, float]:
        last = clicks[-1] if clicks else 0
        return {j: float(self.chances[last, j - 1]) for j in range(last + 1, self.size + 1)}

    def satisfaction_prob(self) -> float:
        assert self.rho is not None
        return float(np.dot(self.click_prob(), self.rho))


@dataclass(frozen=True)
class PlainWalk(PlainPage):
    theta: Float64
    forward: float
    back: float

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.theta)

    def next_click(self, clicks: Sequence_) -> dict[int, float]:
        """Expected visits of each position before the next click, as a linear system."""
        n = self.size
        rate = np.array([0.0 if j in clicks else self.theta[j - 1] for j in range(1, n + 1)])
        start, moves = np.zeros(n), np.zeros((n, n))  # moves[to, from]
        for j in range(n):
            if j + 1 < n:
                moves[j + 1, j] = (1 - rate[j]) * self.forward
            if j > 0:
                moves[j - 1, j] = (1 - rate[j]) * self.back
        if not clicks:
            start[0] = 1.0
        else:
            last = clicks[-1] - 1
            if last + 1 < n:
                start[last + 1] = self.forward
            if last > 0:
                start[last - 1] = self.back
        visits = np.linalg.solve(np.eye(n) - moves, start)
        return {j: visits[j - 1] * rate[j - 1] for j in range(1, n + 1) if j not in clicks}


@dataclass(frozen=True)
class PlainScan(PlainPage):
    theta: Float64
    rho: Float64
    gamma: Float64
    down: Float64

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.theta)

    def next_click(self, clicks: Sequence_) -> dict[int, float]:
        last = clicks[-1] if clicks else 0
        down = self.down[last] if clicks else 1.0
        goes_on = 1.0 - self.rho[last - 1] if clicks else 1.0
        below, above = range(last + 1, self.size + 1), range(last - 1, 0, -1)
        found = {}
        for turn, positions in ((down, below), (1.0 - down, above)):
            left = goes_on * turn
            for j in (j for j in positions if j not in clicks):
                rate = self.theta[j - 1] * self.gamma[last, j - 1]
                found[j] = float(left * rate)
                left *= 1.0 - rate
        return found

    def satisfaction_prob(self) -> float:
        clicked = (clicks for clicks in all_sequences(self.size) if clicks)
        return float(sum(self.prefix_prob(c) * self.rho[c[-1] - 1] for c in clicked))


@dataclass(frozen=True)
class PlainMixture(PlainPage):
    components: tuple[PlainPage, ...]
    weights: Sequence[float]

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.components[0].size

    def prefix_prob(self, clicks: Sequence_) -> float:
        pairs = zip(self.components, self.weights, strict=True)
        return sum(w * each.prefix_prob(clicks) for each, w in pairs)

    def probability(self, clicks: Sequence_) -> float:
        pairs = zip(self.components, self.weights, strict=True)
        return sum(w * each.probability(clicks) for each, w in pairs)

    def next_click(self, clicks: Sequence_) -> dict[int, float]:
        free = [j for j in range(1, self.size + 1) if j not in clicks]
        so_far = self.prefix_prob(clicks)
        return {j: self.prefix_prob((*clicks, j)) / so_far if so_far else 0.0 for j in free}

    def satisfaction_prob(self) -> float:
        pairs = zip(self.components, self.weights, strict=True)
        return sum(w * each.satisfaction_prob() for each, w in pairs)


def all_sequences(n: int) -> Iterator[Sequence_]:
    """Every click sequence of a page of n ads: shorter first, then lexicographic."""
    return itertools.chain.from_iterable(
        itertools.permutations(range(1, n + 1), m) for m in range(n + 1)
    )


# ---- random pages


def random_rates(rng: np.random.Generator, size: int, extremes: float) -> Float64:
    plain = rng.random(size)
    return np.where(rng.random(size) < extremes, np.round(plain), plain)


def random_choice(
    rng: np.random.Generator, n: int, extremes: float = 0.2, variant: str = "paper"
) -> PlainChoice:
    """A page of which a share `extremes` of all parameters is exactly 0 or 1."""
    gamma = rng.random((n + 1, n)) * (rng.random((n + 1, n)) > extremes)
    gamma /= np.maximum(gamma.sum(axis=1, keepdims=True), 1e-300)  # a row of zeros stays one
    theta, rho, stop = (random_rates(rng, size, extremes) for size in (n, n, n + 1))
    return PlainChoice(variant, theta, rho, stop, gamma)


def random_chain(rng: np.random.Generator, n: int, extremes: float = 0.2) -> PlainChain:
    below = np.arange(n) >= np.arange(n + 1)[:, None]
    chances = rng.random((n + 1, n)) * (rng.random((n + 1, n)) > extremes) * below
    chances *= rng.random((n + 1, 1)) / np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)
    return PlainChain(chances, random_rates(rng, n, extremes))


def random_walk(rng: np.random.Generator, n: int, extremes: float = 0.2) -> PlainWalk:
    forward, back, _ = rng.dirichlet([2.0, 1.0, 1.0])
    return PlainWalk(random_rates(rng, n, extremes), float(forward), float(back))


def random_scan(rng: np.random.Generator, n: int, extremes: float = 0.2) -> PlainScan:
    gamma = random_rates(rng, (n + 1) * n, extremes).reshape(n + 1, n)
    theta, rho = random_rates(rng, n, extremes), random_rates(rng, n, extremes)
    return PlainScan(theta, rho, gamma, random_rates(rng, n + 1, extremes))


def random_mixture(rng: np.random.Generator, n: int, extremes: float = 0.2) -> PlainMixture:
    """One of each family, and a mixture among them."""
    inner = random_choice(rng, n, extremes, "examination"), random_chain(rng, n, extremes)
    components = (
        random_choice(rng, n, extremes, "luce"),
        random_walk(rng, n, extremes),
        random_scan(rng, n, extremes),
        PlainMixture(inner, tuple(rng.dirichlet([1.0, 1.0]))),
    )
    return PlainMixture(components, tuple(rng.dirichlet([1.0] * 4)))


def random_luce_mixture(rng: np.random.Generator, n: int, extremes: float = 0.2) -> PlainMixture:
    components = tuple(random_choice(rng, n, extremes, "luce") for _ in range(3))
    return PlainMixture(components, tuple(rng.dirichlet([1.0] * 3)))


RandomPage = Callable[[np.random.Generator, int, float], Any]
FAMILIES: dict[str, RandomPage] = {
    **{
        variant: lambda rng, n, extremes, variant=variant: random_choice(rng, n, extremes, variant)  # type: ignore[misc]
        for variant in CHOICES
    },
    "chain": random_chain,
    "walk": random_walk,
    "scan": random_scan,
    "mixture": random_mixture,
    "luce mixture": random_luce_mixture,
}


# ---- the same pages as Reclick has them


def build(pages: Sequence[Any]) -> PageDistribution:
    """Pages of one family in one distribution, each with its own tables, wider than the page."""
    one = pages[0]
    sizes = [page.size for page in pages]
    starts, table, n = np.cumsum([0, *sizes]), np.arange(len(pages)), max(sizes)
    if isinstance(one, PlainMixture):
        parts = zip(*(page.components for page in pages), strict=True)
        components = tuple(build(component) for component in parts)
        return MixturePages(components, np.array([page.weights for page in pages]))
    if isinstance(one, PlainWalk):
        theta = np.concatenate([page.theta for page in pages])
        return WalkPages(theta, one.forward, one.back, starts)
    if isinstance(one, PlainScan):
        theta = np.concatenate([page.theta for page in pages])
        wide, down = np.full((n + 2, n + 1), BEYOND), np.full(n + 2, BEYOND)
        widest = max(pages, key=lambda page: page.size)  # whose tables the others share
        wide[: n + 1, :n], down[: n + 1] = widest.gamma, widest.down
        content = np.concatenate([page.rho for page in pages])
        return ScanPages(theta, content, wide, down, starts)
    gamma = np.full((len(pages), n + 2, n + 1), BEYOND)
    if isinstance(one, PlainChain):
        end = np.full((len(pages), n + 2), BEYOND)
        for s, page in enumerate(pages):
            gamma[s, : page.size + 1, : page.size] = page.chances
            end[s, : page.size + 1] = 1.0 - page.chances.sum(axis=1)
        rho = None if one.rho is None else np.concatenate([page.rho for page in pages])
        return ChainPages(gamma, end, starts, table, rho)
    stop = np.full((len(pages), n + 2), BEYOND)
    for s, page in enumerate(pages):
        stop[s, : page.size + 1] = page.stop
        gamma[s, : page.size + 1, : page.size] = page.gamma
    theta, rho = (np.concatenate([getattr(page, x) for page in pages]) for x in ("theta", "rho"))
    return ChoicePages(one.variant, theta, rho, stop, gamma, starts, table)


def to_clicks(sequences: Sequence[Sequence_]) -> Clicks:
    click = np.array(list(itertools.chain.from_iterable(sequences)), np.int32)
    return Clicks(click, np.cumsum([0, *map(len, sequences)]))
