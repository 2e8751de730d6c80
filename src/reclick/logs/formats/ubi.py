"""User Behavior Insights, the logs of OpenSearch, Solr and Elasticsearch: queries with their hits, and events, joined by query_id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.data.schema import IDS, TEXT
from reclick.logs.assembly.page_join import KINDS, NO_ADS, PageJoin, join_pages
from reclick.logs.files.archive import LogFile
from reclick.logs.files.source import short
from reclick.logs.formats.base import Columns, Format, Found
from reclick.logs.formats.helpers.json_records import first_objects, read_json
from reclick.logs.formats.helpers.parquet_records import read_parquet
from reclick.logs.formats.helpers.parse_errors import as_written
from reclick.logs.formats.helpers.records import THERE, WHEN, WHOLE, Field, nested
from reclick.logs.summary import KEPT_EXAMPLES, NOT_READABLE

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

HITS = (
    "query_response_hit_ids",
    "query_response_object_ids",
    "query_response_objects_ids",
)  # three spellings, all in use
OBJECT, POSITION = ("event_attributes", "object"), ("event_attributes", "position")
FIELDS = (
    Field("action", TEXT, (("action_name",),)),
    Field("key", TEXT, (("query_id",),)),
    Field("query", TEXT, (("user_query",),)),
    Field("ads", IDS, tuple((name,) for name in HITS)),
    Field("time", WHEN, (("timestamp",), ("@timestamp",))),
    Field("user", TEXT, (("client_id",), ("user_id",), ("session_id",))),
    Field(
        "ad",
        TEXT,
        (
            *nested(*OBJECT, "object_id"),
            ("event_attributes", "object.object_id"),
            ("object.object_id",),
            ("object_id",),
        ),
    ),
    Field(
        "position",
        WHOLE,
        (
            *nested(*POSITION, "ordinal"),
            ("event_attributes", "position.ordinal"),
            ("position.ordinal",),
            ("position",),
            ("ordinal",),
        ),
    ),
    Field("title", TEXT, (*nested(*OBJECT, "name"), *nested(*OBJECT, "description"))),
    Field(
        "instruction", THERE, (("index",), ("create",))
    ),  # the line before each document of a _bulk request
)
CLICKS, IMPRESSIONS = {"click", "click_through"}, {"impression"}
NAMED = 30  # other actions told of by name; logs may make up any number of them
NO_KEY, UNKNOWN = "no page key", "neither a query nor an event"
MISREAD = {"position": "position: expected a whole number", "time": "timestamp: expected a time"}
ALLOWED = {NO_ADS: "query without results, set aside"}


def _recognises(files: list[LogFile]) -> bool:
    return bool(files) and all(any(_is_ubi(names) for names in _names(file)) for file in files)


def _names(file: LogFile) -> list[set[str]]:
    return [set(file.columns)] if file.is_parquet else [set(item) for item in first_objects(file)]


def _is_ubi(names: set[str]) -> bool:
    is_query = "query_id" in names and not names.isdisjoint({"user_query", *HITS})
    return is_query or (
        "action_name" in names
        and any(name == "query_id" or name.startswith("event_attributes") for name in names)
    )


def _has_queries(file: LogFile) -> bool:
    """Whether a file has queries: they are read first, so that the impressions of their pages need not be kept."""
    return any(not names.isdisjoint(HITS) for names in _names(file))


def _read(files: list[LogFile], found: Found, columns: Columns) -> Iterator[pa.RecordBatch]:
    del columns  # the names are the format's

    def add(join: PageJoin) -> None:
        for place, file in sorted(enumerate(files), key=lambda each: not _has_queries(each[1])):
            read = read_parquet if file.is_parquet else read_json
            for table in read(file, FIELDS, found):
                for records in table.to_batches():
                    _Records(records, place, file.where, found).add_to(join)

    return join_pages(files, found, add, first=None, allowed=ALLOWED)


@dataclass(frozen=True)
class _Records:
    """Some records of a file: queries and events, told apart by their fields."""

    records: pa.RecordBatch
    file: int
    where: str
    found: Found

    def add_to(self, join: PageJoin) -> None:
        """Add what a session can hold; tell of the rest."""
        coded = self.records["action"].dictionary_encode()
        action = coded.indices.fill_null(-1).to_numpy()
        names = [name.strip().lower() for name in coded.dictionary.to_pylist()]
        event, keyed = action >= 0, self.has("key")
        query = (self.has("query") | self.has("ads")) & ~event
        self.refuse(UNKNOWN, ~(event | query | _mask(self.records["instruction"])))
        self.refuse(NO_KEY, query & ~keyed)
        self.add(join, "pages", self.sound(query & keyed, "time"))
        self.note("event with no query_id, set aside", event & ~keyed)
        self.add_events(join, np.where(event & keyed, action, -1), names)

    def add_events(self, join: PageJoin, action: Codes, names: list[str]) -> None:
        """Add clicks, and impressions of single objects; count the rest by name."""
        click, impression = (
            _is_one_of(CLICKS, action, names),
            _is_one_of(IMPRESSIONS, action, names),
        )
        other, sound = (
            (action >= 0) & ~click & ~impression,
            self.sound(click | impression, "position", "time"),
        )
        click, impression = click & sound, impression & sound
        aimed, seen = click & (self.has("ad") | self.has("position")), impression & self.has("ad")
        self.note("click on no object, set aside", click & ~aimed)
        self.note("impression of no object, set aside", impression & ~seen)
        self.note(
            "click without a time, put after the others of its page", aimed & ~self.has("time")
        )
        self.add(join, "shown", seen)
        self.add(join, "clicks", aimed)
        self.keep_titles(action >= 0)
        for code, many in enumerate(np.bincount(action[other])):
            self.found.note(self.told(names[code]), int(many))

    def told(self, name: str) -> str:
        """The note on events of another action."""
        note = f"{short(name)} event, neither a click nor an impression"
        named = sum(each.endswith("nor an impression") for each in self.found.notes)
        return (
            note
            if named < NAMED or note in self.found.notes
            else "event of another action, neither a click nor an impression"
        )

    def has(self, name: str) -> Bools:
        """Which records have a value of this name."""
        return _mask(self.records[name].is_valid())

    def note(self, what: str, which: Bools) -> None:
        """Count records as a note."""
        self.found.note(what, int(which.sum()))

    def sound(self, which: Bools, *names: str) -> Bools:
        """Which of these records have no position or time that is none; the others are bad."""
        for name in names:
            written = self.records[as_written(name)]
            if written.null_count < len(written):
                wrong = which & _mask(written.is_valid())
                self.refuse(NOT_READABLE, wrong, partial(_misread, name, written))
                which = which & ~wrong
        return which

    def refuse(self, reason: str, which: Bools, got: Callable[[int], str] | None = None) -> None:
        """Count records as bad."""
        rows, got = np.flatnonzero(which), got or self.described
        first = [
            (self.where, self.records["number"][row].as_py(), got(row))
            for row in rows[:KEPT_EXAMPLES].tolist()
        ]
        self.found.bad_many(reason, len(rows), first)

    def described(self, row: int) -> str:
        """What a record has, in a few words."""
        values = {
            name: self.records[name][row].as_py()
            for name in ("action", "key", "query", "ads", "ad")
        }
        return (
            ", ".join(f"{name} {short(value)}" for name, value in values.items() if value)
            or "none of the fields known"
        )

    def add(self, join: PageJoin, kind: str, which: Bools) -> None:
        """Add records to the join."""
        if which.any():
            chosen = self.records.select([name for name in KINDS[kind].names if name != "file"])
            rows = pa.Table.from_batches(
                [chosen if which.all() else chosen.filter(pa.array(which))]
            )
            join.add(
                kind,
                rows.append_column("file", pa.array(np.full(rows.num_rows, self.file, np.int32))),
            )

    def keep_titles(self, which: Bools) -> None:
        """Keep the texts of objects that events bring along."""
        titled = which & self.has("title") & self.has("ad")
        if titled.any():
            ads, titles = (
                self.records[name].filter(pa.array(titled)).to_pylist() for name in ("ad", "title")
            )
            for ad, title in dict(zip(reversed(ads), reversed(titles), strict=True)).items():
                self.found.text(ad, title)


def _is_one_of(wanted: set[str], action: Codes, names: list[str]) -> Bools:
    return np.isin(action, [code for code, name in enumerate(names) if name in wanted])


def _misread(name: str, written: pa.Array, row: int) -> str:
    return f"{MISREAD[name]}, got {short(written[row].as_py())}"


def _mask(values: pa.Array) -> Bools:
    mask: Bools = values.to_numpy(zero_copy_only=False)
    return mask


UBI = Format(
    "ubi",
    "User Behavior Insights (OpenSearch, Solr, Elasticsearch)",
    "queries and events as JSON lines or Parquet, joined by query_id; clicks in the order of time",
    _recognises,
    _read,
)
