"""The hyperparameters that LuceClick chooses, from sessions held out of the training log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.hashing import content_hash
from reclick.engines import as_grouped
from reclick.fitting.search import CrossValidationScore, parabola_vertex
from reclick.models import LuceClick
from reclick.models.luce.grid import (
    DEFAULTS,
    FREQUENT_PAGE,
    MIN_APPEAL_GAIN,
    MIN_GAIN,
    MIN_PAGES,
    N_FOLDS,
    LuceSearch,
)
from reclick.models.luce.parameters import Hyperparameters
from tests.support.enumeration import Session, as_table
from tests.support.luce_world import GAMMA, OMEGA, RHO, THETA, draw

FIXED: dict[str, Any] = {
    "query_strength": None,
    "attractiveness_strength": 1.0,
    "satisfaction_strength": 5.0,
    "transition_strength": 4.0,
    "components": 1,
    "component_strength": 4.0,
    "mixing_strength": None,
    "position_effect_strength": None,
}
ONE_SESSION = as_table([Session("q", ("a",), ())])


def sessions_by_page(sessions: GroupedSessions) -> dict[int, float]:
    """How many sessions each page has."""
    page = content_hash(
        sessions.pair, sessions.page, sessions.click[:0], np.zeros(len(sessions) + 1, np.int64)
    )
    return {int(each): float(sessions.weight[page == each].sum()) for each in np.unique(page)}


def test_rare_pages_are_held_out_whole_and_sessions_of_frequent_pages_are_dealt_out() -> None:
    rows = [
        Session(f"q{i}", ("a", "b"), ((1,), (), (2,))[k % 3])
        for i in range(2 * MIN_PAGES)
        for k in range(3 if i else 10 * FREQUENT_PAGE)
    ]
    folds = LuceSearch(as_grouped(as_table(rows)), np.ones(4 * MIN_PAGES), FIXED).folds
    assert len(folds) == N_FOLDS
    held: dict[int, int] = {}
    for train, test in folds:
        assert train.weight.sum() + test.weight.sum() == len(rows)
        known, new = sessions_by_page(train), sessions_by_page(test)
        often = [page for page, many in known.items() if many > FREQUENT_PAGE]
        assert len(often) == 1
        assert new[often[0]] == pytest.approx(10 * FREQUENT_PAGE / N_FOLDS, abs=3)
        assert known.keys() & new.keys() == set(often)
        for page in new.keys() - set(often):
            held[page] = held.get(page, 0) + 1
    assert len(held) == 2 * MIN_PAGES - 1
    assert set(held.values()) == {1}


def test_a_log_with_few_pages_has_its_sessions_dealt_out() -> None:
    rows = [Session(f"q{i % 20}", ("a", "b"), ((1,), (), (2,))[i // 20 % 3]) for i in range(240)]
    for train, test in LuceSearch(as_grouped(as_table(rows)), np.ones(40), FIXED).folds:
        assert sessions_by_page(train).keys() >= sessions_by_page(test).keys()


def test_the_vertex_of_a_parabola_by_hand() -> None:
    assert parabola_vertex(*(-((at - 0.4) ** 2) for at in (-1, 0, 1))) == pytest.approx(0.4)
    assert parabola_vertex(*(-3 * (at + 0.2) ** 2 + 7 for at in (-1, 0, 1))) == pytest.approx(-0.2)


def test_two_more_components_are_tried_where_one_more_does_not_gain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gains = {1: 0.0, 2: 0.1, 3: 0.1, 4: 0.2, 5: 0.2, 6: 0.2}
    monkeypatch.setattr(
        LuceSearch,
        "score",
        lambda _, candidate: CrossValidationScore(
            gains[candidate.components] + np.tile([1e-3, -1e-3], 50), np.ones(100)
        ),
    )
    search = LuceSearch(as_grouped(ONE_SESSION), np.ones(1), {"component_appeal_strength": None})
    assert search._decide_components(DEFAULTS).components == 4


@pytest.mark.parametrize("rho", [0.1, 0.8])
def test_the_log_decides_the_prior_mean_of_satisfaction(rho: float) -> None:
    sessions = as_grouped(draw(THETA, np.full(6, rho), GAMMA, OMEGA, 6_000, 6))
    chosen = LuceSearch(sessions, np.ones(6), FIXED).choose().satisfaction_prior
    assert chosen == pytest.approx(rho, abs=0.1)
    search = LuceSearch(sessions, np.ones(6), {**FIXED, "satisfaction_prior": 0.33})
    assert search.choose().satisfaction_prior == 0.33


def test_without_evidence_on_satisfaction_its_prior_mean_is_left_to_the_fit() -> None:
    for clicks in ((), (1,)):
        sessions = as_grouped(
            as_table([Session(f"q{i % 150}", ("a",), clicks) for i in range(300)])
        )
        assert LuceSearch(sessions, np.ones(150), FIXED).choose().satisfaction_prior == "overall"


def test_the_log_decides_for_components_only_where_there_are_some() -> None:
    two = np.concatenate([GAMMA, GAMMA[:, :, ::-1] ** 3])
    when = np.concatenate([OMEGA * 3, OMEGA / 6])
    mixed = as_grouped(draw(THETA, RHO, two, when, 6_000, 3, np.array([0.5, 0.5])))
    alike = as_grouped(draw(THETA, RHO, GAMMA, OMEGA, 6_000, 4))
    fixed = {name: value for name, value in FIXED.items() if name != "components"}
    fixed |= {"satisfaction_prior": 0.35, "component_appeal_strength": None}
    chosen = [
        LuceSearch(sessions, np.ones(6), fixed).choose().components for sessions in (mixed, alike)
    ]
    assert chosen[0] > 1
    assert chosen[1] == 1


def test_a_long_log_decides_on_a_sample_of_its_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = as_grouped(
        as_table(
            [
                Session(f"q{i % 60}", ("a", "b", "c"), ((1,), (), (2, 1), (3,))[i // 60 % 4])
                for i in range(960)
            ]
        )
    )
    fixed = {name: value for name, value in FIXED.items() if name != "query_strength"}
    fixed["satisfaction_prior"] = 0.35
    monkeypatch.setattr("reclick.models.luce.grid.MAX_SESSIONS", len(sessions) // 2)
    means = np.arange(1.0, len(sessions.counts.impressions) + 1)
    search = LuceSearch(sessions, means, fixed)
    train, _ = search.folds[0]
    assert 10 < len(train.counts.queries) < 50
    assert len(search.prior_mean) == len(train.counts.impressions) < len(means)
    assert set(train.counts.queries.to_pylist()) < set(sessions.counts.queries.to_pylist())
    assert isinstance(search.choose(), Hyperparameters)


def test_an_addition_has_to_gain_enough_significant_or_not() -> None:
    def score(gain: float) -> CrossValidationScore:  # the standard error of the mean is .005
        return CrossValidationScore(-1.0 + gain + np.tile([0.1, -0.1], 200), np.ones(400))

    none = CrossValidationScore(np.full(400, -1.0), np.ones(400))
    gains = (MIN_GAIN / 2, 2 * MIN_GAIN, 2 * MIN_APPEAL_GAIN)
    hardly, some, much = (score(gain) for gain in gains)
    assert much.z_score(none) < 1
    for least, expected in ((MIN_GAIN, [0, 0, 1, 1]), (MIN_APPEAL_GAIN, [0, 0, 0, 1])):
        gained = [more.gains_at_least(none, least) for more in (none, hardly, some, much)]
        assert gained == expected
    assert not none.gains_at_least(some, MIN_GAIN)


@pytest.mark.parametrize(
    ("name", "best", "loss", "taken"),
    [
        ("attractiveness_strength", 4.0, 0.01, 2.0),
        ("attractiveness_strength", 1.0, 0.01, 2.0),
        ("attractiveness_strength", 8.0, 0.5, 8.0),
        ("attractiveness_strength", 0.5, 0.5, 0.5),
        ("transition_strength", 1.0, 0.01, 16.0),
        ("transition_strength", 1.0, 0.5, 1.0),
    ],
)
def test_within_one_standard_error_the_prior_of_attractiveness_is_moderate_and_others_strong(
    name: str, best: float, loss: float, taken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.tile([1.0, -1.0], 200)  # the mean of 400 has a standard error of .05

    def score(_: LuceSearch, candidate: Hyperparameters) -> CrossValidationScore:
        distance = abs(np.log(getattr(candidate, name) / best))
        return CrossValidationScore(distance * (noise - loss), np.ones(400))

    monkeypatch.setattr(LuceSearch, "score", score)
    search = LuceSearch(as_grouped(ONE_SESSION), np.ones(1), {})
    assert getattr(search._search(name, DEFAULTS), name) == taken


@pytest.mark.parametrize(
    ("components", "strength", "taken"), [(2, 5.0, 5.0), (2, None, None), (1, 5.0, None)]
)
def test_a_component_appeal_that_the_user_set_stays(
    components: int, strength: float | None, taken: float | None
) -> None:
    settings = {**FIXED, "components": components, "component_appeal_strength": strength}
    log = draw(THETA, RHO, GAMMA, OMEGA, 400, seed=8)
    model = LuceClick(**settings, satisfaction_prior=0.4).fit(log)
    assert model.hyperparameters_["component_appeal_strength"] == taken  # None: nobody to differ


@pytest.mark.parametrize(
    ("name", "gains", "taken"),
    [
        (
            "position_effect_strength",
            {100.0: 0.5, 30.0: 0.9, 10.0: 0.0},
            None,
        ),  # in what an addition has to gain: nothing gains as much
        (
            "position_effect_strength",
            {100.0: 0.5, 30.0: 2.0, 10.0: 0.0},
            30.0,
        ),  # the only one that does
        (
            "position_effect_strength",
            {100.0: 2.0, 30.0: 2.1, 10.0: 0.0},
            100.0,
        ),  # of two that do, and that the log cannot tell apart, the stronger
        (
            "component_appeal_strength",
            {20.0: 2.0, 8.0: 3.0, 3.0: 0.0},
            None,
        ),  # enough for others, not for tastes
        (
            "component_appeal_strength",
            {20.0: 2.0, 8.0: 1.1 * MIN_APPEAL_GAIN / MIN_GAIN, 3.0: 0.0},
            8.0,
        ),
    ],
)
def test_the_prior_of_an_addition_that_gains_enough_is_as_strong_as_the_log_allows(
    name: str, gains: dict[float, float], taken: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.tile([0.1, -0.1], 200)

    def score(_: LuceSearch, candidate: Hyperparameters) -> CrossValidationScore:
        value = getattr(candidate, name)
        gain = 0.0 if value is None else gains[value] * MIN_GAIN + value * noise
        return CrossValidationScore(gain + np.zeros(400), np.ones(400))

    monkeypatch.setattr(LuceSearch, "score", score)
    search = LuceSearch(as_grouped(ONE_SESSION), np.ones(1), {})
    assert getattr(search._search(name, DEFAULTS), name) == taken


@pytest.mark.parametrize(("gain", "components"), [(MIN_GAIN / 2, 1), (2 * MIN_GAIN, 3)])
def test_components_have_to_gain_enough_with_what_was_decided_after_them(
    gain: float, components: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        LuceSearch,
        "score",
        lambda _, candidate: CrossValidationScore(
            np.full(400, gain * (candidate.components > 1)), np.ones(400)
        ),
    )
    search = LuceSearch(as_grouped(ONE_SESSION), np.ones(1), {})
    assert search._decide_appeal(DEFAULTS._replace(components=3)).components == components


def test_a_log_of_one_query_does_not_decide_how_queries_differ() -> None:
    sessions = as_grouped(draw(THETA, RHO, GAMMA, OMEGA, 600, seed=9))
    assert len(sessions.counts.queries) == 1
    fixed = {
        name: value
        for name, value in FIXED.items()
        if name not in ("query_strength", "mixing_strength")
    }
    chosen = LuceSearch(sessions, np.ones(6), fixed).choose()
    assert (chosen.query_strength, chosen.mixing_strength) == (None, None)
    given = LuceSearch(sessions, np.ones(6), {**fixed, "query_strength": 4.0}).choose()
    assert given.query_strength == 4.0
