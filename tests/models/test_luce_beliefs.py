"""Intervals of LuceClick: probabilities whose logits have normal posteriors, and their products."""

from __future__ import annotations

import numpy as np
import pytest

import reclick as rc
from reclick.batch import Float64
from reclick.models.luce.beliefs import belief, product_belief


def sigmoid(x: Float64) -> Float64:
    return np.asarray(1 / (1 + np.exp(-x)))


def logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


@pytest.mark.parametrize(("theta", "rho", "known"), [(0.3, 0.8, (40.0, 60.0)), (0.05, 0.9, (3.0, 50.0)), (0.9, 0.6, (300.0, 8.0))])
def test_the_interval_of_a_product_holds_what_draws_of_it_do(theta: float, rho: float, known: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    draws = sigmoid(rng.normal(logit(theta), known[0] ** -0.5, 200_000)) * sigmoid(rng.normal(logit(rho), known[1] ** -0.5, 200_000))
    found = product_belief(np.array([theta]), np.array([known[0]]), np.array([rho]), np.array([known[1]]))
    assert found.interval is not None
    (low,), (high,) = found.interval(0.9)
    assert np.mean((draws >= low) & (draws <= high)) == pytest.approx(0.9, abs=0.03)
    assert np.mean(draws < low) == pytest.approx(0.05, abs=0.03)


def test_a_product_with_a_certain_one_has_the_other_ones_interval() -> None:
    sure = product_belief(np.array([0.3]), np.array([40.0]), np.array([1.0]), np.array([np.inf]))
    alone = belief(np.array([0.3]), np.array([40.0]))
    assert sure.interval is not None
    assert alone.interval is not None
    np.testing.assert_allclose(sure.interval(0.9), alone.interval(0.9), rtol=1e-12)


def test_what_was_clicked_more_often_has_the_higher_lower_end_even_where_satisfaction_is_not_known() -> None:
    many = {"query": ["q"] * 2000, "ads": [["a"]] * 1000 + [["b"]] * 1000, "clicks": [[1]] * 900 + [[]] * 100 + [[1]] * 100 + [[]] * 900}
    table = rc.LuceClick().fit(many).relevance()
    low = dict(zip(table["ad"].to_pylist(), table["relevance_low"].to_pylist(), strict=True))
    assert low["a"] > 2 * low["b"] > 0


def test_a_satisfaction_common_to_all_has_a_wide_interval_seen_or_not() -> None:
    log = {"query": ["q"] * 400, "ads": [["a", "b"]] * 400, "clicks": [[1], [], [2], [2, 1]] * 100}
    model = rc.LuceClick(satisfaction_strength=None, attractiveness_strength=1.0, transition_strength=1.0, kinds=1, query_strength=None).fit(log)
    for row in model.relevance({"query": ["q", "q"], "ad": ["a", "never"]}).to_pylist():
        odds = [row[name] / (1 - row[name]) for name in ("satisfaction_low", "satisfaction", "satisfaction_high")]
        assert odds[1] / odds[0] == pytest.approx(odds[2] / odds[1]) == pytest.approx(np.exp(1.6449), rel=1e-3)
