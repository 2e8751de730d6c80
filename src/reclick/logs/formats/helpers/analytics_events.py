"""Read events of product lists from web analytics: a list was shown, an ad was clicked.

Each batch of a Parquet file becomes rows, one per ad of each list view and click, from flat files
and from files with nested ads. The events do not name pages: SQL splits visits into pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reclick.data.batch import Int64
from reclick.data.schema import (
    OUTCOME_COLUMNS,
    TEXT,
    Column,
    check_mapping,
    is_list,
    is_string,
    name_column,
)
from reclick.data.timestamps import TIME
from reclick.errors import LogError
from reclick.logs.assembly.page_join import PageJoin, join_key_parts
from reclick.logs.assembly.spill import ROW_NUMBER_BITS, PartitionedQuery, load_sql
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import ColumnMapping, ReadReport
from reclick.logs.formats.helpers.records import (
    TIMESTAMP,
    WHOLE_NUMBER,
    RecordField,
    drop_invalid_text,
    read_parquet_batches,
    select_fields,
)
from reclick.logs.read_summary import MAX_EXAMPLES
from reclick.logs.validation.reasons import CLICK_WITHOUT_PAGE, NO_AD, NO_ADS, NO_TIME
from reclick.runtime.outputs import scratch_folder
from reclick.runtime.parquet_layout import read_layout

EVENT_KINDS = ("view", "click", "search", "conversion")  # in SQL, their index
SEARCH, CONVERSION = "search", "conversion"
LONGEST_DWELL = 1800.0  # seconds; later events belong to another visit
NOT_SET = "(not set)"  # how Google Analytics writes null
AD_BYTES = 300  # memory per impression while its page is assembled
# The parameters of an address that hold the search term: Google Analytics' default ones.
TERM_PATTERN = r"(?i)(?:^|[?&])(?:q|s|search|query|keyword)=(?P<term>[^&#]+)"
EVENT_FIELDS = {
    "event": TEXT,
    "time": TIMESTAMP,
    "user": TEXT,
    "session": TEXT,
    "page_view": TEXT,
    "url": TEXT,
    "query": TEXT,
    "list": TEXT,
}
AD_FIELDS = {"ad": TEXT, "title": TEXT, "position": WHOLE_NUMBER, "list": TEXT}

OTHER_EVENT_NOTE = "event of another kind, skipped"
NO_PRODUCT_NOTE = "conversion without an ad, skipped"
NO_USER_NOTE = "event without any user, session or page id, skipped"
# For example, if the export of a day cuts a visit
CLICK_BEFORE_VIEW_NOTE = "click without a list view before it in its visit, skipped"
SESSIONISE_NOTES = {  # note -> the statement that counts
    "event recorded again, kept once": "count_repeats",
    "ad shown in a list without a search term, the list taken as the query": "count_without_term",
    "ad shown in a list without a search term and without a name, skipped": "count_without_query",
    "click in a list without a search term and without a name, skipped": (
        "count_clicks_without_query"
    ),
    "ad shown without an index, its place in the event taken": "count_without_index",
    "conversion without a click on its ad before it, skipped": "count_other_conversions",
}

FieldNames = dict[str, tuple[str, ...]]  # a field -> the columns that may hold it, best first
Arrays = dict[str, pa.Array]  # columns by their names in lower case


@dataclass(frozen=True, slots=True)
class AnalyticsSchema:
    """How one analytics product writes its events."""

    kinds: dict[str, str]  # name of an event -> view, click, search or conversion
    names: FieldNames  # of the fields of events and ads, in flat columns
    visit: tuple[str, ...]  # the fields that identify a visit
    journey: tuple[str, ...]  # … and a user: a conversion may be in another visit
    identity: tuple[str, ...]  # fields, at least one of which must have a value
    # prefix of the name of a nested column -> the leaves to read from it
    nested: dict[str, tuple[str, ...]]
    ads: str  # prefix of the name of the column with the ads of an event
    ad_names: FieldNames  # of the fields of ads, in that column
    flatten: Callable[[Arrays, str], Arrays]  # returns the other nested columns as flat ones
    required: FieldNames  # a field -> prefixes of column names, one of which must exist


@dataclass(frozen=True, slots=True)
class BatchLocation:
    """The place of a batch in the log."""

    file: int
    where: str
    numbers: Int64  # [row of the batch] its number in the file


def is_analytics(schema: AnalyticsSchema, files: list[LogFile]) -> bool:
    """Whether all files have the columns of this schema."""
    return bool(files) and all(
        _any_starts(file.columns, starts) for file in files for starts in schema.required.values()
    )


def read_analytics(
    schema: AnalyticsSchema, files: list[LogFile], report: ReadReport, columns: ColumnMapping
) -> Iterator[pa.RecordBatch]:
    """Yield the sessions of list events; `columns` maps the names that differ from the schema."""
    kinds = {**EVENT_FIELDS, **AD_FIELDS}
    mapping = check_mapping(columns, [Column(name, kind) for name, kind in kinds.items()])
    names = {
        name: (mapping[name].lower(),) if name in mapping else schema.names.get(name, ())
        for name in kinds
    }
    log_bytes = sum(_count_ads(file, schema) for file in files) * AD_BYTES
    notes = {CLICK_WITHOUT_PAGE: CLICK_BEFORE_VIEW_NOTE}
    with (
        scratch_folder() as folder,
        PageJoin(
            folder, files, log_bytes, notes_by_reason=notes, conversions_are_events=True
        ) as join,
    ):
        _add_pages(schema, names, files, report, join)
        yield from join.sessions(report)


def _add_pages(
    schema: AnalyticsSchema,
    names: FieldNames,
    files: list[LogFile],
    report: ReadReport,
    join: PageJoin,
) -> None:
    """Split the visits into pages, and add these to the join."""
    with (
        scratch_folder() as folder,
        PageViewSessioniser(folder, join.num_partitions) as sessioniser,
    ):
        for index, file in enumerate(files):
            for numbers, columns in _read_batches(file, schema, names, report):
                location = BatchLocation(index, file.where, numbers)
                sessioniser.add(build_ad_rows(columns, schema, names, location, report))
        for kind, table in sessioniser.pages(report):
            join.add(kind, table)


# ---- files


def _read_batches(
    file: LogFile, schema: AnalyticsSchema, names: FieldNames, report: ReadReport
) -> Iterator[tuple[Int64, Arrays]]:
    """Yield the columns of a file in batches, with the number of each row."""

    def choose_columns(source: pq.ParquetFile) -> list[str]:
        _check_columns(file, source.schema_arrow.names, schema, names)
        paths = [source.schema.column(index).path for index in range(len(source.schema))]
        return [path for path in paths if _is_needed(path.lower(), schema, names)]

    for first_row, batch in read_parquet_batches(file, report, choose_columns):
        batch, numbers = drop_invalid_text(batch, first_row, file, report)  # noqa: PLW2901
        columns = {name.lower(): _unset_to_null(batch.column(name)) for name in batch.schema.names}
        yield numbers, columns


def _count_ads(file: LogFile, schema: AnalyticsSchema) -> int:
    """The number of ads in the events of a file, from its metadata."""
    try:
        layout = read_layout(file.path, file.where)
    except (LogError, OSError):
        return 0  # reading the file reports the error
    rows = sum(group.num_rows for group in layout.groups)
    return max(rows, *layout.num_values(schema.ads).values(), 0)


def _check_columns(
    file: LogFile, columns: list[str], schema: AnalyticsSchema, names: FieldNames
) -> None:
    """Raise if a file lacks a required column, or a column that the caller named."""
    caller_names = {
        name: starts for name, starts in names.items() if starts != schema.names.get(name, ())
    }
    for name, starts in {**schema.required, **caller_names}.items():
        if not _any_starts(columns, starts):
            raise LogError(
                f"{file.where} has no column {' or '.join(starts)}. "
                f"It has {', '.join(columns[:30])}. Name the right one with ",
                name_column(name),
                ".",
            )


def _any_starts(columns: Iterable[str], starts: tuple[str, ...]) -> bool:
    return any(column.lower().startswith(starts) for column in columns)


def _is_needed(path: str, schema: AnalyticsSchema, names: FieldNames) -> bool:
    if any(path in candidates for candidates in names.values()):
        return True
    top, *inner = path.split(".")
    starts = [start for start in schema.nested if top.startswith(start)]
    return any(not inner or inner[-1] in schema.nested[start] for start in starts)


# ---- columns


def find_column(columns: Arrays, start: str) -> str | None:
    """The column whose name has this prefix; of several (versions of a schema), the last."""
    return max((name for name in columns if name.startswith(start)), default=None)


def flatten_records(values: pa.Array, name: str, where: str) -> tuple[pa.Array, Arrays]:
    """Flatten lists of records: the row of each record, and their fields as columns."""
    if not is_list(values.type) or not pa.types.is_struct(values.type.value_type):
        raise LogError(
            f"{name} in {where}: expected a list of records, got {values.type}. "
            "Export it as such, or flatten it to columns."
        )
    return pc.list_parent_indices(values), split_record_fields(values.flatten())


def split_record_fields(records: pa.Array) -> Arrays:
    """The fields of records as columns."""
    columns = zip(records.type, records.flatten(), strict=True)
    return {field.name.lower(): _unset_to_null(column) for field, column in columns}


def _unset_to_null(values: pa.Array) -> pa.Array:
    if not is_string(values.type):
        return values
    return pc.if_else(pc.equal(values, NOT_SET), None, values)


# ---- rows


def build_ad_rows(
    columns: Arrays,
    schema: AnalyticsSchema,
    names: FieldNames,
    location: BatchLocation,
    report: ReadReport,
) -> pa.Table:
    """Build the list views, clicks and searches of a batch, one row per ad."""
    flat = {**columns, **schema.flatten(columns, location.where)}
    events = _select_events(flat, schema, names, location, report)
    ads_column = find_column(columns, schema.ads)
    if ads_column is None:
        event = np.arange(events.num_rows)
        ads = _select(flat, AD_FIELDS, names, location.where).take(events["row"])
    else:
        nested = columns[ads_column].take(events["row"].combine_chunks())
        parents, fields = flatten_records(nested, ads_column, location.where)
        event = np.asarray(parents, np.int64)
        ads = _select(fields, AD_FIELDS, schema.ad_names, location.where)
        event, ads = _add_searches_without_ads(events, event, ads, location, report)
    _add_titles(ads, report)
    rows = _join_events_and_ads(events, event, ads)
    no_product = pc.and_(rows["ad"].is_null(), pc.equal(rows["kind"], CONVERSION))
    report.add_note(NO_PRODUCT_NOTE, int(pc.sum(no_product).as_py() or 0))
    rows = rows.filter(pc.invert(no_product))
    no_ad = pc.and_(rows["ad"].is_null(), pc.not_equal(rows["kind"], SEARCH))
    rows = _drop_bad(rows, no_ad, NO_AD, "null", location, report)
    return rows.append_column("file", pa.array(np.full(rows.num_rows, location.file, np.int32)))


def _select_events(
    flat: Arrays,
    schema: AnalyticsSchema,
    names: FieldNames,
    location: BatchLocation,
    report: ReadReport,
) -> pa.Table:
    """Select the list events that have a user and a time, with their kind and row."""
    table = _select(flat, EVENT_FIELDS, names, location.where)
    codes = pc.index_in(table["event"], pa.array(list(schema.kinds))).combine_chunks()
    kinds = pa.array(list(schema.kinds.values())).take(codes)
    rows, numbers = pa.array(np.arange(table.num_rows)), pa.array(location.numbers)
    for name, column in {"kind": kinds, "row": rows, "number": numbers}.items():
        table = table.append_column(name, column)
    table = table.filter(kinds.is_valid())
    report.add_note(OTHER_EVENT_NOTE, kinds.null_count)
    has_user = reduce(pc.or_, [table[name].is_valid() for name in schema.identity])
    report.add_note(NO_USER_NOTE, table.num_rows - int(pc.sum(has_user).as_py() or 0))
    table = table.filter(has_user)
    table = _drop_bad(table, table["time"].is_null(), NO_TIME, "null", location, report)
    visit, journey = (
        join_key_parts([table[name].combine_chunks().fill_null("") for name in names])
        for names in (schema.visit, schema.journey)
    )
    has_journey = reduce(pc.or_, [table[name].is_valid() for name in schema.journey])
    journey = pc.if_else(has_journey.combine_chunks(), journey, visit)
    table = table.append_column("key", journey).append_column("visit", visit)
    return table.append_column("term", _search_terms(table))


def _search_terms(events: pa.Table) -> pa.Array:
    """The search term of the event, or of its address."""
    event_terms, urls = events["query"].combine_chunks(), events["url"].combine_chunks()
    dictionary_array = pc.if_else(event_terms.is_null(), urls, None).dictionary_encode()
    quoted_terms = pc.struct_field(
        pc.extract_regex(dictionary_array.dictionary, TERM_PATTERN), "term"
    ).to_pylist()
    terms = [term and (unquote_plus(term).strip() or None) for term in quoted_terms]
    return pc.coalesce(event_terms, pa.array(terms, pa.string()).take(dictionary_array.indices))


def _add_searches_without_ads(
    events: pa.Table, event: Int64, ads: pa.Table, location: BatchLocation, report: ReadReport
) -> tuple[Int64, pa.Table]:
    """Add a row without an ad for each search without ads.

    Conversions without ads are dropped; other events without ads are bad.
    """
    without_ads = np.ones(events.num_rows, np.bool_)
    without_ads[event] = False
    is_search = np.asarray(pc.equal(events["kind"], SEARCH), np.bool_)
    is_conversion = np.asarray(pc.equal(events["kind"], CONVERSION), np.bool_)
    report.add_note(NO_PRODUCT_NOTE, int((without_ads & is_conversion).sum()))
    bad = pa.array(without_ads & ~is_search & ~is_conversion)
    _drop_bad(events, bad, NO_ADS, "an event without ads", location, report)
    searches = np.flatnonzero(without_ads & is_search)
    types = {name: ads[name].type for name in ads.column_names}
    empty = pa.table({name: pa.nulls(len(searches), kind) for name, kind in types.items()})
    return np.concatenate([event, searches]), pa.concat_tables([ads, empty])


def _join_events_and_ads(events: pa.Table, event: Int64, ads: pa.Table) -> pa.Table:
    """One row per ad, with the columns of its event, unless the ad has its own list."""
    rows = events.take(pa.array(event))
    first = np.flatnonzero(np.diff(event, prepend=-1))  # where the ads of an event start
    sizes = np.diff(first, append=len(event))
    index_in_event = np.arange(len(event)) - np.repeat(first, sizes)
    names = ("kind", "key", "visit", "user", "term", "time", "number")
    columns = {name: rows[name] for name in names}
    return pa.table(
        {
            **columns,
            "page": rows["url"],
            "list": pc.coalesce(ads["list"], rows["list"]),
            "ad": ads["ad"],
            "position": ads["position"],
            "index_in_event": index_in_event,
        }
    )


def _drop_bad(
    table: pa.Table, bad: Any, reason: str, got: str, location: BatchLocation, report: ReadReport
) -> pa.Table:
    bad_rows = table.filter(bad)
    if not bad_rows.num_rows:
        return table
    numbers = bad_rows["number"][:MAX_EXAMPLES].to_pylist()
    examples = [(location.where, number, got) for number in numbers]
    report.add_bad_rows(reason, bad_rows.num_rows, examples)
    return table.filter(pc.invert(bad))


def _add_titles(ads: pa.Table, report: ReadReport) -> None:
    with_titles = ads.filter(pc.and_(ads["ad"].is_valid(), ads["title"].is_valid()))
    first = with_titles.group_by("ad", use_threads=False).aggregate([("title", "first")])
    for row in first.to_pylist():
        report.add_ad_text(row["ad"], title=row["title_first"])


def _select(columns: Arrays, kinds: dict[str, str], names: FieldNames, where: str) -> pa.Table:
    fields = [
        RecordField(name, kind, tuple((each,) for each in names.get(name, ())))
        for name, kind in kinds.items()
    ]
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return select_fields(batch, fields, where)


# ---- pages

EVENT_SCHEMA = pa.schema(
    [
        ("key", pa.string()),  # identifies a user
        ("visit", pa.string()),  # within which views and clicks belong together
        ("kind", pa.string()),
        ("user", pa.string()),
        ("list", pa.string()),  # its id or name
        ("term", pa.string()),  # the search term, where the event has one
        ("page", pa.string()),  # the address it happened at
        ("ad", pa.string()),
        ("position", pa.int64()),  # from 0 or from 1
        ("time", TIME),
        ("file", pa.int32()),
        ("number", pa.int64()),
        ("index_in_event", pa.int32()),  # of the ad
    ]
)
# SQL gets texts as numbers, which it sorts and groups several times faster. A list may be used as a
# term, so these two share their numbers.
CODED_COLUMNS = (("journey",), ("visit",), ("user",), ("term", "list"), ("page",), ("ad",))
Texts = dict[str, pa.Array]


class PageViewSessioniser(PartitionedQuery):
    """Stores list events on disk, and splits them into pages.

    >>> from tempfile import TemporaryDirectory
    >>> rows = {"kind": ["view", "click"], "key": ["u"] * 2, "visit": ["u"] * 2, "ad": ["a"] * 2}
    >>> rows |= {"list": ["shoes"] * 2, "index_in_event": [0, 0]}
    >>> rows |= {"time": [1, 2], "number": [1, 2], "file": [0, 0]}
    >>> with TemporaryDirectory() as folder, PageViewSessioniser(Path(folder), 1) as sessioniser:
    ...     sessioniser.add(pa.table(rows))
    ...     pages = sessioniser.pages(ReadReport())
    ...     [(kind, table["key"].to_pylist()) for kind, table in pages]
    [('shown', ['u|1']), ('clicks', ['u|1'])]
    """

    def __init__(self, folder: Path, partitions: int) -> None:
        super().__init__(folder, EVENT_SCHEMA, partitions)

    def pages(self, report: ReadReport) -> Iterator[tuple[str, pa.Table]]:
        """Yield impressions and clicks with the keys of pages, as the page join takes them."""
        sql = load_sql("sessionise.sql")
        notes = {note: sql[statement] for note, statement in SESSIONISE_NOTES.items()}
        for partition in self.partitions():
            events, texts = _encode_texts(partition)
            self.connection.register("event", events)
            for statement in ("once", "showings", "slots", "pages", "clicks"):
                self.connection.execute(sql[statement])
            self.connection.execute(sql["outcomes"], {"longest": LONGEST_DWELL})
            self.add_notes(notes, report)
            for kind, statement in (("shown", "select_shown"), ("clicks", "select_clicks")):
                table = self.connection.sql(sql[statement]).to_arrow_table()
                yield kind, _decode_texts(table, texts)
            self.connection.unregister("event")


def _encode_texts(events: pa.Table) -> tuple[pa.Table, Texts]:
    """Replace the texts of events by numbers; return the events and the texts."""
    events = events.rename_columns(["journey", *events.column_names[1:]])
    columns = {name: events[name] for name in ("position", "time", "index_in_event")}
    columns["kind"] = pc.index_in(events["kind"], pa.array(EVENT_KINDS))
    file = pc.shift_left(events["file"].cast(pa.int64()), ROW_NUMBER_BITS)
    columns["origin"] = pc.add(file, events["number"])
    texts = {}
    for names in CODED_COLUMNS:
        chunks = [chunk for name in names for chunk in events[name].chunks]
        encoding = pa.chunked_array(chunks, pa.string()).combine_chunks().dictionary_encode()
        texts[names[0]] = encoding.dictionary
        for index, name in enumerate(names):
            codes = encoding.indices.slice(index * events.num_rows, events.num_rows)
            columns[name] = codes.fill_null(-1)
    return pa.table(columns), texts


def _decode_texts(table: pa.Table, texts: Texts) -> pa.Table:
    """Replace numbers by texts in pages and clicks.

    The key of a click before any page of its visit is the visit, which no page has as its key.
    """
    visit = texts["visit"].take(table["visit"].combine_chunks())
    page = table["page"].combine_chunks().cast(pa.string())
    page_key = pc.binary_join_element_wise(visit, page, "|", null_handling="skip")
    columns = {
        "key": pc.if_else(page.is_null(), visit, page_key),
        "ad": texts["ad"].take(table["ad"].combine_chunks()),
        "position": table["position"],
        "time": table["time"],
    }
    if "query" in table.column_names:
        users = table["user"].combine_chunks()
        columns["query"] = texts["term"].take(table["query"].combine_chunks())
        columns["user"] = texts["user"].take(pc.if_else(pc.less(users, 0), None, users))
    else:
        columns |= {name: table[name] for name in OUTCOME_COLUMNS}
    origin = table["origin"]
    columns["file"] = pc.shift_right(origin, ROW_NUMBER_BITS)
    columns["number"] = pc.bit_wise_and(origin, (1 << ROW_NUMBER_BITS) - 1)
    return pa.table(columns)
