"""Quepid's CSV of ratings: `query,docid,rating`, a line a pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from reclick.exports.request import Exported, Job
from reclick.exports.text_rows import (
    IN_CSV,
    column,
    escaped,
    for_each_query,
    holding,
    joined,
    write_rows,
)
from reclick.runtime.atomic_write import write_files

HEAD = b"query,docid,rating\n"  # as Quepid checks it: no quotes, and no carriage return


def write_quepid(job: Job) -> Exported:
    """Write the CSV, and say which queries Quepid or a spreadsheet may take for something else."""
    judged, traps = job.judged(), _Traps()

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(HEAD)
            for table in traps.watched(judged.graded()):
                query = for_each_query(column(table, "query"), in_csv)
                write_rows(
                    file,
                    joined(
                        query, ",", in_csv(column(table, "ad")), ",", column(table, "grade"), "\n"
                    ),
                )

    return Exported.of(judged, write_files(job.to.parent, {job.to.name: write}), *traps.notes())


def in_csv(texts: pa.Array) -> pa.Array:
    """Texts as cells: quoted where a comma, a quote or a line break is in them.

    >>> in_csv(pa.array(["plain", 'a "b", c'])).to_pylist()
    ['plain', '"a ""b"", c"']
    """
    return pc.if_else(
        holding(texts, ',"\r\n'),
        joined('"', escaped(texts, IN_CSV), '"'),
        texts.cast(pa.large_string()),
    )


class _Traps:
    """Counts pairs whose text is right in the file and may be read wrong."""

    def __init__(self) -> None:
        self._broken = self._formulas = 0

    def watched(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The same tables, looked at as they pass."""
        for table in tables:
            self._broken += _either(table, '["\r\n]')
            self._formulas += _either(table, "^[=+@\t\r-]")
            yield table

    def notes(self) -> tuple[str, str]:
        """What was found."""
        broken = f"{self._broken:,} pairs have a double quote or a line break in their text, which Quepid's importer does not keep."
        formulas = f"{self._formulas:,} pairs have text that begins with =, +, -, @ or a tab, which a spreadsheet may take for a formula."
        return broken if self._broken else "", formulas if self._formulas else ""


def _either(table: pa.Table, pattern: str) -> int:
    """How many pairs have the pattern in their query or ad."""
    query, ad = (pc.match_substring_regex(column(table, name), pattern) for name in ("query", "ad"))
    return int(pc.or_(query, ad).true_count)
