"""Tidy tables of scores, differences and curves, with paired bootstrap intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Float64, Int64
from reclick.errors import SettingError, UsageError
from reclick.metrics.chunk_sums import METRIC_COLUMNS, ChunkSums
from reclick.metrics.session_metrics import SESSION_METRICS, Metric, calibration_bins

SCORE_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("model", "metric", "sessions", "volume")]
    + [(name, pa.float64()) for name in ("value", "deviation", "low", "high", "support")]
)
DIFFERENCE_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("model", "against", "metric", "sessions", "volume")]
    + [(name, pa.float64()) for name in ("difference", "low", "high")]
)
CURVE_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("model", "curve")]
    + [(name, pa.float64()) for name in ("x", "y", "low", "high", "support")]
)
CALIBRATION = "calibration_error"
SESSION_COLUMN = METRIC_COLUMNS["log_likelihood"].start  # Σ weight, the same for all models

Groups = Sequence[tuple[str, str]]  # (sessions, volume)
TableRows = Iterator[tuple[list[str], list[Float64]]]  # names, and numbers [group]


class BootstrapEstimate(NamedTuple):
    """A metric of one model in each group; nan without a value."""

    value: Float64  # [group]
    replicates: Float64  # [resample, group]
    deviation: Float64  # [group]
    support: Float64  # [group]
    n_units: Int64  # [group] chunks or queries that are resampled; intervals need two


# metric → model → estimate, None if the model cannot answer
Estimates = Mapping[str, Mapping[str, BootstrapEstimate | None]]


def check_bootstrap(level: float, resamples: int) -> None:
    """Raise for a level outside (0, 1) or a negative number of resamples."""
    if not 0 < level < 1:
        raise SettingError("level", level, "a number between 0 and 1, such as 0.95")
    if resamples < 0:
        raise SettingError("resamples", resamples, "0 (no intervals) or more")


def bootstrap_weights(n: int, resamples: int, seed: int) -> Float64:
    """How often each of n units is drawn in each resample of n with replacement [resample, unit].

    >>> bootstrap_weights(3, 2, seed=0).sum(axis=1)
    array([3., 3.])
    """
    draws = np.random.default_rng(seed).integers(0, max(n, 1), (resamples, n))
    cell = draws + n * np.arange(resamples)[:, None]
    counts = np.bincount(cell.ravel(), minlength=resamples * n)
    return counts.reshape(resamples, n).astype(np.float64)


def percentile_interval(replicates: Float64, level: float) -> tuple[Float64, Float64]:
    """The ends [...] of the equal-tailed interval of a share `level` of replicates [resample, ...].

    Infinite values are included. A nan, of a resample without observations, is left out.

    >>> low, high = percentile_interval(np.arange(101.0), 0.9)
    >>> float(low), float(high)
    (5.0, 95.0)
    """
    if not len(replicates):
        missing = np.full(replicates.shape[1:], np.nan)
        return missing, missing
    sorted_replicates = np.sort(replicates, axis=0)  # nan last
    last = np.maximum(np.count_nonzero(~np.isnan(replicates), axis=0) - 1, 0)
    tail = (1.0 - level) / 2
    low = np.floor(tail * last + 1e-9).astype(np.int64)
    high = np.ceil((1.0 - tail) * last - 1e-9).astype(np.int64)
    ends = [np.take_along_axis(sorted_replicates, end[None], axis=0)[0] for end in (low, high)]
    return ends[0], ends[1]


def interval_or_nan(
    value: Float64, replicates: Float64, n_units: Int64, level: float
) -> list[Float64]:
    """The ends of the interval [...]; nan without a value, or with fewer than two units."""
    unknown = np.isnan(value) | (n_units < 2)
    return [np.where(unknown, np.nan, end) for end in percentile_interval(replicates, level)]


# ---- tables of any metrics


def score_table(estimates: Estimates, groups: Groups, level: float) -> pa.Table:
    """A table with a row for every model, metric and group."""
    return _table(SCORE_SCHEMA, groups, _score_rows(estimates, groups, level))


def difference_table(estimates: Estimates, groups: Groups, level: float) -> pa.Table:
    """A table with a row for every pair of models, metric and group: first value minus second.

    Both models have the same resamples.
    """
    return _table(DIFFERENCE_SCHEMA, groups, _difference_rows(estimates, groups, level))


def _score_rows(estimates: Estimates, groups: Groups, level: float) -> TableRows:
    for metric, by_model in estimates.items():
        for model, estimate in by_model.items():
            numbers = [np.full(len(groups), np.nan)] * 5
            if estimate is not None:
                value, replicates, deviation, support, n_units = estimate
                ends = interval_or_nan(value, replicates, n_units, level)
                numbers = [value, deviation, *ends, support]
            yield [model, metric], numbers


def _difference_rows(estimates: Estimates, groups: Groups, level: float) -> TableRows:
    for metric, by_model in estimates.items():
        for (model, first), (against, second) in combinations(by_model.items(), 2):
            numbers = [np.full(len(groups), np.nan)] * 3
            if first is not None and second is not None:
                with np.errstate(invalid="ignore"):  # the difference of two infinite values is nan
                    difference = first.value - second.value
                    replicates = first.replicates - second.replicates
                ends = interval_or_nan(difference, replicates, first.n_units, level)
                numbers = [difference, *ends]
            yield [model, against, metric], numbers


def _table(schema: pa.Schema, groups: Groups, rows: TableRows) -> pa.Table:
    """A table with a row per group: names, sessions, volume, then numbers; nan becomes null."""
    tables = []
    group_columns = [[sessions for sessions, _ in groups], [volume for _, volume in groups]]
    for names, numbers in rows:
        texts = [*([name] * len(groups) for name in names), *group_columns]
        tables.append(pa.table([*texts, *map(_nullable, numbers)], schema=schema))
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()


def _nullable(numbers: Float64) -> pa.Array:
    return pa.array(numbers, pa.float64(), from_pandas=True)


# ---- tables of the session metrics


def session_tables(
    sums: Mapping[str, ChunkSums], *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[pa.Table, pa.Table]:
    """Scores and differences of models that were scored on one log, with intervals at `level`.

    All models have the same resamples. Metrics without any observation in the log, such as the
    perplexity of position 7 on pages of 4 ads, are left out.
    """
    check_bootstrap(level, resamples)
    groups, weights = _common_groups(sums, resamples, seed)
    estimates: dict[str, dict[str, BootstrapEstimate | None]] = {
        name: {} for name in SESSION_METRICS
    }
    for model, of_model in sums.items():
        total = of_model.group_sums.sum(axis=0)
        replicates = _resample(of_model.group_sums, weights)
        n_units = np.count_nonzero(of_model.group_sums, axis=0)
        for name, metric in SESSION_METRICS.items():
            columns = (..., METRIC_COLUMNS[name])
            estimates[name][model] = (
                None
                if name in of_model.reasons
                else _estimate(metric, total[columns], replicates[columns], n_units[columns])
            )
    metrics_with_values = {
        name: by_model
        for name, by_model in estimates.items()
        if any(estimate is None or estimate.support[0] > 0 for estimate in by_model.values())
    }
    return score_table(metrics_with_values, groups, level), difference_table(
        metrics_with_values, groups, level
    )


def reliability_curves(
    sums: Mapping[str, ChunkSums], *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> pa.Table:
    """Observed click rate y against mean predicted probability x, per bin of predicted probability.

    The interval is of y.
    """
    check_bootstrap(level, resamples)
    _, weights = _common_groups(sums, resamples, seed)
    curves = [
        _reliability_curve(model, of_model, weights, level)
        for model, of_model in sums.items()
        if CALIBRATION not in of_model.reasons
    ]
    return pa.concat_tables([CURVE_SCHEMA.empty_table(), *curves]).combine_chunks()


def _common_groups(
    sums: Mapping[str, ChunkSums], resamples: int, seed: int
) -> tuple[list[tuple[str, str]], Float64]:
    """The groups of the models, and how often each chunk is drawn [resample, chunk]."""
    if not sums:
        raise UsageError("There is no model to compare: give the sums of one or more models.")
    first = next(iter(sums.values()))
    sessions = first.sums[..., SESSION_COLUMN]
    for name, model_sums in sums.items():
        if model_sums.volumes != first.volumes or not np.array_equal(
            model_sums.sums[..., SESSION_COLUMN], sessions
        ):
            raise UsageError(
                f"{name} was not scored on the same log as the other models, with the same volumes"
                " and seed: score all of them on one log."
            )
    return first.groups, bootstrap_weights(len(first.sums), resamples, seed)


def _resample(group_sums: Float64, weights: Float64) -> Float64:
    """The sums of each resample [resample, group, column]."""
    flat = group_sums.reshape(len(group_sums), -1)
    is_nonzero = flat.any(axis=0)  # most columns of most groups are empty
    out = np.zeros((len(weights), flat.shape[1]))
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # squares may overflow; then there is no deviation
        out[:, is_nonzero] = weights @ flat[:, is_nonzero]
    return out.reshape(len(weights), *group_sums.shape[1:])


def _estimate(
    metric: Metric, total: Float64, replicates: Float64, n_units: Int64
) -> BootstrapEstimate:
    """A metric from the sums of its columns [group, column] and their resamples."""
    missing = np.full(len(total), np.nan)
    deviation = metric.deviation(total) if metric.deviation else missing
    value, support = metric.value(total), total[:, 0]
    return BootstrapEstimate(value, metric.value(replicates), deviation, support, n_units[:, 0])


def _reliability_curve(model: str, sums: ChunkSums, weights: Float64, level: float) -> pa.Table:
    chunks = sums.group_sums[:, 0, METRIC_COLUMNS[CALIBRATION]]  # of all sessions [chunk, column]
    ads, expected, clicks = calibration_bins(chunks.sum(axis=0))
    resampled_ads, _, resampled_clicks = calibration_bins(weights @ chunks)  # [resample, bin]
    n_chunks = np.count_nonzero(calibration_bins(chunks)[0], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, replicates = clicks / ads, resampled_clicks / resampled_ads
        ends = interval_or_nan(rate, replicates, n_chunks, level)
        numbers = [expected / ads, rate, *ends, ads]
    has_ads = ads > 0
    names = [[name] * int(has_ads.sum()) for name in (model, "reliability")]
    columns = [_nullable(values[has_ads]) for values in numbers]
    return pa.table([*names, *columns], schema=CURVE_SCHEMA)
