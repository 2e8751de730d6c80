"""The tables of an evaluation as questions: what a model scored, who is best, and who cannot be told from the best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from reclick.profile import VOLUME_NAMES
from reclick.report.formatting import shown


class At(NamedTuple):
    """Where a score is taken: the metric, the kind of sessions, and the volume of their queries."""

    metric: str
    sessions: str = "all"
    volume: str = "all"


@dataclass(frozen=True, slots=True)
class Score:
    """A value with its standard deviation between sessions and its interval; None where there is none."""

    value: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    support: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """A model's value less another's, on the same sessions."""

    difference: float
    low: float | None = None
    high: float | None = None

    @property
    def is_tie(self) -> bool:
        """Whether the interval includes 0; without an interval nothing is said to be a tie."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Ranking:
    """Who is best somewhere."""

    order: tuple[str, ...]  # the models that answer, best first
    best: tuple[str, ...]  # those with the best value
    tied: tuple[str, ...]  # the others whose difference from the best may be 0

    @property
    def leaders(self) -> tuple[str, ...]:
        """The best, and those that cannot be told from it."""
        return (*self.best, *self.tied)

    @property
    def behind(self) -> tuple[str, ...]:
        """Those that are not as good as the best."""
        return tuple(model for model in self.order if model not in self.leaders)


@dataclass(frozen=True, slots=True)
class Results:
    """Scores and paired differences by where they were taken."""

    models: tuple[str, ...]
    scores: Mapping[At, Mapping[str, Score]]
    differences: Mapping[At, Mapping[tuple[str, str], Difference]]
    reasons: Mapping[
        str, Mapping[str, str]
    ]  # model → metric → why it cannot answer, where it said so

    def score(self, model: str, at: At) -> Score:
        """What a model scored; empty where it was not asked."""
        return self.scores.get(at, {}).get(model, Score())

    def values(self, at: At) -> dict[str, float]:
        """The values of the models that answer."""
        return {
            model: value
            for model in self.models
            if (value := self.score(model, at).value) is not None
        }

    def difference(self, model: str, against: str, at: At) -> Difference | None:
        """The difference of two models, whichever way round it was stored."""
        stored = self.differences.get(at, {})
        if (model, against) in stored:
            return stored[model, against]
        if (against, model) not in stored:
            return None
        turned = stored[against, model]
        return Difference(-turned.difference, _negative(turned.high), _negative(turned.low))

    def ranking(self, at: At) -> Ranking:
        """The models that answer, best first, and who shares the first place."""
        values = self.values(at)
        sign = 1 if shown(at.metric).better == "lower" else -1
        order = tuple(sorted(values, key=lambda model: sign * values[model]))
        best = tuple(model for model in order if values[model] == values[order[0]])
        if not order or math.isinf(values[order[0]]):
            return Ranking(order, (), ())
        tied = tuple(
            model
            for model in order[len(best) :]
            if (found := self.difference(order[0], model, at)) and found.is_tie
        )
        return Ranking(order, best, tied)

    def metrics(self, sessions: str = "all") -> tuple[str, ...]:
        """The metrics that any model answers for these sessions, in the order of the table."""
        found = (
            at.metric
            for at in self.scores
            if at.sessions == sessions and at.volume == "all" and self.values(at)
        )
        return tuple(dict.fromkeys(found))

    def volumes(self, metric: str, sessions: str = "all") -> tuple[str, ...]:
        """The buckets of volume in which any model answers, from rare to frequent."""
        found = {
            at.volume
            for at in self.scores
            if at[:2] == (metric, sessions) and at.volume != "all" and self.values(at)
        }
        return (
            *(volume for volume in VOLUME_NAMES if volume in found),
            *sorted(found.difference(VOLUME_NAMES)),
        )

    def support(self, at: At) -> float | None:
        """How many sessions, positions or pairs are behind the scores."""
        found = [
            score.support for score in self.scores.get(at, {}).values() if score.support is not None
        ]
        return max(found, default=None)


def read_results(
    scores: pa.Table, differences: pa.Table, reasons: Mapping[str, Mapping[str, str]]
) -> Results:
    """Sort the tables of an evaluation by where the scores were taken."""
    taken: dict[At, dict[str, Score]] = {}
    for row in scores.to_pylist():
        score = Score(
            *(number(row[name]) for name in ("value", "deviation", "low", "high", "support"))
        )
        taken.setdefault(_at(row), {})[row["model"]] = score
    compared: dict[At, dict[tuple[str, str], Difference]] = {}
    for row in differences.to_pylist():
        difference = number(row["difference"])
        if difference is not None:
            compared.setdefault(_at(row), {})[row["model"], row["against"]] = Difference(
                difference, number(row["low"]), number(row["high"])
            )
    return Results(tuple(dict.fromkeys(scores["model"].to_pylist())), taken, compared, reasons)


def number(value: float | None) -> float | None:
    """A number that is one."""
    return None if value is None or math.isnan(value) else float(value)


def _at(row: Mapping[str, Any]) -> At:
    return At(row["metric"], row["sessions"], row["volume"])


def _negative(value: float | None) -> float | None:
    return None if value is None else -value
