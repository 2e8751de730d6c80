"""What a caller may give in place of an opened log: anything `read_sessions` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.errors import LogError
from reclick.logs.read import read_sessions
from reclick.logs.session_log import SessionLog
from reclick.logs.side_tables import read_pairs


def as_log(source: Any, *, ads: Any = None, clicks_required: bool = True) -> SessionLog:
    """The log itself, or one opened from a path, a table or a dict of columns.

    >>> as_log({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[]]}).summary.kept
    1
    """
    if not isinstance(source, SessionLog):
        return read_sessions(source, ads=ads, clicks_required=clicks_required)
    if clicks_required and not source.has_clicks:
        raise LogError(
            f"{source.name} has no clicks column. This needs the clicks; give a log that has them."
        )
    return source


def replace_clicks(log: SessionLog, clicks: Sequence[Sequence[int]]) -> SessionLog:
    """The same pages with other clicks, one list a page, in order; the pages are held in memory."""
    batches = list(log.batches())
    log.refuse_nothing()
    pages = sum(len(batch) for batch in batches)
    if len(clicks) != pages:
        raise LogError(
            f"clicks: got {len(clicks)} lists for {pages} pages. Give one list of positions a page, [] for none so far."
        )
    queries = pa.concat_arrays(
        [batch.queries.cast(pa.large_string()).take(pa.array(batch.query)) for batch in batches]
    )
    ads = pa.concat_arrays(
        [batch.ads.cast(pa.large_string()).take(pa.array(batch.ad)) for batch in batches]
    )
    starts = np.concatenate(
        [[0], np.cumsum(np.concatenate([np.diff(batch.page) for batch in batches]))]
    )
    lists = pa.array([list(each) for each in clicks], pa.list_(pa.int64()))
    table = pa.table(
        {
            "query": queries,
            "ads": pa.LargeListArray.from_arrays(pa.array(starts), ads),
            "clicks": lists,
        }
    )
    replaced = read_sessions(table, max_ads=log.max_ads)
    replaced.ads = log.ads
    return replaced


def as_pairs(source: Any) -> tuple[pa.LargeStringArray, pa.LargeStringArray]:
    """The queries and the ads of a table of (query, ad) pairs."""
    table = read_pairs(source)
    return table["query"].combine_chunks().cast(pa.large_string()), table[
        "ad"
    ].combine_chunks().cast(pa.large_string())
