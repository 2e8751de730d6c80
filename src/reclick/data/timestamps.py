"""Times as people write them: timestamps, seconds to nanoseconds since 1970, and text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind_of

from reclick.data.schema import is_string

TIME = pa.timestamp("us")  # always UTC
FIRST_CLOCK_TIME = 10**14  # microseconds: smaller numbers (before March 1973) are only an order
ISO_TYPES = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in ("UTC", None)]


def as_times(values: pa.Array) -> pa.Array:
    """Return the times in microseconds, UTC; null where a value is not a time.

    Numbers are seconds, milli-, micro- or nanoseconds since 1970 by their size. Text is a number
    or ISO 8601; without a zone it is UTC.

    >>> texts = ["2024-01-01T00:00:00Z", "1704067200000", "2024-01-01 02:00:00+02:00", "soon"]
    >>> as_times(pa.array(texts)).to_pylist()[1:]
    [datetime.datetime(2024, 1, 1, 0, 0), datetime.datetime(2024, 1, 1, 0, 0), None]
    """
    if kind_of.is_dictionary(values.type):
        return as_times(values.dictionary).take(values.indices)
    if is_string(values.type):
        return _from_text(values.cast(pa.string()))
    if kind_of.is_timestamp(values.type) or kind_of.is_date(values.type):
        zone = getattr(values.type, "tz", None)
        return values.cast(pa.timestamp("us", zone), safe=False).cast(TIME)
    if kind_of.is_null(values.type):
        return pa.nulls(len(values), TIME)
    return _from_numbers(values)


def clock_times(times: pa.Array) -> pa.Array:
    """Return the times in milliseconds; null for those that are only an order (1, 2, 3 …)."""
    is_clock_time = pc.greater_equal(times.cast(pa.int64()), FIRST_CLOCK_TIME)
    return pc.if_else(is_clock_time, times, None).cast(pa.timestamp("ms"), safe=False)


def _from_numbers(values: pa.Array) -> pa.Array:
    numbers = values.cast(pa.float64(), safe=False) if kind_of.is_decimal(values.type) else values
    written: npt.NDArray[Any] = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    in_range = np.abs(written) < 2**62  # False for NaN
    kind = np.int64 if written.dtype.kind in "iu" else np.float64
    number = np.where(in_range, written, 0).astype(kind)
    size = np.abs(number)
    micros: npt.NDArray[Any] = np.select(
        [size < 10**11, size < 10**14, size < 10**17],
        [number * 10**6, number * 1000, number],
        number // 1000,
    )
    no_time = np.asarray(values.is_null()) | ~in_range
    return pa.array(micros.astype(np.int64), pa.int64(), mask=no_time).cast(TIME)


def _from_text(values: pa.Array) -> pa.Array:
    times = _parse_uniform(values)
    if times is None:
        trimmed = pc.replace_substring_regex(pc.utf8_trim_whitespace(values), r" ?UTC$", "Z")
        values = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
        times = _parse_uniform(values)
    return _parse_one_by_one(values) if times is None else times


def _parse_uniform(text: pa.Array) -> pa.Array | None:
    """The times if all are numbers, or all ISO 8601 with a zone, or all without; else None."""
    first = pc.index(pc.is_valid(text), True).as_py()
    if first >= 0 and text[first].as_py().isdigit():
        try:
            return _from_numbers(text.cast(pa.int64()))
        except pa.ArrowInvalid:
            return None
    for kind in ISO_TYPES:
        try:
            times = text.cast(kind)
        except pa.ArrowInvalid:
            continue
        return times.cast(pa.timestamp("us", kind.tz), safe=False).cast(TIME)
    return None


def _parse_one_by_one(text: pa.Array) -> pa.Array:
    coded = text.dictionary_encode()
    micros = pa.array([_to_micros(each) for each in coded.dictionary.to_pylist()], pa.int64())
    return micros.cast(TIME).take(coded.indices)


def _to_micros(text: str) -> int | None:
    try:
        number = float(text)
        return int(_from_numbers(pa.array([number]))[0].value) if np.isfinite(number) else None
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 10**6)
