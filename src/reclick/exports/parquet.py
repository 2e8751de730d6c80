"""Parquet with all estimates of a model for every pair: values, intervals, support and grade."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from reclick.exports.judgment_table import GradedPairs, add_settings
from reclick.exports.request import ExportRequest, ExportResult
from reclick.runtime.outputs import write_files


def write_parquet(request: ExportRequest) -> ExportResult:
    """Write every pair; those with too little support have no grade.

    The cut points are in the metadata "reclick" of the file's schema.
    """
    pairs = GradedPairs.from_request(request)

    def write(path: Path) -> None:
        writer = None
        try:
            for table in pairs.tables():
                rows = add_settings(table, pairs.settings())
                writer = writer or pq.ParquetWriter(path, rows.schema, compression="zstd")
                writer.write_table(rows)
        finally:
            if writer:
                writer.close()

    result = pairs.result(
        write_files(request.to.parent, {request.to.name: write}, overwrite=request.overwrite)
    )
    notes = (
        f"{n:,} of the pairs have no grade: they were {reason}."
        for reason, n in result.left_out.items()
    )
    rows = result.rows + sum(result.left_out.values())
    return replace(result, rows=rows, left_out={}, notes=(*result.notes, *notes))
