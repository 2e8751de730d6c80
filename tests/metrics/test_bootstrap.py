"""Bootstrap intervals: what they are made of, and that they hold the truth as often as they say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.data.batch import Float64
from reclick.errors import SettingError
from reclick.fitting.order_table import OrderTable
from reclick.metrics import SESSION_METRICS, ChunkSums, reliability_curves, score, session_tables
from reclick.metrics.bootstrap import bootstrap_weights, percentile_interval
from reclick.metrics.chunk_sums import BatchColumns, ChunkAccumulator
from reclick.metrics.session_metrics import mean_columns
from reclick.models import MODELS
from tests.support import plain_metrics as plain

LOG = plain.random_log(5, 60, longest=4)
TABLE = plain.as_table(LOG)


def scored(*names: str) -> dict[str, ChunkSums]:
    return {name: score(MODELS[name]().fit(TABLE), TABLE) for name in names}


def row(table: pa.Table, **where: str) -> dict[str, Any]:
    (found,) = [
        each
        for each in table.to_pylist()
        if all(
            each[key] == value
            for key, value in {"sessions": "all", "volume": "all", **where}.items()
        )
    ]
    return dict(found)


def test_an_interval_is_of_the_metric_of_resampled_sessions() -> None:
    """Each resample is scored by the slow definitions, session by session."""
    model = MODELS["multiclick"]().fit(TABLE)
    sessions = plain.seen_by(model, LOG)
    sampled = [
        plain.metrics_of(plain.repeated(sessions, times.astype(int).tolist()))
        for times in bootstrap_weights(60, 15, seed=3)
    ]
    scores, _ = session_tables({"it": score(model, TABLE)}, level=0.5, resamples=15, seed=3)
    for metric in SESSION_METRICS:
        values = sorted(
            value for value, _, _ in (each[metric] for each in sampled) if not math.isnan(value)
        )
        if len(values) == 15:
            row_ = row(scores, metric=metric)
            assert row_["low"] == pytest.approx(
                values[3], rel=1e-9
            )  # the quarter of 0 … 14, rounded outwards
            assert row_["high"] == pytest.approx(values[11], rel=1e-9)


def test_a_difference_is_resampled_in_pairs() -> None:
    sums = scored("multiclick", "dctr", "pbm")
    scores, differences = session_tables({**sums, "again": sums["pbm"]}, resamples=200)
    assert [
        (each["model"], each["against"])
        for each in differences.to_pylist()
        if each["metric"] == "perplexity" and each["sessions"] == "all"
    ] == [
        ("multiclick", "dctr"),
        ("multiclick", "pbm"),
        ("multiclick", "again"),
        ("dctr", "pbm"),
        ("dctr", "again"),
        ("pbm", "again"),
    ]
    same = row(differences, model="pbm", against="again", metric="perplexity")
    assert (same["difference"], same["low"], same["high"]) == (0, 0, 0)
    row_ = row(differences, model="dctr", against="pbm", metric="perplexity")
    one, other = (row(scores, model=name, metric="perplexity") for name in ("dctr", "pbm"))
    assert row_["difference"] == pytest.approx(one["value"] - other["value"])
    assert row_["low"] <= row_["difference"] <= row_["high"]
    assert row_["high"] - row_["low"] < one["high"] - one["low"]  # what both find hard cancels


def test_the_same_seed_gives_the_same_intervals_and_another_gives_others() -> None:
    sums = scored("multiclick", "dctr")
    first, again, other = (session_tables(sums, seed=seed) for seed in (1, 1, 2))
    assert first[0].equals(again[0])
    assert first[1].equals(again[1])
    assert not first[0].equals(other[0])
    assert reliability_curves(sums, seed=1).equals(reliability_curves(sums, seed=1))


def test_a_wider_level_gives_a_wider_interval() -> None:
    sums = scored("multiclick")
    narrow, wide = (
        row(session_tables(sums, level=level)[0], metric="log_likelihood") for level in (0.5, 0.99)
    )
    assert wide["low"] < narrow["low"] < narrow["value"] < narrow["high"] < wide["high"]


def test_an_impossible_session_makes_the_value_and_the_lower_end_infinite_and_nothing_else() -> (
    None
):
    log = {
        "query": ["q"] * 40,
        "ads": [["a", "b"]] * 40,
        "clicks": [[1]] * 20 + [[]] * 19 + [[2, 1]],
    }
    model = MODELS["cm"]().fit(log)  # it holds no two clicks possible
    scores, differences = session_tables(
        {"cm": score(model, log), "multi": score(MODELS["multiclick"]().fit(log), log)}
    )
    row_ = row(scores, model="cm", metric="log_likelihood")
    assert row_["value"] == row_["low"] == -math.inf
    assert -math.inf < row_["high"] < 0  # e⁻¹ of the resamples are without that session
    assert row_["deviation"] is None
    assert row(scores, model="cm", metric="impossible")["value"] == pytest.approx(1 / 40)
    assert (
        row(differences, model="cm", against="multi", metric="log_likelihood")["difference"]
        == -math.inf
    )
    assert math.isfinite(row(scores, model="cm", metric="perplexity")["low"])
    _, twice = session_tables({"cm": score(model, log), "again": score(model, log)})
    assert row(twice, metric="log_likelihood")["difference"] is None  # of two infinite values


def test_a_model_without_an_order_of_clicks_gets_a_learnt_one() -> None:
    log = {
        "query": ["q"] * 40,
        "ads": [["a", "b"]] * 40,
        "clicks": [[1]] * 20 + [[]] * 10 + [[1, 2]] * 7 + [[2, 1]] * 3,
    }
    model = MODELS["dbn"]().fit(log)
    scores, _ = session_tables({"dbn": score(model, log)})
    in_order = model.log_set_prob(log) + OrderTable.fit(log).log_prob(log)
    row_ = row(scores, metric="log_likelihood")
    assert row_["value"] == pytest.approx(in_order.mean(), rel=1e-12)
    assert row(scores, metric="impossible")["value"] == pytest.approx(3 / 40)  # by itself


def test_empty_groups_are_null_with_no_support() -> None:
    log = {"query": ["q"] * 9, "ads": [["a", "b"]] * 9, "clicks": [[1]] * 9}
    scores, _ = session_tables({"pm": score(MODELS["pm"]().fit(log), log)})
    row_ = row(scores, sessions="reverse", metric="log_likelihood")
    assert row_["value"] is row_["low"] is row_["high"] is row_["deviation"] is None
    assert row_["support"] == 0


def test_infinite_and_missing_resamples_have_their_place() -> None:
    values = np.array([[-np.inf, 1.0], [2.0, np.nan], [3.0, 2.0], [np.inf, np.nan], [1.0, 5.0]])
    low, high = percentile_interval(values, 0.5)
    assert low.tolist() == [1.0, 1.0]
    assert high.tolist() == [3.0, 5.0]
    assert np.isnan(percentile_interval(np.full((5, 1), np.nan), 0.5)[0]).all()
    assert np.isnan(percentile_interval(np.zeros((0, 2)), 0.5)[1]).all()


def test_resamples_draw_as_many_as_there_are_with_replacement() -> None:
    """Each count is binomial(50, 1/50): mean 1, variance 0.98; the bounds are 5 deviations off."""
    times = bootstrap_weights(50, 4000, seed=0)
    assert (times.sum(axis=1) == 50).all()
    assert np.abs(times.mean(axis=0) - 1).max() < 5 * math.sqrt(0.98 / 4000)
    assert times.var() == pytest.approx(0.98, rel=0.02)


@pytest.mark.parametrize(("level", "resamples"), [(0.0, 10), (1.0, 10), (95, 10), (0.9, -1)])
def test_levels_and_resamples_that_make_no_sense_are_refused(level: float, resamples: int) -> None:
    with pytest.raises(SettingError, match=r"level|resamples"):
        session_tables(scored("pm"), level=level, resamples=resamples)


def test_the_reliability_curve_is_the_rate_of_clicks_in_each_bin() -> None:
    model = MODELS["multiclick"]().fit(TABLE)
    curve = reliability_curves({"it": score(model, TABLE)}, resamples=300).to_pylist()
    bins: dict[int, list[tuple[float, float, bool]]] = {}
    for s in plain.seen_by(model, LOG):
        for j in range(1, len(s.ads) + 1):
            bins.setdefault(min(int(s.marginal(j) * 20), 19), []).append(
                (s.weight, s.marginal(j), j in s.clicks)
            )
    filled = [bins[b] for b in sorted(bins) if sum(w for w, _, _ in bins[b]) > 0]
    assert len(curve) == len(filled)
    for row_, those in zip(curve, filled, strict=True):
        total = sum(w for w, _, _ in those)
        assert row_["curve"] == "reliability"
        assert row_["support"] == pytest.approx(total)
        assert row_["x"] == pytest.approx(sum(w * q for w, q, _ in those) / total)
        assert row_["y"] == pytest.approx(sum(w * c for w, _, c in those) / total)
        assert row_["low"] <= row_["y"] <= row_["high"]


# A 90 % interval misses the truth in a tenth of all logs. Of 200 simulated ones, 180 ± 4 should
# include it; the bounds are 3 deviations off.
LEVEL = 0.9


def sums_of(columns: dict[str, Float64]) -> ChunkSums:
    totals = ChunkAccumulator(None, 0)
    totals.add(BatchColumns(np.zeros(len(next(iter(columns.values()))), np.int64), columns, {}))
    return totals.finish()


def simulated(sessions: int, logs: int) -> Iterator[dict[str, ChunkSums]]:
    """Two models with known sessions: negative gamma log-likelihoods that share a part, and log2
    probabilities of coins of 0.3."""
    rng = np.random.default_rng(sessions)
    for _ in range(logs):
        common, own, weight = (
            rng.gamma(1.0, 1.0, sessions),
            rng.gamma(1.0, 0.5, (2, sessions)),
            rng.choice([1.0, 2.0], sessions),
        )
        clicked = rng.random(sessions) < 0.3
        position = mean_columns(weight, np.log2(np.where(clicked, 0.2, 0.8)))
        yield {
            name: sums_of(
                {
                    "log_likelihood": mean_columns(weight, -common - (1 + i) * own[i]),
                    "perplexity@1": position,
                }
            )
            for i, name in enumerate(("one", "other"))
        }


@pytest.mark.parametrize(
    ("sessions", "logs"), [(250, 200), (3000, 100)]
)  # a session a chunk, and several
def test_intervals_hold_the_truth_as_often_as_they_say(sessions: int, logs: int) -> None:
    truths = {
        "a mean": -1.5,  # E = 1 + 0.5
        "a perplexity": 2 ** -(0.3 * math.log2(0.2) + 0.7 * math.log2(0.8)),
        "a difference": 0.5,  # −(1 + 0.5) + (1 + 2 · 0.5)
    }
    held = dict.fromkeys(truths, 0)
    for sums in simulated(sessions, logs):
        scores, differences = session_tables(sums, level=LEVEL, resamples=250, seed=0)
        row_ = {
            "a mean": row(scores, model="one", metric="log_likelihood"),
            "a perplexity": row(scores, model="one", metric="perplexity@1"),
            "a difference": row(differences, metric="log_likelihood"),
        }
        for name, truth in truths.items():
            held[name] += row_[name]["low"] <= truth <= row_[name]["high"]
    for name, times in held.items():
        assert abs(times / logs - LEVEL) <= 3 * math.sqrt(LEVEL * (1 - LEVEL) / logs), (name, times)
