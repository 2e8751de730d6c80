"""Read User Behavior Insights, the logs of OpenSearch, Solr and Elasticsearch.

Queries with their hits, and events, joined by query_id.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.schema import IDS, TEXT
from reclick.data.timestamps import TIME
from reclick.logs.assembly.page_join import (
    CLICK_COLUMNS,
    INPUT_SCHEMAS,
    ORIGIN_COLUMNS,
    PageJoin,
    join_pages,
)
from reclick.logs.assembly.spill import PartitionedQuery, load_sql
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import abbreviate
from reclick.logs.formats.base import (
    ColumnMapping,
    EventOptions,
    LogFormat,
    Reader,
    ReadReport,
)
from reclick.logs.formats.helpers.json_records import first_objects, read_json_records
from reclick.logs.formats.helpers.records import (
    PRESENT,
    TIMESTAMP,
    WHOLE_NUMBER,
    RecordField,
    nested_or_flat,
    read_parquet_records,
    unparsed_column,
)
from reclick.logs.read_summary import MAX_EXAMPLES
from reclick.logs.validation.reasons import NO_ADS, NO_PAGE_KEY, NOT_READABLE, UNKNOWN_RECORD
from reclick.runtime.outputs import scratch_folder

Bool = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

HIT_NAMES = (  # three spellings are in use
    "query_response_hit_ids",
    "query_response_object_ids",
    "query_response_objects_ids",
)
OBJECT, POSITION = ("event_attributes", "object"), ("event_attributes", "position")
AD_PATHS = (
    *nested_or_flat(*OBJECT, "object_id"),
    ("event_attributes", "object.object_id"),
    ("object.object_id",),
    ("object_id",),
)
POSITION_PATHS = (
    *nested_or_flat(*POSITION, "ordinal"),
    ("event_attributes", "position.ordinal"),
    ("position.ordinal",),
    ("position",),
    ("ordinal",),
)
TITLE_PATHS = (*nested_or_flat(*OBJECT, "name"), *nested_or_flat(*OBJECT, "description"))
UBI_FIELDS = (
    RecordField("action", TEXT, (("action_name",),)),
    RecordField("key", TEXT, (("query_id",),)),
    RecordField("query", TEXT, (("user_query",),)),
    RecordField("ads", IDS, tuple((name,) for name in HIT_NAMES)),
    RecordField("time", TIMESTAMP, (("timestamp",), ("@timestamp",))),
    RecordField("user", TEXT, (("client_id",), ("user_id",), ("session_id",))),
    RecordField("ad", TEXT, AD_PATHS),
    RecordField("position", WHOLE_NUMBER, POSITION_PATHS),
    RecordField("title", TEXT, TITLE_PATHS),
    # the line before each document of a _bulk request
    RecordField("instruction", PRESENT, (("index",), ("create",))),
)
CLICK_ACTIONS = ("click", "click_through")
IMPRESSION_ACTIONS = ("impression",)
CONVERSION_ACTIONS = ("add_to_cart", "purchase")
LONGEST_DWELL = 1800.0  # seconds; later events belong to another visit
# Searches and clicks of a user; only clicks have a page.
USER_EVENT_SCHEMA = pa.schema(
    [("key", pa.string()), ("time", TIME), ("page_key", pa.string())]
    + [(name, kind) for name, kind in CLICK_COLUMNS if name in ("ad", "position")]
    + ORIGIN_COLUMNS
)
MAX_NAMED_ACTIONS = 30  # limit of the actions named in notes
OTHER_ACTION_NOTE = "event of another action, neither a click nor an impression"
EXPECTED_VALUES = {
    "position": "position: expected a whole number",
    "time": "timestamp: expected a time",
}
NO_PAGE_NOTES = {  # what a page shows → the note on a query without any
    "hits": "query without results, skipped",
    "impressions": "query without impressions, skipped",
}


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(
        any(_is_ubi(names) for names in _column_names(file)) for file in files
    )


def _column_names(file: LogFile) -> list[set[str]]:
    return [set(file.columns)] if file.is_parquet else [set(item) for item in first_objects(file)]


def _is_ubi(names: set[str]) -> bool:
    if "query_id" in names and not names.isdisjoint({"user_query", *HIT_NAMES}):
        return True
    has_key = any(name == "query_id" or name.startswith("event_attributes") for name in names)
    return "action_name" in names and has_key


def _has_queries(file: LogFile) -> bool:
    """Whether a file has queries: such files are read first, to keep fewer impressions."""
    return any(not names.isdisjoint(HIT_NAMES) for names in _column_names(file))


def _configure(options: EventOptions) -> Reader:
    """A reader with these options."""

    def read(
        files: list[LogFile], report: ReadReport, _: ColumnMapping
    ) -> Iterator[pa.RecordBatch]:
        def add_rows(join: PageJoin) -> None:
            with (
                scratch_folder() as folder,
                PartitionedQuery(folder, USER_EVENT_SCHEMA, join.num_partitions) as users,
            ):
                numbers = {file: index for index, file in enumerate(files)}
                for file, table in _read_records(files, report):
                    for records in table.to_batches():
                        batch = _UbiBatch(records, numbers[file], file.where, report, options)
                        batch.add_to(join, users)
                _add_clicks_with_dwell_times(users, join)

        return join_pages(
            files,
            report,
            add_rows,
            first_position=None,
            notes_by_reason={NO_ADS: NO_PAGE_NOTES[options.pages]},
            conversions_are_events=True,
        )

    return read


def _read_records(files: list[LogFile], report: ReadReport) -> Iterator[tuple[LogFile, pa.Table]]:
    """Yield the records of all files, each with its file; those with queries are read first."""
    sorted_files = sorted(files, key=lambda file: not _has_queries(file))
    for is_parquet, group in itertools.groupby(sorted_files, lambda file: file.is_parquet):
        if is_parquet:
            for file in group:
                for table in read_parquet_records(file, UBI_FIELDS, report):
                    yield file, table
        else:
            yield from read_json_records(list(group), UBI_FIELDS, report)


def _add_clicks_with_dwell_times(users: PartitionedQuery, join: PageJoin) -> None:
    """Add the clicks of users, with the time until their next search or click."""
    sql = load_sql("ubi.sql", "reclick.logs.formats")["dwell_times"]
    for events in users.partitions():
        users.connection.register("event", events)
        result = users.connection.sql(sql, params={"longest": LONGEST_DWELL})
        join.add("clicks", result.to_arrow_table())
        users.connection.unregister("event")


@dataclass(frozen=True)
class _UbiBatch:
    """A batch of records of a file: queries and events, which have different fields."""

    records: pa.RecordBatch
    file: int
    where: str
    report: ReadReport
    options: EventOptions

    def add_to(self, join: PageJoin, users: PartitionedQuery) -> None:
        """Add pages, impressions and clicks (of known users, to `users`), and report the rest."""
        dictionary_array = self.records["action"].dictionary_encode()
        action = dictionary_array.indices.fill_null(-1).to_numpy()
        actions = [name.strip().lower() for name in dictionary_array.dictionary.to_pylist()]
        is_event, has_key = action >= 0, self.has("key")
        is_query = (self.has("query") | self.has("ads")) & ~is_event
        is_instruction = _to_mask(self.records["instruction"])
        self.add_bad_rows(UNKNOWN_RECORD, ~(is_event | is_query | is_instruction))
        self.add_bad_rows(NO_PAGE_KEY, is_query & ~has_key)
        pages = self.check_values(is_query & has_key, "time")
        self.add_pages(join, pages)
        self.add_note("event with no query_id, skipped", is_event & ~has_key)
        clicks = self.add_events(join, np.where(is_event & has_key, action, -1), actions)
        has_moment = self.has("user") & self.has("time")
        self.add_rows(join, "clicks", clicks & ~has_moment)
        self.add_user_events(users, (pages | clicks) & has_moment, clicks)

    def add_pages(self, join: PageJoin, selection: Bool) -> None:
        """Add queries; if pages show impressions, without their hits."""
        if self.options.pages == "hits":
            self.add_rows(join, "pages", selection)
            return
        index = self.records.schema.get_field_index("ads")
        no_hits = pa.nulls(self.records.num_rows, self.records.schema.field(index).type)
        records = self.records.set_column(index, "ads", no_hits)
        replace(self, records=records).add_rows(join, "pages", selection)

    def add_user_events(self, users: PartitionedQuery, selection: Bool, is_click: Bool) -> None:
        """Add searches and clicks to those of their users."""
        if not selection.any():
            return
        records = self.records
        page_key = pc.if_else(pa.array(is_click), records["key"], None)
        columns = {name: records[name] for name in ("time", "ad", "position", "number")}
        table = pa.table({"key": records["user"], "page_key": page_key, **columns})
        file = pa.array(np.full(records.num_rows, self.file, np.int32))
        users.add(table.append_column("file", file).filter(pa.array(selection)))

    def add_events(self, join: PageJoin, action: Codes, actions: list[str]) -> Bool:
        """Add impressions of single objects and conversions; returns a mask of the clicks.

        Other events are counted by name.
        """
        names = tuple(name.strip().lower() for name in self.options.click) or CLICK_ACTIONS
        is_click = _is_one_of(names, action, actions)
        is_impression = _is_one_of(IMPRESSION_ACTIONS, action, actions) & ~is_click
        is_conversion = _is_one_of(CONVERSION_ACTIONS, action, actions) & ~is_click
        is_other = (action >= 0) & ~is_click & ~is_impression
        valid = self.check_values(is_click | is_impression, "position", "time")
        is_click, is_impression = is_click & valid, is_impression & valid
        on_object = is_click & (self.has("ad") | self.has("position"))
        of_object = is_impression & self.has("ad")
        self.add_note("click on no object, skipped", is_click & ~on_object)
        self.add_note("impression of no object, skipped", is_impression & ~of_object)
        has_no_time = on_object & ~self.has("time")
        self.add_note("click without a time, put after the others of its page", has_no_time)
        self.add_rows(join, "shown", of_object)
        self.add_conversions(join, is_conversion)
        self.add_titles(action >= 0)
        for code, count in enumerate(np.bincount(action[is_other])):
            self.add_other_action(actions[code], int(count))
        return on_object

    def add_conversions(self, join: PageJoin, selection: Bool) -> None:
        """Add conversions, which follow a click on their object."""
        is_complete = selection & (self.has("ad") | self.has("position")) & self.has("time")
        self.add_note(
            "conversion of no object or without a time, skipped", selection & ~is_complete
        )
        self.add_rows(join, "conversions", is_complete)

    def add_other_action(self, action: str, count: int) -> None:
        """Count events of another action, by name unless there are too many names.

        Conversions are counted too, since they may be the only clicks of a log.
        """
        actions = self.report.other_actions
        is_named = action in actions or len(actions) < MAX_NAMED_ACTIONS
        if count and is_named:
            actions[action] += count
        if action in CONVERSION_ACTIONS:
            return
        note = f"{abbreviate(action)} event, neither a click nor an impression"
        self.report.add_note(note if is_named else OTHER_ACTION_NOTE, count)

    def has(self, name: str) -> Bool:
        """Whether each record has a value of this field."""
        return _to_mask(self.records[name].is_valid())

    def add_note(self, note: str, selection: Bool) -> None:
        """Count records as a note."""
        self.report.add_note(note, int(selection.sum()))

    def check_values(self, selection: Bool, *names: str) -> Bool:
        """The records of the selection whose fields are readable; the others are bad."""
        for name in names:
            unparsed = self.records[unparsed_column(name)]
            if unparsed.null_count < len(unparsed):
                bad = selection & _to_mask(unparsed.is_valid())
                self.add_bad_rows(NOT_READABLE, bad, partial(_describe_value, name, unparsed))
                selection = selection & ~bad
        return selection

    def add_bad_rows(
        self, reason: str, bad: Bool, describe: Callable[[int], str] | None = None
    ) -> None:
        """Count records as bad."""
        rows, describe = np.flatnonzero(bad), describe or self.describe
        numbers = self.records["number"]
        examples = [
            (self.where, numbers[row].as_py(), describe(row))
            for row in rows[:MAX_EXAMPLES].tolist()
        ]
        self.report.add_bad_rows(reason, len(rows), examples)

    def describe(self, row: int) -> str:
        """Describe a record in a few words."""
        names = ("action", "key", "query", "ads", "ad")
        values = {name: self.records[name][row].as_py() for name in names}
        parts = (f"{name} {abbreviate(value)}" for name, value in values.items() if value)
        return ", ".join(parts) or "none of the fields known"

    def add_rows(self, join: PageJoin, kind: str, selection: Bool) -> None:
        """Add records to the join."""
        if selection.any():
            available = self.records.schema.names
            names = [name for name in INPUT_SCHEMAS[kind].names if name in available]
            records = self.records.select(names)
            records = records if selection.all() else records.filter(pa.array(selection))
            file = pa.array(np.full(records.num_rows, self.file, np.int32))
            join.add(kind, pa.Table.from_batches([records]).append_column("file", file))

    def add_titles(self, selection: Bool) -> None:
        """Add the titles of the objects of events."""
        has_title = pa.array(selection & self.has("title") & self.has("ad"))
        ads, titles = (self.records[name].filter(has_title).to_pylist() for name in ("ad", "title"))
        for ad, title in dict(zip(reversed(ads), reversed(titles), strict=True)).items():
            self.report.add_ad_text(ad, title)


def _is_one_of(names: Collection[str], action: Codes, actions: list[str]) -> Bool:
    return np.isin(
        action, [code for code, action_name in enumerate(actions) if action_name in names]
    )


def _describe_value(name: str, unparsed: pa.Array, row: int) -> str:
    return f"{EXPECTED_VALUES[name]}, got {abbreviate(unparsed[row].as_py())}"


def _to_mask(values: pa.Array) -> Bool:
    mask: Bool = values.to_numpy(zero_copy_only=False)
    return mask


FORMAT = LogFormat(
    name="ubi",
    title="User Behavior Insights (OpenSearch, Solr, Elasticsearch)",
    about=(
        "queries and events as JSON lines or Parquet, joined by query_id; clicks in the order of "
        "time, with conversions and dwell times"
    ),
    recognises=_recognises,
    read=_configure(EventOptions()),
    configure=_configure,
)
