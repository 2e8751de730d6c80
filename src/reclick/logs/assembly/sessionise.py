"""Find the pages in a stream of list views and clicks that name no page: by visit, list, query and time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.assembly import list_statements as sql
from reclick.logs.assembly.dealt import Dealt
from reclick.logs.assembly.page_join import FILE
from reclick.logs.formats.base import Found
from reclick.logs.timestamps import TIME

KINDS = (
    "view",
    "click",
    "search",
)  # a list view, a click, a search that says what the user looked for
EVENTS = pa.schema(
    [
        (
            "key",
            pa.string(),
        ),  # of the visit, what a user did in one go: views and clicks belong together within it
        ("kind", pa.string()),
        ("user", pa.string()),
        ("list", pa.string()),  # its id or name
        ("term", pa.string()),  # what the user searched for, where the event says it
        ("page", pa.string()),  # the address it happened at
        ("ad", pa.string()),
        ("position", pa.int64()),  # from 0 or from 1
        ("time", TIME),
        ("file", pa.int32()),
        ("number", pa.int64()),
        ("place", pa.int32()),  # of the ad within its event
    ]
)
NOTES = {
    "event recorded again, kept once": sql.AGAIN,
    "ad shown in a list without a search term, the list taken as the query": sql.NO_TERM,
    "ad shown in a list without a search term and without a name, set aside": sql.NO_QUERY,
    "click in a list without a search term and without a name, set aside": sql.NO_QUERY_CLICKS,
    "ad shown without an index, its place in the event taken": sql.NO_INDEX,
}
# Texts are numbers in SQL, which sorts and groups those several times faster. A list may stand for a term, so these two share their numbers.
CODED = (("visit",), ("user",), ("term", "list"), ("page",), ("ad",))
Texts = dict[str, pa.Array]


class ListViews(Dealt):
    """Events of lists, on disk until their pages are found.

    >>> from tempfile import TemporaryDirectory
    >>> rows = {"kind": ["view", "click"], "key": ["u", "u"], "list": ["shoes"] * 2, "ad": ["a", "a"], "time": [1, 2], "number": [1, 2]}
    >>> with TemporaryDirectory() as folder, ListViews(Path(folder), 1) as views:
    ...     views.add(pa.table({**rows, "file": [0, 0], "place": [0, 0]}))
    ...     [(kind, table["key"].to_pylist()) for kind, table in views.pages(Found())]
    [('shown', ['u|1']), ('clicks', ['u|1'])]
    """

    def __init__(self, folder: Path, many: int) -> None:
        """`folder` is for the buckets, which are this many."""
        super().__init__(folder, EVENTS, many)

    def pages(self, found: Found) -> Iterator[tuple[str, pa.Table]]:
        """What was shown and what was clicked, with the keys of the pages, as the join of pages and clicks takes them."""
        for bucket in self.buckets():
            events, texts = _coded(bucket)
            self.engine.register("event", events)
            for statement in sql.FIND:
                self.engine.execute(statement)
            self.tell(NOTES, found)
            for kind, question in (("shown", sql.SHOWN), ("clicks", sql.CLICKED)):
                yield kind, _plain(self.engine.sql(question).to_arrow_table(), texts)
            self.engine.unregister("event")


def _coded(events: pa.Table) -> tuple[pa.Table, Texts]:
    """The events with numbers for texts, and the texts."""
    given = events.rename_columns(["visit", *events.column_names[1:]])
    columns = {name: given[name] for name in ("position", "time", "place")}
    columns["kind"] = pc.index_in(given["kind"], pa.array(KINDS))
    columns["origin"] = pc.add(pc.shift_left(given["file"].cast(pa.int64()), FILE), given["number"])
    texts = {}
    for names in CODED:
        coded = (
            pa.chunked_array([chunk for name in names for chunk in given[name].chunks], pa.string())
            .combine_chunks()
            .dictionary_encode()
        )
        texts[names[0]] = coded.dictionary
        for place, name in enumerate(names):
            columns[name] = coded.indices.slice(place * events.num_rows, events.num_rows).fill_null(
                -1
            )
    return pa.table(columns), texts


def _plain(table: pa.Table, texts: Texts) -> pa.Table:
    """Pages and clicks with texts again. A click before any page of its visit has the visit for a key, which is that of no page."""
    visit, page = (
        texts["visit"].take(table["visit"].combine_chunks()),
        table["page"].combine_chunks().cast(pa.string()),
    )
    key = pc.if_else(
        page.is_null(), visit, pc.binary_join_element_wise(visit, page, "|", null_handling="skip")
    )
    columns = {
        "key": key,
        "ad": texts["ad"].take(table["ad"].combine_chunks()),
        "position": table["position"],
        "time": table["time"],
    }
    if "query" in table.column_names:
        users = table["user"].combine_chunks()
        columns |= {"query": texts["term"].take(table["query"].combine_chunks())}
        columns |= {"user": texts["user"].take(pc.if_else(pc.less(users, 0), None, users))}
    origin = table["origin"]
    return pa.table(
        {
            **columns,
            "file": pc.shift_right(origin, FILE),
            "number": pc.bit_wise_and(origin, (1 << FILE) - 1),
        }
    )
