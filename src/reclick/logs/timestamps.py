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
REAL = 10**14  # microseconds: numbers below (March 1973) are an order, not a time
ISO = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in ("UTC", None)]


def as_times(values: pa.Array) -> pa.Array:
    """Return the times in microseconds, UTC; null where a value is no time.

    Numbers are seconds, milli-, micro- or nanoseconds since 1970 by their size. Text is a number or ISO 8601; without a zone it is UTC.

    >>> as_times(pa.array(["2024-01-01T00:00:00Z", "1704067200000", "2024-01-01 02:00:00+02:00", "soon"])).to_pylist()[1:]
    [datetime.datetime(2024, 1, 1, 0, 0), datetime.datetime(2024, 1, 1, 0, 0), None]
    """
    if kind_of.is_dictionary(values.type):
        return as_times(values.dictionary).take(values.indices)
    if is_string(values.type):
        return _from_text(values.cast(pa.string()))
    if kind_of.is_timestamp(values.type) or kind_of.is_date(values.type):
        return values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False).cast(
            TIME
        )
    if kind_of.is_null(values.type):
        return pa.nulls(len(values), TIME)
    return _from_numbers(values)


def real_times(times: pa.Array) -> pa.Array:
    """Return the times in milliseconds, with those that are only an order (1, 2, 3 …) left out."""
    real = pc.greater_equal(times.cast(pa.int64()), REAL)
    return pc.if_else(real, times, None).cast(pa.timestamp("ms"), safe=False)


def _from_numbers(values: pa.Array) -> pa.Array:
    numbers = values.cast(pa.float64(), safe=False) if kind_of.is_decimal(values.type) else values
    given: npt.NDArray[Any] = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    possible = np.abs(given) < 2**62  # not so for what is no number
    found = np.where(possible, given, 0).astype(
        np.int64 if given.dtype.kind in "iu" else np.float64
    )
    size = np.abs(found)
    micros: npt.NDArray[Any] = np.select(
        [size < 10**11, size < 10**14, size < 10**17],
        [found * 10**6, found * 1000, found],
        found // 1000,
    )
    return pa.array(
        micros.astype(np.int64), pa.int64(), mask=np.asarray(values.is_null()) | ~possible
    ).cast(TIME)


def _from_text(values: pa.Array) -> pa.Array:
    found = _written_alike(values)
    if found is None:
        tidy = pc.replace_substring_regex(pc.utf8_trim_whitespace(values), r" ?UTC$", "Z")
        values = pc.if_else(pc.equal(tidy, ""), None, tidy)
        found = _written_alike(values)
    return _one_by_one(values) if found is None else found


def _written_alike(text: pa.Array) -> pa.Array | None:
    """The times, when all are numbers, or all ISO 8601 with a zone, or all without; None otherwise."""
    first = pc.index(pc.is_valid(text), True).as_py()
    kinds = [pa.int64()] if first >= 0 and text[first].as_py().isdigit() else ISO
    for kind in kinds:
        try:
            found = text.cast(kind)
        except pa.ArrowInvalid:
            continue
        return (
            _from_numbers(found)
            if kind == pa.int64()
            else found.cast(pa.timestamp("us", kind.tz), safe=False).cast(TIME)
        )
    return None


def _one_by_one(text: pa.Array) -> pa.Array:
    coded = text.dictionary_encode()
    return (
        pa.array([_micros(each) for each in coded.dictionary.to_pylist()], pa.int64())
        .cast(TIME)
        .take(coded.indices)
    )


def _micros(text: str) -> int | None:
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
