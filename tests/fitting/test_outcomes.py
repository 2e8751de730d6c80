"""What the outcomes of clicks say of satisfaction."""

from __future__ import annotations

import numpy as np
import pytest

import reclick as rc
from reclick.data.outcomes import N_OUTCOMES, OUTCOME_NAMES
from reclick.fitting.outcomes import (
    ABANDON_STRENGTH,
    RATE_STRENGTH,
    TYPICAL_RATES,
    OutcomeRates,
    OutcomeTable,
    count_satisfied,
    mean_satisfaction,
    outcome_likelihoods,
)
from reclick.fitting.priors import last_click_rate

RATES = np.array([[0.1, 0.4], [0.5, 0.2]])
NOTHING = np.zeros((2, N_OUTCOMES))


def counts_of(clicks: list[list[int]], outcomes: list[list[float]]) -> rc.Counts:
    """Counts of sessions with one page of three ads and these conversions."""
    log = {"query": ["q"] * len(clicks), "ads": [["a", "b", "c"]] * len(clicks)}
    return rc.count({**log, "clicks": clicks, "conversions": outcomes})


def test_rates_beyond_the_order_that_an_estimate_keeps_are_pooled() -> None:
    """SQUAREM may step there; a value that no M-step gives would lower the objective."""
    table = OutcomeTable(OutcomeRates.of(counts_of([[1]], [[1.0]]), 1.0))
    rates = table.constrain(np.array([[0.4, 0.2], [1.5, 0.3]]))
    np.testing.assert_allclose(rates[0], 0.3)
    assert 0.3 == rates[1, 1] < rates[1, 0] < 1
    np.testing.assert_allclose(table.constrain(np.array([[0.1, 0.2], [0.3, 0.5]]))[1], 0.4)


def test_likelihoods_are_worked_out_by_hand() -> None:
    expected = {
        "unknown": [1, 1],
        "quick_return": [0.5, 0.2],
        "stayed": [0.5, 0.8],
        "no_conversion": [0.9, 0.6],
        "no_conversion_quick_return": [0.45, 0.12],
        "no_conversion_stayed": [0.45, 0.48],
        "conversion": [0.1, 0.4],
    }
    assert tuple(expected) == OUTCOME_NAMES
    values = np.array(list(expected.values()), np.float64)
    np.testing.assert_allclose(outcome_likelihoods(RATES), values)
    np.testing.assert_allclose(outcome_likelihoods(RATES, 0.5), np.sqrt(values), rtol=1e-12)
    np.testing.assert_allclose(outcome_likelihoods(RATES, 0.0), np.ones((N_OUTCOMES, 2)))


def test_what_can_happen_after_a_click_adds_up_to_one() -> None:
    likelihoods = outcome_likelihoods(RATES)
    np.testing.assert_allclose(likelihoods[[1, 2]].sum(axis=0), 1)
    np.testing.assert_allclose(likelihoods[[3, 6]].sum(axis=0), 1)
    np.testing.assert_allclose(likelihoods[[4, 5]].sum(axis=0), likelihoods[3])


def test_rates_are_the_prior_where_nothing_is_known() -> None:
    prior = OutcomeRates.of(counts_of([[1]], [[0.0]]), 1.0, use_earlier=False)
    np.testing.assert_allclose(prior.estimate(NOTHING), TYPICAL_RATES)


def test_clicks_before_the_last_count_as_unsatisfied() -> None:
    # one earlier click with a conversion, two without; the last ones are in the E-step
    counts = counts_of([[1, 2], [1, 2], [3, 1]], [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    rates = OutcomeRates.of(counts, 1.0).estimate(NOTHING)
    s = RATE_STRENGTH[0, 0]
    np.testing.assert_allclose(rates[0, 0], (s * 0.02 + 1) / (s + 3))
    np.testing.assert_allclose(rates[0, 1], 0.2)
    half = OutcomeRates.of(counts, 0.5).estimate(NOTHING)
    np.testing.assert_allclose(half[0, 0], (s * 0.02 + 0.5) / (s + 1.5))


def test_the_rates_maximise_the_likelihood_in_their_order() -> None:
    rng = np.random.default_rng(0)
    prior = OutcomeRates.of(counts_of([[1]], [[0.0]]), 1.0)
    for case in range(6):
        last = rng.gamma(0.5, 20.0, (2, N_OUTCOMES))
        if case % 2:
            last[0, 6], last[1, [1, 4]] = 300.0, 300.0  # as if evidence spoke the other way round
        best = prior.estimate(last)
        assert best[0, 0] <= best[0, 1]
        assert best[1, 0] >= best[1, 1]
        if case % 2:
            np.testing.assert_allclose(best[:, 0], best[:, 1])

        def value(rates: np.ndarray, last: np.ndarray = last) -> float:
            logs = np.log(outcome_likelihoods(rates))
            return float((last.T * logs).sum()) + prior.log_prior(rates)

        for _ in range(200):
            other = np.clip(best + rng.normal(0, 0.03, (2, 2)), 1e-6, 1 - 1e-6)
            if other[0, 0] <= other[0, 1] and other[1, 0] >= other[1, 1]:
                assert value(other) <= value(best) + 1e-9


def test_counted_satisfaction_is_a_fixed_point_worked_out_by_hand() -> None:
    # pair 1: 6 last clicks that stayed and 2 quick returns; pair 2: 5 last clicks, quick returns
    last = np.zeros((2, N_OUTCOMES))
    last[0, [1, 2]], last[1, 1] = [2.0, 6.0], 5.0
    clicks = np.array([20.0, 30.0])
    log = {
        "query": ["q"] * 50,
        "ads": [["a", "b"]] * 50,
        "clicks": [[1]] * 8 + [[2]] * 5 + [[1, 2]] * 12 + [[2]] * 25,
        "dwell_seconds": [[3.0]] * 2
        + [[60.0]] * 6
        + [[3.0]] * 5
        + [[3.0, None]] * 12
        + [None] * 25,
    }
    counts = rc.count(log)
    found = count_satisfied(counts, last, clicks, 0.3, 4.0, 1.0)
    rho = (found.satisfied + 4 * 0.3) / (clicks + 4)
    total = found.satisfied.sum()
    abandon = (13 - total) / (50 - total + ABANDON_STRENGTH)
    by_outcome = found.by_outcome * last.sum(axis=0)
    rates = OutcomeRates.of(counts, 1.0).estimate(
        np.stack([last.sum(axis=0) - by_outcome, by_outcome])
    )
    likelihoods = outcome_likelihoods(rates)
    for pair in range(2):
        odds = rho[pair] * likelihoods[:, 1]
        satisfied = odds / (odds + (1 - rho[pair]) * abandon * likelihoods[:, 0])
        np.testing.assert_allclose(found.satisfied[pair], last[pair] @ satisfied, atol=1e-4)
    assert found.by_outcome[2] > 0.9  # who stayed was satisfied
    assert found.by_outcome[1] < 0.3  # who came back at once was not


def test_without_outcomes_all_last_clicks_satisfied() -> None:
    log = {"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [1, 2], [2]]}
    counts = rc.count(log)
    assert mean_satisfaction(counts, 1.0) == last_click_rate(counts) == 3 / 4
    known = rc.count({**log, "conversions": [[1.0], [0.0, 0.0], [0.0]]})
    assert mean_satisfaction(known, 0.0) == 3 / 4
    last = np.zeros((2, N_OUTCOMES))
    last[:, 0] = 3.0
    found = count_satisfied(known, last, np.array([4.0, 5.0]), 0.5, 2.0, 1.0)
    np.testing.assert_allclose(found.satisfied, 3.0, rtol=1e-6)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_the_mean_satisfaction_lies_between_none_and_all_last_clicks(weight: float) -> None:
    counts = counts_of([[1]] * 20 + [[1, 2]] * 10, [[1.0]] * 4 + [[0.0]] * 16 + [[0.0, 0.0]] * 10)
    assert 0 < mean_satisfaction(counts, weight) < last_click_rate(counts)
