"""The order of strings against Python's of their bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.engines.local.canonical_order import order_strings

ALIKE = st.text(
    st.sampled_from("\0a\x7fé👟"), max_size=20
)  # strings that share their first bytes, end in zeros, or begin one another


def in_order(texts: list[str], kind: pa.DataType) -> list[str]:
    return [texts[place] for place in order_strings(pa.array(texts, kind))]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@given(
    start=st.sampled_from(["", "ad-", "https://www.shop.example/"]),
    ends=st.lists(ALIKE | st.text(max_size=12), max_size=60),
)
def test_strings_come_in_the_order_of_their_bytes(
    start: str, ends: list[str], kind: pa.DataType
) -> None:
    texts = [start + end for end in ends]
    assert in_order(texts, kind) == sorted(texts, key=str.encode)


def test_ids_told_apart_by_eight_bytes_after_what_they_share() -> None:
    ids = [f"creative-{number:08d}" for number in (7, 10, 99_999_999, 1, 20_000_000)]
    assert in_order(ids, pa.string()) == sorted(ids)


def test_strings_whose_first_eight_bytes_are_equal_are_compared_whole() -> None:
    urls = [f"{site}.example/item/{number}" for number in (30, 4, 12) for site in ("alpha", "beta")]
    assert in_order(urls, pa.string()) == sorted(urls)
