"""The learnt order of clicks: by hand, by enumeration, and recovered from simulated orders."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import reclick as rc
from reclick.clicks.distribution import Clicks
from reclick.data.ragged import Float64

POSITIONS = 4


def make_log(sequences: list[list[int]], ads: int = POSITIONS) -> dict[str, list[Any]]:
    page = [f"a{j}" for j in range(ads)]
    return {"query": ["q"] * len(sequences), "ads": [page] * len(sequences), "clicks": sequences}


def orders_of(positions: tuple[int, ...]) -> list[list[int]]:
    return [list(order) for order in itertools.permutations(positions)]


def click_sets(ads: int) -> list[tuple[int, ...]]:
    return [
        each for size in range(ads + 1) for each in itertools.combinations(range(1, ads + 1), size)
    ]


def order_probability(gamma: Float64, clicks: tuple[int, ...]) -> float:
    """Π γ(l, j) / Σ γ(l, u), in plain Python."""
    probability, last, left = 1.0, 0, set(clicks)
    for click in clicks:
        probability *= gamma[last, click - 1] / sum(gamma[last, u - 1] for u in left)
        left.remove(click)
        last = click
    return float(probability)


def test_the_order_of_two_clicks_is_their_share_in_the_log() -> None:
    table = rc.OrderTable.fit(make_log([[1, 2]] * 3000 + [[2, 1]] * 1000 + [[1]] * 500))
    log = make_log([[1, 2], [2, 1], [1], []])
    np.testing.assert_allclose(np.exp(table.log_prob(log)), [0.75, 0.25, 1, 1], atol=0.002)


def test_a_worked_order() -> None:
    gamma = np.array([[5.0, 3.0, 2.0], [0, 4, 1], [1, 0, 1], [3, 1, 0]])
    log = make_log([[2, 3, 1], [3, 1], [1]], ads=3)
    # 3/(5 + 3 + 2) · 1/(1 + 1); 2/(5 + 2); one click has one order
    expected = np.log([0.15, 2 / 7, 1.0])
    np.testing.assert_allclose(rc.OrderTable(gamma).log_prob(log), expected, rtol=1e-12)


@pytest.mark.parametrize("ads", [POSITIONS, POSITIONS + 2])
def test_the_orders_of_every_set_add_up_to_one_also_beyond_the_pages_of_the_log(ads: int) -> None:
    rng = np.random.default_rng(0)
    table = rc.OrderTable.fit(make_log([list(rng.permutation(POSITIONS)[:3] + 1)] * 40))
    for positions in click_sets(ads):
        log = make_log(orders_of(positions), ads)
        assert np.exp(table.log_prob(log)).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["dbn", "ubm", "gctr"])
def test_with_an_order_free_model_all_click_sequences_add_up_to_one(name: str) -> None:
    rng = np.random.default_rng(1)
    sequences = [list(rng.permutation(POSITIONS)[: rng.integers(0, 4)] + 1) for _ in range(200)]
    log = make_log(sequences)
    model, table = rc.MODELS[name]().fit(log), rc.OrderTable.fit(log)
    asked = make_log([order for each in click_sets(POSITIONS) for order in orders_of(each)])
    in_order = model.log_set_prob(asked) + table.log_prob(asked)
    assert np.exp(in_order).sum() == pytest.approx(1, abs=1e-9)
    assert np.isfinite(in_order).all()


def test_the_order_of_simulated_clicks_is_recovered() -> None:
    rng = np.random.default_rng(2)
    gamma = np.exp(rng.normal(0, 0.7, (POSITIONS + 1, POSITIONS)))
    sequences = []
    for _ in range(20_000):
        clicked = rng.permutation(POSITIONS)[: rng.integers(2, POSITIONS + 1)] + 1
        orders = list(itertools.permutations(clicked.tolist()))
        chances = np.array([order_probability(gamma, order) for order in orders])
        sequences.append(list(orders[rng.choice(len(orders), p=chances)]))
    table = rc.OrderTable.fit(rc.count(make_log(sequences)))
    for positions in click_sets(POSITIONS):
        for order in itertools.permutations(positions):
            clicks = Clicks(np.array(order, np.int32), np.array([0, len(order)]))
            found = float(np.exp(table.log_order_prob(clicks)[0]))
            assert found == pytest.approx(order_probability(gamma, order), abs=0.03)


def test_a_log_with_no_second_click_has_an_order_too() -> None:
    table = rc.OrderTable.fit(make_log([[1], [2], []]))
    assert np.exp(table.log_prob(make_log([[1, 2], [2, 1]]))).sum() == pytest.approx(1)
