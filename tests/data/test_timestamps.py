"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.data.timestamps import TIME, as_times, clock_times

NOON = datetime(2024, 6, 1, 12, 0)
SECONDS = int(NOON.replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    "values",
    [
        ["2024-06-01T12:00:00Z", "2024-06-01T14:00:00+02:00"],
        ["2024-06-01 14:00:00+0200"],
        ["2024-06-01T12:00:00", "2024-06-01 12:00:00.000"],
        ["2024-06-01T12:00:00.000000000Z"],
        ["2024-06-01 12:00:00 UTC", " 2024-06-01T12:00:00Z "],
        ["2024-06-01T12:00:00", "2024-06-01T12:00:00Z"],
        [str(SECONDS), str(SECONDS * 1000)],
        [f"{SECONDS}.0"],
        [SECONDS, SECONDS * 10**3, SECONDS * 10**6, SECONDS * 10**9],
        [float(SECONDS), SECONDS * 1e3],
    ],
)
def test_every_way_of_writing_noon_is_noon(values: list[Any]) -> None:
    assert as_times(pa.array(values)).to_pylist() == [NOON] * len(values)


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.timestamp("ms"),
        pa.timestamp("us"),
        pa.timestamp("ns"),
        pa.timestamp("ms", "UTC"),
    ],
)
def test_timestamps_are_taken_as_they_are(kind: pa.DataType) -> None:
    assert as_times(pa.array([NOON, None], kind)).to_pylist() == [NOON, None]


def test_a_zone_of_the_column_is_turned_into_utc() -> None:
    given_there = pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin"))
    assert as_times(given_there).to_pylist() == [NOON]


def test_a_day_is_its_first_moment() -> None:
    midnight = [datetime(2024, 6, 1)]
    assert as_times(pa.array([date(2024, 6, 1)])).to_pylist() == midnight
    assert as_times(pa.array(["2024-06-01"])).to_pylist() == midnight


def test_what_is_no_time_is_null_and_the_others_stay() -> None:
    values = ["soon", "", None, "2024-06-01T12:00:00Z", "1717243200000", "nan", "1e400"]
    assert as_times(pa.array(values)).to_pylist() == [None, None, None, NOON, NOON, None, None]


def test_empty_text_beside_numbers_is_null() -> None:
    assert as_times(pa.array(["", str(SECONDS), None])).to_pylist() == [None, NOON, None]


def test_numbers_that_are_none_are_null() -> None:
    assert as_times(
        pa.array([float("nan"), float("inf"), None, float(SECONDS), 1e300])
    ).to_pylist() == [None, None, None, NOON, None]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.int64(), pa.float64(), pa.null(), pa.timestamp("ms"), pa.large_string()],
)
def test_no_values_and_nulls_alone_are_read(kind: pa.DataType) -> None:
    assert as_times(pa.array([], kind)).to_pylist() == []
    assert as_times(pa.nulls(2, kind)).equals(pa.nulls(2, TIME))


def test_coded_values_are_read_as_their_values() -> None:
    coded = pa.array(["2024-06-01T12:00:00Z", None, "2024-06-01T12:00:00Z"]).dictionary_encode()
    assert as_times(coded).to_pylist() == [NOON, None, NOON]


def test_numbers_that_only_tell_the_order_are_no_real_times() -> None:
    ordered = as_times(pa.array([1, 2, SECONDS]))
    assert np.all(np.diff(ordered.cast(pa.int64()).to_numpy()) > 0)
    assert clock_times(ordered).to_pylist() == [None, None, NOON]


@given(
    st.lists(st.datetimes(datetime(1975, 1, 1), datetime(2200, 1, 1)), min_size=1),
    st.sampled_from([0, 2, -7]),
)
def test_text_gives_back_the_times_it_was_written_from(times: list[datetime], hours: int) -> None:
    there = [
        (time.replace(tzinfo=UTC) + timedelta(hours=hours)).replace(tzinfo=None) for time in times
    ]
    text = [
        f"{time.isoformat()}{hours:+03d}:00" if place % 2 else f"{times[place].isoformat()}Z"
        for place, time in enumerate(there)
    ]
    assert as_times(pa.array(text)).to_pylist() == times
    assert as_times(pa.array([time.isoformat() for time in times])).to_pylist() == times
