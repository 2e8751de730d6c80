"""Outcomes of clicks as evidence of satisfaction, in the five models that have satisfaction."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.data.outcomes import N_OUTCOMES
from reclick.data.ragged import Float64
from reclick.engines import LocalEngine, as_grouped
from reclick.engines.duckdb import DuckDBEngine
from reclick.fitting.outcomes import outcome_likelihoods
from reclick.models import CCM, DBN, SDBN, ClickModel, LuceClick, MultiClick
from reclick.models.ccm import CCMParameters
from reclick.models.ccm import e_step as ccm_e_step
from reclick.models.dbn import DBNParameters
from reclick.models.dbn import e_step as dbn_e_step
from reclick.models.kernels.cascade import as_cascade_block
from reclick.models.luce.e_step import e_step as luce_e_step
from tests.support.luce_world import GAMMA, OMEGA, RHO, THETA, draw
from tests.support.outcome_worlds import World

RATES = np.array([[0.1, 0.4], [0.5, 0.05]])
DWELL = {None: None, "quick": 2.0, "stayed": 90.0}
SESSIONS = [  # clicks, what followed the last one, whether it converted, weight
    ((), None, None, 2.0),
    ((1,), "quick", None, 3.0),
    ((1,), "stayed", 0.0, 1.0),
    ((2,), None, 1.0, 2.0),
    ((1, 3), "quick", 0.0, 2.0),
    ((1, 2), None, None, 1.0),
    ((3,), "stayed", None, 1.0),
]


def log_of(sessions: list[Any]) -> dict[str, Any]:
    """Sessions of one page; the outcomes of earlier clicks are unknown."""
    return {
        "query": ["q"] * len(sessions),
        "ads": [["a", "b", "c"]] * len(sessions),
        "clicks": [list(clicks) for clicks, *_ in sessions],
        "dwell_seconds": [
            [*[None] * (len(clicks) - 1), DWELL[dwell]] if clicks else []
            for clicks, dwell, _, _ in sessions
        ],
        "conversions": [
            [*[None] * (len(clicks) - 1), conversion] if clicks else []
            for clicks, _, conversion, _ in sessions
        ],
        "weight": [weight for *_, weight in sessions],
    }


def likelihood_of(dwell: str | None, conversion: float | None, satisfied: bool) -> float:
    converts, quick = RATES[:, int(satisfied)]
    value = 1.0 if conversion is None else converts if conversion else 1 - converts
    if dwell is not None and not conversion:
        value *= quick if dwell == "quick" else 1 - quick
    return float(value)


# by hand


def test_expectations_of_dbn_are_worked_out_by_hand() -> None:
    # Two ads, θ = (.5, .5), ρ = .4, λ = .8. Clicked 1, then came back at once: B_2 = .5, so
    # S = .4 · .05 + .6 · .5 · (.2 + .8 · .5) = .02 + .18. Satisfied with .02 / .2, and 2 was
    # examined with .6 · .5 · .8 · .5 / .2 = .6.
    log = {"query": ["q"], "ads": [["a", "b"]], "clicks": [[1]], "dwell_seconds": [[3.0]]}
    parameters = DBNParameters(np.full(2, 0.5), np.full(2, 0.4), 0.8, RATES)
    found = dbn_e_step(parameters, as_cascade_block(as_grouped(log).whole))
    np.testing.assert_allclose(found.pairs["satisfied"], [0.1, 0])
    np.testing.assert_allclose(found.pairs["examinations"], [1, 0.6])
    np.testing.assert_allclose(found.totals["outcomes"][:, 1], [0.9, 0.1])
    np.testing.assert_allclose(found.log_likelihood, np.log(0.5 * 0.2))
    # Without the outcome S = .4 + .6 · .6, and the user was satisfied with .4 / .76.
    unknown = as_grouped(log).without_outcomes().whole
    before = dbn_e_step(parameters, as_cascade_block(unknown))
    np.testing.assert_allclose(before.pairs["satisfied"], [0.4 / 0.76, 0])


# by brute force, over every value of the latent variables of three positions

Worlds = dict[tuple[tuple[int, ...], int | None], float]  # (clicks, last satisfied) → probability


def scan_worlds(theta: Float64, satisfies: Float64, going_on: Callable[[int], Float64]) -> Worlds:
    """P(clicks, whether the last one satisfied) of users who scan down the page.

    `going_on(state)` are the probabilities [position] of going on after no click (0), a click that
    did not satisfy (1) and one that did (2).
    """
    worlds: Worlds = {}
    for attracted, content, on in itertools.product(itertools.product((0, 1), repeat=3), repeat=3):
        clicks: tuple[int, ...] = ()
        probability, last, examined = 1.0, None, True
        for i in range(3):
            probability *= theta[i] if attracted[i] else 1 - theta[i]
            probability *= satisfies[i] if content[i] else 1 - satisfies[i]
            state = 1 + content[i] if attracted[i] else 0
            goes = going_on(state)[i]
            probability *= goes if on[i] else 1 - goes
            if examined and attracted[i]:
                clicks, last = (*clicks, i + 1), content[i]
            examined = examined and bool(on[i])
        worlds[clicks, last] = worlds.get((clicks, last), 0.0) + probability
    return worlds


def expected_from(worlds: Worlds, sessions: list[Any]) -> tuple[float, Float64, Float64]:
    """The log-likelihood, satisfied last clicks by position [3], and outcomes [2, outcome]."""
    total, satisfied, outcomes = 0.0, np.zeros(3), np.zeros((2, N_OUTCOMES))
    block = as_grouped(log_of(sessions)).whole
    assert block.outcome is not None
    for session, outcome in zip(sessions, block.outcome, strict=True):
        clicks, dwell, conversion, weight = session
        if not clicks:
            total += weight * np.log(worlds[(), None])
            continue
        both = [
            worlds.get((clicks, s), 0.0) * likelihood_of(dwell, conversion, bool(s)) for s in (0, 1)
        ]
        total += weight * np.log(sum(both))
        satisfied[clicks[-1] - 1] += weight * both[1] / sum(both)
        outcomes[:, outcome] += weight * np.array(both) / sum(both)
    return total, satisfied, outcomes


def test_expectations_of_dbn_are_those_of_brute_force() -> None:
    theta, rho, on = np.array([0.5, 0.3, 0.6]), np.array([0.2, 0.7, 0.5]), 0.8
    rates = [np.full(3, on), np.full(3, on), np.zeros(3)]
    total, satisfied, outcomes = expected_from(scan_worlds(theta, rho, rates.__getitem__), SESSIONS)
    block = as_cascade_block(as_grouped(log_of(SESSIONS)).whole)
    found = dbn_e_step(DBNParameters(theta, rho, on, RATES), block)
    np.testing.assert_allclose(found.log_likelihood, total)
    np.testing.assert_allclose(found.pairs["satisfied"], satisfied)
    np.testing.assert_allclose(found.totals["outcomes"], outcomes)


def test_expectations_of_ccm_are_those_of_brute_force() -> None:
    theta, alpha = np.array([0.5, 0.3, 0.6]), np.array([0.8, 0.7, 0.3])
    rates = [np.full(3, each) for each in alpha]
    worlds = scan_worlds(theta, theta, rates.__getitem__)
    total, relevant, outcomes = expected_from(worlds, SESSIONS)
    block = as_cascade_block(as_grouped(log_of(SESSIONS)).whole)
    found = ccm_e_step(CCMParameters(theta, alpha, RATES), block)
    np.testing.assert_allclose(found.log_likelihood, total)
    np.testing.assert_allclose(found.totals["outcomes"], outcomes)
    # Relevant clicks before the last: α3 θ / (α2 (1 − θ) + α3 θ), on position 1 three times.
    earlier = 3 * 0.3 * 0.5 / (0.7 * 0.5 + 0.3 * 0.5)
    np.testing.assert_allclose(found.pairs["relevant"], relevant + np.array([earlier, 0, 0]))


def test_expectations_of_luceclick_are_those_of_brute_force() -> None:
    settings: dict[str, Any] = {"tune": "off", "components": 1, "position_effect_strength": None}
    sessions = [*SESSIONS, ((2, 1), "quick", None, 2.0), ((3, 1, 2), "quick", 1.0, 1.0)]
    model = LuceClick(**settings, max_iterations=3).fit(log_of(sessions))
    state = model._state
    rho = np.array([0.2, 0.7, 0.5])
    fitted = replace(
        state.parameters,
        satisfaction=replace(state.parameters.satisfaction, mean=rho, variance=np.zeros(3)),
        outcomes=replace(state.parameters.outcomes, rates=RATES),
    )
    appeal, gamma = fitted.appeal.weights(), fitted.transition.weights()[0]
    outside = fitted.outside.weights()[0] * fitted.query_outside.weights()[0]
    worlds: Worlds = {}
    for length in range(4):
        for clicks in itertools.permutations((1, 2, 3), length):
            probability, last = 1.0, 0
            for k in range(length + 1):
                left = [j for j in (1, 2, 3) if j not in clicks[:k]]
                weights = {j: appeal[j - 1] * gamma[last, j - 1] for j in left}
                whole = sum(weights.values()) + outside[k] if left else 1.0
                if k < length:
                    probability *= weights[clicks[k]] / whole
                    probability *= 1 - rho[last - 1] if last else 1.0
                    last = clicks[k]
            satisfies = rho[last - 1] if last else 0.0
            if length == 3:  # nothing is left to click: whether it satisfied makes no difference
                worlds[clicks, 0] = worlds[clicks, 1] = probability
                continue
            ended = probability * (1 - satisfies) * outside[length] / whole
            worlds[clicks, 0 if clicks else None] = ended
            worlds[clicks, 1] = probability * satisfies
    known = [each for each in sessions if len(each[0]) < 3]
    total, satisfied, outcomes = expected_from(worlds, known)
    total += np.log(worlds[(3, 1, 2), 0])
    (block,) = _luce_blocks(model, log_of(sessions))
    found = luce_e_step(fitted, block)
    np.testing.assert_allclose(found.log_likelihood, total)
    np.testing.assert_allclose(found["satisfaction_successes"], satisfied)
    np.testing.assert_allclose(found["outcomes_clicks"], outcomes)


def _luce_blocks(model: LuceClick, log: dict[str, Any]) -> list[Any]:
    from reclick.models.luce.fit import TrainingData

    return TrainingData.of(as_grouped(log), model._state.layout).blocks


# recovery

FITTERS: dict[str, Callable[..., ClickModel]] = {
    "multiclick": MultiClick,
    "dbn": lambda **settings: DBN(continuation=0.8, **settings),
    "sdbn": SDBN,
    "luceclick": lambda **settings: LuceClick(tune="off", components=1, **settings),
}


def satisfaction_errors(name: str, world: World, log: dict[str, Any]) -> list[float]:
    """Root mean squared errors of ρ without and with the outcomes."""
    errors = []
    for weight in (0.0, 1.0):
        found = FITTERS[name](outcome_weight=weight).fit(log).relevance(world.pairs())
        difference = np.asarray(found["satisfaction"]) - world.rho.ravel()
        errors.append(float(np.sqrt(np.mean(difference**2))))
    return errors


@pytest.mark.parametrize(
    ("name", "share"), [("multiclick", 0.35), ("sdbn", 0.25), ("dbn", 0.75), ("luceclick", 0.8)]
)
def test_satisfaction_is_recovered_where_users_leave_unsatisfied(name: str, share: float) -> None:
    # No model knows of these users, and without outcomes all take them as satisfied.
    world = World(abandon=0.4)
    without, with_outcomes = satisfaction_errors(name, world, world.draw(name, 5_000))
    assert with_outcomes < share * without
    assert with_outcomes < 0.2


@pytest.mark.parametrize("name", ["multiclick", "sdbn"])
def test_satisfaction_is_recovered_by_counting(name: str) -> None:
    # Without outcomes every last click counts as satisfied, and ρ is far too high.
    world = World()
    without, with_outcomes = satisfaction_errors(name, world, world.draw(name, 5_000))
    assert with_outcomes < 0.4 * without
    assert with_outcomes < 0.09


@pytest.mark.parametrize("name", ["dbn", "luceclick"])
def test_outcomes_do_no_harm_where_the_model_is_right(name: str) -> None:
    world = World()
    without, with_outcomes = satisfaction_errors(name, world, world.draw(name, 5_000))
    assert with_outcomes < without
    assert with_outcomes < 0.13


def test_continuations_of_ccm_are_recovered() -> None:
    # α2 and α3: continuation after an irrelevant and after a relevant click
    errors = np.zeros(2)
    for seed in range(4):
        log = World(seed=seed).draw("ccm", 1_500)
        models = [CCM(outcome_weight=weight).fit(log) for weight in (0.0, 1.0)]
        errors += [float(np.abs(model.alpha_[1:] - [0.7, 0.15]).sum()) for model in models]
    assert errors[1] < 0.7 * errors[0]


def test_the_rates_of_outcomes_are_recovered() -> None:
    world = World()
    model = DBN(continuation=0.8).fit(world.draw("dbn", 6_000))
    assert model.outcome_rates_ is not None
    np.testing.assert_allclose(model.outcome_rates_, [[0.02, 0.3], [0.5, 0.05]], atol=0.03)


def test_fatigue_is_no_longer_mistaken_for_satisfaction() -> None:
    # Users of MultiClick tire with .35 after each click; without outcomes η also counts those who
    # were satisfied.
    world = World()
    log = world.draw("multiclick", 5_000)
    without, known = (MultiClick(outcome_weight=weight).fit(log) for weight in (0.0, 1.0))
    assert without.eta_[1] > 0.55
    np.testing.assert_allclose(known.eta_[:2], 0.35, atol=0.03)
    mean = known.relevance()["satisfaction"].to_numpy()
    np.testing.assert_allclose(mean.mean(), world.rho.mean(), atol=0.03)


# what must not change

ALL_MODELS = [
    MultiClick,
    lambda **settings: MultiClick(pooling="global", **settings),
    lambda **settings: DBN(continuation=0.8, **settings),
    SDBN,
    CCM,
    FITTERS["luceclick"],
]
every_model = pytest.mark.parametrize("make", ALL_MODELS)


def answers(model: ClickModel, log: dict[str, Any]) -> list[Float64]:
    table = model.relevance()
    columns = [name for name in table.column_names if name not in ("query", "ad")]
    return [
        *(table[name].to_numpy(zero_copy_only=False) for name in columns),
        model.click_prob(log),
        model.log_prob(log),
    ]


def without_outcomes(log: dict[str, Any]) -> dict[str, Any]:
    return {name: log[name] for name in ("query", "ads", "clicks")}


@every_model
def test_unknown_outcomes_change_no_bit(make: Callable[..., ClickModel]) -> None:
    log = World(n_queries=3).draw("luceclick", 400)
    plain = without_outcomes(log)
    unknown = [[None] * len(clicks) for clicks in log["clicks"]]
    nothing_known = {**plain, "dwell_seconds": unknown, "conversions": [None] * len(unknown)}
    expected = answers(make().fit(plain), plain)
    for one, two in zip(answers(make().fit(nothing_known), plain), expected, strict=True):
        np.testing.assert_array_equal(one, two)
    # The sessions of the log are in more groups here, so sums are rounded differently.
    for one, two in zip(answers(make(outcome_weight=0).fit(log), plain), expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-7)


@every_model
def test_predictions_do_not_use_outcomes(make: Callable[..., ClickModel]) -> None:
    log = World(n_queries=3).draw("luceclick", 300)
    model = make().fit(log)
    np.testing.assert_array_equal(model.log_prob(log), model.log_prob(without_outcomes(log)))
    np.testing.assert_array_equal(model.click_prob(log), model.click_prob(without_outcomes(log)))


@every_model
def test_engines_give_the_same_fit(make: Callable[..., ClickModel]) -> None:
    log = World(n_queries=3).draw("luceclick", 300)
    local, duckdb = (make().fit(log, engine=each) for each in (LocalEngine(), DuckDBEngine()))
    for one, two in zip(answers(local, log), answers(duckdb, log), strict=True):
        np.testing.assert_array_equal(one, two)


@every_model
def test_a_saved_model_has_learnt_from_outcomes(
    make: Callable[..., ClickModel], tmp_path: Path
) -> None:
    log = World(n_queries=3).draw("luceclick", 300)
    model = make().fit(log)
    model.save(tmp_path / "model")
    loaded = rc.load(tmp_path / "model")
    for one, two in zip(answers(loaded, log), answers(model, log), strict=True):
        np.testing.assert_array_equal(one, two)
    assert loaded.training_counts == model.training_counts
    assert loaded.training_counts.outcomes is not None


@every_model
def test_a_conversion_and_then_another_click_is_no_satisfaction(
    make: Callable[..., ClickModel],
) -> None:
    # The user went on after the conversion, so it counts as an unsatisfied one, and conversions
    # say less of satisfaction.
    clicks = [[1, 2], [1], [2], [1, 2], [1], [2]] * 10
    log = {"query": ["q"] * 60, "ads": [["a", "b", "c"]] * 60, "clicks": clicks}
    last = [[*[0.0] * (len(each) - 1), 1.0] for each in clicks]
    both = [[1.0] * len(each) for each in clicks]
    model, contradicted = (make().fit({**log, "conversions": each}) for each in (last, both))
    one, two = (each.relevance()["satisfaction"].to_pylist() for each in (model, contradicted))
    if one[0] is not None:
        assert two[0] <= one[0] + 1e-9
    for each in (model, contradicted):
        assert np.isfinite(each.log_prob(without_outcomes(log))).all()


@pytest.mark.parametrize("name", ["multiclick", "luceclick"])
def test_an_update_learns_from_the_outcomes_of_both_days(name: str) -> None:
    world = World(abandon=0.5)
    log = world.draw(name, 5_000)
    days = [
        {key: values[half] for key, values in log.items()}
        for half in (slice(2_500), slice(2_500, None))
    ]
    errors = []
    for weight in (0.0, 1.0):
        updated = FITTERS[name](outcome_weight=weight).fit(days[0])
        updated.update(days[1])
        found = updated.relevance(world.pairs())["satisfaction"].to_numpy()
        errors.append(float(np.sqrt(np.mean((found - world.rho.ravel()) ** 2))))
    assert errors[1] < 0.85 * errors[0]


def test_a_backward_click_leaves_the_outcome_of_the_lowest_click_unknown() -> None:
    # Cascade models take the lowest click as the last; what followed the click on 1 says nothing
    # of it.
    log = {"query": ["q"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[2, 1], [1, 2]]}
    block = as_grouped({**log, "dwell_seconds": [[60.0, 2.0], [60.0, 2.0]]}).whole
    assert block.outcome is not None
    assert block.lowest_click_outcome is not None
    assert block.outcome.tolist() == [1, 1]
    assert block.lowest_click_outcome.tolist() == [0, 1]


def test_likelihoods_of_the_oracle_are_those_of_the_models() -> None:
    encoded = {("quick", None): 1, ("stayed", None): 2, (None, 0.0): 3, ("quick", 0.0): 4}
    encoded |= {("stayed", 0.0): 5, (None, 1.0): 6, (None, None): 0}
    for (dwell, conversion), outcome in encoded.items():
        expected = [likelihood_of(dwell, conversion, satisfied) for satisfied in (False, True)]
        np.testing.assert_allclose(outcome_likelihoods(RATES)[outcome], expected)


@pytest.mark.parametrize("seed", [8, 9, 11, 13, 17])
def test_conversions_that_say_nothing_of_satisfaction_do_not_end_a_fit(seed: int) -> None:
    """An extrapolation beyond the rates that an M-step gives once lowered the objective."""
    rng = np.random.default_rng(seed)
    log = draw(THETA, RHO, GAMMA, OMEGA, 250, seed)
    conversions = [rng.integers(0, 2, len(clicks)).tolist() for clicks in log["clicks"].to_pylist()]
    log = log.append_column("conversions", pa.array(conversions, pa.list_(pa.int64())))
    assert rc.LuceClick(components=1).fit(log).converged_
