"""Check the rows of a batch: the good ones become a SessionBatch, the bad ones get a reason. Imports numba."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reclick.data.batch import Int64, SessionBatch
from reclick.logs.files.source import Raw
from reclick.logs.validation import reasons as at
from reclick.logs.validation.encode import (
    Byte,
    encode_lists,
    encode_number,
    encode_positions,
    encode_text,
)
from reclick.logs.validation.kernels import check_rows, keep_clicks, keep_pages
from reclick.logs.validation.result import Checked, Rows


def clean(raw: Raw, max_ads: int, last: Rows | None = None) -> Checked:
    """Check every row of a batch and return the good ones; nothing is copied when all are good. `last` are the rows of the batch before."""
    rows = _arrays(raw, last)
    reason = np.zeros(raw.length, np.uint8)
    totals = check_rows(
        rows.query.codes,
        rows.query.faults,
        rows.ad.codes,
        rows.ad.faults,
        rows.page,
        rows.click,
        rows.clicks,
        rows.weight,
        max_ads,
        reason,
    )
    untouched = totals[at.KEPT] == raw.length and not totals[at.REPEATS]
    batch = _all_rows(rows, raw) if untouched else _kept_rows(rows, raw, reason, totals)
    return Checked(batch, totals, reason, _null_clicks(raw, reason), rows)


def _arrays(raw: Raw, last: Rows | None) -> Rows:
    ads, page = encode_lists(raw.columns["ads"])
    click, clicks = encode_lists(raw.columns.get("clicks", pa.nulls(raw.length)))
    weight = encode_number(raw.columns["weight"]) if "weight" in raw.columns else np.zeros(0)
    query = encode_text(raw.columns["query"], None if last is None else last.query)
    ad = encode_text(ads, None if last is None else last.ad)
    return Rows(query, ad, page, encode_positions(click), clicks, weight)


def _all_rows(rows: Rows, raw: Raw) -> SessionBatch:
    return SessionBatch(
        queries=rows.query.values,
        ads=rows.ad.values,
        query=rows.query.codes,
        ad=rows.ad.codes,
        page=rows.page,
        click=rows.click,
        clicks=rows.clicks,
        weight=rows.weight if len(rows.weight) else None,
        rows=raw.rows,
    )


def _kept_rows(rows: Rows, raw: Raw, reason: Byte, totals: Int64) -> SessionBatch:
    kept = np.flatnonzero(reason == 0)
    ad, page = keep_pages(kept, rows.ad.codes, rows.page, totals[at.IMPRESSIONS])
    click, clicks = keep_clicks(
        kept, rows.click, rows.clicks, totals[at.CLICKS], totals[at.LONGEST]
    )
    return SessionBatch(
        queries=rows.query.values,
        ads=rows.ad.values,
        query=rows.query.codes[kept],
        ad=ad,
        page=page,
        click=click,
        clicks=clicks,
        weight=rows.weight[kept] if len(rows.weight) else None,
        rows=None if raw.rows is None else raw.rows.take(pa.array(kept)),
    )


def _null_clicks(raw: Raw, reason: Byte) -> int:
    column = raw.columns.get("clicks")
    if column is None or not column.null_count:
        return 0
    return int(np.count_nonzero(np.asarray(column.is_null()) & (reason == 0)))
