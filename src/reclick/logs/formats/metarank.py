"""Metarank's events, as JSON lines: rankings are pages, interactions of type click are clicks, item events bring the text of ads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.assembly.page_join import KINDS, PageJoin, join_pages
from reclick.logs.files.archive import LogFile
from reclick.logs.files.cell_parsing import UnreadableError, as_ids, as_time
from reclick.logs.files.source import short
from reclick.logs.formats.base import BATCH, Columns, Format, Found
from reclick.logs.formats.helpers.json_records import (
    Record,
    first_objects,
    plain_text,
    read_objects,
)
from reclick.logs.summary import NOT_READABLE
from reclick.logs.timestamps import as_times

NO_QUERY = "(no query)"  # the query of rankings without a search, such as recommendations
TITLES, DESCRIPTIONS, ADDRESSES = (
    ("title", "name"),
    ("description",),
    ("url", "link"),
)  # fields of an item; the first that is there
NO_KEY = "no page key"


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(
        any(_is_event(item) for item in first_objects(file)) for file in files
    )


def _is_event(item: Record) -> bool:
    kind = item.get("event")
    return "timestamp" in item and isinstance(kind, str) and MAIN.get(kind, "") in item


def _read(files: list[LogFile], found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    del columns  # the names are the format's

    def add(join: PageJoin) -> None:
        for place, file in enumerate(files):
            events = _Events(join, file.where, place, found)
            for number, item in read_objects(file, found):
                events.take(item, number)
            events.add_gathered()

    return join_pages(files, found, add)


class _Events:
    """The events of a file, gathered and added to the join."""

    def __init__(self, join: PageJoin, where: str, file: int, found: Found) -> None:
        self.join, self.where, self.file, self.found = join, where, file, found
        self.gathered: dict[str, list[Record]] = {"pages": [], "clicks": []}

    def take(self, item: Record, number: int) -> None:
        """Take in an event, or tell why not."""
        kind = item.get("event")
        if not isinstance(kind, str) or kind not in TAKE:
            self.found.bad(
                NOT_READABLE,
                self.where,
                number,
                f"event: expected {', '.join(TAKE)}, got {short(kind)}",
            )
            return
        try:
            TAKE[kind](self, item, number)
        except UnreadableError as error:
            self.found.bad(NOT_READABLE, self.where, number, str(error))

    def take_ranking(self, item: Record, number: int) -> None:
        """A page."""
        ads = [_text(each, "id") for each in _objects(item, "items")]
        query = _query(_fields(item))
        key = _text(item, "id")
        if key is None:
            self.found.bad(NO_KEY, self.where, number, f"a ranking without id, of {len(ads)} items")
            return
        self.found.note(f"ranking without a query, read as the query {NO_QUERY!r}", query is None)
        user = _text(item, "user") or _text(item, "session")
        self.gather(
            "pages",
            {
                "key": key,
                "query": query or NO_QUERY,
                "ads": ads,
                "user": user,
                "time": _time(item),
                "number": number,
            },
        )

    def take_interaction(self, item: Record, number: int) -> None:
        """A click, when it is one and on a ranking."""
        kind, key = _text(item, "type"), _text(item, "ranking")
        if kind != "click":
            self.found.note(f"{short(kind)} interaction, not a click: set aside")
        elif key is None:
            self.found.note("click outside a ranking, set aside")
        else:
            self.gather(
                "clicks",
                {"key": key, "ad": _text(item, "item"), "time": _time(item), "number": number},
            )

    def take_item(self, item: Record, _: int) -> None:
        """The text of an ad."""
        ad, fields = _text(item, "item"), _fields(item)
        texts = [
            next((fields[name] for name in names if isinstance(fields.get(name), str)), "")
            for names in (TITLES, DESCRIPTIONS, ADDRESSES)
        ]
        if ad is not None and any(texts):
            self.found.text(ad, *(plain_text(text) or "" for text in texts))

    def take_user(self, _: Record, __: int) -> None:
        """What a session cannot hold."""
        self.found.note("user event, set aside")

    def gather(self, kind: str, row: Record) -> None:
        """Keep a row until there are enough to add."""
        self.gathered[kind].append(row)
        if len(self.gathered[kind]) >= BATCH:
            self.add_gathered()

    def add_gathered(self) -> None:
        """Add the rows kept."""
        for kind, rows in self.gathered.items():
            columns = {
                field.name: pa.array([row.get(field.name) for row in rows], _given(field))
                for field in KINDS[kind]
            }
            times = as_times(columns["time"])
            table = pa.table({**columns, "time": times, "file": pa.repeat(self.file, len(rows))})
            self.join.add(kind, table.filter(self.timed(columns["time"], times, columns["number"])))
            self.gathered[kind] = []

    def timed(self, written: pa.Array, times: pa.Array, numbers: pa.Array) -> pa.Array:
        """Which rows have a time, or none written; one that is written and is no time is bad."""
        lost = pc.and_(written.is_valid(), times.is_null())
        for text, number in zip(
            written.filter(lost).to_pylist(), numbers.filter(lost).to_pylist(), strict=True
        ):
            self.found.bad(NOT_READABLE, self.where, number, f"timestamp: no time: {short(text)}")
        return pc.invert(lost)


TAKE = {
    "ranking": _Events.take_ranking,
    "interaction": _Events.take_interaction,
    "item": _Events.take_item,
    "user": _Events.take_user,
}
MAIN = {
    "ranking": "items",
    "interaction": "item",
    "item": "item",
    "user": "user",
}  # what an event cannot do without


def _given(field: pa.Field) -> pa.DataType:
    return pa.string() if field.name == "time" else field.type


def _text(item: Record, name: str) -> str | None:
    try:
        return plain_text(item.get(name)) or None
    except UnreadableError as error:
        raise UnreadableError(f"{name}: {error}") from error


def _time(item: Record) -> str | None:
    try:
        return as_time(item.get("timestamp"))
    except UnreadableError as error:
        raise UnreadableError(f"timestamp: {error}") from error


def _objects(item: Record, name: str) -> list[Record]:
    found = item.get(name)
    given = [] if found is None else found
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise UnreadableError(f"{name}: expected a list of objects, got {short(given)}")
    return given


def _fields(item: Record) -> dict[Any, Any]:
    """The extra fields of an event by name; of two of a name the first."""
    return {str(each.get("name")): each.get("value") for each in reversed(_objects(item, "fields"))}


def _query(fields: Record) -> str | None:
    value = fields.get("query")
    if isinstance(value, list):  # its words
        value = " ".join(word for word in as_ids(value) or [] if word)
    try:
        return plain_text(value) or None
    except UnreadableError as error:
        raise UnreadableError(f"query: {error}") from error


METARANK = Format(
    "metarank",
    "Metarank events",
    "rankings and interactions as JSON lines, joined by the ranking's id; clicks in the order of time, titles of items as the text of ads",
    _recognises,
    _read,
)
