"""Sufficient cells against counting in plain Python, EM over them against its formulas, and what
the models on cells have in common."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reclick.data.grouped_sessions import GroupedSessions
from reclick.engines import LocalEngine, as_grouped
from reclick.errors import SettingError
from reclick.fitting.beta import BetaPrior
from reclick.fitting.em import FitResult
from reclick.models import BBM, PBM, UBM, load
from reclick.models.kernels.examination_em import (
    ExaminationCells,
    ExaminationData,
    ExaminationPrior,
    ExaminationProblem,
    browsing_means,
    build_cells,
    extend_examination,
    position_means,
)
from tests.support.enumeration import Session, ads_table, as_table, random_sessions

CellModel = PBM | UBM | BBM
KINDS: tuple[type[CellModel], ...] = (PBM, UBM, BBM)
OVERALL: dict[str, Any] = {"attractiveness_prior": "overall"}
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def build(sessions: GroupedSessions, *, browsing: bool) -> ExaminationCells:
    return ExaminationCells.build(sessions.whole, length=sessions.max_ads, browsing=browsing)


def learn(
    sessions: GroupedSessions, prior: ExaminationPrior, weight: float, *, browsing: bool
) -> FitResult[Any, Any]:
    """One iteration of EM."""
    block = build_cells(sessions.whole, length=sessions.max_ads, browsing=browsing)
    data = ExaminationData(weight, sessions.max_ads, [block])
    problem = ExaminationProblem.of(data, prior)
    return problem.maximise(None, LocalEngine(), max_iterations=1, tolerance=0)


def named(
    cells: ExaminationCells, sessions: GroupedSessions, length: int
) -> dict[tuple[str, str, int, int], float]:
    """Skips by (query, ad, position, last click)."""
    counts, found = sessions.counts, {}
    for pair in range(len(cells.clicks)):
        names = (
            counts.queries[counts.pair_query[pair]].as_py(),
            counts.ads[counts.pair_ad[pair]].as_py(),
        )
        for cell in range(cells.starts[pair], cells.starts[pair + 1]):
            last, position = divmod(int(cells.state[cell]), length)
            found[(*names, position + 1, last)] = float(cells.skips[cell])
    assert len(found) == len(cells.state)
    return found


def test_two_sessions_by_hand() -> None:
    # After the click on b at position 2, c at 3 has 2 for its last click; without it, 0.
    log = {
        "query": ["q"] * 3,
        "ads": [["a", "b", "c"]] * 3,
        "clicks": [[2], [2], []],
        "weight": [1.0, 2.0, 5.0],
    }
    sessions = as_grouped(log)
    cells = build(sessions, browsing=True)
    expected = {
        ("q", "a", 1, 0): 8.0,
        ("q", "b", 2, 0): 5.0,
        ("q", "c", 3, 2): 3.0,
        ("q", "c", 3, 0): 5.0,
    }
    assert named(cells, sessions, 3) == expected
    assert cells.clicks.tolist() == [0.0, 3.0, 0.0]
    assert cells.state_clicks.reshape(4, 3).tolist() == [[0, 3, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert cells.impressions.reshape(4, 3).tolist() == [[8, 8, 5], [0, 0, 0], [0, 0, 3], [0, 0, 0]]
    assert build(sessions, browsing=False).impressions.tolist() == [8.0, 8.0, 8.0]


@pytest.mark.parametrize("browsing", [False, True])
def test_cells_equal_counting_in_plain_python(browsing: bool) -> None:
    log = random_sessions(np.random.default_rng(3), 300, weights=True, longest=5)
    skips, clicks = Counter[tuple[str, str, int, int]](), Counter[tuple[str, str]]()
    for s in log:
        last = 0
        for position, ad in enumerate(s.ads, 1):
            if position in s.clicks:  # whatever the order of the clicks
                clicks[s.query, ad] += int(s.weight)
                last = position if browsing else 0
            else:
                skips[s.query, ad, position, last] += int(s.weight)
    sessions = as_grouped(as_table(log, weights=True))
    cells = build(sessions, browsing=browsing)
    assert named(cells, sessions, 5) == skips
    assert cells.clicks.sum() == cells.state_clicks.sum() == sum(clicks.values())
    assert cells.clicks.tolist() == sessions.counts.clicks.tolist()
    assert cells.impressions.sum() == sessions.counts.impressions.sum()


def test_cells_come_back_from_their_table() -> None:
    cells = build(
        as_grouped(as_table(random_sessions(np.random.default_rng(4), 50))), browsing=True
    )
    back = ExaminationCells.from_table(cells.to_table())
    for name in ("clicks", "starts", "state", "skips"):
        assert np.array_equal(getattr(back, name), getattr(cells, name))


def test_one_iteration_equals_the_formulas() -> None:
    sessions = as_grouped(
        {"query": ["q"] * 6, "ads": [["a", "b"]] * 6, "clicks": [[1], [1], [2], [], [], []]}
    )
    of_pairs = BetaPrior(np.array([0.4, 0.2]), np.array([2.0, 5.0]))
    prior = ExaminationPrior(of_pairs, np.array([0.9, 0.5]), 3.0)
    fit = learn(sessions, prior, 6.0, browsing=False)
    unseen_a, unseen_b = 4 * 0.9 * 0.6 / (1 - 0.36), 5 * 0.5 * 0.8 / (1 - 0.1)
    theta = [(2 + 2 * 0.4) / (2 + unseen_a + 2), (1 + 5 * 0.2) / (1 + unseen_b + 5)]
    gamma = [(2 + unseen_a + 3 * 0.9) / (6 + 3), (1 + unseen_b + 3 * 0.5) / (6 + 3)]
    np.testing.assert_allclose(fit.parameters.theta, theta, rtol=1e-12)
    np.testing.assert_allclose(fit.parameters.gamma, gamma, rtol=1e-12)
    clicks = 2 * math.log(0.36) + 4 * math.log(0.64) + math.log(0.1) + 5 * math.log(0.9)
    of_theta = sum(
        s * (m * math.log(m) + (1 - m) * math.log(1 - m)) for m, s in ((0.4, 2), (0.2, 5))
    )
    of_gamma = 3 * sum(m * math.log(m) + (1 - m) * math.log(1 - m) for m in (0.9, 0.5))
    assert fit.objective == pytest.approx([clicks + of_theta + of_gamma], rel=1e-12)
    seen = 4 * gamma[0] * (1 - theta[0]) / (1 - theta[0] * gamma[0])
    examinations = fit.statistics.pairs["examinations"]
    assert examinations[0] == pytest.approx(2 + seen, rel=1e-12)


def test_the_objective_is_the_log_posterior_whatever_the_weights_and_prior_means() -> None:
    rng = np.random.default_rng(5)
    table = as_table(random_sessions(rng, 400, weights=True, queries="qrstuvw"), weights=True)
    sessions = as_grouped(table)
    cells = build(sessions, browsing=True)
    pairs = len(cells.clicks)
    for means, strength in (
        (np.full(pairs, 0.3), np.full(pairs, 1.5)),
        (rng.uniform(0.1, 0.9, pairs), np.full(pairs, 1.5)),
        (np.full(pairs, 0.3), rng.uniform(0.0, 9.0, pairs)),
        (np.repeat([0.001, 0.999], 50)[:pairs], np.tile([2.0, 2.0, 0.0], 50)[:pairs]),
    ):
        gammas = browsing_means(np.full(4, 0.6)).ravel()
        prior = ExaminationPrior(BetaPrior(means, strength), gammas, 2.5)
        fit = learn(sessions, prior, 1.0, browsing=True)
        theta, gamma = means, prior.gamma
        each = theta[np.repeat(np.arange(len(theta)), np.diff(cells.starts))] * gamma[cells.state]
        shown = cells.impressions > 0
        expected = (
            cells.clicks @ np.log(theta)
            + cells.state_clicks[shown] @ np.log(gamma[shown])
            + cells.skips @ np.log1p(-each)
        )
        expected += np.sum(
            strength * (means * np.log(means) + (1 - means) * np.log1p(-means))
        ) + 2.5 * shown.sum() * (0.6 * math.log(0.6) + 0.4 * math.log(0.4))
        assert fit.objective[0] == pytest.approx(expected, rel=1e-10)


def test_prior_means_of_examination_are_click_rates_by_position_as_a_share_of_the_first() -> None:
    sessions = as_grouped(
        {"query": ["q"] * 4, "ads": [["a", "b"]] * 2 + [["a"]] * 2, "clicks": [[2, 1], [], [1], []]}
    )
    assert position_means("overall", sessions.counts, 4).tolist() == [
        0.99,
        0.99,
        0.99,
        0.99,
    ]  # 1/2 at both
    sessions = as_grouped(
        {"query": ["q"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[2, 1], [1], [1], [1]]}
    )
    assert position_means("overall", sessions.counts, 3).tolist() == [0.99, 0.25, 0.25]
    assert position_means(0.3, sessions.counts, 2).tolist() == [0.3, 0.3]
    after = browsing_means(np.array([0.9, 0.5, 0.2]))
    assert after.tolist() == [[0.9, 0.5, 0.2], [0, 0.9, 0.5], [0, 0, 0.9], [0, 0, 0]]


def test_positions_beyond_those_learnt_are_looked_at_like_the_last_as_far_below_the_click() -> None:
    gamma = np.array([[0.9, 0.5], [0.0, 0.7], [0.0, 0.0]])
    more = extend_examination(gamma, 4)
    assert more[0].tolist() == [0.9, 0.5, 0.5, 0.5]
    assert more[1, 1:].tolist() == [0.7, 0.7, 0.7]
    assert more[2, 2:].tolist() == [0.7, 0.7]
    assert more[3, 3:].tolist() == [0.7]
    assert extend_examination(gamma, 1) is gamma  # a shorter page uses the upper left corner
    assert extend_examination(np.array([[0.9], [0.0]]), 3)[1].tolist() == [0.9, 0.9, 0.9]


# ---- what the models on cells have in common


@every_kind
@pytest.mark.parametrize("seed", range(3))
def test_the_objective_never_falls_and_convergence_is_told_truly(
    kind: type[CellModel], seed: int
) -> None:
    log = as_table(random_sessions(np.random.default_rng(seed), 200))
    done = kind(**OVERALL, tolerance=1e-7, max_iterations=5000).fit(log)
    objective = np.array(done.objective_)
    assert (np.diff(objective) > -1e-9 * np.abs(objective[1:])).all()
    assert done.converged_
    assert done.iterations_ == len(objective) < 5000
    assert (objective[-1] - objective[-2]) / 200 < 1e-7 <= (objective[-2] - objective[-3]) / 200
    cut = kind(**OVERALL, tolerance=1e-7, max_iterations=5).fit(log)
    assert not cut.converged_
    assert cut.iterations_ == 5
    assert cut.message_.startswith("stopped after 5 iterations")
    assert cut.objective_ == pytest.approx(done.objective_[:5])


@every_kind
@pytest.mark.parametrize("tolerance", [0, -1.0])
def test_with_no_tolerance_all_iterations_run(kind: type[CellModel], tolerance: float) -> None:
    log = {
        "query": ["q"] * 2,
        "ads": [["a", "b"]] * 2,
        "clicks": [[1], []],
    }  # stands still to the last bit long before
    model = kind(tolerance=tolerance, max_iterations=3000).fit(log)
    assert model.iterations_ == 3000
    assert not model.converged_
    assert model.message_.endswith(
        f"with tolerance {tolerance:g}, which asks for all of them: not converged"
    )


@every_kind
def test_a_weight_of_two_equals_the_row_twice(kind: type[CellModel]) -> None:
    log = random_sessions(np.random.default_rng(7), 80, weights=True)
    rows = [Session(s.query, s.ads, s.clicks) for s in log for _ in range(int(s.weight))]
    one, two = kind().fit(as_table(log, weights=True)), kind().fit(as_table(rows))
    np.testing.assert_allclose(one.theta_, two.theta_, rtol=1e-9)
    np.testing.assert_allclose(one.gamma_, two.gamma_, rtol=1e-9)
    assert one.objective_ == pytest.approx(two.objective_)


@every_kind
@pytest.mark.parametrize("prior", ["overall", "words", 0.2])
def test_a_loaded_model_answers_the_same_to_the_last_bit(
    kind: type[CellModel], prior: str | float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(8)
    texts = (
        ads_table({"a": "red shoes", "b": "blue shoes", "c": "red hats", "d": "hats"})
        if prior == "words"
        else None
    )
    model = kind(attractiveness_prior=prior).fit(as_table(random_sessions(rng, 80)), ads=texts)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    asked = as_table(random_sessions(rng, 30, ads="abcd", queries="qrsu", longest=6))
    assert np.array_equal(loaded.log_set_prob(asked), model.log_set_prob(asked))
    assert np.array_equal(loaded.click_prob(asked), model.click_prob(asked), equal_nan=True)
    assert loaded.relevance().equals(model.relevance())
    assert loaded.relevance({"query": ["q"], "ad": ["a"]}, level=0.5).equals(
        model.relevance({"query": ["q"], "ad": ["a"]}, level=0.5)
    )


@every_kind
@pytest.mark.parametrize(
    "settings",
    [
        OVERALL,
        OVERALL | {"attractiveness_strength": 0, "examination_strength": 0},
        {"attractiveness_prior": 0.5},
    ],
)
def test_unseen_queries_and_longer_pages_are_answered_and_probabilities_add_to_one(
    kind: type[CellModel], settings: dict[str, Any]
) -> None:
    model = kind(**settings).fit(as_table(random_sessions(np.random.default_rng(9), 60, longest=2)))
    sets = [tuple(j + 1 for j in range(4) if chosen >> j & 1) for chosen in range(16)]
    for query in ("q", "never seen"):
        log_prob = model.log_set_prob(
            as_table([Session(query, ("a", "b", "a", "z"), clicks) for clicks in sets])
        )
        assert np.isfinite(log_prob).all()
        assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-12)
    row = model.relevance({"query": ["never seen"], "ad": ["a"]}).to_pylist()[0]
    assert row["attractiveness"] == model.prior_mean_
    assert 0 <= row["attractiveness_low"] < row["attractiveness_high"] <= 1


@every_kind
def test_logs_without_a_click_or_with_nothing_else_can_be_fitted(kind: type[CellModel]) -> None:
    for clicks in ([], [1, 2]):
        for strength in (0, 3):
            model = kind(attractiveness_strength=strength, examination_strength=strength).fit(
                as_table([Session("q", ("a", "b"), tuple(clicks))] * 5)
            )
            table = model.relevance()
            assert np.isfinite(
                model.log_set_prob(
                    as_table([Session("q", ("a", "b"), (2,)), Session("q", ("b", "c"), ())])
                )
            ).all()
            assert (
                np.array(table["attractiveness_low"]) <= np.array(table["attractiveness_high"])
            ).all()


@every_kind
def test_a_fit_on_some_of_the_sessions_knows_nothing_of_the_others(kind: type[CellModel]) -> None:
    sessions = as_grouped(as_table(random_sessions(np.random.default_rng(10), 60)))
    chosen = sessions.select(np.flatnonzero(np.arange(len(sessions)) % 2 == 0))
    cells = build(chosen, browsing=kind is not PBM)
    assert (
        cells.impressions.sum()
        == (chosen.weight * np.diff(chosen.page)).sum()
        < sessions.counts.impressions.sum()
    )
    assert cells.clicks.sum() == (chosen.weight * np.diff(chosen.clicks)).sum()
    assert np.isfinite(kind().fit(chosen).objective_).all()


@every_kind
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attractiveness_prior": "word"}, "attractiveness_prior: got 'word'"),
        ({"attractiveness_strength": -1}, "attractiveness_strength: got -1"),
        ({"examination_prior": 1.0}, "examination_prior: got 1.0"),
        ({"examination_strength": math.nan}, "examination_strength: got nan"),
        ({"max_iterations": 0}, "max_iterations: got 0, expected a whole number of 1 or more"),
        ({"max_iterations": 2.5}, "max_iterations: got 2.5"),
        ({"max_iterations": True}, "max_iterations: got True"),
        ({"tolerance": math.inf}, "tolerance: got inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    kind: type[CellModel], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        kind(**settings)
