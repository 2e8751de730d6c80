"""Arrow columns whose dictionary codes or offsets are out of range, in memory and in Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.runtime import parquet_layout
from reclick.runtime.parquet_layout import read_layout

FAR = 900_000_000


def code_outside(values: list[str | None], code: int = FAR) -> pa.DictionaryArray:
    """Categorical values whose last code is outside of the dictionary."""
    column = pa.array(values, pa.string()).dictionary_encode()
    codes = [*column.indices.to_pylist()[:-1], code]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int32()), column.dictionary, safe=False
    )


def move_offset(column: pa.Array, row: int, offset: int) -> pa.Array:
    """A column of lists or texts with another offset after the row."""
    buffers = column.buffers()
    wide = pa.types.is_large_list(column.type) or pa.types.is_large_string(column.type)
    offsets = np.frombuffer(buffers[1], np.int64 if wide else np.int32).copy()
    offsets[row] = offset
    is_list = pa.types.is_nested(column.type)
    return pa.Array.from_buffers(
        column.type,
        len(column),
        [buffers[0], pa.py_buffer(offsets), *([] if is_list else buffers[2:])],
        children=[column.values] if is_list else None,
    )


def write_code_outside(path: Path, columns: dict[str, object], name: str) -> Path:
    """Write a table as Parquet; the codes of the column `name`, all "0", become 1 in the file."""
    table = pa.table(columns)
    place = table.column_names.index(name)
    codes = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(len(table), np.int8)), table[name].unique()
    )
    table = table.set_column(place, name, codes)
    pq.write_table(table, path, compression="none", write_statistics=False)
    data = bytearray(path.read_bytes())
    chunks = read_layout(str(path), path.name).groups[0].chunks
    chunk = next(each for each in chunks if each.leaf.path[0] == name)
    with parquet_layout._map_file(str(path)) as mapped:
        page = list(parquet_layout._list_pages(chunk, mapped))[1]
    data[data.rindex(b"\x00", page.start, page.end)] = 1  # the code of the last run
    path.write_bytes(bytes(data))
    return path
