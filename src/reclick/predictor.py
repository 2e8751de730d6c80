"""Score a file of pages: every column of the input, with click probabilities, expected clicks and the likeliest click sequences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.clicks.distribution import Pages, top_sequences_of_pages
from reclick.clicks.top_k import ANY_LENGTH
from reclick.data.batch import Float64, SessionBatch
from reclick.errors import LogError, SettingError
from reclick.logs import as_log
from reclick.models.base import ClickModel
from reclick.runtime.atomic_write import whole_file
from reclick.runtime.progress import Progress

ADDED = ("click_prob", "expected_clicks", "sequences")
ROW_GROUP = 16  # parts of the log to a row group of the output


def predict(
    model: ClickModel,
    pages: object,
    to: str | Path,
    *,
    top: int = 3,
    progress: Progress | None = None,
) -> int:
    """Write a Parquet file with the pages and what the model expects on them; the number of pages written.

    Added columns: `click_prob` (a list, one probability a position), `expected_clicks`, and `sequences`, the `top` likeliest click sequences with
    their probabilities (none with top=0). The file appears when it is whole.
    """
    if top < 0:
        raise SettingError(f"top: got {top}, expected 0 or more.")
    if Path(to).suffix.lower() not in {".parquet", ".pq"}:
        raise SettingError(
            f"{to}: predictions are written as Parquet. Give a name that ends in .parquet."
        )
    log, to = as_log(pages, clicks_required=False), Path(to)
    if to.is_dir():
        raise LogError(f"{to} cannot be written: it is a folder. Give the path of a Parquet file.")
    with whole_file(to) as beside:
        return _write(
            model.answers(
                log,
                lambda part, parameters: _scored(
                    part, parameters, model.marginals(part, parameters), top
                ),
                with_rows=True,
                progress=progress,
            ),
            beside,
        )


def _write(parts: Iterator[pa.RecordBatch], path: Path) -> int:
    writer, held, written = None, [], 0
    try:
        for part in parts:
            writer = writer or pq.ParquetWriter(path, part.schema, compression="zstd")
            if not part.schema.equals(writer.schema):
                raise LogError(_other_columns(writer.schema, part.schema))
            held.append(part)
            written += part.num_rows
            if len(held) == ROW_GROUP:
                writer.write_table(pa.Table.from_batches(held))
                held = []
        if writer and held:
            writer.write_table(pa.Table.from_batches(held))
    finally:
        if writer:
            writer.close()
    if not written:
        raise LogError(
            "There is no page to score: all rows of the log were dropped. `reclick check` says why."
        )
    return written


def _other_columns(first: pa.Schema, other: pa.Schema) -> str:
    """Say in what the columns of a file differ from those of the first one."""
    differ = sorted({field.name for field in {*first} ^ {*other}})
    return f"The files to score have other columns than the first of them ({', '.join(differ)}), and make no one table. Score them one by one."


def _scored(part: SessionBatch, pages: Pages, probabilities: Float64, top: int) -> pa.RecordBatch:
    """The part's own columns and ours beside them; a column of the input that has the name of one of ours gives way."""
    rows = cast(pa.RecordBatch, part.rows)
    names = [name for name in rows.schema.names if name not in ADDED]
    columns = {name: rows.column(name) for name in names}
    columns["click_prob"] = pa.ListArray.from_arrays(pages.page.astype(np.int32), probabilities)
    columns["expected_clicks"] = pa.array(np.add.reduceat(probabilities, pages.page[:-1]))
    if top:
        columns["sequences"] = _sequences(pages, top)
    return pa.RecordBatch.from_pydict(columns)


def _sequences(pages: Pages, top: int) -> pa.ListArray:
    """The likeliest sequences of each page, as a list of {clicks, probability}."""
    asked = np.full(len(pages.table), ANY_LENGTH)
    places, lengths, probabilities = top_sequences_of_pages(
        pages, asked, top
    )  # [session, place, step], [session, place], [session, place]
    listed = probabilities > 0
    sizes = lengths[listed]
    steps = places[listed]
    clicks = steps[np.arange(steps.shape[1]) < sizes[:, None]]
    lists = pa.ListArray.from_arrays(_starts(sizes), clicks)
    ranked = pa.StructArray.from_arrays(
        [lists, pa.array(probabilities[listed])], names=["clicks", "probability"]
    )
    return pa.ListArray.from_arrays(_starts(listed.sum(axis=1)), ranked)


def _starts(sizes: np.ndarray[tuple[int], np.dtype[np.generic]]) -> pa.Array:
    return pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]).astype(np.int32))
