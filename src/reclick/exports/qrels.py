"""TREC qrels: `query 0 ad grade`, a line a pair. A query's id is its text with white space and % percent-encoded."""

from __future__ import annotations

import pyarrow as pa

from reclick.exports.query_ids import one_word_ads, write_with_queries
from reclick.exports.request import Exported, Job
from reclick.exports.text_rows import ONE_WORD, column, escaped, joined


def write_qrels(job: Job) -> Exported:
    """Write the qrels, and the list of queries beside them."""
    judged = job.judged()
    files = write_with_queries(
        job,
        judged.graded(one_word_ads(job, judged)),
        lambda queries, _: escaped(queries, ONE_WORD),
        _rows,
    )
    return Exported.of(judged, files)


def _rows(table: pa.Table, ids: pa.Array) -> pa.Array:
    return joined(ids, " 0 ", column(table, "ad"), " ", column(table, "grade"), "\n")
