"""Formats whose lines are split at white space: queries get an id of one word, told in a second file, and ads must have one already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from reclick.errors import LogError
from reclick.exports.judgment_table import Judged
from reclick.exports.request import Job
from reclick.exports.text_rows import ONE_LINE, WHITE, column, escaped, holding, joined, write_rows
from reclick.logs.files.source import short
from reclick.runtime.atomic_write import write_files

Ids = Callable[[pa.Array, int], pa.Array]  # distinct queries, and how many came before → their ids
Rows = Callable[[pa.Table, pa.Array], pa.Array]  # pairs, and the id of each one's query → lines


def write_with_queries(
    job: Job, tables: Iterator[pa.Table], ids: Ids, rows: Rows, head: str = ""
) -> list[Path]:
    """Write a line a pair, and beside the file another, *.queries.tsv, with a line a query: its id, a tab, and its text."""
    queries = f"{job.to.name}.queries.tsv"
    with ExitStack() as stack:
        opened: list[BinaryIO] = []

        def write(path: Path) -> None:
            with path.open("wb") as file, opened[0] as listed:
                file.write(head.encode())
                _write(tables, ids, rows, file, listed)

        # The list of queries is opened first, and written as the pairs are: nothing is held.
        def open_list(path: Path) -> None:
            opened.append(stack.enter_context(path.open("wb")))

        return write_files(job.to.parent, {queries: open_list, job.to.name: write})[::-1]


def _write(
    tables: Iterator[pa.Table], ids: Ids, rows: Rows, file: BinaryIO, listed: BinaryIO
) -> None:
    before = 0
    for table in tables:
        coded = column(table, "query").dictionary_encode()
        names = ids(coded.dictionary, before)
        write_rows(listed, joined(names, "\t", escaped(coded.dictionary, ONE_LINE), "\n"))
        write_rows(file, rows(table, names.take(coded.indices)))
        before += len(names)


def one_word_ads(job: Job, judged: Judged) -> Callable[[pa.Table], pa.Table]:
    """A check of ads' ids, which are written as they are: those with white space are refused, or left out."""

    def check(table: pa.Table) -> pa.Table:
        split = holding(column(table, "ad"), WHITE)
        if not split.true_count:
            return table
        if job.on_error == "raise":
            ad = short(column(table, "ad").filter(split)[0].as_py())
            raise LogError(
                f"ad {ad}: this format splits its lines at white space, so the id cannot be written. Leave such ads out with "
                'on_error="drop" (on the command line --on-error drop), or export Quepid CSV, OpenSearch JSON or Parquet.'
            )
        return judged.leave_out(table, split, "whose ad's id has white space")

    return check
