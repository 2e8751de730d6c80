"""Write a log anew: its clean sessions as a Parquet file of Reclick's own columns, with every other column beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from weakref import finalize

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.data.batch import SessionBatch
from reclick.data.schema import SESSION_COLUMNS
from reclick.errors import BadRowsError, LogError, SettingError
from reclick.logs.files.parquet import open_parquet
from reclick.logs.files.source import OnError, Raw
from reclick.logs.formats.base import WEIGHTED, Found
from reclick.logs.session_log import Origin, SessionLog
from reclick.logs.summary import (
    KEPT_EXAMPLES,
    NULL_CLICKS_NOTE,
    REPEATED_CLICK_NOTE,
    Example,
    Tally,
    bad_rows_message,
)
from reclick.logs.validation.reasons import KEPT
from reclick.runtime.atomic_write import whole_file
from reclick.runtime.prefetch import read_ahead

if TYPE_CHECKING:
    from reclick.logs.cleaning import Cleaning

OURS = ("query", "ads", "clicks", "weight")
GROUP_ROWS = 200_000
FILE = "sessions.parquet"
WRONG_FORMAT = "Is it the right format (`reclick formats` lists them), and are all its files given?"
ANY_LENGTH = 2**31 - 1
OTHER_COLUMNS = "a further column has different types in different files, so they do not make one file. Leave it out, or convert them one by one"


def rewrite(
    raws: Iterator[Raw],
    found: Found,
    *,
    name: str,
    to: str | Path | None = None,
    format: str | None = None,
    on_error: OnError = "raise",
    max_ads: int = 100,
    cleaning: Cleaning | None = None,
) -> SessionLog:
    """Write the clean sessions to `to`, or to a temporary file that goes when the log goes, and open that.

    What was dropped and noted on the way is in the summary of the log. With on_error="raise" nothing is written when a row is bad.
    """
    if to is None:
        folder = Path(mkdtemp(prefix="reclick-"))
        try:
            log = rewrite(
                raws,
                found,
                name=name,
                to=folder / FILE,
                format=format,
                on_error=on_error,
                max_ads=max_ads,
                cleaning=cleaning,
            )
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        finalize(log, rmtree, folder, ignore_errors=True)
        return log
    target, tally = _target(Path(to)), Tally()
    longest = (
        ANY_LENGTH if cleaning is not None and cleaning.first is not None else max_ads
    )  # pages are cut after the check
    with whole_file(target) as beside:
        written = _write(
            _clean_tables(read_ahead(raws, on_stop=found.stop), longest, tally),
            beside,
            found,
            cleaning,
            name,
        )
        _refuse(name, tally, found, written, on_error)
        if cleaning is not None and cleaning.whole_log:
            _refuse(name, tally, found, _clean_whole(beside, cleaning, found), on_error)
    source = open_parquet(str(target), name, SESSION_COLUMNS, {})
    return SessionLog(
        [source],
        ads=found.ads,
        on_error=on_error,
        max_ads=max_ads,
        origin=_origin(name, format, tally, found),
    )


def numbered(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[Raw]:
    """Batches of sessions made from another format, as what every reader gives."""
    first = 1
    for batch in batches:
        columns = {name: batch.column(name) for name in batch.schema.names if name in OURS}
        yield Raw(where, first, columns, batch.num_rows, rows=batch)
        first += batch.num_rows


def session_table(batch: SessionBatch) -> pa.Table:
    """The sessions in Reclick's own columns, and every other column of the log beside them."""
    ads = pa.LargeListArray.from_arrays(batch.page, batch.ads.take(pa.array(batch.ad)))
    columns = {
        "query": batch.queries.take(pa.array(batch.query)),
        "ads": ads,
        "clicks": pa.LargeListArray.from_arrays(batch.clicks, batch.click),
    }
    if batch.weight is not None:
        columns["weight"] = pa.array(batch.weight)
    rows = batch.rows
    others = [] if rows is None else [name for name in rows.schema.names if name not in OURS]
    return pa.table({**columns, **{name: rows.column(name) for name in others}})  # type: ignore[union-attr]


def _clean_tables(raws: Iterator[Raw], max_ads: int, tally: Tally) -> Iterator[pa.Table]:
    from reclick.logs.validation.validate import clean

    last = None
    for raw in raws:
        checked = clean(raw, max_ads, last)
        last = checked.rows
        tally.add(raw, checked)
        if checked.totals[KEPT]:
            yield _plain(session_table(checked.batch))


def _plain(table: pa.Table) -> pa.Table:
    """The same with the usual types in place of the large ones."""
    kinds = [
        (field.name, WEIGHTED.field(field.name).type if field.name in OURS else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(kinds))


def _write(
    tables: Iterator[pa.Table], path: Path, found: Found, cleaning: Cleaning | None, name: str
) -> int:
    """Write the tables, gathered to row groups; the number of rows written."""
    writer, written = None, 0
    try:
        for group in _gathered(tables, name):
            rows = (
                group
                if cleaning is None
                else pa.Table.from_batches(
                    [cleaning.batch(group.combine_chunks().to_batches()[0], found)]
                )
            )
            writer = writer or pq.ParquetWriter(path, rows.schema, compression="zstd")
            writer.write_table(_like(writer.schema, rows, name), row_group_size=GROUP_ROWS)
            written += rows.num_rows
    finally:
        if writer is not None:
            writer.close()
    return written


def _gathered(tables: Iterator[pa.Table], name: str) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows >= GROUP_ROWS:
            yield _together(held, name)
            held, rows = [], 0
    if held:
        yield _together(held, name)


def _together(tables: list[pa.Table], name: str) -> pa.Table:
    """The tables as one: a column that some lack is null there."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise LogError(f"{name}: {OTHER_COLUMNS} ({error}).") from error


def _like(schema: pa.Schema, rows: pa.Table, name: str) -> pa.Table:
    """The rows with the columns that the first of the file had; one that came later is left out, one that is missing is null."""
    try:
        columns = [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in schema
        ]
    except pa.ArrowException as error:
        raise LogError(f"{name}: {OTHER_COLUMNS} ({error}).") from error
    return pa.table(columns, schema=schema)


def _clean_whole(path: Path, cleaning: Cleaning, found: Found) -> int:
    """Clean over the whole log what was written, in place; the number of rows left."""
    from reclick.logs.assembly.bots_and_reloads import cleaned

    after = path.with_name(f"{path.name}.cleaned")
    try:
        cleaned(path, after, cleaning, found)
        after.replace(path)
    finally:
        after.unlink(missing_ok=True)
    return int(pq.read_metadata(path).num_rows)


def _refuse(name: str, tally: Tally, found: Found, written: int, on_error: OnError) -> None:
    """Stop when rows are bad and may not be, and when nothing is left."""
    dropped, examples = _dropped(tally, found)
    rows = tally.rows + sum(found.faults.dropped.values())
    nothing = "" if written else f" No session could be made of it. {WRONG_FORMAT}"
    if dropped and on_error == "raise":
        raise BadRowsError(bad_rows_message(rows, dropped, examples, name) + nothing)
    if not written:
        notes = "".join(f" {count:,} × {note}." for note, count in found.notes.items())
        raise LogError(
            f"{name}: no session is left of {rows:,} rows.{notes}{'' if tally.totals[KEPT] else f' {WRONG_FORMAT}'}"
        )


def _dropped(tally: Tally, found: Found) -> tuple[dict[str, int], dict[str, list[Example]]]:
    dropped = dict((found.faults.dropped + tally.dropped).most_common())
    first = {
        reason: found.faults.examples.get(reason, []) + tally.examples.get(reason, [])
        for reason in dropped
    }
    return dropped, {reason: examples[:KEPT_EXAMPLES] for reason, examples in first.items()}


def _origin(name: str, format: str | None, tally: Tally, found: Found) -> Origin:
    """What a pass over the new file cannot find again: what was dropped, and what was put right."""
    dropped, examples = _dropped(tally, found)
    righted = {
        note: count
        for note, count in tally.finish().notes.items()
        if note in {REPEATED_CLICK_NOTE, NULL_CLICKS_NOTE}
    }
    rows = tally.rows + sum(found.faults.dropped.values())
    return Origin(name, format, rows, dropped, examples, {**found.notes, **righted})


def _target(path: Path) -> Path:
    if path.suffix.lower() not in {".parquet", ".pq"}:
        raise SettingError(
            f"{path}: sessions are written as Parquet. Give a name that ends in .parquet."
        )
    if path.is_dir():
        raise LogError(
            f"{path} cannot be written: it is a folder. Give the path of a Parquet file."
        )
    return path
