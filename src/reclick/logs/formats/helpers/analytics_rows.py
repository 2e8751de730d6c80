"""Rows out of a batch of list events: one for each ad of each list view and click, whether the batch is flat or holds the ads nested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import Int64
from reclick.data.schema import TEXT, is_list, is_string
from reclick.errors import LogError
from reclick.logs.assembly.event_rows import joined
from reclick.logs.formats.base import Found
from reclick.logs.formats.helpers.records import WHEN, WHOLE, Field, pick
from reclick.logs.summary import KEPT_EXAMPLES

NOT_SET = "(not set)"  # as Google Analytics writes null
SEARCH = "search"
OTHER, NOBODY = "event of another kind, set aside", "event of nobody known, set aside"
NO_TIME, NO_AD, NO_ADS = "no time", "no ad", "no ads"
# The parameters of an address that hold what was searched for: those that Google Analytics looks at unless told otherwise.
TERM = r"(?i)(?:^|[?&])(?:q|s|search|query|keyword)=(?P<term>[^&#]+)"
OF_EVENT = {
    "event": TEXT,
    "time": WHEN,
    "user": TEXT,
    "session": TEXT,
    "page_view": TEXT,
    "url": TEXT,
    "query": TEXT,
    "list": TEXT,
}
OF_AD = {"ad": TEXT, "title": TEXT, "position": WHOLE, "list": TEXT}

Names = dict[str, tuple[str, ...]]  # a field -> the columns that may hold it, best first
Arrays = dict[str, pa.Array]  # columns by their names in small letters


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kind of analytics writes its events."""

    kinds: dict[str, str]  # its name of an event -> view, click or search
    names: Names  # of the fields of events and ads, in flat columns
    visit: tuple[str, ...]  # the fields that name a visit
    known_by: tuple[str, ...]  # the fields of which one must be there
    nested: dict[
        str, tuple[str, ...]
    ]  # the start of a nested column's name -> the leaves that are read of it
    ads: str  # the start of the name of the column that holds the ads of an event
    of_ads: Names  # of the fields of ads, in that column
    flatten: Callable[[Arrays, str], Arrays]  # the other nested columns as flat ones
    needed: Names  # a field -> how the name of a column starts that must be there


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch stands in the log."""

    file: int
    where: str
    first: int  # the number of its first row


def ad_rows(columns: Arrays, shape: Shape, names: Names, place: Place, found: Found) -> pa.Table:
    """The list views, clicks and searches of a batch, a row for each ad; the text of the ads goes to `found`."""
    flat = {**columns, **shape.flatten(columns, place.where)}
    events = _events(flat, shape, names, place, found)
    lists = starting(columns, shape.ads)
    if lists is None:
        parents, ads = (
            np.arange(events.num_rows),
            _picked(flat, OF_AD, names, place.where).take(events["row"]),
        )
    else:
        taken = columns[lists].take(events["row"].combine_chunks())
        inner, fields = elements(taken, lists, place.where)
        parents, ads = (
            np.asarray(inner, np.int64),
            _picked(fields, OF_AD, shape.of_ads, place.where),
        )
        events, parents, ads = _with_lonely(events, parents, ads, place, found)
    _keep_texts(ads, found)
    return _sound(_joined(events, parents, ads), place, found)


def starting(columns: Arrays, start: str) -> str | None:
    """The column whose name starts so; of several (versions of a schema) the last."""
    return max((name for name in columns if name.startswith(start)), default=None)


def elements(values: pa.Array, name: str, where: str) -> tuple[pa.Array, Arrays]:
    """The records in lists of them: the row each is of, and their fields."""
    if not is_list(values.type) or not pa.types.is_struct(values.type.value_type):
        raise LogError(
            f"{name} in {where}: expected a list of records, got {values.type}. Export it as such, or flatten it to columns."
        )
    return pc.list_parent_indices(values), parts(values.flatten())


def parts(records: pa.Array) -> Arrays:
    """The fields of records."""
    return {
        field.name.lower(): known(part)
        for field, part in zip(records.type, records.flatten(), strict=True)
    }


def known(values: pa.Array) -> pa.Array:
    """The values, and null for what says that it is not set."""
    return pc.if_else(pc.equal(values, NOT_SET), None, values) if is_string(values.type) else values


def _events(flat: Arrays, shape: Shape, names: Names, place: Place, found: Found) -> pa.Table:
    """The events that are of lists, of somebody and of a time, with what they are and where they stood."""
    table = _picked(flat, OF_EVENT, names, place.where)
    kinds = pa.array(list(shape.kinds.values())).take(
        pc.index_in(table["event"], pa.array(list(shape.kinds))).combine_chunks()
    )
    rows = pa.array(np.arange(table.num_rows))
    table = (
        table.append_column("kind", kinds)
        .append_column("row", rows)
        .append_column("number", pc.add(rows, place.first))
    )
    table = table.filter(kinds.is_valid())
    found.note(OTHER, kinds.null_count)
    somebody = reduce(pc.or_, [table[name].is_valid() for name in shape.known_by])
    found.note(NOBODY, table.num_rows - int(pc.sum(somebody).as_py() or 0))
    table = _without(
        table.filter(somebody),
        table.filter(somebody)["time"].is_null(),
        NO_TIME,
        "null",
        place,
        found,
    )
    visit = joined([table[name].combine_chunks().fill_null("") for name in shape.visit])
    return table.append_column("key", visit).append_column("term", _terms(table))


def _terms(events: pa.Table) -> pa.Array:
    """What was searched for: as the event says, else as its address does."""
    said, urls = events["query"].combine_chunks(), events["url"].combine_chunks()
    coded = pc.if_else(said.is_null(), urls, None).dictionary_encode()
    found = pc.struct_field(pc.extract_regex(coded.dictionary, TERM), "term").to_pylist()
    plain = pa.array([term and (unquote_plus(term).strip() or None) for term in found], pa.string())
    return pc.coalesce(said, plain.take(coded.indices))


def _with_lonely(
    events: pa.Table, parents: Int64, ads: pa.Table, place: Place, found: Found
) -> tuple[pa.Table, Int64, pa.Table]:
    """Searches need no ads: each gets a row without one. A list view or a click without ads is bad."""
    alone = np.ones(events.num_rows, np.bool_)
    alone[parents] = False
    searches = np.asarray(pc.equal(events["kind"], SEARCH), np.bool_)
    _without(events, pa.array(alone & ~searches), NO_ADS, "an event without ads", place, found)
    more = np.flatnonzero(alone & searches)
    empty = pa.table({name: pa.nulls(len(more), ads[name].type) for name in ads.column_names})
    return events, np.concatenate([parents, more]), pa.concat_tables([ads, empty])


def _joined(events: pa.Table, parents: Int64, ads: pa.Table) -> pa.Table:
    """A row for each ad, with its event's columns; its own list comes before that of the event."""
    rows = events.take(pa.array(parents))
    first = np.flatnonzero(np.diff(parents, prepend=-1))  # where the ads of an event start
    within = np.arange(len(parents)) - np.repeat(first, np.diff(first, append=len(parents)))
    columns = {name: rows[name] for name in ("kind", "key", "user", "term", "time", "number")}
    lists = pc.coalesce(ads["list"], rows["list"])
    return pa.table(
        {
            **columns,
            "page": rows["url"],
            "list": lists,
            "ad": ads["ad"],
            "position": ads["position"],
            "place": within,
        }
    )


def _sound(rows: pa.Table, place: Place, found: Found) -> pa.Table:
    nothing = pc.and_(rows["ad"].is_null(), pc.not_equal(rows["kind"], SEARCH))
    kept = _without(rows, nothing, NO_AD, "null", place, found)
    return kept.append_column("file", pa.array(np.full(kept.num_rows, place.file, np.int32)))


def _without(
    table: pa.Table, bad: Any, reason: str, got: str, place: Place, found: Found
) -> pa.Table:
    wrong = table.filter(bad)
    if not wrong.num_rows:
        return table
    found.bad_many(
        reason,
        wrong.num_rows,
        [(place.where, number, got) for number in wrong["number"][:KEPT_EXAMPLES].to_pylist()],
    )
    return table.filter(pc.invert(bad))


def _keep_texts(ads: pa.Table, found: Found) -> None:
    titled = ads.filter(pc.and_(ads["ad"].is_valid(), ads["title"].is_valid()))
    for pair in (
        titled.group_by("ad", use_threads=False).aggregate([("title", "first")]).to_pylist()
    ):
        found.text(pair["ad"], title=pair["title_first"])


def _picked(columns: Arrays, kinds: dict[str, str], names: Names, where: str) -> pa.Table:
    fields = [
        Field(name, kind, tuple((each,) for each in names.get(name, ())))
        for name, kind in kinds.items()
    ]
    return pick(
        pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), fields, where
    )
