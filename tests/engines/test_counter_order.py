"""The order of strings in counts: by their bytes, as Arrow sorts them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.engines.local import counter
from reclick.engines.local.counter import order_strings

TEXTS = st.sets(st.text(st.sampled_from("ab\0é"), max_size=20), min_size=1)


@pytest.fixture(autouse=True, scope="module")
def _compare_words_of_few_strings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counter, "FEW_STRINGS", 0)
        yield


@given(TEXTS, st.sampled_from(["", "ad", "https://"]))
def test_strings_are_ordered_by_their_bytes(texts: set[str], prefix: str) -> None:
    strings = pa.array([prefix + text for text in texts], pa.large_string())
    expected = pc.array_sort_indices(strings).to_numpy()
    np.testing.assert_array_equal(order_strings(strings), expected)


def test_a_slice_of_strings_is_ordered_too() -> None:
    strings = pa.array(["z", "ad-7", "ad-10", "ad-2"], pa.large_string()).slice(1)
    assert order_strings(strings).tolist() == [1, 2, 0]
