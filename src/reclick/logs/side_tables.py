"""Read the ads table (the text of each ad) and the labels table (judged relevance); both fit in memory."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind_of

from reclick.data.schema import AD_COLUMNS, LABEL_COLUMNS, PAIR_COLUMNS, TEXT, Column
from reclick.errors import BadRowsError, LogError
from reclick.logs.files.discover import open_sources
from reclick.logs.files.source import OnError, Raw, check_on_error, short
from reclick.logs.summary import NOT_READABLE, Tally, bad_rows_message
from reclick.logs.validation.encode import encode_number

logger = logging.getLogger("reclick")

NO_QUERY, NO_AD, BAD_RELEVANCE, TWICE = (
    "no query",
    "no ad",
    "bad relevance",
    "ad listed twice with different text",
)
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Reading:
    """All rows of a small table, which of them are bad so far, and where each came from."""

    name: str
    table: pa.Table  # canonical columns only
    pieces: list[Raw]
    bad: Mask  # [row]
    tally: Tally = field(default_factory=Tally)

    def refuse(self, rows: Mask, reason: str, column: str) -> None:
        """Mark rows as bad for a reason, unless they are already."""
        starts = np.cumsum([0, *(piece.length for piece in self.pieces)])
        for row in np.flatnonzero(rows & ~self.bad).tolist():
            index = bisect_right(starts, row) - 1
            piece = self.pieces[index]
            self.tally.drop(
                reason,
                piece.where,
                piece.number(row - int(starts[index])),
                short(self.table.column(column)[row].as_py()),
            )
        self.bad |= rows

    def finish(self, on_error: OnError) -> pa.Table:
        """Return the good rows, or raise when bad ones are not to be dropped."""
        self.tally.rows = sum(piece.total for piece in self.pieces)
        if not self.tally.rows:
            raise LogError(f"{self.name} has no rows.")
        if not self.tally.dropped:
            return self.table
        summary = self.tally.finish()
        message = bad_rows_message(summary.rows, summary.dropped, summary.examples, self.name)
        if on_error == "raise":
            raise BadRowsError(message)
        logger.warning("Dropped: %s", message.partition(" Drop ")[0])
        return self.table.filter(pa.array(~self.bad))


def read_ads(
    source: Any, *, columns: Mapping[str, str] | None = None, on_error: OnError = "raise"
) -> pa.Table:
    """Read the text of ads as a table of `ad`, `title`, `description`, `display_url`; missing text is empty text.

    >>> read_ads(pa.table({"ad": ["a1"], "title": ["Running shoes"]})).to_pylist()
    [{'ad': 'a1', 'title': 'Running shoes', 'description': '', 'display_url': ''}]
    """
    reading = _read(source, AD_COLUMNS, columns, on_error)
    reading.refuse(_empty(reading.table["ad"]), NO_AD, "ad")
    for name in ("title", "description", "display_url"):
        place = reading.table.column_names.index(name)
        reading.table = reading.table.set_column(place, name, reading.table[name].fill_null(""))
    first = _first_listing(reading.table["ad"])
    again = first != np.arange(len(first))
    if not again.any():
        return reading.finish(on_error)
    reading.refuse(again & _differs(reading.table, first), TWICE, "ad")
    table = reading.table
    reading.finish(on_error)
    return table.filter(pa.array(~(reading.bad | again)))


def read_labels(
    source: Any, *, columns: Mapping[str, str] | None = None, on_error: OnError = "raise"
) -> pa.Table:
    """Read judgments as a table of `query`, `ad`, `relevance`.

    >>> read_labels(pa.table({"query": ["shoes"], "ad": ["a1"], "relevance": [3]})).to_pylist()
    [{'query': 'shoes', 'ad': 'a1', 'relevance': 3.0}]
    """
    reading = _read(source, LABEL_COLUMNS, columns, on_error)
    _refuse_no_pair(reading)
    finite = np.isfinite(np.asarray(reading.table["relevance"].fill_null(float("nan"))))
    reading.refuse(~finite, BAD_RELEVANCE, "relevance")
    return reading.finish(on_error)


def read_pairs(
    source: Any, *, columns: Mapping[str, str] | None = None, on_error: OnError = "raise"
) -> pa.Table:
    """Read (query, ad) pairs as a table of `query`, `ad`."""
    reading = _read(source, PAIR_COLUMNS, columns, on_error)
    _refuse_no_pair(reading)
    return reading.finish(on_error)


def _refuse_no_pair(reading: Reading) -> None:
    reading.refuse(_empty(reading.table["query"]), NO_QUERY, "query")
    reading.refuse(_empty(reading.table["ad"]), NO_AD, "ad")


def _read(
    source: Any, wanted: tuple[Column, ...], columns: Mapping[str, str] | None, on_error: str
) -> Reading:
    check_on_error(on_error)
    sources = open_sources(source, wanted, columns)
    name = sources[0].where if len(sources) == 1 else f"{len(sources)} files"
    tally = Tally()
    pieces, tables, bad = [], [], []
    for opened in sources:
        for raw in opened.read(with_rows=False):
            for number, got in raw.unreadable:
                tally.drop(NOT_READABLE, raw.where, number, got)
            table, wrong = _canonical(raw, wanted)
            for row in np.flatnonzero(wrong).tolist():
                tally.drop(NOT_READABLE, raw.where, raw.number(row), "text that is not UTF-8")
            pieces.append(raw)
            tables.append(table)
            bad.append(wrong)
    schema = pa.schema(
        [(column.name, pa.string() if column.kind == TEXT else pa.float64()) for column in wanted]
    )
    return Reading(
        name,
        pa.concat_tables([schema.empty_table(), *tables]),
        pieces,
        np.concatenate([np.zeros(0, np.bool_), *bad]),
        tally,
    )


def _canonical(raw: Raw, wanted: tuple[Column, ...]) -> tuple[pa.Table, Mask]:
    """Return the batch as strings and floats, with rows whose text is not UTF-8 emptied and told."""
    wrong = np.zeros(raw.length, np.bool_)
    arrays = []
    for column in wanted:
        values = raw.columns.get(column.name, pa.nulls(raw.length))
        if column.kind == TEXT:
            text, bad = _as_text(values)
            wrong |= bad
            arrays.append(text)
        else:
            arrays.append(pa.array(encode_number(values)))
    return pa.table(arrays, names=[column.name for column in wanted]), wrong


def _as_text(values: pa.Array) -> tuple[pa.StringArray, Mask]:
    coded = kind_of.is_dictionary(values.type)
    text = (
        values.dictionary.cast(pa.string()).take(values.indices)
        if coded
        else values.cast(pa.string())
    )
    bad = np.zeros(len(text), np.bool_)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raws = text.cast(pa.binary()).to_pylist()
        bad = np.asarray(
            [value is not None and "\ufffd" in value.decode(errors="replace") for value in raws]
        )
        text = pc.if_else(pa.array(bad), pa.scalar("", pa.string()), text)
    return text, bad


def _empty(column: pa.ChunkedArray) -> Mask:
    return np.asarray(pc.equal(pc.binary_length(column).fill_null(0), 0))


def _first_listing(ads: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return, for every row, the first row that lists the same ad."""
    codes = (
        np.asarray(ads.combine_chunks().dictionary_encode().indices.fill_null(-1))
        if len(ads)
        else np.zeros(0, np.int64)
    )
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return first[inverse]


def _differs(table: pa.Table, first: npt.NDArray[np.int64]) -> Mask:
    original = table.take(pa.array(first))
    differs = np.zeros(len(first), np.bool_)
    for name in ("title", "description", "display_url"):
        differs |= np.asarray(pc.not_equal(table[name], original[name]))
    return differs
