"""Sources of rows: find files by path, glob or folder, and open each with the reader of its type.

All readers yield `RawBatch`es: rows under canonical names, not validated yet.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Literal, Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from reclick.data.batch import Int64
from reclick.data.schema import OUTCOME_COLUMNS, Column, check_mapping
from reclick.errors import LogError, SettingError
from reclick.runtime.filesystem import (
    AnyPath,
    Location,
    RemotePath,
    as_path,
    describe_missing,
    is_glob,
    is_location,
    match_glob,
)
from reclick.runtime.outputs import COMMIT_FOLDER, complete_commit

OnError = Literal["raise", "drop"]

MAX_BATCH_ROWS = 250_000  # in larger batches, allocating memory takes longer than filling it
TARGET_BATCH_BYTES = 32 << 20  # if rows are large; prefetching holds a few batches

# One line per file type; a new type needs a module and a line here. Modules are imported lazily.
OPENERS = {
    ".parquet": "parquet.open_parquet",
    ".pq": "parquet.open_parquet",
    ".csv": "csv.open_csv",
    ".csv.gz": "csv.open_csv",
    ".tsv": "csv.open_csv",
    ".tsv.gz": "csv.open_csv",
    ".jsonl": "jsonl.open_jsonl",
    ".jsonl.gz": "jsonl.open_jsonl",
    ".ndjson": "jsonl.open_jsonl",
    ".ndjson.gz": "jsonl.open_jsonl",
    ".json": "jsonl.open_jsonl",
    ".json.gz": "jsonl.open_jsonl",
}

DELTA_LOG = "_delta_log"  # a folder inside the folder of a Delta table
PARTITION = re.compile(r"[A-Za-z_][\w.-]*=.*")  # the name of a folder: dt=2026-03-01
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # stands for null

# Files about the data, which a folder of any format may have next to the data.
IS_ABOUT_DATA = re.compile(
    r"^(readme|licen[cs]e|notice|changelog|copying|citation)\b|\.(md|rst|pdf|html?|sha256|md5|log)$",
    re.IGNORECASE,
)

# The sessions that readers of other formats yield: one row per page.
SESSION_SCHEMA = pa.schema(
    [
        ("session_id", pa.string()),  # the log's own id of the page; null where it has none
        ("user", pa.string()),  # null where unknown
        ("timestamp", pa.timestamp("ms")),  # UTC; null where the log has no real time
        ("query", pa.string()),
        ("ads", pa.list_(pa.string())),
        ("clicks", pa.list_(pa.int32())),  # positions from 1, in the order clicked
    ]
)
# The weight is how many sessions a row stands for.
WEIGHTED_SESSION_SCHEMA = SESSION_SCHEMA.append(pa.field("weight", pa.float64()))
# What happened after each click; null where it is unknown.
OUTCOME_FIELDS = [pa.field(name, pa.list_(pa.float64())) for name in OUTCOME_COLUMNS]
FULL_SESSION_SCHEMA = pa.schema([*WEIGHTED_SESSION_SCHEMA, *OUTCOME_FIELDS])


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Rows of one file or table, not validated yet."""

    where: str  # the file's name, or "table"
    first_row: int  # number of the first row, from 1 within the file
    columns: dict[str, pa.Array]  # canonical name -> values, all of one length
    length: int
    row_numbers: Int64 | None = None  # [row], if unreadable rows lie in between
    unreadable: list[tuple[int, str]] = field(default_factory=list)  # (row number, description)
    rows: pa.RecordBatch | None = None  # every column of the source, if requested

    def row_number(self, index: int) -> int:
        """Return the number, from 1 within the file, of a row of this batch."""
        return self.first_row + index if self.row_numbers is None else int(self.row_numbers[index])


class Source(Protocol):
    """A file or a table that can be read any number of times."""

    @property
    def where(self) -> str:
        """The short name used in messages."""

    @property
    def num_rows(self) -> int | None:
        """The number of rows; None if it is only known after reading."""

    @property
    def names(self) -> dict[str, str]:
        """The canonical columns of this source: Reclick's name -> the source's name."""

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read from the start, in row order, in batches of bounded size."""


Opener = Callable[[Location, str, Sequence[Column], dict[str, str]], Source]
"""Called with the path, the name for messages, the columns to read and the mapping of names."""


def open_sources(
    source: object, columns_to_read: Sequence[Column], columns: Mapping[str, str] | None
) -> list[Source]:
    """Open every file of a source, or a table. Columns and types are checked; no row is read."""
    mapping = check_mapping(columns, columns_to_read)
    if not is_paths(source):
        from reclick.logs.files.memory import open_table

        return [open_table(source, columns_to_read, mapping)]
    from reclick.logs.files.lake import open_lake_path

    items = list(source) if isinstance(source, list | tuple) else [source]
    tables: list[Source] = []
    files: list[object] = []
    for item in items:
        table = open_lake_path(as_path(item), columns_to_read, mapping)  # type: ignore[arg-type]
        if table is None:
            files.append(item)
        else:
            tables.append(table)
    paths = find_files(files) if files or not tables else []
    paths_and_names = zip(paths, shorten_names(paths), strict=True)
    sources = [
        _get_opener(path)(path, where, columns_to_read, mapping) for path, where in paths_and_names
    ]
    return [*tables, *add_partitions(sources, paths, mapping)]


def split_sources(sources: Sequence[Source], n: int) -> list[list[Source]] | None:
    """Split sources into at most n parts of about equal size, in order.

    Parquet files are cut between row groups, tables between rows, other files not at all. Returns
    None if a source cannot be read by another process.
    """
    units: list[Source] = []
    for source in sources:
        split: Callable[[], list[Source]] | None = getattr(source, "split", None)
        units += [source] if split is None else split()
    if not all(getattr(unit, "can_move", False) for unit in units):
        return None
    has_sizes = all(unit.num_rows is not None for unit in units)
    rows = np.array([unit.num_rows if has_sizes else 1 for unit in units], np.float64)
    middle = np.cumsum(rows) - rows / 2
    part = np.minimum((middle / max(rows.sum(), 1.0) * n).astype(np.int64), n - 1)
    parts = [
        [unit for unit, unit_part in zip(units, part, strict=True) if unit_part == each]
        for each in range(n)
    ]
    return [_join_units(each) for each in parts if each]


def _join_units(units: list[Source]) -> list[Source]:
    """Join neighbouring units that can be read as one source."""
    sources: list[Source] = []
    for unit in units:
        source = None
        if sources and hasattr(sources[-1], "join"):
            source = sources[-1].join(unit)
        if source is None:
            sources.append(unit)
        else:
            sources[-1] = source
    return sources


@dataclass(frozen=True, slots=True)
class PartitionedSource:
    """A file with further columns, whose values are in the names of its folders."""

    source: Source
    values: dict[str, pa.Scalar]  # column → value
    mapping: dict[str, str]

    @property
    def where(self) -> str:
        """The name of the file."""
        return self.source.where

    @property
    def num_rows(self) -> int | None:
        """The rows of the file."""
        return self.source.num_rows

    @property
    def names(self) -> dict[str, str]:
        """The columns of the file."""
        return self.source.names

    @property
    def can_move(self) -> bool:
        """Whether another process can read the file."""
        return getattr(self.source, "can_move", False)

    def split(self) -> list[PartitionedSource]:
        """Split into the parts of the file, each as a source."""
        cut_file: Callable[[], list[Source]] | None = getattr(self.source, "split", None)
        return [self] if cut_file is None else [replace(self, source=each) for each in cut_file()]

    def join(self, other: object) -> PartitionedSource | None:
        """Join with a source of the next part of the same file; None for any other source."""
        if not isinstance(other, PartitionedSource) or not hasattr(self.source, "join"):
            return None
        source = self.source.join(other.source)
        return None if source is None else replace(self, source=source)

    def read(self, *, with_rows: bool) -> Iterator[RawBatch]:
        """Read the file; a column of the file takes precedence over a folder."""
        for raw in self.source.read(with_rows=with_rows):
            columns, rows = dict(raw.columns), raw.rows
            for name, value in self.values.items():
                if rows is not None and name not in rows.schema.names:
                    rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
                if self.mapping.get("timestamp") == name:
                    columns.setdefault("timestamp", pa.repeat(value, raw.length))
            yield replace(raw, columns=columns, rows=rows)


def add_partitions(
    sources: list[Source], paths: Sequence[Location], mapping: dict[str, str]
) -> list[Source]:
    """Add columns from the names of folders, as Hive and Spark write them.

    A file in the folder dt=2026-03-01 has the column dt. A column is read as whole
    numbers if all its values are.
    """
    path_values = [partition_values(path) for path in paths]
    names = dict.fromkeys(name for values in path_values for name in values)
    is_whole = {
        name: all(is_whole_number(values[name]) for values in path_values if values.get(name))
        for name in names
    }

    def as_scalar(name: str, value: str | None) -> pa.Scalar:
        if is_whole[name]:
            return pa.scalar(None if value is None else int(value), pa.int64())
        return pa.scalar(value, pa.string())

    return [
        PartitionedSource(
            source, {name: as_scalar(name, values.get(name)) for name in names}, mapping
        )
        if names
        else source
        for source, values in zip(sources, path_values, strict=True)
    ]


def partition_values(path: Location) -> dict[str, str | None]:
    """The columns that the folders of a path name.

    >>> partition_values("wh/dt=2026-03-01/country=c%C3%B4te/part-0.parquet")
    {'dt': '2026-03-01', 'country': 'côte'}
    """
    pairs = (folder.split("=", 1) for folder in partition_folders(path))
    return {name: None if value == NO_PARTITION else unquote(value) for name, value in pairs}


def partition_folders(path: Location) -> list[str]:
    """The folders of a path that name a column and its value, such as dt=2026-03-01."""
    parts = PurePath(str(path)).parts[:-1]
    return [part for part in parts if PARTITION.fullmatch(part)]


def is_whole_number(text: str | None) -> bool:
    """Whether a text is a whole number without leading zeros."""
    return text is not None and re.fullmatch(r"0|-?[1-9]\d{0,17}", text) is not None


def is_paths(source: object) -> bool:
    """Whether a source is a path or a list of paths, rather than a table."""
    if isinstance(source, list | tuple):
        return all(map(is_location, source))
    return is_location(source)


def find_files(source: object, *, any_name: bool = False) -> list[Location]:
    """Return the files of a path, glob or folder, sorted; those of a list, in the list's order.

    In a folder these are the files of a known type, or with `any_name` all that are not hidden.

    >>> find_files("no/such/file.csv")
    Traceback (most recent call last):
    reclick.errors.LogError: no/such/file.csv does not exist.
    """
    if isinstance(source, list | tuple):
        if not source:
            raise LogError("The list of files to read is empty.")
        files = [file for item in source for file in find_files(item, any_name=any_name)]
        _refuse_repeated(files)
        return files
    if source == "":
        raise LogError('The path to read is empty, "". Give a file, a folder or a glob.')
    path = as_path(source)  # type: ignore[arg-type]
    _complete_commits([path, path.parent])
    if path.is_dir():
        return _list_folder(path, any_name)
    if isinstance(path, Path) and path.is_fifo():
        raise LogError(
            f"{path} is a pipe, which can be read only once. Write it to a file first, or on the "
            "command line give - and pass it to standard input."
        )
    if path.exists():
        return [_check_not_empty(path)]
    if is_glob(path):
        return _match_pattern(path, any_name)
    raise LogError(describe_missing(path))


def _refuse_repeated(files: list[Location]) -> None:
    """Raise if a file is listed twice, since it would count twice."""
    real_paths = [os.path.realpath(file) if isinstance(file, str) else str(file) for file in files]
    repeated_files = [file for file, times in Counter(real_paths).items() if times > 1]
    if repeated_files:
        raise LogError(f"{repeated_files[0]} is listed twice, and would count twice. List it once.")


def shorten_names(files: Iterable[Location]) -> list[str]:
    """Return the file names with their partitions; if these are not distinct, the whole paths.

    >>> shorten_names(["wh/dt=2026-03-01/part-0.parquet", "wh/dt=2026-03-02/part-0.parquet"])
    ['dt=2026-03-01/part-0.parquet', 'dt=2026-03-02/part-0.parquet']
    """
    paths = list(files)
    names = ["/".join([*partition_folders(path), as_path(path).name]) for path in paths]
    return names if len(set(names)) == len(set(paths)) else list(map(str, paths))


def drop_rows(raw: RawBatch, bad: dict[int, str]) -> RawBatch:
    """Move the rows of these indices to the unreadable ones."""
    if not bad:
        return raw
    keep = np.ones(raw.length, dtype=np.bool_)
    keep[list(bad)] = False
    index = np.flatnonzero(keep)
    numbers = [raw.row_number(i) for i in index.tolist()]
    new_unreadable = [(raw.row_number(i), description) for i, description in bad.items()]
    return RawBatch(
        where=raw.where,
        first_row=raw.first_row,
        columns={name: column.take(pa.array(index)) for name, column in raw.columns.items()},
        length=len(index),
        row_numbers=np.asarray(numbers, dtype=np.int64),
        unreadable=sorted(raw.unreadable + new_unreadable),
        rows=None if raw.rows is None else raw.rows.take(pa.array(index)),
    )


def abbreviate(value: object, limit: int = 60) -> str:
    """Format a value for a message: on one line and not too long."""
    try:
        text = repr(value)
    except Exception:  # the repr of another library's class, or of a number with too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def check_on_error(on_error: str) -> None:
    """Raise unless the value is "raise" or "drop"."""
    if not isinstance(on_error, str) or on_error not in {"raise", "drop"}:
        raise SettingError("on_error", on_error, '"raise" or "drop"')


def _match_pattern(pattern: AnyPath, any_name: bool) -> list[Location]:
    paths = match_glob(pattern)
    if _complete_commits({path.parent for path in paths}):
        paths = match_glob(pattern)
    if not paths:
        raise LogError(f"No file matches {pattern}.")
    files: list[Location] = []
    for path in paths:
        files += _list_folder(path, any_name) if path.is_dir() else [_check_not_empty(path)]
    return list(dict.fromkeys(files))  # "**" matches a folder and the files in it


def _complete_commits(folders: Iterable[AnyPath]) -> bool:
    """Complete the output of killed runs in these folders; returns whether there was any."""
    has_commit = [complete_commit(folder) for folder in folders if isinstance(folder, Path)]
    return any(has_commit)


def _list_folder(folder: AnyPath, any_name: bool) -> list[Location]:
    paths: list[Any] = sorted(folder.rglob("*"))
    if _complete_commits(path.parent for path in paths if path.name == COMMIT_FOLDER):
        paths = sorted(folder.rglob("*"))
    delta = next((path.parent for path in paths if path.name == DELTA_LOG), folder)
    if delta != folder:
        raise LogError(
            f"{folder} holds a Delta table, {delta}, whose files may have rows that were deleted. "
            "Give the table itself."
        )
    files = [
        _check_not_empty(path)
        for path in paths
        if not _is_hidden(path.relative_to(folder)) and path.is_file()
        if (any_name and not IS_ABOUT_DATA.search(path.name)) or _get_suffix(path.name)
    ]
    if not files:
        types = ", ".join(OPENERS)
        raise LogError(f"The folder {folder} holds no file to read. Reclick reads {types}.")
    return files


def _is_hidden(path: PurePath) -> bool:
    # Spark and Hive write files of their own (_SUCCESS, .crc, _temporary/) next to the data.
    return any(part.startswith((".", "_")) for part in path.parts)


def _check_not_empty(path: AnyPath) -> Location:
    if path.is_file() and path.stat().st_size == 0:
        raise LogError(f"{path} is empty (0 bytes). Was it written to the end?")
    return path if isinstance(path, RemotePath) else str(path)


def _get_opener(path: Location) -> Opener:
    suffix = _get_suffix(path)
    if not suffix:
        raise LogError(
            f"{path}: the ending of the name is not that of a known file type. Reclick reads "
            f"{', '.join(OPENERS)}, and other formats of logs by their names (`reclick formats`)."
        )
    module, name = OPENERS[suffix].split(".")
    opener: Any = getattr(import_module(f"reclick.logs.files.{module}"), name)
    return opener  # type: ignore[no-any-return]


def _get_suffix(path: Location) -> str:
    name = as_path(path).name.lower()
    return max((suffix for suffix in OPENERS if name.endswith(suffix)), key=len, default="")
