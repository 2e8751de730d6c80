"""What stands where a number or a time should and is none: kept as it was written, for the reader of a format to tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind_of

from reclick.logs.formats.helpers.records import WHEN, WHOLE

MEASURED = (WHOLE, WHEN)  # the kinds of fields that are not text


def as_written(name: str) -> str:
    """The column with what was misread of a field."""
    return f"{name} as written"


def with_misread(records: pa.Table, given: Mapping[str, Sequence[pa.Array]]) -> pa.Table:
    """The records with a column more for each field of `given`, which holds the field's values as they came, those of its first place first."""
    for name, values in given.items():
        records = records.append_column(as_written(name), misread(values, records[name]))
    return records


def misread(given: Sequence[pa.Array], found: pa.ChunkedArray) -> pa.Array:
    """The text of values in which nothing was found; null where something was found or nothing given.

    >>> misread([pa.array(["3", "top", "", None])], pa.chunked_array([[3, None, None, None]])).to_pylist()
    [None, 'top', '', None]
    """
    filled = [_without_nan(values) for values in given if values.null_count < len(values)]
    if not filled or _many(filled) == len(found) - found.null_count:  # nearly always
        return pa.nulls(len(found), pa.string())
    texts = [values.cast(pa.string()) for values in filled]
    said = [pc.if_else(pc.equal(text, ""), None, text) for text in texts]
    return pc.if_else(found.combine_chunks().is_null(), pc.coalesce(*said, *texts), None)


def _many(filled: Sequence[pa.Array]) -> int:
    """In how many records there is a value."""
    if len(filled) == 1:
        return int(len(filled[0]) - filled[0].null_count)
    return int(pc.sum(reduce(pc.or_, [values.is_valid() for values in filled])).as_py())


def _without_nan(values: pa.Array) -> pa.Array:
    """The values; what is no number in a column of numbers is how some write that there is none."""
    return (
        pc.if_else(pc.is_nan(values), None, values) if kind_of.is_floating(values.type) else values
    )
