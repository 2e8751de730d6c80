"""The uncertain outside option of a query: predictions are means over it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reclick.engines import as_grouped
from reclick.models import LuceClick
from reclick.models.luce.grid import fit_pooled, fit_second_stage
from reclick.models.luce.initial_values import count_sessions
from reclick.models.luce.parameters import Hyperparameters
from reclick.models.luce.satisfaction import (
    MAX_DEVIATION,
    log_mean_over_sides,
    outside_deviation,
    prior_deviation,
)
from tests.support.enumeration import as_table, random_sessions
from tests.support.luce_world import GAMMA, OMEGA, PLAIN, RICH, draw_queries

OWN: dict[str, Any] = {**PLAIN, "query_strength": 4.0}


def test_the_deviation_is_what_sessions_and_prior_leave() -> None:
    told, query = np.array([1.0, 2.0, 0.0, -1e-3]), np.array([0, 0, 1, 1], np.int32)
    np.testing.assert_allclose(
        outside_deviation(told, query, np.array([1.0, 4.0, 0.25])), [0.5, 0.5, MAX_DEVIATION]
    )
    assert (prior_deviation(4.0), prior_deviation(0.0)) == (0.5, MAX_DEVIATION)
    np.testing.assert_allclose(
        log_mean_over_sides([np.log([0.2, 0.5]), np.log([0.4, 0.5])]), np.log([0.3, 0.5])
    )


@pytest.mark.parametrize("settings", [OWN, {**RICH, "position_effect_strength": None}])
def test_a_prediction_is_the_mean_over_one_deviation_to_each_side(
    settings: dict[str, Any],
) -> None:
    log = as_table(random_sessions(np.random.default_rng(1), 150))
    model = LuceClick(**settings).fit(log)
    sides = []
    for side in (-1, 1):
        one = model.clone().fit(log)
        one._query_outside, one._query_outside_deviation = (
            model._query_outside * np.exp(side * model._query_outside_deviation),
            np.zeros(len(model._query_outside_deviation)),
        )
        sides.append(one)
    assert 0.05 < model._query_outside_deviation.max() < 1
    np.testing.assert_allclose(
        model.click_prob(log), np.mean([one.click_prob(log) for one in sides], axis=0), rtol=1e-10
    )
    np.testing.assert_allclose(
        np.exp(model.log_prob(log)),
        np.mean([np.exp(one.log_prob(log)) for one in sides], axis=0),
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        np.exp(model.log_set_prob(log)),
        np.mean([np.exp(one.log_set_prob(log)) for one in sides], axis=0),
        rtol=1e-10,
    )


def test_a_frequent_query_is_less_uncertain_than_a_rare_one_and_that_than_a_new_one() -> None:
    log = {
        "query": ["often"] * 400 + ["once"],
        "ads": [["a", "b"]] * 401,
        "clicks": [[1], [], [2], []] * 100 + [[]],
    }
    model = LuceClick(**OWN).fit(log)
    unsure = dict(
        zip(model._pairs.counts.queries.to_pylist(), model._query_outside_deviation, strict=True)
    )
    assert unsure["often"] < 0.2 < unsure["once"] < prior_deviation(4.0) * 1.2
    strange = {"query": ["never"], "ads": [["c"]]}
    stops = model._outside_sides(np.array([-1], np.int32))[:, 0]
    assert stops.tolist() == pytest.approx(
        [model._query_class_mean[0] * np.exp(side / 2) for side in (-1, 1)]
    )
    weight = model.prior_mean_ * model.gamma_[0, 0, 0]
    assert model.click_prob(strange)[0, 0] == pytest.approx(
        np.mean([weight / (weight + model.omega_[0, 0] * each) for each in stops])
    )


def test_of_rare_queries_the_next_sessions_are_predicted_better_by_the_mean_than_by_the_mode() -> (
    None
):
    settings = {
        **PLAIN,
        "attractiveness_strength": 2.0,
        "satisfaction_strength": 8.0,
        "satisfaction_prior": 0.375,
        "query_strength": 2.0,
    }
    gains, errors = [], []
    for seed in (2, 3, 4):
        rng, queries = np.random.default_rng(seed), 2_000
        readily = rng.gamma(2.0, 0.5, (queries, 1))
        theta, rho = rng.gamma(2.0, 0.125, (queries, 6)) / readily, rng.beta(3.0, 5.0, (queries, 6))
        log, later = (draw_queries(theta, rho, GAMMA, OMEGA, 4 * queries, rng) for _ in range(2))
        mean, came = LuceClick(**settings).fit(log), sum(map(len, later["clicks"].to_pylist()))
        guess = mean.clone().fit(log)
        guess._query_outside_deviation = np.zeros(len(mean._query_outside_deviation))
        gains.append(mean.log_prob(later).mean() - guess.log_prob(later).mean())
        errors.append([np.nansum(model.click_prob(later)) / came - 1 for model in (mean, guess)])
    assert np.mean(gains) > 0.0005
    assert np.abs(errors)[:, 0].max() < 0.05
    assert (np.diff(errors, axis=1) < 0).all()  # clicks are rare here, and the mode expects fewer


@pytest.mark.parametrize(
    "chosen",
    [
        Hyperparameters(query_strength=2.0),
        Hyperparameters(
            query_strength=1.0, components=2, mixing_strength=3.0, component_appeal_strength=2.0
        ),
        Hyperparameters(),
    ],
)
def test_held_out_sessions_are_scored_as_the_model_predicts(chosen: Hyperparameters) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 300))
    settings = {**chosen._asdict(), "satisfaction_prior": 0.3}
    model = LuceClick(**settings).fit(log)
    sessions, taken = as_grouped(log), Hyperparameters(**model.hyperparameters_)
    counts, prior_mean = count_sessions(sessions), np.ones(len(sessions.counts.impressions))
    pooled = fit_pooled(sessions, taken, prior_mean, counts)
    objective, result = fit_second_stage(
        sessions, taken, prior_mean, counts, pooled, max_iterations=500, tolerance=1e-6
    )
    scores = objective.score(result.parameters, sessions)
    assert np.average(scores, weights=sessions.weight) == pytest.approx(
        model.log_prob(log).mean(), rel=1e-9
    )
