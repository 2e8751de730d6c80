"""The table of running totals against a Python dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.data.string_index import EMPTY
from reclick.engines.local.hash_table import HashTotals, add_block, join_codes
from reclick.runtime.jit import kernel

Column = npt.NDArray[Any]
CODES = st.sampled_from([0, 1, 2, 1023, 1024, 2**31 - 2, 2**31 - 1])
ROWS = st.lists(st.tuples(CODES, CODES, st.integers(-5, 5), st.integers(0, 5)), max_size=40)


def add(table: HashTotals, first: Column, second: Column, total: Column, others: Column) -> None:
    table.reserve(len(first))
    keys = np.array([join_codes(*codes) for codes in zip(first, second, strict=True)], np.int64)
    slots = np.empty(len(keys), np.int64)
    first_keys = np.empty_like(slots)
    table.n_keys += add_all(
        table.keys, table.total, keys, total.astype(np.float64), slots, first_keys
    )
    np.add.at(table.other_totals, slots, others.astype(np.float64))


@kernel
def add_all(
    keys: Column, total: Column, wanted: Column, more: Column, slots: Column, first_keys: Column
) -> int:
    return add_block(keys, total, wanted, more, len(wanted), slots, first_keys)


def totals(table: HashTotals) -> dict[tuple[int, int], tuple[float, ...]]:
    slots = np.flatnonzero(table.keys != EMPTY)
    first, second = table.codes(slots)
    rows = np.column_stack([table.total[slots], table.other_totals[slots]]).tolist()
    return {
        key: tuple(row)
        for key, row in zip(zip(first.tolist(), second.tolist(), strict=True), rows, strict=True)
    }


@given(st.lists(ROWS, max_size=5))
def test_totals_are_those_of_a_dict(batches: list[list[tuple[int, int, int, int]]]) -> None:
    table, known = HashTotals.empty(n_other=1), dict[tuple[int, int], tuple[float, float]]()
    for rows in batches:
        columns = np.array(rows, np.int64).reshape(-1, 4)
        add(table, columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3:])
        for first, second, one, two in rows:
            before = known.get((first, second), (0.0, 0.0))
            known[first, second] = (before[0] + one, before[1] + two)
    assert totals(table) == known
    assert len(table.slots()) == sum(any(row) for row in known.values())
    assert table.n_keys == len(known)


def test_totals_survive_growth() -> None:
    table = HashTotals.empty()
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 300, (2, 60_000))
    for part in np.array_split(np.arange(60_000), 7):
        add(table, first[part], second[part], np.ones(len(part)), np.zeros((len(part), 0)))
    keys, times = np.unique(first * 300 + second, return_counts=True)
    assert {a * 300 + b: value for (a, b), (value,) in totals(table).items()} == dict(
        zip(keys.tolist(), times.tolist(), strict=True)
    )
    assert table.n_keys <= 0.8 * len(table.keys)


@pytest.mark.parametrize("swap", [False, True])
def test_codes_in_a_row_do_not_pile_up(swap: bool) -> None:
    # A hash that ignored one of the codes would take minutes here, not milliseconds.
    many = np.arange(200_000)
    one = np.zeros_like(many)
    table = HashTotals.empty()
    codes = (many, one) if swap else (one, many)
    add(table, *codes, np.ones(len(many)), np.zeros((len(many), 0)))
    assert table.n_keys == len(many)


def test_an_empty_table_has_no_totals() -> None:
    assert totals(HashTotals.empty(n_other=2)) == {}
