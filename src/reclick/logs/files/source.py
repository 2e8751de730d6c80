"""What every reader gives: some rows of a source as they stand, under canonical names, and the rows that could not be read at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from reclick.data.batch import Int64
from reclick.data.schema import Column
from reclick.errors import SettingError

OnError = Literal["raise", "drop"]

MAX_ROWS = 250_000  # of a batch: fresh memory costs more than it takes to fill it
TARGET_BYTES = 32 << 20  # of a batch, when rows are fat: a few are kept ready


@dataclass(frozen=True, slots=True)
class Raw:
    """Rows of one file or table, not checked yet."""

    where: str  # the file's name, or "table"
    first: int  # number of the first row, from 1 within the file
    columns: dict[str, pa.Array]  # canonical name -> values, all of one length
    length: int
    numbers: Int64 | None = None  # [row] row numbers, when unreadable rows lie between them
    unreadable: list[tuple[int, str]] = field(default_factory=list)  # (row number, what was got)
    rows: pa.RecordBatch | None = None  # every column of the source, when asked for

    def number(self, index: int) -> int:
        """Return the row number, from 1 within the file, of a row of this batch."""
        return self.first + index if self.numbers is None else int(self.numbers[index])

    @property
    def total(self) -> int:
        """The rows seen, readable or not."""
        return self.length + len(self.unreadable)


class Source(Protocol):
    """A file or a table that can be read any number of times."""

    @property
    def where(self) -> str:
        """The short name used in messages."""

    @property
    def num_rows(self) -> int | None:
        """The number of rows, None when only reading can tell."""

    @property
    def names(self) -> dict[str, str]:
        """The canonical columns that are there, with the source's name for each."""

    def read(self, *, with_rows: bool) -> Iterator[Raw]:
        """Read from the start, in row order, in batches of bounded size."""


Opener = Callable[
    [str, str, Sequence[Column], dict[str, str]], Source
]  # path, where, wanted columns, mapping


def without(raw: Raw, bad: dict[int, str]) -> Raw:
    """Return the batch with the rows of these indices moved to the unreadable ones."""
    if not bad:
        return raw
    keep = np.ones(raw.length, dtype=np.bool_)
    keep[list(bad)] = False
    index = np.flatnonzero(keep)
    numbers = (
        np.asarray([raw.number(int(i)) for i in index], dtype=np.int64)
        if raw.numbers is None
        else raw.numbers[index]
    )
    lost = [(raw.number(i), text) for i, text in bad.items()]
    return Raw(
        where=raw.where,
        first=raw.first,
        columns={name: column.take(pa.array(index)) for name, column in raw.columns.items()},
        length=len(index),
        numbers=numbers,
        unreadable=sorted(raw.unreadable + lost),
        rows=None if raw.rows is None else raw.rows.take(pa.array(index)),
    )


def short(value: object, limit: int = 60) -> str:
    """Return a value as it is shown in a message: on one line and cut to a readable length."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def check_on_error(on_error: str) -> None:
    """Refuse a word that is neither "raise" nor "drop"."""
    if on_error not in {"raise", "drop"}:
        raise SettingError(f'on_error must be "raise" or "drop", got {on_error!r}.')
