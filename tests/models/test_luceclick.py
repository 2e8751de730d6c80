"""LuceClick against its definition, what its climb promises, and what it recovers where counting is biased."""

from __future__ import annotations

import itertools
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.clicks import distribution as pg
from reclick.clicks.choice import LUCE
from reclick.clicks.distribution import Pages
from reclick.data.grouped_sessions import as_sessions
from reclick.errors import CannotAnswerError, SettingError
from reclick.models import LuceClick, MultiClick
from reclick.models.luce.climbing import climb
from reclick.models.luce.objective import Problem
from reclick.models.luce.parameters import Options
from reclick.models.luce.satisfaction import EXACT, satisfaction_of
from tests.support.enumeration import Clicks, Session, all_sequences, as_table, random_sessions
from tests.support.luce_world import PLAIN, PLEASE, PULL, RICH, WHEN, WHERE, drawn

THETA, RHO = (0.5, 0.3, 0.2), (0.4, 0.6, 0.2)
GAMMA = np.array([[0.7, 0.2, 0.1], [0.0, 0.7, 0.3], [0.4, 0.0, 0.6], [0.3, 0.7, 0.0]])
OMEGA = np.array([0.5, 0.4, 0.3, 0.2])


def worked(components: int = 1, tasted: bool = True) -> LuceClick:
    """A model that was fitted, and then given the parameters of the worked example.

    A second kind of users goes up the page, stops late, is hardly satisfied, and if `tasted` likes other ads than the first.
    """
    log = {"query": ["q"] * 3, "ads": [["a", "b", "c"]] * 3, "clicks": [[1], [], [2, 1]]}
    model = LuceClick(**{**PLAIN, "components": components}).fit(log)
    model.theta_, model.rho_ = np.array(THETA), np.array(RHO)
    model.gamma_ = np.stack([GAMMA, GAMMA[:, ::-1] + 0.1])[:components]
    model.omega_ = np.stack([OMEGA, OMEGA / 3])[:components]
    model.mixing_ = np.array([0.7, 0.3]) if components == 2 else np.ones(1)
    model.hyperparameters_ = {
        **model.hyperparameters_,
        "query": None,
        "mix": None,
        "taste": 1.0 if components > 1 and tasted else None,
    }
    model._component_odds, model._component_appeal = (
        model.mixing_,
        np.array([[1.0, 0.2], [0.5, 3.0], [2.0, 1.0]]),
    )
    model._satisfaction_odds = np.array([1.0, 0.2])[:components]
    return model


def page_of(sequences: list[Clicks]) -> pa.Table:
    return as_table([Session("q", ("a", "b", "c"), clicks) for clicks in sequences])


# ---- what it answers


def test_the_worked_example_comes_out_to_the_printed_digits() -> None:
    asked: list[Clicks] = [(), (1,), (1, 2), (2, 1), (3, 1, 2)]
    assert np.exp(worked().log_prob(page_of(asked))).round(6).tolist() == [
        0.537634,
        0.285347,
        0.062687,
        0.006452,
        0.000839,
    ]
    assert worked().click_prob(page_of([()]))[0].round(6).tolist() == [0.388816, 0.147545, 0.054833]


@pytest.mark.parametrize("tasted", [False, True])
def test_kinds_of_users_are_summed_in_every_answer(tasted: bool) -> None:
    model, sequences = worked(2, tasted), list(all_sequences(3))
    theta, taste = (
        np.array(THETA),
        np.array([[1.0, 0.2], [0.5, 3.0], [2.0, 1.0]]) if tasted else np.ones((3, 2)),
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


def test_a_session_is_ranked_among_the_sequences_of_its_length_under_several_kinds() -> None:
    model, sequences = worked(2), [clicks for clicks in all_sequences(3) if clicks]
    chance = dict(zip(sequences, np.exp(model.log_prob(page_of(sequences))).tolist(), strict=True))
    rows = np.arange(len(sequences))
    ((standing),) = model.answers(
        page_of(sequences),
        lambda part, pages: pg.standings(pages, part.click, part.clicks, rows),
        clicks=True,
    )
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


def test_samples_of_several_kinds_come_as_often_as_they_are_likely() -> None:
    model, many = worked(2), 20_000
    drawn = [tuple(clicks) for clicks in model.sample(page_of([()] * many), 1).to_pylist()]
    for clicks, logs in zip(
        all_sequences(3), model.log_prob(page_of(list(all_sequences(3)))), strict=True
    ):
        p = float(np.exp(logs))
        assert abs(drawn.count(clicks) / many - p) < 5 * np.sqrt(p * (1 - p) / many) + 1e-9


def test_a_page_of_many_ads_has_no_exact_marginals_and_says_so() -> None:
    long = {"query": ["q"], "ads": [[str(i) for i in range(13)]], "clicks": [[13, 1]]}
    with pytest.raises(CannotAnswerError, match="12"):
        worked().click_prob(long)
    assert np.isfinite(worked(2).log_prob(long)[0])


# ---- the climb


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        RICH,
        {**RICH, "satisfaction_strength": None, "mixing_strength": None},
        {**PLAIN, "attractiveness_strength": 0},
    ],
)
def test_the_objective_never_falls_and_convergence_is_told_truly(
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


def problem(sessions: list[Session], options: Options) -> Problem:
    grouped = as_sessions(as_table(sessions))
    return Problem(
        grouped,
        options,
        np.ones(len(grouped.counts.impressions)),
        0.3,
        np.full(options.components, 1 / options.components),
    )


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(query_strength=2.0),
        Options(components=2, mixing_strength=3.0, query_strength=1.0),
        Options(components=2, component_appeal_strength=2.0),
    ],
)
def test_where_the_climb_ends_the_objective_is_flat_in_every_weight(options: Options) -> None:
    made = problem(random_sessions(np.random.default_rng(5), 120), options)
    top = climb(made, made.fresh(), max_iterations=20_000, tolerance=1e-13, quiet=True).parameters
    with ThreadPoolExecutor(1) as pool:

        def objective(at: Any) -> float:
            return made.passes.expect(at, pool).log_likelihood + made.log_prior(at)

        for name in (
            "theta",
            "rho",
            "loose",
            "eye",
            "out",
            *(["spread"] if options.query_strength else []),
            *(["taste"] if options.component_appeal_strength else []),
        ):
            values = getattr(top, name)
            for i in range(0, values.size, max(1, values.size // 7)):
                if name == "loose" and values[i] >= 1 / made.least_known:
                    continue  # as loose as the prior: no looser, though the objective would gain
                here = (np.arange(values.size) == i).reshape(values.shape)
                moved = [
                    top._replace(**{name: values * np.where(here, factor, 1.0)})
                    for factor in (1.001, 1 / 1.001)
                ]
                assert abs(objective(moved[0]) - objective(moved[1])) / 0.002 < 2e-2, (name, i)
        for t in range(options.components - 1):  # whose mean over the clicks stays
            step = 0.001 * ((np.arange(options.components) == t) - made.clickers[t])
            assert (
                abs(
                    objective(top._replace(ease=top.ease * np.exp(step)))
                    - objective(top._replace(ease=top.ease * np.exp(-step)))
                )
                / 0.002
                < 2e-2
            )


def test_a_pass_pulls_each_weight_by_its_chance_where_the_user_still_chooses() -> None:
    made = problem([Session("q", ("a", "b", "c"), (2,))], Options())
    eye, out = np.ones(made.eye.starts[-1]), np.ones(made.out.starts[-1])
    now = made.fresh()._replace(
        theta=np.array(THETA), rho=np.array(RHO), eye=eye, out=out, loose=np.full(3, EXACT)
    )
    with ThreadPoolExecutor(1) as pool:
        found = made.passes.expect(now, pool)
    first, second = 1 + 1.0, 1 + 0.7  # the sum of weights at the start, and with b gone
    leave = 0.4 / second  # unsatisfied and out
    still = leave / (0.6 + leave)
    assert found.log_likelihood == pytest.approx(np.log(0.3 / first) + np.log(0.6 + leave))
    np.testing.assert_allclose(
        found.pulled[:, 0],
        [0.5 / first + still * 0.5 / second, 0.3 / first, 0.2 / first + still * 0.2 / second],
    )
    np.testing.assert_allclose(found.satisfied, [0, 1 - still, 0])
    np.testing.assert_allclose(found.out_chosen[0, :2], [0, still])


# ---- recovery


def test_attractiveness_transitions_and_satisfaction_are_recovered_where_counting_is_biased() -> (
    None
):
    log = drawn(PULL, PLEASE, WHERE, WHEN, 60_000, 1)
    model = LuceClick(
        **{**PLAIN, "satisfaction_strength": 1.0}, tolerance=1e-8, max_iterations=2000
    ).fit(log)
    scale = (
        model.theta_.mean() / PULL.mean()
    )  # weights are known up to a factor: the scale of gamma_ takes it
    np.testing.assert_allclose(model.theta_ / scale, PULL, rtol=0.08)
    assert np.abs(model.rho_ - PLEASE).max() < 0.08
    free = np.arange(1, 5)[:, None] != np.arange(1, 5)
    shares = [
        (table[1:] * free / (table[1:] * free).sum(axis=1, keepdims=True))
        for table in (model.gamma_[0], WHERE[0])
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.03
    counted = MultiClick(reading="normalised", pooling="global").fit(log)
    assert (
        np.abs(counted.gamma_[1:] - shares[1]).max() > 0.06
    )  # an attractive ad that is gone makes the others look nearer
    satisfied = np.array(
        counted.relevance({"query": ["q"] * 6, "ad": [f"ad{i}" for i in range(6)]})["satisfaction"]
    )
    assert (satisfied - PLEASE).min() > 0.15  # every stop counts as satisfaction


def test_position_bias_does_not_enter_attractiveness_but_does_enter_click_rates() -> None:
    # Two ads that attract alike, one nearly always on top: counting finds it more than twice as attractive.
    rng, count = np.random.default_rng(2), 40_000
    top = rng.random(count) < 0.9
    theta, rho = np.full(2 * count, 0.6), np.zeros(2 * count)
    gamma = np.array([[[1.0, 0.25], [0.5, 0.5], [0.5, 0.5]]])
    click, clicks = pg.samples(
        Pages(
            LUCE,
            theta,
            rho,
            np.ones((1, 3)),
            gamma,
            np.arange(count + 1) * 2,
            np.zeros(count, np.int64),
        ),
        rng,
    )
    ads = [["a", "b"] if first else ["b", "a"] for first in top]
    lists = pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click))
    log = pa.table({"query": ["q"] * count, "ads": ads, "clicks": lists})
    model, counted = LuceClick(**PLAIN, tolerance=1e-8).fit(log), MultiClick().fit(log)
    assert model.theta_[0] / model.theta_[1] == pytest.approx(1, abs=0.1)
    rates = np.array(counted.relevance({"query": ["q", "q"], "ad": ["a", "b"]})["attractiveness"])
    assert rates[0] / rates[1] > 1.5


# ---- what is given to it


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
    assert table["attractiveness"][0].as_py() == pytest.approx(model.unseen_ / (1 + model.unseen_))
    each = satisfaction_of(np.full(len(model._satisfaction_odds), model.satisfaction_), model._satisfaction_odds)  # [kind]
    assert table["satisfaction"][0].as_py() == pytest.approx(float(model._click_mixing @ each))


def test_rare_queries_and_pairs_have_prior_means_of_their_own() -> None:
    # Frequent queries are given up half the time, rare ones hardly ever: a query never seen is taken for a rare one.
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
