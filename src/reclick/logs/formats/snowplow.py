"""Read Snowplow's ecommerce events, as Parquet.

The files are the table of events with its entities, or flat, with one row per event and product.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.schema import is_list
from reclick.errors import LogError
from reclick.logs.formats.base import LogFormat
from reclick.logs.formats.helpers.analytics_events import (
    AnalyticsSchema,
    Arrays,
    find_column,
    is_analytics,
    read_analytics,
    split_record_fields,
)

# A column is named after its schema and the version of that: ..._action_1, ..._action_1_0_2.
ACTION = "unstruct_event_com_snowplowanalytics_snowplow_ecommerce_snowplow_ecommerce_action_"
PRODUCT = "contexts_com_snowplowanalytics_snowplow_ecommerce_product_"
WEB_PAGE = "contexts_com_snowplowanalytics_snowplow_web_page_"
SCREEN = "contexts_com_snowplowanalytics_mobile_screen_"


def _flatten(columns: Arrays, where: str) -> Arrays:
    """The action and the page view, under the names of Snowplow's data models."""
    flat: Arrays = {}
    if (name := find_column(columns, ACTION)) is not None:
        action = split_record_fields(_first_records(columns[name], name, where))
        flat |= {
            f"ecommerce_action_{field}": action[field]
            for field in ("type", "name")
            if field in action
        }
    views = [
        split_record_fields(_first_records(columns[name], name, where))["id"]
        for start in (WEB_PAGE, SCREEN)
        if (name := find_column(columns, start)) is not None
    ]
    if views and "page_view_id" not in columns:
        flat["page_view_id"] = pc.coalesce(*views)
    return flat


def _first_records(values: pa.Array, name: str, where: str) -> pa.Array:
    """The records of a column; for lists of records, the first of each list."""
    if is_list(values.type):
        not_empty = pc.greater(pc.list_value_length(values), 0)
        values = pc.list_element(pc.if_else(not_empty, values, pa.scalar([None], values.type)), 0)
    if not pa.types.is_struct(values.type):
        raise LogError(
            f"{name} in {where}: expected records, got {values.type}. "
            "Export it as such, or flatten it to columns."
        )
    return values


SCHEMA = AnalyticsSchema(
    kinds={
        "list_view": "view",
        "list_click": "click",
        "add_to_cart": "conversion",
        "transaction": "conversion",
    },
    names={
        "event": (
            "ecommerce_action_type",
            "snowplow_ecommerce_action_type",
            "snowplow_ecommerce_action.type",
            "action_type",
        ),
        "time": ("derived_tstamp",),
        "user": ("domain_userid",),
        "session": ("domain_sessionid",),
        "page_view": ("page_view_id",),
        "url": ("page_urlquery", "page_url"),
        "query": ("search_term",),
        "list": (
            "ecommerce_action_name",
            "snowplow_ecommerce_action_name",
            "snowplow_ecommerce_action.name",
            "product_list_name",
            "list_name",
        ),
        "ad": ("product_id",),
        "title": ("product_name",),
        "position": ("product_list_position", "product_position"),
    },
    visit=("user", "session", "page_view"),
    journey=("user", "session"),
    identity=("user", "session", "page_view"),
    nested={
        ACTION: ("type", "name"),
        PRODUCT: ("id", "name", "position"),
        WEB_PAGE: ("id",),
        SCREEN: ("id",),
    },
    ads=PRODUCT,
    ad_names={"ad": ("id",), "title": ("name",), "position": ("position",)},
    flatten=_flatten,
    required={
        "event": ("ecommerce_action_type", "snowplow_ecommerce_action", "action_type", ACTION),
        "time": ("derived_tstamp",),
        "ad": ("product_id", PRODUCT),
    },
)

FORMAT = LogFormat(
    name="snowplow",
    title="Snowplow ecommerce events",
    about=(
        "Parquet of events: list_view is a page, list_click a click, add_to_cart and transaction "
        "conversions; the query is a column, in the address, or the list; product names are kept."
    ),
    recognises=partial(is_analytics, SCHEMA),
    read=partial(read_analytics, SCHEMA),
    takes_columns=True,
)
