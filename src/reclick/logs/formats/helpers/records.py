"""Convert records, whose fields may be nested, to flat Arrow tables; read them from Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as arrow_types

from reclick.data.arrow_checks import check_batch_codes, find_invalid_utf8
from reclick.data.batch import Int64
from reclick.data.ragged import Bool
from reclick.data.schema import IDS, TEXT, is_ids, is_list, is_number, is_string, is_text
from reclick.data.timestamps import TIME, as_times
from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import BATCH_SESSIONS, ReadReport
from reclick.logs.read_summary import MAX_EXAMPLES
from reclick.logs.validation.reasons import NOT_READABLE
from reclick.runtime.filesystem import arrow_input, as_path
from reclick.runtime.parquet_layout import damaged_parquet_error, read_layout

KeyPath = tuple[str, ...]  # the keys that lead to a value

# Kinds of fields, as messages name them. PRESENT: whether there is an object, of any content.
WHOLE_NUMBER, TIMESTAMP, PRESENT = "a whole number", "a time", "an object"
PARSED_KINDS = (WHOLE_NUMBER, TIMESTAMP)  # kinds whose values may be unreadable
FIELD_TYPES = {
    TEXT: pa.string(),
    IDS: pa.list_(pa.string()),
    WHOLE_NUMBER: pa.int64(),
    TIMESTAMP: TIME,
    PRESENT: pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record: its name here, its kind, and the paths it may have in a log.

    The first path that has a value is used. A name with dots, as exports write it, is one key.
    """

    name: str
    kind: str
    paths: tuple[KeyPath, ...]


def nested_or_flat(*keys: str) -> tuple[KeyPath, ...]:
    """The paths of a nested value: nested, or flat under a name with dots.

    >>> nested_or_flat("position", "ordinal")
    (('position', 'ordinal'), ('position.ordinal',))
    """
    return keys, (".".join(keys),)


def select_fields(batch: pa.RecordBatch, fields: Sequence[RecordField], where: str) -> pa.Table:
    """The fields of records as columns; empty text is null.

    >>> events = pa.RecordBatch.from_pydict({"object": [{"id": 7}, None], "id": [None, "b"]})
    >>> ad = RecordField("ad", TEXT, (("object", "id"), ("id",)))
    >>> select_fields(events, [ad], "table").to_pydict()
    {'ad': ['7', 'b']}
    """
    return pa.table({field.name: _select_field(batch, field, where) for field in fields})


def add_numbers(records: pa.Table, numbers: Int64) -> pa.Table:
    """Add the numbers of the records in their file as a column."""
    return records.append_column("number", pa.array(numbers, pa.int64()))


def to_whole_numbers(values: pa.Array) -> pa.Array:
    """Convert numbers, or text with numbers, to whole numbers; null for other values.

    >>> to_whole_numbers(pa.array(["3", "4.0", "2.5", "top"])).to_pylist()
    [3, 4, None, None]
    """
    if is_string(values.type):
        values = _parse_floats(values)
    if arrow_types.is_floating(values.type) or arrow_types.is_decimal(values.type):
        numbers = values.cast(pa.float64())
        whole = pc.and_(pc.equal(numbers, pc.floor(numbers)), pc.less(pc.abs(numbers), 2.0**53))
        values = pc.if_else(whole, numbers, None)
    return values.cast(pa.int64())


def to_text(values: pa.Array) -> pa.Array:
    """Convert text or whole-number ids to text; null for empty text and other numbers."""
    values = ids_to_text(as_plain_text(values))
    empty = pc.equal(values, "")
    return pc.if_else(empty, None, values) if pc.any(empty).as_py() else values


def as_plain_text(values: pa.Array) -> pa.Array:
    """Values without a dictionary, and text without views: few functions of Arrow take these.

    Text need not be UTF-8.
    """
    if arrow_types.is_dictionary(values.type):
        return as_plain_text(values.dictionary).take(values.indices)
    return values.cast(pa.large_string()) if arrow_types.is_string_view(values.type) else values


def ids_to_text(ids: pa.Array) -> pa.Array:
    """Convert ids to text; numbers that are not whole become null."""
    if arrow_types.is_float16(ids.type):  # which Arrow cannot compute with
        ids = pa.array(ids.to_numpy(zero_copy_only=False).astype(np.float64))
    if arrow_types.is_floating(ids.type):  # whole numbers with nulls, as they come from pandas
        is_whole = pc.and_(pc.equal(pc.floor(ids), ids), pc.less(pc.abs(ids), 2.0**53))
        ids = pc.if_else(is_whole, ids, None).cast(pa.int64())
    return ids.cast(pa.string())


# ---- values that cannot be parsed: they are kept as text, and the reader of a format reports them


def unparsed_column(name: str) -> str:
    """The name of the column with the unreadable values of a field."""
    return f"{name} as written"


def add_unparsed(records: pa.Table, texts: Mapping[str, Sequence[pa.Array]]) -> pa.Table:
    """Add a column with the unreadable values of each parsed field.

    `texts` has the unparsed values of each field, one array per path.
    """
    for name, values in texts.items():
        unparsed = find_unparsed(values, records[name])
        records = records.append_column(unparsed_column(name), unparsed)
    return records


def find_unparsed(values_by_path: Sequence[pa.Array], results: pa.ChunkedArray) -> pa.Array:
    """The text of values that could not be parsed; null if one could, or if there is no value.

    >>> parsed = pa.chunked_array([[3, None, None, None]])
    >>> find_unparsed([pa.array(["3", "top", "", None])], parsed).to_pylist()
    [None, 'top', '', None]
    """
    columns = [_nan_to_null(values) for values in values_by_path if values.null_count < len(values)]
    # In nearly all cases, all values could be parsed.
    if not columns or _count_any_valid(columns) == len(results) - results.null_count:
        return pa.nulls(len(results), pa.string())
    texts = [values.cast(pa.string()) for values in columns]
    not_empty = [pc.if_else(pc.equal(text, ""), None, text) for text in texts]
    return pc.if_else(results.combine_chunks().is_null(), pc.coalesce(*not_empty, *texts), None)


def _count_any_valid(columns: Sequence[pa.Array]) -> int:
    """The number of rows in which at least one column has a value."""
    if len(columns) == 1:
        return int(len(columns[0]) - columns[0].null_count)
    return int(pc.sum(reduce(pc.or_, [values.is_valid() for values in columns])).as_py())


def _nan_to_null(values: pa.Array) -> pa.Array:
    """Replace NaN by null, since some exports write null as NaN."""
    if not arrow_types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), None, values)


# ---- Parquet


def read_parquet_batches(
    file: LogFile, report: ReadReport, choose_columns: Callable[[pq.ParquetFile], list[str]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of a file, each with the number of its first row, from 1.

    `choose_columns` returns the columns to read, or the leaves of nested ones.
    """
    if not file.is_parquet:
        raise LogError(
            f"{file.where} is not a Parquet file, which this format is read from. "
            "Export the log as Parquet."
        )
    if file.member is not None:
        raise LogError(
            f"{file.where} is Parquet inside an archive, which cannot be read in place. Unpack it."
        )
    first, size = 1, as_path(file.path).stat().st_size
    try:
        with pq.ParquetFile(arrow_input(file.path), pre_buffer=False) as source:
            _refuse_repeated_columns(source.schema_arrow.names, file.where)
            columns = choose_columns(source)
            for groups, limit in read_layout(file.path, file.where).limit_rows(columns):
                rows = min(BATCH_SESSIONS, limit)
                for batch in source.iter_batches(rows, row_groups=groups, columns=columns):
                    check_batch_codes(batch, file.where)
                    yield first, batch
                    first += batch.num_rows
                    report.add_records(batch.num_rows)
                    report.advance(size * batch.num_rows // max(source.metadata.num_rows, 1))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise damaged_parquet_error(file.where, error) from error


def _refuse_repeated_columns(names: list[str], where: str) -> None:
    repeated_names = [name for name, count in Counter(names).items() if count > 1]
    if repeated_names:
        raise LogError(
            f"{where} has two columns named {repeated_names[0]!r:.80}. Rename one of them."
        )


def read_parquet_records(
    file: LogFile, fields: Sequence[RecordField], report: ReadReport
) -> Iterator[pa.Table]:
    """Yield the records of a file, with unparsed values, and with row numbers as `number`."""
    names = [".".join(path) for field in fields for path in field.paths]
    parsed_fields = [field for field in fields if field.kind in PARSED_KINDS]
    for first, batch in read_parquet_batches(file, report, lambda _: names):
        batch, numbers = drop_invalid_text(batch, first, file, report)  # noqa: PLW2901
        texts = {
            field.name: [
                values for path in field.paths if (values := _get_path(batch, path)) is not None
            ]
            for field in parsed_fields
        }
        yield add_numbers(add_unparsed(select_fields(batch, fields, file.where), texts), numbers)


def drop_invalid_text(
    batch: pa.RecordBatch, first: int, file: LogFile, report: ReadReport
) -> tuple[pa.RecordBatch, Int64]:
    """Return the rows whose text is UTF-8, which Parquet does not check, and their numbers.

    `first` is the number of the first row. The other rows are bad rows.
    """
    numbers = np.arange(first, first + batch.num_rows)
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        columns = zip(batch.schema.names, batch.columns, strict=True)
        invalid = {name: np.flatnonzero(is_invalid_text(values)) for name, values in columns}
        rows = {row: f"{name}: not UTF-8" for name in invalid for row in invalid[name].tolist()}
        if not rows:
            raise LogError(f"{file.where} is damaged: {error}. Export it again.") from error
        examples = [(file.where, first + row, got) for row, got in sorted(rows.items())]
        report.add_bad_rows(NOT_READABLE, len(rows), examples[:MAX_EXAMPLES])
        is_valid = ~np.isin(numbers, first + np.array([*rows]))
        batch, numbers = batch.filter(pa.array(is_valid)), numbers[is_valid]
    return batch, numbers


def is_invalid_text(values: pa.Array) -> Bool:
    """Whether each value is text that is not UTF-8, or contains such text."""
    out = np.zeros(len(values), np.bool_)
    if arrow_types.is_struct(values.type):
        for index in range(values.type.num_fields):
            out |= is_invalid_text(pc.struct_field(values, index))
    elif is_list(values.type):
        sizes = pc.list_value_length(values).fill_null(0).to_numpy()  # a null list may have values
        parents = np.arange(len(values)).repeat(sizes)
        out[parents[is_invalid_text(pc.list_flatten(values))]] = True
    elif arrow_types.is_dictionary(values.type):
        is_invalid = np.append(is_invalid_text(values.dictionary), False)  # the last is for null
        codes = values.indices.cast(pa.int64()).fill_null(len(values.dictionary))
        out = is_invalid[codes.to_numpy()]
    elif is_string(values.type):
        out[find_invalid_utf8(values)] = True
    return out


# ---- one field


def _parse_floats(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.float64())
    except pa.ArrowInvalid:
        is_number_text = pc.match_substring_regex(values, r"^\s*-?\d{1,15}(\.0*)?\s*$")
        numbers = pc.utf8_trim_whitespace(pc.if_else(is_number_text, values, None))
        return numbers.cast(pa.float64())


def _select_field(batch: pa.RecordBatch, field: RecordField, where: str) -> pa.Array:
    columns = [
        _convert(values, field, where)
        for path in field.paths
        if (values := _get_path(batch, path)) is not None
    ]
    if field.kind == PRESENT:
        return reduce(pc.or_, columns, pa.repeat(False, batch.num_rows))
    candidates = [values for values in columns if values.null_count < len(values)]
    if not candidates:
        return pa.nulls(batch.num_rows, FIELD_TYPES[field.kind])
    return (
        candidates[0]
        if len(candidates) == 1 or candidates[0].null_count == 0
        else pc.coalesce(*candidates)
    )


def _get_path(batch: pa.RecordBatch, path: KeyPath) -> pa.Array | None:
    if path[0] not in batch.schema.names:
        return None
    values = batch.column(path[0])
    for key in path[1:]:
        if not arrow_types.is_struct(values.type) or values.type.get_field_index(key) < 0:
            return None
        values = pc.struct_field(values, key)
    return values


def _convert(values: pa.Array, field: RecordField, where: str) -> pa.Array:
    accepts, convert = FIELD_CONVERTERS[field.kind]
    if not accepts(values.type):
        raise LogError(
            f"{field.name} in {where}: expected {field.kind}, got {values.type}. "
            "Is the log in this format?"
        )
    return convert(values)


def _may_be_time(kind: pa.DataType) -> bool:
    is_temporal = arrow_types.is_temporal(kind) or arrow_types.is_dictionary(kind)
    return is_temporal or is_string(kind) or is_number(kind)


Accepts = Callable[[pa.DataType], bool]
FIELD_CONVERTERS: dict[str, tuple[Accepts, Callable[[pa.Array], pa.Array]]] = {
    TEXT: (lambda kind: is_text(kind) or arrow_types.is_floating(kind), to_text),
    IDS: (is_ids, lambda values: values.cast(FIELD_TYPES[IDS])),
    WHOLE_NUMBER: (lambda kind: is_number(kind) or is_string(kind), to_whole_numbers),
    TIMESTAMP: (_may_be_time, as_times),
    PRESENT: (lambda kind: arrow_types.is_struct(kind) or is_string(kind), pc.is_valid),
}
