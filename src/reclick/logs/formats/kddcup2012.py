"""Read KDD Cup 2012, track 2: search ads with counts of clicks and impressions, and words.

An instance counts the clicks and impressions of one user, query, ad and position. Pages are rebuilt
from the instances in SQL.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from reclick.errors import LogError
from reclick.logs.assembly.spill import (
    ROW_NUMBER_BITS,
    PartitionedQuery,
    count_partitions,
    estimate_log_bytes,
    load_sql,
)
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import WEIGHTED_SESSION_SCHEMA, abbreviate
from reclick.logs.formats.base import (
    BATCH_SESSIONS,
    NO_CLICK_ORDER_NOTE,
    ColumnMapping,
    LogFormat,
    ReadReport,
)
from reclick.logs.formats.helpers.session_lines import all_match
from reclick.logs.read_summary import MAX_EXAMPLES
from reclick.logs.validation.reasons import (
    MORE_CLICKS_THAN_IMPRESSIONS,
    NO_IMPRESSIONS,
    NOT_READABLE,
    POSITION_BEYOND_DEPTH,
)
from reclick.runtime.outputs import scratch_folder
from reclick.runtime.parallel import thread_limit

INSTANCE_COLUMNS = (
    "click",
    "impression",
    "url",
    "ad",
    "advertiser",
    "depth",
    "position",
    "query",
    "keyword",
    "title",
    "description",
    "user",
)
TRAINING_LINE, TEST_LINE = re.compile(rb"\d+(\t\d+){11}"), re.compile(rb"\d+(\t\d+){9}")
WORD_FILES = {"titleid_tokensid": "title", "descriptionid_tokensid": "description"}
UNREAD_FILES = ("queryid_tokensid", "purchasedkeyword", "userid_profile", "kdd_track2_solution")
TRAINING = "training"  # the content of a file of instances
INT64_LIMIT = 2**63
KEY_FACTOR = 1_000_003  # spreads users over the partitions
MEMORY_FACTOR = 3  # memory per instance while pages are rebuilt, in sizes of its line

UNREAD_FILE_NOTE = "file that pages do not need, not read"
NO_WORDS_NOTE = "ad whose title or description has no words"
PAGE_NOTES = {  # note -> the statement that counts
    "row of a page with positions missing, skipped": "count_missing",
    "row of a page whose positions were shown unequally often, skipped": "count_unequal",
    "row of pages that cannot be told apart, skipped": "count_mixed",
    "page shown more than once, its clicks spread over the showings": "count_spread",
}
INSTANCE_SCHEMA = pa.schema(
    [
        (name, pa.int64())
        for name in (
            "key",
            "click",
            "impression",
            "ad",
            "depth",
            "position",
            "query",
            "user",
            "origin",
        )
    ]
)


class KddPages(PartitionedQuery):
    """Stores instances and the words of titles and descriptions, and rebuilds the pages."""

    def __init__(self, folder: Path, partitions: int) -> None:
        super().__init__(folder, INSTANCE_SCHEMA, partitions)
        self._sql = load_sql("kddcup2012.sql", "reclick.logs.formats")
        self.connection.execute(self._sql["create_tables"])

    def add_words(self, table: pa.Table) -> None:
        """Add the words of titles or descriptions: field, id, words."""
        self.execute_with("batch", table, self._sql["add_words"])

    def add_ad_texts(self, table: pa.Table) -> None:
        """Add the text ids of ads: ad, title, description, url, origin."""
        self.execute_with("batch", table, self._sql["add_ad_texts"])

    def sessions(self, report: ReadReport) -> Iterator[pa.RecordBatch]:
        """Yield the sessions whose pages are known, with their weights."""
        schema = WEIGHTED_SESSION_SCHEMA
        notes = {note: self._sql[statement] for note, statement in PAGE_NOTES.items()}
        for partition in self.partitions():
            self.connection.register("instance", partition)
            self.connection.execute(self._sql["once"])
            self.connection.execute(self._sql["pages"])
            self.add_notes(notes, report)
            for batch in self._read("sessions"):
                several_clicks = pc.greater(pc.list_value_length(batch["clicks"]), 1)
                count = int(pc.sum(several_clicks).as_py() or 0)
                report.add_note(NO_CLICK_ORDER_NOTE, count)
                arrays = [batch[field.name].cast(field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def report_texts(self, report: ReadReport) -> None:
        """Add the text of every ad to the report."""
        for batch in self._read("select_ad_texts"):
            columns = (column.to_pylist() for column in batch.columns)
            for ad, title, description, url in zip(*columns, strict=True):
                report.add_ad_text(ad, title, description, url)
                report.add_note(NO_WORDS_NOTE, not (title and description))

    def _read(self, statement: str) -> Iterator[pa.RecordBatch]:
        yield from self.connection.sql(self._sql[statement]).to_arrow_reader(BATCH_SESSIONS)


def _recognises(files: list[LogFile]) -> bool:
    return any(
        _file_content(file) == TRAINING and all_match([file], TRAINING_LINE) for file in files
    )


def _file_content(file: LogFile) -> str:
    """The content of a file: title or description words, instances, or empty if it is not read."""
    name = file.name.lower()
    for start, content in WORD_FILES.items():
        if start in name:
            return content
    is_unread = any(start in name for start in UNREAD_FILES) or all_match([file], TEST_LINE)
    return "" if is_unread else TRAINING


def _read(files: list[LogFile], report: ReadReport, _: ColumnMapping) -> Iterator[pa.RecordBatch]:
    contents = [_file_content(file) for file in files]
    if TRAINING not in contents:
        names = ", ".join(file.where for file in files[:10])
        raise LogError(f"No file of training instances among {names}. Give training.txt too.")
    report.add_note(UNREAD_FILE_NOTE, contents.count(""))
    log_bytes = MEMORY_FACTOR * estimate_log_bytes({file.path for file in files})
    has_words = not set(contents).isdisjoint(WORD_FILES.values())
    with (
        scratch_folder() as folder,
        KddPages(folder, count_partitions(log_bytes)) as pages,
    ):
        for index, (file, content) in enumerate(zip(files, contents, strict=True)):
            if content == TRAINING:
                _add_instances(file, index, pages, report, with_text=has_words)
            elif content:
                for table in _read_tables(file, ("id", "words"), report):
                    pages.add_words(_words_table(table, content))
        yield from pages.sessions(report)
        pages.report_texts(report)


def _add_instances(
    file: LogFile, index: int, pages: KddPages, report: ReadReport, *, with_text: bool
) -> None:
    for table in _read_tables(file, INSTANCE_COLUMNS, report):
        rows = _drop_bad_rows(table, file, report)
        rows = rows.append_column("origin", pc.add(rows["number"], index << ROW_NUMBER_BITS))
        if with_text:
            pages.add_ad_texts(rows)
        # The rows of a user and query must be in one partition, which may also have other rows.
        key = pc.bit_wise_xor(pc.multiply(rows["user"], KEY_FACTOR), rows["query"])
        pages.add(rows.append_column("key", key))


def _read_tables(file: LogFile, names: tuple[str, ...], report: ReadReport) -> Iterator[pa.Table]:
    """Yield the lines of a file as columns, with numbers. All except url and words are integers."""
    schema = pa.schema(
        [(name, pa.string() if name in {"url", "words"} else pa.int64()) for name in names]
    )
    first = 1
    for block in file.blocks(report.advance):
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        report.add_records(lines)
        table = _parse_valid_block(block, schema)
        if table is not None and table.num_rows == lines:
            yield table.append_column("number", pa.array(np.arange(first, first + lines)))
        else:
            yield _parse_lines(block, schema, first, file, report)
        first += lines


def _parse_valid_block(block: bytes, schema: pa.Schema) -> pa.Table | None:
    """Parse all lines at once with Arrow; None if one of them is bad."""
    read = arrow_csv.ReadOptions(
        column_names=schema.names, block_size=len(block) + 1, use_threads=thread_limit() > 1
    )
    parse = arrow_csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False)
    convert = arrow_csv.ConvertOptions(
        column_types={field.name: field.type for field in schema},
        null_values=[],
        strings_can_be_null=False,
    )
    try:
        return arrow_csv.read_csv(
            io.BytesIO(block), read_options=read, parse_options=parse, convert_options=convert
        )
    except pa.ArrowInvalid:
        return None


def _parse_lines(
    block: bytes, schema: pa.Schema, first: int, file: LogFile, report: ReadReport
) -> pa.Table:
    rows: list[list[str]] = []
    numbers: list[int] = []
    integers = [index for index, field in enumerate(schema) if field.type == pa.int64()]
    for number, line in enumerate(block.removesuffix(b"\n").split(b"\n"), start=first):
        fields = line.decode(errors="replace").rstrip("\r").split("\t")
        if len(fields) == len(schema) and all(_is_integer(fields[index]) for index in integers):
            rows.append(fields)
            numbers.append(number)
        elif line.strip():
            got = abbreviate(line[:200].decode(errors="replace"))
            report.add_bad_row(NOT_READABLE, file.where, number, got)
    columns = [
        pa.array([row[index] for row in rows], pa.string()).cast(field.type)
        for index, field in enumerate(schema)
    ]
    return pa.table(columns, schema=schema).append_column("number", pa.array(numbers, pa.int64()))


def _is_integer(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < INT64_LIMIT


def _drop_bad_rows(table: pa.Table, file: LogFile, report: ReadReport) -> pa.Table:
    """Drop impossible instances: with more clicks than impressions, or outside of the page."""
    checks: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
        NO_IMPRESSIONS: lambda rows: pc.less(rows["impression"], 1),
        MORE_CLICKS_THAN_IMPRESSIONS: lambda rows: pc.greater(rows["click"], rows["impression"]),
        POSITION_BEYOND_DEPTH: lambda rows: pc.or_(
            pc.less(rows["position"], 1), pc.greater(rows["position"], rows["depth"])
        ),
    }
    for reason, is_bad in checks.items():
        bad = is_bad(table)
        bad_rows = table.filter(bad)
        if bad_rows.num_rows:
            examples = [
                (file.where, row["number"], _describe(row))
                for row in bad_rows.slice(0, MAX_EXAMPLES).to_pylist()
            ]
            report.add_bad_rows(reason, bad_rows.num_rows, examples)
            table = table.filter(pc.invert(bad))
    return table


def _describe(row: dict[str, int]) -> str:
    return ", ".join(f"{name} {row[name]}" for name in ("click", "impression", "depth", "position"))


def _words_table(table: pa.Table, field: str) -> pa.Table:
    return pa.table(
        {
            "field": pa.repeat(field, table.num_rows),
            "id": table["id"],
            "words": pc.replace_substring(table["words"], "|", " "),
        }
    )


FORMAT = LogFormat(
    name="kddcup2012",
    title="KDD Cup 2012, track 2",
    about=(
        "training.txt and the token files of titles and descriptions; clicks and impressions are "
        "counted, so sessions have weights and no order."
    ),
    recognises=_recognises,
    read=_read,
)
