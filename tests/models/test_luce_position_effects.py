"""What positions are worth to a query and to an ad of it: what it changes in LuceClick's answers, and what is learnt of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from reclick.models.luce.objective import Objective
from reclick.models.luce.spots import (
    PairPositions,
    cell_keys,
    positions_in_runs,
    theta_information_share,
    find_cells,
    lookup_position_effects,
)

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import Clicks
from reclick.data.batch import Float64
from reclick.engines import as_grouped
from reclick.models import LuceClick, load
from reclick.models.luce.e_step import raise_worth
from reclick.models.luce.parameters import ExpectedStatistics, Hyperparameters, LuceParameters
from tests.support.enumeration import as_table, random_sessions
from tests.support.luce_world import PLAIN, RICH, OMEGA, GAMMA

QUERIES, ADS = 12, 6


def drawn_with_worth(
    worth: Float64, count: int, seed: int, day: int = 0
) -> tuple[pa.Table, Float64]:
    """Sessions of queries whose ads are worth `worth` [query, ad, position] times their attractiveness, placed at random; and the attractiveness.

    Days differ in nothing but chance.
    """
    theta = np.random.default_rng(seed).gamma(3.0, 0.3, (QUERIES, ADS))
    rng = np.random.default_rng([seed, day])
    query, shown = (
        rng.integers(0, QUERIES, count),
        np.argsort(rng.random((count, ADS)), axis=1)[:, :4],
    )
    weights = (theta[query[:, None], shown] * worth[query[:, None], shown, np.arange(4)]).ravel()
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
    """Half of the queries have users who look further down than others do, and half of them users who do not [query, ad, position]."""
    further = np.where(np.arange(QUERIES) % 2, 3.0, 1 / 3)[:, None, None] ** np.array(
        [-0.5, 0.0, 0.5, 0.5]
    )
    return np.broadcast_to(further, (QUERIES, ADS, 4))


def problem_of(log: object, options: Hyperparameters) -> Objective:
    sessions = as_grouped(log)
    return Objective(
        sessions,
        options,
        np.ones(len(sessions.counts.impressions)),
        0.3,
        np.full(options.components, 1 / options.components),
    )


def found_at(problem: Objective, now: LuceParameters) -> ExpectedStatistics:
    with ThreadPoolExecutor(2) as pool:
        return problem.passes.expect(now, pool)


def somewhere(problem: Objective, seed: int) -> LuceParameters:
    rng, fresh = np.random.default_rng(seed), problem.initial_parameters()
    return fresh._replace(
        **{
            name: rng.gamma(9.0, 1 / 9, getattr(fresh, name).shape)
            for name in ("theta", "eye", "taste", "worth")
        }
    )


# ---- spots


def test_spots_are_the_pairs_at_their_positions_in_order_and_found_again() -> None:
    sessions = as_grouped(
        {
            "query": ["q", "q", "r"],
            "ads": [["a", "b"], ["b", "a"], ["a", "c"]],
            "clicks": [[], [1], [2]],
        }
    )
    spots = find_cells(sessions)
    assert [*zip(spots.pair, spots.position, strict=True)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (3, 1),
    ]
    assert positions_in_runs(sessions.page).tolist() == [0, 1] * 3
    assert spots.find(cell_keys(np.array([1, 3, 9]), np.array([1, 0, 0]))).tolist() == [3, -1, -1]
    assert PairPositions(spots.key[:0]).find(spots.key).tolist() == [-1] * 6


def test_worth_is_the_querys_times_the_ads_and_1_where_nothing_was_seen() -> None:
    spots = PairPositions(
        cell_keys(np.array([0, 2]), np.array([1, 0]))
    )  # pair 0 at the second position, pair 2 at the first
    worth = np.array(
        [1.0, 2.0, 3.0, 4.0, 0.5, 0.25]
    )  # of two queries at two positions, and of two spots
    query, pair, position = (
        np.array(values)
        for values in ([0, 0, 1, 1, -1, 0], [0, 0, 2, 3, -1, 0], [1, 0, 0, 1, 0, 7])
    )
    assert lookup_position_effects(worth, spots, 2, query, pair, position).tolist() == [
        2 * 0.5,
        1,
        3 * 0.25,
        4,
        1,
        1,
    ]


# ---- the pass and the step


@pytest.mark.parametrize(
    "options",
    [Hyperparameters(position_effect_strength=3.0), Hyperparameters(position_effect_strength=2.0, components=2, component_appeal_strength=2.0, mixing_strength=3.0, query_strength=1.0)],
)
def test_what_a_pass_finds_of_spots_is_the_slope_of_the_likelihood_in_their_worth(
    options: Hyperparameters,
) -> None:
    made = problem_of(as_table(random_sessions(np.random.default_rng(1), 60)), options)
    now = somewhere(made, 2)._replace(loose=np.full(len(made.prior_mean), 1e-12))
    found, table = found_at(made, now), made.layout.position_effect.table(now.position_effect)
    assert made.cell_clicks.sum() == made.clicks.sum()
    np.testing.assert_allclose(
        made.sessions.sum_by_pair(found.sums.expected).sum(axis=0), found.sums.expected.sum(axis=0)
    )
    of_queries = made.layout.position_effect.starts[1]
    for i in (*range(0, of_queries, 5), *range(of_queries, len(now.position_effect), 9)):
        unit = 1e-4 * (np.arange(len(now.position_effect)) == i)
        low, high = (
            found_at(made, now._replace(position_effect=now.position_effect * np.exp(sign * unit))).log_likelihood
            for sign in (-1, 1)
        )
        level, factor = (0, i) if i < of_queries else (1, i - of_queries)
        mine = made.layout.position_effect.index[level] == factor
        assert (high - low) / 2e-4 == pytest.approx(
            (made.cell_clicks - found.sums.expected.sum(axis=1))[mine].sum(), abs=1e-5
        )
    assert table.shape == made.cell_clicks.shape


@pytest.mark.parametrize(
    "options", [Hyperparameters(position_effect_strength=3.0), Hyperparameters(position_effect_strength=2.0, components=2, component_appeal_strength=2.0)]
)
def test_a_step_of_worths_is_that_of_levels(options: Hyperparameters) -> None:
    """The compiled loop over spots, against the levels' own, given how far the others have moved."""
    made = problem_of(as_table(random_sessions(np.random.default_rng(1), 60)), options)
    rng, now = np.random.default_rng(3), somewhere(made, 2)
    found, spots = found_at(made, now), made.layout.cells
    moved, old = (
        rng.gamma(20.0, 0.05, (len(now.theta), found.sums.expected.shape[1])),
        rng.gamma(2.0, size=len(spots.key)),
    )
    of_query, starts = made.layout.position_effect.index[0], made.layout.position_effect.starts
    stepped = raise_worth(
        now.position_effect,
        of_query,
        starts[1],
        made.cell_clicks,
        found.sums.expected,
        moved,
        spots.pair,
        old,
        made.layout.position_effect.strength[0],
    )
    pulled = (found.sums.expected * moved[spots.pair] ** 2).sum(axis=1) + old * made.layout.position_effect.table(now.position_effect)
    np.testing.assert_allclose(
        stepped, made.layout.position_effect.climbed(now.position_effect, made.cell_clicks, pulled), rtol=1e-12
    )


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


def test_a_session_held_out_is_scored_as_it_is_answered() -> None:
    log, other = (as_table(random_sessions(np.random.default_rng(seed), 120)) for seed in (3, 4))
    both = as_grouped(pa.concat_tables([log, other]))
    train, test = (both.select(np.flatnonzero((np.arange(len(both)) % 2) == k)) for k in (0, 1))
    made = Objective(
        train, Hyperparameters(position_effect_strength=3.0), np.ones(len(both.counts.impressions)), 0.3, np.ones(1)
    )
    now = somewhere(made, 5)
    scored = made.sessions.score(now, test)
    spots = find_cells(test)
    query = both.counts.pair_query[spots.pair].astype(np.int64)
    theta = now.theta[spots.pair] * lookup_position_effects(
        now.position_effect, made.layout.cells, made.layout.longest, query, spots.pair, spots.position
    )
    at = spots.find(cell_keys(test.pair, positions_in_runs(test.page)))
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


# ---- answers


def test_the_first_click_is_by_attractiveness_and_worth() -> None:
    log, _ = drawn_with_worth(steep_and_flat(), 4_000, seed=1)
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
            spot = PairPositions(model._cell_keys).find(cell_keys(np.array([row.get(ad, 1 << 20)]), np.array([j])))[
                0
            ]
            weights[i, j] = (model.theta_[row[ad]] if ad in row else model.prior_mean_) * model._position_effect[
                code * longest + j
            ]
            weights[i, j] *= model._position_effect[of_queries + spot] if spot >= 0 else 1.0
    weights *= model.gamma_[0, 0, :3]
    np.testing.assert_allclose(
        model.next_click_prob(page)[:, :3],
        weights / (model.omega_[0, 0] + weights.sum(axis=1, keepdims=True)),
        rtol=1e-9,
    )


def test_the_log_decides_for_it_where_queries_differ_in_what_positions_are_worth() -> None:
    given: dict[str, Any] = {
        name: value for name, value in PLAIN.items() if name != "position_effect_strength"
    }
    differ, same = (
        drawn_with_worth(worth, 6_000, seed=2)[0]
        for worth in (steep_and_flat(), np.ones((QUERIES, ADS, 4)))
    )
    assert LuceClick(**given).fit(differ).hyperparameters_["position_effect_strength"] is not None
    assert LuceClick(**given).fit(same).hyperparameters_["position_effect_strength"] is None


def test_what_positions_are_worth_is_recovered_and_attractiveness_with_it() -> None:
    truth = steep_and_flat()
    log, theta = drawn_with_worth(truth, 40_000, seed=3)
    with_it, without = (
        LuceClick(**{**PLAIN, "position_effect_strength": strength}).fit(log) for strength in (10.0, None)
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
    probe, _ = drawn_with_worth(truth, 10_000, seed=3, day=1)
    assert with_it.log_prob(probe).mean() > without.log_prob(probe).mean() + 0.01


# ---- what is kept


def test_a_saved_model_knows_what_positions_are_worth_and_an_update_takes_in_longer_pages_and_new_spots(
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
        ("q", "a", 0): 10, ("q", "a", 1): 5, ("q", "b", 0): 10, ("q", "b", 1): 5 + 10, ("q", "c", 0): 0, ("q", "a", 2): 0,
        ("r", "a", 0): 10, ("r", "b", 1): 0, ("r", "c", 2): 20,
    }  # fmt: skip
    assert sum(after.values()) == pytest.approx(model._past.observed.sum())


def _names(model: LuceClick) -> list[tuple[str, str, int]]:
    counts, spots = model._pairs.counts, PairPositions(model._cell_keys)
    query, ad = counts.queries.to_pylist(), counts.ads.to_pylist()
    return [
        (query[counts.pair_query[p]], ad[counts.pair_ad[p]], int(at))
        for p, at in zip(spots.pair, spots.position, strict=True)
    ]


def test_an_update_comes_near_to_a_fit_of_both_days() -> None:
    one, two, probe = (
        drawn_with_worth(steep_and_flat(), 3_000, seed=4, day=day)[0] for day in range(3)
    )
    given = {**PLAIN, "position_effect_strength": 10.0}
    whole, updated = (
        LuceClick(**given).fit(pa.concat_tables([one, two])),
        LuceClick(**given).fit(one).update(two),
    )
    assert updated.log_prob(probe).mean() > whole.log_prob(probe).mean() - 2e-3
    np.testing.assert_allclose(updated._theta_information, whole._theta_information, rtol=0.1)


# ---- intervals


def test_what_is_told_of_attractiveness_where_a_worth_is_unknown_by_hand() -> None:
    # Two spots of pair 0 with informations 3 and 1, where the worth of each is unknown by 1/2: what is left is 3·2/5 and 1·2/3.
    left = theta_information_share(np.array([4.0, 0.0]), np.array([6.0, 2.0, 5.0]), np.array([0, 0, 1]), 4.0)
    np.testing.assert_allclose(left, [(3 * 2 / 5 + 1 * 2 / 3) / 4, 1.0])


@pytest.mark.parametrize("impressions", [20, 200])
def test_intervals_of_attractiveness_hold_the_truth_where_positions_differ_in_worth(
    impressions: int,
) -> None:
    held = []
    for seed in range(8):
        rng = np.random.default_rng([impressions, seed])
        worth = rng.gamma(10.0, 0.1, (QUERIES, 1, 4)) * rng.gamma(10.0, 0.1, (QUERIES, ADS, 4))
        log, theta = drawn_with_worth(worth, QUERIES * ADS * impressions // 4, seed=seed)
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
