"""MultiClick in plain Python, straight from the mathematics: no arrays, no caches.

Besides the formulas it has the choices that keep every event possible. Rates are kept `floor` away
from 0 and 1. A prior has at least 1e-6 pseudo-sessions and leaves a query's fatigue 1e-12 away from
0 and 1. An ad whose words were never clicked has the rate of one more impression. Pages longer than
those of the log are handled by `extend`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Clicks = tuple[int, ...]
Rows = list[list[float]]


@dataclass(frozen=True)
class Session:
    query: str
    ads: tuple[str, ...]
    clicks: Clicks
    weight: float = 1.0

    @property
    def path(self) -> Clicks:
        """The clicks as they count: a repeated one at its first time."""
        return tuple(dict.fromkeys(self.clicks))


def random_sessions(
    rng: np.random.Generator,
    count: int,
    *,
    queries: str = "qrs",
    ads: str = "abcdef",
    longest: int = 4,
    weights: bool = False,
) -> list[Session]:
    """Small logs with ads twice on a page, clicks twice on an ad, and pages of all lengths."""
    sessions = []
    for _ in range(count):
        n = int(rng.integers(1, longest + 1))
        page = tuple(rng.choice(list(ads), n).tolist())
        many = min(n, int(rng.choice([0, 1, 1, 2, 3, 4])))
        clicks = rng.permutation(n)[:many] + 1
        if many and rng.random() < 0.2:
            clicks = np.append(clicks, rng.choice(clicks))
        weight = float(rng.integers(1, 4)) if weights else 1.0
        sessions.append(
            Session(str(rng.choice(list(queries))), page, tuple(clicks.tolist()), weight)
        )
    return sessions


def as_table(sessions: Sequence[Session], *, weights: bool = False) -> pa.Table:
    columns: dict[str, Any] = {
        "query": pa.array([s.query for s in sessions], pa.string()),
        "ads": pa.array([list(s.ads) for s in sessions], pa.list_(pa.string())),
        "clicks": pa.array([list(s.clicks) for s in sessions], pa.list_(pa.int64())),
    }
    return pa.table(columns | ({"weight": [s.weight for s in sessions]} if weights else {}))


def ads_table(texts: dict[str, str]) -> pa.Table:
    """Ads whose titles are plain words, so that their tokens are the words and nothing else."""
    return pa.table(
        {
            "ad": pa.array(list(texts), pa.string()),
            "title": pa.array(list(texts.values()), pa.string()),
        }
    )


def assert_close(got: Any, expected: Any) -> None:
    """Equal to 1e-10, absolute or relative."""
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def all_sequences(n: int) -> Iterator[Clicks]:
    return itertools.chain.from_iterable(
        itertools.permutations(range(1, n + 1), m) for m in range(n + 1)
    )


def stops(sessions: Sequence[Session], k: int) -> tuple[float, float]:
    """β'_k and β_k."""
    exactly = sum(s.weight for s in sessions if len(s.path) == k)
    return exactly, sum(s.weight for s in sessions if len(s.path) > k)


def moves(sessions: Sequence[Session], last: int, to: int) -> float:
    """δ_lj."""
    steps = ((s, step) for s in sessions for step in itertools.pairwise((0, *s.path)))
    return sum(s.weight for s, step in steps if step == (last, to))


def clicks_on(sessions: Sequence[Session], query: str, ad: str) -> tuple[float, float]:
    """κ' and κ: the clicks on an ad that were the last, and those that were not."""
    last = other = 0.0
    for s in sessions:
        for place, click in enumerate(s.path):
            if s.query == query and s.ads[click - 1] == ad:
                last += s.weight if place == len(s.path) - 1 else 0.0
                other += s.weight if place < len(s.path) - 1 else 0.0
    return last, other


def longest_page(sessions: Sequence[Session]) -> int:
    return max(len(s.ads) for s in sessions)


def fatigue(pairs: Sequence[tuple[float, float]], floor: float) -> list[float]:
    """η from (stopped, went on); a number of clicks never reached is as the one before it."""
    eta: list[float] = []
    for stopped, on in pairs:
        rate = stopped / (stopped + on) if stopped + on > 0 else (eta[-1] if eta else 0.5)
        eta.append(min(max(rate, floor), 1 - floor))
    return eta


def transitions(delta: Rows, floor: float) -> Rows:
    """γ from δ; a row never left is uniform; nothing but staying is impossible."""
    gamma = []
    for last, row in enumerate(delta):
        total = sum(row)
        rates = [max(value / total, floor) if total > 0 else 1.0 for value in row]
        rates = [0.0 if j + 1 == last else rate for j, rate in enumerate(rates)]
        gamma.append([rate / sum(rates) if sum(rates) > 0 else 0.0 for rate in rates])
    return gamma


def extend(eta: list[float], gamma: Rows, n: int) -> tuple[list[float], Rows]:
    """For pages of n ads: a new position is as rare as the rarest, transitions from it are those
    of the start, and users stop as at the last step."""
    known = len(gamma[0])
    if n <= known:
        return eta, gamma
    rarest = min([value for row in gamma for value in row if value > 0], default=1.0)
    rows = [[*row, *[rarest] * (n - known)] for row in gamma]
    rows += [list(rows[0]) for _ in range(n - known)]
    for j in range(n):
        rows[j + 1][j] = 0.0
    return [*eta, *[eta[-1]] * (n - known)], rows


@dataclass(frozen=True)
class Brute:
    """A fitted model: its training sessions, and its history, if any.

    `tokens` are the words of ads; an ad without any has its id as its word.
    """

    sessions: Sequence[Session]
    history: Sequence[Session] | None = None
    tokens: dict[str, list[str]] | None = None
    variant: str = "paper"
    pooling: str = "query"
    strength: float = 10.0
    satisfaction_strength: float = 10.0
    min_query_sessions: float = 50
    floor: float = 1e-6

    # fatigue and transitions

    def prior(self) -> tuple[list[float], Rows]:
        """The history's own estimate, or the training data's."""
        source = self.sessions if self.history is None else self.history
        n = longest_page(source)
        eta = fatigue([stops(source, k) for k in range(n + 1)], self.floor)
        return eta, transitions(
            [[moves(source, last, j) for j in range(1, n + 1)] for last in range(n + 1)], self.floor
        )

    def habits(self, query: str, n: int) -> tuple[list[float], Rows]:
        """η and γ for a page of n ads of this query."""
        if self.pooling == "global":
            eta, gamma = self.shrunk(self.sessions, longest_page(self.sessions))
            return extend(*self.kept_possible(eta, gamma), n)
        return self.shrunk([s for s in self.sessions if s.query == query], n)

    def shrunk(self, sessions: Sequence[Session], n: int) -> tuple[list[float], Rows]:
        """η and γ of these sessions with the prior's pseudo-counts, for pages of up to n ads."""
        eta, gamma = extend(*self.prior(), n)
        strength = max(self.strength, 1e-6)
        for k, mean in enumerate(list(eta)):
            stopped, on = stops(sessions, k)
            eta[k] = min(
                max((stopped + strength * mean) / (stopped + on + strength), 1e-12), 1 - 1e-12
            )
        size = max(len(gamma[0]), longest_page(self.sessions))
        for last, row in enumerate(gamma):
            total = sum(moves(sessions, last, j) for j in range(1, size + 1)) + strength
            gamma[last] = [
                (moves(sessions, last, j) + strength * mean) / total
                for j, mean in enumerate(row, 1)
            ]
        return eta, gamma

    def kept_possible(self, eta: list[float], gamma: Rows) -> tuple[list[float], Rows]:
        return [min(max(rate, self.floor), 1 - self.floor) for rate in eta], transitions(
            gamma, self.floor
        )

    # satisfaction and attractiveness

    def overall_satisfaction(self) -> float:
        source = self.sessions if self.history is None else self.history
        clicked = [s for s in source if s.path]
        return (
            sum(s.weight for s in clicked) / sum(s.weight * len(s.path) for s in clicked)
            if clicked
            else 0.5
        )

    def rho(self, query: str, ad: str) -> float:
        last, other = clicks_on(self.sessions, query, ad)
        if last + other + self.satisfaction_strength == 0:
            return self.overall_satisfaction()
        prior = self.satisfaction_strength * self.overall_satisfaction()
        return (last + prior) / (last + other + self.satisfaction_strength)

    def words(self, ad: str) -> list[str]:
        return [f"ad {ad}"] if self.tokens is None or ad not in self.tokens else self.tokens[ad]

    def rates(self, sessions: Sequence[Session]) -> dict[str, tuple[float, float, float]]:
        """Each word's N̂, N, and the sum of its squared multiplicities."""
        totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for s in sessions:
            for position, ad in enumerate(s.ads, 1):
                words = self.words(ad)
                for word in set(words):
                    many = words.count(word)
                    totals[word][0] += s.weight * many * (position in s.path)
                    totals[word][1] += s.weight * many
                    totals[word][2] += s.weight * many * many
        return {word: (a, b, c) for word, (a, b, c) in totals.items()}

    def theta(self, query: str, ad: str) -> float:
        own = [s for s in self.sessions if s.query == query]
        corpus = self.rates(self.sessions)
        frequent = sum(s.weight for s in own) >= self.min_query_sessions
        rates = corpus | self.rates(own) if frequent else corpus
        shown = sum(s.weight * len(s.ads) for s in self.sessions)
        overall = sum(s.weight * len(s.path) for s in self.sessions) / shown if shown else 0.5
        words = self.words(ad)
        if not words:
            return overall
        mean = sum(rates[w][0] / rates[w][1] if w in rates else overall for w in words) / len(words)
        if mean > 0:
            return mean
        trials = [rates[w][1] ** 2 / rates[w][2] if w in rates else 0.0 for w in words]
        return sum(overall / (t + 1) for t in trials) / len(words)

    # what follows from them

    def page(
        self, query: str, ads: Sequence[str]
    ) -> tuple[list[float], list[float], list[float], Rows]:
        """θ, ρ, η, γ."""
        theta = [max(self.theta(query, ad), self.floor) for ad in ads]
        rho = [min(self.rho(query, ad), 1 - self.floor) for ad in ads]
        return theta, rho, *self.habits(query, len(ads))

    def distribution(self, query: str, ads: Sequence[str]) -> dict[Clicks, float]:
        """The probability of every click sequence of a page."""
        page = self.page(query, ads)
        chances: dict[Clicks, float] = {}
        reach: dict[Clicks, float] = {(): 1.0}
        for clicks in all_sequences(len(ads)):
            following = self.following(page, clicks)
            for j, chance in following.items():
                reach[(*clicks, j)] = reach[clicks] * chance
            chances[clicks] = reach[clicks] * (1 - sum(following.values()))
        return chances

    def following(
        self, page: tuple[list[float], list[float], list[float], Rows], clicks: Clicks
    ) -> dict[int, float]:
        """P(next click is j given the clicks so far)."""
        theta, rho, eta, gamma = page
        last = clicks[-1] if clicks else 0
        free = [j for j in range(1, len(theta) + 1) if j not in clicks]
        on = (1 - (rho[last - 1] if last else 0.0)) * (1 - eta[len(clicks)])
        propensity = {j: theta[j - 1] * gamma[last][j - 1] for j in free}
        below = {
            "paper": max(
                1.0, sum(propensity.values())
            ),  # above 1 only where `extend` gave the eye more than one place to be
            "examination": sum(gamma[last][j - 1] for j in free),
            "normalised": sum(propensity.values()),
        }[self.variant]
        return {j: on * weight / below for j, weight in propensity.items()}

    def marginals(self, query: str, ads: Sequence[str]) -> list[float]:
        chances = self.distribution(query, ads)
        return [
            sum(p for clicks, p in chances.items() if j in clicks) for j in range(1, len(ads) + 1)
        ]
