"""LuceClick against its definition: predictions, E-step, M-step, recovery."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.clicks.choice import ChoicePages
from reclick.data.ragged import Float64
from reclick.errors import CannotAnswerError, SettingError
from reclick.fitting.rates import MAX_VARIANCE
from reclick.models import LuceClick, MultiClick
from reclick.models.luce.parameters import Hyperparameters, LuceParameters
from tests.support.click_families import to_clicks
from tests.support.enumeration import Clicks, Session, all_sequences, as_table, random_sessions
from tests.support.luce_world import (
    GAMMA,
    OMEGA,
    PLAIN,
    RHO,
    RICH,
    THETA,
    LuceProblem,
    coverage,
    draw,
    draw_queries,
    luce_problem,
    true_values,
)

LOG_OF_TWO = {"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [1, 2], [2]]}
EXAMPLE_THETA, EXAMPLE_RHO = (0.5, 0.3, 0.2), (0.4, 0.6, 0.2)
EXAMPLE_GAMMA = np.array([[0.7, 0.2, 0.1], [0.0, 0.7, 0.3], [0.4, 0.0, 0.6], [0.3, 0.7, 0.0]])
EXAMPLE_OMEGA = np.array([0.5, 0.4, 0.3, 0.2])
ALL_ADDITIONS = Hyperparameters(
    query_strength=2.0,
    components=3,
    mixing_strength=3.0,
    position_effect_strength=3.0,
    satisfaction_strength=5.0,
)
NO_ADDITIONS = Hyperparameters(
    query_strength=None, mixing_strength=None, position_effect_strength=None
)
COMMON = ALL_ADDITIONS._replace(
    satisfaction_strength=None, mixing_strength=None, query_strength=None
)


def worked_example(components: int = 1) -> LuceClick:
    """A model that was fitted, and then given the parameters of the worked example.

    A second component goes up the page and stops late.
    """
    log = {"query": ["q"] * 3, "ads": [["a", "b", "c"]] * 3, "clicks": [[1], [], [2, 1]]}
    model = LuceClick(**{**PLAIN, "components": components}).fit(log)
    model.theta_, model.rho_ = np.array(EXAMPLE_THETA), np.array(EXAMPLE_RHO)
    model.gamma_ = np.stack([EXAMPLE_GAMMA, EXAMPLE_GAMMA[:, ::-1] + 0.1])[:components]
    model.omega_ = np.stack([EXAMPLE_OMEGA, EXAMPLE_OMEGA / 3])[:components]
    model.mixing_ = np.array([0.7, 0.3]) if components == 2 else np.ones(1)
    fitted = model._state.parameters
    fitted = replace(fitted, mixing=replace(fitted.mixing, weights=model.mixing_[None]))
    model._state = model._state._replace(parameters=fitted)
    model.typical_outside_ = float(fitted.query_outside.weights()[0])
    return model


def page_of(sequences: list[Clicks]) -> pa.Table:
    return as_table([Session("q", ("a", "b", "c"), clicks) for clicks in sequences])


# ---- predictions


def test_the_worked_example_comes_out_to_the_printed_digits() -> None:
    asked: list[Clicks] = [(), (1,), (1, 2), (2, 1), (3, 1, 2)]
    printed = [0.537634, 0.285347, 0.062687, 0.006452, 0.000839]
    assert np.exp(worked_example().log_prob(page_of(asked))).round(6).tolist() == printed
    marginals = worked_example().click_prob(page_of([()]))[0].round(6).tolist()
    assert marginals == [0.388816, 0.147545, 0.054833]


def test_components_are_summed_in_every_prediction() -> None:
    model, sequences = worked_example(2), list(all_sequences(3))
    chance = dict(zip(sequences, np.exp(model.log_prob(page_of(sequences))).tolist(), strict=True))
    weights = [np.array(EXAMPLE_THETA) @ model.gamma_[t, 0] for t in (0, 1)]
    ends = [omega / (omega + w) for omega, w in zip(model.omega_[:, 0], weights, strict=True)]
    assert chance[()] == pytest.approx(0.7 * ends[0] + 0.3 * ends[1])
    assert sum(chance.values()) == pytest.approx(1)
    marginals = [sum(p for clicks, p in chance.items() if j in clicks) for j in (1, 2, 3)]
    np.testing.assert_allclose(model.click_prob(page_of([()]))[0], marginals, rtol=1e-10)
    sets = [sum(chance[order] for order in itertools.permutations(clicks)) for clicks in sequences]
    np.testing.assert_allclose(np.exp(model.log_set_prob(page_of(sequences))), sets, rtol=1e-10)
    begun = [
        sum(p for clicks, p in chance.items() if clicks[: len(start)] == start)
        for start in ((2,), (2, 1), (2, 3))
    ]
    following, expected = model.next_click_prob(page_of([(2,)]))[0], np.array([1.0, 0, 1.0])
    expected[[0, 2]] = begun[1] / begun[0], begun[2] / begun[0]
    np.testing.assert_allclose(following, expected, rtol=1e-10, atol=1e-15)
    listed = [each.probability for each in model.rank_sequences("q", ["a", "b", "c"], top=16)]
    assert listed == pytest.approx(sorted(chance.values(), reverse=True), rel=1e-10)


def test_a_session_is_ranked_among_the_sequences_of_its_length() -> None:
    model, sequences = worked_example(2), [clicks for clicks in all_sequences(3) if clicks]
    chance = dict(zip(sequences, np.exp(model.log_prob(page_of(sequences))).tolist(), strict=True))
    rows = np.arange(len(sequences))
    standing = model.pages(page_of(sequences)).ranks(to_clicks(sequences), rows)
    for i, clicks in enumerate(sequences):
        rivals = [p for other, p in chance.items() if len(other) == len(clicks)]
        assert standing.likelier[i] == sum(p > chance[clicks] * (1 + 1e-8) for p in rivals)


def test_samples_of_several_components_come_as_often_as_they_are_likely() -> None:
    model, many = worked_example(2), 20_000
    drawn = [tuple(clicks) for clicks in model.sample(page_of([()] * many), 1).to_pylist()]
    sequences = list(all_sequences(3))
    for clicks, logs in zip(sequences, model.log_prob(page_of(sequences)), strict=True):
        p = float(np.exp(logs))
        assert abs(drawn.count(clicks) / many - p) < 5 * np.sqrt(p * (1 - p) / many) + 1e-9


def test_a_page_of_many_ads_has_no_exact_marginals_and_says_so() -> None:
    long = {"query": ["q"], "ads": [[str(i) for i in range(13)]], "clicks": [[13, 1]]}
    with pytest.raises(CannotAnswerError, match="12"):
        worked_example().click_prob(long)
    assert np.isfinite(worked_example(2).log_prob(long)[0])


def test_the_first_click_is_by_attractiveness_position_effect_and_outside_option() -> None:
    model = LuceClick(**{**RICH, "components": 1}).fit(
        as_table(random_sessions(np.random.default_rng(1), 150))
    )
    fitted, layout, counts = model._state.parameters, model._state.layout, model._pairs.counts
    query, ads = counts.queries.to_pylist().index("r"), ["c", "a"]
    f = fitted.query_outside.weights()[query] / model.typical_outside_
    weights = []
    for position, ad in enumerate(ads):
        code = counts.ads.to_pylist().index(ad)
        row = int(np.flatnonzero((counts.pair_query == query) & (counts.pair_ad == code))[0])
        cell = layout.cells.keys.tolist().index((row << 16) | position)
        effect = fitted.appeal.level(2)[query * 4 + position] * fitted.appeal.level(3)[cell]
        weights.append(model.theta_[row] * effect * model.gamma_[0, 0, position])
    expected = np.array(weights) / (model.omega_[0, 0] * f + sum(weights))
    page = {"query": ["r"], "ads": [ads], "clicks": [[]]}
    np.testing.assert_allclose(model.next_click_prob(page)[0, :2], expected, rtol=1e-9)


# ---- the E-step


def expected_statistics(problem: LuceProblem, now: LuceParameters) -> dict[str, Float64]:
    """The same by enumeration: every component, and satisfied or not at every end."""
    layout, sessions = problem.data.layout, problem.sessions
    appeal, gamma = now.appeal.weights(), now.transition.weights()
    omega, f = now.outside.weights(), now.query_outside.weights()
    cells = {key: i for i, key in enumerate(layout.cells.keys.tolist())}
    out: dict[str, Float64] = {
        "log_likelihood": np.zeros(1),
        "appeal_observed": np.zeros(len(appeal)),
        "appeal_expected": np.zeros(len(appeal)),
        "transition_observed": np.zeros(gamma.shape),
        "transition_expected": np.zeros(gamma.shape),
        "outside_observed": np.zeros(omega.shape),
        "outside_expected": np.zeros(omega.shape),
        "query_outside_observed": np.zeros(len(f)),
        "query_outside_expected": np.zeros(len(f)),
        "satisfaction_successes": np.zeros(len(layout.pair_class)),
        "satisfaction_trials": np.zeros(len(layout.pair_class)),
        "mixing_members": np.zeros(now.mixing.weights.shape),
    }
    for s, weight in enumerate(sessions.weight):
        pairs = sessions.pair[sessions.page[s] : sessions.page[s + 1]].tolist()
        clicks = sessions.click[sessions.clicks[s] : sessions.clicks[s + 1]].tolist()
        q = int(layout.counts.pair_query[pairs[0]])
        cell = [cells[(p << 16) | j * layout.cells.has_positions] for j, p in enumerate(pairs)]
        stories: list[tuple[float, int, bool, list[Any]]] = []
        for t, satisfied in itertools.product(range(len(omega)), (False, True)):
            if satisfied and (not clicks or len(clicks) == len(pairs)):
                continue  # nothing more can follow in any case
            p, last, choices = now.mixing.weights[q, t], 0, []
            left = list(range(len(pairs)))
            for k, chosen in enumerate([*clicks, 0]):
                if not left:
                    break
                content = now.satisfaction.mean[pairs[last - 1]] if last else 0.0
                if not chosen and satisfied:
                    p *= content
                    break
                w = {j: appeal[cell[j]] * gamma[t, last, j] for j in left}
                end = omega[t, k] * f[q]
                total = end + sum(w.values())
                p *= (1 - content) * (w[chosen - 1] if chosen else end) / total
                choices.append((k, last, chosen, {j: x / total for j, x in w.items()}, end / total))
                if chosen:
                    left.remove(chosen - 1)
                    last = chosen
            stories.append((p, t, satisfied, choices))
        mass = sum(p for p, *_ in stories)
        out["log_likelihood"] += weight * np.log(mass)
        for p, t, satisfied, choices in stories:
            share = weight * p / mass
            out["mixing_members"][q, t] += share
            for clicked in clicks[: len(pairs) - 1]:  # that left another ad to click
                out["satisfaction_trials"][pairs[clicked - 1]] += share
            if satisfied:
                out["satisfaction_successes"][pairs[clicks[-1] - 1]] += share
            for k, last, chosen, probability, end in choices:
                for j, x in probability.items():
                    out["appeal_expected"][cell[j]] += share * x
                    out["transition_expected"][t, last, j] += share * x
                out["outside_expected"][t, k] += share * end
                out["query_outside_expected"][q] += share * end
                if chosen:
                    out["appeal_observed"][cell[chosen - 1]] += share
                    out["transition_observed"][t, last, chosen - 1] += share
                else:
                    out["outside_observed"][t, k] += share
                    out["query_outside_observed"][q] += share
    return out


@pytest.mark.parametrize("now", [NO_ADDITIONS, ALL_ADDITIONS, COMMON])
def test_the_e_step_is_the_expectation_over_all_that_is_hidden(now: Hyperparameters) -> None:
    rows = random_sessions(np.random.default_rng(1), 60, weights=True)
    problem = luce_problem(as_table(rows, weights=True), now)
    at = problem.draw_parameters(2)
    found, expected = problem.statistics(at), expected_statistics(problem, at)
    assert found.log_likelihood == pytest.approx(expected.pop("log_likelihood")[0], rel=1e-12)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-10, err_msg=name)
    clicks = sum(len(row.path) * row.weight for row in rows)
    for name in ("appeal", "transition"):
        assert found[f"{name}_observed"].sum() == pytest.approx(clicks, rel=1e-12)


def test_blocks_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 200, queries="qrstuvw"))
    problem = luce_problem(log, ALL_ADDITIONS)
    at = problem.draw_parameters(4)
    monkeypatch.setattr("reclick.data.grouped_sessions.BLOCK_IMPRESSIONS", 30)
    cut = luce_problem(log, ALL_ADDITIONS)
    assert len(cut.data.blocks) > 3
    one, many = problem.statistics(at), cut.statistics(at)
    assert many.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-12)
    for table, values in at:
        for name in (f"{table}_{each}" for each in values.statistics):
            np.testing.assert_allclose(many[name], one[name], rtol=1e-9)


# ---- the M-step


@pytest.mark.parametrize("now", [NO_ADDITIONS, ALL_ADDITIONS, COMMON])
@pytest.mark.parametrize("seed", range(4))
def test_a_step_from_anywhere_never_lowers_the_objective(seed: int, now: Hyperparameters) -> None:
    log = as_table(random_sessions(np.random.default_rng(seed), 80))
    problem = luce_problem(log, now)
    at = problem.draw_parameters(seed)
    if now.satisfaction_strength is not None:
        variance = np.random.default_rng(seed).uniform(0.0, MAX_VARIANCE, len(at.satisfaction.mean))
        at = replace(at, satisfaction=replace(at.satisfaction, variance=variance))
    value = problem.value(at)
    for _ in range(15):
        at = at.m_step(problem.statistics(at))
        better = problem.value(at)
        assert better > value - 1e-9 * 80
        value = better


def test_the_objective_is_the_expectation_over_satisfaction() -> None:
    """Of each session, over a normal logit of ρ: to second order, so off by the square of v."""
    problem = luce_problem(LOG_OF_TWO, NO_ADDITIONS)
    at = problem.draw_parameters(1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)

    def gap(variance: float) -> float:
        rho = replace(at.satisfaction, variance=np.full(2, variance))
        spread, centre = replace(at, satisfaction=rho), rho.centre()
        exact = 0.0
        for node, share in zip(nodes, weights / weights.sum(), strict=True):
            logit = np.log(centre / (1 - centre)) + node * np.sqrt(variance)
            moved = at.satisfaction.with_values(1 / (1 + np.exp(-logit)))
            moved_at = replace(at, satisfaction=moved)
            exact += share * problem.statistics(moved_at).log_likelihood
        return abs(problem.statistics(spread).log_likelihood - exact)

    assert gap(0.0) < 1e-9
    assert gap(0.2) < 2e-3
    assert gap(0.1) < gap(0.2) / 3


def test_the_mean_of_satisfaction_is_that_of_its_distribution() -> None:
    problem = luce_problem(LOG_OF_TWO, NO_ADDITIONS)
    rho = replace(problem.draw_parameters(2).satisfaction, variance=np.array([0.3, 1.5]))
    c, v = rho.centre(), rho.variance
    np.testing.assert_allclose(c + v / 2 * c * (1 - c) * (1 - 2 * c), rho.mean, rtol=1e-12)


def test_fatigue_is_not_mistaken_for_satisfaction() -> None:
    """With a point for every ρ the mean error here is +.04, however long the log is."""
    rng = np.random.default_rng(0)
    theta, rho = rng.gamma(2.0, 0.5, (150, 6)), rng.beta(3.0, 5.0, (150, 6))
    log = draw_queries(theta, rho, GAMMA, OMEGA, 30_000, rng)
    model = LuceClick(
        tune="off", query_strength=None, satisfaction_prior=0.375, satisfaction_strength=8.0
    )
    table = model.fit(log).relevance()
    error = table["satisfaction"].to_numpy() - true_values(table, rho)
    assert abs(error.mean()) < 0.012
    assert 0.86 < coverage(table, "satisfaction", true_values(table, rho)) < 0.93


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        RICH,
        {**RICH, "satisfaction_strength": None, "mixing_strength": None},
        {**PLAIN, "attractiveness_strength": 0},
        {"tune": "off"},
    ],
)
def test_the_objective_rises_and_convergence_is_reported(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 150))
    model = LuceClick(**{"max_iterations": 3000, "tolerance": 1e-8, **settings}).fit(log)
    assert model.converged_
    assert model.iterations_ == len(model.objective_) < 3000
    assert (np.diff(model.objective_) > -1e-9 * 150).all()
    with caplog.at_level(logging.WARNING):
        short = LuceClick(**{"max_iterations": 3, "tolerance": 1e-8, **settings}).fit(log)
    assert not short.converged_
    assert "not converged" in short.message_
    assert short.message_ in caplog.text


@pytest.mark.parametrize("now", [NO_ADDITIONS, ALL_ADDITIONS._replace(components=2)])
def test_at_the_end_of_a_fit_the_objective_is_flat(now: Hyperparameters) -> None:
    problem = luce_problem(as_table(random_sessions(np.random.default_rng(5), 120)), now)
    loop: dict[str, Any] = {"max_iterations": 20_000, "tolerance": 1e-13, "quiet": True}
    top = problem.data.maximise(problem.start(), **loop).parameters
    for name in ("appeal", "transition", "outside", "query_outside"):
        table = getattr(top, name)
        for i in range(0, len(table.factors), max(1, len(table.factors) // 7)):
            slopes = []
            for factor in (1.001, 1 / 1.001):
                moved = table.factors * np.where(np.arange(len(table.factors)) == i, factor, 1.0)
                changed: dict[str, Any] = {name: table.with_factors(moved)}
                slopes.append(problem.value(replace(top, **changed)))
            assert abs(slopes[0] - slopes[1]) / 0.002 < 2e-2, (name, i)
    rho = top.satisfaction
    for i in range(0, len(rho.mean), 3):
        step = np.where(np.arange(len(rho.mean)) == i, 1e-3, 0.0)
        high, low = (
            problem.value(replace(top, satisfaction=rho.with_values(rho.mean + sign * step)))
            for sign in (1, -1)
        )
        assert abs(high - low) / 0.002 < 5e-2


# ---- recovery


def test_weights_and_satisfaction_are_recovered_where_counting_is_biased() -> None:
    log = draw(THETA, RHO, GAMMA, OMEGA, 60_000, 1)
    settings = {**PLAIN, "satisfaction_strength": 1.0}
    model = LuceClick(**settings, tolerance=1e-8, max_iterations=2000).fit(log)
    np.testing.assert_allclose(model.theta_, THETA, rtol=0.12)
    assert np.abs(model.rho_ - RHO).max() < 0.08
    np.testing.assert_allclose(model.omega_[0, :3] / OMEGA[0, :3], 1.0, atol=0.25)
    free = np.arange(1, 5)[:, None] != np.arange(1, 5)
    shares = [
        table[1:] * free / (table[1:] * free).sum(axis=1, keepdims=True)
        for table in (model.gamma_[0], GAMMA[0])
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.03
    counted = MultiClick(variant="normalised", pooling="global").fit(log)
    assert np.abs(counted.gamma_[1:] - shares[1]).max() > 0.06
    satisfied = counted.relevance({"query": ["q0"] * 6, "ad": [f"ad{i}" for i in range(6)]})
    assert (satisfied["satisfaction"].to_numpy() - RHO).min() > 0.15  # every stop counts as it


def test_components_are_recovered() -> None:
    two = np.concatenate([GAMMA, GAMMA[:, :, ::-1] ** 2])
    ends = np.concatenate([OMEGA * 3, OMEGA / 6])
    log = draw(THETA, RHO, two, ends, 40_000, 3, np.array([0.4, 0.6]))
    settings = {**PLAIN, "components": 2, "component_strength": 1.0, "mixing_strength": None}
    model = LuceClick(**settings).fit(log)
    order = np.argsort(model.omega_[:, 0] / model.gamma_[:, 0].sum(axis=1))[::-1]  # soon gone
    assert model.mixing_[order[0]] == pytest.approx(0.4, abs=0.08)
    soon, late = model.gamma_[order]
    assert soon[0, 0] > soon[0, 3]
    assert late[0, 3] > late[0, 0]
    np.testing.assert_allclose(late[0] / late[0, 3], two[1, 0] / two[1, 0, 3], atol=0.12)


def test_position_effects_and_outside_options_of_queries_are_recovered() -> None:
    rng, queries = np.random.default_rng(4), 12
    theta, rho = rng.gamma(3.0, 0.3, (queries, 6)), np.full((queries, 6), 0.3)
    f = np.where(np.arange(queries) % 3, 0.7, 2.0)
    slope = np.where(np.arange(queries) % 2, 3.0, 1 / 3)[:, None, None]
    effect = np.broadcast_to(slope ** np.array([-0.5, 0.0, 0.5, 0.5]), (queries, 6, 4))
    log = draw_queries(theta / f[:, None], rho, GAMMA, OMEGA, 20_000, rng, effect=effect)
    settings = {**PLAIN, "position_effect_strength": 10.0, "query_strength": 2.0}
    model = LuceClick(**settings, attractiveness_prior="overall").fit(log)
    order = [int(query.removeprefix("q")) for query in model._pairs.counts.queries.to_pylist()]
    found = model._state.parameters
    of_query = found.appeal.level(2).reshape(-1, 4)
    steep = np.log(of_query[:, 2] / of_query[:, 0])
    assert np.corrcoef(steep, np.log(effect[order, 0, 2] / effect[order, 0, 0]))[0, 1] > 0.98
    assert np.corrcoef(np.log(found.query_outside.weights()), np.log(f[order]))[0, 1] > 0.7
    exact = true_values(model.relevance(), theta)
    assert np.corrcoef(np.log(model.theta_), np.log(exact))[0, 1] > 0.9


def test_position_bias_does_not_enter_attractiveness_but_does_enter_click_rates() -> None:
    # Two ads are equally attractive, one is nearly always on top.
    rng, count = np.random.default_rng(2), 40_000
    top = rng.random(count) < 0.9
    gamma = np.array([[[1.0, 0.25], [0.5, 0.5], [0.5, 0.5]]])
    starts, table = np.arange(count + 1) * 2, np.zeros(count, np.int64)
    theta, rho = np.full(2 * count, 0.6), np.zeros(2 * count)
    pages = ChoicePages("luce", theta, rho, np.ones((1, 3)), gamma, starts, table)
    click, clicks = pages.sample(rng)
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


def test_rare_queries_have_an_outside_option_of_their_own_and_a_new_query_is_rare() -> None:
    often = [Session(f"often{i % 3}", ("a", "b"), (1,) if i % 2 else ()) for i in range(300)]
    rare = [Session(f"rare{i}", ("c", "d"), (1,) if i % 9 else ()) for i in range(100)]
    settings = {**PLAIN, "query_strength": 2.0, "attractiveness_prior": "overall"}
    model = LuceClick(**settings, tolerance=1e-7).fit(as_table([*often, *rare]))
    plenty = model.click_prob({"query": ["often0"], "ads": [["a", "b"]]})[0, 0]
    assert model.click_prob({"query": ["never"], "ads": [["e", "f"]]})[0, 0] > plenty + 0.15


def test_a_number_as_prior_is_the_attractiveness_of_an_ad_never_seen() -> None:
    log = as_table(random_sessions(np.random.default_rng(10), 100))
    model = LuceClick(**PLAIN, attractiveness_prior=0.2).fit(log)
    unseen = model.relevance({"query": ["never"], "ad": ["x"]})["attractiveness"][0].as_py()
    assert unseen == pytest.approx(0.2)
    other = LuceClick(**PLAIN, attractiveness_prior="overall").fit(log)
    np.testing.assert_allclose(model.log_prob(log), other.log_prob(log), rtol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"components": 0},
        {"components": 1.5},
        {"attractiveness_strength": None},
        {"query_strength": "much"},
        {"mixing_strength": -1},
        {"position_effect_strength": 1e300},
        {"tune": "some"},
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        LuceClick(**settings)


def test_a_fit_describes_itself() -> None:
    model = LuceClick(**PLAIN).fit(as_table(random_sessions(np.random.default_rng(1), 50)))
    assert set(model.hyperparameters_) == set(Hyperparameters._fields)
    assert model.hyperparameters_["satisfaction_prior"] == 0.4
    assert model.prior_report_ in repr(model)
