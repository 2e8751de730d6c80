"""Buckets of queries: the numbers of the reference implementation of XXH64 with seed 42."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reclick.data.hashing import QUERY_SEED, _xxhash64, query_buckets
from reclick.data.string_index import buffers

# Computed with the PyPI package xxhash 3.x: xxh64(text.encode(), seed=42), as a signed number.
REFERENCE = {
    "": -7444071767201028348,
    "a": -8582455328737087284,
    "abc": 1423657621850124518,
    "pizza": 6363583579097469224,
    "12345678": 6863040065134489090,
    "hotel prague": 4245366561141737006,
    "naïve café": 6059402778485971606,
    "東京 ラーメン": -7499070850147094228,
    "x" * 31: -1716462135722163746,
    "y" * 32: 5202031258905353636,
    "z" * 33: -8411362631970189001,
    "again and again " * 6: -6142164593625368640,
}


def test_hashes_are_those_of_the_reference() -> None:
    for strings in (pa.array(list(REFERENCE)), pa.array(list(REFERENCE), pa.large_string())):
        assert _xxhash64(*buffers(strings), QUERY_SEED).tolist() == list(REFERENCE.values())


def test_a_bucket_is_the_positive_remainder_of_the_signed_hash() -> None:
    for buckets in (1, 7, 64, 200):
        found = query_buckets(pa.array(list(REFERENCE)), buckets)
        assert found.tolist() == [value % buckets for value in REFERENCE.values()]


def test_a_slice_of_strings_has_the_buckets_of_its_rows() -> None:
    strings = pa.array(list(REFERENCE))
    np.testing.assert_array_equal(query_buckets(strings[3:], 200), query_buckets(strings, 200)[3:])
    assert len(query_buckets(pa.array([], pa.string()), 5)) == 0
