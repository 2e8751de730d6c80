"""Pages that show an ad twice, against a Python set."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.logs.validation.encode import EncodedText
from reclick.logs.validation.validate import SHORT_PAGE, find_repeated_ads

SHORT = st.lists(st.integers(0, 6), max_size=5)
LONG = st.lists(st.integers(0, 60), min_size=SHORT_PAGE + 1, max_size=SHORT_PAGE + 8)


@given(st.lists(SHORT, min_size=1, max_size=30), st.lists(LONG, max_size=2))
def test_a_page_repeats_when_it_has_fewer_ads_than_places(
    short: list[list[int]], long: list[list[int]]
) -> None:
    pages = short + long  # with a long page every page is looked at in another way
    ad = np.array([ad for page in pages for ad in page], np.int32)
    starts = np.concatenate([[0], np.cumsum([len(page) for page in pages])]).astype(np.int64)
    assert find_repeated_ads(ad, 61, starts).tolist() == [
        len(set(page)) < len(page) for page in pages
    ]


def test_equal_ads_of_neighbouring_pages_are_no_repeat() -> None:
    assert (
        find_repeated_ads(
            np.array([0, 1, 0, 1, 2, 2], np.int32), 3, np.array([0, 2, 4, 5, 5, 6])
        ).tolist()
        == [False] * 5
    )


@pytest.mark.parametrize(
    ("codes", "faults", "valid"),
    [([0, 1], [0, 0], True), ([0, -1], [0, 0], False), ([0, 0], [0, 1], False), ([], [], True)],
)
def test_texts_are_valid_without_nulls_and_faults(
    codes: list[int], faults: list[int], valid: bool
) -> None:
    values = pa.array(["a"] * len(faults), pa.string())
    encoded = EncodedText(values, np.array(codes, np.int32), np.array(faults, np.uint8))
    assert encoded.all_valid is valid
