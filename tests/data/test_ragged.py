"""Ragged arrays and hashes against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reclick.data.hashing import content_hash, page_and_set_hash, splitmix64
from reclick.data.ragged import (
    positions_in_runs,
    read_only,
    run_of_elements,
    slice_runs,
    starts_from_sizes,
    sum_runs,
    take_runs,
)

RUNS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=4), max_size=8)
MASK = 2**64 - 1


def flatten(runs: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    values = np.array([value for run in runs for value in run], np.int32)
    return values, starts_from_sizes([len(run) for run in runs])


@given(RUNS, st.data())
def test_runs_are_taken_sliced_and_summed_as_lists_are(
    runs: list[list[int]], data: st.DataObject
) -> None:
    values, starts = flatten(runs)
    assert starts.tolist() == [sum(map(len, runs[:i])) for i in range(len(runs) + 1)]
    assert positions_in_runs(starts).tolist() == [i for run in runs for i in range(len(run))]
    assert run_of_elements(starts).tolist() == [i for i, run in enumerate(runs) for _ in run]
    assert sum_runs(values.astype(np.int64), starts).tolist() == [sum(run) for run in runs]
    chosen = data.draw(st.lists(st.integers(0, len(runs) - 1), max_size=6)) if runs else []
    taken, taken_starts = take_runs(values, starts, np.array(chosen, np.int64))
    expected, expected_starts = flatten([runs[i] for i in chosen])
    assert taken.tolist() == expected.tolist()
    assert taken_starts.tolist() == expected_starts.tolist()
    first = data.draw(st.integers(0, len(runs)))
    last = data.draw(st.integers(first, len(runs)))
    part, part_starts = slice_runs(values, starts, first, last)
    expected, expected_starts = flatten(runs[first:last])
    assert part.tolist() == expected.tolist()
    assert part_starts.tolist() == expected_starts.tolist()
    assert positions_in_runs(starts[first:]).tolist() == [
        i for run in runs[first:] for i in range(len(run))
    ]


def test_sums_of_unsigned_numbers_wrap_around() -> None:
    large = np.array([2**63, 2**63, 5], np.uint64)
    assert sum_runs(large, np.array([0, 2, 3])).tolist() == [0, 5]


def test_a_read_only_view_leaves_the_array_writable() -> None:
    array = np.zeros(2)
    view = read_only(array)
    array[0] = 1.0
    assert view.tolist() == [1.0, 0.0]
    assert not view.flags.writeable
    assert read_only(view) is view


def plain_splitmix(bits: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ bits >> shift) * factor & MASK
    return bits ^ bits >> 31


def plain_content(pairs: list[int], clicks: list[int]) -> int:
    h = 0x9E3779B97F4A7C15
    for pair in pairs:
        h = (h ^ (pair + 1)) * 0xBF58476D1CE4E5B9 & MASK
        h ^= h >> 29
    for click in clicks:
        h = (h ^ (click + 0x10000)) * 0x94D049BB133111EB & MASK
        h ^= h >> 32
    return h >> 33


@given(st.lists(st.integers(0, MASK), max_size=5))
def test_splitmix_is_that_of_plain_integers(bits: list[int]) -> None:
    assert splitmix64(np.array(bits, np.uint64)).tolist() == [plain_splitmix(b) for b in bits]


@given(st.lists(st.tuples(*[st.lists(st.integers(0, 2**31 - 2), max_size=4)] * 2), max_size=6))
def test_hashes_of_content_are_those_of_plain_integers(
    sessions: list[tuple[list[int], list[int]]],
) -> None:
    pair, page = flatten([pairs for pairs, _ in sessions])
    click, clicks = flatten([clicked for _, clicked in sessions])
    hashes = content_hash(pair, page, click, clicks)
    assert hashes.tolist() == [plain_content(*session) for session in sessions]
    sets = page_and_set_hash(pair, page, click, clicks, seed=3)
    turned, _ = flatten([clicked[::-1] for _, clicked in sessions])
    assert np.array_equal(page_and_set_hash(pair, page, turned, clicks, seed=3), sets)
