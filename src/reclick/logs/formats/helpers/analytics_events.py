"""Read events of product lists, as web analytics records them, from Parquet: a list was shown, an ad in it was clicked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.schema import Column, check_mapping
from reclick.errors import LogError
from reclick.logs.files.archive import LogFile
from reclick.logs.formats.base import Columns, Found
from reclick.logs.formats.helpers.analytics_rows import (
    OF_AD,
    OF_EVENT,
    Arrays,
    Names,
    Place,
    Shape,
    ad_rows,
    known,
)
from reclick.logs.formats.helpers.parquet_batches import parquet_batches

if TYPE_CHECKING:
    from reclick.logs.assembly.page_join import PageJoin

BEFORE = "click without a list view before it in its visit, set aside"  # as where a day's export cuts a visit
AD_BYTES = 300  # of an ad shown, while its page is looked for
FIELDS = {**OF_EVENT, **OF_AD}


def read_lists(
    shape: Shape, files: list[LogFile], found: Found, columns: Columns
) -> Iterator[pa.RecordBatch]:
    """The sessions of events of lists; `columns` names the columns that differ."""
    from reclick.logs.assembly.page_join import NO_PAGE, PageJoin

    given = check_mapping(columns, [Column(name, kind) for name, kind in FIELDS.items()])
    names = {
        name: (given[name].lower(),) if name in given else shape.names.get(name, ())
        for name in FIELDS
    }
    size = sum(_ads_in(file, shape) for file in files) * AD_BYTES
    with (
        TemporaryDirectory(prefix="reclick-") as folder,
        PageJoin(Path(folder), files, size, allowed={NO_PAGE: BEFORE}) as join,
    ):
        _add(shape, names, files, found, join)
        yield from join.sessions(found)


def is_of(shape: Shape, files: list[LogFile]) -> bool:
    """Whether all files have the columns of such events."""
    return bool(files) and all(
        _any_start(file.columns, starts) for file in files for starts in shape.needed.values()
    )


def _add(shape: Shape, names: Names, files: list[LogFile], found: Found, join: PageJoin) -> None:
    """Find the pages, visit by visit, and add them to the join."""
    from reclick.logs.assembly.sessionise import ListViews

    with (
        TemporaryDirectory(prefix="reclick-") as folder,
        ListViews(Path(folder), join.many) as views,
    ):
        for place, file in enumerate(files):
            for number, columns in _batches(file, shape, names, found):
                views.add(ad_rows(columns, shape, names, Place(place, file.where, number), found))
        for kind, table in views.pages(found):
            join.add(kind, table)


def _batches(
    file: LogFile, shape: Shape, names: Names, found: Found
) -> Iterator[tuple[int, Arrays]]:
    """The columns of a file, in batches, with the number of the first row."""

    def choose(source: pq.ParquetFile) -> list[str]:
        _check(file, source.schema_arrow.names, shape, names)
        paths = [source.schema.column(place).path for place in range(len(source.schema))]
        return [path for path in paths if _is_read(path.lower(), shape, names)]

    for first, batch in parquet_batches(file, found, choose):
        yield first, {name.lower(): known(batch.column(name)) for name in batch.schema.names}


def _ads_in(file: LogFile, shape: Shape) -> int:
    """How many ads the events of a file hold, by what it says of itself."""
    try:
        metadata = pq.read_metadata(file.path)
    except (pa.ArrowException, OSError):
        return 0  # the reading tells why
    counts = Counter({"rows": metadata.num_rows})
    for group in (metadata.row_group(place) for place in range(metadata.num_row_groups)):
        for leaf in (group.column(place) for place in range(group.num_columns)):
            if leaf.path_in_schema.lower().startswith(shape.ads):
                counts[leaf.path_in_schema] += leaf.num_values
    return max(counts.values())


def _check(file: LogFile, columns: list[str], shape: Shape, names: Names) -> None:
    """Refuse a file without the columns that nothing can stand for, and one in which a column that the caller named is missing."""
    named = {
        field: starts for field, starts in names.items() if starts != shape.names.get(field, ())
    }
    for field, starts in {**shape.needed, **named}.items():
        if not _any_start(columns, starts):
            has = ", ".join(columns[:30])
            raise LogError(
                f'{file.where} has no column {" or ".join(starts)}. It has {has}. Name the right one with columns={{"{field}": ...}}.'
            )


def _any_start(columns: Iterable[str], starts: tuple[str, ...]) -> bool:
    return any(column.lower().startswith(starts) for column in columns)


def _is_read(path: str, shape: Shape, names: Names) -> bool:
    if any(path in candidates for candidates in names.values()):
        return True
    parts = path.split(".")
    starts = [start for start in shape.nested if parts[0].startswith(start)]
    return any(len(parts) == 1 or parts[-1] in shape.nested[start] for start in starts)
