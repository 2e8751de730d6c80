"""Cleaning that people ask for: every step is off unless it is asked for, and counts what it does."""

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
from reclick.logs.validation.encode import MAX_TEXT, encode_lists, encode_positions, encode_text

if TYPE_CHECKING:
    from reclick.data.batch import Int64
    from reclick.logs.formats.base import Found

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What to clean: the steps that are not None or False, in this order. Notes that end in "removed" count the sessions that go.

    >>> Cleaning(first=10, normalise=True).whole_log
    False
    >>> Cleaning(first=0)
    Traceback (most recent call last):
    reclick.errors.SettingError: first: got 0, expected a whole number of 1 or more, or None.
    """

    normalise: bool = False  # write queries in one way: compatibility forms, case and white space
    max_pages_per_hour: int | None = (
        None  # remove users with more pages in any 60 minutes, with all their sessions
    )
    max_clicks_per_hour: int | None = None  # the same for clicks
    reload_seconds: float | None = (
        None  # make one session of a page that the same user saw again so soon, with the clicks of both
    )
    max_clicks: int | None = None  # remove sessions with more clicks
    first: int | None = None  # cut pages to so many ads, and take out the clicks on the others

    def __post_init__(self) -> None:
        for name in ("max_pages_per_hour", "max_clicks_per_hour", "max_clicks", "first"):
            _check(name, getattr(self, name), Integral, 1, "a whole number of 1 or more")
        _check(
            "reload_seconds", self.reload_seconds, Real, 0.001, "a number of seconds, such as 30"
        )
        if not isinstance(self.normalise, bool):
            raise SettingError(f"normalise: got {self.normalise!r}, expected True or False.")

    @property
    def finds_bots(self) -> bool:
        """Whether users are judged by how much they do in an hour."""
        return self.max_pages_per_hour is not None or self.max_clicks_per_hour is not None

    @property
    def whole_log(self) -> bool:
        """Whether a step has to see the whole log: `batch` is then not all, `engines.cleaning_sql.cleaned` does the rest."""
        return self.finds_bots or self.reload_seconds is not None

    def batch(self, batch: pa.RecordBatch, found: Found) -> pa.RecordBatch:
        """Take the steps that need no other row. What shortens sessions waits where the whole log is asked for: users are judged by all they did.

        >>> from reclick.logs.formats.base import Found
        >>> rows = pa.record_batch({"query": [" Red  SHOES"], "ads": [["a", "b", "c"]], "clicks": [[3, 1]]})
        >>> Cleaning(first=2, normalise=True).batch(rows, Found()).to_pylist()
        [{'query': 'red shoes', 'ads': ['a', 'b'], 'clicks': [1]}]
        """
        spelt = _normalise(batch, found) if self.normalise else batch
        return spelt if self.whole_log else self.shorten(spelt, found)

    def shorten(self, batch: pa.RecordBatch, found: Found) -> pa.RecordBatch:
        """Remove sessions with too many clicks, then cut the pages of the others."""
        kept = batch if self.max_clicks is None else _without_long(batch, self.max_clicks, found)
        return kept if self.first is None else _cut_pages(kept, self.first, found)


def normalised(query: str) -> str:
    r"""A query in one way of writing: compatibility forms as plain ones (NFKC), case folded, white space trimmed and collapsed.

    >>> normalised("  Große\u00a0ＳＣＨＵＨＥ ")
    'grosse schuhe'
    """
    # Folding case may decompose, and take apart what the first NFKC put together.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", query).casefold())
    return " ".join(folded.split())


def replace_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """The batch with other values in a column, of the type it had."""
    place = batch.schema.get_field_index(name)
    return batch.set_column(
        place, batch.schema.field(place), column.cast(batch.schema.field(place).type)
    )


def _check(name: str, value: Any, kind: type, least: float, expected: str) -> None:
    """Refuse a setting that is neither None nor a finite number of this kind."""
    of_kind = isinstance(value, kind) and not isinstance(value, bool)
    if value is not None and not (of_kind and least <= value < math.inf):
        raise SettingError(f"{name}: got {value!r}, expected {expected}, or None.")


def _normalise(batch: pa.RecordBatch, found: Found) -> pa.RecordBatch:
    column = batch.column("query")
    if not is_string(column.type):
        return batch
    coded = encode_text(column)
    written = coded.values.to_pylist()
    plain = [normalised(query) for query in written]
    blank = _rows(
        [bool(query) and not better for query, better in zip(written, plain, strict=True)],
        coded.codes,
    )
    found.note("query of white space only, left as it is", int(blank.sum()))
    changed = _rows(
        [_is_better(query, better) for query, better in zip(written, plain, strict=True)],
        coded.codes,
    )
    if not changed.any():
        return batch
    found.note("query normalised, spellings become one", int(changed.sum()))
    known = pa.array(coded.codes, mask=coded.codes < 0)
    return replace_column(
        batch,
        "query",
        pc.if_else(
            pa.array(changed), pa.array(plain, pa.string()).take(known), column.cast(pa.string())
        ),
    )


def _is_better(written: str, plain: str) -> bool:
    # A letter may have a compatibility form of 18 others: what no reader takes stays as it is.
    return plain not in {"", written} and len(plain.encode()) <= MAX_TEXT


def _rows(values: list[bool], codes: npt.NDArray[np.int32]) -> Mask:
    """Which rows have a value of which this is true; -1 is no value."""
    return np.array([*values, False])[codes]


def _without_long(batch: pa.RecordBatch, most: int, found: Found) -> pa.RecordBatch:
    _, starts = encode_lists(batch.column("clicks"))
    long = np.diff(starts) > most
    found.note(f"session with more than {most:,} clicks, removed", int(long.sum()))
    return batch.filter(pa.array(~long)) if long.any() else batch


def _cut_pages(batch: pa.RecordBatch, first: int, found: Found) -> pa.RecordBatch:
    ads, page = encode_lists(batch.column("ads"))
    length = np.diff(page)
    if not (length > first).any():
        return batch
    click, clicks = encode_lists(batch.column("clicks"))
    position, session = (
        encode_positions(click),
        np.repeat(np.arange(len(length)), np.diff(clicks)),
    )  # [click]
    lost = (position > first) & (
        position <= length[session]
    )  # a click outside the whole page stays, to be told as what it is
    found.note(f"page cut to its first {first:,} ads", int((length > first).sum()))
    found.note(f"session with clicks below the first {first:,}", len(np.unique(session[lost])))
    found.note(f"click below the first {first:,}, taken out", int(lost.sum()))
    shown = np.arange(len(ads)) - np.repeat(page[:-1], length) < first
    cut = replace_column(batch, "ads", _some_values(batch.column("ads"), ads, page, shown))
    return (
        replace_column(cut, "clicks", _some_values(batch.column("clicks"), click, clicks, ~lost))
        if lost.any()
        else cut
    )


def _some_values(column: pa.Array, values: pa.Array, starts: Int64, keep: Mask) -> pa.Array:
    """The lists with some of their values; a null list stays one."""
    kept = np.concatenate([[0], np.cumsum(keep)])[starts]
    nulls = column.is_null() if column.null_count else None
    return pa.LargeListArray.from_arrays(pa.array(kept), values.filter(pa.array(keep)), mask=nulls)
