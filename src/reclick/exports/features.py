"""Features of pairs for learning to rank: those that the model itself gives, or the numbers of a table."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind_of

from reclick.data.batch import Int64
from reclick.data.schema import PAIR_COLUMNS
from reclick.data.string_index import Interner
from reclick.errors import LogError
from reclick.exports.text_rows import column
from reclick.logs.files.discover import open_sources
from reclick.logs.files.source import short

OWN = ("attractiveness", "satisfaction", "relevance", "relevance_low", "relevance_high")


class Features(Protocol):
    """Numbers of pairs, by name."""

    @property
    def names(self) -> tuple[str, ...]:
        """The features, in the order of their numbers."""

    def of(self, table: pa.Table) -> tuple[list[pa.Array], pa.Array]:
        """The features of each pair, null where there is none, and whether the pair is unknown."""


class OwnFeatures:
    """What the model believes of a pair, and how often it was shown: log(1 + impressions)."""

    names: tuple[str, ...] = (*OWN, "log_impressions")

    def of(self, table: pa.Table) -> tuple[list[pa.Array], pa.Array]:
        """The features of each pair, null where the model has none; no pair is unknown."""
        values = [column(table, name) for name in OWN]
        return [*values, pc.log1p(column(table, "impressions"))], pa.array(
            np.zeros(table.num_rows, np.bool_)
        )


class TableFeatures:
    """The columns of numbers of a table that has the columns query and ad too; each pair is in it once."""

    def __init__(self, source: object) -> None:
        rows = _read(source)
        self.names = tuple(
            name for name in rows.column_names[2:] if _is_number(rows.schema.field(name).type)
        )
        if not self.names:
            raise LogError(
                "features: the table has no column of numbers beside query and ad. Give Parquet, or a table in memory, with some."
            )
        self._values = [column(rows, name).cast(pa.float64()) for name in self.names]
        self._queries, self._ads = Interner(), Interner()
        keys = _keys(
            self._queries.codes(column(rows, "query")), self._ads.codes(column(rows, "ad"))
        )
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._refuse_twice(rows)

    def of(self, table: pa.Table) -> tuple[list[pa.Array], pa.Array]:
        """The features of each pair, and whether the table does not have it."""
        query, ad = self._queries.find(column(table, "query")), self._ads.find(column(table, "ad"))
        wanted = _keys(query, ad)
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        unknown = (query < 0) | (ad < 0) | (self._keys[place] != wanted)
        rows = pa.array(self._order[place], mask=unknown)
        return [values.take(rows) for values in self._values], pa.array(unknown)

    def _refuse_twice(self, rows: pa.Table) -> None:
        again = np.flatnonzero(np.diff(self._keys) == 0)
        if len(again):
            row = int(self._order[again[0]])
            pair = " and ".join(short(rows[name][row].as_py()) for name in ("query", "ad"))
            raise LogError(
                f"features: the pair {pair} is in the table {'twice' if len(again) == 1 else 'twice, and it is not the only one'}."
            )


def _read(source: object) -> pa.Table:
    """The whole table, its queries and ads first and as text."""
    pieces = []
    for opened in open_sources(source, PAIR_COLUMNS, None):
        for raw in opened.read(with_rows=True):
            ids = {name: raw.columns[name].cast(pa.large_string()) for name in ("query", "ad")}
            others = (
                {name: raw.rows.column(name) for name in raw.rows.schema.names if name not in ids}
                if raw.rows is not None
                else {}
            )
            pieces.append(pa.table({**ids, **others}))
    if not pieces:
        raise LogError("features: the table has no rows.")
    whole = pa.concat_tables(pieces)
    for name in ("query", "ad"):
        if whole[name].null_count:
            raise LogError(
                f"features: {whole[name].null_count:,} rows have no {name}. Leave them out."
            )
    return whole


def _is_number(kind: pa.DataType) -> bool:
    return bool(kind_of.is_integer(kind) or kind_of.is_floating(kind) or kind_of.is_boolean(kind))


def _keys(
    query: np.ndarray[tuple[int], np.dtype[np.int32]],
    ad: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> Int64:
    return (query.astype(np.int64) << 32) | ad.astype(np.int64) & 0xFFFFFFFF
