"""Optional cleaning of valid rows: bots, reloads, long sessions and pages, all off by default.

Every step counts its changes. Bad rows are another matter: they are found before, in `validation`,
and counted in `read_summary`.

Bots and reloads are found over the whole log, which may be larger than memory. DuckDB holds one
narrow row per session (user, time, numbers), which it spills to disk. The sessions themselves are
read again, batch by batch.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as arrow_types

from reclick.data.batch import Int64
from reclick.data.schema import OUTCOME_COLUMNS, is_number, is_string, is_text
from reclick.data.timestamps import as_times, clock_times
from reclick.errors import Argument, LogError, SettingError, explain_write_errors
from reclick.logs.assembly.spill import connect, load_sql, translate_error
from reclick.logs.formats.base import ReadReport
from reclick.logs.validation.encode import (
    MAX_TEXT_BYTES,
    encode_lists,
    encode_number,
    encode_positions,
    encode_text,
)
from reclick.runtime.outputs import scratch_file, scratch_folder

Bool = npt.NDArray[np.bool_]
CLEANING_BATCH = 50_000  # sessions
UNLIMITED_ADS = 2**31 - 1
PAGE_CONTENT = {"query": pa.string(), "ads": pa.list_(pa.string())}
OUTCOME_CONTENT = dict.fromkeys(OUTCOME_COLUMNS, pa.list_(pa.float64()))
ADVICE = (
    "Leave out ",
    Argument("max_pages_per_hour"),
    ", ",
    Argument("max_clicks_per_hour"),
    " and ",
    Argument("reload_seconds"),
    ".",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """The cleaning steps to take: those that are not None or False, in this order.

    Notes that end in "removed" count the sessions that are removed.

    >>> Cleaning(first=10, normalise=True).needs_whole_log
    False
    >>> Cleaning(first=0)
    Traceback (most recent call last):
    reclick.errors.SettingError: first: got 0, expected a whole number of 1 or more, or None.
    """

    # unify the spelling of queries: compatibility forms, case and white space
    normalise: bool = False
    # remove all sessions of users with more pages than this in any 60 minutes
    max_pages_per_hour: int | None = None
    # the same for clicks
    max_clicks_per_hour: int | None = None
    # merge a page with its reload by the same user within this many seconds, and the clicks of both
    reload_seconds: float | None = None
    # remove sessions with more clicks than this
    max_clicks: int | None = None
    # cut pages to this many ads, and drop the clicks on the others
    first: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_pages_per_hour", "max_clicks_per_hour", "max_clicks", "first"):
            _check(name, getattr(self, name), Integral, 1, "a whole number of 1 or more")
        seconds = "a number of seconds, such as 30"
        _check("reload_seconds", self.reload_seconds, Real, 0.001, seconds)
        if not isinstance(self.normalise, bool):
            raise SettingError("normalise", self.normalise, "True or False")

    @property
    def removes_bots(self) -> bool:
        """Whether users are removed by their pages or clicks per hour."""
        return self.max_pages_per_hour is not None or self.max_clicks_per_hour is not None

    @property
    def needs_whole_log(self) -> bool:
        """Whether a step needs the whole log, so that `remove_bots_and_reloads` must be called."""
        return self.removes_bots or self.reload_seconds is not None

    def clean_batch(self, batch: pa.RecordBatch, report: ReadReport) -> pa.RecordBatch:
        """Take the steps that need no other row.

        If the whole log is needed, sessions are shortened later: bots are detected by all clicks.

        >>> rows = {"query": [" Red  SHOES"], "ads": [["a", "b", "c"]], "clicks": [[3, 1]]}
        >>> cleaning = Cleaning(first=2, normalise=True)
        >>> cleaning.clean_batch(pa.record_batch(rows), ReadReport()).to_pylist()
        [{'query': 'red shoes', 'ads': ['a', 'b'], 'clicks': [1]}]
        """
        batch = _normalise_queries(batch, report) if self.normalise else batch
        return batch if self.needs_whole_log else self.shorten_sessions(batch, report)

    def shorten_sessions(self, batch: pa.RecordBatch, report: ReadReport) -> pa.RecordBatch:
        """Remove sessions with too many clicks, then cut the pages of the others."""
        if self.max_clicks is not None:
            batch = _remove_long_sessions(batch, self.max_clicks, report)
        return batch if self.first is None else _cut_pages(batch, self.first, report)


def normalise_query(query: str) -> str:
    r"""Normalise the spelling of a query: NFKC, folded case, white space trimmed and collapsed.

    >>> normalise_query("  Große\u00a0ＳＣＨＵＨＥ ")
    'grosse schuhe'
    """
    # Case folding may decompose characters that the first NFKC composed.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", query).casefold())
    return " ".join(folded.split())


def replace_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Replace the values of a column, cast to the type of the column."""
    index = batch.schema.get_field_index(name)
    schema_field = batch.schema.field(index)
    return batch.set_column(index, schema_field, column.cast(schema_field.type))


def _check(name: str, value: Any, kind: type, low: float, expected: str) -> None:
    """Raise unless a value is None or a finite number of this kind, at least `low`."""
    is_kind = isinstance(value, kind) and not isinstance(value, bool)
    if value is not None and not (is_kind and low <= value < math.inf):
        raise SettingError(name, value, expected, or_none=True)


def _normalise_queries(batch: pa.RecordBatch, report: ReadReport) -> pa.RecordBatch:
    column = batch.column("query")
    if not is_string(column.type):
        return batch
    texts = encode_text(column)
    queries = texts.values.to_pylist()
    new_queries = [normalise_query(query) for query in queries]
    pairs = list(zip(queries, new_queries, strict=True))
    is_blank = _to_rows([bool(before) and not after for before, after in pairs], texts.codes)
    report.add_note("query of white space only, left as it is", int(is_blank.sum()))
    is_changed = _to_rows([_can_replace(before, after) for before, after in pairs], texts.codes)
    if not is_changed.any():
        return batch
    report.add_note("query normalised, spellings become one", int(is_changed.sum()))
    codes = pa.array(texts.codes, mask=texts.codes < 0)
    new_values = pa.array(new_queries, pa.string()).take(codes)
    new_column = pc.if_else(pa.array(is_changed), new_values, column.cast(pa.string()))
    return replace_column(batch, "query", new_column)


def _can_replace(query: str, new_query: str) -> bool:
    # A letter may have a compatibility form of 18 letters; a query that would be too long stays.
    return new_query not in {"", query} and len(new_query.encode()) <= MAX_TEXT_BYTES


def _to_rows(flags: list[bool], codes: npt.NDArray[np.int32]) -> Bool:
    """The flag of each row; False for null (code -1)."""
    return np.array([*flags, False])[codes]


def _remove_long_sessions(
    batch: pa.RecordBatch, max_clicks: int, report: ReadReport
) -> pa.RecordBatch:
    _, starts = encode_lists(batch.column("clicks"))
    is_long = np.diff(starts) > max_clicks
    report.add_note(f"session with more than {max_clicks:,} clicks, removed", int(is_long.sum()))
    return batch.filter(pa.array(~is_long)) if is_long.any() else batch


def _cut_pages(batch: pa.RecordBatch, first: int, report: ReadReport) -> pa.RecordBatch:
    ads, page = encode_lists(batch.column("ads"))
    length = np.diff(page)
    if not (length > first).any():
        return batch
    click, clicks = encode_lists(batch.column("clicks"))
    position = encode_positions(click)
    session = np.repeat(np.arange(len(length)), np.diff(clicks))  # [click]
    # A click outside of the original page stays, so that validation reports it.
    is_below = (position > first) & (position <= length[session])
    report.add_note(f"page cut to its first {first:,} ads", int((length > first).sum()))
    num_sessions_below = len(np.unique(session[is_below]))
    report.add_note(f"session with clicks below the first {first:,}", num_sessions_below)
    report.add_note(f"click below the first {first:,}, taken out", int(is_below.sum()))
    is_above = np.arange(len(ads)) - np.repeat(page[:-1], length) < first
    batch = replace_column(batch, "ads", _filter_lists(batch.column("ads"), ads, page, is_above))
    if not is_below.any():
        return batch
    for name in (name for name in OUTCOME_COLUMNS if name in batch.schema.names):
        batch = replace_column(batch, name, _filter_outcomes(batch.column(name), clicks, ~is_below))
    clicks_above = _filter_lists(batch.column("clicks"), click, clicks, ~is_below)
    return replace_column(batch, "clicks", clicks_above)


def _filter_outcomes(column: pa.Array, clicks: Int64, keep: Bool) -> pa.Array:
    """Keep the numbers of some clicks; a null list stays null."""
    values, starts = encode_lists(column)
    if column.null_count:
        keep = keep[np.repeat(np.asarray(column.is_valid()), np.diff(clicks))]
    return _filter_lists(column, values, starts, keep)


def _filter_lists(column: pa.Array, values: pa.Array, starts: Int64, keep: Bool) -> pa.Array:
    """Keep some of the values of lists; a null list stays null."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(keep)])[starts])
    nulls = column.is_null() if column.null_count else None
    return pa.LargeListArray.from_arrays(offsets, values.filter(pa.array(keep)), mask=nulls)


# ---- bots and reloads, over the whole log


def remove_bots_and_reloads(path: Path, to: Path, cleaning: Cleaning, report: ReadReport) -> None:
    """Write the sessions of a Parquet file without those of bots, and with reloads merged.

    The order of rows stays. The steps that shorten sessions are taken last. Rows without a user or
    a time are kept and counted.
    """
    with (
        explain_write_errors(to.parent),
        _connect_in(to.parent) as connection,
        pq.ParquetFile(path, pre_buffer=False) as file,
    ):
        _check_whole_log_columns(file.schema_arrow)
        sql = load_sql("cleaning.sql", "reclick.logs")
        log = _BotAndReloadFilter(connection, sql, file, cleaning, report)
        log.add_pages()
        log.find_bots()
        log.find_reloads()
        with scratch_file(to) as cleaned_path:
            log.write(cleaned_path)


@dataclass(frozen=True, slots=True)
class _BotAndReloadFilter:
    """A log in a Parquet file, and tables of its pages, bots and reloads in DuckDB."""

    connection: Any
    sql: Mapping[str, str]
    file: pq.ParquetFile
    cleaning: Cleaning
    report: ReadReport

    def add_pages(self) -> None:
        """Put one narrow row into `page` for each session that has a user and a time."""
        self.connection.execute(self.sql["create_tables"])
        first = self.cleaning.first or UNLIMITED_ADS
        for start, batch in self._read_batches():
            rows = _select_known(batch, np.arange(start, start + batch.num_rows))
            self._execute_with("add_pages", rows, first=first)
        num_known, total = self._count("count_pages"), self.file.metadata.num_rows
        if total and not num_known:
            raise LogError(
                "No session of the log has both a user and a time, which bots and reloads are "
                "found by. ",
                *ADVICE,
            )
        self.report.add_note("session without user or time, not judged", total - num_known)

    def find_bots(self) -> None:
        """Find the users with too many pages or clicks in an hour, and their rows."""
        if not self.cleaning.removes_bots:
            return
        limits = {
            "pages": self.cleaning.max_pages_per_hour,
            "clicks": self.cleaning.max_clicks_per_hour,
        }
        params = {
            name: math.inf if limit is None else float(limit) for name, limit in limits.items()
        }
        self.connection.execute(self.sql["find_suspects"], params)
        self.connection.execute(self.sql["find_bots"], params)
        self.connection.execute(self.sql["find_bot_rows"])
        set_limits = (f"{limit:,} {name}" for name, limit in limits.items() if limit is not None)
        note = f"user over {' or '.join(set_limits)} an hour"
        self.report.add_note(note, self._count("count_bots"))
        note = "session of a user over the limit, removed"
        self.report.add_note(note, self._count("count_bot_rows"))

    def find_reloads(self) -> None:
        """Find the reloads of pages, and the clicks to move to the first showing."""
        seconds = self.cleaning.reload_seconds
        if seconds is None:
            return
        with self.connection.cursor() as cursor:
            pages = cursor.sql(self.sql["select_pages_by_hash"]).to_arrow_reader(CLEANING_BATCH)
            for reloads in find_reloads(pages, round(seconds * 1000)):
                self._execute_with("add_unsorted_reloads", reloads)
        self.connection.execute(self.sql["sort_reloads"])
        for start, batch in self._read_batches():
            rows = self._select_rows("select_reload_rows", start, batch.num_rows)
            if len(rows):
                reload_rows = _select_known(batch.take(pa.array(rows)), rows + start)
                self._execute_with("add_reload_clicks", reload_rows)
        self.connection.execute(self.sql["move_clicks"])
        note = f"page seen again within {seconds:g} s, removed"
        self.report.add_note(note, self._count("count_reloads"))
        note = "click moved to the page seen first"
        self.report.add_note(note, self._count("count_moved_clicks"))

    def write(self, path: Path) -> None:
        """Write the remaining sessions, in the row groups of the file."""
        start = 0
        with pq.ParquetWriter(path, self.file.schema_arrow, compression="zstd") as writer:
            for group in range(self.file.num_row_groups):
                batches = []
                for batch in self.file.iter_batches(CLEANING_BATCH, row_groups=[group]):
                    batches.append(self._filter(start, batch))
                    start += batch.num_rows
                rows = pa.Table.from_batches(batches, self.file.schema_arrow)
                if len(rows):
                    writer.write_table(rows, row_group_size=len(rows))

    def _filter(self, start: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        keep = np.ones(batch.num_rows, np.bool_)
        for statement in ("select_bot_rows", "select_reload_rows"):
            keep[self._select_rows(statement, start, batch.num_rows)] = False
        moved_clicks = self._select("select_moved_clicks", start, batch.num_rows)
        batch = self._add_moved_clicks(batch, moved_clicks).filter(pa.array(keep))
        return self.cleaning.shorten_sessions(batch, self.report)

    def _add_moved_clicks(self, batch: pa.RecordBatch, moved_clicks: pa.Table) -> pa.RecordBatch:
        """Add the clicks on reloads to those on the first page, each position once."""
        if not len(moved_clicks):
            return batch
        batch = _add_moved_outcomes(batch, moved_clicks)
        rows, clicks = moved_clicks["row"].to_numpy(), batch.column("clicks")
        first_clicks = [each or [] for each in clicks.take(pa.array(rows)).to_pylist()]
        click_lists = zip(first_clicks, moved_clicks["clicks"].to_pylist(), strict=True)
        new_lists = [list(dict.fromkeys(before + after)) for before, after in click_lists]
        num_clicks = sum(map(len, first_clicks)) + pc.sum(moved_clicks["total"]).as_py()
        num_repeated = num_clicks - sum(map(len, new_lists))
        self.report.add_note("repeated click on a page seen again", num_repeated)
        return _replace_rows(batch, "clicks", rows, new_lists)

    def _read_batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the number of the first row, from 0, and the columns that are needed."""
        content = () if self.cleaning.reload_seconds is None else tuple(PAGE_CONTENT)
        outcomes = () if self.cleaning.reload_seconds is None else OUTCOME_COLUMNS
        column_names = ("user", "timestamp", "clicks", "weight", *content, *outcomes)
        columns = [name for name in column_names if name in self.file.schema_arrow.names]
        start = 0
        for batch in self.file.iter_batches(CLEANING_BATCH, columns=columns):
            yield start, batch
            start += batch.num_rows

    def _execute_with(self, statement: str, batch: pa.Table, **params: int) -> None:
        self.connection.register("batch", batch)
        self.connection.execute(self.sql[statement], params)
        self.connection.unregister("batch")

    def _select_rows(self, statement: str, start: int, num_rows: int) -> Int64:
        """The rows of the log that a statement selects from these, numbered from `start`."""
        return np.asarray(self._select(statement, start, num_rows)["row"], np.int64)

    def _select(self, statement: str, start: int, num_rows: int) -> pa.Table:
        params = {"start": start, "last": start + num_rows - 1}
        return self.connection.sql(self.sql[statement], params=params).to_arrow_table()

    def _count(self, statement: str) -> int:
        return int(self.connection.execute(self.sql[statement]).fetchall()[0][0])


def find_reloads(pages: Iterable[pa.RecordBatch], within: int) -> Iterator[pa.Table]:
    """The reloads among pages sorted by hashes and time, with the row of the first page.

    A page opens a chain if no equal page precedes it by at most `within` milliseconds. The other
    pages of the chain are reloads of it.
    """
    # hashes and time of the previous page, and the row that opened its chain
    last = [np.zeros(1, np.uint64), np.zeros(1, np.uint64), np.zeros(1, np.int64)]
    opener = -1
    for page in pages:
        new = (page["page_hash"], page["text_hash"], page["ms"])
        page_hash, text_hash, ms = (np.concatenate(pair) for pair in zip(last, new, strict=True))
        differs = (page_hash[1:] != page_hash[:-1]) | (text_hash[1:] != text_hash[:-1])
        opens = np.concatenate([[True], differs | (np.diff(ms) > within)])
        rows = np.concatenate([[opener], page["row"]])
        openers = rows[np.maximum.accumulate(np.where(opens, np.arange(len(rows)), 0))]
        yield pa.table({"row": rows[~opens], "opener": openers[~opens]})
        last, opener = [page_hash[-1:], text_hash[-1:], ms[-1:]], int(openers[-1])


def _add_moved_outcomes(batch: pa.RecordBatch, moved_clicks: pa.Table) -> pa.RecordBatch:
    """Add the outcomes of clicks on reloads: the longest dwell time, the sum of conversions."""
    rows = moved_clicks["row"].to_numpy()
    pages = batch.take(pa.array(rows))
    for name in (name for name in OUTCOME_COLUMNS if name in batch.schema.names):
        new_lists = []
        lists = (pages["clicks"], pages[name], moved_clicks["clicks"], moved_clicks[name])
        for positions, numbers, moved_positions, moved_numbers in zip(
            *(each.to_pylist() for each in lists), strict=True
        ):
            values = dict(
                zip(positions or [], numbers or [None] * len(positions or []), strict=True)
            )
            for click, value in zip(moved_positions, moved_numbers, strict=True):
                known_values = [each for each in (values.get(click), value) if each is not None]
                total = max(known_values) if name == "dwell_seconds" else sum(known_values)
                values[click] = total if known_values else None
            new_lists.append(list(values.values()))
        batch = _replace_rows(batch, name, rows, new_lists)
    return batch


def _replace_rows(
    batch: pa.RecordBatch, name: str, rows: Int64, values: list[list[Any]]
) -> pa.RecordBatch:
    """Replace the lists in some rows of a column."""
    column, index = batch.column(name), np.arange(batch.num_rows)
    index[rows] = batch.num_rows + np.arange(len(rows))
    all_lists = pa.concat_arrays([column, pa.array(values, column.type)])
    return replace_column(batch, name, all_lists.take(pa.array(index)))


@contextmanager
def _connect_in(folder: Path) -> Iterator[Any]:
    """Connect to DuckDB, spilling to a hidden folder in this one, which has room for a log."""
    with (
        scratch_folder(folder) as spill_folder,
        closing(connect(spill_folder)) as connection,
    ):
        try:
            yield connection
        except Exception as error:
            translate_error(error, folder)
            raise


def _check_whole_log_columns(schema: pa.Schema) -> None:
    for column in ("user", "timestamp"):
        if column not in schema.names:
            raise LogError(
                f"The log has no column {column}, which bots and reloads are found by. "
                f"It has {', '.join(schema.names)}. ",
                *ADVICE,
            )
    user, time = schema.field("user").type, schema.field("timestamp").type
    if not is_text(user):
        raise LogError(f"user: expected text or whole-number ids, got {user}. ", *ADVICE)
    time = time.value_type if arrow_types.is_dictionary(time) else time
    is_date = arrow_types.is_timestamp(time) or arrow_types.is_date(time)
    if not (is_date or is_string(time) or is_number(time)):
        raise LogError(f"timestamp: expected times, got {time}. ", *ADVICE)


def _select_known(batch: pa.RecordBatch, rows: Int64) -> pa.Table:
    """Select the rows with a user and a time, in the columns of the SQL statements."""
    names = batch.schema.names
    weight = np.ones(batch.num_rows)
    if "weight" in names:
        weight = encode_number(batch.column("weight"))
    users = batch.column("user")
    if arrow_types.is_dictionary(users.type):
        users = users.dictionary_decode()
    columns = {
        "row": pa.array(rows),
        "user": users.cast(pa.string()),
        "ms": clock_times(as_times(batch.column("timestamp"))).cast(pa.int64()),
        "weight": pa.array(np.where(np.isfinite(weight) & (weight > 0), weight, 0.0)),
        "clicks": batch.column("clicks"),
    }
    for name, kind in (PAGE_CONTENT | OUTCOME_CONTENT).items():
        columns[name] = batch.column(name) if name in names else pa.nulls(batch.num_rows, kind)
    has_user = pc.fill_null(pc.not_equal(columns["user"], ""), False)
    return pa.table(columns).filter(pc.and_(pc.is_valid(columns["ms"]), has_user))
