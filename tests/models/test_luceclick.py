"""LuceClick against its definition, its monotone fit, and recovery where counting is biased."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.clicks.choice import ChoicePages
from reclick.errors import CannotAnswerError, SettingError
from reclick.models import LuceClick, MultiClick
from reclick.models.luce.e_step import OBSERVED
from reclick.models.luce.m_step import maximise
from reclick.models.luce.parameters import Hyperparameters
from reclick.models.luce.satisfaction import ZERO_VARIANCE, scale_odds
from tests.support.click_families import to_clicks
from tests.support.enumeration import Clicks, Session, all_sequences, as_table, random_sessions
from tests.support.luce_world import (
    GAMMA,
    OMEGA,
    PLAIN,
    RHO,
    RICH,
    THETA,
    draw,
    objective_for,
    statistics_at,
)

EXAMPLE_THETA, EXAMPLE_RHO = (0.5, 0.3, 0.2), (0.4, 0.6, 0.2)
EXAMPLE_GAMMA = np.array([[0.7, 0.2, 0.1], [0.0, 0.7, 0.3], [0.4, 0.0, 0.6], [0.3, 0.7, 0.0]])
EXAMPLE_OMEGA = np.array([0.5, 0.4, 0.3, 0.2])


def worked_example(components: int = 1, with_appeal: bool = True) -> LuceClick:
    """A model that was fitted, and then given the parameters of the worked example.

    A second component goes up the page, stops late, is hardly satisfied, and with `with_appeal`
    likes other ads than the first.
    """
    log = {"query": ["q"] * 3, "ads": [["a", "b", "c"]] * 3, "clicks": [[1], [], [2, 1]]}
    model = LuceClick(**{**PLAIN, "components": components}).fit(log)
    model.theta_, model.rho_ = np.array(EXAMPLE_THETA), np.array(EXAMPLE_RHO)
    model.gamma_ = np.stack([EXAMPLE_GAMMA, EXAMPLE_GAMMA[:, ::-1] + 0.1])[:components]
    model.omega_ = np.stack([EXAMPLE_OMEGA, EXAMPLE_OMEGA / 3])[:components]
    model.mixing_ = np.array([0.7, 0.3]) if components == 2 else np.ones(1)
    model.hyperparameters_ = {
        **model.hyperparameters_,
        "query_strength": None,
        "mixing_strength": None,
        "component_appeal_strength": 1.0 if components > 1 and with_appeal else None,
    }
    model._component_odds, model._component_appeal = (
        model.mixing_,
        np.array([[1.0, 0.2], [0.5, 3.0], [2.0, 1.0]]),
    )
    model._satisfaction_odds = np.array([1.0, 0.2])[:components]
    return model


def page_of(sequences: list[Clicks]) -> pa.Table:
    return as_table([Session("q", ("a", "b", "c"), clicks) for clicks in sequences])


# ---- predictions


def test_the_worked_example_comes_out_to_the_printed_digits() -> None:
    asked: list[Clicks] = [(), (1,), (1, 2), (2, 1), (3, 1, 2)]
    assert np.exp(worked_example().log_prob(page_of(asked))).round(6).tolist() == [
        0.537634,
        0.285347,
        0.062687,
        0.006452,
        0.000839,
    ]
    assert worked_example().click_prob(page_of([()]))[0].round(6).tolist() == [
        0.388816,
        0.147545,
        0.054833,
    ]


@pytest.mark.parametrize("with_appeal", [False, True])
def test_components_are_summed_in_every_prediction(with_appeal: bool) -> None:
    model, sequences = worked_example(2, with_appeal), list(all_sequences(3))
    theta, taste = (
        np.array(EXAMPLE_THETA),
        np.array([[1.0, 0.2], [0.5, 3.0], [2.0, 1.0]]) if with_appeal else np.ones((3, 2)),
    )
    weights = theta[:, None] * taste / (taste @ [0.7, 0.3])[:, None]  # [ad, kind]
    gone = [weights[:, t] @ model.gamma_[t, 0] for t in (0, 1)]
    empty = sum(
        share * omega / (omega + each)
        for share, omega, each in zip((0.7, 0.3), model.omega_[:, 0], gone, strict=True)
    )
    assert np.exp(model.log_prob(page_of([()])))[0] == pytest.approx(empty)
    chance = dict(zip(sequences, np.exp(model.log_prob(page_of(sequences))).tolist(), strict=True))
    marginals = [sum(p for clicks, p in chance.items() if j in clicks) for j in (1, 2, 3)]
    np.testing.assert_allclose(model.click_prob(page_of([()]))[0], marginals, rtol=1e-10)
    sets = [sum(chance[order] for order in itertools.permutations(clicks)) for clicks in sequences]
    np.testing.assert_allclose(np.exp(model.log_set_prob(page_of(sequences))), sets, rtol=1e-10)
    begun = [
        sum(p for clicks, p in chance.items() if clicks[: len(start)] == start)
        for start in ((2,), (2, 1), (2, 3))
    ]
    following = model.next_click_prob(page_of([(2,)]))[0]
    np.testing.assert_allclose(
        following, [begun[1] / begun[0], 0, begun[2] / begun[0]], rtol=1e-10, atol=1e-15
    )
    listed = model.rank_sequences("q", ["a", "b", "c"], top=16)
    assert [each.probability for each in listed] == pytest.approx(
        sorted(chance.values(), reverse=True), rel=1e-10
    )
    assert [chance[each.clicks] for each in listed] == pytest.approx(
        [each.probability for each in listed], rel=1e-10
    )


def test_a_session_is_ranked_among_the_sequences_of_its_length_under_several_components() -> None:
    model, sequences = worked_example(2), [clicks for clicks in all_sequences(3) if clicks]
    chance = dict(zip(sequences, np.exp(model.log_prob(page_of(sequences))).tolist(), strict=True))
    rows = np.arange(len(sequences))
    standing = model.pages(page_of(sequences)).ranks(to_clicks(sequences), rows)
    for i, clicks in enumerate(sequences):
        rivals = [p for other, p in chance.items() if len(other) == len(clicks)]
        assert standing.likelier[i] == sum(p > chance[clicks] * (1 + 1e-8) for p in rivals)
        best = [
            other
            for other, p in chance.items()
            if len(other) == len(clicks) and p >= max(rivals) * (1 - 1e-8)
        ]
        assert standing.likeliest[i] == len(best)
        assert standing.same_set[i] == sum(set(other) == set(clicks) for other in best)


def test_samples_of_several_components_come_as_often_as_they_are_likely() -> None:
    model, many = worked_example(2), 20_000
    drawn = [tuple(clicks) for clicks in model.sample(page_of([()] * many), 1).to_pylist()]
    for clicks, logs in zip(
        all_sequences(3), model.log_prob(page_of(list(all_sequences(3)))), strict=True
    ):
        p = float(np.exp(logs))
        assert abs(drawn.count(clicks) / many - p) < 5 * np.sqrt(p * (1 - p) / many) + 1e-9


def test_a_page_of_many_ads_has_no_exact_marginals_and_says_so() -> None:
    long = {"query": ["q"], "ads": [[str(i) for i in range(13)]], "clicks": [[13, 1]]}
    with pytest.raises(CannotAnswerError, match="12"):
        worked_example().click_prob(long)
    assert np.isfinite(worked_example(2).log_prob(long)[0])


# ---- the fit


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        RICH,
        {**RICH, "satisfaction_strength": None, "mixing_strength": None},
        {**PLAIN, "attractiveness_strength": 0},
    ],
)
def test_the_objective_never_falls_and_convergence_is_reported(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 150))
    model = LuceClick(max_iterations=3000, tolerance=1e-8, **settings).fit(log)
    assert model.converged_
    assert model.iterations_ == len(model.objective_) < 3000
    assert (np.diff(model.objective_) > -1e-9 * 150).all()
    with caplog.at_level(logging.WARNING):
        short = LuceClick(max_iterations=3, tolerance=1e-8, **settings).fit(log)
    assert not short.converged_
    assert "not converged" in short.message_
    assert short.message_ in caplog.text


@pytest.mark.parametrize(
    "chosen",
    [
        Hyperparameters(),
        Hyperparameters(query_strength=2.0),
        Hyperparameters(components=2, mixing_strength=3.0, query_strength=1.0),
        Hyperparameters(components=2, component_appeal_strength=2.0),
    ],
)
def test_at_the_end_of_a_fit_the_objective_is_flat_in_every_weight(
    chosen: Hyperparameters,
) -> None:
    made = objective_for(as_table(random_sessions(np.random.default_rng(5), 120)), chosen)
    start = made.initial_parameters()
    top = maximise(made, start, max_iterations=20_000, tolerance=1e-13, quiet=True).parameters

    def objective(at: Any) -> float:
        return statistics_at(made, at).log_likelihood + made.log_prior(at)

    names = ["theta", "rho", "satisfaction_variance", "transition", "outside"]
    names += ["query_outside"] if chosen.query_strength else []
    names += ["component_appeal"] if chosen.component_appeal_strength else []
    for name in names:
        values = getattr(top, name)
        for i in range(0, values.size, max(1, values.size // 7)):
            if name == "satisfaction_variance" and values[i] >= 1 / made.min_information:
                continue  # that of the prior, which is the limit
            here = (np.arange(values.size) == i).reshape(values.shape)
            high, low = (
                objective(top._replace(**{name: values * np.where(here, factor, 1.0)}))
                for factor in (1.001, 1 / 1.001)
            )
            assert abs(high - low) / 0.002 < 2e-2, (name, i)
    for t in range(chosen.components - 1):  # whose mean over the clicks stays
        step = 0.001 * ((np.arange(chosen.components) == t) - made.click_mixing[t])
        high, low = (
            objective(top._replace(satisfaction_odds=top.satisfaction_odds * np.exp(sign * step)))
            for sign in (1, -1)
        )
        assert abs(high - low) / 0.002 < 2e-2


def test_expected_choices_are_probabilities_while_the_user_still_chooses() -> None:
    made = objective_for(as_table([Session("q", ("a", "b", "c"), (2,))]), Hyperparameters())
    start = made.initial_parameters()
    now = start._replace(
        theta=np.array(EXAMPLE_THETA),
        rho=np.array(EXAMPLE_RHO),
        satisfaction_variance=np.full(3, ZERO_VARIANCE),
    )
    found = statistics_at(made, now)
    first, second = 1 + 1.0, 1 + 0.7  # the sum of weights at the start, and without b
    leave = 0.4 / second  # unsatisfied and out
    still = leave / (0.6 + leave)
    assert found.log_likelihood == pytest.approx(np.log(0.3 / first) + np.log(0.6 + leave))
    np.testing.assert_allclose(
        found.sums.expected[:, 0],
        [0.5 / first + still * 0.5 / second, 0.3 / first, 0.2 / first + still * 0.2 / second],
    )
    np.testing.assert_allclose(found.sums.satisfied[0], [0, 1 - still, 0])
    np.testing.assert_allclose(found.sums.outside[OBSERVED, 0, :2], [0, still])


# ---- recovery


def test_attractiveness_transitions_and_satisfaction_are_recovered_where_counting_is_biased() -> (
    None
):
    log = draw(THETA, RHO, GAMMA, OMEGA, 60_000, 1)
    model = LuceClick(
        **{**PLAIN, "satisfaction_strength": 1.0}, tolerance=1e-8, max_iterations=2000
    ).fit(log)
    scale = (
        model.theta_.mean() / THETA.mean()
    )  # weights are known up to a factor: the scale of gamma_ takes it
    np.testing.assert_allclose(model.theta_ / scale, THETA, rtol=0.08)
    assert np.abs(model.rho_ - RHO).max() < 0.08
    free = np.arange(1, 5)[:, None] != np.arange(1, 5)
    shares = [
        (table[1:] * free / (table[1:] * free).sum(axis=1, keepdims=True))
        for table in (model.gamma_[0], GAMMA[0])
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.03
    counted = MultiClick(variant="normalised", pooling="global").fit(log)
    assert (
        np.abs(counted.gamma_[1:] - shares[1]).max() > 0.06
    )  # an attractive ad that is gone makes the others look nearer
    satisfied = np.array(
        counted.relevance({"query": ["q"] * 6, "ad": [f"ad{i}" for i in range(6)]})["satisfaction"]
    )
    assert (satisfied - RHO).min() > 0.15  # every stop counts as satisfaction


def test_position_bias_does_not_enter_attractiveness_but_does_enter_click_rates() -> None:
    # Two ads are equally attractive, one is nearly always on top: counting finds it twice as
    # attractive.
    rng, count = np.random.default_rng(2), 40_000
    top = rng.random(count) < 0.9
    theta, rho = np.full(2 * count, 0.6), np.zeros(2 * count)
    gamma = np.array([[[1.0, 0.25], [0.5, 0.5], [0.5, 0.5]]])
    click, clicks = ChoicePages(
        "luce",
        theta,
        rho,
        np.ones((1, 3)),
        gamma,
        np.arange(count + 1) * 2,
        np.zeros(count, np.int64),
    ).sample(rng)
    ads = [["a", "b"] if first else ["b", "a"] for first in top]
    lists = pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click))
    log = pa.table({"query": ["q"] * count, "ads": ads, "clicks": lists})
    model, counted = LuceClick(**PLAIN, tolerance=1e-8).fit(log), MultiClick().fit(log)
    assert model.theta_[0] / model.theta_[1] == pytest.approx(1, abs=0.1)
    rates = np.array(counted.relevance({"query": ["q", "q"], "ad": ["a", "b"]})["attractiveness"])
    assert rates[0] / rates[1] > 1.5


# ---- input


def test_a_weight_of_two_equals_the_row_twice_with_every_addition() -> None:
    sessions = random_sessions(np.random.default_rng(6), 120)
    twice = LuceClick(**RICH).fit(as_table([each for each in sessions for _ in range(2)]))
    weighted = LuceClick(**RICH).fit(
        as_table([Session(s.query, s.ads, s.clicks, 2.0) for s in sessions], weights=True)
    )
    np.testing.assert_allclose(weighted.theta_, twice.theta_, rtol=1e-9)
    np.testing.assert_allclose(weighted.gamma_, twice.gamma_, rtol=1e-9)


def test_unseen_queries_and_ads_get_what_is_common_to_all() -> None:
    model = LuceClick(**{**RICH, "component_appeal_strength": None}).fit(
        as_table(random_sessions(np.random.default_rng(9), 200))
    )
    strange = {
        "query": ["never", "never"],
        "ads": [["x", "y"], ["a", "x"]],
        "clicks": [[2], [1, 2]],
    }
    assert np.isfinite(model.log_prob(strange)).all()
    table = model.relevance({"query": ["never"], "ad": ["x"]})
    assert table["attractiveness"][0].as_py() == pytest.approx(
        model.prior_mean_ / (1 + model.prior_mean_)
    )
    each = scale_odds(
        np.full(len(model._satisfaction_odds), model.satisfaction_), model._satisfaction_odds
    )  # [kind]
    assert table["satisfaction"][0].as_py() == pytest.approx(float(model._click_mixing @ each))


def test_rare_queries_and_pairs_have_prior_means_of_their_own() -> None:
    # Frequent queries are abandoned half the time, rare ones hardly ever. A new query is rare.
    often = [Session(f"often{i % 3}", ("a", "b"), (1,) if i % 2 else ()) for i in range(300)]
    rare = [Session(f"rare{i}", ("c", "d"), (1,) if i % 9 else ()) for i in range(100)]
    model = LuceClick(**{**PLAIN, "query_strength": 2.0}, tolerance=1e-7).fit(
        as_table([*often, *rare])
    )
    plenty = model.click_prob({"query": ["often0"], "ads": [["a", "b"]]})[0, 0]
    assert model.click_prob({"query": ["never"], "ads": [["e", "f"]]})[0, 0] > plenty + 0.15


def test_a_number_as_prior_is_the_attractiveness_of_an_ad_never_seen() -> None:
    model = LuceClick(**PLAIN, attractiveness_prior=0.2).fit(
        as_table(random_sessions(np.random.default_rng(10), 100))
    )
    assert model.relevance({"query": ["never"], "ad": ["x"]})["attractiveness"][
        0
    ].as_py() == pytest.approx(0.2)


@pytest.mark.parametrize(
    "settings",
    [
        {"components": 0},
        {"components": 1.5},
        {"attractiveness_strength": None},
        {"query_strength": "much"},
        {"mixing_strength": -1},
        {"component_appeal_strength": 1e300},
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        LuceClick(**settings)
