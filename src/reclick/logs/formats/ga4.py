"""Read the BigQuery export of Google Analytics 4, as Parquet.

The files are nested, as BigQuery exports them, or flat, with one row per event and item.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.formats.base import LogFormat
from reclick.logs.formats.helpers.analytics_events import (
    AnalyticsSchema,
    Arrays,
    flatten_records,
    is_analytics,
    read_analytics,
    split_record_fields,
)
from reclick.logs.formats.helpers.records import to_text

PARAMS, ITEMS = "event_params", "items"
READ_PARAMS = ("ga_session_id", "search_term", "page_location", "item_list_id", "item_list_name")


def _param_columns(name: str) -> tuple[str, ...]:
    return name, f"{PARAMS}.{name}", f"{PARAMS}_{name}"


def _item_columns(*names: str) -> tuple[str, ...]:
    return tuple(each for name in names for each in (name, f"{ITEMS}.{name}", f"{ITEMS}_{name}"))


def _flatten(columns: Arrays, where: str) -> Arrays:
    """The parameters of events, each as a column: the first value of each key."""
    if PARAMS not in columns:
        return {}
    rows = len(columns[PARAMS])
    parents, fields = flatten_records(columns[PARAMS], PARAMS, where)
    values = split_record_fields(fields["value"])
    typed = [to_text(values[name]) for name in ("string_value", "int_value") if name in values]
    value = pc.coalesce(*typed)
    return {
        f"{PARAMS}.{name}": _to_rows(value, parents, pc.equal(fields["key"], name), rows)
        for name in READ_PARAMS
    }


def _to_rows(values: pa.Array, parents: pa.Array, is_selected: pa.Array, rows: int) -> pa.Array:
    """The selected values by the row of their event; null for rows without one."""
    index = np.full(rows, -1, np.int64)
    selected_index = np.flatnonzero(np.asarray(is_selected.fill_null(False)))[::-1]
    # In reverse order, so that the first value of a row is assigned last.
    index[np.asarray(parents)[selected_index]] = selected_index
    return values.take(pa.array(index, mask=index < 0))


SCHEMA = AnalyticsSchema(
    kinds={
        "view_item_list": "view",
        "select_item": "click",
        "view_search_results": "search",
        "search": "search",
        "add_to_cart": "conversion",
        "purchase": "conversion",
    },
    names={
        "event": ("event_name",),
        "time": ("event_timestamp",),
        "user": ("user_pseudo_id",),
        "session": _param_columns("ga_session_id"),
        "url": _param_columns("page_location"),
        "query": _param_columns("search_term"),
        "list": (
            *_item_columns("item_list_id", "item_list_name"),
            *_param_columns("item_list_id")[1:],
            *_param_columns("item_list_name")[1:],
        ),
        "ad": _item_columns("item_id", "item_name"),
        "title": _item_columns("item_name"),
        "position": _item_columns("item_list_index", "index"),
    },
    visit=("user", "session"),
    journey=("user", "session"),
    identity=("user",),
    nested={
        PARAMS: ("key", "string_value", "int_value"),
        ITEMS: ("item_id", "item_name", "item_list_id", "item_list_name", "item_list_index"),
    },
    ads=ITEMS,
    ad_names={
        "ad": ("item_id", "item_name"),
        "title": ("item_name",),
        "position": ("item_list_index",),
        "list": ("item_list_id", "item_list_name"),
    },
    flatten=_flatten,
    required={
        "event": ("event_name",),
        "time": ("event_timestamp",),
        "user": ("user_pseudo_id",),
        "ad": (ITEMS, "item_id"),
    },
)

FORMAT = LogFormat(
    name="ga4",
    title="Google Analytics 4, BigQuery export",
    about=(
        "Parquet of events: view_item_list is a page, select_item a click, view_search_results a "
        "query, add_to_cart and purchase conversions; item names are kept, other events are not."
    ),
    recognises=partial(is_analytics, SCHEMA),
    read=partial(read_analytics, SCHEMA),
    takes_columns=True,
)
