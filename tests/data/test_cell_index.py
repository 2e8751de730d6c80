"""Pairs at positions, and where they stand."""

from __future__ import annotations

import numpy as np
import pytest

from reclick.data.pair_index import CellIndex
from reclick.errors import StoreError


@pytest.mark.parametrize("has_positions", [True, False])
def test_cells_are_the_distinct_pairs_at_positions_in_order(has_positions: bool) -> None:
    rng = np.random.default_rng(1)
    pair, position = rng.integers(0, 9, 60), rng.integers(0, 4, 60)
    cells = CellIndex(has_positions).add(pair[:20], position[:20]).add(pair[20:], position[20:])
    where = position if has_positions else 0 * position
    expected = sorted(set(zip(pair.tolist(), where.tolist(), strict=True)))
    assert list(zip(cells.pair.tolist(), cells.position.tolist(), strict=True)) == expected
    found = cells.find(pair, position)
    np.testing.assert_array_equal(cells.pair[found], pair)
    np.testing.assert_array_equal(cells.position[found], where)
    own, rows = cells.of_pairs(slice(3, 6))
    assert own.pair.tolist() == [p for p, _ in expected if 3 <= p < 6]
    np.testing.assert_array_equal(cells.keys[rows], own.keys)


def test_what_is_not_among_the_cells_is_not_found() -> None:
    assert CellIndex().find(np.array([0, 5]), np.array([0, 1])).tolist() == [-1, -1]
    cells = CellIndex().add(np.array([2, 4]), np.array([1, 1]))
    pair, position = np.array([2, 2, 9, 0]), np.array([1, 0, 1, 0])
    assert cells.find(pair, position).tolist() == [0, -1, -1, -1]


def test_saved_cells_come_back_and_others_are_refused() -> None:
    cells = CellIndex().add(np.array([0, 0, 2]), np.array([1, 0, 3]))
    tables = {"cells": cells.to_table(4)}
    assert tables["cells"]["position"].to_pylist() == [[0, 1], [], [3], []]
    back = CellIndex().from_table(tables, "cells", 4, 4)
    np.testing.assert_array_equal(back.keys, cells.keys)
    for pairs, longest in ((3, 4), (4, 3)):
        with pytest.raises(StoreError, match="cells is damaged"):
            CellIndex().from_table(tables, "cells", pairs, longest)
