"""JSON for OpenSearch's Search Relevance Workbench: one object, ratings grouped by query."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.exports.judgment_table import GradedPairs
from reclick.exports.request import ExportRequest, ExportResult
from reclick.exports.text_rows import (
    JSON_CODES,
    TEXT,
    concatenate,
    escape,
    get_column,
    write_rows,
)
from reclick.runtime.outputs import write_files

MAX_REQUEST_BYTES = 100 << 20  # OpenSearch's default limit


def write_opensearch(request: ExportRequest) -> ExportResult:
    """Write the body of `PUT _plugins/_search_relevance/judgments`."""
    pairs = GradedPairs.from_request(request)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(_header(request, pairs))
            separator = ""
            for table in pairs.graded_tables():
                write_rows(file, _ratings(table, separator))
                separator = ","
            file.write(b"\n]}\n")

    files = write_files(request.to.parent, {request.to.name: write}, overwrite=request.overwrite)
    note = (
        "the file is over 100 MB, the most that OpenSearch accepts at once by default: export"
        " fewer pairs."
    )
    return pairs.result(files, note if files[0].stat().st_size > MAX_REQUEST_BYTES else "")


def _header(request: ExportRequest, pairs: GradedPairs) -> bytes:
    rule = pairs.rule
    cuts = rule.describe_cuts(pairs.cuts)
    description = (
        f"Reclick, {request.model.name}: grades by cut points {cuts}, level"
        f" {rule.level:g}, of pairs shown {rule.min_support:g} times or more"
    )
    name = request.name or request.to.with_suffix("").name
    start = {"name": name, "description": description, "type": "IMPORT_JUDGMENT"}
    return (json.dumps(start, ensure_ascii=False)[:-1] + ', "judgmentRatings": [').encode()


def _ratings(table: pa.Table, separator: str) -> pa.Array:
    """The ratings of each query between its brackets, after the separator."""
    query_column = get_column(table, "query").dictionary_encode()
    changes = np.diff(query_column.indices.to_numpy()) != 0
    is_first, is_last = pa.array(np.append(True, changes)), pa.array(np.append(changes, True))
    separators = pa.array([separator] + [","] * (len(query_column.dictionary) - 1), TEXT)
    query = escape(query_column.dictionary, JSON_CODES)
    opening = concatenate(separators, '\n{"query": "', query, '", "ratings": [')
    ad, grade = escape(get_column(table, "ad"), JSON_CODES), get_column(table, "grade")
    rating = concatenate('\n  {"docId": "', ad, '", "rating": "', grade, '"}')
    starts = pc.if_else(is_first, opening.take(query_column.indices), pa.scalar(",", TEXT))
    ends = pc.if_else(is_last, pa.scalar("]}", TEXT), pa.scalar("", TEXT))
    return concatenate(starts, rating, ends)
