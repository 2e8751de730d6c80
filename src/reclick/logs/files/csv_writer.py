"""Write batches of rows as CSV: lists as Reclick reads them, other nested values as JSON."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import types as arrow_types

from reclick.data.schema import is_list

SEPARATOR = "|"
NEEDS_JSON = re.compile(r"[\[\]|\s]")  # a list with such an id is written as JSON
DIGITS = ".6g"


def write_csv(batches: Iterable[pa.RecordBatch], path: Path, *, compress: bool = False) -> None:
    """Write batches of one schema, with a header.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "pages.csv"
    >>> write_csv([pa.record_batch({"query": ["pizza"], "ads": [["a", "b"]]})], file)
    >>> file.read_text().split()
    ['query,ads', 'pizza,a|b']
    """
    open_file: Any = gzip.open if compress else open
    with open_file(path, "wt", encoding="utf-8", newline="") as file:
        writer, header = csv.writer(file, lineterminator="\n"), False
        for batch in batches:
            if not header:
                writer.writerow(batch.schema.names)
                header = True
            columns = [_format_column(column) for column in batch.columns]
            writer.writerows(zip(*columns, strict=True))


def _format_column(column: pa.Array) -> list[Any]:
    values = column.to_pylist()
    if arrow_types.is_floating(column.type):
        return [None if value is None else format(value, DIGITS) for value in values]
    if is_list(column.type) and _holds_sequences(column.type.value_type):
        return [None if value is None else _format_sequences(value) for value in values]
    if is_list(column.type) and not arrow_types.is_nested(column.type.value_type):
        return [None if value is None else _format_list(value) for value in values]
    if arrow_types.is_nested(column.type):
        return [None if value is None else json.dumps(value, default=str) for value in values]
    return list(values)


def _format_list(values: list[Any]) -> str:
    texts = [format(each, DIGITS) if isinstance(each, float) else str(each) for each in values]
    if None in values or any(not text or NEEDS_JSON.search(text) for text in texts):
        return json.dumps(values, ensure_ascii=False)
    return SEPARATOR.join(texts)


def _holds_sequences(kind: pa.DataType) -> bool:
    return bool(arrow_types.is_struct(kind)) and {each.name for each in kind} == {
        "clicks",
        "probability",
    }


def _format_sequences(sequences: list[dict[str, Any]]) -> str:
    """The clicks of each sequence and its probability: 2>1=0.25|=0.5 (the second is no click)."""
    return SEPARATOR.join(
        f"{'>'.join(map(str, each['clicks']))}={each['probability']:{DIGITS}}" for each in sequences
    )
