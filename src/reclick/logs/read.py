"""Open a log: in Reclick's own columns as it is, in another format by making sessions of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.schema import PAGE_COLUMNS, SESSION_COLUMNS, UNREAD, Column
from reclick.errors import LogError, SettingError
from reclick.logs.cleaning import Cleaning
from reclick.logs.conversion import numbered, rewrite
from reclick.logs.files.archive import LogFile, with_members
from reclick.logs.files.discover import find_files, is_paths, open_sources, short_names
from reclick.logs.files.source import OnError, Raw, Source, check_on_error
from reclick.logs.formats.base import Format, Found
from reclick.logs.session_log import SessionLog
from reclick.logs.side_tables import read_ads
from reclick.runtime.atomic_write import write_files
from reclick.runtime.progress import Progress

logger = logging.getLogger("reclick")
OWN = "sessions"  # the name of Reclick's own format


def read_sessions(
    source: Any,
    *,
    ads: Any = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_error: OnError = "raise",
    max_ads: int = 100,
    clicks_required: bool = True,
    cleaning: Cleaning | None = None,
    progress: Progress | None = None,
) -> SessionLog:
    """Open a log of sessions: find its files and check its columns. Rows are read when they are used.

    `source` is a path, a glob, a folder, a list of them, or a pandas, Polars, Arrow or DuckDB table. `columns` maps Reclick's
    names to yours: `columns={"query": "search_term"}`. With `clicks_required=False` a log without clicks is read as pages.
    `on_error` is for the rows of the ads table too; one whose columns have other names is read with `read_ads` first.

    `format` names another format (see `reclick formats`); without it, files that have not Reclick's columns are looked at. Such a log, and one to be
    cleaned, is first turned into a temporary file of sessions, of which `progress(bytes done, bytes in all)` is told.
    """
    options = _checked_options(on_error, max_ads, cleaning, progress)
    if isinstance(source, SessionLog):
        raise LogError("This log is open already. Give read_sessions its files or table.")
    texts = None if ads is None else read_ads(ads, on_error=on_error)
    log = _opened(
        source, format, columns, SESSION_COLUMNS if clicks_required else PAGE_COLUMNS, **options
    )
    log.ads = log.ads if texts is None else texts
    return log


def convert(
    source: Any,
    to: str | Path,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_error: OnError = "raise",
    max_ads: int = 100,
    cleaning: Cleaning | None = None,
    progress: Progress | None = None,
) -> SessionLog:
    """Write a log of any format as a Parquet file of sessions, and open that; text of ads goes beside it (`sessions.ads.parquet`).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     convert({"query": ["shoes"], "ads": [["a", "b"]], "clicks": [[2, 1]]}, f"{folder}/sessions.parquet").num_rows
    1
    """
    options = _checked_options(on_error, max_ads, cleaning, progress)
    if is_paths(source) and Path(to).resolve() in {
        Path(path).resolve() for path in find_files(source, any_name=True)
    }:
        raise SettingError(
            f"{to} is the log itself, which would be lost. Give another file to write to."
        )
    log = _opened(source, format, columns, SESSION_COLUMNS, to, **options)
    _write_ads(log.ads, ads_path(to))
    return log


def ads_path(sessions: str | Path) -> Path:
    """Where the text of ads goes that comes with a file of sessions."""
    return Path(sessions).with_suffix(".ads.parquet")


def find_format(name: str) -> Format:
    """A format by its name.

    >>> find_format("ubbi")
    Traceback (most recent call last):
    reclick.errors.SettingError: format: there is no 'ubbi'. There are ...
    """
    from reclick.logs.formats.registry import FORMATS

    if name.lower() not in FORMATS:
        raise SettingError(f"format: there is no {name!r}. There are {', '.join([OWN, *FORMATS])}.")
    return FORMATS[name.lower()]


def recognise(files: list[LogFile]) -> Format | None:
    """The one format that knows these files; None when no format does, or several do."""
    from reclick.logs.formats.registry import FORMATS

    known = [each for each in FORMATS.values() if each.recognises(files)]
    return known[0] if len(known) == 1 else None


def _checked_options(
    on_error: OnError, max_ads: int, cleaning: Cleaning | None, progress: Progress | None
) -> dict[str, Any]:
    check_on_error(on_error)
    if max_ads < 1:
        raise SettingError(f"max_ads must be 1 or more, got {max_ads}.")
    if cleaning is not None and not isinstance(cleaning, Cleaning):
        raise SettingError(
            f"cleaning: got a {type(cleaning).__name__}, expected rc.Cleaning(...), such as rc.Cleaning(first=10)."
        )
    if cleaning is not None and cleaning.first is not None and cleaning.first > max_ads:
        raise SettingError(
            f"first = {cleaning.first} leaves pages that are longer than max_ads = {max_ads}. Raise max_ads (--max-ads) to it."
        )
    return {"on_error": on_error, "max_ads": max_ads, "cleaning": cleaning, "progress": progress}


def _opened(
    source: Any,
    name: str | None,
    columns: Mapping[str, str] | None,
    wanted: Sequence[Column],
    to: str | Path | None = None,
    **options: Any,
) -> SessionLog:
    """Open in Reclick's own columns, else in the format that is named or recognised."""
    if name not in {None, OWN}:
        return _of_format(_files(source), find_format(str(name)), columns, to, **options)
    try:
        sources = open_sources(source, wanted, columns)
    except LogError as error:
        files = _files(source) if name is None and is_paths(source) else []
        chosen = recognise(files) if files else None
        if chosen is None:
            raise error from None
        logger.info("%s is read as %s.", source, chosen.name)
        return _of_format(files, chosen, columns, to, **options)
    return _own(
        sources,
        to,
        {theirs: ours for ours, theirs in (columns or {}).items() if ours in UNREAD},
        **options,
    )


def _own(
    sources: list[Source],
    to: str | Path | None,
    unread: dict[str, str],
    *,
    on_error: OnError,
    max_ads: int,
    cleaning: Cleaning | None,
    progress: Progress | None,
) -> SessionLog:
    """A log in Reclick's columns; it is written anew only to be cleaned, or where it is to go."""
    log = SessionLog(sources, ads=None, on_error=on_error, max_ads=max_ads)
    if to is None and cleaning is None:
        return log
    raws = _told(
        (_renamed(raw, unread) for source in sources for raw in source.read(with_rows=True)),
        log.num_rows,
        progress,
    )
    return rewrite(
        raws,
        Found(),
        name=log.name,
        to=to,
        format=OWN,
        on_error=on_error,
        max_ads=max_ads,
        cleaning=cleaning,
    )


def _renamed(raw: Raw, names: dict[str, str]) -> Raw:
    """The rows with Reclick's names for columns that are not read here, but by who cleans or splits the file."""
    if raw.rows is None or not names:
        return raw
    meant = {ours: theirs for theirs, ours in names.items()}
    kept = [
        name for name in raw.rows.schema.names if meant.get(name, name) == name
    ]  # a column of ours that is not the one meant goes
    return replace(
        raw, rows=raw.rows.select(kept).rename_columns([names.get(name, name) for name in kept])
    )


def _told(raws: Iterator[Raw], total: int | None, progress: Progress | None) -> Iterator[Raw]:
    done = 0
    for raw in raws:
        yield raw
        done += raw.total
        if progress is not None:
            progress(done, total)


def _of_format(
    files: list[LogFile],
    chosen: Format,
    columns: Mapping[str, str] | None,
    to: str | Path | None,
    *,
    progress: Progress | None,
    **options: Any,
) -> SessionLog:
    if columns and not chosen.takes_columns:
        raise SettingError(
            f"columns= (--column) is for logs whose columns may have any name; those of the format {chosen.name} are fixed."
        )
    found = Found(told=_advancing(files, progress))
    name = files[0].where if len(files) == 1 else f"{len(files)} files"
    raws = numbered(chosen.read(files, found, columns or {}), name)
    return rewrite(raws, found, name=name, to=to, format=chosen.name, **options)


def _advancing(files: list[LogFile], progress: Progress | None) -> Callable[[int], object]:
    """What adds up the bytes read; of packed files nobody knows how many there will be."""
    if progress is None:
        return lambda _: None
    packed = any(file.member is not None or file.path.endswith(".gz") for file in files)
    total = None if packed else sum(Path(file.path).stat().st_size for file in files)
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    return advance


def _files(source: object) -> list[LogFile]:
    if not is_paths(source):
        raise LogError(
            f"A format is of files: got a {type(source).__name__}. Give a path, a glob, a folder or a list of them."
        )
    paths = find_files(source, any_name=True)
    return with_members(paths, short_names(paths))


def _write_ads(ads: pa.Table | None, path: Path) -> None:
    """Write the text beside its sessions; that of older sessions goes."""
    if ads is None:
        path.unlink(missing_ok=True)
    else:
        write_files(path.parent, {path.name: lambda beside: pq.write_table(ads, beside)})
