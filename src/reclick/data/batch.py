"""A batch of clean sessions: what every reader yields and every engine and model takes.

Pages and click lists are ragged arrays, as in Arrow. Queries and ads are codes into the batch's own
dictionaries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from reclick.data.outcomes import ClickOutcomes
from reclick.data.ragged import Float64, Int32, Int64
from reclick.errors import SettingError
from reclick.runtime.arguments import check_arguments

MANY_UNUSED = 8  # if a dictionary has more values per code, sorting the codes is faster
__all__ = ["Float64", "Int32", "Int64", "SessionBatch"]


@dataclass(frozen=True, slots=True)
class SessionBatch:
    """Sessions in reading order; without bad rows, and with repeated clicks once."""

    queries: pa.StringArray  # the batch's distinct queries (may hold some that no session uses)
    ads: pa.StringArray  # the batch's distinct ads (likewise)
    query: Int32  # [session] codes into queries
    ad: Int32  # [impression] codes into ads, page after page
    page: Int64  # [session + 1] where each page starts in ad
    click: Int32  # [click] positions from 1, in the order clicked
    clicks: Int64  # [session + 1] where each session's clicks start in click
    weight: Float64 | None = None  # [session], None when every session has weight 1
    outcomes: ClickOutcomes | None = None  # None when the log has none
    time: pa.Array | None = None  # [session] as in the source; None when it has no times
    rows: pa.RecordBatch | None = None  # the source's own columns, when requested

    def __post_init__(self) -> None:
        for array in (self.query, self.ad, self.page, self.click, self.clicks, self.weight):
            if array is not None:  # like arrays over Arrow's memory, so that kernels compile once
                array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.query)

    @check_arguments
    def slice(self, start: int, end: int) -> SessionBatch:
        """Sessions start … end − 1, sharing the dictionaries."""
        if not 0 <= start <= end:
            raise SettingError("start", start, "a whole number from 0 to `end`")
        page, clicks = self.page[start : end + 1], self.clicks[start : end + 1]
        return SessionBatch(
            queries=self.queries,
            ads=self.ads,
            query=self.query[start:end],
            ad=self.ad[page[0] : page[-1]],
            page=page - page[0],
            click=self.click[clicks[0] : clicks[-1]],
            clicks=clicks - clicks[0],
            weight=None if self.weight is None else self.weight[start:end],
            outcomes=None
            if self.outcomes is None
            else self.outcomes.select(slice(clicks[0], clicks[-1])),
            time=None if self.time is None else self.time.slice(start, end - start),
            rows=None if self.rows is None else self.rows.slice(start, end - start),
        )

    def compact(self) -> SessionBatch:
        """The same sessions, with only those queries and ads in the dictionaries that they use."""
        queries, query = _renumber(self.query, len(self.queries))
        ads, ad = _renumber(self.ad, len(self.ads))
        return replace(
            self,
            queries=self.queries.take(pa.array(queries)),
            ads=self.ads.take(pa.array(ads)),
            query=query,
            ad=ad,
        )


def _renumber(codes: Int32, size: int) -> tuple[Int64, Int32]:
    """The codes in use among 0, …, size − 1, ascending, and the place of each code among them.

    >>> _renumber(np.array([7, 2, 7], np.int32), 9)
    (array([2, 7]), array([1, 0, 1], dtype=int32))
    """
    if size > MANY_UNUSED * (len(codes) + 1):
        codes_in_use, places = np.unique(codes, return_inverse=True)
        return codes_in_use.astype(np.int64), places.astype(np.int32)
    is_used = np.zeros(size, np.bool_)
    is_used[codes] = True
    new = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(is_used), new[codes]
