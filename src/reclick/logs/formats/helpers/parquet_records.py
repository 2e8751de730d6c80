"""Read records from Parquet, nested or flat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.files.archive import LogFile
from reclick.logs.formats.base import Found
from reclick.logs.formats.helpers.json_extract import Keys
from reclick.logs.formats.helpers.parquet_batches import parquet_batches
from reclick.logs.formats.helpers.parse_errors import MEASURED, with_misread
from reclick.logs.formats.helpers.records import Field, numbered, pick


def read_parquet(file: LogFile, fields: Sequence[Field], found: Found) -> Iterator[pa.Table]:
    """The records of a file, with what was misread, and with their rows' numbers from 1 as `number`."""
    names = [".".join(keys) for field in fields for keys in field.places]
    for first, batch in parquet_batches(file, found, lambda _: names):
        given = {field.name: _given(batch, field) for field in fields if field.kind in MEASURED}
        records = with_misread(pick(batch, fields, file.where), given)
        yield numbered(records, np.arange(first, first + batch.num_rows))


def _given(batch: pa.RecordBatch, field: Field) -> list[pa.Array]:
    return [_at(batch, keys) for keys in field.places if _has(batch.schema, keys)]


def _has(schema: pa.Schema, keys: Keys) -> bool:
    inside: pa.Schema | pa.DataType = schema
    for key in keys:
        if not isinstance(inside, pa.Schema | pa.StructType) or inside.get_field_index(key) < 0:
            return False
        inside = inside.field(key).type
    return True


def _at(batch: pa.RecordBatch, keys: Keys) -> pa.Array:
    values = batch.column(keys[0])
    return pc.struct_field(values, list(keys[1:])) if keys[1:] else values
