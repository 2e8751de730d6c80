"""Judgments as the Search Relevance Workbench of OpenSearch imports them: one JSON object, ratings as text, grouped by query."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.exports.judgment_table import Judged
from reclick.exports.request import Exported, Job
from reclick.exports.text_rows import IN_JSON, TEXT, column, escaped, joined, write_rows
from reclick.runtime.atomic_write import write_files

LIMIT = 100 << 20  # bytes of a request that OpenSearch takes unless it was told otherwise


def write_opensearch(job: Job) -> Exported:
    """Write the body of `PUT _plugins/_search_relevance/judgments`."""
    judged = job.judged()

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(_head(job, judged))
            before = ""
            for table in judged.graded():
                write_rows(file, _rows(table, before))
                before = ","
            file.write(b"\n]}\n")

    files = write_files(job.to.parent, {job.to.name: write})
    large = "the file is over 100 MB, the most that OpenSearch takes at once by default: export fewer pairs."
    return Exported.of(judged, files, large if files[0].stat().st_size > LIMIT else "")


def _head(job: Job, judged: Judged) -> bytes:
    settings = judged.settings()
    cuts = ", ".join(f"{cut:.6g}" for cut in judged.cuts)
    about = (
        f"Reclick, {settings['model']}: grades by cut points {cuts} on {judged.rule.figure}, level {judged.rule.level:g}, "
        f"of pairs shown {judged.rule.min_support:g} times or more"
    )
    start = {"name": job.name or job.to.stem, "description": about, "type": "IMPORT_JUDGMENT"}
    return (json.dumps(start, ensure_ascii=False)[:-1] + ', "judgmentRatings": [').encode()


def _rows(table: pa.Table, before: str) -> pa.Array:
    """The ratings of each query between its brackets; `before` stands before the first of them."""
    coded = column(table, "query").dictionary_encode()
    turns = np.diff(coded.indices.to_numpy()) != 0
    first, last = np.append(True, turns), np.append(turns, True)
    commas = pa.array([before] + [","] * (len(coded.dictionary) - 1), TEXT)
    opening = joined(commas, '\n{"query": "', escaped(coded.dictionary, IN_JSON), '", "ratings": [')
    rating = joined(
        '\n  {"docId": "',
        escaped(column(table, "ad"), IN_JSON),
        '", "rating": "',
        column(table, "grade"),
        '"}',
    )
    starts = pc.if_else(pa.array(first), opening.take(coded.indices), pa.scalar(",", TEXT))
    return joined(
        starts, rating, pc.if_else(pa.array(last), pa.scalar("]}", TEXT), pa.scalar("", TEXT))
    )
