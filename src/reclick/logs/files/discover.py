"""Find what a source means: files by path, glob, folder or a list of them, with the reader of each, or a table in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path

from reclick.data.schema import Column, check_mapping
from reclick.errors import LogError
from reclick.logs.files.csv import open_delimited
from reclick.logs.files.jsonl import open_jsonlines
from reclick.logs.files.memory import open_table
from reclick.logs.files.parquet import open_parquet
from reclick.logs.files.source import Opener, Source

# One line per format: adding a format is one file and one line here.
FORMATS: dict[str, Opener] = {
    ".parquet": open_parquet,
    ".pq": open_parquet,
    ".csv": open_delimited,
    ".csv.gz": open_delimited,
    ".tsv": open_delimited,
    ".tsv.gz": open_delimited,
    ".jsonl": open_jsonlines,
    ".jsonl.gz": open_jsonlines,
    ".ndjson": open_jsonlines,
    ".ndjson.gz": open_jsonlines,
    ".json": open_jsonlines,
    ".json.gz": open_jsonlines,
}


def open_sources(
    source: object, wanted: Sequence[Column], columns: Mapping[str, str] | None
) -> list[Source]:
    """Open every file of a source, or a table; columns and types are checked here, rows are not read."""
    mapping = check_mapping(columns, wanted)
    if not is_paths(source):
        return [open_table(source, wanted, mapping)]
    files = find_files(source)
    names = short_names(files)
    return [
        _opener(file)(file, where, wanted, mapping)
        for file, where in zip(files, names, strict=True)
    ]


def find_files(source: object, *, any_name: bool = False) -> list[str]:
    """Return the files a path, glob or folder stands for, sorted; those of a list, in the list's order.

    Of a folder those whose names end as tables' do, or with `any_name` all that are not hidden.

    >>> find_files("no/such/file.csv")
    Traceback (most recent call last):
    reclick.errors.LogError: no/such/file.csv does not exist.
    """
    if isinstance(source, list | tuple):
        if not source:
            raise LogError("The list of files to read is empty.")
        return [file for item in source for file in find_files(item, any_name=any_name)]
    path = os.fspath(source)  # type: ignore[call-overload]
    if Path(path).is_dir():
        return _below(path, any_name)
    if Path(path).exists():
        return [_not_empty(path)]
    if has_magic(path):
        return _matches(path, any_name)
    raise LogError(f"{path} does not exist.")


def is_paths(source: object) -> bool:
    """Whether it is a path or a list of them, and not a table."""
    if isinstance(source, list | tuple):
        return all(isinstance(item, str | os.PathLike) for item in source)
    return isinstance(source, str | os.PathLike)


def _matches(pattern: str, any_name: bool) -> list[str]:
    found = sorted(glob(pattern, recursive=True))  # noqa: PTH207, Path.glob takes no absolute pattern
    if not found:
        raise LogError(f"No file matches {pattern}.")
    files = [
        file
        for path in found
        for file in (_below(path, any_name) if Path(path).is_dir() else [_not_empty(path)])
    ]
    return list(dict.fromkeys(files))  # "**" gives a folder and the files in it


def _below(folder: str, any_name: bool) -> list[str]:
    paths = (
        str(path)
        for path in sorted(Path(folder).rglob("*"))
        if not _hidden(path.relative_to(folder)) and path.is_file()
    )
    files = [_not_empty(path) for path in paths if any_name or _suffix(path)]
    if not files:
        raise LogError(
            f"The folder {folder} holds no file to read. Reclick reads {_listed_formats()}."
        )
    return files


def _hidden(path: Path) -> bool:
    # Spark and Hive put their bookkeeping (_SUCCESS, .crc, _temporary/) next to the data.
    return any(part.startswith((".", "_")) for part in path.parts)


def _not_empty(path: str) -> str:
    if Path(path).is_file() and Path(path).stat().st_size == 0:
        raise LogError(f"{path} is empty (0 bytes). Was it written to the end?")
    return path


def _opener(path: str) -> Opener:
    suffix = _suffix(path)
    if not suffix:
        raise LogError(
            f"{path}: the ending of the name does not tell the format. Reclick reads {_listed_formats()},"
            " and other formats of logs by their names (`reclick formats`)."
        )
    return FORMATS[suffix]


def _suffix(path: str) -> str:
    name = Path(path).name.lower()
    return max((suffix for suffix in FORMATS if name.endswith(suffix)), key=len, default="")


def _listed_formats() -> str:
    return ", ".join(FORMATS)


def short_names(files: Iterable[str]) -> list[str]:
    """Return the file names alone when they differ, else the whole paths (day=1/part-0.parquet, day=2/part-0.parquet)."""
    paths = list(files)
    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(set(paths)) else paths
