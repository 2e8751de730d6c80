"""Monitor a fitted model: whether the clicks of a new log agree with the expected clicks.

Sums are by position, by volume of the query in the training log, and by level of the predicted
probability. The interval of expected ÷ observed clicks is a normal approximation, from the variance
of (observed − expected) between sessions.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.ragged import Float64, Int64, positions_in_runs, run_of_elements
from reclick.errors import LogError, check_fitted_model, check_range
from reclick.logs import as_log
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.progress import ProgressOption, track_progress

VOLUMES = (1, 10, 100, 1000, 10_000)  # sessions of a query at which a group begins
LEVELS = 10  # of the predicted probability, of equal width
MAX_POSITIONS = 20  # rows; the last one has all positions below
Z = 1.959964  # of a 95 % interval
MIN_CLICKS = 100  # observed or expected clicks of a row that can breach a limit


@dataclass(frozen=True, slots=True)
class MonitorLimits:
    """Limits of acceptable deviations. A breach must also be outside its 95 % interval."""

    clicks: float = 0.10  # relative difference of expected and observed clicks, over all
    group: float = 0.25  # the same, of any position or query volume with enough clicks
    calibration: float = 0.02  # mean difference of probability and click rate
    unknown_queries: float = 0.5  # share of sessions
    unknown_ads: float = 0.5  # share of impressions

    def __post_init__(self) -> None:
        for limit in fields(self):
            check_range(limit.name, getattr(self, limit.name), 0.0)


@dataclass(frozen=True, slots=True)
class MonitoredGroup:
    """A position, a volume of queries or a level of probability."""

    name: str
    impressions: float
    observed: float  # clicks
    expected: float
    ratio: float | None  # expected ÷ observed; None without clicks
    low: float | None  # of its 95 % interval
    high: float | None


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """How well the clicks of a log agree with a model; `breaches` lists exceeded limits."""

    sessions: float
    observed_clicks: float
    expected_clicks: float
    ratio: float | None
    low: float | None
    high: float | None
    calibration_error: float  # Σ |observed − expected| over levels of probability, per impression
    calibration_noise: float  # the average error that chance alone would cause
    unknown_queries: float
    unknown_ads: float
    positions: tuple[MonitoredGroup, ...]
    volumes: tuple[MonitoredGroup, ...]
    levels: tuple[MonitoredGroup, ...]
    breaches: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every limit holds."""
        return not self.breaches

    def to_dict(self) -> dict[str, Any]:
        """The report as lists and dicts, as `reclick monitor --json` prints it."""
        content = asdict(self)
        for name in ("positions", "volumes", "levels", "breaches"):
            content[name] = list(content[name])
        return {"ok": self.ok, **content}


class Impressions(NamedTuple):
    """Per impression: its session, the weight of the session, whether it was clicked, P(click)."""

    session: Int64
    weight: Float64
    clicked: Float64
    probability: Float64


@dataclass(slots=True)
class _Sums:
    """Impressions, clicks, expected clicks and (observed − expected)² of some groups."""

    values: Float64

    @classmethod
    def of(cls, groups: int) -> _Sums:
        return cls(np.zeros((groups, 4)))

    def add(self, group: Int64, impressions: Impressions) -> None:
        """Add impressions; those of one session and group are not independent."""
        groups, (session, weight, clicked, probability) = len(self.values), impressions
        for column, values in enumerate((weight, weight * clicked, weight * probability)):
            self.values[:, column] += np.bincount(group, values, groups)
        key, first, rows = np.unique(
            session * groups + group, return_index=True, return_inverse=True
        )
        differences = np.bincount(rows, clicked - probability)
        self.values[:, 3] += np.bincount(key % groups, weight[first] * differences**2, groups)

    def rows(self, names: list[str]) -> tuple[MonitoredGroup, ...]:
        """The groups that have impressions."""
        return tuple(
            _to_group(name, *row)
            for name, row in zip(names, self.values.tolist(), strict=True)
            if row[0]
        )


def _to_group(
    name: str, impressions: float, observed: float, expected: float, spread: float
) -> MonitoredGroup:
    if not observed:
        return MonitoredGroup(name, impressions, observed, expected, None, None, None)
    ratio = expected / observed
    # only observed varies, so the ratio has the same relative error as observed
    relative = Z * math.sqrt(spread) / observed
    low, high = ratio * math.exp(-relative), ratio * math.exp(relative)
    return MonitoredGroup(name, impressions, observed, expected, ratio, low, high)


@dataclass(slots=True)
class _Tally:
    """All sums over the chunks of a log."""

    total: _Sums = field(default_factory=lambda: _Sums.of(1))
    positions: _Sums = field(default_factory=lambda: _Sums.of(MAX_POSITIONS))
    volumes: _Sums = field(default_factory=lambda: _Sums.of(len(VOLUMES) + 1))
    levels: _Sums = field(default_factory=lambda: _Sums.of(LEVELS))
    sessions: float = 0.0
    unknown_queries: float = 0.0
    unknown_ads: float = 0.0


@check_arguments
def monitor(
    model: ClickModel,
    sessions: object,
    *,
    limits: MonitorLimits | None = None,
    progress: ProgressOption = None,
) -> MonitorReport:
    """Compare the clicks of a log with those that a fitted model expects.

    >>> from reclick.models import DCTR
    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1], [2]]}
    >>> report = monitor(DCTR(attractiveness_prior=0.5, attractiveness_strength=1).fit(log), log)
    >>> report.observed_clicks, round(report.expected_clicks, 2), report.ok
    (3.0, 3.2, True)
    """
    check_fitted_model(model)
    limits = limits or MonitorLimits()
    log = as_log(sessions)
    tally = _Tally()

    def add(part: SessionBatch, pages: PageDistribution) -> None:
        _add_chunk(tally, model, part, np.asarray(pages.click_prob()))

    with track_progress(progress, f"Monitoring {log.name}"):
        for _ in model.map_pages(log, add, clicks=True, threads=1):
            pass
    log.require_rows()
    if not tally.sessions:
        raise LogError(f"{log.name}: the weight of every session is 0. Give sessions that count.")
    return _report(tally, limits)


def _add_chunk(tally: _Tally, model: ClickModel, part: SessionBatch, probability: Float64) -> None:
    session = run_of_elements(part.page)
    clicked = np.zeros(len(probability))
    clicked[part.page[:-1][run_of_elements(part.clicks)] + part.click - 1] = 1.0
    known_query, known_ad = model.find_known(part)
    group = np.searchsorted(VOLUMES, model.find_volumes(part), side="right")
    position = np.minimum(positions_in_runs(part.page), MAX_POSITIONS - 1)
    level = np.minimum((probability * LEVELS).astype(np.int64), LEVELS - 1)
    weight = np.ones(len(part)) if part.weight is None else part.weight
    impressions = Impressions(session, weight[session], clicked, probability)
    for sums, groups in (
        (tally.total, np.zeros(len(session), np.int64)),
        (tally.positions, position),
        (tally.volumes, group[session]),
        (tally.levels, level),
    ):
        sums.add(groups, impressions)
    tally.sessions += float(weight.sum())
    tally.unknown_queries += float(weight[~known_query].sum())
    tally.unknown_ads += float(impressions.weight[~known_ad].sum())


def _report(tally: _Tally, limits: MonitorLimits) -> MonitorReport:
    total = tally.total.rows(["all"])[0]
    impressions, observed, expected, spread = tally.levels.values.T
    positions = [str(i + 1) for i in range(MAX_POSITIONS - 1)] + [f"{MAX_POSITIONS} and below"]
    starts = [*VOLUMES, None]
    volumes = ["not in the training log"] + [
        f"{start:,} or more" if end is None else f"{start:,} to {end - 1:,}"
        for start, end in pairwise(starts)
        if start is not None
    ]
    levels = [f"{i / LEVELS:.1f} to {(i + 1) / LEVELS:.1f}" for i in range(LEVELS)]
    report = MonitorReport(
        sessions=tally.sessions,
        observed_clicks=total.observed,
        expected_clicks=total.expected,
        ratio=total.ratio,
        low=total.low,
        high=total.high,
        calibration_error=float(np.abs(observed - expected).sum() / impressions.sum()),
        calibration_noise=float(np.sqrt(2 / np.pi * spread).sum() / impressions.sum()),
        unknown_queries=tally.unknown_queries / tally.sessions,
        unknown_ads=tally.unknown_ads / total.impressions,
        positions=tally.positions.rows(positions),
        volumes=tally.volumes.rows(volumes),
        levels=tally.levels.rows(levels),
    )
    return replace(report, breaches=tuple(_find_breaches(report, total, limits)))


def _find_breaches(
    report: MonitorReport, total: MonitoredGroup, limits: MonitorLimits
) -> list[str]:
    breaches = _breaches_of("all clicks", total, limits.clicks)
    for group_kind, groups in (
        ("position", report.positions),
        ("queries with training sessions:", report.volumes),
    ):
        for group in groups:
            breaches += _breaches_of(f"{group_kind} {group.name}", group, limits.group)
    if report.calibration_error > max(limits.calibration, 2 * report.calibration_noise):
        breaches.append(
            f"calibration error {report.calibration_error:.4f}, limit {limits.calibration:g}"
        )
    for name, value, limit in (
        ("queries", report.unknown_queries, limits.unknown_queries),
        ("ads", report.unknown_ads, limits.unknown_ads),
    ):
        if value > limit:
            breaches.append(f"{value:.1%} unknown {name}, limit {limit:.1%}")
    return breaches


def _breaches_of(title: str, group: MonitoredGroup, limit: float) -> list[str]:
    """A breach if the ratio differs from 1 by more than the limit and its interval excludes 1."""
    if max(group.observed, group.expected) < MIN_CLICKS:
        return []
    if group.ratio is None:
        return [f"{title}: {group.expected:,.0f} clicks expected, none observed"]
    assert group.low is not None and group.high is not None  # noqa: S101, PT018
    excludes_1 = group.low > 1 or group.high < 1
    if excludes_1 and abs(group.ratio - 1) > limit:
        return [f"{title}: {group.ratio:.2f} × the clicks observed, limit 1 ± {limit:g}"]
    return []
