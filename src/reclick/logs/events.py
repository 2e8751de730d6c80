"""Sessions out of anybody's events: a table of what was shown and a table of clicks, joined on a key, in logs larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from reclick.data.schema import IDS, NUMBER, TEXT, TIME, Column, check_mapping
from reclick.errors import LogError, SettingError
from reclick.logs.assembly.event_rows import EventRows, events_size, shown_columns
from reclick.logs.conversion import numbered, rewrite
from reclick.logs.files.archive import LogFile
from reclick.logs.files.discover import open_sources
from reclick.logs.files.source import OnError, Source, check_on_error
from reclick.logs.formats.base import Found
from reclick.logs.session_log import SessionLog

ROW_ORDER = "clicks without a time, in the order of the rows"

SHOWN = (
    Column("query", TEXT),
    Column("ads", IDS, required=False),
    Column("ad", TEXT, required=False),
    Column("position", NUMBER, required=False),
    Column("timestamp", TIME, required=False),
    Column("user", TEXT, required=False),
)
CLICKED = {"ad": TEXT, "position": NUMBER}
OF_CLICKS = "clicks."  # before the name of a column of the clicks, where it differs from that of the impressions


@dataclass(frozen=True, slots=True)
class Events:
    """What was shown or clicked: its files or its table, opened."""

    name: str  # "impressions" or "clicks"
    sources: list[Source]
    keys: tuple[str, ...]
    names: dict[str, str] = field(
        default_factory=dict
    )  # a column's name here -> its name in the sources, where they differ

    def rows(self, first: int, found: Found) -> Iterator[EventRows]:
        """The events in batches; the first file has this place among all files."""
        for file, source in enumerate(self.sources, start=first):
            for raw in source.read(with_rows=False):
                yield EventRows(raw, file, self.where(source), found, self.names)

    def where(self, source: Source) -> str:
        """The short name used in messages."""
        return source.where if hasattr(source, "path") else self.name

    @property
    def label(self) -> str:
        """What a message calls all of them."""
        return (
            self.where(self.sources[0])
            if len(self.sources) == 1
            else f"{len(self.sources)} files of {self.name}"
        )


def sessions_from_events(
    impressions: Any,
    clicks: Any,
    *,
    on: str | Sequence[str],
    order_by: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_error: OnError = "raise",
    max_ads: int = 100,
    to: str | Path | None = None,
) -> SessionLog:
    """Make sessions of what was shown and what was clicked, and open them.

    `impressions` has one row for each ad shown (query, ad, position) or for each page (query, ads); `clicks` has one row for each click, with its ad,
    its position or both. Each is a path, a glob, a folder, or a pandas, Polars, Arrow or DuckDB table; both have the columns `on`, which together
    name a page. `order_by` is the time of a click; without it, clicks are in the order of their rows. `columns` maps Reclick's names to yours
    (`{"ad": "item_id"}`); where the clicks have another name, `{"clicks.ad": "sku"}`. `to` keeps the sessions as a Parquet file.

    >>> shown = {"page": [1, 1], "query": ["shoes", "shoes"], "ad": ["a", "b"], "position": [1, 2]}
    >>> clicked = {"page": [1, 1], "ad": ["b", "a"], "second": [3, 9]}
    >>> log = sessions_from_events(shown, clicked, on="page", order_by="second")
    >>> [batch.click.tolist() for batch in log.batches()]
    [[2, 1]]
    """
    check_on_error(on_error)
    if max_ads < 1:
        raise SettingError(f"max_ads must be 1 or more, got {max_ads}.")
    keys = (on,) if isinstance(on, str) else tuple(on)
    if not keys:
        raise SettingError(
            "on: no column is named. Name the columns that both tables have and that together name a page."
        )
    names = _checked_names(columns)
    shown, clicked = (
        _open_shown(impressions, keys, names),
        _open_clicks(clicks, keys, order_by, names),
    )
    found = Found()
    name = f"{shown.label} and {clicked.label}"
    raws = numbered(join_events(shown, clicked, found), name)
    return rewrite(raws, found, name=name, to=to, on_error=on_error, max_ads=max_ads)


def join_events(shown: Events, clicked: Events, found: Found) -> Iterator[pa.RecordBatch]:
    """The sessions of events that are open."""
    from reclick.logs.assembly.page_join import PageJoin

    files = [
        LogFile("", events.where(source))
        for events in (shown, clicked)
        for source in events.sources
    ]
    size = events_size([*shown.sources, *clicked.sources])
    with (
        TemporaryDirectory(prefix="reclick-") as folder,
        PageJoin(Path(folder), files, size) as join,
    ):
        for rows in shown.rows(0, found):
            if rows.has("ads"):
                join.add("pages", _pages(rows, shown.keys))
            else:
                join.add("shown", rows.table(shown_columns(rows, rows.key(shown.keys))))
        for rows in clicked.rows(len(shown.sources), found):
            join.add("clicks", _clicks(rows, clicked.keys))
        yield from join.sessions(found)


def _pages(rows: EventRows, keys: Sequence[str]) -> pa.Table:
    columns = {
        "key": rows.key(keys),
        "query": rows.text("query"),
        "time": rows.times("timestamp"),
        "user": rows.text("user"),
    }
    return rows.table({**columns, "ads": rows.column("ads").cast(pa.list_(pa.string()))})


def _clicks(rows: EventRows, keys: Sequence[str]) -> pa.Table:
    columns = {
        "key": rows.key(keys),
        "ad": rows.text("ad"),
        "position": rows.position(needed=False),
        "time": rows.times("order_by"),
    }
    if not rows.has("order_by"):
        rows.found.note(ROW_ORDER, rows.raw.length)
    return rows.table(columns)


def _checked_names(columns: Mapping[str, str] | None) -> dict[str, str]:
    return check_mapping(
        columns, (*SHOWN, *(Column(f"{OF_CLICKS}{name}", kind) for name, kind in CLICKED.items()))
    )


def _open_shown(source: Any, keys: tuple[str, ...], names: dict[str, str]) -> Events:
    parts = _parts(keys)
    own = {name: theirs for name, theirs in names.items() if not name.startswith(OF_CLICKS)}
    events = Events(
        "impressions",
        open_sources(source, (*_columns(parts), *SHOWN), {**own, **parts}),
        tuple(parts),
    )
    for each in events.sources:
        if "ads" not in each.names and not {"ad", "position"} <= each.names.keys():
            raise LogError(
                f"{events.where(each)} has no column ads, and not both ad and position: it shows no page. Name the right ones with columns={{...}}."
            )
    return events


def _open_clicks(
    source: Any, keys: tuple[str, ...], order_by: str | None, names: dict[str, str]
) -> Events:
    parts = _parts(keys) | ({"order_by": order_by} if order_by else {})
    # Either may be missing, so they are asked for under their own names: a name in a mapping must be there.
    theirs = {name: names.get(f"{OF_CLICKS}{name}", names.get(name, name)) for name in CLICKED}
    wanted = [
        *_columns(parts),
        *(Column(theirs[name], kind, required=False) for name, kind in CLICKED.items()),
    ]
    events = Events("clicks", open_sources(source, wanted, parts), tuple(_parts(keys)), theirs)
    for each in events.sources:
        needed = [
            theirs[name] for name in CLICKED if f"{OF_CLICKS}{name}" in names
        ] or theirs.values()
        if not any(name in each.names for name in needed):
            raise LogError(
                f"{events.where(each)} has no column {' or '.join(needed)}: it says not what was clicked. Name it with columns={{...}}."
            )
    return events


def _parts(keys: tuple[str, ...]) -> dict[str, str]:
    """The columns of the key, each under a name that a message can show."""
    return {
        "on" if len(keys) == 1 else f"on, part {place}": key
        for place, key in enumerate(keys, start=1)
    }


def _columns(parts: Mapping[str, str]) -> list[Column]:
    return [Column(part, TIME if part == "order_by" else TEXT) for part in parts]
