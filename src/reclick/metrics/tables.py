"""The session metrics of models as tables: values with intervals, differences between models, and reliability curves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int64
from reclick.errors import SettingError
from reclick.metrics.bootstrap import (
    CURVES,
    Estimate,
    check_bootstrap,
    difference_table,
    draws,
    held_interval,
    score_table,
)
from reclick.metrics.chunk_sums import COLUMNS, SessionSums
from reclick.metrics.metric import Metric
from reclick.metrics.session_metrics import SESSION_METRICS, calibration_bins

CALIBRATION = "calibration_error"
SESSIONS = COLUMNS[
    "log_likelihood"
].start  # the column that counts sessions, which every model can answer


def tables(
    sums: Mapping[str, SessionSums], *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[pa.Table, pa.Table]:
    """The scores and the differences of models scored on one log, with bootstrap intervals at `level`; the models' resamples are the same.

    Metrics that no session of the log has anything to say of, such as the perplexity of position 7 on pages of 4 ads, are left out.
    """
    check_bootstrap(level, resamples)
    groups, weights = _common(sums, resamples, seed)
    estimates: dict[str, dict[str, Estimate | None]] = {name: {} for name in SESSION_METRICS}
    for model, each in sums.items():
        whole, resampled, drawn = (
            each.grouped.sum(axis=0),
            _resampled(each.grouped, weights),
            np.count_nonzero(each.grouped, axis=0),
        )
        for name, metric in SESSION_METRICS.items():
            columns = (..., COLUMNS[name])
            answered = name not in each.reasons
            estimates[name][model] = (
                _estimate(metric, whole[columns], resampled[columns], drawn[columns])
                if answered
                else None
            )
    told = {
        name: by_model
        for name, by_model in estimates.items()
        if any(one is None or one.support[0] > 0 for one in by_model.values())
    }
    return score_table(told, groups, level), difference_table(told, groups, level)


def reliability(
    sums: Mapping[str, SessionSums], *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> pa.Table:
    """The reliability curves: in each bin of click probability, the mean probability x and the share clicked y, with the interval of y."""
    check_bootstrap(level, resamples)
    _, weights = _common(sums, resamples, seed)
    curves = [
        _curve(model, each, weights, level)
        for model, each in sums.items()
        if CALIBRATION not in each.reasons
    ]
    return pa.concat_tables([CURVES.empty_table(), *curves]).combine_chunks()


def _common(
    sums: Mapping[str, SessionSums], resamples: int, seed: int
) -> tuple[list[tuple[str, str]], Float64]:
    """The groups of all models and how often each chunk is drawn [resample, chunk]."""
    if not sums:
        raise SettingError("There is no model to compare: give the sums of one or more.")
    one = next(iter(sums.values()))
    for name, each in sums.items():
        if each.volumes != one.volumes or not np.array_equal(
            each.sums[..., SESSIONS], one.sums[..., SESSIONS]
        ):
            raise SettingError(
                f"{name} was not scored on the same log as the others, with the same volumes and seed: score all on one."
            )
    return one.groups, draws(len(one.sums), resamples, seed)


def _resampled(grouped: Float64, weights: Float64) -> Float64:
    """The sums of each resample [resample, group, column]."""
    flat = grouped.reshape(len(grouped), -1)
    used = flat.any(axis=0)  # many columns of many groups are empty
    out = np.zeros((len(weights), flat.shape[1]))
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # squares too great for a number: no deviation, but all else
        out[:, used] = weights @ flat[:, used]
    return out.reshape(len(weights), *grouped.shape[1:])


def _estimate(metric: Metric, whole: Float64, resampled: Float64, drawn: Int64) -> Estimate:
    """What a metric comes to, from the sums of its columns [group, column], the resampled ones and the chunks behind them."""
    nothing = np.full(len(whole), np.nan)
    spread = metric.deviation(whole) if metric.deviation else nothing
    return Estimate(metric.value(whole), metric.value(resampled), spread, whole[:, 0], drawn[:, 0])


def _curve(model: str, sums: SessionSums, weights: Float64, level: float) -> pa.Table:
    grouped = sums.grouped[:, 0, COLUMNS[CALIBRATION]]  # of all sessions [chunk, column]
    ads, expected, clicks = calibration_bins(grouped.sum(axis=0))
    seen = ads > 0
    drawn_ads, _, drawn_clicks = calibration_bins(weights @ grouped)  # [resample, bin]
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, resampled = clicks / ads, drawn_clicks / drawn_ads
        numbers = [
            expected / ads,
            rate,
            *held_interval(
                rate, resampled, np.count_nonzero(calibration_bins(grouped)[0], axis=0), level
            ),
            ads,
        ]
    names = [[model] * int(seen.sum()), ["reliability"] * int(seen.sum())]
    return pa.table(
        [*names, *(pa.array(each[seen], pa.float64(), from_pandas=True) for each in numbers)],
        schema=CURVES,
    )
