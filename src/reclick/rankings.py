"""Compare a new ranking with the old one offline: expected clicks, satisfaction, and intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.ragged import Float64, Int32, Int64
from reclick.data.string_index import Interner
from reclick.errors import (
    CannotAnswerError,
    UsageError,
    check_fitted_model,
    check_range,
    check_whole,
)
from reclick.fitting.posterior import Interval, PairPosteriors
from reclick.logs import SessionLog, with_text
from reclick.logs.files.source import abbreviate
from reclick.models.base import ClickModel
from reclick.models.batching import open_pages
from reclick.models.impression_values import ImpressionValues
from reclick.runtime.arguments import check_arguments
from reclick.runtime.notebook import render_text
from reclick.runtime.progress import ProgressOption, report_progress, track_progress
from reclick.runtime.wording import count_noun

SESSION_DRAWS = 2_000  # resamples if no parameter is drawn, as these are fast


class RankingEstimate(NamedTuple):
    """A mean per session: with the old ranking, with the new one, and their difference."""

    old: Interval
    new: Interval
    difference: Interval
    probability_of_gain: float  # share of the draws in which the new ranking has more


@dataclass(frozen=True)
class RankingComparison:
    """What a model expects of a new ranking, compared with the old one, per session."""

    sessions: float
    changed_share: float  # of the sessions, whose page differs
    clicks: RankingEstimate  # expected clicks
    satisfaction: RankingEstimate | None  # P(the session ends satisfied); None without it
    unseen_share: tuple[float, float]  # impressions of pairs new to the model: old and new pages
    level: float
    draws: int
    covers: str  # what the intervals cover
    by_query: pa.Table = field(repr=False)  # query, sessions, clicks_old, clicks_new, difference

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON, without `by_query`."""
        values = {name: value for name, value in vars(self).items() if name != "by_query"}
        for name in ("clicks", "satisfaction"):
            values[name] = None if values[name] is None else _to_plain(values[name])
        return values

    def _repr_html_(self) -> str:
        return render_text(self)

    def __str__(self) -> str:
        estimates = {"expected clicks": self.clicks, "satisfaction": self.satisfaction}
        sessions = count_noun(self.sessions, "session")
        lines = [f"{sessions}, {self.changed_share:.1%} with another page"]
        for name, estimate in estimates.items():
            if estimate is not None:
                lines += [f"{name} per session", *_format_estimate(estimate)]
        old, new = self.unseen_share
        lines.append(f"impressions of pairs new to the model: old {old:.1%}, new {new:.1%}")
        return "\n".join([*lines, f"{self.level:.0%} intervals cover {self.covers}"])


@check_arguments
def compare_rankings(
    model: ClickModel,
    old_pages: object,
    new_pages: object,
    *,
    text: object = None,
    level: float = 0.9,
    draws: int = 400,
    seed: int = 0,
    progress: ProgressOption = None,
) -> RankingComparison:
    """Estimate the clicks and satisfaction of a new ranking against the old one, offline.

    Row i of both logs is the same session: the page that was shown, and the page that would be
    shown. Clicks of the logs are not used; weights of the old one are. `text` is the text of ads
    that the model does not know.

    The intervals come from `draws` draws. Each resamples the sessions, and draws θ and ρ of every
    (query, ad) pair from its posterior, independently of other pairs and the same for the old and
    the new pages. They do not cover examination, transitions and other parameters common to all
    pairs, nor errors of the model; an A/B test covers these. If a model has no posteriors of pairs,
    the intervals cover the sampling of sessions only. `covers` describes what they cover.

    >>> from reclick.models import DCTR
    >>> log = {"query": ["pizza"] * 40, "ads": [["a", "b"]] * 40, "clicks": [[1]] * 10 + [[]] * 30}
    >>> model = DCTR(attractiveness_prior=0.5, attractiveness_strength=2).fit(log)
    >>> comparison = compare_rankings(model, ("pizza", ["a", "b"]), ("pizza", ["a"]))
    >>> round(comparison.clicks.old.value, 3), round(comparison.clicks.new.value, 3)
    (0.286, 0.262)
    """
    check_fitted_model(model)
    check_range("level", level, 1e-6, 1 - 1e-6)
    draws = check_whole("draws", draws, 1)
    with track_progress(progress, "Comparing rankings"):
        pages = _PagePairs.read(open_pages(old_pages, text), open_pages(new_pages, text))
        rng = np.random.default_rng(seed)
        estimate = _ExpectedValues(model, pages)
        parameters, covers = estimate.draw_parameters(rng, draws)
        replicates = _resample(pages, parameters, rng)
    point = estimate.point
    results = {name: _summarise(pages.mean(point[name]), replicates[name], level) for name in point}
    return RankingComparison(
        sessions=float(pages.weight.sum()),
        changed_share=float(pages.weight[pages.old != pages.new].sum() / pages.weight.sum()),
        clicks=results["clicks"],
        satisfaction=results.get("satisfaction"),
        unseen_share=estimate.unseen_share(),
        level=level,
        draws=draws,
        covers=covers,
        by_query=_by_query(pages, point["clicks"]),
    )


class _PagePairs(NamedTuple):
    """The distinct pages of two logs, and the distinct pairs of an old and a new page."""

    batch: SessionBatch  # distinct pages
    ads: pa.Table | None  # text
    old: Int64  # [pair] the old page
    new: Int64  # [pair] the new page
    weight: Float64  # [pair] sessions

    @classmethod
    def read(cls, old: SessionLog, new: SessionLog) -> _PagePairs:
        """Read both logs; row i of one and row i of the other are the same session."""
        reader = _PageReader()
        (before, weight), (after, _) = reader.read(old), reader.read(new)
        batch = reader.batch()
        _check_sessions(old, new, batch, before, after)
        pairs, row = np.unique(np.stack([before, after], axis=1), axis=0, return_inverse=True)
        sessions: Float64 = np.bincount(row.ravel(), weight, len(pairs)).astype(np.float64)
        ads = old.ads if new.ads is None else with_text(old, new.ads).ads
        return cls(batch, ads, pairs[:, 0], pairs[:, 1], sessions)

    def mean(self, values: Float64, weight: Float64 | None = None) -> tuple[float, float]:
        """Return the means per session of values of pages, on the old and on the new pages."""
        weight = self.weight if weight is None else weight
        total = max(float(weight.sum()), 1e-300)
        old, new = (float(weight @ values[page]) / total for page in (self.old, self.new))
        return old, new


class _ExpectedValues:
    """Expected values on distinct pages, at a model's estimates and at draws of parameters."""

    def __init__(self, model: ClickModel, pages: _PagePairs) -> None:
        model = model._gather_sessions(pages.batch)
        self._model, self._batch = model, pages.batch
        self._text = model._index_text(pages.ads)
        batch = pages.batch
        query = np.repeat(batch.query, np.diff(batch.page)).astype(np.int64)
        distinct, self._impression = np.unique((query << 32) | batch.ad, return_inverse=True)
        table = pa.table(
            {
                "query": batch.queries.take(pa.array(distinct >> 32)),
                "ad": batch.ads.take(pa.array(distinct & 0xFFFFFFFF)),
            }
        )
        self._lookup = model._pairs.lookup(table, pages.ads)
        self._pages = pages
        self.satisfaction = self._has_satisfaction()
        self.point = self._evaluate(model)

    def unseen_share(self) -> tuple[float, float]:
        """Return the share of impressions of pairs new to the model, on old and new pages."""
        unseen = (self._lookup.row < 0)[self._impression].astype(np.float64)
        sizes = np.diff(self._batch.page).astype(np.float64)
        per_page = np.add.reduceat(unseen, self._batch.page[:-1])
        old, new = (
            n_unseen / max(n_impressions, 1e-300)
            for n_unseen, n_impressions in zip(
                self._pages.mean(per_page), self._pages.mean(sizes), strict=True
            )
        )
        return old, new

    def draw_parameters(
        self, rng: np.random.Generator, draws: int
    ) -> tuple[list[dict[str, Float64]], str]:
        """Return the expected values at each draw of θ and ρ, and what the draws cover."""
        posteriors = self._posteriors()
        if posteriors is None:
            covers = (
                f"the sampling of sessions only: {type(self._model).__name__} has no posterior of "
                "(query, ad) pairs."
            )
            return [self.point] * max(draws, SESSION_DRAWS), covers
        values_of_draws = []
        for number in range(draws):
            report_progress("draws", number, draws)
            theta, rho = (
                None if posterior is None else posterior.sample(1, rng)[0, self._impression]
                for posterior in posteriors
            )
            assert theta is not None  # noqa: S101, every model with posteriors has it
            values_of_draws.append(self._evaluate(self._model._with_values(theta, rho)))
        names = "attractiveness" if posteriors.satisfaction is None else "θ and ρ"
        covers = (
            f"the sampling of sessions and the uncertainty of {names} of each (query, ad); not "
            "that of parameters common to all pairs, nor errors of the model."
        )
        return values_of_draws, covers

    def _posteriors(self) -> PairPosteriors | None:
        """Return the posteriors of the pairs of the pages; None if the model has or uses none."""
        try:
            posteriors = self._model._posteriors(self._lookup)
        except CannotAnswerError:
            return None
        value = posteriors.attractiveness.value[self._impression]
        probe = self._model._with_values(value, None)
        self._evaluate(probe)
        uses_values = isinstance(probe._pairs, ImpressionValues) and probe._pairs.used
        return posteriors if uses_values else None

    def _has_satisfaction(self) -> bool:
        if not self._model.satisfaction:
            return False
        try:
            self._evaluate(self._model, satisfaction=True)
        except CannotAnswerError:
            return False
        return True

    def _evaluate(
        self, model: ClickModel, *, satisfaction: bool | None = None
    ) -> dict[str, Float64]:
        """Compute expected clicks and satisfaction of each distinct page."""
        satisfied = self.satisfaction if satisfaction is None else satisfaction

        def answer(_: SessionBatch, pages: PageDistribution) -> tuple[Float64, ...]:
            clicks = np.add.reduceat(np.asarray(pages.click_prob()), pages.starts[:-1])
            return (clicks, pages.satisfaction_prob()) if satisfied else (clicks,)

        parts = list(model.map_batch(self._batch, answer, text=self._text))
        names = ("clicks", "satisfaction")[: 2 if satisfied else 1]
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        return dict(zip(names, columns, strict=True))


def _resample(
    pages: _PagePairs, parameters: list[dict[str, Float64]], rng: np.random.Generator
) -> dict[str, Float64]:
    """Return the means on old and new pages in each draw, with sessions resampled [draw, 2].

    It is a Poisson bootstrap: each session counts a Poisson(1) number of times.
    """
    out: dict[str, list[tuple[float, float]]] = {name: [] for name in parameters[0]}
    for values in parameters:
        weight = rng.poisson(pages.weight).astype(np.float64)
        weight = weight if weight.any() else pages.weight
        for name, by_page in values.items():
            out[name].append(pages.mean(by_page, weight))
    return {name: np.array(means) for name, means in out.items()}


def _summarise(point: tuple[float, float], draws: Float64, level: float) -> RankingEstimate:
    old, new = point
    before, after = draws.T
    return RankingEstimate(
        old=_interval(old, before, level),
        new=_interval(new, after, level),
        difference=_interval(new - old, after - before, level),
        probability_of_gain=float(np.mean(after > before)),
    )


def _interval(value: float, draws: Float64, level: float) -> Interval:
    """Return the equal-tailed interval of the draws, extended to contain the value."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, min(float(low), value), max(float(high), value))


def _by_query(pages: _PagePairs, clicks: Float64) -> pa.Table:
    """Return expected clicks per session by query, the largest gains of clicks first."""
    query, weight = pages.batch.query[pages.old], pages.weight
    n = len(pages.batch.queries)
    sessions = np.bincount(query, weight, n)
    old, new = (
        np.bincount(query, weight * clicks[page], n) / np.maximum(sessions, 1e-300)
        for page in (pages.old, pages.new)
    )
    order = np.argsort(-(new - old) * sessions, kind="stable")
    order = order[sessions[order] > 0]
    return pa.table(
        {
            "query": pages.batch.queries.take(pa.array(order)),
            "sessions": sessions[order],
            "clicks_old": old[order],
            "clicks_new": new[order],
            "difference": (new - old)[order],
        }
    )


class _PageReader:
    """Gives a code to every distinct page of some logs."""

    def __init__(self) -> None:
        self._queries, self._ads = Interner(), Interner()
        self._pages = Interner()  # of the codes of a query and its ads

    def read(self, log: SessionLog) -> tuple[Int64, Float64]:
        """Return the code of the page and the weight of each session."""
        codes, weights = [], []
        for batch in log.batches():
            query = self._queries.codes(batch.queries)[batch.query]
            ad = self._ads.codes(batch.ads)[batch.ad]
            content = np.insert(ad, batch.page[:-1], query)
            starts = batch.page + np.arange(len(batch) + 1)
            codes.append(self._pages.codes_of_bytes(starts, content.view(np.uint8), width=4))
            weights.append(np.ones(len(batch)) if batch.weight is None else batch.weight)
        log.require_rows()
        return np.concatenate(codes).astype(np.int64), np.concatenate(weights)

    def batch(self) -> SessionBatch:
        """Return the distinct pages, ordered by code."""
        ends, data = self._pages.slices()
        starts: Int64 = ends // 4
        content: Int32 = data.view(np.int32)
        is_query = np.zeros(len(content), np.bool_)
        is_query[starts[:-1]] = True
        return SessionBatch(
            queries=self._queries.strings(),
            ads=self._ads.strings(),
            query=content[is_query],
            ad=content[~is_query],
            page=starts - np.arange(len(starts)),
            click=np.zeros(0, np.int32),
            clicks=np.zeros(len(starts), np.int64),
        )


def _check_sessions(
    old: SessionLog, new: SessionLog, batch: SessionBatch, before: Int64, after: Int64
) -> None:
    """Raise if the rows of two logs are not the same sessions."""
    if len(before) != len(after):
        raise UsageError(
            f"{old.name} has {len(before):,} pages and {new.name} {len(after):,}. Row i of both "
            "must be the same session: the page that was shown and the page that would be."
        )
    differs = np.flatnonzero(batch.query[before] != batch.query[after])
    if len(differs):
        rows = (before[differs[0]], after[differs[0]])
        one, two = (abbreviate(batch.queries[int(batch.query[row])].as_py()) for row in rows)
        raise UsageError(
            f"Row {differs[0] + 1:,}: the old page is of the query {one}, the new one of {two}. "
            "Row i of both must be the same session."
        )


def _to_plain(estimate: RankingEstimate) -> dict[str, Any]:
    plain = estimate._asdict()
    return {
        name: value._asdict() if isinstance(value, Interval) else value
        for name, value in plain.items()
    }


def _format_estimate(estimate: RankingEstimate) -> list[str]:
    old, new, difference, gain = estimate
    relative = f" ({difference.value / old.value:+.1%})" if old.value else ""
    return [
        f"  old         {old}",
        f"  new         {new}",
        f"  difference  {difference}{relative}, more in {gain:.0%} of the draws",
    ]
