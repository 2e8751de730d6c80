"""What a format is: a name, how it is recognised, and a reader that gives batches of sessions and tells what it found on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from reclick.logs.files.archive import LogFile
from reclick.logs.summary import Tally

SESSIONS = pa.schema(
    [
        ("session_id", pa.string()),  # the log's own id of the page shown; null where it has none
        ("user", pa.string()),  # who saw it; null where nobody says
        ("timestamp", pa.timestamp("ms")),  # UTC; null where the log has no real time
        ("query", pa.string()),
        ("ads", pa.list_(pa.string())),
        ("clicks", pa.list_(pa.int32())),  # positions from 1, in the order clicked
    ]
)
WEIGHTED = SESSIONS.append(pa.field("weight", pa.float64()))  # how many sessions a row stands for
BATCH = 50_000  # sessions


class Session(NamedTuple):
    """One page shown and its clicks, as the readers of formats that come page by page give it."""

    query: str | None
    ads: list[str]
    clicks: list[int]
    session_id: str | None = None
    user: str | None = None
    timestamp: int | None = None  # milliseconds since 1970, UTC


class StoppedError(Exception):
    """The reading was stopped from outside."""


@dataclass(slots=True)
class Found:
    """What a reader finds besides sessions.

    A record that breaks the format's rules is `bad`: it stops the reading at its end, unless bad rows are dropped. What the format allows and a
    session cannot hold (an event of another kind, say) is a `note`: set aside, counted and told.
    """

    faults: Tally = field(default_factory=Tally)
    notes: Counter[str] = field(default_factory=Counter)
    texts: dict[str, tuple[str, str, str]] = field(
        default_factory=dict
    )  # ad -> title, description, display_url
    told: Callable[[int], object] = lambda _: None  # of the bytes read
    stopped: bool = False

    def advance(self, more: int) -> None:
        """Tell of so many more bytes read; readers call it often, so here a reading that nobody waits for any more ends."""
        if self.stopped:
            raise StoppedError
        self.told(more)

    def stop(self) -> None:
        """Have the reader give up at its next `advance`."""
        self.stopped = True

    def bad(self, reason: str, where: str, number: int, got: str) -> None:
        """Count a bad record; `number` is its line or row in the file, from 1."""
        self.faults.drop(reason, where, number, got)

    def bad_many(self, reason: str, many: int, examples: Iterable[tuple[str, int, str]]) -> None:
        """Count bad records of which only the first are described: (where, number, got)."""
        told = list(examples)
        for where, number, got in told:
            self.bad(reason, where, number, got)
        if many > len(told):
            self.faults.dropped[reason] += many - len(told)

    def note(self, what: str, many: int = 1) -> None:
        """Count something set aside, or kept but worth knowing."""
        if many:
            self.notes[what] += many

    def text(self, ad: str, title: str = "", description: str = "", display_url: str = "") -> None:
        """Keep the text of an ad; the first one seen stays."""
        self.texts.setdefault(ad, (title, description, display_url))

    @property
    def ads(self) -> pa.Table | None:
        """The texts as an ads table; None when there are none."""
        if not self.texts:
            return None
        columns = list(zip(*self.texts.values(), strict=True))
        return pa.table(
            {
                "ad": list(self.texts),
                "title": columns[0],
                "description": columns[1],
                "display_url": columns[2],
            }
        )


Columns = Mapping[
    str, str
]  # Reclick's names -> the log's, for formats whose columns have no fixed names
Reader = Callable[[list[LogFile], Found, Columns], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of click logs."""

    name: str  # as in format="ubi"
    title: str  # its full name
    about: str  # one line: which files it has, what is kept and what is lost
    recognises: Callable[
        [list[LogFile]], bool
    ]  # by names, first bytes and columns alone; never raises, and never says yes to another format
    read: Reader
    takes_columns: bool = False


def batched(sessions: Iterable[Session]) -> Iterator[pa.RecordBatch]:
    """Gather sessions into batches.

    >>> [batch.num_rows for batch in batched([Session("shoes", ["a", "b"], [2])])]
    [1]
    """
    rest = iter(sessions)
    while some := list(islice(rest, BATCH)):
        yield pa.RecordBatch.from_arrays(
            [_column(some, name) for name in SESSIONS.names], schema=SESSIONS
        )


def _column(sessions: list[Session], name: str) -> pa.Array:
    values = [getattr(session, name) for session in sessions]
    kind = SESSIONS.field(name).type
    return (
        pa.array(values, pa.int64()).cast(kind) if name == "timestamp" else pa.array(values, kind)
    )
