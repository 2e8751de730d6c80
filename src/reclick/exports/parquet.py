"""Parquet of all that the model believes of every pair, with intervals, support and grade."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from reclick.exports.judgment_table import with_settings
from reclick.exports.request import Exported, Job
from reclick.runtime.atomic_write import write_files


def write_parquet(job: Job) -> Exported:
    """Write every pair; those with too little support have no grade. The cut points are in the file's schema, under "reclick"."""
    judged = job.judged()

    def write(path: Path) -> None:
        writer = None
        try:
            for table in judged.tables():
                kept = with_settings(table, judged.settings())
                writer = writer or pq.ParquetWriter(path, kept.schema, compression="zstd")
                writer.write_table(kept)
        finally:
            if writer:
                writer.close()

    found = Exported.of(judged, write_files(job.to.parent, {job.to.name: write}))
    without = [
        f"{many:,} of the pairs have no grade: they were {reason}."
        for reason, many in found.left_out.items()
    ]
    return replace(
        found,
        rows=found.rows + sum(found.left_out.values()),
        left_out={},
        notes=(*found.notes, *without),
    )
