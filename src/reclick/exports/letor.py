"""LETOR's text for learning to rank: `grade qid:number 1:value 2:value … # ad query`, a line a pair, the pairs of a query together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.exports.features import Features, OwnFeatures, TableFeatures
from reclick.exports.judgment_table import Judged
from reclick.exports.query_ids import one_word_ads, write_with_queries
from reclick.exports.request import Exported, Job
from reclick.exports.text_rows import ONE_LINE, TEXT, column, escaped, for_each_query, joined


def write_letor(job: Job) -> Exported:
    """Write the lines, after two that name the features and the cut points, and the list of queries beside them."""
    judged = job.judged()
    features: Features = OwnFeatures() if job.features is None else TableFeatures(job.features)

    def known(table: pa.Table) -> pa.Table:
        _, unknown = features.of(table)
        return (
            judged.leave_out(table, unknown, "that have no features")
            if unknown.true_count
            else table
        )

    tables = judged.graded(one_word_ads(job, judged), known)
    files = write_with_queries(
        job,
        tables,
        _numbers,
        lambda table, ids: _rows(table, ids, features),
        _head(judged, features),
    )
    own = (
        "the features are those the grades were made from: to learn a ranking, give your own with features."
        if job.features is None
        else ""
    )
    return Exported.of(judged, files, own)


def _head(judged: Judged, features: Features) -> str:
    names = ", ".join(
        f"{number} {escaped(pa.array([name]), ONE_LINE)[0]}"
        for number, name in enumerate(features.names, 1)
    )
    cuts = ", ".join(f"{cut:.6g}" for cut in judged.cuts)
    return f"# features: {names}\n# grades: cut points {cuts} on {judged.rule.figure}, pairs shown {judged.rule.min_support:g} times or more\n"


def _numbers(queries: pa.Array, before: int) -> pa.Array:
    """The queries' numbers, from 1, in the order of the file."""
    return pa.array(np.arange(before + 1, before + 1 + len(queries))).cast(TEXT)


def _rows(table: pa.Table, ids: pa.Array, features: Features) -> pa.Array:
    values, _ = features.of(table)
    cells = [_cell(number, value) for number, value in enumerate(values, 1)]
    about = (
        column(table, "ad"),
        " ",
        for_each_query(column(table, "query"), lambda queries: escaped(queries, ONE_LINE)),
    )
    return joined(column(table, "grade"), " qid:", ids, *cells, " # ", *about, "\n")


def _cell(number: int, values: pa.Array) -> pa.Array:
    """` number:value`, and nothing where there is no value; the digits give the number back to the last bit."""
    there = pc.and_kleene(values.is_valid(), pc.invert(pc.is_nan(values)).fill_null(False))
    return pc.if_else(there, joined(f" {number}:", values.cast(TEXT)), pa.scalar("", TEXT))
