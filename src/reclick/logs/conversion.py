"""Write a log as a Parquet file of sessions: Reclick's own columns first, then all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from weakref import finalize

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.batch import SessionBatch
from reclick.data.schema import LOG_COLUMNS, OUTCOME_COLUMNS
from reclick.errors import Argument, BadRowsError, LogError, UsageError, explain_write_errors
from reclick.logs.cleaning import UNLIMITED_ADS, Cleaning, remove_bots_and_reloads
from reclick.logs.files.parquet import open_parquet
from reclick.logs.files.source import FULL_SESSION_SCHEMA, OnError, RawBatch
from reclick.logs.formats.base import ReadReport
from reclick.logs.read_summary import (
    MAX_EXAMPLES,
    NULL_CLICKS_NOTE,
    REPEATED_CLICK_NOTE,
    BadRow,
    SummaryBuilder,
    bad_rows_error,
    describe_bad_rows,
)
from reclick.logs.session_log import Provenance, SessionLog
from reclick.runtime.filesystem import AnyPath, Location, as_path
from reclick.runtime.outputs import scratch_folder, stage_files
from reclick.runtime.parallel import prefetch

OWN_COLUMNS = ("query", "ads", "clicks", "weight", *OUTCOME_COLUMNS)
ROW_GROUP_ROWS = 200_000
SESSIONS_FILE = "sessions.parquet"
CHECK_FORMAT = "Is it the right format (`reclick formats` lists them), and are all its files given?"
MIXED_COLUMN_TYPES = (
    "a further column has different types in different files, so they do not make one file. "
    "Leave it out, or convert them one by one"
)


def write_sessions(
    batches: Iterator[RawBatch],
    report: ReadReport,
    *,
    name: str,
    to: Location | None = None,
    format: str | None = None,
    on_error: OnError = "raise",
    max_ads: int = 100,
    max_bad: float = 1.0,
    cleaning: Cleaning | None = None,
    overwrite: bool = False,
) -> SessionLog:
    """Write the good sessions to `to`, the text of ads next to it, and open that file.

    Without `to`, the file is temporary and is removed with the log. The summary of the log has the
    dropped rows and the notes. With on_error="raise", nothing is written if a row is bad;
    otherwise, nothing is written if more than the share `max_bad` of the rows are bad.
    """
    options = {
        "format": format,
        "on_error": on_error,
        "max_ads": max_ads,
        "max_bad": max_bad,
        "cleaning": cleaning,
    }
    if to is not None:
        target = _check_target(as_path(to))
        with stage_files([target, ads_path(target)], where=target, overwrite=overwrite) as paths:
            provenance = _write(paths[0], batches, report, name, **options)  # type: ignore[arg-type]
            if report.ads_table() is not None:
                pq.write_table(report.ads_table(), paths[1], compression="zstd")
        return _open_written(target, name, provenance, report, on_error, max_ads)
    with ExitStack() as stack:
        target = stack.enter_context(scratch_folder()) / SESSIONS_FILE
        with explain_write_errors(target.parent, files=[target]):
            provenance = _write(target, batches, report, name, **options)  # type: ignore[arg-type]
        log = _open_written(target, name, provenance, report, on_error, max_ads)
        finalize(log, stack.pop_all().close)
    return log


def ads_path(sessions: Location) -> AnyPath:
    """The path of the text of ads next to a file of sessions."""
    return as_path(sessions).with_suffix(".ads.parquet")


def with_row_numbers(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[RawBatch]:
    """Turn sessions made from another format into the batches that every reader yields."""
    first = 1
    for batch in batches:
        columns = {name: batch.column(name) for name in batch.schema.names if name in OWN_COLUMNS}
        yield RawBatch(where, first, columns, batch.num_rows, rows=batch)
        first += batch.num_rows


def session_table(batch: SessionBatch) -> pa.Table:
    """The sessions in Reclick's own columns, followed by all other columns of the log."""
    columns = {
        "query": batch.queries.take(pa.array(batch.query)),
        "ads": pa.LargeListArray.from_arrays(batch.page, batch.ads.take(pa.array(batch.ad))),
        "clicks": pa.LargeListArray.from_arrays(batch.clicks, batch.click),
    }
    if batch.weight is not None:
        columns["weight"] = pa.array(batch.weight)
    for name in OUTCOME_COLUMNS:
        values = None if batch.outcomes is None else getattr(batch.outcomes, name)
        if values is not None:
            numbers = pa.array(values, mask=np.isnan(values))
            columns[name] = pa.LargeListArray.from_arrays(batch.clicks, numbers)
    if batch.rows is not None:
        names = [name for name in batch.rows.schema.names if name not in OWN_COLUMNS]
        columns |= {name: batch.rows.column(name) for name in names}
    return pa.table(columns)


def _check_target(path: AnyPath) -> AnyPath:
    if path.suffix.lower() not in {".parquet", ".pq"}:
        raise UsageError(
            f"{path}: sessions are written as Parquet. Give a name that ends in .parquet."
        )
    if path.is_dir():
        raise LogError(
            f"{path} cannot be written: it is a folder. Give the path of a Parquet file."
        )
    return path


def _write(
    path: Path,
    batches: Iterator[RawBatch],
    report: ReadReport,
    name: str,
    *,
    format: str | None,
    on_error: OnError,
    max_ads: int,
    max_bad: float,
    cleaning: Cleaning | None,
) -> Provenance:
    """Write the good sessions to a file, and return the provenance for the log."""
    builder = SummaryBuilder()
    cuts_pages = cleaning is not None and cleaning.first is not None  # after validation
    raw_batches = prefetch(batches, on_stop=report.cancel)
    tables = _validate(raw_batches, UNLIMITED_ADS if cuts_pages else max_ads, builder)
    num_written = _write_parquet(tables, path, report, cleaning, name)
    if on_error == "drop":
        _check_bad_share(name, builder, report, max_bad)
    _check_result(name, builder, report, num_written, on_error)
    if cleaning is not None and cleaning.needs_whole_log:
        num_remaining = _clean_whole_log(path, cleaning, report)
        _check_result(name, builder, report, num_remaining, on_error)
    return _describe_provenance(name, format, builder, report)


def _open_written(
    path: AnyPath,
    name: str,
    provenance: Provenance,
    report: ReadReport,
    on_error: OnError,
    max_ads: int,
) -> SessionLog:
    return SessionLog(
        [open_parquet(path, name, LOG_COLUMNS, {})],
        ads=report.ads_table(),
        on_error=on_error,
        max_ads=max_ads,
        provenance=provenance,
    )


def _validate(
    batches: Iterator[RawBatch], max_ads: int, builder: SummaryBuilder
) -> Iterator[pa.Table]:
    from reclick.logs.validation.validate import validate

    previous = None
    for raw in batches:
        result = validate(raw, max_ads, previous)
        previous = result.arrays
        builder.add(raw, result)
        if result.totals.sessions:
            yield _cast_own_columns(session_table(result.sessions))


def _cast_own_columns(table: pa.Table) -> pa.Table:
    """Cast large string and list types to the normal ones in Reclick's own columns."""
    session_schema = FULL_SESSION_SCHEMA
    kinds = [
        (
            field.name,
            session_schema.field(field.name).type if field.name in OWN_COLUMNS else field.type,
        )
        for field in table.schema
    ]
    return table.cast(pa.schema(kinds))


def _write_parquet(
    tables: Iterator[pa.Table], path: Path, report: ReadReport, cleaning: Cleaning | None, name: str
) -> int:
    """Write the tables, collected into row groups, and return the number of rows."""
    writer, num_rows = None, 0
    try:
        for group in _collect_groups(tables, name):
            rows = group
            if cleaning is not None:
                batch = group.combine_chunks().to_batches()[0]
                rows = pa.Table.from_batches([cleaning.clean_batch(batch, report)])
            writer = writer or pq.ParquetWriter(path, rows.schema, compression="zstd")
            table = _fit_to_schema(rows, writer.schema, name)
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            num_rows += rows.num_rows
    finally:
        if writer is not None:
            writer.close()
    return num_rows


def _collect_groups(tables: Iterator[pa.Table], name: str) -> Iterator[pa.Table]:
    group: list[pa.Table] = []
    rows = 0
    for table in tables:
        group.append(table)
        rows += table.num_rows
        if rows >= ROW_GROUP_ROWS:
            yield _concatenate(group, name)
            group, rows = [], 0
    if group:
        yield _concatenate(group, name)


def _concatenate(tables: list[pa.Table], name: str) -> pa.Table:
    """Concatenate tables; a column that a table lacks is null there."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise LogError(f"{name}: {MIXED_COLUMN_TYPES} ({error}).") from error


def _fit_to_schema(rows: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """The rows in the columns of the file: missing columns are null, new ones are dropped."""
    try:
        columns = [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in schema
        ]
    except pa.ArrowException as error:
        raise LogError(f"{name}: {MIXED_COLUMN_TYPES} ({error}).") from error
    return pa.table(columns, schema=schema)


def _clean_whole_log(path: Path, cleaning: Cleaning, report: ReadReport) -> int:
    """Remove bots and reloads from the file, in place, and return the number of rows left."""
    cleaned_path = path.with_name(f"{path.name}.cleaned")
    try:
        remove_bots_and_reloads(path, cleaned_path, cleaning, report)
        cleaned_path.replace(path)
    finally:
        cleaned_path.unlink(missing_ok=True)
    return int(pq.read_metadata(path).num_rows)


def _check_result(
    name: str, builder: SummaryBuilder, report: ReadReport, num_sessions: int, on_error: OnError
) -> None:
    """Raise if no session is left, or if a row is bad with on_error="raise"."""
    dropped, examples = _merge_dropped(builder, report)
    rows = _count_rows(builder, report)
    if dropped and on_error == "raise":
        nothing = "" if num_sessions else f" No session could be made of it. {CHECK_FORMAT}"
        unit = "records" if report.records else "rows"
        raise bad_rows_error(report.records or rows, dropped, examples, name, nothing, unit)
    if not num_sessions:
        notes = "".join(f" {count:,} × {note}." for note, count in report.notes.items())
        advice = "" if builder.totals.sessions else f" {CHECK_FORMAT}"
        raise LogError(f"{name}: no session is left of {rows:,} rows.{notes}{advice}")


def _check_bad_share(
    name: str, builder: SummaryBuilder, report: ReadReport, max_bad: float
) -> None:
    """Raise if the share of bad records, or of bad pages, exceeds `max_bad`."""
    records, pages = (sum(each.dropped.values()) for each in (report.bad_rows, builder))
    whole = report.records or _count_rows(builder, report)
    share = max(records / max(whole, 1), pages / max(builder.rows, 1))
    if share > max_bad:
        dropped, examples = _merge_dropped(builder, report)
        unit = "records" if report.records else "rows"
        raise BadRowsError(
            describe_bad_rows(whole, dropped, examples, name, unit),
            f" That is {share:.1%}, more than {max_bad:.1%}, so nothing was written. {CHECK_FORMAT}"
            " If it is right, allow more with ",
            Argument("max_bad", ...),
            ".",
        )


def _merge_dropped(
    builder: SummaryBuilder, report: ReadReport
) -> tuple[dict[str, int], dict[str, list[BadRow]]]:
    """The rows dropped by the reader of the format and by validation: counts and examples."""
    dropped = dict((report.bad_rows.dropped + builder.dropped).most_common())
    examples = {
        reason: report.bad_rows.examples.get(reason, []) + builder.examples.get(reason, [])
        for reason in dropped
    }
    return dropped, {reason: rows[:MAX_EXAMPLES] for reason, rows in examples.items()}


def _count_rows(builder: SummaryBuilder, report: ReadReport) -> int:
    return builder.rows + sum(report.bad_rows.dropped.values())


def _describe_provenance(
    name: str, format: str | None, builder: SummaryBuilder, report: ReadReport
) -> Provenance:
    """What a pass over the new file cannot see: dropped rows, notes, and repaired clicks."""
    dropped, examples = _merge_dropped(builder, report)
    repairs = {
        note: count
        for note, count in builder.build().notes.items()
        if note in {REPEATED_CLICK_NOTE, NULL_CLICKS_NOTE}
    }
    rows = _count_rows(builder, report)
    return Provenance(
        name,
        format,
        rows,
        dropped,
        examples,
        notes={**report.notes, **repairs},
        clicks=builder.totals.clicks,
        other_actions=dict(report.other_actions),
        records=report.records or None,
        dropped_records=dict(report.bad_rows.dropped),
    )
