"""Join pages and clicks that are in separate records, in logs larger than memory.

Rows are partitioned on disk by the key of their page; DuckDB joins one partition at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import Int64
from reclick.data.timestamps import TIME, clock_times
from reclick.logs.assembly.spill import (
    ROW_NUMBER_BITS,
    SpilledPartitions,
    cast_to_schema,
    connect,
    count_partitions,
    estimate_log_bytes,
    load_sql,
    translate_error,
)
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import OUTCOME_FIELDS, SESSION_SCHEMA, abbreviate
from reclick.logs.formats.base import ReadReport
from reclick.logs.validation.reasons import (
    CLICK_NOT_SHOWN,
    CLICK_WITHOUT_PAGE,
    NO_ADS,
    NO_QUERY,
    TWO_PAGES_ONE_KEY,
)
from reclick.runtime.outputs import scratch_folder

Bool = npt.NDArray[np.bool_]
SAMPLE_SHOWN = 50_000  # impressions that are always kept, to infer the first position
ENOUGH_POSITIONS = 1000  # clicks needed to infer whether positions start at 0 or 1
MAX_REMEMBERED_KEYS = 16_000_000  # to limit memory
OUTPUT_ROWS = 100_000  # of a batch of sessions
CONVERSION_NOTE = "conversion without a click on its ad before it, skipped"

# `file` and `number` are the origin of a row, for the order of rows and for messages.
ORIGIN_COLUMNS = [("file", pa.int32()), ("number", pa.int64())]
PAGE_COLUMNS = [
    ("key", pa.string()),
    ("query", pa.string()),
    ("ads", pa.list_(pa.string())),
    ("time", TIME),
    ("user", pa.string()),
]
SHOWN_COLUMNS = [
    ("key", pa.string()),
    ("query", pa.string()),
    ("ad", pa.string()),
    ("position", pa.int64()),
    ("time", TIME),
    ("user", pa.string()),
]
CLICK_COLUMNS = [
    ("key", pa.string()),
    ("ad", pa.string()),
    ("position", pa.int64()),
    ("time", TIME),
]
# The outcome of each click.
OUTCOME_COLUMNS = [(field.name, field.type.value_type) for field in OUTCOME_FIELDS]
_COLUMNS = {
    "pages": PAGE_COLUMNS,
    "shown": SHOWN_COLUMNS,
    "clicks": [*CLICK_COLUMNS, *OUTCOME_COLUMNS],
    "conversions": CLICK_COLUMNS,
}
INPUT_SCHEMAS = {kind: pa.schema([*columns, *ORIGIN_COLUMNS]) for kind, columns in _COLUMNS.items()}
SPILLED_SCHEMAS = {
    kind: pa.schema([*columns, ("origin", pa.int64())]) for kind, columns in _COLUMNS.items()
}


class PageJoin:
    """Stores pages, impressions and clicks on disk, and joins them.

    `first_position` is the number of the first position in clicks on pages that are whole records;
    None infers it from the log. `notes_by_reason` maps reasons that the format allows to notes:
    such rows are counted as notes, not as bad rows. With `conversions_are_events`, a click without
    a known conversion has none, if the log has any conversions.

    >>> from tempfile import TemporaryDirectory
    >>> shown = {"key": ["p", "p"], "query": ["shoes", None], "ad": ["b", "a"], "position": [2, 1]}
    >>> with TemporaryDirectory() as folder, PageJoin(Path(folder), [], 0) as join:
    ...     join.add("shown", pa.table(shown))
    ...     join.add("clicks", pa.table({"key": ["p"], "ad": ["b"]}))
    ...     [batch.to_pydict()["clicks"] for batch in join.sessions(ReadReport())]
    [[[2]]]
    """

    def __init__(
        self,
        folder: Path,
        files: list[LogFile],
        log_bytes: int,
        *,
        first_position: int | None = 1,
        notes_by_reason: Mapping[str, str] = MappingProxyType({}),
        conversions_are_events: bool = False,
    ) -> None:
        """The partitions are in `folder`; messages name the `files`."""
        self.files = [file.where for file in files] or ["table"]
        self.first_position, self.notes_by_reason = first_position, notes_by_reason
        self.num_partitions = count_partitions(log_bytes)
        self._num_added = dict.fromkeys(INPUT_SCHEMAS, 0)
        self._whole_pages = HashedKeySet()
        self._clicks_have_positions = False
        self._conversions_are_events = conversions_are_events
        self._known_outcomes: set[str] = set()
        self._folder, self._connection = folder, connect(folder)
        self._sql = load_sql("page_join.sql")
        self._partitions = {
            kind: SpilledPartitions(folder, kind, schema, self.num_partitions)
            for kind, schema in SPILLED_SCHEMAS.items()
        }

    def __enter__(self) -> PageJoin:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._connection.close()
        for partitions in self._partitions.values():
            partitions.close()
        translate_error(error, self._folder)

    def add(self, kind: str, table: pa.Table) -> None:
        """Add rows of "pages", "shown" (one ad per row), "clicks", or "conversions" after clicks.

        A missing column is null; rows without `number` are numbered.
        """
        if not table.num_rows:
            return
        rows = self._add_origin(kind, table)
        if rows["key"].null_count:
            raise ValueError(f"{kind}: a row without a key. The reader of a format drops those.")
        if kind == "pages":
            lengths = pc.list_value_length(rows["ads"].combine_chunks())
            self._whole_pages.add(rows["key"].combine_chunks().filter(pc.greater(lengths, 0)))
        elif kind == "shown":
            rows = self._drop_known_pages(rows)
        elif kind == "clicks":
            self._clicks_have_positions |= rows["position"].null_count < len(rows)
            for name, _ in OUTCOME_COLUMNS:
                if rows[name].null_count < len(rows):
                    self._known_outcomes.add(name)
        else:
            self._known_outcomes.add("conversions")
        self._partitions[kind].add(rows)

    def sessions(self, report: ReadReport) -> Iterator[pa.RecordBatch]:
        """Yield the sessions, in the order of the log within each partition.

        Clicks that match no impression, and pages without ads or query, are added to the report.
        """
        for partitions in self._partitions.values():
            partitions.flush()
        first = self.first_position
        first = self._infer_first_position() if first is None else first
        for partition in range(self.num_partitions):
            self._load(partition)
            self._connection.execute(self._sql["first_pages"])
            self._connection.execute(self._sql["clicks_on_pages"], {"first": first})
            self._connection.execute(self._sql["conversions_of_clicks"], {"first": first})
            self._add_to_report(report, first)
            has_conversions = "conversions" in self._known_outcomes
            params = {
                "no_conversion": 0.0 if has_conversions and self._conversions_are_events else None
            }
            result = self._connection.sql(self._sql["sessions"], params=params)
            for batch in result.to_arrow_reader(OUTPUT_ROWS):
                yield _to_session_schema(batch, self._known_outcomes)

    def _drop_known_pages(self, rows: pa.Table) -> pa.Table:
        """Drop impressions on pages that were added whole, except for a sample."""
        num_added_before = self._num_added["shown"] - len(rows)
        if self.first_position is None and num_added_before < SAMPLE_SHOWN:
            return rows
        is_known = self._whole_pages.contains(rows["key"].combine_chunks())
        return rows.filter(pa.array(~is_known)) if is_known.any() else rows

    def _load(self, partition: int) -> None:
        for kind, partitions in self._partitions.items():
            self._connection.register(kind, partitions.read(partition))

    def _infer_first_position(self) -> int:
        """Infer the number of the first position, 0 or 1, from as many partitions as needed."""
        zero = one = 0
        for partition in range(self.num_partitions if self._clicks_have_positions else 0):
            self._load(partition)
            from_zero, from_one = self._fetch("count_first_positions")[0]
            zero, one = zero + from_zero, one + from_one
            if zero + one >= ENOUGH_POSITIONS:
                break
        return 0 if zero > one else 1

    def _add_to_report(self, report: ReadReport, first: int) -> None:
        for has_page, reason in ((False, CLICK_WITHOUT_PAGE), (True, CLICK_NOT_SHOWN)):
            rows = self._fetch("unplaced_clicks", {"has_page": has_page})
            self._add_bad_rows(report, reason, rows, _describe_click)
        for reason, statement in (
            (NO_ADS, "pages_without_ads"),
            (NO_QUERY, "pages_without_query"),
            (TWO_PAGES_ONE_KEY, "mixed_pages"),
        ):
            rows = self._fetch(statement)
            self._add_bad_rows(report, reason, rows, lambda key: f"page {abbreviate(key)}")
        pages, later_pages, impressions, clicks = self._fetch("count_repeats")[0]
        report.add_note("page recorded again, the first kept", pages or 0)
        report.add_note(
            "page recorded again, a later one kept: it holds the clicks", later_pages or 0
        )
        report.add_note(
            "ad shown again on its page at its position, counted once", impressions or 0
        )
        report.add_note("click recorded again at the same time, counted once", clicks or 0)
        report.add_note(CONVERSION_NOTE, self._fetch("count_other_conversions")[0][0])
        if self.first_position is None:
            other_start, unrelated = self._fetch("count_wrong_positions", {"first": first})[0]
            report.add_note(
                f"click whose position counts from {1 - first}, where the log counts from {first}; "
                "its ad decided",
                other_start,
            )
            report.add_note(
                "click whose position is not where its ad stands; the ad decided", unrelated
            )

    def _add_bad_rows(
        self, report: ReadReport, reason: str, rows: list[Any], describe: Callable[..., str]
    ) -> None:
        total = rows[0][-1] if rows else 0
        if reason in self.notes_by_reason:
            report.add_note(self.notes_by_reason[reason], total)
            return
        number_mask = (1 << ROW_NUMBER_BITS) - 1
        examples = [
            (self.files[origin >> ROW_NUMBER_BITS], origin & number_mask, describe(*values))
            for origin, *values, _ in rows
        ]
        report.add_bad_rows(reason, total, examples)

    def _fetch(self, statement: str, params: dict[str, Any] | None = None) -> list[Any]:
        return list(self._connection.execute(self._sql[statement], params or {}).fetchall())

    def _add_origin(self, kind: str, table: pa.Table) -> pa.Table:
        first = self._num_added[kind] + 1
        self._num_added[kind] += table.num_rows
        names = table.column_names
        number = np.arange(first, first + table.num_rows)
        if "number" in names:
            number = table["number"].to_numpy()
        file = table["file"].to_numpy().astype(np.int64) if "file" in names else 0
        origin = pa.array((file << ROW_NUMBER_BITS) + number)
        return cast_to_schema(table.append_column("origin", origin), SPILLED_SCHEMAS[kind])


def join_pages(
    files: list[LogFile],
    report: ReadReport,
    add_rows: Callable[[PageJoin], None],
    *,
    first_position: int | None = 1,
    notes_by_reason: Mapping[str, str] = MappingProxyType({}),
    conversions_are_events: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Join the rows that `add_rows` adds, with partitions in a temporary folder."""
    log_bytes = estimate_log_bytes({file.path for file in files})
    options: dict[str, Any] = {
        "first_position": first_position,
        "notes_by_reason": notes_by_reason,
        "conversions_are_events": conversions_are_events,
    }
    with (
        scratch_folder() as folder,
        PageJoin(folder, files, log_bytes, **options) as join,
    ):
        add_rows(join)
        yield from join.sessions(report)


def join_key_parts(parts: Sequence[pa.Array]) -> pa.Array:
    r"""Join the parts of a key to one text, distinct for distinct parts; null if a part is null.

    >>> join_key_parts([pa.array(["a|b", "a"]), pa.array(["c", "b|c"])]).to_pylist()
    ['a\\|b|c', 'a|b\\|c']
    """
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*(_escape(part) for part in parts), "|")


def first_key_part(keys: pa.Array) -> pa.Array:
    r"""The first of two parts that were joined.

    >>> first_key_part(pa.array([r"a\|b|c"])).to_pylist()
    ['a|b']
    """
    first = pc.replace_substring_regex(keys, r"(?s)^((?:[^\\|]|\\.)*)\|.*$", r"\1")
    return pc.replace_substring_regex(first, r"(?s)\\(.)", r"\1")


class HashedKeySet:
    """A set of keys in eight bytes each.

    Keys are compared by their 64-bit hashes: not even a million logs of a million pages are likely
    to have a collision. After `max_keys`, no more keys are added.

    >>> keys = HashedKeySet()
    >>> keys.add(pa.array(["a", "b"]))
    >>> keys.contains(pa.array(["b", "c", "b"])).tolist()
    [True, False, True]
    """

    def __init__(self, max_keys: int = MAX_REMEMBERED_KEYS) -> None:
        self.max_keys = max_keys
        # Each run is much smaller than the previous one, so that there are few runs to search, and
        # each hash is merged only a few times.
        self._sorted_runs: list[Int64] = []

    def __len__(self) -> int:
        return sum(map(len, self._sorted_runs))

    def add(self, keys: pa.Array) -> None:
        """Add keys to the set."""
        if len(self) >= self.max_keys or not len(keys):
            return
        new = np.sort(_hash_keys(keys))
        while self._sorted_runs and len(self._sorted_runs[-1]) < 4 * len(new):
            run = np.concatenate([self._sorted_runs.pop(), new])
            new = np.sort(run, kind="stable")  # which merges sorted runs
        self._sorted_runs.append(new)

    def contains(self, keys: pa.Array) -> Bool:
        """Whether each key is in the set; False for null."""
        dictionary_array = keys.dictionary_encode()  # keys repeat
        hashes = _hash_keys(dictionary_array.dictionary)
        is_member = np.zeros(len(hashes) + 1, np.bool_)  # the last is for null
        for run in self._sorted_runs:
            index = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            is_member[:-1] |= run[index] == hashes
        by_row: Bool = is_member[dictionary_array.indices.fill_null(-1).to_numpy()]
        return by_row


def _hash_keys(keys: pa.Array) -> Int64:
    return np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys))


def _escape(values: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(values, r"[\\|]")).as_py():
        return values
    return pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), "|", "\\|")


def _to_session_schema(batch: pa.RecordBatch, known_outcomes: Collection[str]) -> pa.RecordBatch:
    """The sessions, with those outcomes of clicks that the log has."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["timestamp"] = clock_times(columns.pop("time").cast(TIME))
    outcome_fields = (field for field in OUTCOME_FIELDS if field.name in known_outcomes)
    schema = pa.schema([*SESSION_SCHEMA, *outcome_fields])
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _describe_click(key: str, ad: str | None, position: int | None) -> str:
    parts = [] if ad is None else [f"ad {abbreviate(ad)}"]
    parts += [] if position is None else [f"position {position}"]
    return f"page {abbreviate(key)}, {' at '.join(parts) or 'no ad and no position'}"
