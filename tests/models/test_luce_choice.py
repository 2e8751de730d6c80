"""What LuceClick decides by itself, from sessions held out of the training log."""

from __future__ import annotations

import numpy as np
import pytest

from reclick.data.grouped_sessions import Sessions, as_sessions
from reclick.models import LuceClick
from reclick.models.luce.choice import (
    AGAIN,
    DEFAULTS,
    FOLDS,
    LASTING,
    PAGES,
    WORTHWHILE,
    Chooser,
    Tried,
    _earns,
    _top,
)
from reclick.models.luce.e_step import marks
from reclick.models.luce.parameters import Options
from tests.support.enumeration import Session, as_table
from tests.support.luce_world import PLEASE, PULL, WHEN, WHERE, drawn

GIVEN = {
    "query": None,
    "attractiveness": 1.0,
    "satisfaction": 5.0,
    "transition": 4.0,
    "components": 1,
    "kind": 4.0,
    "mix": None,
    "position": None,
}


def sessions_by_page(sessions: Sessions) -> dict[int, float]:
    """How many sessions each page has."""
    page = marks(
        sessions.pair, sessions.page, sessions.click[:0], np.zeros(len(sessions) + 1, np.int64)
    )
    return {int(each): float(sessions.weight[page == each].sum()) for each in np.unique(page)}


def test_pages_that_came_seldom_are_held_out_whole_and_those_that_came_often_are_dealt() -> None:
    rows = [
        Session(f"q{i}", ("a", "b"), ((1,), (), (2,))[k % 3])
        for i in range(2 * PAGES)
        for k in range(3 if i else 10 * AGAIN)
    ]
    folds = Chooser(as_sessions(as_table(rows)), np.ones(4 * PAGES), GIVEN).folds
    assert len(folds) == FOLDS
    held: dict[int, int] = {}
    for train, test in folds:
        assert train.weight.sum() + test.weight.sum() == len(rows)
        known, new = sessions_by_page(train), sessions_by_page(test)
        often = [page for page, many in known.items() if many > AGAIN]
        assert len(often) == 1
        assert new[often[0]] == pytest.approx(10 * AGAIN / FOLDS, abs=3)
        assert known.keys() & new.keys() == set(often)
        for page in new.keys() - set(often):
            held[page] = held.get(page, 0) + 1
    assert len(held) == 2 * PAGES - 1
    assert set(held.values()) == {1}


def test_a_log_with_few_pages_has_its_sessions_dealt() -> None:
    rows = [Session(f"q{i % 20}", ("a", "b"), ((1,), (), (2,))[i // 20 % 3]) for i in range(240)]
    for train, test in Chooser(as_sessions(as_table(rows)), np.ones(40), GIVEN).folds:
        assert sessions_by_page(train).keys() >= sessions_by_page(test).keys()


def test_the_top_of_a_parabola_by_hand() -> None:
    assert _top(*(-((at - 0.4) ** 2) for at in (-1, 0, 1))) == pytest.approx(0.4)
    assert _top(*(-3 * (at + 0.2) ** 2 + 7 for at in (-1, 0, 1))) == pytest.approx(-0.2)


def test_two_kinds_more_are_tried_where_one_more_does_not_gain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gains = {1: 0.0, 2: 0.1, 3: 0.1, 4: 0.2, 5: 0.2, 6: 0.2}
    monkeypatch.setattr(
        Chooser,
        "tried",
        lambda _, options: Tried(
            options, gains[options.components] + np.tile([1e-3, -1e-3], 50), np.ones(100)
        ),
    )
    chooser = Chooser(
        as_sessions(as_table([Session("q", ("a",), ())])), np.ones(1), {"taste": None}
    )
    assert chooser._kinds(DEFAULTS).components == 4


@pytest.mark.parametrize("rho", [0.1, 0.8])
def test_the_log_decides_the_prior_mean_of_satisfaction(rho: float) -> None:
    sessions = as_sessions(drawn(PULL, np.full(6, rho), WHERE, WHEN, 6_000, 6))
    chosen = Chooser(sessions, np.ones(6), GIVEN).choose().satisfied
    assert chosen is not None
    assert chosen == pytest.approx(rho, abs=0.1)
    assert Chooser(sessions, np.ones(6), {**GIVEN, "satisfied": 0.33}).choose().satisfied == 0.33


def test_where_nothing_tells_of_satisfaction_its_prior_mean_is_left_to_the_fit() -> None:
    for clicks in ((), (1,)):
        sessions = as_sessions(
            as_table([Session(f"q{i % 150}", ("a",), clicks) for i in range(300)])
        )
        assert Chooser(sessions, np.ones(150), GIVEN).choose().satisfied is None


def test_the_log_decides_for_kinds_of_users_only_where_there_are_some() -> None:
    two = np.concatenate([WHERE, WHERE[:, :, ::-1] ** 3])
    when = np.concatenate([WHEN * 3, WHEN / 6])
    mixed = as_sessions(drawn(PULL, PLEASE, two, when, 6_000, 3, np.array([0.5, 0.5])))
    alike = as_sessions(drawn(PULL, PLEASE, WHERE, WHEN, 6_000, 4))
    fixed = {name: value for name, value in GIVEN.items() if name != "components"}
    chosen = [Chooser(sessions, np.ones(6), fixed).choose().components for sessions in (mixed, alike)]
    assert chosen[0] > 1
    assert chosen[1] == 1


def test_a_long_log_is_asked_through_some_of_its_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = as_sessions(
        as_table(
            [
                Session(f"q{i % 60}", ("a", "b", "c"), ((1,), (), (2, 1), (3,))[i // 60 % 4])
                for i in range(960)
            ]
        )
    )
    fixed = {
        "attractiveness": 1.0,
        "satisfaction": 5.0,
        "transition": 4.0,
        "components": 1,
        "kind": 4.0,
        "mix": None,
        "position": None,
    }
    monkeypatch.setattr("reclick.models.luce.choice.MOST", len(sessions) // 2)
    means = np.arange(1.0, len(sessions.counts.impressions) + 1)
    chooser = Chooser(sessions, means, fixed)
    train, _ = chooser.folds[0]
    assert 10 < len(train.counts.queries) < 50
    assert len(chooser.means) == len(train.counts.impressions) < len(means)
    assert set(train.counts.queries.to_pylist()) < set(sessions.counts.queries.to_pylist())
    assert isinstance(chooser.choose(), Options)


def test_an_addition_has_to_gain_and_where_it_has_values_for_every_pair_more_but_not_surely() -> (
    None
):
    def tried(gain: float) -> Tried:
        return Tried(
            DEFAULTS, -1.0 + gain + np.tile([0.1, -0.1], 200), np.ones(400)
        )  # a mean with a standard error of .005, far more than the gains

    none = Tried(DEFAULTS, np.full(400, -1.0), np.ones(400))
    hardly, some, much = (tried(gain) for gain in (WORTHWHILE / 2, 2 * WORTHWHILE, 2 * LASTING))
    assert much.sureness(none) < 1
    assert [_earns(more, none) for more in (none, hardly, some, much)] == [False, False, True, True]
    assert [_earns(more, none, LASTING) for more in (none, hardly, some, much)] == [
        False,
        False,
        False,
        True,
    ]
    assert not _earns(none, some)


@pytest.mark.parametrize(
    ("name", "best", "loss", "taken"),
    [
        ("attractiveness", 4.0, 0.01, 2.0),
        ("attractiveness", 1.0, 0.01, 2.0),
        ("attractiveness", 8.0, 0.5, 8.0),
        ("attractiveness", 0.5, 0.5, 0.5),
        ("transition", 1.0, 0.01, 16.0),
        ("transition", 1.0, 0.5, 1.0),
    ],
)
def test_where_the_log_cannot_tell_the_prior_of_attractiveness_is_moderate_and_another_strong(
    name: str, best: float, loss: float, taken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.tile([1.0, -1.0], 200)  # the mean of 400 has a standard error of .05

    def tried(_: Chooser, options: Options) -> Tried:
        return Tried(
            options, abs(np.log(getattr(options, name) / best)) * (noise - loss), np.ones(400)
        )

    monkeypatch.setattr(Chooser, "tried", tried)
    chooser = Chooser(as_sessions(as_table([Session("q", ("a",), ())])), np.ones(1), {})
    assert getattr(chooser._along(name, DEFAULTS), name) == taken


def test_what_the_user_says_of_tastes_is_kept() -> None:
    log = drawn(PULL, PLEASE, WHERE, WHEN, 400, seed=8)
    assert LuceClick(components=2, component_appeal_strength=5.0).fit(log).hyperparameters_["component_appeal_strength"] == 5.0
    assert LuceClick(components=2, component_appeal_strength=None).fit(log).hyperparameters_["component_appeal_strength"] is None
    assert (
        LuceClick(components=1, component_appeal_strength=5.0).fit(log).hyperparameters_["component_appeal_strength"] is None
    )  # there are no kinds to differ


@pytest.mark.parametrize(
    ("name", "gains", "taken"),
    [
        (
            "position",
            {100.0: 0.5, 30.0: 0.9, 10.0: 0.0},
            None,
        ),  # in what an addition has to gain: nothing gains as much
        ("position", {100.0: 0.5, 30.0: 2.0, 10.0: 0.0}, 30.0),  # the only one that does
        (
            "position",
            {100.0: 2.0, 30.0: 2.1, 10.0: 0.0},
            100.0,
        ),  # of two that do, and that the log cannot tell apart, the stronger
        ("taste", {20.0: 2.0, 8.0: 3.0, 3.0: 0.0}, None),  # enough for others, not for tastes
        ("taste", {20.0: 2.0, 8.0: 1.1 * LASTING / WORTHWHILE, 3.0: 0.0}, 8.0),
    ],
)
def test_an_addition_is_as_strong_as_the_log_allows_where_it_earns_its_place(
    name: str, gains: dict[float, float], taken: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.tile([0.1, -0.1], 200)

    def tried(_: Chooser, options: Options) -> Tried:
        value = getattr(options, name)
        return Tried(
            options,
            np.zeros(400) if value is None else gains[value] * WORTHWHILE + value * noise,
            np.ones(400),
        )

    monkeypatch.setattr(Chooser, "tried", tried)
    chooser = Chooser(as_sessions(as_table([Session("q", ("a",), ())])), np.ones(1), {})
    assert getattr(chooser._along(name, DEFAULTS), name) == taken


@pytest.mark.parametrize(("gain", "components"), [(WORTHWHILE / 2, 1), (2 * WORTHWHILE, 3)])
def test_kinds_of_users_have_to_earn_their_place_with_what_was_decided_of_them(
    gain: float, components: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Chooser,
        "tried",
        lambda _, options: Tried(options, np.full(400, gain * (options.components > 1)), np.ones(400)),
    )
    chooser = Chooser(as_sessions(as_table([Session("q", ("a",), ())])), np.ones(1), {})
    assert chooser._taste(DEFAULTS._replace(components=3)).components == components


def test_a_log_of_one_query_is_not_asked_how_queries_differ() -> None:
    sessions = as_sessions(drawn(PULL, PLEASE, WHERE, WHEN, 600, seed=9))
    assert len(sessions.counts.queries) == 1
    options = Chooser(sessions, np.ones(6), {}).choose()
    assert (options.query_strength, options.mixing_strength) == (None, None)
    assert Chooser(sessions, np.ones(6), {"query": 4.0}).choose().query == 4.0
