"""The hyperparameters that LuceClick chooses, from sessions held out of the training log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.engines import as_grouped
from reclick.fitting.attractiveness_prior import AdRecord, PairPrior
from reclick.fitting.folds import MIN_GAIN
from reclick.fitting.search import CandidateValues, Search, Trial
from reclick.models import LuceClick
from reclick.models.luce.parameters import Hyperparameters
from reclick.models.luce.search import FAST, FULL, search_hyperparameters
from tests.support.enumeration import Session, as_table
from tests.support.luce_world import GAMMA, OMEGA, RHO, THETA, draw, draw_queries

NAMES = frozenset(each.name for each in FULL)
NO_EFFECTS: dict[str, Any] = {"query_strength": None, "position_effect_strength": None}


def make_prior(record: AdRecord) -> PairPrior:
    return PairPrior(np.ones(len(record.ad)), np.full(len(record.ad), 2.0))


def choose(log: object, *free: str, full: bool = False, **defaults: Any) -> Hyperparameters:
    """The hyperparameters with some of them left to the log."""
    start = Hyperparameters(**NO_EFFECTS | defaults)
    sessions = as_grouped(log)
    return search_hyperparameters(sessions, start, NAMES - {*free}, make_prior, full=full)


def steep_and_flat(count: int, seed: int, factor: float) -> pa.Table:
    """Sessions of queries of which half are examined further down the page than the others."""
    rng, queries = np.random.default_rng(seed), 12
    slope = np.where(np.arange(queries) % 2, factor, 1 / factor)[:, None, None]
    effect = np.broadcast_to(slope ** np.array([-0.5, 0.0, 0.5, 0.5]), (queries, 6, 4))
    theta, rho = rng.gamma(3.0, 0.3, (queries, 6)), np.full((queries, 6), 0.3)
    return draw_queries(theta, rho, GAMMA, OMEGA, count, rng, effect=effect)


@pytest.mark.parametrize(("rho", "low", "high"), [(0.05, 0.0, 0.25), (0.8, 0.5, 1.0)])
def test_the_log_decides_the_prior_mean_of_satisfaction(
    rho: float, low: float, high: float
) -> None:
    log = draw(THETA, np.full(6, rho), GAMMA, OMEGA, 6_000, 6)
    found = choose(log, "satisfaction_prior", satisfaction_strength=100.0)
    assert low < found.satisfaction_prior < high
    assert choose(log, satisfaction_prior=0.33).satisfaction_prior == 0.33


def test_position_effects_are_kept_where_queries_differ_in_them() -> None:
    differ, same = steep_and_flat(6_000, 2, 3.0), steep_and_flat(6_000, 2, 1.0)
    name = "position_effect_strength"
    strength = Hyperparameters().position_effect_strength
    start: dict[str, Any] = {name: strength}
    assert choose(differ, name, **start).position_effect_strength is not None
    assert choose(same, name, **start).position_effect_strength != 10.0


@pytest.mark.parametrize("candidates", [FAST, FULL])
def test_components_are_chosen_before_what_depends_on_them(
    candidates: tuple[CandidateValues, ...],
) -> None:
    order = [each.name for each in candidates]
    of_components = ("satisfaction_prior", "position_effect_strength", "mixing_strength")
    for name in (*of_components, "component_strength"):
        assert name not in order or order.index("components") < order.index(name)


@pytest.mark.parametrize("components", [1, 4])
def test_what_the_bootstrap_chooses_is_kept(
    components: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[Hyperparameters] = []
    attempt = Search.attempt

    def keep_attempt(self: Any, hyper: Hyperparameters, starts: Any) -> Any:
        attempts.append(hyper)
        return attempt(self, hyper, starts)

    def choose_components(_: object, hyper: Hyperparameters, *__: object) -> Hyperparameters:
        attempts.clear()
        return hyper._replace(components=components)

    monkeypatch.setattr(Search, "attempt", keep_attempt)
    monkeypatch.setattr("reclick.models.luce.search.choose_by_bootstrap", choose_components)
    log = draw(THETA, RHO, GAMMA, OMEGA, 400, 1)
    kept = NAMES - {"components", "query_strength", "position_effect_strength"}
    found = search_hyperparameters(as_grouped(log), Hyperparameters(), kept, make_prior)
    assert found.components == components
    assert {each.components for each in attempts} == {components}
    assert len(attempts) == 2 + (components > 1)  # of position effects, and of the components


def test_components_are_taken_only_where_there_are_some() -> None:
    two = np.concatenate([GAMMA, GAMMA[:, :, ::-1] ** 3])
    ends = np.concatenate([OMEGA * 3, OMEGA / 6])
    mixed = draw(THETA, RHO, two, ends, 6_000, 3, np.array([0.5, 0.5]))
    assert choose(mixed, "components", mixing_strength=None).components > 1
    for seed in range(4):
        alike = draw(THETA, RHO, GAMMA, OMEGA, 3_000, seed)
        assert choose(alike, "components", mixing_strength=None).components == 1


@pytest.mark.parametrize("sessions", [400, 1_000])
def test_several_components_are_found_in_a_small_log_that_has_them(sessions: int) -> None:
    """A third of so few sessions, held out, could not show the gain."""
    two = np.concatenate([GAMMA, GAMMA[:, :, ::-1] ** 3])
    ends = np.concatenate([OMEGA * 3, OMEGA / 6])
    mixed = draw(THETA, RHO, two, ends, sessions, 3, np.array([0.5, 0.5]))
    assert choose(mixed, "components", mixing_strength=None).components > 1
    alike = [draw(THETA, RHO, GAMMA, OMEGA, sessions, seed) for seed in range(8)]
    chosen = [choose(log, "components", mixing_strength=None).components for log in alike]
    assert chosen.count(1) >= 7


@pytest.mark.parametrize("weights", ["whole", "any"])
def test_weights_do_not_make_components(weights: str) -> None:
    """Three copies of a session are no three independent sessions."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        weight = rng.integers(1, 4, 400) if weights == "whole" else rng.uniform(0.2, 3, 400)
        log = draw(THETA, RHO, GAMMA, OMEGA, 400, seed)
        log = log.append_column("weight", pa.array(weight.astype(float)))
        assert choose(log, "components", mixing_strength=None).components == 1


def trial(gain: float, spread: float) -> Trial[Hyperparameters, Any]:
    held_out = -1.0 + gain + np.tile([spread, -spread], 200)
    return Trial(Hyperparameters(), [], held_out, np.ones(400))


def test_gains_and_their_standard_errors_by_hand() -> None:
    gain, error = trial(0.01, 0.1).gain_over(trial(0.0, 0.0))
    assert gain == pytest.approx(0.01)
    assert error == pytest.approx(0.1 / np.sqrt(400))
    twice = trial(0.01, 0.1)._replace(weight=np.full(400, 2.0))
    gain, error = twice.gain_over(trial(0.0, 0.0)._replace(weight=np.full(400, 2.0)))
    assert (gain, error) == pytest.approx((0.01, 0.1 / np.sqrt(800)))


@pytest.mark.parametrize(
    ("name", "gain", "spread", "is_taken"),
    [
        ("query_strength", MIN_GAIN / 2, 0.0, False),
        ("query_strength", 0.004, 0.1, False),
        ("query_strength", 0.006, 0.1, True),
        ("satisfaction_prior", 2 * MIN_GAIN, 0.1, True),
        ("components", 0.009, 0.1, False),
        ("components", 0.011, 0.1, True),
    ],
)
def test_what_gains_more_than_chance_is_taken(
    name: str, gain: float, spread: float, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    best, value = Hyperparameters(), next(each.values[0] for each in FAST if each.name == name)

    def attempt(_: object, now: Hyperparameters, starts: object) -> Trial[Hyperparameters, Any]:
        moved = getattr(now, name) == value
        return trial(gain * moved, spread * moved)._replace(hyper=now)

    monkeypatch.setattr("reclick.fitting.search.Search.attempt", attempt)
    monkeypatch.setattr("reclick.models.luce.search.SMALL_LOG", 0)  # without a bootstrap
    log = draw(THETA, RHO, GAMMA, OMEGA, 400, 1)
    found = search_hyperparameters(as_grouped(log), best, NAMES - {name}, make_prior)
    assert (getattr(found, name) == value) == is_taken


def test_a_small_log_and_one_that_is_not_tuned_keep_the_defaults() -> None:
    small = LuceClick().fit(draw(THETA, RHO, GAMMA, OMEGA, 150, 1))
    one_query = Hyperparameters(query_strength=None, mixing_strength=None)
    assert small.hyperparameters_ == one_query._asdict()
    rng = np.random.default_rng(1)
    theta, rho = rng.gamma(2.0, 0.5, (30, 6)), np.full((30, 6), 0.9)
    log = draw_queries(theta, rho, GAMMA, OMEGA, 2_000, rng)
    assert LuceClick(tune="off").fit(log).hyperparameters_ == Hyperparameters()._asdict()
    assert LuceClick().fit(log).hyperparameters_ != Hyperparameters()._asdict()


def test_what_is_set_stays_and_a_log_of_one_query_does_not_decide_how_queries_differ() -> None:
    log = draw(THETA, RHO, GAMMA, OMEGA, 600, seed=9)
    found = LuceClick().fit(log).hyperparameters_
    assert (found["query_strength"], found["mixing_strength"]) == (None, None)
    given: dict[str, Any] = {"query_strength": 4.0, "components": 2, "satisfaction_strength": None}
    given["attractiveness_strength"] = 3.0
    found = LuceClick(**given).fit(log).hyperparameters_
    assert {name: found[name] for name in given} == given
    assert found["evidence_factor"] == 1.0


@pytest.mark.parametrize("components", ["auto", 2])
def test_the_hyperparameters_are_settings_that_give_the_same_fit(components: str | int) -> None:
    rng = np.random.default_rng(4)
    theta, rho = rng.gamma(2.0, 0.5, (30, 6)), rng.beta(2.0, 3.0, (30, 6))
    log = draw_queries(theta, rho, GAMMA, OMEGA, 2_000, rng)
    model = LuceClick(components=components).fit(log)
    again = LuceClick(**model.hyperparameters_).fit(log)
    assert again.hyperparameters_ == model.hyperparameters_
    assert set(model.hyperparameters_) <= set(LuceClick.settings)
    np.testing.assert_array_equal(again.log_prob(log), model.log_prob(log))


def test_the_full_search_tries_what_is_common_to_all_too() -> None:
    two = np.concatenate([GAMMA, GAMMA[:, :, ::-1] ** 3])
    ends = np.concatenate([OMEGA * 3, OMEGA / 6])
    rng = np.random.default_rng(2)
    theta, rho = rng.gamma(2.0, 0.5, (20, 6)), np.full((20, 6), 0.3)
    log = draw_queries(theta, rho, two, ends, 3_000, rng, np.array([0.5, 0.5]))
    model = LuceClick(tune="full").fit(log)
    assert model.converged_
    assert model.hyperparameters_["components"] > 1


def test_the_order_of_rows_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reclick.fitting.folds.MAX_SESSIONS", 600)
    monkeypatch.setattr("reclick.fitting.attractiveness_prior.MAX_PAIRS", 100)
    rng = np.random.default_rng(3)
    theta, rho = rng.gamma(2.0, 0.5, (40, 6)), rng.beta(2.0, 3.0, (40, 6))
    log = draw_queries(theta, rho, GAMMA, OMEGA, 2_000, rng)
    shuffled = log.take(pa.array(rng.permutation(len(log))))
    one, two = LuceClick().fit(log), LuceClick().fit(shuffled)
    assert one.hyperparameters_ == two.hyperparameters_
    assert one.prior_report_ == two.prior_report_
    np.testing.assert_allclose(one.log_prob(log), two.log_prob(log), rtol=1e-6)


def test_a_long_log_decides_on_a_sample_of_its_queries() -> None:
    rows = [
        Session(f"q{i % 60}", ("a", "b", "c"), ((1,), (), (2, 1), (3,))[i // 60 % 4])
        for i in range(960)
    ]
    sessions = as_grouped(as_table(rows))
    sample = sessions.sample_queries(len(sessions) // 2)
    assert 10 < len(sample.counts.queries) < 50
    names = set(sample.counts.queries.to_pylist())
    assert names < set(sessions.counts.queries.to_pylist())
    expected = as_grouped(as_table([row for row in rows if row.query in names]))
    assert sample.counts.queries.to_pylist() == expected.counts.queries.to_pylist()
    for name in ("pair", "page", "click", "clicks", "weight"):
        assert getattr(sample, name).tolist() == getattr(expected, name).tolist()
    for name in ("pair_query", "impressions", "clicks", "sessions"):
        mine, theirs = getattr(sample.counts, name), getattr(expected.counts, name)
        assert mine.tolist() == theirs.tolist()
