"""Join pages and clicks that come apart, in logs larger than memory.

What is added is dealt by its page's key into buckets on disk; then DuckDB joins one bucket at a time in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.assembly import joining_statements as sql
from reclick.logs.assembly.duckdb_connection import bounded_engine, raise_clearly
from reclick.logs.assembly.seen_keys import KnownKeys
from reclick.logs.assembly.spill import Buckets
from reclick.logs.files.source import short
from reclick.logs.formats.base import SESSIONS, Found
from reclick.logs.timestamps import TIME, real_times

if TYPE_CHECKING:
    from reclick.logs.files.archive import LogFile

BUCKET_BYTES = 96 << 20  # of the log, for one bucket
PACKS, PACKED = (
    (".gz", ".tgz", ".zip", ".parquet", ".pq"),
    8,
)  # files that are smaller than what they hold, and by how much
SAMPLE = 50_000  # ads shown that are kept in any case
ENOUGH = 1000  # positions that tell what the first one is called
FILE = 40  # bits of a place to the left of which stands the file

# `file` and `number` say where a row came from: they are its place in the log's order, and in messages.
PLACE = [("file", pa.int32()), ("number", pa.int64())]
PAGES = pa.schema(
    [
        ("key", pa.string()),
        ("query", pa.string()),
        ("ads", pa.list_(pa.string())),
        ("time", TIME),
        ("user", pa.string()),
        *PLACE,
    ]
)
SHOWN = pa.schema(
    [
        ("key", pa.string()),
        ("query", pa.string()),
        ("ad", pa.string()),
        ("position", pa.int64()),
        ("time", TIME),
        ("user", pa.string()),
        *PLACE,
    ]
)
CLICKS = pa.schema(
    [("key", pa.string()), ("ad", pa.string()), ("position", pa.int64()), ("time", TIME), *PLACE]
)
KINDS = {"pages": PAGES, "shown": SHOWN, "clicks": CLICKS}
STORED = {
    kind: pa.schema([*list(schema)[:-2], pa.field("place", pa.int64())])
    for kind, schema in KINDS.items()
}

NO_PAGE, NOT_SHOWN, NO_ADS, NO_QUERY = (
    "click without a page",
    "click on an ad not shown",
    "no ads",
    "no query",
)
TWO_PAGES = "two ads at one position, two pages with one key"


class PageJoin:
    """Pages, ads shown and clicks on disk, until they are joined.

    `first` is the number of the first position in clicks on pages that are whole records; None has the log tell. `allowed` names faults that
    break no rule of the format, each with the note that tells of it instead.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, PageJoin(Path(folder), [], 0) as join:
    ...     join.add("shown", pa.table({"key": ["p", "p"], "query": ["shoes", None], "ad": ["b", "a"], "position": [2, 1]}))
    ...     join.add("clicks", pa.table({"key": ["p"], "ad": ["b"]}))
    ...     [batch.to_pydict()["clicks"] for batch in join.sessions(Found())]
    [[[2]]]
    """

    def __init__(
        self,
        folder: Path,
        files: list[LogFile],
        size: int,
        *,
        first: int | None = 1,
        allowed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`folder` is for the buckets, `files` are named in messages, `size` is the log's, in bytes."""
        self.files = [file.where for file in files] or ["table"]
        self.first, self.allowed = first, allowed
        self.many = max(1, size // BUCKET_BYTES)
        self._added = dict.fromkeys(KINDS, 0)
        self._whole = KnownKeys()
        self._placed = False  # whether any click has a position
        self._folder, self._engine = folder, bounded_engine(folder)
        self._buckets = {
            kind: Buckets(folder, kind, schema, self.many) for kind, schema in STORED.items()
        }

    def __enter__(self) -> PageJoin:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._engine.close()
        for buckets in self._buckets.values():
            buckets.close()
        raise_clearly(error, self._folder)

    def add(self, kind: str, table: pa.Table) -> None:
        """Add rows of "pages", "shown" (one ad a row) or "clicks"; a column that is missing is null, rows without a place are numbered."""
        if not table.num_rows:
            return
        rows = self._stored(kind, table)
        if rows["key"].null_count:
            raise ValueError(
                f"{kind}: a row without a key; the reader of a format tells of those itself."
            )
        if kind == "pages":
            self._whole.add(
                _one(rows["key"]).filter(pc.greater(pc.list_value_length(_one(rows["ads"])), 0))
            )
        elif kind == "shown":
            rows = self._needed(rows)
        else:
            self._placed |= rows["position"].null_count < len(rows)
        self._buckets[kind].add(rows)

    def sessions(self, found: Found) -> Iterator[pa.RecordBatch]:
        """The sessions, in the log's order within a bucket; clicks that find no place, and pages without ads or query, go to `found`."""
        for buckets in self._buckets.values():
            buckets.write()
        first = self._first_position() if self.first is None else self.first
        for bucket in range(self.many):
            self._load(bucket)
            self._engine.execute(sql.FIRST_PAGES)
            self._engine.execute(sql.PLACED_CLICKS, {"first": first})
            self._tell(found, first)
            for batch in self._engine.sql(sql.JOINED).to_arrow_reader(100_000):
                yield _as_sessions(batch)

    def _needed(self, rows: pa.Table) -> pa.Table:
        """The ads shown on pages that are not known yet; a page that was added whole needs none, but some to learn the first position from."""
        if self.first is None and self._added["shown"] - len(rows) < SAMPLE:  # those before these
            return rows
        known = self._whole.has(_one(rows["key"]))
        return rows.filter(pa.array(~known)) if known.any() else rows

    def _load(self, bucket: int) -> None:
        for kind, buckets in self._buckets.items():
            self._engine.register(kind, buckets.read(bucket))

    def _first_position(self) -> int:
        """The number of the first position, by the buckets that tell enough of it."""
        zero = one = 0
        for bucket in range(self.many if self._placed else 0):
            self._load(bucket)
            from_zero, from_one = self._rows(sql.FIRST_POSITION)[0]
            zero, one = zero + from_zero, one + from_one
            if zero + one >= ENOUGH:
                break
        return 0 if zero > one else 1

    def _tell(self, found: Found, first: int) -> None:
        for known, reason in ((False, NO_PAGE), (True, NOT_SHOWN)):
            self._refuse(found, reason, self._rows(sql.LOST_CLICKS, {"known": known}), _clicked)
        for reason, statement in (
            (NO_ADS, sql.NO_ADS),
            (NO_QUERY, sql.NO_QUERY),
            (TWO_PAGES, sql.TWO_PAGES),
        ):
            self._refuse(found, reason, self._rows(statement), lambda key: f"page {short(key)}")
        pages, shown, clicks = self._rows(sql.AGAIN)[0]
        found.note("page recorded again, the first kept", pages or 0)
        found.note("ad shown again on its page at its position, counted once", shown or 0)
        found.note("click recorded again at the same time, counted once", clicks or 0)
        if self.first is None:
            other, astray = self._rows(sql.ASTRAY, {"first": first})[0]
            found.note(
                f"click whose position counts from {1 - first}, where the log counts from {first}; its ad decided",
                other,
            )
            found.note("click whose position is not where its ad stands; the ad decided", astray)

    def _refuse(self, found: Found, reason: str, rows: list[Any], got: Callable[..., str]) -> None:
        many = rows[0][-1] if rows else 0
        if reason in self.allowed:
            found.note(self.allowed[reason], many)
            return
        found.bad_many(
            reason,
            many,
            [
                (self.files[place >> FILE], place % (1 << FILE), got(*rest))
                for place, *rest, _ in rows
            ],
        )

    def _rows(self, statement: str, params: dict[str, Any] | None = None) -> list[Any]:
        return list(self._engine.execute(statement, params or {}).fetchall())

    def _stored(self, kind: str, table: pa.Table) -> pa.Table:
        first = self._added[kind] + 1
        self._added[kind] += table.num_rows
        number = (
            table["number"].to_numpy()
            if "number" in table.column_names
            else np.arange(first, first + table.num_rows)
        )
        file = table["file"].to_numpy().astype(np.int64) if "file" in table.column_names else 0
        schema = STORED[kind]
        given = {name: table[name] for name in schema.names if name in table.column_names} | {
            "place": pa.chunked_array([(file << FILE) + number])
        }
        return pa.table(
            [given.get(field.name, pa.nulls(table.num_rows)).cast(field.type) for field in schema],
            schema=schema,
        )


def join_pages(
    files: list[LogFile],
    found: Found,
    add: Callable[[PageJoin], None],
    *,
    first: int | None = 1,
    allowed: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[pa.RecordBatch]:
    """The sessions of what `add` adds; the buckets lie in a folder of their own, which is removed at the end."""
    size = sum(
        Path(path).stat().st_size * (PACKED if path.lower().endswith(PACKS) else 1)
        for path in {file.path for file in files}
    )
    with (
        TemporaryDirectory(prefix="reclick-") as folder,
        PageJoin(Path(folder), files, size, first=first, allowed=allowed) as join,
    ):
        add(join)
        yield from join.sessions(found)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _as_sessions(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["timestamp"] = real_times(columns.pop("time").cast(TIME))
    return pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in SESSIONS], schema=SESSIONS
    )


def _clicked(key: str, ad: str | None, position: int | None) -> str:
    named = [] if ad is None else [f"ad {short(ad)}"]
    named += [] if position is None else [f"position {position}"]
    return f"page {short(key)}, {' at '.join(named) or 'no ad and no position'}"
