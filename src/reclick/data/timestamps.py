"""Times as people write them: timestamps, seconds to nanoseconds since 1970, and text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow_types

from reclick.data.schema import is_string

TIME = pa.timestamp("us")  # always UTC
FIRST_CLOCK_TIME = 10**14  # microseconds: smaller numbers (before March 1973) only give an order
# The years 1 to 9999, in microseconds; a time outside of them becomes null.
FIRST_TIME, LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999
UNITS = {"s": 10**6, "ms": 1000}  # microseconds of the units that may overflow
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
ISO_TYPES = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in ("UTC", None)]


def as_times(values: pa.Array) -> pa.Array:
    """Return the times in microseconds, UTC; null where a value is not a time.

    Numbers are seconds, milli-, micro- or nanoseconds since 1970 by their size. Text is a number
    or ISO 8601; without a zone it is UTC. A year before 1 or after 9999 is not a time.

    >>> texts = ["2024-01-01T00:00:00Z", "1704067200000", "2024-01-01 02:00:00+02:00", "soon"]
    >>> as_times(pa.array(texts)).to_pylist()[1:]
    [datetime.datetime(2024, 1, 1, 0, 0), datetime.datetime(2024, 1, 1, 0, 0), None]
    """
    if arrow_types.is_dictionary(values.type):
        return as_times(values.dictionary).take(values.indices)
    if is_string(values.type):
        return _from_text(values.cast(pa.string()))
    if arrow_types.is_timestamp(values.type) or arrow_types.is_date(values.type):
        return _from_timestamps(values)
    if arrow_types.is_null(values.type):
        return pa.nulls(len(values), TIME)
    return _from_numbers(values)


def clock_times(times: pa.Array) -> pa.Array:
    """Return the times in milliseconds; null for numbers that only give an order (1, 2, 3 …)."""
    is_clock_time = pc.greater_equal(times.cast(pa.int64()), FIRST_CLOCK_TIME)
    return pc.if_else(is_clock_time, times, None).cast(pa.timestamp("ms"), safe=False)


def _from_timestamps(values: pa.Array) -> pa.Array:
    if arrow_types.is_date(values.type):
        values = values.cast(pa.timestamp("ms"), safe=False)
    factor = UNITS.get(values.type.unit)
    if factor is not None:  # the cast would turn a time that does not fit microseconds into another
        values = _keep_between(values, FIRST_TIME // factor, LAST_TIME // factor)
    return _keep_years(values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(TIME))


def _keep_years(times: pa.Array) -> pa.Array:
    """The times; null for those outside the calendar."""
    return _keep_between(times, FIRST_TIME, LAST_TIME)


def _keep_between(times: pa.Array, low: int, high: int) -> pa.Array:
    numbers = times.cast(pa.int64())
    ends = pc.min_max(numbers)
    if not ends["min"].is_valid or (ends["min"].as_py() >= low and ends["max"].as_py() <= high):
        return times  # as nearly always
    is_between = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(is_between, times, None)


def _from_numbers(values: pa.Array) -> pa.Array:
    numbers = (
        values.cast(pa.float64(), safe=False) if arrow_types.is_decimal(values.type) else values
    )
    number_array: npt.NDArray[Any] = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    in_range = (number_array < 2**62) & (number_array > -(2**62))  # False for NaN
    kind = np.int64 if number_array.dtype.kind in "iu" else np.float64
    finite_numbers = np.where(in_range, number_array, 0).astype(kind)
    size = np.abs(finite_numbers)
    micros: npt.NDArray[Any] = np.select(
        [size < 10**11, size < 10**14, size < 10**17],
        [finite_numbers * 10**6, finite_numbers * 1000, finite_numbers],
        finite_numbers // 1000,
    )
    is_missing = np.asarray(values.is_null()) | ~in_range
    return _keep_years(pa.array(micros.astype(np.int64), pa.int64(), mask=is_missing).cast(TIME))


def _from_text(values: pa.Array) -> pa.Array:
    times = _parse_uniform(values)
    if times is None:
        trimmed = pc.replace_substring_regex(pc.utf8_trim_whitespace(values), r" ?UTC$", "Z")
        values = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
        times = _parse_uniform(values)
    return _parse_one_by_one(values) if times is None else times


def _parse_uniform(text: pa.Array) -> pa.Array | None:
    """Parse texts of one kind: all numbers, all ISO 8601 with a zone, or all without; else None."""
    first = pc.index(pc.is_valid(text), True).as_py()
    if first >= 0 and NUMBER.fullmatch(text[first].as_py()):
        try:
            return _from_numbers(text.cast(pa.int64()))
        except pa.ArrowInvalid:
            return None
    for kind in ISO_TYPES:
        try:
            times = text.cast(kind)
        except pa.ArrowInvalid:
            continue
        return _keep_years(times.cast(pa.timestamp("us", kind.tz), safe=False).cast(TIME))
    return None


def _parse_one_by_one(text: pa.Array) -> pa.Array:
    dictionary_array = text.dictionary_encode()
    micros = pa.array(
        [_to_micros(each) for each in dictionary_array.dictionary.to_pylist()], pa.int64()
    )
    return micros.cast(TIME).take(dictionary_array.indices)


def _to_micros(text: str) -> int | None:
    if NUMBER.fullmatch(text):
        micros = _from_numbers(pa.array([float(text)]))[0].value  # None out of range
        return None if micros is None else int(micros)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    micros = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return micros if FIRST_TIME <= micros <= LAST_TIME else None
