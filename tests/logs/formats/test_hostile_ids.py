"""Ids of records that are numbers which are not whole: no ids, whatever the type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from reclick.logs.formats.helpers.records import to_text


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_numbers_that_are_not_whole_are_no_ids(kind: type) -> None:
    ids = pa.array(np.array([1, 2.5, np.inf, -np.inf, np.nan, 3], kind))
    assert to_text(ids).to_pylist() == ["1", None, None, None, None, "3"]


def test_numbers_too_large_for_a_whole_number_are_no_ids() -> None:
    assert to_text(pa.array([1e300, None, 7.0])).to_pylist() == [None, None, "7"]
