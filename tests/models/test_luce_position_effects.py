"""Position effects of a query and of a pair: predictions, estimates, updates and intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import Clicks
from reclick.data.ragged import Float64, positions_in_runs
from reclick.engines import as_grouped
from reclick.models import LuceClick, load
from reclick.models.luce.m_step import Objective
from reclick.models.luce.parameters import (
    Hyperparameters,
    LuceParameters,
    PairPositions,
    cell_keys,
    find_cells,
    lookup_position_effects,
)
from reclick.models.luce.posterior import theta_information_share
from tests.support.enumeration import as_table, random_sessions
from tests.support.luce_world import GAMMA, OMEGA, PLAIN, RICH, objective_for, statistics_at

QUERIES, ADS = 12, 6


def draw_with_effect(
    effect: Float64, count: int, seed: int, day: int = 0
) -> tuple[pa.Table, Float64]:
    """Sessions of queries with position effects [query, ad, position], and the attractiveness.

    Days differ in nothing but chance.
    """
    theta = np.random.default_rng(seed).gamma(3.0, 0.3, (QUERIES, ADS))
    rng = np.random.default_rng([seed, day])
    query, shown = (
        rng.integers(0, QUERIES, count),
        np.argsort(rng.random((count, ADS)), axis=1)[:, :4],
    )
    weights = (theta[query[:, None], shown] * effect[query[:, None], shown, np.arange(4)]).ravel()
    pages = ChoicePages(
        "luce",
        weights,
        np.full(4 * count, 0.3),
        OMEGA,
        GAMMA,
        np.arange(count + 1) * 4,
        np.zeros(count, np.int64),
    )
    click, clicks = pages.sample(rng)
    return pa.table(
        {
            "query": [f"q{q}" for q in query],
            "ads": [[f"ad{ad}" for ad in page] for page in shown],
            "clicks": pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click)),
        }
    ), theta


def steep_and_flat() -> Float64:
    """Half of the queries are examined further down the page than the other half."""
    further = np.where(np.arange(QUERIES) % 2, 3.0, 1 / 3)[:, None, None] ** np.array(
        [-0.5, 0.0, 0.5, 0.5]
    )
    return np.broadcast_to(further, (QUERIES, ADS, 4))


def random_parameters(objective: Objective, seed: int) -> LuceParameters:
    rng, fresh = np.random.default_rng(seed), objective.initial_parameters()
    names = "theta", "transition", "component_appeal", "position_effect"
    drawn = {name: rng.gamma(9.0, 1 / 9, getattr(fresh, name).shape) for name in names}
    return fresh._replace(**drawn)


# ---- cells


def test_cells_are_the_pairs_at_their_positions_in_order_and_found_again() -> None:
    sessions = as_grouped(
        {
            "query": ["q", "q", "r"],
            "ads": [["a", "b"], ["b", "a"], ["a", "c"]],
            "clicks": [[], [1], [2]],
        }
    )
    cells = find_cells(sessions.whole)
    assert [*zip(cells.pair, cells.position, strict=True)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (3, 1),
    ]
    assert positions_in_runs(sessions.page).tolist() == [0, 1] * 3
    assert cells.find(cell_keys(np.array([1, 3, 9]), np.array([1, 0, 0]))).tolist() == [3, -1, -1]
    assert PairPositions(cells.key[:0]).find(cells.key).tolist() == [-1] * 6


def test_the_effect_is_that_of_the_query_times_that_of_the_pair_and_1_where_nothing_was_seen() -> (
    None
):
    cells = PairPositions(
        cell_keys(np.array([0, 2]), np.array([1, 0]))
    )  # pair 0 at the second position, pair 2 at the first
    effect = np.array(
        [1.0, 2.0, 3.0, 4.0, 0.5, 0.25]
    )  # of two queries at two positions, and of two cells
    query, pair, position = (
        np.array(values)
        for values in ([0, 0, 1, 1, -1, 0], [0, 0, 2, 3, -1, 0], [1, 0, 0, 1, 0, 7])
    )
    assert lookup_position_effects(effect, cells, 2, query, pair, position).tolist() == [
        2 * 0.5,
        1,
        3 * 0.25,
        4,
        1,
        1,
    ]


# ---- the E-step


@pytest.mark.parametrize(
    "chosen",
    [
        Hyperparameters(position_effect_strength=3.0),
        Hyperparameters(
            position_effect_strength=2.0,
            components=2,
            component_appeal_strength=2.0,
            mixing_strength=3.0,
            query_strength=1.0,
        ),
    ],
)
def test_the_statistics_of_cells_are_the_slope_of_the_likelihood_in_their_effects(
    chosen: Hyperparameters,
) -> None:
    made = objective_for(as_table(random_sessions(np.random.default_rng(1), 60)), chosen)
    now, table = random_parameters(made, 2), made.layout.position_effect
    now = now._replace(satisfaction_variance=np.full(len(made.prior_mean), 1e-12))
    expected = statistics_at(made, now).sums.expected
    assert made.cell_clicks.sum() == made.clicks.sum()
    by_pair = made.sessions.sum_by_pair(expected)
    np.testing.assert_allclose(by_pair.sum(axis=0), expected.sum(axis=0))
    of_queries = int(table.starts[1])
    for i in (*range(0, of_queries, 5), *range(of_queries, len(now.position_effect), 9)):
        unit = 1e-4 * (np.arange(len(now.position_effect)) == i)
        low, high = (
            statistics_at(
                made, now._replace(position_effect=now.position_effect * np.exp(sign * unit))
            ).log_likelihood
            for sign in (-1, 1)
        )
        mine = (table.index == i).any(axis=0)
        assert (high - low) / 2e-4 == pytest.approx(
            (made.cell_clicks - expected.sum(axis=1))[mine].sum(), abs=1e-5
        )
    assert table.table(now.position_effect).shape == made.cell_clicks.shape


@pytest.mark.parametrize("seed", range(4))
def test_the_objective_rises_with_every_addition_and_after_updates(seed: int) -> None:
    first, second, third = (
        as_table(random_sessions(np.random.default_rng([seed, i]), 80)) for i in range(3)
    )
    model = LuceClick(**RICH, tolerance=1e-9, max_iterations=200).fit(first)
    for day in (second, third):
        assert (np.diff(model.objective_) > -1e-9 * 80).all()
        model.update(day, decay=0.8)
    assert (np.diff(model.objective_) > -1e-9 * 80).all()


def test_a_held_out_session_is_scored_as_it_is_predicted() -> None:
    log, other = (as_table(random_sessions(np.random.default_rng(seed), 120)) for seed in (3, 4))
    both = as_grouped(pa.concat_tables([log, other]))
    train, test = (both.select(np.flatnonzero((np.arange(len(both)) % 2) == k)) for k in (0, 1))
    made = Objective(
        train,
        Hyperparameters(position_effect_strength=3.0),
        np.ones(len(both.counts.impressions)),
        0.3,
        np.ones(1),
    )
    now = random_parameters(made, 5)
    scored = made.sessions.score(now, test)
    cells = find_cells(test.whole)
    query = both.counts.pair_query[cells.pair].astype(np.int64)
    theta = now.theta[cells.pair] * lookup_position_effects(
        now.position_effect,
        made.layout.cells,
        made.layout.longest,
        query,
        cells.pair,
        cells.position,
    )
    at = cells.find(cell_keys(test.pair, positions_in_runs(test.page)))
    rho = np.full(len(at), 0.3) + 0.5 * now.satisfaction_variance[test.pair] * 0.3 * 0.7 * 0.4
    pages = ChoicePages(
        "luce",
        theta[at],
        rho,
        made.layout.outside.table(now.outside),
        made.layout.transition.table(now.transition),
        test.page,
        np.zeros(len(test), np.int64),
    )
    np.testing.assert_allclose(scored, pages.log_prob(Clicks(test.click, test.clicks)), rtol=1e-9)


# ---- predictions


def test_the_first_click_is_by_attractiveness_and_position_effect() -> None:
    log, _ = draw_with_effect(steep_and_flat(), 4_000, seed=1)
    model = LuceClick(**{**PLAIN, "position_effect_strength": 10.0}).fit(log)
    page: dict[str, Any] = {
        "query": ["q1", "q1", "never"],
        "ads": [["ad0", "ad1", "new"], ["ad1", "ad0", "ad2"], ["ad0", "ad1", "ad2"]],
        "clicks": [[], [], []],
    }
    counts, longest = model._pairs.counts, 4
    code = counts.queries.to_pylist().index("q1")
    row = {
        ad: i
        for i, ad in enumerate(counts.ads.take(pa.array(counts.pair_ad)).to_pylist())
        if counts.pair_query[i] == code
    }
    of_queries = len(model._position_effect) - len(model._cell_keys)
    weights = np.full((3, 3), model.prior_mean_)
    for i, ads in enumerate(page["ads"][:2]):
        for j, ad in enumerate(ads):
            spot = PairPositions(model._cell_keys).find(
                cell_keys(np.array([row.get(ad, 1 << 20)]), np.array([j]))
            )[0]
            weights[i, j] = (
                model.theta_[row[ad]] if ad in row else model.prior_mean_
            ) * model._position_effect[code * longest + j]
            weights[i, j] *= model._position_effect[of_queries + spot] if spot >= 0 else 1.0
    weights *= model.gamma_[0, 0, :3]
    np.testing.assert_allclose(
        model.next_click_prob(page)[:, :3],
        weights / (model.omega_[0, 0] + weights.sum(axis=1, keepdims=True)),
        rtol=1e-9,
    )


def test_the_log_decides_for_position_effects_where_queries_differ_in_them() -> None:
    given: dict[str, Any] = {
        name: value for name, value in PLAIN.items() if name != "position_effect_strength"
    }
    differ, same = (
        draw_with_effect(effect, 6_000, seed=2)[0]
        for effect in (steep_and_flat(), np.ones((QUERIES, ADS, 4)))
    )
    assert LuceClick(**given).fit(differ).hyperparameters_["position_effect_strength"] is not None
    assert LuceClick(**given).fit(same).hyperparameters_["position_effect_strength"] is None


def test_position_effects_are_recovered_and_attractiveness_with_them() -> None:
    truth = steep_and_flat()
    log, theta = draw_with_effect(truth, 20_000, seed=3)
    with_it, without = (
        LuceClick(**{**PLAIN, "position_effect_strength": strength}).fit(log)
        for strength in (10.0, None)
    )
    of_queries = with_it._position_effect[: -len(with_it._cell_keys)].reshape(-1, 4)
    order = [int(query.removeprefix("q")) for query in with_it._pairs.counts.queries.to_pylist()]
    slope = np.log(of_queries[:, 2] / of_queries[:, 0])
    assert np.corrcoef(slope, np.log(truth[order, 0, 2] / truth[order, 0, 0]))[0, 1] > 0.98
    counts = with_it._pairs.counts
    ad = [
        int(name.removeprefix("ad"))
        for name in counts.ads.take(pa.array(counts.pair_ad)).to_pylist()
    ]
    exact = theta[np.array(order)[counts.pair_query], ad]
    assert np.std(np.log(with_it.theta_ / exact)) < 0.15
    probe, _ = draw_with_effect(truth, 10_000, seed=3, day=1)
    assert with_it.log_prob(probe).mean() > without.log_prob(probe).mean() + 0.01


# ---- updates


def test_position_effects_are_saved_and_an_update_takes_in_longer_pages_and_new_cells(
    tmp_path: Path,
) -> None:
    old = {
        "query": ["q"] * 60,
        "ads": [["a", "b"], ["b", "a"]] * 30,
        "clicks": [[1], [], [2], [2, 1], [1], [1]] * 10,
    }
    new = {
        "query": ["q", "r"] * 20,
        "ads": [["c", "b", "a"], ["a", "b", "c"]] * 20,
        "clicks": [[2], [3], [], [1, 3]] * 10,
    }
    model = LuceClick(**{**PLAIN, "position_effect_strength": 2.0}).fit(old)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, LuceClick)
    before = dict(zip(_names(model), model._past.cell_observed, strict=True))
    for each in (model, again):
        each.update(new, decay=0.5)
    assert again.log_prob(new).tobytes() == model.log_prob(new).tobytes()
    after = dict(zip(_names(model), model._past.cell_observed, strict=True))
    assert len(model._position_effect) == 2 * 3 + len(model._cell_keys)
    assert before == {("q", "a", 0): 20, ("q", "a", 1): 10, ("q", "b", 0): 20, ("q", "b", 1): 10}
    assert after == {
        ("q", "a", 0): 10, ("q", "a", 1): 5, ("q", "a", 2): 0,
        ("q", "b", 0): 10, ("q", "b", 1): 5 + 10, ("q", "c", 0): 0,
        ("r", "a", 0): 10, ("r", "b", 1): 0, ("r", "c", 2): 20,
    }  # fmt: skip
    assert sum(after.values()) == pytest.approx(model._past.observed.sum())


def _names(model: LuceClick) -> list[tuple[str, str, int]]:
    counts, cells = model._pairs.counts, PairPositions(model._cell_keys)
    query, ad = counts.queries.to_pylist(), counts.ads.to_pylist()
    return [
        (query[counts.pair_query[p]], ad[counts.pair_ad[p]], int(at))
        for p, at in zip(cells.pair, cells.position, strict=True)
    ]


def test_an_update_comes_near_to_a_fit_of_both_days() -> None:
    one, two, probe = (
        draw_with_effect(steep_and_flat(), 3_000, seed=4, day=day)[0] for day in range(3)
    )
    given = {**PLAIN, "position_effect_strength": 10.0}
    whole, updated = (
        LuceClick(**given).fit(pa.concat_tables([one, two])),
        LuceClick(**given).fit(one).update(two),
    )
    assert updated.log_prob(probe).mean() > whole.log_prob(probe).mean() - 2e-3
    np.testing.assert_allclose(updated._theta_information, whole._theta_information, rtol=0.1)


# ---- intervals


def test_the_share_of_information_on_attractiveness_by_hand() -> None:
    # Two cells of pair 0 with information 3 and 1, and an effect with variance 1/2 each: what is
    # left is 3·2/5 and 1·2/3.
    left = theta_information_share(
        np.array([4.0, 0.0]), np.array([6.0, 2.0, 5.0]), np.array([0, 0, 1]), 4.0
    )
    np.testing.assert_allclose(left, [(3 * 2 / 5 + 1 * 2 / 3) / 4, 1.0])


@pytest.mark.parametrize("impressions", [20, 200])
def test_intervals_of_attractiveness_hold_the_truth_with_position_effects(
    impressions: int,
) -> None:
    held = []
    for seed in range(6):
        rng = np.random.default_rng([impressions, seed])
        effect = rng.gamma(10.0, 0.1, (QUERIES, 1, 4)) * rng.gamma(10.0, 0.1, (QUERIES, ADS, 4))
        log, theta = draw_with_effect(effect, QUERIES * ADS * impressions // 4, seed=seed)
        given = {
            **PLAIN,
            "attractiveness_strength": 3.0,
            "position_effect_strength": 10.0,
            "satisfaction_prior": 0.3,
            "satisfaction_strength": 50.0,
        }
        model = LuceClick(**given).fit(log)
        table = model.relevance(level=0.9)
        q, ad = (
            np.array([int(name.removeprefix(kind)) for name in table[column].to_pylist()])
            for kind, column in (("q", "query"), ("ad", "ad"))
        )
        truth = theta[q, ad] / (1 + theta[q, ad])
        held += [
            *(
                (table["attractiveness_low"].to_numpy() <= truth)
                & (truth <= table["attractiveness_high"].to_numpy())
            )
        ]
    assert 0.84 < np.mean(held) < 0.96
