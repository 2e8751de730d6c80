"""Open a log: in Reclick's own columns directly, in another format by converting it to sessions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.outcomes import QUICK_RETURN_SECONDS
from reclick.data.ragged import starts_from_sizes
from reclick.data.schema import LOG_COLUMNS, PAGE_LOG_COLUMNS, UNREAD, Column
from reclick.errors import (
    Argument,
    LogError,
    SettingError,
    UsageError,
    check_choice,
    check_range,
    check_whole,
)
from reclick.logs.cleaning import Cleaning
from reclick.logs.files.source import (
    OnError,
    RawBatch,
    Source,
    abbreviate,
    check_on_error,
    find_files,
    is_paths,
    open_sources,
    shorten_names,
)
from reclick.logs.session_log import SessionLog
from reclick.logs.side_tables import read_ads
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location, as_path, is_glob
from reclick.runtime.outputs import check_targets, refuse_source_files
from reclick.runtime.progress import ProgressOption, report_progress, track_progress

if TYPE_CHECKING:
    from reclick.logs.files.log_file import LogFile
    from reclick.logs.formats.base import LogFormat

logger = logging.getLogger("reclick")
OWN_FORMAT = "sessions"
READ_CALL = "rc.read_sessions(log"  # in advice about a log that another function opens
MAX_QUICK_RETURN = 3600.0  # seconds
PageSource = Literal["hits", "impressions"]  # what a page of a log of events shows


@check_arguments
def read_sessions(
    source: Any,
    *,
    ads: Any = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_error: OnError = "raise",
    max_ads: int = 100,
    quick_return_seconds: float = QUICK_RETURN_SECONDS,
    clicks_required: bool = False,
    click: str | Sequence[str] | None = None,
    pages: PageSource | None = None,
    cleaning: Cleaning | None = None,
    progress: ProgressOption = None,
) -> SessionLog:
    """Open a log of sessions: find its files and check its columns. Rows are read when needed.

    `source` is a path, a glob, a folder, a list of them, a pandas, Polars, Arrow or DuckDB table,
    an Arrow stream (a RecordBatchReader, an ADBC cursor, anything with `__arrow_c_stream__`), a
    dict of columns, or a single page as `(query, ads)` or `(query, ads, clicks)`. `columns` maps
    Reclick's names to yours: `columns={"query": "search_term"}`. A log without clicks is read as
    pages, for which a model can make predictions, but from which it cannot learn; with
    `clicks_required=True` it raises an error. A click with fewer `dwell_seconds` than
    `quick_return_seconds` is a quick return. `ads` is the text of the ads, as `read_ads` reads it;
    an ads table with other column names is read with `read_ads` first. `on_error` applies to its
    rows too.

    `format` names another format (see `reclick formats`). Without it, the format of files that lack
    Reclick's columns is recognised by their content. Such a log, and a log to be cleaned, is first
    converted to a temporary file of sessions, while calling `progress("Reading: bytes", done,
    total)`. `click` and `pages` are as in `convert`.

    >>> pages = read_sessions({"query": ["pizza"], "ads": [["a", "b"]]}, ads={"b": "Pizza to go"})
    >>> pages.has_clicks, pages.ads.to_pylist()[0]["title"]
    (False, 'Pizza to go')
    """
    options = _check_options(on_error, max_ads, cleaning)
    check_range("quick_return_seconds", quick_return_seconds, 0.0, MAX_QUICK_RETURN)
    if isinstance(source, SessionLog):
        raise LogError("This log is open already. Give read_sessions its files or table.")
    table = _as_columns(source)
    _refuse_misshapen_page(table, clicks_required=clicks_required)
    texts = None if ads is None else _read_text(ads, on_error=on_error)
    columns_to_read = LOG_COLUMNS if clicks_required else PAGE_LOG_COLUMNS
    with track_progress(progress, "Reading"):
        log = _open(
            table,
            format,
            columns,
            columns_to_read,
            _event_options(click, pages),
            **options,
        )
    log.quick_return_seconds = quick_return_seconds
    log.ads = log.ads if texts is None else texts
    log.files, log.text_files = _list_paths(source, any_name=True), _list_paths(ads)
    return log


def _list_paths(source: object, *, any_name: bool = False) -> tuple[AnyPath, ...]:
    """Return the files that a source is read from; none for a table."""
    return tuple(map(as_path, find_files(source, any_name=any_name))) if is_paths(source) else ()


def as_log(
    source: Any, *, ads: Any = None, clicks_required: bool = True, one_pass: bool = False
) -> SessionLog:
    """Return a log as it is, or open one from anything that `read_sessions` reads.

    `ads` is the text of ads, which replaces what an open log has of the same ads. With `one_pass`,
    the caller reads a log that is opened here only once, so streams need no copy.

    >>> as_log({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[]]}).summary.kept
    1
    >>> as_log(("pizza", ["a", "b"], [2, 1])).summary.reverse_sessions
    1
    """
    if not isinstance(source, SessionLog):
        try:
            log = read_sessions(source, ads=ads, clicks_required=clicks_required)
        except LogError as error:  # the caller has none of the options that it names
            error.set_call(READ_CALL)
            raise
        log.call = READ_CALL
        if one_pass:
            log.keep_no_copy()
        return log
    if clicks_required and not source.has_clicks:
        raise LogError(
            f"{source.name} has no column clicks. This needs clicks: give a log that has them, or "
            "where they are in another column, name it when you read the log: ",
            Argument("columns", {"clicks": ...}),
            ".",
        )
    return source if ads is None else with_text(source, ads)


def _read_text(ads: Any, on_error: OnError = "raise") -> pa.Table:
    """Read the text of ads for a function that has no options for its table."""
    try:
        return read_ads(ads, on_error=on_error)
    except LogError as error:
        error.set_call("rc.read_ads(ads")
        raise


def with_text(log: SessionLog, text: object) -> SessionLog:
    """The same log with the text of more ads; a new text of an ad replaces the old one."""
    new_log, new_ads = copy(log), _read_text(text)
    if log.ads is not None:
        is_other = pc.invert(pc.is_in(log.ads["ad"], new_ads["ad"].combine_chunks()))
        new_ads = pa.concat_tables([new_ads, log.ads.filter(is_other)])
    new_log.ads, new_log.text_files = new_ads, (*log.text_files, *_list_paths(text))
    return new_log


def _clicks_array(clicks: Sequence[Sequence[int]]) -> pa.Array:
    try:
        return pa.array([list(each) for each in clicks], pa.list_(pa.int64()))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SettingError("clicks", clicks, "a list of positions for each page") from error


def with_clicks(log: SessionLog, clicks: Sequence[Sequence[int]]) -> SessionLog:
    """The same pages with other clicks, one list per page, in order. Reads the pages to memory."""
    batches = list(log.batches())
    log.require_rows()
    pages = sum(len(batch) for batch in batches)
    if not isinstance(clicks, list | tuple | np.ndarray):
        raise SettingError("clicks", clicks, "a list of positions for each page")
    if len(clicks) != pages:
        raise LogError(
            f"clicks: got {len(clicks)} lists for {pages} pages. "
            "Give one list of positions per page, [] for none so far."
        )
    queries = [
        batch.queries.cast(pa.large_string()).take(pa.array(batch.query)) for batch in batches
    ]
    ads = [batch.ads.cast(pa.large_string()).take(pa.array(batch.ad)) for batch in batches]
    lengths = np.concatenate([np.diff(batch.page) for batch in batches])
    starts = pa.array(starts_from_sizes(lengths))
    table = pa.table(
        {
            "query": pa.concat_arrays(queries),
            "ads": pa.LargeListArray.from_arrays(starts, pa.concat_arrays(ads)),
            "clicks": _clicks_array(clicks),
        }
    )
    new_log = read_sessions(table, max_ads=log.max_ads)
    new_log.ads, new_log.files, new_log.text_files = log.ads, log.files, log.text_files
    return new_log


@check_arguments
def convert(
    source: Any,
    to: Location,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_error: OnError = "drop",
    max_bad: float = 0.05,
    max_ads: int = 100,
    click: str | Sequence[str] | None = None,
    pages: PageSource | None = None,
    cleaning: Cleaning | None = None,
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> SessionLog:
    """Write a log of any format as a Parquet file of sessions, and open that file.

    Bad rows are dropped and counted in the summary of the log; nothing is written if they are more
    than the share `max_bad`, or with on_error="raise" if there is any.

    The text of ads is written next to it (`sessions.ads.parquet`), and both appear together. Files
    that Reclick did not write are replaced only with `overwrite`. For the format ubi, `click` is
    the action or actions that are clicks, in place of click and click_through, and `pages` is what
    a page shows: the "hits" of its query, or its "impressions".

    >>> from tempfile import TemporaryDirectory
    >>> sessions = {"query": ["shoes"], "ads": [["a", "b"]], "clicks": [[2, 1]]}
    >>> with TemporaryDirectory() as folder:
    ...     convert(sessions, f"{folder}/sessions.parquet").num_rows
    1
    """
    options = _check_options(on_error, max_ads, cleaning)
    options |= {"max_bad": max_bad, "overwrite": overwrite}
    check_range("max_bad", max_bad, 0, 1)
    if is_paths(source):
        refuse_source_files(to, find_files(source, any_name=True))
    if as_path(to).name:
        from reclick.logs.conversion import ads_path

        check_targets([to, ads_path(to)], overwrite=overwrite)
    with track_progress(progress, "Converting"):
        events = _event_options(click, pages)
        return _open(source, format, columns, LOG_COLUMNS, events, to, **options)


def _as_columns(source: Any) -> Any:
    """Turn a single page, (query, ads) or (query, ads, clicks), into a dict of columns."""
    if not isinstance(source, tuple) or len(source) not in {2, 3}:
        return source
    query, ads = source[:2]
    if isinstance(ads, str) or not isinstance(ads, Sequence | np.ndarray | pa.Array):
        return source
    if not all(isinstance(clicks, Iterable) for clicks in source[2:]):
        return source
    names = ("query", "ads", "clicks")[: len(source)]
    values = (query, *(list(each) for each in source[1:]))
    return {name: [value] for name, value in zip(names, values, strict=True)}


def _refuse_misshapen_page(source: Any, *, clicks_required: bool) -> None:
    """Raise if a source is meant as a page, or as pages, but does not have their shape."""
    if not _is_misshapen_page(source):
        return
    more, columns = ("", "") if not clicks_required else (", [position, …]", ", 'clicks': …")
    raise LogError(
        f"This is not a page: got {abbreviate(source)}. Give a page as (query, [ad, …]{more}), or "
        f"pages as {{'query': [...], 'ads': [[...], ...]{columns}}}."
    )


def _is_misshapen_page(source: Any) -> bool:
    if isinstance(source, dict):
        return _has_column_of_one_page(source)
    if not isinstance(source, list | tuple) or not source:
        return False
    if is_paths(source):  # a tuple of a query and one ad may also be two files
        is_pair = isinstance(source, tuple) and len(source) == 2
        return is_pair and not any(map(_is_file_like, source))
    has_parts = isinstance(source[0], str) and len(source) in {2, 3}
    return has_parts or isinstance(source[0], tuple | list | dict)


def _has_column_of_one_page(columns: dict[Any, Any]) -> bool:
    """Whether the query is one text, or the ads are texts instead of lists."""
    ads = columns.get("ads")
    is_list_of_texts = isinstance(ads, list | tuple) and len(ads) > 0 and isinstance(ads[0], str)
    return is_list_of_texts or any(isinstance(columns.get(name), str) for name in ("query", "ads"))


def _is_file_like(place: Any) -> bool:
    """Whether a text may be the path of a file: it exists, or is written like a path."""
    if not isinstance(place, str):
        return True
    path = as_path(place)
    return bool(path.suffix) or "/" in place or "\\" in place or is_glob(path) or path.exists()


def _check_options(on_error: OnError, max_ads: int, cleaning: Cleaning | None) -> dict[str, Any]:
    check_on_error(on_error)
    max_ads = check_whole("max_ads", max_ads, 1)
    if cleaning is not None and not isinstance(cleaning, Cleaning):
        raise SettingError(
            "cleaning", cleaning, "rc.Cleaning(...), such as rc.Cleaning(first=10)", or_none=True
        )
    if cleaning is not None and cleaning.first is not None and cleaning.first > max_ads:
        raise UsageError(
            Argument("first", cleaning.first),
            " leaves pages that are longer than ",
            Argument("max_ads", max_ads),
            f". Raise the limit to {cleaning.first}.",
        )
    return {"on_error": on_error, "max_ads": max_ads, "cleaning": cleaning}


def _event_options(
    click: str | Sequence[str] | None, pages: PageSource | None
) -> dict[str, Any] | None:
    """The options of formats of events; None if none is set."""
    names: tuple[Any, ...] = (click,) if isinstance(click, str) else ()
    if isinstance(click, Sequence) and not isinstance(click, str | bytes):
        names = tuple(click)
    is_named = bool(names) or (isinstance(click, Sequence) and not click)
    if click is not None and not (is_named and all(map(_is_name, names))):
        raise SettingError("click", click, "the names of actions, such as 'item_click'")
    if pages is not None:
        check_choice("pages", pages, get_args(PageSource))
    options = {"click": names, "pages": pages}
    return {name: value for name, value in options.items() if value} or None


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())


def _open(
    source: Any,
    format_name: str | None,
    columns: Mapping[str, str] | None,
    columns_to_read: Sequence[Column],
    events: dict[str, Any] | None,
    to: Location | None = None,
    **options: Any,
) -> SessionLog:
    """Open a log in Reclick's own columns, or in the format that is named or recognised."""
    if format_name is not None and not isinstance(format_name, str):
        raise SettingError("format", format_name, "the name of a format", or_none=True)
    if format_name not in {None, OWN_FORMAT}:
        from reclick.logs.formats import get_format

        return _open_format(
            _list_files(source), get_format(str(format_name)), columns, events, to, **options
        )
    try:
        sources = open_sources(source, columns_to_read, columns)
    except LogError as error:
        log_format = _recognise(source) if format_name is None else None
        if log_format is None:
            raise error from None
        logger.info("%s is read as %s.", source, log_format.name)
        return _open_format(_list_files(source), log_format, columns, events, to, **options)
    _refuse_event_options(events, OWN_FORMAT)
    unread_names = {
        source_name: name for name, source_name in (columns or {}).items() if name in UNREAD
    }
    return _open_own_columns(sources, to, unread_names, **options)


def _recognise(source: Any) -> LogFormat | None:
    if not is_paths(source):
        return None
    from reclick.logs.formats import recognise_format

    return recognise_format(_list_files(source))


def _open_own_columns(
    sources: list[Source],
    to: Location | None,
    unread_names: dict[str, str],
    *,
    on_error: OnError,
    max_ads: int,
    max_bad: float = 1.0,
    cleaning: Cleaning | None,
    overwrite: bool = False,
) -> SessionLog:
    """Open a log in Reclick's columns; write sessions only if it is cleaned or converted."""
    log = SessionLog(sources, ads=None, on_error=on_error, max_ads=max_ads)
    if to is None and cleaning is None:
        return log
    from reclick.logs.conversion import write_sessions
    from reclick.logs.formats.base import ReadReport

    return write_sessions(
        _read_all_columns(sources, unread_names, log.num_rows),
        ReadReport(),
        name=log.name,
        to=to,
        format=OWN_FORMAT,
        on_error=on_error,
        max_ads=max_ads,
        max_bad=max_bad,
        cleaning=cleaning,
        overwrite=overwrite,
    )


def _read_all_columns(
    sources: list[Source], unread_names: dict[str, str], total: int | None
) -> Iterator[RawBatch]:
    num_read = 0
    for source in sources:
        for raw in source.read(with_rows=True):
            yield _rename_unread(raw, unread_names)
            num_read += raw.length + len(raw.unreadable)
            report_progress("sessions", num_read, total)


def _rename_unread(raw: RawBatch, names: dict[str, str]) -> RawBatch:
    """Give Reclick's names to columns that are only used by cleaning and splitting.

    A column that has such a name already, but is not the one mapped to it, is left out.
    """
    if raw.rows is None or not names:
        return raw
    source_names = {name: source_name for source_name, name in names.items()}
    selection = [
        column for column in raw.rows.schema.names if source_names.get(column, column) == column
    ]
    new_names = [names.get(column, column) for column in selection]
    return replace(raw, rows=raw.rows.select(selection).rename_columns(new_names))


def _open_format(
    files: list[LogFile],
    log_format: LogFormat,
    columns: Mapping[str, str] | None,
    events: dict[str, Any] | None,
    to: Location | None,
    **options: Any,
) -> SessionLog:
    from reclick.logs.conversion import with_row_numbers, write_sessions
    from reclick.logs.formats.base import EventOptions, ReadReport

    if columns and not log_format.takes_columns:
        raise UsageError(
            Argument("columns", ...),
            " is for logs whose columns may have any name; those of the format "
            f"{log_format.name} are fixed.",
        )
    read = log_format.read
    if log_format.configure is None:
        _refuse_event_options(events, log_format.name)
    elif events:
        read = log_format.configure(EventOptions(**events))
    report = ReadReport(total_bytes=_total_bytes(files))
    name = files[0].where if len(files) == 1 else f"{len(files)} files"
    batches = with_row_numbers(read(files, report, columns or {}), name)
    return write_sessions(batches, report, name=name, to=to, format=log_format.name, **options)


def _refuse_event_options(events: dict[str, Any] | None, format_name: str) -> None:
    """Raise if an option for logs of events is set for another log, where it has no effect."""
    for name in events or {}:
        raise UsageError(
            Argument(name),
            f" is for the format 'ubi', with no effect on {format_name!r}: leave it out, or give ",
            Argument("format", "ubi"),
            ".",
        )


def _total_bytes(files: list[LogFile]) -> int | None:
    """The number of bytes to read; None for compressed files, where it is not known before."""
    if any(file.member is not None or as_path(file.path).name.endswith(".gz") for file in files):
        return None
    return sum(as_path(file.path).stat().st_size for file in files)


def _list_files(source: object) -> list[LogFile]:
    from reclick.logs.files.log_file import list_files

    if not is_paths(source):
        raise LogError(
            f"`format` applies to files only, but got a {type(source).__name__}. "
            "Give a path, a glob, a folder or a list of them."
        )
    paths = find_files(source, any_name=True)
    return list_files(paths, shorten_names(paths))
