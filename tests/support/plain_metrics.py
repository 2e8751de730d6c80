"""Every metric in plain Python from its definition, over all click sequences of a page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.fitting.order_table import OrderTable
from reclick.models import ClickModel

Clicks = tuple[int, ...]
BUCKETS = {
    "0-10": 10,
    "10-50": 50,
    "50-100": 100,
    "100-500": 500,
    "500-1000": 1000,
    ">1000": math.inf,
}  # name → the highest volume in it


@dataclass(frozen=True)
class Seen:
    """A session, and the model's probability of every click sequence of its page."""

    query: str
    ads: tuple[str, ...]
    clicks: Clicks
    weight: float
    chances: dict[Clicks, float]
    order: float | None = None  # P(order | set) of a learnt table, for a model without an order
    down: float | None = None  # P(down the page | set) of that table

    @property
    def reverse(self) -> bool:
        return any(after < before for before, after in itertools.pairwise(self.clicks))

    def marginal(self, position: int) -> float:
        return math.fsum(p for clicks, p in self.chances.items() if position in clicks)

    def of_length(self, length: int) -> dict[Clicks, float]:
        return {clicks: p for clicks, p in self.chances.items() if len(clicks) == length}


def random_log(
    seed: int, sessions: int, *, longest: int = 6, queries: str = "qrstu"
) -> dict[str, list[Any]]:
    """Pages and click lists of all lengths in any order, ads twice on a page, some weights of 0."""
    rng = np.random.default_rng(seed)
    log: dict[str, list[Any]] = {"query": [], "ads": [], "clicks": [], "weight": []}
    for _ in range(sessions):
        n = int(rng.integers(1, longest + 1))
        many = min(n, int(rng.choice([0, 0, 1, 1, 2, 2, 3, 4, 5])))
        log["query"].append(str(rng.choice(list(queries))))
        log["ads"].append(rng.choice(list("abcdefg"), n).tolist())
        log["clicks"].append((rng.permutation(n)[:many] + 1).tolist())
        log["weight"].append(float(rng.choice([0.0, 0.5, 1.0, 1.0, 2.0])))
    return log


def as_table(log: dict[str, list[Any]]) -> pa.Table:
    types = {
        "query": pa.string(),
        "ads": pa.list_(pa.string()),
        "clicks": pa.list_(pa.int64()),
        "weight": pa.float64(),
    }
    return pa.table({name: pa.array(values, types[name]) for name, values in log.items()})


def all_sequences(n: int) -> list[Clicks]:
    return [
        clicks for many in range(n + 1) for clicks in itertools.permutations(range(1, n + 1), many)
    ]


def seen_by(model: ClickModel, log: dict[str, list[Any]]) -> list[Seen]:
    """The sessions with what the model says of each page, sequence by sequence."""
    asked: dict[str, list[Any]] = {"query": [], "ads": [], "clicks": []}
    for query, ads in zip(log["query"], log["ads"], strict=True):
        for clicks in all_sequences(len(ads)):
            asked["query"].append(query)
            asked["ads"].append(ads)
            asked["clicks"].append(list(clicks))
    chances = iter(np.exp(model.log_prob(as_table(asked))).tolist())
    orders: list[float | None] = [None] * len(log["query"])
    downs = orders
    if not model.ordered:
        table = OrderTable.fit(model.training_counts)
        orders = [_order_probability(table, tuple(clicks)) for clicks in log["clicks"]]
        downs = [_order_probability(table, tuple(sorted(clicks))) for clicks in log["clicks"]]
    pages = zip(
        log["query"],
        log["ads"],
        log["clicks"],
        log.get("weight", [1.0] * len(log["query"])),
        orders,
        downs,
        strict=True,
    )
    return [
        Seen(
            q,
            tuple(ads),
            tuple(clicks),
            w,
            {each: next(chances) for each in all_sequences(len(ads))},
            order,
            down,
        )
        for q, ads, clicks, w, order, down in pages
    ]


def _order_probability(table: OrderTable, clicks: Clicks) -> float:
    """Π γ(l, j) / Σ γ(l, u), over what is left of the set."""
    probability, last, left = 1.0, 0, set(clicks)
    for click in clicks:
        probability *= table.gamma[last, click - 1] / sum(table.gamma[last, u - 1] for u in left)
        left.remove(click)
        last = click
    return float(probability)


def tied(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(a, b)


def first_hit(s: Seen) -> float:
    steps = [
        math.fsum(p for clicks, p in s.chances.items() if clicks[:1] == (j,))
        for j in range(1, len(s.ads) + 1)
    ]
    best = [j for j, p in enumerate(steps, 1) if tied(p, max(steps))]
    return 1 / len(best) if s.clicks[0] in best else 0.0


def best_sequences(s: Seen) -> list[Clicks]:
    chances = s.of_length(len(s.clicks))
    return [clicks for clicks, p in chances.items() if tied(p, max(chances.values()))]


def sequence_hit(s: Seen) -> float:
    best = best_sequences(s)
    return 1 / len(best) if s.clicks in best else 0.0


def set_hit(s: Seen) -> float:
    best = best_sequences(s)
    return sum(set(clicks) == set(s.clicks) for clicks in best) / len(best)


def rank(s: Seen) -> float:
    """The mean of the places that the sequence takes in all orders of those tied with it."""
    mine = s.chances[s.clicks]
    above = sum(p > mine and not tied(p, mine) for p in s.of_length(len(s.clicks)).values())
    equals = sum(tied(p, mine) for p in s.of_length(len(s.clicks)).values())
    places = range(above + 1, above + equals + 1)
    return sum(places) / len(places)


def log_or_minus_infinity(p: float, log: Callable[[float], float] = math.log) -> float:
    return log(p) if p > 0 else -math.inf


def log2_at(s: Seen, position: int) -> float:
    q = min(s.marginal(position), 1.0)
    return log_or_minus_infinity(q if position in s.clicks else 1 - q, math.log2)


def session_perplexity(s: Seen) -> float:
    return math.pow(2, -sum(log2_at(s, j) for j in range(1, len(s.ads) + 1)) / len(s.ads))


def log_set(s: Seen) -> float:
    return log_or_minus_infinity(
        math.fsum(s.chances[order] for order in itertools.permutations(s.clicks))
    )


def mean(values: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The mean of (weight, x), the deviation and the sum of weights; nan where there is none."""
    counted = [(w, x) for w, x in values if w > 0]
    total = sum(w for w, _ in counted)
    if not counted:
        return math.nan, math.nan, 0.0
    middle = sum(w * x for w, x in counted) / total
    if math.isinf(middle):
        return middle, math.nan, total
    return middle, math.sqrt(sum(w * (x - middle) ** 2 for w, x in counted) / total), total


def perplexity_of(values: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    middle, _, total = mean(values)
    return (2.0**-middle if not math.isnan(middle) else math.nan), math.nan, total


def calibration(sessions: Iterable[Seen]) -> tuple[float, float, float]:
    bins: dict[int, list[tuple[float, float, float]]] = {}
    for s in sessions:
        for j in range(1, len(s.ads) + 1):
            q = min(s.marginal(j), 1.0)
            bins.setdefault(min(int(q * 20), 19), []).append((s.weight, q, float(j in s.clicks)))
    total = sum(w for each in bins.values() for w, _, _ in each)
    if total == 0:
        return math.nan, math.nan, 0.0
    error = 0.0
    for each in bins.values():
        inside = sum(w for w, _, _ in each)
        if inside:
            error += (
                inside
                / total
                * abs(
                    sum(w * q for w, q, _ in each) / inside
                    - sum(w * c for w, _, c in each) / inside
                )
            )
    return error, math.nan, total


def click_ratio(sessions: Iterable[Seen]) -> tuple[float, float, float]:
    """Expected over observed clicks, and how many ads there are."""
    expected = clicks = ads = 0.0
    for s in sessions:
        expected += s.weight * sum(s.marginal(j) for j in range(1, len(s.ads) + 1))
        clicks += s.weight * len(s.clicks)
        ads += s.weight * len(s.ads)
    return (expected / clicks if clicks else math.nan), math.nan, ads


def click_number_error(sessions: Iterable[Seen]) -> tuple[float, float, float]:
    """Root mean squared error of the expected number of clicks."""
    squares = total = 0.0
    for s in sessions:
        expected = sum(len(clicks) * p for clicks, p in s.chances.items())
        squares += s.weight * (expected - len(s.clicks)) ** 2
        total += s.weight
    return (math.sqrt(squares / total) if total else math.nan), math.nan, total


def order_outcome(s: Seen) -> float:
    """Log P(in order or not | set)."""
    down = tuple(sorted(s.clicks))
    if s.down is None:
        whole = math.fsum(s.chances[order] for order in itertools.permutations(s.clicks))
        chance = s.chances[down] / whole if whole > 0 else 0.0
    else:
        chance = s.down
    return log_or_minus_infinity(chance if s.clicks == down else max(1 - chance, 0.0))


def backward_ratio(sessions: Iterable[Seen]) -> tuple[float, float, float]:
    """Expected over observed moves up the page, and how many moves there are."""
    expected = observed = moves = 0.0
    for s in sessions:
        for k in range(1, len(s.clicks)):
            so_far = s.clicks[:k]
            after = s.chances
            if s.down is not None:  # clicks so far in any order
                so_far = tuple(sorted(so_far))
            then = {c[k]: 0.0 for c in after if len(c) > k}
            for clicks, p in after.items():
                if clicks[:k] == so_far and len(clicks) > k:
                    then[clicks[k]] += p
            some = math.fsum(then.values())
            up = math.fsum(p for j, p in then.items() if j < s.clicks[k - 1])
            expected += s.weight * (up / some if some > 0 else 0.0)
            observed += s.weight * (s.clicks[k] < s.clicks[k - 1])
            moves += s.weight
    return (expected / observed if observed else math.nan), math.nan, moves


def metrics_of(sessions: list[Seen]) -> dict[str, tuple[float, float, float]]:
    """Every session metric: value, deviation, support."""
    out = {"first_click_accuracy": mean([(s.weight, first_hit(s)) for s in sessions if s.clicks])}
    for m in range(1, 5):
        those = [s for s in sessions if len(s.clicks) == m]
        out[f"sequence_accuracy@{m}"] = mean([(s.weight, sequence_hit(s)) for s in those])
        out[f"rank@{m}"] = mean([(s.weight, rank(s)) for s in those])
        if m in (2, 3):
            out[f"top_accuracy@{m}"] = mean([(s.weight, set_hit(s)) for s in those])
    out["perplexity"] = mean([(s.weight, session_perplexity(s)) for s in sessions])
    for r in range(1, 11):
        out[f"perplexity@{r}"] = perplexity_of(
            [(s.weight, log2_at(s, r)) for s in sessions if len(s.ads) >= r]
        )
    out["conditional_perplexity"] = perplexity_of(
        [(s.weight * len(s.ads), log_set(s) / math.log(2) / len(s.ads)) for s in sessions]
    )
    out["log_likelihood"] = mean(
        [
            (s.weight, log_or_minus_infinity(s.chances[s.clicks]))
            if s.order is None
            else (s.weight, log_set(s) + math.log(s.order))
            for s in sessions
        ]
    )
    out["log_set_likelihood"] = mean([(s.weight, log_set(s)) for s in sessions])
    out["impossible"] = mean([(s.weight, float(s.chances[s.clicks] == 0)) for s in sessions])
    out["calibration_error"] = calibration(sessions)
    out["click_ratio"] = click_ratio(sessions)
    out["click_number_error"] = click_number_error(sessions)
    out["order_log_likelihood"] = mean(
        [(s.weight, order_outcome(s)) for s in sessions if len(s.clicks) > 1]
    )
    out["backward_ratio"] = backward_ratio(sessions)
    return out


def bucket(volume: float) -> str:
    return next(name for name, highest in BUCKETS.items() if volume <= highest)


def by_group(
    sessions: list[Seen], volumes: dict[str, float]
) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Every metric of every group: (metric, sessions, volume)."""
    out: dict[tuple[str, str, str], tuple[float, float, float]] = {}
    for kind in ("all", "reverse"):
        for volume in ("all", *BUCKETS):
            those = [
                s
                for s in sessions
                if (kind == "all" or s.reverse)
                and volume in ("all", bucket(volumes.get(s.query, 0.0)))
            ]
            out |= {(metric, kind, volume): value for metric, value in metrics_of(those).items()}
    return out


def repeated(sessions: list[Seen], times: Sequence[int]) -> list[Seen]:
    """Each session as often as told."""
    return [replace(s, weight=s.weight * many) for s, many in zip(sessions, times, strict=True)]
