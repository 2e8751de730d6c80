"""Cleaning on request: every step is off by default, and counts what it changes."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.schema import is_string
from reclick.errors import SettingError
from reclick.logs.validation.encode import (
    MAX_TEXT_BYTES,
    encode_lists,
    encode_positions,
    encode_text,
)

if TYPE_CHECKING:
    from reclick.data.batch import Int64
    from reclick.logs.formats.base import ReadReport

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """Which steps to take: those that are not None or False, in this order.

    Notes that end in "removed" count the sessions that are removed.

    >>> Cleaning(first=10, normalise=True).needs_whole_log
    False
    >>> Cleaning(first=0)
    Traceback (most recent call last):
    reclick.errors.SettingError: first: got 0, expected a whole number of 1 or more, or None.
    """

    # write queries in one way: compatibility forms, case and white space
    normalise: bool = False
    # remove users with more pages in any 60 minutes, with all their sessions
    max_pages_per_hour: int | None = None
    # the same for clicks
    max_clicks_per_hour: int | None = None
    # merge a page with its reload by the same user within so many seconds, and the clicks of both
    reload_seconds: float | None = None
    # remove sessions with more clicks
    max_clicks: int | None = None
    # cut pages to so many ads, and drop the clicks on the others
    first: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_pages_per_hour", "max_clicks_per_hour", "max_clicks", "first"):
            _check(name, getattr(self, name), Integral, 1, "a whole number of 1 or more")
        seconds = "a number of seconds, such as 30"
        _check("reload_seconds", self.reload_seconds, Real, 0.001, seconds)
        if not isinstance(self.normalise, bool):
            raise SettingError("normalise", self.normalise, "True or False")

    @property
    def removes_bots(self) -> bool:
        """Whether users are removed by how much they do in an hour."""
        return self.max_pages_per_hour is not None or self.max_clicks_per_hour is not None

    @property
    def needs_whole_log(self) -> bool:
        """Whether a step needs the whole log: then `bots_and_reloads` does what comes after it."""
        return self.removes_bots or self.reload_seconds is not None

    def clean_batch(self, batch: pa.RecordBatch, report: ReadReport) -> pa.RecordBatch:
        """Take the steps that need no other row.

        Sessions are not shortened yet where the whole log is needed: bots are found by all clicks.

        >>> from reclick.logs.formats.base import ReadReport
        >>> rows = {"query": [" Red  SHOES"], "ads": [["a", "b", "c"]], "clicks": [[3, 1]]}
        >>> cleaning = Cleaning(first=2, normalise=True)
        >>> cleaning.clean_batch(pa.record_batch(rows), ReadReport()).to_pylist()
        [{'query': 'red shoes', 'ads': ['a', 'b'], 'clicks': [1]}]
        """
        batch = _normalise_queries(batch, report) if self.normalise else batch
        return batch if self.needs_whole_log else self.shorten_sessions(batch, report)

    def shorten_sessions(self, batch: pa.RecordBatch, report: ReadReport) -> pa.RecordBatch:
        """Remove sessions with too many clicks, then cut the pages of the others."""
        if self.max_clicks is not None:
            batch = _remove_long_sessions(batch, self.max_clicks, report)
        return batch if self.first is None else _cut_pages(batch, self.first, report)


def normalise_query(query: str) -> str:
    r"""A query in one way of writing: NFKC, case folded, white space trimmed and collapsed.

    >>> normalise_query("  Große\u00a0ＳＣＨＵＨＥ ")
    'grosse schuhe'
    """
    # Folding case may decompose, and take apart what the first NFKC composed.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", query).casefold())
    return " ".join(folded.split())


def replace_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """The batch with other values in a column, cast to the type it had."""
    index = batch.schema.get_field_index(name)
    schema_field = batch.schema.field(index)
    return batch.set_column(index, schema_field, column.cast(schema_field.type))


def _check(name: str, value: Any, kind: type, low: float, expected: str) -> None:
    """Refuse a value that is neither None nor a finite number of this kind."""
    is_kind = isinstance(value, kind) and not isinstance(value, bool)
    if value is not None and not (is_kind and low <= value < math.inf):
        raise SettingError(name, value, expected, or_none=True)


def _normalise_queries(batch: pa.RecordBatch, report: ReadReport) -> pa.RecordBatch:
    column = batch.column("query")
    if not is_string(column.type):
        return batch
    encoded = encode_text(column)
    written = encoded.values.to_pylist()
    normalised = [normalise_query(query) for query in written]
    pairs = list(zip(written, normalised, strict=True))
    blank = _to_rows([bool(before) and not after for before, after in pairs], encoded.codes)
    report.add_note("query of white space only, left as it is", int(blank.sum()))
    changed = _to_rows([_can_replace(before, after) for before, after in pairs], encoded.codes)
    if not changed.any():
        return batch
    report.add_note("query normalised, spellings become one", int(changed.sum()))
    codes = pa.array(encoded.codes, mask=encoded.codes < 0)
    rewritten = pa.array(normalised, pa.string()).take(codes)
    queries = pc.if_else(pa.array(changed), rewritten, column.cast(pa.string()))
    return replace_column(batch, "query", queries)


def _can_replace(written: str, normalised: str) -> bool:
    # One letter may have a compatibility form of 18: a query that would be too long stays.
    return normalised not in {"", written} and len(normalised.encode()) <= MAX_TEXT_BYTES


def _to_rows(flags: list[bool], codes: npt.NDArray[np.int32]) -> Bool:
    """The flags of values by row; null (-1) has none."""
    return np.array([*flags, False])[codes]


def _remove_long_sessions(
    batch: pa.RecordBatch, max_clicks: int, report: ReadReport
) -> pa.RecordBatch:
    _, starts = encode_lists(batch.column("clicks"))
    long = np.diff(starts) > max_clicks
    report.add_note(f"session with more than {max_clicks:,} clicks, removed", int(long.sum()))
    return batch.filter(pa.array(~long)) if long.any() else batch


def _cut_pages(batch: pa.RecordBatch, first: int, report: ReadReport) -> pa.RecordBatch:
    ads, page = encode_lists(batch.column("ads"))
    length = np.diff(page)
    if not (length > first).any():
        return batch
    click, clicks = encode_lists(batch.column("clicks"))
    position = encode_positions(click)
    session = np.repeat(np.arange(len(length)), np.diff(clicks))  # [click]
    # A click outside the whole page stays, so that it is reported as what it is.
    below = (position > first) & (position <= length[session])
    report.add_note(f"page cut to its first {first:,} ads", int((length > first).sum()))
    with_clicks_below = len(np.unique(session[below]))
    report.add_note(f"session with clicks below the first {first:,}", with_clicks_below)
    report.add_note(f"click below the first {first:,}, taken out", int(below.sum()))
    shown = np.arange(len(ads)) - np.repeat(page[:-1], length) < first
    batch = replace_column(batch, "ads", _filter_lists(batch.column("ads"), ads, page, shown))
    if not below.any():
        return batch
    remaining = _filter_lists(batch.column("clicks"), click, clicks, ~below)
    return replace_column(batch, "clicks", remaining)


def _filter_lists(column: pa.Array, values: pa.Array, starts: Int64, keep: Bool) -> pa.Array:
    """The lists with some of their values; a null list stays null."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(keep)])[starts])
    nulls = column.is_null() if column.null_count else None
    return pa.LargeListArray.from_arrays(offsets, values.filter(pa.array(keep)), mask=nulls)
