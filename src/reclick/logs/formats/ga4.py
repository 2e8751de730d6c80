"""The BigQuery export of Google Analytics 4, as Parquet: nested as BigQuery exports it, or flat with a row for each event and item."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.formats.base import Format
from reclick.logs.formats.helpers.analytics_events import is_of, read_lists
from reclick.logs.formats.helpers.analytics_rows import Arrays, Shape, elements, parts
from reclick.logs.formats.helpers.records import text

PARAMS, ITEMS = "event_params", "items"
READ_PARAMS = ("ga_session_id", "search_term", "page_location", "item_list_id", "item_list_name")


def _of_param(name: str) -> tuple[str, ...]:
    return name, f"{PARAMS}.{name}", f"{PARAMS}_{name}"


def _of_item(*names: str) -> tuple[str, ...]:
    return tuple(each for name in names for each in (name, f"{ITEMS}.{name}", f"{ITEMS}_{name}"))


def _flatten(columns: Arrays, where: str) -> Arrays:
    """The parameters of events, each as a column: the first value a key has."""
    if PARAMS not in columns:
        return {}
    rows = len(columns[PARAMS])
    parents, fields = elements(columns[PARAMS], PARAMS, where)
    values = parts(fields["value"])
    said = pc.coalesce(
        *(text(values[name]) for name in ("string_value", "int_value") if name in values)
    )
    return {
        f"{PARAMS}.{name}": _spread(said, parents, pc.equal(fields["key"], name), rows)
        for name in READ_PARAMS
    }


def _spread(values: pa.Array, parents: pa.Array, chosen: pa.Array, rows: int) -> pa.Array:
    """The chosen values in the rows they are of; null in the others."""
    places = np.full(rows, -1, np.int64)
    index = np.flatnonzero(np.asarray(chosen.fill_null(False)))[
        ::-1
    ]  # the first of a row is written last
    places[np.asarray(parents)[index]] = index
    return values.take(pa.array(places, mask=places < 0))


SHAPE = Shape(
    kinds={
        "view_item_list": "view",
        "select_item": "click",
        "view_search_results": "search",
        "search": "search",
    },
    names={
        "event": ("event_name",),
        "time": ("event_timestamp",),
        "user": ("user_pseudo_id",),
        "session": _of_param("ga_session_id"),
        "url": _of_param("page_location"),
        "query": _of_param("search_term"),
        "list": (
            *_of_item("item_list_id", "item_list_name"),
            *_of_param("item_list_id")[1:],
            *_of_param("item_list_name")[1:],
        ),
        "ad": _of_item("item_id", "item_name"),
        "title": _of_item("item_name"),
        "position": _of_item("item_list_index", "index"),
    },
    visit=("user", "session"),
    known_by=("user",),
    nested={
        PARAMS: ("key", "string_value", "int_value"),
        ITEMS: ("item_id", "item_name", "item_list_id", "item_list_name", "item_list_index"),
    },
    ads=ITEMS,
    of_ads={
        "ad": ("item_id", "item_name"),
        "title": ("item_name",),
        "position": ("item_list_index",),
        "list": ("item_list_id", "item_list_name"),
    },
    flatten=_flatten,
    needed={
        "event": ("event_name",),
        "time": ("event_timestamp",),
        "user": ("user_pseudo_id",),
        "ad": (ITEMS, "item_id"),
    },
)


GA4 = Format(
    name="ga4",
    title="Google Analytics 4, BigQuery export",
    about="Parquet of events: view_item_list is a page, select_item a click, view_search_results a query; item names are kept, other events are not.",
    recognises=partial(is_of, SHAPE),
    read=partial(read_lists, SHAPE),
    takes_columns=True,
)
