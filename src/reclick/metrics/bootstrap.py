"""From values and their resamples to tidy tables: what every metric has in common, whatever is resampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int64
from reclick.errors import SettingError

SCORES = pa.schema(
    [(name, pa.string()) for name in ("model", "metric", "sessions", "volume")]
    + [(name, pa.float64()) for name in ("value", "deviation", "low", "high", "support")]
)
DIFFERENCES = pa.schema(
    [(name, pa.string()) for name in ("model", "against", "metric", "sessions", "volume")]
    + [(name, pa.float64()) for name in ("difference", "low", "high")]
)
CURVES = pa.schema(
    [(name, pa.string()) for name in ("model", "curve")]
    + [(name, pa.float64()) for name in ("x", "y", "low", "high", "support")]
)

Groups = Sequence[tuple[str, str]]  # (sessions, volume)


class Estimate(NamedTuple):
    """A metric of a model in each group, nan where there is none."""

    value: Float64  # [group]
    resampled: Float64  # [resample, group]
    deviation: Float64  # [group]
    support: Float64  # [group]
    drawn: Int64  # [group] chunks or queries behind it: of fewer than two there is no interval


Estimates = Mapping[
    str, Mapping[str, Estimate | None]
]  # metric → model → estimate, None where the model cannot answer


def check_bootstrap(level: float, resamples: int) -> None:
    """Refuse a level that is no share, and a number of resamples that is none."""
    if not 0 < level < 1:
        raise SettingError(f"level: got {level!r}, expected a share between 0 and 1, such as 0.95.")
    if resamples < 0:
        raise SettingError(f"resamples: got {resamples}, expected 0 (no intervals) or more.")


def draws(many: int, resamples: int, seed: int) -> Float64:
    """How often each of so many things is drawn when as many are drawn with replacement [resample, thing]; the same for the same seed.

    >>> draws(3, 2, seed=0).sum(axis=1)
    array([3., 3.])
    """
    drawn = np.random.default_rng(seed).integers(0, max(many, 1), (resamples, many))
    place = drawn + many * np.arange(resamples)[:, None]
    return (
        np.bincount(place.ravel(), minlength=resamples * many)
        .reshape(resamples, many)
        .astype(np.float64)
    )


def interval(resampled: Float64, level: float) -> tuple[Float64, Float64]:
    """Low and high ends [...] between which a share `level` of the resamples [resample, ...] lies, as many left out below as above.

    Infinite values are values like others; nan, where a resample had nothing to measure, are left out.

    >>> low, high = interval(np.arange(101.0), 0.9)
    >>> float(low), float(high)
    (5.0, 95.0)
    """
    if not len(resampled):
        nothing = np.full(resampled.shape[1:], np.nan)
        return nothing, nothing
    ordered = np.sort(resampled, axis=0)  # nan last
    last = np.maximum(np.count_nonzero(~np.isnan(resampled), axis=0) - 1, 0)
    tail = (1.0 - level) / 2
    low, high = (
        np.floor(tail * last + 1e-9).astype(np.int64),
        np.ceil((1.0 - tail) * last - 1e-9).astype(np.int64),
    )
    return np.take_along_axis(ordered, low[None], axis=0)[0], np.take_along_axis(
        ordered, high[None], axis=0
    )[0]


def held_interval(value: Float64, resampled: Float64, drawn: Int64, level: float) -> list[Float64]:
    """The ends of the interval [...], nan where there is no value, or fewer than two things were there to draw."""
    return [
        np.where(np.isnan(value) | (drawn < 2), np.nan, end) for end in interval(resampled, level)
    ]


def score_table(estimates: Estimates, groups: Groups, level: float) -> pa.Table:
    """A row for every model, metric and group."""
    return _table(SCORES, groups, _scores(estimates, groups, level))


def difference_table(estimates: Estimates, groups: Groups, level: float) -> pa.Table:
    """A row for every two models, metric and group: the metric of the one named first minus that of the other, resampled together."""
    return _table(DIFFERENCES, groups, _differences(estimates, groups, level))


def _scores(
    estimates: Estimates, groups: Groups, level: float
) -> Iterator[tuple[list[str], list[Float64]]]:
    for metric, by_model in estimates.items():
        for model, estimate in by_model.items():
            numbers = [np.full(len(groups), np.nan)] * 5
            if estimate is not None:
                ends = held_interval(estimate.value, estimate.resampled, estimate.drawn, level)
                numbers = [estimate.value, estimate.deviation, *ends, estimate.support]
            yield [model, metric], numbers


def _differences(
    estimates: Estimates, groups: Groups, level: float
) -> Iterator[tuple[list[str], list[Float64]]]:
    for metric, by_model in estimates.items():
        for (model, one), (against, other) in combinations(by_model.items(), 2):
            numbers = [np.full(len(groups), np.nan)] * 3
            if one is not None and other is not None:
                with np.errstate(invalid="ignore"):  # two infinite values have no difference
                    difference, resampled = one.value - other.value, one.resampled - other.resampled
                numbers = [difference, *held_interval(difference, resampled, one.drawn, level)]
            yield [model, against, metric], numbers


def _table(
    schema: pa.Schema, groups: Groups, rows: Iterator[tuple[list[str], list[Float64]]]
) -> pa.Table:
    """Rows of every group under their names: the schema's text columns end with the group's two, its numbers follow; nan is null."""
    tables = []
    kinds = [[kind for kind, _ in groups], [volume for _, volume in groups]]
    for names, numbers in rows:
        text = [*([name] * len(groups) for name in names), *kinds]
        tables.append(
            pa.table(
                [*text, *(pa.array(each, pa.float64(), from_pandas=True) for each in numbers)],
                schema=schema,
            )
        )
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
