"""Read Metarank's events, as JSON lines: rankings are pages, click interactions are clicks.

Item events have the text of ads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.timestamps import as_times
from reclick.logs.assembly.page_join import INPUT_SCHEMAS, PageJoin, join_pages
from reclick.logs.files.jsonl import UnreadableError, as_ids, as_time
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import abbreviate
from reclick.logs.formats.base import BATCH_SESSIONS, ColumnMapping, LogFormat, ReadReport
from reclick.logs.formats.helpers.json_records import (
    JsonObject,
    first_objects,
    read_objects,
    to_valid_text,
)
from reclick.logs.validation.reasons import NO_PAGE_KEY, NOT_READABLE

DEFAULT_QUERY = "(no query)"  # of rankings without a search, such as recommendations
# Fields of an item with its title, description and address; the first that exists is used.
TEXT_FIELDS = (("title", "name"), ("description",), ("url", "link"))
# An event and the field that it must have
REQUIRED_FIELDS = {"ranking": "items", "interaction": "item", "item": "item", "user": "user"}


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(
        any(_is_event(item) for item in first_objects(file)) for file in files
    )


def _is_event(item: JsonObject) -> bool:
    kind = item.get("event")
    return "timestamp" in item and isinstance(kind, str) and REQUIRED_FIELDS.get(kind, "") in item


def _read(files: list[LogFile], report: ReadReport, _: ColumnMapping) -> Iterator[pa.RecordBatch]:
    def add_rows(join: PageJoin) -> None:
        for index, file in enumerate(files):
            events = _MetarankEvents(join, file.where, index, report)
            for number, item in read_objects(file, report):
                events.add(item, number)
            events.flush()

    return join_pages(files, report, add_rows)


class _MetarankEvents:
    """The events of a file, collected and added to the join in batches."""

    def __init__(self, join: PageJoin, where: str, file: int, report: ReadReport) -> None:
        self.join, self.where, self.file, self.report = join, where, file, report
        self.rows: dict[str, list[JsonObject]] = {"pages": [], "clicks": []}

    def add(self, item: JsonObject, number: int) -> None:
        """Add an event, or report why it is bad."""
        kind = item.get("event")
        if not isinstance(kind, str) or kind not in ADD_EVENT:
            got = f"event: expected {', '.join(ADD_EVENT)}, got {abbreviate(kind)}"
            self.report.add_bad_row(NOT_READABLE, self.where, number, got)
            return
        try:
            ADD_EVENT[kind](self, item, number)
        except UnreadableError as error:
            self.report.add_bad_row(NOT_READABLE, self.where, number, str(error))

    def add_ranking(self, item: JsonObject, number: int) -> None:
        """Add a page."""
        ads = [_get_text(each, "id") for each in _get_objects(item, "items")]
        query = _get_query(_get_fields(item))
        key = _get_text(item, "id")
        if key is None:
            got = f"a ranking without id, of {len(ads)} items"
            self.report.add_bad_row(NO_PAGE_KEY, self.where, number, got)
            return
        note = f"ranking without a query, read as the query {DEFAULT_QUERY!r}"
        self.report.add_note(note, query is None)
        row = {
            "key": key,
            "query": query or DEFAULT_QUERY,
            "ads": ads,
            "user": _get_text(item, "user") or _get_text(item, "session"),
            "time": _get_time(item),
            "number": number,
        }
        self.collect("pages", row)

    def add_interaction(self, item: JsonObject, number: int) -> None:
        """Add the interaction if it is a click on a ranking."""
        kind, key = _get_text(item, "type"), _get_text(item, "ranking")
        if kind != "click":
            self.report.add_note(f"{abbreviate(kind)} interaction, not a click: skipped")
        elif key is None:
            self.report.add_note("click outside a ranking, skipped")
        else:
            ad, time = _get_text(item, "item"), _get_time(item)
            self.collect("clicks", {"key": key, "ad": ad, "time": time, "number": number})

    def add_item(self, item: JsonObject, _: int) -> None:
        """Add the text of an ad."""
        ad, fields = _get_text(item, "item"), _get_fields(item)
        texts = [
            next((fields[name] for name in names if isinstance(fields.get(name), str)), "")
            for names in TEXT_FIELDS
        ]
        if ad is not None and any(texts):
            self.report.add_ad_text(ad, *(to_valid_text(text) or "" for text in texts))

    def add_user(self, _: JsonObject, __: int) -> None:
        """Count an event that a session cannot hold."""
        self.report.add_note("user event, skipped")

    def collect(self, kind: str, row: JsonObject) -> None:
        """Collect rows, and add them when there are enough."""
        self.rows[kind].append(row)
        if len(self.rows[kind]) >= BATCH_SESSIONS:
            self.flush()

    def flush(self) -> None:
        """Add the collected rows to the join."""
        for kind, rows in self.rows.items():
            columns = {
                field.name: pa.array([row.get(field.name) for row in rows], _type_as_written(field))
                for field in INPUT_SCHEMAS[kind]
            }
            times = as_times(columns["time"])
            table = pa.table({**columns, "time": times, "file": pa.repeat(self.file, len(rows))})
            valid = self.check_times(columns["time"], times, columns["number"])
            self.join.add(kind, table.filter(valid))
            self.rows[kind] = []

    def check_times(self, raw_times: pa.Array, times: pa.Array, numbers: pa.Array) -> pa.Array:
        """Whether each row has a valid time, or none; the other rows are bad."""
        bad = pc.and_(raw_times.is_valid(), times.is_null())
        texts = raw_times.filter(bad).to_pylist()
        for text, number in zip(texts, numbers.filter(bad).to_pylist(), strict=True):
            got = f"timestamp: not a time: {abbreviate(text)}"
            self.report.add_bad_row(NOT_READABLE, self.where, number, got)
        return pc.invert(bad)


ADD_EVENT = {
    "ranking": _MetarankEvents.add_ranking,
    "interaction": _MetarankEvents.add_interaction,
    "item": _MetarankEvents.add_item,
    "user": _MetarankEvents.add_user,
}


def _type_as_written(field: pa.Field) -> pa.DataType:
    return pa.string() if field.name == "time" else field.type


def _get_text(item: JsonObject, name: str) -> str | None:
    try:
        return to_valid_text(item.get(name)) or None
    except UnreadableError as error:
        raise UnreadableError(f"{name}: {error}") from error


def _get_time(item: JsonObject) -> str | None:
    try:
        value = as_time(item.get("timestamp"))
        return None if value is None else to_valid_text(value)
    except UnreadableError as error:
        raise UnreadableError(f"timestamp: {error}") from error


def _get_objects(item: JsonObject, name: str) -> list[JsonObject]:
    value = item.get(name)
    value = [] if value is None else value
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise UnreadableError(f"{name}: expected a list of objects, got {abbreviate(value)}")
    return value


def _get_fields(item: JsonObject) -> dict[Any, Any]:
    """The extra fields of an event by name; if a name is repeated, the first."""
    fields = reversed(_get_objects(item, "fields"))
    return {str(each.get("name")): each.get("value") for each in fields}


def _get_query(fields: JsonObject) -> str | None:
    value = fields.get("query")
    if isinstance(value, list):  # its words
        value = " ".join(word for word in as_ids(value) or [] if word)
    try:
        return to_valid_text(value) or None
    except UnreadableError as error:
        raise UnreadableError(f"query: {error}") from error


FORMAT = LogFormat(
    name="metarank",
    title="Metarank events",
    about=(
        "rankings and interactions as JSON lines, joined by the ranking's id; clicks in the order "
        "of time, titles of items as the text of ads"
    ),
    recognises=_recognises,
    read=_read,
)
