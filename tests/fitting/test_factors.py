"""Tables of factors: monotone steps, shrinkage, and continuing from another table."""

from __future__ import annotations

import numpy as np
import pytest

from reclick.fitting.factors import FactorTable, Level, PastChoices


def random_table(rng: np.random.Generator, cells: int = 12) -> FactorTable:
    """A common factor, one of three groups, and one of each cell."""
    levels = [
        Level(np.zeros(cells, np.int64), 1, 0.5),
        Level(np.arange(cells) % 3, 3, 2.0),
        Level(np.arange(cells), cells, 5.0, rng.gamma(4.0, 0.25, cells)),
    ]
    table = FactorTable.build((cells,), levels)
    return table.with_factors(rng.gamma(4.0, 0.25, len(table.factors)))


@pytest.mark.parametrize("seed", range(5))
def test_a_step_never_lowers_the_objective_and_ends_where_it_is_flat(seed: int) -> None:
    rng = np.random.default_rng(seed)
    observed, exposure = rng.poisson(5.0, 12).astype(np.float64), rng.gamma(2.0, 3.0, 12)
    table = random_table(rng).with_past(PastChoices(observed, exposure))
    value, nothing = table.log_prior(), np.zeros(12)
    for _ in range(400):
        table = table.m_step(nothing, nothing)
        assert table.log_prior() > value - 1e-10
        value = table.log_prior()
    for i in range(len(table.factors)):
        here = np.where(np.arange(len(table.factors)) == i, 1.001, 1.0)
        high, low = (table.with_factors(table.factors * here**sign) for sign in (1, -1))
        assert abs(high.log_prior() - low.log_prior()) / 0.002 < 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_a_step_never_lowers_the_likelihood_of_choices(seed: int) -> None:
    # Choices among the cells, one row of four after the other, by their weights.
    rng = np.random.default_rng(seed)
    table, chosen = random_table(rng), rng.multinomial(30, np.full(4, 0.25), 3)

    def objective(at: FactorTable) -> float:
        shares = at.weights().reshape(3, 4)
        shares = shares / shares.sum(axis=1, keepdims=True)
        return float(np.sum(chosen * np.log(shares))) + at.log_prior()

    value = objective(table)
    for _ in range(50):
        shares = table.weights().reshape(3, 4)
        shares = shares / shares.sum(axis=1, keepdims=True)
        expected = shares * chosen.sum(axis=1, keepdims=True)
        table = table.m_step(chosen.astype(np.float64), expected)
        assert objective(table) > value - 1e-10
        value = objective(table)


def test_a_factor_is_drawn_to_its_prior_mean_by_its_strength() -> None:
    observed, exposure = np.array([8.0, 0.0, 0.0]), np.array([4.0, 4.0, 0.0])
    found = []
    for strength in (1e-6, 4.0, 1e9):
        level = Level(np.arange(3), 3, strength, np.array([0.5, 0.5, 0.7]))
        table = FactorTable.build((3,), [level]).with_past(PastChoices(observed, exposure))
        for _ in range(200):
            table = table.m_step(np.zeros(3), np.zeros(3))
        found.append(table.weights())
    np.testing.assert_allclose(found[0], [2.0, 0.0, 0.7], atol=1e-5)
    np.testing.assert_allclose(found[1], [12 / (4 + 8), 4 / (4 + 8), 0.7], rtol=1e-6)
    np.testing.assert_allclose(found[2], [0.5, 0.5, 0.7], rtol=1e-6)


def test_what_cells_share_is_not_in_their_own_factors() -> None:
    own = np.arange(4).reshape(2, 2)
    levels = [Level(0 * own, 1, 0.1), Level(own, 4, 10.0)]
    table, nothing = FactorTable.build((2, 2), levels), np.zeros(4)
    past = PastChoices(np.array([30.0, 30.0, 30.0, 0.0]), np.array([10.0, 10.0, 10.0, 0.0]))
    table = table.with_past(past)
    for _ in range(300):
        table = table.m_step(nothing, nothing)
    assert table.level(0)[0] == pytest.approx(3, rel=0.05)
    assert table.weights().shape == (2, 2)
    assert table.weights()[1, 1] == pytest.approx(3, rel=0.05)  # never seen: as the others
    np.testing.assert_allclose(table.weights(1, 3), table.weights().ravel()[1:3])


def test_choices_become_the_past_and_add_to_it() -> None:
    table = random_table(np.random.default_rng(1))
    observed, expected = np.arange(12.0), np.full(12, 2.0)
    once = table.remember(observed, expected)
    past = once.past
    np.testing.assert_allclose(past.exposure * table.weights(), expected)
    twice = once.remember(observed, expected).past
    np.testing.assert_allclose(twice.observed, 2 * past.observed)
    np.testing.assert_allclose(twice.exposure, 2 * past.exposure)


def test_a_larger_table_continues_with_the_factors_and_the_past_of_a_smaller_one() -> None:
    rng = np.random.default_rng(2)
    last = random_table(rng, 6).with_past(PastChoices(np.arange(6.0), np.ones(6)))
    fresh = random_table(rng, 9)
    cells = np.array([0, 1, 2, 3, 7, 8])  # where the cells are in the larger table
    after = fresh.continue_from(last, cells, decay=0.5)
    assert after.level(0).tolist() == last.level(0).tolist()
    assert after.level(1).tolist() == last.level(1).tolist()
    assert after.level(2)[cells].tolist() == last.level(2).tolist()
    new = np.setdiff1d(np.arange(9), cells)
    assert after.level(2)[new].tolist() == fresh.level(2)[new].tolist()
    assert after.past.observed[cells].tolist() == (0.5 * np.arange(6.0)).tolist()
    assert after.past.exposure.sum() == 3.0
