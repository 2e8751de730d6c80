"""Buckets of queries: XXH64, checked against the algorithm in plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reclick.data.hashing import query_buckets, xxh64
from reclick.data.string_index import buffers

P1, P2, P3, P4, P5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)
MASK = 2**64 - 1


def rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def mix_lane(lane: int, word: bytes) -> int:
    return rotate((lane + int.from_bytes(word, "little") * P2) & MASK, 31) * P1 & MASK


def plain_xxh64(data: bytes, seed: int) -> int:
    """XXH64 as its specification states it, with integers of any size."""
    rest = data
    if len(data) >= 32:
        lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
        while len(rest) >= 32:
            words = [rest[8 * i : 8 * i + 8] for i in range(4)]
            lanes = [mix_lane(lane, word) for lane, word in zip(lanes, words, strict=True)]
            rest = rest[32:]
        value = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value ^ mix_lane(0, lane.to_bytes(8, "little"))) * P1 + P4) & MASK
    else:
        value = seed + P5
    value = (value + len(data)) & MASK
    while len(rest) >= 8:
        value = (rotate(value ^ mix_lane(0, rest[:8]), 27) * P1 + P4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        value ^= int.from_bytes(rest[:4], "little") * P1 & MASK
        value, rest = (rotate(value, 23) * P2 + P3) & MASK, rest[4:]
    for byte in rest:
        value = rotate(value ^ (byte * P5 & MASK), 11) * P1 & MASK
    for shift, factor in ((33, P2), (29, P3)):
        value = (value ^ value >> shift) * factor & MASK
    return value ^ value >> 32


def test_the_hashes_of_known_texts() -> None:
    """The first is the test vector of the specification, the others are Spark's own xxhash64."""
    assert plain_xxh64(b"", 0) == 0xEF46DB3751D8E999
    spark = {"pizza": 6363583579097469224, "Spark": -4294468057691064905}
    hashes = xxh64(*buffers(pa.array(list(spark))), 42).view(np.int64)
    assert hashes.tolist() == list(spark.values())


@given(st.lists(st.text(max_size=90), min_size=1), st.integers(0, 2**31))
def test_hashes_are_those_of_the_specification(texts: list[str], seed: int) -> None:
    found = xxh64(*buffers(pa.array(texts)), seed).tolist()
    assert found == [plain_xxh64(text.encode(), seed) for text in texts]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=30), st.integers(1, 300))
def test_a_bucket_follows_from_the_query_alone(queries: list[str], n: int) -> None:
    array = pa.array(queries, pa.large_string())
    buckets = query_buckets(array, n)
    assert ((buckets >= 0) & (buckets < n)).all()
    again = query_buckets(pa.array([queries[-1], *queries])[1:], n)  # with an offset
    assert buckets.tolist() == again.tolist()
    signed = [plain_xxh64(query.encode(), 42) for query in queries]
    assert buckets.tolist() == [(each - 2**64 * (each >= 2**63)) % n for each in signed]


def test_buckets_are_of_about_equal_size() -> None:
    buckets = query_buckets(pa.array([f"query {i}" for i in range(20_000)]), 20)
    sizes = np.bincount(buckets, minlength=20)
    assert sizes.min() > 850
    assert sizes.max() < 1150
