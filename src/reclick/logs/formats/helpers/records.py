"""Records with named, perhaps nested fields, wherever a log puts them and however it writes them: as flat Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind_of

from reclick.data.batch import Int64
from reclick.data.schema import IDS, TEXT, is_ids, is_number, is_string, is_text
from reclick.errors import LogError
from reclick.logs.formats.helpers.json_extract import Keys
from reclick.logs.timestamps import TIME, as_times

WHOLE, WHEN, THERE = (
    "a whole number",
    "a time",
    "an object",
)  # THERE: whether an object stands there, whatever is in it
ARROW = {
    TEXT: pa.string(),
    IDS: pa.list_(pa.string()),
    WHOLE: pa.int64(),
    WHEN: TIME,
    THERE: pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a record: its name here, its kind, and where it may stand; the first place that has a value counts.

    A place is the keys that lead there. A name with dots, as exports write it, is one key.
    """

    name: str
    kind: str
    places: tuple[Keys, ...]


def nested(*keys: str) -> tuple[Keys, ...]:
    """The places of a nested value: nested, or flat under a name with dots.

    >>> nested("position", "ordinal")
    (('position', 'ordinal'), ('position.ordinal',))
    """
    return keys, (".".join(keys),)


def pick(batch: pa.RecordBatch, fields: Sequence[Field], where: str) -> pa.Table:
    """The fields of some records, a column each; empty text is null.

    >>> events = pa.RecordBatch.from_pydict({"object": [{"id": 7}, None], "id": [None, "b"]})
    >>> pick(events, [Field("ad", TEXT, (("object", "id"), ("id",)))], "table").to_pydict()
    {'ad': ['7', 'b']}
    """
    return pa.table({field.name: _column(batch, field, where) for field in fields})


def numbered(records: pa.Table, numbers: Int64) -> pa.Table:
    """The records with their numbers in the file as one more column."""
    return records.append_column("number", pa.array(numbers, pa.int64()))


def whole_numbers(values: pa.Array) -> pa.Array:
    """Return numbers, or text that holds some, as whole numbers; null where a value is none.

    >>> whole_numbers(pa.array(["3", "4.0", "2.5", "top"])).to_pylist()
    [3, 4, None, None]
    """
    if is_string(values.type):
        values = _from_text(values)
    if kind_of.is_floating(values.type) or kind_of.is_decimal(values.type):
        numbers = values.cast(pa.float64())
        whole = pc.and_(pc.equal(numbers, pc.floor(numbers)), pc.less(pc.abs(numbers), 2.0**53))
        values = pc.if_else(whole, numbers, None)
    return values.cast(pa.int64())


def text(values: pa.Array) -> pa.Array:
    """Return text or whole-number ids as text, and null for empty text."""
    if kind_of.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind_of.is_floating(values.type):  # as ids beside nulls come from pandas
        values = values.cast(pa.int64())
    values = values.cast(pa.string())
    empty = pc.equal(values, "")
    return pc.if_else(empty, None, values) if pc.any(empty).as_py() else values


def _from_text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.float64())
    except pa.ArrowInvalid:
        number = pc.match_substring_regex(values, r"^\s*-?\d{1,15}(\.0*)?\s*$")
        return pc.utf8_trim_whitespace(pc.if_else(number, values, None)).cast(pa.float64())


def _column(batch: pa.RecordBatch, field: Field, where: str) -> pa.Array:
    given = [
        _as_kind(values, field, where)
        for keys in field.places
        if (values := _at(batch, keys)) is not None
    ]
    if field.kind == THERE:
        return reduce(pc.or_, given, pa.repeat(False, batch.num_rows))
    filled = [values for values in given if values.null_count < len(values)]
    if not filled:
        return pa.nulls(batch.num_rows, ARROW[field.kind])
    return filled[0] if len(filled) == 1 or filled[0].null_count == 0 else pc.coalesce(*filled)


def _at(batch: pa.RecordBatch, keys: Keys) -> pa.Array | None:
    if keys[0] not in batch.schema.names:
        return None
    values = batch.column(keys[0])
    for key in keys[1:]:
        if not kind_of.is_struct(values.type) or values.type.get_field_index(key) < 0:
            return None
        values = pc.struct_field(values, key)
    return values


def _as_kind(values: pa.Array, field: Field, where: str) -> pa.Array:
    accepts, convert = KINDS[field.kind]
    if not accepts(values.type):
        raise LogError(
            f"{field.name} in {where}: expected {field.kind}, got {values.type}. Is the log of this format?"
        )
    return convert(values)


def _is_time(got: pa.DataType) -> bool:
    return (
        is_string(got) or is_number(got) or kind_of.is_temporal(got) or kind_of.is_dictionary(got)
    )


Accepts = Callable[[pa.DataType], bool]
KINDS: dict[str, tuple[Accepts, Callable[[pa.Array], pa.Array]]] = {
    TEXT: (lambda got: is_text(got) or kind_of.is_floating(got), text),
    IDS: (is_ids, lambda values: values.cast(ARROW[IDS])),
    WHOLE: (lambda got: is_number(got) or is_string(got), whole_numbers),
    WHEN: (_is_time, as_times),
    THERE: (lambda got: kind_of.is_struct(got) or is_string(got), pc.is_valid),
}
